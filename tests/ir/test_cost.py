"""Cost and limits."""

from __future__ import annotations

import pytest

from headwater.errors import InterestRefused
from headwater.ir.analyse import analyse
from headwater.ir.build import Builder
from headwater.ir.cost import Limits, check_limits, cost
from headwater.ir.nodes import NOWHERE as W
from headwater.ir.nodes import Const, Program, Stmt
from headwater.types.model import F64, I32, I64, TEXT, Field, Record
from tests.ir.test_analyse import averaging

EVENT = Record("Event", (Field("level", F64), Field("name", TEXT), Field("n", I64)))


def nested(depth: int, rounds: int) -> Program:
    """Loops in loops, each of so many rounds."""
    b = Builder(EVENT)
    body: list[Stmt] = []
    for at in range(depth):
        slot = b.declare(f"i{at}", I32, W)
        assert slot is not None
        var = b.var(slot, W)
        step = b.assign(slot, b.binary("add", var, Const(1, I64), W), W)
        loop = b.loop(b.compare("lt", var, Const(rounds, I64), W), body, step, W)
        body = [*b.assign(slot, Const(0, I64), W), *loop]
    return b.finish(body)


def test_a_comparison_costs_a_few_operations() -> None:
    b = Builder(EVENT)
    found = cost(analyse(b.finish(b.return_(b.compare("gt", b.field("level", W), b.const(0.5), W), W))))
    assert 1 <= found.estimated == found.worst <= 10
    assert found.memory == 0
    assert found.unit == "native operation"


def test_text_is_bounded_by_the_record() -> None:
    b = Builder(EVENT)
    found = cost(analyse(b.finish(b.return_(b.call("contains", [b.field("name", W), b.const("x")], W), W))))
    assert found.estimated < 100 < 1_000_000 < found.worst < 10_000_000


def test_the_averaging_program() -> None:
    analysis = analyse(averaging())
    found = check_limits(analysis, Limits())
    assert 37 * 253 < found.estimated == found.worst < 37 * 253 * 20
    assert found.memory > 8


def test_proven_loops_multiply() -> None:
    once, twice = cost(analyse(nested(1, 100))), cost(analyse(nested(2, 100)))
    assert 90 * once.worst < twice.worst < 110 * once.worst


def test_loops_on_fuel_share_it() -> None:
    b = Builder(EVENT)
    i = b.declare("i", I64, W)
    assert i is not None
    grow = b.assign(i, b.binary("add", b.var(i, W), Const(1, I64), W), W)
    start = b.assign(i, Const(0, I64), W)
    one = b.loop(b.compare("lt", b.var(i, W), b.field("n", W), W), [], grow, W)
    single = cost(analyse(b.finish([*start, *one])), fuel=1_000)
    double = cost(analyse(b.finish([*start, *one, *start, *one])), fuel=1_000)
    assert 1_000 < single.worst < 10_000
    assert double.worst < single.worst * 1.1
    assert single.estimated < 200


@pytest.mark.parametrize(("program", "limits", "reason"), [
    (nested(4, 1_000), Limits(), "operations an event"),
    (nested(2, 100), Limits(max_worst=1_000), "more than 1,000"),
    (nested(2, 10), Limits(memory=4), "bytes of memory"),
])  # fmt: skip
def test_too_much_is_refused(program: Program, limits: Limits, reason: str) -> None:
    with pytest.raises(InterestRefused, match=reason):
        check_limits(analyse(program), limits)
