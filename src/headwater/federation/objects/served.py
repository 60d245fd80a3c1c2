"""A level of a service of another node, as a node has it: a replica, which may be exchanged for one of another level.

positions = desk.objects_at("depot").service("positions", level=Adaptive("near", "far"))
positions["fleet/7"].bound, positions.level
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError, ObjectError
from headwater.federation.wire.requests import unpack_type
from headwater.objects.replicas.adaptation import Adaptive, Controller, Measured

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.subscription import Subscription
    from headwater.federation.context import Context
    from headwater.federation.objects.replica import Reading, Replica
    from headwater.objects.replicas.adaptation import Move
    from headwater.objects.replicas.quality import QualityService
    from headwater.objects.replicas.spec import ReplicaSpec

log = logging.getLogger("headwater.federation")
LOOK_SECONDS = 0.25  # between two measurements of the link
READY_SECONDS = 30.0
Told = Callable[["LevelChange"], object]


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A service has another level now, and why."""

    service: str
    before: str
    level: str
    why: str


class ServedReplica:
    """It is read as a replica is. Made by `node.objects_at(owner).service(...)`; threads may share it."""

    def __init__(
        self,
        service: QualityService,
        level: str | Adaptive,
        context: Context,
        hold: Callable[[ReplicaSpec], Replica],
        on_level: Told | None = None,
    ) -> None:
        self.service, self._context, self._hold, self._on_level = service, context, hold, on_level
        self._controller = None if isinstance(level, str) else Controller(level.among(service.levels))
        self._lock = threading.Lock()
        self._level = level if isinstance(level, str) else self._controller.level  # type: ignore[union-attr]
        self._replica = hold(service.replica(self._level))
        # Of another level, until it is known, and not older than what there was when it was asked for.
        self._next: tuple[Move, Replica, int] | None = None
        self.changes = 0
        if self._controller is not None:
            context.scheduler.later(LOOK_SECONDS, self._look)

    # ── what it has ──

    @property
    def level(self) -> str:
        """The one that it is of now."""
        return self._level

    @property
    def levels(self) -> tuple[str, ...]:
        """Those of the service, the best first."""
        return tuple(self.service.levels)

    @property
    def replica(self) -> Replica:
        """The replica that it is now; it is closed when there is another."""
        return self._replica

    @property
    def bound(self) -> Mapping[str, float]:
        """How far each member may have been off at `as_of`, at its level."""
        return self._replica.bound

    @property
    def as_of(self) -> int | None:
        """As of a replica."""
        return self._replica.as_of

    @property
    def state(self) -> str:
        """As of a replica."""
        return self._replica.state

    @property
    def value(self) -> Any:
        """As of a replica of one object."""
        return self._replica.value

    def at(self, time: int, name: str = "") -> Any:
        """As of a replica."""
        return self._replica.at(time, name)

    def get(self, name: str) -> Reading | None:
        """As of a replica; the reading has the bound of its level."""
        return self._replica.get(name)

    def __getitem__(self, name: str) -> Reading:
        return self._replica[name]

    def __iter__(self) -> Iterator[Reading]:
        return iter(self._replica)

    def __len__(self) -> int:
        return len(self._replica)

    def ready(self, timeout: float = READY_SECONDS) -> bool:
        """Wait until something is known; whether it is."""
        return self._replica.ready(timeout)

    def until(self, time: int, timeout: float = READY_SECONDS) -> bool:
        """Wait until it is as of this time, or later, at whatever level; whether it is."""

        def reached() -> bool:
            found = self.as_of
            return found is not None and found >= time

        return self._context.scheduler.until(reached, timeout)

    # ── another level ──

    def change(self, level: str, why: str = "asked for") -> None:
        """Have another level: from when all of it is known here. Not of one that is adaptive."""
        if self._controller is not None:
            raise ObjectError(f"service {self.service.name!r}: expected one level, found one that follows the link")
        made = self._hold(self.service.replica(level))
        if not made.ready():
            made.close()
            raise ObjectError(
                f"service {self.service.name!r}: expected level {level!r} to be known, found {made.state}"
            )
        self._exchange(level, made, why)

    def _exchange(self, level: str, made: Replica, why: str) -> None:
        with self._lock:
            old, self._replica = self._replica, made
            before, self._level = self._level, level
            self.changes += 1
        old.close()
        self._context.scheduler.nudge()
        if self._on_level is not None:
            try:
                self._on_level(LevelChange(self.service.name, before, level, why))
            except Exception as error:
                log.error("service %s: on_level has failed: %s", self.service.name, error, exc_info=error)

    def _look(self) -> None:
        if not self._is_over:
            self._context.scheduler.work(self._measure, on=self._replica.spec.owner)

    @property
    def _is_over(self) -> bool:
        return self._replica.closed or self._context.closed

    def _measure(self) -> None:
        """Look at the link, and have the level that it can carry."""
        assert self._controller is not None
        try:
            if self._next is not None:
                self._arrive()
            elif (found := self._replica.measured()) is not None:
                lag, lost, size = found
                move = self._controller.measured(Measured(monotonic(), lag, lost, size))
                if move is not None:
                    before = self._replica.as_of or 0
                    self._next = move, self._hold(self.service.replica(move.level)), before
        except HeadwaterError as error:  # the owner is away, or allows no more: it is tried again
            log.info("service %s: %s", self.service.name, error)
        finally:
            if not self._is_over:
                self._context.scheduler.later(LOOK_SECONDS, self._look)

    def _arrive(self) -> None:
        """What is to be had next takes its place."""
        assert self._next is not None
        move, made, before = self._next
        known = made.as_of
        if known is not None and known >= before:
            self._next = None
            self._exchange(move.level, made, move.why)

    def close(self) -> None:
        """Have it no more. What is there can still be read."""
        self._replica.close()
        following, self._next = self._next, None
        if following is not None:
            following[1].close()

    def __enter__(self) -> ServedReplica:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Service {self.service.name} at level {self._level}>"


class ServedTrigger:
    """What a service over a trigger tells, at a level: subscribe to it as to any channel."""

    def __init__(
        self,
        service: QualityService,
        level: str | Adaptive,
        context: Context,
        channels: Mapping[str, tuple[str, bytes]],
    ) -> None:
        if not isinstance(level, str):
            raise ObjectError(f"service {service.name!r}: expected a level, since it is over a trigger, found {level}")
        service.must_have(level)
        self.service, self.level = service, level
        name, form = channels[level]
        type = unpack_type(form)
        if type is None:
            raise ObjectError(f"service {service.name!r}: expected the type of what is told, found none")
        self.channel: Channel[Any] = context.node.channel(name, type)

    @property
    def levels(self) -> tuple[str, ...]:
        """Those of the service, the best first."""
        return tuple(self.service.levels)

    def subscribe(self, handler: Any = None, where: Any = None, **options: Any) -> Subscription[Any]:
        """What is told from now on, to a handler, by `async for`, or durably; once to this node, however many."""
        return self.channel.subscribe(handler, where, **options)

    def __repr__(self) -> str:
        return f"<Service {self.service.name} at level {self.level}>"


__all__ = ["LevelChange", "ServedReplica", "ServedTrigger"]
