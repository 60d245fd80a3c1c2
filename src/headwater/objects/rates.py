"""How fast members of objects may change: the owner's word, which it keeps by refusing what would be faster.

A rate is an allowance that fills with time, up to what `burst` seconds give, and that each change takes from: between
any two times a member changes by at most rate x (the seconds between them + burst). Who knows a value of a moment so
knows something of every later one. Objects are created with a full allowance. After a start, what was used before is
not known: the allowance fills from nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from fractions import Fraction
from math import inf, isfinite, nextafter
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import ObjectError
from headwater.store import Tables
from headwater.types.model import Record, Scalar

if TYPE_CHECKING:
    from headwater.objects.journal import Journal
    from headwater.store.migrations import Execute
    from headwater.types import EventType

RATES = Tables(
    "rates of objects",
    (("CREATE TABLE object_rates (type TEXT PRIMARY KEY, form BLOB NOT NULL) WITHOUT ROWID",),),
)
REMEMBERED = 65_536  # objects whose allowances are known; of others it is what has filled since the last was forgotten


class Rate(msgspec.Struct, frozen=True, array_like=True):
    """By how much a member changes in a second, at most, and for how many seconds that can be saved up."""

    per_second: float
    burst: float

    def within(self, seconds: float) -> float:
        """By how much it can have changed after so many seconds, rounded up."""
        found = Fraction(self.per_second) * (Fraction(max(0.0, seconds)) + Fraction(self.burst))
        near = float(found)
        return near if Fraction(near) >= found else nextafter(near, inf)


Allowance = tuple[int, dict[str, Fraction]]  # at a time: what is left of each member's
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgpack_decoder(dict[str, Rate]).decode


def rates_of(name: str, type: EventType, given: Mapping[str, float], burst: float) -> dict[str, Rate]:
    """As they are given for a type, by member; ObjectError with all that is wrong with them."""
    problems = []
    if not _is_amount(burst):
        problems.append(f"burst: expected seconds, from 0 on, found {burst!r}")
    for member, rate in given.items():
        if problem := _fault(type.record, member):
            problems.append(f"{member}: {problem}")
        elif not _is_amount(rate):
            problems.append(f"{member}: expected by how much it changes in a second at most, found {rate!r}")
    if problems:
        raise ObjectError("\n".join([f"rates of type {name!r}:", *(f"  - {each}" for each in problems)]))
    return {member: Rate(float(rate), float(burst)) for member, rate in given.items()}


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0


def _fault(record: Record, member: str) -> str:
    here: Any = record
    for step in member.split("."):
        names = here.by_name if isinstance(here, Record) else {}
        if step not in names:
            return f"expected a member, found none; there are {', '.join(names) or 'none'}"
        if names[step].optional:
            return "expected one that is always there, found one that may be missing"
        here = names[step].type
    known = isinstance(here, Scalar) and (here.is_integer or here.is_float)
    return "" if known else f"expected a number, found {here}"


class Rates:
    """Of one node's types, with what is left to their objects. Of the thread that runs turns."""

    def __init__(self, execute: Execute, journal: Journal, now: int) -> None:
        self.by_type: dict[str, Mapping[str, Rate]] = {
            name: _unpack(form) for name, form in execute("SELECT type, form FROM object_rates")
        }
        self._journal, self._since = journal, now
        self._left: OrderedDict[str, Allowance] = OrderedDict()

    def keep(self, execute: Execute, type: str, rates: Mapping[str, Rate]) -> None:
        """In the file, from now on; `declared` has it here once that is committed."""
        execute("DELETE FROM object_rates WHERE type = ?", (type,))
        if rates:
            execute("INSERT INTO object_rates (type, form) VALUES (?, ?)", (type, _pack(dict(rates))))

    def declared(self, type: str, rates: Mapping[str, Rate], now: int) -> None:
        """They hold from now on: nothing is saved up."""
        self.by_type = {name: each for name, each in self.by_type.items() if name != type}
        if rates:
            self.by_type[type] = dict(rates)
        self._left.clear()
        self._since = max(self._since, now)

    def loosens(self, type: str, rates: Mapping[str, Rate]) -> bool:
        """Whether who relies on the rates that a type has would be wrong with these."""
        for name, known in self.by_type.get(type, {}).items():
            new = rates.get(name)
            if new is None or new.per_second > known.per_second or _most(new) > _most(known):
                return True
        return False

    def created(self, type: str, object: str, at: int) -> None:
        """A new object may change at once."""
        rates = self.by_type.get(type)
        if rates is not None:
            self._put(object, (at, {name: _most(rate) for name, rate in rates.items()}))

    def check(self, type: str, object: str, old: Mapping[str, Any], new: Mapping[str, Any], at: int) -> None:
        """An object is to be another: ObjectError names the members that would change too fast."""
        rates = self.by_type.get(type)
        if rates is None:
            return
        known = self._left.get(object)
        since, left = (self._since, {}) if known is None else known
        found, wrong = {}, []
        for name, rate in rates.items():
            filled = left.get(name, Fraction(0)) + Fraction(rate.per_second) * (at - since) / 1_000_000
            allowed = min(_most(rate), filled)
            before, after = _member(old, name), _member(new, name)
            step = _apart(before, after)
            if step is None or step > allowed:
                wrong.append(
                    f"{name}: expected to change by at most {float(allowed):g} now ({rate.per_second:g} per second), "
                    f"found {before!r} to {after!r}"
                )
            else:
                found[name] = allowed - step
        if wrong:
            raise ObjectError("; ".join(wrong))
        self._put(object, (at, found))

    def _put(self, object: str, allowance: Allowance) -> None:
        before = self._left.get(object)
        self._set(object, allowance)
        self._journal.did(lambda: self._set(object, before))

    def _set(self, object: str, allowance: Allowance | None) -> None:
        if allowance is None:
            self._left.pop(object, None)
            return
        self._left[object] = allowance
        self._left.move_to_end(object)
        if len(self._left) > REMEMBERED:
            self._since = max(self._since, self._left.popitem(last=False)[1][0])


def _most(rate: Rate) -> Fraction:
    return Fraction(rate.per_second) * Fraction(rate.burst)


def _member(raw: Mapping[str, Any], path: str) -> Any:
    here: Any = raw
    for step in path.split("."):
        here = here[step]
    return here


def _apart(before: Any, after: Any) -> Fraction | None:
    """How far two numbers are apart; None where that cannot be said."""
    if before == after or (before != before and after != after):
        return Fraction(0)
    if not isfinite(before) or not isfinite(after):
        return None
    return abs(Fraction(before) - Fraction(after))


__all__ = ["RATES", "Rate", "Rates", "rates_of"]
