"""How many bytes events take as records, from their columns: without making the records.

`record_sizes(layout, columns, rows)` is what `len(type.encode(event))` would be for each row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.late import np, pa, pc
from headwater.types.arrow import arrow_type
from headwater.types.event_type import event_type
from headwater.types.layout import Layout, align_up, size_align, stride
from headwater.types.model import BYTES, TEXT, Array, Field, List, Record, Type, walk

Sizes = Any  # an int where all records have one size, else an int64 array


def heap_fields(record: Record) -> tuple[str, ...]:
    """The fields whose values say how long a record is."""
    return tuple(field.name for field in record.fields if _has_heap(field.type))


def record_sizes(layout: Layout, columns: Mapping[str, Any], rows: int) -> Sizes:
    """The size of each row's record. `columns` has at least `heap_fields`, of the type's Arrow types or as dictionaries
    of them; what is absent is missing. An int if every record of the type has the same size."""
    record = layout.record
    names = heap_fields(record)
    if not names:
        return layout.size
    if not all(_is_simple(record.by_name[name].type) for name in names):
        return _by_encoding(layout, columns, names, rows)
    ends: Any = layout.size
    for name in names:
        if name in columns:
            ends = _after(ends, record.by_name[name].type, columns[name])
    return align_up(ends, 8) if isinstance(ends, int) else (ends + 7) & -8


def _has_heap(type: Type) -> bool:
    return any(isinstance(t, List) or t in (TEXT, BYTES) for t in walk(type))


def _is_loose(type: Type) -> bool:
    """Whether nothing that a value of this type refers to needs an alignment, so that only lengths matter."""
    return not any(isinstance(t, List) and size_align(t.element)[1] > 1 for t in walk(type))


def _is_simple(type: Type) -> bool:
    """Whether the ends of its items follow from lengths, row by row: within lists and arrays nothing is aligned."""
    match type:
        case Record(fields=fields):
            return all(_is_simple(field.type) for field in fields)
        case List(element=element) | Array(element=element):
            return _is_loose(element)
    return True


def _after(ends: Any, type: Type, array: Any) -> Any:
    """Where the heap ends after this field, if it ended at `ends` before."""
    match type:
        case Record(fields=fields):
            for field, child in zip(fields, array.flatten(), strict=True):
                if _has_heap(field.type):
                    ends = _after(ends, field.type, child)
            return ends
        case List(element=element) if size_align(element)[1] > 1:
            counts = _counts(array)
            aligned = (ends + (size_align(element)[1] - 1)) & -size_align(element)[1]
            ends = np.where(counts > 0, aligned + counts * stride(element), ends)
            return ends + _within(element, array, counts) if _has_heap(element) else ends
    return ends + _lengths(type, array)


def _lengths(type: Type, array: Any) -> Any:
    """The bytes on the heap of each value of a type that is loose."""
    match type:
        case Record(fields=fields):
            parts = zip(fields, array.flatten(), strict=True)
            return sum((_lengths(f.type, child) for f, child in parts if _has_heap(f.type)), start=_zeros(len(array)))
        case List(element=element):
            counts = _counts(array)
            own = counts * stride(element)
            return own + _within(element, array, counts) if _has_heap(element) else own
        case Array(element=element, shape=shape):
            inner: Type = Array(element, shape[1:]) if len(shape) > 1 else element
            present = array.is_valid().to_numpy(zero_copy_only=False)
            return _within(inner, array, np.where(present, shape[0], 0))
    if pa.types.is_dictionary(array.type):
        of = _plain(pc.binary_length(array.dictionary))
        if not array.indices.null_count:
            return of[array.indices.to_numpy()]
        return np.append(of, 0)[pc.fill_null(array.indices, len(of)).to_numpy()]
    return _plain(pc.binary_length(array))


def _within(element: Type, array: Any, counts: Any) -> Any:
    """The bytes on the heap of each row's elements together."""
    sums = np.concatenate([[0], np.cumsum(_lengths(element, array.flatten()))])
    ends = np.cumsum(counts)
    return sums[ends] - sums[ends - counts]


def _counts(array: Any) -> Any:
    return _plain(pc.list_value_length(array))


def _plain(lengths: Any) -> Any:
    if lengths.null_count:
        lengths = pc.fill_null(lengths, 0)
    return lengths.to_numpy().astype(np.int64, copy=False)


def _zeros(rows: int) -> Any:
    return np.zeros(rows, np.int64)


def _by_encoding(layout: Layout, columns: Mapping[str, Any], names: tuple[str, ...], rows: int) -> Any:
    """Of lists in lists the items are aligned one after another, so records are made, of only what is on the heap. It
    begins at a multiple of 8 in these as well, so it is as long as in the whole ones."""
    fields = tuple(Field(name, layout.record.by_name[name].type, True) for name in names)
    part = event_type(Record(layout.record.name, fields))
    arrays = [columns[name] if name in columns else pa.nulls(rows, arrow_type(part.record.by_name[name].type))
              for name in names]  # fmt: skip
    records = part.arrow_to_records(pa.RecordBatch.from_arrays(arrays, names=list(names)))
    return np.fromiter(map(len, records), np.int64, rows) + (layout.size - part.layout.size)


__all__ = ["heap_fields", "record_sizes"]
