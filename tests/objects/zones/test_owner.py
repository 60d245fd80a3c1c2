"""An owner alone: which messages change what it does, and what it remembers."""

from __future__ import annotations

from headwater.objects.zones.messages import Answer, Ask, Report, Zone
from headwater.objects.zones.owner import MAX_ITEMS, Owner
from headwater.objects.zones.ranges import Bounds, Only


def _watched() -> Owner:
    owner = Owner((0.0,), 100)
    owner.received(Ask(term=7, epoch=1, since=100, through=100), 101)
    owner.received(Zone(term=7, epoch=2, area=(Bounds(-5.0, 5.0),)), 102)
    return owner


def test_inside_its_zone_it_is_silent_and_outside_it_says_everything() -> None:
    """On coming back, too: who asked does not know where it is meanwhile."""
    owner = _watched()
    assert owner.changed((4.0,), 110) == []
    (left,) = owner.changed((6.0,), 120)
    (back,) = owner.changed((1.0,), 130)
    assert isinstance(left, Report) and left.values == (6.0,) and left.standing.stamp == 120
    assert isinstance(back, Report) and not back.standing.silent


def test_what_comes_too_late_or_from_an_earlier_life_changes_nothing() -> None:
    """Doubled and overtaken zones, and those of a home that was killed since."""
    owner = _watched()
    owner.received(Ask(7, 3, 100, 100), 110)
    for late in (Zone(7, 2, (Bounds(-9.0, 9.0),)), Zone(7, 3, (Bounds(-9.0, 9.0),)), Zone(6, 9, (Bounds(-9.0, 9.0),))):
        assert owner.received(late, 111) == []
        assert not owner.silent


def test_nan_and_missing_are_outside_of_every_box() -> None:
    """What is computed of them is not bounded by it."""
    for value in (float("nan"), None):
        assert _watched().changed((value,), 110)


def test_what_it_does_not_remember_one_by_one_it_remembers_as_a_range() -> None:
    """It can be asked about any time of its life."""
    owner = _watched()
    for at in range(2 * MAX_ITEMS):
        owner.changed((float(at % 4),), 200 + at)
    (answer,) = owner.received(Ask(7, 3, 150, 150), 10_000)
    assert isinstance(answer, Answer)
    assert len(answer.items) == MAX_ITEMS
    assert answer.items[0].merged and answer.items[0].area == (Bounds(0.0, 3.0),)
    assert answer.items[-1].area == (Only(3.0),)


def test_a_clock_that_goes_back_gives_later_stamps_all_the_same() -> None:
    """Nothing happens in a time of which it has said that all is told."""
    owner = _watched()
    promised = owner.alive(500).standing.stamp
    (report,) = owner.changed((50.0,), 200)
    assert report.standing.stamp == promised + 1


def test_after_a_crash_it_claims_no_more_than_it_knows() -> None:
    """Inside its zone, it was inside; with values that it should have persisted, nothing."""
    owner = _watched()
    state = owner.snapshot()
    owner.changed((4.0,), 110)
    again = Owner.restore(state, (4.0,), 300)
    (answer,) = again.received(Ask(7, 3, 105, 105), 310)
    assert isinstance(answer, Answer)
    assert [item.area for item in answer.items] == [(Bounds(-5.0, 5.0),), (Only(4.0),)]
    lost = Owner.restore(state, (99.0,), 300)
    assert not lost.silent and lost.alive(310).standing.count == state.count + 1
