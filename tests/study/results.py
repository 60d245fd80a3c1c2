"""A result of the badge study with real counts, from the interests themselves over the day; links are made up."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from headwater.study.badges.code import code_facts, programs
from headwater.study.badges.day import day
from headwater.study.badges.margins import NETWORKS, STATIONS
from headwater.study.badges.subscribers import GROUPS, group, subscribers
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
