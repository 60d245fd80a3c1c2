"""`node.match` and `node.pattern`: subscriptions whose events go through a pattern.

Matching       asks for the events of the pattern's channels, and runs it
Watch          delivers the results to a handler, or to whoever asks
NamedPattern   publishes them at a source of a channel: an event like any other
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headwater.channel.dispatch.thread_call import in_thread, nothing
from headwater.channel.options.config import Inline, Queue
from headwater.channel.options.subscribe import Asked, Options
from headwater.channel.patterns.definition import with_params
from headwater.channel.patterns.operator import PatternOperator, PatternOrder
from headwater.channel.patterns.outlets import Delivered, Outlet, Published
from headwater.channel.patterns.report import PatternReport, pattern_report
from headwater.channel.patterns.stage import ROOM, Errand, PatternStage, StageMailbox
from headwater.channel.patterns.watermark import NOWHERE, Watermark
from headwater.channel.routing.attachment import Attachment
from headwater.channel.routing.letter import Chunk, Letter
from headwater.channel.routing.route import Ready
from headwater.channel.subscription import Subscription
from headwater.errors import HeadwaterError, ParameterError
from headwater.patterns.crossing.atoms import source_interest
from headwater.patterns.pattern import Pattern
from headwater.patterns.structure import contradicting
from headwater.spelling import did_you_mean

if TYPE_CHECKING:
    from headwater.channel.contract import NodeContract
    from headwater.channel.dispatch.dispatcher import Dispatcher
    from headwater.channel.source import Source
    from headwater.interest import Apart, Interest, Origin
    from headwater.types import EventType

R = TypeVar("R", covariant=True)
# Makes the outlet of a subscription, given the type of results and what was asked for them.
Outlets = Callable[[Subscription[Any], "EventType", Options], Outlet]
HAND_OVER_SECONDS = 10.0  # for which a pattern's state is waited for, when it is to go on elsewhere


class Matching(Subscription[R], Generic[R]):
    """A subscription to the channels of a pattern, each with what an event must be to matter to it; the rest never
    leaves its source. Where less can be asked for than that, `_stage.arrivals` sees to it; who else changes what
    channels are asked with holds `_asking`, and says by which `pattern` first. `narrow` says what is asked of a
    channel, given what the pattern wants of it, where its owner lets less through. `outlet` makes what its results go
    to."""

    _calm = False
    _goes_on = False  # whether a later process goes on from where this one ends
    _resumes = False  # whether it says from where on events may be asked for by what others have bound
    narrow: Callable[[str, Interest | None], Interest | None] | None = None

    def __init__(
        self,
        node: NodeContract,
        name: str,
        asked: list[Asked],
        options: Options,
        dispatcher: Dispatcher | None,
        pattern: Pattern,
        order: PatternOrder,
        *,
        outlet: Outlets,
    ) -> None:
        super().__init__(node, name, asked, options, dispatcher)
        # What is said of results is not to be asked of the events that they are made of.
        self._options = replace(options, priority=None, lifetime=None)
        self._by_time = self._steadily = order == "time"
        self.pattern, self._asking = pattern, threading.RLock()
        self._run = 0
        self._remarks = tuple(f"pattern: {problem}" for problem in pattern.warnings)
        own_time = [channel.name for channel in pattern.model.channels if channel.time is not None]
        operator = PatternOperator(pattern, order)
        watermark = Watermark(self, lambda: self._stage.operator.runner, own_time if order == "time" else ())
        watermark.mind(contradicting(pattern.model))
        self._stage = stage = PatternStage(self, operator, watermark, outlet(self, pattern.output, options))
        stage.mailbox = StageMailbox(
            f"{name}, its pattern", Queue(limit=ROOM), order="arrival", full=node._full, pull=False,
            deliver=stage.offer, stage=stage,
        )  # fmt: skip
        stage.mailbox.dispatched_by(node._dispatcher(Inline()))
        self._stages = (stage.mailbox,)
        stage.arrivals = node._narrowing_of(self) if order == "time" else None

    @property
    def origin(self) -> Origin | None:
        """The entry of a library that the pattern is, if it was had by name."""
        return self.pattern.origin

    # ── in ──

    def _inputs(self) -> Iterable[Attachment]:
        return list(self._attachments.values())

    def _accept(self, attachment: Attachment, letter: Letter, ready: Ready) -> None:
        blind = self._stage.watermark.blind
        if blind is not None and self._options.history and self._is_past(attachment, letter):
            blind.recalled(attachment, letter)
        self._stage.accept(attachment, letter, 1, ready)

    def _is_past(self, attachment: Attachment, letter: Letter) -> bool:
        """Whether an event is one that it begins with."""
        source = letter.source
        if source.place is not None:
            return self._begins(source.place)
        return letter.seq <= attachment.points.get(source.number, ("", 0))[1]

    def _accept_chunk(self, attachment: Attachment, chunk: Chunk, ready: Ready) -> None:
        self._stage.accept(attachment, chunk, len(chunk), ready)

    def _began(self, attachment: Attachment) -> None:
        if self._stage.watermark.blind is not None and (attachment.epoch == 1 or attachment.run != self._run):
            self._hears(attachment)
        attachment.run = self._run
        attachment.marking = self._asked[attachment.part].marking
        attachment.quick = attachment._quick = None if self._options.history else self._stage.mailbox.put_quick
        if self._stage.arrivals is not None:
            self._stage.arrivals.began(attachment)

    def _reach(self, positions: Mapping[str, int]) -> None:
        """All that matters of sources of other nodes, up to these events, was offered; between two events."""
        known = self._stage.operator.positions
        known.update({key: seq for key, seq in positions.items() if seq >= known.get(key, 0)})

    def _keep_narrow(self, nodes: frozenset[str]) -> None:
        """These nodes are asked for bound values only from here on."""

    def _hears(self, attachment: Attachment) -> None:
        """Sources of this node are heard from here on, with what was asked for; they stand still."""
        blind = self._stage.watermark.blind
        if blind is not None:
            blind.begun(attachment, past=self._options.history)

    def _release(self) -> None:
        """Sources have promised more, or are gone. Called without any lock."""
        super()._release()
        self._stage.nudge()

    @property
    def crossing(self) -> Mapping[str, Any]:
        """Where events are asked for by what others have bound: which nodes are asked so, which for all and why, what
        is open, what has crossed, and what was lost. Nothing where the pattern binds nothing, or runs alone."""
        arrivals = self._stage.arrivals
        return {} if arrivals is None else arrivals.report()

    # ── out ──

    def _settled(self) -> None:
        """All that waited was offered, and what was found is handed on."""

    # ── changing it ──

    def change(self, *, params: Mapping[str, Any]) -> dict[str, int]:  # type: ignore[override]
        """Other values of its parameters, from an exact point of each source's events; the points are returned. Runs
        that are open are dropped and counted, since they were judged by the old values."""
        with self._asking:
            self._must_live("change")
            unknown = [name for name in params if name not in self.pattern.params]
            if unknown:
                hint = did_you_mean(unknown[0], self.pattern.params)
                raise ParameterError(
                    f"change: params: expected {', '.join(self.pattern.params) or 'none'}, found {unknown[0]!r}"
                    + (f"; {hint}" if hint else "")
                )
            return self._exchange(with_params(self.pattern, {**self.pattern.params, **params}))

    async def achange(self, *, params: Mapping[str, Any]) -> dict[str, int]:  # type: ignore[override]
        """As `change`, from a coroutine: its loop goes on. Once it has begun it is done, also if that is cancelled."""
        return await in_thread(partial(self.change, params=params), stop=nothing)

    def _exchange(self, pattern: Pattern) -> dict[str, int]:
        """Part by part: what comes of one that has changed is put off until all have. If one cannot be changed, all is
        as it was."""
        points: dict[str, int] = {}
        before = [asked.where for asked in self._asked]
        changed: list[int] = []
        self._run += 1
        self.pattern, old = pattern, self.pattern
        try:
            for part, asked in enumerate(list(self._asked)):
                wanted = self._interest_for(pattern, asked)
                points |= self.node._change(self, part, where=wanted, params=None, zones=...)
                changed.append(part)
        except BaseException:
            for part in changed:
                with suppress(HeadwaterError):
                    self.node._change(self, part, where=before[part], params=None, zones=...)
            self.pattern = old
            self._stage.change(old, self._run)
            raise
        self._stage.change(pattern, self._run)
        self._changed(pattern)
        return points

    def _interest_for(self, pattern: Pattern, asked: Asked) -> Apart | Interest | None:
        """What the events of a channel are asked for with."""
        wanted = source_interest(pattern.model, asked.name)
        if self.narrow is not None:
            wanted = self.narrow(asked.name, wanted)
        if asked.marking is None:
            return wanted
        made: Apart | Interest | None = asked.marking.asked(wanted, wanted, pattern.model)
        return made

    def _changed(self, pattern: Pattern) -> None:
        """Its values are others from here on."""

    def cancel(self, *, drain: bool = False) -> None:
        """End it: runs that are open are dropped. What sources have promised by now is decided first, unless another
        goes on from what is kept."""
        if not self.cancelled and not self._goes_on:
            self._stage.nudge()
        super().cancel(drain=drain)
        self._stage.close()

    # ── what is going on ──

    def report(self) -> PatternReport:
        """What came, what was found, what is open, how far the sources have come and who is waited for."""
        return pattern_report(super().report(), self.pattern, self._stage)


class Watch(Matching[R]):
    """Delivers the results of a pattern, as any subscription delivers events."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, outlet=Delivered)


class NamedPattern(Matching[Any]):
    """A pattern whose results are published at a source of a channel."""

    source: Source[Any]

    def __init__(self, *args: Any, outlet: Outlets | None = None) -> None:
        *rest, self.source, self.narrow = args
        super().__init__(*rest, outlet=outlet or (lambda *_: Published(self.source, self._handler_failed)))
        self.source.come_to = self._come_to

    def _come_to(self) -> tuple[int, int] | None:
        """None of its later matches is earlier than the first of these, none that it has found later than the second:
        for patterns of matches, which ask when they want to go on. Where one is held back until it is sure to be taken,
        it may be as old as the window is long. What it could not find, as it does not know of all events, may be as
        late as those are."""
        stage = self._stage
        stage.nudge()
        reached, model, runner = stage.reached, self.pattern.model, stage.operator.runner
        if reached is None or reached[0] == NOWHERE[0] or runner.unheard:
            return None
        least, most = reached[0], max([reached[1], *(upto for _, upto in runner.blind)])
        if model.after.rule == "no skip" and model.reuse:
            return least, most
        window = model.window
        return None if window is None or window.microseconds is None else (least - window.microseconds, most)

    def close(self, *, forget: bool = False) -> None:
        """End it, and its source. What is kept of it, if anything is, stays for when it is made again, unless it is to
        `forget`."""
        self.cancel()

    def cancel(self, *, drain: bool = False) -> None:
        """End it, and its source."""
        super().cancel(drain=drain)
        self.source.close()

    def _in_turn(self, what: Callable[[], None], timeout: float) -> None:
        """Have something done between two events, by who runs the stage, and wait for it."""
        done = threading.Event()

        def run() -> None:
            try:
                what()
            finally:
                done.set()

        if self._stage.do(Errand(run)):
            done.wait(timeout)
        else:  # it is over: nobody runs the stage any more
            run()

    def hand_over(self, timeout: float = HAND_OVER_SECONDS) -> bytes:
        """End it, and give its state to who goes on with it elsewhere; nothing if it cannot be had in time."""
        from headwater.channel.patterns.keeping import Keeping  # late: hardly any pattern moves

        keeping, found = Keeping(self.node, self.name, self.pattern, self._asked), list[bytes]()

        def take() -> None:
            found.append(keeping.state(self._stage.operator))
            self._stage.stopped = True  # what comes now is for the other one

        self._in_turn(take, timeout)
        self.close(forget=True)
        return found[0] if found else b""


__all__ = ["Matching", "NamedPattern", "Watch"]
