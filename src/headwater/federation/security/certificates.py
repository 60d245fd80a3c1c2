"""Certificates for a federation: an authority of one's own, and a certificate from it for each node.

    make_authority("secrets")                                  secrets/authority.pem, secrets/authority.key
    issue("secrets", "dublin", ["dublin.example.org"])         secrets/dublin.pem, secrets/dublin.key
    renew("secrets", "dublin")                                 secrets/dublin.pem, anew, for the same key
    revoke("secrets", "cork")                                  secrets/revoked.pem, with the certificate of cork in it

A node needs its own two files and `authority.pem`. `authority.key` can make any node: keep it off the nodes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from headwater.channel.options.settings import Count, show
from headwater.errors import ConfigError, ConfigProblem
from headwater.federation.security.identity import MAX_NAME, check_node_name, read_certificates, read_private
from headwater.federation.security.revocation import read_revocations, to_pem

AUTHORITY = "authority"
REVOKED = "revoked.pem"
HOSTS = ("localhost", "127.0.0.1", "::1")  # in every certificate: nodes of one machine reach each other by these
EARLIER = timedelta(hours=1)  # a certificate is good from before it was made, for clocks differ


@dataclass(frozen=True, slots=True)
class Issued:
    """Where a certificate and its private key are."""

    certificate: Path
    key: Path
    authority: Path


def make_authority(
    folder: str | os.PathLike[str],
    *,
    name: str = "Headwater authority",
    days: int = 3650,
    start: datetime | None = None,
) -> Issued:
    """Make an authority: `authority.pem`, which every node needs, and `authority.key`, which none must have.

    It is good for `days` days from `start` (now).
    """
    place = Path(folder)
    _check_days(days)
    if not name or len(name) > MAX_NAME:
        raise ConfigError([ConfigProblem("authority: name", f"1 to {MAX_NAME} characters", show(name))])
    files = Issued(place / f"{AUTHORITY}.pem", place / f"{AUTHORITY}.key", place / f"{AUTHORITY}.pem")
    _check_free(
        files, "keep it, or choose another folder: a new authority makes all certificates of the old one useless"
    )
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        _builder(subject, subject, key.public_key(), days, start)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(certificates=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    _write(files, made.sign(key, hashes.SHA256()), key)
    return files


def issue(
    folder: str | os.PathLike[str],
    name: str,
    hosts: Iterable[str] = (),
    *,
    groups: Iterable[str] = (),
    days: int = 365,
    start: datetime | None = None,
) -> Issued:
    """Issue a certificate for the node of that name, from the authority in the folder: `name.pem` and `name.key`.

    `hosts` are names and addresses it is reached at, besides this machine's own; `groups` can be named in rules.
    """
    check_node_name(name, "certificate: name")
    _check_days(days)
    place = Path(folder)
    parent, parent_key = _authority(place)
    files = Issued(place / f"{name}.pem", place / f"{name}.key", place / f"{AUTHORITY}.pem")
    hint = "renew it if it is to stay; remove the old files first if the node is to have a new key, and so a new id"
    _check_free(files, hint)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name), *_units(groups)])
    made = _node_builder(
        subject, key.public_key(), x509.SubjectAlternativeName(_alternatives(name, hosts)), parent, days, start
    )
    _write(files, made.sign(parent_key, hashes.SHA256()), key)
    return files


def renew(folder: str | os.PathLike[str], name: str, *, days: int = 365, start: datetime | None = None) -> Path:
    """Issue the certificate `name.pem` of a folder anew: for the same node, key, hosts and groups, for `days` days.

    The file is replaced in one go: a node that runs with it takes it up within seconds. Its private key is not needed
    for this, and so need not be in the folder."""
    check_node_name(name, "certificate: name")
    _check_days(days)
    place = Path(folder)
    parent, parent_key = _authority(place)
    path = place / f"{name}.pem"
    before = read_certificates(path)[0]
    public = before.public_key()
    if before.issuer != parent.subject or not isinstance(public, ec.EllipticCurvePublicKey):
        expected = f"a certificate of {place / AUTHORITY}.pem, for an EC P-256 key"
        raise ConfigError([ConfigProblem(str(path), expected, f"one of {before.issuer.rfc4514_string()!r}")])
    try:
        hosts = before.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        hosts = x509.SubjectAlternativeName(_alternatives(name, ()))
    made = _node_builder(before.subject, public, hosts, parent, days, start).sign(parent_key, hashes.SHA256())
    _replace(path, made.public_bytes(serialization.Encoding.PEM))
    return path


def revoke(folder: str | os.PathLike[str], *names: str, days: int = 30, start: datetime | None = None) -> Path:
    """Take back the certificates `name.pem` of a folder: `revoked.pem`, the authority's list of what is revoked, has
    them from now on, besides those that it had. It is good for `days` days, and must be made anew before that: without
    names it says the same as before.

    Nodes with `Security(revoked=...)` part with such nodes as soon as they have the list, and refuse them. A node that
    was revoked needs a new key: remove its files, and `issue` new ones."""
    _check_days(days)
    place = Path(folder)
    parent, parent_key = _authority(place)
    path = place / REVOKED
    begin = datetime.now(UTC) if start is None else start
    made = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(parent.subject)
        .last_update(begin - EARLIER)
        .next_update(begin + timedelta(days=days))
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(parent_key.public_key()), critical=False)
    )
    since = {} if not path.exists() else {
        number: when for (_, number), when in read_revocations(path, [parent], late=True).since.items()
    }  # fmt: skip
    for name in names:
        check_node_name(name, "certificate: name")
        for each in read_certificates(place / f"{name}.pem")[:1]:
            since.setdefault(each.serial_number, begin)
    for number, when in sorted(since.items()):
        entry = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(when)
        made = made.add_revoked_certificate(entry.build())
    _replace(path, to_pem(made.sign(parent_key, hashes.SHA256())))
    return path


def _authority(place: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    authority, signer = place / f"{AUTHORITY}.pem", place / f"{AUTHORITY}.key"
    if not authority.is_file() or not signer.is_file():
        hint = "make it with make_authority(folder)"
        problem = ConfigProblem(str(place), f"an authority: {AUTHORITY}.pem and {AUTHORITY}.key", "none", hint)
        raise ConfigError([problem])
    parent, parent_key = read_certificates(authority)[0], read_private(signer)
    if not isinstance(parent_key, ec.EllipticCurvePrivateKey) or parent_key.public_key() != parent.public_key():
        raise ConfigError([ConfigProblem(str(signer), f"the key of {authority}", "another key")])
    return parent, parent_key


def _node_builder(
    subject: x509.Name,
    public: ec.EllipticCurvePublicKey,
    hosts: x509.SubjectAlternativeName,
    parent: x509.Certificate,
    days: int,
    start: datetime | None,
) -> x509.CertificateBuilder:
    identifier = parent.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        _builder(subject, parent.subject, public, days, start, latest=parent.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(hosts, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    days: int,
    start: datetime | None,
    *,
    latest: datetime | None = None,
) -> x509.CertificateBuilder:
    """What every certificate has in common. It never outlives its authority: it would not be trusted then."""
    begin = datetime.now(UTC) if start is None else start
    if begin.tzinfo is None:
        raise ConfigError([ConfigProblem("certificate: start", "a time with its zone", show(begin))])
    end = begin + timedelta(days=days)
    if latest is not None and end > latest:
        end = latest  # it would not be trusted any longer than its authority
    if begin >= end:
        found = f"{begin:%Y-%m-%d} to {end:%Y-%m-%d}"
        hint = "make a new authority"
        raise ConfigError([ConfigProblem("certificate", "days before its authority expires", found, hint)])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - EARLIER)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _units(groups: Iterable[str]) -> list[x509.NameAttribute[str]]:
    units = []
    for group in [groups] if isinstance(groups, str) else groups:
        if not isinstance(group, str) or not 0 < len(group) <= MAX_NAME or not group.isprintable():
            raise ConfigError(
                [ConfigProblem("certificate: groups", f"names of 1 to {MAX_NAME} characters", show(group))]
            )
        units.append(x509.NameAttribute(x509.NameOID.ORGANIZATIONAL_UNIT_NAME, group))
    return units


def _alternatives(name: str, hosts: Iterable[str]) -> list[x509.GeneralName]:
    asked = [hosts] if isinstance(hosts, str) else list(hosts)
    found: list[x509.GeneralName] = []
    for host in dict.fromkeys([*asked, *HOSTS]):
        try:
            found.append(x509.IPAddress(ip_address(host)))
            continue
        except ValueError:
            pass
        if not _is_host(host):
            expected = "host names in ASCII and IP addresses, without ports"
            raise ConfigError([ConfigProblem("certificate: hosts", expected, show(host))])
        found.append(x509.DNSName(host))
    if _is_host(name) and name not in asked and name not in HOSTS:
        found.append(x509.DNSName(name))
    return found


def _is_host(text: object) -> bool:
    if not isinstance(text, str) or not text.isascii() or not 0 < len(text) <= 253:
        return False
    return all(
        0 < len(part) <= 63 and part.replace("-", "").isalnum() and not part.startswith("-") and not part.endswith("-")
        for part in text.split(".")
    )


def _check_days(days: object) -> None:
    if (problem := Count(1, 36_500).problem("certificate: days", days)) is not None:
        raise ConfigError([problem])


def _check_free(files: Issued, hint: str) -> None:
    if there := [path for path in (files.certificate, files.key) if os.path.lexists(path)]:
        raise ConfigError([ConfigProblem(str(path), "no file yet", "one that exists", hint) for path in there])


def _write(files: Issued, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    try:
        files.key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _create(files.key, secret, 0o600)
        try:
            _create(files.certificate, certificate.public_bytes(pem), 0o644)
        except OSError:
            with suppress(OSError):
                files.key.unlink()
            raise
    except OSError as error:
        found = (error.strerror or str(error)).lower()
        problem = ConfigProblem(str(error.filename or files.key), "a new file that can be written", found)
        raise ConfigError([problem]) from error


def _replace(path: Path, data: bytes) -> None:
    """Write a file in one go: who reads it finds the old or the new one."""
    try:
        handle, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(made).chmod(0o644)
            Path(made).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(made).unlink()
            raise
    except OSError as error:
        found = (error.strerror or str(error)).lower()
        raise ConfigError([ConfigProblem(str(path), "a file that can be replaced", found)]) from error


def _create(path: Path, data: bytes, mode: int) -> None:
    """Write a file that was not there, so that at no moment anybody else can read it, or have put it there."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
