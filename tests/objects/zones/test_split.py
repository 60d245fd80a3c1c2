"""Conditions of interests: who decides what, and that boxes and values say the same."""

from __future__ import annotations

import pytest

from headwater import Interest
from headwater.errors import InterestRefused
from headwater.objects.zones.ranges import ANYTHING, Bounds, Only
from headwater.objects.zones.split import Split

TYPE = "a: {x: f64, y: f64, on: bool, name: text?}, b: {x: f64, y: f64, v: f64[2]}"
OWNERS = {"a": "ship", "b": "shore"}


def _split(text: str, **params: object) -> Split:
    return Split(Interest(text, TYPE, params=params), OWNERS)


def test_conjuncts_of_one_owner_are_decided_there() -> None:
    """Their truth is all that anybody else learns."""
    split = _split("distance(a.x, a.y, b.x, b.y) > :d and a.on and a.name == 'x'", d=10.0)
    assert split.owners == {"ship": ("a.on", "a.name = 'x'", "a.x", "a.y"), "shore": ("b.x", "b.y")}
    ship = split.parts["ship"].measure({"a": {"x": 0.0, "y": 0.0, "on": True, "name": None}})
    assert ship == (True, False, 0.0, 0.0)
    shore = split.parts["shore"].measure({"b": {"x": 30.0, "y": 0.0, "v": [0.0, 0.0]}})
    assert not split.holds(ship + shore)
    assert split.holds((True, True, 0.0, 0.0, *shore))


def test_a_box_is_decided_by_intervals_and_a_shut_gate_decides_all() -> None:
    """Whatever the numbers are."""
    split = _split("abs(a.x - b.x) > :d and a.on", d=10.0)
    near, far = Bounds(0.0, 4.0), Bounds(20.0, 30.0)
    assert split.decide((Only(True), near, near)) is False
    assert split.decide((Only(True), near, far)) is True
    assert split.decide((ANYTHING, near, far)) is None
    assert split.decide((Only(False), ANYTHING, ANYTHING)) is False
    assert split.decide((Only(True), ANYTHING, far)) is None


def test_what_no_box_bounds_travels_whole() -> None:
    """Elements of arrays are values of no path."""
    split = _split("a.x + b.v[1] > 3 and a.on")
    assert not split.bounded
    ship = split.parts["ship"].measure({"a": {"x": 2.0, "y": 0.0, "on": True}})
    for element, holds in ((1.5, True), (0.5, False)):
        shore = split.parts["shore"].measure({"b": {"x": 0.0, "y": 0.0, "v": [0.0, element]}})
        assert split.holds(ship + shore) is holds


def test_what_has_no_meaning_over_owners_is_refused_all_at_once() -> None:
    """State lives at one source, and an input without an owner nowhere."""
    with pytest.raises(InterestRefused, match="owner is known"):
        Split(Interest("a.x > b.x", TYPE), {"a": "ship"})
