"""Who a match is: made from its events, so that it is the same live, after a restart, and on Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from headwater.patterns import model
from headwater.patterns.result import MATCH, is_result
from headwater.patterns.run.events import Event, raw_of

SIZE = 16  # bytes
Origin = tuple[str, str, int] | bytes  # of an event: channel, source and number; of a match used as one: its identity
_pack = msgspec.msgpack.Encoder().encode


def identity_of(
    pattern: model.Pattern, fingerprint: bytes, events: Sequence[tuple[str, Event]], deadline: int | None
) -> bytes:
    """Of a match by its events, which may be matches themselves."""
    matches = {channel.name: channel for channel in pattern.channels if is_result(channel.type.record)}
    if not matches:
        return identity(fingerprint, ((label, event.origin) for label, event in events), deadline)
    origins: list[tuple[str, Origin]] = []
    for label, event in events:
        channel = matches.get(event.channel)
        origins.append((label, event.origin if channel is None else raw_of(channel, event)[MATCH]["identity"]))
    return identity(fingerprint, origins, deadline)


def identity(fingerprint: bytes, events: Iterable[tuple[str, Origin]], deadline: int | None) -> bytes:
    """Of the match of a pattern with this fingerprint: its labels with their events, in order, and the time until which
    something was absent."""
    form = [fingerprint, [[label, *((at,) if isinstance(at, bytes) else at)] for label, at in events], deadline]
    return blake2b(_pack(form), digest_size=SIZE, person=b"hw-match").digest()
