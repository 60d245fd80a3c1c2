"""What sources are asked for a pattern: nothing that is left out may change what is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.ir.interp import EventContext
from headwater.patterns import model, written
from headwater.patterns.crossing.atoms import source_interest
from headwater.patterns.pattern import Pattern
from tests.effort import examples
from tests.patterns import oracle
from tests.patterns.strategies import patterns, streams

Events = list[dict[str, Any]]
SEEN = {"Seen": "who: text, room: i64", "Left": "who: text, room: i64, why: text?"}


def passing(pattern: model.Pattern, events: Events) -> Events:
    """What a pattern's sources would let through."""
    asked = {channel.name: source_interest(pattern, channel.name) for channel in pattern.channels}
    kept = []
    for event in events:
        interest = asked.get(event["channel"])
        meta = EventContext(event["source"], None, event["seq"], event["time"])
        if interest is None or interest.interpret(event["fields"], meta=meta).passed:
            kept.append(event)
    return kept


def found(pattern: model.Pattern, events: Events, promised: int | None = None) -> list[Any]:
    return sorted((m.events, m.time, m.deadline, m.key) for m in oracle.matches(pattern, events, promised))


@settings(max_examples=examples(60))
@given(patterns(), streams(), st.sampled_from((None, 3, 50)))
def test_what_is_rejected_changes_no_match(pattern: model.Pattern, events: Events, promised: int | None) -> None:
    assert found(pattern, passing(pattern, events), promised) == found(pattern, events, promised)


@settings(max_examples=examples(40))
@given(patterns(selections=("strict",), windows=(written.Window(rows=4),)), streams())
def test_rows_are_counted_as_before(pattern: model.Pattern, events: Events) -> None:
    assert found(pattern, passing(pattern, events)) == found(pattern, events)


def asked(text: str, channel: str, **more: Any) -> str | None:
    interest = source_interest(Pattern(text, SEEN, **more).model, channel)
    if interest is None:
        return None
    return str(interest).split("return ")[1].split("\n")[0].replace("input.", "")


def test_conditions_of_one_event_are_asked_at_the_source() -> None:
    text = "a: Seen{room = 42}; b: Seen{room = 7 and who != a.who}; without Left(why = 'fire') within 1 minute"
    assert asked(text, "Seen") == "room in (7, 42)"
    assert asked(text, "Left") == "why = 'fire'"


def test_what_is_open_to_all_asks_nothing() -> None:
    assert asked("Seen(P, 42); Seen(P, *)", "Seen") is None
    assert asked("a: Seen{room = 42}; b: Seen within 1 minute", "Seen") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: Seen{room = 1}, b: Seen{room = 2} within 1 minute", None),
        ("a: Seen{room = 1}; b: Seen{room = 2} within 5 events", None),
        ("a: Seen{room = 1}, b: Seen{room = 2} within 1 minute among room < 9", "room < 9 or room in (1, 2)"),
        ("a: Seen{room = 11}; b: Seen{room = 2} within 5 events among room < 9", "room < 9 or room in (2, 11)"),
        ("a: Seen{room = 1}; b: Seen{room = 2} within 1 minute among room < 9", "room in (1, 2)"),
    ],
)
def test_where_rows_count_they_cross(text: str, expected: str | None) -> None:
    assert asked(text, "Seen") == expected


def test_events_that_say_their_own_time_all_cross() -> None:
    channels = {"Seen": "who: text, room: i64, at: timestamp"}
    pattern = Pattern("a: Seen{room = 1}; b: Seen{room = 2} within 1 minute time at", channels).model
    assert source_interest(pattern, "Seen") is None


def test_values_of_parameters_go_along() -> None:
    text = "a: Seen{room = :room and who in :known}; b: Seen{room > :high} within 1 minute"
    params = {"room": 42, "known": {"ann"}, "high": 50}
    interest = source_interest(Pattern(text, SEEN, params=params).model, "Seen")
    assert interest is not None
    rooms = [("ann", 42), ("bob", 42), ("bob", 51), ("ann", 50)]
    assert [interest.test({"who": who, "room": room}) for who, room in rooms] == [True, False, True, False]


def test_more_than_a_source_may_be_asked_is_not_asked() -> None:
    pattern = Pattern("a: Seen{room = 1}; b: Seen{who like '%x%'} within 1 minute", SEEN).model
    assert source_interest(pattern, "Seen") is not None
    assert source_interest(replace(pattern, limits=model.Limits(worst=1)), "Seen") is None


def test_the_channel_is_one_of_the_patterns() -> None:
    with pytest.raises(ValueError, match=r"Seen\), found 'seen'"):
        source_interest(Pattern("Seen(P, 42)", SEEN).model, "seen")
