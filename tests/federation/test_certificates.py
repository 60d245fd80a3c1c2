"""An authority, certificates from it, and the identities they make."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from headwater.errors import ConfigError
from headwater.federation.security.certificates import Issued, issue, make_authority
from headwater.federation.security.identity import Identity, fingerprint, same_key, verify
from headwater.federation.security.settings import Security


def wrong(make: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make(*args, **kwargs)
    return str(caught.value)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def certificate(files: Issued) -> x509.Certificate:
    return x509.load_pem_x509_certificate(files.certificate.read_bytes())


def security(files: Issued, **more: Any) -> Security:
    return Security(certificate=files.certificate, key=files.key, authority=files.authority, **more)


def test_files_and_what_is_in_them(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    authority = make_authority(folder)
    files = issue(folder, "dublin", ["dublin.example.org", "10.1.2.3"], groups=["staff", "ops"])
    assert sorted(path.name for path in folder.iterdir()) == [
        "authority.key", "authority.pem", "dublin.key", "dublin.pem",
    ]  # fmt: skip
    assert mode(folder) == 0o700 and mode(authority.key) == mode(files.key) == 0o600
    found = certificate(files)
    found.verify_directly_issued_by(certificate(authority))
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"dublin.example.org", "localhost", "dublin"}
    assert {str(ip) for ip in names.get_values_for_type(x509.IPAddress)} == {"10.1.2.3", "127.0.0.1", "::1"}
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    identity = security(files).identity()
    assert identity.name == "dublin" and identity.id == f"dublin.{identity.fingerprint[:32]}"
    assert identity.fingerprint == fingerprint(identity.public) and len(identity.fingerprint) == 64


def test_nothing_is_written_over(tmp_path: Path) -> None:
    make_authority(tmp_path)
    before = issue(tmp_path, "dublin").key.read_bytes()
    assert "authority.pem: expected no file yet" in wrong(make_authority, tmp_path)
    message = wrong(issue, tmp_path, "dublin")
    assert "dublin.pem: expected no file yet" in message and "dublin.key: expected no file yet" in message
    (tmp_path / "dublin.pem").unlink()
    assert "dublin.key" in wrong(issue, tmp_path, "dublin")
    assert (tmp_path / "dublin.key").read_bytes() == before
    assert "authority.key: expected no file yet" in wrong(issue, tmp_path, "authority")
    (tmp_path / "gone.pem").symlink_to(tmp_path / "nowhere")
    assert "gone.pem: expected no file yet" in wrong(issue, tmp_path, "gone")


def test_what_cannot_be_issued(tmp_path: Path) -> None:
    assert "make it with make_authority" in wrong(issue, tmp_path, "dublin")
    make_authority(tmp_path)
    for name in ("", "a/b", "../x", ".x", "a b", "é", "x" * 65, "key:12345678", None):
        assert "certificate: name: expected" in wrong(issue, tmp_path, name)
    for host in ("a b", "-x", "x..y", "tcp/x", "host:80", "é.org", ""):
        assert "certificate: hosts: expected" in wrong(issue, tmp_path, "dublin", [host])
    for days in (0, -1, "7", 10**6, True):
        assert "certificate: days: expected" in wrong(issue, tmp_path, "dublin", days=days)
    assert "certificate: groups: expected" in wrong(issue, tmp_path, "dublin", groups=["x" * 65])
    assert "a time with its zone" in wrong(issue, tmp_path, "dublin", start=datetime(2020, 1, 1))
    assert "authority: name: expected" in wrong(make_authority, tmp_path / "b", name="")
    assert not (tmp_path / "dublin.key").exists() and not (tmp_path / "dublin.pem").exists()
    other = make_authority(tmp_path / "other")
    (tmp_path / "authority.key").write_bytes(other.key.read_bytes())
    assert "authority.key: expected the key of" in wrong(issue, tmp_path, "dublin")
    (tmp_path / "file").write_text("")
    assert "expected a new file that can be written" in wrong(make_authority, tmp_path / "file")


def test_a_certificate_does_not_outlive_its_authority(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, days=10)
    assert certificate(issue(tmp_path, "a", days=365)).not_valid_after_utc == certificate(authority).not_valid_after_utc
    late = datetime.now(UTC) + timedelta(days=11)
    assert "make a new authority" in wrong(issue, tmp_path, "b", start=late)


# ── identities ──


def test_identities_of_all_kinds_sign(tmp_path: Path) -> None:
    make_authority(tmp_path)
    for identity in (
        Identity.ephemeral("a"),
        Identity("b", ed25519.Ed25519PrivateKey.generate()),
        security(issue(tmp_path, "c")).identity("c"),
    ):
        signature = identity.sign(b"hello")
        public = identity.private.public_key()
        assert verify(public, signature, b"hello") and not verify(public, signature, b"hallo")
        assert not verify(public, b"", b"hello") and not verify(public, b"\0" * 64, b"hello")
        again = Identity.from_bytes(identity.name, identity.to_bytes())
        assert again.id == identity.id and verify(public, again.sign(b"x"), b"x")
        secret = identity.to_bytes().hex()
        assert secret not in repr(identity) and "private" not in repr(identity)
    assert Identity.ephemeral("a").id != Identity.ephemeral("a").id


def test_what_is_no_identity(tmp_path: Path) -> None:
    make_authority(tmp_path)
    files, other = issue(tmp_path, "dublin"), issue(tmp_path, "cork")
    assert 'name the node "dublin"' in wrong(security(files).identity, "belfast")
    mixed = Security(certificate=files.certificate, key=other.key, authority=files.authority)
    assert "cork.key: expected the key of the certificate" in wrong(mixed.identity)
    assert "the certificate's key" in wrong(Identity, "x", Identity.ephemeral("x").private, (b"no certificate",))
    assert "Ed25519 or EC P-256" in wrong(Identity, "x", ec.generate_private_key(ec.SECP384R1()))
    assert "node: name: expected" in wrong(Identity.ephemeral, "a b")
    assert "stored key of x" in wrong(Identity.from_bytes, "x", b"nonsense")
    assert "a name, for there is no certificate" in wrong(Security().identity)
    kept = Identity.ephemeral("x")
    assert Security().identity("x", kept.to_bytes()).id == kept.id


def test_files_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    make_authority(tmp_path)
    files = issue(tmp_path, "dublin")
    text = tmp_path / "text"
    text.write_text("no PEM")
    assert "text: expected certificates in PEM form" in wrong(Identity.load, certificate=text, key=files.key)
    assert "text: expected a private key in PEM form" in wrong(Identity.load, certificate=files.certificate, key=text)
    assert "no such file" in wrong(Identity.load, certificate=tmp_path / "none", key=files.key)
    many = tmp_path / "many.pem"
    many.write_bytes(files.certificate.read_bytes() * 5)
    assert "at most 4 certificates" in wrong(Identity.load, certificate=many, key=files.key)
    assert "node's name as its one common name" in wrong(
        Identity.load, certificate=make_authority(tmp_path / "o", name="no node!").certificate, key=files.key
    )

    def key_file(key: Any, password: bytes | None = None) -> Path:
        path = tmp_path / "other.key"
        lock = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
        path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock))
        path.chmod(0o600)
        return path

    def load(key: Path) -> str:
        return wrong(Identity.load, certificate=files.certificate, key=key)

    assert "one with a password on it" in load(key_file(ec.generate_private_key(ec.SECP256R1()), b"x"))
    assert "Ed25519 or EC P-256" in load(key_file(rsa.generate_private_key(65537, 2048)))
    assert "curve secp384r1" in load(key_file(ec.generate_private_key(ec.SECP384R1())))
    assert "expected an EC P-256 key" in load(key_file(ed25519.Ed25519PrivateKey.generate()))


def test_a_node_that_others_would_refuse_does_not_start(tmp_path: Path) -> None:
    make_authority(tmp_path)
    other = make_authority(tmp_path / "other")
    files = issue(tmp_path, "dublin")
    strange = Security(certificate=files.certificate, key=files.key, authority=other.certificate)
    assert "expected a certificate that" in wrong(strange.identity)
    old = issue(tmp_path, "old", days=1, start=datetime.now(UTC) - timedelta(days=5))
    assert "issue a new one" in wrong(security(old).identity)
    early = issue(tmp_path, "early", days=1, start=datetime.now(UTC) + timedelta(days=5))
    assert "issue a new one" in wrong(security(early).identity)


def test_a_key_that_all_can_read_is_said_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_authority(tmp_path)
    files = issue(tmp_path, "dublin")
    security(files).identity()
    assert not caplog.records
    files.key.chmod(0o644)
    security(files).identity()
    assert "chmod 600" in caplog.text


def test_same_key(tmp_path: Path) -> None:
    make_authority(tmp_path)
    one, two = security(issue(tmp_path, "one")).identity(), security(issue(tmp_path, "two")).identity()
    assert same_key(one.chain[0], one.public) and not same_key(one.chain[0], two.public)
    assert not same_key(None, one.public) and not same_key(b"", one.public) and not same_key(one.public, one.public)
