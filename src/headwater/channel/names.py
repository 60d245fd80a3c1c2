"""Names of channels, and patterns of names.

A name is hierarchical: 1 to 32 segments joined by dots, such as `ie.tcd.cs.sighting`. A segment has 1 to 64 letters (of
any script), digits 0 to 9, `_` and `-`. A whole name takes at most 255 bytes of UTF-8 and is in Unicode's composed form
(NFC), so that names that look alike are alike. Case matters.

In a pattern a segment may also be `*`, which stands for exactly one segment, or `**`, which stands for any number of
them, none included:

    ie.tcd.*        ie.tcd.sighting, but not ie.tcd and not ie.tcd.cs.sighting
    ie.tcd.**       everything below ie.tcd, and ie.tcd itself
    **.sighting     every name that ends in sighting, and sighting itself
"""

from __future__ import annotations

import unicodedata
from functools import cache

from headwater.errors import ChannelError

MAX_SEGMENTS = 32
MAX_SEGMENT = 64  # characters
MAX_BYTES = 255

ONE, ANY = "*", "**"
_SHOWN = 80  # characters of a bad name in a message


def check_name(text: object) -> str:
    """The text itself, if it is a legal name of a channel."""
    for segment in _segments(text, "channel name"):
        if ANY in segment or ONE in segment:
            raise _bad("channel name", text, f"the wildcard {segment!r}", "a plain name",
                       "did you mean a pattern? node.subscribe takes patterns")  # fmt: skip
        _check_segment("channel name", text, segment)
    return str(text)


def is_pattern(text: str) -> bool:
    """Whether a text has wildcards, and so cannot be a name."""
    return isinstance(text, str) and ONE in text


class Pattern:
    """A pattern of channel names; a name without wildcards is a pattern that matches only itself.

    Patterns are equal when they match the same names: `a.*.**` is `a.**.*`.
    """

    __slots__ = ("_key", "_prefix", "literal", "text")

    text: str
    literal: str | None  # the name, if there are no wildcards

    def __init__(self, text: str) -> None:
        segments = _segments(text, "pattern")
        for segment in segments:
            if segment in (ONE, ANY):
                continue
            if ONE in segment:
                hint = "a wildcard stands for whole segments: ie.*.sighting"
                raise _bad("pattern", text, repr(segment), "* or ** as a whole segment", hint)
            _check_segment("pattern", text, segment)
        self.text = text
        self.literal = None if ONE in text else text
        self._key = _normal(segments)
        plain = self._key[:-1]  # `a.b.**`, the commonest pattern, needs no splitting
        self._prefix = ".".join(plain) + "." if self._key[-1] == ANY and ONE not in plain and ANY not in plain else None

    def matches(self, name: str) -> bool:
        """Whether a legal name is one of those meant."""
        if self.literal is not None:
            return name == self.literal
        if self._prefix is not None:
            return self._prefix == "." or f"{name}.".startswith(self._prefix)
        return _match(self._key, name.split("."))

    def meets(self, other: Pattern) -> bool:
        """Whether there may be a name that both match."""
        return _meet(self._key, other._key)

    def covers(self, other: Pattern) -> bool:
        """Whether it certainly matches all names that the other one matches. False says nothing."""
        return _cover(self._key, other._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def _match(pattern: tuple[str, ...], name: list[str]) -> bool:
    """Greedy from the left: only the last `**` is ever given one segment more, so the work is at most a product."""
    at = here = 0
    again: int | None = None  # after the last ** in the pattern
    resume = 0  # where in the name what follows it is tried next
    while here < len(name):
        if at < len(pattern) and pattern[at] == ANY:
            at += 1
            again, resume = at, here
        elif at < len(pattern) and pattern[at] in (ONE, name[here]):
            at += 1
            here += 1
        elif again is not None:
            resume += 1
            at, here = again, resume
        else:
            return False
    return all(segment == ANY for segment in pattern[at:])


def _meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    @cache
    def rest(at: int, here: int) -> bool:
        if at == len(one) or here == len(other):
            return all(segment == ANY for segment in (*one[at:], *other[here:]))
        mine, its = one[at], other[here]
        if ANY in (mine, its):  # it takes nothing, or one segment of the other's
            return rest(at + 1, here) or rest(at, here + 1)
        return (mine == its or ONE in (mine, its)) and rest(at + 1, here + 1)

    return rest(0, 0)


def _cover(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    @cache
    def rest(at: int, here: int) -> bool:
        if at == len(one) or here == len(other):
            return here == len(other) and all(segment == ANY for segment in one[at:])
        if one[at] == ANY:
            return rest(at + 1, here) or rest(at, here + 1)
        return other[here] != ANY and one[at] in (ONE, other[here]) and rest(at + 1, here + 1)

    return rest(0, 0)


def _normal(segments: list[str]) -> tuple[str, ...]:
    """In each run of wildcards those for one segment first, and one `**` at most: what such a run means is how many
    segments it takes at least, and whether it takes more."""
    done: list[str] = []
    more = False
    for segment in segments:
        if segment == ANY:
            more = True
            continue
        if more and segment != ONE:
            done.append(ANY)
            more = False
        done.append(segment)
    return (*done, ANY) if more else tuple(done)


# ── checking ──


def _segments(text: object, what: str) -> list[str]:
    """The segments of a text whose measures are right."""
    if not isinstance(text, str):
        raise ChannelError(f"{what}: expected text such as 'ie.tcd.sighting', found {text.__class__.__name__}")
    if not text:
        raise ChannelError(f"{what}: expected 1 to {MAX_SEGMENTS} segments such as 'ie.tcd.sighting', found nothing")
    segments = text.split(".")
    if len(segments) > MAX_SEGMENTS:
        raise _bad(what, text, f"{len(segments)}", f"at most {MAX_SEGMENTS} segments", "use fewer levels")
    for at, segment in enumerate(segments, 1):
        if not segment:
            start, end = at == 1, at == len(segments)
            hint = "it starts with a dot" if start else "it ends with a dot" if end else "there are two dots in a row"
            raise _bad(what, text, f"segment {at} empty", f"1 to {MAX_SEGMENT} characters in each segment", hint)
        if len(segment) > MAX_SEGMENT:
            raise _bad(what, text, f"{len(segment)} in segment {at}", f"at most {MAX_SEGMENT} characters in a segment",
                       "use a shorter name")  # fmt: skip
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise _bad(what, text, f"{size}", f"at most {MAX_BYTES} bytes of UTF-8", "use a shorter name")
    return segments


def _check_segment(what: str, text: object, segment: str) -> None:
    composed = unicodedata.normalize("NFC", segment)
    if composed != segment:
        raise _bad(what, text, f"its decomposed form in segment {segment!a}", f"the composed form {composed!r}",
                   "use unicodedata.normalize('NFC', name)")  # fmt: skip
    for character in segment:
        if not (character.isalpha() or character in "0123456789_-"):
            raise _bad(what, text, f"character {_spoken(character)} in segment {segment!r}",
                       "letters, digits, _ and -", _advice(character))  # fmt: skip


def _spoken(character: str) -> str:
    named = unicodedata.name(character, "")
    shown = repr(character)
    return f"{shown} ({named.lower()})" if named and not character.isascii() else shown


def _advice(character: str) -> str:
    if character in "/\\:":
        return "segments are joined by dots: ie.tcd.sighting"
    if character in "?>#+":
        return "the wildcards of a pattern are * for one segment and ** for any number; node.subscribe takes patterns"
    return "use _ or - in its place"


def _bad(what: str, text: object, found: str, expected: str, hint: str) -> ChannelError:
    shown = str(text) if len(str(text)) <= _SHOWN else f"{str(text)[: _SHOWN - 1]}…"
    return ChannelError(f"{what} {shown!r}: expected {expected}, found {found}; hint: {hint}")


__all__ = ["ANY", "MAX_BYTES", "MAX_SEGMENT", "MAX_SEGMENTS", "ONE", "Pattern", "check_name", "is_pattern"]
