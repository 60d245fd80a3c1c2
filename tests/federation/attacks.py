"""Attacks on a node that runs, by one who knows the protocol: what is sent follows from a chance, so that it can be
sent again."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, NamedTuple

import zenoh

from headwater import Event, Interest, u32
from headwater.federation.security.envelope import question_name
from headwater.federation.wire import frames as wire
from headwater.federation.wire import requests as messages
from headwater.federation.wire.control import Challenge, Greeting, SourceAd
from headwater.federation.wire.requests import ChannelAd, Install, News, Wish, pack, pack_params, pack_type
from headwater.types import event_type
from tests.federation.hostile import GUARD, START, Frames, Mallory, mutated

CHANNEL = "ie.tcd.sighting"
ROUND = 250  # frames on one stream


class Sighting(Event, name="ie.tcd.Sighting"):
    badge: u32
    level: float
    room: str | None = None
    urgent: bool = False


TYPE = event_type(Sighting)
RECORDS = [
    TYPE.encode(Sighting(badge=n, level=n / 8, room=None if n % 3 else "G12" * (n % 5), urgent=n % 2 == 0))
    for n in range(20)
]
WHERES = (  # what the sinks of the attacked node want: everything that honest sources send
    None,
    "badge < 1000000 and (room is null or room != 'x')",
    "level > -1.0 or urgent",
    "badge % 2 == 0 or level >= 0.0",
)


def plainly(event: Any) -> bool:
    """Whether it is what its type says, whoever sent it."""
    good = isinstance(event.badge, int) and 0 <= event.badge < 1 << 32 and isinstance(event.level, float)
    return good and (event.room is None or isinstance(event.room, str)) and isinstance(event.urgent, bool)


# ── on streams ──


class Sent(NamedTuple):
    frames: int
    unreadable: int


def stream(mallory: Mallory, chance: random.Random) -> Sent:
    """Mutated frames after a proper greeting; those that cannot be read end it."""
    sent = unreadable = 0
    frames = Frames(1 + chance.randrange(40), CHANNEL, TYPE, RECORDS, chance)
    with mallory.call() as call:
        batch, bad = [frames.first()], None
        for frame, readable in islice(frames, ROUND):
            if readable:
                batch.append(frame)
                sent += 1
            elif chance.random() < 0.01:
                bad = frame
                break
        call.send(b"".join(batch))
        if bad is None and call.heard():
            call.send(frames.last())
            call.heard()
        elif bad is not None:
            sent, unreadable = sent + 1, unreadable + 1
            call.send(bad)
            call.send(wire.encode_ping(1))
    return Sent(sent, unreadable)


def greeting(mallory: Mallory, chance: random.Random) -> bytes:
    """What no stream may begin with."""
    match chance.randrange(4):
        case 0:
            return chance.randbytes(chance.randrange(1, 2000))
        case 1:
            sealed = mallory.sealer.seal("hello", b"\x92\xc4\x01x\xc4\x01y", to=mallory.target.id)
            return mutated(wire.encode_control(Greeting(sealed)), chance)
        case 2:
            body = mutated(wire.encode_control(Challenge(b"n" * 16))[4:], chance)
            return len(body).to_bytes(4, "little") + body
    return mutated(wire.encode_event(1, 1, 1, START, RECORDS[0]), chance)


def greet(mallory: Mallory, chance: random.Random) -> None:
    data = greeting(mallory, chance)
    with mallory.connect() as connection, suppress(OSError):  # it may have hung up
        connection.sendall(data)


# ── over Zenoh ──


def request(mallory: Mallory, chance: random.Random) -> bytes:
    """What a node may ask or say, signed by mallory as it should be but wrong in itself, or mutated after that."""
    sealer = mallory.sealer
    program = Interest("badge == :n", TYPE, params={"n": 5})
    wish = Wish(
        chance.choice((0, 1, 2, 5, (1 << 31) - 1)),
        chance.choice((None, program.dumps(), mutated(program.dumps(), chance))),
        chance.choice((None, pack_params({"n": 7}), mutated(pack_params({"n": 7}), chance), pack({"n": "x"}))),
        chance.random() < 0.3,
        chance.choice(([], ["north"])),
        chance.choice((0, 1, -1)),
        chance.randrange(3),
    )
    version = chance.choice((1, 2, 3, 1 << 40))
    incarnation = sealer.incarnation
    body: Any
    match chance.randrange(8):
        case 0 | 1 | 2:
            kind, body = "ask", Install(chance.choice(("answers", CHANNEL, "none", "headwater.nodes")), version, [wish])
        case 3:
            kind, body = "ask", messages.Ask("answers")
        case 4:
            kind, body = "ask", messages.Describe()
        case 5:
            kind, body = "news", News(mallory.id, incarnation, version)
        case 6:
            key = chance.choice((mallory.exchange.public, mallory.exchange.public, b"k" * 32, b"k" * 31))
            kind, body = "card", messages.Card(mallory.id, incarnation, version, key)
        case _:
            kind, body = chance.choice((("reply", messages.Accepted("no")), ("ask", messages.Routed())))
    data = pack(body)
    if chance.random() < 0.5:
        data = mutated(data, chance)
    sealed = sealer.seal(kind, data, to=chance.choice(("", mallory.target.id)))
    if chance.random() < 0.3:
        sealed = mutated(sealed, chance)
    if kind == "ask" and chance.random() < 0.9:
        sealed = mallory.exchange.box(mallory.known, sealed)
        return mutated(sealed, chance) if chance.random() < 0.1 else sealed
    return sealed


def answer(mallory: Mallory, question: bytes, chance: random.Random) -> bytes:
    """To a question that the node has put to mallory: what it has, wrong in itself or mutated after that."""
    sealer = mallory.sealer
    version = chance.choice((1, 2, 3, 1 << 40))
    ad = SourceAd(chance.randrange(5), "forged", chance.choice((CHANNEL, "answers", "other", "headwater.nodes")))
    channel = ChannelAd(
        chance.choice((CHANNEL, "other", "x" * 300)), chance.choice((None, pack_type(TYPE), b"nonsense"))
    )
    state = messages.State(
        mallory.id,
        sealer.incarnation,
        version,
        chance.choice(([], ["tcp/127.0.0.1:1"], ["nonsense"])),
        mallory.exchange.public,
        [channel],
        [ad],
        since=chance.choice((0, 0, 1, 2, 1 << 40)),
        gone_channels=["other"],
        gone_sources=[3],
        after=chance.choice((None, None, messages.Cursor("a"), messages.Cursor(None, 3))),
        next=chance.choice((None, None, messages.Cursor("a"), messages.Cursor(None, 3))),
    )
    data = pack(chance.choice((state, state, messages.Accepted("no"))))
    if chance.random() < 0.3:
        data = mutated(data, chance)
    sealed = sealer.seal("reply", data, to=mallory.target.id, answers=question_name(question))
    return mallory.exchange.box(mallory.known, sealed)


class Envelopes:
    """A session that sends them. Some at a time: more than a thousand that wait would only be turned away."""

    MOST = 64

    def __init__(self, mallory: Mallory, session: zenoh.Session) -> None:
        self.mallory, self._session = mallory, session
        self._root = f"headwater/{mallory.target.federation}"
        self._answered = threading.Semaphore(self.MOST)
        self._chance = random.Random(mallory.id)
        self._introduce()
        self._session.declare_queryable(f"{self._root}/ask/{mallory.id}", self._asked)

    def _introduce(self) -> None:
        """Tell the node who this is, to learn its key."""
        mallory = self.mallory
        card = messages.Card(mallory.id, mallory.sealer.incarnation, 1, mallory.exchange.public)
        sealed = mallory.sealer.seal("card", pack(card), to=mallory.target.id)
        for reply in self._session.get(f"{self._root}/ask/{mallory.target.id}", payload=sealed, timeout=GUARD):
            assert reply.ok is not None
            mallory.known, _ = mallory.exchange.unbox(bytes(reply.ok.payload))
            return
        raise AssertionError("no answer to a card")

    def _asked(self, query: zenoh.Query) -> None:
        if query.payload is not None:
            query.reply(query.key_expr, answer(self.mallory, bytes(query.payload), self._chance))

    def send(self, chance: random.Random) -> None:
        data, id = request(self.mallory, chance), self.mallory.target.id
        match chance.choice(("ask", "ask", "ask", "roll", "news", "post")):
            case "news":
                self._session.put(f"{self._root}/news", data)
            case "post":
                self._session.put(f"{self._root}/post/{id}", chance.choice((data, chance.randbytes(40))))
            case key:
                self._wait()
                done = zenoh.handlers.Callback(lambda reply: None, self._answered.release, indirect=False)
                self._session.get(f"{self._root}/{key}/{id}", done, payload=data, timeout=GUARD)

    def _wait(self) -> None:
        assert self._answered.acquire(timeout=2 * GUARD), "no answer"

    def answered(self) -> None:
        """Wait until all are."""
        for _ in range(self.MOST):
            self._wait()
        self._answered.release(self.MOST)

    def token(self, chance: random.Random) -> None:
        """Somebody seems to be there."""
        name = mutated(b"someone.01234567", chance).hex()
        self._session.liveliness().declare_token(f"{self._root}/alive/{name}/12")


@contextmanager
def envelopes(mallory: Mallory) -> Iterator[Envelopes]:
    config = zenoh.Config()
    config.insert_json5("mode", '"client"')
    config.insert_json5("connect/endpoints", f'["{mallory.target.zenoh}"]')
    config.insert_json5("scouting/multicast/enabled", "false")
    with zenoh.open(config) as session:
        yield Envelopes(mallory, session)
