"""A subscription: a value of its own that can be changed, paused, inspected and cancelled."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import ref

from headwater.channel.annotations import E_co
from headwater.channel.dispatch.thread_call import in_thread, nothing
from headwater.channel.options.subscribe import FIRST
from headwater.channel.queues.mailbox import Item, Mailbox, Order, dispatch_all, lose, part_of
from headwater.channel.queues.ordered_mailbox import OrderedMailbox
from headwater.channel.queues.positions import progress_of
from headwater.channel.queues.pull import Pulling
from headwater.channel.reports.counters import Counts, Latency
from headwater.channel.reports.report import SubscriptionReport
from headwater.channel.routing.attachment import Attachment
from headwater.channel.routing.counts import Readings
from headwater.channel.routing.fast_path import SAMPLE_MASK
from headwater.channel.routing.letter import About, Chunk, Letter
from headwater.channel.routing.route import Ready
from headwater.channel.time.token_bucket import TokenBucket
from headwater.errors import ClosedError, SubscriptionError
from headwater.interest import is_reference
from headwater.late import asyncio

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.contract import NodeContract
    from headwater.channel.dispatch.dispatcher import Dispatcher
    from headwater.channel.options.subscribe import Asked, Options
    from headwater.channel.queues.positions import Carried
    from headwater.channel.routing.contract import RoutedChannel
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.channel.routing.limiter import Limiter

log = logging.getLogger("headwater")
_NUMBERS = count(1)
LOOKS = 100  # at what is counted while handlers go on, until no event is seen twice
MOVE_SECONDS = 60.0  # for which a token is good
RETRY = 0.05  # seconds until a constraint that said WAIT is asked again, if nobody calls wake()


class _Wait:
    def __repr__(self) -> str:
        return "WAIT"


WAIT: Final = _Wait()
"""What a `before` constraint returns to have the event wait until `subscription.wake()`, or a moment."""


class _Call:
    """The call of a handler that is due."""

    __slots__ = ("_about", "_handler", "_two", "event", "items")

    def __init__(self, handler: Any, event: Any, about: About | None, two: bool, items: list[Item]) -> None:
        self._handler, self.event, self._about, self._two, self.items = handler, event, about, two, items

    def __call__(self) -> Any:
        return self._handler(self.event, self._about) if self._two else self._handler(self.event)


class Subscription(Pulling[E_co]):
    """An interest with a handler, or one whose events are pulled: `get`, `poll`, `for`, `async for`.

    Made by `channel.subscribe(...)` and `node.subscribe(...)`. It is also a context manager that cancels at the end.
    """

    node: NodeContract
    _remarks: tuple[str, ...] | None = None  # what is to be said of it, where its interests are not its subscriber's
    _calm = True  # what is accepted goes into the queue as it is
    _shared = False  # its events are those that a group hands to it
    _stages: tuple[Mailbox, ...] = ()  # where events wait before they come to its own mailbox
    _routes: tuple[tuple[str, ...], ...] = ()  # of one that passes events on: the federations behind it; () for a sink
    _fenced: str | None = None  # why it does not go on here, whoever asks: it is on its way to another node
    _beneath: str | None = None  # why it was paused before that, while it holds
    _carried: Carried | None = None  # where it was at the node that it comes from
    _arriving = False  # it comes from another node, or has come just now
    _first = False  # durable, and nobody here had asked other nodes for their events before it
    _promising = False  # of one that passes events on: whether somebody there wants to know how far time has come

    def __init__(
        self, node: NodeContract, name: str, asked: list[Asked], options: Options, dispatcher: Dispatcher | None
    ) -> None:
        super().__init__()
        self.node, self.name, self._asked, self._options = node, name, asked, options
        self._handler = options.handler
        self.epoch = 1
        self._attachments: dict[tuple[RoutedChannel, int], Attachment] = {}
        self.warnings: list[str] = []  # what is allowed and hardly meant
        self.refused: dict[str, str] = {}  # channels of the pattern that it cannot attach to, and why
        self._latency = Latency()
        self._failures = 0  # in a row
        self.paused: str | None = None  # why
        self.cancelled = False
        self._trouble: str | None = None  # the last failure of its handler
        self._number = next(_NUMBERS)  # later ones have higher ones
        # Where it begins with the past of other nodes too: what they publish waits until that is here.
        self._late = bool(options.history) and node._federated
        self._past_seen: dict[str, int] = {}
        self._begun: set[str] = set()  # other nodes, with the channel, that have sent it what they had of the past
        self._early: dict[str, list[tuple[Attachment, Letter | Chunk, int]]] = {}
        self._held_past: dict[str, list[tuple[Attachment, Letter]]] = {}  # of sources that may keep more for it
        self._beginning = threading.Lock()
        self._starters: Ready = []  # to be told of events of the past, when no lock is held any more
        self._handling: Letter | Chunk | None = None  # what its handler has just now, except on the fast path
        self._delivered = self._failed = self._skipped = self._expired = 0
        self._past = Counts()  # of epochs and channels that are over
        self._parked = False
        # While it is on its way: of sources of this process that are logged, the last event that it could keep.
        self._missing: dict[tuple[Attachment, Source], int] = {}
        # By channel and part: what its rate lets pass of them. And where it waits: when the next may be delivered.
        self._limiters: dict[tuple[RoutedChannel, int], Limiter] = {}
        self._pacing = None if options.rate is None or not options.rate.waits else TokenBucket(options.rate.packed())
        self._holding = threading.Lock()  # of who pauses, resumes or wakes it; never held while it runs
        # What a handler may raise without anyone but us hearing of it. Ctrl-C is for the publisher to hear of.
        self._caught: type[BaseException] = Exception if dispatcher is None or dispatcher.inline else BaseException
        self._in_order = _order(options)
        self._progress = progress_of(self, self._carried)  # if it is durable
        # Whether an event can be handed over at once, without queue; and without letter.
        self._prompt = (
            self._calm
            and not self._late
            and self._progress is None
            and dispatcher is not None
            and dispatcher.inline
            and not (options.coroutine or options.before or options.after or options.batch)
            and options.priority is None
            and options.lifetime is None
            and options.rate is None
            and options.order != "timestamp"
        )
        self._plain = self._prompt and not options.about
        self._by_time = by_time = options.order == "timestamp"  # sources are to say how far time has come
        self._steadily = False  # whether it relies on it that times of publication do not go back
        progress = self._progress
        deliver = self._deliver if progress is None else progress.deliver
        adeliver = self._adeliver if progress is None else progress.adeliver
        make = partial(OrderedMailbox, node=node, attachments=self._attachments) if by_time else Mailbox
        self._mailbox = make(
            name,
            options.queue,
            order=self._in_order,
            full=node._full,
            pull=options.handler is None,
            deliver=self._deliver_plain if self._plain else deliver,
            adeliver=adeliver if options.coroutine else None,
        )
        if options.as_ is not None:
            options.as_.when_renewed(partial(_renew, ref(self)))
        self._dispatcher = dispatcher
        if dispatcher is not None:
            self._mailbox.dispatched_by(dispatcher)

    def _proves_anew(self) -> None:
        """The user that it is for has another proof: other nodes are told."""
        if not self.cancelled:
            self.node._tell_again([(each.channel, each.entry) for each in list(self._attachments.values())])

    @property
    def _moves(self) -> bool:
        """Whether it is on its way, from here or to here."""
        return self._arriving or self._fenced is not None

    # ── in: under the source's lock ──

    def _arrive(self, attachment: Attachment, letter: Letter, ready: Ready) -> None:
        if attachment.floors and attachment.not_for_it(letter):
            return
        if self._late and self._too_early(attachment, letter):
            return
        self._accept(attachment, letter, ready)

    def _accept(self, attachment: Attachment, letter: Letter, ready: Ready) -> None:
        if self._progress is not None:
            if self._rereads(attachment, letter) and self._left_for_later(attachment, letter, 1):
                return
            if self._fenced is not None and self._left_out(attachment, letter, 1):
                return
            self._progress.arrive(attachment, letter)
        self._put((attachment, letter, 1, *self._urgency(attachment, letter)), ready)

    def _put(self, item: Item, ready: Ready) -> None:
        mailbox = self._mailbox
        if mailbox.put(item):
            ready.append(mailbox)
        elif mailbox.order != "arrival" and not mailbox.inline and self._dispatcher is not None:
            self._dispatcher.urgent(mailbox)

    def _arrive_chunk(self, attachment: Attachment, chunk: Chunk, ready: Ready) -> None:
        if attachment.floors and (early := attachment.not_for_it(chunk)):
            if early == len(chunk):
                return
            chunk = chunk.part(early, len(chunk))
        if self._late and self._too_early(attachment, chunk):
            return
        self._accept_chunk(attachment, chunk, ready)

    def _accept_chunk(self, attachment: Attachment, chunk: Chunk, ready: Ready) -> None:
        if attachment.by_event:
            for letter in chunk.letters(attachment.form.have.arrow_to_records(chunk.taken())):
                self._accept(attachment, letter, ready)
            return
        if self._progress is not None:
            if self._rereads(attachment, chunk) and self._left_for_later(attachment, chunk, len(chunk)):
                return
            if self._fenced is not None and self._left_out(attachment, chunk, len(chunk)):
                return
            self._progress.arrive(attachment, chunk)
        expiry = self._expiry(attachment, b"")
        priority = chunk.priority if attachment.priority is None else _whole(attachment.priority.value(b""))
        self._put((attachment, chunk, len(chunk), priority, expiry), ready)

    def _rereads(self, attachment: Attachment, letter: Letter | Chunk) -> bool:
        """Whether events that it cannot keep can be read from a log later: those of another node's source, and of one
        of this process what needs no state that others share."""
        source, entry = letter.source, attachment.entry
        if not source.rereads or not source.local:
            return source.rereads
        return entry.interest is None or not entry.interest.stateful or len(list(entry.members)) == 1

    def _left_for_later(self, attachment: Attachment, letter: Letter | Chunk, n: int) -> bool:
        """Whether events are not taken, since it is paused and its queue is full, or it is on its way: they are read
        from the log later, and all that come until then as well. They are counted as skipped."""
        assert self._progress is not None
        mailbox = self._mailbox
        room = mailbox.limit - letter.source.local  # a publisher of this process does not find it full
        full = mailbox.held and (self._fenced is not None or mailbox.waiting + n > room)
        if not self._progress.misses(attachment, letter, full):
            return False
        if full and not mailbox.held and self._progress.misses_no_more(attachment, letter):
            return False  # it goes on since, and may not have seen that there is something to be read
        self._leave_out((attachment, letter, n, 0, math.inf), n)
        return True

    def _left_out(self, attachment: Attachment, letter: Letter | Chunk, n: int) -> bool:
        """The same of a source of this process, which has a log, and whose publisher is not to wait for a durable sink
        that is on its way."""
        source, mailbox = letter.source, self._mailbox
        if not source.local or source.log is None or source.relays:
            return False
        where = attachment, source
        if where not in self._missing and mailbox.waiting + n < mailbox.limit:
            return False
        self._missing.setdefault(where, int(letter.seqs[0] if isinstance(letter, Chunk) else letter.seq) - 1)
        self._leave_out((attachment, letter, n, 0, math.inf), n)
        return True

    def _recall_left_out(self) -> None:
        """It is not on its way any more: what it has left out of sources of this process is read from their logs."""
        ready: Ready = []
        wiring = self.node._wiring
        with wiring.lock, wiring.still([attachment.channel for attachment, _ in self._missing]):
            missing, self._missing, self._fenced = self._missing, {}, None
            for (attachment, source), after in missing.items():
                if not self.cancelled and source in {flow.source for flow in attachment.channel.flows()}:
                    attachment.recall(source, after, ready)
        dispatch_all(ready)

    def _urgency(self, attachment: Attachment, letter: Letter) -> tuple[int, float]:
        priority = letter.priority
        if attachment.priority is not None:
            priority = _whole(attachment.priority.value(letter.record))
        return priority, self._expiry(attachment, letter.record)

    def _expiry(self, attachment: Attachment, record: bytes) -> float:
        if attachment.lifetime is None:
            return math.inf
        seconds = attachment.lifetime.value(record)
        return math.inf if seconds is None else self.node.clock.now() + seconds

    def _entering(self) -> None:
        """It is about to be in the routes of its channels, for the first time; the wiring's lock is held. Where others
        were before it, what comes of sources that it has had events of does not follow on those."""
        progress = self._progress
        if progress is not None and progress.leaves_to_log:
            self._first = self.node._is_first(self)
            if not self._first:
                progress.rereads()

    def _began(self, attachment: Attachment) -> None:
        """An attachment is in force from here; its sources stand still."""
        attachment.wired = self.node._wiring.version
        if self._progress is not None:
            attachment.slow_down()

    # ── the past of other nodes' sources ──

    def _accept_past(self, place: str, attachment: Attachment, letter: Letter, ready: Ready) -> None:
        """An event from before it came, of that node and channel, if it is one that it is still to begin with."""
        if self._goes_on_with(attachment, letter):
            return
        source = letter.source.id
        if place not in self._begun and letter.seq > self._past_seen.get(source, 0):
            self._past_seen[source] = letter.seq
            if self._progress is not None and self._progress.may_be_owed(attachment.channel, letter.source):
                with self._beginning:
                    self._held_past.setdefault(place, []).append((attachment, letter))
                return
            attachment.begin_with(letter)
            self._accept(attachment, letter, ready)

    def _goes_on_with(self, attachment: Attachment, letter: Letter | Chunk) -> bool:
        """Whether it goes on with a source where it was, so that this has no past for it to begin with."""
        return self._progress is not None and self._progress.was_with(attachment.channel, letter.source)

    def _too_early(self, attachment: Attachment, letter: Letter | Chunk) -> bool:
        """Whether an event must wait, since events from before it may still come."""
        place = letter.source.place
        if place is None or attachment.epoch > 1 or place in self._begun or self._goes_on_with(attachment, letter):
            return False
        with self._beginning:
            if place in self._begun:
                return False
            n = len(letter) if isinstance(letter, Chunk) else 1
            self._early.setdefault(place, []).append((attachment, letter, n))
            return True

    def _begins(self, place: str) -> bool:
        """Whether the past of that node and channel is still to come."""
        return self._late and place not in self._begun

    def _has_begun(self, place: str) -> None:
        """The past of that node and channel is here: go on with what has come since. Called without any lock."""
        ready: Ready = []
        with self._beginning:
            early = self._early.pop(place, [])
            self._begin_before(early, self._held_past.pop(place, []), ready)
            for attachment, letter, _ in early:
                seen = self._past_seen.get(letter.source.id, 0)
                if isinstance(letter, Chunk):
                    old = int(letter.seqs.searchsorted(seen, "right"))
                    attachment.repeats(letter, old)
                    if old < len(letter):
                        self._accept_chunk(attachment, letter.part(old, len(letter)) if old else letter, ready)
                elif letter.seq > seen:
                    self._accept(attachment, letter, ready)
                else:
                    attachment.repeats(letter, 1)
            self._begun.add(place)
        dispatch_all(ready)

    def _begin_before(
        self, early: list[tuple[Attachment, Letter | Chunk, int]], past: list[tuple[Attachment, Letter]], ready: Ready
    ) -> None:
        """Of sources that may have kept something for it, what they have kept comes, and of their past only what is
        before that: it would come after."""
        first: dict[tuple[Attachment, str], int] = {}
        for attachment, letter, _ in early:
            seq = int(letter.seqs[0]) if isinstance(letter, Chunk) else letter.seq
            first.setdefault((attachment, letter.source.id), seq)
        for attachment, letter in past:
            self._past_seen.pop(letter.source.id, None)
            if letter.seq < first.get((attachment, letter.source.id), letter.seq + 1):
                attachment.begin_with(letter)
                self._accept(attachment, letter, ready)

    def _release(self) -> None:
        """Where the order is that of time: sources have promised more, or are gone. Called without any lock."""
        if isinstance(self._mailbox, OrderedMailbox):
            self._mailbox.release()

    # ── out: no lock held ──

    def _deliver(self, item: Item) -> None:
        """To the handler, in the thread that runs the mailbox."""
        call = self._prepared(item)
        if call is None:
            return
        self._handling = item[1]
        try:
            self._finish(call.event, call())
            if self._failures:
                self._went_well()
        except self._caught as error:
            self._handler_failed(error, call.event)
        finally:
            self._handling = None

    def _deliver_plain(self, item: Item) -> None:
        """The same where there is nothing but a function to be called in the publisher's thread."""
        attachment, letter = item[0], item[1]
        if letter.__class__ is not Letter:
            self._deliver(item)
            return
        event = letter.event
        self._delivered += 1
        if not letter.seq & SAMPLE_MASK:
            self._timed(item)
        try:
            if event.__class__ is not attachment.cls:
                event = attachment.form.one(letter)
            self._handler(event)  # type: ignore[misc]
        except Exception as error:
            self._handler_failed(error, event)
        else:
            if self._failures:
                self._went_well()

    def _hand_back(self, items: list[Item]) -> None:
        """Events that were about to be handed over, and were not, or what was done with them was undone."""
        self._delivered -= _events(items)
        self._mailbox.back(items)

    def _put_off(self, items: list[Item]) -> None:
        """Events that were counted as handed over past the queue, and were not: they wait, before all others."""
        self._delivered -= len(items)
        self._mailbox.put_off(items)

    async def _adeliver(self, item: Item) -> None:
        """To a coroutine handler, on its loop."""
        call = self._prepared(item)
        if call is None:
            return
        self._handling = item[1]
        try:
            self._finish(call.event, await call())
            if self._failures:
                self._went_well()
        except asyncio.CancelledError as error:
            self._await_failed(error, call.event)
        except Exception as error:
            self._handler_failed(error, call.event)
        finally:
            self._handling = None

    def _prepared(self, item: Item) -> _Call | None:
        """What is left to do with an item: the call of the handler, or nothing."""
        if self._expired_or_open(item):
            return None
        if self._pacing is not None and (wait := self._pacing.wait(round(self.node.clock.now() * 1e9))):
            self._park([item], wait / 1e9, slowed=True)
            return None
        event, items = None, [item]
        try:
            event, about, items = self._present(item)
            dispatch = self._before(event, about)
        except self._caught as error:
            self._skip(items)
            self._handler_failed(error, event)
            return None
        if dispatch is WAIT:
            self._park(items)
            return None
        if not dispatch:
            self._skip(items)
            if self._progress is not None:
                self._progress.pass_over(items)
            return None
        if self._pacing is not None:
            self._pacing.spend(_events(items))
        self._delivered += _events(items)
        self._timed(item)
        return _Call(self._handler, event, about, self._options.about, items)

    def _skip(self, items: list[Item]) -> None:
        for item in items:
            self._leave_out(item, item[2])

    def _leave_out(self, item: Item, events: int) -> None:
        """So many events of an item are not delivered."""
        self._skipped += events
        lose(item, "skipped", events)

    def _expire(self, item: Item) -> None:
        self._expired += item[2]
        lose(item, "expired", item[2])
        if self._progress is not None:
            self._progress.pass_over([item])

    def _timed(self, item: Item) -> None:
        """How long an event took from its publication to here."""
        attachment, letter = item[0], item[1]
        took = perf_counter_ns() - letter.sent
        self._latency.add(took)
        letter.source.fates(attachment.channel).took(took)

    def _finish(self, event: Any, result: Any) -> None:
        """Its handler has returned."""
        if self._options.after is not None:
            self._options.after(event, result)

    def _went_well(self) -> None:
        """For once, after failures."""
        self._failures = 0
        self._mailbox.trouble(False)

    def _expired_or_open(self, item: Item) -> bool:
        """Whether there is nothing to deliver here: it has expired, or it was a chunk that is now in pieces."""
        attachment, letter, n, priority, expiry = item
        if not self._still_good(item):
            self._expire(item)
            return True
        if isinstance(letter, Chunk) and not self._options.batch:
            letters = letter.letters([None] * n, attachment.form.many(letter))
            self._mailbox.back([(attachment, each, 1, priority, expiry) for each in letters])
            return True
        return False

    def _present(self, item: Item) -> tuple[Any, About | None, list[Item]]:
        """The event as the handler is to see it, what is known of it, and the items that went into it."""
        attachment, letter = item[:2]
        if self._options.batch:
            return self._batch_of(item, self._options.batch)
        about = self._about(attachment, letter, [item]) if self._options.about else None
        return attachment.form.one(letter), about, [item]

    def _about(self, attachment: Attachment, letter: Letter, items: list[Item]) -> About:
        about = attachment.about(letter)
        return about if self._progress is None else self._progress.about(items, about)

    def _batch_of(self, item: Item, limit: int) -> tuple[Any, About | None, list[Item]]:
        """A RecordBatch of at most `limit` events: the item's, and what waits behind it for the same channel."""
        attachment, letter, n = item[:3]
        if isinstance(letter, Chunk):
            if n > limit:
                self._mailbox.back([part_of(item, limit, n)])
                item = part_of(item, 0, limit)
                letter = item[1]
            first = next(letter.part(0, 1).letters([b""]))
            about = self._about(attachment, first, [item]) if self._options.about else None
            return attachment.form.arrow(letter), about, [item]
        items = [item, *self._mailbox.pop_like(item, limit - 1, self._joins)]
        about = self._about(attachment, letter, items) if self._options.about else None
        return attachment.form.arrow_of([each[1] for each in items]), about, items

    def _still_good(self, item: Item) -> bool:
        return item[4] == math.inf or self.node.clock.now() < item[4]

    def _joins(self, item: Item) -> bool:
        """Whether an event may go into a batch with those before it."""
        return self._still_good(item) and (self._progress is None or self._progress.is_fresh(item))

    # ── constraints and failures ──

    def _before(self, event: Any, about: About | None) -> Any:
        before = self._options.before
        if before is None:
            return True
        return before(event, about) if self._options.about else before(event)

    def _park(self, items: list[Item], seconds: float = RETRY, *, slowed: bool = False) -> None:
        """The event waits at the head of the queue, and all others behind it."""
        with self._holding:
            self._mailbox.hold(slowed=slowed and self.paused is None)
            self._mailbox.back(items)
            self._parked = True
        with suppress(ClosedError):  # the node is closing: there is nothing more to wait for
            self.node._timers.call_after(seconds, self.wake)

    def wake(self) -> None:
        """Ask the `before` constraint again about the event that waits."""
        with self._holding:
            ready = self._parked and self.paused is None and self._mailbox.resume()
            self._parked = False
        self._resumed(ready)

    def _resumed(self, ready: bool) -> None:
        """What waits goes on, and what could not wait is read from logs."""
        if ready:
            self._mailbox.dispatch()
        if self._progress is not None and self._progress.gaps and not self._mailbox.held:
            for channel, _ in list(self._attachments):
                for flow in channel.flows():
                    flow.source.ask_again()

    def _handler_failed(self, error: BaseException, what: Any) -> None:
        """A handler or constraint raised: say so, count it, and pause after too many in a row."""
        self._failed += 1
        self._failures += 1
        self._mailbox.trouble(True)
        text = self._trouble = text_of(error)
        self.node._report_failure(self, error, what)
        limit = self._options.failures
        if limit and self._failures >= limit and self.paused is None and not self.cancelled:
            self._pause(f"its handler failed {self._failures} times in a row, last with {text}")
            log.error("subscription %r is paused: %s; correct the handler and call resume()", self.name, self.paused)

    def _await_failed(self, error: asyncio.CancelledError, what: Any) -> None:
        """The handler was cancelled: by something that it waited for, or (raises it again) by whoever runs it."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise error
        self._handler_failed(error, what)

    def acknowledge(self, about: About | None = None) -> None:
        """A durable subscription is done with this event, and all before it of its source; without one, with all that
        were handed over."""
        if self._progress is None:
            raise SubscriptionError(
                f"acknowledge: expected a durable subscription, found {self.name!r}, for which nothing is kept; "
                "subscribe with delivery=Reliable(durable=True, acknowledge='manual')"
            )
        self._progress.acknowledge(about)

    def _end_progress(self) -> None:
        """Nothing more is handed over here of what a durable sink can have again."""
        if self._progress is not None:
            self._progress.end()

    def _unsettled(self, source: Source) -> int | None:
        """The oldest event of a source that has come here and may not be done with; None if there is none.

        Only durable subscriptions know: of others, what waits and what the handler has is all there is."""
        return None if self._progress is None else self._progress.unsettled(source)

    # ── changing it ──

    def change(
        self, *, where: Any = ..., params: Mapping[str, object] | None = None, zones: Any = ...
    ) -> dict[str, int]:
        """Another interest, other parameters, or other zones (None: all), from an exact point of each source's events.

        Returns the point: the sequence number of each source's last event judged by the old interest. Events still
        waiting were judged by the old one, and say so (`about.epoch`). If a node that has taken the old one refuses the
        new (too costly, unknown field, not allowed), FederationError says so, and nothing is changed anywhere."""
        self._must_stay("change")
        return self.node._change_if_agreed(self, 0, where=self.node._interest_of(where), params=params, zones=zones)

    async def achange(
        self, *, where: Any = ..., params: Mapping[str, object] | None = None, zones: Any = ...
    ) -> dict[str, int]:
        """As `change`, from a coroutine: its loop goes on while other nodes learn of it. Cancelled until they have, all
        is as it was."""
        self._must_stay("change")
        if is_reference(where):
            where = await in_thread(partial(self.node._interest_of, where))
        return await self.node._achange(self, 0, where=where, params=params, zones=zones)

    def _impose(self, where: Any) -> dict[str, int]:
        """Another interest, whatever sources say to it: one that refuses it (`refused`) sends nothing more."""
        return self.node._change(self, 0, where=where, params=None, zones=...)

    def pause(self, why: str = "pause() was called") -> None:
        """Deliver nothing until `resume`; up to the queue's limit events wait, further ones are dropped and counted."""
        self._must_live("pause")
        self._must_stay("pause")
        self._pause(why)

    def _pause(self, why: str, *, slowed: bool = False, lenient: bool = False) -> None:
        with self._holding:
            self.paused = why
            self._mailbox.hold(slowed=slowed, lenient=lenient)

    def _hold(self, why: str) -> None:
        """Paused until `let_go`, unless it is paused already."""
        with self._holding:
            if self.paused is None and not self.cancelled:
                self.paused = why
            self._mailbox.hold()

    def _let_go(self, why: str) -> None:
        """What it was held for is over: go on, unless it is paused for something else by now."""
        with self._holding:
            ready = self.paused == why and not self._parked
            if self.paused == why:
                self.paused = None
            if self._beneath == why:
                self._beneath = None
            ready = ready and self._mailbox.resume()
        self._resumed(ready)

    def _held_for(self, why: str) -> bool:
        """Whether it is paused for that, or will be when it is on its way no more."""
        return why in (self.paused, self._beneath)

    def _fence(self, why: str) -> None:
        """It is about to leave: nothing more is handed over. What comes waits, and makes publishers wait where it is
        full."""
        with self._holding:
            self._fenced, self._beneath, self.paused = why, self.paused, why
            self._mailbox.hold(slowed=True)

    def _unfence(self, why: str) -> None:
        """It stays: it goes on, or is paused as it was, unless what that was for is over by now."""
        with self._holding:
            before, self._beneath = self._beneath, None
            if before is not None and self.paused == why:
                self.paused = before
                self._mailbox.hold()
        self._let_go(why)

    def resume(self) -> None:
        """Go on after a pause, with the events that wait."""
        self._must_live("resume")
        self._must_stay("resume")
        with self._holding:
            self.paused, self._failures, self._parked = None, 0, False
            ready = self._mailbox.resume()
        self._resumed(ready)

    def cancel(self, *, drain: bool = False) -> None:
        """End it: no further event is taken. What waits is dropped and counted, or delivered first (`drain`), if it is
        not paused.

        A sink that pulls may still take what waits; then `get` raises ClosedError."""
        self.node._end_subscription(self, drain=drain)

    def move(self, *, to: str | None = None, lasts: float = MOVE_SECONDS) -> str:
        """Have it go on at another node, process or host: a token, with which `node.resume(token, handler)` there goes
        on exactly where this one was, with its interest and parameters. It is for one use, within `lasts` seconds, by
        `to`: a node's name or id, or as in rules (`user:ann`, `group:staff`), or by whoever shows it and may subscribe.

        Nothing more is handed over here, and nothing acknowledged; what comes waits, in logs or in its queue, and goes
        along. If nobody has used the token in time, it goes on here. See docs/moving.md for what is promised."""
        self._must_live("move")
        return self.node._move(self, to, lasts)

    async def amove(self, *, to: str | None = None, lasts: float = MOVE_SECONDS) -> str:
        """As `move`, from a coroutine: its loop goes on. Once begun it is done."""
        return await in_thread(lambda: self.move(to=to, lasts=lasts), stop=nothing)

    def _must_stay(self, what: str) -> None:
        if self._fenced is not None and not self.cancelled:
            raise SubscriptionError(
                f"{what}: subscription {self.name!r}: {self._fenced}; node.resume(token, handler) brings it back"
            )

    def _must_live(self, what: str) -> None:
        if self.cancelled:
            why = (
                "was cancelled; subscribe again"
                if self._fenced is None
                else "has left: it goes on where its token is used"
            )
            raise ClosedError(f"{what}: subscription {self.name!r} {why}")

    # ── what is going on ──

    @property
    def state(self) -> str:
        """open, paused, or closed."""
        if self.cancelled or self._mailbox.closed:
            return "closed"
        return "paused" if self.paused is not None else "open"

    @property
    def points(self) -> dict[str, int]:
        """For each source, the sequence number of its last event before the present interest held; 0 for all of it."""
        found: dict[str, int] = {}
        for attachment in list(self._attachments.values()):
            now = {flow.source.id: flow.source.number for flow in attachment.channel.flows()}
            found.update((name, 0) for name in now if name not in found)
            found.update(point for number, point in attachment.points.items() if now.get(point[0], number) == number)
        return found

    @property
    def counts(self) -> Counts:
        """Everything counted since it was made, over all channels and epochs."""
        return self.node._counts_of(self)

    def report(self) -> SubscriptionReport:
        """Counts, latency, where the interest runs and why."""
        return self.node._subscription_report(self)

    def _counted(self) -> Counts:
        """Everything counted; the wiring's lock is held.

        What is on its way from the queue to the handler is counted as queued, so that every event that passed is
        counted once. Handlers go on meanwhile: where an event was given back to the queue just now, and so was seen
        twice, we look again."""
        for _ in range(LOOKS):
            found = self._counts_with(self._outcomes(), self._readings())
            if found is not None:
                return found
        return self._counts_with(self._outcomes(), self._readings(), exact=False)  # type: ignore[return-value]

    def _readings(self) -> Readings:
        return Readings({attachment.entry for attachment in self._attachments.values()})

    def _outcomes(self) -> Counts:
        """What became of events that passed. It is looked at before sources are asked how many those were, and what
        leaves the queue before the queue: so no event is missed."""
        with self._beginning:  # so that no event of `_early` goes on meanwhile
            early = sum(n for waiting in self._early.values() for _, _, n in waiting)
            delivered, failed, skipped, expired = self._delivered, self._failed, self._skipped, self._expired
            dropped, late, queued = self._mailbox.dropped, self._mailbox.late, self._mailbox.waiting
        if self._mailbox.closed:
            dropped += early
        else:
            queued += early  # they wait for what was before them
        return Counts(
            delivered=delivered,
            dropped=dropped,
            expired=expired,
            skipped=skipped,
            failed=failed,
            late=late,
            queued=queued,
        )

    def _counts_with(self, outcomes: Counts, readings: Readings, *, exact: bool = True) -> Counts | None:
        """All counts together; None if an event was seen twice, unless that is all the same."""
        total = self._past + outcomes
        for attachment in list(self._attachments.values()):
            total = total + attachment.counts(readings)
        if not self._calm:
            return total
        gone = total.delivered + total.dropped + total.expired + total.skipped
        if exact and total.passed < gone + total.queued:
            return None
        return replace(total, queued=max(total.queued, total.passed - gone))

    def _too_early_ones(self) -> Iterator[tuple[Attachment, Letter | Chunk, int]]:
        """Events, with how many each is, that wait for those of the past of their source's node."""
        if self._late:
            with self._beginning:
                waiting = list(self._early.values())
            for each in waiting:
                yield from list(each)

    def _retire(self, attachment: Attachment) -> None:
        """An attachment ends; its counts stay."""
        self._past = self._past + attachment.counts(Readings((attachment.entry,), still=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()

    @property
    def target(self) -> str:
        """The channels it asked for, in words."""
        return ", ".join(dict.fromkeys(asked.text for asked in self._asked))

    def _wants(self, channel: Channel) -> Iterator[int]:
        """The parts of what it asked for that concern a channel."""
        return (part for part, asked in enumerate(self._asked) if asked.wants(channel))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} to {self.target}, {self.state}>"


def _renew(subscription: Callable[[], Subscription[Any] | None]) -> None:
    found = subscription()
    if found is not None:
        found._proves_anew()


def text_of(error: BaseException) -> str:
    """An error in words, also where it cannot say any itself."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _events(items: list[Item]) -> int:
    return sum(item[2] for item in items)


def _whole(priority: float | None) -> int:
    """A priority that was computed: none where there is no number, the utmost where it is infinite."""
    if priority is None:
        return 0
    return int(max(-FIRST, min(FIRST, priority)))


def _order(options: Options) -> Order:
    if options.order == "timestamp":
        return "arrival"  # in order of time; priorities and deadlines then only say whose turn it is
    if options.priority is not None or options.dispatch.name == "priority":
        return "priority"
    return "deadline" if options.dispatch.name == "deadline" else "arrival"
