"""Answers other nodes that ask for what was published here before: to close the gap between an event that binds a value
of a pattern, and the moment at which all sources know of that value.

It is judged like a wish: who asks must be allowed to subscribe and to install an interest, what a policy restricts is
restricted, and size and cost have the limits of any interest. An answer is a page: so many events were judged for it
at most, and so many are in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError
from headwater.federation.control_events import owns
from headwater.federation.interests.admission import Granting, Refused
from headwater.federation.wire.past_requests import (
    PAGE_BYTES,
    PAGE_EVENTS,
    READ_EVENTS,
    Past,
    PastOf,
    PastPage,
    PastPart,
)
from headwater.federation.wire.requests import Accepted, Wish

if TYPE_CHECKING:
    from headwater.channel.backlog.contract import Backlog
    from headwater.channel.channel import Channel
    from headwater.federation.context import Context
    from headwater.federation.peers.request_registry import Caller
    from headwater.interest import Interest

FIRST_LOOK = 256  # events from the end among which the beginning is looked for first
WIDER = 8  # times as many, if it is not among them


class PastReader:
    """Of one node; any thread may ask."""

    def __init__(self, context: Context, granting: Granting) -> None:
        self._context, self._granting = context, granting

    def answer(self, caller: Caller, request: Past) -> PastPage | Accepted:
        """A page of what is asked for, or why there is none."""
        channel = self._channel(request.channel)
        decision = self._context.security.decide(caller.principal, "subscribe", request.channel)
        if channel is None or not decision:  # who may not know of a channel does not learn whether there is one
            return Accepted(error=f"not allowed, or no channel: {request.channel!r}")
        with self._context.decisions.reading():
            try:
                interest = self._granted(caller, channel, request) if request.sources or request.program else None
            except (Refused, HeadwaterError) as error:
                return Accepted(error=str(error))
            return PastPage(channel.backlog.remembers, list(self._parts(channel, request, interest)))

    def _parts(self, channel: Channel, request: Past, interest: Interest | None) -> Iterator[PastPart]:
        """Of the first sources, as many as fit into a page."""
        room = Room()
        for wanted in request.sources:
            source = channel.sources.get(wanted.source)
            if source is None or not source.local or source.number != wanted.sid:
                why = f"no source {wanted.source!r} with the number {wanted.sid} in {request.channel!r}"
                yield PastPart(wanted.sid, wanted.upto, error=why)
                continue
            part = read_part(channel.backlog, wanted, request.since, interest, room)
            yield part
            if room.full or part.reached < wanted.upto:
                return

    def _channel(self, name: str) -> Channel | None:
        if owns(name):
            return None
        with self._context.wiring.lock:
            return next((each for each in self._context.node.channels() if each.name == name), None)

    def _granted(self, caller: Caller, channel: Channel, request: Past) -> Interest:
        """The interest, as far as it may be asked; Refused if it may not."""
        wish = Wish(
            1, request.program, request.params or None, tagged=True
        )  # so that it is asked whether it may install
        grant = self._granting.read(caller.principal, channel, wish)
        if grant.hidden:
            raise Refused(grant.hidden)
        granted = grant.interest
        if granted is None or granted.stateful:
            raise Refused("expected an interest without state, which is asked of single events")
        return granted


@dataclass
class Room:
    """What a page may still take."""

    events: int = PAGE_EVENTS
    size: int = PAGE_BYTES  # bytes
    reads: int = READ_EVENTS  # events that may be judged for it

    @property
    def full(self) -> bool:
        return self.events <= 0 or self.size <= 0 or self.reads <= 0

    def takes(self, record: bytes) -> bool:
        """Whether there is room for a record: for the first one there always is."""
        fits = self.events == PAGE_EVENTS or (self.events > 0 and len(record) <= self.size)
        if fits:
            self.events -= 1
            self.size -= len(record)
        return fits


def read_part(backlog: Backlog, wanted: PastOf, since: int, interest: Interest | None, room: Room) -> PastPart:
    """What a backlog has of one source, as much as there is room for."""
    upto = min(wanted.upto, backlog.last(wanted.source))
    after = wanted.after
    if after is None:
        after = beginning(backlog, wanted.source, since, upto)
    end = min(upto, after + room.reads)
    room.reads -= max(0, end - after)
    reading = backlog.read(wanted.source, after, end, interest)
    missing = _missing(backlog, wanted.source, since, reading.gap)
    seqs: list[int] = []
    stamps: list[int] = []
    records: list[bytes] = []
    for stretch in reading:
        for seq, stamp, record in stretch.events():
            if stamp < since:
                continue
            if not room.takes(record):
                reached = seqs[-1] if seqs else max(after, seq - 1)
                return PastPart(wanted.sid, reached, seqs, stamps, records, missing)
            seqs.append(seq)
            stamps.append(stamp)
            records.append(bytes(record))
    return PastPart(wanted.sid, end if end < upto else wanted.upto, seqs, stamps, records, missing)


def _missing(backlog: Backlog, source: str, since: int, gap: tuple[int, int] | None) -> int:
    """How many of the events that are wanted are gone: none, if what comes after them is older than those."""
    if gap is None:
        return 0
    first = next(iter(backlog.read(source, gap[1], gap[1] + 1)), None)
    if first is not None and len(first) and int(first.stamps[0]) < since:
        return 0
    return gap[1] - gap[0] + 1


def beginning(backlog: Backlog, source: str, since: int, upto: int) -> int:
    """A number after which all events are that are no older than `since`, looked for from the end: what is asked for is
    not long ago. Times of a source never go back."""
    width = FIRST_LOOK
    while width < upto:
        after = upto - width
        reading = backlog.read(source, after, upto)
        if reading.gap is not None:
            return after  # nothing older is there; what is missing of it is told
        first = next(iter(reading), None)
        if first is not None and len(first) and int(first.stamps[0]) < since:
            return after
        width *= WIDER
    return 0


__all__ = ["PastReader", "Room", "beginning", "read_part"]
