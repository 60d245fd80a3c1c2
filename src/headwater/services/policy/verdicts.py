"""What is decided of somebody who wants something of a channel: it may, it may not, or it gets a part.

Allow(why)                 it may
Deny(why)                  it may not
Restrict(interest, why)    it may subscribe to, and read, what the interest passes, and nothing else
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from headwater.interest import Interest

# "vouch" is to say for which of its users a node asks: only a rule that lists it gives that.
Action = Literal["advertise", "subscribe", "install", "transact", "publish", "inspect", "vouch"]
ACTIONS: tuple[Action, ...] = get_args(Action)


@dataclass(frozen=True, slots=True)
class Allow:
    """It may; true."""

    why: str

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Deny:
    """It may not; false. `lasting`: only other rules would change that, and not a policy or where somebody is."""

    why: str
    lasting: bool = True

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Restrict:
    """It may, as far as events satisfy this interest, a filter without state; true.

    `wish` is what somebody gets who asks for everything, as far as the interest passes it. `replaces`: it is so also
    for who has an interest of its own, where that comes with a tag."""

    interest: Interest
    why: str
    wish: Interest | None = None
    replaces: bool = False

    def __bool__(self) -> bool:
        return True


Verdict = Allow | Deny | Restrict

__all__ = ["ACTIONS", "Action", "Allow", "Deny", "Restrict", "Verdict"]
