"""What waits for a sink on its way, when something goes wrong: kills, lost answers, nodes that mean no good."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Log, Node, Queue, Reliable, i64
from headwater.errors import FederationError, Unreachable
from headwater.federation.interests.requester import Requester
from headwater.federation.moving.handover import Handover
from headwater.federation.moving.token import read_token
from headwater.federation.peers.dialogue import Dialogue
from headwater.federation.wire.move_requests import ClaimMove, ExpectState, FetchWaiting, MarkEvents, WaitingPage
from headwater.federation.wire.requests import pack_type
from headwater.network import Network
from headwater.policy import ChannelPolicy, Clause
from headwater.security import Rule, Security
from headwater.types import event_type
from tests.federation.certified import authority, certified
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see
from tests.federation.nodes import Log as Seen

CHANNEL = "test.count"
LISTEN = "tcp/127.0.0.1:0"
DURABLE = Reliable(durable=True)
EVERY_FIFTH = "{ static int seen = 0; seen = seen + 1; return seen % 5 == 0; }"
__all__ = ["authority"]


class Count(Event, name="test.Count"):
    n: i64


class Other(Event, name="test.Other"):
    words: str


def publish(source: Any, first: int, last: int) -> None:
    for n in range(first, last):
        source.publish(Count(n))


def begun(
    make: Nodes, state: str | None = None, link: int = 65_536, **options: Any
) -> tuple[Any, Node, Node, Any, Seen]:
    """A sink at the desk that has had ten, of a source without a log; and a phone."""
    lab = make("lab", network=Network(listen=LISTEN, link=Queue(limit=link, policy="block", wait=GUARD)))
    more = {} if state is None else {"state": state}
    desk, phone = (make(name, connect=lab.endpoints[0], listen=LISTEN, **more) for name in ("desk", "phone"))
    source, seen = lab.channel(CHANNEL, Count).source("s"), Seen()
    sink = desk.channel(CHANNEL, Count).subscribe(seen, name="mail", **options)
    make.together()
    see(desk, lab)
    assert desk.ready(GUARD)
    publish(source, 0, 10)
    seen.wait(10)
    return source, desk, phone, sink, seen


def peer(node: Node, name: str) -> Any:
    return next(each for each in node._engine.everyone() if each.name == name)


def test_lost_answers_are_asked_for_again(monkeypatch: pytest.MonkeyPatch, make: Nodes) -> None:
    """Every answer of the old node is lost once: pages are the same the second time."""
    monkeypatch.setattr("headwater.federation.moving.handover.PAGE_EVENTS", 7)
    source, _, phone, sink, seen = begun(make)
    token = sink.move()
    publish(source, 10, 60)
    lost, ask = list[Any](), Dialogue.ask

    def loses(self: Dialogue, to: Any, request: Any, *how: Any) -> Any:
        answer = ask(self, to, request, *how)
        if isinstance(request, (ClaimMove, FetchWaiting, MarkEvents)) and request not in lost:
            lost.append(request)
            raise Unreachable("the answer is lost")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(Dialogue, "ask", loses)
        after = Seen()
        phone.resume(token, after, timeout=GUARD)
    publish(source, 60, 70)
    after.wait(60)
    assert seen.field("n") + after.field("n") == list(range(70))
    assert len(lost) >= 8


def test_what_nobody_fetches_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch, make: Nodes) -> None:
    """Somebody claims a sink and does not take what waits: the queue is as large as it is, publishers wait no longer
    than for its time, and what was not fetched is counted."""
    monkeypatch.setattr("headwater.federation.moving.service.TAKE_SECONDS", 0.3)
    source, desk, phone, sink, _ = begun(make, link=256, queue=Queue(limit=50, wait=GUARD))
    token = sink.move()
    publisher = threading.Thread(target=publish, args=(source, 10, 5000))
    publisher.start()
    eventually(lambda: sink._mailbox.is_full, "it is full")
    _, move = read_token(phone._engine.context, token)
    phone._engine.dialogue.ask(peer(phone, "desk"), ClaimMove(move.id, bytes(16)), GUARD)
    assert sink._mailbox.waiting <= 50 + 2 * 256
    eventually(lambda: sink.state == "closed", "it is given up")
    publisher.join()
    assert desk.report().services["moving"]["not fetched"] >= 50
    with pytest.raises(FederationError, match="used"):
        desk.resume(token, print, timeout=GUARD)


def test_nobody_else_gets_what_waits(make: Nodes) -> None:
    """With the number of the move, which is in the token, but without having claimed it; or of another claimant."""
    source, desk, phone, sink, _ = begun(make)
    third = make("third", connect=make.opened[0].endpoints[0], listen=LISTEN)
    make.together()
    token = sink.move()
    publish(source, 10, 20)
    _, move = read_token(desk._engine.context, token)
    for node in (phone, third):
        with pytest.raises(FederationError, match="nothing waits"):
            node._engine.dialogue.ask(peer(node, "desk"), FetchWaiting(move.id, bytes(16), 0), GUARD)
    after = Seen()
    phone.resume(token, after, timeout=GUARD)
    after.wait(10)
    for node in (phone, third):
        with pytest.raises(FederationError, match="nothing waits"):
            node._engine.dialogue.ask(peer(node, "desk"), FetchWaiting(move.id, bytes(16), 0), GUARD)


@pytest.mark.parametrize("wrong", ["records", "type", "numbers", "channel", "own", "shape", "endless", "refused"])
def test_an_old_node_that_hands_over_what_is_not_so(wrong: str, monkeypatch: pytest.MonkeyPatch, make: Nodes) -> None:
    """Rubbish is left out, and counts as an offence; what is right on the same pages is taken, and the sink goes on."""
    monkeypatch.setattr("headwater.federation.moving.takeover.MOST_EVENTS", 500)
    source, _, phone, sink, _ = begun(make)
    phone.channel(CHANNEL, Count).source("mine").publish(Count(7))
    token, real = sink.move(), Handover.page
    publish(source, 10, 20)
    eventually(lambda: sink._mailbox.waiting == 10, "they wait")

    def page(self: Handover, number: int, principal: Any) -> WaitingPage:
        made = real(self, number, principal)
        if not made.seqs and wrong != "endless":
            return made
        replace = {field: getattr(made, field) for field in made.__struct_fields__}
        match wrong:
            case "records":
                replace["records"] = [b"\xff" * 7 if at % 2 else each for at, each in enumerate(made.records)]
            case "type":
                its = pack_type(event_type(Other))
                replace["sources"] = [type(each)(each.channel, each.key, each.name, its) for each in made.sources]
            case "numbers":
                replace["seqs"] = [made.seqs[0]] * len(made.seqs)
            case "channel":
                replace["sources"] = [
                    type(each)("test.secret", each.key, each.name, each.type) for each in made.sources
                ]
            case "own":
                own = f"{phone._engine.context.id}/{phone._engine.context.incarnation}/999999"
                replace["sources"] = [type(each)(each.channel, own, each.name, each.type) for each in made.sources]
            case "shape":
                replace["stamps"] = made.stamps[:-1]
            case "endless":
                seqs = [number * 100 + at + 11 for at in range(100)]
                some = real(self, 0, principal)
                rows = [0] * 100
                return WaitingPage(
                    some.sources, rows, seqs, rows, [event_type(Count).encode(Count(1))] * 100, more=True
                )
            case "refused":
                raise FederationError("I do not give it")
        return WaitingPage(**replace)

    after = Seen()
    with monkeypatch.context() as patch:
        patch.setattr(Handover, "page", page)
        phone.resume(token, after, timeout=5.0)
    publish(source, 20, 30)
    after.until(lambda events: bool(events) and events[-1].n == 29, "it goes on")
    came = after.field("n")
    assert came[-10:] == list(range(20, 30))
    assert came[:-10] == {"records": list(range(10, 20, 2)), "numbers": [10], "endless": [1] * 10}.get(wrong, [])
    assert phone._engine.context.offences[peer(phone, "desk").id] == int(wrong != "refused")


def test_the_old_node_is_killed_before_and_after_the_claim(monkeypatch: pytest.MonkeyPatch, make: Nodes) -> None:
    """Before it, there is nobody to claim a sink from that is not durable; after it, the sink goes on, without what
    waited there."""
    source, desk, phone, sink, _ = begun(make)
    other = desk.channel(CHANNEL).subscribe(print, name="other")
    token, second = sink.move(), other.move()
    publish(source, 10, 20)

    def closes(self: Handover, number: int, principal: Any) -> WaitingPage:
        threading.Thread(target=desk.close, kwargs={"drain": False, "timeout": 0.0}).start()
        raise FederationError("killed")

    after = Seen()
    with monkeypatch.context() as patch:
        patch.setattr(Handover, "page", closes)
        assert phone.resume(token, after, timeout=5.0).state == "open"
    publish(source, 20, 30)
    after.wait(10)
    assert after.field("n") == list(range(20, 30))
    eventually(lambda: desk.closed and "desk" not in phone.peers, "it is gone")
    with pytest.raises(Unreachable, match="try again with the same token"):
        phone.resume(second, print, timeout=0.2)
    again = make("desk", connect=make.opened[0].endpoints[0], listen=LISTEN)
    make.together(again, phone)
    with pytest.raises(FederationError):
        phone.resume(second, print, timeout=1.0)


def test_state_of_an_interest_is_nobody_elses(make: Nodes) -> None:
    """A node that asks for a mark gets no state and gives none, unless both sides of a move say so; and of a channel
    that it gets nothing of, not even a mark."""
    lab = make("lab", listen=LISTEN)
    desk, spy = (make(name, connect=lab.endpoints[0], listen=LISTEN) for name in ("desk", "spy"))
    source, seen, theirs = lab.channel(CHANNEL, Count).source("s"), Seen(), Seen()
    desk.channel(CHANNEL, Count).subscribe(seen, EVERY_FIFTH)
    make.together()
    see(desk, lab)
    make.ready(desk)
    ask = spy._engine.dialogue.ask
    nothing = ask(peer(spy, "lab"), MarkEvents(CHANNEL, bytes(32), desk._engine.context.id), GUARD)
    assert nothing.unsent
    with pytest.raises(FederationError, match="no channel"):
        ask(peer(spy, "lab"), MarkEvents("test.secret", bytes(32), desk._engine.context.id), GUARD)
    publish(source, 0, 13)
    mine = spy.channel(CHANNEL, Count).subscribe(theirs, EVERY_FIFTH)
    see(spy, lab)
    make.ready(spy)
    [entry] = [each.entry for each in mine._attachments.values()]
    tag = spy._engine.demands.number(entry)
    for node in (desk, spy):  # it wants that of the desk; and would give its own to the desk
        ask(peer(spy, "lab"), ExpectState(CHANNEL, bytes(32), tag, desk._engine.context.id), GUARD)
        ask(peer(spy, "lab"), MarkEvents(CHANNEL, bytes(32), node._engine.context.id, tag), GUARD)
    publish(source, 13, 40)
    seen.wait(8)
    theirs.wait(5)
    assert seen.field("n") == list(range(4, 40, 5)) and theirs.field("n") == list(range(17, 40, 5))


def test_it_is_handed_over_only_what_the_new_node_may_have(authority: Path) -> None:
    with nodes() as make:

        def at(name: str, *rules: Rule) -> Node:
            place = {"connect": make.opened[0].endpoints[0]} if make.opened else {"listen": "tls/127.0.0.1:0"}
            return make(name, security=certified(authority, name, rules or (Rule("**", "*"),)), **place)

        lab = at("lab")
        desk = at("desk", Rule("test.secret", "guest", may=("advertise",)), Rule("**", "*"))
        guest = at("guest")
        make.together(lab, desk, guest)
        sources = [lab.channel(f"test.{name}", Count).source("s") for name in ("open", "secret")]
        seen, after = Seen(), Seen()
        sink = desk.subscribe("test.*", seen)
        assert desk.until(lambda: all(desk.has_channel(f"test.{name}") for name in ("open", "secret")), GUARD)
        see(desk, lab)
        assert desk.ready(GUARD)
        token = sink.move()
        for source in sources:
            publish(source, 0, 5)
        with pytest.raises(FederationError, match=r"test\.secret"):
            guest.resume(token, after, timeout=GUARD)
        assert desk.resume(token, after, timeout=GUARD).state == "open"
        after.wait(10)


@pytest.mark.parametrize("where", [None, EVERY_FIFTH])
def test_a_logged_source_of_the_old_node_waits_for_no_durable_sink_on_its_way(
    where: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log has what the queue does not take; if nobody takes the sink up, it is read from there."""
    with nodes() as make:
        lab = make("lab", log=Log(tmp_path / "log"), state=":memory:", listen=LISTEN)
        source, seen = lab.channel(CHANNEL, Count).source("s"), Seen()
        publish(source, 0, 3)
        sink = lab.channel(CHANNEL).subscribe(
            seen, where, name="mail", delivery=DURABLE, queue=Queue(limit=20, policy="fail")
        )
        publish(source, 3, 33)
        wanted = list(range(3, 500)) if where is None else list(range(7, 500, 5))
        seen.wait(len([n for n in wanted if n < 33]))
        sink.move(lasts=3600.0)
        publish(source, 33, 450)
        monkeypatch.setattr(lab._moving, "_now", lambda: 1 << 62)  # an hour later
        lab._moving._look("mail")
        seen.wait(len([n for n in wanted if n < 450]))
        publish(source, 450, 500)
        seen.wait(len(wanted))
        assert seen.field("n") == wanted


def test_state_goes_on_at_the_new_nodes_own_logged_sources(tmp_path: Path) -> None:
    """There and back: it is made again from the log each time, from where it has counted first."""
    with nodes() as make:
        lab = make("lab", log=Log(tmp_path / "log"), state=":memory:", listen=LISTEN)
        desk = make("desk", state=":memory:", connect=lab.endpoints[0])
        source, seen = lab.channel(CHANNEL, Count).source("s"), Seen()
        sink = desk.channel(CHANNEL, Count).subscribe(seen, EVERY_FIFTH, name="mail", delivery=DURABLE)
        make.together()
        see(desk, lab)
        assert desk.ready(GUARD)
        done = 0
        for node in (lab, desk, lab, desk):
            publish(source, done, done + 13)
            token = sink.move()
            publish(source, done + 13, done + 23)
            sink = node.resume(token, seen, timeout=GUARD)
            publish(source, done + 23, done + 31)
            done += 31
            seen.wait(done // 5)
        assert seen.field("n") == list(range(4, done, 5))


def test_state_goes_on_where_a_sink_is_back_before_its_node_has_said_that_nothing_is_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its source is still known there as one whose events come, and is asked again for what the sink has missed."""
    ask = Requester._ask_once

    def tells_late(self: Requester, peer: Any, channel: Any, asked: Any) -> bool:
        return bool(channel.entries) and ask(self, peer, channel, asked)

    monkeypatch.setattr(Requester, "_ask_once", tells_late)
    with nodes() as make:
        lab = make("lab", log=Log(tmp_path / "log"), state=":memory:", listen=LISTEN)
        desk = make("desk", state=":memory:", connect=lab.endpoints[0])
        source, seen = lab.channel(CHANNEL, Count).source("s"), Seen()
        sink = desk.channel(CHANNEL, Count).subscribe(seen, EVERY_FIFTH, name="mail", delivery=DURABLE)
        make.together()
        see(desk, lab)
        assert desk.ready(GUARD)
        publish(source, 0, 13)
        seen.wait(2)
        sink = lab.resume(sink.move(), seen, timeout=GUARD)
        publish(source, 13, 33)
        seen.wait(6)
        eventually(lambda: not desk._engine.positions.has_come(CHANNEL), "nothing is wanted there")
        token = sink.move()
        publish(source, 33, 43)
        desk.resume(token, seen, timeout=GUARD)
        publish(source, 43, 60)
        seen.wait(12)
        assert seen.field("n") == list(range(4, 60, 5))


def test_policies_decide_anew_also_of_what_waited(make: Nodes) -> None:
    """Ann may see everybody, Bob himself: he gets no more of what waited for her."""
    users = {"lab": "l", "ann": "a", "bob": "b"}
    kind = "who: text, n: i64"
    clauses = [Clause(who="ann", show="true"), Clause(show="who = :user")]

    def at(user: str) -> Node:
        security = Security(user=user, password=users[user], users=users, rules=(Rule("**", "*"),))
        return make(user, network=Network(security=security))

    lab, ann, bob = at("lab"), at("ann"), at("bob")
    source = lab.channel(CHANNEL, kind).source("door")
    lab.policies.set(ChannelPolicy(name="sightings", channel=CHANNEL, type=kind, clauses=clauses))
    seen, after = Seen(), Seen()
    sink = ann.channel(CHANNEL, kind).subscribe(seen)
    make.together()
    make.ready(ann)
    for n in range(10):
        source.publish(who=("ann", "bob")[n % 2], n=n)
    seen.wait(10)
    token = sink.move()
    for n in range(10, 20):
        source.publish(who=("ann", "bob")[n % 2], n=n)
    eventually(lambda: sink._mailbox.waiting == 10, "they wait")
    bob.resume(token, after, timeout=GUARD)
    for n in range(20, 30):
        source.publish(who=("ann", "bob")[n % 2], n=n)
    after.until(lambda events: bool(events) and events[-1].n == 29, "the last")
    assert after.field("n") == list(range(11, 30, 2))


def test_a_node_that_closes_lets_others_fetch_what_waits_first(make: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was claimed before: it is not closed in the middle of it."""
    source, desk, phone, sink, _ = begun(make)
    token = sink.move()
    publish(source, 10, 20)
    eventually(lambda: sink._mailbox.waiting == 10, "they wait")
    closing, real = list[threading.Thread](), Handover.page

    def page(self: Handover, number: int, principal: Any) -> WaitingPage:
        if not closing:
            closing.append(threading.Thread(target=desk.close))
            closing[0].start()
            eventually(lambda: desk.closed, "it closes")
        return real(self, number, principal)

    after = Seen()
    with monkeypatch.context() as patch:
        patch.setattr(Handover, "page", page)
        phone.resume(token, after, timeout=GUARD)
    closing[0].join()
    publish(source, 20, 30)
    after.wait(20)
    assert after.field("n") == list(range(10, 30))
