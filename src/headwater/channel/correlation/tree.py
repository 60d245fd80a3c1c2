"""Filter trees: a subscription to a conjunction or disjunction of events, on several channels.

    all_of(on("hall.door", name="door"), on("hall.motion", "level > 0.5", name="motion"), within=5.0)

`on` is a leaf: it is satisfied by one event. `any_of` is satisfied whenever one of its parts is, by that part's events.
`all_of` remembers what satisfied each of its parts and is satisfied when all of them are; it then hands on the events
of all in the order in which they came, and forgets them. They nest at will.

This file is pure logic: it knows no channels, no clocks and no threads. Who uses a tree offers it events one at a time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, NamedTuple

from headwater.errors import SubscriptionError
from headwater.spelling import did_you_mean

Keep = Literal["latest", "first", "all"]
KEEPS: tuple[Keep, ...] = ("latest", "first", "all")


# ── what a subscriber writes ──


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A leaf: the events of one channel, or of a pattern of channels, that an interest passes."""

    channel: Any
    where: Any = None
    params: Mapping[str, object] | None = None
    type: Any = None
    name: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AnyOf:
    """Satisfied whenever one of its parts is."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AllOf:
    """Satisfied when all of its parts are."""

    parts: tuple[Condition, ...]
    within: float | None = None
    keep: Keep = "latest"
    limit: int = 1024


Condition = Part | AnyOf | AllOf


def on(
    channel: Any,
    where: Any = None,
    *,
    params: Mapping[str, object] | None = None,
    type: Any = None,
    name: str | None = None,
) -> Part:
    """One event of a channel (or of a channel name or pattern) that the interest `where` passes.

    `name` is what its event goes by in the `Match`; without one it is `part1`, `part2` … by its place in the tree.
    """
    if channel is None or channel == "":
        raise SubscriptionError(f"on(): expected a channel, a channel name or a pattern, found {channel!r}")
    if isinstance(channel, Part | AnyOf | AllOf):
        raise SubscriptionError("on(): expected a channel, found a part; join parts with all_of(…) and any_of(…)")
    if name is not None and (not isinstance(name, str) or not name):
        raise SubscriptionError(f"on(): name: expected text, found {name!r}")
    if params is not None and not isinstance(params, Mapping):
        raise SubscriptionError(f"on(): params: expected values by name, found {params.__class__.__name__}")
    return Part(channel, where, params, type, name)


def any_of(*parts: Condition) -> AnyOf:
    """Satisfied whenever one of the parts is, by that part's events."""
    return AnyOf(_checked("any_of", parts))


def all_of(
    *parts: Condition, within: float | timedelta | None = None, keep: Keep = "latest", limit: int = 1024
) -> AllOf:
    """Satisfied when all parts are, by the events of all, which are then forgotten.

    `keep` says what is remembered of a part that is satisfied again before the others are: the `latest`, the `first`,
    or `all`, then at most `limit` events of each part, of which the oldest go first. With `within`, what satisfied a
    part longer ago than that (in seconds) counts no more.
    """
    checked = _checked("all_of", parts)
    if keep not in KEEPS:
        hint = did_you_mean(keep, KEEPS)
        raise SubscriptionError(
            f"all_of(): keep: expected one of {', '.join(KEEPS)}, found {keep!r}{f'; hint: {hint}' if hint else ''}"
        )
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise SubscriptionError(f"all_of(): limit: expected a number of events, at least 1, found {limit!r}")
    seconds = within.total_seconds() if isinstance(within, timedelta) else within
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (number and 0 < seconds < math.inf):
        raise SubscriptionError(
            f"all_of(): within: expected a number of seconds above 0, found {within!r}; "
            "hint: leave it out to remember without end"
        )
    return AllOf(checked, None if seconds is None else float(seconds), keep, limit)


def _checked(what: str, parts: tuple[Condition, ...]) -> tuple[Condition, ...]:
    if not parts:
        raise SubscriptionError(f"{what}(): expected at least one part, found none; hint: {what}(on('ie.tcd.door'), …)")
    for at, part in enumerate(parts, 1):
        if not isinstance(part, Part | AnyOf | AllOf):
            hint = f"on({part!r})" if isinstance(part, str) else "on(channel, interest)"
            if isinstance(part, list | tuple):
                hint = f"{what}(*parts)"
            raise SubscriptionError(
                f"{what}(): part {at}: expected on(…), all_of(…) or any_of(…), found {part.__class__.__name__}; "
                f"hint: write {hint}"
            )
    names = [leaf.name for leaf in _leaves(parts) if leaf.name is not None]
    for name in names:
        if names.count(name) > 1:
            raise SubscriptionError(f"{what}(): expected a name of its own for each part, found {name!r} twice")
    return parts


def _leaves(parts: tuple[Condition, ...]) -> Iterator[Part]:
    pending = list(reversed(parts))
    while pending:
        here = pending.pop()
        if isinstance(here, Part):
            yield here
        else:
            pending.extend(reversed(here.parts))


# ── what a subscriber receives ──


@dataclass(frozen=True, slots=True)
class Match:
    """The events that satisfied a tree, in the order in which they came; `names` are their parts, one for each.

    `match["door"]` is the event of that part (the latest, if there are several); `len(match)` counts the events, and
    looping over it yields them.
    """

    events: tuple[Any, ...]
    names: tuple[str, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts that were satisfied, each once, in order of arrival."""
        return tuple(dict.fromkeys(self.names))

    def by_name(self, name: str) -> Any:
        """The latest event of a part; KeyError if that part is not among the satisfied."""
        for found, event in zip(reversed(self.names), reversed(self.events), strict=True):
            if found == name:
                return event
        raise KeyError(f"no event of part {name!r}; there are: {', '.join(self.parts)}")

    def get(self, name: str, default: Any = None) -> Any:
        """The latest event of a part, or `default` if that part is not among the satisfied."""
        return self.by_name(name) if name in self.names else default

    def all_by_name(self, name: str) -> tuple[Any, ...]:
        """All events of a part, in order of arrival."""
        return tuple(event for found, event in zip(self.names, self.events, strict=True) if found == name)

    __getitem__ = by_name

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.events)


# ── the tree at work ──


class _Arrival(NamedTuple):
    """An event that is remembered; they sort by `number`, which is unique."""

    number: int
    leaf: int
    event: Any


_Bundle = tuple[_Arrival, ...]  # what satisfied a part: in order of arrival, never empty


class _All:
    """What one `all_of` remembers: for each part the bundles that satisfied it and when they did, oldest first."""

    __slots__ = ("_kept", "_sizes", "keep", "limit", "within")

    def __init__(self, condition: AllOf) -> None:
        self.within, self.keep, self.limit = condition.within, condition.keep, condition.limit
        self._kept: list[deque[tuple[float, _Bundle]]] = [deque() for _ in condition.parts]
        self._sizes = [0] * len(self._kept)  # events

    def satisfied(self, child: int, bundle: _Bundle, now: float) -> int:
        """One part is; returns how many events had to be forgotten for want of room."""
        kept = self._kept[child]
        if kept and self.keep == "first":
            return 0
        if self.keep == "latest":
            kept.clear()
            self._sizes[child] = 0
        kept.append((now, bundle))
        self._sizes[child] += len(bundle)
        forgotten = 0
        while self._sizes[child] > self.limit and len(kept) > 1:
            forgotten += self._drop(child)
        return forgotten

    def age(self, now: float) -> int:
        """Forget what is too old; returns the number of events."""
        if self.within is None:
            return 0
        return sum(self._age(child, kept, now - self.within) for child, kept in enumerate(self._kept))

    def _age(self, child: int, kept: deque[tuple[float, _Bundle]], oldest: float) -> int:
        gone = 0
        while kept and kept[0][0] < oldest:
            gone += self._drop(child)
        return gone

    def _drop(self, child: int) -> int:
        size = len(self._kept[child].popleft()[1])
        self._sizes[child] -= size
        return size

    def take(self) -> _Bundle | None:
        """If all parts are satisfied, their events; they are forgotten here."""
        if not all(self._kept):
            return None
        events = [arrival for kept in self._kept for _, bundle in kept for arrival in bundle]
        self.clear()
        events.sort(key=_number)
        return tuple(events)

    def clear(self) -> None:
        for child, kept in enumerate(self._kept):
            kept.clear()
            self._sizes[child] = 0

    @property
    def remembered(self) -> int:
        return sum(self._sizes)


def _number(arrival: _Arrival) -> int:
    return arrival.number


class Tree:
    """A filter tree at work. It is not locked: its owner offers one event at a time."""

    def __init__(self, root: Condition) -> None:
        checked = _checked("correlate", (root,))
        self.root = root
        #: Events that `all_of(keep="all")` gave up because a part had more than its limit.
        self.forgotten = 0
        #: Events that were remembered for longer than `within`.
        self.expired = 0
        self._arrivals = 0
        self._nodes: list[_All] = []
        paths: list[tuple[tuple[_All, int], ...]] = []
        leaves: list[Part] = []
        pending: list[tuple[Condition, tuple[tuple[_All, int], ...]]] = [(root, ())]
        while pending:
            here, path = pending.pop()
            if isinstance(here, Part):
                leaves.append(here)
                paths.append(path)
            elif isinstance(here, AnyOf):  # what satisfies a part of it satisfies it: it leaves no trace in the path
                pending.extend((part, path) for part in reversed(here.parts))
            else:
                node = _All(here)
                self._nodes.append(node)
                inner = [(part, ((node, child), *path)) for child, part in enumerate(here.parts)]
                pending.extend(reversed(inner))
        self._paths = tuple(paths)  # of each leaf, the conjunctions above it, innermost first
        self.leaves: tuple[Part, ...] = _named(leaves, {leaf.name for leaf in _leaves(checked)})
        self._names = tuple(str(leaf.name) for leaf in self.leaves)

    def offer(self, leaf: int, event: Any, now: float) -> list[Match]:
        """An event has satisfied a leaf (by its index in `leaves`) at a time in seconds; what that completes."""
        bundle: _Bundle = (_Arrival(self._arrivals, leaf, event),)
        self._arrivals += 1
        for node, child in self._paths[leaf]:
            self.expired += node.age(now)
            self.forgotten += node.satisfied(child, bundle, now)
            taken = node.take()
            if taken is None:
                return []
            bundle = taken
        events = tuple([arrival.event for arrival in bundle])
        return [Match(events, tuple([self._names[arrival.leaf] for arrival in bundle]))]

    def age(self, now: float) -> int:
        """Forget what is too old by now, also where no event comes any more; returns the number of events."""
        gone = sum(node.age(now) for node in self._nodes)
        self.expired += gone
        return gone

    def due(self) -> float | None:
        """Never: what is too old is forgotten when something comes, or is asked for."""
        return None

    def advance(self, now: float) -> list[Match]:
        """Time alone satisfies nothing."""
        self.age(now)
        return []

    def clear(self) -> None:
        """Forget everything, as when the interests change."""
        for node in self._nodes:
            node.clear()

    @property
    def remembered(self) -> int:
        """How many events wait for others."""
        return sum(node.remembered for node in self._nodes)


def _named(leaves: list[Part], taken: set[str | None]) -> tuple[Part, ...]:
    named: list[Part] = []
    for at, leaf in enumerate(leaves, 1):
        name = leaf.name
        if name is None:
            name, again = f"part{at}", 1
            while name in taken:
                again += 1
                name = f"part{at}_{again}"
            taken.add(name)
        named.append(replace(leaf, name=name))
    return tuple(named)


__all__ = ["KEEPS", "AllOf", "AnyOf", "Condition", "Keep", "Match", "Part", "Tree", "all_of", "any_of", "on"]
