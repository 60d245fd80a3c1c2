"""A node whose sinks want what no rule allows is told so, and learns nothing of which channels there are."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headwater import Event, Node, u32
from headwater.errors import ChannelError
from headwater.federation.peers import permissions
from headwater.federation.wire import requests as messages
from headwater.federation.wire.requests import Install, MayNot, MaySubscribe, Wish
from headwater.security import Rule, Security
from tests.federation.certified import EVERYTHING, joined
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes, see

SECRET, NOTHING, OPEN = "zeta.plans.secret", "zeta.plans.nothing", "open.weather"
RULES = (Rule("zeta.**", ["lab", "desk"]), Rule("open.**", "*", may=("subscribe",)))


class Plan(Event, name="zeta.Plan"):
    number: u32


def pair(make: Nodes, folder: Path, rules: tuple[Rule, ...] = RULES) -> tuple[Node, Node]:
    """The lab, with two channels, and a guest that may know of one of them."""
    lab, guest = joined(make, folder, "lab", rules), joined(make, folder, "guest")
    lab.channel(SECRET, Plan).source("s")
    lab.channel(OPEN, Plan).source("roof")
    make.together()
    assert guest.until(lambda: guest.remote_sources(OPEN) == ["roof@lab"], GUARD)
    return lab, guest


def questions(node: Node) -> int:
    return node.federation_report().messages["ask"]["messages_out"]


def test_a_subscriber_that_no_rule_allows_is_told_so_and_so_is_the_owner(
    make: Nodes, authority: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab, guest = pair(make, authority)
    there, here = Log(), Log()
    guest.subscribe("headwater.interests", here, "change == 'refused'")
    lab.subscribe("headwater.interests", there, "change == 'refused'")
    with caplog.at_level(logging.WARNING, "headwater.federation"):
        sink = guest.channel(SECRET, Plan).subscribe(Log(), "number > 3")
        place = f"{SECRET}@lab"
        assert guest.until(lambda: place in sink.refused, GUARD)
        why = sink.refused[place]
        assert f'"guest" (by certificate) may not subscribe to {SECRET}' in why
        assert f'add Rule("{SECRET}", "guest", may=("subscribe",))' in why  # what to do
        assert "whether or not it has such a channel" in why
        assert place in str(sink.report())
        second = guest.channel(SECRET).subscribe(Log())  # it is known by now, and not asked for again
        assert guest.until(lambda: second.refused == sink.refused, GUARD)
    asked = [each for each in guest.federation_report().peer("lab").asked if each.channel == SECRET]
    assert [(each.interest, each.where) for each in asked] == [("number > 3", "refused"), ("everything", "refused")]
    assert all(why in each.why for each in asked) and "refused" in str(guest.federation_report())
    warned = [record.getMessage() for record in caplog.records if "refuses subscriptions" in record.getMessage()]
    assert len(warned) == 1 and SECRET in warned[0]
    here.wait(2)
    assert here.field("channel") == [SECRET, SECRET] and here.field("here") == [False, False]
    assert here.field("interest") == ["number > 3", ""]
    # The owner sees who wants what, and no offence in it.
    there.wait(1)
    assert (there.field("channel"), there.field("node"), there.field("here")) == ([SECRET], ["guest"], [True])
    report = lab.federation_report()
    assert list(report.peer("guest").refused) == [SECRET] and "refused here" in str(report)
    assert report.to_dict()["peers"][0]["refused"] == dict(report.peer("guest").refused)
    assert report.offences == guest.federation_report().offences == {}
    assert guest.ready(GUARD)


def test_what_exists_and_what_does_not_is_answered_alike(make: Nodes, authority: Path) -> None:
    lab, guest = pair(make, authority)
    for make_request in (
        lambda name: MaySubscribe([name]),
        lambda name: MaySubscribe([f"{name}.**", name, OPEN]),
        lambda name: MaySubscribe([name.replace(".plans.", ".*.")]),
        lambda name: Install(name, 1, [Wish(1, None)]),
        lambda name: Install(name, 1, known=["a durable sink"]),
        lambda name: messages.Ask(name),
    ):
        same = []
        for name in (SECRET, NOTHING):
            reply = guest._engine.dialogue.ask(guest._engine.peers[lab.id], make_request(name))  # type: ignore[union-attr]
            assert not isinstance(reply, MayNot) or OPEN not in reply.why
            same.append(repr(reply).replace(name, "...").replace(name.replace(".plans.", ".*."), "..."))
        assert same[0] == same[1]
    sinks = {name: guest.channel(name, Plan).subscribe(Log()) for name in (SECRET, NOTHING)}
    assert guest.until(lambda: all(sink.refused for sink in sinks.values()), GUARD)
    shown = [repr(sink.refused).replace(name, "...") for name, sink in sinks.items()]
    assert shown[0] == shown[1]
    assert guest.remote_sources(SECRET) == [] and not guest.federation_report().peer("lab").lanes


def test_what_exists_does_not_change_whether_a_node_says_it_may_hide_something(make: Nodes, authority: Path) -> None:
    lab, guest = joined(make, authority, "lab", RULES), joined(make, authority, "guest")
    desk = joined(make, authority, "desk", (*RULES, Rule("**", "*")))
    make.together()

    def restricted(node: Node, other: Node) -> bool:
        assert node._engine is not None
        peer = node._engine.peers[other.id]
        node._engine.membership.fetch(peer, GUARD)
        assert peer.state is not None
        return peer.state.restricted

    assert restricted(guest, lab)  # it has no channels at all
    lab.channel(OPEN, Plan).source("roof")
    see(guest, lab)
    assert restricted(guest, lab)
    assert not restricted(lab, guest) and not restricted(desk, guest)  # all is allowed there
    assert not restricted(guest, desk)


def test_many_names_are_few_questions_and_each_is_asked_once(
    make: Nodes, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permissions, "MOST_ASKED", 150)
    lab, guest = pair(make, authority)
    assert guest.ready(GUARD)
    before = questions(guest)
    with guest._wiring.lock:
        sinks = [guest.channel(f"zeta.c{number}", Plan).subscribe(Log()) for number in range(200)]
    assert guest.until(lambda: sum(bool(sink.refused) for sink in sinks) == 150, GUARD)
    assert questions(guest) - before <= 150 // messages.MAX_NAMES + 2
    again = [guest.channel(f"zeta.c{number}").subscribe(Log()) for number in range(10)]
    told = [bool(sink.refused) for sink in sinks[:10]]
    assert guest.until(lambda: [bool(sink.refused) for sink in again] == told, GUARD)
    more = guest.channel("zeta.more", Plan).subscribe(Log())
    assert guest.ready(GUARD) and not more.refused  # there is an end to it
    assert len(lab.federation_report().peer("guest").refused) == permissions.MOST_REFUSED
    assert questions(guest) - before <= 150 // messages.MAX_NAMES + 4  # with those of `ready`


def test_patterns_are_asked_for_too(make: Nodes, authority: Path) -> None:
    lab, guest = pair(make, authority)
    log = Log()
    none, some = guest.subscribe("zeta.*.**", Log()), guest.subscribe("**.weather", log)
    assert guest.until(lambda: bool(none.refused), GUARD)
    assert list(none.refused) == ["zeta.*.**@lab"] and "may not subscribe to any of zeta.*.**" in str(none.refused)
    assert [each.where for each in guest.federation_report().peer("lab").asked if each.channel == "zeta.*.**"] == [
        "refused"
    ]
    assert guest.ready(GUARD)
    lab.channel(OPEN).source("more").publish(number=1)
    log.wait(1)
    assert not some.refused and list(lab.federation_report().peer("guest").refused) == ["zeta.*.**"]


def test_what_sinks_want_is_not_said_to_who_may_not_advertise_it(make: Nodes, authority: Path) -> None:
    """Else whoever says to hide something would be told which channels others know of."""
    eager = joined(make, authority, "other", (Rule("open.**", "*"),))  # it hides the rest, it says
    eager.channel(OPEN, Plan).source("bait")
    desk = joined(make, authority, "desk", (Rule("zeta.**", "lab"), Rule("open.**", "*")))
    make.together()
    see(desk, eager)
    secret = desk.channel(SECRET, Plan).subscribe(Log())
    pattern = desk.subscribe("zeta.**", Log())
    harmless = desk.channel("open.sea", Plan).subscribe(Log())
    allowed = desk.channel(OPEN, Plan).subscribe(Log())
    assert desk.ready(GUARD)
    desk.subscribe("open.ocean.*", Log())
    assert desk.ready(GUARD)
    assert eager._engine is not None and desk._engine is not None
    known = desk._engine.permissions._unlisted[eager.id]
    assert desk.until(lambda: {"open.sea", "open.ocean.*"} <= known.asked, GUARD)
    assert known.asked == {"open.sea", "open.ocean.*"} and not known.waiting
    assert not eager.federation_report().peer("desk").refused
    assert not secret.refused and not pattern.refused and not harmless.refused and not allowed.refused


def test_a_node_that_is_started_again_with_other_rules_is_asked_again(make: Nodes, authority: Path) -> None:
    hub = joined(make, authority, "other")
    lab, guest = joined(make, authority, "lab", RULES), joined(make, authority, "guest")
    lab.channel(SECRET, Plan).source("s")
    make.together()
    log = Log()
    sink = guest.channel(SECRET, Plan).subscribe(log)
    assert guest.until(lambda: f"{SECRET}@lab" in sink.refused, GUARD)
    lab.close()
    lab = joined(make, authority, "lab")
    source = lab.channel(SECRET, Plan).source("s")
    make.together(hub, lab, guest)
    see(guest, lab)
    assert guest.ready(GUARD)
    source.publish(number=7)
    log.wait(1)
    assert not sink.refused and log.field("number") == [7]


def test_names_that_are_none_are_an_offence(make: Nodes, authority: Path) -> None:
    lab, guest = pair(make, authority)
    assert guest._engine is not None
    bad = ["a..b", "a.b*.c", "x\ny", "zeta.\0"]
    reply = guest._engine.dialogue.ask(guest._engine.peers[lab.id], MaySubscribe(bad))
    assert isinstance(reply, MayNot) and set(reply.why) == set(bad)
    assert (
        lab.federation_report().offences == {guest.id: len(bad)} and not lab.federation_report().peer("guest").refused
    )
    with pytest.raises(Exception, match="refused"):
        guest._engine.dialogue.ask(guest._engine.peers[lab.id], MaySubscribe(["a"] * (messages.MAX_NAMES + 1)))


def test_a_node_with_little_room_for_answers_answers_all_the_same(make: Nodes, authority: Path) -> None:
    lab, guest = joined(make, authority, "lab", RULES, limit=16_384), joined(make, authority, "guest", limit=16_384)
    lab.channel(OPEN, Plan).source("roof")
    make.together()
    see(guest, lab)
    with pytest.raises(ChannelError, match="as far as the rules of lab let this node know of them"):
        guest.channel(SECRET)
    long = "x" * 60
    with guest._wiring.lock:
        sinks = [guest.channel(f"zeta.{long}.{long}.{long}.c{number}", Plan).subscribe(Log()) for number in range(100)]
    assert guest.until(lambda: all(sink.refused for sink in sinks), GUARD)
    assert all("may not subscribe" in why for sink in sinks for why in sink.refused.values())


def test_users_with_passwords_are_told_as_well(make: Nodes) -> None:
    known = {"ann": "correct horse", "bob": "battery staple"}

    def user(name: str, rules: tuple[Rule, ...]) -> Security:
        return Security(user=name, password=known[name], users=known, rules=rules)

    lab = make("lab", listen="tcp/127.0.0.1:0", security=user("ann", (Rule("open.**", "*"),)))
    lab.channel(SECRET, Plan).source("s")
    desk = make("desk", connect=lab.endpoints[0], security=user("bob", EVERYTHING))
    make.together()
    sink = desk.channel(SECRET, Plan).subscribe(Log())
    assert desk.until(lambda: bool(sink.refused), GUARD)
    assert 'add Rule("zeta.plans.secret", "user:bob"' in sink.refused[f"{SECRET}@lab"]


def test_ready_does_not_wait_for_it(make: Nodes, authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "GATHER_SECONDS", 3600.0)  # it is never asked
    _, guest = pair(make, authority)
    sink = guest.channel(SECRET, Plan).subscribe(Log())
    assert guest.ready(GUARD) and not sink.refused


def test_without_rules_nothing_is_asked() -> None:
    with nodes() as made:
        lab, desk = made("lab"), made("desk")
        lab.channel(OPEN, Plan).source("roof")
        made.together()
        see(desk, lab)
        sink = desk.channel(SECRET, Plan).subscribe(Log())
        assert desk.ready(GUARD) and not sink.refused
        assert desk._engine is not None and not desk._engine.permissions._unlisted
        eventually(lambda: not desk.federation_report().failing)
