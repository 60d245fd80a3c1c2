"""Batches of a log as Spark wants them: which columns, which types, and the log's own before the event's."""

from __future__ import annotations

from typing import Any

from headwater.errors import ConfigError, ConfigProblem, EvolutionError
from headwater.late import pa
from headwater.spark.log_columns import LOG_META
from headwater.spark.schema import spark_schema, to_spark_arrow
from headwater.types import EventType
from headwater.types.model import I64, TEXT, TIMESTAMP, Field, Record

LOG_FIELDS = (
    Field("event_node", TEXT, True),
    Field("event_source", TEXT, True),
    Field("event_seq", I64, True),
    Field("event_time", TIMESTAMP, True),
)
DAY = "event_day"
NAMES = frozenset((*LOG_META.values(), DAY))


def log_record(type: EventType) -> Record:
    """The record of a frame: the log's columns, then the fields. All may be null, as in a table whose type evolved."""
    taken = [f.name for f in type.record.fields if f.name in NAMES]
    if taken:
        raise EvolutionError(
            f"{type.name}: events of this type cannot stand beside the log's own columns",
            [f"{name}: the log has a column of this name; rename the field" for name in taken],
        )
    return Record(type.name, (*LOG_FIELDS, *(Field(f.name, f.type, True) for f in type.record.fields)))


def picked(record: Record, schema: Any) -> Record:
    """The record with only the columns of a Spark schema that a user gave, in that order."""
    own = {f.name: f for f in spark_schema(record).fields}
    problems = []
    for asked in schema.fields:
        if asked.name not in own:
            problems.append(ConfigProblem(f"schema: column {asked.name}", "a column of the channel", "none",
                                          f"its columns are {', '.join(own)}"))  # fmt: skip
        elif not _same(asked.dataType, own[asked.name].dataType):
            expected = own[asked.name].dataType.simpleString()
            problems.append(ConfigProblem(f"schema: column {asked.name}", expected, asked.dataType.simpleString(),
                                          "leave the schema out, and cast the column afterwards"))  # fmt: skip
    if problems:
        raise ConfigError(problems, 'format("headwater"): this schema does not fit the channel')
    return Record(record.name, tuple(record.by_name[asked.name] for asked in schema.fields))


def _same(a: Any, b: Any) -> bool:
    """Equal types; whether something may be null does not matter."""
    return bool(a.simpleString() == b.simpleString())


def shaped(batch: Any, record: Record, schema: Any) -> Any:
    """A batch of the log in Spark's types, with exactly the schema that Spark expects."""
    made = to_spark_arrow(batch, record)
    return made if made.schema.equals(schema) else pa.RecordBatch.from_arrays(made.columns, schema=schema)


def arrow_of(schema: Any) -> Any:
    """The Arrow schema in which Spark takes rows of a Spark schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


__all__ = ["DAY", "LOG_FIELDS", "LOG_META", "arrow_of", "log_record", "picked", "shaped"]
