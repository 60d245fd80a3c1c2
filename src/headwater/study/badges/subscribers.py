"""The 178 subscribers of the study: God, a security camera for each network, a private eye for each badge, and three
big brothers who read the badge list, a table that travels with the interest as a parameter.

God wants everything, by an interest that has no effect, as in the published study: what that costs is a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from headwater.interest import Interest
from headwater.study.badges.day import SIGHTING
from headwater.study.badges.margins import BADGE_LIST, BADGES, NETWORKS
from headwater.study.badges.published_tables import BROTHER_ORDER

Group = Literal["god", "cameras", "eyes", "brothers"]
GROUPS: tuple[Group, ...] = ("god", "cameras", "eyes", "brothers")
NODE = "statler"  # where all of them are

GOD = "{ return 1; }"
CAMERA = "network = :network"
EYE = "lambda e, *, badge: e.badge == badge"
BROTHER = ":badges[badge] = :kind"
UNLISTED = ":badges[badge] is null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """One of them: what it is called, what it watches ("" for God), and its interest as it is written."""

    name: str
    group: Group
    watches: str
    where: str
    params: Mapping[str, Any] = field(default_factory=dict)
    at: str = NODE

    def interest(self) -> Interest:
        return Interest(self.where, SIGHTING, params=self.params)


@cache
def subscribers() -> tuple[Subscriber, ...]:
    """All of them, in the order of the published tables."""
    found = [Subscriber(name="god", group="god", watches="", where=GOD)]
    found += [
        Subscriber(name=f"camera {each}", group="cameras", watches=each, where=CAMERA, params={"network": each})
        for each in NETWORKS
    ]
    found += [
        Subscriber(name=f"eye {each}", group="eyes", watches=each, where=EYE, params={"badge": each}) for each in BADGES
    ]
    for kind in BROTHER_ORDER:
        listed = kind != "unlisted"
        params = {"badges": BADGE_LIST, "kind": kind} if listed else {"badges": BADGE_LIST}
        where = BROTHER if listed else UNLISTED
        found.append(Subscriber(name=f"brother {kind}", group="brothers", watches=kind, where=where, params=params))
    return tuple(found)


def group(which: Group) -> tuple[Subscriber, ...]:
    """Those of one kind."""
    return tuple(each for each in subscribers() if each.group == which)
