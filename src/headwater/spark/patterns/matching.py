"""`match(frame, pattern)`: the matches of a pattern over a DataFrame of events, each as a row of its result.

The frame is a log (`events(spark, log, channel)`), or any DataFrame with the fields of the channel's type and columns
for what the service knew of each event: its source, number and time. It is taken to be complete: what is absent in it
was absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headwater.errors import ExecutionError
from headwater.ir.backend import Unsupported
from headwater.ir.nodes import META_TYPES, NOWHERE, Span
from headwater.late import pa
from headwater.patterns import model
from headwater.patterns.pattern import Pattern
from headwater.patterns.result import MATCH, is_result
from headwater.spark.columns import bind_columns, bind_meta
from headwater.spark.log_columns import log_meta
from headwater.spark.patterns.runs import identities
from headwater.spark.patterns.sorting import in_time, run, sorted_rows
from headwater.spark.patterns.streaming import stream
from headwater.spark.patterns.windows import Plan, plan
from headwater.spark.sql_text import name

Kind = Literal["window functions", "runners"]


@dataclass(frozen=True, slots=True)
class PatternChoice:
    """How Spark runs a pattern, and why. `sql` is what window functions say; `span` is where the reason lies."""

    kind: Kind
    reason: str
    sql: str | None = None
    span: Span = NOWHERE

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


def pattern_choice(pattern: Pattern | model.Pattern) -> PatternChoice:
    """Whether Spark runs this pattern by window functions or by runners in its workers, and why. Needs no session."""
    checked = _model(pattern)
    columns = {which: name(which) for channel in checked.channels for which in channel.type.record.by_name}
    made = plan(checked, columns, {which: name(which) for which in META_TYPES})
    if isinstance(made, Unsupported):
        return PatternChoice("runners", made.reason, None, made.span)
    return PatternChoice("window functions", "they say the same, with the same order of events", made.text)


def match(
    frame: Any,
    pattern: Pattern | model.Pattern,
    *,
    meta: Mapping[str, str] | None = None,
    identity: bool = True,
    groups: int | None = None,
) -> Any:
    """The matches: the fields of the pattern's result, and last what is known of the match, the column `match`: who it
    is (`match.identity`, the same bytes as live), its time, and that it is certain. Without `identity` it is not said
    who it is, which takes time where window functions find the matches.

    `frame` is the DataFrame of the pattern's channel, or one for each channel by its name. `meta` names the columns
    that hold source, seq and time (and node); without it those of a log are taken.

    Of streaming DataFrames the matches are a stream as well. `groups` is by how many values of Spark's state partitions
    are held (8 unless it is given), and may not change while a checkpoint is used."""
    checked = _model(pattern)
    frames = _frames(frame, checked)
    bound = [_bound(frames[channel.name], channel, meta) for channel in checked.channels]
    if _streaming(frames):
        given = [(frames[channel.name], *each) for channel, each in zip(checked.channels, bound, strict=True)]
        return stream(given, checked, groups, identified=identity)
    if groups is not None:
        raise ExecutionError("groups: expected streaming DataFrames beside it, found others; leave it out")
    made = plan(checked, *bound[0], identified=identity)
    of_matches = any(is_result(channel.type.record) for channel in checked.channels)  # who they are is in their fields
    if isinstance(made, Plan) and (not identity or (made.origins and not of_matches)):
        return _windowed(frames[checked.channels[0].name], checked, made, identity)
    rows = sorted_rows(
        checked, [(frames[channel.name], *each) for channel, each in zip(checked.channels, bound, strict=True)]
    )
    return run(rows, checked, identity)


def _model(pattern: Pattern | model.Pattern) -> model.Pattern:
    if isinstance(pattern, model.Pattern):
        return pattern
    if isinstance(pattern, Pattern):
        return pattern.model
    raise TypeError(f"expected a Pattern, found {pattern.__class__.__name__}")


def _frames(frame: Any, pattern: model.Pattern) -> dict[str, Any]:
    names = [channel.name for channel in pattern.channels]
    if isinstance(frame, Mapping):
        lacking = [which for which in names if which not in frame]
        if lacking:
            raise ExecutionError(f"expected a DataFrame for each channel of the pattern, found none for {lacking}")
        return {which: frame[which] for which in names}
    if len(names) != 1:
        raise ExecutionError(f"the pattern has channels {names}: give a DataFrame for each, by its name")
    return {names[0]: frame}


def _streaming(frames: Mapping[str, Any]) -> bool:
    found = {which: bool(frame.isStreaming) for which, frame in frames.items()}
    if len(set(found.values())) > 1:
        still = [which for which, streams in found.items() if not streams]
        raise ExecutionError(f"expected a streaming DataFrame for each channel, or for none; {still} are none")
    return any(found.values())


def _bound(frame: Any, channel: model.Channel, meta: Mapping[str, str] | None) -> tuple[dict[str, str], dict[str, str]]:
    """SQL of the fields and of the meta that the pattern reads, checked against the frame."""
    known = bind_meta(frame, log_meta(frame.columns) if meta is None else meta)
    wanted = ("source", "seq") if channel.time is not None else ("source", "seq", "time")
    lacking = [which for which in wanted if which not in known]
    if lacking:
        raise ExecutionError(
            f"a pattern puts events in the order of time, source and number: expected meta columns for "
            f"{', '.join(wanted)}, found none for {' and '.join(lacking)}; give meta={{'source': '<column>', …}}"
        )
    record = channel.type.record
    return bind_columns(frame, record, [field.name for field in record.fields]), known


def _windowed(frame: Any, pattern: model.Pattern, made: Plan, identity: bool) -> Any:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    rows = (
        in_time(frame.selectExpr(*made.rows).where(made.placed), made.late).where(made.kept).selectExpr(*made.carried)
    )
    found = rows.selectExpr("*", *made.windows).where(made.matches)
    who = F.lit(None).cast(T.BinaryType())
    if identity:
        marks = F.arrow_udf(_identities(pattern.fingerprint, pattern.channels[0].name), T.BinaryType())
        who = marks(F.expr(f"struct({made.origins} AS events, CAST({made.deadline or 'NULL'} AS BIGINT) AS deadline)"))
    about = F.struct(
        who.alias("identity"),
        F.expr(f"timestamp_micros({made.time})").alias("time"),
        F.lit(False).alias("uncertain"),
    )
    return found.select(*(F.expr(sql).alias(field) for field, sql in made.results), about.alias(MATCH))


def _identities(fingerprint: bytes, channel: str) -> Callable[[Any], Any]:
    def headwater_identity(rows: pa.Array) -> pa.Array:
        return identities(fingerprint, channel, rows)

    # Spark reads the annotations to tell what kind of function this is.
    headwater_identity.__annotations__ = {"rows": pa.Array, "return": pa.Array}
    return headwater_identity


__all__ = ["PatternChoice", "match", "pattern_choice"]
