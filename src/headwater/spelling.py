"""Words that may have been meant, for the end of an error about one that is not known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from itertools import islice

MAX_SEARCHED = 10_000  # known words that are looked through


def nearest(word: object, known: Iterable[str], *, count: int = 3, alike: float = 0.6) -> list[str]:
    """Known words like this one, the likeliest first. Capitals do not matter, nor does - for _; what has the right name
    behind its last dot is like it as well."""
    if not isinstance(word, str):
        return []
    folded: dict[str, str] = {}
    for other in islice(known, MAX_SEARCHED):
        folded.setdefault(_folded(other), other)
    close = get_close_matches(_folded(word), folded, count, alike)
    last = _folded(word).rpartition(".")[2]
    elsewhere = (key for key in folded if key.rpartition(".")[2] == last)
    return [folded[key] for key in islice(dict.fromkeys([*close, *elsewhere]), count)]


def did_you_mean(
    word: object, known: Iterable[str], *, count: int = 1, alike: float = 0.6, show: Callable[[str], str] = repr
) -> str | None:
    """The question, if there are known words like this one."""
    found = nearest(word, known, count=count, alike=alike)
    return f"did you mean {' or '.join(map(show, found))}?" if found else None


def _folded(word: str) -> str:
    return word.casefold().replace("-", "_")
