"""The shared engine: runs that stand in the same state are one, whatever they have taken (`dag.py`).

It is for patterns whose matches are all taken, without conditions between elements but one value that compares with one
of the event just before. A row costs what the automaton has states, an open run nothing, or, where values are compared,
the logarithm of their number; a match costs its events.
"""

from __future__ import annotations

from typing import Any

from headwater.errors import ExecutionError
from headwater.late import np
from headwater.native.subset import Mode
from headwater.patterns import model
from headwater.patterns.automaton import Automaton, State
from headwater.patterns.engine import dag, partitions, trees
from headwater.patterns.engine import layout as at
from headwater.patterns.engine.found import Found
from headwater.patterns.engine.index import Index, index_of
from headwater.patterns.engine.partitioned import ROWS_AT_ONCE, Partitioned, signed

MAX_STATES, MAX_ENTRIES = 256, 1_024  # beyond these, runs are kept apart
MERGED = 2 * 64  # nodes that putting two trees together may make
SMALLEST_NODES, SMALLEST_OUT, LARGEST_OUT = 1 << 12, 1 << 12, 1 << 20
BRIEF_OUT = 1 << 14  # words; writing out so many takes less than changing threads


def can_share(pattern: model.Pattern, automaton: Automaton) -> bool:
    """Whether the shared engine can run a pattern."""
    return is_shareable(pattern, automaton) and index_of(pattern, automaton) is not None


def is_shareable(pattern: model.Pattern, automaton: Automaton) -> bool:
    """Whether runs in one state could be one, but for conditions between elements."""
    if pattern.after.rule != "no skip" or not pattern.reuse:
        return False
    states = automaton.states
    if states is None or len(states) > MAX_STATES:
        return False
    return sum(len(state.entries) for state in states) <= MAX_ENTRIES


class SharedEngine(Partitioned):
    """Rows in order, in; matches, out. `given_up` counts partitions whose runs were dropped for want of room."""

    name = "shared"
    idling, taking = dag.idle, dag.one
    modules: tuple[str, ...] = (partitions.__name__, dag.__name__)
    every = True  # match is taken

    def __init__(self, pattern: model.Pattern, automaton: Automaton, mode: Mode = "compiled") -> None:
        states = automaton.states
        assert states is not None
        super().__init__(pattern, automaton, at.LISTS + len(states), mode)
        control = self.memory["control"]
        index = self._index(pattern, automaton)
        self.registers: Index = index
        self.elements = len(automaton.elements)
        entries = sum(len(state.entries) for state in states)
        need = 2 * entries + (2 * entries + len(states)) * MERGED * (5 if index.columns else 1)
        control[at.COLUMNS] = 2 * len(index.columns)
        control[at.STATES], control[at.NODE_NEED], control[at.FINAL_NEED] = len(states), need, entries + 3
        sizes = {
            "nodes": (SMALLEST_NODES + 2 * need) * trees.NODE,
            "work": trees.EDGES + 2 * (2 * entries + 2 * len(states)) + 2,
            "finals": (SMALLEST_OUT + entries + 3) * dag.FINAL,
            "values": ROWS_AT_ONCE * 2 * len(index.columns) + 1,
            "stack": SMALLEST_OUT,
            "path": SMALLEST_OUT,
            "out": SMALLEST_OUT,
            "matches": SMALLEST_OUT * dag.MATCH,
        }
        for name, size in sizes.items():
            self.memory[name] = np.zeros(int(size), np.int64)
        self.memory["automaton"] = table_of(states, index)
        self._rooms()

    def _index(self, pattern: model.Pattern, automaton: Automaton) -> Index:
        """What is remembered of rows."""
        index = index_of(pattern, automaton)
        assert index is not None
        return index

    def _rooms(self) -> None:
        memory, control = self.memory, self.memory["control"]
        control[at.NODE_ROOM] = len(memory["nodes"]) // trees.NODE
        control[at.FINAL_ROOM] = len(memory["finals"]) // dag.FINAL
        control[at.STACK_ROOM], control[at.PATH_ROOM] = len(memory["stack"]), len(memory["path"])
        control[at.OUT_ROOM], control[at.MATCH_ROOM] = len(memory["out"]), len(memory["matches"]) // dag.MATCH

    def _give_up(self, count: int, *, forget: bool) -> None:
        """The runs of those whose newest node is oldest."""
        parts = self._parts()
        newest = np.maximum(parts[:, at.LISTS :].max(axis=1), parts[:, at.TRAIL])
        wanted = (parts[:, at.LIVE] != 0) & (forget | (newest > 0))
        newest = np.where(wanted, newest, at.MOST)
        oldest = np.argsort(newest, kind="stable")[: min(count, int(wanted.sum()))]
        self.given_up += len(oldest)
        if forget:
            self._forget(oldest)
        parts[oldest, at.LISTS :] = 0
        parts[oldest, at.TRAIL] = 0
        parts[oldest, at.DUE] = at.MOST

    @property
    def held_nodes(self) -> int:
        """Those of open runs, and those that no run can use and `compact` has not let go of yet."""
        return self.nodes if self._busy() else 0

    def _busy(self) -> int:
        parts = self._parts()
        return int(((parts[:, at.LISTS :] != 0).any(axis=1) | (parts[:, at.TRAIL] != 0)).sum())

    # ── rows ──

    def _step(self, done: int, count: int) -> int:
        return self.memory.call(dag.step, done, count)

    def _let_go(self, partitions: list[int]) -> None:
        parts = self._parts()
        parts[partitions, at.LISTS :] = 0
        parts[partitions, at.TRAIL] = 0
        parts[partitions, at.DUE] = at.MOST

    def promise(self, time: int) -> list[Found]:
        """No row before this time will come: assert what is absent by then."""
        control = self._views[2]
        if control[at.ABSENT] == 0 or control[at.WINDOW_KIND] != at.BY_TIME:
            return []
        until = max(at.LEAST, time - control[at.WINDOW])
        if control[at.SOONEST] >= until:
            return []
        found: list[Found] = []
        for partition in self._due(until):
            if control[at.FINALS] + control[at.FINAL_NEED] > control[at.FINAL_ROOM]:
                found += self._taken_out()
            self.memory.call(dag.fire, partition, until, time)
        return found + self._taken_out()

    def finish(self) -> list[Found]:
        """Nothing more will come."""
        return self.promise(at.MOST)

    def _taken_out(self) -> list[Found]:
        """Write out what was found, in pieces where there is more than room for it."""
        memory, control = self.memory, self._views[2]
        found: list[Found] = []
        while control[at.FINALS]:
            brief = len(memory["out"]) <= BRIEF_OUT
            why = memory.short(dag.enumerate_matches)() if brief else memory.call(dag.enumerate_matches)
            written = self._matches()
            found += written
            if why == at.DONE:
                control[at.FINALS] = control[at.ENUMERATED] = 0
                break
            if why == at.ROOM_STACK:
                memory.grow("stack", 2 * len(memory["stack"]))
            elif why == at.ROOM_PATH:
                memory.grow("path", 2 * len(memory["path"]))
            elif not written or len(memory["out"]) < LARGEST_OUT:
                memory.grow("out", 2 * len(memory["out"]))
            self._rooms()
        self.given_up += control[at.GIVEN_UP]
        control[at.GIVEN_UP] = 0
        return found

    def _matches(self) -> list[Found]:
        """The matches that were written out."""
        control = self._views[2]
        if not control[at.MATCH_TOP]:
            return []
        matches, events, labels = self._written(dag.MATCH)
        finals, found = memoryview(self.memory["finals"]), []
        by_time, window = control[at.WINDOW_KIND] == at.BY_TIME, control[at.WINDOW]
        for m in range(0, len(matches), dag.MATCH):
            start, length, final, began = matches[m : m + dag.MATCH]
            end = start + length
            _, tree, _, _, partition, time = finals[final * dag.FINAL : (final + 1) * dag.FINAL]
            if tree and by_time:
                time = began + window
            deadline = time if tree else None
            key = self.keys.value(partition)
            found.append(Found(tuple(events[start:end]), tuple(labels[start:end]), time, deadline, key))
        return found

    def _room(self, found: list[Found]) -> None:
        """Room for more nodes: by letting go of those that no run can use, else by growing, else by giving up."""
        memory, control = self.memory, self.memory["control"]
        if control[at.ABSENT] and control[at.WINDOW_KIND] == at.BY_TIME and control[at.LATEST] > at.LEAST:
            found += self.promise(int(control[at.LATEST]))
        before, need = int(control[at.NODE_ROOM]), int(control[at.NODE_NEED])
        memory.grow("marks", before, keep=False)
        left = memory.call(dag.compact, self.keys.count)
        if 2 * left + need <= before:
            return
        if (2 * before * trees.NODE * 8) <= self.limits.memory:
            memory.grow("nodes", 2 * before * trees.NODE)
            self._rooms()
            return
        while left + need > before:
            busy = self._busy()
            if not busy:
                raise ExecutionError(f"expected room for {need:,} nodes, found a limit of {self.limits.memory:,} bytes")
            self._give_up(max(1, busy // 2), forget=False)
            left = memory.call(dag.compact, self.keys.count)

    @property
    def crowded(self) -> bool:
        return self.keys.crowded or self.registers.crowded

    def trim(self, values: Any = None) -> None:
        super().trim()
        nodes = int(self.memory["control"][at.NODES])
        table = self.memory["nodes"][: nodes * trees.NODE].reshape(-1, trees.NODE)
        self.registers.trim(table[:, trees.LABEL], table[:, trees.VALUE], values or ())

    def compact(self) -> None:
        """Let go of all that no run can use any more."""
        self.memory.grow("marks", int(self.memory["control"][at.NODES]), keep=False)
        self.memory.call(dag.compact, self.keys.count)

    def live_events(self) -> Any:
        """The events that runs may still hand over, after `compact`: in any order, some perhaps several times."""
        count = int(self.memory["control"][at.NODES])
        return self.memory["nodes"][: count * trees.NODE].reshape(-1, trees.NODE)[1:, trees.EVENT]

    # ── what is kept of it ──

    def dump(self) -> list[Any]:
        count = self.keys.count
        words = {"parts": count * self.stride, "nodes": int(self.memory["control"][at.NODES]) * trees.NODE}
        kept = [int(self.memory["control"][name]) for name in (at.NODES, at.LATEST)]
        return [kept, self.keys.dump(), self.memory.dump(words), self.given_up, list(self.registers.texts)]

    def load(self, found: list[Any]) -> None:
        """The bytes may come from anyone: links are looked at before a kernel follows them."""
        (nodes, latest), keys, arrays, given_up, texts = found
        self.registers.texts = {text: number for number, text in enumerate(texts)}
        memory, control = self.memory, self.memory["control"]
        self.keys.load(keys)
        count = self.keys.count
        self._grow_parts()
        memory.load("parts", arrays["parts"], count * self.stride)
        most = self.limits.memory // 8
        if memory.load("nodes", arrays["nodes"], most) != nodes * trees.NODE or nodes < 1:
            raise ExecutionError(f"snapshot: expected {nodes} nodes, found {len(arrays['nodes']):,} bytes")
        self._check(nodes, count)
        while len(memory["nodes"]) < (nodes + int(control[at.NODE_NEED])) * trees.NODE:
            memory.grow("nodes", 2 * len(memory["nodes"]))
        control[at.NODES], control[at.LATEST] = nodes, latest
        self.given_up = given_up
        self._rooms()
        self.keys.renew(self._parts()[:, at.LIVE])

    def _check(self, nodes: int, partitions: int) -> None:
        table = self.memory["nodes"][: nodes * trees.NODE].reshape(-1, trees.NODE)
        links = table[:, trees.PREV : trees.RIGHT + 1]
        parts = self.memory["parts"][: partitions * self.stride].reshape(-1, self.stride)
        roots = np.concatenate([parts[:, at.LISTS :].reshape(-1), parts[:, at.TRAIL]])
        own = np.arange(nodes).reshape(-1, 1)
        bad = (links < 0).any() or (links[1:] >= own[1:]).any() or (roots < 0).any() or (roots >= nodes).any()
        bad = bad or (((table[:, trees.LABEL] < 0) | (table[:, trees.LABEL] >= self.elements)).any())
        if bad or ((table[:, trees.RANK] < 0) | (table[:, trees.RANK] > 63)).any():
            raise ExecutionError("snapshot: expected links to nodes of its own, found others")


def table_of(states: tuple[State, ...], index: Index) -> Any:
    """The automaton as words: the heads of states, then what they lead to."""
    words = [0] * (len(states) * dag.STATE)
    for state in states:
        head = state.number * dag.STATE
        words[head + dag.ENTRIES], words[head + dag.ENTRY_COUNT] = len(words), len(state.entries)
        words[head + dag.INDEX] = -1
        for entry in state.entries:
            compares, before, value = index.comparisons.get(entry.element, (0, -1, 0))
            words[head + dag.INDEX] = before
            words += [signed(1 << entry.element), entry.element, entry.target, int(entry.ends), compares, value]
        words[head + dag.KILLERS], words[head + dag.KILLER_COUNT] = len(words), len(state.killers)
        words += map(signed, state.killers)
        words[head + dag.SKIPS] = len(words)
        words += state.skips
    return np.array(words, np.int64)
