"""Sources that end while their link breaks, or while sinks still have events of theirs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headwater.errors import FrameError
from headwater.federation.peers.peer import Peer
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Announce, SourceAd
from tests.federation.nodes import GUARD, Log, eventually, nodes
from tests.federation.pairs import Held, cut, pair


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


class _Slow(dict[int, Any]):
    """Holds up who puts something in, the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __setitem__(self, key: int, value: Any) -> None:
        if not self.reached.is_set():
            self.reached.set()
            self.go_on.wait(GUARD)
        super().__setitem__(key, value)


def test_two_links_that_bring_one_announcement_make_one_source_of_it() -> None:
    """The other one would never end, nor promise anything, and so hold up who goes by time."""
    log = Log()
    with nodes() as make:
        _, a, _, here = pair(make, bytes, log)
        slow = here.remote_sources = _Slow()
        frame = wire.encode_control(Announce(ad=SourceAd(99, "late", "c"), type=None, next=1))[4:]  # without its length
        readers = [threading.Thread(target=here.on_frame, args=(frame, here.link)) for _ in range(2)]
        readers[0].start()
        assert slow.reached.wait(GUARD)
        readers[1].start()
        readers[1].join(0.2)  # it would be through by then
        slow.go_on.set()
        for reader in readers:
            reader.join(GUARD)
        channel = next(each for node in make.opened if node is not a for each in node.channels("c"))
        late = [source for source in channel.sources.values() if source.name == "late"]
        assert late == [here.remote_sources[99]]


def test_a_link_is_replaced_just_when_a_source_ends_whose_events_a_sink_still_has() -> None:
    log, go = Log(), threading.Event()
    with nodes() as make:
        source, a, there, here = pair(make, bytes, lambda event: (go.wait(GUARD), log(event)))
        other = a.channel("c").source("other")
        for n in range(5):
            source.publish(b"%d" % n)
        eventually(lambda: any(each.received == 5 for each in here.remote_sources.values()))
        here.over = ended = _Slow()
        source.close()
        assert ended.reached.wait(GUARD)
        eventually(lambda: not any(each.name == "s" for each in here.sources))
        cut(there, here)  # what it has is said now, by another thread
        ended.go_on.set()
        other.publish(b"last")
        go.set()
        log.until(lambda events: b"last" in events)
        assert a.flush(GUARD)
        assert log.events == [b"0", b"1", b"2", b"3", b"4", b"last"]
        eventually(lambda: [each.name for each in here.remote_sources.values()] == ["other"])


def test_a_link_is_replaced_before_it_is_known_that_a_source_is_no_more_whose_events_a_sink_still_has() -> None:
    log, go = Log(), threading.Event()
    with nodes() as make:
        source, a, there, here = pair(make, bytes, lambda event: (go.wait(GUARD), log(event)))
        other = a.channel("c").source("other")
        for n in range(5):
            source.publish(b"%d" % n)
        eventually(lambda: any(each.received == 5 for each in here.remote_sources.values()))
        eventually(lambda: any(each.name == "s" for each in here.sources))
        membership = make.opened[1]._engine.membership
        take = membership._take_state
        membership._take_state = lambda *args: False  # what it has is heard of later
        source.close()
        eventually(lambda: not any(each.name == "s" for each in here.remote_sources.values()))
        assert any(each.name == "s" for each in here.sources)
        cut(there, here)
        membership._take_state = take
        other.publish(b"last")
        go.set()
        log.until(lambda events: b"last" in events)
        assert a.flush(GUARD)
        assert log.events == [b"0", b"1", b"2", b"3", b"4", b"last"]


def test_what_has_come_is_said_before_the_last_events_of_a_source_and_heard_after_its_end() -> None:
    log, go = Log(), threading.Event()
    with nodes() as make:
        source, a, there, here = pair(make, bytes, lambda event: (go.wait(GUARD), log(event)))
        other = a.channel("c").source("other")
        with Held(there):
            for n in range(5):
                source.publish(b"%d" % n)
            lane = there.by_sid[source.number]
            source.close()
            eventually(lambda: lane.ended)
            said = here._resume()
        eventually(lambda: not any(each.name == "s" for each in here.remote_sources.values()) and here.over)
        assert there.link is not None
        there.on_frame(said[4:], there.link)
        other.publish(b"last")
        eventually(lambda: any(each.name == "other" and each.received for each in here.remote_sources.values()))
        assert lane.kept, "a sink still has these events"
        go.set()
        log.until(lambda events: b"last" in events)
        assert a.flush(GUARD) and not lane.kept
        assert log.events == [b"0", b"1", b"2", b"3", b"4", b"last"]
        eventually(lambda: [each.name for each in here.remote_sources.values()] == ["other"])


def test_flushing_waits_for_the_next_link_of_a_node_that_is_there() -> None:
    log, held = Log(), list[Peer]()
    with nodes() as make:
        source, a, there, here = pair(make, bytes, log)
        connects = {}
        for node in make.opened:
            links = node._engine.links
            connects[node.name], links.connect = links.connect, held.append
        assert there.link is not None
        there.link.close("cut")
        eventually(lambda: there.link is None and here.link is None)
        source.publish(b"1")
        flushed: list[bool] = []
        lane = there.by_sid[source.number]
        looks, wait = list[None](), lane.wait
        lane.wait = lambda *args: (looks.append(None), wait(*args))[1]  # type: ignore[method-assign]
        flushing = threading.Thread(target=lambda: flushed.append(a.flush(GUARD)))
        flushing.start()
        flushing.join(0.3)  # it would have given up by now
        assert flushed == [] and len(looks) < 50, "it waits, and does not look again and again"
        for node in make.opened:
            node._engine.links.connect = connects[node.name]
        connects["b"](here)
        flushing.join(GUARD)
        assert flushed == [True] and log.events == [b"1"]


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
