"""What every peer of a node works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from headwater.federation.arrive.arrivals import Arrivals
    from headwater.federation.context import Context
    from headwater.federation.peers.barriers import Barriers
    from headwater.federation.peers.post_registry import PostRegistry
    from headwater.federation.transport.sender import Pulse
    from headwater.federation.wire.control import Announce, Sent


class Registrar(Protocol):
    """Keeps who is there."""

    def version_said(self, peer: Any, version: int) -> None:
        """A peer says which version of its state is the latest."""


class Attendance(Protocol):
    """Sees to what follows when a peer is reached no more."""

    def link_lost(self, peer: Any) -> None:
        """A link to a peer has ended."""

    def said_bye(self, peer: Any, reason: str) -> None:
        """A peer leaves in an orderly way."""


class Requests(Protocol):
    """Asks other nodes for what sinks here want."""

    def confirm(self, peer: Any) -> None:
        """A peer has said which memory it has: what it was asked for in an earlier one, it is asked for again."""

    def barrier_came(self, peer: Any, channel: str, version: int, since: int, first: bool, gap: int) -> None:
        """Everything from before the peer took up our wishes of this version is here."""

    def refuse_channel(self, peer: Any, name: str, why: str) -> None:
        """A peer's sources of a channel do not fit here."""


class GroupReceiver(Protocol):
    """What comes from multicast groups, as far as links have a part in it."""

    def message(self, peer: Any, message: Any) -> None:
        """Frames of a group that were asked for again, or that no datagram can take."""

    def announced(self, peer: Any, source: Any, message: Announce) -> None:
        """A source's events will come by a group."""

    def sent(self, peer: Any, message: Sent) -> None:
        """How far sources have come."""

    def ends(self, peer: Any, sid: int) -> None:
        """No more of a source comes by its group."""

    def barrier_came(self, peer: Any, channel: str, then: Callable[[], None]) -> None:
        """Something was said behind events of a channel: it counts once everything is here that was sent before."""


class MulticastPort(Protocol):
    """Channels that go to multicast groups, as far as links have a part in it."""

    @property
    def hearing(self) -> GroupReceiver: ...

    def acknowledged(self, peer: Any, sid: int, number: int) -> None:
        """A peer has done with all frames of a source up to this one."""

    def repair(self, peer: Any, sid: int, after: int, upto: int) -> None:
        """A peer misses frames."""

    def resumed(self, peer: Any, positions: dict[int, int]) -> tuple[list[bytes], list[bytes]]:
        """For a new link: what goes again of groups that a peer has left, and what it is told of those it shares."""
        ...


@dataclass(eq=False, slots=True)
class Parts:
    """`registrar`, `attendance` and `requests` are set once they are made: before any peer is."""

    context: Context
    pulse: Pulse
    arrivals: Arrivals
    barriers: Barriers
    groups: MulticastPort | None
    posts: PostRegistry
    registrar: Registrar | None = None
    attendance: Attendance | None = None
    requests: Requests | None = None


__all__ = ["Attendance", "GroupReceiver", "MulticastPort", "Parts", "Registrar", "Requests"]
