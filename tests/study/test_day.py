"""The badge day meets every published total, is the same everywhere, and could have been."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter, defaultdict
from datetime import timedelta
from itertools import pairwise

import pyarrow as pa
import pytest

from headwater.study.badges.day import SIGHTING, START, Sighting, day, fingerprint
from headwater.study.badges.joint import FAR, joint, sits_still
from headwater.study.badges.margins import (
    BADGE_LIST,
    BADGES,
    CATEGORIES,
    CATEGORY,
    DOUBTFUL,
    NETWORKS,
    SIGHTINGS,
    STATIONS,
)

FINGERPRINT = "5fd2ed6214516d78ae7d95913d573bc1"


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    return day().to_pylist()


def test_published_totals_agree_with_each_other() -> None:
    assert SIGHTINGS == 35_811
    assert sum(NETWORKS.values()) == sum(BADGES.values()) == sum(CATEGORIES.values()) == SIGHTINGS
    assert (len(NETWORKS), len(BADGES), sum(STATIONS.values())) == (12, 162, 118)
    assert list(STATIONS) == list(NETWORKS) and set(BADGES) >= DOUBTFUL
    assert all(len(badge.split("-")) == 6 and all(0 <= int(part, 16) < 256 for part in badge.split("-"))
               for badge in BADGES)  # fmt: skip


def test_the_split_into_categories_meets_the_sums() -> None:
    sums: Counter[str] = Counter()
    for badge, events in BADGES.items():
        sums[CATEGORY[badge]] += events
    assert dict(sums) == CATEGORIES
    assert set(BADGE_LIST) == {badge for badge in BADGES if CATEGORY[badge] != "unlisted"}
    assert set(BADGE_LIST.values()) == {"users", "equipment"}


def test_joint_distribution_meets_both_margins() -> None:
    table = joint()
    assert {badge: sum(cells.values()) for badge, cells in table.items()} == BADGES
    by_network: Counter[str] = Counter()
    for cells in table.values():
        assert all(count > 0 for count in cells.values())
        by_network.update(cells)
    assert dict(by_network) == NETWORKS
    for network, visits in FAR.items():
        assert {badge: cells[network] for badge, cells in table.items() if network in cells} == visits


def test_the_day_meets_every_margin(rows: list[dict[str, object]]) -> None:
    assert len(rows) == SIGHTINGS
    assert Counter(row["network"] for row in rows) == NETWORKS
    assert Counter(row["badge"] for row in rows) == BADGES
    assert Counter(CATEGORY[str(row["badge"])] for row in rows) == CATEGORIES
    stations = {(row["network"], row["station"]) for row in rows}
    assert stations == {(network, number) for network, count in STATIONS.items() for number in range(1, count + 1)}


def test_it_is_of_its_event_type(rows: list[dict[str, object]]) -> None:
    assert day().schema.equals(SIGHTING.schema)
    assert SIGHTING.name == "badges.Sighting"
    event = Sighting(**rows[0])
    assert SIGHTING.decode(SIGHTING.encode(event)) == event


def test_times(rows: list[dict[str, object]]) -> None:
    times = [row["seen"] for row in rows]
    assert times == sorted(set(times)), "in order, no two at one instant: so no badge is at two stations at once"
    span = times[-1] - times[0]  # type: ignore[operator]
    assert timedelta(hours=20, minutes=40) < span < timedelta(hours=21)
    assert times[0] >= START  # type: ignore[operator]


def test_equipment_sits_still_and_is_seen_regularly(rows: list[dict[str, object]]) -> None:
    where, when = defaultdict(set), defaultdict(list)
    for row in rows:
        where[row["badge"]].add((row["network"], row["station"]))
        when[row["badge"]].append(row["seen"])
    for badge in BADGES:
        if CATEGORY[badge] == "equipment":
            assert len(where[badge]) == 1
            noon = [at for at in when[badge] if 10 <= at.hour < 16]
            gaps = [(b - a).total_seconds() for a, b in pairwise(noon)]
            assert not gaps or max(gaps) < 1.6 * min(gaps) + 1
    moving = [badge for badge in BADGES if not sits_still(badge) and BADGES[badge] >= 20]
    assert all(len(where[badge]) > 1 for badge in moving)


def test_people_are_at_home_most_of_the_time() -> None:
    table = joint()
    people = [badge for badge in BADGES if CATEGORY[badge] == "users" and BADGES[badge] >= 100]
    assert all(max(table[badge].values()) >= 0.5 * BADGES[badge] for badge in people)
    assert all(len(table[badge]) >= 3 for badge in people)


def test_nights_are_quiet(rows: list[dict[str, object]]) -> None:
    hours = Counter(row["seen"].hour for row in rows)  # type: ignore[attr-defined]
    people = Counter(row["seen"].hour for row in rows if CATEGORY[str(row["badge"])] == "users")  # type: ignore[attr-defined]
    assert max(hours[hour] for hour in (3, 4, 5, 22, 23)) < 0.3 * min(hours[hour] for hour in range(10, 17))
    assert sum(people[hour] for hour in range(8, 19)) > 0.9 * sum(people.values())
    assert people[3] == people[4] == 0


def test_the_same_everywhere() -> None:
    assert fingerprint(day()) == FINGERPRINT
    again = "from headwater.study.badges.day import day, fingerprint; print(fingerprint(day()))"
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    told = subprocess.run([sys.executable, "-c", again], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == FINGERPRINT


def test_fingerprint_is_of_the_sightings() -> None:
    table = day()
    chunked = pa.concat_tables([table.slice(0, 1000), table.slice(1000)])
    assert fingerprint(chunked) == FINGERPRINT
    assert fingerprint(table.slice(1)) != FINGERPRINT
