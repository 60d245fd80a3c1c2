"""The events of a remote source in a channel of this node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.channel.routing.attachment import Attachment
from headwater.channel.routing.route import Flow, Lineup, Ready, Route
from headwater.federation.wire.kinds import WHOLE

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.letter import Chunk, Letter
    from headwater.channel.routing.route import Entry
    from headwater.federation.arrive.remote_source import RemoteSource


class Parted:
    """A matching without those of its entries that run at a source, in another way than here. It counts for them."""

    def __init__(self, matching: Any, source: RemoteSource) -> None:
        self._matching, self._source = matching, source

    def _is_here(self, entry: Entry) -> bool:
        return not (entry.apart and self._source.elsewhere(entry))

    def counting_in(self, totals: Any, ledger: Any) -> Any:
        """See `Matching.counting_in`."""
        match, is_here = self._matching.counting_in(totals, ledger), self._is_here
        return lambda record: [entry for entry in match(record) if is_here(entry)]

    def spans(self, batch: Any, totals: Any, ledger: Any) -> Any:
        """See `Matching.spans`."""
        rows, spans = self._matching.spans(batch, totals, ledger)
        return rows, [span for span in spans if self._is_here(span[0])]

    def probe(self, record: bytes) -> Any:
        """See `Matching.probe`."""
        return self._matching.probe(record)


class RemoteFlow(Flow):
    """A remote source's events in their channel. What runs at the source is not run again: its results are tagged. An
    interest that other nodes run in another way (`Entry.apart`) is asked here only of sources that do not: of others,
    what came because somebody else wants it is not for its members, who get theirs tagged."""

    __slots__ = ("judged", "sieve", "tags")

    def take(self, route: Route) -> None:
        """Another route from here on: those that want everything are looked at one by one, if some are apart."""
        if route.matching is not None and self.lineup.matched_apart:
            route = replace(route, matching=Parted(route.matching, self.source))  # type: ignore[arg-type]
        if any(entry.apart for entry in route.always):
            always = tuple(entry for entry in route.always if not entry.apart)
            alone = (*route.alone, *(entry for entry in route.always if entry.apart))
            route = replace(route, always=always, alone=alone, bypass=None)
        super().take(route)
        # Whose interest is to be looked at for what takes the fast path, and how, once it was.
        self.judged: Entry | None = None
        self.sieve: Any = None
        if self.bypass is None and route.sole is not None and not self.source.closed and self.source.log is None:
            self._receive(route.sole)

    def _receive(self, entry: Entry) -> None:
        """There is nothing else than this interest: if it is of one function, the fast path leads there."""
        if entry.apart or len(entry.members) != 1 or not isinstance(member := entry.members[0], Attachment):
            return
        if self.route.matching is None:
            self.bypass = member.receiver
        elif member.form.plan is None:  # who has read an event has seen that all of its record is sound
            self.bypass, self.judged = member.receiver, entry

    def sift(self) -> Any:
        """What tells from a record which interests want it, and counts; made when it is first needed."""
        if self._match is None:
            self._match = self.route.matching.counting_in(self._totals, self.ledger)
        self.sieve = self._match
        return self.sieve

    def wanted(self, records: Sequence[bytes]) -> list[int]:
        """Which of these records, which are sound and counted, go on by the fast path."""
        entry = self.judged
        assert entry is not None
        match = self.sieve or self.sift()
        found = [at for at, record in enumerate(records) if entry in match(record)]
        self.spread += len(records) - len(found)
        self.passed[entry] = self.passed.get(entry, 0) + len(found)
        return found

    def __init__(self, source: RemoteSource, channel: Channel, lineup: Lineup) -> None:
        super().__init__(source, channel, lineup)
        self.tags: dict[int, Entry] = source.demands.tags(channel.name)

    def _alone(self, entry: Entry, letter: Letter, ready: Ready) -> None:
        if self.source.elsewhere(entry):  # type: ignore[attr-defined]
            self._pass_over(entry, 1)
        elif entry.here is None:
            self._passed += entry.width
            for member in entry.members:
                member.accept(letter, ready)
        else:
            super()._alone(entry, letter, ready)

    def _chunk_alone(self, entry: Entry, chunk: Chunk, ready: Ready) -> None:
        if self.source.elsewhere(entry):  # type: ignore[attr-defined]
            self._pass_over(entry, len(chunk))
        elif entry.here is None:
            self._passed += entry.width * len(chunk)
            for member in entry.members:
                member.accept_chunk(chunk, len(chunk), ready)
        else:
            super()._chunk_alone(entry, chunk, ready)

    def _pass_over(self, entry: Entry, events: int) -> None:
        """These are nothing to an interest that runs at their source."""
        self._count_asked(entry, -events)
        if entry.here is None:  # else it counts as passed, as all that comes here
            self.passed[entry] = self.passed.get(entry, 0) - events

    def tagged(self, tag: int, letter: Letter, ready: Ready, *, again: bool = False) -> None:
        """What an interest at the source has passed; `again`: something of this event has come before, for others."""
        entry = self.tags.get(tag & ~WHOLE)
        if entry is not None:
            self._came(entry, 1)
            for member in entry.members:
                if again and _early(member, letter):
                    continue
                if entry.rated is None or not isinstance(member, Attachment):
                    member.accept(letter, ready)
                elif not member.too_old(letter):
                    member.take(letter, ready)

    def tagged_chunk(self, tag: int, chunk: Chunk, ready: Ready, *, again: bool = False) -> None:
        """The same of a batch."""
        entry, rows = self.tags.get(tag & ~WHOLE), len(chunk)
        if entry is not None:
            self._came(entry, rows)
            for member in entry.members:
                early = _early(member, chunk) if again else 0
                if early == rows:
                    continue
                part = chunk.part(early, rows) if early else chunk
                if entry.rated is None or not isinstance(member, Attachment):
                    member.accept_chunk(part, rows - early, ready)
                elif not member.too_old(part):
                    member.take_chunk(part, rows - early, ready)

    def _came(self, entry: Entry, events: int) -> None:
        """What was evaluated at the source counts here as far as it came here: it passed."""
        self._count_asked(entry, events)
        self._count_passed(entry, events)


def _early(member: Any, what: Letter | Chunk) -> int:
    """How many of these events a member has had already, of an interest that it had before."""
    return member.came_before(what) if isinstance(member, Attachment) else 0


__all__ = ["RemoteFlow"]
