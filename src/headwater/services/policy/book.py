"""The policies that are in force at a node, and what they decide.

Policies narrow what the rules allow, and give nothing that those refuse. All policies of a channel hold together: what
is shown is what each of them shows. Of what is unknown nothing is shown: a user whose place is not known, a channel
whose policies are not known here, a name that is nobody's.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from headwater.errors import HeadwaterError
from headwater.interest import Interest
from headwater.ir.functional import TRUE, as_expression
from headwater.services.policy.channel_policy import ChannelPolicy
from headwater.services.policy.conjunction import both
from headwater.services.policy.identity import Identity
from headwater.services.policy.parameters import bound
from headwater.services.policy.verdicts import Action, Allow, Deny, Restrict, Verdict
from headwater.services.policy.who import concerns

MOST_BOUND = 65_536  # interests of clauses for somebody that are kept
_BLANK = {"nothing": None}

Place = Callable[[ChannelPolicy, str], Mapping[str, Any] | None]  # where a user is; None if that is not known


class InForce(NamedTuple):
    """A policy, which version of it, and who has signed that."""

    policy: ChannelPolicy
    version: int
    signer: str

    def __str__(self) -> str:
        return f'policy "{self.policy.name}" version {self.version:,}'


class PolicyBook:
    """Of one node. Thread-safe; asking needs no lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[str, InForce] = {}
        self._governing: dict[str, tuple[InForce, ...]] = {}
        self._bound: OrderedDict[tuple[Any, ...], Interest] = OrderedDict()
        self.generation = 0  # one more with each change

    def __iter__(self) -> Iterator[InForce]:
        return iter(list(self._all.values()))

    def get(self, name: str) -> InForce | None:
        """The policy of that name that is in force."""
        return self._all.get(name)

    def put(self, found: InForce) -> InForce | None:
        """A policy comes in force, in the place of the one of its name, which is returned."""
        with self._lock:
            before = self._all.get(found.policy.name)
            self._all = {**self._all, found.policy.name: found}
            self._changed()
            return before

    def lift(self, name: str) -> InForce | None:
        """A policy is in force no more."""
        with self._lock:
            before = self._all.get(name)
            self._all = {key: each for key, each in self._all.items() if key != name}
            self._changed()
            return before

    def _changed(self) -> None:
        self._governing = {}
        self._bound.clear()
        self.generation += 1

    def governing(self, channel: str) -> tuple[InForce, ...]:
        """The policies of a channel."""
        known = self._governing
        found = known.get(channel)
        if found is None:
            found = tuple(each for each in self._all.values() if each.policy.about(channel))
            if len(known) < MOST_BOUND:
                known[channel] = found
        return found

    # ── deciding ──

    def decide(self, identity: Identity, action: Action, channel: str, place: Place) -> Verdict | None:
        """What the policies of a channel say; None where they say nothing of it."""
        verdict: Verdict | None = None
        for each in self.governing(channel):
            if each.policy.governs(action):
                verdict = _both(verdict, self._decide(each, identity, action, place))
                if not verdict:
                    return verdict
        return verdict

    def _decide(self, found: InForce, identity: Identity, action: Action, place: Place) -> Verdict:
        """What one policy says: its first clause that is about the identity."""
        policy = found.policy
        for number, clause in enumerate(policy.clauses):
            if not concerns(clause.who, identity):
                continue
            why = f"{found}, clause {number + 1} ({clause}), decides of {identity}"
            location = place(policy, identity.user) if policy.location is not None and identity.user else None
            if policy.location is not None:
                why += _where(policy, location)
            programs = policy.programs[number]
            if action != "subscribe":
                return self._deed(found, number, clause.may, identity, action, location, why)
            if programs.show is None:
                return Deny(why, lasting=False)
            show = self._bind(found, number, "show", identity, location)
            wish = None if programs.wish is None else self._bind(found, number, "wish", identity, location)
            if wish is None and _always(show):
                return Allow(why)
            return Restrict(show, why, wish, clause.replaces)
        return Deny(f"{found} has no clause about {identity}", lasting=False)

    def _deed(
        self,
        found: InForce,
        number: int,
        may: Any,
        identity: Identity,
        action: Action,
        location: Mapping[str, Any] | None,
        why: str,
    ) -> Verdict:
        if action not in may:
            return Deny(why, lasting=False)
        if found.policy.programs[number].when is None:
            return Allow(why)
        condition = self._bind(found, number, "when", identity, location)
        return Allow(why) if condition.test(_BLANK) else Deny(why, lasting=False)

    def _bind(
        self, found: InForce, number: int, what: str, identity: Identity, location: Mapping[str, Any] | None
    ) -> Interest:
        """A clause's interest for somebody; of what was asked before, the same one."""
        placed = None if location is None else tuple(sorted(location.items()))
        known = identity.user, identity.groups, identity.device, identity.device_kind, identity.node, identity.how
        key = found.policy.name, found.version, number, what, known, tuple(identity.attributes.items()), placed
        with self._lock:
            made = self._bound.get(key)
            if made is not None:
                self._bound.move_to_end(key)
                return made
        program = getattr(found.policy.programs[number], what)
        made = bound(program, identity, location, found.policy.located)
        with self._lock:
            self._bound[key] = made
            while len(self._bound) > MOST_BOUND:
                self._bound.popitem(last=False)
        return made


def shown(policy: ChannelPolicy, identity: Identity, location: Mapping[str, Any] | None = None) -> Interest | None:
    """What a policy shows somebody who is there, as an interest: to explain, to compare by `covers`, or to run over
    recorded events. None: nothing."""
    match PolicyBook()._decide(InForce(policy, 1, ""), identity, "subscribe", lambda *_: location):
        case Restrict(interest=interest):
            return interest
        case Allow():
            return Interest("true", policy.type)
        case _:
            return None


def _both(one: Verdict | None, other: Verdict) -> Verdict:
    """What two policies of one channel say together: what each of them shows."""
    if one is None or not other or isinstance(one, Allow):
        return other if one is None or not other else _because(other, one.why)
    if not isinstance(other, Restrict):
        return _because(one, other.why)
    assert isinstance(one, Restrict)
    try:
        joined = both(one.interest, other.interest)
    except HeadwaterError as error:
        return Deny(f"{one.why}; and {other.why}; which cannot be said together: {error}", lasting=False)
    return Restrict(joined, f"{one.why}; and {other.why}", other.wish or one.wish, one.replaces or other.replaces)


def _because(verdict: Verdict, why: str) -> Verdict:
    match verdict:
        case Restrict(interest=interest, why=own, wish=wish, replaces=replaces):
            return Restrict(interest, f"{why}; and {own}", wish, replaces)
        case Allow(why=own):
            return Allow(f"{why}; and {own}")
        case Deny():
            return verdict


def _always(interest: Interest) -> bool:
    return as_expression(interest.normal) == TRUE


def _where(policy: ChannelPolicy, location: Mapping[str, Any] | None) -> str:
    if location is None:
        return ", whose place is not known"
    return ", with " + ", ".join(f"{name} = {location.get(name)!r}" for name in sorted(policy.located))


__all__ = ["InForce", "Place", "PolicyBook", "shown"]
