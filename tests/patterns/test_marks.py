"""Marks: events that fit no element come as their time and key, and the same is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.interest import Apart, Interest
from headwater.ir.interp import EventContext
from headwater.patterns import model, written
from headwater.patterns.crossing.atoms import counts_rows, source_interest
from headwater.patterns.crossing.marks import Mark, Marking, marking
from headwater.patterns.pattern import Pattern
from headwater.patterns.run.runner import Runner
from tests.effort import examples
from tests.patterns import oracle
from tests.patterns.strategies import CHANNELS, SOURCES, patterns, streams

Events = list[dict[str, Any]]
SEEN = {"Seen": "who: text, room: i64, level: f64?, at: timestamp?"}
STRICT = "a: Seen{room = 1}, b: Seen{room = 2} within 1 minute"
# The time that events say of themselves: `v`, which is often missing, and goes back.
OWN = {each.name: each.time for each in Pattern("x: a; y: b within 1 second time v", CHANNELS).model.channels}


def there(made: Marking, wanted: Interest | None, pattern: model.Pattern) -> Interest:
    """What sources of other nodes are asked with."""
    asked = made.asked(wanted, wanted, pattern)
    assert isinstance(asked, Apart) and asked.here is wanted
    return asked.there


class Crossing:
    """What sources of another node give for a pattern, and what its runner makes of that."""

    def __init__(self, pattern: model.Pattern) -> None:
        self.pattern = pattern
        self.runner = self._runner()
        self.runner.expect(SOURCES)
        self.markings: dict[str, Marking | None] = {}
        self.asked: dict[str, Any] = {}
        for channel in pattern.channels:
            made = self.markings[channel.name] = marking(pattern, channel.name)
            wanted = source_interest(pattern, channel.name)
            self.asked[channel.name] = wanted if made is None else there(made, wanted, pattern)
        self.crossed: list[Mark] = []

    def _runner(self) -> Runner:
        return Runner(self.pattern, mode="interpreted", interpreted=True)

    def offer(self, event: dict[str, Any]) -> None:
        channel, meta = event["channel"], EventContext(event["source"], "east", event["seq"], event["time"])
        here = replace(meta, node=None)  # the oracle knows no nodes
        if channel not in self.asked:
            return
        asked, marks = self.asked[channel], self.markings[channel]
        outcome = None if asked is None else asked.interpret(event["fields"], meta=meta)
        if outcome is not None and not outcome.passed:
            self.runner.promise(event["source"], event["time"] - self.pattern.lateness)
        elif marks is None or outcome is None or outcome.output["whole"]:
            self.runner.offer(channel, event["fields"], here)
        else:
            found = marks.opened(marks.type.encode(outcome.output))
            assert isinstance(found, Mark)
            self.crossed.append(found)
            self.runner.mark(channel, found, here)

    def restart(self) -> None:
        kept = self.runner.snapshot({})
        self.runner = self._runner()
        self.runner.restore(kept)


def same(pattern: model.Pattern, events: Events, restart: int) -> None:
    """All that is found and counted is as the definition says, with a restart after so many events."""
    crossing, judged = Crossing(pattern), oracle.judge(pattern, events)
    for at, event in enumerate(events):
        if at == restart:
            crossing.restart()
        crossing.offer(event)
    crossing.runner.finish()
    found = sorted((tuple((label, event.origin) for label, event in m.events), m.time, m.deadline or 0)
                   for m in crossing.runner.matches())  # fmt: skip
    assert found == sorted((m.events, m.time, m.deadline or 0) for m in judged.matches)
    counts = crossing.runner.counts
    own = any(channel.time is not None for channel in pattern.channels)
    if own or counts_rows(pattern):  # else what is no row to anybody is nowhere counted as one
        assert (counts.late, counts.keyless, counts.timeless) == (judged.late, judged.keyless, judged.timeless)
    assert counts.marks == len(crossing.crossed)


@settings(max_examples=examples(60), deadline=None)
@given(patterns(selections=("strict", "next"), windows=(written.Window(rows=4), None)), streams(), st.integers(0, 8))
def test_rows_are_counted_by_their_marks(pattern: model.Pattern, events: Events, restart: int) -> None:
    same(pattern, events, restart)


@settings(max_examples=examples(60), deadline=None)
@given(patterns(), streams(), st.integers(0, 2), st.integers(0, 8))
def test_marks_tell_the_time_of_events_that_say_it(
    pattern: model.Pattern, events: Events, lateness: int, restart: int
) -> None:
    channels = tuple(replace(channel, time=OWN[channel.name]) for channel in pattern.channels)
    named = [{**event, "source": f"{event['source']} of {event['channel']}"} for event in events]  # of one channel each
    same(replace(pattern, channels=channels, lateness=lateness), named, restart)


def crossing_of(text: str, rows: list[tuple[Any, ...]], **more: Any) -> list[Mark | dict[str, Any]]:
    """What a source of another node gives for events, by machine code as nodes do it: one by one, and as a batch."""
    pattern = Pattern(text, SEEN, **more).model
    made = marking(pattern, "Seen")
    assert made is not None
    interest, type = there(made, source_interest(pattern, "Seen"), pattern), made.channel.type
    asked, at = interest.native(), interest.whole_at
    assert at is not None
    raws = [dict(zip(("who", "room", "level", "at"), (*row, None, None), strict=False)) for row in rows]
    metas = [EventContext("s", "east", seq, seq) for seq in range(len(raws))]
    passed = [(asked.run(type.encode(raw), meta), raw) for raw, meta in zip(raws, metas, strict=True)]
    one_by_one = [outcome.output for outcome, _ in passed if outcome.passed]
    together = asked.batch(type.to_arrow(raws), meta={"source": "s", "node": "east", "seq": 1, "time": 1}).output
    assert made.type.arrow_to_records(together) == one_by_one
    found = list[Mark | dict[str, Any]]()
    for outcome, raw in passed:
        if outcome.passed and outcome.output[at]:
            found.append(raw)
        elif outcome.passed:
            mark = made.opened(outcome.output)
            assert isinstance(mark, Mark)
            found.append(mark._replace(size=0))
    return found


def test_an_event_that_fits_crosses_whole_and_others_as_their_key() -> None:
    ann, bob, none = crossing_of(f"{STRICT} partition by who", [("ann", 1, 2.5, 7), ("bob", 3), ("", 2)])
    assert ann == {"who": "ann", "room": 1, "level": 2.5, "at": 7}
    assert bob == Mark(row=True, key={"who": "bob"}, time=None)
    assert isinstance(none, dict)


def test_what_is_not_among_the_rows_does_not_cross() -> None:
    found = crossing_of(f"{STRICT} among room < 9", [("ann", 10), ("ann", 8), ("ann", 2)])
    assert found[0] == Mark(row=True, key={}, time=None) and len(found) == 2


def test_events_that_all_fit_come_as_they_are() -> None:
    assert all(isinstance(each, dict) for each in crossing_of(STRICT, [("ann", 1), ("bob", 2), ("bob", 1)]))


def test_marks_and_events_are_known_apart() -> None:
    pattern = Pattern(STRICT, SEEN).model
    made = marking(pattern, "Seen")
    assert made is not None
    event = made.channel.type.encode({"who": "ann", "room": 1, "level": None, "at": None})
    mark = made.type.encode({"whole": False, "row": True})
    assert made.opened(event) is event and made.opened(mark) == Mark(True, {}, None, len(mark))
    assert made.opened_rows(made.channel.type.records_to_arrow([event])) is None
    assert made.opened_rows(made.type.records_to_arrow([mark, mark])) == [Mark(True, {}, None, len(mark))] * 2


@pytest.mark.parametrize(("level", "key"), [(-0.0, {"level": 0.0}), (float("nan"), None), (None, None)])
def test_marks_have_the_key_that_events_would_have(level: float | None, key: Any) -> None:
    (found,) = crossing_of(f"{STRICT} partition by level", [("ann", 5, level)])
    assert found == Mark(row=True, key=key, time=None)


def test_a_mark_says_the_time_that_its_event_does() -> None:
    text = "a: Seen{room = 1}; b: Seen{room = 2} within 1 minute partition by who time at"
    marks = crossing_of(text, [("ann", 5, None, 77), ("bob", 6)])
    assert marks == [Mark(row=True, key={"who": "ann"}, time=77), Mark(row=True, key={"who": "bob"}, time=None)]
    (found,) = crossing_of(f"{text} among room < 3", [("ann", 5, None, 77)])
    assert found == Mark(row=False, key={"who": "ann"}, time=77)


def test_values_of_parameters_go_along_and_change() -> None:
    def whole(pattern: model.Pattern, rooms: tuple[int, ...]) -> list[bool]:
        asked = there(made, source_interest(pattern, "Seen"), pattern)
        events = [{"who": "ann", "room": room, "level": None, "at": None} for room in rooms]
        outcomes = [asked.interpret(event, meta=EventContext("s", "east", 1, 1)) for event in events]
        return [outcome.output["whole"] for outcome in outcomes if outcome.output is not None and outcome.passed]

    text = "a: Seen{room = :first}, b: Seen{room in :then} within 1 minute among room < :most"
    one, other = (Pattern(text, SEEN, params={"first": first, "then": {2}, "most": 9}).model for first in (1, 4))
    found = marking(one, "Seen")
    assert found is not None
    made = found
    assert whole(one, (1, 2, 4, 9)) == [True, True, False]
    assert whole(other, (1, 2, 4, 9)) == [False, True, True]


@pytest.mark.parametrize(
    "text",
    [
        "a: Seen{room = 1}; b: Seen{room = 2} within 1 minute",  # rows do not count, and time is that of publication
        "a: Seen{room = 1}, b: Seen within 1 minute",  # every event fits
        "a: Seen, b: Seen{room = 2} within 1 minute time at",
    ],
)
def test_where_none_could_be_one_there_are_no_marks(text: str) -> None:
    assert marking(Pattern(text, SEEN).model, "Seen") is None


def test_more_than_a_source_may_be_asked_is_no_mark() -> None:
    pattern = Pattern("a: Seen{room = 1}, b: Seen{who like '%x%'} within 1 minute", SEEN).model
    assert marking(pattern, "Seen") is not None
    assert marking(replace(pattern, limits=model.Limits(worst=1)), "Seen") is None
