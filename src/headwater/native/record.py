"""Native code on one record, straight from its bytes.

program = compile_record(analyse(interest))
program(record)            status | faults << 8
program.run(record)        the same as a Result, with the output record of a transformation
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater.ir.analyse import Analysis, analyse
from headwater.ir.interp import FUEL, EventContext, Fault, Status, initial_state
from headwater.ir.nodes import Loop, Meta, Program, Reduce
from headwater.ir.walk import all_expressions, statements
from headwater.late import np
from headwater.native import cache, engine
from headwater.native.codegen import assembly as assemble
from headwater.native.codegen.depth import room_for
from headwater.native.codegen.expr import Exprs
from headwater.native.codegen.facts import Facts
from headwater.native.codegen.record_reader import RecordReader, check_header
from headwater.native.codegen.stage_writer import StageWriter, stage_of
from headwater.native.codegen.stmt import Stmts
from headwater.native.codegen.variables import Places, StateBlock
from headwater.native.emit import Fn, Module
from headwater.native.env import FUEL_WORD, OUTPUT, PARAMS, STATE, WORDS, ParamBlock, ParamSlots, put_meta
from headwater.native.kernels.runtime import imports, python_function
from headwater.types.codec import as_bytes
from headwater.types.layout import Layout

MALFORMED = int(Status.UNDECIDED) | int(Fault.MALFORMED) << 8
LONG = 20_000  # iterations a program may make while it holds the GIL

_SIGNATURE = (ctypes.c_int32, ctypes.c_char_p, ctypes.c_ssize_t, ctypes.c_void_p)
_HOLDING: Any = ctypes.PYFUNCTYPE(*_SIGNATURE)
_RELEASING: Any = ctypes.CFUNCTYPE(*_SIGNATURE)
_ASSEMBLE: Any = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_char_p, ctypes.c_ssize_t, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one record; `output` is the output record of a transformation that passed."""

    status: Status
    faults: Fault = Fault.NONE
    output: bytes | None = None

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED


_FAULTS = tuple(Fault(bits) for bits in range(32))
_PLAIN = {s | bits << 8: Result(s, _FAULTS[bits]) for s in Status for bits in range(32)}  # without output


def result_of(packed: int, output: bytes | None = None) -> Result:
    """From native code's status | faults << 8."""
    if output is None:
        return _PLAIN[packed]
    return Result(Status.PASSED, _FAULTS[packed >> 8], output)


def analysed(program: Program | Analysis) -> Analysis:
    """The analysis of a program, made now unless it is one."""
    return program if isinstance(program, Analysis) else analyse(program)


def record_source(analysis: Analysis) -> str:
    """The LLVM assembly of a program on one record, before optimisation."""
    with room_for(analysis.program):
        return _source(analysis)


def _source(analysis: Analysis) -> str:
    """The machine code's text for one record: check the header, run the body, put the output together."""
    program = analysis.program
    module = Module()
    fn = Fn(module, "i32 @run(ptr noalias %rec, i64 %len, ptr noalias %env) nounwind")
    layout = Layout.of(program.input)
    check_header(fn, layout, "malformed")
    params = ParamSlots(program.params, fn.load("ptr", fn.gep("%env", 8 * PARAMS), 8) if program.params else "")
    state = fn.load("ptr", fn.gep("%env", 8 * STATE), 8) if program.stateful else ""
    writer = out = None
    if program.output is not None:
        out = fn.load("ptr", fn.gep("%env", 8 * OUTPUT), 8)
        writer = StageWriter(fn, program.output, fn.gep(out, assemble.STAGE))
    reader = RecordReader(fn, program.input)
    g = Exprs(fn, program, Facts(analysis, wild=True), reader, params, Places(fn, program, state))
    fuel = fn.load("i64", fn.gep("%env", 8 * FUEL_WORD), 8) if unbounded(program) else "0"
    it = Stmts(g, analysis, writer, fuel)
    it.event(program.body)
    status = it.status()
    if out is not None:
        status = _output(fn, g, status, out)
    faults = fn.v(f"shl i32 {fn.load('i32', g.faults, 4)}, 8")
    fn.ret(f"i32 {fn.v(f'or i32 {status}, {faults}')}")
    fn.at("malformed")
    fn.ret(f"i32 {MALFORMED}")
    fn.finish()
    if program.output is not None:
        assemble.assemble(module, program.output, layout.size)
    return module.text()


def _output(fn: Fn, g: Exprs, status: str, out: str) -> str:
    """Assemble the output record of what passed."""
    final = fn.alloca("i32")
    fn.store("i32", status, final, 4)

    def passed() -> None:
        size = fn.v(f"call i64 @assemble(ptr %rec, i64 %len, ptr {out})")
        fn.store("i64", size, fn.gep(out, assemble.SIZE), 8)
        bad = fn.v(f"icmp slt i64 {size}, 0")
        g.fault(Fault.MALFORMED, bad, None)
        fn.store("i32", fn.select(bad, "i32", "2", "1"), final, 4)

    fn.branch(fn.v(f"icmp eq i32 {status}, 1"), passed)
    return fn.load("i32", final, 4)


def passes_for(program: Program) -> engine.Passes:
    """What the compiler should try on a program for records."""
    loops = any(isinstance(stmt, Loop) for stmt in statements(program.body))
    loops = loops or any(isinstance(e, Reduce) for e in all_expressions(program.body))
    return "loops" if loops or program.output is not None else "straight"


def unbounded(program: Program) -> bool:
    """Whether a loop draws on fuel."""
    return any(isinstance(s, Loop) and s.bound is None for s in statements(program.body))


def uses_meta(program: Program) -> bool:
    """Whether a program looks at what is known beside the event: source, node, number, time."""
    return any(isinstance(e, Meta) for e in all_expressions(program.body))


def is_long(program: Program) -> bool:
    """Whether a call may take so long that other threads should run meanwhile."""

    def rounds(block: Any) -> int:
        total = 0
        for stmt in block:
            if isinstance(stmt, Loop):
                total += LONG if stmt.bound is None else stmt.bound * max(1, rounds(stmt.body))
            else:
                total += sum(rounds(getattr(stmt, part, ())) for part in ("then", "other"))
        return total

    return rounds(program.body) >= LONG


class RecordCode:
    """The machine code of one program on one record; shared by everything that runs the program."""

    def __init__(self, analysis: Analysis) -> None:
        self.program = program = analysis.program
        exports = ("run",) if program.output is None else ("run", "assemble")
        self.code = engine.compile(record_source(analysis), exports, imports(), passes_for(program))
        self.address = self.code["run"]
        self.long, self.meta = is_long(program), uses_meta(program)
        self.call = (_RELEASING if self.long else _HOLDING)(self.address)
        self.reassemble: Any = _ASSEMBLE(self.code["assemble"]) if program.output is not None else None


def _words(array: Any) -> memoryview:
    """The array's memory, whose elements are quicker to get at than numpy's."""
    return memoryview(array)


class _Context:
    """The memory of one call: env, and for a transformation its stage and buffer."""

    def __init__(self, program: Program) -> None:
        self.memory = np.zeros(WORDS, np.uint64)
        self.env, self.address = _words(self.memory), self.memory.ctypes.data
        self.bound: _Bound | None = None
        if program.output is not None:
            out = np.zeros((assemble.STAGE + stage_of(program.output).size) // 8 + 1, np.uint64)
            self.out, self.out_address = _words(out), out.ctypes.data
            self.env[OUTPUT] = self.out_address
            self.grow(Layout.of(program.output).size + 256)

    def bind(self, bound: _Bound) -> None:
        if self.bound is not bound:
            self.bound = bound
            for word in (PARAMS, STATE, FUEL_WORD):
                self.env[word] = bound.words[word]

    def grow(self, size: int) -> None:
        buffer = np.zeros(size, np.uint8)
        self.buffer, self.room = _words(buffer), size
        self.out[0], self.out[1] = buffer.ctypes.data, size


class RecordProgram:
    """A program on records, with its parameters and state. Calling it returns status | faults << 8.

    Threads may share one; a stateful one then sees the events in whatever order they call.
    """

    def __init__(
        self,
        code: RecordCode,
        *,
        params: Mapping[str, Any] | None = None,
        state: StateBlock | None = None,
        fuel: int = FUEL,
        counts: Any = None,
    ) -> None:
        self.code, self.program, self.fuel = code, code.program, fuel
        self.state = state
        if state is None and self.program.stateful:
            self.state = StateBlock(self.program)
            self.state.put(initial_state(self.program))
        self.counts_block = np.zeros(8, np.uint64) if counts is None else counts
        self._pool: list[_Context] = []
        self.set_params(params or {})

    def set_params(self, values: Mapping[str, Any]) -> None:
        """New raw values (`ir.params.bind`) for all parameters; calls under way keep the old ones."""
        block = ParamBlock(self.program.params, values)
        env = np.zeros(WORDS, np.uint64)
        env[PARAMS], env[FUEL_WORD] = block.address, self.fuel
        env[STATE] = self.state.address if self.state is not None else 0
        self.bound = _Bound(self, block, env)

    def __call__(self, record: Any) -> int:
        """status | faults << 8; without meta, and without the output of a transformation."""
        if self.bound.run is not None:
            return self.bound.run(record)  # type: ignore[no-any-return]
        return self._evaluate(as_bytes(record), None)[0]

    def test(self, record: Any) -> bool:
        """Whether the record passes."""
        return self(record) & 255 == Status.PASSED

    def run(self, record: Any, meta: EventContext | None = None) -> Result:
        """The whole outcome."""
        packed, output = self._evaluate(record if type(record) is bytes else as_bytes(record), meta)
        return result_of(packed, output)

    def context(self) -> _Context:
        """The memory of one call: who calls `code.address` passes `context.address`, and keeps the context so long."""
        try:
            context = self._pool.pop()
        except IndexError:
            context = _Context(self.program)
        context.bind(self.bound)
        return context

    def release(self, context: _Context) -> None:
        """Give the memory of a call back, for the next one."""
        if len(self._pool) < 16:
            self._pool.append(context)

    def _evaluate(self, record: bytes, meta: EventContext | None) -> tuple[int, bytes | None]:
        bound = self.bound
        if self.program.output is None and not self.code.meta:
            return self.code.call(record, len(record), bound.address), None
        context = self.context()
        kept = put_meta(context.env, meta or EventContext()) if self.code.meta else None
        packed = self.code.call(record, len(record), context.address)
        output = None
        if packed & 255 == Status.PASSED and self.program.output is not None:
            size = context.out[2]
            if size > context.room:
                context.grow(size * 2)
                self.code.reassemble(record, len(record), context.out_address)
            output = bytes(context.buffer[:size])
        del kept
        self.release(context)
        return packed, output


class _Bound:
    """Parameters and env as one immutable whole, with the builtin functions bound to them."""

    def __init__(self, owner: RecordProgram, block: ParamBlock, env: Any) -> None:
        self.block, self.env, self.address, self.words = block, env, env.ctypes.data, env.tolist()
        code = owner.code
        self.run = self.test = None
        if owner.program.output is None and not code.meta and not code.long:
            counts = owner.counts_block.ctypes.data
            keep = (block, env, owner.counts_block, owner.state, code)
            self.run = python_function("hw_py_run", code.address, self.address, counts, keep)
            self.test = python_function("hw_py_test", code.address, self.address, counts, keep)


def record_code(program: Program | Analysis) -> RecordCode:
    """The machine code, from the cache or compiled now."""
    analysis = analysed(program)
    code: RecordCode = cache.get(cache.key_of(analysis.program, "record"), lambda: RecordCode(analysis))
    return code


def compile_record(
    program: Program | Analysis,
    *,
    params: Mapping[str, Any] | None = None,
    state: StateBlock | None = None,
    fuel: int = FUEL,
) -> RecordProgram:
    """A program ready to run on records; `params` are raw values (`ir.params.bind`)."""
    return RecordProgram(record_code(program), params=params, state=state, fuel=fuel)
