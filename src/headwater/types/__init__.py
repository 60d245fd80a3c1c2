"""Event types: declaring them, their record layout and Arrow schema, and how one fits another. No I/O."""

from headwater.types.codec import split
from headwater.types.declaration import parse_record
from headwater.types.event import (
    Array,
    Event,
    Shape,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    text,
    timestamp,
    u8,
    u16,
    u32,
    u64,
)
from headwater.types.event_type import EventType, event_type
from headwater.types.evolution import Plan, evolve, plan
from headwater.types.layout import Layout
from headwater.types.model import Field, Record
from headwater.types.view import View

__all__ = [
    "Array",
    "Event",
    "EventType",
    "Field",
    "Layout",
    "Plan",
    "Record",
    "Shape",
    "View",
    "event_type",
    "evolve",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "parse_record",
    "plan",
    "split",
    "text",
    "timestamp",
    "u8",
    "u16",
    "u32",
    "u64",
]
