"""Nodes of a federation in one process: opened together, closed together, and waited for without sleeping."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headwater.federation.node import Node
from headwater.testing import Recorder as Log
from headwater.testing import eventually

GUARD = 120.0  # seconds, against hanging


class Nodes:
    """Nodes that all connect to the first one."""

    def __init__(self) -> None:
        self.opened: list[Node] = []

    def __call__(self, name: str, **options: Any) -> Node:
        if "listen" not in options and "connect" not in options:
            options["listen" if not self.opened else "connect"] = (
                "tcp/127.0.0.1:0" if not self.opened else self.opened[0].endpoints[0]
            )
        node = Node(name, **options)
        self.opened.append(node)
        return node

    def together(self, *nodes: Node) -> None:
        """All of them know each other, with what they have, and what they want of each other is in force."""
        wanted = nodes or tuple(self.opened)
        for node in wanted:
            others = {other.name for other in wanted if other is not node}
            assert node.until(lambda node=node, others=others: others <= set(node.peers), GUARD), (
                f"{node}: {node.peers}"
            )

    def ready(self, *sinks: Node) -> None:
        """Every source of the opened nodes is known to these (else all), and so is what they want of it."""
        for node in sinks or tuple(self.opened):
            for other in self.opened:
                if other is not node:
                    see(node, other)
            assert node.ready(GUARD), f"{node}: not ready"

    def flush(self) -> None:
        for node in self.opened:
            if not node.closed:
                assert node.flush(GUARD), f"{node}: not flushed"


def own_sources(node: Node) -> dict[str, int]:
    """By channel, how many sources it has itself."""
    counts: dict[str, int] = {}
    for channel in node.channels():
        own = sum(1 for source in list(channel.sources.values()) if source.local)
        if own and not channel.name.startswith("headwater."):
            counts[channel.name] = own
    return counts


def see(node: Node, other: Node) -> None:
    """Wait until a node knows all sources of another one."""

    def seen() -> bool:
        return all(
            sum(1 for name in node.remote_sources(channel) if name.endswith(f"@{other.name}")) >= count
            for channel, count in own_sources(other).items()
        )

    assert node.until(seen, GUARD), f"{node} does not see the sources of {other}"


@contextmanager
def nodes() -> Iterator[Nodes]:
    """Nodes that are closed at the end, whatever happens."""
    made = Nodes()
    try:
        yield made
    finally:
        for node in reversed(made.opened):
            node.close(drain=False, timeout=2.0)


__all__ = ["GUARD", "Log", "Nodes", "eventually", "nodes", "own_sources", "see"]
