"""An owner's side: silent inside its zone, and outside of it every change is reported until there is a new zone.

It remembers its last changes, so that it can say afterwards what its values were at a time. Older ones are put together
to a range that holds them all: it can always answer, if less exactly.

To be persisted: `snapshot()`, after every message that came, and with every change that is reported, in the
transaction of the change itself; and before anything is sent. Changes inside the zone need not be: after a crash it is
certain that there were no others.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence

import msgspec

from headwater.objects.zones.messages import Alive, Answer, Ask, FromOwner, Item, Moves, Report, Standing, ToOwner, Zone
from headwater.objects.zones.ranges import (
    ANYTHING,
    Area,
    Value,
    exactly,
    holds_values,
    hull_of,
    is_exact,
    is_number,
    same,
)
from headwater.objects.zones.stamps import Stamps

LARGEST = 1e300  # of what steps add up to
MAX_ITEMS = 256  # changes that are remembered one by one


class OwnerState(msgspec.Struct, frozen=True):
    """What of an owner survives."""

    life: int
    count: int
    term: int
    epoch: int
    zone: Area | None
    silent: bool
    entered: int
    last: int
    values: tuple[Value, ...]
    items: tuple[Item, ...]
    moves: Moves


class Owner:
    """One owner's part of one trigger; its life begins when it is first watched, with the values of then.

    `each`: the trigger wants every event, so that a change to the same values counts too. `error`: how far the clock
    may be from the true time, as stated.
    """

    def __init__(self, values: Sequence[Value], now: int, *, error: int = 0, each: bool = False) -> None:
        self.values = tuple(values)
        self.each = each
        self._stamps = Stamps(now, error)
        self._life = now
        self._count = self._term = self._epoch = 0
        self._zone: Area | None = None
        self._silent = False
        self._entered = now
        self._items = deque([Item(now, exactly(values), event=False)])
        self._changes = 0
        self._squares = [0.0] * len(self.values)

    # ── what survives ──

    def snapshot(self) -> OwnerState:
        """What has to be persisted with the messages."""
        return OwnerState(
            life=self._life,
            count=self._count,
            term=self._term,
            epoch=self._epoch,
            zone=self._zone,
            silent=self._silent,
            entered=self._entered,
            last=self._stamps.last,
            values=self.values,
            items=tuple(self._items),
            moves=self._moves(),
        )

    @classmethod
    def restore(
        cls, state: OwnerState, values: Sequence[Value], now: int, *, error: int = 0, each: bool = False
    ) -> Owner:
        """After a crash, with the values as they are. Since the snapshot it did not leave its zone, or that would be
        in it; promises may have been made since then, by a clock that was wrong by as much the other way."""
        self = cls(values, now, error=error, each=each)
        self._life, self._count, self._term = state.life, state.count, state.term
        self._epoch, self._zone, self._silent = state.epoch, state.zone, state.silent
        self._entered = state.entered
        self._stamps.last = max(state.last, now + 2 * error)
        self._items = deque(state.items)
        meant = state.zone if state.silent and state.zone is not None else exactly(state.values)
        if not holds_values(meant, self.values):  # not persisted as asked: nothing is claimed
            meant = (ANYTHING,) * len(self.values)
            self._silent = False
            self._count += 1  # that something is missing will be seen, and asked for
        unsure = not is_exact(meant)
        self._remember(Item(state.last + 1, meant, event=unsure, merged=unsure))
        self._stamps.last = max(self._stamps.last, state.last + 2)
        self._remember(Item(self._stamps.last, exactly(self.values), event=False))
        self._changes, self._squares = state.moves.changes, list(state.moves.squares)
        return self

    def copy(self) -> Owner:
        """Another one that has been through the same, to be changed where this may have to be put back."""
        made = copy.copy(self)
        made._stamps = copy.copy(self._stamps)
        made._items = self._items.copy()
        made._squares = self._squares.copy()
        return made

    # ── what happens to it ──

    def changed(self, values: Sequence[Value], now: int, *, event: bool = True) -> list[FromOwner]:
        """The values are these from now on; plain updates are changes too, only no `event`."""
        before, self.values = self.values, tuple(values)
        if not self.each and all(map(same, before, self.values)):
            return []
        stamp = self._stamps.change(now)
        self._changes += 1
        for at, (old, new) in enumerate(zip(before, self.values, strict=True)):
            self._squares[at] = min(self._squares[at] + _square(old, new), LARGEST)
        self._remember(Item(stamp, exactly(self.values), event=event))
        if self._silent and self._zone is not None and holds_values(self._zone, self.values):
            return []
        self._silent = False
        self._count += 1
        return [Report(self._standing(stamp), self.values, event, self._moves())]

    def received(self, message: ToOwner, now: int) -> list[FromOwner]:
        """A message of the trigger's home."""
        if message.term < self._term:
            return []
        if isinstance(message, Zone):
            return self._given(message, now)
        return [self._asked(message, now)]

    def alive(self, now: int) -> Alive:
        """What the link's next heartbeat says of this owner."""
        return Alive(self._standing(self._stamps.promise(now)))

    @property
    def stamp(self) -> int:
        """Of the last change, or later: through when it has promised to be done."""
        return self._stamps.last

    @property
    def silent(self) -> bool:
        """Whether it is inside its zone."""
        return self._silent

    @property
    def zone(self) -> Area | None:
        """The zone that was given last, if it was not withdrawn."""
        return self._zone

    def _given(self, message: Zone, now: int) -> list[FromOwner]:
        """Go by a new zone. One of another life of the trigger's home than it was asked by is for nobody."""
        if message.term != self._term or message.epoch <= self._epoch or len(message.area) != len(self.values):
            return []
        was_silent = self._silent
        self._zone, self._epoch, self._entered = message.area, message.epoch, self._stamps.promise(now)
        self._silent = holds_values(message.area, self.values)
        if self._silent or not was_silent:
            return []  # outside as before: all is reported already
        self._count += 1
        stamp = self._stamps.change(now)
        self._remember(Item(stamp, exactly(self.values), event=False))
        return [Report(self._standing(stamp), self.values, False, self._moves())]

    def _asked(self, message: Ask, now: int) -> Answer:
        if message.term > self._term or message.epoch > self._epoch:
            self._term, self._epoch = message.term, message.epoch
            self._zone, self._silent, self._entered = None, False, self._stamps.promise(now)
        stamp = self._stamps.promise(now, message.through)
        since = max(message.since, self._life)
        return Answer(self._standing(stamp), since, self._since(since), self._moves())

    # ── what it remembers ──

    def _remember(self, item: Item) -> None:
        items = self._items
        items.append(item)
        if len(items) > MAX_ITEMS:
            first, second = items.popleft(), items.popleft()
            area = hull_of((first.area, second.area))
            items.appendleft(Item(first.start, area, event=first.event or second.event, merged=True))

    def _since(self, since: int) -> tuple[Item, ...]:
        """What was in force at that time, and all that followed."""
        items = list(self._items)
        first = max((at for at, item in enumerate(items) if item.start <= since), default=0)
        return tuple(items[first:])

    def _standing(self, stamp: int) -> Standing:
        return Standing(self._life, self._count, self._term, self._epoch, self._silent, self._entered, stamp)

    def _moves(self) -> Moves:
        return Moves(self._changes, tuple(self._squares))


def _square(old: Value, new: Value) -> float:
    """How much a value moved; of what is no number, whether it did."""
    if is_number(old) and is_number(new):
        step = float(new) - float(old)  # type: ignore[arg-type]
        return min(step * step, LARGEST)
    return 0.0 if same(old, new) else 1.0
