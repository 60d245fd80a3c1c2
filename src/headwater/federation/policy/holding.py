"""The documents that a node holds: verified, never older than before, and in its state, if it has one."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, NamedTuple

from headwater.errors import HeadwaterError, SecurityError
from headwater.federation.security.rules import Principal
from headwater.federation.security.signed_document import DocumentVerifier, Verified, sign
from headwater.federation.wire.policy_requests import MOST_POLICIES
from headwater.services.documents import SignedDocument, Versions
from headwater.services.policy.book import InForce, PolicyBook
from headwater.services.policy.channel_policy import ChannelPolicy
from headwater.store import Tables

if TYPE_CHECKING:
    from headwater.federation.context import Context
    from headwater.federation.security.policies import Policies
    from headwater.store.state import RoomTables

log = logging.getLogger("headwater.federation")
KIND = "policy"
_CREATE = (
    "CREATE TABLE policies (name TEXT PRIMARY KEY, version INTEGER NOT NULL, document BLOB NOT NULL) WITHOUT ROWID"
)
TABLES = Tables("policies", ((_CREATE,),))


class Held(NamedTuple):
    """A document, and the policy in it; None: one of that name was lifted."""

    signed: SignedDocument
    policy: ChannelPolicy | None
    signer: Principal

    @property
    def name(self) -> str:
        return self.signed.document.name

    @property
    def version(self) -> int:
        return self.signed.document.version

    @property
    def expires(self) -> int:
        """In ns since 1970; 0: never."""
        return self.signed.document.expires


class Holding:
    """Of one node. Thread-safe."""

    def __init__(self, context: Context, settings: Policies | None, book: PolicyBook) -> None:
        self._context, self._settings, self._book = context, settings, book
        keyring = context.keyring
        own = keyring.credentials.identity.fingerprint
        self._own = own
        self._verifier = DocumentVerifier(
            context.security,
            context.network.federation,
            trust=keyring.credentials.trust,
            known=lambda found: found == own or (settings is not None and settings.pins(found)),
        )
        self._versions = Versions(MOST_POLICIES)
        self._lock = threading.RLock()
        self._held: dict[str, Held] = {}
        self._tables: RoomTables | None = None

    def open(self) -> list[str]:
        """Take up what the state has; what of it does not hold any more, and why."""
        state = self._context.node.state
        if state is None:
            return []
        self._tables = state.tables(TABLES)
        problems = []
        for name, version, data in self._tables.read("SELECT name, version, document FROM policies"):
            self._versions.note(KIND, name, version)  # whatever is wrong with it: nothing older holds again
            try:
                held = self._read(SignedDocument.from_bytes(data))
                with self._lock:
                    self._put(held)
            except HeadwaterError as error:
                problems.append(f"policy {name!r} version {version:,}: {error}")
        return problems

    def all(self) -> list[Held]:
        """Those that are held, lifted ones included."""
        with self._lock:
            return list(self._held.values())

    def known(self) -> dict[str, int]:
        """The versions that are held, by name."""
        return {each.name: each.version for each in self.all()}

    def prints(self) -> dict[str, str]:
        """The fingerprints of those documents, by name: two of one version may say different things."""
        return {each.name: each.signed.fingerprint for each in self.all()}

    def newest(self, name: str) -> int:
        """The newest version that was ever held of a policy; 0 if none was."""
        return self._versions.newest(KIND, name)

    def make(
        self, policy: ChannelPolicy | None, name: str, *, lasts: float | None = None, after: int = 0
    ) -> SignedDocument:
        """A document by this node, of the next version: after all that are known, and the one that is given."""
        body = b"" if policy is None else policy.to_bytes()
        identity = self._context.keyring.credentials.identity
        version = max(self.newest(name), after) + 1
        return sign(identity, self._context.network.federation, KIND, name, version, body, lasts=lasts)

    def take(self, signed: SignedDocument) -> tuple[Held, ChannelPolicy | None] | None:
        """Put a document in force; with what it says, the policy that was in force before. None: it is held already.
        SecurityError or ConfigError if it does not hold here."""
        held = self._read(signed)
        with self._lock:
            before = self._held.get(held.name)
            if before is not None and before.signed.fingerprint == signed.fingerprint:
                return None
            if held.name not in self._held and len(self._held) >= MOST_POLICIES:
                raise SecurityError(
                    f"refused {signed.document}: {MOST_POLICIES:,} policies are held, and no more", "full"
                )
            self._versions.accept(signed)
            self._keep(held)
            self._put(held)
            return held, None if before is None else before.policy

    def _keep(self, held: Held) -> None:
        """For the next start. Where that fails it is in force all the same: a full disk keeps no revocation away."""
        if self._tables is None:
            return
        try:
            with self._tables.transaction(durable=True) as write:
                write(
                    "INSERT INTO policies VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET version = "
                    "excluded.version, document = excluded.document",
                    (held.name, held.version, held.signed.to_bytes()),
                )
        except HeadwaterError as error:
            log.error("node %s: %s is in force, and could not be kept for the next start: %s", self._context.name,
                      held.signed.document, error)  # fmt: skip

    def counts(self, signed: SignedDocument) -> bool:
        """Whether a document is by one whose policies hold here, also if it has ended since."""
        try:
            self._check_signer(self._verifier.verify(signed, kind=KIND, expired=True))
        except HeadwaterError:
            return False
        return True

    def _read(self, signed: SignedDocument) -> Held:
        """What a document says, if it is by one whose policies hold here."""
        verified = self._verifier.verify(signed, kind=KIND)
        self._check_signer(verified)
        document = signed.document
        if not document.body:
            return Held(signed, None, verified.signer)
        policy = ChannelPolicy.from_bytes(document.body)
        if policy.name != document.name:
            raise SecurityError(
                f"refused {document}: the policy in it is called {policy.name!r}", "name", document.signer
            )
        return Held(signed, policy, verified.signer)

    def _check_signer(self, verified: Verified) -> None:
        signer, settings = verified.signer, self._settings
        if signer.fingerprint == self._own or (settings is not None and settings.signed_by(signer)):
            return
        expected = "nobody else's" if settings is None else f"those of {', '.join(settings.by)}"
        raise SecurityError(
            f"refused {verified.document} of {verified.document.signer}: it is signed by {signer}, and here {expected} "
            "hold; hint: Security(policies=Policies(by=...))",
            "rule",
            verified.document.signer,
        )

    def _put(self, held: Held) -> None:
        self._held[held.name] = held
        if held.policy is None:
            self._book.lift(held.name)
        else:
            self._book.put(InForce(held.policy, held.version, held.signed.document.signer))


__all__ = ["KIND", "Held", "Holding"]
