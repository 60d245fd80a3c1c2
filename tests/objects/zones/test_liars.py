"""Owners and homes that say anything: whatever it is, nobody else fails by it, and what is believed is of its type."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.objects.triggers.installed import install
from headwater.objects.zones.coordinator import Terms
from headwater.objects.zones.distribution import spread
from headwater.objects.zones.explanation import explain
from headwater.objects.zones.home import Home
from headwater.objects.zones.messages import Alive, Answer, Ask, Item, Moves, Report, Standing, Zone
from headwater.objects.zones.owner import Owner
from headwater.objects.zones.ranges import ANYTHING, Bounds, Only
from headwater.types import event_type
from headwater.types.declaration import parse_record
from tests.effort import examples

CAR = event_type(parse_record("x: f64, n: i32, gate: bool, label: text?", "Car"))
NOW = 1_000_000
NUMBERS = st.one_of(
    st.integers(-2, 40), st.integers(NOW - 50, NOW + 50), st.sampled_from([1 << 62, -(1 << 62), (1 << 63) - 1])
)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from([1 << 40]), st.floats(width=32), st.text(max_size=3)
)
RANGES = st.one_of(
    st.builds(Only, VALUES),
    st.just(ANYTHING),
    st.builds(Bounds, st.floats(-9, 9) | st.just(float("nan")), st.floats(-9, 9) | st.just(float("inf"))),
)
AREAS = st.lists(RANGES, min_size=2, max_size=4).map(tuple)
STANDINGS = st.builds(Standing, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans(), NUMBERS, NUMBERS)
MOVES = st.builds(Moves, NUMBERS, st.lists(st.floats(0, 9) | st.just(float("inf")), min_size=2, max_size=4).map(tuple))
ITEMS = st.lists(st.builds(Item, NUMBERS, AREAS, st.booleans(), st.booleans()), max_size=4).map(tuple)
FROM_OWNER = st.one_of(
    st.builds(Report, STANDINGS, st.lists(VALUES, min_size=2, max_size=4).map(tuple), st.booleans(), MOVES),
    st.builds(Answer, STANDINGS, NUMBERS, ITEMS, MOVES),
    st.builds(Alive, STANDINGS),
)
TO_OWNER = st.one_of(st.builds(Ask, NUMBERS, NUMBERS, NUMBERS, NUMBERS), st.builds(Zone, NUMBERS, NUMBERS, AREAS))


def _home() -> Home:
    made = spread(
        "far", node="desk", type_of=lambda node, object, named: ("Car", CAR), on=(), when="becomes",
        where="a.x - b.x > 2 and a.gate and a.n + b.n > 0 and a.label = b.label",
        inputs={"a": "//north/car", "b": "//south/car"}, params=None, scheme="zones", notify={"x": "a.x"},
    )  # fmt: skip
    types: Any = None  # none is asked for: inputs have theirs
    return Home(install(made.trigger, types, "desk", 1), made.trigger.fingerprint, None, 0, NOW, Terms(lease=100))


@given(st.lists(st.tuples(st.sampled_from(["north", "south"]), FROM_OWNER, st.booleans()), max_size=12))
@settings(max_examples=examples(100), deadline=None)
def test_a_home_goes_on_whatever_owners_say(said: list[tuple[str, Any, bool]]) -> None:
    """Also where it is of this life, as far as anybody can tell."""
    home, now = _home(), NOW
    home.coordinator.begin(now)
    for node, message, mine in said:
        now += 10
        if mine:
            message = _of_this_term(message, home)
        if home.believable(node, message, now):
            for happening in home.coordinator.received(node, message, now).happenings:
                if type(happening).__name__ == "Fired":
                    home.condition.known(happening.area)  # type: ignore[union-attr]
        home.coordinator.tick(now)
    explain(home.coordinator)
    home.report()


def _of_this_term(message: Any, home: Home) -> Any:
    import msgspec

    term = home.coordinator.snapshot().term
    return msgspec.structs.replace(message, standing=msgspec.structs.replace(message.standing, term=term))


@given(st.lists(st.one_of(TO_OWNER, VALUES), max_size=12))
@settings(max_examples=examples(100), deadline=None)
def test_an_owner_goes_on_whatever_a_home_says(said: list[Any]) -> None:
    """And keeps what it has promised: its stamps only grow."""
    owner, now, last = Owner((0.0, True), NOW, error=5), NOW, 0
    for each in said:
        now += 1
        if isinstance(each, Ask | Zone):
            found = owner.received(each, now)
        else:
            found = owner.changed((each, True), now)
        for message in found:
            assert message.standing.stamp >= last
            last = message.standing.stamp
        owner = Owner.restore(owner.snapshot(), owner.values, now, error=5) if now % 5 == 0 else owner
        assert owner.stamp >= last and owner.stamp <= now + 20 + len(said)
