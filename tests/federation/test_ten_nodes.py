"""Ten nodes, twelve channels, fifty interests: every sink receives exactly what the reference interpreter says."""

from __future__ import annotations

import random
from typing import Any

from headwater import Interest
from headwater.ir import interp
from tests.effort import EFFORT
from tests.federation.processes import world
from tests.federation.worker import Seen, Tenths

NODES = 10
CHANNELS = 12
INTERESTS = 50
EVENTS = 120  # of each source
ROOMS = ("G12", "G13", "lab", "hall", "attic")

TRANSFORM = "{{ output.badge = input.badge; output.tenth = (long)(input.level * 10.0); return input.level > {level}; }}"
STATEFUL = "{{ static int n = 0; n = n + 1; return n % {step} == 0 && input.level > {level}; }}"


def _interest(pick: random.Random) -> tuple[str | None, str | None]:
    """The text of an interest, and what it makes of events, if anything."""
    level, badge, room = round(pick.random(), 2), pick.randrange(100), pick.choice(ROOMS)
    kind = pick.randrange(10)
    if kind == 0:
        return None, None
    if kind == 1:
        return STATEFUL.format(step=pick.randrange(2, 7), level=level), None
    if kind == 2:
        return TRANSFORM.format(level=level), "tenths"
    texts = [
        f"level > {level}",
        f"level <= {level} and badge >= {badge}",
        f"room == '{room}'",
        f"room == '{room}' or zone == {badge % 7}",
        f"zone is null and level < {level}",
        f"badge % {badge % 5 + 2} == 1 and not (level > {level})",
        f"zone > {badge % 5} and room != '{room}'",
    ]
    return pick.choice(texts), None


def _event(pick: random.Random) -> dict[str, Any]:
    return {
        "badge": pick.randrange(100),
        "level": pick.randrange(1000) / 1000,
        "room": pick.choice(ROOMS),
        "zone": None if pick.random() < 0.2 else pick.randrange(7),
    }


def _expected(where: str | None, output: str | None, events: list[dict[str, Any]]) -> list[list[Any]]:
    """Number and fields of what a sink gets of a source that publishes these events."""
    if where is None:
        return [[seq, event] for seq, event in enumerate(events, 1)]
    interest = Interest(where, Seen, output=None if output is None else Tenths)
    state = interp.initial_state(interest.program) if interest.program.stateful else None
    made = []
    for seq, event in enumerate(events, 1):
        outcome = interest.interpret(event, state=state)
        if outcome.passed:
            made.append([seq, event if output is None else outcome.output])
    return made


def test_ten_nodes_twelve_channels_fifty_interests() -> None:
    pick = random.Random(4)
    names = [f"node{number}" for number in range(NODES)]
    channels = [f"world.c{number}" for number in range(CHANNELS)]
    sources = {f"s{number}": (pick.choice(names), channels[number % CHANNELS]) for number in range(18)}
    sinks = {f"k{number}": (pick.choice(names), pick.choice(channels), *_interest(pick)) for number in range(INTERESTS)}
    events = {name: [_event(pick) for _ in range(EVENTS * min(EFFORT, 20))] for name in sources}
    with world() as made:
        for name in names:
            made.start(name)
        made.open(names[0])
        made.open(*names[1:], seeds=names[:1])
        for name in names:
            for channel in channels:
                made[name]("channel", name=channel, type="seen")
        for source, (name, channel) in sources.items():
            made[name]("source", channel=channel, name=source)
        for sink, (name, channel, where, output) in sinks.items():
            made[name]("subscribe", channel=channel, name=sink, where=where, output=output)
        for name in names:
            for channel in channels:
                there = [f"{source}@{of}" for source, (of, on) in sources.items() if on == channel and of != name]
                assert made[name]("sees", channel=channel, sources=there) is True
        for name in names:
            made[name].start("ready")
        for name in names:
            assert made[name].answer() is True
        for number, (source, (name, _)) in enumerate(sources.items()):
            made[name].start("publish", source=source, events=events[source], many=number % 3 == 0)
            assert made[name].answer() == len(events[source])
        for name in names:
            assert made[name]("flush") is True
        for sink, (name, channel, where, output) in sinks.items():
            got: dict[str, list[list[Any]]] = {}
            for source, seq, fields in made[name]("rows", name=sink):
                got.setdefault(source, []).append([seq, fields])
            expected = {
                source: rows
                for source, (_, on) in sources.items()
                if on == channel and (rows := _expected(where, output, events[source]))
            }
            assert got == expected, f"{sink} of {channel} at {name}: {where}"
