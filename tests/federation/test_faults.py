"""Nodes in processes of their own, which are killed, stopped and cut off: nothing is lost, nothing comes twice.

The short version; `make soak` runs the long one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.effort import EFFORT, rounds
from tests.federation.faults import check, run
from tests.federation.processes import World, world

FAULTS = 4
CHANNEL = "test.count"
FILTERS: dict[str, Callable[[int, int], bool]] = {
    "n % 2 == 0": lambda n, level: n % 2 == 0,
    "level < 30": lambda n, level: level < 30,
    "level >= 50 and n % 3 == 1": lambda n, level: level >= 50 and n % 3 == 1,
    "true": lambda n, level: True,
    "level < 60": lambda n, level: level < 60,
    "n % 5 == 0 or level == 7": lambda n, level: n % 5 == 0 or level == 7,
}
NAMES = tuple(FILTERS)


def test_whatever_happens_every_reliable_sink_gets_every_event_once() -> None:
    seed = int(os.environ.get("HEADWATER_SEED", "0")) or random.randrange(1, 1 << 20)
    lines: list[str] = []
    try:
        outcome = run(FAULTS, seed, lines.append)
        assert outcome.good, "\n".join(outcome.problems)
        assert outcome.published > 0 and all(each.delivered for each in outcome.sinks.values())
    except BaseException as error:
        error.add_note("\n".join([f"HEADWATER_SEED={seed} replays this:", *lines]))
        raise


def test_links_that_are_cut_again_and_again() -> None:
    """Both ends call each other when a link is lost: nothing that one link still brings in disturbs the next."""
    pick = random.Random(7)
    with world() as made:
        for name in ("hill", "hall"):
            made.start(name)
        made.open("hill", lease=1.0)
        made.open("hall", seeds=["hill"], lease=1.0)
        made["hall"]("sink", channel=CHANNEL, name="hall", path=made.path("log"))
        made["hill"]("flow", channel=CHANNEL, source="hill", maker="hill", path=made.path("published"))
        for _ in range(rounds(25, 100)):
            name = pick.choice(("hill", "hall"))
            if pick.random() < 0.3:
                made[name]("cut")
            else:
                made.wires.cut(name)
                made.wires.heal(name)
            wanted = {"hill": made["hill"]("published")["hill"] + pick.choice((1, 20, 60))}
            assert made["hall"]("came", sink="hall", wanted=wanted) is True
        published = made["hill"]("stop")
        assert made["hall"]("came", sink="hall", wanted=published) is True
        assert check(Path(made.path("log")), 1, published) > 0


def test_durable_sinks_come_back_one_after_the_other() -> None:
    """The first must not get what the second needs as well, before that is there to have it."""
    with world() as made:
        for name in ("hill", "desk"):
            made.start(name)
        made.open("hill")
        made.open("desk", seeds=["hill"], state=True)

        def subscribe(sink: str, step: int) -> None:
            where = None if step == 1 else f"n % {step} == 0"
            made["desk"]("sink", channel=CHANNEL, name=sink, path=made.path(sink), where=where, durable=True)

        subscribe("all", 1)
        subscribe("third", 3)
        made["hill"]("flow", channel=CHANNEL, source="hill", maker="hill", path=made.path("published"))
        assert made["desk"]("more", sink="third", count=100) is True
        made.kill("desk")
        made.open("desk", seeds=["hill"], state=True)
        subscribe("third", 3)
        assert made["desk"]("sees", channel=CHANNEL, sources=["hill@hill"]) is True
        subscribe("all", 1)
        assert made["desk"]("more", sink="third", count=100) is True
        published = made["hill"]("stop")
        for sink, step in (("all", 1), ("third", 3)):
            last = {maker: n - n % step for maker, n in published.items()}
            assert made["desk"]("came", sink=sink, wanted=last) is True
            assert check(Path(made.path(sink)), step, last) > 0


def test_a_node_that_stays_away_is_cleaned_up() -> None:
    """After its lease and the time for which things are kept, nothing that it wanted is left."""
    with world() as made:
        for name in ("hill", "hall"):
            made.start(name)
        made.open("hill", lease=1.0, keep=0.3)
        made.open("hall", seeds=["hill"], lease=1.0, keep=0.3)
        made["hall"]("sink", channel=CHANNEL, name="hall", path=made.path("log"))
        made["hill"]("flow", channel=CHANNEL, source="hill", maker="hill", path=made.path("published"))
        assert made["hall"]("more", sink="hall", count=10) is True
        assert made["hill"]("peers", wanted=["hall"]) is True
        made.kill("hall")
        assert made["hill"]("alone", unwanted=["hall"]) is True
        assert made["hill"]("wishes", channel=CHANNEL, wanted=0) == {}


# ── filters change while events flow ──


def test_changes_take_effect_at_the_acknowledged_point_in_every_source() -> None:
    sources, sinks = ("hill", "lake", "wood"), ("desk", "hall")
    with world() as made:
        for name in (*sources, *sinks):
            made.start(name)
        made.open("hill")
        made.open("lake", "wood", *sinks, seeds=["hill"])
        for name in sinks:
            made[name]("sink", channel=CHANNEL, name=name, path=made.path(name), where=NAMES[0])
        for name in sources:
            made[name]("flow", channel=CHANNEL, source=name, maker=name, path=made.path(f"{name}.published"), pace=3)
        for name in sinks:
            assert made[name]("sees", channel=CHANNEL, sources=[f"{each}@{each}" for each in sources]) is True
            assert made[name]("ready") is True
        epochs: dict[str, list[tuple[str, dict[str, int]]]] = {name: [] for name in sinks}
        for index in range(6 if EFFORT == 1 else 60):
            for name in sinks:  # both at the same time
                made[name].start("change", sink=name, where=NAMES[(index + len(name)) % len(NAMES)])
            for name in sinks:
                answer = made[name].answer()
                points = {source.rpartition("@")[2]: point for source, point in answer["points"].items()}
                epochs[name].append((NAMES[(index + len(name)) % len(NAMES)], points))
        published = _stop(made, sources)
        for name in sinks:
            last = {each: _last(epochs[name], each, n) for each, n in published.items()}
            assert made[name]("came", sink=name, wanted=last) is True
            _judge(Path(made.path(name)), epochs[name], published)


def _stop(made: World, sources: tuple[str, ...]) -> dict[str, int]:
    published: dict[str, int] = {}
    for name in sources:
        published.update(made[name]("stop"))
        assert made[name]("flush") is True
    return published


def _passes(where: str, n: int) -> bool:
    return FILTERS[where](n, n * 7919 % 100)


def _last(epochs: list[tuple[str, dict[str, int]]], source: str, published: int) -> int:
    """The last event that passes the filter that held at its number, or 0."""
    for where, points in reversed(epochs):
        after = points.get(source, 0)
        found = next((n for n in range(published, after, -1) if _passes(where, n)), None)
        if found is not None:
            return found
        published = min(published, after)
    return 0


def _judge(log: Path, epochs: list[tuple[str, dict[str, int]]], published: dict[str, int]) -> None:
    """Every event of each source was judged by exactly one filter: the one that held at its number."""
    got: dict[str, list[tuple[int, int]]] = {source: [] for source in published}
    for line in log.read_text().splitlines():
        source, seq, _, n, epoch, _ = line.split()
        assert seq == n
        got[source].append((int(n), int(epoch)))
    for source, total in published.items():
        begins = [0, *(points.get(source, 0) for _, points in epochs)]
        assert begins == sorted(begins), f"{log.name}: the points of {source} go back: {begins}"
        filters = [NAMES[0], *(where for where, _ in epochs)]
        first = begins[1]  # up to here the first filter held, from where on is not known
        expected = []
        for index, (where, after) in enumerate(zip(filters, begins, strict=True)):
            upto = begins[index + 1] if index + 1 < len(begins) else total
            expected += [(n, index + 1) for n in range(after + 1, upto + 1) if _passes(where, n)]
        begun = got[source][0][0] if got[source] and got[source][0][0] <= first else first + 1
        expected = [each for each in expected if each[0] >= begun]
        assert got[source] == expected, _difference(log.name, source, got[source], expected, begins)


def _difference(sink: str, source: str, got: list[Any], expected: list[Any], begins: list[int]) -> str:
    missing, extra = sorted(set(expected) - set(got))[:10], sorted(set(got) - set(expected))[:10]
    return f"{sink}, {source}: missing {missing}, not wanted {extra}, epochs after {begins}"
