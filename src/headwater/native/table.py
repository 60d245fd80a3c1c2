"""Interests that are a conjunction of comparisons, answered at once by the table-driven kernel (`kernels/table.py`).

    table_for(program)    a TableProgram, or None where the interest is anything more

It gives what compiled code gives, faults included, and takes microseconds to make.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from headwater.ir.nodes import Call, Compare, Const, Expr, IsMissing, Load, Logic, Param, Path, Program, Return, Unary
from headwater.late import np
from headwater.native.kernels.runtime import python_function, runtime
from headwater.native.kernels.table import LOADS
from headwater.native.record import Result, result_of
from headwater.types.layout import HEADER_SIZE, Layout, record_layout, stride
from headwater.types.model import BOOL, BYTES, F64, TEXT, U64, Array, Enum, Record, Type

_ACCEPT = {"eq": 2, "ne": 13, "lt": 1, "le": 3, "gt": 4, "ge": 6}
_SWAPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_SIGNED, _UNSIGNED, _FLOAT, _TEXT, _PREFIX, _PRESENCE = range(6)
_WORD = (1 << 64) - 1

Row = tuple[list[int], Const | Param | None]  # ten words, and whose value goes in the last two


class TableProgram:
    """A conjunction of comparisons on records; calling it returns status | faults << 8."""

    def __init__(self, program: Program, rows: list[Row], params: Mapping[str, Any], counts: Any = None) -> None:
        self.program, self.rows = program, rows
        self.counts_block = np.zeros(8, np.uint64) if counts is None else counts
        self.set_params(params)

    def set_params(self, values: Mapping[str, Any]) -> None:
        """New raw values; calls under way keep the old ones."""
        layout = Layout.of(self.program.input)
        head = layout.header
        words = [layout.size, int.from_bytes(head[:4], "little"), int.from_bytes(head[4:], "little"), len(self.rows)]
        texts = [_text(source, values) for _, source in self.rows]
        blob = np.frombuffer(b"".join(texts) or b"\0", np.uint8)
        at = blob.ctypes.data
        for (row, source), text in zip(self.rows, texts, strict=True):
            value = _bits(source, values)
            if row[7] in (_TEXT, _PREFIX):
                value, at = at, at + len(text)
            words += [*row, value, len(text), 0, 0]
        table = np.array(words, np.uint64)
        env = np.array([table.ctypes.data], np.uint64)
        keep = (blob, table, env, self.counts_block)
        where = (runtime()["hw_table"], env.ctypes.data, self.counts_block.ctypes.data)
        self.call = python_function("hw_py_run", *where, keep)
        self.test = python_function("hw_py_test", *where, keep)

    def __call__(self, record: Any) -> int:
        return self.call(record)  # type: ignore[no-any-return]

    def run(self, record: Any) -> Result:
        return result_of(self.call(record))


def table_for(program: Program, *, params: Mapping[str, Any] | None = None, counts: Any = None) -> TableProgram | None:
    """The table of a conjunction of comparisons, or None where the program is anything more."""
    body = program.body
    if program.output is not None or len(body) != 1 or not isinstance(body[0], Return):
        return None
    value = body[0].value
    terms = value.args if isinstance(value, Logic) and value.op == "and" else (value,)
    rows: list[Row] = []
    for term in terms:
        row = _row(program.input, term)
        if row is None:
            return None
        rows.append(row)
    return TableProgram(program, rows, params or {}, counts)


def _row(record: Record, term: Expr) -> Row | None:
    match term:
        case Load(type=type) if type == BOOL:
            return _truth(record, term, True)
        case Unary(op="not", a=Load() as load):
            return _truth(record, load, False)
        case IsMissing(a=Load() as load):
            return _presence(record, load, True)
        case Unary(op="not", a=IsMissing(a=Load() as load)):
            return _presence(record, load, False)
        case Compare(op=op, a=Load() as load, b=Const() | Param() as other):
            return _compare(record, op, load, other)
        case Compare(op=op, a=Const() | Param() as other, b=Load() as load):
            return _compare(record, _SWAPPED[op], load, other)
        case Call(fn="starts_with", args=(Load() as load, (Const() | Param()) as other)):
            place = _place(record, load.path)
            return None if place is None else ([*place[0], 0, place[1], 2, _PREFIX], other)
        case _:
            return None


def _truth(record: Record, load: Load, wanted: bool) -> Row | None:
    place = _place(record, load.path)
    return None if place is None else ([*place[0], LOADS["u8"], place[1], 4 if wanted else 2, _SIGNED], Const(0, BOOL))


def _presence(record: Record, load: Load, wanted: bool) -> Row | None:
    place = _place(record, load.path)
    return None if place is None else ([*place[0], 0, place[1], 2 if wanted else 1, _PRESENCE], None)


def _compare(record: Record, op: str, load: Load, other: Const | Param) -> Row | None:
    place = _place(record, load.path)
    if place is None or load.type != other.type:
        return None
    stored, (pair, offset) = load.stored, place
    if stored == BOOL:
        if not isinstance(other, Const):
            return None
        return _truth(record, load, (op == "eq") == bool(other.value))
    if stored in (TEXT, BYTES):
        return [*pair, 0, offset, _ACCEPT[op], _TEXT], other
    name = "i32" if isinstance(stored, Enum) else "i64" if str(stored) == "timestamp" else str(stored)
    if name not in LOADS:
        return None
    kind = _FLOAT if load.type == F64 else _UNSIGNED if load.type == U64 else _SIGNED
    return [*pair, LOADS[name], offset, _ACCEPT[op], kind], other


def _place(record: Record, path: Path) -> tuple[list[int], int] | None:
    """Two presence checks and the offset of a slot; None for what moves or needs more checks."""
    here: Type = record
    offset, checks = HEADER_SIZE, []
    for step in path.steps:
        if isinstance(step, str) and isinstance(here, Record):
            slot = record_layout(here).slots[step]
            if slot.bit is not None:
                checks.append((offset + slot.bit // 8, 1 << slot.bit % 8))
            offset, here = offset + slot.offset, slot.type
        elif isinstance(here, Array) and isinstance(step, Const) and 0 <= int(step.value) < here.shape[0]:
            inner = Array(here.element, here.shape[1:]) if len(here.shape) > 1 else None
            offset += int(step.value) * stride(here.element) * (inner.count if inner else 1)
            here = inner or here.element
        else:
            return None
    if len(checks) > 2:
        return None
    checks += [(0, 0)] * (2 - len(checks))
    return [checks[0][0], checks[0][1], checks[1][0], checks[1][1]], offset


def _value(source: Const | Param | None, values: Mapping[str, Any]) -> Any:
    return None if source is None else source.value if isinstance(source, Const) else values[source.name]


def _text(source: Const | Param | None, values: Mapping[str, Any]) -> bytes:
    value = _value(source, values)
    return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else b""


def _bits(source: Const | Param | None, values: Mapping[str, Any]) -> int:
    value = _value(source, values)
    if isinstance(value, float):
        return int.from_bytes(struct.pack("<d", value), "little")
    return int(value) & _WORD if isinstance(value, int) else 0
