"""The function library: names, signatures and one-line meanings, the same in every notation.

This table says what may be called with what. What a function does is in `interp.py`; each execution has its own
implementation and the tests compare them. A signature's letters stand for parameter kinds:

    n  any number (integers stay integers)     f  number, converted to f64
    i  integer, converted to i64               t  text       b  text or bytes
    T  timestamp                               e  enumeration
    a  anything, all arguments of one kind
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Function:
    """`params` has one letter per argument; a final `*` repeats the last letter. `result` is a scalar's name or
    `same`: the common type of the arguments."""

    name: str
    params: str
    result: str
    doc: str
    cost: int = 1
    libm: bool = False  # from the machine's C library; not bit-equal across libraries

    def accepts(self, count: int) -> bool:
        if self.params.endswith("*"):
            return count >= len(self.params) - 1
        return count == len(self.params)

    @property
    def arity(self) -> str:
        """For messages: `2`, `4 or 6`, `1 or more`."""
        least = len(self.params.rstrip("*"))
        return f"{least} or more" if self.params.endswith("*") else str(least)


_TABLE = (
    Function("abs", "n", "same", "absolute value; of the least integer: overflow"),
    Function("min", "nn*", "same", "least of the arguments"),
    Function("max", "nn*", "same", "greatest of the arguments"),
    Function("floor", "f", "f64", "greatest whole number not above, as a float"),
    Function("ceil", "f", "f64", "least whole number not below, as a float"),
    Function("sqrt", "f", "f64", "square root; NaN below zero", 6),
    Function("fmod", "ff", "f64", "remainder of a float division, with the dividend's sign; by zero: division", 10),
    Function("pow", "ff", "f64", "x to the power y", 30, libm=True),
    Function("exp", "f", "f64", "e to the power x", 20, libm=True),
    Function("log", "f", "f64", "natural logarithm", 20, libm=True),
    Function("sin", "f", "f64", "sine of radians", 20, libm=True),
    Function("cos", "f", "f64", "cosine of radians", 20, libm=True),
    Function("is_nan", "f", "bool", "whether a float is NaN"),
    Function("distance", "ffff", "f64", "between (x1, y1) and (x2, y2)", 10),
    Function("distance3", "ffffff", "f64", "between (x1, y1, z1) and (x2, y2, z2)", 12),
    Function("length", "b", "i64", "code points of a text, bytes of a bytes value", 8),
    Function("byte_length", "b", "i64", "bytes of a text or bytes value"),
    Function("starts_with", "tt", "bool", "whether the first text begins with the second", 4),
    Function("ends_with", "tt", "bool", "whether the first text ends with the second", 4),
    Function("contains", "tt", "bool", "whether the second text stands somewhere in the first", 16),
    Function("like", "tt", "bool", "whether the text matches a pattern of % and _; the pattern is a constant", 24),
    Function("lower", "t", "text", "A-Z to a-z", 2),
    Function("upper", "t", "text", "a-z to A-Z", 2),
    Function("year", "T", "i64", "year, UTC", 12),
    Function("month", "T", "i64", "month, 1 to 12, UTC", 12),
    Function("day", "T", "i64", "day of the month, 1 to 31, UTC", 12),
    Function("hour", "T", "i64", "hour, 0 to 23, UTC", 4),
    Function("minute", "T", "i64", "minute, 0 to 59", 4),
    Function("second", "T", "i64", "second, 0 to 59", 4),
    Function("weekday", "T", "i64", "day of the week, Monday is 0", 6),
    Function("micros", "T", "i64", "microseconds since 1970-01-01T00:00:00Z"),
    Function("seconds", "n", "i64", "a number of seconds in microseconds", 2),
    Function("minutes", "n", "i64", "a number of minutes in microseconds", 2),
    Function("hours", "n", "i64", "a number of hours in microseconds", 2),
    Function("days", "n", "i64", "a number of days in microseconds", 2),
    Function("code", "e", "i64", "the number of an enumeration's member"),
    Function("coalesce", "aa*", "same", "the first argument that is not missing"),
)

FUNCTIONS = {function.name: function for function in _TABLE}

# Reductions take an array or list of the event; they share names with the functions above where both make sense.
REDUCTIONS = {
    "len": "number of elements (of the first dimension)",
    "sum": "sum of all elements",
    "mean": "mean of all elements, as a float",
    "min": "least element",
    "max": "greatest element",
}

MICROS = {"seconds": 1_000_000, "minutes": 60_000_000, "hours": 3_600_000_000, "days": 86_400_000_000}
