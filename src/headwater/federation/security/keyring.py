"""The keys of one run of a node: it seals what goes out, opens what comes in, and follows the files of its security."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.federation.security.credentials import Credentials
from headwater.federation.security.envelope import Opened, Sealer, Verifier
from headwater.federation.security.session import Exchange

if TYPE_CHECKING:
    from headwater.federation.security.identity import Identity
    from headwater.federation.security.settings import Security


class Keyring:
    """`loopback`: whether all endpoints of the node are, so that without any security a bare key is enough to be heard.
    `lives(node, run)` says whether that run of another node is there, as far as can be seen."""

    def __init__(
        self,
        security: Security,
        federation: str,
        identity: Identity,
        incarnation: int,
        *,
        loopback: bool,
        lives: Callable[[str, int], bool],
    ) -> None:
        self.security, self.federation, self.incarnation, self.loopback = security, federation, incarnation, loopback
        self.credentials = Credentials(security, identity)
        self.id = identity.id
        self.exchange = Exchange()
        self._sealer = Sealer(identity, federation, incarnation, security)
        self.verifier = self.make_verifier(lives=lives)

    def make_verifier(self, *, runs: bool = False, lives: Callable[[str, int], bool] | None = None) -> Verifier:
        """One that opens what is for this run of the node. `runs`: one sender may be several processes at a time."""
        return Verifier(
            self.security,
            self.federation,
            loopback=self.loopback,
            me=self.id,
            run=self.incarnation,
            runs=runs,
            lives=lives or _always,
            trust=self.credentials.trust,
        )

    def seal(self, kind: str, body: bytes, *, to: str = "", run: int = 0, answers: bytes = b"") -> bytes:
        """An envelope, signed by this node."""
        return self._sealer.seal(kind, body, to=to, run=run, answers=answers)

    def open(
        self,
        data: bytes,
        kind: str | None,
        *,
        answers: bytes | None = None,
        fresh: Callable[[bytes], bool] | None = None,
    ) -> Opened:
        """What another node has sealed; SecurityError if it is not good, FrameError if it is none."""
        return self.verifier.open(data, expected_kind=kind, answers=answers, fresh=fresh)

    def renew(self, *, force: bool = False) -> bool:
        """Look at the files; whether there is another certificate, or other authorities, which hold from now on."""
        if not self.credentials.look(force=force):
            return False
        self._sealer.renew(self.credentials.identity)
        return True


def _always(sender: str, run: int) -> bool:
    return True


__all__ = ["Keyring"]
