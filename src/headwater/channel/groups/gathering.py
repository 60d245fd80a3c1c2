"""What waits for the members of a group, while all of them are at something: it is gathered, and handed out in runs.

As long as a member has nothing to do, an event goes to it at once. While all are busy it costs least to do nothing with
an event but to put it on the list of its source: machine code does that (`routing/fast_path.py`), with the interest
judged. Who becomes free takes a run of what has gathered, and so does, when there is a lot, whoever has the fewest.

Who puts something on an empty list calls `Gathering.dispatch`; of every 64 events of a source one comes by Python, and
does so too. Everything is taken out under the lock of the group, and a list is left with something in it only while
some member is at something: it will acknowledge that, or be gone, and then the lists are looked at again.

Machine code asks no clock. What it puts on a list was published about when the list began, or when something with a
time of its own came before it on the list: one of 64 events, and a mark that a timer puts there while something waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from headwater.channel.queues.mailbox import Mailbox
from headwater.channel.routing.fast_path import SAMPLE_MASK, Bypass
from headwater.channel.routing.letter import Letter
from headwater.errors import ClosedError

if TYPE_CHECKING:
    from headwater.channel.contract import NodeContract
    from headwater.channel.routing.contract import RoutedSource
    from headwater.channel.routing.route import Flow, Ready
    from headwater.match.counters import Ledger

LEAST_QUICK = 256  # events that may wait, from which on machine code puts them there: it looks at that every 64th time
MARK_SECONDS = 0.1  # by which the time of an event is wrong at most


class _Mark:
    """What follows on it was published at this time, or later."""

    __slots__ = ("stamp",)

    def __init__(self, stamp: int) -> None:
        self.stamp = stamp


class Gathered:
    """The events of one source that nobody has: letters, records that follow on what is before them, marks, and, where
    some in between are not wanted, the number of the last of these (`BypassSlots`)."""

    __slots__ = ("_gaps_taken", "_last", "_marks", "_time", "gap_count", "pending", "source")

    def __init__(self, source: RoutedSource, last: int) -> None:
        self.source, self._last = source, last
        self._time = 0  # of the first record, if nothing before it has one
        self.pending: list[Any] = []
        self.gap_count, self._gaps_taken, self._marks = bytearray(8), 0, 0

    @property
    def waiting(self) -> int:
        """Events, without what is none."""
        others = int.from_bytes(self.gap_count, "little") - self._gaps_taken + self._marks
        return max(0, len(self.pending) - others) if others else len(self.pending)

    def date(self) -> None:
        """The first of some events is there, unless somebody was quicker to take it: about now."""
        if self.pending:
            self._time = self.source._stamp()

    def mark(self) -> None:
        """What comes from here on comes after this moment. Under the lock of the group."""
        pending, now = self.pending, self.source._stamp()
        last = pending[-1]
        if last.__class__ is _Mark:
            last.stamp = now
        else:
            self._marks += 1
            pending.append(_Mark(now))

    def passed(self, seq: int) -> None:
        """An event, and all before it, does not come here: what machine code puts on the list next follows on it. The
        source's lock is held."""
        if self.pending:
            self.gap_count[:] = (int.from_bytes(self.gap_count, "little") + 1).to_bytes(8, "little")
            self.pending.append(seq)
        else:
            self._last = seq

    def take(self, most: int) -> list[Letter]:
        """The first events, taken out: no more than so many. What is left begins with an event, so that there is
        nothing left if there is none."""
        pending = self.pending
        items = pending[:most]
        del pending[: len(items)]
        while pending and pending[0].__class__ in (int, _Mark):
            items.append(pending.pop(0))
        source, seq, now = self.source, self._last, perf_counter_ns()
        stamp = self._time or source._stamp()
        priority, made = source.priority, list[Letter]()
        for item in items:
            if item.__class__ is bytes:
                seq += 1
                made.append(Letter(None, item, source, seq, stamp, now, priority))
            elif item.__class__ is int:
                seq = item
                self._gaps_taken += 1
            elif item.__class__ is _Mark:
                stamp = item.stamp
                self._marks -= 1
            else:
                seq, stamp = item.seq, item.stamp
                made.append(item)
        self._last, self._time = seq, stamp if pending else 0
        return made


class GatheringMailbox(Mailbox):
    """Of a group: what is gathered waits before what is in it, and counts for publishers as if it were there too."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.gathers = False  # events may be put on the lists of their sources
        self.gathered: dict[RoutedSource, Gathered] = {}
        self._brims = False  # it was full, and is not half empty yet: publishers go on in one go
        self._turn = 0
        super().__init__(*given, **named)
        self._update_bypass()

    @property
    def waiting(self) -> int:
        return len(self.items) + self._chunk_surplus + self.gathered_events

    @property
    def gathered_events(self) -> int:
        return sum([each.waiting for each in list(self.gathered.values()) if each.pending])

    @property
    def is_full(self) -> bool:
        return (self._brims and not self.closed) or super().is_full

    @property
    def may_gather(self) -> bool:
        """Whether an event would be the next after those that are gathered."""
        return self.gathers and not self.items and not self.held and bool(self.token)

    def gather(self, on: bool) -> None:
        """Whether events may be gathered from here on."""
        if on != self.gathers:
            with self.lock:
                self.gathers = on
                self._update_bypass()

    @property
    def _blocks(self) -> bool:
        return not self.gathers or super()._blocks

    def measure(self, gathered: int) -> None:
        """Something was gathered, or taken, so that so many are: publishers wait while it is full, and then until half
        of it is gone."""
        waiting = gathered + len(self.items) + self._chunk_surplus
        if self._brims:
            if waiting <= self.limit // 2 or self.closed:
                with self.lock:
                    self._brims = False
                    self._full.discard(self)
                    self._notify()
        elif waiting >= self.limit and not self.closed:
            self._brims = True
            self._full.add(self)

    def take(self, most: int) -> list[Letter]:
        """Events of one source that are gathered, no more than so many: of each source in turn."""
        some = [each for each in self.gathered.values() if each.pending]
        if not some:
            return []
        self._turn += 1
        return some[self._turn % len(some)].take(most)

    def drop_gathered(self, place: Any) -> None:
        """There is nobody any more."""
        for each in self.gathered.values():
            for letter in each.take(len(each.pending)):
                self._drop((place, letter, 1, 0, 0.0), 1)
        self.measure(0)


class Gathering:
    """The fast path of the sources of a channel to a group: a `BypassRoute`, and what has it looked at (`dispatch`)."""

    remote = True
    inline = False

    def __init__(
        self, node: NodeContract, mailbox: GatheringMailbox, lock: threading.Lock, look: Callable[[], None]
    ) -> None:
        self._node, self._mailbox, self._lock, self.dispatch = node, mailbox, lock, look
        self._quick = mailbox.limit >= LEAST_QUICK
        self._ticks = False  # a timer is set

    def of(self, source: RoutedSource, last: int) -> Gathered:
        """Where the events of a source are gathered; `last`: the number of the last that was not. Under the lock of the
        group."""
        found = self._mailbox.gathered.get(source)
        if found is None:
            self._forget()
            found = self._mailbox.gathered[source] = Gathered(source, last)
        return found

    def _forget(self) -> None:
        """Sources that are no more."""
        for source, each in list(self._mailbox.gathered.items()):
            if source.closed and not each.pending:
                del self._mailbox.gathered[source]

    def keep_time(self) -> None:
        """Something is left on lists: what machine code adds to it is told apart by time. Under the lock of the
        group."""
        if self._quick and not self._ticks:
            with suppress(ClosedError):
                self._node._timers.call_after(MARK_SECONDS, self._tick)
                self._ticks = True

    def _tick(self) -> None:
        with self._lock:
            self._ticks = False
            left = [each for each in self._mailbox.gathered.values() if each.pending]
            for each in left:
                each.mark()
            if left:
                self.keep_time()

    def for_flow(self, flow: Flow) -> GatheringBypass | None:
        """Called while the source stands still."""
        source = flow.source
        if not self._quick or flow.channel is not source.channel or not source.local or self._mailbox.closed:
            return None
        with self._lock:
            gathered = self.of(source, flow.seen)
            gathered.passed(flow.seen)
        return GatheringBypass(self._mailbox, gathered, self)


class GatheringBypass(Bypass):
    """The same of one source. It is closed while there is something in the mailbox, which is before what comes, and
    while a member is to have its events in another way."""

    __slots__ = ("_gathered", "_gathering", "_kept", "_matching")

    def __init__(self, mailbox: GatheringMailbox, gathered: Gathered, gathering: Gathering) -> None:
        assert isinstance(mailbox.items, deque)
        self._gathered, self._gathering = gathered, gathering
        self.pending, self.gap_count, self.send_first = gathered.pending, gathered.gap_count, self._first
        self.token, self.items, self.blocks_bypass = mailbox.token, mailbox.items, mailbox.blocks_bypass
        self.cls, self.thread = None, bytearray(8)
        self.judge, self.last_queued = None, -1
        self._matching = self._kept = None

    def judged_by(self, matching: Any, totals: Any, ledger: Ledger | None) -> None:
        """Only what an entry of this matching wants is gathered, from here on: the source stands still."""
        self._matching = None if matching.settle() else matching
        self.judge, self._kept = matching.judge_in(totals, ledger)

    def _first(self) -> None:
        """Machine code has put a record on the list, and nothing else is there."""
        self._gathered.date()
        self._gathering.dispatch()

    def passes_by(self, letter: Letter, ready: Ready) -> None:
        """An event was published by Python; under the source's lock."""
        if not letter.seq & SAMPLE_MASK and self.pending:
            ready.append(self._gathering)  # type: ignore[arg-type]
        if self._matching is not None and self._matching.settle():
            self._matching = None


__all__ = ["Gathered", "Gathering", "GatheringMailbox"]
