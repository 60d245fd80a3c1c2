"""Whose policies a node obeys, for which channels it must know them, and how long without hearing of them.

Policies(by="hq", channels="ie.tcd.**")                      closed while no policy node is there
Policies(by=["hq", "group:policy"], lease=3600)              what was heard last holds for an hour
Policies(by="key:1f2e3d4c...")                               where there are no certificates: whose key is known
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from headwater.channel.names import Pattern
from headwater.channel.options.settings import show, unknown
from headwater.errors import ChannelError, ConfigError, ConfigProblem
from headwater.federation.security.rules import Principal, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """`by`: who may sign policies that hold here, written as in rules; such nodes are asked for them. `channels`: those
    whose policies must be known, or nothing of them is shown. `lease`: seconds for which what was heard last holds when
    no policy node answers; None: it does not, and everything is closed until one does."""

    by: str | Sequence[str]
    channels: str | Sequence[str] = "**"
    lease: float | None = None
    _rule: Rule = field(init=False, repr=False, compare=False)
    _patterns: tuple[Pattern, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check all of it at once."""
        problems = [
            ConfigProblem(each.place.replace("who", "by"), each.expected, each.found, each.hint)
            for each in Rule.problems({"channel": "**", "who": self.by}, "policies:")
        ]
        channels = (self.channels,) if isinstance(self.channels, str) else self.channels
        if not isinstance(channels, list | tuple) or not channels:
            problems.append(ConfigProblem("policies: channels", "a pattern, or a list of patterns", show(channels)))
            channels = ()
        patterns = []
        for each in channels:
            try:
                patterns.append(Pattern(each))
            except ChannelError as error:
                problems.append(ConfigProblem("policies: channels", "patterns of channel names", str(error)))
        lease: Any = self.lease
        if lease is not None and (isinstance(lease, bool) or not isinstance(lease, int | float) or not lease > 0):
            problems.append(ConfigProblem("policies: lease", "a number of seconds above 0, or nothing", show(lease)))
        if problems:
            raise ConfigError(problems, "policies cannot be like this")
        object.__setattr__(self, "by", (self.by,) if isinstance(self.by, str) else tuple(self.by))
        object.__setattr__(self, "channels", tuple(channels))
        object.__setattr__(self, "_rule", Rule("**", self.by, may=()))
        object.__setattr__(self, "_patterns", tuple(patterns))

    @classmethod
    def of(cls, what: Policies | Mapping[str, Any]) -> Policies:
        """Itself, or that of a table of a TOML file."""
        if isinstance(what, Policies):
            return what
        if not isinstance(what, Mapping):
            raise ConfigError([ConfigProblem("policies", "a table", show(what))])
        known = [each.name for each in fields(cls) if each.init]
        problems = [unknown(f"policies: {key}", key, known) for key in what if key not in known]
        if "by" not in what:
            problems.append(ConfigProblem("policies: by", "who may sign policies", "nobody"))
        if problems:
            raise ConfigError(problems, "policies cannot be like this")
        return cls(**what)

    def signed_by(self, principal: Principal) -> bool:
        """Whether somebody's policies hold here."""
        return self._rule.concerns(principal)

    def pins(self, fingerprint: str) -> bool:
        """Whether it is by its key that somebody's policies hold."""
        return any(each.startswith("key:") and fingerprint.startswith(each[4:]) for each in self.by)

    def needed(self, channel: str) -> bool:
        """Whether the policies of a channel must be known."""
        return any(pattern.matches(channel) for pattern in self._patterns)


__all__ = ["Policies"]
