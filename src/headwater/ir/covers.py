"""Whether one filter covers another: everything the one passes, the other is certain to pass too.

A filter is taken apart into ways to be true, each a conjunction of sets of values (`domain.py`), one for each thing
that is tested: a field, meta, or any other expression, of which only equality is known. The answers are sound, not
complete: `covers` and `disjoint` may say no, and `certainty` nothing, where more thought would tell. Programs with
loops or state, and transformations, cover only themselves; state covers nothing, as it differs from copy to copy.

Parameters of two interests have nothing to do with each other, even of one name, unless their values are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property
from typing import Any

from headwater.errors import InterestRefused
from headwater.ir import ordering, walk
from headwater.ir.domain import Domain, among, beginning, compared, everything, is_whole, meet, plain, within
from headwater.ir.functional import as_expression
from headwater.ir.nodes import (
    NOWHERE,
    Call,
    Compare,
    Cond,
    Const,
    Expr,
    InSet,
    IsMissing,
    Logic,
    Lookup,
    Missing,
    Param,
    Program,
    Return,
    Unary,
)
from headwater.ir.notes import locate
from headwater.ir.rewrite import normalise
from headwater.ir.serial import fingerprint_of_normal
from headwater.ir.simplify import Simplifier
from headwater.types.model import Array, List, Record

MAX_WAYS = 256
MAX_WORK = 100_000
MAX_ORDERING = 500_000  # steps of putting in order what is compared, in all ways together

Params = Mapping[str, Any]
Way = dict[Expr, Domain]  # all of these at once


class _TooMany(Exception):
    """More ways to be true than are worth looking at."""


def covers(a: Program, b: Program, *, a_params: Params | None = None, b_params: Params | None = None) -> bool:
    """Whether every event that b passes is passed by a. Values of parameters (raw) make it see more."""
    if a.input != b.input or a.stateful or b.stateful:
        return False
    return Prepared(a, a_params, name="a").covers(Prepared(b, b_params, name="b"))


def disjoint(a: Program, b: Program, *, a_params: Params | None = None, b_params: Params | None = None) -> bool:
    """Whether no event passes both."""
    if a.input != b.input or a.stateful or b.stateful:
        return False
    x, y = _Filter(a, a_params, "a"), _Filter(b, b_params, "b")
    if x.verdict is None or y.verdict is None:
        return False
    try:
        left, right = x.ways(), y.ways()
        return all(x.both(one, other) is None for one in left for other in right)
    except _TooMany:
        return False


class Certainty(Enum):
    """What is certain of a filter before any event."""

    NEVER = "no event passes"
    ALWAYS = "every event passes"
    NOTHING = "some may pass and some not, as far as is known"


def certainty(program: Program, *, normal: bool = True) -> Certainty:
    """Whether no event passes, or every one does, whatever the parameters; `normal`: it is in its normal form."""
    if program.stateful or program.output is not None:
        return Certainty.NOTHING
    it = _Filter(program, None, "a", normal=normal)
    if it.verdict is None:
        return Certainty.NOTHING
    try:
        if not it.can_be_true():
            return Certainty.NEVER
        if not it.holds(it.verdict, False) and not it.missing(it.verdict):
            return Certainty.ALWAYS
    except _TooMany:
        pass
    return Certainty.NOTHING


def union(programs: Sequence[Program]) -> Program:
    """The filter that passes what any of these passes. Parameters of one name are taken to be one parameter.

    Raises InterestRefused where one of them has loops, state or an output, or they do not fit together.
    """
    verdicts = [as_expression(program) for program in programs]
    params = {param.name: param for program in programs for param in program.params}
    for at, (program, verdict) in enumerate(zip(programs, verdicts, strict=True)):
        wrong = None
        if verdict is None:
            wrong = "has loops, state or an output, so it is no single condition"
        elif program.input != programs[0].input:
            wrong = f"is about {program.input}, not {programs[0].input}"
        elif any(params[param.name] != param for param in program.params):
            wrong = "has a parameter of the same name and another type"
        if wrong is not None:
            raise InterestRefused([locate(program.text, NOWHERE, f"interest {at + 1} {wrong}")], "no union")
    conditions = tuple(verdict for verdict in verdicts if verdict is not None)
    if not conditions:
        raise InterestRefused([locate("", NOWHERE, "expected at least one interest, found none")], "no union")
    value = conditions[0] if len(conditions) == 1 else Logic("or", conditions)
    return normalise(Program(programs[0].input, None, tuple(params.values()), (), (Return(value),)))


class Prepared:
    """A filter taken apart once, to be held against many others as by `covers`.

    Parameters without a value here are told from those of others by `name`, which must be another for each.
    """

    def __init__(
        self, program: Program, params: Params | None = None, *, name: str, fingerprint: bytes | None = None
    ) -> None:
        """With its `fingerprint`, the program is in its normal form already."""
        normal = fingerprint is not None and not program.params
        self._filter = None if program.stateful else _Filter(program, params, name, normal=normal)
        self._given = fingerprint if normal else None

    def covers(self, other: Prepared) -> bool:
        """Whether every event that the other passes is passed by this one."""
        x, y = self._filter, other._filter
        if x is None or y is None or x.program.input != y.program.input:
            return False
        if self.fingerprint == other.fingerprint:
            return True
        if x.verdict is None or y.verdict is None or other._ways is None:
            return False
        if not other._ways:
            return True
        larger = self._ways
        return larger is not None and all(any(_implies(way, one, y) for one in larger) for way in other._ways)

    @cached_property
    def fingerprint(self) -> bytes:
        """Equal for filters that say the same; nothing for one with state, which equals none."""
        if self._given is not None:
            return self._given
        return b"" if self._filter is None else fingerprint_of_normal(self._filter.program)

    @cached_property
    def boxes(self) -> list[Way] | None:
        """The ways to be true, each without what it says of nothing in particular: one filter can cover another only if
        each box of the other lies in one of its own. None where that is not known: it may cover its equals only."""
        about = self._filter
        if about is None or about.verdict is None or self._ways is None:
            return None
        return [
            {subject: domain for subject, domain in way.items() if not within(about.base(subject), domain)}
            for way in self._ways
        ]

    @cached_property
    def _ways(self) -> list[Way] | None:
        """The ways to be true, or None if they are too many to look at."""
        assert self._filter is not None
        try:
            return self._filter.ways()
        except _TooMany:
            return None


def _implies(way: Way, other: Way, about: _Filter) -> bool:
    return all(within(way.get(subject) or about.base(subject), domain) for subject, domain in other.items())


class _Filter:
    """A filter in its normal form, ready to be taken apart."""

    def __init__(self, program: Program, params: Params | None, side: str, *, normal: bool = False) -> None:
        program = program if normal else normalise(_bound(program, params, side))
        verdict = as_expression(program)
        if (
            verdict is not None and len(program.body) > 1
        ):  # faults kept it from being one condition; here they do not count
            simplified = normalise(replace(program, variables=(), body=(Return(verdict),)))
            verdict = as_expression(simplified)
        self.program, self.verdict = program, verdict
        self.simplifier = Simplifier(program)
        self.work = 0
        self.seen: dict[tuple[int, bool | None], tuple[Expr, list[Way]]] = {}  # by identity, so the node is kept

    def ways(self) -> list[Way]:
        assert self.verdict is not None
        return self.holds(self.verdict, True)

    def can_be_true(self) -> bool:
        """Whether there is a way in which no two comparisons contradict each other."""
        left = MAX_ORDERING
        for way in self.ways():
            left -= ordering.work(way)
            if left < 0:
                raise _TooMany
            if ordering.possible(way, self.base):
                return True
        return False

    def base(self, subject: Expr) -> Domain:
        """All that something may be."""
        if isinstance(subject.type, Array | List | Record):
            return Domain(missing=True)
        value, _ = self.simplifier.anywhere.look(subject)
        lo, hi = (value.lo, value.hi) if isinstance(value.lo, int) and isinstance(value.hi, int) else (None, None)
        return everything(subject.type, lo, hi, value.miss)

    def one(self, subject: Expr, domain: Domain) -> list[Way]:
        found = meet(self.base(subject), domain, whole=is_whole(subject.type))
        return [] if found.empty else [{subject: found}]

    def both(self, a: Way, b: Way) -> Way | None:
        self.work += 1 + len(b)
        if self.work > MAX_WORK:
            raise _TooMany
        result = a.copy()
        for subject, domain in b.items():
            if subject in result:
                domain = meet(result[subject], domain, whole=is_whole(subject.type))
                if domain.empty:
                    return None
            result[subject] = domain
        return result

    def all_of(self, parts: Sequence[list[Way]]) -> list[Way]:
        result: list[Way] = [{}]
        for ways in parts:
            result = [way for one in result for other in ways if (way := self.both(one, other)) is not None]
            if len(result) > MAX_WAYS:
                raise _TooMany
        return result

    def any_of(self, parts: Sequence[list[Way]]) -> list[Way]:
        result = [way for ways in parts for way in ways]
        if len(result) > MAX_WAYS:
            raise _TooMany
        return result

    def holds(self, expr: Expr, truth: bool) -> list[Way]:
        """The ways in which an expression is true (or false)."""
        found = self.seen.get((id(expr), truth))
        if found is None:
            found = self.seen[id(expr), truth] = (expr, self._holds(expr, truth))
        return found[1]

    def _holds(self, expr: Expr, truth: bool) -> list[Way]:
        """The ways in which an expression can be true (or, without `truth`, false), each as domains of what it reads;
        an over-approximation where it cannot be told apart."""
        match expr:
            case Const(value=value):
                return [{}] if value is truth else []
            case Missing():
                return []
            case Logic(op=op, args=args):
                parts = [self.holds(arg, truth) for arg in args]
                return self.all_of(parts) if (op == "and") == truth else self.any_of(parts)
            case Unary(op="not", a=a):
                return self.holds(a, not truth)
            case Compare(op=op, a=a, b=Const(value=value)):
                return self.one(a, compared(op, plain(value), truth))
            case InSet(a=a, values=values, param=None):
                return self.one(a, among([plain(const.value) for const in values], truth))
            case Call(fn="starts_with", args=(a, Const(value=str() as prefix))):
                return self.any_of([self.one(a, domain) for domain in beginning(prefix.encode(), truth)])
            case IsMissing(a=a):
                return self.missing(a) if truth else self.one(a, replace(self.base(a), missing=False))
            case Cond(test=test, then=then, other=other, neither=neither):
                return self.any_of(
                    [
                        self.all_of([self.holds(test, True), self.holds(then, truth)]),
                        self.all_of([self.holds(test, False), self.holds(other, truth)]),
                        self.all_of([self.missing(test), self.holds(neither, truth)]),
                    ]
                )
            case Call(fn="coalesce", args=args):
                ways: list[list[Way]] = []
                before: list[list[Way]] = []
                for arg in args:
                    ways.append(self.all_of([*before, self.holds(arg, truth)]))
                    before.append(self.missing(arg))
                return self.any_of(ways)
            case _:
                return self.one(expr, Domain(members=frozenset((truth,))))

    def missing(self, expr: Expr) -> list[Way]:
        """The ways in which it is missing."""
        found = self.seen.get((id(expr), None))
        if found is None:
            found = self.seen[id(expr), None] = (expr, self._missing(expr))
        return found[1]

    def _missing(self, expr: Expr) -> list[Way]:
        match self.simplifier.is_missing(IsMissing(expr)):
            case Const(value=value):
                return [{}] if value else []
            case IsMissing(a=a):
                return self.one(a, Domain(members=frozenset(), missing=True))
            case other:
                return self._holds(other, True)


def _parameter(expr: Expr) -> str | None:
    match expr:
        case Param(name=name) | InSet(param=name) | Lookup(param=name):
            return name
        case _:
            return None


def _bound(program: Program, params: Params | None, side: str) -> Program:
    """With the values of parameters in their places, or with names that nothing else has."""
    if not program.params:
        return program

    def change(expr: Expr) -> Expr:
        match expr:
            case Param(name=name, type=type):
                return Param(f"{side}:{name}", type) if params is None else Const(params[name], type)
            case InSet(a=a, param=str() as name):
                if params is None:
                    return InSet(a, (), f"{side}:{name}")
                members = sorted(params[name], key=plain)
                if 0 < len(members) <= 1_000:
                    return InSet(a, tuple(Const(member, a.type) for member in members))
                return InSet(a, (), f"{side}:{name}")
            case Lookup(param=name, key=key, type=type):
                return Lookup(f"{side}:{name}", key, type)
            case _:
                return expr

    body = walk.map_block(program.body, lambda expr: walk.rebuild(expr, change))
    left = {name for expr in walk.all_expressions(body) if (name := _parameter(expr)) is not None}
    declared = tuple(replace(p, name=f"{side}:{p.name}") for p in program.params if f"{side}:{p.name}" in left)
    return replace(program, params=declared, body=body)
