"""Security between nodes that run: who is let in, what they may do, and what becomes of those who try otherwise."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headwater import Event, Network, Node, u32
from headwater.errors import ConfigError
from headwater.federation.security.certificates import Issued, issue, make_authority
from headwater.federation.security.envelope import Sealer
from headwater.federation.security.identity import Identity
from headwater.federation.transport.link import parse_endpoint
from headwater.federation.transport.strangers import most_strangers
from headwater.federation.wire.control import Challenge, Greeting, SourceAd
from headwater.federation.wire.frames import MAX_FRAME, encode_control, encode_ping
from headwater.federation.wire.requests import Accepted, Card, Describe, Install, Installed, News, Wish, pack
from headwater.security import Rule, Security
from tests.federation.certified import EVERYTHING, TLS, certified
from tests.federation.nodes import GUARD, Log, Nodes, eventually, see

CHANNEL = "ie.tcd.sighting"
TCP = "tcp/127.0.0.1:0"


class Sighting(Event, name="ie.tcd.Sighting"):
    badge: u32
    level: float


def flows(make: Nodes, lab: Node, desk: Node, badges: int = 10) -> None:
    """Events of one node reach the other."""
    channel = lab.channel(CHANNEL, Sighting)
    source = next((each for each in channel.sources.values() if each.local), None) or channel.source("east")
    log = Log()
    see(desk, lab)
    with desk.channel(CHANNEL, Sighting).subscribe(log, "badge < 1000000") as subscription:
        assert desk.ready(GUARD)
        for badge in range(badges):
            source.publish(badge=badge, level=0.0)
        log.wait(badges)
        assert lab.flush(GUARD)
        assert log.field("badge") == list(range(badges)) and not subscription.refused


def peer_of(node: Node, name: str) -> Any:
    return node.federation_report().peer(name)


def offences(node: Node) -> dict[str, int]:
    return dict(node.federation_report().offences)


# ── certificates ──


def test_mutual_tls_for_zenoh_and_for_streams(make: Nodes, authority: Path) -> None:
    lab = make("lab", listen=TLS, security=certified(authority, "lab"))
    desk = make("desk", connect=lab.endpoints[0], security=certified(authority, "desk"))
    make.together()
    flows(make, lab, desk)
    assert lab.endpoints[0].startswith("tls/") and peer_of(lab, "desk").link == "tls"
    assert peer_of(lab, "desk").proven == '"desk" (by certificate)'
    assert offences(lab) == offences(desk) == {}


def test_a_node_of_another_authority_is_not_heard(make: Nodes, authority: Path, tmp_path: Path) -> None:
    make_authority(tmp_path)
    issue(tmp_path, "rogue")
    lab = make("lab", listen=TLS, security=certified(authority, "lab"))
    desk = make("desk", connect=lab.endpoints[0], security=certified(authority, "desk"))
    make.together()
    with pytest.raises(ConfigError, match="vouches"):  # its own authority is not the one that has issued it
        Security(certificate=tmp_path / "rogue.pem", key=tmp_path / "rogue.key",
                 authority=authority / "authority.pem").identity()  # fmt: skip
    rogue = make("rogue", connect=lab.endpoints[0], security=certified(tmp_path, "rogue"))
    rogue.channel(CHANNEL, Sighting).source("rogue")
    flows(make, lab, desk)
    assert rogue.peers == [] and lab.peers == ["desk"] and desk.peers == ["lab"]
    # at the port for streams it gets no further
    endpoint = parse_endpoint(lab.federation_report().streams[0])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(authority / "authority.pem")
    for chain in (None, (tmp_path / "rogue.pem", tmp_path / "rogue.key")):
        if chain is not None:
            context.load_cert_chain(*chain)
        with (
            pytest.raises((ssl.SSLError, ConnectionError)),
            socket.create_connection((endpoint.host, endpoint.port), GUARD) as plain,
            context.wrap_socket(plain) as secure,
        ):
            secure.sendall(encode_ping(1))
            if not secure.recv(1):
                raise ConnectionResetError("closed by the other end")
    assert lab._engine is not None and lab._engine.listener is not None
    eventually(lambda: lab._engine.listener.refused >= 2)  # type: ignore[union-attr]
    flows(make, lab, desk)


def test_a_node_without_a_certificate_is_not_heard(make: Nodes, authority: Path) -> None:
    security = certified(authority, "lab")
    lab = make("lab", listen=(TLS, TCP), security=security)  # plain connections, from this machine only
    plain = next(each for each in lab.endpoints if each.startswith("tcp/"))
    bare = make("bare", connect=plain)
    bare.channel(CHANNEL, Sighting).source()
    eventually(lambda: any(who.startswith("bare.") for who in offences(lab)))
    assert lab.peers == [] and lab.remote_sources(CHANNEL) == []
    assert bare.peers == []  # nor does it know whom it speaks with
    desk = make("desk", connect=lab.endpoints[0], security=certified(authority, "desk"))
    make.together(lab, desk)
    flows(make, lab, desk)


def test_rules_judge_by_certificate_and_group(make: Nodes, authority: Path) -> None:
    rules = (
        Rule("ie.tcd.**", "group:staff", may=("subscribe", "install")),
        Rule("ie.tcd.**", "guest", may=("advertise",)),
    )
    lab = make("lab", listen=TLS, security=certified(authority, "lab", rules))
    desk = make("desk", connect=lab.endpoints[0], security=certified(authority, "desk"))
    guest = make("guest", connect=lab.endpoints[0], security=certified(authority, "guest"))
    make.together()
    flows(make, lab, desk)  # staff may subscribe
    log, heard = Log(), Log()
    subscription = guest.channel(CHANNEL, Sighting).subscribe(log)
    see(guest, lab)
    assert guest.until(lambda: f"{CHANNEL}@lab" in subscription.refused, GUARD)
    assert '"guest" (by certificate) may not subscribe' in subscription.refused[f"{CHANNEL}@lab"]
    assert peer_of(guest, "lab").asked[0].where == "refused"
    # who may not advertise is not listened to; who may, is
    desk.channel(CHANNEL).source("forged")
    real = guest.channel(CHANNEL).source("real")
    lab.channel(CHANNEL).subscribe(heard)
    see(lab, guest)
    assert lab.ready(GUARD)
    real.publish(badge=7, level=0.0)
    heard.wait(1)
    eventually(lambda: offences(lab).get(desk.id, 0) > 0)
    assert lab.remote_sources(CHANNEL) == ["real@guest"]


def test_a_node_cannot_take_the_name_of_another(make: Nodes, authority: Path) -> None:
    lab = make("lab", listen=TLS, security=certified(authority, "lab"))
    desk = make("desk", connect=lab.endpoints[0], security=certified(authority, "desk"))
    make.together()
    with pytest.raises(ConfigError, match="desk"):
        make("desk", connect=lab.endpoints[0], security=certified(authority, "guest"))
    # signed with the key of "guest", in the name of "desk"
    forged = Sealer(Identity.load(certificate=authority / "guest.pem", key=authority / "guest.key"), "headwater", 1)
    forged.identity = _renamed(forged.identity, "desk")
    assert lab._engine is not None
    lab._engine.membership.on_news(forged.seal("news", pack(News(forged.identity.id, 1, 2))))
    assert offences(lab) == {forged.identity.id: 1}  # its key is proven, its name is not
    flows(make, lab, desk)


def _renamed(identity: Identity, name: str) -> Any:
    class Renamed:
        chain, public, sign = identity.chain, identity.public, identity.sign
        id = f"{name}.{identity.fingerprint[:32]}"

    return Renamed()


# ── user and password ──


def users(user: str, password: str, rules: tuple[Rule, ...] = EVERYTHING) -> Security:
    known = {"ann": "correct horse", "bob": {"password": "battery staple", "groups": ["staff"]}}
    mine = {**known, user: password} if user in known else known
    return Security(user=user, password=password, users=mine, rules=rules)


def test_user_and_password(make: Nodes) -> None:
    lab = make("lab", listen=TCP, security=users("ann", "correct horse", (Rule("ie.**", "group:staff"),)))
    desk = make("desk", connect=lab.endpoints[0], security=users("bob", "battery staple"))
    make.together()
    flows(make, lab, desk)
    assert peer_of(lab, "desk").proven == 'user "bob"'


def test_a_wrong_password_is_not_let_in(make: Nodes) -> None:
    lab = make("lab", listen=TCP, security=users("ann", "correct horse"))
    desk = make("desk", connect=lab.endpoints[0], security=users("bob", "battery staple"))
    make.together()
    bad = make("bad", connect=lab.endpoints[0], security=users("bob", "guessed"))
    bad.channel(CHANNEL, Sighting).source("bad")
    flows(make, lab, desk)
    assert bad.peers == [] and "bad" not in lab.peers


# ── beyond this machine ──


@pytest.mark.parametrize(
    "settings",
    [
        {"listen": "tcp/0.0.0.0:0"},
        {"listen": TCP, "direct": ("tcp/0.0.0.0:0",)},
        {"connect": "tcp/192.0.2.1:7447"},
        {"listen": TCP, "scout": True},
    ],
)
def test_nothing_leaves_this_machine_without_security(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="only endpoints of this machine") as caught:
        Node("lab", network=Network(**settings))
    assert "Security(" in str(caught.value)


def test_certificates_are_not_for_plain_connections(authority: Path) -> None:
    with pytest.raises(ConfigError, match=r"tls/0\.0\.0\.0:0"):
        Node("lab", listen="tcp/0.0.0.0:0", security=certified(authority, "lab"))


# ── hostile ──


def dialled(node: Node) -> socket.socket:
    endpoint = parse_endpoint(node.federation_report().streams[0])
    return socket.create_connection((endpoint.host, endpoint.port), GUARD)


def read_to_end(connection: socket.socket) -> None:
    connection.settimeout(GUARD)
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass


def test_hostile_bytes_at_the_port_for_streams(make: Nodes) -> None:
    lab, desk = make("lab"), make("desk")
    make.together()
    flows(make, lab, desk)
    attacks = [
        b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n",
        (MAX_FRAME + 1).to_bytes(4, "little") + b"\x01",
        os.urandom(4096),
        encode_ping(1),
        encode_control(Challenge(b"x" * 16)),
        encode_control(Greeting(b"HWE2\x40" + os.urandom(200))),
        (0).to_bytes(4, "little") * 100,
    ]
    for attack in attacks:
        with dialled(lab) as connection:
            connection.sendall(attack)
            with suppress(OSError):  # it may have hung up by now
                connection.shutdown(socket.SHUT_WR)
            read_to_end(connection)
    with dialled(lab):  # silent
        flows(make, lab, desk)
    counted = offences(lab)
    assert set(counted) == {"tcp/127.0.0.1"} and 5 <= counted["tcp/127.0.0.1"] <= len(attacks)
    assert "tcp/127.0.0.1" in str(lab.federation_report())


def test_many_who_do_not_say_who_they_are(make: Nodes) -> None:
    lab, desk = make("lab"), make("desk")
    make.together()
    silent = [dialled(lab) for _ in range(most_strangers() + 16)]
    try:
        for connection in silent[:16]:  # the oldest make room
            read_to_end(connection)
        flows(make, lab, desk)
    finally:
        for connection in silent:
            connection.close()


def test_a_greeting_of_another_connection_is_refused(make: Nodes) -> None:
    lab, desk = make("lab"), make("desk")
    make.together()
    flows(make, lab, desk)
    assert desk._engine is not None
    greeting = encode_control(Greeting(desk._engine.keyring.seal("hello", b"\x92\xc4\x01x\xc4\x01y", to=lab.id)))
    with dialled(lab) as connection:
        connection.sendall(greeting)
        read_to_end(connection)
    eventually(lambda: any(who.startswith(desk.id) for who in offences(lab)))
    flows(make, lab, desk)


def test_what_was_said_before_is_not_heard_again(make: Nodes) -> None:
    lab, desk = make("lab"), make("desk")
    make.together()
    flows(make, lab, desk)
    assert lab._engine is not None and desk._engine is not None
    ask = lab._engine.dialogue.on_ask
    wish = Install(CHANNEL, 1_000_000, [Wish(1, None)])
    asked = desk._engine.dialogue.question(desk._engine.peers[lab.id], wish)
    question, first = asked.payload, ask(asked.payload)
    assert first is not None and isinstance(desk._engine.dialogue.accept(asked, first).reply, Installed)
    for _ in range(3):
        again = ask(question)
        assert again is not None  # a refusal, for desk only
        refused = desk._engine.dialogue.accept(asked, again).reply
        assert isinstance(refused, Accepted) and "was there before" in refused.error
    assert ask(question[:-1] + bytes([question[-1] ^ 1])) is None
    for_desk = desk._engine.keyring.seal("ask", pack(wish), to=desk.id)  # not for this node
    ask(desk._engine.keyring.exchange.box(lab._engine.keyring.exchange.public, for_desk))
    old_run = desk._engine.keyring.seal("ask", pack(wish), to=lab.id, run=lab._engine.incarnation - 1)
    ask(desk._engine.keyring.exchange.box(lab._engine.keyring.exchange.public, old_run))
    assert ask(desk._engine.keyring.seal("ask", pack(wish), to=lab.id)) is not None  # in the clear it is no question
    lab._engine.membership.on_news(
        desk._engine.keyring.seal("news", pack(News(lab.id, 1, 1)))
    )  # in the name of another
    lab._engine.membership.on_news(os.urandom(100))
    lab._engine.dialogue.on_introduction(b"")
    lab._engine.links.on_post(os.urandom(100))
    counted = offences(lab)
    assert counted[f"{desk.id} (unproven)"] >= 5 and counted[desk.id] == 1
    assert sum(counted.values()) == 11, counted
    assert lab._engine.peers[desk.id].crossings[CHANNEL].version == 1_000_000  # the first one counted


def test_a_forged_sign_of_life_does_not_disturb_a_peer(make: Nodes) -> None:
    lab, desk = make("lab"), make("desk")
    make.together()
    flows(make, lab, desk)
    assert lab._engine is not None and desk._engine is not None
    links = lab._engine.peers[desk.id].links
    lab._engine.membership.joined(desk.id, desk._engine.incarnation + 1)
    lab._engine.membership.joined("nobody.01234567", 1)
    flows(make, lab, desk)
    assert lab._engine.peers[desk.id].links == links and list(lab._engine.peers) == [desk.id]


def test_a_known_node_that_sends_nonsense_is_named(make: Nodes) -> None:
    lab, desk = make("lab"), make("desk")
    make.together()
    flows(make, lab, desk)
    assert desk._engine is not None
    lab.channel(CHANNEL).source("more")
    log = Log()
    desk.channel(CHANNEL).subscribe(log)
    see(desk, lab)
    assert desk.ready(GUARD)
    link = desk._engine.peers[lab.id].link
    assert link is not None
    link.write(encode_control(Greeting(b"hello again")))
    eventually(lambda: offences(lab) == {desk.id: 1})
    flows(make, lab, desk)  # over another link


def test_who_advertises_too_much_is_heard_for_the_rest(make: Nodes) -> None:
    rules = Security(rules=[Rule("secret.**", "*", may=("subscribe",)), Rule("**", "*")])
    lab, desk = make("lab", security=rules, listen=TCP), make("desk")
    desk.channel("secret.plans", Sighting).source("forged")
    desk.channel(CHANNEL, Sighting).source("real")
    make.together()
    assert lab.until(lambda: lab.remote_sources(CHANNEL) == ["real@desk"], GUARD)
    assert lab.remote_sources("secret.plans") == [] and offences(lab)[desk.id] >= 1
    assert desk._engine is not None and lab._engine is not None
    # nor by saying so on the link only
    ad = SourceAd(99, "forged", "secret.plans", [], 0, "", [])
    with pytest.raises(Exception, match="may not advertise"):
        lab._engine.arrivals.source(lab._engine.peers[desk.id], ad, None)


def test_a_state_in_the_name_of_another_is_not_taken(make: Nodes) -> None:
    lab, desk = make("lab"), make("desk")
    make.together()
    assert lab._engine is not None and desk._engine is not None
    key = desk._engine.keyring.exchange.public
    stolen = Card(lab.id, desk._engine.incarnation, 99, key)
    refusal = lab._engine.dialogue.on_introduction(desk._engine.keyring.seal("card", pack(stolen)))
    assert b"speaks of" in refusal and offences(lab) == {desk.id: 1}
    # nor in an answer
    make_state = desk._engine.membership.description.state
    principal = lab._engine.peers[desk.id].principal
    assert principal is not None
    said = replace(make_state(principal), node=lab.id, version=99)
    question = lab._engine.dialogue.question(lab._engine.peers[desk.id], Describe())
    sealed = desk._engine.keyring.seal("reply", pack(said), to=lab.id, answers=question.name)
    box = desk._engine.keyring.exchange.box(lab._engine.keyring.exchange.public, sealed)
    assert not lab._engine.membership._heard(lab._engine.dialogue.accept(question, box))
    assert offences(lab) == {desk.id: 2}


def test_certificates_know_each_other_by_files(authority: Path) -> None:
    assert isinstance(issue(authority, "another"), Issued)
