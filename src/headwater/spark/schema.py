"""Event types as Spark schemas, and their Arrow batches as Spark's and back, without loss.

Spark has no unsigned integers, fixed arrays or enumerations. They become the next wider integer (u64: decimal(20,0)),
arrays, and the members' names:

    u8 → short   u16 → int   u32 → long   u64 → decimal(20,0)      enumeration → string
    array, list → array without nulls     record → struct          timestamp → timestamp (an instant, not local time)

Optional fields are nullable, and so is everything within an optional record.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from headwater.errors import ExecutionError
from headwater.extras import require
from headwater.late import pa, pc
from headwater.types.conform import conform
from headwater.types.event_type import EventType, event_type
from headwater.types.model import Array, Enum, Field, List, Record, Scalar, Type


@cache
def _decimal() -> Any:
    return pa.decimal128(20, 0)


@cache
def _arrow() -> dict[str, Any]:
    return {
        "bool": pa.bool_(),
        "i8": pa.int8(),
        "i16": pa.int16(),
        "i32": pa.int32(),
        "i64": pa.int64(),
        "u8": pa.int16(),
        "u16": pa.int32(),
        "u32": pa.int64(),
        "u64": _decimal(),
        "f32": pa.float32(),
        "f64": pa.float64(),
        "text": pa.utf8(),
        "bytes": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }


def spark_type(type: Type, *, optional: bool = False) -> Any:
    """The Spark data type of a field's type; `optional` if the field is, or lies in a record that is."""
    require("spark", "a Spark type")
    from pyspark.sql import types as T

    scalars: dict[str, Any] = {
        "bool": T.BooleanType(),
        "i8": T.ByteType(),
        "i16": T.ShortType(),
        "i32": T.IntegerType(),
        "i64": T.LongType(),
        "u8": T.ShortType(),
        "u16": T.IntegerType(),
        "u32": T.LongType(),
        "u64": T.DecimalType(20, 0),
        "f32": T.FloatType(),
        "f64": T.DoubleType(),
        "text": T.StringType(),
        "bytes": T.BinaryType(),
        "timestamp": T.TimestampType(),
    }
    match type:
        case Scalar(name=name):
            return scalars[name]
        case Enum():
            return T.StringType()
        case Array(element=element, shape=shape):
            made = spark_type(element)
            for _ in shape:
                made = T.ArrayType(made, containsNull=False)
            return made
        case List(element=element):
            return T.ArrayType(spark_type(element), containsNull=False)
        case Record(fields=fields):
            return T.StructType([_spark_field(f, optional) for f in fields])


def spark_schema(record: Record) -> Any:
    """The Spark schema (a `StructType`) of an event type's record."""
    require("spark", "a Spark schema")
    from pyspark.sql import types as T

    return T.StructType([_spark_field(f, False) for f in record.fields])


def _spark_field(field: Field, inside_optional: bool) -> Any:
    """Within a record that may be null, Arrow has nulls for the required fields too; Spark must know of them."""
    from pyspark.sql import types as T

    optional = field.optional or inside_optional
    return T.StructField(field.name, spark_type(field.type, optional=optional), optional)


def _arrow_type(type: Type, *, optional: bool = False) -> Any:
    match type:
        case Scalar(name=name):
            return _arrow()[name]
        case Enum():
            return pa.utf8()
        case Array(element=element, shape=shape):
            made = _arrow_type(element)
            for _ in shape:
                made = pa.list_(pa.field("element", made, nullable=False))
            return made
        case List(element=element):
            return pa.list_(pa.field("element", _arrow_type(element), nullable=False))
        case Record(fields=fields):
            return pa.struct([_arrow_field(f, optional) for f in fields])


def _arrow_field(field: Field, inside_optional: bool) -> Any:
    optional = field.optional or inside_optional
    return pa.field(field.name, _arrow_type(field.type, optional=optional), nullable=optional)


def spark_arrow_schema(record: Record) -> Any:
    """The Arrow schema in which Spark takes events of this type."""
    return pa.schema([_arrow_field(f, False) for f in record.fields])


def to_spark_arrow(data: Any, record: Record) -> Any:
    """A RecordBatch or Table of the event type's own schema (or one that conforms to it), as Spark wants it."""
    batch = conform(record, data)
    schema = spark_arrow_schema(record)
    pairs = zip(batch.columns, record.fields, schema.types, strict=True)
    made = pa.RecordBatch.from_arrays([_to_spark(column, f.type, target) for column, f, target in pairs], schema=schema)
    return pa.Table.from_batches([made]) if isinstance(data, pa.Table) else made


def _to_spark(array: Any, type: Type, target: Any) -> Any:
    match type:
        case Array(element=element, shape=shape):
            return _lists(array, Array(element, shape[1:]) if len(shape) > 1 else element, target)
        case List(element=element):
            return _lists(array, element, target)
        case Record(fields=fields):
            children = [_to_spark(array.field(i), f.type, target.field(i).type) for i, f in enumerate(fields)]
            return pa.StructArray.from_arrays(children, fields=list(target), mask=_mask(array))
    return array if array.type == target else array.cast(target)


def _mask(array: Any) -> Any:
    return array.is_null() if array.null_count else None


def _lists(array: Any, inner: Type, target: Any) -> Any:
    """A list array from a list or fixed-size list array; a null has no elements."""
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    values = _to_spark(array.values.slice(first, last - first), inner, target.value_type)
    return pa.ListArray.from_arrays(pc.subtract(array.offsets, first), values, type=target, mask=_mask(array))


def from_spark_arrow(data: Any, record: Record) -> Any:
    """A RecordBatch of the event type's own schema from a RecordBatch or Table as Spark gives it."""
    table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
    columns = [_without_decimals(column) for column in table.columns]
    return conform(record, pa.Table.from_arrays(columns, names=table.column_names))


def _without_decimals(column: Any) -> Any:
    target = _unsigned(column.type)
    if target == column.type:
        return column
    return pa.chunked_array([_decimals(chunk, target) for chunk in column.chunks], target)


def _unsigned(found: Any) -> Any:
    """The type with decimal(20,0) replaced by uint64, at any depth."""
    kinds = pa.types
    if found == _decimal():
        return pa.uint64()
    if kinds.is_list(found) or kinds.is_large_list(found):
        item = found.value_field
        made = pa.field(item.name, _unsigned(item.type), nullable=item.nullable)
        return pa.large_list(made) if kinds.is_large_list(found) else pa.list_(made)
    if kinds.is_struct(found):
        fields = [found.field(i) for i in range(found.num_fields)]
        return pa.struct([pa.field(f.name, _unsigned(f.type), nullable=f.nullable) for f in fields])
    return found


def _decimals(array: Any, target: Any) -> Any:
    if array.type == target:
        return array
    kinds = pa.types
    if kinds.is_struct(target):
        children = [_decimals(array.field(i), target.field(i).type) for i in range(target.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=_mask(array))
    if kinds.is_list(target) or kinds.is_large_list(target):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        values = _decimals(array.values.slice(first, last - first), target.value_type)
        make = pa.LargeListArray if kinds.is_large_list(target) else pa.ListArray
        return make.from_arrays(pc.subtract(array.offsets, first), values, type=target, mask=_mask(array))
    return array.cast(target)


def to_dataframe(spark: Any, type: EventType | Any, events: Iterable[Any] | Any) -> Any:
    """A DataFrame of events (instances, dicts, raw forms), or of a RecordBatch or Table, with the type's schema."""
    of = event_type(type)
    batch = events if isinstance(events, pa.RecordBatch | pa.Table) else of.to_arrow(events)
    table = to_spark_arrow(batch, of.record)
    table = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
    return spark.createDataFrame(table, schema=spark_schema(of.record))


def from_dataframe(frame: Any, type: EventType | Any) -> Any:
    """The DataFrame's rows as a RecordBatch of the event type's own schema."""
    of = event_type(type)
    lacking = [f.name for f in of.record.fields if f.name not in frame.columns and not f.optional]
    if lacking:
        raise ExecutionError(f"{of.name}: the DataFrame has no column {', '.join(map(repr, lacking))}")
    return from_spark_arrow(frame.toArrow(), of.record)
