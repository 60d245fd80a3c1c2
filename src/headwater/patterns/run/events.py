"""Events that runs may still hand over: numbered as they come, kept in blocks, let go when no run holds them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from headwater.interest import RECORDS
from headwater.late import np, pa
from headwater.patterns import model

BLOCK = 4_096  # events that came one by one
LAZY = 2  # a block is made smaller when fewer than one in so many of its events are held


def source_id(name: str, node: str | None) -> str:
    """Who a source is. Names of sources are those of their nodes: at two nodes there may be one of the same name. Ids
    are in the order of names, and then of nodes."""
    return f"{name}\0{node}" if node else name


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

    def kept(self, held: list[int]) -> _Block:
        return _Block(held, [self[number] for number in held])


@dataclass(slots=True)
class _Batch:
    """Rows of a RecordBatch; `numbers` are theirs. Source and node are those of all rows, or by row."""

    numbers: Any
    channel: str
    batch: Any
    source: str | list[str]
    seqs: Any
    times: Any
    node: str | list[str | None] | None
    published: Any

    def __getitem__(self, number: int) -> Event:
        return self.many((number,))[0]

    def many(self, numbers: tuple[int, ...]) -> list[Event]:
        at = np.searchsorted(self.numbers, np.array(numbers, np.int64))
        seqs, times, rows = self.seqs[at].tolist(), self.times[at].tolist(), at.tolist()
        published = [None] * len(rows) if self.published is None else self.published[at].tolist()
        channel, batch = self.channel, self.batch
        sources, nodes = _at(self.source, rows), _at(self.node, rows)
        return [
            Event(channel, source, seq, time, (batch, row), node, when)
            for source, seq, time, row, node, when in zip(sources, seqs, times, rows, nodes, published, strict=True)
        ]

    def kept(self, held: list[int]) -> _Batch:
        """A copy of some rows: a slice would hold all the others."""
        at = np.searchsorted(self.numbers, np.array(held, np.int64))
        published = None if self.published is None else self.published[at]
        rows = self.batch.take(pa.array(at))
        source = _at(self.source, at.tolist()) if isinstance(self.source, list) else self.source
        node = _at(self.node, at.tolist()) if isinstance(self.node, list) else self.node
        return _Batch(self.numbers[at], self.channel, rows, source, self.seqs[at], self.times[at], node, published)


def _at(value: Any, rows: list[int]) -> list[Any]:
    """Of some rows: what all have, or what each has."""
    return [value[row] for row in rows] if isinstance(value, list) else [value] * len(rows)


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
        source: str | list[str],
        seqs: Any,
        times: Any,
        node: str | list[str | None] | None,
        published: Any,
    ) -> int:
        """The number of the first row."""
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

    def frozen(self) -> Events:
        """Those that are there now, for whoever has to find them later."""
        made = Events()
        made.count, made._blocks, made._firsts = self.count, list(self._blocks), list(self._firsts)
        return made

    def keep(self, live: list[int]) -> None:
        """Let go of all but these, which rise."""
        blocks: list[_Block | _Batch] = []
        start = 0
        for at, block in enumerate(self._blocks):
            end = self._firsts[at + 1] if at + 1 < len(self._blocks) else self.count
            stop = bisect_right(live, end - 1, lo=start)
            held, start = live[start:stop], stop
            if held:
                blocks.append(block if len(held) * LAZY > len(block.numbers) else block.kept(held))
        self._blocks = blocks
        self._firsts = [int(block.numbers[0]) for block in blocks]
        self.size = sum(len(block.numbers) for block in blocks)

    def numbers(self) -> set[int]:
        return {int(number) for block in self._blocks for number in block.numbers}

    # ── what is kept of them ──

    def dump(self, numbers: list[int], channels: dict[str, model.Channel]) -> list[Any]:
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
    if isinstance(data, tuple):
        batch, at = data
        return channel.type.arrow_to_raw(batch.slice(at, 1))[0]
    if isinstance(data, RECORDS):
        return channel.type.decode_raw(data)
    return channel.type.to_raw(data)


__all__ = ["Event", "Events", "fields_of", "raw_of", "record_of"]
