"""Parameters of an interest: declared from their first values, checked whenever new ones arrive.

Values are kept in the raw form the executions share: timestamps as microseconds, sets as frozensets, maps as dicts.
NaN is never a member or key, and -0.0 is stored as 0.0, so that membership means equality.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headwater.errors import ParameterError
from headwater.ir.nodes import ParamDecl
from headwater.ir.operators import micros_of
from headwater.spelling import did_you_mean
from headwater.types.model import (
    BOOL,
    BYTES,
    F64,
    I64,
    TEXT,
    TIMESTAMP,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    U64,
    Scalar,
    Type,
)

MAX_MEMBERS = 1_000_000

_PYTHON: dict[type, Scalar] = {bool: BOOL, int: I64, float: F64, str: TEXT, bytes: BYTES, datetime: TIMESTAMP}


@dataclass(frozen=True, slots=True)
class SetOf:
    """A set parameter by its element type, for a set that starts empty: `SetOf(str)`."""

    element: type
    values: frozenset[Any] = frozenset()


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map parameter by its types, for a map that starts empty: `MapOf(str, int)`."""

    key: type
    value: type


def declare(values: Mapping[str, object]) -> tuple[ParamDecl, ...]:
    """Declarations from example values: numbers, booleans, text, bytes, aware datetimes, sets and dicts of them."""
    return tuple(_declare(name, value) for name, value in values.items())


def _declare(name: str, value: object) -> ParamDecl:
    if not name.isidentifier():
        raise ParameterError(f"parameter {name!r}: expected a name of letters, digits and _")
    match value:
        case ParamDecl():
            return value
        case SetOf(element=element):
            return ParamDecl(name, "set", _python_type(name, element))
        case MapOf(key=key, value=of):
            return ParamDecl(name, "map", _python_type(name, key), _python_type(name, of))
        case Mapping():
            return ParamDecl(name, "map", _common(name, value, "keys"), _common(name, value.values(), "values"))
        case Set():
            return ParamDecl(name, "set", _common(name, value, "members"))
        case _:
            return ParamDecl(name, "scalar", _type_of(name, value))


def _python_type(name: str, python: type) -> Type:
    if python not in _PYTHON:
        raise ParameterError(f"parameter {name!r}: expected one of {', '.join(t.__name__ for t in _PYTHON)}, "
                             f"found {python!r}")  # fmt: skip
    return _PYTHON[python]


def _type_of(name: str, value: object) -> Scalar:
    for python, type in _PYTHON.items():
        if isinstance(value, python):
            return U64 if type == I64 and isinstance(value, int) and value >= 1 << 63 else type
    raise ParameterError(
        f"parameter {name!r}: expected a number, bool, text, bytes, aware datetime, or a set or dict of them; "
        f"found {value.__class__.__name__}{_instead(value)}"
    )


def _instead(value: object) -> str:
    if isinstance(value, list | tuple):
        return "; write a set: {1, 2}"
    return "; give it tzinfo=UTC" if isinstance(value, datetime) else ""


def _common(name: str, values: Iterable[object], what: str) -> Type:
    types = {_type_of(name, value) for value in values}
    if types == {I64, F64}:
        return F64
    if types == {I64, U64}:
        return U64
    if len(types) == 1:
        return types.pop()
    if not types:
        raise ParameterError(f"parameter {name!r} is empty, so its type is unknown: give SetOf(str) or MapOf(str, int)")
    raise ParameterError(f"parameter {name!r}: expected {what} of one type, found {', '.join(sorted(map(str, types)))}")


def plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """Raw values as they travel, for `bind` at the other end: sets as lists, all in order, so that equal values are
    equal bytes."""
    return {name: _plain(value) for name, value in params.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    return dict(sorted(value.items())) if isinstance(value, dict) else value


def bind(decls: Iterable[ParamDecl], values: Mapping[str, object]) -> dict[str, Any]:
    """Raw values for every declared parameter, or a ParameterError that names the one at fault."""
    decls = tuple(decls)
    names = [decl.name for decl in decls]
    for name in values:
        if name not in names:
            hint = did_you_mean(name, names) or f"its parameters are: {', '.join(names) or 'none'}"
            raise ParameterError(f"no parameter {name!r}: {hint}")
    lacking = [name for name in names if name not in values]
    if lacking:
        raise ParameterError(f"expected a value for parameter {', '.join(map(repr, lacking))}, found none")
    return {decl.name: _bind(decl, values[decl.name]) for decl in decls}


def _bind(decl: ParamDecl, value: Any) -> Any:
    """A parameter's value as programs take it, checked against its declaration."""
    where = f"parameter {decl.name!r}"
    match decl.kind, value:
        case "scalar", _:
            return _raw(where, value, decl.type)
        case "set", SetOf():
            return frozenset(_raw(where, member, decl.type) for member in value.values)
        case "map", MapOf():
            return {}
        case "set", Set() | list() | tuple():
            _check_size(where, value)
            members = (_raw(f"a member of {where}", member, decl.type) for member in value)
            return frozenset(_plain_zero(member) for member in members if member == member)
        case "map", Mapping():
            _check_size(where, value)
            assert decl.value is not None
            pairs = (
                (_raw(f"a key of {where}", key, decl.type), _raw(f"the value of {where} at {key!r}", of, decl.value))
                for key, of in value.items()
            )
            return {_plain_zero(key): of for key, of in pairs if key == key}
    raise ParameterError(f"{where}: expected a {decl.kind}, found {value.__class__.__name__}")


def _check_size(where: str, values: Any) -> None:
    if len(values) > MAX_MEMBERS:
        raise ParameterError(f"{where}: expected at most {MAX_MEMBERS:,} members, found {len(values):,}")


def _plain_zero(value: Any) -> Any:
    return 0.0 if isinstance(value, float) and value == 0 else value


def _raw(where: str, value: Any, type: Type) -> Any:
    """One value of a parameter as the interpreter has it: checked, text as text, times in microseconds."""
    match value:
        case bool() if type == BOOL:
            return value
        case int() if not isinstance(value, bool) and type in (I64, U64):
            assert isinstance(type, Scalar)
            least, greatest = type.range
            if not least <= value <= greatest:
                raise ParameterError(f"{where}: expected {type} ({least} to {greatest}), found {value}")
            return value
        case int() | float() if not isinstance(value, bool) and type == F64:
            try:
                return float(value)
            except OverflowError:
                return math.copysign(math.inf, value)
        case str() if type == TEXT:
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ParameterError(f"{where}: expected text that UTF-8 can hold, found a lone surrogate") from None
            return value
        case bytes() if type == BYTES:
            return value
        case datetime() if type == TIMESTAMP and value.tzinfo is not None:
            return micros_of(value)
        case int() if type == TIMESTAMP and not isinstance(value, bool) and TIMESTAMP_MIN <= value <= TIMESTAMP_MAX:
            return value  # already microseconds
    found = "a datetime without zone" if isinstance(value, datetime) and value.tzinfo is None else repr(value)[:60]
    raise ParameterError(f"{where}: expected {type}, found {found}")
