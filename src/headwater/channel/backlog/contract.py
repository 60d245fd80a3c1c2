"""The protocol of a backlog, what reading one gives, and what it knows of the channel whose past it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from headwater.channel.backlog.stretch import PastContext, Stretch, StretchJudge

if TYPE_CHECKING:
    from headwater.channel.backlog.ring import EventRing
    from headwater.channel.time.clock import Clock
    from headwater.interest import Interest
    from headwater.store.log.channel_log import ChannelLog
    from headwater.types import EventType


class RememberedNode(Protocol):
    """The node of a channel whose events are remembered."""

    @property
    def name(self) -> str: ...
    @property
    def clock(self) -> Clock: ...


class RememberedSource(Protocol):
    """A source, whose last events may be in a ring."""

    ring: EventRing | None

    @property
    def name(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def log(self) -> ChannelLog | None: ...
    @property
    def context(self) -> PastContext | None: ...
    @property
    def seq(self) -> int: ...


class RememberedChannel(Protocol):
    """A channel whose events are remembered: by rings of its sources, or by the node's log."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> EventType | None: ...
    @property
    def node(self) -> RememberedNode: ...
    @property
    def sources(self) -> Mapping[str, RememberedSource]: ...


class Parts(Protocol):
    """Stretches as they are read."""

    def __iter__(self) -> Iterator[Stretch]: ...

    @property
    def gap(self) -> tuple[int, int] | None:
        """Once the first was asked for: see `Reading.gap`."""


class Reading(Iterator[Stretch]):
    """Events of one source with after < number <= upto, stretch by stretch, as one moment had them.

    `upto` is where it ends: the last event that there was, if more was asked for. `reached` is how far it has come: all
    numbers up to it are told of, whether anything passed or not, but for those in the `gap`."""

    def __init__(self, parts: Parts, after: int, upto: int, judge: StretchJudge | None) -> None:
        self.upto, self.reached, self._parts, self._judge = max(after, upto), after, parts, judge
        self._stretches = iter(parts)
        self._first: Stretch | None = None  # it was looked for a gap
        self._begun = False
        self._failure: Exception | None = None  # why it cannot go on

    def __next__(self) -> Stretch:
        found = self._next()
        if found is None:
            self.reached = self.upto
            raise StopIteration
        judged = found if self._judge is None else self._judge(found)
        self.reached = found.upto
        return judged

    @property
    def gap(self) -> tuple[int, int] | None:
        """First and last number of what was asked for and is no longer there, or None: it can answer from the next
        number on."""
        if not self._begun:
            self._first = self._next()
        return self._parts.gap

    def _next(self) -> Stretch | None:
        """The next as it is read. Where that fails, it fails from then on: what could not be read is not at its end."""
        if self._failure is not None:
            raise self._failure
        self._begun, found, self._first = True, self._first, None
        try:
            return next(self._stretches, None) if found is None else found
        except Exception as error:
            self._failure = error
            raise


class Backlog(Protocol):
    """The events of a channel's own sources, by source and number. Threads may share it; no lock that publishers need
    is held for longer than a copy takes."""

    remembers: bool  # whether there can be anything in it

    def first(self, source: str) -> int:
        """From which number of a source on it can answer; one more than `last`, if it has nothing."""
        ...

    def last(self, source: str) -> int:
        """The number of a source's last event."""
        ...

    def read(
        self, source: str, after: int = 0, upto: int | None = None, interest: Interest | StretchJudge | None = None
    ) -> Reading:
        """Events of a source with after < number <= upto (None: the last there is), and of these what passes the
        interest, or what it makes of them.

        An interest with state begins after `after`, as if it had been subscribed there; to go on with a state, give a
        `StretchJudge` that has it. `Reading.gap` says what is no longer there."""
        ...


def judge_of(interest: Interest | StretchJudge | None, channel: RememberedChannel, source: str) -> StretchJudge | None:
    """What runs it over a source's events; None where all of them pass."""
    if interest is None or isinstance(interest, StretchJudge):
        return interest
    found = channel.sources.get(source)  # what passes on events of another node has the name that they have there
    name, node = (source, channel.node.name) if found is None else (found.name, found.node)
    context = None if found is None else found.context
    return StretchJudge(interest, name, node, clock=channel.node.clock, context=context)


class NoBacklog:
    """Of a channel that keeps no past: all of it is a gap."""

    remembers = False

    def __init__(self, channel: RememberedChannel) -> None:
        self._channel = channel

    def first(self, source: str) -> int:
        return self.last(source) + 1

    def last(self, source: str) -> int:
        found = self._channel.sources.get(source)
        return 0 if found is None else found.seq

    def read(
        self, source: str, after: int = 0, upto: int | None = None, interest: Interest | StretchJudge | None = None
    ) -> Reading:
        last = self.last(source)
        upto = last if upto is None else min(upto, last)
        return Reading(Gone(after, upto), after, upto, None)


class Gone:
    """Events that are no longer there."""

    def __init__(self, after: int, upto: int) -> None:
        self.gap = (after + 1, upto) if upto > after else None

    def __iter__(self) -> Iterator[Stretch]:
        return iter(())
