"""The fixtures of `tests/semantics` in Spark: as Columns wherever they can be, else as the Arrow function.

Columns of many cases share a job: each case's events are one struct column of a wide DataFrame.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater.ir.interp import EventContext
from headwater.ir.nodes import META_TYPES
from headwater.spark import choice, derive, outcome
from headwater.spark.column import Outputs, Unsupported, outputs_of, sql_of
from headwater.spark.schema import from_spark_arrow, to_dataframe
from headwater.types import model as m
from tests.semantics.fixtures import Case, cases, equal
from tests.spark.support import META, META_RECORD, VERDICT, chunks, frame

ALL = cases()
AS_COLUMN = [case for case in ALL if choice(case.interest()).kind == "column"]
AS_FUNCTION = [case for case in ALL if choice(case.interest()).kind == "arrow function"]


def test_most_cases_are_columns() -> None:
    assert len(AS_COLUMN) > 0.6 * len(ALL)


def _wide(spark: Any, part: list[Case]) -> Any:
    """A row for the first event of every case, one for the second and so on; cases with fewer have nulls."""
    fields: list[m.Field] = []
    rows: list[dict[str, Any]] = [{} for _ in range(max(len(case.events) for case in part))]
    for i, case in enumerate(part):
        fields += [m.Field(f"e{i}", case.interest().type.record, True), m.Field(f"m{i}", META_RECORD, True)]
        for at, row in enumerate(rows):
            event = case.events[at] if at < len(case.events) else None
            meta = (event and event.meta) or EventContext()
            row[f"e{i}"] = event and event.value
            row[f"m{i}"] = {f"_{name}": getattr(meta, name) for name in META_TYPES}
    return to_dataframe(spark, m.Record("Wide", tuple(fields)), rows).coalesce(1)


def _lower(i: int, case: Case) -> tuple[str, Outputs | None]:
    interest = case.interest()
    columns = {f.name: f"`e{i}`.`{f.name}`" for f in interest.type.record.fields}
    meta = {name: f"`m{i}`.`_{name}`" for name in META_TYPES}
    if interest.output is None:
        sql = sql_of(interest.program, interest.params, columns=columns, meta=meta)
        assert not isinstance(sql, Unsupported)
        return sql.text, None
    outputs = outputs_of(interest.program, interest.params, columns=columns, meta=meta)
    assert not isinstance(outputs, Unsupported)
    return outputs.passes, outputs


@pytest.mark.usefixtures("compiled")
def test_as_columns(spark: Any, ansi: str) -> None:
    for part in chunks(AS_COLUMN, 60):
        selected = []
        for i, case in enumerate(part):
            passes, outputs = _lower(i, case)
            selected.append(f"{passes} AS c{i}")
            if outputs is not None:
                pairs = ", ".join(f"'{name}', {text}" for name, text in outputs.fields.items())
                selected.append(f"named_struct({pairs}) AS o{i}")
        found = _wide(spark, part).selectExpr(*selected).toArrow()
        for i, case in enumerate(part):
            verdicts = found[f"c{i}"].to_pylist()[: len(case.events)]
            assert verdicts == [VERDICT[event.status] for event in case.events], case.id
            interest = case.interest()
            if interest.output is not None:
                structs = found[f"o{i}"].combine_chunks()
                taken = structs.take(pa.array([k for k, verdict in enumerate(verdicts) if verdict], pa.int64()))
                _check_outputs(case, pa.RecordBatch.from_struct_array(taken))


def _check_outputs(case: Case, batch: Any) -> None:
    output = case.interest().output
    assert output is not None
    found = output.arrow_to_raw(from_spark_arrow(batch, output.record))
    expected = [output.to_raw(event.output) for event in case.events if event.output is not None]
    assert len(found) == len(expected) and all(map(equal, found, expected)), case.id


@pytest.mark.parametrize("case", AS_FUNCTION, ids=[case.id for case in AS_FUNCTION])
def test_as_arrow_function(spark: Any, case: Case) -> None:
    interest = case.interest()
    metas = [event.meta or EventContext() for event in case.events]
    metas = [EventContext(meta.source or "s", meta.node, i, meta.time) for i, meta in enumerate(metas)]
    known = META if interest.program.stateful or any(event.meta for event in case.events) else None
    rows = frame(spark, interest.type.record, [event.value for event in case.events], metas).coalesce(1)
    if interest.output is not None:
        _check_outputs(case, pa.Table.combine_chunks(derive(rows, interest, meta=known).toArrow()))
    else:
        found = outcome(rows, interest, meta=known).toArrow()["outcome"].to_pylist()
        assert found == [VERDICT[event.status] for event in case.events]
