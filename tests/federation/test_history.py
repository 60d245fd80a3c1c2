"""Sinks that come later, and nodes that do: what they begin with, and that nothing is missing or doubled after it."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater import Config, Event, Interest, Node, State, i64, u32
from headwater.channel.routing.letter import Chunk, Letter
from headwater.federation.arrive.deduplication import origin_of
from headwater.federation.arrive.relay import RelaySource
from headwater.federation.network import Network
from headwater.federation.peers.outgoing import Outgoing
from headwater.federation.wire import frames as wire
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes, see

CHANNEL = "ie.tcd.sighting"
KEPT = Config(history=100)


class Sighting(Event, name="ie.tcd.Sighting"):
    badge: u32
    level: float = 0.0


class Tenth(Event, name="ie.tcd.Tenth"):
    badge: u32
    tenth: i64


def pair(make: Nodes, *, near: bool = False, **network: Any) -> tuple[Node, Node]:
    """A node that remembers, and the one whose sinks come later, which may be the same."""
    lab = make("lab", config=KEPT, network=Network(listen="tcp/127.0.0.1:0", **network))
    if near:
        return lab, lab
    desk = make("desk")
    make.together()
    return lab, desk


def every_third(event: Sighting, *, seen: State = State(n=0)) -> bool:
    seen.n += 1
    return seen.n % 3 == 0


def publish(source: Any, badges: range) -> None:
    for badge in badges:
        source.publish(badge=badge)


@pytest.mark.parametrize("near", [True, False], ids=["here", "there"])
def test_the_past_is_filtered_counted_and_followed_by_the_present(near: bool) -> None:
    with nodes() as make:
        lab, desk = pair(make, near=near)
        source = lab.channel(CHANNEL, Sighting).source("east")
        publish(source, range(250))
        if not near:
            see(desk, lab)
        wanted = {
            ("badge % 10 == 0", 3): [220, 230, 240, 250],
            ("badge % 10 == 0", "all"): [*range(150, 250, 10), 250],
            (None, 2): [248, 249, *range(250, 260)],
            (None, "all"): list(range(150, 260)),
            (None, 0): list(range(250, 260)),
            ("badge >= 245", 1000): list(range(245, 260)),
            ("badge < 10", "all"): [],  # no longer remembered
        }
        logs = {key: Log() for key in wanted}
        for (where, history), log in logs.items():
            desk.channel(CHANNEL).subscribe(log, where, history=history)
        make.ready(desk)
        publish(source, range(250, 260))
        for key, log in logs.items():
            log.wait(len(wanted[key]))
        make.flush()
        assert {key: log.field("badge") for key, log in logs.items()} == wanted


@pytest.mark.parametrize("near", [True, False], ids=["here", "there"])
def test_the_last_so_many_are_of_all_sources_of_a_node_together(near: bool) -> None:
    with nodes() as make:
        lab, desk = pair(make, near=near)
        channel = lab.channel(CHANNEL, Sighting)
        sources = [channel.source("east"), channel.source("west")]
        for badge in range(20):
            sources[badge % 2].publish(badge=badge)
        if not near:
            see(desk, lab)
        log = Log()
        desk.channel(CHANNEL).subscribe(log, history=5)
        make.ready(desk)
        log.wait(5)
        make.flush()
        assert sorted(log.field("badge")) == [15, 16, 17, 18, 19]


@pytest.mark.parametrize("near", [True, False], ids=["here", "there"])
def test_interests_with_output_and_state_go_on_from_the_past(near: bool) -> None:
    with nodes() as make:
        lab, desk = pair(make, near=near)
        source = lab.channel(CHANNEL, Sighting).source("east")
        publish(source, range(50))
        if not near:
            see(desk, lab)
        program = "{ output.badge = input.badge; output.tenth = input.badge / 10; return input.badge % 10 == 5; }"
        made = Interest(program, Sighting, output=Tenth)
        thirds, tenths = Log(), Log()
        desk.channel(CHANNEL).subscribe(thirds, every_third, history="all")
        desk.channel(CHANNEL).subscribe(tenths, made, history=2)
        make.ready(desk)
        publish(source, range(50, 60))
        thirds.wait(20)
        tenths.wait(3)
        make.flush()
        assert thirds.field("badge") == [badge for badge in range(60) if (badge + 1) % 3 == 0]
        assert tenths.events == [Tenth(badge=badge, tenth=badge // 10) for badge in (35, 45, 55)]


@pytest.mark.parametrize("near", [True, False], ids=["here", "there"])
def test_several_sinks_of_one_interest_each_begin_with_the_past_once(near: bool) -> None:
    with nodes() as make:
        lab, desk = pair(make, near=near)
        source = lab.channel(CHANNEL, Sighting).source("east")
        if not near:
            see(desk, lab)
        channel = desk.channel(CHANNEL, Sighting)
        logs: list[Log] = []
        for turn in range(4):
            publish(source, range(10 * turn, 10 * turn + 10))
            if turn == 2:
                make.flush()  # what is under way is of no past, and would be seen
            log = Log()
            logs.append(log)
            channel.subscribe(log, "badge % 2 == 0", history=None if turn == 2 else "all")
            make.ready(desk)
        publish(source, range(40, 50))
        for turn, log in enumerate(logs):
            log.wait(10 if turn == 2 else 25)
        make.flush()
        for turn, log in enumerate(logs):
            assert log.field("badge") == list(range(30 if turn == 2 else 0, 50, 2)), turn


@pytest.mark.parametrize("near", [True, False], ids=["here", "there"])
def test_batches_are_remembered_and_begun_with(near: bool) -> None:
    with nodes() as make:
        lab, desk = pair(make, near=near)
        source = lab.channel(CHANNEL, Sighting).source("east")
        rows = {"badge": pa.array(range(5000), pa.uint32()), "level": pa.array([0.5] * 5000, pa.float64())}
        source.publish_many(pa.table(rows))
        if not near:
            see(desk, lab)
        single, rows_seen = Log(), Log()
        channel = desk.channel(CHANNEL)
        channel.subscribe(single, "badge % 25 == 0", history="all")
        channel.subscribe(lambda batch: [rows_seen(row) for row in batch["badge"].to_pylist()], batch=7, history=10)
        make.ready(desk)
        source.publish_many([Sighting(badge=badge) for badge in range(5000, 5100)])
        rows_seen.wait(110)
        single.wait(8)
        make.flush()
        assert rows_seen.events == list(range(4990, 5100))
        assert single.field("badge") == list(range(4900, 5100, 25))


@pytest.mark.parametrize("near", [True, False], ids=["here", "there"])
def test_the_past_does_not_come_again_after_a_change(near: bool) -> None:
    with nodes() as make:
        lab, desk = pair(make, near=near)
        source = lab.channel(CHANNEL, Sighting).source("east")
        publish(source, range(20))
        if not near:
            see(desk, lab)
        log = Log()
        subscription = desk.channel(CHANNEL).subscribe(log, "badge % 2 == 0", history="all")
        make.ready(desk)
        publish(source, range(20, 30))
        log.wait(15)
        subscription.change(where="badge % 2 == 1")
        publish(source, range(30, 40))
        log.wait(20)
        make.flush()
        assert log.field("badge") == [*range(0, 30, 2), *range(31, 40, 2)]


def test_a_node_that_joins_later_learns_all_interests_and_tells_its_past() -> None:
    with nodes() as make:
        lab, desk = pair(make)
        logs = [Log() for _ in range(3)]
        channel = desk.channel(CHANNEL, Sighting)
        channel.subscribe(logs[0], "badge % 2 == 0", history="all")
        channel.subscribe(logs[1], history=3)
        channel.subscribe(logs[2], "badge > 5")
        late = Node("late", config=KEPT, listen="tcp/127.0.0.1:0", connect=lab.endpoints[0])
        source = late.channel(CHANNEL, Sighting).source("west")
        publish(source, range(10))  # before anybody knows of it, as a rule
        make.opened.append(late)
        make.ready(desk)
        publish(source, range(10, 20))
        logs[0].wait(10)
        logs[1].wait(10)
        logs[2].until(lambda events: bool(events) and events[-1].badge == 19)
        make.flush()
        assert logs[0].field("badge") == list(range(0, 20, 2))
        assert logs[1].field("badge")[-13:] == list(range(7, 20))[-len(logs[1].events) :]
        assert logs[2].field("badge") == list(range(logs[2].events[0].badge, 20))


def test_over_the_routed_path() -> None:
    with nodes() as make:
        lab, desk = pair(make, direct=())
        source = lab.channel(CHANNEL, Sighting).source("east")
        publish(source, range(80))
        see(desk, lab)
        log = Log()
        desk.channel(CHANNEL).subscribe(log, "badge > 10", history="all")
        make.ready(desk)
        publish(source, range(80, 90))
        log.wait(79)
        make.flush()
        assert log.field("badge") == list(range(11, 90))


@pytest.mark.parametrize("second", [False, True])
def test_what_runs_at_the_destination_begins_with_the_present(second: bool) -> None:
    """Its source does not judge events for it, nor those of the past; but it waits for nothing either."""
    with nodes() as make:
        lab = make("lab", config=KEPT)
        desk = make("desk", network=Network(connect=lab.endpoints[0], placement="destination"))
        make.together()
        source = lab.channel(CHANNEL, Sighting).source("east")
        publish(source, range(20))
        see(desk, lab)
        if second:
            desk.channel(CHANNEL).subscribe(Log(), "badge > 3")
            make.ready(desk)
        log = Log()
        desk.channel(CHANNEL).subscribe(log, "badge % 2 == 0", history="all")
        make.ready(desk)
        publish(source, range(20, 30))
        log.wait(5)
        make.flush()
        assert log.field("badge") == list(range(20, 30, 2))


@pytest.mark.parametrize("batches", [False, True])
def test_what_a_gateway_passes_on_again_is_remembered_once(batches: bool) -> None:
    """Numbers that come again, as after a link was replaced, and whose events they are."""
    origin = origin_of("east", "lab.1", 1, 1)
    with Node("gate", config=KEPT) as gate:
        channel = gate.channel(CHANNEL, Sighting)
        relay = RelaySource(channel, "hill", origin=origin, path=("east",))
        relay.advertise("hill@lab")

        def pass_on(badges: range) -> None:
            assert channel.type is not None
            records = [channel.type.encode({"badge": badge, "level": 0.0}) for badge in badges]
            if not batches:
                for badge, record in zip(badges, records, strict=True):
                    relay.relay(Letter(None, record, relay, badge, badge * 1000, 0, 0))
                return
            chunk = Chunk(channel.type.records_to_arrow(records), relay, badges.start, 1000, 0, 0)
            relay.relay_chunk(chunk)

        pass_on(range(1, 131))
        pass_on(range(90, 141))
        seen = Log()
        channel.subscribe(seen, history="all")
        assert seen.field("badge") == list(range(41, 141))
        wanted = Interest("meta.source == 'hill' and meta.node == 'lab' and badge > 135", Sighting)
        assert [part.seqs.tolist() for part in channel.backlog.read("hill@lab", 0, None, wanted)] == [
            [*range(136, 141)]
        ]


def test_a_barrier_that_is_on_its_way_does_not_overtake_the_past(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A sink that begins with the past comes while the barrier of an earlier question is being put behind the events:
    that barrier must not speak for the new one too, or the sink would take what follows it for no past."""
    flush, held, looked = Outgoing._flush_before_barrier, threading.Event(), threading.Event()
    waiting: list[Any] = []

    def held_up(self: Outgoing, crossing: Any, frames: list[bytes]) -> None:
        flush(self, crossing, frames)
        if held.is_set() and not waiting and crossing.channel.name == CHANNEL:
            waiting.append(crossing)
            version = crossing.version
            looked.set()
            with suppress(AssertionError):  # the next question is answered meanwhile, unless yet another link comes up
                eventually(lambda: crossing.version > version)

    monkeypatch.setattr(Outgoing, "_flush_before_barrier", held_up)
    with nodes() as make:
        lab = make("lab", log=tmp_path)
        source = lab.channel(CHANNEL, Sighting).source("east")
        publish(source, range(20))
        desk = make("desk")
        channel = desk.channel(CHANNEL, Sighting)
        even, log = Log(), Log()
        channel.derive("ie.tcd.even", "badge % 2 == 0").subscribe(even)
        make.together()
        make.ready(desk)
        there = lab._engine.everyone()[0]
        eventually(lambda: there.link is not None and there.resumed)
        held.set()
        there.link.close("cut")  # the barrier goes again, over the next link
        assert looked.wait(GUARD)
        channel.subscribe(log, history="all")
        make.ready(desk)
        source.publish(badge=20)
        even.wait(1)
        log.wait(1)
        make.flush()
        assert log.field("badge") == list(range(21))
        assert even.field("badge") == [20]


@pytest.mark.parametrize("others", [False, True], ids=["alone", "among-others"])
def test_the_past_that_is_lost_with_a_link_goes_again_over_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, others: bool
) -> None:
    """Its frames have no numbers, so that nobody acknowledges them; still the sink begins with all of them, once. Where
    both nodes have called each other, the second link takes the place of the first just then."""
    collect, lost = Outgoing._collect, list[int]()

    def cut_off(self: Outgoing, budget: int) -> list[bytes]:
        frames, link = collect(self, budget), self.link
        past = [frame for frame in frames if wire.is_past(frame)]
        if not past or lost or link is None:
            return frames
        lost.append(len(past))
        self.scheduler.later(0.0, lambda: link.close("cut"))
        return frames[: frames.index(past[len(past) // 2])]  # some of them come, and then nothing more

    monkeypatch.setattr(Outgoing, "_collect", cut_off)
    monkeypatch.setattr("headwater.federation.send.past.FRAME_EVENTS", 10)
    with nodes() as make:
        lab = make("lab", log=tmp_path)
        source = lab.channel(CHANNEL, Sighting).source("east")
        desk = make("desk")
        make.together()
        channel = desk.channel(CHANNEL, Sighting)
        early, log = Log(), Log()
        if others:  # there are frames before those, which have come
            channel.subscribe(early, "badge >= 10")
            make.ready(desk)
        publish(source, range(50))
        see(desk, lab)
        if others:
            early.wait(40)
            make.flush()
        channel.subscribe(log, history="all")
        make.ready(desk)
        log.wait(50)
        publish(source, range(50, 60))
        log.wait(60)
        make.flush()
        assert lost == [5]
        assert log.field("badge") == list(range(60))
        assert not others or early.field("badge") == list(range(10, 60))
