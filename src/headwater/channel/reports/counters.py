"""What is counted: events by what became of them, and how long they took.

`Latency` is a distribution in fixed memory. Durations go into buckets that grow with them: 16 for each power of two of
nanoseconds, so that what is read back is right within a sixteenth, from nanoseconds to hours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from headwater.ir.interp import Fault

FAULTS: tuple[Fault, ...] = tuple(fault for fault in Fault if fault)

_LAST = 655  # the bucket that ends at 2**44 ns, almost five hours; what takes longer is counted there
BUCKETS = _LAST + 1


# ── latency ──


def bucket_of(ns: int) -> int:
    """The bucket of a duration. Where every call counts, write it in place:

    `buckets[ns if ns < 32 else ((s := ns.bit_length() - 5) << 4) + (ns >> s)] += 1`, for 0 <= ns < 2**44."""
    if ns < 32:
        return ns if ns > 0 else 0
    shift = ns.bit_length() - 5
    at = (shift << 4) + (ns >> shift)
    return at if at < _LAST else _LAST


def bucket_range(at: int) -> tuple[int, int]:
    """The shortest and the longest duration in a bucket, in nanoseconds."""
    if at < 32:
        return at, at
    shift = (at >> 4) - 1
    low = (at - (shift << 4)) << shift
    return low, low + (1 << shift) - 1


class Latency:
    """A distribution of durations in nanoseconds; one thread at a time adds to it. About 5 kB, once it is used."""

    __slots__ = ("_buckets",)

    def __init__(self, buckets: list[int] | None = None) -> None:
        if buckets is not None and len(buckets) != BUCKETS:
            raise ValueError(f"expected {BUCKETS} buckets, found {len(buckets)}")
        self._buckets = buckets

    @property
    def buckets(self) -> list[int]:
        """The counts themselves, always the same list: for a loop that adds to it in place (see `bucket_of`)."""
        if self._buckets is None:
            self._buckets = [0] * BUCKETS
        return self._buckets

    def add(self, ns: int) -> None:
        """Count one duration; below 0, from a clock that was set back, is 0."""
        if ns < 32:  # `bucket_of`, in place: this is called for each delivery
            at = ns if ns > 0 else 0
        else:
            shift = ns.bit_length() - 5
            at = (shift << 4) + (ns >> shift)
            if at > _LAST:
                at = _LAST
        buckets = self._buckets
        if buckets is None:
            buckets = self.buckets
        buckets[at] += 1

    def merge(self, other: Latency) -> None:
        """Count all that the other has counted."""
        if other._buckets is not None:
            self.buckets[:] = map(int.__add__, self.buckets, other._buckets)

    def copy(self) -> Latency:
        """The same figures, which do not change any more."""
        return Latency(None if self._buckets is None else self._buckets.copy())

    def __add__(self, other: Latency) -> Latency:
        done = self.copy()
        done.merge(other)
        return done

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Latency) and list(self._counted()) == list(other._counted())

    __hash__ = None  # type: ignore[assignment]

    # ── reading it ──

    def _counted(self) -> Iterator[tuple[int, int]]:
        """The buckets that something is in, and how much."""
        return ((at, n) for at, n in enumerate(self._buckets or ()) if n)

    @property
    def count(self) -> int:
        """How many events were timed."""
        return sum(self._buckets or ())

    @property
    def mean(self) -> float | None:
        """Within a sixteenth; None where nothing was counted, as below."""
        count = self.count
        total = sum(n * (sum(bucket_range(at)) / 2) for at, n in self._counted())
        return total / count if count else None

    @property
    def min(self) -> int | None:
        """Never more than the shortest."""
        return next((bucket_range(at)[0] for at, _ in self._counted()), None)

    @property
    def max(self) -> int | None:
        """Never less than the longest (below 2**44 ns)."""
        return max((bucket_range(at)[1] for at, _ in self._counted()), default=None)

    def quantile(self, q: float) -> float | None:
        """The duration that the share `q` of all did not exceed, within a sixteenth."""
        if not 0 <= q <= 1:
            raise ValueError(f"quantile: expected a share from 0 to 1, found {q!r}")
        rank = max(1, math.ceil(q * self.count))
        seen = 0
        for at, n in self._counted():
            seen += n
            if seen >= rank:
                return sum(bucket_range(at)) / 2
        return None

    def __str__(self) -> str:
        if not self.count:
            return "none measured"
        shares = ", ".join(f"p{q * 100:g} {duration(self.quantile(q))}" for q in (0.5, 0.9, 0.99))
        return f"{shares}, max {duration(self.max)}, n={self.count:,}"

    def __repr__(self) -> str:
        return f"<Latency {self}>"

    def to_dict(self) -> dict[str, Any]:
        """For programs; durations in nanoseconds."""
        named = {f"p{q * 100:g}": self.quantile(q) for q in (0.5, 0.9, 0.99, 0.999)}
        return {"count": self.count, "mean": self.mean, "min": self.min, "max": self.max, **named}


# Each unit with its size, and where it ends: before it would be rounded to one of the next.
_UNITS = ((1.0, "ns", 999.5), (1e3, "µs", 999.5e3), (1e6, "ms", 999.5e6), (1e9, "s", 59.95e9),
          (60e9, "min", 59.95 * 60e9), (3600e9, "h", math.inf))  # fmt: skip


def duration(ns: float | None) -> str:
    """A duration for people: 850 ns, 1.2 µs, 15 ms, 2.5 s, 3.0 min."""
    if ns is None:
        return "-"
    size, unit, _ = next(row for row in _UNITS if ns < row[2])
    value = ns / size
    return f"{value:,.0f} {unit}" if unit == "ns" or value >= 99.95 else f"{value:.1f} {unit}"


# ── counts ──


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Events by what became of them. `evaluated == passed + rejected + undecided + shed`, always.

    Of those that passed, some are `delivered`, some wait (`queued`), and the others were `dropped` by a full queue,
    `expired` at the end of their lifetime, or `skipped` by a constraint of the handler. `failed` are those delivered
    whose handler raised; `late` those that came when later ones had been delivered, where the order is that of time.
    `shed` are those that were wanted and beyond the subscription's rate, so that they did not even come to its queue.
    `faults` counts events by each kind of fault.
    """

    evaluated: int = 0
    passed: int = 0
    rejected: int = 0
    undecided: int = 0
    faults: Mapping[Fault, int] = field(default_factory=dict)
    delivered: int = 0
    dropped: int = 0
    expired: int = 0
    skipped: int = 0
    failed: int = 0
    late: int = 0
    queued: int = 0
    shed: int = 0

    def __post_init__(self) -> None:
        if self.evaluated != self.passed + self.rejected + self.undecided + self.shed:
            raise ValueError(
                f"counts: expected passed + rejected + undecided + shed = {self.evaluated:,} evaluated, "
                f"found {self.passed:,} + {self.rejected:,} + {self.undecided:,} + {self.shed:,}"
            )

    @property
    def faulty(self) -> int:
        """All faults together."""
        return sum(self.faults.values())

    def __add__(self, other: Counts) -> Counts:
        if not isinstance(other, Counts):
            return NotImplemented
        faults = {fault: n for fault in FAULTS if (n := self.faults.get(fault, 0) + other.faults.get(fault, 0))}
        numbers = {name: getattr(self, name) + getattr(other, name) for name in _NUMBERS}
        return Counts(faults=faults, **numbers)

    def __str__(self) -> str:
        """On one line, without what is zero."""
        parts = [f"{self.evaluated:,} evaluated", f"{self.passed:,} passed"]
        parts += [f"{n:,} {name}" for name in _NUMBERS[2:] if (n := getattr(self, name))]
        parts += [f"{n:,} {fault_name(fault)} faults" for fault, n in self.faults.items() if n]
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        numbers: dict[str, Any] = {name: getattr(self, name) for name in _NUMBERS}
        return numbers | {"faults": {fault_name(fault): n for fault, n in self.faults.items() if n}}


_NUMBERS = tuple(f.name for f in fields(Counts) if f.name != "faults")


def fault_name(fault: Fault) -> str:
    """As in the semantics: overflow, division, index, fuel, malformed."""
    return str(fault.name).lower()


__all__ = ["BUCKETS", "FAULTS", "Counts", "Latency", "bucket_of", "bucket_range", "duration", "fault_name"]
