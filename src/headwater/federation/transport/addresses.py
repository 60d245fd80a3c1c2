"""Where a node can be reached with direct streams."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress

from headwater.federation.endpoints import is_loopback
from headwater.federation.network import Network
from headwater.federation.transport.link import Endpoint, parse_endpoint

_ANY = ("0.0.0.0", "::", "")


def stream_endpoints(network: Network, *, secure: bool) -> list[str]:
    """Where to listen for direct streams: as configured, else on the hosts on which Zenoh is to listen."""
    if network.direct is not None:
        return [str(each) for each in network.direct_at or ()]
    if network.client:
        return []
    kind = "tls" if secure else "tcp"
    hosts = [each.address.rpartition(":")[0] for each in network.listen_at if not each.unix]
    if not hosts:
        hosts = ["127.0.0.1" if all(map(is_loopback, network.connect_to)) else "0.0.0.0"]
    return [f"{kind}/{host}:0" for host in dict.fromkeys(hosts)]


def announced(endpoints: Iterable[str]) -> list[str]:
    """The same as others can use them: "any address" becomes the addresses that this machine has."""
    made: list[str] = []
    for text in endpoints:
        found: Endpoint = parse_endpoint(text)
        if found.kind == "unix" or found.host not in _ANY:
            made.append(text)
        else:
            made += [f"{found.kind}/{address}:{found.port}" for address in own_addresses()]
    return made


def own_addresses() -> list[str]:
    """IPv4 addresses of this machine, as far as they can be found out."""
    found: dict[str, None] = {}
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent: it only shows which address would be used
        found[probe.getsockname()[0]] = None
    with suppress(OSError):
        for address in socket.gethostbyname_ex(socket.gethostname())[2]:
            found[address] = None
    return list(found) or ["127.0.0.1"]
