"""What a Zenoh session is told before it opens: names, endpoints, ports, times.

No session is opened here. Everything a user can get wrong is found here, all of it at once (`ConfigError`).
"""

from __future__ import annotations

import re
import secrets
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Literal

from headwater.errors import ConfigError, ConfigProblem
from headwater.federation.endpoints import STREAMS, Locator, parse_locator
from headwater.federation.fabric.file_limit import share_of_files

Mode = Literal["peer", "router", "client"]
MODES: tuple[str, ...] = ("peer", "router", "client")
GROUP = "224.0.0.224:7446"  # where Zenoh scouts unless told otherwise
MESSAGE_BYTES = 64 * 1024 * 1024  # bytes of one message; a larger one is dropped by Zenoh where it arrives

# A frozen node shows in two ways: nothing comes from it for SILENCE of the lease, or nothing can be sent to it for
# STUCK of the lease. While a post is stuck, Zenoh does not act on silence, so the two add up: to the lease. Silence
# must end first: a connection that Zenoh closes because it is stuck lingers for ten seconds with what was not sent.
SILENCE = 0.45
STUCK = 0.55

# Who connects to Zenoh and says nothing holds one of so many places, for the ten seconds that Zenoh also allows to an
# honest node on a busy machine. (100 places unless told otherwise: a hundred connections then keep every node out.)
UNGREETED_SESSIONS = 2048  # if the process may have four times as many files open

_NAME = re.compile(r"[A-Za-z0-9._-]+\Z")
_LONGEST = 200


def name_problem(place: str, name: object) -> ConfigProblem | None:
    """What is wrong with the name of a federation or the id of a node, if anything."""
    if isinstance(name, str) and len(name) <= _LONGEST and _NAME.match(name):
        return None
    found = repr(name) if len(repr(name)) <= 60 else f"{repr(name)[:60]}…"
    return ConfigProblem(place, f"1 to {_LONGEST} letters, digits, '.', '_' or '-'", found)


@dataclass(frozen=True, slots=True)
class Scouting:
    """Where to look for nodes by multicast."""

    group: str = GROUP
    interface: str = "auto"


def parse_scout(place: str, scout: object) -> Scouting | ConfigProblem | None:
    """`False`, `True`, "224.0.0.224:7446" or "224.0.0.224:7446#iface=lo"."""
    if scout is False or scout is None:
        return None
    if scout is True:
        return Scouting()
    expected = f"True, False, or a multicast group such as '{GROUP}' or '{GROUP}#iface=lo'"
    if not isinstance(scout, str):
        return ConfigProblem(place, expected, repr(scout))
    group, _, tail = scout.partition("#")
    host, _, port = group.rpartition(":")
    try:
        fits = ip_address(host.strip("[]")).is_multicast and 0 < int(port) < 65536
    except ValueError:
        fits = False
    if not fits or (tail and not re.match(r"iface=[A-Za-z0-9._:@-]+\Z", tail)):
        return ConfigProblem(place, expected, repr(scout))
    return Scouting(group, tail.removeprefix("iface=") or "auto")


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Everything checked: what `session_config` turns into Zenoh's own configuration."""

    mode: Mode
    listen: tuple[Locator, ...]
    connect: tuple[Locator, ...]
    scout: Scouting | None
    lease: float
    settings: Mapping[str, Any]


def check(
    federation: object,
    node: object,
    *,
    listen: Sequence[str | Locator],
    connect: Sequence[str | Locator],
    scout: object,
    mode: object,
    lease: object,
    settings: Mapping[str, Any],
) -> SessionSettings:
    """Judge all settings together; raises `ConfigError` with every problem."""
    problems = [p for p in (name_problem("federation", federation), name_problem("node", node)) if p is not None]
    found: dict[str, list[Locator]] = {"listen": [], "connect": []}
    for place, texts in (("listen", listen), ("connect", connect)):
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            problems.append(ConfigProblem(place, "a list of endpoints", repr(texts), f"write {place}=[{texts!r}]"))
            continue
        for text in texts:
            endpoint = parse_locator(place, text)
            if isinstance(endpoint, ConfigProblem):
                problems.append(endpoint)
            else:
                found[place].append(endpoint)
    for endpoint in found["connect"]:
        if not endpoint.unix and endpoint.port == 0:
            problems.append(ConfigProblem("connect", "the port at which the other node listens", endpoint.shown))
    scouting = parse_scout("scout", scout)
    if isinstance(scouting, ConfigProblem):
        problems.append(scouting)
    if mode not in MODES:
        problems.append(ConfigProblem("mode", f"one of {', '.join(MODES)}", repr(mode)))
    if mode == "client" and listen:
        problems.append(
            ConfigProblem("listen", "nothing in mode 'client'", repr(listen), "a client is not connected to")
        )
    if mode == "client" and not connect and not scout:
        problems.append(ConfigProblem("connect", "an endpoint, or scout=True, in mode 'client'", "neither"))
    if isinstance(lease, bool) or not isinstance(lease, int | float) or not 0.1 <= lease <= 3600:
        problems.append(ConfigProblem("lease", "0.1 to 3600 seconds", repr(lease)))
    if not isinstance(settings, Mapping):
        problems.append(ConfigProblem("settings", "a table of Zenoh settings", repr(settings)))
    if problems:
        raise ConfigError(problems)
    assert not isinstance(scouting, ConfigProblem) and isinstance(lease, int | float)
    peers = tuple(found["connect"])
    return SessionSettings(
        mode,  # type: ignore[arg-type]
        tuple(found["listen"]) or default_listen(mode, peers, scouting),
        peers,
        scouting,
        float(lease),
        settings,
    )


def default_listen(mode: object, connect: Sequence[Locator], scout: Scouting | None) -> tuple[Locator, ...]:
    """Where a node listens that was not told: the others must be able to reach it, or no mesh forms.

    Loopback if everything it knows of is on this machine, else every address; the port is chosen by the system.
    """
    if mode == "client":
        return ()
    far = any(not endpoint.loopback for endpoint in connect) or (scout is not None and scout.interface != "lo")
    protocol = next((e.protocol for e in connect if not e.unix), "tcp")
    if not far:
        return (Locator(protocol, "127.0.0.1:0"),)
    return (Locator(protocol, "[::]:0" if socket.has_dualstack_ipv6() else "0.0.0.0:0"),)


class Ports:
    """Free ports for endpoints that listen at port 0: Zenoh does not tell which port it got, so it is chosen first.

    Where the system allows two sockets to be bound to one port as long as only one listens (Linux), the port is held
    until Zenoh listens there and nobody else can get it; elsewhere it is let go first and may be lost to another.
    """

    def __init__(self, wanted: Sequence[Locator]) -> None:
        self._held: list[socket.socket] = []
        self.chosen = any(self._open(endpoint) for endpoint in wanted)
        self.endpoints = tuple(self._choose(endpoint) for endpoint in wanted)

    @staticmethod
    def _open(endpoint: Locator) -> bool:
        return not endpoint.unix and endpoint.port == 0

    def _choose(self, endpoint: Locator) -> Locator:
        if not self._open(endpoint):
            return endpoint
        stream = endpoint.protocol in STREAMS
        kind = socket.SOCK_STREAM if stream else socket.SOCK_DGRAM
        family, _, _, _, address = socket.getaddrinfo(endpoint.host, 0, type=kind)[0]
        holder = socket.socket(family, kind)
        try:
            if stream:
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(address)
            port = int(holder.getsockname()[1])
        except OSError:
            holder.close()
            raise
        if stream and sys.platform == "linux":
            self._held.append(holder)
        else:
            holder.close()
        return endpoint.at(endpoint.host, port)

    def release(self) -> None:
        for holder in self._held:
            holder.close()
        self._held.clear()


def merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `over` on top; a key may be a path ("transport/link/tls")."""
    for path, value in over.items():
        *tables, key = str(path).split("/")
        table = base
        for name in tables:
            table = table.setdefault(name, {})
        if isinstance(value, Mapping) and isinstance(table.get(key), dict):
            merge(table[key], value)
        else:
            table[key] = merge({}, value) if isinstance(value, Mapping) else value
    return base


def session_config(settings: SessionSettings, listen: Sequence[Locator]) -> dict[str, Any]:
    """Zenoh's configuration of a node's session."""
    scout = settings.scout
    config: dict[str, Any] = {
        "mode": settings.mode,
        "listen": {"endpoints": [e.zenoh for e in listen], "exit_on_failure": True, "timeout_ms": 0},
        "connect": {
            # An endpoint where nobody answers yet is tried again and again: first soon, then every two seconds.
            "endpoints": [e.zenoh for e in settings.connect],
            "exit_on_failure": False,
            "timeout_ms": 0 if settings.mode == "client" else -1,
            "retry": {"period_init_ms": 100, "period_max_ms": 2000, "period_increase_factor": 2},
        },
        "scouting": {
            # How long opening waits for a first connection; it goes on without one afterwards.
            "delay": 200 if settings.connect or scout else 0,
            "multicast": {"enabled": False},
            "gossip": {"enabled": True, "autoconnect": {"router": [], "peer": ["router", "peer"]}},
        },
        "transport": {
            # Messages are ours, signed and small; a killed process must not leave shared memory behind.
            "shared_memory": {"enabled": False},
            "unicast": {"accept_pending": share_of_files(UNGREETED_SESSIONS)},
            "link": {
                "tx": {
                    "lease": max(50, round(settings.lease * SILENCE * 1000)),
                    "keep_alive": 4,
                    "queue": {
                        "congestion_control": {"block": {"wait_before_close": round(settings.lease * STUCK * 1e6)}}
                    },
                },
                "rx": {"max_message_size": MESSAGE_BYTES},
            },
        },
    }
    if scout is not None:
        config["scouting"]["multicast"] = {
            "enabled": True,
            "address": scout.group,
            "interface": scout.interface,
            "autoconnect": {"router": ["router"], "peer": ["router", "peer"], "client": ["router", "peer"]},
        }
    match merge({}, settings.settings):
        case {"transport": {"auth": {"usrpwd": _}}} if settings.mode == "peer":
            _let_one_dial(config, settings.listen)
    return merge(config, settings.settings)


def _let_one_dial(config: dict[str, Any], listen: Sequence[Locator]) -> None:
    """Of two nodes that hear of each other through a third, let one dial: the one with the greater Zenoh id.

    With user and password, who accepts a connection knows the other's user, and who dials does not. If both dial at
    once, Zenoh finds at each end that the two connections do not fit together, and closes both: nobody tries again.
    Who dials must be able to reach the other. A node that listens at any free port is behind a firewall more likely
    than one that was told its port, so its id is the greater one. (Elsewhere both dial, and one success is enough.
    So it is with scouting, which is repeated.)
    """
    told = any(endpoint.unix or endpoint.port for endpoint in listen)
    number = bytearray(secrets.token_bytes(16))
    for end in (0, -1):  # Zenoh does not say from which end it compares ids
        number[end] = number[end] & 0x3F | (0x40 if told else 0x80)
    config["id"] = number.hex()
    config["scouting"]["gossip"]["autoconnect_strategy"] = {"peer": {"to_router": "always", "to_peer": "greater-zid"}}


def matchmaker_config(config: Mapping[str, Any], home: Locator, lost: Sequence[str]) -> dict[str, Any]:
    """The configuration of a short-lived session that connects to this node (`home`) and to `lost` ones."""
    if home.wildcard:
        home = home.at("::1" if home.host == "::" and not socket.has_dualstack_ipv6() else "127.0.0.1", home.port)
    tail = "#verify_name_on_connect=false" if home.protocol in ("tls", "quic") and "#" not in home.tail else ""
    base = merge({}, config)
    base.pop("id", None)  # it is a session of its own
    return merge(
        base,
        {
            "mode": "peer",
            "listen": {"endpoints": []},
            "connect": {"endpoints": [f"{home.zenoh}{tail}", *lost]},
            "scouting": {
                "delay": 0,
                "multicast": {"enabled": False},
                "gossip": {"enabled": True, "autoconnect": {"router": [], "peer": []}},
            },
        },
    )


_PLACE = re.compile(r"\s*\(?at /\S+\.rs:\d+\.?\)?")


def plain(error: BaseException) -> str:
    """Zenoh's message without the places in Zenoh's own source."""
    return _PLACE.sub("", str(error)).strip().rstrip(".") or type(error).__name__
