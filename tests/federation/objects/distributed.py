"""Nodes with a car each, a home that has triggers over several of them, and an evaluator that sees everything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from headwater import Node
from headwater.objects.operations import Administer
from headwater.objects.zones.coordinator import Terms
from headwater.objects.zones.homes import Homes
from headwater.objects.zones.messages import Happening, Known
from headwater.objects.zones.owner import MAX_ITEMS
from headwater.objects.zones.ranges import is_exact, values_of
from headwater.objects.zones.split import Split
from headwater.objects.zones.watches import Watches
from tests.federation.nodes import GUARD, Nodes, eventually
from tests.objects.zones.world import Site, Weather, World

NETWORK = {"lease": 1.0, "clock_error": 0.05}


class Fleet:
    """A home and owners, in one process, which all may be closed and opened again."""

    def __init__(self, make: Nodes, folder: Path, owners: Sequence[str] = ("north", "south"), **options: Any) -> None:
        self.make, self.folder, self.options = make, folder, options
        self.nodes: dict[str, Node] = {}
        self.open("desk", listen="tcp/127.0.0.1:0")
        for name in owners:
            self.open(name)
            self.create(name)
        self.make.together(*self.nodes.values())

    def open(self, name: str, **options: Any) -> Node:
        """A node with what its file has; all of them connect to the first."""
        if self.nodes and name != "desk":
            options["connect"] = self.nodes["desk"].endpoints[0]
        options = {**self.options.get(name, {}), **options}
        node = self.nodes[name] = self.make(name, state=self.folder / f"{name}.state", network=NETWORK, **options)
        node.objects.type("Car", "x: f64, y: f64, armed: bool, label: text?")
        return node

    def close(self, name: str) -> None:
        node = self.nodes[name]
        node.close(drain=False)
        self.make.opened.remove(node)

    def create(self, name: str, **values: Any) -> None:
        if "car" not in self.nodes[name].objects:
            with self.nodes[name].objects.transaction() as t:
                t.create("car", "Car", **{"x": 0.0, "y": 0.0, "armed": True, **values})

    def move(self, name: str, *, event: bool = True, **values: Any) -> None:
        with self.nodes[name].objects.transaction() as t:
            t.update("car", values, event=event)

    @property
    def desk(self) -> Any:
        return self.nodes["desk"].objects

    def install(self, name: str = "far", where: str = "abs(a.x - b.x) > :d", **more: Any) -> Any:
        """A trigger over the cars of north and south that counts in an object of the home."""
        if "log" not in self.desk:
            self.desk.type("Log", "count: i64")
            with self.desk.transaction() as t:
                t.create("log", "Log", count=0)
        given: dict[str, Any] = {
            "when": "becomes",
            "inputs": {"a": "//north/car", "b": "//south/car"},
            "do": lambda t: t.update("log", {"count": t.read("log.count") + 1}),
            "notify": {"ax": "a.x", "bx": "b.x", "at": "new.time", "late": "new.late"},
            **({"params": {"d": 100.0}} if ":d" in where else {}),
            **more,
        }
        return self.desk.trigger(name, where=where, **given)

    @property
    def count(self) -> int:
        found: int = self.desk["log.count"]
        return found


def decided(trigger: Any, holds: bool) -> None:
    """Wait until the home knows that it holds, or does not."""
    try:
        eventually(lambda: trigger.holds is holds, timeout=GUARD)
    except AssertionError:
        raise AssertionError(
            f"expected that it {'holds' if holds else 'does not hold'}, found {trigger.holds}; "
            f"{trigger.report()}; {trigger.explain()}"
        ) from None


def silent(fleet: Fleet, name: str) -> bool:
    """Whether every owner has a zone, and nobody is asked anything."""
    with fleet.desk.homes._lock:
        home = fleet.desk.homes.named(name)
        peers = [] if home is None else home.coordinator.peers
        return bool(peers) and all(each.linked and not each.reporting and each.asked is None for each in peers)


class Witness(World):
    """Who sees everything: what owners have written at which stamps, in all their lives, and what the home has told."""

    def __init__(self, monkeypatch: Any, condition: Split, when: Any = "becomes") -> None:
        self.condition, self.when, self.weather = condition, when, Weather()
        self.terms = Terms(error=int(NETWORK["clock_error"] * 1e9))
        self.told: list[tuple[int, Happening]] = []
        self.sites = {name: Site(name, 0, (), None, b"") for name in condition.owners}
        self._stamps: dict[str, set[int]] = {name: set() for name in condition.owners}
        witness, committed, in_turn = self, Watches.committed, Homes._in_turn

        def commit(self: Watches) -> None:
            witness._look(self)
            committed(self)

        def turn(self: Homes, operation: Administer, moment: Any) -> None:
            in_turn(self, operation, moment)
            for each in msgspec.msgpack.decode(operation.body, type=tuple[bytes, bytes, list[Happening]])[2]:
                witness.told.append((0, each))
                self.journal.did(witness.told.pop)

        monkeypatch.setattr(Watches, "committed", commit)
        monkeypatch.setattr(Homes, "_in_turn", turn)

    def _look(self, watches: Any) -> None:
        """What is durable now."""
        name = watches.carrier._node.name if watches.carrier is not None else ""
        site = self.sites.get(name)
        for watched in list(watches._all.values()) if site is not None else ():
            for item in list(watched.owner._items)[-MAX_ITEMS // 2 :]:
                if is_exact(item.area) and not item.merged and item.start not in self._stamps[name]:
                    self._stamps[name].add(item.start)
                    site.changes.append((item.start, 0, values_of(item.area), item.event))  # type: ignore[union-attr]

    @property
    def last(self) -> int:
        """The last stamp of all."""
        return max(max(stamps) for stamps in self._stamps.values())

    def judge(self) -> int:
        """Hold what was told to what is true: how often it fired. Time begins when all are known for the first time."""
        for site in self.sites.values():
            site.changes.sort(key=lambda change: change[0])
        first = next(known.since for _, known in self.told if isinstance(known, Known))
        self.begin = max(first, *(site.changes[0][0] for site in self.sites.values()))
        return self.check()[0]
