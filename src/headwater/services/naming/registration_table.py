"""The registrations of one domain at one of its servers, and how those of several servers come to agree.

It is a map of registers: for each name and node the registration of the greatest version, whoever brought it. What one
server has that another has not is found by comparing sums of buckets, and taken over; in whichever order, and however
often, the same is left in the end. A registration ends with its lease; one that was withdrawn is kept as such until
its lease ends, so that an older one that comes late does not bring it back.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headwater.errors import FederationError
from headwater.services.naming.address import NodeAddress
from headwater.services.naming.registration import Endorsed

BUCKETS = 64
MOST_REGISTRATIONS = 100_000  # of a domain
MOST_OF_NAME = 256  # nodes with sources of one name: all fit into one answer
MOST_OF_NODE = 10_000  # names of one node
_SUM = (1 << 63) - 1  # as msgpack and msgspec can say it

What = Literal["advertised", "moved", "withdrawn", "expired"]


@dataclass(frozen=True, slots=True)
class Change:
    """What has become of a node's sources of a name."""

    what: What
    name: str
    address: NodeAddress
    version: int


@dataclass
class RegistrationTable:
    """Of one domain. Thread-safe. Times are ns since 1970; what has ended is not there, whether it was swept or not."""

    domain: str
    _entries: dict[tuple[str, str], Endorsed] = field(default_factory=dict)
    _names: dict[str, dict[str, None]] = field(default_factory=dict)  # nodes, by name
    _of_node: Counter[str] = field(default_factory=Counter)
    _sums: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def merge(self, endorsed: Endorsed, now: int) -> Change | None:
        """Take a registration that is verified, unless a greater one is there; what has changed by it for those who
        look names up. FederationError if there are too many."""
        with self._lock:
            before = self._entries.get(endorsed.key)
            if endorsed.expires <= now or (before is not None and before.order >= endorsed.order):
                return None
            if before is None:
                self._check_room(endorsed)
            self._put(endorsed, before)
        was = None if before is None or before.registration.withdrawn or before.expires <= now else before.address
        address, version = endorsed.address, endorsed.version
        if endorsed.registration.withdrawn:
            return None if was is None else Change("withdrawn", endorsed.name, address, version)
        if was is None:
            return Change("advertised", endorsed.name, address, version)
        return None if was == address else Change("moved", endorsed.name, address, version)

    def _check_room(self, endorsed: Endorsed) -> None:
        name, node = endorsed.key
        for count, most, what in (
            (len(self._entries), MOST_REGISTRATIONS, f"registrations in {self.domain!r}"),
            (len(self._names.get(name, ())), MOST_OF_NAME, f"nodes with sources of {name!r}"),
            (self._of_node[node], MOST_OF_NODE, f"names of node {node}"),
        ):
            if count >= most:
                raise FederationError(f"registration of {name!r}: expected at most {most:,} {what}, found {count:,}")

    def _put(self, endorsed: Endorsed, before: Endorsed | None) -> None:
        name, node = endorsed.key
        self._entries[endorsed.key] = endorsed
        bucket = bucket_of(endorsed.key)
        self._sums[bucket] ^= _sum(endorsed)
        if before is None:
            self._names.setdefault(name, {})[node] = None
            self._of_node[node] += 1
        else:
            self._sums[bucket] ^= _sum(before)

    def sources(self, name: str, now: int) -> list[Endorsed]:
        """All nodes that have sources of a name."""
        with self._lock:
            found = [self._entries[name, node] for node in self._names.get(name, ())]
        return [each for each in found if each.expires > now and not each.registration.withdrawn]

    def sweep(self, now: int) -> list[Change]:
        """Let go of what has ended; what that changes for those who look names up."""
        with self._lock:
            ended = [each for each in self._entries.values() if each.expires <= now]
            for each in ended:
                name, node = each.key
                del self._entries[each.key]
                self._sums[bucket_of(each.key)] ^= _sum(each)
                del self._names[name][node]
                self._of_node[node] -= 1
                if not self._names[name]:
                    del self._names[name]
                if not self._of_node[node]:
                    del self._of_node[node]
        return [
            Change("expired", each.name, each.address, each.version)
            for each in ended
            if not each.registration.withdrawn
        ]

    @property
    def sums(self) -> list[int]:
        """A number for each bucket: tables that have the same have the same numbers."""
        with self._lock:
            return list(self._sums)

    def beyond(
        self, sums: Sequence[int], now: int, most: int, after: tuple[str, str] | None = None
    ) -> tuple[list[Endorsed], bool]:
        """What is in buckets of which another table has other numbers: a page of at most so many, after a name and
        node; and whether there is more."""
        mine = self.sums
        differing = {number for number in range(BUCKETS) if number >= len(sums) or sums[number] != mine[number]}
        start = None if after is None else (bucket_of(after), after)
        with self._lock:
            found = [each for each in self._entries.values() if each.expires > now and bucket_of(each.key) in differing]
        places = sorted(found, key=lambda each: (bucket_of(each.key), each.key))
        left = [each for each in places if start is None or (bucket_of(each.key), each.key) > start]
        return left[:most], len(left) > most

    def version(self, key: tuple[str, str]) -> int:
        """The version of what a node has registered for a name; 0 if it has not."""
        found = self._entries.get(key)
        return 0 if found is None else found.version

    def names(self, now: int) -> dict[str, int]:
        """Names that have sources, and at how many nodes."""
        with self._lock:
            found = Counter(
                each.name for each in self._entries.values() if each.expires > now and not each.registration.withdrawn
            )
        return dict(sorted(found.items()))

    def merge_all(self, items: Iterable[Endorsed], now: int) -> list[Change]:
        """Many; those for which there is no room are left out."""
        changes: list[Change] = []
        for each in items:
            try:
                change = self.merge(each, now)
            except FederationError:
                continue
            if change is not None:
                changes.append(change)
        return changes

    def __len__(self) -> int:
        return len(self._entries)


def bucket_of(key: tuple[str, str]) -> int:
    """The bucket in which a name and a node are compared."""
    return hashlib.blake2b("\0".join(key).encode(), digest_size=2).digest()[0] % BUCKETS


def _sum(endorsed: Endorsed) -> int:
    """By which an entry counts: which registration it is, and until when it holds."""
    text = f"{endorsed.name}\0{endorsed.address.node}\0{endorsed.version}\0{endorsed.signed.fingerprint}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") & _SUM


__all__ = ["BUCKETS", "Change", "RegistrationTable", "bucket_of"]
