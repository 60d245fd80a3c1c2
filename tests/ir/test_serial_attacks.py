"""Serial forms made by hand to cost more than they weigh: each is refused, or read in a moment and little memory."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any

import msgspec
import pytest

from headwater.errors import SerialError
from headwater.ir import serial
from headwater.ir.verify import verify

FIRST = 32  # the number of the first type in the table
EVENT = [3, "Event", [["x", 4, False], ["on", 0, True]]]
PASS = [8, [0, 0, True]]
MEGABYTE = 1 << 20


def form(types: Any, body: Any, *, output: int | None = None, variables: Any = (), texts: Any = ()) -> bytes:
    """The last type is the input."""
    return msgspec.msgpack.encode([1, types, FIRST + len(types) - 1, output, [], list(variables), body, *texts])


def doubling(levels: int, start: int) -> list[Any]:
    """Records of two records of two records …"""
    made: list[Any] = []
    for level in range(levels):
        inner = start + level - 1 if level else 4
        made.append([3, f"R{level}", [["a", inner, False], ["b", inner, False]]])
    return made


def twins(statement: list[Any]) -> bytes:
    """Two large types that are equal, written twice, and a program that compares them often."""
    left, right = doubling(12, FIRST), doubling(12, FIRST + 12)
    output = [3, "Output", [["a", FIRST + 11, True]]]
    types = [*left, *right, output, [3, "Input", [["a", FIRST + 11, True], ["b", FIRST + 23, True]]]]
    return form(types, [statement] * 2_000 + [PASS], output=FIRST + 24)


FORMS = {
    "a million empty lists": b"\xdd\x00\x0f\xff\xf0" + b"\x90" * 0xFFFF0,
    "a million empty maps": b"\xdd\x00\x0f\xff\xf0" + b"\x80" * 0xFFFF0,
    "as types": b"\x97\x01\xdd\x00\x0f\xff\xe0" + b"\x90" * 0xFFFE0 + b"\x20\xc0\x90\x90\x90",
    "deep lists": b"\x91" * MEGABYTE,
    "short texts": b"\xdd\x00\x07\xff\xf0" + b"\xa1x" * 0x7FFF0,
    "equal types, set": twins([2, [0], [1, FIRST + 23]]),
    "equal types, copied": twins([3, [0], [1]]),
    "state": form([EVENT], [PASS], variables=[["v", 4, [65_536], True, [0] * 65_536]] * 10),
    "a huge array": form([[1, 4, [(1 << 31) - 1] * 16], [3, "E", [["k", FIRST, False]]]], [PASS]),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.timeout(60)  # it must end by itself, long before this
def test_little_is_spent(name: str) -> None:
    data = FORMS[name]
    with contextlib.suppress(SerialError):
        serial.loads(data)
    tracemalloc.start()
    with contextlib.suppress(SerialError):
        serial.loads(data)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 50_000_000


def test_equal_types_are_one() -> None:
    program = serial.loads(form([EVENT, EVENT, [3, "Input", [["a", FIRST, False], ["b", FIRST + 1, False]]]], [PASS]))
    a, b = program.input.fields
    assert a.type is b.type
    verify(program)


@pytest.mark.parametrize("notation", ["cobol", "Python", "x" * 1_000])
def test_an_unknown_notation_is_refused(notation: str) -> None:
    with pytest.raises(SerialError, match="a notation"):
        serial.loads(form([EVENT], [PASS], texts=[notation, "text"]))
    assert serial.loads(form([EVENT], [PASS], texts=["python", "text"])).notation == "python"
