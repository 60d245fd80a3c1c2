"""A source whose events are published elsewhere, and keep their numbers and times: nothing can be published here."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from headwater.channel.source import Source
from headwater.errors import ClosedError, EncodeError
from headwater.federation.arrive.deduplication import node_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headwater.channel.channel import Channel
    from headwater.federation.arrive.deduplication import PlacesOfTerm
    from headwater.federation.arrive.paths import Way


class _NoIntake:
    """Takes nothing from this process."""

    type = None
    plan = None

    def __init__(self, hint: str) -> None:
        self._hint = hint

    def encode(self, event: Any, fields: dict[str, Any] | None = None) -> tuple[bytes, Any]:
        raise EncodeError("", self._hint)

    def batch(self, events: Any) -> Any:
        raise EncodeError("", self._hint)


class ForeignSource(Source):
    """`origin` tells the source where its events were published, in all federations, and `path` the federations that
    they have come through; `filters` those that they have passed on the way. `hint` says what to do instead of
    publishing here. `way` makes its way among those by which events of that origin come; without, there is only this
    one."""

    def __init__(
        self,
        channel: Channel,
        name: str,
        *,
        hint: str,
        origin: str,
        path: Iterable[str],
        filters: Iterable[str] = (),
        priority: int = 0,
        zones: frozenset[str] = frozenset(),
    ) -> None:
        intake: Any = _NoIntake(hint)
        super().__init__(channel, name, intake, facts=None, priority=priority, ask=None, zones=zones)
        self._hint = hint
        self.origin, self.path, self.filters = origin, tuple(path), tuple(filters)
        if origin:
            self.node = node_of(origin)
        self.missed = 0  # events that may have been lost on their way
        self.way_in: Way | PlacesOfTerm | None = None
        self._turn: Any = nullcontext()

    def _come_by(self, way: Callable[[Any], Way | PlacesOfTerm]) -> None:
        """Its events may come by others too: this is one of several ways."""
        self.way_in = way(self)
        self._turn = self.way_in.turn

    @property
    def reachable(self) -> bool:
        """Whether its events may still come."""
        return not self.closed

    def start(self) -> None:
        self._flow = self.flows[self.channel]
        self._slow = self.publish

    def publish(self, event: Any = None, /, **fields: Any) -> int:
        """Refused: its events are published elsewhere (`ClosedError`)."""
        raise ClosedError(f"{self}: {self._hint}")

    def publish_many(self, events: Any) -> int:
        """Refused, as `publish`."""
        return self.publish()

    def full(self, record: bytes | None) -> Any:
        """A mailbox of somebody who may want this, and has no room for it."""
        with self.lock:
            if self.closed:
                return None
            return next((mailbox for mailbox in self._flow.reaches(record) if mailbox.is_full), None)


__all__ = ["ForeignSource"]
