"""The serial form: nothing lost on the way, and nothing but SerialError from bytes of an enemy."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import SerialError
from headwater.ir import serial
from headwater.ir.verify import verify
from tests import programs
from tests.effort import examples


def both_kinds() -> st.SearchStrategy[programs.Case]:
    return st.booleans().flatmap(lambda t: programs.cases(transforming=t, events=1)).map(lambda drawn: drawn[0])


@settings(max_examples=examples(80), deadline=None)
@given(both_kinds())
def test_round_trip(case: programs.Case) -> None:
    verify(case.program)
    again = serial.loads(serial.dumps(case.program))
    assert again == case.program
    assert serial.dumps(again) == serial.dumps(case.program)


def mutated(form: Any, draw: Any) -> Any:
    """The nested lists with one part replaced, dropped or doubled."""
    if isinstance(form, list) and form and draw(st.integers(0, 9)):
        at = draw(st.integers(0, len(form) - 1))
        how = draw(st.integers(0, 9))
        if how == 0:
            return form[:at] + form[at + 1 :]
        if how == 1:
            return form[: at + 1] + form[at:]
        return [*form[:at], mutated(form[at], draw), *form[at + 1 :]]
    anything = st.one_of(
        st.integers(-2, 40), st.sampled_from([None, True, 0.5, "x", b"x", [], {}, 2**63, -1]), st.just([2, [0]])
    )
    return draw(anything)


@settings(max_examples=examples(150), deadline=None)
@given(both_kinds(), st.data())
def test_mutations_are_refused_or_verified(case: programs.Case, data: st.DataObject) -> None:
    form = msgspec.msgpack.decode(serial.dumps(case.program))
    for _ in range(data.draw(st.integers(1, 3))):
        form = mutated(form, data.draw)
    try:
        program = serial.loads(msgspec.msgpack.encode(form))
    except SerialError:
        return
    verify(program)
    serial.fingerprint(program)


@settings(max_examples=examples(80), deadline=None)
@given(both_kinds(), st.data())
def test_flipped_bytes_are_refused_or_verified(case: programs.Case, data: st.DataObject) -> None:
    raw = bytearray(serial.dumps(case.program))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    for end in (data.draw(st.integers(0, len(raw))), len(raw)):
        with contextlib.suppress(SerialError):
            verify(serial.loads(bytes(raw[:end])))


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xc1", b"x" * (serial.MAX_SIZE + 1), b"\xa1\xff"],
)
def test_rubbish(data: bytes) -> None:
    with pytest.raises(SerialError):
        serial.loads(data)
