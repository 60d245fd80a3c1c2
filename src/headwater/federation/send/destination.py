"""Where lanes lead, as they see it: another node, or a multicast group in its place."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import threading

    from headwater.channel.routing.limiter import Limiter
    from headwater.federation.network import Network
    from headwater.federation.scheduler import Scheduler
    from headwater.federation.transport.sender import Sender


class Destination(Protocol):
    """A peer, or the outlet of a group. `building` is held while frames are made of what waits."""

    name: str
    incarnation: int
    present: bool  # it is there, as far as is known
    network: Network
    scheduler: Scheduler
    sender: Sender
    building: threading.Lock
    send_soon: Callable[..., None]  # there is something to send
    full: set[Any]  # what publishers wait for: mailboxes and lanes that are full
    dirty: deque[Any]  # lanes that have something to send
    control: deque[bytes]  # frames that go before all events
    barriers_due: deque[Any]  # crossings of which the other end is to be told that they are in force
    reading: list[Any]  # lanes that go on reading the log when others had their turn
    by_sid: dict[int, Any]  # lanes, by the number of their source
    # Of frames of lanes that are over: those of the next lane of a source follow on them, so that nothing that is still
    # on its way of the earlier one, at either end, is taken for its own.
    last_number: int
    resumed: bool  # the other end has said what it has: events may go
    columns: bool  # it takes rows as columns, and compressed frames

    @property
    def quota(self) -> Limiter | None:
        """What it may have of this node, if there is a limit."""
        ...

    @property
    def link(self) -> object | None:
        """The present one, if there is any."""
        ...

    def add_dirty(self, lane: Any) -> None:
        """A lane has something to send: it goes with what is sent next."""

    def trim(self, lane: Any) -> None:
        """Drop what is too much in a lane, while nobody makes frames of it."""

    def pump(self, seconds: float) -> bool:
        """Where the calling thread is the one that reads the link: read on. Whether something came."""
        ...


__all__ = ["Destination"]
