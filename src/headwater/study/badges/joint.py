"""How often each badge was seen on each network: whole numbers that meet the published totals of both exactly.

Only the totals are published, not this. What sits still is on one network; people have a network where they are at
home and are seen on others now and then; the three small networks are visited by a few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from headwater.study.badges.margins import BADGES, CATEGORY, NETWORKS, SERIES

Joint = dict[str, dict[str, int]]  # badge, network, sightings

# Who is seen on the networks away from the laboratory, and how often.
FAR: dict[str, dict[str, int]] = {
    "CL-ArupExtn#8": {"0-0-0-0-10-1b": 21, "0-0-0-0-e-cc": 17, "0-0-0-0-4-11": 9, "0-0-0-0-13-ea": 5},
    "CL-ArupMain#8": {"0-0-0-0-10-1b": 13, "0-0-0-0-e-cc": 9},
    "ORL-Home#5": {"0-0-0-0-4-1": 7},
}
NEAR = tuple(network for network in NETWORKS if network not in FAR)
AT_HOME = 60  # percent of a person's sightings
FEW = 12  # sightings: a visitor who is seen on one network only


def sits_still(badge: str) -> bool:
    """Equipment, and those unlisted badges whose ids are of the same series."""
    return CATEGORY[badge] == "equipment" or badge.startswith(SERIES)


@cache
def joint() -> Joint:
    """The table, by badge and network; cells of zero are left out."""
    found: Joint = {badge: {} for badge in BADGES}
    room = dict(NETWORKS)

    def put(badge: str, network: str, sightings: int) -> None:
        if sightings:
            found[badge][network] = found[badge].get(network, 0) + sightings
            room[network] -= sightings

    for network, visits in FAR.items():
        for badge, sightings in visits.items():
            put(badge, network, sightings)
    _settle((badge for badge in BADGES if sits_still(badge)), put)
    _walk((badge for badge in BADGES if not sits_still(badge)), found, room, put)
    return {badge: {network: cells[network] for network in NETWORKS if network in cells}
            for badge, cells in found.items()}  # fmt: skip


Put = Callable[[str, str, int], None]


def _settle(badges: Iterable[str], put: Put) -> None:
    """Each to one network, so that what sits still has about the same share of all of them."""
    order = sorted(badges, key=lambda badge: (-BADGES[badge], badge))
    total, whole = sum(BADGES[badge] for badge in order), sum(NETWORKS[network] for network in NEAR)
    wanted = {network: NETWORKS[network] * total // whole for network in NEAR}
    for badge in order:
        network = max(NEAR, key=lambda each: (wanted[each], each))
        wanted[network] -= BADGES[badge]
        put(badge, network, BADGES[badge])


def _walk(badges: Iterable[str], found: Joint, room: dict[str, int], put: Put) -> None:
    """People: most of their sightings at home, the rest where there is room, the nearer the more.

    Whoever comes last takes what is left, so that nothing is: the order is from those seen most to those seen least.
    """
    rest = {badge: BADGES[badge] - sum(found[badge].values()) for badge in badges}
    order = sorted(rest, key=lambda badge: (-rest[badge], badge))
    homes: dict[str, str] = {}
    for badge in order:
        homes[badge] = home = max(NEAR, key=lambda each: (room[each], each))
        stays = rest[badge] if rest[badge] <= FEW else rest[badge] * AT_HOME // 100
        stays = min(stays, room[home])
        put(badge, home, stays)
        rest[badge] -= stays
    for badge in order:
        for network, sightings in _share(rest[badge], room, homes[badge]).items():
            put(badge, network, sightings)


def _share(sightings: int, room: dict[str, int], home: str) -> dict[str, int]:
    """A whole number for each network, together `sightings`, none more than there is room for."""
    weights = {each: room[each] * len(NEAR) // (1 + abs(NEAR.index(each) - NEAR.index(home))) for each in NEAR}
    whole = sum(weights.values())
    share = {each: min(room[each], sightings * weights[each] // whole) if whole else 0 for each in NEAR}
    left = sightings - sum(share.values())
    for each in sorted(NEAR, key=lambda each: (-weights[each], each)):
        more = min(left, room[each] - share[each])
        share[each] += more
        left -= more
    return share
