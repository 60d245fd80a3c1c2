"""Two and more nodes in one process: what a user of a federation relies on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from headwater import Event, Interest, State, f32, i64, u8, u32
from headwater.errors import FederationError
from headwater.federation.network import Budget, Network
from headwater.federation.security.settings import Security
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes, see

CHANNEL = "ie.tcd.sighting"


class Sighting(Event, name="ie.tcd.Sighting"):
    badge: u32
    level: float
    room: str | None = None


class Brief(Event, name="ie.tcd.Sighting"):
    level: float


class Detailed(Event, name="ie.tcd.Sighting"):
    badge: u8
    level: f32
    room: str | None
    battery: float


class Loud(Event, name="ie.tcd.Loud"):
    badge: u32
    tenth: i64


def pair(make: Nodes, **options: Any) -> tuple[Any, Any]:
    """A node with sources and one with sinks."""
    lab, desk = make("lab", **options), make("desk")
    make.together()
    return lab, desk


# ── events ──


def test_events_of_one_node_reach_sinks_of_another() -> None:
    with nodes() as make:
        lab, desk = pair(make)
        source = lab.channel(CHANNEL, Sighting).source("east")
        assert desk.until(lambda: desk.has_channel(CHANNEL), GUARD)
        log = Log()
        subscription = desk.channel(CHANNEL).subscribe(log, "level > 0.5")
        make.ready(desk)
        for badge in range(10):
            source.publish(badge=badge, level=badge / 10)
        log.wait(4)
        assert lab.flush(GUARD)
        assert log.field("badge") == [6, 7, 8, 9]
        assert subscription.counts.delivered == 4
        assert desk.remote_sources(CHANNEL) == ["east@lab"]


def test_a_sink_may_come_before_its_channel_has_a_source_anywhere() -> None:
    with nodes() as make:
        lab, desk = pair(make)
        log = Log()
        desk.channel(CHANNEL, Sighting).subscribe(log)
        source = lab.channel(CHANNEL, Sighting).source("east")
        make.ready(desk)
        source.publish(badge=1, level=1.0, room="G12")
        assert log.wait(1)[0] == Sighting(badge=1, level=1.0, room="G12")


def test_a_node_that_joins_later_learns_what_is_wanted_and_what_there_is() -> None:
    with nodes() as make:
        lab, desk = pair(make)
        log, late_log = Log(), Log()
        desk.channel(CHANNEL, Sighting).subscribe(log, "badge < 10")
        first = lab.channel(CHANNEL, Sighting).source("east")
        make.ready(desk)
        late = make("late")
        second = late.channel(CHANNEL, Sighting).source("west")
        late.channel(CHANNEL).subscribe(late_log, "badge >= 10")
        make.ready(desk, late)
        for badge in (1, 11):
            first.publish(badge=badge, level=0.0)
            second.publish(badge=badge + 1, level=0.0)
        log.wait(2)
        late_log.wait(2)
        make.flush()
        assert sorted(log.field("badge")) == [1, 2]
        assert sorted(late_log.field("badge")) == [11, 12]  # its own, and the other's


def test_a_source_that_comes_and_goes() -> None:
    with nodes() as make:
        lab, desk = pair(make)
        log = Log()
        desk.channel(CHANNEL, Sighting).subscribe(log)
        channel = lab.channel(CHANNEL, Sighting)
        for time in range(3):
            with channel.source("east") as source:
                make.ready(desk)
                source.publish(badge=time, level=0.0)
            assert desk.until(lambda: not desk.remote_sources(CHANNEL), GUARD)
        log.wait(3)
        assert log.field("badge") == [0, 1, 2]


def test_both_directions_and_own_events() -> None:
    with nodes() as make:
        both = pair(make)
        logs = Log(), Log()
        sources = []
        for node, log in zip(both, logs, strict=True):
            channel = node.channel(CHANNEL, Sighting)
            channel.subscribe(log)
            sources.append(channel.source(node.name))
        make.ready()
        for badge in range(100):
            sources[badge % 2].publish(badge=badge, level=0.0)
        for log in logs:
            log.wait(100)
            badges = log.field("badge")
            assert sorted(badges) == list(range(100))
            assert [badge for badge in badges if badge % 2] == list(range(1, 100, 2))


# ── types ──


def test_types_evolve_between_nodes() -> None:
    with nodes() as make:
        lab, desk = pair(make)
        log, brief = Log(), Log()
        channel = desk.channel(CHANNEL, Sighting)
        channel.subscribe(log, "level > 0.5")
        channel.subscribe(brief, "badge > 1", type=Brief)
        source = lab.channel(CHANNEL, Detailed).source("east")
        make.ready(desk)
        for badge in range(1, 4):
            source.publish(badge=badge, level=badge / 4, room="G12", battery=3.3)
        log.wait(1)
        brief.wait(2)
        assert lab.flush(GUARD)
        assert log.events == [Sighting(badge=3, level=0.75, room="G12")]
        assert brief.events == [Brief(level=0.5), Brief(level=0.75)]


def test_bytes() -> None:
    with nodes() as make:
        lab, desk = pair(make)
        log = Log()
        source = lab.channel("raw", bytes).source()
        assert desk.until(lambda: desk.has_channel("raw"), GUARD)
        desk.channel("raw").subscribe(log)
        make.ready(desk)
        sent = [bytes([n]) * n for n in range(100)]
        for data in sent:
            source.publish(data)
        log.wait(100)
        assert log.events == sent


# ── interests that run at the source only ──


def test_stateful_and_transforming_interests_run_at_the_source() -> None:
    def third(event: Sighting, *, seen: State = State(n=0)) -> bool:
        seen.n += 1
        return seen.n % 3 == 0

    with nodes() as make:
        lab, desk = pair(make)
        all_of_it, thirds, louds = Log(), Log(), Log()
        channel = desk.channel(CHANNEL, Sighting)
        channel.subscribe(thirds, third)
        channel.subscribe(all_of_it, "badge < 6")
        channel.subscribe(
            louds,
            Interest(
                "{ output.badge = input.badge; output.tenth = (long)(input.level * 10); return input.level > 0.5; }",
                Sighting,
                output=Loud,
            ),
        )
        source = lab.channel(CHANNEL, Sighting).source("east")
        make.ready(desk)
        for badge in range(12):
            source.publish(badge=badge, level=badge / 12)
        thirds.wait(4)
        louds.wait(5)
        assert lab.flush(GUARD)
        assert thirds.field("badge") == [2, 5, 8, 11]
        assert all_of_it.field("badge") == list(range(6))
        assert louds.events == [Loud(badge=badge, tenth=int(badge / 12 * 10)) for badge in range(7, 12)]


def test_derived_channels() -> None:
    with nodes() as make:
        lab, desk = pair(make)
        base = lab.channel(CHANNEL, Sighting)
        base.derive("ie.tcd.loud", "level > 0.5")
        source = base.source("east")
        assert desk.until(lambda: desk.has_channel("ie.tcd.loud"), GUARD)
        log = Log()
        desk.channel("ie.tcd.loud").subscribe(log, "badge != 8")
        make.ready(desk)
        for badge in range(10):
            source.publish(badge=badge, level=badge / 10)
        log.wait(3)
        assert lab.flush(GUARD)
        assert log.field("badge") == [6, 7, 9]


def test_patterns_find_channels_of_other_nodes() -> None:
    with nodes() as make:
        lab, desk = pair(make)
        log = Log()
        subscription = desk.subscribe("ie.tcd.**", log, "badge > 0")
        sources = [lab.channel(name, Sighting).source() for name in ("ie.tcd.a", "ie.tcd.b.c", "ie.ucd.a")]
        see(desk, lab)
        assert desk.until(lambda: len(subscription._attachments) == 2, GUARD)
        make.ready(desk)
        for badge, source in enumerate(sources):
            source.publish(badge=badge + 1, level=0.0)
            source.publish(badge=0, level=0.0)
        log.wait(2)
        make.flush()
        assert sorted(log.field("badge")) == [1, 2]


def test_zones() -> None:
    with nodes() as make:
        lab, desk = pair(make)
        channel = lab.channel(CHANNEL, Sighting)
        sources = [
            channel.source("n", zones="north"),
            channel.source("s", zones=["south", "west"]),
            channel.source("a"),
        ]
        see(desk, lab)
        north, south, everything = Log(), Log(), Log()
        there = desk.channel(CHANNEL)
        moving = there.subscribe(north, zones="north")
        there.subscribe(south, "badge != 4000", zones={"south", "east"})
        there.subscribe(everything)
        make.ready(desk)

        def publish(badge: int) -> None:
            for number, source in enumerate(sources):
                source.publish(badge=10 * badge + number, level=0.0)

        publish(0)
        everything.wait(3)
        make.flush()
        assert north.field("badge") == [0, 2]
        assert south.field("badge") == [1, 2]
        moving.change(zones="west")
        publish(1)
        everything.wait(6)
        make.flush()
        assert north.field("badge") == [0, 2, 11, 12]
        sources[0].move("south")
        publish(2)
        everything.wait(9)
        make.flush()
        assert sorted(south.field("badge")) == [1, 2, 11, 12, 20, 21, 22]


# ── batches ──


def test_batches() -> None:
    with nodes() as make:
        lab, desk = pair(make)
        source = lab.channel(CHANNEL, Sighting).source("east")
        see(desk, lab)
        single, batches, rows = Log(), Log(), Log()
        channel = desk.channel(CHANNEL)
        channel.subscribe(single, "badge % 100 == 0")
        channel.subscribe(batches, "badge % 2 == 0", batch=True)
        channel.subscribe(lambda batch: [rows(row) for row in batch["badge"].to_pylist()], batch=1000)
        make.ready(desk)
        count = 20_000
        table = pa.table(
            {
                "badge": pa.array(range(count), pa.uint32()),
                "level": pa.array([0.5] * count, pa.float64()),
                "room": pa.array([None] * count, pa.string()),
            }
        )
        assert source.publish_many(table) == count
        source.publish_many([Sighting(badge=count + n, level=0.0) for n in range(200)])
        rows.wait(count + 200)
        make.flush()
        assert rows.events == list(range(count + 200))
        assert single.field("badge") == list(range(0, count + 200, 100))
        evens = [badge for batch in batches.events for badge in batch["badge"].to_pylist()]
        assert evens == list(range(0, count + 200, 2))


# ── refusals ──


def test_an_interest_that_costs_too_much_is_refused_with_a_reason() -> None:
    with nodes() as make:
        lab, desk = pair(make, network=Network(listen="tcp/127.0.0.1:0", budget=Budget(total=20, each=10)))
        lab.channel(CHANNEL, Sighting).source("east")
        see(desk, lab)
        log, told = Log(), Log()
        desk.subscribe("headwater.interests", told, "change == 'refused'")
        costly = " and ".join(f"badge % {n} != {n - 1}" for n in range(2, 30))
        subscription = desk.channel(CHANNEL).subscribe(log, costly)
        make.ready(desk)
        assert "too costly" in subscription.refused[f"{CHANNEL}@lab"]
        told.wait(1)
        assert (told.events[0].node, told.events[0].channel) == ("lab", CHANNEL)
        assert "too costly" in told.events[0].reason


@pytest.mark.parametrize("waits", [True, False])
def test_a_change_that_a_source_refuses_changes_nothing(waits: bool) -> None:
    """Neither there nor at the others: what there was stays in force at all of them."""
    with nodes() as make:
        lab, desk = pair(make, network=Network(listen="tcp/127.0.0.1:0", budget=Budget(total=20, each=10)))
        yard = make("yard", connect=lab.endpoints[0])
        make.together()
        sources = [node.channel(CHANNEL, Sighting).source(node.name) for node in (lab, yard)]
        see(desk, lab)
        see(desk, yard)
        log = Log()
        subscription = desk.channel(CHANNEL).subscribe(log, "badge > :least", params={"least": 10})
        make.ready(desk)
        costly = " and ".join(f"badge % {n} != {n - 1}" for n in range(2, 30))

        def change(**what: Any) -> dict[str, int]:
            if waits:
                return subscription.change(**what)
            return asyncio.run(subscription.achange(**what))

        with pytest.raises(FederationError, match=r"nothing was changed: .*@lab: .*too costly"):
            change(where=costly)
        assert subscription.refused == {} and subscription.epoch == 1
        make.ready(desk)
        for source in sources:
            source.publish(badge=9, level=0.0)
            source.publish(badge=11, level=0.0)
        make.flush()
        assert log.field("badge") == [11, 11]
        change(params={"least": 20})  # and it can be changed afterwards
        assert subscription.epoch == 2
        for source in sources:
            source.publish(badge=11, level=0.0)
            source.publish(badge=21, level=0.0)
        make.flush()
        assert log.field("badge") == [11, 11, 21, 21]


def test_a_change_for_which_there_is_no_room_beside_the_old_is_refused() -> None:
    """For a moment both are at the source, so that there is a point between them; who has no room for both is told."""
    with nodes() as make:
        costs = " and ".join(f"badge % {n} != {n - 1}" for n in range(2, 6))
        bound = Interest(costs, Sighting).cost.worst * 3 // 2
        lab, desk = pair(make, network=Network(listen="tcp/127.0.0.1:0", budget=Budget(total=bound, each=bound)))
        source = lab.channel(CHANNEL, Sighting).source("east")
        see(desk, lab)
        log = Log()
        subscription = desk.channel(CHANNEL).subscribe(log, costs)
        make.ready(desk)
        with pytest.raises(FederationError, match=r"too costly.* both count while it changes"):
            subscription.change(where=costs.replace("% 5 != 4", "% 5 != 3"))
        make.ready(desk)
        assert subscription.refused == {}
        source.publish(badge=0, level=0.0)
        make.flush()
        assert log.field("badge") == [0]


def test_what_a_source_refuses_may_run_at_the_destination() -> None:
    with nodes() as make:
        lab = make("lab", network=Network(listen="tcp/127.0.0.1:0", budget=Budget(total=20, each=10)))
        desk = make("desk", network=Network(connect=lab.endpoints[0], placement="auto"))
        make.together()
        source = lab.channel(CHANNEL, Sighting).source("east")
        see(desk, lab)
        log = Log()
        costly = " and ".join(f"badge % {n} != {n - 1}" for n in range(2, 30))
        desk.channel(CHANNEL).subscribe(log, costly)
        make.ready(desk)
        eventually(lambda: desk._engine is not None and desk._engine.requester.settled(desk.channels(), barriers=True))
        wanted = Interest(costly, Sighting)
        for badge in range(1000):
            source.publish(badge=badge, level=0.0)
        make.flush()
        assert log.field("badge") == [badge for badge in range(1000) if wanted.test(Sighting(badge=badge, level=0.0))]


def test_an_interest_in_a_field_that_the_source_does_not_have_is_refused() -> None:
    class Other(Event, name="ie.tcd.Sighting"):
        badge: u32
        level: float
        colour: str

    with nodes() as make:
        lab, desk = pair(make)
        lab.channel(CHANNEL, Sighting).source("east")
        see(desk, lab)
        log = Log()
        subscription = desk.channel(CHANNEL, Other).subscribe(log, "colour == 'red'")
        make.ready(desk)
        eventually(lambda: f"{CHANNEL}@lab" in subscription.refused)
        assert "colour" in subscription.refused[f"{CHANNEL}@lab"]


def test_bytes_at_one_node_and_a_type_at_the_other() -> None:
    with nodes() as make:
        lab, desk = pair(make)
        lab.channel(CHANNEL, bytes).source("east")
        see(desk, lab)
        log = Log()
        subscription = desk.channel(CHANNEL, Sighting).subscribe(log, "badge > 1")
        eventually(lambda: f"{CHANNEL}@lab" in subscription.refused)
        assert "bytes" in subscription.refused[f"{CHANNEL}@lab"]
        assert desk.ready(GUARD)


def test_who_may_not_subscribe_is_told_so() -> None:
    rules = Security(
        rules=[
            {"channel": "secret.**", "who": "*", "may": ["advertise"]},
            {"channel": "**", "who": "*", "may": ["advertise", "subscribe"]},
        ]
    )
    with nodes() as make:
        lab, desk = pair(make, security=rules)
        secret = lab.channel("secret.plans", Sighting).source()
        plain = lab.channel("plain", Sighting).source()
        see(desk, lab)
        log = Log()
        subscriptions = [
            desk.channel("secret.plans", Sighting).subscribe(log),
            desk.channel("plain", Sighting).subscribe(log, "badge > 1"),
            desk.channel("plain", Sighting).subscribe(Log(), "badge * badge > 1.5 * level + badge"),
        ]
        make.ready(desk)
        eventually(lambda: "secret.plans@lab" in subscriptions[0].refused)
        eventually(lambda: "plain@lab" in subscriptions[2].refused)
        assert "not allowed" in subscriptions[0].refused["secret.plans@lab"]
        assert "code" in subscriptions[2].refused["plain@lab"]
        assert not subscriptions[1].refused
        for source in (secret, plain):
            source.publish(badge=2, level=0.0)
        log.wait(1)
        make.flush()
        assert len(log.events) == 1


# ── what happens in the federation ──


def test_control_events() -> None:
    with nodes() as make:
        lab = make("lab")
        happened, sources, interests = Log(), Log(), Log()
        lab.subscribe("headwater.nodes", happened)
        lab.subscribe("headwater.sources", sources)
        lab.subscribe("headwater.interests", interests, "here")
        lab.channel(CHANNEL, Sighting).source("east")
        desk = make("desk")
        happened.wait(1)
        log = Log()
        see(desk, lab)
        subscription = desk.channel(CHANNEL).subscribe(log, "badge > 1")
        with desk.channel("answers", Sighting).source("a"):
            sources.wait(1)
        sources.wait(2)
        interests.wait(1)
        subscription.cancel()
        interests.wait(2)
        desk.close()
        happened.wait(2)
        assert [(event.change, event.node) for event in happened.events] == [("joined", "desk"), ("left", "desk")]
        assert [(event.change, event.channel, event.source) for event in sources.events] == [
            ("advertised", "answers", "a"),
            ("withdrawn", "answers", "a"),
        ]
        assert [(event.change, event.interest) for event in interests.events] == [
            ("installed", "badge > 1"),
            ("withdrawn", "badge > 1"),
        ]


def test_no_listener_no_traffic() -> None:
    with nodes() as make:
        lab, desk = pair(make)
        channel = lab.channel(CHANNEL, Sighting)
        source = channel.source("east")
        other = lab.channel("other", Sighting).source()
        see(desk, lab)
        log = Log()
        desk.channel(CHANNEL).subscribe(log, "badge == 7")
        make.ready(desk)
        peer = lab._engine.everyone()[0]
        source.publish(badge=7, level=0.0)
        log.wait(1)
        make.flush()
        eventually(lambda: not peer.control and not peer.dirty)
        before = peer.bytes_out
        for badge in range(1000):
            source.publish(badge=badge + 8, level=0.0)
            other.publish(badge=badge, level=0.0)
        assert peer.bytes_out == before
        source.publish(badge=7, level=0.0)
        log.wait(2)
        make.flush()
        assert before < peer.bytes_out < before + 200


def test_several_sinks_of_a_node_one_crossing() -> None:
    with nodes() as make:
        lab, desk = pair(make)
        source = lab.channel(CHANNEL, Sighting).source("east")
        see(desk, lab)
        logs = [Log() for _ in range(20)]
        for n, log in enumerate(logs):
            desk.channel(CHANNEL).subscribe(log, f"badge >= {n + 1}")
        make.ready(desk)
        peer = desk._engine.everyone()[0]
        for badge in range(1, 41):
            source.publish(badge=badge, level=0.0)
        logs[0].wait(40)
        make.flush()
        for n, log in enumerate(logs):
            assert log.field("badge") == list(range(n + 1, 41))
        (standin,) = peer.remote_sources.values()
        assert standin.received == 40
        assert len(next(iter(lab._engine.everyone())).crossings[CHANNEL].wishes) == 1  # the others are covered by it


def test_federations_do_not_see_each_other() -> None:
    with nodes() as make:
        logs = {}
        sources = {}
        for name in ("red", "blue"):
            hub = make(f"{name}-hub", listen="tcp/127.0.0.1:0", federation=name)
            leaf = make(f"{name}-leaf", connect=hub.endpoints[0], federation=name)
            make.together(hub, leaf)
            sources[name] = hub.channel(CHANNEL, Sighting).source("east")
            logs[name] = Log()
            leaf.channel(CHANNEL, Sighting).subscribe(logs[name])
            see(leaf, hub)
            assert leaf.ready(GUARD)
        # even over a connection between them
        spy = make("spy", connect=make.opened[0].endpoints[0], federation="blue")
        spied = Log()
        spy.channel(CHANNEL, Sighting).subscribe(spied)
        for n, source in enumerate(sources.values()):
            source.publish(badge=n, level=0.0)
        for n, log in enumerate(logs.values()):
            log.wait(1)
            assert log.field("badge") == [n]
        assert spied.events == [] or spied.field("badge") == [1]
        assert all(set(node.peers) <= {"red-hub", "red-leaf"} for node in make.opened[:2])


def test_change_under_way() -> None:
    with nodes() as make:
        lab, desk = pair(make)
        source = lab.channel(CHANNEL, Sighting).source("east")
        see(desk, lab)
        log = Log()
        subscription = desk.channel(CHANNEL).subscribe(log, "level < :most", params={"most": 0.5})
        make.ready(desk)
        for badge in range(10):
            source.publish(badge=badge, level=badge / 10)
        make.flush()
        points = subscription.change(params={"most": 0.25})
        assert points[f"{CHANNEL}/east@lab"] in range(5, 11)  # those after the fifth pass neither
        for badge in range(10, 20):
            source.publish(badge=badge, level=(badge - 10) / 10)
        make.flush()
        points = subscription.change(where="badge >= 25")
        assert points == {f"{CHANNEL}/east@lab": 20}
        for badge in range(20, 30):
            source.publish(badge=badge, level=0.0)
        log.wait(13)
        make.flush()
        assert log.field("badge") == [0, 1, 2, 3, 4, 10, 11, 12, 25, 26, 27, 28, 29]


def test_routed_by_zenoh_where_no_direct_stream_is_offered() -> None:
    with nodes() as make:
        lab = make("lab", network=Network(listen="tcp/127.0.0.1:0", direct=()))
        desk = make("desk", network=Network(connect=lab.endpoints[0], direct=()))
        make.together()
        source = lab.channel(CHANNEL, Sighting).source("east")
        see(desk, lab)
        log = Log()
        desk.channel(CHANNEL).subscribe(log, "badge % 2 == 0")
        make.ready(desk)
        assert lab._engine is not None and lab._engine.everyone()[0].link.kind == "zenoh"  # type: ignore[union-attr]
        for badge in range(2000):
            source.publish(badge=badge, level=0.0)
        log.wait(1000)
        make.flush()
        assert log.field("badge") == list(range(0, 2000, 2))


def test_history_for_sinks_that_come_later() -> None:
    with nodes() as make:
        lab, desk = pair(make, config={"history": 100})
        source = lab.channel(CHANNEL, Sighting).source("east")
        for badge in range(250):
            source.publish(badge=badge, level=0.0)
        see(desk, lab)
        last, everything = Log(), Log()
        desk.channel(CHANNEL).subscribe(last, "badge % 10 == 0", history=3)
        desk.channel(CHANNEL).subscribe(everything, history="all")
        make.ready(desk)
        source.publish(badge=250, level=0.0)
        everything.wait(101)
        last.wait(4)
        make.flush()
        assert last.field("badge") == [220, 230, 240, 250]
        assert everything.field("badge") == list(range(150, 251))


PROGRAM = """
import threading
from headwater import Event, Node

class Note(Event):
    text: str

def later(source):
    threading.main_thread().join()
    source.publish(text="after the main thread")

here = Node("here", listen="tcp/127.0.0.1:0")
there = Node("there", connect=here.endpoints[0])
source = here.channel("notes", Note).source("a")
there.channel("notes", Note).subscribe(lambda event: print(event.text, flush=True))
assert there.until(lambda: there.remote_sources("notes"), 20) and there.ready(20)
source.publish(text="before the end")
threading.Thread(target=later, args=(source,)).start()
{last}
"""


@pytest.mark.parametrize(("last", "code"), [("", 0), ("raise SystemExit(3)", 3), ("1 / 0", 1)])
def test_a_program_that_closes_nothing_ends(last: str, code: int) -> None:
    """Its nodes are closed when its own threads have ended, and deliver what was published by then."""
    program = PROGRAM.format(last=last)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=480, check=False)
    assert ran.returncode == code, ran.stderr
    assert ran.stdout.split("\n") == ["before the end", "after the main thread", ""]


FORKED = """
import os
from headwater import Event, Node

class Note(Event):
    text: str

here = Node("here", listen="tcp/127.0.0.1:0")
there = Node("there", connect=here.endpoints[0])
source = here.channel("notes", Note).source("a")
got = []
there.channel("notes", Note).subscribe(got.append)
assert there.until(lambda: there.remote_sources("notes"), 20) and there.ready(20)
links = [peer.links for node in (here, there) for peer in node._engine.everyone()]
if not (child := os.fork()):
    Node("child", listen="tcp/127.0.0.1:0")  # it is closed when the child ends, and no other is
    raise SystemExit(0)
assert os.waitpid(child, 0)[1] == 0
source.publish(text="still there")
assert here.flush(20) and there.until(lambda: got, 20)
now = [peer.links for node in (here, there) for peer in node._engine.everyone()]
assert now == links, f"they had to connect again: {links}, {now}"
"""


def test_a_forked_process_leaves_the_nodes_of_its_parent_alone() -> None:
    ran = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=480, check=False)
    assert ran.returncode == 0, ran.stderr
