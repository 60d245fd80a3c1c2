"""A number computed from an event, natively: what a subscription's priority and lifetime are made of.

>>> urgency = Expression("if(level > 0.5, 10, 0)", event_type(Sighting))
>>> urgency.value(record)
10

An expression is a constant, or is written in one of the notations of an interest; it then runs as one does, at once by
the interpreter and natively as soon as machine code is ready. It looks at one event and has no state.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

from headwater.errors import InterestError, InterestRefused, Problem
from headwater.interest import Interest, Notation, parse
from headwater.ir.cost import Limits
from headwater.ir.interp import EventContext, Outcome, Status
from headwater.ir.nodes import Const, Program, Return, SetOut
from headwater.ir.value import FIELD, ValueBuilder
from headwater.native.program import Native
from headwater.native.record import RecordProgram, record_code
from headwater.types import EventType
from headwater.types.codec import as_bytes
from headwater.types.layout import HEADER_SIZE, Layout
from headwater.types.model import F64, I64, U64, Type

Number = int | float

_FORMATS: dict[Type, struct.Struct] = {I64: struct.Struct("<q"), U64: struct.Struct("<Q"), F64: struct.Struct("<d")}
_PASSED = int(Status.PASSED)


class Expression:
    """A number for each event of a type: an int where the expression is one of integers or booleans, else a float.

    `definition` is a number, predicate text (`"level * 10"`), E-Code that returns a number, or a Python function that
    does. `what` is what the number stands for, and what a faulty expression is called in its InterestError.
    """

    def __init__(
        self,
        definition: Number | str | Callable[..., Any],
        type: EventType,
        *,
        params: Mapping[str, object] | None = None,
        what: str = "priority",
        notation: Notation | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.type = type
        self.what = what
        self.interest: Interest | None = None  # the transformation that computes it
        self.constant: Number | None = None  # the number, if it is the same for every event
        self._native: Native | None = None
        self._program: RecordProgram | None = None
        self.text: str
        if isinstance(definition, int | float | Real):
            self.constant = _constant(definition, what)
            self.text = repr(self.constant)
            return
        if not isinstance(definition, str) and not callable(definition):
            raise _wrong(what, "a number, text or a function", definition.__class__.__name__)
        try:
            program, values = parse(definition, type.record, params=params, notation=notation, builder=ValueBuilder)
            self.interest = Interest.from_program(program, values, limits=limits)
        except InterestError as error:
            raise _retitled(error, what) from None
        self._begin(self.interest)

    @classmethod
    def of(cls, interest: Interest, type: EventType, *, what: str = "priority") -> Expression:
        """One that has come from elsewhere, as the transformation that computes it (`interest`): an InterestError says
        what it does beside that."""
        made = cls(0, type, what=what)
        output = interest.program.output
        single = output is not None and [field.name for field in output.fields] == [FIELD]
        if output is None or not single or output.fields[0].type not in _FORMATS:
            raise _wrong(what, "a number for each event", "something else")
        if interest.stateful or interest.contextual:
            raise _wrong(what, "a number that one event gives", "one that depends on others, or on its source")
        made.interest, made.constant = interest, None
        made._begin(interest)
        return made

    def _begin(self, interest: Interest) -> None:
        """It is what this computes."""
        self.text = interest.text
        self.constant = _folded(interest.normal)
        if self.constant is None:
            self._native = interest.native()
            assert interest.program.output is not None
            slot = Layout.of(interest.program.output).slots[FIELD]
            self._unpack = _FORMATS[slot.type].unpack_from
            self._at = HEADER_SIZE + slot.offset

    def value(self, record: bytes, meta: EventContext | None = None) -> Number | None:
        """The number of the event in a record; None where it is missing, undecided or not a number (NaN)."""
        if self.constant is not None:
            return self.constant
        program = self._program or self._ready()
        if program is None or program.code.meta:
            return self._run(record, meta, program)
        context = program.context()  # threads may call at the same time; each has memory of its own
        if record.__class__ is not bytes:
            record = as_bytes(record)
        if program.code.call(record, len(record), context.address) & 255 != _PASSED:
            value = None
        else:
            value = self._unpack(context.buffer, self._at)[0]
        program.release(context)
        return value if value == value else None

    def interpret(self, event: Any, *, meta: EventContext | None = None) -> Number | None:
        """The same by the reference interpreter, also of an instance or dict."""
        if self.interest is None:
            return self.constant
        outcome: Outcome = self.interest.interpret(event, meta=meta)
        value: Number | None = outcome.output[FIELD] if outcome.passed and outcome.output is not None else None
        return value if value == value else None

    @property
    def native(self) -> bool:
        """Whether events are no longer interpreted; a constant never was."""
        return self.constant is not None or self._ready() is not None

    def wait(self, timeout: float | None = None) -> Expression:
        """Until machine code is in use; raises ExecutionError if it cannot be made or takes longer."""
        if self._native is not None:
            self._native.wait(timeout)
            self._ready()
        return self

    def _ready(self) -> RecordProgram | None:
        """The machine code, once there is some."""
        native = self._native
        if self._program is None and native is not None and native.tier == "native":
            assert self.interest is not None
            # Compiled already: this is the same code, taken from the cache.
            code = record_code(native.analysis)
            self._program = RecordProgram(code, params=self.interest.params, fuel=native.fuel)
        return self._program

    def _run(self, record: bytes, meta: EventContext | None, program: RecordProgram | None) -> Number | None:
        assert self._native is not None
        output = (program or self._native).run(record, meta).output
        value = None if output is None else self._unpack(output, self._at)[0]
        return value if value == value else None

    def __repr__(self) -> str:
        return f"<Expression {self.what}: {' '.join(self.text.split())[:60]}>"


def _constant(number: Number | Real, what: str) -> Number:
    if isinstance(number, bool):
        raise _wrong(what, "a number", "a boolean", "write 1 or 0")
    value = int(number) if isinstance(number, Integral) else float(number)
    if math.isnan(value):
        raise _wrong(what, "a number", "NaN")
    return value


def _wrong(what: str, expected: str, found: str, hint: str | None = None) -> InterestError:
    problem = Problem("this is not a number", 1, 1, expected=expected, found=found, hint=hint)
    return InterestError([problem], f"1 problem in this {what}")


def _retitled(error: InterestError, what: str) -> InterestError:
    if isinstance(error, InterestRefused):
        return InterestRefused(error.problems, f"this {what} is refused")
    count = len(error.problems)
    return InterestError(error.problems, f"{count} problem{'s' if count != 1 else ''} in this {what}")


def _folded(program: Program) -> Number | None:
    """The number of a program that does nothing but return one."""
    match program.body:
        case (SetOut(value=Const(value=int() | float() as value)), Return(value=Const(value=True))) if value == value:
            return value
        case _:
            return None


__all__ = ["Expression", "Number"]
