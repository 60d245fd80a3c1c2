"""What the home of a trigger knows of one owner: its timeline, the zones that it may be in, what it was asked.

An owner that has said nothing may be where it was last, or inside any zone that was sent to it since: which of these it
has got, only its next message tells. The area that holds all of them is what others are weighed against, so that a
zone that grows needs no answer, and one that shrinks leaves room to others only when the owner has answered.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

from headwater.objects.zones.messages import Alive, Answer, Ask, FromOwner, Moves, Report, Standing, Zone
from headwater.objects.zones.ranges import ANYTHING, Area, exactly, holds_values, hull_of, is_exact, values_of
from headwater.objects.zones.timeline import Segment, Timeline

MAX_EARLY = 256  # reports that came before an earlier one
MAX_ZONES = 8  # on their way to one owner at a time


class Asked(msgspec.Struct, frozen=True):
    """A question that has no answer yet, and when it was put."""

    since: int
    through: int
    at: int
    epoch: int


class Peer:
    """One owner, as far as the trigger's home knows. `known` are the times since when it is."""

    def __init__(self, name: str, width: int, start: int, now: int) -> None:
        self.name = name
        self.width = width
        self.timeline = Timeline(start, (ANYTHING,) * width)
        self.linked = False  # whether it has answered in this term
        self.life = 0
        self.asked: Asked | None = None
        self.missing_since: int | None = None  # when it was first seen that something had not come
        self.heard_at = now  # when there was news of it last
        self.epoch = 0  # the last one given
        self.sent_at = now  # when the last zone was sent
        self.moves = Moves(0, (0.0,) * width)
        self.pace = Pace(width)
        self._tail: Area | None = None  # computed when it is needed
        self._area: Area = (ANYTHING,) * width  # of its values when it was last heard of
        self._silent = False
        self._stated = 0  # the epoch of which it spoke last
        self._count = 0
        self._early: dict[int, Report] = {}
        self._zones: dict[int, Area] = {}

    # ── what is known ──

    @property
    def heard(self) -> int:
        """Through when it is known."""
        return self.timeline.heard

    def tail(self) -> Area:
        """Where its values are after what has been heard, as far as nothing is on its way."""
        if self._tail is None:
            self._tail = self._where()
        return self._tail

    def _where(self) -> Area:
        base = self._zones.get(self._stated, self._area) if self._silent else self._area
        later = [area for epoch, area in self._zones.items() if epoch > self._stated]
        return hull_of((base, *later)) if later else base

    @property
    def last(self) -> Area:
        """Where its values were when it was last heard of."""
        return self._area

    def at(self, time: int) -> Segment | None:
        """What is known of a time; None: nothing yet."""
        return self.timeline.at(time) if time <= self.timeline.heard else None

    @property
    def exact(self) -> Area | None:
        """Its values, if it reports everything and no zone is on its way in which it might be silent."""
        return self._area if self.reporting and is_exact(self._area) else None

    @property
    def reporting(self) -> bool:
        """Whether it is known to report every change."""
        return self.linked and not self._silent and not any(epoch > self._stated for epoch in self._zones)

    @property
    def zone(self) -> Area | None:
        """The last zone it was given, unless that was withdrawn."""
        return self._zones.get(self.epoch)

    def zone_is_useless(self, now: int, retry: int) -> bool:
        """Whether it still reports although it was given a zone: the zone was lost, or it was outside already."""
        if self._silent or not self._zones or self._stated >= self.epoch or not is_exact(self._area):
            return False
        inside = holds_values(self._zones[self.epoch], values_of(self._area)) if self.epoch in self._zones else False
        return not inside or now - self.sent_at > retry

    @property
    def full(self) -> bool:
        """Whether so many zones are on their way to it that it gets no other before it says which one it has."""
        return len(self._zones) >= MAX_ZONES

    # ── what is sent to it ──

    def give(self, term: int, area: Area, now: int) -> Zone:
        """The next zone; until it speaks of it, it may be in this one or in those before."""
        self.epoch += 1
        self.sent_at = now
        self._zones[self.epoch] = area
        self._tail = None
        return Zone(term, self.epoch, area)

    def ask(self, term: int, since: int, through: int, now: int) -> Ask:
        """Its values since then, and to report everything from now on."""
        if self.asked is None or self.asked.epoch <= self._stated or self.epoch != self.asked.epoch:
            self.epoch += 1
        since = min(since, self.heard + 1)
        self.asked = Asked(since, through, now, self.epoch)
        return Ask(term, self.epoch, since, through)

    # ── what it says ──

    def received(self, message: FromOwner, term: int, now: int) -> int | None:
        """Take up what it says; the first time of which something is known now that was not expected. One that is after
        all that has been heard: only that time passed. None: nothing is new."""
        standing = message.standing
        if standing.term != term or standing.life < self.life or not self._well_formed(message):
            self._missing(now, standing.life >= self.life)
            return None
        heard = self.heard
        match message:
            case Answer():
                news = self._answered(message)
            case Report():
                news = self._reported(message)
            case Alive():
                news = self._lives(standing)
        if self.heard > heard:
            self.heard_at = now
        self._missing(now, bool(self._early) or standing.life != self.life or standing.count > self._count)
        return news

    def _well_formed(self, message: FromOwner) -> bool:
        """Whether it speaks of as many values as there are, in the order of time."""
        if isinstance(message, Report):
            return len(message.values) == self.width
        if isinstance(message, Answer):
            items = message.items
            in_order = all(a.start < b.start for a, b in pairwise(items))
            return bool(items) and in_order and all(len(item.area) == self.width for item in items)
        return True

    def _missing(self, now: int, missing: bool) -> None:
        self.missing_since = (self.missing_since or now) if missing else None

    def _answered(self, message: Answer) -> int | None:
        """Where it does not reach back to what had been heard, the owner has forgotten what was between."""
        standing, since = message.standing, message.since
        newest = not self.linked or standing.stamp >= self.heard
        if standing.life > self.life:
            if self.linked:
                since = max(since, self.heard + 1)
                if standing.stamp < since:
                    return None
            self.life, self._count, self.moves = standing.life, standing.count, message.moves
            self._early.clear()
        if since > self.heard + 1:
            self.timeline.extend(since - 1, (ANYTHING,) * self.width, final=True)
        through, unchanged = standing.stamp, self._unchanged_since(standing)
        self.timeline.refine(since, max(through, self.heard) if unchanged else through, message.items)
        self._settle(message)
        if newest or unchanged:
            self.linked = True
            self._count = max(self._count, standing.count)
            self._stand(standing, message.items[-1].area)
            self._moved(message.moves, self.heard)
        self._early = {count: early for count, early in self._early.items() if count > self._count}
        self._drain()
        return min(since, message.since)

    def _unchanged_since(self, standing: Standing) -> bool:
        """Whether it reported everything all the time since then, and there was nothing."""
        reports = not standing.silent and not self._silent
        return self.linked and reports and standing.count == self._count and standing.epoch == self._stated

    def _settle(self, answer: Answer) -> None:
        asked, standing = self.asked, answer.standing
        if asked is None or standing.epoch < asked.epoch or standing.stamp < asked.through:
            return
        if answer.since <= max(asked.since, standing.life):
            self.asked = None

    def _reported(self, message: Report) -> int | None:
        standing = message.standing
        if self.linked and (standing.count <= self._count or standing.life != self.life):
            return None
        if len(self._early) < MAX_EARLY:
            self._early[standing.count] = message
        return self._drain()

    def _drain(self) -> int | None:
        """Reports one after the other, as far as none is missing: the time of the first."""
        first = None
        while self.linked and (message := self._early.pop(self._count + 1, None)) is not None:
            standing, area = message.standing, exactly(message.values)
            if standing.stamp > self.heard:
                self._pass(standing, standing.stamp - 1)
                self.timeline.change(standing.stamp, area, event=message.event)
                self._stand(standing, area)
                self._moved(message.moves, standing.stamp)
            self._count += 1
            first = standing.stamp if first is None else first
        return first

    def _lives(self, standing: Standing) -> int | None:
        """Nothing but that time passed, if no report is missing."""
        if not self.linked or standing.life != self.life or standing.count != self._count:
            return None
        if standing.stamp <= self.heard:
            return None
        news = standing.stamp if standing.epoch == self._stated else min(standing.entered, standing.stamp)
        self._stand(standing, self._pass(standing, standing.stamp))
        return news + 1

    def _pass(self, standing: Standing, through: int) -> Area:
        """Time passed without a report; where it is in the end."""
        if standing.epoch > self._stated and self.heard < standing.entered:
            self.timeline.extend(min(standing.entered, through), self._meanwhile(standing.epoch - 1))
        area = self._meanwhile(standing.epoch)
        self.timeline.extend(through, area)
        return area

    def _meanwhile(self, reached: int) -> Area:
        """Where it can have been since it was last heard of, with zones up to this epoch."""
        base = self._zones.get(self._stated, self._area) if self._silent else self._area
        entered = [area for epoch, area in self._zones.items() if self._stated < epoch <= reached]
        return hull_of((base, *entered)) if entered else base

    def _stand(self, standing: Standing, area: Area) -> None:
        self._silent, self._stated, self._area = standing.silent, standing.epoch, area
        self._zones = {epoch: zone for epoch, zone in self._zones.items() if epoch >= standing.epoch}
        if standing.silent and standing.epoch in self._zones:
            self._area = self._zones[standing.epoch]
        self._tail = None

    def _moved(self, moves: Moves, stamp: int) -> None:
        if len(moves.squares) == self.width:
            self.pace.moved(self.moves, moves, stamp)
            self.moves = moves


HALF_LIFE = 4  # messages after which what was observed before counts half


class Pace:
    """How fast an owner's values change: steps that were observed, the last ones counting most."""

    def __init__(self, width: int) -> None:
        self._changes = 0.0
        self._time = 0.0
        self._squares = [0.0] * width
        self._last: int | None = None

    def moved(self, before: Moves, after: Moves, stamp: int) -> None:
        """What happened between two messages."""
        last, self._last = self._last, stamp
        if last is None or stamp <= last or after.changes < before.changes:
            return
        weight = 0.5 ** (1 / HALF_LIFE)
        self._time = self._time * weight + (stamp - last)
        self._changes = self._changes * weight + (after.changes - before.changes)
        for at, (old, new) in enumerate(zip(before.squares, after.squares, strict=True)):
            self._squares[at] = self._squares[at] * weight + max(0.0, new - old)

    def step(self, at: int) -> float:
        """How far a value goes in one change."""
        return float((self._squares[at] / self._changes) ** 0.5) if self._changes else 0.0

    def spread(self, at: int) -> float:
        """How far it comes in a unit of time."""
        return float((self._squares[at] / self._time) ** 0.5) if self._time else 0.0

    @property
    def rate(self) -> float:
        """Changes in a unit of time."""
        return self._changes / self._time if self._time else 0.0
