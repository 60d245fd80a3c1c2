"""The reference interpreter: what an interest means, as plainly as it can be said. Slow on purpose.

It works on the raw form of an event (`types.codec`): dicts by field name, None for missing, timestamps as
microseconds, enumerations as codes. `None` is *missing* throughout. Every rule is in docs/semantics.md.

It does not check: it runs programs that the builder or the verifier has accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any

from headwater.ir.functions import MICROS
from headwater.ir.library import PLAIN, compare, greatest, least, round_f32, to_double
from headwater.ir.nodes import (
    Assign,
    AssignElem,
    Binary,
    Block,
    Break,
    Call,
    Cast,
    Compare,
    Cond,
    Const,
    Continue,
    CopyOut,
    Elem,
    Expr,
    If,
    InSet,
    IsMissing,
    Load,
    Logic,
    Lookup,
    Loop,
    Meta,
    Missing,
    Param,
    Path,
    Program,
    Reduce,
    Return,
    SetOut,
    Unary,
    Var,
    Variable,
)
from headwater.ir.outputs import blank, blank_value, complete, copied, is_sound
from headwater.types.model import (
    BOOL,
    F32,
    F64,
    I64,
    U64,
    Array,
    List,
    Record,
    Scalar,
    Type,
)

FUEL = 100_000


class Status(IntEnum):
    """What became of an event."""

    REJECTED = 0
    PASSED = 1
    UNDECIDED = 2


class Fault(IntFlag):
    """What went wrong while an event was evaluated; several may have."""

    NONE = 0
    OVERFLOW = 1
    DIVISION = 2
    INDEX = 4
    FUEL = 8
    MALFORMED = 16


@dataclass(frozen=True, slots=True)
class EventContext:
    """What the service knows of an event; `time` is in microseconds. What it does not know is missing."""

    source: str | None = None
    node: str | None = None
    seq: int | None = None
    time: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an event, what went wrong on the way, and what the interest made of it, if it makes anything."""

    status: Status
    faults: Fault = Fault.NONE
    output: dict[str, Any] | None = None

    @property
    def passed(self) -> bool:
        """Whether the interest was true."""
        return self.status is Status.PASSED


State = dict[int, Any]  # by variable slot: a value, or a flat list of values for an array


def initial_state(program: Program) -> State:
    """A fresh state for one source."""
    return {slot: _initial(variable) for slot, variable in enumerate(program.variables) if variable.state}


def _initial(variable: Variable) -> Any:
    values: list[Any] = [const.value for const in variable.init] or [None] * math.prod(variable.shape)
    return values if variable.shape else values[0]


class _OutOfFuel(Exception):
    pass


@dataclass(slots=True)
class _Run:
    program: Program
    event: Mapping[str, Any]
    meta: EventContext
    params: Mapping[str, Any]
    variables: State
    fuel: int
    faults: Fault = Fault.NONE
    output: dict[str, Any] | None = None
    spoiled: bool = False  # a required output field or an element was set to missing
    verdict: Any = False

    # ── statements: each returns None to go on, or "break", "continue", "return" ──

    def block(self, block: Block) -> str | None:
        """Run statements: "break", "continue" or "return" if one of them has ended the block, else None."""
        for stmt in block:
            match stmt:
                case Assign(slot=slot, value=value):
                    self.variables[slot] = self.eval(value)
                case AssignElem(slot=slot, indices=indices, value=value):
                    new = self.eval(value)
                    at = self.offset(slot, indices)
                    if at is not None:
                        self.variables[slot][at] = new
                case SetOut(path=path, value=value):
                    self.set_out(path, self.eval(value))
                case CopyOut(path=path, source=source):
                    self.set_out(path, self.load(source))
                case If(test=test, then=then, other=other):
                    verdict = self.eval(test)
                    signal = self.block(then) if verdict is True else None
                    signal = self.block(other) if verdict is False else signal
                    if signal is not None:
                        return signal
                case Loop():
                    if self.loop(stmt) == "return":
                        return "return"
                case Break():
                    return "break"
                case Continue():
                    return "continue"
                case Return(value=value):
                    self.verdict = self.eval(value)
                    return "return"
        return None

    def loop(self, loop: Loop) -> str | None:
        while self.eval(loop.test) is True:
            if loop.bound is None:
                if self.fuel == 0:
                    self.fault(Fault.FUEL)
                    raise _OutOfFuel
                self.fuel -= 1
            signal = self.block(loop.body)
            if signal == "return":
                return "return"
            if signal == "break":
                break
            self.block(loop.step)
        return None

    def set_out(self, path: Path, value: Any) -> None:
        """An index out of range or missing leaves everything as it was."""
        steps: list[Any] = []
        type: Type = self.program.output  # type: ignore[assignment]
        for step in path.steps:
            at: str | int | None = None
            if isinstance(step, str):
                assert isinstance(type, Record)
                at, type = step, type.by_name[step].type
            else:
                assert isinstance(type, Array)
                at = self.in_range(self.eval(step), type.shape[0])
                type = Array(type.element, type.shape[1:]) if len(type.shape) > 1 else type.element
            if at is None:
                return
            steps.append((at, type))
        *ahead, (last, _) = steps
        target: Any = self.output
        for step, type in ahead:
            if target[step] is None:
                target[step] = blank_value(type, optional=False)
            target = target[step]
        if value is None and isinstance(last, int):
            self.spoiled = True
        else:
            target[last] = copied(value)

    # ── expressions ──

    def fault(self, fault: Fault) -> None:
        self.faults |= fault

    def eval(self, expr: Expr) -> Any:
        """The value of an expression; None where it is missing. This is the meaning that all other executions are
        compared with."""
        match expr:
            case Const(value=value):
                return value
            case Missing():
                return None
            case Load(path=path):
                return self.load(path)
            case Var(slot=slot):
                return self.variables[slot]
            case Elem(slot=slot, indices=indices):
                at = self.offset(slot, indices)
                return None if at is None else self.variables[slot][at]
            case Param(name=name):
                return self.params[name]
            case Meta(name=name):
                return getattr(self.meta, name)
            case Logic(op=op, args=args):
                return self.logic(op == "or", args)
            case Cond(test=test, then=then, other=other, neither=neither):
                verdict = self.eval(test)
                return self.eval(neither if verdict is None else then if verdict else other)
            case IsMissing(a=a):
                return self.eval(a) is None
            case Call(fn="coalesce", args=args):
                return next((v for v in map(self.eval, args) if v is not None), None)
            case Reduce(op=op, path=path, stored=stored):
                return self.reduce(op, self.load(path), stored)
            case InSet(a=a, values=values, param=name):
                member = self.eval(a)
                if member is None:
                    return None
                among = self.params[name] if name is not None else [c.value for c in values]
                return member == member and member in among  # NaN is in nothing
            case Lookup(param=name, key=key):
                at = self.eval(key)
                return None if at is None else self.params[name].get(at)
            case Unary(op=op, a=a):
                return self.strict(lambda x: self.unary(op, x, expr.type), a)
            case Binary(op=op, a=a, b=b):
                return self.strict(lambda x, y: self.binary(op, x, y, expr.type), a, b)
            case Compare(op=op, a=a, b=b):
                return self.strict(lambda x, y: compare(op, x, y), a, b)
            case Cast(a=a, to=to):
                return self.strict(lambda x: self.cast(x, a.type, to), a)
            case Call(fn=fn, args=args):
                return self.strict(lambda *xs: self.call(fn, xs), *args)

    def strict(self, operation: Callable[..., Any], *operands: Expr) -> Any:
        """Evaluate all operands; missing if any is."""
        values = [self.eval(operand) for operand in operands]
        return None if None in [v if v is None else 0 for v in values] else operation(*values)

    def logic(self, decisive: bool, args: tuple[Expr, ...]) -> bool | None:
        result: bool | None = not decisive
        for arg in args:
            value: bool | None = self.eval(arg)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    def load(self, path: Path) -> Any:
        """Step by step from the event, ending at the first thing that is missing."""
        value: Any = self.event
        for step in path.steps:
            if isinstance(step, str):
                value = value.get(step)
            else:
                at = self.in_range(self.eval(step), len(value))
                value = None if at is None else value[at]
            if value is None:
                return None
        return value

    def in_range(self, at: int | None, length: int) -> int | None:
        if at is not None and not 0 <= at < length:
            self.fault(Fault.INDEX)
            return None
        return at

    def offset(self, slot: int, indices: tuple[Expr, ...]) -> int | None:
        total = 0
        for index, size in zip(indices, self.program.variables[slot].shape, strict=True):
            at = self.in_range(self.eval(index), size)
            if at is None:
                return None
            total = total * size + at
        return total

    def fit(self, value: int, type: Type) -> int | None:
        """An integer or timestamp result, or missing where it does not fit."""
        assert isinstance(type, Scalar)
        least, greatest = type.range
        if least <= value <= greatest:
            return value
        self.fault(Fault.OVERFLOW)
        return None

    def unary(self, op: str, x: Any, type: Type) -> Any:
        match op:
            case "not":
                return not x
            case "neg":
                return -x if type == F64 else self.fit(-x, type)
            case _:
                return ~x if type == I64 else (1 << 64) - 1 - x

    def binary(self, op: str, x: Any, y: Any, type: Type) -> Any:
        """An arithmetic operation on two values that are there; None, and a fault, where it cannot be computed."""
        if type == F64:
            return self.float_binary(op, x, y)
        match op:
            case "add":
                return self.fit(x + y, type)
            case "sub":
                return self.fit(x - y, type)
            case "mul":
                return self.fit(x * y, type)
            case "and":
                return x & y
            case "or":
                return x | y
            case "xor":
                return x ^ y
            case "shl" | "shr":
                if not 0 <= y <= 63:
                    self.fault(Fault.OVERFLOW)
                    return None
                return x >> y if op == "shr" else self.fit(x << y, type)
        if y == 0:
            self.fault(Fault.DIVISION)
            return None
        floor, rest = divmod(x, y)
        match op:
            case "fdiv":
                return self.fit(floor, type)
            case "fmod":
                return rest
            case "tdiv":
                return self.fit(floor + 1 if rest and (x < 0) != (y < 0) else floor, type)
            case _:
                return rest - y if rest and (x < 0) != (y < 0) else rest

    def float_binary(self, op: str, x: float, y: float) -> float | None:
        match op:
            case "add":
                return x + y
            case "sub":
                return x - y
            case "mul":
                return x * y
        if y == 0:
            self.fault(Fault.DIVISION)
            return None
        return x / y

    def cast(self, x: Any, source: Type, to: Type) -> Any:
        if to == BOOL:
            return x != 0
        if to in (F64, F32):
            x = to_double(int(x)) if not isinstance(x, float) else x
            return x if to == F64 else round_f32(x)
        if isinstance(x, float):
            if not math.isfinite(x):
                self.fault(Fault.OVERFLOW)
                return None
            x = math.trunc(x)
        return self.fit(int(x), to)

    def reduce(self, op: str, value: Any, stored: Type) -> Any:
        """An array or list as one value, element by element in its order: floats are not associative."""
        if value is None:
            return None
        if op == "len":
            return len(value)
        flat = list(_flatten(value, len(stored.shape) if isinstance(stored, Array) else 1))
        assert isinstance(stored, Array | List)
        kind = stored.element
        assert isinstance(kind, Scalar)
        if op == "mean":
            total = 0.0
            for x in flat:
                total = total + (x if kind.is_float else to_double(x))
            return total / len(flat) if flat else None
        if op == "sum":
            wide = F64 if kind.is_float else U64 if kind == U64 else I64
            result: Any = 0.0 if kind.is_float else 0
            for x in flat:
                result = None if result is None else self.binary("add", result, x, wide)
            return result
        best = flat[0] if flat else None
        for x in flat[1:]:
            best = least(best, x) if op == "min" else greatest(best, x)
        return best

    def call(self, fn: str, xs: tuple[Any, ...]) -> Any:
        match fn:
            case "abs":
                return abs(xs[0]) if isinstance(xs[0], float) else self.fit(abs(xs[0]), I64 if xs[0] < 0 else U64)
            case "min" | "max":
                best = xs[0]
                for x in xs[1:]:
                    best = least(best, x) if fn == "min" else greatest(best, x)
                return best
            case "fmod":
                if xs[1] == 0:
                    self.fault(Fault.DIVISION)
                    return None
                return math.nan if math.isnan(xs[0] + xs[1]) or math.isinf(xs[0]) else math.fmod(*xs)
            case "seconds" | "minutes" | "hours" | "days":
                x = xs[0] * float(MICROS[fn]) if isinstance(xs[0], float) else xs[0] * MICROS[fn]
                return self.cast(x, F64, I64)
            case _:
                return PLAIN[fn](*xs)


def _flatten(value: Any, depth: int) -> Any:
    if depth == 0:
        yield value
    else:
        for x in value:
            yield from _flatten(x, depth - 1)


def evaluate(expr: Expr) -> tuple[Any, Fault]:
    """The value of an expression of constants only, and what it faults with."""
    it = _Run(Program(Record("", ()), None, (), (), ()), {}, EventContext(), {}, {}, 0)
    return it.eval(expr), it.faults


def run(
    program: Program,
    event: Mapping[str, Any],
    *,
    meta: EventContext | None = None,
    params: Mapping[str, Any] | None = None,
    state: State | None = None,
    fuel: int = FUEL,
) -> Outcome:
    """Evaluate on one raw event. `state` is read and updated in place; a stateful program needs one."""
    variables: State = {slot: _initial(v) for slot, v in enumerate(program.variables) if not v.state}
    variables |= state or {}
    output = blank(program.output) if program.output is not None else None
    it = _Run(program, event, meta or EventContext(), params or {}, variables, fuel, output=output)
    try:
        it.block(program.body)
    except _OutOfFuel:
        it.verdict = None
    if state is not None:
        state.update({slot: variables[slot] for slot in state})
    filled = program.output is None or (not it.spoiled and complete(program.output, it.output or {}))
    if it.verdict is True and filled:
        if program.output is not None and not is_sound(program.output, it.output):
            return Outcome(Status.UNDECIDED, it.faults | Fault.MALFORMED)
        return Outcome(Status.PASSED, it.faults, it.output)
    return Outcome(Status.REJECTED if it.verdict is False else Status.UNDECIDED, it.faults)
