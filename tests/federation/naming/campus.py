"""Federations of a campus in one process: a root, and domains with a router each; nodes are known by name only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from headwater import Network, Node
from headwater.federation.security.identity import Identity
from headwater.names import Delegation, Names, NodeAddress

GUARD = 120.0  # seconds, against hanging
ANYBODY = [{"names": "**", "who": "*"}]


@cache
def owner(domain: str) -> Identity:
    """The key of a domain's owner."""
    return Identity.ephemeral("owner")


def address_of(node: Node, *endpoints: str) -> NodeAddress:
    """Where a node is, as its server's or its domain's address."""
    report = node.federation_report()
    return NodeAddress(node.id, report.federation, endpoints or tuple(node.endpoints))


class Campus:
    """Everything is closed at the end. `root` serves the root, in a federation of its own."""

    def __init__(self, **network: Any) -> None:
        self.nodes: list[Node] = []
        self._network = network
        self.root = self.hub("root", "core")
        self.names: dict[str, Names] = {}

    def hub(self, name: str, federation: str, **network: Any) -> Node:
        """A node that others of its federation, and visitors, connect to."""
        return self._open(name, listen="tcp/127.0.0.1:0", router=True, federation=federation, **network)

    def node(self, name: str, hub: Node, **network: Any) -> Node:
        """A node of a hub's federation; it can be called for direct streams."""
        federation = hub.federation_report().federation
        given = {"direct": "tcp/127.0.0.1:0", **network}
        return self._open(name, connect=hub.endpoints[0], client=True, federation=federation, **given)

    def _open(self, name: str, **network: Any) -> Node:
        made = Node(name, network=Network(acquaintance="named", **{**self._network, **network}))
        self.nodes.append(made)
        return made

    def serve_root(self, parts: dict[str, Sequence[Node | NodeAddress]], **more: Any) -> Names:
        """The root, which gives away domains to be served by these."""
        delegations = {part: Delegation(owner(part).fingerprint, _addresses(who)) for part, who in parts.items()}
        plain = {part: {"owner": each.owner, "servers": each.servers} for part, each in delegations.items()}
        return self.serve(".", self.root, delegations=plain, parent=[], **more)

    def serve(self, domain: str, node: Node, **more: Any) -> Names:
        """Have a node serve a domain."""
        settings = {
            "domain": domain,
            "key": owner(domain),
            "parent": [address_of(self.root)],
            "advertise": ANYBODY,
            **more,
        }
        made = Names(node, {"anchors": self.anchors(), "serve": [settings]})
        self.names[node.name] = made
        return made

    def use(self, node: Node, *servers: Node | NodeAddress, **more: Any) -> Names:
        """Have a node look names up, by asking these."""
        made = Names(node, {"anchors": {".": owner(".").fingerprint}, "servers": list(_addresses(servers)), **more})
        self.names[node.name] = made
        return made

    def anchors(self) -> dict[str, Any]:
        return {".": {"owner": owner(".").fingerprint, "servers": [address_of(self.root)]}}

    def close(self) -> None:
        for node in reversed(self.nodes):
            node.close(drain=False)


def _addresses(nodes: Sequence[Node | NodeAddress]) -> tuple[NodeAddress, ...]:
    return tuple(each if isinstance(each, NodeAddress) else address_of(each) for each in nodes)


@contextmanager
def campus(**network: Any) -> Iterator[Campus]:
    """A campus that is closed at the end, whatever happens."""
    made = Campus(**network)
    try:
        yield made
    finally:
        made.close()


def settings_file(folder: Path, text: str) -> Path:
    path = folder / "names.toml"
    path.write_text(text)
    return path
