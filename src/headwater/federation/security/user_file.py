"""A file of users: added to, taken from and converted, a line each; written as a whole, readable by its owner only.

What a line says is in `user_keys.py`. Comments, blank lines and the order of lines stay as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headwater.channel.options.settings import Name
from headwater.errors import ConfigError, ConfigProblem
from headwater.federation.security.user_keys import MARK, UserKeys
from headwater.spelling import did_you_mean

LEAST = 8  # characters of a password
MOST = 1024


@dataclass(frozen=True, slots=True)
class Line:
    """One of the file: of a user, or anything else."""

    text: str
    user: str = ""
    keys: str = ""  # or a password, in a file of old
    groups: tuple[str, ...] = ()

    @property
    def is_password(self) -> bool:
        """Whether it is one of old, with a password."""
        return bool(self.user) and not self.keys.startswith(f"{MARK}:")


class UserFile:
    """The users in a file, which need not be there yet."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            text = ""
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError([ConfigProblem(str(path), "a file of users that can be read", str(error))]) from None
        self._lines = [_read(line) for line in text.splitlines()]

    def __iter__(self) -> Iterator[Line]:
        return (line for line in self._lines if line.user)

    def add(self, user: str, password: str, groups: Iterable[str] = ()) -> bool:
        """A user, or another password and groups for one that is there: whether it is new."""
        groups = tuple(groups)
        _check(user, password, groups)
        made = _line(user, str(UserKeys.of(user, password)), groups)
        for at, line in enumerate(self._lines):
            if line.user == user:
                self._lines[at] = made
                return False
        self._lines.append(made)
        return True

    def remove(self, user: str) -> None:
        """A user is none any more; ConfigError if there is none of that name."""
        names = [line.user for line in self]
        if user not in names:
            hint = did_you_mean(user, names) or f"there are {', '.join(names) or 'none'}"
            raise ConfigError([ConfigProblem(str(self.path), "a user that is in it", repr(user), hint)])
        self._lines = [line for line in self._lines if line.user != user]

    def convert(self) -> list[str]:
        """Put keys in the place of passwords: whose they were."""
        found = []
        for at, line in enumerate(self._lines):
            if line.is_password:
                self._lines[at] = _line(line.user, str(UserKeys.of(line.user, line.keys)), ())
                found.append(line.user)
        return found

    def save(self) -> None:
        """Write all of it, in one go: who reads meanwhile has the old or the new."""
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.writelines(f"{line.text}\n" for line in self._lines)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def _read(text: str) -> Line:
    name, colon, rest = text.strip().partition(":")
    if not colon or name.startswith("#"):
        return Line(text)
    if not rest.startswith(f"{MARK}:"):
        return Line(text, name, rest)
    parts = rest.split(":", 3)
    groups = parts[3].split(",") if len(parts) > 3 else []
    return Line(text, name, ":".join(parts[:3]), tuple(each for each in groups if each))


def _line(user: str, keys: str, groups: tuple[str, ...]) -> Line:
    return Line(f"{user}:{keys}{':' if groups else ''}{','.join(groups)}", user, keys, groups)


def _check(user: str, password: str, groups: tuple[str, ...]) -> None:
    """All that is wrong, and nothing of the password."""
    problems = []
    if (problem := Name().problem("user", user)) is not None or ":" in user or user.startswith("#"):
        problems.append(problem or ConfigProblem("user", "a name without a colon or # at its start", repr(user)))
    if not LEAST <= len(password) <= MOST or not password.isprintable() or password != password.strip():
        expected = f"{LEAST} to {MOST} printable characters, no space around them"
        problems.append(ConfigProblem("password", expected, f"{len(password)} characters, or others"))
    for group in groups:
        if Name().problem("group", group) is not None or ":" in group or "," in group:
            problems.append(ConfigProblem("group", "a name without a colon or comma", repr(group)))
    if problems:
        raise ConfigError(problems, "a user cannot be like this")


__all__ = ["LEAST", "Line", "UserFile"]
