"""The engine that keeps runs apart: each with the events it has taken, in the order of preference.

It is for what runs cannot share: conditions between elements, and matches of which one decides where the next may
begin. A row costs what there are runs open in its partition, up to the limit; beyond it the oldest are given up.

    Partition   rows, runs by where they began, the first row where another may begin
    Group       all runs that began with one row: the preferred first
    Run         the point where it stands, the ways that are still open, what it has taken

Where only the preferred match of a beginning counts, a run that is whole ends those that are preferred less, and of
runs that can go on in the same ways the preferred one is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import ExecutionError
from headwater.ir import interp
from headwater.late import np
from headwater.native.subset import Mode
from headwater.patterns import model
from headwater.patterns.automaton import Automaton, Way
from headwater.patterns.engine import layout as at
from headwater.patterns.engine.found import Found
from headwater.patterns.engine.index import compared
from headwater.patterns.engine.keys import Keys
from headwater.patterns.engine.memory import Memory
from headwater.patterns.engine.partitioned import window_of
from headwater.patterns.engine.views import Views

# What a run waits for: a row by ways before or after its point's end, absence until the deadline, or to be taken.
BEFORE_END, AFTER_END, ABSENCE, WHOLE = 0, 1, 2, 3
Taken = tuple[tuple[int, int, int], ...]  # element, row, event
Fields = Callable[[int], tuple[dict[str, Any], Any]]


@dataclass(slots=True)
class Run:
    """One way to go on: the point reached, what it waits for there, the events taken on the way."""

    point: int
    waits: int
    ways: int  # a set of the point's ways
    taken: Taken
    deadline: int | None = None


@dataclass(slots=True)
class Group:
    """The runs that began with one row, the preferred first: their window ends together."""

    row: int
    time: int
    runs: list[Run]


@dataclass(slots=True)
class Partition:
    """The rows of one key so far and what is open among them. `used` are events that no later match may have."""

    rows: int = 0
    started: bool = False
    floor: int = 0
    groups: list[Group] = field(default_factory=list)
    used: set[int] = field(default_factory=set)


class ApartEngine:
    """In plain Python, with the events themselves at hand: for conditions that kernels cannot ask (text that is cut,
    records within records), for `reuse=False`, and to compare the kernels with."""

    name = "apart"

    def __init__(
        self,
        pattern: model.Pattern,
        automaton: Automaton,
        fields: Fields,
        mode: Mode = "compiled",
        interpreted: bool = False,
    ) -> None:
        self.pattern, self.automaton, self.fields = pattern, automaton, fields
        memory = Memory(mode)
        memory["control"] = np.zeros(at.CONTROL, np.int64)
        self.keys = Keys(memory, pattern.key, pattern.limits.partitions)
        self.kind, self.window = window_of(pattern)
        self.partitions: dict[tuple[int, ...], Partition] = {}
        self.every = pattern.after.rule == "no skip" and pattern.reuse  # all matches are taken
        self.given_up = self.unskipped = 0
        self.latest = at.LEAST
        self.open_runs = 0
        self.asks: dict[int, list[tuple[frozenset[int], Views, Any]]] = {}
        for condition in pattern.conditions:
            views = Views(pattern, condition.interest.type.record, condition.views)
            ask = _asking(condition.interest, interpreted)
            for element in condition.elements:
                self.asks.setdefault(element, []).append((frozenset(condition.elements), views, ask))
        self.variables: dict[int, list[dict[int, str]]] = {}
        for variable in compared(pattern):
            places = dict(variable.fields)
            for element in places:
                self.variables.setdefault(element, []).append(places)
        self.bound = bool(self.asks or self.variables)  # what fits depends on what was taken

    # ── rows ──

    def feed(self, rows: Any, keys: Any, values: Any = None) -> list[Found]:
        """Take rows in order; what was found. A row of a partition that has nothing open, and that begins nothing,
        leaves no trace."""
        found: list[Found] = []
        words = self.keys.words
        for k, (_, letter, event, time) in enumerate(rows.tolist()):
            self.one(letter, event, time, tuple(keys[k * words : (k + 1) * words].tolist()), (), found)
        return found

    def one(
        self, letter: int, event: int, time: int, words: Sequence[int], values: Sequence[int], found: list[Found]
    ) -> bool:
        """One row; what it made whole is put to `found`. Its event is held, for all that is known."""
        self.latest = time
        letter &= (1 << 64) - 1
        key = tuple(words)
        partition = self.partitions.get(key)
        if partition is None:
            if not letter & self.automaton.first:
                return True
            partition = self._new(key)
        self.open_runs -= _size(partition)
        self._row(partition, key, letter, event, time, found)
        self.open_runs += _size(partition)
        if not partition.groups and self.pattern.begin == "each":
            del self.partitions[key]
        if self.open_runs > self.pattern.limits.runs:
            self._give_up()
        return True

    def _new(self, key: tuple[int, ...]) -> Partition:
        if len(self.partitions) >= self.pattern.limits.partitions:
            oldest = next(iter(self.partitions))
            self.open_runs -= _size(self.partitions.pop(oldest))
            self.given_up += 1
        made = self.partitions[key] = Partition()
        return made

    def _give_up(self) -> None:
        """The groups that began first."""
        partition = min((p for p in self.partitions.values() if p.groups), key=lambda p: p.groups[0].time)
        self.open_runs -= len(partition.groups.pop(0).runs)
        self.given_up += 1

    def _row(
        self, partition: Partition, key: tuple[int, ...], letter: int, event: int, time: int, found: list[Found]
    ) -> None:
        """One row of a partition: what is over ends, what is open goes on, a new group begins, then matches that
        nothing earlier can forestall any more are taken."""
        partition.rows += 1
        row = partition.rows
        self._expire(partition, key, row, time, found)
        for group in partition.groups:
            group.runs = self._stepped(group, key, letter, row, event, time, found)
        if letter & self.automaton.first and not (partition.started and self.pattern.begin == "first"):
            fitting = [way for way in self.automaton.points[0].ways if self.fits(letter, way.element, (), event, row)]
            partition.started = partition.started or bool(fitting)
            group = Group(row, time, [])
            runs: list[Run] = []
            for way in fitting:
                if not self._arrive(group, runs, way.target, ((way.element, row, event),), key, time, found):
                    break
            group.runs = runs
            partition.groups.append(group)
        if self.kind == at.BY_ROWS:
            self._mature(partition, key, lambda group: row - group.row + 1 >= self.window, time, found)
        self._decide(partition, key, found)
        excess = _size(partition) - self.pattern.limits.runs_per_partition
        while excess > 0 and partition.groups:
            excess -= len(partition.groups.pop(0).runs)
            self.given_up += 1

    def _stepped(
        self, group: Group, key: tuple[int, ...], letter: int, row: int, event: int, time: int, found: list[Found]
    ) -> list[Run]:
        """What is left of a group after a row."""
        runs: list[Run] = []
        points = self.automaton.points
        for run in group.runs:
            if run.waits == WHOLE:
                runs.append(run)
                continue
            if run.waits == ABSENCE:
                if not any(self.fits(letter, e, run.taken, event, row) for e in _members(self.automaton.absent)):
                    self._keep(runs, run)
                continue
            point = points[run.point]
            fitting: dict[int, bool] = {}

            def fits(element: int, run: Run = run, fitting: dict[int, bool] = fitting) -> bool:
                if element not in fitting:
                    fitting[element] = self.fits(letter, element, run.taken, event, row)
                return fitting[element]

            whole = False
            for number, way in enumerate(point.ways):
                if run.ways >> number & 1 and fits(way.element):
                    taken = (*run.taken, (way.element, row, event))
                    if not self._arrive(group, runs, way.target, taken, key, time, found):
                        whole = True
                        break
            if whole:
                break
            left = run.ways
            taking = any(fits(way.element) for way in point.ways)
            for number, way in enumerate(point.ways):
                if left >> number & 1 and _ends(way, taking, fits):
                    left &= ~(1 << number)
            if left:
                self._keep(runs, Run(run.point, run.waits, left, run.taken))
        return runs

    def _arrive(
        self,
        group: Group,
        runs: list[Run],
        point: int,
        taken: Taken,
        key: tuple[int, ...],
        time: int,
        found: list[Found],
    ) -> bool:
        """Go on from a point; False where nothing that is preferred less counts any more."""
        it = self.automaton.points[point]
        before = sum(1 << n for n, way in enumerate(it.ways) if not (it.ends and way.after_end))
        after = sum(1 << n for n, way in enumerate(it.ways) if it.ends and way.after_end)
        if before:
            self._keep(runs, Run(point, BEFORE_END, before, taken))
        if it.ends:
            if self.automaton.absent:
                self._keep(runs, Run(point, ABSENCE, 0, taken))
            elif not self.every:
                self._keep(runs, Run(point, WHOLE, 0, taken))
                if self.pattern.reuse:
                    return False
            elif not any(run.waits == WHOLE and run.taken == taken for run in runs):
                runs.append(Run(point, WHOLE, 0, taken))
        if after:
            self._keep(runs, Run(point, AFTER_END, after, taken))
        return True

    def _keep(self, runs: list[Run], run: Run) -> None:
        """Unless another one does the same: of those that are preferred one is enough, else of equal ones."""
        alike = self.pattern.reuse and not self.every and not self.bound
        for other in runs:
            same = run.waits >= ABSENCE or (other.point == run.point and other.ways == run.ways)
            if same and other.waits == run.waits and (alike or other.taken == run.taken):
                return
        runs.append(run)

    # ── what fits ──

    def fits(self, letter: int, element: int, taken: Taken, event: int, row: int) -> bool:
        """Whether a row can be taken for an element, after what was taken."""
        if not letter >> element & 1:
            return False
        if not self.bound:
            return True
        for places in self.variables.get(element, ()):
            value = self.fields(event)[0][places[element]]
            if any(self.fields(other)[0][places[e]] != value for e, _, other in taken if e in places):
                return False
        asks = self.asks.get(element)
        if asks:
            now = (*taken, (element, row, event))
            have = {e for e, _, _ in now}
            for elements, views, ask in asks:
                if elements <= have and not ask(views.read([(e, *self.fields(number)) for e, _, number in now])):
                    return False
        return True

    # ── what becomes of groups ──

    def _within(self, group: Group, row: int, time: int) -> bool:
        if self.kind == at.BY_TIME:
            return time - group.time <= self.window
        return self.kind != at.BY_ROWS or row - group.row + 1 <= self.window

    def _expire(self, partition: Partition, key: tuple[int, ...], row: int, time: int, found: list[Found]) -> None:
        """Runs that are too old for this row: what was absent was so until their deadline."""
        if self.kind != at.NO_WINDOW:
            self._mature(partition, key, lambda group: not self._within(group, row, time), None, found)
            self._decide(partition, key, found)

    def _mature(
        self,
        partition: Partition,
        key: tuple[int, ...],
        over: Callable[[Group], bool],
        time: int | None,
        found: list[Found],
    ) -> None:
        for group in partition.groups:
            if not over(group):
                break
            runs = []
            for run in group.runs:
                if run.waits == ABSENCE:
                    run.waits, run.deadline = WHOLE, group.time + self.window if time is None else time
                if run.waits == WHOLE:
                    runs.append(run)
            group.runs = runs

    def _decide(self, partition: Partition, key: tuple[int, ...], found: list[Found]) -> None:
        """Take what is certain."""
        if self.every:
            for group in partition.groups:
                for run in group.runs:
                    if run.waits == WHOLE:
                        found.append(self._found(run, key))
                group.runs = [run for run in group.runs if run.waits != WHOLE]
            partition.groups = [group for group in partition.groups if group.runs]
            return
        while partition.groups:
            group = partition.groups[0]
            if group.row < partition.floor:
                partition.groups.pop(0)
                continue
            if not self.pattern.reuse:
                group.runs = [run for run in group.runs if not any(r in partition.used for _, r, _ in run.taken)]
            if group.runs and group.runs[0].waits != WHOLE:
                break
            partition.groups.pop(0)
            if group.runs:
                run = group.runs[0]
                found.append(self._found(run, key))
                partition.used.update(r for _, r, _ in run.taken)
                partition.floor = max(partition.floor, self._floor(run.taken))
        if partition.groups:
            least = partition.groups[0].row
            partition.used = {row for row in partition.used if row >= least}
        else:
            partition.used = set()

    def _floor(self, taken: Taken) -> int:
        first, last = taken[0][1], taken[-1][1]
        after = self.pattern.after
        if after.rule == "no skip":
            return 0
        if after.rule == "next":
            return first + 1
        if after.rule == "past last":
            return last + 1
        rows = [row for element, row, _ in taken if element in after.elements]
        row = (rows[0] if after.rule == "first" else rows[-1]) if rows else first
        if row <= first:
            self.unskipped += 1
            return first + 1
        return row

    def _found(self, run: Run, key: tuple[int, ...]) -> Found:
        deadline = run.deadline
        return Found(
            tuple(event for _, _, event in run.taken),
            tuple(element for element, _, _ in run.taken),
            -1 if deadline is None else deadline,
            deadline,
            self.keys.values_of(key),
        )

    def promise(self, time: int) -> list[Found]:
        found: list[Found] = []
        if self.kind != at.BY_TIME:
            return found
        for key, partition in list(self.partitions.items()):
            if partition.groups and partition.groups[0].time + self.window < time:
                self.open_runs -= _size(partition)
                self._mature(partition, key, lambda group: group.time + self.window < time, None, found)
                self._decide(partition, key, found)
                self.open_runs += _size(partition)
                if not partition.groups and self.pattern.begin == "each":
                    del self.partitions[key]
        return found

    def due(self) -> int | None:
        """A promise of an earlier time decides nothing; None if no promise does."""
        if self.kind != at.BY_TIME:
            return None
        firsts = [partition.groups[0].time for partition in self.partitions.values() if partition.groups]
        return min(firsts) + self.window + 1 if firsts else None

    def finish(self) -> list[Found]:
        """Nothing more will come."""
        found = self.promise(at.MOST)
        for key, partition in self.partitions.items():
            for group in partition.groups:
                group.runs = [run for run in group.runs if run.waits >= ABSENCE]
            self._decide(partition, key, found)
        self.open_runs = sum(map(_size, self.partitions.values()))
        return found

    @property
    def crowded(self) -> bool:
        self.keys.others = self.partitions
        return self.keys.crowded

    def trim(self, values: Any = None) -> None:
        """Let go of texts that are in no partition's key."""
        keys = [(self.keys.values_of(key), partition) for key, partition in self.partitions.items()]
        self.keys.texts, self.keys.values = {}, []
        self.partitions = {self.keys.of_values(key): partition for key, partition in keys}

    # ── room ──

    def compact(self) -> None:
        """There is nothing that no run uses."""

    def live_events(self) -> Any:
        runs = (run for p in self.partitions.values() for group in p.groups for run in group.runs)
        return np.array([event for run in runs for _, _, event in run.taken], np.int64)

    @property
    def open(self) -> int:
        return len(self.partitions)

    # ── what is kept of it ──

    def dump(self) -> list[Any]:
        kept = []
        for key, p in self.partitions.items():
            groups = [
                [g.row, g.time, [[r.point, r.waits, str(r.ways), r.taken, r.deadline] for r in g.runs]]
                for g in p.groups
            ]
            kept.append([key, p.rows, p.started, p.floor, groups, sorted(p.used)])
        return [self.keys.dump(), self.latest, self.given_up, self.unskipped, kept]

    def load(self, found: list[Any]) -> None:
        keys, self.latest, self.given_up, self.unskipped, kept = found
        self.keys.load(keys)
        self.partitions = {}
        points, elements = len(self.automaton.points), len(self.automaton.elements)
        for key, rows, started, floor, groups, used in kept:
            made = []
            for row, time, runs in groups:
                made.append(Group(row, time, [Run(p, w, int(s), _taken(t), d) for p, w, s, t, d in runs]))
                for run in made[-1].runs:
                    if not (0 <= run.point < points and run.taken and all(0 <= e < elements for e, _, _ in run.taken)):
                        raise ExecutionError("snapshot: expected runs of this pattern, found others")
            self.partitions[tuple(key)] = Partition(rows, started, floor, made, set(used))
        self.open_runs = sum(map(_size, self.partitions.values()))


def _taken(found: Any) -> Taken:
    return tuple((element, row, event) for element, row, event in found)


def _size(partition: Partition) -> int:
    return sum(len(group.runs) for group in partition.groups)


def _members(elements: int) -> Iterator[int]:
    while elements:
        low = elements & -elements
        yield low.bit_length() - 1
        elements ^= low


def _ends(way: Way, taking: bool, fits: Callable[[int], bool]) -> bool:
    """Whether a way is closed by a row that is not taken."""
    if way.selection == "strict" or (way.selection == "next" and taking):
        return True
    return any(fits(element) for element in _members(way.forbidden))


def _asking(interest: Any, interpreted: bool) -> Callable[[dict[str, Any]], bool]:
    if interpreted:
        return lambda raw: interp.run(interest.program, raw, params=interest.params).passed
    running, type = interest.native(), interest.type
    return lambda raw: bool(running.test(type.encode(raw)))
