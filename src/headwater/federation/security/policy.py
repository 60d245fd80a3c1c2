"""What a node lets others do: one question, `decide`, to one policy, with one of three answers.

    Allow(why)                 it may
    Deny(why)                  it may not
    Restrict(interest, why)    it may subscribe to, and read, what the interest passes, and to nothing else

`Rules` (rules.py) is a policy. Another one is any object with these methods: `Security(policy=...)`. All that asks goes
through `Security.decide`, which closes what a policy leaves open: one that raises, or answers with anything else,
denies.

`on_behalf_of` is whom the node says that a wish is for, signed with its message; "" is the node itself. What the node
has proven is the principal. A policy that does not know users decides by that alone: a node never gets more for
somebody else than it would get itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, get_args, runtime_checkable

from headwater.channel.names import Pattern
from headwater.interest import Interest

if TYPE_CHECKING:
    from headwater.federation.security.rules import Principal

log = logging.getLogger("headwater.federation")
Action = Literal["advertise", "subscribe", "install"]
ACTIONS: tuple[Action, ...] = get_args(Action)


@dataclass(frozen=True, slots=True)
class Allow:
    """It may; true."""

    why: str

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Deny:
    """It may not; false."""

    why: str

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Restrict:
    """It may, as far as events satisfy this interest, a filter without state; true."""

    interest: Interest
    why: str

    def __bool__(self) -> bool:
        return True


Verdict = Allow | Deny | Restrict


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


def ask(policy: Policy, principal: Principal, action: Action, channel: str, on_behalf_of: str = "") -> Verdict:
    """What a policy decides; closed where it does not."""
    try:
        verdict = policy.decide(principal, action, channel, on_behalf_of)
    except Exception as error:  # whatever it is, nothing is let through
        log.exception("the policy could not decide whether %s may %s %s", principal, action, channel)
        return Deny(f"the policy could not decide: {type(error).__name__}: {error}")
    match verdict:
        case Allow() | Deny():
            return verdict
        case Restrict() if action == "subscribe":
            return verdict
        case Restrict():
            return Deny(f"{verdict.why}, and only what is subscribed to can be restricted")
        case _:
            return Deny(f"the policy has not decided: expected Allow, Deny or Restrict, found {verdict!r}")


__all__ = ["ACTIONS", "Action", "Allow", "Deny", "Policy", "Restrict", "Verdict", "ask"]
