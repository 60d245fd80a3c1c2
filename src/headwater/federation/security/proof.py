"""What the sender of an envelope has proven: that it owns a key, and who vouches for that key.

An authority, by a certificate; or a password, by a signature over the key that only those who know the password can
make (`user_keys.py`). It is for one node and one key, so whoever sees it cannot use it; nor can who checks it make it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

from cryptography import x509
from cryptography.x509 import verification

from headwater.federation.security.identity import (
    ID_DIGITS,
    KEYS,
    PublicKey,
    certificate_groups,
    certificate_name,
    fingerprint,
    public_bytes,
    read_public,
    refuse,
    supported,
)
from headwater.federation.security.revocation import serial_of
from headwater.federation.security.rules import Principal
from headwater.federation.security.trust import Certified, Trust, anchor_of
from headwater.federation.security.user_keys import UserKeys, signing_key
from headwater.formats import PROOF

if TYPE_CHECKING:
    from headwater.federation.security.settings import Security

_CACHED = 4096
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Credential:
    """A user and its password, as what proves a node."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credential({self.user!r})"

    def prove(self, federation: str, sender: str, public: bytes) -> bytes:
        """What shows that whoever has this key and this id, in this federation, knows the password."""
        return signing_key(self.user, self.password).sign(_message(federation, sender, public))


def _message(federation: str, sender: str, public: bytes) -> bytes:
    return b"\0".join((b"headwater proof %d" % PROOF, federation.encode(), sender.encode(), public))


@dataclass(frozen=True, slots=True)
class Proven:
    """A public key, and what its certificate says if an authority of this node has issued it."""

    key: PublicKey
    public: bytes
    fingerprint: str
    name: str | None = None  # of the certificate
    groups: tuple[str, ...] = ()
    certified: Certified | None = None


class Prover:
    """Decides what a key and its credentials prove to this node. Thread-safe."""

    def __init__(self, security: Security, federation: str, *, loopback: bool, trust: Trust | None = None) -> None:
        self._federation = federation
        self._trust = Trust(security) if trust is None else trust
        self._users = security.users_by_name()
        self._bare = not security.proves and (loopback or security.open)
        self._keys: _Recent[Proven] = _Recent(_CACHED)
        self._proofs: _Recent[bool] = _Recent(_CACHED)  # of users, that were right

    def key(self, chain: list[bytes], public: bytes, sender: str, now: int) -> Proven:
        """The key that must have signed; with a name, if there is a certificate that this node can judge."""
        if bool(chain) == bool(public):
            raise refuse("malformed", sender, "expected either a key or a certificate, found both or none")
        self._trust.look()
        # DER says its own length: no confusion.
        digest = self._trust.version, hashlib.sha256(b"".join(chain) if chain else public).digest()
        found = self._keys.get(digest)
        if found is None:
            found = self._judge(chain, sender, now) if chain else self._plain(public, sender)
            self._keys.put(digest, found)
        if why := self._trust.why_not(found.certified, now):
            raise refuse(why[0], sender, why[1])
        return found

    def principal(self, proven: Proven, name: str, sender: str, user: str, proof: bytes, now: int) -> Principal:
        """Who the owner of a key is. Only now: the signature shows that the sender is the owner."""
        if proven.name is not None:
            if proven.name != name:
                raise refuse("name", sender, f'its certificate is for the node "{proven.name}"')
            return Principal(proven.name, "certificate", proven.fingerprint, proven.groups, proven.certified)
        if self._users and user:
            known = self._users.get(user)
            if known is None or not self._is_right(user, known.keys_of(user), proof, sender, proven.public):
                raise refuse("password", sender, f"user {user!a} is not known here, or the password is not right")
            return Principal(user, "password", proven.fingerprint, known.groups)
        if self._bare:
            return Principal(f"key:{proven.fingerprint[:ID_DIGITS]}", "key", proven.fingerprint)
        wanted = [text for text, there in (
            ("a certificate of the authority", self._trust.store), ("a user and password", self._users)
        ) if there]  # fmt: skip
        if not wanted:
            hint = "give this node an authority or users to know others by: Node(security=Security(...))"
            raise refuse("unknown", sender, f"it comes from beyond this machine and nobody vouches for it; {hint}")
        hint = "give that node Security(certificate=, key=, authority=) or Security(user=, password=)"
        raise refuse("unknown", sender, f"expected {' or '.join(wanted)}, found only a key; {hint}")

    def _is_right(self, user: str, keys: UserKeys, proof: bytes, sender: str, public: bytes) -> bool:
        """Whether a proof is; the same one comes with every message of a node."""
        place = user, keys.public, proof, sender, public
        if self._proofs.get(place) is None:
            if not keys.verifies(proof, _message(self._federation, sender, public)):
                return False
            self._proofs.put(place, True)
        return True

    def _plain(self, public: bytes, sender: str) -> Proven:
        try:
            return Proven(read_public(public), public, fingerprint(public))
        except ValueError as error:
            raise refuse("key", sender, f"expected {KEYS}, found what is {error}") from None

    def _judge(self, chain: list[bytes], sender: str, now: int) -> Proven:
        try:
            certificates = [x509.load_der_x509_certificate(each) for each in chain]
            key = certificates[0].public_key()
            name, groups = certificate_name(certificates[0]), certificate_groups(certificates[0])
        except Exception as error:  # a parser of hostile bytes has more ways to fail than it documents
            raise refuse("certificate", sender, f"its certificate cannot be read: {error}") from None
        if not supported(key) or not isinstance(key, PublicKey):
            raise refuse("certificate", sender, f"expected a certificate of {KEYS}, found one of another")
        public = public_bytes(key)
        store = self._trust.store
        if store is None:
            return Proven(key, public, fingerprint(public))  # nothing this node can judge: it is a key like any other
        if name is None:
            raise refuse("certificate", sender, "expected a certificate with a node's name as its one common name")
        try:
            certified = vouched(certificates, store, now)
        except VouchError as error:
            raise refuse(error.reason, sender, f"its certificate is {error}") from None
        return Proven(key, public, fingerprint(public), name, groups, certified)


class VouchError(Exception):
    """Why a certificate is not trusted."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def vouched(certificates: Sequence[x509.Certificate], store: verification.Store, now: int) -> Certified:
    """By what an authority vouches for the first of these certificates, the others being between."""
    when = _EPOCH + timedelta(microseconds=now // 1000)
    first, last = certificates[0].not_valid_before_utc, certificates[0].not_valid_after_utc
    if not first <= when <= last:
        good = f"good from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
        raise VouchError("expired", f"{good}, and it is {when:%Y-%m-%d %H:%M} here; issue a new one")
    try:
        policy = verification.PolicyBuilder().store(store).time(when)
        verified = policy.build_client_verifier().verify(certificates[0], list(certificates[1:]))
    except Exception as error:  # VerificationError, and what the extensions of a hostile certificate bring about
        raise VouchError("authority", f"not a proper one of the authority that this node knows ({error})") from None
    last = min(each.not_valid_after_utc for each in verified.chain)
    until = round((last - _EPOCH) / timedelta(microseconds=1)) * 1000
    return Certified(until, tuple(map(serial_of, verified.chain)), anchor_of(verified.chain[-1]))


class _Recent(Generic[_T]):
    """The values used last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, _T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> _T | None:
        with self._lock:
            if (found := self._values.get(key)) is not None:
                self._values.move_to_end(key)
            return found

    def put(self, key: Hashable, value: _T) -> None:
        with self._lock:
            self._values[key] = value
            if len(self._values) > self._most:
                self._values.popitem(last=False)


__all__ = ["Credential", "Proven", "Prover", "VouchError", "vouched"]
