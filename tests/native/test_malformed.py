"""Whatever the bytes, native code reads nothing outside them: records lie right before a page that must not be read."""

from __future__ import annotations

import ctypes
import mmap
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater import Interest
from headwater.ir.interp import Fault, Status, initial_state
from headwater.native import compile_record
from headwater.native.batch import compile_batch
from headwater.native.codegen.variables import StateBlock
from headwater.native.record import RecordProgram
from headwater.types import EventType
from headwater.types import model as m
from tests.effort import examples
from tests.native.support import Events, analysis_of
from tests.programs import FUEL, Case, cases

PAGES = 16
PAGE = mmap.PAGESIZE


class Cliff:
    """Memory that ends where reading on would crash the process."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, (PAGES + 1) * PAGE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        protect = ctypes.CDLL(None).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        assert protect(self.start + PAGES * PAGE, PAGE, 0) == 0

    def put(self, data: bytes) -> int:
        at = PAGES * PAGE - len(data)
        self.memory[at : at + len(data)] = data
        return self.start + at


class Brink(StateBlock):
    """State that ends where writing on would crash the process; what is written before it shows."""

    def __init__(self, program: Any) -> None:
        super().__init__(program)
        size = len(self.memory)
        BRINK.memory[: PAGES * PAGE] = bytes(PAGES * PAGE)
        self.before = PAGES * PAGE - size
        self.address = BRINK.put(bytes(size))
        self.memory = np.frombuffer(BRINK.memory, np.uint8, size, self.before)

    def check(self) -> None:
        assert not any(BRINK.memory[: self.before])


CLIFF, BRINK = Cliff(), Cliff()
_SIGNATURE: Any = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_void_p)


def evaluate(program: RecordProgram, data: bytes) -> int:
    """Run on bytes at the cliff."""
    if program.program.output is None and not program.code.meta:
        function = _SIGNATURE(program.code.address)
        return int(function(CLIFF.put(data), len(data), program.bound.address))
    from headwater.native.record import _Context

    context = _Context(program.program)
    context.bind(program.bound)
    return int(_SIGNATURE(program.code.address)(CLIFF.put(data), len(data), context.address))


@st.composite
def mutated(draw: st.DrawFn, record: bytes) -> bytes:
    """Bytes overwritten, mostly with what makes offsets and lengths wild; cut or grown, with or without a new size."""
    data = bytearray(record)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(16, max(16, len(data) - 1)))
        new = draw(
            st.sampled_from((b"\xff\xff\xff\xff", b"\x00", b"\x01", b"\x7f", b"\xf0\xff\xff\xff", b"\x10\0\0\0"))
        )
        data[at : at + len(new)] = new[: len(data) - at]
    if draw(st.integers(0, 3)) == 0:
        data = data[: draw(st.integers(0, len(data)))]
    if len(data) >= 4:
        data[:4] = len(data).to_bytes(4, "little")
    return bytes(data)


@settings(deadline=None, max_examples=examples(80), suppress_health_check=list(HealthCheck))
@given(cases(meta=False), st.data())
def test_filters_stay_inside(case: tuple[Case, Events], data: st.DataObject) -> None:
    _stay_inside(case, data)


@settings(deadline=None, max_examples=examples(80), suppress_health_check=list(HealthCheck))
@given(cases(transforming=True, meta=False), st.data())
def test_transformations_stay_inside(case: tuple[Case, Events], data: st.DataObject) -> None:
    _stay_inside(case, data)


def _stay_inside(case: tuple[Case, Events], data: st.DataObject) -> None:
    made, events = case
    analysis = analysis_of(made)
    if analysis is None:
        return
    state = Brink(made.program)
    state.put(initial_state(made.program))
    program = compile_record(analysis, params=made.params, state=state, fuel=FUEL)
    record = EventType(made.program.input).encode(events[0][0])
    evaluate(program, record)
    for _ in range(6):
        packed = evaluate(program, data.draw(mutated(record)))
        assert packed & 255 in (0, 1, 2) and packed >> 8 < 32
        state.check()


RECORD = m.Record("R", (m.Field("n", m.I64), m.Field("t", m.TEXT), m.Field("xs", m.List(m.F64), True)))


def _program(make: Any) -> RecordProgram:
    from headwater.ir.build import Builder

    b = Builder(RECORD)
    return compile_record(b.finish(b.return_(make(b), (0, 0))))  # type: ignore[arg-type]


def test_a_bad_header_is_malformed_and_undecided() -> None:
    program = _program(lambda b: b.compare("gt", b.field("n", (0, 0)), b.const(0), (0, 0)))
    good = EventType(RECORD).encode({"n": 1, "t": "abc", "xs": None})
    assert program(good) == Status.PASSED
    malformed = Status.UNDECIDED | Fault.MALFORMED << 8
    for bad in (b"", good[:-1], good[:15], good + bytes(8), b"\0" * len(good), good[:5] + b"\0" + good[6:]):
        assert program(bad) == malformed
    other = m.Record("S", RECORD.fields)
    assert program(EventType(other).encode({"n": 1, "t": "abc", "xs": None})) == malformed


def test_a_reference_outside_is_a_missing_value_and_a_fault() -> None:
    program = _program(lambda b: b.compare("eq", b.field("t", (0, 0)), b.const("abc"), (0, 0)))
    good = EventType(RECORD).encode({"n": 1, "t": "abc", "xs": (1.0, 2.0)})
    assert program(good) == Status.PASSED
    at = good.index((3).to_bytes(4, "little"), 24)
    bad = good[:at] + (1 << 31).to_bytes(4, "little") + good[at + 4 :]
    assert program(bad) == Status.UNDECIDED | Fault.MALFORMED << 8


KIND = m.Enum("Kind", (("A", 0), ("B", 1)))
LOG = m.Record("Log", (m.Field("kind", KIND), m.Field("t", m.TEXT), m.Field("at", m.TIMESTAMP)))
TIME = datetime(2020, 1, 1, tzinfo=UTC)
MICROS = int(TIME.timestamp()) * 1_000_000
WILD = (
    ((1).to_bytes(4, "little"), (0x7FFFFFFF).to_bytes(4, "little")),  # the code of no member
    ((1).to_bytes(4, "little"), (0x80000000).to_bytes(4, "little")),
    ((3).to_bytes(4, "little"), (0x7FFFFFFF).to_bytes(4, "little")),  # a text that ends elsewhere
    (MICROS.to_bytes(8, "little"), ((1 << 63) - 1).to_bytes(8, "little")),  # a time in no year
    (MICROS.to_bytes(8, "little"), (1 << 63).to_bytes(8, "little")),
)
ELSE = "coalesce(min(byte_length(input.t), 3), 2000000000)"  # never the last, as long as the text is there


@pytest.mark.parametrize(
    ("index", "size", "wild"),
    [
        ("code(input.kind)", 2, WILD[0]),
        ("code(input.kind)", 2, WILD[1]),
        (ELSE, 4, WILD[2]),
        ("year(input.at) / 1000", 10, WILD[3]),
        ("year(input.at) / 1000", 10, WILD[4]),
    ],
)
@pytest.mark.parametrize(
    ("template", "outcome"),
    [
        ("{ static int seen[SIZE]; seen[INDEX] = 7; return 1; }", Status.PASSED),
        ("{ static int seen[SIZE]; int i = INDEX; seen[i] = seen[i] + 1; return 1; }", Status.PASSED),
        ("{ int seen[SIZE]; seen[INDEX] = 7; return 1; }", Status.PASSED),
        ("{ static int n[1]; for (int i = 0; i < INDEX; i++) { n[0] = n[0] + 1; } return 1; }", None),
        ("{ static int n[1]; for (int i = 0; i > 0 - INDEX; i--) { n[0] = n[0] + 1; } return 1; }", None),
    ],
)
def test_what_is_proven_of_good_records_is_not_relied_on(
    template: str, outcome: Status | None, index: str, size: int, wild: tuple[bytes, bytes]
) -> None:
    program = Interest(template.replace("SIZE", str(size)).replace("INDEX", index), LOG).program
    state = Brink(program)
    state.put(initial_state(program))
    native = compile_record(program, state=state)
    good = EventType(LOG).encode({"kind": "B", "t": "abc", "at": TIME})
    assert native(good) == Status.PASSED
    at = good.index(wild[0], 16)
    bad = good[:at] + wild[1] + good[at + len(wild[0]) :]
    packed = evaluate(native, bad)
    state.check()
    if outcome is None:  # a loop, which may have been led astray in the direction in which it ends at once
        assert state.get()[0][0] <= 2 * (size - 1)
    else:
        assert packed == outcome | Fault.MALFORMED << 8
    assert native(good) == Status.PASSED


def test_nor_on_times_of_a_batch() -> None:
    record = m.Record("R", (m.Field("at", m.TIMESTAMP),))
    interest = Interest("{ static int seen[10]; seen[year(input.at) / 1000] = 7; return 1; }", record)
    schema = interest.type.schema
    state = Brink(interest.program)
    state.put(initial_state(interest.program))
    native = compile_batch(interest.program, state=state)
    times = pa.array([MICROS, -(1 << 63) + 1, (1 << 63) - 1], pa.int64()).cast(schema.field(0).type)
    counts = native.run(pa.RecordBatch.from_arrays([times], schema=schema)).counts
    state.check()
    assert counts.passed == 3 and counts.faults == {Fault.MALFORMED: 2}
