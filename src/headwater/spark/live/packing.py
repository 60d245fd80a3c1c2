"""An interest as text: how it travels in an option, in an offset, and to the tasks.

The text holds a `Package`; reading it verifies the program again.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from headwater.errors import ConfigError, ConfigProblem, InterestError, SerialError
from headwater.interest import Interest, as_event_type
from headwater.ir import serial
from headwater.ir.cost import Limits
from headwater.ir.nodes import Program
from headwater.ir.package import Package
from headwater.spark.live.options import Wanted
from headwater.types import EventType
from headwater.types.model import Field, Record

_MOST = 64 << 20  # bytes of a package once unpacked


def package(interest: Interest) -> str:
    """The interest with its parameters and fuel, as text. Equal interests give equal texts."""
    made = Package.of(interest.program, interest.params, interest.limits.fuel, with_text=True)
    return base64.b64encode(zlib.compress(made.dumps(), 6)).decode()


@lru_cache(maxsize=32)
def unpack(text: str) -> Interest:
    """The interest in a package."""
    try:
        bomb = zlib.decompressobj()
        data = bomb.decompress(base64.b64decode(text, validate=True), _MOST)
        if not bomb.eof:
            raise SerialError(f"expected a package of at most {_MOST:,} bytes")
        found = Package.loads(data)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise SerialError(f"expected an interest as text, made by interest_options(): {error}") from None
    program = serial.loads(found.program)
    return Interest.from_program(program, _with_maps(program, found.params), limits=Limits(fuel=found.fuel))


def _with_maps(program: Program, params: Mapping[str, Any]) -> dict[str, Any]:
    """Maps as maps: in checkpoints there are packages that have them as lists of pairs."""
    maps = {decl.name for decl in program.params if decl.kind == "map"}
    return {name: dict(value) if name in maps and _are_pairs(value) else value for name, value in params.items()}


def _are_pairs(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, list) and len(each) == 2 for each in value)


def loose(record: Record) -> Record:
    """The record with every field optional: in a table whose type evolved, older events lack the newer fields."""
    return Record(record.name, tuple(Field(f.name, f.type, True) for f in record.fields))


def interest_options(interest: Interest) -> dict[str, str]:
    """Options that carry an interest of any notation, with all its parameters:
    `spark.readStream.format("headwater").options(**interest_options(loud))`."""
    return {"interest": package(interest)}


def wanted_interest(wanted: Wanted, type: EventType) -> Interest | None:
    """The interest that the options ask for, checked against the channel's type; None wants everything."""
    if wanted.package is not None:
        try:
            return unpack(wanted.package).on(loose(type.record))
        except SerialError as error:
            problem = ConfigProblem("option interest", "what interest_options() makes", f"{str(error)[:200]}")
            raise ConfigError([problem]) from None
    if wanted.where is None:
        return None
    output = as_event_type(wanted.output) if wanted.output is not None else None
    try:
        made = Interest(wanted.where, type, output=output, params=wanted.params, notation=cast(Any, wanted.notation))
    except InterestError as error:
        title = f'format("headwater"): option where, on events of type {type.name}'
        raise error.__class__(error.problems, title) from None
    return made.on(loose(type.record))
