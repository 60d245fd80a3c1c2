"""What triggers of another node may have this one remember: how much of its memory, and of its state file.

A trigger over a pattern of names remembers something of each object that fits: histories, whether its condition holds,
the value at the last firing. Each of that is a place; the values of a history are counted besides. What a node would
need of places is looked at when it asks for a trigger. Objects may come later, though: beyond its places nothing is
begun for it, and its triggers fail there, which their reports say. Beyond its values, the oldest of a history go, as
beyond its `most`: the history is not `whole` then.

What a trigger of the owner asks for too is the owner's, and counts for nobody.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.errors import ObjectError

PLACES = 50_000  # of one other node
VALUES = 500_000
MOST = 4_096  # values of one history


class Shares:
    """Of all other nodes, by the group that their triggers are in; only the thread that runs turns changes them."""

    def __init__(self, places: int = PLACES, values: int = VALUES) -> None:
        self.most_places, self.most_values = places, values
        self.places: dict[str, int] = {}
        self.values: dict[str, int] = {}

    def place(self, askers: Iterable[str], count: int = 1) -> None:
        """Something is begun for these, or ended."""
        _add(self.places, askers, count)

    def value(self, askers: Iterable[str], count: int) -> None:
        """Values of histories came, or went."""
        _add(self.values, askers, count)

    def full(self, askers: Iterable[str]) -> str:
        """One of these that has no place left, or nothing."""
        return next((each for each in askers if self.places.get(each, 0) >= self.most_places), "")

    def has_values(self, askers: Iterable[str]) -> bool:
        """Whether none of these has more values than it may."""
        return all(self.values.get(each, 0) <= self.most_values for each in askers)

    def check(self, asker: str, places: int) -> None:
        """ObjectError if a trigger would need more places than there are."""
        used = self.places.get(asker, 0)
        if used + places > self.most_places:
            raise ObjectError(
                f"expected triggers of one node to remember at most {self.most_places:,} things, one for each object, "
                f"condition and history, found {used:,}, and {places:,} more for this one; name fewer objects, ask for "
                "fewer histories, or remove other triggers"
            )

    def refusal(self, asker: str, object: str) -> ObjectError:
        """Why nothing is begun of an object."""
        return ObjectError(
            f"{object}: expected triggers of {asker} to remember at most {self.most_places:,} things, found as many: "
            "of this object nothing is remembered, and they do not fire"
        )


def _add(to: dict[str, int], askers: Iterable[str], count: int) -> None:
    for each in askers:
        now = to.get(each, 0) + count
        if now > 0:
            to[each] = now
        else:
            to.pop(each, None)


__all__ = ["MOST", "PLACES", "VALUES", "Shares"]
