"""Conjunctions and disjunctions over several channels, as a subscriber sees them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from headwater import About, Node, event_type
from headwater.correlation import Correlation, Match, all_of, any_of, on
from headwater.dispatch import WAIT
from headwater.errors import ChannelError, ClosedError, SubscriptionError
from headwater.testing import ManualClock
from tests.channel.events import GUARD, Alarm, Brief, Sighting, badges, sighting


def hall(node: Node) -> tuple[Any, Any, Any]:
    door = node.channel("hall.door", "badge: u32, open: bool")
    motion = node.channel("hall.motion", Sighting)
    sound = node.channel("hall.sound", Sighting)
    return door.source("d"), motion.source("m"), sound.source("s")


def test_a_conjunction_is_delivered_when_satisfied_with_its_events() -> None:
    with Node() as node:
        door, motion, _ = hall(node)
        got: list[Match] = []
        subscription = node.correlate(
            all_of(on("hall.door", "open", name="door"), on("hall.motion", "level > 0.5", name="motion")), got.append
        )
        motion.publish(sighting(1, 0.9))
        motion.publish(sighting(2, 0.1))
        door.publish(badge=3, open=False)
        assert got == [] and subscription.remembered == 1
        door.publish(badge=4, open=True)
        (match,) = got
        assert match.names == ("motion", "door") and badges(match) == [1, 4]
        assert match["motion"] == sighting(1, 0.9) and match["door"].badge == 4
        door.publish(badge=5, open=True)  # all begins anew
        assert len(got) == 1 and subscription.remembered == 1
        motion.publish(sighting(6, 0.7))
        assert badges(got[1]) == [5, 6]
        counts = subscription.counts
        assert (counts.evaluated, counts.passed, counts.rejected, counts.delivered) == (6, 4, 2, 2)


def test_a_disjunction_is_delivered_with_the_part_that_satisfied_it() -> None:
    with Node() as node:
        door, motion, sound = hall(node)
        got: list[tuple[tuple[str, ...], list[int]]] = []
        node.correlate(
            any_of(on("hall.motion", "level > 0.5", name="motion"), on("hall.sound", name="sound")),
            lambda match: got.append((match.parts, badges(match))),
        )
        motion.publish(sighting(1, 0.9))
        motion.publish(sighting(2, 0.2))
        sound.publish(sighting(3))
        door.publish(badge=9, open=True)
        assert got == [(("motion",), [1]), (("sound",), [3])]


def test_trees_nest_and_parts_are_named_by_their_place() -> None:
    with Node() as node:
        door, motion, sound = hall(node)
        got: list[Match] = []
        tree = all_of(on("hall.door"), any_of(on("hall.motion", "level > 0.5"), on("hall.sound", name="noise")))
        node.correlate(tree, got.append)
        sound.publish(sighting(1))
        door.publish(badge=2, open=True)
        motion.publish(sighting(3, 0.9))
        door.publish(badge=4, open=False)
        assert [match.names for match in got] == [("noise", "part1"), ("part2", "part1")]


def test_what_is_older_than_the_window_counts_no_more() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        door, motion, _ = hall(node)
        subscription = node.correlate(all_of(on("hall.door"), on("hall.motion"), within=5.0))
        door.publish(badge=1, open=True)
        clock.advance(6)
        assert subscription.remembered == 0
        motion.publish(sighting(2))
        assert subscription.poll() is None
        clock.advance(5)
        door.publish(badge=3, open=True)
        assert badges(subscription.get(0)) == [2, 3]


def test_what_is_kept_of_each_part() -> None:
    with Node() as node:
        door, motion, _ = hall(node)
        parts = (on("hall.motion", name="m"), on("hall.door", name="d"))
        kept = {keep: node.correlate(all_of(*parts, keep=keep)) for keep in ("latest", "first", "all")}
        last_two = node.correlate(all_of(*parts, keep="all", limit=2))
        motion.publish_many([sighting(1), sighting(2), sighting(3)])
        door.publish(badge=9, open=True)
        got = {keep: badges(each.get(0)) for keep, each in kept.items()}
        assert got == {"latest": [3, 9], "first": [1, 9], "all": [1, 2, 3, 9]}
        assert badges(last_two.get(0)) == [2, 3, 9]


def test_parts_may_be_of_one_channel_with_equal_interests() -> None:
    with Node() as node:
        _, motion, _ = hall(node)
        channel = node.channel("hall.motion")
        plain = node.correlate(all_of(on(channel, name="a"), on(channel, name="b")))
        equal = node.correlate(all_of(on(channel, "level > 0.5", name="a"), on(channel, "0.5 < level", name="b")))
        motion.publish(sighting(1, 0.9))
        assert plain.get(0).names == equal.get(0).names == ("a", "b")  # one event may satisfy both
        assert len(channel.entries) == 2
        assert plain.counts.passed == 2
        plain.cancel()
        equal.cancel()
        assert not channel.entries
        motion.publish(sighting(2, 0.9))


def test_patterns_types_parameters_and_batches() -> None:
    with Node() as node:
        door, motion, sound = hall(node)
        got: list[Match] = []
        tree = all_of(
            on("hall.door", "badge = :b", params={"b": 7}, name="door"),
            on("*.motion", "level > :l", params={"l": 0.5}, type=Brief, name="seen"),
        )
        node.correlate(tree, got.append)
        future = node.channel("attic.motion", Sighting).source()
        door.publish(badge=7, open=True)
        future.publish_many(event_type(Sighting).to_arrow([sighting(1, 0.2), sighting(2, 0.8), sighting(3, 0.9)]))
        assert [match["seen"] for match in got] == [Brief("ORL-Net#1", 0.8)]
        door.publish(badge=7, open=True)
        assert got[1]["seen"] == Brief("ORL-Net#1", 0.9)
        sound.publish(sighting())
        motion.publish(sighting(1, 0.9))
        assert len(got) == 2


def test_derived_channels_and_transformations_take_part() -> None:
    with Node() as node:
        _, motion, sound = hall(node)
        node.channel("hall.motion").derive(
            "hall.alarm", lambda e: Alarm(badge=e.badge, text="!") if e.level > 0.5 else None, output=Alarm
        )
        subscription = node.correlate(all_of(on("hall.alarm", name="alarm"), on("hall.sound")))
        sound.publish(sighting(1))
        motion.publish(sighting(2, 0.1))
        motion.publish(sighting(3, 0.9))
        assert subscription.get(0)["alarm"] == Alarm(3, "!")


def test_the_handler_may_know_of_the_event_that_completed_it() -> None:
    clock = ManualClock()
    with Node(clock=clock) as node:
        door, motion, _ = hall(node)
        known: list[About] = []
        skipped: list[Match] = []
        node.correlate(
            all_of(on("hall.door"), on("hall.motion")),
            lambda match, about: known.append(about),
            name="both",
            before=lambda match, about: len(match) == 2 or skipped.append(match),  # type: ignore[func-returns-value]
        )
        door.publish(badge=1, open=True)
        motion.publish(sighting(1))
        (about,) = known
        assert (about.channel, about.source, about.seq, about.subscription) == ("hall.motion", "m", 1, "both")


def test_a_match_may_wait_be_pulled_and_awaited() -> None:
    async def main() -> None:
        async with Node() as node:
            door, motion, _ = hall(node)
            free = False
            late: list[Match] = []
            waiting = node.correlate(
                all_of(on("hall.door"), on("hall.motion")), late.append, before=lambda match: free or WAIT,
                dispatch="inline",
            )  # fmt: skip
            pulled = node.correlate(all_of(on("hall.door"), on("hall.motion")))
            door.publish(badge=1, open=True)
            motion.publish(sighting(2))
            assert badges(await asyncio.wait_for(pulled.receive(), GUARD)) == [1, 2]
            assert late == []
            free = True
            waiting.wake()
            assert badges(late[0]) == [1, 2]

    asyncio.run(main())


def test_a_part_is_changed_and_what_was_remembered_forgotten() -> None:
    with Node() as node:
        door, motion, _ = hall(node)
        subscription = node.correlate(
            all_of(on("hall.door", "badge = :b", params={"b": 1}, name="door"), on("hall.motion", name="motion"))
        )
        assert isinstance(subscription, Correlation)
        motion.publish(sighting(5))
        door.publish(badge=2, open=True)
        points = subscription.change(part="door", params={"b": 2})
        assert points == {"hall.door/d": 1} and subscription.epoch == 2 and subscription.remembered == 0
        door.publish(badge=2, open=True)
        assert subscription.poll() is None
        motion.publish(sighting(6))
        assert badges(subscription.get(0)) == [2, 6]
        for wrong in ("", "window"):
            with pytest.raises(SubscriptionError, match="expected part= with one of door, motion, found"):
                subscription.change(part=wrong, where="badge = 3")
        with pytest.raises(ValueError, match="bagde"):
            subscription.change(part="door", where="bagde = 3")
        assert subscription.epoch == 2


def test_a_changed_part_has_its_own_points_where_parts_share_a_source() -> None:
    with Node() as node:
        _, motion, _ = hall(node)
        subscription = node.correlate(
            all_of(on("hall.motion", "badge = 1", name="a"), on("hall.motion", "badge = 2", name="b"))
        )
        motion.publish(sighting(9))
        assert subscription.change(part="a", where="badge = 3") == {"hall.motion/m": 1}
        motion.publish(sighting(2))
        motion.publish(sighting(3))
        assert badges(subscription.get(0)) == [2, 3]


def test_matches_from_several_threads_are_each_delivered_once() -> None:
    with Node() as node:
        door, motion, _ = hall(node)
        got: list[Match] = []
        node.correlate(all_of(on("hall.door"), on("hall.motion"), keep="all", limit=10_000), got.append)
        threads = [
            threading.Thread(target=lambda: [door.publish(badge=n, open=True) for n in range(300)]),
            threading.Thread(target=lambda: [motion.publish(sighting(n)) for n in range(300)]),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GUARD)
        seen = [event.badge for match in got for event in match.all_by_name("part1")]
        other = [event.badge for match in got for event in match.all_by_name("part2")]
        assert seen == list(range(len(seen))) and other == list(range(len(other)))
        assert max(len(seen), len(other)) == 300


def test_the_end_of_a_channel_and_of_a_correlation() -> None:
    with Node() as node:
        door, motion, _ = hall(node)
        subscription = node.correlate(all_of(on("hall.door"), on("hall.motion")), name="both")
        node.channel("hall.door").close()
        assert subscription.state == "open"
        subscription.cancel()
        motion.publish(sighting())
        with pytest.raises(ClosedError):
            subscription.get(0)
        assert subscription.counts.evaluated == 0
        assert "both" not in node.subscriptions and door.closed


def test_faulty_trees_are_errors_at_the_call() -> None:
    with Node() as node:
        hall(node)
        cases: list[tuple[Any, type[Exception], str]] = [
            (
                lambda: node.correlate(all_of(on("hall.dor"), on("hall.motion"))),
                ChannelError,
                "did you mean 'hall.door'",
            ),
            (lambda: node.correlate(all_of(on("hall..door"))), ChannelError, "two dots in a row"),
            (
                lambda: node.correlate(all_of(on(5), on("hall.door"))),
                SubscriptionError,
                "its name or a pattern, found 5",
            ),
            (lambda: node.correlate("hall.door"), SubscriptionError, r"write on\('hall.door'\)"),  # type: ignore[arg-type]
            (lambda: node.correlate(all_of(on("hall.door"), on("hall.motion", "levl > 1"))), ValueError, "levl"),
            (lambda: node.correlate(on("hall.door"), print, batch=True), SubscriptionError, "batch= has no meaning"),
            (lambda: node.correlate(on("hall.door"), print, bacth=5), SubscriptionError, "did you mean 'batch'"),
            (lambda: node.correlate(all_of()), SubscriptionError, "expected at least one part"),
        ]
        for call, error, words in cases:
            with pytest.raises(error, match=words):
                call()
        assert not node.subscriptions and not any(channel.entries for channel in node.channels())
        pulled = node.correlate(on("hall.door"), name="mine")
        with pytest.raises(SubscriptionError, match="get_batch: 'mine' delivers matches, which are no rows"):
            pulled.get_batch()
