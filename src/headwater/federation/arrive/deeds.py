"""Deeds: what proves that a source which says to have moved is the one that it says to be.

Who takes a source over is given a document, signed by the node that it leaves, with how often it has moved by then.
With the others, from the node where it began on, it shows to everybody that each node on the way was given it by the
one before; and the last of them, how late that was: a node that had it once cannot say to have it again, for that
another one has to sign. Of a way that leads through a node twice, what is between is left out: each node signs once.
Without certificates names are not proven, and nor is this.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from headwater.channel.queues.position_keys import LOGGED
from headwater.decoders import msgpack_decoder
from headwater.errors import HeadwaterError, SecurityError
from headwater.federation.security.signed_document import DocumentVerifier, sign
from headwater.federation.wire.source_move_requests import DeedBody
from headwater.services.documents import SignedDocument

if TYPE_CHECKING:
    from headwater.federation.context import Context
    from headwater.federation.wire.control import SourceAd

KIND = "deed"
MOST_SEEN = 1024  # chains that are remembered to be good
_encode = msgspec.msgpack.Encoder().encode
_BODY = msgpack_decoder(DeedBody)


class Deeds:
    """Of one node: checks those of others, and signs its own. Threads may share it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str, str, int, tuple[bytes, ...]], None] = {}

    def sign(self, home: str, term: int, to: str) -> bytes:
        """That a source of this node goes on at another one."""
        identity = self._context.keyring.credentials.identity
        body = _encode(DeedBody(home, term, to))
        return sign(identity, self._context.network.federation, KIND, name_of(home), term, body).to_bytes()

    def check(self, node: str, ad: SourceAd, deeds: Sequence[bytes]) -> None:
        """SecurityError unless a node was given the source that it announces."""
        chain = node, ad.home, ad.name if ad.log else "", ad.term, tuple(deeds)
        with self._lock:
            if chain in self._seen:
                return
        self._verify(node, ad, deeds)
        with self._lock:
            self._seen[chain] = None
            while len(self._seen) > MOST_SEEN:
                del self._seen[next(iter(self._seen))]

    def _verify(self, node: str, ad: SourceAd, deeds: Sequence[bytes]) -> None:
        def refuse(why: str) -> SecurityError:
            return SecurityError(f"{node} says that {ad.name} of {ad.channel} has moved there: {why}", "rule", node)

        began = node_of(ad.home)
        if not ad.log or not began or name_of(ad.home) != ad.name:
            raise refuse(f"expected the key of a logged source of that name, found {ad.home!r}")
        holder, term = began, 0
        for each in deeds:
            try:
                signer, body = self._opened(each)
            except (HeadwaterError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise refuse(f"a deed is not good: {error}") from None
            if body.home != ad.home or signer != holder or body.term <= term or body.to == signer:
                raise refuse(f"expected a deed of {holder} for it, found one of {signer}, for {body.home!r}")
            holder, term = body.to, body.term
        if holder != node or term != ad.term or not deeds:
            raise refuse(f"expected deeds that lead to it with move {ad.term}, found {holder} with move {term}")

    def _opened(self, deed: bytes) -> tuple[str, DeedBody]:
        """Who has signed a deed, by name, and what it says."""
        verifier = DocumentVerifier(
            self._context.security,
            self._context.network.federation,
            trust=self._context.keyring.credentials.trust,
            known=lambda fingerprint: True,
        )
        verified = verifier.verify(SignedDocument.from_bytes(deed), kind=KIND, expired=True)
        return verified.document.signer.rpartition(".")[0], _BODY.decode(verified.document.body)


def leading_to(node: str, home: str, deeds: Sequence[bytes]) -> tuple[bytes, ...]:
    """Of the deeds with which a source came to a node, those until it was there for the first time."""
    if node_of(home) == node:
        return ()
    for at, each in enumerate(deeds):
        if _BODY.decode(SignedDocument.from_bytes(each).document.body).to == node:
            return tuple(deeds[: at + 1])
    return tuple(deeds)


def node_of(home: str) -> str:
    """The name of the node where a source began, by its key; nothing if it is no such key."""
    parts = home.split("/")
    return unquote(parts[1]) if len(parts) == 4 and parts[0] + "/" == LOGGED else ""


def name_of(home: str) -> str:
    """The name of the source."""
    return unquote(home.rpartition("/")[2])


__all__ = ["Deeds", "leading_to", "name_of", "node_of"]
