"""Records: round trips of random events of random types, errors, and hostile bytes."""

from __future__ import annotations

import array
import struct
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import DecodeError, EncodeError
from headwater.types import Event, event_type, f32, f64, i8, i64, split, u8, u64
from headwater.types import model as m
from headwater.types.values import to_raw
from tests.effort import examples
from tests.strategies import NAMES, ODD_NAMES, raw_events, records, records_with_events, same

MODEST = settings(deadline=None, max_examples=examples(150))


@MODEST
@given(records_with_events(kinds=records(names=NAMES + ODD_NAMES)))
def test_events_survive_in_every_form(sample: tuple[m.Record, list[dict[str, Any]]]) -> None:
    record, events = sample
    kind = event_type(record)
    for raw in events:
        data = kind.encode(raw)
        assert len(data) % 8 == 0
        kind.validate(data)
        assert same(kind.decode_raw(data), raw)
        instance = kind.decode(data)
        assert kind.encode(instance) == data
        assert same(kind.to_raw(instance), raw)
        assert kind.encode(kind.from_raw(raw)) == data
        assert same(to_raw(kind.binding, instance), raw)
    joined = kind.encode_many(events)
    assert [bytes(part) for part in split(joined)] == [kind.encode(raw) for raw in events]
    assert kind.encode_many(kind.decode_many(joined)) == joined


@MODEST
@given(st.data())
def test_a_view_reads_each_field_in_place(data: st.DataObject) -> None:
    record = data.draw(records())
    raw = data.draw(raw_events(record))
    kind = event_type(record)
    encoded = kind.encode(raw)
    seen = kind.view(encoded)
    instance = kind.decode(encoded)
    for attr in kind.binding.attrs:
        assert _matches(getattr(seen, attr), getattr(instance, attr))


def _matches(seen: Any, value: Any) -> bool:
    if isinstance(value, Event):
        return all(_matches(getattr(seen, a), getattr(value, a)) for a in value.__struct_fields__)
    if isinstance(seen, np.ndarray):
        assert not seen.flags.writeable or not seen.size
        return same(seen.tolist(), value)
    if isinstance(value, tuple):
        return len(seen) == len(value) and all(map(_matches, seen, value))
    return same(seen, value)


# ── hostile bytes ──


def _only_decode_errors(kind: Any, data: bytes) -> None:
    try:
        kind.validate(data)
        valid = True
    except DecodeError:
        valid = False
    try:
        instance = kind.decode(data)
    except DecodeError:
        assert not valid
        with pytest.raises(DecodeError):
            kind.decode_raw(data)
        instance = None
    if instance is not None:
        raw = kind.decode_raw(data)
        again = kind.encode(instance)
        kind.validate(again)
        assert same(kind.decode_raw(again), raw)
    try:
        batch = kind.records_to_arrow([data])
        batch.to_pylist()
    except DecodeError:
        assert not valid
    try:
        view = kind.view(data)
    except DecodeError:
        return
    for attr in kind.binding.attrs:
        try:
            repr(getattr(view, attr))
        except DecodeError:
            assert not valid


@settings(deadline=None, max_examples=examples(200))
@given(st.data())
def test_mutated_records_are_refused_or_read_cleanly(data: st.DataObject) -> None:
    record = data.draw(records())
    kind = event_type(record)
    encoded = bytearray(kind.encode(data.draw(raw_events(record))))
    for _ in range(data.draw(st.integers(1, 4))):
        how = data.draw(st.sampled_from(("byte", "word", "cut", "grow")))
        at = data.draw(st.integers(0, max(0, len(encoded) - 1)))
        if how == "byte" and encoded:
            encoded[at] = data.draw(st.integers(0, 255))
        elif how == "word":
            word = data.draw(st.sampled_from((0, 1, 8, 16, 24, len(encoded), 0x7FFFFFFF, 0xFFFFFFFF)))
            encoded[at & ~3 : (at & ~3) + 4] = struct.pack("<I", word)
        elif how == "cut":
            del encoded[at:]
        else:
            encoded += data.draw(st.binary(max_size=16))
    if data.draw(st.booleans()) and len(encoded) >= 4:
        encoded[:4] = struct.pack("<I", len(encoded))  # an honest size, so that the rest is reached
    _only_decode_errors(kind, bytes(encoded))


@settings(deadline=None, max_examples=examples(80))
@given(records(), st.binary(max_size=120))
def test_random_bytes_are_refused_or_read_cleanly(record: m.Record, noise: bytes) -> None:
    kind = event_type(record)
    _only_decode_errors(kind, noise)
    total = struct.pack("<I", 16 + len(noise))
    _only_decode_errors(kind, total + kind.layout.header + noise)


@settings(deadline=None, max_examples=examples(60))
@given(st.data())
def test_every_truncation_is_refused(data: st.DataObject) -> None:
    record = data.draw(records())
    kind = event_type(record)
    encoded = kind.encode(data.draw(raw_events(record)))
    for end in range(len(encoded)):
        for refuse in (kind.validate, kind.decode, kind.decode_raw):
            with pytest.raises(DecodeError):
                refuse(encoded[:end])
    with pytest.raises(DecodeError):
        kind.decode(encoded + bytes(8))


@MODEST
@given(st.binary(max_size=80))
def test_splitting_noise_is_safe(noise: bytes) -> None:
    try:
        parts = list(split(noise))
    except DecodeError:
        return
    assert b"".join(parts) == noise


class Inner(Event):
    x: f32
    flag: bool | None = None


class Sample(Event):
    small: i8
    big: u64
    ratio: f64
    label: str
    blob: bytes
    at: datetime
    inner: Inner
    values: list[i64]
    octets: list[u8]


SAMPLE = {
    "small": -1,
    "big": 2**64 - 1,
    "ratio": 1,
    "label": "é",
    "blob": b"\0",
    "at": datetime(2020, 1, 2, tzinfo=UTC),
    "inner": {"x": 0.1},
    "values": [1, 2],
    "octets": b"ab",
}


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"small": 128}, "small", "-128 to 127"),
        ({"small": True}, "small", "found bool True"),
        ({"small": 1.0}, "small", "found float"),
        ({"small": None}, "small", "not optional"),
        ({"big": -1}, "big", "found -1"),
        ({"ratio": "1"}, "ratio", "expected a float or int"),
        ({"ratio": 10**400}, "ratio", "beyond the range"),
        ({"label": b"x"}, "label", "expected a str"),
        ({"label": "a\ud800"}, "label", "lone surrogate at index 1"),
        ({"blob": "x"}, "blob", "expected bytes"),
        ({"at": datetime(2020, 1, 2)}, "at", "naive"),
        ({"at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))}, "at", "years 1 to 9999"),
        ({"inner": {"x": 1e39}}, "inner.x", "beyond the range"),
        ({"inner": {"x": 1.0, "flag": 1}}, "inner.flag", "expected a bool"),
        ({"inner": {"y": 1.0}}, "inner.y", "no such field"),
        ({"inner": {}}, "inner.x", "no such key"),
        ({"inner": 3}, "inner", "expected a Inner or a dict"),
        ({"values": [1, 2, 3, "4"]}, "values[3]", "found str '4'"),
        ({"values": [1, 2**63]}, "values[1]", "found 9223372036854775808"),
        ({"values": 3}, "values", "expected a sequence"),
        ({"values": "12"}, "values", "expected a sequence"),
        ({"octets": [256]}, "octets[0]", "0 to 255"),
        ({"labl": "x"}, "labl", "did you mean 'label'"),
    ],
)
def test_a_value_that_does_not_fit_is_named(change: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(EncodeError) as caught:
        event_type(Sample).encode(SAMPLE | change)
    assert caught.value.path == path
    assert words in str(caught.value)


def test_usual_and_unusual_values_that_fit() -> None:
    kind = event_type(Sample)
    data = kind.encode(SAMPLE)
    again = kind.encode(
        small=np.int8(-1),
        big=np.uint64(2**64 - 1),
        ratio=np.float32(1),
        label="é",
        blob=bytearray(1),
        at=datetime(2020, 1, 2, 3, tzinfo=timezone(timedelta(hours=3))),
        inner=Inner(0.1),
        values=np.array([1, 2]),
        octets=array.array("B", b"ab"),
    )
    assert again == data
    event = kind.decode(data)
    assert event.at == SAMPLE["at"]
    assert event.at.tzinfo is UTC
    assert event.inner == Inner(float(np.float32(0.1)))
    assert event.values == [1, 2]
    assert kind.decode(bytearray(data)) == kind.decode(memoryview(data)) == event


def test_an_instance_of_another_class_with_the_same_type_is_accepted() -> None:
    made = event_type(event_type(Inner).record)
    other = type(made)(made.record)
    assert other.encode(Inner(1.0, True)) == event_type(Inner).encode(Inner(1.0, True))


def test_encode_many_names_the_event() -> None:
    with pytest.raises(EncodeError, match=r"\[1\]\.x: expected a float or int") as caught:
        event_type(Inner).encode_many([Inner(1.0), Inner("no")])  # type: ignore[arg-type]
    assert caught.value.path == "[1].x"


def test_decode_many_names_the_record() -> None:
    kind = event_type(Inner)
    bad = bytearray(kind.encode(x=1.0, flag=True) * 2)
    bad[-8] = 7
    with pytest.raises(DecodeError, match="record 1"):
        kind.decode_many(bad)


def _patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


class Row(Event):
    ok: bool | None
    label: str
    words: list[str]


ROW = event_type(Row).encode(ok=True, label="héllo", words=["a", "bc"])


@pytest.mark.parametrize(
    ("data", "words", "offset"),
    [
        (b"", "too short", 0),
        (ROW[:15], "too short", 0),
        (ROW[:-8], "as the header says", 0),
        (_patched(ROW, 4, b"XX"), "magic", 4),
        (_patched(ROW, 6, b"\2\0"), "layout version 1, found 2", 6),
        (_patched(ROW, 8, b"\0"), "another event type", 8),
        (_patched(ROW, 16, b"\3"), "presence bit", 16),
        (_patched(ROW, 16, b"\0"), "ok: expected zeros in the slot of a missing field", 17),
        (_patched(ROW, 17, b"\2"), "ok: expected 0 or 1", 17),
        (_patched(ROW, 20, b"\x10\0\0\0"), "label: offset 16 lies in the header or fixed part", 20),
        (_patched(ROW, 24, b"\xff\xff\xff\xff"), "ends beyond", 24),
        (_patched(ROW, 28, b"\x31\0\0\0"), "not a multiple of 4", 28),
        (_patched(ROW, 41, b"\xff"), "label: invalid UTF-8", 41),
        (_patched(ROW, 46, b"\1"), "padding before the item", 46),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_in_the_bytes_is_named(data: bytes, words: str, offset: int) -> None:
    with pytest.raises(DecodeError, match=words) as caught:
        event_type(Row).validate(data)
    assert caught.value.offset == offset


def test_references_that_share_bytes_are_refused() -> None:
    """A small record must not unfold into a large event."""
    kind = event_type(m.Record("Bomb", (m.Field("a", m.List(m.List(m.I64))),)))
    count = 1000
    head = struct.pack("<II", 24, count)
    body = struct.pack("<II", 24, count) * count
    record = struct.pack("<I", 24 + len(body)) + kind.layout.header + head + body
    for read in (kind.decode, kind.decode_raw, kind.validate):
        with pytest.raises(DecodeError):
            read(record)
    with pytest.raises(DecodeError):
        kind.records_to_arrow([record])
