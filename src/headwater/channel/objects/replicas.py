"""The owner's replicas, bound to the node's timers and to the sources by which their holders are told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from headwater.errors import ClosedError
from headwater.objects.operations import Transaction
from headwater.objects.replicas import tables
from headwater.objects.replicas.owner import Replicas, due
from headwater.objects.replicas.spec import SUFFIX

if TYPE_CHECKING:
    from headwater.channel.time.clock import Clock
    from headwater.channel.time.timer_engine import Handle, Timers
    from headwater.objects.engine import ObjectEngine
    from headwater.store import NodeState
    from headwater.types import EventType

EARLIEST = 0.001  # seconds: the clock of people and that of timers need not go alike


class ClockNode(Protocol):
    """As much of a node as is needed here."""

    clock: Clock
    _timers: Timers


class OwnReplicas:
    """Of one node's objects. `observer` is for their engine, which is told to `serve` once it is there."""

    def __init__(self, node: ClockNode, state: NodeState, type_named: Callable[[str], EventType | None]) -> None:
        self._node, self._rows = node, state.tables(tables.REPLICAS)
        self.observer = Replicas(type_named)
        self.observer.wake = self._wake
        self._engine: ObjectEngine | None = None
        self._lock = threading.Lock()
        self._handle: Handle | None = None
        self._closed = False

    def serve(self, engine: ObjectEngine) -> None:
        """Before its first turn."""
        self._engine = engine
        engine.turns.clock.told(self.observer.latest)

    def come_to(self, channel: str) -> tuple[int, int] | None:
        """Of the source on a channel: how far its own time has come, as patterns and replicas of others go by it."""
        engine = self._engine
        found = None if engine is None else engine.come_to(channel, lambda: self.observer.cap)
        return None if found is None else (found, found)

    def page(self, replica: int, holder: str, after: str, most: int) -> list[tables.Row] | None:
        """What holders of a replica were told last, as it is committed; None if that one does not hold it."""
        rows = tables.page(self._rows, replica, after, most)
        return rows if tables.is_held(self._rows, replica, holder) else None

    def _wake(self, when: int) -> None:
        """Have it looked at a time whether a model has gone too far."""
        with self._lock:
            if self._handle is not None:
                self._handle.cancel()
            if not self._closed:
                wait = max(EARLIEST, (when - self._node.clock.time()) / 1e6)
                self._handle = self._node._timers.call_after(wait, self._due)

    def _due(self) -> None:
        assert self._engine is not None
        with suppress(ClosedError):  # it is looked again in the next life
            self._engine.submit(Transaction((due(),)), waits=True)

    def close(self) -> None:
        """Wait for nothing any more."""
        with self._lock:
            self._closed = True
            if self._handle is not None:
                self._handle.cancel()


def tells_time(channel: str) -> bool:
    """Whether a channel of objects is one whose source says how far its time has come."""
    return channel.endswith(SUFFIX)


__all__ = ["OwnReplicas", "tells_time"]
