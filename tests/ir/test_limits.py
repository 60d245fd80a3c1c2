"""The largest and deepest programs that are accepted go through everything; larger ones are refused, quickly."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from headwater.errors import InterestRefused
from headwater.ir import interp, serial
from headwater.ir.analyse import analyse
from headwater.ir.build import Builder
from headwater.ir.cost import cost
from headwater.ir.covers import certainty, covers
from headwater.ir.functional import as_expression
from headwater.ir.nodes import NOWHERE as W
from headwater.ir.nodes import Expr, Program, Stmt
from headwater.ir.notes import MAX_DEPTH, MAX_NODES
from headwater.ir.rebind import rebind
from headwater.ir.rewrite import normalise, share
from headwater.ir.show import show
from headwater.ir.verify import verify
from headwater.types.model import BOOL, I64, Array, Field, Record

EVENT = Record("Event", (Field("x", I64), Field("on", BOOL, optional=True), Field("row", Array(I64, (4,)))))
OTHER = Record("Other", (Field("x", I64), Field("on", BOOL)))
RAW = {"x": 1, "on": None, "row": (0, 1, 2, 3)}

Step = Callable[[Builder, Expr], Expr]


def deep(start: str, step: Step, end: Step) -> Program:
    """As deep as the builder allows."""
    b = Builder(EVENT)
    expr = b.field(start, W)
    for _ in range(MAX_DEPTH - 4):
        expr = step(b, expr)
    return b.finish(b.return_(end(b, expr), W))


def _same(_: Builder, expr: Expr) -> Expr:
    return expr


def _positive(b: Builder, expr: Expr) -> Expr:
    return b.compare("gt", expr, b.const(0), W)


def _either(b: Builder, expr: Expr) -> Expr:
    other = b.compare("gt", b.field("x", W), b.const(len(b._kept)), W)
    return b.logic("and" if len(b._kept) % 2 else "or", [other, expr], W)


def nested_ifs() -> Program:
    b = Builder(EVENT)
    body: list[Stmt] = b.return_(b.const(True), W)
    for at in range(60):
        body = b.if_(b.compare("gt", b.field("x", W), b.const(at), W), body, b.return_(b.field("on", W), W), W)
    return b.finish(body)


def many_ifs() -> Program:
    b = Builder(EVENT)
    v = b.declare("v", I64, W)
    assert v is not None
    body: list[Stmt] = []
    for at in range(500):
        test = b.compare("gt", b.field("x", W), b.const(at), W)
        body += b.if_(test, b.assign(v, b.const(at), W), b.if_(b.field("on", W), b.return_(test, W), [], W), W)
    return b.finish([*body, *b.return_(b.compare("gt", b.var(v, W), b.const(3), W), W)])


def wide() -> Program:
    b = Builder(EVENT)
    tests = [b.compare("eq", b.binary("add", b.field("x", W), b.const(at), W), b.const(3), W) for at in range(3_000)]
    return b.finish(b.return_(b.logic("or", tests, W), W))


PROGRAMS = {
    "not": deep("on", lambda b, e: b.unary("not", e, W), _same),
    "neg": deep("x", lambda b, e: b.unary("neg", e, W), _positive),
    "add": deep("x", lambda b, e: b.binary("add", e, b.field("x", W), W), _positive),
    "add right": deep("x", lambda b, e: b.binary("sub", b.field("x", W), e, W), _positive),
    "index": deep("x", lambda b, e: b.index(b.field("row", W), e, W), _positive),
    "conditional": deep("x", lambda b, e: b.cond(b.field("on", W), e, b.field("x", W), W), _positive),
    "test": deep("on", lambda b, e: b.cond(e, b.field("on", W), b.const(False), W), _same),
    "coalesce": deep("on", lambda b, e: b.call("coalesce", [b.field("on", W), e], W), _same),
    "and or": deep("on", _either, _same),
    "nested ifs": nested_ifs(),
    "many ifs": many_ifs(),
    "wide": wide(),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.timeout(60)  # it must end by itself, long before this
def test_the_deepest_go_through_everything(name: str) -> None:
    program = PROGRAMS[name]
    verify(program)
    analysis = analyse(program)
    assert analysis.faultless in (True, False)
    cost(analysis)
    normal = normalise(program)
    verify(normal)
    assert serial.loads(serial.dumps(normal)) == normal
    assert serial.fingerprint(program) == serial.fingerprint_of_normal(normal)
    expected = interp.run(program, RAW)
    for other in (normal, share(normal)):
        assert interp.run(other, RAW) == expected
    verify(rebind(program, OTHER))
    as_expression(program)
    assert covers(program, program)
    certainty(program, normal=False)
    show(normal)


def test_there_is_room_left_on_the_stack() -> None:
    """Callers have frames of their own."""
    limit = sys.getrecursionlimit()
    depth = len_of_stack()
    sys.setrecursionlimit(depth + 850)
    try:
        for name in PROGRAMS:
            if name != "wide":
                test_the_deepest_go_through_everything(name)
    finally:
        sys.setrecursionlimit(limit)


def len_of_stack() -> int:
    frame, depth = sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    return depth


def test_more_is_refused() -> None:
    b = Builder(EVENT)
    expr = b.field("x", W)
    with pytest.raises(InterestRefused, match="nest deeper"):
        for _ in range(MAX_DEPTH + 1):
            expr = b.unary("bitnot", expr, W)
    with pytest.raises(InterestRefused, match="more than"):
        for _ in range(MAX_NODES + 1):
            b.field("x", W)
