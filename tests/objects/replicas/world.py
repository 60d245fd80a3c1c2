"""An owner of objects whose clock is set by hand, a link that may be slow or cut, and holders of replicas: all of it in
one thread's hands, and the whole truth about every moment beside it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.objects.engine import ObjectEngine
from headwater.objects.operations import Administer, Create, Destroy, Transaction, Update
from headwater.objects.reactions import Leaving
from headwater.objects.replicas import tables
from headwater.objects.replicas.copy import Copy, Line
from headwater.objects.replicas.owner import Replicas, due, holding
from headwater.objects.replicas.spec import Linear, ReplicaSpec, replica_spec, told_type
from headwater.store import NodeState
from headwater.types import EventType, event_type
from headwater.types.declaration import parse_record

CAR = event_type(parse_record("x: f64, v: f64, n: i64?, label: text", "Car"))
TOLD = told_type(CAR)
LEASE = 1 << 60
Truth = dict[str, list[tuple[int, dict[str, Any] | None]]]


def spec(pattern: str = "fleet/*", *, bound: dict[str, float] | None = None, **more: Any) -> ReplicaSpec:
    return replica_spec(pattern, "Car", CAR, node="depot", bound=bound, **more)


def driving(bound: float) -> ReplicaSpec:
    return spec(bound={"x": bound}, model=Linear({"x": "v"}))


class Wire:
    """Outlets that keep everything that has left, as a log would."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, Line]] = []  # of which replica, and what is told
        self._last: dict[str, int] = {}

    def open(self, channel: str, type: EventType, sent: int, again: int = 0) -> int:
        return max(sent, self._last.get(channel, 0))

    def last(self, channel: str, type: EventType) -> int:
        return self._last.get(channel, 0)

    def send(self, leaving: Sequence[Leaving]) -> None:
        for each in leaving:
            if each.seq <= self._last.get(each.channel, 0):
                continue
            self._last[each.channel] = each.seq
            if each.channel.endswith(".replicas"):
                self.lines.append(line(TOLD.decode_raw(each.record)))

    def unheard(self, leaving: Leaving) -> bool:
        return False


def line(raw: Any) -> tuple[int, Line]:
    record = None if raw["value"] is None else CAR.encode(raw["value"])
    told = Line(raw["object"], record, raw["still"], raw["at"], raw["turn"], raw["after"], raw["more"])
    return raw["replica"], told


class Holder:
    """Of one replica, over a link of its own: what has crossed of all that has left."""

    def __init__(self, world: World, of: ReplicaSpec) -> None:
        self.world, self.spec = world, of
        self.begin()

    def begin(self) -> None:
        """Hold it, listen from here on, and read what was told before."""
        self.world.run(holding(self.spec, "desk", LEASE))
        self.at = len(self.world.wire.lines)
        self.copy = Copy(self.spec, CAR)
        self.promises: list[tuple[int, int]] = []  # on their way: behind which line, and the time
        self.pages = 0
        self._after: str | None = ""

    def read(self, most: int = 2) -> None:
        """One page of what was told."""
        if self._after is None:
            return
        rows = tables.page(self.world.rows, self.spec.number, self._after, most)
        self.copy.page([(object, record, at, turn, bool(still)) for object, record, at, turn, still in rows])
        self._after = rows[-1][0] if len(rows) == most else None
        if self._after is None:
            self.copy.finished()

    def promise(self) -> None:
        """The owner says how far it has come, behind all that has left."""
        found = self.world.come_to()
        if found is not None:
            self.promises.append((len(self.world.wire.lines), found))

    def cross(self, most: int) -> None:
        """Some of what is on its way arrives, in order."""
        lines = self.world.wire.lines
        for _ in range(most):
            if self.promises and self.promises[0][0] <= self.at:
                self.copy.come_to(self.promises.pop(0)[1])
            elif self.at < len(lines):
                number, told = lines[self.at]
                self.at += 1
                if number == self.spec.number:
                    self.copy.line(told)

    def settle(self) -> None:
        """Everything arrives."""
        while not self.copy.complete:
            self.read()
        self.promise()
        self.cross(len(self.world.wire.lines) + len(self.promises) + 1)

    def check(self) -> None:
        """At the time that it says, everything was as near to what it has as it says, and nothing else was there."""
        at = self.copy.as_of
        if at is None:
            return
        there = self.world.true_at(at)
        assert set(self.copy.told) == set(there), (at, self.world.truth)
        for object, raw in there.items():
            found: Any = self.copy.value(object, at)
            bound = self.spec.bounds
            for member in ("x", "v", "n", "label"):
                if member in bound:
                    assert abs(found[member] - raw[member]) <= bound[member], (object, member, found, raw, at)
                elif not self.spec.members or member in self.spec.members:
                    assert found[member] == raw[member], (object, member, found, raw, at)


class World:
    """The owner, and the truth."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now, self.wire = folder, 1_000_000_000, Wire()
        self.truth: Truth = {}
        self.high = 0  # the latest time that was heard of
        self.due: int | None = None
        self.open()

    def open(self) -> None:
        self.state = NodeState(self.folder)
        self.replicas = Replicas(lambda name: CAR if name == "Car" else None)
        self.replicas.wake = self._wake
        self.rows = self.state.tables(tables.REPLICAS)
        self.engine = ObjectEngine(
            "depot", self.state, self.wire, lambda name: None, now=lambda: self.now, observers=(self.replicas,)
        )
        self.engine.turns.clock.told(self.replicas.latest)
        self.engine.start()
        self.engine.declare("Car", CAR)

    def _wake(self, when: int) -> None:
        self.due = when

    def restart(self) -> None:
        """It is closed, and opened again. Its clock may be set back at any time but then: what it says is by that
        clock, and there is nothing else by which it could know."""
        self.close()
        self.now = max(self.now, self.high + 1)
        self.open()

    def close(self) -> None:
        self.engine.close()
        self.state.close()

    def run(self, *operations: Any) -> Any:
        outcome = self.engine.submit(Transaction(operations), here=True).wait()
        self.high = max(self.high, outcome.at)
        changed = {each.name for each in operations if not isinstance(each, Administer)}
        if outcome.done:
            for name in changed:
                kept = self.engine.get(name)
                raw = None if kept is None else CAR.decode_raw(CAR.encode(kept.value))
                self.truth.setdefault(name, []).append((outcome.at, raw))  # type: ignore[arg-type]
        assert self.engine.outbox.wait(60.0)
        return outcome

    def put(self, name: str, *, event: bool = False, **members: Any) -> Any:
        if self.engine.get(name) is None:
            return self.run(Create(name, "Car", {"x": 0.0, "v": 0.0, "n": None, "label": "", **members}))
        return self.run(Update(name, members, event=event))

    def end(self, name: str) -> Any:
        return self.run(Destroy(name))

    def pass_time(self, micros: int) -> None:
        """The clock goes on; what is due by then is done, late by a moment as timers are."""
        self.now += micros
        if self.due is not None and self.now >= self.due:
            self.due = None
            self.run(due())

    def come_to(self) -> int | None:
        found = self.engine.come_to("objects.Car.replicas", lambda: self.replicas.cap)
        self.high = max(self.high, found or 0)
        return found

    def true_at(self, at: int) -> dict[str, Any]:
        """All objects of the fleet, as they were at a time."""
        found = {}
        for name, values in self.truth.items():
            index = bisect_right([when for when, _ in values], at) - 1
            if index >= 0 and values[index][1] is not None and name.startswith("fleet/"):
                found[name] = values[index][1]
        return found


__all__ = ["CAR", "Holder", "World", "driving", "spec"]
