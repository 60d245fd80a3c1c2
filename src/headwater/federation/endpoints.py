"""Which endpoints leave the machine."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address

_LOCAL = ("unix", "unixsock-stream", "unixpipe")  # files of this machine
_INTERFACES = ("lo", "lo0")
ENCRYPTED = ("tls", "quic")


def protocol(endpoint: str) -> str:
    """The protocol of an endpoint such as `tcp/127.0.0.1:7447`."""
    return endpoint.partition("/")[0]


def is_loopback(endpoint: object) -> bool:
    """Whether only processes of this machine can be at the other side of an endpoint. What is not understood is not."""
    if not isinstance(endpoint, str) or "/" not in endpoint:
        return False
    kind, _, address = endpoint.partition("/")
    return kind in _LOCAL or _is_loopback_address(address)


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
    if host == "localhost":
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
