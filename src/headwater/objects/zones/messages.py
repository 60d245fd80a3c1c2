"""What owners and the home of a trigger say to each other, and what its home says to those who wait for it.

Each message can be lost, doubled, delayed or overtaken. To the owner: messages of an older `term` (life of the home) or
`epoch` (each zone and each withdrawal has the next number) come too late and change nothing. To the home: reports are
numbered, every message says how many there were, and what is missing is asked for.
"""

from __future__ import annotations

import msgspec

from headwater.objects.zones.ranges import Area, Value


class Zone(msgspec.Struct, frozen=True, array_like=True, tag="zone"):
    """To an owner: inside this area, be silent."""

    term: int
    epoch: int
    area: Area


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """To an owner: what were your values since then? An epoch that is newer than its zone's withdraws the zone."""

    term: int
    epoch: int
    since: int
    through: int  # a time that the answer should reach, by the clock of another owner


class Moves(msgspec.Struct, frozen=True, array_like=True):
    """How much an owner's values changed in all: of that its room depends."""

    changes: int
    squares: tuple[float, ...]  # of the steps of each value, summed; of what is no number, how often it changed


class Item(msgspec.Struct, frozen=True, array_like=True):
    """From `start` on, the values were in this area. `event`: the change was one; `merged`: it stands for several."""

    start: int
    area: Area
    event: bool = True
    merged: bool = False


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """Where an owner stands: `count` reports were made since its `life` began, and nothing of up to `stamp` will
    follow. `silent`: it is inside the zone of this epoch, which it goes by since after `entered`; else it reports
    everything."""

    life: int
    count: int
    term: int
    epoch: int
    silent: bool
    entered: int
    stamp: int


class Report(msgspec.Struct, frozen=True, array_like=True, tag="report"):
    """From an owner that is outside its zone, or has none: its values changed."""

    standing: Standing
    values: tuple[Value, ...]
    event: bool
    moves: Moves


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """From an owner that was asked: all since `since`, as exactly as it knows it."""

    standing: Standing
    since: int
    items: tuple[Item, ...]
    moves: Moves


class Alive(msgspec.Struct, frozen=True, array_like=True, tag="alive"):
    """What the heartbeats of a link carry anyway, for every owner behind it."""

    standing: Standing


ToOwner = Zone | Ask
FromOwner = Report | Answer | Alive


class Fired(msgspec.Struct, frozen=True, tag="fired"):
    """The condition became true (or, of an `each`-trigger, held at an event) at `time` by the owners' clocks, which may
    be wrong by `error`. After a time that was unknown: at some time from `earliest` on. `late`: its time had been
    declared unknown before."""

    time: int
    earliest: int
    error: int
    area: tuple[Area, ...]
    late: bool


class Unknown(msgspec.Struct, frozen=True, tag="unknown"):
    """From `since` on, nothing can be said; `why` names whom nothing is heard of."""

    since: int
    why: str


class Known(msgspec.Struct, frozen=True, tag="known"):
    """Nothing is known of the time from `unknown_since` until before `since`; from then on, all. Where both are equal,
    what was declared unknown has been decided after all."""

    unknown_since: int
    since: int
    holds: bool


Happening = Fired | Unknown | Known


class Effects(msgspec.Struct):
    """What came of an input: to be persisted with the snapshot first, then sent and told."""

    messages: list[tuple[str, ToOwner]] = msgspec.field(default_factory=list)
    happenings: list[Happening] = msgspec.field(default_factory=list)
