"""What patterns may take at a node, and how their state is kept there: the table `[patterns]` of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from headwater.channel.options.settings import Count, Seconds, Settings
from headwater.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from headwater.patterns.model import Limits

LIMITS = ("partitions", "runs_per_partition", "runs", "memory")  # those that a pattern has too


@dataclass(frozen=True, slots=True, kw_only=True)
class Patterns:
    """What the owner of a node lets each pattern hold that runs there: open partitions, partial matches, bytes. What is
    beyond is given up, the oldest first, and counted. Patterns of this node are held to it unless they say otherwise
    (`limits=`), those of other nodes always.

    `foreign`: how many patterns of other nodes may run here at once; 0: none. `lease`: seconds for which one of those
    goes on while the node that wants it is not there. `grace`: seconds for which a pattern that was started again waits
    for the sources that it was with. `keep_events`, `keep_seconds`: after so many events, and after so
    long, the state of a named pattern is written to the node's state, whatever comes first.
    """

    partitions: int = 100_000
    runs_per_partition: int = 10_000
    runs: int = 1_000_000
    memory: int = 256 << 20
    foreign: int = 100
    lease: float = 30.0
    grace: float = 60.0
    keep_events: int = 10_000
    keep_seconds: float = 5.0

    settings: ClassVar[Settings] = Settings(
        partitions=Count(1),
        runs_per_partition=Count(1),
        runs=Count(1),
        memory=Count(1 << 16, 1 << 40),
        foreign=Count(0, 100_000),
        lease=Seconds(above=True),
        grace=Seconds(),
        keep_events=Count(1),
        keep_seconds=Seconds(above=True),
    )

    def __post_init__(self) -> None:
        problems = self.settings.problems({name: getattr(self, name) for name in self.settings}, "Patterns:")
        if problems:
            raise ConfigError(problems)
        for name in ("lease", "grace", "keep_seconds"):
            object.__setattr__(self, name, float(getattr(self, name)))

    @staticmethod
    def contradictions(value: Mapping[str, Any], place: str) -> list[ConfigProblem]:
        """None of these settings contradicts another."""
        return []

    @property
    def limits(self) -> Limits:
        """As a pattern has them."""
        from headwater.patterns.model import Limits  # late: few nodes have a pattern

        return Limits(**{name: getattr(self, name) for name in LIMITS})


__all__ = ["LIMITS", "Patterns"]
