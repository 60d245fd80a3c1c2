"""How far off holders of a replica would have been, at every recorded change, by the rules by which owners tell them.

Two deviations of each member with a bound are measured when a turn is over: of what was told by then (that is what the
bound is promised of, as of that time), and of what has arrived by then where a message takes a while (nothing is
promised of that). A share of them lies below a value to a thousandth of the bound; the greatest is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.objects.names import NamePattern
from headwater.objects.object_types import member_of
from headwater.objects.replicas.spec import ReplicaSpec, told_type
from headwater.objects.replicas.tracker import Message, Retelling, Told
from headwater.spark.backtest.report import FRAME
from headwater.spark.backtest.triggers.recording import Entry, Package
from headwater.types import EventType

PARTS = 1000  # of a bound, to which shares are known
FARTHEST = 1 << 40  # parts that are told apart


class Deviations(msgspec.Struct, array_like=True):
    """Of one member: how many were measured, the greatest, and how many were so many thousandths of the bound.
    `unlike`: where one of the two was missing or NaN."""

    bound: float
    count: int = 0
    greatest: float = 0.0
    unlike: int = 0
    parts: dict[int, int] = {}

    def add(self, told: float | None, value: float | None) -> None:
        """What was told, and what was true."""
        if told is None or value is None or told != told or value != value:
            self.unlike += told is not value and not (told != told and value != value)
            return
        apart = abs(told - value)
        self.count += 1
        self.greatest = max(self.greatest, apart)
        part = min(int(apart / self.bound * PARTS), FARTHEST) if self.bound else (FARTHEST if apart else 0)
        self.parts[part] = self.parts.get(part, 0) + 1

    def absorb(self, other: Deviations) -> None:
        """Of other objects."""
        self.count += other.count
        self.unlike += other.unlike
        self.greatest = max(self.greatest, other.greatest)
        for part, count in other.parts.items():
            self.parts[part] = self.parts.get(part, 0) + count

    def below(self, share: float) -> float | None:
        """What this share of them is at most, to a thousandth of the bound; None if there are none."""
        left = self.count * share
        for part in sorted(self.parts):
            left -= self.parts[part]
            if left <= 0:
                return min(self.greatest, (part + 1) * self.bound / PARTS)
        return None


class Measured(msgspec.Struct, array_like=True):
    """Of one level. `met` is of what was told, `seen` of what has arrived, by member."""

    changes: int = 0
    messages: int = 0
    corrections: int = 0
    record_bytes: int = 0
    met: dict[str, Deviations] = {}
    seen: dict[str, Deviations] = {}

    def absorb(self, other: Measured) -> None:
        """Of other objects."""
        self.changes += other.changes
        self.messages += other.messages
        self.corrections += other.corrections
        self.record_bytes += other.record_bytes
        for mine, theirs in ((self.met, other.met), (self.seen, other.seen)):
            for path, found in theirs.items():
                mine.setdefault(path, Deviations(found.bound)).absorb(found)

    @property
    def bytes(self) -> int:
        """What crosses, with frames."""
        return self.record_bytes + FRAME * self.messages


class Asked(msgspec.Struct, frozen=True, array_like=True):
    """What is measured: replicas by level, whose patterns are of any node; and how long a message takes, in
    microseconds; None: what arrives is not looked at."""

    levels: dict[str, dict[str, float]]
    pattern: str
    members: tuple[str, ...]
    model: bytes  # a spec with it, packed
    delay: int | None


class _Level:
    """One level at one node."""

    def __init__(self, spec: ReplicaSpec, form: EventType, delay: int | None, found: Measured) -> None:
        self._retelling, self._delay, self._found = Retelling(spec, form), delay, found
        self._told_type = told_type(form)
        self._under_way: dict[str, deque[tuple[int, Told | None]]] = {}
        self._arrived: dict[str, Told | None] = {}
        for path, bound in spec.bounds.items():
            found.met.setdefault(path, Deviations(bound))
            if delay is not None:
                found.seen.setdefault(path, Deviations(bound))

    def change(self, at: int, object: str, record: bytes | None) -> None:
        """What an object is when a turn is over."""
        self._found.changes += 1
        self._tell(self._retelling.change(at, object, record), at)
        if record is None:
            return
        tracker, raw = self._retelling.tracker, self._retelling.form.decode_raw(record)
        held = tracker.value(tracker.told[object], at)
        for path, deviations in self._found.met.items():
            deviations.add(member_of(held, path), member_of(raw, path))
        arrived = self._seen(object, at)
        if arrived is not None:
            shown = tracker.value(arrived, at)
            for path, deviations in self._found.seen.items():
                deviations.add(member_of(shown, path), member_of(raw, path))

    def until(self, time: int) -> None:
        """Nothing more has happened until then: what the model makes necessary."""
        self._tell(self._retelling.until(time), None)

    def _tell(self, messages: Iterator[Message], at: int | None) -> None:
        tracker = self._retelling.tracker
        for message in messages:
            told = None if message.record is None else tracker.told[message.object]
            self._found.messages += 1
            self._found.corrections += told is not None and told.still
            event = {"replica": 0, "object": message.object, "value": None if told is None else told.raw,
                     "still": told is not None and told.still, "at": message.at, "turn": 0, "after": 0,
                     "more": 0}  # fmt: skip
            self._found.record_bytes += len(self._told_type.encode(event))
            if self._delay is not None:
                self._under_way.setdefault(message.object, deque()).append((message.at + self._delay, told))

    def _seen(self, object: str, at: int) -> Told | None:
        """What a holder has of it by now."""
        waiting = self._under_way.get(object)
        while waiting and waiting[0][0] <= at:
            self._arrived[object] = waiting.popleft()[1]
        return self._arrived.get(object)


def measured(package: Package, asked: Asked, entries: Iterable[Entry]) -> dict[str, Measured]:
    """Rows of one node after another, in their order: what there is of each level."""
    found = {name: Measured() for name in asked.levels}
    node, of_node = "", None
    for entry in entries:
        if entry.node != node or of_node is None:
            if of_node is not None:
                of_node.end()
            node, of_node = entry.node, _OfNode(package, asked, entry.node, found)
        of_node.take(entry)
    if of_node is not None:
        of_node.end()
    return found


class _OfNode:
    """One node: of a turn, what it leaves of each object matters."""

    def __init__(self, package: Package, asked: Asked, node: str, found: Mapping[str, Measured]) -> None:
        (table,) = package.tables
        self._form, self._end, self._node = table.type, package.nodes[node].end, node
        self._pattern = NamePattern(asked.pattern, node)
        model = _spec(asked.model).model
        self._levels = [
            _Level(ReplicaSpec(self._pattern.text, table.objects, dict(bounds), asked.members, model), self._form,
                   asked.delay, found[name])
            for name, bounds in asked.levels.items()
        ]  # fmt: skip
        self._turn = self._at = 0
        self._left: dict[str, Mapping[str, object] | None] = {}

    def take(self, entry: Entry) -> None:
        """A row."""
        raw = entry.raw
        if raw["turn"] != self._turn:
            self._over()
            self._turn, self._at = raw["turn"], max(self._at, raw["at"])
        path = raw["object"][2:].partition("/")[2]
        if self._pattern.matches(path):
            self._left[path] = raw["new"]

    def _over(self) -> None:
        left, self._left = self._left, {}
        for path, raw in left.items():
            record = None if raw is None else self._form.encode(raw)
            for level in self._levels:
                level.change(self._at, path, record)

    def end(self) -> None:
        """Nothing more was recorded."""
        self._over()
        for level in self._levels:
            level.until(self._end)


def dumps(found: Mapping[str, Measured]) -> bytes:
    """As it travels."""
    return msgspec.msgpack.encode(found)


loads = msgpack_decoder(dict[str, Measured]).decode
_spec = msgpack_decoder(ReplicaSpec).decode
asked_of = msgpack_decoder(Asked).decode


def joined(parts: Iterable[Mapping[str, Measured]], names: Sequence[str]) -> dict[str, Measured]:
    """Of several tasks."""
    found = {name: Measured() for name in names}
    for name, each in chain.from_iterable(part.items() for part in parts):
        found[name].absorb(each)
    return found


__all__ = ["Asked", "Deviations", "Measured", "dumps", "joined", "loads", "measured"]
