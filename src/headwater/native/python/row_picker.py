"""Rows picked from a batch of plain columns, as records or as an Arrow message, in one pass of machine code.

Arrow's `take` makes a new array for each column, and each costs Python a few microseconds before anything is copied:
more than the copying, where only some of a thousand rows are wanted. Here the batch is handed over once, by Arrow's C
data interface, and the rows are written straight to the bytes that travel.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from headwater.late import np, pa
from headwater.native import engine
from headwater.native.once import once
from headwater.types.arrow import arrow_schema
from headwater.types.layout import HEADER_SIZE, Layout
from headwater.types.model import Record, Scalar

EXPORTED = 80  # bytes of an ArrowArray
ROWS = 8192  # of an Arrow message: its head is remembered by their number
KEPT = 1024  # heads of messages
_MARK = 8  # bytes before a message's head
_PYTHON = ("PyBytes_FromStringAndSize", "PyBytes_AsString", "Py_IncRef")
_LIBC = ("memcpy", "memset")

_HEAD = """
declare ptr @PyBytes_FromStringAndSize(ptr, i64)
declare ptr @PyBytes_AsString(ptr)
declare void @Py_IncRef(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; The words of an ArrowArray: length, null count, offset, buffers' number, children's number, buffers, children,
; dictionary, release. Whether none of the children has a null; a count that is not known is taken for some.
define i1 @hw_whole(ptr %array, i64 %n) {
entry:
  %number_at = getelementptr i64, ptr %array, i64 4
  %number = load i64, ptr %number_at, align 8
  %right = icmp eq i64 %number, %n
  %children_at = getelementptr i64, ptr %array, i64 6
  %children = load ptr, ptr %children_at, align 8
  br i1 %right, label %head, label %no
head:
  %i = phi i64 [ 0, %entry ], [ %next, %good ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %yes
body:
  %child_at = getelementptr ptr, ptr %children, i64 %i
  %child = load ptr, ptr %child_at, align 8
  %nulls_at = getelementptr i64, ptr %child, i64 1
  %nulls = load i64, ptr %nulls_at, align 8
  %next = add i64 %i, 1
  %none = icmp eq i64 %nulls, 0
  br i1 %none, label %good, label %look
look:
  %buffers_at = getelementptr i64, ptr %child, i64 5
  %buffers = load ptr, ptr %buffers_at, align 8
  %valid = load ptr, ptr %buffers, align 8
  %absent = icmp eq ptr %valid, null
  br i1 %absent, label %good, label %no
good:
  br label %head
yes:
  ret i1 true
no:
  ret i1 false
}

define ptr @hw_pick(ptr %array, ptr %table, i64 %n, ptr %rows, i64 %count, ptr %front, i64 %size, i64 %copies,
                    i64 %total, ptr %nothing) {
entry:
  %offset_at = getelementptr i64, ptr %array, i64 2
  %offset = load i64, ptr %offset_at, align 8
  %children_at = getelementptr i64, ptr %array, i64 6
  %children = load ptr, ptr %children_at, align 8
  %whole = call i1 @hw_whole(ptr %array, i64 %n)
  br i1 %whole, label %make, label %none
none:
  call void @Py_IncRef(ptr %nothing)
  br label %leave
make:
  %bytes = call ptr @PyBytes_FromStringAndSize(ptr null, i64 %total)
  %failed = icmp eq ptr %bytes, null
  br i1 %failed, label %leave, label %begin
begin:
  %data = call ptr @PyBytes_AsString(ptr %bytes)
  %fronts = mul i64 %size, %copies
  %rest_at = getelementptr i8, ptr %data, i64 %fronts
  %rest = sub i64 %total, %fronts
  call void @llvm.memset.p0.i64(ptr %rest_at, i8 0, i64 %rest, i1 false)
  br label %copy
copy:
  %j = phi i64 [ 0, %begin ], [ %j_next, %one ]
  %j_more = icmp ult i64 %j, %copies
  br i1 %j_more, label %one, label %columns
one:
  %to_at = mul i64 %j, %size
  %to = getelementptr i8, ptr %data, i64 %to_at
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %front, i64 %size, i1 false)
  %j_next = add i64 %j, 1
  br label %copy
columns:
  %c = phi i64 [ 0, %copy ], [ %c_next, %done ]
  %c_more = icmp ult i64 %c, %n
  br i1 %c_more, label %column, label %leave
column:
  %c_next = add i64 %c, 1
  %spec = getelementptr [3 x i64], ptr %table, i64 %c
  %width = load i64, ptr %spec, align 8
  %base_at = getelementptr i64, ptr %spec, i64 1
  %base = load i64, ptr %base_at, align 8
  %stride_at = getelementptr i64, ptr %spec, i64 2
  %stride = load i64, ptr %stride_at, align 8
  %child_at = getelementptr ptr, ptr %children, i64 %c
  %child = load ptr, ptr %child_at, align 8
  %own_at = getelementptr i64, ptr %child, i64 2
  %own = load i64, ptr %own_at, align 8
  %start = add i64 %own, %offset
  %buffers_at = getelementptr i64, ptr %child, i64 5
  %buffers = load ptr, ptr %buffers_at, align 8
  %values_at = getelementptr ptr, ptr %buffers, i64 1
  %values = load ptr, ptr %values_at, align 8
  %out = getelementptr i8, ptr %data, i64 %base
  switch i64 %width, label %bits [ i64 1, label %w8 i64 2, label %w16 i64 4, label %w32 i64 8, label %w64 ]
"""

_COLUMN = """
w{0}:
  %first{0} = getelementptr i{0}, ptr %values, i64 %start
  br label %head{0}
head{0}:
  %k{0} = phi i64 [ 0, %w{0} ], [ %k_next{0}, %body{0} ]
  %more{0} = icmp ult i64 %k{0}, %count
  br i1 %more{0}, label %body{0}, label %done
body{0}:
  %row_at{0} = getelementptr i64, ptr %rows, i64 %k{0}
  %row{0} = load i64, ptr %row_at{0}, align 8
  %from{0} = getelementptr i{0}, ptr %first{0}, i64 %row{0}
  %value{0} = load i{0}, ptr %from{0}, align 1
  %far{0} = mul i64 %k{0}, %stride
  %to{0} = getelementptr i8, ptr %out, i64 %far{0}
  store i{0} %value{0}, ptr %to{0}, align 1
  %k_next{0} = add i64 %k{0}, 1
  br label %head{0}
"""

_TAIL = """
bits:
  br label %bits_head
bits_head:
  %b = phi i64 [ 0, %bits ], [ %b_next, %bits_body ]
  %b_more = icmp ult i64 %b, %count
  br i1 %b_more, label %bits_body, label %done
bits_body:
  %b_row_at = getelementptr i64, ptr %rows, i64 %b
  %b_row = load i64, ptr %b_row_at, align 8
  %b_at = add i64 %b_row, %start
  %b_byte = lshr i64 %b_at, 3
  %b_from = getelementptr i8, ptr %values, i64 %b_byte
  %b_value = load i8, ptr %b_from, align 1
  %b_low = and i64 %b_at, 7
  %b_shift = trunc i64 %b_low to i8
  %b_moved = lshr i8 %b_value, %b_shift
  %b_bit = and i8 %b_moved, 1
  %b_far = mul i64 %b, %stride
  %b_to = getelementptr i8, ptr %out, i64 %b_far
  store i8 %b_bit, ptr %b_to, align 1
  %b_next = add i64 %b, 1
  br label %bits_head
done:
  br label %columns
leave:
  %made = phi ptr [ %nothing, %none ], [ null, %make ], [ %bytes, %columns ]
  %release_at = getelementptr i64, ptr %array, i64 8
  %release = load ptr, ptr %release_at, align 8
  call void %release(ptr %array)
  ret ptr %made
}

define i64 @hw_no_nulls(ptr %array, i64 %n) {
entry:
  %whole = call i1 @hw_whole(ptr %array, i64 %n)
  %release_at = getelementptr i64, ptr %array, i64 8
  %release = load ptr, ptr %release_at, align 8
  call void %release(ptr %array)
  %found = zext i1 %whole to i64
  ret i64 %found
}
"""


@once
def _code() -> engine.Code:
    source = _HEAD + "".join(_COLUMN.format(bits) for bits in (8, 16, 32, 64)) + _TAIL
    imports = engine.libc(_LIBC) | engine.libc(_PYTHON)
    return engine.compile(source, ("hw_pick", "hw_no_nulls"), imports, "straight")


@once
def _pick() -> Any:
    word, ptr = ctypes.c_int64, ctypes.c_void_p
    kind: Any = ctypes.PYFUNCTYPE(
        ctypes.py_object, ptr, ptr, word, ptr, word, ctypes.c_char_p, word, word, word, ctypes.py_object
    )
    return kind(_code()["hw_pick"])


@once
def _no_nulls() -> Any:
    kind: Any = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
    return kind(_code()["hw_no_nulls"])


class _Exports:
    """Room for ArrowArrays. Who comes while one is out gets another."""

    def __init__(self) -> None:
        self._spare: list[tuple[Any, int]] = []

    def take(self) -> tuple[Any, int]:
        try:
            return self._spare.pop()
        except IndexError:
            room = ctypes.create_string_buffer(EXPORTED)
            return room, ctypes.addressof(room)

    def give(self, room: tuple[Any, int]) -> None:
        self._spare.append(room)


exports = _Exports()


class Picker:
    """Of one event type whose fields are all numbers, bools or times. Batches must be valid and have its schema; for
    one with a null anywhere there is no answer (None)."""

    def __init__(self, layout: Layout) -> None:
        slots = list(layout.slots.values())
        self.schema, self.size, self._columns = arrow_schema(layout.record), layout.size, len(slots)
        front = bytearray(layout.size)
        front[:HEADER_SIZE] = layout.size.to_bytes(4, "little") + layout.header
        table = np.zeros((len(slots), 3), np.int64)
        for row, slot in zip(table, slots, strict=True):
            if slot.bit is not None:
                front[HEADER_SIZE + slot.bit // 8] |= 1 << slot.bit % 8
            bits = isinstance(slot.type, Scalar) and slot.type.name == "bool"
            row[:] = (0 if bits else slot.size, HEADER_SIZE + slot.offset, layout.size)
        self._front, self._table, self._at = bytes(front), table, int(table.ctypes.data)
        self._widths = [] if (table[:, 0] == 0).any() else table[:, 0].tolist()
        self._heads: dict[int, tuple[bytes, Any, int, int]] = {}

    def fits(self, batch: Any) -> bool:
        """Whether this is a valid RecordBatch of the type, as it is, and has no null."""
        if batch.__class__ is not pa.RecordBatch or not batch.schema.equals(self.schema, check_metadata=True):
            return False
        try:
            batch.validate()
        except pa.ArrowInvalid:
            return False
        return no_nulls(batch)

    def records(self, batch: Any, rows: Any) -> list[bytes] | None:
        """The records of some rows, given their numbers (int64)."""
        count, size = len(rows), self.size
        data = self._run(batch, rows, self._at, self._front, count, count * size)
        return None if data is None else [data[at : at + size] for at in range(0, count * size, size)]

    def message(self, batch: Any, rows: Any) -> bytes | None:
        """The Arrow message of some rows, 1 to `ROWS`: the bytes of `batch.take(rows).serialize()`. None of a type with
        bools, too."""
        if not self._widths:
            return None
        found = self._heads.get(len(rows))
        if found is None:
            found = self._head(len(rows))
            if len(self._heads) >= KEPT:
                self._heads.clear()
            self._heads[len(rows)] = found
        head, _, table, total = found
        made: bytes | None = self._run(batch, rows, table, head, 1, total)
        return made

    def _head(self, rows: int) -> tuple[bytes, Any, int, int]:
        """The head of a message of so many rows, where each column goes after it, and how long the message is."""
        zeros = pa.py_buffer(bytes(8 * rows))
        columns = [
            pa.Array.from_buffers(kind, rows, [None, zeros.slice(0, rows * width)])
            for kind, width in zip(self.schema.types, self._widths, strict=True)
        ]
        sample = pa.RecordBatch.from_arrays(columns, schema=self.schema).serialize()
        size = _MARK + int.from_bytes(sample[4:8].to_pybytes(), "little")
        table, at = np.zeros((self._columns, 3), np.int64), size
        for row, width in zip(table, self._widths, strict=True):
            row[:] = (width, at, width)
            at += -(-rows * width // 8) * 8
        assert at == sample.size, "Arrow lays out its messages in another way"
        return sample[:size].to_pybytes(), table, int(table.ctypes.data), at

    def _run(self, batch: Any, rows: Any, table: int, front: bytes, copies: int, total: int) -> Any:
        if not batch.schema.equals(self.schema):
            return None
        rows = np.ascontiguousarray(rows, np.int64)
        room = exports.take()
        batch._export_to_c(room[1])
        at = rows.ctypes.data
        made = _pick()(room[1], table, self._columns, at, len(rows), front, len(front), copies, total, None)
        exports.give(room)
        return made


def no_nulls(batch: Any) -> bool:
    """Whether a batch has no null anywhere in its columns; where that is not known, False."""
    room = exports.take()
    batch._export_to_c(room[1])
    found = _no_nulls()(room[1], batch.num_columns)
    exports.give(room)
    return bool(found)


@lru_cache(maxsize=256)
def picker(record: Record) -> Picker | None:
    """What picks rows of batches of a type; None if it has fields of other kinds than it can take."""
    layout = Layout.of(record)
    plain = all(isinstance(s.type, Scalar) and s.type.name not in ("text", "bytes") for s in layout.slots.values())
    return Picker(layout) if plain else None
