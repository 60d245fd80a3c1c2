"""The algebra of types: what a field may be, and nothing about how it is stored.

    Type   = Scalar | Enum | Array | List | Record
    Scalar = bool | i8 … i64 | u8 … u64 | f32 | f64 | text | bytes | timestamp
    Array  = element type with a fixed shape of one or more dimensions
    List   = element type, any number of elements
    Record = name, ordered fields;  Field = name, type, optional or not

Elements of arrays and lists are never missing; fields may be optional. The value an interest computes
with is wider than what is stored: `promote` says how (see docs/semantics.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from json import dumps

from headwater.errors import TypeDeclarationError

TIMESTAMP_MIN = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z in microseconds
TIMESTAMP_MAX = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z


@dataclass(frozen=True, slots=True)
class Scalar:
    """One of the scalar types; use the constants below, e.g. `I32`."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def bits(self) -> int:
        """Width of an integer or float."""
        return int(self.name[1:])

    @property
    def is_signed(self) -> bool:
        return self.name[0] == "i"

    @property
    def is_integer(self) -> bool:
        return self.name[0] in "iu"

    @property
    def is_float(self) -> bool:
        return self.name[0] == "f"

    @property
    def is_number(self) -> bool:
        return self.name[0] in "iuf"

    @property
    def range(self) -> tuple[int, int]:
        """Least and greatest value of an integer type or a timestamp."""
        if self is TIMESTAMP or self.name == "timestamp":
            return TIMESTAMP_MIN, TIMESTAMP_MAX
        if self.is_signed:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1


BOOL = Scalar("bool")
I8, I16, I32, I64 = Scalar("i8"), Scalar("i16"), Scalar("i32"), Scalar("i64")
U8, U16, U32, U64 = Scalar("u8"), Scalar("u16"), Scalar("u32"), Scalar("u64")
F32, F64 = Scalar("f32"), Scalar("f64")
TEXT, BYTES, TIMESTAMP = Scalar("text"), Scalar("bytes"), Scalar("timestamp")

INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
SCALARS = {s.name: s for s in (BOOL, *INTEGERS, F32, F64, TEXT, BYTES, TIMESTAMP)}


@dataclass(frozen=True, slots=True)
class Enum:
    """A closed set of named members, each with a 32-bit code."""

    name: str
    members: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        if not self.members:
            raise TypeDeclarationError(f"enumeration {self.name}: expected at least one member, found none")
        for what in (0, 1):
            seen = [member[what] for member in self.members]
            if len(set(seen)) != len(seen):
                raise TypeDeclarationError(f"enumeration {self.name}: names and codes must be unique")
        for name, code in self.members:
            if not -(1 << 31) <= code < (1 << 31):
                raise TypeDeclarationError(f"enumeration {self.name}.{name}: code {code} does not fit 32 bits")

    def __str__(self) -> str:
        return self.name

    def code_of(self, member: str) -> int | None:
        return dict(self.members).get(member)

    def name_of(self, code: int) -> str | None:
        return next((name for name, c in self.members if c == code), None)


@dataclass(frozen=True, slots=True)
class Array:
    """A fixed array; `shape` is outermost dimension first, as it is indexed."""

    element: Type
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.shape or any(n < 1 for n in self.shape):
            raise TypeDeclarationError(f"array of {self.element}: expected dimensions of 1 or more, found {self.shape}")
        if isinstance(self.element, Array):
            raise TypeDeclarationError("array of array: give one array several dimensions instead")

    def __str__(self) -> str:
        return f"{self.element}[{'×'.join(map(str, self.shape))}]"

    @property
    def count(self) -> int:
        """Number of elements in all dimensions."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class List:
    """A variable array."""

    element: Type

    def __str__(self) -> str:
        return f"{self.element}[]"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record. An optional one may be missing."""

    name: str
    type: Type
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.type}{'?' if self.optional else ''}"


@dataclass(frozen=True)
class Record:
    """A named, ordered set of fields: an event type's shape, or a nested part of one."""

    name: str
    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise TypeDeclarationError(f"{self.name}: field {twice!r} is declared twice")
        if "" in names:
            raise TypeDeclarationError(f"{self.name}: field {names.index('') + 1} has an empty name")

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return self._hash  # types are looked up far more often than they are made

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.fields))

    @cached_property
    def by_name(self) -> dict[str, Field]:
        """Its fields by name."""
        return {field.name: field for field in self.fields}

    @cached_property
    def fingerprint(self) -> int:
        """64 bits that are equal for equal types on every machine and in every version."""
        return int.from_bytes(blake2b(canonical(self).encode(), digest_size=8).digest(), "little")


Type = Scalar | Enum | Array | List | Record


def canonical(type: Type) -> str:
    """The text a fingerprint is taken from: structure and names, nothing else.

    Names are written as JSON in ASCII: `repr` would change with Python's table of printable characters.
    """
    match type:
        case Scalar(name=name):
            return name
        case Enum(name=name, members=members):
            return f"enum {dumps(name)}({','.join(f'{dumps(m)}={c}' for m, c in members)})"
        case Array(element=element, shape=shape):
            return f"array({canonical(element)};{','.join(map(str, shape))})"
        case List(element=element):
            return f"list({canonical(element)})"
        case Record(name=name, fields=fields):
            inner = ",".join(f"{dumps(f.name)}:{canonical(f.type)}{'?' if f.optional else ''}" for f in fields)
            return f"record {dumps(name)}({inner})"


def promote(type: Type) -> Type:
    """What a stored value becomes when it is read: integers 64 bits wide, floats double."""
    if isinstance(type, Scalar):
        if type.is_float:
            return F64
        if type.is_integer:
            return U64 if type == U64 else I64
    return type


def walk(type: Type) -> Iterator[Type]:
    """The type and every type inside it, outermost first."""
    yield type
    match type:
        case Array(element=element) | List(element=element):
            yield from walk(element)
        case Record(fields=fields):
            for field in fields:
                yield from walk(field.type)


def describe(type: Type) -> str:
    """The type in a reader's words, for messages."""
    match type:
        case Scalar(name=name) if type.is_number:
            sign = "" if name[0] == "f" else ("signed " if name[0] == "i" else "unsigned ")
            return f"{name} ({sign}{'float' if name[0] == 'f' else 'integer'}, {type.bits} bits)"
        case Enum(name=name):
            return f"enumeration {name}"
        case Record(name=name):
            return f"record {name}"
        case Array():
            return f"array {type}"
        case List(element=element):
            return f"list of {element}"
        case _:
            return str(type)
