"""Building a typed program: the one place where types are checked, conversions inserted and problems collected.

The notations call these methods while they walk their own syntax. Every method returns a typed node; where something
is wrong it notes a problem with its place and returns a *bad* node, which keeps quiet from then on, so that one run
reports everything. `finish` raises all problems at once.

This file does not parse, rewrite or execute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, cast

from headwater.errors import InterestError
from headwater.ir.interp import evaluate
from headwater.ir.nodes import (
    META_TYPES,
    Assign,
    AssignElem,
    Cast,
    Const,
    CopyOut,
    Elem,
    Expr,
    If,
    Load,
    Loop,
    Meta,
    Missing,
    Param,
    ParamDecl,
    Path,
    Program,
    Return,
    SetOut,
    Span,
    Stmt,
    Var,
    Variable,
)
from headwater.ir.notes import BAD, is_bad
from headwater.ir.operators import Operators
from headwater.types.model import (
    BOOL,
    BYTES,
    F64,
    TEXT,
    Array,
    List,
    Record,
    Scalar,
    Type,
    describe,
    promote,
)

MAX_VARIABLES = 256
MAX_ELEMENTS = 65_536  # of all array variables together


class Builder(Operators):
    """One interest under construction. `c_truth`: numbers are conditions and booleans numbers, as in C.

    `functions` are names beyond the library that `call` of a more special builder knows."""

    functions: ClassVar[frozenset[str]] = frozenset()

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
        super().__init__(text, params, c_truth)
        self.input, self.output, self.notation = input, output, notation
        self.variables: list[Variable] = []
        self._scopes: list[dict[str, int]] = [{}]
        self._elements = 0

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

    def argument(self, name: str, span: Span) -> Expr | None:
        """What a further argument of a function stands for, where a more special builder has a meaning for it."""
        return None

    def field(self, name: str, span: Span) -> Expr:
        """A top field of the input event."""
        found = self.input.by_name.get(name)
        if found is None:
            hint = self.suggest(name, self.input.by_name, "its fields are")
            if name == "context":
                hint = "the channel has none (context=); elsewhere give its values: params={'context.NAME': …}"
            return self.problem(span, f"{self.input.name} has no field {name!r}", hint=hint, about=name)
        return self.keep(Load(Path((name,)), found.type, promote(found.type), span))

    def attribute(self, base: Expr, name: str, span: Span) -> Expr:
        """A field of a nested record."""
        if is_bad(base):
            return base
        if not (isinstance(base, Load) and isinstance(base.stored, Record)):
            return self.problem(span, f"no field {name!r} here", expected="a record", found=self.kind(base))
        found = base.stored.by_name.get(name)
        if found is None:
            hint = self.suggest(name, base.stored.by_name, "its fields are")
            return self.problem(span, f"{base.stored.name} has no field {name!r}", hint=hint)
        return self.keep(Load(Path((*base.path.steps, name)), found.type, promote(found.type), span), base)

    def index(self, base: Expr, at: Expr, span: Span) -> Expr:
        """One dimension of an array or list of the input."""
        at = self.integer(at, "an index")
        if is_bad(base) or is_bad(at):
            return base if is_bad(base) else at
        if not (isinstance(base, Load) and isinstance(base.stored, Array | List)):
            return self.problem(span, "this cannot be indexed", expected="an array or list", found=self.kind(base))
        inner = inside(base.stored)
        return self.keep(Load(Path((*base.path.steps, at)), inner, promote(inner), span), base, at)

    def meta(self, name: str, span: Span) -> Expr:
        """What the service knows of the event: source, node, seq, time."""
        if name not in META_TYPES:
            return self.problem(span, f"no meta.{name}", hint=self.suggest(name, META_TYPES, "there are"))
        return self.keep(Meta(cast(Any, name), META_TYPES[name], span))

    def param(self, name: str, span: Span) -> Expr:
        """A scalar parameter."""
        decl = self.declared(name, span, ("scalar",))
        return self.keep(Param(name, decl.type, span)) if decl else Missing(BAD, span)

    def kind(self, expr: Expr) -> str:
        if isinstance(expr, Var | Elem):
            return describe(self.variables[expr.slot].type)
        return super().kind(expr)

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
        return self.keep(Var(slot, promote(variable.type), span))

    def elem(self, slot: int, indices: Sequence[Expr], span: Span) -> Expr:
        variable = self.variables[slot]
        indices = self._indices(variable, indices, span)
        if any(map(is_bad, indices)):
            return Missing(BAD, span)
        return self.keep(Elem(slot, tuple(indices), promote(variable.type), span), *indices)

    def _indices(self, variable: Variable, indices: Sequence[Expr], span: Span) -> list[Expr]:
        if len(indices) != len(variable.shape):
            dims = f"{len(variable.shape)} indices" if variable.shape else "none: it is no array"
            return [self.problem(span, f"indices of {variable.name!r}", expected=dims, found=str(len(indices)))]
        return [self.integer(index, "an index") for index in indices]

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
        path = Path(tuple(self.integer(s, "an index") if not isinstance(s, str) else s for s in steps))
        if isinstance(stored, Array | List | Record):
            if not isinstance(value, Load) or value.stored != stored:
                found = self.kind(value)
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

    def return_nothing(self, span: Span) -> list[Stmt]:
        """End without a result: a filter rejects."""
        return self.return_(self.const(False, span), span)


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
