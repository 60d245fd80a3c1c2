"""Loops by their looks: which count, and which can never end. No values are computed here."""

from __future__ import annotations

from typing import NamedTuple

from headwater.ir import walk
from headwater.ir.flow import FLIPPED
from headwater.ir.nodes import (
    Assign,
    Binary,
    Block,
    Break,
    Cast,
    Compare,
    CompareOp,
    Continue,
    Expr,
    Logic,
    Loop,
    Return,
    Var,
)
from headwater.types.model import I64, U64


class Counter(NamedTuple):
    """The loop goes on only while `variable op limit`, and adds `by` to (or takes it from) the variable each time."""

    slot: int
    op: CompareOp
    limit: Expr
    by: Expr
    down: bool


def counters(loop: Loop) -> list[Counter]:
    """Every way in which this loop counts."""
    tests = loop.test.args if isinstance(loop.test, Logic) and loop.test.op == "and" else (loop.test,)
    found = []
    for test in tests:
        if not isinstance(test, Compare):
            continue
        for op, a, b in ((test.op, test.a, test.b), (FLIPPED[test.op], test.b, test.a)):
            if isinstance(a, Var) and a.type in (I64, U64) and b.type in (I64, U64):
                step = _step(loop, a.slot)
                if step is not None:
                    found.append(Counter(a.slot, op, b, *step))
    return found


def _step(loop: Loop, slot: int) -> tuple[Expr, bool] | None:
    """What is added in every round, exactly once, and is the same when the test looks."""
    in_step, in_body = _assigns(loop.step, slot), _assigns(loop.body, slot)
    if len(in_step) + len(in_body) != 1:
        return None
    assign = (in_step or in_body)[0]
    home = loop.step if in_step else loop.body
    at = next((i for i, stmt in enumerate(home) if stmt is assign), None)
    if at is None or (in_body and _leaves(home[:at], Continue)):
        return None
    value = assign.value
    while isinstance(value, Cast) and value.type == value.a.type:  # back to the variable's width, checked
        value = value.a
    match value:
        case Binary(op="add", a=Var(slot=target), b=by) | Binary(op="add", a=by, b=Var(slot=target)) if target == slot:
            down = False
        case Binary(op="sub", a=Var(slot=target), b=by) if target == slot:
            down = True
        case _:
            return None
    changed = walk.assigned(loop.body) | walk.assigned(loop.step)
    return None if walk.read(by) & changed else (by, down)


def _assigns(block: Block, slot: int) -> list[Assign]:
    return [stmt for stmt in walk.statements(block) if isinstance(stmt, Assign) and stmt.slot == slot]


def _leaves(block: Block, kind: type[Break] | type[Continue]) -> bool:
    """Whether a block has a break (or continue) of its own loop."""
    for stmt in block:
        if isinstance(stmt, kind):
            return True
        if not isinstance(stmt, Loop) and any(_leaves(inner, kind) for inner in walk.blocks(stmt)):
            return True
    return False


def is_stuck(loop: Loop) -> bool:
    """Whether a loop, once begun, cannot end: nothing it does changes its test, and nothing leaves it."""
    changed = walk.assigned(loop.body) | walk.assigned(loop.step)
    returns = any(isinstance(stmt, Return) for stmt in walk.statements(loop.body))
    return not returns and not _leaves(loop.body, Break) and not (walk.read(loop.test) & changed)
