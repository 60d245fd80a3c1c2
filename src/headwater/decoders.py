"""Decoders of messages, made by one thread at a time.

When msgspec first hears of a class it works out the types of its fields, in Python; it notes the class as known before
it has done so, for types that contain themselves. A second thread that asks for a decoder of the same class, or of one
that contains it, meanwhile gets one whose fields have no types yet, and its first message ends the process. So all
decoders of typed messages are made here, under one lock: a test sees to that. To decode needs no lock.
"""

from __future__ import annotations

import os
import threading
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")
_lock = threading.RLock()


@overload
def msgpack_decoder(type: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def msgpack_decoder(type: Any) -> msgspec.msgpack.Decoder[Any]: ...


def msgpack_decoder(type: Any) -> msgspec.msgpack.Decoder[Any]:
    """Decodes MessagePack. Make it once for a type: this takes much longer than decoding a message."""
    with _lock:
        return msgspec.msgpack.Decoder(type)


def json_decoder(type: type[T]) -> msgspec.json.Decoder[T]:
    """The same for JSON."""
    with _lock:
        return msgspec.json.Decoder(type)


def convert(value: Any, type: type[T]) -> T:
    """A value of plain parts, as of a TOML file, as one of that type; msgspec.ValidationError if it is none."""
    with _lock:
        return msgspec.convert(value, type)


# A child would find the class that another thread is at as it is then, for ever.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

__all__ = ["convert", "json_decoder", "msgpack_decoder"]
