"""Rewrites keep the meaning: the original and the rewritten program are both run, and agree in everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from headwater.ir import encode, interp, serial, walk
from headwater.ir.build import Builder
from headwater.ir.nodes import NOWHERE as W
from headwater.ir.nodes import Expr, ParamDecl, Program, Stmt
from headwater.ir.rewrite import normalise, share
from headwater.ir.show import show
from headwater.ir.simplify import Simplifier
from headwater.ir.verify import verify
from headwater.types.model import BOOL, F64, I32, I64, TEXT, Array, Field, Record
from tests import programs
from tests.effort import examples
from tests.strategies import same

PINNED = {
    "comparison": "c679475364285a093e3d97cab92b718e",
    "conjunction": "25811e6213b56f2c8989e43a7c3c4751",
    "a local chosen": "818e8090292d8a4426dcaa0e4a59bb19",
}


def outcomes(case: programs.Case, program: Program, events: Any) -> list[tuple[Any, ...]]:
    state = interp.initial_state(program)
    found = []
    for event, meta in events:
        outcome = interp.run(program, event, meta=meta, params=case.params, state=state, fuel=programs.FUEL)
        found.append((outcome.status, outcome.faults, outcome.output))
    return found


@pytest.mark.parametrize("transforming", [False, True])
def test_the_normal_form_means_the_same(transforming: bool) -> None:
    @settings(max_examples=examples(200), deadline=None)
    @given(programs.cases(transforming=transforming))
    def check(drawn: Any) -> None:
        case, events = drawn
        normal = normalise(case.program)
        verify(normal)
        assert same(outcomes(case, case.program, events), outcomes(case, normal, events)), normal
        again = normalise(normal)
        assert serial.fingerprint_of_normal(again) == serial.fingerprint_of_normal(normal)

    check()


@settings(max_examples=examples(150), deadline=None)
@given(programs.cases(statements=False))
def test_keys_made_of_the_keys_of_parts_are_those_of_the_whole(drawn: Any) -> None:
    program = drawn[0].program
    simplifier = Simplifier(program)
    for stmt in program.body:
        for operand in walk.operands(stmt):
            for expr in walk.expressions(operand):
                assert simplifier.key(expr) == encode.key(expr, simplifier.encoder)


@settings(max_examples=examples(150), deadline=None)
@given(programs.cases(statements=False))
def test_a_condition_means_the_same(drawn: Any) -> None:
    case, events = drawn
    normal = normalise(case.program)
    verify(normal)
    shared = share(normal)
    verify(shared)
    expected = outcomes(case, case.program, events)
    assert expected == outcomes(case, normal, events)
    assert expected == outcomes(case, shared, events)


# ── equal interests have equal normal forms ──

EVENT = Record(
    "Event",
    (
        Field("level", F64),
        Field("n", I32),
        Field("o", I32, optional=True),
        Field("name", TEXT),
        Field("on", BOOL),
        Field("row", Array(I32, (4,))),
    ),
)


class Forms:
    """Short words for building."""

    def __init__(self, *, c: bool = False) -> None:
        self.b = Builder(EVENT, c_truth=c, params=[ParamDecl("q", "scalar", I64), ParamDecl("p", "scalar", I64)])

    def f(self, name: str) -> Expr:
        return self.b.field(name, W)

    def k(self, value: Any) -> Expr:
        return self.b.const(value)

    def cmp(self, op: Any, a: Any, b: Any) -> Expr:
        a, b = (x if not isinstance(x, str | int | float) else self.k(x) for x in (a, b))
        return self.b.compare(op, a, b, W)

    def is_(self, name: str, op: Any, value: Any) -> Expr:
        return self.cmp(op, self.f(name), value)

    def all(self, *args: Expr) -> Expr:
        return self.b.logic("and", args, W)

    def any(self, *args: Expr) -> Expr:
        return self.b.logic("or", args, W)

    def not_(self, a: Expr) -> Expr:
        return self.b.unary("not", a, W)

    def ret(self, value: Any) -> list[Stmt]:
        return self.b.return_(value if not isinstance(value, int) else self.k(value), W)

    def if_(self, test: Expr, then: list[Stmt], other: list[Stmt] | None = None) -> list[Stmt]:
        return self.b.if_(test, then, other or [], W)


def condition(make: Callable[[Forms], Expr]) -> Program:
    forms = Forms()
    return forms.b.finish(forms.ret(make(forms)))


def code(make: Callable[[Forms], list[Stmt]]) -> Program:
    forms = Forms(c=True)
    return forms.b.finish(make(forms))


def local(f: Forms) -> list[Stmt]:
    slot = f.b.declare("twice", I64, W)
    assert slot is not None
    value = f.b.assign(slot, f.b.binary("mul", f.k(2), f.f("n"), W), W)
    unused = f.b.declare("unused", I64, W)
    assert unused is not None
    return [*value, *f.b.assign(unused, f.k(7), W), *f.ret(f.cmp("gt", f.b.var(slot, W), 10))]


def chosen(f: Forms) -> list[Stmt]:
    slot = f.b.declare("limit", I32, W)
    assert slot is not None
    pick = f.if_(f.f("on"), f.b.assign(slot, f.k(1), W), f.b.assign(slot, f.k(2), W))
    return [*pick, *f.ret(f.cmp("gt", f.f("n"), f.b.var(slot, W)))]


EQUAL: list[tuple[str, Program, Program]] = [
    (
        "if and predicate",
        code(lambda f: f.if_(f.is_("level", "gt", 0.5), f.ret(1))),
        condition(lambda f: f.is_("level", "gt", 0.5)),
    ),
    (
        "if else",
        code(lambda f: f.if_(f.is_("n", "gt", 5), f.ret(1), f.ret(0))),
        condition(lambda f: f.is_("n", "gt", 5)),
    ),
    ("constant first", condition(lambda f: f.cmp("lt", 5, f.f("n"))), condition(lambda f: f.is_("n", "gt", 5))),
    ("whole numbers", condition(lambda f: f.is_("n", "ge", 6)), condition(lambda f: f.is_("n", "gt", 5))),
    ("whole and float", condition(lambda f: f.is_("n", "gt", 5.5)), condition(lambda f: f.is_("n", "gt", 5))),
    ("negation", condition(lambda f: f.not_(f.is_("n", "le", 5))), condition(lambda f: f.is_("n", "gt", 5))),
    (
        "de Morgan",
        condition(lambda f: f.not_(f.any(f.is_("n", "lt", 1), f.is_("name", "eq", "x")))),
        condition(lambda f: f.all(f.is_("name", "ne", "x"), f.is_("n", "ge", 1))),
    ),
    (
        "order and duplicates",
        condition(lambda f: f.all(f.is_("n", "gt", 1), f.f("on"), f.is_("n", "gt", 1))),
        condition(lambda f: f.all(f.f("on"), f.is_("n", "gt", 1))),
    ),
    (
        "or and in",
        condition(lambda f: f.any(f.is_("o", "eq", 2), f.is_("o", "eq", 1), f.is_("o", "eq", 2))),
        condition(lambda f: f.b.in_set(f.f("o"), [f.k(1), f.k(2)], W)),
    ),
    (
        "not in",
        condition(lambda f: f.not_(f.b.in_set(f.f("o"), [f.k(2), f.k(1)], W))),
        condition(lambda f: f.all(f.is_("o", "ne", 1), f.is_("o", "ne", 2))),
    ),
    ("in of one", condition(lambda f: f.b.in_set(f.f("o"), [f.k(2)], W)), condition(lambda f: f.is_("o", "eq", 2))),
    (
        "early returns",
        code(lambda f: [*f.if_(f.is_("n", "lt", 1), f.ret(0)), *f.if_(f.is_("n", "gt", 5), f.ret(0)), *f.ret(1)]),
        condition(lambda f: f.all(f.is_("n", "ge", 1), f.is_("n", "le", 5))),
    ),
    ("a local", code(local), condition(lambda f: f.cmp("gt", f.b.binary("mul", f.f("n"), f.k(2), W), 10))),
    (
        "a local chosen",
        code(chosen),
        condition(lambda f: f.cmp("gt", f.f("n"), f.b.cond(f.f("on"), f.k(1), f.k(2), W))),
    ),
    (
        "folding",
        condition(lambda f: f.is_("n", "gt", f.b.binary("add", f.k(2), f.k(3), W))),
        condition(lambda f: f.is_("n", "gt", 5)),
    ),
    (
        "a truth compared",
        code(lambda f: f.ret(f.cmp("eq", f.is_("n", "gt", 5), 1))),
        condition(lambda f: f.is_("n", "gt", 5)),
    ),
    ("a number as truth", code(lambda f: f.ret(f.f("n"))), condition(lambda f: f.is_("n", "ne", 0))),
    (
        "like",
        condition(lambda f: f.b.call("like", [f.f("name"), f.k("ab%")], W)),
        condition(lambda f: f.b.call("starts_with", [f.f("name"), f.k("ab")], W)),
    ),
    ("two fields", condition(lambda f: f.is_("n", "lt", f.f("o"))), condition(lambda f: f.is_("o", "gt", f.f("n")))),
    (
        "a sum",
        condition(lambda f: f.cmp("gt", f.b.binary("add", f.f("n"), f.f("o"), W), 1)),
        condition(lambda f: f.cmp("gt", f.b.binary("add", f.f("o"), f.f("n"), W), 1)),
    ),
    (
        "is not null",
        condition(lambda f: f.not_(f.b.is_missing(f.is_("o", "gt", 1), W))),
        condition(lambda f: f.not_(f.b.is_missing(f.f("o"), W))),
    ),
]


@pytest.mark.parametrize(("name", "one", "other"), EQUAL, ids=[name for name, *_ in EQUAL])
def test_equal_interests(name: str, one: Program, other: Program) -> None:
    assert show(normalise(one)) == show(normalise(other))
    assert serial.fingerprint(one) == serial.fingerprint(other)


DIFFERENT: list[tuple[str, Program, Program]] = [
    ("NaN", condition(lambda f: f.not_(f.is_("level", "le", 0.5))), condition(lambda f: f.is_("level", "gt", 0.5))),
    ("missing", code(lambda f: f.if_(f.is_("o", "gt", 5), f.ret(1))), condition(lambda f: f.is_("o", "gt", 5))),
    (
        "parameters",
        condition(lambda f: f.is_("n", "gt", f.b.param("p", W))),
        condition(lambda f: f.is_("n", "gt", f.b.param("q", W))),
    ),
    (
        "a fault stays",
        condition(lambda f: f.all(f.is_("n", "gt", 1), f.cmp("gt", f.b.binary("tdiv", f.k(1), f.f("n"), W), 0))),
        condition(lambda f: f.all(f.cmp("gt", f.b.binary("tdiv", f.k(1), f.f("n"), W), 0), f.is_("n", "gt", 1))),
    ),
]


@pytest.mark.parametrize(("name", "one", "other"), DIFFERENT, ids=[name for name, *_ in DIFFERENT])
def test_different_interests(name: str, one: Program, other: Program) -> None:
    assert serial.fingerprint(one) != serial.fingerprint(other)


def test_names_of_variables_do_not_matter() -> None:
    def counting(name: str, order: list[str]) -> Program:
        b = Builder(EVENT, params=[ParamDecl(p, "scalar", I64) for p in order])
        b.declare("never used", I64, W)
        slot = b.declare(name, I64, W, state=True)
        assert slot is not None
        grow = b.assign(slot, b.binary("add", b.var(slot, W), b.const(1), W), W)
        return b.finish([*grow, *b.return_(b.compare("gt", b.var(slot, W), b.param("p", W), W), W)])

    assert serial.fingerprint(counting("n", ["p", "q"])) == serial.fingerprint(counting("count", ["q", "p"]))
    assert serial.fingerprint(counting("n", ["p"])) != serial.fingerprint(counting("n", ["p", "q"]))


def test_fingerprints_are_the_same_on_every_machine_and_in_every_version() -> None:
    pinned = {
        "comparison": condition(lambda f: f.is_("level", "gt", 0.5)),
        "conjunction": condition(lambda f: f.all(f.is_("name", "eq", "é"), f.is_("o", "lt", 3), f.f("on"))),
        "a local chosen": code(chosen),
    }
    assert {name: serial.fingerprint(program).hex() for name, program in pinned.items()} == PINNED


def test_sharing_hoists_what_is_repeated() -> None:
    def lowered(f: Forms) -> Expr:
        return f.b.call("lower", [f.f("name")], W)

    program = condition(lambda f: f.any(f.cmp("eq", lowered(f), "a"), f.b.call("contains", [lowered(f), f.k("b")], W)))
    shared = share(normalise(program))
    assert [variable.name for variable in shared.variables] == ["shared1"]
    verify(shared)


def test_what_may_fault_is_not_folded_away() -> None:
    program = condition(lambda f: f.all(f.cmp("gt", f.b.binary("tdiv", f.k(1), f.k(0), W), 0), f.k(False)))
    outcome = interp.run(normalise(program), {"n": 1})
    assert outcome.faults == interp.Fault.DIVISION and outcome.status is interp.Status.REJECTED


def _divided(b: Builder) -> Expr:
    return b.compare("gt", b.binary("tdiv", b.const(10), b.field("x", W), W), b.const(1), W)


def _tested_for_nothing(b: Builder) -> list[Stmt]:
    return [*b.if_(_divided(b), [], [], W), *b.return_(b.const(True), W)]


def _assigned_for_nothing(b: Builder) -> list[Stmt]:
    v = b.declare("v", I64, W)
    assert v is not None
    return [*b.if_(_divided(b), b.assign(v, b.const(1), W), [], W), *b.return_(b.const(True), W)]


def _the_same_either_way(b: Builder) -> list[Stmt]:
    v = b.declare("v", BOOL, W)
    assert v is not None
    first = b.assign(v, b.field("on", W), W)
    return [*first, *b.if_(_divided(b), b.return_(b.var(v, W), W), [], W), *b.return_(b.var(v, W), W)]


@pytest.mark.parametrize("body", [_tested_for_nothing, _assigned_for_nothing, _the_same_either_way])
def test_a_test_that_faults_stays(body: Callable[[Builder], list[Stmt]]) -> None:
    b = Builder(Record("Event", (Field("x", I64), Field("on", BOOL))))
    program = b.finish(body(b))
    for x in (0, 5):
        raw = {"x": x, "on": True}
        assert interp.run(normalise(program), raw) == interp.run(program, raw)
