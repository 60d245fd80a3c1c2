"""A source: where events enter a channel. Making one advertises it, closing it withdraws it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from inspect import getdoc
from itertools import count
from time import perf_counter_ns
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, Self, overload

from headwater.channel.annotations import E_contra, shown
from headwater.channel.concurrency.bounded_queue import BoundedQueue
from headwater.channel.concurrency.gate import Gate
from headwater.channel.concurrency.reentrancy import DEPTH, NEST, in_handler, running
from headwater.channel.options.delivery import check_zones
from headwater.channel.queues.forms import BytesIntake, Intake
from headwater.channel.queues.mailbox import dispatch_all, hand_over
from headwater.channel.reports.tally import Fates, Tally
from headwater.channel.routing.attachment import attachments_of
from headwater.channel.routing.fast_path import SAMPLE_MASK, Bypass
from headwater.channel.routing.letter import Chunk, Letter
from headwater.channel.routing.route import Flow, Lineup, Ready
from headwater.channel.source_rate import SourceRate
from headwater.errors import (
    ClosedError,
    EncodeError,
    EvolutionError,
    FactError,
    QueueFull,
    StoreError,
    SubscriptionError,
)
from headwater.interest import Interest
from headwater.late import asyncio, np
from headwater.native.once import once
from headwater.native.python.publish import FastPath, SourceSlots, offered

if TYPE_CHECKING:
    from headwater.channel.backlog.ring import EventRing
    from headwater.channel.channel import Channel
    from headwater.channel.options.rate import Rate
    from headwater.channel.reports.report import SourceReport
    from headwater.channel.routing.contract import RoutedChannel
    from headwater.channel.routing.route import Entry
    from headwater.channel.source_context import Context
    from headwater.store.log.channel_log import ChannelLog

PIECE = 65_536  # rows of a batch that are taken in at once: others who want the source's lock wait for no more
NATIVE = True  # whether machine code takes the fast path, where it can; Python does the same, more slowly
MOVE_SECONDS = 60.0  # for which a token is good
_NOWHERE: Any = object()  # no zones were given
_NUMBERS = count()
SHOWN = frozenset(  # what programs use
    [
        "ask",
        "channel",
        "close",
        "closed",
        "context",
        "facts",
        "id",
        "move",
        "name",
        "node",
        "passive",
        "priority",
        "publish",
        "publish_many",
        "report",
        "send",
        "seq",
        "type",
        "zones",
    ]
)


class Source(SourceSlots, Generic[E_contra]):
    """Publishes events into a channel. Threads may share it; the order of its events is the order of the calls.

    Made by `channel.source(...)`. `publish` and `publish_many` return the sequence number of the last event.
    """

    local = True  # it is of this process
    place: str | None = None  # else the node and the channel that it is of
    promise: int | None = None  # of a stand-in for another node's: none of its later events is older (nanoseconds)
    said: int | None = None  # the same as it has said itself, though its node may have vanished since
    relays = False  # it passes on what was published elsewhere, and promises what its origin has
    # Of one that publishes matches, which have times of their own (microseconds): none of its later ones has an earlier
    # one than the first of these, and none of those that it has published a later one than the second.
    come_to: Callable[[], tuple[int, int] | None] | None = None
    begun_at: int | None = None  # of a stand-in: after which event all comes that is wanted; None if not known
    live = 0  # of a stand-in: up to this event comes what earlier sinks have missed, and who came later does not get
    rereads = False  # whether what a sink could not keep can be read from its log later
    position_key: str | None = None  # where sinks remember how far they are, of sources that outlive this process
    # The same of one of this process whose numbers go on in the next, and whose log durable sinks here read what they
    # have missed from; and up to where its events are of a life before.
    kept_key: str | None = None
    again = 0
    # Of one that has moved here from another node: under which key sinks everywhere keep how far they are with it, how
    # often it has moved, what proves that, and the last event that it had published before.
    home: str = ""
    term = 0
    deeds: tuple[bytes, ...] = ()
    begins_after = 0
    moved_to: str | None = None  # where it goes on, if not here any more
    log: ChannelLog | None = None  # where its events are written before anything else is done with them
    context: Context | None = None  # what interests may read of its process
    ring: EventRing | None = None  # its last events, where these are kept in memory
    rate: SourceRate | None = None  # what it may publish
    # Of one that passes on what is published elsewhere: where that is, the federations that it has come through, and
    # the filters that it has passed on the way.
    origin: str = ""
    path: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    # Is told of a record that is too large to go to another node: the record, the node, and how large it may be.
    uncrossable: Callable[[bytes, str, int], object] | None = None
    _flow: Flow  # of its own channel
    _full: set[BoundedQueue]  # of all in the node, those that publishers must wait for

    def __init__(
        self,
        channel: Channel,
        name: str,
        intake: Intake | BytesIntake,
        *,
        facts: Interest | None,
        priority: int,
        ask: Callable[[], Any] | None,
        zones: frozenset[str] = frozenset(),
        log: ChannelLog | None = None,
        context: Context | None = None,
        rate: Rate | None = None,
    ) -> None:
        self.log = log
        if rate is not None:
            self.rate = SourceRate(rate, priority, channel.node)
        if context is not None:
            self.context = context
        self.channel, self.name, self.facts, self.priority = channel, name, facts, priority
        self.key = name  # unique in its channel
        self._zones = zones
        self.id = f"{channel.name}/{name}"  # unique in its node
        self.number = next(_NUMBERS)  # the order in which sources are locked
        self.node: str = channel.node.name
        self.lock = Gate()
        # Where it is logged: of who writes an event and then takes it in. It is taken before `lock`, under which no
        # file is written, since a disk may be slow.
        self.writing = threading.Lock()
        self.stated: dict[str, object] = {}  # its facts, as they were given
        self.closed = self.withdrawn = False  # closed: nothing may be published; withdrawn: it is no longer there
        self.flows: dict[RoutedChannel, Flow] = {}
        self.past = Tally()  # of channels derived from its own that are no more
        self._intake, self._ask = intake, ask
        self._asking = threading.Lock()
        self._timer: Any = None
        self.at_end: Callable[[], object] | None = None  # for whoever publishes here, to stop
        self._full = channel.node._full
        self._gate = self.lock.token
        self._after = 0  # nanoseconds since 1970, before which it publishes nothing
        self._stamp: Callable[[], int] = channel.node._stamp if log is None else channel.node._steady
        direct = isinstance(intake, Intake) and intake.plan is None and facts is None
        self._fast = intake.fast if direct else lambda event: None  # type: ignore[union-attr]
        self._test = facts.native() if facts is not None else None

    def start(self) -> None:
        """Its flows are there: it may publish."""
        self._flow = self.flows[self.channel]
        if self.context is not None:
            self.context.begin(self)
        self._slow = _publisher(self) if self.log is None else _logging_publisher(self)
        if self.rate is not None:
            self._slow = MethodType(Source._publish_rated, self)
        quick = self.log is None and self.rate is None and NATIVE and offered()
        fast = _fast_path().publish(self) if quick else None
        self.publish = self._slow if fast is None else fast  # type: ignore[method-assign]

    def resent(self, seq: int) -> bool:
        """Whether an event is of a life before, so that sinks may have had it then."""
        return seq <= self.again

    def enlist(self) -> None:
        """Its flows are there: it is one of its channel's sources, and may publish."""
        self.start()
        self.channel.sources[self.key] = self

    def delist(self) -> None:
        """It is withdrawn."""
        self.channel.sources.pop(self.key, None)

    def flow(self, channel: RoutedChannel, lineup: Lineup) -> Flow:
        """Its flow in a channel."""
        return Flow(self, channel, lineup)

    def ask_again(self) -> None:
        """Sinks that were paused, and could not keep what came, want it now: it is in the log."""
        if self.closed or not self.rereads:
            return
        behind = [(each, past) for each in attachments_of(self) if (past := each.missing(self)) is not None]
        if not behind:
            return
        ready: Ready = []
        with self.between():
            for member, past in behind:
                if not self.closed:
                    member.read_again(self, past, ready)
        dispatch_all(list(dict.fromkeys(ready)))

    def logged_upto(self, channel: RoutedChannel) -> int:
        """The number of its last event before it comes, as far as a channel is concerned: it goes on from there. That
        is in the log, or it was published at another node."""
        if channel is not self.channel:
            return 0
        return self.begins_after if self.log is None else max(self.begins_after, self.log.last(self.name))

    def placed(self, channel: RoutedChannel, entry: Entry) -> tuple[str, str] | None:
        """Where an interest in its events runs, and why there; None if here, like all others."""
        return None

    # ── publishing ──

    def publish(self, event: E_contra | Mapping[str, Any] | None = None, /, **fields: Any) -> int:
        """Publish one event: an instance, a dict, or its fields as keywords. Returns its sequence number.

        Raises before anything is done if the event does not fit the type (`EncodeError`) or contradicts the source's
        facts (`FactError`), if the source is closed (`ClosedError`), or a sink's queue is full and its policy is to say
        so, or stays full for too long (`QueueFull`), or, where it is logged, it cannot be written (`StoreError`)."""
        # A source has a function of its own in its place: machine code, as a rule, which leaves to `_slow` what it
        # cannot do. See `routing/fast_path.py`.
        return self._slow(event, **fields)

    def _publish_rated(self, event: Any = None, /, **fields: Any) -> int:
        """`publish` of a source with a rate. Of an event that is shed, which has no number, that of the last before."""
        record, kept = self._encode(event, fields)
        if self.rate is not None and not self.rate.take(1, self._is_closed):
            return self._flow.seen
        if self._full:
            self._admit(record)
        return self._send(record, kept)

    def _is_closed(self) -> bool:
        return self.closed

    def publish_many(self, events: Any) -> int:
        """Publish many events: an iterable of what `publish` takes, a RecordBatch or Table, a pandas or polars frame.

        All are checked before the first is published. Returns the sequence number of the last. Where the source has a
        rate, the first of them are published, and those beyond it shed, or published when their turn comes.
        """
        if self.closed:
            self._check_open()
        try:
            batch = self._intake.batch(events)
        except EncodeError as error:
            raise _placed(error, str(self)) from None
        except EvolutionError as error:
            raise EvolutionError(f"{self}: {str(error).splitlines()[0]}", error.problems) from None
        if batch is not None:
            return self._publish_batch(batch) if self.rate is None else self._publish_in_parts(self.rate, batch)
        seq = self._flow.seen
        for index, (record, event) in enumerate(self._encode_all(events)):
            try:
                if self.rate is not None and not self.rate.take(1, self._is_closed):
                    continue
                if self._full:
                    self._admit(record)
                seq = self._send(record, event)
            except (QueueFull, ClosedError) as error:
                if index:
                    error.add_note(f"this was event {index} of publish_many: those before it were published")
                raise
        return seq

    def _publish_in_parts(self, rate: SourceRate, batch: Any) -> int:
        """A batch at a source with a rate: as many rows as may go, and later the others, or never."""
        self._check_facts(batch)
        seq, rows = self._flow.seen, batch.num_rows
        while rows:
            taken = rate.take(rows, self._is_closed)
            if taken:
                seq = self._publish_batch(batch.slice(batch.num_rows - rows, taken))
            rows = rows - taken if rate.rate.waits else 0
        return seq

    async def send(self, event: E_contra | Mapping[str, Any] | None = None, /, **fields: Any) -> int:
        """As `publish`, from a coroutine: where a sink's queue is full it waits without stopping the loop."""
        record, kept = self._encode(event, fields)
        if self.rate is not None and not await self.rate.atake(self._is_closed):
            return self._flow.seen
        while (mailbox := self._blocking(record)) is not None:
            self._not_here(mailbox)
            changed = mailbox.change(asyncio.get_running_loop())
            try:
                if mailbox.is_full:
                    await asyncio.wait([changed], timeout=mailbox.queue.wait)
                    if not changed.done():
                        raise self._full_error(mailbox, f"stayed so for {mailbox.queue.wait:g} s")
            finally:
                changed.cancel()
        return self._send(record, kept)

    def _encode(self, event: Any, fields: dict[str, Any] | None) -> tuple[bytes, Any]:
        try:
            if fields:
                if event is not None:
                    raise EncodeError("", "publish: expected an event, or its fields as keywords, found both")
                record, kept = self._intake.encode(None, fields)
            elif event is None and self._intake.type is not None:
                record, kept = self._intake.encode(None, {})
            else:
                record, kept = self._intake.encode(event)
        except EncodeError as error:
            raise _placed(error, str(self)) from None
        if self._test is not None and not self._test.test(record):
            raise self._contradiction("an event")
        return record, kept

    def _contradiction(self, what: str) -> FactError:
        facts = ", ".join(f"{name} = {value!r}" for name, value in self.stated.items())
        return FactError(
            f"{self}: expected events for which its facts hold ({facts}), found {what} that contradicts them; "
            "correct the event, or publish it at a source that does not state this"
        )

    def _encode_all(self, events: Any) -> list[tuple[bytes, Any]]:
        if isinstance(events, (str, bytes, bytearray, dict)) or not isinstance(events, Iterable):
            found = f"found {type(events).__name__}; publish() takes one event"
            raise EncodeError("", f"{self}: publish_many: expected an iterable of events, or columns, {found}")
        made = []
        for index, event in enumerate(events):
            try:
                made.append(self._encode(event, None))
            except EncodeError as error:
                raise _placed(error, f"event {index}") from None
            except FactError as error:
                raise FactError(f"event {index}: {error}") from None
        return made

    def _send(self, record: bytes, event: Any) -> int:
        """A checked event to all who want it: by the fast path, if that is open, else by the slow one."""
        if self.log is not None:
            return self._send_logged(self.log, record, event)
        flow, gate = self._flow, self.lock
        ready: Ready = []
        bypass: Bypass | None = None
        try:
            gate.token.pop()  # as in `with gate`, but quicker
        except IndexError:
            try:
                gate.queue()
            except BaseException:
                gate.undo()
                raise
        except BaseException:
            gate.token.append(None)
            raise
        try:
            try:
                seq, open = flow.seen + 1, flow.bypass
                if open is not None and seq & SAMPLE_MASK and open.try_take():
                    bypass, flow.seen = open, seq
                else:
                    if self.closed:
                        self._check_open()
                    letter = Letter(event, record, self, seq, self._stamp(), perf_counter_ns(), self.priority)
                    flow.accept(letter, ready)
            finally:
                gate.token.append(None)
                if gate.waiters:
                    gate.wake()
        except BaseException:  # Ctrl-C, if something was taken by then
            if bypass is not None:
                bypass.give_back()
            hand_over(iter(ready))
            raise
        if bypass is not None:
            bypass.call(event, record)
        elif ready:
            dispatch_all(ready)
        return seq

    def _send_logged(self, log: ChannelLog, record: bytes, event: Any) -> int:
        """The same, once it is in the log. Times are in whole microseconds, as the log has them."""
        ready: Ready = []
        with self.writing:
            seq, stamp, ticket = self._log(log, log.append, record)
            gate = self.lock
            try:
                gate.token.pop()  # as in `with gate`, but quicker
            except IndexError:
                try:
                    gate.queue()
                except BaseException:
                    gate.undo()
                    raise
            except BaseException:
                gate.token.append(None)
                raise
            try:
                letter = Letter(event, record, self, seq, stamp, perf_counter_ns(), self.priority)
                self._flow.accept(letter, ready)
            finally:
                gate.token.append(None)
                if gate.waiters:
                    gate.wake()
        self._settle(log, ticket, ready)
        return seq

    def _log(self, log: ChannelLog, append: Callable[[str, int, int, Any], int], what: Any) -> tuple[int, int, int]:
        """Write an event, or a batch, while nobody else writes: the (first) sequence number, the time, and the ticket
        by which to wait until it is on the disk."""
        if self.closed:
            self._check_open()
        flow, stamp = self._flow, self._stamp() // 1000 * 1000
        seq = flow.seen + 1
        try:
            return seq, stamp, append(self.name, seq, stamp, what)
        except StoreError:
            if not self._further(log):
                raise
            seq = flow.seen + 1
            return seq, stamp, append(self.name, seq, stamp, what)

    def _further(self, log: ChannelLog) -> bool:
        """Whether the log was further than the source, which goes on from there now: an interrupt (Ctrl-C) has come
        when an event was written and nothing else was done with it. Nobody else writes."""
        flow, last = self._flow, log.last(self.name)
        if last <= flow.seen:
            return False
        with self.lock:
            flow.skip(last)
            if self.ring is not None:
                self.ring.begin_anew(last)
        return True

    def _settle(self, log: ChannelLog, ticket: int, ready: Ready) -> None:
        """Have it on the disk, if that is wanted, before anybody is told."""
        try:
            log.settle(ticket)
        except BaseException:
            hand_over(iter(ready))
            raise
        dispatch_all(ready)

    def _publish_batch(self, batch: Any) -> int:
        """A batch by the slow path: checked as a whole first, so that all or nothing is published, and taken in piece
        by piece, so that others can publish in between."""
        self._check_facts(batch)
        rows = batch.num_rows
        if rows == 0:
            return self._flow.seen
        if self._full:
            self._admit(None)
        log = self.log
        if log is not None:
            return self._publish_logged(log, batch)
        last = 0
        for piece in _pieces(batch):
            ready: Ready = []
            with self.lock:  # who finds it free may take it that nothing older than the present comes
                if self.closed:
                    self._check_open()
                last = self._take_in(piece, self._stamp(), ready)
            dispatch_all(ready)
        return last

    def _check_facts(self, batch: Any) -> None:
        if self._test is not None:
            selection = self._test.batch(batch).passed
            if not selection.all():
                raise self._contradiction(f"row {int(np.argmin(selection))}")

    def _publish_logged(self, log: ChannelLog, batch: Any) -> int:
        """All of it is in the log, or nothing; then it is taken in."""
        ready: Ready = []
        with self.writing:
            last, stamp, ticket = self._log(log, log.append_batch, batch)
            for piece in _pieces(batch):
                with self.lock:
                    last = self._take_in(piece, stamp, ready)
        self._settle(log, ticket, list(dict.fromkeys(ready)))
        return last

    def _take_in(self, piece: Any, stamp: int, ready: Ready) -> int:
        """Some rows to all who want them, under its lock; the number of the last."""
        flow = self._flow
        flow.accept_chunk(Chunk(piece, self, flow.seen + 1, stamp, perf_counter_ns(), self.priority), ready)
        return flow.seen

    # ── sinks that cannot keep up ──

    def _admit(self, record: bytes | None) -> None:
        """Wait until every sink that wants this record has room, as their policies say; or raise QueueFull."""
        while (mailbox := self._blocking(record)) is not None:
            self._not_here(mailbox)
            dispatcher, wait = mailbox.dispatcher, mailbox.queue.wait
            if dispatcher is not None and dispatcher.stuck(waits=True):
                raise self._full_error(
                    mailbox, "only this thread could empty it; a coroutine can `await source.send(...)`"
                )
            try:
                if not mailbox.wait(lambda it=mailbox: not it.is_full, wait):  # type: ignore[misc]
                    raise self._full_error(mailbox, f"stayed so for {wait:g} s")
            finally:
                if dispatcher is not None:
                    dispatcher.goes_on()

    def _not_here(self, mailbox: BoundedQueue) -> None:
        """A mailbox is full: see that it is not for the caller to empty it."""
        if any(it is mailbox for it in running()):
            raise self._full_error(mailbox, "only this thread could empty it: it is running the sink's handler")
        if mailbox.inline:
            mailbox.dispatch()  # it may be that this very thread was about to, after the handler that it is in

    def _blocking(self, record: bytes | None) -> BoundedQueue | None:
        """A mailbox that this record would have to wait for; raises if its policy is to fail."""
        if not self._full:
            return None
        with self.lock:
            if self.closed:
                self._check_open()
            full = [each for each in self._flow.reaches(record) if each.is_full and not each.give_way()]
        for mailbox in full:
            if mailbox.queue.policy == "fail":
                raise self._full_error(mailbox, "its policy is to fail")
        return full[0] if full else None

    def _full_error(self, mailbox: BoundedQueue, why: str) -> QueueFull:
        return QueueFull(
            f"{self}: the queue of subscription {mailbox.name!r} is full with {mailbox.waiting:,} events and {why}; "
            "the event was not published. Make the sink quicker, its queue longer, or let it drop events",
            mailbox.name,
        )

    # ── being asked for events ──

    def ask(self) -> int:
        """Ask the source's function for events and publish what it gives: how many there were."""
        if self._ask is None or self.closed or not self._asking.acquire(blocking=False):
            return 0  # another thread is asking just now; what it gets reaches everyone
        try:
            given = self._ask()
        finally:
            self._asking.release()
        if given is None:
            return 0
        before = self._flow.seen
        if isinstance(given, (list, tuple)) or (not isinstance(given, dict) and self._intake.batch(given) is not None):
            self.publish_many(given)
        else:
            self.publish(given)
        return self._flow.seen - before

    @property
    def passive(self) -> bool:
        """Whether it publishes only when it is asked."""
        return self._ask is not None

    # ── state ──

    def fates(self, channel: RoutedChannel) -> Fates:
        """Where to count what becomes of its events in a channel."""
        flow = self.flows.get(channel)
        if flow is None:  # a derived channel that is closed by now
            flow = next((each for each in channel.flows() if each.source is self), None)
        return self.past.fates if flow is None else flow.fates

    @property
    def seq(self) -> int:
        """The sequence number of its last event; the first is 1."""
        return self._flow.seen

    @property
    def zones(self) -> frozenset[str]:
        """Those that its events stay in; none for a source that is heard everywhere in its channel."""
        return self._zones

    @overload
    def move(self, zones: str | Iterable[str] | None) -> int: ...
    @overload
    def move(self, *, to: str | None = None, lasts: float = MOVE_SECONDS) -> str: ...
    def move(self, zones: Any = _NOWHERE, *, to: str | None = None, lasts: float = MOVE_SECONDS) -> int | str:
        """Go to other zones, or (None) be heard everywhere, from an exact point: the number of its last event before.
        What interests remember of this source they go on remembering, should it come back to them.

        Without zones, go on at another node: a token, with which `node.resume_source(token)` there goes on with its
        sequence. It is for one use, within `lasts` seconds, by `to`: a node's name or id, or as in rules (`user:ann`),
        or by whoever shows it and may advertise its channel. Until then it publishes here; from then on publishing here
        is a ClosedError that says where it is. See docs/moving.md."""
        node = self.channel.node
        if zones is _NOWHERE:
            if self.closed:
                self._check_open()
            return node._move_source(self, to, lasts)
        if to is not None or lasts != MOVE_SECONDS:
            raise SubscriptionError("move: expected zones, or (to=, lasts=) another node, found both; call it twice")
        scope = check_zones(zones) or frozenset()
        point = node._wiring.rezone(self, scope)
        node._release()
        return point

    @property
    def type(self) -> Any:
        """Its own event type; None where the channel carries bytes."""
        return self._intake.type

    def close(self) -> None:
        """Withdraw it: publishing is an error from now on. What was published is delivered."""
        self.channel.node._close_source(self)

    def keep_time(self, stamp: Callable[[], int]) -> None:
        """Go by another clock from here on."""
        after = self._after
        self._stamp = stamp if not after else lambda: max(stamp(), after)

    def go_on_after(self, last: int) -> None:
        """What it publishes here is later than its last event elsewhere, to the microsecond, whatever the clock here
        says: in the order of time, events of both nodes are in that of their numbers."""
        self._after = last // 1000 * 1000 + 1000
        self.keep_time(self._stamp)

    @contextmanager
    def between(self) -> Iterator[None]:
        """Between two of its events: none is being written, or taken in."""
        if self.log is None:
            with self.lock:
                yield
        else:
            with self.writing, self.lock:
                yield

    def shut(self) -> None:
        """Nothing may be published from here on; called `between` two events."""
        self.closed = True
        self._flow.bypass = None  # the fast path does not look

    def reopen(self) -> None:
        """It may publish again; called `between` two events."""
        self.closed = False
        self._flow.take(self._flow.lineup.route)

    def _check_open(self) -> None:
        """While a node drains, handlers may still publish: what they make of the last events is delivered as well. But
        for a source that goes on elsewhere: its next number is given there."""
        node = self.channel.node
        if node._draining and not self.withdrawn and in_handler() and self.moved_to is None:
            return
        if self.moved_to is not None:
            raise ClosedError(f"{self}: it has moved to {self.moved_to}, and goes on there; publish there")
        what = "its node is closed" if node.closed else "it was closed"
        raise ClosedError(f"{self}: expected an open source, found that {what}; make another with channel.source()")

    def report(self) -> SourceReport:
        """What it has published, and its state."""
        return self.channel.node._source_report(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __str__(self) -> str:
        return f"source {self.name!r} of {self.channel.name}"

    def __dir__(self) -> list[str]:
        return shown(self, SHOWN)

    def __repr__(self) -> str:
        return f"<{'closed ' if self.closed else ''}{self}, {self.seq:,} events>"


def _publisher(source: Source[Any]) -> Callable[..., int]:
    """`Source.publish` in Python, of one source: `_encode` and `_send` in one function with all it needs at hand, since
    it runs for every event that machine code leaves to it. In parts, as methods, it takes a fifth longer."""
    fast, full, flow, gate, priority = source._fast, source._full, source._flow, source.lock, source.priority
    enter, leave = gate.token.pop, gate.token.append

    def publish(self: Source[Any], event: Any = None, /, **fields: Any) -> int:
        """What `Source.publish` does, with all it needs at hand: encode, wait where a queue is full, take the source's
        lock, and hand over by the fast path or write a letter. Handlers are called when the lock is free again."""
        if fields or (record := fast(event)) is None:
            record, event = self._encode(event, fields)
        if full:
            self._admit(record)
        ready: Ready | None = None  # of the slow path
        taken: Any = None
        try:
            enter()  # as in `with gate`, but quicker
        except IndexError:
            try:
                gate.queue()
            except BaseException:
                gate.undo()
                raise
        except BaseException:
            leave(None)
            raise
        try:
            try:
                seq, bypass = flow.seen + 1, flow.bypass
                if bypass is None or bypass.pending is not None or not seq & SAMPLE_MASK:
                    pass  # a lane is for machine code
                elif not (bypass.items or bypass.blocks_bypass) and len(NEST) < DEPTH:
                    try:
                        bypass.token.pop()  # as in `try_take`
                    except IndexError:
                        pass
                    except BaseException:
                        bypass.token.append(None)
                        raise
                    else:
                        taken, flow.seen = bypass, seq
                if taken is None:
                    if self.closed:
                        self._check_open()
                    ready = []
                    letter = Letter(event, record, self, seq, self._stamp(), perf_counter_ns(), priority)
                    flow.accept(letter, ready)
            finally:
                leave(None)
                if gate.waiters:
                    gate.wake()
        except BaseException:  # Ctrl-C, if something was taken by then
            if taken is not None:
                taken.give_back()
            if ready:
                hand_over(iter(ready))
            raise
        if ready is None:
            taken.call(event, record)
        elif len(ready) == 1:
            ready[0].dispatch()
        elif ready:
            dispatch_all(ready)
        return seq

    return _bound(publish, source)


def _logging_publisher(source: Source[Any]) -> Callable[..., int]:
    """The same of a source whose events are logged: there is no fast path."""
    fast, full, send = source._fast, source._full, source._send

    def publish(self: Source[Any], event: Any = None, /, **fields: Any) -> int:
        if fields or (record := fast(event)) is None:
            record, event = self._encode(event, fields)
        if full:
            self._admit(record)
        return send(record, event)

    return _bound(publish, source)


def _bound(publish: Callable[..., int], source: Source[Any]) -> Callable[..., int]:
    """A function as the method `publish` of a source."""
    publish.__qualname__, publish.__doc__ = "Source.publish", getdoc(Source.publish)
    return MethodType(publish, source)


def _pieces(batch: Any) -> Iterator[Any]:
    """A batch in pieces that are taken in within moments."""
    rows = batch.num_rows
    if rows <= PIECE:
        yield batch
        return
    for start in range(0, rows, PIECE):
        yield batch.slice(start, PIECE)


def _placed(error: EncodeError, place: str) -> EncodeError:
    """The same error, saying where."""
    made = EncodeError("", f"{place}: {error}")
    made.path = error.path
    return made


@once
def _fast_path() -> FastPath:
    return FastPath(nest=NEST, depth=DEPTH, sample=SAMPLE_MASK, doc=getdoc(Source.publish) or "")
