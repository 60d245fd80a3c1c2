"""A number instead of a verdict: what a notation returns becomes the one field of an output event.

The notations walk their syntax as for a filter; only the end differs. A program made here passes exactly when there is
a number, and then its output record holds it: `i64`, `u64` or, where any of the results is a float, `f64`. A boolean
counts as 0 or 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headwater.ir.build import Builder
from headwater.ir.nodes import Block, Const, Expr, Load, ParamDecl, Path, Program, Return, SetOut, Span, Stmt
from headwater.ir.notes import is_bad
from headwater.ir.operators import is_number
from headwater.ir.walk import map_stmt, statements
from headwater.types.model import BOOL, F64, I64, TIMESTAMP, U64, Enum, Field, Record, Type, describe

FIELD = "value"
_HERE = Path((FIELD,))
_RESULTS: dict[Type, Record] = {type: Record("Value", (Field(FIELD, type),)) for type in (I64, U64, F64)}
_HINTS: dict[Type, str] = {TIMESTAMP: "micros(t) is a number, and so is the difference of two timestamps"}


class ValueBuilder(Builder):
    """An expression under construction: like a filter, but its result is a number. It has no state and no output."""

    def __init__(self, input: Record, *, output: Record | None = None, params: Iterable[ParamDecl] = (), text: str = "",
                 notation: str = "", c_truth: bool = False) -> None:  # fmt: skip
        if output is not None:
            raise TypeError("an expression has no output type: its result is a number")
        super().__init__(input, params=params, text=text, notation=notation, c_truth=c_truth)

    def return_(self, value: Expr, span: Span) -> list[Stmt]:
        if is_bad(value):
            return []
        type = value.stored if isinstance(value, Load) and not is_number(value.type) else value.type
        if value.type == BOOL:
            value = self.cast(value, I64, span)
        elif not is_number(type):
            hint = "use code(…)" if isinstance(type, Enum) else _HINTS.get(type)
            self.problem(span, "the result is not a number", expected="a number or boolean",
                         found=describe(type), hint=hint)  # fmt: skip
            return []
        # What the field can hold is known when all results are: `finish` makes them alike.
        return [SetOut(_HERE, value, value.type, span), Return(Const(True, BOOL, span), span)]

    def return_nothing(self, span: Span) -> list[Stmt]:
        return [Return(Const(False, BOOL, span), span)]

    def set_out(self, steps: Sequence[str | Expr], value: Expr, span: Span) -> list[Stmt]:
        self.problem(span, "an expression has no output", hint="return the number")
        return []

    def declare(self, name: str, type: Type, span: Span, *, state: bool = False, **more: Any) -> int | None:
        if state:
            self.problem(span, f"{name!r} is state", expected="an expression over one event",
                         hint="derive a channel whose events carry the number")  # fmt: skip
        return super().declare(name, type, span, state=state, **more)

    def finish(self, body: Sequence[Stmt]) -> Program:
        results = [stmt.value for stmt in statements(tuple(body)) if isinstance(stmt, SetOut)]
        if not results and not self.problems:
            self.problem(Span(0, len(self.text)), "this has no result", expected="a number that is returned")
        types = {result.type for result in results}
        common: Type = F64 if F64 in types else U64 if types == {U64} else I64
        self.output = _RESULTS[common]
        return super().finish(self._results(tuple(body), common))

    def _results(self, block: Block, type: Type) -> Block:
        return tuple(self._result(stmt, type) for stmt in block)

    def _result(self, stmt: Stmt, type: Type) -> Stmt:
        if isinstance(stmt, SetOut):
            return SetOut(_HERE, self.cast(stmt.value, type, stmt.span), type, stmt.span)
        return map_stmt(stmt, lambda expr: expr, lambda inner: self._results(inner, type))
