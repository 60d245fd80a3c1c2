"""Which channels a pattern of names stands for: `*` is one segment, `**` any number of them."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

SEARCHED = 10_000  # known names that are compared for a suggestion
KNOWN = "a channel that there is"  # what was expected, in problems that go away when such a channel comes to be known


def is_pattern(name: str) -> bool:
    """Whether a name stands for several channels."""
    return "*" in name


def matching(pattern: str, name: str) -> bool:
    """Whether a name is one of those that a pattern stands for."""
    reached = {0}  # how much of the pattern may have been used up
    segments = pattern.split(".")
    for word in name.split("."):
        reached = _through(reached, segments)
        reached = {
            at if segments[at] == "**" else at + 1
            for at in reached
            if at < len(segments) and segments[at] in (word, "*", "**")
        }
    return len(segments) in _through(reached, segments)


def _through(reached: set[int], segments: list[str]) -> set[int]:
    """With each `**` passed over as well."""
    found = set(reached)
    for at in sorted(reached):
        while at < len(segments) and segments[at] == "**":
            at += 1
            found.add(at)
    return found


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Known names that may have been meant."""
    folded = {other.casefold(): other for other in islice(known, SEARCHED)}
    last = name.casefold().rpartition(".")[2]
    close = get_close_matches(name.casefold(), folded, 3, 0.6)
    return [folded[key] for key in dict.fromkeys([*close, *(key for key in folded if key.rpartition(".")[2] == last)])]
