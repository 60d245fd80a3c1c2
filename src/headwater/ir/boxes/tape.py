"""An expression as a list of steps over intervals, made once and run for many boxes.

Equal parts of the expression are one step: `x * x` is a square, `x - x` nothing. What is composed of simpler things
(distances, sums over arrays) becomes these, in the order in which the executions compute them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from headwater.ir import walk
from headwater.ir.boxes import floats, texts, truth, whole
from headwater.ir.boxes.interval import INFINITY, MISSING, NO_VALUE, Bounds, Interval, anything, fitted
from headwater.ir.functions import MICROS
from headwater.ir.nodes import (
    Binary,
    Call,
    Cast,
    Compare,
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
    Reduce,
    Span,
    Unary,
    Var,
)
from headwater.ir.show import show_expr
from headwater.types.model import BOOL, F32, F64, I64, TIMESTAMP, Array, List, Record, Scalar, Type

Step = Callable[[list[Bounds]], Bounds]
MAX_ELEMENTS = 256  # of an array that is added up element by element; of a larger one nothing is said


class Input(NamedTuple):
    """What the expression reads: its place among the steps, its path, its type, and all that it may be."""

    at: int
    path: str
    type: Type
    whole: Bounds


class Limit(NamedTuple):
    """A part of which no bound is known: what it is, why, and where it was written."""

    what: str
    reason: str
    span: Span


class Operation(NamedTuple):
    """What a step does, for those who look at it once more: a name, the steps of its operands, the result's type."""

    name: str
    operands: tuple[int, ...]
    type: Type


class Tape:
    """`run(box)` gives the interval of every step; `result` is the expression's."""

    def __init__(self, expr: Expr, record: Record, params: Mapping[str, Any]) -> None:
        self.record, self.params = record, params
        self.operations: list[Operation] = []
        self.start: list[Bounds] = []  # constants; what is computed is filled in
        self.steps: list[tuple[int, Step]] = []
        self.inputs: list[Input] = []
        self.limits: list[Limit] = []
        self._known: dict[object, int] = {}
        self._fixed: list[bool] = []
        self.result = self._compile(expr)

    def run(self, box: Mapping[str, Interval]) -> list[Bounds]:
        """The intervals of all steps, of natural interval arithmetic."""
        values = self.start.copy()
        find = box.get
        for at, path, type, unbounded in self.inputs:
            given = find(path)
            if given is not None:
                values[at] = fitted(given, type)
            else:
                values[at] = unbounded
        for at, step in self.steps:
            values[at] = step(values)
        return values

    # ── making it ──

    def _compile(self, root: Expr) -> int:
        """Operands before what is made of them, without recursion: expressions may be deep."""
        done: dict[int, int] = {}
        pending: list[tuple[Expr, bool]] = [(root, False)]
        while pending:
            expr, ready = pending.pop()
            if id(expr) in done:
                continue
            inner = () if isinstance(expr, IsMissing) and _is_whole(expr.a) else _operands(expr)
            if ready or not inner:
                done[id(expr)] = self._node(expr, [done[id(child)] for child in inner])
            else:
                pending.append((expr, True))
                pending += [(child, False) for child in inner]
        return done[id(root)]

    def _node(self, expr: Expr, at: list[int]) -> int:
        """The step of an expression whose operands are the steps `at`."""
        match expr:
            case Const(value=value):
                return self._constant(Interval.of(value), expr.type)
            case Missing():
                return self._constant(MISSING, expr.type)
            case Param(name=name):
                return self._constant(Interval.of(self.params[name]), expr.type)
            case Meta(name=name):
                return self._input(f"@{name}", expr.type, True)
            case Load():
                return self._load(expr)
            case Reduce():
                return self._reduce(expr)
            case Var() | Elem():
                return self._unknown(expr, "a variable", "what it holds depends on earlier events")
            case Unary(op=op):
                return self._unary(op, at[0], expr.type)
            case Binary(op=op):
                return self._binary(op, at[0], at[1], expr.type)
            case Compare(op=op):
                return self._compare(op, at[0], at[1])
            case Logic(op=op):
                decisive = 1 if op == "or" else 0
                return self._add(op, at, BOOL, lambda v: truth.logic(decisive, [v[i] for i in at]))
            case Cond():
                return self._add("choose", at, expr.type, lambda v: truth.choose(*[v[i] for i in at]))
            case IsMissing(a=a):
                if _is_whole(a):
                    assert isinstance(a, Load)
                    at = [self._load(a)]
                return self._add("is_missing", at, BOOL, lambda v: truth.is_missing(v[at[0]]))
            case Cast(a=a, to=to):
                return self._cast(at[0], a.type, to)
            case Call():
                return self._call(expr, at)
            case InSet(values=values, param=param):
                among = self.params[param] if param is not None else [const.value for const in values]
                members = truth.Members(among)
                key = ("in", param, frozenset(members.values))
                return self._add(key, at, BOOL, lambda v: members.test(v[at[0]]))
            case Lookup(param=param):
                entries = truth.Entries(self.params[param])
                return self._add(("at", param), at, expr.type, lambda v: entries.find(v[at[0]]))

    def _add(self, name: Any, at: Sequence[int], type: Type, step: Step) -> int:
        """A step, or the one that is there already; of constants it is one itself."""
        key = (name, tuple(at), type)
        found = self._known.get(key)
        if found is not None:
            return found
        if all(self._fixed[i] for i in at):
            return self._place(key, type, step(self.start), fixed=True)
        here = self._place(key, type, (None, None, True, True), fixed=False)
        self.steps.append((here, step))
        return here

    def _place(self, key: tuple[Any, tuple[int, ...], Type], type: Type, start: Bounds, *, fixed: bool) -> int:
        here = len(self.start)
        name = key[0] if isinstance(key[0], str) else key[0][0]
        self.operations.append(Operation("constant" if fixed else name, key[1], type))
        self.start.append(start)
        self._fixed.append(fixed)
        self._known[key] = here
        return here

    def _constant(self, value: Bounds, type: Type) -> int:
        lo, hi, nan, miss = value
        key = (("constant", repr(lo), repr(hi), nan, miss), (), type)
        found = self._known.get(key)
        return self._place(key, type, (lo, hi, nan, miss), fixed=True) if found is None else found

    def _input(self, path: str, type: Type, miss: bool) -> int:
        key = (("input", path), (), type)
        found = self._known.get(key)
        if found is None:
            found = self._place(key, type, (None, None, True, True), fixed=False)
            self.inputs.append(Input(found, path, type, anything(type, miss)))
        return found

    def _unknown(self, expr: Expr, what: str, reason: str, type: Type | None = None) -> int:
        self.limits.append(Limit(what, reason, expr.span))
        key = (("unknown", len(self.start)), (), expr.type)
        return self._place(key, expr.type, anything(type or expr.type, True), fixed=True)

    # ── inputs ──

    def _load(self, expr: Load) -> int:
        if any(not isinstance(step, str | Const) for step in expr.path.steps):
            what = f"{path_text(expr.path)}, at an index that is computed"
            return self._unknown(expr, what, "which element is read depends on the event", expr.stored)
        type, miss = self._followed(expr.path)
        if type is None:
            return self._constant(MISSING, expr.type)
        if isinstance(type, Scalar) and type.name in ("text", "bytes"):
            reason = f"a {type} value is followed by itself, or between two that the box names"
            self.limits.append(Limit(path_text(expr.path), reason, expr.span))
        return self._input(path_text(expr.path), type, miss)

    def _followed(self, path: Path) -> tuple[Type | None, bool]:
        """The type at the end of a path, None if an index is out of range, and whether it may be missing."""
        here: Type = self.record
        miss = False
        for step in path.steps:
            if isinstance(step, str):
                assert isinstance(here, Record)
                field = here.by_name[step]
                here, miss = field.type, miss or field.optional
                continue
            assert isinstance(step, Const) and isinstance(here, Array | List)
            index = int(step.value)
            if index < 0 or (isinstance(here, Array) and index >= here.shape[0]):
                return None, True
            if isinstance(here, List):
                here, miss = here.element, True
            else:
                here = Array(here.element, here.shape[1:]) if len(here.shape) > 1 else here.element
        return here, miss

    def _reduce(self, expr: Reduce) -> int:
        """Over an array: element by element. Of lists only little is known, since they may be of any length."""
        stored = expr.stored
        shown = f"{expr.op} of {path_text(expr.path)}"
        fixed = all(isinstance(step, str | Const) for step in expr.path.steps)
        if not fixed or not isinstance(stored, Array) or stored.count > MAX_ELEMENTS:
            reason = "a list may have any length" if isinstance(stored, List) else "it has too many elements"
            return self._unknown(expr, shown, reason if fixed else "which is read depends on the event")
        type, miss = self._followed(expr.path)
        if type is None:
            return self._constant(MISSING, expr.type)
        if expr.op == "len":
            whole_array = self._input(path_text(expr.path), stored, miss)
            size = (stored.shape[0], stored.shape[0], False)
            return self._add(("len", size), [whole_array], I64, lambda v: (*size, v[whole_array][3]))
        elements = [self._input(f"{path_text(expr.path)}{at}", stored.element, miss) for at in _offsets(stored.shape)]
        return self._folded(expr, elements, stored.element)

    def _folded(self, expr: Reduce, elements: list[int], kind: Type) -> int:
        if expr.op in ("min", "max"):
            found = elements[0]
            for element in elements[1:]:
                found = self._extreme(expr.op, found, element, expr.type)
            return found
        assert isinstance(kind, Scalar)
        if expr.op == "mean" and not kind.is_float:
            elements = [self._cast(element, I64, F64) for element in elements]
        type = F64 if expr.op == "mean" else expr.type
        found = self._constant(Interval.of(0.0 if type == F64 else 0), type)
        for element in elements:
            found = self._binary("add", found, element, type)
        if expr.op == "mean":
            found = self._binary("div", found, self._constant(Interval.of(float(len(elements))), F64), F64)
        return found

    # ── operators ──

    def _unary(self, op: str, a: int, type: Type) -> int:
        if op == "not":
            return self._add("not", [a], BOOL, lambda v: truth.negate(v[a]))
        if op == "bitnot":
            return self._add("bitnot", [a], type, lambda v: whole.invert(v[a], type))
        if type == F64:
            return self._add("neg", [a], F64, lambda v: floats.negate(v[a]))
        return self._add("neg", [a], type, lambda v: whole.negate(v[a], type))

    def _binary(self, op: str, a: int, b: int, type: Type) -> int:
        if op in _COMMUTATIVE:
            a, b = sorted((a, b))
        if type == F64:
            if op == "mul" and a == b:
                return self._add("square", [a], F64, lambda v: floats.square(v[a]))
            if op == "sub" and a == b:
                return self._add("nothing", [a], F64, lambda v: _nothing(v[a]))
            fn = _FLOATS[op]
            return self._add(op, [a, b], F64, lambda v: fn(v[a], v[b]))
        if op == "mul" and a == b:
            return self._add("square", [a], type, lambda v: whole.square(v[a], type))
        if op == "sub" and a == b:
            return self._add("nothing", [a], type, lambda v: whole.fit_zero(v[a]))
        return self._add(op, [a, b], type, lambda v: whole.binary(op, v[a], v[b], type))

    def _compare(self, op: str, a: int, b: int) -> int:
        if a == b:
            return self._add(f"{op} itself", [a], BOOL, lambda v: truth.compare_with_itself(op, v[a]))
        return self._add(op, [a, b], BOOL, lambda v: truth.compare(op, v[a], v[b]))

    def _cast(self, a: int, source: Type, to: Type) -> int:
        if to == BOOL:
            return self._add("to bool", [a], BOOL, lambda v: truth.is_not_zero(v[a]))
        if to == F64 and source == F64:
            return a
        if to in (F64, F32):
            if source != F64:
                a = self._float(a)
            return a if to == F64 else self._add("to f32", [a], F64, lambda v: floats.single(v[a]))
        type = TIMESTAMP if to == TIMESTAMP else I64 if to != Scalar("u64") else to
        if source == F64:
            return self._add(("trunc", str(to)), [a], type, lambda v: whole.from_float(v[a], to))
        return self._add(("to", str(to)), [a], type, lambda v: whole.convert(v[a], to))

    def _float(self, a: int) -> int:
        return self._add("to f64", [a], F64, lambda v: whole.to_float(v[a]))

    def _extreme(self, fn: str, a: int, b: int, type: Type) -> int:
        if a == b:
            return a
        a, b = sorted((a, b))
        pick = floats.least if fn == "min" else floats.greatest
        return self._add(fn, [a, b], type, lambda v: pick(v[a], v[b]))

    # ── functions ──

    def _call(self, expr: Call, at: list[int]) -> int:
        """A function of the library: as one step, or as those that it is composed of."""
        fn, type = expr.fn, expr.type
        a = at[0]
        if fn in _OF_FLOATS:
            apply = _OF_FLOATS[fn]
            return self._add(fn, at, F64, lambda v: apply(*[v[i] for i in at]))
        if fn in whole.PARTS:
            return self._add(fn, at, I64, lambda v: whole.part(fn, v[a]))
        if fn in MICROS:
            return self._micros(expr, a)
        match fn:
            case "abs":
                absolute = floats.absolute if type == F64 else whole.absolute
                return self._add(fn, at, type, lambda v: absolute(v[a]))
            case "min" | "max":
                for b in at[1:]:
                    a = self._extreme(fn, a, b, type)
                return a
            case "distance" | "distance3":
                return self._distance(at)
            case "is_nan":
                return self._add(fn, at, BOOL, lambda v: truth.is_nan(v[a]))
            case "micros" | "code":
                return a
            case "coalesce":
                return self._add(fn, at, type, lambda v: truth.coalesce([v[i] for i in at]))
        if not all(self._fixed[i] for i in at):
            what = show_expr(expr).replace("input.", "")
            self.limits.append(Limit(what, "it is known of single texts only", expr.span))
        return self._add(fn, at, type, lambda v: texts.call(fn, [v[i] for i in at]))

    def _distance(self, at: list[int]) -> int:
        """As it is computed: the squares added in the order of the coordinates, from zero."""
        half = len(at) // 2
        total = self._constant(Interval.of(0.0), F64)
        for a, b in zip(at[:half], at[half:], strict=True):
            apart = self._binary("sub", a, b, F64)
            total = self._binary("add", total, self._binary("mul", apart, apart, F64), F64)
        return self._add("sqrt", [total], F64, lambda v: floats.root(v[total]))

    def _micros(self, expr: Call, a: int) -> int:
        if expr.args[0].type == F64:
            unit = self._constant(Interval.of(float(MICROS[expr.fn])), F64)
            return self._cast(self._binary("mul", a, unit, F64), F64, I64)
        unit = self._constant(Interval.of(MICROS[expr.fn]), I64)
        return self._binary("mul", a, unit, I64)


_COMMUTATIVE = ("add", "mul", "and", "or", "xor")
_FLOATS = {"add": floats.add, "sub": floats.subtract, "mul": floats.multiply, "div": floats.divide}
_OF_FLOATS: dict[str, Callable[..., Bounds]] = {
    "floor": floats.floor,
    "ceil": floats.ceil,
    "sqrt": floats.root,
    "fmod": floats.remainder,
    "pow": floats.power,
    "exp": floats.exponential,
    "log": floats.logarithm,
    "sin": floats.sine,
    "cos": floats.cosine,
}


def _nothing(a: Bounds) -> Bounds:
    """A float minus itself: zero, and NaN of an infinity."""
    lo, hi, nan, miss = a
    nan = nan or lo == -INFINITY or hi == INFINITY
    return (0.0, 0.0, nan, miss) if lo <= hi and lo < INFINITY and hi > -INFINITY else (*NO_VALUE, nan, miss)


def _operands(expr: Expr) -> tuple[Expr, ...]:
    """Operands that become steps: an index of a path does not."""
    return () if isinstance(expr, Load | Reduce | Elem) else walk.children(expr)


def _is_whole(expr: Expr) -> bool:
    return isinstance(expr, Load) and isinstance(expr.stored, Array | List | Record)


def _offsets(shape: tuple[int, ...]) -> list[str]:
    """The indices of all elements of an array, as a path writes them."""
    found = [""]
    for size in shape:
        found = [f"{before}[{at}]" for before in found for at in range(size)]
    return found


def path_text(path: Path) -> str:
    """As a box names it: `a.position.x`, `wind[2]`."""
    text = ""
    for step in path.steps:
        if isinstance(step, str):
            text += f".{step}" if text else step
        else:
            text += f"[{step.value!r}]" if isinstance(step, Const) else "[…]"
    return text
