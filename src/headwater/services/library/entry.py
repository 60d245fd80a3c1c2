"""An entry of a library: a name and a version, what they stand for, and the document by which its publisher says so.

The document (`services/documents.py`) is of the kind "library-entry"; its name and version are the entry's, and its
body is the manifest. The code travels beside it: the manifest has its digest. A version is withdrawn by another
document, of the kind "library-withdrawal", of the same signer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Protocol

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import LibraryError
from headwater.interest import Interest, Origin
from headwater.patterns.pattern import Pattern
from headwater.services.documents import Document, SignedDocument
from headwater.services.library import programs
from headwater.services.library.programs import MAX_TYPE, Program
from headwater.services.library.reference import MAX_CODE, check_name, check_version
from headwater.services.library.trigger_form import TriggerForm

ENTRY_KIND, WITHDRAWAL_KIND = "library-entry", "library-withdrawal"
MAX_NOTE = 1000  # characters


class Manifest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is signed of an entry beside its name and version."""

    kind: Annotated[str, msgspec.Meta(max_length=40)]
    fingerprint: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    digest: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]  # of the code
    size: Annotated[int, msgspec.Meta(ge=0, le=MAX_CODE)]  # of the code, in bytes
    input: Annotated[str, msgspec.Meta(max_length=MAX_TYPE)] = ""
    output: Annotated[str, msgspec.Meta(max_length=MAX_TYPE)] = ""
    note: Annotated[str, msgspec.Meta(max_length=MAX_NOTE)] = ""


class Withdrawal(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """That a version is not to be used any more, and why."""

    fingerprint: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    why: Annotated[str, msgspec.Meta(max_length=MAX_NOTE)]


_encode = msgspec.msgpack.Encoder().encode
_manifest = msgpack_decoder(Manifest).decode
_withdrawal = msgpack_decoder(Withdrawal).decode


@dataclass(frozen=True)
class LibraryEntry:
    """One version of a name. `owner` is who has signed it, as it was proven: `certificate:NAME`, or `key:FINGERPRINT`;
    `document` and `withdrawal` are the signed documents as bytes, `withdrawn` says why, if it was."""

    name: str
    version: int
    manifest: Manifest
    code: bytes
    owner: str
    document: bytes
    issued: int = 0  # ns since 1970
    withdrawn: str | None = None
    withdrawal: bytes = b""
    _read: list[Program] = field(default_factory=list, compare=False, repr=False)

    @property
    def kind(self) -> str:
        """interest, pattern or trigger."""
        return self.manifest.kind

    @property
    def fingerprint(self) -> bytes:
        """Of the program."""
        return self.manifest.fingerprint

    @property
    def size(self) -> int:
        """Of the code, in bytes."""
        return len(self.code)

    @property
    def origin(self) -> Origin:
        """What an interest is told to be of."""
        return Origin(self.name, self.version, self.fingerprint)

    @property
    def program(self) -> Program:
        """What it stands for, read and checked once."""
        if not self._read:
            made = programs.read(self.kind, self.code, self.fingerprint)
            if not isinstance(made, TriggerForm):
                made.origin = self.origin
            self._read.append(made)
        return self._read[0]

    def interest(self) -> Interest[Any]:
        """Of an interest; LibraryError if it is something else."""
        made = self.program
        if isinstance(made, Interest):
            return made
        raise self._other("an interest", "subscribe")

    def pattern(self) -> Pattern:
        """Of a pattern; LibraryError if it is something else."""
        made = self.program
        if isinstance(made, Pattern):
            return made
        raise self._other("a pattern", "match")

    def trigger(self) -> TriggerForm:
        """Of a trigger; LibraryError if it is something else."""
        made = self.program
        if isinstance(made, TriggerForm):
            return made
        raise self._other("a trigger", "objects.trigger")

    def _other(self, expected: str, where: str) -> LibraryError:
        use = {"interest": "subscribe", "pattern": "node.match", "trigger": "objects.trigger"}.get(self.kind, "")
        return LibraryError(f"{where}: expected {expected}, found {self}, which is a {self.kind}; it is for {use}")

    def __str__(self) -> str:
        return f"@{self.name}/{self.version}"


class Signature(Protocol):
    """Who signs and verifies documents: a node, by its key."""

    def sign(self, kind: str, name: str, version: int, body: bytes) -> bytes:
        """A document of this node, as bytes."""
        ...

    def verify(self, data: bytes, kind: str) -> tuple[Document, str]:
        """A document, and who has signed it; SecurityError if it is not genuine, or nobody vouches for the signer."""
        ...


def make(signature: Signature, name: str, version: int, program: Program, note: str = "") -> LibraryEntry:
    """An entry of this node, signed."""
    packed = programs.pack(program)
    if len(note) > MAX_NOTE:
        raise LibraryError(f"note: expected at most {MAX_NOTE} characters, found {len(note)}")
    manifest = Manifest(
        packed.kind,
        packed.fingerprint,
        programs.digest(packed.code),
        len(packed.code),
        packed.input,
        packed.output,
        note,
    )
    document = signature.sign(ENTRY_KIND, check_name(name), check_version(version), _encode(manifest))
    return take(signature, document, packed.code)


def take(signature: Signature, document: bytes, code: bytes) -> LibraryEntry:
    """An entry of somebody, from bytes that may come from anyone. SecurityError if its signature is not genuine,
    LibraryError if its code is not what was signed."""
    signed, owner = signature.verify(document, ENTRY_KIND)
    manifest = _body(_manifest, signed, "a manifest")
    entry = LibraryEntry(check_name(signed.name), check_version(signed.version), manifest, code, owner, document,
                         signed.issued)  # fmt: skip
    if programs.digest(code) != manifest.digest or len(code) != manifest.size:
        raise LibraryError(
            f"{entry}: expected the code that {owner} has signed, {manifest.size:,} bytes, found {len(code):,} others"
        )
    try:
        _ = entry.program
    except LibraryError as error:
        raise LibraryError(f"{entry} of {owner}: {error}") from None
    entry._read.clear()  # most are only kept: whoever uses it reads it again
    return entry


def from_kept(owner: str, document: bytes, code: bytes) -> LibraryEntry:
    """An entry as the node's own state has it: verified when it was taken; LibraryError if it is damaged."""
    signed = SignedDocument.from_bytes(document).document
    manifest = _body(_manifest, signed, "a manifest")
    if programs.digest(code) != manifest.digest:
        raise LibraryError(f"@{signed.name}/{signed.version}: expected the code that was signed, found other bytes")
    return LibraryEntry(signed.name, signed.version, manifest, code, owner, document, signed.issued)


def withdraw(signature: Signature, entry: LibraryEntry, why: str) -> bytes:
    """The document by which this node withdraws an entry."""
    if len(why) > MAX_NOTE or not why.strip():
        raise LibraryError(f"withdraw {entry}: expected why, 1 to {MAX_NOTE} characters, found {len(why)}")
    body = _encode(Withdrawal(entry.fingerprint, why))
    return signature.sign(WITHDRAWAL_KIND, entry.name, entry.version, body)


def withdrawn(entry: LibraryEntry, why: str, document: bytes) -> LibraryEntry:
    """The same entry, withdrawn."""
    return replace(entry, withdrawn=why, withdrawal=document)


def take_withdrawal(signature: Signature, data: bytes) -> tuple[Document, str, Withdrawal]:
    """A withdrawal of somebody's: which one, by whom, and why."""
    signed, owner = signature.verify(data, WITHDRAWAL_KIND)
    return signed, owner, _body(_withdrawal, signed, "a withdrawal")


def _body(decode: Any, signed: Document, what: str) -> Any:
    try:
        return decode(signed.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LibraryError(f"{signed}: expected {what}, found something else: {error}") from None


__all__ = [
    "ENTRY_KIND",
    "WITHDRAWAL_KIND",
    "LibraryEntry",
    "Manifest",
    "Signature",
    "Withdrawal",
    "from_kept",
    "make",
    "take",
    "take_withdrawal",
    "withdraw",
    "withdrawn",
]
