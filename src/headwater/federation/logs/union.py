"""What several nodes have logged of one channel, as one table: nodes may know different versions of its type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.errors import FederationError, FrameError, StoreError
from headwater.federation.wire.arrow_streams import read_schema
from headwater.federation.wire.log_requests import ChannelLogged
from headwater.federation.wire.requests import unpack_type
from headwater.late import pa
from headwater.store.log.interest_scan import check_columns
from headwater.store.log.schema import NODE, SOURCE, TYPE_KEY, Table, constant, evolve, meta_fields, table_of
from headwater.store.log.table_rows import one_batch, to_table
from headwater.types import EventType


class Union:
    """The table of a channel over all nodes. `type` is the newest type where all agree, else one that has all fields
    that any node has, each of which may be missing."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.type: EventType | None = table.type
        self.schema: pa.Schema = table.schema

    @classmethod
    def of(cls, channel: str, parts: Mapping[str, ChannelLogged]) -> Union:
        """Of what each node says that it has; FederationError if that are no columns, or do not fit one another."""
        found: Table | None = None
        for node, part in sorted(parts.items()):
            try:
                schema = read_schema(part.schema)
                # Its type is sent beside it; the one within is for files, and not looked at.
                notes = {key: text for key, text in (schema.metadata or {}).items() if key != TYPE_KEY}
                table = Table(unpack_type(part.type), table_of(schema.with_metadata(notes), f"node {node}").fields)
            except (FrameError, ValueError) as error:
                raise FederationError(f"node {node}: expected the columns of a log, found: {error}") from error
            if found is None or found == table:
                found = table
                continue
            try:
                # As one more type the other's columns widen these.
                joined = evolve(found, None if table.type is None else table.fields, channel).fields
            except StoreError as error:
                raise FederationError(f"the logs of {channel} at node {node} and others do not fit: {error}") from error
            same = found.type == table.type
            found = Table(found.type if same else joined, joined)
        assert found is not None
        return cls(found)

    def wanted(self, output: EventType | None, columns: Sequence[str] | None) -> pa.Schema:
        """The schema of what is read: of the events, or of a transformation's output, or of some columns of either."""
        schema = self.schema if output is None else pa.schema([*meta_fields(), *output.schema])
        if columns is None:
            return schema
        return pa.schema([schema.field(name) for name in check_columns(list(columns), schema.names)])

    def fitted(self, table: pa.Table, schema: pa.Schema, node: str, source: str, *, made: bool) -> pa.RecordBatch:
        """Rows as they came, in the schema that is wanted; `made` by a transformation they have it."""
        for name, value in ((NODE, node), (SOURCE, source)):  # which do not travel
            if name in schema.names and name not in table.schema.names:
                table = table.append_column(name, constant(value, table.num_rows))
        if made:
            table = table.select(schema.names)
        batch = one_batch(table)
        if not made and not batch.schema.equals(schema):
            batch = to_table(self.table, batch, schema.names).select(schema.names)
        if batch.schema.names != schema.names or any(
            there.type != field.type for there, field in zip(batch.schema, schema, strict=True)
        ):
            raise ValueError(f"expected the columns {', '.join(schema.names)}, found {', '.join(batch.schema.names)}")
        columns: list[Any] = list(batch.columns)
        return pa.RecordBatch.from_arrays(columns, schema=schema)
