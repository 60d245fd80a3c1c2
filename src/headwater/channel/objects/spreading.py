"""What triggers over values of several nodes need of a network: the contract that federation meets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from headwater.objects.zones.coordinator import Terms
    from headwater.types import EventType


class Spreading(Protocol):
    """Carries what homes and owners say to each other."""

    terms: Terms

    def attach(self, objects: Any) -> None:
        """The objects of this node are open."""
        ...

    def is_there(self, node: str) -> bool:
        """Whether a node can be asked now."""
        ...

    def type_of(self, node: str, object: str, named: str) -> tuple[str, EventType]:
        """The name and the type of an object of another node; it is asked for it, and waited for."""
        ...


__all__ = ["Spreading"]
