"""Order and zones across nodes: the four combinations of delivery and order (those of the HLA), with sources on three
nodes and a sink on a fourth."""

from __future__ import annotations

import threading
from time import monotonic
from typing import Any

import pytest

from headwater import BestEffort, Event, Node, Reliable, i64, u32
from headwater.channel.time.steady_time import SteadyTime
from headwater.federation.network import Network
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes, see

CHANNEL = "ie.tcd.sighting"


class Sighting(Event, name="ie.tcd.Sighting"):
    badge: u32
    turn: i64 = 0


class Stamped(Log):
    """With the time and the source of each event."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Any, str, int]] = []

    def __call__(self, event: Any, about: Any) -> None:  # type: ignore[override]
        self.seen.append((about.time, about.source, event.turn))
        super().__call__(event)

    def of(self, source: str) -> list[int]:
        return [turn for _, name, turn in self.seen if name == source]


def four(make: Nodes, **options: Any) -> tuple[Node, list[Node]]:
    desk = make("desk", **options)
    others = [make(name) for name in ("x", "y", "z")]
    make.together()
    return desk, others


@pytest.mark.parametrize("delivery", [Reliable(), BestEffort()], ids=["reliable", "best effort"])
@pytest.mark.parametrize("order", ["receive", "timestamp"])
def test_the_four_combinations(delivery: Any, order: Any) -> None:
    count = 300
    with nodes() as make:
        desk, others = four(make)
        sources = [node.channel(CHANNEL, Sighting).source(node.name) for node in others]
        log, filtered = Stamped(), Stamped()
        channel = desk.channel(CHANNEL, Sighting)
        subscription = channel.subscribe(log, delivery=delivery, order=order)
        channel.subscribe(filtered, "turn % 3 == 0", delivery=delivery, order=order)
        own = channel.source("desk")
        make.ready(desk)
        start = threading.Barrier(5)

        def publish(source: Any) -> None:
            start.wait(GUARD)
            for turn in range(count):
                source.publish(badge=1, turn=turn)

        threads = [threading.Thread(target=publish, args=(source,)) for source in (*sources, own)]
        for thread in threads:
            thread.start()
        start.wait(GUARD)
        for thread in threads:
            thread.join(GUARD)
        make.flush()
        log.wait(4 * count)  # on loopback nothing is lost, also where it might be
        filtered.wait(4 * count // 3)
        for name in ("x", "y", "z", "desk"):
            assert log.of(name) == list(range(count))  # the order of each source, in any case
            assert filtered.of(name) == list(range(0, count, 3))
        if order == "timestamp":
            assert subscription.counts.late == 0
            for each in (log, filtered):
                times = [time for time, _, _ in each.seen]
                assert times == sorted(times)


def test_a_silent_source_holds_the_others_back_for_a_moment_only() -> None:
    with nodes() as make:
        desk, others = four(make)
        sources = [node.channel(CHANNEL, Sighting).source(node.name) for node in others]
        log = Stamped()
        desk.channel(CHANNEL, Sighting).subscribe(log, order="timestamp")
        make.ready(desk)
        for turn in range(20):  # y and z never say anything
            begun = monotonic()
            sources[0].publish(badge=1, turn=turn)
            log.wait(turn + 1)
            assert monotonic() - begun < 10  # heartbeats: a twentieth of a second, on a machine that has time
        assert log.of("x") == list(range(20))


def test_a_node_that_is_gone_does_not_hold_back_for_ever() -> None:
    with nodes() as make:
        desk, others = four(make, network=Network(listen="tcp/127.0.0.1:0", lease=1.0))
        sources = [node.channel(CHANNEL, Sighting).source(node.name) for node in others]
        log = Stamped()
        desk.channel(CHANNEL, Sighting).subscribe(log, order="timestamp")
        make.ready(desk)
        for source in sources:
            source.publish(badge=1, turn=0)
        log.wait(3)
        others[2].close(drain=False)
        sources[0].publish(badge=1, turn=1)
        log.wait(4)
        # one that does not say goodbye
        engine = others[1]._engine
        assert engine is not None
        engine.fabric.close()
        engine.listener.close()  # type: ignore[union-attr]
        for peer in engine.everyone():
            engine.context.closed = True  # it calls nobody any more
            if peer.link is not None:
                peer.link.close("cut by the test")
        assert desk.until(lambda: "y" not in desk.peers, GUARD)
        for turn in range(2, 10):
            sources[0].publish(badge=1, turn=turn)
        log.wait(12)
        assert log.of("x") == list(range(10))
        engine.context.closed = False


def test_a_clock_that_is_set_back_makes_no_event_late() -> None:
    """A source that has promised a time goes on from there, whatever its clock says."""
    with nodes() as make:
        desk, others = four(make)
        stamp, back = others[1]._stamp, 0
        others[1]._steady = SteadyTime(lambda: stamp() - back)
        sources = [node.channel(CHANNEL, Sighting).source(node.name) for node in others]
        log = Stamped()
        subscription = desk.channel(CHANNEL, Sighting).subscribe(log, order="timestamp")
        make.ready(desk)
        sources[0].publish(badge=1, turn=0)
        log.wait(1)
        back = 3_600_000_000_000
        for turn in range(5):
            sources[1].publish(badge=1, turn=turn)
        log.wait(6)
        assert log.of("y") == list(range(5)) and subscription.counts.late == 0


def test_zones_of_remote_sources_and_sinks() -> None:
    with nodes() as make:
        desk, others = four(make)
        zones: list[Any] = ["north", ["north", "south"], None]
        sources = [
            node.channel(CHANNEL, Sighting).source(node.name, zones=zone)
            for node, zone in zip(others, zones, strict=True)
        ]
        logs = {zone: Stamped() for zone in ("north", "south", "east", None)}
        channel = desk.channel(CHANNEL, Sighting)
        for zone, log in logs.items():
            channel.subscribe(log, "badge > 0", zones=zone)
        batches = Log()
        channel.subscribe(lambda rows: [batches(turn) for turn in rows["turn"].to_pylist()], batch=True, zones="south")
        make.ready(desk)

        def everyone(turn: int) -> None:
            for source in sources:
                source.publish(badge=1, turn=turn)
            logs[None].wait(3 * (turn + 1))
            make.flush()

        everyone(0)
        heard = {zone: sorted(name for _, name, turn in log.seen if turn == 0) for zone, log in logs.items()}
        assert heard == {"north": ["x", "y", "z"], "south": ["y", "z"], "east": ["z"], None: ["x", "y", "z"]}
        # A source goes elsewhere between two of its events.
        sources[0].move("east")
        everyone(1)
        sources[2].move("north")
        everyone(2)
        heard = {zone: sorted(f"{name}{turn}" for _, name, turn in log.seen if turn) for zone, log in logs.items()}
        assert heard["north"] == ["y1", "y2", "z1", "z2"]
        assert heard["south"] == ["y1", "y2", "z1"]
        assert heard["east"] == ["x1", "x2", "z1"]
        eventually(lambda: sorted(batches.events) == [0, 0, 1, 1, 2])
        # A sink that comes later hears of the zones as they are now.
        late = Stamped()
        channel.subscribe(late, zones=["east"])
        make.ready(desk)
        everyone(3)
        assert [name for _, name, _ in late.seen] == ["x"]


def test_what_is_in_no_zone_of_a_node_does_not_cross() -> None:
    with nodes() as make:
        lab, desk = make("lab"), make("desk")
        make.together()
        north = lab.channel(CHANNEL, Sighting).source("n", zones="north")
        log = Log()
        see(desk, lab)
        desk.channel(CHANNEL, Sighting).subscribe(log, zones="south")
        make.ready(desk)
        assert lab._engine is not None
        (peer,) = lab._engine.everyone()
        before = peer.bytes_out
        for turn in range(100):
            north.publish(badge=1, turn=turn)
        assert peer.bytes_out == before
        north.move("south")
        north.publish(badge=1, turn=100)
        assert log.wait(1)[0].turn == 100


def test_a_source_that_moves_while_it_publishes_in_order_of_time() -> None:
    with nodes() as make:
        desk, others = four(make)
        sources = [node.channel(CHANNEL, Sighting).source(node.name, zones="north") for node in others]
        log = Stamped()
        subscription = desk.channel(CHANNEL, Sighting).subscribe(log, order="timestamp", zones="north")
        make.ready(desk)
        for turn in range(60):
            if turn % 10 == 5:
                sources[0].move("south" if turn % 20 == 5 else "north")
            for source in sources:
                source.publish(badge=1, turn=turn)
        inside = [turn for turn in range(60) if (turn + 5) // 10 % 2 == 0]
        log.wait(120 + len(inside))
        make.flush()
        assert log.of("x") == inside and log.of("y") == log.of("z") == list(range(60))
        # Of a source elsewhere nobody waits for a promise: when it comes back, its first events may be late.
        late = subscription.counts.late
        times = [time for time, name, _ in log.seen if not late or name != "x"]
        assert times == sorted(times) and late <= len(inside)
