"""What homes and owners of a trigger over several nodes post to each other. Nothing here is trusted yet.

    Watch, Told, End, Renew   to an owner: measure this; a question or a zone; not any more; still wanted
    Said, Alive, Gone         to a home: a report or an answer; where everybody stands; nothing is measured here

Each may be lost, doubled, late or overtaken: what is said in `objects/zones/messages.py` bears that.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headwater.decoders import msgpack_decoder
from headwater.errors import FrameError
from headwater.federation.wire.control import MAX_POST
from headwater.objects.zones.messages import Answer, Ask, Report, Standing, Zone

KIND = "zones"
MOST_KEYS = 500  # in one post
MAX_FORM = 64 << 10

Key = Annotated[bytes, Meta(min_length=16, max_length=16)]


class Watch(msgspec.Struct, frozen=True, array_like=True, tag="watch"):
    """Measure this for a trigger of mine, which I call so."""

    key: Key
    form: Annotated[bytes, Meta(max_length=MAX_FORM)]


class Told(msgspec.Struct, frozen=True, array_like=True, tag="told"):
    """A question or a zone."""

    key: Key
    message: Ask | Zone


class End(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    """Not any more."""

    key: Key


class Renew(msgspec.Struct, frozen=True, array_like=True, tag="renew"):
    """All of these are still wanted: what nobody renews ends."""

    keys: Annotated[tuple[Key, ...], Meta(max_length=MOST_KEYS)]


class Said(msgspec.Struct, frozen=True, array_like=True, tag="said"):
    """A report or an answer."""

    key: Key
    message: Report | Answer


class Alive(msgspec.Struct, frozen=True, array_like=True, tag="alive"):
    """Where everybody stands: the heartbeat of all triggers between two nodes."""

    standings: Annotated[tuple[tuple[Key, Standing], ...], Meta(max_length=MOST_KEYS)]


class Gone(msgspec.Struct, frozen=True, array_like=True, tag="gone"):
    """Nothing is measured for this here; with a reason, nor will be."""

    key: Key
    why: Annotated[str, Meta(max_length=2000)] = ""


ZonePost = Watch | Told | End | Renew | Said | Alive | Gone
TO_OWNER = (Watch, Told, End, Renew)
_encode = msgspec.msgpack.Encoder().encode
_DECODER = msgpack_decoder(ZonePost)


def encode(post: ZonePost) -> bytes:
    """A post as bytes. An answer that is too long says less of the past, and a refusal is cut: FrameError if it is too
    long all the same."""
    data = _encode(post)
    while len(data) > MAX_POST and isinstance(post, Said) and isinstance(post.message, Answer):
        items = post.message.items
        if len(items) < 2:
            break
        rest = items[len(items) // 2 :]
        shorter = msgspec.structs.replace(post.message, items=rest, since=max(post.message.since, rest[0].start))
        post = Said(post.key, shorter)
        data = _encode(post)
    if len(data) > MAX_POST:
        raise FrameError(f"zones: expected at most {MAX_POST:,} bytes to post, found {len(data):,}")
    return data


def decode(data: bytes) -> ZonePost:
    """From bytes that may be anything; FrameError if they are no post."""
    try:
        found: ZonePost = _DECODER.decode(data)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise FrameError(f"zones: expected a post, found: {error}") from None
    return found


__all__ = [
    "KIND",
    "MOST_KEYS",
    "TO_OWNER",
    "Alive",
    "End",
    "Gone",
    "Renew",
    "Said",
    "Told",
    "Watch",
    "decode",
    "encode",
]
