"""What an interest costs: estimated and at worst, in native operations, and the memory it needs.

One operation is about one machine instruction that does work: an addition, a comparison, a load, with its check. The
estimate takes loops without a proven bound to run 16 times, lists to have 16 elements and text 32 bytes. The worst
case takes a record of 1 MiB and all the fuel: loops without a proven bound share it, so together they run as many
rounds as there is fuel. Every branch of an `if` is counted as if the dearer one were taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from headwater.errors import InterestRefused
from headwater.ir import walk
from headwater.ir.analyse import Analysis
from headwater.ir.functions import FUNCTIONS
from headwater.ir.interp import FUEL
from headwater.ir.nodes import (
    NOWHERE,
    Binary,
    Block,
    Call,
    Cast,
    Compare,
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
    Program,
    Reduce,
    Return,
    Stmt,
    Unary,
    Var,
    Variable,
)
from headwater.ir.notes import locate
from headwater.types.layout import Layout, size_align, stride
from headwater.types.model import BYTES, TEXT, Array, List, Type

MAX_RECORD = 1 << 20
MAX_WORST = 4_000_000_000
SHORT = 400  # characters; too few for enough searches in records of that size to reach the default limit
ROUNDS = 16
ELEMENTS = 16
TEXT_BYTES = 32
WORD = 8  # bytes of text that one operation handles
INTERPRETED_ELEMENTS = 512  # of a list, where the interpreter's steps are counted

_SLOW = {"div": 6, "tdiv": 12, "tmod": 12, "fdiv": 14, "fmod": 14}
_BY_LENGTH = ("length", "starts_with", "ends_with", "contains", "like", "lower", "upper")


@dataclass(frozen=True, slots=True)
class Cost:
    """Per event; `memory` is in bytes: variables, state and the fixed part of the output."""

    estimated: int
    worst: int
    memory: int
    unit: str = "native operation"

    def __str__(self) -> str:
        return f"about {self.estimated:,} and at most {self.worst:,} {self.unit}s, {self.memory:,} bytes"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the owner of a source allows an interest: worst case operations, rounds of unproven loops, bytes."""

    max_worst: int = MAX_WORST
    fuel: int = FUEL
    memory: int = 16 << 20


class _Pair(NamedTuple):
    """Estimated and worst."""

    estimated: int
    worst: int

    def __add__(self, other: object) -> _Pair:
        assert isinstance(other, _Pair)
        return _Pair(self[0] + other[0], self[1] + other[1])

    def times(self, estimated: int, worst: int) -> _Pair:
        return _Pair(self[0] * estimated, self[1] * worst)


_FREE = _Pair(0, 0)
_ONE = _Pair(1, 1)


def cost(analysis: Analysis, *, fuel: int = FUEL) -> Cost:
    """Of an analysed program."""
    program = analysis.program
    counter = _Counter(fuel)
    total = counter.block(program.body)
    memory = sum(map(_bytes, program.variables))
    if program.output is not None:
        memory += Layout.of(program.output).size
    return Cost(total.estimated, total.worst + fuel * counter.dearest, memory)


def interpreted_steps(analysis: Analysis, *, fuel: int = FUEL) -> int:
    """How many parts of the program the interpreter looks at for an event at worst; lists are taken to be of a
    record's usual size, and text to cost nothing more."""
    counter = _Steps(fuel)
    return counter.block(analysis.program.body).worst + fuel * counter.dearest


def check_limits(analysis: Analysis, limits: Limits) -> Cost:
    """The cost, or InterestRefused with every limit that it exceeds."""
    found = cost(analysis, fuel=limits.fuel)
    text = analysis.program.text
    problems = []
    if found.worst > limits.max_worst:
        message = f"at worst this takes {found.worst:,} {found.unit}s an event, more than {limits.max_worst:,}"
        hint = "shorten its loops, or ask the source's owner for a higher limit"
        problems.append(locate(text, _dearest_place(analysis), message, hint=hint))
    if found.memory > limits.memory:
        message = f"this takes {found.memory:,} bytes of memory, more than {limits.memory:,}"
        problems.append(locate(text, NOWHERE, message, hint="use smaller arrays"))
    if problems:
        raise InterestRefused(problems, "this interest is refused")
    return found


def surely_within(program: Program, limits: Limits) -> bool:
    """Whether a look at the outside is enough: a short text without variables, loops and output cannot reach the
    default limits, whatever it says. It saves counting where a first answer is waited for."""
    plain = len(program.body) == 1 and isinstance(program.body[0], Return)
    plain = plain and not program.variables and program.output is None
    return plain and 0 < len(program.text) <= SHORT and limits.max_worst >= MAX_WORST


def _dearest_place(analysis: Analysis) -> Any:
    """The first outermost loop, as good a place as any to point at."""
    loops = (stmt for stmt in analysis.program.body if isinstance(stmt, Loop))
    first = next(loops, None)
    return first.span if first is not None else NOWHERE


def _bytes(variable: Variable) -> int:
    """A value and whether it is there."""
    count = 1
    for n in variable.shape:
        count *= n
    return count * (size_align(variable.type)[0] + 1)


class _Counter:
    def __init__(self, fuel: int) -> None:
        self.fuel = fuel
        self.dearest = 0  # one round of any loop that draws on fuel, at worst

    def block(self, block: Block) -> _Pair:
        total = _FREE
        for stmt in block:
            total += self.stmt(stmt)
        return total

    def stmt(self, stmt: Stmt) -> _Pair:
        match stmt:
            case If(test=test, then=then, other=other):
                ways = self.block(then), self.block(other)
                dearer = _Pair(max(ways[0].estimated, ways[1].estimated), max(ways[0].worst, ways[1].worst))
                return self.expr(test) + dearer + _ONE
            case Loop(test=test, body=body, step=step, bound=bound):
                entry = self.expr(test)
                around = entry + self.block(body) + self.block(step) + _ONE
                if bound is not None:
                    return entry + around.times(bound, bound)
                self.dearest = max(self.dearest, around.worst)
                return entry + around.times(min(ROUNDS, self.fuel), 0)
            case CopyOut(stored=stored):
                return self.operands(stmt) + _copy(stored)
            case _:
                return self.operands(stmt) + _ONE

    def operands(self, stmt: Stmt) -> _Pair:
        total = _FREE
        for expr in walk.operands(stmt):
            total += self.expr(expr)
        return total

    def expr(self, expr: Expr) -> _Pair:
        total: _Pair = _OWN[expr.__class__](expr)
        for child in walk.children(expr):
            total += self.expr(child)
        return total


class _Steps(_Counter):
    """The same walk, where every part costs a step of the interpreter."""

    def expr(self, expr: Expr) -> _Pair:
        total = _ONE
        if isinstance(expr, Reduce) and expr.op != "len":
            stored = expr.stored
            count = stored.count if isinstance(stored, Array) else INTERPRETED_ELEMENTS
            total = _Pair(count, count)
        for child in walk.children(expr):
            total += self.expr(child)
        return total


def _copy(stored: Type) -> _Pair:
    fixed = size_align(stored)[0] // WORD + 1
    return _Pair(fixed + ELEMENTS if isinstance(stored, List) else fixed, fixed + MAX_RECORD // WORD)


def _text(expr: Expr, other: Expr | None = None) -> _Pair:
    """Going once through a text, no further than a constant beside it."""
    known = [c.value for c in (expr, other) if isinstance(c, Const) and isinstance(c.value, str | bytes)]
    size = min(map(len, known)) * 4 if known else MAX_RECORD
    return _Pair(min(size, TEXT_BYTES) // WORD + 1, size // WORD + 1)


def _compare(expr: Compare) -> _Pair:
    return _text(expr.a, expr.b) if expr.a.type in (TEXT, BYTES) else _ONE


def _call(expr: Call) -> _Pair:
    each = FUNCTIONS[expr.fn].cost
    if expr.fn not in _BY_LENGTH:
        return _Pair(each, each) if expr.fn not in ("min", "max", "coalesce") else _Pair(*(len(expr.args),) * 2)
    if expr.fn in ("starts_with", "ends_with"):
        return _text(expr.args[1]) + _Pair(each, each)
    worst = MAX_RECORD // WORD if expr.fn == "length" else MAX_RECORD
    if expr.fn == "like" and isinstance(expr.args[1], Const):
        worst *= max(1, str(expr.args[1].value).count("%"))  # each % may start over
    return _Pair(each + TEXT_BYTES // WORD, each + worst)


def _in_set(expr: InSet) -> _Pair:
    look = _text(expr.a) if expr.a.type in (TEXT, BYTES) else _ONE
    return look + (_Pair(8, 8) if expr.param is not None else _Pair(*(len(expr.values).bit_length() + 1,) * 2))


def _reduce(expr: Reduce) -> _Pair:
    stored = expr.stored
    assert isinstance(stored, Array | List)
    if expr.op == "len":
        return _ONE
    if isinstance(stored, Array):
        return _Pair(stored.count, stored.count)
    return _Pair(ELEMENTS, MAX_RECORD // max(1, stride(stored.element)))


_OWN: dict[type, Callable[[Any], _Pair]] = {
    Const: lambda _: _FREE,
    Missing: lambda _: _FREE,
    Var: lambda _: _FREE,
    Load: lambda x: _Pair(*(len(x.path.steps),) * 2),
    Elem: lambda x: _Pair(*(2 * len(x.indices),) * 2),
    Param: lambda _: _ONE,
    Meta: lambda _: _ONE,
    Unary: lambda _: _ONE,
    Binary: lambda x: _Pair(*(_SLOW.get(x.op, 1),) * 2),
    Compare: _compare,
    Logic: lambda x: _Pair(*(len(x.args) - 1,) * 2),
    Cond: lambda _: _ONE,
    IsMissing: lambda _: _ONE,
    Cast: lambda _: _ONE,
    Call: _call,
    InSet: _in_set,
    Lookup: lambda x: _Pair(10, 10 + (MAX_RECORD // WORD if x.key.type in (TEXT, BYTES) else 0)),
    Reduce: _reduce,
}
