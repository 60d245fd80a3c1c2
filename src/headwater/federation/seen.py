"""Which events of an origin have come, where they may come by several ways: each counts the first time only."""

from __future__ import annotations

import threading
from bisect import bisect_right

MOST = 65_536  # gaps that are remembered, of each origin and tag
TAGS = 256  # interests at the source of which that is so, of each origin


def origin_of(federation: str, node: str, incarnation: int, sid: int) -> str:
    """What tells a source from all others, in all federations."""
    return f"{federation}/{node}/{incarnation}/{sid}"


def node_of(origin: str) -> str:
    """The name of the node where such a source is."""
    return origin.rsplit("/", 2)[0].rpartition("/")[2].rpartition(".")[0]


def federation_of(origin: str) -> str:
    """The name of its federation."""
    return origin.rsplit("/", 3)[0]


class Seen:
    """Of one origin, at one node; shared by all sources whose events have that origin.

    `turn` is held from the question whether an event is new until it is queued for all sinks, so that events of one
    origin keep their order, whichever way each comes.

    Remembered are stretches of numbers without a gap, so that it takes little memory as long as everything comes by
    one way or another. Should there be more than MOST gaps, the oldest counts as filled.
    """

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self._of: dict[int, _Numbers] = {}

    def first_time(self, seq: int, tag: int = 0) -> bool:
        """Whether this event is new; it is not any more from now on. Results of interests at the source (by their
        tag) are told apart, for each is a stream of its own."""
        numbers = self._of.get(tag)
        if numbers is None:
            numbers = self._of[tag] = _Numbers()
            if len(self._of) > TAGS:
                del self._of[min(each for each in self._of if each)]
        return numbers.add(seq)


class _Numbers:
    """A set of numbers as stretches, in order."""

    __slots__ = ("_first", "_last")

    def __init__(self) -> None:
        self._first: list[int] = []
        self._last: list[int] = []

    def add(self, number: int) -> bool:
        """Whether it was not there before."""
        first, last = self._first, self._last
        if last and number == last[-1] + 1:
            last[-1] = number
            return True
        if not last or number > last[-1]:
            first.append(number)
            last.append(number)
            if len(first) > MOST:
                del first[1], last[0]
            return True
        at = bisect_right(first, number) - 1  # the stretch that begins before it, or with it
        if at >= 0 and number <= last[at]:
            return False
        before = at >= 0 and last[at] == number - 1
        after = first[at + 1] == number + 1
        if before and after:
            del first[at + 1], last[at]
        elif before:
            last[at] = number
        elif after:
            first[at + 1] = number
        else:
            first.insert(at + 1, number)
            last.insert(at + 1, number)
        return True
