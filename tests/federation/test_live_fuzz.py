"""Mutated frames and envelopes against a node that runs: it stays up, names the offender, and serves the others.

`make soak` sends many more.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, time_ns
from typing import Any

import pytest

from headwater import Event, Interest, u32
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Announce, SourceAd
from headwater.federation.wire.kinds import WHOLE
from headwater.federation.wire.requests import pack_type
from tests.effort import EFFORT
from tests.federation import attacks
from tests.federation.attacks import CHANNEL, RECORDS, TYPE, WHERES, Sighting
from tests.federation.hostile import Mallory, Target
from tests.federation.nodes import GUARD, Log, Nodes, eventually, nodes


class Number(Event):
    n: u32


FRAMES = 6_000 if EFFORT == 1 else 1_000_000  # on streams, after a proper greeting
ENVELOPES = 1_200 if EFFORT == 1 else 150_000
STREAMS = 60 if EFFORT == 1 else 5_000  # on which the greeting itself is mutated
SEED = random.randrange(1 << 32)


class Strict:
    """A sink that only takes what is plainly an event, and keeps what an honest source sent."""

    def __init__(self) -> None:
        self.honest: list[int] = []
        self.garbage: list[Any] = []
        self.count = 0

    def __call__(self, event: Any, about: Any) -> None:
        self.count += 1
        if not attacks.plainly(event):
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
        self.subscriptions = [
            channel.subscribe(sink, where, about=True, failures=3)
            for sink, where in zip(self.sinks, WHERES, strict=True)
        ]
        self.subscriptions.append(channel.subscribe(lambda rows: self.rows.extend(rows["badge"].to_pylist()), batch=64))
        self.back = Log()
        self.source = self.desk.channel(CHANNEL, Sighting).source("honest")
        self.answers = self.lab.channel("answers", Sighting).source("lab")
        self.desk.channel("answers", Sighting).subscribe(self.back, "level > -1.0")
        make.ready()
        self.mallory = Mallory(Target.of(self.lab))
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
            assert subscription.state == "open" and not subscription.counts.failed, subscription._trouble
        assert self.back.field("badge") == everything
        engine = self.lab._engine
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
        offences = made.lab._engine.offences  # type: ignore[union-attr]
        sent, unreadable, begun = 0, 0, monotonic()
        while sent < FRAMES:
            done = attacks.stream(made.mallory, chance)
            sent, unreadable = sent + done.frames, unreadable + done.unreadable
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
            assert lab._engine is not None
            source = lab._engine.peers[made.mallory.id].remote_sources[1]
            assert source.frame == number and source.malformed == 2 * len(bad)
            assert lab._engine.offences == {made.mallory.id: number}
            for sink in made.sinks[:3]:
                eventually(lambda sink=sink: sink.count - len(sink.honest) == 2 * len(bad))


def test_records_that_are_said_to_be_of_two_types_are_dropped_and_counted() -> None:
    """Of what an interest has made, whoever wanted that takes it for what it makes: nothing else goes there."""
    with scene() as made:
        lab, told = made.lab, Log()
        channel = lab.channel(CHANNEL)
        sink = channel.subscribe(told, Interest("{ output.n = input.badge; return true; }", Sighting, output=Number))
        assert lab._engine is not None
        makes = lab._engine.demands.tag(CHANNEL, sink._attachments[channel, 0].entry)
        tags = [(makes | WHOLE,), (makes, 0), (0, makes), (makes,), (makes | WHOLE, 0)]
        with made.mallory.call() as call:
            call.send(wire.encode_control(Announce(ad=SourceAd(1, "m", CHANNEL), type=pack_type(TYPE), next=1)))
            for number, one in enumerate(tags, 1):
                call.send(wire.encode_events(1, number, [number], [time_ns()], [RECORDS[1]], [one]))
            rows = TYPE.records_to_arrow(RECORDS[:2])
            call.send(wire.encode_batch(1, len(tags) + 1, range(10, 12), time_ns(), rows, makes | WHOLE))
            assert not call.heard()  # what is wrong in a frame of rows ends the link
            assert lab._engine.offences[made.mallory.id] == len(tags) + 1
        assert not told.events and not sink.report().counts.evaluated
        made.goes_on()


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
        assert made.lab._engine is not None and made.lab._engine.offences[made.mallory.id] == 2
        made.goes_on()
        assert not told.events


def test_mutated_greetings(failures: list[str]) -> None:
    chance = random.Random(SEED)
    with scene() as made:
        for _ in range(STREAMS):
            attacks.greet(made.mallory, chance)
        made.goes_on()
        assert made.lab._engine is not None
        eventually(lambda: made.lab._engine.offences["tcp/127.0.0.1"] > STREAMS / 10, "offences")  # type: ignore[union-attr]


def test_envelopes_over_zenoh(failures: list[str]) -> None:
    chance = random.Random(SEED)
    with scene() as made:
        lab = made.lab
        with attacks.envelopes(made.mallory) as sender:
            for number in range(ENVELOPES):
                sender.send(chance)
                if number % 500 == 0:
                    made.goes_on()
            sender.answered()
            for _ in range(50):
                sender.token(chance)
        offences = lab._engine.offences  # type: ignore[union-attr]
        assert offences[made.mallory.id] > 0 and offences[f"{made.mallory.id} (unproven)"] > 0
        assert sum(offences.values()) > ENVELOPES / 10
