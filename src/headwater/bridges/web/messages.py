"""What a web client and a bridge say to each other over a WebSocket, as JSON: one object each, told apart by `op`.

    from the client                                   from the bridge
    hello      who it is; a session to go on with     welcome    the session, and whether it goes on
    subscribe  to a channel, with an interest         subscribed, with remarks, or refused with the reason
    change     the parameters or the interest         changed, with remarks, or refused
    cancel     a subscription                         -
    publish    an event                               published, or refused
    ack        so many events of each are done with   -
                                                      events     of a subscription, numbered from `first` on
                                                      dropped    so many were, since the client was too slow
                                                      ended      a subscription is over, and why
                                                      alive      there was nothing else to say for as many seconds as
                                                                 `alive` of the welcome says

Events have the form that `docs/event-types.md` says for JSON. With `binary`, those of a subscription come as binary
messages instead: the subscription and the number of the first (two u32 and a u64, little-endian), then for each its
length (u32) and Headwater's record. An event may be published so as well: a binary message with the `id` of a publish
(u32), the length of the channel's name (u32), the name, and the record. Of a channel of bytes the record is the bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from headwater.decoders import json_decoder
from headwater.errors import FrameError
from headwater.types.plain import bare_number

MOST_PARAMS = 64
MOST_NAME = 255
MOST_ID = 2**31 - 1
Name = Annotated[str, Meta(min_length=1, max_length=MOST_NAME)]
Text = Annotated[str, Meta(max_length=8192)]
Id = Annotated[int, Meta(ge=0, le=MOST_ID)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Params = Annotated[dict[Name, Any], Meta(max_length=MOST_PARAMS)]


class ClientMessage(msgspec.Struct, frozen=True, tag_field="op", forbid_unknown_fields=True):
    """One of those below."""


class Hello(ClientMessage, frozen=True, tag="hello"):
    """Who it is, by password or token; or nobody. `session`: one that was lost, with the numbers of the last events of
    each of its subscriptions that the client has."""

    user: Annotated[str, Meta(max_length=255)] = ""
    password: Annotated[str, Meta(max_length=1024)] = ""
    token: Text = ""
    session: Annotated[str, Meta(max_length=64)] = ""
    after: Annotated[dict[str, Count], Meta(max_length=1024)] = {}


class Subscribe(ClientMessage, frozen=True, tag="subscribe"):
    """To a channel; `id` is the client's name for it. `history`: of so many past events first."""

    id: Id
    channel: Name
    where: Text = ""
    params: Params = {}
    history: Annotated[int, Meta(ge=0, le=10_000)] = 0
    binary: bool = False


class Change(ClientMessage, frozen=True, tag="change"):
    """Of a subscription: other parameters, or another interest, from an exact point on."""

    id: Id
    where: Text | None = None
    params: Params | None = None


class Cancel(ClientMessage, frozen=True, tag="cancel"):
    """No more events of a subscription."""

    id: Id


class Publish(ClientMessage, frozen=True, tag="publish"):
    """An event, as it was written; `id` is in the answer."""

    id: Id
    channel: Name
    event: msgspec.Raw


class PublishRecord(NamedTuple):
    """An event as a record, in a binary message."""

    id: int
    channel: str
    record: bytes


class Ack(ClientMessage, frozen=True, tag="ack"):
    """Events up to these numbers are done with, by subscription: they need not be kept."""

    upto: Annotated[dict[str, Count], Meta(max_length=1024)]


COSTS: dict[type, int] = {Subscribe: 5, Change: 5}  # what counts as so many messages, since it has to be compiled
Message = Hello | Subscribe | Change | Cancel | Publish | Ack
_DECODE = json_decoder(Message).decode  # type: ignore[arg-type, var-annotated]


def read(data: str) -> Message:
    """A message of a client; FrameError, which says what is wrong with it, if it is none."""
    try:
        found: Message = _DECODE(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        expected = "expected a message as headwater/bridges/web/messages.py has them, found another"
        raise FrameError(str(bare_number(data) or f"{expected}: {error}")) from None
    return found


def read_record(data: bytes) -> PublishRecord:
    """An event that a client publishes as a record; FrameError if it is none."""
    id, size = int.from_bytes(data[:4], "little"), int.from_bytes(data[4:8], "little")
    name, record = data[8 : 8 + size], data[8 + size :]
    if id > MOST_ID or not 0 < size <= MOST_NAME or len(name) < size:
        raise FrameError("expected an id, the length of a name, the name and a record, found something else")
    try:
        return PublishRecord(id, name.decode(), record)
    except UnicodeDecodeError:
        raise FrameError("expected the name of a channel in UTF-8, found something else") from None


__all__ = [
    "COSTS",
    "Ack",
    "Cancel",
    "Change",
    "Hello",
    "Message",
    "Publish",
    "PublishRecord",
    "Subscribe",
    "read",
    "read_record",
]
