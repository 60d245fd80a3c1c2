"""What this node advertises by name: registered at a server of the name's domain, and renewed before its lease ends."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from headwater.errors import FederationError, HeadwaterError
from headwater.federation.naming.signatures import sign_registration
from headwater.federation.wire.name_requests import NameRegistered, RegisterName
from headwater.services.naming.registration import Registration
from headwater.services.naming.zone import LONGEST_LEASE_SECONDS

if TYPE_CHECKING:
    from headwater.federation.naming.domain_server import DomainServer
    from headwater.federation.naming.lookup import Lookups
    from headwater.federation.naming.reach import Reach
    from headwater.federation.node import Node
    from headwater.federation.security.identity import Identity
    from headwater.services.naming.address import NodeAddress

log = logging.getLogger("headwater.federation")
REGISTER_SECONDS = 3.0  # in which a server answers
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.5, 10.0


@dataclass(eq=False)
class _Advertised:
    """A name that this node has sources of."""

    name: str
    due: float = 0.0  # when it is to be registered again
    pause: float = FIRST_RETRY_SECONDS
    server: NodeAddress | None = None  # where it is registered, and is attended to
    by: Node | None = None  # who attends to that
    run: int = 0  # of that server
    problem: str = ""


class Advertisements:
    """Of one node. Thread-safe."""

    def __init__(
        self, identity: Identity, address: NodeAddress, reach: Reach, lookups: Lookups, server: DomainServer | None
    ) -> None:
        self._identity, self.address, self._reach, self._lookups = identity, address, reach, lookups
        self._server = server
        self._lock = threading.Lock()
        self._names: dict[str, _Advertised] = {}
        self._version = 0

    @property
    def names(self) -> dict[str, str]:
        """What is advertised, and what is wrong with each, if anything."""
        with self._lock:
            return {name: each.problem for name, each in self._names.items()}

    def advertise(self, name: str) -> None:
        """Register a name; FederationError if its domain does not consent, or nobody of it is reached. From then on it
        is renewed."""
        made = _Advertised(name)
        self._register(made)
        with self._lock:
            self._names[name] = made

    def withdraw(self, name: str) -> None:
        """Say that there are no sources any more; if nobody is reached, the lease ends by itself."""
        with self._lock:
            known = self._names.pop(name, None)
        if known is not None:
            try:
                self._register(known, withdrawn=True)
            finally:
                self._attend(known, None)

    def _next_version(self, least: int = 0) -> int:
        with self._lock:
            self._version = max(time.time_ns(), self._version + 1, least)
            return self._version

    def _register(self, advertised: _Advertised, *, withdrawn: bool = False) -> None:
        """At one of the servers of its domain: the others hear of it from that one."""
        name = advertised.name
        problems: list[str] = []
        for server in self._reach.order(self._lookups.servers_of(name)):
            try:
                lease = self._register_at(server, advertised, withdrawn)
            except HeadwaterError as error:
                problems.append(f"{server.brief}: {error}")
                continue
            advertised.due = monotonic() + lease / 3
            advertised.pause, advertised.problem = FIRST_RETRY_SECONDS, ""
            self._attend(advertised, None if withdrawn else server)
            self._lookups.cache.forget(name)
            return
        raise FederationError(f"name {name!r}: expected to be registered, found: {'; '.join(problems) or 'no server'}")

    def _attend(self, advertised: _Advertised, server: NodeAddress | None) -> None:
        """See when the server where a name is registered is started again, and has forgotten it."""
        if server != advertised.server:
            if advertised.server is not None and advertised.by is not None:
                self._reach.release(advertised.server, advertised.by)
            advertised.server, advertised.by = server, None if server is None else self._reach.hold(server)
        if server is not None:
            advertised.run = self._reach.run_of(server)

    def _register_at(self, server: NodeAddress, advertised: _Advertised, withdrawn: bool) -> float:
        """For how long."""
        least = 0
        for _ in range(2):
            registration = Registration(advertised.name, self.address, withdrawn)
            version = self._next_version(least)
            signed = sign_registration(self._identity, registration, version, LONGEST_LEASE_SECONDS)
            if self._server is not None and server.node == self._server.address.node:
                answer = self._server.register_own(signed)
            else:
                answer = self._reach.ask(server, RegisterName(signed.to_bytes()), REGISTER_SECONDS)
            if not isinstance(answer, NameRegistered):
                raise FederationError(f"expected a lease, found {type(answer).__name__}")
            if answer.lease > 0:
                return answer.lease
            least = answer.known + 1  # this node's clock was set back
        raise FederationError("a greater version is known; set the clocks right")

    def look(self) -> None:
        """Renew what is due, and what a server may have forgotten because it was started again."""
        with self._lock:
            known = list(self._names.values())
        for each in known:
            if monotonic() < each.due and not self._restarted(each):
                continue
            try:
                self._register(each)
            except HeadwaterError as error:
                if not each.problem:
                    log.warning("names: %s is not renewed: %s", each.name, error)
                each.problem = str(error)
                each.due = monotonic() + each.pause
                each.pause = min(LONGEST_RETRY_SECONDS, 2 * each.pause)

    def _restarted(self, advertised: _Advertised) -> bool:
        server = advertised.server
        if server is None:
            return False
        run = self._reach.run_of(server)
        return bool(run and run != advertised.run)

    def withdraw_all(self) -> None:
        """At the end: what cannot be said is left to the leases."""
        for name in self.names:
            try:
                self.withdraw(name)
            except HeadwaterError as error:
                log.info("names: %s is left to its lease: %s", name, error)


__all__ = ["Advertisements"]
