"""Runs that are kept apart, by machine code (`runs.py`), with conditions between elements as tapes (`tapes.py`).

A row costs what there are runs open in its partition. Patterns whose conditions are not on tapes, or whose events may
not be used again, run as `apart.py` says.
"""

from __future__ import annotations

from typing import Any

from headwater.errors import ExecutionError
from headwater.late import np
from headwater.native.subset import Mode
from headwater.patterns import model
from headwater.patterns.automaton import Automaton
from headwater.patterns.engine import layout as at
from headwater.patterns.engine import partitions, run_lists, runs
from headwater.patterns.engine.found import Found
from headwater.patterns.engine.partitioned import ROWS_AT_ONCE, Partitioned, signed
from headwater.patterns.engine.registers import STACK
from headwater.patterns.engine.tapes import Registers

MAX_WAYS = 63  # of a point: sets of them are words
SMALLEST = 1 << 10
LARGEST_OUT = 1 << 20
BRIEF_OUT = 1 << 14  # words; writing out so many takes less than changing threads
_SELECTIONS = {"any": run_lists.ANY, "next": run_lists.NEXT_FITTING, "strict": run_lists.STRICT}
_RULES = {
    "no skip": runs.NO_SKIP,
    "next": runs.TO_NEXT,
    "past last": runs.PAST_LAST,
    "first": runs.TO_FIRST,
    "last": runs.TO_LAST,
}


def can_separate(pattern: model.Pattern, automaton: Automaton) -> bool:
    """Whether the kernels of runs can run it: a set of a point's ways is one word, and events may be used again."""
    return pattern.reuse and all(len(point.ways) <= MAX_WAYS for point in automaton.points)


class SeparateEngine(Partitioned):
    """Runs apart from each other, in kernels: for conditions between elements that no index answers, and where one
    match decides where the next may begin. A row costs what its partition has runs open."""

    name = "separate"
    idling, taking = runs.idle_partitions, runs.one
    modules = partitions.__name__, runs.__name__

    def __init__(
        self, pattern: model.Pattern, automaton: Automaton, registers: Registers, mode: Mode = "compiled"
    ) -> None:
        super().__init__(pattern, automaton, run_lists.PARTITION, mode)
        self.registers = registers
        self.elements = len(automaton.elements)
        control = self.memory["control"]
        ways = max(len(point.ways) for point in automaton.points)
        self.every = every = pattern.after.rule == "no skip"
        bound = registers.size > 0
        ambiguous = any(len({w.element for w in point.ways}) < len(point.ways) for point in automaton.points)
        control[at.EVERY], control[at.TELL_APART] = every, every or bound
        control[at.ALIKE] = ambiguous or not (every or bound)
        control[at.RULE] = _RULES[pattern.after.rule]
        control[at.RULE_ELEMENTS] = signed(sum(1 << element for element in pattern.after.elements))
        control[at.CELLS] = control[at.GROUPS] = 1
        control[at.NODE_NEED], control[at.CELL_NEED] = ways + 1, 3 * ways + 3
        control[at.REGISTERS], control[at.COLUMNS] = registers.size, 2 * len(registers.columns)
        control[at.RUNS_LIMIT], control[at.ALL_RUNS] = pattern.limits.runs_per_partition, pattern.limits.runs
        room = SMALLEST + 8 * ways
        sizes = {
            "nodes": room * run_lists.NODE,
            "regs": room * max(1, registers.size),
            "cells": 4 * room * run_lists.RUN,
            "groups": SMALLEST * run_lists.GROUP,
            "found": 4 * room * runs.FOUND,
            "out": SMALLEST,
            "matches": SMALLEST * runs.OUT_MATCH,
            "values": ROWS_AT_ONCE * max(1, 2 * len(registers.columns)),
            "work": registers.size + registers.stack + 2 * STACK,
        }
        for name, size in sizes.items():
            self.memory[name] = np.zeros(size, np.int64)
        self.memory["automaton"] = table_of(automaton)
        self.memory["program"] = np.array(registers.program or [0], np.int64)
        self._rooms()

    def _rooms(self) -> None:
        memory, control = self.memory, self.memory["control"]
        control[at.NODE_ROOM] = len(memory["nodes"]) // run_lists.NODE
        control[at.CELL_ROOM] = len(memory["cells"]) // run_lists.RUN
        control[at.GROUP_ROOM] = len(memory["groups"]) // run_lists.GROUP
        control[at.FINAL_ROOM] = len(memory["found"]) // runs.FOUND
        control[at.OUT_ROOM], control[at.MATCH_ROOM] = len(memory["out"]), len(memory["matches"]) // runs.OUT_MATCH

    @property
    def unskipped(self) -> int:
        return int(self.memory["control"][at.UNSKIPPED])

    @property
    def open_runs(self) -> int:
        return int(self.memory["control"][at.USED_CELLS])

    # ── rows ──

    def _step(self, done: int, count: int) -> int:
        return self.memory.call(runs.run_rows, done, count)

    def promise(self, time: int) -> list[Found]:
        """No row before this time will come."""
        control = self._views[2]
        if control[at.WINDOW_KIND] != at.BY_TIME:
            return []
        until = max(at.LEAST, time - control[at.WINDOW])
        if control[at.SOONEST] >= until:
            return []
        found: list[Found] = []
        for partition in self._due(until):
            parts = self._parts()
            self.memory.grow("found", (control[at.FINALS] + int(parts[partition, run_lists.RUNS]) + 1) * runs.FOUND)
            self.memory.short(runs.pass_time)(partition, time)
            if control[at.FINALS] > SMALLEST:
                found += self._taken_out()
        return found + self._taken_out()

    def finish(self) -> list[Found]:
        """Nothing more will come."""
        found = self.promise(at.MOST)
        control = self.memory["control"]
        for partition in np.flatnonzero(self._parts()[:, run_lists.HEAD]).tolist():
            need = int(control[at.FINALS]) + int(self._parts()[partition, run_lists.RUNS]) + 1
            self.memory.grow("found", need * runs.FOUND)
            self.memory.call(runs.end_rows, partition)
        return found + self._taken_out()

    def _taken_out(self) -> list[Found]:
        """Write out what was found, in pieces where there is more than room for it."""
        memory, control = self.memory, self._views[2]
        found: list[Found] = []
        if control[at.FINALS]:
            self._rooms()
        while control[at.FINALS]:
            brief = len(memory["out"]) <= BRIEF_OUT
            why = memory.short(runs.write_found)() if brief else memory.call(runs.write_found)
            written = self._matches()
            found += written
            if why == at.DONE:
                control[at.FINALS] = control[at.WRITTEN] = 0
                break
            if not written or len(memory["out"]) < LARGEST_OUT:
                memory.grow("out", 2 * len(memory["out"]))
            self._rooms()
        if control[at.USED_CELLS] > self.limits.runs:
            self._give_up_runs()
        self.given_up += control[at.GIVEN_UP]
        control[at.GIVEN_UP] = 0
        return found

    def _matches(self) -> list[Found]:
        """The matches that were written out."""
        matches, events, labels = self._written(runs.OUT_MATCH)
        table = memoryview(self.memory["found"])
        made = []
        for m in range(0, len(matches), runs.OUT_MATCH):
            start, length, number = matches[m : m + runs.OUT_MATCH]
            _, absent, deadline, base = table[number * runs.FOUND : (number + 1) * runs.FOUND]
            key = self.keys.value(base // self.stride)
            end = start + length
            when = deadline if absent else None
            made.append(Found(tuple(events[start:end]), tuple(labels[start:end]), deadline, when, key))
        return made

    @property
    def crowded(self) -> bool:
        return self.keys.crowded or self.registers.crowded

    def trim(self, values: Any = None) -> None:
        super().trim()
        size, nodes = self.registers.size, int(self.memory["control"][at.NODES])
        if size:
            self.registers.trim(self.memory["regs"][: nodes * size].reshape(-1, size), values or ())

    # ── room ──

    def _room(self, found: list[Found]) -> None:
        memory, control = self.memory, self.memory["control"]
        most = int(self._parts()[:, run_lists.RUNS].max(initial=0)) + 1
        nodes, need = int(control[at.NODE_ROOM]), most * int(control[at.NODE_NEED])
        if int(control[at.NODES]) + need > nodes:
            memory.grow("marks", nodes, keep=False)
            left = memory.call(runs.compact_runs)
            if 2 * left + need > nodes:
                more = max(2 * nodes, 2 * left + need)
                self._check_memory(more * (run_lists.NODE + self.registers.size))
                memory.grow("nodes", more * run_lists.NODE)
                memory.grow("regs", more * max(1, self.registers.size))
        cells = most * int(control[at.CELL_NEED])
        if int(control[at.USED_CELLS]) + cells >= int(control[at.CELL_ROOM]):
            memory.grow("cells", 2 * (int(control[at.USED_CELLS]) + cells) * run_lists.RUN)
        if control[at.FREE_GROUP] == 0 and control[at.GROUPS] >= control[at.GROUP_ROOM]:
            memory.grow("groups", 2 * len(memory["groups"]))
        memory.grow("found", (cells + SMALLEST) * runs.FOUND)
        self._rooms()

    def _check_memory(self, words: int) -> None:
        """Give up the oldest half where there is not to be so much room."""
        if words * 8 > self.limits.memory:
            self._give_up(max(1, int((self._parts()[:, run_lists.HEAD] != 0).sum()) // 2), forget=False)
            self.memory.grow("marks", int(self.memory["control"][at.NODES]), keep=False)
            self.memory.call(runs.compact_runs)

    def _oldest(self, count: int, forget: bool) -> Any:
        parts = self._parts()
        wanted = (parts[:, at.LIVE] != 0) & (forget | (parts[:, run_lists.HEAD] != 0))
        age = np.where(wanted, parts[:, at.DUE], at.MOST)
        return np.argsort(age, kind="stable")[: min(count, int(wanted.sum()))]

    def _give_up(self, count: int, *, forget: bool) -> None:
        oldest = self._oldest(count, forget)
        self.given_up += len(oldest)
        self._let_go(oldest.tolist())
        if forget:
            self._forget(oldest)

    def _give_up_runs(self) -> None:
        """Groups that began first, until there are no more runs than there may be."""
        control = self.memory["control"]
        while control[at.USED_CELLS] > self.limits.runs:
            oldest = self._oldest(64, False).tolist()
            if not oldest:
                return
            for partition in oldest:
                self.memory.call(runs.give_up_first, partition)
                self.given_up += 1

    def _let_go(self, partitions: list[int]) -> None:
        parts = self._parts()
        for partition in partitions:
            while parts[partition, run_lists.HEAD]:
                self.memory.call(runs.give_up_first, partition)

    def compact(self) -> None:
        self.memory.grow("marks", int(self.memory["control"][at.NODES]), keep=False)
        self.memory.call(runs.compact_runs)

    def live_events(self) -> Any:
        count = int(self.memory["control"][at.NODES])
        return self.memory["nodes"][: count * run_lists.NODE].reshape(-1, run_lists.NODE)[1:, run_lists.EVENT]

    # ── what is kept of it ──

    _WORDS = (
        at.NODES,
        at.CELLS,
        at.GROUPS,
        at.FREE_CELL,
        at.FREE_GROUP,
        at.USED_CELLS,
        at.LATEST,
        at.UNSKIPPED,
    )

    def dump(self) -> list[Any]:
        memory, control = self.memory, self.memory["control"]
        nodes = int(control[at.NODES])
        words = {
            "parts": self.keys.count * self.stride,
            "nodes": nodes * run_lists.NODE,
            "regs": nodes * self.registers.size,
            "cells": int(control[at.CELLS]) * run_lists.RUN,
            "groups": int(control[at.GROUPS]) * run_lists.GROUP,
        }
        kept = [int(control[name]) for name in self._WORDS]
        return [kept, self.keys.dump(), memory.dump(words), self.given_up, list(self.registers.texts)]

    def load(self, found: list[Any]) -> None:
        """The bytes may come from anyone: links are looked at before a kernel follows them."""
        kept, keys, arrays, self.given_up, texts = found
        memory, control = self.memory, self.memory["control"]
        self.keys.load(keys)
        count = self.keys.count
        self._grow_parts()
        nodes, cells, groups = (int(word) for word in kept[:3])
        if min(nodes, cells, groups) < 1:
            raise ExecutionError("snapshot: expected the counts of nodes, runs and groups, found others")
        sizes = {
            "parts": count * self.stride,
            "nodes": nodes * run_lists.NODE,
            "regs": nodes * self.registers.size,
            "cells": cells * run_lists.RUN,
            "groups": groups * run_lists.GROUP,
        }
        for name, size in sizes.items():
            if size * 8 > self.limits.memory or memory.load(name, arrays[name], size) != size:
                raise ExecutionError(f"snapshot: {name}: expected {size:,} words, found {len(arrays[name]):,} bytes")
        for word, value in zip(self._WORDS, kept, strict=True):
            control[word] = value
        self._check(nodes, cells, groups, count)
        memory.grow("nodes", 2 * nodes * run_lists.NODE)
        memory.grow("regs", (len(memory["nodes"]) // run_lists.NODE) * max(1, self.registers.size))
        self.registers.texts.clear()
        for text in texts:
            self.registers.number(text)
        self._rooms()
        self.keys.renew(self._parts()[:, at.LIVE])

    def _check(self, nodes: int, cells: int, groups: int, partitions: int) -> None:
        """Refuse a snapshot whose numbers would lead kernels outside their arrays or round in circles."""
        memory, control = self.memory, self.memory["control"]
        table = memory["nodes"][: nodes * run_lists.NODE].reshape(-1, run_lists.NODE)
        run = memory["cells"][: cells * run_lists.RUN].reshape(-1, run_lists.RUN)
        group = memory["groups"][: groups * run_lists.GROUP].reshape(-1, run_lists.GROUP)
        parts = memory["parts"][: partitions * self.stride].reshape(-1, self.stride)
        points = len(memory["automaton"])
        within = [
            (table[:, run_lists.PREV], nodes),
            (table[:, run_lists.LABEL], self.elements),
            (run[:, run_lists.NODE_OF], nodes),
            (run[:, run_lists.NEXT], cells),
            (run[:, run_lists.POINT] * run_lists.POINT_SIZE, points),
            (run[:, run_lists.WAITS], 4),
            (group[:, run_lists.GROUP_RUNS], cells),
            (group[:, run_lists.GROUP_NEXT], groups),
            (parts[:, run_lists.HEAD : run_lists.TAIL + 1], groups),
            (control[[at.FREE_CELL]], cells),
            (control[[at.FREE_GROUP]], groups),
        ]
        bad = any(((links < 0) | (links >= most)).any() for links, most in within)
        if bad or (table[1:, run_lists.PREV] >= np.arange(1, nodes)).any() or _circular(run[:, run_lists.NEXT]):
            raise ExecutionError("snapshot: expected links to runs of its own, found others")
        if _circular(group[:, run_lists.GROUP_NEXT]):
            raise ExecutionError("snapshot: expected lists of groups, found a circle")
        lists = np.concatenate([run[:, run_lists.NEXT], group[:, run_lists.GROUP_RUNS], control[[at.FREE_CELL]]])
        chains = np.concatenate([group[:, run_lists.GROUP_NEXT], parts[:, run_lists.HEAD], control[[at.FREE_GROUP]]])
        if (np.bincount(lists)[1:] > 1).any() or (np.bincount(chains)[1:] > 1).any():
            raise ExecutionError("snapshot: expected each run and group in one list, found one in several")
        used = 0
        for partition in np.flatnonzero(
            parts[:, run_lists.HEAD] + parts[:, run_lists.TAIL] + parts[:, run_lists.RUNS]
        ).tolist():
            count, last, g = 0, 0, int(parts[partition, run_lists.HEAD])
            while g:
                last, cell = g, int(group[g, run_lists.GROUP_RUNS])
                while cell:
                    count, cell = count + 1, int(run[cell, run_lists.NEXT])
                g = int(group[g, run_lists.GROUP_NEXT])
            used += count
            if count != parts[partition, run_lists.RUNS] or last != parts[partition, run_lists.TAIL]:
                raise ExecutionError("snapshot: expected the runs that a partition has, found other counts")
        if used != control[at.USED_CELLS]:
            raise ExecutionError("snapshot: expected the runs that there are, found another count")


def _circular(after: Any) -> bool:
    """Whether following links from some number never ends at 0."""
    seen, at_end = after.copy(), 0
    steps = max(1, len(after)).bit_length()
    for _ in range(steps):
        seen = seen[seen]
    return bool((seen != at_end).any())


def table_of(automaton: Automaton) -> Any:
    """The points as words: their heads, then their ways."""
    words = [0] * (len(automaton.points) * run_lists.POINT_SIZE)
    for point in automaton.points:
        head = point.number * run_lists.POINT_SIZE
        words[head + run_lists.WAYS_AT], words[head + run_lists.WAY_COUNT] = len(words), len(point.ways)
        words[head + run_lists.ENDS], words[head + run_lists.FITTING] = int(point.ends), signed(point.fitting)
        late = sum(1 << number for number, way in enumerate(point.ways) if point.ends and way.after_end)
        words[head + run_lists.AFTER] = late
        words[head + run_lists.BEFORE] = ((1 << len(point.ways)) - 1) & ~late
        for way in point.ways:
            words += [way.element, _SELECTIONS[way.selection], signed(way.forbidden), way.target]
    return np.array(words, np.int64)
