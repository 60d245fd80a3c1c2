"""Events that runs may still hand over: numbered as they come, kept in blocks, let go when no run holds them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

from headwater.interest import RECORDS
from headwater.patterns import model

BLOCK = 4_096  # events that came one by one
LAZY = 4  # a block is made smaller when fewer than one in so many of its events are held


@dataclass(frozen=True, slots=True)
class Event:
    """`data` is a record, an event or its raw form, or a RecordBatch and the number of a row."""

    channel: str
    source: str
    seq: int
    time: int
    data: Any

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.channel, self.source, self.seq


@dataclass(slots=True)
class _Block:
    """The events with some numbers, which rise."""

    numbers: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


@dataclass(slots=True)
class _Batch:
    """The rows of a RecordBatch with numbers from `first` on."""

    first: int
    channel: str
    batch: Any
    sources: Any
    seqs: Any
    times: Any

    @property
    def last(self) -> int:
        return self.first + len(self.seqs) - 1


class Events:
    """By number."""

    def __init__(self) -> None:
        self.count = 0
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
        last.numbers.append(number)
        last.events.append(event)
        return number

    def add_batch(self, channel: str, batch: Any, sources: Any, seqs: Any, times: Any) -> int:
        """The number of the first row. `sources` is one for all rows, or a list."""
        first = self.count
        if len(seqs):
            self._blocks.append(_Batch(first, channel, batch, sources, seqs, times))
            self._firsts.append(first)
            self.count += len(seqs)
        return first

    def __getitem__(self, number: int) -> Event:
        block = self._blocks[bisect_right(self._firsts, number) - 1]
        if isinstance(block, _Block):
            return block.events[bisect_right(block.numbers, number) - 1]
        at = number - block.first
        source = block.sources if isinstance(block.sources, str) else block.sources[at]
        return Event(block.channel, source, int(block.seqs[at]), int(block.times[at]), (block.batch, at))

    def keep(self, live: list[int]) -> None:
        """Let go of all but these, which rise."""
        blocks: list[_Block | _Batch] = []
        start = 0
        for at, block in enumerate(self._blocks):
            end = self._firsts[at + 1] if at + 1 < len(self._blocks) else self.count
            stop = bisect_right(live, end - 1, lo=start)
            held, start = live[start:stop], stop
            if not held:
                continue
            size = len(block.numbers) if isinstance(block, _Block) else len(block.seqs)
            if len(held) * LAZY > size:
                blocks.append(block)
            else:
                blocks.append(_Block(held, [self._alone(self[number]) for number in held]))
        self._blocks = blocks
        self._firsts = [b.first if isinstance(b, _Batch) else b.numbers[0] for b in blocks]

    @staticmethod
    def _alone(event: Event) -> Event:
        """Without the batch around it."""
        if not isinstance(event.data, tuple):
            return event
        batch, at = event.data
        return Event(event.channel, event.source, event.seq, event.time, (_row(batch, at), 0))

    @property
    def size(self) -> int:
        return sum(len(b.numbers) if isinstance(b, _Block) else len(b.seqs) for b in self._blocks)

    # ── what is kept of them ──

    def dump(self, numbers: list[int], channels: dict[str, model.Channel]) -> list[Any]:
        rows = []
        for number in numbers:
            event = self[number]
            rows.append(
                [number, event.channel, event.source, event.seq, event.time, record_of(channels[event.channel], event)]
            )
        return [self.count, rows]

    def load(self, found: list[Any]) -> None:
        count, rows = found
        block = _Block()
        for number, channel, source, seq, time, record in rows:
            block.numbers.append(number)
            block.events.append(Event(channel, source, seq, time, record))
        self._blocks, self._firsts = ([block], [block.numbers[0]]) if rows else ([], [])
        self.count = count


def _row(batch: Any, at: int) -> Any:
    """A copy of one row: a slice would hold all the others."""
    return batch.take([at])


def record_of(channel: model.Channel, event: Event) -> bytes:
    if isinstance(event.data, tuple):
        batch, at = event.data
        return channel.type.arrow_to_records(batch.slice(at, 1))[0]
    return bytes(event.data) if isinstance(event.data, RECORDS) else channel.type.encode(event.data)


def raw_of(channel: model.Channel, event: Event) -> dict[str, Any]:
    """Its fields, in raw form."""
    if isinstance(event.data, tuple):
        batch, at = event.data
        return channel.type.arrow_to_raw(batch.slice(at, 1))[0]
    if isinstance(event.data, RECORDS):
        return channel.type.decode_raw(event.data)
    return channel.type.to_raw(event.data)


__all__ = ["Event", "Events", "raw_of", "record_of"]
