"""The state of a program as bytes: what its state variables hold, in slot order, the same for every execution."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import ExecutionError
from headwater.ir.interp import State
from headwater.ir.nodes import Program
from headwater.types.model import BOOL, F64, U64, Type, promote

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgpack_decoder(list[list[bool | int | float | None]])


def dump_state(program: Program, state: State) -> bytes:
    """Of each state variable all values, one for a scalar; None for what is missing."""
    slots = [slot for slot, variable in enumerate(program.variables) if variable.state]
    shaped = [bool(program.variables[slot].shape) for slot in slots]
    return _ENCODER.encode([state[slot] if many else [state[slot]] for slot, many in zip(slots, shaped, strict=True)])


def load_state(program: Program, data: bytes) -> State:
    """The same again; ExecutionError if it is no state of this program. The bytes may come from anyone."""
    try:
        found = _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ExecutionError(f"state: expected that of a program, found something else: {error}") from None
    slots = [slot for slot, variable in enumerate(program.variables) if variable.state]
    if len(found) != len(slots):
        raise ExecutionError(f"state: expected {len(slots)} variables, found {len(found)}")
    state: State = {}
    for slot, values in zip(slots, found, strict=True):
        variable = program.variables[slot]
        if len(values) != math.prod(variable.shape):
            raise ExecutionError(
                f"state: expected {math.prod(variable.shape)} values of {variable.name!r}, found {len(values)}"
            )
        type = promote(variable.type)
        for value in values:
            if value is not None and not _fits(value, type):
                raise ExecutionError(f"state: expected a value of type {type} for {variable.name!r}, found {value!r}")
        state[slot] = values if variable.shape else values[0]
    return state


def _fits(value: Any, type: Type) -> bool:
    if type == BOOL:
        return isinstance(value, bool)
    if type == F64:
        return isinstance(value, float)
    low, high = (0, 1 << 64) if type == U64 else (-(1 << 63), 1 << 63)
    return isinstance(value, int) and not isinstance(value, bool) and low <= value < high


__all__ = ["dump_state", "load_state"]
