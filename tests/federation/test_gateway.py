"""Federations joined by gateways, in every arrangement: each sink gets each event once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Event, Interest, i64
from headwater.errors import FederationError
from headwater.federation.arrive.deduplication import SeenOnce, federation_of, node_of, origin_of
from headwater.federation.gateway.gateway import Gateway
from headwater.federation.interests.conjunction import combined
from headwater.federation.node import Node
from headwater.interest import as_event_type
from tests.effort import examples
from tests.federation.nodes import GUARD, Log, eventually

CHANNEL = "ie.tcd.sighting"


class Sighting(Event, name="ie.tcd.Sighting"):
    x: i64


class Pair(Event):
    x: i64
    y: i64


class World:
    """Federations by name, each of a few nodes that are all connected to its first."""

    def __init__(self) -> None:
        self.federations: dict[str, list[Node]] = {}
        self.gateways: list[Gateway] = []

    def federation(self, name: str, nodes: int = 2, **options: Any) -> list[Node]:
        first = Node(f"{name}0", listen="tcp/127.0.0.1:0", federation=name, **options)
        made = self.federations[name] = [first]
        for number in range(1, nodes):
            made.append(Node(f"{name}{number}", connect=first.endpoints[0], federation=name, **options))
        for node in made:
            assert node.until(lambda node=node: len(node.peers) == nodes - 1, GUARD)
        return made

    def join(self, a: Node, b: Node, *what: Any, **options: Any) -> Gateway:
        gateway = Gateway(a, b, *(what or ("ie.**",)), **options)
        self.gateways.append(gateway)
        return gateway

    def nodes(self) -> Iterator[Node]:
        for nodes in self.federations.values():
            yield from nodes

    def close(self) -> None:
        for gateway in self.gateways:
            gateway.close()
        for node in reversed(list(self.nodes())):
            node.close(drain=False, timeout=2.0)


@contextmanager
def world() -> Iterator[World]:
    made = World()
    try:
        yield made
    finally:
        made.close()


def sees(node: Node, sources: int, channel: str = CHANNEL) -> None:
    """Wait until a node knows so many sources of a channel at other nodes."""
    assert node.until(lambda: len(node.remote_sources(channel)) >= sources, GUARD), node.remote_sources(channel)


def sink(node: Node, where: Any = None, *, sources: int = 1, **options: Any) -> Log:
    """A sink at a node, with everything that it wants in force."""
    sees(node, sources)
    log = Log()
    node.channel(CHANNEL).subscribe(log, where, **options)
    assert node.ready(GUARD)
    return log


def flush(world: World) -> None:
    """Everything has come to where it goes, also by ways that bring nothing new."""

    def still() -> bool:
        return all(relay._mailbox.idle for gateway in world.gateways for relay in gateway.taking)

    for _ in world.gateways:
        for node in world.nodes():
            eventually(lambda node=node: node.flush(1.0) and still(), f"{node}: all that is on its way")


def once(log: Log, expected: Any) -> None:
    wanted = sorted(expected)
    log.wait(len(wanted))
    assert sorted(log.field("x")) == wanted


# ── chains and trees ──


def test_an_interest_by_name_crosses_without_it() -> None:
    with world() as made:
        a, b = made.federation("a"), made.federation("b")
        source = a[1].channel("ie.pair", Pair).source("s")
        made.join(a[0], b[0])
        assert b[1].until(lambda: b[1].has_channel("ie.pair"), GUARD)
        b[1].library.publish("far", "x > :limit", on="ie.pair", params={"limit": 1})
        heard = b[1].channel("ie.pair").subscribe(where="@far/1", params={"limit": 2})
        assert b[1].ready(GUARD)
        assert a[1].until(lambda: bool(a[1].library.running("ie.pair")), GUARD)
        for x in range(5):
            source.publish(x=x, y=0)
        assert [heard.get(timeout=GUARD).x for _ in range(2)] == [3, 4]
        assert {row.what for row in b[0].library.running("ie.pair")} >= {"@far/1"}
        assert not any(row.what.startswith("@") for row in a[1].library.running("ie.pair"))


def test_events_pass_through_a_chain_of_federations() -> None:
    with world() as all:
        a, b, c = (all.federation(name) for name in "ABC")
        all.join(a[0], b[0])
        all.join(b[0], c[0])
        source = a[1].channel(CHANNEL, Sighting).source("east", priority=3)
        came: list[Any] = []
        sees(c[1], 1)
        c[1].channel(CHANNEL).subscribe(lambda e, about: came.append((e.x, about.source, about.seq, about.time)))
        beside, at_gateway = sink(b[1], "x > 5"), sink(b[0], sources=0)
        assert c[1].ready(GUARD)
        times = []
        a[1].channel(CHANNEL).subscribe(lambda event, about: times.append(about.time))
        for x in range(10):
            source.publish(x=x)
        once(beside, range(6, 10))
        once(at_gateway, range(10))
        eventually(lambda: len(came) == 10)
        assert [each[:3] for each in came] == [(x, "east", x + 1) for x in range(10)]  # as they were published
        assert [each[3] for each in came] == times


def test_a_gateway_of_different_nodes_in_the_middle() -> None:
    with world() as all:
        a, b, c = (all.federation(name) for name in "ABC")
        all.join(a[0], b[0])
        all.join(b[1], c[0])
        source = a[0].channel(CHANNEL, Sighting).source()
        log, back = sink(c[1]), sink(c[0], sources=0)
        other = c[1].channel(CHANNEL).source()
        home = sink(a[1], sources=2)
        for x in range(50):
            source.publish(x=x)
            other.publish(x=100 + x)
        once(home, [*range(50), *range(100, 150)])
        once(log, [*range(50), *range(100, 150)])
        once(back, [*range(50), *range(100, 150)])


def test_a_hierarchy_of_federations() -> None:
    with world() as all:
        names = ["top", "left", "right", "leaf"]
        top, left, right, leaf = (all.federation(name) for name in names)
        all.join(top[0], left[0])
        all.join(top[0], right[0])
        all.join(left[1], leaf[0])
        everywhere(all)


def test_a_general_graph_of_federations() -> None:
    with world() as all:
        a, b, c, d = (all.federation(name) for name in "ABCD")
        for first, second in ((a[0], b[0]), (b[1], c[0]), (c[1], d[0]), (d[1], a[1]), (a[0], c[0]), (b[0], d[1])):
            all.join(first, second)
        everywhere(all)


def everywhere(all: World) -> None:
    """A source in each federation, a sink at each node: every event once at each."""
    federations = list(all.federations.values())
    sources = [nodes[-1].channel(CHANNEL, Sighting).source(f"of {nodes[-1].name}") for nodes in federations]
    origins = {
        origin_of(node._engine.network.federation, node.id, node._engine.incarnation, source.number)
        for nodes in federations
        for node in nodes[-1:]
        for source in sources
        if source.channel.node is node and node._engine is not None
    }
    logs = []
    for node in all.nodes():
        assert node.until(lambda node=node: _origins(node) >= origins - _own(node, origins), GUARD)
        node.channel(CHANNEL)
    for node in all.nodes():
        log = Log()
        node.channel(CHANNEL).subscribe(log)
        logs.append(log)
    for _ in federations:
        for node in all.nodes():
            assert node.ready(GUARD)
        for gateway in all.gateways:
            assert gateway.ready(GUARD)
    threads = [threading.Thread(target=_publish, args=(source, at)) for at, source in enumerate(sources)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = [at * 1000 + x for at in range(len(sources)) for x in range(100)]
    for log in logs:
        log.wait(len(wanted))
    flush(all)
    for log in logs:
        once(log, wanted)


def _publish(source: Any, at: int) -> None:
    for x in range(100):
        source.publish(x=at * 1000 + x)


def _origins(node: Node) -> set[str]:
    """Of the sources of the channel that others advertise, or that it passes on itself."""
    engine = node._engine
    assert engine is not None
    found = {
        ad.origin or origin_of(engine.network.federation, peer.id, peer.incarnation, ad.sid)
        for peer in engine.everyone()
        for ad in peer.sources
        if ad.channel == CHANNEL
    }
    for channel in node.channels(CHANNEL):
        found |= {source.origin for source in list(channel.sources.values()) if hasattr(source, "origin")}
    return found


def _own(node: Node, origins: set[str]) -> set[str]:
    return {origin for origin in origins if node_of(origin) == node.name}


# ── cycles and parallel gateways ──


def test_a_ring_neither_loops_nor_duplicates() -> None:
    with world() as all:
        a, b, c = (all.federation(name) for name in "ABC")
        all.join(a[0], b[0])
        all.join(b[1], c[0])
        all.join(c[1], a[1])
        everywhere(all)
        for node in all.nodes():  # nobody wants anything any more: neither do the gateways of each other
            for subscription in list(node.subscriptions.values()):
                if not subscription.name.startswith("gateway"):
                    subscription.cancel()
        eventually(lambda: not any(gateway.taking for gateway in all.gateways), "that gateways ask for nothing")


def test_two_parallel_gateways_deliver_once() -> None:
    with world() as all:
        a, b = all.federation("A", 3), all.federation("B", 3)
        all.join(a[0], b[0])
        all.join(a[1], b[1])
        source = a[2].channel(CHANNEL, Sighting).source()
        log, at_gateway = sink(b[2], sources=2), sink(b[0])
        for x in range(500):
            source.publish(x=x)
        log.wait(500)
        at_gateway.wait(500)
        flush(all)
        assert log.field("x") == list(range(500))  # in order, whichever way each came
        assert at_gateway.field("x") == list(range(500))


def test_parallel_gateways_with_different_filters_complete_each_other() -> None:
    with world() as all:
        a, b, c = all.federation("A", 3), all.federation("B", 3), all.federation("C")
        all.join(a[0], b[0], CHANNEL, "x > 5")
        all.join(a[1], b[1], CHANNEL, "x <= :most", params={"most": 5})
        all.join(b[2], c[0])
        source = a[2].channel(CHANNEL, Sighting).source()
        log, behind = sink(b[2], sources=2), sink(c[1], sources=2)
        for x in range(12):
            source.publish(x=x)
        once(log, range(12))
        once(behind, range(12))
        flush(all)
        once(log, range(12))
        once(behind, range(12))


def test_batches_pass_parallel_gateways_once() -> None:
    with world() as all:
        a, b = all.federation("A", 3), all.federation("B", 3)
        all.join(a[0], b[0])
        all.join(a[1], b[1])
        source = a[2].channel(CHANNEL, Sighting).source()
        log, at_gateway = sink(b[2], "x % 2 == 0", sources=2), sink(b[0])
        rows = pa.table({"x": list(range(3000))})
        source.publish_many(rows)
        source.publish(x=3000)
        log.wait(1501)
        at_gateway.wait(3001)
        flush(all)
        assert log.field("x") == list(range(0, 3001, 2))
        assert at_gateway.field("x") == list(range(3001))


def test_interests_with_state_behind_parallel_gateways() -> None:
    with world() as all:
        a, b = all.federation("A", 3), all.federation("B", 3)
        all.join(a[0], b[0])
        all.join(a[1], b[1])
        source = a[2].channel(CHANNEL, Sighting).source()
        sees(b[0], 1)
        text = "{ static int n = 0; n = n + 1; return n % 5 == 0; }"
        log, at_gateway = sink(b[2], text, sources=2), sink(b[0], text)
        for x in range(100):
            source.publish(x=x)
        log.wait(20)
        at_gateway.wait(20)
        flush(all)
        assert log.field("x") == at_gateway.field("x") == list(range(4, 100, 5))


def test_when_a_gateway_dies_the_parallel_one_goes_on() -> None:
    with world() as all:
        a, b = all.federation("A", 3), all.federation("B", 3)
        first, second = all.join(a[0], b[0]), all.join(a[1], b[1])
        source = a[2].channel(CHANNEL, Sighting).source()
        log = sink(b[2], sources=2)
        for x in range(100):
            source.publish(x=x)
        log.wait(50)
        for node in (a[1], b[1]):
            node._engine.close()  # type: ignore[union-attr]  it is gone, without a word from its gateway
        for x in range(100, 200):
            source.publish(x=x)
        log.wait(200)
        assert log.field("x") == list(range(200))
        assert not first.closed
        second.close()


# ── how far, and what ──


def test_the_time_to_live_counts_gateways() -> None:
    with world() as all:
        a, b, c = (all.federation(name) for name in "ABC")
        all.join(a[0], b[0], ttl=1)
        behind = all.join(b[0], c[0], ttl=1)
        source = a[1].channel(CHANNEL, Sighting).source()
        log = sink(b[1])
        b[1].channel("ie.tcd.other", Sighting).source()
        sees(c[1], 1, "ie.tcd.other")  # all that is to come from B has come
        assert not c[1].has_channel(CHANNEL)
        assert not any("sighting" in name for name in behind.sources(c[0]))
        source.publish(x=1)
        once(log, [1])


def test_only_some_channels_and_one_direction() -> None:
    with world() as all:
        a, b = all.federation("A"), all.federation("B")
        gateway = all.join(a[0], b[0], ["ie.tcd.*", "ie.ucd.**"], "x > 2", both=False)
        for name in ("ie.tcd.sighting", "ie.dcu.sighting", "ie.tcd.sighting.raw"):
            a[1].channel(name, Sighting).source()
        b[1].channel("ie.ucd.back", Sighting).source()
        ucd = a[1].channel("ie.ucd.deep.down", Sighting).source()
        sees(b[1], 1, "ie.ucd.deep.down")
        sees(b[1], 1)
        assert not b[1].has_channel("ie.dcu.sighting") and not b[1].has_channel("ie.tcd.sighting.raw")
        assert not a[1].has_channel("ie.ucd.back")
        log = Log()
        b[1].channel("ie.ucd.deep.down").subscribe(log, "x < 6")
        assert b[1].ready(GUARD)
        for x in range(10):
            ucd.publish(x=x)
        once(log, [3, 4, 5])
        assert gateway.passed == {"ie.tcd.sighting": 0, "ie.ucd.deep.down": 3}  # the rest did not even come to it
        assert gateway.refused == {}


def test_no_listener_no_traffic() -> None:
    with world() as all:
        a, b = all.federation("A"), all.federation("B")
        gateway = all.join(a[0], b[0])
        source = a[1].channel(CHANNEL, Sighting).source()
        sees(b[1], 1)

        def crossed() -> int:
            return sum(peer.bytes_out for node in all.nodes() for peer in node._engine.everyone())  # type: ignore[union-attr]

        assert gateway.ready(GUARD)
        before = crossed()
        for x in range(100):
            source.publish(x=x)
        assert crossed() == before
        log = sink(b[1])
        source.publish(x=100)
        once(log, [100])
        [subscription] = b[1].subscriptions.values()
        subscription.cancel()
        eventually(lambda: not gateway.taking)
        assert a[0].ready(GUARD)
        eventually(lambda: all_quiet(a[1]))
        passed = gateway.passed
        for x in range(100):
            source.publish(x=x)
        assert gateway.passed == passed


def all_quiet(node: Node) -> bool:
    """Nobody wants anything of a node."""
    assert node._engine is not None
    return not any(peer.crossings for peer in node._engine.everyone())


def test_a_change_of_interest_behind_a_gateway() -> None:
    with world() as all:
        a, b = all.federation("A"), all.federation("B")
        all.join(a[0], b[0])
        source = a[1].channel(CHANNEL, Sighting).source()
        sees(b[1], 1)
        log, kept = Log(), Log()
        subscription = b[1].channel(CHANNEL).subscribe(log, "x < 3")
        b[1].channel(CHANNEL).subscribe(kept, "x < 3")
        assert b[1].ready(GUARD)
        for x in range(10):
            source.publish(x=x)
        kept.wait(3)
        log.wait(3)
        subscription.change(where="x >= 7")
        for x in range(10):
            source.publish(x=x)
        once(log, [0, 1, 2, 7, 8, 9])
        once(kept, [0, 1, 2, 0, 1, 2])


def test_sources_come_and_go() -> None:
    with world() as all:
        a, b = all.federation("A"), all.federation("B")
        gateway = all.join(a[0], b[0])
        keeper = a[1].channel(CHANNEL, Sighting).source("keeper")
        log = sink(b[1])
        for x in range(5):
            with a[x % 2].channel(CHANNEL, Sighting).source(f"brief {x}") as brief:
                for more in range(10):
                    brief.publish(x=10 * x + more)
        if gateway.ready(GUARD):
            once(log, range(50))
        eventually(lambda: len(gateway.sources(b[0])) == 1)
        keeper.publish(x=50)
        once(log, range(51))
        keeper.close()
        eventually(lambda: not gateway.sources(b[0]))
        assert b[1].until(lambda: not b[1].remote_sources(CHANNEL), GUARD)
        assert gateway.passed == {CHANNEL: 51}


def test_zones_and_derived_channels_and_bytes() -> None:
    with world() as all:
        a, b = all.federation("A"), all.federation("B")
        all.join(a[0], b[0])
        channel = a[1].channel(CHANNEL, Sighting)
        channel.derive("ie.tcd.loud", "x > 5")
        north, south = channel.source("north", zones="north"), channel.source("south", zones="south")
        raw = a[1].channel("ie.raw", bytes).source()
        sees(b[1], 2)
        sees(b[1], 1, "ie.raw")
        assert b[1].until(lambda: b[1].has_channel("ie.tcd.loud"), GUARD)
        logs = [Log(), Log(), Log(), Log()]
        b[1].channel(CHANNEL).subscribe(logs[0], zones="north")
        b[1].channel(CHANNEL).subscribe(logs[1], zones=["south", "west"])
        b[1].channel("ie.tcd.loud").subscribe(logs[2])
        b[1].channel("ie.raw").subscribe(logs[3])
        assert b[1].ready(GUARD)
        for x in range(10):
            north.publish(x=x)
            south.publish(x=100 + x)
        raw.publish(b"as it is")
        once(logs[0], range(10))
        once(logs[1], range(100, 110))
        once(logs[2], [*range(6, 10), *range(100, 110)])
        assert logs[3].wait(1) == [b"as it is"]


def test_types_that_do_not_fit_are_refused() -> None:
    with world() as all:
        a, b = all.federation("A"), all.federation("B")
        a[1].channel(CHANNEL, Sighting).source()
        b[0].channel(CHANNEL, "x: text")
        gateway = all.join(a[0], b[0])
        eventually(lambda: CHANNEL in gateway.refused)
        a[1].channel("ie.other", "z: f64").source()
        filtered = all.join(a[1], b[1], "ie.*", "x > 1")
        eventually(lambda: "ie.other" in filtered.refused)
        assert "x" in filtered.refused["ie.other"]


def test_what_is_wrong_is_said() -> None:
    with world() as all:
        a, b = all.federation("A", 2), all.federation("B", 1)
        with pytest.raises(FederationError, match="both in 'A'"):
            Gateway(a[0], a[1])
        with pytest.raises(FederationError, match="ttl"):
            Gateway(a[0], b[0], ttl=0)
        with pytest.raises(FederationError, match="channels"):
            Gateway(a[0], b[0], [])
        with Node("alone") as alone, pytest.raises(FederationError, match="without"):
            Gateway(a[0], alone)
        with Gateway(a[0], b[0]) as gateway:
            assert "A <-> B" in repr(gateway)
        assert gateway.closed and "closed" in repr(gateway)


# ── parts ──


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 2)), max_size=200))
@settings(deadline=None, max_examples=examples(200))
def test_seen_is_a_set(numbers: list[tuple[int, int]]) -> None:
    seen, known = SeenOnce(), set()
    for number, tag in numbers:
        assert seen.first_time(number, tag) == ((number, tag) not in known)
        known.add((number, tag))


def test_origins() -> None:
    origin = origin_of("my/federation", "a.b.12345678", 17, 3)
    assert (federation_of(origin), node_of(origin)) == ("my/federation", "a.b")
    assert node_of("nonsense") == ""


FILTERS = ["x > 3", "x < 2", "x == 5 or y == 1", "x + y > 6", "x != 4 and y > 0", "not (x > 3)"]


@given(st.sampled_from([None, *FILTERS]), st.lists(st.sampled_from(FILTERS), min_size=1, max_size=4))
@settings(deadline=None, max_examples=examples(40))
def test_what_a_gateway_asks_for(filter: str | None, wants: list[str]) -> None:
    type = as_event_type(Pair)
    where = None if filter is None else Interest(filter, type)
    parts = [Interest(want, type) for want in wants]
    made = combined(where, parts, type)
    assert made is not None
    for x in range(8):
        for y in range(3):
            event = Pair(x=x, y=y)
            wanted = any(part.test(event) for part in parts) and (where is None or where.test(event))
            assert made.test(event) == wanted


def test_what_a_gateway_asks_for_where_that_cannot_be_said() -> None:
    type = as_event_type(Pair)
    where, counts = Interest("x > 1", type), Interest("{ static int n = 0; n = n + 1; return n > 3; }", type)
    assert combined(where, [counts], type) is where
    assert combined(where, [Interest("x > 3", type), None], type) is where
    assert combined(None, [None], type) is None
    limits = [Interest("x > :limit", type, params={"limit": limit}) for limit in (1, 3)]
    pair = combined(Interest("y > :limit", type, params={"limit": 7}), [limits[1], Interest("x < 0", type)], type)
    assert pair is not None and pair.test(Pair(x=4, y=8)) and not pair.test(Pair(x=3, y=8))
