"""Operators and casts as Spark SQL that cannot throw. What has no exact one is not asked for (`unsupported.py`)."""

from __future__ import annotations

from headwater.spark.sql_text import DECIMAL, Sql, decimal, integer, null, type_name
from headwater.types.model import BOOL, F32, F64, I64, TIMESTAMP, TIMESTAMP_MAX, TIMESTAMP_MIN, U64, Scalar, Type

U64_MAX = decimal((1 << 64) - 1)
I64_MIN = -(1 << 63)
_TRY = {"add": "try_add", "sub": "try_subtract", "mul": "try_multiply"}
_SIGNS = {"add": "+", "sub": "-", "mul": "*"}
_BITS = {"and": "&", "or": "|", "xor": "^"}


def attempt(function: str, a: Sql | str, b: Sql | str) -> str:
    """`try_add`, `try_subtract` or `try_multiply` of two bigints, kept as it is written.

    Spark reorders nested additions and multiplications, `try_` forms too, and takes two orders for one expression. But
    then other steps overflow than were asked for: (a * 8) * 0 has no value where a * 8 has none. A shift by nothing
    between them ends that.
    """
    operands = (f"shiftright({x}, 0)" if function in str(x) else str(x) for x in (a, b))
    return f"{function}({', '.join(operands)})"


def unary(op: str, a: Sql, type: Type) -> Sql:
    """Negation, missing where it overflows, or the complement."""
    if op == "neg":
        return Sql(f"(- {a})", nullable=a.nullable, nan=a.nan) if type == F64 else Sql(f"try_subtract(0L, {a})")
    if type == I64:
        return Sql(f"(~ {a})", nullable=a.nullable)
    return Sql(f"CAST(({U64_MAX} - {a}) AS {DECIMAL})", nullable=a.nullable)


def binary(op: str, a: Sql, b: Sql, type: Type, a_type: Type, b_type: Type) -> Sql:
    """An operation on two numbers or times; missing where it overflows or divides by zero, in any ANSI mode."""
    if TIMESTAMP in (a_type, b_type):
        moved = Sql(attempt(_TRY[op], micros(a, a_type), micros(b, b_type)))
        return to_timestamp(moved) if type == TIMESTAMP else moved
    if type == F64:
        return _float(op, a, b)
    return _unsigned(op, a, b) if type == U64 else _signed(op, a, b)


def _float(op: str, a: Sql, b: Sql) -> Sql:
    if op == "div":
        return Sql(f"try_divide({a}, {b})")
    return Sql(f"({a} {_SIGNS[op]} {b})", nullable=a.nullable or b.nullable)


def _signed(op: str, a: Sql, b: Sql) -> Sql:
    match op:
        case "add" | "sub" | "mul":
            return Sql(attempt(_TRY[op], a, b))
        case "and" | "or" | "xor":
            return Sql(f"({a} {_BITS[op]} {b})", nullable=a.nullable or b.nullable)
        case "shl":
            return _shift_left(a, b)
        case "shr":
            if b.is_const:
                return Sql(f"shiftright({a}, {b.const})", nullable=a.nullable) if 0 <= b.const <= 63 else null(I64)
            return Sql(f"CASE WHEN {b} BETWEEN 0L AND 63L THEN shiftright({a}, try_cast({b} AS INT)) END")
        case "tdiv":
            return _divide(a, b)
        case "tmod":
            return Sql(f"try_mod({a}, {b})")
        case "fmod":
            return _floor_mod(a, b)
        case _:
            return _floor_divide(a, b)


def _shift_left(a: Sql, b: Sql) -> Sql:
    last = f"CASE {a} WHEN 0L THEN 0L WHEN -1L THEN {integer(I64_MIN, 'BIGINT')} END"
    if b.is_const:
        if not 0 <= b.const <= 63:
            return null(I64)
        return Sql(last) if b.const == 63 else Sql(attempt("try_multiply", a, f"{1 << b.const}L"))
    power = f"shiftleft(1L, try_cast({b} AS INT))"
    moved = attempt("try_multiply", a, power)
    return Sql(f"CASE WHEN {b} BETWEEN 0L AND 62L THEN {moved} WHEN {b} = 63L THEN {last} END")


def _divide(a: Sql, b: Sql) -> Sql:
    """`div` throws by zero, and for the least integer by -1; it never sees either."""
    if b.is_const:
        if b.const == 0:
            return null(I64)
        if b.const == -1:
            return Sql(f"try_subtract(0L, {a})")
        return Sql(f"({a} div {b})", nullable=a.nullable)
    safe = f"CASE WHEN {b} NOT IN (0L, -1L) THEN {b} END"
    return Sql(f"CASE WHEN {b} = -1L THEN try_subtract(0L, {a}) ELSE ({a} div {safe}) END")


def _floor_mod(a: Sql, b: Sql) -> Sql:
    rest = f"try_mod({a}, {b})"
    if b.is_const and b.const > 0:
        return Sql(f"pmod({a}, {b})", nullable=a.nullable)
    moved = attempt("try_add", rest, b)
    return Sql(f"CASE WHEN {rest} <> 0L AND ({rest} < 0L) <> ({b} < 0L) THEN {moved} ELSE {rest} END")


def _floor_divide(a: Sql, b: Sql) -> Sql:
    if b.is_const and b.const > 0:
        return Sql(f"(({a} div {b}) - CASE WHEN ({a} % {b}) < 0L THEN 1L ELSE 0L END)", nullable=a.nullable)
    below = f"try_mod({a}, {b}) <> 0L AND ({a} < 0L) <> ({b} < 0L)"
    return Sql(f"try_subtract({_divide(a, b)}, CASE WHEN {below} THEN 1L ELSE 0L END)")


def _unsigned(op: str, a: Sql, b: Sql) -> Sql:
    match op:
        case "add" | "sub" | "mul":
            return fit_unsigned(f"{_TRY[op]}({a}, {b})")
        case "tmod" | "fmod":
            return Sql(f"try_mod({a}, {b})")
    raise AssertionError(f"{op} of u64 has no exact SQL: unsupported.py says so before")


def fit_unsigned(value: str) -> Sql:
    """A wider decimal, or missing where it is no unsigned 64-bit integer."""
    return Sql(f"CASE WHEN {value} BETWEEN {decimal(0)} AND {U64_MAX} THEN try_cast({value} AS {DECIMAL}) END")


def micros(a: Sql, type: Type) -> str:
    """Microseconds of a timestamp; an integer is taken for microseconds."""
    if type != TIMESTAMP:
        return a.text
    return integer(a.const, "BIGINT") if a.is_const else f"unix_micros({a})"


def to_timestamp(value: Sql) -> Sql:
    """Microseconds as a timestamp; missing outside the years 1 to 9999."""
    inside = f"{value} BETWEEN {TIMESTAMP_MIN}L AND {TIMESTAMP_MAX}L"
    return Sql(f"CASE WHEN {inside} THEN timestamp_micros({value}) END")


def cast(a: Sql, source: Type, to: Type) -> Sql:
    """A conversion; missing where it is impossible."""
    assert isinstance(to, Scalar)
    if source == to:
        return a
    if source == TIMESTAMP:
        return cast(Sql(micros(a, source), nullable=a.nullable), I64, to)
    if to == BOOL:
        zero = "0.0D" if source == F64 else decimal(0) if source == U64 else "0L"
        return Sql(f"({a} <> {zero})", nullable=a.nullable)
    if to == TIMESTAMP:
        return to_timestamp(a if source == I64 else cast(a, source, I64))
    if to.is_float:
        text = a.text if source == F64 else f"CAST({a} AS DOUBLE)"
        text = f"CAST(CAST({text} AS FLOAT) AS DOUBLE)" if to == F32 else text
        return Sql(text, nullable=a.nullable, nan=source == F64 and a.nan)
    if source == BOOL:
        return Sql(f"CAST({a} AS {DECIMAL if to == U64 else 'BIGINT'})", nullable=a.nullable)
    return _to_unsigned(a, source) if to == U64 else _to_signed(a, source, to)


def _to_unsigned(a: Sql, source: Type) -> Sql:
    if source == I64:
        return Sql(f"CASE WHEN {a} >= 0L THEN CAST({a} AS {DECIMAL}) END")
    # A double to a decimal goes through its shortest text: not exact above 2^53. Through bigint it is.
    half = "9.223372036854775808E18D"
    low = f"CAST(try_cast({a} AS BIGINT) AS {DECIMAL})"
    high = f"try_cast(try_add(CAST(try_cast(({a} - {half}) AS BIGINT) AS {DECIMAL}), {decimal(1 << 63)}) AS {DECIMAL})"
    return Sql(
        f"CASE WHEN {a} <= -1.0D THEN NULL WHEN {a} < {half} THEN {low} WHEN {a} < (2D * {half}) THEN {high} END"
    )


def _to_signed(a: Sql, source: Type, to: Scalar) -> Sql:
    if to == I64:
        wide = f"try_cast({a} AS BIGINT)"
        # try_cast takes 2^63 for the greatest bigint, so that one is kept from it.
        return Sql(f"CASE WHEN {a} < 9.223372036854775808E18D THEN {wide} END" if source == F64 else wide)
    if to.is_signed:
        return Sql(f"CAST(try_cast({a} AS {type_name(to)}) AS BIGINT)")
    value = a if source == I64 else _to_signed(a, source, I64)
    least, greatest = to.range
    return Sql(f"CASE WHEN {value} BETWEEN {least}L AND {greatest}L THEN {value} END")
