"""Every operator, cast, function and reduction at its extremes: the Column has the interpreter's value, to the bit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from headwater.ir.build import Builder
from headwater.ir.functions import FUNCTIONS
from headwater.ir.interp import EventContext
from headwater.ir.library import round_f32
from headwater.ir.nodes import NOWHERE, Binary, Call, Cast, Compare, Const, Expr, InSet, Lookup, Unary
from headwater.spark.column import Lowering, Unsupported
from headwater.spark.sql_text import Sql
from headwater.types import model as m
from tests.programs import PATTERNS
from tests.spark.support import COLOUR, chunks, equal, evaluate, frame, raw_column, select

I64_MIN, I64_MAX, U64_MAX = -(2**63), 2**63 - 1, 2**64 - 1
EDGES: dict[m.Type, list[Any]] = {
    m.BOOL: [True, False, None],
    m.I64: [I64_MIN, I64_MIN + 1, -(2**31) - 1, -7, -1, 0, 1, 2, 7, 63, 64, 2**32, I64_MAX - 1, I64_MAX, None],
    m.U64: [0, 1, 2, 7, 63, 64, 2**31, 2**63 - 1, 2**63, U64_MAX - 1, U64_MAX, None],
    m.F64: [0.0, -0.0, 0.5, -0.5, 1.0, -1.5, 2.5, 0.1, 127.9, -128.9, 2.0**31, 2.0**53 + 2, 2.0**63,
            -(2.0**63), 2.0**64, 1.8446744073709550e19, 1e300, -1e300, 5e-324, math.inf, -math.inf, math.nan, None],
    m.TEXT: ["", "a", "A", "aB", "b%", "\\", "'", "$", "${x}", "é", "😀", "\uffff", "a\x00b", "Ab\nc", "!",
             "a!%", None],
    m.BYTES: [b"", b"\x00", b"\x7f", b"\x80", b"\xff\x00", None],
    m.TIMESTAMP: [m.TIMESTAMP_MIN, m.TIMESTAMP_MIN + 1, -1, 0, 1, 951_868_799_999_999, 1_709_251_200_000_000,
                  1_762_066_800_000_000, m.TIMESTAMP_MAX, None],
    COLOUR: [3, -7, 2**31 - 1, None],
}  # fmt: skip
NARROW = (m.I8, m.I16, m.I32, m.U8, m.U16, m.U32, m.F32)
LISTS: dict[m.Type, list[Any]] = {
    m.F64: [
        (),
        (0.0, -0.0),
        (-0.0, 0.0),
        (-0.0,),
        (1.0, math.nan, -1.0),
        (1e308, 1e308, -1e308),
        (math.inf, -math.inf),
    ],
    m.F32: [(), (0.0, -0.0), (0.5, math.nan), (1.5, -2.5), (-0.0,), (math.inf,), (3.0,)],
    m.I64: [(), (1, I64_MAX), (I64_MAX, 1, -5), (I64_MIN, -1), (3, -2, 7), (0,), (2**53 + 1, 1)],
    m.I8: [(), (127, 1), (-128, -128), (0,), (5, 5), (1, 2, 3), (-1,)],
    m.U64: [(), (U64_MAX,), (U64_MAX, 1), (2**63, 2**63), (5, 3), (0,), (2**53 + 1, 1)],
    m.TEXT: [(), ("a",), ("b", "c"), ("",), ("é",), ("x",), ("y",)],
}


def _name(prefix: str, type: m.Type) -> str:
    return f"{prefix}_{type}"


RECORD = m.Record(
    "Edges",
    (
        *(m.Field(_name(p, t), t, True) for t in EDGES for p in ("a", "b")),
        *(m.Field(_name("n", t), t, True) for t in NARROW),
        *(m.Field(_name("l", t), m.List(t), True) for t in LISTS),
        m.Field("grid", m.Array(m.F64, (2, 2)), True),
        m.Field("cells", m.Array(m.I16, (2, 2)), True),
    ),
)


def _events() -> list[dict[str, Any]]:
    """Each pair of edge values of each type in some row."""
    pairs = {type: itertools.cycle(itertools.product(values, values)) for type, values in EDGES.items()}
    narrow = {t: itertools.cycle([*_narrow_edges(t), None]) for t in NARROW}
    lists = {t: itertools.cycle([*values, None]) for t, values in LISTS.items()}
    grids = itertools.cycle(
        [((0.0, -0.0), (1.0, 2.0)), ((math.nan, 1.0), (-1.0, 5.0)), ((1e308, 1e308), (0.1, 0.2)), None]
    )
    cells = itertools.cycle([((1, -2), (3, 32767)), ((-32768, 0), (0, 0)), None])
    made = []
    for _ in range(max(len(values) ** 2 for values in EDGES.values())):
        event: dict[str, Any] = {}
        for type in EDGES:
            event[_name("a", type)], event[_name("b", type)] = next(pairs[type])
        event |= {_name("n", t): next(values) for t, values in narrow.items()}
        event |= {_name("l", t): next(values) for t, values in lists.items()}
        made.append(event | {"grid": next(grids), "cells": next(cells)})
    return made


def _narrow_edges(type: m.Scalar) -> list[Any]:
    if type.is_float:
        return [round_f32(x) for x in EDGES[m.F64] if x is not None]
    low, high = type.range
    return sorted({low, low + 1, 0, 1, high - 1, high})


B = Builder(RECORD)


def column(prefix: str, type: m.Type) -> Expr:
    return B.field(_name(prefix, type), NOWHERE)


def constants(type: m.Type) -> list[Const]:
    return [Const(value, type) for value in EDGES[type] if value is not None]


def operators() -> list[Expr]:
    made: list[Expr] = []
    ops: dict[m.Type, tuple[str, ...]] = {
        m.I64: ("add", "sub", "mul", "tdiv", "tmod", "fdiv", "fmod", "and", "or", "xor", "shl", "shr"),
        m.U64: ("add", "sub", "mul", "tmod", "fmod"),
        m.F64: ("add", "sub", "mul", "div"),
    }
    for type, names in ops.items():
        few = [c for c in constants(type) if c.value in (-7, -1, 0, 1, 7, 63, 64, 2.5, I64_MIN)]
        for op in names:
            made.append(Binary(op, column("a", type), column("b", type), type))  # type: ignore[arg-type]
            made += [Binary(op, column("a", type), c, type) for c in few]  # type: ignore[arg-type]
            made.append(Binary(op, few[-1], column("b", type), type))  # type: ignore[arg-type]
    t = m.TIMESTAMP
    made += [Binary("sub", column("a", t), column("b", t), m.I64)]
    made += [Binary(op, column("a", t), column("b", m.I64), t) for op in ("add", "sub")]  # type: ignore[arg-type]
    made += [Binary("add", column("a", t), Const(n, m.I64), t) for n in (1, -1, I64_MAX)]
    made += [Unary("neg", column("a", type), type) for type in (m.I64, m.F64)]
    made += [Unary("bitnot", column("a", type), type) for type in (m.I64, m.U64)]
    made += [B.unary("not", column("a", m.BOOL), NOWHERE)]
    made += [B.logic(op, [column("a", m.BOOL), column("b", m.BOOL)], NOWHERE) for op in ("and", "or")]  # type: ignore[arg-type]
    return made


def nested() -> list[Expr]:
    """Sums of sums and so on: Spark must not take one order for another, since other steps overflow."""
    a, b, i = column("a", m.I64), column("b", m.I64), m.I64
    made: list[Expr] = []
    for outer, inner in itertools.product(("add", "sub", "mul"), repeat=2):
        for x, y, z in ((a, Const(8, i), b), (a, b, Const(-3, i)), (Const(I64_MAX, i), a, b), (a, b, a)):
            made.append(Binary(outer, Binary(inner, x, y, i), z, i))  # type: ignore[arg-type]
            made.append(Binary(outer, x, Binary(inner, y, z, i), i))  # type: ignore[arg-type]
            hidden = B.cond(Const(True, m.BOOL), Binary(inner, x, y, i), z, NOWHERE)  # type: ignore[arg-type]
            made.append(Binary(outer, hidden, z, i))  # type: ignore[arg-type]
    shifted = Binary("shl", Binary("mul", a, b, i), Const(3, i), i)
    return [*made, shifted, Call("seconds", (Binary("mul", a, b, i),), i), Call("seconds", (shifted,), i)]


def comparisons() -> list[Expr]:
    made: list[Expr] = []
    for type in EDGES:
        ordered = type not in (m.BOOL, COLOUR)
        for op in ("eq", "ne", "lt", "le", "gt", "ge")[: None if ordered else 2]:
            made.append(Compare(op, column("a", type), column("b", type)))  # type: ignore[arg-type]
            made += [Compare(op, column("a", type), c) for c in constants(type)[::3]]  # type: ignore[arg-type]
            made += [Compare(op, constants(type)[-1], column("b", type))]  # type: ignore[arg-type]
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        made.append(Compare(op, column("a", m.I64), column("b", m.U64)))  # type: ignore[arg-type]
        made += [Compare(op, column("a", m.U64), Const(n, m.I64)) for n in (-1, 0, 7)]  # type: ignore[arg-type]
        for type in NARROW:
            values = (
                [0.1, 0.5, 1e300, math.nan, -math.inf] if type == m.F32 else [type.range[0] - 1, 0, type.range[1] + 1]
            )
            wide = m.promote(type)
            made += [Compare(op, column("n", type), Const(v, wide)) for v in values]  # type: ignore[arg-type]
        made.append(Compare(op, column("n", m.F32), column("b", m.F64)))  # type: ignore[arg-type]
        made.append(Compare(op, column("n", m.I8), column("n", m.U32)))  # type: ignore[arg-type]
    return made + [Unary("not", c, m.BOOL) for c in made[::5]]


def casts() -> list[Expr]:
    numbers = [t for t in m.SCALARS.values() if t.is_number]
    made: list[Expr] = [
        Cast(column("a", source), to, m.promote(to))
        for source in (m.BOOL, m.I64, m.U64, m.F64)
        for to in (*numbers, m.BOOL)
        if source != to
    ]
    made += [Cast(column("n", m.F32), to, m.promote(to)) for to in numbers]
    made += [Cast(column("a", m.I64), m.TIMESTAMP, m.TIMESTAMP), Cast(column("a", m.TIMESTAMP), m.I64, m.I64)]
    return made


def functions() -> list[Expr]:
    made: list[Expr] = []
    for name, function in FUNCTIONS.items():
        if function.libm or name == "like":
            continue
        kinds: dict[str, tuple[m.Type, ...]] = {
            "n": (m.I64, m.U64, m.F64),
            "f": (m.F64,),
            "t": (m.TEXT,),
            "b": (m.TEXT, m.BYTES),
            "T": (m.TIMESTAMP,),
            "e": (COLOUR,),
            "a": tuple(EDGES),
        }
        letters = function.params.rstrip("*")
        for type in kinds[letters[0]]:
            args = [column("ab"[i % 2], type) for i in range(len(letters))]
            result = type if function.result == "same" else m.SCALARS[function.result]
            made.append(Call(name, tuple(args), result))
            if len(letters) > 1:
                constant = constants(type)[len(name) % len(constants(type))]
                made.append(Call(name, (*args[:-1], constant), result))
    for part in ("starts_with", "ends_with", "contains"):
        made += [Call(part, (column("a", m.TEXT), c), m.BOOL) for c in constants(m.TEXT)[::2]]
    patterns = [*PATTERNS, "a!%", "%!", "\\a%", "a\\\\", "é", "😀", "_\n_", "%\x00_", "'"]
    made += [Call("like", (column("a", m.TEXT), Const(p, m.TEXT)), m.BOOL) for p in patterns]
    made += [
        Call("min", tuple(column(p, m.F64) for p in "aba"), m.F64),
        Call("max", (constants(m.F64)[0], column("b", m.F64)), m.F64),
    ]
    return made


def arrays() -> list[Expr]:
    made: list[Expr] = []
    for type in LISTS:
        over = column("l", type)
        made += [B.reduce("len", over, NOWHERE)]
        if type != m.TEXT:
            made += [B.reduce(op, over, NOWHERE) for op in ("sum", "mean", "min", "max")]
        made += [B.index(over, Const(i, m.I64), NOWHERE) for i in (-1, 0, 1, 2**32, I64_MAX)]
        made += [B.index(over, column("a", i), NOWHERE) for i in (m.I64, m.U64)]
        made += [B.is_missing(over, NOWHERE)]
    for name in ("grid", "cells"):
        over = B.field(name, NOWHERE)
        made += [B.reduce(op, over, NOWHERE) for op in ("len", "sum", "mean", "min", "max")]
        row = B.index(over, Const(1, m.I64), NOWHERE)
        made += [B.reduce("sum", row, NOWHERE), B.index(row, column("b", m.I64), NOWHERE)]
    return made


def sets() -> list[tuple[Expr, dict[str, Any]]]:
    """Membership and look-up; more than ten members make Spark use a hash table."""
    made: list[tuple[Expr, dict[str, Any]]] = []
    for type, values in EDGES.items():
        some = [Const(v, type) for v in values if v is not None]
        made += [(InSet(column("a", type), tuple(some[::2])), {}), (InSet(column("a", type), tuple(some)), {})]
        if isinstance(type, m.Enum):
            continue
        keys = [v for v in values if v is not None and v == v]
        for members in (frozenset(), frozenset(keys[:2]), frozenset(keys)):
            made.append((InSet(column("a", type), (), "chosen"), {"chosen": members}))
        table = dict(zip(keys, range(len(keys)), strict=True))
        made.append((Lookup("table", column("a", type), m.I64), {"table": table}))
        made.append((Lookup("table", column("a", type), m.TEXT), {"table": dict.fromkeys(keys[:3], "'\\")}))
    for type in NARROW:
        inside = EDGES[m.F64][:9] if type == m.F32 else [type.range[0] - 1, 0, 1, type.range[1]]
        made.append((InSet(column("n", type), tuple(Const(v, m.promote(type)) for v in inside)), {}))
    return made


EVENTS = _events()
Case = tuple[Expr, dict[str, Any]]


@pytest.fixture(scope="module")
def rows(spark: Any) -> Any:
    made = frame(spark, RECORD, EVENTS).cache()
    assert made.count() == len(EVENTS)
    return made


@cache
def interpreted(make: Callable[[], list[Case]]) -> list[tuple[Case, list[Any]]]:
    """All cases, with the interpreter's value of each event: the same in both of Spark's modes."""
    events = [(event, EventContext()) for event in EVENTS]
    return [((expr, params), evaluate(expr, events, params, RECORD)) for expr, params in make()]


def check(rows: Any, make: Callable[[], list[Case]]) -> None:
    assert not B.problems
    for part in chunks(interpreted(make), 80):
        lowered = [Lowering(params).lower(expr) for (expr, params), _ in part]
        assert not [sql for sql in lowered if isinstance(sql, Unsupported)]
        found = select(rows, [sql.text for sql in lowered if isinstance(sql, Sql)])
        for i, ((expr, _), expected) in enumerate(part):
            values = raw_column(found[f"c{i}"], expr.type)
            for event, value, known in zip(EVENTS, values, expected, strict=True):
                assert equal(value, known), (lowered[i], event, value, known)


def plain(make: Callable[[], list[Expr]]) -> Callable[[], list[Case]]:
    return lambda: [(expr, {}) for expr in make()]


MADE = {make.__name__: plain(make) for make in (operators, nested, comparisons, casts, functions, arrays)}


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("made", MADE)
def test_extremes(rows: Any, made: str, ansi: str) -> None:
    check(rows, MADE[made])


@pytest.mark.usefixtures("compiled")
def test_sets_and_maps(rows: Any, ansi: str) -> None:
    check(rows, sets)


def test_what_a_column_cannot_say_is_told_with_its_reason() -> None:
    a, u = column("a", m.F64), column("a", m.U64)
    cases: list[tuple[Expr, str]] = [
        (Call("exp", (a,), m.F64), "last bit"),
        (Binary("and", u, u, m.U64), "bit operators"),
        (Binary("tdiv", u, u, m.U64), "division"),
        (InSet(column("a", m.I64), (), "chosen"), "3,000 members"),
        (Lookup("table", column("a", m.I64), m.I64), "1,000 entries"),
    ]
    params = {"chosen": frozenset(range(3000)), "table": {i: i for i in range(1000)}}
    for expr, reason in cases:
        found = Lowering(params).lower(expr)
        assert isinstance(found, Unsupported) and reason in found.reason


def test_a_column_that_would_grow_without_end_is_given_up() -> None:
    expr = column("a", m.F64)
    for _ in range(40):
        expr = Call("floor", (expr,), m.F64)
    found = Lowering({}).lower(expr)
    assert isinstance(found, Unsupported) and "longer than" in found.reason


def test_deep_expressions_are_planned(rows: Any) -> None:
    expr = column("a", m.I64)
    for _ in range(140):
        expr = Binary("add", expr, Const(1, m.I64), m.I64)
    sql = Lowering({}).lower(expr)
    assert isinstance(sql, Sql)
    assert select(rows, [sql.text]).num_rows
