"""What crosses for a pattern on a small day, by real nodes, and by counting."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random

import pytest

from headwater.study.badges.day import SIGHTING, START
from headwater_studies.patterns.crossing import HOME, REACTOR, TAILGATING, Amount, Question, Row, run

REACTOR_ROOM = REACTOR.params["network"], REACTOR.params["station"]
DOOR = TAILGATING.params["network"], TAILGATING.params["station"]
PLACES = [REACTOR_ROOM, DOOR, DOOR, DOOR, (HOME, 1), (HOME, 2), ("ORL-Net#0", 1), ("ORL-Net#0", 2), (DOOR[0], 1)]
NETWORKS = tuple(dict.fromkeys(network for network, _ in PLACES))


def small_day() -> list[Row]:
    """Forty badges that are now here, now there; some two within two seconds at the door, or just so. Who is ever in
    the reactor room begins there: however many values go to the sources together, none of them was seen before."""
    chance, at, rows = Random(7), START, list[Row]()
    known = set[str]()
    for _ in range(160):
        at += timedelta(microseconds=chance.choice([1, 400_000, 1_000_000, 1_000_000, 7_000_000]))
        number = chance.randrange(40)
        badge, visits = f"b{number:02}", number % 3 == 0
        first = REACTOR_ROOM if visits and badge not in known else None
        network, station = first or chance.choice(PLACES if visits else PLACES[1:])
        known.add(badge)
        rows.append({"badge": badge, "network": network, "station": station, "seen": at})
    return rows


def amount(rows: list[Row]) -> Amount:
    """Of those that are not at home."""
    away = [len(SIGHTING.encode(dict(row))) for row in rows if row["network"] != HOME]
    return Amount(len(away), sum(away))


def place(row: Row) -> tuple[str, int]:
    return row["network"], row["station"]


def tailgating(rows: list[Row]) -> tuple[int, list[Row]]:
    """How many matches there are, and what has to cross for them."""
    there = [row for row in rows if place(row) == DOOR]
    pairs = [(a, b) for at, b in enumerate(there) for a in there[:at] if a["badge"] != b["badge"]]
    return sum(b["seen"] - a["seen"] <= timedelta(seconds=2) for a, b in pairs), there


def reactor_room(rows: list[Row]) -> tuple[int, list[Row]]:
    traced = [
        any(place(each) == REACTOR_ROOM and each["badge"] == row["badge"] for each in rows[:at])
        for at, row in enumerate(rows)
    ]
    needed = [row for row, known in zip(rows, traced, strict=True) if known or place(row) == REACTOR_ROOM]
    return sum(traced), needed


Count = Callable[[list[Row]], tuple[int, list[Row]]]


@pytest.mark.parametrize(("question", "count"), [(TAILGATING, tailgating), (REACTOR, reactor_room)])
def test_what_crosses_is_what_is_needed(question: Question, count: Count) -> None:
    rows = small_day()
    matches, needed = count(rows)
    found = run(question, rows, NETWORKS)
    assert found.exact and found.lost == 0
    assert found.matches == matches > 10
    assert found.everything == amount(rows)
    assert found.bound == found.needed == amount(needed)
    assert 0 < found.bound.events < found.everything.events
    assert found.atoms == (found.everything if question is REACTOR else found.bound)
    assert (found.rounds > 0) is (question is REACTOR) and found.streams > found.bound.bytes
