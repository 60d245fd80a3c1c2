"""Whom a node trusts, as the files say now: its authorities, and what they have revoked.

The files are looked at again and again. What has been put in their place takes effect without a restart; should it be
wrong, what was good last goes on, and that is said in the log and in reports. A list of revoked certificates that is
not good any more still revokes what it says, and is complained about until it is renewed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509 import verification

from headwater.errors import ConfigError, ConfigProblem
from headwater.federation.security.revocation import Revocations, Serial, issuer_of, read_revocations

if TYPE_CHECKING:
    from headwater.federation.security.settings import Security

log = logging.getLogger("headwater.federation")

RECHECK_SECONDS = 1.0  # after which files are looked at again
COMPLAINT_SECONDS = 3600.0  # after which what is wrong with them is said again
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Stamp = tuple[int, int, int] | None


def stamp(path: str | os.PathLike[str] | None) -> Stamp:
    """What changes when a file is replaced; None if there is none."""
    if path is None:
        return None
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@dataclass(frozen=True, slots=True)
class Certified:
    """What an authority vouches for a key by: until when (ns since 1970), with which certificates, and who it is."""

    until: int
    serials: tuple[Serial, ...]
    anchor: bytes


def anchor_of(certificate: x509.Certificate) -> bytes:
    """What an authority is known by."""
    return hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).digest()


class Complaints:
    """What is wrong at present, said once, and again from time to time."""

    def __init__(self) -> None:
        self.text = ""
        self._said = 0.0

    def about(self, text: str) -> None:
        """Nothing: all is well."""
        now = monotonic()
        if text and (text != self.text or now - self._said > COMPLAINT_SECONDS):
            self._said = now
            log.error("security: %s", text)
        elif self.text and not text:
            log.info("security: all is well again")
        self.text = text


class Trust:
    """Of one node. Thread-safe."""

    def __init__(self, security: Security) -> None:
        self._security = security
        self._lock = threading.Lock()
        self._looked = monotonic()
        self._stamps = self._stamped()
        self._complaints = Complaints()
        self.store: verification.Store | None = None
        self.revocations = Revocations()
        self.version = 0  # one more with each change
        self._anchors: frozenset[bytes] = frozenset()
        self._load(first=True)

    @property
    def problem(self) -> str:
        """What is wrong with the files at present; nothing, if nothing is."""
        return self._complaints.text

    def _stamped(self) -> tuple[Stamp, Stamp]:
        return stamp(self._security.authority), stamp(self._security.revoked)

    def _load(self, *, first: bool = False) -> None:
        security = self._security
        authorities: Sequence[x509.Certificate] = security.authorities()
        revocations = Revocations()
        if security.revoked is not None:
            revocations = read_revocations(security.revoked, authorities, late=not first)
            self._check_not_older(revocations, {issuer_of(each.subject) for each in authorities})
        self.store = verification.Store(list(authorities)) if authorities else None
        self._anchors = frozenset(map(anchor_of, authorities))
        self.revocations = revocations
        self.version += 1

    def _check_not_older(self, found: Revocations, issuers: set[bytes]) -> None:
        """An older list than the one in use, or none, would let in again who was revoked since."""
        for issuer, made in self.revocations.made.items():
            other = found.made.get(issuer)
            if issuer in issuers and (other is None or other < made):
                expected = f"a list no older than the one in use, of {made:%Y-%m-%d %H:%M:%S} UTC"
                shown = "none of that authority" if other is None else f"one of {other:%Y-%m-%d %H:%M:%S} UTC"
                hint = "put the newer one back; to go back to an older one, start the node anew"
                raise ConfigError([ConfigProblem(str(self._security.revoked), expected, shown, hint)])

    def look(self, *, force: bool = False) -> bool:
        """Look at the files, if that was some time ago; whether something has changed."""
        now = monotonic()
        if not force and now - self._looked < RECHECK_SECONDS:
            return False
        with self._lock:
            self._looked = now
            stamps = self._stamped()
            changed, problem = False, ""
            if force or stamps != self._stamps or self.problem:
                try:
                    self._load()
                    changed = stamps != self._stamps
                    self._stamps = stamps
                except ConfigError as error:
                    problem = f"what was good last goes on: {error}"
            until = self.revocations.until
            if not problem and until is not None and until < datetime.now(UTC):
                problem = (
                    f"{self._security.revoked}: expected a list that is still good, found one that was good until "
                    f"{until:%Y-%m-%d %H:%M} UTC; what was revoked since is not known here; renew it: "
                    "headwater certificates revoke FOLDER"
                )
            self._complaints.about(problem)
            return changed

    def why_not(self, certified: Certified | None, now: int) -> tuple[str, str] | None:
        """Why somebody is not vouched for any more, in a word and in more; None if that is not so."""
        if certified is None:
            return None
        if since := self.revocations.of(certified.serials):
            return (
                "revoked",
                f"its certificate was revoked on {since:%Y-%m-%d %H:%M} UTC; issue a new one, with a new key",
            )
        if now > certified.until:
            good = datetime.fromtimestamp(certified.until // 10**9, UTC)
            return "expired", f"its certificate was good until {good:%Y-%m-%d %H:%M} UTC; issue a new one"
        if certified.anchor not in self._anchors:
            return "authority", "its certificate is of an authority that this node does not trust any more"
        return None


__all__ = ["Certified", "Complaints", "Stamp", "Trust", "anchor_of", "stamp"]
