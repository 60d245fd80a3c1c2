"""Native code on a batch of Arrow columns: a selection, counts and, for transformations, output columns.

    program = compile_batch(analyse(interest))
    result = program.run(batch)      result.selection: true passed, false rejected, null undecided

Rows are worked on in blocks; bitmaps are expanded to bytes before a block and verdicts packed to bitmaps after it, so
that the loop in between is plain enough to be vectorised. The GIL is free meanwhile, and large batches of stateless
filters are split over threads. Output rows are written at the running number of passed rows, so what is rejected
costs no memory.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import ExecutionError
from headwater.ir.analyse import Analysis
from headwater.ir.interp import FUEL, Fault, initial_state
from headwater.ir.nodes import META_TYPES, Program
from headwater.ir.walk import all_expressions
from headwater.late import np, pa
from headwater.native import cache, engine
from headwater.native.codegen.batch_reader import META, BatchReader, Buffers, Plan, check_buffers, misses_required
from headwater.native.codegen.depth import room_for
from headwater.native.codegen.expr import Exprs
from headwater.native.codegen.facts import Facts
from headwater.native.codegen.output_columns import malformed_rows, output_columns
from headwater.native.codegen.stage_writer import StageWriter, stage_of
from headwater.native.codegen.stmt import Stmts
from headwater.native.codegen.variables import Places, StateBlock
from headwater.native.emit import Fn, Module
from headwater.native.env import FUEL_WORD, OUTPUT, PARAMS, STATE, WORDS, ParamBlock, ParamSlots
from headwater.native.kernels.batch import BLOCK
from headwater.native.kernels.runtime import imports, runtime
from headwater.native.once import once
from headwater.native.record import analysed, unbounded, uses_meta
from headwater.types.arrow import arrow_schema, arrow_type
from headwater.types.conform import conform

STAGE_BYTES = 8 << 20  # of output rows under construction at a time
CORES = os.cpu_count() or 1  # asking takes longer than judging a thousand events
PARALLEL_ROWS = 1 << 18  # a batch is split over threads from here on
LARGE_PARTS = 500  # of a program: compiling it for batches takes some hundred milliseconds
LARGE_LINES = 2_000  # of assembly; what the passes for loops do takes the square of it, and gains little from there on
FAULTS = (Fault.OVERFLOW, Fault.DIVISION, Fault.INDEX, Fault.FUEL, Fault.MALFORMED)


@dataclass(frozen=True, slots=True)
class Counts:
    """Events by outcome, and events that raised each kind of fault."""

    passed: int = 0
    rejected: int = 0
    undecided: int = 0
    faults: dict[Fault, int] = field(default_factory=dict)

    @property
    def evaluated(self) -> int:
        return self.passed + self.rejected + self.undecided

    @classmethod
    def of(cls, block: Any) -> Counts:
        """From native code's words: rejected, passed, undecided, then the faults."""
        words = [int(word) for word in block]
        faults = {kind: n for kind, n in zip(FAULTS, words[3:8], strict=True) if n}
        return cls(words[1], words[0], words[2], faults)

    def __add__(self, other: Counts) -> Counts:
        faults = {kind: n for kind in FAULTS if (n := self.faults.get(kind, 0) + other.faults.get(kind, 0))}
        return Counts(
            self.passed + other.passed, self.rejected + other.rejected, self.undecided + other.undecided, faults
        )


@dataclass(frozen=True, slots=True)
class BatchResult:
    """`selection` is a BooleanArray, null where undecided; `output` has the passed rows of a transformation."""

    selection: Any
    counts: Counts
    output: Any = None

    @property
    def passed(self) -> Any:
        """Which rows passed, as an array of bool."""
        return self.selection.fill_null(False).to_numpy(zero_copy_only=False)

    @property
    def rows(self) -> Any:
        """The indices of those that passed."""
        return np.flatnonzero(self.passed)


def batch_source(analysis: Analysis) -> tuple[str, Plan, bool, bool]:
    """The LLVM assembly of a program over a block of rows, what it expects, whether it can fault and be undecided."""
    with room_for(analysis.program):
        return _source(analysis)


def _source(analysis: Analysis) -> tuple[str, Plan, bool, bool]:
    """As `batch_source`, which makes room on the stack first: a program may be nested deeply."""
    program = analysis.program
    module = Module()
    fn = Fn(
        module,
        "void @rows(ptr noalias %cols, i64 %row0, i64 %m, ptr %env, ptr noalias %scratch, "
        "ptr noalias %status, ptr noalias %faults) nounwind",
    )
    reader = BatchReader(fn, program.input)
    params = ParamSlots(program.params, fn.load("ptr", fn.gep("%env", 8 * PARAMS), 8) if program.params else "")
    state = fn.load("ptr", fn.gep("%env", 8 * STATE), 8) if program.stateful else ""
    writer = None
    out = made = base = ""
    if program.output is not None:
        out = fn.load("ptr", fn.gep("%env", 8 * OUTPUT), 8)
        base, made = fn.load("ptr", out, 8), fn.alloca("i64")
        fn.store("i64", fn.load("i64", fn.gep(out, 8), 8), made, 8)
        writer = StageWriter(fn, program.output, base)
    g = Exprs(fn, program, Facts(analysis, wild=False), reader, params, Places(fn, program, state))
    fuel = fn.load("i64", fn.gep("%env", 8 * FUEL_WORD), 8) if unbounded(program) else "0"
    it = Stmts(g, analysis, writer, fuel)

    def row(i: str) -> None:
        reader.i, reader.row = i, fn.v(f"add i64 %row0, {i}")
        if writer is not None:
            size = writer.plan.size
            writer.stage = fn.v(f"getelementptr [{size} x i8], ptr {base}, i64 {fn.load('i64', made, 8)}")
        it.event(program.body)
        status = it.status()
        fn.store("i8", fn.v(f"trunc i32 {status} to i8"), fn.gep("%status", i))
        if writer is not None:
            one = fn.v(f"zext i1 {fn.v(f'icmp eq i32 {status}, 1')} to i64")
            fn.store("i64", fn.v(f"add i64 {fn.load('i64', made, 8)}, {one}"), made, 8)
        if g.faulted:
            faults = fn.v(f"trunc i32 {fn.load('i32', g.faults, 4)} to i8")
            fn.store("i8", faults, fn.gep("%faults", i))

    fn.loop("%m", row)
    if writer is not None:
        fn.store("i64", fn.load("i64", made, 8), fn.gep(out, 8), 8)
    fn.ret("void")
    fn.finish()
    return module.text(), reader.plan(), g.faulted != 0, it.may_miss


def passes_for(source: str) -> engine.Passes:
    """Rows side by side where the program is small; a large one is compiled in time that grows with its size only."""
    return "all" if source.count("\n") <= LARGE_LINES else "straight"


def is_large(program: Program) -> bool:
    """Whether the code for batches takes so long to make that nobody should wait for it."""
    return sum(1 for _ in all_expressions(program.body)) > LARGE_PARTS


class BatchCode:
    """The machine code of one program on batches; shared by everything that runs the program."""

    def __init__(self, analysis: Analysis) -> None:
        self.program = analysis.program
        source, self.plan, self.faulting, self.undecided = batch_source(analysis)
        self.code = engine.compile(source, ("rows",), imports(), passes_for(source))
        self.address = self.code["rows"]
        self.meta = uses_meta(self.program)
        self.used = tuple(dict.fromkeys(node[0] for node in self.plan.types if node[0] != META))


@once
def _drive() -> Any:
    word, ptr = ctypes.c_int64, ctypes.c_void_p
    kind: Any = ctypes.CFUNCTYPE(word, ptr, ptr, word, word, ptr, ptr, word, ptr, ptr, ptr, ptr, word)
    return kind(runtime()["hw_drive"])


@once
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(CORES, thread_name_prefix="headwater-batch")


os.register_at_fork(after_in_child=_threads.clear)  # threads do not live on in a forked process


class BatchProgram:
    """A program on batches, with its parameters and state. Threads may share a stateless one."""

    def __init__(
        self,
        code: BatchCode,
        *,
        params: Mapping[str, Any] | None = None,
        state: StateBlock | None = None,
        fuel: int = FUEL,
    ) -> None:
        self.code, self.program, self.fuel, self.state = code, code.program, fuel, state
        if state is None and self.program.stateful:
            self.state = StateBlock(self.program)
            self.state.put(initial_state(self.program))
        self.set_params(params or {})

    def set_params(self, values: Mapping[str, Any]) -> None:
        """New raw values (`ir.params.bind`); batches under way keep the old ones."""
        self._params = ParamBlock(self.program.params, values)

    def run(self, batch: Any, *, meta: Mapping[str, Any] | None = None) -> BatchResult:
        """Evaluate every row in order. `meta` gives source, node, seq and time as scalars or arrays of the batch's
        length; what is not given is missing."""
        columns = self._columns(batch)
        program, rows = self.program, batch.num_rows
        if self.code.meta:
            columns |= meta_columns(meta or {}, rows)
        buffers = Buffers(self.code.plan, columns)
        job = _Job(self, self._params, buffers, rows)
        if program.output is None:
            job.filter()
            return BatchResult(job.selection(), Counts.of(job.counts))
        output = job.transform()
        return BatchResult(job.selection(), Counts.of(job.counts), output)

    def _columns(self, batch: Any) -> dict[str, Any]:
        """The columns that are read, by name; brought to the event type's schema where they are not so."""
        if not isinstance(batch, pa.RecordBatch):
            raise ExecutionError(f"expected a pyarrow RecordBatch, found {type(batch).__name__}")
        check_buffers(batch)
        record = self.program.input
        schema = batch.schema
        found = {}
        for name in self.code.used:
            at = schema.get_field_index(name)
            wanted = record.by_name[name]
            if at < 0 or schema.field(at).type != arrow_type(wanted.type):
                break
            column = batch.column(at)
            if column.null_count and not wanted.optional:
                break
            found[name] = column
        else:
            if not misses_required(self.code.plan, found):
                return found
        whole = conform(record, batch)
        return {name: whole.column(name) for name in self.code.used}


class _Job:
    """One batch on its way."""

    def __init__(self, owner: BatchProgram, params: ParamBlock, buffers: Buffers, rows: int) -> None:
        self.owner, self.code, self.buffers, self.rows = owner, owner.code, buffers, rows
        size = ((rows + 63) // 64 + 1) * 8
        self.passed = pa.allocate_buffer(size)
        self.valid = pa.allocate_buffer(size) if self.code.undecided else None
        self.counts = np.zeros(8, np.uint64)
        self.env = np.zeros(WORDS, np.uint64)
        self.env[PARAMS], self.env[FUEL_WORD] = params.address, owner.fuel
        self.env[STATE] = owner.state.address if owner.state is not None else 0
        self.params = params

    def drive(self, lo: int, hi: int, counts: Any, env: Any = None) -> None:
        expand = len(self.code.plan.expand)
        scratch = np.empty(max(1, expand) * BLOCK, np.uint8)
        _drive()(
            self.code.address,
            self.buffers.words.ctypes.data,
            lo,
            hi,
            (self.env if env is None else env).ctypes.data,
            self.buffers.expand.ctypes.data,
            expand,
            scratch.ctypes.data,
            self.passed.address,
            self.valid.address if self.valid is not None else 0,
            counts.ctypes.data,
            int(self.code.faulting),
        )

    def share(self, step: int, work: Callable[[Iterator[int], Any], None]) -> None:
        """Let threads take spans of rows, whoever is free the next one; in order on this thread where there is state
        or little to do. `work` gets the starts of spans and a block to count in."""
        workers = CORES
        if self.rows < PARALLEL_ROWS or self.owner.state is not None:
            workers = 1
        spans = iter(range(0, self.rows, step))

        def one() -> Any:
            counts = np.zeros(8, np.uint64)
            work(spans, counts)
            return counts

        helpers = [_threads().submit(one) for _ in range(workers - 1)]
        self.counts += one()
        for helper in helpers:
            self.counts += helper.result()

    def filter(self) -> None:
        step = max(PARALLEL_ROWS // 2, -(-self.rows // (CORES * 4)))
        step = -(-step // BLOCK) * BLOCK

        def work(spans: Iterator[int], counts: Any) -> None:
            for lo in spans:
                self.drive(lo, min(lo + step, self.rows), counts)

        self.share(step, work)

    def transform(self) -> Any:
        """In pieces, so that the rows under construction stay small."""
        record = self.owner.program.output
        assert record is not None
        plan, schema = stage_of(record), arrow_schema(record)
        step = min(max(64, STAGE_BYTES // plan.size // 64 * 64), max(64, -(-self.rows // 64) * 64))
        pieces: dict[int, list[Any]] = {}

        def work(spans: Iterator[int], counts: Any) -> None:
            stages, out, env = np.empty((step, plan.size), np.uint8), np.zeros(2, np.uint64), self.env.copy()
            out[0], env[OUTPUT] = stages.ctypes.data, out.ctypes.data
            for lo in spans:
                out[1] = 0
                self.drive(lo, min(lo + step, self.rows), counts, env)
                pieces[lo] = output_columns(plan, stages[: int(out[1])], self.buffers)

        self.share(step, work)
        if not pieces:
            pieces[0] = output_columns(plan, np.empty((0, plan.size), np.uint8), self.buffers)
        parts = zip(*(pieces[lo] for lo in sorted(pieces)), strict=True)
        columns = [part[0] if len(part) == 1 else pa.concat_arrays(part) for part in parts]
        made = pa.RecordBatch.from_arrays(columns, schema=schema)
        bad = malformed_rows(record, made)
        return made if bad is None else self.without(made, bad)

    def without(self, made: Any, bad: Any) -> Any:
        """The output without rows that are no valid events; those are undecided after all."""
        assert self.valid is not None
        passed, valid = (np.frombuffer(bits, np.uint8) for bits in (self.passed, self.valid))
        for row in np.flatnonzero(np.unpackbits(passed, count=self.rows, bitorder="little"))[bad]:
            passed[row >> 3] &= ~np.uint8(1 << (row & 7))
            valid[row >> 3] &= ~np.uint8(1 << (row & 7))
        count = int(bad.sum())
        self.counts[1] -= np.uint64(count)
        self.counts[2] += np.uint64(count)
        self.counts[3 + FAULTS.index(Fault.MALFORMED)] += np.uint64(count)
        return made.filter(pa.array(~bad))

    def selection(self) -> Any:
        valid = self.valid if self.counts[2] else None
        return pa.Array.from_buffers(pa.bool_(), self.rows, [valid, self.passed])


def meta_columns(meta: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """What is known of the events beside them, one column each: what is given for all of them is repeated, what is not
    is missing."""
    unknown = next((name for name in meta if name not in META_TYPES), None)
    if unknown is not None:
        raise ExecutionError(f"meta: expected {', '.join(META_TYPES)}, found {unknown!r}")
    columns = {}
    for name, type in META_TYPES.items():
        value, kind = meta.get(name), arrow_type(type)
        if isinstance(value, pa.ChunkedArray):
            value = value.combine_chunks()
        if value is None or not isinstance(value, pa.Array):
            made = pa.repeat(pa.scalar(value, kind), rows) if value is not None else pa.nulls(rows, kind)
        else:
            made = value if value.type == kind else value.cast(kind)
        if len(made) != rows:
            raise ExecutionError(f"meta {name!r}: expected {rows} values, one for each row, found {len(made)}")
        columns[META + name] = made
    return columns


def batch_code(program: Program | Analysis) -> BatchCode:
    """The machine code, from the cache or compiled now."""
    analysis = analysed(program)
    code: BatchCode = cache.get(cache.key_of(analysis.program, "batch"), lambda: BatchCode(analysis))
    return code


def compile_batch(
    program: Program | Analysis,
    *,
    params: Mapping[str, Any] | None = None,
    state: StateBlock | None = None,
    fuel: int = FUEL,
) -> BatchProgram:
    """A program ready to run on batches; `params` are raw values (`ir.params.bind`)."""
    return BatchProgram(batch_code(program), params=params, state=state, fuel=fuel)
