"""What a setting of the configuration may be, and how to say what is wrong with one."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol

from headwater.errors import ConfigProblem

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
                names = [*self._settings, *known]
                expected = f"one of the settings {', '.join(names)}" if names else "no settings"
                found.append(
                    ConfigProblem(f"{place} {key}", expected, f"{show(key)} = {show(value)}", near(key, names))
                )
        return [problem for problem in found if problem is not None]


def near(value: object, words: Iterable[str]) -> str | None:
    """ "did you mean", if one of the words is like it."""
    close = get_close_matches(value.lower().replace("-", "_"), list(words), n=1) if isinstance(value, str) else []
    return f'did you mean "{close[0]}"?' if close else None


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
