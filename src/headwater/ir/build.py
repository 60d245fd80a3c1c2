"""Building a typed program: the one place where types are checked, conversions inserted and problems collected.

The notations call these methods while they walk their own syntax. Every method returns a typed node; where something
is wrong it notes a problem with its place and returns a *bad* node, which keeps quiet from then on, so that one run
reports everything. `finish` raises all problems at once.

This file does not parse, rewrite or execute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, cast

from headwater.errors import InterestError, InterestRefused, Problem
from headwater.ir.functions import FUNCTIONS, REDUCTIONS
from headwater.ir.interp import evaluate
from headwater.ir.nodes import (
    META_TYPES,
    NOWHERE,
    Assign,
    AssignElem,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Compare,
    CompareOp,
    Cond,
    Const,
    CopyOut,
    Elem,
    Expr,
    If,
    InSet,
    IsMissing,
    Load,
    Logic,
    Lookup,
    Loop,
    Meta,
    Missing,
    Param,
    ParamDecl,
    Path,
    Program,
    Reduce,
    Return,
    SetOut,
    Span,
    Stmt,
    Unary,
    Var,
    Variable,
)
from headwater.types.model import (
    BOOL,
    BYTES,
    F64,
    I64,
    TEXT,
    TIMESTAMP,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    U64,
    Array,
    Enum,
    List,
    Record,
    Scalar,
    Type,
    describe,
    promote,
)

MAX_NODES = 20_000
MAX_DEPTH = 100
MAX_VARIABLES = 256
MAX_ELEMENTS = 65_536  # of all array variables together
MAX_TEXT = 256 * 1024

_BAD = Scalar("bad")
_Node = TypeVar("_Node", bound=Expr)
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "tdiv": "/", "tmod": "%", "fdiv": "//", "fmod": "%"}
_SIGNS |= {"and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>"}
_COMPARE_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_bad(expr: Expr) -> bool:
    """Whether a problem has been noted for this operand already."""
    return expr.type is _BAD


def micros_of(moment: datetime) -> int:
    """Microseconds since 1970 of an aware datetime."""
    delta = moment - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


class Builder:
    """One interest under construction. `c_truth`: numbers are conditions and booleans numbers, as in C."""

    def __init__(
        self,
        input: Record,
        *,
        output: Record | None = None,
        params: Iterable[ParamDecl] = (),
        text: str = "",
        notation: str = "",
        c_truth: bool = False,
    ) -> None:
        self.input, self.output, self.text, self.notation, self.c_truth = input, output, text, notation, c_truth
        self.params = {param.name: param for param in params}
        self.problems: list[Problem] = []
        self.variables: list[Variable] = []
        self._scopes: list[dict[str, int]] = [{}]
        self._depths: dict[int, int] = {}
        self._kept: list[object] = []  # keeps ids in _depths unique
        self._elements = 0

    # ── problems ──

    def problem(
        self,
        span: Span,
        message: str,
        *,
        expected: str | None = None,
        found: str | None = None,
        hint: str | None = None,
        about: str | None = None,
    ) -> Expr:
        """Note a problem at a place; returns a bad node to go on with."""
        self.problems.append(locate(self.text, span, message, expected=expected, found=found, hint=hint, about=about))
        return Missing(_BAD, span)

    def refuse(self, span: Span, message: str, **more: str) -> InterestRefused:
        return InterestRefused([locate(self.text, span, message, **more)], "this interest is refused")

    def suggest(self, name: str, among: Iterable[str], what: str) -> str | None:
        among = list(among)
        close = [other for other in among if other.casefold() == name.casefold()]
        close = close or get_close_matches(name, among, 1, 0.6)
        if close:
            return f"did you mean {close[0]!r}?"
        return f"{what}: {', '.join(among[:12])}{' …' if len(among) > 12 else ''}" if among else None

    def _keep(self, node: _Node, *children: Expr) -> _Node:
        """Count a node and its depth; the limits keep every later pass within bounds."""
        depth = 1 + max((self._depths.get(id(child), 0) for child in children), default=0)
        self._depths[id(node)] = depth
        self._kept.append(node)
        span = getattr(node, "span", NOWHERE)
        if depth > MAX_DEPTH:
            raise self.refuse(span, f"expressions nest deeper than {MAX_DEPTH}", hint="assign parts to variables")
        if len(self._kept) > MAX_NODES:
            raise self.refuse(span, f"the interest has more than {MAX_NODES:,} parts", hint="use set parameters")
        return node

    def finish(self, body: Sequence[Stmt]) -> Program:
        """The program, or all problems."""
        if self.problems:
            self.problems.sort(key=lambda p: (p.line, p.column))
            raise InterestError(self.problems)
        return Program(
            self.input,
            self.output,
            tuple(self.params.values()),
            tuple(self.variables),
            tuple(body),
            self.notation,
            self.text,
        )

    # ── leaves ──

    def const(self, value: bool | int | float | str | bytes | datetime, span: Span = NOWHERE) -> Expr:
        """A literal, typed by its Python value."""
        match value:
            case bool():
                return self._keep(Const(value, BOOL, span))
            case int():
                if -(1 << 63) <= value < (1 << 64):
                    return self._keep(Const(value, I64 if value < (1 << 63) else U64, span))
                return self.problem(span, "this integer does not fit 64 bits", found=str(value)[:40])
            case float():
                return self._keep(Const(value, F64, span))
            case str():
                if any("\ud800" <= c <= "\udfff" for c in value):
                    return self.problem(span, "this text has a lone surrogate, which UTF-8 cannot hold")
                return self._keep(Const(value, TEXT, span))
            case bytes():
                return self._keep(Const(value, BYTES, span))
            case datetime():
                if value.tzinfo is None:
                    return self.problem(span, "this time has no zone", hint="give it tzinfo=UTC")
                micros = micros_of(value)
                if not TIMESTAMP_MIN <= micros <= TIMESTAMP_MAX:
                    return self.problem(span, "this time lies outside the years 1 to 9999 in UTC")
                return self._keep(Const(micros, TIMESTAMP, span))
        return self.problem(span, "this cannot be a constant", found=type(value).__name__)

    def timestamp(self, text: str, span: Span) -> Expr:
        """A timestamp constant from ISO 8601; without a zone it is UTC."""
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            return self.problem(
                span, "not a timestamp", expected="ISO 8601, e.g. 2026-01-31T09:30:00Z", found=text[:40]
            )
        return self.const(moment if moment.tzinfo else moment.replace(tzinfo=UTC), span)

    def field(self, name: str, span: Span) -> Expr:
        """A top field of the input event."""
        found = self.input.by_name.get(name)
        if found is None:
            hint = self.suggest(name, self.input.by_name, "its fields are")
            return self.problem(span, f"{self.input.name} has no field {name!r}", hint=hint, about=name)
        return self._keep(Load(Path((name,)), found.type, promote(found.type), span))

    def attribute(self, base: Expr, name: str, span: Span) -> Expr:
        """A field of a nested record."""
        if is_bad(base):
            return base
        if not (isinstance(base, Load) and isinstance(base.stored, Record)):
            return self.problem(span, f"no field {name!r} here", expected="a record", found=describe(base.type))
        found = base.stored.by_name.get(name)
        if found is None:
            hint = self.suggest(name, base.stored.by_name, "its fields are")
            return self.problem(span, f"{base.stored.name} has no field {name!r}", hint=hint)
        return self._keep(Load(Path((*base.path.steps, name)), found.type, promote(found.type), span), base)

    def index(self, base: Expr, at: Expr, span: Span) -> Expr:
        """One dimension of an array or list of the input."""
        at = self._integer(at, "an index")
        if is_bad(base) or is_bad(at):
            return base if is_bad(base) else at
        if not (isinstance(base, Load) and isinstance(base.stored, Array | List)):
            return self.problem(span, "this cannot be indexed", expected="an array or list", found=describe(base.type))
        inner = inside(base.stored)
        return self._keep(Load(Path((*base.path.steps, at)), inner, promote(inner), span), base, at)

    def meta(self, name: str, span: Span) -> Expr:
        """What the service knows of the event: source, node, seq, time."""
        if name not in META_TYPES:
            return self.problem(span, f"no meta.{name}", hint=self.suggest(name, META_TYPES, "there are"))
        return self._keep(Meta(cast(Any, name), META_TYPES[name], span))

    def param(self, name: str, span: Span) -> Expr:
        """A scalar parameter."""
        decl = self._decl(name, span, ("scalar",))
        return self._keep(Param(name, decl.type, span)) if decl else Missing(_BAD, span)

    def _decl(self, name: str, span: Span, kinds: tuple[str, ...]) -> ParamDecl | None:
        decl = self.params.get(name)
        if decl is None:
            known = self.suggest(name, self.params, "its parameters are") or "give its value with params={...}"
            self.problem(span, f"no parameter {name!r}", hint=known)
        elif decl.kind not in kinds:
            hint = "test membership with `in`, or look a map up" if decl.kind != "scalar" else None
            self.problem(span, f"parameter {name!r}", expected=" or ".join(kinds), found=decl.kind, hint=hint)
            decl = None
        return decl

    # ── variables ──

    def push_scope(self) -> None:
        self._scopes.append({})

    def pop_scope(self) -> None:
        self._scopes.pop()

    def declare(
        self,
        name: str,
        type: Type,
        span: Span,
        *,
        shape: tuple[int, ...] = (),
        state: bool = False,
        init: Sequence[Expr] = (),
    ) -> int | None:
        """A new variable in the innermost scope; `init` is for state only and must be constant."""
        if name in self._scopes[-1]:
            self.problem(span, f"{name!r} is declared twice")
            return None
        if isinstance(type, Array | List | Record) or (state and type in (TEXT, BYTES)):
            self.problem(span, f"{name!r} cannot hold this", expected="a number, boolean, timestamp or enumeration"
                         if state else "a scalar", found=describe(type))  # fmt: skip
            return None
        self._elements += math.prod(shape)
        if len(self.variables) >= MAX_VARIABLES or self._elements > MAX_ELEMENTS:
            raise self.refuse(span, f"more than {MAX_VARIABLES} variables or {MAX_ELEMENTS:,} array elements")
        consts: tuple[Const, ...] = ()
        if state:
            consts = tuple(self._initial(value, type) for value in init)
            zero = _zero(type)
            lacking = math.prod(shape) - len(consts)
            if lacking < 0 or (lacking and zero is None):
                expected = f"{math.prod(shape)} initial values"
                self.problem(span, f"state {name!r}", expected=expected, found=str(len(consts)))
                return None
            consts += (zero,) * lacking if zero is not None else ()
        self.variables.append(Variable(name, type, shape, state, consts))
        self._scopes[-1][name] = len(self.variables) - 1
        return len(self.variables) - 1

    def _initial(self, value: Expr, type: Type) -> Const:
        given = self.coerce(value, type, value.span)
        if isinstance(given, Cast) and isinstance(given.a, Const):
            folded = evaluate(given)[0]
            given = given if folded is None else Const(folded, given.type, given.span)
        if isinstance(given, Const):
            return given
        if not is_bad(given):
            self.problem(value.span, "an initial value of state", expected=f"a constant that fits {describe(type)}")
        return Const(False, BOOL)

    def find(self, name: str) -> int | None:
        """The slot of a variable in scope."""
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def var(self, slot: int, span: Span) -> Expr:
        variable = self.variables[slot]
        if variable.shape:
            return self.problem(span, f"{variable.name!r} is an array", expected="an index for each dimension")
        return self._keep(Var(slot, promote(variable.type), span))

    def elem(self, slot: int, indices: Sequence[Expr], span: Span) -> Expr:
        variable = self.variables[slot]
        indices = self._indices(variable, indices, span)
        if any(map(is_bad, indices)):
            return Missing(_BAD, span)
        return self._keep(Elem(slot, tuple(indices), promote(variable.type), span), *indices)

    def _indices(self, variable: Variable, indices: Sequence[Expr], span: Span) -> list[Expr]:
        if len(indices) != len(variable.shape):
            dims = f"{len(variable.shape)} indices" if variable.shape else "none: it is no array"
            return [self.problem(span, f"indices of {variable.name!r}", expected=dims, found=str(len(indices)))]
        return [self._integer(index, "an index") for index in indices]

    # ── operators ──

    def unary(self, op: Literal["neg", "bitnot", "not"], a: Expr, span: Span) -> Expr:
        if op == "not":
            a = self.condition(a)
            return a if is_bad(a) else self._keep(Unary("not", a, BOOL, span), a)
        a = self._number(a, "an operand of -" if op == "neg" else "an operand of ~")
        if is_bad(a):
            return a
        if op == "neg":
            if isinstance(a, Const):
                return self.const(-cast(int, a.value), span)
            a = self.coerce(a, I64, span) if a.type == U64 else a
        elif a.type == F64:
            return self.problem(span, "~ takes integers", found=describe(a.type))
        return self._keep(Unary(op, a, a.type, span), a)

    def binary(self, op: BinaryOp, a: Expr, b: Expr, span: Span) -> Expr:
        """Arithmetic; see `nodes.Binary` for what each operator takes."""
        if is_bad(a) or is_bad(b):
            return a if is_bad(a) else b
        if TIMESTAMP in (a.type, b.type) and op in ("add", "sub"):
            return self._shift_time(op, a, b, span)
        a, b = (self._number(x, f"an operand of {_SIGNS[op]}") for x in (a, b))
        if is_bad(a) or is_bad(b):
            return a if is_bad(a) else b
        common = F64 if op == "div" else common_number(a, b)
        if common == F64 and op not in ("add", "sub", "mul", "div", "tdiv"):
            hint = "use fmod(a, b)" if op in ("tmod", "fmod") else "use floor(a / b)" if op == "fdiv" else "cast to int"
            return self.problem(span, f"{_SIGNS[op]} takes integers", found=f"{a.type} and {b.type}", hint=hint)
        a, b = self.coerce(a, common, span), self.coerce(b, common, span)
        if common == F64 and op == "tdiv":
            op = "div"
        return self._keep(Binary(op, a, b, common, span), a, b)

    def _shift_time(self, op: BinaryOp, a: Expr, b: Expr, span: Span) -> Expr:
        if a.type == b.type == TIMESTAMP and op == "sub":
            return self._keep(Binary("sub", a, b, I64, span), a, b)
        if op == "add" and b.type == TIMESTAMP and a.type != TIMESTAMP:
            a, b = b, a
        if a.type != TIMESTAMP or b.type not in (I64, U64):
            return self.problem(
                span,
                f"{_SIGNS[op]} of these",
                expected="timestamp ± integer microseconds, or timestamp - timestamp",
                found=f"{describe(a.type)} and {describe(b.type)}",
                hint="seconds(5) is 5 seconds in microseconds",
            )
        b = self.coerce(b, I64, span)
        return self._keep(Binary(op, a, b, TIMESTAMP, span), a, b)

    def compare(self, op: CompareOp, a: Expr, b: Expr, span: Span) -> Expr:
        if is_bad(a) or is_bad(b):
            return a if is_bad(a) else b
        a, b = self._alike(a, b)
        if is_bad(a) or is_bad(b):
            return a if is_bad(a) else b
        numbers = _is_number(a.type) and _is_number(b.type)
        ordered = numbers or a.type in (TEXT, BYTES, TIMESTAMP)
        if not numbers and a.type != b.type:
            return self._mismatch(a, b, f"{_COMPARE_SIGNS[op]} compares values of one kind", span)
        if not _is_scalar(a.type) or not (ordered or op in ("eq", "ne")):
            hint = "use code(…) for the order of members" if isinstance(a.type, Enum) else None
            what = f"{_COMPARE_SIGNS[op]} of {describe(a.type)}"
            return self.problem(span, what, expected="== or !=" if _is_scalar(a.type) else "a scalar", hint=hint)
        if numbers and F64 in (a.type, b.type):
            a, b = self.coerce(a, F64, span), self.coerce(b, F64, span)
        return self._keep(Compare(op, a, b, span), a, b)

    def _mismatch(self, a: Expr, b: Expr, message: str, span: Span) -> Expr:
        hint = None
        if BOOL in (a.type, b.type) and (_is_number(a.type) or _is_number(b.type)):
            hint = "a boolean is a condition by itself; compare it with true or false"
        elif TEXT in (a.type, b.type) and (_is_number(a.type) or _is_number(b.type)):
            hint = "write numbers without quotes"
        return self.problem(span, message, found=f"{describe(a.type)} and {describe(b.type)}", hint=hint)

    def _alike(self, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        """Literals take the other side's type: text beside timestamps and enumerations; C's booleans."""
        if self.c_truth and a.type != b.type:
            a, b = self._c_number(a), self._c_number(b)
        return self._adapt(a, b.type), self._adapt(b, a.type)

    def _adapt(self, expr: Expr, to: Type) -> Expr:
        if not isinstance(expr, Const) or expr.type == to:
            return expr
        if expr.type == TEXT and to == TIMESTAMP:
            return self.timestamp(cast(str, expr.value), expr.span)
        if expr.type == TEXT and isinstance(to, Enum):
            code = to.code_of(cast(str, expr.value))
            if code is None:
                hint = self.suggest(cast(str, expr.value), [name for name, _ in to.members], "its members are")
                return self.problem(expr.span, f"enumeration {to.name} has no member {expr.value!r}", hint=hint)
            return self._keep(Const(code, to, expr.span))
        if expr.type in (I64, U64) and to in (I64, U64, F64):
            value = cast(int, expr.value)
            if to == F64:
                return self._keep(Const(float(value), F64, expr.span))
            least, greatest = to.range
            if least <= value <= greatest:
                return self._keep(Const(value, to, expr.span))
        return expr

    def logic(self, op: Literal["and", "or"], args: Sequence[Expr], span: Span) -> Expr:
        """Flattens operands of the same operator."""
        flat: list[Expr] = []
        for arg in map(self.condition, args):
            flat.extend(arg.args if isinstance(arg, Logic) and arg.op == op else [arg])
        if any(map(is_bad, flat)):
            return Missing(_BAD, span)
        return self._keep(Logic(op, tuple(flat), span), *flat) if len(flat) > 1 else flat[0]

    def condition(self, a: Expr) -> Expr:
        """As a truth value."""
        if is_bad(a) or a.type == BOOL:
            return a
        if self.c_truth and _is_number(a.type):
            return self._keep(Cast(a, BOOL, BOOL, a.span), a)
        hint = "compare it, e.g. with != 0" if _is_number(a.type) else None
        return self.problem(a.span, "this is used as a condition", expected="bool", found=describe(a.type), hint=hint)

    def cond(self, test: Expr, then: Expr, other: Expr, span: Span) -> Expr:
        test = self.condition(test)
        results = self._common([then, other], span, "both results of a conditional")
        if any(map(is_bad, (test, *results))):
            return Missing(_BAD, span)
        then, other = results
        neither = Missing(then.type, span)
        return self._keep(Cond(test, then, other, neither, then.type, span), test, then, other)

    def is_missing(self, a: Expr, span: Span) -> Expr:
        return a if is_bad(a) else self._keep(IsMissing(a, span), a)

    def cast(self, a: Expr, to: Type, span: Span) -> Expr:
        """An explicit cast; see `nodes.Cast`."""
        if is_bad(a):
            return a
        if not isinstance(to, Scalar) or to in (TEXT, BYTES):
            return self.problem(span, f"no cast to {to}", expected="a number, bool or timestamp")
        a = self._adapt(a, TIMESTAMP) if to == TIMESTAMP else a
        allowed = a.type == to or (
            a.type in (I64, TIMESTAMP)
            if to == TIMESTAMP
            else _is_number(a.type) or a.type == BOOL or (to == I64 and a.type == TIMESTAMP)
        )
        if not allowed:
            hint = "use code(…)" if isinstance(a.type, Enum) else None
            return self.problem(span, f"no cast from {describe(a.type)} to {to}", hint=hint)
        return a if a.type == to else self._keep(Cast(a, to, promote(to), span), a)

    def coerce(self, a: Expr, to: Type, span: Span) -> Expr:
        """An implicit conversion to a stored type, as in an assignment."""
        if is_bad(a):
            return a
        if self.c_truth and to != BOOL:
            a = self._c_number(a) if isinstance(to, Scalar) and to.is_number else a
        a = self._adapt(a, promote(to))
        if a.type == to or is_bad(a):
            return a
        if to == BOOL:
            return self.condition(a)
        numeric = isinstance(to, Scalar) and to.is_number and _is_number(a.type)
        if not numeric or (a.type == F64 and promote(to) != F64 and not self.c_truth):
            hint = "cast it to an integer first" if numeric else None
            return self.problem(span, "the types do not fit", expected=describe(to), found=describe(a.type), hint=hint)
        return self._keep(Cast(a, to, promote(to), span), a)

    def in_set(self, a: Expr, values: Sequence[Expr], span: Span) -> Expr:
        """Membership in constants; anything else among them becomes an `or` of comparisons."""
        if is_bad(a) or any(map(is_bad, values)):
            return Missing(_BAD, span)
        if not values:
            return self.problem(span, "an empty list of values")
        if any(v.type == F64 for v in values) and a.type in (I64, U64):
            a = self.coerce(a, F64, span)
        values = [self._alike(v, a)[0] for v in values]
        if all(isinstance(v, Const) and v.type == a.type for v in values):
            return self._keep(InSet(a, tuple(cast(Any, values)), None, span), a)
        return self.logic("or", [self.compare("eq", a, v, v.span) for v in values], span)

    def in_param(self, a: Expr, name: str, span: Span) -> Expr:
        """Membership in a set parameter or a map parameter's keys."""
        decl = self._decl(name, span, ("set", "map"))
        if decl is None or is_bad(a):
            return Missing(_BAD, span)
        a = self._key(a, decl, span)
        return a if is_bad(a) else self._keep(InSet(a, (), name, span), a)

    def lookup(self, name: str, key: Expr, span: Span) -> Expr:
        """The value of a map parameter."""
        decl = self._decl(name, span, ("map",))
        if decl is None or is_bad(key):
            return Missing(_BAD, span)
        key = self._key(key, decl, span)
        assert decl.value is not None
        return key if is_bad(key) else self._keep(Lookup(name, key, decl.value, span), key)

    def _key(self, a: Expr, decl: ParamDecl, span: Span) -> Expr:
        a = self._adapt(a, decl.type)
        if isinstance(a.type, Enum) and decl.type == TEXT:
            return self.problem(span, f"keys of {decl.name!r}", expected="numbers", found="text",
                                hint="use code(…) and a set of codes")  # fmt: skip
        if _is_number(a.type) and _is_number(decl.type):
            if a.type == F64 and decl.type != F64:
                return self.problem(span, f"keys of {decl.name!r}", expected=str(decl.type), found="f64")
            return self.coerce(a, decl.type, span)
        if a.type != decl.type:
            return self.problem(span, f"keys of {decl.name!r}", expected=str(decl.type), found=describe(a.type))
        return a

    # ── functions ──

    def call(self, name: str, args: Sequence[Expr], span: Span) -> Expr:
        """A function of the library, or a reduction when the only argument is an array or list."""
        if any(map(is_bad, args)):
            return Missing(_BAD, span)
        if len(args) == 1 and isinstance(args[0], Load) and isinstance(args[0].stored, Array | List):
            return self.reduce("len" if name == "length" else name, args[0], span)
        if name == "distance" and len(args) == 6:
            name = "distance3"
        function = FUNCTIONS.get(name)
        if function is None:
            if name in REDUCTIONS:
                found = describe(args[0].type) if len(args) == 1 else f"{len(args)} arguments"
                return self.problem(span, f"{name}() takes an array or list of the event", found=found)
            hint = self.suggest(name, [*FUNCTIONS, *REDUCTIONS], "there are")
            return self.problem(span, f"no function {name!r}", hint=hint)
        if not function.accepts(len(args)):
            return self.problem(span, f"arguments of {name}()", expected=function.arity, found=str(len(args)))
        letters = function.params.rstrip("*")
        letters += letters[-1] * (len(args) - len(letters))
        fitted = [self._argument(arg, letter, name) for arg, letter in zip(args, letters, strict=True)]
        if letters[0] in "na":
            fitted = self._common(fitted, span, f"the arguments of {name}()")
        if any(map(is_bad, fitted)):
            return Missing(_BAD, span)
        if name == "like" and not isinstance(fitted[1], Const):
            return self.problem(fitted[1].span, "the pattern of like must be a constant")
        result: Type = fitted[0].type if function.result == "same" else Scalar(function.result)
        return self._keep(Call(name, tuple(fitted), result, span), *fitted)

    def _argument(self, arg: Expr, letter: str, name: str) -> Expr:
        arg = self._c_number(arg) if self.c_truth and letter in "nfi" else arg
        arg = self._adapt(arg, TIMESTAMP) if letter == "T" else arg
        fits, expected = {
            "n": (_is_number(arg.type), "a number"),
            "f": (_is_number(arg.type), "a number"),
            "i": (arg.type in (I64, U64), "an integer"),
            "t": (arg.type == TEXT, "text"),
            "b": (arg.type in (TEXT, BYTES), "text or bytes"),
            "T": (arg.type == TIMESTAMP, "a timestamp"),
            "e": (isinstance(arg.type, Enum), "an enumeration"),
            "a": (_is_scalar(arg.type), "a scalar"),
        }[letter]
        if not fits and not is_bad(arg):
            return self.problem(arg.span, f"argument of {name}()", expected=expected, found=describe(arg.type))
        return self.coerce(arg, F64, arg.span) if letter == "f" else arg

    def reduce(self, op: str, over: Expr, span: Span) -> Expr:
        """`len`, `sum`, `mean`, `min`, `max` over an array or list of the input."""
        assert isinstance(over, Load) and isinstance(over.stored, Array | List)
        if op not in REDUCTIONS:
            hint = f"of an array there are {', '.join(REDUCTIONS)}"
            return self.problem(span, f"{op}() does not take an array", hint=hint)
        element = promote(over.stored.element)
        if op != "len" and not _is_number(element):
            found = describe(over.stored)
            return self.problem(span, f"{op}() of an array", expected="an array of numbers", found=found)
        result = I64 if op == "len" else F64 if op == "mean" else element
        return self._keep(Reduce(cast(Any, op), over.path, over.stored, result, span), over)

    # ── statements ──

    def assign(self, slot: int, value: Expr, span: Span) -> list[Stmt]:
        variable = self.variables[slot]
        if variable.shape:
            self.problem(span, f"{variable.name!r} is an array", expected="an index for each dimension")
            return []
        value = self.coerce(value, variable.type, span)
        return [] if is_bad(value) else [Assign(slot, value, span)]

    def assign_elem(self, slot: int, indices: Sequence[Expr], value: Expr, span: Span) -> list[Stmt]:
        variable = self.variables[slot]
        indices = self._indices(variable, indices, span)
        value = self.coerce(value, variable.type, span)
        if is_bad(value) or any(map(is_bad, indices)):
            return []
        return [AssignElem(slot, tuple(indices), value, span)]

    def set_out(self, steps: Sequence[str | Expr], value: Expr, span: Span) -> list[Stmt]:
        """Set a field or array element of the output; a whole array, list or record is copied from the input."""
        stored = self._out_type(steps, span)
        if stored is None or is_bad(value):
            return []
        path = Path(tuple(self._integer(s, "an index") if not isinstance(s, str) else s for s in steps))
        if isinstance(stored, Array | List | Record):
            if not isinstance(value, Load) or value.stored != stored:
                found = describe(value.stored if isinstance(value, Load) else value.type)
                expected = f"{describe(stored)} of the input, or set its parts one by one"
                self.problem(span, "the types do not fit", expected=expected, found=found)
                return []
            return [CopyOut(path, value.path, stored, span)]
        value = self.coerce(value, stored, span)
        return [] if is_bad(value) else [SetOut(path, value, stored, span)]

    def _out_type(self, steps: Sequence[str | Expr], span: Span) -> Type | None:
        if self.output is None:
            self.problem(span, "a filter has no output", hint="give the interest an output type")
            return None
        here: Type = self.output
        for step in steps:
            if isinstance(step, str):
                names = here.by_name if isinstance(here, Record) else {}
                if step not in names:
                    hint = self.suggest(step, names, "its fields are")
                    self.problem(span, f"{here} has no field {step!r}", hint=hint)
                    return None
                here = names[step].type
            elif isinstance(here, Array) and _zero(here.element) is not None:
                here = inside(here)
            else:
                self.problem(span, "this part of the output cannot be indexed", expected="a fixed array of numbers",
                             found=describe(here))  # fmt: skip
                return None
        return here

    def if_(self, test: Expr, then: Sequence[Stmt], other: Sequence[Stmt], span: Span) -> list[Stmt]:
        test = self.condition(test)
        return [] if is_bad(test) else [If(test, tuple(then), tuple(other), span)]

    def loop(self, test: Expr, body: Sequence[Stmt], step: Sequence[Stmt], span: Span) -> list[Stmt]:
        test = self.condition(test)
        return [] if is_bad(test) else [Loop(test, tuple(body), tuple(step), None, span)]

    def return_(self, value: Expr, span: Span) -> list[Stmt]:
        value = self.condition(value)
        return [] if is_bad(value) else [Return(value, span)]

    # ── helpers ──

    def _c_number(self, a: Expr) -> Expr:
        return self._keep(Cast(a, I64, I64, a.span), a) if a.type == BOOL else a

    def _number(self, a: Expr, what: str) -> Expr:
        a = self._c_number(a) if self.c_truth else a
        if is_bad(a) or _is_number(a.type):
            return a
        return self.problem(a.span, what, expected="a number", found=describe(a.type))

    def _integer(self, a: Expr, what: str) -> Expr:
        a = self._c_number(a) if self.c_truth else a
        if is_bad(a) or a.type in (I64, U64):
            return a
        return self.problem(a.span, what, expected="an integer", found=describe(a.type))

    def _common(self, args: Sequence[Expr], span: Span, what: str) -> list[Expr]:
        """All of one type: numbers by the rules of arithmetic, everything else equal."""
        if any(map(is_bad, args)):
            return list(args)
        for i in range(1, len(args)):
            first, other = self._alike(args[0], args[i])
            args = [first, *args[1:i], other, *args[i + 1 :]]
        if all(_is_number(arg.type) for arg in args):
            common: Type = args[0].type
            for arg in args[1:]:
                common = common_number(Missing(common), arg)
            return [self.coerce(arg, common, span) for arg in args]
        if any(arg.type != args[0].type for arg in args):
            found = " and ".join(dict.fromkeys(describe(arg.type) for arg in args))
            return [self.problem(span, f"{what} must be of one kind", found=found)]
        if not _is_scalar(args[0].type):
            return [self.problem(span, what, expected="scalars", found=describe(args[0].type))]
        return list(args)


def _is_number(type: Type) -> bool:
    return type in (I64, U64, F64)


def _is_scalar(type: Type) -> bool:
    return isinstance(type, Scalar | Enum)


def _zero(type: Type) -> Const | None:
    if type == BOOL:
        return Const(False, BOOL)
    if isinstance(type, Scalar) and type.is_float:
        return Const(0.0, F64)
    return Const(0, promote(type)) if isinstance(type, Scalar) and type not in (TEXT, BYTES) else None


def inside(array: Array | List) -> Type:
    """What one index leaves of an array or list."""
    if isinstance(array, Array) and len(array.shape) > 1:
        return Array(array.element, array.shape[1:])
    return array.element


def common_number(a: Expr, b: Expr) -> Type:
    """The type two numbers are computed in; a non-negative literal follows the other side."""
    if F64 in (a.type, b.type):
        return F64
    if a.type == b.type:
        return a.type
    literal = next((x for x in (a, b) if isinstance(x, Const) and x.type == I64), None)
    return U64 if literal is not None and cast(int, literal.value) >= 0 else I64


def locate(text: str, span: Span, message: str, **more: str | None) -> Problem:
    """A problem with line, column and the line's text."""
    start = min(span.start, len(text))
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line = text[line_start : len(text) if line_end < 0 else line_end]
    column = start - line_start
    width = max(1, min(span.end, line_start + len(line)) - start)
    cut = max(0, column - 60) if len(line) > 160 else 0  # keep the place in view
    excerpt = line[cut : cut + 160].replace("\t", " ")
    number = text.count("\n", 0, start) + 1
    return Problem(message, number, column + 1, excerpt, min(width, 80), caret=column - cut, **more)
