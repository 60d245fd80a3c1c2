"""The log of a channel as its backlog, and both together: what a ring has from there, what is older from the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from headwater.channel.backlog.contract import Reading, judge_of
from headwater.channel.backlog.ring import STRETCH_EVENTS, Copied, Event, Rings
from headwater.channel.backlog.stretch import Stretch, StretchJudge
from headwater.errors import EncodeError, StoreError
from headwater.late import np, pc

if TYPE_CHECKING:
    from headwater.channel.backlog.contract import RememberedChannel
    from headwater.channel.backlog.node_logs import NodeLogs
    from headwater.interest import Interest
    from headwater.store.log.reader import Scan, Span
    from headwater.store.log.recent_events import RecentEvents
    from headwater.types import EventType

ROWS = 16_384  # events that are read in one go


class LogBacklog:
    """The backlog of a channel that is logged: all that the log has, also of sources that are no more, and of those
    that an earlier process had."""

    remembers = True

    def __init__(self, channel: RememberedChannel, logs: NodeLogs) -> None:
        self._channel, self._logs = channel, logs

    def first(self, source: str) -> int:
        earlier = self._logs.handed.get((self._channel.name, source))
        if earlier is not None and (first := earlier.first()) is not None:
            return first
        span = self._span(source)
        return self.last(source) + 1 if span is None else span.first

    def last(self, source: str) -> int:
        if self.passes_on(source):
            return 0
        earlier = self._logs.handed.get((self._channel.name, source))
        least = 0 if earlier is None else earlier.upto
        found = self._logs.known(self._channel.name)
        if found is not None:
            return max(found.last(source), least)
        span = self._span(source)
        return least if span is None else max(span.last, least)

    def read(
        self, source: str, after: int = 0, upto: int | None = None, interest: Interest | StretchJudge | None = None
    ) -> Reading:
        """`StoreError` or `OSError`, here or when it is read on, where the log cannot be read."""
        last = self.last(source)
        upto = last if upto is None else min(upto, last)
        return Reading(self.scanned(source, after, upto), after, upto, judge_of(interest, self._channel, source))

    def scanned(self, source: str, after: int, upto: int) -> Scanned | Joined:
        """What there is of it; the files are opened when the first is asked for. Of a source that has come from another
        node, what it had published there is in a copy."""
        type = self._channel.type
        earlier = self._logs.handed.get((self._channel.name, source))
        if earlier is None or after >= earlier.upto:
            return self._own(source, after, upto)
        parts: list[Copied | Scanned | Older] = [Scanned(partial(earlier.scan, after, min(upto, earlier.upto)), type)]
        if upto > earlier.upto:
            parts.append(self._own(source, earlier.upto, upto))
        return Joined(parts)

    def _own(self, source: str, after: int, upto: int) -> Scanned:
        """What the log has of it."""
        given = source, after, upto
        return Scanned(partial(self._scan, *given), self._channel.type, partial(self._recent, *given))

    def _recent(self, source: str, after: int, upto: int) -> RecentEvents | None:
        """The same where the end of the file has all of it that is being written: no other is looked for then."""
        found = self._logs.known(self._channel.name)
        return None if found is None or found.type != self._channel.type else found.recent(source, after, upto)

    def _scan(self, source: str, after: int, upto: int) -> Scan | None:
        if after >= upto:
            return None
        found = self._logs.known(self._channel.name)
        if found is None:
            reader = self._logs.reader(self._channel.name)
        else:
            found.check()
            reader = found.reader()
        if reader is None:
            raise StoreError(f"the log of {self._channel.name} has events up to {upto} of {source!r}, and is gone")
        return reader.read(node=self._logs.node, source=source, after=after, upto=upto, rows=ROWS)

    def passes_on(self, source: str) -> bool:
        """Whether a source that is open now is not logged: its events are another node's."""
        found = self._channel.sources.get(source)
        return found is not None and found.log is None

    def _span(self, source: str) -> Span | None:
        reader = None if self.passes_on(source) else self._logs.reader(self._channel.name)
        return None if reader is None else next((each for each in reader.sources() if each.source == source), None)


class Scanned:
    """Stretches of a scan of a log. Events that are none of the channel's present type, because they lack a field that
    it must have or have a value that it cannot, are left out."""

    def __init__(
        self,
        scan: Callable[[], Scan | None],
        type: EventType | None,
        recent: Callable[[], RecentEvents | None] = lambda: None,
    ) -> None:
        self._open, self._type, self._recent = scan, type, recent
        self._scan: Scan | None = None

    @property
    def gap(self) -> tuple[int, int] | None:
        return None if self._scan is None else next(iter(self._scan.removed), None)

    def __iter__(self) -> Iterator[Stretch]:
        """One stretch for each batch of the scan, also where nothing of it fits the type: a cursor goes on past it. The
        log is opened now, not before."""
        recent = self._recent()
        if recent is not None:
            yield from _stretches(recent)
            return
        self._scan = scan = self._open()
        if scan is None:
            return
        from headwater.store.log.schema import SEQ, TIME

        type = self._type
        for batch in scan:
            seqs = batch.column(SEQ).to_numpy(zero_copy_only=False)
            stamps = batch.column(TIME).cast("int64").to_numpy(zero_copy_only=False) * 1000
            upto = int(seqs[-1])
            if type is None:
                yield Stretch(upto, seqs, stamps, None, records=batch.column("data").to_pylist())
                continue
            try:
                rows = type.conform(batch)
            except EncodeError:
                kept = _fitting(type, batch)
                if not len(kept):
                    yield Stretch(upto, seqs[:0], stamps[:0], type, records=[])
                    continue
                rows, seqs, stamps = type.conform(batch.take(kept)), seqs[kept], stamps[kept]
            yield Stretch(upto, seqs, stamps, type, rows=rows)


def _stretches(recent: RecentEvents) -> Iterator[Stretch]:
    """The end of a log: all of it is there, and of its present type."""
    for seqs, stamps, records, rows in recent:
        for start in range(0, len(seqs), STRETCH_EVENTS):
            end = start + STRETCH_EVENTS
            some = None if records is None else records[start:end]
            its = None if rows is None else rows.slice(start, STRETCH_EVENTS)
            yield Stretch(
                int(seqs[start:end][-1]), seqs[start:end], stamps[start:end], recent.type, records=some, rows=its
            )


def _fitting(type: EventType, batch: Any) -> Any:
    """The rows that are events of a type, where some are not."""
    whole = np.ones(batch.num_rows, bool)
    for field in type.record.fields:
        if not field.optional and field.name in batch.schema.names:
            whole &= pc.is_valid(batch.column(field.name)).to_numpy(zero_copy_only=False)
        elif not field.optional:
            whole[:] = False
    fitting, left = [], [np.flatnonzero(whole)]  # what else there is shows when it is tried, a half at a time
    while left:
        rows = left.pop()
        try:
            if len(rows):
                type.conform(batch.take(rows))
            fitting.append(rows)
        except EncodeError:
            half = len(rows) // 2
            if half:
                left += [rows[half:], rows[:half]]
    return np.concatenate(fitting) if fitting else np.zeros(0, np.int64)


class RingsBeforeLog:
    """Both, of a channel that is logged and whose last events are kept in memory as well: what is near the end needs
    no file."""

    remembers = True

    def __init__(self, channel: RememberedChannel, logs: NodeLogs) -> None:
        self._channel, self._rings, self._log = channel, Rings(channel), LogBacklog(channel, logs)

    def first(self, source: str) -> int:
        if self._log.passes_on(source):
            return self._rings.first(source)
        first, (_, events) = self._log.first(source), self._rings.copied(source, 0)
        return min(first, events[0][0]) if events else first

    def last(self, source: str) -> int:
        return (self._rings if self._log.passes_on(source) else self._log).last(source)

    def read(
        self, source: str, after: int = 0, upto: int | None = None, interest: Interest | StretchJudge | None = None
    ) -> Reading:
        if self._log.passes_on(source):
            return self._rings.read(source, after, upto, interest)
        last = self._log.last(source)
        upto = last if upto is None else min(upto, last)
        parts = self._parts(source, after, upto)
        return Reading(parts, after, upto, judge_of(interest, self._channel, source))

    def _parts(self, source: str, after: int, upto: int) -> Joined:
        """From the log what the ring has no longer, and what it has not yet. Of what the ring has, only the end is
        taken: a reader that takes its time keeps no more events in memory than one that reads the log."""
        _, events = self._rings.copied(source, max(after, upto - ROWS))
        if not events or events[0][0] > upto:
            return Joined([self._older(source, after, upto)])
        start, end = events[0][0] - 1, min(events[-1][0], upto)
        found: list[Copied | Scanned | Older | Joined] = [self._older(source, after, start)] if start > after else []
        found.append(Copied(events, start + 1, start, end, self._channel.type))
        if end < upto:
            found.append(self._log.scanned(source, end, upto))
        return Joined(found)

    def _older(self, source: str, after: int, upto: int) -> Older:
        in_ring = partial(self._rings.copied, source, after)
        return Older(self._log.scanned(source, after, upto), after, in_ring, self._channel.type)


class Older:
    """What is read from the log; and what retention has removed of that from a ring, as far as this reaches back."""

    def __init__(
        self,
        scanned: Scanned | Joined,
        after: int,
        in_ring: Callable[[], tuple[int, list[Event]]],
        type: EventType | None,
    ) -> None:
        self._scanned, self._after, self._in_ring, self._type = scanned, after, in_ring, type
        self.gap: tuple[int, int] | None = None

    def __iter__(self) -> Iterator[Stretch]:
        stretches = iter(self._scanned)
        found = next(stretches, None)  # by now it is known what is removed
        self.gap = removed = self._scanned.gap
        if removed is not None:
            _, events = self._in_ring()
            if events:
                copied = Copied(events, events[0][0], self._after, removed[1], self._type)
                self.gap = copied.gap
                yield from copied
        if found is not None:
            yield found
            yield from stretches


class Joined:
    """One after the other."""

    def __init__(self, parts: Sequence[Copied | Scanned | Older | Joined]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[Stretch]:
        return chain.from_iterable(self._parts)

    @property
    def gap(self) -> tuple[int, int] | None:
        return self._parts[0].gap if self._parts else None
