"""What a node proves itself with, as the files say now: its certificate, its key, and TLS contexts made of them.

A certificate that is renewed for the same key takes effect without a restart, for streams that are made and messages
that are signed from then on. With another key the node would have another id, and be another node: that is refused, and
what was good last goes on, as with everything else that is wrong.
"""

from __future__ import annotations

import ssl
import threading
import time
from typing import TYPE_CHECKING

from cryptography import x509

from headwater.errors import ConfigError, ConfigProblem
from headwater.federation.security.proof import VouchError, vouched
from headwater.federation.security.tls import tls_contexts
from headwater.federation.security.trust import Certified, Complaints, Trust, stamp

if TYPE_CHECKING:
    from headwater.federation.security.identity import Identity
    from headwater.federation.security.settings import Security


class Credentials:
    """Of one node."""

    def __init__(self, security: Security, identity: Identity) -> None:
        self._security = security
        self.identity = identity
        self._lock = threading.Lock()
        self._complaints, self._own = Complaints(), Complaints()
        self._vouched: tuple[Identity, Certified] | None = None
        self._stamps = self._stamped()
        self.trust = Trust(security)
        self.contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = tls_contexts(security)

    @property
    def problem(self) -> str:
        """What is wrong with the files at present; nothing, if nothing is."""
        return "; ".join(text for text in (self._complaints.text, self._own.text, self.trust.problem) if text)

    def _stamped(self) -> tuple[object, ...]:
        security = self._security
        return stamp(security.certificate), stamp(security.key), stamp(security.authority)

    def look(self, *, force: bool = False) -> bool:
        """Look at the files; whether there is another certificate, or other authorities."""
        if self._security.certificate is None:
            return False
        self.trust.look(force=force)
        why = self.trust.why_not(self._certified(), time.time_ns())
        self._own.about("" if why is None else f"{self._security.certificate}, which is this node's own: {why[1]}")
        with self._lock:
            stamps = self._stamped()
            if not force and stamps == self._stamps and not self._complaints.text:
                return False
            try:
                identity, contexts = self._load()
            except ConfigError as error:
                self._complaints.about(f"what was good last goes on: {error}")
                return False
            changed = stamps != self._stamps or identity.chain != self.identity.chain
            self._stamps, self.identity, self.contexts = stamps, identity, contexts
            self._complaints.about("")
            return changed

    def _certified(self) -> Certified | None:
        """What vouches for this node itself."""
        identity = self.identity
        if self._vouched is None or self._vouched[0] is not identity:
            store = self.trust.store
            if store is None:
                return None
            chain = [x509.load_der_x509_certificate(each) for each in identity.chain]
            try:
                self._vouched = identity, vouched(chain, store, time.time_ns())
            except VouchError:
                return None  # it was good when it was loaded, and will be complained about when it is loaded again
        return self._vouched[1]

    def _load(self) -> tuple[Identity, tuple[ssl.SSLContext, ssl.SSLContext] | None]:
        identity = self._security.identity(self.identity.name)
        if identity.fingerprint != self.identity.fingerprint:
            hint = "renew the certificate for the same key (headwater certificates renew), or start the node anew"
            problem = ConfigProblem(str(self._security.key), "the key that the node has begun with", "another", hint)
            raise ConfigError([problem])
        return identity, tls_contexts(self._security)


__all__ = ["Credentials"]
