"""The function library (`ir/functions.py`) in native code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.ir.functions import MICROS
from headwater.ir.interp import Fault
from headwater.ir.nodes import Call, Const
from headwater.native.codegen import arith
from headwater.native.emit import Val
from headwater.types.model import BYTES, F64, I64, U64

if TYPE_CHECKING:
    from headwater.native.codegen.expr import Exprs

_DAY = 86_400_000_000
_PARTS = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60), "second": (1_000_000, 60)}
_KERNELS = {"starts_with": "hw_starts", "ends_with": "hw_ends", "contains": "hw_contains"}


def call(g: Exprs, expr: Call) -> Val:
    """A call of a library function: in place where it is a few instructions, else by one of the runtime's."""
    fn, name = g.fn, expr.fn
    if name == "like":
        return _like(g, g.eval(expr.args[0]), expr.args[1])
    xs = [g.eval(arg) for arg in expr.args]
    ok: str | None = None
    for x in xs:
        ok = fn.and_(ok, x.ok)
    a = xs[0]
    match name:
        case "min" | "max":
            best = a.x
            for x in xs[1:]:
                best = arith.least_of(g, expr.type, best, x.x, name == "max")
            return Val(best, ok)
        case "abs":
            return _abs(g, expr, a)
        case "floor" | "ceil" | "sqrt":
            return Val(_intrinsic(g, name, a.x), ok)
        case "pow" | "exp" | "log" | "sin" | "cos":
            return Val(g.runtime(f"hw_{name}", ", ".join(f"double {x.x}" for x in xs)), ok)
        case "fmod":
            nought = fn.v(f"fcmp oeq double {xs[1].x}, 0.0")
            rest = g.runtime("hw_fmod", f"double {a.x}, double {xs[1].x}")
            return g.checked(rest, nought, Fault.DIVISION, ok, g.facts.fault(expr))
        case "is_nan":
            return Val(fn.v(f"fcmp uno double {a.x}, {a.x}"), ok)
        case "distance" | "distance3":
            return Val(_distance(g, xs), ok)
        case "length" | "byte_length":
            plain = name == "byte_length" or expr.args[0].type == BYTES
            return Val(a.n if plain else g.runtime("hw_chars", f"ptr {a.x}, i64 {a.n}"), ok)
        case "starts_with" | "ends_with" | "contains":
            return Val(_two_texts(g, _KERNELS[name], a, xs[1]), ok)
        case "lower" | "upper":
            return Val(a.x, a.ok, a.n, "1" if name == "lower" else "2")
        case "seconds" | "minutes" | "hours" | "days":
            return _micros(g, expr, a, MICROS[name])
        case "micros" | "code":
            return a
        case "weekday":
            return Val(_floor_mod(g, fn.v(f"add i64 {_floor_div(g, a.x, _DAY)}, 3"), 7), ok)
        case "year" | "month" | "day":
            return Val(_civil(g, name, a.x), ok)
        case _:
            unit, count = _PARTS[name]
            return Val(_floor_mod(g, _floor_div(g, a.x, unit), count), ok)


def _intrinsic(g: Exprs, name: str, x: str) -> str:
    g.fn.module.intrinsic(f"double @llvm.{name}.f64(double)")
    return g.fn.v(f"call double @llvm.{name}.f64(double {x})")


def _abs(g: Exprs, expr: Call, a: Val) -> Val:
    fn = g.fn
    if expr.type == F64:
        return Val(_intrinsic(g, "fabs", a.x), a.ok)
    if expr.type == U64:
        return a
    below = fn.v(f"icmp slt i64 {a.x}, 0")
    x = fn.select(below, "i64", fn.v(f"sub i64 0, {a.x}"), a.x)
    if not g.facts.fault(expr):
        return Val(x, a.ok)
    return g.checked(x, fn.v(f"icmp eq i64 {a.x}, {arith.LEAST}"), Fault.OVERFLOW, a.ok)


def _distance(g: Exprs, xs: list[Val]) -> str:
    fn, half, total = g.fn, len(xs) // 2, "0.0"
    for a, b in zip(xs[:half], xs[half:], strict=True):
        d = fn.v(f"fsub double {a.x}, {b.x}")
        total = fn.v(f"fadd double {total}, {fn.v(f'fmul double {d}, {d}')}")
    return _intrinsic(g, "sqrt", total)


def _two_texts(g: Exprs, kernel: str, a: Val, b: Val) -> str:
    data = arith.constant_text(g, b)
    if data is not None and a.fold == "0" and kernel in ("hw_starts", "hw_eq"):
        fits = g.fn.v(f"icmp {'uge' if kernel == 'hw_starts' else 'eq'} i64 {a.n}, {len(data)}")
        return arith.text_matches(g, a, b.x, data, fits)
    return g.runtime(kernel, f"ptr {a.x}, i64 {a.n}, i8 {a.fold}, ptr {b.x}, i64 {b.n}, i8 {b.fold}")


def _micros(g: Exprs, expr: Call, a: Val, unit: int) -> Val:
    fn, kind = g.fn, expr.args[0].type
    if kind == F64:
        return arith.float_to_int(g, Val(fn.v(f"fmul double {a.x}, {float(unit)!r}"), a.ok), I64, g.facts.fault(expr))
    if not g.facts.fault(expr):
        return Val(fn.v(f"mul i64 {a.x}, {unit}"), a.ok)
    x, bad = arith.overflow(g, "mul", a.x, str(unit), kind != U64)
    if kind == U64:
        bad = fn.or_(bad, fn.v(f"icmp slt i64 {x}, 0"))
    return g.checked(x, bad, Fault.OVERFLOW, a.ok)


def _floor_div(g: Exprs, x: str, by: int) -> str:
    fn = g.fn
    below = fn.v(f"icmp slt i64 {fn.v(f'srem i64 {x}, {by}')}, 0")
    return fn.v(f"add i64 {fn.v(f'sdiv i64 {x}, {by}')}, {fn.v(f'sext i1 {below} to i64')}")


def _floor_mod(g: Exprs, x: str, by: int) -> str:
    fn, rest = g.fn, g.fn.v(f"srem i64 {x}, {by}")
    return fn.select(fn.v(f"icmp slt i64 {rest}, 0"), "i64", fn.v(f"add i64 {rest}, {by}"), rest)


def _civil(g: Exprs, name: str, x: str) -> str:
    fn, packed = g.fn, g.runtime("hw_civil", f"i64 {x}")
    if name == "year":
        return fn.v(f"ashr i64 {packed}, 16")
    return fn.v(f"and i64 {fn.v(f'lshr i64 {packed}, 8') if name == 'month' else packed}, 255")


def like_tokens(pattern: str) -> list[int]:
    """0-255 a byte, 256 one code point, 257 any run."""
    tokens: list[int] = []
    escaped = False
    for c in pattern:
        if escaped or c not in "%_\\":
            tokens.extend(c.encode())
            escaped = False
        elif c == "\\":
            escaped = True
        elif c == "_":
            tokens.append(256)
        elif not tokens or tokens[-1] != 257:
            tokens.append(257)
    return [*tokens, ord("\\")] if escaped else tokens


def _like(g: Exprs, a: Val, pattern: object) -> Val:
    """Patterns that are a prefix, suffix or part need no matcher."""
    assert isinstance(pattern, Const) and isinstance(pattern.value, str)
    tokens = like_tokens(pattern.value)
    literal = bytes(t for t in tokens if t < 256)
    runs = [i for i, t in enumerate(tokens) if t == 257]
    text = Val(g.fn.module.data(literal), None, str(len(literal)))
    kernel = None
    if 256 not in tokens:
        if runs == [] or (runs == [0] and len(tokens) == 1):
            kernel = "hw_eq" if not runs else "hw_starts"
        elif runs in ([0], [len(tokens) - 1], [0, len(tokens) - 1]):
            kernel = "hw_contains" if len(runs) == 2 else "hw_ends" if runs == [0] else "hw_starts"
    if kernel is not None:
        return Val(_two_texts(g, kernel, a, text), a.ok)
    table = g.fn.module.words(tokens, "i16")
    return Val(g.runtime("hw_like", f"ptr {a.x}, i64 {a.n}, i8 {a.fold}, ptr {table}, i64 {len(tokens)}"), a.ok)
