"""How far a durable group is with one source of its node: what it reads next, and what of it is not done.

While it is *live* it takes events as they are published; when too many wait it leaves them to the log, and reads on
from there until it has come to the present: either it has read everything, with the source standing still, or it reads
on. All before the `floor` is done.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any

from headwater.channel.reports.tally import Fates

if TYPE_CHECKING:
    from headwater.channel.routing.letter import Letter

MOST = 4096  # events that wait in memory; the rest is in the log
_PAST = count(1 << 40)  # numbers that no source of this process has


class PastSource:
    """A source of an earlier process, or one that is closed: only its events are left, in the log."""

    local = True
    rereads = False
    position_key: str | None = None
    priority = 0
    log = None

    def __init__(self, name: str, node: str, channel: str) -> None:
        self.name, self.node, self.number = name, node, next(_PAST)
        self.key = name
        self.id = f"{channel}/{name}"
        self._fates = Fates()

    def fates(self, channel: Any) -> Fates:
        """Where it is counted what becomes of its events."""
        return self._fates


class Following:
    """Of one source, by its name in the log. Changed under the lock of the group, but for `live` and what is put in,
    which are so under that of the source."""

    # fmt: off
    __slots__ = (
        "_done", "_open", "again", "cursor", "floor", "held", "key", "live", "name", "noted", "past", "queue", "rests",
    )
    # fmt: on

    def __init__(self, name: str, key: str, floor: int, again: int) -> None:
        self.name, self.key = name, key
        self.floor = self.cursor = floor
        self.again = again  # up to here an earlier process may have handed events over
        self.noted = again  # and up to here it is written that this one may have
        self.live = False
        self.rests = False  # all that there is was read, and no source of its name is open
        self.held = False  # nothing is handed over: it is about to leave
        self.queue: deque[Letter] = deque()
        self.past: PastSource | None = None
        self._open: deque[int] = deque()  # what was taken from the queue, and of that
        self._done: set[int] = set()  # what is done, though something before it is not

    def put(self, letter: Letter) -> bool:
        """An event as it is published, while it is live: whether there is room; else it is to be read."""
        if letter.seq <= self.cursor:
            return True  # it was in the log already when that was read
        if len(self.queue) >= MOST:
            self.live = False
            return False
        self.queue.append(letter)
        self.cursor = letter.seq
        return True

    def take(self) -> Letter:
        """The next event: it is not done from here on."""
        letter = self.queue.popleft()
        self._open.append(letter.seq)
        return letter

    def put_back(self, letter: Letter) -> None:
        """Nobody has the event that was taken last: it is the next again."""
        if self._open and self._open[-1] == letter.seq:  # else it was done before, of which word came late
            self._open.pop()
            self.queue.appendleft(letter)

    def done(self, seq: int) -> None:
        """An event is done: the floor may be higher now."""
        self._done.add(seq)
        while self._open and self._open[0] in self._done:
            self.floor = self._open.popleft()
            self._done.remove(self.floor)
        self.settle()

    @property
    def idle(self) -> bool:
        """Whether nobody has anything of it."""
        return not self._open

    def settle(self) -> None:
        """Nothing is open, and nothing waits: what follows up to here is not wanted, and so it is done."""
        cursor = self.cursor  # before the queue is looked at: what is put in meanwhile comes after it
        if not self._open and not self.queue:
            self.floor = max(self.floor, cursor)


__all__ = ["MOST", "Following", "PastSource"]
