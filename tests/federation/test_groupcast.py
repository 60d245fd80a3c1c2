"""Events that several nodes want go to a multicast group: once for all, and nothing is lost that must not be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from headwater import Event, Reliable, u32
from headwater.channel.options.config import Queue
from headwater.channel.options.delivery import BestEffort
from headwater.errors import ConfigError
from headwater.federation.address_map import FixedGroups, Group, HashedGroups
from headwater.federation.multicast.groups import check
from headwater.federation.multicast.track import ACKNOWLEDGED_BYTES
from headwater.federation.network import Network
from headwater.federation.security.settings import Rule, Security
from headwater.federation.send.pending import Numbered
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes
from tests.federation.nursery import Popen

CHANNEL, OTHER = "ie.tcd.sighting", "ie.tcd.weather"
_PORTS = count(20_000 + os.getpid() % 20_000)


class Sighting(Event, name="ie.tcd.Sighting"):
    badge: u32
    level: float
    room: str | None = None


def network(**more: Any) -> Network:
    """With groups that no other test uses."""
    return Network(**{"multicast": HashedGroups(port=next(_PORTS), base="239.255.77.0"), **more})


def lab_and(make: Nodes, sinks: int, shared: Network | None = None) -> tuple[Any, list[Any]]:
    shared = network() if shared is None else shared
    lab = make("lab", network=shared, listen="tcp/127.0.0.1:0")
    return lab, [make(f"desk{n}", network=shared, connect=lab.endpoints[0]) for n in range(sinks)]


def every(n: int) -> Callable[[int], bool]:
    """Each datagram of which the number divides by that is lost."""
    return lambda counter: counter % n == 0


def badges(log: Log, upto: int) -> None:
    log.wait(upto)
    assert log.field("badge") == list(range(upto))


# ── one datagram for all ──


def sent_for(sinks: int, events: int) -> tuple[int, int]:
    """Datagrams, and bytes over streams, for events that are published one by one, each when all have the last."""
    with nodes() as make:
        lab, desks = lab_and(make, sinks)
        source = lab.channel(CHANNEL, Sighting).source("east")
        logs = []
        for desk in desks:
            logs.append(Log())
            desk.channel(CHANNEL, Sighting).subscribe(logs[-1])
        make.ready(*desks)
        for badge in range(events):
            source.publish(badge=badge, level=0.5, room="a room with a long name" * 20)
            for log in logs:
                log.wait(badge + 1)
        assert lab.flush(GUARD)
        for log in logs:
            badges(log, events)
        streams = sum(peer.bytes_out for peer in lab._engine.everyone())
        sent = desks[0]._engine.multicast.counters.received
        eventually(lambda: lab._engine.multicast.counters.sent == sent)  # counted once it has gone
        assert all(desk._engine.multicast.counters.received == sent for desk in desks)
        return sent, streams


def test_one_datagram_serves_all_nodes() -> None:
    one, three = sent_for(1, 50), sent_for(3, 50)
    assert one[0] == three[0] == 50
    assert three[1] < 50 * 480  # not even once over the streams, but for what is said beside events


class Plain(Event):
    """As machine code puts it on its way."""

    badge: u32
    level: float


def test_events_of_numbers_one_by_one() -> None:
    with nodes() as make:
        lab, desks = lab_and(make, 2)
        source = lab.channel(CHANNEL, Plain).source("east")
        logs = []
        for desk in desks:
            logs.append(Log())
            desk.channel(CHANNEL, Plain).subscribe(logs[-1])
        make.ready(*desks)
        for badge in range(200):
            source.publish(Plain(badge, 0.5))
            for log in logs:
                log.wait(badge + 1)
        for log in logs:
            badges(log, 200)
        # A datagram is counted once it has gone, which may be after it has come.
        eventually(lambda: lab._engine.multicast.counters.sent == 200)


def test_what_comes_at_once_goes_in_few_datagrams_and_large_records_go_over_the_streams() -> None:
    with nodes() as make:
        lab, desks = lab_and(make, 2)
        source = lab.channel(CHANNEL, Sighting).source("east")
        logs = []
        for desk in desks:
            logs.append(Log())
            desk.channel(CHANNEL, Sighting).subscribe(logs[-1])
        make.ready(*desks)
        for badge in range(5_000):
            source.publish(badge=badge, level=0.5, room="x" * 100_000 if badge % 1000 == 500 else None)
        rows = pa.RecordBatch.from_pylist(
            [{"badge": badge, "level": 1.0, "room": None} for badge in range(5_000, 20_000)],
            schema=source.channel.type.schema,
        )
        source.publish_many(rows.slice(0, 100))
        source.publish_many(rows.slice(100))
        for log in logs:
            badges(log, 20_000)
        assert [len(event.room) for event in logs[0].events if event.room] == [100_000] * 5
        assert lab.flush(GUARD)
        assert lab._engine.multicast.counters.sent < 5_000
        assert all(not desk._engine.offences for desk in desks)


def test_small_datagrams() -> None:
    """As on an Ethernet: everything is cut so that it fits."""
    with nodes() as make:
        lab, (desk,) = lab_and(make, 1)
        lab._engine.multicast.datagram = 1_400  # before the first group is used
        source = lab.channel(CHANNEL, Sighting).source("east")
        log = Log()
        desk.channel(CHANNEL, Sighting).subscribe(log)
        make.ready(desk)
        rows = [{"badge": badge, "level": 1.0, "room": "r" * (badge % 300)} for badge in range(2_000)]
        source.publish_many(pa.RecordBatch.from_pylist(rows, schema=source.channel.type.schema))
        for badge in range(2_000, 3_000):
            source.publish(badge=badge, level=1.0, room="r" * (badge % 300))
        badges(log, 3_000)
        assert lab.flush(GUARD)
        counters = lab._engine.multicast.counters
        assert counters.bytes_out <= 1_400 * counters.sent
        assert counters.sent >= 3_000 * 150 // 1_400


# ── who is sent to ──


def test_events_that_python_puts_in_go_in_frames_for_datagrams() -> None:
    with nodes() as make:
        lab, (desk,) = lab_and(make, 1)
        source = lab.channel(CHANNEL, Sighting).source("east")
        log = Log()
        desk.channel(CHANNEL, Sighting).subscribe(log)
        make.ready(desk)
        source.publish(badge=0, level=1.0)
        badges(log, 1)
        (lane,) = lab._engine.groups.lanes.values()
        record = source.channel.type.encode(Sighting(badge=1, level=1.0))
        frames = list(lane.frames_of([Numbered(seq, 1, record) for seq in range(2, 2 + lane.room // len(record) * 2)]))
        assert len(frames) > 1 and max(len(frame) for _, _, frame in frames) <= lane.room


def test_only_groups_that_somebody_wants_are_sent_to() -> None:
    groups = FixedGroups({CHANNEL: f"239.255.78.1:{next(_PORTS)}", OTHER: f"239.255.78.2:{next(_PORTS)}"})
    with nodes() as make:
        lab, (desk, cafe) = lab_and(make, 2, network(multicast=groups))
        wanted, unwanted = lab.channel(CHANNEL, Sighting).source("east"), lab.channel(OTHER, Sighting).source("roof")
        third = lab.channel("ie.tcd.third", Sighting).source()  # it has no group: over the streams
        log, over_streams = Log(), Log()
        subscription = desk.channel(CHANNEL, Sighting).subscribe(log)
        cafe.channel("ie.tcd.third", Sighting).subscribe(over_streams)
        make.ready(desk, cafe)
        for badge in range(10):
            wanted.publish(badge=badge, level=1.0)
            unwanted.publish(badge=badge, level=1.0)
            third.publish(badge=badge, level=1.0)
        badges(log, 10)
        badges(over_streams, 10)
        assert lab.flush(GUARD)
        multicast = lab._engine.multicast
        assert [str(group) for group in lab._engine.groups.outlets] == [str(groups.group(CHANNEL))]
        assert multicast.members(groups.group(CHANNEL)) == {desk.id}
        assert desk._engine.multicast.joined == {groups.group(CHANNEL)}
        assert cafe._engine.multicast.joined == frozenset()
        sent = multicast.counters.sent
        assert 0 < sent <= 10
        subscription.cancel()
        assert desk.until(lambda: not desk._engine.multicast.joined, GUARD)
        assert lab.until(lambda: not multicast.members(groups.group(CHANNEL)), GUARD)
        wanted.publish(badge=11, level=1.0)
        assert lab.flush(GUARD)
        assert multicast.counters.sent == sent
        assert len(log.events) == 10


def test_a_second_channel_of_the_same_group_is_ignored_where_nobody_wants_it() -> None:
    one = Group("239.255.79.1", next(_PORTS))
    with nodes() as make:
        lab, (desk, cafe) = lab_and(make, 2, network(multicast=FixedGroups({"ie.**": one})))
        first, second = lab.channel(CHANNEL, Sighting).source("east"), lab.channel(OTHER, Sighting).source("roof")
        logs = Log(), Log()
        for node, name, log in (desk, CHANNEL, logs[0]), (cafe, OTHER, logs[1]):
            node.channel(name, Sighting).subscribe(log)
        make.ready(desk, cafe)
        for badge in range(100):
            first.publish(badge=badge, level=1.0)
            second.publish(badge=badge, level=1.0)
        for log in logs:
            badges(log, 100)
        assert lab.flush(GUARD)
        assert len(lab._engine.groups.outlets) == 1
        for node in desk, cafe:
            assert node._engine.multicast.counters.received == lab._engine.multicast.counters.sent
            assert not node._engine.offences
            assert len(node._engine.peers[lab.id].remote_sources) == 1


def test_nodes_without_multicast_get_the_same_over_the_streams() -> None:
    with nodes() as make:
        lab, (desk,) = lab_and(make, 1)
        plain = make("plain", connect=lab.endpoints[0])
        source, back = lab.channel(CHANNEL, Sighting).source("east"), plain.channel(OTHER, Sighting).source("roof")
        logs = Log(), Log(), Log()
        desk.channel(CHANNEL, Sighting).subscribe(logs[0])
        plain.channel(CHANNEL, Sighting).subscribe(logs[1])
        desk.channel(OTHER, Sighting).subscribe(logs[2])
        make.ready(desk, plain)
        for badge in range(500):
            source.publish(badge=badge, level=1.0)
            back.publish(badge=badge, level=1.0)
        for log in logs:
            badges(log, 500)
        make.flush()
        assert lab._engine.multicast.members(lab._engine.groups.group(CHANNEL)) == {desk.id}
        assert plain._engine.multicast is None


def test_filters_of_all_nodes_are_united() -> None:
    with nodes() as make:
        lab, desks = lab_and(make, 3)
        channel = lab.channel(CHANNEL, Sighting)
        source = channel.source("east")
        interests = ["badge < 10", "badge < 10", "badge >= 90"]
        logs = [Log() for _ in desks]
        subscriptions = [
            desk.channel(CHANNEL, Sighting).subscribe(log, interest)
            for desk, log, interest in zip(desks, logs, interests, strict=True)
        ]
        make.ready(*desks)
        shared = [entry for entry in channel.entries.values() if entry.interest is not None]
        assert len(shared) == 2  # two nodes want the same
        assert all(len(entry.members) == 1 for entry in shared)
        for badge in range(100):
            source.publish(badge=badge, level=1.0)
        assert lab.flush(GUARD)
        assert [log.field("badge") for log in logs] == [list(range(10)), list(range(10)), list(range(90, 100))]
        (lane,) = lab._engine.groups.lanes.values()
        assert lane.passed == 20  # nothing that nobody wants
        subscriptions[0].cancel()
        assert lab.until(lambda: desks[0].id not in lane.crossing.shares, GUARD)
        subscriptions[2].change(where="badge < 5")
        make.ready(*desks)
        for badge in range(100):
            source.publish(badge=badge, level=1.0)
        assert lab.flush(GUARD)
        assert [len(log.events) for log in logs] == [10, 20, 15]
        assert logs[2].field("badge") == [*range(90, 100), *range(5)]


def test_sinks_that_need_more_than_datagrams_can_give_go_over_the_streams_and_back() -> None:
    with nodes() as make:
        lab, (desk, cafe) = lab_and(make, 2)
        source = lab.channel(CHANNEL, Sighting).source("east")
        log, beside, second = Log(), Log(), Log()
        channel = desk.channel(CHANNEL, Sighting)
        channel.subscribe(log)
        cafe.channel(CHANNEL, Sighting).subscribe(beside)
        make.ready(desk, cafe)
        go, stop = threading.Event(), threading.Event()
        numbers = count()

        def publish() -> None:
            go.wait()
            while not stop.is_set():
                source.publish(badge=next(numbers), level=1.0)

        publisher = threading.Thread(target=publish, daemon=True)
        publisher.start()
        try:
            go.set()
            for _ in range(3):
                before = len(log.events)
                zoned = channel.subscribe(second, zones={"lab"})  # zones are judged between two events
                make.ready(desk)
                assert not desk._engine.multicast.joined
                log.wait(before + 200)
                zoned.cancel()
                assert desk.until(lambda: bool(desk._engine.multicast.joined), GUARD)
                make.ready(desk)
                log.wait(len(log.events) + 200)
        finally:
            stop.set()
            publisher.join()
        total = next(numbers)
        badges(log, total)
        badges(beside, total)
        assert lab.flush(GUARD)
        assert not lab._engine.groups.rests


# ── loss ──


@pytest.mark.parametrize("lost", [2, 3, 10])
def test_reliable_sinks_get_everything_in_order_whatever_is_lost(lost: int) -> None:
    with nodes() as make:
        lab, desks = lab_and(make, 3)
        source = lab.channel(CHANNEL, Sighting).source("east")
        logs = []
        for n, desk in enumerate(desks):
            if n:
                desk._engine.groups.lose = every(lost + n - 1)
            logs.append(Log())
            desk.channel(CHANNEL, Sighting).subscribe(logs[-1], delivery=Reliable())
        make.ready(*desks)
        for badge in range(3_000):
            source.publish(badge=badge, level=1.0, room="r" * (badge % 50))
        for log in logs:
            badges(log, 3_000)
        assert lab.flush(GUARD)
        assert desks[1]._engine.multicast.counters.lost > 0
        (lane,) = lab._engine.groups.lanes.values()
        assert not lane.kept  # what all have is not kept
        (remote_source,) = desks[1]._engine.peers[lab.id].remote_sources.values()
        assert remote_source.lost == 0


def test_the_last_datagram_is_missed_as_well() -> None:
    with nodes() as make:
        lab, (desk,) = lab_and(make, 1)
        source = lab.channel(CHANNEL, Sighting).source("east")
        log = Log()
        desk.channel(CHANNEL, Sighting).subscribe(log)
        make.ready(desk)
        desk._engine.groups.lose = lambda counter: True
        for badge in range(3):
            source.publish(badge=badge, level=1.0)
        badges(log, 3)  # not one datagram has come
        assert lab.flush(GUARD)
        assert desk._engine.multicast.counters.received == 0


def test_best_effort_sinks_go_on_and_count_what_is_lost() -> None:
    with nodes() as make:
        lab, (desk, cafe) = lab_and(make, 2)
        source = lab.channel(CHANNEL, Sighting).source("east")
        log, whole = Log(), Log()
        desk.channel(CHANNEL, Sighting).subscribe(log, "badge >= 100", delivery=BestEffort())
        cafe.channel(CHANNEL, Sighting).subscribe(whole, "badge >= 100", delivery=Reliable())
        make.ready(desk, cafe)
        desk._engine.groups.lose = every(3)
        for badge in range(1_100):
            source.publish(badge=badge, level=1.0)
            if badge % 10 == 0 and badge >= 100:
                whole.wait(badge - 99)  # many datagrams
        whole.wait(1_000)
        assert lab.flush(GUARD)
        (remote_source,) = desk._engine.peers[lab.id].remote_sources.values()
        eventually(
            lambda: len(log.events) + remote_source.lost == 1_000, f"{len(log.events)} and {remote_source.lost} lost"
        )
        assert 0 < remote_source.lost < 1_000
        assert log.field("badge") == sorted(set(log.field("badge")))
        assert whole.field("badge") == list(range(100, 1_100))


def test_a_slow_sink_holds_the_publisher_and_not_other_channels() -> None:
    queue = Queue(limit=256, policy="block")
    with nodes() as make:
        lab, (desk,) = lab_and(make, 1, network(link=queue))
        slow, quick = lab.channel(CHANNEL, Sighting).source("east"), lab.channel(OTHER, Sighting).source("roof")
        gate, quick_log, slow_log = threading.Event(), Log(), Log()

        def wait(event: Any) -> None:
            gate.wait()
            slow_log(event)

        desk.channel(CHANNEL, Sighting).subscribe(wait, queue=queue, dispatch="pool")
        desk.channel(OTHER, Sighting).subscribe(quick_log)
        make.ready(desk)
        publisher = threading.Thread(target=lambda: [slow.publish(badge=n, level=1.0) for n in range(2_000)])
        publisher.start()
        (lane,) = [each for each in lab._engine.groups.lanes.values() if each.source is slow]
        eventually(lambda: lane.is_full, "the link is full")
        for badge in range(100):
            quick.publish(badge=badge, level=1.0)
        badges(quick_log, 100)
        assert publisher.is_alive()
        assert lane.waiting <= 2 * 256
        gate.set()
        publisher.join(GUARD)
        badges(slow_log, 2_000)
        assert lab.flush(GUARD)


def test_what_is_published_while_a_node_goes_back_to_a_group_that_has_its_interest_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with nodes() as make:
        lab, (desk, cafe) = lab_and(make, 2)
        source, log = lab.channel(CHANNEL, Sighting).source("east"), Log()
        desk.channel(CHANNEL, Sighting).subscribe(log)
        cafe.channel(CHANNEL, Sighting).subscribe(Log())
        zoned = desk.channel(CHANNEL).subscribe(Log(), zones={"lab"})
        make.ready(desk, cafe)
        move, threads = lab._wiring.move, list[threading.Thread]()

        def slowly(*args: Any, **options: Any) -> None:
            move(*args, **options)
            if not threads:
                threads.append(threading.Thread(target=source.publish, kwargs={"badge": 0, "level": 1.0}))
                threads[0].start()
                eventually(lambda: source.seq == 1)

        monkeypatch.setattr(lab._wiring, "move", slowly)
        zoned.cancel()
        assert desk.until(lambda: bool(desk._engine.multicast.joined), GUARD)
        make.ready(desk)
        threads[0].join(GUARD)
        badges(log, 1)


class Meanwhile(set[Any]):
    """A set from which nothing is removed before something else has happened."""

    def __init__(self, all: Iterable[Any], then: Callable[[], None]) -> None:
        super().__init__(all)
        self._then: Callable[[], None] | None = then

    def discard(self, one: Any) -> None:
        then, self._then = self._then, None
        if then is not None:
            then()
        super().discard(one)


def acknowledged(sink: Any) -> None:
    """All that has come there was dealt with, and nobody has to look after it any more."""
    eventually(lambda: not any(peer.unacknowledged for peer in sink._engine.everyone()))
    eventually(lambda: not sink._engine.scheduler.ticking)


@pytest.mark.parametrize("shared", [network(), Network()], ids=["group", "link"])
def test_what_comes_while_all_before_it_is_acknowledged_is_acknowledged_too(shared: Network) -> None:
    with nodes() as make:
        lab, (desk,) = lab_and(make, 1, shared)
        source, log = lab.channel(CHANNEL, Sighting).source("east"), Log()
        desk.channel(CHANNEL, Sighting).subscribe(log)
        make.ready(desk)
        (peer,) = desk._engine.everyone()

        def another() -> None:
            source.publish(badge=1, level=0.5)
            log.wait(2)

        peer.unacknowledged = Meanwhile(peer.unacknowledged, another)
        source.publish(badge=0, level=0.5)
        badges(log, 2)
        assert lab.flush(GUARD)


def test_what_is_acknowledged_before_sinks_have_done_with_it_is_looked_at_again() -> None:
    """After so many bytes an acknowledgement does not wait for its time; but there may be nothing to say yet."""
    with nodes() as make:
        lab, (desk,) = lab_and(make, 1)
        source, log, go = lab.channel(CHANNEL, Sighting).source("east"), Log(), threading.Event()
        desk.channel(CHANNEL, Sighting).subscribe(lambda event: (go.wait(GUARD), log(event)), dispatch="pool")
        make.ready(desk)
        (remote,) = [each for each in desk.channel(CHANNEL).sources.values() if not each.local]
        acknowledged(desk)
        remote.track._bytes = ACKNOWLEDGED_BYTES
        source.publish(badge=0, level=0.5)
        eventually(lambda: remote.seq == 1 and not remote.track._bytes)
        acknowledging = desk._engine.everyone()[0]._acknowledging
        with acknowledging:  # it was looked at
            pass
        go.set()
        badges(log, 1)
        assert lab.flush(GUARD)


def test_a_lost_datagram_that_went_out_when_all_before_it_was_told_of_is_sent_again() -> None:
    with nodes() as make:
        lab, (desk,) = lab_and(make, 1)
        source, log = lab.channel(CHANNEL, Sighting).source("east"), Log()
        desk.channel(CHANNEL, Sighting).subscribe(log)
        make.ready(desk)
        groups = lab._engine.groups

        def lost() -> None:
            desk._engine.groups.lose = lambda counter: True
            source.publish(badge=1, level=0.5)

        groups.unsaid = Meanwhile(groups.unsaid, lost)
        source.publish(badge=0, level=0.5)
        badges(log, 2)
        assert lab.flush(GUARD)


# ── who comes and goes ──


def test_nodes_join_and_leave_while_events_flow() -> None:
    with nodes() as make:
        shared = network()
        lab, (desk,) = lab_and(make, 1, shared)
        source = lab.channel(CHANNEL, Sighting).source("east")
        log = Log()
        desk.channel(CHANNEL, Sighting).subscribe(log)
        make.ready(desk)
        desk._engine.groups.lose = every(5)
        stop, numbers = threading.Event(), count()

        def publish() -> None:
            while not stop.is_set():
                source.publish(badge=next(numbers), level=1.0)

        publisher = threading.Thread(target=publish, daemon=True)
        publisher.start()
        try:
            for n in range(3):
                late = make(f"late{n}", network=shared, connect=lab.endpoints[0])
                late._engine.groups.lose = every(4)
                late_log = Log()
                late.channel(CHANNEL, Sighting).subscribe(late_log)
                make.ready(late)
                late_log.wait(500)
                seen = late_log.field("badge")[:500]
                assert seen == list(range(seen[0], seen[0] + 500))
                late.close()
                assert lab.until(lambda: len(lab._engine.everyone()) == 1, GUARD)
                log.wait(len(log.events) + 100)
        finally:
            stop.set()
            publisher.join()
        badges(log, next(numbers))
        assert lab.flush(GUARD)
        (lane,) = lab._engine.groups.lanes.values()
        assert list(lane.crossing.shares) == [desk.id]


def test_a_broken_link_loses_nothing() -> None:
    with nodes() as make:
        lab, (desk,) = lab_and(make, 1)
        source = lab.channel(CHANNEL, Sighting).source("east")
        log = Log()
        desk.channel(CHANNEL, Sighting).subscribe(log)
        make.ready(desk)
        desk._engine.groups.lose = every(2)
        for badge in range(2_000):
            source.publish(badge=badge, level=1.0)
            if badge % 500 == 250:
                link = lab._engine.peers[desk.id].link
                if link is not None:
                    link.close("for a test")
        badges(log, 2_000)
        assert lab.until(lambda: lab._engine.peers[desk.id].link is not None, GUARD)
        eventually(lambda: lab.flush(0.2), "everything is acknowledged")


def test_flushing_waits_for_the_next_link_of_a_node_that_shares_a_group() -> None:
    with nodes() as make:
        lab, (desk,) = lab_and(make, 1)
        source = lab.channel(CHANNEL, Sighting).source("east")
        log, held = Log(), list[Any]()
        desk.channel(CHANNEL, Sighting).subscribe(log)
        make.ready(desk)
        there, here = lab._engine.peers[desk.id], desk._engine.peers[lab.id]
        connects = [node._engine.links.connect for node in (lab, desk)]
        for node in (lab, desk):
            node._engine.links.connect = held.append
        there.link.close("for a test")
        eventually(lambda: there.link is None and here.link is None)
        source.publish(badge=1, level=1.0)
        flushed: list[bool] = []
        flushing = threading.Thread(target=lambda: flushed.append(lab.flush(GUARD)))
        flushing.start()
        flushing.join(0.3)  # it would have given up by now
        assert flushed == []
        for node, connect in zip((lab, desk), connects, strict=True):
            node._engine.links.connect = connect
        connects[1](here)
        flushing.join(GUARD)
        assert flushed == [True] and log.field("badge") == [1]


def test_sources_that_come_and_go() -> None:
    with nodes() as make:
        lab, (desk,) = lab_and(make, 1)
        channel = lab.channel(CHANNEL, Sighting)
        log = Log()
        desk.channel(CHANNEL, Sighting).subscribe(log)
        first = channel.source("first")
        make.ready(desk)
        desk._engine.groups.lose = every(3)
        for n in range(20):
            with channel.source(f"source{n}") as source:
                source.publish(badge=2 * n, level=1.0)
                source.publish(badge=2 * n + 1, level=1.0)
        log.wait(40)
        assert sorted(log.field("badge")) == list(range(40))
        assert desk.until(lambda: len(desk._engine.peers[lab.id].remote_sources) == 1, GUARD)
        eventually(lambda: len(lab._engine.groups.lanes) == 1, "lanes of sources that are gone end")
        first.publish(badge=40, level=1.0)
        log.wait(41)


CHILD = """
import json, sys
from headwater.federation.address_map import HashedGroups
from headwater.federation.network import Network
from headwater.federation.node import Node

endpoint, channel, base, port, count = sys.argv[1:]
network = Network(multicast=HashedGroups(base=base, port=int(port)))
seen = []
with Node("child", network=network, connect=endpoint) as node:
    assert node.until(lambda: node.has_channel(channel), 30)
    node._engine.groups.lose = lambda counter: counter % 4 == 0
    node.channel(channel).subscribe(lambda event: seen.append(event.badge))
    assert node.until(lambda: bool(node.remote_sources(channel)), 30) and node.ready(30)
    print("ready", flush=True)
    assert node.until(lambda: len(seen) >= int(count), 30), len(seen)
    counters = node._engine.multicast.counters
    print(json.dumps([seen, counters.received, counters.lost]), flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(lab: Any, shared: Network, events: int) -> Iterator[subprocess.Popen[bytes]]:
    """A node in another process that wants this many events."""
    groups = shared.multicast
    assert isinstance(groups, HashedGroups)
    child = Popen(
        [sys.executable, "-c", CHILD, lab.endpoints[0], CHANNEL, groups.base, str(groups.port), str(events)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield child
    finally:
        child.communicate(timeout=GUARD)


def test_nodes_in_other_processes_of_which_one_dies() -> None:
    shared = network(keep=0.2, lease=1.0)
    with nodes() as make:
        lab, (desk,) = lab_and(make, 1, shared)
        source = lab.channel(CHANNEL, Sighting).source("east")
        log = Log()
        desk.channel(CHANNEL, Sighting).subscribe(log)
        make.ready(desk)
        with another_process(lab, shared, 2_000) as child:
            for badge in range(2_000):
                source.publish(badge=badge, level=1.0)
            assert child.stdout is not None
            seen, received, lost = json.loads(child.stdout.readline())
            assert seen == list(range(2_000))
            assert received > 0
            assert lost > 0
            badges(log, 2_000)
            assert len(lab._engine.multicast.members(lab._engine.groups.group(CHANNEL))) == 2
            child.kill()
            for badge in range(2_000, 4_000):
                source.publish(badge=badge, level=1.0)
            badges(log, 4_000)  # it holds nobody up
            (lane,) = lab._engine.groups.lanes.values()
            eventually(lambda: not lane.kept, "what is kept for it is given up")
            assert list(lane.crossing.shares) == [desk.id]
            assert lab._engine.multicast.members(lab._engine.groups.group(CHANNEL)) == {desk.id}


# ── settings ──


def test_where_multicast_may_be_used() -> None:
    check(network())
    users = Security(user="ann", password="secret one", users={"ann": "secret one"}, rules=[Rule("**", "*")])
    with pytest.raises(ConfigError, match="16 to 64 bytes that all nodes share"):
        check(network(security=users))
    check(network(security=users, multicast_key="00" * 32))
    with pytest.raises(ConfigError, match="not loopback"):
        check(network(multicast_interface="10.1.2.3"))
    with pytest.raises(ConfigError, match="multicast_key"):
        network(multicast_key="no digits")
    with pytest.raises(ConfigError, match="an address map"):
        Network(multicast="239.1.2.3:7450")  # type: ignore[arg-type]
    assert "00" * 32 not in repr(network(multicast_key="00" * 32))


def test_channels_that_not_everybody_may_read_are_not_multicast() -> None:
    def rules(*rules: Rule) -> Network:
        users = {"ann": "secret one"}
        security = Security(user="ann", password="secret one", users=users, rules=rules)
        return network(security=security, multicast_key=b"k" * 32)

    shared = rules(Rule("ie.tcd.secret", "user:ann"), Rule("ie.tcd.hidden", "user:bob", may=()), Rule("**", "*"))
    with nodes() as make:
        lab, (desk,) = lab_and(make, 1, shared)
        names = ["ie.tcd.open", "ie.tcd.secret", "ie.tcd.hidden"]
        sources = [lab.channel(name, Sighting).source() for name in names]
        log = Log()
        for name in names:
            desk.channel(name, Sighting).subscribe(log)
        make.ready(desk)
        for source in sources:
            source.publish(badge=1, level=1.0)
        log.wait(3)
        assert lab.flush(GUARD)
        shares = {shared.channel.name for shared in lab._engine.groups.crossings.values() if shared.shares}
        assert shares == {"ie.tcd.open", "ie.tcd.secret"}
        assert lab._engine.groups.summary()["datagrams"]["sent"] == 2
