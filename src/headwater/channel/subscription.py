"""A subscription: a value of its own that can be changed, paused, inspected and cancelled."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headwater.channel import reporting
from headwater.channel.asking import FIRST
from headwater.channel.attachment import Attachment
from headwater.channel.counters import Counts, Latency
from headwater.channel.gate import Gate
from headwater.channel.letter import About, Chunk, Letter
from headwater.channel.mailbox import Item, Mailbox, Order, lose, part_of
from headwater.channel.report import SubscriptionReport
from headwater.channel.route import Ready
from headwater.errors import ClosedError, SubscriptionError

if TYPE_CHECKING:
    from headwater.channel.asking import Asked, Options
    from headwater.channel.channel import Channel
    from headwater.channel.dispatch import Dispatcher
    from headwater.channel.node import Node

log = logging.getLogger("headwater")
SAMPLE = 63  # of events handed over in the publisher's thread, one in 64 is timed
ASKING = 0.001  # seconds after which a source that waits to be asked is asked again, at first
RETRY = 0.05  # seconds until a constraint that said WAIT is asked again, if nobody calls wake()


class _Wait:
    def __repr__(self) -> str:
        return "WAIT"


WAIT: Final = _Wait()
"""What a `before` constraint returns to have the event wait until `subscription.wake()`, or a moment."""


class _Call:
    """The call of a handler that is due."""

    __slots__ = ("_about", "_handler", "_two", "event")

    def __init__(self, handler: Any, event: Any, about: About | None, two: bool) -> None:
        self._handler, self.event, self._about, self._two = handler, event, about, two

    def __call__(self) -> Any:
        return self._handler(self.event, self._about) if self._two else self._handler(self.event)


class Subscription:
    """An interest with a handler, or one whose events are pulled: `get`, `poll`, `for`, `async for`.

    Made by `channel.subscribe(...)` and `node.subscribe(...)`. It is also a context manager that cancels at the end.
    """

    calm = True  # what is accepted goes into the queue as it is

    def __init__(
        self, node: Node, name: str, asked: list[Asked], options: Options, dispatcher: Dispatcher | None
    ) -> None:
        self.node, self.name, self.asked, self.options = node, name, asked, options
        self.handler = options.handler
        self.epoch = 1
        self.attachments: dict[tuple[Channel, int], Attachment] = {}
        self.refused: dict[str, str] = {}  # channels of the pattern that it cannot attach to, and why
        self.latency = Latency()
        self.failures = 0  # in a row
        self.paused: str | None = None  # why
        self.cancelled = False
        self.trouble: str | None = None  # the last failure of its handler
        self._delivered = self._failed = self._skipped = self._expired = 0
        self._past = Counts()  # of epochs and channels that are over
        self._past_direct = 0
        self._parked = False
        self._holding = threading.Lock()  # of who pauses, resumes or wakes it; never held while it runs
        self._pulling = Gate()  # of threads that pull: one takes a batch apart while the others wait for its rest
        # What a handler may raise without anyone but us hearing of it. Ctrl-C is for the publisher to hear of.
        self._caught = Exception if dispatcher is None or dispatcher.inline else BaseException
        # Whether an event can be handed over at once, without letter and queue.
        self.plain = (
            self.calm
            and dispatcher is not None
            and dispatcher.inline
            and not (options.coroutine or options.before or options.after or options.batch or options.about)
            and options.priority is None
            and options.lifetime is None
        )
        self.mailbox = Mailbox(
            name,
            options.queue,
            order=_order(options),
            full=node.full,
            pull=options.handler is None,
            deliver=self._deliver_plain if self.plain else self._deliver,
            adeliver=self._adeliver if options.coroutine else None,
        )
        self.dispatcher = dispatcher
        if dispatcher is not None:
            self.mailbox.dispatched_by(dispatcher)

    # ── in: under the source's lock ──

    def accept(self, attachment: Attachment, letter: Letter, ready: Ready) -> None:
        self.put((attachment, letter, 1, *self._urgency(attachment, letter)), ready)

    def put(self, item: Item, ready: Ready, *, counted: bool = True) -> None:
        mailbox = self.mailbox
        if mailbox.put(item, counted):
            ready.append(mailbox)
        elif mailbox.order != "arrival" and not mailbox.inline and self.dispatcher is not None:
            self.dispatcher.urgent(mailbox)

    def accept_chunk(self, attachment: Attachment, chunk: Chunk, ready: Ready) -> None:
        if attachment.by_event:
            for letter in chunk.letters(attachment.form.have.arrow_to_records(chunk.taken())):
                self.accept(attachment, letter, ready)
            return
        expiry = self._expiry(attachment, b"")
        priority = chunk.priority if attachment.priority is None else _whole(attachment.priority.value(b""))
        self.put((attachment, chunk, len(chunk), priority, expiry), ready)

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

    def began(self, attachment: Attachment) -> None:
        """An attachment is in force from here; its sources stand still."""

    # ── out: no lock held ──

    def _deliver(self, item: Item) -> None:
        """To the handler, in the thread that runs the mailbox."""
        if self._expired_or_open(item):
            return
        call = self._prepare(item)
        if call is None:
            return
        try:
            self._finish(call.event, call())
        except self._caught as error:
            self.handler_failed(error, call.event)

    def _deliver_plain(self, item: Item) -> None:
        """The same where there is nothing but a function to be called in the publisher's thread."""
        attachment, letter = item[0], item[1]
        if letter.__class__ is not Letter:
            self._deliver(item)
            return
        event = letter.event
        self._delivered += 1
        if not letter.seq & SAMPLE:
            self._timed(item)
        try:
            if event.__class__ is not attachment.cls:
                event = attachment.form.one(letter)
            self.handler(event)  # type: ignore[misc]
        except Exception as error:
            self.handler_failed(error, event)
        else:
            if self.failures:
                self.failures = 0
                self.mailbox.trouble(False)

    async def _adeliver(self, item: Item) -> None:
        """To a coroutine handler, on its loop."""
        if self._expired_or_open(item):
            return
        call = self._prepare(item)
        if call is None:
            return
        try:
            self._finish(call.event, await call())
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # it is not something the handler waited for that was cancelled, but this
            self.handler_failed(error, call.event)
        except Exception as error:
            self.handler_failed(error, call.event)

    def _prepare(self, item: Item) -> _Call | None:
        """What is left to do with an item: the call of the handler, or nothing."""
        event, items = None, [item]
        try:
            event, about, items = self._present(item)
            go = self._before(event, about)
        except self._caught as error:
            self._skip(items)
            self.handler_failed(error, event)
            return None
        if go is WAIT:
            self._park(items)
            return None
        if not go:
            self._skip(items)
            return None
        self._delivered += _events(items)
        self._timed(item)
        return _Call(self.handler, event, about, self.options.about)

    def _skip(self, items: list[Item]) -> None:
        for item in items:
            self._skipped += item[2]
            lose(item, "skipped", item[2])

    def _expire(self, item: Item) -> None:
        self._expired += item[2]
        lose(item, "expired", item[2])

    def _timed(self, item: Item) -> None:
        """How long an event took from its publication to here."""
        attachment, letter = item[0], item[1]
        took = perf_counter_ns() - letter.sent
        self.latency.add(took)
        letter.source.fates(attachment.channel).took(took)

    def _finish(self, event: Any, result: Any) -> None:
        if self.options.after is not None:
            self.options.after(event, result)
        if self.failures:
            self.failures = 0
            self.mailbox.trouble(False)

    def _expired_or_open(self, item: Item) -> bool:
        """Whether there is nothing to deliver here: it has expired, or it was a chunk that is now in pieces."""
        attachment, letter, n, priority, expiry = item
        if not self._still_good(item):
            self._expire(item)
            return True
        if isinstance(letter, Chunk) and not self.options.batch:
            letters = letter.letters([None] * n, attachment.form.many(letter))
            self.mailbox.back([(attachment, each, 1, priority, expiry) for each in letters])
            return True
        return False

    def _present(self, item: Item) -> tuple[Any, About | None, list[Item]]:
        """The event as the handler is to see it, what is known of it, and the items that went into it."""
        attachment, letter = item[:2]
        if self.options.batch:
            return self._batch_of(item, self.options.batch)
        about = attachment.about(letter) if self.options.about else None
        return attachment.form.one(letter), about, [item]

    def _batch_of(self, item: Item, limit: int) -> tuple[Any, About | None, list[Item]]:
        """A RecordBatch of at most `limit` events: the item's, and what waits behind it for the same channel."""
        attachment, letter, n = item[:3]
        if isinstance(letter, Chunk):
            if n > limit:
                self.mailbox.back([part_of(item, limit, n)])
                item = part_of(item, 0, limit)
                letter = item[1]
            first = next(letter.part(0, 1).letters([b""]))
            about = attachment.about(first) if self.options.about else None
            return attachment.form.arrow(letter), about, [item]
        items = [item, *self.mailbox.pop_like(item, limit - 1, self._still_good)]
        about = attachment.about(letter) if self.options.about else None
        return attachment.form.arrow_of([each[1] for each in items]), about, items

    def _still_good(self, item: Item) -> bool:
        return item[4] == math.inf or self.node.clock.now() < item[4]

    # ── constraints and failures ──

    def _before(self, event: Any, about: About | None) -> Any:
        before = self.options.before
        if before is None:
            return True
        return before(event, about) if self.options.about else before(event)

    def _park(self, items: list[Item]) -> None:
        """The event waits at the head of the queue, and all others behind it."""
        with self._holding:
            self.mailbox.hold()
            self.mailbox.back(items)
            self._parked = True
        with suppress(ClosedError):  # the node is closing: there is nothing more to wait for
            self.node.timers.call_after(RETRY, self.wake)

    def wake(self) -> None:
        """Ask the `before` constraint again about the event that waits."""
        with self._holding:
            parked, self._parked = self._parked, False
            ready = parked and self.paused is None and self.mailbox.resume()
        if ready:
            self.mailbox.go()

    def handler_failed(self, error: BaseException, what: Any) -> None:
        """A handler or constraint raised: say so, count it, and pause after too many in a row."""
        self._failed += 1
        self.failures += 1
        self.mailbox.trouble(True)
        self.trouble = f"{type(error).__name__}: {error}"
        self.node.report_failure(self, error, what)
        limit = self.options.failures
        if limit and self.failures >= limit and self.paused is None and not self.cancelled:
            self._pause(f"its handler failed {self.failures} times in a row, last with {type(error).__name__}: {error}")
            log.error("subscription %r is paused: %s; correct the handler and call resume()", self.name, self.paused)

    # ── pulling ──

    def get(self, timeout: float | None = None) -> Any:
        """The next event, waiting for it; None if none came in time. With `about=True`, a pair.

        Raises ClosedError once the subscription has ended and everything is taken."""
        self._must_pull("get")
        end = math.inf if timeout is None else monotonic() + timeout
        pace = ASKING
        while True:
            found = self._next()
            if found is not None:
                return found[0]
            if self.mailbox.closed:
                raise self._ended()
            left = end - monotonic()
            if left <= 0:
                return None
            if self.node.may_ask(self):  # sources that wait to be asked are asked again, ever more slowly
                left, pace = min(left, pace), min(2 * pace, 64 * ASKING)
            self.mailbox.wait(self._something, None if left == math.inf else left)

    def poll(self) -> Any:
        """The next event if there is one, else None; never waits. Raises ClosedError as `get` does."""
        self._must_pull("poll")
        found = self._next()
        if found is None and self.mailbox.closed:
            raise self._ended()
        return None if found is None else found[0]

    def get_batch(self, limit: int = 65_536) -> Any:
        """All that waits, at most `limit` events, as a RecordBatch of the sink's type; None if nothing waits.

        Where events of several types wait, those up to the first of another type."""
        self._must_pull("get_batch")
        batches: list[Any] = []
        form: Any = None
        self.node.ask_sources(self)
        with self._pulling:
            while limit > 0 and (item := self.mailbox.pop()) is not None:
                if not self._still_good(item):
                    self._expire(item)
                    continue
                found = item[0].form
                if found.type is None or (form is not None and found.type != form.type):
                    self.mailbox.back([item])
                    if form is None:
                        raise SubscriptionError(
                            "get_batch: this channel has no type, and its bytes are no rows; use get()"
                        )
                    break
                form = found
                batch, _, items = self._batch_of(item, limit)
                n = _events(items)
                self._delivered += n
                self._timed(item)
                limit -= n
                batches.append(batch)
        if form is None:
            if self.mailbox.closed:
                raise self._ended()
            return None
        return pa.concat_batches(batches) if len(batches) > 1 else batches[0]

    async def receive(self) -> Any:
        """The next event, from a coroutine. Raises ClosedError once it has ended."""
        self._must_pull("receive")
        loop, pace = asyncio.get_running_loop(), ASKING
        while True:
            found = self._next()
            if found is not None:
                return found[0]
            if self.mailbox.closed:
                raise self._ended()
            changed = self.mailbox.change(loop)
            try:
                if not self._something():
                    asks = self.node.may_ask(self)
                    await asyncio.wait([changed], timeout=pace if asks else None)
                    pace = min(2 * pace, 64 * ASKING)
            finally:
                changed.cancel()

    def __iter__(self) -> Iterator[Any]:
        """Events as they come, until the subscription ends."""
        while True:
            try:
                event = self.get()
            except ClosedError:
                return
            yield event

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            try:
                event = await self.receive()
            except ClosedError:
                return
            yield event

    def _something(self) -> bool:
        mailbox = self.mailbox
        return (bool(mailbox.items) and not mailbox.held) or mailbox.closed

    def _next(self) -> tuple[Any] | None:
        found = self._pulled()
        if found is None and not self.mailbox.closed and self.node.ask_sources(self):
            found = self._pulled()
        return found

    def _pulled(self) -> tuple[Any] | None:
        with self._pulling:
            while (item := self.mailbox.pop()) is not None:
                if not self._expired_or_open(item):
                    event, about, _ = self._present(item)
                    self._delivered += 1
                    self._timed(item)
                    return ((event, about) if self.options.about else event,)
        return None

    def _must_pull(self, what: str) -> None:
        if self.handler is not None:
            raise SubscriptionError(
                f"{what}: expected a subscription without a handler, found {self.name!r}, whose handler gets its events"
            )

    # ── changing it ──

    def change(self, *, where: Any = ..., params: Mapping[str, object] | None = None) -> dict[str, int]:
        """Another interest, or other parameters, from an exact point of each source's sequence.

        Returns the point: the sequence number of each source's last event judged by the old interest. Events still
        waiting were judged by the old one, and say so (`about.epoch`)."""
        return self.node.change(self, 0, where=where, params=params)

    def pause(self, why: str = "pause() was called") -> None:
        """Deliver nothing until `resume`; up to the queue's limit events wait, further ones are dropped and counted."""
        self._must_live("pause")
        self._pause(why)

    def _pause(self, why: str) -> None:
        with self._holding:
            self.paused = why
            self.mailbox.hold()

    def resume(self) -> None:
        """Go on after a pause, with the events that wait."""
        self._must_live("resume")
        with self._holding:
            self.paused, self.failures, self._parked = None, 0, False
            ready = self.mailbox.resume()
        if ready:
            self.mailbox.go()

    def cancel(self, *, drain: bool = False) -> None:
        """End it: no further event is taken. What waits is dropped and counted, or delivered first (`drain`), if it is
        not paused.

        A sink that pulls may still take what waits; then `get` raises ClosedError."""
        self.node.cancel(self, drain=drain)

    def _must_live(self, what: str) -> None:
        if self.cancelled:
            raise ClosedError(f"{what}: subscription {self.name!r} was cancelled; subscribe again")

    def _ended(self) -> ClosedError:
        return ClosedError(f"subscription {self.name!r} has ended; there are no more events")

    # ── what is going on ──

    @property
    def state(self) -> str:
        """open, paused, or closed."""
        if self.cancelled or self.mailbox.closed:
            return "closed"
        return "paused" if self.paused is not None else "open"

    @property
    def points(self) -> dict[str, int]:
        """For each source, the sequence number of its last event before the present interest held; 0 for all of it."""
        found: dict[str, int] = {}
        for attachment in list(self.attachments.values()):
            now = {flow.source.id: flow.source.number for flow in attachment.channel.flows()}
            found.update((name, 0) for name in now if name not in found)
            found.update(point for number, point in attachment.points.items() if now.get(point[0], number) == number)
        return found

    @property
    def counts(self) -> Counts:
        """Everything counted since it was made, over all channels and epochs."""
        return self.node.counts_of(self)

    def report(self) -> SubscriptionReport:
        """Counts, latency, where the interest runs and why."""
        return reporting.subscription(self)

    def totals(self) -> Counts:
        """Called while its sources stand still."""
        total, direct = self._past, self._past_direct
        for attachment in self.attachments.values():
            total = total + attachment.counts()
            direct += attachment.direct
        return replace(
            total,
            delivered=self._delivered + direct,
            dropped=self.mailbox.dropped,
            expired=self._expired,
            skipped=self._skipped,
            failed=self._failed,
            queued=self.mailbox.waiting,
        )

    def retire(self, attachment: Attachment) -> None:
        """An attachment ends; its counts stay."""
        self._past = self._past + attachment.counts()
        self._past_direct += attachment.direct

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()

    @property
    def target(self) -> str:
        """The channels it asked for, in words."""
        return ", ".join(dict.fromkeys(asked.text for asked in self.asked))

    def wants(self, channel: Channel) -> Iterator[int]:
        """The parts of what it asked for that concern a channel."""
        return (part for part, asked in enumerate(self.asked) if asked.wants(channel))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} to {self.target}, {self.state}>"


def _events(items: list[Item]) -> int:
    return sum(item[2] for item in items)


def _whole(priority: float | None) -> int:
    """A priority that was computed: none where there is no number, the utmost where it is infinite."""
    if priority is None:
        return 0
    return int(max(-FIRST, min(FIRST, priority)))


def _order(options: Options) -> Order:
    if options.priority is not None or options.dispatch.name == "priority":
        return "priority"
    return "deadline" if options.dispatch.name == "deadline" else "arrival"
