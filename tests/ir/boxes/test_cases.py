"""Boxes by name: hostile shapes, what is tight, what is refused, and how it is said."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headwater import Interest
from headwater.ir.boxes import (
    ANYTHING,
    MISSING,
    Bounder,
    Box,
    Decider,
    Interval,
    Outcome,
    bound,
    decide,
    describe,
    limits,
    split,
)
from headwater.ir.build import Builder
from headwater.ir.nodes import NOWHERE as W
from headwater.ir.nodes import Binary, Expr, Program, Return
from headwater.ir.value import ValueBuilder
from headwater.types import event_type
from headwater.types.model import BOOL, F32, F64, I8, I64, TEXT, TIMESTAMP, U64, Array, Enum, Field, List, Record

MODE = Enum("Mode", (("OFF", 0), ("ON", 1), ("AUTO", 7)))
POINT = Record("Point", (Field("x", F64), Field("y", F64), Field("armed", BOOL)))
EVENT = Record(
    "World",
    (
        Field("x", F64),
        Field("y", F64),
        Field("o", F64, optional=True),
        Field("s", F32),
        Field("n", I64),
        Field("m", I64),
        Field("u", U64),
        Field("b", I8),
        Field("t", TIMESTAMP),
        Field("mode", MODE),
        Field("name", TEXT),
        Field("row", Array(F64, (3,))),
        Field("list", List(F64)),
        Field("p", POINT),
        Field("q", POINT),
    ),
)
TYPE = event_type(EVENT)
TRUE, FALSE, UNKNOWN = Outcome.TRUE, Outcome.FALSE, Outcome.UNKNOWN


def over(text: str, params: dict[str, Any] | None = None, /, **box: tuple[Any, ...] | Interval) -> Outcome:
    """What is certain of a predicate, each input between two ends."""
    return decide(Interest(text, TYPE, params=params), made(box))


def made(box: dict[str, Any]) -> Box:
    """Paths as names of arguments: `p__x` is `p.x`, `row_0` is `row[0]`."""
    found = Box()
    for name, ends in box.items():
        path = name.replace("__", ".").replace("row_", "row[") + ("]" if "row_" in name else "")
        found[path] = ends if isinstance(ends, Interval) else Interval(*ends)
    return found


def number(make: Any, **box: Any) -> Interval:
    """The bounds of a number; `make` is given a builder and a function that reads a field."""
    b = ValueBuilder(EVENT)
    return bound(b.finish(b.return_(make(b, lambda name: b.field(name, W)), W)), made(box))


# ── outcomes ──


def test_a_condition_is_certain_where_every_value_of_the_box_agrees() -> None:
    assert over("x > 3", x=(4.0, 9.0)) is TRUE
    assert over("x > 3", x=(1.0, 3.0)) is FALSE
    assert over("x > 3", x=(1.0, math.nextafter(3.0, 4))) is UNKNOWN
    assert over("x > 3") is UNKNOWN
    assert over("b < 200") is TRUE  # of an i8


def test_missing_and_nan_are_not_true() -> None:
    assert over("o > 3", o=(4.0, 9.0)) is TRUE
    assert over("o > 3", o=Interval(4.0, 9.0, miss=True)) is UNKNOWN
    assert over("o > 3", o=Interval(1.0, 2.0, miss=True)) is FALSE
    assert over("o > 3", o=MISSING) is FALSE
    assert over("not (o > 3)", o=MISSING) is FALSE
    assert over("o is null", o=MISSING) is TRUE
    assert over("x > 3", x=Interval(4.0, 9.0, nan=True)) is UNKNOWN
    assert over("x <= 3", x=Interval(4.0, 9.0, nan=True)) is FALSE
    assert over("not (x <= 3)", x=Interval(4.0, 9.0, nan=True)) is TRUE
    assert over("x != x", x=Interval.of(math.nan)) is TRUE
    assert over("coalesce(o, 5.0) > 3", o=Interval(4.0, 9.0, miss=True)) is TRUE


def test_logic_is_decided_by_what_decides_it() -> None:
    assert over("x > 3 or y > 3", x=(4.0, 5.0)) is TRUE
    assert over("x > 3 and y > 3", x=(1.0, 2.0)) is FALSE
    assert over("x > 3 and y > 3", x=(4.0, 5.0)) is UNKNOWN
    assert over("(o > 3) or x > 3", o=MISSING, x=(4.0, 5.0)) is TRUE


def test_parameters_sets_enumerations_times_and_texts() -> None:
    assert over("x > :d", {"d": 2.5}, x=(3.0, 4.0)) is TRUE
    assert over("n in (1, 2, 3)", n=(1, 3)) is TRUE
    assert over("n in (1, 2, 3)", n=(4, 9)) is FALSE
    assert over("n in :chosen", {"chosen": {5, 50}}, n=(6, 49)) is FALSE
    assert over("mode = 'AUTO'", mode=(7, 7)) is TRUE
    assert over("mode = 'AUTO'", mode=(0, 1)) is FALSE
    assert over("hour(t) = 3", t=(3 * 3_600_000_000, 4 * 3_600_000_000 - 1)) is TRUE
    assert over("hour(t) = 3", t=(4 * 3_600_000_000, 5 * 3_600_000_000)) is FALSE
    assert over("name = 'a'", name=Interval.of("a")) is TRUE
    assert over("name = 'a'", name=Interval("b", "c")) is FALSE
    assert over("starts_with(name, 'ab')", name=Interval.of("abc")) is TRUE
    assert over("length(name) >= 0") is TRUE


def test_branches_that_may_be_taken_are_joined() -> None:
    text = "{ double d = 0; if (input.x > 3) { d = input.y; } else { d = 100; } return d > 1; }"
    assert over(text, x=(4.0, 5.0), y=(2.0, 3.0)) is TRUE
    assert over(text, x=(1.0, 5.0), y=(2.0, 3.0)) is TRUE
    assert over(text, x=(1.0, 5.0), y=(0.0, 3.0)) is UNKNOWN
    assert over(text, x=(1.0, 2.0), y=(0.0, 3.0)) is TRUE


# ── hostile numbers ──


def test_floats_overflow_to_infinity() -> None:
    assert over("x * y > 1e308", x=(1e200, 1e201), y=(1e200, 1e201)) is TRUE
    assert over("x * y - x * y = 0", x=(1e200, 1e201), y=(1e200, 1e201)) is FALSE  # infinity less infinity is NaN
    assert over("x - x = 0", x=(-1e308, 1e308)) is TRUE
    assert over("x - x = 0", x=(-1e308, math.inf)) is UNKNOWN


def test_division_through_zero_is_missing_at_zero_and_anything_beside() -> None:
    assert number(lambda b, f: b.binary("div", b.const(1.0), f("x"), W), x=(-1.0, 1.0)) == ANYTHING._replace(
        lo=-math.inf, hi=math.inf, nan=False
    )
    assert number(lambda b, f: b.binary("div", b.const(1.0), f("x"), W), x=(0.0, 2.0)).lo == 0.5
    assert number(lambda b, f: b.binary("div", b.const(1.0), f("x"), W), x=(0.0, 0.0)) == MISSING
    assert over("1 / x > 0", x=(5e-324, 1e308)) is TRUE
    assert over("1 / x > 0", x=(0.0, 1e308)) is UNKNOWN
    assert over("1 / x < 0", x=(0.0, 1e308)) is FALSE


def test_roots_and_logarithms_of_negatives_are_nan() -> None:
    assert over("sqrt(x) >= 0", x=(-1.0, 4.0)) is UNKNOWN
    assert over("sqrt(x) < 0", x=(-1.0, 4.0)) is FALSE
    assert over("is_nan(sqrt(x))", x=(-2.0, -1.0)) is TRUE
    assert over("sqrt(x) >= 0", x=(-0.0, 4.0)) is TRUE
    assert over("log(x) < 0", x=(-2.0, -1.0)) is FALSE


def test_powers_of_what_may_be_negative_or_zero() -> None:
    assert over("pow(x, 2) >= 0", x=(-3.0, 2.0)) is TRUE
    assert over("pow(x, 3) > -27.1", x=(-3.0, 2.0)) is TRUE
    assert over("pow(x, -1) > 0", x=(0.0, 2.0)) is UNKNOWN  # of -0.0 it is minus infinity
    assert over("pow(x, 0.5) >= 0", x=(-3.0, 2.0)) is UNKNOWN
    assert over("pow(x, 0) = 1", x=Interval(-3.0, 2.0, nan=True)) is UNKNOWN  # rounded outward, like all of libm


def test_integers_are_exact_and_missing_where_they_do_not_fit() -> None:
    most = 2**63 - 1
    assert over("n + 1 > 0", n=(1, most - 1)) is TRUE
    assert over("n + 1 > 0", n=(1, most)) is UNKNOWN
    assert over("n + 1 > 0", n=(most, most)) is FALSE
    assert over("abs(n) >= 0", n=(-most, most)) is TRUE
    assert over("abs(n) >= 0", n=(-(2**63), most)) is UNKNOWN
    assert over("u > 9223372036854775807", u=(2**63, 2**64 - 1)) is TRUE
    assert over("n - m = 0", n=(2**60 + 1, 2**60 + 1), m=(2**60, 2**60)) is FALSE


def test_integers_beyond_2_to_53_round_to_floats() -> None:
    near = 2**53 + 1
    found = number(lambda b, f: b.cast(f("n"), F64, W), n=(near, near))
    assert (found.lo, found.hi) == (float(near), float(near)) and found.lo == 2.0**53
    # In real numbers this is 1, as floats it is 0: the bound has to hold what is computed.
    lost = number(lambda b, f: b.binary("sub", b.cast(f("n"), F64, W), b.const(2.0**53), W), n=(near, near))
    assert lost.holds(0.0)
    together = number(
        lambda b, f: b.binary("sub", b.cast(f("n"), F64, W), b.cast(b.binary("sub", f("n"), b.const(1), W), F64, W), W),
        n=(near, near + 4),
    )
    assert all(together.holds(float(k) - float(k - 1)) for k in range(near, near + 5))


def test_cancellation_is_bounded_with_its_rounding() -> None:
    def lost(b: Builder, f: Any) -> Expr:
        return b.binary("sub", b.binary("add", f("x"), b.const(1e16), W), f("x"), W)

    found = number(lost, x=(0.0, 1000.0))
    assert all(found.holds((k / 4 + 1e16) - k / 4) for k in range(4001))
    assert found.hi - found.lo < 30  # not more than the rounding


def test_singles_round_as_singles() -> None:
    assert over("s > 0.1", s=(0.10000000149011612, 1.0)) is TRUE
    found = number(lambda b, f: b.cast(f("x"), F32, W), x=(0.1, 3.5e38))
    assert (found.lo, found.hi) == (0.10000000149011612, math.inf)


def test_zeros_of_either_sign_are_one() -> None:
    assert over("x = 0", x=(-0.0, 0.0)) is TRUE
    assert over("x < 0", x=(-0.0, 0.0)) is FALSE


# ── tight ──


def test_what_is_read_twice_is_not_taken_for_two() -> None:
    assert over("x - x = 0", x=(-5.0, 5.0)) is TRUE
    assert over("x * x >= 0", x=(-5.0, 5.0)) is TRUE
    assert over("(x + y) - x > 0", x=(0.0, 1e6), y=(1.0, 2.0)) is TRUE
    assert over("x * y - x * o > 0", x=(1.0, 9.0), y=(4.0, 4.5), o=(3.0, 3.5)) is TRUE
    assert over("x * x + y * y - 2 * x * y > 100", x=(-19.9, 19.9), y=(30.1, 69.9)) is TRUE
    assert over("sqrt(x * x + 1) > abs(x) - 0.001", x=(5.0, 5.5)) is TRUE
    assert over("n * m - m * n = 0", n=(-9, 9), m=(-9, 9)) is TRUE
    assert over("x + y > y", x=(1.0, 2.0), y=(-1e6, 1e6)) is TRUE


def test_a_box_that_is_too_wide_is_cut_with_patience() -> None:
    decider = Decider(Interest("x / (x + y) < 0.9", TYPE))
    box = made({"x": (1.0, 8.0), "y": (1.0, 2.0)})
    assert decider.decide(box) is UNKNOWN
    assert decider.decide(box, splits=50) is TRUE
    assert decider.decide(made({"x": (1.0, 10.0), "y": (1.0, 2.0)}), splits=50) is UNKNOWN
    assert Decider(Interest("n * n - n = 6", TYPE)).decide(made({"n": (-1, 2)}), splits=50) is FALSE


def test_distances_sums_and_inner_products_are_as_tight_as_can_be() -> None:
    box = {"p__x": (0.0, 1.0), "p__y": (0.0, 0.0), "q__x": (101.5, 103.0), "q__y": (0.0, 9.0)}
    assert over("distance(p.x, p.y, q.x, q.y) > 100", **box) is TRUE
    assert over("distance(p.x, p.y, q.x, q.y) > 100.6", **box) is UNKNOWN
    assert over("sum(row) > 5.9", row_0=(1.0, 2.0), row_1=(2.0, 3.0), row_2=(3.0, 4.0)) is TRUE
    assert over("mean(row) > 2.1", row_0=(1.0, 2.0), row_1=(2.0, 3.0), row_2=(3.0, 4.0)) is UNKNOWN
    assert over("max(row) < 4.5", row_0=(1.0, 2.0), row_1=(2.0, 3.0), row_2=(3.0, 4.0)) is TRUE
    assert over("row[0] * x + row[1] * y > 1", row_0=(1.0, 2.0), row_1=(1.0, 2.0), x=(0.6, 1.0), y=(0.6, 1.0)) is TRUE


def test_a_missing_reading_does_not_spoil_the_others() -> None:
    box = {"x": (4.0, 6.0), "y": (4.0, 4.5)}
    assert over("x * y - x * o <= 0", **box, o=Interval(3.0, 3.5, nan=True, miss=True)) is FALSE
    assert over("x * y - x * o > 0", **box, o=Interval(3.0, 3.5, miss=True)) is UNKNOWN


def test_corners_know_what_stands_in_for_a_missing_reading() -> None:
    text = "coalesce(o, 1000.0) * x - x * y < 0"
    assert over(text, x=(1.0, 9.0), y=(4.0, 4.5), o=(3.0, 3.99)) is TRUE
    assert over(text, x=(1.0, 9.0), y=(4.0, 4.5), o=Interval(3.0, 3.99, miss=True)) is UNKNOWN


# ── cost ──


def test_deep_expressions_are_bounded_without_recursion() -> None:
    b = Builder(EVENT)
    deep: Expr = b.field("x", W)
    for at in range(5_000):
        deep = Binary("add", deep, b.field("xy"[at % 2], W), F64)
    program = Program(EVENT, None, (), (), (Return(b.compare("gt", deep, b.const(1.0), W)),))
    decider = Decider(program)
    assert decider.decide(made({"x": (1.0, 2.0), "y": (1.0, 2.0)})) is TRUE
    assert decider.decide(made({"x": (-1.0, 2.0), "y": (1.0, 2.0)})) is UNKNOWN


def test_what_is_shared_is_one_step() -> None:
    b = Builder(EVENT)
    wide: Expr = b.field("x", W)
    for _ in range(40):  # written out it would be 2 to the power 40 readings
        wide = b.binary("add", wide, wide, W)
    program = Program(EVENT, None, (), (), (Return(b.compare("gt", wide, b.const(1.0), W)),))
    assert Decider(program).decide(made({"x": (1.0, 2.0)})) is TRUE


# ── what is unknown, and who decides what ──


def test_what_cannot_be_bounded_is_named() -> None:
    def named(text: str) -> list[str]:
        return [f"{limit.what}: {limit.reason}" for limit in limits(Interest(text, TYPE))]

    assert named("x > 3 and distance(p.x, p.y, q.x, q.y) > 3") == []
    assert named("sum(list) > 3") == ["sum of list: a list may have any length"]
    assert named("row[n] > 3") == ["row[…], at an index that is computed: which element is read depends on the event"]
    assert named("length(name) > 3") == [
        "name: a text value is followed by itself, or between two that the box names",
        "length(name): it is known of single texts only",
    ]
    assert named("{ static int k = 0; k = k + 1; return k > 3; }") == [
        "the program: it keeps state from one event to the next"
    ]
    assert over("sum(list) > 3 and x > 3", x=(1.0, 2.0)) is FALSE
    assert over("row[n] > 3", n=(0, 0)) is UNKNOWN


def test_of_a_program_that_keeps_state_nothing_is_certain() -> None:
    assert over("{ static int k = 0; k = k + 1; return k > 3; }") is UNKNOWN


def test_an_interval_of_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="expected ends that are numbers"):
        over("x > 3", x=(math.nan, 4.0))


def owner(path: str) -> str:
    return {"p": "ship", "q": "shore"}.get(path.partition(".")[0], "home")


def test_conjuncts_of_one_owner_are_told_from_those_of_several() -> None:
    interest = Interest("p.armed and distance(p.x, p.y, q.x, q.y) > 9 and not (q.armed or q.x > 3) and p.x < p.y", TYPE)
    (end,) = interest.program.body
    assert isinstance(end, Return)
    shares = split(end.value, owner)
    assert {name: len(terms) for name, terms in shares.alone.items()} == {"ship": 2, "shore": 2}
    assert len(shares.together) == 1


def test_a_condition_is_described() -> None:
    text = "p.armed and distance(p.x, p.y, q.x, q.y) > :d and p.x * q.x - p.x * q.y < 4 and sum(list) > p.x"
    assert describe(Interest(text, TYPE, params={"d": 9.0}), owner).splitlines() == [
        "p.armed",
        "  by ship alone: only changes of its truth cross",
        "distance(p.x, p.y, q.x, q.y) > :d",
        "  over boxes of p.x, p.y (ship), q.x, q.y (shore), bounded by intervals",
        "((p.x * q.x) - (p.x * q.y)) < 4.0",
        "  over boxes of p.x (ship), q.x, q.y (shore)",
        "  bounded by slopes and at corners, for it reads p.x 2 times",
        "sum(list) > p.x",
        "  over boxes of list (home), p.x (ship), bounded by intervals",
        "  not bounded: sum of list: a list may have any length",
    ]
    assert describe(Interest("{ static int k = 0; k = k + 1; return k > 3; }", TYPE)).splitlines() == [
        "the program",
        "  not bounded: the program: it keeps state from one event to the next",
    ]


def test_a_box_holds_points() -> None:
    box = Box({"x": Interval(0.0, 1.0), "o": Interval(0.0, 1.0, miss=True)})
    assert box.holds({"x": 0.5}) and not box.holds({"x": 1.5, "o": 0.5}) and not box.holds({"x": math.nan})
    assert Box.at({"x": 0.5, "o": None}) == {"x": Interval(0.5, 0.5), "o": MISSING}
    assert (
        str(Interval(0.0, 1.0, miss=True)) == "0.0 to 1.0 or missing" and str(ANYTHING) == "any value or NaN or missing"
    )


def test_a_field_of_a_transformation_is_bounded() -> None:
    out = Record("Out", (Field("twice", F64),))
    interest = Interest("{ output.twice = input.x * 2; return input.x > 0; }", TYPE, output=event_type(out))
    assert Bounder(interest, field=("twice",)).bound(made({"x": (1.0, 2.0)})) == Interval(2.0, 4.0)
    assert decide(interest, made({"x": (1.0, 2.0)})) is TRUE
