"""Proof of a user, for one wish: that it is a user who asks, and not only the node that passes the question on.

    AsUser("ann", password="…")                    signed with a key made of the password (`user_keys.py`)
    AsUser("ann", token=token)                     a token of an issuer that the source trusts (`tokens.py`)

A signature is over the federation, the user, the key of the node that asks, and the device: of no use to another node,
for another user or device. It proves the user, and no device: certificates do that. A token says itself for whom and
how long it is good. A proof that came is checked whenever something is decided, so that one which has expired counts no
longer; `UserProofs.until` says when that is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING

from headwater.channel.options.settings import Name, show
from headwater.errors import ConfigError, ConfigProblem, SecurityError
from headwater.federation.security.decisions import KIND, Claim, identity_of
from headwater.federation.security.identity import node_id
from headwater.federation.security.policy import Deny
from headwater.federation.security.tokens import MAX_TOKEN
from headwater.federation.security.user_keys import SIGNATURE, signing_key
from headwater.formats import USER_PROOF
from headwater.services.policy.identity import Identity

if TYPE_CHECKING:
    from headwater.federation.security.rules import Principal
    from headwater.federation.security.settings import Security

_SIGNED, _TOKEN = b"k", b"t"  # what a proof is, before it


class AsUser:
    """A user on a device, for whom a node asks: `subscribe(…, as_=AsUser("ann", password="…"))`.

    It has a password, or a token, which `renew` replaces while subscriptions go on. With neither the node only says so,
    which counts where the rules let it `vouch`."""

    def __init__(
        self,
        user: str,
        *,
        password: str | None = None,
        token: str | bytes | None = None,
        device: str = "",
        kind: str = "",
    ) -> None:
        problems = [Name().problem("AsUser: user", user)]
        problems += [
            Name().problem(f"AsUser: {what}", value) for what, value in (("device", device), ("kind", kind)) if value
        ]
        if password is not None and token is not None:
            problems.append(ConfigProblem("AsUser:", "a password or a token", "both", "remove one of them"))
        if password is not None and (not isinstance(password, str) or not password):
            problems.append(ConfigProblem("AsUser: password", "a text", "something else"))
        made, problem = _token(token)
        if found := [each for each in (*problems, problem) if each is not None]:
            raise ConfigError(found)
        self.user, self.device, self.kind = user, device, kind
        self._key = None if password is None else signing_key(user, password)  # now, since it takes its time
        self._token = made
        self._lock = threading.Lock()
        self._renewed: list[Callable[[], None]] = []

    def claim(self, federation: str, fingerprint: str) -> Claim:
        """What the node whose key has this fingerprint says of this user in a federation, with the proof."""
        proof = b""
        if self._token:
            proof = _TOKEN + self._token
        elif self._key is not None:
            proof = _SIGNED + self._key.sign(_message(federation, self.user, fingerprint, self.device, self.kind))
        return Claim(self.user, self.device, self.kind, proof)

    def renew(self, token: str | bytes) -> None:
        """Another token, before the last one expires or after: subscriptions go on with it."""
        made, problem = _token(token)
        if problem is not None or not made:
            raise ConfigError([problem or ConfigProblem("AsUser: token", "a token", "none")])
        with self._lock:
            self._token, listeners = made, list(self._renewed)
        for each in listeners:
            each()

    def when_renewed(self, call: Callable[[], None]) -> None:
        """Have this called after each renewal."""
        with self._lock:
            self._renewed.append(call)

    def __repr__(self) -> str:
        return f"<AsUser {self.user!r}{f' on {self.device!r}' if self.device else ''}>"


class UserProofs:
    """What proofs of users prove to one node: it meets `decisions.Proving`."""

    def __init__(self, security: Security, federation: str) -> None:
        self._security, self._federation = security, federation

    def __call__(self, principal: Principal, claim: Claim) -> Identity | Deny | None:
        """The identity that a claim's proof proves; None if it has none, Deny if it is not good."""
        if not claim.proof:
            return None
        kind, rest = claim.proof[:1], claim.proof[1:]
        if kind == _SIGNED:
            return self._signed(principal, claim, rest)
        if kind == _TOKEN:
            return self._by_token(principal, claim, rest)
        return Deny("the proof of a user is of no kind that is known here")

    def until(self, claim: Claim) -> float | None:
        """When a proof that is good counts no longer, in seconds since 1970; None if that is not known, or never."""
        if claim.proof[:1] != _TOKEN:
            return None
        for issuer in self._security.token_issuers:
            try:
                return issuer.until(claim.proof[1:])
            except (SecurityError, ValueError, TypeError):
                continue
        return None

    def _signed(self, principal: Principal, claim: Claim, signature: bytes) -> Identity | Deny:
        known = self._security.users_by_name().get(claim.user)
        message = _message(self._federation, claim.user, principal.fingerprint, claim.device, claim.device_kind)
        good = known is not None and len(signature) == SIGNATURE
        if not good or known is None or not known.keys_of(claim.user).verifies(signature, message):
            return Deny(f"what came is no proof that user {claim.user!r} asks at this node")
        return _identity(principal, claim, known.groups, "password")

    def _by_token(self, principal: Principal, claim: Claim, token: bytes) -> Identity | Deny:
        """By the first issuer that has made it. Device and groups are those that the token says, and no others."""
        reasons, node = [], node_id(principal.name, principal.fingerprint)
        for issuer in self._security.token_issuers:
            try:
                found = issuer.identity(token, node=node, fingerprint=principal.fingerprint, now=time())
            except SecurityError as error:
                reasons.append(str(error))
                continue
            if found.user != claim.user:
                return Deny(f"the token that came is not of user {claim.user!r}")
            return found
        return Deny("; ".join(dict.fromkeys(reasons)) or "tokens prove nothing here: there is no issuer")


def _identity(principal: Principal, claim: Claim, groups: tuple[str, ...], how: str) -> Identity | Deny:
    """A user that is proven; on which device, is what the node's certificate proves, and of which kind that is, also
    what is known here of the user. What the user says of them is nothing but text."""
    own = identity_of(principal)
    said = tuple(group for group in groups if group.startswith(KIND))
    kinds = {each for each in (own.device_kind, *(group.removeprefix(KIND) for group in said)) if each}
    kind = claim.device_kind if claim.device_kind in kinds else ""
    if not claim.device_kind and len(kinds) == 1:
        kind = next(iter(kinds))
    try:
        return Identity(
            user=claim.user,
            groups=tuple(group for group in groups if group not in said),
            device=own.device if claim.device in ("", own.device) else "",
            device_kind=kind,
            node=node_id(principal.name, principal.fingerprint),
            how=how,  # type: ignore[arg-type]
        )
    except ConfigError as error:
        return Deny(f"what came says nobody: {error}")


def _message(federation: str, user: str, fingerprint: str, device: str, kind: str) -> bytes:
    """What a user signs: each part with its length, so that no two of them read the same."""
    parts = [text.encode() for text in (federation, user, fingerprint, device, kind)]
    return b"headwater user proof %d" % USER_PROOF + b"".join(b"\0%d:" % len(part) + part for part in parts)


def _token(given: str | bytes | None) -> tuple[bytes, ConfigProblem | None]:
    if given is None:
        return b"", None
    try:
        made = given.encode("ascii") if isinstance(given, str) else bytes(given)
    except (UnicodeEncodeError, TypeError):
        return b"", ConfigProblem("AsUser: token", "a token as text", show(type(given).__name__))
    if not 0 < len(made) <= MAX_TOKEN:
        return b"", ConfigProblem("AsUser: token", f"1 to {MAX_TOKEN:,} bytes", f"{len(made):,}")
    return made, None


__all__ = ["AsUser", "UserProofs"]
