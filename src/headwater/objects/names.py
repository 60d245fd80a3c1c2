"""Names of objects, of their members, and patterns of names.

    //plant/fleet/car7              an object: its owner, which is a node, and its path there
    //plant/fleet/car7.position.x   a member of it
    //plant/fleet/*                 a pattern: `*` stands for one segment, `**` for any number of them, none included
    fleet/car7.position.x           the same member, where it is plain whose it is

A path has 1 to 16 segments joined by `/`; a segment has 1 to 64 letters (of any script), digits, `_` and `-`. Members
are fields of the object's type, joined by dots. A whole name takes at most 512 bytes of UTF-8, in composed form (NFC).
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from headwater.errors import ObjectError

MAX_SEGMENTS = 16
MAX_BYTES = 512  # of a whole name
MAX_DEPTH = 32  # members within members
ONE, ANY = "*", "**"
KNOWN_NAMES = 65_536  # that are kept parsed
_SEGMENT = re.compile(r"(?:[^\W_]|[_-]){1,64}")
_FIELD = re.compile(r"[^\W\d]\w*")
_SHOWN = 80  # characters of a bad name in a message


class ObjectName(NamedTuple):
    """An object or, where `member` is not empty, a member of one."""

    node: str
    object: str  # its path at the node: fleet/car7
    member: str = ""  # position.x

    @property
    def whole(self) -> ObjectName:
        """The object itself."""
        return self._replace(member="") if self.member else self

    @property
    def members(self) -> tuple[str, ...]:
        """The fields that lead to the member, outermost first."""
        return tuple(self.member.split(".")) if self.member else ()

    def __str__(self) -> str:
        return f"//{self.node}/{self.object}{'.' if self.member else ''}{self.member}"


@lru_cache(KNOWN_NAMES)
def object_name(text: str, node: str = "") -> ObjectName:
    """A name from its text; one without an owner is of this `node`. ObjectError if it is none."""
    owner, path = _parted(text, node, "object name")
    object, _, member = path.partition(".")
    segments = object.split("/")
    for segment in segments:
        if not _SEGMENT.fullmatch(segment):
            raise _bad("object name", text, "segments of 1 to 64 letters, digits, _ and -", f"{segment!r}")
    if len(segments) > MAX_SEGMENTS:
        raise _bad("object name", text, f"at most {MAX_SEGMENTS} segments", f"{len(segments)}")
    _check_member("object name", text, member, "." in path)
    return ObjectName(owner, object, member)


def is_segment(text: str) -> bool:
    """Whether it may be one segment of a path, in composed form."""
    return _SEGMENT.fullmatch(text) is not None and unicodedata.is_normalized("NFC", text)


class NamePattern:
    """Which objects are meant: by `*` and `**` in the place of segments, and by a member that must be there.

    A name without wildcards is a pattern that only it fits. Equal texts are equal patterns."""

    __slots__ = ("_segments", "literal", "member", "node", "text")

    def __init__(self, text: str, node: str = "") -> None:
        owner, path = _parted(text, node, "pattern of objects")
        object, _, member = path.partition(".")
        segments = object.split("/")
        for segment in segments:
            if segment not in (ONE, ANY) and not _SEGMENT.fullmatch(segment):
                raise _bad(
                    "pattern of objects", text, "*, **, or letters, digits, _ and - in each segment", f"{segment!r}"
                )
        if len(segments) > MAX_SEGMENTS:
            raise _bad("pattern of objects", text, f"at most {MAX_SEGMENTS} segments", f"{len(segments)}")
        _check_member("pattern of objects", text, member, "." in path)
        self.node, self.member, self._segments = owner, member, tuple(segments)
        self.text = f"//{owner}/{path}"
        self.literal = None if ONE in object else object  # the object, if only one is meant

    def matches(self, object: str) -> bool:
        """Whether the object at this path of the node is one of those meant."""
        return object == self.literal if self.literal is not None else _fits(self._segments, tuple(object.split("/")))

    @property
    def prefix(self) -> str:
        """What the paths of all objects meant begin with."""
        plain: list[str] = []
        for segment in self._segments:
            if ONE in segment:
                return "".join(f"{each}/" for each in plain)
            plain.append(segment)
        return "/".join(plain)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamePattern) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"NamePattern({self.text!r})"


def _fits(pattern: tuple[str, ...], name: tuple[str, ...]) -> bool:
    """Greedy from the left: only the last `**` is ever given one segment more."""
    at = here = resume = 0
    again: int | None = None
    while here < len(name):
        if at < len(pattern) and pattern[at] == ANY:
            at += 1
            again, resume = at, here
        elif at < len(pattern) and pattern[at] in (ONE, name[here]):
            at, here = at + 1, here + 1
        elif again is not None:
            resume += 1
            at, here = again, resume
        else:
            return False
    return all(segment == ANY for segment in pattern[at:])


def _parted(text: object, node: str, what: str) -> tuple[str, str]:
    """The owner, and what follows it."""
    if not isinstance(text, str):
        raise ObjectError(f"{what}: expected text such as '//plant/car.position', found {text.__class__.__name__}")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _bad(what, text, f"at most {MAX_BYTES} bytes of UTF-8", f"{len(text):,} characters")
    if unicodedata.normalize("NFC", text) != text:
        raise _bad(what, text, "the composed form (NFC)", "a decomposed one")
    if not text.startswith("//"):
        if not node:
            raise _bad(what, text, "the node that owns it, as in '//plant/car'", "none")
        return node, text.removeprefix("/")
    owner, slash, path = text[2:].partition("/")
    if not owner or not slash or not path:
        raise _bad(what, text, "//node/path, as in '//plant/car.position'", "another form")
    if not owner.isprintable() or owner != owner.strip():
        raise _bad(what, text, "the name of a node after //", f"{owner!r}")
    return owner, path


def _check_member(what: str, text: str, member: str, there: bool) -> None:
    fields = member.split(".") if there else []
    if len(fields) > MAX_DEPTH:
        raise _bad(what, text, f"at most {MAX_DEPTH} members within members", f"{len(fields)}")
    for field in fields:
        if not _FIELD.fullmatch(field):
            raise _bad(what, text, "names of fields, joined by dots, after the object", f"{field!r}")


def _bad(what: str, text: str, expected: str, found: str) -> ObjectError:
    shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
    return ObjectError(f"{what} {shown!r}: expected {expected}, found {found}")


__all__ = [
    "ANY",
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_SEGMENTS",
    "ONE",
    "NamePattern",
    "ObjectName",
    "is_segment",
    "object_name",
]
