"""Runs that are held together by a value, which some elements have and others between them have not (`links.py`).

`a: seen(room = 42); b: alarm; c: seen{who = a.who}`: what `c` asks is whose runs there are, not of each run. A row
costs what a shared one does, and once what has to be caught up with: rows of elements without the value, that came
since a row of this value was last there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headwater.errors import ExecutionError
from headwater.late import np
from headwater.native.subset import Mode
from headwater.patterns import model
from headwater.patterns.automaton import Automaton
from headwater.patterns.engine import dag, links, partitions
from headwater.patterns.engine import layout as at
from headwater.patterns.engine.found import Found
from headwater.patterns.engine.index import Column, Index, compared, equalities
from headwater.patterns.engine.partitioned import ROWS_AT_ONCE, signed
from headwater.patterns.engine.shared import SharedEngine, is_shareable
from headwater.types.model import BYTES, TEXT, promote

SMALLEST_LOG = 1 << 10  # rows


@dataclass
class Links:
    """`groups` are elements that have the values in the same fields, with the columns of these; `index` has them."""

    index: Index = field(default_factory=Index)
    groups: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)

    @property
    def elements(self) -> int:
        return sum(elements for elements, _ in self.groups)


def links_of(pattern: model.Pattern, automaton: Automaton) -> Links | None:
    """What holds runs together, None where conditions are others, or more."""
    window = pattern.window
    if pattern.key is not None or pattern.absent or pattern.begin != "each" or automaton.strict:
        return None
    if window is None or window.microseconds is None or not is_shareable(pattern, automaton):
        return None
    members = _members(pattern, automaton)
    if not members:
        return None
    slots = list(next(iter(members.values())))
    types = [{columns[slot].type for columns in members.values() if slot in columns} for slot in slots]
    if any(set(columns) != set(slots) for columns in members.values()) or any(len(kinds) > 1 for kinds in types):
        return None
    found, grouped = Links(), dict[tuple[int, ...], list[int]]()
    for element, columns in members.items():
        places = tuple(found.index.column(columns[slot]) for slot in slots)
        grouped.setdefault(places, []).append(element)
    found.groups = [(sum(1 << element for element in some), places) for places, some in grouped.items()]
    channels = [{name for e in some for name in pattern.elements[e].channels} for some in grouped.values()]
    if sum(map(len, channels)) > len(set().union(*channels)):
        return None  # an event could have two values
    assert automaton.states is not None
    last = {entry.element for state in automaton.states for entry in state.entries if entry.ends}
    begins_and_ends = automaton.first | sum(1 << element for element in last)
    return found if begins_and_ends & ~found.elements == 0 else None  # a row of any other finds no run at once


def _members(pattern: model.Pattern, automaton: Automaton) -> dict[int, dict[Any, Column]] | None:
    """The elements that have the values, each with its columns by what they are equal to: a field of the one element
    with which everything begins, or a variable."""
    members: dict[int, dict[Any, Column]] = {}
    pairs = equalities(pattern)
    if pairs is None:
        return None
    if pairs:
        begins = [element for element in range(len(pattern.elements)) if automaton.first >> element & 1]
        if len(begins) != 1 or pattern.elements[begins[0]].multiple:
            return None
    for second, first, before, now in pairs:
        if first != begins[0] or now.type != before.type or members.get(second, {}).get(before, now) != now:
            return None
        members.setdefault(first, {})[before] = before
        members.setdefault(second, {})[before] = now
    for variable in compared(pattern):
        for element, name in variable.fields:
            type = promote(pattern.elements[element].type.record.by_name[name].type)
            if str(type) == "u64":
                return None
            members.setdefault(element, {})[variable.name] = Column(name, type)
    return members


class LinkedEngine(SharedEngine):
    """Partitions are by the values that hold runs together, not by a key: a match's key is empty."""

    name = "linked"
    taking = links.one_linked
    modules = partitions.__name__, dag.__name__, links.__name__

    def __init__(self, pattern: model.Pattern, automaton: Automaton, mode: Mode = "compiled") -> None:
        found = links_of(pattern, automaton)
        assert found is not None
        self.links = found
        super().__init__(pattern, automaton, mode)
        words = len(found.groups[0][1])
        memory, control = self.memory, self.memory["control"]
        self.keys.words = words
        control[at.KEY_WORDS], control[at.UNLINKED] = words, signed(automaton.reading & ~found.elements)
        memory["keys"] = np.zeros(int(control[at.PARTITION_ROOM]) * words, np.int64)
        memory["wanted"] = np.zeros(ROWS_AT_ONCE * words, np.int64)
        table = [len(found.groups)]
        for elements, places in found.groups:
            table += [signed(elements), *places]
        memory["links"] = np.array(table, np.int64)
        memory["log"] = np.zeros(SMALLEST_LOG * links.LOG, np.int64)
        self.most_log = max(SMALLEST_LOG, pattern.limits.memory // (8 * links.LOG) // 4)
        self._rooms()

    def _index(self, pattern: model.Pattern, automaton: Automaton) -> Index:
        return self.links.index

    def _rooms(self) -> None:
        super()._rooms()
        if "log" in self.memory.arrays:
            self.memory["control"][at.LOG_ROOM] = len(self.memory["log"]) // links.LOG

    # ── rows ──

    def feed(self, rows: Any, keys: Any, values: Any = None) -> list[Found]:
        """Rows in order, with their values; keys are not looked at."""
        found: list[Found] = []
        memory, control = self.memory, self._views[2]
        memory.hurry(len(rows))
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = rows[start : start + ROWS_AT_ONCE]
            memory["rows"][: part.size] = part.reshape(-1)
            memory["values"][: len(part) * values.shape[1]] = values[start : start + len(part)].reshape(-1)
            done = 0
            while done < len(part):
                done = memory.call(links.step_linked, done, len(part))
                found += self._taken_out()
                if done < len(part):
                    if control[at.UNPLACED]:
                        self._more_partitions()
                    else:
                        self._room(found)
        return found

    def _room(self, found: list[Found]) -> None:
        control = self._views[2]
        if control[at.LOG_END] - control[at.LOG_FIRST] >= control[at.LOG_ROOM]:
            self._shorten()
            kept = control[at.LOG_END] - control[at.LOG_FIRST]
            if 2 * kept > control[at.LOG_ROOM]:
                if 2 * control[at.LOG_ROOM] <= self.most_log:
                    self.memory.grow("log", 2 * len(self.memory["log"]))
                else:
                    self._shorten(kept // 2)
                    self.given_up += kept // 2
            self._rooms()
        else:
            super()._room(found)

    def _shorten(self, least: int = 0) -> None:
        """Let go of the log's rows that are older than any run, `least` of them at least: no run that is open began
        before them."""
        memory, control = self.memory, self._views[2]
        log = memory["log"].reshape(-1, links.LOG)
        count = control[at.LOG_END] - control[at.LOG_FIRST]
        since = max(at.LEAST, control[at.LATEST] - control[at.WINDOW])
        young = log[:count, links.LOG_TIME] >= since
        gone = max(least, int(young.argmax()) if young.any() else count)
        if gone:
            log[: count - gone] = log[gone:count].copy()
            control[at.LOG_FIRST] += gone

    def live_events(self) -> Any:
        """Those of nodes, and of the log."""
        self._shorten()
        control = self._views[2]
        count = control[at.LOG_END] - control[at.LOG_FIRST]
        return np.concatenate([super().live_events(), self._log(count)[:, links.LOG_EVENT]])

    def _log(self, count: int) -> Any:
        return self.memory["log"][: count * links.LOG].reshape(-1, links.LOG)

    def trim(self, values: Any = None) -> None:
        """Let go of texts that are the value of no partition, nor of a row that waits."""
        index = self.registers
        texts = [
            k for k, place in enumerate(self.links.groups[0][1]) if index.columns[place // 2].type in (TEXT, BYTES)
        ]
        live = self._parts()[:, at.LIVE].copy()
        words = self.memory["keys"][: self.keys.count * self.keys.words].reshape(-1, self.keys.words)
        words[np.flatnonzero(live == 0)] = 0
        index.renumber(words, texts, values or ())
        self.keys.renew(live)

    # ── what is kept of it ──

    def dump(self) -> list[Any]:
        control = self._views[2]
        count = control[at.LOG_END] - control[at.LOG_FIRST]
        log = self._log(count).tobytes()
        return [super().dump(), control[at.LOG_FIRST], control[at.LOG_END], log]

    def load(self, found: list[Any]) -> None:
        """The bytes may come from anyone: what is in the log cannot lead kernels outside their arrays."""
        shared, first, end, log = found
        super().load(shared)
        control = self._views[2]
        if not (
            0 <= first <= end and self.memory.load("log", log, self.most_log * links.LOG) == (end - first) * links.LOG
        ):
            raise ExecutionError(f"snapshot: expected {end - first} rows of a log, found {len(log):,} bytes")
        control[at.LOG_FIRST], control[at.LOG_END] = first, end
        self._rooms()


__all__ = ["LinkedEngine", "Links", "links_of"]
