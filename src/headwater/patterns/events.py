"""Events that runs may still hand over: numbered as they come, kept in blocks, let go when no run holds them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.interest import RECORDS
from headwater.patterns import model

BLOCK = 4_096  # events that came one by one
LAZY = 4  # a block is made smaller when fewer than one in so many of its events are held


@dataclass(frozen=True, slots=True)
class Event:
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
    source: str
    seqs: Any
    times: Any
    node: str | None
    published: Any


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

    def add_batch(
        self, channel: str, batch: Any, source: str, seqs: Any, times: Any, node: str | None, published: Any
    ) -> int:
        """The number of the first row."""
        first = self.count
        if len(seqs):
            self._blocks.append(_Batch(first, channel, batch, source, seqs, times, node, published))
            self._firsts.append(first)
            self.count += len(seqs)
        return first

    def __getitem__(self, number: int) -> Event:
        block = self._blocks[bisect_right(self._firsts, number) - 1]
        if isinstance(block, _Block):
            return block.events[bisect_right(block.numbers, number) - 1]
        at = number - block.first
        published = None if block.published is None else int(block.published[at])
        return Event(
            block.channel,
            block.source,
            int(block.seqs[at]),
            int(block.times[at]),
            (block.batch, at),
            block.node,
            published,
        )

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
        return replace(event, data=(_row(batch, at), 0))

    @property
    def size(self) -> int:
        return sum(len(b.numbers) if isinstance(b, _Block) else len(b.seqs) for b in self._blocks)

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
