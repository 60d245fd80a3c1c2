"""Sinks move between nodes of a federation, under publishing: nothing lost, nothing twice, everything in order."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater import Event, Log, Node, Queue, Reliable, i64
from headwater.errors import ClosedError, FederationError, StoreError, SubscriptionError
from headwater.network import Network
from headwater.services.moving.register import MoveRegister
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see
from tests.federation.nodes import Log as Seen

CHANNEL = "test.count"
DURABLE = Reliable(durable=True)
LISTEN = "tcp/127.0.0.1:0"
EACH = 1_000_000  # numbers of each source
EVERY_FIFTH = "{ static int seen = 0; seen = seen + 1; return seen % 5 == 0; }"


class Count(Event, name="test.Count"):
    n: i64


def lab_of(make: Nodes, path: Path) -> tuple[Node, Any]:
    lab = make("lab", log=Log(path / "log"), listen=LISTEN, state=path / "lab")
    return lab, lab.channel(CHANNEL, Count).source("s")


def place(make: Nodes, lab: Node, name: str, path: Path, **more: Any) -> Node:
    return make(name, connect=lab.endpoints[0], listen=LISTEN, **{"state": path / name, **more})


def publish(source: Any, first: int, last: int) -> None:
    for n in range(first, last):
        source.publish(Count(n))


def begun(make: Nodes, path: Path, where: Any = None, **options: Any) -> tuple[Node, Any, Node, Node, Any, Seen]:
    """A lab that logs, and a sink at the desk that has had its first hundred; and a phone."""
    lab, source = lab_of(make, path)
    desk, phone = place(make, lab, "desk", path), place(make, lab, "phone", path)
    seen = Seen()
    handler: Callable[..., Any] = options.pop("handler", seen)
    delivery = options.pop("delivery", DURABLE)
    sink = desk.channel(CHANNEL, Count).subscribe(handler, where, name="mail", delivery=delivery, **options)
    make.together()
    see(desk, lab)
    assert desk.ready(GUARD)
    publish(source, 0, 100)
    return lab, source, desk, phone, sink, seen


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("where", [None, "n >= 0 and n % 3 == 0"])
def test_it_goes_on_exactly_where_it_was(where: Any, others: bool, tmp_path: Path) -> None:
    """Also where the other node has had events of the same channel all along: its sinks hear nothing twice."""
    wanted = [n for n in range(300) if where is None or n % 3 == 0]
    with nodes() as make:
        lab, source, _, phone, sink, seen = begun(make, tmp_path, where)
        beside = Seen()
        if others:
            phone.channel(CHANNEL, Count).subscribe(beside, "n >= 50")
            see(phone, lab)
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


def test_it_moves_on_and_on_while_everybody_publishes(tmp_path: Path) -> None:
    """Round and round among three nodes, each of which has a logged source, and one publisher never stops: for each
    source one sequence, whole, in order, none twice."""
    with nodes() as make:
        first = make("n0", log=tmp_path / "log0", state=tmp_path / "s0", listen=LISTEN)
        all_nodes = [first]
        for k in (1, 2):
            more = {"log": tmp_path / f"log{k}", "state": tmp_path / f"s{k}"}
            all_nodes.append(make(f"n{k}", connect=first.endpoints[0], listen=LISTEN, **more))
        sources = [node.channel(CHANNEL, Count).source("s") for node in all_nodes]
        got: list[int] = []
        repeated: list[Any] = []

        def handler(event: Count, about: Any) -> None:
            got.append(event.n)
            if about.redelivered:
                repeated.append(event)

        sink = first.channel(CHANNEL).subscribe(handler, name="mail", delivery=DURABLE)
        make.together()
        make.ready()
        stop = threading.Event()
        counts = [0, 0, 0]

        def run() -> None:
            while not stop.is_set():
                for k, source in enumerate(sources):
                    source.publish(Count(k * EACH + counts[k]))
                    counts[k] += 1
                stop.wait(0.001)

        publisher = threading.Thread(target=run)
        publisher.start()
        try:
            for at in (1, 2, 0, 2, 1):
                enough = len(got) + 30
                eventually(lambda enough=enough: len(got) >= enough, "it goes on")
                token = sink.move()
                sink = all_nodes[at].resume(token, handler, timeout=GUARD)
        finally:
            stop.set()
            publisher.join()
        eventually(lambda: len(got) >= sum(counts), f"all of {counts}")
        for k in range(3):
            assert [n % EACH for n in got if n // EACH == k] == list(range(counts[k]))
        assert not repeated


def test_it_moves_on_while_what_it_has_missed_is_still_on_its_way(tmp_path: Path) -> None:
    """Some of that has come and is done with, and others at its place have had all: the rest is not skipped."""
    missed, some = 20_000, 16_384  # more than is read from a log in one go, and that
    with nodes() as make:
        lab = make("lab", log=Log(tmp_path / "log"), listen=LISTEN, network=Network(link=Queue(limit=4096)))
        source = lab.channel(CHANNEL, Count).source("s")
        desk, phone = place(make, lab, "desk", tmp_path), place(make, lab, "phone", tmp_path)
        got, beside = list[int](), list[int]()
        reached, left = threading.Event(), threading.Event()

        def until_some(batch: Any) -> None:
            got.extend(batch["n"].to_pylist())
            if len(got) == some:
                reached.set()
                assert left.wait(GUARD)

        sink = desk.channel(CHANNEL, Count).subscribe(print, name="mail", delivery=DURABLE)
        phone.channel(CHANNEL, Count).subscribe(lambda batch: beside.extend(batch["n"].to_pylist()), batch=256)
        make.together()
        make.ready(desk, phone)
        token = sink.move()
        for first in range(0, missed, 4000):
            source.publish_many(pa.record_batch({"n": pa.array(range(first, first + 4000), pa.int64())}))
        eventually(lambda: len(beside) == missed, "another one has all")
        there = phone.resume(token, until_some, batch=256, timeout=GUARD)
        assert reached.wait(GUARD)
        tokens: list[str] = []
        leaving = threading.Thread(target=lambda: tokens.append(there.move()))
        leaving.start()
        eventually(lambda: there.state == "paused", "it stands still as soon as its handler has returned")
        left.set()
        leaving.join()
        desk.resume(tokens[0], lambda batch: got.extend(batch["n"].to_pylist()), batch=256, timeout=GUARD)
        eventually(lambda: len(got) >= missed, "all came")
        assert got == list(range(missed))


def test_state_of_an_interest_goes_with_it(tmp_path: Path) -> None:
    """An interest that counts what it has seen goes on counting."""
    with nodes() as make:
        lab, source = lab_of(make, tmp_path)
        desk, phone = place(make, lab, "desk", tmp_path), place(make, lab, "phone", tmp_path)
        seen, after = Seen(), Seen()

        sink = desk.channel(CHANNEL, Count).subscribe(seen, EVERY_FIFTH, name="mail", delivery=DURABLE)
        make.together()
        see(desk, lab)
        assert desk.ready(GUARD)
        publish(source, 0, 103)
        seen.wait(20)
        token = sink.move()
        publish(source, 103, 150)
        phone.resume(token, after, timeout=GUARD)
        publish(source, 150, 200)
        after.wait(20)
        assert seen.field("n") + after.field("n") == list(range(4, 200, 5))


def test_what_was_not_acknowledged_comes_again_and_says_so(tmp_path: Path) -> None:
    with nodes() as make:
        abouts: list[Any] = []
        manual = Reliable(durable=True, acknowledge="manual")
        _, source, _, phone, sink, _ = begun(
            make, tmp_path, delivery=manual, handler=lambda event, about: abouts.append(about), about=True
        )
        eventually(lambda: len(abouts) == 100, "all came")
        abouts[59].acknowledge()
        token = sink.move()
        with pytest.raises(SubscriptionError, match="on its way"):
            abouts[80].acknowledge()
        with pytest.raises(SubscriptionError, match="on its way"):
            sink.resume()
        again: list[tuple[int, bool]] = []
        phone.resume(token, lambda event, about: again.append((event.n, about.redelivered)), timeout=GUARD)
        publish(source, 100, 120)
        eventually(lambda: len(again) == 60, "the rest came")
        assert again == [(n, n < 100) for n in range(60, 120)]


@pytest.mark.parametrize("back", [False, True])
def test_what_was_handed_over_goes_along_from_node_to_node(back: bool, tmp_path: Path) -> None:
    """Nothing is acknowledged: at each place all comes again, marked as far as it came before, and no further; also
    where the sink goes on at its node, after a token that nobody has used, or the same node after a restart."""
    with nodes() as make:
        manual, seen = Reliable(durable=True, acknowledge="manual"), list[tuple[int, bool]]()

        def handler(event: Count, about: Any) -> None:
            seen.append((event.n, about.redelivered))

        _, source, desk, phone, sink, _ = begun(make, tmp_path, delivery=manual, handler=handler, about=True)
        eventually(lambda: len(seen) == 100, "all came")
        last = 100
        for _ in range(3):
            token = sink.move()
            publish(source, last, last + 10)
            seen.clear()
            sink = (desk if back else phone).resume(token, handler, timeout=GUARD)
            back, before, last = not back, last, last + 10
            eventually(lambda last=last: len(seen) == last, "all came again")
            assert seen == [(n, n < before) for n in range(last)]
        seen.clear()
        sink.move(lasts=0.05)
        publish(source, last, last + 10)
        eventually(lambda: len(seen) == 10, "it goes on")
        assert seen == [(n, False) for n in range(last, last + 10)]


def test_nothing_is_kept_of_one_that_has_left_with_what_it_had_not_acknowledged(tmp_path: Path) -> None:
    with nodes() as make:
        manual, seen = Reliable(durable=True, acknowledge="manual"), list[int]()
        _, _, desk, phone, sink, _ = begun(make, tmp_path, delivery=manual, handler=lambda event: seen.append(event.n))
        eventually(lambda: len(seen) == 100, "all came")
        phone.resume(sink.move(), lambda event: seen.append(event.n), timeout=GUARD)
        eventually(lambda: sink.state == "closed", "nothing of it is left")
        assert desk.state is not None and desk.state.sinks() == []
        assert desk.forget_moved("mail")
        desk.channel(CHANNEL).subscribe(lambda event: None, name="mail", delivery=manual)


def taken(sink: Any, many: int) -> list[tuple[int, bool]]:
    """What one that pulls is given, and whether it came before."""
    found = (sink.get(GUARD) for _ in range(many))
    return [(event.n, about.redelivered) for event, about in found]


def test_what_an_earlier_life_acknowledges_is_not_kept_of_one_that_has_left(tmp_path: Path) -> None:
    with nodes() as make:
        manual, abouts = Reliable(durable=True, acknowledge="manual"), list[Any]()

        def handler(event: Count, about: Any) -> None:
            abouts.append(about)

        _, _, desk, phone, sink, _ = begun(make, tmp_path, delivery=manual, handler=handler)
        eventually(lambda: len(abouts) == 100, "all came")
        sink.cancel()
        again = desk.channel(CHANNEL).subscribe(lambda event: None, name="mail", delivery=manual)
        phone.resume(again.move(), lambda event: None, timeout=GUARD)
        eventually(lambda: again.state == "closed", "nothing of it is left")
        abouts[50].acknowledge()
        assert desk.state is not None and desk.state.sinks() == []


def test_started_again_by_its_token_it_has_what_it_had_not_acknowledged(tmp_path: Path) -> None:
    """Also where it has acknowledged nothing at all, and so is before the first event."""
    with nodes() as make:
        manual, seen = Reliable(durable=True, acknowledge="manual"), list[tuple[int, bool]]()

        def handler(event: Count, about: Any) -> None:
            seen.append((event.n, about.redelivered))

        lab, source, _, phone, sink, _ = begun(make, tmp_path, delivery=manual, handler=handler)
        eventually(lambda: len(seen) == 100, "all came")
        token = sink.move()
        phone.resume(token, handler, timeout=GUARD)
        eventually(lambda: len(seen) == 200, "all came again")
        phone.close()
        publish(source, 100, 110)
        seen.clear()
        phone = place(make, lab, "phone", tmp_path)
        phone.resume(token, handler, timeout=GUARD)
        publish(source, 110, 120)
        eventually(lambda: len(seen) == 120, "all came once more")
        assert seen == [(n, n < 100) for n in range(120)]


@pytest.mark.parametrize("many", [1, 3])
def test_what_a_killed_process_may_have_had_is_marked_where_it_moves_then(many: int, tmp_path: Path) -> None:
    """It moves before anything was handed over after the kill; and the node that it came to is killed as well."""
    with nodes() as make:
        manual = Reliable(durable=True, acknowledge="manual")
        lab, source = lab_of(make, tmp_path)
        folders = [tmp_path / name for name in ("desk", "after desk", "phone", "after phone")]
        for folder in folders[::2]:
            folder.mkdir()

        def at(name: str, folder: Path) -> Node:
            return place(make, lab, name, tmp_path, state=folder / "state")

        def comes(desk: Node) -> Any:
            sink = desk.channel(CHANNEL, Count).subscribe(name="mail", delivery=manual, about=True)
            see(desk, lab)
            assert desk.ready(GUARD)
            return sink

        desk = at("desk", folders[0])
        sink = comes(desk)
        publish(source, 0, 5)
        assert taken(sink, many) == [(n, False) for n in range(many)]
        shutil.copytree(folders[0], folders[1])  # as it would be if it were killed now
        desk.close()
        desk = at("desk", folders[1])
        token = comes(desk).move()
        phone = at("phone", folders[2])
        phone.resume(token, timeout=GUARD, about=True)
        shutil.copytree(folders[2], folders[3])
        phone.close()
        phone = at("phone", folders[3])
        assert taken(phone.resume(token, timeout=GUARD, about=True), 5) == [(n, n < many) for n in range(5)]


def test_one_that_pulls_and_is_cancelled_on_its_way_is_given_nothing_more(tmp_path: Path) -> None:
    with nodes() as make:
        lab, source = lab_of(make, tmp_path)
        desk, phone = place(make, lab, "desk", tmp_path), place(make, lab, "phone", tmp_path)
        sink = desk.channel(CHANNEL, Count).subscribe(name="mail", delivery=DURABLE, about=True)
        make.together()
        see(desk, lab)
        assert desk.ready(GUARD)
        publish(source, 0, 5)
        assert taken(sink, 1) == [(0, False)]
        eventually(lambda: sink.counts.queued == 4, "all came")
        token = sink.move()
        sink.cancel()
        with pytest.raises(ClosedError):
            sink.poll()
        counts = sink.counts
        assert counts.passed == counts.delivered + counts.skipped == 5
        assert taken(phone.resume(token, timeout=GUARD, about=True), 4) == [(n, False) for n in range(1, 5)]
        assert desk.state is not None and desk.state.sinks() == [] and not desk.state.is_open("mail")


def test_if_nobody_takes_it_up_it_goes_on_where_it_was(tmp_path: Path) -> None:
    with nodes() as make:
        _, source, desk, phone, sink, seen = begun(make, tmp_path)
        seen.wait(100)
        token = sink.move(lasts=0.05)
        publish(source, 100, 200)
        seen.wait(200)
        assert seen.field("n") == list(range(200)) and sink.state == "open"
        with pytest.raises(FederationError, match="expired"):
            phone.resume(token, print, timeout=GUARD)
        assert "mail" not in phone.subscriptions and phone.state is not None and not phone.state.sinks()
        publish(source, 200, 210)
        seen.wait(210)
        assert desk.report().services["moving"]["expired"] == 1


def test_it_may_be_taken_back_by_its_own_token(tmp_path: Path) -> None:
    with nodes() as make:
        _, source, desk, phone, sink, seen = begun(make, tmp_path)
        seen.wait(100)
        token = sink.move()
        publish(source, 100, 150)
        back = desk.resume(token, seen, timeout=GUARD)
        seen.wait(150)
        with pytest.raises(FederationError, match="come back since"):
            phone.resume(token, print, timeout=GUARD)
        onward = back.move()
        after = Seen()
        phone.resume(onward, after, timeout=GUARD)
        publish(source, 150, 160)
        after.wait(10)
        assert seen.field("n") + after.field("n") == list(range(160))


def test_the_old_place_is_fenced(tmp_path: Path) -> None:
    with nodes() as make:
        lab, source, desk, phone, sink, seen = begun(make, tmp_path)
        seen.wait(100)
        token = sink.move()
        after = Seen()
        phone.resume(token, after, timeout=GUARD)
        with pytest.raises(SubscriptionError, match="has moved to phone"):
            desk.channel(CHANNEL).subscribe(seen, name="mail", delivery=DURABLE)
        with pytest.raises(FederationError, match="used: phone"):
            desk.resume(token, seen, timeout=GUARD)
        with pytest.raises(SubscriptionError, match=r"was used here, .* node\.subscriptions\['mail'\]"):
            phone.resume(token, seen, timeout=GUARD)
        desk.close()  # and started again, it still knows
        desk = place(make, lab, "desk", tmp_path)
        with pytest.raises(SubscriptionError, match="has moved to phone"):
            desk.channel(CHANNEL, Count).subscribe(seen, name="mail", delivery=DURABLE)
        assert desk.forget_moved("mail") and not desk.forget_moved("mail")
        desk.channel(CHANNEL, Count).subscribe(seen, name="mail", delivery=DURABLE)
        publish(source, 100, 110)
        after.wait(10)
        assert after.field("n") == list(range(100, 110))


def test_a_node_that_was_killed_after_the_token_was_made_gives_it_out_when_it_is_back(tmp_path: Path) -> None:
    """Its state says so: until then nobody has the sink, and nobody else gets it."""
    with nodes() as make:
        lab, source, desk, phone, sink, seen = begun(make, tmp_path)
        seen.wait(100)
        token = sink.move()
        desk.close(drain=False, timeout=0.0)
        publish(source, 100, 150)
        eventually(lambda: "desk" not in phone.peers, "it is gone")
        with pytest.raises(FederationError, match="try again with the same token"):
            phone.resume(token, print, timeout=0.2)
        assert "mail" not in phone.subscriptions
        desk = place(make, lab, "desk", tmp_path)
        with pytest.raises(SubscriptionError, match="on its way"):
            desk.channel(CHANNEL, Count).subscribe(seen, name="mail", delivery=DURABLE)
        after = Seen()
        phone.resume(token, after, timeout=GUARD)
        publish(source, 150, 160)
        after.wait(60)
        assert seen.field("n") + after.field("n") == list(range(160))


def test_who_has_it_and_was_started_again_goes_on_by_name_or_token(tmp_path: Path) -> None:
    with nodes() as make:
        lab, source, _, phone, sink, seen = begun(make, tmp_path)
        seen.wait(100)
        token, after = sink.move(), Seen()
        phone.resume(token, after, timeout=GUARD)
        publish(source, 100, 150)
        after.wait(50)
        phone.close()
        publish(source, 150, 200)
        phone = place(make, lab, "phone", tmp_path)
        phone.resume(token, after, timeout=GUARD)
        publish(source, 200, 210)
        after.wait(110)
        assert after.field("n") == list(range(100, 210))
        third = place(make, lab, "third", tmp_path)
        make.together(third, phone, lab)
        onward = phone.subscriptions["mail"].move()
        last = Seen()
        third.resume(onward, last, timeout=GUARD)
        with pytest.raises(FederationError, match="moved to third"):
            phone.resume(token, after, timeout=GUARD)
        publish(source, 210, 220)
        last.wait(10)
        assert last.field("n") == list(range(210, 220)) and len(after.events) == 110


def test_one_that_just_vanishes_comes_back_to_what_it_missed(tmp_path: Path) -> None:
    """In the same process, while others there have had what it missed; and they hear nothing twice."""
    with nodes() as make:
        _, source, desk, _, sink, seen = begun(make, tmp_path)
        beside = Seen()
        desk.channel(CHANNEL).subscribe(beside, "n >= 100")
        assert desk.ready(GUARD)
        seen.wait(100)
        sink.cancel()
        publish(source, 100, 200)
        beside.wait(100)
        desk.channel(CHANNEL).subscribe(seen, name="mail", delivery=DURABLE)
        publish(source, 200, 250)
        seen.wait(250)
        beside.wait(150)
        assert seen.field("n") == list(range(250)) and beside.field("n") == list(range(100, 250))


def test_of_two_that_show_the_token_at_once_one_gets_it(tmp_path: Path) -> None:
    with nodes() as make:
        lab, source, _, phone, sink, seen = begun(make, tmp_path)
        third = place(make, lab, "third", tmp_path)
        make.together()
        seen.wait(100)
        token, got = sink.move(), {"phone": Seen(), "third": Seen()}
        problems: list[str] = []

        def take(node: Node) -> None:
            try:
                node.resume(token, got[node.name], timeout=GUARD)
            except FederationError as error:
                problems.append(str(error))

        threads = [threading.Thread(target=take, args=(node,)) for node in (phone, third)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(problems) == 1 and "the token was used" in problems[0]
        publish(source, 100, 120)
        winner = phone if "mail" in phone.subscriptions else third
        got[winner.name].wait(20)
        assert sorted(len(each.events) for each in got.values()) == [0, 20]


def test_what_could_not_be_written_at_the_new_place_is_asked_for_again(tmp_path: Path) -> None:
    """Claimed, and then the disk was full: the sink is nowhere, and the same token brings it."""
    with nodes() as make:
        _, source, _, phone, sink, seen = begun(make, tmp_path)
        seen.wait(100)
        token, after = sink.move(), Seen()

        def full(*given: Any) -> None:
            raise StoreError("state: the disk is full")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("headwater.services.moving.register.MoveRegister.take", full)
            with pytest.raises(StoreError):
                phone.resume(token, after, timeout=GUARD)
        assert sink.state == "closed" and "mail" not in phone.subscriptions
        publish(source, 100, 110)
        phone.resume(token, after, timeout=GUARD)
        after.wait(10)
        assert after.field("n") == list(range(100, 110))


def test_what_could_not_be_synced_at_the_new_place_goes_on_with_the_same_token(tmp_path: Path) -> None:
    """It had begun there, and had events: the disk fails, it is cancelled, and goes on after these when it is back."""
    with nodes() as make:
        _, source, _, phone, sink, seen = begun(make, tmp_path)
        seen.wait(100)
        token, after = sink.move(), Seen()
        publish(source, 100, 110)

        def broken(*given: Any) -> None:
            after.wait(10)
            assert phone.flush(GUARD)
            raise StoreError("state: input/output error")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("headwater.services.moving.register.MoveRegister.settle", broken)
            with pytest.raises(StoreError):
                phone.resume(token, after, timeout=GUARD)
        assert sink.state == "closed" and "mail" not in phone.subscriptions
        publish(source, 110, 120)
        phone.resume(token, after, timeout=GUARD)
        after.wait(20)
        assert after.field("n") == list(range(100, 120))


def test_it_goes_on_while_its_arrival_is_synced_and_resume_returns_after_that(tmp_path: Path) -> None:
    with nodes() as make:
        _, source, _, phone, sink, seen = begun(make, tmp_path)
        seen.wait(100)
        token, after = sink.move(), Seen()
        publish(source, 100, 110)
        settle = MoveRegister.settle

        def slow(register: MoveRegister) -> None:
            after.wait(10)  # while the disk takes its time
            settle(register)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MoveRegister, "settle", slow)
            phone.resume(token, after, timeout=GUARD)
        assert after.field("n") == list(range(100, 110))


def test_a_sink_that_pulls_and_one_in_batches_move(tmp_path: Path) -> None:
    with nodes() as make:
        lab, source = lab_of(make, tmp_path)
        desk, phone = place(make, lab, "desk", tmp_path), place(make, lab, "phone", tmp_path)
        pulling = desk.channel(CHANNEL, Count).subscribe(name="pull", delivery=DURABLE)
        rows: list[int] = []
        batches = desk.channel(CHANNEL).subscribe(
            lambda batch: rows.extend(batch["n"].to_pylist()), name="rows", batch=16, delivery=DURABLE
        )
        make.together()
        see(desk, lab)
        assert desk.ready(GUARD)
        publish(source, 0, 40)
        taken = [pulling.get(GUARD).n for _ in range(25)]
        eventually(lambda: len(rows) == 40, "rows")
        there = phone.resume(pulling.move(), timeout=GUARD)
        phone.resume(batches.move(), lambda batch: rows.extend(batch["n"].to_pylist()), batch=16, timeout=GUARD)
        publish(source, 40, 60)
        taken += [there.get(GUARD).n for _ in range(35)]
        eventually(lambda: len(rows) >= 60, "rows")
        assert taken == list(range(60)) == rows


def test_a_subscription_to_a_pattern_of_channels_moves(tmp_path: Path) -> None:
    with nodes() as make:
        lab = make("lab", log=Log(tmp_path / "log"), listen=LISTEN)
        sources = [lab.channel(f"test.room{k}", Count).source("s") for k in range(2)]
        desk, phone = place(make, lab, "desk", tmp_path), place(make, lab, "phone", tmp_path)
        seen, after = Seen(), Seen()
        sink = desk.subscribe("test.*", seen, "n >= :least", params={"least": 2}, name="mail", delivery=DURABLE)
        make.together()
        assert desk.until(lambda: all(desk.has_channel(f"test.room{k}") for k in range(2)), GUARD)
        see(desk, lab)
        assert desk.ready(GUARD)
        for source in sources:
            publish(source, 0, 10)
        seen.wait(16)
        token = sink.move()
        for source in sources:
            publish(source, 10, 20)
        phone.resume(token, after, timeout=GUARD)
        for source in sources:
            publish(source, 20, 30)
        after.wait(40)
        assert sorted(after.field("n")) == sorted([*range(10, 30)] * 2)


@pytest.mark.parametrize("taken", [False, True])
def test_who_stays_does_not_wait_for_one_that_has_left(
    taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two durable sinks one moves, and their node is started again before the source's has heard of that: the other
    has its events at once, and not when it has taken too long until both are back."""
    monkeypatch.setattr("headwater.federation.interests.installer.RETURN_SECONDS", 3600.0)
    kept: dict[str, Any] = {"delivery": DURABLE}
    with nodes() as make:
        keeps = Network(keep=3600.0)
        lab = make("lab", log=Log(tmp_path / "log"), listen=LISTEN, state=tmp_path / "lab", network=keeps)
        source = lab.channel(CHANNEL, Count).source("s")
        desk, phone = place(make, lab, "desk", tmp_path), place(make, lab, "phone", tmp_path)
        stays, goes = Seen(), Seen()
        desk.channel(CHANNEL, Count).subscribe(stays, name="stays", **kept)
        sink = desk.channel(CHANNEL, Count).subscribe(goes, name="goes", **kept)
        make.together()
        see(desk, lab)
        assert desk.ready(GUARD)
        publish(source, 0, 100)
        for each in (stays, goes):
            each.wait(100)
        assert lab._engine is not None
        crossing = next(peer for peer in lab._engine.everyone() if peer.name == "desk").crossings[CHANNEL]
        assert crossing.durable == {"stays", "goes"}
        token = sink.move()
        if taken:
            phone.resume(token, goes, timeout=GUARD)
            crossing.durable.add("goes")  # as if it had been killed before it could say so
        desk.close()
        make.opened.remove(desk)
        publish(source, 100, 200)
        desk = place(make, lab, "desk", tmp_path)
        desk.channel(CHANNEL, Count).subscribe(stays, name="stays", **kept)
        make.together()
        stays.wait(200)
        if not taken:
            phone.resume(token, goes, timeout=GUARD)
        goes.wait(200)
        assert stays.field("n") == goes.field("n") == list(range(200))
