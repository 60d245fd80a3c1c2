"""What a program is given besides the record: an immutable block of words.

    env      0 parameters   1 state   2 output   3 fuel   4.. meta: source (pointer, length, there), node, seq (value,
             there), time
    params   six words for each declared parameter
             scalar   value or pointer, length, there
             set      keys, count, data of texts
             map      keys, count, data of texts, values, data of texts

Keys are sorted; texts are sorted by their bytes and given as count + 1 offsets into data. New values make a new block;
a call under way keeps the one it was given.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any

from headwater.ir.interp import EventContext
from headwater.ir.nodes import ParamDecl
from headwater.late import np
from headwater.native.emit import Fn, Val, is_text, llvm
from headwater.types.model import BOOL, F64, U64, Type

PARAMS, STATE, OUTPUT, FUEL_WORD = 0, 1, 2, 3
META = {"source": 4, "node": 7, "seq": 10, "time": 12}
WORDS = 14
_PER_PARAM = 6


class ParamSlots:
    """Reads parameters in generated code; `block` is the pointer to them."""

    def __init__(self, decls: Iterable[ParamDecl], block: str) -> None:
        self.decls = {decl.name: decl for decl in decls}
        self.block = block
        self._at = {name: i * _PER_PARAM * 8 for i, name in enumerate(self.decls)}

    def _word(self, fn: Fn, name: str, word: int, type: str) -> str:
        return fn.load(type, fn.gep(self.block, self._at[name] + 8 * word), 8)

    def scalar(self, fn: Fn, name: str) -> Val:
        decl = self.decls[name]
        if is_text(decl.type):
            return Val(self._word(fn, name, 0, "ptr"), None, self._word(fn, name, 1, "i64"))
        return Val(_from_word(fn, decl.type, fn.gep(self.block, self._at[name])))

    def keys(self, fn: Fn, name: str) -> tuple[str, str, str]:
        """Pointer to keys, their count, pointer to the texts' data."""
        return self._word(fn, name, 0, "ptr"), self._word(fn, name, 1, "i64"), self._word(fn, name, 2, "ptr")

    def value_at(self, fn: Fn, decl: ParamDecl, found: str, ok: str | None) -> Val:
        """A map's value at a position; below 0 it is missing. There is always a first word to read."""
        assert decl.value is not None
        there = fn.v(f"icmp sge i64 {found}, 0")
        at = fn.select(there, "i64", found, "0")
        word = fn.at_index("i64", self._word(fn, decl.name, 3, "ptr"), at)
        ok = fn.and_(ok, there)
        if not is_text(decl.value):
            return Val(_from_word(fn, decl.value, word), ok)
        start = fn.load("i64", word, 8)
        end = fn.load("i64", fn.gep(word, 8), 8)
        text = fn.gep(self._word(fn, decl.name, 4, "ptr"), start)
        return Val(text, ok, fn.v(f"sub i64 {end}, {start}"))


def _from_word(fn: Fn, type: Type, ptr: str) -> str:
    if type == BOOL:
        return fn.v(f"icmp ne i64 {fn.load('i64', ptr, 8)}, 0")
    return fn.load(llvm(type), ptr, 8)


def read_meta(fn: Fn, env: str, name: str, type: Type) -> Val:
    """What the service knows of a record's event."""
    at = META[name]
    x = fn.load(llvm(type), fn.gep(env, 8 * at), 8)
    there = fn.v(f"icmp ne i64 {fn.load('i64', fn.gep(env, 8 * (at + (2 if is_text(type) else 1))), 8)}, 0")
    if is_text(type):
        return Val(x, there, fn.load("i64", fn.gep(env, 8 * (at + 1)), 8))
    return Val(x, there)


# ── the Python side ──


class ParamBlock:
    """Parameter values in memory, from their raw form (`ir.params.bind`)."""

    def __init__(self, decls: Iterable[ParamDecl], values: Mapping[str, Any]) -> None:
        decls = tuple(decls)
        self.kept: list[Any] = []
        words: list[int] = []
        for decl in decls:
            block = self._words(decl, values[decl.name])
            words += block + [0] * (_PER_PARAM - len(block))
        self.memory = np.array(words or [0], np.uint64)
        self.address = self.memory.ctypes.data

    def _words(self, decl: ParamDecl, value: Any) -> list[int]:
        if decl.kind == "scalar":
            if is_text(decl.type):
                data = _bytes(value)
                return [self._keep(np.frombuffer(data or b"\0", np.uint8)), len(data), 1]
            return [_bits(value, decl.type), 0, 1]
        keys = sorted(value, key=_bytes) if is_text(decl.type) else sorted(value)
        block = self._column(keys, decl.type)
        words = [block[0], len(keys), block[1]]
        if decl.kind == "map":
            assert decl.value is not None
            words += self._column([value[key] for key in keys], decl.value)
        return words

    def _column(self, values: list[Any], type: Type) -> list[int]:
        """Addresses of the words (offsets of texts) and of the texts' data."""
        if is_text(type):
            items = [_bytes(value) for value in values]
            ends = np.zeros(max(2, len(items) + 1), np.int64)
            if items:
                ends[1:] = np.cumsum([len(item) for item in items])
            return [self._keep(ends), self._keep(np.frombuffer(b"".join(items) or b"\0", np.uint8))]
        if type == F64:
            return [self._keep(np.array(values or [0.0], np.float64)), 0]
        return [self._keep(np.array([_bits(value, type) for value in values] or [0], np.uint64)), 0]

    def _keep(self, array: Any) -> int:
        self.kept.append(array)
        return int(array.ctypes.data)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _bits(value: Any, type: Type) -> int:
    if type == F64:
        return int(np.float64(value).view(np.uint64))
    return int(value) & ((1 << 64) - 1) if type != U64 else int(value)


def put_meta(env: Any, meta: EventContext) -> list[Any]:
    """Write meta into a block of one's own; the returned texts must outlive the call."""
    kept: list[Any] = []
    for name in ("source", "node"):
        text = getattr(meta, name)
        at = META[name]
        if text is None:
            env[at] = env[at + 1] = env[at + 2] = 0
            continue
        data = text.encode()
        held = ctypes.c_char_p(data)
        kept.append(held)
        env[at], env[at + 1], env[at + 2] = ctypes.cast(held, ctypes.c_void_p).value or 0, len(data), 1
    for name in ("seq", "time"):
        number, at = getattr(meta, name), META[name]
        env[at], env[at + 1] = (0, 0) if number is None else (number & ((1 << 64) - 1), 1)
    return kept
