"""Which group carries a channel's events."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from ipaddress import IPv4Address

import pytest

from headwater.errors import ConfigError
from headwater.federation.address_map import AddressMap, FixedGroups, Group, HashedGroups


def test_hashed_groups_are_the_same_in_every_process() -> None:
    groups = HashedGroups()
    script = (
        "from headwater.federation.address_map import HashedGroups\n"
        "print([str(HashedGroups().group(f'ie.tcd.{n}')) for n in range(50)])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.strip() == str([str(groups.group(f"ie.tcd.{n}")) for n in range(50)])


def test_hashed_groups_spread_channels() -> None:
    groups = HashedGroups(base="239.1.2.250", count=16, port=9)
    found = {groups.group(f"lab.{n}") for n in range(1000)}
    assert len(found) == 16
    first = IPv4Address("239.1.2.250")
    assert {IPv4Address(group.address) for group in found} == {first + at for at in range(16)}
    assert {group.port for group in found} == {9}


def test_fixed_groups_first_match_decides() -> None:
    lab = FixedGroups({"ie.tcd.cs.*": "239.1.2.3:7450", "ie.tcd.**": Group("239.1.2.4", 7451)})
    assert lab.group("ie.tcd.cs.sighting") == Group("239.1.2.3", 7450)
    assert lab.group("ie.tcd.cs.lab.sighting") == Group.parse("239.1.2.4:7451")
    assert lab.group("ie.ucd") is None
    assert FixedGroups({}, default="239.9.9.9:1").group("a") == Group("239.9.9.9", 1)
    hashed = HashedGroups(count=8)
    assert FixedGroups({"a": "239.9.9.9:1"}, default=hashed).group("b") == hashed.group("b")
    assert lab == FixedGroups({"ie.tcd.cs.*": "239.1.2.3:7450", "ie.tcd.**": "239.1.2.4:7451"})
    assert hash(lab) == hash(FixedGroups({"ie.tcd.cs.*": "239.1.2.3:7450", "ie.tcd.**": "239.1.2.4:7451"}))
    assert isinstance(lab, AddressMap) and isinstance(hashed, AddressMap)


@pytest.mark.parametrize(
    ("make", "places"),
    [
        (lambda: HashedGroups(base="10.0.0.1"), ["HashedGroups: base"]),
        (lambda: HashedGroups(base="224.0.0.1"), ["HashedGroups: base"]),
        (lambda: HashedGroups(base="ff15::1"), ["HashedGroups: base"]),
        (lambda: HashedGroups(base=239, count=0, port=0), [f"HashedGroups: {x}" for x in ("base", "count", "port")]),  # type: ignore[arg-type]
        (lambda: HashedGroups(base="239.255.255.250", count=7), ["HashedGroups: count"]),
        (lambda: HashedGroups(port=65_536), ["HashedGroups: port"]),
        (lambda: Group("239.1.1.1", True), ["Group: port"]),
        (lambda: Group("239.1.1", 0), ["Group: address", "Group: port"]),
        (lambda: Group.parse("239.1.1.1"), ["Group:"]),
        (lambda: Group.parse("239.1.1.1:x"), ["Group:"]),
        (lambda: Group.parse("239.1.1.1:99999"), ["Group:"]),
        (lambda: FixedGroups({"a..b": "239.1.1.1:1", "c": "1.1.1.1:1", "d": 5}, default="x"),  # type: ignore[dict-item]
         ["FixedGroups: groups", 'FixedGroups: "c"', 'FixedGroups: "d"', "FixedGroups: default"]),
        (lambda: FixedGroups({}, default=7), ["FixedGroups: default"]),  # type: ignore[arg-type]
        (lambda: FixedGroups(["a"]), ["FixedGroups: groups"]),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_impossible_maps(make: Callable[[], object], places: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert [problem.place for problem in caught.value.problems] == places
