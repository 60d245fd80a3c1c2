"""Entries of a library are signed by the key of the node that publishes them, and verified where they are taken.

Whose signature counts for which name, the rules of the node say that takes an entry: the right "publish" on
`library.NAME`. Without any security every key counts, and a name is of the key that was there first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import SecurityError
from headwater.federation.security.identity import Identity
from headwater.federation.security.settings import Security
from headwater.federation.security.signed_document import DocumentVerifier, sign
from headwater.services.documents import Document, SignedDocument

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.federation.context import Context
    from headwater.federation.security.rules import Principal

FEDERATION = "headwater"  # of a node without a network, which may come to have one
RIGHTS = "library."  # before a name, in rules


class NodeSignature:
    """Of one node. With `lenient`, what anybody has signed is taken, if it is genuine: that is for code which whoever
    asks for it might as well send without a name."""

    def __init__(self, node: Node, context: Context | None, *, lenient: bool = False) -> None:
        self._context, self._lenient = context, lenient
        if context is None:
            self._own = _identity_of(node)
            self._security, self._federation, trust = Security(), FEDERATION, None
        else:
            self._security, self._federation = context.security, context.network.federation
            trust = context.keyring.credentials.trust
        self._verifier = DocumentVerifier(self._security, self._federation, trust=trust, known=_anybody)

    @property
    def identity(self) -> Identity:
        """The node's own."""
        return self._own if self._context is None else self._context.keyring.credentials.identity

    def sign(self, kind: str, name: str, version: int, body: bytes) -> bytes:
        """A document of this node, as bytes."""
        return sign(self.identity, self._federation, kind, name, version, body).to_bytes()

    def verify(self, data: bytes, kind: str) -> tuple[Document, str]:
        """A document, and who has signed it; SecurityError if it is not genuine, or that one may not."""
        verified = self._verifier.verify(SignedDocument.from_bytes(data), kind=kind)
        signer, document = verified.signer, verified.document
        if not self._lenient and signer.fingerprint != self.identity.fingerprint:
            verdict = self._security.decide(signer, "publish", RIGHTS + document.name)
            if not verdict:
                raise SecurityError(f"refused {document}: {verdict.why}", "rules", document.signer)
        return document, label(signer)


def label(signer: Principal) -> str:
    """Who a signer is: by its certificate, which may be renewed, or by its key."""
    return f"certificate:{signer.name}" if signer.how == "certificate" else f"key:{signer.fingerprint}"


def _anybody(fingerprint: str) -> bool:
    return True


def _identity_of(node: Node) -> Identity:
    """The key of a node that has no network: the one that it will have in a federation, if it has a state."""
    state = node.state
    if state is None:
        return Identity.ephemeral(node.name)
    stored = state.secret(f"identity/{node.name}")
    if stored is not None:
        return Identity.from_bytes(node.name, stored)
    made = Identity.ephemeral(node.name)
    state.keep(f"identity/{node.name}", made.to_bytes())
    return made


__all__ = ["RIGHTS", "NodeSignature", "label"]
