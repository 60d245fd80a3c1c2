"""Event types and events for the tests of the log's writing half."""

from __future__ import annotations

import enum
from typing import Any

from headwater.types import Array, Event, EventType, event_type, f64, i32, text, timestamp

DAY = 86_400_000_000_000  # nanoseconds
NOON = 20_000 * DAY + DAY // 2  # 2024-10-04T12:00:00Z


class Kind(enum.Enum):
    PERSON = 1
    THING = 7


class Place(Event, name="log.Place"):
    x: i32
    name: text | None


class Sighting(Event, name="log.Sighting"):
    badge: i32
    station: text


class Everything(Event, name="log.Everything"):
    badge: i32
    station: text
    kind: Kind
    place: Place
    levels: list[f64]
    grid: Array[i32, 2, 2]
    seen: timestamp | None


SIGHTING: EventType = event_type(Sighting)
EVERYTHING: EventType = event_type(Everything)


def sighting(number: int) -> dict[str, Any]:
    return {"badge": number, "station": "st" * (number % 7)}


def record(number: int) -> bytes:
    return SIGHTING.encode(sighting(number))


def everything(number: int) -> dict[str, Any]:
    return {
        "badge": number,
        "station": f"station {number}",
        "kind": "PERSON" if number % 3 else "THING",
        "place": {"x": -number, "name": None if number % 2 else "hall"},
        "levels": (0.5,) * (number % 4),
        "grid": ((number, 1), (2, 3)),
        "seen": None if number % 5 else 1_000_000 * number,
    }
