"""Interests on Spark DataFrames: `where`, `derive`, `outcome`; `choice` and `explain` say how each would run.

An interest is anything with `.program` and `.params`, or a `Program` with `params=`. `meta` names the columns that
hold what the service knew of each event: `meta={"source": "source", "seq": "seq"}`. Without it the columns of a log
(`LOG_META`) are taken where the DataFrame has them; `meta={}` says that there are none. DataFrames of classic Spark and
of Spark Connect are taken alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headwater.errors import ExecutionError
from headwater.ir.inputs import fields_read
from headwater.ir.interp import FUEL
from headwater.ir.nodes import META_TYPES, NOWHERE, Program, Span
from headwater.ir.notes import locate
from headwater.ir.params import bind
from headwater.spark import arrow
from headwater.spark.column import Unsupported, outputs_of, sql_of
from headwater.spark.columns import bind_columns, bind_meta
from headwater.spark.log_columns import log_meta
from headwater.spark.sql_text import name

Kind = Literal["column", "arrow function"]


@dataclass(frozen=True, slots=True)
class Choice:
    """How Spark runs an interest, and why. `sql` is the Column's text; `span` is where the reason lies."""

    kind: Kind
    reason: str
    sql: str | None = None
    span: Span = NOWHERE

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


@dataclass(frozen=True, slots=True)
class _Given:
    program: Program
    params: Mapping[str, Any]
    fuel: int


def _given(interest: Any, params: Mapping[str, object] | None) -> _Given:
    if isinstance(interest, Program):
        return _Given(interest, bind(interest.params, params or {}), FUEL)
    if getattr(interest, "contextual", False):
        raise ExecutionError(
            "this interest reads the context of its sources, which no recording has; give its values: "
            "Interest(…, params={'context.NAME': …})"
        )
    program = getattr(interest, "program", None)
    if not isinstance(program, Program):
        raise TypeError(f"expected an Interest or a Program, found {interest.__class__.__name__}")
    changed = bind([decl for decl in program.params if decl.name in (params or {})], params or {})
    limits = getattr(interest, "limits", None)
    return _Given(program, {**interest.params, **changed}, getattr(limits, "fuel", FUEL))


def choice(interest: Any, params: Mapping[str, object] | None = None) -> Choice:
    """Whether Spark runs this interest as a Column or as an Arrow function, and why. Needs no Spark session."""
    given = _given(interest, params)
    return _choose(given, {}, {which: name(which) for which in META_TYPES})


def _choose(given: _Given, columns: Mapping[str, str], meta: Mapping[str, str], *, truth: bool = False) -> Choice:
    made: Any
    if given.program.output is None:
        made = sql_of(given.program, given.params, columns=columns, meta=meta, truth=truth)
        text = None if isinstance(made, Unsupported) else made.text
    else:
        made = outputs_of(given.program, given.params, columns=columns, meta=meta, truth=truth)
        text = None if isinstance(made, Unsupported) else made.passes
    if isinstance(made, Unsupported):
        return Choice("arrow function", made.reason, None, made.span)
    return Choice("column", "everything in it can be said in Spark SQL with the same meaning", text)


def where(
    frame: Any,
    interest: Any,
    params: Mapping[str, object] | None = None,
    *,
    meta: Mapping[str, str] | None = None,
) -> Any:
    """The rows that pass the interest; a transformation's are those for which it has an output."""
    given = _given(interest, params)
    columns, known = _bound(frame, given, meta)
    chosen = _choose(given, columns, known, truth=True)
    if chosen.sql is not None:
        return frame.where(chosen.sql)
    if given.program.stateful:
        return arrow.in_order(frame, _job(given, columns, known), "where")
    return frame.where(arrow.verdict(_job(given, columns, known)))


def outcome(
    frame: Any,
    interest: Any,
    params: Mapping[str, object] | None = None,
    *,
    meta: Mapping[str, str] | None = None,
    name: str = "outcome",
) -> Any:
    """The frame with one more column: true (passed), false (rejected) or null (undecided)."""
    from pyspark.sql import functions as F

    if name in frame.columns:
        raise ExecutionError(f"the DataFrame has a column {name!r} already; give another name=")
    given = _given(interest, params)
    columns, known = _bound(frame, given, meta)
    chosen = _choose(given, columns, known)
    # Not withColumn: Connect resolves the frame at once then, and a pipeline does not see what a query depends on.
    if chosen.sql is not None:
        return frame.select("*", F.expr(chosen.sql).alias(name))
    if given.program.stateful:
        return arrow.in_order(frame, _job(given, columns, known), "outcome", name=name)
    return frame.select("*", arrow.verdict(_job(given, columns, known)).alias(name))


def derive(
    frame: Any,
    interest: Any,
    params: Mapping[str, object] | None = None,
    *,
    meta: Mapping[str, str] | None = None,
) -> Any:
    """The output events of a transformation, in the Spark schema of its output type."""
    given = _given(interest, params)
    if given.program.output is None:
        raise ExecutionError("derive(): this interest is a filter and has no output; use where()")
    columns, known = _bound(frame, given, meta)
    made = outputs_of(given.program, given.params, columns=columns, meta=known, truth=True)
    if isinstance(made, Unsupported):
        if given.program.stateful:
            return arrow.in_order(frame, _job(given, columns, known), "derive")
        return arrow.derived(frame, _job(given, columns, known))
    return frame.where(made.passes).selectExpr(*[f"{text} AS {_quoted(n)}" for n, text in made.fields.items()])


def _quoted(text: str) -> str:
    return name(text)


def _job(given: _Given, columns: Mapping[str, str], meta: Mapping[str, str]) -> arrow.Job:
    return arrow.Job(given.program, given.params, given.fuel, columns, meta)


def _bound(frame: Any, given: _Given, meta: Mapping[str, str] | None) -> tuple[dict[str, str], dict[str, str]]:
    """The columns and meta that the program reads, checked against the frame."""
    known = bind_meta(frame, log_meta(frame.columns) if meta is None else meta)
    if given.program.stateful:
        lacking = [which for which in ("source", "seq") if which not in known]
        if lacking:
            raise ExecutionError(
                f"this interest has state, which is kept per source in sequence order: expected meta columns for "
                f"source and seq, found none for {' and '.join(lacking)}; give "
                'meta={"source": "<column>", "seq": "<column>"}'
            )
    return bind_columns(frame, given.program.input, fields_read(given.program)), known


def explain(interest: Any, params: Mapping[str, object] | None = None) -> str:
    """How Spark runs the interest, in words, with the Column's SQL text. Needs no Spark session."""
    chosen = choice(interest, params)
    program = _given(interest, params).program
    if chosen.sql is not None:
        return f"Spark runs it as a Column: {chosen.reason}.\n    {chosen.sql}"
    at = ""
    if chosen.span != NOWHERE and program.text:
        place = locate(program.text, chosen.span, "")
        at = f" (line {place.line}, column {place.column})"
    how = "per source in sequence order, " if program.stateful else ""
    return f"Spark runs it as an Arrow function, {how}natively in the workers: {chosen.reason}{at}."
