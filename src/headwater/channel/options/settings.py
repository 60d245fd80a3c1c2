"""What a setting of the configuration may be, and how to say what is wrong with one."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from headwater.errors import ConfigError, ConfigProblem
from headwater.spelling import did_you_mean

YEAR = 366 * 86_400


class Setting(Protocol):
    """What values a setting takes."""

    def problem(self, place: str, value: object) -> ConfigProblem | None:
        """What is wrong with this value, if anything."""


@dataclass(frozen=True, slots=True)
class Count:
    """A whole number from `low` to `high`."""

    low: int
    high: int = 2**31 - 1

    def problem(self, place: str, value: object) -> ConfigProblem | None:
        if isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high:
            return None
        return ConfigProblem(place, f"a whole number from {self.low} to {self.high}", show(value))


@dataclass(frozen=True, slots=True)
class Seconds:
    """A number of seconds up to a year: from 0, or above it."""

    above: bool = False

    def problem(self, place: str, value: object) -> ConfigProblem | None:
        right = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if right and 0 <= value <= YEAR and not (self.above and value == 0):  # type: ignore[operator]
            return None
        return ConfigProblem(
            place, f"a number of seconds, {'above' if self.above else 'from'} 0 to a year", show(value)
        )


@dataclass(frozen=True, slots=True, init=False)
class Choice:
    """One of some words."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", words)

    def problem(self, place: str, value: object) -> ConfigProblem | None:
        if isinstance(value, str) and value in self.words:
            return None
        return ConfigProblem(place, f"one of {quoted(self.words)}", show(value), near(value, self.words))


@dataclass(frozen=True, slots=True)
class Name:
    """A name that can be shown in a line: some printable characters without white space around them."""

    def problem(self, place: str, value: object) -> ConfigProblem | None:
        if isinstance(value, str) and 0 < len(value) <= 255 and value.isprintable() and value == value.strip():
            return None
        return ConfigProblem(place, "a name of 1 to 255 printable characters, no space around it", show(value))


class Settings(Mapping[str, Setting]):
    """The settings of one table."""

    def __init__(self, **settings: Setting) -> None:
        self._settings = settings

    def __getitem__(self, name: str) -> Setting:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def problems(self, values: Mapping[Any, object], place: str, *, known: Collection[str] = ()) -> list[ConfigProblem]:
        """Everything wrong with these values; `known` keys are settings too, read elsewhere."""
        found = []
        for key, value in values.items():
            setting = self._settings.get(key) if isinstance(key, str) else None
            if setting is not None:
                found.append(setting.problem(f"{place} {key}", value))
            else:
                found.append(unknown(f"{place} {key}", key, [*self._settings, *known], f" = {show(value)}"))
        return [problem for problem in found if problem is not None]


def unknown(place: str, key: object, names: Collection[str], value: str = "") -> ConfigProblem:
    """That there is no setting of this name; `value` is shown behind it, unless that may be a secret."""
    expected = f"one of the settings {', '.join(names)}" if names else "no settings"
    return ConfigProblem(place, expected, show(key) + value, near(key, names))


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tables of a TOML file; ConfigError if there is none, or it is something else."""
    file = os.fspath(path)
    try:
        with open(file, encoding="utf-8-sig") as lines:  # noqa: PTH123 - any kind of path
            text = lines.read()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError([ConfigProblem(file, "a TOML file that can be read", reason.lower())]) from error
    except UnicodeDecodeError as error:
        found = f"byte {error.object[error.start]:#04x} at {error.start}"
        raise ConfigError([ConfigProblem(file, "a TOML file in UTF-8", found)]) from error
    return parse_toml(text, file)


def parse_toml(text: str, place: str) -> dict[str, Any]:
    """The tables in a text; `place` says in errors where it is from."""
    import tomllib  # late: few programs have such a file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([ConfigProblem(place, "TOML", f"an error in it: {error}")]) from error


def near(value: object, words: Iterable[str]) -> str | None:
    """ "did you mean", if one of the words is like it."""
    return did_you_mean(value, words, show=show)


def quoted(words: Iterable[str]) -> str:
    """Words in a list, each in quotes."""
    return ", ".join(f'"{word}"' for word in words)


def show(value: object) -> str:
    """A value as it is written, with its type where that is not plain to see."""
    match value:
        case str():
            shown = f'"{value}"' if value.isprintable() and '"' not in value else repr(value)
        case bool():
            return "true" if value else "false"
        case int() | float() | None:
            return repr(value)
        case Mapping():
            return "a table"
        case list() | tuple():
            return "a list"
        case _:
            shown = f"{type(value).__name__} {value!r}"
    return shown if len(shown) <= 80 else f"{shown[:76]} ..."
