"""A subscription that is paused, by its owner or since its handler fails, stops nobody: not its source, not its node,
not other nodes. What it misses is counted, or, where there is a log, read from there later."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Log, Node, Queue, Reliable, Subscription, i64
from headwater.dispatch import Pool
from headwater.federation.address_map import HashedGroups
from headwater.federation.network import Network
from tests.federation.nodes import GUARD, eventually, nodes, see
from tests.federation.nodes import Log as Seen

CHANNEL = "test.count"
LIMIT = 256  # events that the link to a node takes
QUEUE = 64  # and the queue of a sink
MANY = 3000
_PORTS = count(40_000 + os.getpid() % 20_000)


class Count(Event, name="test.Count"):
    n: i64


def fails(event: Any) -> None:
    raise ValueError(f"event {event.n} is not for me")


def ways() -> dict[str, dict[str, Any]]:
    """How events may go to another node."""
    return {
        "direct": {},
        "routed": {"direct": ()},
        "multicast": {"multicast": HashedGroups(port=next(_PORTS), base="239.255.78.0")},
    }


@contextmanager
def three(way: str) -> Iterator[tuple[Node, Node, Node]]:
    """One that publishes, and two that listen."""
    more = ways()[way]
    with nodes() as make:
        link = Queue(limit=LIMIT, policy="block", wait=2.0)
        lab = make("lab", network=Network(listen="tcp/127.0.0.1:0", link=link, **more))
        desks = [make(name, network=Network(connect=lab.endpoints[0], **more)) for name in ("sick", "well")]
        yield lab, desks[0], desks[1]


def adds_up(subscription: Subscription) -> Any:
    counts = subscription.counts
    assert counts.evaluated == counts.passed + counts.rejected + counts.undecided
    assert counts.passed == counts.delivered + counts.dropped + counts.expired + counts.skipped + counts.queued
    return counts


@pytest.mark.parametrize("dispatch", ["inline", "pool"])
@pytest.mark.parametrize("way", list(ways()))
def test_a_handler_that_always_fails_stops_neither_the_source_nor_others(way: str, dispatch: str) -> None:
    with three(way) as (lab, sick, well):
        source = lab.channel(CHANNEL, Count).source("s")
        more: dict[str, Any] = {"dispatch": Pool()} if dispatch == "pool" else {}
        bad = sick.channel(CHANNEL, Count).subscribe(fails, queue=Queue(limit=QUEUE), name="bad", **more)
        seen = Seen()
        well.channel(CHANNEL, Count).subscribe(seen, queue=Queue(limit=QUEUE))
        for node in (sick, well):
            see(node, lab)
            assert node.ready(GUARD)
        for n in range(MANY):
            source.publish(Count(n))  # it never raises QueueFull
        seen.wait(MANY)
        assert seen.field("n") == list(range(MANY))
        eventually(lambda: bad.counts.passed == MANY, "all at the sink that fails")
        counts = adds_up(bad)
        assert bad.state == "paused" and "in a row" in str(bad.paused)
        assert counts.failed == counts.delivered == 10
        # What it had when it was paused may be more than the limit, by the rest of a frame.
        assert QUEUE <= counts.queued <= QUEUE + LIMIT
        assert lab.flush(GUARD)  # everything was acknowledged


def test_after_resume_it_goes_on_in_order_with_what_was_kept() -> None:
    with three("direct") as (lab, sick, _):
        source = lab.channel(CHANNEL, Count).source("s")
        got = list[int]()

        def take(event: Any) -> None:
            if not well:
                raise ValueError("not yet")
            got.append(event.n)

        well = list[None]()
        sink = sick.channel(CHANNEL, Count).subscribe(take, queue=Queue(limit=QUEUE), name="later")
        see(sick, lab)
        assert sick.ready(GUARD)
        for n in range(MANY):
            source.publish(Count(n))
        eventually(lambda: sink.counts.passed == MANY, "all events")
        kept = adds_up(sink).queued
        assert QUEUE <= kept <= QUEUE + LIMIT  # by the rest of a frame it may be more
        well.append(None)
        sink.resume()
        for n in range(MANY, MANY + 100):
            source.publish(Count(n))
        eventually(lambda: len(got) == kept + 100, "the rest")
        assert got == [*range(10, 10 + kept), *range(MANY, MANY + 100)]
        assert adds_up(sink).queued == 0


@pytest.mark.parametrize("way", ["direct", "routed"])
def test_failures_that_are_not_in_a_row_pause_nothing(way: str) -> None:
    """However many events come in one frame."""
    with three(way) as (lab, sick, _):
        source = lab.channel(CHANNEL, Count).source("s")
        got = list[int]()

        def take(event: Any) -> None:
            got.append(event.n)
            if event.n % 5 == 0:
                raise ValueError("one in five")

        sink = sick.channel(CHANNEL, Count).subscribe(take, name="now and then")
        see(sick, lab)
        assert sick.ready(GUARD)
        for n in range(1000):
            source.publish(Count(n))
        eventually(lambda: len(got) >= 1000 or sink.state == "paused", "all events")
        assert sink.state == "open" and sink.paused is None
        assert got == list(range(1000))
        eventually(lambda: sink.counts.delivered == 1000, "counts")
        assert adds_up(sink).failed == 200


def test_of_a_frame_nothing_is_handed_over_after_the_pause() -> None:
    """The rest of the frame waits, and goes on in order."""
    with three("direct") as (lab, sick, _):
        source = lab.channel(CHANNEL, Count).source("s")
        got = list[int]()

        def take(event: Any) -> None:
            got.append(event.n)
            if event.n == 100:
                sink.pause("enough")

        sink = sick.channel(CHANNEL, Count).subscribe(take, queue=Queue(limit=10_000), name="pauses")
        see(sick, lab)
        assert sick.ready(GUARD)
        for n in range(MANY):
            source.publish(Count(n))
        eventually(lambda: sink.counts.passed == MANY, "all events")
        assert got == list(range(101))
        assert adds_up(sink).queued == MANY - 101
        sink.resume()
        eventually(lambda: len(got) == MANY, "the rest")
        assert got == list(range(MANY))
        assert adds_up(sink).delivered == MANY


# ── durable sinks ──


def test_a_durable_sink_that_is_paused_stops_nobody_and_finds_the_latest_again_after_a_restart(tmp_path: Path) -> None:
    """Without a log: up to half of what fits stays at the source."""
    with nodes() as make:
        lab = make("lab", network=Network(listen="tcp/127.0.0.1:0", link=Queue(limit=LIMIT, policy="block", wait=2.0)))
        source = lab.channel(CHANNEL, Count).source("s")
        first = make("desk", connect=lab.endpoints[0], state=tmp_path / "state", listen="tcp/127.0.0.1:0")
        durable = Reliable(durable=True)
        seen, got = Seen(), Seen()
        kept = first.channel(CHANNEL, Count).subscribe(
            got, name="kept", delivery=durable, queue=Queue(limit=QUEUE), dispatch=Pool()
        )
        first.channel(CHANNEL, Count).subscribe(seen, name="beside", dispatch=Pool())
        see(first, lab)
        assert first.ready(GUARD)
        source.publish(Count(0))
        got.wait(1)
        kept.pause()
        for n in range(1, MANY):
            source.publish(Count(n))
        for n in range(MANY, MANY + 100):  # so that they are frames of one
            seen.wait(n)
            source.publish(Count(n))
        seen.wait(MANY + 100)
        eventually(lambda: kept.counts.passed == MANY + 100, "all events")
        assert adds_up(kept).dropped == MANY + 99 - QUEUE
        first.close(drain=False)
        second = make("desk", connect=lab.endpoints[0], state=tmp_path / "state", listen="tcp/127.0.0.1:0")
        again = Seen()
        second.channel(CHANNEL, Count).subscribe(again, name="kept", delivery=durable)
        again.until(lambda events: bool(events) and events[-1].n == MANY + 99)
        numbers = again.field("n")
        assert numbers == list(range(MANY + 100 - len(numbers), MANY + 100)) and len(numbers) >= 100


@pytest.mark.parametrize("where", [None, "n % 2 == 0", "{ static int k = 0; k = k + 1; return k % 2 == 1; }"])
@pytest.mark.parametrize("dispatch", ["inline", "pool"])
@pytest.mark.parametrize("way", ["direct", "routed"])
def test_a_durable_sink_reads_from_the_log_what_it_could_not_keep(
    way: str, dispatch: str, where: Any, tmp_path: Path
) -> None:
    """Everything comes once and in order, to it and to those beside it, and nobody has waited."""
    more = ways()[way]
    with nodes() as make:
        link = Queue(limit=LIMIT)
        lab = make("lab", network=Network(listen="tcp/127.0.0.1:0", link=link, **more), log=Log(tmp_path / "log"))
        source = lab.channel(CHANNEL, Count).source("s")
        desk = make("desk", network=Network(connect=lab.endpoints[0], **more), state=tmp_path / "state")
        channel = desk.channel(CHANNEL, Count)
        kept, beside, other = Seen(), Seen(), Seen()
        options: dict[str, Any] = {"queue": Queue(limit=QUEUE)}
        if dispatch == "pool":
            options["dispatch"] = Pool()
        sink = channel.subscribe(kept, where, name="kept", delivery=Reliable(durable=True), **options)
        channel.subscribe(beside, name="beside", **options)
        channel.subscribe(other, name="other", delivery=Reliable(durable=True))
        see(desk, lab)
        assert desk.ready(GUARD)
        published = 0

        def publish(count: int) -> None:
            nonlocal published
            for _ in range(count):
                source.publish(Count(published))
                published += 1

        publish(100)
        for _ in range(2):
            sink.pause()
            publish(1000)
            for seen in (beside, other):
                seen.wait(published)
            assert sink.counts.queued <= QUEUE + LIMIT
            sink.resume()
            publish(200)
            wanted = [n for n in range(published) if where is None or n % 2 == 0]
            kept.until(lambda events, last=wanted[-1]: bool(events) and events[-1].n == last, "the last event")
            assert kept.field("n") == wanted
            for seen in (beside, other):
                seen.wait(published)
                assert seen.field("n") == list(range(published))
            adds_up(sink)
        assert sink.counts.dropped == 0


def test_what_it_could_not_keep_comes_also_if_the_link_broke_meanwhile(tmp_path: Path) -> None:
    with nodes() as make:
        link = Queue(limit=LIMIT)
        lab = make("lab", network=Network(listen="tcp/127.0.0.1:0", link=link), log=Log(tmp_path / "log"))
        source = lab.channel(CHANNEL, Count).source("s")
        desk = make("desk", network=Network(connect=lab.endpoints[0]), state=tmp_path / "state")
        channel, kept, beside = desk.channel(CHANNEL, Count), Seen(), Seen()
        sink = channel.subscribe(kept, name="kept", delivery=Reliable(durable=True), queue=Queue(limit=QUEUE))
        channel.subscribe(beside, name="beside")
        see(desk, lab)
        assert desk.ready(GUARD)
        for turn in range(4):
            sink.pause()
            for n in range(turn * MANY, turn * MANY + MANY):
                source.publish(Count(n))
            beside.wait(turn * MANY + MANY)
            [peer] = desk._engine.everyone()
            if turn % 2:
                peer.link.close("a test")
                sink.resume()
            else:
                sink.resume()
                peer.link.close("a test")
            kept.wait((turn + 1) * MANY)
            assert kept.field("n") == beside.field("n") == list(range((turn + 1) * MANY))


def test_it_may_go_on_in_the_moment_in_which_its_queue_is_found_full(tmp_path: Path) -> None:
    with nodes() as make:
        lab = make("lab", network=Network(listen="tcp/127.0.0.1:0"), log=Log(tmp_path / "log"))
        source = lab.channel(CHANNEL, Count).source("s")
        desk = make("desk", network=Network(connect=lab.endpoints[0]), state=tmp_path / "state")
        kept = Seen()
        queue = Queue(limit=QUEUE)
        sink = desk.channel(CHANNEL, Count).subscribe(kept, name="kept", delivery=Reliable(durable=True), queue=queue)
        see(desk, lab)
        assert desk.ready(GUARD)
        misses = sink._progress.misses

        def just_then(attachment: Any, letter: Any, full: bool) -> Any:
            if full and sink.paused is not None:
                resuming = threading.Thread(target=sink.resume)
                resuming.start()
                resuming.join(GUARD)
            return misses(attachment, letter, full)

        sink._progress.misses = just_then
        sink.pause()
        for n in range(2 * QUEUE):
            source.publish(Count(n))
        kept.wait(2 * QUEUE)
        assert kept.field("n") == list(range(2 * QUEUE))


def test_a_sink_held_just_after_its_position_was_written_goes_on(tmp_path: Path) -> None:
    with Node("desk", state=tmp_path / "state") as desk:
        sink = desk.channel(CHANNEL, Count).subscribe(Seen(), name="kept", delivery=Reliable(durable=True))
        sink._progress._wait("its position cannot be kept: it can by now")
        assert sink._mailbox.held
        eventually(lambda: not sink._mailbox.held and sink.paused is None, "going on")


@pytest.mark.parametrize("where", [None, "{ static int seen = 0; seen = seen + 1; return seen % 2 == 1; }"])
def test_one_that_reads_what_it_missed_is_not_passed_over_when_another_begins_to(where: Any, tmp_path: Path) -> None:
    """What both have missed is read from the log from an earlier event on, while the first is in the middle of it."""
    with nodes() as make:
        link = Queue(limit=LIMIT, policy="block", wait=GUARD)
        network = Network(listen="tcp/127.0.0.1:0", link=link)
        lab = make("lab", network=network, log=Log(tmp_path / "log"), state=":memory:")
        desk = make("desk", connect=lab.endpoints[0], state=":memory:")
        source = lab.channel(CHANNEL, Count).source("s")
        seen, go = [list[int](), list[int]()], threading.Event()
        go.set()

        def first(event: Count) -> None:
            seen[0].append(event.n)
            assert go.wait(GUARD)

        sinks = [
            desk.channel(CHANNEL, Count).subscribe(
                handler,
                where,
                name=name,
                delivery=Reliable(durable=True),
                queue=Queue(limit=QUEUE, wait=GUARD),
                dispatch=Pool(),
            )
            for name, handler in (("first", first), ("second", lambda event: seen[1].append(event.n)))
        ]
        make.together()
        see(desk, lab)
        assert desk.ready(GUARD)
        sinks[1].pause()
        for n in range(MANY):
            if n == 500:
                eventually(lambda: len(seen[0]) == (500 if where is None else 250), "the first has had those")
                sinks[0].pause()
            source.publish(Count(n))
        assert lab.flush(GUARD)
        before = len(seen[0])
        go.clear()
        sinks[0].resume()
        eventually(lambda: len(seen[0]) > before, "it is at it")
        sinks[1].resume()
        assert lab.until(lambda: [lane.again_asked for peer in lab._engine.everyone() for lane in peer.lanes()] == [2])
        go.set()
        wanted = list(range(MANY)) if where is None else list(range(0, MANY, 2))
        for each in seen:
            desk.until(lambda each=each: len(each) >= len(wanted), 10.0)
            assert each == wanted
