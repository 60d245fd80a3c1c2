"""The output event of a transformation in its raw form, while it is being filled. Used by the interpreter only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.types.model import TEXT, TIMESTAMP, Array, Enum, List, Record, Scalar, Type


def blank(record: Record) -> dict[str, Any]:
    """An output record before anything is set."""
    return {f.name: blank_value(f.type, f.optional) for f in record.fields}


def blank_value(type: Type, optional: bool) -> Any:
    """What a field of an output has that nothing is assigned to: zeros in an array, blanks in a record, else
    missing."""
    match type:
        case Array() if not optional and _zero(type.element) is not None:
            return _zeros(type.shape, _zero(type.element))
        case Record() if not optional:
            return blank(type)
        case _:
            return None


def _zero(type: Type) -> Any:
    match type:
        case Scalar(name="bool"):
            return False
        case Scalar() if type.is_float:
            return 0.0
        case Scalar() if type.is_integer or type == TIMESTAMP:
            return 0
        case _:
            return None


def _zeros(shape: tuple[int, ...], zero: Any) -> list[Any]:
    return [zero if len(shape) == 1 else _zeros(shape[1:], zero) for _ in range(shape[0])]


def copied(value: Any) -> Any:
    """A part of the event as a part of the output: arrays are lists there, because elements may be set."""
    if isinstance(value, Mapping):
        return {name: copied(inner) for name, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list | tuple) else value


def complete(record: Record, value: Mapping[str, Any]) -> bool:
    """Whether every required field has a value, nested records included."""
    for f in record.fields:
        inner = value[f.name]
        if inner is None and not f.optional:
            return False
        if isinstance(f.type, Record) and inner is not None and not complete(f.type, inner):
            return False
    return True


def is_sound(type: Type, value: Any) -> bool:
    """Whether a value is one of its type: malformed events have times in no year, texts that are no UTF-8 and codes of
    no member."""
    match type:
        case Record(fields=fields):
            return all(value[f.name] is None or is_sound(f.type, value[f.name]) for f in fields)
        case Array(element=element, shape=shape):
            inner = Array(element, shape[1:]) if len(shape) > 1 else element
            return all(is_sound(inner, item) for item in value)
        case List(element=element):
            return all(is_sound(element, item) for item in value)
        case Enum():
            return type.name_of(value) is not None
        case Scalar() if type == TIMESTAMP:
            return bool(type.range[0] <= value <= type.range[1])
        case Scalar() if type == TEXT:
            return not any("\ud800" <= c <= "\udfff" for c in value)
        case _:
            return True
