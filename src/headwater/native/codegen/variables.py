"""Where variables live: locals on the stack, state in the interest's own block of memory.

State block: variable after variable in slot order, 8 bytes for each value, then one byte for each that says it is
there, padded to 8. `StateBlock` is the Python side and carries state between the interpreter and native code.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from headwater.ir.interp import State
from headwater.ir.nodes import Program
from headwater.late import np
from headwater.native.emit import Fn, Val, is_text, llvm
from headwater.types.model import BOOL, F64, U64, Type, promote


def _count(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def state_offsets(program: Program) -> tuple[dict[int, int], int]:
    """Byte offset of each state variable's block, and the size of all."""
    offsets: dict[int, int] = {}
    at = 0
    for slot, variable in enumerate(program.variables):
        if variable.state:
            offsets[slot] = at
            at += 8 * _count(variable.shape) + (_count(variable.shape) + 7) // 8 * 8
    return offsets, at


class Places:
    """Reads and writes variables in generated code. `state` is the pointer to the state block."""

    def __init__(self, fn: Fn, program: Program, state: str) -> None:
        self.fn, self.program, self.state = fn, program, state
        self.offsets, _ = state_offsets(program)
        self.parts: dict[int, list[tuple[str, str]]] = {}  # slot: (llvm type, pointer) of value, ok and text parts
        for slot, variable in enumerate(program.variables):
            if variable.state:
                continue
            types = [self._memory(promote(variable.type), bool(variable.shape)), "i8" if variable.shape else "i1"]
            types += ["i64", "i8"] if is_text(variable.type) else []
            n = _count(variable.shape)
            self.parts[slot] = [(t, fn.alloca(f"[{n} x {t}]" if variable.shape else t)) for t in types]

    @staticmethod
    def _memory(type: Type, array: bool) -> str:
        return "i8" if array and type == BOOL else llvm(type)

    def reset(self) -> None:
        """Locals start missing."""
        for slot, parts in self.parts.items():
            shape = self.program.variables[slot].shape
            kind, ok = parts[1]
            if shape:
                self.fn.module.intrinsic("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
                self.fn.do(f"call void @llvm.memset.p0.i64(ptr {ok}, i8 0, i64 {_count(shape)}, i1 false)")
                if len(parts) > 2:  # a text that is not there is still looked at, so its length must be 0
                    size = 8 * _count(shape)
                    self.fn.do(f"call void @llvm.memset.p0.i64(ptr {parts[2][1]}, i8 0, i64 {size}, i1 false)")
            else:
                self.fn.store(kind, "false", ok)
                for type, ptr in (parts[0], *parts[2:]):  # never undefined: missing values are computed with, too
                    self.fn.store(type, {"ptr": "null", "double": "0.0", "i1": "false"}.get(type, "0"), ptr)

    def _pointers(self, slot: int, at: str | None) -> list[tuple[str, str]]:
        fn, variable = self.fn, self.program.variables[slot]
        if variable.state:
            base = fn.gep(self.state, self.offsets[slot])
            kind = "i8" if variable.type == BOOL else llvm(promote(variable.type))
            flags = fn.gep(base, 8 * _count(variable.shape))
            if at is None:
                return [(kind, base), ("i8", flags)]
            return [(kind, fn.at_index("i64", base, at)), ("i8", fn.at_index("i8", flags, at))]
        parts = self.parts[slot]
        return parts if at is None else [(t, fn.at_index(t, p, at)) for t, p in parts]

    def read(self, slot: int, at: str | None) -> Val:
        fn, type = self.fn, promote(self.program.variables[slot].type)
        (kind, x), (flag, ok), *more = self._pointers(slot, at)
        value, there = fn.load(kind, x), fn.load(flag, ok)
        if at is not None:
            value = fn.v(f"freeze {kind} {value}")  # elements are not cleared, only their flags are
        if kind == "i8" and type == BOOL:
            value = fn.v(f"icmp ne i8 {value}, 0")
        if flag == "i8":
            there = fn.v(f"icmp ne i8 {there}, 0")
        if not more:
            return Val(value, there)
        fold = fn.load("i8", more[1][1])
        return Val(value, there, fn.load("i64", more[0][1]), fold if at is None else fn.v(f"freeze i8 {fold}"))

    def write(self, slot: int, at: str | None, value: Val) -> None:
        fn, type = self.fn, promote(self.program.variables[slot].type)
        (kind, x), (flag, ok), *more = self._pointers(slot, at)
        bits, there = value.x, value.ok or "true"
        if kind == "i8" and type == BOOL:
            bits = fn.v(f"zext i1 {bits} to i8")
        if flag == "i8":
            there = fn.v(f"zext i1 {there} to i8")
        fn.store(kind, bits, x)
        fn.store(flag, there, ok)
        if more:
            fn.store("i64", value.n, more[0][1])
            fn.store("i8", value.fold, more[1][1])


class StateBlock:
    """The state of one interest at one source, in memory that native code updates."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.offsets, size = state_offsets(program)
        self.memory = np.zeros(max(size, 8), np.uint8)
        self.address = self.memory.ctypes.data

    def put(self, state: State) -> None:
        """Take over the interpreter's state."""
        for slot, at in self.offsets.items():
            variable = self.program.variables[slot]
            values = state[slot] if variable.shape else [state[slot]]
            flags = at + 8 * len(values)
            for i, value in enumerate(values):
                self.memory[flags + i] = value is not None
                word = bytes(8) if value is None else _word(value, promote(variable.type))
                self.memory[at + 8 * i : at + 8 * i + 8] = np.frombuffer(word, np.uint8)

    def get(self) -> State:
        """The state in the interpreter's form."""
        state: State = {}
        for slot, at in self.offsets.items():
            variable = self.program.variables[slot]
            n, type = _count(variable.shape), promote(variable.type)
            flags = self.memory[at + 8 * n : at + 9 * n]
            words = [bytes(self.memory[at + 8 * i : at + 8 * i + 8]) for i in range(n)]
            values = [_unword(word, type) if flag else None for word, flag in zip(words, flags, strict=True)]
            state[slot] = values if variable.shape else values[0]
        return state


def _word(value: Any, type: Type) -> bytes:
    if type == F64:
        return struct.pack("<d", value)
    return int(value).to_bytes(8, "little", signed=type != U64)


def _unword(word: bytes, type: Type) -> Any:
    if type == F64:
        return struct.unpack("<d", word)[0]
    if type == BOOL:
        return word[0] != 0
    return int.from_bytes(word, "little", signed=type != U64)
