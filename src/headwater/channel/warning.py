"""What a subscription is told that is allowed and hardly meant: said where it is made, kept, and in its report.

In the thread of whoever subscribes it is a Python warning (`HeadwaterWarning`), at the line of their own program; what
turns out later, when a channel appears, is a record of the log. Who subscribes for somebody else tells that one:
`collected`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterWarning

if TYPE_CHECKING:
    from headwater.channel.routing.attachment import Attachment
    from headwater.channel.subscription import Subscription

ABOUT_INTEREST = "interest: "  # what is said of one begins so
_COLLECTED: ContextVar[list[str] | None] = ContextVar("_COLLECTED", default=None)


def remarks_on(attachments: Iterable[Attachment]) -> list[str]:
    """What is to be said of the interests of these, once for each event type that they are about."""
    found: dict[str, None] = {}
    seen = set()
    for attachment in attachments:
        if (said := attachment.subscription._remarks) is not None:
            found.update(dict.fromkeys(said))
            continue
        interest = attachment.entry.interest
        if interest is None or (key := (attachment.part, interest.type.record)) in seen:
            continue
        seen.add(key)
        found.update(dict.fromkeys(f"{ABOUT_INTEREST}{remark}" for remark in interest.warnings))
    return list(found)


def remarks_on_history(subscription: Subscription, attachments: Iterable[Attachment]) -> list[str]:
    """That there is no past to begin with, and never will be."""
    node, wanted = subscription.node, subscription._options.history
    if not wanted or node._federated or node.config.history:
        return []
    channels = [attachment.channel.name for attachment in attachments]
    if node._logs is not None and any(map(node._logs.wants, channels or ["*"])):
        return []
    names = ", ".join(dict.fromkeys(channels))
    asked = "all" if wanted < 0 else f"{wanted:,}"
    return [
        f"history: expected past events to begin with ({asked}), found a node that keeps none"
        f"{f' of {names}' if names else ''}; give it Config(history=...) or a log, Node(log=...), or leave history= out"
    ]


def tell(what: str, messages: Iterable[str]) -> None:
    """A warning for each, at the line outside Headwater that led here."""
    if (collected := _COLLECTED.get()) is not None:
        collected += messages
        return
    level = _level()
    for message in messages:
        warnings.warn(f"{what}: {message}", HeadwaterWarning, stacklevel=level)


@contextmanager
def collected() -> Iterator[list[str]]:
    """What there is to tell, instead of warnings: it is about what somebody else has asked for."""
    found: list[str] = []
    token = _COLLECTED.set(found)
    try:
        yield found
    finally:
        _COLLECTED.reset(token)


def _level() -> int:
    """How many frames up, seen from `tell`, the program is that uses Headwater."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "headwater":
        level, frame = level + 1, frame.f_back
    return level
