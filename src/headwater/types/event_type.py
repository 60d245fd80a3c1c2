"""`EventType`: everything that can be done with one event type, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

from headwater.errors import TypeDeclarationError
from headwater.late import loaded
from headwater.types import columns, frames, plain
from headwater.types.arrow import arrow_schema, record_from_schema
from headwater.types.binding import Binding, bind
from headwater.types.codec import Codec, Data, split
from headwater.types.conform import conform
from headwater.types.event import Event, EventMeta, binding_of, make_class
from headwater.types.layout import Layout
from headwater.types.model import Array, Enum, List, Record, Type
from headwater.types.view import View, viewer


class EventType:
    """An event type: its fields, layout and Arrow schema, and its events in all their forms.

    Get one with `event_type(...)`. Two event types are equal when their records are: name, fields, types.
    """

    def __init__(self, record: Record, *, binding: Binding | None = None) -> None:
        self.record = record
        self.layout = Layout.of(record)
        self._given = binding

    @classmethod
    def from_arrow_schema(cls, schema: Any, *, name: str | None = None) -> EventType:
        """The event type of an Arrow schema; `name` is needed unless the schema's metadata has it."""
        return event_type(record_from_schema(schema, name))

    @property
    def name(self) -> str:
        """The name of its record."""
        return self.record.name

    @property
    def fingerprint(self) -> int:
        """64 bits that are equal for equal types, on every machine."""
        return self.record.fingerprint

    @cached_property
    def schema(self) -> Any:
        """The Arrow schema (a `pyarrow.Schema`)."""
        return arrow_schema(self.record)

    @cached_property
    def binding(self) -> Binding:
        """How instances of its class are encoded: of the class it was declared with, or of one that is made."""
        return self._given if self._given is not None else bind(self.record, make_class)

    @property
    def cls(self) -> type[Event]:
        """The Event class; for a type made at run time one is made when first asked for."""
        return self.binding.cls  # type: ignore[no-any-return]

    @cached_property
    def _codec(self) -> Codec:
        return Codec(self.binding)

    @cached_property
    def _view(self) -> Callable[[Data], View]:
        return viewer(self.binding, self.layout)

    # ── one event ──

    def encode(self, event: Any = None, /, **fields: Any) -> bytes:
        """The record of an instance, of a dict by field name, of a raw form, or of the keywords given."""
        return self._codec.encode(fields if event is None else event)

    def decode(self, data: Data) -> Any:
        """The instance in a record; `DecodeError` for anything that is not one."""
        return self._codec.decode(data)

    def decode_raw(self, data: Data) -> dict[str, Any]:
        """The event in a record as a dict of plain values (see `values.py` for the raw form)."""
        return self._codec.decode_raw(data)

    def to_raw(self, event: Any) -> dict[str, Any]:
        """The raw form of an instance or dict."""
        return self._codec.to_raw(event)

    def from_raw(self, raw: dict[str, Any]) -> Any:
        """The instance of a raw form."""
        return self._codec.from_raw(raw)

    def to_dict(self, event: Any) -> dict[str, Any]:
        """The fields of an instance, or a dict, by name, as Python values; nested events are dicts, too."""
        return plain.to_dict(self, event)

    def from_dict(self, fields: Mapping[str, Any]) -> Any:
        """The instance that a dict describes; `EncodeError`, which names the field, if it describes none."""
        return plain.from_dict(self, fields)

    def to_json(self, event: Any, *, indent: int | None = None) -> str:
        """JSON text of an instance or dict, from which `from_json` makes an equal one (see `plain.py`)."""
        return plain.to_json(self, event, indent=indent)

    def from_json(self, text: str | bytes | bytearray) -> Any:
        """The instance in JSON text; `EncodeError`, which names the field, if there is none."""
        return plain.from_json(self, text)

    def validate(self, data: Data) -> None:
        """Raise `DecodeError` unless the bytes are exactly one record in its one canonical form."""
        self._codec.validate(data)

    def view(self, data: Data) -> View:
        """A record read in place: each attribute decodes one field; numbers in arrays come as numpy views."""
        return self._view(data)

    # ── many events ──

    def encode_many(self, events: Iterable[Any]) -> bytes:
        """The records of many events, end to end."""
        return self._codec.encode_many(events)

    def decode_many(self, data: Data) -> list[Any]:
        """The instances in records that lie end to end."""
        return self._codec.decode_many(data)

    def split(self, data: Data) -> Iterator[memoryview]:
        """The records that lie end to end, in place."""
        return split(data)

    def to_arrow(self, events: Iterable[Any]) -> Any:
        """A RecordBatch of events (instances, dicts or raw forms)."""
        return self.records_to_arrow(self._codec.encode_each(events))

    def from_arrow(self, batch: Any) -> list[Any]:
        """The instances in a RecordBatch or Table that conforms, or can be made to (see `conform`)."""
        return columns.rows(self.binding, self._columns(batch, raw=False), raw=False)

    def records_to_arrow(self, records: Iterable[bytes | memoryview]) -> Any:
        """A RecordBatch with a row for each record."""
        return columns.records_to_batch(self.layout, list(records))

    def arrow_to_records(self, batch: Any) -> list[bytes]:
        """A record for each row of a RecordBatch or Table that conforms, or can be made to."""
        found = self.conform(batch, check=True)
        if hasattr(found, "num_columns") and not hasattr(found, "combine_chunks"):
            made = columns.flat_records(self.layout, found)
            if made is not None:
                return made
        return self._codec.encode_each(self.arrow_to_raw(found))

    def arrow_to_raw(self, batch: Any) -> list[dict[str, Any]]:
        """The raw form of each row of a RecordBatch or Table that conforms, or can be made to."""
        return columns.rows(self.binding, self._columns(batch, raw=True), raw=True)

    def _columns(self, batch: Any, *, raw: bool) -> list[list[Any]]:
        found = self.conform(batch, check=True)
        parts = self.binding.parts
        return [columns.column_values(c, p, raw=raw) for c, p in zip(found.columns, parts, strict=True)]

    def conform(self, data: Any, *, check: bool = False) -> Any:
        """A RecordBatch, a Table, or a pandas or polars frame brought to `schema`: columns by name, cast where nothing
        is lost, further ones left out, absent optional ones null. The same object if it has the schema already.

        Arrow data from someone you do not trust may hold offsets that lead anywhere: `check=True` looks at every
        offset, index and text first, which takes a pass over the columns that have them."""
        if not loaded(data, "pyarrow", "RecordBatch") and frames.is_pandas(data):
            return frames.frame_to_batch(self.record, data)
        return conform(self.record, data, check=check)

    def to_pandas(self, events: Any) -> Any:
        """A DataFrame of events, or of a RecordBatch or Table."""
        batch = self.conform(events, check=True) if frames.is_columns(events) else self.to_arrow(events)
        return frames.batch_to_frame(self.record, batch)

    def batch_of(self, events: Any) -> Any:
        """A RecordBatch of the type's schema from many events in any form: an iterable of instances, dicts or raw
        forms, or what `conform` takes."""
        return self.conform(events) if frames.is_columns(events) else self.to_arrow(events)

    def from_pandas(self, frame: Any) -> list[Any]:
        """The instances in a DataFrame with the type's columns."""
        return self.from_arrow(frames.frame_to_batch(self.record, frame))

    # ── as a value ──

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventType) and self.record == other.record

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"<EventType {self.name} {self.fingerprint:#018x}>"

    def __str__(self) -> str:
        return "\n".join([f"event type {self.name}", *_lines(self.record, 1)])


def _lines(record: Record, depth: int) -> Iterator[str]:
    for field in record.fields:
        yield f"{'    ' * depth}{field}"
        yield from _details(field.type, depth + 1)


def _details(type: Type, depth: int) -> Iterator[str]:
    match type:
        case Array(element=element) | List(element=element):
            yield from _details(element, depth)
        case Record():
            yield from _lines(type, depth)
        case Enum(members=members):
            yield f"{'    ' * depth}{', '.join(f'{name} = {code}' for name, code in members)}"


def event_type(what: Any, *, name: str | None = None) -> EventType:
    """The event type of an Event class, an instance, a Record, an Arrow schema (`name` if it has none), or itself."""
    if loaded(what, "pyarrow", "Schema"):
        return EventType.from_arrow_schema(what, name=name)
    if name is not None:
        raise TypeDeclarationError("name= is only for Arrow schemas; a class takes it as its class keyword")
    if isinstance(what, EventType):
        return what
    if isinstance(what, Record):
        return _of_record(what)
    cls: Any = what if isinstance(what, type) else type(what)
    if isinstance(cls, EventMeta) and cls is not Event:
        if "__event_type__" not in cls.__dict__:
            binding = binding_of(cls)  # type: ignore[arg-type]
            cls.__event_type__ = EventType(binding.record, binding=binding)  # type: ignore[attr-defined]
        return cls.__event_type__  # type: ignore[attr-defined,no-any-return]
    raise TypeDeclarationError(f"expected an Event class, an EventType, a Record or an Arrow schema, found {what!r}")


@lru_cache(maxsize=1024)
def _of_record(record: Record) -> EventType:
    return EventType(record)
