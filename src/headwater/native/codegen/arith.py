"""Arithmetic, comparison, casts and reductions: the part of the generator that has nothing to do with where values
come from. Each function takes the expression writer and returns a value; see docs/semantics.md for every rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.ir.interp import Fault
from headwater.ir.nodes import Binary, Const, Reduce, Unary
from headwater.native.emit import Val, double, is_text, llvm
from headwater.types.model import (
    BOOL,
    F32,
    F64,
    I64,
    TIMESTAMP,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    U64,
    Array,
    List,
    Scalar,
    Type,
)

if TYPE_CHECKING:
    from headwater.native.codegen.expr import Exprs

LEAST = -(1 << 63)
INLINE_TEXT = 32  # bytes of a constant that is compared in place
_SIGNED = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
_UNSIGNED = {"eq": "eq", "ne": "ne", "lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"}
_FLOAT = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_SWAPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def overflow(g: Exprs, op: str, a: str, b: str, signed: bool) -> tuple[str, str]:
    """The result and whether it does not fit 64 bits."""
    name = f"llvm.{'s' if signed else 'u'}{op}.with.overflow.i64"
    g.fn.module.intrinsic(f"{{i64, i1}} @{name}(i64, i64)")
    pair = g.fn.v(f"call {{i64, i1}} @{name}(i64 {a}, i64 {b})")
    return g.fn.v(f"extractvalue {{i64, i1}} {pair}, 0"), g.fn.v(f"extractvalue {{i64, i1}} {pair}, 1")


def unary(g: Exprs, expr: Unary, a: Val) -> Val:
    """Negation, with its one overflow, or the complement."""
    if expr.op == "bitnot":
        return Val(g.fn.v(f"xor i64 {a.x}, -1"), a.ok)
    if expr.type == F64:
        return Val(g.fn.v(f"fneg double {a.x}"), a.ok)
    x = g.fn.v(f"sub i64 0, {a.x}")
    if not g.facts.fault(expr):
        return Val(x, a.ok)
    return g.checked(x, g.fn.v(f"icmp eq i64 {a.x}, {LEAST}"), Fault.OVERFLOW, a.ok)


def binary(g: Exprs, expr: Binary, a: Val, b: Val) -> Val:
    """An operation on two numbers; missing if one of them is."""
    ok = g.fn.and_(a.ok, b.ok)
    if expr.type == F64:
        return float_binary(g, expr, a, b, ok)
    match expr.op:
        case "and" | "or" | "xor":
            return Val(g.fn.v(f"{expr.op} i64 {a.x}, {b.x}"), ok)
        case "add" | "sub" | "mul":
            return _sum(g, expr, a.x, b.x, ok)
        case "shl" | "shr":
            return _shift(g, expr, a.x, b.x, ok)
    return _divide(g, expr, a.x, b.x, ok)


def float_binary(g: Exprs, expr: Binary, a: Val, b: Val, ok: str | None) -> Val:
    """The same of floats, where only a division by zero can fault."""
    op = {"add": "fadd", "sub": "fsub", "mul": "fmul"}.get(expr.op, "fdiv")
    x = g.fn.v(f"{op} double {a.x}, {b.x}")
    if op != "fdiv" or not g.facts.fault(expr):
        return Val(x, ok)
    return g.checked(x, g.fn.v(f"fcmp oeq double {b.x}, 0.0"), Fault.DIVISION, ok)


def _sum(g: Exprs, expr: Binary, a: str, b: str, ok: str | None) -> Val:
    if not g.facts.fault(expr):
        return Val(g.fn.v(f"{expr.op} i64 {a}, {b}"), ok)
    x, bad = overflow(g, expr.op, a, b, expr.type != U64)
    if expr.type == TIMESTAMP:
        bad = g.fn.or_(bad, g.fn.not_(in_range(g, x, TIMESTAMP_MIN, TIMESTAMP_MAX)))
    return g.checked(x, bad, Fault.OVERFLOW, ok)


def in_range(g: Exprs, x: str, least: int, greatest: int) -> str:
    """least <= x <= greatest, signed, as one comparison."""
    return g.fn.v(f"icmp ule i64 {g.fn.v(f'sub i64 {x}, {least}')}, {greatest - least}")


def _shift(g: Exprs, expr: Binary, a: str, b: str, ok: str | None) -> Val:
    wanted = g.facts.fault(expr)
    bad = g.fn.v(f"icmp ugt i64 {b}, 63")
    by = g.fn.select(bad, "i64", "0", b)
    back = "lshr" if expr.type == U64 else "ashr"
    if expr.op == "shr":
        return g.checked(g.fn.v(f"{back} i64 {a}, {by}"), bad, Fault.OVERFLOW, ok, wanted)
    x = g.fn.v(f"shl i64 {a}, {by}")
    lost = g.fn.v(f"icmp ne i64 {g.fn.v(f'{back} i64 {x}, {by}')}, {a}")
    return g.checked(x, g.fn.or_(bad, lost), Fault.OVERFLOW, ok, wanted)


def _divide(g: Exprs, expr: Binary, a: str, b: str, ok: str | None) -> Val:
    """A divisor of zero (or -1, whose results need no division) is replaced before it can trap."""
    fn, signed, constant = g.fn, expr.type != U64, isinstance(expr.b, Const) and expr.b.value not in (0, -1)
    wanted = g.facts.fault(expr)
    if not constant:
        nought = fn.v(f"icmp eq i64 {b}, 0")
        if wanted:
            g.fault(Fault.DIVISION, nought, ok)
            ok = fn.and_(fn.not_(nought), ok)
        replaced = nought
        if signed:
            minus = fn.v(f"icmp eq i64 {b}, -1")
            replaced = fn.or_(nought, minus)
        by = fn.select(replaced, "i64", "1", b)
    else:
        by = b
    if not signed:
        return Val(fn.v(f"{'udiv' if expr.op in ('tdiv', 'fdiv') else 'urem'} i64 {a}, {by}"), ok)
    rest = fn.v(f"srem i64 {a}, {by}")  # by 1 where the divisor was -1: 0, as it should be
    if expr.op == "tmod":
        return Val(rest, ok)
    odd = fn.v(f"icmp ne i64 {rest}, 0")
    apart = fn.v(f"icmp slt i64 {fn.v(f'xor i64 {rest}, {by}')}, 0")
    adjust = fn.and_(odd, apart) or "true"
    if expr.op == "fmod":
        return Val(fn.select(adjust, "i64", fn.v(f"add i64 {rest}, {by}"), rest), ok)
    x = fn.v(f"sdiv i64 {a}, {by}")
    if expr.op == "fdiv":
        x = fn.select(adjust, "i64", fn.v(f"sub i64 {x}, 1"), x)
    if constant:
        return Val(x, ok)
    x = fn.select(minus, "i64", fn.v(f"sub i64 0, {a}"), x)
    if not wanted:
        return Val(x, ok)
    return g.checked(x, fn.and_(minus, fn.v(f"icmp eq i64 {a}, {LEAST}")) or "true", Fault.OVERFLOW, ok)


def compare(g: Exprs, op: str, a: Val, b: Val, left: Type, right: Type) -> Val:
    """A comparison. Signed and unsigned meet exactly: what is below zero is less than everything unsigned."""
    fn, ok = g.fn, g.fn.and_(a.ok, b.ok)
    if is_text(left):
        arguments = f"ptr {a.x}, i64 {a.n}, i8 {a.fold}, ptr {b.x}, i64 {b.n}, i8 {b.fold}"
        if op in ("eq", "ne"):
            same = text_equal(g, a, b, arguments)
            return Val(same if op == "eq" else fn.not_(same), ok)
        return Val(fn.v(f"icmp {_SIGNED[op]} i32 {g.runtime('hw_cmp', arguments)}, 0"), ok)
    if left == F64:
        return Val(fn.v(f"fcmp {_FLOAT[op]} double {a.x}, {b.x}"), ok)
    if left == BOOL:
        return Val(fn.v(f"icmp {op} i1 {a.x}, {b.x}"), ok)
    if {left, right} == {I64, U64}:
        if left == U64:
            a, b, op = b, a, _SWAPPED[op]
        below = fn.v(f"icmp slt i64 {a.x}, 0")
        x = fn.v(f"icmp {_UNSIGNED[op]} i64 {a.x}, {b.x}")
        x = fn.or_(below, x) if op in ("lt", "le", "ne") else fn.and_(fn.not_(below), x) or "true"
        return Val(x, ok)
    table = _UNSIGNED if left == U64 else _SIGNED
    return Val(fn.v(f"icmp {table[op]} i64 {a.x}, {b.x}"), ok)


def text_equal(g: Exprs, a: Val, b: Val, arguments: str) -> str:
    """Lengths first: most texts differ there, and the kernel is called only when they do not."""
    for one, other in ((a, b), (b, a)):
        data = constant_text(g, other)
        if data is not None and one.fold == "0":
            return text_matches(g, one, other.x, data, g.fn.v(f"icmp eq i64 {one.n}, {len(data)}"))
    fn = g.fn
    out = fn.alloca("i1")
    fn.store("i1", "false", out)

    def look() -> None:
        fn.store("i1", g.runtime("hw_eq", arguments), out)

    fn.branch(fn.v(f"icmp eq i64 {a.n}, {b.n}"), look)
    return fn.load("i1", out)


def constant_text(g: Exprs, b: Val) -> bytes | None:
    """The bytes of a short constant that is taken as it is."""
    data = g.fn.module.texts.get(b.x)
    return data if data is not None and len(data) <= INLINE_TEXT and b.fold == "0" and b.n.isdecimal() else None


def text_matches(g: Exprs, a: Val, name: str, data: bytes, fits: str) -> str:
    """Whether a text begins with a short constant, without a call or branch: words are compared where the length
    `fits`, else the constant is read in the text's place."""
    fn, size, same = g.fn, len(data), fits
    if size == 0:
        return fits
    base = fn.select(fits, "ptr", a.x, name)
    width = next(w for w in (8, 4, 2, 1) if w <= size)
    for at in dict.fromkeys([*range(0, size - width + 1, width), size - width]):
        word = int.from_bytes(data[at : at + width], "little", signed=True)
        same = (
            fn.and_(same, fn.v(f"icmp eq i{8 * width} {fn.load(f'i{8 * width}', fn.gep(base, at))}, {word}")) or "true"
        )
    return same


def cast(g: Exprs, a: Val, source: Type, to: Type, may_fault: bool) -> Val:
    """A conversion, checked where the analysis could not prove it safe."""
    fn = g.fn
    if to == BOOL:
        if source == BOOL:
            return a
        return Val(fn.v(f"fcmp une double {a.x}, 0.0" if source == F64 else f"icmp ne i64 {a.x}, 0"), a.ok)
    if to in (F64, F32):
        x = a.x
        if source != F64:
            kind = "uitofp i1" if source == BOOL else "uitofp i64" if source == U64 else "sitofp i64"
            x = fn.v(f"{kind} {a.x} to double")
        return Val(x if to == F64 else fn.v(f"fpext float {fn.v(f'fptrunc double {x} to float')} to double"), a.ok)
    assert isinstance(to, Scalar)
    if source == BOOL:
        return Val(fn.v(f"zext i1 {a.x} to i64"), a.ok)
    if source == F64:
        return float_to_int(g, a, to, may_fault)
    least, greatest = to.range
    if not may_fault or source == to or (to == I64 and source == TIMESTAMP):
        return Val(a.x, a.ok)
    if source == U64 or to == U64:
        limit = min(greatest, (1 << 63) - 1) if source != U64 or to != U64 else greatest
        bad = fn.v(f"icmp ugt i64 {a.x}, {limit}")
        return g.checked(a.x, bad, Fault.OVERFLOW, a.ok)
    return g.checked(a.x, fn.not_(in_range(g, a.x, least, greatest)), Fault.OVERFLOW, a.ok)


def float_to_int(g: Exprs, a: Val, to: Scalar, wanted: bool) -> Val:
    """Truncated; the range is checked on the float, because converting what does not fit has no meaning in LLVM."""
    fn = g.fn
    fn.module.intrinsic("double @llvm.trunc.f64(double)")
    whole = fn.v(f"call double @llvm.trunc.f64(double {a.x})")
    least, greatest = to.range
    low = fn.v(f"fcmp oge double {whole}, {double(float(least))}")
    high = fn.v(f"fcmp olt double {whole}, {double(float(greatest + 1))}")
    fits = fn.and_(low, high) or "true"
    x = fn.select(fits, "double", whole, "0.0")
    x = fn.v(f"{'fptoui' if to == U64 else 'fptosi'} double {x} to i64")
    return g.checked(x, fn.not_(fits), Fault.OVERFLOW, a.ok, wanted)


def least_of(g: Exprs, type: Type, x: str, y: str, greatest: bool) -> str:
    """min or max of two: the first unless the second is strictly beyond it; NaN if either is."""
    fn = g.fn
    if llvm(type) == "double":
        beyond = fn.v(f"fcmp {'ugt' if greatest else 'ult'} double {y}, {x}")
        first_nan = fn.v(f"fcmp uno double {x}, {x}")
        take = fn.and_(beyond, fn.not_(first_nan)) or "true"
        return fn.select(take, "double", y, x)
    sign = "u" if type == U64 else "s"
    return fn.select(fn.v(f"icmp {sign}{'gt' if greatest else 'lt'} i64 {y}, {x}"), "i64", y, x)


def reduce(g: Exprs, expr: Reduce, count: str, element: Callable[[str], Val], ok: str | None = None) -> Val:
    """Over `count` elements in order; `count` is 0 where the array is missing."""
    fn, op, stored = g.fn, expr.op, expr.stored
    assert isinstance(stored, Array | List) and isinstance(stored.element, Scalar)
    type = F64 if op == "mean" else expr.type
    kind = llvm(type)
    total, spoiled = fn.alloca(kind), fn.alloca("i1")
    checks = op == "sum" and type != F64 and (stored.element.bits == 64 and g.facts.fault(expr))
    fn.store(kind, "0.0" if kind == "double" else "0", total, 8)
    fn.store("i1", "false", spoiled)

    def body(i: str) -> None:
        x, so_far = element(i).x, fn.load(kind, total, 8)
        if op == "mean" and llvm(stored.element) != "double":
            x = fn.v(f"{'uitofp' if stored.element == U64 else 'sitofp'} i64 {x} to double")
        if op in ("min", "max"):
            best = least_of(g, type, so_far, x, op == "max")
            new = fn.select(fn.v(f"icmp eq i64 {i}, 0"), kind, x, best)
        elif kind == "double":
            new = fn.v(f"fadd double {so_far}, {x}")
        elif checks:
            new, bad = overflow(g, "add", so_far, x, type != U64)
            fn.store("i1", fn.or_(bad, fn.load("i1", spoiled)), spoiled)
        else:
            new = fn.v(f"add i64 {so_far}, {x}")
        fn.store(kind, new, total, 8)

    fn.loop(count, body)
    result = fn.load(kind, total, 8)
    if op == "sum":
        return g.checked(result, fn.load("i1", spoiled), Fault.OVERFLOW, ok) if checks else Val(result, ok)
    if not count.isdecimal():
        ok = fn.and_(ok, fn.v(f"icmp ne i64 {count}, 0"))
    if op == "mean":
        n = fn.v(f"uitofp i64 {count} to double")
        result = fn.v(f"fdiv double {result}, {n}")
    return Val(result, ok)
