"""Who has sources of a name: what a node has signed, with the consent of the name's domain.

    registration   signed by the node: that it has sources of a name, or has none any more, and where it is
    endorsement    signed by a server of the domain, around a registration: the domain consents

Both signatures are looked at by whoever gets an answer. So what a cache, a router or a server of another domain has
added, moved or kept for too long is seen and left out; what they can do is to leave something out.

The version of a registration is a number that its node makes ever greater. Of two of one node for one name the greater
one holds: servers that have heard them in any order agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated

import msgspec

from headwater.channel.names import check_name
from headwater.decoders import msgpack_decoder
from headwater.errors import HeadwaterError, SecurityError
from headwater.services.documents import SignedDocument
from headwater.services.naming.address import NodeAddress
from headwater.services.naming.domains import is_in
from headwater.services.naming.zone import LONGEST_LEASE_SECONDS, Zone

REGISTRATION_KIND, ENDORSEMENT_KIND = "registration", "endorsement"
SKEW_NS = 60 * 10**9  # that clocks of nodes may be apart
MOST_ITEMS = 1_000  # endorsements of one answer that are looked at

Verify = Callable[[SignedDocument], str]  # the fingerprint of the key that has signed it; SecurityError if none has


class Registration(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The body: `address` is the node's own. `withdrawn`: it has no sources of the name any more."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    address: NodeAddress
    withdrawn: bool = False

    def to_bytes(self) -> bytes:
        """As the body of a document."""
        return _encode(self)


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgpack_decoder(Registration).decode


@dataclass(frozen=True, slots=True)
class Endorsed:
    """A registration with its domain's consent, verified."""

    registration: Registration
    version: int
    expires: int  # ns since 1970
    server: str  # the id of the server that consents
    signed: SignedDocument  # the endorsement
    fingerprint: str  # of the registration within

    @property
    def name(self) -> str:
        return self.registration.name

    @property
    def address(self) -> NodeAddress:
        return self.registration.address

    @property
    def key(self) -> tuple[str, str]:
        """What there is one of: a name and a node."""
        return self.name, self.address.node

    @property
    def order(self) -> tuple[int, str, int, str]:
        """Of two with one key, the greater one holds."""
        return self.version, self.fingerprint, self.expires, self.signed.fingerprint


def read_registration(signed: SignedDocument, verify: Verify, now: int) -> Registration:
    """The registration in a document that its node has signed; SecurityError if it is none, or is not good now."""
    document = signed.document
    try:
        registration = _decode(document.body)
        check_name(registration.name)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, HeadwaterError) as error:
        raise _refused(signed, "malformed", str(error)) from None
    if document.kind != REGISTRATION_KIND or document.name != registration.name:
        raise _refused(signed, "kind", f"expected a registration of {registration.name!r}")
    if document.signer != registration.address.node:
        raise _refused(signed, "name", f"a node speaks for itself, not for {registration.address.node}")
    _check_time(signed, now)
    verify(signed)
    return registration


def read_endorsement(signed: SignedDocument, zone: Zone, verify: Verify, now: int) -> Endorsed:
    """A registration with the consent of a domain; SecurityError if one of the two is not given, or not good now."""
    document = signed.document
    if document.kind != ENDORSEMENT_KIND:
        raise _refused(signed, "kind", "expected an endorsement")
    if not zone.is_server(document.signer):
        raise _refused(signed, "domain", f"it does not serve {zone.domain!r}")
    _check_time(signed, now)
    inner = SignedDocument.from_bytes(document.body)
    registration = read_registration(inner, verify, now)
    if document.name != registration.name or document.version != inner.document.version:
        raise _refused(signed, "kind", f"expected an endorsement of {registration.name!r}")
    if not is_in(registration.name, zone.domain) or zone.delegated(registration.name) is not None:
        raise _refused(signed, "domain", f"{registration.name!r} is not in what it serves, which is {zone.domain!r}")
    if document.expires > inner.document.expires:
        raise _refused(signed, "expired", "it lasts longer than the registration within")
    verify(signed)
    return Endorsed(registration, document.version, document.expires, document.signer, signed, inner.fingerprint)


def read_endorsements(
    items: Iterable[bytes], zone: Zone, verify: Verify, now: int, name: str | None = None
) -> tuple[list[Endorsed], list[str]]:
    """Those of an answer that are good, of one name if that is given, each node's greatest once; and what was wrong
    with the others."""
    found: dict[tuple[str, str], Endorsed] = {}
    refused: list[str] = []
    for count, item in enumerate(items):
        if count >= MOST_ITEMS:
            refused.append(f"expected at most {MOST_ITEMS:,} sources in one answer, found more")
            break
        try:
            made = read_endorsement(SignedDocument.from_bytes(item), zone, verify, now)
            if name is not None and made.name != name:
                raise SecurityError(f"refused a source of {made.name!r}: {name!r} was asked for", "name", made.server)
        except SecurityError as error:
            refused.append(str(error))
            continue
        if made.key not in found or made.order > found[made.key].order:
            found[made.key] = made
    return [found[key] for key in sorted(found)], refused


def _check_time(signed: SignedDocument, now: int) -> None:
    document = signed.document
    if document.issued > now + SKEW_NS:
        raise _refused(signed, "early", "it is from the future; set the clocks right")
    if not document.expires or document.expires > now + SKEW_NS + round(LONGEST_LEASE_SECONDS * 1e9):
        raise _refused(signed, "expired", f"expected a lease of at most {LONGEST_LEASE_SECONDS:,.0f} s")
    if document.expires <= now:
        raise _refused(signed, "expired", f"its lease has ended {(now - document.expires) / 1e9:,.0f} s ago")


def _refused(signed: SignedDocument, reason: str, message: str) -> SecurityError:
    document = signed.document
    return SecurityError(f"refused {document} of {document.signer}: {message}", reason, document.signer)


__all__ = [
    "ENDORSEMENT_KIND",
    "REGISTRATION_KIND",
    "Endorsed",
    "Registration",
    "Verify",
    "read_endorsement",
    "read_endorsements",
    "read_registration",
]
