"""The holder's side of a replica, as values and rules only: what it has, and as of when that is known to be so.

It is fed with pages (what others were told before) and with events (what is told from before the pages were read on),
whole turns at a time, and with times through which the owner has told everything. Nothing it says of a time is a guess:
what does not follow on what came before, or is over, breaks it, and another copy has to be made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headwater.objects.replicas.bounds import Raw
from headwater.objects.replicas.tracker import FOREVER, Told, Tracker

if TYPE_CHECKING:
    from headwater.objects.replicas.spec import ReplicaSpec
    from headwater.types import EventType


MOST_KEPT = 20_000  # objects, and what is on its way to be: an owner that means well has no more than half of it


class Line(NamedTuple):
    """What an event tells of an object; no record: it is no more."""

    object: str
    record: bytes | None
    still: bool
    at: int
    turn: int
    after: int
    more: int


class Copy:
    """Of one replica, from one source. Who shares it among threads sees to it that one at a time is here."""

    def __init__(self, spec: ReplicaSpec, form: EventType) -> None:
        self._tracker = Tracker(spec, form)
        self._form = form
        self.told: dict[str, Told] = self._tracker.told
        self._gone: dict[str, int] | None = {}  # until pages are read: the turns in which objects were destroyed
        self._turn: list[Line] = []  # lines of a turn that is not complete
        self._last: int | None = None  # the last turn that came
        self._floor = 0  # before that the pages are not of one moment
        self._known = 0  # through when everything came
        self.broken = ""  # why it cannot go on

    # ── in ──

    def page(self, rows: list[tuple[str, bytes, int, int, bool]]) -> None:
        """What others were told of some objects, before this: path, record, time, turn, and whether it stays so."""
        assert self._gone is not None
        for object, record, at, turn, still in rows:
            self._floor = max(self._floor, at)
            known = self.told.get(object)
            if len(self.told) >= MOST_KEPT:
                self._too_many()
                return
            if turn > max(-1 if known is None else known.turn, self._gone.get(object, -1)):
                self._put(object, record, at, turn, still)

    def finished(self) -> None:
        """All pages came; they were read after the first event could have come."""
        self._gone = None

    @property
    def complete(self) -> bool:
        """Whether all pages came."""
        return self._gone is None

    def line(self, line: Line) -> None:
        """An event of the replica. Turns are taken as a whole."""
        if self.broken:
            return
        if not line.object:
            self.broken = "its owner has ended it: nobody had said for long that it is held, or it has too many objects"
            return
        before = self._turn[-1] if self._turn else None
        if before is None:
            if self._last is not None and line.after != self._last:
                self.broken = f"expected what was told after turn {self._last:,}, found what follows {line.after:,}"
                return
        elif (line.turn, line.more) != (before.turn, before.more - 1):
            self.broken = f"expected {before.more:,} more of turn {before.turn:,}, found another"
            return
        self._turn.append(line)
        if len(self._turn) + len(self.told) > MOST_KEPT:
            self._too_many()
        if line.more:
            return
        turn, self._turn = self._turn, []
        for each in turn:
            self._take(each)
        self._last, self._known = line.turn, max(self._known, line.at)

    def _take(self, line: Line) -> None:
        known = self.told.get(line.object)
        if known is not None and known.turn >= line.turn:
            return  # a page had it
        if line.record is not None:
            self._put(line.object, line.record, line.at, line.turn, line.still)
            return
        self.told.pop(line.object, None)
        if self._gone is not None:
            self._gone[line.object] = line.turn

    def _too_many(self) -> None:
        self.broken, self._turn = f"expected at most {MOST_KEPT:,} objects, found more", []

    def _put(self, object: str, record: bytes, at: int, turn: int, still: bool) -> None:
        self.told[object] = Told(record, self._form.decode_raw(record), at, turn, still, FOREVER)

    def come_to(self, time: int) -> None:
        """The owner has told everything through this time, and all of it came."""
        if not self._turn and not self.broken:
            self._known = max(self._known, time)

    # ── out ──

    @property
    def as_of(self) -> int | None:
        """At this time, by the owner's clock, every object was as near to what is here as the bounds say, and there
        were no others; None while that is not known of any time."""
        return self._known if self._gone is None and self._known >= self._floor and self._known else None

    def value(self, object: str, at: int) -> Raw | None:
        """What an object is taken for at a time, as the model has it; None if it is not there."""
        told = self.told.get(object)
        return None if told is None else self._tracker.value(told, at)


__all__ = ["MOST_KEPT", "Copy", "Line"]
