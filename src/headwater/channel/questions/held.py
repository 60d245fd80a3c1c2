"""Answers that wait until it is known here that their askers want them: bounded, and nobody takes all the room."""

from __future__ import annotations

from collections import deque
from typing import Any


class HeldAnswers:
    """By asker, in order. Where there are too many, one of whoever has most waiting is given up, and of several who
    have as many, of who has waited longest: a flood of questions whose answers nobody takes costs their asker its own.
    One thread at a time."""

    def __init__(self, most: int) -> None:
        self._most, self._count = most, 0
        self._by_asker: dict[Any, deque[tuple[float, Any]]] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, until: float, made: Any) -> bool:
        """One that may wait until then; False if one had to go for it."""
        self._by_asker.setdefault(made.to, deque()).append((until, made))
        self._count += 1
        return not self._make_room()

    def _make_room(self) -> int:
        """How many had to go."""
        gone = 0
        while self._count > self._most:
            asker, line = max(self._by_asker.items(), key=lambda item: len(item[1]))
            line.popleft()
            gone, self._count = gone + 1, self._count - 1
            if not line:
                del self._by_asker[asker]
        return gone

    def take(self) -> list[deque[tuple[float, Any]]]:
        """All of them, a line for each asker: they are to be tried."""
        found, self._by_asker, self._count = list(self._by_asker.values()), {}, 0
        return found

    def give_back(self, lines: list[deque[tuple[float, Any]]]) -> int:
        """What is left of those that were taken goes before what has come meanwhile; how many had to go for others."""
        since, self._by_asker = self._by_asker, {line[0][1].to: line for line in lines}
        for asker, line in since.items():
            self._by_asker.setdefault(asker, deque()).extend(line)
        self._count = sum(map(len, self._by_asker.values()))
        return self._make_room()


__all__ = ["HeldAnswers"]
