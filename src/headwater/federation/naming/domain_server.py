"""Domains that a node serves: who has sources of their names, by their consent, and what is told of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.errors import ConfigError, ConfigProblem, FederationError, HeadwaterError, SecurityError
from headwater.federation.naming.name_change import NameChange, event_of
from headwater.federation.naming.signatures import Signatures, endorse, sign_zone
from headwater.federation.wire.name_requests import (
    MOST_DOCUMENTS,
    DomainsAre,
    NameIs,
    NameRegistered,
    NamesBeyond,
)
from headwater.federation.wire.requests import Accepted
from headwater.services.documents import SignedDocument
from headwater.services.naming.domains import changes_channel, enclosing, is_in
from headwater.services.naming.registration import read_endorsement, read_endorsements, read_registration
from headwater.services.naming.registration_table import Change, RegistrationTable
from headwater.services.naming.zone import MOST_SERVERS, Delegation, Zone

if TYPE_CHECKING:
    from headwater.channel.source import Source
    from headwater.federation.naming.settings import NameSettings, Served
    from headwater.federation.node import Node
    from headwater.federation.peers.request_registry import Caller
    from headwater.federation.security.identity import Identity
    from headwater.federation.security.rules import Principal
    from headwater.federation.wire.name_requests import CompareNames, OfferNames, RegisterName
    from headwater.services.naming.address import NodeAddress
    from headwater.services.naming.zone_book import ZoneBook

log = logging.getLogger("headwater.federation")
PAGE = 200  # registrations that servers of a domain tell each other at a time


@dataclass(eq=False)
class _Domain:
    """One that is served."""

    settings: Served
    table: RegistrationTable
    source: Source[NameChange]
    sign_again: float = field(default=float("inf"))  # by the wall clock, in seconds
    ended: bool = False  # its zone is not good any more


def served_anchors(settings: NameSettings, signatures: Signatures) -> dict[str, Delegation]:
    """The pinned keys of a node: those of its settings, and of the domains that it serves itself."""
    anchors = dict(settings.anchors)
    problems = []
    for served in settings.serve:
        if served.owner is not None:
            owner = served.owner.fingerprint
        else:
            assert served.document is not None
            owner = signatures.verify(served.document)
        pinned = anchors.get(served.domain)
        if pinned is not None and pinned.owner != owner:
            expected, found = f"the owner's key that is pinned, {pinned.owner[:16]}…", f"{owner[:16]}…"
            problems.append(ConfigProblem(f"names: domain {served.domain}", expected, found))
        anchors[served.domain] = Delegation(owner, served.servers if pinned is None else pinned.servers)
    if problems:
        raise ConfigError(problems)
    return anchors


class DomainServer:
    """Of one node. What comes in requests is verified here; nothing here waits. `on_registered` is told of each
    registration that is taken, with its domain's consent: the other servers of the domain are to hear of it."""

    def __init__(
        self,
        node: Node,
        identity: Identity,
        address: NodeAddress,
        settings: NameSettings,
        book: ZoneBook,
        signatures: Signatures,
    ) -> None:
        self._node, self._identity, self.address = node, identity, address
        self._book, self._signatures = book, signatures
        self._domains = {served.domain: self._make(served) for served in settings.serve}
        self.registered = self.refused = 0
        self.on_registered: Callable[[Zone, SignedDocument], None] = lambda zone, consent: None

    def _make(self, served: Served) -> _Domain:
        source = self._node.channel(changes_channel(served.domain), NameChange).source()
        made = _Domain(served, RegistrationTable(served.domain), source)
        self._sign(made)
        return made

    def _sign(self, domain: _Domain) -> None:
        """Have the zone in the book: signed now, where the owner's key is here."""
        served = domain.settings
        if served.owner is None:
            assert served.document is not None
            known = self._book.accept(served.document)
            if not known.zone.is_server(self.address.node):
                expected = f"a zone that names this node, {self.address.node}, as a server"
                found = ", ".join(each.node for each in known.zone.servers)
                hint = "have it signed with this node among its servers"
                raise ConfigError([ConfigProblem(f"names: domain {served.domain}", expected, found, hint)])
            return
        before = self._book.known(served.domain)
        zone = self._first_zone(served) if before is None else before.zone  # it may have been changed since
        least = 0 if before is None else before.signed.document.version + 1
        version = served.version or max(time.time_ns() // 1_000_000, least)
        if before is None or version > before.signed.document.version:
            self._book.accept(sign_zone(served.owner, zone, version, served.lasts))
        domain.sign_again = time.time() + served.lasts / 2

    def _first_zone(self, served: Served) -> Zone:
        """The zone of a domain as the settings have it."""
        servers = {each.node: each for each in (self.address, *served.servers)}  # what the settings say of it counts
        return Zone(
            served.domain,
            tuple(servers[node] for node in sorted(servers)),
            dict(served.delegations),
            served.ttl,
            served.negative_ttl,
            served.lease,
        )

    @property
    def domains(self) -> list[str]:
        """Those that are served here."""
        return sorted(self._domains)

    def table(self, domain: str) -> RegistrationTable:
        """The registrations of a domain that is served here."""
        return self._domains[domain].table

    def zone(self, domain: str) -> Zone | None:
        """A domain that is served here, as its owner says by now."""
        known = self._book.known(domain)
        return None if known is None else known.zone

    @property
    def parents(self) -> list[NodeAddress]:
        """Who serves what is above the domains here: their parents, and the servers of pinned domains above them."""
        found = [each for domain in self._domains.values() for each in domain.settings.parent]
        pinned = {above for domain in self._domains for above in enclosing(domain) if above not in self._domains}
        found += [
            each for above in sorted(pinned & set(self._book.anchors)) for each in self._book.anchors[above].servers
        ]
        return list(dict.fromkeys(found))[:MOST_SERVERS]

    def _of(self, name: str) -> tuple[_Domain, Zone] | None:
        """The smallest domain here that a name is in, with its zone."""
        inside = [domain for domain in self._domains if is_in(name, domain)]
        for domain in sorted(inside, key=len, reverse=True):
            if (zone := self.zone(domain)) is not None:
                return self._domains[domain], zone
        return None

    # ── answers ──

    def consult(self, name: str) -> NameIs:
        """What is known of a name here, without asking anybody."""
        found = self._of(name)
        if found is None:
            return NameIs(above=self.parents)
        domain, zone = found
        documents = self._chain(zone.domain)
        part = zone.delegated(name)
        if part is not None:
            known = self._book.known(part)
            return NameIs(documents + ([] if known is None else [known.signed.to_bytes()]), above=self.parents)
        sources = domain.table.sources(name, time.time_ns())
        lives = zone.ttl if sources else zone.negative_ttl
        return NameIs(documents, [each.signed.to_bytes() for each in sources], zone.domain, self.parents, lives)

    def _chain(self, domain: str) -> list[bytes]:
        return [each.to_bytes() for each in self._book.chain(domain)[-MOST_DOCUMENTS + 1 :]]

    def tell(self) -> DomainsAre:
        """Which domains are served here."""
        now = time.time_ns()
        documents = {each: None for domain in self._domains for each in self._chain(domain)}
        counts = {name: len(domain.table.names(now)) for name, domain in self._domains.items()}
        return DomainsAre(counts, list(documents)[:MOST_DOCUMENTS])

    def register(self, caller: Caller, request: RegisterName) -> NameRegistered | Accepted:
        """A node says that it has sources of a name, or has none any more; what is refused is said with the reason."""
        try:
            return self._registered(caller.peer.id, caller.principal, SignedDocument.from_bytes(request.document))
        except HeadwaterError as error:
            self.refused += 1
            return Accepted(error=str(error)[:2_000])

    def register_own(self, signed: SignedDocument) -> NameRegistered:
        """This node itself says so."""
        return self._registered(self.address.node, None, signed)

    def _registered(self, caller: str, principal: Principal | None, signed: SignedDocument) -> NameRegistered:
        """By a node that has proven to be `caller`; without a principal it is this one. SecurityError if it speaks for
        another, or the domain does not consent; FederationError if the name is not served here, or there is no room."""
        now = time.time_ns()
        registration = read_registration(signed, self._signatures.verify, now)
        name, node = registration.name, registration.address.node
        if node != caller:
            raise SecurityError(f"refused a registration of {node}: a node speaks for itself", "sender", caller)
        found = self._of(name)
        if found is None or found[1].delegated(name) is not None:
            served = ", ".join(self.domains)
            raise FederationError(f"name {name!r}: expected one in what is served here, which is {served}; look it up")
        domain, zone = found
        known = domain.table.version((name, node))
        ends = registration.withdrawn and known > 0  # what is there may be taken back, whatever the rules say by now
        if principal is not None and not zone.is_server(node) and not ends:
            decision = domain.settings.advertise.decide(principal, "advertise", name)
            if not decision:
                raise SecurityError(f"name {name!r}: {decision.why}", "rule", caller)
        if known > signed.document.version:
            return NameRegistered(0.0, known)
        consent = endorse(self._identity, signed, now + round(zone.lease * 1e9), now)
        endorsed = read_endorsement(consent, zone, self._signatures.verify, now)
        change = domain.table.merge(endorsed, now)
        self.registered += 1
        self._publish(domain, [change] if change is not None else ())
        self.on_registered(zone, consent)
        return NameRegistered(max(0.001, (consent.document.expires - now) / 1e9))

    # ── other servers of a domain ──

    def compare(self, caller: Caller, request: CompareNames) -> NamesBeyond | Accepted:
        """What is here that another server of the domain does not have."""
        domain, zone = self._domains.get(request.domain), self.zone(request.domain)
        if domain is None or zone is None or not zone.is_server(caller.peer.id):
            return Accepted(error=f"domain {request.domain!r}: {caller.peer.name} and this node do not both serve it")
        found, more = domain.table.beyond(request.sums, time.time_ns(), PAGE, request.after)
        known = self._book.known(request.domain)
        newer = known is not None and known.signed.document.version > request.version
        document = known.signed.to_bytes() if known is not None and newer else b""
        return NamesBeyond([each.signed.to_bytes() for each in found], document, more)

    def offered(self, caller: Caller, request: OfferNames) -> Accepted:
        """Another server of the domain has just had something."""
        zone = self.zone(request.domain)
        if request.domain not in self._domains or zone is None or not zone.is_server(caller.peer.id):
            return Accepted(error=f"domain {request.domain!r}: {caller.peer.name} and this node do not both serve it")
        self.take(request.domain, request.sources)
        return Accepted()

    def take(self, domain: str, items: Sequence[bytes]) -> tuple[str, str] | None:
        """Registrations that another server of a domain has: those that are good are taken over. The last of them, by
        name and node."""
        here, zone = self._domains[domain], self.zone(domain)
        if zone is None:
            return None
        now = time.time_ns()
        found, refused = read_endorsements(items, zone, self._signatures.verify, now)
        self.refused += len(refused)
        self._publish(here, here.table.merge_all(found, now))
        return last_key(items)

    def accept_zone(self, data: bytes) -> None:
        """A zone that another server of the domain has; what it has no right to say is refused."""
        self.refused += len(self._book.accept_all([data]))

    # ── time ──

    def sweep(self) -> None:
        """Leases end, and zones are signed anew in time."""
        now = time.time_ns()
        for domain in self._domains.values():
            self._publish(domain, domain.table.sweep(now))
            if now / 1e9 > domain.sign_again and not domain.settings.version:
                self._sign(domain)
            ended = self.zone(domain.settings.domain) is None
            if ended and not domain.ended:
                log.error("names: the zone of %s has ended: nothing is said of it until its owner has signed another "
                          "(headwater names sign; names.renew)", domain.settings.domain)  # fmt: skip
            domain.ended = ended

    def _publish(self, domain: _Domain, changes: Iterable[Change]) -> None:
        for change in changes:
            try:
                domain.source.publish(event_of(change))
            except HeadwaterError as error:  # the node is being closed
                log.info("names: a change of %s is not told: %s", change.name, error)

    def report(self) -> dict[str, Any]:
        """In numbers."""
        now = time.time_ns()
        names = {name: len(domain.table.names(now)) for name, domain in self._domains.items()}
        ended = sorted(name for name, domain in self._domains.items() if domain.ended)
        return {"serves": names, "registered": self.registered, "refused": self.refused, "ended": ended}


def last_key(items: Sequence[bytes]) -> tuple[str, str] | None:
    """Of the last of some registrations on a page: its name and its node."""
    if not items:
        return None
    try:
        document = SignedDocument.from_bytes(items[-1]).document
        inner = SignedDocument.from_bytes(document.body).document
    except SecurityError:
        return None
    return inner.name, inner.signer


__all__ = ["DomainServer", "served_anchors"]
