"""Messages for a condition over values of several owners: safe zones beside the scheme in which every change crosses.

Owners walk at random, each a step at a time. The condition becomes true some steps away from where they begin: so many
times the change that one owner's step makes on average. Messages in both directions count; the heartbeats of the links
do not, which both schemes need alike. A central evaluator sees every change, and holds every firing to what was true.

Near to where the outcome changes, zones save little. There they are held to the simple scheme that keeps the same
promise: that one asks the other owners too whenever something is about to happen, so that it is told in time.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import count
from math import cos, dist, pi, sin, sqrt
from typing import Any

from headwater.interest import Interest
from headwater.objects.zones.coordinator import Coordinator, Terms
from headwater.objects.zones.messages import Effects, Fired, FromOwner, Known, ToOwner
from headwater.objects.zones.owner import Owner
from headwater.objects.zones.split import Split
from headwater_studies.harness.benchmark import Report

STEP_TIME = 1_000  # between two changes of an owner
DELAY = 100  # of a message, one way
BEAT = 10 * STEP_TIME
TEN = [f"o{number}" for number in range(10)]
REACH = 0.10
NEAR_REACH = 1.05  # beside the simple scheme with the same promise
WALKS = {30: 10, 200: 10, 1_000: 1}  # by steps to the threshold, nearest first
MOST_CHANGES = 100_000  # of a walk

Point = tuple[float, ...]


@dataclass(frozen=True)
class Case:
    """A condition `function > :limit`, as text and as Python, and where its owners begin."""

    name: str
    text: str
    function: Callable[[Sequence[Point]], float]
    start: Mapping[str, Point]

    @property
    def fields(self) -> tuple[str, ...]:
        """Of each owner's value."""
        return ("x", "y")[: len(next(iter(self.start.values())))]

    def one_step(self) -> float:
        """How much the function changes by a step of one owner, on average (root of the mean square)."""
        points = list(self.start.values())
        here, squares, seen = self.function(points), 0.0, 0
        for at, point in enumerate(points):
            for place in range(len(point)):
                for way in (-1.0, 1.0):
                    moved = [*points]
                    moved[at] = tuple(x + way * (n == place) for n, x in enumerate(point))
                    squares, seen = squares + (self.function(moved) - here) ** 2, seen + 1
        return sqrt(squares / seen)


@dataclass
class Outcome:
    """Of one run: what crossed, and what came of it."""

    changes: int
    messages: int
    fired: int
    missed: int
    false: int
    late: int


def cases() -> list[Case]:
    """Two owners in the plane, and ten on a line each."""
    draw = random.Random(7)
    matrix = [[draw.uniform(-1, 1) for _ in TEN] for _ in TEN]
    form = [[(matrix[i][j] + matrix[j][i]) / 2 for j in range(10)] for i in range(10)]
    far = {name: (draw.choice((-1, 1)) * draw.uniform(500, 1500),) for name in TEN}
    pairs = list(zip(TEN[::2], TEN[1::2], strict=True))
    products = [f"{form[i][i]!r} * o{i}.x * o{i}.x" for i in range(10)]
    products += [f"{2 * form[i][j]!r} * o{i}.x * o{j}.x" for i in range(10) for j in range(i)]
    return [
        Case(
            "distance of two",
            "distance(a.x, a.y, b.x, b.y)",
            lambda p: dist(p[0], p[1]),
            {"a": (0.0, 0.0), "b": (300.0, 400.0)},
        ),
        Case("sum of ten", " + ".join(f"{name}.x" for name in TEN), lambda p: sum(x for (x,) in p), far),
        Case(
            "inner product of ten",
            " + ".join(f"{a}.x * {b}.x" for a, b in pairs),
            lambda p: sum(p[2 * k][0] * p[2 * k + 1][0] for k in range(5)),
            far,
        ),
        Case(
            "quadratic form of ten",
            " + ".join(products),
            lambda p: sum(form[i][j] * p[i][0] * p[j][0] for i in range(10) for j in range(10)),
            far,
        ),
    ]


class Run:
    """One walk of all owners, watched by one trigger."""

    def __init__(self, case: Case, steps: int, seed: int, *, zones: bool = True) -> None:
        self.case, self.random = case, random.Random(seed)
        limit = case.function(list(case.start.values())) + steps * case.one_step()
        parts = ", ".join(f"{field}: f64" for field in case.fields)
        inputs = ", ".join(f"{name}: {{{parts}}}" for name in case.start)
        interest = Interest(f"{case.text} > :limit", inputs, params={"limit": limit})
        self.condition = Split(interest, {name: name for name in case.start})
        self.time = STEP_TIME
        self.agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self.values = dict(case.start)
        self.owners = {name: Owner(self._measured(name), self.time) for name in case.start}
        self.home = Coordinator(
            self.condition, self.time + 1, terms=Terms(retry=20 * DELAY, lease=10 * BEAT), zones=zones
        )
        self.told: list[tuple[int, Any]] = []
        self.truth: list[tuple[int, tuple[float, ...]]] = []

    def walk(self, changes: int) -> Outcome:
        """So many changes by all together; then until all has been heard."""
        self._told(self.home.begin(self.time))
        each = changes // len(self.owners)
        for at, name in enumerate(self.owners):
            self._at(STEP_TIME + at * STEP_TIME // len(self.owners), self._walker(name, each))
            self._at(BEAT, self._beater(name))
        end = self.time + (each + 2) * STEP_TIME + 3 * BEAT
        while self.agenda[0][0] <= end:
            self.time, _, do = heapq.heappop(self.agenda)
            do()
        return self._outcome()

    def _walker(self, name: str, left: int) -> Callable[[], None]:
        def step() -> None:
            nonlocal left
            left -= 1
            if left:
                self._at(STEP_TIME, step)
            self.values[name] = self._stepped(self.values[name])
            messages = self.owners[name].changed(self._measured(name), self.time)
            flat = tuple(x for point in self.values.values() for x in point)
            self.truth.append((self.owners[name].stamp, flat))
            for message in messages:
                self._to_home(name, message)

        return step

    def _stepped(self, point: Point) -> Point:
        if len(point) == 1:
            return (point[0] + self.random.choice((-1.0, 1.0)),)
        angle = self.random.uniform(0, 2 * pi)
        return (point[0] + cos(angle), point[1] + sin(angle))

    def _measured(self, name: str) -> tuple[Any, ...]:
        raw = {name: dict(zip(self.case.fields, self.values[name], strict=True))}
        return self.condition.parts[name].measure(raw)

    def _beater(self, name: str) -> Callable[[], None]:
        def beat() -> None:
            self._at(BEAT, beat)
            self._to_home(name, self.owners[name].alive(self.time))
            if name == next(iter(self.owners)):
                self._told(self.home.tick(self.time))

        return beat

    def _at(self, delay: int, do: Callable[[], None]) -> None:
        heapq.heappush(self.agenda, (self.time + delay, next(self._order), do))

    def _to_home(self, name: str, message: FromOwner) -> None:
        self._at(DELAY, lambda: self._told(self.home.received(name, message, self.time)))

    def _told(self, effects: Effects) -> None:
        self.told += ((self.time, happening) for happening in effects.happenings)
        for name, message in effects.messages:
            self._to_owner(name, message)

    def _to_owner(self, name: str, message: ToOwner) -> None:
        def deliver() -> None:
            for answer in self.owners[name].received(message, self.time):
                self._to_home(name, answer)

        self._at(DELAY, deliver)

    def _outcome(self) -> Outcome:
        """What was told, held to what was true at every change."""
        due, before = set[int](), None
        limit = self.condition.interest.params["limit"]
        width = len(self.case.fields)
        for time, flat in self.truth:
            points = [flat[at : at + width] for at in range(0, len(flat), width)]
            value = self.case.function(points)
            near = abs(value - limit) <= 1e-9 * max(abs(value), abs(limit), 1.0)
            holds = self.condition.holds(flat) if near else value > limit  # sums in another order round differently
            if holds and before is False:
                due.add(time)
            before = holds
        fired = {firing.time: at for at, firing in self.told if isinstance(firing, Fired)}
        gaps = [(known.unknown_since, known.since) for _, known in self.told if isinstance(known, Known)][1:]
        assert not gaps, f"time was unknown: {gaps}"
        counts = self.home.counts
        late = sum(at - time > 3 * DELAY for time, at in fired.items())
        missed, false = len(due - fired.keys()), len(fired.keys() - due)
        return Outcome(len(self.truth), counts.messages, len(fired), missed, false, late)


def measured(case: Case, steps: int, length: int, walks: int, *, zones: bool = True) -> Outcome:
    """Several walks, each from where the owners begin."""
    total = Outcome(0, 0, 0, 0, 0, 0)
    for seed in range(walks):
        run = Run(case, steps, seed, zones=zones).walk(length)
        for field in fields(Outcome):
            setattr(total, field.name, getattr(total, field.name) + getattr(run, field.name))
    return total


def rows(report: Report, quick: bool) -> None:
    """A row for each condition and each distance to its threshold, of walks that cover about half of the way; and one
    of walks that get there, and go to and fro across it."""
    for case in cases():
        for steps, walks in WALKS.items():
            length = min(steps * steps // 4, MOST_CHANGES)
            name = f"messages, {case.name}, {steps:,} steps away"
            if not quick or steps < 1_000:
                _row(report, name, measured(case, steps, length, 1 if quick else walks), reached=steps == 200)
        near = next(iter(WALKS))
        length, walks = 2 * near * near, 1 if quick else 4
        across, simple = (measured(case, near, length, walks, zones=zones) for zones in (True, False))
        name = f"messages, {case.name}, {near} steps away and across"
        _row(report, name, across, reached=False)
        _near_row(report, f"{name}, the same promise", across, simple)


def _near_row(report: Report, name: str, got: Outcome, simple: Outcome) -> None:
    """Beside the simple scheme of the same walks, which asks as well."""
    right = not any((each.missed or each.false or each.late) for each in (got, simple))
    share = got.messages / simple.messages
    report.add(
        name,
        got.messages,
        simple.messages,
        ratio=share,
        unit="",
        reach=f"≤ {NEAR_REACH:.2f}×",
        ok=share <= NEAR_REACH and right,
        note=f"{got.changes} changes",
    )


def _row(report: Report, name: str, got: Outcome, *, reached: bool) -> None:
    right = not (got.missed or got.false or got.late)
    share = got.messages / got.changes
    report.add(
        name,
        got.messages,
        got.changes,
        ratio=share,
        unit="",
        reach=f"≤ {REACH:.2f}×" if reached else "",
        ok=(share <= REACH and right) if reached else None if right else False,
        note=f"fired {got.fired}, missed {got.missed}, false {got.false}, late {got.late}",
    )
