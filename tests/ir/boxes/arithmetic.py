"""Random numbers, boxes around them and points in these, grown from one seed: quick enough for many."""

from __future__ import annotations

import math
import random
from typing import Any

from headwater.ir.boxes import Box, Interval
from headwater.ir.build import Builder
from headwater.ir.library import round_f32
from headwater.ir.nodes import NOWHERE as W
from headwater.ir.nodes import Const, Expr, Program
from headwater.ir.value import ValueBuilder
from headwater.types.model import F32, F64, I32, I64, TIMESTAMP, U64, Field, Record, Type

INPUT = Record(
    "Numbers",
    (
        Field("x", F64),
        Field("y", F64),
        Field("z", F64, optional=True),
        Field("s", F32),
        Field("i", I32),
        Field("n", I64),
        Field("u", U64),
        Field("t", TIMESTAMP),
    ),
)
HOSTILE = (0.0, -0.0, 5e-324, -5e-324, 1e-310, 1.0, -1.0, 1e16, 9007199254740993.0, 1e154, 1.7e308, -1.7e308, math.inf,
           -math.inf)  # fmt: skip
WHOLE = (0, 1, -1, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1)


class Grower:
    """Expressions of numbers in which inputs come again and again."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.wild = self.random.random() < 0.3
        self.plain = self.random.random() < 0.4  # nothing but arithmetic, which has slopes

    def program(self, depth: int) -> Program:
        """A number."""
        self.b: Builder = ValueBuilder(INPUT)
        made = self.floating(depth) if self.random.random() < 0.7 else self.whole(I64, depth)
        return self.b.finish(self.b.return_(made, W))

    def condition(self, depth: int) -> Program:
        """A comparison of two numbers."""
        self.b = Builder(INPUT)
        op = self.random.choice(("lt", "le", "gt", "ge", "eq", "ne"))
        grow = self.present if self.random.random() < 0.7 else lambda d: self.whole(I64, d)
        made = self.b.compare(op, grow(depth), grow(self.random.randrange(depth)), W)
        return self.b.finish(self.b.return_(made, W))

    def against(self, value: Expr, op: Any, limit: Any) -> Program:
        """The last number, compared with a constant."""
        b = Builder(INPUT)
        return b.finish(b.return_(b.compare(op, value, Const(limit, value.type), W), W))

    def present(self, depth: int) -> Expr:
        """A float, sometimes one that is there whatever is missing."""
        made = self.floating(depth)
        return made if self.random.random() < 0.7 else self.b.call("coalesce", [made, self.floating(0)], W)

    def number(self) -> float:
        if self.wild and self.random.random() < 0.3:
            return self.random.choice(HOSTILE)
        return self.random.choice((2.0, 0.5, -3.0, 0.1, self.random.uniform(-10, 10)))

    def floating(self, depth: int) -> Expr:
        b, pick = self.b, self.random
        if depth <= 0 or pick.random() < 0.1:
            if pick.random() < 0.2:
                return Const(self.number(), F64)
            return self.b.cast(b.field(pick.choice("xxyyzsin"), W), F64, W)

        def grow() -> Expr:
            return self.floating(depth - 1)

        kind = pick.randrange(12 if self.plain else 20)
        if kind < 12:
            return b.binary(("add", "sub", "mul", "mul", "sub", "div")[kind % 6], grow(), grow(), W)
        if kind < 17:
            fn = pick.choice(("abs", "sqrt", "min", "max", "floor", "ceil", "exp", "log", "sin", "cos", "fmod",
                              "distance"))  # fmt: skip
            return b.call(fn, [grow() for _ in range({"min": 2, "max": 2, "fmod": 2, "distance": 4}.get(fn, 1))], W)
        if kind == 17:
            by = Const(pick.choice((2.0, 3.0, -1.0, -2.0, 0.5, 0.0, self.number())), F64)
            return b.call("pow", [grow(), by if pick.random() < 0.8 else grow()], W)
        if kind == 18:
            return b.cast(grow(), F32, W)
        if pick.random() < 0.4:
            return b.cast(self.whole(I64, depth - 1), F64, W)
        if pick.random() < 0.4:
            return b.call("coalesce", [b.field("z", W), grow()], W)
        test = pick.choice((
            lambda: b.compare("lt", grow(), grow(), W),
            lambda: b.is_missing(grow(), W),
            lambda: b.call("is_nan", [grow()], W),
        ))()  # fmt: skip
        return b.cond(test, grow(), grow(), W)

    def whole(self, type: Type, depth: int) -> Expr:
        b, pick = self.b, self.random
        if depth <= 0 or pick.random() < 0.1:
            if type == U64:
                return b.field("u", W)
            return Const(pick.choice((2, 3, -5, *WHOLE[:-1])), I64) if pick.random() < 0.2 else b.field(
                pick.choice("iin"), W)  # fmt: skip

        def grow() -> Expr:
            return self.whole(type, depth - 1)

        kind = pick.randrange(14)
        if kind < 9:
            return b.binary(("add", "sub", "mul")[kind % 3], grow(), grow(), W)
        if kind == 9:
            return b.binary(pick.choice(("tdiv", "fdiv", "tmod", "fmod", "and", "xor")), grow(), grow(), W)
        if kind == 10:
            fn = pick.choice(("abs", "min", "max"))
            return b.call(fn, [grow()] if fn == "abs" else [grow(), grow()], W)
        if kind == 11 and type == I64:
            return b.cast(self.floating(depth - 1), I64, W)
        if kind == 12 and type == I64:
            return b.binary("sub", b.field("t", W), b.binary("add", b.field("t", W), grow(), W), W)
        if type == I64:
            return b.call(pick.choice(("hour", "day", "year", "weekday")), [b.field("t", W)], W)
        return grow()

    # ── boxes and points ──

    def box(self) -> Box:
        found = Box()
        for field in INPUT.fields:
            if self.random.random() < 0.03:
                continue
            nan = field.type in (F64, F32) and self.random.random() < 0.05
            lo, hi = sorted((self.end(field.type), self.end(field.type)))
            if field.type in (F64, F32) and not self.wild:
                lo, hi = self.narrow(field.type)
            found[field.name] = Interval(lo, hi, nan, field.optional and self.random.random() < 0.3)
        return found

    def narrow(self, type: Type) -> tuple[float, float]:
        middle = self.random.uniform(-20, 20) * 10.0 ** self.random.choice((0, 0, 0, -8, 6, 15))
        width = 10.0 ** self.random.uniform(-12, 1)
        if self.random.random() < 0.3:  # a few floats
            width = math.ulp(middle) * self.random.randrange(9)
        ends = middle - width, middle + width * self.random.choice((0.0, 1.0))
        return ends if type == F64 else (round_f32(ends[0]), round_f32(ends[1]))

    def end(self, type: Type) -> Any:
        pick = self.random
        if type in (F64, F32):
            value = pick.choice((*HOSTILE, pick.uniform(-10, 10), pick.uniform(-1e9, 1e9)))
            return value if type == F64 else round_f32(value)
        assert type in (I32, I64, U64, TIMESTAMP)
        least, most = type.range  # type: ignore[union-attr]
        if type == TIMESTAMP:
            return 1_700_000_000_000_000 + pick.randrange(10**9)
        return min(max(pick.choice((*WHOLE[:5], pick.randint(-50, 50), pick.choice(WHOLE))), least), most)

    def point(self, box: Box) -> dict[str, Any]:
        return {field.name: self.value(box.get(field.name), field) for field in INPUT.fields}

    def value(self, within: Interval | None, field: Field) -> Any:
        """One of the interval's, its ends and flags more often than others."""
        pick = self.random
        if within is None:
            return None if field.optional and pick.random() < 0.3 else self.end(field.type)
        if within.miss and pick.random() < 0.2:
            return None
        if within.nan and pick.random() < 0.2:
            return math.nan
        lo, hi = within.lo, within.hi
        chance = pick.random()
        if chance < 0.25:
            return lo
        if chance < 0.5:
            return hi
        if isinstance(lo, int):
            return pick.randint(lo, hi)
        value = min(max(lo / 2 + hi / 2 if chance < 0.6 else _between(pick, lo, hi), lo), hi)
        if field.type == F32:
            value = round_f32(value)
        return value if lo <= value <= hi else lo


def _between(pick: random.Random, lo: float, hi: float) -> float:
    low, high = max(lo, -1.7e308), min(hi, 1.7e308)
    share = pick.random()
    return low * (1 - share) + high * share
