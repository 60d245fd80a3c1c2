"""Interests that are a conjunction of comparisons, answered at once by the table-driven kernel (`kernels/table.py`).

    table_for(program)    a TableProgram, or None where the interest is anything more

It gives what compiled code gives, faults included, and takes microseconds to make.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from headwater.ir.conjunction import Test, place_of, slot_kind, terms_of, test_of, value_of
from headwater.ir.nodes import Const, Expr, Load, Param, Program
from headwater.late import np
from headwater.native.kernels.runtime import python_function, runtime
from headwater.native.kernels.table import LOADS
from headwater.native.record import Result, result_of
from headwater.types.layout import Layout
from headwater.types.model import BOOL, BYTES, F64, TEXT, U64, Record

_ACCEPT = {"eq": 2, "ne": 13, "lt": 1, "le": 3, "gt": 4, "ge": 6}
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
    terms = terms_of(program)
    if not terms:
        return None
    rows: list[Row] = []
    for term in terms:
        row = _row(program.input, term)
        if row is None:
            return None
        rows.append(row)
    return TableProgram(program, rows, params or {}, counts)


def _row(record: Record, term: Expr) -> Row | None:
    match test_of(term):
        case Test("truth", Load() as load, negated=negated):
            return _truth(record, load, not negated)
        case Test("present", Load() as load, negated=negated):
            return _read(record, load, 0, 2 if negated else 1, _PRESENCE, None)
        case Test("prefix", Load() as load, other):
            return _read(record, load, 0, 2, _PREFIX, other)
        case Test(op, Load() as load, Const() | Param() as other, False):
            return _compare(record, op, load, other)
        case _:
            return None


def _read(record: Record, load: Load, how: int, accept: int, kind: int, other: Const | Param | None) -> Row | None:
    place = place_of(record, load.path)
    return None if place is None else ([*place.checks, how, place.offset, accept, kind], other)


def _truth(record: Record, load: Load, wanted: bool) -> Row | None:
    return _read(record, load, LOADS["u8"], 4 if wanted else 2, _SIGNED, Const(0, BOOL))


def _compare(record: Record, op: str, load: Load, other: Const | Param) -> Row | None:
    if load.type != other.type:
        return None
    stored = load.stored
    if stored == BOOL:
        if not isinstance(other, Const):
            return None
        return _truth(record, load, (op == "eq") == bool(other.value))
    if stored in (TEXT, BYTES):
        return _read(record, load, 0, _ACCEPT[op], _TEXT, other)
    how = LOADS.get(slot_kind(stored))
    if how is None:
        return None
    kind = _FLOAT if load.type == F64 else _UNSIGNED if load.type == U64 else _SIGNED
    return _read(record, load, how, _ACCEPT[op], kind, other)


def _text(source: Const | Param | None, values: Mapping[str, Any]) -> bytes:
    value = None if source is None else value_of(source, values)
    return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else b""


def _bits(source: Const | Param | None, values: Mapping[str, Any]) -> int:
    value = None if source is None else value_of(source, values)
    if isinstance(value, float):
        return int.from_bytes(struct.pack("<d", value), "little")
    return int(value) & _WORD if isinstance(value, int) else 0
