"""Connections whose other end has not said who it is: how many there may be, from where, and who has to go.

All of one listener's are looked after by its one thread; a stranger costs a socket and what it has sent, 64 KiB at
most. If there are too many, one has to go: of those from the most crowded place (so that no place can push out another
one's), the one that has been at the same stage for longest. Whoever is honest gets through a stage in a round trip;
silence, half a frame, and a byte now and then all look old soon. If all of them hold too many bytes, the one goes that
holds most.
"""

from __future__ import annotations

import ipaddress
import socket
from collections import OrderedDict
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from headwater.federation.fabric.file_limit import share_of_files
from headwater.federation.transport.stream import Stream

GREETING_SECONDS = 5.0  # in which a stranger must have said who it is
MOST_STRANGERS = 1024  # at a time, if the process may have four times as many files open
STRANGERS_BYTES = 16 << 20  # that all of them together may have sent of a greeting
NEW_PER_SECOND = 200.0  # new strangers from one place beyond this machine, and
NEW_AT_ONCE = 400.0  # so many after a while without any
MOST_PLACES = 4096  # of which the rate is remembered
ARRIVED, SPOKE, ENCRYPTED = range(3)


def most_strangers() -> int:
    """As many as the limit of open files leaves room for."""
    return share_of_files(MOST_STRANGERS)


def place_of_address(address: object) -> str:
    """Who counts as one: an IPv4 address, an IPv6 network (of 64 bits: a host has as many addresses as it likes)."""
    if not isinstance(address, tuple):
        return ""  # a Unix socket
    try:
        found = ipaddress.ip_address(str(address[0]).partition("%")[0])
    except ValueError:
        return str(address[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return str(ipaddress.ip_network((found.packed[:8] + bytes(8), 64)))
        found = found.ipv4_mapped
    return str(found)


@dataclass(slots=True, eq=False)
class Stranger:
    """One of them."""

    sock: socket.socket
    kind: str
    remote: str
    place: str
    loopback: bool
    stream: Stream | None = None  # from when on frames can be exchanged
    greeter: Any = None
    stage: int = ARRIVED
    began: float = field(default_factory=monotonic)
    since: float = 0.0  # when it came to this stage
    size: int = 0  # bytes of its greeting that have come

    def __post_init__(self) -> None:
        self.since = self.began

    def reached(self, stage: int) -> None:
        if stage > self.stage:
            self.stage, self.since = stage, monotonic()

    def close(self, reason: str) -> None:
        if self.stream is not None:
            self.stream.close(reason)
        else:
            self.sock.close()


class Strangers:
    """Those of one listener, which alone calls this. The counts may be read by anyone.

    `came` = present + `admitted` (they have said who they are, or need not) + `refused` (what they said was no
    greeting, or not one that counts) + `evicted` (others needed the room) + `late` + `left` (of their own accord).
    `too_many` were not let in at all: their place had sent too many just before."""

    def __init__(self, most: int = 0) -> None:
        self._most = most or most_strangers()
        self._all: dict[Stranger, None] = {}  # the oldest first
        self._places: dict[str, dict[Stranger, None]] = {}
        self._rates: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left of NEW_AT_ONCE, and when
        self._bytes = 0
        self.came = self.admitted = self.refused = self.evicted = self.late = self.left = self.too_many = 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Any:
        return iter(list(self._all))

    def may_come(self, place: str, *, loopback: bool) -> bool:
        """Whether not too many have come from there lately. Processes of this machine have other ways to use it up."""
        if loopback:
            return True
        now = monotonic()
        left, then = self._rates.pop(place, (NEW_AT_ONCE, now))
        left = min(NEW_AT_ONCE, left + (now - then) * NEW_PER_SECOND)
        self._rates[place] = (max(0.0, left - 1.0), now)
        if len(self._rates) > MOST_PLACES:
            self._rates.popitem(last=False)
        if left < 1.0:
            self.too_many += 1
        return left >= 1.0

    def add(self, stranger: Stranger) -> Stranger | None:
        """One more; and who has to go for it."""
        self.came += 1
        self._all[stranger] = None
        self._places.setdefault(stranger.place, {})[stranger] = None
        return self._surplus(stranger) if len(self._all) > self._most else None

    def grew(self, stranger: Stranger, size: int) -> Stranger | None:
        """So many bytes of it have come, in all; and who has to go for them."""
        self._bytes += size - stranger.size
        stranger.size = size
        if self._bytes <= STRANGERS_BYTES:
            return None
        return max(self._all, key=lambda each: (each.size, -each.since))

    def remove(self, stranger: Stranger) -> bool:
        if stranger not in self._all:
            return False
        del self._all[stranger]
        self._bytes -= stranger.size
        here = self._places[stranger.place]
        del here[stranger]
        if not here:
            del self._places[stranger.place]
        return True

    def any_surplus(self) -> Stranger | None:
        """Who has to go first, if somebody has to."""
        return self._surplus(None) if self._all else None

    def overdue(self) -> Stranger | None:
        """One that has had its time."""
        first = next(iter(self._all), None)
        return first if first is not None and monotonic() - first.began > GREETING_SECONDS else None

    def patience(self) -> float | None:
        """Seconds until the next one has had its time; None: there is none."""
        first = next(iter(self._all), None)
        return None if first is None else max(0.0, first.began + GREETING_SECONDS - monotonic()) + 0.001

    def _surplus(self, newest: Stranger | None) -> Stranger:
        crowd = max(self._places.values(), key=len)
        others = [each for each in crowd if each is not newest]
        return min(others or crowd, key=lambda each: each.since)
