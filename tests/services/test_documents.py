"""Signed documents: who has signed them is proven, and everything that must not get through does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ConfigError, SecurityError
from headwater.federation.security.certificates import issue, make_authority, revoke
from headwater.federation.security.identity import Identity
from headwater.federation.security.settings import Security
from headwater.federation.security.signed_document import DocumentVerifier, sign
from headwater.federation.security.trust import Trust
from headwater.services.documents import DOCUMENT_BYTES, MAX_BODY, SignedDocument, Versions, content_of
from tests.effort import examples

KIND, NAME = "policy", "ie.tcd.door"
LAB = Identity.from_bytes(
    "lab",
    ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32)).private_bytes(
        Encoding.DER, PrivateFormat.PKCS8, NoEncryption()
    ),
)
SIGNED = sign(LAB, "tcd", KIND, NAME, 1, b"body", issued=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("authority")
    make_authority(made)
    for name in ("lab", "eve", "gone"):
        issue(made, name)
    make_authority(made / "other")
    issue(made / "other", "lab")
    return made


def security(folder: Path, name: str = "lab", **more: Any) -> Security:
    return Security(
        certificate=folder / f"{name}.pem", key=folder / f"{name}.key", authority=folder / "authority.pem", **more
    )


def identity(folder: Path, name: str = "lab") -> Identity:
    return Identity.load(certificate=folder / f"{name}.pem", key=folder / f"{name}.key")


def refused(reason: str, call: Callable[[], object]) -> SecurityError:
    with pytest.raises(SecurityError) as found:
        call()
    assert found.value.reason == reason, found.value
    return found.value


def test_a_document_says_who_has_signed_it_by_whatever_way_it_came(folder: Path) -> None:
    signed = sign(identity(folder), "tcd", KIND, NAME, 3, b"what it says", lasts=60)
    came = SignedDocument.from_bytes(signed.to_bytes())
    assert came == signed and came.fingerprint == signed.fingerprint
    found = DocumentVerifier(security(folder, "eve"), "tcd").verify(came, kind=KIND, name=NAME)
    assert (found.signer.name, found.signer.how) == ("lab", "certificate")
    assert (found.document.version, found.document.body) == (3, b"what it says")


def test_without_an_authority_a_key_must_be_pinned(folder: Path) -> None:
    signed = sign(LAB, "tcd", KIND, NAME, 1, b"")
    known = DocumentVerifier(Security(), "tcd", known=[LAB.fingerprint])
    assert known.verify(signed, kind=KIND).signer.fingerprint == LAB.fingerprint
    why = refused("unknown", lambda: DocumentVerifier(Security(), "tcd").verify(signed, kind=KIND))
    assert LAB.fingerprint in str(why)  # what is to be pinned
    # Where there is an authority, a pinned key does not help: it would be a way around revocation.
    strict = DocumentVerifier(security(folder), "tcd", known=lambda _: True)
    refused("unknown", lambda: strict.verify(signed, kind=KIND))


def test_another_kind_name_federation_or_time_is_refused() -> None:
    clock = [10**18]
    verifier = DocumentVerifier(Security(), "tcd", known=lambda _: True, now=lambda: clock[0])
    signed = sign(LAB, "tcd", KIND, NAME, 1, b"", issued=clock[0], lasts=60)
    refused("kind", lambda: verifier.verify(signed, kind="delegation"))
    refused("kind", lambda: verifier.verify(signed, kind=KIND, name="ie.tcd"))
    refused("federation", lambda: DocumentVerifier(Security(), "ucd", known=lambda _: True).verify(signed, kind=KIND))
    assert verifier.verify(signed, kind=KIND, name=NAME, federation="tcd")
    clock[0] += 61 * 10**9
    refused("expired", lambda: verifier.verify(signed, kind=KIND))
    assert verifier.verify(signed, kind=KIND, expired=True)
    clock[0] -= 3600 * 10**9  # a clock that was set back: it is not good yet
    refused("early", lambda: verifier.verify(signed, kind=KIND))


def test_signatures_of_others_are_refused(folder: Path) -> None:
    verifier = DocumentVerifier(security(folder), "tcd")
    mine, eve = sign(identity(folder), "tcd", KIND, NAME, 2, b"mine"), identity(folder, "eve")
    # Eve has a certificate; she signs what says to be of the lab, with her certificate or with the lab's.
    theirs = msgspec.structs.replace(mine.document, body=b"hers")
    own = msgspec.structs.replace(theirs, chain=list(eve.chain))
    for document, reason in ((theirs, "forged"), (own, "name")):
        content = content_of(document)
        made = SignedDocument(document, content, eve.sign(SignedDocument(document, content, b"").under_signature))
        refused(reason, lambda made=made: verifier.verify(made, kind=KIND))  # type: ignore[misc]
    # An envelope's or anything else's signature is none of a document.
    refused("forged", lambda: verifier.verify(SignedDocument(mine.document, mine.content, eve.sign(mine.content)),
                                              kind=KIND))  # fmt: skip
    other = sign(identity(folder / "other"), "tcd", KIND, NAME, 1, b"")
    refused("authority", lambda: verifier.verify(other, kind=KIND))


def test_a_signer_that_was_revoked_has_signed_nothing_any_more(folder: Path) -> None:
    revoked = revoke(folder)
    trust = Trust(security(folder, revoked=revoked))
    verifier = DocumentVerifier(security(folder, revoked=revoked), "tcd", trust=trust)
    signed = sign(identity(folder, "gone"), "tcd", KIND, NAME, 1, b"")
    assert verifier.verify(signed, kind=KIND)
    revoke(folder, "gone")
    assert trust.look(force=True)
    refused("revoked", lambda: verifier.verify(signed, kind=KIND))


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_bytes_of_anybody_are_refused_or_the_document(data: st.DataObject) -> None:
    verifier = DocumentVerifier(Security(), "tcd", known=lambda _: True)
    signed = SIGNED
    whole = bytearray(signed.to_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.sampled_from(["change", "cut", "insert"]))
    if cut == "change":
        whole[at] ^= data.draw(st.integers(1, 255))
    elif cut == "cut":
        del whole[at:]
    else:
        whole[at:at] = data.draw(st.binary(min_size=1, max_size=8))
    with pytest.raises(SecurityError):
        found = SignedDocument.from_bytes(bytes(whole))
        assert found.content != signed.content or found.signature != signed.signature
        verifier.verify(found, kind=KIND)


def test_everything_is_bounded() -> None:
    refused("malformed", lambda: sign(LAB, "tcd", KIND, NAME, 1, bytes(MAX_BODY + 1)))
    refused("malformed", lambda: sign(LAB, "tcd", KIND, "x" * 256, 1, b""))
    refused("malformed", lambda: sign(LAB, "tcd", "no kind", NAME, 1, b""))
    refused("malformed", lambda: sign(LAB, "tcd", KIND, "line\nbreak", 1, b""))
    refused("malformed", lambda: sign(LAB, "tcd", KIND, NAME, 0, b""))
    refused("malformed", lambda: SignedDocument.from_bytes(bytes(DOCUMENT_BYTES + 1)))
    with pytest.raises(ConfigError, match="above 0"):
        sign(LAB, "tcd", KIND, NAME, 1, b"", lasts=-1)


def test_nobody_goes_back_to_an_older_version() -> None:
    one, two = (sign(LAB, "tcd", KIND, NAME, version, b"") for version in (1, 2))
    versions = Versions(most=2)
    assert versions.accept(one) and not versions.accept(one)
    assert versions.accept(two) and versions.newest(KIND, NAME) == 2
    assert "version after 2" in str(refused("rollback", lambda: versions.accept(one)))
    refused("conflict", lambda: versions.accept(sign(LAB, "tcd", KIND, NAME, 2, b"other")))
    assert versions.accept(sign(LAB, "tcd", "delegation", NAME, 1, b""))
    refused("full", lambda: versions.accept(sign(LAB, "tcd", KIND, "another", 1, b"")))
    after = Versions()  # after a restart, told of what was kept
    after.note(KIND, NAME, 2, two.fingerprint)
    refused("rollback", lambda: after.accept(one))
    assert not after.accept(two)
