"""What is going on at a node, as values: for people with `str()`, for programs with `.to_dict()`.

A report is a snapshot; it does not change when events go on. What a node's report shows for people:

    node hall, open: 3 channels, 2 sources, 4 subscriptions
    …
    slow sinks
      alarm  12 dropped, 1,000 queued (queue: 1,000 events, drop oldest)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from headwater.channel.reports.counters import Counts, Latency, duration, fault_name
from headwater.ir.interp import Fault
from headwater.text_tables import Cell, block, table

State = Literal["open", "paused", "closed"]
SHOWN = 100  # rows of a table for people


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an interest runs, and why there and so: `how` might be "index", `why` "equality on network".

    `subscription` says whose it is, where that is not plain.
    """

    source: str
    channel: str
    how: str
    why: str
    subscription: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    """What all reports have in common. `type` is an event type's name, None where events are bytes."""

    name: str
    type: str | None = None
    state: State = "open"
    epoch: int = 0
    counts: Counts = field(default_factory=Counts)
    latency: Latency = field(default_factory=Latency)

    def to_dict(self) -> dict[str, Any]:
        """For programs: nothing but dicts, lists, texts, numbers, booleans and None; durations in nanoseconds."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    def _what(self) -> str:
        events = f"events of type {self.type}" if self.type else "bytes"
        return f"{self.name}, {self.state}, {events}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport(_Report):
    """A source: how many events it published, what it stated of them, and which interests are evaluated there."""

    channel: str = ""
    published: int = 0
    shed: int = 0  # what it was to publish, and what was beyond its rate
    facts: Mapping[str, Any] = field(default_factory=dict)
    zones: tuple[str, ...] = ()  # none: it is heard everywhere
    placements: tuple[Placement, ...] = ()

    def __str__(self) -> str:
        facts = ", ".join(f"{name} = {value!r}" for name, value in self.facts.items())
        pairs = [
            ("channel", self.channel),
            ("facts", facts),
            ("zones", ", ".join(self.zones) or None),
            ("published", f"{self.published:,}"),
            ("shed", f"{self.shed:,}" if self.shed else None),
            *_pairs(self),
        ]
        return _page(f"source {self._what()}", pairs, _where_table(self.placements))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionReport(_Report):
    """A subscription: what it asked for, how its events are handed over, and what became of them.

    `slow` is why the sink is called slow, None while it keeps up; `trouble` is the last failure of its handler;
    `refused` has the channels of its pattern that it could not be attached to, and why; `warnings` is what is allowed
    and hardly meant, such as an interest that no event can pass.
    """

    channel: str = ""  # a name, a pattern, or several in words
    interest: str | None = None
    zones: tuple[str, ...] = ()  # none: it looks at the whole channel
    order: str = "receive"
    dispatch: str = ""
    queue: str = ""
    slow: str | None = None
    trouble: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    placements: tuple[Placement, ...] = ()

    def __str__(self) -> str:
        pairs = [
            ("channel", self.channel),
            ("interest", self.interest or "every event"),
            ("zones", ", ".join(self.zones) or None),
            ("order", self.order if self.order != "receive" else None),
            ("epoch", f"{self.epoch:,}"),
            ("dispatch", self.dispatch),
            ("queue", self.queue),
            *_pairs(self),
            ("slow", self.slow),
            ("last failure", self.trouble),
            *(("not attached", f"to {channel}: {why}") for channel, why in self.refused.items()),
            *(("warning", warning.partition("\n")[0]) for warning in self.warnings),
        ]
        return _page(f"subscription {self._what()}", pairs, _where_table(self.placements))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelReport(_Report):
    """A channel, and by name its sources and subscriptions; `derived` says from what, if it is."""

    derived: str | None = None
    sources: tuple[str, ...] = ()
    subscriptions: tuple[str, ...] = ()
    published: int = 0
    placements: tuple[Placement, ...] = ()

    def __str__(self) -> str:
        pairs = [
            ("derived", self.derived),
            ("sources", _names(self.sources)),
            ("subscriptions", _names(self.subscriptions)),
            ("published", f"{self.published:,}"),
            *_pairs(self),
        ]
        return _page(f"channel {self._what()}", pairs, _where_table(self.placements))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """Everything at a node. `dispatch` has a line for each strategy at work; `notes` whatever else is worth saying."""

    name: str
    state: State = "open"
    channels: tuple[ChannelReport, ...] = ()
    sources: tuple[SourceReport, ...] = ()
    subscriptions: tuple[SubscriptionReport, ...] = ()
    dispatch: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    services: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by name, what each says of itself

    @property
    def counts(self) -> Counts:
        """Of all subscriptions together."""
        return sum((each.counts for each in self.subscriptions), Counts())

    @property
    def latency(self) -> Latency:
        """Of all subscriptions together."""
        done = Latency()
        for each in self.subscriptions:
            done.merge(each.latency)
        return done

    @property
    def slow(self) -> tuple[SubscriptionReport, ...]:
        """The subscriptions whose sinks do not keep up."""
        return tuple(each for each in self.subscriptions if each.slow or each.counts.dropped)

    def to_dict(self) -> dict[str, Any]:
        """For programs: nothing but dicts, lists, texts, numbers, booleans and None; durations in nanoseconds."""
        done = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}
        return done | {
            "counts": _plain(self.counts),
            "latency": _plain(self.latency),
            "slow": [each.name for each in self.slow],
        }

    def __str__(self) -> str:
        sizes = [
            _count(len(self.channels), "channel"),
            _count(len(self.sources), "source"),
            _count(len(self.subscriptions), "subscription"),
        ]
        lines = [f"node {self.name}, {self.state}: {', '.join(sizes)}"]
        pairs = [("dispatch", line) for line in self.dispatch] + [("note", line) for line in self.notes]
        lines += block([*pairs, ("events", str(self.counts)), ("latency", str(self.latency))])
        lines += _section("channels", _channel_table(self.channels))
        lines += _section("sources", _source_table(self.sources))
        lines += _section("subscriptions", _subscription_table(self.subscriptions))
        lines += _section("deliveries", _delivery_table(self.subscriptions))
        lines += _section("where interests run", _interest_table(self.subscriptions))
        slow = [(each.name, _slowness(each)) for each in self.slow]
        lines += _section("slow sinks", _cut(block(slow[:SHOWN]), len(slow)))
        troubled = [(each.name, each.trouble) for each in self.subscriptions if each.trouble]
        lines += _section("last failures", _cut(block(troubled[:SHOWN]), len(troubled)))
        return "\n".join(lines)


# ── tables ──


def _channel_table(channels: Iterable[ChannelReport]) -> list[str]:
    rows: list[list[Cell]] = [
        [
            each.name,
            each.type or "bytes",
            each.state,
            each.derived or "",
            len(each.sources),
            len(each.subscriptions),
            each.published,
        ]
        for each in channels
    ]
    return _rows(["name", "type", "state", "?derived", "sources", "subscriptions", "published"], rows)


def _source_table(sources: Iterable[SourceReport]) -> list[str]:
    rows: list[list[Cell]] = []
    for each in sources:
        facts = ", ".join(f"{name} = {value!r}" for name, value in each.facts.items())
        rows.append([each.name, each.channel, each.state, each.epoch, facts, each.published, *_outcomes(each.counts)])
    return _rows(["name", "channel", "state", "?epoch", "?facts", "published", *_OUTCOMES], rows)


def _subscription_table(subscriptions: Iterable[SubscriptionReport]) -> list[str]:
    rows: list[list[Cell]] = [
        [each.name, each.channel, each.interest or "", each.state, *_outcomes(each.counts)] for each in subscriptions
    ]
    return _rows(["name", "channel", "?interest", "state", *_OUTCOMES], rows)


def _delivery_table(subscriptions: Iterable[SubscriptionReport]) -> list[str]:
    rows: list[list[Cell]] = []
    for each in subscriptions:
        c, t = each.counts, each.latency
        times: list[Cell] = [duration(t.quantile(q)) if t.count else None for q in (0.5, 0.9, 0.99)]
        times.append(duration(t.max) if t.count else None)
        rows.append(
            [each.name, c.delivered, c.queued, c.dropped, c.expired, c.skipped, c.failed, c.late, *times, each.dispatch]
        )
    counted = ["delivered", "queued", "?dropped", "?expired", "?skipped", "?failed", "?late"]
    return _rows(["name", *counted, "?>p50", "?>p90", "?>p99", "?>max", "?dispatch"], rows)


_OUTCOMES = ("evaluated", "passed", "rejected", "?undecided", "?faults")


def _outcomes(counts: Counts) -> list[Cell]:
    return [counts.evaluated, counts.passed, counts.rejected, counts.undecided, counts.faulty]


def _interest_table(subscriptions: Iterable[SubscriptionReport]) -> list[str]:
    owned = [replace(place, subscription=each.name) for each in subscriptions for place in each.placements]
    return _where_table(owned)


def _where_table(placements: Iterable[Placement]) -> list[str]:
    rows: list[list[Cell]] = [
        [place.subscription, place.source, place.channel, place.how, place.why] for place in placements
    ]
    return _rows(["?subscription", "source", "channel", "how", "why"], rows)


def _rows(head: list[str], rows: list[list[Cell]]) -> list[str]:
    return _cut(table(head, rows[:SHOWN]), len(rows)) if rows else []


def _cut(lines: list[str], found: int) -> list[str]:
    return [*lines, f"  … and {found - SHOWN:,} more; to_dict() has them all"] if found > SHOWN else lines


def _section(title: str, lines: list[str]) -> list[str]:
    return ["", title, *lines] if lines else []


def _page(title: str, pairs: Iterable[tuple[str, str | None]], where: list[str]) -> str:
    return "\n".join([title, *block(list(pairs)), *_section("where interests run", where)])


def _pairs(report: _Report) -> list[tuple[str, str | None]]:
    latency = str(report.latency) if report.latency.count else None
    return [("events", str(report.counts)), ("latency", latency)]


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:10])
    return f"{len(names):,}: {shown}{' …' if len(names) > 10 else ''}" if names else "none"


def _slowness(report: SubscriptionReport) -> str:
    dropped = f"{report.counts.dropped:,} dropped" if report.counts.dropped else None
    queue = f" (queue: {report.queue})" if report.queue else ""
    parts = [report.slow, dropped, f"{report.counts.queued:,} queued{queue}"]
    return ", ".join(part for part in parts if part)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number != 1 else ''}"


# ── for programs ──


def _plain(value: Any) -> Any:
    match value:
        case _Report() | Counts() | Latency():
            return value.to_dict()
        case Placement():
            return {f.name: getattr(value, f.name) for f in fields(value)}
        case Mapping():
            return {fault_name(k) if isinstance(k, Fault) else str(k): _plain(v) for k, v in value.items()}
        case tuple() | list() | set() | frozenset():
            return [_plain(each) for each in value]
        case None | bool() | int() | str():
            return value
        case float():
            return value if value - value == 0 else str(value)  # JSON has no infinities and no NaN
        case _:
            return str(value)


__all__ = ["ChannelReport", "NodeReport", "Placement", "SourceReport", "State", "SubscriptionReport"]
