"""A federation to which things happen, at random: nodes are killed, stopped and cut off while events flow.

Whatever happens, in the end every reliable sink has seen the events of each source as they were published, from the
first one that it saw on: nothing is missing in the middle, and nothing came twice but what a killed sink had in its
hands, which says so. The sources log: when they were killed and started again, all that their `publish` had returned
for comes, before what they publish then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from tests.federation.processes import GUARD, World, world

CHANNEL = "test.count"
SOURCES = ("hill", "lake", "wood")
SINKS = {  # by node: its sinks, and every how many events they want
    "desk": {"desk-all": 1, "desk-third": 3},  # durable: it is killed
    "hall": {"hall-all": 1, "hall-half": 2},  # not durable: it is only stopped and cut off
}
SETTINGS = {"lease": 1.0, "keep": 600.0}
LEAVES = (*SOURCES, *SINKS)
KEPT = ("hill", "desk")  # have a state, and so the same key in each life
LOG = {"roll_bytes": 65_536}  # so that some of it is at rest


@dataclass
class Tally:
    """What became of the events that one sink wanted. Lost ones were published for sure, and did not come."""

    wanted: int = 0
    delivered: int = 0  # each once
    again: int = 0  # came twice to a sink that was killed with them in its hands, and were marked so
    lost: int = 0
    duplicated: int = 0
    disordered: int = 0  # came after one that was published later
    invented: int = 0  # nobody published them, or the sink did not want them
    problems: list[str] = field(default_factory=list)  # the first of them

    @property
    def good(self) -> bool:
        return not (self.lost or self.duplicated or self.disordered or self.invented)

    def problem(self, text: str) -> None:
        if len(self.problems) < 10:
            self.problems.append(text)


@dataclass(frozen=True)
class Outcome:
    """What a run has come to: events that `publish` has returned for, and what each sink got of them."""

    published: int
    sinks: dict[str, Tally]
    troubles: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not self.troubles and all(each.good for each in self.sinks.values())

    @property
    def problems(self) -> list[str]:
        return [*self.troubles, *(line for each in self.sinks.values() for line in each.problems)]


class Faults:
    """The federation, and what may happen to it. A seed says what happens, and in which order."""

    def __init__(self, made: World, seed: int, say: Callable[[str], object]) -> None:
        self.world, self.random, self._say = made, random.Random(seed), say
        self.bounds: dict[str, int] = {}  # by maker that is gone: it has published at most so much,
        self.done: dict[str, int] = {}  # and at least so much
        self.happened: dict[str, int] = {}
        self.order: list[str] = []  # the same, one by one
        self._gone: list[float] = []  # when nodes were killed that come again with another key

        self.victims = [*LEAVES, "inn"]  # nodes that may be stopped, cut off or held

    # ── the federation ──

    def open(self) -> None:
        for name in ("inn", *LEAVES):
            self.world.start(name)
        self.world.open("inn", router=True, **SETTINGS)
        self._open(*(name for name in LEAVES if name in KEPT))
        self._open(*(name for name in LEAVES if name not in KEPT))
        for name in SINKS:
            self._subscribe(name)
        for name in SOURCES:
            self._flow(name)
        self.recovered()

    def _open(self, *names: str) -> None:
        for name in names:  # together, if they are of a kind
            assert (name in KEPT) == (names[0] in KEPT)
        for some in ([name for name in names if name in SOURCES], [name for name in names if name not in SOURCES]):
            log = LOG if some and some[0] in SOURCES else None
            self.world.open(*some, seeds=["inn"], state=names[0] in KEPT, log=log, **SETTINGS)

    def _subscribe(self, name: str) -> None:
        for sink, step in SINKS[name].items():
            where = None if step == 1 else f"n % {step} == 0"
            path = self.world.path(f"{sink}.log")
            self.world[name]("sink", channel=CHANNEL, name=sink, path=path, where=where, durable=name == "desk")

    def _flow(self, name: str) -> None:
        maker, path = f"{name}-{self.world.life(name)}", self.world.path(f"{name}.published")
        many = name == "wood"
        self.world[name]("flow", channel=CHANNEL, source=name, maker=maker, path=path, pace=3 if many else 2, many=many)

    def recovered(self) -> None:
        """Events of every source come to every sink again."""
        wanted: dict[str, int] = {}
        for name in SOURCES:
            wanted.update(self.world[name]("published"))
        wanted = {maker: n + 12 for maker, n in wanted.items()}
        for name, sinks in SINKS.items():
            for sink in sinks:
                came = self.world[name]("came", sink=sink, wanted=wanted, timeout=GUARD)
                assert came is True, f"{sink} waits for {wanted}, has {came}\n{self._state()}"

    def _state(self) -> str:
        lines = [str(self.world.wires.connections())]
        for name, process in self.world.running.items():
            lines += [f"{name}: {process('links')} {process('state')}", process.log()]
        return "\n".join(lines)

    # ── what happens ──

    def fault(self) -> None:
        """One thing, or two at the same time; then everything is well again."""
        kinds: list[Callable[[], Callable[[], None] | None]]
        kinds = [self.kill_source, self.kill_sink, self.kill_both, self.kill_router]
        kinds += [self.stop, self.cut, self.hold, self.drop_links]
        chosen = self.random.choices(kinds, weights=[4, 3, 1, 1, 4, 4, 2, 3])[0]
        undo = chosen()
        if undo is not None and self.random.random() < 0.25:
            other = self.random.choice([self.drop_links, self.kill_router])
            other_undo = other()
            if other_undo is not None:
                other_undo()
        if undo is not None:
            undo()
        self.recovered()

    def _note(self, what: str, *names: str) -> None:
        self.happened[what] = self.happened.get(what, 0) + 1
        self.order.append(f"{what}: {' and '.join(names)}")
        self._say(f"{len(self.order)}: {self.order[-1]}")

    @property
    def remembered(self) -> int:
        """Nodes that will not come again, as far as others keep what these have wanted: a thread each, among others."""
        return sum(1 for when in self._gone if monotonic() - when < SETTINGS["keep"] + SETTINGS["lease"])

    def _idle(self, *but: str) -> list[str]:
        """Processes that can be asked something."""
        return [name for name, process in self.world.running.items() if not process.stopped and name not in but]

    def _meanwhile(self, name: str) -> None:
        """Nothing, or so long that others go on without it, or so long that they notice."""
        how = self.random.choice(["at once", "at once", "a while", "noticed"])
        others = [other for other in self._idle(name) if other != "inn"]
        if how == "a while":
            sink = self.random.choice([each for each in SINKS if each in others] or [""])
            if sink:
                self.world[sink]("more", sink=f"{sink}-all", count=200, timeout=2.0)
        elif how == "noticed":
            other = self.random.choice(others)
            assert self.world[other]("alone", unwanted=[name], timeout=GUARD) is True, f"{other} still sees {name}"

    def kill_source(self) -> None:
        name = self.random.choice(SOURCES)
        self._note("a source killed", name)
        self._kill_source(name)
        self._meanwhile(name)
        self._open(name)
        self._flow(name)

    def _kill_source(self, name: str) -> None:
        maker, path = f"{name}-{self.world.life(name)}", self.world.path(f"{name}.published")
        self.world.kill(name)
        if name not in KEPT:
            self._gone.append(monotonic())
        self.bounds[maker] = _published(Path(path), maker)
        self.done[maker] = int(Path(f"{path}.{maker}").read_text() or 0)

    def kill_both(self) -> None:
        """A source and a sink: what was between them is only in the log."""
        name = self.random.choice(SOURCES)
        self._note("a source and a sink killed", name, "desk")
        for each in self.random.sample([name, "desk"], 2):
            if each == "desk":
                self.world.kill("desk")
            else:
                self._kill_source(name)
        for each in self.random.sample([name, "desk"], 2):
            self._open(each)
            if each == "desk":
                self._subscribe("desk")
            else:
                self._flow(name)

    def kill_sink(self) -> None:
        self._note("a sink killed", "desk")
        self.world.kill("desk")
        self._meanwhile("desk")
        self._open("desk")
        self._subscribe("desk")

    def kill_router(self) -> None:
        self._note("the router killed", "inn")
        self.world.kill("inn")
        self._meanwhile("inn")
        self.world.open("inn", router=True, **SETTINGS)

    def stop(self) -> Callable[[], None]:
        name = self.random.choice(self.victims)
        self._note("a node stopped", name)
        self.world[name].stop()
        self._meanwhile(name)
        return self.world[name].go_on

    def cut(self) -> Callable[[], None]:
        name = self.random.choice(self.victims)
        self._note("a node cut off", name)
        self.world.wires.cut(name)
        self._meanwhile(name)
        return lambda: self.world.wires.heal(name)

    def hold(self) -> Callable[[], None]:
        name = self.random.choice(self.victims)
        self._note("a node's bytes held", name)
        self.world.wires.cut(name, ended=False)
        self._meanwhile(name)
        return lambda: self.world.wires.heal(name)

    def drop_links(self) -> None:
        name = self.random.choice([each for each in self._idle() if each != "inn"])
        self._note("a node's links dropped", name)
        self.world[name]("cut")

    # ── what must hold ──

    def end(self, timeout: float = GUARD) -> Outcome:
        """No more events; all that were published are there, or it is said what is not."""
        wanted: dict[str, int] = {}
        for name in SOURCES:
            wanted.update(self.world[name]("stop"))
        tallies: dict[str, Tally] = {}
        troubles: list[str] = []
        for name, sinks in SINKS.items():
            for sink, step in sinks.items():
                last = {maker: n - n % step for maker, n in wanted.items()}
                came = self.world[name]("came", sink=sink, wanted=last, timeout=timeout)
                if came is not True:
                    troubles.append(f"{sink} waits for {last}, has {came}\n{self._state()}")
                log = Path(self.world.path(f"{sink}.log"))
                tallies[sink] = count(log, step, {**self.bounds, **last}, {**self.done, **last})
        return Outcome(sum(self.done.values()) + sum(wanted.values()), tallies, tuple(troubles))


def count(log: Path, step: int, bounds: Mapping[str, int], done: Mapping[str, int]) -> Tally:
    """What a sink has written down, against what it should: from its first event of each maker on, all of them, in
    order, once.

    `bounds`: what makers have published at most. `done`: what they had published for sure, all of which must have come.
    A maker that came after one of the same source began when the sink was there already: all of its events must have
    come, from the first on."""
    tally = Tally()
    last: dict[str, int] = {}
    missing: dict[str, set[int]] = {}
    for number, line in enumerate(log.read_text().splitlines(), 1):
        _, _, maker, text, _, again = line.split()
        n, before = int(text), last.get(maker)
        if again == "1" and before == n:
            tally.again += 1  # it was in its hands when it was killed
            continue
        place = f"{log.name}, line {number}: {maker} {n} after {before}"
        if n % step or n > bounds.get(maker, 0) or n <= 0:
            tally.invented += 1
            tally.problem(f"{place}: not wanted, or not published, of {bounds.get(maker, 0)}")
            continue
        if before is None:
            before = 0 if _later(maker, done) else n - step
        gaps = missing.setdefault(maker, set())
        if n > before:
            gaps.update(range(before + step, n, step))
            if n > before + step:
                tally.problem(f"{place}: some between are missing")
            last[maker] = n
        elif n in gaps:
            gaps.remove(n)
            tally.disordered += 1
            tally.problem(f"{place}: out of order")
        else:
            tally.duplicated += 1
            tally.problem(f"{place}: twice")
            continue
        tally.delivered += 1
    for maker, n in done.items():
        rest = (n - n % step - last.get(maker, 0)) // step
        if rest > 0:
            tally.lost += rest
            tally.problem(f"{log.name}: {maker} was published up to {n}, came up to {last.get(maker, 0)}")
    tally.lost += sum(map(len, missing.values()))
    tally.wanted = tally.delivered + tally.lost
    return tally


def check(log: Path, step: int, published: Mapping[str, int]) -> int:
    """All of it is there, once and in order: how many events."""
    tally = count(log, step, published, published)
    assert tally.good, "\n".join(tally.problems)
    return tally.delivered


def _later(maker: str, done: Mapping[str, int]) -> bool:
    """Whether another maker of the same source was there before."""
    name, _, life = maker.rpartition("-")
    return life.isdigit() and f"{name}-{int(life) - 1}" in done


def _published(path: Path, maker: str) -> int:
    found = [int(n) for name, n in map(str.split, path.read_text().splitlines()) if name == maker]
    return max(found, default=0)


def run(faults: int, seed: int, say: Callable[[str], object]) -> Outcome:
    """So many faults, and what they come to."""
    with world() as made:
        it = Faults(made, seed, say)
        it.open()
        while len(it.order) < faults:
            it.fault()
        return it.end()
