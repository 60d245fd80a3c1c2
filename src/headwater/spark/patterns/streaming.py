"""Patterns over streaming DataFrames: rows are sent to groups of partitions, each of which has a runner as its state.

    rows of all channels ── sending ──> (group, bytes) ── transformWithState ──> bytes ──> matches

What travels is bytes in Arrow's form, so that no value is changed on its way by types that Spark's Python lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

from headwater.errors import ExecutionError
from headwater.patterns import model
from headwater.spark.patterns import runs, sending
from headwater.spark.patterns.sorting import Frame, key_names, ranks, rows_of
from headwater.spark.schema import spark_schema

GROUPS = 8  # of partitions, unless the caller says so: each is one value of the state, and at most one task
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def stream(frames: Sequence[Frame], pattern: model.Pattern, groups: int | None, *, identified: bool) -> Any:
    """The matches, found batch by batch."""
    from headwater.spark.patterns.stateful import FOUND, Matching

    wanted = GROUPS if groups is None else groups
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= 1 << 16:
        raise ExecutionError(f"groups: expected a whole number from 1 to {1 << 16:,}, found {groups!r}")
    _check_store(frames[0][0])
    count = wanted if pattern.key is not None else 1
    sent = _sent(frames, pattern, count)
    processor = Matching(runs.pack(pattern), pattern.fingerprint, count, identified=identified)
    found = sent.groupBy(sending.GROUP).transformWithState(processor, f"{FOUND} binary", "Append", "None")

    def headwater_matches(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for data in batch.column(FOUND):
                yield from sending.loaded(data.as_py())

    return found.mapInArrow(headwater_matches, spark_schema(pattern.output.record))


def _check_store(frame: Any) -> None:
    found = frame.sparkSession.conf.get(PROVIDER, "")
    if "RocksDB" not in found:
        raise ExecutionError(
            f"a pattern over a stream keeps its state in RocksDB: expected {PROVIDER} = {ROCKS_DB}, found "
            f"{found or 'nothing'}; set it with spark.conf.set before the query is made, or use "
            "headwater.spark.session()"
        )


def _sent(frames: Sequence[Frame], pattern: model.Pattern, groups: int) -> Any:
    """Rows, each with its group, and promises; then what is sent to each group."""
    parts = []
    keys = key_names(pattern)
    group = f"CAST(pmod(hash({', '.join(keys)}), {groups}) AS INT)" if keys else "0"
    for number, (rank, (frame, columns, meta)) in enumerate(zip(ranks(pattern), frames, strict=True)):
        made = rows_of(pattern, number, rank, columns, meta)
        carried = [each for each in made.carried if each not in keys and each != sending.TIME]
        promise = f"coalesce({runs.SEQ} IS NULL, TRUE)"
        time = f"IF({promise}, {runs.PUBLISHED}, {sending.TIME}) AS {sending.TIME}"
        listed = [f"{group} AS {sending.GROUP}", f"{made.kept} AS {sending.KEPT}", f"{promise} AS {sending.PROMISES}"]
        parts.append(
            frame.selectExpr(*made.listed)
            .where(f"({promise} AND {runs.SOURCE} IS NOT NULL) OR coalesce({made.placed}, FALSE)")
            .selectExpr(time, *carried, *listed)
        )
    rows = reduce(lambda one, other: one.unionAll(other), parts)
    own_time = any(channel.time is not None for channel in pattern.channels)
    if own_time:  # lateness goes by the numbers of a source
        rows = rows.repartition(runs.SOURCE, runs.NODE)
    lateness = pattern.lateness

    def headwater_rows(batches: Iterator[Any]) -> Iterator[Any]:
        return sending.packages(batches, groups, lateness, own_time=own_time)

    return rows.mapInArrow(headwater_rows, f"{sending.GROUP} int, {sending.SENT} binary")
