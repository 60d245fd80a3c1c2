"""The interests of a pattern: conditions, keys, times and measures, made from what was written at one place.

Texts are read as predicate text; a Python function is read from its source. Parameters are those of the whole pattern:
a program declares the ones that it reads. Problems are told at their place in the pattern's text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.errors import InterestError, ParameterError, Problem
from headwater.interest import Interest
from headwater.ir import walk
from headwater.ir.build import Builder
from headwater.ir.nodes import (
    NOWHERE,
    Binary,
    Cast,
    Compare,
    Const,
    CopyOut,
    Expr,
    InSet,
    Load,
    Logic,
    Lookup,
    Param,
    ParamDecl,
    Path,
    Program,
    Return,
    SetOut,
    Span,
    Stmt,
)
from headwater.ir.notes import is_bad, locate
from headwater.lang import predicate, pyfunc
from headwater.patterns import written
from headwater.patterns.checker.scope import (
    Scope,
    ScopedBuilder,
    from_second_round,
    onto,
    own_meta,
    paths_of,
    record_for,
    view_of,
    without_first,
)
from headwater.patterns.model import View
from headwater.types.model import BOOL, F64, I64, TIMESTAMP, Array, Field, List, Record, Type, promote

_VALUE = Path(("value",))
_TRUE = Return(Const(True, BOOL))


class _Value:
    """A result that is kept as it is: no verdict, and not only numbers."""

    def return_(self, value: Expr, span: Span) -> list[Stmt]:
        if is_bad(value):
            return []
        stored = value.stored if isinstance(value, Load) else value.type
        return [SetOut(_VALUE, value, stored, span)]


class ScopedValueBuilder(_Value, ScopedBuilder):
    """A value that may read other elements: a measure."""


class ValueBuilder(_Value, Builder):
    """A value of one event: a part of the key, the time."""


@dataclass
class Expressions:
    """Makes interests and collects what is wrong with them. `settled` is as of a `Builder`: at a first look the types
    of parameters are open, and `seen` has all that was read."""

    text: str
    decls: tuple[ParamDecl, ...]
    params: dict[str, Any]
    settled: bool = True
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    seen: list[Stmt] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    doubts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.given = tuple(self.params)  # by the caller; functions may add their own

    # ── problems ──

    def problem(self, span: Span, message: str, **more: str | None) -> None:
        self.problems.append(locate(self.text, span, message, **more))

    def warn(self, span: Span, message: str, **more: str | None) -> None:
        self.warnings.append(locate(self.text, span, message, **more))

    def moved(self, condition: written.Condition, problem: Problem) -> Problem:
        """A problem of a condition's own text, at its place in the pattern's."""
        text = condition.definition
        if not isinstance(text, str) or condition.span == NOWHERE:
            return problem
        start = condition.span.start + _offset(text, problem)
        return locate(
            self.text,
            Span(start, start + problem.width),
            problem.message,
            expected=problem.expected,
            found=problem.found,
            hint=problem.hint,
            about=problem.about,
        )

    # ── reading ──

    def read(self, condition: written.Condition, input: Record, builder: type[Builder], **more: Any) -> Program | None:
        """The program of a text or function; None, with its problems noted, if it has any."""
        kind: Any = type(builder.__name__, (builder,), {**more, "settled": self.settled, "doubts": self.doubts})
        try:
            if isinstance(condition.definition, str):
                program = predicate.parse(condition.definition, input, params=self.decls, builder=kind)
            else:
                program = self._function(condition, input, kind)
        except InterestError as error:
            self.problems += [self.moved(condition, problem) for problem in error.problems]
            return None
        self.seen += program.body
        return program

    def _function(self, condition: written.Condition, input: Record, builder: type[Builder]) -> Program:
        """The program of a Python function. Its parameters are the pattern's too, with their defaults where no value
        is given."""
        assert not isinstance(condition.definition, str)
        own = getattr(condition.definition, "__kwdefaults__", None) or {}
        names = {*own, *getattr(getattr(condition.definition, "__code__", None), "co_varnames", ())}
        given = {name: self.params[name] for name in self.given if name in names}
        parsed = pyfunc.parse(condition.definition, input, params=given, declared=self.decls, builder=builder)
        for name, value in parsed.params.items():
            if name not in self.params:
                self.params[name] = value
            elif self.params[name] is not value and self.params[name] != value and name not in given:
                self.problem(condition.span, f"the parameter {name!r} has two values", hint="one name means one value")
        known = {decl.name for decl in self.decls}
        self.decls += tuple(decl for decl in parsed.program.params if decl.name not in known)
        return parsed.program

    def conjuncts(self, condition: written.Condition, scope: Scope) -> list[Expr]:
        """What a condition asks, taken apart at its `and`s."""
        program = self.read(condition, Record("Elements", ()), ScopedBuilder, scope=scope)
        if program is None:
            return []
        if not program.body and any(named.unknown for named in scope.names.values()):
            return []  # it reads an event of a channel that there is not, which is told there
        if len(program.body) != 1 or not isinstance(program.body[0], Return):
            hint = "write one expression, e.g. lambda e: e.level > 3"
            self.problem(condition.span, "a condition of a pattern is one expression", hint=hint)
            return []
        return _conjuncts(program.body[0].value)

    def interest(self, program: Program) -> Interest | None:
        """With the parameters that it reads; None, with its problems noted, if it is too much."""
        used = self._used(program.body)
        self.used |= used
        program = replace(program, params=tuple(decl for decl in self.decls if decl.name in used))
        try:
            return Interest.from_program(program, {name: self.params[name] for name in sorted(used)})
        except InterestError as error:
            self.problems += error.problems
        except ParameterError as error:
            if self.settled:
                raise
            self.doubts.append(str(error))
        return None

    def _used(self, body: Iterable[Stmt]) -> set[str]:
        found = set()
        for expr in walk.all_expressions(tuple(body)):
            match expr:
                case Param(name=name) | InSet(param=str(name)) | Lookup(param=name):
                    found.add(name)
        return found

    # ── conditions ──

    def alone(self, conjuncts: Sequence[Expr], record: Record, text: str) -> Interest | None:
        """Of one event: an interest over its own type. None without conjuncts."""
        if not conjuncts:
            return None
        self.seen += [Return(conjunct) for conjunct in conjuncts]
        bare = tuple(unplaced(without_first(conjunct)) for conjunct in conjuncts)
        value = bare[0] if len(bare) == 1 else Logic("and", bare)
        return self.interest(Program(record, None, (), (), (Return(value),), "predicate", text))

    def between(
        self, conjunct: Expr, me: str, names: Mapping[str, Record], text: str
    ) -> tuple[Interest, tuple[View, ...]] | None:
        """Of several events: an interest over the record of what it reads."""
        expr = own_meta(conjunct, me)
        if f"{me}.prev" in paths_of([expr]):
            expr = from_second_round(expr, me, conjunct.span)
        record, views = record_for(paths_of([expr]), names)
        body = (Return(unplaced(onto(expr, record))),)
        made = self.interest(Program(record, None, (), (), body, "predicate", text))
        return None if made is None else (made, views)

    # ── values ──

    def value(self, condition: written.Condition, record: Record) -> Expr | None:
        """A scalar of one event."""
        program = self.read(condition, record, ValueBuilder)
        if program is None:
            return None
        value = _only_value(program)
        if value is None or isinstance(value.type, Array | List | Record):
            self.problem(condition.span, "this is no single value", expected="a number, text, truth value or time")
            return None
        return value

    def key(self, parts: Sequence[tuple[str, Expr]], record: Record) -> Interest | None:
        """From an event to its key; it passes if every part has a value that is not NaN."""
        output = Record("Key", tuple(Field(name, value.type) for name, value in parts))
        body: list[Stmt] = []
        tests: list[Expr] = []
        for name, value in parts:
            value = unplaced(value)
            if value.type == F64:  # -0.0 + 0.0 is 0.0, and only NaN is not equal to itself
                tests.append(Compare("eq", value, value))
                value = Binary("add", value, Const(0.0, F64), F64)
            body.append(SetOut(Path((name,)), value, value.type))
        verdict = tests[0] if len(tests) == 1 else Logic("and", tuple(tests)) if tests else Const(True, BOOL)
        return self.interest(Program(record, output, (), (), (*body, Return(verdict)), "predicate"))

    def time(self, condition: written.Condition, record: Record) -> Interest | None:
        value = self.value(condition, record)
        if value is None:
            return None
        if value.type == I64:
            value = Cast(value, TIMESTAMP, TIMESTAMP, value.span)
        if value.type != TIMESTAMP:
            self.problem(
                condition.span,
                "this is no time",
                expected="a timestamp, or microseconds since 1970 as i64",
                found=str(value.type),
            )
            return None
        body = (SetOut(Path(("time",)), unplaced(value), TIMESTAMP), _TRUE)
        return self.interest(Program(record, Record("Time", (Field("time", TIMESTAMP),)), (), (), body, "predicate"))

    def measures(
        self, measures: Sequence[written.Measure], scope: Scope, names: Mapping[str, Record], result: str
    ) -> tuple[Interest, tuple[View, ...]] | None:
        """From the record of a match to its result; every field of it may be missing."""
        values: list[tuple[str, Expr]] = []
        for measure in measures:
            program = self.read(measure.value, Record("Elements", ()), ScopedValueBuilder, scope=scope)
            value = None if program is None else _only_value(program)
            if value is not None:
                values.append((measure.name, value))
            elif program is not None:
                self.problem(measure.span, "a measure is one expression")
        if len(values) < len(measures):
            return None
        paths = paths_of([value for _, value in values])
        for _, value in values:
            if isinstance(value, Load) and len(value.path.steps) == 1 and isinstance(value.stored, Record):
                paths[str(value.path.steps[0])].update(value.stored.by_name)  # the whole event
        record, views = record_for(paths, names)
        body, fields = [], []
        for name, value in values:
            stmt, stored = _set(name, unplaced(onto(value, record)))
            body.append(stmt)
            fields.append(Field(name, stored, optional=True))
        output = Record(result, tuple(fields))
        made = self.interest(Program(record, output, (), (), (*body, _TRUE), "predicate"))
        return None if made is None else (made, views)


def _set(name: str, value: Expr) -> tuple[Stmt, Type]:
    path = Path((name,))
    if isinstance(value, Load) and isinstance(value.stored, Array | List | Record):
        return CopyOut(path, value.path, value.stored), value.stored
    stored = value.stored if isinstance(value, Load) else value.type
    if promote(stored) != value.type:
        stored = value.type
    return SetOut(path, value, stored), stored


def _only_value(program: Program) -> Expr | None:
    only = program.body[0] if len(program.body) == 1 else None
    return only.value if isinstance(only, SetOut) else None


def _conjuncts(expr: Expr) -> list[Expr]:
    if isinstance(expr, Logic) and expr.op == "and":
        return [conjunct for arg in expr.args for conjunct in _conjuncts(arg)]
    return [expr]


def unplaced(expr: Expr) -> Expr:
    """The same without places: these are of other texts than the interest's."""
    return walk.rebuild(expr, lambda node: replace(node, span=NOWHERE))


def is_alone(expr: Expr, me: str) -> bool:
    """Whether it asks of the event at hand only, and of its fields."""
    return all(view == View(me) and fields for view, fields in ((view_of(m), f) for m, f in paths_of([expr]).items()))


def _offset(text: str, problem: Problem) -> int:
    lines = text.split("\n")
    return sum(len(line) + 1 for line in lines[: problem.line - 1]) + problem.column - 1
