"""Every comparison with every odd value of every type, all at once."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headwater.ir.nodes import Call, Cast, Compare, Const, Expr, InSet, IsMissing, Load, Path, Unary
from headwater.types import event_type
from headwater.types import model as m
from tests.match.support import Beside, conjunction, interest_of

FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, math.inf, -math.inf, math.nan, 5e-324, 2.0**53, -(2.0**63), 2.0**64)
TEXTS = ("", "a", "ab", "abc", "b", "a\x00", "é", "\uffff", "😀", "aaaaaaaa", "aaaaaaaab", "a" * 17)
EDGES: dict[m.Type, tuple[Any, ...]] = {
    m.F64: FLOATS,
    m.F32: (0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan),
    m.I8: (-128, -1, 0, 1, 127),
    m.U16: (0, 1, 65535),
    m.I64: (-(2**63), -(2**53) - 1, -1, 0, 1, 2**53 + 1, 2**63 - 1),
    m.U64: (0, 1, 2**63 - 1, 2**63, 2**64 - 1),
    m.TEXT: TEXTS,
    m.BYTES: (b"", b"\xff", b"\xff\xff", b"\x00", b"a", b"a\xff"),
    m.TIMESTAMP: (m.TIMESTAMP_MIN, -1, 0, m.TIMESTAMP_MAX),
    m.Enum("Colour", (("RED", 7), ("BLUE", -2), ("NONE", 0))): (7, -2, 0),
}
OPS = ("eq", "ne", "lt", "le", "gt", "ge")


def conditions(load: Load, edges: tuple[Any, ...]) -> list[Expr]:
    type = load.type
    constants = [Const(value, type) for value in edges]
    ops: Any = OPS if not isinstance(type, m.Enum) else OPS[:2]
    made: list[Expr] = [Compare(op, load, constant) for op in ops for constant in constants]
    made += [IsMissing(load), Unary("not", IsMissing(load), m.BOOL)]
    members = tuple(constant for constant in constants if constant.value == constant.value)
    made += [InSet(load, members[:2]), InSet(load, members[1:])]
    if type in (m.I64, m.U64):
        floats = [Const(value, m.F64) for value in FLOATS]
        made += [Compare(op, Cast(load, m.F64, m.F64), constant) for op in ops for constant in floats]
        other = m.U64 if type == m.I64 else m.I64
        made += [Compare(op, load, Const(value, other)) for op in ops for value in EDGES[other]]
    if type == m.TEXT:
        made += [Call("starts_with", (load, constant), m.BOOL) for constant in constants]
    return made + [Unary("not", each, m.BOOL) for each in made]


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("type", EDGES, ids=str)
def test_edges(type: m.Type, optional: bool) -> None:
    record = m.Record("Edge", (m.Field("x", type, optional),))
    events = [{"x": value} for value in (*EDGES[type], *([None] if optional else []))]
    made = conditions(Load(Path(("x",)), type, m.promote(type)), EDGES[type])
    for plan in ("index", "scan"):
        beside = Beside(event_type(record), plan=plan)
        for condition in made:
            beside.add(interest_of(conjunction(record, [condition])))
        beside.check(events)
