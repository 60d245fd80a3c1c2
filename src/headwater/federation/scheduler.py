"""The time of a federation: one thread per node for everything that has to wait or come again, and some more for what
waits for the network; and waiting until something has happened."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.federation.worker_pool import Workers
from headwater.threads import Supervised

if TYPE_CHECKING:
    from headwater.federation.engine import Engine
    from headwater.federation.peers.peer import Peer

TICK = 0.02  # seconds between acknowledgements
BEAT = 0.05  # seconds between promises of idle sources


class Scheduler:
    """`later` and `work` have something done, `changed` tells those who wait in `until`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        name = engine.node.name
        self.ticking = False
        self.watchers: list[Callable[[], None]] = []  # told whenever something has changed: quick, and without waiting
        self._lock = threading.Lock()
        self._news = threading.Condition()
        self._happened = 0
        self._wake = threading.Event()
        self._tasks: list[tuple[float, Callable[[], object]]] = []
        self._workers = Workers(f"headwater-{name}-federation")
        self._keeper = Supervised(
            self._keep, f"headwater-{name}-keeper", engine.node._crashes, again=lambda: not engine.closed
        )

    def start(self) -> None:
        self._keeper.start()

    def stop(self) -> None:
        """End it; its threads are gone then, but for who calls this, and what still waits for the network."""
        self._wake.set()
        if self._keeper.is_alive() and self._keeper is not threading.current_thread():
            self._keeper.join()
        self._workers.stop()

    def wake(self) -> None:
        """There is something to do."""
        self._wake.set()

    def later(self, seconds: float, task: Callable[[], object]) -> None:
        """Have the keeper do something."""
        with self._lock:
            self._tasks.append((monotonic() + seconds, task))
        self._wake.set()

    def tick_soon(self) -> None:
        self.ticking = True
        self._wake.set()

    def _keep(self) -> None:
        """The keeper: acknowledgements, promises, pings, and everything that has to wait."""
        next_tick = next_beat = next_ping = monotonic()
        while not self._engine.closed:
            now = monotonic()
            with self._lock:
                due = [task for at, task in self._tasks if at <= now]
                self._tasks = [(at, task) for at, task in self._tasks if at > now]
                first = min((at for at, _ in self._tasks), default=now + 1.0)
            for task in due:
                self.guarded(task)
            if self._engine.touched:
                self.guarded(self._engine.sync)
            if self.ticking and now >= next_tick:
                next_tick = now + TICK
                self.ticking = False  # before it is looked, so that nobody's call for a tick is lost
                for peer in self._engine.everyone():
                    if peer.unacknowledged:
                        self.guarded(self._acknowledge, peer)
            if now >= next_beat:
                next_beat = now + BEAT
                self.guarded(self._engine.installer.promise)
            if now >= next_ping:
                next_ping = now + min(1.0, self._engine.network.lease / 3)
                self.guarded(self._engine.installer.granting.measure)
                self.guarded(self._engine.membership.look_around)
                self.guarded(self._engine.renew_security)
                for peer in self._engine.everyone():
                    self.guarded(peer.date)
            first = min(first, next_ping, next_tick if self.ticking else first)
            if self._engine.installer.promising:
                first = min(first, next_beat)
            if not due and not self._engine.touched:
                self._wake.wait(max(0.0, first - monotonic()))
            self._wake.clear()

    def _acknowledge(self, peer: Peer) -> None:
        if peer.acknowledge():
            self.ticking = True

    def guarded(self, task: Callable[..., Any], *args: Any) -> None:
        try:
            task(*args)
        except BaseException as error:  # one failure must not end the keeper, and must be seen
            if not self._engine.closed:
                self._engine.node._crashes.note(f"headwater-{self._engine.node.name}: {_named(task)}", error)

    def changed(self) -> None:
        """Something that someone may be waiting for has happened."""
        self.nudge()
        self.watched()

    def nudge(self) -> None:
        """Who waits is to look again."""
        with self._news:
            self._happened += 1
            self._news.notify_all()

    def watched(self) -> None:
        for watch in list(self.watchers):
            watch()

    def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds; it is looked at whenever something happens in the federation."""
        end = monotonic() + timeout
        while True:
            happened = self._happened
            if condition():  # with no lock held: it may take others
                return True
            left = end - monotonic()
            if left <= 0:
                return False
            with self._news:
                if self._happened == happened:
                    self._news.wait(min(left, 0.1))

    def work(self, task: Callable[..., Any], *args: Any, on: str = "") -> bool:
        """Do something that may wait for the network: `on` is the node that it waits for. Whether it will be done."""
        with suppress(RuntimeError):
            self._workers.submit(on, partial(self.guarded, task, *args))
            return True
        return False  # it is closed


def _named(task: Callable[..., Any]) -> str:
    """What a task is, for people."""
    found = getattr(task, "func", task)  # of a partial
    return str(getattr(found, "__qualname__", type(found).__name__))
