"""Events on their way: what travels from a source to its sinks inside a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from headwater.errors import SubscriptionError
from headwater.late import np

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedSource

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


SHARED = 16  # once one in so many events of a batch is wanted, all are decoded at once


class Letter:
    """One event, shared by everyone it goes to."""

    __slots__ = ("event", "priority", "record", "sent", "seq", "source", "stamp")

    def __init__(
        self, event: Any, record: Any, source: RoutedSource, seq: int, stamp: int, sent: int, priority: int
    ) -> None:
        self.event = event  # the instance that was published, or None
        self.record = record  # its bytes; None if the event is already as its sink is to see it
        self.source = source
        self.seq = seq
        self.stamp = stamp  # wall time of publication, nanoseconds
        self.sent = sent  # the same on the clock that measures latency
        self.priority = priority

    def derived(self, record: bytes) -> Letter:
        """What a transformation made of this event."""
        return Letter(None, record, self.source, self.seq, self.stamp, self.sent, self.priority)

    def about(self, channel: str, epoch: int, subscription: str) -> About:
        """What a handler of that subscription is told of it."""
        return About(self.source, self.seq, self.stamp, self.priority, channel, epoch, subscription)

    def seen_as(self, event: Any) -> Letter:
        """The same, with what its sink is to see instead."""
        return Letter(event, None, self.source, self.seq, self.stamp, self.sent, self.priority)


class Chunk:
    """A batch of events, shared by everyone they go to."""

    __slots__ = ("_asked", "_events", "_seqs", "batch", "first", "priority", "sent", "source", "stamp")

    def __init__(self, batch: Any, source: RoutedSource, first: int, stamp: int, sent: int, priority: int) -> None:
        self.batch, self.first = batch, first  # first: the sequence number of the first row
        self._seqs: Any = None
        self._asked, self._events = 0, dict[Any, list[Any]]()
        self.source, self.stamp, self.sent, self.priority = source, stamp, sent, priority

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @property
    def seqs(self) -> Any:
        """The sequence number of each row."""
        if self._seqs is None:
            self._seqs = np.arange(self.first, self.first + len(self), dtype=np.int64)
        return self._seqs

    @property
    def consecutive(self) -> bool:
        """Whether the sequence numbers of the rows follow one another from `first`; False if that is not known."""
        return self._seqs is None

    def taken(self) -> Any:
        """The rows as a RecordBatch."""
        return self.batch

    def part(self, start: int, end: int) -> Chunk:
        """Some rows of it, in place."""
        return self.derived(self.taken().slice(start, end - start), slice(start, end))

    def derived(self, batch: Any, rows: Any) -> Chunk:
        """What was made of some of the rows."""
        made = Chunk(batch, self.source, 0, self.stamp, self.sent, self.priority)
        made._seqs = self.seqs[rows]
        return made

    def letters(self, records: Sequence[bytes | None], events: list[Any] | None = None) -> Iterator[Letter]:
        """Its events one by one."""
        for index, (record, seq) in enumerate(zip(records, self.seqs.tolist(), strict=True)):
            event = None if events is None else events[index]
            yield Letter(event, record, self.source, seq, self.stamp, self.sent, self.priority)

    def events(self, key: Any, decode: Callable[[Any], list[Any]], wanted: int) -> list[Any] | None:
        """All its events decoded, to be shared by those who want a few each; None while only few are wanted in all.

        `key` stands for the class they are decoded to; `wanted` of them the caller wants."""
        found = self._events.get(key)
        if found is None:
            self._asked += wanted
            if self._asked * SHARED >= len(self):
                found = self._events[key] = decode(self)
        return found


class Rows(Chunk):
    """Some rows of a chunk (a stretch of an array of indices), copied out only when someone looks at them.

    Many are made for each batch, one for every interest, so making one does no more than it must."""

    __slots__ = ("_end", "_of", "_rows", "_start")

    def __init__(self, of: Chunk, rows: Any, start: int, end: int) -> None:
        self._of, self._rows, self._start, self._end = of, rows, start, end

    def __len__(self) -> int:
        return self._end - self._start

    @property
    def origin(self) -> Chunk:
        """What they are rows of."""
        return self._of

    @property
    def places(self) -> Any:
        """Their indices there, ascending."""
        return self._rows[self._start : self._end]

    def shared(self, key: Any, decode: Callable[[Any], list[Any]]) -> list[Any] | None:
        """Its events, where those of the whole chunk are decoded anyway."""
        events = self._of.events(key, decode, len(self))
        return None if events is None else [events[row] for row in self._rows[self._start : self._end].tolist()]

    def __getattr__(self, name: str) -> Any:
        # A slot of Chunk that is still empty.
        of, rows = self._of, self._rows[self._start : self._end]
        if name == "source":
            return of.source
        if name == "batch":
            self.batch = of.taken().take(rows)
        else:
            seqs = of.first + rows if of.consecutive else of.seqs[rows]
            self.first, self._seqs, self._asked, self._events = 0, seqs, 0, {}
            self.source, self.stamp, self.sent, self.priority = of.source, of.stamp, of.sent, of.priority
        return object.__getattribute__(self, name)


class Marked(Rows):
    """Some rows of a chunk, of which some go as marks (`types/marks.py`): `records` has what goes of each,
    and `whole` whether that is the row itself."""

    __slots__ = ("records", "whole")

    def __init__(self, of: Chunk, rows: Any, records: Sequence[bytes], whole: Sequence[bool]) -> None:
        super().__init__(of, rows, 0, len(rows))
        self.records, self.whole = records, whole

    def tail(self, start: int) -> Marked:
        """Those from there on."""
        return Marked(self.origin, self.places[start:], self.records[start:], self.whole[start:])


class About(Struct, eq=False):
    """What the service knows of an event that it delivers: for handlers that take a second argument."""

    _source: RoutedSource
    seq: int
    _stamp: int
    priority: int
    channel: str
    epoch: int
    subscription: str

    @property
    def source(self) -> str:
        """The name of the source."""
        return self._source.name

    @property
    def time(self) -> datetime:
        """When it was published."""
        return _EPOCH + timedelta(microseconds=self._stamp // 1000)

    @property
    def redelivered(self) -> bool:
        """Whether its handler may have had it already, before the process was killed: of durable subscriptions, and of
        what leaves a node's objects once more, since it is not known whether it had left."""
        source = self._source
        return getattr(source, "log", None) is None and self.seq <= getattr(source, "again", 0)

    def acknowledge(self) -> None:
        """The subscription is done with this event and all before it of its source, and none of them comes again."""
        raise SubscriptionError(
            f"acknowledge: expected a durable subscription, found {self.subscription!r}, for which nothing is kept; "
            "subscribe with delivery=Reliable(durable=True, acknowledge='manual')"
        )

    def __repr__(self) -> str:
        return (
            f"<About {self.channel}: event {self.seq} of {self.source} at {self.time.isoformat()}, "
            f"epoch {self.epoch} of {self.subscription}>"
        )
