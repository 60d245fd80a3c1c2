"""What went wrong in corners: sizes, policies, and links that break just when a source has ended."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from headwater import Event, Pool, u32
from headwater.channel.options.config import Queue
from headwater.errors import FrameError
from headwater.federation.network import Network
from headwater.federation.peers.peer import Peer
from headwater.federation.wire.frames import MAX_FRAME
from tests.federation.nodes import Log, Nodes, eventually, nodes

LINK = 100


class Count(Event, name="ie.tcd.Count"):
    n: u32


class Text(Event, name="ie.tcd.Text"):
    text: str


def pair(make: Nodes, type: Any, handler: Any, **options: Any) -> tuple[Any, Any, Peer, Peer]:
    """A source, the node that it is of, the other node as that sees it, and that node as the other sees it."""
    a, b = make("a", **options), make("b")
    source = a.channel("c", type).source("s")
    b.channel("c", type).subscribe(handler, dispatch=Pool())
    make.ready(b)
    there, here = a._engine.everyone()[0], b._engine.everyone()[0]
    assert a.until(lambda: there.resumed, 10.0)
    return source, a, there, here


class Held:
    """Nothing goes to a peer meanwhile, as if its link were not there yet."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def __enter__(self) -> None:
        with self._peer.building:
            self._peer.resumed = False

    def __exit__(self, *exc: object) -> None:
        with self._peer.building:
            self._peer.resumed = True
        for lane in self._peer.lanes():
            lane.dirty = False
            lane.go()


def cut(peer: Peer, other: Peer) -> None:
    """The link breaks, and there is another."""
    before = peer.links, other.links
    assert peer.link is not None
    peer.link.close("cut")
    eventually(lambda: peer.links > before[0] and other.links > before[1] and peer.resumed and other.resumed)


# ── sizes ──


def test_a_short_event_before_many_long_ones() -> None:
    log = Log()
    with nodes() as make:
        source, _, there, _ = pair(make, bytes, lambda event: log(len(event)))
        sizes = [10, *[100_000] * 300]
        with Held(there):
            for size in sizes:
                source.publish(b"x" * size)
        assert log.wait(len(sizes)) == sizes
        assert there.links == 1


def test_events_that_fit_a_frame_each_but_not_together() -> None:
    log = Log()
    with nodes() as make:
        source, _, there, _ = pair(make, bytes, lambda event: log(len(event)))
        sizes = [600_000, MAX_FRAME - 100_000, 10]
        with Held(there):
            for size in sizes:
                source.publish(b"x" * size)
        assert log.wait(3) == sizes
        assert there.links == 1


def test_an_event_that_no_frame_can_take_is_dropped_and_counted() -> None:
    log = Log()
    with nodes() as make:
        source, a, there, _ = pair(make, bytes, lambda event: log(len(event)))
        for size in (1, MAX_FRAME + 1, 2):
            source.publish(b"x" * size)
        assert log.wait(2) == [1, 2]
        assert a.flush(10.0)
        assert [lane.dropped for lane in there.lanes()] == [1]
        assert there.links == 1


@pytest.mark.parametrize("rows", [[3_000] * 8_000, [3 << 20, 1, 2], [1] * 60 + [3 << 20], [1, MAX_FRAME + 1, 2]])
def test_rows_of_any_size(rows: list[int]) -> None:
    log = Log()
    with nodes() as make:
        source, a, there, _ = pair(make, Text, lambda event: log(len(event.text)))
        source.publish_many(pa.table({"text": ["x" * size for size in rows]}))
        source.publish(text="")
        fit = [size for size in rows if size <= MAX_FRAME]
        assert log.wait(len(fit) + 1) == [*fit, 0]
        assert a.flush(10.0)
        assert [lane.dropped for lane in there.lanes()] == [len(rows) - len(fit)]
        assert there.links == 1


# ── policies ──


@pytest.mark.parametrize("more", [0, 10, 40])
@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest"])
@pytest.mark.parametrize("limit", [20, LINK])
def test_a_link_that_drops(policy: Any, limit: int, more: int) -> None:
    """It keeps about as many as it may, and whatever comes has the number that it was published with."""
    log, last = Log(), 640 + more
    with nodes() as make:
        network = Network(listen=("tcp/127.0.0.1:0",), link=Queue(limit=limit, policy=policy))
        source, a, there, _ = pair(make, Count, lambda event, about: log((event.n, about.seq)), network=network)
        assert source.publish(Count(n=1)) == 1
        log.wait(1)
        assert a.flush(10.0)
        with Held(there):
            for n in range(2, last + 1):
                source.publish(Count(n=n))
            lane = next(iter(there.lanes()))
            assert lane.waiting <= limit + 64
        assert a.flush(10.0)
        log.wait(last - lane.dropped)
        got = [n for n, _ in log.events]
        assert all(n == seq for n, seq in log.events)
        kept = len(got) - 1
        assert limit <= kept == last - 1 - lane.dropped
        assert got == [1, *(range(last - kept + 1, last + 1) if policy == "drop_oldest" else range(2, kept + 2))]


def test_batches_at_a_link_that_drops_the_oldest() -> None:
    log = Log()
    with nodes() as make:
        network = Network(listen=("tcp/127.0.0.1:0",), link=Queue(limit=LINK, policy="drop_oldest"))
        source, a, there, _ = pair(make, Count, lambda event: log(event.n), network=network)
        with Held(there):
            for start in range(0, 600, 60):
                source.publish_many(pa.table({"n": pa.array(range(start, start + 60), pa.uint32())}))
            lane = next(iter(there.lanes()))
            assert (lane.waiting, lane.dropped) == (LINK, 500)
        assert a.flush(10.0)
        assert log.wait(LINK) == list(range(500, 600))


# ── times ──


def test_an_event_after_a_while_has_its_own_time() -> None:
    log = Log()
    with nodes() as make:
        source, a, there, _ = pair(make, Count, lambda event, about: log(about._stamp))
        source.publish(Count(n=1))
        log.wait(1)
        assert a.flush(10.0)
        with Held(there):
            before = a._stamp()
            source.publish(Count(n=2))
        assert log.wait(2)[1] >= before


# ── the end of a source ──


def test_a_source_that_has_ended_leaves_nothing_behind() -> None:
    log = Log()
    with nodes() as make:
        source, a, there, here = pair(make, bytes, log)
        source.publish(b"1")
        log.wait(1)
        assert a.flush(10.0)
        source.close()
        eventually(lambda: not here.remote_sources and not there.by_sid and not list(there.lanes()))


def test_a_link_breaks_while_a_sink_still_has_events_of_a_source_that_has_ended() -> None:
    log, go = Log(), threading.Event()
    with nodes() as make:
        source, a, there, here = pair(make, bytes, lambda event: (go.wait(20.0), log(event)))
        other = a.channel("c").source("other")
        for n in range(5):
            source.publish(b"%d" % n)
        eventually(lambda: any(each.received == 5 for each in here.remote_sources.values()))
        source.close()
        eventually(lambda: not any(each.name == "s" for each in here.remote_sources.values()))
        eventually(lambda: not any(each.name == "s" for each in here.sources))
        cut(there, here)
        other.publish(b"last")
        go.set()
        log.until(lambda events: b"last" in events)
        assert a.flush(10.0)
        cut(there, here)  # now all of it is acknowledged
        other.publish(b"very last")
        log.until(lambda events: b"very last" in events)
        assert log.events == [b"0", b"1", b"2", b"3", b"4", b"last", b"very last"]
        eventually(lambda: [each.name for each in here.remote_sources.values()] == ["other"])
        assert [lane.source.name for lane in there.lanes()] == ["other"]


def test_the_end_of_a_source_is_lost_with_the_link() -> None:
    log = Log()
    with nodes() as make:
        source, a, there, here = pair(make, bytes, log)
        other = a.channel("c").source("other")
        source.publish(b"1")
        log.wait(1)
        assert a.flush(10.0)
        gone = there.link
        assert gone is not None
        with there.building:
            there.resumed = False
            source.close()
            # It is told, but not sent: as if the link had swallowed it.
            lane = there.by_sid[source.number]
            lane.ended = True
            lane.crossing.drop(lane)
        cut(there, here)
        other.publish(b"2")
        log.wait(2)
        eventually(lambda: [each.name for each in here.remote_sources.values()] == ["other"])


# ── what others may ask for ──


def test_who_asks_again_and_again_for_what_it_does_not_take_is_refused() -> None:
    """What was sent and not acknowledged is not copied more often than it can be sent."""
    go, log = threading.Event(), Log()
    with nodes() as make:
        source, a, there, here = pair(make, bytes, lambda event: (go.wait(20.0), log(len(event))))
        sizes = [9 << 20] * 8
        for size in sizes:
            source.publish(b"x" * size)
        eventually(lambda: any(each.received == len(sizes) for each in here.remote_sources.values()))
        link = there.link
        assert link is not None
        with there.sender._turn:  # nothing goes out
            there.on_resume({}, link)
            with pytest.raises(FrameError, match="again and again"):
                there.on_resume({}, link)
        go.set()
        assert log.wait(len(sizes)) == sizes
        assert a.flush(10.0)
        assert log.events == sizes
