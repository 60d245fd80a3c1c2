"""Tokens of moves: a signed document, as text that can be printed, mailed or shown as a picture.

    hwm1.SFdEMU...

Nobody but its node can have made it, and only that node says whether it is still good: a token that was copied is worth
nothing to who comes second, or is not whom it is for.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import FederationError, SecurityError, SubscriptionError
from headwater.federation.security.signed_document import DocumentVerifier, sign
from headwater.federation.wire.move_requests import SinkMove
from headwater.services.documents import DOCUMENT_BYTES, MAX_BODY, Document, SignedDocument

if TYPE_CHECKING:
    from headwater.federation.context import Context

KIND = "move"
PREFIX = "hwm1."
MAX_TOKEN = DOCUMENT_BYTES * 4 // 3 + 64  # characters

_encode = msgspec.msgpack.Encoder().encode
_MOVE = msgpack_decoder(SinkMove)


def make_token(context: Context, sink: str, move: SinkMove) -> str:
    """Signed by this node."""
    body = _encode(move)
    if len(body) > MAX_BODY:
        raise SubscriptionError(
            f"move: subscription {sink!r}: expected at most {MAX_BODY:,} bytes to say what it is, found {len(body):,}: "
            f"it has {len(move.positions):,} sources; subscribe at the other node instead"
        )
    return signed_token(context, PREFIX, KIND, sink, body)


def signed_token(context: Context, prefix: str, kind: str, name: str, body: bytes) -> str:
    """A document of this node as text."""
    identity = context.keyring.credentials.identity
    signed = sign(identity, context.network.federation, kind, name, 1, body)
    return prefix + base64.urlsafe_b64encode(signed.to_bytes()).decode().rstrip("=")


def read_token(context: Context, token: object) -> tuple[str, SinkMove]:
    """The sink's name, and what the token says; FederationError if it is none, or is not its node's own."""
    document = verified_token(context, token, PREFIX, KIND, "resume", "subscription.move()")
    try:
        move = _MOVE.decode(document.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FederationError(f"resume: expected what a sink is, found something else in the token: {error}") from None
    if move.node != document.signer:
        raise FederationError(f"resume: the token is signed by {document.signer}, and says to be of {move.node}")
    return document.name, move


def verified_token(context: Context, token: object, prefix: str, kind: str, place: str, maker: str) -> Document:
    """What a token says, if it is whole and its node's own; whether it is still good is for that node to say, by its
    own clock. It may come with the blanks and lines of where it was written."""
    if isinstance(token, str):
        token = token.strip()
    if not isinstance(token, str) or not token.startswith(prefix) or len(token) > MAX_TOKEN:
        found = (
            repr(token) if not isinstance(token, str) else f"{len(token):,} characters that begin with {token[:8]!r}"
        )
        raise FederationError(
            f"{place}: expected a token that {maker} has made, which begins with {prefix!r}, found {found}"
        )
    text = token.removeprefix(prefix)
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise FederationError(f"{place}: expected a whole token, found one that was changed: {error}") from None
    try:
        signed = SignedDocument.from_bytes(data)
    except SecurityError as error:
        raise SecurityError(
            f"{place}: expected a whole token, found one that was cut short or changed: {error}; copy all of it",
            error.reason,
        ) from None
    credentials = context.keyring.credentials
    verifier = DocumentVerifier(
        context.security, context.network.federation, trust=credentials.trust, known=lambda fingerprint: True
    )
    try:
        return verifier.verify(signed, kind=kind, expired=True).document
    except SecurityError as error:
        raise SecurityError(
            f"{place}: expected a token as {maker} has made it, found another: {error}", error.reason
        ) from None


__all__ = ["MAX_TOKEN", "make_token", "read_token", "signed_token", "verified_token"]
