"""What waits for a sink that has left, where no log has it: given page by page to the node that goes on with it.

The sink's queue is where it waits, as for any sink that is slow: full, it makes publishers wait. It is emptied when the
new node asks, which does so once it is in force at all sources itself; each of these marks where the old place ends and
the new one begins. When all marks are here the old place ends: what is published then is the new one's. Pages are kept
until the new node has said that it has all, since an answer may be lost, or until it has not asked for a while.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.routing.letter import Chunk
from headwater.errors import HeadwaterError
from headwater.federation.moving.source_keys import is_logged, shared_key
from headwater.federation.security.policy import Restrict
from headwater.federation.wire.move_requests import (
    MOST_BYTES,
    MOST_EVENTS,
    PAGE_BYTES,
    PAGE_EVENTS,
    WaitingPage,
    WaitingSource,
)
from headwater.federation.wire.requests import pack_type, unpack_interest
from headwater.services.moving.register import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.channel.queues.mailbox import Item
    from headwater.channel.subscription import Subscription
    from headwater.federation.context import Context
    from headwater.federation.moving.marks import Marks, Watch
    from headwater.federation.security.rules import Principal
    from headwater.federation.wire.move_requests import Marked
    from headwater.types import EventType

TAKE_SECONDS = 30.0  # for which what waits is kept for who has claimed it, and does not ask
MARK_SECONDS = 10.0  # for which the sources' nodes are waited for
WAIT_SECONDS = 1.0  # for which an answer waits for something to tell
Row = tuple[int, int, int, bytes, bool]  # of which source, number, time, record, and whether it comes again


def has_unlogged(subscription: Subscription[Any]) -> bool:
    """Whether a sink has, or may have, events that no log has."""
    for channel, _ in list(subscription._attachments):
        if any(not is_logged(flow.source) for flow in channel.flows()):
            return True
    return any(not is_logged(item[1].source) for item in subscription._mailbox.contents())


class Handover:
    """Of one sink that was claimed. Threads may share it. `own`: the principal's node is this one itself."""

    def __init__(
        self, context: Context, marks: Marks, id: bytes, subscription: Subscription[Any], who: tuple[str, bytes]
    ) -> None:
        self._context, self._marks, self.subscription = context, marks, subscription
        self.id, self.who = id, who
        self.touched = monotonic()
        self.over = False  # the new node has all, or has given up
        self._lock = threading.Lock()
        self._watch: Watch | None = None
        self._until = 0.0  # when marks are waited for no longer
        self._durable = subscription._progress is not None
        self._sources: list[WaitingSource] = []
        self._places: dict[tuple[Any, Any, Any], int] = {}  # by channel, source and type: in `_sources`
        self._origins: list[tuple[Any, Any, Any]] = []  # the same, by place
        self._tests: dict[int, Callable[[bytes], bool]] = {}  # by place: whether the new node may have a record
        self._rows: deque[Row] = deque()
        self._events = self._bytes = 0  # that were taken out of the queue
        self._complete = self._short = False  # all that is to be handed over is in `_rows`; not all that should be
        self._pages: list[WaitingPage] = []

    @property
    def waiting(self) -> int:
        """Events that have not been asked for."""
        return self.subscription._mailbox.waiting + len(self._rows)

    def page(self, number: int, principal: Principal | None) -> WaitingPage:
        """The next one, or one that was given before. `principal` is who asks; None: this node itself."""
        with self._lock:
            self.touched = monotonic()
            if number < len(self._pages):
                return self._pages[number]
            if self._pages and not self._pages[-1].more:
                self._end()
                return WaitingPage()
            watch = self._begun()
            told = self._complete or self._gather(watch)
            made = self._made(watch, principal) if told else WaitingPage(more=True)
            self._pages.append(made)
            return made

    def _gather(self, watch: Watch) -> bool:
        """Wait a moment for something to tell, or for all marks, behind which nothing more is for the new node: whether
        it is known by now what it may have."""
        mailbox = self.subscription._mailbox
        channels = list(dict.fromkeys(channel for channel, _ in self.subscription._attachments))
        self._take_out()

        def ask() -> tuple[bool, bool]:
            """Whether it is known what the new node may have; and whether all that it is to have has come."""
            also = {(source.peer.id, channel.name) for channel, source, _ in self._origins if not source.local}
            found, late = self._marks.ask(digest_of(self.id), watch, channels, also), monotonic() > self._until
            self._short |= late and not found[1]
            return found[0] or late, found[1] or late

        def enough() -> bool:
            told, reached = ask()
            return told and (reached or bool(self._rows) or bool(mailbox.waiting))

        self._context.scheduler.until(enough, WAIT_SECONDS)
        told, reached = ask()
        self._take_out()  # after it was looked whether all marks are here
        if reached:
            self._complete = True
            self._short |= bool(mailbox.waiting) and self._is_full
            self._marks.forget(digest_of(self.id))
            end_here(self.subscription)
        return told

    @property
    def _is_full(self) -> bool:
        """No more than that is kept for the new node; the rest waits in the queue, as long as there is room."""
        return self._events >= MOST_EVENTS or self._bytes >= MOST_BYTES

    def _take_out(self) -> None:
        for item in () if self._is_full else self.subscription._mailbox.take_out():
            self._add(item, again=False)

    def _add(self, item: Item, *, again: bool) -> None:
        for row in self._rows_of(item, again=again):
            self._rows.append(row)
            self._events += 1
            self._bytes += len(row[3])

    def _begun(self) -> Watch:
        """With the first question: from here on the new node is in force, and marks may be asked for."""
        if self._watch is None:
            sink = self.subscription
            self._watch = watch = self._marks.watch(digest_of(self.id), self._context.id, self.who[0])
            self._until = monotonic() + MARK_SECONDS
            for (channel, _), attachment in list(sink._attachments.items()):
                if attachment.entry.interest is not None and attachment.entry.interest.stateful:
                    watch.gives[channel.name] = attachment.entry
            if sink._progress is not None:
                for item in sink._progress.unacknowledged():
                    self._add(item, again=True)
        return self._watch

    def _made(self, watch: Watch, principal: Principal | None) -> WaitingPage:
        """A page of the first rows that wait; the last one, if there are no more, and all marks are here."""
        seqs: list[int] = []
        stamps: list[int] = []
        records: list[bytes] = []
        of: list[int] = []
        again: list[int] = []
        sources: dict[int, int] = {}
        size = 0
        while self._rows and len(seqs) < PAGE_EVENTS and (not seqs or size + len(self._rows[0][3]) <= PAGE_BYTES):
            place, seq, stamp, record, repeated = self._rows.popleft()
            if not self._allowed(place, watch, principal)(record):
                continue
            of.append(sources.setdefault(place, len(sources)))
            if repeated:
                again.append(len(seqs))
            seqs.append(seq)
            stamps.append(stamp)
            records.append(record)
            size += len(record)
        more = bool(self._rows) or not self._complete
        named = [self._sources[place] for place in sources]
        if more:
            return WaitingPage(named, of, seqs, stamps, records, again, more=True)
        marked = [(*place, points) for place, points in sorted(watch.points.items())]
        return WaitingPage(named, of, seqs, stamps, records, again, marked=marked, short=self._short)

    def _rows_of(self, item: Item, *, again: bool) -> Iterator[Row]:
        attachment, letter = item[:2]
        sink, form = self.subscription, attachment.form
        if (self._durable and is_logged(letter.source)) or not sink._still_good(item):
            return
        if isinstance(letter, Chunk):
            records: Any = form.have.arrow_to_records(letter.taken())
            made, seqs, type = [bytes(each) for each in records], letter.seqs.tolist(), form.have
        elif letter.record is not None:
            made, seqs, type = [bytes(letter.record)], [letter.seq], getattr(form, "have", None)
        else:  # one of a batch that was taken apart: its event is as the sink sees it
            type = form.type
            made, seqs = [bytes(letter.event) if type is None else type.encode(letter.event)], [letter.seq]
        place = self._place(attachment.channel, letter.source, type)
        for seq, record in zip(seqs, made, strict=True):
            yield place, seq, letter.stamp, record, again

    def _place(self, channel: Any, source: Any, type: EventType | None) -> int:
        key = channel, source, type
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = len(self._sources)
            named = WaitingSource(channel.name, shared_key(self._context, source), source.name, pack_type(type))
            self._sources.append(named)
            self._origins.append(key)
        return found

    def _allowed(self, place: int, watch: Watch, principal: Principal | None) -> Callable[[bytes], bool]:
        """What the new node may have of a source: as rules and policies say here, and at the source's node. Of one that
        is there and does not say so, nothing."""
        found = self._tests.get(place)
        if found is None:
            channel, source, type = self._origins[place]
            limits: list[Any] | None = []
            if principal is not None:
                verdict = self._context.decisions.decide(principal, "subscribe", channel.name)
                limits = [verdict.interest] if isinstance(verdict, Restrict) else [] if verdict else None
            node = "" if source.local else source.peer.id
            if limits is not None and node:
                limits = self._with_terms(limits, watch.terms.get((node, channel.name)), node)
            found = self._tests[place] = _tester(limits, channel.type, type)
        return found

    def _with_terms(self, limits: list[Any], terms: Marked | None, node: str) -> list[Any] | None:
        if terms is None:
            return None if self._marks.is_there(node) else limits
        if terms.nothing:
            return None
        try:
            return limits if terms.limit is None else [*limits, unpack_interest(terms.limit, terms.params)]
        except HeadwaterError:
            return None

    def _end(self) -> None:
        self.over = True
        self._rows.clear()
        self._pages[:] = [WaitingPage() for _ in self._pages[:1]]  # what was on them is not kept
        self._context.scheduler.nudge()

    def give_up(self) -> int:
        """Nobody asks any more: how many events were not asked for."""
        with self._lock:
            left = self.waiting
            self._marks.forget(digest_of(self.id))
            end_here(self.subscription)
            self._end()
            return left


def end_here(subscription: Subscription[Any]) -> None:
    """Nothing of a sink that has left is at its old node any more."""
    subscription._mailbox.close(drop=True)  # first: one that pulls is not to be given what still comes
    subscription.node._end_subscription(subscription, drain=False)


def _tester(limits: list[Any] | None, channel: Any, type: EventType | None) -> Callable[[bytes], bool]:
    """Whether a record passes all of these; None: nothing does. What cannot be told of records of a type does not."""
    if limits is None:
        return lambda record: False
    if not limits:
        return lambda record: True
    if type is None or channel is None or type.record != channel.record or any(each.stateful for each in limits):
        return lambda record: False
    try:
        fits = [each if each.type.record == type.record else each.on(type) for each in limits]
    except HeadwaterError:
        return lambda record: False
    return lambda record: all(each.test(record) for each in fits)


__all__ = ["MARK_SECONDS", "TAKE_SECONDS", "Handover", "end_here", "has_unlogged"]
