"""A node's policies: set here, or by policy nodes; in force at its sources; asked about.

node.policies.set(ChannelPolicy(...))        signs it, and puts it in force here and at all nodes that obey this one
node.policies.lift("sightings")              it holds no more
node.policies.why("ann", "ie.tcd.door")      what is decided of somebody, and why
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.channel.services import Service
from headwater.errors import FederationError, HeadwaterError, SecurityError
from headwater.federation.peers.dialogue import Answered, Dialogue
from headwater.federation.policy.freshness import Freshness
from headwater.federation.policy.holding import Held, Holding
from headwater.federation.policy.whereabouts import Whereabouts
from headwater.federation.security.decisions import identity_of
from headwater.federation.security.policy import ACTIONS, Action, Allow, Deny, Restrict, Verdict
from headwater.federation.security.rules import Principal
from headwater.federation.wire.policy_requests import (
    MAX_WHY,
    MOST_POLICIES,
    PAGE_BYTES,
    PoliciesAre,
    PolicyInForce,
    PolicyWhy,
    SetPolicy,
    TellPolicies,
    WhyPolicy,
)
from headwater.federation.wire.requests import Accepted
from headwater.services.documents import SignedDocument
from headwater.services.policy.channel_policy import ChannelPolicy
from headwater.services.policy.identity import Identity, Known

if TYPE_CHECKING:
    from headwater.federation.context import Context
    from headwater.federation.control_events import ControlEvents
    from headwater.federation.fabric.fabric import Fabric
    from headwater.federation.interests.rejudgement import Points, Rejudgement
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.request_registry import Caller
    from headwater.federation.peers.table import Peers
    from headwater.services.policy.location import Location

log = logging.getLogger("headwater.federation")
LOOK_SECONDS = 0.25  # after which it is seen that a lease is over
SETTLE_SECONDS = 2.0  # for which a change waits for answers that were decided before it
ANSWER_SECONDS = 10.0
Watcher = Callable[[Callable[[str], bool], bool], None]


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """What came of setting a policy: by node, from which event of each source on it holds; and who did not take it."""

    name: str
    version: int
    points: Mapping[str, Points] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


class Listed(NamedTuple):
    """A policy that some node says to hold; `channel` is empty if it was lifted."""

    name: str
    channel: str
    version: int
    signer: str


class PolicyService(Service):
    """Of one node of a federation."""

    name = "policies"

    def __init__(
        self,
        context: Context,
        peers: Peers,
        fabric: Fabric,
        dialogue: Dialogue,
        rejudgement: Rejudgement,
        control: ControlEvents,
    ) -> None:
        self._context, self._peers, self._fabric, self._dialogue = context, peers, fabric, dialogue
        self._rejudgement, self._control = rejudgement, control
        self._settings = context.security.whose_policies()
        self._decisions = context.decisions
        self._holding = Holding(context, self._settings, self._decisions.book)
        self.freshness = Freshness(None if self._settings is None else self._settings.lease)
        self._whereabouts = Whereabouts(context.node, self._has_moved, lambda task: self._work(task))
        self._lock = threading.Lock()
        self._asking: dict[str, float] = {}  # by policy node, when it was asked last
        self._closed_for = ""
        self._expired: frozenset[str] = frozenset()
        self._watchers: list[Watcher] = []
        self._conflicts: dict[str, str] = {}  # by policy node, why a policy of it is not the one that holds here
        self._own = _own_principal(context)
        self._sets = self._settings is None or self._settings.signed_by(self._own)

    # ── as a service ──

    def start(self) -> None:
        decisions = self._decisions
        decisions.place, decisions.log = self._whereabouts.of, self._log
        if self._settings is not None and not self._sets:
            decisions.closed = self._why_closed
        else:
            decisions.closed = self._why_expired
        if self._settings is not None and self._sets and self._context.node.state is None:
            log.info("node %s: policies that it sets are in its memory only: others do not take its word that there "
                     "are no more (state=)", self._context.name)  # fmt: skip
        for problem in self._holding.open():
            log.error("node %s: %s", self._context.name, problem)
        self._follow()
        self._look()
        self._context.scheduler.every(LOOK_SECONDS, self._look, wanted=self._is_of_use)

    def stop(self) -> None:
        self._whereabouts.close()

    def report(self) -> Mapping[str, Any]:
        held = [each for each in self._holding.all() if each.policy is not None]
        return {
            "policies": {each.name: each.version for each in held},
            "closed": self._closed_for,
            "conflicts": dict(self._conflicts),
            "withheld": self._rejudgement.withheld,
        }

    def requests(self) -> Iterable[tuple[Any, Callable[..., Any]]]:
        return (
            (SetPolicy, self._on_set),
            (TellPolicies, self._on_tell),
            (WhyPolicy, self._on_why),
        )

    def watch(self, changed: Watcher) -> None:
        """Have a part told when policies have changed, by a function that says of a channel whether of that, and True;
        or, with False, where somebody is."""
        self._watchers.append(changed)

    # ── setting them ──

    def set(self, policy: ChannelPolicy, *, lasts: float | None = None, after: int = 0) -> PolicyChange:
        """Sign a policy and put it in force, here and at all nodes that are there and obey this one; the others hear
        of it when they come. It holds from the events that are named, and for `lasts` seconds, or for good. Its version
        is the one after those that this node and its policy nodes know, and after `after`."""
        if not isinstance(policy, ChannelPolicy):
            raise TypeError(f"policies.set: expected a ChannelPolicy, found {policy!r}")
        self._catch_up(policy.name)
        return self._spread(self._holding.make(policy, policy.name, lasts=lasts, after=after))

    def lift(self, name: str, *, after: int = 0) -> PolicyChange:
        """A policy holds no more: what its channel shows is for the rules to say, and for other policies."""
        self._catch_up(name)
        if not after and all(each.name != name or each.policy is None for each in self._holding.all()):
            raise FederationError(f"policies.lift: expected the name of a policy that is in force, found {name!r}")
        return self._spread(self._holding.make(None, name, after=after))

    def newest_anywhere(self, name: str) -> int:
        """The newest version of a policy that any node holds of those whose policies hold here too; 0 if none does.
        What others have signed does not count: anybody could use up the versions."""
        held = [each for documents in self._others().values() for each in documents if each.document.name == name]
        return max((each.document.version for each in held if self._holding.counts(each)), default=0)

    def held_by_others(self) -> dict[str, list[Listed]]:
        """By node, the policies that it says to hold; nothing of that is verified."""
        found: dict[str, list[Listed]] = {}
        for node, documents in self._others().items():
            with suppress(HeadwaterError):
                found[node] = sorted(_listed(each) for each in documents if each.document.body)
        return found

    def _others(self) -> dict[str, list[SignedDocument]]:
        found: dict[str, list[SignedDocument]] = {}
        for peer in self._peers.everyone():
            if peer.gone is None and peer.exchange is not None:
                with suppress(HeadwaterError):
                    found[peer.name] = self._held_by(peer)
        return found

    def _held_by(self, peer: Peer) -> list[SignedDocument]:
        """What another node says to hold, as much of it as it may."""
        held: dict[str, SignedDocument] = {}
        while True:
            known = {name: signed.document.version for name, signed in held.items()}
            answer = self._dialogue.ask(peer, TellPolicies(known))
            if not isinstance(answer, PoliciesAre):
                raise FederationError(f"{peer.name} does not say which policies it holds")
            for data in answer.documents:
                signed = SignedDocument.from_bytes(data)
                held[signed.document.name] = signed
            if not answer.more or len(held) == len(known) or len(held) >= MOST_POLICIES:
                return list(held.values())

    def _catch_up(self, name: str) -> None:
        """What other policy nodes have of it: the next version is after theirs."""
        for peer in self._policy_nodes():
            with suppress(HeadwaterError):
                self._ask_all(peer)

    def _spread(self, signed: SignedDocument) -> PolicyChange:
        document = signed.document
        answers = _Gathered()
        peers = [peer for peer in self._peers.everyone() if peer.gone is None and peer.exchange is not None]
        for peer in peers:  # others take it up while this node does
            self._put(peer, SetPolicy(signed.to_bytes()), answers)
        points = {self._context.name: self._take(signed)}
        answers.wait(len(peers), ANSWER_SECONDS)
        refused: dict[str, str] = {}
        for peer in peers:
            found = answers.by.get(peer.id, "it has not answered")
            if isinstance(found, PolicyInForce) and not found.refused:
                points[peer.name] = found.points
            else:
                refused[peer.name] = found.refused if isinstance(found, PolicyInForce) else str(found)
        return PolicyChange(document.name, document.version, points, refused)

    def _put(self, peer: Peer, request: SetPolicy, answers: _Gathered) -> None:
        def answered(result: Answered | FederationError) -> None:
            if isinstance(result, FederationError):
                answers.put(peer.id, str(result))
            else:
                answers.put(peer.id, getattr(result.reply, "error", "") or result.reply)

        try:
            question = self._dialogue.question(peer, request)
            accept = partial(self._dialogue.accept, question)
            self._fabric.ask_soon(peer.id, question.payload, answered, timeout=ANSWER_SECONDS, accept=accept)
        except HeadwaterError as error:
            answers.put(peer.id, str(error))

    def _take(self, signed: SignedDocument) -> Points:
        """Put a document in force here: from which events on it holds."""
        with self._lock:
            taken = self._holding.take(signed)
            if taken is None:
                return {}
            held, before = taken
            self._conflicts.clear()
            self._follow()
        return self._changed(_either(held.policy, before))

    def _changed(self, concerns: Callable[[str], bool]) -> Points:
        """Policies of these channels are others, or closed, or not any more."""
        points = self._rejudgement.policies_changed(concerns)
        for each in self._watchers:
            each(concerns, True)
        if not self._decisions.settle(SETTLE_SECONDS):
            log.warning("node %s: answers that were decided by earlier policies take long", self._context.name)
        return points

    def _follow(self) -> None:
        self._whereabouts.follow(each.policy for each in self._decisions.book)

    # ── other nodes ──

    def _on_set(self, caller: Caller, request: SetPolicy) -> PolicyInForce:
        """A policy, of whoever brings it: who has signed it counts."""
        try:
            return PolicyInForce(self._take(SignedDocument.from_bytes(request.document)))
        except SecurityError as error:
            if error.reason == "conflict":
                self._note(caller.peer, error)
            elif error.reason not in ("rule", "unknown", "authority"):  # these need only obey somebody else
                self._context.offences.note(caller.peer.id, str(error))
            return PolicyInForce(refused=str(error)[:MAX_WHY])
        except HeadwaterError as error:
            return PolicyInForce(refused=str(error)[:MAX_WHY])

    def _on_tell(self, caller: Caller, request: TellPolicies) -> PoliciesAre:
        """All that this node holds and the other does not: who is in a federation may know its policies."""
        found: list[bytes] = []
        size = 0
        for held in self._holding.all():
            known = request.known.get(held.name, 0)
            same = request.prints.get(held.name, held.signed.fingerprint) == held.signed.fingerprint
            if held.version < known or (held.version == known and same):
                continue
            data = held.signed.to_bytes()
            if found and size + len(data) > PAGE_BYTES:
                return PoliciesAre(found, more=True)
            found.append(data)
            size += len(data)
        return PoliciesAre(found, complete=self._context.node.state is not None)

    def _policy_nodes(self) -> list[Peer]:
        settings = self._settings
        if settings is None:
            return []
        there = [peer for peer in self._peers.everyone() if peer.gone is None and peer.exchange is not None]
        return [peer for peer in there if peer.principal is not None and settings.signed_by(peer.principal)]

    def _ask_all(self, peer: Peer) -> None:
        """All that a policy node holds, page by page."""
        asked = monotonic()
        while True:
            answer = self._dialogue.ask(peer, TellPolicies(self._holding.known(), self._holding.prints()))
            if not isinstance(answer, PoliciesAre):
                raise FederationError(f"{peer.name} does not say which policies it holds")
            before = self._holding.known()
            for data in answer.documents:
                try:
                    self._take(SignedDocument.from_bytes(data))
                except HeadwaterError as error:
                    self._note(peer, error)
            if not answer.more or self._holding.known() == before:
                break
        if answer.complete:
            self.freshness.heard(peer.id, asked)
            self._look()

    def _note(self, peer: Peer, error: HeadwaterError) -> None:
        """Two policy nodes that did not hear of each other may have set the same version: that is nobody's offence, and
        for people to decide."""
        if getattr(error, "reason", "") != "conflict":
            self._context.offences.note(peer.id, f"of its policies: {error}")
        elif self._conflicts.get(peer.name) != str(error):
            self._conflicts[peer.name] = str(error)
            log.warning("node %s: %s has another policy of the same version, set it again: %s", self._context.name,
                        peer.name, error)  # fmt: skip

    # ── time ──

    def _is_of_use(self) -> bool:
        return self._settings is not None or any(True for _ in self._decisions.book)

    def _look(self) -> None:
        """What is not heard any more is closed, what is over holds no more, and policy nodes are asked again."""
        self._whereabouts.expire()
        settings = self._settings
        if settings is not None:
            self._ask_again()
        if settings is not None and not self._sets:
            why = self.freshness.why_not()
            with self._lock:
                turned, self._closed_for = bool(why) != bool(self._closed_for), why
            if turned:
                log.warning("node %s: policies: %s", self._context.name, why or "they are known again")
                self._decisions.changed()
                self._changed(settings.needed)
        self._look_at_ends()

    def _ask_again(self) -> None:
        """Ask policy nodes that were not asked for a while; they ask each other as well."""
        nodes = self._policy_nodes()
        self.freshness.present({peer.id for peer in nodes})
        now = monotonic()
        for peer in nodes:
            if now - self._asking.get(peer.id, -1e9) >= self.freshness.period:
                self._asking[peer.id] = now
                self._work(partial(self._refresh, peer))
        self._asking = {node: when for node, when in self._asking.items() if any(node == each.id for each in nodes)}

    def _look_at_ends(self) -> None:
        now = time.time_ns()
        over = frozenset(each.name for each in self._holding.all() if each.policy and 0 < each.expires < now)
        with self._lock:
            fresh, self._expired = over ^ self._expired, over
        if fresh:
            self._decisions.changed()
            ended = [each.policy for each in self._holding.all() if each.name in fresh and each.policy is not None]
            self._changed(lambda channel: any(policy.about(channel) for policy in ended))

    def _refresh(self, peer: Peer) -> None:
        try:
            self._ask_all(peer)
        except HeadwaterError as error:
            log.info("node %s: %s has not said which policies it holds: %s", self._context.name, peer.name, error)

    def _work(self, task: Callable[[], None]) -> None:
        self._context.scheduler.work(task)

    def _why_closed(self, channel: str) -> str:
        settings = self._settings
        if settings is not None and settings.needed(channel) and (why := self.freshness.why_not()):
            return f"the policies of {channel} are not known: {why}"
        return self._why_expired(channel)

    def _why_expired(self, channel: str) -> str:
        for found in self._decisions.book.governing(channel) if self._expired else ():
            if found.policy.name in self._expired:
                return f"{found} was good for a time that is over; have it signed anew"
        return ""

    # ── where users are ──

    def _has_moved(self, location: Location, user: str) -> None:
        """Judge what a user has asked for anew, as far as it depends on where that one is."""
        policies = [each.policy for each in self._decisions.book if each.policy.location == location]
        self._decisions.moved(user)
        if policies:
            concerns = _either(*policies)
            self._rejudgement.moved(concerns, user)
            for each in self._watchers:
                self._work(partial(each, concerns, False))

    # ── asking ──

    def list(self) -> list[Held]:
        """The policies that are held, with their documents."""
        return [each for each in self._holding.all() if each.policy is not None]

    def why(
        self,
        user: str | Identity,
        channel: str,
        action: Action = "subscribe",
        *,
        groups: Iterable[str] | None = None,
        device_kind: str = "",
    ) -> Verdict:
        """What the policies of this node say of somebody, and why. A user is in the groups that this node knows,
        unless others are given."""
        if isinstance(user, Identity):
            return self._decisions.judge(user, action, channel)
        known = self._decisions.groups_of(user) if groups is None else tuple(groups)
        how: Known = "password" if groups is not None or user in self._context.security.users_by_name() else "vouched"
        identity = Identity(user=user, groups=known, device_kind=device_kind, node=self._context.id, how=how)
        return self._decisions.judge(identity, action, channel)

    def why_at(self, node: str, user: str, channel: str, action: Action = "subscribe", **known: Any) -> PolicyWhy:
        """The same, as another node answers it."""
        peer = next((each for each in self._peers.everyone() if node in (each.name, each.id)), None)
        if peer is None:
            raise FederationError(f"policies.why_at: expected a node that is there, found {node!r}")
        answer = self._dialogue.ask(peer, WhyPolicy(channel, user, action, **known))
        if not isinstance(answer, PolicyWhy):
            raise FederationError(f"{peer.name} does not say: {getattr(answer, 'error', '')}")
        return answer

    def _on_why(self, caller: Caller, request: WhyPolicy) -> PolicyWhy | Accepted:
        own = identity_of(caller.principal)
        settings = self._settings
        sets = settings is not None and settings.signed_by(caller.principal)
        if request.action not in ACTIONS:
            return Accepted(error=f"expected an action of {', '.join(ACTIONS)}, found {request.action!r}")
        if request.user in ("", own.user) and not request.groups:
            verdict = self._decisions.judge(own, request.action, request.channel)
        elif sets:
            verdict = self.why(
                request.user,
                request.channel,
                request.action,
                groups=request.groups or None,
                device_kind=request.device_kind,
            )
        else:
            return Accepted(error="of others than oneself only those are told who may set policies here")
        return told(verdict)

    def _log(self, identity: Identity, action: Action, channel: str, verdict: Verdict) -> None:
        self._control.decided(identity, action, channel, outcome(verdict), verdict.why)


class _Gathered:
    """Answers of many, as they come."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.by: dict[str, Any] = {}

    def put(self, node: str, answer: Any) -> None:
        with self._condition:
            self.by[node] = answer
            self._condition.notify_all()

    def wait(self, count: int, seconds: float) -> None:
        with self._condition:
            self._condition.wait_for(lambda: len(self.by) >= count, seconds)


def outcome(verdict: Verdict) -> str:
    """In a word."""
    return "allowed" if isinstance(verdict, Allow) else "denied" if isinstance(verdict, Deny) else "restricted"


def told(verdict: Verdict) -> PolicyWhy:
    """What is decided, as another node is told of it."""
    shown = str(verdict.interest) if isinstance(verdict, Restrict) else ""
    return PolicyWhy(outcome(verdict), verdict.why[:MAX_WHY], shown[:MAX_WHY])


def _listed(signed: SignedDocument) -> Listed:
    document = signed.document
    return Listed(document.name, ChannelPolicy.from_bytes(document.body).channel, document.version, document.signer)


def _either(*policies: ChannelPolicy | None) -> Callable[[str], bool]:
    found = [policy for policy in policies if policy is not None]
    return lambda channel: any(policy.about(channel) for policy in found)


def _own_principal(context: Context) -> Principal:
    """This node itself, as others know it."""
    from headwater.federation.security.identity import certificate_groups

    identity = context.keyring.credentials.identity
    if not identity.chain:
        return Principal(f"key:{identity.fingerprint[:32]}", "key", identity.fingerprint)
    from cryptography import x509

    groups = certificate_groups(x509.load_der_x509_certificate(identity.chain[0]))
    return Principal(identity.name, "certificate", identity.fingerprint, groups)


__all__ = ["PolicyChange", "PolicyService", "outcome", "told"]
