"""Results of studies: of the badge study, with real counts from the interests themselves over the day and links that
are made up; and of one of somebody's own, all made up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from headwater.interest import Interest, as_event_type
from headwater.spark.backtest import Backtest, Traffic
from headwater.spark.backtest.report import LinkRow, SinkRow, SourceRow, SubscriptionRow, TimeRow
from headwater.study.badges.code import code_facts, programs
from headwater.study.badges.day import day
from headwater.study.badges.margins import NETWORKS, STATIONS
from headwater.study.badges.subscribers import GROUPS, group, subscribers
from headwater.study.own import Compared, OwnResult
from headwater.study.report.data import Link, Run, SparkResult, StudyResult, Subscription, timeline


@cache
def counts() -> dict[str, int]:
    """Events that each subscriber's interest passes."""
    batch = day().combine_chunks().to_batches()[0]
    return {each.name: each.interest().select(batch).counts.passed for each in subscribers()}


def run(name: str, *, only: tuple[str, ...] = (), crossed: int | None = None) -> Run:
    who = [each.name for each in (subscribers() if name == "all" or only else group(name))]  # type: ignore[arg-type]
    links = tuple(
        Link(
            node=network,
            published=events,
            crossed=events if crossed is None else min(crossed, events),
            frames=events // 30 + 1,
            bytes=60 * events,
            sources=STATIONS[network],
            back_frames=9,
            back_bytes=400,
        )
        for network, events in NETWORKS.items()
    )
    delivered = {each: counts()[each] for each in who if not only or each in only}
    return Run(
        name=name, title=name, delivered=delivered, links=links, said=99, said_bytes=9_000, seconds=1.5, ready=0.5
    )


@cache
def result() -> StudyResult:
    table = day()
    who = subscribers()
    return StudyResult(
        title="The active badge study",
        made="2026-01-01T00:00:00+00:00",
        events=table.num_rows,
        stations=118,
        subscriptions=tuple(Subscription(name=each.name, group=each.group, watches=each.watches) for each in who),
        runs=tuple(run(name) for name in (*GROUPS, "all")),
        day=timeline(
            pc.cast(table["seen"], pa.int64()).to_pylist(),
            table["network"].to_pylist(),
            step=600_000_000,
            order=tuple(NETWORKS),
        ),
        code=tuple(code_facts(interest, name=each.name, shared_by=count) for each, interest, count in programs(who)),
        spark=SparkResult(counts=counts(), seconds=3.0, rows=table.num_rows, master="local[2]"),
        timings={"playing": 9.0},
        versions={"Python": "3"},
    )


# ── a study of one's own ──

BEGUN = datetime(2026, 1, 8, 15, 20, tzinfo=UTC)  # a Thursday, in the middle of a week
ENDED = datetime(2026, 6, 20, 10, 39, tzinfo=UTC)
WEEK = timedelta(days=7)
WEEKS = 24
LONG = "{ static int run = 0; if (input.level > 7) { run = run + 1; } else { run = 0; } return run > 3; }"


@cache
def own_result() -> OwnResult:
    """A log of three nodes over half a year, with names and interests as long as people make them; numbers made up."""
    nodes = ("hall", "statistics.department.example", "laboratory 7, second floor")
    names = ("everything", "loud in the room at the end of the corridor, second floor", "rises", "one", "none")
    texts = ("", "level >= :least and room = :room", LONG, "level = 9 and person = 'eva'", "level > 99")
    counts = (48_000, 9_000, 700, 1, 0)
    first = BEGUN - timedelta(days=BEGUN.weekday())
    first = first.replace(hour=0, minute=0)

    def traffic(events: int) -> Traffic:
        return Traffic(events, 40 * events)

    links = tuple(
        LinkRow(node, at, traffic(16_000), traffic(9_000), traffic(8_000))
        for node in nodes
        for at in ("desk", "archive")
    )
    subscriptions = tuple(
        SubscriptionRow(name, "desk", count, 40 * count, 30 * count, 48_000, count, 48_000 - count, 0, {})
        for name, count in zip(names, counts, strict=True)
    )
    found = Backtest(
        channel="office.reading",
        type="Reading",
        events=48_000,
        first=BEGUN,
        last=ENDED,
        width=WEEK,
        unfiltered=traffic(96_000),
        filtered=traffic(57_701),
        merged=traffic(48_000),
        multicast=traffic(48_000),
        local=0,
        subscriptions=subscriptions,
        links=links,
        sinks=tuple(SinkRow(at, 3, traffic(48_000), traffic(27_000), traffic(24_000)) for at in ("desk", "archive")),
        sources=tuple(SourceRow(node, *map(traffic, (16_000, 32_000, 18_000, 16_000, 16_000))) for node in nodes),
        times=tuple(
            TimeRow(
                first + week * WEEK,
                2_000,
                *map(traffic, (4_000, 2_400, 2_000, 2_000)),
                received=(2_000, 375, 29, int(week == 3), 0),
                sources=(667, 667, 666),
            )
            for week in range(WEEKS)
        ),
        seconds=2.0,
        how="matching each event: 48,000 events",
    )
    live = Run(
        name="live",
        title="all subscriptions",
        delivered=dict(zip(names, counts, strict=True)),
        links=tuple(
            Link(node=node, published=16_000, crossed=16_000, frames=300, bytes=640_000, sources=2, back_frames=40)
            for node in nodes
        ),
        said=120,
        said_bytes=90_000,
        seconds=1.5,
        ready=4.0,
    )
    reading = as_event_type("room: text, level: i32, person: text?")
    return OwnResult(
        title="A house over half a year",
        made="2026-07-01T00:00:00+00:00",
        file="house.toml",
        log="events",
        channel="office.reading",
        sources=dict.fromkeys(nodes, 2),
        found=found,
        subscriptions=tuple(
            Compared(
                name=name,
                at="statistics.department.example" if name == "rises" else "desk",
                text=text,
                params="least = 5, room = the room at the end of the corridor" if ":least" in text else "",
                kind="filter with state" if "static" in text else "filter" if text else "everything",
                spark=count,
                live=count,
                expected=count,
                again=name == "rises",
            )
            for name, text, count in zip(names, texts, counts, strict=True)
        ),
        run=live,
        code=(code_facts(Interest(LONG, reading), name="rises"),),
        programs=1,
        names={"laboratory 7, second floor": "laboratory.7.second.floor"},
        master="local[*]",
        timings={"on Spark": 2.0, "playing it live: 3 nodes with sources, 2 with sinks": 7.0},
        versions={"Python": "3"},
    )
