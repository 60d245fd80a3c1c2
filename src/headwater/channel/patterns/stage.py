"""A pattern's operator at work at a node: with a mailbox, a watermark and a timer.

Publishers put events into the stage's mailbox under the locks of their sources, which is quick. Whoever holds the
mailbox's token offers them to the operator, and when nothing waits any more looks how far the sources have come, which
releases what was in the way of nothing. The same is done when other nodes promise more, and when one timer of the
node's goes off: then time itself has decided something, or an event of this very moment may go.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from headwater.channel.patterns.operator import PatternOperator
from headwater.channel.patterns.outlets import Outlet
from headwater.channel.patterns.watermark import NOWHERE, Look, Watermark
from headwater.channel.queues.mailbox import Mailbox, dispatch_all
from headwater.channel.routing.letter import Letter
from headwater.errors import ClosedError, HeadwaterError
from headwater.patterns.crossing.marks import Mark

if TYPE_CHECKING:
    from headwater.channel.contract import NodeContract
    from headwater.channel.patterns.resumption import Resumption
    from headwater.patterns.crossing.marks import Marking
    from headwater.patterns.pattern import Pattern

ROOM = 1024  # events in a stage's mailbox: while one thread offers, others must not publish without end
TICK = 0.002  # seconds until it is looked again whether an event of this very moment may go
RECHECK = 0.25  # seconds until it is looked again whether a source of another node is still there, should nobody tell
LATER = 3600.0  # seconds: a timer that would be later goes off then, and is set again
LOOK = object()  # in the place of an event: see how far the sources have come


class Owner(Protocol):
    """Whom a stage works for."""

    _goes_on: bool  # whether a later process goes on from where this one ends
    cancelled: bool

    @property
    def node(self) -> NodeContract: ...
    def _settled(self) -> None:
        """All that waited was offered, and what was found is handed on."""
        ...

    def _handler_failed(self, error: BaseException, event: Any) -> None: ...


class Errand:
    """In the place of an event: something to be done between two of them, by who runs the stage."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run


class Arrivals(Protocol):
    """Who is shown events before they are offered: what they bind may be asked for at their sources."""

    def arrived(self, attachment: Any, letter: Any) -> None: ...

    def began(self, attachment: Any) -> None:
        """What is asked of a channel is another from here on; its sources stand still."""
        ...

    def resume(self, what: Resumption, patience: float) -> None:
        """The pattern begins, or goes on from a state, and nothing was offered to it yet; who has something for it, and
        is away, is waited for so many seconds."""
        ...

    def start(self) -> None:
        """The pattern that has resumed is attached to its channels."""
        ...

    def changed(self, pattern: Pattern) -> None:
        """From here on the pattern is another, and its channels are asked for all that may matter to it."""
        ...

    def report(self) -> dict[str, Any]:
        """Plain values, for people."""
        ...


class Change:
    """In the place of an event: what came for this run of the pattern, and was put off, is offered from here on."""

    def __init__(self, pattern: Pattern, run: int) -> None:
        self.pattern, self.run = pattern, run


class StageMailbox(Mailbox):
    """Where events wait to be offered."""

    def __init__(self, *args: Any, stage: PatternStage, **options: Any) -> None:
        super().__init__(*args, **options)
        self._stage = stage

    def settle(self) -> None:
        """The node closes, and its sources have stopped: what waits for its turn has it."""
        self._stage.nudge()


def opened(marking: Marking, letter: Any) -> Any:
    """What came of another node, events or marks: a letter whose event may be a Mark, a batch of events, or letters of
    a batch of marks."""
    if letter.source.local:
        return letter
    if isinstance(letter, Letter):
        found = marking.opened(letter.record if letter.record.__class__ is bytes else bytes(letter.record))
        return letter.seen_as(found) if isinstance(found, Mark) else letter
    marks = marking.opened_rows(letter.taken())
    return letter if marks is None else list(letter.letters([None] * len(marks), marks))


def letters_of(attachment: Any, letter: Any) -> list[Letter]:
    """One by one, what came together."""
    if isinstance(letter, list):
        return letter
    if isinstance(letter, Letter):
        return [letter]
    return list(letter.letters(attachment.channel.type.arrow_to_records(letter.taken())))


class PatternStage:
    """Runs a pattern's operator for its owner; results go to the outlet."""

    mailbox: Mailbox  # set by the owner
    arrivals: Arrivals | None = None

    def __init__(self, owner: Owner, operator: PatternOperator, watermark: Watermark, outlet: Outlet) -> None:
        self._owner, self.operator, self.watermark, self.outlet = owner, operator, watermark, outlet
        self._node = owner.node
        self._timer: Any = None
        self._due = inf  # when it goes off
        self._closed = False
        self.seen: Look | None = None  # as it was last
        # All matches that are earlier than the first of these were handed on, and none that is later than the second.
        self.reached: tuple[int, int] | None = None
        self._run = 0  # a changed pattern is another run
        self._deferred: list[Any] = []  # what came for the run that is about to begin
        self.stopped = False  # another one goes on from here
        self.patient_until = -inf  # by the node's clock: before, everybody is waited for

    # ── in ──

    def accept(self, attachment: Any, letter: Any, n: int, ready: list[Any]) -> None:
        """An event, or a batch of n, under the lock of its source. (`mailbox.put_quick` does the same, if it can.)"""
        if self.mailbox.put((attachment, letter, n, 0, inf)):
            ready.append(self.mailbox)

    def nudge(self) -> None:
        """Sources have promised more, or are gone, or time has passed. Call it without any lock."""
        self._enter(LOOK)

    def change(self, pattern: Pattern, run: int) -> None:
        """Have another run begin: of this pattern, unless it is the same. Every source has passed the point of change;
        what came of it since was put off. Call it without any lock."""
        self._enter(Change(pattern, run))

    def do(self, errand: Errand) -> bool:
        """Have something done between two events; whether it will be. Call it without any lock."""
        return self._enter(errand)

    def _enter(self, what: Any) -> bool:
        """What is no event, after all that waits; whether it is taken."""
        mailbox = self.mailbox
        with mailbox.lock:
            if mailbox.closed:
                return False
            mailbox._push((None, what, 1, 0, inf))  # type: ignore[arg-type]
        mailbox.dispatch()
        return True

    # ── at work: by who holds the mailbox's token ──

    def offer(self, item: Any) -> None:
        """What waited in the mailbox."""
        batch = None if self.stopped else self._take(item)
        if self.stopped or (batch is None and self.mailbox.items):
            return  # who offers that looks
        look = self.seen = self._look()
        while (more := self.mailbox.pop()) is not None:
            if batch is not None:
                self._offer_batch(*batch, None)
            batch = self._take(more)
            if self.stopped:
                return
        if batch is not None:
            self._offer_batch(*batch, look)
        self._advance(look)
        self._owner._settled()

    def _look(self) -> Look:
        """How far the sources have come. Those of one that is ended have left with it, and have promised nothing by
        that: it stays where it was."""
        look = self.watermark.look()
        if not self._owner.cancelled:  # it was not before its sources were looked at, either
            return look
        before = self.seen
        return look._replace(sure=NOWHERE if before is None else before.sure, holder=before and before.holder)

    def _take(self, item: Any) -> tuple[Any, Any] | None:
        """Offer an event; a batch is returned instead, since it may go past the others if it is the last."""
        attachment, letter = item[0], item[1]
        if letter is LOOK:
            return None
        try:
            if attachment is not None:
                if attachment.run > self._run:
                    self._deferred.append(item)
                    return None
                if attachment.marking is not None:
                    letter = opened(attachment.marking, letter)
                if self.arrivals is not None:
                    self.arrivals.arrived(attachment, letter)
            if letter.__class__ is Letter:
                self.operator.offer(attachment.channel.name, letter, self._now())
            elif isinstance(letter, Change):
                self._exchange(letter)
            elif isinstance(letter, Errand):
                letter.run()
            elif isinstance(letter, list) or self.operator.order == "arrival":
                for each in letters_of(attachment, letter):
                    self.operator.offer(attachment.channel.name, each, self._now())
            else:
                return attachment, letter
        except Exception as error:  # what came was no event, or the pattern is at fault
            self._owner._handler_failed(error, letter)
        return None

    def _exchange(self, change: Change) -> None:
        """What is open is dropped, and counted; what came after the point of change is for the new run."""
        self._run = change.run
        if change.pattern is not self.operator.pattern:
            self.operator.exchange(change.pattern)
            if self.watermark.blind is not None:
                self.watermark.blind.reset()
        if self.arrivals is not None:
            self.arrivals.changed(change.pattern)
        deferred, self._deferred = self._deferred, []
        for item in deferred:
            if (batch := self._take(item)) is not None:
                self._offer_batch(*batch, None)

    def _offer_batch(self, attachment: Any, chunk: Any, look: Look | None) -> None:
        try:
            upto = (-inf, "") if look is None else self.watermark.capped(look).sure
            self.operator.offer_batch(attachment.channel.name, chunk, upto)  # type: ignore[arg-type]
        except Exception as error:
            self._owner._handler_failed(error, chunk)

    def _advance(self, look: Look) -> None:
        """Release what may go, hand on what that has made, and see when to look again."""
        look = self.watermark.capped(look)
        ready: list[Any] = []
        forced = self._forced(look)
        try:
            for result in self.operator.advance(look.sure, forced):
                self.outlet.put(result, ready)
        except HeadwaterError as error:
            self._owner._handler_failed(error, None)
        self._arm(look)
        dispatch_all(ready)
        most = look.sure[0] if forced is None else max(look.sure[0], forced)
        self.reached = look.sure[0], most if self.reached is None else max(most, self.reached[1])

    def _forced(self, look: Look) -> int | None:
        """Up to when nobody is waited for any longer; when the node closes, that is now, unless who goes on waits."""
        if self._node.closed and not self._owner._goes_on:
            return look.present
        patience = self.operator.pattern.model.patience
        if patience is None or self._node.clock.now() < self.patient_until:
            return None
        return look.present - patience

    def _now(self) -> int:
        return self._node._stamp() // 1000

    # ── time ──

    def _arm(self, look: Look) -> None:
        """Have a timer go off when there may be something to do though nothing comes."""
        when = inf
        waiting, due = self.operator.waiting, self.operator.due
        local = look.holder is None or look.holder.local
        soon = TICK if local else RECHECK
        if waiting is not None:
            when = soon
        if due is not None:
            when = min(when, max(soon, (due - look.present) / 1e6))
        patience = self.operator.pattern.model.patience
        if patience is not None and (waiting is not None or due is not None):
            first = min(each for each in (due, None if waiting is None else waiting[0]) if each is not None)
            when = min(when, max(TICK, (first + patience + 1 - look.present) / 1e6))
        at = inf if self._closed or when == inf else self._node.clock.now() + min(when, LATER)
        if at == self._due or (at > self._due and self._due != inf and at != inf):
            return  # it goes off soon enough
        self._disarm()
        if at != inf:
            with suppress(ClosedError):  # the node is closing: time is over
                self._timer = self._node._timers.call_at(at, self._tick)
                self._due = at

    def _tick(self) -> None:
        self._due, self._timer = inf, None
        if not self._closed:
            self.nudge()

    def close(self) -> None:
        """It does nothing by itself any more; what waits is still offered to it."""
        self._closed = True
        self._disarm()

    def _disarm(self) -> None:
        timer, self._timer, self._due = self._timer, None, inf  # it may go off just now, in its own thread
        if timer is not None:
            timer.cancel()


__all__ = ["ROOM", "Arrivals", "Change", "Errand", "PatternStage", "StageMailbox"]
