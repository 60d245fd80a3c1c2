"""Whom a clause of a policy is about: patterns over identities, `*` standing for any text.

ann, user:ann     a user
group:security    users of a group
kind:phone        devices of a kind
device:door-3     a device
node:lab          who asks at a node of that name
*                 everybody, those that nobody vouches for included
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from headwater.errors import ConfigProblem
from headwater.services.policy.identity import MAX_TEXT, Identity
from headwater.spelling import did_you_mean

EVERYBODY = "*"
PREFIXES = ("user", "group", "kind", "device", "node")


def concerns(who: Sequence[str], identity: Identity) -> bool:
    """Whether one of these patterns is about an identity. What is not known of it fits none but `*`."""
    return any(each == EVERYBODY or any(_matcher(each).fullmatch(name) for name in _names(identity)) for each in who)


def who_problems(who: object, place: str) -> list[ConfigProblem]:
    """Everything wrong with patterns, from code or a file."""
    each = [who] if isinstance(who, str) else who
    expected = 'a pattern, or a list of patterns, such as "ann", "group:security", "kind:phone" or "*"'
    if not isinstance(each, list | tuple) or not each:
        return [ConfigProblem(place, expected, repr(who)[:MAX_TEXT])]
    found = []
    for pattern in each:
        prefix, colon, rest = pattern.partition(":") if isinstance(pattern, str) else ("", "", "")
        if not isinstance(pattern, str) or not 0 < len(pattern) <= MAX_TEXT or not pattern.isprintable():
            found.append(ConfigProblem(place, expected, repr(pattern)[:MAX_TEXT]))
        elif colon and (prefix not in PREFIXES or not rest):
            known = ", ".join(f'"{name}:..."' for name in PREFIXES)
            found.append(ConfigProblem(place, f"one of {known}", repr(pattern), did_you_mean(prefix, PREFIXES)))
    return found


def _names(identity: Identity) -> Iterator[str]:
    """All that can be written for an identity."""
    if identity.user:
        yield f"user:{identity.user}"
    for group in identity.groups:
        yield f"group:{group}"
    if identity.device_kind:
        yield f"kind:{identity.device_kind}"
    if identity.device:
        yield f"device:{identity.device}"
    if identity.node:
        name, dot, _ = identity.node.rpartition(".")  # of an id, which ends with the beginning of a fingerprint
        yield f"node:{name if dot else identity.node}"


@lru_cache(maxsize=4096)
def _matcher(text: str) -> re.Pattern[str]:
    prefix, colon, rest = text.partition(":")
    parts = (rest if colon else text).split(EVERYBODY)
    return re.compile(f"{prefix if colon else 'user'}:" + ".*".join(map(re.escape, parts)))


__all__ = ["EVERYBODY", "concerns", "who_problems"]
