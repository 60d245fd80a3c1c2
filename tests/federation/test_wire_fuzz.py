"""Bytes that nobody honest sends: they decode or are a FrameError, soon, and in little memory."""

from __future__ import annotations

import random
import struct
import tracemalloc
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import FrameError
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Again, Announce, SourceAd
from headwater.federation.wire.kinds import MAX_RUN, U32
from headwater.types import event_type
from headwater.types import model as m
from tests.effort import examples

T = 1_700_000_000_000_000_000
MANY = [(3 * i, T + i, bytes((i % 7,)) * (i % 5)) for i in range(1, 60)]
NOTE = event_type(m.Record("Note", (m.Field("id", m.I64, False), m.Field("text", m.TEXT, False))))
NOTES = [NOTE.encode({"id": at, "text": "x" * (at % 3 * 8)}) for at in range(60)]
HEADER = wire.header_of(NOTE.record)
BARE: list[Any] = [  # records without their headers
    partial(wire.encode_event, 1, 2, 3, T, NOTES[0]),
    partial(wire.encode_run_first, 1, 2, 7, [T] * 4, NOTES[:4], resent=True),
    partial(wire.encode_run_first, 1, 2, 7, [T] * 60, NOTES),
    partial(wire.encode_run_first, 1, 2, 7, [T] * 50, [NOTES[1]] * 50),
    partial(wire.encode_events, 1, 2, [1, 1, 5], [T] * 3, NOTES[:3], [(1,), (), (2, 3)]),
]
PLAIN = [
    wire.encode_event(1, 2, 3, T, b"record"),
    wire.encode_events(1, 2, *map(list, zip(*MANY[:4], strict=True))),
    wire.encode_events(1, 2, *map(list, zip(*MANY, strict=True))),
    wire.encode_run_first(1, 2, 7, [T] * 50, [b"abc"] * 50, resent=True),
    wire.encode_events(1, 2, [1, 1, 5], [T] * 3, [b"a", b"bc", b""], [(1,), (), (2, 3)]),
    *(encode(header=HEADER) for encode in BARE),
    wire.encode_ack([(1, 2), (3, 4)]),
    wire.encode_promise([(1, T), (2, -T)]),
    wire.encode_ping(7),
    wire.encode_pong(8),
    wire.encode_control(Announce(SourceAd(1, "s", "c", ["z"]), b"abc", 1, live=2)),
    wire.encode_control(wire.Resume({1: 2, 3: 4}, memory=5)),
    wire.encode_control(Again(1, 2, {0: 3}, {7: 4})),
]


def squeezed(frame: bytes, codec: str) -> bytes:
    """Compressed, even if that makes it larger."""
    number = {"lz4": 1, "zstd": 2}[codec]
    inside = pa.Codec(codec).compress(frame[5:], asbytes=True)
    return struct.pack("<IBBI", len(inside) + 6, frame[4] | 0x80, number, len(frame) - 5) + inside


FRAMES = [frame[4:] for each in PLAIN for frame in (each, squeezed(each, "lz4"), squeezed(each, "zstd"))]


def attempt(frame: bytes | memoryview) -> Any:
    """What the frame says; None if it is refused."""
    try:
        return wire.decode(frame)
    except FrameError as error:
        assert str(error)
        return None


def mutated(frame: bytes, chance: random.Random) -> bytes:
    made = bytearray(frame)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        at = chance.randrange(len(made) + 1)
        match chance.randrange(5):
            case 0 | 1:
                made[at : at + 1] = bytes((chance.choice((0, 1, 127, 128, 255, chance.randrange(256))),))
            case 2:
                value = chance.choice((0, 1, 2, 0x7FFFFFFF, 0x80000000, U32, len(made), chance.getrandbits(32)))
                made[at : at + 4] = value.to_bytes(4, "little")
            case 3:
                del made[at : at + chance.randrange(1, 9)]
            case 4:
                made[at:at] = chance.randbytes(chance.randrange(1, 9))
    return bytes(made)


def test_they_are_good_as_they_are() -> None:
    assert all(attempt(frame) is not None for frame in FRAMES)


@pytest.mark.parametrize("frame", FRAMES, ids=range(len(FRAMES)))
def test_every_truncation(frame: bytes) -> None:
    whole = attempt(frame)
    for end in range(len(frame)):
        found = attempt(memoryview(frame)[:end])
        # Only a record that reaches to the end, or pairs, can lack something and still be a frame.
        assert found is None or (isinstance(found, wire.Events | wire.Ack | wire.Promise) and found != whole)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32))
def test_mutations(seed: int) -> None:
    chance = random.Random(seed)
    for frame in FRAMES:
        for _ in range(8):
            found = attempt(mutated(frame, chance))
            if isinstance(found, wire.Events):
                assert 0 < len(found.seqs) == len(found.stamps) == len(found.records) <= MAX_RUN
                assert found.tags is None or len(found.tags) == len(found.seqs)
                sizes = [len(record) + 16 * found.bare for record in found.records]
                found.dress(HEADER)
                assert [len(record) for record in found.records] == sizes
                assert all(type(record) is bytes for record in found.records)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 255), st.binary(max_size=120))
def test_noise(kind: int, noise: bytes) -> None:
    attempt(bytes((kind,)) + noise)
    attempt(noise)
    splitter = wire.Splitter(limit=1 << 16)
    try:
        for i in range(0, len(noise), 7):
            splitter.feed(noise[i : i + 7])
    except FrameError:
        assert splitter.waiting == 0
    assert splitter.waiting <= len(noise)


def events(flags: int, count: int, rest: bytes) -> bytes:
    return struct.pack("<BIBQQqI", 2, 1, flags, 1, 1, T, count) + rest


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00",
        b"\x0b" + bytes(50),
        b"\x80" + bytes(50),
        events(0, 0, b""),
        events(0, U32, bytes(100)),
        events(4 | 8, U32, bytes(100)),
        events(4 | 8, 1 << 20, bytes(4 << 20)),
        events(16, 2, bytes(100)),
        events(0, 2, struct.pack("<6I", 0, 1, 0, 0, U32, U32)),
        events(4 | 8, 2, struct.pack("<3I", 0, 0, U32)),
        events(0, 2, struct.pack("<6I", 0, 0, 0, 0, 0, 0)),  # sequence numbers that do not increase
        events(0, 2, struct.pack("<6I", 1, 2, 0, 0, 0, 0)),  # or do not begin with the first
        events(2 | 4 | 8, 2, struct.pack("<3I2H", 0, 0, 0, 65_535, 65_535)),
        events(2, 1, struct.pack("<H", 65_535)),
        events(2 | 4 | 8, 5, bytes(24) + struct.pack("<5H", *[65_535] * 5) + bytes(4 * 5 * 65_535)),
        struct.pack("<BIBQQqI", 2, 1, 0, 1, 0, T, 1),
        struct.pack("<BIBQQqI", 2, 1, 0, 1, 2**64 - 1, T, 1),
        struct.pack("<BIBQQqI", 2, 1, 12, 1, 1, 2**63 - 1, 2) + struct.pack("<3I", 1, 1, 0),
        struct.pack("<BIIIq", 9, 1, 1, 0, T),
        struct.pack("<BIQQQ", 5, 1, 5, 4, 0),
        struct.pack("<BIQQQ", 5, 1, 0, 4, 1),
        struct.pack("<BIQQQ", 5, 1, 4, 5, 3),
        b"\x04" + bytes(12 * 70_000),
        b"\x06" + bytes(11),
        b"\x07" + bytes(9),
        b"\x01" + bytes(2 << 20),
        struct.pack("<BBI", 0x82, 1, (16 << 20) - 1) + pa.Codec("lz4").compress(bytes(1000), asbytes=True),
        struct.pack("<BBI", 0x82, 2, (16 << 20) - 1) + pa.Codec("zstd").compress(bytes(1000), asbytes=True),
        struct.pack("<BBI", 0x81, 1, 1000) + pa.Codec("lz4").compress(bytes(16 << 20), asbytes=True),
        struct.pack("<BBI", 0x81, 2, 1000) + pa.Codec("zstd").compress(bytes(16 << 20), asbytes=True),
    ],
    ids=range(31),
)
def test_hostile_frames_cost_little(frame: bytes) -> None:
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        assert attempt(frame) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < wire.MAX_FRAME + (8 << 20) and pa.total_allocated_bytes() - before < 1 << 20
    if not frame or not frame[0] & 0x80:
        assert peak < 1 << 20


def test_what_a_frame_becomes_is_bounded() -> None:
    """The most events and the most tags that one frame may have."""
    count = MAX_RUN
    frame = wire.encode_events(1, 1, range(1, 2 * count, 2), [T + 1000 * i for i in range(count)], [b""] * count)
    small = wire.compress(frame, "zstd")
    tracemalloc.start()
    try:
        found = attempt(memoryview(small)[4:])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.seqs) == count and peak < 16 << 20
