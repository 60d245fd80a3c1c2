"""How events look at the ends of a channel: what a source takes, what a sink is given."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from headwater.channel.routing.letter import Chunk, Letter, Rows
from headwater.errors import EncodeError
from headwater.late import pa
from headwater.native.python.codec import faithful, fast_decoder, fast_encoder
from headwater.native.python.row_picker import Picker, picker
from headwater.types import EventType
from headwater.types.evolution import Plan, plan
from headwater.types.frames import is_columns
from headwater.types.model import Array, List, Record


def fitting(have: EventType, want: EventType) -> Plan | None:
    """The plan from one type to the other, None if they are equal; EvolutionError if they do not fit."""
    made = plan(have.record, want.record)
    return None if made.identity else made


class Intake:
    """What a source takes: events of its own type, turned into records of the channel's.

    `encode(event)` gives the record, and the event itself if it is plainly that, or None.
    """

    def __init__(self, type: EventType, channel: EventType) -> None:
        self.type, self.plan = type, fitting(type, channel)
        self.fast: Callable[[Any], bytes | None] = fast_encoder(type) or _never
        self._cls = type.cls

    @cached_property
    def _picker(self) -> Picker | None:
        return picker(self.type.record)

    def encode(self, event: Any, fields: dict[str, Any] | None = None) -> tuple[bytes, Any]:
        given = event if fields is None else fields
        if isinstance(given, dict):
            try:
                event = self._cls(**given)
            except TypeError:
                event = given  # to be explained below
        record = self.fast(event)
        if record is not None:
            kept = event if self.plan is None else None
        else:
            record, kept = self._careful(given), None
        return (record if self.plan is None else self.plan.convert(record)), kept

    def _careful(self, event: Any) -> bytes:
        """For what is unusual but right, and to say what is wrong with the rest."""
        if isinstance(event, (bytes, bytearray, memoryview)):
            raise EncodeError("", f"expected an event of type {self.type.name}, found bytes; a record is not an event")
        return self.type.encode(event)

    def batch(self, events: Any) -> Any:
        """Columns of events as a RecordBatch of the channel's type, or None if these are events one by one."""
        if not is_columns(events):
            return None
        if self.plan is None and self._picker is not None and self._picker.fits(events):
            return events
        batch = self.type.conform(events, check=True)
        if hasattr(batch, "combine_chunks"):
            batch = _one_batch(batch)
        return batch if self.plan is None else self.plan.convert_batch(batch)


def _never(event: Any) -> bytes | None:
    return None


def _one_batch(table: Any) -> Any:
    """A Table as one RecordBatch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


class BytesIntake:
    """What a source of a channel without a type takes: bytes, as they are."""

    type = None

    def encode(self, event: Any, fields: dict[str, Any] | None = None) -> tuple[bytes, Any]:
        if fields is not None or not isinstance(event, (bytes, bytearray, memoryview)):
            found = "fields" if fields is not None else type(event).__name__
            raise EncodeError("", f"this channel has no type: expected bytes, found {found}")
        return bytes(event), None

    def batch(self, events: Any) -> Any:
        if is_columns(events):
            raise EncodeError(
                "", "this channel has no type and carries bytes; expected an iterable of them, found columns"
            )
        return None


def _immutable(record: Record) -> bool:
    """Whether events have nothing in them that a handler could change for others."""
    return not any(
        isinstance(field.type, (Array, List)) or (isinstance(field.type, Record) and not _immutable(field.type))
        for field in record.fields
    )


class Form:
    """What a sink is given: instances of its own type, or RecordBatches."""

    def __init__(self, channel: EventType, want: EventType) -> None:
        self.have, self.type, self.plan = channel, want, fitting(channel, want)
        # The very instance that was published is handed over if nobody can tell it from the record decoded.
        self.cls = want.cls if self.plan is None and faithful(want) else None
        self._key = want.cls
        self._shares = _immutable(want.record)
        decode = fast_decoder(want)
        convert = self.plan.convert if self.plan is not None else None
        self.decode: Callable[[bytes], Any] = decode if convert is None else lambda record: decode(convert(record))

    def one(self, letter: Letter) -> Any:
        event = letter.event
        if letter.record is None or event.__class__ is self.cls:
            return event
        return self.decode(letter.record)

    def many(self, chunk: Chunk) -> list[Any]:
        found = chunk.shared(self._key, self._decode_all) if self._shares and isinstance(chunk, Rows) else None
        return self._decode_all(chunk) if found is None else found

    def _decode_all(self, chunk: Chunk) -> list[Any]:
        return self.type.from_arrow(self.arrow(chunk))

    def arrow(self, chunk: Chunk) -> Any:
        return chunk.taken() if self.plan is None else self.plan.convert_batch(chunk.taken())

    def arrow_of(self, letters: list[Letter]) -> Any:
        return self.type.records_to_arrow([self._record(letter) for letter in letters])

    def _record(self, letter: Letter) -> bytes:
        if letter.record is None:  # one of a chunk that was taken apart: its event is of the sink's type already
            return self.type.encode(letter.event)
        record: bytes = letter.record
        return record if self.plan is None else self.plan.convert(record)


class BytesForm:
    """What a sink of a channel without a type is given."""

    type = None
    plan = None
    cls = bytes

    def decode(self, record: bytes) -> bytes:
        return record

    def one(self, letter: Letter) -> Any:
        return letter.event if letter.record is None else letter.record
