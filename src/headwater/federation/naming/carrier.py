"""A gateway for names: it has the events of sources in other federations for the nodes of its own.

A node that is to use one asks it to carry a name. The gateway finds the sources, joins their federations for that one
channel, and passes on what its own federation wants: whatever many nodes ask for leaves the other federation once, and
as little as covers them all. A name is carried while somebody asks for it again before its lease ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from headwater.errors import FederationError, HeadwaterError
from headwater.federation.gateway.gateway import Gateway

if TYPE_CHECKING:
    from headwater.federation.naming.lookup import Lookups
    from headwater.federation.naming.reach import Reach
    from headwater.federation.naming.watch import NameWatch
    from headwater.federation.node import Node
    from headwater.services.naming.address import NodeAddress

log = logging.getLogger("headwater.federation")
MOST_CARRIED = 1_000  # names
LOOK_SECONDS = 5.0  # after which is looked again who has sources, if no change was told
CARRY_SECONDS = 60.0  # for which a name is carried without being asked for again


@dataclass(eq=False)
class _Carried:
    """A name that is passed on."""

    name: str
    until: float = 0.0
    looked: float = 0.0  # when its sources were looked up last
    held: dict[str, tuple[NodeAddress, Node]] = field(default_factory=dict)  # nodes with sources, by id
    gateways: dict[int, Gateway] = field(default_factory=dict)  # by the leg's identity
    watch: NameWatch | None = None
    busy: threading.Lock = field(default_factory=threading.Lock)


class Carrier:
    """Of one node. `carry` and `look` wait for other nodes."""

    def __init__(self, reach: Reach, lookups: Lookups, watch: Callable[[str], NameWatch]) -> None:
        """`watch` has what becomes of a name told to `changed`."""
        self._reach, self._lookups, self._watch = reach, lookups, watch
        self._lock = threading.Lock()
        self._carried: dict[str, _Carried] = {}

    @property
    def names(self) -> list[str]:
        """Those that are passed on."""
        with self._lock:
            return sorted(self._carried)

    def carry(self, name: str) -> float:
        """Pass a name on, from now for so many seconds."""
        with self._lock:
            found = self._carried.get(name)
            if found is None:
                if len(self._carried) >= MOST_CARRIED:
                    raise FederationError(f"gateway: expected at most {MOST_CARRIED:,} names to carry, found more")
                found = self._carried[name] = _Carried(name)
            found.until = monotonic() + CARRY_SECONDS
        self._follow(found)
        return CARRY_SECONDS

    def _follow(self, carried: _Carried) -> None:
        """Have a gateway into each federation where there are sources, and none where there are none."""
        answer = self._lookups.look_up(carried.name)
        with carried.busy:
            if carried.watch is None:
                carried.watch = self._watch(carried.name)
            carried.looked = monotonic()
            wanted = {each.address.node: each.address for each in answer.sources}
            for node, address in wanted.items():
                if node in carried.held or address.federation == self._reach.federation:
                    continue
                leg = self._reach.hold(address)
                carried.held[node] = address, leg
                leg._engine.presence.acquaintances.consent(carried.name, node)  # type: ignore[union-attr]
                if id(leg) not in carried.gateways:
                    carried.gateways[id(leg)] = Gateway(leg, self._reach.home, carried.name, both=False)
            for node in [each for each in carried.held if each not in wanted]:
                self._let_go(carried, node)

    def _let_go(self, carried: _Carried, node: str) -> None:
        address, leg = carried.held.pop(node)
        if all(other is not leg for _, other in carried.held.values()):
            carried.gateways.pop(id(leg)).close()
        if leg._engine is not None:
            leg._engine.presence.acquaintances.revoke(carried.name, node)
        self._reach.release(address, leg)

    def look(self) -> None:
        """Follow sources that come and go, and end what nobody asks for any more."""
        now = monotonic()
        with self._lock:
            known = list(self._carried.values())
        for carried in known:
            try:
                if carried.until < now:
                    self._end(carried)
                elif now - carried.looked > LOOK_SECONDS:
                    self._follow(carried)
            except HeadwaterError as error:
                log.info("names: %s is carried as before: %s", carried.name, error)

    def changed(self, name: str) -> None:
        """Something of a name has changed."""
        with self._lock:
            if (found := self._carried.get(name)) is not None:
                found.looked = 0.0

    def _end(self, carried: _Carried) -> None:
        with self._lock:
            if carried.until >= monotonic():
                return
            self._carried.pop(carried.name, None)
        with carried.busy:
            if carried.watch is not None:
                carried.watch.cancel()
            for node in list(carried.held):
                self._let_go(carried, node)

    def close(self) -> None:
        """End all."""
        for name in self.names:
            carried = self._carried[name]
            carried.until = 0.0
            self._end(carried)


__all__ = ["Carrier"]
