"""The event, parameters and outputs that the tests of E-Code share, and the two programs of ECho."""

from __future__ import annotations

from typing import Any

from headwater.ir.interp import EventContext, Outcome, initial_state, run
from headwater.ir.nodes import ParamDecl, Program
from headwater.lang import ecode
from headwater.types.model import (
    BOOL,
    BYTES,
    F32,
    F64,
    I8,
    I32,
    I64,
    TEXT,
    TIMESTAMP,
    U8,
    U64,
    Array,
    Enum,
    Field,
    List,
    Record,
)

# The two programs of ECho, section 3.2, as they are printed there.
ECHO_FILTER = """{
    if (input.level > 0.5) {
        return 1; /* submit event into derived channel */
    }
}
"""
ECHO_AVERAGE = """{
    int i;
    int j;
    double sum = 0.0;
    for(i = 0; i<37; i= i+1) {
        for(j = 0; j<253; j=j+1) {
            sum = sum + input.wind_velocity[j][i];
        }
    }
    output.average_velocity = sum / (37 * 253);
    return 1;
}
"""

KIND = Enum("Kind", (("USER", 1), ("ADMIN", 2)))
POSITION = Record("Position", (Field("x", F64), Field("y", F64)))
EVENT = Record(
    "Reading",
    (
        Field("level", F64),
        Field("n", I32),
        Field("small", I8),
        Field("byte", U8),
        Field("big", U64),
        Field("ok", BOOL),
        Field("name", TEXT),
        Field("note", TEXT, True),
        Field("raw", BYTES),
        Field("at", TIMESTAMP),
        Field("kind", KIND),
        Field("position", POSITION),
        Field("maybe", POSITION, True),
        Field("values", List(F32)),
        Field("grid", Array(I32, (2, 3))),
        Field("text", TEXT),
    ),
)
VALUES: dict[str, Any] = {
    "level": 0.75,
    "n": 7,
    "small": -3,
    "byte": 200,
    "big": 1 << 63,
    "ok": True,
    "name": "badge é",
    "note": None,
    "raw": b"\0\1",
    "at": 1_770_000_000_000_000,
    "kind": 1,
    "position": {"x": 3.0, "y": 4.0},
    "maybe": None,
    "values": [1.5, 2.5],
    "grid": [[1, 2, 3], [4, 5, 6]],
    "text": "t",
}
OUT = Record(
    "Out",
    (
        Field("x", I32, True),
        Field("y", F64, True),
        Field("kind", KIND, True),
        Field("position", POSITION, True),
        Field("grid", Array(I32, (2, 3)), True),
        Field("label", TEXT, True),
    ),
)
PARAMS = (
    ParamDecl("limit", "scalar", F64),
    ParamDecl("badges", "set", I64),
    ParamDecl("owner", "map", I64, TEXT),
    ParamDecl("names", "set", TEXT),
)
PARAM_VALUES = {"limit": 0.5, "badges": frozenset({7, 9}), "owner": {7: "Ann"}, "names": frozenset({"t"})}
META = EventContext("hall", "node-1", 42, 1_770_000_000_500_000)


def parse(text: str, *, output: Record | None = None) -> Program:
    return ecode.parse(text, EVENT, output=output, params=PARAMS)


def judge(text: str, *, output: Record | None = None, **changes: Any) -> Outcome:
    program = parse(text, output=output)
    return run(program, VALUES | changes, meta=META, params=PARAM_VALUES, state=initial_state(program))
