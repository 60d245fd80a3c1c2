"""How far a durable subscription is with each source: kept around its handler, so that nothing is lost at a restart.

An event is *done* when its handler has returned or it was acknowledged; its sequence number is then the position of
its source, and what is not after the position is not shown again. Events of one source are handed over in their order,
so all before a done one are done too: a handler that raised has had its event, and the next position covers it. Sources
of this process are not kept track of (`position_key` is None): they end with it, as do their events. But for those that
are logged (`kept_key`), and so go on in the next one under the same numbers: what a sink has missed of them is read
from the log when it is subscribed again, or they are made again.

Nothing more is handed over while it cannot be written that what went before is done, or was handed over (the disk is
full): the subscription is paused, it is tried again every `RETRY_SECONDS`, and then it goes on by itself. So after a
kill there is of each source never more than one call of the handler of which nothing is written, and its events are the
first after those that are.

Events are *redelivered* that may have been handed over before, and none else are marked so: those up to the last that
is written to have been handed over, by whichever process or node; and where the last process was killed, the first one
after them, if its source says that it may have come there. One that ends in order writes all that it has handed over
(`end`), and of which sources it has not come to know whether that first one was. A sink that moves takes this along.
Within one process nothing is handed over twice, acknowledged or not.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec.structs import astuple

from headwater.channel.options.delivery import Reliable
from headwater.channel.queues.keeper import InState, InTransaction, Keeper, Points
from headwater.channel.queues.mailbox import Item, part_of
from headwater.channel.queues.position_keys import LOGGED
from headwater.channel.queues.position_keys import key_of as log_key
from headwater.channel.routing.letter import About, Chunk, Letter
from headwater.errors import ClosedError, StoreError, SubscriptionError
from headwater.late import asyncio, np
from headwater.store import NodeState
from headwater.store.state import LAST

if TYPE_CHECKING:
    from headwater.channel.options.subscribe import Options
    from headwater.channel.queues.mailbox import Mailbox
    from headwater.channel.routing.attachment import Attachment
    from headwater.channel.routing.contract import RoutedChannel
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.channel.time.timer_engine import Timers

RETRY_SECONDS = 1.0  # after which it is tried again to write what could not be written
log = logging.getLogger("headwater")


class DurableNode(Protocol):
    """A node, as durable sinks know it."""

    @property
    def state(self) -> NodeState | None: ...
    @property
    def _timers(self) -> Timers: ...


class HandlerCall(Protocol):
    """The call of a handler that is due."""

    event: Any
    items: list[Item]

    def __call__(self) -> Any: ...


class DurableSink(Protocol):
    """A subscription of which it is kept how far it is."""

    _handling: Letter | Chunk | None  # what its handler has just now
    _trouble: str | None  # the last failure of its handler
    _failures: int  # in a row
    _calm: bool

    @property
    def name(self) -> str: ...
    @property
    def node(self) -> DurableNode: ...
    @property
    def cancelled(self) -> bool: ...
    @property
    def paused(self) -> str | None: ...
    @property
    def _options(self) -> Options: ...
    @property
    def _in_order(self) -> str: ...
    @property
    def _mailbox(self) -> Mailbox: ...
    @property
    def _attachments(self) -> Mapping[tuple[RoutedChannel, int], Attachment]: ...
    @property
    def _caught(self) -> type[BaseException]: ...

    def _prepared(self, item: Item) -> HandlerCall | None: ...
    def _leave_out(self, item: Item, events: int) -> None: ...
    def _finish(self, event: Any, result: Any) -> None: ...
    def _hand_back(self, items: list[Item]) -> None: ...
    def _handler_failed(self, error: BaseException, what: Any) -> None: ...
    def _await_failed(self, error: asyncio.CancelledError, what: Any) -> None: ...
    def _went_well(self) -> None: ...
    def _hold(self, why: str) -> None: ...
    def _let_go(self, why: str) -> None: ...
    def _held_for(self, why: str) -> bool: ...


class Carried(NamedTuple):
    """What a sink that moves brings along. It goes on after `positions`: it is done with these events and has not begun
    with others, so that what follows is shown at its new node, also of that node's own sources. Up to `handed` events
    were handed over, and of some sources, `unsure`, the next one may have been. `since`: from where on the state of its
    interest counts."""

    positions: Mapping[str, int]
    handed: Mapping[str, int]
    unsure: Iterable[str]
    since: Mapping[str, int]


class Progress:
    """Of one subscription. Its handler is called by one thread at a time; others say what has come, and acknowledge."""

    moves = True  # it may go on at another node
    leaves_to_log = True  # what does not follow on what it has had, it leaves, and has from the log later

    def __init__(
        self, subscription: DurableSink, keeper: Keeper, *, manual: bool = False, carried: Carried | None = None
    ) -> None:
        self.subscription, self._keeper, self.manual = subscription, keeper, manual
        self.duplicates = 0  # events that came again and were not shown
        self._lock = threading.Lock()
        self._handing = threading.Lock()  # taken first: nothing is noted, and handed over, while it is ended
        # Up to here events were handed over before this process, or elsewhere.
        self._handed_before = keeper.handed() if carried is None else dict(carried.handed)
        # Where something was handed over and nothing done, it goes on from the beginning.
        done = keeper.positions() if carried is None else carried.positions
        self._done = {**dict.fromkeys(self._handed_before, 0), **done}
        # Sources with which it was before it was made; what waits for it of those without a log is at the node it was.
        self._kept = frozenset(self._done) if carried is None else _logged(self._done)
        # Sources of which the first event after that may have been handed over by a process that was killed; where
        # nothing is written (None), any but those of which this one has handed over an event since.
        self._unsure = keeper.unsure(self._done) if carried is None else set(carried.unsure)
        self._begun: set[str] = set()
        self._opened = False  # it is written that this process hands events over
        self._ended = False  # nothing more of what can be had again is handed over
        self._noted = dict(self._handed_before)  # up to where it is written that events were handed over
        self._beginnings: Points = {}  # that are not written yet
        self._fresh: set[str] = set()  # sources of other nodes with which it began here, and of which none has come
        self._arrived: Points = {}
        self._base: Points = {}  # all before was settled when the oldest event arrived that is not done
        self._out: Points = {}  # pulled, and not known to be done
        self._last: Points = {}  # handed over by this process
        self._passed: Points = {}  # not handed over, after others that are not acknowledged
        # Of sources without a log, what was handed over and is to be acknowledged: it goes with a sink that moves.
        self._unacknowledged: dict[str, deque[Item]] = {}
        # Where the sink was paused, and its queue full: the last event that it could keep. The rest is in a log.
        self.gaps: Points = {}
        # What could not be written: that these are done, and that these were handed over.
        self._owed: Points = {}
        self._owed_handed: Points = {}
        self._unwritten: str | None = None  # why nothing is handed over at the moment
        self.fenced: str | None = None  # why nothing is acknowledged here any more
        # Of a sink that has come from another node: where it is with sources of this one, until it has what it missed.
        self._moved: Points = {} if carried is None else dict(carried.positions)
        # And from where on the state of its interest counts.
        self._since: Points = {} if carried is None else dict(carried.since)

    def rereads(self) -> None:
        """Logs are asked for what follows on where it is, since what comes of their sources by itself is not all;
        nothing has come yet."""
        with self._lock:
            self.gaps = {key: self._done[key] for key in _logged(self._done)}

    # ── what comes ──

    def arrive(self, attachment: Attachment, letter: Letter | Chunk) -> None:
        """Something is put into the queue; called under its source's lock."""
        key = key_of(attachment, letter)
        if key is None:
            return
        first, last = _span(letter)
        with self._lock:
            done = self._done.get(key)
            if done is None or (key in self._fresh and first - 1 > done):
                done = self._done[key] = self._beginnings[key] = first - 1
            self._fresh.discard(key)
            if last <= done:
                return
            if self._arrived.get(key, 0) <= done:
                self._base[key] = max(done, first - 1)
            self._arrived[key] = max(last, self._arrived.get(key, 0))

    def misses(self, attachment: Attachment, letter: Letter | Chunk, full: bool) -> bool:
        """Whether events come after what the sink could keep, or are the first that it cannot."""
        key = key_of(attachment, letter)
        if key is None or (not full and key not in self.gaps):
            return False
        first = _span(letter)[0]
        with self._lock:
            return first > self.gaps.setdefault(key, first - 1)

    def misses_no_more(self, attachment: Attachment, letter: Letter | Chunk) -> bool:
        """Whether these events are the first that the sink could not keep: then it can, for nothing has come since."""
        key, last = key_of(attachment, letter), _span(letter)[0] - 1
        with self._lock:
            if key is None or self.gaps.get(key) != last:
                return False
            del self.gaps[key]
            return True

    def gap(self, channel: Any, source: Source) -> int | None:
        """The last event of a source that the sink could keep, if there are others."""
        return self.gaps.get(_key(channel, source) or "")

    def open_gap(self, channel: Any, source: Source, seq: int) -> None:
        """It has missed something of a source after an event: what comes of it is left, until that does."""
        key = _key(channel, source)
        if key is not None:
            with self._lock:
                self.gaps.setdefault(key, seq)

    def close_gap(self, channel: Any, source: Source) -> None:
        """What it could not keep comes now."""
        with self._lock:
            self.gaps.pop(_key(channel, source) or "", None)

    def unsettled(self, source: Source) -> int | None:
        """The oldest event of a source that has come and may not be done; None if all are done.

        All before it the source may forget, as far as this subscription goes."""
        with self._lock:
            return min(
                (
                    max(self._base[key], done) + 1
                    for key in self._keys(source)
                    if self._arrived.get(key, 0) > (done := self._done.get(key, 0))
                ),
                default=None,
            )

    def position(self, source: Source) -> int:
        """The event of a source after which this subscription goes on; 0 if it has none yet."""
        with self._lock:
            return min((self._done.get(key, 0) for key in self._keys(source)), default=0)

    def knows(self, source: Source) -> bool:
        """Whether it is known from where on this subscription is to have the events of a source."""
        with self._lock:
            keys = self._keys(source)
            return bool(keys) and all(key in self._done for key in keys)

    def was_with(self, channel: Any, source: Source) -> bool:
        """Whether it has had events of a logged source before, or was to: all that it missed comes from the log, and so
        it has no other past."""
        key = _key(channel, source)
        return key is not None and key.startswith(LOGGED) and key in self._kept

    def may_be_owed(self, channel: Any, source: Source) -> bool:
        """Whether it has had events of a source before, or was to, so that what was published since may wait for it."""
        return _key(channel, source) in self._kept

    def missed_after(self, channel: Any, source: Source) -> int | None:
        """The event after which it is to have those of a source of this process that were published before it was
        subscribed; None if it is to have none."""
        if getattr(source, "kept_key", None) is None:
            return self._moved.get(_log_key(source) or "") if self._moved else None
        key = _key(channel, source)
        assert key is not None
        return self._done.get(key, 0 if key in self._handed_before else None)

    def counts_since(self, source: Source) -> int | None:
        """The event of a source of this process after which the state of its interest counts, if it has moved here."""
        return self._since.get(_log_key(source) or "") if self._since else None

    def begins(self, channel: Any, source: Source) -> None:
        """Of a source of this process of which nothing is known, it has what comes from now on; the source stands
        still. It is written by `note_beginnings`, when no lock is held."""
        key = _key(channel, source) if getattr(source, "kept_key", None) is not None else None
        with self._lock:
            if self._moved:
                self._moved.pop(_log_key(source) or "", None)
            if key is not None and key not in self._done:
                self._done[key] = self._beginnings[key] = source.seq

    def begins_after(self, channel: Any, source: Source, seq: int) -> None:
        """The same of a source of another node, of which it is to have what comes after an event."""
        key = _key(channel, source)
        with self._lock:
            if key is not None and key not in self._done:
                self._done[key] = self._beginnings[key] = seq
                self._fresh.add(key)

    def passed_by(self, channel: Any, source: Source, seq: int) -> None:
        """All has come that such a source had sent up to an event. If nothing of it was for the sink, it begins there:
        its interest may have come into force later than it came itself, and what was before is not owed to it."""
        key = _key(channel, source)
        with self._lock:
            if key in self._fresh and key not in self.gaps and seq > self._done.get(key, seq):
                self._done[key] = self._beginnings[key] = seq

    def note_beginnings(self) -> None:
        """Write where it begins: a kill before it is done with its first event does not lose that."""
        if not self._beginnings:
            return
        with self._lock:
            points, self._beginnings = self._beginnings, {}
        if points and not self._keeper.undoes:  # else it is for the handler's own transaction to write anything
            try:
                self._keeper.commit(points, known=False)
                self._reach(points)
            except Exception as error:
                _further(self._owed, points)
                self._unwritable(error)

    def positions(self) -> Points:
        """All of them, by key: that of the source, and with a space and its name for each derived channel."""
        with self._lock:
            return dict(self._done)

    def _keys(self, source: Source) -> list[str]:
        channels = {channel for channel, _ in list(self.subscription._attachments)}
        return [key for channel in channels & source.flows.keys() if (key := _key(channel, source)) is not None]

    # ── what is handed over ──

    def fresh(self, item: Item) -> Item | None:
        """What of an item was not done before, nor handed over by this process."""
        attachment, letter, n = item[:3]
        key = key_of(attachment, letter)
        had = 0 if key is None else self._had(key)
        if not had:
            return item
        if isinstance(letter, Chunk):
            seen = int(np.searchsorted(letter.seqs, had, "right"))
        else:
            seen = 1 if letter.seq <= had else 0
        if not seen:
            return item
        self.duplicates += seen
        self.subscription._leave_out(item, seen)
        return part_of(item, seen, n) if seen < n else None

    def is_fresh(self, item: Item) -> bool:
        """Whether no event of the item was done before, nor handed over by this process."""
        key = key_of(item[0], item[1])
        return key is None or _span(item[1])[0] > self._had(key)

    def _had(self, key: str) -> int:
        """The last event of a source that is not to be handed over again here; all of them where the sink has ended,
        and what waits can be had again by who goes on with it."""
        if self._ended and key.startswith(LOGGED):
            return LAST
        return max(self._done.get(key, 0), self._last.get(key, 0))

    def deliver(self, item: Item) -> None:
        """To the handler, in the thread that runs the mailbox."""
        subscription = self.subscription
        call = self._prepare(item)
        if call is None:
            return
        points = points_of(call.items)
        subscription._handling = call.items[0][1]
        try:
            if not self._began(points, call.items):
                return
            try:
                subscription._finish(call.event, call())
            except BaseException:
                self._failed(points)
                raise
            self._returned(points, call.items)
        except subscription._caught as error:
            subscription._handler_failed(error, call.event)
        finally:
            subscription._handling = None

    async def adeliver(self, item: Item) -> None:
        """To a coroutine handler, on its loop."""
        subscription = self.subscription
        call = self._prepare(item)
        if call is None:
            return
        points = points_of(call.items)
        subscription._handling = call.items[0][1]
        try:
            if not self._began(points, call.items):
                return
            try:
                subscription._finish(call.event, await call())
            except BaseException:
                self._failed(points)
                raise
            self._returned(points, call.items)
        except asyncio.CancelledError as error:
            subscription._await_failed(error, call.event)
        except Exception as error:
            subscription._handler_failed(error, call.event)
        finally:
            subscription._handling = None

    def _prepare(self, item: Item) -> Any:
        why = self._unwritten
        if why is not None and not self._caught_up():
            self.subscription._mailbox.back([item])
            self._wait(why)
            return None
        fresh = self.fresh(item)
        return None if fresh is None else self.subscription._prepared(fresh)

    def _began(self, points: Points, items: list[Item]) -> bool:
        """Whether events may be handed over; else they wait."""
        try:
            self._begin(points, items)
        except ClosedError:
            self.subscription._hand_back(items)  # what can be had again is left out then
            return False
        except Exception as error:
            if self._keeper.undoes and isinstance(error, StoreError):
                raise  # it is not the disk: the connection is not as it should be
            self.subscription._hand_back(items)
            self._unwritable(error)
            return False
        return True

    def _begin(self, points: Points, items: list[Item]) -> None:
        self.note_beginnings()
        if self._keeper.undoes:  # of a handler's own transaction nothing is noted, and nobody waits for its database
            self._keeper.begin(points, {})
            if self._ended and _logged(points):  # whoever goes on with it may not have seen that this was begun
                self._keeper.failed(points)
                raise self._over()
            self._note_handed(points, {}, items)
            return
        with self._handing:
            if self._ended and _logged(points):
                raise self._over()
            if points and not self._opened:
                self._keeper.open(over=self._ended)
                self._opened = True
            noted = self._to_note(points, several=len(items) > 1 or items[0][2] > 1)
            if noted:
                self._keeper.begin(points, noted)
            self._note_handed(points, noted, items)

    def _over(self) -> ClosedError:
        return ClosedError(f"subscription {self.subscription.name!r} has ended; there are no more events")

    def _note_handed(self, points: Points, noted: Points, items: list[Item]) -> None:
        with self._lock:
            if noted:
                _further(self._noted, noted)
            if self.manual and self.moves:
                for item in items:
                    key = key_of(item[0], item[1])
                    if key is not None and not key.startswith(LOGGED):
                        self._unacknowledged.setdefault(key, deque()).append(item)
            _further(self._last, points)
            if self._unsure is None or self._unsure:
                begun = {key for key, seq in points.items() if seq > self._handed_before.get(key, 0)}
                if self._unsure is None:
                    self._begun |= begun
                else:
                    self._unsure -= begun

    def _to_note(self, points: Points, *, several: bool) -> Points:
        """What must be known to have been handed over before some more events are: all of these, if they are several;
        of a single one it goes without saying that it may have been, but not of one before it that is not done."""
        if several or not self.manual:
            return points if several else {}
        with self._lock:
            before = {key: self._last.get(key, 0) for key in points}
            known = {key: max(self._done.get(key, 0), self._noted.get(key, 0)) for key in before}
            return {key: seq for key, seq in before.items() if seq > known[key]}

    def _returned(self, points: Points, items: list[Item]) -> None:
        if not self.manual:
            try:
                self._commit(points)
            except Exception as error:
                if self._keeper.undoes:
                    with self._lock:
                        for key in points:  # what was done is undone: it is to be handed over again
                            self._last.pop(key, None)
                    self.subscription._hand_back(items)
                else:
                    _further(self._owed, points)
                self._unwritable(error)
                return
        if self.subscription._failures:
            self.subscription._went_well()

    def _failed(self, points: Points) -> None:
        if self.manual:
            return
        try:
            self._reach(self._keeper.failed(points))
        except Exception as error:  # what the handler raised is what is to be heard of, too
            if not self._keeper.undoes:
                _further(self._owed_handed, points)
                self._unwritable(error)

    # ── where nothing can be written ──

    def _unwritable(self, error: Exception) -> None:
        """What was handed over, or is to be, cannot be noted: nothing more is handed over until it can."""
        subscription, first = self.subscription, self._unwritten is None
        self._unwritten = f"its position cannot be kept: {error}"
        subscription._trouble = f"{type(error).__name__}: {error}"
        if first:
            log.error(
                "subscription %r is paused: %s; see to the disk, it then goes on by itself",
                subscription.name,
                self._unwritten,
            )
        self._wait(self._unwritten)

    def _wait(self, why: str) -> None:
        self.subscription._hold(why)
        with suppress(ClosedError):  # the node is closing: there is nothing more to wait for
            self.subscription.node._timers.call_after(RETRY_SECONDS, partial(self._try_again, why))

    def _try_again(self, why: str) -> None:
        if self.subscription.cancelled:
            return
        if self._unwritten is None:  # it was written by who handed the next event over, just before it was held
            self.subscription._let_go(why)
        elif self._caught_up():
            log.warning("subscription %r goes on: its position can be kept again", self.subscription.name)
            self.subscription._let_go(why)
        elif self.subscription._held_for(why):  # else whoever has paused it goes on with it
            self._wait(why)

    def write_owed(self) -> None:
        """What could not be written is, now; StoreError if it cannot."""
        if self._unwritten is not None and not self._caught_up():
            raise StoreError(f"subscription {self.subscription.name!r}: {self._unwritten}; see to the disk")

    def _caught_up(self) -> bool:
        """Write what could not be written; whether there is nothing left of it."""
        try:
            if self._owed_handed:
                self._keeper.failed(self._owed_handed)
                self._owed_handed = {}
            if self._owed:
                self._commit(self._owed)
                self._owed = {}
        except Exception:
            return False
        self._unwritten = None
        return True

    def _commit(self, points: Points) -> None:
        self._keeper.commit(points, known=self._ended)  # it may go on elsewhere by now
        self._reach(points)

    def _reach(self, points: Mapping[str, int]) -> None:
        with self._lock:
            for key, seq in points.items():
                if seq > self._done.get(key, 0):
                    if seq >= self._last.get(key, 0):
                        seq = max(seq, self._passed.pop(key, 0))
                    self._done[key] = seq
                    waiting = self._unacknowledged.get(key)
                    while waiting and _span(waiting[0][1])[1] <= seq:
                        waiting.popleft()

    def unacknowledged(self) -> list[Item]:
        """What was handed over and not acknowledged, of sources without a log."""
        with self._lock:
            return [
                left
                for key, items in self._unacknowledged.items()
                for item in items
                if (left := _after(item, self._done.get(key, 0))) is not None
            ]

    def pass_over(self, items: list[Item]) -> None:
        """Events that are not handed over, because they have expired, or a constraint of the handler said so. They are
        done when all before them are."""
        points = points_of(items)
        with self._lock:
            before = {key for key in points if self._last.get(key, 0) > self._done.get(key, 0)}
            waits = {key: points[key] for key in before if self.manual or key in self._out}
            _further(self._passed, waits)
        done = {key: seq for key, seq in points.items() if key not in waits}
        self._reach(done)  # it is kept with the next one; until then they would be judged again

    # ── what is pulled ──

    def settle(self) -> None:
        """The sink that pulls asks for more: it is done with what it has."""
        if self._out:
            self._commit(self._out)  # if that cannot be written it is tried again with the next call
            self._out = {}

    def take(self, items: list[Item]) -> None:
        """Items are given to the sink that pulls."""
        points = points_of(items)
        self._begin(points, items)
        if not self.manual:
            self._out.update(points)

    # ── acknowledging ──

    def acknowledge(self, about: About | None) -> None:
        """Up to an event of a source; or all that were handed over."""
        if isinstance(self._keeper, InTransaction):
            raise SubscriptionError(
                "acknowledge: the position is committed with the handler's transaction (within=); leave this out"
            )
        if about is not None and not (isinstance(about, KeptAbout) and about.progress is self):
            raise SubscriptionError(
                f"acknowledge: expected an About of subscription {self.subscription.name!r}, found {about!r}"
            )
        with self._handing:
            if self.fenced is not None:
                raise SubscriptionError(f"acknowledge: subscription {self.subscription.name!r}: {self.fenced}")
            with self._lock:
                upto = about.points if isinstance(about, KeptAbout) else self._last
                points = {key: seq for key, seq in upto.items() if seq > self._done.get(key, 0)}
            self._commit(points)

    def fence(self, why: str | None) -> None:
        """Nothing is acknowledged here any more, or again."""
        with self._handing:
            self.fenced = why

    def about(self, items: list[Item], about: About) -> KeptAbout:
        """What is known of the event, or of the first of a batch, and of how often it came."""
        redelivered = any(self.in_doubt(item) for item in items)
        known: tuple[Any, ...] = astuple(about)
        return KeptAbout(*known, progress=self, points=points_of(items), _redelivered=redelivered)

    def in_doubt(self, item: Item) -> bool:
        """Whether an event, or the first of a chunk, may have been handed over before this process began."""
        attachment, letter = item[:2]
        key = key_of(attachment, letter)
        if key is None:
            return False
        seq = _span(letter)[0]
        if seq <= self._handed_before.get(key, 0):
            return True
        unsure = key not in self._begun if self._unsure is None else key in self._unsure
        return unsure and bool(letter.source.resent(seq))

    def handed(self) -> Points:
        """By key, up to where events were handed over that are not done. A sink that moves takes it along."""
        with self._lock:
            found: Points = {}
            for points in (self._handed_before, self._last):
                _further(found, {key: seq for key, seq in points.items() if seq > self._done.get(key, 0)})
            return found

    def unsure(self) -> list[str]:
        """Sources of which the next event may have been handed over as well, by a process that was killed."""
        with self._lock:
            return sorted(self._unsure or ())

    def note_handed(self) -> None:
        """Write what was handed over: it stands still, and may go on elsewhere, or here after a kill."""
        with self._handing:
            if handed := self._unnoted():
                self._keeper.begin({}, handed)
                with self._lock:
                    _further(self._noted, handed)

    def _unnoted(self) -> Points:
        """What was handed over, is not done, and is not written to have been."""
        with self._lock:
            known = {key: max(self._done.get(key, 0), self._noted.get(key, 0)) for key in self._last}
            return {key: seq for key, seq in self._last.items() if seq > known[key]}

    def end(self) -> None:
        """It hands over nothing more of what can be had again: whoever goes on with it is told what it has handed over.
        Where that cannot be written, as if its process had been killed. What cannot be had again may still be handed
        over: then it is ended once more."""
        with self._handing:
            again, self._ended = self._ended, True
            if not self._opened:
                return
            self._opened = False
            unsure = None if again else self.unsure()
            try:
                self._keeper.end(self._unnoted(), unsure, orderly=self._unwritten is None)
            except StoreError as error:
                name = self.subscription.name
                log.warning("subscription %r: what it was handed last cannot be kept: %s", name, error)


class KeptAbout(About, kw_only=True):
    """What the service knows of an event that it delivers to a durable subscription."""

    progress: Progress
    points: dict[str, int]
    _redelivered: bool

    @property
    def redelivered(self) -> bool:
        return self._redelivered or super().redelivered

    def acknowledge(self) -> None:
        self.progress.acknowledge(self)


def progress_of(subscription: DurableSink, carried: Carried | None = None) -> Progress | None:
    """Kept for a subscription that is durable; raises where it cannot be."""
    delivery = subscription._options.delivery
    if not isinstance(delivery, Reliable) or not delivery.durable:
        return None
    name, state = subscription.name, subscription.node.state
    if not subscription._calm:
        raise SubscriptionError(
            "delivery: a filter tree remembers events only as long as the process lasts, so it cannot be durable; "
            "use Reliable(), or subscribe durably to each of its channels"
        )
    if subscription._in_order != "arrival":
        raise SubscriptionError(
            f"delivery: a durable subscription gets the events of a source in their order, found them ordered by "
            f"{subscription._in_order}; remove priority=, or use another dispatch="
        )
    keeper: Keeper
    if delivery.within is not None:
        keeper = InTransaction(delivery.within, name)
    else:
        assert state is not None
        keeper = InState(state, name)
    return Progress(subscription, keeper, manual=delivery.acknowledge == "manual", carried=carried)


def _logged(points: Points) -> frozenset[str]:
    return frozenset(key for key in points if key.startswith(LOGGED))


def _further(points: Points, more: Points) -> None:
    for key, seq in more.items():
        if seq > points.get(key, -1):
            points[key] = seq


def key_of(attachment: Attachment, letter: Letter | Chunk) -> str | None:
    """Under which the position is kept. A source's event may come through derived channels as well: each by itself."""
    return _key(attachment.channel, letter.source)


def _key(channel: Any, source: Source) -> str | None:
    key = source.position_key or getattr(source, "kept_key", None)
    return key if key is None or channel is source.channel else f"{key} {channel.name}"


def _log_key(source: Any) -> str | None:
    """Under which other nodes keep how far they are with a source of this one that is logged."""
    log = getattr(source, "log", None)
    return None if log is None else source.home or log_key(source.node, log.id, source.name)


def points_of(items: list[Item]) -> Points:
    """The last event of each source in these items."""
    points: Points = {}
    for attachment, letter, *_ in items:
        key = key_of(attachment, letter)
        if key is not None:
            points[key] = _span(letter)[1]
    return points


def _after(item: Item, seq: int) -> Item | None:
    """What of an item is after an event."""
    letter, n = item[1], item[2]
    early = int(np.searchsorted(letter.seqs, seq, "right")) if isinstance(letter, Chunk) else int(letter.seq <= seq)
    return item if not early else part_of(item, early, n) if early < n else None


def _span(letter: Letter | Chunk) -> tuple[int, int]:
    if isinstance(letter, Chunk):
        seqs = letter.seqs
        return int(seqs[0]), int(seqs[-1])
    return letter.seq, letter.seq


__all__ = ["Carried", "KeptAbout", "Progress", "key_of", "progress_of"]
