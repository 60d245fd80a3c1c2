"""The fast path, in code the *bypass*: an event goes from `publish` to the one place that wants it, past all queues.

Most events of most sources have exactly one place to go to. Then no letter is written, no queue is filled and no lock
is waited for: the event is encoded (and so checked), numbered and handed over. There are two such places:

    a function that takes events in the publisher's thread    `HandlerBypass`, below
    a lane to one other node, for all or for filtered events  `LaneBypass`, in federation/send/bypass.py

What comes from another node takes it also where an interest has to be looked at, or the function is told more than the
event (`AboutBypass`): the way there is longer, and none of that is in machine code.

**Who decides?** `Lineup.renewed` (route.py) sees that all there is to do with an event is up to one member, and puts
that member's `BypassRoute` into the `Route`. When a source takes up the route, `Flow.take` asks `for_flow` for the
bypass of that source: it is in `flow.bypass` until the next route, and None while there is more to do than that.

**Who takes it?** Three implementations, which do the same:

    native/python/publish.py        machine code, made at run time: what `source.publish` is, as a rule
    Source.publish, in Python       for what machine code leaves to it (a dict, keywords, facts, a type of its own) and
                                    where there is none; to handlers only: a lane is for machine code
    RemoteSource, for events that   in Python; a frame may have many, which are handed over in one go (`call_all`)
    have come from another node

**When is it closed?** While the source is closed; while its lock is taken; while some queue of the node is full and
makes publishers wait; while a mailbox has something in its queue, is being run (its token is taken), or has something
in `blocks_bypass`: it is paused, closed or troubled, or someone waits for it to change; and when handlers that publish
are nested too deeply. The event takes the slow path then: `Flow.accept`, a `Letter`, a queue. Of every `SAMPLE_EVERY`
events one takes the slow path anyway: its latency is measured, and on the way to another node it tells the time.

**What holds in any case?** Who calls the handler has the mailbox's token, so that it is not called twice at once and
events stay in order. Afterwards the token is laid down, and `after_bypass` is called if something came into the queue
meanwhile, or someone waits. Counts are those of the slow path: `Flow.direct` says how many events were never in a
queue. Logged sources have no fast path: their events go to the disk first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from operator import length_hint
from typing import TYPE_CHECKING, Any, Protocol

from headwater.channel.concurrency.reentrancy import DEPTH, NEST, runs
from headwater.channel.routing.letter import About, Letter
from headwater.errors import HeadwaterError
from headwater.native.python.publish import BypassSlots

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel, RoutedSource
    from headwater.channel.routing.route import Flow, Ready
    from headwater.match.counters import Ledger

# Of so many events of a source one takes the slow path, and is timed: the one whose number has no bit of the mask.
SAMPLE_EVERY = 64
SAMPLE_MASK = SAMPLE_EVERY - 1


class BypassRoute(Protocol):
    """The fast path of all sources of a line-up."""

    remote: bool  # it leads to another node: events that interests choose may take it as well

    def for_flow(self, flow: Flow) -> Bypass | None:
        """The fast path of one of them."""
        ...


class Bypass(BypassSlots):
    """The fast path of one source, as its flow has it."""

    __slots__ = ()

    def try_take(self) -> bool:
        """Whether Python may hand over the next event here; then it must, by `call` or `call_all`."""
        return False

    def give_back(self) -> None:
        """It may, and does not."""

    def call(self, event: Any, record: bytes) -> None:
        """Hand over one event, or what is in its record."""

    def judged_by(self, matching: Any, totals: Any, ledger: Ledger | None) -> None:
        """Only what an entry of this matching wants is to take it, from here on: the source stands still."""

    def passes_by(self, letter: Letter, ready: Ready) -> None:
        """An event has taken the slow path; under the source's lock."""


class Handled(Protocol):
    """A subscription whose handler is called."""

    _failures: int  # in a row

    @property
    def name(self) -> str: ...
    @property
    def _handler(self) -> Callable[..., Any] | None: ...

    def _handler_failed(self, error: BaseException, what: Any) -> None: ...
    def _went_well(self) -> None: ...
    def _put_off(self, items: list[Any]) -> None: ...


class HandlerQueue(Protocol):
    """The mailbox of such a subscription: its token, what waits, and what keeps events from going past it."""

    token: list[None]
    blocks_bypass: list[None]

    @property
    def items(self) -> Any: ...
    @property
    def delivers(self) -> bool: ...
    def after_bypass(self) -> None: ...


class HandlerMember(Protocol):
    """An attachment of such a subscription."""

    @property
    def subscription(self) -> Handled: ...
    @property
    def mailbox(self) -> HandlerQueue: ...
    @property
    def channel(self) -> RoutedChannel: ...
    @property
    def form(self) -> Any: ...
    @property
    def cls(self) -> Any: ...
    @property
    def epoch(self) -> int: ...


class HandlerBypass(Bypass):
    """To a function that takes events in the publisher's thread. All sources of an attachment share it."""

    __slots__ = ("attachment", "give", "mailbox", "names", "open", "subscription")

    remote = False

    def __init__(self, member: HandlerMember) -> None:
        self.attachment = member
        self.mailbox = mailbox = member.mailbox
        self.token, self.items, self.blocks_bypass = mailbox.token, mailbox.items, mailbox.blocks_bypass
        self.after_bypass, self.thread = mailbox.after_bypass, bytearray(8)
        self.subscription = member.subscription
        self.handler: Any = member.subscription._handler
        self.failed = partial(_failed, member)
        self.decode, self.cls = member.form.decode, member.form.cls
        self.open: Any = self.decode  # the same of many
        self.give: Any = self.handler
        self.names: tuple[str, int, str] | None = None  # of where an event comes to, if its handler is told
        self.pending = self.judge = None

    def for_flow(self, flow: Flow) -> HandlerBypass:
        return self

    def try_take(self) -> bool:
        """Take the mailbox's token, if nothing keeps the handler from being called at once."""
        if self.items or self.blocks_bypass or len(NEST) >= DEPTH:
            return False
        try:
            self.token.pop()
        except IndexError:
            return False
        except BaseException:  # Ctrl-C, just after it was taken
            self.token.append(None)
            raise
        return True

    def give_back(self) -> None:
        """Lay the token down without having called anything."""
        self.token.append(None)

    def call(self, event: Any, record: bytes) -> None:
        """Hand over one event, or what is in its record; then lay the token down."""
        try:
            NEST.append(None)
            if event.__class__ is not self.cls:
                event = self.decode(record)
            self.handler(event)
        except Exception as error:
            self.subscription._handler_failed(error, event)
        finally:
            try:
                self.token.append(None)
            finally:
                NEST.pop()
        if self.items or self.blocks_bypass:
            self.after_bypass()

    def receive(self, event: Any, source: RoutedSource, seq: int, stamp: int) -> None:
        """Hand over one event from another node; then lay the token down."""
        try:
            NEST.append(None)
            if (names := self.names) is None:
                self.handler(event)
            else:
                self.handler(event, About(source, seq, stamp, source.priority, *names))
            if self.blocks_bypass and self.subscription._failures:
                self.subscription._went_well()
        except Exception as error:
            self.subscription._handler_failed(error, event)
        finally:
            try:
                self.token.append(None)
            finally:
                NEST.pop()
        if self.items or self.blocks_bypass:
            self.after_bypass()

    def call_all(self, records: Sequence[Any], put_off: Callable[[int], None]) -> int:
        """Hand over many, then lay the token down; how many were no events. If the sink is paused or cancelled in the
        middle, `put_off` is called with the number of those that were handed over, before the token is back."""
        malformed = 0
        try:
            malformed, handled = self._hand_over(records)
            if handled < len(records):
                put_off(handled)
        finally:
            self.token.append(None)
        if self.items or self.blocks_bypass:
            self.after_bypass()
        return malformed

    def _hand_over(self, records: Sequence[Any]) -> tuple[int, int]:
        """Call the handler for these, as long as the mailbox delivers (a handler may pause or close it): how many had
        no event in them, and how many are done with. Failures are the subscription's, as on the slow path."""
        handler, decode, blocked, malformed = self.give, self.open, self.blocks_bypass, 0
        subscription, rest = self.subscription, iter(records)
        try:
            NEST.append(None)
            for record in rest:
                try:
                    event = decode(record)
                except HeadwaterError:
                    malformed += 1
                    continue
                try:
                    handler(event)
                except Exception as error:
                    subscription._handler_failed(error, event)
                else:
                    if not blocked:  # as it is but for failures, pauses and those who wait for something
                        continue
                    if subscription._failures:
                        subscription._went_well()
                if not self.mailbox.delivers:
                    break
        finally:
            NEST.pop()
        return malformed, len(records) - length_hint(rest)


class AboutBypass(HandlerBypass):
    """To a function that is told more than the event: for what comes from other nodes, as letters."""

    __slots__ = ("_letter", "_names")

    def __init__(self, member: HandlerMember) -> None:
        super().__init__(member)
        self._letter: Any = None
        self._names = self.names = member.channel.name, member.epoch, member.subscription.name
        self.open, self.give = self._open, self._give

    def _open(self, letter: Letter) -> Any:
        self._letter = letter
        return self.decode(letter.record)

    def _give(self, event: Any) -> None:
        self.handler(event, self._letter.about(*self._names))


def _failed(member: HandlerMember, error: Exception, event: Any) -> None:
    """Machine code has caught what a handler raised: go on as in the `except` clause that it has none of."""
    context, type = error.__context__, member.channel.type
    if event.__class__ is not member.cls and type is not None:  # what the handler saw was decoded
        with suppress(Exception):  # or it was decoding that failed
            event = member.form.decode(type.encode(event))
    try:
        raise error
    except Exception:
        error.__context__ = context
        member.subscription._handler_failed(error, event)


runs(HandlerBypass.call, lambda variables: variables["self"].mailbox)
runs(HandlerBypass.receive, lambda variables: variables["self"].mailbox)
runs(HandlerBypass._hand_over, lambda variables: variables["self"].mailbox)
