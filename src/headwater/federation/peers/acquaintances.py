"""The nodes that somebody here deals with, where a node does not know all others of its federation; and of channels
that were subscribed to by name, whose sources count."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.federation.fabric.attention import any_of_name
from headwater.federation.security.identity import is_id

if TYPE_CHECKING:
    from headwater.federation.fabric.fabric import Fabric


class Acquaintances:
    """Of one node: whoever deals with another node `holds` it, and `releases` it in the end. Thread-safe. Where all
    nodes are known this counts, and has no other effect."""

    def __init__(self, fabric: Fabric, known: Callable[[str], bool]) -> None:
        """`known` says whether the node of an id is a peer: it is attended to until it is forgotten."""
        self._fabric, self._known = fabric, known
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()  # by id, or by name
        self._consents: dict[str, Counter[str]] = {}  # by channel: nodes, by id, whose sources count

    def hold(self, node: str) -> None:
        """Attend to a node, by its id, or to all of a name."""
        with self._lock:
            self._held[node] += 1
            first = self._held[node] == 1
        if first:
            self._fabric.attend(_key(node))

    def release(self, node: str) -> None:
        """One that has held it does so no more."""
        with self._lock:
            self._held[node] -= 1
            last = self._held[node] <= 0
            if last:
                del self._held[node]
        if last and not self._known(node):
            self._fabric.ignore(_key(node))

    def has(self, node: str) -> bool:
        """Whether somebody holds the node of an id."""
        with self._lock:
            return node in self._held or node.rpartition(".")[0] in self._held

    def consent(self, channel: str, node: str) -> None:
        """Of a channel, the sources of this node count, and those of others only if they are named as well."""
        with self._lock:
            self._consents.setdefault(channel, Counter())[node] += 1

    def revoke(self, channel: str, node: str) -> None:
        """One that has named it does so no more. When none is named, all count again."""
        with self._lock:
            named = self._consents.get(channel, Counter())
            named[node] -= 1
            if named[node] <= 0:
                del named[node]
            if not named:
                self._consents.pop(channel, None)

    def consented(self, node: str, channel: str) -> bool:
        """Whether sources that a node has of a channel count here."""
        named = self._consents.get(channel)
        return named is None or node in named

    def forgotten(self, node: str) -> None:
        """A peer is not known any more: its signs of life matter if somebody holds it."""
        with self._lock:
            held = node in self._held
        if not held:
            self._fabric.ignore(node)

    def __len__(self) -> int:
        return len(self._held)


def _key(node: str) -> str:
    return node if is_id(node) else any_of_name(node)


__all__ = ["Acquaintances"]
