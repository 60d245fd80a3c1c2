"""Passwords: what others can find out about one, and what somebody on the way can do, who does not know any."""

from __future__ import annotations

import hmac
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path
from queue import SimpleQueue

import msgspec
import pytest
from cryptography.exceptions import InvalidTag
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Event, Network, Node, u32
from headwater.errors import LinkDown
from headwater.federation.security.certificates import issue, make_authority
from headwater.federation.security.envelope import Sealer
from headwater.federation.security.identity import Identity
from headwater.federation.security.tls import zenoh_settings
from headwater.federation.security.user_keys import login_key, password_key
from headwater.federation.transport import sealed_stream
from headwater.federation.transport.link import parse_endpoint
from headwater.federation.transport.sealed_stream import Agreement, Seal, SealedStream
from headwater.federation.transport.stream import FORGED, Stream
from headwater.federation.wire import control as wire_control
from headwater.federation.wire import frames as wire
from headwater.security import Rule, Security
from tests.effort import examples
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes, see
from tests.federation.relays import Meddler, Relay

PASSWORD = "correct horse: battery"
CHANNEL = "ie.tcd.sightings"
TCP, TLS = "tcp/127.0.0.1:0", "tls/127.0.0.1:0"
USERS = {"ann": PASSWORD, "bob": "staple"}


class Sighting(Event, name="ie.tcd.PasswordSighting"):
    badge: u32
    room: str = ""


def security(user: str) -> Security:
    return Security(user=user, password=USERS[user], users=USERS, rules=[Rule("**", "*")])


def numbers(data: bytes) -> Iterator[bytes]:
    """Every number of 64 bits that what was sent may contain: as it is, or with seven bits in a byte."""
    for at in range(len(data)):
        yield data[at : at + 8]
        value = 0
        for place, byte in enumerate(data[at : at + 9]):
            if place == 8 or not byte & 128:
                yield (value | byte << 7 * place).to_bytes(9, "little")[:8]
                break
            value |= (byte & 127) << 7 * place


def guessed(relay: Relay, secret: bytes) -> bool:
    """Whether who has seen a login can tell that this was the secret, by no more than a keyed hash of it."""
    sent, challenges = bytes(relay.towards[0]), bytes(relay.back[0])
    return any(hmac.digest(number, secret, "sha3_256") in sent for number in numbers(challenges))


def test_a_login_that_was_seen_does_not_make_guessing_quick() -> None:
    """Zenoh sends a keyed hash of what it is given: that must be slow to compute from a password."""
    with nodes() as make:
        lab = make("lab", security=security("ann"))
        with Relay(lab.endpoints[0]) as relay:
            desk = make("desk", connect=relay.endpoint, security=security("ann"))
            make.together(lab, desk)
            assert guessed(relay, login_key("ann", PASSWORD).encode()), "this is what Zenoh was given"
            assert not guessed(relay, PASSWORD.encode())
            assert not guessed(relay, password_key("ann", PASSWORD))
            assert PASSWORD.encode() not in b"".join([*relay.towards, *relay.back])


def test_zenoh_is_told_no_password_and_not_the_key_that_signs() -> None:
    """Neither by its settings nor by the file of users, which only this user can read."""
    settings = zenoh_settings(security("ann"))
    file = Path(settings["transport/auth/usrpwd/dictionary_file"])
    told = json.dumps(settings) + file.read_text()
    for name, password in USERS.items():
        assert password not in told
        assert password_key(name, password).hex() not in told
        assert f"{name}:{login_key(name, password)}\n" in file.read_text()
    assert settings["transport/auth/usrpwd/password"] == login_key("ann", PASSWORD)
    assert file.stat().st_mode & 0o777 == 0o600
    assert login_key("ann", "x") != login_key("bob", "x"), "one password of two users makes two keys"
    assert len(bytes.fromhex(login_key("ann", "x"))) == 32


# ── on direct streams without TLS ──


def behind(make: Nodes, stack: ExitStack) -> tuple[Node, Node, Relay]:
    """Two nodes whose direct stream goes through somebody else: only desk calls, and lab says that it is there."""
    lab = make("lab", security=security("ann"))
    assert lab._engine is not None and lab._engine.listener is not None
    relay = stack.enter_context(Relay(lab._engine.listener.endpoints[0]))
    lab._engine.listener.endpoints[:] = [relay.endpoint]
    network = Network(connect=(lab.endpoints[0],), client=True, security=security("bob"))
    return lab, make("desk", network=network, connect=None), relay


def test_nobody_on_the_way_reads_what_a_stream_carries() -> None:
    with nodes() as make, ExitStack() as stack:
        lab, desk, relay = behind(make, stack)
        source, log = lab.channel(CHANNEL, Sighting).source("east"), Log()
        with desk.channel(CHANNEL, Sighting).subscribe(log, "badge < 1000"):
            see(desk, lab)
            assert desk.ready(GUARD)
            for badge in range(50):
                source.publish(badge=badge, room="the secret room")
            log.wait(50)
            link = lab.federation_report().peer("desk").link
        seen = b"".join([*relay.towards, *relay.back])
        assert link == "tcp" and len(seen) > 50 * 20, "it went this way"
        for secret in (b"secret room", CHANNEL.encode(), b"east", b"badge"):
            assert secret not in seen


@pytest.mark.parametrize("action", ["flip", "repeat", "swap", "drop"])
def test_nobody_on_the_way_changes_what_a_stream_carries(action: str) -> None:
    """Every event comes once, in order, as it was published; and that somebody meddles is noticed."""
    with nodes() as make, ExitStack() as stack:
        meddler = Meddler(action)
        lab, desk, relay = behind(make, stack)
        relay.change_back = lambda: meddler.direction(2)
        source, log = lab.channel(CHANNEL, Sighting).source("east"), Log()
        with desk.channel(CHANNEL, Sighting).subscribe(log, delivery="reliable") as subscription:
            see(desk, lab)
            assert desk.ready(GUARD)
            numbers = count()

            def noticed(events: int = 4) -> bool:
                """Publish some more: what goes by another way, while there is no stream, nobody meddles with."""
                for badge in islice(numbers, events):
                    source.publish(badge=badge, room="the room of this one")
                    if badge % 4 == 0:
                        log.wait(badge - 20)
                return meddler.done > 2

            noticed(400)
            eventually(noticed, "that there is something to notice", timeout=GUARD)
            total = next(numbers)
            log.wait(total)
            assert lab.flush(GUARD)
            assert log.field("badge") == list(range(total))
            assert set(log.field("room")) == {"the room of this one"} and not subscription.refused
        counted = desk.federation_report().offences
        assert 1 <= counted[f"{lab.id} (unproven)"] <= meddler.done, dict(counted)


def test_a_greeting_without_half_of_a_key_is_refused() -> None:
    """Someone who knows the password cannot talk a node into a stream that is not sealed, and nobody else can take
    the halves out: they are signed."""
    with nodes() as make:
        lab = make("lab", security=security("ann"))
        assert lab._engine is not None and lab._engine.listener is not None
        endpoint = parse_endpoint(lab._engine.listener.endpoints[0])
        sealer = Sealer(Identity.ephemeral("desk"), lab._engine.network.federation, time.time_ns(), security("bob"))
        with socket.create_connection((endpoint.host, endpoint.port), GUARD) as sock:
            stream = Stream(sock, "tcp", "lab", loopback=True)
            challenge = wire.decode(stream.hear_within(GUARD))
            assert isinstance(challenge, wire_control.Challenge)
            body = msgspec.msgpack.encode((challenge.nonce, b"n" * 16))
            stream.write(wire.encode_control(wire_control.Greeting(sealer.seal("hello", body, to=lab.id))))
            with pytest.raises(LinkDown):
                stream.hear_within(GUARD)
        eventually(lambda: any(who.startswith(sealer.identity.id) for who in lab.federation_report().offences))
        assert not lab.peers


@pytest.mark.parametrize("kind", ["users", "certificates"])
def test_unix_sockets_are_sealed_too(kind: str, tmp_path: Path) -> None:
    """With certificates as well: there is no TLS on them."""
    if kind == "certificates":
        make_authority(tmp_path)
    with nodes() as make:
        made = []
        for name, user in (("lab", "ann"), ("desk", "bob")):
            if kind == "certificates":
                files = issue(tmp_path, name)
                proof = Security(
                    certificate=files.certificate, key=files.key, authority=files.authority, rules=[Rule("**", "*")]
                )
            else:
                proof = security(user)
            where = {"connect": (made[0].endpoints[0],)} if made else {"listen": (TLS if kind != "users" else TCP,)}
            network = Network(direct=(f"unix/{tmp_path}/{name}.sock",), security=proof, **where)  # type: ignore[arg-type]
            made.append(make(name, network=network, connect=None))
        lab, desk = made
        source, log = lab.channel(CHANNEL, Sighting).source("east"), Log()
        desk.channel(CHANNEL, Sighting).subscribe(log)
        see(desk, lab)
        assert desk.ready(GUARD)
        source.publish(badge=7)
        log.wait(1)
        assert desk._engine is not None
        link = desk._engine.peers[lab.id].link
        assert isinstance(link, SealedStream) and link.kind == "unix"


# ── records ──


def ends() -> tuple[SealedStream, SealedStream]:
    one, other = socket.socketpair()
    a, b = Agreement(), Agreement()
    there, back = a.keys(b.public, caller=b"a", called=b"b")
    assert (there, back) == b.keys(a.public, caller=b"a", called=b"b")
    assert there != back and a.keys(b.public, caller=b"a", called=b"c") != (there, back)
    return (
        SealedStream(Stream(one, "unix", "one", loopback=True), there, back),
        SealedStream(Stream(other, "unix", "other", loopback=True), back, there),
    )


@given(st.lists(st.integers(1, 200_000), min_size=1, max_size=12))
@settings(max_examples=examples(20), deadline=None)
def test_what_is_written_is_read_in_whatever_records(sizes: list[int]) -> None:
    near, far = ends()
    came: SimpleQueue[bytes] = SimpleQueue()
    far.start(lambda: lambda frame, link: came.put(bytes(frame)), lambda reason: None)
    try:
        for number, size in enumerate(sizes):
            near.write(size.to_bytes(4, "little") + bytes((number,)) * size)
            near.drain(GUARD)
        assert [came.get(timeout=GUARD) for _ in sizes] == [bytes((n,)) * size for n, size in enumerate(sizes)]
        assert far.bytes_in == near.bytes_out > sum(sizes)
    finally:
        for stream in (near, far):
            stream.close()
        far.join(GUARD)


def test_keys_are_renewed_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_stream, "RECORDS_PER_KEY", 3)
    one, other = Seal(bytes(32)), Seal(bytes(32))
    keys, first = set(), b""
    for _ in range(20):
        record = one.seal(b"the same")
        first = first or record
        assert other.open(record[:4], record[4:]) == b"the same"
        keys.add(one._key)
    assert len(keys) == 7
    with pytest.raises(InvalidTag):
        other.open(first[:4], first[4:])


def test_random_bytes_end_a_sealed_stream() -> None:
    near, far = ends()
    reasons: SimpleQueue[str] = SimpleQueue()
    far.start(lambda: lambda frame, link: None, reasons.put)
    near._sock.sendall((1 << 30).to_bytes(4, "little"))
    assert reasons.get(timeout=GUARD).startswith(FORGED)
    near.close()
