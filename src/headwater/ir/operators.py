"""The typing rules of operators, conversions and functions: what each takes, what it gives, where a cast is inserted.

Every method returns a typed node, or notes a problem and returns a bad one (`notes.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, cast

from headwater.ir.functions import FUNCTIONS, REDUCTIONS
from headwater.ir.nodes import (
    NOWHERE,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Compare,
    CompareOp,
    Cond,
    Const,
    Expr,
    InSet,
    IsMissing,
    Load,
    Logic,
    Lookup,
    Missing,
    Param,
    ParamDecl,
    Reduce,
    Span,
    Unary,
)
from headwater.ir.notes import BAD, Notes, is_bad
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
    Scalar,
    Type,
    describe,
    promote,
)

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "tdiv": "/", "tmod": "%", "fdiv": "//", "fmod": "%"}
_SIGNS |= {"and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>"}
_COMPARE_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
LEAST = -(1 << 63)  # the i64 that has no counterpart
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros_of(moment: datetime) -> int:
    """Microseconds since 1970 of an aware datetime."""
    delta = moment - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


class Operators(Notes):
    """`c_truth`: numbers are conditions and booleans numbers, as in C.

    At a first look the types of parameters are not settled (`ir.uses`): what would be wrong only because of the type of
    one is let through, and noted in `doubts`.
    """

    settled = True
    doubts: ClassVar[list[str]] = []

    def __init__(self, text: str, params: Iterable[ParamDecl], c_truth: bool) -> None:
        super().__init__(text)
        self.params = {param.name: param for param in params}
        self.c_truth = c_truth

    # ── constants ──

    def const(self, value: bool | int | float | str | bytes | datetime, span: Span = NOWHERE) -> Expr:
        """A literal, typed by its Python value."""
        match value:
            case bool():
                return self.keep(Const(value, BOOL, span))
            case int():
                if -(1 << 63) <= value < (1 << 64):
                    return self.keep(Const(value, I64 if value < (1 << 63) else U64, span))
                return self.problem(
                    span,
                    "this integer does not fit 64 bits",
                    found=(str(value) if value.bit_length() < 1_000 else hex(value))[:40],
                )
            case float():
                return self.keep(Const(value, F64, span))
            case str():
                if any("\ud800" <= c <= "\udfff" for c in value):
                    return self.problem(span, "this text has a lone surrogate, which UTF-8 cannot hold")
                return self.keep(Const(value, TEXT, span))
            case bytes():
                return self.keep(Const(value, BYTES, span))
            case datetime():
                if value.tzinfo is None:
                    return self.problem(span, "this time has no zone", hint="give it tzinfo=UTC")
                micros = micros_of(value)
                if not TIMESTAMP_MIN <= micros <= TIMESTAMP_MAX:
                    return self.problem(span, "this time lies outside the years 1 to 9999 in UTC")
                return self.keep(Const(micros, TIMESTAMP, span))
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

    # ── operators ──

    def unary(self, op: Literal["neg", "bitnot", "not"], a: Expr, span: Span) -> Expr:
        if op == "not":
            a = self.condition(a)
            return a if is_bad(a) else self.keep(Unary("not", a, BOOL, span), a)
        a = self._number(a, "an operand of -" if op == "neg" else "an operand of ~")
        if is_bad(a):
            return a
        if op == "neg":
            if isinstance(a, Const) and a.value != LEAST:  # a sign before a literal is a part of it
                return self.const(-cast(int, a.value), span)
            a = self.coerce(a, I64, span) if a.type == U64 else a
        elif a.type == F64:
            return self.problem(span, "~ takes integers", found=self.kind(a))
        return self.keep(Unary(op, a, a.type, span), a)

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
            return self.problem(
                span, f"{_SIGNS[op]} takes integers", found=f"{self.kind(a)} and {self.kind(b)}", hint=hint
            )
        a, b = self.coerce(a, common, span), self.coerce(b, common, span)
        if common == F64 and op == "tdiv":
            op = "div"
        return self.keep(Binary(op, a, b, common, span), a, b)

    def _shift_time(self, op: BinaryOp, a: Expr, b: Expr, span: Span) -> Expr:
        if a.type == b.type == TIMESTAMP and op == "sub":
            return self.keep(Binary("sub", a, b, I64, span), a, b)
        if op == "add" and b.type == TIMESTAMP and a.type != TIMESTAMP:
            a, b = b, a
        if a.type != TIMESTAMP or b.type not in (I64, U64):
            return self.problem(
                span,
                f"{_SIGNS[op]} of these",
                expected="timestamp ± integer microseconds, or timestamp - timestamp",
                found=f"{self.kind(a)} and {self.kind(b)}",
                hint="seconds(5) is 5 seconds in microseconds",
            )
        b = self.coerce(b, I64, span)
        return self.keep(Binary(op, a, b, TIMESTAMP, span), a, b)

    def compare(self, op: CompareOp, a: Expr, b: Expr, span: Span) -> Expr:
        if is_bad(a) or is_bad(b):
            return a if is_bad(a) else b
        a, b = self._alike(a, b)
        if is_bad(a) or is_bad(b):
            return a if is_bad(a) else b
        numbers = is_number(a.type) and is_number(b.type)
        ordered = numbers or a.type in (TEXT, BYTES, TIMESTAMP)
        if not numbers and a.type != b.type:
            return self._mismatch(a, b, f"{_COMPARE_SIGNS[op]} compares values of one kind", span)
        if not is_scalar(a.type) or not (ordered or op in ("eq", "ne")):
            hint = "use code(…) for the order of members" if isinstance(a.type, Enum) else None
            what = f"{_COMPARE_SIGNS[op]} of {self.kind(a)}"
            return self.problem(span, what, expected="== or !=" if is_scalar(a.type) else "a scalar", hint=hint)
        if numbers and F64 in (a.type, b.type):
            a, b = self.coerce(a, F64, span), self.coerce(b, F64, span)
        return self.keep(Compare(op, a, b, span), a, b)

    def _mismatch(self, a: Expr, b: Expr, message: str, span: Span) -> Expr:
        hint = None
        if BOOL in (a.type, b.type) and (is_number(a.type) or is_number(b.type)):
            hint = "a boolean is a condition by itself; compare it with true or false"
        elif {a.type, b.type} == {BOOL, TEXT}:
            hint = "a boolean is a condition by itself; true and false are written without quotes"
        elif TEXT in (a.type, b.type) and (is_number(a.type) or is_number(b.type)):
            hint = self._quotes(*((a, b) if a.type == TEXT else (b, a)))
        elif any(isinstance(x.type, Array | List) for x in (a, b)):
            hint = "take an element, e.g. x[0], or min, max, sum, mean or len of it"
        elif any(isinstance(x.type, Enum) for x in (a, b)) and (is_number(a.type) or is_number(b.type)):
            hint = "compare it with a member's name; code(x) is its number"
        elif TIMESTAMP in (a.type, b.type) and (is_number(a.type) or is_number(b.type)):
            hint = "a time is written '2026-01-31T09:30:00Z'; micros(x) is its number"
        fixed = next((x for x in (a, b) if not isinstance(x, Const)), None)
        expected = f"{self.kind(fixed)} on both sides" if fixed is not None else None
        return self.problem(span, message, expected=expected, found=f"{self.kind(a)} and {self.kind(b)}", hint=hint)

    def _quotes(self, text: Expr, number: Expr) -> str:
        """What to do about a text beside a number."""
        if isinstance(text, Const):
            return "write numbers without quotes"
        if isinstance(number, Const):
            quote = '"' if getattr(self, "notation", "") == "ecode" else "'"
            return f"text is written in quotes: {quote}{cast(float, number.value)}{quote}"
        return "text and numbers cannot be turned into each other; compare fields of one kind"

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
            return self.keep(Const(code, to, expr.span))
        if expr.type in (I64, U64) and to in (I64, U64, F64):
            value = cast(int, expr.value)
            if to == F64:
                return self.keep(Const(float(value), F64, expr.span))
            least, greatest = to.range
            if least <= value <= greatest:
                return self.keep(Const(value, to, expr.span))
        return expr

    def logic(self, op: Literal["and", "or"], args: Sequence[Expr], span: Span) -> Expr:
        """Flattens operands of the same operator."""
        flat: list[Expr] = []
        for arg in map(self.condition, args):
            flat.extend(arg.args if isinstance(arg, Logic) and arg.op == op else [arg])
        if any(map(is_bad, flat)):
            return Missing(BAD, span)
        return self.keep(Logic(op, tuple(flat), span), *flat) if len(flat) > 1 else flat[0]

    def condition(self, a: Expr) -> Expr:
        """As a truth value."""
        if is_bad(a) or a.type == BOOL:
            return a
        if self.c_truth and is_number(a.type):
            return self.keep(Cast(a, BOOL, BOOL, a.span), a)
        hint = "compare it, e.g. with != 0" if is_number(a.type) else None
        return self.problem(a.span, "this is used as a condition", expected="bool", found=self.kind(a), hint=hint)

    def cond(self, test: Expr, then: Expr, other: Expr, span: Span) -> Expr:
        test = self.condition(test)
        results = self._common([then, other], span, "both results of a conditional")
        if any(map(is_bad, (test, *results))):
            return Missing(BAD, span)
        then, other = results
        neither = Missing(then.type, span)
        return self.keep(Cond(test, then, other, neither, then.type, span), test, then, other)

    def is_missing(self, a: Expr, span: Span) -> Expr:
        return a if is_bad(a) else self.keep(IsMissing(a, span), a)

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
            else is_number(a.type) or a.type == BOOL or (to == I64 and a.type == TIMESTAMP)
        )
        if not allowed:
            hint = "use code(…)" if isinstance(a.type, Enum) else None
            return self.problem(span, f"no cast from {self.kind(a)} to {to}", hint=hint)
        return a if a.type == to else self.keep(Cast(a, to, promote(to), span), a)

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
        numeric = isinstance(to, Scalar) and to.is_number and is_number(a.type)
        if not numeric or (a.type == F64 and promote(to) != F64 and not self.c_truth):
            hint = "cast it to an integer first" if numeric else None
            return self.problem(span, "the types do not fit", expected=describe(to), found=self.kind(a), hint=hint)
        return self.keep(Cast(a, to, promote(to), span), a)

    def in_set(self, a: Expr, values: Sequence[Expr], span: Span) -> Expr:
        """Membership in constants; anything else among them becomes an `or` of comparisons."""
        if is_bad(a) or any(map(is_bad, values)):
            return Missing(BAD, span)
        if not values:
            return self.problem(span, "an empty list of values")
        if any(v.type == F64 for v in values) and a.type in (I64, U64):
            a = self.coerce(a, F64, span)
        values = [self._alike(v, a)[0] for v in values]
        if all(isinstance(v, Const) and v.type == a.type for v in values):
            return self.keep(InSet(a, tuple(cast(Any, values)), None, span), a)
        return self.logic("or", [self.compare("eq", a, v, v.span) for v in values], span)

    def in_param(self, a: Expr, name: str, span: Span) -> Expr:
        """Membership in a set parameter or a map parameter's keys."""
        decl = self.declared(name, span, ("set", "map"))
        if decl is None or is_bad(a):
            return Missing(BAD, span)
        a, fits = self._key(a, decl, span)
        if is_bad(a):
            return a
        found = self.keep(InSet(a, (), name, span), a)
        return found if fits is None else self.logic("and", [fits, found], span)

    def lookup(self, name: str, key: Expr, span: Span) -> Expr:
        """The value of a map parameter."""
        decl = self.declared(name, span, ("map",))
        if decl is None or is_bad(key):
            return Missing(BAD, span)
        key, fits = self._key(key, decl, span)
        assert decl.value is not None
        if is_bad(key):
            return key
        found = self.keep(Lookup(name, key, decl.value, span), key)
        none = Missing(decl.value, span)
        return found if fits is None else self.keep(Cond(fits, found, none, none, decl.value, span), fits, found)

    def _key(self, a: Expr, decl: ParamDecl, span: Span) -> tuple[Expr, Expr | None]:
        """A key in the type that a parameter's keys have, and whether it fits that; None if it surely does. A key that
        does not fit is none of them, and no fault."""
        fits: Expr | None = None
        if {a.type, decl.type} == {I64, U64} and not isinstance(self._adapt(a, decl.type), Const):
            end = self.const(0, span) if decl.type == U64 else self.const((1 << 63) - 1, span)
            fits = self.compare("ge" if decl.type == U64 else "le", a, end, span)
        return self._key_of(a, decl, span), fits

    def _key_of(self, a: Expr, decl: ParamDecl, span: Span) -> Expr:
        a = self._adapt(a, decl.type)
        if isinstance(a.type, Enum) and decl.type == TEXT:
            return self._unlike(a, decl, span, "use code(…) and a set of codes")
        if is_number(a.type) and is_number(decl.type):
            if a.type == F64 and decl.type != F64:
                if not self.settled:
                    self.doubts.append(decl.name)
                    return a
                return self._unlike(a, decl, span, f"give {decl.name!r} floats, e.g. 1.0, or look a whole number up")
            return self.coerce(a, decl.type, span)
        if a.type != decl.type:
            return self._unlike(a, decl, span, None)
        return a

    def _unlike(self, a: Expr, decl: ParamDecl, span: Span, hint: str | None) -> Expr:
        """A problem: what is looked up is of another kind than what it is looked up in."""
        what = "members" if decl.kind == "set" else "keys"
        return self.problem(
            span,
            f"this cannot be among the {what} of parameter {decl.name!r}",
            expected=f"{describe(decl.type)}, as its {what} are",
            found=self.kind(a),
            hint=hint or f"give {decl.name!r} {what} of the type that is looked up",
        )

    def declared(self, name: str, span: Span, kinds: tuple[str, ...]) -> ParamDecl | None:
        decl = self.params.get(name)
        if decl is None:
            known = (
                self.suggest(name, self.params, "its parameters are")
                or "give its value with params={...}, or --param NAME=VALUE"
            )
            self.problem(span, f"no parameter {name!r}", hint=known)
        elif decl.kind not in kinds:
            hint = "test membership with `in`, or look a map up" if decl.kind != "scalar" else None
            self.problem(span, f"parameter {name!r}", expected=" or ".join(kinds), found=decl.kind, hint=hint)
            decl = None
        return decl

    # ── functions ──

    def call(self, name: str, args: Sequence[Expr], span: Span) -> Expr:
        """A function of the library, or a reduction when the only argument is an array or list."""
        if any(map(is_bad, args)):
            return Missing(BAD, span)
        if len(args) == 1 and isinstance(args[0], Load) and isinstance(args[0].stored, Array | List):
            return self.reduce("len" if name == "length" else name, args[0], span)
        if name == "distance" and len(args) == 6:
            name = "distance3"
        function = FUNCTIONS.get(name)
        if function is None:
            if name in REDUCTIONS:
                found = self.kind(args[0]) if len(args) == 1 else f"{len(args)} arguments"
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
            return Missing(BAD, span)
        if name == "like" and not isinstance(fitted[1], Const):
            return self.problem(fitted[1].span, "the pattern of like must be a constant")
        result: Type = fitted[0].type if function.result == "same" else Scalar(function.result)
        return self.keep(Call(name, tuple(fitted), result, span), *fitted)

    def _argument(self, arg: Expr, letter: str, name: str) -> Expr:
        arg = self._c_number(arg) if self.c_truth and letter in "nfi" else arg
        arg = self._adapt(arg, TIMESTAMP) if letter == "T" else arg
        fits, expected = {
            "n": (is_number(arg.type), "a number"),
            "f": (is_number(arg.type), "a number"),
            "i": (arg.type in (I64, U64), "an integer"),
            "t": (arg.type == TEXT, "text"),
            "b": (arg.type in (TEXT, BYTES), "text or bytes"),
            "T": (arg.type == TIMESTAMP, "a timestamp"),
            "e": (isinstance(arg.type, Enum), "an enumeration"),
            "a": (is_scalar(arg.type), "a scalar"),
        }[letter]
        if not fits and not is_bad(arg):
            return self.problem(arg.span, f"argument of {name}()", expected=expected, found=self.kind(arg))
        return self.coerce(arg, F64, arg.span) if letter == "f" else arg

    def reduce(self, op: str, over: Expr, span: Span) -> Expr:
        """`len`, `sum`, `mean`, `min`, `max` over an array or list of the input."""
        assert isinstance(over, Load) and isinstance(over.stored, Array | List)
        if op not in REDUCTIONS:
            hint = f"of an array there are {', '.join(REDUCTIONS)}"
            return self.problem(span, f"{op}() does not take an array", hint=hint)
        element = promote(over.stored.element)
        if op != "len" and not is_number(element):
            found = describe(over.stored)
            return self.problem(span, f"{op}() of an array", expected="an array of numbers", found=found)
        result = I64 if op == "len" else F64 if op == "mean" else element
        return self.keep(Reduce(cast(Any, op), over.path, over.stored, result, span), over)

    # ── helpers ──

    def kind(self, expr: Expr) -> str:
        """The type of an operand for messages: as it was declared, not as it is computed in."""
        return describe(expr.stored if isinstance(expr, Load) else expr.type)

    def _c_number(self, a: Expr) -> Expr:
        return self.keep(Cast(a, I64, I64, a.span), a) if a.type == BOOL else a

    def _number(self, a: Expr, what: str) -> Expr:
        a = self._c_number(a) if self.c_truth else a
        if is_bad(a) or is_number(a.type):
            return a
        return self.problem(a.span, what, expected="a number", found=self.kind(a))

    def integer(self, a: Expr, what: str) -> Expr:
        a = self._c_number(a) if self.c_truth else a
        if is_bad(a) or a.type in (I64, U64):
            return a
        return self.problem(a.span, what, expected="an integer", found=self.kind(a))

    def _common(self, args: Sequence[Expr], span: Span, what: str) -> list[Expr]:
        """All of one type: numbers by the rules of arithmetic, everything else equal."""
        if any(map(is_bad, args)):
            return list(args)
        for i in range(1, len(args)):
            first, other = self._alike(args[0], args[i])
            args = [first, *args[1:i], other, *args[i + 1 :]]
        if all(is_number(arg.type) for arg in args):
            if self._mixes_signs(args):
                found = " and ".join(dict.fromkeys(map(self.kind, args)))
                to = {"ecode": "(long) x", "python": "int(x)"}.get(getattr(self, "notation", ""), "cast(x as i64)")
                hint = (
                    f"no integer type holds all of both; say which you mean, e.g. {to}, missing where it does not fit"
                )
                return [self.problem(span, f"{what} mix signed and unsigned integers", found=found, hint=hint)]
            common: Type = args[0].type
            for arg in args[1:]:
                common = common_number(Missing(common), arg)
            return [self.coerce(arg, common, span) for arg in args]
        if any(arg.type != args[0].type for arg in args):
            found = " and ".join(dict.fromkeys(map(self.kind, args)))
            return [self.problem(span, f"{what} must be of one kind", found=found)]
        if not is_scalar(args[0].type):
            return [self.problem(span, what, expected="scalars", found=self.kind(args[0]))]
        return list(args)

    def _mixes_signs(self, args: Sequence[Expr]) -> bool:
        """Whether u64 and signed values come together that no integer type holds; a literal takes whichever it fits."""
        literals = [cast(int, arg.value) for arg in args if isinstance(arg, Const) and arg.type != F64]
        others = [arg for arg in args if not isinstance(arg, Const)]
        signed = [arg for arg in others if arg.type == I64]
        below, above = any(value < 0 for value in literals), any(value >= 1 << 63 for value in literals)
        unsigned = above or any(arg.type == U64 for arg in others)
        if any(arg.type == F64 for arg in args) or not unsigned or not (signed or below):
            return False
        if not self.settled and not below and all(isinstance(arg, Param | Lookup) for arg in signed):
            self.doubts.append("")
            return False
        return True


def is_number(type: Type) -> bool:
    """Whether a promoted type is one to calculate with."""
    return type in (I64, U64, F64)


def is_scalar(type: Type) -> bool:
    """Whether a type is neither an array, a list nor a record."""
    return isinstance(type, Scalar | Enum)


def common_number(a: Expr, b: Expr) -> Type:
    """The type two numbers are computed in; a non-negative literal follows the other side."""
    if F64 in (a.type, b.type):
        return F64
    if a.type == b.type:
        return a.type
    literal = next((x for x in (a, b) if isinstance(x, Const) and x.type == I64), None)
    return U64 if literal is not None and cast(int, literal.value) >= 0 else I64
