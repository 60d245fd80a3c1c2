"""Certificates that an authority has taken back: lists of them (CRLs), as their authority has signed them.

A list is believed if an authority of this node has signed it. It says until when it is good: from then on more may have
been revoked than it says, so it must be renewed in time (`certificates.revoke` does so). A file may have the lists of
several authorities, in PEM form, or one in DER form.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from headwater.errors import ConfigError, ConfigProblem

_PEM = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)

Serial = tuple[bytes, int]  # who has issued a certificate, and its number


def serial_of(certificate: x509.Certificate) -> Serial:
    """What a list names a certificate by."""
    return issuer_of(certificate.issuer), certificate.serial_number


def issuer_of(name: x509.Name) -> bytes:
    """What an authority is named by there."""
    return hashlib.sha256(name.public_bytes()).digest()


@dataclass(frozen=True, slots=True)
class Revocations:
    """What is revoked, since when, and until when the lists are good."""

    since: Mapping[Serial, datetime] = field(default_factory=dict)
    until: datetime | None = None  # of the list that must be renewed first
    made: Mapping[bytes, datetime] = field(default_factory=dict)  # by who has made a list: when

    def of(self, serials: Sequence[Serial]) -> datetime | None:
        """Since when one of these certificates is revoked, if one is."""
        return next((self.since[each] for each in serials if each in self.since), None)


def read_revocations(
    path: str | os.PathLike[str], authorities: Sequence[x509.Certificate], *, late: bool = False
) -> Revocations:
    """The lists in a file. ConfigError if one cannot be read, is not of one of the authorities, or is not good any more
    (unless `late`)."""
    since: dict[Serial, datetime] = {}
    made: dict[bytes, datetime] = {}
    until: datetime | None = None
    for found in _lists(path):
        _check_signer(path, found, authorities)
        end = found.next_update_utc
        if end is None:
            raise _wrong(path, "a list that says until when it is good", "one that does not", "make it with nextUpdate")
        if end < datetime.now(UTC) and not late:
            hint = "renew it: headwater certificates revoke FOLDER"
            raise _wrong(path, "a list that is still good", f"one that was good until {end:%Y-%m-%d %H:%M} UTC", hint)
        until = end if until is None else min(until, end)
        issuer = issuer_of(found.issuer)
        made[issuer] = max(found.last_update_utc, made.get(issuer, found.last_update_utc))
        for each in found:
            since[issuer, each.serial_number] = each.revocation_date_utc
    return Revocations(since, until, made)


def _lists(path: str | os.PathLike[str]) -> list[x509.CertificateRevocationList]:
    expected = "lists of revoked certificates (CRL), in PEM or DER form"
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise _wrong(path, f"a file with {expected}", (error.strerror or str(error)).lower()) from error
    try:
        if blocks := _PEM.findall(data):
            return [x509.load_pem_x509_crl(each) for each in blocks]
        return [x509.load_der_x509_crl(data)]
    except ValueError as error:
        raise _wrong(path, expected, f"what cannot be read: {error}") from error


def _check_signer(
    path: str | os.PathLike[str], found: x509.CertificateRevocationList, authorities: Sequence[x509.Certificate]
) -> None:
    for authority in authorities:
        if authority.subject == found.issuer:
            try:
                if found.is_signature_valid(authority.public_key()):  # type: ignore[arg-type]
                    return
            except (TypeError, ValueError):  # a key of a kind that signs no lists
                continue
    issuer = found.issuer.rfc4514_string()
    raise _wrong(path, "a list that an authority of this node has signed", f"one of {issuer!r}, which none has signed")


def _wrong(path: str | os.PathLike[str], expected: str, found: str, hint: str | None = None) -> ConfigError:
    return ConfigError([ConfigProblem(os.fspath(path), expected, found, hint)])


def to_pem(made: x509.CertificateRevocationList) -> bytes:
    """The list as text, as it stands in a file."""
    return made.public_bytes(serialization.Encoding.PEM)


__all__ = ["Revocations", "Serial", "issuer_of", "read_revocations", "serial_of", "to_pem"]
