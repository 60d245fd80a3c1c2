"""The shapes of federations as small tables: which sites are alike, and which groups of sites a tree has.

Which subscriptions of a site are there, and which are everywhere, comes again after `period` sites. So there are at
most that many kinds of sites, and one more for the smaller site that is left over (its number is LAST). Groups of a
tree fall into as few kinds in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd, lcm

from headwater_studies.scale.scenario import Scenario

LAST = -1


@dataclass(frozen=True, slots=True)
class World:
    """A federation of so many nodes in one scenario, with sites of `size` nodes and `count` subscriptions each."""

    number: int
    site: int  # the number of its recording
    nodes: int
    scenario: Scenario
    size: int
    count: int
    fanout: int

    @property
    def full(self) -> int:
        """Whole sites."""
        return self.nodes // self.size

    @property
    def part(self) -> int:
        """Nodes of the smaller site; 0 if there is none."""
        return self.nodes % self.size

    @property
    def sites(self) -> int:
        return self.full + (self.part > 0)

    @property
    def period(self) -> int:
        whole = lcm(self.scenario.kept, self.scenario.everywhere or 1)
        return whole // gcd(self.count, whole)

    @property
    def kept_period(self) -> int:
        return self.scenario.kept // gcd(self.count, self.scenario.kept)

    def kinds(self) -> Iterator[tuple[int, int, int, int]]:
        """Of sites: number, nodes, how many there are, and the place of the first."""
        for first in range(min(self.period, self.full)):
            yield first, self.size, -(-(self.full - first) // self.period), first
        if self.part:
            yield LAST, self.part, 1, self.full

    # ── as a tree ──

    @property
    def height(self) -> int:
        """Levels of groups: sites are the first, the last is one group of all."""
        level = 1
        while self.wide(level) > 1:
            level += 1
        return level

    def span(self, level: int) -> int:
        """Sites of a whole group."""
        return int(self.fanout ** (level - 1))

    def wide(self, level: int) -> int:
        """Groups of a level."""
        return -(-self.sites // self.span(level))

    @property
    def gateways(self) -> int:
        return sum(self.wide(level) for level in range(1, self.height))

    def _whole(self, level: int) -> int:
        return self.full // self.span(level)

    def _again(self, level: int) -> int:
        return self.period // gcd(self.period, self.span(level))

    def _kind(self, level: int, group: int) -> int:
        return group % self._again(level) if group < self._whole(level) else LAST

    def groups(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Kinds of groups: level, number, how many there are, first site, and the one behind the last."""
        for level in range(1, self.height + 1):
            whole, again, span = self._whole(level), self._again(level), self.span(level)
            for first in range(min(again, whole)):
                yield level, first, -(-(whole - first) // again), first * span, (first + 1) * span
            if whole * span < self.sites:
                yield level, LAST, 1, whole * span, self.sites

    def children(self) -> Iterator[tuple[int, int, int, int]]:
        """Level and number of a kind of groups, the kind of groups within it, and how many of them."""
        for level, kind, _, low, _ in self.groups():
            if level == 1:
                continue
            first = low // self.span(level - 1)
            last = min(first + self.fanout, self.wide(level - 1))
            for child, times in Counter(self._kind(level - 1, group) for group in range(first, last)).items():
                yield level, kind, child, times
