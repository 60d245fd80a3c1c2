"""Constants in Python source: literals, captured values and the few calls that make one. Nothing is executed."""

from __future__ import annotations

import ast
import enum
import math
from datetime import UTC, datetime
from typing import Any

from headwater.ir.params import MapOf, SetOf
from headwater.lang.pysource import Source

SCALAR_TYPES = (bool, int, float, str, bytes, datetime)
_PYTHON_TYPES = {python.__name__: python for python in SCALAR_TYPES}
_MATH = {"pi": math.pi, "e": math.e, "tau": math.tau, "inf": math.inf, "nan": math.nan}


class NotConstant(Exception):
    """This is no constant; `node` is the part that is none, and the message says why."""

    def __init__(self, node: Any, message: str = "this is not a constant", hint: str | None = None) -> None:
        super().__init__(message)
        self.node, self.hint = node, hint


class State:
    """What an interest keeps at one source between events: `def f(e, *, state=State(n=0, last=0.0))`.

    Values are numbers, booleans and aware datetimes; a list or tuple of numbers (also nested) makes an array.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __repr__(self) -> str:
        return f"State({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def is_scalar(value: object) -> bool:
    """Whether a captured value can stand in an expression by itself."""
    return isinstance(value, SCALAR_TYPES) and not isinstance(value, enum.Enum)


def plain(value: Any) -> Any:
    """A scalar as the very type it derives from: some libraries have floats and texts of their own."""
    kinds: tuple[Any, ...] = (bool, int, float, str, bytes)
    return next((kind(value) for kind in kinds if isinstance(value, kind)), value)


def dotted(node: Any) -> list[str]:
    """`a.b.c` as its names; empty if the node is anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [*names, node.id][::-1] if isinstance(node, ast.Name) else []


def captured(names: list[str], source: Source) -> tuple[bool, Any]:
    """The value of a free dotted name, through modules and enumerations only: no attribute is computed."""
    found, value = source.resolve(names[0])
    if not found:
        if names[0] == "math" and len(names) == 2 and names[1] in _MATH:
            return True, _MATH[names[1]]
        return False, None
    for name in names[1:]:
        if isinstance(value, type) and issubclass(value, enum.Enum):
            inside: Any = value.__members__
        else:
            inside = vars(value) if type(value).__name__ == "module" else {}
        if name not in inside:
            return False, None
        value = inside[name]
    return True, value


def constant(node: Any, source: Source) -> Any:
    """The value of a constant expression: scalars, and sets, dicts, tuples and lists of them, State, SetOf, MapOf."""
    match node:
        case ast.Constant(value=value) if isinstance(value, SCALAR_TYPES):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = constant(operand, source)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return -value
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return constant(operand, source)
        case ast.Tuple(elts=elts):
            return tuple(constant(item, source) for item in elts)
        case ast.List(elts=elts):
            return [constant(item, source) for item in elts]
        case ast.Set(elts=elts):
            return frozenset(_hashable(item, source) for item in elts)
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_hashable(k, source): constant(v, source) for k, v in zip(keys, values, strict=True)}
        case ast.Name() | ast.Attribute():
            found, value = captured(dotted(node), source) if dotted(node) else (False, None)
            if found and (is_scalar(value) or isinstance(value, tuple | list | set | frozenset | dict)):
                return value
        case ast.Call(func=func):
            return _call(node, dotted(func)[-1:], source)
    raise NotConstant(node)


def _hashable(node: Any, source: Source) -> Any:
    value = constant(node, source)
    if not is_scalar(value):
        raise NotConstant(node, "a member or key is a number, text, bytes, boolean or datetime")
    return value


def _call(node: ast.Call, name: list[str], source: Source) -> Any:
    match name, node.args, node.keywords:
        case ["State"], [], keywords if all(keyword.arg for keyword in keywords):
            return State(**{str(keyword.arg): constant(keyword.value, source) for keyword in keywords})
        case ["frozenset" | "set"], [ast.Set() | ast.Tuple() | ast.List() as items], []:
            return frozenset(_hashable(item, source) for item in items.elts)
        case ["frozenset" | "set"], [], []:
            return frozenset()
        case ["SetOf"], [ast.Name(id=element)], [] if element in _PYTHON_TYPES:
            return SetOf(_PYTHON_TYPES[element])
        case ["MapOf"], [ast.Name(id=key), ast.Name(id=value)], [] if {key, value} <= set(_PYTHON_TYPES):
            return MapOf(_PYTHON_TYPES[key], _PYTHON_TYPES[value])
        case ["datetime"], _, _:
            return moment(node, source)
    raise NotConstant(node)


_PARTS = ("year", "month", "day", "hour", "minute", "second", "microsecond")


def moment(node: ast.Call, source: Source) -> datetime:
    """`datetime(2026, 1, 31, tzinfo=UTC)`: whole numbers and a zone of UTC."""
    hint = "write datetime(2026, 1, 31, tzinfo=UTC)"
    if any(keyword.arg is None for keyword in node.keywords) or len(node.args) > len(_PARTS):
        raise NotConstant(node, "this is not a fixed time", hint)
    given: dict[str, Any] = dict(zip(_PARTS, node.args, strict=False))
    given |= {str(keyword.arg): keyword.value for keyword in node.keywords}
    zone = dotted(given.pop("tzinfo", None))
    if not zone or zone[-1].lower() != "utc":
        raise NotConstant(node, "this time has no zone that is known", hint)
    values = {name: constant(value, source) for name, value in given.items()}
    if any(not isinstance(value, int) or isinstance(value, bool) for value in values.values()):
        raise NotConstant(node, "this is not a fixed time", hint)
    try:
        return datetime(**values, tzinfo=UTC)
    except (TypeError, ValueError, OverflowError) as error:
        raise NotConstant(node, f"this is no time: {error}", hint) from None
