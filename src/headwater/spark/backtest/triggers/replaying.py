"""Rows in their order, replayed: what fires, and what is counted. In this process, or in a worker of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.objects.triggers.replay import Change, Fire, Place, Replay, Unknown
from headwater.spark.backtest.triggers.recording import HELD, Entry, Package, change_of

KEPT = 100  # last firings of each trigger that a report has
_HEAD = ("trigger", "object", "op", "time", "turn")  # what every notification has


class Row(NamedTuple):
    """A firing, at a node, with the values of its notification as JSON text; None if it has none."""

    node: str
    fire: Fire
    values: str | None


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """A firing that a report shows."""

    time: int
    place: Place
    node: str
    object: str
    op: str
    turn: int | None
    vetoed: bool
    values: str | None


class Counted(msgspec.Struct, array_like=True):
    """Of one trigger, over all nodes."""

    evaluated: int = 0
    fired: int = 0
    vetoed: int = 0
    failed: int = 0
    failure: str = ""
    messages: int = 0
    record_bytes: int = 0
    first: int | None = None
    last: int | None = None
    times: dict[int, int] = {}
    latest: list[Kept] = []

    def add(self, row: Row, width: int | None) -> None:
        """A firing."""
        fire = row.fire
        self.messages += fire.message is not None
        self.record_bytes += len(fire.message or b"")
        self.first = fire.time if self.first is None else min(self.first, fire.time)
        self.last = fire.time if self.last is None else max(self.last, fire.time)
        if width is not None:
            stretch = fire.time // width
            self.times[stretch] = self.times.get(stretch, 0) + 1
        self.latest.append(
            Kept(fire.time, fire.place, row.node, fire.object, fire.op, fire.turn, fire.vetoed, row.values)
        )
        if len(self.latest) >= 2 * KEPT:
            self.trim()

    def trim(self) -> None:
        """Keep the last ones only."""
        self.latest.sort(key=lambda each: (each.time, each.place, each.node))
        del self.latest[:-KEPT]

    def absorb(self, other: Counted) -> None:
        """What another part of the recording has counted."""
        for name in ("evaluated", "fired", "vetoed", "failed", "messages", "record_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failure = self.failure or other.failure
        self.first = min((each for each in (self.first, other.first) if each is not None), default=None)
        self.last = max((each for each in (self.last, other.last) if each is not None), default=None)
        for stretch, count in other.times.items():
            self.times[stretch] = self.times.get(stretch, 0) + count
        self.latest += other.latest
        self.trim()


class Tally(msgspec.Struct, array_like=True):
    """All that is counted. `apart`: changes that do not say of which transaction of their turn they are."""

    triggers: dict[str, Counted] = {}
    changes: int = 0
    events: int = 0
    apart: int = 0
    silent: int = 0
    unseen: int = 0
    backwards: int = 0

    def absorb(self, other: Tally) -> None:
        """What another part of the recording has counted."""
        for name, counted in other.triggers.items():
            self.triggers.setdefault(name, Counted()).absorb(counted)
        for name in ("changes", "events", "apart", "silent", "unseen", "backwards"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def unknown(self, found: Unknown) -> None:
        """What a node's recording did not say."""
        self.silent += found.silent
        self.unseen += found.unseen
        self.backwards += found.backwards

    def dumps(self) -> bytes:
        """As it travels."""
        return msgspec.msgpack.encode(self)


load_tally = msgpack_decoder(Tally).decode


class Replaying:
    """Rows of one node after another, each node's in their order; `tally` is whole when all were taken."""

    def __init__(self, package: Package) -> None:
        self.package, self.tally = package, Tally()
        self._types = [table.type for table in package.tables]
        self._objects = [bool(table.objects) for table in package.tables]

    def run(self, entries: Iterable[Entry]) -> Iterator[Row]:
        """What fires, as it does."""
        node, of_node = None, None
        for entry in entries:
            if entry.node != node:
                if of_node is not None:
                    yield from of_node.end()
                node, of_node = entry.node, _OfNode(self, entry.node)
            assert of_node is not None
            yield from of_node.take(entry)
        if of_node is not None:
            yield from of_node.end()


class _OfNode:
    """One node. The changes of a transaction are gathered, and judged when it is over."""

    def __init__(self, all: Replaying, node: str) -> None:
        self._all, self._node, self._tally = all, node, all.tally
        self._plan = all.package.nodes[node]
        self._replay = Replay(node, all.package.triggers(node), all.package.known(node), begin=self._plan.begin)
        self._notes = {each.name: each.notification for each in self._replay.installed}
        self._open: list[Change] = []
        self._step: tuple[int, int] = (HELD, 0)

    def take(self, entry: Entry) -> Iterator[Row]:
        """A row."""
        type = self._all._types[entry.table]
        if not self._all._objects[entry.table]:
            yield from self._over()
            self._tally.events += 1
            yield from self._rows(
                self._replay.received(self._all.package.tables[entry.table].channel, type, type.encode(entry.raw),
                                      entry.at)
            )  # fmt: skip
            return
        raw = entry.raw
        if raw["turn"] == HELD:
            self._replay.hold(raw["object"], type, raw["new"])
            return
        self._tally.changes += 1
        self._tally.apart += raw["step"] is None
        step = raw["turn"], raw["step"] or 0
        if step != self._step:
            yield from self._over()
            self._step = step
        self._open.append(change_of(raw, type))

    def _over(self) -> Iterator[Row]:
        if self._open:
            changes, self._open = self._open, []
            yield from self._rows(self._replay.transaction(changes, self._step[1]))

    def end(self) -> Iterator[Row]:
        """Nothing more was recorded: time goes on until then, and what was counted is told."""
        yield from self._over()
        yield from self._rows(self._replay.until(self._plan.end))
        for name, counts in self._replay.counts.items():
            counted = self._tally.triggers.setdefault(name, Counted())
            counted.evaluated += counts.evaluated
            counted.fired += counts.fired
            counted.vetoed += counts.vetoed
            counted.failed += counts.failed
            counted.failure = counted.failure or counts.failure
        self._tally.unknown(self._replay.unknown)

    def _rows(self, fires: Iterable[Fire]) -> Iterator[Row]:
        for fire in fires:
            told = self._notes[fire.trigger]
            values = None
            if told is not None and fire.message is not None:
                values = values_of(told.type, fire.message)
            row = Row(self._node, fire, values)
            self._tally.triggers.setdefault(fire.trigger, Counted()).add(row, self._all.package.width)
            yield row


def values_of(type: Any, record: bytes) -> str:
    """The values that a notification was asked for, as JSON text."""
    told = msgspec.json.decode(type.to_json(type.decode(record)))
    return msgspec.json.encode({name: value for name, value in told.items() if name not in _HEAD}).decode()


__all__ = ["KEPT", "Counted", "Kept", "Replaying", "Row", "Tally", "load_tally", "values_of"]
