"""Which level of a service to have, as the link is: worse at once when it cannot keep up, better again when it has been
well for long.

What is measured: how old what is known is, beyond what is usual on this link (so that clocks need not agree), what was
lost, and how many bytes come in a second. Hysteresis: it gets better only after a time in which all was well, and each
time that was too soon the time is twice as long, up to a limit; once it has stayed well for so long, it is as it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from headwater.errors import ConfigError, ConfigProblem, ObjectError

CALM_MOST = 32  # times `calm`: longer than that nobody waits to try a better level again
USUAL_SECONDS = 600.0  # in which the least delay is the usual one


@dataclass(frozen=True, init=False)
class Adaptive:
    """Levels between which a node may choose, the best first: all of the service's, or some of them.

    `delay`: seconds by which what is known may be older than usual; `bandwidth`: bytes that may come over the link in a
    second, None for any number; `calm`: seconds in which all must be well before it gets better."""

    levels: tuple[str, ...]
    delay: float
    bandwidth: float | None
    calm: float

    def __init__(self, *levels: str, delay: float = 0.5, bandwidth: float | None = None, calm: float = 10.0) -> None:
        numbers = ("delay", delay), ("calm", calm), ("bandwidth", 1.0 if bandwidth is None else bandwidth)
        problems = [
            ConfigProblem(f"Adaptive: {name}", "a number above 0", repr(value))
            for name, value in numbers
            if not isinstance(value, int | float) or not value > 0
        ]
        if not all(isinstance(each, str) for each in levels):
            problems.append(ConfigProblem("Adaptive: levels", "names of levels", repr(levels)))
        if problems:
            raise ConfigError(problems)
        for name, value in (("levels", levels), ("delay", delay), ("bandwidth", bandwidth), ("calm", calm)):
            object.__setattr__(self, name, value)

    def among(self, known: Iterable[str]) -> Adaptive:
        """The same with these levels of a service, the best first; ObjectError if it names others, or another order."""
        there = list(known)
        wanted = self.levels or tuple(there)
        order = [there.index(each) if each in there else -1 for each in wanted]
        if -1 in order or order != sorted(set(order)):
            raise ObjectError(
                f"Adaptive: expected some of {', '.join(there)}, in this order, found {', '.join(wanted)}"
            )
        return Adaptive(*wanted, delay=self.delay, bandwidth=self.bandwidth, calm=self.calm)


class Measured(NamedTuple):
    """The link, at a time in seconds: how old what is known is by the two clocks, what was lost so far, and the bytes
    that have come."""

    now: float
    lag: float
    lost: int
    bytes: int


class Move(NamedTuple):
    """Another level, and why."""

    level: str
    why: str


class Controller:
    """Of one service that a node has. Feed it what is measured, a few times a second."""

    def __init__(self, adaptive: Adaptive) -> None:
        self._levels, self._adaptive = adaptive.levels, adaptive
        self._at = 0
        self._lags: deque[tuple[float, float]] = deque()
        self._before: Measured | None = None
        self._well = 0.0  # since when
        self._raised: float | None = None  # when it has got better, if it has and that was well so far
        self._patience = adaptive.calm
        # Until when, and up to which lag, what waited on the way when it got worse may still be coming.
        self._drains, self._draining = float("-inf"), 0.0

    @property
    def level(self) -> str:
        """The one to have now."""
        return self._levels[self._at]

    def measured(self, found: Measured) -> Move | None:
        """Another level to have, if there is to be one."""
        before, self._before = self._before, found
        usual = self._usual(found)
        if before is None or found.now <= before.now:
            self._well = found.now
            return None
        if wrong := self._wrong(before, found, usual):
            self._well = found.now
            return self._worse(found, wrong)
        if self._raised is not None and found.now - self._raised >= 2 * self._patience:
            self._patience = self._adaptive.calm  # where it is, it stays well
        if self._at and found.now - self._well >= self._patience:
            self._at -= 1
            self._well = self._raised = found.now
            return Move(self.level, f"all was well for {self._patience:g} s")
        return None

    def _wrong(self, before: Measured, found: Measured, usual: float) -> str:
        """What the link cannot do."""
        adaptive, seconds = self._adaptive, found.now - before.now
        if found.lost > before.lost:
            return f"{found.lost - before.lost:,} events were lost"
        if found.lag - usual > adaptive.delay and not (found.now < self._drains and found.lag <= self._draining):
            return f"what is known is {found.lag - usual:.1f} s older than usual"
        if adaptive.bandwidth is not None and found.bytes - before.bytes > adaptive.bandwidth * seconds:
            return f"{(found.bytes - before.bytes) / seconds:,.0f} bytes came in a second"
        return ""

    def _worse(self, found: Measured, why: str) -> Move | None:
        if self._raised is not None and found.now - self._raised < self._patience:  # what was tried was too much
            self._patience = min(2 * self._patience, CALM_MOST * self._adaptive.calm)
        self._raised = None
        if self._at == len(self._levels) - 1:
            return None
        self._at += 1
        self._drains, self._draining = found.now + self._adaptive.calm, found.lag + self._adaptive.delay
        return Move(self.level, why)

    def _usual(self, found: Measured) -> float:
        """The least of a while, found included."""
        lags = self._lags
        while lags and lags[-1][1] >= found.lag:
            lags.pop()
        lags.append((found.now, found.lag))
        while lags[0][0] < found.now - USUAL_SECONDS:
            lags.popleft()
        return lags[0][1]


__all__ = ["Adaptive", "Controller", "Measured", "Move"]
