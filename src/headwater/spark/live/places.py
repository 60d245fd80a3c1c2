"""Where a channel's events are read from: one protocol, and the two things that have it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from headwater.channel.names import nearest
from headwater.errors import ChannelError
from headwater.interest import Interest
from headwater.late import pa
from headwater.spark.live.options import Place
from headwater.spark.live.shaping import LOG_META
from headwater.types import EventType, event_type
from headwater.types.arrow import NAME_KEY
from headwater.types.model import BYTES, Field, Record

RAW = event_type(Record("bytes", (Field("data", BYTES),)))  # the events of a channel without a type


class Extent(Protocol):
    """What a log has of one source: numbers `first` to `last`, not necessarily all between them."""

    @property
    def node(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def events(self) -> int | None: ...


class Batches(Protocol):
    """The batches of a range, as they are read."""

    def __iter__(self) -> Iterator[Any]: ...

    @property
    def removed(self) -> list[tuple[int, int]]:
        """First and last number of what was not there any more when it was read."""


class Reading(Protocol):
    """A log that can be read: a folder's, or those of other nodes."""

    def channels(self) -> list[str]: ...

    def type(self, channel: str) -> EventType | None: ...

    def schema(self, channel: str) -> Any: ...

    def sources(self, channel: str) -> Any: ...

    def read(
        self,
        channel: str,
        node: str,
        source: str,
        after: int,
        upto: int | None,
        *,
        interest: Interest | None = None,
        columns: Any = None,
    ) -> Batches: ...


def open_place(place: Place) -> Reading:
    """The log at a place, in this process."""
    if place.log is not None:
        from headwater.store.log.log_folder import LogFiles

        return LogFiles(place.log)
    from headwater.federation.logs.client import LogClient

    return LogClient.shared(connect=place.connect, federation=place.federation, security=place.security)


def type_of(log: Reading, place: Place, channel: str) -> EventType:
    """The channel's events as one type with all fields they ever had; one field `data` for a channel of bytes."""
    known = log.channels()
    if channel not in known:
        close = nearest(channel, known)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(known)[:20]) or 'none'}"
        raise ChannelError(f"option channel: expected a channel of {place}, found {channel!r}; {hint}")
    if log.type(channel) is None:
        return RAW
    schema = log.schema(channel)
    fields = pa.schema([field for field in schema if field.name not in LOG_META.values()], metadata=schema.metadata)
    return event_type(fields, name=None if NAME_KEY in (schema.metadata or {}) else channel)
