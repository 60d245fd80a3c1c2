"""Abstract evaluation of expressions: values in an environment, and what a test teaches about it.

An environment has a value for every variable, and for every fixed part of the event that some test has narrowed.
`Evaluator.eval` visits operands in the order and under the conditions the interpreter would; while `recording` it
notes what it finds at each node, joined over all visits.

This file knows expressions; `analyse.py` knows statements.
"""

from __future__ import annotations

from collections.abc import Hashable

from headwater.errors import Problem
from headwater.ir import intervals as iv
from headwater.ir.build import inside
from headwater.ir.intervals import NOTHING, Value
from headwater.ir.nodes import (
    Binary,
    Call,
    Cast,
    Compare,
    CompareOp,
    Cond,
    Const,
    Elem,
    Expr,
    InSet,
    IsMissing,
    Load,
    Logic,
    Lookup,
    Meta,
    Missing,
    Param,
    Path,
    Program,
    Reduce,
    Unary,
    Var,
)
from headwater.ir.notes import locate
from headwater.types.model import F64, I64, U64, Array, List, Record, Type

MAX_WORK = 200_000  # visits of nodes: about half a second

FLIPPED: dict[CompareOp, CompareOp] = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
NEGATED: dict[CompareOp, CompareOp] = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


class Env:
    """What is known at one point of a program: variables by slot, parts of the event by key."""

    __slots__ = ("known", "vars")

    def __init__(self, vars: dict[int, Value], known: dict[Hashable, Value]) -> None:
        self.vars, self.known = vars, known

    def copy(self) -> Env:
        return Env(self.vars.copy(), self.known.copy())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Env) and self.vars == other.vars and self.known == other.known

    __hash__ = None  # type: ignore[assignment]


def join(a: Env | None, b: Env | None) -> Env | None:
    """What holds on either way here; None is a way never taken."""
    if a is None or b is None:
        return b if a is None else a
    vars = {slot: iv.join(value, b.vars[slot]) for slot, value in a.vars.items()}
    return Env(vars, {key: iv.join(value, b.known[key]) for key, value in a.known.items() if key in b.known})


def key_of(expr: Expr) -> Hashable | None:
    """Names a part of the event, a parameter or meta, which no statement can change."""
    match expr:
        case Load(path=Path(steps=steps)) if all(isinstance(step, str | Const) for step in steps):
            return steps
        case Meta(name=name) | Param(name=name):
            return (expr.__class__, name)
        case _:
            return None


class TooComplex(Exception):
    """Looking through a program takes more work than it may."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Evaluator:
    """Evaluates abstractly; `notes` has [miss, fault, value] by node identity."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.notes: dict[int, tuple[Value, bool]] = {}
        self.recording = True
        self.work = 0

    def note(self, node: object, value: Value, fault: bool) -> None:
        if self.recording:
            old = self.notes.get(id(node))
            self.notes[id(node)] = (value, fault) if old is None else (iv.join(old[0], value), old[1] or fault)

    def eval(self, expr: Expr, env: Env) -> Value:
        self.work += 1
        if self.work > MAX_WORK:
            raise TooComplex(locate(self.program.text, expr.span, "too complex to analyse", hint="nest fewer loops"))
        value, fault = self._eval(expr, env)
        if env.known and (key := key_of(expr)) in env.known:
            value = _meet(value, env.known[key])
        self.note(expr, value, fault)
        return value

    def silently(self, expr: Expr, env: Env) -> Value:
        """Without taking notes."""
        recording, self.recording = self.recording, False
        value = self.eval(expr, env)
        self.recording = recording
        return value

    def _eval(self, expr: Expr, env: Env) -> tuple[Value, bool]:
        """The interval an expression is in, and whether it may fault by itself; its parts are evaluated on the way."""
        match expr:
            case Const(value=constant):
                return iv.constant(constant), False
            case Var(slot=slot):
                return env.vars[slot], False
            case Load(path=path, stored=stored):
                miss, fault = self.path(path, self.program.input, env)
                return iv.top(stored, miss), fault
            case Compare(op=op, a=a, b=b):
                return iv.compare(op, self.eval(a, env), self.eval(b, env)), False
            case Logic(op=op, args=args):
                return self._logic(op == "or", args, env), False
            case Binary(op=op, a=a, b=b, type=type):
                return iv.binary(op, self.eval(a, env), self.eval(b, env), type)
            case Cast(a=a, to=to):
                return iv.cast(self.eval(a, env), a.type, to)
            case Unary(op=op, a=a, type=type):
                return self._unary(op, self.eval(a, env), type)
            case Elem(slot=slot, indices=indices):
                miss, fault = self.offset(slot, indices, env)
                value = env.vars[slot]
                return Value(value.miss or miss, value.lo, value.hi), fault
            case Param(type=type):
                return iv.top(type, False), False
            case Meta(type=type):
                return iv.top(type, True), False
            case Missing():
                return NOTHING, False
            case Cond():
                return self._cond(expr, env), False
            case IsMissing(a=a):
                value = self.eval(a, env)
                return Value(False, 1 if value.empty else 0, 1 if value.miss else 0), False
            case Call(fn="coalesce", args=args):
                return self._coalesce(args, env), False
            case Call(fn=fn, args=args, type=type):
                return iv.call(fn, [self.eval(arg, env) for arg in args], type)
            case InSet(a=a, values=values):
                return self._in_set(self.eval(a, env), values), False
            case Lookup(key=key, type=type):
                self.eval(key, env)
                return iv.top(type, True), False
            case Reduce(op=op, path=path, stored=stored, type=type):
                miss, fault = self.path(path, self.program.input, env)
                value, overflow = iv.reduce(op, miss, stored, type)
                return value, fault or overflow

    def path(self, path: Path, start: Type, env: Env) -> tuple[bool, bool]:
        """Whether what lies there may be missing, and whether an index may be out of range."""
        here, miss, fault = start, False, False
        for at, step in enumerate(path.steps):
            if isinstance(step, str):
                assert isinstance(here, Record)
                field = here.by_name[step]
                here, miss = field.type, miss or (field.optional and not self._present(path, at, env))
            else:
                assert isinstance(here, Array | List)
                index = self.eval(step, env)
                outside = _outside(index, here.shape[0] if isinstance(here, Array) else 0)
                here, miss, fault = inside(here), miss or index.miss or outside, fault or outside
        return miss, fault

    def _present(self, path: Path, at: int, env: Env) -> bool:
        known = env.known.get(path.steps[: at + 1]) if env.known else None
        return known is not None and not known.miss

    def offset(self, slot: int, indices: tuple[Expr, ...], env: Env) -> tuple[bool, bool]:
        """The same for an element of an array variable."""
        miss = fault = False
        for index, size in zip(indices, self.program.variables[slot].shape, strict=True):
            at = self.eval(index, env)
            outside = _outside(at, size)
            miss, fault = miss or at.miss or outside, fault or outside
        return miss, fault

    def _unary(self, op: str, a: Value, type: Type) -> tuple[Value, bool]:
        match op:
            case "neg":
                return iv.negate(a, type)
            case "bitnot":
                return iv.invert(a, type), False
            case _:
                return (NOTHING if a.empty else Value(a.miss, 1 - (a.hi or 0), 1 - (a.lo or 0))), False

    def _logic(self, decisive: bool, args: tuple[Expr, ...], env: Env) -> Value:
        """Each operand is evaluated only while no earlier one has decided."""
        here: Env | None = env
        decides = missing = False
        certain = True  # the undecided end is reached with nothing missing
        for arg in args:
            if here is None:
                certain = False
                break
            value = self.eval(arg, here)
            yes, no, neither = self.branch(arg, value, here)
            decided, going = (yes, no) if decisive else (no, yes)
            decides = decides or decided is not None
            missing = missing or neither is not None
            certain = certain and going is not None
            here = join(going, neither)
        yes_possible = decides if decisive else certain
        no_possible = certain if decisive else decides
        if not yes_possible and not no_possible:
            return NOTHING if missing else Value(False, 0, 1)
        return Value(missing, 0 if no_possible else 1, 1 if yes_possible else 0)

    def _cond(self, expr: Cond, env: Env) -> Value:
        ways = self.branch(expr.test, self.eval(expr.test, env), env)
        results = [
            self.eval(part, way)
            for part, way in zip((expr.then, expr.other, expr.neither), ways, strict=True)
            if way is not None
        ]
        value = results[0] if results else NOTHING
        for other in results[1:]:
            value = iv.join(value, other)
        return value

    def _coalesce(self, args: tuple[Expr, ...], env: Env) -> Value:
        result = NOTHING
        for arg in args:
            value = self.eval(arg, env)
            result = iv.join(Value(False, result.lo, result.hi), value)
            if not value.miss:
                return Value(False, result.lo, result.hi)
        return result

    def _in_set(self, a: Value, values: tuple[Const, ...]) -> Value:
        if a.empty:
            return NOTHING
        found = [iv.constant(c.value) for c in values]
        if found and a.lo is not None and a.hi is not None and all(c.lo is not None for c in found):
            if all(iv.compare("eq", a, c).hi == 0 for c in found):
                return Value(a.miss, 0, 0)
            if any(iv.compare("eq", a, c).lo == 1 for c in found):
                return Value(a.miss, 1, 1)
        return Value(a.miss, 0, 1)

    # ── what a test teaches ──

    def branch(self, test: Expr, value: Value, env: Env) -> tuple[Env | None, Env | None, Env | None]:
        """The environment where the test is true, where it is false, and where it is missing."""
        if value.empty:
            return None, None, env
        yes = self.learn(test, True, env) if value.hi else None
        no = self.learn(test, False, env) if not value.lo else None
        neither = self._learn_missing(test, env) if value.miss else None
        return yes, no, neither

    def learn(self, test: Expr, truth: bool, env: Env) -> Env | None:
        """What is known once the test has turned out true or false; None if it cannot."""
        match test:
            case Compare(op=op, a=a, b=b):
                return self._learn_compare(op, a, b, truth, env)
            case Unary(op="not", a=a):
                return self.learn(a, not truth, env)
            case Logic(op=op, args=args):
                if (op == "and") == truth:
                    here: Env | None = env
                    for arg in args:
                        here = self.learn(arg, truth, here) if here is not None else None
                    return here
                result: Env | None = None
                for arg in args:
                    result = join(result, self.learn(arg, truth, env))
                return result
            case Cast(a=a) if a.type in (I64, U64):  # a number as a condition
                return self._learn_compare("ne" if truth else "eq", a, Const(0, a.type), True, env)
            case IsMissing(a=a):
                if not truth:
                    return self._narrow(a, None, None, env)
                return self._only_missing(a, env) if self.silently(a, env).miss else None
            case InSet(a=a, values=values) if truth and values:
                found = [iv.constant(c.value) for c in values]
                if any(c.lo is None or c.hi is None for c in found):
                    return self._narrow(a, None, None, env)
                return self._narrow(a, min(c.lo for c in found if c.lo is not None),
                                    max(c.hi for c in found if c.hi is not None), env)  # fmt: skip
            case InSet(a=a):
                return self._narrow(a, None, None, env)
            case Var() | Load() | Param():
                return self._narrow(test, int(truth), int(truth), env)
            case _:
                return env

    def _learn_compare(self, op: CompareOp, a: Expr, b: Expr, truth: bool, env: Env) -> Env | None:
        x, y = self.silently(a, env), self.silently(b, env)
        if x.lo is None or x.hi is None or y.lo is None or y.hi is None or a.type == F64:
            known = self._narrow(a, None, None, env)
            return self._narrow(b, None, None, known) if known is not None else None
        op = op if truth else NEGATED[op]
        here = self._narrow(a, *_limits(op, x, y), env)
        return self._narrow(b, *_limits(FLIPPED[op], y, x), here) if here is not None else None

    def _learn_missing(self, test: Expr, env: Env) -> Env | None:
        """Where a comparison is missing, and only one side can be, that side is."""
        match test:
            case Compare(a=a, b=b):
                x, y = self.silently(a, env), self.silently(b, env)
                if x.miss != y.miss:
                    return self._only_missing(a if x.miss else b, env)
            case Unary(op="not", a=a):
                return self._learn_missing(a, env)
            case Cast(a=a) | InSet(a=a):
                if not isinstance(test, Cast) or a.type in (I64, U64):
                    return self._only_missing(a, env)
            case Var() | Load():
                return self._only_missing(test, env)
            case _:
                pass
        return env

    def _only_missing(self, expr: Expr, env: Env) -> Env:
        return self._set(expr, NOTHING, env) if iv.type_range(expr.type) is not None else env

    def _narrow(self, expr: Expr, lo: int | float | None, hi: int | float | None, env: Env) -> Env | None:
        """Not missing, and between lo and hi."""
        if not isinstance(expr, Var | Load | Param | Meta):
            return env
        old = self.silently(expr, env)
        if old.lo is not None and old.hi is not None and lo is not None and hi is not None:
            new = Value(False, max(old.lo, lo), min(old.hi, hi))
        else:
            new = Value(False, old.lo, old.hi)
        return None if new.empty else self._set(expr, new, env)

    def _set(self, expr: Expr, value: Value, env: Env) -> Env:
        key = expr.slot if isinstance(expr, Var) else key_of(expr)
        if key is None:
            return env
        new = env.copy()
        if isinstance(expr, Var):
            new.vars[expr.slot] = value
        else:
            new.known[key] = value
            if isinstance(expr, Load) and not value.miss:  # then everything above it is there too
                for end in range(1, len(expr.path.steps)):
                    new.known.setdefault(expr.path.steps[:end], Value(False))
        return new


def _outside(at: Value, size: int) -> bool:
    """Whether an index may be out of range; nothing is known of a list's size."""
    return not at.empty and not (at.lo is not None and at.hi is not None and 0 <= at.lo <= at.hi < size)


def _meet(a: Value, b: Value) -> Value:
    if a.lo is None or a.hi is None or b.lo is None or b.hi is None:
        return Value(a.miss and b.miss, a.lo, a.hi)
    return Value(a.miss and b.miss, max(a.lo, b.lo), min(a.hi, b.hi))


def _limits(op: CompareOp, x: Value, y: Value) -> tuple[int | float, int | float]:
    """Where x must lie if `x op y` holds; integers only."""
    assert x.lo is not None and x.hi is not None and y.lo is not None and y.hi is not None
    match op:
        case "lt":
            return x.lo, y.hi - 1
        case "le":
            return x.lo, y.hi
        case "gt":
            return y.lo + 1, x.hi
        case "ge":
            return y.lo, x.hi
        case "eq":
            return y.lo, y.hi
        case "ne":
            if y.lo == y.hi == x.lo:
                return x.lo + 1, x.hi
            return (x.lo, x.hi - 1) if y.lo == y.hi == x.hi else (x.lo, x.hi)
