"""References to entries of a library, as people write them: `@tailgating/2`, or `@tailgating` for the newest version.

A name is 1 to 8 segments joined by dots, as in `doors.tailgating`. A segment has 1 to 64 letters a to z and A to Z,
digits, `_` and `-`. A version is a whole number from 1 on.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from headwater.errors import LibraryError

MAX_NAME = 128  # characters
MAX_CODE = 256 << 10  # bytes of an entry's code
MAX_VERSION = (1 << 31) - 1
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,7}")
_VERSION = re.compile(r"[1-9][0-9]{0,9}")
_SHOWN = 80  # characters of what is wrong, in a message


class Reference(NamedTuple):
    """A name and a version of it; None: the newest that the node knows."""

    name: str
    version: int | None = None

    def __str__(self) -> str:
        return f"@{self.name}" if self.version is None else f"@{self.name}/{self.version}"


def parse(text: str) -> Reference:
    """From text; LibraryError says what is wrong with it."""
    name, slash, version = text.strip().removeprefix("@").partition("/")
    check_name(name, text)
    if not slash:
        return Reference(name)
    if not _VERSION.fullmatch(version) or int(version) > MAX_VERSION:
        raise LibraryError(
            f"{text.strip()[:_SHOWN]!r}: expected a version, a whole number from 1 to {MAX_VERSION:,}, behind the /, "
            f"found {version[:_SHOWN]!r}; write @{name}/2, or @{name} for the newest"
        )
    return Reference(name, int(version))


def check_name(name: object, text: object = None) -> str:
    """The name itself, if it is a legal one."""
    if isinstance(name, str) and len(name) <= MAX_NAME and _NAME.fullmatch(name):
        return name
    shown = name if text is None else text
    raise LibraryError(
        f"{str(shown)[:_SHOWN]!r}: expected a name of letters, digits, _ and - in up to 8 parts joined by dots, "
        f"{MAX_NAME} characters at most, found {str(name)[:_SHOWN]!r}; as in @doors.tailgating/2"
    )


def check_version(version: object) -> int:
    """The version itself, if it is a legal one."""
    if isinstance(version, int) and not isinstance(version, bool) and 1 <= version <= MAX_VERSION:
        return version
    raise LibraryError(f"version: expected a whole number from 1 to {MAX_VERSION:,}, found {version!r}")


__all__ = ["Reference", "check_name", "check_version", "parse"]
