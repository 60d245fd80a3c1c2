"""A world of names without a network: owners, servers, what they have signed, and what servers say when they are asked.

What is said is real: every zone, registration and endorsement is signed with a key of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache

from headwater.federation.naming.signatures import Signatures, endorse, sign_registration, sign_zone
from headwater.federation.security.identity import Identity
from headwater.services.documents import SignedDocument
from headwater.services.naming.address import NodeAddress
from headwater.services.naming.domains import is_in
from headwater.services.naming.registration import Endorsed, Registration, read_endorsement
from headwater.services.naming.registration_table import RegistrationTable
from headwater.services.naming.resolver import Inquiry, Reply, Resolver, Step
from headwater.services.naming.zone import Delegation, Zone
from headwater.services.naming.zone_book import ZoneBook

LEASE = 60.0
SIGNATURES = Signatures()


@cache
def identity(name: str) -> Identity:
    """A key of its own for each name, made once: making one takes longer than all else."""
    return Identity.ephemeral(name)


def address(name: str, federation: str = "") -> NodeAddress:
    """Where a node of this world is."""
    return NodeAddress(identity(name).id, federation or f"f-{name}", (f"tcp/127.0.0.1:{1000 + len(name)}",))


def endorsed(
    name: str,
    node: str,
    server: str,
    zone: Zone,
    *,
    version: int = 1,
    now: int | None = None,
    lease: float = LEASE,
    withdrawn: bool = False,
) -> Endorsed:
    """A node's registration with a server's consent, as the server keeps it."""
    at = time.time_ns() if now is None else now
    signed = sign_registration(identity(node), Registration(name, address(node), withdrawn), version, 2 * lease, now=at)
    consent = endorse(identity(server), signed, at + round(lease * 1e9), at)
    return read_endorsement(consent, zone, SIGNATURES.verify, at)


@dataclass
class Domain:
    """One domain: its owner, its zone, and the registrations at each of its servers."""

    zone: Zone
    signed: SignedDocument
    tables: dict[str, RegistrationTable] = field(default_factory=dict)  # by server


@dataclass
class World:
    """Domains by name; `servers` are names of nodes. `asked` counts questions."""

    domains: dict[str, Domain] = field(default_factory=dict)
    central: dict[str, set[str]] = field(default_factory=dict)  # by name: ids of nodes with sources
    asked: int = 0

    def add(
        self,
        domain: str,
        servers: Iterable[str],
        parts: Iterable[tuple[str, Iterable[str]]] = (),
        version: int = 1,
        lasts: float = 3600.0,
    ) -> Domain:
        """A domain, with its delegations: names of domains, and of their servers."""
        names = list(servers)
        delegations = {
            part: Delegation(identity(f"owner-{part}".replace("-.", "-root")).fingerprint, tuple(map(address, who)))
            for part, who in parts
        }
        zone = Zone(domain, tuple(map(address, names)), delegations)
        signed = sign_zone(owner_of(domain), zone, version, lasts)
        made = self.domains[domain] = Domain(zone, signed, {name: RegistrationTable(domain) for name in names})
        return made

    def owning(self, name: str) -> Domain:
        """The domain that has a name."""
        inside = [domain for domain in self.domains if is_in(name, domain)]
        return self.domains[max(inside, key=lambda each: (each != ".", len(each)))]

    def register(self, name: str, node: str, *, at: Iterable[str] | None = None, version: int = 1) -> None:
        """A node has sources of a name: known to all servers of its domain, or to some."""
        domain = self.owning(name)
        servers = list(domain.tables) if at is None else list(at)
        made = endorsed(name, node, servers[0], domain.zone, version=version)
        for server in servers:
            domain.tables[server].merge(made, time.time_ns())
        self.central.setdefault(name, set()).add(identity(node).id)

    def says(self, server: str, name: str) -> Reply:
        """What an honest server says of a name."""
        mine = [
            domain for domain in self.domains.values() if server in domain.tables and is_in(name, domain.zone.domain)
        ]
        if not mine:
            return Reply(above=self._parents(server))
        domain = max(mine, key=lambda each: (each.zone.domain != ".", len(each.zone.domain)))
        documents = [each.signed.to_bytes() for each in mine]
        if domain.zone.delegated(name) is not None:
            return Reply(documents)
        sources = domain.tables[server].sources(name, time.time_ns())
        return Reply(documents, [each.signed.to_bytes() for each in sources], domain.zone.domain)

    def _parents(self, server: str) -> list[NodeAddress]:
        return [
            each
            for domain in self.domains.values()
            if any(server == each.name for part in domain.zone.delegations.values() for each in part.servers)
            for each in domain.zone.servers
        ]


def owner_of(domain: str) -> Identity:
    """The owner of a domain."""
    return identity(f"owner-{domain}".replace("-.", "-root"))


def anchor(domain: str = ".", servers: Iterable[str] = ()) -> dict[str, Delegation]:
    """A pinned key."""
    return {domain: Delegation(owner_of(domain).fingerprint, tuple(map(address, servers)))}


def book(anchors: dict[str, Delegation], now: Callable[[], int] = time.time_ns) -> ZoneBook:
    """What a node believes at first."""
    return ZoneBook(anchors, SIGNATURES.verify, now)


def run(
    resolver: Resolver, name: str, ask: Callable[[Inquiry], Reply | None], steps: list[Step] | None = None
) -> set[str]:
    """Look a name up: the ids of the nodes with sources."""
    resolution = resolver.resolve(name, steps)
    try:
        inquiry = next(resolution)
        while True:
            inquiry = resolution.send(ask(inquiry))
    except StopIteration as ended:
        return {each.address.node for each in ended.value.sources}
