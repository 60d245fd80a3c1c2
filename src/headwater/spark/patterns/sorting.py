"""Rows for runners: Spark puts the events of one partition into one task, in their order; the automaton runs there.

One pass over the events, one shuffle. A task has the events of many partitions in the order of their time, so that a
runner holds what is open in the window and no more: a partition may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from headwater.errors import ExecutionError
from headwater.interest import Interest
from headwater.ir.backend import Unsupported
from headwater.patterns import model
from headwater.spark.column import Outputs, outputs_of, sql_of
from headwater.spark.patterns import runs
from headwater.spark.patterns.windows import IN_THE_CALENDAR, TIME, lateness
from headwater.spark.schema import spark_schema
from headwater.spark.sql_text import sql_type, text_literal

Frame = tuple[Any, Mapping[str, str], Mapping[str, str]]  # with the SQL of its fields and of its meta


def sorted_rows(pattern: model.Pattern, frames: Sequence[Frame]) -> Any:
    """The rows of all channels: those of one partition in one task, each task in order."""
    parts = []
    for number, (rank, (frame, columns, meta)) in enumerate(zip(ranks(pattern), frames, strict=True)):
        made = rows_of(pattern, number, rank, columns, meta)
        parts.append(
            frame.selectExpr(*made.listed).where(made.placed).selectExpr(*made.carried, f"{made.kept} AS _kept")
        )
    own_time = any(channel.time is not None for channel in pattern.channels)
    late = lateness(pattern, own_time, who=(runs.CHANNEL, runs.SOURCE, runs.NODE))
    rows = in_time(reduce(lambda one, other: one.unionAll(other), parts), late)
    rows = rows.where("_kept").drop("_kept")
    keys = key_names(pattern)
    placed = rows.repartition(*keys) if keys else rows.coalesce(1)
    return placed.sortWithinPartitions(TIME, runs.SOURCE, runs.NODE, runs.SEQ, runs.RANK).drop(*keys, TIME, runs.RANK)


@dataclass(frozen=True, slots=True)
class Rows:
    """Of one channel, in SQL: what a row has, what has a place in time, what is of any use, and what of it goes on."""

    listed: tuple[str, ...]
    placed: str
    kept: str
    carried: tuple[str, ...]


def rows_of(
    pattern: model.Pattern, number: int, rank: int, columns: Mapping[str, str], meta: Mapping[str, str]
) -> Rows:
    """`rank` orders events of one source, number and time."""
    channel = pattern.channels[number]
    time, timed = f"unix_micros({meta.get('time')})", None
    if channel.time is not None:
        made = _outputs(channel.time, columns, meta, "time")
        time, timed = f"unix_micros({made.fields['time']})", made.passes
    listed = [f"{time} AS {TIME}", f"{rank} AS {runs.RANK}", f"{number} AS {runs.CHANNEL}"]
    listed += [f"{meta['source']} AS {runs.SOURCE}", f"{meta['seq']} AS {runs.SEQ}"]
    listed += [f"unix_micros({meta['time']}) AS {runs.PUBLISHED}" if "time" in meta else f"0L AS {runs.PUBLISHED}"]
    listed += [f"nullif({meta.get('node') or 'CAST(NULL AS STRING)'}, '') AS {runs.NODE}"]
    placed, kept = [IN_THE_CALENDAR], ["TRUE"]
    if channel.key is not None:
        key = _outputs(channel.key, columns, meta, "partition")
        listed += [f"{text} AS {name}" for text, name in zip(key.fields.values(), key_names(pattern), strict=True)]
        listed.append(f"{key.passes} AS _kp")
        kept.append("_kp")
    for test, name, to in ((timed, "_tp", placed), (_used(pattern, channel, columns, meta), "_u", kept)):
        if test is not None:
            listed.append(f"{test} AS {name}")
            to.append(name)
    for other, each in enumerate(pattern.channels):
        listed.append(f"{_event(each, columns if other == number else None)} AS {runs.EVENT}{other}")
    events = [f"{runs.EVENT}{other}" for other in range(len(pattern.channels))]
    carried = (TIME, runs.RANK, runs.CHANNEL, runs.SOURCE, runs.SEQ, runs.PUBLISHED, runs.NODE)
    return Rows(
        tuple(listed),
        " AND ".join(placed),
        f"coalesce({' AND '.join(kept)}, FALSE)",
        (*carried, *key_names(pattern), *events),
    )


def key_names(pattern: model.Pattern) -> list[str]:
    """The columns of the parts of the partition's key."""
    return [f"_k{at}" for at in range(len(pattern.key.record.fields))] if pattern.key is not None else []


def ranks(pattern: model.Pattern) -> list[int]:
    """Of each channel, its place among the others by their names."""
    order = sorted(range(len(pattern.channels)), key=lambda number: pattern.channels[number].name)
    return [order.index(number) for number in range(len(order))]


def in_time(rows: Any, late: tuple[str, str] | None) -> Any:
    """Without events that are older than one that their source sent before, by more than it may be late."""
    if late is None:
        return rows
    window, test = late
    return rows.selectExpr("*", window).where(test).drop("_l")


def _event(channel: model.Channel, columns: Mapping[str, str] | None) -> str:
    """All fields of an event; of another channel's, none."""
    if columns is None:
        return f"CAST(NULL AS {sql_type(channel.type.record)})"
    return f"named_struct({', '.join(f'{text_literal(name)}, {sql}' for name, sql in columns.items())})"


def _used(
    pattern: model.Pattern, channel: model.Channel, columns: Mapping[str, str], meta: Mapping[str, str]
) -> str | None:
    """Whether an event can be of any use: what fits no element is left out before it is sorted, unless rows count that
    no element takes. None: all are kept."""
    window = pattern.window
    if (window is not None and window.rows is not None) or any(
        s.selection == "strict" for s in model.steps(pattern.root)
    ):
        return None
    tests = []
    for element in pattern.elements:
        if channel.name not in element.channels:
            continue
        if element.condition is None:
            return None
        said = sql_of(element.condition.program, element.condition.params, columns=columns, meta=meta, truth=True)
        if isinstance(said, Unsupported):
            return None
        tests.append(said.text)
    return f"coalesce({' OR '.join(f'coalesce({test}, FALSE)' for test in tests)}, FALSE)" if tests else "FALSE"


def _outputs(interest: Interest, columns: Mapping[str, str], meta: Mapping[str, str], what: str) -> Outputs:
    made = outputs_of(interest.program, interest.params, columns=columns, meta=meta, truth=True)
    if isinstance(made, Unsupported):
        raise ExecutionError(
            f"the {what} of this pattern cannot be said as a Column, and Spark sorts by it: {made.reason}; "
            "compute it as a field of its own first"
        )
    return made


def run(rows: Any, pattern: model.Pattern, identified: bool) -> Any:
    """The matches, found by runners in the workers."""
    package, fingerprint = runs.pack(pattern), pattern.fingerprint

    def headwater_pattern(batches: Iterator[Any]) -> Iterator[Any]:
        return runs.matches(package, batches, fingerprint, identified=identified)

    return rows.mapInArrow(headwater_pattern, spark_schema(pattern.output.record))


__all__ = ["Frame", "Rows", "in_time", "key_names", "ranks", "rows_of", "run", "sorted_rows"]
