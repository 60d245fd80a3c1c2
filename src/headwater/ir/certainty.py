"""What is certain of an interest before any event: that none passes, that every one does, or that a part is never true.

    b > 300             on a u8: no value of the type is so large
    wind[9] > 1         on an array of three: the index is always out of range
    level = 0.1         on an f32: no value of the type is 0.1
    n > 5 and n < 3     the one leaves nothing for the other

Each remark is a proof over the values that types have and the tests on the way (`analyse.py`, `covers.py`): whatever is
said here holds for every valid event, and when in doubt nothing is said. What is written as a constant on purpose
(`true`, `{ return 1; }`) is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import cached_property

from headwater.errors import Problem
from headwater.ir import walk
from headwater.ir.analyse import Analysis, analyse
from headwater.ir.build import inside
from headwater.ir.covers import Certainty, certainty
from headwater.ir.intervals import Value, type_range
from headwater.ir.library import round_f32
from headwater.ir.nodes import (
    NOWHERE,
    Binary,
    Call,
    Cast,
    Compare,
    Cond,
    Const,
    Elem,
    Expr,
    InSet,
    IsMissing,
    Load,
    Logic,
    Meta,
    Missing,
    Param,
    Path,
    Program,
    Reduce,
    Return,
    Span,
    Unary,
    Var,
)
from headwater.ir.notes import locate
from headwater.ir.operators import EPOCH
from headwater.types.model import BOOL, F32, I64, TIMESTAMP, U64, Array, Enum, List, Record, Type

MAX_REMARKS = 10
SHOWN_MEMBERS = 8  # of an enumeration
_NONE_PASSES, _ALL_PASS = "no event can pass this interest", "every event passes this interest"


def remarks(analysis: Analysis, normal: Program) -> tuple[Problem, ...]:
    """What the author of an interest should know, in the order of its text. `normal` is its normal form."""
    program = analysis.program
    if _is_plain(program):
        return ()
    if not any(isinstance(expr, Load | Meta | Reduce) for expr in walk.all_expressions(program.body)):
        return ()
    it = _Look(analysis)
    never, always = it.never(normal), it.always(normal)
    found = [*it.beyond, *it.unequal, *it.tests()]
    if not found and (never or always):
        message = _NONE_PASSES if never else _ALL_PASS
        hint = it.why_never() if never else "leave the condition out to have all of them"
        found = [locate(program.text, it.place, message, hint=hint)]
    elif never or always:
        found = [replace(each, message=f"{each.message}: {_NONE_PASSES if never else _ALL_PASS}") for each in found]
    unique = dict.fromkeys(sorted(found, key=lambda problem: (problem.line, problem.column)))
    return tuple(unique)[:MAX_REMARKS]


def passes_nothing(program: Program, normal: Program | None = None) -> bool:
    """Whether no event passes, by whatever is known: values of types, faults, contradictions. `normal` is its normal
    form, where there is one already."""
    if certainty(program if normal is None else normal, normal=normal is not None) is Certainty.NEVER:
        return True
    return _Look(analyse(program, refuse=False)).never(program if normal is None else normal)


def _is_plain(program: Program) -> bool:
    """Whether it is what most interests are, seen at a glance: comparisons of different fields, joined by `and`, each
    with a parameter or a constant well within the field's type. Of these nothing is to be said."""
    body = program.body
    if len(body) != 1 or not isinstance(body[0], Return):
        return False
    value = body[0].value
    tests = value.args if isinstance(value, Logic) and value.op == "and" else (value,)
    seen = set()
    for test in tests:
        if not isinstance(test, Compare) or not isinstance(test.a, Load) or not isinstance(test.b, Const | Param):
            return False
        steps = test.a.path.steps
        if not all(isinstance(step, str) for step in steps) or not _is_within(test.a.stored, test.b):
            return False
        seen.add(steps)
    return len(seen) == len(tests)


def _is_within(stored: Type, value: Const | Param) -> bool:
    if isinstance(value, Param):
        return True
    bounds = type_range(stored)
    if bounds is None:
        return stored != F32 or (isinstance(value.value, float) and round_f32(value.value) == value.value)
    return isinstance(value.value, int) and bounds[0] < value.value < bounds[1]


class _Look:
    """One program, with those parts replaced that intervals of integers cannot tell: they are missing, or false."""

    def __init__(self, analysis: Analysis) -> None:
        self.program, self.analysis = analysis.program, analysis
        self.beyond: list[Problem] = []
        self.unequal: list[Problem] = []
        body = walk.map_block(self.program.body, lambda expr: walk.rebuild(expr, self._known))
        self.plain = self.program
        if body is not self.program.body:
            self.plain = replace(self.program, body=body)
            self.analysis = analyse(self.plain, refuse=False)

    @property
    def place(self) -> Span:
        """Where the result is said."""
        first = next((s for s in self.program.body if isinstance(s, Return)), None)
        single = first is not None and len(self.program.body) == 1
        return first.span if single and first is not None else Span(0, len(self.program.text))

    # ── the whole ──

    def never(self, normal: Program) -> bool:
        """Whether no event passes, though something is returned that is not simply false."""
        returned = [stmt for stmt in walk.statements(self.plain.body) if isinstance(stmt, Return)]
        if all(isinstance(stmt.value, Const) and stmt.value.value is False for stmt in returned):
            return False
        values = [self.analysis.value(stmt.value) for stmt in returned]
        if self.analysis.known and all(value is None or value.empty or value.hi == 0 for value in values):
            return True
        return self.repeats and self._certainty(normal) is Certainty.NEVER

    def why_never(self) -> str:
        """What is said of an interest that no event passes, none of whose tests is false by itself."""
        for expr in walk.all_expressions(self.program.body):
            if isinstance(expr, Binary) and expr.op == "div" and isinstance(expr.b, Const) and expr.b.value == 0:
                return f"{self._written(expr.span) or 'a part'} has no value, whatever the event: it divides by zero"
        for expr in walk.all_expressions(self.plain.body):
            value = self.analysis.value(expr)
            written = self._written(expr.span)
            if isinstance(expr, IsMissing) and value is not None and value.hi == 0:
                return f"{self._written(expr.a.span) or 'this'} is never missing"
            if isinstance(expr, Binary | Unary | Call) and value is not None and value.empty and written:
                return f"{written} has no value, whatever the event: it overflows, or divides by zero"
        return "what it asks for contradicts itself"

    def always(self, normal: Program) -> bool:
        """Whether every event passes a filter that is one condition on it."""
        body = self.program.body
        if self.program.output is not None or len(body) != 1 or not isinstance(body[0], Return):
            return False
        if not any(isinstance(expr, Load | Meta | Reduce) for expr in walk.expressions(body[0].value)):
            return False
        result = self.plain.body[0]
        value = self.analysis.value(result.value) if isinstance(result, Return) else None
        if value is not None and value.lo == 1 and not value.miss and not value.empty:
            return True
        return self.repeats and self._certainty(normal) is Certainty.ALWAYS

    @cached_property
    def repeats(self) -> bool:
        """Whether something is looked at twice: only then may tests contradict each other that do not by themselves."""
        kinds = (Load, Meta, Reduce, IsMissing)
        looked = [expr for expr in walk.all_expressions(self.plain.body) if isinstance(expr, kinds)]
        return len(set(looked)) < len(looked)

    def _certainty(self, normal: Program) -> Certainty:
        return certainty(normal) if self.plain is self.program else certainty(self.plain, normal=False)

    # ── parts ──

    def tests(self) -> Iterator[Problem]:
        """Comparisons that no value of their types makes true."""
        for expr in walk.all_expressions(self.plain.body):
            if not isinstance(expr, Compare | InSet):
                continue
            value = self.analysis.value(expr)
            if value is not None and not value.empty and value.hi == 0:
                yield self._never_true(expr)

    def _never_true(self, test: Compare | InSet) -> Problem:
        subject = test.a
        if isinstance(test, Compare) and isinstance(subject, Const):
            subject = test.b
        subject = subject.a if isinstance(subject, Cast) else subject
        expected = self._bounds(test) or _range(subject, self.analysis.value(subject))
        written = self._written(subject.span)
        said = f"{written} is {_kind(subject)}" if written else ""
        return self._remark(test.span, "this is never true", expected, said)

    def _bounds(self, test: Compare | InSet) -> str | None:
        """Of `x between 5 and 3`, which is two tests at one place, the bounds the other way round."""
        both = [each for each in walk.all_expressions(self.plain.body)
                if isinstance(each, Compare) and each.span == test.span != NOWHERE]  # fmt: skip
        ends = [each.b for each in both if isinstance(each.b, Const) and each.op in ("ge", "le")]
        if len(ends) != 2 or not ends[0].value > ends[1].value:  # type: ignore[operator]
            return None
        low, high = (self._written(each.span) for each in reversed(ends))
        return f"the lower bound first: between {low} and {high}"

    def _known(self, expr: Expr) -> Expr:
        match expr:
            case Load(path=path) | Reduce(path=path):
                return self._followed(expr, path)
            case Binary(op="div", b=Const(value=0)):  # of floats, of which intervals know nothing
                return Missing(expr.type, expr.span)
            case Elem(slot=slot, indices=indices):
                shape = self.program.variables[slot].shape
                outside = [self._outside(at, size) for at, size in zip(indices, shape, strict=True)]
                return Missing(expr.type, expr.span) if any(outside) else expr
            case Compare(op="eq" | "ne" as op, a=a, b=b):
                side, const = (a, b) if isinstance(b, Const) else (b, a)
                if isinstance(const, Const) and self._cannot_be(side, const, expr.span, note=op == "eq"):
                    return _unless_missing(side, op == "ne", expr.span)
            case InSet(a=a, values=values) if values:
                bad = [self._cannot_be(a, const, const.span, note=True) for const in values]
                if all(bad):
                    return _unless_missing(a, False, expr.span)
        return expr

    def _followed(self, expr: Load | Reduce, path: Path) -> Expr:
        here: Type = self.program.input
        for step in path.steps:
            if isinstance(step, str):
                assert isinstance(here, Record)
                here = here.by_name[step].type
                continue
            assert isinstance(here, Array | List)
            if self._outside(step, here.shape[0] if isinstance(here, Array) else None):
                return Missing(expr.type, expr.span)
            here = inside(here)
        return expr

    def _outside(self, index: Expr, size: int | None) -> bool:
        """Whether an index is certain to be out of range."""
        value = self.analysis.value(index)
        if value is None or value.empty or value.lo is None or value.hi is None:
            return False
        if not (value.hi < 0 or (size is not None and value.lo >= size)):
            return False
        expected = f"0 to {size - 1}" if size is not None else "0 or more"
        found = str(value.lo) if value.lo == value.hi else f"{value.lo} to {value.hi}"
        self.beyond.append(
            locate(
                self.program.text,
                index.span,
                "this index is always out of range, and what it reads always missing",
                expected=expected,
                found=found,
                hint="indices count from 0" if size is not None and value.lo == size else None,
            )
        )
        return True

    def _cannot_be(self, side: Expr, const: Const, span: Span, *, note: bool) -> bool:
        """Whether no value of what is compared is equal to a float."""
        number = const.value
        if not isinstance(number, float) or not math.isfinite(number):
            return False
        if self._is_single(side) and round_f32(number) != number:
            near = round_f32(number)
            expected = f"a value that f32 holds; the nearest is {near!r}" if math.isfinite(near) else "what f32 holds"
            written = self._written(side.span) or "x"
            hint = (
                f"no f32 is {number!r}: ask for a range, e.g. abs({written} - {number!r}) < 1e-6, or declare the "
                "field f64"
            )
        elif isinstance(side, Cast) and side.a.type in (I64, U64) and number != math.floor(number):
            expected, hint = "a whole number", "an integer is never a fraction"
        else:
            return False
        if note:
            self.unequal.append(self._remark(span, "this is never equal", expected, hint, found=repr(number)))
        return True

    def _is_single(self, side: Expr) -> bool:
        match side:
            case Load(stored=stored):
                return stored == F32
            case Var(slot=slot) | Elem(slot=slot):
                return self.program.variables[slot].type == F32
            case Cast(to=to):
                return to == F32
            case _:
                return False

    def _remark(self, span: Span, message: str, expected: str | None, hint: str, found: str | None = None) -> Problem:
        text = self.program.text
        return locate(text, span, message, expected=expected, found=found or self._written(span), hint=hint or None)

    def _written(self, span: Span) -> str:
        return " ".join(self.program.text[span.start : span.end].split())[:60] if span != NOWHERE else ""


def _unless_missing(a: Expr, truth: bool, span: Span) -> Expr:
    """The outcome of a test that is known wherever its operand has a value."""
    missing = Missing(BOOL, span)
    return Cond(IsMissing(a, span), missing, Const(truth, BOOL, span), missing, BOOL, span)


def _kind(expr: Expr) -> str:
    return str(expr.stored if isinstance(expr, Load) else expr.type)


def _range(expr: Expr, value: Value | None) -> str | None:
    """The values that something may have there, as its type writes them."""
    if value is None or value.empty or value.lo is None or value.hi is None or isinstance(value.lo, float):
        return None
    type = expr.stored if isinstance(expr, Load) else expr.type
    if isinstance(type, Enum):
        names = [name for name, code in type.members if value.lo <= code <= value.hi]
        return ", ".join(names[:SHOWN_MEMBERS]) + (" …" if len(names) > SHOWN_MEMBERS else "") or None
    low, high = (_shown(bound, type) for bound in (value.lo, value.hi))
    return f"a value from {low} to {high}" if low != high else low


def _shown(bound: float, type: Type) -> str:
    if type != TIMESTAMP or not TIMESTAMP.range[0] <= bound <= TIMESTAMP.range[1]:
        return str(bound)
    return (EPOCH + timedelta(microseconds=bound)).isoformat().replace("+00:00", "Z")
