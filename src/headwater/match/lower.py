"""From an interest to predicates over attributes: comparisons with constants, and native code for all the rest.

A predicate is an interval between two ends. An end is a constant with a step (`x > 5` starts one step above 5) or,
without a constant, a rank as it is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headwater.interest import Interest
from headwater.ir.conjunction import Test, terms_of, test_of, value_of
from headwater.ir.nodes import Const, Expr, InSet, Load, Logic, Param, Program
from headwater.ir.simplify import Simplifier
from headwater.match import layout as w
from headwater.match.attributes import Attribute, Key, attribute_of, in_range, key_of, presence_of
from headwater.match.opaque import Opaque, Opaques
from headwater.types.model import I64, U64, Record

MAX_MEMBERS = 4096  # of a set that is looked through here; a larger one is left to native code


class End(NamedTuple):
    """A rank: 2i + 1 + step of constant i, or `rank` itself where there is no constant."""

    key: Key | None
    step: int = 0
    rank: int = 0


class Predicate(NamedTuple):
    """Ranks from `low` to `high`; `members` instead are the constants of a set, `negated` all but those."""

    attribute: Attribute
    low: End
    high: End
    members: tuple[Key, ...] | None = None
    negated: bool = False


_BOTTOM, _TOP, _NAN = End(None), End(None, 0, w.TOP), End(None, 0, w.NAN)
_LAST = End(None, 0, w.MISSING)  # with a start above it, an interval that wraps around and leaves out one rank


class Lowered(NamedTuple):
    """An interest as predicates on attributes, all of which must hold."""

    predicates: tuple[Predicate, ...]
    faulty: bool  # native code that may fault: more is counted


def lower(interest: Interest, opaques: Opaques) -> Lowered:
    """The predicates whose conjunction is the interest. Takes one more use of each native code they need."""
    analysis = interest.executed
    program = analysis.program
    terms = terms_of(program)
    if terms is not None:
        it = _Lowering(program, interest.params)
        made = [it.term(term) for term in terms]
        simplifier = Simplifier(program)
        rest = [term for term, found in zip(terms, made, strict=True) if found is None]
        if not any(map(simplifier.faults, rest)):
            predicates = [p for found in made if found is not None for p in found]
            for term in rest:
                predicates += it.implied(term)
                predicates.append(_asked(opaques.take_term(program, term, interest.params)))
            return Lowered(tuple(_joined(predicates)), False)
    opaque = opaques.take(analysis, interest.params, interest.limits.fuel)
    return Lowered((_asked(opaque),), opaque.faulty)


def is_plain(interest: Interest) -> bool:
    """Whether it is nothing but comparisons, all of which must hold: tables answer it, and no code is made for it."""
    program = interest.executed.program
    terms, it = terms_of(program), _Lowering(program, interest.params)
    return terms is not None and all(it.term(term) is not None for term in terms)


def _asked(opaque: Opaque) -> Predicate:
    end = End(None, 0, 1)
    return Predicate(opaque.attribute, end, end)


class _Lowering:
    def __init__(self, program: Program, params: dict[str, Any]) -> None:
        self.program, self.params = program, params
        self.record: Record = program.input

    def term(self, term: Expr) -> list[Predicate] | None:
        """The predicates of a term, or None where only native code will do."""
        match test_of(term):
            case Test("truth", Load() as load, negated=negated):
                return self.truth(load, not negated)
            case Test("present", Load() as load, negated=negated):
                return self.presence(load, not negated)
            case Test("prefix", a, Const() | Param() as other):
                return self.prefix(a, value_of(other, self.params))
            case Test("in", InSet() as among, negated=negated):
                return self.members(among, negated)
            case Test(op, a, Const() | Param() as other, negated):
                return self.compare(op, a, other, negated)
            case _:
                return None

    def implied(self, term: Expr) -> list[Predicate]:
        """What every way to satisfy a disjunction has in common, attribute by attribute: `x = 7 or (x = 9 and y > 3)`
        is found by x in (7, 9). Native code has the last word, as the disjunction is a term of its own; where one of
        these is false so is that, and where one is missing so it is, or false."""
        if not isinstance(term, Logic) or term.op != "or":
            return []
        ways = [self.way(each) for each in term.args]
        found: list[Predicate] = []
        for attribute, first in ways[0].items():
            spans = [first, *(way[attribute] for way in ways[1:] if attribute in way)]
            if len(spans) == len(ways) and (joined := _spanned(spans)) is not None:
                found.append(joined)
        return found

    def way(self, term: Expr) -> dict[Attribute, Predicate]:
        """Of one part of a disjunction: for each attribute, one predicate that it implies."""
        found: dict[Attribute, Predicate] = {}
        for each in term.args if isinstance(term, Logic) and term.op == "and" else (term,):
            for predicate in self.term(each) or self.implied(each):
                if predicate.attribute not in found or _is_keyed(predicate):
                    found[predicate.attribute] = predicate
        return found

    def truth(self, load: Load, wanted: bool) -> list[Predicate] | None:
        attribute = attribute_of(self.record, load, ordered=False)
        return None if attribute is None else [_at(attribute, int(wanted))]

    def presence(self, load: Load, wanted: bool) -> list[Predicate] | None:
        attribute = presence_of(self.record, load)
        return None if attribute is None else [_at(attribute, int(wanted))]

    def compare(self, op: str, a: Expr, other: Const | Param, negated: bool) -> list[Predicate] | None:
        attribute = attribute_of(self.record, a, ordered=op not in ("eq", "ne"))
        kinds = {a.type, other.type}
        if attribute is None or (len(kinds) > 1 and not kinds <= {I64, U64}):
            return None
        key = key_of(attribute, value_of(other, self.params))
        if negated and op in ("eq", "ne"):
            op, negated = ("ne" if op == "eq" else "eq"), False
        if key is None:
            return [_all(attribute) if negated or op == "ne" else _none(attribute)]
        if beyond := in_range(key):
            true = op == "ne" or (op in ("gt", "ge") if beyond < 0 else op in ("lt", "le"))
            return [_all(attribute) if true != negated else _none(attribute)]
        if negated:
            return [_not_ordered(attribute, op, key)]
        return [_ordered(attribute, op, key)]

    def prefix(self, a: Expr, value: str | bytes) -> list[Predicate] | None:
        attribute = attribute_of(self.record, a, ordered=True)
        if attribute is None:
            return None
        start = value.encode() if isinstance(value, str) else value
        if not start:
            return [_all(attribute)]
        high, end = _TOP, start.rstrip(b"\xff")
        if end:
            high = End(end[:-1] + bytes([end[-1] + 1]), -1)
        return [Predicate(attribute, End(start), high)]

    def members(self, term: InSet, negated: bool) -> list[Predicate] | None:
        attribute = attribute_of(self.record, term.a, ordered=False)
        if attribute is None:
            return None
        if term.param is not None:
            decl = next(p for p in self.program.params if p.name == term.param)
            kinds, values = {decl.type}, list(self.params[term.param])
        else:
            kinds, values = {const.type for const in term.values}, [const.value for const in term.values]
        if len(values) > MAX_MEMBERS or not kinds <= {term.a.type}:
            return None
        keys = {key for value in values if (key := key_of(attribute, value)) is not None and not in_range(key)}
        if not keys:
            return [_all(attribute) if negated else _none(attribute)]
        if len(keys) == 1:
            (only,) = keys
            return [_ordered(attribute, "ne" if negated else "eq", only)]
        return [Predicate(attribute, _BOTTOM, _BOTTOM, tuple(sorted(keys)), negated)]


def _at(attribute: Attribute, key: Key) -> Predicate:
    return Predicate(attribute, End(key), End(key))


def _all(attribute: Attribute) -> Predicate:
    """Every value, NaN too."""
    return Predicate(attribute, _BOTTOM, _NAN)


def _none(attribute: Attribute) -> Predicate:
    """No value; missing all the same where there is none."""
    never = End(None, 0, w.NEVER)
    return Predicate(attribute, never, never)


def _ordered(attribute: Attribute, op: str, key: Key) -> Predicate:
    match op:
        case "eq":
            return _at(attribute, key)
        case "ne":
            return Predicate(attribute, End(key, 1), _LAST)
        case "lt" | "le":
            return Predicate(attribute, _BOTTOM, End(key, -1 if op == "lt" else 0))
        case _:
            return Predicate(attribute, End(key, 1 if op == "gt" else 0), _TOP)


def _not_ordered(attribute: Attribute, op: str, key: Key) -> Predicate:
    """Not `x < key`: also true of NaN."""
    if op in ("lt", "le"):
        return Predicate(attribute, End(key, 1 if op == "le" else 0), _NAN)
    return Predicate(attribute, _NAN, End(key, -1 if op == "ge" else 0))


def _is_keyed(it: Predicate) -> bool:
    """Whether it names the constants that satisfy it."""
    if it.members is not None:
        return not it.negated
    return it.low.key is not None and it.low == it.high and it.low.step == 0


def _spanned(all_of: list[Predicate]) -> Predicate | None:
    """A predicate that each of some implies, on the one attribute they have; None where that would be any value."""
    attribute = all_of[0].attribute
    if all(map(_is_keyed, all_of)):
        constants = (it.members if it.members is not None else (it.low.key,) for it in all_of)
        keys = sorted({key for some in constants for key in some if key is not None})
        if len(keys) > MAX_MEMBERS:
            return None
        return _at(attribute, keys[0]) if len(keys) == 1 else Predicate(attribute, _BOTTOM, _BOTTOM, tuple(keys))
    lows, highs = list[End](), list[End]()
    for it in all_of:
        if it.members is not None:
            if it.negated:
                return None
            lows.append(End(min(it.members)))
            highs.append(End(max(it.members)))
        elif (it.low.key is None and it.low != _BOTTOM) or (it.high.key is None and it.high != _TOP):
            return None  # all but some, or NaN too
        else:
            lows.append(it.low)
            highs.append(it.high)
    low = _BOTTOM if _BOTTOM in lows else min(lows, key=_place)
    high = _TOP if _TOP in highs else max(highs, key=_place)
    return None if low == _BOTTOM and high == _TOP else Predicate(attribute, low, high)


def _place(end: End) -> tuple[Any, int]:
    return end.key, end.step


def _joined(predicates: list[Predicate]) -> list[Predicate]:
    """`x > 1` and `x <= 2` as one interval."""
    made: list[Predicate] = []
    lows: dict[Attribute, int] = {}
    highs: dict[Attribute, int] = {}
    for it in predicates:
        if it.members is None and it.attribute.kind != w.OPAQUE_KIND:
            if it.low.key is not None and it.high is _TOP:
                if it.attribute in highs:
                    at = highs.pop(it.attribute)
                    made[at] = made[at]._replace(low=it.low)
                    continue
                lows.setdefault(it.attribute, len(made))
            elif it.high.key is not None and it.low is _BOTTOM:
                if it.attribute in lows:
                    at = lows.pop(it.attribute)
                    made[at] = made[at]._replace(high=it.high)
                    continue
                highs.setdefault(it.attribute, len(made))
        made.append(it)
    return made


__all__ = ["End", "Lowered", "Predicate", "lower"]
