"""Nodes of a federation in one process: opened together, closed together, and waited for without sleeping."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from headwater.federation.node import Node

GUARD = 30.0  # seconds, against hanging


class Log:
    """A handler that keeps what it gets, with which a test can wait."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self._came = threading.Condition()

    def __call__(self, event: Any) -> None:
        with self._came:
            self.events.append(event)
            self._came.notify_all()

    def wait(self, count: int) -> list[Any]:
        """At least so many events."""
        self.until(lambda events: len(events) >= count, f"{count} events")
        return self.events

    def until(self, condition: Callable[[list[Any]], bool], what: str = "what was waited for") -> None:
        with self._came:
            came = self._came.wait_for(lambda: condition(self.events), GUARD)
        assert came, f"{what} did not come, but {len(self.events)}: {self.events[-20:]}"

    def field(self, name: str) -> list[Any]:
        return [getattr(event, name) for event in self.events]


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


def eventually(condition: Callable[[], bool], what: str = "it", timeout: float = GUARD) -> None:
    """Look again and again, where nothing tells that something has happened."""
    end, pause = monotonic() + timeout, threading.Event()
    while not condition():
        assert monotonic() < end, f"{what} did not happen"
        pause.wait(0.005)


@contextmanager
def nodes() -> Iterator[Nodes]:
    """Nodes that are closed at the end, whatever happens."""
    made = Nodes()
    try:
        yield made
    finally:
        for node in reversed(made.opened):
            node.close(drain=False, timeout=2.0)
