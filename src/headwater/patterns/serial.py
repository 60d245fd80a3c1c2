"""The serial form of a pattern: what travels between nodes. Parameters travel beside it, limits are the owner's.

    bytes     = MAGIC, msgpack [version, result, types, channels, elements, tree, absent, conditions, variables,
                subsets, options, measures?, notation, text]
    type      = an interest that passes every event of it
    interest  = its own serial form

MAGIC begins with a byte that msgpack never writes, so no interest begins so. The bytes may come from an enemy: sizes
are limited, interests are verified as interests are, and then everything that the checker assures: that names and
positions are there, that a condition's record is that of the elements it names, and that the pattern has a bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headwater.errors import PatternError, SerialError
from headwater.formats import PATTERN
from headwater.interest import Interest
from headwater.ir import serial
from headwater.ir.encode import has_too_many_parts
from headwater.ir.nodes import Const, Program, Return
from headwater.patterns import model
from headwater.patterns.checker.verify import verify
from headwater.patterns.serial_forms import list_of, wrong
from headwater.patterns.serial_reader import Reader
from headwater.types import EventType
from headwater.types.model import BOOL, Record

MAGIC = b"\xc1hwp"
MAX_SIZE = 8 << 20

_pack = msgspec.msgpack.Encoder().encode


# ── writing ──


def dumps(pattern: model.Pattern, *, with_text: bool = True) -> bytes:
    """Its serial form; `with_text` keeps what it was written in, for people."""
    types: dict[Record, int] = {}

    def type(of: EventType) -> int:
        return types.setdefault(of.record, len(types))

    def interest(of: Interest | None) -> bytes | None:
        return None if of is None else of.dumps(with_text=False)

    window = pattern.window
    form = [
        [[c.name, type(c.type), interest(c.key), interest(c.time), interest(c.among), c.all] for c in pattern.channels],
        [
            [e.name, e.channel, list(e.channels), type(e.type), interest(e.condition), e.negative]
            for e in pattern.elements
        ],
        model.plain(pattern.root),
        list(pattern.absent),
        [[list(c.elements), interest(c.interest)] for c in pattern.conditions],
        [[v.name, [list(place) for place in v.fields], v.key] for v in pattern.variables],
        [[s.name, list(s.elements)] for s in pattern.subsets],
        [
            None
            if window is None
            else [None if window.parameter else window.microseconds, window.rows, window.parameter],
            pattern.begin,
            pattern.after.rule,
            list(pattern.after.elements),
            pattern.reuse,
            pattern.lateness,
            pattern.patience,
        ],
        None if pattern.measures is None else interest(pattern.measures.interest),
        pattern.notation if with_text else "",
        pattern.text if with_text else "",
    ]
    table = [serial.dumps(Program(record, None, (), (), (Return(Const(True, BOOL)),))) for record in types]
    data = MAGIC + _pack([PATTERN, pattern.output.name, table, *form])
    if len(data) > MAX_SIZE:
        raise SerialError(f"the serial form takes {len(data):,} bytes, more than {MAX_SIZE:,}")
    return data


# ── reading ──


def loads(data: bytes, params: Mapping[str, Any] | None = None, *, limits: model.Limits | None = None) -> model.Pattern:
    """The pattern that these bytes are the serial form of, verified. SerialError if they are none, PatternError if it
    is one that would not be allowed here."""
    form = _unpacked(data)
    try:
        pattern = Reader(dict(params or {}), limits or model.Limits()).pattern(form)
    except RecursionError:
        wrong("parts that nest less deeply")
    problems = verify(pattern)
    if problems:
        raise PatternError(problems, "this pattern is refused")
    return pattern


def _unpacked(data: bytes) -> list[Any]:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise SerialError(f"expected bytes, found {data.__class__.__name__}")
    data = bytes(data)
    if not data.startswith(MAGIC):
        raise SerialError("not the serial form of a pattern: expected its first bytes, found others")
    if len(data) > MAX_SIZE or has_too_many_parts(data):
        raise SerialError(f"expected at most {MAX_SIZE:,} bytes of not too many parts, found {len(data):,}")
    try:
        form = msgspec.msgpack.decode(data[len(MAGIC) :])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, OverflowError) as wrong:
        raise SerialError(f"not the serial form of a pattern: {wrong}") from None
    if not isinstance(form, list) or not form or form[0].__class__ is not int or form[0] != PATTERN:
        found = repr(form[0])[:20] if isinstance(form, list) and form else "something else"
        raise SerialError(f"the serial form of a pattern: expected version {PATTERN}, found {found}")
    return list_of(form, "a pattern", 14)
