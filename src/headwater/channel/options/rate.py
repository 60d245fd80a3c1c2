"""A rate limit, as a value: how many events a second, how many at once, and what becomes of more.

Rate(100, burst=200)                 100 a second, 200 at once after a pause; more is shed, the newest first
Rate(100, reserve={5: 0.5})          half of the burst is kept for events of priority 5 and more
Rate(100, age=10)                    and what is older than ten seconds by the time it could go is shed as well
Rate(100, over="wait")               nothing is shed: more waits for its turn
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, get_args

from headwater.channel.options.settings import Choice, Count, show
from headwater.channel.time.token_bucket import PER_MILLE, Packed
from headwater.errors import ConfigError, ConfigProblem, SubscriptionError

Over = Literal["shed", "wait"]
MICRO = 1_000_000  # rates are kept in whole millionths of an event a second
HIGHEST = 1e9  # events a second
MOST_BURST = 2**31 - 1
MOST_RESERVES = 16
MOST_AGE = 1e9  # seconds


@dataclass(frozen=True, slots=True)
class Rate:
    """At most so many events a second on average, and after a pause up to `burst` at once (by default what a second
    gives, at least one): a token bucket, which is full at first.

    What is beyond it is shed, which is counted (`over="shed"`, the default), or waits for its turn (`over="wait"`). A
    durable subscription loses nothing by a rate: its events always wait.

    `reserve` are shares of the burst that only events of a priority may use: with `{1: 0.25, 9: 0.1}` those below 1
    must leave a quarter of it, those from 1 to 8 a tenth, and those from 9 on nothing. `age` are seconds: an event that
    is older by the time it could go is shed."""

    per_second: float
    burst: int = 0
    reserve: Mapping[int, float] = field(default_factory=dict)
    age: float | None = None
    over: Over | None = None

    def __post_init__(self) -> None:
        """Check everything at once, so that one error names all that is wrong."""
        if isinstance(self.age, timedelta):
            object.__setattr__(self, "age", self.age.total_seconds())
        problems = [*self._number_problems(), *self._reserve_problems()]
        if self.over is not None:
            problems.append(Choice(*get_args(Over)).problem("Rate: over", self.over))
        if self.over == "wait" and (self.age is not None or self.reserve):
            what = "age" if self.age is not None else "reserve"
            hint = "what waits goes by lifetime= and priority= of the subscription, or by the order of its source"
            problems.append(ConfigProblem(f"Rate: {what}", 'none with over="wait"', show(getattr(self, what)), hint))
        if found := [problem for problem in problems if problem is not None]:
            raise ConfigError(found)
        if not self.burst:
            object.__setattr__(self, "burst", min(MOST_BURST, max(1, math.ceil(self.per_second))))
        object.__setattr__(self, "reserve", dict(sorted(self.reserve.items())))

    def _number_problems(self) -> list[ConfigProblem | None]:
        found: list[ConfigProblem | None] = []
        if not _is_number(self.per_second) or not 1 / MICRO <= self.per_second <= HIGHEST:
            expected = "a number of events a second from 0.000001 to 1e9"
            hint = 'for "one every ten seconds" write 0.1'
            found.append(ConfigProblem("Rate: per_second", expected, show(self.per_second), hint))
        if self.burst != 0 or isinstance(self.burst, bool):
            found.append(Count(1, MOST_BURST).problem("Rate: burst", self.burst))
        if self.age is not None and not (_is_number(self.age) and 0 < self.age <= MOST_AGE):
            found.append(ConfigProblem("Rate: age", "a number of seconds above 0, or a timedelta", show(self.age)))
        return found

    def _reserve_problems(self) -> list[ConfigProblem | None]:
        place, expected = "Rate: reserve", "shares of the burst by priority, such as {5: 0.5}"
        if not isinstance(self.reserve, Mapping) or len(self.reserve) > MOST_RESERVES:
            most = f"at most {MOST_RESERVES} " if isinstance(self.reserve, Mapping) else ""
            return [ConfigProblem(place, most + expected, show(self.reserve))]
        found: list[ConfigProblem | None] = []
        for priority, share in self.reserve.items():
            if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) >= 2**62:
                found.append(ConfigProblem(place, "a whole number as priority", show(priority)))
            if not _is_number(share) or not 0 < share < 1:
                hint = "what is kept for some must leave something for the others"
                found.append(ConfigProblem(f"{place} {priority}", "a share above 0 and below 1", show(share), hint))
        return found

    @property
    def waits(self) -> bool:
        """Whether what is beyond it waits, and is not shed."""
        return self.over == "wait"

    def packed(self) -> Packed:
        """As whole numbers: millionths of an event a second, burst, reserves in thousandths of it, and the age in
        nanoseconds (0: any)."""
        reserve = [(priority, round(share * PER_MILLE)) for priority, share in self.reserve.items()]
        age = 0 if self.age is None else max(1, round(self.age * 1e9))
        return max(1, round(self.per_second * MICRO)), self.burst, reserve, age

    def __str__(self) -> str:
        more = [f"keeping {share:.0%} for priority {priority}" for priority, share in self.reserve.items()]
        more += [] if self.age is None else [f"none older than {self.age:g} s"]
        more += ["more waits"] if self.waits else []
        return ", ".join([f"{self.per_second:g} events/s, {self.burst:,} at once", *more])


def check_rate(what: str, given: Any) -> Rate | None:
    """A rate, or a number of events a second."""
    if given is None or isinstance(given, Rate):
        return given
    if _is_number(given):
        return Rate(given)
    raise SubscriptionError(f"{what}: expected a Rate, or a number of events a second, found {show(given)}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


__all__ = ["Over", "Rate", "check_rate"]
