"""Sums by source node and time: what workers keep, send to the driver, and what the driver adds up.

A *cell* is one source node in one stretch of time. Of each cell there is a number of events and a number of bytes for
each *item* (see `Items`): for all events, for each subscription, for each node of sinks, for multicast. Stretches of
time are as long as asked for or, automatically, as short as keeps their number below `MANY`: each width divides the
next, so what was counted in short ones can be added up to longer ones at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.late import np

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
# Microseconds; each divides the next.
WIDTHS = (SECOND, 5 * SECOND, 15 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY, 28 * DAY,
          364 * DAY, 3640 * DAY, 36400 * DAY, 364000 * DAY)  # fmt: skip
MANY = 96  # stretches of time in an automatic report

Key = tuple[str | None, int | None]  # node and number of the stretch (its start is that many widths); None: not known
FAULTS = 5


@dataclass(frozen=True, slots=True)
class Items:
    """Which column of a cell is what."""

    subscriptions: int
    sinks: int

    @property
    def count(self) -> int:
        return 2 + self.subscriptions + self.sinks

    @property
    def everything(self) -> int:
        return 0

    @property
    def datagrams(self) -> int:
        """Events that any other node wants whose interests are all merged: what multicast sends, once."""
        return 1

    @property
    def first(self) -> int:
        """Of the subscriptions."""
        return 2

    @property
    def merged(self) -> int:
        """Of the nodes of sinks: what crosses to each."""
        return 2 + self.subscriptions


class Part(msgspec.Struct, array_like=True):
    """What one task found, on its way to the driver. Arrays are the bytes of little-endian i64."""

    width: int
    rows: int
    cells: list[tuple[str | None, int | None, bytes, bytes, bytes]]  # node, stretch, items, events, bytes
    undecided: bytes
    faults: bytes
    how: dict[str, int]  # rows by how they were judged
    first: int | None = None  # microseconds: the earliest time
    last: int | None = None


_PART = msgpack_decoder(Part)


@dataclass
class Tally:
    """Sums that grow. `width` None keeps no time at all, 0 chooses by itself."""

    items: Items
    width: int | None
    cells: dict[Key, Any] = field(default_factory=dict)  # an int64 array each: events and bytes by item
    rows: int = 0
    automatic: bool = False
    how: dict[str, int] = field(default_factory=dict)
    first: int | None = None  # microseconds: the earliest time of an event
    last: int | None = None

    def __post_init__(self) -> None:
        self.undecided = np.zeros(self.items.subscriptions, np.int64)
        self.faults = np.zeros((self.items.subscriptions, FAULTS), np.int64)
        if self.width == 0:
            self.automatic, self.width = True, WIDTHS[0]

    def span(self, low: int, high: int) -> int:
        """The width of stretches, when times from `low` to `high` (microseconds) are to be counted as well."""
        assert self.width is not None
        if self.automatic:
            known = [stretch for _, stretch in self.cells if stretch is not None]
            low = min([low, *(stretch * self.width for stretch in known)])
            high = max([high, *(stretch * self.width for stretch in known)])
            self.widen(next(w for w in WIDTHS if w >= self.width and high // w - low // w < MANY))
        return self.width

    def see(self, low: int, high: int) -> None:
        """There are events at these times (microseconds), and perhaps between them."""
        self.first = low if self.first is None else min(low, self.first)
        self.last = high if self.last is None else max(high, self.last)

    def widen(self, width: int) -> None:
        if width == self.width or self.width is None:
            return
        cells: dict[Key, Any] = {}
        for (node, stretch), sums in self.cells.items():
            key = (node, None if stretch is None else stretch * self.width // width)
            cells[key] = cells[key] + sums if key in cells else sums
        self.cells, self.width = cells, width

    def add(self, key: Key, events: Any, size: Any) -> None:
        """Events and bytes by item, of one cell."""
        sums = self.cells.get(key)
        if sums is None:
            sums = self.cells[key] = np.zeros((2, self.items.count), np.int64)
        sums[0] += events
        sums[1] += size

    def count(self, how: str, rows: int) -> None:
        self.rows += rows
        self.how[how] = self.how.get(how, 0) + rows

    def dumps(self) -> bytes:
        cells = []
        for (node, stretch), sums in self.cells.items():
            items = np.flatnonzero(sums[0])
            if len(items):
                events, size = sums[0, items].tobytes(), sums[1, items].tobytes()
                cells.append((node, stretch, items.astype("<i8").tobytes(), events, size))
        undecided, faults = self.undecided.tobytes(), self.faults.tobytes()
        return msgspec.msgpack.encode(
            Part(self.width or 0, self.rows, cells, undecided, faults, self.how, self.first, self.last)
        )

    def absorb(self, data: bytes) -> None:
        """Add what a task found."""
        part = _PART.decode(data)
        if self.width is not None and part.cells:
            known = any(stretch is not None for _, stretch, *_ in part.cells)
            if known and self.automatic:
                stretches = [stretch for _, stretch, *_ in part.cells if stretch is not None]
                self.widen(max(self.width, part.width))
                self.span(min(stretches) * part.width, max(stretches) * part.width)
        for node, stretch, items, events, size in part.cells:
            at = np.frombuffer(items, "<i8")
            if stretch is not None and self.width is not None:
                stretch = stretch * part.width // self.width
            key = (node, stretch)
            sums = self.cells.get(key)
            if sums is None:
                sums = self.cells[key] = np.zeros((2, self.items.count), np.int64)
            sums[0, at] += np.frombuffer(events, "<i8")
            sums[1, at] += np.frombuffer(size, "<i8")
        if part.first is not None and part.last is not None:
            self.see(part.first, part.last)
        self.rows += part.rows
        self.undecided += np.frombuffer(part.undecided, "<i8")
        self.faults += np.frombuffer(part.faults, "<i8").reshape(self.faults.shape)
        for how, rows in part.how.items():
            self.how[how] = self.how.get(how, 0) + rows


__all__ = ["FAULTS", "MANY", "WIDTHS", "Items", "Tally"]
