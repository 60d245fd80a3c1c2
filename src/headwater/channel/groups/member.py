"""A member of a group at this node: a subscription whose events are handed to it, one by one, by groups.

It is in no routes. What its own node publishes it gets of the group here, and what other nodes publish, of the groups
there; each of these is told when the handler has returned, or has raised: it has had its event then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec.structs import astuple

from headwater.channel.concurrency.reentrancy import NEST, runs
from headwater.channel.groups.distribution import Handed
from headwater.channel.queues.mailbox import Item
from headwater.channel.routing.letter import About, Letter
from headwater.channel.subscription import Subscription
from headwater.errors import SubscriptionError
from headwater.late import asyncio

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.groups.service import Groups
    from headwater.channel.groups.terms import Terms
    from headwater.channel.reports.counters import Counts
    from headwater.channel.routing.attachment import Attachment
    from headwater.channel.routing.contract import RoutedSource
    from headwater.channel.routing.counts import Readings
    from headwater.channel.routing.route import Ready

Done = Callable[[Sequence[int]], object]  # is told the numbers of events that are handled
LONG_SECONDS = 0.1  # after which it is said how many events of a run are handled


class Dealt(Letter):
    """An event that a group has handed to a member: by which number, and to whom that says so when it is handled."""

    __slots__ = ("done", "number", "redelivered")

    def __init__(
        self,
        record: Any,
        source: Any,
        seq: int,
        stamp: int,
        sent: int,
        number: int,
        done: Done,
        *,
        redelivered: bool,
        event: Any = None,
        priority: int = 0,
    ) -> None:
        self.event, self.record, self.source, self.seq = event, record, source, seq
        self.stamp, self.sent, self.priority = stamp, sent, priority
        self.number, self.done, self.redelivered = number, done, redelivered

    @classmethod
    def of(cls, letter: Letter, number: int, done: Done, *, redelivered: bool) -> Dealt:
        """An event of this node."""
        return cls(
            letter.record,
            letter.source,
            letter.seq,
            letter.stamp,
            letter.sent,
            number,
            done,
            redelivered=redelivered,
            event=letter.event,
            priority=letter.priority,
        )


class DealtRun:
    """Events of one source and time that a group has handed to a member, by numbers that follow on each other."""

    __slots__ = ("done", "first", "records", "redelivered", "sent", "seqs", "source", "stamp")

    def __init__(
        self,
        first: int,
        source: Any,
        stamp: int,
        sent: int,
        seqs: list[int],
        records: list[bytes],
        done: Done,
        *,
        redelivered: bool,
    ) -> None:
        self.first, self.source, self.stamp, self.sent = first, source, stamp, sent
        self.seqs, self.records, self.done, self.redelivered = seqs, records, done, redelivered

    def __len__(self) -> int:
        return len(self.records)

    @property
    def numbers(self) -> range:
        """Those of its events."""
        return range(self.first, self.first + len(self.records))

    def letter(self, at: int) -> Dealt:
        """One of them by itself."""
        return Dealt(
            self.records[at],
            self.source,
            self.seqs[at],
            self.stamp,
            self.sent,
            self.first + at,
            self.done,
            redelivered=self.redelivered,
        )

    def part(self, start: int, end: int) -> DealtRun:
        """Some of them."""
        return DealtRun(
            self.first + start,
            self.source,
            self.stamp,
            self.sent,
            self.seqs[start:end],
            self.records[start:end],
            self.done,
            redelivered=self.redelivered,
        )


class DealtAbout(About, kw_only=True):
    """What is known of an event that was handed to a member of a group."""

    _again: bool

    @property
    def redelivered(self) -> bool:
        """Whether another member, which is gone, may have had it already."""
        return self._again

    def acknowledge(self) -> None:
        """Refused: a member of a group has acknowledged an event when its handler has returned."""
        raise SubscriptionError(
            f"acknowledge: {self.subscription!r} is a member of a group, which has acknowledged an event when its "
            "handler has returned; leave it out"
        )


class GroupMember(Subscription[Any]):
    """A subscription with a group. It is its own seat in the group of this node."""

    gathers = False  # its events are handed to it one by one
    _calm = False  # what it gets is not what its node's sources evaluate
    _shared = True

    def __init__(self, *given: Any) -> None:
        *usual, groups, group, terms, credit = given
        self._groups: Groups = groups
        self.group: str = group
        self.terms: Terms = terms
        self._held: list[Item] = []  # what its handler has just now
        self._running: DealtRun | None = None  # or which of these, by its place
        self._run_at = 0
        self._pulled_items: list[Item] = []
        self._dealt = 0  # events that were handed to it
        self._place: Attachment | None = None
        self.untaken: list[int] = []  # by the group of this node, when it had just ended; under that one's lock
        super().__init__(*usual)
        options, dispatcher = self._options, self._dispatcher
        self._simple = (  # there is nothing to it but to call a function in the thread that brings events
            dispatcher is not None
            and dispatcher.inline
            and not (options.coroutine or options.before or options.after or options.batch or options.about)
            and options.priority is None
            and options.lifetime is None
            and options.rate is None
            and self._asked[0].target.type is not None  # type: ignore[union-attr]
        )
        self.id = f"{self.node.name}/{self.name}/{token_hex(8)}"
        self.credit: int = credit
        self.channel: Channel = self._asked[0].target  # type: ignore[assignment]

    # ── as a seat of the group of this node ──

    def hand(self, handed: list[Handed[Letter]], ready: Ready) -> None:
        """What this node's own sources have published, under the lock of the group."""
        letters = [Dealt.of(each.event, each.number, self._done, redelivered=each.redelivered) for each in handed]
        if untaken := self.take(letters, ready):
            self.untaken += untaken

    def hand_one(self, number: int, letter: Letter, ready: Ready) -> None:
        """The same for a single one."""
        if self.take((Dealt.of(letter, number, self._done, redelivered=False),), ready):
            self.untaken.append(number)

    def hand_run(self, first: int, letters: list[Letter], ready: Ready) -> None:
        """The same for some, one after the other."""
        for number, letter in enumerate(letters, first):
            self.hand_one(number, letter, ready)

    def take(self, letters: Iterable[Dealt], ready: Ready) -> list[int]:
        """Events that were handed to it, by whichever group: the numbers of those that it takes no more, since it has
        just ended. Whoever has handed them is about to hear of that."""
        attachment = next(iter(self._attachments.values()), None)
        if attachment is None:
            return [letter.number for letter in letters]
        mailbox, untaken = self._mailbox, list[int]()
        for letter in letters:
            self._dealt += 1
            self._put((attachment, letter, 1, *self._urgency(attachment, letter)), ready)
            if mailbox.closed:  # before, or just now: better twice than never
                untaken.append(letter.number)
        return untaken

    def run_now(self, run: DealtRun) -> int:
        """Handle events in this thread, one after the other, if there is nothing to it but to call a function, and
        nothing before them: how many; the rest is to be taken. Whoever handed them over is told, and not kept waiting
        for that for long."""
        mailbox = self._mailbox
        if not self._simple or mailbox.items or mailbox.held or mailbox._drops or mailbox.troubled:
            return 0
        attachment = self._place = next(iter(self._attachments.values()), self._place)
        if attachment is None:
            return 0
        try:
            mailbox.token.pop()
        except IndexError:
            return 0  # somebody else runs it
        handled, decode, handler = 0, attachment.form.decode, self._handler
        assert handler is not None
        try:
            NEST.append(None)
            self._running = run
            until = monotonic() + LONG_SECONDS
            for record in run.records:
                self._run_at = handled  # first: who ends it finds this one among what it is finishing, or untaken
                if mailbox.held or mailbox._drops or monotonic() > until:  # one that has ended may handle what it has
                    break
                handled += 1
                try:
                    handler(decode(record))
                except Exception as error:
                    self._handler_failed(error, run.letter(handled - 1))
                else:
                    if self._failures:
                        self._went_well()
        finally:
            self._dealt += handled
            self._delivered += handled
            try:
                if handled:
                    run.done(run.numbers[:handled])
            finally:
                self._running = None  # only now: who ends it meanwhile is to know that these are no others'
                try:
                    mailbox.token.append(None)
                finally:
                    NEST.pop()
        if handled:
            self._timed((attachment, run.letter(handled - 1), 1, 0, inf))
        mailbox.after_bypass()
        return handled

    def _done(self, numbers: Sequence[int]) -> None:
        self._groups.acknowledge(self, numbers)

    # ── handled ──

    def _deliver(self, item: Item) -> None:
        call = self._prepared(item)
        if call is None:
            return
        self._handling, self._held = item[1], call.items
        try:
            self._finish(call.event, call())
            if self._failures:
                self._went_well()
        except self._caught as error:
            self._handler_failed(error, call.event)
        finally:
            self._handling = None
            self._settled(call.items)

    async def _adeliver(self, item: Item) -> None:
        call = self._prepared(item)
        if call is None:
            return
        self._handling, self._held = item[1], call.items
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
            self._settled(call.items)

    def _leave_out(self, item: Item, events: int) -> None:
        super()._leave_out(item, events)
        self._settled([item])

    def _expire(self, item: Item) -> None:
        super()._expire(item)
        self._settled([item])

    def _handed(self, items: list[Item], late: Sequence[Item] = ()) -> None:
        self._pulled_items += items

    def _settle(self) -> None:
        if self._pulled_items:
            done, self._pulled_items = self._pulled_items, []
            self._settled(done)

    def _settled(self, items: list[Item]) -> None:
        """Whoever handed these over is told; who ends it meanwhile is to know that they are no others'."""
        first = items[0][1]
        if len(items) == 1:
            first.done([first.number])
            self._held = []
            return
        by_group: dict[Done, list[int]] = {}
        for item in items:
            by_group.setdefault(item[1].done, []).append(item[1].number)
        for done, numbers in by_group.items():
            done(numbers)
        self._held = []

    def _about(self, attachment: Attachment, letter: Letter, items: list[Item]) -> About:
        about: tuple[Any, ...] = astuple(attachment.about(letter))
        return DealtAbout(*about, _again=isinstance(letter, Dealt) and letter.redelivered)

    # ── the end, and what it cannot ──

    def _release(self) -> None:
        super()._release()
        if self.cancelled:
            if self._handler is None:
                self._mailbox.close(drop=True)  # what was not taken is for others
            self._groups.leave(self)

    @property
    def drains(self) -> bool:
        """Of one that has ended: whether it still handles what it has."""
        return self._handler is not None and not self._mailbox._drops

    def finishing(self, done: Done | None = None) -> list[int]:
        """What its handler has just now, of what was handed over by one group; this node's, if no other is named. And
        what it has had since that group was last told."""
        of, run = self._done if done is None else done, self._running
        if run is not None and run.done == of:
            return list(range(run.first, run.first + self._run_at + 1))
        return [item[1].number for item in list(self._held) if item[1].done == of]

    def acknowledge(self, about: About | None = None) -> None:
        """Of a sink that pulls: it is done with what it has taken. A handler has acknowledged by returning."""
        if self._handler is not None:
            raise SubscriptionError(
                f"acknowledge: {self.name!r} is a member of a group, which has acknowledged an event when its handler "
                "has returned; leave it out"
            )
        with self._pulling:
            self._settle()

    def change(
        self, *, where: Any = ..., params: Mapping[str, object] | None = None, zones: Any = ...
    ) -> dict[str, int]:
        """Refused: all members of a group want the same."""
        raise SubscriptionError(
            f"change: subscription {self.name!r}: the members of group {self.group!r} agree on what they want; cancel "
            "them, and subscribe with another group"
        )

    async def achange(
        self, *, where: Any = ..., params: Mapping[str, object] | None = None, zones: Any = ...
    ) -> dict[str, int]:
        """Refused, as `change`."""
        return self.change(where=where, params=params, zones=zones)

    def move(self, *, to: str | None = None, lasts: float = 0.0) -> str:
        """Refused: another member can be subscribed wherever it is wanted."""
        raise SubscriptionError(
            f"move: subscription {self.name!r} is a member of group {self.group!r}: subscribe another one there, and "
            "cancel this one"
        )

    def _unsettled(self, source: RoutedSource) -> int | None:
        return None

    def _counts_with(self, outcomes: Counts, readings: Readings, *, exact: bool = True) -> Counts | None:
        """What was handed to it has passed, wherever that was found out."""
        total = self._past + outcomes
        return replace(total, evaluated=self._dealt, passed=self._dealt)


runs(GroupMember.run_now, lambda variables: variables["self"]._mailbox)

__all__ = ["Dealt", "DealtRun", "Done", "GroupMember"]
