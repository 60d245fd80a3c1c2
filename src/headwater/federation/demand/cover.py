"""Which of a node's interests a source must know: those that no other of them covers.

    cover = Cover()
    wide = cover.add(Interest("level > 3", on))
    narrow = cover.add(Interest("level > 5 and network == 'ORL'", on))
    cover.needed                              # {wide}: whatever narrow passes comes anyway
    cover.changes()                           # Changes(install={wide}, withdraw=set())
    cover.remove(wide)
    cover.changes()                           # Changes(install={narrow}, withdraw={wide})

An event crosses to a node once and the node decides among its own sinks, so all that a source has to decide is whether
any of the node's interests passes it; what the needed ones pass together is exactly what all of them pass. That is so
for filters without state. An interest with state runs at the source for itself: it is always needed, and covers
nothing. One with an output covers only its equals. `None` stands for everything, and covers every filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headwater.channel.routing.route import key_of
from headwater.federation.demand.cover_index import CoverIndex
from headwater.interest import Interest
from headwater.ir.covers import Prepared


class Changes(NamedTuple):
    """What to tell the sources: first install, then withdraw, and no event is missed between."""

    install: frozenset[int]
    withdraw: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.install or self.withdraw)


class Cover:
    """The interests of one node in one channel, and which of them are needed. One thread at a time.

    An interest that is added is held against those of the needed ones that may cover it, or that it may cover, which an
    index finds (`cover_index.py`); of equal ones the first counts, which takes no test at all. Removing one that
    another covers takes none either; else each that only it covered is placed anew. A test takes microseconds, for each
    filter is taken apart once.
    """

    def __init__(self) -> None:
        self._members: dict[int, _Member] = {}
        self._needed: dict[int, _Member] = {}
        self._first: dict[object, int] = {}  # of those that are equal
        self._index = CoverIndex()  # of those needed that may cover others
        self._last = 0
        self._installed: set[int] = set()  # since `changes` was asked
        self._withdrawn: set[int] = set()

    def __len__(self) -> int:
        return len(self._members)

    @property
    def needed(self) -> frozenset[int]:
        """The keys of those that no other covers."""
        return frozenset(self._needed)

    def is_needed(self, key: int) -> bool:
        """Whether no other covers it."""
        return key in self._needed

    @property
    def covered(self) -> dict[int, int]:
        """The keys of the others, and for each that of a needed one that covers it."""
        return {key: self.by(key) for key in self._members if key not in self._needed}

    def interest(self, key: int) -> Interest | None:
        """What was added under a key."""
        return self._members[key].interest

    def by(self, key: int) -> int:
        """The key of the needed interest that covers this one: its own, if it is needed itself."""
        while (above := self._members[key].above) is not None:  # each covers the next, so the topmost covers all
            key = above
        return key

    def changes(self) -> Changes:
        """Which have become needed since this was asked last, and which are so no longer."""
        found = Changes(frozenset(self._installed), frozenset(self._withdrawn))
        self._installed.clear()
        self._withdrawn.clear()
        return found

    def add(self, interest: Interest | None) -> int:
        """One more, which may be equal to another; its key."""
        self._last += 1
        key, same = self._last, key_of(interest)
        first = self._first.setdefault(same, key)
        if first != key:
            twin = self._members[first]
            self._members[key] = _Member(interest, same, twin.prepared)
            self._attach(key, first)
            return key
        self._members[key] = _Member(interest, same, _prepared(interest, key))
        self._place(key)
        return key

    def remove(self, key: int) -> None:
        """One less; those that only it covered are needed again. KeyError if there is none of this key."""
        member = self._members.pop(key)
        if member.above is not None:
            del self._members[member.above].below[key]
        if self._first[member.same] != key:  # what is equal to an earlier one has nothing below it
            return
        heir = next((each for each in member.below if self._members[each].same == member.same), None)
        if heir is not None:
            self._first[member.same] = heir
            self._replace(key, member, heir)
            return
        del self._first[member.same]
        if member.above is not None:
            for each in member.below:
                self._attach(each, member.above)
            return
        self._drop(key)
        for each in sorted(member.below):
            self._members[each].above = None
            self._place(each)

    # ── the tree: who is below is covered by who is above; the topmost are needed ──

    def _place(self, key: int) -> None:
        """One that has nothing above it yet."""
        member = self._members[key]
        everything = self._first.get(None)
        if member.prepared is None:
            below = (
                [] if member.interest is not None else [k for k, m in self._needed.items() if m.prepared is not None]
            )
        elif everything is not None and everything in self._needed:
            self._attach(key, everything)
            return
        else:
            for other in sorted(self._index.above(member.prepared)):
                if self._needed[other].covers(member):
                    self._attach(key, other)
                    return
            candidates = sorted(self._index.below(member.prepared))
            below = [other for other in candidates if member.covers(self._needed[other])]
        for other in below:
            self._drop(other)
            self._attach(other, key)
        self._need(key)

    def _replace(self, key: int, member: _Member, heir: int) -> None:
        """An equal one takes the place of one that is gone."""
        del member.below[heir]
        for each in member.below:
            self._attach(each, heir)
        if member.above is not None:
            self._attach(heir, member.above)
        else:
            self._drop(key)
            self._members[heir].above = None
            self._need(heir)

    def _attach(self, key: int, above: int) -> None:
        self._members[key].above = above
        self._members[above].below[key] = None

    def _need(self, key: int) -> None:
        self._needed[key] = member = self._members[key]
        if member.prepared is not None:
            self._index.add(key, member.prepared)
        if key in self._withdrawn:
            self._withdrawn.remove(key)
        else:
            self._installed.add(key)

    def _drop(self, key: int) -> None:
        member = self._needed.pop(key)
        if member.prepared is not None:
            self._index.remove(key, member.prepared)
        if key in self._installed:
            self._installed.remove(key)
        else:
            self._withdrawn.add(key)


class _Member:
    __slots__ = ("above", "below", "interest", "prepared", "same")

    def __init__(self, interest: Interest | None, same: object, prepared: Prepared | None) -> None:
        self.interest, self.same = interest, same
        self.prepared = prepared  # None for everything, and for what stands alone
        self.above: int | None = None
        self.below: dict[int, None] = {}

    def covers(self, other: _Member) -> bool:
        if other.prepared is None:
            return self.interest is None and other.interest is None
        if self.prepared is None:
            return self.interest is None
        return self.prepared.covers(other.prepared)


def _prepared(interest: Interest | None, key: int) -> Prepared | None:
    if interest is None or interest.stateful or interest.output is not None or interest.contextual:
        return None
    return Prepared(interest.normal, interest.params, name=str(key), fingerprint=interest.fingerprint)


# ── all at once ──


def minimal(interests: Sequence[Interest | None]) -> tuple[list[int], dict[int, int]]:
    """Which of these are needed, and for each of the others a needed one that covers it: by their places."""
    cover = Cover()
    places = {cover.add(interest): at for at, interest in enumerate(interests)}
    covered = {places[key]: places[by] for key, by in cover.covered.items()}
    return sorted(places[key] for key in cover.needed), covered


__all__ = ["Changes", "Cover", "minimal"]
