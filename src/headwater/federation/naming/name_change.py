"""The control event of naming: what becomes of the sources of a name, as an event of the domain's channel."""

from __future__ import annotations

from headwater.services.naming.registration_table import Change
from headwater.types import Event


class NameChange(Event, name="headwater.NameChange"):
    """A node has sources of a name, is elsewhere, or has none any more."""

    change: str  # advertised, moved, withdrawn, expired
    name: str
    node: str
    id: str
    federation: str
    endpoints: str  # joined by commas
    version: int


def event_of(change: Change) -> NameChange:
    """What subscribers get of a change."""
    address = change.address
    return NameChange(
        change=change.what,
        name=change.name,
        node=address.name,
        id=address.node,
        federation=address.federation,
        endpoints=",".join(address.endpoints),
        version=change.version,
    )


__all__ = ["NameChange", "event_of"]
