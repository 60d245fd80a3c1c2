"""Pieces of Spark SQL text: literals, names and types that mean the same whatever the session's settings.

An interest is lowered to text rather than to Column objects: text needs no running Spark, is what `explain` shows,
travels to Spark Connect as one string, and becomes a Column with one call. The price is that literals must not
depend on the session: see `text_literal` and the explicit `TIMESTAMP_LTZ`.

This file knows nothing of programs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from headwater.types.model import Array, Enum, List, Record, Scalar, Type

DECIMAL = "DECIMAL(20,0)"  # an unsigned 64-bit integer
_TYPES = {
    "bool": "BOOLEAN",
    "i8": "TINYINT",
    "i16": "SMALLINT",
    "i32": "INT",
    "i64": "BIGINT",
    "u8": "SMALLINT",
    "u16": "INT",
    "u32": "BIGINT",
    "u64": DECIMAL,
    "f32": "FLOAT",
    "f64": "DOUBLE",
    "text": "STRING",
    "bytes": "BINARY",
    "timestamp": "TIMESTAMP_LTZ",  # plain TIMESTAMP follows spark.sql.timestampType
}
_INTEGER_SUFFIX = {"TINYINT": ("Y", 8), "SMALLINT": ("S", 16), "INT": ("", 32), "BIGINT": ("L", 64)}


class _NotConst:
    def __repr__(self) -> str:
        return "NOT_CONST"


NOT_CONST = _NotConst()


@dataclass(frozen=True, slots=True)
class Sql:
    """An expression of Spark SQL and what is known of it.

    `nullable`: may be null. `nan`: may be NaN (floats only). `const`: its value in the raw form, if it is constant.
    `raw` and `stored`: the column as it is stored, before it was widened, so that comparisons can leave it alone.
    """

    text: str
    nullable: bool = True
    nan: bool = True
    const: Any = NOT_CONST
    raw: str | None = None
    stored: Type | None = None

    def __str__(self) -> str:
        return self.text

    @property
    def is_const(self) -> bool:
        return self.const is not NOT_CONST


def type_name(type: Type) -> str:
    """Spark's name for a scalar or enumeration."""
    return "STRING" if isinstance(type, Enum) else _TYPES[str(type)]


def sql_type(type: Type) -> str:
    """A type in Spark's own words, with names quoted."""
    match type:
        case Array(element=element, shape=shape):
            return "ARRAY<" * len(shape) + sql_type(element) + ">" * len(shape)
        case List(element=element):
            return f"ARRAY<{sql_type(element)}>"
        case Record(fields=fields):
            return f"STRUCT<{', '.join(f'{name(f.name)}: {sql_type(f.type)}' for f in fields)}>"
        case Enum():
            return "STRING"
        case _:
            return type_name(type)


def null(type: Type) -> Sql:
    """Missing, of a type."""
    return Sql(f"CAST(NULL AS {sql_type(type)})")


def name(text: str) -> str:
    """A quoted name; a dot in it is a dot, not a path."""
    return f"`{text.replace('`', '``')}`"


def is_sayable(text: str) -> bool:
    """Whether a name can stand in SQL text: Spark substitutes `${…}` before it parses."""
    return "${" not in text


def text_literal(value: str) -> str:
    """A string. What a setting could change (escapes, quotes, substitution) goes as hexadecimal UTF-8."""
    if value.isprintable() and not set(value) & set("'\\$"):
        return f"'{value}'"
    return f"CAST(X'{value.encode().hex()}' AS STRING)"


def double(value: float) -> str:
    """A float as a literal; SQL has none for NaN and infinity."""
    if math.isnan(value):
        return "double('NaN')"
    if math.isinf(value):
        return "double('Infinity')" if value > 0 else "double('-Infinity')"
    return f"{value!r}D"


def single(value: float) -> str:
    """A value that a float32 holds exactly."""
    if not math.isfinite(value):
        return double(value).replace("double", "float")
    return f"{value!r}F"


def integer(value: int, spark_type: str) -> str:
    """An integer literal of a Spark integer type; the value fits."""
    return f"{value}{_INTEGER_SUFFIX[spark_type][0]}"


def integer_range(spark_type: str) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    bits = _INTEGER_SUFFIX[spark_type][1]
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def decimal(value: int) -> str:
    """An unsigned integer of 64 bits as a literal."""
    return f"CAST({value}BD AS {DECIMAL})"


def literal(value: Any, type: Type) -> Sql:
    """A constant in the raw form."""
    if value is None:
        return null(type)
    match type:
        case Enum():
            member = type.name_of(value)
            return null(type) if member is None else Sql(text_literal(member), nullable=False, const=value)
        case Scalar(name="bool"):
            text = "TRUE" if value else "FALSE"
        case Scalar(name="text"):
            text = text_literal(value)
        case Scalar(name="bytes"):
            text = f"X'{value.hex()}'"
        case Scalar(name="timestamp"):
            text = f"timestamp_micros({value}L)"
        case Scalar(name="u64"):
            text = decimal(value)
        case Scalar() if type.is_float:
            return Sql(double(value), nullable=False, nan=math.isnan(value), const=value)
        case _:
            text = integer(value, "BIGINT")
    return Sql(text, nullable=False, const=value)
