"""What may be said of a bridge of web clients: where it listens, to whom, and what a client may cost."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

from headwater.bridges.web.session import ALL_BYTES, CLIENT_BYTES
from headwater.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from headwater.bridges.web.gate import Gate
    from headwater.federation.node import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLimits:
    """What a client may cost. Seconds, bytes and numbers."""

    connections: int = 2048
    message: int = 1 << 16  # bytes of a message of a WebSocket
    body: int = 1 << 20  # bytes of a POST
    rate: float = 1000.0  # messages a second, of one client
    burst: int = 2000
    hello: float = 5.0  # seconds until a client must have said who it is, or sent a request
    read: float = 30.0  # seconds in which a POST must have come
    write: float = 30.0  # seconds in which it must take what is sent
    ping: float = 20.0  # seconds between signs of life of an idle WebSocket
    client_bytes: int = CLIENT_BYTES  # that wait for one client, in all its subscriptions
    all_bytes: int = ALL_BYTES  # and for all of them: beyond that, who has more than a share loses the oldest
    all_subscriptions: int = 32_768  # of all clients: beyond that, who has a share gets no more


def address(listen: str) -> tuple[str, int]:
    """The host and port of HOST:PORT."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535 or not host:
        raise ConfigError([ConfigProblem("WebBridge: listen", "HOST:PORT, such as 127.0.0.1:8080", repr(listen))])
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Whether a host, as a request names it, is an address and no name."""
    try:
        ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def networks(option: str, written: Sequence[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    """Addresses, or networks such as 10.0.0.0/8."""
    try:
        return tuple(ip_network(each, strict=False) for each in written)
    except ValueError as error:
        hint = "such as 127.0.0.1 or 10.0.0.0/8"
        raise ConfigError([ConfigProblem(f"WebBridge: {option}", "addresses or networks", str(error), hint)]) from None


def tls(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """The context of PEM files, if there are any."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = "key" if key is None else "certificate"
        raise ConfigError([ConfigProblem(f"WebBridge: {missing}", "certificate and key together", "one of them")])
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        made.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            [ConfigProblem("WebBridge: certificate", "PEM files that belong together", str(error))]
        ) from None
    return made


def check_reach(listen: str, loopback: bool, tls: bool, gate: Gate) -> None:
    """Nothing leaves the machine in the clear, or for everybody, unless that was said."""
    problems: list[ConfigProblem] = []
    if not loopback and not tls and not gate.security.open:
        hint = "give certificate= and key=; or stay on this machine: 127.0.0.1:8080"
        problems.append(ConfigProblem("WebBridge: listen", "TLS beyond this machine", listen, hint))
    if not gate.anonymous and not gate.knows_somebody:
        hint = "give the node Security(users=…), issuers=[…], or let everybody in who reaches it: anonymous=True"
        problems.append(ConfigProblem("WebBridge", "a way to log in", "none", hint))
    if problems:
        raise ConfigError(problems)


def check_channels(names: Sequence[str], shows: Callable[[str], bool], node: Node) -> None:
    """Channels in which clients publish must be there, with a type, and be shown."""
    problems = []
    for name in names:
        if not node.has_channel(name):
            hint = "open it before the bridge: node.channel(name, type)"
            problems.append(ConfigProblem("WebBridge: sources", "channels that there are", repr(name), hint))
        elif node.channel(name).type is None:
            problems.append(ConfigProblem("WebBridge: sources", "channels with a type", f"{name!r}, of bytes"))
        elif not shows(name):
            problems.append(ConfigProblem("WebBridge: sources", "channels that it shows", repr(name), "channels=[…]"))
    if problems:
        raise ConfigError(problems)


def opening(error: BaseException, host: str, port: int) -> BaseException:
    """What is said where it cannot listen."""
    if isinstance(error, OSError):
        problem = ConfigProblem("WebBridge: listen", "an address where it may listen", f"{host}:{port}: {error}")
        return ConfigError([problem])
    return error


__all__ = [
    "WebLimits",
    "address",
    "check_channels",
    "check_reach",
    "is_address",
    "is_loopback",
    "networks",
    "opening",
    "tls",
]
