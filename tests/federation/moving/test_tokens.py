"""Tokens of moves in the wrong hands: stolen, forged, changed, used, of what cannot move; nodes without the right."""

from __future__ import annotations

import base64
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Event, Node, Reliable, i64
from headwater.errors import ClosedError, FederationError, HeadwaterError, SubscriptionError
from headwater.federation.security.signed_document import sign
from headwater.federation.wire.move_requests import ClaimMove
from headwater.security import Rule
from headwater.services.documents import SignedDocument
from tests.effort import examples
from tests.federation.certified import authority, certified
from tests.federation.nodes import GUARD, Nodes, eventually, nodes
from tests.federation.nodes import Log as Seen

CHANNEL = "test.count"
DURABLE = Reliable(durable=True)
LISTEN = "tcp/127.0.0.1:0"
TOKENS: dict[str, str] = {}
__all__ = ["authority"]


class Count(Event, name="test.Count"):
    n: i64


def sink_of(node: Node, name: str = "mail", **options: Any) -> Any:
    channel = node.channel(CHANNEL, Count)
    return channel.subscribe(lambda event: None, name=name, **{"delivery": DURABLE, **options})


def opened(token: str) -> SignedDocument:
    text = token.removeprefix("hwm1.")
    return SignedDocument.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def closed(signed: SignedDocument) -> str:
    return "hwm1." + base64.urlsafe_b64encode(signed.to_bytes()).decode().rstrip("=")


def test_it_is_for_whom_it_was_made_for(authority: Path, tmp_path: Path) -> None:
    """By certificate: the guest has a copy, and no use for it; it is not even worth nothing to the one it is for."""
    with nodes() as make:

        def at(name: str, *rules: Rule) -> Node:
            place = {"connect": make.opened[0].endpoints[0]} if make.opened else {"listen": "tls/127.0.0.1:0"}
            security = certified(authority, name, rules or (Rule("**", "*"),))
            return make(name, security=security, state=":memory:", **place)

        lab = at("lab", Rule(CHANNEL, "reader", may=("advertise",)), Rule("**", "*"))
        desk, guest, reader = at("desk"), at("guest"), at("reader")
        make.together(lab, desk, guest, reader)
        token = sink_of(lab).move(to="desk")
        with pytest.raises(FederationError, match=r"for desk, and not for \"guest\""):
            guest.resume(token, print, timeout=GUARD)
        assert "mail" not in guest.subscriptions
        assert desk.resume(token, print, timeout=GUARD).state == "open"
        for to, taker in (("group:staff", desk), ("certificate:gu*", guest)):
            token = sink_of(lab, to).move(to=to)
            with pytest.raises(FederationError, match="the token is for"):
                reader.resume(token, print, timeout=GUARD)
            taker.resume(token, print, timeout=GUARD)
        # Whoever shows it must still be let subscribe where it was: an insider with a copy and no right gets nothing.
        token = sink_of(lab, "open").move()
        with pytest.raises(FederationError, match="may not subscribe"):
            reader.resume(token, print, timeout=GUARD)
        guest.resume(token, print, timeout=GUARD)
        assert lab.report().services["moving"]["refused"] == 4


@pytest.fixture(scope="module")
def pair() -> Any:
    with nodes() as make:
        a, b = make("a", state=":memory:", listen=LISTEN), make("b", state=":memory:")
        make.together(a, b)
        yield a, b


def test_forged_tokens_are_refused(pair: tuple[Node, Node]) -> None:
    """One's own signature on another's sink, another's signature on other bytes, a token of nobody."""
    a, b = pair
    sink = sink_of(a, "forged")
    token = sink.move()
    signed = opened(token)
    mallory = b._engine.context.keyring.credentials.identity
    document = signed.document
    again = sign(mallory, document.federation, "move", document.name, 1, document.body)
    with pytest.raises(FederationError, match="signed by b"):
        b.resume(closed(again), print, timeout=GUARD)
    other = sign(mallory, document.federation, "policy", document.name, 1, document.body)
    with pytest.raises(FederationError, match="expected move"):
        b.resume(closed(other), print, timeout=GUARD)
    changed = SignedDocument(document, signed.content.replace(b"test.count", b"test.mount"), signed.signature)
    with pytest.raises(
        FederationError, match=r"^resume: expected a token as subscription.move.*not signed by it, or was changed"
    ):
        b.resume(closed(changed), print, timeout=GUARD)
    for bad in ("hwm1.abcdef", token[:-20]):
        with pytest.raises(FederationError, match=r"^resume: expected a whole token, found one that was cut short"):
            b.resume(bad, print, timeout=GUARD)
    for nothing in (None, 7, "", "hwm1.", "hwm1.!!!", "hwm2." + token[5:], token[:-20], token + "A" * 10_000_000):
        with pytest.raises(FederationError):
            b.resume(nothing, print, timeout=GUARD)  # type: ignore[arg-type]
    assert not [name for name in b.subscriptions if name == "forged"]
    b.resume(token, print, timeout=GUARD).cancel()


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 600), st.integers(1, 255))
def test_a_token_that_was_changed_anywhere_is_refused(pair: tuple[Node, Node], place: int, change: int) -> None:
    a, b = pair
    if "changed" not in a.subscriptions:
        TOKENS["changed"] = sink_of(a, "changed").move()
    token = TOKENS["changed"]
    data = bytearray(opened(token).to_bytes())
    data[place % len(data)] ^= change
    text = "hwm1." + base64.urlsafe_b64encode(bytes(data)).decode().rstrip("=")
    with pytest.raises(HeadwaterError):
        b.resume(text, print, timeout=GUARD)
    assert "changed" not in b.subscriptions


def test_numbers_cannot_be_guessed_and_answers_say_nothing(pair: tuple[Node, Node]) -> None:
    a, b = pair
    token = sink_of(a, "guessed").move(to="somebody")
    peer = next(peer for peer in b._engine.everyone() if peer.name == "a")
    for id in (bytes(32), b"\xff" * 32):
        with pytest.raises(FederationError, match="never made here"):
            b._engine.dialogue.ask(peer, ClaimMove(id, bytes(16)), GUARD)
    with pytest.raises(FederationError, match=r"^resume: 'guessed': node a: .* for somebody, and not for b, .key:"):
        b.resume(token, print, timeout=GUARD)
    a.resume(token, print, timeout=GUARD).cancel()


def test_only_what_can_go_on_elsewhere_moves(pair: tuple[Node, Node], tmp_path: Path) -> None:
    a, b = pair
    channel = a.channel(CHANNEL, Count)
    derived = channel.derive("test.count.even", "n % 2 == 0")
    with pytest.raises(SubscriptionError, match="derived here"):
        derived.subscribe(print, name="derived", delivery=DURABLE).move()
    sink = sink_of(a, "once")
    for wrong in (
        {"lasts": 0},
        {"lasts": "soon"},
        {"lasts": 1e8},
        {"to": 7},
        {"to": ""},
        {"to": "user:"},
        {"to": "x" * 300},
    ):
        with pytest.raises(SubscriptionError, match="move: "):
            sink.move(**wrong)
    assert sink.state == "open"
    token = sink.move()
    with pytest.raises(SubscriptionError, match="on its way to another node already; use the token that there is"):
        sink.move()
    for held in (sink.pause, sink.resume, partial(sink.change, where="n > 1")):
        with pytest.raises(SubscriptionError, match=r"on its way to another node; node\.resume\(token, handler\)"):
            held()
    for wrong in ({"delivery": DURABLE}, {"history": 5}, {"where": "n > 1"}):
        with pytest.raises(SubscriptionError, match="leave it out"):
            b.resume(token, print, **wrong)
    sink_of(b, "once")
    with pytest.raises(SubscriptionError, match="in use"):
        b.resume(token, print, timeout=GUARD)
    other = b.resume(f" {token}\n", print, name="twice", timeout=GUARD)  # as it comes out of a file, or a mail
    assert other.name == "twice" and sink.state == "closed"
    eventually(lambda: sink.cancelled, "nothing of it is left")
    for again in (sink.move, sink.resume, partial(sink.change, where="n > 1")):
        with pytest.raises(ClosedError, match="'once' has left: it goes on where its token is used"):
            again()
    with Node("alone", state=":memory:") as alone:
        with pytest.raises(SubscriptionError, match="without a network"):
            sink_of(alone).move()
        with pytest.raises(FederationError, match="no network"):
            alone.resume(token, print)


def test_not_from_its_own_handler(make: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for itself."""
    monkeypatch.setattr("headwater.federation.moving.departure.STILL_SECONDS", 0.01)
    node = make("a", state=":memory:", listen=LISTEN)
    channel, problems, seen = node.channel(CHANNEL, Count), list[str](), Seen()

    def handler(event: Count) -> None:
        seen(event)
        try:
            sink.move()
        except SubscriptionError as error:
            problems.append(str(error))

    sink = channel.subscribe(handler, name="mail", delivery=DURABLE)
    source = channel.source()
    source.publish(Count(1))
    source.publish(Count(2))
    seen.wait(2)
    assert len(problems) == 2 and "elsewhere than in that handler" in problems[0]
    assert sink.state == "open"
