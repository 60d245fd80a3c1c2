"""Encode and decode records of one event type.

`Codec` takes the fast, generated path first and the careful one when that gives up: to accept what is unusual but
right (a numpy integer, a member's name, a dict without its optional keys), or to say what is wrong and where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from struct import Struct
from typing import Any, NoReturn

from headwater.errors import DecodeError, EncodeError
from headwater.types import check, values
from headwater.types.binding import Binding
from headwater.types.codegen import decoder, encoder
from headwater.types.layout import HEADER_SIZE, MAX_SIZE, Layout

_SIZE = Struct("<I")

Data = bytes | bytearray | memoryview


class Codec:
    """The encoder and decoders of one binding, generated when first used."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.layout = Layout.of(binding.record)

    @cached_property
    def _encode(self) -> Callable[[Any], bytes]:
        return encoder(self.binding)

    @cached_property
    def _decode(self) -> Callable[[bytes], Any]:
        return decoder(self.binding, raw=False)

    @cached_property
    def _decode_raw(self) -> Callable[[bytes], dict[str, Any]]:
        return decoder(self.binding, raw=True)

    def encode(self, event: Any) -> bytes:
        """The record of an event: an instance, a dict by field name, or the raw form."""
        try:
            return self._encode(event)
        except Exception:
            return self._encode_carefully(event)

    def _encode_carefully(self, event: Any) -> bytes:
        raw = values.to_raw(self.binding, event)
        try:
            return self._encode(raw)
        except Exception:
            raise EncodeError("", f"the record would take more than {MAX_SIZE} bytes") from None

    def decode(self, data: Data) -> Any:
        """The event in a record, as an instance. Safe on any bytes; padding is not looked at."""
        if type(data) is not bytes:
            data = as_bytes(data)
        try:
            return self._decode(data)
        except Exception as error:
            self._explain(data, error)

    def decode_raw(self, data: Data) -> dict[str, Any]:
        """The event in a record, in the raw form. Safe on any bytes; padding is not looked at."""
        if type(data) is not bytes:
            data = as_bytes(data)
        try:
            return self._decode_raw(data)
        except Exception as error:
            self._explain(data, error)

    def _explain(self, data: bytes, error: Exception) -> NoReturn:
        check.validate(self.layout, data)
        raise DecodeError(f"{self.binding.cls.__name__} cannot be made of this record: {error}") from error

    def to_raw(self, event: Any) -> dict[str, Any]:
        """The raw form of an instance or dict, checked."""
        return self.decode_raw(self.encode(event))

    def from_raw(self, raw: Any) -> Any:
        """The instance of a raw form, checked."""
        return self.decode(self.encode(raw))

    def validate(self, data: Data) -> None:
        """Raise `DecodeError` unless these bytes are exactly one record in its one canonical form."""
        check.validate(self.layout, as_bytes(data))

    def encode_each(self, events: Iterable[Any]) -> list[bytes]:
        """The record of each event; an error names the event's index."""
        events = events if isinstance(events, list) else list(events)
        try:
            return list(map(self._encode, events))
        except Exception:
            return [self._numbered_encode(i, event) for i, event in enumerate(events)]

    def _numbered_encode(self, index: int, event: Any) -> bytes:
        try:
            return self.encode(event)
        except EncodeError as error:
            path = error.path
            message = str(error)[len(path) + 2 :] if path else str(error)
            raise EncodeError(f"[{index}]{'.' if path else ''}{path}", message) from None

    def encode_many(self, events: Iterable[Any]) -> bytes:
        """The records of many events, end to end; an error names the event's index."""
        return b"".join(self.encode_each(events))

    def decode_many(self, data: Data) -> list[Any]:
        """The events of records that lie end to end; an error names the record's index."""
        data = as_bytes(data)
        events: list[Any] = []
        try:
            for start, end in _bounds(data):
                events.append(self.decode(data[start:end]))
        except DecodeError as error:
            raise DecodeError(f"record {len(events)}: {error}") from error
        return events


def as_bytes(data: Any) -> bytes:
    """The bytes in any buffer; `bytes` itself would make zeros of a number."""
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise TypeError(f"expected a record (bytes or another buffer), found {type(data).__name__}") from None


def split(data: Data) -> Iterator[memoryview]:
    """The records that lie end to end in `data`, in place; only their sizes are looked at."""
    view = memoryview(data).cast("B")
    for start, end in _bounds(view):
        yield view[start:end]


def _bounds(data: bytes | memoryview) -> Iterator[tuple[int, int]]:
    at, end = 0, len(data)
    while at < end:
        if end - at < HEADER_SIZE:
            raise DecodeError(f"expected a record, found {end - at} bytes", at)
        (size,) = _SIZE.unpack_from(data, at)
        if size < HEADER_SIZE or size % 8 or size > end - at:
            raise DecodeError(f"expected a record, found a size of {size} with {end - at} bytes left", at)
        yield at, at + size
        at += size
