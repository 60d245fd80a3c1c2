"""Timestamp order: the events of all sources of a sink's channels, in order of publication.

An event waits until no source can have an older one in the making. For that each source *promises* a time: none of its
later events is older. What waits is released up to the least promise of all; of events with the same time, those of the
source whose id comes first, and of one source in their order.

Local sources promise the present: an event is stamped under its source's lock, so whoever reads the time and then finds
that lock free, or waits for it, has seen every older event of the source. Publishers do that for each other, and hardly
any event ever waits; publishing costs nothing where nobody asked for this order. A stand-in for a source of another
node has a `promise`, None until it is known, and so has a source of this node that passes on another federation's.

Should the wall clock be set back, an event counts as no older than the one before it, and than what was promised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headwater.channel.queues.mailbox import Item, Mailbox, part_of
from headwater.errors import ClosedError

if TYPE_CHECKING:
    from headwater.channel.concurrency.bounded_queue import BoundedQueue
    from headwater.channel.concurrency.gate import Gate
    from headwater.channel.routing.attachment import Attachment
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.channel.routing.letter import Chunk, Letter
    from headwater.channel.routing.wiring import Wiring
    from headwater.channel.time.timer_engine import Timers


class TimedNode(Protocol):
    """A node, as events wait there for their turn by time."""

    @property
    def closed(self) -> bool: ...
    @property
    def _wiring(self) -> Wiring: ...
    @property
    def _timers(self) -> Timers: ...
    @property
    def _stamp(self) -> Callable[[], int]: ...


TICK = 0.002  # seconds until it is looked again whether an event of this very moment may go
Place = tuple[int, str]  # in the order: a time in nanoseconds, and the id of a source


class _Sources(NamedTuple):
    """Those whose events may come, as of one version of the wiring."""

    version: int
    gates: list[Gate]  # of local ones
    first: str | None  # of their ids, the one that goes first
    remote: list[Source]


class OrderedMailbox(Mailbox):
    """A mailbox in which events wait for their turn by time, before they are queued for delivery.

    Both together are bounded by the queue's limit, with its policy. Unlike in other mailboxes `put` never takes the
    token; `dispatch` does, after seeing what may be released."""

    def __init__(
        self, *args: Any, node: TimedNode, attachments: Mapping[tuple[Any, int], Attachment], **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._node, self._attachments = node, attachments
        self._early: list[tuple[int, str, int, Item]] = []  # a heap by place; then by number, in order of arrival
        self._ahead = 0  # events in there
        self._released = 0  # the time of the last event that was released
        self._promised = 0  # by local sources
        self._latest = 0  # the latest time that a local source was heard of, or promised
        self._last: dict[int, int] = {}  # of each source, by number, the time of its last event
        self._armed = False
        self._sources = _Sources(-1, [], None, [])

    # ── in ──

    def put(self, item: Item) -> bool:
        with self.lock:
            fitting = self._fitting(item)
            if fitting is None:
                return False
            self._enter(fitting)
            if self._applies_backpressure and self.waiting >= self.limit and (self.slowed or not self.held):
                self._full.add(self)
            return not self.held

    def put_quick(self, attachment: Attachment, letter: Letter | Chunk, n: int, ready: list[BoundedQueue]) -> bool:
        """There is no such way here."""
        return False

    def _enter(self, item: Item) -> None:
        letter, n = item[1], item[2]
        source = letter.source
        stamp = max(letter.stamp, self._last.get(source.number, 0))
        if source.local and not source.relays:
            stamp = max(stamp, self._promised)
            self._latest = max(self._latest, stamp)
        self._last[source.number] = stamp
        if stamp < self._released:
            self.late += n
            self._push(item)
        else:
            self._wait(stamp, source.id, item)

    def _wait(self, stamp: int, id: str, item: Item) -> None:
        heappush(self._early, (stamp, id, next(self._number), item))
        self._ahead += item[2]

    # ── from waiting to the queue ──

    def dispatch(self) -> None:
        """Release what may go, and have it delivered; no lock is held."""
        if self._early:
            self._advance()
        if self.inline:
            super().dispatch()
        elif not self.pull:
            with self.lock:
                taken = self._take()
            if taken:
                self.dispatcher.ready(self)

    def release(self) -> None:
        """Sources have promised more, or are gone: see whether something may go. Call it without any lock."""
        if self._early or self.closed:
            self.dispatch()

    def _advance(self) -> None:
        """Queue the early events that nothing older can follow any more: the watermark, which is the least of what all
        sources have promised, has passed them. If a source of this node holds it up, look again in a moment: nobody
        else would tell."""
        # The order matters: what is not seen after these three steps is no older than `now`.
        now = self._now()
        sources = self._who()
        for gate in sources.gates:
            if not gate.token:
                with gate:  # someone is publishing: wait until that event has come
                    pass
        bound, local = _least(now, sources)
        end = self._node.closed  # nothing is worth waiting for
        with self.lock:
            self._promised = max(self._promised, now)
            self._latest = max(self._latest, now)
            early = self._early
            before = len(early)
            while early and (end or bound is None or early[0][:2] <= bound):
                self._queue_first()
            if len(early) < before:
                self._notify()
            arm = bool(early) and local and not self._armed
            self._armed |= arm
        if arm:
            with suppress(ClosedError):  # the node is closing, which releases everything
                self._node._timers.call_after(TICK, self._tick)

    def _queue_first(self) -> None:
        self._released, _, _, item = heappop(self._early)
        self._ahead -= item[2]
        self._push(item)

    def _tick(self) -> None:
        self._armed = False
        self.release()

    def _now(self) -> int:
        """The time; never before what was heard from local sources, even if the clock is set back."""
        latest = self._latest  # read first: what it was taken from is in the past
        now = self._node._stamp()
        return now if now >= latest else latest + 1

    def _who(self) -> _Sources:
        """The sources whose events may still come, kept until the wiring changes: their gates, and those of other
        nodes, which promise."""
        wiring, found = self._node._wiring, self._sources
        if found.version == wiring.version:
            return found
        with wiring.lock:
            flows = [
                flow
                for attachment in self._attachments.values()
                for lineup in attachment.channel.lineups
                if lineup.how(attachment.entry) != "never"
                for flow in lineup.flows
            ]
            version = wiring.version
        sources = {flow.source.number: flow.source for flow in flows}
        local = [source for source in sources.values() if source.local and not source.relays]
        remote = [source for source in sources.values() if not source.local or source.relays]
        first = min((source.id for source in local), default=None)
        found = self._sources = _Sources(version, [source.lock for source in local], first, remote)
        with self.lock:
            self._last = {number: stamp for number, stamp in self._last.items() if number in sources}
        return found

    # ── out, and the end ──

    def pop(self) -> Item | None:
        if self._early and not self.held:
            self._advance()
        return super().pop()

    def turn(self, budget: int) -> bool:
        if self._early:
            self._advance()
        return super().turn(budget)

    def settle(self) -> None:
        """The node closes, and its sources have stopped: release everything, in order."""
        self._advance()
        if not self.inline:
            self.dispatch()

    def resume(self) -> bool:
        if super().resume() and not self.inline:
            self.token.append(None)  # it is for `dispatch` to take
        return bool(self.items or self._early)

    def close(self, *, drop: bool) -> int:
        """As of any mailbox; what is not dropped is queued, and the caller calls `release` without any lock."""
        gone = super().close(drop=drop)
        with self.lock:
            while self._early:
                self._queue_first()
            self._notify()
        return gone

    def _forget(self, events: int) -> None:
        before = self.dropped
        super()._forget(events)
        events -= self.dropped - before
        while events > 0 and self._early:
            stamp, id, _, oldest = heappop(self._early)
            n = oldest[2]
            self._ahead -= n
            gone = min(events, n)
            self._drop(oldest, gone)
            events -= gone
            if gone < n:
                # The rest keeps its place: no other event of its source that waits is older, or was there before.
                heappush(self._early, (stamp, id, -1, part_of(oldest, gone, n)))
                self._ahead += n - gone

    def _empty(self) -> int:
        gone = super()._empty()
        early, self._early, self._ahead = self._early, [], 0
        for *_, item in early:
            self._drop(item, item[2])
            gone += item[2]
        return gone

    def _taken_out(self) -> list[Item]:
        early = sorted(self._early, key=lambda entry: entry[:3])
        self._early.clear()
        self._last.clear()
        self._ahead = 0
        return super()._taken_out() + [entry[3] for entry in early]

    def _put_anew(self, item: Item) -> None:
        self._enter(item)

    # ── state ──

    @property
    def waiting(self) -> int:
        return super().waiting + self._ahead

    @property
    def idle(self) -> bool:
        return bool(self.token) and (self.held or not (self.items or self._early))

    def contents(self) -> list[Item]:
        with self.lock:
            queued: list[Any] = list(self.items.copy())
            early = sorted(self._early, key=lambda entry: entry[:3])
        return queued + [entry[3] for entry in early]


def _least(now: int, sources: _Sources) -> tuple[Place | None, bool]:
    """The least promise, None where nobody holds anything back; and whether it is a source's of this node."""
    bound: Place | None = None if sources.first is None else (now, sources.first)
    local = bound is not None
    for source in sources.remote:
        if source.closed:
            continue
        promise = source.promise
        if promise is None:
            return (-1, ""), source.local
        place = promise, source.id
        if bound is None or place < bound:
            bound, local = place, source.local
    return bound, local
