"""The holder's side alone: pages and events that overtake each other, and what does not follow on what came."""

from __future__ import annotations

from headwater.objects.replicas.copy import MOST_KEPT, Copy, Line
from headwater.objects.replicas.tracker import Message, messages
from tests.objects.replicas.world import CAR, driving, spec


def car(x: float, v: float = 0.0) -> bytes:
    return CAR.encode({"x": x, "v": v, "n": None, "label": ""})


def line(object: str, x: float | None, turn: int, after: int = 0, more: int = 0) -> Line:
    return Line(object, None if x is None else car(x), False, 10 * turn, turn, after, more)


def test_what_was_destroyed_does_not_come_back_with_an_older_page() -> None:
    copy = Copy(spec(bound={"x": 0.5}), CAR)
    copy.line(line("fleet/a", None, 7))
    copy.line(line("fleet/b", 5.0, 8, after=7))
    copy.page([("fleet/a", car(1.0), 20, 2, False), ("fleet/b", car(1.0), 30, 3, False)])
    assert copy.as_of is None
    copy.finished()
    assert copy.as_of == 80 and set(copy.told) == {"fleet/b"} and copy.told["fleet/b"].raw["x"] == 5.0


def test_pages_are_of_no_moment_until_everything_before_their_latest_came() -> None:
    copy = Copy(spec(bound={"x": 0.5}), CAR)
    copy.page([("fleet/a", car(1.0), 20, 2, False), ("fleet/b", car(1.0), 90, 9, False)])
    copy.finished()
    copy.come_to(80)
    assert copy.as_of is None  # fleet/a may have been told of between
    copy.line(line("fleet/a", 2.0, 8))
    assert copy.as_of is None
    copy.come_to(90)
    assert copy.as_of == 90


def test_what_does_not_follow_on_what_came_breaks_it_and_changes_nothing() -> None:
    for wrong in (line("fleet/a", 9.0, 5, after=3), line("", None, 5, after=2), line("fleet/a", 9.0, 5)):
        copy = Copy(spec(bound={"x": 0.5}), CAR)
        copy.finished()
        copy.line(line("fleet/a", 1.0, 2))
        copy.line(wrong)
        copy.come_to(1000)
        assert copy.broken and copy.as_of == 20 and copy.told["fleet/a"].raw["x"] == 1.0
    half = Copy(spec(bound={"x": 0.5}), CAR)
    half.finished()
    half.line(line("fleet/a", 1.0, 2, more=1))
    half.come_to(1000)
    assert half.as_of is None  # of half a turn nothing is known
    half.line(line("fleet/a", 1.0, 3, after=2))
    assert half.broken


def test_an_owner_that_means_ill_fills_no_memory() -> None:
    record = car(1.0)
    paged = Copy(spec(), CAR)
    for page in range(30):
        paged.page([(f"fleet/{page}-{row}", record, 1, 1, False) for row in range(1000)])
    assert "expected at most" in paged.broken and len(paged.told) <= MOST_KEPT
    told = Copy(spec(), CAR)
    told.finished()
    for number in range(MOST_KEPT + 10):
        told.line(Line(f"fleet/{number}", record, False, 10, 1, 0, 10**6 - number))
    assert told.broken and not told.told and told.as_of is None


def test_recorded_changes_say_what_would_have_crossed() -> None:
    changes = [(second * 1_000_000, "fleet/a", car(float(second), 1.0)) for second in range(10)]
    assert list(messages(spec(bound={"x": 2.5}), CAR, changes)) == [
        Message(second * 1_000_000, "fleet/a", car(float(second), 1.0)) for second in (0, 3, 6, 9)
    ]
    ended = [*changes, (9_500_000, "fleet/a", None)]
    assert [each.at for each in messages(driving(1.5), CAR, ended)] == [0, 9_500_000]
    # It is said to drive on, and stands: told once, when that is too far off.
    found = list(messages(driving(1.5), CAR, changes, until=60_000_000))
    assert [each.at for each in found] == [0, 10_500_001]
