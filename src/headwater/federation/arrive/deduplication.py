"""Which events of an origin have come, where they may come by several ways: each counts the first time only."""

from __future__ import annotations

import threading
from bisect import bisect_right
from enum import Enum

MOST_GAPS = 65_536  # gaps that are remembered, of each origin and tag
MOST_TAGS = 256  # interests at the source of which that is so, of each origin

_ORDER = "sequencer:"


def origin_of(federation: str, node: str, incarnation: int, sid: int) -> str:
    """What tells a source from all others, in all federations."""
    return f"{federation}/{node}/{incarnation}/{sid}"


def node_of(origin: str) -> str:
    """The name of the node where such a source is."""
    return origin.rsplit("/", 2)[0].rpartition("/")[2].rpartition(".")[0]


def federation_of(origin: str) -> str:
    """The name of its federation."""
    return origin.rsplit("/", 3)[0]


def order_origin(federation: str, channel: str, term: int) -> str:
    """What tells the order that a sequencer gives a channel in one term. No node's id has a colon."""
    return f"{federation}/{_ORDER}{channel}/{term}/0"


def order_of(origin: str) -> tuple[str, int] | None:
    """Of which federation and channel that is the order, and in which term; None if it is of a source."""
    place, _, term = origin.rpartition("/")[0].rpartition("/")
    federation, _, node = place.rpartition("/")
    if not node.startswith(_ORDER) or not term.isdecimal():
        return None
    return f"{federation}/{node.removeprefix(_ORDER)}", int(term)


class Verdict(Enum):
    """What becomes of an event that may come by several ways."""

    TAKE = 1  # it is next
    HOLD = 2  # it may be, should the way end by which the others come
    DROP = 3  # it was there already


class Fence:
    """What a node's sinks have had of a channel's order: each place once, no place after a later one, and nothing of an
    older term once there was something of a newer one. So a sequencer that was replaced and does not know it yet is
    not heard. Results of interests with state (by their tag) are streams of their own."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.term = 0
        self._last: dict[int, int] = {}
        self.refused = 0  # events of a term that is over

    @property
    def place(self) -> int:
        """The last that any sink here has had."""
        return max(list(self._last.values()), default=0)

    def admits(self, term: int, place: int, tag: int = 0) -> bool:
        """Whether this is what comes next; it is not any more from now on."""
        if term < self.term:
            self.refused += 1
            return False
        self.term = term
        if place <= self._last.get(tag, 0):
            return False
        self._last[tag] = place
        if len(self._last) > MOST_TAGS:
            del self._last[min(each for each in self._last if each)]
        return True


class PlacesOfTerm:
    """The same, for one who knows only the places of one term."""

    def __init__(self, fence: Fence, term: int) -> None:
        self._fence, self._term = fence, term
        self.turn = fence.turn

    def offer(self, seq: int, ready: object, tag: int = 0) -> Verdict:
        return Verdict.TAKE if self.new(seq, tag) else Verdict.DROP

    def offer_rows(self, seqs: list[int], ready: object, tag: int = 0) -> tuple[Verdict, list[int]]:
        rows = [row for row, seq in enumerate(seqs) if self.new(seq, tag)]
        return (Verdict.TAKE if rows else Verdict.DROP), rows

    def new(self, seq: int, tag: int = 0) -> bool:
        return self._fence.admits(self._term, seq, tag)

    def hold(self, last: int, tag: int, events: int, deliver: object) -> None:
        """Nothing of an order is held: it comes from one, or not at all."""


class SeenOnce:
    """Of one origin, at one node; shared by all sources whose events have that origin.

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
            if len(self._of) > MOST_TAGS:
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
            if len(first) > MOST_GAPS:
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
