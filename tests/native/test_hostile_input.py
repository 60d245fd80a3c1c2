"""Whatever native code is given, it goes on: Arrow offsets that lead astray, records whose references overlap,
arguments that are no records, processes that fork, and parameters that do not fit."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater import Interest
from headwater.errors import EncodeError, ExecutionError
from headwater.ir.interp import Fault, Status
from headwater.native import Native, engine
from headwater.types import event_type
from headwater.types import model as m


def texts(offsets: list[int], data: bytes = b"abc", *, valid: int | None = None) -> Any:
    parts = [None if valid is None else pa.py_buffer(bytes([valid])), pa.py_buffer(np.array(offsets, np.int32))]
    return pa.Array.from_buffers(pa.utf8(), len(offsets) - 1, [*parts, pa.py_buffer(data)])


@pytest.mark.parametrize("offsets", [[0, 2_000_000_000, 3], [0, -2_000_000_000, 3], [0, 3, 1, 3]])
def test_offsets_of_texts_that_lead_astray_are_refused(offsets: list[int]) -> None:
    interest = Interest("length(name) > 1 or name = 'abc'", "name: text")
    batch = pa.RecordBatch.from_arrays([texts(offsets)], schema=interest.type.schema)
    with pytest.raises(ExecutionError, match=r"name: expected offsets that never go down, found .* at value"):
        interest.native().batch(batch)


def test_offsets_beyond_the_data_are_refused() -> None:
    interest = Interest("length(name) > 1", "name: text")
    batch = pa.RecordBatch.from_arrays([texts([0, 900, 3])], schema=interest.type.schema).slice(0, 1)
    with pytest.raises(ExecutionError, match="expected a valid RecordBatch"):
        interest.native().batch(batch)


def test_offsets_of_lists_that_lead_astray_are_refused() -> None:
    interest = Interest("sum(xs) > 1", "xs: f64[]")
    kind = interest.type.schema.field(0).type
    offsets = pa.py_buffer(np.array([0, 1_000_000_000, 1], np.int32))
    column = pa.Array.from_buffers(kind, 2, [None, offsets], children=[pa.array([1.0])])
    with pytest.raises(ExecutionError, match="xs: expected offsets that never go down"):
        interest.native().batch(pa.RecordBatch.from_arrays([column], schema=interest.type.schema))


def test_a_list_that_is_copied_whole_is_checked_first() -> None:
    record = m.Record("R", (m.Field("xs", m.List(m.TEXT)),))
    interest = Interest("{ output.xs = input.xs; return 1; }", record, output=record)
    kind = interest.type.schema.field(0).type
    offsets = pa.py_buffer(np.array([0, 2], np.int32))
    column = pa.Array.from_buffers(kind, 1, [None, offsets], children=[texts([0, 2_000_000_000, 3])])
    with pytest.raises(ExecutionError, match="expected a valid array"):
        interest.native().batch(pa.RecordBatch.from_arrays([column], schema=interest.type.schema))


def test_what_has_to_be_cast_is_checked_first() -> None:
    interest = Interest("name = 'abc'", "name: text")
    offsets = pa.py_buffer(np.array([0, 2_000_000_000, 3], np.int64))
    large = pa.Array.from_buffers(pa.large_utf8(), 2, [None, offsets, pa.py_buffer(b"abc")])
    with pytest.raises(EncodeError, match="name: expected valid Arrow data"):
        interest.native().batch(pa.RecordBatch.from_arrays([large], names=["name"]))


def test_a_nested_value_that_must_not_be_missing_is_looked_at() -> None:
    record = m.Record("R", (m.Field("p", m.Record("P", (m.Field("x", m.I64),)), True),))
    interest = Interest("p.x = 0", record)
    kind = interest.type.schema.field(0).type
    missing = pa.array([1, None], pa.int64())
    broken = pa.Array.from_buffers(kind, 2, [None], children=[missing])
    with pytest.raises(EncodeError, match=r"p\.x: row 1 is null"):
        interest.native().batch(pa.RecordBatch.from_arrays([broken], schema=interest.type.schema))
    fine = pa.Array.from_buffers(kind, 2, [pa.py_buffer(b"\x01")], children=[missing])
    result = interest.native().batch(pa.RecordBatch.from_arrays([fine], schema=interest.type.schema))
    assert result.selection.to_pylist() == [False, None]


def test_references_that_overlap_cost_no_more_than_the_record() -> None:
    """Each element of a list of lists of lists refers to all of them: followed, that would be 10¹⁵ texts."""
    record = m.Record("R", (m.Field("xs", m.List(m.List(m.List(m.TEXT)))),))
    interest = Interest("{ output.xs = input.xs; return 1; }", record, output=record)
    kind, native = interest.type, interest.native().wait()
    good = kind.encode(xs=((("a", "bc"), ()), (("def",),)))
    assert native.run(good).output == good
    count = 100_000
    size = 24 + 8 * count
    reference = (24).to_bytes(4, "little") + count.to_bytes(4, "little")
    bad = size.to_bytes(4, "little") + good[4:16] + reference * (count + 1)
    found = native.run(bad)
    assert (found.status, found.faults) == (Status.UNDECIDED, Fault.MALFORMED)


@pytest.mark.parametrize("first", ["", "a", "abcd", "abcdefg"])
def test_whole_copies_keep_their_alignment(first: str) -> None:
    """What is copied starts at another place of the heap than it had, and may need other padding."""
    inner = m.Record("I", (m.Field("t", m.TEXT), m.Field("b", m.List(m.U8)), m.Field("xs", m.List(m.F64))))
    record = m.Record("R", (m.Field("t", m.TEXT), m.Field("xs", m.List(inner))))
    wanted = m.Record("W", (m.Field("t", m.TEXT), m.Field("xs", m.List(inner))))
    interest = Interest(f'{{ output.t = "{first}"; output.xs = input.xs; return 1; }}', record, output=wanted)
    native = interest.native().wait()
    for t in ("", "x", "xyz", "xyzxyzx"):
        parts = tuple({"t": t[:i], "b": tuple(range(i)), "xs": (1.0,) * (i % 3)} for i in range(8))
        found = native.run(interest.type.encode(t=t, xs=parts))
        assert found.output == event_type(wanted).encode(t=first, xs=parts)


@pytest.mark.parametrize("wrong", [5, None, "text", [1, 2], object()])
def test_what_is_no_record_is_a_type_error(wrong: Any) -> None:
    native = Interest("level > 1 or level < -1", "level: f64").native()
    with pytest.raises(TypeError, match="expected a record"):
        native.run(wrong)
    with pytest.raises(TypeError, match="expected a record"):
        native.wait().run(wrong)
    if not isinstance(wrong, list):
        with pytest.raises(TypeError):
            native.test(wrong)


def test_any_buffer_may_hold_a_record() -> None:
    interest = Interest("level > 1 or level < -1", "level: f64")
    native, record = interest.native(), interest.type.encode(level=2.0)
    for _ in range(2):
        for held in (bytearray(record), memoryview(record), np.frombuffer(record, np.uint8), pa.py_buffer(record)):
            assert native.run(held).passed
            assert native.test(held)
        native.wait()


def test_wait_says_why_there_is_no_machine_code() -> None:
    interest = Interest("level > :a or level < :b", "level: f64", params={"a": 1.0, "b": -1.0})
    with pytest.raises(ExecutionError, match="cannot be compiled"):
        Native(interest.analysis, raw_params={"a": 1.0}).wait(60)


def test_a_failed_compilation_leaves_the_interpreter_at_work() -> None:
    huge = m.Array(m.F64, (1 << 24,))
    record = m.Record("R", (m.Field("n", m.I64), m.Field("xs", m.List(m.Record("E", (m.Field("m", huge),))))))
    interest = Interest("{ long i = input.n; return input.xs[i].m[0] > 0.0 || input.n == 7; }", record)
    native, event = interest.native(), interest.type.encode(n=7, xs=())
    with pytest.raises(ExecutionError, match=r"cannot be compiled: .* at most"):
        native.wait(60)
    assert native.tier == "interpreter"
    before = native.run(event)
    assert native.run(event) == before == native.run(bytearray(event))
    assert native.counts.evaluated == 3


def test_parameters_changed_by_many_threads_are_all_kept() -> None:
    names = [f"p{i}" for i in range(8)]
    text = " or ".join(f"level = :{name}" for name in names)
    native = Interest(text, "level: f64", params=dict.fromkeys(names, 0.0)).native()

    def change(name: str) -> None:
        for value in range(300):
            native.set_params(**{name: float(value)})

    threads = [threading.Thread(target=change, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert native.params == dict.fromkeys(names, 299.0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_goes_on_where_its_parent_was() -> None:
    """Threads compile and hold locks while the process forks; the child finds neither."""
    pending = [Interest(f"level > {i} or level < -1", "level: f64").native() for i in range(20)]
    record = Interest("level > 1", "level: f64").type.encode(level=100.0)
    held = pending[-1]
    with held._lock:
        child = os.fork()
    if child == 0:  # whatever happens, this process must end here
        code = 1
        try:
            good = all(native.wait(60).test(record) for native in pending)
            fresh = Interest("level > 3 or level < -77", "level: f64").native()
            code = 0 if good and fresh.wait(60).test(record) and held.tier == "native" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(native.wait(60).test(record) for native in pending)


def test_a_process_forks_while_machine_code_is_let_go() -> None:
    """Code that nobody uses any more is taken out of LLVM by who drops it last, outside of our own lock."""

    def made(number: int) -> engine.Code:
        return engine.compile(f"define i32 @f{number}() {{ ret i32 {number} }}", (f"f{number}",), {}, "straight")

    for begin in (0, 10_000, 20_000):
        kept = [made(begin + number) for number in range(200)]
        letting_go = threading.Thread(target=kept.clear)
        letting_go.start()
        child = os.fork()
        if child == 0:  # whatever happens, this process must end here
            code = 1
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(120)
                made(begin + 5_000)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        letting_go.join()
