"""What is going on with a pattern at a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from headwater.channel.reports.report import SubscriptionReport
from headwater.types.model import TIMESTAMP_MAX, TIMESTAMP_MIN

if TYPE_CHECKING:
    from headwater.channel.patterns.stage import PatternStage
    from headwater.patterns.pattern import Pattern

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternReport(SubscriptionReport):
    """A subscription to a pattern's channels, and the pattern itself.

    `events` came here, `rows` of them can be part of a match, or stand between its parts; of `marks` only their time
    and partition came. `late` came after their
    source had gone further; `contradicted` after nobody waited for them any longer (`patience`), and `uncertain` are
    matches that were not waited for. `given_up` are partial matches for which there was no room, `dropped` those that
    were open when the pattern was changed. `runs` are partial matches that are open; where these are `shared`, at most
    so many events are in them: what is let go is cleared when room is needed. `watermark` is the time that every source
    has reached, and `held_by` who holds it there. `crossing` is what other nodes are asked for, where that is less than
    all. `home` is the node that it runs at, and `why` there; `kept` says when its state was last written, and what a
    restart has lost."""

    pattern: str = ""
    by: str = "time"  # the order of its events
    events: int = 0
    rows: int = 0
    marks: int = 0
    timeless: int = 0
    keyless: int = 0
    late: int = 0
    contradicted: int = 0
    matches: int = 0
    uncertain: int = 0
    given_up: int = 0
    dropped: int = 0
    partitions: int = 0
    runs: int = 0
    shared: bool = False
    memory: int = 0
    watermark: datetime | None = None
    held_by: str | None = None
    crossing: Mapping[str, Any] = field(default_factory=dict)
    home: str = ""
    why: str = ""
    kept: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """The report of the subscription, and below it that of its pattern, a line for each question."""
        lost = [
            ("no more than marks", self.marks),
            ("late", self.late),
            ("without a time", self.timeless),
            ("of no partition", self.keyless),
        ]
        lost += [("contradicted", self.contradicted)]
        reached = "nothing" if self.watermark is None else self.watermark.isoformat()
        lines = [
            f"pattern    {' '.join(self.pattern.split())}",
            f"order      {self.by}" + (": live only, and not the same again" if self.by == "arrival" else ""),
            f"events     {self.events:,}, {self.rows:,} rows" + "".join(f", {n:,} {what}" for what, n in lost if n),
            f"matches    {self.matches:,}" + (f", {self.uncertain:,} uncertain" if self.uncertain else ""),
            f"open       {self._open()} in {self.partitions:,} partitions, {self.memory:,} bytes",
            f"lost       {self.given_up:,} runs for want of room, {self.dropped:,} by changes",
            f"watermark  {reached}" + (f", held by {self.held_by}" if self.held_by else ""),
            *(f"crossing   {what}: {_words(value)}" for what, value in self.crossing.items() if value),
            *([f"runs       at node {self.home}: {self.why}"] if self.home else []),
            *(f"kept       {what}: {value}" for what, value in self.kept.items() if value),
        ]
        return "\n".join([SubscriptionReport.__str__(self), "", *lines])

    def _open(self) -> str:
        return f"shared runs of at most {self.runs:,} events" if self.shared else f"{self.runs:,} runs"


def _words(value: Any) -> str:
    """A number, names, or what there is of each."""
    if isinstance(value, Mapping):
        return ", ".join(f"{what}: {_words(each)}" for what, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def pattern_report(of: SubscriptionReport, pattern: Pattern, stage: PatternStage) -> PatternReport:
    """The report of a subscription, with what is known of its pattern."""
    operator, look = stage.operator, stage.seen
    runner, counts = operator.runner, operator.runner.counts
    watermark = None
    if look is not None and TIMESTAMP_MIN <= look.sure[0] <= TIMESTAMP_MAX:
        watermark = _EPOCH + timedelta(microseconds=look.sure[0])
    return PatternReport(
        **{each.name: getattr(of, each.name) for each in fields(of)},
        pattern=str(pattern),
        by=operator.order,
        events=counts.events,
        rows=counts.rows,
        marks=counts.marks,
        timeless=counts.timeless,
        keyless=counts.keyless,
        late=counts.late,
        contradicted=counts.contradicted,
        matches=counts.matches,
        uncertain=operator.uncertain,
        given_up=runner.engine.given_up,
        dropped=operator.dropped,
        partitions=int(runner.engine.open),
        runs=runner.open_runs,
        shared=runner.shares,
        memory=runner.memory,
        watermark=watermark,
        held_by=None if look is None or look.holder is None or look.holder.local else look.holder.name,
        crossing={} if stage.arrivals is None else stage.arrivals.report(),
    )


__all__ = ["PatternReport", "pattern_report"]
