"""How a type looks in Python: which class a record becomes, which enumeration, list or tuple.

A `Binding` runs parallel to a type. It comes from an Event class (`event.py`), or is made for a bare Record with
`bind_record`, which invents the classes. The codec is generated from it.
"""

from __future__ import annotations

import enum
import keyword
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from msgspec import NODEFAULT

from headwater.errors import TypeDeclarationError
from headwater.types.model import Array, Enum, List, Record, Type


@dataclass(frozen=True)
class Binding:
    """A type and its Python side.

    `cls` is the Event class of a record, the enum class of an enumeration, `list` or `tuple` for a list, else None.
    `attrs` are a record's attribute names, in field order. `parts` are the bindings of a record's fields, or of the
    one element of an array or list. `members` are an enumeration's members, in declaration order.
    """

    type: Type
    cls: Any = None
    attrs: tuple[str, ...] = ()
    parts: tuple[Binding, ...] = ()
    members: tuple[Any, ...] = field(default=(), compare=False)

    @property
    def record(self) -> Record:
        assert isinstance(self.type, Record)
        return self.type

    @property
    def constructor(self) -> Callable[..., Any]:
        """Makes an instance from the values in field order."""
        cls = self.cls
        if cls.__match_args__ == self.attrs:
            return cls  # type: ignore[no-any-return]
        attrs = self.attrs
        return lambda *values: cls(**dict(zip(attrs, values, strict=True)))

    @property
    def defaults(self) -> dict[str, Any]:
        """The values that a record's class gives to attributes when they are left out."""
        found = self.cls.__struct_defaults__
        names = self.cls.__struct_fields__[len(self.cls.__struct_fields__) - len(found) :]
        return {
            name: default.factory() if hasattr(default, "factory") else default
            for name, default in zip(names, found, strict=True)
            if default is not NODEFAULT
        }


def attribute_names(record: Record) -> tuple[str, ...]:
    """An attribute name for each field: the field's own where Python allows it, else one made from it."""
    taken: set[str] = set()
    names = []
    for f in record.fields:
        name = f.name
        if not _is_plain(name):
            name = re.sub(r"\W", "_", unicodedata.normalize("NFKC", name), flags=re.ASCII)
            name = name.strip("_") or "field"
            if name[0].isdigit():
                name = "field_" + name
            if keyword.iskeyword(name):
                name += "_"
        while name in taken or (name != f.name and name in record.by_name):
            name += "_"
        taken.add(name)
        names.append(name)
    return tuple(names)


def _is_plain(name: str) -> bool:
    return (
        name.isidentifier()
        and not keyword.iskeyword(name)
        and not name.startswith("__")
        and unicodedata.normalize("NFKC", name) == name
    )


def class_name(name: str) -> str:
    """A class's name for an event type's: what follows the last dot, made an identifier."""
    last = re.sub(r"\W", "_", name.rpartition(".")[2] or name)
    return last if last.isidentifier() and not keyword.iskeyword(last) else f"Event_{last}"


@lru_cache(maxsize=1024)
def enum_class(type: Enum) -> type[enum.Enum]:
    """An enum class for an enumeration that no Python class declares; values are the codes."""
    names: list[str] = []
    for name, _ in type.members:
        if not _is_plain(name) or name[0] == "_" or name in ("mro", "name", "value"):
            name = "member_" + re.sub(r"\W", "_", name, flags=re.ASCII).strip("_")
        while name in names:
            name += "_"
        names.append(name)
    try:
        codes = [code for _, code in type.members]
        make: Any = enum.Enum
        return make(class_name(type.name), list(zip(names, codes, strict=True)))  # type: ignore[no-any-return]
    except (ValueError, TypeError) as error:
        raise TypeDeclarationError(f"enumeration {type.name}: no Python class can be made: {error}") from error


def bind(type: Type, make_class: Callable[[Record, tuple[str, ...], tuple[Binding, ...]], Any]) -> Binding:
    """The binding of a type that has no Python class yet; `make_class` makes one for each record."""
    match type:
        case Record():
            attrs = attribute_names(type)
            parts = tuple(bind(f.type, make_class) for f in type.fields)
            return Binding(type, make_class(type, attrs, parts), attrs, parts)
        case Enum():
            cls = enum_class(type)
            return Binding(type, cls, members=tuple(cls))
        case Array(element=element):
            return Binding(type, parts=(bind(element, make_class),))
        case List(element=element):
            return Binding(type, tuple, parts=(bind(element, make_class),))
        case _:
            return Binding(type)
