"""Events that runs may still hand over: numbered as they come, kept in blocks, let go when no run holds them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise, repeat
from typing import Any

import msgspec

from headwater.errors import ExecutionError
from headwater.interest import RECORDS
from headwater.ir.interp import EventContext
from headwater.late import np, pa
from headwater.patterns import model
from headwater.types.event_type import EventType

BLOCK = 4_096  # events that came one by one
Types = Mapping[str, EventType]  # by channel
LAZY = 2  # a block is made smaller when fewer than one in so many of its events are held


def source_id(name: str, node: str | None) -> str:
    """Who a source is. Names of sources are those of their nodes: at two nodes there may be one of the same name. Ids
    are in the order of names, and then of nodes."""
    return f"{name}\0{node}" if node else name


def origin_of(meta: EventContext) -> tuple[str, int]:
    """The source and number of an event, which it must have."""
    if meta.source is None or meta.seq is None:
        raise ExecutionError(f"expected an event's source and number, found {meta.source!r} and {meta.seq!r}")
    return meta.source, meta.seq


class Event(msgspec.Struct, frozen=True):
    """`time` is that by which the pattern orders, `published` that of publication. `data` is a record, an event or its
    raw form, or a RecordBatch and the number of a row."""

    channel: str
    source: str
    seq: int
    time: int
    data: Any
    node: str | None = None
    published: int | None = None

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.channel, source_id(self.source, self.node), self.seq


@dataclass(slots=True)
class _Block:
    """Events that came one by one; their numbers rise."""

    numbers: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __getitem__(self, number: int) -> Event:
        return self.events[bisect_right(self.numbers, number) - 1]

    def many(self, numbers: tuple[int, ...]) -> list[Event]:
        return [self[number] for number in numbers]

    def rows(self, numbers: Any, types: Types, fields: list[str]) -> Any:
        """Some fields of some events, as a RecordBatch."""
        events = [self[number] for number in numbers.tolist()]
        parts = [(types[channel], list(some)) for channel, some in groupby(events, lambda event: event.channel)]
        return pa.concat_batches(
            [type.to_arrow([_raw(type, event.data) for event in some]).select(fields) for type, some in parts]
        )

    def about(self, numbers: Any) -> list[tuple[str, str, int, int]]:
        """Of some events: channel, id of the source, number and time."""
        events = [self[number] for number in numbers.tolist()]
        return [(*event.origin, event.time) for event in events]

    def kept(self, held: Any) -> _Block:
        numbers = held.tolist()
        return _Block(numbers, [self[number] for number in numbers])


@dataclass(slots=True)
class _Batch:
    """Rows of a RecordBatch; `numbers` are theirs. Source and node are those of all rows, or an Arrow array by row."""

    numbers: Any
    channel: str
    batch: Any
    source: Any
    seqs: Any
    times: Any
    node: Any
    published: Any

    def __getitem__(self, number: int) -> Event:
        return self.many((number,))[0]

    def many(self, numbers: tuple[int, ...]) -> list[Event]:
        at = np.searchsorted(self.numbers, np.array(numbers, np.int64))
        seqs, times, rows = self.seqs[at].tolist(), self.times[at].tolist(), at.tolist()
        published = [None] * len(rows) if self.published is None else self.published[at].tolist()
        channel, batch = self.channel, self.batch
        sources, nodes = _at(self.source, at), _at(self.node, at)
        return [
            Event(channel, source, seq, time, (batch, row), node, when)
            for source, seq, time, row, node, when in zip(sources, seqs, times, rows, nodes, published, strict=True)
        ]

    def rows(self, numbers: Any, types: Types, fields: list[str]) -> Any:
        """Some fields of some rows."""
        at = pa.array(np.searchsorted(self.numbers, numbers))
        return types[self.channel].conform(self.batch).select(fields).take(at)

    def about(self, numbers: Any) -> list[tuple[str, str, int, int]]:
        """Of some rows: channel, id of the source, number and time."""
        at = np.searchsorted(self.numbers, numbers)
        sources, nodes = _at(self.source, at), _at(self.node, at)
        ids = sources if self.node is None else list(map(source_id, sources, nodes))
        return list(zip(repeat(self.channel), ids, self.seqs[at].tolist(), self.times[at].tolist()))

    def kept(self, held: Any) -> _Batch:
        """A copy of some rows: a slice would hold all the others."""
        at = np.searchsorted(self.numbers, held)
        published = None if self.published is None else self.published[at]
        which = pa.array(at)
        source = self.source if _of_all(self.source) else self.source.take(which)
        node = self.node if _of_all(self.node) else self.node.take(which)
        rows = self.batch.take(which)
        return _Batch(self.numbers[at], self.channel, rows, source, self.seqs[at], self.times[at], node, published)


def _of_all(value: Any) -> bool:
    """Whether all rows have it."""
    return value is None or isinstance(value, str)


def _at(value: Any, rows: Any) -> list[Any]:
    """Of some rows: what all have, or what each has."""
    found: list[Any] = [value] * len(rows) if _of_all(value) else value.take(pa.array(rows)).to_pylist()
    return found


class Events:
    """By number."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0  # events that are held
        self._blocks: list[_Block | _Batch] = []
        self._firsts: list[int] = []

    def add(self, event: Event) -> int:
        last = self._blocks[-1] if self._blocks else None
        if not isinstance(last, _Block) or len(last.numbers) >= BLOCK:
            last = _Block()
            self._blocks.append(last)
            self._firsts.append(self.count)
        number = self.count
        self.count += 1
        self.size += 1
        last.numbers.append(number)
        last.events.append(event)
        return number

    def add_batch(
        self,
        channel: str,
        batch: Any,
        source: Any,
        seqs: Any,
        times: Any,
        node: Any,
        published: Any,
    ) -> int:
        """The number of the first row. Source and node are those of all rows, or an Arrow array by row."""
        first = self.count
        if len(seqs):
            numbers = np.arange(first, first + len(seqs))
            self._blocks.append(_Batch(numbers, channel, batch, source, seqs, times, node, published))
            self._firsts.append(first)
            self.count += len(seqs)
            self.size += len(seqs)
        return first

    def __getitem__(self, number: int) -> Event:
        return self._blocks[bisect_right(self._firsts, number) - 1][number]

    def many(self, numbers: tuple[int, ...]) -> list[Event]:
        """Those with these numbers; quicker where they rise, as they do unless events had to be put in order."""
        if any(one >= other for one, other in pairwise(numbers)):
            return [self[number] for number in numbers]
        found: list[Event] = []
        start = 0
        while start < len(numbers):
            block = bisect_right(self._firsts, numbers[start]) - 1
            end = len(numbers)
            if block + 1 < len(self._firsts):
                end = bisect_left(numbers, self._firsts[block + 1], start)
            found += self._blocks[block].many(numbers[start:end])
            start = end
        return found

    def rows(self, numbers: Any, types: Types, fields: list[str]) -> Any:
        """Some fields that these events have, as a RecordBatch in the order of these numbers; `types` by channel."""
        spread = list(self._spread(numbers))
        if not spread:
            return next(iter(types.values())).to_arrow([]).select(fields)
        found = pa.concat_batches([block.rows(numbers[at], types, fields) for block, at in spread])
        if len(spread) == 1:
            return found
        return found.take(pa.array(np.argsort(np.concatenate([at for _, at in spread]), kind="stable")))

    def about(self, numbers: Any) -> list[tuple[str, str, int, int]]:
        """Of events by their numbers: channel, id of the source, number and time."""
        found: list[Any] = [None] * len(numbers)
        for block, at in self._spread(numbers):
            for place, each in zip(at.tolist(), block.about(numbers[at]), strict=True):
                found[place] = each
        return found

    def _spread(self, numbers: Any) -> Iterator[tuple[_Block | _Batch, Any]]:
        """The blocks that hold these, each with the places of its own among them."""
        if not len(numbers):
            return
        blocks = np.searchsorted(np.array(self._firsts, np.int64), numbers, side="right") - 1
        order = np.argsort(blocks, kind="stable")
        for at in np.split(order, np.flatnonzero(np.diff(blocks[order])) + 1):
            yield self._blocks[int(blocks[at[0]])], at

    def frozen(self) -> Events:
        """Those that are there now, for whoever has to find them later."""
        made = Events()
        made.count, made._blocks, made._firsts = self.count, list(self._blocks), list(self._firsts)
        return made

    def keep(self, live: Any) -> None:
        """Let go of all but these, an array of numbers that rise."""
        blocks: list[_Block | _Batch] = []
        ends = np.searchsorted(live, np.array([*self._firsts[1:], self.count], np.int64)).tolist()
        for block, start, end in zip(self._blocks, [0, *ends], ends, strict=False):
            if start < end:
                few = (end - start) * LAZY <= len(block.numbers)
                blocks.append(block.kept(live[start:end]) if few else block)
        self._blocks = blocks
        self._firsts = [int(block.numbers[0]) for block in blocks]
        self.size = sum(len(block.numbers) for block in blocks)

    def numbers(self) -> set[int]:
        return {int(number) for block in self._blocks for number in block.numbers}

    # ── what is kept of them ──

    def dump(self, numbers: list[int], channels: Mapping[str, model.Channel]) -> list[Any]:
        rows = []
        for number in numbers:
            event = self[number]
            origin = [event.channel, event.source, event.seq, event.time]
            record = record_of(channels[event.channel], event)
            rows.append([number, *origin, record, event.node, event.published])
        return [self.count, rows]

    def load(self, found: list[Any]) -> None:
        count, rows = found
        block = _Block()
        for number, *event in rows:
            block.numbers.append(number)
            block.events.append(Event(*event))
        self._blocks, self._firsts = ([block], [block.numbers[0]]) if rows else ([], [])
        self.count, self.size = count, len(rows)


def record_of(channel: model.Channel, event: Event) -> bytes:
    """Its bytes, whatever form it came in: for snapshots."""
    if isinstance(event.data, tuple):
        batch, at = event.data
        return channel.type.arrow_to_records(batch.slice(at, 1))[0]
    return bytes(event.data) if isinstance(event.data, RECORDS) else channel.type.encode(event.data)


def raw_of(channel: model.Channel, event: Event) -> dict[str, Any]:
    """Its fields, in raw form."""
    return fields_of(channel, event.data)


def fields_of(channel: model.Channel, data: Any) -> dict[str, Any]:
    """The fields of an event in raw form, from whichever form its data have."""
    return _raw(channel.type, data)


def _raw(type: EventType, data: Any) -> dict[str, Any]:
    if isinstance(data, tuple):
        batch, at = data
        return type.arrow_to_raw(batch.slice(at, 1))[0]
    return type.decode_raw(data) if isinstance(data, RECORDS) else type.to_raw(data)


__all__ = ["Event", "Events", "fields_of", "origin_of", "raw_of", "record_of"]
