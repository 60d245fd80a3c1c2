"""Who of a group gets an event: pure logic, for one source. No clock, no lock, no network.

An event goes to the member with the fewest that it has not acknowledged, so that slow members get fewer; none has more
than its credit. With keys, all events of a key go to one member while the members stay the same (rendezvous hashing: of
those that one had, only they go elsewhere when it leaves). What nobody has room for waits, in order, up to a bound, and
what a member had not acknowledged when it left goes to others before anything else, marked. No order is promised across
members, and what was handed over twice may be handled twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from hashlib import blake2b
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
MOST_CREDIT = 65_536  # events that a member may have at once, whatever it says
MOST_MEMBERS = 4096


class Handed(NamedTuple, Generic[T]):
    """An event for a member; `redelivered` if another one may have had it."""

    member: str
    number: int
    event: T
    redelivered: bool


class _Waiting(NamedTuple, Generic[T]):
    number: int
    event: T
    key: Hashable
    redelivered: bool


class Distribution(Generic[T]):
    """The members of a group as one source sees them, and what each of them has."""

    def __init__(self, room: int) -> None:
        """`room`: events that may wait for a member."""
        self._room = room
        self._credit: dict[str, int] = {}
        self._has: dict[str, dict[int, _Waiting[T]]] = {}  # by member, what it has not acknowledged
        self._waiting: deque[_Waiting[T]] = deque()
        self._numbers = 0

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(self._credit)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether publishers must wait."""
        return len(self._waiting) >= self._room

    def outstanding(self, member: str) -> int:
        """What it has, and has not acknowledged."""
        return len(self._has.get(member, ()))

    def join(self, member: str, credit: int) -> list[Handed[T]]:
        """A member comes, or says anew how much it takes at once; what waited for one goes out."""
        if member not in self._credit and len(self._credit) >= MOST_MEMBERS:
            raise ValueError(f"group: expected at most {MOST_MEMBERS:,} members, found one more")
        self._credit[member] = max(1, min(MOST_CREDIT, credit))
        self._has.setdefault(member, {})
        return self._hand_out()

    def leave(self, member: str) -> list[Handed[T]]:
        """A member is gone: what it had goes to others, the oldest first, and before what waits."""
        if self._credit.pop(member, None) is None:
            return []
        had = self._has.pop(member)
        self._waiting.extendleft(had[number]._replace(redelivered=True) for number in sorted(had, reverse=True))
        return self._hand_out()

    def put(self, event: T, key: Hashable = None) -> list[Handed[T]]:
        """One more event; who asks `is_full` before bounds what waits."""
        self._numbers += 1
        self._waiting.append(_Waiting(self._numbers, event, key, False))
        return self._hand_out()

    def acknowledge(self, member: str, number: int) -> list[Handed[T]]:
        """A member has handled an event; what it never had is none of its business."""
        if self._has.get(member, {}).pop(number, None) is None:
            return []
        return self._hand_out()

    def _hand_out(self) -> list[Handed[T]]:
        """As much as there is room for. An event whose key's member has none keeps back only others of that key."""
        made: list[Handed[T]] = []
        kept: deque[_Waiting[T]] = deque()
        blocked: set[Hashable] = set()
        while self._waiting:
            item = self._waiting.popleft()
            member = None if item.key in blocked else self._choose(item.key)
            if member is None:
                kept.append(item)
                if item.key is None:
                    break  # nobody has room at all
                blocked.add(item.key)
                continue
            self._has[member][item.number] = item
            made.append(Handed(member, item.number, item.event, item.redelivered))
        kept.extend(self._waiting)
        self._waiting = kept
        return made

    def _choose(self, key: Hashable) -> str | None:
        if key is not None:
            if not self._credit:
                return None
            owner = max(self._credit, key=lambda member: (_rank(member, key), member))
            return owner if len(self._has[owner]) < self._credit[owner] else None
        free = [member for member in self._credit if len(self._has[member]) < self._credit[member]]
        return min(free, key=lambda member: len(self._has[member]), default=None)


def _rank(member: str, key: Hashable) -> bytes:
    return blake2b(f"{member}\0{key!r}".encode(), digest_size=8).digest()


__all__ = ["MOST_CREDIT", "Distribution", "Handed"]
