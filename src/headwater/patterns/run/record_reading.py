"""All that is wanted of one event, in one call of machine code: which elements it fits, its time, its key, and what
runs remember of it.

Each is an interest of its own (`letters.py`); here they become one program whose output is a row of words:

    flags    bit 0: it passes `among`; bit 1: it has a key; bit 2: it has a time
    letter   the set of elements that it fits by itself
    time     where the pattern says of which field
    key      a word for each part; texts are where they lie in the output
    values   for each value that runs remember, a word and whether it is there

What is not there is 0. An event for which that program has no answer (a record that is none, a text that is not UTF-8)
is judged by one interest after the other, and so is every event until the machine code is there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from headwater.interest import Interest
from headwater.ir.analyse import analyse
from headwater.ir.interp import EventContext, Status
from headwater.ir.nodes import (
    Binary,
    Cast,
    Compare,
    Cond,
    Const,
    Expr,
    IsMissing,
    Logic,
    ParamDecl,
    Path,
    Program,
    Return,
    SetOut,
    Stmt,
    Unary,
)
from headwater.native import in_background
from headwater.native.env import put_meta
from headwater.native.kernels.runtime import python_function
from headwater.native.record import RecordCode, RecordProgram, record_code
from headwater.patterns import model
from headwater.patterns.engine.partitioned import signed
from headwater.types.layout import HEADER_SIZE, Layout
from headwater.types.model import BOOL, BYTES, F64, I64, TEXT, TIMESTAMP, U64, Enum, Field, Record, Type

AMONG, KEYED, TIMED = 1, 2, 4
HEAD = 3  # words before those of the key
WORTH_COMPILING = 64  # events
_PASSED = int(Status.PASSED)
_SIGNS = (1 << 63) - 1
_NOTHING, _YES, _NO = Const(0, I64), Const(True, BOOL), Const(False, BOOL)
Numbering = Callable[[Any], int]


class TooMuch(Exception):
    """The interests of a channel do not become one program."""


class Reading:
    """Events of one channel. `columns` are what runs remember: a value, or None where this channel's events have none,
    and whether a float is to be a word that is ordered as floats are. `key_number` and `number` give texts of keys and
    values their numbers."""

    def __init__(
        self,
        elements: Sequence[tuple[int, Interest | None]],
        channel: model.Channel,
        columns: Sequence[tuple[Expr | None, bool]],
        key_number: Numbering,
        number: Numbering,
    ) -> None:
        self._call: Any = None
        made = _Writer(elements, channel, columns)
        self.key_end = HEAD + made.parts
        self._numberings = {at: key_number if at < self.key_end else number for at in made.texts}
        self._texts = sorted(made.texts.items())
        self._ordered = made.ordered
        self._params = made.params
        self._program = made.program
        self._code: Future[RecordCode] | None = None
        self._asked = 0

    def ready(self, *, wait: bool = False) -> bool:
        """Whether there is machine code now. It is made when this has been asked some times: compiling takes as long as
        reading thousands of events without it."""
        if self._call is not None:
            return True
        self._asked += 1
        if self._code is None and (wait or self._asked >= WORTH_COMPILING):
            analysis = analyse(self._program, refuse=False)
            self._code = in_background(lambda: record_code(analysis))
        if self._code is not None and (wait or self._code.done()) and self._code.exception() is None:
            code = self._code.result()
            if not code.long:
                self._start(RecordProgram(code, params=self._params))
        return self._call is not None

    def _start(self, program: RecordProgram) -> None:
        """Bind the code to memory of its own: one event is read at a time."""
        context = program.context()
        self._meta, self._env, self._out = program.code.meta, context.env, context.out
        self._buffer, self._room = context.buffer, context.room
        assert program.program.output is not None
        form, at = "<", HEADER_SIZE
        for slot in sorted(Layout.of(program.program.output).slots.values(), key=lambda slot: slot.offset):
            place = HEADER_SIZE + slot.offset
            form += f"{place - at}x" * (place > at)
            form += "Q" if slot.type in (TEXT, BYTES) else "i" if isinstance(slot.type, Enum) else "q"
            at = place + slot.size
        self._unpack = struct.Struct(form).unpack_from
        counts = program.counts_block.ctypes.data
        self._call = python_function("hw_py_run", program.code.address, context.address, counts, (program, context))

    def __call__(self, record: Any, meta: EventContext) -> tuple[int, ...] | None:
        """The words of an event, None where it has to be looked at more closely."""
        if self._meta:
            kept = put_meta(self._env, meta)
            status = self._call(record)
            del kept
        else:
            status = self._call(record)
        if status & 255 != _PASSED or self._out[2] > self._room:
            return None
        words: tuple[int, ...] = self._unpack(self._buffer, HEADER_SIZE)
        return words

    def finished(self, read: tuple[int, ...]) -> Sequence[int]:
        """What was read last, with texts as their numbers, floats in their order: of rows that are taken only."""
        if not self._texts and not self._ordered:
            return read
        words = list(read)
        for at, type in self._texts:
            offset, length = words[at] & 0xFFFF_FFFF, words[at] >> 32
            data = bytes(self._buffer[offset : offset + length])
            words[at] = self._numberings[at](data.decode() if type == TEXT else data)
        for at in self._ordered:
            words[at] ^= (words[at] >> 63) & _SIGNS
        return words


class _Writer:
    """The one program of a channel's interests."""

    def __init__(
        self,
        elements: Sequence[tuple[int, Interest | None]],
        channel: model.Channel,
        columns: Sequence[tuple[Expr | None, bool]],
    ) -> None:
        self.decls: dict[str, ParamDecl] = {}
        self.params: dict[str, Any] = {}
        self.fields: list[Field] = []
        self.body: list[Stmt] = []
        self.texts: dict[int, Type] = {}
        self.ordered: list[int] = []
        flags: list[tuple[int, Expr]] = []
        if channel.among is not None:
            flags.append((AMONG, self.verdict(channel.among)))
        time: Expr = _NOTHING
        if channel.time is not None:
            (time,), _ = self.outputs(channel.time)
            flags.append((TIMED, Unary("not", IsMissing(time), BOOL)))
        parts: list[Expr] = []
        if channel.key is not None:
            parts, verdict = self.outputs(channel.key)
            there = (Unary("not", IsMissing(part), BOOL) for part in parts)
            flags.append((KEYED, Logic("and", (verdict, *there))))
        self.parts = max(1, len(parts))
        letter = [(signed(1 << at), _YES if c is None else self.verdict(c)) for at, c in elements]
        self.put(_set(flags))
        self.put(_set(letter))
        self.put(time)
        for part in parts or [_NOTHING]:
            self.put(part)
        for value, ordered in columns:
            self.remembered(value, ordered)
        output = Record("Reading", tuple(self.fields))
        body = (*self.body, Return(_YES))
        self.program = Program(channel.type.record, output, tuple(self.decls.values()), (), body, "predicate")

    def known(self, interest: Interest) -> Program:
        """What an interest runs as, its parameters put to those of all."""
        program = interest.executed.program
        if program.variables:
            raise TooMuch
        for decl in program.params:
            if self.decls.setdefault(decl.name, decl) != decl:
                raise TooMuch
            self.params[decl.name] = interest.params[decl.name]
        return program

    def verdict(self, interest: Interest) -> Expr:
        match self.known(interest).body:
            case (Return(value=value),):
                return value
        raise TooMuch

    def outputs(self, interest: Interest) -> tuple[list[Expr], Expr]:
        """The fields that a transformation sets, in their order, and its verdict."""
        program = self.known(interest)
        assert program.output is not None
        *first, last = program.body
        found: dict[str, Expr] = {}
        for stmt in first:
            match stmt:
                case SetOut(path=Path(steps=(str() as name,)), value=value) if name not in found:
                    found[name] = value
                case _:
                    raise TooMuch
        if not isinstance(last, Return) or len(found) < len(program.output.fields):
            raise TooMuch
        return [found[field.name] for field in program.output.fields], last.value

    def remembered(self, value: Expr | None, ordered: bool) -> None:
        """A value and whether it is there; NaN has no place in an order."""
        if value is None:
            self.put(_NOTHING)
            self.put(_NOTHING)
            return
        there: Expr = Unary("not", IsMissing(value), BOOL)
        if ordered and value.type == F64:
            there = Compare("eq", value, value)
            self.ordered.append(len(self.fields))
            value = Binary("add", value, Const(0.0, F64), F64)
        self.put(value)
        self.put(Cond(there, Const(1, I64), _NOTHING, _NOTHING, I64))

    def put(self, value: Expr) -> None:
        """One more word: a field of the output."""
        type = value.type
        if type in (BOOL, TIMESTAMP):
            value, type = Cast(value, I64, I64), I64
        nothing: Const
        if isinstance(type, Enum):
            nothing = Const(type.members[0][1], type)
        elif type in (I64, U64, F64):
            nothing = Const(0.0 if type == F64 else 0, type)
        elif type in (TEXT, BYTES):
            self.texts[len(self.fields)] = type
            nothing = Const("" if type == TEXT else b"", type)
        else:
            raise TooMuch
        name = f"w{len(self.fields)}"
        self.fields.append(Field(name, type))
        self.body.append(SetOut(Path((name,)), Cond(IsMissing(value), nothing, value, nothing, type), type))


def _set(members: Sequence[tuple[int, Expr]]) -> Expr:
    """A word of bits, each set where its condition is true."""
    word: Expr = _NOTHING
    for bit, test in members:
        word = Binary("or", word, Cond(test, Const(bit, I64), _NOTHING, _NOTHING, I64), I64)
    return word
