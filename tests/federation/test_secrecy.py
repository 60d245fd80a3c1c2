"""What passes between nodes over Zenoh is for the two of them: someone who has a certificate of the same authority, and
no rule that allows anything, listens to all of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import time_ns

import pytest

from headwater import Event, Network, Node, u32
from headwater.errors import ConfigError, FederationError, SecurityError
from headwater.federation.logs.client import LogClient
from headwater.federation.security.envelope import Sealer, question_name
from headwater.federation.security.identity import Identity
from headwater.federation.security.session import Exchange, is_box
from headwater.federation.transport.link import parse_endpoint
from headwater.federation.wire import requests as messages
from headwater.federation.wire.requests import pack
from headwater.security import Rule
from tests.federation.certified import EVERYTHING, TLS, certified, joined
from tests.federation.eavesdropper import eavesdropper
from tests.federation.nodes import GUARD, Log, Nodes, eventually, see

CHANNEL = "zeta.plans.secret"
TEXT = "XYZZY-the-drop-is-at-noon"
PARAM = "PLUGH-who-asks-for-this"
SOURCE = "omega-source"
FIELD = "codeword"
RULES = (Rule("zeta.**", ["lab", "desk", "reader"]),)  # and nothing for anybody else


class Plan(Event, name="zeta.Plan"):
    number: u32
    codeword: str


def secrets(*made: Node) -> list[str]:
    """What nobody else may read."""
    streams = [each for node in made for each in node.federation_report().streams]
    ports = [each.rpartition("/")[2] for each in streams]
    return [CHANNEL, "zeta", TEXT, TEXT[:9], PARAM, SOURCE, FIELD, *streams, *ports]


def exchange(lab: Node, desk: Node, count: int = 20) -> Log:
    """Events, with an interest that has parameters and one that is a program."""
    log = Log()
    source = lab.channel(CHANNEL, Plan).source(SOURCE)
    see(desk, lab)
    channel = desk.channel(CHANNEL, Plan)
    channel.subscribe(log, "codeword != :who", params={"who": PARAM})
    channel.subscribe(Log(), f"codeword == '{PARAM}' or number % 2 == 1")
    assert desk.ready(GUARD)
    for number in range(count):
        source.publish(number=number, codeword=f"{TEXT} {number}")
    log.wait(count)
    assert log.field("number") == list(range(count))
    return log


@pytest.mark.parametrize("direct", [None, ()], ids=["streams", "routed"])
def test_an_insider_without_rules_reads_nothing(make: Nodes, authority: Path, direct: tuple[str, ...] | None) -> None:
    lab = joined(make, authority, "lab", RULES, direct=direct)
    with eavesdropper(lab.endpoints[0], certified(authority, "eve", RULES)) as eve:
        desk = make(
            "desk", network=Network(connect=lab.endpoints, direct=direct, security=certified(authority, "desk", RULES))
        )
        make.together(lab, desk)
        exchange(lab, desk)
        lab.channel("zeta.more.secret", Plan).source("another")
        assert desk.until(lambda: desk.remote_sources("zeta.more.secret") == ["another@lab"], GUARD)
        lab.federation_report(), desk.federation_report()
        desk.remote_counts(next(iter(desk.subscriptions.values())))
        kinds = {"alive", "roll", "news", "ask"} | ({"post"} if direct == () else set())
        eventually(lambda: kinds <= eve.kinds(), f"{kinds} heard")
        assert not eve.heard(*secrets(lab, desk))
        assert eve.heard("lab.") and eve.heard("desk.")  # who is there is no secret


def test_an_insider_reads_nothing_of_logs(make: Nodes, authority: Path, tmp_path: Path) -> None:
    lab = make("lab", listen=TLS, network=Network(security=certified(authority, "lab", RULES)), log=tmp_path / "log")
    source = lab.channel(CHANNEL, Plan).source(SOURCE)
    for number in range(20):
        source.publish(number=number, codeword=f"{TEXT} {number}")
    with eavesdropper(lab.endpoints[0], certified(authority, "eve", RULES)) as eve:
        with LogClient(lab.endpoints[0], security=certified(authority, "reader", RULES)) as client:
            assert client.channels() == [CHANNEL]
            (span,) = client.sources(CHANNEL)
            read = [batch.num_rows for batch in client.read(CHANNEL, "lab", SOURCE)]
            assert sum(read) == span.events == 20
        eventually(lambda: "log" in eve.kinds(), "questions about logs heard")
        assert not eve.heard(*secrets(lab))


def test_an_insider_with_a_node_of_its_own_sees_no_channels(make: Nodes, authority: Path) -> None:
    rules = (*RULES, Rule("open.**", "*", may=("subscribe",)))
    lab = joined(make, authority, "lab", rules)
    lab.channel(CHANNEL, Plan).source(SOURCE)
    lab.channel("open.weather", Plan).source("roof")
    eve = joined(make, authority, "eve", EVERYTHING)
    log = Log()
    eve.subscribe("**", log)
    make.together(lab, eve)
    assert eve.until(lambda: eve.remote_sources("open.weather") == ["roof@lab"], GUARD)  # what it may know, it does
    lab.channel(CHANNEL).derive("open.summary", "number > 1")
    later = lab.channel("zeta.later.secret", Plan).source("later")
    assert lab._engine is not None and eve._engine is not None
    told, known = lab._engine.membership.description, eve._engine.peers[lab.id]

    def seen() -> list[tuple[str, str | None, bytes | None]]:
        assert known.state is not None
        return sorted((ad.name, ad.parent, ad.program) for ad in known.state.channels)

    assert eve.until(lambda: "zeta.later.secret" in told.told[0], GUARD)
    assert eve.until(lambda: known.state is not None and known.state.version == told.version, GUARD)
    assert seen() == [("open.summary", None, None), ("open.weather", None, None)]
    assert eve.remote_sources(CHANNEL) == eve.remote_sources("zeta.later.secret") == []
    # Asked for all the same, it is refused; and so is what does not exist, in the same words.
    sink, other = eve.channel(CHANNEL, Plan).subscribe(Log()), eve.channel("zeta.nothing", Plan).subscribe(Log())
    with pytest.raises(FederationError, match=r'"eve".*may not subscribe'):
        installed = eve._engine.dialogue.ask(known, messages.Install(CHANNEL, 1, [messages.Wish(1, None)]))
        raise FederationError(installed.error or str(installed.refused))
    later.publish(number=1, codeword=TEXT)
    assert lab.flush(GUARD) and not [event for event in log.events if hasattr(event, "codeword")]
    assert eve.until(lambda: bool(sink.refused and other.refused), GUARD)
    assert repr(sink.refused).replace(CHANNEL, "") == repr(other.refused).replace("zeta.nothing", "")
    assert seen() == [("open.summary", None, None), ("open.weather", None, None)]


def test_an_insider_with_no_business_at_all_is_not_told_where_to_call(make: Nodes, authority: Path) -> None:
    lab = joined(make, authority, "lab", RULES)
    eve = joined(make, authority, "eve", EVERYTHING)
    desk = joined(make, authority, "desk", RULES)
    make.together()
    assert eve._engine is not None and desk._engine is not None
    stranger, friend = eve._engine.peers[lab.id], desk._engine.peers[lab.id]
    for engine, peer in ((eve._engine, stranger), (desk._engine, friend)):
        engine.membership.fetch(peer, GUARD)
        assert peer.described and peer.state is not None
    assert friend.state is not None and friend.state.endpoints == list(lab.federation_report().streams)
    assert stranger.state is not None and stranger.state.endpoints == []


# ── no direct stream ──


def held(lab: Node, count: int) -> Iterator[socket.socket]:
    """Connections to the port for direct streams on which nothing is said."""
    endpoint = parse_endpoint(lab.federation_report().streams[0])
    for _ in range(count):
        yield socket.create_connection((endpoint.host, endpoint.port), GUARD)


def test_half_open_connections_make_nobody_speak_in_the_clear(make: Nodes, authority: Path) -> None:
    lab = joined(make, authority, "lab", RULES)
    with ExitStack() as stack:
        eve = stack.enter_context(eavesdropper(lab.endpoints[0], certified(authority, "eve", RULES)))
        for connection in held(lab, 200):
            stack.enter_context(connection)
        desk = joined(make, authority, "desk", RULES)
        make.together(lab, desk)
        exchange(lab, desk)
        eventually(lambda: "ask" in eve.kinds(), "questions heard")
        assert not eve.heard(*secrets(lab, desk))


def unreachable(node: Node) -> None:
    """From now on no direct stream to this node can be made."""
    assert node._engine is not None and node._engine.listener is not None
    node._engine.listener.close()


def test_a_fallback_is_encrypted_warned_of_and_reported(
    make: Nodes, authority: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab = joined(make, authority, "lab", RULES)
    unreachable(lab)
    with eavesdropper(lab.endpoints[0], certified(authority, "eve", RULES)) as eve, caplog.at_level("WARNING"):
        desk = joined(make, authority, "desk", RULES)
        unreachable(desk)
        make.together(lab, desk)
        exchange(lab, desk)
        eventually(lambda: "post" in eve.kinds(), "events heard")
        assert not eve.heard(*secrets(lab, desk))
    report = desk.federation_report()
    peer = report.peer("lab")
    assert peer.link == "zenoh" and peer.fallback is not None and peer.fallback.times >= 1
    assert peer.fallback.seconds is not None and "tls/127.0.0.1" in peer.fallback.why
    assert report.fallback == "encrypted" and report.to_dict()["peers"][0]["fallback"]["times"] >= 1
    assert "fallback for" in str(report) and "routed by Zenoh, encrypted" in str(report)
    warned = [record.message for record in caplog.records if "no direct stream to lab" in record.message]
    assert len(warned) == 1 and "encrypted" in warned[0]  # once, however often it was tried


@pytest.mark.parametrize("who", ["lab", "desk"])
def test_an_owner_can_forbid_the_fallback(
    make: Nodes, authority: Path, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    def allowed(name: str) -> str:
        return "never" if name == who else "encrypted"

    lab = joined(make, authority, "lab", RULES, fallback=allowed("lab"))
    unreachable(lab)
    with eavesdropper(lab.endpoints[0], certified(authority, "eve", RULES)) as eve, caplog.at_level("WARNING"):
        desk = joined(make, authority, "desk", RULES, fallback=allowed("desk"))
        unreachable(desk)
        make.together(lab, desk)
        source = lab.channel(CHANNEL, Plan).source(SOURCE)
        see(desk, lab)
        log = Log()
        desk.channel(CHANNEL, Plan).subscribe(log)
        forbidding = lab if who == "lab" else desk
        other = "desk" if who == "lab" else "lab"
        eventually(lambda: forbidding.federation_report().peer(other).fallback is not None, "a fallback was forbidden")
        for number in range(20):
            source.publish(number=number, codeword=TEXT)
        assert not desk.ready(0.5) and not log.events
        assert "post" not in eve.kinds() and not eve.heard(TEXT, CHANNEL)
    found = forbidding.federation_report().peer(other)
    assert found.link is None and found.fallback is not None and found.fallback.seconds is None
    assert any("Zenoh's path is forbidden" in record.message for record in caplog.records)


def test_a_fallback_that_is_no_way_at_all_is_no_setting() -> None:
    with pytest.raises(ConfigError, match="fallback"):
        Network(listen=TLS, direct=(), fallback="never")
    with pytest.raises(ConfigError, match="encrypted"):
        Network(listen=TLS, fallback="plain")
    assert Network.of({"listen": [TLS], "fallback": "never"}).fallback == "never"


# ── answers that are nobody's ──


def test_what_others_answer_in_a_nodes_place_is_not_believed(make: Nodes, authority: Path) -> None:
    lab = joined(make, authority, "lab", RULES)
    mallory = Identity.load(certificate=authority / "eve.pem", key=authority / "eve.key")
    sealer, keys = Sealer(mallory, "headwater", time_ns()), Exchange()
    answered: list[str] = []

    def answer(key: str, payload: bytes) -> bytes | None:
        if not key.startswith("ask/lab"):
            return None
        answered.append(key)
        no = pack(messages.Accepted(error="nobody may subscribe here"))
        asker = payload[4:36] if is_box(payload) else b""
        match len(answered) % 5:
            case 0:
                raise ValueError("\0headwater failed: RuntimeError: nobody may subscribe here")
            case 1:
                raise ValueError("nobody may subscribe here")
            case 2:
                return no
            case 3:
                sealed = sealer.seal("reply", no, answers=question_name(payload))
                return keys.box(asker, sealed) if asker else sealed
        return payload  # its own question

    with eavesdropper(lab.endpoints[0], certified(authority, "eve", RULES)) as eve:
        eve.answer = answer
        desk = joined(make, authority, "desk", RULES)
        make.together(lab, desk)
        source = lab.channel(CHANNEL, Plan).source(SOURCE)
        see(desk, lab)
        for number in range(1, 11):
            log = Log()
            with desk.channel(CHANNEL, Plan).subscribe(log, f"number >= {number}") as sink:
                assert desk.ready(GUARD)
                source.publish(number=number, codeword=TEXT)
                log.wait(1)
                assert not sink.refused
        assert len(answered) >= 10
    assert desk.federation_report().refusals  # what was answered is seen
    assert lab.federation_report().offences == {}


def test_an_answer_to_another_question_is_not_taken(make: Nodes) -> None:
    lab, desk = make("lab"), make("desk")
    make.together()
    assert lab._engine is not None and desk._engine is not None
    peer = desk._engine.peers[lab.id]
    question, other = (desk._engine.dialogue.question(peer, messages.Ask("x")) for _ in range(2))
    answer = lab._engine.dialogue.on_ask(question.payload)
    assert answer is not None
    with pytest.raises(SecurityError, match="another question"):
        desk._engine.dialogue.accept(other, answer)
    assert isinstance(desk._engine.dialogue.accept(question, answer).reply, messages.Told)
    with pytest.raises(SecurityError, match="was there before"):
        desk._engine.dialogue.accept(question, answer)


def test_what_was_captured_is_refused_after_a_restart(make: Nodes, authority: Path) -> None:
    lab = joined(make, authority, "lab", RULES)
    listen = lab.endpoints[0]
    with eavesdropper(listen, certified(authority, "eve", RULES)) as eve:
        desk = joined(make, authority, "desk", RULES, direct=())
        make.together(lab, desk)
        exchange(lab, desk)
        eventually(lambda: len(eve.of("post")) > 3, "events heard")
        captured = [(key, data) for key, data in eve.questions if key.startswith("ask/lab")]
        rolls = [data for key, data in eve.questions if key.startswith("roll/")]
        posts = list(eve.posts)
    desk.close()
    lab.close()
    again = make("lab", listen=listen, network=Network(security=certified(authority, "lab", RULES)))
    again.channel(CHANNEL, Plan).source(SOURCE)
    with eavesdropper(listen, certified(authority, "eve", RULES)) as eve:
        assert len(captured) >= 2 and len(posts) > 3 and len(rolls) >= 1
        for key, payload in captured:
            answers = eve.ask(key, payload)
            assert answers and all(answer == b"\0headwater failed: refused" for answer in answers), answers
        for roll in rolls:  # what was said to all before it was started
            assert eve.ask(f"roll/{again.id}", roll) == [b"\0headwater failed: refused"]
        for post in posts:
            eve.put(f"post/{again.id}", post)
        eventually(
            lambda: sum(again.federation_report().offences.values()) >= len(captured) + len(posts), "all refused"
        )
        assert again.peers == [] and again.federation_report().peers == ()
        assert "an earlier run of this one" in again.federation_report().refusals["unknown"]
