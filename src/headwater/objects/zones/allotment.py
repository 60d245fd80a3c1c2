"""Who gets a zone, and who is asked for room: as few messages as the condition allows.

An owner that has left its zone gets a new one out of the room that nobody has. Where that is too little, the others are
asked where they are: what they do not need of theirs is shared anew. Near to where the outcome changes, zones would be
left at once; there everybody reports, which costs no more than the simple scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from headwater.objects.zones.conditions import Condition, judge
from headwater.objects.zones.growth import Growth, Motion, Side
from headwater.objects.zones.peer import Peer
from headwater.objects.zones.ranges import Anything, Area, Range, hull

ROOM_FOR_ONE = 2.0  # steps to every side of a zone that is worth a message, where one owner needs one
ROOM_FOR_ALL = 4.0  # where all do: it ends when the first of them leaves
FIRST = 2  # messages of each owner that zones may cost before they have saved any
OVERHEAD = 0.03  # of what the simple scheme would have sent, that zones may cost though they save nothing
FIRST_ASKED = 2  # owners, for room; twice as many each time that it was not enough


class Plan(NamedTuple):
    """Zones to give, and owners to ask."""

    zones: Sequence[tuple[Peer, Area]] = ()
    questions: Sequence[Peer] = ()


class Ledger:
    """What zones have saved and cost since this life began. Near to where the outcome changes they save nothing, and
    cost a message each: there they are tried as often as what they have saved before allows, or now and then."""

    def __init__(self, owners: int) -> None:
        self._owners = owners
        self.changes = self.reports = 0  # of owners, as far as they have told of them; and reports that came
        self.spent = 0  # zones, and questions with their answers, that would not have been without zones

    @property
    def allowance(self) -> int:
        """Messages that zones may cost now."""
        return FIRST * self._owners + self.changes - self.reports + int(OVERHEAD * self.changes) - self.spent


class Allotment:
    """Shares the room of a condition among its owners."""

    def __init__(self, condition: Condition, peers: Sequence[Peer]) -> None:
        self._condition = condition
        self._peers = peers
        self._hints: dict[Side, float] = {}
        self._batch = FIRST_ASKED
        self.ledger = Ledger(len(peers))

    def plan(self, now: int, retry: int) -> Plan:
        """What is best to do for those who report everything, if there are any, and as far as it pays."""
        if any(peer.asked is not None and now - peer.asked.at <= retry for peer in self._peers):
            return Plan()
        wanting = [peer for peer in self._peers if _wants(peer, now, retry)]
        allowance = self.ledger.allowance
        if not wanting or allowance < len(wanting):
            return Plan()
        zones = self._zones(wanting)
        if zones is not None:
            self._batch = FIRST_ASKED
            self.ledger.spent += len(zones)
            return Plan(zones=zones)
        others = sorted((p for p in self._peers if _has_room(p) and p not in wanting), key=lambda p: p.sent_at)
        asked = others[: min(self._batch, allowance // 3)]  # a question, its answer, and the zone that follows
        self._batch = 2 * self._batch
        self.ledger.spent += 2 * len(asked)
        return Plan(questions=asked)

    def _zones(self, wanting: Sequence[Peer]) -> list[tuple[Peer, Area]] | None:
        """The largest zones for these, with all others where they may be; None where they would be too small."""
        tails = list(chain.from_iterable(peer.tail() for peer in self._peers))
        outcome = judge(self._condition, tails)
        if outcome is None:
            return None
        row, motions, at = list(tails), dict[int, Motion](), 0
        places = dict[str, slice]()
        for peer in self._peers:
            places[peer.name] = slice(at, at + peer.width)
            if peer in wanting:
                row[at : at + peer.width] = peer.last
                motions |= {at + n: Motion(peer.pace.step(n), peer.pace.spread(n)) for n in range(peer.width)}
            at += peer.width

        def certain(candidate: Sequence[Range]) -> bool:
            whole = [
                hull(a, b) if place in motions else a for place, (a, b) in enumerate(zip(candidate, tails, strict=True))
            ]
            return self._condition.decide(whole) is outcome

        room = ROOM_FOR_ONE if len(wanting) < len(self._peers) else ROOM_FOR_ALL
        grown = Growth(row, motions, certain, room, self._hints).grown()
        return None if grown is None else [(peer, tuple(grown[places[peer.name]])) for peer in wanting]


def _wants(peer: Peer, now: int, retry: int) -> bool:
    return not peer.full and (peer.exact is not None or peer.zone_is_useless(now, retry))


def _has_room(peer: Peer) -> bool:
    """Whether it may be in a zone of which others could use a part."""
    return peer.linked and not peer.reporting and not all(isinstance(range, Anything) for range in peer.tail())
