"""Watching names: the changes of a domain's names are a channel of its servers, to which one subscribes like any."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError, SubscriptionError
from headwater.federation.naming.name_change import NameChange
from headwater.federation.naming.reach import REACH_SECONDS
from headwater.services.naming.domains import changes_channel

if TYPE_CHECKING:
    from headwater.channel.subscription import Subscription
    from headwater.federation.naming.reach import Reach
    from headwater.federation.node import Node
    from headwater.services.naming.address import NodeAddress
    from headwater.services.naming.zone_book import ZoneBook

log = logging.getLogger("headwater.federation")
MOST_REMEMBERED = 10_000  # names and nodes of which is remembered what was told last
_ENDS = frozenset(("withdrawn", "expired"))


class NameWatch:
    """A subscription to what becomes of a name, or of all names of a domain, at every server of the domain: each change
    is handed over once, whichever of them tells it first. `where` is an interest over `NameChange`."""

    def __init__(
        self,
        reach: Reach,
        book: ZoneBook,
        domain: str,
        name: str | None,
        handler: Callable[[NameChange], object],
        where: str | None,
    ) -> None:
        if where is not None and not isinstance(where, str):
            raise SubscriptionError(f"watch: where: expected an interest as text over NameChange, found {where!r}")
        self._reach, self._book, self._handler = reach, book, handler
        self.domain, self.name = domain, name
        parts = [f"name == {_quoted(name)}"] if name is not None else []
        self._where = " and ".join([*parts, *([f"({where})"] if where is not None else [])]) or None
        self._lock = threading.Lock()
        self._parts: dict[NodeAddress, tuple[Node, Subscription[Any]]] = {}
        self._told: OrderedDict[tuple[str, str], tuple[int, bool, str]] = OrderedDict()
        self.closed = False
        self.look()

    def look(self) -> None:
        """Listen to those who serve the domain now."""
        known = self._book.known(self.domain)
        servers = set() if known is None else set(known.zone.servers)
        if known is None:
            return
        for server in servers - self._parts.keys():
            try:
                self._listen(server)
            except HeadwaterError as error:
                log.info("names: %s is not listened to for %s: %s", server.node, self.domain, error)
        for server in self._parts.keys() - servers:
            self._leave(server)

    def _listen(self, server: NodeAddress) -> None:
        node = self._reach.hold(server)
        try:
            channel = node.channel(changes_channel(self.domain), NameChange)
            made = channel.subscribe(self._take, self._where)
        except BaseException:
            self._reach.release(server, node)
            raise
        with self._lock:
            if not self.closed and server not in self._parts:
                self._parts[server] = node, made
                return
        made.cancel()
        self._reach.release(server, node)

    def _leave(self, server: NodeAddress) -> None:
        with self._lock:
            node, subscription = self._parts.pop(server, (None, None))
        if node is not None and subscription is not None:
            subscription.cancel()
            self._reach.release(server, node)

    def _take(self, event: NameChange) -> None:
        """Hand over what is new: the same may come from each server, and from a slow one late."""
        key, mark = (event.name, event.id), (event.version, event.change in _ENDS, event.change)
        with self._lock:
            before = self._told.get(key)
            if self.closed or (before is not None and mark[:2] <= before[:2]):
                return
            self._told[key] = mark
            self._told.move_to_end(key)
            while len(self._told) > MOST_REMEMBERED:
                self._told.popitem(last=False)
            self._handler(event)  # with the lock: one after the other, in order

    def ready(self, timeout: float = 10.0) -> bool:
        """Wait until the servers of the domain have taken it up; one that is not reached in a few seconds is not waited
        for, if another one has. False if none has in time."""
        end = monotonic() + timeout
        channel = changes_channel(self.domain)
        while True:
            ready = [
                self._reach.is_ready(node, [server.node], channel, min(end, monotonic() + REACH_SECONDS))
                for server, (node, _) in list(self._parts.items())
            ]
            if any(ready) or not ready or monotonic() >= end:
                return any(ready)
            self.look()

    def cancel(self) -> None:
        """Listen no more."""
        with self._lock:
            self.closed = True
        for server in list(self._parts):
            self._leave(server)

    def __enter__(self) -> NameWatch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


__all__ = ["NameWatch"]
