"""Where a channel's events are read from: the log in a folder, or those of other nodes."""

from __future__ import annotations

from headwater.errors import ChannelError
from headwater.late import pa
from headwater.spark.live.options import Place
from headwater.spark.live.row_shape import LOG_META
from headwater.spelling import did_you_mean
from headwater.store.log.log_reader import LogReader
from headwater.types import EventType, event_type
from headwater.types.arrow import NAME_KEY
from headwater.types.model import BYTES, Field, Record

RAW = event_type(Record("bytes", (Field("data", BYTES),)))  # the events of a channel without a type


def open_place(place: Place) -> LogReader:
    """The log at a place, in this process."""
    if place.log is not None:
        from headwater.store.log.log_folder import LogFiles

        return LogFiles(place.log)
    from headwater.federation.logs.client import LogClient

    return LogClient.shared(connect=place.connect, federation=place.federation, security=place.security)


def type_of(log: LogReader, place: Place, channel: str) -> EventType:
    """The channel's events as one type with all fields they ever had; one field `data` for a channel of bytes."""
    known = log.channels()
    if channel not in known:
        hint = did_you_mean(channel, known) or f"it has {', '.join(sorted(known)[:20]) or 'none'}"
        raise ChannelError(f"option channel: expected a channel of {place}, found {channel!r}; {hint}")
    if log.type(channel) is None:
        return RAW
    schema = log.schema(channel)
    fields = pa.schema([field for field in schema if field.name not in LOG_META.values()], metadata=schema.metadata)
    return event_type(fields, name=None if NAME_KEY in (schema.metadata or {}) else channel)
