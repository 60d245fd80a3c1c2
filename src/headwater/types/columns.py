"""Records to Arrow columns and back, column by column.

Records become columns with numpy: the fixed parts are stacked to a matrix, whose slots are the columns, and what
lies in the heaps is gathered by the references. Everything is checked on the way, as these bytes may be anyone's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.errors import DecodeError
from headwater.late import np, pa
from headwater.types.arrow import arrow_schema, arrow_type, compact
from headwater.types.binding import Binding
from headwater.types.buffers import numpy_dtype
from headwater.types.check import check_header
from headwater.types.codegen import EPOCH, MICROSECOND
from headwater.types.layout import HEADER_SIZE, Layout, record_layout, size_align, stride
from headwater.types.model import BYTES, TEXT, Array, Enum, List, Record, Scalar, Type, walk


def records_to_batch(layout: Layout, records: Sequence[bytes | memoryview]) -> Any:
    """A RecordBatch of the type's schema with one row for each record."""
    sizes = np.fromiter(map(len, records), np.int64, len(records))
    return packed_to_batch(layout, np.frombuffer(b"".join(records), np.uint8), sizes)


def packed_to_batch(layout: Layout, blob: Any, sizes: Any) -> Any:
    """The same for records that lie end to end in an array of bytes, given the size of each."""
    record, schema = layout.record, arrow_schema(layout.record)
    starts = np.cumsum(sizes) - sizes
    cells = _fixed_parts(layout, blob, starts, sizes)
    gather = _Gather(layout, blob, starts, sizes)
    columns = gather.fields(record, cells, starts, None)
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    try:
        batch.validate(full=True)  # UTF-8 among the rest
    except pa.ArrowInvalid as error:
        raise DecodeError(f"not records of {record.name}: {error}") from None
    return batch


def flat_records(layout: Layout, batch: Any) -> list[bytes] | None:
    """The records of a batch that conforms, by transposing it, where all its fields are numbers and none is missing;
    None for any other."""
    slots = list(layout.slots.values())
    if not all(isinstance(slot.type, Scalar) and slot.type.name not in ("text", "bytes") for slot in slots):
        return None
    if any(column.null_count for column in batch.columns):
        return None
    count = batch.num_rows
    cells = np.zeros((count, layout.size), np.uint8)
    cells[:, :HEADER_SIZE] = np.frombuffer(layout.size.to_bytes(4, "little") + layout.header, np.uint8)
    for slot, column in zip(slots, batch.columns, strict=True):
        if slot.bit is not None:
            cells[:, HEADER_SIZE + slot.bit // 8] |= 1 << slot.bit % 8
        at = HEADER_SIZE + slot.offset
        assert isinstance(slot.type, Scalar)
        if slot.type.name == "bool":
            values: Any = column.to_numpy(zero_copy_only=False).astype(np.uint8)
        elif slot.type.name == "timestamp":
            values = column.view(pa.int64()).to_numpy()
        else:
            values = column.to_numpy()
        cells[:, at : at + slot.size] = np.ascontiguousarray(values).view(np.uint8).reshape(count, slot.size)
    made: list[bytes] = np.frombuffer(cells.data, f"V{layout.size}").tolist() if count else []
    return made


def _fixed_parts(layout: Layout, blob: Any, starts: Any, sizes: Any) -> Any:
    """The fixed parts as a matrix of bytes, a row for each record, after checking the headers."""
    count = len(sizes)
    if count and sizes.min() >= layout.size:
        if sizes.max() == layout.size:
            stacked = blob.reshape(count, layout.size)
        elif (sizes & 7).any():
            stacked = blob[np.arange(layout.size) + starts[:, None]]
        else:  # as of every canonical record
            stacked = blob.view(np.uint64)[np.arange(layout.size // 8) + (starts // 8)[:, None]].view(np.uint8)
        totals = _numbers(stacked[:, :4], np.dtype("<u4"))
        header = np.frombuffer(layout.header, np.uint8)
        if (totals == sizes).all() and (stacked[:, 4:HEADER_SIZE] == header).all():
            return stacked[:, HEADER_SIZE:]
    for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        try:
            check_header(layout, blob[start : start + size].tobytes())
        except DecodeError as error:
            raise DecodeError(f"record {i}: {error}") from error
    return np.zeros((0, layout.size - HEADER_SIZE), np.uint8)


class _Gather:
    """Gathers columns from records whose headers have been checked."""

    def __init__(self, layout: Layout, blob: Any, starts: Any, sizes: Any) -> None:
        self.heap = layout.size
        self.blob = blob
        self.sizes = sizes
        self.starts = starts

    def fields(self, record: Record, cells: Any, base: Any, present: Any) -> list[Any]:
        """The columns of one record level; `present` says which rows have it at all (None: every one)."""
        level = record_layout(record)
        columns = []
        for slot in level.slots.values():
            there = present
            if slot.bit is not None:
                bit = (cells[:, slot.bit // 8] >> slot.bit % 8 & 1).astype(bool)
                there = bit if present is None else bit & present
            part = cells[:, slot.offset : slot.offset + slot.size]
            columns.append(self.column(slot.type, part, base, there, slot.bit is not None, slot.name))
        return columns

    def column(self, type: Type, cells: Any, base: Any, present: Any, optional: bool, name: str) -> Any:
        """The column of a slot. `optional` says whether absence shows as null here or in an outer level; `base`, where
        the record of each cell begins, is only asked for by what has references in it."""
        mask = ~present if optional else None
        count = len(cells)
        match type:
            case Scalar(name="text" | "bytes"):
                data, offsets = self.items(cells, base, 1, name)
                lists = pa.Array.from_buffers(
                    pa.binary(), count, [_validity(mask), pa.py_buffer(offsets), pa.py_buffer(data)]
                )
                return lists.view(arrow_type(type))
            case Scalar(name="bool"):
                values = np.ascontiguousarray(cells)[:, 0] if count else np.zeros(0, np.uint8)
                if (values > 1).any():
                    raise DecodeError(f"{name}: expected 0 or 1 for a bool, found {max(values)}")
                return pa.array(values.astype(bool), mask=mask)
            case Scalar():
                numbers = _numbers(cells, numpy_dtype(type))
                if type.name == "timestamp" and count:
                    low, high = type.range
                    if numbers.min() < low or numbers.max() > high:
                        raise DecodeError(f"{name}: expected times in the years 1 to 9999")
                buffers = [_validity(mask), pa.py_buffer(numbers)]
                return pa.Array.from_buffers(arrow_type(type), count, buffers)
            case Enum():
                return self.enums(type, cells, present, mask, name)
            case Record():
                children = self.fields(type, cells, base, present)
                arrow = arrow_type(type)
                fields = [arrow.field(i) for i in range(arrow.num_fields)]
                made = pa.StructArray.from_arrays(children, fields=fields, mask=_arrow_mask(mask))
                return made if children or count else pa.nulls(0, arrow)
            case Array(element=element, shape=shape, count=per_row):
                flat = np.ascontiguousarray(cells).reshape(count * per_row, stride(element))
                repeated = None if present is None else np.repeat(present, per_row)
                inside = np.repeat(base, per_row) if _refers(element) else base
                values = self.column(element, flat, inside, repeated, False, name)
                arrow = arrow_type(type)
                layers = [arrow]
                for _ in shape[1:]:
                    layers.append(layers[-1].value_type)
                for layer in reversed(layers[1:]):
                    values = pa.FixedSizeListArray.from_arrays(values, type=layer)
                return pa.FixedSizeListArray.from_arrays(values, type=arrow, mask=_arrow_mask(mask))
            case List(element=element):
                step = stride(element)
                data, ends = self.items(cells, base, step, name, size_align(element)[1])
                counts = np.diff(ends) // step
                inner = data.reshape(len(data) // step, step)
                inside = np.repeat(base, counts) if _refers(element) else base
                values = self.column(element, inner, inside, None, False, name)
                offsets = pa.array((ends // step).astype(np.int32))
                return pa.ListArray.from_arrays(offsets, values, type=arrow_type(type), mask=_arrow_mask(mask))

    def enums(self, type: Enum, cells: Any, present: Any, mask: Any, name: str) -> Any:
        codes = _numbers(cells, np.dtype("<i4"))
        known = np.array([code for _, code in type.members], np.int32)
        order = np.argsort(known)
        at = np.searchsorted(known[order], codes).clip(0, len(known) - 1)
        indices = order[at].astype(np.int32)
        wrong = known[indices] != codes
        if present is not None:
            wrong &= present
            indices[~present] = 0
        if wrong.any():
            raise DecodeError(f"{name}: {codes[wrong][0]} is no code of enumeration {type.name}")
        names = pa.array([member for member, _ in type.members], pa.utf8())
        return pa.DictionaryArray.from_arrays(pa.array(indices, mask=mask), names)

    def items(self, cells: Any, base: Any, step: int, name: str, align: int = 1) -> tuple[Any, Any]:
        """What the references point at, end to end, and where each begins there (int32)."""
        references = _numbers(cells, np.dtype("<u4"), 2).astype(np.int64)
        offsets, lengths = references[:, 0], references[:, 1] * step
        ends = np.zeros(len(cells) + 1, np.int64)
        if len(cells):
            limit = self.sizes[np.searchsorted(self.starts, base)]
            wrong = (offsets + lengths > limit) | (offsets % align != 0)
            wrong |= np.where(lengths > 0, offsets < self.heap, offsets != 0)
            np.cumsum(lengths, out=ends[1:])
            # Items do not overlap, so a column never holds more than the records do.
            if wrong.any() or ends[-1] > len(self.blob):
                raise DecodeError(f"{name}: a reference lies outside its record or overlaps another")
        if ends[-1] >= 1 << 31:
            raise DecodeError(f"{name}: more than 2 GiB in one column; make smaller batches")
        source = np.arange(ends[-1]) + np.repeat(base + offsets - ends[:-1], lengths)
        return self.blob[source], ends.astype(np.int32)


def _refers(type: Type) -> bool:
    """Whether values of a type have references in them, to what lies in the heap."""
    return any(isinstance(each, List) or each in (TEXT, BYTES) for each in walk(type))


def _numbers(cells: Any, dtype: np.dtype[Any], columns: int = 1) -> Any:
    numbers = np.ascontiguousarray(cells).reshape(-1).view(dtype)
    return numbers if columns == 1 else numbers.reshape(-1, columns)


def _validity(mask: Any) -> Any:
    """An Arrow validity bitmap from a numpy mask of what is null."""
    return None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))


def _arrow_mask(mask: Any) -> Any:
    return None if mask is None else pa.array(mask)


# ── columns to Python ───────────────────────────────────────────────────────────────────────────────────


def column_values(array: Any, binding: Binding, *, raw: bool) -> list[Any]:
    """The values of a column that conforms to the type: instances' values, or the raw form; None for null."""
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False).tolist()
        dense = iter(_present(compact(array).drop_null(), binding, raw))
        return [next(dense) if there else None for there in valid]
    return _present(array, binding, raw)


def _present(array: Any, binding: Binding, raw: bool) -> list[Any]:
    """The values of a column that has no nulls, as Python objects, or (`raw`) as the interpreter takes them."""
    type = binding.type
    match type:
        case Scalar(name="timestamp"):
            micros = array.cast(pa.int64()).to_numpy().tolist()
            return micros if raw else [EPOCH + n * MICROSECOND for n in micros]
        case Scalar():
            return array.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
        case Enum(members=members):
            meaning = [code for _, code in members] if raw else list(binding.members)
            return [meaning[i] for i in array.indices.to_numpy().tolist()]
        case Record():
            children = [
                column_values(child, part, raw=raw) for child, part in zip(array.flatten(), binding.parts, strict=True)
            ]
            return rows(binding, children, raw=raw)
        case Array(shape=shape):
            flat: Any = array
            for _ in shape:
                flat = flat.flatten()
            values = _present(flat, binding.parts[0], raw)
            for n in reversed(shape):
                values = [tuple(values[i : i + n]) for i in range(0, len(values), n)]
            return values
        case List():
            values = _present(array.flatten(), binding.parts[0], raw)
            ends = np.cumsum(array.value_lengths().to_numpy(zero_copy_only=False)).tolist()
            make = binding.cls if binding.cls is list and not raw else tuple
            return [make(values[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def rows(binding: Binding, columns: list[list[Any]], *, raw: bool) -> list[Any]:
    """Events from the values of their columns."""
    if raw:
        names = [f.name for f in binding.record.fields]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return list(map(binding.constructor, *columns))
