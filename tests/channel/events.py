"""Event types and small things that the tests of the service share."""

from __future__ import annotations

from headwater import Event, f32, u8, u32

GUARD = 60.0  # seconds after which a test that waits for another thread gives up


class Sighting(Event, name="ie.tcd.Sighting"):
    network: str
    badge: u32
    level: float
    room: str | None = None


class Brief(Event, name="ie.tcd.Sighting"):
    """The same for a sink that needs less."""

    network: str
    level: float


class Detailed(Event, name="ie.tcd.Sighting"):
    """The same from a source that knows more, and has a narrower badge."""

    network: str
    badge: u8
    level: f32
    room: str | None
    battery: float


class Alarm(Event, name="ie.tcd.Alarm"):
    badge: u32
    text: str


def sighting(badge: int = 1, level: float = 0.5, network: str = "ORL-Net#1", room: str | None = None) -> Sighting:
    return Sighting(network=network, badge=badge, level=level, room=room)


def badges(events: object) -> list[int]:
    return [event.badge for event in events]  # type: ignore[attr-defined]
