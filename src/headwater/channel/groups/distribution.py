"""Who of a group gets an event: pure logic, at one node. No clock, no lock, no network.

An event goes to the member with the fewest that it has not acknowledged, so that slow members get fewer; among equals,
to the one that has waited longest. None has more than its credit. While all are at something, events without a key may
be kept back (`next_run`) until one is free, or there are many, and go in runs.

With keys, a key is the business of one member for as long as that one is there: of those that are there when the key
comes first, the one that rendezvous hashing names, so that nodes that see the same members choose the same. What nobody
has room for waits, in order, up to a bound, and what a member had not acknowledged when it left goes to others before
anything else, marked. Events of one key are handed over in their order. No other order is promised across members.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from hashlib import blake2b
from itertools import repeat
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
MOST_CREDIT = 4096  # events that a member may have at once, whatever it says
MOST_MEMBERS = 1024
MOST_KEYS = 65_536  # of which is remembered whose they are, beside those of which a member has something
RUN = 64  # events that go to one member at once; so many go although all members are at something
LOOKS = 64  # at the oldest keys, for one that may be forgotten


class Handed(NamedTuple, Generic[T]):
    """An event for a member; `redelivered` if another one may have had it."""

    member: str
    number: int
    event: T
    redelivered: bool


_Waiting = tuple[int, T, Hashable, bool]  # its number, the event, its key, and whether it is redelivered


class _Seat(Generic[T]):
    """A member: what it has and has not acknowledged, by number."""

    __slots__ = ("credit", "has", "last", "name", "retired")

    def __init__(self, name: str, credit: int) -> None:
        self.name, self.credit, self.last, self.retired = name, credit, 0, False
        self.has: dict[int, _Waiting[T]] = {}


class _Ownership:
    """Whose a key is, and how many events of it that one has."""

    __slots__ = ("member", "outstanding")

    def __init__(self, member: str) -> None:
        self.member, self.outstanding = member, 0


class Distribution(Generic[T]):
    """The members of a group as one node sees them, and what each of them has."""

    def __init__(self, room: int) -> None:
        """`room`: events that may wait for a member."""
        self._room = room
        self._seats: dict[str, _Seat[T]] = {}
        self._owners: OrderedDict[Hashable, _Ownership] = OrderedDict()
        self._waiting: deque[_Waiting[T]] = deque()
        self._withdrawn: set[int] = set()  # what members have that goes to nobody else
        self._numbers = self._turns = 0

    @property
    def members(self) -> tuple[str, ...]:
        """Those that are there, and get more."""
        return tuple(seat.name for seat in self._seats.values() if not seat.retired)

    @property
    def takes(self) -> bool:
        """Whether there is one that gets more."""
        return any(not seat.retired for seat in self._seats.values())

    @property
    def waiting(self) -> int:
        """Events that nobody has."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether publishers must wait."""
        return len(self._waiting) >= self._room

    @property
    def free(self) -> int:
        """How many events members would take at once, if they have no keys."""
        return sum(max(0, seat.credit - len(seat.has)) for seat in self._seats.values() if not seat.retired)

    @property
    def out(self) -> int:
        """What all members together have, and have not acknowledged."""
        return sum(len(seat.has) for seat in self._seats.values())

    @property
    def keys(self) -> int:
        """Of how many keys is remembered whose they are."""
        return len(self._owners)

    def outstanding(self, member: str) -> int:
        """What it has, and has not acknowledged."""
        seat = self._seats.get(member)
        return 0 if seat is None else len(seat.has)

    def held(self) -> list[T]:
        """All events that are not acknowledged, whoever has them."""
        return [item[1] for seat in self._seats.values() for item in seat.has.values()] + [
            item[1] for item in self._waiting
        ]

    def join(self, member: str, credit: int) -> list[Handed[T]]:
        """A member comes, or says anew how much it takes at once; what waited for one goes out."""
        credit = max(1, min(MOST_CREDIT, credit))
        seat = self._seats.get(member)
        if seat is None:
            if len(self._seats) >= MOST_MEMBERS:
                raise ValueError(f"group: expected at most {MOST_MEMBERS:,} members, found one more")
            self._seats[member] = _Seat(member, credit)
        else:
            seat.credit, seat.retired = credit, False
        return self._hand_out()

    def leave(self, member: str) -> list[Handed[T]]:
        """A member is gone: what it had goes to others, the oldest first, and before what waits."""
        return self.give_back(member, ())

    def retire(self, member: str, untaken: Iterable[int] = ()) -> list[Handed[T]]:
        """A member gets nothing more, and is gone when it has acknowledged what it has, but for what it has not taken,
        which goes to others."""
        seat = self._seats.get(member)
        return [] if seat is None else self.give_back(member, seat.has.keys() - set(untaken))

    def give_back(self, member: str, finishing: Iterable[int]) -> list[Handed[T]]:
        """As `leave`, but for what it is finishing: it goes when that is acknowledged."""
        seat = self._seats.get(member)
        if seat is None:
            return []
        kept = {number: seat.has.pop(number) for number in finishing if number in seat.has}
        returned, seat.has = seat.has, kept
        seat.retired = True
        if not kept:
            del self._seats[member]
        for item in returned.values():
            self._lay_down(item)
        if self._withdrawn:
            returned = {number: item for number, item in returned.items() if number not in self._withdrawn}
            self._withdrawn &= {number for each in self._seats.values() for number in each.has}
        if (
            returned
        ):  # among those that came back before, in order: a member may find out one by one what it has not taken
            again = [item for item in self._waiting if item[3]] + [(*item[:3], True) for item in returned.values()]
            fresh = [item for item in self._waiting if not item[3]]
            self._waiting = deque((*sorted(again, key=itemgetter(0)), *fresh))
        return self._hand_out()

    def knows(self, member: str) -> bool:
        """Whether it is there, or still has something."""
        return member in self._seats

    def put(self, event: T, key: Hashable = None) -> list[Handed[T]]:
        """One more event; who asks `is_full` before bounds what waits."""
        self._numbers += 1
        self._waiting.append((self._numbers, event, key, False))
        return self._hand_out()

    def place(self, event: T) -> tuple[str, int] | None:
        """As `put`, for an event without a key, where nothing waits: who has it, and by which number. None if it is to
        be `put`: nobody has room, or others come first."""
        if self._waiting:
            return None
        seat = self._free()
        if seat is None:
            return None
        self._numbers = number = self._numbers + 1
        self._turns += 1
        seat.last = self._turns
        seat.has[number] = number, event, None, False
        return seat.name, number

    def next_run(self, waiting: int) -> tuple[str, int] | None:
        """Of so many events without a key, which wait elsewhere: who is to have the next ones, and how many of them.
        None if they go on waiting, since all members are at something, or others come first. Who has nothing gets its
        share of them at once, and the others theirs when they are free: a slow one does not have what a fast one would
        have done by then. While all have something, who has the fewest gets some when there are many."""
        if self._waiting:
            return None
        seat = self._free()
        if seat is None:
            return None
        has = len(seat.has)
        if has:
            most = min(RUN, seat.credit - has) if waiting >= RUN else 0
        else:
            members = sum([not each.retired for each in self._seats.values()])
            most = min(RUN, seat.credit, -(-waiting // members))
        return (seat.name, most) if most else None

    def place_run(self, member: str, events: Sequence[T]) -> int:
        """Give a member these events: the number of the first; those of the others follow."""
        seat, first = self._seats[member], self._numbers + 1
        self._numbers += len(events)
        self._turns += 1
        seat.last = self._turns
        numbers = range(first, self._numbers + 1)
        seat.has.update(zip(numbers, zip(numbers, events, repeat(None), repeat(False)), strict=False))
        return first

    def put_again(self, event: T, key: Hashable = None) -> list[Handed[T]]:
        """The same for one that somebody may have had, of whom nothing is known here any more."""
        self._numbers += 1
        self._waiting.append((self._numbers, event, key, True))
        return self._hand_out()

    def acknowledge(self, member: str, numbers: Iterable[int]) -> tuple[list[T], list[Handed[T]]]:
        """A member has handled events: those that it had, which are done, and what goes out now. What it never had is
        none of its business."""
        seat = self._seats.get(member)
        if seat is None:
            return [], []
        done: list[T] = []
        withdrawn = self._withdrawn
        for number in numbers:
            item = seat.has.pop(number, None)
            if item is not None:
                done.append(item[1])
                if withdrawn:
                    withdrawn.discard(number)
                if item[2] is not None:
                    self._lay_down(item)
        if seat.retired and not seat.has:
            del self._seats[member]
        return done, (self._hand_out() if done and self._waiting else [])

    def withdraw(self, concerns: Callable[[T], bool]) -> None:
        """These events are others' business from here on: who has one may acknowledge it, and nobody else gets it."""
        self._waiting = deque(item for item in self._waiting if not concerns(item[1]))
        for seat in self._seats.values():
            self._withdrawn.update(number for number, item in seat.has.items() if concerns(item[1]))

    def clear(self) -> int:
        """Nobody is left: how many events were given up."""
        gone = len(self._waiting)
        self._waiting.clear()
        self._owners.clear()
        return gone

    # ── who ──

    def _hand_out(self) -> list[Handed[T]]:
        """As much as there is room for. An event whose key's member has none keeps back only others of that key."""
        made: list[Handed[T]] = []
        waiting = self._waiting
        kept: deque[_Waiting[T]] = deque()
        blocked: set[Hashable] = set()
        while waiting:
            item = waiting.popleft()
            key = item[2]
            seat = None if key in blocked else self._free() if key is None else self._owner(key)
            if seat is None:
                kept.append(item)
                if key is None:
                    break  # nobody has room at all
                blocked.add(key)
                continue
            self._turns += 1
            seat.last = self._turns
            seat.has[item[0]] = item
            made.append(Handed(seat.name, item[0], item[1], item[3]))
        if kept:
            waiting.extendleft(reversed(kept))
        return made

    def _free(self) -> _Seat[T] | None:
        """The member with the fewest."""
        best: _Seat[T] | None = None
        fewest = last = 0
        for seat in self._seats.values():
            has = len(seat.has)
            if has >= seat.credit or seat.retired:
                continue
            if best is None or has < fewest or (has == fewest and seat.last < last):
                best, fewest, last = seat, has, seat.last
        return best

    def _owner(self, key: Hashable) -> _Seat[T] | None:
        """The member whose a key is, if it has room; counts one more event of it."""
        owners = self._owners
        owned = owners.get(key)
        seat = None if owned is None else self._seats.get(owned.member)
        if owned is not None and seat is not None and seat.retired and owned.outstanding:
            return None  # what it still has comes first
        if owned is None or seat is None or seat.retired:
            there = [each for each in self._seats.values() if not each.retired]
            if not there:
                return None
            seat = max(there, key=lambda each: (_rank(each.name, key), each.name))
            owned = owners[key] = _Ownership(seat.name)
            self._forget_keys()
        if len(seat.has) >= seat.credit:
            return None
        owned.outstanding += 1
        owners.move_to_end(key)
        return seat

    def _lay_down(self, item: _Waiting[T]) -> None:
        """A member has one event of its key less."""
        if item[2] is not None:
            owned = self._owners.get(item[2])
            if owned is not None and owned.outstanding:
                owned.outstanding -= 1

    def _forget_keys(self) -> None:
        """Whose the oldest keys are, of which nobody has anything."""
        looks = LOOKS
        while len(self._owners) > MOST_KEYS and looks:
            looks -= 1
            key, owned = self._owners.popitem(last=False)
            if owned.outstanding:
                self._owners[key] = owned


def _rank(member: str, key: Hashable) -> bytes:
    return blake2b(f"{member}\0{key!r}".encode(), digest_size=8).digest()


__all__ = ["MOST_CREDIT", "MOST_MEMBERS", "Distribution", "Handed"]
