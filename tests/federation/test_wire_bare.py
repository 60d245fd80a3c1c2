"""Records that cross without their headers: between nodes they arrive as they were, and what is none is dropped."""

from __future__ import annotations

import os
from time import time_ns

import pytest

from headwater import Event, Interest, f64, i64
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Announce, SourceAd
from headwater.federation.wire.requests import pack_type
from tests.federation.attacks import CHANNEL, RECORDS, TYPE, Sighting
from tests.federation.hostile import Mallory, Target
from tests.federation.nodes import Log, eventually, nodes


class Sample(Event, name="ie.tcd.Sample"):
    a: f64
    b: f64
    c: f64
    d: f64
    e: f64
    f: f64
    g: f64
    h: f64


class Short(Event, name="ie.tcd.Short"):
    first: i64


def sample(n: int) -> Sample:
    return Sample(*(float(n + i) for i in range(8)))


def test_whole_and_bare_records_arrive_together() -> None:
    """Of one source: events as they are, and what an interest has made of them, which is of another type."""
    with nodes() as make:
        lab, desk = make("lab"), make("desk")
        make.together()
        plain, made, some = Log(), Log(), Log()
        source = lab.channel("sample", Sample).source()
        channel = desk.channel("sample", Sample)
        channel.subscribe(plain)
        shorter = "{ output.first = (long)input.a; return input.a >= 5.0; }"
        channel.subscribe(made, Interest(shorter, Sample, output=Short))
        channel.subscribe(some, "b > 30.0")
        make.ready()
        for n in range(20):
            source.publish(sample(n))
        source.publish_many([sample(n) for n in range(20, 60)])
        source.publish_many([sample(n) for n in range(60, 200)])
        assert plain.wait(200) == [sample(n) for n in range(200)]
        assert made.wait(195) == [Short(n) for n in range(5, 200)]
        assert some.wait(170) == [sample(n) for n in range(30, 200)]


def test_an_event_between_nodes_takes_little_more_than_its_fields() -> None:
    with nodes() as make:
        lab, desk = make("lab"), make("desk")
        make.together()
        log = Log()
        source = lab.channel("sample", Sample).source()
        desk.channel("sample", Sample).subscribe(log, "a >= 0.0")
        make.ready()
        assert lab._engine is not None
        peer = next(iter(lab._engine.peers.values()))
        before = peer.bytes_out
        for n in range(2000):
            source.publish(sample(n))
        assert log.wait(2000) == [sample(n) for n in range(2000)]
        assert 64 * 2000 < peer.bytes_out - before < (64 + 25) * 2000 + 4096  # some were alone; and what else was said


@pytest.fixture
def announced() -> bytes:
    return wire.encode_control(Announce(ad=SourceAd(1, "m", CHANNEL), type=pack_type(TYPE), next=1))


def bare(number: int, bodies: list[bytes]) -> bytes:
    """A frame of such bodies, whatever they are."""
    records = [wire.header_of(TYPE.record)[16 + len(body)] + body for body in bodies]
    frame = wire.encode_run_first(
        1, number, 100 * number, [time_ns()] * len(records), records, header=wire.header_of(TYPE.record)
    )
    found = wire.decode(frame[4:])
    assert isinstance(found, wire.Events) and found.bare
    return frame


@pytest.mark.parametrize("where", [None, "level > -1.0"])
def test_bodies_that_are_none_are_dropped_and_counted(announced: bytes, where: str | None) -> None:
    with nodes() as make:
        lab, log = make("lab"), Log()
        lab.channel(CHANNEL, Sighting).subscribe(log, where)
        mallory = Mallory(Target.of(lab))
        with mallory.call() as call:
            call.send(announced)
            good = [record[16:] for record in RECORDS]
            bad = [b"", b"x", good[1][:-8], good[1] + b"\0" * 8, b"\xff" * len(good[1]), os.urandom(64), good[3][:9]]
            number = 0
            for each in bad:
                for bodies in ([each], [good[1], each, good[2]], [*good * 2, each]):
                    number += 1
                    call.send(bare(number, bodies))
            assert call.heard()
            assert lab._engine is not None
            source = lab._engine.peers[mallory.id].remote_sources[1]
            assert source.frame == number and source.malformed == 3 * len(bad)
            wanted = [TYPE.decode(record) for record in RECORDS]
            log.until(lambda events: len(events) == len(bad) * (2 + 2 * len(RECORDS)))
            assert log.events == [*wanted[1:3], *wanted, *wanted] * len(bad)


def test_bodies_of_a_source_that_is_not_known_are_an_offence(announced: bytes) -> None:
    with nodes() as make:
        lab, log = make("lab"), Log()
        lab.channel(CHANNEL, Sighting).subscribe(log)
        mallory = Mallory(Target.of(lab))
        with mallory.call() as call:
            call.send(bare(1, [RECORDS[0][16:]]) + bare(1, [RECORDS[0][16:]] * 50))
            assert call.heard()
            assert lab._engine is not None and lab._engine.offences[mallory.id] == 2
            call.send(announced + bare(1, [RECORDS[0][16:]]))
            assert log.wait(1) == [TYPE.decode(RECORDS[0])]


@pytest.mark.parametrize("count", [1, 2, 50])
def test_bodies_of_a_source_without_an_event_type_end_the_link(count: int) -> None:
    with nodes() as make:
        lab, log = make("lab"), Log()
        lab.channel("raw", bytes).subscribe(log)
        mallory = Mallory(Target.of(lab))
        with mallory.call() as call:
            call.send(wire.encode_control(Announce(ad=SourceAd(1, "m", "raw"), type=None, next=1)))
            call.send(wire.encode_event(1, 1, 1, time_ns(), b"whole"))
            assert log.wait(1) == [b"whole"] and call.heard()
            call.send(bare(2, [RECORDS[0][16:]] * count))
            call.hung_up()
        assert lab._engine is not None
        eventually(lambda: lab._engine.offences[mallory.id] > 0)  # type: ignore[union-attr]
        assert log.events == [b"whole"]
