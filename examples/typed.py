"""Typed events: a type checker knows what a channel carries, what its sources take and what its handlers get.

`mypy` and `pyright` are run over this file, so every `assert_type` holds; what they must refuse is in `tests/typed`.
"""

from __future__ import annotations

import asyncio
from typing import assert_type

from headwater import About, Channel, Event, Interest, Node, Source, Subscription, f32, u32
from headwater.correlation import Match, all_of, on


class Badge(Event):
    badge: u32
    level: f32


class Alarm(Event):
    badge: u32
    text: str


class Quiet(Event):
    text: str


seen: list[str] = []


def note(event: Badge) -> None:
    seen.append(f"badge {event.badge} at {event.level:.1f}")


def note_with_source(event: Badge, about: About) -> None:
    seen.append(f"event {about.seq} of {about.source}")


def count(badges: Subscription[Badge]) -> int:
    """Functions say what they want: a subscription to badges, not to anything."""
    return sum(event.badge for event in badges)


def hand_over(node: Node) -> None:
    badges = node.channel("ie.tcd.badge", Badge)
    assert_type(badges, Channel[Badge])

    badges.subscribe(note, "level > 0.5")
    badges.subscribe(note_with_source, lambda e: e.level > 0.5)
    badges.subscribe("level > 0.5", lambda event: seen.append(f"level {event.level:.1f}"))

    # What is computed at the source is of the class that `output` names.
    alarms = badges.derive(
        "ie.tcd.alarm", '{ output.badge = input.badge; output.text = "here"; return 1; }', output=Alarm
    )
    assert_type(alarms, Channel[Alarm])
    alarms.subscribe(lambda alarm: seen.append(f"alarm: {alarm.text}"))
    assert_type(badges.derive("ie.tcd.loud", "level > 0.5"), Channel[Badge])

    # So does an interest as a value: a filter passes events on as they are, a transformation makes others.
    loud, quiet = (
        Interest("level > 0.5", Badge),
        Interest('{ output.text = "quiet"; return input.level < 0.5; }', Badge, output=Quiet),
    )
    assert_type(badges.subscribe(loud), Subscription[Badge])
    assert_type(badges.subscribe(where=quiet), Subscription[Quiet])
    assert_type(badges.derive("ie.tcd.quiet", quiet), Channel[Quiet])

    with badges.source("hall") as source:
        publish(source)


def publish(source: Source[Badge]) -> None:
    source.publish(Badge(badge=7, level=0.75))
    source.publish(badge=8, level=0.25)  # fields by name, and a dict, are looked at when it runs
    source.publish({"badge": 9, "level": 0.75})


def pull(node: Node) -> None:
    badges = node.channel("ie.tcd.badge", Badge)
    waiting, pairs = badges.subscribe("level > 0.5"), badges.subscribe(about=True)
    assert_type(waiting, Subscription[Badge])
    publish(badges.source("stairs"))
    assert_type(waiting.get(), Badge)
    assert_type(waiting.get(timeout=0), Badge | None)
    assert_type(waiting.poll(), Badge | None)
    waiting.cancel()
    print("left:", count(waiting))

    event, about = pairs.get()
    assert_type(event, Badge)
    assert_type(about, About)
    print(f"event {about.seq} of {about.source}: badge {event.badge}")

    # A sink may want a class of its own; a declaration as text is known only when it runs.
    assert_type(node.subscribe("ie.tcd.badge", type=Badge), Subscription[Badge])
    matches = node.correlate(all_of(on(badges, name="badge"), on("ie.tcd.alarm", name="alarm")))
    assert_type(matches.poll(), Match | None)


async def pull_in_a_coroutine(node: Node) -> None:
    badges = node.channel("ie.tcd.badge", Badge)
    waiting = badges.subscribe()
    source = badges.source("roof")
    for number in range(4):
        await source.send(Badge(badge=number, level=0.5))
    assert_type(await waiting.receive(), Badge)
    assert_type(await waiting.receive(timeout=0.0), Badge | None)
    waiting.cancel()
    async for event in waiting:
        assert_type(event, Badge)
        print(f"pulled: badge {event.badge}")


def main() -> None:
    with Node("lab") as node:
        hand_over(node)
        print("\n".join(seen))
        pull(node)
        asyncio.run(pull_in_a_coroutine(node))


if __name__ == "__main__":
    main()
