"""Hypothesis strategies shared by all rooms: random event types and random events of a type.

`records()` draws `model.Record`s, `raw_events(record)` draws events in the raw form (nested dicts by field name,
None for missing, timestamps as int microseconds, enumerations as int codes, arrays and lists as tuples, f32
already rounded). `same(a, b)` compares two raw values with NaN equal to NaN and 0.0 different from -0.0.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from headwater.types import model as m

NAMES = ("a", "b", "c", "level", "network", "seen", "x", "y", "z", "größe", "value_2", "T")
ODD_NAMES = ("with space", "class", "0", "a.b", "'quoted'", "__init__", "日本")
SAMPLE_TEXTS = ("", "a", "A", "ab", "ORL-Net#1", "é", "e\u0301", "日本", "😀", "\x00", "a\x00b", "%", "_", "\uffff")
SAMPLE_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 0.1, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan, 2.0**53)

NUMBERS: tuple[m.Scalar, ...] = (*m.INTEGERS, m.F32, m.F64)
ALL_SCALARS: tuple[m.Scalar, ...] = (m.BOOL, *NUMBERS, m.TEXT, m.BYTES, m.TIMESTAMP)


def scalars() -> st.SearchStrategy[m.Scalar]:
    return st.sampled_from(ALL_SCALARS)


@st.composite
def enums(draw: st.DrawFn) -> m.Enum:
    names = draw(st.lists(st.sampled_from(("RED", "GREEN", "BLUE", "naïve")), min_size=1, max_size=4, unique=True))
    codes = draw(
        st.one_of(
            st.just(list(range(len(names)))),
            st.lists(st.integers(-(2**31), 2**31 - 1), min_size=len(names), max_size=len(names), unique=True),
        )
    )
    return m.Enum(draw(st.sampled_from(("Colour", "Mode"))), tuple(zip(names, codes, strict=True)))


def types(depth: int = 2, *, names: Sequence[str] = NAMES) -> st.SearchStrategy[m.Type]:
    """Any type, nested at most `depth` deep."""
    flat = st.one_of(scalars(), enums())
    if depth <= 0:
        return flat
    inner = types(depth - 1, names=names)
    element = inner.filter(lambda t: not isinstance(t, m.Array))
    shapes = st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple)
    return st.one_of(
        flat,
        flat,
        st.builds(m.Array, element, shapes),
        st.builds(m.List, inner),
        records(depth - 1, max_fields=3, names=names),
    )


@st.composite
def records(
    draw: st.DrawFn,
    depth: int = 2,
    *,
    min_fields: int = 1,
    max_fields: int = 6,
    names: Sequence[str] = NAMES,
    field_types: st.SearchStrategy[m.Type] | None = None,
) -> m.Record:
    """A record type. `field_types` restricts what its fields may be; `names` what they are called."""
    chosen = draw(
        st.lists(st.sampled_from(names), min_size=min_fields, max_size=min(max_fields, len(names)), unique=True)
    )
    kinds = field_types if field_types is not None else types(depth, names=names)
    fields = tuple(m.Field(name, draw(kinds), draw(st.booleans())) for name in chosen)
    return m.Record(draw(st.sampled_from(("Reading", "ie.tcd.Sighting", "P"))), fields)


def flat_records(**options: Any) -> st.SearchStrategy[m.Record]:
    """Records of scalars and enumerations only."""
    return records(0, **options)


def round_f32(value: float) -> float:
    """The nearest value of 32 bits; beyond its range, an infinity."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def integers(low: int, high: int) -> st.SearchStrategy[int]:
    """Small numbers, extremes and anything between."""
    edges = sorted({n for n in (low, low + 1, -1, 0, 1, 2, high - 1, high) if low <= n <= high})
    near = st.integers(max(low, -10), min(high, 10))
    return st.one_of(near, st.sampled_from(edges), st.integers(low, high))


def floats() -> st.SearchStrategy[float]:
    return st.one_of(st.sampled_from(SAMPLE_FLOATS), st.floats(), st.integers(-10, 10).map(float))


def texts() -> st.SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(SAMPLE_TEXTS),
        st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
    )


def raw_values(type: m.Type, *, optional: bool = False) -> st.SearchStrategy[Any]:
    """A value of a type in the raw form."""
    strategy: st.SearchStrategy[Any]
    match type:
        case m.Scalar(name="bool"):
            strategy = st.booleans()
        case m.Scalar(name="text"):
            strategy = texts()
        case m.Scalar(name="bytes"):
            strategy = st.binary(max_size=8)
        case m.Scalar(name="timestamp"):
            strategy = integers(*type.range) | st.integers(1_500_000_000_000_000, 1_800_000_000_000_000)
        case m.Scalar(name="f32"):
            strategy = floats().map(round_f32)
        case m.Scalar(name="f64"):
            strategy = floats()
        case m.Scalar():
            strategy = integers(*type.range)
        case m.Enum(members=members):
            strategy = st.sampled_from([code for _, code in members])
        case m.Array(element=element, shape=shape):
            strategy = raw_values(element)
            for n in reversed(shape):
                strategy = st.tuples(*[strategy] * n)
        case m.List(element=element):
            strategy = st.lists(raw_values(element), max_size=4).map(tuple)
        case m.Record():
            strategy = raw_events(type)
    return st.none() | strategy if optional else strategy


def raw_events(record: m.Record) -> st.SearchStrategy[dict[str, Any]]:
    """An event of a type in the raw form."""
    names = [field.name for field in record.fields]
    values = st.tuples(*(raw_values(field.type, optional=field.optional) for field in record.fields))
    return values.map(lambda drawn: dict(zip(names, drawn, strict=True)))


@st.composite
def records_with_events(
    draw: st.DrawFn, *, max_events: int = 5, kinds: st.SearchStrategy[m.Record] | None = None
) -> tuple[m.Record, list[dict[str, Any]]]:
    """A record type and a few of its events."""
    record = draw(kinds if kinds is not None else records())
    return record, draw(st.lists(raw_events(record), max_size=max_events))


def same(left: Any, right: Any) -> bool:
    """Whether two raw values are equal: of the same type, with NaN equal to NaN, and -0.0 not equal to 0.0."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or struct.pack("<d", left) == struct.pack("<d", right)
    return bool(left == right)
