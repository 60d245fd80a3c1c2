"""How a node takes part in a federation, as one frozen value.

    Network(listen="tcp/127.0.0.1:7447", connect=("tcp/127.0.0.1:7448",), federation="lab")

The same in a node's TOML file is the table [network].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from headwater.channel.annotations import shown
from headwater.channel.options.config import Queue
from headwater.channel.options.rate import Rate
from headwater.channel.options.settings import Choice, Count, Seconds, Settings, show, unknown
from headwater.errors import ConfigError, ConfigProblem
from headwater.extras import require
from headwater.federation.address_map import AddressMap, FixedGroups, HashedGroups
from headwater.federation.endpoints import Locator, parse_locator
from headwater.federation.security.rules import who_problems
from headwater.federation.security.settings import Security

FEDERATION = "headwater"
LINK = Queue(limit=65_536, policy="block")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What the interests of other nodes may cost at this node's sources, in native operations: per event of a channel,
    all of them together and those of one node; and per second, at the rate at which events are published. And how large
    they may be: one interest in bytes with its parameters, and in parts (about three to a comparison); all interests of
    one node in a channel in bytes."""

    total: int = 1_000_000
    each: int = 250_000
    load: int = 10_000_000_000
    bytes: int = 256 << 10
    parts: int = 8_000
    node_bytes: int = 32 << 20

    settings: ClassVar[Settings] = Settings(
        total=Count(0, 2**40),
        each=Count(0, 2**40),
        load=Count(0, 2**50),
        bytes=Count(1, 2**31),
        parts=Count(1, 2**31),
        node_bytes=Count(1, 2**40),
    )

    def __post_init__(self) -> None:
        problems = self.settings.problems({name: getattr(self, name) for name in self.settings}, "Budget:")
        if problems:
            raise ConfigError(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How a node takes part in a federation.

    listen, connect  endpoints: "127.0.0.1:7447", "tls/lab.example:7447", "unix//run/lab.sock", several in a list. One
                     without a protocol is "tls" where there are certificates, else "tcp"; "7447" is of this machine
    scout            find nodes by multicast: True, or the address; else only those that `connect` leads to
    federation       its name; nodes of different federations never see each other
    direct           endpoints for direct streams: as a rule chosen by the node; () for none, so that all goes by Zenoh
    fallback         where no direct stream can be made: "encrypted", events go by Zenoh, which others may hear but not
                     read; or "never", they wait for a stream
    router           pass on for nodes that cannot reach each other (`headwater node` does)
    client           no other node can reach this one: it calls, and all else goes through the nodes that it called
    acquaintance     "all" nodes of the federation are known here, or those that are dealt with: "named" ones, which the
                     naming service has found (`headwater.names`), and those that have asked this node something
    lease            seconds in which a node that is dead, frozen or cut off is noticed
    keep             seconds for which what it has asked for reliably is kept for it, should it come back
    clock_error      seconds by which clocks of this federation may be from the true time: what triggers over several
                     nodes tell is as exact
    link             how many events of a source may wait for a node, and what happens to the next
    compress         "none", "lz4" or "zstd": of large frames
    budget           what other nodes' interests may cost here
    placement        where this node's interests run: "source", "destination", or "auto": at the destination where a
                     source refuses for their cost
    rates            what other nodes may have of this one, by who they have proven to be, as in a rule:
                     {"guest*": Rate(50), "*": Rate(5000)}; the first that is about a node counts
    multicast        an address map, or True: events that several nodes want go as one datagram
    multicast_interface, multicast_key   the IPv4 address of the network interface for that; and, beyond loopback or
                     where nodes must prove who they are, 16 to 64 bytes (or their hex digits) that all nodes share
    security         certificates, passwords and rules
    """

    listen: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    scout: bool | str = False
    federation: str = FEDERATION
    direct: tuple[str, ...] | None = None
    fallback: str = "encrypted"
    router: bool = False
    client: bool = False
    acquaintance: str = "all"
    lease: float = 5.0
    keep: float = 30.0
    clock_error: float = 0.1
    link: Queue = LINK
    compress: str = "none"
    budget: Budget = field(default_factory=Budget)
    placement: str = "source"
    rates: Mapping[str, Rate] = field(default_factory=dict)
    multicast: AddressMap | bool | None = None
    multicast_interface: str = "127.0.0.1"
    multicast_key: bytes | str | None = field(default=None, repr=False)
    security: Security = field(default_factory=Security)

    settings: ClassVar[Settings] = Settings(
        lease=Seconds(above=True),
        keep=Seconds(),
        clock_error=Seconds(),
        compress=Choice("none", "lz4", "zstd"),
        placement=Choice("source", "destination", "auto"),
        fallback=Choice("encrypted", "never"),
        acquaintance=Choice("all", "named"),
    )

    def __post_init__(self) -> None:
        """Check all settings at once, so that one error names everything that is wrong."""
        for name in ("listen", "connect", "direct"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, endpoints(given))
        if isinstance(self.multicast, bool):
            object.__setattr__(self, "multicast", HashedGroups() if self.multicast else None)
        problems = self.settings.problems({name: getattr(self, name) for name in self.settings}, "Network:")
        problems += self._multicast_problems()
        problems += self._rates_problems()
        if self.direct == () and self.fallback == "never":
            hint = 'leave out direct=(), or allow fallback="encrypted"'
            found = "no direct streams, and no other way"
            problems.append(ConfigProblem("Network: fallback", "a way for events", found, hint))
        if self.router and self.client:
            problems.append(ConfigProblem("Network: client", "router or client", "both", "a router can be reached"))
        for name, kind in (("link", Queue), ("budget", Budget), ("security", Security)):
            if not isinstance(value := getattr(self, name), kind):
                problems.append(ConfigProblem(f"Network: {name}", f"a {kind.__name__}", show(value)))
        if not problems:  # else there may be no security to go by
            located = [each for name in ("listen", "connect", "direct") for each in self._located(name)]
            problems = [each for each in located if isinstance(each, ConfigProblem)]
        if problems:
            raise ConfigError(problems)
        if self.compress != "none":
            require("arrow", f"Network(compress={self.compress!r})")

    def _located(self, name: str) -> Iterator[Locator | ConfigProblem]:
        """Endpoints as they were written, understood."""
        default = "tcp" if self.security.authority is None else "tls"
        return (parse_locator(name, each, default=default) for each in getattr(self, name) or ())

    @property
    def listen_at(self) -> tuple[Locator, ...]:
        """Where to listen, parsed."""
        return tuple(each for each in self._located("listen") if isinstance(each, Locator))

    @property
    def connect_to(self) -> tuple[Locator, ...]:
        """Whom to connect to, parsed."""
        return tuple(each for each in self._located("connect") if isinstance(each, Locator))

    @property
    def direct_at(self) -> tuple[Locator, ...] | None:
        """Where to take direct streams, parsed; None: nothing is said of that."""
        if self.direct is None:
            return None
        return tuple(each for each in self._located("direct") if isinstance(each, Locator))

    def _rates_problems(self) -> list[ConfigProblem]:
        if not isinstance(self.rates, Mapping):
            return [ConfigProblem("Network: rates", 'rates by who has them, {"guest*": Rate(50)}', show(self.rates))]
        found = []
        for who, rate in self.rates.items():
            found += who_problems(who, "Network: rates")
            if not isinstance(rate, Rate):
                found.append(ConfigProblem(f"Network: rates {who}", "a Rate", show(rate)))
            elif rate.over is not None:
                hint = "what is for a durable sink, or in a log, always waits, and all else is shed"
                found.append(ConfigProblem(f"Network: rates {who}", "no over=", show(rate.over), hint))
        return found

    def _multicast_problems(self) -> list[ConfigProblem]:
        found = []
        if self.multicast is not None and not isinstance(self.multicast, AddressMap):
            expected = "True, or an address map such as HashedGroups() or FixedGroups({...})"
            found.append(ConfigProblem("Network: multicast", expected, show(self.multicast)))
        if isinstance(self.multicast_key, str):
            try:
                object.__setattr__(self, "multicast_key", bytes.fromhex(self.multicast_key))
            except ValueError:
                expected = "16 to 64 bytes, or 32 to 128 hex digits"
                found.append(ConfigProblem("Network: multicast_key", expected, "other characters"))
        return found

    @property
    def wanted(self) -> bool:
        """Whether there is to be a network at all."""
        return bool(self.listen or self.connect or self.scout)

    def __dir__(self) -> list[str]:
        return shown(self, frozenset(("of", *(each.name for each in fields(self)))))

    @classmethod
    def of(cls, given: Network | Mapping[str, Any] | None, **more: Any) -> Network:
        """From a value or a table, with arguments that were given besides."""
        more = {name: value for name, value in more.items() if value is not None}
        if isinstance(given, Network):
            return replace(given, **more)
        made = {**(given or {}), **more}
        wrong = _unknown(cls, made, "[network]")
        tables = {name: kind for name, kind in _TABLES.items() if isinstance(made.get(name), Mapping)}
        for name, kind in tables.items():
            wrong += _unknown(kind, made[name], f"[network.{name}]")
        if wrong:
            raise ConfigError(wrong)
        made.update({name: kind(**made[name]) for name, kind in tables.items()})
        if isinstance(rates := made.get("rates"), Mapping):
            made["rates"] = {who: Rate(**each) if isinstance(each, Mapping) else each for who, each in rates.items()}
        if isinstance(groups := made.get("multicast"), Mapping):
            made["multicast"] = FixedGroups(dict(groups))
        return cls(**made)


_TABLES: dict[str, Any] = {"link": Queue, "budget": Budget, "security": Security}


def _unknown(kind: Any, table: Mapping[str, Any], place: str) -> list[ConfigProblem]:
    """Settings that a table has and its class does not; their values are not told, for they may be secrets."""
    names = [each.name for each in fields(kind) if each.init]
    return [unknown(f"{place} {name}", name, names) for name in table if name not in names]


def endpoints(given: str | int | Sequence[str | int] | None) -> tuple[str, ...]:
    """One endpoint, or several; a number is a port. What can be none is refused by who reads them."""
    if given is None:
        return ()
    several: Iterable[Any] = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else given
    return tuple(str(each) if isinstance(each, int) and not isinstance(each, bool) else each for each in several)
