"""The layout, byte by byte, and fingerprints that must never change."""

from __future__ import annotations

import enum
import struct
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings

from headwater.errors import TypeDeclarationError
from headwater.types import Array, Event, event_type, f32, i16, u8
from headwater.types import model as m
from headwater.types.layout import HEADER_SIZE, Layout, align_up, record_layout, size_align
from tests.effort import examples
from tests.strategies import records


class Kind(enum.Enum):
    USER = 3
    EQUIPMENT = 7


class Place(Event):
    floor: u8 | None
    height: i16


class Badge(Event, name="ie.tcd.Badge"):
    near: bool
    level: f32 | None
    network: str
    kind: Kind
    seen: datetime | None
    place: Place
    grid: Array[u8, 2, 3]
    tags: list[str]
    samples: list[float]


def test_a_record_written_out_by_hand() -> None:
    kind = event_type(Badge)
    data = kind.encode(
        near=True,
        level=0.5,
        network="né",
        kind=Kind.EQUIPMENT,
        seen=None,
        place=Place(None, -2),
        grid=((1, 2, 3), (4, 5, 6)),
        tags=["a", "", "bc"],
        samples=[1.0, -1.0],
    )
    expected = b"".join(
        [
            struct.pack("<I", 144),
            b"HW",
            struct.pack("<HQ", 1, kind.fingerprint),
            # 16: the presence bitmap (level), near, padding, level
            b"\x01",
            b"\x01",
            bytes(2),
            struct.pack("<f", 0.5),
            # 24: network, 3 bytes in the heap
            struct.pack("<II", 80, 3),
            # 32: kind, padding; 40: seen, missing
            struct.pack("<i", 7),
            bytes(4),
            bytes(8),
            # 48: place: its bitmap, floor missing, height
            b"\x00\x00" + struct.pack("<h", -2),
            # 52: grid, padding; 60: tags; 68: samples; 76: padding to 80
            bytes([1, 2, 3, 4, 5, 6]),
            bytes(2),
            struct.pack("<II", 84, 3),
            struct.pack("<II", 112, 2),
            bytes(4),
            # 80: the heap: network, padding to 84, the references of tags, then what they refer to
            "né".encode(),
            bytes(1),
            struct.pack("<IIIIII", 108, 1, 0, 0, 109, 2),
            b"abc",
            bytes(1),
            # 112: samples
            struct.pack("<dd", 1.0, -1.0),
        ]
    )
    assert kind.layout.size == 80
    assert data == struct.pack("<I", len(expected)) + expected[4:]
    assert len(data) == 128


def test_slots_are_relative_to_their_level() -> None:
    layout = Layout.of(event_type(Badge).record)
    offsets = {name: (slot.offset, slot.bit, slot.size) for name, slot in layout.slots.items()}
    assert offsets["near"] == (1, None, 1)
    assert offsets["level"] == (4, 0, 4)
    assert offsets["seen"] == (24, 1, 8)
    assert offsets["place"] == (32, None, 4)
    place = record_layout(event_type(Place).record)
    assert (place.size, place.align, place.bitmap_bytes) == (4, 2, 1)
    assert place.slots["height"].offset == 2


@settings(deadline=None, max_examples=examples(100))
@given(records())
def test_slots_are_aligned_and_do_not_overlap(record: m.Record) -> None:
    layout = Layout.of(record)
    end = layout.level.bitmap_bytes
    for field, slot in zip(record.fields, layout.slots.values(), strict=True):
        size, align = size_align(field.type)
        assert slot.name == field.name
        assert slot.offset % align == 0
        assert slot.offset >= end
        assert slot.size == size
        end = slot.offset + size
    assert layout.size == HEADER_SIZE + align_up(layout.level.size, 8)
    assert align_up(end, layout.level.align) == layout.level.size


def test_fingerprints_never_change() -> None:
    assert event_type(Place).fingerprint == PLACE
    assert event_type(Badge).fingerprint == BADGE
    assert event_type(event_type(Badge).record).fingerprint == BADGE


PLACE = 0x7109D6ED7942AA57
BADGE = 0x7A0C277F01800E65


def test_the_wide_field_of_a_simulation() -> None:
    record = m.Record("Wind", (m.Field("grid", m.Array(m.F64, (253, 37))),))
    assert Layout.of(record).size == 16 + 8 * 253 * 37


def test_what_cannot_be_laid_out_is_refused() -> None:
    with pytest.raises(TypeDeclarationError, match="at least one field"):
        Layout.of(m.Record("Empty", ()))
    with pytest.raises(TypeDeclarationError, match="more than"):
        Layout.of(m.Record("Huge", (m.Field("a", m.Array(m.F64, (1 << 20, 1 << 20))),)))
    deep: m.Type = m.I8
    for _ in range(20):
        deep = m.List(deep)
    with pytest.raises(TypeDeclarationError, match="nested at most 16 deep, found 22"):
        Layout.of(m.Record("Deep", (m.Field("a", deep),)))


def test_the_deepest_type_works() -> None:
    deep: m.Type = m.I8
    value: object = 1
    for _ in range(14):
        deep, value = m.List(deep), (value,)
    kind = event_type(m.Record("Deep", (m.Field("a", deep, True),)))
    assert kind.decode_raw(kind.encode(a=value)) == {"a": value}


def test_equal_events_have_equal_bytes() -> None:
    kind = event_type(Place)
    assert kind.encode(Place(None, 1)) == kind.encode({"height": 1}) == kind.encode(floor=None, height=1)
    assert datetime.now(UTC).tzinfo is UTC
