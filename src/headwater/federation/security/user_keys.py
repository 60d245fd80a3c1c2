"""Keys of users, made of their passwords: slow to compute (scrypt, 16 MiB each), so that passwords are slow to guess.

    password_key    what everything else is derived from; it never leaves the process that knows the password
    signing key     Ed25519: with it a node proves that its user knows the password; the public half checks that
    login key       what Zenoh is given in the place of a password

A node that knows others' public halves and login keys can check them, and cannot pass for them. So a file of users
holds these (`UserKeys`), one line for each, and no passwords:

    ann:scrypt1:<64 digits: the public half>:<64 digits: the login key>:security,staff

Who has stolen such a file can guess passwords at scrypt's pace, and log in to Zenoh, where everything that nodes say is
encrypted and signed all the same.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MARK = "scrypt1"  # of a line with keys; another way to make them gets another
SIGNATURE = 64  # bytes
_KEPT = 65_536
_DIGITS = re.compile(r"[0-9a-f]{64}")


@lru_cache(maxsize=_KEPT)
def password_key(user: str, password: str) -> bytes:
    """The key of a user: some 40 ms of a processor and 16 MiB."""
    salt = hashlib.sha256(b"headwater user\0" + user.encode()).digest()
    return hashlib.scrypt(password.encode(), salt=salt, n=2**14, r=8, p=1, dklen=32)


def _derived(user: str, password: str, purpose: bytes) -> bytes:
    derive = HKDF(hashes.SHA256(), 32, salt=None, info=b"headwater %b 1\0" % purpose + user.encode())
    return derive.derive(password_key(user, password))


def signing_key(user: str, password: str) -> Ed25519PrivateKey:
    """What a user proves itself with."""
    return Ed25519PrivateKey.from_private_bytes(_derived(user, password, b"user signature"))


def login_key(user: str, password: str) -> str:
    """What Zenoh gets in the place of a user's password. It sends a fast keyed hash of it: what was seen of a login is
    then no quicker way to guess the password than this is, and does not help to prove anything."""
    return _derived(user, password, b"zenoh login").hex()


@dataclass(frozen=True, slots=True)
class UserKeys:
    """What a node has to know of a user to check who says to be that one. It is enough for nothing else."""

    public: bytes
    login: str

    def __repr__(self) -> str:
        return f"UserKeys({self.public.hex()[:8]}…)"

    def __str__(self) -> str:
        return f"{MARK}:{self.public.hex()}:{self.login}"

    @classmethod
    def of(cls, user: str, password: str) -> UserKeys:
        """Made of a password: some 40 ms."""
        return cls(signing_key(user, password).public_key().public_bytes_raw(), login_key(user, password))

    @classmethod
    def read(cls, text: str) -> UserKeys:
        """As `str` writes them; ValueError says what is wrong, and repeats nothing of it."""
        mark, _, rest = text.partition(":")
        public, _, login = rest.partition(":")
        if mark != MARK:
            raise ValueError(f"keys of another kind than {MARK}")
        if not _DIGITS.fullmatch(public) or not _DIGITS.fullmatch(login):
            raise ValueError(f"something else than two keys of 64 digits 0-9 a-f behind {MARK}:")
        return cls(bytes.fromhex(public), login)

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether who has the password has signed this."""
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


def keys_of(passwords: Mapping[str, str]) -> dict[str, UserKeys]:
    """Those of many users: as many at a time as there are processors."""
    with ThreadPoolExecutor(min(len(passwords), os.cpu_count() or 1) or 1, "headwater-user-keys") as pool:
        return dict(zip(passwords, pool.map(UserKeys.of, passwords.keys(), passwords.values()), strict=True))


__all__ = ["MARK", "SIGNATURE", "UserKeys", "keys_of", "login_key", "password_key", "signing_key"]
