"""Signed, versioned documents: policies, delegations of names and named interests are such.

A document says of which kind it is, what it is about (its name), which version of that, for which federation, who has
signed it, from when until when it is good; and has a body, whose meaning is the kind's. The signature is over the bytes
of all of this (`SignedDocument.content`), so a document cannot be used as another kind, under another name, as another
version or in another federation. Here are the values and their bytes; `federation/security/signed_document.py` signs
and verifies them.

On the wire and at rest: `HWD1`, a byte with the length of the signature, the signature, the content (msgpack).
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from typing import Annotated

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import SecurityError
from headwater.formats import DOCUMENT

MAGIC = b"HWD%d" % DOCUMENT
SIGNED = b"headwater document %d\0" % DOCUMENT  # before the content under the signature: a key signs nothing else so
MAX_BODY = 256 * 1024  # bytes
MAX_CHAIN = 4  # certificates
MAX_CERTIFICATE = 16 * 1024  # bytes
MAX_SIGNATURE = 128  # bytes
DOCUMENT_BYTES = MAX_BODY + MAX_CHAIN * MAX_CERTIFICATE + 4096  # of a document in all
MOST_VERSIONS = 65_536  # documents whose versions are remembered

_Kind = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9-]{0,63}\Z")]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
_Number = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
_Certificate = Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_CERTIFICATE)]


class Document(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is signed."""

    federation: Annotated[str, msgspec.Meta(max_length=255)]
    kind: _Kind
    name: _Name
    version: _Number
    body: Annotated[bytes, msgspec.Meta(max_length=MAX_BODY)]
    signer: _Name  # the id of a node: its name, a dot, and the beginning of its key's fingerprint
    key: Annotated[bytes, msgspec.Meta(max_length=1024)]  # the signer's public key (DER), if there is no certificate
    chain: Annotated[list[_Certificate], msgspec.Meta(max_length=MAX_CHAIN)]
    issued: _Number  # ns since 1970
    expires: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0  # ns since 1970; 0: it does not

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} version {self.version:,}"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgpack_decoder(Document).decode


@dataclass(frozen=True, slots=True)
class SignedDocument:
    """A document and the signature over its content. That somebody has one proves nothing: it has to be verified."""

    document: Document
    content: bytes
    signature: bytes

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the content, in hex: two documents are the same if it is."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def under_signature(self) -> bytes:
        """The bytes that the signature is over."""
        return SIGNED + self.content

    def to_bytes(self) -> bytes:
        """The document as it travels and is kept."""
        return b"".join((MAGIC, bytes((len(self.signature),)), self.signature, self.content))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> SignedDocument:
        """The document of these bytes, whoever has made them; SecurityError if they are none."""
        if len(data) > DOCUMENT_BYTES:
            raise malformed(f"expected at most {DOCUMENT_BYTES:,} bytes, found {len(data):,}")
        head = bytes(data[: len(MAGIC)])
        if head != MAGIC or len(data) <= len(MAGIC):
            raise malformed(f"expected bytes that begin with {MAGIC!r}, found {head!r}")
        length, start = data[len(MAGIC)], len(MAGIC) + 1
        signature, content = bytes(data[start : start + length]), bytes(data[start + length :])
        if not 0 < length <= MAX_SIGNATURE or len(signature) < length:
            raise malformed(f"expected a signature of 1 to {MAX_SIGNATURE} bytes, found {length}")
        return cls(read_content(content), content, signature)


def content_of(document: Document) -> bytes:
    """The bytes of a document that are signed: always the same for the same document. SecurityError if it cannot be
    one: a field is too long, or of another form."""
    content = _encode(document)
    read_content(content)
    return content


def read_content(content: bytes) -> Document:
    """The document of these bytes; SecurityError if they are none, or not the one way to write it."""
    try:
        document = _decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(f"expected a document, found something else: {error}") from None
    if _encode(document) != content:
        raise malformed("expected the one way to write this document, found another")
    if bool(document.key) == bool(document.chain):
        raise malformed("expected the signer's key or its certificates, found both or none")
    if document.expires and document.expires <= document.issued:
        raise malformed(f"expected it to expire after it was issued, found {document.expires} after {document.issued}")
    return document


def malformed(message: str) -> SecurityError:
    """What to raise about bytes that are no document."""
    return SecurityError(f"refused a signed document: {message}", "malformed")


class Versions:
    """The newest version of each document that was accepted: an older one is refused, and so is another one that says
    to be the same version. Thread-safe. Whoever keeps documents over a restart tells this of them at the start
    (`note`), or it could be had to go back then."""

    def __init__(self, most: int = MOST_VERSIONS) -> None:
        self._lock = threading.Lock()
        self._newest: dict[tuple[str, str], tuple[int, str]] = {}
        self._most = most

    def note(self, kind: str, name: str, version: int, fingerprint: str = "") -> None:
        """This version was accepted before."""
        with self._lock:
            found = self._newest.get((kind, name))
            if found is None or version > found[0]:
                self._newest[kind, name] = version, fingerprint

    def newest(self, kind: str, name: str) -> int:
        """The newest version that was accepted; 0 if none was."""
        with self._lock:
            return self._newest.get((kind, name), (0, ""))[0]

    def accept(self, signed: SignedDocument) -> bool:
        """Whether a document is newer than all before; False for the newest once more. SecurityError ("rollback") for
        an older one, and ("conflict") for one of the same version that says something else. Only for documents that
        are verified: what anybody can make must not count."""
        document = signed.document
        with self._lock:
            version, fingerprint = self._newest.get((document.kind, document.name), (0, ""))
            if document.version < version:
                raise SecurityError(
                    f"refused {document} of {document.signer}: version {version:,} was in force already; to go back, "
                    f"sign what the older one says as a version after {version:,}",
                    "rollback",
                    document.signer,
                )
            if document.version == version:
                if fingerprint and fingerprint != signed.fingerprint:
                    raise SecurityError(
                        f"refused {document} of {document.signer}: another one of that version is in force; sign it as "
                        f"a version after {version:,}",
                        "conflict",
                        document.signer,
                    )
                return False
            if not version and len(self._newest) >= self._most:
                raise SecurityError(
                    f"refused {document} of {document.signer}: {self._most:,} documents are known here, and no more "
                    "are taken",
                    "full",
                    document.signer,
                )
            self._newest[document.kind, document.name] = document.version, signed.fingerprint
            return True


__all__ = ["DOCUMENT_BYTES", "MAX_BODY", "Document", "SignedDocument", "Versions", "content_of", "read_content"]
