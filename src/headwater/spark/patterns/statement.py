"""`sql(spark, text)`: SQL's MATCH_RECOGNIZE for Spark, which has none.

    sql(spark, '''
        SELECT door, count(*) AS times FROM doors MATCH_RECOGNIZE (
            PARTITION BY door ORDER BY at MEASURES A.who AS first, B.who AS second
            PATTERN (A B) WITHIN INTERVAL '2' SECOND DEFINE B AS B.who <> A.who
        ) AS tailgating GROUP BY door
    ''')

Each `table MATCH_RECOGNIZE (…)` becomes a view of its matches; all the rest of the statement is Spark's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any
from uuid import uuid4

from headwater.errors import ExecutionError, HeadwaterError, PatternError, Problem
from headwater.ir.nodes import Span
from headwater.ir.notes import locate
from headwater.late import pa
from headwater.patterns import written
from headwater.patterns.checker.window import MAX_TIME
from headwater.patterns.notation.sql_statement import RowPatternClause, row_patterns
from headwater.patterns.notation.sql_words import Words
from headwater.patterns.pattern import Pattern
from headwater.spark.log_columns import log_meta
from headwater.spark.patterns.matching import match
from headwater.spark.sql_text import name
from headwater.types import EventType, event_type

SOURCE, SEQ = "headwater_source", "headwater_seq"  # columns of rows that have neither


def sql(
    spark: Any, text: str, *, params: Mapping[str, Any] | None = None, meta: Mapping[str, str] | None = None
) -> Any:
    """The DataFrame of a statement that may contain MATCH_RECOGNIZE, over tables and views that Spark knows.

    `params` are the values of `:name` in it, in row patterns and elsewhere. `meta` names the columns in which tables
    have the source, number and time of publication of an event; without it those of a log are taken. Rows of a table
    that has no such columns are ordered by what ORDER BY says alone: those of one time in any order."""
    made, at = "", 0
    views = []
    for clause in row_patterns(text):
        found = _matches(spark, text, clause, params, meta)
        view = f"headwater_matches_{uuid4().hex}"
        found.createOrReplaceTempView(view)
        views.append(view)
        made += text[at : clause.span.start] + view
        at = clause.span.end
    try:
        return spark.sql(made + text[at:], args=dict(params)) if params else spark.sql(made + text[at:])
    finally:
        if _is_classic(spark):  # elsewhere the plan asks for them again when it runs
            for view in views:
                spark.catalog.dropTempView(view)


def _is_classic(spark: Any) -> bool:
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def _matches(
    spark: Any, text: str, clause: RowPatternClause, params: Mapping[str, Any] | None, meta: Mapping[str, str] | None
) -> Any:
    frame = spark.table(".".join(name(part) for part in clause.table))
    type, left_out = _type(frame, clause.channel)
    known = dict(log_meta(frame.columns) if meta is None else meta)
    pattern = clause.pattern
    if pattern.time is not None and pattern.time.definition == known.get("time"):
        pattern = replace(pattern, time=None)
    if "source" not in known or "seq" not in known:
        pattern, frame, known = _unnumbered(pattern, frame, known, clause)
    try:
        checked = Pattern(pattern, {clause.channel: type}, params=_used(text, clause.span, params))
    except PatternError as error:
        raise PatternError([*error.problems, *_about(text, clause.span, left_out)]) from None
    return match(frame, checked, meta=known)


def _unnumbered(
    pattern: written.Pattern, frame: Any, known: dict[str, str], clause: RowPatternClause
) -> tuple[written.Pattern, Any, dict[str, str]]:
    """A table that is no log: none of its rows is late, and they have numbers as they come."""
    if frame.isStreaming:
        raise ExecutionError(
            f"{clause.channel}: a stream is put in order by time, source and number: expected columns for source and "
            f"seq, found {', '.join(frame.columns)}; give meta={{'source': '<column>', 'seq': '<column>'}}"
        )
    if pattern.time is None:
        raise ExecutionError(
            f"{clause.channel}: it has no column with the time of publication, by which meta.time would order; "
            "order by one of its columns, or give meta={'time': '<column>', …}"
        )
    numbered = frame.selectExpr("*", f"'' AS {SOURCE}", f"monotonically_increasing_id() AS {SEQ}")
    return replace(pattern, lateness=MAX_TIME), numbered, {**known, "source": SOURCE, "seq": SEQ}


def _type(frame: Any, channel: str) -> tuple[EventType, dict[str, str]]:
    """The event type that its columns make, and those that no event type has, with what they are."""
    from pyspark.sql.pandas.types import to_arrow_type

    fields, left_out = [], {}
    for field in frame.schema.fields:
        try:
            made = pa.field(field.name, to_arrow_type(field.dataType, timezone="UTC"), True)
            event_type(pa.schema([made]), name="column")
        except (HeadwaterError, TypeError, ValueError):
            left_out[field.name] = field.dataType.simpleString()
        else:
            fields.append(made)
    if not fields:
        raise ExecutionError(
            f"{channel}: expected a column that an event can have, found {left_out}; cast one in a view"
        )
    return event_type(pa.schema(fields), name="row"), left_out


def _used(text: str, span: Span, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parameters that this part of the statement names."""
    words = Words(text[span.start : span.end]).words
    named = {word.text for before, word in pairwise(words) if before.is_mark(":")}
    return {which: value for which, value in (params or {}).items() if which in named}


def _about(text: str, span: Span, left_out: Mapping[str, str]) -> list[Problem]:
    """Columns that were asked for and cannot be."""
    found = []
    for word in Words(text[span.start : span.end]).words:
        if word.is_name and word.text in left_out:
            place = Span(span.start + word.span.start, span.start + word.span.end)
            found.append(
                locate(
                    text,
                    place,
                    f"column {word.text} has a type that no event has",
                    expected="a type of events",
                    found=left_out[word.text],
                    hint="cast it in a view, and name that",
                )
            )
    return found
