"""Mutated frames and envelopes against a node that runs: it stays up, names the offender, and serves the others.

`make soak` sends a million.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from time import monotonic, time_ns
from typing import Any

import pytest
import zenoh

from headwater import Event, Interest, u32
from headwater.federation import messages, wire
from headwater.federation.messages import ChannelAd, Install, News, Wish, pack, pack_params, pack_type
from headwater.federation.wire_control import Announce, Greeting, SourceAd
from headwater.types import event_type
from tests.effort import EFFORT
from tests.federation.hostile import Frames, Mallory, mutated
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes

CHANNEL = "ie.tcd.sighting"
FRAMES = 15_000 if EFFORT == 1 else 1_000_000  # on streams, after a proper greeting
ENVELOPES = 3_000 if EFFORT == 1 else 150_000
STREAMS = 150 if EFFORT == 1 else 5_000  # on which the greeting itself is mutated
ROUND = 250  # frames on one stream
SEED = random.randrange(1 << 32)


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


class Strict:
    """A sink that only takes what is plainly an event, and keeps what an honest source sent."""

    def __init__(self) -> None:
        self.honest: list[int] = []
        self.garbage: list[Any] = []
        self.count = 0

    def __call__(self, event: Any, about: Any) -> None:
        self.count += 1
        good = isinstance(event.badge, int) and 0 <= event.badge < 1 << 32 and isinstance(event.level, float)
        good = good and (event.room is None or isinstance(event.room, str)) and isinstance(event.urgent, bool)
        if not good:
            self.garbage.append(event)
        if about.source == "honest":
            self.honest.append(event.badge)


class Scene:
    """A node under attack, and another one with which it goes on exchanging events."""

    def __init__(self, make: Nodes) -> None:
        self.lab, self.desk = make("lab"), make("desk")
        make.together()
        self.sinks = [Strict() for _ in range(4)]
        self.rows: list[int] = []
        channel = self.lab.channel(CHANNEL, Sighting)
        wheres = [
            None,
            "badge < 1000000 and (room is null or room != 'x')",
            "level > -1.0 or urgent",
            "badge % 2 == 0 or level >= 0.0 or true",
        ]
        self.subscriptions = [
            channel.subscribe(sink, where, about=True, failures=3)
            for sink, where in zip(self.sinks, wheres, strict=True)
        ]
        self.subscriptions.append(channel.subscribe(lambda rows: self.rows.extend(rows["badge"].to_pylist()), batch=64))
        self.back = Log()
        self.source = self.desk.channel(CHANNEL, Sighting).source("honest")
        self.answers = self.lab.channel("answers", Sighting).source("lab")
        self.desk.channel("answers", Sighting).subscribe(self.back, "badge >= 0")
        make.ready()
        self.mallory = Mallory(self.lab)
        self.number = 0

    def goes_on(self, count: int = 20) -> None:
        """Events of honest nodes get through, both ways, in order."""
        first = self.number
        for _ in range(count):
            self.source.publish(badge=self.number, level=1.0, urgent=True)
            self.answers.publish(badge=self.number, level=1.0)
            self.number += 1
        wanted = list(range(first, self.number))
        for sink in self.sinks:
            eventually(lambda sink=sink: sink.honest[-count:] == wanted, f"{wanted} in {sink.honest[-30:]}")
        self.back.until(lambda events: bool(events) and events[-1].badge == self.number - 1)

    def verify(self) -> None:
        """Nothing is lost, doubled, or seen that is no event; nobody else is blamed."""
        self.goes_on()
        assert self.desk.flush(GUARD)  # not so the lab: what mallory may have asked for waits for it, for some time
        everything = list(range(self.number))
        for sink, subscription in zip(self.sinks, self.subscriptions, strict=False):
            assert sink.honest == everything and not sink.garbage
            assert subscription.state == "open" and not subscription.counts.failed, subscription.trouble
        assert self.back.field("badge") == everything
        engine = self.lab.engine
        assert engine is not None and not any(engine.fabric.failures.values()), engine.fabric.failures
        assert not any(who.startswith(self.desk.id) for who in engine.offences), dict(engine.offences)


@contextmanager
def scene() -> Iterator[Scene]:
    with nodes() as make:
        made = Scene(make)
        made.goes_on()
        yield made
        made.verify()


@pytest.fixture
def failures(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What was logged as a failure of the node itself: there must be none."""
    found: list[str] = []
    caplog.set_level(logging.CRITICAL, "headwater.federation")

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.ERROR:
                text = logging.Formatter().format(record)
                found.append(text)

    handler = Keep()
    logger = logging.getLogger("headwater")
    logger.addHandler(handler)
    logging.getLogger("headwater.federation").setLevel(logging.ERROR)
    yield found
    logger.removeHandler(handler)
    assert not found, f"seed {SEED}: {len(found)} failures\n{found[0]}"


def test_frames_after_a_proper_greeting(failures: list[str]) -> None:
    chance = random.Random(SEED)
    with scene() as made:
        offences = made.lab.engine.offences  # type: ignore[union-attr]
        sent, unreadable, begun = 0, 0, monotonic()
        while sent < FRAMES:
            frames = Frames(1 + chance.randrange(40), CHANNEL, TYPE, RECORDS, chance)
            with made.mallory.call() as call:
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
            if chance.random() < 0.05:
                made.goes_on()
        print(f"seed {SEED}: {sent:,} frames, {unreadable:,} unreadable: {monotonic() - begun:.1f} s")
        eventually(lambda: offences[made.mallory.id] > 0, "an offence")
        assert sum(sink.count for sink in made.sinks) > 2 * len(made.sinks) * made.number  # much of it was events


def test_records_that_are_none_are_dropped_and_counted() -> None:
    with scene() as made:
        lab = made.lab
        with made.mallory.call() as call:
            call.send(wire.encode_control(Announce(ad=SourceAd(1, "m", CHANNEL), type=pack_type(TYPE), next=1)))
            now = time_ns()
            bad = [b"", b"x", RECORDS[1][:-8], RECORDS[1] + b"\0" * 8, b"\xff" * len(RECORDS[1]), os.urandom(64)]
            number = 0
            for each in bad:
                for records in ([each], [RECORDS[1], each, RECORDS[2]]):
                    number += 1
                    call.send(wire.encode_run_first(1, number, 10 * number, [now] * len(records), records))
            assert call.heard()
            assert lab.engine is not None
            source = lab.engine.peers[made.mallory.id].standins[1]
            assert source.frame == number and source.malformed == 2 * len(bad)
            assert lab.engine.offences == {made.mallory.id: number}
            for sink in made.sinks[:3]:
                eventually(lambda sink=sink: sink.count - len(sink.honest) == 2 * len(bad))


def test_events_for_channels_that_are_the_nodes_own() -> None:
    with scene() as made:
        told = Log()
        made.lab.subscribe("headwater.nodes", told)
        type = made.lab.channel("headwater.nodes").type
        assert type is not None
        with made.mallory.call() as call:
            ad = SourceAd(1, "federation", "headwater.nodes")
            call.send(wire.encode_control(Announce(ad=ad, type=pack_type(type), next=1)))
            event = type.encode({"change": "left", "node": "desk", "id": made.desk.id})
            call.send(wire.encode_event(1, 1, 1, time_ns(), event))
            assert call.heard()
        assert made.lab.engine is not None and made.lab.engine.offences[made.mallory.id] == 2
        made.goes_on()
        assert not told.events


def test_mutated_greetings(failures: list[str]) -> None:
    chance = random.Random(SEED)
    with scene() as made:
        hello = wire.encode_control(
            wire.Hello(node=made.mallory.id, incarnation=1, federation="headwater", nonce=b"n" * 16)
        )
        sealed = made.mallory.sealer.seal("hello", b"\x92\xc4\x01x\xc4\x01y", to=made.lab.id)
        greeting = wire.encode_control(Greeting(sealed))
        for _ in range(STREAMS):
            with made.mallory.connect() as connection:
                kind = chance.randrange(4)
                if kind == 0:
                    data = os.urandom(chance.randrange(1, 2000))
                elif kind == 1:
                    data = mutated(greeting, chance)
                elif kind == 2:
                    body = mutated(hello[4:], chance)
                    data = len(body).to_bytes(4, "little") + body
                else:
                    data = mutated(wire.encode_event(1, 1, 1, time_ns(), RECORDS[0]), chance)
                try:
                    connection.sendall(data)
                except OSError:
                    continue
        made.goes_on()
        assert made.lab.engine is not None
        eventually(lambda: made.lab.engine.offences["tcp/127.0.0.1"] > STREAMS / 10, "offences")  # type: ignore[union-attr]


def requests(made: Scene, chance: random.Random) -> bytes:
    """What a node may ask or say, signed by mallory as it should be but wrong in itself, or mutated after that."""
    sealer, lab = made.mallory.sealer, made.lab
    program = Interest("badge == :n", TYPE, params={"n": 5})
    wish = Wish(
        chance.choice((0, 1, 2, 5, (1 << 31) - 1)),
        chance.choice((None, program.dumps(), mutated(program.dumps(), chance))),
        chance.choice((None, pack_params({"n": 7}), mutated(pack_params({"n": 7}), chance), pack({"n": "x"}))),
        chance.random() < 0.3,
        chance.choice(([], ["north"])),
        chance.choice((0, 1, -1)),
        [],
        chance.randrange(3),
    )
    ad = SourceAd(chance.randrange(5), "forged", chance.choice((CHANNEL, "answers", "other", "headwater.nodes")))
    channel = ChannelAd(
        chance.choice((CHANNEL, "other", "x" * 300)), chance.choice((None, pack_type(TYPE), b"nonsense"))
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
            kind, body = "news", News(made.mallory.id, incarnation, version, [channel], [ad], ["other"], [3])
        case 6:
            state = messages.State(made.mallory.id, "mallory", incarnation, version, [], b"k" * 32, [channel], [ad])
            kind, body = "state", state
        case _:
            kind, body = chance.choice((("reply", messages.Accepted("no")), ("ask", messages.Routed())))
    data = pack(body)
    if chance.random() < 0.5:
        data = mutated(data, chance)
    sealed = sealer.seal(kind, data, to=chance.choice(("", lab.id)))
    return mutated(sealed, chance) if chance.random() < 0.3 else sealed


def test_envelopes_over_zenoh(failures: list[str]) -> None:
    chance = random.Random(SEED)
    with scene() as made:
        lab = made.lab
        config = zenoh.Config()
        config.insert_json5("mode", '"client"')
        config.insert_json5("connect/endpoints", f'["{lab.endpoints[0]}"]')
        config.insert_json5("scouting/multicast/enabled", "false")
        root = f"headwater/{lab.engine.network.federation}"  # type: ignore[union-attr]
        with zenoh.open(config) as session:
            answered = threading.Semaphore(64)
            for number in range(ENVELOPES):
                data = requests(made, chance)
                match chance.choice(("ask", "ask", "ask", "roll", "news", "post")):
                    case "news":
                        session.put(f"{root}/news", data)
                    case "post":
                        session.put(f"{root}/post/{lab.id}", chance.choice((data, os.urandom(40))))
                    case key:
                        # Some at a time: more than a thousand that wait would only be turned away.
                        assert answered.acquire(timeout=GUARD), f"seed {SEED}: no answer"
                        session.get(
                            f"{root}/{key}/{lab.id}",
                            zenoh.handlers.Callback(lambda reply: None, answered.release, indirect=False),
                            payload=data,
                            timeout=GUARD,
                        )
                if number % 500 == 0:
                    made.goes_on()
            for _ in range(64):
                assert answered.acquire(timeout=GUARD), f"seed {SEED}: no answer"
            for _ in range(50):
                session.liveliness().declare_token(f"{root}/alive/{mutated(b'someone.01234567', chance).hex()}/12")
        offences = lab.engine.offences  # type: ignore[union-attr]
        assert offences[made.mallory.id] > 0 and offences[f"{made.mallory.id} (unproven)"] > 0
        assert sum(offences.values()) > ENVELOPES / 10
