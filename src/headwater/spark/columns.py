"""Checking, on the driver and before any task starts, that a DataFrame has the columns an interest reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwater.errors import EvolutionError, ExecutionError
from headwater.ir.nodes import META_TYPES
from headwater.spark.schema import spark_type
from headwater.spark.sql_text import is_sayable, name, sql_type, type_name
from headwater.types.model import Array, List, Record, Type

# Widening that loses nothing, by Spark's names for its types.
_WIDER = {
    "smallint": {"tinyint"},
    "int": {"tinyint", "smallint"},
    "bigint": {"tinyint", "smallint", "int"},
    "float": {"tinyint", "smallint"},
    "double": {"tinyint", "smallint", "int", "float"},
}


def bind_columns(frame: Any, record: Record, fields: Iterable[str]) -> dict[str, str]:
    """SQL text for each field, or an EvolutionError that lists every column that does not fit.

    A column may be narrower than the field, and a column for an optional field may be absent.
    """
    found = _by_name(frame)
    problems: list[str] = []
    columns: dict[str, str] = {}
    for which in fields:
        field = record.by_name[which]
        if not is_sayable(which):
            problems.append(f"{which}: Spark substitutes ${{…}} in names; rename the field")
        elif which in found:
            columns[which] = _bind(which, field.type, found[which], problems)
        elif field.optional:
            columns[which] = f"CAST(NULL AS {sql_type(field.type)})"
        else:
            problems.append(f"{which}: expected {_say(field.type)}, found no such column")
    if problems:
        title = f"this DataFrame does not fit the event type {record.name}; its columns are {', '.join(found)}"
        raise EvolutionError(title, problems)
    return columns


def bind_meta(frame: Any, meta: Mapping[str, str] | None) -> dict[str, str]:
    """SQL text for source, node, seq and time from the names of the columns that hold them."""
    found = _by_name(frame)
    problems: list[str] = []
    columns: dict[str, str] = {}
    for which, column in (meta or {}).items():
        if which not in META_TYPES:
            raise ExecutionError(f"meta: expected {', '.join(META_TYPES)}, found {which!r}")
        if column not in found:
            problems.append(f"{column}: expected {_say(META_TYPES[which])} for meta {which}, found no such column")
        else:
            columns[which] = _bind(column, META_TYPES[which], found[column], problems)
    if problems:
        raise EvolutionError(f"this DataFrame lacks meta columns; its columns are {', '.join(found)}", problems)
    return columns


def _by_name(frame: Any) -> dict[str, Any]:
    """Data types by column name. Columns that Spark itself could not tell apart are refused."""
    fields = frame.schema.fields
    sensitive = frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    seen: dict[str, str] = {}
    for field in fields:
        key = field.name if sensitive else field.name.lower()
        if key in seen:
            raise ExecutionError(
                f"columns {seen[key]!r} and {field.name!r} of this DataFrame are one name to Spark; rename one, or "
                "set spark.sql.caseSensitive to true if they differ in case"
            )
        seen[key] = field.name
    return {field.name: field.dataType for field in fields}


def _bind(column: str, type: Type, found: Any, problems: list[str]) -> str:
    expected = spark_type(type).simpleString()
    if found.simpleString() in _WIDER.get(expected, ()):
        return f"CAST({name(column)} AS {type_name(type)})"
    _compare(column, type, found, problems)
    return name(column)


def _compare(path: str, type: Type, found: Any, problems: list[str]) -> None:
    kind = found.typeName()
    match type:
        case Array() | List() if kind == "array":
            inner: Type = type.element
            if isinstance(type, Array) and len(type.shape) > 1:
                inner = Array(type.element, type.shape[1:])
            _compare(f"{path}[]", inner, found.elementType, problems)
        case Record(fields=fields) if kind == "struct":
            by_name = {f.name: f.dataType for f in found.fields}
            for field in fields:
                where = f"{path}.{field.name}"
                if field.name in by_name:
                    _compare(where, field.type, by_name[field.name], problems)
                else:
                    problems.append(f"{where}: expected {_say(field.type)}, found no such field")
        case _ if isinstance(type, Array | List | Record) or spark_type(type).simpleString() != found.simpleString():
            problems.append(f"{path}: expected {_say(type)}, found {found.simpleString()}{_advice(type, found)}")


def _say(type: Type) -> str:
    made = spark_type(type).simpleString()
    return f"{made} for {type}" if made != str(type) else made


def _advice(type: Type, found: Any) -> str:
    if str(type) == "timestamp" and found.simpleString() == "timestamp_ntz":
        return " (local time without a zone; convert it with to_utc_timestamp or cast it where the zone is UTC)"
    if str(type) in ("text", "enumeration") and "collate" in found.simpleString():
        return " (interests compare text byte by byte; cast it to string)"
    return ""
