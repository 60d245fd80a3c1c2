"""The most important test of this room: random programs mean the same as a Column as they do in the interpreter."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from headwater.ir import interp
from headwater.ir.build import Builder
from headwater.ir.interp import EventContext
from headwater.ir.nodes import META_TYPES, Expr
from headwater.spark.column import Lowering, Outputs, Unsupported, outputs_of, sql_of
from headwater.spark.schema import from_spark_arrow
from headwater.spark.sql_text import Sql, name
from headwater.types import event_type
from headwater.types import model as m
from tests import programs, strategies
from tests.effort import examples
from tests.spark.support import COLOUR, META, RICH, VERDICT, chunks, equal, evaluate, frame, raw_column, sample, select

EVENTS, PROGRAMS, VALUES = 120, examples(150), examples(200)
TYPES = (m.I64, m.F64, m.U64, m.TEXT, m.TIMESTAMP, m.BOOL, COLOUR)
STRAIGHT = {"libm": False, "loops": False, "state": False, "arrays": False}
SQL_META = {which: name(column) for which, column in META.items()}


@pytest.fixture(scope="module")
def events() -> list[tuple[dict[str, Any], EventContext]]:
    return sample(st.tuples(strategies.raw_events(RICH), programs.meta()), EVENTS)


@pytest.fixture(scope="module")
def rows(spark: Any, events: list[tuple[dict[str, Any], EventContext]]) -> Any:
    made = frame(spark, RICH, [event for event, _ in events], [meta for _, meta in events]).cache()
    assert made.count() == len(events)
    return made


@pytest.mark.usefixtures("compiled", "both_modes")
def test_random_filters_agree_with_the_interpreter(spark: Any, events: Any, rows: Any) -> None:
    cases = sample(programs.predicates(RICH, libm=False, depth=4), PROGRAMS)
    cases += sample(programs.filters(RICH, **STRAIGHT), PROGRAMS // 2)
    lowered = [(case, sql_of(case.program, case.params, meta=SQL_META)) for case in cases]
    said = [(case, sql) for case, sql in lowered if isinstance(sql, Sql)]
    assert len(said) > 0.8 * len(cases), [sql.reason for _, sql in lowered if isinstance(sql, Unsupported)]
    for part in chunks(said):
        expected = [
            [VERDICT[interp.run(case.program, event, meta=meta, params=case.params).status] for event, meta in events]
            for case, _ in part
        ]
        for ansi in ("true", "false"):
            spark.conf.set("spark.sql.ansi.enabled", ansi)
            found = select(rows, [sql.text for _, sql in part])
            for i, (case, sql) in enumerate(part):
                wrong = [k for k, x in enumerate(found[f"c{i}"].to_pylist()) if x is not expected[i][k]]
                assert not wrong, (ansi, sql.text, case.program.body, events[wrong[0]], expected[i][wrong[0]])


@pytest.mark.usefixtures("compiled")
def test_filters_for_where_pass_the_same_events(spark: Any, events: Any, rows: Any) -> None:
    """Where only true matters, the shorter Column may exchange null and false, and nothing else."""
    cases = sample(programs.predicates(RICH, libm=False, depth=3), PROGRAMS // 3)
    lowered = [(case, sql_of(case.program, case.params, meta=SQL_META, truth=True)) for case in cases]
    said = [(case, sql) for case, sql in lowered if isinstance(sql, Sql)]
    for part in chunks(said):
        found = select(rows, [sql.text for _, sql in part])
        for i, (case, sql) in enumerate(part):
            for (event, meta), verdict in zip(events, found[f"c{i}"].to_pylist(), strict=True):
                passed = interp.run(case.program, event, meta=meta, params=case.params).passed
                assert (verdict is True) == passed, (sql.text, event, meta)


@st.composite
def expressions(draw: st.DrawFn) -> tuple[Expr, dict[str, Any]]:
    features = programs.Features(libm=False, arrays=False, state=False)
    decls, values = draw(programs.parameters(features))
    builder = Builder(RICH, params=decls)
    return draw(programs.expressions(builder, draw(st.sampled_from(TYPES)), 3, features=features)), values


@pytest.mark.usefixtures("compiled", "both_modes")
def test_random_expressions_have_the_same_values(spark: Any, events: Any, rows: Any) -> None:
    """To the bit: 0.0 is not -0.0 here."""
    drawn = sample(expressions(), VALUES)
    lowered = [(expr, params, Lowering(params, meta=SQL_META).lower(expr)) for expr, params in drawn]
    said = [(expr, params, sql) for expr, params, sql in lowered if isinstance(sql, Sql)]
    for part in chunks(said):
        expected = [evaluate(expr, events, params) for expr, params, _ in part]
        for ansi in ("true", "false"):
            spark.conf.set("spark.sql.ansi.enabled", ansi)
            found = select(rows, [sql.text for _, _, sql in part])
            for i, (expr, _, sql) in enumerate(part):
                values = raw_column(found[f"c{i}"], expr.type)
                wrong = [k for k, x in enumerate(values) if not equal(x, expected[i][k])]
                assert not wrong, (ansi, sql.text, values[wrong[0]], expected[i][wrong[0]], events[wrong[0]])


def test_random_transformations_agree_with_the_interpreter(spark: Any, events: Any, rows: Any) -> None:
    cases = sample(programs.transforms(RICH, **STRAIGHT), PROGRAMS // 2)
    lowered = [(case, outputs_of(case.program, case.params, meta=SQL_META)) for case in cases]
    said = [(case, made) for case, made in lowered if isinstance(made, Outputs)]
    assert len(said) > 0.3 * len(cases), [made.reason for _, made in lowered if isinstance(made, Unsupported)]
    for part in chunks(said, 15):
        texts = []
        for _, made in part:
            pairs = ", ".join(f"'{field}', {text}" for field, text in made.fields.items())
            texts += [made.passes, f"named_struct({pairs})"]
        found = select(rows, texts)
        for i, (case, made) in enumerate(part):
            outcomes = [interp.run(case.program, event, meta=meta, params=case.params) for event, meta in events]
            verdicts = found[f"c{2 * i}"].to_pylist()
            assert verdicts == [VERDICT[o.status] for o in outcomes], (made.passes, case.program.body)
            assert case.program.output is not None
            kept = found[f"c{2 * i + 1}"].combine_chunks().filter(pa.array([o.passed for o in outcomes]))
            output = event_type(case.program.output)
            values = output.arrow_to_raw(from_spark_arrow(pa.RecordBatch.from_struct_array(kept), output.record))
            expected = [output.to_raw(o.output) for o in outcomes if o.output is not None]
            assert strategies.same(values, expected), (made.fields, case.program.body)


def test_the_meta_is_missing_where_no_column_is_given() -> None:
    for which, type in META_TYPES.items():
        sql = Lowering({}).lower(Builder(RICH).meta(which, (0, 0)))  # type: ignore[arg-type]
        assert isinstance(sql, Sql) and sql.text.startswith("CAST(NULL"), (which, type)
