"""A DataFrame whose columns are told, for places where Spark must not be asked for them.

In a query function of a declarative pipeline Spark refuses everything that looks at a DataFrame, its columns included:
they may be those of a table that is not there yet. Whoever writes the pipeline knows them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headwater.errors import ExecutionError
from headwater.extras import require
from headwater.interest import as_event_type
from headwater.spark.log_columns import LOG_META
from headwater.spark.schema import spark_schema


def declared(frame: Any, columns: Any, *, meta: Collection[str] = tuple(LOG_META)) -> Any:
    """The DataFrame, known to have just these columns: `where(declared(frame, Reading), interest)`.

    `columns` is an event type, for its fields after the columns of a log (`meta` says which of node, source, seq and
    time are there), or a Spark schema. Other columns are left out. Spark reports one that is absent when it looks at
    the query, and one of another type when it runs it. Made for `where`, `derive`, `outcome` and `ingest.split`, which
    give a DataFrame again.
    """
    require("spark", "declared()")
    from pyspark.sql import types as T

    if isinstance(columns, T.StructType):
        found = columns
    else:
        unknown = sorted(set(meta) - set(LOG_META))
        if unknown:
            raise ExecutionError(f"meta: expected some of {', '.join(LOG_META)}, found {', '.join(unknown)}")
        types = {"seq": T.LongType(), "time": T.TimestampType()}
        own = [T.StructField(LOG_META[w], types.get(w, T.StringType())) for w in LOG_META if w in meta]
        found = T.StructType([*own, *spark_schema(as_event_type(columns).record).fields])
    schema = _loose(found)
    return Declared(frame.select(*(_checked(f.name, f.dataType) for f in schema.fields)), schema)


def _checked(name: str, kind: Any) -> Any:
    """The column, which is an error if it is of another type. Spark knows the type when it plans, and then nothing is
    left of the question. (DataFrame.to looks at the columns at once, also with Connect.)"""
    from pyspark.sql import functions as F

    column, wanted = F.col(_quoted(name)), kind.simpleString()
    found = F.concat(F.lit(f"column {name}: declared as {wanted}, found "), F.typeof(column))
    return F.when(F.typeof(column) == wanted, column).otherwise(F.raise_error(found)).alias(name)


class Declared:
    """A DataFrame with its schema; everything else is the DataFrame's."""

    def __init__(self, frame: Any, schema: Any) -> None:
        self._frame, self.schema = frame, schema

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    def __getattr__(self, name: str) -> Any:
        if name == "_frame":  # not there yet, as while it is copied
            raise AttributeError(name)
        return getattr(self._frame, name)


def _loose(kind: Any) -> Any:
    """The type with nulls wherever there can be some: a table does not keep that a column has none."""
    from pyspark.sql import types as T

    match kind:
        case T.StructType():
            return T.StructType([T.StructField(f.name, _loose(f.dataType)) for f in kind.fields])
        case T.ArrayType():
            return T.ArrayType(_loose(kind.elementType))
        case T.MapType():
            return T.MapType(_loose(kind.keyType), _loose(kind.valueType))
        case _:
            return kind


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


__all__ = ["declared"]
