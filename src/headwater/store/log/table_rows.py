"""Rows of files as rows of a channel's table, whatever type they were written with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headwater.late import pa
from headwater.store.log.schema import META, NODE, SOURCE, TIME, Table, microseconds
from headwater.types import event_type
from headwater.types.model import Record


def to_table(table: Table, batch: pa.RecordBatch, columns: Collection[str] | None = None) -> pa.RecordBatch:
    """Rows of a file as rows of the table, or some columns of them: what the file does not have is null."""
    wanted = [field for field in table.schema if columns is None or field.name in columns]
    fields = tuple(field for field in table.fields.record.fields if columns is None or field.name in columns)
    found: Mapping[str, Any] = {}
    if fields:
        made = event_type(Record(table.fields.name, fields)).conform(batch)
        found = dict(zip(made.schema.names, made.columns, strict=True))
    arrays = []
    for field in wanted:
        if field.name not in META:
            arrays.append(found[field.name])
            continue
        column = batch.column(field.name)
        if field.name in (NODE, SOURCE):
            column = plain_text(column)
        elif field.name == TIME and column.type != field.type:
            column = microseconds(column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()))
        arrays.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(wanted, metadata=table.schema.metadata))


def plain_text(column: Any) -> Any:
    """A column of text that may be dictionary encoded, without."""
    return column.cast(pa.utf8()) if column.type != pa.utf8() else column


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table that is small enough as one batch."""
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in table.schema], schema=table.schema)
