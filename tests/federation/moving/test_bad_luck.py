"""What moves, when disks fail, clocks go back, two do the same at once, or a node is killed between two steps."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Log, Node, Reliable, i64
from headwater.errors import ClosedError, FederationError, HeadwaterError, StoreError, SubscriptionError
from headwater.federation.moving import service
from headwater.federation.moving.handover import Handover
from headwater.federation.moving.token import read_token
from headwater.federation.wire.move_requests import ID_BYTES, WaitingPage
from headwater.services.moving.register import MoveRegister
from headwater.store import NodeState
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see
from tests.federation.nodes import Log as Seen

CHANNEL = "test.count"
LISTEN = "tcp/127.0.0.1:0"
DURABLE = Reliable(durable=True)


class Count(Event, name="test.Count"):
    n: i64


def publish(source: Any, first: int, last: int) -> None:
    for n in range(first, last):
        source.publish(Count(n))


def place(make: Nodes, name: str, path: Path, **more: Any) -> Node:
    where = {"connect": make.opened[0].endpoints[0]} if make.opened else {}
    return make(name, listen=LISTEN, state=path / f"{name}.state", **where, **more)


def begun(make: Nodes, path: Path, *, logged: bool = False, **options: Any) -> tuple[Any, Node, Node, Any, Seen]:
    """A sink at the desk that has had ten; and a phone."""
    log = {"log": Log(path / "lab.log")} if logged else {}
    lab, desk, phone = place(make, "lab", path, **log), place(make, "desk", path), place(make, "phone", path)
    source, seen = lab.channel(CHANNEL, Count).source("s"), Seen()
    handler = options.pop("handler", seen)
    sink = desk.channel(CHANNEL, Count).subscribe(handler, name="mail", **{"delivery": DURABLE, **options})
    make.together()
    see(desk, lab)
    assert desk.ready(GUARD)
    publish(source, 0, 10)
    if handler is seen:
        seen.wait(10)
    return source, desk, phone, sink, seen


def full(*given: Any, **more: Any) -> Any:
    raise StoreError("state: the disk is full")


@pytest.mark.parametrize("delivery", [DURABLE, Reliable()])
def test_two_who_move_a_sink_at_once_get_one_token(delivery: Any, tmp_path: Path) -> None:
    """Both have seen that it is not on its way yet; one of them is refused, and the sink stands still all the same."""
    with nodes() as make:
        source, _desk, phone, sink, seen = begun(make, tmp_path, delivery=delivery)
        both = threading.Barrier(2)
        tokens, problems = list[str](), list[HeadwaterError]()
        real = service.secrets.token_bytes

        def together(n: int) -> bytes:
            if n == ID_BYTES:
                both.wait(GUARD)
            return real(n)

        def leave() -> None:
            try:
                tokens.append(sink.move())
            except HeadwaterError as error:
                problems.append(error)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(service.secrets, "token_bytes", together)
            threads = [threading.Thread(target=leave) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(tokens) == 1 and "on its way" in str(problems[0])
        assert sink.state == "paused"
        publish(source, 10, 20)
        after = Seen()
        phone.resume(tokens[0], after, timeout=GUARD)
        publish(source, 20, 30)
        after.wait(20)
        assert seen.field("n") + after.field("n") == list(range(30))


def test_a_claim_that_is_repeated_while_it_is_answered_brings_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second question is answered by another thread, before the first one is: both hear that something waits."""
    with nodes() as make:
        source, desk, phone, sink, _ = begun(make, tmp_path)
        token = sink.move()
        publish(source, 10, 20)
        _, move = read_token(phone._engine.context, token)
        moving, real = desk._moving, service.has_unlogged
        who, claimant = phone._engine.context.id, phone._moving.registers.durable.claimant
        answers = list[Any]()

        def again() -> None:
            answers.append(moving.give(moving.registers.durable, move.id, who, claimant))

        def slow(subscription: Any) -> bool:
            second = threading.Thread(target=again)
            second.start()
            second.join(0.5)  # it may wait for this one, which is then first
            seconds.append(second)
            return real(subscription)

        seconds = list[threading.Thread]()
        monkeypatch.setattr(service, "has_unlogged", slow)
        again()
        seconds[0].join()
        assert [each.waits for each in answers] == [True, True]


def test_a_full_disk_when_a_token_expires_keeps_no_sink_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nodes() as make:
        source, _desk, _, sink, seen = begun(make, tmp_path)
        real, tried = MoveRegister.enter, list[int]()

        def once(register: MoveRegister, sink: str, now: int) -> Any:
            tried.append(now)
            return full() if len(tried) == 1 else real(register, sink, now)

        monkeypatch.setattr(MoveRegister, "enter", once)
        sink.move(lasts=0.05)
        publish(source, 10, 20)
        seen.wait(20)
        assert seen.field("n") == list(range(20)) and sink.state == "open" and len(tried) >= 2


def test_a_clock_that_goes_back_keeps_no_sink_for_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that was made before the clock was set back by a day is worth nothing after its time."""
    with nodes() as make:
        source, desk, phone, sink, seen = begun(make, tmp_path)
        token = sink.move(lasts=0.2)
        monkeypatch.setattr(desk, "_stamp", lambda stamp=desk._stamp: stamp() - 86_400_000_000_000)
        publish(source, 10, 20)
        seen.wait(20)
        with pytest.raises(FederationError, match="expired"):
            phone.resume(token, print, timeout=GUARD)


def test_a_clock_that_goes_forward_ends_a_token_and_holds_no_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who shows it is told that its time is over; the sink does not wait until that is."""
    with nodes() as make:
        source, desk, phone, sink, seen = begun(make, tmp_path)
        token = sink.move(lasts=3600.0)
        monkeypatch.setattr(desk, "_stamp", lambda stamp=desk._stamp: stamp() + 86_400_000_000_000)
        publish(source, 10, 20)
        with pytest.raises(FederationError, match="expired"):
            phone.resume(token, print, timeout=GUARD)
        seen.wait(20)
        assert seen.field("n") == list(range(20)) and sink.state == "open"


@pytest.mark.parametrize("again", [False, True])
def test_one_that_leaves_before_it_is_in_force_goes_on_if_nobody_takes_it_up(again: bool, tmp_path: Path) -> None:
    """It was held for two reasons, one after the other; both are over."""
    with nodes() as make:
        source, _desk, phone, sink, _seen = begun(make, tmp_path, logged=True)
        arrival, after = phone._moving.arrival, Seen()
        real = arrival._in_force
        phone.channel(CHANNEL, Count).subscribe(print)  # so that it does not begin by itself
        see(phone, make.opened[0])
        assert phone.ready(GUARD)
        arrival._in_force = lambda channels: False
        there = phone.resume(sink.move(), after, timeout=0.1)
        assert there.paused is not None and not after.events
        there.move(lasts=0.5)
        if not again:
            arrival._in_force = real
        publish(source, 10, 20)
        eventually(lambda: phone.report().services["moving"]["expired"] == 1, "nobody has taken it up")
        arrival._in_force = real
        after.wait(10)
        assert after.field("n") == list(range(10, 20))


def test_a_full_disk_while_one_that_pulls_is_about_to_leave(tmp_path: Path) -> None:
    """What it has taken cannot be written: it is not moved, and goes on."""
    with nodes() as make:
        _source, _, phone, sink, _ = begun(make, tmp_path, handler=None)
        assert [sink.get(GUARD).n for _ in range(5)] == list(range(5))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(NodeState, "commit_all", full)
            with pytest.raises(StoreError):
                sink.move()
        assert sink.state == "open"
        assert [sink.get(GUARD).n for _ in range(2)] == [5, 6]
        there = phone.resume(sink.move(), timeout=GUARD)
        assert [there.get(GUARD).n for _ in range(3)] == [7, 8, 9]


@pytest.mark.parametrize("logged", [True, False])
def test_what_could_not_be_written_as_done_does_not_come_again(logged: bool, tmp_path: Path) -> None:
    """The disk was full for a moment, when the handler had returned, and it is moved at once."""
    with nodes() as make:
        source, _, phone, sink, seen = begun(make, tmp_path, logged=logged)
        commit, failed = NodeState.commit_all, threading.Event()

        def once(state: NodeState, name: str, points: dict[str, int], **more: bool) -> None:
            if name == "mail" and not failed.is_set():
                failed.set()
                full()
            commit(state, name, points, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(NodeState, "commit_all", once)
            source.publish(Count(10))
            assert failed.wait(GUARD)
            seen.wait(11)
            token = sink.move()
        after = Seen()
        phone.resume(token, after, timeout=GUARD)
        publish(source, 11, 20)
        after.until(lambda events: bool(events) and events[-1].n == 19, "the last")
        assert seen.field("n") + after.field("n") == list(range(20))


def test_one_that_is_killed_before_it_has_fetched_what_waits_has_it_with_the_same_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it goes on at the new node is written there, and what waits is still at the old one."""
    with nodes() as make:
        source, _desk, phone, sink, seen = begun(make, tmp_path)
        token = sink.move()
        publish(source, 10, 20)
        eventually(lambda: sink._mailbox.waiting == 10, "they wait")
        taken = threading.Event()

        def killed(*given: Any) -> WaitingPage:
            taken.set()
            raise FederationError("the link is cut")

        with monkeypatch.context() as patch:
            patch.setattr(Handover, "page", killed)
            patch.setattr(MoveRegister, "settle", full)  # nothing more is written by that life of it
            with pytest.raises(StoreError):
                phone.resume(token, print, timeout=GUARD)
        assert taken.is_set()
        phone.close(drain=False, timeout=0.0)
        make.opened.remove(phone)
        phone = place(make, "phone", tmp_path)
        make.together()
        after = Seen()
        phone.resume(token, after, timeout=GUARD)
        publish(source, 20, 30)
        after.until(lambda events: bool(events) and events[-1].n == 29, "the last")
        assert seen.field("n") + after.field("n") == list(range(30))


def test_another_sink_of_that_name_does_not_take_the_place_of_one_on_its_way(tmp_path: Path) -> None:
    """Its node was started again meanwhile: the name is not in use, and not free."""
    with nodes() as make:
        source, desk, phone, sink, _seen = begun(make, tmp_path, logged=True)
        lab = make.opened[0]
        other = lab.channel(CHANNEL).subscribe(print, name="mail", delivery=DURABLE)
        token = sink.move(lasts=3600.0)
        desk.close()
        make.opened.remove(desk)
        desk = place(make, "desk", tmp_path)
        make.together()
        second = other.move()
        with pytest.raises(SubscriptionError, match="name"):
            desk.resume(second, print, timeout=GUARD)
        desk.resume(second, print, name="other", timeout=GUARD)
        publish(source, 10, 20)
        after = Seen()
        phone.resume(token, after, timeout=GUARD)
        after.wait(10)
        assert after.field("n") == list(range(10, 20))


def test_another_sink_of_that_name_leaves_one_that_was_claimed_to_who_has_it(tmp_path: Path) -> None:
    """The claim is written at the old node, its answer lost; then another sink comes there, under the same name."""
    with nodes() as make:
        source, desk, phone, sink, _seen = begun(make, tmp_path, logged=True)
        lab = make.opened[0]
        other = lab.channel(CHANNEL).subscribe(print, name="mail", delivery=DURABLE)
        token = sink.move(lasts=3600.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MoveRegister, "take", full)
            with pytest.raises(StoreError):
                phone.resume(token, print, timeout=GUARD)
        there = desk.resume(other.move(), print, timeout=GUARD)
        leaves = there.move(lasts=3600.0)  # and it is about to leave, too
        publish(source, 10, 20)
        after = Seen()
        phone.resume(token, after, timeout=GUARD)
        after.wait(10)
        assert after.field("n") == list(range(10, 20)) and there.state == "paused"
        lab.resume(leaves, print, timeout=GUARD)


def test_one_on_its_way_is_neither_changed_nor_paused(tmp_path: Path) -> None:
    """The token says what it wants: what is changed then would be forgotten without a word; and it would lose what
    waits, as one that is paused does, when its queue is full."""
    with nodes() as make:
        _, _, _, sink, _ = begun(make, tmp_path)
        sink.move()
        with pytest.raises(SubscriptionError, match="on its way"):
            sink.change(where="n % 2 == 0")
        with pytest.raises(SubscriptionError, match="on its way"):
            sink.pause()


@pytest.mark.parametrize("logged", [True, False])
def test_a_source_whose_claim_may_not_be_on_the_disk_publishes_at_one_node(logged: bool, tmp_path: Path) -> None:
    """The sync fails when the claim is written: who has claimed it is told so. Nobody publishes until its node was
    started again; then the same token brings it."""

    def at(name: str) -> Node:
        return place(make, name, tmp_path, **({"log": Log(tmp_path / f"{name}.log")} if logged else {}))

    with nodes() as make:
        hub = place(make, "hub", tmp_path)
        lab, mill = at("lab"), at("mill")
        for node in (hub, lab, mill):
            node.channel(CHANNEL, Count)
        make.together()
        source = lab.channel(CHANNEL).source("s")
        publish(source, 0, 10)
        token = source.move()

        def fails(descriptor: int) -> None:
            raise OSError(5, "Input/output error")

        register = lab._moving_sources.register  # type: ignore[union-attr]
        claim = register.claim

        def claiming(*given: Any) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("headwater.store.durability.sync", fails)
                claim(*given)

        register.claim = claiming  # type: ignore[method-assign]
        with pytest.raises(FederationError, match="Input/output"):
            mill.resume_source(token, timeout=GUARD)
        with pytest.raises(ClosedError, match="mill"):
            source.publish(Count(10))
        with pytest.raises(HeadwaterError):  # it is not told by who cannot write it
            mill.resume_source(token, timeout=1.0)
        lab.close(drain=False, timeout=0.0)
        make.opened.remove(lab)
        lab = at("lab")
        make.together()
        assert mill.resume_source(token, timeout=GUARD).publish(Count(10)) == 11


@pytest.mark.parametrize("delivery", [DURABLE, Reliable()])
def test_one_that_is_to_come_back_under_a_name_in_use_is_still_on_its_way(delivery: Any, tmp_path: Path) -> None:
    """At the node that it was about to leave: it is not claimed for nothing."""
    with nodes() as make:
        source, desk, phone, sink, seen = begun(make, tmp_path, delivery=delivery)
        desk.channel(CHANNEL).subscribe(Seen(), name="taken", delivery=delivery)
        token = sink.move()
        publish(source, 10, 15)
        with pytest.raises(HeadwaterError, match="taken"):
            desk.resume(token, Seen(), name="taken", timeout=GUARD)
        after = Seen()
        phone.resume(token, after, timeout=GUARD)
        publish(source, 15, 20)
        after.wait(10)
        assert seen.field("n") + after.field("n") == list(range(20))


def test_another_source_of_that_name_leaves_one_that_was_claimed_to_who_has_it(tmp_path: Path) -> None:
    """It has published nothing, so that no log tells the two apart."""
    with nodes() as make:
        lab, mill, yard = (
            place(make, name, tmp_path, log=Log(tmp_path / f"{name}.log")) for name in ("lab", "mill", "yard")
        )
        first, second = lab.channel(CHANNEL, Count).source("s"), yard.channel(CHANNEL, Count).source("s")
        make.together()
        moved = mill.resume_source(first.move(), timeout=GUARD)
        token = second.move()
        with pytest.raises(HeadwaterError, match="another one of that name"):
            lab.resume_source(token, timeout=GUARD)
        with pytest.raises(SubscriptionError, match="it has moved to mill"):
            lab.channel(CHANNEL).source("s")
        assert moved.publish(Count(0)) == 1 and second.publish(Count(0)) == 1
        back = lab.resume_source(moved.move(), timeout=GUARD)
        assert back.publish(Count(1)) == 2


def test_a_handler_of_a_node_that_drains_does_not_publish_at_a_source_that_goes_on_elsewhere(tmp_path: Path) -> None:
    """Between the claim, from which on its numbers are given there, and its end here."""
    with nodes() as make:
        lab = place(make, "lab", tmp_path, log=Log(tmp_path / "lab.log"))
        source, jobs = lab.channel(CHANNEL, Count).source("s"), lab.channel("test.jobs", Count)
        began, gate, problems = threading.Event(), threading.Event(), list[str]()

        def handler(event: Count) -> None:
            began.set()
            gate.wait(GUARD)
            try:
                source.publish(event)
            except ClosedError as error:
                problems.append(str(error))

        jobs.subscribe(handler, dispatch="pool")
        jobs.source("j").publish(Count(0))
        assert began.wait(GUARD)
        with source.between():  # as `SourceDeparture` does, when the claim is written
            source.moved_to = "mill"
            source.shut()
        closing = threading.Thread(target=lab.close)
        closing.start()
        eventually(lambda: lab._draining, "it drains", GUARD)
        gate.set()
        closing.join(GUARD)
        assert source.seq == 0 and "it has moved to mill" in problems[0]
