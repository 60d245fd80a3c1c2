"""A subscription by name: to all sources of a name, in whichever federations they are, as they come and go.

In each federation where there are sources it is a subscription like any, of this node or of its leg there: interests
go to the sources, and only what passes leaves them. Where a gateway is to be used, what is in other federations comes
through that, and it is a subscription of this node alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError, Unreachable

if TYPE_CHECKING:
    from headwater.channel.subscription import Subscription
    from headwater.federation.naming.reach import Reach
    from headwater.federation.node import Node
    from headwater.services.naming.address import NodeAddress
    from headwater.services.naming.answer_cache import Answer

log = logging.getLogger("headwater.federation")
FOUND_SECONDS = 5.0  # in which a node that has sources has said so
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 30.0  # until what was not reached is tried again
ROUTE_SECONDS = 20.0  # after which a gateway is asked again to pass the name on
FOLLOW_SECONDS = 60.0  # after which a name is looked up again, though no change of it was told


@dataclass(eq=False)
class _Part:
    """In one federation."""

    node: Node
    subscription: Subscription[Any] | None = None
    held: dict[str, NodeAddress] = field(default_factory=dict)  # nodes with sources, by id


class NamedSubscription:
    """Made by `Names.subscribe`. The handler is called with one event at a time, whichever federation it is from;
    events of one source are in its order. `parts` are the subscriptions, by federation; `missing` says which sources
    that were found are not reached, and why."""

    def __init__(
        self,
        name: str,
        handler: Callable[..., object],
        where: Any,
        options: Mapping[str, Any],
        reach: Reach,
        route: Callable[[NodeAddress], NodeAddress],
    ) -> None:
        """`route` says at which node to have the events of a node's sources: at that one, or at a gateway."""
        self.name, self._where, self._options = name, where, dict(options)
        self._take, self._reach, self._route = one_at_a_time(handler), reach, route
        self._updating = threading.Lock()
        self._parts: dict[str, _Part] = {}
        self._again = float("inf")  # when to look again
        self._pause = FIRST_RETRY_SECONDS
        self.missing: dict[str, str] = {}
        self.follows = False  # it looks again now and then
        self.closed = False

    @property
    def parts(self) -> dict[str, Subscription[Any]]:
        """The subscription in each federation where sources were found."""
        found = list(self._parts.items())
        return {federation: part.subscription for federation, part in found if part.subscription is not None}

    @property
    def sources(self) -> list[str]:
        """The nodes that have sources, as "node@federation"; through a gateway, that one."""
        return sorted(each.brief for part in list(self._parts.values()) for each in part.held.values())

    @property
    def refused(self) -> dict[str, str]:
        """Sources that do not take the interest, and why."""
        return {place: why for part in self.parts.values() for place, why in part.refused.items()}

    def update(self, answer: Answer, gone: frozenset[str] = frozenset()) -> None:
        """These are the sources by now; those of nodes that are `gone`, or that are not found and not there either, are
        let go. It waits for nodes that are new."""
        with self._updating:
            if self.closed:
                return
            self._again = monotonic() + FOLLOW_SECONDS if self.follows else float("inf")
            wanted = {each.node: each for each in map(self._route_of, answer.sources) if each is not None}
            for address in wanted.values():
                try:
                    self._add(address)
                    self.missing.pop(address.brief, None)
                except HeadwaterError as error:
                    self.missing[address.brief] = str(error)
            self._let_go(set(wanted), gone)
            found = {each.address.brief for each in answer.sources} | {each.brief for each in wanted.values()}
            self.missing = {place: why for place, why in self.missing.items() if place in found}
            self._pause = min(LONGEST_RETRY_SECONDS, 2 * self._pause) if self.missing else FIRST_RETRY_SECONDS
            if self.missing:
                self._again = min(self._again, monotonic() + self._pause)

    def _route_of(self, endorsed: Any) -> NodeAddress | None:
        try:
            found = self._route(endorsed.address)
            self.missing.pop(endorsed.address.brief, None)
            if found is not endorsed.address:  # through a gateway, which is to be asked again in time
                self._again = min(self._again, monotonic() + ROUTE_SECONDS)
            return found
        except HeadwaterError as error:
            self.missing[endorsed.address.brief] = str(error)
            return None

    def _add(self, address: NodeAddress) -> None:
        """Reach one more node with sources, and subscribe in its federation if that is not done yet."""
        part = self._parts.get(address.federation)
        if part is None or address.node not in part.held:
            node = self._reach.hold(address)
            if part is None or part.node.closed or part.node is not node:
                if part is not None:
                    self._close_part(part)
                part = self._parts[address.federation] = _Part(node)
            part.held[address.node] = address
            self._consent(part.node, address, True)
        if part.subscription is None:
            node = part.node
            if not node.until(lambda: self.closed or node.has_channel(self.name), FOUND_SECONDS):
                raise Unreachable(f"node {address.node} does not say that it has {self.name!r}")
            if self.closed:
                return
            part.subscription = node.channel(self.name).subscribe(self._take, self._where, **self._options)

    def _let_go(self, wanted: set[str], gone: frozenset[str]) -> None:
        for federation, part in list(self._parts.items()):
            for node in [each for each in part.held if each not in wanted]:
                if node in gone or not self._is_there(part.node, node):
                    address = part.held.pop(node)
                    self._consent(part.node, address, False)
                    self._reach.release(address, part.node)
            if not part.held:
                del self._parts[federation]
                self._close_part(part)

    @staticmethod
    def _is_there(node: Node, other: str) -> bool:
        """Whether a node with sources is there, though its domain does not know so: it may have been started again."""
        peer = None if node._engine is None else node._engine.peers.get(other)
        return peer is not None and peer.gone is None

    def _close_part(self, part: _Part) -> None:
        if part.subscription is not None:
            part.subscription.cancel()
        for address in part.held.values():
            self._consent(part.node, address, False)
            self._reach.release(address, part.node)
        part.held.clear()

    def _consent(self, node: Node, address: NodeAddress, given: bool) -> None:
        """Of this channel the sources of a node count, since its domain has consented; or no more. Who is not found by
        name is not heard on it, though it says that it has sources."""
        engine = node._engine
        if engine is None or engine.closed:
            return
        known = engine.presence.acquaintances
        (known.consent if given else known.revoke)(self.name, address.node)
        with engine.node._wiring.lock:
            engine.wired([channel for channel in engine.node.channels() if channel.name == self.name])

    @property
    def due(self) -> bool:
        """Whether something that was found was not reached, and is to be tried again."""
        return monotonic() >= self._again

    def change(self, where: Any = None, **what: Any) -> dict[str, int]:
        """Another interest, or other parameters, at all sources: in each federation at an exact point of each source.
        Returned are the points, by source. Refused in one of them, it is changed back in the others."""
        with self._updating:
            if where is not None:
                what["where"] = where
            points: dict[str, int] = {}
            changed: list[Any] = []
            try:
                for federation, subscription in self.parts.items():
                    made = subscription.change(**what)
                    changed.append(subscription)
                    points.update({f"{source}@{federation}": point for source, point in made.items()})
            except HeadwaterError:
                before = {
                    "where": "true" if self._where is None else self._where,
                    "params": self._options.get("params"),
                }
                for subscription in changed:
                    with suppress(HeadwaterError):
                        subscription.change(**before)
                raise
            if where is not None:
                self._where = where
            if "params" in what:
                self._options["params"] = what["params"]
            return points

    def ready(self, timeout: float = 10.0) -> bool:
        """Wait until every source that was found has taken the interest up, or refused it; False if too late, or if one
        is not reached (`missing`)."""
        end = monotonic() + timeout
        if not self._updating.acquire(timeout=max(0.0, timeout)):  # sources are being reached
            return False
        try:
            parts = list(self._parts.values())
        finally:
            self._updating.release()
        return not self.missing and all(self._is_ready(part, end) for part in parts)

    def _is_ready(self, part: _Part, end: float) -> bool:
        """Whether what is wanted in one federation is in force."""
        return part.subscription is not None and self._reach.is_ready(part.node, list(part.held), self.name, end)

    def cancel(self) -> None:
        """End it in all federations."""
        self.closed = True
        with self._updating:
            for part in list(self._parts.values()):
                self._close_part(part)
            self._parts.clear()

    def __enter__(self) -> NamedSubscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()

    def __repr__(self) -> str:
        return f"<{'closed ' if self.closed else ''}NamedSubscription {self.name!r} at {', '.join(self.sources)}>"


def one_at_a_time(handler: Callable[..., object]) -> Callable[..., object]:
    """A handler that several subscriptions can have in common: it is called by one of them at a time."""
    lock = threading.Lock()

    @wraps(handler)
    def take(*given: Any) -> object:
        with lock:
            return handler(*given)

    return take


__all__ = ["NamedSubscription"]
