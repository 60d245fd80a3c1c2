"""What became of the events of one source in one channel, over all subscriptions together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headwater.channel.concurrency.gate import Gate
from headwater.channel.reports.counters import Counts, Latency
from headwater.ir.interp import Fault

Loss = Literal["dropped", "expired", "shed", "skipped"]

_leaf = Gate()  # taken last of all, for the moment of an addition


class Fates:
    """What became of events that passed: how many were lost, and how long it took to deliver the others.

    That is still counted for events that wait when their source, or channel, is no more: `heir` counts the same."""

    __slots__ = ("dropped", "expired", "heir", "latency", "shed", "skipped")

    def __init__(self) -> None:
        self.dropped = self.expired = self.skipped = self.shed = 0
        self.latency = Latency()
        self.heir: Fates | None = None

    def lost(self, what: Loss, events: int) -> None:
        with _leaf:
            each: Fates | None = self
            while each is not None:
                setattr(each, what, getattr(each, what) + events)
                each = each.heir

    def took(self, ns: int) -> None:
        self.latency.add(ns)
        if self.heir is not None:
            self.heir.took(ns)

    def copy(self) -> Fates:
        """As it is now."""
        made = Fates()
        made.absorb(self)
        return made

    def absorb(self, other: Fates) -> None:
        with _leaf:
            self._absorb(other)

    def inherit(self, other: Fates) -> None:
        """Absorb another, and whatever it will count."""
        with _leaf:
            self._absorb(other)
            other.heir = self

    def _absorb(self, other: Fates) -> None:
        self.dropped += other.dropped
        self.expired += other.expired
        self.skipped += other.skipped
        self.shed += other.shed
        self.latency.merge(other.latency)


@dataclass
class Tally:
    """Sums; each subscription that an event concerned counts."""

    published: int = 0
    evaluated: int = 0
    passed: int = 0
    undecided: int = 0
    faults: dict[Fault, int] = field(default_factory=dict)
    fates: Fates = field(default_factory=Fates)

    def absorb(self, other: Tally) -> None:
        """Add another's."""
        self._absorb(other)
        self.fates.absorb(other.fates)

    def inherit(self, other: Tally, fates: Fates) -> None:
        """Add what another has counted, now that it ends, and what will yet become of its events."""
        self._absorb(other)
        self.fates.inherit(fates)

    def _absorb(self, other: Tally) -> None:
        self.published += other.published
        self.evaluated += other.evaluated
        self.passed += other.passed
        self.undecided += other.undecided
        for fault, number in other.faults.items():
            self.faults[fault] = self.faults.get(fault, 0) + number

    def counts(self, queued: int) -> Counts:
        lost = self.fates
        return Counts(
            evaluated=self.evaluated,
            passed=self.passed - lost.shed,
            rejected=self.evaluated - self.passed - self.undecided,
            undecided=self.undecided,
            faults=dict(self.faults),
            delivered=self.passed - lost.shed - lost.dropped - lost.expired - lost.skipped - queued,
            dropped=lost.dropped,
            expired=lost.expired,
            skipped=lost.skipped,
            queued=queued,
            shed=lost.shed,
        )
