"""The encoder and decoder of an event type in machine code, as builtin functions that are made at run time.

    encode = fast_encoder(type)     # or None, where there can be none
    record = encode(event)          # None: take type.encode(event), which accepts the unusual and explains the wrong
    decode = fast_decoder(type)     # the same answers as type.decode, also for what is wrong

They take the ordinary case: instances of the type's own class whose fields hold exactly the expected Python types.
Every Python that `interpreter` knows its way around in has them; elsewhere `types` does all the work.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MemberDescriptorType
from typing import Any

from headwater.native import cache
from headwater.native.python.decoder import decoder_source
from headwater.native.python.emit import parts
from headwater.native.python.encoder import Unsupported, encoder_source
from headwater.native.python.interpreter import builtin, supported
from headwater.native.python.kernels import imports
from headwater.types.binding import Binding
from headwater.types.event_type import EventType
from headwater.types.model import F32, Array, List, Record

LARGEST = 250  # parts of a type that code is made for: what is larger would take long to compile

Encoder = Callable[[object], bytes | None]
Decoder = Callable[[Any], Any]


def fast_encoder(type: EventType) -> Encoder | None:
    """A function from an event to its record, the same bytes as `type.encode` gives; made once per class.

    It returns None, and raises nothing, for whatever is not plainly an event of this type: anything but an instance of
    exactly `type.cls`, a value of another Python type than the field's own (a subclass, a numpy scalar, an int for a
    float, a time in another zone than `datetime.UTC`), one out of range, a field not set.
    """
    found: Encoder | None = _kept(type, "encode", _encoder)
    return found


def fast_decoder(type: EventType) -> Decoder:
    """A function from a record to its event that answers as `type.decode` does; made once per class."""
    return _kept(type, "decode", _decoder) or type.decode


def faithful(type: EventType) -> bool:
    """Whether an event that `fast_encoder(type)` took is as good as the one that decoding its record gives.

    So it is if nothing in it is rounded (no f32), nothing can change (no lists or arrays), and the classes hold their
    fields and nothing else."""
    return _faithful(type.binding)


def _faithful(binding: Binding) -> bool:
    match binding.type:
        case Array() | List():
            return False
        case Record():
            return _holds_fields_only(binding) and all(map(_faithful, binding.parts))
        case other:
            return other != F32


def _holds_fields_only(binding: Binding) -> bool:
    cls = binding.cls
    if cls.__dictoffset__ or hasattr(cls, "__post_init__"):
        return False
    members = {n for c in cls.__mro__ for n, v in c.__dict__.items() if isinstance(v, MemberDescriptorType)}
    return members <= set(binding.attrs)


def _kept(type: EventType, kind: str, make: Callable[[EventType], Any]) -> Any:
    # Equal event types may have different classes, and code is made for the class.
    return cache.get((type.cls, type.record, kind), lambda: _made(type, make))


def _made(type: EventType, make: Callable[[EventType], Any]) -> Any:
    if not supported() or parts(type.record) > LARGEST:
        return None
    try:
        return make(type)
    except Unsupported:
        return None


def _encoder(type: EventType) -> Any:
    doc = f"The record of an event of {type.name}, or None."
    return builtin("encode", doc, encoder_source(type.binding), imports(), (type.binding,))


def _decoder(type: EventType) -> Any:
    decode = type.decode
    source, more = decoder_source(type.binding, decode)
    doc = f"The event in a record of {type.name}."
    return builtin("decode", doc, source, imports(), (type.binding, decode, *more))
