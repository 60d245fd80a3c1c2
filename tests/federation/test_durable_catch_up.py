"""What a durable sink is sent from the log, since it missed it, is for nobody else: not for sinks that came later."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater import Config, Event, Interest, Log, Network, Node, Rate, Reliable, i64
from headwater.dispatch import Pool
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see
from tests.federation.nodes import Log as Seen

CHANNEL, DERIVED = "test.count", "test.count.even"
DURABLE = Reliable(durable=True)
BEFORE, MISSED, AFTER = 10, 2000, 100
ALL_BY_STATE = "{ static int seen = 0; seen = seen + 1; return seen > 0; }"


class Count(Event, name="test.Count"):
    n: i64


class Double(Event, name="test.Double"):
    n: i64
    twice: i64


DOUBLED = Interest("{ output.n = input.n; output.twice = 2 * input.n; return 1; }", Count, output=Double)


def lab_with_a_past(make: Nodes, path: Path) -> tuple[Node, Any]:
    """A source that logs, and a durable sink that has had its first events, and then was closed."""
    lab = make("lab", log=Log(path / "log"), listen="tcp/127.0.0.1:0")
    source = lab.channel(CHANNEL, Count).source("s")
    first, seen = desk(make, lab, path), Seen()
    first.channel(CHANNEL, Count).subscribe(seen, name="kept", delivery=DURABLE)
    see(first, lab)
    assert first.ready(GUARD)
    for n in range(BEFORE):
        source.publish(Count(n))
    seen.wait(BEFORE)
    first.close()
    for n in range(BEFORE, MISSED):
        source.publish(Count(n))
    return lab, source


def desk(make: Nodes, lab: Node, path: Path) -> Node:
    return make("desk", connect=lab.endpoints[0], listen="tcp/127.0.0.1:0", state=path / "state")


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("where", [None, "n >= 0", "n % 2 == 0"])
def test_a_sink_that_comes_with_it_begins_with_the_present(where: Any, first: bool, tmp_path: Path) -> None:
    with nodes() as make:
        lab, source = lab_with_a_past(make, tmp_path)
        node, kept, new = desk(make, lab, tmp_path), Seen(), Seen()
        channel = node.channel(CHANNEL, Count)
        if first:
            plain = channel.subscribe(new, where)
        channel.subscribe(kept, name="kept", delivery=DURABLE)
        if not first:
            plain = channel.subscribe(new, where)
        see(node, lab)
        assert node.ready(GUARD)
        kept.wait(MISSED - BEFORE)
        assert new.events == []
        for n in range(MISSED, MISSED + AFTER):
            source.publish(Count(n))
        kept.wait(MISSED - BEFORE + AFTER)
        assert kept.field("n") == list(range(BEFORE, MISSED + AFTER))
        wanted = [n for n in range(MISSED, MISSED + AFTER) if where != "n % 2 == 0" or n % 2 == 0]
        new.wait(len(wanted))
        assert new.field("n") == wanted
        counts = plain.counts
        assert counts.evaluated == counts.passed + counts.rejected + counts.undecided
        assert counts.passed == len(wanted)


def test_the_same_of_all_kinds_of_sinks(tmp_path: Path) -> None:
    """Another durable one, one with history, one of a derived channel, with an interest that changes, in batches."""
    with nodes() as make:
        lab, source = lab_with_a_past(make, tmp_path)
        node, kept = desk(make, lab, tmp_path), Seen()
        channel = node.channel(CHANNEL, Count)
        even = channel.derive(DERIVED, "n % 2 == 0")
        sinks = {name: Seen() for name in ("durable", "history", "derived", "changed", "pool")}
        rows = list[int]()
        channel.subscribe(sinks["durable"], name="new", delivery=DURABLE)
        channel.subscribe(sinks["history"], history=5)
        even.subscribe(sinks["derived"])
        channel.subscribe(sinks["pool"], dispatch=Pool())
        channel.subscribe(lambda batch: rows.extend(batch["n"].to_pylist()), batch=64)
        changing = channel.subscribe(sinks["changed"], "n < 0")
        channel.subscribe(kept, name="kept", delivery=DURABLE)
        changing.change(where="n >= 0")
        see(node, lab)
        assert node.ready(GUARD)
        kept.wait(MISSED - BEFORE)
        for n in range(MISSED, MISSED + AFTER):
            source.publish(Count(n))
        kept.wait(MISSED - BEFORE + AFTER)
        assert kept.field("n") == list(range(BEFORE, MISSED + AFTER))
        live = list(range(MISSED, MISSED + AFTER))
        for name, seen in sinks.items():
            wanted = [n for n in live if name != "derived" or n % 2 == 0]
            if name == "history":
                wanted = [*range(MISSED - 5, MISSED), *wanted]
            seen.wait(len(wanted))
            assert seen.field("n") == wanted, name
        eventually(lambda: len(rows) >= AFTER, "batches")
        assert rows == live


def test_a_sink_that_was_there_gets_what_it_missed(tmp_path: Path) -> None:
    """If it is the source's node that was away, all of its sinks have missed the same."""
    with nodes() as make:
        hub = make("hub", listen="tcp/127.0.0.1:0")
        node, kept, plain = desk(make, hub, tmp_path), Seen(), Seen()
        channel = node.channel(CHANNEL, Count)
        channel.subscribe(plain)
        channel.subscribe(kept, name="kept", delivery=DURABLE)
        for life in range(3):
            lab = make("lab", log=Log(tmp_path / "log"), connect=hub.endpoints[0], state=tmp_path / "lab")
            source = lab.channel(CHANNEL, Count).source("s")
            for n in range(life * 100, life * 100 + 50):  # nobody may be there yet
                source.publish(Count(n))
            see(node, lab)
            assert node.ready(GUARD)
            for n in range(life * 100 + 50, life * 100 + 100):
                source.publish(Count(n))
            for seen in (kept, plain):
                seen.until(lambda events, last=life * 100 + 99: bool(events) and events[-1].n == last)
            lab.close()
            eventually(lambda: "lab" not in node.peers, "lab is gone")
        for seen in (kept, plain):
            numbers = seen.field("n")
            assert numbers == list(range(numbers[0], 300)) and numbers[0] <= 50


def test_without_a_log_what_is_kept_for_it_is_for_nobody_else_either(tmp_path: Path) -> None:
    with nodes() as make:
        lab = make("lab", listen="tcp/127.0.0.1:0")
        source = lab.channel(CHANNEL, Count).source("s")
        first, seen = desk(make, lab, tmp_path), Seen()
        first.channel(CHANNEL, Count).subscribe(seen, name="kept", delivery=DURABLE)
        see(first, lab)
        assert first.ready(GUARD)
        for n in range(BEFORE):
            source.publish(Count(n))
        seen.wait(BEFORE)
        first.close()
        eventually(lambda: "desk" not in lab.peers, "desk is gone")
        for n in range(BEFORE, MISSED):
            source.publish(Count(n))
        node, kept, new = desk(make, lab, tmp_path), Seen(), Seen()
        channel = node.channel(CHANNEL, Count)
        channel.subscribe(new)
        channel.subscribe(kept, name="kept", delivery=DURABLE)
        see(node, lab)
        assert node.ready(GUARD)
        kept.wait(MISSED - BEFORE)
        for n in range(MISSED, MISSED + AFTER):
            source.publish(Count(n))
        kept.wait(MISSED - BEFORE + AFTER)
        assert kept.field("n") == list(range(BEFORE, MISSED + AFTER))
        new.wait(AFTER)
        assert new.field("n") == list(range(MISSED, MISSED + AFTER))


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("history", [5, 50, "all"])
@pytest.mark.parametrize("where", [None, "n % 2 == 0", ALL_BY_STATE, DOUBLED])
def test_without_a_log_what_is_kept_for_one_that_wants_history_comes_too(
    where: Any, history: Any, batches: bool, tmp_path: Path
) -> None:
    """It goes on where it was, with all that waited for it, though the source remembers less; another source, of which
    it knows nothing yet, it begins with its past."""
    with nodes() as make:
        lab = make("lab", listen="tcp/127.0.0.1:0", config=Config(history=20))
        source = lab.channel(CHANNEL, Count).source("s")
        node, seen = desk(make, lab, tmp_path), Seen()

        def come() -> None:
            node.channel(CHANNEL, Count).subscribe(seen, where, name="kept", delivery=DURABLE, history=history)
            see(node, lab)
            assert node.ready(GUARD)

        def publish(source: Any, first: int, last: int) -> None:
            if batches:
                source.publish_many([Count(n) for n in range(first, last)])
            else:
                for n in range(first, last):
                    source.publish(Count(n))

        step = 2 if where == "n % 2 == 0" else 1
        come()
        publish(source, 0, 10)
        seen.wait(10 // step)
        node.close()
        eventually(lambda: "desk" not in lab.peers, "desk is gone")
        publish(other := lab.channel(CHANNEL).source("t"), -10, 0)
        publish(source, 10, 100)
        node = desk(make, lab, tmp_path)
        come()
        publish(source, 100, 110)
        publish(other, -1000, -999)
        eventually(lambda: {-1000, 110 - step} <= set(seen.field("n")), f"the last came: {seen.field('n')}")
        found = seen.field("n")
        assert [n for n in found if n >= 0] == list(range(0, 110, step))
        past = [] if history == 5 else range(-10, 0, step)  # the last of all the channel's sources together
        assert [n for n in found if n < 0] == [*past, -1000]


def test_without_a_log_one_that_comes_after_the_lease_begins_with_its_history(tmp_path: Path) -> None:
    """What was kept for it was given up by then."""
    with nodes() as make:
        network = Network(listen="tcp/127.0.0.1:0", keep=0.2)
        lab = make("lab", network=network, config=Config(history=20))
        source = lab.channel(CHANNEL, Count).source("s")
        node, seen = desk(make, lab, tmp_path), Seen()

        def come() -> None:
            node.channel(CHANNEL, Count).subscribe(seen, name="kept", delivery=DURABLE, history=5)
            see(node, lab)
            assert node.ready(GUARD)

        come()
        for n in range(10):
            source.publish(Count(n))
        seen.wait(10)
        node.close()
        for n in range(10, 100):
            source.publish(Count(n))
        eventually(lambda: not lab._engine.everyone(), "it is forgotten")  # type: ignore[union-attr]
        node = desk(make, lab, tmp_path)
        come()
        for n in range(100, 110):
            source.publish(Count(n))
        seen.wait(25)
        assert seen.field("n") == [*range(10), *range(95, 110)]


def test_of_a_source_that_was_made_later_sinks_are_owed_what_follows_their_coming(tmp_path: Path) -> None:
    """The second sink wants what is sent here already, and the third one more, of which there is a past that nobody
    here has had. None of them is done with anything when their process ends."""
    with nodes() as make:
        lab = make("lab", log=Log(tmp_path / "log"), listen="tcp/127.0.0.1:0")
        channel_there = lab.channel(CHANNEL, Count)
        channel_there.source("s").publish(Count(0))
        wheres = {"kept": "n % 2 == 0", "same": "n % 2 == 0", "more": None}
        sinks: dict[str, Seen] = {}

        def subscribed(node: Node, name: str) -> None:
            sinks[name] = Seen()
            node.channel(CHANNEL, Count).subscribe(
                sinks[name], wheres[name], name=name, delivery=Reliable(durable=True, acknowledge="manual")
            )
            assert node.ready(GUARD)

        node = desk(make, lab, tmp_path)
        see(node, lab)
        subscribed(node, "kept")
        later = channel_there.source("later")
        later.publish_many([Count(n) for n in range(1, 7)])
        sinks["kept"].wait(3)
        subscribed(node, "same")
        later.publish_many([Count(n) for n in range(7, 10)])
        sinks["kept"].wait(4)  # so that nothing is on its way
        subscribed(node, "more")
        later.publish(Count(10))
        sinks["more"].wait(1)
        sinks["same"].wait(2)
        node.close()
        later.publish(Count(11))
        again = desk(make, lab, tmp_path)
        for name in wheres:
            sinks[name] = Seen()
            again.channel(CHANNEL, Count).subscribe(
                sinks[name], wheres[name], name=name, delivery=Reliable(durable=True, acknowledge="manual")
            )
        for name, wanted in {"kept": [2, 4, 6, 8, 10], "same": [8, 10], "more": [10, 11]}.items():
            sinks[name].wait(len(wanted))
            assert sinks[name].field("n") == wanted, name


def test_one_that_ends_while_what_it_missed_is_read_has_it_when_it_is_back(tmp_path: Path) -> None:
    """Its node is told that no more comes, however much of the log is still to be read: else what comes when it is
    back, in frames that are counted anew, would be taken for what it has had."""
    many, began = 20_000, threading.Event()
    with nodes() as make:
        # So much is read at once that the rest of the log has to wait for a second.
        lab = make("lab", log=Log(tmp_path / "log"), network=Network(rates={"*": Rate(16_000, burst=100)}))
        source = lab.channel(CHANNEL, Count).source("s")
        node, kept, rest = make("desk", state=":memory:"), Seen(), Seen()
        channel = node.channel(CHANNEL, Count)
        make.together()
        sink = channel.subscribe(kept, name="kept", delivery=DURABLE)
        make.ready()
        source.publish(Count(0))
        kept.wait(1)
        [desk] = lab._engine.everyone()
        sink.cancel()
        eventually(lambda: CHANNEL not in desk.crossings, "nobody wants it")
        source.publish_many(pa.record_batch({"n": pa.array(range(1, many), pa.int64())}))
        sink = channel.subscribe(lambda event: began.set(), name="kept", delivery=DURABLE)
        assert began.wait(GUARD)
        sink.cancel()
        eventually(lambda: CHANNEL not in desk.crossings, "nobody wants it any more")
        channel.subscribe(rest, f"n >= {many - 10}", name="kept", delivery=DURABLE)
        rest.wait(10)
        assert rest.field("n") == list(range(many - 10, many))


def test_a_node_that_asks_before_it_is_seen_that_it_was_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its first durable sink wants waits for the others all the same, which have missed as much."""
    seen, late = {"one": Seen(), "two": Seen()}, threading.Event()
    with nodes() as make:
        lab = make("lab", log=Log(tmp_path / "log"), listen="tcp/127.0.0.1:0")
        source = lab.channel(CHANNEL, Count).source("s")

        def subscribe(node: Node, name: str) -> None:
            node.channel(CHANNEL, Count).subscribe(seen[name], name=name, delivery=DURABLE)

        node = desk(make, lab, tmp_path)
        for name in seen:
            subscribe(node, name)
        make.ready()
        source.publish(Count(0))
        for each in seen.values():
            each.wait(1)
        node.close(drain=False, timeout=0.0)
        [peer] = lab._engine.everyone()
        run, installer = peer.incarnation, lab._engine.installer
        restarted = installer.restarted

        def held_up(peer: Any) -> None:
            late.wait(GUARD)
            restarted(peer)

        monkeypatch.setattr(installer, "restarted", held_up)
        source.publish(Count(1))
        node = desk(make, lab, tmp_path)
        subscribe(node, "one")

        def has_asked() -> bool:
            found = peer.crossings.get(CHANNEL)
            return peer.incarnation != run and found is not None and (found.incarnation != run or found.deferred)

        eventually(has_asked, "it has asked")
        source.publish(Count(2))
        subscribe(node, "two")
        late.set()
        assert node.ready(GUARD)
        source.publish(Count(3))
        for each in seen.values():
            each.wait(4)
            assert each.field("n") == [0, 1, 2, 3]


def test_one_that_asks_again_and_is_then_given_up_has_what_comes_when_it_asks_anew(tmp_path: Path) -> None:
    """What was to begin again is over: it is not announced behind its end, and taken for what comes next."""
    with nodes() as make:
        lab = make("lab", log=Log(tmp_path / "log"))
        source = lab.channel(CHANNEL, Count).source("s")
        node, kept = make("desk", state=":memory:"), Seen()
        make.together()
        node.channel(CHANNEL, Count).subscribe(kept, name="kept", delivery=DURABLE)
        make.ready()
        for n in range(BEFORE):
            source.publish(Count(n))
            kept.wait(n + 1)  # a frame for each
        [desk] = lab._engine.everyone()
        crossing = desk.crossings[CHANNEL]
        [lane] = crossing.active()
        with desk.building:  # as if it had asked, and nothing was sent since
            lane.restart, lane.again_asked, lane.announced = ({0: BEFORE}, {}), 1, False
            desk.add_dirty(lane)
        lab._engine.installer._drop(desk, crossing)
        eventually(lambda: desk.crossings.get(CHANNEL) not in (None, crossing), "it has asked anew")
        for n in range(BEFORE, BEFORE + 3):
            source.publish(Count(n))
        kept.wait(BEFORE + 3)
        assert kept.field("n") == list(range(BEFORE + 3))
