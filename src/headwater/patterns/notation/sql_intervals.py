"""Intervals of SQL, such as INTERVAL '1:30' MINUTE TO SECOND, in microseconds.

A month or a year is no fixed time, and is refused by name.
"""

from __future__ import annotations

import re

from headwater.ir.nodes import Span
from headwater.patterns.notation.sql_words import Word, Words

MAX_MICROSECONDS = 9_999 * 366 * 86_400 * 1_000_000  # the whole of the years that a timestamp can have
MAX_DIGITS = 30  # of one part of an interval

# Microseconds, from the largest unit to the smallest, as in '1 02:03:04.5' DAY TO SECOND.
UNITS = {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000}
_ALSO = {"WEEK": 7 * UNITS["DAY"], "MILLISECOND": 1_000, "MICROSECOND": 1}
_NO_FIXED_TIME = ("YEAR", "QUARTER", "MONTH")
_BETWEEN = {"DAY": r"\s+", "HOUR": ":", "MINUTE": ":"}  # what stands behind a unit's number
_NUMBER = re.compile(rf"\d{{1,{MAX_DIGITS}}}(?:\.\d{{0,{MAX_DIGITS}}})?")


def interval(words: Words) -> tuple[int, Span] | None:
    """Reads an interval from its first word on. None if something is wrong with it, which has been noted."""
    start = words.take().span.start
    sign = -1 if words.taken_mark("-") else 1
    if sign == 1:
        words.taken_mark("+")
    if words.word.kind not in ("text", "number"):
        raise words.unexpected("a number in quotes, e.g. INTERVAL '10' SECOND")
    amount = words.take()
    first = _unit(words)
    last = first
    if words.word.is_word("TO"):
        words.take()
        last = _unit(words)
    span = words.span_from(start)
    if first is None or last is None:
        return None
    micros = _micros(amount, first, last)
    if micros is None:
        example = "'1:30' MINUTE TO SECOND" if first != last else f"'10' {first}"
        words.problem(amount, "this interval cannot be read", expected=f"e.g. {example}", found=words.shown(amount))
        return None
    if micros > MAX_MICROSECONDS:
        words.problem(span, "this interval is longer than time", expected="at most 9,999 years")
        return None
    return sign * micros, span


def _unit(words: Words) -> str | None:
    word = words.name("a unit: SECOND, MINUTE, HOUR, DAY")
    if words.word.is_mark("("):  # the precision of Calcite's DAY(3): says nothing of the time itself
        while not words.word.is_mark(")"):
            if words.word.kind == "end":
                raise words.unexpected(")")
            words.take()
        words.take()
    unit = word.text.upper()
    unit = unit.removesuffix("S")
    if unit in UNITS or unit in _ALSO:
        return unit
    if unit in _NO_FIXED_TIME:
        hint = "write it in days"
        words.problem(word, f"an interval of {words.shown(word)} is not supported: it is no fixed time", hint=hint)
    else:
        expected = "SECOND, MINUTE, HOUR, DAY or WEEK"
        words.problem(word, "this is no unit of time", expected=expected, found=words.shown(word))
    return None


def _micros(amount: Word, first: str, last: str) -> int | None:
    """What a text says in these units; None if that is nothing."""
    text = amount.text.strip()
    if first == last:
        return _scaled(text, (UNITS | _ALSO)[first])
    order = list(UNITS)
    if first not in UNITS or last not in UNITS or order.index(first) > order.index(last):
        return None
    units = order[order.index(first) : order.index(last) + 1]
    pattern = "".join(rf"([\d.]+){_BETWEEN[unit] if unit != last else ''}" for unit in units)
    found = re.fullmatch(pattern, text)
    if found is None:
        return None
    parts = [_scaled(part, UNITS[unit]) for part, unit in zip(found.groups(), units, strict=True)]
    if any("." in part for part in found.groups()[:-1]) or None in parts:
        return None
    return sum(part for part in parts if part is not None)


def _scaled(number: str, micros: int) -> int | None:
    """Exactly, in whole numbers; what is below a microsecond is not said."""
    if not _NUMBER.fullmatch(number):
        return None
    whole, _, fraction = number.partition(".")
    scale = 10 ** len(fraction)
    total = int(whole + fraction) * micros
    return total // scale if total % scale == 0 else None


__all__ = ["interval"]
