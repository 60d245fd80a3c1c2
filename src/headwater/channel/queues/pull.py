"""Sinks that pull: a subscription without a handler gives its events to whoever asks."""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Protocol, overload

from headwater.channel.annotations import E_co
from headwater.channel.queues.mailbox import Item, Mailbox
from headwater.errors import ClosedError, SubscriptionError
from headwater.extras import require
from headwater.late import asyncio, pa

if TYPE_CHECKING:
    from headwater.channel.options.subscribe import Options
    from headwater.channel.queues.positions import Progress
    from headwater.channel.routing.letter import About

ASKING = 0.001  # seconds after which a source that waits to be asked is asked again, at first


class PulledNode(Protocol):
    """A node, as sinks know it that pull."""

    def _may_ask(self, subscription: Any) -> bool:
        """Whether its events may come from sources that wait to be asked."""
        ...

    def _ask_sources(self, subscription: Any) -> bool:
        """Ask them; whether any gave an event."""
        ...


class Pulling(Generic[E_co]):
    """The part of a subscription by which its events are pulled."""

    node: PulledNode
    name: str
    _options: Options
    _mailbox: Mailbox
    _progress: Progress | None
    _handler: Callable[..., Any] | None
    _delivered: int

    def __init__(self) -> None:
        self._pulling = (
            threading.Lock()
        )  # of threads that pull: one takes a batch apart while the others wait for its rest

    @overload
    def get(self, timeout: None = None) -> E_co: ...
    @overload
    def get(self, timeout: float | None) -> E_co | None: ...
    def get(self, timeout: float | None = None) -> Any:
        """The next event, waiting for it; None if none came within `timeout` seconds. With `about=True`, a pair.

        Raises ClosedError once the subscription has ended and everything is taken."""
        self._must_pull("get")
        end = math.inf if timeout is None else monotonic() + timeout
        pace = ASKING
        while True:
            found = self._next()
            if found is not None:
                return found[0]
            if self._mailbox.closed:
                raise self._ended()
            left = end - monotonic()
            if left <= 0:
                return None
            if self.node._may_ask(self):  # sources that wait to be asked are, ever more slowly
                left, pace = min(left, pace), min(2 * pace, 64 * ASKING)
            self._mailbox.wait(self._something, None if left == math.inf else left)

    def poll(self) -> E_co | None:
        """The next event if there is one, else None; never waits. Raises ClosedError as `get` does."""
        self._must_pull("poll")
        found = self._next()
        if found is None and self._mailbox.closed:
            raise self._ended()
        return None if found is None else found[0]

    def get_batch(self, limit: int = 65_536) -> Any:
        """All that waits, at most `limit` events, as a RecordBatch of the sink's type; None if nothing waits.

        Where events of several types wait, those up to the first of another type."""
        self._must_pull("get_batch")
        require("arrow", "get_batch()")
        batches: list[Any] = []
        form: Any = None
        self.node._ask_sources(self)
        taken: list[Item] = []
        late: list[Item] = []
        with self._pulling:
            self._settle()
            while limit > 0 and (item := self._fresh()) is not None:
                if not self._still_good(item):
                    late.append(item)
                    continue
                found = item[0].form
                if found.type is None or (form is not None and found.type != form.type):
                    self._mailbox.back([item])
                    if form is None:
                        raise SubscriptionError(
                            "get_batch: this channel has no type, and its bytes are no rows; use get()"
                        )
                    break
                form = found
                batch, _, items = self._batch_of(item, limit)
                n = sum(each[2] for each in items)
                self._delivered += n
                self._timed(item)
                limit -= n
                batches.append(batch)
                taken += items
            self._handed(taken, late)
            for item in late:  # only now: what is before them is handed over
                self._expire(item)
        if form is None:
            if self._mailbox.closed:
                raise self._ended()
            return None
        return pa.concat_batches(batches) if len(batches) > 1 else batches[0]

    @overload
    async def receive(self, timeout: None = None) -> E_co: ...
    @overload
    async def receive(self, timeout: float | None) -> E_co | None: ...
    async def receive(self, timeout: float | None = None) -> Any:
        """As `get`, from a coroutine: its loop goes on meanwhile."""
        self._must_pull("receive")
        loop, pace = asyncio.get_running_loop(), ASKING
        end = math.inf if timeout is None else monotonic() + timeout
        while True:
            found = self._next()
            if found is not None:
                return found[0]
            if self._mailbox.closed:
                raise self._ended()
            left = end - monotonic()
            if left <= 0:
                return None
            if self.node._may_ask(self):
                left, pace = min(left, pace), min(2 * pace, 64 * ASKING)
            changed = self._mailbox.change(loop)
            try:
                if not self._something():
                    await asyncio.wait([changed], timeout=None if left == math.inf else left)
            finally:
                changed.cancel()

    def __iter__(self) -> Iterator[E_co]:
        """Events as they come, until the subscription ends."""
        while True:
            try:
                event = self.get()
            except ClosedError:
                return
            yield event

    async def __aiter__(self) -> AsyncIterator[E_co]:
        while True:
            try:
                event = await self.receive()
            except ClosedError:
                return
            yield event

    def _something(self) -> bool:
        mailbox = self._mailbox
        return (bool(mailbox.items) and not mailbox.held) or mailbox.closed

    def _next(self) -> tuple[Any] | None:
        found = self._pulled()
        if found is None and not self._mailbox.closed and self.node._ask_sources(self):
            found = self._pulled()
        return found

    def _pulled(self) -> tuple[Any] | None:
        with self._pulling:
            self._settle()
            while (item := self._fresh()) is not None:
                if not self._expired_or_open(item):
                    event, about, items = self._present(item)
                    self._delivered += 1
                    self._timed(item)
                    self._handed(items)
                    return ((event, about) if self._options.about else event,)
        return None

    def _handed(self, items: list[Item], late: Sequence[Item] = ()) -> None:
        """Items are given to who pulls; if they cannot be, they go back, and so do those that came too `late`."""
        if self._progress is not None and items:
            try:
                self._progress.take(items)
            except BaseException:
                self._mailbox.back(late)
                self._hand_back(items)
                raise

    def _settle(self) -> None:
        """Who asks for more is done with what it has."""
        if self._progress is not None:
            self._progress.settle()

    def _fresh(self) -> Item | None:
        """The next item, without what was seen before."""
        while (item := self._mailbox.pop()) is not None and self._progress is not None:
            if (left := self._progress.fresh(item)) is not None:
                return left
        return item

    def _must_pull(self, what: str) -> None:
        if self._handler is not None:
            raise SubscriptionError(
                f"{what}: expected a subscription without a handler, found {self.name!r}, whose handler gets its events"
            )

    def _ended(self) -> ClosedError:
        return ClosedError(f"subscription {self.name!r} has ended; there are no more events")

    if TYPE_CHECKING:  # what the subscription does for those with a handler, too

        def _hand_back(self, items: list[Item]) -> None: ...
        def _present(self, item: Item) -> tuple[Any, About | None, list[Item]]: ...
        def _batch_of(self, item: Item, limit: int) -> tuple[Any, About | None, list[Item]]: ...
        def _expired_or_open(self, item: Item) -> bool: ...
        def _still_good(self, item: Item) -> bool: ...
        def _expire(self, item: Item) -> None: ...
        def _timed(self, item: Item) -> None: ...
