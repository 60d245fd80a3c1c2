"""Expressions to LLVM: one generator over a reader (of a record or of columns) for all executions.

A value that is missing still has *some* bits, so code is written to be harmless on any bits: divisors are guarded,
conversions are checked before they are made, addresses are chosen before they are read. Faults count only where the
operands are there. Branches appear only where an operand that may fault, or costs much, must not be evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.ir.interp import Fault
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
    Program,
    Reduce,
    Unary,
    Var,
)
from headwater.native.codegen import arith
from headwater.native.codegen.calls import call
from headwater.native.codegen.facts import Facts
from headwater.native.codegen.variables import Places
from headwater.native.emit import Fn, Val, double, is_text, llvm, zero
from headwater.native.env import ParamSlots
from headwater.native.kernels.runtime import SIGNATURES
from headwater.types.model import BOOL, F64, U64, Array, List, Record, Type


class Exprs:
    """Writes expressions of one program into one function."""

    def __init__(self, fn: Fn, program: Program, facts: Facts, reader: Any, params: ParamSlots, places: Places) -> None:
        self.fn, self.program, self.facts, self.reader = fn, program, facts, reader
        self.params, self.places = params, places
        self.faults = fn.alloca("i32")
        self.faulted = 0  # the kinds that generated code can raise at all
        self.ahead = 0  # above 0: evaluating what the meaning may not ask for, so proofs about indices do not hold

    # ── faults, branches ──

    def fault(self, kind: Fault, when: str, ok: str | None) -> None:
        """Raise a fault where `when` holds and the operands are there.

        What is evaluated ahead of need was proven not to fault where the meaning asks for it; where it does not ask,
        there is nothing to count.
        """
        if self.ahead:
            return
        raised = self.fn.and_(when, ok) or "true"
        if raised == "false":
            return
        self.faulted |= int(kind)
        bits = self.fn.select(raised, "i32", str(int(kind)), "0")
        self.fn.store("i32", self.fn.v(f"or i32 {self.fn.load('i32', self.faults, 4)}, {bits}"), self.faults, 4)

    def checked(self, x: str, bad: str, kind: Fault, ok: str | None, wanted: bool = True) -> Val:
        """A result that is missing, with a fault, where `bad` holds; not `wanted` where that is proven never to be."""
        if not wanted:
            return Val(x, ok)
        self.fault(kind, bad, ok)
        return Val(x, self.fn.and_(self.fn.not_(bad), ok))

    def runtime(self, name: str, arguments: str) -> str:
        """Call a shared kernel."""
        callee = self.fn.module.declare(SIGNATURES[name], name)
        return self.fn.v(f"call {SIGNATURES[name].split(' ')[0]} {callee}({arguments})")

    def hold(self, type: Type) -> tuple[Callable[[Val], None], Callable[[], Val]]:
        """A temporary that branches can set and the join can read."""
        fn, kind = self.fn, llvm(type)
        x, ok = fn.alloca(kind), fn.alloca("i1")
        more = (fn.alloca("i64"), fn.alloca("i8")) if is_text(type) else ()

        def put(value: Val) -> None:
            fn.store(kind, value.x, x, 8)
            fn.store("i1", value.ok or "true", ok)
            if more:
                fn.store("i64", value.n, more[0], 8)
                fn.store("i8", value.fold, more[1])

        def get() -> Val:
            value, there = fn.load(kind, x, 8), fn.load("i1", ok)
            if not more:
                return Val(value, there)
            return Val(value, there, fn.load("i64", more[0], 8), fn.load("i8", more[1]))

        return put, get

    def missing(self, type: Type) -> Val:
        return Val(zero(type), "false", "0")

    def when(self, ok: str | None, expr: Expr) -> Val:
        """The expression where `ok` holds, else missing; without a branch where nothing would show."""
        if ok is None or self.facts.speculable(expr):
            value = self.eval(expr) if ok is None else self.speculate(expr)
            return Val(value.x, self.fn.and_(ok, value.ok), value.n, value.fold)
        put, get = self.hold(expr.type)
        put(self.missing(expr.type))
        self.fn.branch(ok, lambda: put(self.eval(expr)))
        return get()

    def speculate(self, expr: Expr) -> Val:
        """The expression, evaluated perhaps without need; the caller drops the value then."""
        self.ahead += 1
        value = self.eval(expr)
        self.ahead -= 1
        return value

    # ── expressions ──

    def eval(self, expr: Expr) -> Val:
        value = self._eval(expr)
        if value.ok is not None and value.ok != "false" and not self.facts.miss(expr):
            return Val(value.x, None, value.n, value.fold)
        return value

    def _eval(self, expr: Expr) -> Val:
        """Code for an expression; its value, and whether it is there."""
        match expr:
            case Const():
                return self.const(expr.value, expr.type)
            case Missing(type=type):
                return self.missing(type)
            case Load(path=path, stored=stored):
                cursor, ok = self.walk(path, not self.facts.fault(expr))
                return self.scalar(cursor, stored, ok)
            case Var(slot=slot):
                return self.places.read(slot, None)
            case Elem(slot=slot, indices=indices):
                at, ok = self.offset(slot, indices, not self.facts.fault(expr))
                value = self.places.read(slot, at)
                return Val(value.x, self.fn.and_(ok, value.ok), value.n, value.fold)
            case Param(name=name):
                return self.params.scalar(self.fn, name)
            case Meta(name=name):
                return self.scalar_meta(name)
            case Logic(op=op, args=args):
                return self.logic(op == "or", args)
            case Cond():
                return self.cond(expr)
            case IsMissing(a=a):
                return self.is_missing(a)
            case Call(fn="coalesce", args=args, type=type):
                return self.coalesce(args, type)
            case Call():
                return call(self, expr)
            case Reduce():
                return self.reduce(expr)
            case InSet(a=a, values=values, param=None):
                return self.in_constants(self.eval(a), a.type, values)
            case InSet(a=a, param=name):
                found, ok, _ = self.find_param(str(name), a)
                return Val(self.fn.v(f"icmp sge i64 {found}, 0"), ok)
            case Lookup(param=name, key=key):
                found, ok, decl = self.find_param(name, key)
                return self.params.value_at(self.fn, decl, found, ok)
            case Unary(op="not", a=a):
                value = self.eval(a)
                return Val(self.fn.not_(value.x), value.ok)
            case Unary():
                return arith.unary(self, expr, self.eval(expr.a))
            case Binary(a=a, b=b):
                return arith.binary(self, expr, self.eval(a), self.eval(b))
            case Compare(op=op, a=a, b=b):
                return arith.compare(self, op, self.eval(a), self.eval(b), a.type, b.type)
            case Cast(a=a, to=to):
                return arith.cast(self, self.eval(a), a.type, to, self.facts.fault(expr))

    def const(self, value: Any, type: Type) -> Val:
        if is_text(type):
            data = value.encode() if isinstance(value, str) else bytes(value)
            return Val(self.fn.module.data(data), None, str(len(data)))
        if type == BOOL:
            return Val("true" if value else "false")
        if llvm(type) == "double":
            return Val(double(float(value)))
        return Val(str(int(value) - (1 << 64) if int(value) >= 1 << 63 else int(value)))

    def scalar_meta(self, name: str) -> Val:
        value: Val = self.reader.meta(name)
        return value

    # ── paths into the input ──

    def walk(self, path: Path, safe: bool = False) -> tuple[Any, str | None]:
        """Where a path leads and whether it is there; `safe`: indices are known to be in range."""
        cursor, ok = self.reader.root(), None
        here: Type = self.program.input
        for step in path.steps:
            if isinstance(step, str):
                assert isinstance(here, Record)
                cursor, present = self.reader.field(self, cursor, here, step)
                ok = self.fn.and_(ok, present)
                here = here.by_name[step].type
            elif isinstance(here, Array):
                at, ok = self.index(step, str(here.shape[0]), ok, safe)
                cursor = self.reader.item(self, cursor, here, at)
                here = Array(here.element, here.shape[1:]) if len(here.shape) > 1 else here.element
            else:
                assert isinstance(here, List)
                start, count, ok = self.reader.list(self, cursor, here, ok)
                at, ok = self.index(step, count, ok, False)
                cursor = self.reader.list_item(self, start, here, at, ok)
                here = here.element
        return cursor, ok

    def index(self, expr: Expr, length: str, ok: str | None, safe: bool) -> tuple[str, str | None]:
        """An index in range, or 0 where it is not (then the result is not ok)."""
        value = self.when(ok, expr)
        if isinstance(expr, Const) and length.isdecimal() and 0 <= int(expr.value) < int(length):
            return value.x, ok
        ok = self.fn.and_(ok, value.ok)
        if safe and not self.ahead and self.facts.firm:
            return (value.x if ok is None else self.fn.select(ok, "i64", value.x, "0")), ok
        inside = self.fn.v(f"icmp ult i64 {value.x}, {length}")
        # in range on whatever is well-formed: what is not, must be malformed
        self.fault(Fault.MALFORMED if safe else Fault.INDEX, self.fn.not_(inside), ok)
        ok = self.fn.and_(ok, inside)
        return self.fn.select(ok or "true", "i64", value.x, "0"), ok

    def offset(self, slot: int, indices: tuple[Expr, ...], safe: bool) -> tuple[str, str | None]:
        """The flat index into an array variable."""
        total, ok = "0", None
        for expr, size in zip(indices, self.program.variables[slot].shape, strict=True):
            at, ok = self.index(expr, str(size), ok, safe)
            total = at if total == "0" else self.fn.v(f"add i64 {self.fn.v(f'mul i64 {total}, {size}')}, {at}")
        return total, ok

    def scalar(self, cursor: Any, stored: Type, ok: str | None) -> Val:
        if isinstance(stored, Array | List | Record):
            return Val("false", ok)  # only whether it is there matters
        value: Val = self.reader.scalar(self, cursor, stored, ok)
        return value

    def is_missing(self, a: Expr) -> Val:
        """Of a path only its presence is looked at, so a text's reference is not followed."""
        if isinstance(a, Load):
            _, ok = self.walk(a.path, not self.facts.fault(a))
            ok = None if not self.facts.miss(a) else ok
        else:
            ok = self.eval(a).ok
        return Val("false" if ok is None else self.fn.not_(ok))

    # ── what evaluates only some of its operands ──

    def logic(self, decisive: bool, args: tuple[Expr, ...]) -> Val:
        """Three-valued and/or. `hit`: an operand decided; `gap`: an operand was missing."""
        fn = self.fn
        ahead = False
        if not any(map(self.facts.may_fault, args)):  # nothing shows, so the cheap ones go first
            ordered = tuple(sorted(args, key=self.facts.cost))
            ahead, args = any(a is not b for a, b in zip(args, ordered, strict=True)), ordered
        hit, gap, holds = "false", "false", None
        end = fn.label("decided")
        for arg in args:
            if not self.facts.speculable(arg) and hit != "false":
                if holds is None:
                    holds = (fn.alloca("i1"), fn.alloca("i1"))
                fn.store("i1", hit, holds[0])
                fn.store("i1", gap, holds[1])
                more = fn.label("more")
                fn.cbr(hit, end, more)
                fn.at(more)
                hit = "false"  # on this way it is
            value = self.speculate(arg) if ahead or hit != "false" else self.eval(arg)
            says = value.x if decisive else fn.not_(value.x)
            hit = fn.or_(hit, fn.and_(value.ok, says) or "true")
            gap = fn.or_(gap, "false" if value.ok is None else fn.not_(value.ok))
        if holds is not None:
            fn.store("i1", hit, holds[0])
            fn.store("i1", gap, holds[1])
            fn.at(end)
            hit = fn.load("i1", holds[0])
            gap = gap if gap == "false" else fn.load("i1", holds[1])
        ok = None if gap == "false" else fn.or_(hit, fn.not_(gap))
        return Val(hit if decisive else fn.not_(hit), ok)

    def pick(self, test: str, type: Type, a: Val, b: Val) -> Val:
        """Without a branch: `a` if test else `b`."""
        fn = self.fn
        ok = None if a.ok is None and b.ok is None else fn.select(test, "i1", a.ok or "true", b.ok or "true")
        x = fn.select(test, llvm(type), a.x, b.x)
        if not is_text(type):
            return Val(x, ok)
        return Val(x, ok, fn.select(test, "i64", a.n, b.n), fn.select(test, "i8", a.fold, b.fold))

    def cond(self, expr: Cond) -> Val:
        fn, test = self.fn, self.eval(expr.test)
        if all(map(self.facts.speculable, (expr.then, expr.other, expr.neither))):
            chosen = self.pick(test.x, expr.type, self.speculate(expr.then), self.speculate(expr.other))
            if test.ok is None:
                return chosen
            return self.pick(test.ok, expr.type, chosen, self.speculate(expr.neither))
        put, get = self.hold(expr.type)

        def decided() -> None:
            fn.branch(test.x, lambda: put(self.eval(expr.then)), lambda: put(self.eval(expr.other)))

        if test.ok is None:
            decided()
        else:
            fn.branch(test.ok, decided, lambda: put(self.eval(expr.neither)))
        return get()

    def coalesce(self, args: tuple[Expr, ...], type: Type) -> Val:
        first = self.eval(args[0])
        if first.ok is None or len(args) == 1:
            return first
        rest = args[1:]
        if all(map(self.facts.speculable, rest)):
            self.ahead += 1
            second = self.coalesce(rest, type)
            self.ahead -= 1
            return self.pick(first.ok, type, first, second)
        put, get = self.hold(type)
        there = first.ok
        self.fn.branch(there, lambda: put(Val(first.x, None, first.n, first.fold)),
                       lambda: put(self.coalesce(rest, type)))  # fmt: skip
        return get()

    # ── membership ──

    def in_constants(self, a: Val, type: Type, values: tuple[Const, ...]) -> Val:
        """Whether a value is among constants: few are compared one by one, more are searched for in a sorted table."""
        fn = self.fn
        if len(values) <= 8:
            hit = "false"
            for each in values:
                hit = fn.or_(hit, arith.compare(self, "eq", a, self.const(each.value, type), type, type).x)
            return Val(hit, a.ok)
        raw = {v.value for v in values if v.value == v.value}
        if is_text(type):
            items = sorted(x.encode() if isinstance(x, str) else bytes(x) for x in raw)  # type: ignore[arg-type]
            ends = [0]
            for item in items:
                ends.append(ends[-1] + len(item))
            offs, data = fn.module.words(ends), fn.module.data(b"".join(items))
            found = self.runtime(
                "hw_find_text", f"ptr {offs}, ptr {data}, i64 {len(items)}, ptr {a.x}, i64 {a.n}, i8 {a.fold}"
            )
        elif type == F64:
            floats = sorted(float(x) for x in raw)
            inside = ", ".join(f"double {double(x)}" for x in floats) or "double 0.0"
            keys = fn.module.constant(f"[{max(1, len(floats))} x double] [{inside}]")
            found = self.runtime("hw_find_f64", f"ptr {keys}, i64 {len(floats)}, double {a.x}")
        else:
            key = fn.v(f"zext i1 {a.x} to i64") if type == BOOL else a.x
            keys = fn.module.words(sorted(int(x) for x in raw))
            kernel = "hw_find_u64" if type == U64 else "hw_find_i64"
            found = self.runtime(kernel, f"ptr {keys}, i64 {len(raw)}, i64 {key}")
        return Val(fn.v(f"icmp sge i64 {found}, 0"), a.ok)

    def find_param(self, name: str, key: Expr) -> tuple[str, str | None, Any]:
        """The position of a key among a parameter's keys, or -1."""
        fn, decl, value = self.fn, self.params.decls[name], self.eval(key)
        keys, count, extra = self.params.keys(fn, name)
        if is_text(decl.type):
            return (
                self.runtime(
                    "hw_find_text",
                    f"ptr {keys}, ptr {extra}, i64 {count}, ptr {value.x}, i64 {value.n}, i8 {value.fold}",
                ),
                value.ok,
                decl,
            )
        if decl.type == F64:
            return self.runtime("hw_find_f64", f"ptr {keys}, i64 {count}, double {value.x}"), value.ok, decl
        x = fn.v(f"zext i1 {value.x} to i64") if decl.type == BOOL else value.x
        kernel = "hw_find_u64" if decl.type == U64 else "hw_find_i64"
        return self.runtime(kernel, f"ptr {keys}, i64 {count}, i64 {x}"), value.ok, decl

    # ── reductions ──

    def reduce(self, expr: Reduce) -> Val:
        """Code that makes one value of an array or list, element by element in its order."""
        fn, op, stored = self.fn, expr.op, expr.stored
        assert isinstance(stored, Array | List)
        cursor, ok = self.walk(expr.path, not self.facts.fault(expr))
        if isinstance(stored, Array):
            if op == "len":
                return Val(str(stored.shape[0]), ok)
            count: str = str(stored.count)

            def element(i: str) -> Val:
                return self.scalar(self.reader.flat_item(self, cursor, stored, i), stored.element, None)
        else:
            start, count, ok = self.reader.list(self, cursor, stored, ok)
            if op == "len":
                return Val(count, ok)

            def element(i: str) -> Val:
                return self.scalar(self.reader.list_item(self, start, stored, i, None), stored.element, None)

        if ok is None:
            return arith.reduce(self, expr, count, element)
        return arith.reduce(self, expr, fn.select(ok, "i64", count, "0"), element, ok)
