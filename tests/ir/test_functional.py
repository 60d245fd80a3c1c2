"""Programs as expressions: the same verdict and output as the program itself, on every event."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from headwater.ir import interp
from headwater.ir.build import Builder
from headwater.ir.functional import as_expression, as_outputs
from headwater.ir.nodes import NOWHERE as W
from headwater.ir.nodes import Expr, Load, Path
from headwater.types.model import F64, I64, Field, Record
from tests import programs
from tests.effort import examples
from tests.strategies import same

EVENT = Record("Event", (Field("x", I64), Field("y", I64, optional=True)))


def value_of(case: programs.Case, expr: Expr, event: Any, meta: Any) -> Any:
    return interp._Run(case.program, event, meta, case.params, {}, 0).eval(expr)


def status_of(verdict: Any) -> interp.Status:
    if verdict is None:
        return interp.Status.UNDECIDED
    return interp.Status.PASSED if verdict else interp.Status.REJECTED


@settings(max_examples=examples(120), deadline=None)
@given(programs.cases(loops=False, state=False, arrays=False))
def test_a_filter_as_an_expression(drawn: Any) -> None:
    case, events = drawn
    verdict = as_expression(case.program)
    if verdict is None:
        return
    for event, meta in events:
        outcome = interp.run(case.program, event, meta=meta, params=case.params)
        assert outcome.status == status_of(value_of(case, verdict, event, meta)), repr(verdict)


@settings(max_examples=examples(120), deadline=None)
@given(programs.cases(transforming=True, loops=False, state=False, arrays=False))
def test_a_transformation_as_expressions(drawn: Any) -> None:
    case, events = drawn
    found = as_outputs(case.program)
    if found is None:
        return
    verdict, leaves = found
    for event, meta in events:
        outcome = interp.run(case.program, event, meta=meta, params=case.params)
        assert outcome.status == status_of(value_of(case, verdict, event, meta))
        for leaf, expr in leaves.items():
            expected = outcome.output
            for name in leaf:
                expected = expected[name] if expected is not None else None
            assert not outcome.passed or same(_lists(expected), _lists(value_of(case, expr, event, meta)))


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lists(inner) for name, inner in value.items()}
    return [_lists(inner) for inner in value] if isinstance(value, list | tuple) else value


def test_what_cannot_be_said() -> None:
    b = Builder(EVENT)
    i = b.declare("i", I64, W)
    assert i is not None
    step = b.assign(i, b.binary("add", b.var(i, W), b.const(1), W), W)
    loop = b.loop(b.compare("lt", b.var(i, W), b.const(3), W), [], step, W)
    assert as_expression(b.finish(loop)) is None
    assert as_outputs(b.finish([])) is None


def test_doubling_is_given_up_not_blown_up() -> None:
    b = Builder(EVENT)
    v = b.declare("v", I64, W)
    assert v is not None
    double = b.binary("add", b.var(v, W), b.var(v, W), W)
    body = [*b.assign(v, b.field("x", W), W), *(stmt for _ in range(60) for stmt in b.assign(v, double, W))]
    assert as_expression(b.finish([*body, *b.return_(b.compare("gt", b.var(v, W), b.const(1), W), W)])) is None
    test = b.compare("gt", b.field("y", W), b.const(1), W)
    leave = b.if_(test, b.return_(b.const(True), W), b.return_(b.const(False), W), W)
    forks = [stmt for _ in range(60) for stmt in b.if_(test, leave, b.if_(test, leave, [], W), W)]
    assert as_expression(b.finish(forks)) is None


def test_outputs_by_their_paths() -> None:
    output = Record("Out", (Field("a", F64), Field("in", Record("Inner", (Field("b", I64), Field("c", I64, True))))))
    b = Builder(EVENT, output=output)
    program = b.finish(
        [
            *b.set_out(["a"], b.field("x", W), W),
            *b.set_out(["in", "b"], b.field("y", W), W),
            *b.return_(b.const(True), W),
        ]
    )
    found = as_outputs(program)
    assert found is not None
    assert set(found[1]) == {("a",), ("in", "b"), ("in", "c")}
    assert found[1]["in", "b"] == Load(Path(("y",)), I64, I64)
