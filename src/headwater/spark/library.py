"""The function library and the reductions as Spark SQL. What has no exact one is not asked for (`unsupported.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.ir.functions import MICROS
from headwater.spark.arithmetic import attempt, cast, fit_unsigned, micros
from headwater.spark.sql_text import DECIMAL, Sql, integer, text_literal
from headwater.types.model import F64, I64, U64, Array, Enum, List, Scalar, Type, promote

_UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SECOND, _MINUTE, _HOUR, _DAY = MICROS["seconds"], MICROS["minutes"], MICROS["hours"], MICROS["days"]
_PARTS = {"hour": (_DAY, _HOUR), "minute": (_HOUR, _MINUTE), "second": (_MINUTE, _SECOND)}
_DATES = {"year": "year", "month": "month", "day": "dayofmonth", "weekday": "weekday"}


def call(fn: str, args: Sequence[Sql], types: Sequence[Type]) -> Sql:
    """A call of a library function in SQL; where Spark's own function means something else, by guards."""
    a = args[0]
    match fn:
        case "abs":
            return _abs(a, types[0])
        case "min" | "max":
            return _extreme(fn, args, types[0])
        case "floor":
            return Sql(_floor(a.text), nullable=a.nullable, nan=a.nan)
        case "ceil":
            return Sql(f"(- {_floor(f'(- {a})')})", nullable=a.nullable, nan=a.nan)
        case "sqrt":
            return Sql(f"sqrt({a})", nullable=a.nullable)
        case "fmod":
            return Sql(f"try_mod({a}, {args[1]})")
        case "is_nan":
            # isnan(NULL) is false in Spark.
            return Sql(f"CASE WHEN {a} IS NOT NULL THEN isnan({a}) END" if a.nullable else f"isnan({a})", a.nullable)
        case "distance" | "distance3":
            return _distance(args)
        case "length" | "byte_length":
            spark = "length" if fn == "length" else "octet_length"
            return Sql(f"CAST({spark}({a}) AS BIGINT)", a.nullable, raw=f"{spark}({a})", stored=Scalar("i32"))
        case "starts_with" | "ends_with" | "contains":
            return Sql(f"{fn.replace('_', '')}({a}, {args[1]})", nullable=a.nullable or args[1].nullable)
        case "like":
            return Sql(_like(a, args[1].const), nullable=a.nullable)
        case "lower":
            return Sql(f"translate({a}, '{_UPPER}', '{_UPPER.lower()}')", nullable=a.nullable)
        case "upper":
            return Sql(f"translate({a}, '{_UPPER.lower()}', '{_UPPER}')", nullable=a.nullable)
        case "hour" | "minute" | "second":
            whole, part = _PARTS[fn]
            return Sql(f"(pmod({micros(a, types[0])}, {whole}L) div {part}L)", nullable=a.nullable)
        case "year" | "month" | "day" | "weekday":
            at = micros(a, types[0])
            date = f"date_from_unix_date(CAST((try_subtract({at}, pmod({at}, {_DAY}L)) div {_DAY}L) AS INT))"
            part_of = f"{_DATES[fn]}({date})"
            return Sql(f"CAST({part_of} AS BIGINT)", raw=part_of, stored=Scalar("i32"))
        case "micros":
            return Sql(micros(a, types[0]), nullable=a.nullable)
        case "seconds" | "minutes" | "hours" | "days":
            return _duration(a, types[0], MICROS[fn])
        case "code":
            assert isinstance(types[0], Enum)
            whens = " ".join(f"WHEN {text_literal(m)} THEN {code}L" for m, code in types[0].members)
            return Sql(f"CASE {a} {whens} END")
        case "coalesce":
            some = all(arg.nullable for arg in args)
            return Sql(f"coalesce({_list(args)})", nullable=some, nan=any(arg.nan for arg in args))
    raise AssertionError(f"{fn}() has no exact SQL: unsupported.py says so before")


def _list(args: Sequence[Sql]) -> str:
    return ", ".join(map(str, args))


def _abs(a: Sql, type: Type) -> Sql:
    if type == F64:
        return Sql(f"abs({a})", nullable=a.nullable, nan=a.nan)
    return a if type == U64 else Sql(f"CASE WHEN {a} >= 0L THEN {a} ELSE try_subtract(0L, {a}) END")


def _extreme(fn: str, args: Sequence[Sql], type: Type) -> Sql:
    """`least` and `greatest` leave nulls out, and for both NaN is the greatest."""
    nan = type == F64 and any(arg.nan for arg in args)
    text = f"greatest({_list(args)})" if fn == "max" else f"least({_list(args)})"
    present = " AND ".join(f"{arg} IS NOT NULL" for arg in args if arg.nullable)
    text = f"CASE WHEN {present} THEN {text} END" if present else text
    if fn == "min" and nan:
        some = " AND ".join(f"{arg} IS NOT NULL" for arg in args if arg.nullable) or "TRUE"
        text = f"CASE WHEN {some} AND isnan(greatest({_list(args)})) THEN double('NaN') ELSE {text} END"
    return Sql(text, nullable=bool(present), nan=nan)


def _floor(x: str) -> str:
    """Spark's floor() is a bigint, too small for most doubles; rint() stays a double."""
    return f"CASE WHEN rint({x}) > {x} THEN (rint({x}) - 1.0D) ELSE rint({x}) END"


def _distance(args: Sequence[Sql]) -> Sql:
    half = len(args) // 2
    squares = (f"(({a} - {b}) * ({a} - {b}))" for a, b in zip(args[:half], args[half:], strict=True))
    total = "0.0D"
    for square in squares:
        total = f"({total} + {square})"
    return Sql(f"sqrt({total})", nullable=any(arg.nullable for arg in args))


def _like(a: Sql, pattern: str) -> str:
    """Written anew with `!` to escape: a backslash in a literal depends on the session, and Spark refuses one before
    an ordinary character or at the end, where ours has a meaning."""
    clean, escaped = "", False
    for c in pattern:
        if not escaped and c == "\\":
            escaped = True
            continue
        clean += f"!{c}" if c == "!" or (escaped and c in "%_") else c
        escaped = False
    clean += "\\" if escaped else ""
    return f"like({a}, {text_literal(clean)}, '!')"


def _duration(a: Sql, type: Type, unit: int) -> Sql:
    if type == F64:
        return cast(Sql(f"({a} * {float(unit)!r}D)"), F64, I64)
    if type == I64:
        return Sql(attempt("try_multiply", a, integer(unit, "BIGINT")))
    return Sql(f"try_cast(try_multiply({a}, {integer(unit, 'BIGINT')}) AS BIGINT)")


def reduce(op: str, array: str, stored: Type) -> Sql:
    """An array or list as one value, element by element in its order, as the interpreter does."""
    assert isinstance(stored, Array | List)
    depth = len(stored.shape) if isinstance(stored, Array) else 1
    if op == "len":
        return Sql(f"CAST(array_size({array}) AS BIGINT)", raw=f"array_size({array})", stored=Scalar("i32"))
    element = promote(stored.element)
    if op in ("min", "max"):
        return _extreme_element(op, array, element, depth, stored.element)
    if op == "mean" or element == F64:
        total = _fold(array, "0.0D", lambda s, x: f"({s} + CAST({x} AS DOUBLE))", depth)
        if op == "sum":
            return Sql(total)
        count = stored.count if isinstance(stored, Array) else f"array_size({array})"
        return Sql(f"try_divide({total}, CAST({count} AS DOUBLE))")
    if element == U64:
        return Sql(_fold(array, f"CAST(0 AS {DECIMAL})", lambda s, x: fit_unsigned(f"try_add({s}, {x})").text, depth))
    return Sql(_fold(array, "0L", lambda s, x: f"try_add({s}, CAST({x} AS BIGINT))", depth))


def _fold(array: str, start: str, step, depth: int, level: int = 0) -> str:  # type: ignore[no-untyped-def]
    """`aggregate`, in index order; the inner dimensions go on from the outer one's sum."""
    s, x = f"hw_s{level}", f"hw_x{level}"
    body = step(s, x) if depth == 1 else _fold(x, s, step, depth - 1, level + 1)
    return f"aggregate({array}, {start}, ({s}, {x}) -> {body})"


def _extreme_element(op: str, array: str, element: Type, depth: int, stored: Type) -> Sql:
    least, greatest = _nested("array_min", array, depth), _nested("array_max", array, depth)
    text = least if op == "min" else greatest
    if op == "min" and element == F64:
        not_a_number = "float('NaN')" if stored == Scalar("f32") else "double('NaN')"
        text = f"CASE WHEN isnan({greatest}) THEN {not_a_number} ELSE {least} END"
    return Sql(text if element == stored else f"CAST({text} AS {'DOUBLE' if element == F64 else 'BIGINT'})")


def _nested(fn: str, array: str, depth: int) -> str:
    if depth == 1:
        return f"{fn}({array})"
    inner = _nested(fn, f"hw_x{depth}", depth - 1)
    return f"{fn}(transform({array}, hw_x{depth} -> {inner}))"
