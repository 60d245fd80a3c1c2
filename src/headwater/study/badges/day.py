"""The badge day: 35,811 sightings that meet every published total exactly, made the same on every machine.

The totals are published; who was where when is not, and is made up here. Equipment sits still and is seen at regular
intervals, longer ones in the dark. People come in the morning, go from station to station and leave in the evening.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from itertools import accumulate, pairwise
from random import Random
from typing import Any, TypeVar

import pyarrow as pa

from headwater.study.badges.joint import joint, sits_still
from headwater.study.badges.margins import BADGES, STATIONS
from headwater.types import Event, EventType, event_type, u16

CHANNEL = "badges.sighting"
START = datetime(1998, 1, 21, 3, tzinfo=UTC)  # a Wednesday
MINUTES = 20 * 60 + 50  # the day's length
HOME = "ORL-Home#5"  # where somebody is seen in the evening

_FIRST = 3  # o'clock
_SEED = 35_811
_MINUTE = 60_000_000  # microseconds

# How often equipment is seen, of 100, at these hours and on a line between them.
_LIGHT = ((3, 30), (7, 30), (9, 100), (18, 100), (21, 40), (24, 30))
_ALL_DAY = 240  # sightings: what is seen less often was switched on for a part of the day
_PACE = 330  # sightings that equipment makes in a whole day, if it is not on all of it


class Sighting(Event, name="badges.Sighting"):
    """A station of a network has seen a badge."""

    badge: str
    network: str
    station: u16
    seen: datetime


SIGHTING: EventType = event_type(Sighting)

_Seen = tuple[int, str, int, str]  # microseconds since START, network, station, badge
_Stay = tuple[str, int, int]  # network, station, sightings
_T = TypeVar("_T")


@cache
def day() -> pa.Table:
    """All sightings in the order of their time, no two at the same microsecond; columns as in `Sighting`."""
    seen = sorted(_sightings())
    start = int(START.timestamp()) * 1_000_000
    times: list[int] = []
    last = -1
    for at, *_ in seen:
        last = max(at, last + 1)
        times.append(start + last)
    columns: list[Any] = [
        pa.array([badge for *_, badge in seen], pa.string()),
        pa.array([network for _, network, _, _ in seen], pa.string()),
        pa.array([station for _, _, station, _ in seen], pa.uint16()),
        pa.array(times, pa.timestamp("us", tz="UTC")),
    ]
    return pa.Table.from_arrays(columns, schema=SIGHTING.schema)


def station_name(network: str, station: int) -> str:
    """What the source of a station is called."""
    return f"{network}/{station}"


def fingerprint(table: pa.Table) -> str:
    """Of the sightings themselves: the same whatever wrote or read the table."""
    columns = [table[name] for name in ("badge", "network", "station")]
    columns.append(table["seen"].cast(pa.int64()))
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    text = "\n".join(f"{badge} {network} {station} {at}" for badge, network, station, at in rows)
    return blake2b(text.encode(), digest_size=16).hexdigest()


class _Chance:
    """Random numbers from `Random.random` alone: the one method whose sequence Python promises to keep."""

    def __init__(self, seed: int) -> None:
        self._next = Random(seed).random

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self._next()

    def whole(self, low: int, high: int) -> int:
        """Both included."""
        return low + int((high - low + 1) * self._next())

    def shuffled(self, items: Sequence[_T]) -> list[_T]:
        mixed = list(items)
        for at in range(len(mixed) - 1, 0, -1):
            other = self.whole(0, at)
            mixed[at], mixed[other] = mixed[other], mixed[at]
        return mixed


class _Stations:
    """The stations of each network: those where nothing was seen yet come first, so that each is used."""

    def __init__(self, chance: _Chance) -> None:
        self._chance = chance
        self._unused = {network: list(range(count, 0, -1)) for network, count in STATIONS.items()}

    def one(self, network: str) -> int:
        unused = self._unused[network]
        return unused.pop() if unused else self._chance.whole(1, STATIONS[network])


def _sightings() -> Iterator[_Seen]:
    chance = _Chance(_SEED)
    stations = _Stations(chance)
    where = joint()
    for badge in BADGES:
        if sits_still(badge):
            (network,) = where[badge]
            station = stations.one(network)
            for at in _beacons(BADGES[badge], chance):
                yield at, network, station, badge
    for badge in BADGES:
        if not sits_still(badge):
            yield from _person(badge, where[badge], stations, chance)


# ── equipment ──


def _brightness() -> list[int]:
    """By minute from the start: how often equipment is seen until then, added up."""
    weights = []
    for minute in range(MINUTES):
        hour = _FIRST * 60 + minute
        for (h0, w0), (h1, w1) in pairwise(_LIGHT):
            if h0 * 60 <= hour < h1 * 60:
                weights.append(60 * w0 + (w1 - w0) * (hour - h0 * 60) // (h1 - h0))
    return [0, *accumulate(weights)]


_BRIGHT = _brightness()


def _at(weight: float) -> int:
    """The moment until which this much of the day's brightness has passed."""
    minute = min(bisect_right(_BRIGHT, weight), MINUTES) - 1
    part = (weight - _BRIGHT[minute]) / (_BRIGHT[minute + 1] - _BRIGHT[minute])
    return int((minute + part) * _MINUTE)


def _beacons(count: int, chance: _Chance) -> Iterator[int]:
    """Regular moments, a little off the beat, over the day or the part of it that the equipment was on."""
    whole = float(_BRIGHT[-1])
    length = whole if count >= _ALL_DAY else whole * count / _PACE
    begin = chance.between(0, whole - length)
    step = length / count
    phase = chance.between(0.05, 0.75)
    for number in range(count):
        yield _at(begin + (number + phase + chance.between(0, 0.2)) * step)


# ── people ──


def _person(badge: str, cells: dict[str, int], stations: _Stations, chance: _Chance) -> Iterator[_Seen]:
    stays = _stays({network: cells[network] for network in cells if network != HOME}, stations, chance)
    times = _hours(sum(count for _, _, count in stays), chance)
    if HOME in cells:
        stays.append((HOME, stations.one(HOME), cells[HOME]))
        times += _spread(20 * 60 + 10, 22 * 60 + 50, cells[HOME], chance)
    moments = iter(times)
    for network, station, count in stays:
        for _ in range(count):
            yield next(moments), network, station, badge


def _stays(cells: dict[str, int], stations: _Stations, chance: _Chance) -> list[_Stay]:
    """Where a person goes, one after the other: long stays at home, mostly in one room, and short ones elsewhere."""
    home = max(cells, key=lambda network: (cells[network], network))
    office = stations.one(home)
    stays: list[_Stay] = []
    for network, left in cells.items():
        while left:
            at_home = network == home
            count = min(left, chance.whole(3, 16) if at_home else chance.whole(1, 4))
            in_office = at_home and chance.between(0, 1) < 0.65
            stays.append((network, office if in_office else stations.one(network), count))
            left -= count
    return chance.shuffled(stays)


def _hours(count: int, chance: _Chance) -> list[int]:
    """The moments at which a person is seen: a working day, or a visit if that would be too few for one."""
    kind = chance.between(0, 1)
    if kind < 0.08:  # before everybody else
        come, go = chance.between(5.4 * 60, 7 * 60), chance.between(13 * 60, 16 * 60)
    elif kind < 0.20:  # until late
        come, go = chance.between(10 * 60, 12 * 60), chance.between(20 * 60, 23 * 60)
    else:
        come, go = chance.between(8 * 60, 10.2 * 60), chance.between(16.5 * 60, 19.2 * 60)
    visit = count * chance.between(2.5, 6)
    if visit < go - come:
        come = chance.between(come, go - visit)
        go = come + visit
    return _spread(come, go, count, chance)


def _spread(come: float, go: float, count: int, chance: _Chance) -> list[int]:
    """Moments between two times of the day, in minutes after midnight, one in each equal part of it."""
    part = (go - come) / count
    first = come - _FIRST * 60
    return [int((first + (number + chance.between(0, 1)) * part) * _MINUTE) for number in range(count)]
