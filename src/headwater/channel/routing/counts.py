"""What sources count of each interest, and reading it without stopping more than one source, for a moment.

There is one block of counts for each flow (one source's events in one channel) and entry (a distinct interest there):
how many events passed, how many were undecided, and faults. A flow changes its blocks under its source's lock; so
whoever holds that lock for the moment of a copy has numbers that belong to one point of the source's sequence. What is
the same for all entries of a flow, the events that came by, is counted once, and what follows is not counted at all:
an entry that every event passes has no block, and what was rejected is what is left.

Judged     the numbers of an entry, over all sources that are asked about
Reading    what a flow had counted at one point
Readings   the readings that one report needs, each taken once
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from headwater.channel.reports.tally import Tally
from headwater.ir.interp import Fault
from headwater.match.counters import Ledger

Entry = Any  # a distinct interest on a channel; only its identity matters here
_NO_FAULTS: Mapping[Fault, int] = MappingProxyType({})


class Source(Protocol):
    """Publishes: what it counts does not change while its lock is held."""

    flows: dict[Any, Any]

    @property
    def lock(self) -> Any: ...
    @property
    def seq(self) -> int: ...


class Flow(Protocol):
    """One source's events in one channel."""

    @property
    def source(self) -> Any: ...

    def reading(self, of: Collection[Entry] | None, *, lasting: bool) -> Reading: ...


class Lineup(Protocol):
    """Flows that consult the same entries."""

    @property
    def flows(self) -> Sequence[Flow]: ...


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of the events that an entry was asked about."""

    evaluated: int = 0
    passed: int = 0
    undecided: int = 0
    faults: Mapping[Fault, int] = field(default_factory=lambda: _NO_FAULTS)

    def __add__(self, other: Judged) -> Judged:
        return self._with(other, 1)

    def __sub__(self, other: Judged) -> Judged:
        return self._with(other, -1)

    def _with(self, other: Judged, sign: int) -> Judged:
        faults = self.faults
        if other.faults:
            kinds = dict.fromkeys((*self.faults, *other.faults))
            sums = {fault: self.faults.get(fault, 0) + sign * other.faults.get(fault, 0) for fault in kinds}
            faults = {fault: n for fault, n in sums.items() if n}
        return Judged(
            self.evaluated + sign * other.evaluated,
            self.passed + sign * other.passed,
            self.undecided + sign * other.undecided,
            faults,
        )


@dataclass(slots=True)
class Reading:
    """What flows had counted, each at one point of its source's sequence."""

    seen: int  # events that came by
    direct: int  # those of them that took the short way to a function
    passed: dict[Entry, int]  # by entry; of one that every event passes, how many more than that
    asked: dict[Entry, int]  # by entry: how many more were evaluated for it than came by
    unclear: dict[Entry, list[int]]  # of entries that run alone: undecided, then faults by kind
    ledgers: list[Ledger]  # of entries that are matched
    tally: Tally | None = None  # over all entries

    def add(self, other: Reading) -> None:
        """Another flow's."""
        self.seen += other.seen
        self.direct += other.direct
        for mine, theirs in (self.passed, other.passed), (self.asked, other.asked):
            for entry, n in theirs.items():
                mine[entry] = mine.get(entry, 0) + n
        for entry, words in other.unclear.items():
            found = self.unclear.get(entry)
            self.unclear[entry] = words if found is None else [a + b for a, b in zip(found, words, strict=True)]
        self.ledgers += other.ledgers


class Readings:
    """Takes the lock of one source after the other, for a copy of what it has counted, when that is first asked for.

    `of`: only blocks of these entries are wanted, and no tallies. `still`: the sources stand still already."""

    def __init__(self, of: Collection[Entry] | None = None, *, still: bool = False) -> None:
        self._of, self._still = of, still
        self._flows: dict[Flow, Reading] = {}
        self._lineups: dict[Lineup, Reading] = {}
        self.points: dict[Source, int] = {}  # the last event of each source that is counted

    def flow(self, flow: Flow) -> Reading:
        """What one flow had counted; all flows of a source are read at the same point."""
        found = self._flows.get(flow)
        if found is None:
            source = flow.source
            if self._still:
                self._read(source, flow)
            else:
                with source.lock:
                    self._read(source, flow)
            found = self._flows[flow]
        return found

    def _read(self, source: Source, flow: Flow) -> None:
        self.points[source] = source.seq
        for each in (flow, *source.flows.values()):  # it is not among them if its channel was derived, and is closed
            if each not in self._flows:
                self._flows[each] = each.reading(self._of, lasting=not self._still)

    def lineup(self, lineup: Lineup) -> Reading:
        """The same of all flows of a line-up together."""
        found = self._lineups.get(lineup)
        if found is None:
            found = self._lineups[lineup] = Reading(0, 0, {}, {}, {}, [])
            for flow in lineup.flows:
                found.add(self.flow(flow))
        return found
