"""Expressions made simpler without changing what they mean: their value, when it is missing, and every fault.

`Simplifier.expr` goes bottom up; each rule is a method that gets simplified operands and returns a simplified node.
Two things decide what is allowed: whether an expression may fault (then it must stay, and stay in its place among
operands of `and`/`or`) and whether it may be missing. Both are taken from the expression alone, not from where it
stands, so they hold everywhere.

Nothing here reassociates arithmetic, and nothing folds functions of the C library: their last bit is the machine's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, cast

from headwater.ir import intervals as iv
from headwater.ir import walk
from headwater.ir.encode import Encoder, binary_key, key
from headwater.ir.flow import FLIPPED, NEGATED, Env, Evaluator
from headwater.ir.functions import FUNCTIONS
from headwater.ir.interp import Fault, evaluate
from headwater.ir.intervals import Value
from headwater.ir.nodes import (
    NOWHERE,
    Binary,
    Call,
    Cast,
    Compare,
    Cond,
    Const,
    Expr,
    InSet,
    IsMissing,
    Load,
    Logic,
    Meta,
    Missing,
    Param,
    Program,
    Span,
    Unary,
)
from headwater.ir.verify import fits
from headwater.types.model import BOOL, F64, I64, TEXT, TIMESTAMP, U64, Array, List, Record, Type

TRUE, FALSE = Const(True, BOOL), Const(False, BOOL)
_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "tdiv": 1, "fdiv": 1, "or": 0, "xor": 0, "shl": 0, "shr": 0}
_COMMUTES = ("add", "mul", "and", "or", "xor")
_LEAVES = (Const, Param, Meta, Missing)
_EXACT = 1 << 53  # integers up to here are floats too


def is_plain(expr: Expr) -> bool:
    """A field, parameter, meta or constant, or a comparison of one with a constant: simple, and never faults."""
    kind = expr.__class__
    if kind is Compare:
        return expr.b.__class__ is Const and is_plain(expr.a)  # type: ignore[union-attr]
    if kind is Load:
        return len(expr.path.steps) == 1  # type: ignore[union-attr]
    return kind in _LEAVES


class _Anywhere(Evaluator):
    """Abstract values of expressions wherever they may stand; learns nothing from tests, so it can remember."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.recording = False
        variables = {slot: iv.top(v.type, True) for slot, v in enumerate(program.variables)}
        self.env = Env(variables, {})
        self.seen: dict[int, tuple[Expr, Value, bool]] = {}

    def look(self, expr: Expr) -> tuple[Value, bool]:
        """Its value, and whether anything in it may fault."""
        found = self.seen.get(id(expr))
        if found is None:
            value, fault = self._eval(expr, self.env)
            fault = fault or any(self.look(child)[1] for child in walk.children(expr))
            found = self.seen[id(expr)] = (expr, value, fault)  # holding the node keeps its identity its own
        return found[1], found[2]

    def eval(self, expr: Expr, env: Env) -> Value:
        return self.look(expr)[0]

    def branch(self, test: Expr, value: Value, env: Env) -> tuple[Env | None, Env | None, Env | None]:
        yes, no = not value.empty and bool(value.hi), not value.empty and not value.lo
        return env if yes else None, env if no else None, env if value.miss else None


class Simplifier:
    """For the expressions of one program."""

    def __init__(self, program: Program) -> None:
        self.variables = program.variables
        self.anywhere = _Anywhere(program)
        self.encoder = Encoder(program, canonical=True)
        self.done: dict[int, tuple[Expr, Expr]] = {}
        self.keys: dict[int, tuple[Expr, bytes]] = {}

    # ── what is allowed ──

    def faults(self, expr: Expr) -> bool:
        """Whether evaluating it may fault."""
        return not is_plain(expr) and self.anywhere.look(expr)[1]

    def misses(self, expr: Expr) -> bool:
        """Whether it may be missing."""
        return self.anywhere.look(expr)[0].miss

    def key(self, expr: Expr) -> bytes:
        """By which operands are put in order. That of a long chain is made of those of its parts, which were asked for
        before: else it would take the square of its length."""
        found = self.keys.get(id(expr))
        if found is None:
            if expr.__class__ is Binary:
                made = binary_key(expr, self.key(expr.a), self.key(expr.b))
            else:
                made = key(expr, self.encoder)
            found = self.keys[id(expr)] = (expr, made)
        return found[1]

    # ── the way through ──

    def expr(self, expr: Expr) -> Expr:
        if expr.__class__ is Compare:
            return self.compare(expr) if is_plain(expr) else self._once(expr)
        return expr if is_plain(expr) else self._once(expr)

    def _once(self, expr: Expr) -> Expr:
        found = self.done.get(id(expr))
        if found is None:
            made = walk.map_children(expr, self.expr)
            rule = _RULES.get(made.__class__)
            made = rule(self, made) if rule is not None else made
            found = self.done[id(expr)] = (expr, made)
        return found[1]

    def fold(self, expr: Any, operands: Sequence[Expr]) -> Expr | None:
        """A strict operation on constants, computed by the interpreter; or on something missing."""
        if all(operand.__class__ is Const for operand in operands):
            value, faults = evaluate(expr)
            if faults == Fault.NONE:
                return Missing(expr.type, expr.span) if value is None else Const(value, expr.type, expr.span)
        elif any(operand.__class__ is Missing for operand in operands) and not any(map(self.faults, operands)):
            return Missing(expr.type, expr.span)
        return None

    # ── logic ──

    def negate(self, a: Expr, span: Span = NOWHERE) -> Expr:
        """Not, pushed inward as far as it goes."""
        match a:
            case Const(value=value):
                return Const(not value, BOOL, a.span)
            case Missing():
                return a
            case Unary(op="not", a=inner):
                return inner
            case Compare(op=op, a=x, b=y) if op in ("eq", "ne") or x.type != F64:
                return self.compare(Compare(NEGATED[op], x, y, a.span))
            case Logic(op=op, args=args):
                dual: Literal["and", "or"] = "or" if op == "and" else "and"
                return self.logic(dual, [self.negate(arg) for arg in args], a.span)
            case _:
                return Unary("not", a, BOOL, span)

    def logic(self, op: Literal["and", "or"], args: Iterable[Expr], span: Span = NOWHERE) -> Expr:
        """A conjunction or disjunction, flat, without repetitions and without what cannot matter; what may fault stays,
        since faults are counted."""
        decisive = op == "or"
        kept: list[Expr] = []
        seen: set[Expr] = set()
        for arg in args:
            for part in arg.args if isinstance(arg, Logic) and arg.op == op else (arg,):
                if part in seen:
                    continue
                if isinstance(part, Const):
                    if part.value is not decisive:
                        continue
                    if not any(map(self.faults, kept)):
                        return Const(decisive, BOOL, span)
                    return Logic(op, (*kept, part), span)  # what follows is never evaluated
                seen.add(part)
                kept.append(part)
        if len(kept) > 1:
            kept = self._ordered(op, kept)
        if len(kept) > 1:
            return Logic(op, tuple(kept), span)
        return kept[0] if kept else Const(not decisive, BOOL, span)

    def _ordered(self, op: Literal["and", "or"], args: list[Expr]) -> list[Expr]:
        """Operands that cannot fault may change places with each other, but not with those that can."""
        result: list[Expr] = []
        run: list[Expr] = []
        for arg in args:
            if self.faults(arg):
                result += [*self._run(op, run), arg]
                run = []
            else:
                run.append(arg)
        return result + self._run(op, run)

    def _run(self, op: Literal["and", "or"], run: list[Expr]) -> list[Expr]:
        if len(run) < 2:
            return run
        run = self._gathered(op, run)
        return sorted(run, key=self.key) if len(run) > 1 else run

    def _gathered(self, op: Literal["and", "or"], run: list[Expr]) -> list[Expr]:
        """`x = 1 or x in (2, 3)` is `x in (1, 2, 3)`; `x != 1 and x != 2` is `not x in (1, 2)`."""
        members: dict[Expr, list[Const]] = {}
        others: list[Expr] = []
        for arg in run:
            match arg:
                case Compare(op="eq", a=a, b=Const() as const) if op == "or" and a.type == const.type:
                    members.setdefault(a, []).append(const)
                case Compare(op="ne", a=a, b=Const() as const) if op == "and" and a.type == const.type:
                    members.setdefault(a, []).append(const)
                case InSet(a=a, values=values, param=None) if op == "or":
                    members.setdefault(a, []).extend(values)
                case Unary(op="not", a=InSet(a=a, values=values, param=None)) if op == "and":
                    members.setdefault(a, []).extend(values)
                case _:
                    others.append(arg)
        for a, found in members.items():
            made = self.in_set(InSet(a, tuple(found)))
            others.append(made if op == "or" else self.negate(made))
        return others

    def in_set(self, expr: InSet) -> Expr:
        if expr.param is not None:
            return self.fold_missing(expr, expr.a)
        values = {_plain_zero(const): None for const in expr.values if const.value == const.value}
        if len(values) <= 1:  # NaN is in nothing, like anything is not NaN
            only = next(iter(values), Const(math.nan, F64))
            return self.compare(Compare("eq", expr.a, only, expr.span))
        ordered = tuple(sorted(values, key=lambda const: cast(Any, _sortable(const))))
        made = expr if ordered == expr.values else InSet(expr.a, ordered, None, expr.span)
        return self.fold(made, (made.a,)) or made

    def fold_missing(self, expr: Expr, a: Expr) -> Expr:
        return Missing(expr.type, expr.span) if isinstance(a, Missing) else expr

    # ── comparisons ──

    def compare(self, expr: Compare) -> Expr:
        op, a, b, span = expr.op, expr.a, expr.b, expr.span
        folded = self.fold(expr, (a, b))
        if folded is not None:
            return folded
        if isinstance(a, Const) or (not isinstance(b, Const) and self.key(b) < self.key(a)):
            op, a, b = FLIPPED[op], b, a
        if not isinstance(b, Const):
            return expr if a is expr.a and b is expr.b else Compare(op, a, b, span)
        if b.type == BOOL:
            return a if (op == "eq") == b.value else self.negate(a, span)
        if isinstance(a, Cast) and b.value == b.value:
            plain = self._uncast(Compare(op, a, b, span), a, b)
            if plain is not None:
                return plain
        op, b = _strict_order(op, b)
        return expr if op is expr.op and a is expr.a and b is expr.b else Compare(op, a, b, span)

    def _uncast(self, expr: Compare, a: Cast, b: Const) -> Expr | None:
        """A comparison of something cast, without the cast."""
        value = cast(float, b.value)
        if a.a.type == BOOL:
            no, yes = (evaluate(Compare(expr.op, Const(x, a.type), b))[0] for x in _both(a.type))
            if no != yes:
                return a.a if yes else self.negate(a.a, expr.span)
            return None
        if a.to == F64 and a.a.type in (I64, U64) and math.isfinite(value) and abs(value) < _EXACT:
            found = self.anywhere.look(a.a)[0]
            if found.lo is None or found.hi is None or found.lo < -_EXACT or found.hi > _EXACT:
                return None
            whole = {"gt": math.floor, "le": math.floor, "lt": math.ceil, "ge": math.ceil}.get(expr.op)
            if whole is None and value != int(value):
                return None
            limit = whole(value) if whole is not None else int(value)
            least, greatest = a.a.type.range
            if least <= limit <= greatest:
                return self.compare(Compare(expr.op, a.a, Const(limit, a.a.type, b.span), expr.span))
        return None

    # ── the rest ──

    def unary(self, expr: Unary) -> Expr:
        if expr.op == "not":
            return self.negate(expr.a, expr.span)
        folded = self.fold(expr, (expr.a,))
        if folded is not None:
            return folded
        inner = expr.a
        if isinstance(inner, Unary) and inner.op == expr.op and (expr.op == "bitnot" or expr.type == F64):
            return inner.a
        return expr

    def binary(self, expr: Binary) -> Expr:
        folded = self.fold(expr, (expr.a, expr.b))
        if folded is not None:
            return folded
        op, a, b = expr.op, expr.a, expr.b
        if op in _COMMUTES and a.type == b.type:
            swap = isinstance(a, Const) if isinstance(a, Const) != isinstance(b, Const) else self.key(b) < self.key(a)
            if swap:
                a, b = b, a
                expr = Binary(op, a, b, expr.type, expr.span)
        if isinstance(b, Const) and a.type == expr.type and _is_neutral(op, b, expr.type):
            return a
        return expr

    def cast(self, expr: Cast) -> Expr:
        folded = self.fold(expr, (expr.a,))
        if folded is not None:
            return folded
        a = expr.a
        if expr.to == BOOL:
            zero = Const(0.0 if a.type == F64 else 0, a.type)
            return self.compare(Compare("ne", a, zero, expr.span))
        if a.type == expr.type and fits(a, expr.to, self.variables):
            return a
        return expr

    def cond(self, expr: Cond) -> Expr:
        """A choice, without it where the test is known, both ways are the same, or it can be said as logic."""
        test, then, other, neither = expr.test, expr.then, expr.other, expr.neither
        if isinstance(test, Const):
            return then if test.value else other
        if isinstance(test, Missing):
            return neither
        if self.misses(test):
            if neither in (then, other):  # then the test is as good as never missing
                test = self.coalesce((test, TRUE if neither == then else FALSE), BOOL, test.span)
                return self.cond(Cond(test, then, other, Missing(expr.type), expr.type, expr.span))
        else:
            neither = Missing(expr.type)
        if then == other and (neither == then or not self.misses(test)) and not self.faults(test):
            return then
        if isinstance(test, Unary):
            test, then, other = test.a, other, then
        if expr.type == BOOL and isinstance(neither, Missing):
            made = self._as_logic(test, then, other, expr.span)
            if made is not None:
                return made
        if (test, then, other, neither) == (expr.test, expr.then, expr.other, expr.neither):
            return expr
        return Cond(test, then, other, neither, expr.type, expr.span)

    def _as_logic(self, test: Expr, then: Expr, other: Expr, span: Span) -> Expr | None:
        """A conditional between truth values, where that says the same."""
        if then == TRUE and other == FALSE:
            return test
        if then == FALSE and other == TRUE:
            return self.negate(test, span)
        if self.misses(test):
            return None
        if then == TRUE:
            return self.logic("or", (test, other), span)
        if then == FALSE:
            return self.logic("and", (self.negate(test), other), span)
        if other == FALSE:
            return self.logic("and", (test, then), span)
        if other == TRUE:
            return self.logic("or", (self.negate(test), then), span)
        return None

    def is_missing(self, expr: IsMissing) -> Expr:
        a = expr.a
        if isinstance(a, Missing):
            return Const(True, BOOL, expr.span)
        if isinstance(a.type, Array | List | Record):
            return expr
        value, fault = self.anywhere.look(a)
        if fault:
            return expr
        if not value.miss:
            return Const(False, BOOL, expr.span)
        if isinstance(a, Compare | Cast | Unary | Binary | InSet) or (isinstance(a, Call) and a.fn != "coalesce"):
            absent = [child for child in walk.children(a) if self.misses(child)]  # strict: missing if an operand is
            if len(absent) == 1:
                return self.is_missing(IsMissing(absent[0], expr.span))
        return expr

    def coalesce(self, args: Iterable[Expr], type: Type, span: Span) -> Expr:
        kept: list[Expr] = []
        for arg in args:
            for part in arg.args if isinstance(arg, Call) and arg.fn == "coalesce" else (arg,):
                if isinstance(part, Missing) or part in kept:
                    continue
                kept.append(part)
                if not self.misses(part):
                    break
            else:
                continue
            break
        if len(kept) > 1:
            return Call("coalesce", tuple(kept), type, span)
        return kept[0] if kept else Missing(type, span)

    def call(self, expr: Call) -> Expr:
        if expr.fn == "coalesce":
            made = self.coalesce(expr.args, expr.type, expr.span)
            return expr if made == expr else made
        if not FUNCTIONS[expr.fn].libm:
            folded = self.fold(expr, expr.args)
            if folded is not None:
                return folded
        match expr:
            case Call(fn="like", args=(a, Const(value=str() as pattern))):
                return self._like(expr, a, pattern)
            case Call(fn="micros", args=(a,)):
                return self.cast(Cast(a, I64, I64, expr.span))
            case _:
                return expr

    def _like(self, expr: Call, a: Expr, pattern: str) -> Expr:
        """Patterns that are plain text with % only at the ends."""
        plain = pattern.strip("%")
        if any(c in plain for c in "%_\\"):
            return expr
        front, back = pattern.startswith("%"), pattern.endswith("%")
        if not front and not back:
            return self.compare(Compare("eq", a, Const(plain, TEXT, expr.span), expr.span))
        if plain:
            fn = "contains" if front and back else "ends_with" if front else "starts_with"
            return Call(fn, (a, Const(plain, TEXT, expr.args[1].span)), BOOL, expr.span)
        return expr


def _both(type: Type) -> tuple[Any, Any]:
    return (0.0, 1.0) if type == F64 else (0, 1)


def _plain_zero(const: Const) -> Const:
    return Const(0.0, const.type, const.span) if const.type == F64 and const.value == 0 else const


def _sortable(const: Const) -> object:
    return const.value.encode() if isinstance(const.value, str) else const.value


def _is_neutral(op: str, b: Const, type: Type) -> bool:
    if type == F64:  # adding 0.0 would turn -0.0 into 0.0
        return (op in ("mul", "div") and b.value == 1.0) or (op == "sub" and Const(0.0, F64) == b)
    if op == "and":
        return b.value == (-1 if type == I64 else (1 << 64) - 1)
    return op in _NEUTRAL and b.value == _NEUTRAL[op]


def _strict_order(op: Any, b: Const) -> tuple[Any, Const]:
    """`x >= 6` is `x > 5` for whole numbers."""
    if op in ("ge", "le") and b.type in (I64, U64, TIMESTAMP):
        limit = cast(int, b.value) + (1 if op == "le" else -1)
        least, greatest = b.type.range
        if least <= limit <= greatest:
            return ("lt" if op == "le" else "gt"), Const(limit, b.type, b.span)
    return op, b


_RULES: dict[type, Callable[[Simplifier, Any], Expr]] = {
    Compare: Simplifier.compare,
    Logic: lambda s, e: s.logic(e.op, e.args, e.span),
    Unary: Simplifier.unary,
    Binary: Simplifier.binary,
    Cast: Simplifier.cast,
    Cond: Simplifier.cond,
    IsMissing: Simplifier.is_missing,
    Call: Simplifier.call,
    InSet: Simplifier.in_set,
}
