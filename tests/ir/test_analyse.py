"""What the analysis promises, checked against what the interpreter does."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings

from headwater.errors import InterestRefused
from headwater.ir import interp, walk
from headwater.ir.analyse import Analysis, Fact, analyse
from headwater.ir.build import Builder
from headwater.ir.nodes import NOWHERE as W
from headwater.ir.nodes import Break, Compare, Const, Expr, Loop, Program, Stmt
from headwater.ir.outputs import blank
from headwater.types.model import BOOL, F64, I8, I32, I64, U8, Array, Field, List, Record
from tests import programs
from tests.effort import examples

GRID = Record("Grid", (Field("level", Array(F64, (253, 37))),))
MEAN = Record("Mean", (Field("average", F64),))
READING = Record(
    "Reading",
    (
        Field("x", I8),
        Field("y", I32, optional=True),
        Field("n", U8),
        Field("wide", I64),
        Field("f", F64),
        Field("row", Array(I32, (10,))),
        Field("list", List(I32)),
        Field("inner", Record("Inner", (Field("k", I32), Field("j", I32, optional=True))), optional=True),
    ),
)


class Watching(interp._Run):
    """The interpreter, holding every promise of the analysis against what happens."""

    analysis: Analysis

    def eval(self, expr: Expr) -> Any:
        fact = self.analysis.fact(expr)
        assert self.analysis.reached(expr), expr
        before = self.faults
        children = 0
        for child in walk.children(expr):
            children |= self.faults_of(child)
        value = super().eval(expr)
        if not fact.miss:
            assert value is not None, (expr, fact)
        if not fact.fault:
            assert not (self.faults & ~before & ~children), (expr, fact)
        if value is not None and fact.lo is not None and fact.hi is not None:
            assert fact.lo <= value <= fact.hi, (expr, value, fact)
        return value

    def faults_of(self, expr: Expr) -> int:
        """Every fault that operands may raise, wherever they stand; what is left is the operation's own."""
        found = 0
        for inner in walk.expressions(expr):
            if self.analysis.fact(inner).fault:
                found |= 31
        return found

    def loop(self, loop: Loop) -> str | None:
        if loop.bound is None:
            return super().loop(loop)
        rounds = 0
        while self.eval(loop.test) is True:
            rounds += 1
            assert rounds <= loop.bound
            signal = self.block(loop.body)
            if signal == "return":
                return "return"
            if signal == "break":
                break
            self.block(loop.step)
        return None


def watch(analysis: Analysis, event: dict[str, Any], meta: Any, params: Any, state: Any) -> None:
    program = analysis.program
    variables = {slot: interp._initial(v) for slot, v in enumerate(program.variables) if not v.state} | state
    output = blank(program.output) if program.output is not None else None
    it = Watching(program, event, meta, params, variables, programs.FUEL, output=output)
    it.analysis = analysis
    with contextlib.suppress(interp._OutOfFuel):
        it.block(program.body)
    state.update({slot: variables[slot] for slot in state})


@pytest.mark.parametrize("transforming", [False, True])
def test_no_event_contradicts_a_fact(transforming: bool) -> None:
    @settings(max_examples=examples(200), deadline=None)
    @given(programs.cases(transforming=transforming))
    def check(drawn: Any) -> None:
        case, events = drawn
        try:
            analysis = analyse(case.program, fuel=programs.FUEL)
        except InterestRefused:
            return
        state = interp.initial_state(case.program)
        for event, meta in events:
            watch(analysis, event, meta, case.params, state)

    check()


# ── named cases ──


def number(value: int) -> Const:
    return Const(value, I64)


def averaging() -> Program:
    """ECho's second sample program, as E-Code would build it."""
    b = Builder(GRID, output=MEAN, c_truth=True)
    i, j, total = (b.declare(name, type, W) for name, type in (("i", I32), ("j", I32), ("sum", F64)))
    assert i is not None and j is not None and total is not None

    def up(slot: int) -> list[Stmt]:
        return b.assign(slot, b.binary("add", b.var(slot, W), number(1), W), W)

    cell = b.index(b.index(b.field("level", W), b.var(j, W), W), b.var(i, W), W)
    add = b.assign(total, b.binary("add", b.var(total, W), cell, W), W)
    inner = b.loop(b.compare("lt", b.var(j, W), number(253), W), add, up(j), W)
    outer = b.loop(b.compare("lt", b.var(i, W), number(37), W), [*b.assign(j, number(0), W), *inner], up(i), W)
    count = b.binary("mul", number(37), number(253), W)
    return b.finish(
        [
            *b.assign(total, b.const(0.0), W),
            *b.assign(i, number(0), W),
            *outer,
            *b.set_out(["average"], b.binary("tdiv", b.var(total, W), count, W), W),
            *b.return_(number(1), W),
        ]
    )


def loops(program: Program) -> list[Loop]:
    return [stmt for stmt in walk.statements(program.body) if isinstance(stmt, Loop)]


def test_the_averaging_program_needs_no_check() -> None:
    analysis = analyse(averaging())
    assert [loop.bound for loop in loops(analysis.program)] == [37, 253]
    for expr in walk.all_expressions(analysis.program.body):
        fact = analysis.fact(expr)
        assert not fact.miss and not fact.fault, expr
    assert analysis.faultless


def counted(start: int, op: Any, limit: Any, by: int, *, type: Any = I32, body: list[Stmt] | None = None) -> int | None:
    b = Builder(READING)
    i = b.declare("i", type, W)
    assert i is not None
    step = b.assign(i, b.binary("add" if by >= 0 else "sub", b.var(i, W), number(abs(by)), W), W)
    test = b.compare(op, b.var(i, W), limit(b) if callable(limit) else number(limit), W)
    program = b.finish([*b.assign(i, number(start), W), *b.loop(test, body or [], step, W)])
    return loops(analyse(program).program)[0].bound


@pytest.mark.parametrize(
    ("start", "op", "limit", "by", "bound"),
    [
        (0, "lt", 37, 1, 37),
        (0, "le", 37, 1, 38),
        (0, "ne", 37, 1, 37),
        (5, "lt", 37, 4, 8),
        (10, "gt", 0, -1, 10),
        (10, "ge", 0, -3, 4),
        (10, "ne", 0, -1, 10),
        (40, "lt", 37, 1, 0),
        (0, "ne", 37, 2, None),
        (38, "ne", 37, 1, None),
        (0, "lt", 100_000, 1, 100_000),
        (0, "lt", 100_001, 1, None),  # above fuel
        (0, "lt", lambda b: b.field("n", W), 1, 255),
        (0, "lt", lambda b: b.call("length", [b.field("row", W)], W), 1, 10),
        (0, "lt", lambda b: b.call("length", [b.field("list", W)], W), 1, None),
        (0, "lt", lambda b: b.field("wide", W), 1, None),
        (0, "lt", lambda b: b.call("min", [b.field("wide", W), number(50)], W), 1, 50),
    ],
)
def test_counted_loops(start: int, op: Any, limit: Any, by: int, bound: int | None) -> None:
    assert counted(start, op, limit, by) == bound


def test_a_variable_changed_in_the_body_is_no_counter() -> None:
    b = Builder(READING)
    i = b.declare("i", I32, W)
    assert i is not None
    body = b.if_(b.compare("gt", b.field("x", W), number(0), W), b.assign(i, number(0), W), [], W)
    step = b.assign(i, b.binary("add", b.var(i, W), number(1), W), W)
    loop = b.loop(b.compare("lt", b.var(i, W), number(3), W), body, step, W)
    assert loops(analyse(b.finish([*b.assign(i, number(0), W), *loop])).program)[0].bound is None


def fact_of_result(make: Any) -> Fact:
    b = Builder(READING)
    expr = make(b)
    analysis = analyse(b.finish(b.return_(b.compare("gt", expr, number(0), W), W)))
    compare = walk.operands(analysis.program.body[0])[0]
    assert isinstance(compare, Compare)
    return analysis.fact(compare.a)


def test_ranges_and_missing() -> None:
    assert fact_of_result(lambda b: b.field("x", W)) == Fact(False, False, -128, 127)
    assert fact_of_result(lambda b: b.field("y", W)) == Fact(True, False, -(2**31), 2**31 - 1)
    assert fact_of_result(lambda b: b.binary("add", b.field("x", W), b.field("n", W), W)) == Fact(
        False, False, -128, 382
    )
    assert fact_of_result(lambda b: b.binary("tdiv", number(1000), b.field("n", W), W)) == Fact(True, True, 3, 1000)
    assert fact_of_result(lambda b: b.binary("tmod", b.field("wide", W), number(10), W)) == Fact(False, False, -9, 9)
    assert fact_of_result(lambda b: b.index(b.field("row", W), b.field("n", W), W)).fault
    safe = fact_of_result(lambda b: b.index(b.field("row", W), b.binary("fmod", b.field("wide", W), number(10), W), W))
    assert not safe.fault and not safe.miss
    assert fact_of_result(lambda b: b.cast(b.field("wide", W), I8, W)) == Fact(True, True, -128, 127)
    assert fact_of_result(lambda b: b.attribute(b.field("inner", W), "k", W)).miss


def test_tests_teach() -> None:
    b = Builder(READING)
    n = b.field("n", W)
    at = b.index(b.field("row", W), n, W)
    guarded = b.logic("and", [b.compare("lt", n, number(10), W), b.compare("gt", at, number(0), W)], W)
    present = b.unary("not", b.is_missing(b.field("y", W), W), W)
    y = b.field("y", W)
    whole = b.logic("and", [guarded, b.cond(present, b.compare("gt", y, number(1), W), Const(False, BOOL), W)], W)
    analysis = analyse(b.finish(b.return_(whole, W)))
    assert not analysis.fact(at).fault and not analysis.fact(at).miss
    assert not analysis.fact(y).miss
    assert analysis.fact(n).hi == 255


def test_a_local_assigned_on_all_ways_is_not_missing() -> None:
    b = Builder(READING)
    v, w = b.declare("v", I64, W), b.declare("w", I64, W)
    assert v is not None and w is not None
    test = b.compare("gt", b.field("x", W), number(0), W)
    both = b.if_(test, [*b.assign(v, number(1), W), *b.assign(w, number(1), W)], b.assign(v, number(2), W), W)
    read_v, read_w = b.var(v, W), b.var(w, W)
    analysis = analyse(b.finish([*both, *b.return_(b.compare("lt", read_v, read_w, W), W)]))
    assert analysis.fact(read_v) == Fact(False, False, 1, 2)
    assert analysis.fact(read_w) == Fact(True, False, 1, 1)


def test_state_is_whatever_earlier_events_left() -> None:
    b = Builder(READING)
    v = b.declare("v", I8, W, state=True)
    assert v is not None
    read = b.var(v, W)
    grow = b.assign(v, b.binary("add", read, number(1), W), W)
    analysis = analyse(b.finish([*grow, *b.return_(b.compare("gt", b.var(v, W), number(3), W), W)]))
    assert analysis.fact(read) == Fact(True, False, 0, 127)


def endless() -> list[Program]:
    b = Builder(READING)
    i = b.declare("i", I64, W)
    assert i is not None
    positive = b.compare("gt", b.field("x", W), number(0), W)
    forever = b.loop(Const(True, BOOL), b.assign(i, number(1), W), [], W)
    stuck = b.loop(positive, b.assign(i, number(1), W), [], W)
    unmoved = [*b.assign(i, number(0), W), *b.loop(b.compare("lt", b.var(i, W), number(5), W), [], [], W)]
    inside = b.if_(positive, forever, [], W)
    always = [
        *b.assign(i, number(0), W),
        *b.loop(b.compare("lt", b.var(i, W), number(5), W), b.assign(i, number(1), W), [], W),
    ]
    return [b.finish(body) for body in (forever, stuck, unmoved, inside, always)]


@pytest.mark.parametrize("program", endless())
def test_endless_loops_are_refused(program: Program) -> None:
    with pytest.raises(InterestRefused, match="can never end"):
        analyse(program)


def test_loops_that_may_end_are_not_refused() -> None:
    b = Builder(READING)
    positive = b.compare("gt", b.field("x", W), number(0), W)
    leaves = b.loop(Const(True, BOOL), b.if_(positive, [Break()], [], W), [], W)
    returns = b.loop(Const(True, BOOL), b.if_(positive, b.return_(positive, W), [], W), [], W)
    never = b.loop(Const(False, BOOL), [], [], W)
    for body in (leaves, returns, never):
        analyse(b.finish(body))


def test_deep_nesting_is_refused() -> None:
    b = Builder(READING)
    positive = b.compare("gt", b.field("x", W), number(0), W)
    body: list[Stmt] = b.return_(positive, W)
    for _ in range(70):
        body = b.if_(positive, body, [], W)
    with pytest.raises(InterestRefused, match="nest deeper"):
        analyse(b.finish(body))
    body = [Break()]
    for _ in range(12):
        body = b.loop(b.compare("gt", b.field("wide", W), number(0), W), [*body, Break()], [], W)
    analyse(b.finish(body))
    for _ in range(8):
        body = b.loop(positive, body, [], W)
    with pytest.raises(InterestRefused, match="nest deeper"):
        analyse(b.finish(body))
