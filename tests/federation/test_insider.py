"""What one can do who has a certificate of the authority, and a node of its own that says what it likes, but no rule
that allows it anything: learn nothing, use up nothing, and pass for nobody."""

from __future__ import annotations

from pathlib import Path
from time import time_ns
from typing import Any

import pytest
from msgspec.structs import replace

from headwater import Event, u32
from headwater.errors import FederationError, SecurityError
from headwater.federation.logs.client import LogClient
from headwater.federation.network import Network
from headwater.federation.node import Node
from headwater.federation.peers import state_pages
from headwater.federation.security.envelope import Sealer
from headwater.federation.security.identity import Identity
from headwater.federation.security.session import Exchange
from headwater.federation.wire import requests as messages
from headwater.federation.wire.requests import Install, Wish, pack_wishes
from headwater.interest import Interest
from headwater.security import Rule
from tests.federation.certified import EVERYTHING, TLS, certified, joined
from tests.federation.eavesdropper import eavesdropper
from tests.federation.nodes import GUARD, Log, Nodes, eventually, see

CHANNEL = "zeta.plans"
RULES = (Rule("zeta.**", ["lab", "desk"]),)  # and nothing for anybody else


class Plan(Event, name="zeta.Plan"):
    number: u32


def asks(eve: Node, lab: Node, request: Any) -> Any:
    """What is answered to it."""
    assert eve._engine is not None
    return eve._engine.dialogue.ask(eve._engine.peers[lab.id], request)


# ── learning something ──


def test_a_question_for_nothing_tells_nothing(make: Nodes, authority: Path) -> None:
    lab = joined(make, authority, "lab", RULES)
    source = lab.channel(CHANNEL, Plan).source("s")
    for number in range(3):
        source.publish(number=number)
    eve = joined(make, authority, "eve", EVERYTHING)
    make.together()
    there = asks(eve, lab, Install(CHANNEL, 1))
    assert there == asks(eve, lab, Install("zeta.none", 1))
    assert there == messages.Installed({})


def test_sources_that_go_are_told_only_to_who_may_know_of_them(make: Nodes, authority: Path) -> None:
    rules = (*RULES, Rule("open.**", "*"))
    lab = joined(make, authority, "lab", rules)
    kept = lab.channel("open.weather", Plan).source("roof")
    eve = joined(make, authority, "eve", EVERYTHING)
    desk = joined(make, authority, "desk", EVERYTHING)
    make.together()
    assert lab._engine is not None
    since = lab._engine.membership.latest()
    source = lab.channel(CHANNEL, Plan).source("s")
    lab._engine.membership.latest()
    number = source.number
    source.close()
    kept.close()
    lab._engine.membership.latest()
    told = {each.name: asks(each, lab, messages.Describe(since)) for each in (eve, desk)}
    assert told["eve"].since == told["desk"].since == since
    assert sorted(told["desk"].gone_sources) == sorted((number, kept.number))
    assert told["eve"].gone_sources == [kept.number]


def test_whether_a_source_was_heard_is_said_of_its_own_channel(make: Nodes, authority: Path) -> None:
    lab = joined(make, authority, "lab", (*RULES, Rule("open.**", "*")))
    eve = joined(make, authority, "eve", EVERYTHING)
    make.together()
    source = eve.channel("open.weather", Plan).source("s")
    see(lab, eve)
    asks(eve, lab, messages.Heard("open.weather", source.number))
    with pytest.raises(FederationError, match="not yet"):
        asks(eve, lab, messages.Heard("zeta.none", source.number))


# ── using something up ──


def test_what_is_refused_is_not_remembered_and_hardly_read(make: Nodes, authority: Path) -> None:
    lab = joined(make, authority, "lab", RULES)
    lab.channel(CHANNEL, Plan).source("s")
    refused = Log()
    lab.subscribe("headwater.interests", refused, "change == 'refused'")
    eve = joined(make, authority, "eve", EVERYTHING)
    make.together()
    assert lab._engine is not None
    program = Interest("number > 5", Plan).dumps()
    wishes, packed = pack_wishes([Wish(tag, program) for tag in range(1, 5001)])
    for number in range(3):
        answer = asks(eve, lab, Install(f"zeta.{number}", 1, wishes, packed=packed))
        assert "may not subscribe" in answer.error
    refused.wait(3)
    assert len(refused.events) <= 3 * 100
    assert not lab._engine.control._texts


def test_wishes_that_are_refused_one_by_one_are_not_remembered_either(make: Nodes, authority: Path) -> None:
    lab = joined(make, authority, "lab", (*RULES, Rule("open.**", "*", may=("subscribe",))))
    lab.channel("open.weather", Plan).source("s")
    eve = joined(make, authority, "eve", EVERYTHING)
    make.together()
    assert lab._engine is not None
    for version in range(1, 4):
        wish = Wish(version, Interest("number > 5", Plan).dumps(), tagged=True)  # it may not install code
        assert asks(eve, lab, Install("open.weather", version, [wish])).refused
    assert not lab._engine.control._texts


class Told:
    """A node that says of itself what it likes."""

    def __init__(self, eve: Node) -> None:
        assert eve._engine is not None
        self.engine = eve._engine
        self.description: Any = eve._engine.membership.description
        self._state = self.description.state

    def blank(self) -> Any:
        return self.description._blank()

    def says(self, answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """`answer(since, after)`: a state."""
        monkeypatch.setattr(self.description, "state", lambda principal, since=0, after=None: answer(since, after))

    def news(self, version: int) -> None:
        news = messages.News(self.engine.id, self.engine.incarnation, version)
        self.engine.fabric.tell(self.engine.keyring.seal("news", messages.pack(news)))


def channels(first: int, count: int, size: int = 0) -> list[messages.ChannelAd]:
    return [messages.ChannelAd(f"c{number}", bytes(size)) for number in range(first, first + count)]


def test_what_changes_again_and_again_does_not_add_up(
    make: Nodes, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that says each time that it has more channels."""
    monkeypatch.setattr(state_pages, "MOST_ADS", 5000)
    lab = joined(make, authority, "lab", RULES)
    eve = joined(make, authority, "eve", EVERYTHING)
    make.together()
    assert lab._engine is not None
    told, known = Told(eve), lab._engine.peers[eve.id]
    lab._engine.membership.fetch(known, GUARD)

    def more(since: int, after: Any) -> Any:
        version = since + 1
        return replace(told.blank(), version=version, since=since, channels=channels(1000 * version, 1000))

    told.says(more, monkeypatch)
    for _ in range(10):
        assert known.state is not None
        version = known.state.version
        told.news(version + 1)
        eventually(lambda v=version: known.state.version > v or refused(lab))  # type: ignore[misc,union-attr]
    assert refused(lab) and known.state is not None and 1000 <= len(known.state.channels) <= 5000


def refused(lab: Node) -> bool:
    return any("channels and sources of a node" in each for each in lab.federation_report().refusals.values())


@pytest.mark.parametrize("size", [0, 1 << 18])
def test_pages_that_never_end_come_to_one(
    make: Nodes, authority: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(state_pages, "MOST_ADS", 5000)
    monkeypatch.setattr(state_pages, "MOST_AD_BYTES", 5 << 20)
    lab = joined(make, authority, "lab", RULES)
    eve = joined(make, authority, "eve", EVERYTHING)
    make.together()
    assert lab._engine is not None
    told, known = Told(eve), lab._engine.peers[eve.id]
    pages = []

    def endless(since: int, after: Any) -> Any:
        first = 0 if after is None else after.source + 1
        count = 1 if size else 500
        following = messages.Cursor("c", first + count - 1)
        pages.append(following)
        return replace(told.blank(), version=1000, channels=channels(first, count, size), after=after, next=following)

    told.says(endless, monkeypatch)
    told.news(1000)
    eventually(lambda: refused(lab), "it is refused")
    assert len(pages) <= 25
    assert known.pages is None or known.pages_bytes <= 5 << 20


# ── passing for somebody ──


def test_what_is_posted_to_one_node_is_nothing_to_another_whose_key_it_has_said_to_be_its_own(
    make: Nodes, authority: Path
) -> None:
    """Eve's card has the desk's key. What the lab posts to eve it passes on to the desk, as if it were for the desk."""
    rules = (*RULES, Rule("open.**", "*", may=("subscribe",)))
    lab = joined(make, authority, "lab", rules, direct=())
    source = lab.channel("open.weather", Plan).source("roof")
    desk = joined(make, authority, "desk", EVERYTHING, direct=())
    got = Log()
    desk.channel("open.weather", Plan).subscribe(got)
    make.together()
    make.ready(desk)
    assert lab._engine is not None and desk._engine is not None
    there, mine = lab._engine, Exchange()
    identity = Identity.load(certificate=authority / "eve.pem", key=authority / "eve.key")
    sealer = Sealer(identity, "headwater", time_ns())
    with eavesdropper(lab.endpoints[0], certified(authority, "eve", EVERYTHING)) as eve:
        posts = eve.to(identity.id)
        token = eve.alive(identity.id, sealer.incarnation)
        eventually(lambda: there.fabric.is_alive(identity.id, sealer.incarnation), "a sign of life")
        card = messages.Card(identity.id, sealer.incarnation, 1, desk._engine.keyring.exchange.public)
        eve.ask(f"ask/{lab.id}", sealer.seal("card", messages.pack(card), to=lab.id))
        for request in (Install("open.weather", 1, [Wish(1, None)]), messages.Routed("", True)):
            sealed = sealer.seal("ask", messages.pack(request), to=lab.id)
            eve.ask(f"ask/{lab.id}", mine.box(there.keyring.exchange.public, sealed))
        eventually(lambda: bool(posts()), "something is posted to eve")
        for post in posts():
            eve.put(f"post/{desk.id}", post)
        eventually(
            lambda: (
                "forged" in str(desk.federation_report().refusals)
                or "changed" in str(desk.federation_report().refusals)
            )
        )
        del token
    for number in range(20):
        source.publish(number=number)
    got.wait(20)
    assert got.field("number") == list(range(20))


# ── being waited for ──


def test_ready_does_not_wait_for_one_that_may_do_nothing(make: Nodes, authority: Path) -> None:
    lab = joined(make, authority, "lab", RULES)
    lab.channel(CHANNEL, Plan).source("s")
    eve = joined(make, authority, "eve", EVERYTHING)
    desk = joined(make, authority, "desk", RULES)
    make.together()
    assert eve._engine is not None and desk._engine is not None
    desk._engine.membership.fetch(desk._engine.peers[eve.id], GUARD)  # so far it answers
    eve._engine.fabric.on_ask = lambda payload: None
    see(desk, lab)
    desk.channel(CHANNEL, Plan).subscribe(Log())
    assert desk.ready(GUARD)


@pytest.mark.parametrize("silent", [False, True])
def test_logs_are_read_whatever_one_says_that_may_advertise_nothing(
    make: Nodes, authority: Path, tmp_path: Path, silent: bool
) -> None:
    made = []
    for name, rules in (("lab", RULES), ("eve", EVERYTHING)):
        place = {"connect": made[0].endpoints[0]} if made else {"listen": TLS}
        network = Network(security=certified(authority, name, rules))
        node = make(name, network=network, log=tmp_path / name, **place)
        source = node.channel(CHANNEL, Plan).source("s")
        for number in range(5):
            source.publish(number=number)
        made.append(node)
    make.together()
    lab, eve = made
    if silent:
        eve.services["log server"]._answer = lambda sealed: b""  # type: ignore[attr-defined]
    with LogClient(lab.endpoints[0], security=certified(authority, "desk", RULES)) as client:
        assert client.channels() == [CHANNEL]
        assert [(span.node, span.events) for span in client.sources(CHANNEL)] == [("lab", 5)]
        assert sum(batch.num_rows for batch in client.read(CHANNEL, "lab", "s")) == 5
    with (
        LogClient(lab.endpoints[0], security=certified(authority, "desk", (Rule("other", "*"),))) as client,
        pytest.raises(SecurityError, match="may not advertise"),
    ):
        client.sources(CHANNEL)
