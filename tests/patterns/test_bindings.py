"""Later events are asked for by what earlier ones have bound: what so never comes changes no match."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.ir.interp import EventContext
from headwater.patterns import model
from headwater.patterns.crossing.bindings import Bindings, Opener, bindings
from headwater.patterns.pattern import Pattern
from tests.effort import examples
from tests.patterns import oracle
from tests.patterns.strategies import patterns, streams

Events = list[dict[str, Any]]
SEEN = {"Seen": "who: text, room: i64", "Left": "person: text, room: i64, why: text?", "Level": "f: f64?, n: i64"}


def crossing(found: Bindings, events: Events, narrow: frozenset[str], window: int | None) -> Events:
    """What comes, if values are open from the event on that opens them, until the window has passed."""
    opener, kept = Opener(found), list[Any]()
    open: dict[str, dict[Any, int]] = {slot.name: {} for slot in found.slots}
    types = {channel.name: channel.type for channel in found.pattern.channels}
    for event in sorted(events, key=lambda e: (e["time"], e["source"], e["seq"], e["channel"])):
        if event["channel"] not in types:
            continue
        if window is not None:
            open = {n: {v: t for v, t in at.items() if t + window >= event["time"]} for n, at in open.items()}
        meta = EventContext(event["source"], event["source"], event["seq"], event["time"])
        interest = found.interest(event["channel"], open, narrow)
        if interest is None or interest.interpret(event["fields"], meta=meta).passed:
            kept.append(event)
            for name, value in opener(event["channel"], event["fields"], meta).items():
                open[name][value] = event["time"]
    return kept


def matches(pattern: model.Pattern, events: Events) -> list[Any]:
    return sorted((m.events, m.time, m.deadline, m.key) for m in oracle.matches(pattern, events))


@settings(max_examples=examples(80))
@given(patterns(), streams(), st.sampled_from((frozenset({"n1", "n2"}), frozenset({"n2"}), frozenset[str]())))
def test_what_is_not_open_changes_no_match(pattern: model.Pattern, events: Events, narrow: frozenset[str]) -> None:
    found = bindings(pattern)
    if found is None:
        return
    window = None if pattern.window is None else pattern.window.microseconds
    assert matches(pattern, crossing(found, events, narrow, window)) == matches(pattern, events)


def of(text: str, **more: Any) -> Bindings | None:
    return bindings(Pattern(text, SEEN, **more).model)


def asked(text: str, channel: str, **more: Any) -> str:
    found = of(text, **more)
    assert found is not None
    return shown(found.interest(channel))


def shown(interest: Any) -> str:
    return str(interest).split("return ")[1].split("\n")[0].replace("input.", "")


ELSEWHERE = "(not (meta.node in :narrow))"


@pytest.mark.parametrize(
    ("text", "channel", "expected"),
    [
        ("Seen(P, 42); Seen(P, *)", "Seen", f"{ELSEWHERE} or room = 42 or who in :open_1"),
        (
            "a: Seen{room = 42}; b: Seen{who = a.who} within 1 hour",
            "Seen",
            f"{ELSEWHERE} or room = 42 or who in :open_1",
        ),
        (
            "a: Seen{room = 42}; b: Seen{room > 50} within 1 hour partition by who",
            "Seen",
            f"({ELSEWHERE} and room > 50) or (room > 50 and who in :open_1) or room = 42",
        ),
        (
            "a: Seen{room = 42}, b: Seen{room > 50} within 1 hour partition by who among room < 9",
            "Seen",
            f"({ELSEWHERE} and (room < 9 or room > 50)) or (room < 9 and who in :open_1) or "
            "(room > 50 and who in :open_1) or room = 42",
        ),
        (
            "Seen(P, 42); Left(P, *, 'fire') within 1 hour",
            "Left",
            f"({ELSEWHERE} and why = 'fire') or (why = 'fire' and person in :open_1)",
        ),
        (
            "Seen(P, 42); without Left(P, 42, *) within 1 hour",
            "Left",
            f"({ELSEWHERE} and room = 42) or (room = 42 and person in :open_1)",
        ),
    ],
)
def test_later_events_are_asked_for_by_what_is_open(text: str, channel: str, expected: str) -> None:
    assert asked(text, channel) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a: Seen{room = 42}; b: Seen within 1 hour",  # whoever comes next
        "a: Seen{room = 42}; b: Seen{who != a.who} within 1 hour",
        "a: Seen(P, 42) & b: Left(P, *, *)  within 1 hour",  # either may come first
        "(a: Seen(P, 42))? ; b: Level; c: Left(P, *, *) within 1 hour",  # there may be nothing that binds it
        "a: Level(f = X); b: Level{n > a.n} within 1 hour",
    ],
)
def test_where_nothing_is_bound_nothing_is_asked_so(text: str) -> None:
    assert of(text) is None


def test_events_that_say_their_own_time_are_not_asked_so() -> None:
    channels = {"Seen": "who: text, room: i64, at: timestamp"}
    assert bindings(Pattern("Seen(P, 42, *); Seen(P, *, *) time at", channels).model) is None


def test_names_of_parameters_are_free() -> None:
    found = of("Seen(P, :open_1); Seen(P, *)", params={"open_1": 42})
    assert found is not None and [slot.name for slot in found.slots] == ["open_1_"]
    interest = found.interest("Seen", {"open_1_": {"ann"}}, {"lab"})
    assert interest is not None

    def passes(who: str, room: int, node: str = "lab") -> bool:
        return interest.interpret({"who": who, "room": room}, meta=EventContext("s", node, 1, 1)).passed

    assert passes("bob", 42) and passes("ann", 1) and not passes("bob", 1) and passes("bob", 1, "elsewhere")


def test_what_was_missed_is_what_later_elements_take() -> None:
    found = of("Seen(P, 42); Seen(P, *)")
    assert found is not None
    past = found.past("Seen", {"open_1": {"ann"}})
    assert past is not None
    seen = (("ann", 1), ("bob", 42), ("bob", 1), ("ann", 42))
    assert [past.test({"who": who, "room": room}) for who, room in seen] == [True, False, False, False]


def test_what_crosses_at_any_time_was_not_missed_and_what_cannot_be_judged_was() -> None:
    channels = {"Seen": "who: text, room: i64?"}
    found = bindings(Pattern("Seen(P, 42); Seen(P, *)", channels).model)
    assert found is not None
    past = found.past("Seen", {"open_1": {"ann"}})
    assert past is not None and [past.test({"who": "ann", "room": room}) for room in (None, 42)] == [True, False]


def test_zeros_are_one_value_and_nan_is_none() -> None:
    found = of("a: Level{n = 0}; b: Level within 1 hour partition by f")
    assert found is not None
    opener = Opener(found)
    meta = EventContext("s", "lab", 1, 1)
    values = [opener("Level", {"f": f, "n": 0}, meta) for f in (-0.0, None, 1.5)]
    assert values == [{"open_1": 0.0}, {}, {"open_1": 1.5}]
    interest = found.interest("Level", {"open_1": {0.0, float("nan")}}, {"lab"})
    assert interest is not None
    tests = [interest.interpret({"f": f, "n": 1}, meta=meta).passed for f in (-0.0, 0.0, float("nan"), None, 1.5)]
    assert tests == [True, True, False, False, False]
