"""A transformation's output is a valid event, whatever its input is: what is malformed leaves the event undecided."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater import Interest
from headwater.ir import interp
from headwater.ir.interp import Fault, Status
from headwater.native import compile_record
from headwater.types import EventType
from headwater.types import model as m
from tests.effort import examples
from tests.native.support import Events, analysis_of
from tests.native.test_malformed import mutated
from tests.programs import FUEL, Case, cases

KIND = m.Enum("Kind", (("A", 0), ("B", 7)))
INNER = m.Record("Inner", (m.Field("at", m.TIMESTAMP), m.Field("on", m.BOOL), m.Field("name", m.TEXT, True)))
RECORD = m.Record(
    "Everything",
    (
        m.Field("t", m.TIMESTAMP),
        m.Field("s", m.TEXT),
        m.Field("kind", KIND),
        m.Field("fixed", m.Array(m.TIMESTAMP, (2,))),
        m.Field("times", m.List(m.TIMESTAMP)),
        m.Field("flags", m.List(m.BOOL)),
        m.Field("kinds", m.List(KIND)),
        m.Field("names", m.List(m.TEXT)),
        m.Field("inner", INNER),
        m.Field("many", m.List(INNER)),
    ),
)
COPY = "{ " + " ".join(f"output.{field.name} = input.{field.name};" for field in RECORD.fields) + " return 1; }"


def _micros(year: int) -> bytes:
    return struct.pack("<q", int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000)


def _time(year: int) -> datetime:
    return datetime(year, 1, 1, tzinfo=UTC)


EVENT: dict[str, Any] = {
    "t": _time(2001),
    "s": "grün",
    "kind": "B",
    "fixed": [_time(2002), _time(2003)],
    "times": [_time(2004), _time(2005)],
    "flags": [True, True, True],
    "kinds": ["A", "B", "A"],
    "names": ["eins", "zwölf"],
    "inner": {"at": _time(2006), "on": False, "name": "tür"},
    "many": [{"at": _time(2007), "on": False, "name": "öl"}, {"at": _time(2008), "on": False, "name": None}],
}
NO_TIME = struct.pack("<q", 1 << 62)
DAMAGES = {
    "a time beyond all years": (_micros(2001), NO_TIME),
    "a time before all years": (_micros(2001), struct.pack("<q", -(1 << 62))),
    "a text that is no UTF-8": ("grün".encode(), b"gr\xff\xffn"),
    "half a character": ("grün".encode(), b"gr\xc3nn"),
    "the code of no member": (struct.pack("<i", 7), struct.pack("<i", 5)),
    "a time in an array": (_micros(2003), NO_TIME),
    "a time in a list": (_micros(2005), NO_TIME),
    "a boolean that is 2": (b"\1\1\1", b"\1\2\1"),
    "a code in a list": (struct.pack("<iii", 0, 7, 0), struct.pack("<iii", 0, 8, 0)),
    "a text in a list": ("zwölf".encode(), b"zw\xed\xa0\x80f"),
    "a time in a record": (_micros(2006), NO_TIME),
    "a text in a record": ("tür".encode(), b"t\xf5\x80r"),
    "a time in a list of records": (_micros(2008), NO_TIME),
    "a text in a list of records": ("öl".encode(), b"\xc0\xb6l"),
}


@pytest.fixture(scope="module")
def copy() -> Interest:
    return Interest(COPY, RECORD, output=RECORD)


def test_what_is_well_formed_passes_unchanged(copy: Interest) -> None:
    record = copy.type.encode(EVENT)
    found = copy.native().wait().run(record)
    assert found.status is Status.PASSED and found.faults == Fault.NONE and found.output is not None
    assert copy.output is not None and copy.output.decode_raw(found.output) == copy.type.decode_raw(record)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_record_with_a_value_that_its_type_does_not_have(copy: Interest, damage: tuple[bytes, bytes]) -> None:
    old, new = damage
    record = copy.type.encode(EVENT)
    assert old in record and len(old) == len(new)
    bad = record.replace(old, new, 1)
    for native in (copy.native().wait(), copy.native()):  # the second may still be interpreted
        found = native.run(bad)
        assert (found.status, found.faults, found.output) == (Status.UNDECIDED, Fault.MALFORMED, None)


def test_what_is_not_in_the_output_does_not_matter(copy: Interest) -> None:
    interest = Interest("{ output.s = input.s; return 1; }", RECORD, output="s: text")
    bad = copy.type.encode(EVENT).replace(*DAMAGES["a time in a list"])
    assert interest.native().wait().run(bad).status is Status.PASSED


def test_what_was_set_and_then_set_anew_does_not_matter(copy: Interest) -> None:
    text = '{ output.s = input.s; output.s = "good"; return 1; }'
    interest = Interest(text, RECORD, output="s: text")
    bad = copy.type.encode(EVENT).replace(*DAMAGES["a text that is no UTF-8"])
    assert interest.native().wait().run(bad).status is Status.PASSED


def test_the_interpreter_says_the_same(copy: Interest) -> None:
    raw = copy.type.to_raw(EVENT)
    for name, value in (("t", 1 << 62), ("kind", 5), ("times", [0, 1 << 62]), ("s", "\udcff"), ("names", ["\udcff"])):
        found = interp.run(copy.program, {**raw, name: value})
        assert (found.status, found.faults, found.output) == (Status.UNDECIDED, Fault.MALFORMED, None), name
    assert interp.run(copy.program, raw).passed


def _column(batch: Any, name: str, row: int, old: bytes, new: bytes) -> Any:
    """The batch with other bytes in the buffers of one column."""
    at = batch.schema.get_field_index(name)
    column = batch.column(at)
    buffers = []
    for buffer in column.buffers():
        data = None if buffer is None else buffer.to_pybytes()
        buffers.append(None if data is None else pa.py_buffer(data.replace(old, new, 1)))
    made = _rebuilt(column.type, len(column), buffers)
    return batch.set_column(at, batch.schema.field(at), made)


def _rebuilt(type: Any, length: int, buffers: list[Any]) -> Any:
    if pa.types.is_list(type):
        inner = struct.unpack_from("<i", buffers[1].to_pybytes(), 4 * length)[0]
        child = _rebuilt(type.value_type, inner, buffers[2:])
        return pa.Array.from_buffers(type, length, buffers[:2], children=[child])
    return pa.Array.from_buffers(type, length, buffers)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("t", _micros(2001), NO_TIME),
        ("s", "grün".encode(), b"gr\xff\xffn"),
        ("times", _micros(2005), NO_TIME),
        ("names", "zwölf".encode(), b"zw\xed\xa0\x80f"),
    ],
)
def test_a_batch_with_such_a_value_loses_only_its_row(name: str, old: bytes, new: bytes) -> None:
    record = m.Record("Some", tuple(f for f in RECORD.fields if f.name in ("t", "s", "times", "names")))
    text = "{ " + " ".join(f"output.{f.name} = input.{f.name};" for f in record.fields)
    interest = Interest(text + ' return input.s != "no"; }', record, output=record)
    other = {"t": _time(2010), "s": "no", "times": [], "names": []}
    good = {**other, "s": "good", "times": [_time(2011)], "names": ["ä"]}
    event = {name: EVENT[name] for name in ("t", "s", "times", "names")}
    batch = _column(interest.type.to_arrow([good, other, event, good, other]), name, 2, old, new)
    native = interest.native()
    result = native.batch(batch)
    assert result.selection.to_pylist() == [True, False, None, True, False]
    counts = result.counts
    assert (counts.passed, counts.rejected, counts.undecided, counts.faults) == (2, 2, 1, {Fault.MALFORMED: 1})
    assert native.counts == counts
    result.output.validate(full=True)
    assert result.output.to_pylist() == interest.type.to_arrow([good, good]).to_pylist()


@settings(deadline=None, max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(cases(transforming=True, meta=False), st.data())
def test_whatever_the_bytes_what_passes_is_a_valid_event(case: tuple[Case, Events], data: st.DataObject) -> None:
    made, events = case
    analysis = analysis_of(made)
    if analysis is None or made.program.output is None:
        return
    program = compile_record(analysis, params=made.params, fuel=FUEL)
    record = EventType(made.program.input).encode(events[0][0])
    for _ in range(6):
        found = program.run(data.draw(mutated(record)))
        if found.passed:
            assert found.output is not None
            EventType(made.program.output).validate(found.output)
