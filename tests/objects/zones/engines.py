"""The world of zones with real engines: every owner and the home have a state file, and go through it in every crash.

Time and the network are simulated as in `world.py`; turns are real. A node may be killed between a commit and what is
sent for it, and before a turn: then it is opened again with what its file has. Turns are undone too, after zones have
seen what they did.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from headwater.objects.engine import ObjectEngine
from headwater.objects.operations import Administer, Create, Transaction, Update
from headwater.objects.triggers.administration import installing
from headwater.objects.triggers.definition import trigger
from headwater.objects.zones.coordinator import Terms
from headwater.objects.zones.distribution import condition_of, spread
from headwater.objects.zones.homes import Homes
from headwater.objects.zones.messages import Alive, Fired, FromOwner, Happening, ToOwner
from headwater.objects.zones.ranges import values_of
from headwater.objects.zones.watches import Watches, ending, telling, watching
from headwater.store import NodeState
from headwater.types import event_type
from headwater.types.declaration import parse_record
from tests.objects.test_observers import Nowhere
from tests.objects.zones.world import BEAT, Site, Weather, World

CAR = event_type(parse_record("x: f64?, gate: bool", "Car"))
UNIT = 1000  # nanoseconds in one of the simulated microseconds
FORBIDDEN = 1e6  # a value that its owner's own trigger undoes the turn for


class Telling(Homes):
    """A home that says what it told, unless that is taken back."""

    told: list[tuple[int, Happening]]
    time: Callable[[], int]

    def _in_turn(self, operation: Administer, moment: Any) -> None:
        super()._in_turn(operation, moment)
        for each in msgspec.msgpack.decode(operation.body, type=tuple[bytes, bytes, list[Happening]])[2]:
            self.told.append((self.time(), each))
            self.journal.did(self.told.pop)


class Engine:
    """A node: its file survives, the rest is made anew."""

    def __init__(self, world: Engines, name: str, offset: int) -> None:
        self.world, self.name, self.offset = world, name, offset
        self.path = world.folder / f"{name}.state"
        self.up_at = self.linked_at = 0
        self.life = 0
        self.dying = False  # what is committed from now on is not sent any more
        self.engine: ObjectEngine | None = None
        self.open()

    def now(self) -> int:
        return self.world.time + self.offset

    def open(self) -> None:
        world = self.world
        self.state = NodeState(self.path)
        terms = world.terms
        self.watches = Watches(lambda: UNIT * self.now(), terms.error)
        self.homes = Telling(lambda: UNIT * self.now(), terms)
        self.homes.told, self.homes.time = world.told, lambda: world.time
        observers = (self.watches, self.homes)
        self.engine = ObjectEngine(
            self.name, self.state, Nowhere(), lambda name: None, now=self.now, observers=observers
        )
        self.engine.start()
        self.life += 1
        self.dying = False
        self.homes.attach(self.engine.triggers, self._submit)
        self.watches.carrier = self.homes.carrier = None
        self.watches.carrier = self
        self.homes.start(self)

    def _submit(self, transaction: Transaction, told: Any) -> None:
        assert self.engine is not None
        self.engine.submit(transaction, waits=True, told=told, here=True).wait()

    def run(self, *operations: Any) -> Any:
        """A turn, and what it left."""
        assert self.engine is not None
        outcome = self.engine.submit(Transaction(operations), waits=True, here=True).wait()
        self.world.witness(self)
        return outcome

    def kill(self) -> None:
        assert self.engine is not None
        self.engine.close()
        self.state.close()
        self.engine = None
        self.up_at = self.world.time + self.world.random.randint(1, self.world.weather.down)

    # ── as the carrier of both sides ──

    def later(self, task: Callable[[], object]) -> None:
        life = self.life
        self.world._at(0, lambda: task() if self.engine is not None and self.life == life else None)

    def to_home(self, home: str, key: bytes, message: FromOwner) -> None:
        sent = msgspec.msgpack.encode(message)
        if not self.dying:
            self.world.to_home(self, lambda to: to.homes.received(self.name, key, _from_owner(sent)))

    def gone(self, home: str, key: bytes, why: str) -> None:
        assert not why, why
        if not self.dying:
            self.world.to_home(self, lambda to: to.homes.gone(self.name, key, why))

    def watch(self, node: str, key: bytes, form: bytes) -> None:
        self.world.to_owner(node, lambda to: to.run(watching(self.name, key, form)))

    def to_owner(self, node: str, key: bytes, message: ToOwner) -> None:
        if not self.dying:
            self.world.to_owner(node, lambda to: to.run(telling(self.name, key, message)))

    def end(self, node: str, key: bytes) -> None:
        self.world.to_owner(node, lambda to: to.run(ending(self.name, key)))


def _from_owner(sent: bytes) -> FromOwner:
    return msgspec.msgpack.decode(sent, type=FromOwner)  # type: ignore[no-any-return]


class Engines(World):
    """One trigger over two owners; what it told is held to what they have written."""

    def __init__(self, seed: int, folder: Path, weather: Weather, where: str, *, when: Any = "becomes") -> None:
        self.random = random.Random(seed)
        self.folder, self.weather, self.when, self.pace = folder, weather, when, 10
        self.terms = Terms(lease=6 * BEAT * UNIT, retry=3 * weather.delay * UNIT, error=weather.error * UNIT)
        self.time, self.agenda, self.told, self.quiet = 1000, [], [], False
        self.sites = {}
        self.engines: dict[str, Engine] = {}
        for name in ("north", "south", "desk"):
            offset = 0 if name == "desk" else self.random.randint(-weather.error, weather.error)
            self.engines[name] = engine = Engine(self, name, offset)
            assert engine.engine is not None
            engine.engine.declare("Car", CAR)
            if name != "desk":
                engine.run(Create(f"//{name}/car", "Car", {"x": 0.0, "gate": True}))
                guard = trigger(
                    "guard", on=f"//{name}/car", when="each", where="new.x > 1e5", type="Car", node=name,
                    do=[Update(f"//{name}/none", {"x": 1.0})], on_failure="abort turn",
                )  # fmt: skip
                assert engine.run(installing(guard)).done
                self.sites[name] = Site(name, offset, (), None, b"")
        self.time += 2 * weather.error + 1
        self.begin = UNIT * self.time
        made = spread(
            "far", node="desk", type_of=lambda node, object, named: ("Car", CAR), on=(), when=when, where=where,
            inputs={"a": "//north/car", "b": "//south/car"}, params=None, scheme="zones", notify=True,
        )  # fmt: skip
        self.condition = condition_of(made.trigger)
        for name, key in (("north", "a"), ("south", "b")):
            values = self.condition.parts[name].measure({key: {"x": 0.0, "gate": True}})
            self.sites[name].changes.append((0, 0, values, False))
        self.desk = self.engines["desk"]
        assert self.desk.run(installing(made.trigger)).done

    # ── running ──

    def run(self, changes: int) -> None:
        """So many changes by all together, then calm until all is decided."""
        for _ in range(changes):
            self._at(self.random.randint(1, changes * self.pace), self._change)
        for engine in self.engines.values():
            self._at(self.random.randint(1, BEAT), self._pulse(engine))
        end = self.time + changes * self.pace
        self._until(end)
        self.quiet = True
        self._until(end + 2 * self.weather.down + 20 * BEAT + 20 * self.weather.delay)
        # Changes from before an owner was watched have no stamps: what was so then is seen when its watch begins.
        self.begin = max([self.begin, *(site.changes[1][0] for site in self.sites.values() if len(site.changes) > 1)])
        home = self.desk.homes.named("far")
        assert home is not None
        assert home.coordinator.unknown_since is None
        assert home.coordinator.decided >= UNIT * (end - self.weather.error)

    def close(self) -> None:
        for engine in self.engines.values():
            if engine.engine is not None:
                engine.kill()

    def _pulse(self, engine: Engine) -> Callable[[], None]:
        """Heartbeats and ticks of one node, and what happens to it."""

        def pulse() -> None:
            self._at(BEAT // 2, pulse)
            crash = self.weather.home_crash if engine is self.desk else self.weather.crash
            if engine.engine is None:
                if self.time >= engine.up_at:
                    engine.open()
                return
            if self._chance(crash):
                self._crash(engine)
                return
            if self._chance(self.weather.split):
                engine.linked_at = self.time + self.random.randint(1, self.weather.down)
            engine.homes.tick()
            for home, standings in engine.watches.standings().items():
                for key, standing in standings:
                    engine.to_home(home, key, Alive(standing))

        return pulse

    def _crash(self, engine: Engine) -> None:
        """At once, or with its next turn committed and nothing of it sent."""
        if self.random.random() < 0.5:
            engine.dying = True
            if engine is not self.desk:
                self._move(engine)
        engine.kill()

    def _change(self) -> None:
        engine = self.random.choice([self.engines["north"], self.engines["south"]])
        if engine.engine is not None:
            self._move(engine)

    def _move(self, engine: Engine) -> None:
        """A step of a number, or a gate; now and then it is missing, or undone after all."""
        assert engine.engine is not None
        kept = engine.engine.get("car")
        assert kept is not None
        name, x = f"//{engine.name}/car", kept.value.x
        value: dict[str, Any] = {"x": self.random.choice((None, 0.0)) if x is None else x + self.random.choice((-1, 1))}
        dice = self.random.random()
        if dice < 0.1:
            value = {"gate": not kept.value.gate}
        elif dice < 0.13:
            value = {"x": None}
        elif dice < 0.2:
            undone = engine.run(Update(name, value), Update(name, {"x": FORBIDDEN}, {}, True))
            assert not undone.done
            return
        event = self.random.random() < 0.8
        assert engine.run(Update(name, value, {}, event)).done

    def witness(self, engine: Engine) -> None:
        """What an owner has written, after each of its turns."""
        site = self.sites.get(engine.name)
        if site is None:
            return
        for watched in engine.watches._all.values():
            last = watched.owner._items[-1]
            if site.changes[-1][0] != last.start:
                site.changes.append((last.start, self.time, values_of(last.area), last.event))

    # ── the network ──

    def to_home(self, owner: Engine, deliver: Callable[[Engine], object]) -> None:
        self._pass(owner, lambda: deliver(self.desk) if self.desk.engine is not None else None)

    def to_owner(self, node: str, deliver: Callable[[Engine], object]) -> None:
        engine = self.engines[node]
        self._pass(engine, lambda: deliver(engine) if engine.engine is not None else None)

    def _pass(self, engine: Engine, deliver: Callable[[], object]) -> None:
        for _ in range(1 + self._chance(self.weather.double)):
            if self.time >= engine.linked_at and not self._chance(self.weather.loss):
                self._at(self.random.randint(1, self.weather.delay), deliver)  # type: ignore[arg-type]

    def fired(self) -> int:
        """How often."""
        return sum(isinstance(each, Fired) for _, each in self.told)
