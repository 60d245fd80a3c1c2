"""Documents are signed by a node's key and verified by whoever gets them, by whatever way they came.

    signed = sign(identity, "tcd", "policy", "ie.tcd.door", 3, body)
    verifier = DocumentVerifier(security, "tcd", trust=keyring.credentials.trust, known=("1f2e...", ))
    verifier.verify(SignedDocument.from_bytes(data), kind="policy").signer      who has signed it: a Principal

Where there is an authority, a document is good if the authority vouches for its signer, now: one whose certificate has
expired or was revoked since has to be signed anew. Otherwise the signer's key must be one that is known: pinned, by its
fingerprint. That a document is good says who has signed it, and not that this one may: `Verified.signer` is for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import ConfigError, ConfigProblem
from headwater.federation.security.identity import ID_DIGITS, Identity, legal_name, node_id, refuse, verify
from headwater.federation.security.proof import Prover
from headwater.federation.security.rules import Principal
from headwater.services.documents import Document, SignedDocument, content_of

if TYPE_CHECKING:
    from headwater.federation.security.settings import Security
    from headwater.federation.security.trust import Trust

Known = Callable[[str], bool] | Collection[str]


def sign(
    identity: Identity,
    federation: str,
    kind: str,
    name: str,
    version: int,
    body: bytes,
    *,
    issued: int | None = None,
    lasts: float | None = None,
) -> SignedDocument:
    """A document signed by a node: from now, or from `issued` (ns since 1970), for `lasts` seconds or for good."""
    begin = time.time_ns() if issued is None else issued
    if lasts is not None and not lasts > 0:
        raise ConfigError([ConfigProblem(f"{kind} {name}: lasts", "a number of seconds above 0", repr(lasts))])
    document = Document(
        federation,
        kind,
        name,
        version,
        body,
        identity.id,
        b"" if identity.chain else identity.public,
        list(identity.chain),
        begin,
        0 if lasts is None else begin + round(lasts * 1e9),
    )
    content = content_of(document)
    made = SignedDocument(document, content, b"")
    return SignedDocument(document, content, identity.sign(made.under_signature))


@dataclass(frozen=True, slots=True)
class Verified:
    """A document whose signature is genuine, and who has signed it."""

    signed: SignedDocument
    signer: Principal

    @property
    def document(self) -> Document:
        """The document itself."""
        return self.signed.document


class DocumentVerifier:
    """Verifies documents for one node. Thread-safe.

    `known`: fingerprints of keys (64 hex digits) whose documents are taken though no authority vouches for them, or a
    function that says so of one. Where there is an authority it is not asked: who has no certificate is refused.
    `federation`: documents of others are refused; `verify(..., federation=...)` is for those that are meant to come
    from another one.
    """

    def __init__(
        self,
        security: Security,
        federation: str,
        *,
        trust: Trust | None = None,
        known: Known = (),
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self.federation = federation
        self._authority = security.authority is not None
        self._prover = Prover(security, federation, loopback=False, trust=trust)
        self._known = known if callable(known) else frozenset(known).__contains__
        self._skew = round(security.skew * 1e9)
        self._now = now

    def verify(
        self,
        signed: SignedDocument,
        *,
        kind: str,
        name: str | None = None,
        federation: str | None = None,
        expired: bool = False,
    ) -> Verified:
        """A document of this kind and, if given, this name, with who has signed it; SecurityError if it is another one,
        is not good yet or any more, or nobody vouches for its signer. `expired`: its own end does not matter."""
        document, now = signed.document, self._now()
        wanted = self.federation if federation is None else federation
        sender = document.signer
        if document.kind != kind or (name is not None and document.name != name):
            expected = kind if name is None else f"{kind} {name!r}"
            raise refuse("kind", sender, f"expected {expected}, found {document}")
        if document.federation != wanted:
            raise refuse(
                "federation", sender, f"{document} is for federation {document.federation!r}, this is {wanted!r}"
            )
        if document.issued > now + self._skew:
            ahead = (document.issued - now) / 1e9
            raise refuse("early", sender, f"{document} is good in {ahead:,.0f} s at the earliest; set the clocks right")
        if document.expires and document.expires < now and not expired:
            past = (now - document.expires) / 1e9
            raise refuse("expired", sender, f"{document} was good until {past:,.0f} s ago; have it signed anew")
        return Verified(signed, self._signer(signed, now))

    def _signer(self, signed: SignedDocument, now: int) -> Principal:
        """Who has signed it: the key's owner, if the signature is right and the key is vouched for."""
        document = signed.document
        sender = document.signer
        name, _, digits = sender.rpartition(".")
        proven = self._prover.key(document.chain, document.key, sender, now)
        if not legal_name(name) or digits != proven.fingerprint[:ID_DIGITS]:
            found = node_id(name, proven.fingerprint) if legal_name(name) else ascii(name)
            raise refuse("name", sender, f"{document} has the key of {found}")
        if not verify(proven.key, signed.signature, signed.under_signature):
            raise refuse("forged", sender, f"{document} is not signed by it, or was changed since")
        if proven.name is not None:
            return self._prover.principal(proven, name, sender, "", b"", now)
        if self._authority:
            raise refuse(
                "unknown", sender, f"expected {document} with a certificate of the authority, found only a key"
            )
        if not self._known(proven.fingerprint):
            hint = f"if it is to be, pin its key: {proven.fingerprint}"
            raise refuse("unknown", sender, f"{document} is signed by a key that is not known here; {hint}")
        return Principal(f"key:{proven.fingerprint[:ID_DIGITS]}", "key", proven.fingerprint)


__all__ = ["DocumentVerifier", "Known", "Verified", "sign"]
