"""Who a web client is, and what it may: the same users, tokens, rules and policies as between nodes.

A password is checked against the keys that the node's security knows of its users, which takes some 40 ms on purpose:
in a thread of its own, and not more often than a few times in ten seconds from one address that has failed before. Many
may share an address: a user that has logged in from there is counted by itself, so that others cannot keep it out, and
tokens, which nobody guesses, are not counted.
"""

from __future__ import annotations

import hmac
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address, ip_network
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.errors import SecurityError
from headwater.federation.security.decisions import identity_of
from headwater.federation.security.policy import Action, Allow, Verdict
from headwater.federation.security.rules import Principal
from headwater.federation.security.settings import Security
from headwater.federation.security.user_keys import UserKeys
from headwater.services.policy.identity import NOBODY, Identity

if TYPE_CHECKING:
    from headwater.federation.node import Node
    from headwater.federation.security.tokens import Issuer

FAILURES = 5  # of one address, in a while, after which it has to wait
WHILE_SECONDS = 10.0
REMEMBERED = 4096  # addresses that have failed, and users that have logged in, with where from
Place = tuple[str, str]  # an address; and a user that has logged in from there before, or ""


class TooOften(SecurityError):
    """It has failed to log in too often, and has to wait."""


class Gate:
    """Of one bridge. `anonymous`: whether somebody who does not say who it is may come in at all."""

    def __init__(self, node: Node, *, anonymous: bool, issuers: Sequence[Issuer] = ()) -> None:
        engine = node._engine
        self.security = Security() if engine is None else engine.context.security
        self.alone = engine is None
        self._decisions = None if engine is None else engine.context.decisions
        self.anonymous, self._issuers = anonymous, tuple(issuers)
        self._failed: OrderedDict[Place, list[float]] = OrderedDict()
        self._welcome: OrderedDict[Place, None] = OrderedDict()
        self._counting = threading.Lock()

    @property
    def knows_somebody(self) -> bool:
        """Whether there is any way to log in."""
        return bool(self._issuers or self.security.users_by_name())

    # ── who somebody is ──

    def identify(self, address: str, user: str, password: str, token: str) -> Identity:
        """Who has come; SecurityError if that is not shown. It takes a while: not in the loop's thread."""
        if not (user or password or token):
            if self.anonymous:
                return NOBODY
            raise SecurityError("expected a user and password, or a token, found neither", "login")
        if token:
            return self._by_token(token)
        place = self._may_try(address, user)
        try:
            found = self._by_password(user, password)
        except SecurityError:
            with self._counting:
                self._failed.setdefault(place, []).append(monotonic())
                _bound(self._failed, place)
            raise
        with self._counting:
            self._welcome[address, user] = None
            _bound(self._welcome, (address, user))
        return found

    def until(self, token: str) -> float:
        """When what somebody has logged in with expires, in seconds since 1970: a token does, a password does not."""
        for issuer in self._issuers if token else ():
            with suppress(SecurityError):
                return issuer.until(token.encode())
        return inf

    def _may_try(self, address: str, user: str) -> Place:
        """What a try counts for: the address, or a user that was there before; TooOften if that has to wait."""
        now = monotonic()
        with self._counting:
            place = (address, user) if (address, user) in self._welcome else (address, "")
            failed = [at for at in self._failed.get(place, ()) if now - at < WHILE_SECONDS]
            if failed:
                self._failed[place] = failed
            else:
                self._failed.pop(place, None)
        if len(failed) >= FAILURES:
            raise TooOften(f"expected at most {FAILURES} failed logins in {WHILE_SECONDS:.0f} s, found more", "login")
        return place

    def _by_password(self, user: str, password: str) -> Identity:
        known = self.security.users_by_name().get(user)
        made = UserKeys.of(user, password)  # also of a user that is not known: it takes as long
        if known is None or not hmac.compare_digest(known.keys_of(user).public, made.public):
            raise SecurityError("expected a user that is known here, with its password, found another", "login")
        return replace(identity_of(Principal(user, "password", "", known.groups)), node="")

    def _by_token(self, token: str) -> Identity:
        if not token.isascii():
            raise SecurityError("expected a token in ASCII, found another", "login")
        reasons = []
        for issuer in self._issuers:
            try:
                return issuer.identity(token.encode(), node="", fingerprint="")
            except SecurityError as error:
                reasons.append(str(error))
        raise SecurityError("; ".join(reasons) or "expected another way to log in: tokens are of no use here", "login")

    # ── what it may ──

    def decide(self, identity: Identity, action: Action, channel: str) -> Verdict:
        """Whether it may do this on a channel, and which part of it, and why."""
        if self._decisions is None:
            return Allow("a node without a network allows everything to who is let in")
        return self._decisions.decide_of(identity, _principal(identity), action, channel)

    def sees(self, identity: Identity) -> Callable[[str], bool]:
        """Of names of channels, whether it may know of them."""
        return (lambda channel: True) if self.alone else self.security.seen_by(_principal(identity))


def _bound(remembered: OrderedDict[Place, Any], newest: Place) -> None:
    """Whoever was here longest ago is forgotten."""
    remembered.move_to_end(newest)
    while len(remembered) > REMEMBERED:
        remembered.popitem(last=False)


def network_of(address: str) -> str:
    """What is taken for one place: an address, or of version 6 the network that one household has."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    return str(ip_network((found, 64), strict=False)) if found.version == 6 else address


def _principal(identity: Identity) -> Principal:
    """As rules know it: a user, or somebody of whom nothing is known."""
    if identity.user:
        return Principal(identity.user, "password", "", identity.groups)
    return Principal("key:web", "key", "")


__all__ = ["Gate", "TooOften", "network_of"]
