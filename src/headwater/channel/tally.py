"""What became of the events of one source in one channel, over all subscriptions together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headwater.channel.counters import Counts, Latency
from headwater.channel.gate import Gate
from headwater.ir.interp import Fault

Loss = Literal["dropped", "expired", "skipped"]

_leaf = Gate()  # taken last of all, for the moment of an addition


class Losses:
    """Events that passed and were not delivered. Whole sources may share one: those that are no more."""

    __slots__ = ("dropped", "expired", "skipped")

    def __init__(self) -> None:
        self.dropped = self.expired = self.skipped = 0

    def add(self, what: Loss, events: int) -> None:
        with _leaf:
            setattr(self, what, getattr(self, what) + events)

    def absorb(self, other: Losses) -> None:
        with _leaf:
            self.dropped += other.dropped
            self.expired += other.expired
            self.skipped += other.skipped


@dataclass
class Tally:
    """Sums; each subscription that an event concerned counts."""

    published: int = 0
    evaluated: int = 0
    passed: int = 0
    undecided: int = 0
    faults: dict[Fault, int] = field(default_factory=dict)
    losses: Losses = field(default_factory=Losses)
    latency: Latency = field(default_factory=Latency)

    def absorb(self, other: Tally) -> None:
        """Add another's."""
        self.published += other.published
        self.evaluated += other.evaluated
        self.passed += other.passed
        self.undecided += other.undecided
        for fault, number in other.faults.items():
            self.faults[fault] = self.faults.get(fault, 0) + number
        self.losses.absorb(other.losses)
        self.latency.merge(other.latency)

    def counts(self, queued: int) -> Counts:
        lost = self.losses
        return Counts(
            evaluated=self.evaluated,
            passed=self.passed,
            rejected=self.evaluated - self.passed - self.undecided,
            undecided=self.undecided,
            faults=dict(self.faults),
            delivered=self.passed - lost.dropped - lost.expired - lost.skipped - queued,
            dropped=lost.dropped,
            expired=lost.expired,
            skipped=lost.skipped,
            queued=queued,
        )
