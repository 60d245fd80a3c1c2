"""Who a match is: made from its events, so that it is the same live, after a restart, and on Spark."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

SIZE = 16  # bytes
Origin = tuple[str, str, int] | bytes  # of an event: channel, source and number; of a match used as one: its identity
_pack = msgspec.msgpack.Encoder().encode


def identity(fingerprint: bytes, events: Iterable[tuple[str, Origin]], deadline: int | None) -> bytes:
    """Of the match of a pattern with this fingerprint: its labels with their events, in order, and the time until which
    something was absent."""
    form = [fingerprint, [[label, *((at,) if isinstance(at, bytes) else at)] for label, at in events], deadline]
    return blake2b(_pack(form), digest_size=SIZE, person=b"hw-match").digest()
