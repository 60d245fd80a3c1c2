"""Mistakes that a type checker must find, before a program runs.

Each line with `type: ignore` is wrong, and mypy and pyright both say so: a comment of that kind where nothing is wrong
is itself an error to both (`warn_unused_ignores`, `reportUnnecessaryTypeIgnoreComment`). Nothing here is ever run.
"""

from __future__ import annotations

from headwater import About, Channel, Event, Interest, Node, Source, Subscription, f32, u32
from headwater.correlation import Match, all_of, on
from headwater.dispatch import Pool


class Badge(Event):
    badge: u32
    level: f32


class Alarm(Event):
    text: str


def of_alarm(event: Alarm) -> None: ...


def of_alarm_and_about(event: Alarm, about: About) -> None: ...


def of_badge_and_text(event: Badge, more: str) -> None: ...


async def of_alarm_later(event: Alarm) -> None: ...


def of_match(match: Match) -> None: ...


def events(badge: Badge) -> None:
    Badge(badge="seven", level=0.5)  # type: ignore[arg-type]
    Badge(badge=7)  # type: ignore[call-arg]
    badge.level = 0.5  # type: ignore[misc]
    badge.text  # type: ignore[attr-defined]  # noqa: B018


def sources(badges: Channel[Badge], source: Source[Badge]) -> None:
    source.publish(Alarm(text="fire"))  # type: ignore[arg-type]
    source.publish("badge")  # type: ignore[arg-type]
    source.send(7)  # type: ignore[arg-type,unused-coroutine]
    badges.source().publish(Alarm(text="fire"))  # type: ignore[arg-type]
    alarms: Source[Alarm] = badges.source()  # type: ignore[assignment]
    badges.source(type=Alarm).publish(Badge(badge=7, level=0.5))  # type: ignore[arg-type]
    badges.source(prioritiy=3)  # type: ignore[call-overload]
    assert alarms


def handlers(node: Node, badges: Channel[Badge]) -> None:
    badges.subscribe(of_alarm)  # type: ignore[arg-type]
    badges.subscribe(of_alarm_and_about, "level > 0.5")  # type: ignore[arg-type]
    badges.subscribe(of_alarm_later)  # type: ignore[arg-type]
    badges.subscribe(of_badge_and_text)  # type: ignore[arg-type]
    badges.subscribe("level > 0.5", of_alarm)  # type: ignore[arg-type]
    badges.subscribe(print, dispatch=7)  # type: ignore[call-overload]
    badges.subscribe(print, prioritiy=3)  # type: ignore[call-overload]
    badges.subscribe(print, type=Alarm, dispatch=Pool())
    badges.subscribe(of_match)  # type: ignore[arg-type]
    node.correlate(all_of(on(badges)), of_alarm)  # type: ignore[arg-type]
    node.subscribe("ie.tcd.*", of_alarm, type=Badge)  # type: ignore[arg-type]


def interests(badges: Channel[Badge]) -> None:
    loud, fires = Interest("level > 0.5", Badge), Interest("{ return 1; }", Badge, output=Alarm)
    badges.subscribe(loud).get().text  # type: ignore[attr-defined]  # noqa: B018
    badges.subscribe(where=fires).get().level  # type: ignore[attr-defined]  # noqa: B018
    badges.subscribe(print, of_alarm)  # type: ignore[arg-type]
    # mypy does not look into these
    badges.subscribe(print, lambda e: e.text == "fire")  # pyright: ignore
    badges.derive("ie.tcd.loud", lambda e: e.text == "fire")  # pyright: ignore


def pulled(badges: Channel[Badge]) -> None:
    waiting = badges.subscribe("level > 0.5")
    waiting.get().text  # type: ignore[attr-defined]  # noqa: B018
    waiting.get(timeout=1.0).level  # type: ignore[union-attr]  # noqa: B018
    waiting.poll().level  # type: ignore[union-attr]  # noqa: B018
    for event in waiting:
        event.text  # type: ignore[attr-defined]  # noqa: B018
    alarms: Subscription[Alarm] = waiting  # type: ignore[assignment]
    assert alarms


async def received(badges: Channel[Badge]) -> None:
    waiting = badges.subscribe()
    (await waiting.receive()).text  # type: ignore[attr-defined]  # noqa: B018
    async for event in waiting:
        event.text  # type: ignore[attr-defined]  # noqa: B018


def derived(badges: Channel[Badge]) -> None:
    alarms = badges.derive("ie.tcd.alarm", "{ return 1; }", output=Alarm)
    alarms.subscribe(lambda alarm: alarm.level)  # type: ignore[attr-defined]
    badges.derive("ie.tcd.loud", "level > 0.5").subscribe(of_alarm)  # type: ignore[arg-type]
