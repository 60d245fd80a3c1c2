"""A batch judged row by row with the code for records, while the code for batches is still being made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.errors import HeadwaterError
from headwater.ir.interp import EventContext, Fault, Status
from headwater.late import pa
from headwater.native.batch import FAULTS, BatchResult, Counts, meta_columns
from headwater.native.codegen.batch_reader import META
from headwater.native.record import RecordProgram
from headwater.types.event_type import event_type

MAX_ROWS = 1 << 16  # more rows than that take longer than making the code for them

_VERDICTS = {Status.PASSED: True, Status.REJECTED: False, Status.UNDECIDED: None}


def rows_of(program: RecordProgram, batch: Any) -> list[bytes] | None:
    """The batch as records; None where it is too long, or has something that a record cannot hold."""
    if not isinstance(batch, pa.RecordBatch) or batch.num_rows > MAX_ROWS:
        return None
    try:
        return event_type(program.program.input).arrow_to_records(batch)
    except HeadwaterError:
        return None  # perhaps where the program does not look: the code for batches will say


def run_rows(program: RecordProgram, rows: list[bytes], meta: Mapping[str, Any] | None) -> BatchResult:
    """What the code for batches would say of these rows."""
    metas = _metas(meta or {}, len(rows)) if program.code.meta else [None] * len(rows)
    results = [program.run(row, each) for row, each in zip(rows, metas, strict=True)]
    selection = pa.array([_VERDICTS[result.status] for result in results], pa.bool_())
    statuses = [result.status for result in results]
    faults = {kind: n for kind in FAULTS if (n := sum(1 for result in results if Fault(result.faults) & kind))}
    counts = Counts(
        statuses.count(Status.PASSED), statuses.count(Status.REJECTED), statuses.count(Status.UNDECIDED), faults
    )
    record = program.program.output
    if record is None:
        return BatchResult(selection, counts)
    passed = [result.output for result in results if result.output is not None]
    return BatchResult(selection, counts, event_type(record).records_to_arrow(passed))


def _metas(meta: Mapping[str, Any], rows: int) -> list[EventContext]:
    columns = meta_columns(meta, rows)
    time = columns[META + "time"].cast(pa.int64())
    values = [columns[META + name].to_pylist() for name in ("source", "node", "seq")]
    return [EventContext(*each) for each in zip(*values, time.to_pylist(), strict=True)]
