"""The careful pass: any acceptable Python value to the raw form, or an `EncodeError` that names the field.

The raw form of an event is a dict by field name: None for missing, timestamps as int microseconds since 1970 UTC,
enumerations as int codes, arrays and lists as (nested) tuples, records as dicts, f32 already rounded.
"""

from __future__ import annotations

import enum
import math
import operator
import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from headwater.errors import EncodeError
from headwater.late import np
from headwater.spelling import did_you_mean
from headwater.types.binding import Binding
from headwater.types.codegen import EPOCH, MICROSECOND
from headwater.types.model import Array, Enum, List, Record, Scalar, describe

_SCALARS = {
    "bool": "a bool",
    "text": "a str",
    "bytes": "bytes",
    "timestamp": "a datetime with a time zone",
}


def to_raw(binding: Binding, value: Any, path: str = "") -> Any:
    """The raw form of a value of this type; `path` is where it lies in the event."""
    type = binding.type
    if value.__class__ is float and isinstance(type, Scalar) and type.name == "f64":
        return value  # the most common, and nothing can be wrong with it
    match type:
        case Record():
            return _record(binding, value, path)
        case Enum():
            return _enum(binding, type, value, path)
        case Array(shape=shape):
            return _array(binding.parts[0], type, value, path, shape)
        case List():
            items = _items(type, value, path)
            return tuple([to_raw(binding.parts[0], item, f"{path}[{i}]") for i, item in enumerate(items)])
        case Scalar(name="bool"):
            if isinstance(value, bool | np.bool_):
                return bool(value)
        case Scalar(name="text"):
            if isinstance(value, str):
                return _text(str.__str__(value), path)  # a member of a str enumeration says its name otherwise
        case Scalar(name="bytes"):
            if isinstance(value, bytes | bytearray | memoryview):
                return bytes(value)
        case Scalar(name="timestamp"):
            return _timestamp(type, value, path)
        case Scalar():
            return _float(type, value, path) if type.is_float else _integer(type, value, path)
    raise EncodeError(path, f"expected {_expected(type)}, found {_found(value)}")


def _expected(type: Any) -> str:
    if isinstance(type, Scalar):
        return _SCALARS.get(type.name) or ("a float or int" if type.is_float else f"an int for {describe(type)}")
    return describe(type)


def _found(value: Any) -> str:
    if value is None:
        return "None; the field is not optional"
    return f"{type(value).__name__} {_shown(value)}".rstrip()


def _shown(value: Any) -> str:
    """A value in a message, whatever it is: integers may be too long to print, and a `repr` may fail."""
    try:
        text = repr(value)
    except Exception:
        return f"of {value.bit_length()} bits" if isinstance(value, int) else ""
    return text if len(text) <= 60 else text[:57] + "..."


def _record(binding: Binding, value: Any, path: str) -> dict[str, Any]:
    """The values of a record's fields, by name, from an instance or a mapping; EncodeError with the path of what is
    wrong."""
    fields = binding.record.fields
    if isinstance(value, Mapping):
        known = binding.record.by_name
        for name in value:
            if name not in known:
                hint = did_you_mean(str(name), known) or f"its fields are {', '.join(known)}"
                raise EncodeError(_join(path, str(name)), f"{binding.type} has no such field; {hint}")
        defaults = binding.defaults
        values = []
        for f, attr in zip(fields, binding.attrs, strict=True):
            if f.name in value:
                values.append(value[f.name])
            elif attr in defaults:
                values.append(defaults[attr])
            elif f.optional:
                values.append(None)
            else:
                raise EncodeError(_join(path, f.name), f"expected {_expected(f.type)}, found no such key")
    else:
        attrs: Sequence[str] = binding.attrs
        if not isinstance(value, binding.cls):
            other = getattr(type(value), "__event_binding__", None)
            if other is None or other().type != binding.type:
                expected = f"a {binding.cls.__name__} or a dict"
                raise EncodeError(path, f"expected {expected}, found {_found(value)}")
            attrs = other().attrs
        values = [getattr(value, attr) for attr in attrs]
    raw: dict[str, Any] = {}
    for f, part, item in zip(fields, binding.parts, values, strict=True):
        where = _join(path, f.name)
        raw[f.name] = None if item is None and f.optional else to_raw(part, item, where)
    return raw


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _enum(binding: Binding, type: Enum, value: Any, path: str) -> int:
    code: int | None = None
    if isinstance(value, enum.Enum):
        pairs = zip(binding.members, type.members, strict=True)
        code = next((known for member, (_, known) in pairs if member is value), None)
    elif isinstance(value, str):
        code = type.code_of(value)
    elif not isinstance(value, bool) and isinstance(value, int | np.integer):
        code = int(value) if type.name_of(int(value)) is not None else None
    if code is None:
        members = ", ".join(name for name, _ in type.members)
        raise EncodeError(path, f"expected a member of {type.name} ({members}), found {_found(value)}")
    return code


def _items(type: Any, value: Any, path: str) -> Iterable[Any]:
    if isinstance(value, np.ndarray):
        if value.ndim:
            return value.tolist() if value.ndim == 1 and value.dtype.kind in "biuf" else list(value)
    elif isinstance(value, memoryview | array):
        return value.tolist()
    elif isinstance(value, bytes | bytearray):
        if str(type.element) == "u8":
            return value
    elif isinstance(value, Sequence) and not isinstance(value, str):
        return value
    raise EncodeError(path, f"expected a sequence for {describe(type)}, found {_found(value)}")


def _array(part: Binding, type: Array, value: Any, path: str, shape: tuple[int, ...]) -> tuple[Any, ...]:
    items = list(_items(type, value, path))
    if len(items) != shape[0]:
        raise EncodeError(path, f"expected {shape[0]} elements in this dimension of {type}, found {len(items)}")
    if len(shape) > 1:
        return tuple([_array(part, type, item, f"{path}[{i}]", shape[1:]) for i, item in enumerate(items)])
    return tuple([to_raw(part, item, f"{path}[{i}]") for i, item in enumerate(items)])


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(
            path, f"expected text that UTF-8 can hold, found a lone surrogate at index {error.start}"
        ) from None
    return value


def _timestamp(type: Scalar, value: Any, path: str) -> int:
    if isinstance(value, datetime):
        if value != value:  # pandas' NaT is a datetime
            raise EncodeError(path, f"expected a datetime with a time zone, found {_found(value)}; use None")
        if value.utcoffset() is None:
            raise EncodeError(path, f"expected a datetime with a time zone, found the naive {value}; add tzinfo=UTC")
        if getattr(value, "nanosecond", 0):
            raise EncodeError(path, f"expected microseconds, found nanoseconds in {value}; round it first")
        micros = int((value - EPOCH) // MICROSECOND)
    elif isinstance(value, int | np.integer) and not isinstance(value, bool):
        micros = int(value)
    else:
        kind = "; make it a datetime with a time zone" if isinstance(value, date | np.datetime64) else ""
        raise EncodeError(path, f"expected a datetime with a time zone, found {_found(value)}{kind}")
    low, high = type.range
    if not low <= micros <= high:
        found = value if isinstance(value, datetime) else _shown(value)
        raise EncodeError(path, f"expected a time in the years 1 to 9999 UTC, found {found}")
    return micros


def _integer(type: Scalar, value: Any, path: str) -> int:
    if isinstance(value, bool | np.bool_ | enum.Enum):
        raise EncodeError(path, f"expected {_expected(type)}, found {_found(value)}")
    try:
        number = int(operator.index(value))
    except TypeError:
        raise EncodeError(path, f"expected {_expected(type)}, found {_found(value)}") from None
    low, high = type.range
    if not low <= number <= high:
        raise EncodeError(path, f"expected {low} to {high} for {type}, found {_shown(number)}")
    return number


def _float(type: Scalar, value: Any, path: str) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, float | int | np.floating | np.integer):
        raise EncodeError(path, f"expected {_expected(type)}, found {_found(value)}")
    try:
        number = float(value)
        if type.name == "f32":
            number = float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        raise EncodeError(path, f"{_shown(value)} is beyond the range of {describe(type)}") from None
    if math.isinf(number) and not np.isinf(value):
        raise EncodeError(path, f"{value} is beyond the range of {describe(type)}")
    return number
