"""Answers that were had a moment ago: the sources of a name, or that there are none, for as long as the domain lets."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from headwater.services.naming.address import NodeAddress
from headwater.services.naming.registration import Endorsed

MOST_ANSWERS = 10_000  # that are kept; the one that was used longest ago goes first


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """All sources of a name, as its domain says. `until` is by the monotonic clock of who has it; `cached`: it was
    known already, to who says so or to who was asked."""

    name: str
    domain: str
    sources: tuple[Endorsed, ...]
    until: float
    version: int = 0  # of the domain's zone
    cached: bool = False

    @property
    def places(self) -> tuple[NodeAddress, ...]:
        """The nodes that have sources of the name."""
        return tuple(each.address for each in self.sources)

    def __str__(self) -> str:
        where = ", ".join(each.brief for each in self.places) or "nowhere"
        return f"{self.name} of {self.domain}: {where}{' (cached)' if self.cached else ''}"

    __repr__ = __str__


class AnswerCache:
    """Of one node. Thread-safe. `monotonic` and `now` (ns since 1970) are clocks: a wall clock that goes back makes no
    answer live longer, and one that goes forward ends leases."""

    def __init__(self, monotonic: Callable[[], float], now: Callable[[], int], most: int = MOST_ANSWERS) -> None:
        self._monotonic, self._now, self._most = monotonic, now, most
        self._lock = threading.Lock()
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self.hits = self.misses = 0

    def get(self, name: str) -> Answer | None:
        """What is known of a name, without sources whose lease has ended."""
        with self._lock:
            found = self._answers.get(name)
            if found is None or found.until <= self._monotonic():
                self._answers.pop(name, None)
                self.misses += 1
                return None
            self._answers.move_to_end(name)
            self.hits += 1
        good = tuple(each for each in found.sources if each.expires > self._now())
        if found.sources and not good:  # all have ended: it is not known whether there are others
            self.forget(name)
            return None
        return replace(found, sources=good, cached=True)

    def put(self, answer: Answer) -> None:
        """Remember an answer that was verified."""
        if answer.until <= self._monotonic():
            return
        with self._lock:
            self._answers[answer.name] = answer
            self._answers.move_to_end(answer.name)
            while len(self._answers) > self._most:
                self._answers.popitem(last=False)

    def forget(self, name: str) -> None:
        """Something of a name has changed."""
        with self._lock:
            self._answers.pop(name, None)

    def __len__(self) -> int:
        return len(self._answers)


__all__ = ["Answer", "AnswerCache"]
