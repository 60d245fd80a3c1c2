"""Signatures of naming: who has signed a document is known by its key alone, in whichever federation it was made.

A domain's owner has a key of its own, which no node needs while it runs: `headwater names key` makes one, and
`headwater names sign` signs a zone with it. Servers and nodes sign with the key that they have in their federation.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headwater.errors import ConfigError, ConfigProblem, SecurityError
from headwater.federation.security.identity import (
    ID_DIGITS,
    Identity,
    PublicKey,
    fingerprint,
    public_bytes,
    read_private,
    read_public,
    refuse,
    supported,
    verify,
)
from headwater.federation.security.signed_document import sign
from headwater.services.documents import SignedDocument
from headwater.services.naming.registration import ENDORSEMENT_KIND, REGISTRATION_KIND, Registration
from headwater.services.naming.zone import ZONE_KIND, Zone, zone_problems

ANYWHERE = ""  # naming documents are for no one federation
ZONE_SECONDS = 30 * 86_400.0  # for which a zone is good
_REMEMBERED = 16_384  # signatures that were found to be right


class Signatures:
    """Verifies signatures, each once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._right: OrderedDict[tuple[str, bytes], str] = OrderedDict()
        self.verified = 0

    def verify(self, signed: SignedDocument) -> str:
        """The fingerprint of the key that has signed a document; SecurityError if it is not the signer's."""
        document = signed.document
        key = signed.fingerprint, signed.signature
        with self._lock:
            if (known := self._right.get(key)) is not None:
                self._right.move_to_end(key)
                return known
        public = _key_of(signed)
        print_ = fingerprint(public_bytes(public))
        if document.federation != ANYWHERE:
            raise refuse("federation", document.signer, f"{document} is for federation {document.federation!r} only")
        if document.signer.rpartition(".")[2] != print_[:ID_DIGITS]:
            raise refuse("name", document.signer, f"{document} has the key of another")
        if not verify(public, signed.signature, signed.under_signature):
            raise refuse("forged", document.signer, f"{document} is not signed by it, or was changed since")
        with self._lock:
            self.verified += 1
            self._right[key] = print_
            while len(self._right) > _REMEMBERED:
                self._right.popitem(last=False)
        return print_


def _key_of(signed: SignedDocument) -> PublicKey:
    document = signed.document
    try:
        if document.key:
            return read_public(document.key)
        key = x509.load_der_x509_certificate(document.chain[0]).public_key()
        if supported(key) and isinstance(key, PublicKey):
            return key
        raise ValueError("a certificate of another kind of key")
    except Exception as error:  # a parser of hostile bytes has more ways to fail than it documents
        raise refuse("key", document.signer, f"{document}: expected a key, found {error}") from None


def make_owner_key(path: str | os.PathLike[str]) -> str:
    """Make the key of a domain's owner, in a file that is not there yet; its fingerprint."""
    owner = Identity("owner", ec.generate_private_key(ec.SECP256R1()))
    pem = owner.private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    place = os.fspath(path)
    try:
        with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
            file.write(pem)
    except FileExistsError:
        raise ConfigError([ConfigProblem(place, "a file that is not there yet", "one that is")]) from None
    except OSError as error:
        raise ConfigError(
            [ConfigProblem(place, "a file that can be written", (error.strerror or "").lower())]
        ) from None
    return owner.fingerprint


def read_owner(path: str | os.PathLike[str]) -> Identity:
    """The owner whose key is in a file."""
    return Identity("owner", read_private(path))


def sign_zone(owner: Identity, zone: Zone, version: int, lasts: float = ZONE_SECONDS) -> SignedDocument:
    """A zone, signed by the owner of its domain; ConfigError, with all that is wrong, if it cannot be one."""
    if problems := zone_problems(zone):
        raise ConfigError([ConfigProblem(f"domain {zone.domain}", "a zone that can be", each) for each in problems])
    return sign(owner, ANYWHERE, ZONE_KIND, zone.domain, version, zone.to_bytes(), lasts=lasts)


def sign_registration(
    node: Identity, registration: Registration, version: int, lease: float, *, now: int | None = None
) -> SignedDocument:
    """A registration, signed by its node: now, or at another time."""
    body = registration.to_bytes()
    return sign(node, ANYWHERE, REGISTRATION_KIND, registration.name, version, body, issued=now, lasts=lease)


def endorse(server: Identity, registration: SignedDocument, expires: int, now: int) -> SignedDocument:
    """The consent of a domain to a registration, signed by one of its servers, until `expires` at most."""
    document = registration.document
    until = min(expires, document.expires - 1_000)  # a float may be some nanoseconds beyond
    if until <= now:
        raise SecurityError(f"refused {document} of {document.signer}: its lease has ended", "expired", document.signer)
    lasts = (until - now) / 1e9
    body = registration.to_bytes()
    return sign(server, ANYWHERE, ENDORSEMENT_KIND, document.name, document.version, body, issued=now, lasts=lasts)


def read_document(path: str | os.PathLike[str]) -> SignedDocument:
    """A signed document in a file."""
    try:
        return SignedDocument.from_bytes(Path(path).read_bytes())
    except (OSError, SecurityError) as error:
        expected = "a signed zone, as `headwater names sign` writes it"
        raise ConfigError([ConfigProblem(os.fspath(path), expected, str(error))]) from None


__all__ = [
    "Signatures",
    "endorse",
    "make_owner_key",
    "read_document",
    "read_owner",
    "sign_registration",
    "sign_zone",
]
