"""A subscription's mailbox: a bounded queue that one thread at a time empties, in order.

Who holds the token runs the mailbox. It lies in `token` while nobody does. Who puts something into an idle mailbox must
call `dispatch`, which runs it here, or hands it to its dispatcher. So a handler never runs twice at once, and events
stay in order, whatever the dispatch strategy.

Locks, in the order in which they may be taken: the node's, sources', a mailbox's. User code runs under none of them.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from headwater.channel.concurrency.bounded_queue import HERE, BoundedQueue, Waiters
from headwater.channel.concurrency.gate import Gate
from headwater.channel.concurrency.reentrancy import DEPTH, NEST, runs
from headwater.channel.reports.tally import Loss
from headwater.channel.routing.letter import Chunk, Letter
from headwater.late import asyncio

if TYPE_CHECKING:
    from headwater.channel.options.config import Queue
    from headwater.channel.routing.attachment import Attachment

Order = Literal["arrival", "priority", "deadline"]


# An event, or a chunk of n, for one subscription: (attachment, letter or chunk, n, priority, expiry). A plain tuple,
# since one is made for every event and sink.
Item = tuple["Attachment", Any, int, int, float]


class Mailbox:
    """Bounded by events, not by items; `full` is the node's set of queues that make publishers wait or fail."""

    destination = HERE
    late = 0  # events that came after their turn; only where they are put in order of time

    def __init__(
        self,
        name: str,
        queue: Queue,
        *,
        order: Order,
        full: set[BoundedQueue],
        pull: bool,
        deliver: Callable[[Item], None],
        adeliver: Any = None,
    ) -> None:
        self.name, self.queue, self.limit, self.order = name, queue, queue.limit, order
        self.pull, self.coroutine = pull, adeliver is not None
        self.deliver, self.adeliver = deliver, adeliver
        self.dispatcher: Any = None  # who runs it; None for a sink that pulls
        self.inline = False  # in the publisher's thread
        self.token: list[None] = [None]
        self.items: deque[Item] | list[tuple[float, int, Item]] = deque() if order == "arrival" else []
        self.held = False  # paused, or waiting for a condition: nothing is delivered
        self.slowed = False  # that is for a while, so that publishers wait for it all the same
        self.lenient = False  # for a moment even: nobody waits, and nothing is dropped
        self.closed = self._drops = False  # it takes nothing more; and what is put back is dropped
        self.dropped = 0
        self.troubled = False  # its handler failed last
        # Something is in it while events must take the long way: it is held, closed or troubled, or someone waits for
        # it to change. A list, so that machine code sees it as well (`BypassSlots`).
        self.blocks_bypass: list[None] = [None] if pull else []
        self.lock = Gate()
        changed = threading.Condition(self.lock)  # type: ignore[arg-type]
        self.waiters = Waiters(changed, self._update_bypass)
        self._notify = self.waiters.notify
        self._chunk_surplus = 0  # events in waiting chunks beyond one each
        self._full = full
        self._applies_backpressure = queue.policy in ("block", "fail")
        self._number = count()

    @property
    def waiting(self) -> int:
        """Events that wait."""
        return len(self.items) + self._chunk_surplus

    def dispatched_by(self, dispatcher: Any) -> None:
        self.dispatcher, self.inline = dispatcher, dispatcher.inline

    # ── in ──

    def put(self, item: Item) -> bool:
        """Take an item; True if the caller must call `dispatch` when it holds no lock any more."""
        with self.lock:
            fitting = self._fitting(item)
            if fitting is None:
                return False
            self._push(fitting)
            if self._applies_backpressure and self.waiting >= self.limit and (self.slowed or not self.held):
                self._full.add(self)
            if self.inline:
                return not self.held
            if self.pull:
                self._notify()
                return False
            return self._take()

    def _fitting(self, item: Item) -> Item | None:
        """The item, or what of it finds room by the queue's policy; the caller holds the lock."""
        n = item[2]
        if self.closed:
            self._drop(item, n)
            return None
        return item if self.waiting + n <= self.limit else self._overflow(item)

    def put_quick(self, attachment: Attachment, letter: Letter | Chunk, n: int, ready: list[BoundedQueue]) -> bool:
        """What `put` does where there is room and nothing special about it; False if `put` is needed.

        Adds itself to `ready` for the caller to call `dispatch` when it holds no lock any more."""
        lock = self.lock
        try:
            lock.token.pop()
        except IndexError:
            try:
                lock.queue()
            except BaseException:
                lock.undo()
                raise
        except BaseException:
            lock.token.append(None)
            raise
        try:
            if len(self.items) + self._chunk_surplus + n >= self.limit or self.held or self.closed:
                return False
            self.items.append((attachment, letter, n, 0, inf))  # type: ignore[arg-type]
            if n != 1:
                self._chunk_surplus += n - 1
            if self.inline:
                ready.append(self)
            elif self.pull:
                if self.waiters.threads or self.waiters.futures:
                    self._notify()
            elif self.token and self._take():
                ready.append(self)
            return True
        finally:
            lock.token.append(None)
            if lock.waiters:
                lock.wake()

    def put_all(self, attachment: Attachment, letters: list[Letter], ready: list[BoundedQueue]) -> bool:
        """Many events at once, where they are only to be queued; False if `put` is needed."""
        items: list[Item] = [(attachment, letter, 1, 0, inf) for letter in letters]
        with self.lock:
            if not self._applies_backpressure or self.held or self.closed or not isinstance(self.items, deque):
                return False
            self.items.extend(items)
            if self.is_full:
                self._full.add(self)
            if self.pull:
                self._notify()
            elif items and (self.inline or self._take()):
                ready.append(self)
        return True

    def dispatch(self) -> None:
        """Run it in this thread if nobody else does (inline), or hand it, with the token taken, to its dispatcher."""
        if not self.inline:
            self.dispatcher.ready(self)
            return
        items, token, deliver = self.items, self.token, self.deliver
        while items and not self.held:
            deep = len(NEST) >= DEPTH
            try:
                token.pop()
            except IndexError:
                return  # whoever runs it looks again after laying the token down
            except BaseException:
                token.append(None)  # interrupted (Ctrl-C) just after it was taken
                raise
            if deep:
                self.dispatcher.ready(self)  # which sees to it that the stack does not grow
                return
            try:
                NEST.append(None)
                while items and not self.held:
                    item = self._pop()
                    if item is not None:
                        deliver(item)
            finally:
                try:
                    token.append(None)
                finally:
                    NEST.pop()
                if self.blocks_bypass:
                    self._tell()

    def turn(self, budget: int) -> bool:
        """Deliver up to so many events in this thread, if nobody else runs it; whether more waits for that."""
        with self.lock:
            if not self._take():
                return False
        if not self.run(budget):
            return False
        self._broken_off()
        return True

    def _take(self) -> bool:
        if self.held or not self.items:
            return False
        try:
            self.token.pop()
        except IndexError:
            return False
        return True

    def _overflow(self, item: Item) -> Item | None:
        """What of the item may come in; older items go if that is the policy."""
        if self._keeps_all:
            return item  # the publisher was let in, or waits before its next event
        n, room = item[2], self.limit - self.waiting
        if self.queue.policy == "drop_oldest":
            if n > self.limit:
                self._drop(item, n - self.limit)
                item = part_of(item, n - self.limit, n)
            self._forget(item[2] - room)
            return item
        self._drop(item, n - max(room, 0))
        if room <= 0:
            return None
        return part_of(item, 0, room) if room < n else item

    @property
    def _keeps_all(self) -> bool:
        return self._applies_backpressure and (self.slowed or self.lenient or not self.held)

    def _drop(self, item: Item, events: int) -> None:
        self.dropped += events
        lose(item, "dropped", events)

    def _forget(self, events: int) -> None:
        """Drop that many of the oldest waiting events."""
        while events > 0 and self.items:
            oldest = self._oldest()
            if oldest is None:
                return
            n = oldest[2]
            self._chunk_surplus -= n - 1
            gone = min(events, n)
            self._drop(oldest, gone)
            events -= gone
            if gone < n:
                self._unpop(part_of(oldest, gone, n))

    def _oldest(self) -> Item | None:
        if isinstance(self.items, deque):
            try:
                return self.items.popleft()
            except IndexError:
                return None  # who runs it was quicker
        index = min(range(len(self.items)), key=lambda i: self.items[i][1])
        item = self.items[index][2]
        self.items[index] = self.items[-1]
        self.items.pop()
        heapq.heapify(self.items)
        return item

    def _push(self, item: Item) -> None:
        if isinstance(self.items, deque):
            self.items.append(item)
        else:
            heapq.heappush(self.items, (self._key(item), next(self._number), item))
        self._chunk_surplus += item[2] - 1

    def _unpop(self, item: Item) -> None:
        """Back to the head."""
        if isinstance(self.items, deque):
            self.items.appendleft(item)
        else:
            heapq.heappush(self.items, (self._key(item), -next(self._number), item))
        self._chunk_surplus += item[2] - 1

    def _key(self, item: Item) -> float:
        return -item[3] if self.order == "priority" else item[4]

    # ── out ──

    def pop(self) -> Item | None:
        """The next item, or None; for sinks that pull."""
        return self._pop() if self.items and not self.held else None

    def _pop(self) -> Item | None:
        """The next item, taken by who runs it, or pulls. None if it was dropped just now to make room."""
        try:
            if self.order == "arrival":
                item: Item = self.items.popleft()  # type: ignore[union-attr]
            else:
                with self.lock:
                    item = heapq.heappop(self.items)[2]  # type: ignore[arg-type]
        except IndexError:
            return None
        if item[2] != 1 or self._full:
            with self.lock:
                self._chunk_surplus -= item[2] - 1
                if self in self._full and self.waiting < self.limit:
                    self._full.discard(self)
                    self._notify()
        return item

    def pop_like(self, item: Item, limit: int, good: Callable[[Item], bool]) -> list[Item]:
        """Single events at the head that are for the same attachment as `item`, at most `limit`."""
        found: list[Item] = []
        while len(found) < limit and self.items and not self.held:
            with self.lock:
                head = self._head() if self.items else None
            if head is None or head[0] is not item[0] or isinstance(head[1], Chunk) or not good(head):
                break
            taken = self._pop()
            if taken is None:
                break
            found.append(taken)
            if taken is not head:  # the head was dropped to make room, or something more urgent came
                if taken[0] is not item[0] or isinstance(taken[1], Chunk) or not good(taken):
                    self.back([found.pop()])
                break
        return found

    def _head(self) -> Item:
        return self.items[0] if isinstance(self.items, deque) else self.items[0][2]

    def back(self, items: Iterable[Item]) -> None:
        """Items that were taken out and not delivered, or a chunk in pieces: to the head again, in order."""
        with self.lock:
            self._put_back(items)
            if self.is_full:
                self._full.add(self)
            self._notify()  # others who pull may have seen it empty

    def put_off(self, items: list[Item]) -> None:
        """Single events that were on their way past the queue when it was held: before all others, as far as there is
        room for them."""
        with self.lock:
            room = max(0, self.limit - self.waiting) if self.held and not self._keeps_all else len(items)
            if room < len(items):
                newest = self.queue.policy == "drop_oldest"
                kept = items[len(items) - room :] if newest else items[:room]
                for item in items[: len(items) - room] if newest else items[room:]:
                    self._drop(item, 1)
                items = kept
            self._put_back(items)

    def _put_back(self, items: Iterable[Item]) -> None:
        for item in reversed(list(items)):
            if self._drops:
                self._drop(item, item[2])
            else:
                self._unpop(item)

    def run(self, budget: int) -> bool:
        """Deliver up to `budget` events in this thread; True if more waits. The caller holds the token."""
        deliver = self.deliver
        try:
            while budget > 0:
                item = self._pop() if self.items and not self.held else None
                if item is not None:
                    budget -= item[2]
                    deliver(item)
                elif self._rest():
                    return False
        except BaseException:
            self._broken_off()
            raise
        return True

    async def arun(self, budget: int) -> bool:
        """The same for a coroutine handler, on its loop."""
        try:
            while budget > 0:
                item = self._pop() if self.items and not self.held else None
                if item is not None:
                    budget -= item[2]
                    await self.adeliver(item)
                elif self._rest():
                    return False
        except BaseException:
            self._broken_off()
            raise
        return True

    def _rest(self) -> bool:
        """Lay the token down; False if something came in that moment, and the token is taken again."""
        with self.lock:
            if self.items and not self.held:
                return False
            self.token.append(None)
            self._notify()
            return True

    def _broken_off(self) -> None:
        """Its dispatcher gives it up (Ctrl-C, a task cancelled): what waits is for whoever is made ready next."""
        with self.lock:
            self.token.append(None)
            self._notify()

    def _update_bypass(self) -> None:
        """Called under its lock whenever one of these has changed: whether events may be handed over past the queue."""
        self.blocks_bypass[:] = [None] if self._blocks else []

    @property
    def _blocks(self) -> bool:
        waiters = self.waiters
        return bool(self.held or self.closed or self.troubled or waiters.threads or waiters.futures or self.pull)

    def after_bypass(self) -> None:
        """The token was laid down in a hurry: tell those who wait, and see to what came meanwhile."""
        self._tell()
        if self.items and self.inline:
            self.dispatch()

    def _tell(self) -> None:
        with self.lock:
            self._notify()
            self._update_bypass()

    def trouble(self, on: bool) -> None:
        """Its handler failed, or did not for once."""
        with self.lock:
            self.troubled = on
            self._update_bypass()

    def urgency(self) -> tuple[int, float]:
        with self.lock:
            if not self.items:
                return 0, inf
            item = self._head()
            return item[3], item[4]

    def contents(self) -> list[Item]:
        """What waits just now, for a report."""
        with self.lock:
            waiting: list[Any] = list(self.items.copy())
        return waiting if self.order == "arrival" else [entry[2] for entry in waiting]

    # ── hold and let go ──

    def hold(self, *, slowed: bool = False, lenient: bool = False) -> None:
        """Deliver nothing until `resume`; meanwhile no publisher waits for it, unless it is only `slowed`, and what
        finds no room is dropped, unless it is `lenient`."""
        with self.lock:
            self.held, self.slowed, self.lenient = True, slowed, lenient
            self._update_bypass()
            if not slowed:
                self._full.discard(self)
            elif self._applies_backpressure and self.waiting >= self.limit and not self.closed:
                self._full.add(self)
            self._notify()

    def resume(self) -> bool:
        """As `put`: True if the caller must call `dispatch`."""
        with self.lock:
            self.held = self.slowed = self.lenient = False
            if self._applies_backpressure and self.waiting >= self.limit:
                self._full.add(self)
            self._notify()
            self._update_bypass()
            if self.inline:
                return bool(self.items)
            return not self.pull and self._take()

    def take_out(self) -> list[Item]:
        """All that waits, as it came, though it is held: for who carries it elsewhere. There is room then."""
        with self.lock:
            found = self._taken_out()
            self._full.discard(self)
            self._notify()
            return found

    def begin_with(self, items: Iterable[Item], keeps: Callable[[Item], Item | None]) -> None:
        """Have these before what waits, of which stays what `keeps` gives; it is held."""
        with self.lock:
            waiting = [kept for item in self._taken_out() if (kept := keeps(item)) is not None]
            for item in (*items, *waiting):
                self._put_anew(item)

    def _taken_out(self) -> list[Item]:
        if isinstance(self.items, deque):
            found = list(self.items)
        else:
            found = [entry[2] for entry in sorted(self.items, key=lambda entry: entry[1])]
        self.items.clear()
        self._chunk_surplus = 0
        return found

    def _put_anew(self, item: Item) -> None:
        self._push(item)

    def settle(self) -> None:
        """The node closes, and its sources have stopped."""

    def close(self, *, drop: bool) -> int:
        """Take nothing more; drop what waits, or leave it to be delivered. The number of events dropped."""
        with self.lock:
            self.closed = True
            if self.pull:
                self.held = False  # what waits may be taken
            self._update_bypass()
            self._drops |= drop
            gone = self._empty() if drop else 0
            self._full.discard(self)
            self._notify()
            return gone

    def _empty(self) -> int:
        """Throw everything out, one by one, since who runs it may take an item at the same time: how many events."""
        gone = items = 0
        while self.items:
            with suppress(IndexError):
                last: Any = self.items.pop()
                item: Item = last if self.order == "arrival" else last[2]
                self._drop(item, item[2])
                gone += item[2]
                items += 1
        self._chunk_surplus -= gone - items
        return gone

    # ── waiting for it ──

    @property
    def idle(self) -> bool:
        """Whether nothing waits (or nothing may be delivered) and nobody runs it."""
        return bool(self.token) and (not self.items or self.held)

    def give_way(self) -> bool:
        """It is full, and its publisher about to wait, between two events: whether there is another way for those."""
        return False

    @property
    def delivers(self) -> bool:
        """Whether what comes may be handed over."""
        return not (self.held or self._drops)

    @property
    def is_full(self) -> bool:
        waits = self._applies_backpressure and (self.slowed or not self.held) and not self.closed
        return waits and self.waiting >= self.limit

    def wait(self, until: Callable[[], bool], timeout: float | None) -> bool:
        """Block until the condition holds; it is looked at whenever the mailbox changes."""
        return self.waiters.wait(until, timeout)

    def change(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """A future of that loop which is done when the mailbox changes next."""
        return self.waiters.future(loop)


def dispatch_all(ready: list[BoundedQueue]) -> None:
    """What is to be done with mailboxes that took something, when no lock is held any more."""
    rest = iter(ready)
    try:
        for mailbox in rest:
            mailbox.dispatch()
    except BaseException:
        hand_over(rest)
        raise


def hand_over(rest: Iterator[BoundedQueue]) -> None:
    """The publisher was interrupted in a handler (Ctrl-C): of the rest, those that others run are handed to them.

    Where the publisher itself would have gone on, events wait for the next one, or for the end of the node."""
    for mailbox in rest:
        if not mailbox.inline:
            mailbox.dispatch()


def lose(item: Item, what: Loss, events: int) -> None:
    """Count events that passed and are not delivered where they came from."""
    attachment, letter = item[0], item[1]
    if attachment.subscription._calm:  # of a filter tree only matches are lost, not events
        letter.source.fates(attachment.channel).lost(what, events)


def part_of(item: Item, start: int, end: int) -> Item:
    """Some events of a chunk."""
    attachment, chunk, _, priority, expiry = item
    return attachment, chunk.part(start, end), end - start, priority, expiry


runs(Mailbox.run, lambda variables: variables["self"])
runs(Mailbox.arun, lambda variables: variables["self"])
runs(Mailbox.dispatch, lambda variables: variables["self"] if variables["self"].inline else None)
