"""Events as lines of JSON, for the command line: as they are written and as they may be given.

A timestamp is ISO 8601 text, bytes are base64, a member of an enumeration is its name; what JSON has no number for is
text ("NaN", "Infinity", "-Infinity"). A channel that carries bytes has them as one base64 text a line.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

from headwater.errors import EncodeError
from headwater.types import EventType
from headwater.types.model import Array, Enum, List, Record, Scalar, Type

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_line(type: EventType | None, event: Any) -> str:
    """An event of this type (None: bytes) as one line."""
    plain = _shown(Scalar("bytes"), event) if type is None else _shown(type.record, type.to_raw(event))
    return json.dumps(plain, ensure_ascii=False)


def from_line(type: EventType | None, line: str) -> Any:
    """What a source of this type takes for a line; EncodeError if that is not JSON of the right form."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise EncodeError("", f"expected JSON, found something else: {error}") from None
    if type is None:
        return _read(Scalar("bytes"), value, "")
    if not isinstance(value, dict):
        raise EncodeError("", f"expected a JSON object with the fields of {type.name}, found {line.strip()[:60]}")
    return _read(type.record, value, "")


def _shown(type: Type, value: Any) -> Any:
    if value is None:
        return None
    match type:
        case Record():
            return {field.name: _shown(field.type, value[field.name]) for field in type.fields}
        case Enum():
            return type.name_of(value) if isinstance(value, int) else str(value)
        case Array() | List():
            return _each(type.element, value)
        case Scalar(name="timestamp"):
            return (_EPOCH + timedelta(microseconds=value)).isoformat()
        case Scalar(name="bytes"):
            return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _each(type: Type, value: Any) -> Any:
    """Of all dimensions."""
    if isinstance(value, list | tuple) or hasattr(value, "tolist"):
        return [_each(type, each) for each in value]
    return _shown(type, value)


def _read(type: Type, value: Any, path: str) -> Any:
    match type:
        case Record() if isinstance(value, dict):
            types = {field.name: field.type for field in type.fields}
            return {
                name: _read(types[name], each, f"{path}.{name}".lstrip(".")) if name in types else each
                for name, each in value.items()
            }
        case Array() | List() if isinstance(value, list):
            return [
                _read(
                    type if isinstance(each, list) and isinstance(type, Array) else type.element, each, f"{path}[{i}]"
                )
                for i, each in enumerate(value)
            ]
        case Scalar(name="timestamp") if isinstance(value, str):
            return _time(value, path)
        case Scalar(name="bytes") if isinstance(value, str):
            try:
                return base64.b64decode(value, validate=True)
            except binascii.Error as error:
                raise EncodeError(path, f"expected base64, found {value[:40]!r}: {error}") from None
        case Scalar(name="f32" | "f64") if value in ("NaN", "Infinity", "-Infinity"):
            return float(value)
    return value  # the source says what is wrong with it


def _time(value: str, path: str) -> datetime:
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise EncodeError(path, f"expected a time with its zone, as in 2026-01-31T12:00:00+00:00, found {value[:40]!r}")
    return found


__all__ = ["from_line", "to_line"]
