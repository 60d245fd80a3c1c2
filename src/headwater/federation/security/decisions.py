"""The one place that decides who gets what of a channel of this node, whatever way events leave it.

Three things are asked, and all of them must agree: the rules (or the policy that stands in their place), about the node
that has proven who it is; whether that node may speak for the user that it says to ask for; and the policies in force,
about the user on a device at that node. What is not known is refused. Each decision is told to `log`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import HeadwaterError
from headwater.federation.security.identity import node_id
from headwater.federation.security.policy import Action, Allow, Deny, Restrict, Verdict
from headwater.services.policy.book import PolicyBook
from headwater.services.policy.conjunction import both
from headwater.services.policy.identity import Identity

if TYPE_CHECKING:
    from headwater.federation.security.rules import Principal
    from headwater.federation.security.settings import Security
    from headwater.services.policy.channel_policy import ChannelPolicy

OBJECTS, REPLICAS = "objects.", ".replicas"  # of the channels on which changes of objects, and of replicas, are told
KIND = "kind:"  # before the kind of a device, among the groups of a certificate or a user
MOST_TOLD = 8192  # decisions of which is remembered that they were told
MOST_MOVED = 100_000  # users of whom is remembered when they moved last


@dataclass(frozen=True, slots=True)
class Claim:
    """For whom a node says that it asks. It proves nothing: `proof` may, to `Decisions.prove`."""

    user: str = ""
    device: str = ""
    device_kind: str = ""
    proof: bytes = b""

    def __bool__(self) -> bool:
        return bool(self.user or self.device or self.device_kind or self.proof)


ITSELF = Claim()


class Proving(Protocol):
    """Makes the identity that a claim's proof proves; None if it has none, Deny if it is not good."""

    def __call__(self, principal: Principal, claim: Claim) -> Identity | Deny | None: ...


class DecisionLog(Protocol):
    """Is told of decisions, once each and again when they change."""

    def __call__(self, identity: Identity, action: Action, channel: str, verdict: Verdict) -> None: ...


class Decisions:
    """Of one node. Any thread may ask; what it asks in turn does not wait for anything."""

    def __init__(self, security: Security) -> None:
        self.security = security
        self.book = PolicyBook()
        self.place: Callable[[ChannelPolicy, str], Mapping[str, Any] | None] = _nowhere
        # Why the policies of a channel are not known at present; nothing if they are, or it needs none.
        self.closed: Callable[[str], str] = _open
        self.prove: Proving = _no_proof
        self.until: Callable[[Claim], float | None] = lambda claim: None  # when a proof counts no longer
        self.log: DecisionLog = _silent
        self._version = 0  # of what is closed
        self._moves: OrderedDict[str, int] = OrderedDict()  # by user, which of all moves was its last one
        self._moved = self._forgotten = 0  # the last move of all, and of those that are not remembered
        self._readings = Readings()
        self._lock = threading.Lock()
        self._told: OrderedDict[tuple[Any, ...], tuple[Any, ...]] = OrderedDict()

    # ── who asks ──

    def identify(self, principal: Principal, channel: str, claim: Claim = ITSELF) -> Identity | Deny:
        """Who asks, as far as it is proven: the node itself; a user that it has a proof of; or one that it vouches
        for, if the rules let it."""
        own = identity_of(principal)
        if not claim:
            return own
        proven = self.prove(principal, claim)
        verdict = self.security.decide(principal, "vouch", channel)
        if isinstance(proven, Identity) and proven.how == "password" and isinstance(verdict, Allow):
            device, kind = claim.device or proven.device, claim.device_kind or proven.device_kind
            return replace(proven, device=device, device_kind=kind)  # which one the user sits at, the node knows
        if proven is not None:
            return proven
        if not isinstance(verdict, Allow):
            return Deny(f"nothing proves that it asks for user {claim.user!r}: {verdict.why}")
        groups = self.groups_of(claim.user)
        return Identity(
            user=claim.user,
            groups=groups,
            device=claim.device,
            device_kind=claim.device_kind,
            node=own.node,
            how="vouched",
        )

    def groups_of(self, user: str) -> tuple[str, ...]:
        """The groups that this node knows a user to be in. A node that vouches for users does not say which."""
        found = self.security.users_by_name().get(user)
        return () if found is None else _split(found.groups)[0]

    # ── when it was so ──

    def stamp(self, user: str) -> tuple[int, ...]:
        """Another one whenever something has changed by which somebody is judged."""
        return self.book.generation, self._version, self._moves.get(user, self._forgotten)

    def moved(self, user: str) -> None:
        """A user is elsewhere."""
        with self._lock:
            self._moved += 1
            self._moves[user] = self._moved
            self._moves.move_to_end(user)
            while len(self._moves) > MOST_MOVED:
                self._forgotten = self._moves.popitem(last=False)[1]

    def changed(self) -> None:
        """What is closed has changed."""
        self._version += 1

    def reading(self) -> AbstractContextManager[None]:
        """While something is decided and read that will leave. Who changes a policy waits for it (`settle`)."""
        return self._readings.one()

    def settle(self, timeout: float) -> bool:
        """Until everything has left that was decided before this was called; False if that takes too long."""
        return self._readings.settle(timeout)

    # ── what it may ──

    def decide(self, principal: Principal, action: Action, channel: str, claim: Claim = ITSELF) -> Verdict:
        """Whether a node, or who it asks for, may do this on a channel, and which part of it; and why."""
        verdict = self._decide(principal, action, channel, claim)
        if verdict and action == "subscribe" and (whole := whole_of(channel)):
            return _as_part(verdict, self._decide(principal, action, whole, claim))
        return verdict

    def _decide(self, principal: Principal, action: Action, channel: str, claim: Claim) -> Verdict:
        verdict = self.security.decide(principal, action, channel)
        if verdict and claim.user:
            verdict = together(verdict, self.security.decide(principal, action, channel, claim.user))
        if not verdict or not (claim.proof or self.governed(channel)):
            return verdict
        identity = self.identify(principal, channel, claim)
        if isinstance(identity, Deny):
            self._tell(identity_of(principal), action, channel, identity)
            return identity
        found = together(verdict, self.judge(identity, action, channel))
        self._tell(identity, action, channel, found)
        return found

    def decide_of(self, identity: Identity, principal: Principal, action: Action, channel: str) -> Verdict:
        """The same for somebody whom this node knows itself: a client of a bridge, as the rules know it."""
        verdict = self._decide_of(identity, principal, action, channel)
        if verdict and action == "subscribe" and (whole := whole_of(channel)):
            return _as_part(verdict, self._decide_of(identity, principal, action, whole))
        return verdict

    def _decide_of(self, identity: Identity, principal: Principal, action: Action, channel: str) -> Verdict:
        verdict = self.security.decide(principal, action, channel)
        if not verdict or not self.governed(channel):
            return verdict
        found = together(verdict, self.judge(identity, action, channel))
        self._tell(identity, action, channel, found)
        return found

    def judge(self, identity: Identity, action: Action, channel: str) -> Verdict:
        """What the policies in force say of somebody, without the rules."""
        why = self.closed(channel)
        if why and action in ("subscribe", "transact"):
            return Deny(why, lasting=False)
        try:
            verdict = self.book.decide(identity, action, channel, self.place)
        except HeadwaterError as error:  # whatever it is, nothing is let through
            return Deny(f"the policies of {channel} could not decide: {error}", lasting=False)
        if verdict is not None:
            return verdict
        return Allow(f"no policy of {channel} is {'about that' if self.book.governing(channel) else 'known here'}")

    def governed(self, channel: str) -> bool:
        """Whether there are policies of a channel, or there should be."""
        return bool(self.book.governing(channel) or self.closed(channel))

    def open_to_all(self, action: Action, channel: str) -> bool:
        """Whether everybody who is heard at all may do this on a channel, with no restriction."""
        return all(
            not self.governed(each) and self.security.open_to_all(action, each)
            for each in (channel, whole_of(channel))
            if each
        )

    def _tell(self, identity: Identity, action: Action, channel: str, verdict: Verdict) -> None:
        key = identity.user, identity.device, identity.node, action, channel
        outcome = type(verdict), verdict.why
        with self._lock:
            known = self._told.pop(key, None)
            self._told[key] = outcome
            while len(self._told) > MOST_TOLD:
                self._told.popitem(last=False)
        if known != outcome:
            self.log(identity, action, channel, verdict)


class Readings:
    """Those under way."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._under_way: dict[int, int] = {}  # by the age in which they began
        self._age = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        with self._condition:
            age = self._age
            self._under_way[age] = self._under_way.get(age, 0) + 1
        try:
            yield
        finally:
            with self._condition:
                self._under_way[age] -= 1
                if not self._under_way[age]:
                    del self._under_way[age]
                    self._condition.notify_all()

    def settle(self, timeout: float) -> bool:
        with self._condition:
            age, self._age = self._age, self._age + 1
            return self._condition.wait_for(lambda: not any(each <= age for each in self._under_way), timeout)


def whole_of(channel: str) -> str:
    """The channel of the changes of objects whose replicas a channel tells of: it takes the right to all of these to
    hear what is made of them. Nothing for any other channel."""
    found = channel.startswith(OBJECTS) and channel.endswith(REPLICAS)
    return channel.removesuffix(REPLICAS) if found else ""


def _as_part(verdict: Verdict, whole: Verdict) -> Verdict:
    """Of a channel that is made of another one: a right to some events of that is none, since it cannot be said here
    which they would be."""
    if isinstance(whole, Restrict):
        return Deny(f"it tells of objects of which only some may be known: {whole.why}", lasting=False)
    return verdict if whole else whole


def together(one: Verdict, other: Verdict) -> Verdict:
    """What two say: both must allow it, and the restrictions of both hold."""
    if not one or isinstance(other, Allow):
        return one
    if not other or isinstance(one, Allow):
        return other
    assert isinstance(one, Restrict) and isinstance(other, Restrict)
    try:
        joined = both(other.interest, one.interest)
    except HeadwaterError as error:
        return Deny(f"{one.why}; and {other.why}; which cannot be said together: {error}")
    return Restrict(joined, f"{one.why}; and {other.why}", other.wish or one.wish, one.replaces or other.replaces)


def identity_of(principal: Principal) -> Identity:
    """What a node has proven of itself, as an identity. Its name is proven by a certificate alone; the kind of device
    that it is, by a group `kind:...` of its certificate, or of its user."""
    groups, kind = _split(principal.groups)
    match principal.how:
        case "certificate":
            node = node_id(principal.name, principal.fingerprint)
            return Identity(
                user=principal.name,
                groups=groups,
                device=principal.name,
                device_kind=kind,
                node=node,
                how="certificate",
            )
        case "password":
            return Identity(
                user=principal.name,
                groups=groups,
                device_kind=kind,
                node=node_id("", principal.fingerprint),
                how="password",
            )
        case _:
            return Identity(node=node_id("", principal.fingerprint))


def _split(groups: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Groups, and the kind of device that is said among them."""
    kinds = [group.removeprefix(KIND) for group in groups if group.startswith(KIND)]
    return tuple(group for group in groups if not group.startswith(KIND)), kinds[0] if len(kinds) == 1 else ""


def _nowhere(policy: ChannelPolicy, user: str) -> None:
    return None


def _open(channel: str) -> str:
    return ""


def _no_proof(principal: Principal, claim: Claim) -> None:
    return None


def _silent(identity: Identity, action: Action, channel: str, verdict: Verdict) -> None:
    pass


__all__ = ["ITSELF", "Claim", "Decisions", "Proving", "identity_of", "together", "whole_of"]
