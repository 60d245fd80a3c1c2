"""Whatever the bytes, native code reads nothing outside them: records lie right before a page that must not be read."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.ir.interp import Fault, Status
from headwater.native import compile_record
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


CLIFF = Cliff()
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
    program = compile_record(analysis, params=made.params, fuel=FUEL)
    record = EventType(made.program.input).encode(events[0][0])
    evaluate(program, record)
    for _ in range(6):
        packed = evaluate(program, data.draw(mutated(record)))
        assert packed & 255 in (0, 1, 2) and packed >> 8 < 32


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
