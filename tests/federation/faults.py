"""A federation to which things happen, at random: nodes are killed, stopped and cut off while events flow.

Whatever happens, in the end every reliable sink has seen the events of each source as they were published, from the
first one that it saw on: nothing is missing in the middle, and nothing came twice but what a killed sink had in its
hands, which says so. The sources log: when they were killed and started again, all that their `publish` had returned
for comes, before what they publish then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path

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


class Faults:
    """The federation, and what may happen to it. A seed says what happens, and in which order."""

    def __init__(self, made: World, seed: int, say: Callable[[str], object]) -> None:
        self.world, self.random, self._say = made, random.Random(seed), say
        self.bounds: dict[str, int] = {}  # by maker that is gone: it has published at most so much,
        self.done: dict[str, int] = {}  # and at least so much
        self.happened: dict[str, int] = {}

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

    def _note(self, what: str, *more: object) -> None:
        self.happened[what] = self.happened.get(what, 0) + 1
        self._say(f"{sum(self.happened.values())}: {what} {' '.join(map(str, more))}")

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
        self._note("kill", name)
        self._kill_source(name)
        self._meanwhile(name)
        self._open(name)
        self._flow(name)

    def _kill_source(self, name: str) -> None:
        maker, path = f"{name}-{self.world.life(name)}", self.world.path(f"{name}.published")
        self.world.kill(name)
        self.bounds[maker] = _published(Path(path), maker)
        self.done[maker] = int(Path(f"{path}.{maker}").read_text() or 0)

    def kill_both(self) -> None:
        """A source and a sink: what was between them is only in the log."""
        name = self.random.choice(SOURCES)
        self._note("kill", name, "desk")
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
        self._note("kill", "desk")
        self.world.kill("desk")
        self._meanwhile("desk")
        self._open("desk")
        self._subscribe("desk")

    def kill_router(self) -> None:
        self._note("kill", "inn")
        self.world.kill("inn")
        self._meanwhile("inn")
        self.world.open("inn", router=True, **SETTINGS)

    def stop(self) -> Callable[[], None]:
        name = self.random.choice([*LEAVES, "inn"])
        self._note("stop", name)
        self.world[name].stop()
        self._meanwhile(name)
        return self.world[name].go_on

    def cut(self) -> Callable[[], None]:
        name = self.random.choice([*LEAVES, "inn"])
        self._note("cut", name)
        self.world.wires.cut(name)
        self._meanwhile(name)
        return lambda: self.world.wires.heal(name)

    def hold(self) -> Callable[[], None]:
        name = self.random.choice([*LEAVES, "inn"])
        self._note("hold", name)
        self.world.wires.cut(name, ended=False)
        self._meanwhile(name)
        return lambda: self.world.wires.heal(name)

    def drop_links(self) -> None:
        name = self.random.choice([each for each in self._idle() if each != "inn"])
        self._note("drop the links of", name)
        self.world[name]("cut")

    # ── what must hold ──

    def end(self) -> int:
        """No more events; all that were published are there. How many were seen in all."""
        wanted: dict[str, int] = {}
        for name in SOURCES:
            wanted.update(self.world[name]("stop"))
        seen = 0
        for name, sinks in SINKS.items():
            for sink, step in sinks.items():
                last = {maker: n - n % step for maker, n in wanted.items()}
                came = self.world[name]("came", sink=sink, wanted=last, timeout=GUARD)
                assert came is True, f"{sink} waits for {last}, has {came}\n{self._state()}"
                log = Path(self.world.path(f"{sink}.log"))
                seen += check(log, step, {**self.bounds, **last}, self.done)
        return seen


def check(log: Path, step: int, bounds: dict[str, int], done: Mapping[str, int] = {}) -> int:
    """What a sink has written down: from its first event of each maker on, all of them, in order, once.

    `done`: of makers that were killed, what they had published for sure. All of that must have come; and those that
    come after them began when the sink was there already, so all of theirs from the first on."""
    last: dict[str, int] = {}
    count = 0
    for number, line in enumerate(log.read_text().splitlines(), 1):
        _, _, maker, text, _, again = line.split()
        n, before = int(text), last.get(maker)
        if again == "1" and before == n:
            continue  # it was in its hands when it was killed
        place = f"{log.name}, line {number}: {maker} {n} after {before}"
        assert n == before + step if before is not None else n == step or not _later(maker, done), place
        assert n % step == 0, place
        assert n <= bounds[maker], f"{place}, of {bounds[maker]}"
        last[maker] = n
        count += 1
    for maker, n in done.items():
        assert last.get(maker, 0) >= n - n % step, f"{log.name}: {maker} was published up to {n}, came up to {last}"
    return count


def _later(maker: str, done: Mapping[str, int]) -> bool:
    """Whether another maker of the same source was killed before."""
    name, _, life = maker.rpartition("-")
    return f"{name}-{int(life) - 1 if life.isdigit() else 0}" in done


def _published(path: Path, maker: str) -> int:
    found = [int(n) for name, n in map(str.split, path.read_text().splitlines()) if name == maker]
    return max(found, default=0)


def run(faults: int, seed: int, say: Callable[[str], object]) -> int:
    """So many faults, and what they come to; how many events were seen."""
    with world() as made:
        it = Faults(made, seed, say)
        it.open()
        while sum(it.happened.values()) < faults:
            it.fault()
        return it.end()
