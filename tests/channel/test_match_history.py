"""Patterns that begin with the past: what is taken of it, and that nothing comes twice."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headwater import Config, Node
from headwater.testing import ManualClock
from tests.federation.nodes import GUARD, nodes

X = "k: u32, n: u32"
PAIR = "a: x{k = 1} -> b: x{k = 2} within 1 hour measures a.n as first, b.n as second"
KEPT = Config(history=1_000)


def pairs(watch: Any) -> list[tuple[int, int, bool]]:
    """What was found: first, second, and whether that is sure."""
    found = []
    while (event := watch.poll()) is not None:
        found.append((event.first, event.second, not event.match.uncertain))
    return sorted(found)


@pytest.mark.parametrize("logged", [False, True], ids=["in memory", "in a log"])
def test_matches_of_the_past_and_across_the_beginning_come_once(logged: bool, tmp_path: Path) -> None:
    clock = ManualClock()
    options: dict[str, Any] = {"log": tmp_path / "logs"} if logged else {"config": KEPT}
    with Node("lab", clock=clock, **options) as node:
        channel = node.channel("x", X)
        one, other = channel.source("one"), channel.source("other")
        for n, (source, k) in enumerate(((one, 1), (other, 2), (one, 7), (one, 1), (other, 1)), 1):
            source.publish(k=k, n=n)
            clock.advance(1)
        every, last, none = (node.match(PAIR, history=history) for history in ("all", 2, 0))
        other.publish(k=2, n=6)
        clock.advance(1)
        one.publish(k=1, n=7)
        other.publish(k=2, n=8)
        clock.advance(1)
        assert pairs(every) == [(1, 2, True), (4, 6, True), (5, 6, True), (7, 8, True)]
        # Before the fifth event nothing is known of the other source, and this is about what was not between.
        assert pairs(last) == [(4, 6, False), (5, 6, True), (7, 8, True)]
        assert pairs(none) == [(7, 8, True)]
        assert every.report().late == 0 and every.report().rows == 7


def test_what_is_published_while_it_begins_is_taken_once() -> None:
    with Node("lab", config=KEPT) as node:
        channel = node.channel("x", X)
        started = threading.Event()

        def run(who: int) -> None:
            source = channel.source(f"s{who}")
            for n in range(200):
                source.publish(k=who, n=n)
                if n == 50:
                    started.set()

        threads = [threading.Thread(target=run, args=(who,)) for who in range(2)]
        for thread in threads:
            thread.start()
        assert started.wait(GUARD)
        text = "(a: x){2} strict within 1 hour partition by k measures first(a.n) as i, last(a.n) as j"
        watch = node.match(text, history="all", queue=9_999)
        for thread in threads:
            thread.join()
        found = [watch.get(timeout=GUARD) for _ in range(2 * 199)]
        assert sorted((each.i, each.j) for each in found) == sorted((n, n + 1) for n in range(199) for _ in range(2))
        assert watch.poll() is None and watch.report().late == 0


def test_the_past_of_another_node_is_taken_once() -> None:
    with nodes() as make:
        desk, east = make("desk"), make("east", config=KEPT)
        source = east.channel("x", X).source("east")
        for n, k in enumerate((1, 2, 1), 1):
            source.publish(k=k, n=n)
        make.together()
        assert desk.until(lambda: bool(desk.remote_sources("x")), GUARD)
        plain, watch = desk.match(PAIR), desk.match(PAIR, history="all")
        make.ready(desk)
        source.publish(k=2, n=4)
        source.publish(k=1, n=5)
        source.publish(k=2, n=6)
        found = [watch.get(timeout=GUARD) for _ in range(3)]
        assert [(each.first, each.second) for each in found] == [(1, 2), (3, 4), (5, 6)]
        assert not any(each.match.uncertain for each in found)  # all is known since the first of them
        later = plain.get(timeout=GUARD)
        assert (later.first, later.second, later.match.uncertain) == (5, 6, False)
        assert watch.poll() is None and watch.report().rows == 6
