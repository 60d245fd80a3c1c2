"""What predicates are about: a field's value, whether it is there, or an answer of native code.

Constants are kept in the form the kernels compare: numbers as 64-bit keys that sort as the numbers do, texts as bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.ir.conjunction import Place, place_of, slot_kind
from headwater.ir.nodes import Cast, Expr, Load
from headwater.match import layout as w
from headwater.types.model import BOOL, BYTES, F64, I64, TEXT, U64, Enum, Record, Scalar, Type

if TYPE_CHECKING:
    from headwater.match.opaque import Opaque

Key = int | bytes
_HALF = 1 << 63


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: how its value is found in a record (`checks`, `offset`, `load`) and in a batch (`path`)."""

    kind: int
    path: tuple[str, ...]
    optional: bool
    load: int = 0
    convert: int = w.SIGNED
    checks: tuple[int, int, int, int] = (0, 0, 0, 0)
    offset: int = 0
    stored: Type = BOOL
    opaque: Opaque | None = None

    @property
    def is_text(self) -> bool:
        return self.kind in (w.TEXT_EQUAL, w.TEXT_ORDER)

    def __str__(self) -> str:
        if self.opaque is not None:
            return "native code"
        return ".".join(self.path) + (" is there" if self.kind == w.PRESENCE else "")


def _place(record: Record, load: Load) -> tuple[tuple[str, ...], Place] | None:
    """Path and place of what is loaded; None where that takes an index, or more than two presence checks."""
    path = tuple(step for step in load.path.steps if isinstance(step, str))
    found = place_of(record, load.path) if len(path) == len(load.path.steps) else None
    return None if found is None else (path, found)


def attribute_of(record: Record, expr: Expr, *, ordered: bool) -> Attribute | None:
    """The attribute that an operand of a comparison reads; `ordered`: not only for equality."""
    cast = None
    if isinstance(expr, Cast) and expr.to == F64 and expr.a.type in (I64, U64):
        cast, expr = expr, expr.a
    if not isinstance(expr, Load) or (found := _place(record, expr)) is None:
        return None
    path, (checks, offset) = found
    stored, optional = expr.stored, any(checks)
    if stored in (TEXT, BYTES):
        kind = w.TEXT_ORDER if ordered else w.TEXT_EQUAL
        return Attribute(kind, path, optional, checks=checks, offset=offset, stored=stored)
    name = slot_kind(stored)
    if name not in w.LOADS or not isinstance(stored, Scalar | Enum):
        return None
    unsigned = expr.type == U64
    convert = w.UNSIGNED if unsigned else w.FLOAT if expr.type == F64 else w.SIGNED
    if cast is not None:
        convert = w.UNSIGNED_AS_FLOAT if unsigned else w.SIGNED_AS_FLOAT
    return Attribute(w.NUMBER, path, optional, w.LOADS[name], convert, checks, offset, stored)


def presence_of(record: Record, load: Load) -> Attribute | None:
    """Whether a field has a value."""
    found = _place(record, load)
    if found is None:
        return None
    path, (checks, offset) = found
    return Attribute(w.PRESENCE, path, False, checks=checks, offset=offset, stored=load.stored)


def key_of(attribute: Attribute, value: Any) -> Key | None:
    """A constant as the kernels compare it; None for a NaN. May be out of the range that values have."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if attribute.convert in (w.FLOAT, w.SIGNED_AS_FLOAT, w.UNSIGNED_AS_FLOAT):
        number = float(value)
        return float_key(number) if number == number else None
    return int(value) - _HALF if attribute.convert == w.UNSIGNED else int(value)


def float_key(value: float) -> int:
    """Bits that sort as floats do."""
    bits: int = struct.unpack("<q", struct.pack("<d", value + 0.0))[0]
    return bits if bits >= 0 else bits ^ (_HALF - 1)


def in_range(key: Key) -> int:
    """0 if a value may be equal to this constant, -1 if it is below all values, 1 if it is above them."""
    if isinstance(key, bytes):
        return 0
    return -1 if key < -_HALF else 1 if key >= _HALF else 0
