"""Answers other nodes that ask for what was published here before: to close the gap between an event that binds a value
of a pattern, and the moment at which all sources know of that value.

It is judged like a wish: who asks must be allowed to subscribe and to install an interest, what a policy restricts is
restricted, and size and cost have the limits of any interest. An answer is a page: so many events were judged for it
at most, and so many are in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError
from headwater.federation.control_events import owns
from headwater.federation.interests.admission import Granting, Refused
from headwater.federation.wire.past_requests import PAGE_BYTES, PAGE_EVENTS, READ_EVENTS, Past, PastPage
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
        try:
            interest = self._granted(caller, channel, request) if request.source or request.program else None
        except (Refused, HeadwaterError) as error:
            return Accepted(error=str(error))
        if not request.source:
            return PastPage(channel.backlog.remembers)
        source = channel.sources.get(request.source)
        if source is None or not source.local or source.number != request.sid:
            return Accepted(error=f"no source {request.source!r} with the number {request.sid} in {request.channel!r}")
        return read_page(channel.backlog, request, interest)

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
        granted = self._granting.read(caller.principal, channel, wish).interest
        if granted is None or granted.output is not None or granted.stateful:
            raise Refused("expected a filter without state, which is asked of single events")
        return granted


def read_page(backlog: Backlog, request: Past, interest: Interest | None) -> PastPage:
    """What a backlog has of it, as much as fits into a page."""
    upto = min(request.upto, backlog.last(request.source))
    after = request.after
    if after is None:
        after = beginning(backlog, request.source, request.since, upto)
    end = min(upto, after + READ_EVENTS)
    reading = backlog.read(request.source, after, end, interest)
    missing = _missing(backlog, request, reading.gap)
    seqs: list[int] = []
    stamps: list[int] = []
    records: list[bytes] = []
    size = 0
    for stretch in reading:
        for seq, stamp, record in stretch.events():
            if stamp < request.since:
                continue
            if seqs and (len(seqs) == PAGE_EVENTS or size + len(record) > PAGE_BYTES):
                return PastPage(True, seqs[-1], seqs, stamps, records, missing)
            seqs.append(seq)
            stamps.append(stamp)
            records.append(bytes(record))
            size += len(record)
    return PastPage(True, end if end < upto else request.upto, seqs, stamps, records, missing)


def _missing(backlog: Backlog, request: Past, gap: tuple[int, int] | None) -> int:
    """How many of the events that are wanted are gone: none, if what comes after them is older than those."""
    if gap is None:
        return 0
    first = next(iter(backlog.read(request.source, gap[1], gap[1] + 1)), None)
    if first is not None and len(first) and int(first.stamps[0]) < request.since:
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


__all__ = ["PastReader", "beginning", "read_page"]
