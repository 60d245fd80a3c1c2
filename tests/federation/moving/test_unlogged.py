"""Sinks move where no log has what waits for them, or where they are not durable: it goes along."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater import BestEffort, Event, Log, Node, Queue, Reliable, i64
from headwater.errors import FederationError, SubscriptionError
from headwater.federation.address_map import HashedGroups
from headwater.network import Network
from tests.effort import rounds
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see
from tests.federation.nodes import Log as Seen

CHANNEL = "test.count"
LISTEN = "tcp/127.0.0.1:0"
DELIVERIES = {"durable": Reliable(durable=True), "reliable": Reliable(), "best effort": BestEffort()}
EACH = 1_000_000  # numbers of each source
EVERY_FIFTH = "{ static int seen = 0; seen = seen + 1; return seen % 5 == 0; }"


class Count(Event, name="test.Count"):
    n: i64


def publish(source: Any, first: int, last: int) -> None:
    for n in range(first, last):
        source.publish(Count(n))


def place(make: Nodes, name: str, **options: Any) -> Node:
    where = {"connect": make.opened[0].endpoints[0]} if make.opened else {}
    return make(name, listen=LISTEN, **where, **options)


def three(make: Nodes, path: Path, kind: str, *, logged: bool = False) -> tuple[Node, Node, Node]:
    """A lab, a desk and a phone: with a state only where that is needed."""
    log = {"log": Log(path / "log")} if logged else {}
    state = {"state": ":memory:"} if kind == "durable" else {}
    return place(make, "lab", **log), place(make, "desk", **state), place(make, "phone", **state)


def begun(make: Nodes, path: Path, kind: str, where: Any = None, *, logged: bool = False, **options: Any) -> Any:
    """A sink at the desk that has had its first hundred."""
    lab, desk, phone = three(make, path, kind, logged=logged)
    source = lab.channel(CHANNEL, Count).source("s")
    seen = Seen()
    handler = options.pop("handler", seen)
    delivery = options.pop("delivery", DELIVERIES[kind])
    sink = desk.channel(CHANNEL, Count).subscribe(handler, where, name="mail", delivery=delivery, **options)
    make.together()
    see(desk, lab)
    assert desk.ready(GUARD)
    publish(source, 0, 100)
    return source, desk, phone, sink, seen


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("where", [None, "n >= 0 and n % 3 == 0"])
@pytest.mark.parametrize(
    ("kind", "logged"), [("durable", False), ("reliable", False), ("reliable", True), ("best effort", False)]
)
def test_what_waits_goes_along(kind: str, logged: bool, where: Any, others: bool, tmp_path: Path) -> None:
    """Also where the other node has had events of the same channel all along: its sinks hear nothing twice."""
    wanted = [n for n in range(300) if where is None or n % 3 == 0]
    with nodes() as make:
        source, _, phone, sink, seen = begun(make, tmp_path, kind, where, logged=logged)
        beside = Seen()
        if others:
            phone.channel(CHANNEL, Count).subscribe(beside, "n >= 50")
            see(phone, make.opened[0])
            assert phone.ready(GUARD)
        seen.wait(sum(n < 100 for n in wanted))
        token = sink.move()
        assert sink.state == "paused"
        publish(source, 100, 200)
        after = Seen()
        moved = phone.resume(token, after, timeout=GUARD)
        publish(source, 200, 300)
        after.wait(sum(n >= 100 for n in wanted))
        assert seen.field("n") + after.field("n") == wanted
        assert sink.state == "closed" and moved.name == "mail" and moved.state == "open"
        if others:
            beside.wait(200)
            assert beside.field("n") == list(range(100, 300))


@pytest.mark.parametrize("way", ["multicast", "routed"])
def test_what_waits_goes_along_whatever_way_events_come(way: str) -> None:
    """By datagrams, whose order is not that of the link, or by Zenoh's path."""
    port = 40_000 + os.getpid() % 20_000
    more: dict[str, Any] = {
        "multicast": {"multicast": HashedGroups(port=port, base="239.255.79.0")},
        "routed": {"direct": ()},
    }[way]
    with nodes() as make:
        lab = make("lab", network=Network(listen=LISTEN, **more))
        desk, phone = (make(n, network=Network(connect=lab.endpoints[0], **more)) for n in ("desk", "phone"))
        source, got = lab.channel(CHANNEL, Count).source("s"), list[int]()
        sink = desk.channel(CHANNEL, Count).subscribe(lambda event: got.append(event.n))
        make.together()
        make.ready(desk)
        done = 0
        for node in (phone, desk, phone):
            publish(source, done, done + 500)
            token = sink.move()
            publish(source, done + 500, done + 900)
            sink = node.resume(token, lambda event: got.append(event.n), timeout=GUARD)
            done += 900
        publish(source, done, done + 100)
        eventually(lambda: len(got) >= done + 100, "all")
        assert got == list(range(done + 100))


@pytest.mark.parametrize("kind", ["durable", "reliable"])
def test_it_moves_on_and_on_while_everybody_publishes(kind: str, tmp_path: Path) -> None:
    """Round and round among three nodes, each of which has a source with a log and one without: also home again, by its
    own token. For each source one sequence, whole, in order, none twice."""
    with nodes() as make:
        all_nodes = []
        for k in range(3):
            state = {"state": ":memory:"} if kind == "durable" else {}
            all_nodes.append(place(make, f"n{k}", log=Log(tmp_path / f"log{k}", channels="test.logged"), **state))
        first = all_nodes[0]
        for node in all_nodes:
            node.channel("test.logged", Count)
            node.channel("test.plain", Count)
        sources = [node.channel(f"test.{which}").source("s") for node in all_nodes for which in ("logged", "plain")]
        got: list[int] = []

        def handler(event: Count) -> None:
            got.append(event.n)

        sink = first.subscribe("test.*", handler, name="mail", delivery=DELIVERIES[kind])
        make.together()
        make.ready()
        stop = threading.Event()
        counts = [0] * len(sources)

        def run() -> None:
            while not stop.is_set():
                for k, source in enumerate(sources):
                    source.publish(Count(k * EACH + counts[k]))
                    counts[k] += 1
                stop.wait(0.001)

        publisher = threading.Thread(target=run)
        publisher.start()
        try:
            for at in (1, 2, 2, 0, 2, 1, 1, 0):
                enough = len(got) + 60
                eventually(lambda enough=enough: len(got) >= enough, "it goes on")
                token = sink.move()
                sink = all_nodes[at].resume(token, handler, timeout=GUARD)
        finally:
            stop.set()
            publisher.join()
        eventually(lambda: len(got) >= sum(counts), f"all of {counts}")
        for k in range(len(sources)):
            assert [n % EACH for n in got if n // EACH == k] == list(range(counts[k]))


@pytest.mark.parametrize("kind", ["durable", "reliable"])
@pytest.mark.parametrize("at", ["lab", "desk", "phone"])
def test_state_of_an_interest_goes_with_it(at: str, kind: str, tmp_path: Path) -> None:
    """An interest that counts what it has seen goes on counting, at the sources of the old node, the new one, and
    others; and again when it comes back."""
    with nodes() as make:
        lab, desk, phone = three(make, tmp_path, kind)
        source = {"lab": lab, "desk": desk, "phone": phone}[at].channel(CHANNEL, Count).source("s")
        sink = desk.channel(CHANNEL, Count).subscribe(
            seen := Seen(), EVERY_FIFTH, name="mail", delivery=DELIVERIES[kind]
        )
        make.together()
        make.ready(desk)
        publish(source, 0, 103)
        seen.wait(20)
        token = sink.move()
        publish(source, 103, 150)
        after = Seen()
        moved = phone.resume(token, after, timeout=GUARD)
        publish(source, 150, 201)
        after.wait(20)
        token = moved.move()
        publish(source, 201, 211)
        desk.resume(token, seen, timeout=GUARD)
        publish(source, 211, 300)
        seen.wait(40)
        assert sorted(seen.field("n") + after.field("n")) == list(range(4, 300, 5))
        assert seen.field("n")[20:] == list(range(204, 300, 5))


def test_a_sink_that_pulls_and_one_in_batches_move(tmp_path: Path) -> None:
    with nodes() as make:
        lab, desk, phone = three(make, tmp_path, "reliable")
        source = lab.channel(CHANNEL, Count).source("s")
        pulling = desk.channel(CHANNEL, Count).subscribe(name="pull")
        rows: list[int] = []
        batches = desk.channel(CHANNEL).subscribe(
            lambda batch: rows.extend(batch["n"].to_pylist()), name="rows", batch=16
        )
        make.together()
        make.ready(desk)
        publish(source, 0, 40)
        taken = [pulling.get(GUARD).n for _ in range(25)]
        eventually(lambda: len(rows) == 40, "rows")
        tokens = pulling.move(), batches.move()
        source.publish_many(pa.record_batch({"n": pa.array(range(40, 80), pa.int64())}))
        there = phone.resume(tokens[0], timeout=GUARD)
        phone.resume(tokens[1], lambda batch: rows.extend(batch["n"].to_pylist()), batch=16, timeout=GUARD)
        source.publish_many(pa.record_batch({"n": pa.array(range(80, 100), pa.int64())}))
        taken += [there.get(GUARD).n for _ in range(75)]
        eventually(lambda: len(rows) >= 100, "rows")
        assert taken == list(range(100)) == rows


def test_a_batch_in_the_middle_of_which_it_leaves(tmp_path: Path) -> None:
    """Some of its events were handed over one by one, the others wait."""
    with nodes() as make:
        lab, desk, phone = three(make, tmp_path, "reliable")
        source = lab.channel(CHANNEL, Count).source("s")
        got: list[int] = []
        reached, go = threading.Event(), threading.Event()

        def until_thirty(event: Count) -> None:
            got.append(event.n)
            if event.n == 30:
                reached.set()
                assert go.wait(GUARD)

        sink = desk.channel(CHANNEL, Count).subscribe(until_thirty, dispatch="pool")
        make.together()
        make.ready(desk)
        source.publish_many(pa.record_batch({"n": pa.array(range(100), pa.int64())}))
        assert reached.wait(GUARD)
        tokens: list[str] = []
        leaving = threading.Thread(target=lambda: tokens.append(sink.move()))
        leaving.start()
        eventually(lambda: sink.state == "paused", "it stands still")
        go.set()
        leaving.join()
        phone.resume(tokens[0], lambda event: got.append(event.n), timeout=GUARD)
        eventually(lambda: len(got) >= 100, "all")
        assert got == list(range(100))


def test_what_was_not_acknowledged_comes_again_and_says_so(tmp_path: Path) -> None:
    with nodes() as make:
        abouts: list[Any] = []
        manual = Reliable(durable=True, acknowledge="manual")
        source, _, phone, sink, _ = begun(
            make,
            tmp_path,
            "durable",
            delivery=manual,
            handler=lambda event, about: abouts.append(about),
            about=True,
        )
        eventually(lambda: len(abouts) == 100, "all came")
        abouts[59].acknowledge()
        token = sink.move()
        publish(source, 100, 110)
        with pytest.raises(SubscriptionError, match="on its way"):
            abouts[80].acknowledge()
        with pytest.raises(SubscriptionError, match="on its way"):
            sink.resume()
        again: list[tuple[int, bool]] = []
        last: list[Any] = []

        def handler(event: Count, about: Any) -> None:
            again.append((event.n, about.redelivered))
            last.append(about)

        there = phone.resume(token, handler, timeout=GUARD)
        publish(source, 110, 120)
        eventually(lambda: len(again) == 60, "the rest came")
        assert again == [(n, n < 100) for n in range(60, 120)]
        last[49].acknowledge()  # of event 109
        back = begun_again = list[int]()
        make.opened[1].resume(there.move(), lambda event, about: begun_again.append(event.n), timeout=GUARD)
        eventually(lambda: len(back) == 10, "what was acknowledged there does not come again")
        assert back == list(range(110, 120))


def test_if_nobody_takes_it_up_it_goes_on_with_what_waited(tmp_path: Path) -> None:
    with nodes() as make:
        source, desk, phone, sink, seen = begun(make, tmp_path, "reliable")
        seen.wait(100)
        token = sink.move(lasts=0.05)
        publish(source, 100, 200)
        seen.wait(200)
        assert seen.field("n") == list(range(200)) and sink.state == "open"
        with pytest.raises(FederationError, match="expired"):
            phone.resume(token, print, timeout=GUARD)
        assert "mail" not in phone.subscriptions
        publish(source, 200, 210)
        seen.wait(210)
        assert desk.report().services["moving"]["expired"] == 1
        after = Seen()
        phone.resume(sink.move(), after, timeout=GUARD)  # and it may leave again
        publish(source, 210, 220)
        after.wait(10)


def test_many_of_one_name_come_to_a_node_at_once(tmp_path: Path) -> None:
    """One of them keeps it, and the others get names of their own."""
    with nodes() as make:
        lab, desk, phone = three(make, tmp_path, "reliable")
        hall = place(make, "hall")
        source = lab.channel(CHANNEL, Count).source("s")
        sinks = [node.channel(CHANNEL, Count).subscribe(Seen(), name="mail") for node in (lab, desk, hall)]
        make.together()
        make.ready()
        publish(source, 0, 10)
        for _ in range(rounds(3, 20)):
            tokens, back, problems = [each.move() for each in sinks], list[Any](), list[Exception]()
            start = threading.Barrier(len(tokens))

            def resume(token: str, start: Any = start, back: Any = back, problems: Any = problems) -> None:
                start.wait()
                try:
                    back.append(phone.resume(token, Seen(), timeout=GUARD))
                except Exception as error:
                    problems.append(error)

            threads = [threading.Thread(target=resume, args=(token,)) for token in tokens]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            assert not problems
            assert len({each.name for each in back}) == len(sinks)
            homes = zip(back, (lab, desk, hall), strict=True)
            sinks = [node.resume(each.move(), Seen(), timeout=GUARD) for each, node in homes]


def test_the_old_place_is_fenced_and_its_name_is_free(tmp_path: Path) -> None:
    """A sink that is not durable keeps nothing under its name: another may have that, at once."""
    with nodes() as make:
        source, desk, phone, sink, seen = begun(make, tmp_path, "reliable")
        seen.wait(100)
        token, after, other = sink.move(), Seen(), Seen()
        with pytest.raises(SubscriptionError, match="on its way"):
            sink.resume()
        with pytest.raises(SubscriptionError, match="on its way"):
            sink.move()
        moved = phone.resume(token, after, timeout=GUARD)
        for node in (desk, phone):
            with pytest.raises(FederationError, match="used"):
                node.resume(token, print, timeout=GUARD)
        desk.channel(CHANNEL).subscribe(other, name="mail")
        assert desk.ready(GUARD)
        back = desk.resume(moved.move(), seen, timeout=GUARD)
        assert back.name != "mail" and desk.resume(back.move(), seen, name="post", timeout=GUARD).name == "post"
        publish(source, 100, 110)
        seen.wait(110)
        other.wait(10)
        assert seen.field("n") == list(range(110)) and not after.events


def test_a_full_queue_makes_publishers_wait_and_nothing_is_lost(tmp_path: Path) -> None:
    with nodes() as make:
        source, _, phone, sink, seen = begun(make, tmp_path, "reliable", queue=Queue(limit=50, wait=GUARD))
        seen.wait(100)
        token = sink.move()
        published = threading.Thread(target=publish, args=(source, 100, 60_000))
        published.start()
        eventually(lambda: sink._mailbox.is_full, "it is full")
        after = Seen()
        phone.resume(token, after, timeout=GUARD)
        published.join()
        after.wait(59_900)
        assert after.field("n") == list(range(100, 60_000))


def test_a_queue_that_drops_drops_and_counts(tmp_path: Path) -> None:
    with nodes() as make:
        source, _, phone, sink, _ = begun(make, tmp_path, "reliable", queue=Queue(limit=10, policy="drop_oldest"))
        eventually(lambda: sink.counts.delivered + sink.counts.dropped == 100, "the first ones")
        token = sink.move()
        publish(source, 100, 200)
        eventually(lambda: sink.counts.dropped >= 90, "it has dropped the first of those")
        after = Seen()
        phone.resume(token, after, timeout=GUARD)
        after.wait(10)
        assert after.field("n") == list(range(190, 200))


def test_a_source_that_ends_while_it_is_on_its_way(tmp_path: Path) -> None:
    """Its last events wait at the old node, and go along."""
    with nodes() as make:
        source, desk, phone, sink, seen = begun(make, tmp_path, "reliable")
        seen.wait(100)
        token = sink.move()
        publish(source, 100, 150)
        source.close()
        eventually(lambda: sink._mailbox.waiting == 50, "they wait")
        after = list[tuple[int, str]]()
        pulled = phone.resume(token, timeout=GUARD)  # and on, before anybody has looked at them
        token = desk.resume(pulled.move(), timeout=GUARD).move()
        phone.resume(token, lambda event, about: after.append((event.n, about.source)), timeout=GUARD)
        eventually(lambda: len(after) == 50, "they came")
        assert after == [(n, "s") for n in range(100, 150)]


def test_by_time_and_by_priority(tmp_path: Path) -> None:
    """The order of a sink is kept also among what waits."""
    with nodes() as make:
        lab, desk, phone = three(make, tmp_path, "reliable")
        channel = lab.channel(CHANNEL, Count)
        others = [node.channel(CHANNEL, Count).source(node.name) for node in (desk, phone)]
        sources, seen, first = [channel.source("lab"), *others], Seen(), Seen()
        timed = desk.channel(CHANNEL).subscribe(print, order="timestamp")
        urgent = desk.channel(CHANNEL).subscribe(print, priority="n", dispatch="priority")
        make.together()
        make.ready()
        tokens = timed.move(), urgent.move()
        for n in range(60):
            sources[n % 3].publish(Count(n))
        phone.resume(tokens[0], seen, timeout=GUARD)
        phone.resume(tokens[1], first, priority="n", dispatch="priority", timeout=GUARD)
        first.wait(60)
        seen.wait(60)
        assert seen.field("n") == list(range(60)) and first.field("n") == list(range(59, -1, -1))


@pytest.mark.parametrize("at", ["lab", "desk"])
def test_state_that_has_moved_outlives_a_catch_up_of_another_sink(at: str, tmp_path: Path) -> None:
    """A durable sink that comes to the same node has the log read again from where it was: the interest of the other
    one, which is judged again with it, counts from where it began, at another node."""
    with nodes() as make:
        lab, desk, phone = (
            place(make, name, log=Log(tmp_path / name), state=":memory:") for name in ("lab", "desk", "phone")
        )
        source = {"lab": lab, "desk": desk}[at].channel(CHANNEL, Count).source("s")
        seen, every = Seen(), Seen()
        counting = desk.channel(CHANNEL, Count).subscribe(seen, EVERY_FIFTH, name="counting")
        durable = desk.channel(CHANNEL).subscribe(every, name="all", delivery=DELIVERIES["durable"])
        make.together()
        make.ready(desk)
        done = 0
        for node in (phone, lab, phone, desk, phone):
            publish(source, done, done + 33)
            token = counting.move()
            publish(source, done + 33, done + 36)
            counting = node.resume(token, seen, timeout=GUARD)
            publish(source, done + 36, done + 41)
            token = durable.move()
            publish(source, done + 41, done + 52)
            durable = node.resume(token, every, timeout=GUARD)
            done += 52
            publish(source, done, done + 1)
            done += 1
            every.wait(done)
            seen.wait(done // 5)
        assert every.field("n") == list(range(done))
        assert seen.field("n") == list(range(4, done, 5))


@pytest.mark.parametrize("kind", ["durable", "reliable"])
def test_a_pattern_brings_along_what_waits_of_channels_that_nobody_knows_there(kind: str, tmp_path: Path) -> None:
    """One whose source is gone by then, and one that the new node has not looked for before it came."""
    with nodes() as make:
        lab, desk, phone = three(make, tmp_path, kind)
        gone = lab.channel("test.gone", Count).source("s")
        goes_on = lab.channel("test.goes.on", Count).source("s")
        seen, after = list[tuple[str, int]](), list[tuple[str, int]]()
        sink = desk.subscribe(
            "test.**",
            lambda event, about: seen.append((about.channel, event.n)),
            name="mail",
            delivery=DELIVERIES[kind],
        )
        make.together()
        assert desk.until(lambda: desk.has_channel("test.gone") and desk.has_channel("test.goes.on"), GUARD)
        make.ready(desk)
        for source in (gone, goes_on):
            publish(source, 0, 10)
        eventually(lambda: len(seen) == 20, "the first ones")
        token = sink.move()
        for source in (gone, goes_on):
            publish(source, 10, 20)
        eventually(lambda: sink.counts.queued == 20, "they wait")
        gone.close()
        assert phone.until(lambda: not phone.remote_sources("test.gone"), GUARD)
        assert "test.gone" not in {channel.name for channel in phone.channels()}
        phone.resume(token, lambda event, about: after.append((about.channel, event.n)), timeout=GUARD)
        publish(goes_on, 20, 30)
        eventually(lambda: len(after) >= 30, "what waited, and what follows")
        for channel, last in (("test.gone", 20), ("test.goes.on", 30)):
            assert [n for name, n in after if name == channel] == list(range(10, last))
        assert phone._engine.context.offences[desk._engine.context.id] == 0


@pytest.mark.parametrize("kind", ["durable", "reliable"])
def test_sinks_with_full_queues_change_places(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither node's link waits for the one that leaves: what says that the other is in force comes over it."""
    with nodes() as make:
        lab, desk, phone = three(make, tmp_path, kind)
        source, got = lab.channel(CHANNEL, Count).source("s"), {"a": list[int](), "b": list[int]()}
        few = Queue(limit=20, wait=GUARD)
        handlers: dict[str, Any] = {name: lambda event, name=name: got[name].append(event.n) for name in got}
        sinks = [
            node.channel(CHANNEL, Count).subscribe(handlers[name], name=name, delivery=DELIVERIES[kind], queue=few)
            for node, name in ((desk, "a"), (phone, "b"))
        ]
        make.together()
        make.ready(desk, phone)
        tokens = [sink.move() for sink in sinks]
        publisher = threading.Thread(target=publish, args=(source, 0, 2000))
        publisher.start()
        eventually(lambda: all(sink.counts.queued >= 20 for sink in sinks), "both are full")
        phone.resume(tokens[0], handlers["a"], queue=few, timeout=GUARD)
        desk.resume(tokens[1], handlers["b"], queue=few, timeout=GUARD)
        publisher.join()
        for each in got.values():
            eventually(lambda each=each: len(each) >= 2000, "all")
            assert each == list(range(2000))
        assert "not all that waited" not in caplog.text
