"""What runs inside Spark's Python workers: execution 3 on the batches that Spark hands over.

A program travels as the bytes of a `Package`, and is read, analysed and compiled once per worker process and kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from headwater.errors import EncodeError
from headwater.ir.analyse import analyse
from headwater.ir.inputs import fields_read, narrowed
from headwater.ir.interp import FUEL, Fault
from headwater.ir.nodes import META_TYPES, Program
from headwater.ir.package import Package
from headwater.late import np, pa, pc
from headwater.native.batch import BatchProgram, BatchResult, Counts, compile_batch
from headwater.native.codegen.output_columns import malformed_rows
from headwater.spark.schema import from_spark_arrow, to_spark_arrow
from headwater.types.model import TEXT, TIMESTAMP, Array, List, Record, Type
from headwater.types.model import walk as walk_types

KEPT = 16  # compiled programs kept by a worker
META_PREFIX = "headwater.meta."  # of the columns that carry what the service knows, beside the event's own
SOURCE = (META_PREFIX + "node", META_PREFIX + "source")  # which source an event is of


def pack(program: Program, params: Mapping[str, Any], *, fuel: int = FUEL) -> bytes:
    """What travels to the workers: the narrowed program and its raw parameters. Refuses here what workers would."""
    program = replace(program, input=narrowed(program.input, fields_read(program)))
    analyse(program, fuel=fuel)
    return Package.of(program, params, fuel).dumps()


@dataclass(frozen=True)
class Engine:
    """A program, ready to run on Spark's batches."""

    program: Program
    params: Mapping[str, Any]
    native: BatchProgram

    def judge(self, data: pa.RecordBatch) -> BatchResult:
        """The native result on a batch whose columns are the program's fields and, with a prefix, the meta."""
        names = data.schema.names
        meta = {name: data.column(META_PREFIX + name) for name in META_TYPES if META_PREFIX + name in names}
        try:
            events = from_spark_arrow(data, self.program.input)
        except EncodeError:
            bad = malformed_rows(self.program.input, data) if self._is_comparable(data) else None
            if bad is None:
                raise
            return self._without(data, bad)
        return self.native.run(events, meta=meta)

    def _is_comparable(self, data: pa.RecordBatch) -> bool:
        """Whether its columns lie in memory as those of events do, as far as times and texts go."""
        names = data.schema.names
        return all(field.name in names and _is_laid_out(field.type, data.schema.field(field.name).type)
                   for field in self.program.input.fields)  # fmt: skip

    def _without(self, data: pa.RecordBatch, bad: Any) -> BatchResult:
        """Rows with times in no year, or texts that are no UTF-8, are no events: undecided. The others are judged."""
        judged = self.judge(data.filter(pa.array(~bad)))
        at = pa.array(np.maximum(np.cumsum(~bad) - 1, 0), mask=bad)
        count = int(bad.sum())
        counts = judged.counts + Counts(undecided=count, faults={Fault.MALFORMED: count})
        return BatchResult(judged.selection.take(at), counts, judged.output)

    def afresh(self) -> Engine:
        """The same machine code with state as for a new source."""
        return replace(self, native=BatchProgram(self.native.code, params=self.params, fuel=self.native.fuel))


def _is_laid_out(type: Type, found: Any) -> bool:
    match type:
        case Record(fields=fields):
            inner = {found.field(i).name: found.field(i).type for i in range(found.num_fields)}
            return all(field.name in inner and _is_laid_out(field.type, inner[field.name]) for field in fields)
        case List(element=element):
            return bool(pa.types.is_list(found)) and _is_laid_out(element, found.value_type)
        case Array():
            return not any(part in (TEXT, TIMESTAMP) for part in walk_types(type))
        case _ if type == TIMESTAMP:
            return bool(pa.types.is_timestamp(found)) and found.unit == "us"
        case _:
            return type != TEXT or bool(pa.types.is_string(found))


def make_engine(package: bytes) -> Engine:
    """Read, verified, analysed and compiled."""
    made = Package.loads(package)
    program, params = made.open()
    native = compile_batch(analyse(program, fuel=made.fuel), params=params, fuel=made.fuel)
    return Engine(native.program, params, native)


engine = lru_cache(maxsize=KEPT)(make_engine)


def verdicts(package: bytes, rows: Any) -> Any:
    """true, false or null for each row of a struct array."""
    batch = pa.RecordBatch.from_struct_array(rows)
    return engine(package).judge(batch).selection


def outputs(package: bytes, batches: Iterable[Any], key: str) -> Iterator[Any]:
    """The output events of those rows that pass; what the program reads is in the struct column `key`."""
    ready = engine(package)
    for batch in batches:
        result = ready.judge(pa.RecordBatch.from_struct_array(batch.column(key)))
        assert ready.program.output is not None
        yield to_spark_arrow(result.output, ready.program.output)


def in_order(package: bytes, batches: Iterable[Any], mode: str, key: str, name: str) -> Iterator[Any]:
    """As `outputs`, for a program with state: rows come sorted by source and sequence, and each source starts afresh.

    `mode` is "where" (rows that pass), "outcome" (all rows, and the verdict as column `name`) or "derive" (output
    events). What the program reads is in the struct column `key`, which is left out of the result.
    """
    ready, source, started = engine(package).afresh(), (), False
    for batch in batches:
        judged = pa.RecordBatch.from_struct_array(batch.column(key))
        rest = batch.select([n for n in batch.schema.names if n != key])
        identity = [judged.column(n) for n in SOURCE if n in judged.schema.names]
        for start, end in runs(*identity):
            here = tuple(column[start].as_py() for column in identity)
            if started and here != source:
                ready = ready.afresh()
            source, started = here, True
            result = ready.judge(judged.slice(start, end - start))
            rows = rest.slice(start, end - start)
            if mode == "derive":
                assert ready.program.output is not None
                yield to_spark_arrow(result.output, ready.program.output)
            elif mode == "where":
                yield rows.filter(result.selection)
            else:
                yield pa.RecordBatch.from_arrays([*rows.columns, result.selection], names=[*rows.schema.names, name])


def runs(*columns: Any) -> Iterator[tuple[int, int]]:
    """The stretches of rows, (start, end), in which none of these columns changes; null is equal to null."""
    rows = len(columns[0])
    if not rows:
        return
    changed = np.zeros(rows - 1, bool)
    for column in columns:
        encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
        codes = pc.fill_null(encoded.indices, -1).to_numpy()
        changed |= codes[1:] != codes[:-1]
    yield from pairwise([0, *(np.flatnonzero(changed) + 1).tolist(), rows])
