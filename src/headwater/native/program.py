"""An interest that runs: at once by a table or the interpreter, natively as soon as machine code is ready.

    interest = Native(program)
    interest.test(record)       whether the record passes
    interest.tier               "table", "interpreter" or "native"
    interest.wait()             until it is native

One daemon thread of the process compiles. Where the interpreter would take more than a moment for an event, the event
waits for machine code instead (`needs_code`). All tiers give the same answers; state lives in one block of memory that
they share, so changing the tier loses nothing.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from functools import cached_property, partial
from typing import Any, Literal, cast

from headwater import runnable
from headwater.errors import DecodeError, ExecutionError
from headwater.ir import params as parameters
from headwater.ir.analyse import Analysis
from headwater.ir.cost import interpreted_steps
from headwater.ir.interp import FUEL, EventContext, Fault, State, Status, initial_state, run
from headwater.ir.nodes import Program
from headwater.ir.serial import fingerprint_of_normal
from headwater.ir.state import dump_state, load_state
from headwater.late import np
from headwater.native import engine
from headwater.native.batch import BatchCode, BatchProgram, BatchResult, Counts, batch_code, batch_source, is_large
from headwater.native.batch import passes_for as passes_for_batch
from headwater.native.codegen.variables import StateBlock
from headwater.native.once import once
from headwater.native.record import (
    RecordCode,
    RecordProgram,
    Result,
    analysed,
    passes_for,
    record_code,
    record_source,
)
from headwater.native.rowwise import rows_of, run_rows
from headwater.native.table import TableProgram, table_for
from headwater.threads import Worker
from headwater.types.codec import as_bytes
from headwater.types.event_type import event_type

Tier = Literal["table", "interpreter", "native"]

INTERPRETED_STEPS = 10_000  # at 2 µs each: what an event may take before machine code is there
INTERPRETED_BYTES = 1 << 16  # of a record; what is longer may have lists and texts that take as long


# ── compiling in the background ──


@once
def _worker() -> Worker:
    """The thread that compiles what is asked for, in order."""
    worker = Worker("headwater-compile")
    worker.start()
    return worker


@atexit.register
def _finish() -> None:
    """LLVM must not be at work while the process takes itself apart: what is being compiled is done first."""
    for worker in _worker.made:
        worker.stop(None)


def _submit(analysis: Callable[[], Analysis | None], make: Callable[[Analysis], Any] = record_code) -> Future[Any]:
    """Have something compiled in the background, unless it is gone by then (None)."""
    future: Future[Any] = Future()
    _worker().put(partial(_compile, analysis, make, future))
    return future


def _compile(wanted: Callable[[], Analysis | None], make: Callable[[Analysis], Any], future: Future[Any]) -> None:
    """Whatever happens, whoever waits for it hears of it."""
    try:
        analysis = wanted()
        if analysis is None or not future.set_running_or_notify_cancel():
            future.cancel()
            return
        code = make(analysis)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(code)


_alive: weakref.WeakSet[Native] = weakref.WeakSet()


def _forked() -> None:
    """Threads do not live on in a forked process, nor does anyone release what they held."""
    _worker.clear()
    for it in list(_alive):
        it._forked()


os.register_at_fork(after_in_child=_forked)


def compile_async(program: Program | Analysis) -> Future[RecordCode]:
    """Machine code for records, from a thread of its own; what is in the cache is there at once."""
    analysis = analysed(program)
    return _submit(lambda: analysis)


def in_background(make: Callable[[], Any]) -> Future[Any]:
    """Have something else made by the thread that compiles, after what it was asked for before."""
    return _submit(lambda: cast(Any, make), lambda _: make())


def needs_code(analysis: Analysis, fuel: int = FUEL) -> bool:
    """Whether an event should wait for machine code, because the interpreter may take long for it."""
    return interpreted_steps(analysis, fuel=fuel) > INTERPRETED_STEPS


def prepare(analysis: Analysis, fuel: int = FUEL) -> None:
    """Compile now what an event would wait for; for a thread that holds no lock, before there are events."""
    if needs_code(analysis, fuel):
        record_code(analysis)


# ── the interest ──


class Native:
    """An executable interest with its parameters, state and counts. Threads may share it.

    Take `test` from here for each run of events: a new tier and new parameters come with a new function.

    `params` are values as the owner gives them (`ir.params`), or `raw_params` what `ir.params.bind` made of them;
    `fuel` bounds loops that are not proven to end.
    """

    test: Callable[[Any], bool]
    _failed: BaseException | None

    def __init__(
        self,
        program: Program | Analysis,
        *,
        params: Mapping[str, object] | None = None,
        raw_params: Mapping[str, Any] | None = None,
        fuel: int = FUEL,
        after: int = 0,
    ) -> None:
        """Machine code for records is asked for when it has run on so many: `after`."""
        self.analysis = analysed(program)
        self.program = self.analysis.program
        self.fuel = fuel
        self._given = dict(params or raw_params or {})
        self._raw = dict(raw_params) if raw_params is not None else parameters.bind(self.program.params, self._given)
        self._lock = threading.Lock()  # guards slow counts, state outside short native calls, and changes of tier
        self._fast, self._slow = np.zeros(8, np.uint64), [0] * 8  # counted by short native calls, and by the rest
        self._state: StateBlock | None = None
        if self.program.stateful:
            self.new_state()
        self._record: RecordProgram | None = None
        self._batch: BatchProgram | None = None
        self._table: TableProgram | None = table_for(self.program, params=self._raw, counts=self._fast)
        self.test = self._table.test if self._table is not None else self._test
        self._ready, self._failed = threading.Event(), None
        self._future: Future[RecordCode] | None = None
        self._batch_future: Future[BatchCode] | None = None
        self._spared = after
        if not after:
            self._request()
        self._needs_code = self._table is None and needs_code(self.analysis, fuel)
        _alive.add(self)

    # ── tiers ──

    def _request(self) -> None:
        """Ask for machine code; neither the request nor the answer keeps this interest alive."""
        owner, source = weakref.ref(self), weakref.ref(self.analysis)
        self._future = _submit(source)
        self._future.add_done_callback(lambda future: _arrived(owner, future))

    def _forked(self) -> None:
        self._lock = threading.Lock()
        self._batch_future = None
        if not self._ready.is_set():
            self._ready, self._future = threading.Event(), None  # asked for anew when it is next used

    @property
    def tier(self) -> Tier:
        if self._record is not None:
            return "native"
        return "table" if self._table is not None else "interpreter"

    @property
    def compiled(self) -> RecordProgram | None:
        """The machine code that runs on records, once there is some."""
        return self._record

    def wait(self, timeout: float | None = None) -> Native:
        """Until machine code is in use; raises ExecutionError if it cannot be made or takes longer."""
        if self._future is None:
            self._request()
        if not self._ready.wait(timeout):
            raise ExecutionError(f"expected machine code within {timeout} s, found the compiler still at work")
        if self._failed is not None:
            raise ExecutionError(f"this interest cannot be compiled: {self._failed}") from self._failed
        return self

    def _hurry(self) -> None:
        """Machine code before anything else happens: from the thread that is making it, or made here and now. Must not
        be called with the lock held, which the change of tier takes."""
        future = self._future
        if future is not None and future.running():
            self._ready.wait()
            return
        try:
            self._switch(record_code(self.analysis))
        except Exception as error:
            self._failed = error  # the present tier goes on; `wait` says why
        self._ready.set()

    def _switch(self, code: RecordCode) -> None:
        with self._lock:
            if self._record is not None:
                return  # addresses of it may be in use
            made = RecordProgram(code, params=self._raw, state=self._state, fuel=self.fuel, counts=self._fast)
            self._record = made
            self.test = self._fast_test(made)

    def _fast_test(self, program: RecordProgram) -> Callable[[Any], bool]:
        """A builtin function where that is safe: state is otherwise touched under the lock only."""
        builtin = program.bound.test
        return self._test if builtin is None or self._state is not None else builtin

    # ── one record ──

    def _test(self, record: Any) -> bool:
        return self.run(record).status is Status.PASSED

    def run(self, record: Any, meta: EventContext | None = None) -> Result:
        """The whole outcome of one record."""
        if type(record) is not bytes:
            record = as_bytes(record)
        if self._record is None and self._table is not None:
            return self._table.run(record)  # it counts by itself
        if self._record is None and self._failed is None and (
            self._needs_code or len(record) > INTERPRETED_BYTES
        ):  # fmt: skip
            self._hurry()
        if self._state is not None:
            with self._lock:
                result = self._run(record, meta)
                self._count(result)
            return result
        result = self._run(record, meta)
        with self._lock:
            self._count(result)
        return result

    def _run(self, record: bytes, meta: EventContext | None) -> Result:
        if self._future is None:
            self._spared -= 1
            if self._spared < 0:
                self._request()
        return self._interpret(record, meta) if self._record is None else self._record.run(record, meta)

    def _interpret(self, record: bytes, meta: EventContext | None) -> Result:
        try:
            event = event_type(self.program.input).decode_raw(record)
        except DecodeError:
            return Result(Status.UNDECIDED, Fault.MALFORMED)
        state = self._state.get() if self._state is not None else None
        outcome = run(self.program, event, meta=meta, params=self._raw, state=state, fuel=self.fuel)
        if self._state is not None and state is not None:
            self._state.put(state)
        output = None
        if outcome.output is not None and outcome.passed and self.program.output is not None:
            output = event_type(self.program.output).encode(outcome.output)
        return Result(outcome.status, outcome.faults, output)

    def _count(self, result: Result) -> None:
        self._slow[result.status] += 1
        if result.faults:
            for kind in range(5):
                self._slow[3 + kind] += int(result.faults) >> kind & 1

    # ── batches ──

    def batch(self, batch: Any, *, meta: Mapping[str, Any] | None = None) -> BatchResult:
        """Evaluate the rows of a RecordBatch in order; compiles for batches when first called. A large program is
        compiled by another thread, and meanwhile the code for records judges the rows."""
        if self._batch is None:
            result = self._by_rows(batch, meta) if is_large(self.program) else None
            if result is not None:
                return result
            self._batch_arrived(batch_code(self.analysis))
        assert self._batch is not None
        if self._state is not None:
            with self._lock:
                result = self._batch.run(batch, meta=meta)
                self._count_batch(result.counts)
            return result
        result = self._batch.run(batch, meta=meta)
        with self._lock:
            self._count_batch(result.counts)
        return result

    def _batch_arrived(self, code: BatchCode) -> None:
        with self._lock:
            if self._batch is None:
                self._batch = BatchProgram(code, params=self._raw, state=self._state, fuel=self.fuel)

    def _by_rows(self, batch: Any, meta: Mapping[str, Any] | None) -> BatchResult | None:
        """The answer of the code for records; None where it must be that for batches, or that is there by now."""
        if self._batch_future is None:
            source = weakref.ref(self.analysis)
            self._batch_future = _submit(source, batch_code)
        if self._batch_future.done():
            return None
        if self._record is None:
            self._hurry()
        program = self._record
        rows = None if program is None else rows_of(program, batch)
        if program is None or rows is None:
            return None
        with self._lock if self._state is not None else nullcontext():
            result = run_rows(program, rows, meta)
        with self._lock:
            self._count_batch(result.counts)
        return result

    def _count_batch(self, counts: Counts) -> None:
        self._slow[0] += counts.rejected
        self._slow[1] += counts.passed
        self._slow[2] += counts.undecided
        for fault, count in counts.faults.items():
            self._slow[2 + fault.value.bit_length()] += count

    # ── counts, parameters, state ──

    @property
    def counts(self) -> Counts:
        """Everything evaluated so far, by all tiers."""
        with self._lock:
            return Counts.of(self._fast + np.array(self._slow, np.uint64))

    @property
    def params(self) -> dict[str, object]:
        """The values last given."""
        return dict(self._given)

    def set_params(self, **values: object) -> None:
        """Change some parameters, all at once; events under way are judged by the old values."""
        changed = [decl for decl in self.program.params if decl.name in values]
        if len(changed) < len(values):
            parameters.bind(self.program.params, values)  # raises, naming the one that is not declared
        bound = parameters.bind(changed, values)
        with self._lock:
            self._given, self._raw = self._given | values, self._raw | bound
            raw = self._raw
            if self._table is not None:
                self._table.set_params(raw)
                self.test = self._table.test
            if self._batch is not None:
                self._batch.set_params(raw)
            if self._record is not None:
                self._record.set_params(raw)
                self.test = self._fast_test(self._record)

    def new_state(self) -> None:
        """Start afresh, as for a new source."""
        self.set_state(initial_state(self.program))

    def set_state(self, state: State) -> None:
        """Take over state in the interpreter's form."""
        with self._lock:
            if self._state is None:
                self._state = StateBlock(self.program)
            self._state.put(state)

    def snapshot(self, positions: Mapping[str, int]) -> bytes:
        """The present state, with the last event of each source that is in it: `restore` goes on from there, whatever
        tier, process or machine that is in."""
        state = dump_state(self.program, self.get_state())
        return runnable.snapshot(runnable.INTEREST, self._fingerprint, positions, state)

    def restore(self, snapshot: bytes) -> dict[str, int]:
        """Take over the state of another run of an equal interest; the positions after which events are to come."""
        found = runnable.read_snapshot(snapshot, runnable.INTEREST, self._fingerprint)
        state = load_state(self.program, found.state)
        if self._state is not None:
            self.set_state(state)
        return found.positions

    @cached_property
    def _fingerprint(self) -> bytes:
        return fingerprint_of_normal(self.program)

    def get_state(self) -> State:
        """The present state in the interpreter's form; empty for a stateless interest."""
        with self._lock:
            return self._state.get() if self._state is not None else {}


def _arrived(owner: weakref.ref[Native], future: Future[RecordCode]) -> None:
    it = owner()
    if it is None:
        return
    try:
        it._switch(future.result())
    except BaseException as error:  # it was cancelled, too
        it._failed = error  # the present tier goes on; `wait` says why
    finally:
        it._ready.set()


# ── what `headwater explain` shows ──


def llvm_ir(program: Program | Analysis, *, kind: Literal["record", "batch"] = "record", optimised: bool = True) -> str:
    """The LLVM assembly of a program, after the passes or as it was written."""
    source, passes = _source(program, kind)
    return engine.optimised(source, passes) if optimised else source


def asm(program: Program | Analysis, *, kind: Literal["record", "batch"] = "record") -> str:
    """The machine code of a program, in this machine's assembly."""
    return engine.assembly(*_source(program, kind))


def _source(program: Program | Analysis, kind: str) -> tuple[str, engine.Passes]:
    analysis = analysed(program)
    if kind == "batch":
        source = batch_source(analysis)[0]
        return source, passes_for_batch(source)
    return record_source(analysis), passes_for(analysis.program)


class NativeBackend:
    """Machine code (and, until it is there, the interpreter) for records and for batches: see `ir/backend.py`."""

    name = "native"
    unsupported: Mapping[str, str] = {}

    def lower(self, program: Program, params: Mapping[str, Any]) -> Native:
        return Native(program, raw_params=params)


BACKEND = NativeBackend()

__all__ = ["BatchResult", "Counts", "Native", "Result", "Tier", "asm", "compile_async", "llvm_ir"]
