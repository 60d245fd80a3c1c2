"""`where`, `derive`, `outcome`, `choice` and `explain` on DataFrames."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import EvolutionError, ExecutionError, InterestRefused, ParameterError
from headwater.ir import interp
from headwater.ir.analyse import analyse
from headwater.ir.build import Builder
from headwater.ir.interp import EventContext
from headwater.ir.nodes import NOWHERE, Const, Expr, ParamDecl, Program, Span, Stmt
from headwater.spark import choice, column_of, derive, explain, from_dataframe, outcome, to_dataframe, where
from headwater.types import event_type
from headwater.types import model as m
from tests import programs, strategies
from tests.spark.support import META, RICH, VERDICT, frame, sample

READING = m.Record(
    "Reading",
    (
        m.Field("level", m.F64),
        m.Field("zone", m.I32),
        m.Field("note", m.TEXT, True),
        m.Field("samples", m.List(m.I16)),
    ),
)
EVENTS: list[dict[str, Any]] = [
    {"level": 0.7, "zone": 3, "note": None, "samples": (1, 2)},
    {"level": math.nan, "zone": 3, "note": "x", "samples": ()},
    {"level": 0.9, "zone": 4, "note": "loud", "samples": (100, -100, 7)},
    {"level": 0.1, "zone": 3, "note": "", "samples": (5,)},
]
I = NOWHERE  # noqa: E741


def program(
    body: Callable[[Builder], list[Stmt]], *, output: m.Record | None = None, params: tuple[ParamDecl, ...] = ()
) -> Program:
    builder = Builder(READING, output=output, params=params, text="the text of it")
    return builder.finish(body(builder))


def condition(make: Callable[[Builder], Expr], **more: Any) -> Program:
    return program(lambda b: b.return_(make(b), I), **more)


def loud(b: Builder) -> Expr:
    zone = b.compare("eq", b.field("zone", I), b.const(3), I)
    return b.logic("and", [b.compare("gt", b.field("level", I), b.const(0.5), I), zone], I)


def counting(b: Builder) -> list[Stmt]:
    """Adds the samples up in a loop; passes if that is more than 4."""
    i, total = b.declare("i", m.I64, I), b.declare("total", m.I64, I)
    assert i is not None and total is not None
    samples = b.field("samples", I)
    more = b.binary("add", b.var(total, I), b.index(samples, b.var(i, I), I), I)
    test = b.compare("lt", b.var(i, I), b.reduce("len", samples, I), I)
    step = b.assign(i, b.binary("add", b.var(i, I), b.const(1), I), I)
    start = [*b.assign(i, b.const(0), I), *b.assign(total, b.const(0), I)]
    end = b.return_(b.compare("gt", b.var(total, I), b.const(4), I), I)
    return [*start, *b.loop(test, b.assign(total, more, I), step, Span(4, 8)), *end]


def every_second(b: Builder) -> list[Stmt]:
    n = b.declare("n", m.I64, I, state=True)
    assert n is not None
    count = b.assign(n, b.binary("add", b.var(n, I), b.const(1), I), I)
    return [*count, *b.return_(b.compare("eq", b.binary("tmod", b.var(n, I), b.const(2), I), b.const(0), I), I)]


@pytest.fixture(scope="module")
def readings(spark: Any) -> Any:
    return to_dataframe(spark, READING, EVENTS).coalesce(1)


def levels(rows: Any) -> list[float]:
    return [row.level for row in rows.collect()]


def test_a_condition_runs_as_a_column(readings: Any) -> None:
    interest = condition(loud)
    assert choice(interest).kind == "column"
    assert levels(where(readings, interest)) == [0.7]
    assert [row.outcome for row in outcome(readings, interest).collect()] == [True, False, False, False]


def test_a_column_can_be_used_by_itself(readings: Any) -> None:
    assert readings.select(column_of(condition(loud), {}).alias("loud")).collect()[0].loud is True


def test_a_loop_runs_as_an_arrow_function(readings: Any) -> None:
    interest = program(counting)
    chosen = choice(interest)
    assert (chosen.kind, chosen.reason, chosen.sql) == ("arrow function", "it has a loop", None)
    assert levels(where(readings, interest)) == [0.9, 0.1]
    assert [row.kept for row in outcome(readings, interest, name="kept").collect()] == [False, False, True, True]


def test_explain_shows_the_column_or_says_why_not() -> None:
    assert "`zone` = 3" in explain(condition(loud)) and "as a Column" in explain(condition(loud))
    said = explain(program(counting))
    assert "Arrow function" in said and "it has a loop (line 1, column 5)" in said
    assert "in sequence order" in explain(program(every_second))


def test_parameters_may_be_changed(readings: Any) -> None:
    decl = ParamDecl("limit", "scalar", m.F64)
    program = condition(lambda b: b.compare("gt", b.field("level", I), b.param("limit", I), I), params=(decl,))
    assert levels(where(readings, program, {"limit": 0.5})) == [0.7, 0.9]
    interest = SimpleNamespace(program=program, params={"limit": 0.8})
    assert levels(where(readings, interest)) == [0.9]
    assert levels(where(readings, interest, {"limit": 0})) == [0.7, 0.9, 0.1]
    with pytest.raises(ParameterError, match="limit"):
        where(readings, program)
    with pytest.raises(ParameterError, match="limit"):
        where(readings, interest, {"limits": 1.0})


OUT = m.Record(
    "Out",
    (m.Field("zone", m.I8), m.Field("double", m.F32, True), m.Field("samples", m.List(m.I16)),
     m.Field("inner", m.Record("Pair", (m.Field("a", m.U64), m.Field("b", m.TEXT, True))))),
)  # fmt: skip


def doubling(b: Builder) -> list[Stmt]:
    made = b.set_out(["zone"], b.cast(b.field("zone", I), m.I8, I), I)
    made += b.set_out(["double"], b.cast(b.binary("mul", b.field("level", I), b.const(2.0), I), m.F32, I), I)
    made += b.set_out(["samples"], b.field("samples", I), I)
    made += b.set_out(["inner", "a"], b.cast(b.field("zone", I), m.U64, I), I)
    made += b.set_out(["inner", "b"], b.field("note", I), I)
    return made


def doubling_columns(b: Builder) -> list[Stmt]:
    return [*doubling(b), *b.return_(b.compare("gt", b.field("level", I), b.const(0.5), I), I)]


def doubling_with_loop(b: Builder) -> list[Stmt]:
    return [*doubling(b), *counting(b)]


@pytest.mark.parametrize(("body", "kind"), [(doubling_columns, "column"), (doubling_with_loop, "arrow function")])
def test_derive_gives_the_output_events(readings: Any, body: Any, kind: str) -> None:
    interest = program(body, output=OUT)
    assert choice(interest).kind == kind
    derived = derive(readings, interest)
    assert derived.columns == [f.name for f in OUT.fields]
    found = event_type(OUT).arrow_to_raw(from_dataframe(derived, OUT))
    outcomes = [interp.run(interest, event) for event in EVENTS]
    assert strategies.same(found, [o.output for o in outcomes if o.passed]) and len(found) == 2
    assert [row.outcome for row in outcome(readings, interest).collect()] == [VERDICT[o.status] for o in outcomes]
    assert where(readings, interest).count() == 2


def test_a_record_that_is_copied_only_sometimes_can_be_collected(spark: Any) -> None:
    """Its required fields are null with it, and PySpark refuses to collect what the schema says cannot be null."""
    pair = m.Record("Pair", (m.Field("k", m.I16), m.Field("s", m.TEXT, True)))
    source = m.Record("Source", (m.Field("pair", pair), m.Field("take", m.BOOL)))
    output = m.Record("Maybe", (m.Field("pair", pair, True),))
    b = Builder(source, output=output)
    taken = b.if_(b.field("take", I), b.set_out(["pair"], b.field("pair", I), I), [], I)
    interest = b.finish([*taken, *b.return_(b.const(True), I)])
    assert choice(interest).kind == "column"
    events = [{"pair": {"k": 5, "s": None}, "take": True}, {"pair": {"k": 6, "s": "x"}, "take": False}]
    found = from_dataframe(derive(to_dataframe(spark, source, events).coalesce(1), interest), output)
    assert event_type(output).arrow_to_raw(found) == [{"pair": events[0]["pair"]}, {"pair": None}]


def test_derive_of_a_filter_is_refused(readings: Any) -> None:
    with pytest.raises(ExecutionError, match="use where"):
        derive(readings, condition(loud))


def test_every_column_that_does_not_fit_is_listed(spark: Any) -> None:
    frame = spark.createDataFrame([("0.5", [1.5])], "level string, samples array<double>")
    interest = program(lambda b: [*counting(b)[:-1], *b.return_(loud(b), I)])
    with pytest.raises(EvolutionError) as caught:
        where(frame, interest)
    assert caught.value.problems == (
        "level: expected double for f64, found string",
        "zone: expected int for i32, found no such column",
        "samples[]: expected smallint for i16, found double",
    )


def test_narrower_and_absent_optional_columns_fit(spark: Any) -> None:
    frame = spark.createDataFrame([(0.75, 3)], "level float, zone tinyint")
    note = condition(lambda b: b.logic("and", [loud(b), b.is_missing(b.field("note", I), I)], I))
    assert where(frame, note).count() == 1


def test_local_timestamps_are_refused(spark: Any) -> None:
    record = m.Record("T", (m.Field("t", m.TIMESTAMP),))
    builder = Builder(record)
    later = builder.compare("gt", builder.field("t", I), builder.const(0), I)
    builder.problems.clear()
    later = builder.compare("gt", builder.field("t", I), Const(0, m.TIMESTAMP), I)
    frame = spark.sql("SELECT TIMESTAMP_NTZ'2026-01-01 00:00:00' AS t")
    with pytest.raises(EvolutionError, match="without a zone"):
        where(frame, builder.finish(builder.return_(later, I)))


def test_columns_that_spark_cannot_tell_apart_are_refused(spark: Any) -> None:
    frame = spark.createDataFrame([(0.5, 3, 4)], "level double, zone int, ZONE int")
    with pytest.raises(ExecutionError, match="'zone' and 'ZONE'"):
        where(frame, condition(loud))


def test_odd_arguments_are_refused(readings: Any) -> None:
    with pytest.raises(TypeError, match="expected an Interest"):
        where(readings, "level > 0.5")
    with pytest.raises(ExecutionError, match="give another name"):
        outcome(readings, condition(loud), name="zone")
    with pytest.raises(ExecutionError, match="meta: expected source"):
        where(readings, condition(loud), meta={"where": "zone"})
    with pytest.raises(EvolutionError, match="for meta seq"):
        where(readings, condition(loud), meta={"seq": "nowhere"})


def test_a_filter_reaches_the_file_scan(spark: Any, tmp_path: Any) -> None:
    path = str(tmp_path / "readings")
    to_dataframe(spark, READING, EVENTS).write.parquet(path)
    plan = where(spark.read.parquet(path), condition(loud))._jdf.queryExecution().toString()
    assert "GreaterThan(level,0.5), EqualTo(zone,3)" in plan


def test_statistics_without_nan_do_not_lose_rows(spark: Any, tmp_path: Any) -> None:
    """Arrow leaves NaN out of a file's statistics; what is true of NaN must not be pruned by them."""
    values = [1.0, math.nan, 2.0]
    columns = {"level": values, "zone": pa.array([1, 1, 1], pa.int32())}
    pq.write_table(pa.table(columns), tmp_path / "r.parquet")
    pq.write_table(pa.table({**columns, "level": [1.0, math.nan, 1.0]}), tmp_path / "s.parquet")
    rows = spark.read.parquet(str(tmp_path))
    level = lambda b: b.field("level", I)  # noqa: E731
    not_below = condition(lambda b: b.unary("not", b.compare("lt", level(b), b.const(50.0), I), I))
    other = condition(lambda b: b.compare("ne", level(b), b.const(1.0), I))
    neither = condition(lambda b: b.unary("not", b.logic("or", [b.compare("le", level(b), b.const(9.0), I)] * 2, I), I))
    assert [where(rows, p).count() for p in (not_below, other, neither)] == [2, 3, 2]


# ── the Arrow function ──


def test_random_programs_run_as_arrow_functions(spark: Any) -> None:
    """Several in one job: each `outcome` adds a column."""
    events = sample(programs.st.tuples(strategies.raw_events(RICH), programs.meta()), 60)
    rows = frame(spark, RICH, [event for event, _ in events], [meta for _, meta in events]).coalesce(1)
    cases = [case for case in sample(programs.filters(RICH, state=False), 60) if _accepted(case.program)]
    limits = SimpleNamespace(fuel=programs.FUEL)
    cases = [case for case in cases if choice(_interest(case, limits)).kind == "arrow function"][:12]
    for i, case in enumerate(cases):
        rows = outcome(rows, _interest(case, limits), meta=META, name=f"c{i}")
    found = rows.select(*[f"c{i}" for i in range(len(cases))]).toArrow()
    for i, (written, params) in enumerate(cases):
        body = analyse(written, fuel=programs.FUEL).program  # loops whose end is proven take no fuel
        outcomes = [interp.run(body, e, meta=meta, params=params, fuel=programs.FUEL) for e, meta in events]
        assert found[f"c{i}"].to_pylist() == [VERDICT[o.status] for o in outcomes], body.body


def _accepted(body: Program) -> bool:
    try:
        analyse(body, fuel=programs.FUEL)
    except InterestRefused:
        return False
    return True


def _interest(case: Any, limits: Any) -> Any:
    return SimpleNamespace(program=case.program, params=case.params, limits=limits)


def test_state_is_kept_per_source_in_sequence_order(spark: Any) -> None:
    events = [EVENTS[i % 4] for i in range(40)]
    metas = [EventContext(source="ab"[i % 2] if i < 30 else None, seq=1000 - i) for i in range(40)]
    rows = frame(spark, READING, events, metas).repartition(3)
    interest = program(every_second)
    found = {(r._source, r._seq): r.outcome for r in outcome(rows, interest, meta=META).collect()}
    expected = {}
    for source in ("a", "b", None):
        ordered = sorted(meta.seq or 0 for meta in metas if meta.source == source)
        expected |= {(source, seq): n % 2 == 1 for n, seq in enumerate(ordered)}
    assert found == expected
    assert where(rows, interest, meta=META).count() == sum(expected.values())
    output = program(lambda b: [*doubling(b), *every_second(b)], output=OUT)
    assert derive(rows, output, meta=META).count() == sum(expected.values())


def test_state_asks_for_the_columns_that_it_needs(readings: Any) -> None:
    with pytest.raises(ExecutionError, match=r"source and seq.*none for seq"):
        where(readings, program(every_second), meta={"source": "note"})


def test_what_workers_would_refuse_is_refused_at_once(readings: Any) -> None:
    def endless(b: Builder) -> list[Stmt]:
        return [*b.loop(b.const(True), [], [], I), *b.return_(b.const(True), I)]

    with pytest.raises(InterestRefused):
        where(readings, program(endless))


def test_an_arrow_function_may_read_nothing(readings: Any) -> None:
    def constant(b: Builder) -> list[Stmt]:
        i = b.declare("i", m.I64, I)
        assert i is not None
        test = b.compare("lt", b.var(i, I), b.const(3), I)
        step = b.assign(i, b.binary("add", b.var(i, I), b.const(1), I), I)
        end = b.return_(b.compare("eq", b.var(i, I), b.const(3), I), I)
        return [*b.assign(i, b.const(0), I), *b.loop(test, [], step, I), *end]

    assert where(readings, program(constant)).count() == len(EVENTS)
