"""What a node lets others do: one question, `decide`, to one policy, with one of three answers.

    Allow(why)                 it may
    Deny(why)                  it may not
    Restrict(interest, why)    it may subscribe to, and read, what the interest passes, and to nothing else

`Rules` (rules.py) is a policy. Another one is any object with these methods: `Security(policy=...)`. All that asks goes
through `Security`, which closes what a policy leaves open (`Closed`): one that raises, or answers with anything else,
denies, hides, and lets nothing be open to all.

`on_behalf_of` is whom the node says that a wish is for, signed with its message; "" is the node itself. What the node
has proven is the principal; whom it is for it only says. So both are asked about, and a node never gets more for
somebody else than it would get itself, unless it may `vouch` for its users (`decisions.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from headwater.channel.names import Pattern
from headwater.services.policy.verdicts import ACTIONS, Action, Allow, Deny, Restrict, Verdict

if TYPE_CHECKING:
    from headwater.federation.security.rules import Principal

log = logging.getLogger("headwater.federation")


@runtime_checkable
class Policy(Protocol):
    """Who may do what on which channel. Any thread may ask, often, and does not want to wait."""

    def decide(self, principal: Principal, action: Action, channel: str, on_behalf_of: str = "") -> Verdict:
        """Whether a principal may do this on the channel of this name, and why."""
        ...

    def decide_some(self, principal: Principal, action: Action, pattern: Pattern) -> Verdict:
        """Whether it may on some channel that a pattern fits, if there is one: that must not depend on which are."""
        ...

    def open_to_all(self, action: Action, channel: str) -> bool:
        """Whether everybody who is heard at all may do this, with no restriction: then it need not be hidden."""
        ...

    def seen_by(self, principal: Principal) -> Callable[[str], bool]:
        """Of names of channels, whether the principal may know that there is such a one."""
        ...

    def hides_from(self, principal: Principal) -> bool:
        """Whether there may be names that it may not know of, whatever channels there are."""
        ...

    def deals_with(self, principal: Principal, action: Action | None = None) -> bool:
        """Whether there is anything at all that it may do; or any channel on which it may do this."""
        ...


T = TypeVar("T")


class Closed:
    """A policy as it is asked: closed where it does not answer as it should."""

    __slots__ = ("_policy",)

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def decide(self, principal: Principal, action: Action, channel: str, on_behalf_of: str = "") -> Verdict:
        return self._verdict(action, lambda policy: policy.decide(principal, action, channel, on_behalf_of))

    def decide_some(self, principal: Principal, action: Action, pattern: Pattern) -> Verdict:
        return self._verdict(action, lambda policy: policy.decide_some(principal, action, pattern))

    def open_to_all(self, action: Action, channel: str) -> bool:
        return self._said(lambda policy: policy.open_to_all(action, channel), otherwise=False)

    def seen_by(self, principal: Principal) -> Callable[[str], bool]:
        sees = self._asked(lambda policy: policy.seen_by(principal), lambda error: _sees_nothing)
        return lambda channel: self._said(lambda _: sees(channel), otherwise=False)

    def hides_from(self, principal: Principal) -> bool:
        return self._said(lambda policy: policy.hides_from(principal), otherwise=True)

    def deals_with(self, principal: Principal, action: Action | None = None) -> bool:
        return self._said(lambda policy: policy.deals_with(principal, action), otherwise=False)

    def _verdict(self, action: Action, ask: Callable[[Policy], Verdict]) -> Verdict:
        verdict = self._asked(ask, lambda error: Deny(f"the policy could not decide: {type(error).__name__}: {error}"))
        match verdict:
            case Allow() | Deny():
                return verdict
            case Restrict() if action == "subscribe":
                return verdict
            case Restrict():
                return Deny(f"{verdict.why}, and only what is subscribed to can be restricted")
            case _:
                return Deny(f"the policy has not decided: expected Allow, Deny or Restrict, found {verdict!r}")

    def _said(self, ask: Callable[[Policy], bool], *, otherwise: bool) -> bool:
        said: Any = self._asked(ask, lambda error: otherwise)
        return said if isinstance(said, bool) else otherwise

    def _asked(self, ask: Callable[[Policy], T], otherwise: Callable[[Exception], T]) -> T:
        try:
            return ask(self._policy)
        except Exception as error:  # whatever it is, nothing is let through
            log.exception("a policy, %s, could not decide", type(self._policy).__name__)
            return otherwise(error)


def _sees_nothing(channel: str) -> bool:
    return False


__all__ = ["ACTIONS", "Action", "Allow", "Closed", "Deny", "Policy", "Restrict", "Verdict"]
