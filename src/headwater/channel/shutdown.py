"""How a node ends: it drains or aborts, by choice, and never waits for itself.

Sources stop first; only handlers may go on publishing while a node drains. Then whoever closes waits until no mailbox
has anything to deliver, and runs those that only the calling thread could run. At last the dispatchers end, and what is
left is dropped and counted.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TypeVar

from headwater.channel.concurrency.reentrancy import in_handler, running
from headwater.channel.contract import NodeContract
from headwater.channel.dispatch.event_loop import LoopDispatcher
from headwater.channel.dispatch.thread_call import in_thread
from headwater.errors import ChannelError
from headwater.late import asyncio
from headwater.signals import end_signals

if TYPE_CHECKING:
    import threading

    from headwater.channel.dispatch.dispatcher import Dispatcher
    from headwater.channel.queues.mailbox import Mailbox

log = logging.getLogger("headwater")
T = TypeVar("T")
TURN = 64  # events delivered before looking at the time again
RECHECK_SECONDS = 0.2  # after which a node that stays looks whether it was closed
COROUTINE_RECHECK_SECONDS = 1.0  # seconds after which a coroutine that waits looks again


@dataclass(frozen=True, slots=True)
class Closing:
    """How a node ended: whether everything that waited was delivered, and what was dropped, by subscription."""

    drained: bool
    dropped: Mapping[str, int]


def stay(node: EndingNode) -> Closing:
    """Until Ctrl-C, SIGTERM or the end of the node; then it is closed."""
    if _on_a_loop():
        raise ChannelError(
            f"node {node.name!r}: run() in a coroutine would stop its loop; wait for what is to end it, and then "
            "await node.aclose()"
        )
    with end_signals() as end:
        while not end.wait(RECHECK_SECONDS) and not node.closed:
            pass
        try:
            return node.close()
        except KeyboardInterrupt:  # the second one
            node.close(drain=False, timeout=0.0)
            raise


class EndingNode(NodeContract, Protocol):
    """A node that ends."""

    closed: bool
    _draining: bool
    _ended: Closing | None
    _over: threading.Event

    def close(self, *, drain: bool = True, timeout: float | None = None) -> Closing: ...
    def _started_dispatchers(self) -> list[Dispatcher]: ...


class Ending:
    """One end of one node, as whoever closes it goes through it."""

    def __init__(self, node: EndingNode, *, drain: bool, timeout: float | None) -> None:
        self.node, self.drained = node, drain
        self._end = monotonic() + (node.config.close_timeout if timeout is None else timeout)
        self._dropped: dict[str, int] = {}

    @property
    def _left(self) -> float:
        return max(0.0, self._end - monotonic())

    def close(self) -> Closing:
        """All of it, in the calling thread."""
        if not self._begin():
            if not in_handler() and not _on_a_loop() and self.node._over.wait(self._left):
                self._close_dispatchers()
            return self.node._ended or Closing(False, {})
        self.node._timers.close(timeout=self._left)
        while busy := self._busy():
            if not self._left or not self._wait(busy[0]):
                self._give_up()
                break
        self._close_dispatchers()
        return self._finish()

    def _close_dispatchers(self) -> None:
        for dispatcher in self.node._started_dispatchers():
            self.drained &= dispatcher.close(drain=self.drained, timeout=self._left)

    async def aclose(self) -> Closing:
        """All of it, without stopping the loop."""
        if not self._begin():
            if not in_handler() and await in_thread(partial(self.node._over.wait, self._left)):
                await self._aclose_dispatchers()
            return self.node._ended or Closing(False, {})
        await in_thread(partial(self.node._timers.close, timeout=self._left))
        while busy := self._busy(asynchronous=True):
            if not self._left:
                self._give_up()
                break
            await self._await(busy[0])
        await self._aclose_dispatchers()
        return self._finish()

    async def _aclose_dispatchers(self) -> None:
        for dispatcher in self.node._started_dispatchers():
            if isinstance(dispatcher, LoopDispatcher):
                self.drained &= await dispatcher.aclose(drain=self.drained, timeout=self._left)
            else:
                self.drained &= await in_thread(partial(dispatcher.close, drain=self.drained, timeout=self._left))

    def _begin(self) -> bool:
        """Sources stop; False if it was closed before: then whoever comes again waits for the end too, if it can."""
        node = self.node
        with node._wiring.lock:
            if node.closed:
                return False
            node.closed, node._draining = True, self.drained
            for channel in node.channels():
                for source in channel.sources.values():
                    with source.between():
                        source.shut()
        if not self.drained:
            self._drop()  # first, so that publishers who wait for room go on
        for mailbox in self._mailboxes():
            mailbox.settle()
        return True

    # ── waiting ──

    def _busy(self, *, asynchronous: bool = False) -> list[Mailbox]:
        """Mailboxes that still have something to deliver, and that it makes sense to wait for here."""
        while True:
            before = self._published()
            found = [mailbox for mailbox in self._mailboxes() if not mailbox.idle]
            if found or before == self._published():  # else one may have had an event after it was looked at
                break
        mine = set(running())
        return [mailbox for mailbox in found if mailbox not in mine and self._worth_waiting(mailbox, asynchronous)]

    def _worth_waiting(self, mailbox: Mailbox, asynchronous: bool) -> bool:
        dispatcher = mailbox.dispatcher
        if dispatcher.inline:
            return not dispatcher.stuck()  # this thread has put it off until it has left the handler it is in
        if not self.drained:
            return False  # its dispatcher sees to it
        if isinstance(dispatcher, LoopDispatcher):
            return dispatcher.loop.is_running() and (asynchronous or not dispatcher.here())
        return True

    def _mailboxes(self) -> list[Mailbox]:
        node = self.node
        with node._wiring.lock:
            subscriptions = [*node.subscriptions.values(), *node._parting]
        stages = [mailbox for each in subscriptions for mailbox in each._stages]
        return stages + [each._mailbox for each in subscriptions if each._dispatcher is not None]

    def _published(self) -> int:
        return sum(source.seq for channel in self.node.channels() for source in list(channel.sources.values()))

    def _wait(self, mailbox: Mailbox) -> bool:
        """Until it has nothing to do; False if that takes too long."""
        if mailbox.inline:
            self._run(mailbox)
        elif mailbox.dispatcher.here():
            return bool(mailbox.dispatcher.close(drain=True, timeout=self._left))  # which helps with what waits
        return mailbox.wait(lambda: mailbox.idle, self._left)

    async def _await(self, mailbox: Mailbox) -> None:
        """For a moment, or until it changes."""
        if mailbox.inline:
            self._run(mailbox)
        changed = mailbox.change(asyncio.get_running_loop())
        try:
            if not mailbox.idle:
                await asyncio.wait([changed], timeout=min(COROUTINE_RECHECK_SECONDS, self._left))
        finally:
            changed.cancel()

    def _run(self, mailbox: Mailbox) -> None:
        """What waits for a publisher that was interrupted, or that is in another handler and closes from there."""
        while self._left and mailbox.turn(TURN):
            pass

    # ── what is left ──

    def _give_up(self) -> None:
        self.drained = False
        self._drop()

    def _drop(self) -> None:
        node = self.node
        node._draining = False
        with node._wiring.lock:
            for subscription in [*node.subscriptions.values(), *node._parting]:
                gone = subscription._mailbox.close(drop=subscription._handler is not None)
                if gone:
                    self._dropped[subscription.name] = self._dropped.get(subscription.name, 0) + gone

    def _finish(self) -> Closing:
        self._drop()
        with self.node._wiring.lock:
            for subscription in {*self.node.subscriptions.values(), *self.node._parting, *self.node._pulling}:
                subscription._end_progress()
        if self._dropped:
            total, names = sum(self._dropped.values()), ", ".join(self._dropped)
            log.warning("node %s closed with %d events not delivered, to %s", self.node.name, total, names)
        self.node._ended = Closing(self.drained and not self._dropped, self._dropped)
        self.node._over.set()
        return self.node._ended


def _on_a_loop() -> bool:
    """Whether the caller must not wait for what a coroutine of its own thread may be doing."""
    if "asyncio" not in sys.modules:  # then nobody has a loop
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
