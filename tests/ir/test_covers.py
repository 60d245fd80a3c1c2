"""Covering: named cases, and random pairs held against the interpreter."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.errors import InterestRefused
from headwater.ir import interp
from headwater.ir.build import Builder
from headwater.ir.covers import Certainty, certainty, covers, disjoint, union
from headwater.ir.nodes import NOWHERE as W
from headwater.ir.nodes import Expr, ParamDecl, Program
from headwater.types.model import BOOL, F64, I8, I64, TEXT, TIMESTAMP, Array, Enum, Field, Record
from tests import programs
from tests import strategies as s
from tests.effort import examples

MODE = Enum("Mode", (("OFF", 0), ("ON", 1), ("AUTO", 7)))
EVENT = Record(
    "Event",
    (
        Field("n", I64),
        Field("o", I64, optional=True),
        Field("small", I8),
        Field("f", F64),
        Field("t", TEXT),
        Field("b", BOOL),
        Field("mode", MODE),
        Field("when", TIMESTAMP),
        Field("list", Array(I64, (3,)), optional=True),
    ),
)


def passes(value: Any) -> Program:
    """A filter from nested tuples: ("and", ...), ("not", x), (field, op, constant), (fn, field, text), ..."""
    b = Builder(EVENT, params=[ParamDecl("limit", "scalar", I64)])

    def make(form: Any) -> Expr:
        match form:
            case ("and" | "or" as op, *parts):
                return b.logic(op, [make(part) for part in parts], W)
            case ("not", part):
                return b.unary("not", make(part), W)
            case ("null", name):
                return b.is_missing(b.field(name, W), W)
            case ("starts_with" | "ends_with" | "like" | "contains" as fn, name, text):
                return b.call(fn, [b.field(name, W), b.const(text)], W)
            case ("in", name, *values):
                return b.in_set(b.field(name, W), [b.const(value) for value in values], W)
            case (name, op, (":", param)):
                return b.compare(op, b.field(name, W), b.param(param, W), W)
            case (name, op, ("+", other, by)):
                return b.compare(op, b.field(name, W), b.binary("add", b.field(other, W), b.const(by), W), W)
            case (name, op, (".", other)):
                return b.compare(op, b.field(name, W), b.field(other, W), W)
            case (name, op, constant):
                return b.compare(op, b.field(name, W), b.const(constant), W)
            case str():
                return b.field(form, W)
            case _:
                return b.const(form)

    return b.finish(b.return_(make(value), W))


@pytest.mark.parametrize(
    ("large", "small"),
    [
        (("n", "gt", 3), ("n", "gt", 5)),
        (("n", "ge", 6), ("n", "gt", 5)),
        (("n", "gt", 3), ("and", ("n", "gt", 5), ("f", "lt", 1.0))),
        (("or", ("n", "gt", 3), ("f", "lt", 1.0)), ("f", "le", 0.5)),
        (("or", ("n", "lt", 3), ("n", "gt", 5)), ("or", ("n", "lt", 2), ("n", "gt", 9))),
        (("in", "n", 1, 2, 3), ("or", ("n", "eq", 1), ("n", "eq", 3))),
        (("in", "n", 1, 2, 3), ("and", ("n", "ge", 1), ("n", "le", 3))),
        (("n", "ne", 4), ("n", "gt", 4)),
        (("not", ("f", "gt", 3.0)), ("f", "le", 2.0)),
        (("not", ("f", "gt", 3.0)), ("not", ("f", "gt", 2.0))),
        (("f", "ne", math.nan), ("f", "gt", 1.0)),
        (("starts_with", "t", "ab"), ("like", "t", "abc%")),
        (("starts_with", "t", "ab"), ("t", "eq", "abx")),
        (("t", "gt", "a"), ("starts_with", "t", "b")),
        (("not", ("starts_with", "t", "ab")), ("starts_with", "t", "x")),
        (("ends_with", "t", "z"), ("and", ("ends_with", "t", "z"), "b")),
        (("mode", "ne", "OFF"), ("mode", "eq", "ON")),
        (("in", "mode", "ON", "AUTO"), ("mode", "ne", "OFF")),
        (("not", ("null", "o")), ("o", "gt", 1)),
        (("small", "lt", 200), ("n", "eq", 1)),
        (("when", "gt", "2026-01-01T00:00:00Z"), ("when", "ge", "2026-06-01T00:00:00Z")),
        (("n", "lt", (".", "o")), ("and", ("n", "lt", (".", "o")), ("n", "gt", 1))),
        (("o", "gt", (".", "n")), ("n", "lt", (".", "o"))),
        (False, ("and", ("n", "gt", 5), ("n", "lt", 3))),
        (("f", "gt", 1.0), ("small", "gt", 1000)),
        (("not", ("null", "list")), ("and", ("not", ("null", "list")), "b")),
    ],
)
def test_covered(large: Any, small: Any) -> None:
    assert covers(passes(large), passes(small))


@pytest.mark.parametrize(
    ("large", "small"),
    [
        (("n", "gt", 5), ("n", "gt", 3)),
        (("n", "gt", 5), ("n", "ge", 5)),
        (("f", "le", 3.0), ("not", ("f", "gt", 3.0))),  # NaN
        (("f", "eq", math.nan), ("f", "gt", 1.0)),
        (("not", ("null", "o")), ("n", "gt", 1)),
        (("o", "ge", -(2**63)), True),  # missing
        (("starts_with", "t", "abc"), ("starts_with", "t", "ab")),
        (("n", "gt", (":", "limit")), ("n", "gt", (":", "limit"))),  # two parameters of one name
        (("mode", "eq", "ON"), ("mode", "ne", "OFF")),
    ],
)
def test_not_covered(large: Any, small: Any) -> None:
    assert not covers(passes(large), passes(small))


def test_values_of_parameters_count() -> None:
    limited = passes(("n", "gt", (":", "limit")))
    assert covers(limited, limited, a_params={"limit": 3}, b_params={"limit": 5})
    assert not covers(limited, limited, a_params={"limit": 5}, b_params={"limit": 3})


def possible_at_all(program: Program) -> bool:
    """Whether some event may pass, as far as is known."""
    return certainty(program, normal=False) is not Certainty.NEVER


def test_disjoint_and_satisfiable() -> None:
    assert disjoint(passes(("n", "gt", 5)), passes(("n", "lt", 5)))
    assert disjoint(passes(("n", "gt", 5)), passes(("n", "le", 5)))
    assert not disjoint(passes(("n", "ge", 5)), passes(("n", "le", 5)))
    assert disjoint(passes(("starts_with", "t", "a")), passes(("t", "eq", "b")))
    assert disjoint(passes("b"), passes(("not", "b")))
    assert not possible_at_all(passes(("and", ("null", "o"), ("o", "gt", 1))))


@pytest.mark.parametrize(
    "form",
    [
        ("n", "gt", (".", "n")),
        ("f", "lt", (".", "f")),
        ("n", "ne", (".", "n")),
        ("and", ("n", "gt", (".", "o")), ("n", "lt", (".", "o"))),
        ("and", ("n", "ge", (".", "o")), ("o", "gt", (".", "n"))),
        ("and", ("n", "ge", (".", "o")), ("o", "ge", (".", "n")), ("n", "ne", (".", "o"))),
        ("and", ("n", "gt", (".", "small")), ("small", "gt", (".", "o")), ("o", "gt", (".", "n"))),
        ("and", ("n", "lt", (".", "o")), ("o", "le", 3), ("n", "ge", 3)),
        ("and", ("n", "gt", (".", "small")), ("n", "lt", -128)),
        ("and", ("not", ("n", "gt", (".", "o"))), ("n", "gt", (".", "o"))),
        ("and", ("f", "ne", (".", "f")), ("f", "gt", 1.0)),
        ("and", ("n", "gt", ("+", "o", 1)), ("n", "lt", (".", "o"))),
        ("n", "eq", ("+", "n", 1)),
    ],
)
def test_comparisons_that_cannot_hold_together(form: Any) -> None:
    assert not possible_at_all(passes(form))


@pytest.mark.parametrize(
    "form",
    [
        ("f", "ne", (".", "f")),  # NaN
        ("n", "ge", (".", "n")),
        ("and", ("not", ("f", "gt", (".", "f"))), ("f", "ne", (".", "f"))),
        ("and", ("n", "ge", (".", "o")), ("o", "ge", (".", "n"))),
        ("and", ("n", "lt", (".", "o")), ("o", "le", 3), ("n", "ge", 2)),
        ("f", "eq", ("+", "f", 1.0)),  # of what is large
        ("or", ("and", ("n", "gt", (".", "o")), ("n", "lt", (".", "o"))), ("n", "eq", (".", "o"))),
    ],
)
def test_comparisons_that_can(form: Any) -> None:
    assert possible_at_all(passes(form))
    assert not possible_at_all(passes(("small", "gt", 127)))
    assert possible_at_all(passes(("small", "gt", 126)))


def test_union() -> None:
    a, b = passes(("n", "gt", 5)), passes(("f", "gt", 5.0))
    both = union([a, b])
    assert covers(both, a) and covers(both, b) and not covers(a, both)
    with pytest.raises(InterestRefused, match="is about Other"):
        union([a, Program(Record("Other", (Field("n", I64),)), None, (), (), a.body)])


CONSTANTS = st.integers(-2, 3)
NUMBERS = st.sampled_from(("n", "o", "small"))


def atoms() -> st.SearchStrategy[Any]:
    ops = st.sampled_from(("eq", "ne", "lt", "le", "gt", "ge"))
    floats = st.sampled_from((0.0, -0.0, 1.0, 1.5, math.nan, math.inf, -math.inf))
    texts = st.sampled_from(("", "a", "ab", "abc", "b", "é", "\U0001f600"))
    return st.one_of(
        st.tuples(st.sampled_from(("n", "o", "small")), ops, CONSTANTS),
        st.tuples(st.just("f"), ops, floats),
        st.tuples(st.just("t"), ops, texts),
        st.tuples(st.sampled_from(("starts_with", "ends_with")), st.just("t"), texts),
        st.tuples(st.just("in"), st.just("o"), CONSTANTS, CONSTANTS),
        st.tuples(st.just("in"), st.just("f"), floats, floats),
        st.tuples(st.just("mode"), st.sampled_from(("eq", "ne")), st.sampled_from(("OFF", "ON"))),
        st.tuples(NUMBERS, ops, st.tuples(st.just("."), NUMBERS)),
        st.tuples(NUMBERS, ops, st.tuples(st.just("+"), NUMBERS, CONSTANTS)),
        st.tuples(st.just("f"), ops, st.sampled_from(((".", "f"), ("+", "f", 1.0), (".", "n")))),
        st.just(("null", "o")),
        st.just("b"),
    )


def forms() -> st.SearchStrategy[Any]:
    return st.recursive(
        atoms(),
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(("and", "or")), inner, inner),
            st.tuples(st.just("not"), inner),
        ),
        max_leaves=4,
    )


def near_events() -> st.SearchStrategy[dict[str, Any]]:
    """Events around the constants above, where mistakes would show."""
    return st.fixed_dictionaries(
        {
            "n": CONSTANTS,
            "o": st.none() | CONSTANTS,
            "small": CONSTANTS,
            "f": st.sampled_from((0.0, -0.0, 1.0, 1.2, 1.5, 2.0, math.nan, math.inf, -math.inf)),
            "t": st.sampled_from(("", "a", "ab", "aba", "abc", "abcd", "ac", "b", "é", "\U0001f600", "\x00")),
            "b": st.booleans(),
            "mode": st.sampled_from((0, 1, 7)),
            "when": st.just(0),
            "list": st.none() | st.just((1, 2, 3)),
        }
    )


@settings(max_examples=examples(300), deadline=None)
@given(forms(), forms(), st.lists(near_events(), min_size=5, max_size=12))
@example(("n", "gt", 1), ("and", ("n", "gt", 1), ("n", "lt", 3)), [])
def test_never_wrong(a: Any, b: Any, events: list[dict[str, Any]]) -> None:
    large, small = passes(a), passes(b)
    one_in_other, apart, possible = covers(large, small), disjoint(large, small), possible_at_all(small)
    together = union([large, small])
    for event in events:
        in_large, in_small, in_union = (
            interp.run(p, event, params={"limit": 0}).passed for p in (large, small, together)
        )
        assert not (one_in_other and in_small and not in_large)
        assert not (apart and in_small and in_large)
        assert not (in_small and not possible)
        assert in_union == (in_large or in_small)


@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_never_wrong_about_any_programs(data: st.DataObject) -> None:
    record = data.draw(s.records(1, max_fields=3))
    a, b = (data.draw(programs.filters(record, loops=False, state=False)) for _ in range(2))
    found = covers(a.program, b.program), covers(b.program, a.program), disjoint(a.program, b.program)
    known = (
        covers(a.program, b.program, a_params=a.params, b_params=b.params),
        covers(b.program, a.program, a_params=b.params, b_params=a.params),
        disjoint(a.program, b.program, a_params=a.params, b_params=b.params),
    )
    possible = possible_at_all(a.program), possible_at_all(b.program)
    for event in data.draw(st.lists(s.raw_events(record), min_size=1, max_size=6)):
        meta = data.draw(programs.meta())
        x, y = (interp.run(case.program, event, meta=meta, params=case.params).passed for case in (a, b))
        for a_has_b, b_has_a, apart in (found, known):
            assert not (a_has_b and y and not x) and not (b_has_a and x and not y)
            assert not (apart and x and y)
        assert (possible[0] or not x) and (possible[1] or not y)


def test_certainty_gives_up_where_there_is_too_much_to_put_in_order() -> None:
    record = Record("Event", tuple(Field(f"f{at}", I64) for at in range(40)))

    def contradictions(count: int) -> Program:
        """All of so many pairs are equal, and in each way one of them is not."""
        b = Builder(record)

        def pair(at: int, op: Any) -> Expr:
            return b.compare(op, b.field(f"f{2 * at}", W), b.field(f"f{2 * at + 1}", W), W)

        equal = [pair(at, op) for at in range(count) for op in ("ge", "le")]
        either = [b.logic("and", [*equal, pair(at, "gt")], W) for at in range(count)]
        return b.finish(b.return_(b.logic("or", either, W), W))

    assert certainty(contradictions(3), normal=False) is Certainty.NEVER
    assert certainty(contradictions(18), normal=False) is Certainty.NOTHING


def test_a_filter_with_a_constant_only() -> None:
    assert covers(passes(True), passes(("n", "gt", 1)))
    assert not possible_at_all(passes(False))


def test_disjoint_gives_up_where_there_is_too_much_to_look_at() -> None:
    record = Record("Event", tuple(Field(f"f{at}", I64) for at in range(40)))

    def eitherway(first: int, last: int) -> Program:
        b = Builder(record)
        pairs = [
            b.logic(
                "or",
                [
                    b.compare("eq", b.field(f"f{at}", W), b.const(1), W),
                    b.compare("gt", b.field(f"f{at + 1}", W), b.const(5), W),
                ],
                W,
            )
            for at in range(first, first + 16, 2)
        ]
        end = b.compare("eq", b.field("f39", W), b.const(last), W)
        return b.finish(b.return_(b.logic("and", [*pairs, end], W), W))

    assert not disjoint(eitherway(0, 1), eitherway(16, 2))


def test_a_program_covers_itself_also_with_values_for_its_parameters() -> None:
    b = Builder(EVENT, params=[ParamDecl("limit", "scalar", I64)])
    i = b.declare("i", I64, W)
    assert i is not None
    test = b.compare("lt", b.var(i, W), b.param("limit", W), W)
    count = b.assign(i, b.binary("add", b.var(i, W), b.const(1), W), W)
    end = b.return_(b.compare("gt", b.var(i, W), b.field("n", W), W), W)
    program = b.finish([*b.assign(i, b.const(0), W), *b.loop(test, count, [], W), *end])
    assert covers(program, program, a_params={"limit": 5}, b_params={"limit": 5})
    assert not covers(program, program, a_params={"limit": 5}, b_params={"limit": 6})
    assert not covers(program, program)
