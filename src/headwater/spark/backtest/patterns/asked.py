"""A pattern as a file or a program asks for it to be tried on recorded events.

[[pattern]]
name = "tailgating"
at = "security"                      # the node that wants its matches
match = "a: hall.door; b: hall.door{who != a.who} within 2 seconds"
params = {limit = 0.5}
aliases = {Seen = "orl.sighting"}    # other names of channels
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.errors import ConfigError, ConfigProblem, HeadwaterError
from headwater.types import EventType

if TYPE_CHECKING:
    from headwater.patterns.pattern import Pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPattern:
    """`match` is text, an expression of Python, or a `Pattern`; `at` is the node that wants its matches."""

    name: str
    match: Any
    at: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    place: str = ""  # where it was written


@dataclass(frozen=True, slots=True)
class WantedPattern:
    """One that is checked."""

    name: str
    at: str
    pattern: Pattern


def resolve_patterns(
    asked: tuple[AskedPattern, ...], channels: Mapping[str, EventType], otherwise: str
) -> list[WantedPattern]:
    """Every pattern checked against the channels; a ConfigError lists all that is wrong. `otherwise` is the node of
    those that do not say theirs."""
    problems: list[ConfigProblem] = []
    from headwater.patterns.pattern import Pattern

    made: list[WantedPattern] = []
    for each in asked:
        try:
            checked = each.match
            if not isinstance(checked, Pattern):
                checked = Pattern(each.match, channels, params=each.params, aliases=each.aliases)
            made.append(WantedPattern(each.name, each.at or otherwise, checked))
        except (HeadwaterError, TypeError, ValueError) as error:
            found = "\n    ".join(str(error).splitlines())
            place = each.place or "pattern"
            problems.append(ConfigProblem(f"{place} {each.name!r} match", "a pattern over the log's channels", found))
    if problems:
        raise ConfigError(problems)
    return made


__all__ = ["AskedPattern", "WantedPattern", "resolve_patterns"]
