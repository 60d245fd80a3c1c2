"""Sessions of web clients: what was sent to each, until it says that it has it: so one that comes back goes on.

The events of a subscription are numbered from 1. They wait here in a ring (`Ring`, as everything that may have to go
again), bounded in number and bytes: of a client that is too slow, or stays away too long, the oldest are dropped, and
that is told. No network, and no clock but that by which logins expire: `now` is an argument.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from time import time
from typing import Any, NamedTuple

from headwater.channel.backlog.ring import Ring
from headwater.services.policy.identity import Identity

WINDOW_EVENTS = 4096  # of one subscription, that are kept for its client
WINDOW_BYTES = 4 << 20
MOST_FEEDS = 256  # subscriptions of one session
MOST_SESSIONS = 4096
CLIENT_BYTES = 16 << 20  # that wait for one client, in all its subscriptions
ALL_BYTES = 256 << 20  # and for all
BATCH_BYTES = 1 << 18  # of one message with events


class Slot(NamedTuple):
    """An event that was, or is to be, sent."""

    number: int
    data: bytes


class Portion(NamedTuple):
    """What is next of a subscription: events numbered from `first` on, and how many before them were lost."""

    first: int
    events: list[bytes]
    dropped: int


class Room:
    """How many bytes wait: those of one client, and above it those of all. Where all together have too many, those who
    have more than their share are too full, and nobody else."""

    def __init__(self, most: int, above: Room | None = None) -> None:
        self._most, self._above = most, above
        self._used, self._parts = 0, 0
        self._lock = threading.Lock()
        if above is not None:
            with above._lock:
                above._parts += 1

    def add(self, size: int) -> None:
        """So many more, or fewer."""
        with self._lock:
            self._used += size
        if self._above is not None:
            self._above.add(size)

    @property
    def full(self) -> bool:
        above = self._above
        if above is None or above._used <= above._most:
            return self._used > self._most
        return self._used > min(self._most, above._most // max(1, above._parts))

    def close(self) -> None:
        """One less who has a share."""
        if self._above is not None:
            with self._above._lock:
                self._above._parts -= 1


class Feed:
    """A subscription of a client. Threads of sources put events in; the thread of the network takes them out."""

    def __init__(
        self,
        binary: bool = False,
        *,
        events: int = WINDOW_EVENTS,
        size: int = WINDOW_BYTES,
        room: Room | None = None,
    ) -> None:
        self.binary = binary
        self._events, self._size, self._room = events, size, room or Room(size)
        self._closed = False
        self._ring: Ring[Slot] = Ring()
        self._lock = threading.Lock()
        self._bytes = 0
        self.number = 0  # of the last that was put in
        self.sent = 0  # of the last that was taken out
        self.dropped = 0  # in all: before they were sent, or before the client had them
        self._untold = 0  # of which the client does not know
        self.subscription: Any = None
        self.asked: tuple[str, str, dict[str, Any]] = ("", "", {})  # channel, interest and parameters
        self.remarks: list[str] = []  # of what its client has asked for: allowed, and hardly meant
        self.why = ""  # why it has ended, if it has
        self.judging = threading.Lock()  # of who looks what its client may have

    def put(self, data: bytes) -> bool:
        """One more event; whether nothing was waiting before."""
        with self._lock:
            if self._closed:
                return False
            idle = self.sent == self.number and not self._untold
            self.number += 1
            self._ring.append(Slot(self.number, data))
            self._weigh(len(data))
            while len(self._ring) > 1 and (
                len(self._ring) > self._events or self._bytes > self._size or self._room.full
            ):
                gone = self._ring.popleft()
                self._weigh(-len(gone.data))
                if gone.number > self.sent:
                    self.sent = gone.number
                    self.dropped += 1
                    self._untold += 1
            return idle

    def _weigh(self, size: int) -> None:
        self._bytes += size
        self._room.add(size)

    def close(self) -> None:
        """Nothing is kept any more."""
        with self._lock:
            self._closed = True
            self._ring.clear()
            self._weigh(-self._bytes)

    def take(self, most: int = BATCH_BYTES) -> Portion | None:
        """What is next, as much as fits into one message; None if nothing is."""
        with self._lock:
            if self.sent == self.number and not self._untold:
                return None
            slots, size = list[bytes](), 0
            for slot in self._ring.after(self.sent):
                if slots and size + len(slot.data) > most:
                    break
                slots.append(slot.data)
                size += len(slot.data)
            untold, self._untold = self._untold, 0
            first = self.sent + 1
            self.sent += len(slots)
            return Portion(first, slots, untold)

    def acknowledge(self, upto: int) -> None:
        """The client has these. It cannot have what was not sent."""
        with self._lock:
            self._weigh(-sum(len(slot.data) for slot in self._ring.release(min(upto, self.sent))))

    def withhold(self) -> None:
        """Nothing of what waits, or may have to go again, leaves any more: it counts as dropped."""
        with self._lock:
            self._ring.clear()
            self._weigh(-self._bytes)
            self.dropped += self.number - self.sent
            self._untold += self.number - self.sent
            self.sent = self.number

    def resume(self, after: int) -> None:
        """The client is back, and has events up to this number: the rest goes again, as far as it is kept."""
        with self._lock:
            after = min(max(after, 0), self.sent)
            first = self._ring[0].number if self._ring else self.number + 1
            missing = max(0, first - 1 - after)
            self.dropped += missing
            self._untold += missing
            self.sent = max(after, first - 1)

    @property
    def waiting(self) -> bool:
        """Whether there is something to send."""
        return self.sent < self.number or self._untold > 0


@dataclass(eq=False)
class Session:
    """A client, connected or away for a moment."""

    key: str
    identity: Identity
    room: Room
    owner: str = ""  # whose it is: a user, or where somebody unknown has come from
    follower: bool = False  # of one channel, by server-sent events
    until: float = inf  # seconds since 1970 when what it has logged in with expires
    feeds: dict[int, Feed] = field(default_factory=dict)
    left: float | None = None  # when its connection ended; None while it has one
    turn: int = 0  # of its connections: an earlier one has no say any more
    wake: Callable[[], None] = lambda: None  # tells its connection that there is something to send

    @property
    def is_logged_out(self) -> bool:
        """Whether what it has logged in with has expired."""
        return time() > self.until

    def pending(self) -> Iterator[tuple[int, Feed]]:
        """Subscriptions with something to send, or that have ended."""
        return ((id, feed) for id, feed in list(self.feeds.items()) if feed.waiting or feed.why)


class Sessions:
    """Those of one bridge; only the thread of its network is here."""

    def __init__(
        self, keep: float, *, most: int = MOST_SESSIONS, client_bytes: int = CLIENT_BYTES, all_bytes: int = ALL_BYTES
    ) -> None:
        self.keep, self._most, self._client_bytes = keep, most, client_bytes
        self._room = Room(all_bytes)
        self._all: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._all.values()))

    @property
    def is_full(self) -> bool:
        return len(self._all) >= self._most

    def dispensable(self) -> Session | None:
        """One that is given up for somebody who comes, where there are too many: of those that are away the oldest, of
        whoever has left most of them behind."""
        away = [each for each in self._all.values() if each.left is not None]
        owners = Counter(each.owner for each in away)
        return max(away, key=lambda each: (owners[each.owner], -(each.left or 0.0)), default=None)

    def begin(self, identity: Identity, owner: str = "") -> Session | None:
        """A new one; None if there are too many."""
        if self.is_full:
            return None
        made = Session(secrets.token_urlsafe(24), identity, Room(self._client_bytes, self._room), owner)
        self._all[made.key] = made
        return made

    def find(self, key: str, identity: Identity) -> Session | None:
        """The one that a client has lost; None if it is not there any more, or is another's."""
        found = self._all.get(key)
        if found is None or (found.identity.user, found.identity.how) != (identity.user, identity.how):
            return None
        return found

    def resume(self, found: Session, identity: Identity, after: dict[str, int]) -> None:
        """Its client is back, by a new connection."""
        found.left, found.identity, found.until = None, identity, inf
        found.turn += 1
        found.wake()  # a connection that it still has finds that it is over
        for id, feed in found.feeds.items():
            feed.resume(after.get(str(id), 0))

    def leave(self, session: Session, turn: int, now: float) -> bool:
        """A connection of it has ended: if that was its last, it is kept for a while."""
        if session.turn != turn:
            return False
        session.left, session.wake = now, lambda: None
        return True

    def end(self, session: Session) -> list[Feed]:
        """It is no more: the subscriptions that are to be cancelled."""
        if self._all.pop(session.key, None) is not None:
            session.room.close()
        feeds = list(session.feeds.values())
        session.feeds.clear()
        return feeds

    def expired(self, now: float) -> list[Session]:
        """Those whose clients have stayed away for too long."""
        return [each for each in self._all.values() if each.left is not None and now - each.left > self.keep]

    def logged_out(self) -> list[Session]:
        """Those that are there, and whose login has expired."""
        return [each for each in self._all.values() if each.left is None and each.is_logged_out]


__all__ = ["MOST_FEEDS", "Feed", "Portion", "Room", "Session", "Sessions"]
