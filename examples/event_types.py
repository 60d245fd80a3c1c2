"""Event types: declare, encode, evolve. Run it: `python examples/event_types.py`."""

from __future__ import annotations

import enum
from datetime import UTC, datetime

import headwater as hw
from headwater import Array, Event, f32, f64, i32, i64, u8


class Kind(enum.Enum):
    USER = 1
    EQUIPMENT = 2


class Position(Event):
    x: f64
    y: f64


class Sighting(Event, name="ie.tcd.Sighting"):
    badge: str
    kind: Kind
    zone: u8
    seen: datetime
    where: Position | None  # optional: some sensors do not know
    samples: list[f32]  # a variable array
    matrix: Array[f32, 2, 3]  # a fixed array of two dimensions


event = Sighting(
    badge="0a1b2c",
    kind=Kind.USER,
    zone=7,
    seen=datetime(2026, 1, 31, 9, 30, tzinfo=UTC),
    where=Position(x=1.5, y=2.0),
    samples=[0.25, 0.5],
    matrix=[[1, 2, 3], [4, 5, 6]],
)

kind = hw.event_type(Sighting)
print(kind)

# One record: a header, a fixed part at known offsets, and a small heap for what varies in size.
record = kind.encode(event)
print(f"\n{len(record)} bytes, fingerprint {kind.fingerprint:016x}")
assert kind.decode(record).badge == "0a1b2c"

# Fields can be read in place, without decoding the rest; numeric arrays come as views of the bytes.
view = kind.view(record)
print("zone read in place:", view.zone, "- matrix:", view.matrix.tolist())

# Many events: an Arrow record batch, and pandas from there.
batch = kind.to_arrow([event, event])
print("as Arrow:", batch.num_rows, "rows,", ", ".join(batch.schema.names))
assert kind.from_arrow(batch) == [kind.decode(record)] * 2


# Types evolve by field name: a sink may want less, and wider types where nothing is lost.
class OldSighting(Event):
    badge: str
    zone: i64  # wider than the source's u8
    floor: i32 | None  # the source does not know it


plan = hw.types.evolve(Sighting, OldSighting)
old = hw.event_type(OldSighting).decode(plan.convert(record))
print("\nthe same event for an older sink:", old)


# What does not fit is said when the two are connected, every field at once.
class Strict(Event):
    badge: bytes
    zone: u8
    where: Position


try:
    hw.types.evolve(Sighting, Strict)
except hw.errors.EvolutionError as error:
    print(f"\n{error}")

# Bytes from elsewhere are checked before anything is read from them.
try:
    kind.decode(record[:40])
except hw.errors.DecodeError as error:
    print(f"\n{error}")
