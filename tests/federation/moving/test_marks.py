"""Marks that are lost, or that nobody has asked for, and floods of what nodes ask each other about sinks that move."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Node, Reliable, i64
from headwater.errors import FederationError, Unreachable
from headwater.federation.moving.answering import MOST_UNDER_WAY
from headwater.federation.moving.handover import Handover
from headwater.federation.moving.marks import MOST_BEHIND, MOST_EXPECTED, Marks
from headwater.federation.moving.token import read_token
from headwater.federation.wire.move_requests import ClaimMove, ExpectState, FetchWaiting, Mark, MarkEvents, WaitingPage
from headwater.security import Rule
from tests.federation.certified import authority, certified
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see
from tests.federation.nodes import Log as Seen

CHANNEL = "test.count"
LISTEN = "tcp/127.0.0.1:0"
__all__ = ["authority"]


class Count(Event, name="test.Count"):
    n: i64


def publish(source: Any, first: int, last: int) -> None:
    for n in range(first, last):
        source.publish(Count(n))


def peer(node: Node, name: str) -> Any:
    return next(each for each in node._engine.everyone() if each.name == name)


def begun(make: Nodes, delivery: Any = None) -> tuple[Any, Node, Node, Any, Seen]:
    """A sink at the desk that has had ten, of a source without a log; and a phone."""
    lab = make("lab", listen=LISTEN)
    desk, phone = (make(n, connect=lab.endpoints[0], listen=LISTEN, state=":memory:") for n in ("desk", "phone"))
    source, seen = lab.channel(CHANNEL, Count).source("s"), Seen()
    sink = desk.channel(CHANNEL, Count).subscribe(seen, name="mail", delivery=delivery or Reliable())
    make.together()
    see(desk, lab)
    assert desk.ready(GUARD)
    publish(source, 0, 10)
    seen.wait(10)
    return source, desk, phone, sink, seen


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("delivery", [Reliable(), Reliable(durable=True)])
def test_a_mark_that_only_the_new_node_does_not_hear(
    delivery: Any, others: bool, monkeypatch: pytest.MonkeyPatch, make: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes by what the old node was told: under publishing nothing is lost, nothing comes twice, order is kept."""
    monkeypatch.setattr("headwater.federation.moving.arrival.MARK_SECONDS", 0.2)
    came, lost = Marks._came, list[str]()

    def loses(self: Marks, peer: Any, body: bytes) -> None:
        if self._context.name == "phone":
            lost.append(peer.name)
        else:
            came(self, peer, body)

    monkeypatch.setattr(Marks, "_came", loses)
    source, _, phone, sink, seen = begun(make, delivery)
    if others:
        phone.channel(CHANNEL, Count).subscribe(lambda event: None)
        see(phone, make.opened[0])
        assert phone.ready(GUARD)
    token, stop, count = sink.move(), threading.Event(), [10]

    def run() -> None:
        while not stop.is_set():
            source.publish(Count(count[0]))
            count[0] += 1
            stop.wait(0.0005)

    publisher = threading.Thread(target=run)
    publisher.start()
    after = Seen()
    try:
        eventually(lambda: count[0] >= 100, "some wait")
        phone.resume(token, after, timeout=GUARD)
        enough = count[0] + 100
        eventually(lambda: count[0] >= enough, "it goes on")
    finally:
        stop.set()
        publisher.join()
    after.until(lambda events: bool(events) and events[-1].n == count[0] - 1, "the last")
    assert seen.field("n") + after.field("n") == list(range(count[0]))
    assert "lab" in lost and "where it ends" in caplog.text


def test_marks_that_nobody_has_asked_for_are_not_kept(monkeypatch: pytest.MonkeyPatch, make: Nodes) -> None:
    """A node with a source knows of the move, and tells of channels without end: at the old node and at the new one."""
    source, desk, phone, sink, _ = begun(make)
    token, real, kept = sink.move(), Handover.page, list[int]()
    publish(source, 10, 20)

    def page(self: Handover, number: int, principal: Any) -> WaitingPage:
        made = real(self, number, principal)
        for node in (desk, phone):
            marks: Marks = node._moving._marks
            for move, watch in list(marks._watched.items()):
                for k in range(1000):
                    marks._note(peer(node, "lab"), Mark(f"test.no.{k}", move, watch.of, {1: 1}))
                kept.append(len(watch.points))
        return made

    after = Seen()
    with monkeypatch.context() as patch:
        patch.setattr(Handover, "page", page)
        phone.resume(token, after, timeout=GUARD)
    publish(source, 20, 30)
    after.wait(20)
    assert after.field("n") == list(range(10, 30)) and kept and max(kept) <= 3


def flood(spy: Node, to: str, requests: Callable[[], Any], rounds: int = 150, threads: int = 8) -> Callable[[], None]:
    """Have many threads ask without end what they are refused; what is returned ends it."""
    stop, other = threading.Event(), peer(spy, to)

    def run() -> None:
        for _ in range(rounds):
            if stop.is_set():
                return
            try:
                spy._engine.dialogue.ask(other, requests(), 1.0)
            except (FederationError, Unreachable):
                continue

    made = [threading.Thread(target=run) for _ in range(threads)]
    for thread in made:
        thread.start()

    def end() -> None:
        stop.set()
        for thread in made:
            thread.join()

    return end


def bounded(node: Node, threads: int) -> None:
    """Nothing of a flood is left at a node, nor has it grown."""
    moving = node._moving
    answering = [moving._answering, moving._marks._answering]
    assert all(max(each._under_way.values(), default=0) <= MOST_UNDER_WAY for each in answering)
    eventually(lambda: not any(each._under_way for each in answering), "all is answered")
    assert len(moving._marks._expected) <= MOST_EXPECTED * len(list(node._engine.everyone()))
    assert all(len(each.behind_due) <= MOST_BEHIND + 32 for each in node._engine.everyone())
    assert threading.active_count() <= threads + 4 * 32


def test_a_flood_of_one_who_has_no_right_keeps_nobody_else_waiting(authority: Path) -> None:
    """Claims of sinks that it has no token of, pages that are not its own, marks of channels that it may not have."""
    with nodes() as make:

        def at(name: str) -> Node:
            where = {"connect": make.opened[0].endpoints[0]} if make.opened else {"listen": "tls/127.0.0.1:0"}
            rules = Rule(CHANNEL, "eve", may=("advertise",)), Rule("**", "*")
            return make(name, security=certified(authority, name, rules), **where)

        lab, desk, phone, spy = (at(name) for name in ("lab", "desk", "guest", "eve"))
        make.together()
        source, seen, after = lab.channel(CHANNEL, Count).source("s"), Seen(), Seen()
        sink = desk.channel(CHANNEL, Count).subscribe(seen)
        see(desk, lab)
        assert desk.ready(GUARD)
        threads, ids = threading.active_count(), [phone._engine.context.id, desk._engine.context.id]
        publish(source, 0, 10)
        seen.wait(10)
        ends = [
            flood(spy, "desk", lambda: ClaimMove(os.urandom(32), bytes(16))),
            flood(spy, "desk", lambda: FetchWaiting(os.urandom(32), bytes(16), 0)),
            flood(spy, "lab", lambda: MarkEvents(CHANNEL, os.urandom(32), ids[0], 1)),
            flood(spy, "lab", lambda: ExpectState(CHANNEL, os.urandom(32), 1, ids[1])),
        ]
        token = sink.move(to="guest")
        publish(source, 10, 20)
        phone.resume(token, after, timeout=GUARD)
        publish(source, 20, 30)
        after.wait(20)
        for end in ends:
            end()
        assert seen.field("n") + after.field("n") == list(range(30))
        assert not lab._moving._marks._expected and not desk._moving._handovers
        for node in (lab, desk):
            bounded(node, threads)


def test_a_flood_of_one_who_has_the_right_keeps_nobody_else_waiting(make: Nodes) -> None:
    """It has events of the channel, and has sources stand still for others without end; a claimant asks for the same
    page again and again."""
    source, desk, phone, sink, seen = begun(make)
    lab = make.opened[0]
    spy = make("spy", connect=lab.endpoints[0], listen=LISTEN)
    theirs, mine = Seen(), desk.channel(CHANNEL).subscribe(print, name="for the spy")
    held = spy.channel(CHANNEL, Count).subscribe(theirs)
    make.together()
    see(spy, lab)
    assert spy.ready(GUARD)
    [entry] = [each.entry for each in held._attachments.values()]
    tag, threads = spy._engine.demands.number(entry), threading.active_count()
    ids = [phone._engine.context.id, desk._engine.context.id]
    ends = [
        flood(spy, "lab", lambda: MarkEvents(CHANNEL, os.urandom(32), ids[0], tag)),
        flood(spy, "lab", lambda: ExpectState(CHANNEL, os.urandom(32), tag, ids[1])),
    ]
    _, move = read_token(spy._engine.context, mine.move(to="spy"))
    spy._engine.dialogue.ask(peer(spy, "desk"), ClaimMove(move.id, bytes(16)), GUARD)
    ends.append(flood(spy, "desk", lambda: FetchWaiting(move.id, bytes(16), 0)))
    after, token = Seen(), sink.move(to="phone")
    publish(source, 10, 20)
    phone.resume(token, after, timeout=GUARD)
    publish(source, 20, 30)
    after.wait(20)
    for end in ends:
        end()
    theirs.wait(20)
    assert seen.field("n") + after.field("n") == list(range(30))
    assert theirs.field("n")[-20:] == list(range(10, 30))
    for node in (lab, desk):
        bounded(node, threads)
    assert 0 < len(lab._moving._marks._expected) <= MOST_EXPECTED
