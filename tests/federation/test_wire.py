"""Frames: what is encoded is decoded, whatever the stream cuts; what is malformed is a FrameError and nothing else."""

from __future__ import annotations

import random
import struct
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import FrameError
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Again, Announce, Barrier, Challenge, Greeting, Sent, SourceAd
from headwater.federation.wire.kinds import BARE, MAX_PAIRS, MAX_RUN, MAX_SEQ, MAX_TAGS, U32
from headwater.types import event_type
from headwater.types import model as m
from tests.effort import examples
from tests.strategies import raw_events, records

T = 1_700_000_000_000_000_000
SOURCES = st.sampled_from((0, 1, 65_536, U32)) | st.integers(0, U32)
NUMBERS = st.sampled_from((1, U32, U32 + 1, MAX_SEQ)) | st.integers(1, 1000)
SEQS = st.sampled_from((1, U32, U32 + 1, MAX_SEQ - 10**9)) | st.integers(1, 10**6)
STAMPS = st.sampled_from((0, T, -T)) | st.integers(-(2**62), 2**62)
CODECS: tuple[wire.Codec, ...] = ("lz4", "zstd")
SAMPLE = m.Record("Sample", tuple(m.Field(f"x{i}", m.F64, False) for i in range(8)))
NOTE = m.Record("Note", (m.Field("id", m.I64, False), m.Field("text", m.TEXT, False)))


def body(frame: bytes) -> memoryview:
    """A frame without its prefix, which is right."""
    assert struct.unpack_from("<I", frame) == (len(frame) - 4,)
    return memoryview(frame)[4:]


def read(frame: bytes) -> Any:
    return wire.decode(body(frame))


@st.composite
def runs(draw: st.DrawFn, *, tagged: bool = False) -> list[tuple[int, int, bytes]]:
    """Items of a lane: sequence numbers increase, stamps need not."""
    count = draw(st.integers(1, 6) | st.sampled_from((31, 32, 33, 80)))
    step = st.integers(0 if tagged else 1, 50_000_000)
    steps = draw(st.just([1] * count) | st.lists(step, min_size=count, max_size=count))
    seq, base = draw(SEQS), draw(STAMPS)
    spread = draw(st.sampled_from((0, 1000, U32)))
    size = draw(st.none() | st.sampled_from((0, 1, 64)))
    items = []
    for step in steps:
        record = draw(st.binary(max_size=20) if size is None else st.just(bytes(size)))
        items.append((seq, base + draw(st.integers(0, spread)), record))
        seq += step
    return items


def encode_run(source: int, number: int, items: list[tuple[int, int, bytes]], **options: Any) -> bytes:
    """The frame of events that are given as (seq, stamp, record)."""
    seqs, stamps = [seq for seq, _, _ in items], [stamp for _, stamp, _ in items]
    return wire.encode_events(source, number, seqs, stamps, [record for _, _, record in items], **options)


# ── events ──


@settings(max_examples=examples(150), deadline=None)
@given(SOURCES, NUMBERS, runs(), st.booleans())
def test_runs_arrive_as_they_were(source: int, number: int, items: list[tuple[int, int, bytes]], again: bool) -> None:
    seqs, stamps, data = zip(*items, strict=True)
    frames = [
        wire.encode_events(source, number, seqs, stamps, data, resent=again),
        wire.encode_events(source, number, list(seqs), list(stamps), list(data), resent=again),
    ]
    if list(seqs) == list(range(seqs[0], seqs[0] + len(seqs))):
        frames.append(wire.encode_run_first(source, number, seqs[0], stamps, data, resent=again))
    assert len(set(frames)) == 1
    if not again:
        frames.append(wire.encode_events(source, number, seqs, stamps, data))
    marked = wire.resent(frames[0])
    for frame, flag in ((frames[0], again), (frames[-1], again), (marked, True)):
        found = read(frame)
        assert (found.source, found.number, found.tags, found.resent) == (source, number, None, flag)
        assert list(zip(found.seqs, found.stamps, found.records, strict=True)) == items
        assert all(type(record) is bytes for record in found.records)


@settings(max_examples=examples(100), deadline=None)
@given(runs(tagged=True), st.data())
def test_tags_arrive_and_one_event_may_give_several_results(items: list[tuple[int, int, bytes]], data: Any) -> None:
    one = st.lists(st.integers(0, U32), max_size=3).map(tuple)
    tags = data.draw(st.lists(one, min_size=len(items), max_size=len(items)) | st.just([(7, 9)] * len(items)))
    seqs, stamps, found = zip(*items, strict=True)
    made = read(wire.encode_events(1, 2, seqs, stamps, found, tags))
    assert made.tags == tags and list(zip(made.seqs, made.stamps, made.records, strict=True)) == items


def test_one_event_takes_few_bytes() -> None:
    frame = wire.encode_event(3, 4, 5, T, bytes(64))
    assert len(frame) == 89
    assert frame == struct.pack("<IBIIIq", 85, 9, 3, 4, 5, T) + bytes(64)
    assert read(frame) == wire.Events(3, 4, [5], [T], [bytes(64)])
    long = wire.encode_event(3, 4, U32 + 1, T, b"x")
    assert long == struct.pack("<IBIBQQqI", 35, 2, 3, 0, 4, U32 + 1, T, 1) + b"x"


def test_the_layout_of_a_run() -> None:
    head = struct.pack("<BIBQQqI", 2, 3, 0, 4, 10, T, 2)
    assert (
        body(encode_run(3, 4, [(10, T, b"a"), (12, T + 7, b"bc")]))
        == head + struct.pack("<6I", 0, 2, 0, 7, 1, 2) + b"abc"
    )
    head = struct.pack("<BIBQQqI", 2, 3, 4 | 8 | 2, 4, 10, T, 2)
    made = wire.encode_events(3, 4, [10, 11], [T + 7, T], [b"ab", b"cd"], [(5,), (6, 7)])
    assert body(made) == head + struct.pack("<3I2H3I", 7, 0, 2, 1, 2, 5, 6, 7) + b"abcd"


@pytest.mark.parametrize("count", [500, MAX_RUN])
@pytest.mark.parametrize("step", [1, 3])
def test_long_runs(count: int, step: int) -> None:
    items = [(1 + i * step, T + 17 * i, i.to_bytes(8, "little")) for i in range(count)]
    found = read(encode_run(1, 1, items))
    assert list(zip(found.seqs, found.stamps, found.records, strict=True)) == items


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), st.integers(150, 400))
def test_runs_are_cut_to_fit(data: Any, limit: int) -> None:
    """Whatever is far apart or large is cut; never between the results of one event."""
    count = data.draw(st.integers(0, 40))
    tagged = data.draw(st.booleans())
    steps = st.sampled_from((0, 1, 1, 2, U32, U32 + 1) if tagged else (1, 1, 2, U32, U32 + 1))
    seq, items, tags = 1, [], []
    for _ in range(count):
        stamp = T + data.draw(st.sampled_from((0, 5, -5, U32, -U32, 3 * U32)))
        items.append((seq, stamp, bytes(data.draw(st.integers(0, 20)))))
        tags.append((1,))
        seq += data.draw(steps)
    seqs, stamps, found = zip(*items, strict=True) if items else ((), (), ())
    end, parts = 0, []
    try:
        for start, stop in wire.runs(seqs, stamps, found, tags if tagged else None, limit=limit):
            assert start == end < stop and (start == 0 or seqs[start] != seqs[start - 1])
            its = tags[start:stop] if tagged else None
            frame = body(wire.encode_events(1, 1, seqs[start:stop], stamps[start:stop], found[start:stop], its))
            assert len(frame) <= limit
            made = wire.decode(frame)
            assert isinstance(made, wire.Events)
            parts += list(zip(made.seqs, made.stamps, made.records, strict=True))
            end = stop
        assert parts == items
    except FrameError as error:
        assert tagged and "gave" in str(error)  # the results of one event do not fit


def test_stamps_that_fit_one_run() -> None:
    assert wire.spans(T, T + U32 // 2) and wire.spans(T, T - U32 // 2)
    assert not wire.spans(T, T + U32 // 2 + 1) and not wire.spans(T, T - U32 // 2 - 1)
    found = read(encode_run(1, 1, [(1, T, b""), (2, T + U32 // 2, b""), (3, T - U32 // 2, b"")]))
    assert found.stamps == [T, T + U32 // 2, T - U32 // 2]


@pytest.mark.parametrize("extra", [0, 100])  # few events and many are encoded in different ways
@pytest.mark.parametrize(
    ("seqs", "stamps", "says"),
    [
        ([], [], "1 to 65,536 events"),
        ([2, 1], [T, T], "increasing"),
        ([1, 1], [T, T], "increasing"),
        ([0, 1], [T, T], "sequence number of 1 or more"),
        ([1, U32 + 2], [T, T], "."),
        ([1, 3], [T, T + U32 + 1], "."),
        ([1, 3], [2**63 - 2, 2**63 - 1], "within"),
        ([1, 3], [2**63, 2**63], "."),
        ([1, 2, 3], [T, T], "one a record"),
    ],
)
def test_runs_that_are_none(seqs: list[int], stamps: list[int], says: str, extra: int) -> None:
    if seqs and extra:
        seqs, stamps = [*seqs, *range(seqs[-1] + 1, seqs[-1] + 1 + extra)], [*stamps, *[stamps[-1]] * extra]
    with pytest.raises(FrameError, match=says):
        wire.encode_events(1, 1, seqs, stamps, [b"x"] * len(stamps))


def test_what_does_not_fit_a_frame() -> None:
    for make in (
        lambda: wire.encode_event(U32 + 1, 1, 1, T, b""),
        lambda: wire.encode_event(-1, 1, 1, T, b""),
        lambda: wire.encode_event(1, -1, 1, T, b""),
        lambda: wire.encode_event(1, 1, 0, T, b""),
        lambda: wire.encode_event(1, 1, 1, 2**63, b""),
        lambda: wire.encode_event(1, 1, 1, T, bytes(wire.MAX_FRAME)),
        lambda: encode_run(1, 1, []),
        lambda: encode_run(1, 1, [(1, T, bytes(wire.MAX_FRAME // 2)), (2, T, bytes(wire.MAX_FRAME // 2))]),
        lambda: wire.encode_events(1, 1, [1, 2], [T, T], [b"", b""], [(1,), (U32 + 1,)]),
        lambda: wire.encode_events(1, 1, [1], [T], [b""], [(1,) * 65_536]),
        lambda: wire.encode_events(1, 1, range(1, 6), [T] * 5, [b""] * 5, [(1,) * 65_535] * 5),
        lambda: wire.encode_ack([(1, -1)]),
        lambda: wire.encode_ack([(1, 1)] * (MAX_PAIRS + 1)),
        lambda: wire.encode_promise([(1, 2**63)]),
        lambda: wire.encode_ping(-1),
    ):
        with pytest.raises(FrameError):
            make()
    assert MAX_TAGS < 5 * 65_535
    largest = wire.encode_event(1, 1, 1, T, bytes(wire.MAX_FRAME - 21))
    assert len(largest) == wire.MAX_FRAME + 4 and len(read(largest).records[0]) == wire.MAX_FRAME - 21
    with pytest.raises(FrameError, match="at most"):
        wire.decode(body(largest), wire.MAX_FRAME - 1)


# ── records without their headers ──


def samples(count: int) -> list[bytes]:
    type = event_type(SAMPLE)
    return [type.encode({f"x{i}": float(at * i) for i in range(8)}) for at in range(count)]


def notes(count: int) -> list[bytes]:
    type = event_type(NOTE)
    return [type.encode({"id": at, "text": "x" * (at % 30)}) for at in range(count)]


def dressed(frame: bytes, record: m.Record) -> wire.Events:
    """What a frame of a source with this event type says."""
    found = read(frame)
    assert isinstance(found, wire.Events) and len(found.records) == len(found.seqs)
    found.dress(wire.header_of(record))
    assert not found.bare and all(type(each) is bytes for each in found.records)
    return found


@settings(max_examples=examples(150), deadline=None)
@given(records(), st.sampled_from((1, 2, 4, 5, 32, 33, 80)), SEQS, st.booleans(), st.booleans(), st.data())
def test_records_of_any_type_arrive_as_they_were(
    record: m.Record, count: int, first: int, again: bool, tagged: bool, data: Any
) -> None:
    type = event_type(record)
    some = [type.encode(each) for each in data.draw(st.lists(raw_events(record), min_size=1, max_size=3))]
    sent = [some[at % len(some)] for at in range(count)]
    if data.draw(st.booleans()):  # no record of this type: what an interest has made, or anything
        other = data.draw(st.sampled_from([*samples(1), *notes(2)]) | st.binary(max_size=40))
        sent[data.draw(st.integers(0, count - 1))] = other
    seqs, stamps, header = range(first, first + count), [T + at for at in range(count)], wire.header_of(record)
    tags = [(7,)] * count if tagged else None
    frame = wire.encode_events(1, 2, list(seqs), stamps, sent, tags, resent=again, header=header)
    made = [frame]
    if not tagged:
        made.append(wire.encode_run_first(1, 2, first, stamps, sent, resent=again, header=header))
        made.append(encode_run(1, 2, list(zip(seqs, stamps, sent, strict=True)), resent=again, header=header))
    assert len(set(made)) == 1
    whole = wire.encode_events(1, 2, list(seqs), stamps, sent, tags, resent=again)
    like = all(each[4:16] == some[0][4:16] and each[:4] == struct.pack("<I", len(each)) for each in sent)
    assert read(frame).bare is like and len(whole) - len(frame) == 16 * count * like
    for each, flag in ((frame, again), (wire.resent(frame), True), (wire.compress(frame, "zstd"), again)):
        found = dressed(each, record)
        assert (found.source, found.number, found.tags, found.resent) == (1, 2, tags, flag)
        assert list(found.seqs) == list(seqs) and list(found.stamps) == stamps and list(found.records) == sent


@pytest.mark.parametrize("count", [2, 5, 32, 33, 500, 4096])
def test_an_event_takes_little_more_than_its_fields(count: int) -> None:
    stamps, header = [T + at for at in range(count)], wire.header_of(SAMPLE)
    frame = wire.encode_run_first(1, 2, 3, stamps, samples(count), header=header)
    assert len(frame) == 38 + 4 + 68 * count  # eight numbers, and when it was
    together = wire.encode_run_first(1, 2, 3, [T] * count, samples(count), header=header)
    assert len(together) == 38 + 4 + 64 * count
    text = wire.encode_run_first(1, 2, 3, stamps, notes(count), header=wire.header_of(NOTE))
    plain = wire.encode_run_first(1, 2, 3, stamps, notes(count))
    assert len(plain) - len(text) == 16 * count
    (alone,) = samples(1)
    assert len(wire.encode_event(3, 4, 5, T, alone, header)) == 25 + 64


def test_the_layout_of_bare_records() -> None:
    one, two = samples(2)
    header = wire.header_of(SAMPLE)
    assert wire.encode_event(3, 4, 5, T, one, header) == struct.pack("<IBIIIq", 85, 11, 3, 4, 5, T) + one[16:]
    assert wire.resent(wire.encode_event(3, 4, 5, T, one, header))[4] == 12
    head = struct.pack("<BIBQQqI", 2, 3, BARE | 4 | 8 | 16, 4, 10, T, 2)
    made = wire.encode_run_first(3, 4, 10, [T, T], [one, two], header=header)
    assert body(made) == head + struct.pack("<I", 64) + one[16:] + two[16:]
    late = wire.encode_event(3, 4, U32 + 1, T, one, header)
    assert late == struct.pack("<IBIBQQqI", 98, 2, 3, BARE, 4, U32 + 1, T, 1) + one[16:]


@pytest.mark.parametrize("count", [1, 3, 100])
def test_bodies_without_an_event_type_are_no_events(count: int) -> None:
    for sent in (samples(count), notes(count)):
        record = SAMPLE if sent == samples(count) else NOTE
        found = read(wire.encode_run_first(1, 2, 3, [T] * count, sent, header=wire.header_of(record)))
        assert found.bare and list(found.records) == [each[16:] for each in sent]
        assert found.records[-1] == sent[-1][16:] and list(found.records[1:3]) == [each[16:] for each in sent[1:3]]
        with pytest.raises(FrameError, match="no event type"):
            found.dress(None)


# ── the small ones, and control messages ──


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(st.integers(0, U32), st.integers(0, 2**63 - 1)), max_size=9), st.integers(0, 2**64 - 1))
def test_small_frames(pairs: list[tuple[int, int]], number: int) -> None:
    assert read(wire.encode_ack(pairs)) == wire.Ack(pairs)
    times = [(source, -time) for source, time in pairs]
    assert read(wire.encode_promise(times)) == wire.Promise(times)
    found = [(1, -5, 7), (2, 0, (1 << 63) - 1)]
    assert read(wire.encode_times(found)) == wire.Times(found)
    assert read(wire.encode_ping(number)) == wire.Ping(number)
    assert read(wire.encode_pong(number)) == wire.Pong(number)


MESSAGES = (
    Challenge(b"n"),
    Greeting(b"p"),
    Again(1, 2, {0: 3}, {7: 4}),
    Sent({1: 2, U32: MAX_SEQ}, {1: 3}),
    wire.Resume({3: 4}, memory=T),
    wire.Repair(1, 2, 3),
    wire.Bye("so long"),
    Barrier("c", 5, {1: MAX_SEQ}),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_control_messages(message: wire.Control) -> None:
    assert read(wire.encode_control(message)) == message
    more = msgspec.msgpack.encode({**msgspec.msgpack.decode(msgspec.msgpack.encode(message), strict=False), "new": [1]})
    assert wire.decode(b"\x01" + more) == message  # a newer node may say more


@pytest.mark.parametrize(
    "message",
    [
        wire.Bye("x" * 5000),
        wire.Bye("\ud800"),
        wire.Repair(-1, 2, 3),
        wire.Repair(1, 2, MAX_SEQ + 1),
        wire.Resume(dict.fromkeys(range(70_000), 1)),
        Barrier("", 1, {}),
        Challenge(bytes(10_000)),
        Sent({1: [1]}),  # type: ignore[dict-item]
        Announce(SourceAd(1, "s", "c", ["z" * 255] * 4096), bytes(1 << 20), 1),
    ],
    ids=range(9),
)
def test_control_messages_are_bounded(message: wire.Control) -> None:
    with pytest.raises(FrameError, match="control: "):
        wire.encode_control(message)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x80",
        b"\x91" * 100_000,
        msgspec.msgpack.encode({"is": "other"}),
        msgspec.msgpack.encode({"is": "bye", "reason": 5}),
        msgspec.msgpack.encode({"is": "bye", "reason": ""}) + b"\x00",
        msgspec.msgpack.encode({"is": "bye"})[:-1] + b"\xff",
        b"\x82\xa2is\xa3bye\xa1x" + b"\x91" * 100_000,  # nothing is too deep to be skipped safely
        b"\x82\xa2is\xa6resume\xa9positions\xdf\xff\xff\xff\xff",
        b"\x81\xa2is\xdb\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\x82\xa2is\xa8announce\xa2ad\x94\x01\xa1n\xa1c\xdd\xff\xff\xff\xff",
    ],
    ids=range(13),
)
def test_hostile_control_messages(data: bytes) -> None:
    with pytest.raises(FrameError, match="control: "):
        wire.decode(b"\x01" + data)


# ── compression ──


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_frames(codec: wire.Codec) -> None:
    frame = encode_run(1, 1, [(i, T + i, bytes(64)) for i in range(1, 500)])
    small = wire.compress(frame, codec)
    assert len(small) < len(frame) / 5 and read(small) == read(frame)
    assert wire.compress(small, codec) is small
    noise = wire.encode_event(1, 1, 1, T, random.Random(1).randbytes(64))
    assert wire.compress(noise, codec) is noise
    with pytest.raises(FrameError, match="not compressed"):
        wire.resent(small)
    with pytest.raises(FrameError, match="expected one of lz4, zstd, found 'gzip'"):
        wire.compress(frame, "gzip")  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_frame_has_exactly_what_it_says(codec: wire.Codec) -> None:
    inside = struct.pack("<IIIq", 1, 1, 1, T) + bytes(5000)
    squeezed = pa.Codec(codec).compress(inside, asbytes=True)

    def frame(size: int, data: bytes = squeezed, number: int = 1 + CODECS.index(codec)) -> bytes:
        return struct.pack("<BBI", 0x80 | 9, number, size) + data

    assert wire.decode(frame(len(inside))) == wire.Events(1, 1, [1], [T], [bytes(5000)])
    for bad in (
        frame(len(inside) - 1),
        frame(len(inside) + 1),
        frame(2 * len(inside)),
        frame(0),
        frame(wire.MAX_FRAME),
        frame(U32),
        frame(len(inside), squeezed[:-1]),
        frame(len(inside), squeezed + b"x"),
        frame(2 * len(inside), squeezed + squeezed[:-3]),
        frame(len(inside), b""),
        frame(len(inside), bytes(50)),
        frame(len(inside), number=3),
        frame(len(inside))[:4],
    ):
        with pytest.raises(FrameError):
            wire.decode(bad)
    with pytest.raises(FrameError, match="at most"):
        wire.decode(frame(len(inside)), limit=1000)


# ── streams ──


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=12), st.data())
def test_a_stream_may_be_cut_anywhere(frames: list[bytes], data: Any) -> None:
    stream = b"".join(struct.pack("<I", len(frame)) + frame for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    splitter, found = wire.Splitter(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        if data.draw(st.booleans()):
            piece = bytearray(stream[start:end])
            found += splitter.feed(piece)
            piece[:] = bytes(len(piece))  # frames stay what they were
        else:
            found += splitter.feed(stream[start:end])
    assert found == frames and splitter.waiting == 0


def test_large_frames_in_small_pieces() -> None:
    splitter, frame = wire.Splitter(), random.Random(2).randbytes(200_000)
    stream = struct.pack("<I", len(frame)) + frame
    assert [found for i in range(len(stream)) for found in splitter.feed(stream[i : i + 1])] == [frame]
    largest = bytes(wire.MAX_FRAME)
    stream = struct.pack("<I", len(largest)) + largest
    found = [each for i in range(0, len(stream), 50_000) for each in splitter.feed(stream[i : i + 50_000])]
    assert found == [largest] and splitter.waiting == 0


def test_frames_of_one_piece_are_not_copied() -> None:
    stream = b"".join(wire.encode_ping(i) for i in range(5))
    frames = wire.Splitter().feed(stream + b"\x05")
    assert [wire.decode(frame) for frame in frames] == [wire.Ping(i) for i in range(5)]
    assert len({id(frame.obj) for frame in frames}) == 1 and all(frame.readonly for frame in frames)


@pytest.mark.parametrize("size", [0, 1001, U32])
@pytest.mark.parametrize("piece", [1, 3, 100])
def test_a_length_that_cannot_be_is_refused_at_once(size: int, piece: int) -> None:
    splitter = wire.Splitter(limit=1000)
    stream = wire.encode_ping(1) + struct.pack("<I", size)
    with pytest.raises(FrameError, match=f"1 to 1,000 bytes, found a length of {size:,}"):
        for i in range(0, len(stream), piece):
            splitter.feed(stream[i : i + piece])
    assert splitter.waiting == 0
    with pytest.raises(FrameError, match="found a length"):
        splitter.feed(wire.encode_ping(2))
