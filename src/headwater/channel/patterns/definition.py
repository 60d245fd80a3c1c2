"""A pattern as somebody gives it to a node: checked against the channels that there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.errors import PatternError, Problem
from headwater.patterns import model
from headwater.patterns.checker.check import RESULT
from headwater.patterns.pattern import Pattern
from headwater.types import EventType


def pattern_of(
    definition: Any,
    channels: Mapping[str, EventType],
    *,
    params: Mapping[str, Any] | None = None,
    aliases: Mapping[str, str] | None = None,
    limits: model.Limits | None = None,
    result: str | None = None,
) -> Pattern:
    """What was given, checked; PatternError has everything that is wrong with it. A pattern that was checked elsewhere
    is taken as it is, if the channels here have the types that it was checked with."""
    if not isinstance(definition, Pattern):
        return Pattern(definition, channels, params=params, aliases=aliases, limits=limits, result=result or RESULT)
    checked: Pattern = definition
    if params or limits is not None:
        checked = with_params(checked, {**checked.params, **(params or {})}, limits)
    problems = []
    for channel in checked.model.channels:
        here = channels.get(channel.name)
        if here is None or here.record != channel.type.record:
            problems.append(
                Problem(
                    f"channel {channel.name}: this node has it not as the pattern was checked with",
                    1,
                    1,
                    expected=f"type {channel.type.name} ({', '.join(map(str, channel.type.record.fields))})",
                    found="no such channel" if here is None else f"type {here.name}",
                    hint="declare the channel, or give the pattern as text",
                )
            )
    if problems:
        raise PatternError(problems)
    return checked


def with_params(pattern: Pattern, params: Mapping[str, Any], limits: model.Limits | None = None) -> Pattern:
    """The same pattern with other values; ParameterError says which do not fit."""
    made = Pattern.loads(pattern.dumps(), params, limits=limits or pattern.model.limits)
    made.origin = pattern.origin
    return made


__all__ = ["pattern_of", "with_params"]
