"""What the owner of a domain has signed: who serves it, and which parts of it belong to others.

A `Zone` is the body of a signed document of the kind "domain", whose name is the domain's. Its delegations say by which
key the owner of each part is known: so, from a key that a node has pinned, every zone below can be verified, by
whatever way it came. A zone has an end, and a version: a newer one takes the place of an older one.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headwater.decoders import msgpack_decoder
from headwater.errors import SecurityError
from headwater.services.documents import MAX_BODY, SignedDocument
from headwater.services.naming.address import NodeAddress
from headwater.services.naming.domains import ROOT, check_domain, enclosing, is_in

ZONE_KIND = "domain"
MOST_SERVERS = 16
MOST_DELEGATIONS = 1_000
TTL_SECONDS, NEGATIVE_TTL_SECONDS, LEASE_SECONDS = 30.0, 5.0, 60.0
LONGEST_LEASE_SECONDS = 86_400.0

Owner = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]  # the fingerprint of a key
Domain = Annotated[str, Meta(min_length=1, max_length=255)]
Servers = Annotated[tuple[NodeAddress, ...], Meta(max_length=MOST_SERVERS)]
_Seconds = Annotated[float, Meta(ge=0, le=LONGEST_LEASE_SECONDS)]


class Delegation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A part of a domain that belongs to somebody else: the owner's key, and where it is served."""

    owner: Owner
    servers: Servers = ()


class Zone(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A domain as its owner says. `ttl` is for how many seconds an answer may be cached, `negative_ttl` that there is
    none; `lease`, how long a source may be registered without being heard of."""

    domain: Domain
    servers: Annotated[tuple[NodeAddress, ...], Meta(min_length=1, max_length=MOST_SERVERS)]
    delegations: Annotated[dict[Domain, Delegation], Meta(max_length=MOST_DELEGATIONS)] = {}
    ttl: _Seconds = TTL_SECONDS
    negative_ttl: _Seconds = NEGATIVE_TTL_SECONDS
    lease: Annotated[float, Meta(gt=0, le=LONGEST_LEASE_SECONDS)] = LEASE_SECONDS

    def delegated(self, name: str) -> str | None:
        """The delegation that a name is in."""
        return next((each for each in enclosing(name) if each in self.delegations), None)

    def is_server(self, node: str) -> bool:
        """Whether a node, by its id, serves this domain."""
        return any(each.node == node for each in self.servers)

    def to_bytes(self) -> bytes:
        """As the body of a document."""
        return _encode(self)


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgpack_decoder(Zone).decode


def zone_problems(zone: Zone) -> list[str]:
    """What is wrong with a zone, whoever has made it."""
    found = []
    for domain in (zone.domain, *zone.delegations):
        try:
            if check_domain(domain) != domain:
                found.append(f"{domain!r}: expected a domain without a dot at its end")
        except ValueError as error:
            found.append(f"{domain!r}: {error}")
    parts = sorted(zone.delegations)
    for part in parts:
        if part == ROOT or not is_in(part, zone.domain):
            found.append(f"delegation {part!r}: expected a domain below {zone.domain!r}, which is all that it can give")
    for outer in parts:
        for inner in parts:
            if is_in(inner, outer):
                found.append(f"delegation {inner!r}: expected none in {outer!r}, which is given to somebody already")
    return found


def read_zone(signed: SignedDocument) -> Zone:
    """The zone in a document; SecurityError if there is none, or it says what it cannot. Who has signed it, and whether
    that is its owner, is not looked at here."""
    document = signed.document
    try:
        if document.kind != ZONE_KIND or len(document.body) > MAX_BODY:
            raise ValueError(f"expected a document of the kind {ZONE_KIND!r}, found {document.kind!r}")
        zone = _decode(document.body)
        problems = zone_problems(zone)
        if zone.domain != document.name:
            problems.append(f"expected what is said of {document.name!r}, found {zone.domain!r}")
        if not document.expires:
            problems.append("expected one with an end, found one for ever")
        if problems:
            raise ValueError("; ".join(problems))
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise SecurityError(f"refused {document} of {document.signer}: {error}", "malformed", document.signer) from None
    return zone


__all__ = [
    "LEASE_SECONDS",
    "LONGEST_LEASE_SECONDS",
    "MOST_DELEGATIONS",
    "MOST_SERVERS",
    "ZONE_KIND",
    "Delegation",
    "Zone",
    "read_zone",
    "zone_problems",
]
