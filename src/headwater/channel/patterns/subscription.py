"""`node.match` and `node.pattern`: subscriptions whose events go through a pattern.

Matching       asks for the events of the pattern's channels, and runs it
Watch          delivers the results to a handler, or to whoever asks
NamedPattern   publishes them at a source of a channel: an event like any other
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headwater.channel.channel import Channel
from headwater.channel.options.config import Inline, Queue
from headwater.channel.options.subscribe import Asked, Options
from headwater.channel.patterns.operator import PatternOperator, PatternOrder
from headwater.channel.patterns.stage import ROOM, Errand, PatternStage
from headwater.channel.patterns.watermark import Watermark
from headwater.channel.queues.forms import Form
from headwater.channel.queues.mailbox import Mailbox
from headwater.channel.registration import expression_of
from headwater.channel.reports.tally import Fates
from headwater.channel.routing.attachment import Attachment
from headwater.channel.routing.letter import About, Chunk, Letter
from headwater.channel.routing.route import Ready
from headwater.channel.subscription import Subscription
from headwater.errors import HeadwaterError
from headwater.patterns.pattern import Pattern

if TYPE_CHECKING:
    from headwater.channel.contract import NodeContract
    from headwater.channel.dispatch.dispatcher import Dispatcher
    from headwater.channel.source import Source
    from headwater.types import EventType

R = TypeVar("R", covariant=True)
HAND_OVER_SECONDS = 10.0  # for which a pattern's state is waited for, when it is to go on elsewhere


class Matching(Subscription[R], Generic[R]):
    """A subscription to the channels of a pattern, each with what an event must be to matter to it; the rest never
    leaves its source. Where less can be asked for than that, `_stage.arrivals` sees to it; who else changes what
    channels are asked with holds `_asking`, and says by which `pattern` first."""

    _calm = False
    _narrows = True  # whether events may be asked for by what others have bound

    def __init__(
        self,
        node: NodeContract,
        name: str,
        asked: list[Asked],
        options: Options,
        dispatcher: Dispatcher | None,
        pattern: Pattern,
        order: PatternOrder,
    ) -> None:
        super().__init__(node, name, asked, options, dispatcher)
        # What is said of results is not to be asked of the events that they are made of.
        self._options = replace(options, priority=None, lifetime=None)
        self._by_time = order == "time"
        self.pattern, self._asking = pattern, threading.RLock()
        self._remarks = tuple(f"pattern: {problem}" for problem in pattern.warnings)
        own_time = [channel.name for channel in pattern.model.channels if channel.time is not None]
        operator = PatternOperator(pattern, order)
        watermark = Watermark(self, lambda: self._stage.operator.runner, own_time if order == "time" else ())
        self._stage = stage = PatternStage(self, operator, watermark)
        stage.mailbox = Mailbox(
            f"{name}, its pattern", Queue(limit=ROOM), order="arrival", full=node._full, pull=False,
            deliver=stage.offer,
        )  # fmt: skip
        stage.mailbox.dispatched_by(node._dispatcher(Inline()))
        self._stages = (stage.mailbox,)
        stage.arrivals = node._crossing_to(self) if self._narrows and order == "time" else None

    # ── in ──

    def _inputs(self) -> Iterable[Attachment]:
        return list(self._attachments.values())

    def _accept(self, attachment: Attachment, letter: Letter, ready: Ready) -> None:
        self._stage.accept(attachment, letter, 1, ready)

    def _accept_chunk(self, attachment: Attachment, chunk: Chunk, ready: Ready) -> None:
        self._stage.accept(attachment, chunk, len(chunk), ready)

    def _began(self, attachment: Attachment) -> None:
        attachment.quick = attachment._quick = None if self._options.history else self._stage.mailbox.put_quick

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

    def _made(self, result: Any, ready: list[Any]) -> None:
        raise NotImplementedError

    def _settled(self) -> None:
        """All that waited was offered, and what was found is handed on."""

    # ── changing it ──

    def cancel(self, *, drain: bool = False) -> None:
        """End it: runs that are open are dropped."""
        super().cancel(drain=drain)
        self._stage.close()


class _ResultSource:
    """Whom results are from that nobody has published."""

    local, place, promise, position_key, rereads, live = True, None, None, None, False, 0

    def __init__(self, name: str, node: str) -> None:
        self.id = self.name = self.key = name
        self.node, self.number, self._fates = node, 0, Fates()

    def fates(self, channel: object) -> Fates:
        return self._fates


class _Results:
    """Where results wait that nobody has published, in the place of an attachment."""

    def __init__(self, subscription: Watch[Any], channel: Channel[Any], type: EventType, options: Options) -> None:
        self.subscription, self.channel, self.form, self.part = subscription, channel, Form(type, type), 0
        self.cls, self.by_event, self.epoch = None, False, 1
        self.priority = expression_of(options.priority, type, "priority")
        self.lifetime = expression_of(options.lifetime, type, "lifetime")

    def about(self, letter: Letter) -> About:
        return About(letter, self.channel.name, self.subscription.epoch, self.subscription.name)


class Watch(Matching[R]):
    """Delivers the results of a pattern, as any subscription delivers events."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        options, pattern = args[3], self.pattern
        channel: Channel[Any] = Channel(self.node, self.name, pattern.output)
        self._results = _Results(self, channel, pattern.output, options)
        self._from = _ResultSource(self.name, self.node.name)
        self._numbers = count(1)

    def _made(self, result: Any, ready: list[Any]) -> None:
        record = b""
        if self._results.priority is not None or self._results.lifetime is not None:
            record = self.pattern.output.encode(result)
        letter = Letter(result, record, self._from, next(self._numbers), self.node._stamp(), perf_counter_ns(), 0)  # type: ignore[arg-type]
        priority, expiry = self._urgency(self._results, letter)  # type: ignore[arg-type]
        letter.record = None  # it is as its sink is to see it
        self._put((self._results, letter, 1, priority, expiry), ready)  # type: ignore[arg-type]


class NamedPattern(Matching[Any]):
    """A pattern whose results are published at a source of a channel."""

    def __init__(self, *args: Any) -> None:
        *rest, self.source = args
        super().__init__(*rest)

    source: Source[Any]

    def _made(self, result: Any, ready: list[Any]) -> None:
        try:
            self.source.publish(result)
        except HeadwaterError as error:
            self._handler_failed(error, result)

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
            self._stage.mailbox.hold()  # what comes now is for the other one

        self._in_turn(take, timeout)
        self.close(forget=True)
        return found[0] if found else b""


__all__ = ["Matching", "NamedPattern", "Watch"]
