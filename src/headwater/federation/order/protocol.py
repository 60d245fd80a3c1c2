"""What the sequencers of a channel tell each other: who is there, and which events have which places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headwater.types import Event, i64

FORGET, PLACES = -1, 0  # counts that are none: what they say is in Placing
Key = tuple[str, int]  # origin of an event, and its number there


class Placing(Event, name="headwater.Placing"):
    """What sequencers tell each other.

    count > 0   a leader: so many events of a source, from number `first` on, have the places from `place` on
    PLACES      it is there, leads or not, and the next place is `place`; with `origin`: the events of that source up
                to `first` have had theirs
    FORGET      a leader, `to` one that begins to follow: what it is told from here on is all that counts"""

    place: i64
    floor: i64  # all up to this place have reached everyone
    origin: str
    first: i64
    count: i64
    active: bool
    term: i64
    to: str = ""  # to one of the others only
    ready: bool = False  # it gets the events of all sources, and could follow


def runs(keys: Iterable[Key]) -> Iterator[tuple[str, int, int]]:
    """Stretches of numbers of one origin: origin, first and how many."""
    origin, first, count = "", 0, 0
    for name, seq in keys:
        if count and name == origin and seq == first + count:
            count += 1
            continue
        if count:
            yield origin, first, count
        origin, first, count = name, seq, 1
    if count:
        yield origin, first, count


__all__ = ["FORGET", "PLACES", "Key", "Placing", "runs"]
