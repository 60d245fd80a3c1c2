"""Zones: named scopes within a channel that events stay in."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Node
from headwater.correlation import all_of, on
from headwater.errors import ClosedError, SubscriptionError
from tests.channel.concurrency import Threads
from tests.channel.events import Sighting, badges, sighting
from tests.effort import examples

NAMES = ("east", "west", "north")
ZONES = st.frozensets(st.sampled_from(NAMES), max_size=3)


def heard(source: frozenset[str], sink: frozenset[str]) -> bool:
    """What zones mean, in one line; an empty set stands for none named."""
    return not source or not sink or bool(source & sink)


# ── who gets what ──


def test_an_event_reaches_a_sink_iff_they_share_a_zone() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        got: dict[str, list[Any]] = {"east": [], "both": [], "whole": []}
        channel.subscribe(got["east"].append, zones="east")
        channel.subscribe(got["both"].append, zones=("east", "west"))
        channel.subscribe(got["whole"].append)
        for badge, zones in enumerate([("east",), ("west",), ("north",), ("east", "north"), None], 1):
            channel.source(zones=zones).publish(sighting(badge))
        assert badges(got["east"]) == [1, 4, 5]
        assert badges(got["both"]) == [1, 2, 4, 5]
        assert badges(got["whole"]) == [1, 2, 3, 4, 5]


@settings(deadline=None, max_examples=examples(30))
@given(
    sources=st.lists(ZONES, min_size=1, max_size=4),
    sinks=st.lists(st.tuples(ZONES, st.sampled_from([None, "level > 0.5", "level > 0.2"])), min_size=1, max_size=6),
    facts=st.booleans(),
    batches=st.booleans(),
)
def test_zones_and_interests_decide_independently(
    sources: list[frozenset[str]], sinks: list[tuple[frozenset[str], str | None]], facts: bool, batches: bool
) -> None:
    levels = [0.1, 0.4, 0.9]
    with Node() as node:
        channel = node.channel("a", Sighting)
        stated = {"network": "ORL-Net#1"} if facts else None
        made = [channel.source(zones=zones or None, facts=stated) for zones in sources]
        pulled = [channel.subscribe(None, where, zones=zones or None) for zones, where in sinks]
        for number, source in enumerate(made):
            events = [sighting(10 * number + at, level) for at, level in enumerate(levels)]
            if batches:
                channel_type = channel.type
                assert channel_type is not None
                source.publish_many(channel_type.to_arrow(events))
            else:
                source.publish_many(events)
        for subscription, (zones, where) in zip(pulled, sinks, strict=True):
            least = 0.0 if where is None else float(where.rpartition(" ")[2])
            expected = [
                10 * number + at
                for (number, other), (at, level) in product(enumerate(sources), enumerate(levels))
                if heard(other, zones) and level > least
            ]
            found = []
            while (event := subscription.poll()) is not None:
                found.append(event.badge)
            assert found == expected
            counts = subscription.counts
            reached = sum(heard(other, zones) for other in sources)
            assert (counts.evaluated, counts.passed) == (3 * reached, len(expected))


def test_sinks_with_the_same_interest_in_other_zones_are_told_apart() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        source = channel.source("s", zones=["east"])
        subscriptions = [
            channel.subscribe(print, "level > 2", name=name, zones=zones)
            for name, zones in [("e", "east"), ("also e", ["east"]), ("w", ["west", "north"]), ("all", None)]
        ]
        assert len(channel.entries) == 3
        why = {each.subscription: (each.how, each.why) for each in source.report().placements}
        assert why["w"] == ("not consulted", "not in its zones: north, west")
        assert why["e"] == why["also e"] == why["all"] and "zones" not in why["e"][1]
        source.publish(sighting())
        assert [each.counts.evaluated for each in subscriptions] == [1, 1, 0, 1]
        assert source.report().zones == ("east",) and "zones      east" in str(source.report())
        assert subscriptions[2].report().zones == ("north", "west") and subscriptions[3].report().zones == ()


def test_sources_with_the_same_zones_share_a_line_up_until_the_last_has_gone() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        sources = [channel.source(zones=zones) for zones in ("east", "east", ("west", "east"), None)]
        assert len(channel.lineups) == 3
        for source in sources:
            source.close()
        assert len(channel.lineups) == 1


def test_derived_channels_keep_the_zones_of_the_source() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        loud = channel.derive("a.loud", "level > 0.5")
        alarms = loud.derive(
            "a.alarms",
            "{ if (input.badge > 1) { output.badge = input.badge; return 1; } return 0; }",
            output="badge: u32",
        )
        east: list[Any] = []
        everywhere: list[Any] = []
        alarms.subscribe(east.append, zones="east")
        alarms.subscribe(everywhere.append)
        for badge, zones in enumerate(("east", "east", "west", None), 1):
            channel.source(zones=zones).publish(sighting(badge, 0.9))
        loud.source(zones="west").publish(sighting(5))
        assert badges(east) == [2, 4] and badges(everywhere) == [2, 3, 4, 5]


def test_patterns_and_filter_trees_have_zones_too() -> None:
    with Node() as node:
        one, two = node.channel("a.one", Sighting), node.channel("a.two", Sighting)
        got: list[Any] = []
        matches: list[Any] = []
        node.subscribe("a.*", got.append, zones="east")
        node.correlate(all_of(on("a.one"), on("a.two")), matches.append, zones="east")
        for badge, (channel, zones) in enumerate(product((one, two), ("west", "east"))):
            channel.source(zones=zones).publish(sighting(badge))
        assert badges(got) == [1, 3]
        assert [badges(match.events) for match in matches] == [[1, 3]]


# ── changing them ──


def test_a_source_moves_between_two_of_its_events() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        derived = channel.derive("a.loud", "level > 0.3")
        got: dict[str, list[Any]] = {"east": [], "west": [], "all": [], "derived": []}
        subscriptions = {
            "east": channel.subscribe(got["east"].append, "level > 0.2", zones="east"),
            "west": channel.subscribe(got["west"].append, zones="west"),
            "all": channel.subscribe(got["all"].append, "level > 0.2"),
            "derived": derived.subscribe(got["derived"].append, zones="east"),
        }
        source = channel.source(zones="east")
        assert source.zones == {"east"}
        points = []
        for badge, zones in enumerate([("west",), None, ("east", "west"), "east"], 1):
            source.publish(sighting(badge))
            points.append(source.move(zones))
        source.publish(sighting(5))
        assert points == [1, 2, 3, 4] and source.zones == {"east"} and len(channel.lineups) == 2
        assert {name: badges(events) for name, events in got.items()} == {
            "east": [1, 3, 4, 5],
            "west": [2, 3, 4],
            "all": [1, 2, 3, 4, 5],
            "derived": [1, 3, 4, 5],
        }
        for name, subscription in subscriptions.items():
            counts = subscription.counts
            assert counts.evaluated == counts.passed == counts.delivered == len(got[name])
        report = channel.report()
        assert report.published == 5 and report.counts.passed == report.counts.delivered == 4 + 3 + 5
        with pytest.raises(ClosedError, match="move"):
            source.close()
            source.move("west")


def test_an_interest_with_state_goes_on_with_a_source_that_comes_back() -> None:
    code = "{ static int seen = 0; seen = seen + 1; return seen % 2; }"
    with Node() as node:
        channel = node.channel("a", Sighting)
        got: list[Any] = []
        subscription = channel.subscribe(got.append, code, zones="east")
        source = channel.source(zones="east")
        for badge in range(1, 10):
            source.publish(sighting(badge))
            if badge % 3 == 0:
                source.move("east" if badge == 6 else "west")
        assert badges(got) == [1, 3, 8]  # 1 2 3 and 7 8 9 were heard
        assert (subscription.counts.evaluated, subscription.counts.passed) == (6, 3)


def test_counts_of_faults_stay_right_when_sources_move() -> None:
    with Node() as node:
        channel = node.channel("a", "n: i64")
        code = "{ static int seen = 0; seen = 1 / input.n; return 1; }"
        subscription = channel.subscribe(None, code, zones="east")
        whole = channel.subscribe(None, code)
        source = channel.source(zones="east")
        for number in range(8):
            source.publish(n=number % 2)
            if number % 2:
                source.move("west" if "east" in source.zones else "east")
        assert subscription.counts.evaluated == 4 and sum(subscription.counts.faults.values()) == 2
        assert whole.counts.evaluated == 8 and sum(whole.counts.faults.values()) == 4
        source.close()
        assert sum(subscription.counts.faults.values()) == 2 and sum(whole.counts.faults.values()) == 4


def test_a_subscription_changes_its_zones_at_an_exact_point() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        east, west = channel.source("e", zones="east"), channel.source("w", zones="west")
        got: list[Any] = []
        subscription = channel.subscribe(got.append, "level > :least", params={"least": 0.1}, zones="east")

        def both(badge: int) -> None:
            east.publish(sighting(badge))
            west.publish(sighting(badge + 1))

        both(1)
        assert subscription.change(zones=["west"]) == {"a/e": 1, "a/w": 1}
        both(3)
        subscription.change(zones=None, params={"least": 0.2})
        both(5)
        assert badges(got) == [1, 4, 5, 6] and subscription.epoch == 3
        with pytest.raises(SubscriptionError, match="zones"):
            subscription.change(zones=[7])
        with pytest.raises(SubscriptionError, match="none of them"):
            subscription.change()
        both(7)
        assert badges(got)[4:] == [7, 8]


def test_a_filter_tree_changes_the_zones_of_all_its_parts() -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        matches: list[Any] = []
        tree = node.correlate(all_of(on("a", "badge == 1"), on("a", "badge == 2")), matches.append, zones="east")
        west = channel.source(zones="west")
        for _ in range(2):
            west.publish_many([sighting(1), sighting(2)])
            tree.change(zones="west")
        assert [badges(match.events) for match in matches] == [[1, 2]]
        with pytest.raises(SubscriptionError, match="part="):
            tree.change(where="badge == 3", zones="east")


def test_sources_move_while_other_threads_publish() -> None:
    """Each event is seen by exactly those sinks whose zones its source was in at that point of its sequence."""
    with Node() as node:
        channel = node.channel("a", Sighting)
        source = channel.source(zones="east")
        got: dict[str, list[Any]] = {name: [] for name in ("east", "west")}
        for name, events in got.items():
            channel.subscribe(events.append, zones=name)
        points: list[tuple[int, str]] = [(0, "east")]

        def publish() -> None:
            for badge in range(1, 2001):
                source.publish(sighting(badge))

        def wander() -> None:
            for at in range(100):
                name = ("west", "east")[at % 2]
                points.append((source.move(name), name))

        Threads(publish, wander).join()
        expected: dict[str, list[int]] = {"east": [], "west": []}
        for (start, name), (end, _) in zip(points, [*points[1:], (2000, "")], strict=True):
            expected[name] += range(start + 1, end + 1)
        assert {name: badges(events) for name, events in got.items()} == expected


# ── at the door ──


@pytest.mark.parametrize("zones", [7, b"east", [""], ["a\nb"], [None], {"east": 1, 2: 3}, []])
def test_names_of_zones_are_checked(zones: Any) -> None:
    with Node() as node:
        channel = node.channel("a", Sighting)
        source = channel.source()
        for ask in (channel.source, channel.subscribe):
            with pytest.raises(SubscriptionError, match="zones"):
                ask(zones=zones)
        with pytest.raises(SubscriptionError, match="zones"):
            source.move(zones)
        assert source.zones == frozenset() and list(channel.sources) == [source.name]
