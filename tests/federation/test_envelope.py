"""Signed messages: what is proven, and everything that must not get through."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import FederationError, SecurityError
from headwater.federation.security.certificates import issue, make_authority
from headwater.federation.security.envelope import MAGIC, Content, Opened, Sealer, Verifier, question_name
from headwater.federation.security.identity import Identity
from headwater.federation.security.replay_window import Window
from headwater.federation.security.session import HEAD, Exchange, Session, is_box
from headwater.federation.security.settings import Security
from tests.effort import examples

SECOND = 10**9
START = 1_900_000_000 * SECOND  # a while after the certificates of these tests are made
USERS = {"ann": {"password": "correct horse", "groups": ["staff"]}, "bob": "battery"}


class Clock:
    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class World:
    """Certificates of two authorities, made once; nobody changes them."""

    def __init__(self, folder: Path) -> None:
        self.start = datetime.now(UTC)
        self.ours, self.theirs = folder / "ours", folder / "theirs"
        make_authority(self.ours)
        make_authority(self.theirs)
        self.clock = Clock(round(self.start.timestamp() * 1e9))
        self.dublin = self.security(self.ours, "dublin", groups=["staff"])
        self.cork = self.security(self.ours, "cork")
        self.foreign = self.security(self.theirs, "dublin")
        self.short = self.security(self.ours, "short", days=1)
        self.ann = Security(user="ann", password="correct horse", users=USERS)

    def security(self, folder: Path, name: str, **more: Any) -> Security:
        files = issue(folder, name, **more)
        return Security(certificate=files.certificate, key=files.key, authority=files.authority)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


NONE = Security()
DUBLIN = Identity.ephemeral("dublin")
CORK = Identity.ephemeral("cork")
FIXED = Identity("fixed", ed25519.Ed25519PrivateKey.generate())  # its signatures are all of one length


def sealer(identity: Identity = DUBLIN, security: Security = NONE, *, at: int = START, run: int = START) -> Sealer:
    return Sealer(identity, "tcd", run, security, now=Clock(at))


def verifier(security: Security = NONE, *, at: int | Clock = START, loopback: bool = True, **more: Any) -> Verifier:
    clock = at if isinstance(at, Clock) else Clock(at)
    return Verifier(security, "tcd", loopback=loopback, now=clock, **more)


def refused(verifier: Verifier, data: bytes, reason: str, **more: Any) -> str:
    with pytest.raises(SecurityError) as caught:
        verifier.open(data, **more)
    assert caught.value.reason == reason, caught.value
    return str(caught.value)


def plain(identity: Identity, **changes: Any) -> Content:
    """The content of an envelope, with changes."""
    usual: dict[str, Any] = {
        "federation": "tcd", "sender": identity.id, "to": "", "incarnation": START, "counter": 1, "time": START,
        "kind": "news", "body": b"x", "key": b"" if identity.chain else identity.public, "chain": list(identity.chain),
        "user": "", "proof": b"",
    }  # fmt: skip
    return Content(**(usual | changes))


def signed(identity: Identity, content: Any) -> bytes:
    """Whatever a node with this key may choose to sign."""
    data = content if isinstance(content, bytes) else msgspec.msgpack.encode(content)
    signature = identity.sign(b"headwater envelope 2\0" + data)
    return MAGIC + bytes([len(signature)]) + signature + data


# ── what is proven ──


def test_a_key_on_loopback() -> None:
    opened = verifier().open(sealer().seal("news", b"body"), expected_kind="news")
    assert opened == Opened(
        opened.principal, DUBLIN.id, START, "news", b"body", "", 1, START, DUBLIN.public
    )  # fmt: skip
    assert opened.principal.name == f"key:{DUBLIN.fingerprint[:32]}" and opened.principal.how == "key"
    assert opened.principal.fingerprint == DUBLIN.fingerprint and opened.principal.groups == ()


def test_a_key_of_the_other_kind() -> None:
    other = Identity("other", ed25519.Ed25519PrivateKey.generate())
    assert verifier().open(sealer(other).seal("news", b"")).sender == other.id


def test_a_bare_key_from_beyond_this_machine() -> None:
    assert "nobody vouches for it" in refused(verifier(loopback=False), sealer().seal("news", b""), "unknown")
    assert verifier(Security(open=True), loopback=False).open(sealer().seal("news", b"")).principal.how == "key"


def test_a_certificate(world: World) -> None:
    at = world.clock.now
    data = sealer(world.dublin.identity(), world.dublin, at=at, run=at).seal("news", b"body")
    principal = verifier(world.cork, at=at, loopback=False).open(data).principal
    assert (principal.name, principal.how, principal.groups) == ("dublin", "certificate", ("staff",))


def test_a_certificate_means_no_more_than_a_key_where_there_is_no_authority(world: World) -> None:
    data = sealer(world.dublin.identity(), world.dublin).seal("news", b"body")
    assert verifier().open(data).principal.how == "key"


def test_a_password(world: World) -> None:
    principal = verifier(world.ann, loopback=False).open(sealer(DUBLIN, world.ann).seal("news", b"")).principal
    assert (principal.name, principal.how, principal.groups) == ("ann", "password", ("staff",))
    bob = Security(user="bob", password="battery", users=USERS)
    assert verifier(world.ann).open(sealer(CORK, bob).seal("news", b"")).principal.name == "bob"


# ── who is not believed ──


def test_nobody_signs_for_another_node() -> None:
    mine, theirs = CORK.fingerprint[:32], DUBLIN.fingerprint[:32]
    for sender in (DUBLIN.id, f"cork.{theirs}", "dublin", mine, f".{mine}", f"a/b.{mine}"):
        refused(verifier(), signed(CORK, plain(CORK, sender=sender)), "key")
    assert verifier().open(signed(CORK, plain(CORK))).sender == CORK.id
    refused(verifier(), signed(CORK, plain(DUBLIN)), "signature")  # the other's key shown, one's own used


def test_hostile_text_does_not_reach_the_log(world: World) -> None:
    for text in ("a\nb", "x" * 200, "a." + "x" * 200, "\x1b[2J", "a.b\r"):
        for field, where in (("sender", verifier()), ("user", verifier(world.ann)), ("federation", verifier())):
            with pytest.raises(SecurityError) as caught:
                where.open(signed(CORK, plain(CORK, **{field: text})))
            assert str(caught.value).isprintable() and caught.value.offender.isprintable()
            assert len(caught.value.offender) < 100


def test_a_key_alone_is_not_enough_where_there_is_security(world: World) -> None:
    at = world.clock.now
    data = sealer(at=at, run=at).seal("news", b"")
    for security in (world.dublin, world.ann):
        assert "found only a key" in refused(verifier(security, at=at), data, "unknown")


def test_another_authority(world: World) -> None:
    at = world.clock.now
    data = sealer(world.foreign.identity(), world.foreign, at=at, run=at).seal("news", b"")
    assert "the authority that this node knows" in refused(verifier(world.cork, at=at), data, "authority")
    refused(verifier(world.ann, at=at), data, "unknown")


def test_names_in_certificates(world: World) -> None:
    at = world.clock.now
    cork = world.cork.identity()
    short = cork.fingerprint[:32]

    def take(content: Content, reason: str, identity: Identity = cork) -> str:
        return refused(verifier(world.dublin, at=at), signed(identity, content), reason)

    mine = {"incarnation": at, "time": at}
    assert 'is for the node "cork"' in take(plain(cork, sender=f"dublin.{short}", **mine), "name")
    take(plain(cork, sender=f"localhost.{short}", **mine), "name")  # a host's name in every certificate
    dublin = world.dublin.identity()
    take(plain(dublin, **mine), "signature")  # another's certificate
    take(plain(cork, chain=[*dublin.chain, *cork.chain], **mine), "key")
    take(plain(cork, key=cork.public, **mine), "malformed")  # a key and a certificate
    take(plain(cork, chain=[], **mine), "malformed")  # neither
    take(plain(cork, chain=[b"\x30\x03\x02\x01\x01"], **mine), "certificate")
    take(plain(cork, chain=[cork.chain[0][:-1]], **mine), "certificate")


def test_a_certificate_that_a_node_made_itself(world: World, tmp_path: Path) -> None:
    """Neither an authority of the same name nor a certificate under a node's own opens the door."""
    at = world.clock.now
    make_authority(tmp_path)
    fake = world.security(tmp_path, "dublin").identity()
    for chain in ([*fake.chain], [*fake.chain, *world.cork.identity().chain]):
        content = plain(fake, chain=chain, incarnation=at, time=at)
        refused(verifier(world.cork, at=at), signed(fake, content), "authority")


def test_expiry(world: World) -> None:
    """Also of a certificate that was found good before."""
    clock = Clock(world.clock.now)
    judge = verifier(world.dublin, at=clock)
    node = Sealer(world.short.identity(), "tcd", clock.now, world.short, now=clock)
    assert judge.open(node.seal("news", b"")).principal.name == "short"
    clock.now += 23 * 3600 * SECOND
    assert judge.open(node.seal("news", b"")).principal.name == "short"
    clock.now += 2 * 3600 * SECOND
    assert "good until" in refused(judge, node.seal("news", b""), "expired")
    assert "issue a new one" in refused(verifier(world.dublin, at=clock), node.seal("news", b""), "expired")
    clock.now = world.clock.now - 7200 * SECOND
    refused(
        verifier(world.dublin, at=clock), Sealer(node.identity, "tcd", clock.now, now=clock).seal("n", b""), "expired"
    )


def test_passwords_that_are_not_right(world: World) -> None:
    wrong = Security(user="ann", password="corect horse", users={"ann": "corect horse"})
    eve = Security(user="eve", password="x", users={"eve": "x"})
    for security in (wrong, eve):
        refused(verifier(world.ann), sealer(DUBLIN, security).seal("news", b""), "password")
    proof = world.ann.credential().prove("tcd", DUBLIN.id, DUBLIN.public)  # type: ignore[union-attr]
    verifier(world.ann).open(signed(DUBLIN, plain(DUBLIN, user="ann", proof=proof)))
    # What proves one node proves no other, no other user, and nothing in another federation.
    refused(verifier(world.ann), signed(CORK, plain(CORK, user="ann", proof=proof)), "password")
    refused(verifier(world.ann), signed(DUBLIN, plain(DUBLIN, user="bob", proof=proof)), "password")
    refused(verifier(world.ann), signed(DUBLIN, plain(DUBLIN, user="ann", proof=b"")), "password")
    renamed = plain(DUBLIN, sender=f"x.{DUBLIN.fingerprint[:32]}", user="ann", proof=proof)
    refused(verifier(world.ann), signed(DUBLIN, renamed), "password")
    elsewhere = Verifier(world.ann, "ucd", loopback=False, now=Clock(START))
    refused(elsewhere, signed(DUBLIN, plain(DUBLIN, federation="ucd", user="ann", proof=proof)), "password")


def test_keys_that_are_none() -> None:
    def der(key: Any) -> bytes:
        return bytes(key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))

    for key in (
        b"x",
        DUBLIN.public[:-1],
        DUBLIN.public + b"\0",
        der(rsa.generate_private_key(65537, 1024 * 2)),
        der(ec.generate_private_key(ec.SECP384R1())),
    ):
        refused(verifier(), signed(DUBLIN, plain(DUBLIN, key=key)), "key")


# ── what is not for here ──


def test_another_federation_kind_or_node() -> None:
    data = sealer().seal("news", b"")
    refused(Verifier(NONE, "ucd", loopback=True), data, "federation")
    assert "expected an envelope of kind 'ask', found 'news'" in refused(verifier(), data, "kind", expected_kind="ask")
    letter = sealer().seal("ask", b"", to=CORK.id)
    refused(verifier(me=DUBLIN.id), letter, "recipient")
    refused(verifier(), letter, "recipient")
    assert verifier(me=CORK.id).open(letter).to == CORK.id
    assert verifier(me=CORK.id).open(data).to == ""


def test_size() -> None:
    small = verifier(Security(limit=4096))
    assert small.open(sealer().seal("news", b"x" * 3000)).body == b"x" * 3000
    refused(small, sealer().seal("news", b"x" * 4000), "oversized")
    refused(verifier(), b"HWE2" + bytes(1024 * 1024), "oversized")


# ── tampering ──


@settings(deadline=None, max_examples=examples(4))
@given(st.integers(1, 255), st.data())
def test_a_change_of_any_byte_is_noticed(world: World, mask: int, data: st.DataObject) -> None:
    at = world.clock.now
    if data.draw(st.booleans()):
        judge, node = verifier(), sealer()
    else:
        judge = verifier(world.cork, at=at)
        node = sealer(world.dublin.identity(), world.dublin, at=at, run=at)
    whole = node.seal("news", data.draw(st.binary(max_size=20)))
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= mask
        with pytest.raises(SecurityError) as caught:
            judge.open(bytes(changed))
        assert caught.value.reason
    assert judge.open(whole).sender == node.identity.id  # none of these forgeries has used up its number
    refused(judge, whole, "replayed")


@settings(deadline=None, max_examples=examples(100))
@given(st.data())
def test_cut_and_pasted(data: st.DataObject) -> None:
    judge, node = verifier(), sealer(FIXED)
    one, two = node.seal("news", b"one"), node.seal("news", b"two")
    at, to = data.draw(st.integers(0, len(one))), data.draw(st.integers(0, len(two)))
    mixed = one[:at] + two[to:]
    if mixed in (one, two):
        judge.open(mixed)
    else:
        with pytest.raises(SecurityError):
            judge.open(memoryview(mixed))


@settings(deadline=None, max_examples=examples(200))
@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda data: MAGIC + data))
def test_bytes_from_anywhere(data: bytes) -> None:
    with pytest.raises(SecurityError):
        verifier().open(data)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@settings(deadline=None, max_examples=examples(200))
@given(st.integers(0, 12), values, st.booleans())
def test_anything_signed_rightly_by_a_hostile_node(place: int, value: Any, raw: bool) -> None:
    """It owns its key, and signs what it likes: content of wrong types, of wrong length, no content at all."""
    content = list(msgspec.structs.astuple(plain(CORK)))
    content[place:] = [value, *content[place + 1 :]]
    data = signed(CORK, msgspec.msgpack.encode(value if raw else content))
    try:
        opened = verifier().open(data)
    except SecurityError as error:
        assert error.reason
    else:
        assert opened.sender == CORK.id and opened.principal.fingerprint == CORK.fingerprint


# ── again, late, out of order ──


def test_replay() -> None:
    judge, node = verifier(), sealer()
    data = node.seal("news", b"")
    judge.open(data)
    assert "was there before" in refused(judge, data, "replayed")
    judge.open(node.seal("news", b""))
    refused(judge, data, "replayed")


def test_an_older_run_of_a_node_is_stale() -> None:
    judge = verifier()
    old, new = sealer(run=START), sealer(run=START + 1)
    judge.open(old.seal("news", b""))
    late = old.seal("news", b"")
    first = new.seal("news", b"")
    judge.open(first)
    assert f"the newest is {START + 1}" in refused(judge, late, "stale")
    refused(judge, first, "replayed")
    judge.open(new.seal("news", b""))


def test_order_within_the_window_does_not_matter() -> None:
    judge, node = verifier(width=64), sealer()
    sent = [node.seal("news", b"") for _ in range(200)]
    for data in reversed(sent[:64]):
        judge.open(data)
    judge.open(sent[199])
    refused(judge, sent[199 - 64], "replayed")
    judge.open(sent[199 - 63])
    refused(judge, sent[199 - 63], "replayed")


def test_who_is_gone_makes_room_first() -> None:
    judge = verifier(senders=2)
    first, second = sealer(DUBLIN), sealer(CORK)
    said = [first.seal("news", b""), second.seal("news", b"")]
    for data in said:
        judge.open(data)
    judge.forget(CORK.id)
    judge.forget("nobody")
    refused(judge, said[1], "replayed")  # there is still room
    judge.open(sealer(FIXED).seal("news", b""))
    refused(judge, said[0], "replayed")
    judge.open(said[1])  # between nodes of one machine nothing is refused by its time


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(st.integers(1, 300) | st.just(2**62), max_size=60), st.integers(64, 100))
def test_the_window_agrees_with_a_set(counters: list[int], width: int) -> None:
    window, seen, newest = Window(width), set[int](), 0
    for counter in counters:
        expected = counter not in seen and counter > newest - width
        assert window.fresh(counter) is expected
        if expected:
            window.mark(counter)
            seen.add(counter)
            newest = max(newest, counter)
        assert window.newest == newest
    assert not window.fresh(0) and not window.fresh(-5)


def test_time(world: World) -> None:
    clock = Clock(START)
    judge = Verifier(world.ann, "tcd", loopback=False, now=clock)
    node = Sealer(DUBLIN, "tcd", START, world.ann, now=Clock(START))
    made = [node.seal("news", b"") for _ in range(4)]
    for off in (59, -59):
        clock.now = START + off * SECOND
        judge.open(made.pop())
    clock.now = START + 61 * SECOND
    assert "sealed 61.0 s ago" in refused(judge, made.pop(), "time")
    clock.now = START - 61 * SECOND
    assert "in the future" in refused(judge, made.pop(), "time")
    clock.now = START
    ahead = Sealer(DUBLIN, "tcd", START + 3600 * SECOND, world.ann, now=clock)
    judge.open(ahead.seal("news", b""))  # its clock was ahead when it began: a later run with less is believed as well
    patient = Verifier(
        Security(user="ann", password="correct horse", users=USERS, skew=7200), "tcd", loopback=False, now=clock
    )
    patient.open(ahead.seal("news", b""))


def test_between_nodes_of_one_machine_time_is_free() -> None:
    verifier(at=START + 10**6 * SECOND).open(sealer().seal("news", b""))


def test_memory_is_bounded_and_forgetting_lets_nothing_in_again(world: World) -> None:
    clock = Clock(START)
    judge = Verifier(world.ann, "tcd", loopback=False, senders=6, now=clock)  # 3 of them of one user
    nodes = [Sealer(Identity.ephemeral(f"n{at}"), "tcd", START, world.ann, now=clock) for at in range(5)]
    said = []
    for node in nodes:
        clock.now += SECOND
        said.append(node.seal("news", b""))
        judge.open(said[-1])
    for data in said:
        refused(judge, data, "replayed")
    for node in nodes:  # also those that were forgotten go on
        clock.now += SECOND
        judge.open(node.seal("news", b""))
    # Those that have not been heard for long are forgotten without harm, so a clock that is behind is no harm either.
    clock.now += 1000 * SECOND
    for at in range(3):
        judge.open(Sealer(Identity.ephemeral(f"m{at}"), "tcd", START, world.ann, now=clock).seal("news", b""))
    behind = Sealer(DUBLIN, "tcd", START, world.ann, now=Clock(clock.now - 50 * SECOND))
    judge.open(behind.seal("news", b""))
    clock.now += SECOND
    judge.open(Sealer(CORK, "tcd", START, world.ann, now=clock).seal("news", b""))
    late = Sealer(nodes[0].identity, "tcd", START, world.ann, now=Clock(clock.now - 10 * SECOND))
    assert "older than what this node remembers" in refused(judge, late.seal("news", b""), "replayed")


def test_whoever_begins_anew_without_end_shuts_nobody_else_out(world: World) -> None:
    clock = Clock(START)
    bob = Security(user="bob", password="battery", users=USERS)
    judge = Verifier(world.ann, "tcd", loopback=False, senders=8, runs=True, now=clock)
    honest = Sealer(DUBLIN, "tcd", START, world.ann, now=clock)
    before = honest.seal("news", b"")
    judge.open(before)
    ahead = Clock(START + 55 * SECOND)  # which is allowed
    captured = Sealer(CORK, "tcd", 1, bob, now=ahead).seal("news", b"")
    judge.open(captured)
    for run in range(2, 30):
        ahead.now += 1
        judge.open(Sealer(CORK, "tcd", run, bob, now=ahead).seal("news", b""))
    refused(judge, before, "replayed")
    judge.open(honest.seal("news", b""))
    judge.open(Sealer(Identity.ephemeral("other"), "tcd", START, world.ann, now=clock).seal("news", b""))
    assert "older than what this node remembers" in refused(judge, captured, "replayed")


def test_one_of_many_threads_gets_it() -> None:
    judge, node = verifier(), sealer()
    sent = [node.seal("news", bytes([at])) for at in range(40)]
    got: list[bytes] = []
    ready = threading.Barrier(4)

    def run() -> None:
        ready.wait()
        for data in sent:
            try:
                got.append(judge.open(data).body)
            except SecurityError as error:
                assert error.reason == "replayed"

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [bytes([at]) for at in range(40)]


def test_numbers_are_given_once_by_many_threads() -> None:
    node = sealer()
    sent: list[bytes] = []
    threads = [threading.Thread(target=lambda: sent.extend(node.seal("n", b"") for _ in range(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    judge = verifier()
    assert sorted(judge.open(data).counter for data in sent) == list(range(1, 201))


# ── sessions ──


def pair() -> tuple[Session, Session]:
    one, two = Exchange(), Exchange()
    return one.session(two.public, me="one", peer="two"), two.session(one.public, me="two", peer="one")


def test_a_session_carries_both_ways() -> None:
    one, two = pair()
    for data in (b"", b"x", bytes(100_000)):
        assert bytes(two.open(one.seal(data))) == data
        assert bytes(one.open(memoryview(two.seal(memoryview(data))))) == data
    assert len(one.seal(b"x")) == HEAD + 1


@settings(deadline=None, max_examples=examples(30))
@given(st.binary(max_size=40), st.integers(1, 255))
def test_a_change_of_any_byte_in_a_session_is_noticed(data: bytes, mask: int) -> None:
    one, two = pair()
    whole = one.seal(data)
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= mask
        with pytest.raises(SecurityError, match="changed, or not its own"):
            two.open(changed)
    for size in range(HEAD):
        with pytest.raises(SecurityError, match="at least 24 bytes"):
            two.open(whole[:size])
    assert bytes(two.open(whole)) == data


def raises(reason: str, call: Callable[[], object]) -> None:
    with pytest.raises(SecurityError) as caught:
        call()
    assert caught.value.reason == reason


def test_what_a_session_refuses() -> None:
    one, two = pair()
    _, stranger = pair()
    sent = [one.seal(b"x") for _ in range(2000)]
    raises("forged", lambda: one.open(sent[0]))  # its own, sent back
    raises("forged", lambda: stranger.open(sent[0]))
    two.open(sent[1])
    two.open(sent[0])
    raises("replayed", lambda: two.open(sent[0]))
    two.open(sent[1999])
    raises("replayed", lambda: two.open(sent[900]))
    two.open(sent[1000])


def test_keys_of_sessions() -> None:
    mine, other = Exchange(), Exchange()
    assert mine.session(other.public) is mine.session(other.public)
    for public in (b"", b"x" * 31, bytes(32), (1).to_bytes(32, "little"), mine.public):
        raises("key", lambda public=public: mine.session(public))  # type: ignore[misc]


def test_a_session_is_between_two_nodes_not_only_between_two_keys() -> None:
    lab, desk = Exchange(), Exchange()
    there = desk.session(lab.public, me="desk", peer="lab")
    here, eve = (lab.session(desk.public, me="lab", peer=each) for each in ("desk", "eve"))  # who says to have that key
    assert here is not eve
    raises("forged", lambda: there.open(eve.seal(b"for eve")))
    lab.forget(desk.public, "eve")
    assert lab.session(desk.public, me="lab", peer="desk") is here
    assert bytes(there.open(here.seal(b"for the desk"))) == b"for the desk"


def test_what_a_session_carries_cannot_be_read_on_the_way() -> None:
    one, two = pair()
    secret = b"the reactor is too hot"
    assert secret not in one.seal(secret)
    assert one.seal(secret)[8:] != one.seal(secret)[8:]  # nor does the same text look the same twice
    sealed = one.seal(secret, b"to two")
    raises("forged", lambda: two.open(sealed, b"to three"))
    raises("forged", lambda: two.open(sealed))
    assert bytes(two.open(sealed, b"to two")) == secret


def test_a_session_that_was_given_up_makes_no_nonce_again_and_takes_nothing_again() -> None:
    mine, other = Exchange(), Exchange()
    before, peer = mine.session(other.public), other.session(mine.public)
    used = {bytes(before.seal(b"x")[:8]) for _ in range(100)}
    heard = peer.seal(b"of before")
    before.open(heard)
    mine.forget(other.public)
    after = mine.session(other.public)
    assert after is not before
    raises("replayed", lambda: after.open(heard))
    after.open(peer.seal(b"new"))
    held = {bytes(before.seal(b"x")[:8]) for _ in range(100)}  # by someone who has it still
    assert not used & held
    assert not (used | held) & {bytes(after.seal(b"x")[:8]) for _ in range(1000)}
    peer.open(after.seal(b"more"))


def test_a_box_opens_for_whom_it_is_made_only() -> None:
    mine, other, stranger, again = Exchange(), Exchange(), Exchange(), Exchange()  # `again`: the other, started again
    secret = b"the reactor is too hot"
    box = mine.box(other.public, secret)
    assert is_box(box) and secret not in box and box != mine.box(other.public, secret)
    assert other.unbox(box) == (mine.public, secret)
    for exchange in (stranger, again):
        raises("forged", lambda exchange=exchange: exchange.unbox(box))  # type: ignore[misc]
    raises("key", lambda: mine.unbox(box))  # its own, sent back
    for place in range(len(box)):
        changed = bytearray(box)
        changed[place] ^= 1
        with pytest.raises(SecurityError):
            other.unbox(changed)
    for size in range(len(box)):
        with pytest.raises(SecurityError):
            other.unbox(box[:size])
    raises("key", lambda: mine.box(bytes(32), secret))
    # who claims another's key cannot make a box with it
    forged = stranger.box(other.public, secret)
    raises("forged", lambda: other.unbox(forged[:4] + mine.public + forged[36:]))


def test_an_envelope_says_for_which_run_and_to_which_question(world: World) -> None:
    mine = sealer(DUBLIN)
    judge = verifier(me="cork.x", run=7)
    refused(judge, mine.seal("ask", b"", to="cork.x", run=6), "run")
    assert judge.open(mine.seal("ask", b"", to="cork.x", run=7)).body == b""
    assert judge.open(mine.seal("ask", b"", to="cork.x")).body == b""
    name = question_name(b"a question")
    refused(judge, mine.seal("reply", b"", answers=question_name(b"another")), "question", answers=name)
    refused(judge, mine.seal("reply", b""), "question", answers=name)
    assert judge.open(mine.seal("reply", b"yes", answers=name), answers=name).body == b"yes"


def test_a_message_that_nobody_would_take_is_an_error_where_it_is_made() -> None:
    small = sealer(DUBLIN, Security(limit=4096))
    assert len(small.seal("news", bytes(1000))) < 4096
    with pytest.raises(FederationError, match=r"larger than the 4,096.*Security\(limit=bytes\)"):
        small.seal("news", bytes(5000))


def test_a_window_has_a_sensible_width() -> None:
    with pytest.raises(ValueError, match="64"):
        Window(8)
    assert timedelta(seconds=60) == timedelta(seconds=Security().skew)
