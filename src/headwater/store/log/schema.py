"""The table that a channel's log is: the event's fields after the columns that every event has.

A table's fields are the union, by name, of those of all types the channel ever had, each as wide as the widest, all
nullable. It is kept as `_common_metadata`, which Spark takes for the schema, and only ever grows.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

from headwater.errors import EvolutionError, StoreError, TypeDeclarationError
from headwater.late import np, pa, pq
from headwater.store.log.layout import ChannelFolder, sync_file, sync_folder, write_atomic
from headwater.types import EventType, event_type, plan
from headwater.types.arrow import NAME_KEY, record_from_schema
from headwater.types.model import BYTES, Array, Enum, Field, List, Record, Type, canonical, describe

NODE, SOURCE, SEQ, TIME = "event_node", "event_source", "event_seq", "event_time"
META = (NODE, SOURCE, SEQ, TIME)
RESERVED = frozenset((*META, "event_day"))

PATIENCE = 30.0  # seconds to wait for those who read, when the table changes

TYPE_KEY = b"headwater.type"
NODE_KEY = b"headwater.node"
SEGMENT_KEY = b"headwater.segment"
SOURCES_KEY = b"headwater.sources"


@cache
def meta_fields() -> tuple[Any, ...]:
    """The columns of every event, before its fields."""
    return (
        pa.field(NODE, pa.utf8()),
        pa.field(SOURCE, pa.utf8()),
        pa.field(SEQ, pa.int64()),
        pa.field(TIME, pa.timestamp("us", tz="UTC")),
    )


BYTES_RECORD = Record("bytes", (Field("data", BYTES),))  # events of a channel without a type


@dataclass(frozen=True)
class Table:
    """A channel's table: its newest `type` (None: bytes), and the `fields` that it has had in all."""

    type: EventType | None
    fields: EventType

    @cached_property
    def schema(self) -> Any:
        """The columns of every event, then the fields."""
        metadata = {NAME_KEY: self.fields.name.encode(), TYPE_KEY: type_text(self.type)}
        return pa.schema([*meta_fields(), *self.fields.schema], metadata=metadata)

    def batch(self, node: str, source: str, seqs: Any, times: Any, fields: Any) -> Any:
        """Rows of the table: of one source, with sequence numbers and times (µs) given, and a batch of fields of
        any type the table was made of."""
        return self.rows(constant(node, len(seqs)), constant(source, len(seqs)), seqs, times, fields)

    def rows(self, nodes: Any, sources: Any, seqs: Any, times: Any, fields: Any) -> Any:
        """The same with the nodes and sources as Arrow arrays of text."""
        found = self.fields.conform(fields)
        columns = [nodes, sources, pa.array(seqs, pa.int64()), microseconds(times), *found.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def constant(text: str, count: int) -> Any:
    """A column that has the same text in each row."""
    return pa.repeat(pa.scalar(text, pa.utf8()), count)


def microseconds(times: Any) -> Any:
    """A column of times from int64 microseconds, an Arrow array or one of numpy."""
    kind = meta_fields()[3].type
    if isinstance(times, pa.Array):
        return times if times.type == kind else times.cast(pa.int64()).view(kind)
    return pa.array(np.ascontiguousarray(times, np.int64)).view(kind)


# ── types as text ──


def type_text(type: EventType | None) -> bytes:
    """An event type as ASCII, for the metadata of a file; nothing for bytes."""
    return b"" if type is None else base64.b64encode(type.schema.serialize().to_pybytes())


def type_from_text(text: bytes, place: str) -> EventType | None:
    """The event type that a file's meta data has; None of a channel that carries bytes."""
    if not text:
        return None
    try:
        found = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
        return event_type(record_from_schema(found))
    except (ValueError, pa.ArrowException, TypeDeclarationError, OSError) as error:
        raise StoreError(f"{place}: expected an event type, found: {error}; run headwater log verify") from error


# ── the union ──


def first_table(type: EventType | None, channel: str) -> Table:
    """The table of a channel that has had this type only."""
    record = BYTES_RECORD if type is None else type.record
    reserved = [field.name for field in record.fields if field.name.lower() in RESERVED]
    if reserved:
        raise StoreError(
            f"channel {channel!r}: the log has columns of its own, {', '.join(sorted(RESERVED))}, and event type "
            f"{record.name} has a field {reserved[0]!r} too; rename the field, or do not log the channel"
        )
    return Table(type, event_type(Record(record.name, tuple(Field(f.name, f.type, True) for f in record.fields))))


@lru_cache(maxsize=256)
def _joined(fields: Record, new: Record) -> Record:
    problems: list[str] = []
    made = _join_records(fields, new, "", problems)
    if problems:
        raise EvolutionError(f"events of {new.name} do not fit a table that has events of {fields.name}", problems)
    return made


def evolve(table: Table, type: EventType | None, channel: str) -> Table:
    """The table with one more type, the newest now; `StoreError` lists each field that does not fit."""
    if (table.type is None) != (type is None):
        had, now = ("bytes", type) if table.type is None else (table.type, "bytes")
        raise StoreError(
            f"channel {channel!r}: expected events of {getattr(had, 'name', had)}, which its log has, found "
            f"{getattr(now, 'name', now)}; use another channel or folder for them"
        )
    if type is None or table.type == type:
        return table
    new = first_table(type, channel).fields.record
    try:
        return Table(type, event_type(_joined(table.fields.record, new)))
    except EvolutionError as error:
        lines = "\n".join(f"  - {problem}" for problem in error.problems)
        raise StoreError(
            f"channel {channel!r}: expected a type whose fields fit those already in its log, found {type.name}:\n"
            f"{lines}\n  give such a field another name, or log to another folder"
        ) from error


def _join_records(old: Record, new: Record, path: str, problems: list[str]) -> Record:
    fields = []
    for field in old.fields:
        other = new.by_name.get(field.name)
        if other is None:
            fields.append(Field(field.name, field.type, True))
        else:
            kind = _join(field.type, other.type, f"{path}{field.name}", problems)
            fields.append(Field(field.name, kind, field.optional or other.optional))
    fields += [Field(field.name, field.type, True) for field in new.fields if field.name not in old.by_name]
    return Record(new.name, tuple(fields))


def _join(old: Type, new: Type, path: str, problems: list[str]) -> Type:
    """The narrower of the two that takes every value of both, or a new one; a line in `problems` if there is none."""
    if canonical(old) == canonical(new):
        return old
    match old, new:
        case Record(), Record():
            return _join_records(old, new, f"{path}.", problems)
        case (Array(shape=shape), Array(shape=other)) if shape == other:
            return Array(_join(old.element, new.element, f"{path}[]", problems), shape)
        case List(), List():
            return List(_join(old.element, new.element, f"{path}[]", problems))
        case Enum(), Enum():
            return _join_enums(old, new)
    for kind, wider in ((old, new), (new, old)):
        try:
            plan(Record("a", (Field("a", kind),)), Record("b", (Field("a", wider),)))
            return wider
        except EvolutionError:
            continue
    problems.append(f"{path}: expected {describe(old)} or what it widens to, found {describe(new)}")
    return old


def _join_enums(old: Enum, new: Enum) -> Enum:
    """Old members keep their positions, which is what files have; codes are those of the newest type."""
    codes, taken = dict(new.members), {code for _, code in new.members}
    members = []
    for name, code in old.members:
        if name not in codes:
            code = code if code not in taken else max(taken) + 1
            taken.add(code)
        members.append((name, codes.get(name, code)))
    known = dict(members)
    return Enum(new.name, (*members, *((name, code) for name, code in new.members if name not in known)))


# ── names that some readers take for one ──


def clashes(kind: Type, path: str = "") -> set[tuple[str, str]]:
    """Pairs of fields, at any depth, whose names differ in nothing but upper and lower case."""
    match kind:
        case Record():
            found: set[tuple[str, str]] = set()
            taken: dict[str, str] = {}
            for field in kind.fields:
                name = f"{path}{field.name}"
                if (other := taken.setdefault(name.lower(), name)) != name:
                    found.add((other, name))
                found |= clashes(field.type, f"{name}.")
            return found
        case Array() | List():
            return clashes(kind.element, path)
        case _:
            return set()


def _check_names(folder: ChannelFolder, had: Table | None, now: Table) -> None:
    """StoreError for fields that Spark and DuckDB would take for one; those that a log has had before stay."""
    found = clashes(now.fields.record) - (clashes(had.fields.record) if had is not None else set())
    if found:
        one, other = min(found)
        raise StoreError(
            f"channel {folder.channel!r}: expected names of fields that differ in more than upper and lower case, "
            f"which Spark and DuckDB do not tell apart, found {one!r} and {other!r}"
            f"{'' if had is None else ' in the types that its log has had'}; rename one of them, or do not log the "
            "channel"
        )


# ── on disk ──


def read_table(folder: ChannelFolder) -> Table | None:
    """The table as it is now; None where there is none yet, or an empty file, which a power cut leaves of one that
    nothing depended on yet (see `Foundation`)."""
    path = folder.common_metadata
    try:
        if not path.stat().st_size:
            return None
        found = pq.read_schema(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (pa.ArrowException, OSError) as error:
        raise StoreError(
            f"{os.fspath(path)!r}: expected the schema of a log, as Parquet, found: {error}; run headwater log repair"
        ) from error
    return table_of(found, os.fspath(path))


def table_of(schema: Any, place: str) -> Table:
    """The table that a file's Arrow schema is of."""
    metadata = schema.metadata or {}
    type = type_from_text(metadata.get(TYPE_KEY, b""), place)
    own = [field for field in schema if field.name not in RESERVED]
    try:
        record = record_from_schema(pa.schema(own), metadata.get(NAME_KEY, b"events").decode())
    except TypeDeclarationError as error:
        raise StoreError(f"{place}: expected the columns of a log, found: {error}") from error
    return Table(type, event_type(Record(record.name, tuple(Field(f.name, f.type, True) for f in record.fields))))


def write_table(folder: ChannelFolder, table: Table, *, sync: bool = True) -> None:
    """Keep the table; hold `exclusive`."""
    sink = pa.BufferOutputStream()
    pq.write_metadata(table.schema, sink)
    write_atomic(folder.common_metadata, sink.getvalue().to_pybytes(), sync=sync)


def check(folder: ChannelFolder, type: EventType | None) -> Table:
    """The table as it would be with this type; writes nothing."""
    return _grown(folder, read_table(folder), type)


def _grown(folder: ChannelFolder, found: Table | None, type: EventType | None) -> Table:
    table = first_table(type, folder.channel) if found is None else evolve(found, type, folder.channel)
    if table is not found:
        _check_names(folder, found, table)
    return table


def admit(folder: ChannelFolder, type: EventType | None, *, sync: bool = True) -> Table:
    """The table, after this type has become its newest; the channel's folder must be there. It is on the disk when this
    returns; with `sync` False a first one need not be."""
    table = _admit(folder, type, sync)
    if sync:  # another may have made it, who has not synced it yet
        sync_file(folder.common_metadata)
        sync_folder(folder.path)
    return table


def _admit(folder: ChannelFolder, type: EventType | None, sync: bool) -> Table:
    found = read_table(folder)
    if found is not None:  # as a rule nothing changes: then nobody need stop reading
        table = _grown(folder, found, type)
        if found.schema.equals(table.schema, check_metadata=True):
            return table
    with folder.exclusive(wait=PATIENCE):
        found = read_table(folder)
        table = _grown(folder, found, type)
        if found is None or not found.schema.equals(table.schema, check_metadata=True):
            write_table(folder, table, sync=sync or found is not None)
        return table
