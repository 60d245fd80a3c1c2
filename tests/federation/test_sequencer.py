"""One order for all: sequencers, and those that stand by."""

from __future__ import annotations

import subprocess
import sys
import threading
from time import monotonic, time_ns
from typing import Any

import pyarrow as pa
import pytest

from headwater import Event, Network, i64
from headwater.errors import ChannelError, FederationError, SubscriptionError
from headwater.federation.node import Node
from headwater.federation.order import sequencer
from headwater.federation.order.protocol import runs
from headwater.federation.order.sequencer import Sequencer
from headwater.federation.send.frame_builder import FrameBuilder
from headwater.federation.send.pending import Numbered
from tests.effort import EFFORT
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes, see
from tests.federation.nursery import Popen

CHANNEL = "ie.tcd.move"
EVENTS = 300


class Move(Event, name="ie.tcd.Move"):
    who: i64
    step: i64


def publish(source: Any, who: int, steps: int = EVENTS, first: int = 0) -> threading.Thread:
    def run() -> None:
        for step in range(first, first + steps):
            source.publish(who=who, step=step)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def ordered(node: Node, log: Log, where: Any = None) -> Any:
    return node.channel(CHANNEL, Move).subscribe(log, where, order="total")


def settle(make: Nodes, *sequencers: Node) -> None:
    """Sequencers know all sources, and all others the sequencers; all that is wanted is in force."""
    for node in make.opened:
        for other in make.opened:
            if node is not other and not (node.closed or other.closed):
                see(node, other)
    for node in make.opened:
        if not node.closed:
            assert node.ready(GUARD)


def steps(log: Log) -> list[tuple[int, int]]:
    return [(event.who, event.step) for event in log.events]


def in_source_order(moves: list[tuple[int, int]]) -> bool:
    return all(
        [step for who, step in moves if who == each] == sorted({step for who, step in moves if who == each})
        for each in {who for who, _ in moves}
    )


def test_all_sinks_see_one_order() -> None:
    with nodes() as make:
        first, second, third = make("first"), make("second"), make("third")
        make.together()
        sources = [node.channel(CHANNEL, Move).source() for node in make.opened]
        logs = [Log(), Log(), Log()]
        subscription = ordered(second, logs[0])
        ordered(third, logs[1])
        ordered(first, logs[2], "step % 10 == 0")
        assert "sequences" in subscription.refused[CHANNEL + ".ordered"]  # nothing comes until someone does
        with first.sequence(CHANNEL) as sequencer:
            assert first.sequence(CHANNEL) is sequencer
            eventually(lambda: not subscription.refused and sequencer.active)
            settle(make)
            for thread in [publish(source, who) for who, source in enumerate(sources)]:
                thread.join()
            logs[0].wait(3 * EVENTS)
            logs[1].wait(3 * EVENTS)
            logs[2].wait(3 * EVENTS // 10)
            assert steps(logs[0]) == steps(logs[1])
            assert steps(logs[2]) == [move for move in steps(logs[0]) if move[1] % 10 == 0]
            assert len(set(steps(logs[0]))) == 3 * EVENTS and in_source_order(steps(logs[0]))
            assert "active" in repr(sequencer)
        assert "closed" in repr(sequencer)


def test_places_and_times() -> None:
    with nodes() as make:
        lab, desk = make("lab"), make("desk")
        make.together()
        source = lab.channel(CHANNEL, Move).source("east")
        sequencer = desk.sequence(desk.channel(CHANNEL, Move))
        came, times = [], []
        sink = desk.channel(CHANNEL).subscribe(lambda event, about: came.append((about.seq, about.time)), order="total")
        lab.channel(CHANNEL).subscribe(lambda event, about: times.append(about.time))
        eventually(lambda: sequencer.active)
        settle(make)
        rows = pa.table({"who": [1] * 500, "step": list(range(500))})
        source.publish_many(rows)
        source.publish(who=1, step=500)
        eventually(lambda: len(came) == 501)
        assert [place for place, _ in came] == list(range(1, 502))
        assert [time for _, time in came] == times
        sink.cancel()


@pytest.mark.parametrize("orderly", [True, False])
def test_another_goes_on_where_the_active_one_ends(orderly: bool) -> None:
    with nodes() as make:
        hub, left, right, near, far = (make(name) for name in ("hub", "left", "right", "near", "far"))
        make.together()
        sources = [node.channel(CHANNEL, Move).source() for node in (near, far, hub)]
        for node in (left, right):
            node.channel(CHANNEL, Move)
        active = left.sequence(CHANNEL)
        eventually(lambda: active.active)
        standby = right.sequence(CHANNEL)
        logs = [Log(), Log()]
        ordered(near, logs[0])
        ordered(far, logs[1])
        settle(make)
        eventually(lambda: standby.following)
        assert not standby.active
        threads = [publish(source, who) for who, source in enumerate(sources)]
        logs[0].wait(EVENTS // 2)
        if orderly:
            active.close()
        else:
            left._engine.close()  # type: ignore[union-attr]  with what it has not sent
        for thread in threads:
            thread.join()
        eventually(lambda: standby.active)
        for thread in [publish(source, who, first=EVENTS) for who, source in enumerate(sources)]:
            thread.join()
        for log in logs:
            log.wait(6 * EVENTS)
        assert steps(logs[0]) == steps(logs[1])
        assert len(set(steps(logs[0]))) == len(steps(logs[0])) == 6 * EVENTS
        assert in_source_order(steps(logs[0]))
        assert standby.missing == 0


PROCESS = """
import sys
from headwater.federation.node import Node
from tests.federation.test_sequencer import CHANNEL, Move
node = Node("left", connect=sys.argv[1])
sequencer = node.sequence(node.channel(CHANNEL, Move))
assert node.until(lambda: sequencer.active, 30)
print("active", flush=True)
sys.stdin.read()
"""


def test_another_goes_on_where_the_active_one_is_killed() -> None:
    with nodes() as make:
        hub, right, near = (make(name) for name in ("hub", "right", "near"))
        make.together()
        process = Popen(
            [sys.executable, "-c", PROCESS, hub.endpoints[0]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None and process.stdout.readline() == "active\n"
            sources = [node.channel(CHANNEL, Move).source() for node in (near, hub)]
            for node in make.opened:
                sees = lambda node=node: "left" in node.peers  # noqa: E731
                assert node.until(sees, GUARD)
            standby = right.sequence(right.channel(CHANNEL, Move))
            logs = [Log(), Log()]
            ordered(near, logs[0])
            ordered(hub, logs[1])
            settle(make)
            eventually(lambda: standby.following)
            warm = [publish(source, who, 1) for who, source in enumerate(sources)]
            for log in logs:
                log.until(lambda events: len({event.who for event in events}) == 2)  # the other process hears all
            threads = [publish(source, who, first=1) for who, source in enumerate(sources)]
            logs[0].wait(EVENTS // 2)
            process.kill()
            for thread in (*warm, *threads):
                thread.join()
            eventually(lambda: standby.active)
            for log in logs:
                log.wait(2 * EVENTS + 2)
            assert steps(logs[0]) == steps(logs[1])
            assert sorted(steps(logs[0])) == [(who, step) for who in range(2) for step in range(EVENTS + 1)]
            assert standby.missing == 0
        finally:
            process.kill()
            process.communicate()


def test_a_leader_that_is_elected_anew_loses_nothing() -> None:
    """What it had on its way in its last term is refused by then: it publishes that again."""
    with nodes() as make:
        left, near, far = (make(name) for name in ("left", "near", "far"))
        make.together()
        sources = [node.channel(CHANNEL, Move).source() for node in (near, far)]
        left.channel(CHANNEL, Move)
        leader = left.sequence(CHANNEL)
        eventually(lambda: leader.active)
        logs = [Log(), Log()]
        ordered(near, logs[0])
        ordered(far, logs[1])
        settle(make)
        assert near._engine is not None
        ballot, turns = near._engine.ballots.of(CHANNEL), 3 if EFFORT == 1 else 8
        for turn in range(turns):
            threads = [publish(source, who, first=turn * EVENTS) for who, source in enumerate(sources)]
            logs[0].wait(2 * turn * EVENTS + EVENTS // 2)
            term = leader.term
            ballot.promised, ballot.voted = ballot.promised + 3, "somebody"  # it has heard of a newer term
            eventually(lambda term=term: leader.active and leader.term > term)
            for thread in threads:
                thread.join()
        for log in logs:
            log.wait(2 * turns * EVENTS)
        assert steps(logs[0]) == steps(logs[1])
        assert sorted(steps(logs[0])) == [(who, step) for who in range(2) for step in range(turns * EVENTS)]
        assert leader.missing == 0


def test_events_that_will_not_come_hold_up_a_new_leader_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have places, and their source has ended: whoever leads next does not wait for each of them."""
    monkeypatch.setattr(sequencer, "ARRIVAL_SECONDS", 0.5)
    with nodes() as make:
        left, near = make("left"), make("near")
        make.together()
        source = near.channel(CHANNEL, Move).source()
        left.channel(CHANNEL, Move)
        leader = left.sequence(CHANNEL)
        eventually(lambda: leader.active)
        log = Log()
        ordered(near, log)
        settle(make)
        publish(source, 0, 10).join()
        log.wait(10)
        lost = 10 * round(GUARD)
        with leader._lock:  # as it comes to lead: with places that the last leader had given
            leader._placed.update({("log/gone/1/gone", n): leader.place + n for n in range(1, lost + 1)})
            leader.place += lost
        publish(source, 0, 10, first=10).join()
        log.wait(20)
        assert steps(log) == [(0, step) for step in range(20)]
        assert leader.missing == lost


def test_no_place_is_given_twice_though_nobody_followed_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies, and the one node that has its last events has no say in who leads next: that one goes on after them."""
    with nodes() as make:
        _, near, far, other, sink = (
            make(name, network=Network(lease=2.0)) for name in ("left", "near", "far", "other", "sink")
        )
        make.together()
        source = near.channel(CHANNEL, Move).source()
        for node in make.opened:
            node.channel(CHANNEL, Move)
        leader = far.sequence(CHANNEL)
        eventually(lambda: leader.active)
        places: list[int] = []
        log = Log()

        def took(event: Move, about: Any) -> None:
            places.append(about.seq)
            log(event)

        sink.channel(CHANNEL).subscribe(took, order="total")
        settle(make)
        publish(source, 0, 10).join()
        log.wait(10)
        monkeypatch.setattr(leader, "_renew", lambda now=False: leader._leased())  # from here on nobody hears of it
        publish(source, 0, 20, first=10).join()
        log.wait(30)
        assert sink._engine is not None and far._engine is not None
        vote = sink._engine.ballots.vote

        def silent(request: Any) -> Any:
            raise FederationError("it is out of reach")

        monkeypatch.setattr(sink._engine.ballots, "vote", silent)
        monkeypatch.setattr(leader, "_resign", lambda: None)
        far.close(drain=False, timeout=2.0)
        successor = other.sequence(CHANNEL)
        eventually(lambda: successor.active)
        monkeypatch.setattr(sink._engine.ballots, "vote", vote)
        settle(make)
        publish(source, 0, 20, first=100).join()
        log.until(lambda events: events[-1].step == 119, "the last event")
        assert steps(log) == [(0, step) for step in (*range(30), *range(100, 120))]
        assert places == sorted(set(places)) and len(places) == 50


class CatchUp:
    """A clock that is half a minute behind."""

    def now(self) -> float:
        return monotonic()

    def time(self) -> int:
        return time_ns() // 1000 - 30_000_000


def test_nodes_whose_clocks_differ() -> None:
    with nodes() as make:
        left, near = make("left"), make("near")
        far = make("far", clock=CatchUp())
        make.together()
        sources = [node.channel(CHANNEL, Move).source() for node in (near, far)]
        left.channel(CHANNEL, Move)
        leader = left.sequence(CHANNEL)
        eventually(lambda: leader.active)
        log = Log()
        ordered(near, log)
        settle(make)
        for step in range(4 * EVENTS):  # some of them side by side in one frame
            for who, source in enumerate(sources):
                source.publish(who=who, step=step)
        log.wait(8 * EVENTS)
        assert len(set(steps(log))) == 8 * EVENTS and in_source_order(steps(log))


def test_a_frame_ends_where_clocks_are_too_far_apart() -> None:
    now, back = time_ns(), 30_000_000_000
    items = [Numbered(1, now, b"a"), Numbered(2, now - back, b"b"), Numbered(3, now, b"c"), Numbered(4, now, b"d")]
    builder: Any = None
    assert [[item.seq for item in FrameBuilder._run(builder, items, start)] for start in (0, 1, 2)] == [
        [1],
        [2],
        [3, 4],
    ]


def test_of_several_that_are_made_at_once_one_is_active() -> None:
    with nodes() as make:
        made = [make(f"node{number}") for number in range(4)]
        make.together()
        for node in made:
            node.channel(CHANNEL, Move)
        start = threading.Barrier(4)

        def begin(node: Node) -> None:
            start.wait(GUARD)
            node.sequence(CHANNEL)

        threads = [threading.Thread(target=begin, args=(node,)) for node in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sequencers = [node._sequencers[CHANNEL] for node in made]
        eventually(
            lambda: all(len(each._others) == 3 and (each.active or any(each._others.values())) for each in sequencers)
        )
        assert sum(each.active for each in sequencers) == 1


def test_what_stands_by_holds_no_more_than_it_must() -> None:
    with nodes() as make:
        left, right, near = (make(name) for name in ("left", "right", "near"))
        make.together()
        source = near.channel(CHANNEL, Move).source()
        for node in (left, right):
            node.channel(CHANNEL, Move)
        active = left.sequence(CHANNEL)
        eventually(lambda: active.active)
        standby = right.sequence(CHANNEL)
        log = Log()
        ordered(near, log)
        settle(make)
        eventually(lambda: standby.following)
        publish(source, 1).join()
        log.wait(EVENTS)
        eventually(lambda: not standby._held and not standby._placed)
        assert standby.floor == standby.place == active.place == EVENTS


def test_a_node_without_a_network_sequences_by_itself() -> None:
    with Node("alone") as node:
        channel = node.channel(CHANNEL, Move)
        sources = [channel.source() for _ in range(3)]
        logs = [Log(), Log()]
        for log in logs:
            channel.subscribe(log, order="total", dispatch="pool")
        for thread in [publish(source, who) for who, source in enumerate(sources)]:
            thread.join()
        sources[0].publish_many([Move(who=0, step=EVENTS), Move(who=0, step=EVENTS + 1)])
        for log in logs:
            log.wait(3 * EVENTS + 2)
        assert steps(logs[0]) == steps(logs[1])
        assert in_source_order(steps(logs[0]))
        raw = node.channel("ie.raw", bytes)
        got: list[bytes] = []
        raw.subscribe(got.append, order="total")
        raw.source().publish(b"x")
        assert got == [b"x"]


def test_what_cannot_be_ordered() -> None:
    with Node("alone") as node:
        channel = node.channel(CHANNEL, Move)
        with pytest.raises(SubscriptionError, match="pattern"):
            node.subscribe("ie.**", print, order="total")
        with pytest.raises(SubscriptionError, match="zones"):
            channel.subscribe(print, order="total", zones="north")
        channel.subscribe(print, order="total")
        with pytest.raises(ChannelError, match="order"):
            Sequencer(node, node.channel(CHANNEL + ".ordered"))


def test_runs() -> None:
    keys = [("a", 1), ("a", 2), ("b", 7), ("a", 3), ("a", 5), ("a", 6)]
    assert list(runs(keys)) == [("a", 1, 2), ("b", 7, 1), ("a", 3, 1), ("a", 5, 2)]
    assert list(runs([])) == []
