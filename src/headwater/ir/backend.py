"""What every backend of the IR meets: it executes a program, or says why it cannot, by a table that it declares.

    backend               where                     cannot
    interpreter           ir/interp.py              nothing: by definition right
    native                native/program.py         nothing, for records and for batches
    Spark Column          spark/column.py           what is in UNSUPPORTED of spark/unsupported.py

A backend names operations as `operations` does. What is not in its table it must execute, with the results that the
interpreter has; what is in it, it refuses for the reason that is there. Tests hold each to both: an entry that is out
of date fails, and so does a gap that is not declared.

Beside operations, a backend may have limits (of length, of nesting) within which all this holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from headwater.ir import interp
from headwater.ir.nodes import (
    NOWHERE,
    AssignElem,
    Binary,
    Call,
    Cast,
    Compare,
    Elem,
    Expr,
    Loop,
    Program,
    Reduce,
    SetOut,
    Span,
    Unary,
)
from headwater.ir.walk import expressions, operands, statements
from headwater.types.model import TIMESTAMP, Array, List

STATE = "state"
LOOP = "loop"
ARRAY_VARIABLE = "array variable"
OUTPUT_ELEMENT = "output element"


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Why a backend cannot execute a program, and where in its text."""

    reason: str
    span: Span = NOWHERE


class Backend(Protocol):
    """One way to execute programs."""

    name: str
    unsupported: Mapping[str, str]  # by operation, the reason

    def lower(self, program: Program, params: Mapping[str, Any]) -> Any:
        """What it executes for a program with these raw parameters; `Unsupported` if there is no such thing."""
        ...


def operation(expr: Expr) -> str:
    """What an expression does, and with what, as backends name it: `tdiv u64`, `pow()`, `eq text`, `sum of f32`."""
    match expr:
        case Binary(op=op, a=a, b=b):
            return f"{op} {TIMESTAMP if TIMESTAMP in (a.type, b.type) else expr.type}"
        case Unary(op=op):
            return f"{op} {expr.type}"
        case Compare(op=op, a=a):
            return f"{op} {a.type}"
        case Cast(a=a, to=to):
            return f"cast {a.type} to {to}"
        case Call(fn=fn):
            return f"{fn}()"
        case Reduce(op=op, stored=Array(element=element) | List(element=element)):
            return f"{op} of {element}"
        case Elem():
            return ARRAY_VARIABLE
        case _:
            return type(expr).__name__.lower()


def operations(program: Program) -> Iterator[tuple[str, Span]]:
    """Every operation of a program, with its place; some more than once."""
    if program.stateful:
        yield STATE, NOWHERE
    for stmt in statements(program.body):
        match stmt:
            case Loop():
                yield LOOP, stmt.span
            case AssignElem():
                yield ARRAY_VARIABLE, stmt.span
            case SetOut(path=path) if any(not isinstance(step, str) for step in path.steps):
                yield OUTPUT_ELEMENT, stmt.span
        for outer in operands(stmt):
            for expr in expressions(outer):
                yield operation(expr), expr.span


class Interpreter:
    """The reference: a function of raw events."""

    name = "interpreter"
    unsupported: Mapping[str, str] = {}

    def lower(self, program: Program, params: Mapping[str, Any]) -> Callable[..., interp.Outcome]:
        return partial(interp.run, program, params=params)


INTERPRETER = Interpreter()


__all__ = [
    "ARRAY_VARIABLE",
    "INTERPRETER",
    "LOOP",
    "OUTPUT_ELEMENT",
    "STATE",
    "Backend",
    "Unsupported",
    "operation",
    "operations",
]
