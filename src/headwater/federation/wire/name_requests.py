"""What nodes ask each other about names. Nothing here is trusted yet.

LookUpName      what a server knows of a name; or, `relayed`, what it finds out for who asks
RegisterName    that the asking node has sources of a name, or has none any more
CompareNames    what a server of a domain has that another one of it has not
OfferNames      registrations that another server of the domain has just had
TellDomains     which domains a server serves
CarryName       have a gateway pass on the events of a name's sources in other federations
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from headwater.federation.wire.control import Name
from headwater.federation.wire.requests import Accepted, Request
from headwater.services.documents import DOCUMENT_BYTES
from headwater.services.naming.address import NodeAddress

MOST_DOCUMENTS = 64
MOST_SOURCES = 1_000
MOST_SUMS = 256
MOST_STEPS = 64
MOST_DOMAINS = 100

_Document = Annotated[bytes, Meta(max_length=DOCUMENT_BYTES)]
_Documents = Annotated[list[_Document], Meta(max_length=MOST_DOCUMENTS)]
_Sources = Annotated[list[_Document], Meta(max_length=MOST_SOURCES)]
_Seconds = Annotated[float, Meta(ge=0, le=86_400)]
_Text = Annotated[str, Meta(max_length=2_000)]


# ── answers ──


class NameIs(msgspec.Struct, frozen=True, tag=True):
    """`domain` has the name, and `sources` are all that there are; nothing if it is not known. `documents` are zones
    from which that can be verified, or by which one comes further; `above`, servers that may know more. `lives`: for
    how many seconds it may be cached. `steps`: how it was found out."""

    documents: _Documents = []
    sources: _Sources = []
    domain: Annotated[str, Meta(max_length=255)] = ""
    above: Annotated[list[NodeAddress], Meta(max_length=16)] = []
    lives: _Seconds = 0.0
    cached: bool = False
    problem: _Text = ""
    steps: Annotated[list[tuple[_Text, _Text, _Text]], Meta(max_length=MOST_STEPS)] = []


class NameRegistered(msgspec.Struct, frozen=True, tag=True):
    """The domain consents, for so many seconds; for none: a greater version is `known` already, sign one after it."""

    lease: _Seconds
    known: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0


class NamesBeyond(msgspec.Struct, frozen=True, tag=True):
    """Registrations, and the zone if it is a newer one; `more`: there are others, after the last of these."""

    sources: _Sources
    zone: _Document = b""
    more: bool = False


class DomainsAre(msgspec.Struct, frozen=True, tag=True):
    """The domains that a server serves, with how many names have sources in each; and zones, also of those above."""

    domains: Annotated[dict[Name, int], Meta(max_length=MOST_DOMAINS)]
    documents: _Documents = []


# ── requests ──


class LookUpName(Request, frozen=True, tag=True):
    """What is known of a name: at once, from the domains that are served there; or, `relayed`, after asking others.
    `fresh`: not from a cache."""

    answer: ClassVar[Any] = NameIs
    name: Name
    relayed: bool = False
    fresh: bool = False


class RegisterName(Request, frozen=True, tag=True):
    """A registration, signed by the node that asks."""

    answer: ClassVar[Any] = NameRegistered
    document: _Document


class CompareNames(Request, frozen=True, tag=True):
    """`sums` are those of the asking server's table of a domain, `version` that of its zone; `after`: a name and a
    node, where a page before has ended."""

    answer: ClassVar[Any] = NamesBeyond
    domain: Name
    sums: Annotated[list[Annotated[int, Meta(ge=0, le=2**63 - 1)]], Meta(max_length=MOST_SUMS)]
    version: int = 0
    after: tuple[Name, Name] | None = None


class OfferNames(Request, frozen=True, tag=True):
    """Registrations with the domain's consent, which the other server may not have yet."""

    answer: ClassVar[Any] = Accepted
    domain: Name
    sources: _Sources


class TellDomains(Request, frozen=True, tag=True):
    """Which domains there are."""

    answer: ClassVar[Any] = DomainsAre


class CarryName(Request, frozen=True, tag=True):
    """Pass on the events of a name's sources in other federations, for a lease."""

    answer: ClassVar[Any] = NameRegistered
    name: Name


__all__ = [
    "MOST_DOCUMENTS",
    "MOST_SOURCES",
    "CarryName",
    "CompareNames",
    "DomainsAre",
    "LookUpName",
    "NameIs",
    "NameRegistered",
    "NamesBeyond",
    "OfferNames",
    "RegisterName",
    "TellDomains",
]
