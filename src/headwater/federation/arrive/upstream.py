"""The node that a remote source is at, as what arrives from there sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from headwater.federation.demand.demand import InterestRequest
    from headwater.federation.security.rules import Principal
    from headwater.federation.wire.control import SourceAd


class Upstream(Protocol):
    """Another node that sends events here."""

    id: str
    name: str
    incarnation: int
    links: int  # how many there were so far
    gone: float | None  # since when it is not there
    principal: Principal | None  # who it has proven to be
    asked: dict[str, InterestRequest]  # what it was asked for, by channel

    @property
    def sources(self) -> Sequence[SourceAd]:
        """What it has said that it has."""
        ...

    @property
    def remote_sources(self) -> Mapping[int, Any]:
        """Those whose events come here, by their number there."""
        ...

    def place(self, channel: str, log: str | None = None) -> str:
        """Where sources of a channel are, so that sinks know whose past they have had."""
        ...

    def say(self, frame: bytes) -> None:
        """Send a frame beside the events."""

    def wait_for_room(self, source: Any, record: bytes | None) -> None:
        """Until every sink that may want the source's next events has room for them."""


__all__ = ["Upstream"]
