"""Which multicast group carries a channel's events: an address map, which every node of a federation must share.

    HashedGroups(base="239.255.42.0", count=64, port=7450)     by the channel's name, spread over some groups
    FixedGroups({"ie.tcd.**": "239.1.2.3:7450"})               by patterns; what matches none takes the direct streams

Network cards and kernels filter by group, so a host is not even interrupted for groups that it has not joined: the
finer the map, the less of others' traffic a node sees. Any frozen value with a method `group` will do as a map.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from typing import Any, ClassVar, Protocol, runtime_checkable

from headwater.channel.names import Pattern
from headwater.channel.options.settings import Count, Settings, show
from headwater.errors import ChannelError, ConfigError, ConfigProblem

PORT = Count(1, 65_535)
LAST = IPv4Address("239.255.255.255")
CONTROL = IPv4Network("224.0.0.0/24")  # routers and hosts talk to each other here, and nobody can leave 224.0.0.1
_EXPECTED = "an IPv4 multicast address from 224.0.1.0 to 239.255.255.255"
_HINT = "239.0.0.0 to 239.255.255.255 are free for use within an organisation"


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """A multicast group: an IPv4 address and a port. Its text is `239.1.2.3:7450`."""

    address: str
    port: int

    def __post_init__(self) -> None:
        found = _address_problem("Group: address", self.address), PORT.problem("Group: port", self.port)
        _raise([problem for problem in found if problem is not None])

    @classmethod
    def parse(cls, text: str) -> Group:
        """From `address:port`."""
        problem = _group_problem("Group:", text)
        _raise([problem] if problem is not None else [])
        address, _, port = text.partition(":")
        return cls(address, int(port))

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


@runtime_checkable
class AddressMap(Protocol):
    """Where the events of a channel are multicast. Nodes that answer differently do not hear each other."""

    def group(self, channel: str) -> Group | None:
        """The channel's group, or None if its events are not multicast."""
        ...


@dataclass(frozen=True, slots=True)
class MulticastAddress:
    """A setting: the text of a multicast address."""

    def problem(self, place: str, value: object) -> ConfigProblem | None:
        return _address_problem(place, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedGroups:
    """Channels spread over `count` groups from `base` on, by a hash of their names that is the same everywhere."""

    name: ClassVar[str] = "hashed"

    base: str = "239.255.42.0"
    count: int = 64
    port: int = 7450

    settings: ClassVar[Settings] = Settings(base=MulticastAddress(), count=Count(1, 65_536), port=PORT)

    def __post_init__(self) -> None:
        given = {"base": self.base, "count": self.count, "port": self.port}
        place = "HashedGroups:"
        _raise(self.settings.problems(given, place) or self.contradictions(given, place))

    @staticmethod
    def contradictions(value: Mapping[str, Any], place: str) -> list[ConfigProblem]:
        """What is wrong with settings that are right one by one."""
        base, count = IPv4Address(value.get("base", "239.255.42.0")), value.get("count", 64)
        room = int(LAST) - int(base) + 1
        if count <= room:
            return []
        found = f"{count}, while {base} leaves room for {room}"
        hint = "use fewer groups or an earlier base"
        return [ConfigProblem(f"{place} count", f"groups up to {LAST} at most", found, hint)]

    def group(self, channel: str) -> Group:
        """The group of a channel, by a hash of its name that is the same at every node."""
        digest = blake2b(channel.encode(), digest_size=8, person=b"hw-groups").digest()
        at = int.from_bytes(digest, "little") % self.count
        return Group(str(IPv4Address(self.base) + at), self.port)


@dataclass(frozen=True, slots=True, init=False)
class FixedGroups:
    """Channels by patterns of their names, the first that matches decides; else `default`, a group or another map.

    Without a default the events of channels that match no pattern are not multicast.
    """

    name: ClassVar[str] = "fixed"

    groups: tuple[tuple[Pattern, Group], ...]
    default: AddressMap | Group | None = field(default=None)

    def __init__(self, groups: Mapping[str, str | Group], *, default: str | Group | AddressMap | None = None) -> None:
        problems: list[ConfigProblem] = []
        pairs = []
        place = "FixedGroups:"
        if not isinstance(groups, Mapping):
            expected = 'a table of patterns and groups such as "ie.tcd.**" = "239.1.2.3:7450"'
            _raise([ConfigProblem(f"{place} groups", expected, show(groups))])
        for text, to in groups.items():
            try:
                pattern = Pattern(text)
            except ChannelError as error:
                problems.append(ConfigProblem(f"{place} groups", "patterns of channel names", show(text), str(error)))
                continue
            if (group := _as_group(f"{place} {show(text)}", to, problems)) is not None:
                pairs.append((pattern, group))
        if default is not None and (isinstance(default, str | Group) or not isinstance(default, AddressMap)):
            default = _as_group(f"{place} default", default, problems)
        _raise(problems)
        object.__setattr__(self, "groups", tuple(pairs))
        object.__setattr__(self, "default", default)

    def group(self, channel: str) -> Group | None:
        """The group of the first pattern that the channel's name fits, else the default."""
        for pattern, group in self.groups:
            if pattern.matches(channel):
                return group
        if self.default is None or isinstance(self.default, Group):
            return self.default
        return self.default.group(channel)


# ── checking ──


def _as_group(place: str, value: object, problems: list[ConfigProblem]) -> Group | None:
    if isinstance(value, Group):
        return value
    problem = _group_problem(place, value)
    if problem is None:
        return Group.parse(str(value))
    problems.append(problem)
    return None


def _group_problem(place: str, value: object) -> ConfigProblem | None:
    if not isinstance(value, str):
        return ConfigProblem(place, 'a group such as "239.1.2.3:7450"', show(value))
    address, colon, port = value.partition(":")
    if not colon or not (port.isascii() and port.isdecimal() and len(port) <= 5):
        return ConfigProblem(place, 'a group such as "239.1.2.3:7450"', show(value), "give its address and its port")
    return _address_problem(place, address) or PORT.problem(place, int(port))


def _address_problem(place: str, value: object) -> ConfigProblem | None:
    try:
        address = IPv4Address(value) if isinstance(value, str) else None
    except AddressValueError:
        address = None
    if address is None or not address.is_multicast:
        return ConfigProblem(place, _EXPECTED, show(value), _HINT)
    if address in CONTROL:
        return ConfigProblem(place, _EXPECTED, f"{show(value)}, which routers use among themselves", _HINT)
    return None


def _raise(problems: list[ConfigProblem]) -> None:
    if problems:
        raise ConfigError(problems)


__all__ = ["AddressMap", "FixedGroups", "Group", "HashedGroups", "MulticastAddress"]
