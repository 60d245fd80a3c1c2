"""Sets of values that one part of an event may have: intervals, members, exceptions, NaN, and missing.

    Domain = missing? + NaN? + (members, or everything from lo to hi) without some exceptions

Text is held as its UTF-8 bytes, in whose order it is compared, so that "begins with" is an interval. Every operation
is exact except `within`, which may say no where yes would be right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headwater.types.model import BOOL, F64, TIMESTAMP, Enum, Scalar, Type

FEW = 64  # an integer interval no larger is held as its members


@dataclass(frozen=True, slots=True)
class Domain:
    """A set of values: an interval less some exceptions, or its members; with or without NaN, and missing. Frozen, as a
    part of ways."""

    lo: Any = None
    hi: Any = None
    lo_open: bool = False
    hi_open: bool = False
    members: frozenset[Any] | None = None  # if set, lo, hi and exceptions are already taken into account
    exceptions: frozenset[Any] = frozenset()
    nan: bool = False
    missing: bool = False

    @property
    def empty(self) -> bool:
        return not self.missing and not self.nan and self.members == frozenset()

    def holds(self, value: Any) -> bool:
        """Whether a value that is neither missing nor NaN is in it."""
        if self.members is not None:
            return value in self.members
        if self.lo is not None and (value < self.lo or (self.lo_open and value == self.lo)):
            return False
        if self.hi is not None and (value > self.hi or (self.hi_open and value == self.hi)):
            return False
        return value not in self.exceptions


NEVER = Domain(members=frozenset())


def plain(value: Any) -> Any:
    """A constant as it is held."""
    return value.encode() if isinstance(value, str) else value


def everything(type: Type, lo: int | None, hi: int | None, missing: bool) -> Domain:
    """All values of a type, those known to lie between lo and hi."""
    if isinstance(type, Enum):
        return Domain(members=frozenset(code for _, code in type.members), missing=missing)
    if type == BOOL:
        return Domain(members=frozenset((False, True)), missing=missing)
    if isinstance(type, Scalar) and (type.is_integer or type == TIMESTAMP):
        return _settled(Domain(lo, hi, missing=missing), whole=True)
    return Domain(nan=type == F64, missing=missing)


def is_whole(type: Type) -> bool:
    """Whether values of a type are integers, so that an open bound is the closed one beside it."""
    return isinstance(type, Scalar) and (type.is_integer or type == TIMESTAMP)


def compared(op: str, value: Any, truth: bool) -> Domain:
    """Where a comparison with a constant is true (or false), for something that is there; NaN where it fits."""
    nan = (op == "ne") == truth  # comparisons with NaN are false, but for `!=`
    if value != value:
        return Domain(nan=nan) if nan else NEVER
    if not truth:
        op = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}[op]
    match op:
        case "eq":
            return Domain(members=frozenset((value,)), nan=nan)
        case "ne":
            return Domain(exceptions=frozenset((value,)), nan=nan)
        case "lt" | "le":
            return Domain(hi=value, hi_open=op == "lt", nan=nan)
        case _:
            return Domain(lo=value, lo_open=op == "gt", nan=nan)


def among(values: list[Any], truth: bool) -> Domain:
    """In a set of constants, or not."""
    found = frozenset(value for value in values if value == value)
    return Domain(members=found) if truth else Domain(exceptions=found, nan=True)


def beginning(prefix: bytes, truth: bool) -> list[Domain]:
    """Texts that begin with a prefix, or do not."""
    after = prefix[:-1] + bytes((prefix[-1] + 1,)) if prefix else None  # UTF-8 has no byte 255
    if truth:
        return [Domain(lo=prefix, hi=after, hi_open=True)]
    return [Domain(hi=prefix, hi_open=True), Domain(lo=after)] if after is not None else []


def meet(a: Domain, b: Domain, *, whole: bool) -> Domain:
    """What is in both; `whole` says that all values are integers."""
    nan, missing = a.nan and b.nan, a.missing and b.missing
    if a.members is not None or b.members is not None:
        some, other = (a, b) if a.members is not None else (b, a)
        kept = frozenset(value for value in some.members or () if other.holds(value))
        return Domain(members=kept, nan=nan, missing=missing)
    lo, lo_open = a.lo, a.lo_open
    if b.lo is not None and (lo is None or b.lo > lo or (b.lo == lo and b.lo_open)):
        lo, lo_open = b.lo, b.lo_open
    hi, hi_open = a.hi, a.hi_open
    if b.hi is not None and (hi is None or b.hi < hi or (b.hi == hi and b.hi_open)):
        hi, hi_open = b.hi, b.hi_open
    found = Domain(lo, hi, lo_open, hi_open, None, a.exceptions | b.exceptions, nan, missing)
    return _settled(found, whole=whole)


def _settled(d: Domain, *, whole: bool) -> Domain:
    """Closed ends for integers, members where they are few, nothing outside the interval among the exceptions."""
    if whole:
        lo = d.lo + 1 if d.lo_open and d.lo is not None else d.lo
        hi = d.hi - 1 if d.hi_open and d.hi is not None else d.hi
        d = replace(d, lo=lo, hi=hi, lo_open=False, hi_open=False)
    if d.lo is not None and d.hi is not None:
        if d.lo > d.hi or (d.lo == d.hi and (d.lo_open or d.hi_open)):
            return Domain(members=frozenset(), nan=d.nan, missing=d.missing)
        if whole and d.hi - d.lo < FEW:
            members = frozenset(n for n in range(d.lo, d.hi + 1) if n not in d.exceptions)
            return Domain(members=members, nan=d.nan, missing=d.missing)
        if d.lo == d.hi:
            members = frozenset((d.lo,)) - d.exceptions
            return Domain(members=members, nan=d.nan, missing=d.missing)
    if d.exceptions:
        bare = replace(d, exceptions=frozenset())
        d = replace(d, exceptions=frozenset(value for value in d.exceptions if bare.holds(value)))
    return d


def within(a: Domain, b: Domain) -> bool:
    """Whether everything in a is in b."""
    if (a.missing and not b.missing) or (a.nan and not b.nan):
        return False
    if a.members is not None:
        return all(map(b.holds, a.members))
    if b.members is not None:
        return False
    below = b.lo is None or (a.lo is not None and (a.lo > b.lo or (a.lo == b.lo and (a.lo_open or not b.lo_open))))
    above = b.hi is None or (a.hi is not None and (a.hi < b.hi or (a.hi == b.hi and (a.hi_open or not b.hi_open))))
    return below and above and not any(map(a.holds, b.exceptions))
