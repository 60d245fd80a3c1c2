"""Who a node is: a name, a key of its own, and perhaps a certificate that ties the two together.

    Identity.ephemeral("dublin")                                    a new key; good until the process ends
    Identity.load(certificate="dublin.pem", key="dublin.key")       the name is the certificate's
    Identity.from_bytes("dublin", stored)                           a key kept from before

The id of a node is its name, a dot, and the first 32 hex digits of the SHA-256 of its public key: 128 bits, so that
nobody can make another key with the same id. So an id says which key its owner must have, and nobody can sign for
another node, with or without certificates.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from headwater.channel.options.settings import show
from headwater.errors import ConfigError, ConfigProblem, SecurityError

log = logging.getLogger("headwater.federation")

PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
PublicKey: TypeAlias = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

MAX_NAME = 64  # characters: what a certificate's common name may have
ID_DIGITS = 32  # hex digits of the fingerprint in an id, and in a rule at least: 128 bits
MAX_CHAIN = 4  # certificates that a node shows: its own and those between it and the authority
KEYS = "an Ed25519 or EC P-256 key"
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{MAX_NAME - 1}}}")
_DIGITS = re.compile(rf"[0-9a-f]{{{ID_DIGITS}}}")
_ECDSA = ec.ECDSA(hashes.SHA256())
_DER, _SPKI = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo


def legal_name(text: object) -> bool:
    """Whether a node of a federation may have this name."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def check_node_name(text: object, place: str = "node: name") -> str:
    """The text itself, if it can be the name of a node in a federation: it is part of keys, files and certificates."""
    if not legal_name(text):
        expected = f"1 to {MAX_NAME} letters a-z, A-Z, digits, _, - and ., of which the first is a letter or digit"
        raise ConfigError([ConfigProblem(place, expected, show(text))])
    return str(text)


def fingerprint(public: bytes) -> str:
    """The fingerprint of a public key in its DER form: 64 hex digits."""
    return hashlib.sha256(public).hexdigest()


def node_id(name: str, print_: str) -> str:
    """The id of the node of that name whose key has that fingerprint."""
    return f"{name}.{print_[:ID_DIGITS]}"


def is_id(text: str) -> bool:
    """Whether a text has the form of a node's id."""
    name, _, digits = text.rpartition(".")
    return legal_name(name) and _DIGITS.fullmatch(digits) is not None


def public_bytes(key: PublicKey) -> bytes:
    """A public key's DER form, always the same for the same key."""
    return key.public_bytes(_DER, _SPKI)


def supported(key: object) -> bool:
    """Whether it is a public key that envelopes can be signed with."""
    if isinstance(key, ec.EllipticCurvePublicKey):
        return isinstance(key.curve, ec.SECP256R1)
    return isinstance(key, ed25519.Ed25519PublicKey)


def read_public(data: bytes) -> PublicKey:
    """The public key of this DER form, or ValueError: also for another form of the same key."""
    try:
        key = serialization.load_der_public_key(data)
    except Exception as error:  # a parser of hostile bytes has more ways to fail than it documents
        raise ValueError("not a public key in DER form") from error
    if not supported(key) or not isinstance(key, PublicKey):
        raise ValueError(f"not {KEYS}")
    if public_bytes(key) != data:
        raise ValueError("not the canonical form of a public key")
    return key


def verify(key: PublicKey, signature: bytes, data: bytes) -> bool:
    """Whether the owner of the key signed the data."""
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, data)
        else:
            key.verify(signature, data, _ECDSA)
    except InvalidSignature:
        return False
    return True


def same_key(certificate: bytes | None, public: bytes) -> bool:
    """Whether a certificate (DER) is for this public key (DER).

    The other end of a TLS connection has proven to own the key of its certificate, an envelope the key that signed it.
    Where the two are the same, the connection is with the node that sealed the envelope.
    """
    if certificate is None:
        return False
    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
    except Exception:  # as in read_public
        return False
    return supported(key) and isinstance(key, PublicKey) and public_bytes(key) == public


def certificate_name(certificate: x509.Certificate) -> str | None:
    """The name of the node that a certificate is for: its common name, or the one DNS name if it has no common name.

    Other alternative names are of hosts, which several nodes may share, so they prove nothing about a node.
    """
    names = [str(found.value) for found in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    if not names:
        try:
            others = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return None
        names = others.get_values_for_type(x509.DNSName)
    return names[0] if len(names) == 1 and legal_name(names[0]) else None


def certificate_groups(certificate: x509.Certificate) -> tuple[str, ...]:
    """The groups that the authority put the node in: the organizational units of its certificate."""
    units = certificate.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATIONAL_UNIT_NAME)
    return tuple(sorted({str(unit.value) for unit in units}))


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """A node's name, private key and certificates (DER, its own first, then those between it and the authority)."""

    name: str
    private: PrivateKey = field(repr=False)
    chain: tuple[bytes, ...] = field(default=(), repr=False)
    public: bytes = field(init=False, repr=False)  # DER
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        check_node_name(self.name)
        public = self.private.public_key()
        if not supported(public):
            raise ConfigError([ConfigProblem(f"identity of {self.name}", KEYS, f"a key of {_kind(self.private)}")])
        object.__setattr__(self, "public", public_bytes(public))
        object.__setattr__(self, "fingerprint", fingerprint(self.public))
        if self.chain and not same_key(self.chain[0], self.public):
            hint = "give the key that was made with this certificate"
            problem = ConfigProblem(f"identity of {self.name}", "the certificate's key", "another key", hint)
            raise ConfigError([problem])

    @property
    def id(self) -> str:
        """The node's id: its name, and the beginning of its key's fingerprint."""
        return node_id(self.name, self.fingerprint)

    def sign(self, data: bytes) -> bytes:
        """A signature over the data, by the node's key."""
        if isinstance(self.private, ed25519.Ed25519PrivateKey):
            return self.private.sign(data)
        return self.private.sign(data, _ECDSA)

    @classmethod
    def ephemeral(cls, name: str) -> Identity:
        """An identity with a new key."""
        return cls(name, ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def from_bytes(cls, name: str, data: bytes) -> Identity:
        """The identity whose key was kept with `to_bytes`."""
        try:
            key = serialization.load_der_private_key(data, None)
        except (ValueError, TypeError) as error:
            hint = "remove it from the node's state to begin with a new key, and so a new id"
            problem = ConfigProblem(f"stored key of {name}", "a private key as kept before", str(error), hint)
            raise ConfigError([problem]) from error
        return cls(name, _private(key, f"stored key of {name}"))

    def to_bytes(self) -> bytes:
        """The private key, to be kept where nobody else can read it."""
        return self.private.private_bytes(_DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

    @classmethod
    def load(
        cls, *, certificate: str | os.PathLike[str], key: str | os.PathLike[str], name: str | None = None
    ) -> Identity:
        """The identity in two PEM files; if a name is given, it must be the one in the certificate."""
        chain = read_certificates(certificate)
        place = os.fspath(certificate)
        if len(chain) > MAX_CHAIN:
            expected = f"at most {MAX_CHAIN} certificates, the node's own first"
            raise ConfigError([ConfigProblem(place, expected, f"{len(chain)}", "leave out the authority's")])
        found = certificate_name(chain[0])
        if found is None:
            expected = "a certificate with a node's name as its one common name"
            hint = 'make one with headwater.federation.security.certificates.issue(folder, "name")'
            raise ConfigError([ConfigProblem(place, expected, chain[0].subject.rfc4514_string() or "none", hint)])
        if name is not None and name != found:
            hint = f'name the node "{found}", or have a certificate issued for "{name}"'
            raise ConfigError(
                [ConfigProblem(place, f'a certificate for the node "{name}"', f'one for "{found}"', hint)]
            )
        private = read_private(key)
        if isinstance(private, ed25519.Ed25519PrivateKey):
            expected, hint = "an EC P-256 key, for there is a certificate", "few verify certificates of Ed25519 keys"
            raise ConfigError([ConfigProblem(os.fspath(key), expected, "an Ed25519 key", hint)])
        ders = tuple(each.public_bytes(_DER) for each in chain)
        if not same_key(ders[0], public_bytes(private.public_key())):
            hint = "give the two files that were made together"
            raise ConfigError(
                [ConfigProblem(os.fspath(key), f"the key of the certificate {place}", "another key", hint)]
            )
        return cls(found, private, ders)


def read_certificates(path: str | os.PathLike[str]) -> Sequence[x509.Certificate]:
    """The certificates of a PEM file: one at least."""
    data = _read(path, "certificates in PEM form")
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        problem = ConfigProblem(os.fspath(path), "certificates in PEM form", f"none that can be read: {error}")
        raise ConfigError([problem]) from error


def read_private(path: str | os.PathLike[str]) -> PrivateKey:
    """The private key of a PEM file."""
    data = _read(path, "a private key in PEM form")
    place = os.fspath(path)
    try:
        key = serialization.load_pem_private_key(data, None)
    except TypeError as error:
        hint = "write it without a password, readable for the node's user only"
        raise ConfigError([ConfigProblem(place, "a private key", "one with a password on it", hint)]) from error
    except ValueError as error:
        raise ConfigError([ConfigProblem(place, "a private key in PEM form", str(error))]) from error
    if stat.S_IMODE(os.stat(path).st_mode) & 0o007:  # noqa: PTH116 - any kind of path
        log.warning("%s: everybody on this machine can read this private key; hint: chmod 600 %s", place, place)
    return _private(key, place)


def _read(path: str | os.PathLike[str], what: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        found = (error.strerror or str(error)).lower()
        raise ConfigError([ConfigProblem(os.fspath(path), f"a file with {what}", found)]) from error


def _private(key: object, place: str) -> PrivateKey:
    if isinstance(key, PrivateKey) and supported(key.public_key()):
        return key
    raise ConfigError([ConfigProblem(place, KEYS, f"a key of {_kind(key)}", "make a new one")])


def _kind(key: object) -> str:
    return f"curve {key.curve.name}" if isinstance(key, ec.EllipticCurvePrivateKey) else type(key).__name__


def refuse(reason: str, offender: str, message: str) -> SecurityError:
    """What to raise about a message that is not trusted. Who it says to be from may be any text, not fit for a log."""
    name, dot, digits = offender.rpartition(".")
    proper = dot and legal_name(name) and _DIGITS.fullmatch(digits)
    shown = offender if proper else show(ascii(offender)[1:-1])
    who = shown if offender else "somebody"
    return SecurityError(f"refused what {who} sent: {message}", reason, shown if offender else "")
