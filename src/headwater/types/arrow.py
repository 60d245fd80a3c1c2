"""Event types as Arrow schemas, and Arrow schemas as event types.

    bool, iN, uN, f32, f64   bool, intN, uintN, float, double
    text, bytes              utf8, binary
    timestamp                timestamp('us', tz='UTC')
    enumeration              dictionary(int32, utf8): the members' names in declaration order, the index is the
                             position (not the code); the field's metadata `headwater.enum` keeps name and codes
    array                    fixed_size_list, nested for several dimensions, items not null
    list                     list, items not null
    record                   struct; the field's metadata `headwater.record` keeps its name

Optional fields are nullable. The schema's metadata `headwater.name` is the event type's name. Arrow's own types are
read more widely: large and view variants, timestamps of any unit and zone (without one: UTC), dictionaries, and
items that may be null (they must not be when it comes to values).
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from typing import Any

from headwater.errors import TypeDeclarationError
from headwater.late import pa
from headwater.types import model
from headwater.types.model import Array, Enum, Field, List, Record, Scalar, Type

NAME_KEY = b"headwater.name"
ENUM_KEY = b"headwater.enum"
RECORD_KEY = b"headwater.record"


@cache
def _scalars() -> dict[str, Any]:
    return {
        "bool": pa.bool_(),
        "i8": pa.int8(),
        "i16": pa.int16(),
        "i32": pa.int32(),
        "i64": pa.int64(),
        "u8": pa.uint8(),
        "u16": pa.uint16(),
        "u32": pa.uint32(),
        "u64": pa.uint64(),
        "f32": pa.float32(),
        "f64": pa.float64(),
        "text": pa.utf8(),
        "bytes": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }


@cache
def _from_arrow() -> dict[Any, Scalar]:
    return {_scalars()[name]: scalar for name, scalar in model.SCALARS.items()}


def arrow_field(name: str, type: Type, *, nullable: bool = False) -> Any:
    """The Arrow field of a type, with the metadata that brings it back."""
    metadata = {}
    if isinstance(type, Enum):
        members = [list(member) for member in type.members]
        metadata[ENUM_KEY] = json.dumps({"name": type.name, "members": members}, ensure_ascii=False).encode()
    elif isinstance(type, Record):
        metadata[RECORD_KEY] = type.name.encode()
    return pa.field(name, arrow_type(type), nullable=nullable, metadata=metadata or None)


def arrow_type(type: Type) -> Any:
    """The Arrow type of a type."""
    match type:
        case Scalar(name=name):
            return _scalars()[name]
        case Enum():
            return pa.dictionary(pa.int32(), pa.utf8())
        case Array(element=element, shape=shape):
            item = arrow_field("item", element)
            for n in reversed(shape):
                item = pa.field("item", pa.list_(item, n), nullable=False)
            return item.type
        case List(element=element):
            return pa.list_(arrow_field("item", element))
        case Record(fields=fields):
            return pa.struct([arrow_field(f.name, f.type, nullable=f.optional) for f in fields])


@lru_cache(maxsize=1024)
def arrow_schema(record: Record) -> Any:
    """The Arrow schema of an event type."""
    fields = [arrow_field(f.name, f.type, nullable=f.optional) for f in record.fields]
    return pa.schema(fields, metadata={NAME_KEY: record.name.encode()})


def record_from_schema(schema: Any, name: str | None = None) -> Record:
    """The record type an Arrow schema describes; every field that has no equivalent is listed in the error."""
    metadata = schema.metadata or {}
    if name is None:
        if NAME_KEY not in metadata:
            raise TypeDeclarationError(
                "this Arrow schema does not say what its events are called; give name=..., for instance "
                "name='ie.tcd.Sighting'"
            )
        name = metadata[NAME_KEY].decode()
    problems: list[str] = []
    fields = _fields(schema, "", problems)
    if not problems and not fields:
        problems.append("expected at least one field, found none")
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise TypeDeclarationError(f"{name}: this Arrow schema is no event type\n{lines}")
    return Record(name, fields)


def _fields(fields: Any, path: str, problems: list[str]) -> tuple[Field, ...]:
    found = []
    for field in fields:
        where = f"{path}.{field.name}" if path else field.name
        type = _type(field, where, problems)
        if type is not None:
            found.append(Field(field.name, type, field.nullable))
    return tuple(found)


def _type(field: Any, path: str, problems: list[str]) -> Type | None:
    """The type of an Arrow field, or None and a line in `problems`."""
    arrow, metadata = field.type, field.metadata or {}
    if isinstance(arrow, pa.BaseExtensionType):
        arrow = arrow.storage_type
    kinds = pa.types
    if kinds.is_dictionary(arrow):
        if ENUM_KEY in metadata and is_text(arrow.value_type):
            return _enum(metadata[ENUM_KEY], path, problems)
        arrow = arrow.value_type
    if (scalar := _from_arrow().get(arrow)) is not None:
        return scalar
    if is_text(arrow):
        return model.TEXT
    if is_binary(arrow):
        return model.BYTES
    if kinds.is_timestamp(arrow):
        return model.TIMESTAMP
    if kinds.is_fixed_size_list(arrow):
        element = _type(arrow.value_field, f"{path}[]", problems)
        if arrow.list_size < 1:
            problems.append(f"{path}: {arrow} has no elements; expected a size of 1 or more")
            return None
        if isinstance(element, Array):
            return Array(element.element, (arrow.list_size, *element.shape))
        return Array(element, (arrow.list_size,)) if element is not None else None
    if is_list(arrow):
        element = _type(arrow.value_field, f"{path}[]", problems)
        return List(element) if element is not None else None
    if kinds.is_struct(arrow):
        if not arrow.num_fields:
            problems.append(f"{path}: a struct needs at least one field")
            return None
        before = len(problems)
        fields = _fields([arrow.field(i) for i in range(arrow.num_fields)], path, problems)
        if len(problems) > before:
            return None
        return Record(metadata[RECORD_KEY].decode() if RECORD_KEY in metadata else field.name, fields)
    problems.append(f"{path}: {arrow} has no equivalent; {_advice(arrow)}")
    return None


def _advice(arrow: Any) -> str:
    kinds = pa.types
    if kinds.is_date(arrow):
        return "cast it to timestamp('us', tz='UTC')"
    if kinds.is_time(arrow) or kinds.is_duration(arrow):
        return "cast it to int64"
    if kinds.is_decimal(arrow):
        return "cast it to double, or to int64 in the smallest unit"
    if arrow == pa.float16():
        return "cast it to float"
    if kinds.is_map(arrow):
        return "use a list of structs"
    return "cast it to one of bool, int8 to uint64, float, double, utf8, binary, timestamp, list or struct"


def _enum(metadata: bytes, path: str, problems: list[str]) -> Enum | None:
    try:
        found = json.loads(metadata)
        members = tuple((str(name), int(code)) for name, code in found["members"])
        return Enum(str(found["name"]), members)
    except (ValueError, TypeError, KeyError) as error:
        problems.append(f"{path}: the metadata headwater.enum is faulty: {error}")
        return None


def is_text(arrow: Any) -> bool:
    """Whether an Arrow type is one of its kinds of text."""
    kinds = pa.types
    return bool(kinds.is_string(arrow) or kinds.is_large_string(arrow) or kinds.is_string_view(arrow))


def is_binary(arrow: Any) -> bool:
    """Whether an Arrow type is one of its kinds of bytes."""
    kinds = pa.types
    variable = kinds.is_binary(arrow) or kinds.is_large_binary(arrow) or kinds.is_binary_view(arrow)
    return bool(variable or kinds.is_fixed_size_binary(arrow))


def is_list(arrow: Any) -> bool:
    """Whether an Arrow type is one of its kinds of lists of any length."""
    kinds = pa.types
    plain = (kinds.is_list(arrow) or kinds.is_large_list(arrow)) and not kinds.is_map(arrow)
    return bool(plain or kinds.is_list_view(arrow) or kinds.is_large_list_view(arrow))


def compact(array: Any) -> Any:
    """The array, copied if Arrow's `take` or `filter` could not be trusted with it.

    On a slice of fixed arrays within fixed arrays, without nulls inside, they read at a wrong place (pyarrow 26).
    """
    return pa.concat_arrays([array, array.slice(0, 0)]) if _has_grid(array.type) else array


def _has_grid(arrow: Any, within: bool = False) -> bool:
    fixed = bool(pa.types.is_fixed_size_list(arrow))
    if fixed and within:
        return True
    if fixed or is_list(arrow):
        return _has_grid(arrow.value_type, fixed)
    if pa.types.is_struct(arrow):
        return any(_has_grid(arrow.field(i).type) for i in range(arrow.num_fields))
    return False
