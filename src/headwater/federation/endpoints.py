"""How an endpoint is written, and which endpoints leave the machine.

    tcp/127.0.0.1:7447     tls/lab.example:7447     unix//run/headwater.sock       as Zenoh writes them
    tcp://127.0.0.1:7447   127.0.0.1:7447           localhost:7447    [::1]:7447   7447 (of this machine)

Everything that takes an endpoint has it read here.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address

from headwater.errors import ConfigProblem

STREAMS = ("tcp", "tls", "ws")
DATAGRAMS = ("udp", "quic")
SOCKETS = ("unix", "unixsock-stream")
PROTOCOLS = (*STREAMS, *DATAGRAMS, *SOCKETS)
ENCRYPTED = ("tls", "quic")
HIGHEST_PORT = 65_535
EXAMPLE = "an endpoint such as '127.0.0.1:7447' or 'tls/lab.example:7447'"

_LOCAL = ("unix", "unixsock-stream", "unixpipe")  # files of this machine
_INTERFACES = ("lo", "lo0")
_NOT_IN_A_HOST = frozenset("/[]@#?,\\")


@dataclass(frozen=True, slots=True)
class Locator:
    """Where a Zenoh session listens or connects: `protocol/address`, and what may follow (Zenoh's "#settings").

    A Unix socket is written as for direct streams, `unix//path`, or with Zenoh's word `unixsock-stream`. `written` is
    what the user wrote, and `place` the setting in which that stood: for errors.
    """

    protocol: str
    address: str
    tail: str = ""
    written: str = field(default="", compare=False)
    place: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.protocol}/{self.address}{self.tail}"

    @property
    def shown(self) -> str:
        """As the user wrote it, in quotes."""
        return repr(self.written or str(self))

    @property
    def zenoh(self) -> str:
        """As Zenoh wants it."""
        return f"unixsock-stream/{self.address}{self.tail}" if self.unix else str(self)

    @property
    def unix(self) -> bool:
        return self.protocol in SOCKETS

    @property
    def host(self) -> str:
        """The host, an IPv6 address without its brackets; of a Unix socket ""."""
        return "" if self.unix else self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return 0 if self.unix else int(self.address.rpartition(":")[2])

    def at(self, host: str, port: int) -> Locator:
        return Locator(self.protocol, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", self.tail)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can be at this endpoint."""
        if self.unix or self.host.lower() == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def wildcard(self) -> bool:
        """Whether this listens at every address of the machine."""
        try:
            return not self.unix and ip_address(self.host).is_unspecified
        except ValueError:
            return False


def parse_locator(place: str, given: object, *, default: str = "tcp") -> Locator | ConfigProblem:
    """An endpoint from its text, or what is wrong with it. `default` is its protocol where the text names none."""
    if isinstance(given, Locator):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    if not isinstance(given, str):
        return ConfigProblem(place, EXAMPLE, repr(given))
    text = given.strip()
    cut = min((at for at in (text.find("?"), text.find("#")) if at >= 0), default=len(text))
    split = _split(text[:cut], default)
    if split is None:
        return ConfigProblem(place, EXAMPLE, repr(given), _other_form(text))
    protocol, address = split
    if protocol not in PROTOCOLS:
        return ConfigProblem(place, f"one of the protocols {', '.join(PROTOCOLS)}", repr(given), _other_form(text))
    if protocol not in SOCKETS:
        wrong = _address_problem(protocol, address)
        if wrong is not None:
            expected, hint = wrong
            return ConfigProblem(place, expected, repr(given), hint)
    return Locator(protocol, address, text[cut:], given, place)


def _split(text: str, default: str) -> tuple[str, str] | None:
    """The protocol and the address."""
    protocol, url, address = text.partition("://")
    if url:
        protocol = protocol.lower()
        return (protocol, address if protocol in SOCKETS else address.removesuffix("/")) if address else None
    protocol, slash, address = text.partition("/")
    if slash:
        return (protocol.lower(), address) if protocol and address else None
    if text.isascii() and text.isdigit():
        return default, f"127.0.0.1:{text}"
    if not text or text.partition(":")[0].lower() in PROTOCOLS:
        return None
    return default, text


def _other_form(text: str) -> str | None:
    """What may have been meant by a text that is no endpoint."""
    protocol, colon, address = text.partition(":")
    if text.startswith("/"):
        return f"a Unix socket is written unix/{text}"
    if colon and protocol.lower() in PROTOCOLS and "/" not in address and address:
        return f"write {protocol.lower()}/{address}"
    return "several endpoints are a list of them" if "," in text else None


def _address_problem(protocol: str, address: str) -> tuple[str, str | None] | None:
    """What is expected of `host:port`, and a hint, if this is none."""
    host, colon, port = address.rpartition(":")
    expected = f"'{protocol}/host:port' with a port from 0 to {HIGHEST_PORT}"
    if "," in address:
        return expected, "several endpoints are a list of them"
    if not colon:
        return expected, f"name the host and the port, as in {address}:7447"
    if not host:
        return expected, f"name the host: 127.0.0.1:{port} is of this machine, 0.0.0.0:{port} every address of it"
    if host.startswith("[") and host.endswith("]"):
        if not _is_address(host[1:-1], IPv6Address):
            return "an IPv6 address in [ ]", None
    elif ":" in host:
        return "an IPv6 address in brackets", _in_brackets(protocol, address)
    elif not _is_host(host):
        return f"a host's name or address in '{protocol}/host:port'", None
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= HIGHEST_PORT):
        return expected, "port 0 listens at any free one" if not port else None
    return None


def _in_brackets(protocol: str, address: str) -> str:
    """How an address with several colons is written: what follows the last one was meant as its port, if it can be."""
    host, _, port = address.rpartition(":")
    if not _is_address(host, IPv6Address) and _is_address(address, IPv6Address):
        host, port = address, "7447"
    return f"write {protocol}/[{host}]:{port}"


def _is_host(host: str) -> bool:
    if all(part.isascii() and (part.isdigit() or part == ".") for part in host):  # no name is like that
        return _is_address(host, IPv4Address)
    return all(sign.isprintable() and not sign.isspace() for sign in host) and not set(host) & _NOT_IN_A_HOST


def _is_address(text: str, kind: type[IPv4Address | IPv6Address]) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def resolve(endpoint: Locator) -> list[str]:
    """The addresses of an endpoint's host; OSError if its name does not resolve. A Unix socket has none."""
    if endpoint.unix:
        return []
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, socket.gaierror) else error
        raise OSError(f"the name {endpoint.host!r} does not resolve: {why}") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def protocol(endpoint: str) -> str:
    """The protocol of an endpoint such as `tcp/127.0.0.1:7447`."""
    return endpoint.partition("/")[0]


def is_loopback(endpoint: object) -> bool:
    """Whether only processes of this machine can be at the other side of an endpoint. What is not understood is not."""
    if not isinstance(endpoint, str | Locator):
        return False
    found = parse_locator("", endpoint)
    kind, slash, address = str(found if isinstance(found, Locator) else endpoint).partition("/")
    return bool(slash) and (kind in _LOCAL or _is_loopback_address(address))


def loopback_only(endpoints: Iterable[object], *, scout: object = None) -> bool:
    """Whether none of these endpoints leaves the machine, nor the scouting for others.

    `scout` is false for no scouting, true for scouting everywhere, or the multicast group to scout on, which stays on
    this machine only with the interface: "224.0.0.224:7446#iface=lo".
    """
    if isinstance(endpoints, str):
        endpoints = [endpoints]
    return is_local_scouting(scout) and all(is_loopback(endpoint) for endpoint in endpoints)


def is_local_scouting(scout: object) -> bool:
    """Whether this way of scouting finds only nodes of this machine."""
    return not scout or (isinstance(scout, str) and _is_loopback_address(scout))


def _is_loopback_address(text: str) -> bool:
    text, _, settings = text.partition("#")
    host = text.partition("?")[0].rpartition(":")[0]
    if host.lower() == "localhost":
        return True
    found = _address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
    if found is None:
        return False
    # Only a group is bound to its interface for sure; other sockets are so where the system allows it.
    bound = any(setting == f"iface={name}" for setting in settings.split(";") for name in _INTERFACES)
    return found.is_loopback or (found.is_multicast and bound)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(host)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
