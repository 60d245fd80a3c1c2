"""What time itself brings about: `every 10 s`, and that something has not changed for a minute.

Since when is waited is kept in the file, per object and what is waited for, and shared by all triggers that wait for
the same. Whoever has a clock meets `Timer`: it is told, after a commit, when something is due, and has the node run an
errand in the queue then (`Administer("due", …)`), so that time is judged in order with everything else. A deadline that
was passed while the node was down is due at once; of the ticks of `every` that were missed there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headwater.objects.journal import Journal, Kept
from headwater.objects.triggers import tables
from headwater.objects.triggers.events import Listened, operations, pattern_of

if TYPE_CHECKING:
    from headwater.store.migrations import Execute


class Deadline(NamedTuple):
    """One thing that is waited for, of an object (its whole name) or, where that is a length of time, of the clock."""

    object: str
    what: str


class Timer(Protocol):
    """Whoever has a clock."""

    def at(self, deadline: Deadline, when: int | None) -> None:
        """Have the node run what is due then, in microseconds since 1970, instead of what was said before; None: not
        at all."""
        ...


class NoTimer:
    """Where nobody has a clock: deadlines are kept, and nothing comes of them."""

    def at(self, deadline: Deadline, when: int | None) -> None:
        pass


def what(listened: Listened) -> str:
    """How a happening of the time is named: as the operation that it is told as."""
    return operations(listened)[0]


class Deadlines:
    """Since when what is waited for has not happened."""

    def __init__(self, journal: Journal, timer: Timer) -> None:
        self.timer = timer
        self._since: Kept[Deadline, int] = Kept(journal)
        self._waited: dict[str, dict[Listened, int]] = {}  # name or pattern -> what is waited for, how many ask
        self._moved: dict[Deadline, None] = {}  # since the last commit

    def ask(self, listened: Listened, times: int, now: int) -> None:
        """A trigger waits for this; with -1, it does not any more."""
        if listened.kind not in ("every", "unchanged"):
            return
        waited = self._waited.setdefault(listened.subject, {})
        waited[listened] = waited.get(listened, 0) + times
        if waited[listened] <= 0:
            del waited[listened]
        if not waited:
            del self._waited[listened.subject]
        if listened.kind == "every":
            tick = Deadline(listened.subject, what(listened))
            self._move(tick, None if listened not in self._waited.get(listened.subject, {}) else
                       self._since.get(tick) or now)  # fmt: skip

    def waited(self, object: str) -> Iterator[Listened]:
        """What is waited for of an object."""
        if not self._waited:
            return
        yield from self._waited.get(object, ())
        path = object[2:].partition("/")[2]
        for name, many in self._waited.items():
            if "*" in name and pattern_of(name).matches(path):
                yield from many

    def changed(self, object: str, listened: Listened, now: int) -> None:
        """It has changed: what is waited for begins anew."""
        self._move(Deadline(object, what(listened)), now)

    def begin(self, object: str, listened: Listened, now: int) -> None:
        """Someone waits for it from now on, unless someone did before."""
        if self._since.get(Deadline(object, what(listened))) is None:
            self.changed(object, listened, now)

    def end(self, object: str) -> None:
        """The object is no more."""
        for listened in self.waited(object):
            self._move(Deadline(object, what(listened)), None)

    def since(self, deadline: Deadline) -> int | None:
        """Since when it is waited for; None if it is not."""
        return self._since.get(deadline)

    def over(self, deadline: Deadline, now: int) -> Listened | None:
        """What has been waited for long enough, and begins anew if it is a tick; None if it has not, or nobody does."""
        since = self._since.get(deadline)
        found = next((each for each in self._all(deadline.object) if what(each) == deadline.what), None)
        if since is None or found is None:
            self._move(deadline, None)
            return None
        if now < since + found.length:
            self._moved[deadline] = None  # asked for too early: say it once more
            return None
        self._move(deadline, since + (now - since) // found.length * found.length if found.kind == "every" else None)
        return found

    def _all(self, object: str) -> Iterator[Listened]:
        yield from self._waited.get(object, ()) if not object.startswith("//") else self.waited(object)

    def _move(self, deadline: Deadline, since: int | None) -> None:
        self._since.put(deadline, since)
        self._moved[deadline] = None

    def committed(self) -> None:
        """Tell the timer of what has moved."""
        for deadline in self._moved:
            since = self._since.get(deadline)
            found = next((each for each in self._all(deadline.object) if what(each) == deadline.what), None)
            self.timer.at(deadline, None if since is None or found is None else since + found.length)
        self._moved.clear()

    def write(self, execute: Execute) -> None:
        """What has changed since the last time."""
        for key, since in self._since.dirty():
            tables.write_deadline(execute, key, since)
        self._since.settled()

    def load(self, execute: Execute) -> None:
        """What the file has; the timer is told by `committed`."""
        for object, named, since in tables.deadlines(execute):
            self._since.load(Deadline(object, named), since)
            self._moved[Deadline(object, named)] = None


__all__ = ["Deadline", "Deadlines", "NoTimer", "Timer", "what"]
