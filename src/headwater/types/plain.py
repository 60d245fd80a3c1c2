"""Events as plain values: as dicts of Python values, and as JSON, both ways and exact.

A dict has the fields by name: nested events are dicts, arrays and lists are lists, everything else is as it is in an
instance (`datetime`, `bytes`, members of enumerations; None for missing).

In JSON a timestamp is ISO 8601 text with its zone, bytes are base64, a member of an enumeration is its name, and what
JSON has no number for is text ("NaN", "Infinity", "-Infinity"). Integers are written as they are, up to 64 bits: a
reader that takes all numbers for floating point loses some of them.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from headwater.errors import EncodeError
from headwater.types.model import Array, Enum, List, Record, Scalar, Type

if TYPE_CHECKING:
    from headwater.types.binding import Binding
    from headwater.types.event_type import EventType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"[.,]\d{6}(\d+)")
NOT_FINITE = ("NaN", "Infinity", "-Infinity")
SHOWN = 60  # characters of what was found, in a message


class _Bare(str):
    """NaN or an infinity without quotes, which some write as if JSON had it; `taken` says which field has it."""

    __slots__ = ()

    def error(self, path: str) -> EncodeError:
        return EncodeError(path, f'JSON has no {self}: expected it as text, "{self}", found it without quotes')


def to_dict(type: EventType, event: Any) -> dict[str, Any]:
    """An event as a dict of Python values."""
    made: dict[str, Any] = _python(type.binding, type.to_raw(event))
    return made


def from_dict(type: EventType, fields: Mapping[str, Any]) -> Any:
    """The instance that a dict describes; EncodeError, which names the field, if it describes none."""
    if not isinstance(fields, Mapping):
        raise EncodeError("", f"expected a dict with the fields of {type.name}, found {fields.__class__.__name__}")
    return type.from_raw(type.to_raw(fields))


def to_json(type: EventType, event: Any, *, indent: int | None = None) -> str:
    """An event as JSON text."""
    return json.dumps(shown(type.record, type.to_raw(event)), ensure_ascii=False, indent=indent)


def from_json(type: EventType, text: str | bytes | bytearray) -> Any:
    """The instance in JSON text; EncodeError, which names the field, if there is none."""
    return from_dict(type, object_in(type, text))


def object_in(type: EventType, text: str | bytes | bytearray) -> dict[str, Any]:
    """The fields in JSON text, by name, as values that the event type takes: what they are is not looked at yet."""
    value = loads(text)
    if not isinstance(value, dict):
        found = text[:SHOWN].decode(errors="replace") if isinstance(text, bytes | bytearray) else text.strip()[:SHOWN]
        raise EncodeError("", f"expected a JSON object with the fields of {type.name}, found {found}")
    made: dict[str, Any] = taken(type.record, value)
    return made


def loads(text: str | bytes | bytearray) -> Any:
    """What JSON text says; EncodeError if it is none, or says something twice."""
    try:
        if isinstance(text, str) and not text.startswith("\ufeff"):
            return _decode(text)
        if text.__class__ is bytes:
            return _decode(text.decode(json.detect_encoding(text), "surrogatepass"))
        return json.loads(text, object_pairs_hook=_once, parse_float=_finite, parse_constant=_Bare)
    except EncodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise EncodeError("", f"expected JSON, found something else: {error}") from None


def _finite(text: str) -> float:
    """A number with a point or an exponent; infinity is written as such."""
    found = float(text)
    if math.isinf(found):
        raise EncodeError("", f"expected a number that f64 holds, found {text[:SHOWN]}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in made if names.count(name) > 1)
        raise EncodeError(twice, "expected it once in a JSON object, found it twice")
    return made


_decode = json.JSONDecoder(  # one is enough for all
    object_pairs_hook=_once, parse_float=_finite, parse_constant=_Bare
).decode


def _python(binding: Binding, value: Any) -> Any:
    """A raw value as Python has it."""
    if value is None:
        return None
    type = binding.type
    match type:
        case Record():
            parts = zip(type.fields, binding.parts, strict=True)
            return {field.name: _python(part, value[field.name]) for field, part in parts}
        case Enum():
            codes = [code for _, code in type.members]
            return binding.members[codes.index(value)]
        case Array() | List():
            return _each(_dimensions(type), value, lambda each, _: _python(binding.parts[0], each))
        case Scalar(name="timestamp"):
            return _EPOCH + timedelta(microseconds=value)
    return value


def _dimensions(type: Array | List) -> int:
    return len(type.shape) if isinstance(type, Array) else 1


def _each(dimensions: int, value: Any, make: Callable[[Any, str], Any], path: str = "") -> Any:
    """The elements of an array of so many dimensions, each made something else; what is no array stays as it is."""
    if not isinstance(value, tuple | list):
        return value
    inner = make if dimensions == 1 else lambda each, place: _each(dimensions - 1, each, make, place)
    return [inner(each, f"{path}[{number}]") for number, each in enumerate(value)]


def shown(type: Type, value: Any) -> Any:
    """A raw value as JSON has it."""
    if value is None:
        return None
    match type:
        case Record():
            return {field.name: shown(field.type, value[field.name]) for field in type.fields}
        case Enum():
            return type.name_of(value)
        case Array() | List():
            return _each(_dimensions(type), value, lambda each, _: shown(type.element, each))
        case Scalar(name="timestamp"):
            return (_EPOCH + timedelta(microseconds=value)).isoformat()
        case Scalar(name="bytes"):
            return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def taken(type: Type, value: Any, path: str = "") -> Any:
    """What JSON has, as a value that the type takes; what fits in no way is left for the type to say."""
    if value.__class__ is _Bare:
        raise value.error(path)
    match type:
        case Record() if isinstance(value, dict):
            types = {field.name: field.type for field in type.fields}
            return {
                name: taken(types[name], each, f"{path}.{name}".lstrip(".")) if name in types else each
                for name, each in value.items()
            }
        case Array() | List() if isinstance(value, list):
            return _each(_dimensions(type), value, lambda each, place: taken(type.element, each, place), path)
        case Scalar(name="timestamp") if isinstance(value, str):
            return _time(value, path)
        case Scalar(name="bytes") if isinstance(value, str):
            try:
                return base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError) as error:
                raise EncodeError(path, f"expected base64, found {value[:40]!r}: {error}") from None
        case Scalar(name="f32" | "f64") if value in NOT_FINITE:
            return float(value)
    return value


def bare_number(text: str) -> EncodeError | None:
    """Of text that was not taken for JSON: the place of a NaN or an infinity in it, if that is what is wrong."""

    def found(value: Any, path: str) -> EncodeError | None:
        if isinstance(value, _Bare):
            return value.error(path)
        parts: list[tuple[str, Any]] = []
        if isinstance(value, dict):
            parts = [(f"{path}.{name}".lstrip("."), each) for name, each in value.items()]
        elif isinstance(value, list):
            parts = [(f"{path}[{number}]", each) for number, each in enumerate(value)]
        return next((error for place, each in parts if (error := found(each, place)) is not None), None)

    try:
        return found(loads(text), "")
    except (EncodeError, RecursionError):
        return None


def _time(value: str, path: str) -> datetime:
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise EncodeError(path, f"expected a time with its zone, as in 2026-01-31T12:00:00+00:00, found {value[:40]!r}")
    beyond = _FRACTION.search(value)
    if beyond is not None and beyond[1].strip("0"):
        raise EncodeError(path, f"expected microseconds, found nanoseconds in {value[:40]!r}; round it first")
    return found


__all__ = [
    "NOT_FINITE",
    "bare_number",
    "from_dict",
    "from_json",
    "loads",
    "object_in",
    "shown",
    "taken",
    "to_dict",
    "to_json",
]
