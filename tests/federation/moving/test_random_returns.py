"""Durable sinks of logged sources come and go at random, and so do the sources and the nodes of both: each sink has
every event, in order, once, whatever happens to it and around it. A seed says what happens; what has gone wrong is
printed with all steps, and `replay` does them again."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Node, Queue, Reliable, i64
from headwater.errors import SubscriptionError
from tests.effort import rounds
from tests.federation.moving.test_sources import place
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see

DURABLE = Reliable(durable=True)
MANUAL = Reliable(durable=True, acknowledge="manual")
ALWAYS = "{ static int seen = 0; seen = seen + 1; return seen > 0; }"
EACH = 1_000_000  # numbers of each source
NODES = ("lab", "hall", "desk", "phone")
SOURCES = (("test.one", "s", "lab"), ("test.two", "t", "hall"))
# Each kind of sink, with what it wants, in several ways, and the node at which it begins.
KINDS = {
    "plain": ("test.one", (None, "n >= 0"), "desk"),
    "filter": ("test.one", ("n % 2 == 0", "n % 2 < 1"), "desk"),
    "stateful": ("test.two", (ALWAYS, "n >= 0"), "desk"),
    "derived": ("test.one", (None,), "desk"),
    "pattern": ("test.*", (None, "n >= 0"), "phone"),
    "other": ("test.two", ("n >= 0", None), "phone"),
    "room": ("test.one", ("n >= 0", None), "phone"),
    "manual": ("test.one", (None, "n >= 0"), "desk"),
    "late": ("test.two", ("n >= 0", ALWAYS), "phone"),
}
SLOW = {"manual": 3, "late": 25}  # sinks that acknowledge, and the events after which they do
SIZES = (1, 3, 10, 10, 60)
MORE_SEEDS = int(os.environ.get("HEADWATER_SEEDS", rounds(40, 100)))
FIRST_SEED = int(os.environ.get("HEADWATER_SEED", "1000"))
MORE_STEPS = int(os.environ.get("HEADWATER_STEPS", "40"))
WAITS = 30.0  # seconds until something that does not come is lost
LASTS = 3_600.0  # seconds for which tokens do
Step = tuple[str, ...]


class Count(Event, name="test.Count"):
    n: i64


@dataclass
class Publishing:
    """A source, wherever it is."""

    channel: str
    name: str
    at: str
    base: int
    it: Any = None  # None: it is not there
    token: str | None = None
    count: int = 0

    @property
    def label(self) -> str:
        return f"{self.channel}/{self.name}"


@dataclass
class Sink:
    """A durable sink, wherever it is, with what it has had everywhere."""

    kind: str
    at: str
    where: Any
    it: Any = None  # None: it is not there
    token: str | None = None  # it is on its way
    paused: bool = False
    had: list[tuple[int, bool]] = field(default_factory=list)

    @property
    def target(self) -> str:
        return KINDS[self.kind][0]

    def take(self, event: Any, about: Any) -> None:
        self.had.append((event.n, about.redelivered))
        if self.kind in SLOW and event.n % SLOW[self.kind] == 0:
            with suppress(SubscriptionError):  # it is on its way
                about.acknowledge()

    def wants(self, source: Publishing) -> range:
        if self.target not in (source.channel, "test.*"):
            return range(0)
        return range(source.base, source.base + source.count, 2 if self.kind == "filter" else 1)

    def wrong(self, source: Publishing, *, whole: bool = True) -> str | None:
        """What is, of what it has had of a source: each follows on the one before, or comes again, and says so; nothing
        else does."""
        wanted = self.wants(source)
        had = [(n, again) for n, again in list(self.had) if n // EACH * EACH == source.base]
        if not wanted:
            return f"{self.kind} has {had[:5]} of {source.label}, which it does not want" if had else None
        following, before = wanted.start, wanted.start - wanted.step
        for at, (n, again) in enumerate(had):
            near = [(n % EACH, again) for n, again in had[max(0, at - 4) : at + 5]]
            what = f"{self.kind} has of {source.label} {n % EACH} after {before % EACH} of {following % EACH}: {near}"
            if n > before + wanted.step:
                return f"lost: {what}"
            if n < following and not again:
                return f"twice: {what}"
            if n >= following and again:
                return f"marked: {what}"
            before, following = n, max(following, n + wanted.step)
        if whole and following < wanted.stop:
            return f"deaf: {self.kind} has of {source.label} all up to {following % EACH} of {source.count}"
        return None


class Walk:
    """Nodes, with sources and sinks, and what may happen to them."""

    def __init__(self, make: Nodes, path: Path) -> None:
        self.make, self.path = make, path
        place(make, "hub", path)  # it is never closed, so that the others find each other
        self.nodes: dict[str, Node | None] = dict.fromkeys(NODES)
        self.sources = {
            f"{channel}/{name}": Publishing(channel, name, at, number * EACH)
            for number, (channel, name, at) in enumerate(SOURCES)
        }
        self.sinks = {kind: Sink(kind, at, where[0]) for kind, (_, where, at) in KINDS.items()}
        self.done: list[Step] = []
        for name in NODES:
            self.open(name)
        for source in self.sources:
            self.make_source(source)
        for sink in self.sinks:
            self.subscribe(sink)
        self.wait()

    def there(self, name: str) -> Node:
        node = self.nodes[name]
        assert node is not None
        return node

    # ── what may happen ──

    def open(self, name: str) -> None:
        node = self.nodes[name] = place(self.make, name, self.path)
        for channel, _, _ in SOURCES:
            node.channel(channel, Count)

    def close(self, name: str) -> None:
        self.there(name).close(drain=False, timeout=0.0)
        self.nodes[name] = None
        for sink in self.sinks.values():
            if sink.at == name:
                sink.it, sink.paused = None, False
        for source in self.sources.values():
            if source.at == name:
                source.it = None

    def make_source(self, label: str) -> None:
        source = self.sources[label]
        source.it = self.there(source.at).channel(source.channel, Count).source(source.name)

    def close_source(self, label: str) -> None:
        source = self.sources[label]
        source.it.close()
        source.it = None

    def leave_source(self, label: str) -> None:
        source = self.sources[label]
        source.token = source.it.move(lasts=LASTS)

    def resume_source(self, label: str, to: str) -> None:
        source = self.sources[label]
        source.it = self.there(to).resume_source(source.token, timeout=GUARD)  # type: ignore[arg-type]
        source.at, source.token = to, None

    def subscribe(self, kind: str) -> None:
        sink = self.sinks[kind]
        node = self.there(sink.at)
        options: dict[str, Any] = {"name": kind, "delivery": MANUAL if kind in SLOW else DURABLE}
        if kind == "room":
            options["queue"] = Queue(limit=8)
        if kind == "pattern":
            sink.it = node.subscribe(sink.target, sink.take, sink.where, **options)
            return
        channel: Any = node.channel(sink.target, Count)
        if kind == "derived":
            known = next((each for each in node.channels() if each.name == "derived.one"), None)
            channel = channel.derive("derived.one", "n >= 0") if known is None else known
        sink.it = channel.subscribe(sink.take, sink.where, **options)

    def cancel(self, kind: str) -> None:
        sink = self.sinks[kind]
        sink.it.cancel()
        sink.it, sink.paused = None, False

    def pause(self, kind: str) -> None:
        self.sinks[kind].it.pause()
        self.sinks[kind].paused = True

    def resume(self, kind: str) -> None:
        self.sinks[kind].it.resume()
        self.sinks[kind].paused = False

    def change(self, kind: str, way: str) -> None:
        sink = self.sinks[kind]
        sink.where = KINDS[kind][1][int(way)]
        sink.it.change(where=sink.where)

    def leave(self, kind: str) -> None:
        sink = self.sinks[kind]
        sink.token = sink.it.move(lasts=LASTS)
        sink.it, sink.paused = None, False

    def arrive(self, kind: str, to: str) -> None:
        sink = self.sinks[kind]
        room = {"queue": Queue(limit=8)} if kind == "room" else {}
        sink.it = self.there(to).resume(sink.token, sink.take, timeout=GUARD, **room)  # type: ignore[arg-type]
        sink.at, sink.token = to, None

    def publish(self, label: str, many: str) -> None:
        source = self.sources[label]
        for _ in range(int(many)):
            source.it.publish(Count(source.base + source.count))
            source.count += 1

    def wait(self) -> None:
        """Until all that is wanted is in force."""
        present = [node for node in self.nodes.values() if node is not None]
        for node in present:
            for other in present:
                if other is not node:
                    see(node, other)
        for node in present:
            assert node.ready(GUARD), (node, node.unready)

    # ── which of it may happen now ──

    def can(self, step: Step) -> bool:
        what, *more = step
        if what in ("open", "close"):
            return (self.nodes[more[0]] is None) is (what == "open")
        if what == "wait":
            return True
        if more[0] in self.sources:
            return self._source_can(what, self.sources[more[0]], *more[1:])
        return self._sink_can(what, self.sinks[more[0]], *more[1:])

    def _source_can(self, what: str, source: Publishing, to: str = "") -> bool:
        room = self.sinks["room"]
        match what:
            case "publish":
                # Of a sink that is on its way the queue is not read: publishers at its own node wait for it.
                waits = room.token is not None and source.channel == room.target and source.at == room.at
                return source.it is not None and not waits
            case "make_source":
                return source.it is None and self.nodes[source.at] is not None
            case "resume_source":
                # The old place is asked, and has to have the source.
                return source.token is not None and source.it is not None and self.nodes[to] is not None
        return source.it is not None

    def _sink_can(self, what: str, sink: Sink, to: str = "") -> bool:
        match what:
            case "subscribe":
                return sink.it is None and sink.token is None and self.nodes[sink.at] is not None
            case "arrive":
                return sink.token is not None and self.nodes[sink.at] is not None and self.nodes[to] is not None
            case "resume":
                return sink.paused
            case "pause":
                return sink.it is not None and not sink.paused
            case "leave":
                return sink.it is not None and sink.kind != "derived"
        return sink.it is not None

    def choices(self, chance: random.Random) -> Iterator[tuple[float, Step]]:
        """What may happen, with how likely that is to be."""
        yield 1.0, ("wait",)
        for name, node in self.nodes.items():
            yield (0.35, ("close", name)) if node is not None else (1.5, ("open", name))
        for label, source in self.sources.items():
            yield 2.5, ("publish", label, str(chance.choice(SIZES)))
            yield 1.5, ("make_source", label)
            yield 0.2, ("close_source", label)
            yield 0.3, ("leave_source", label)
            yield 1.0, ("resume_source", label, chance.choice([name for name in NODES if name != source.at]))
        for kind, sink in self.sinks.items():
            yield 0.8, ("subscribe", kind)
            yield 0.2, ("cancel", kind)
            yield 0.2, ("pause", kind)
            yield 0.6, ("resume", kind)
            yield 0.1, ("change", kind, str(chance.randrange(len(KINDS[kind][1]))))
            yield 0.2, ("leave", kind)
            yield 0.8, ("arrive", kind, chance.choice([name for name in NODES if name != sink.at]))

    def next(self, chance: random.Random) -> Step:
        found = [(weight, step) for weight, step in self.choices(chance) if self.can(step)]
        return chance.choices([step for _, step in found], [weight for weight, _ in found])[0]

    def do(self, step: Step) -> None:
        self.done.append(step)
        what, *more = step
        getattr(self, what)(*more)

    # ── the end ──

    def end(self) -> None:
        """All are back, and what is published now comes to them as well."""
        last: list[Step] = [("open", name) for name in NODES]
        last += [("make_source", label) for label in self.sources]
        last += [("arrive", kind, sink.at) for kind, sink in self.sinks.items()]
        last += [("subscribe", kind) for kind in self.sinks]
        last += [("resume", kind) for kind in self.sinks]
        last += [("publish", label, "10") for label in self.sources]
        last += [("wait",)]
        last += [("publish", label, "10") for label in self.sources]
        for step in last:
            if self.can(step):
                self.do(step)

    def missing(self) -> list[str]:
        """What is wrong with what sinks have had, or have not."""
        found = [sink.wrong(source) for sink in self.sinks.values() for source in self.sources.values()]
        return [each for each in found if each]

    def check(self) -> None:
        def decided() -> bool:
            """All is there, or something is wrong that will not be right again."""
            return not any(each.startswith("deaf") for each in self.missing()) or any(
                not each.startswith("deaf") for each in self.missing()
            )

        with suppress(AssertionError):
            eventually(decided, timeout=WAITS)
        assert not self.missing(), "\n".join(self.missing())


@contextmanager
def told(walk: Walk, seed: object) -> Iterator[None]:
    """What has happened, if it goes wrong."""
    try:
        yield
    except BaseException:
        print(f"seed {seed}: replay(tmp_path, [")
        for step in walk.done:
            print(f"    {step!r},")
        print("])")
        raise


def walk_on(path: Path, seed: int, steps: int) -> None:
    chance = random.Random(seed)
    with nodes() as make:
        walk = Walk(make, path)
        with told(walk, seed):
            for _ in range(steps):
                walk.do(walk.next(chance))
            walk.end()
            walk.check()


def replay(path: Path, plan: Sequence[Step]) -> None:
    """Those of the steps that can be done, and the end."""
    with nodes() as make:
        walk = Walk(make, path)
        with told(walk, "of a plan"):
            for step in plan:
                if walk.can(step):
                    walk.do(step)
            walk.end()
            walk.check()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + MORE_SEEDS))
def test_each_has_all_in_order_and_once(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        monkeypatch.setattr("headwater.federation.interests.installer.RETURN_SECONDS", 0.1)
    walk_on(tmp_path, seed, MORE_STEPS)
