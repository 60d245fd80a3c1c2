"""How much has crossed to a pattern from other nodes."""

from __future__ import annotations

from typing import Any

from headwater.patterns.crossing.marks import Mark


class Crossed:
    """Events of other nodes that came, those that were read back when their values were bound (`repeated`: though they
    had come), how many of both were no more than marks, the bytes of all; events that may be missing, since nobody has
    them any more; and what nodes said that did not answer."""

    def __init__(self) -> None:
        self.events = self.read_back = self.repeated = self.bytes = self.rounds = self.lost = self.failures = 0
        self.marks = 0
        self.too_many = False
        self.problems: dict[str, str] = {}

    def came(self, what: Any) -> None:
        self.events += 1
        self.weigh(what)

    def weigh(self, what: Any) -> None:
        if isinstance(what, Mark):
            self.marks += 1
            self.bytes += what.size
        else:
            self.bytes += len(what or b"")


__all__ = ["Crossed"]
