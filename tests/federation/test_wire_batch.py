"""Batches as frames: rows of any event type arrive as they were; what Arrow cannot be trusted with is refused."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import FrameError
from headwater.federation.wire import frames as wire
from headwater.federation.wire.kinds import MAX_ROWS, MAX_SEQ, U32
from headwater.types import event_type
from headwater.types import model as m
from tests.effort import examples
from tests.strategies import raw_events, records, same

T = 1_700_000_000_000_000_000
HEAD = 38  # bytes of a batch frame before its rows, without the prefix
COLOUR = m.Enum("Colour", (("RED", 5), ("GREEN", 1)))
READING = m.Record(
    "Reading",
    (m.Field("id", m.I64, False), m.Field("text", m.TEXT, True), m.Field("at", m.TIMESTAMP, False)),
)
PAINTED = m.Record(
    "Painted",
    (
        m.Field("colour", COLOUR, True),
        m.Field("all", m.List(COLOUR), False),
        m.Field("inside", m.Record("Inside", (m.Field("colour", COLOUR, False),)), True),
    ),
)


def read(frame: bytes) -> wire.Batch:
    made = wire.decode(memoryview(frame)[4:])
    assert isinstance(made, wire.Batch)
    return made


def schema(record: m.Record) -> Any:
    return event_type(record).schema


def batch(record: m.Record, events: list[dict[str, Any]]) -> Any:
    type = event_type(record)
    return type.records_to_arrow([type.encode(event) for event in events])


def readings(count: int) -> Any:
    return batch(READING, [{"id": i, "text": "x" * (i % 9) if i % 3 else None, "at": i} for i in range(count)])


def painted(count: int) -> Any:
    codes = [5, 1, None]
    return batch(
        PAINTED,
        [
            {"colour": codes[i % 3], "all": (5, 1) * (i % 3), "inside": {"colour": 1} if i % 2 else None}
            for i in range(count)
        ],
    )


@settings(max_examples=examples(100), deadline=None)
@given(records(), st.data())
def test_rows_of_any_type_arrive_as_they_were(record: m.Record, data: Any) -> None:
    events = data.draw(st.lists(raw_events(record), min_size=1, max_size=6))
    start = data.draw(st.integers(0, len(events) - 1))
    given = batch(record, events).slice(start)
    frame = wire.encode_batch(7, 8, 9, T, given, 3)
    for each in (frame, wire.compress(frame, "zstd")):
        found = read(each)
        assert (found.source, found.number, found.first, found.stamp, found.tag) == (7, 8, 9, T, 3)
        rows = found.batch(schema(record))
        assert rows.schema.equals(schema(record), check_metadata=True)
        made = event_type(record).arrow_to_raw(rows)
        assert len(made) == found.rows and all(map(same, made, events[start:]))


@pytest.mark.parametrize("seqs", [5, range(5, 15), np.arange(5, 15), [*range(5, 14), 5 + U32], list(range(5, 25, 2))])
def test_sequence_numbers(seqs: Any) -> None:
    frame = wire.encode_batch(1, 2, seqs, T, readings(10))
    expected = list(range(5, 15)) if isinstance(seqs, int) else list(seqs)
    found = read(frame)
    assert found.seqs.tolist() == expected and found.seqs.dtype == np.int64
    assert found.first == 5 and found.last == expected[-1] and not found.resent
    assert read(wire.resent(frame)).resent and read(wire.encode_batch(1, 2, seqs, T, readings(10), resent=True)).resent
    assert found.batch(schema(READING)).equals(readings(10))


@pytest.mark.parametrize(
    ("seqs", "rows"),
    [
        (0, 3),
        (-1, 3),
        (MAX_SEQ + 1, 3),
        ([], 0),
        (1, 0),
        ([1, 2], 3),
        ([1, 2, 2], 3),
        ([3, 2, 1], 3),
        ([1, 2, U32 + 2], 3),
    ],
)
def test_sequence_numbers_that_are_none(seqs: Any, rows: int) -> None:
    with pytest.raises(FrameError, match="batch: "):
        wire.encode_batch(1, 2, seqs, T, readings(3).slice(0, rows))


def test_enumerations_travel_as_indices_only() -> None:
    frame = wire.encode_batch(1, 1, 1, T, painted(10))
    assert b"GREEN" not in frame
    assert read(frame).batch(schema(PAINTED)).equals(painted(10))
    other = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1], pa.int32()), pa.array(["GREEN", "RED"]))
    kind = m.Record("One", (m.Field("colour", COLOUR, False),))
    given = pa.record_batch([other], schema=schema(kind))  # the same names in another order
    found = read(wire.encode_batch(1, 1, 1, T, given)).batch(schema(kind))
    assert found.to_pylist() == given.to_pylist() and found.column(0).indices.to_pylist() == [1, 0, 0]
    unknown = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array(["BLUE"]))
    with pytest.raises(FrameError, match="expected a member of Colour"):
        wire.encode_batch(1, 1, 1, T, pa.record_batch([unknown], schema=schema(kind)))
    plain = pa.schema([("colour", pa.dictionary(pa.int32(), pa.utf8()))], {"headwater.name": "One"})
    with pytest.raises(FrameError, match="only resembles"):
        wire.encode_batch(1, 1, 1, T, pa.record_batch([other], schema=plain))


@pytest.mark.parametrize("make", [readings, painted])
def test_rows_are_cut_to_fit(make: Any) -> None:
    given, record = make(1000), READING if make is readings else PAINTED
    frames = wire.encode_batches(1, 5, range(1, 3000, 3), T, given, 4, limit=3000)
    assert len(frames) > 5 and all(len(frame) <= 3004 for frame in frames)
    found = [read(frame) for frame in frames]
    assert [each.number for each in found] == list(range(5, 5 + len(frames)))
    assert np.concatenate([each.seqs for each in found]).tolist() == list(range(1, 3000, 3))
    rows = pa.Table.from_batches([each.batch(schema(record)) for each in found])
    assert rows.combine_chunks().to_batches()[0].equals(given)
    assert wire.encode_batches(1, 5, 1, T, given.slice(0, 0)) == []
    assert len(wire.encode_batches(1, 5, 1, T, given)) == 1
    far = [read(frame).last for frame in wire.encode_batches(1, 5, [1, 2, 2 * U32], T, given.slice(0, 3))]
    assert far == [1, 2, 2 * U32] or far == [2, 2 * U32]
    with pytest.raises(FrameError, match="one row"):
        wire.encode_batches(1, 5, 1, T, given, limit=100)


def test_more_rows_than_a_frame_may_have() -> None:
    kind = m.Record("Bit", (m.Field("bit", m.BOOL, False),))
    given = pa.record_batch([pa.array(np.zeros(MAX_ROWS + 1, np.bool_))], schema=schema(kind))
    with pytest.raises(FrameError, match="split the batch"):
        wire.encode_batch(1, 1, 1, T, given)
    frames = wire.encode_batches(1, 1, 1, T, given)
    assert sum(read(frame).rows for frame in frames) == MAX_ROWS + 1
    huge = struct.pack("<BIBIQQqI", 3, 1, 8, 0, 1, 1, T, U32)
    with pytest.raises(FrameError, match="rows, found 4,294,967,295"):
        wire.decode(huge)


# ── what another node may try ──


def with_message(message: bytes, rows: int = 10) -> wire.Batch:
    made = wire.decode(struct.pack("<BIBIQQqI", 3, 1, 8, 0, 1, 1, T, rows) + message)
    assert isinstance(made, wire.Batch)
    return made


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_buffers_are_refused(codec: str) -> None:
    kind = m.Record("Bit", (m.Field("id", m.I64, False),))
    given = pa.record_batch([pa.array(np.zeros(100_000, np.int64))], schema=schema(kind))
    options = pa.ipc.IpcWriteOptions(compression=codec)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, given.schema, options=options) as writer:
        writer.write_batch(given)
    messages = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))
    message = messages[1].serialize().to_pybytes()
    assert len(message) < 10_000 and pa.ipc.read_record_batch(messages[1], given.schema).num_rows == 100_000
    with pytest.raises(FrameError, match="found compressed ones"):
        with_message(message, 100_000).batch(given.schema)


def test_buffers_that_lie_over_one_another_are_refused() -> None:
    kind = m.Record("Pair", (m.Field("a", m.I64, False), m.Field("b", m.I64, False)))
    given = pa.record_batch([pa.array(range(64)), pa.array(range(64))], schema=schema(kind))
    message = bytearray(given.serialize().to_pybytes())
    second = message.rindex(struct.pack("<qq", 512, 512))
    message[second : second + 8] = bytes(8)
    assert pa.ipc.read_record_batch(pa.py_buffer(bytes(message)), given.schema).column(1)[5].as_py() == 5
    assert with_message(bytes(message), 64).batch(given.schema).num_rows == 64  # harmless: it reads a column twice
    first = message.index(struct.pack("<qq", 0, 512))
    message[first + 8 : first + 16] = struct.pack("<q", 1024)
    with pytest.raises(FrameError, match="1,024 bytes in total"):
        with_message(bytes(message), 64).batch(given.schema)


def test_rows_that_are_not_of_the_type() -> None:
    message = readings(10).serialize().to_pybytes()
    assert with_message(message).batch(schema(READING)).num_rows == 10
    dictionary = pa.DictionaryArray.from_arrays(pa.array([7], pa.int32()), pa.array(["RED"] * 9))
    kind = m.Record("One", (m.Field("colour", COLOUR, False),))
    late = pa.record_batch([pa.array([1]), pa.array(["x"]), pa.array([2**62])], names=["id", "text", "at"])
    null = pa.record_batch([pa.array([None], pa.int64()), pa.array(["x"]), pa.array([1])], names=["id", "text", "at"])
    broken = pa.record_batch(
        [pa.array([1]), pa.array([b"\xff"]), pa.array([1])], names=["id", "text", "at"]
    )  # no UTF-8
    for data, rows, of, says in (
        (message, 11, READING, "11 rows, found a record batch of 10"),
        (message, 10, PAINTED, "rows of Painted"),
        (message + bytes(8), 10, READING, "expected a body of"),
        (message[:-8], 10, READING, "expected a body of"),
        (message[:9], 10, READING, "broken beginning"),
        (b"", 10, READING, "expected an Arrow message"),
        (bytes(400), 10, READING, "broken beginning"),
        (schema(READING).serialize().to_pybytes(), 10, READING, "found another kind"),
        (pa.record_batch([dictionary], ["colour"]).serialize().to_pybytes(), 1, kind, "out of bounds"),
        (late.serialize().to_pybytes(), 1, READING, "years 1 to 9999"),
        (null.serialize().to_pybytes(), 1, READING, "not optional"),
        (broken.serialize().to_pybytes(), 1, READING, "UTF8|UTF-8|utf8"),
    ):
        with pytest.raises(FrameError, match=says):
            with_message(data, rows).batch(schema(of))


def test_every_truncation_of_a_batch_is_refused() -> None:
    for rows, of in ((readings(10), READING), (painted(10), PAINTED)):
        frame = wire.encode_batch(1, 1, range(1, 20, 2), T, rows)[4:]
        for end in range(len(frame)):
            with pytest.raises(FrameError):
                made = wire.decode(memoryview(frame)[:end])
                assert isinstance(made, wire.Batch)
                made.batch(schema(of))


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**32))
def test_mutated_batches_decode_or_are_refused(seed: int) -> None:
    """What is accepted can be worked with: all its values can be read."""
    chance = random.Random(seed)
    for rows, of in ((readings(10), READING), (painted(10), PAINTED)):
        whole = wire.encode_batch(1, 1, range(1, 20, 2), T, rows)[4:]
        type = event_type(of)
        for _ in range(50):
            frame = bytearray(whole)
            for _ in range(chance.choice((1, 1, 2, 5))):
                at = chance.randrange(len(frame))
                size = chance.choice((1, 1, 2, 4, 8))
                value = chance.choice((0, 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1), chance.getrandbits(8 * size)))
                frame[at : at + size] = value.to_bytes(size, "little")
            try:
                made = wire.decode(bytes(frame))
                if isinstance(made, wire.Batch):
                    rows = made.batch(schema(of))
                    assert len(made.seqs) == rows.num_rows == len(type.arrow_to_records(rows))
            except FrameError:
                pass


NUMBERS = m.Record("Numbers", (m.Field("a", m.F64, False), m.Field("b", m.I64, False)))
MAYBE = m.Record("Numbers", (m.Field("a", m.F64, True), m.Field("b", m.I64, True)))


def test_nulls_where_there_must_be_none_are_refused() -> None:
    rows = batch(MAYBE, [{"a": 1.0, "b": 1}, {"a": None, "b": 2}, {"a": 3.0, "b": None}])
    with pytest.raises(FrameError, match="row 1 is null"):
        read(wire.encode_batch(1, 1, 1, T, rows)).batch(schema(NUMBERS))


def test_a_message_that_hides_its_nulls_has_none() -> None:
    """Its head says that there are none: then nobody looks at the bits that say otherwise."""
    rows = batch(MAYBE, [{"a": 1.0, "b": 1}, {"a": None, "b": 2}, {"a": 3.0, "b": None}])
    frame = bytearray(wire.encode_batch(1, 1, 1, T, rows))
    node = struct.pack("<qq", 3, 1)  # three rows, one null
    assert frame.count(node) >= 2
    frame = frame.replace(node, struct.pack("<qq", 3, 0))
    found = read(bytes(frame)).batch(schema(NUMBERS))
    assert [column.null_count for column in found.columns] == [0, 0]
    assert all(value is not None for row in found.to_pylist() for value in row.values())


@given(st.lists(st.tuples(st.floats(allow_nan=False), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=40))
def test_plain_rows_arrive_as_they_were(values: list[tuple[float, int]]) -> None:
    rows = batch(NUMBERS, [{"a": a, "b": b} for a, b in values])
    for _ in range(2):  # the second time its head is known
        found = read(wire.encode_batch(1, 1, 1, T, rows)).batch(schema(NUMBERS))
        assert found.equals(rows, check_metadata=True)
