"""Execution 4: an interest as one Spark SQL expression, with exactly the interest's meaning.

The result is true, false or null, and null is *undecided*. Nothing in it can throw, under ANSI or not, in whatever
order Spark evaluates it, and nothing depends on the session's zone: each operation that could is a `try_` form or is
fed a value that it cannot fail on. What cannot be said exactly is `Unsupported`, with the reason and the place, and
then runs as the Arrow function (`spark/arrow.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from headwater.extras import require
from headwater.ir.backend import ARRAY_VARIABLE, LOOP, OUTPUT_ELEMENT, STATE, Unsupported, operation
from headwater.ir.functional import as_expression, as_outputs
from headwater.ir.nodes import (
    AssignElem,
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
    Lookup,
    Loop,
    Meta,
    Missing,
    Param,
    Path,
    Program,
    Reduce,
    SetOut,
    Span,
    Unary,
    Var,
)
from headwater.ir.walk import statements
from headwater.spark import arithmetic, library
from headwater.spark.compare import compare, known, member, negated
from headwater.spark.sql_text import Sql, is_sayable, literal, name, null, sql_type, text_literal, type_name
from headwater.spark.unsupported import UNSUPPORTED
from headwater.spark.validity import any_of, malformed, takes_over
from headwater.types.model import BOOL, F32, I64, Record, Scalar, Type, promote, walk

MAX_TEXT = 60_000  # characters; beyond it Spark spends longer on planning than the Arrow function on running
MAX_NESTING = 250
MAX_PARENTHESES = 300  # what the parser of Spark takes with the usual stack; an operation may need two
MAX_MEMBERS = 2_000
MAX_ENTRIES = 200  # Spark looks a map up entry by entry


class _CannotSay(Exception):
    def __init__(self, reason: str, span: Span) -> None:
        super().__init__(reason)
        self.found = Unsupported(reason, span)


class Lowering:
    """Lowers expressions over one event type.

    `params` are raw values (`ir.params.bind`). `columns` has SQL text for fields that are not simply the column of
    their name. `meta` has SQL text for source, node, seq and time; what is absent is missing.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        *,
        columns: Mapping[str, str] | None = None,
        meta: Mapping[str, str] | None = None,
    ) -> None:
        self.params, self.columns, self.meta = params, columns or {}, meta or {}
        self._done: dict[tuple[int, bool], tuple[Expr, Sql]] = {}  # the node keeps its id from being reused
        self._nesting = 0

    def lower(self, expr: Expr, *, truth: bool = False) -> Sql | Unsupported:
        """The expression's SQL. With `truth`, null and false may be exchanged: enough for a filter."""
        try:
            return self.expr(expr, truth)
        except _CannotSay as e:
            return e.found

    def expr(self, expr: Expr, truth: bool = False) -> Sql:
        key = (id(expr), truth)
        if key in self._done:
            return self._done[key][1]
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise _CannotSay(f"it nests deeper than {MAX_NESTING}", expr.span)
        sql = self._expr(expr, truth)
        self._nesting -= 1
        if len(sql.text) > MAX_TEXT:
            raise _CannotSay(f"its Column would be longer than {MAX_TEXT:,} characters", expr.span)
        if not self._nesting and _parentheses(sql.text) > MAX_PARENTHESES:
            raise _CannotSay(f"its Column would nest deeper than {MAX_PARENTHESES}", expr.span)
        self._done[key] = (expr, sql)
        return sql

    def _expr(self, expr: Expr, truth: bool) -> Sql:
        """The SQL of an expression; with `truth`, missing may as well be false, which often is simpler."""
        match expr:
            case Const(value=value, type=type):
                return literal(value, type)
            case Missing(type=type):
                return null(type)
            case Load():
                return self._load(expr)
            case Param(name=which, type=type):
                return literal(self.params[which], type)
            case Meta(name=which, type=type):
                return Sql(self.meta[which]) if which in self.meta else null(type)
            case Unary(op="not", a=a):
                return self._not(a, truth)
            case Unary(op=op, a=a):
                operand = self.expr(a)
                self._check(expr)
                return arithmetic.unary(op, operand, expr.type)
            case Binary(op=op, a=a, b=b):
                operands = self.expr(a), self.expr(b)
                self._check(expr)
                return arithmetic.binary(op, *operands, expr.type, a.type, b.type)
            case Compare(op=op, a=a, b=b):
                return compare(op, self.expr(a), self.expr(b), (a.type, b.type), truth=truth)
            case Logic(op=op, args=args):
                parts = [self.expr(arg, truth) for arg in args]
                return Sql(f"({f' {op.upper()} '.join(map(str, parts))})", nullable=any(p.nullable for p in parts))
            case Cond():
                return self._cond(expr)
            case IsMissing(a=a):
                return Sql(f"({self.expr(a)} IS NULL)", nullable=False)
            case Cast(a=a, to=to):
                return arithmetic.cast(self.expr(a), a.type, to)
            case Call(fn=fn, args=args):
                parts = [self.expr(arg) for arg in args]
                self._check(expr)
                return library.call(fn, parts, [arg.type for arg in args])
            case InSet():
                return self._in_set(expr, truth)
            case Lookup():
                return self._lookup(expr)
            case Reduce(op=op, path=path, stored=stored):
                return library.reduce(op, self._path(path, expr.span), stored)
            case Var() | Elem():
                raise _CannotSay("it keeps a value in a variable in a way that no expression can say", expr.span)

    def _not(self, expr: Expr, truth: bool) -> Sql:
        """Pushed inwards, as Spark itself would: only `compare` knows what may be asked of a file's statistics."""
        match expr:
            case Unary(op="not", a=a):
                return self.expr(a, truth)
            case Logic(op=op, args=args):
                parts = [self.expr(Unary("not", arg, BOOL, arg.span), truth) for arg in args]
                sign = " OR " if op == "and" else " AND "
                return Sql(f"({sign.join(map(str, parts))})", nullable=any(p.nullable for p in parts))
            case Compare(op=op, a=a, b=b):
                return negated(op, self.expr(a), self.expr(b), (a.type, b.type), truth=truth)
        inner = self.expr(expr)
        return Sql(f"(NOT {inner})", nullable=inner.nullable)

    def _check(self, expr: Expr) -> None:
        """There is no exact SQL for what the table has."""
        if (reason := UNSUPPORTED.get(operation(expr))) is not None:
            raise _CannotSay(reason, expr.span)

    def _path(self, path: Path, span: Span) -> str:
        first, *steps = path.steps
        assert isinstance(first, str)
        for step in path.steps:
            if isinstance(step, str) and not is_sayable(step):
                raise _CannotSay(f"Spark would substitute a part of the name {step!r}", span)
        text = self.columns.get(first) or name(first)
        for step in steps:
            if isinstance(step, str):
                text = f"{text}.{name(step)}"
            else:
                at = self.expr(step)
                # `get` wraps an index beyond 32 bits around or throws; a null index gives null.
                index = at.const if at.is_const and abs(at.const) < 1 << 31 else f"try_cast({at} AS INT)"
                text = f"get({text}, {index})"
        return text

    def _load(self, load: Load) -> Sql:
        text = self._path(load.path, load.span)
        stored = load.stored
        if not isinstance(stored, Scalar) or promote(stored) == stored:
            return Sql(text, raw=text if stored == I64 else None, stored=stored)
        wide = type_name(promote(stored))
        if type_name(stored) == wide:
            return Sql(text, raw=text, stored=stored)
        return Sql(f"CAST({text} AS {wide})", nan=stored == F32, raw=text, stored=stored)

    def _cond(self, expr: Cond) -> Sql:
        test, then, other = self.expr(expr.test), self.expr(expr.then), self.expr(expr.other)
        both = then.nullable or other.nullable
        nan = then.nan or other.nan
        if not test.nullable or expr.neither == expr.other:
            return Sql(f"CASE WHEN {test} THEN {then} ELSE {other} END", nullable=both, nan=nan)
        if isinstance(expr.neither, Missing):
            return Sql(f"CASE WHEN {test} THEN {then} WHEN NOT {test} THEN {other} END", nan=nan)
        neither = self.expr(expr.neither)
        if expr.neither == expr.then:
            return Sql(f"CASE WHEN NOT {test} THEN {other} ELSE {then} END", nullable=both, nan=nan)
        text = f"CASE WHEN {test} THEN {then} WHEN NOT {test} THEN {other} ELSE {neither} END"
        return Sql(text, nullable=both or neither.nullable, nan=nan or neither.nan)

    def _in_set(self, expr: InSet, truth: bool) -> Sql:
        values = [c.value for c in expr.values] if expr.param is None else list(self.params[expr.param])
        if len(values) > MAX_MEMBERS:
            raise _CannotSay(f"a set of {len(values):,} members (a Column takes {MAX_MEMBERS:,})", expr.span)
        a = self.expr(expr.a)
        if expr.a.type == BOOL and len(set(values)) == 2:
            return known(True, a, truth=truth)
        return member(a, values, expr.a.type, truth=truth)

    def _lookup(self, expr: Lookup) -> Sql:
        entries = self.params[expr.param]
        if not entries:
            return null(expr.type)
        if len(entries) > MAX_ENTRIES:
            raise _CannotSay(f"a map of {len(entries):,} entries (a Column takes {MAX_ENTRIES:,})", expr.span)
        key = self.expr(expr.key)
        pairs = ", ".join(f"{literal(k, expr.key.type)}, {literal(v, expr.type)}" for k, v in entries.items())
        return Sql(f"try_element_at(map({pairs}), {key})")


def _no_expression(program: Program) -> Unsupported:
    """Why `ir.functional` gave up."""
    for stmt in statements(program.body):
        if isinstance(stmt, Loop):
            return Unsupported(UNSUPPORTED[LOOP], stmt.span)
        if isinstance(stmt, AssignElem):
            return Unsupported(UNSUPPORTED[ARRAY_VARIABLE], stmt.span)
        if isinstance(stmt, SetOut) and any(not isinstance(step, str) for step in stmt.path.steps):
            return Unsupported(UNSUPPORTED[OUTPUT_ELEMENT], stmt.span)
    return Unsupported("it is too large or too entangled to be said as one expression")


def sql_of(
    program: Program,
    params: Mapping[str, Any],
    *,
    columns: Mapping[str, str] | None = None,
    meta: Mapping[str, str] | None = None,
    truth: bool = False,
) -> Sql | Unsupported:
    """The program's verdict as Spark SQL text: true, false, or null for undecided."""
    if program.stateful:
        return Unsupported(UNSUPPORTED[STATE])
    verdict = as_expression(program)
    if verdict is None:
        return _no_expression(program)
    return Lowering(params, columns=columns, meta=meta).lower(verdict, truth=truth)


@dataclass(frozen=True, slots=True)
class Outputs:
    """A transformation as Spark SQL: its verdict, and each field of its output."""

    passes: str
    fields: dict[str, str]


def outputs_of(
    program: Program,
    params: Mapping[str, Any],
    *,
    columns: Mapping[str, str] | None = None,
    meta: Mapping[str, str] | None = None,
    truth: bool = False,
) -> Outputs | Unsupported:
    """A transformation's verdict and output fields as Spark SQL text."""
    if program.stateful:
        return Unsupported(UNSUPPORTED[STATE])
    found = as_outputs(program)
    if found is None or program.output is None:
        return _no_expression(program)
    verdict, leaves = found
    for which in (f.name for record in walk(program.output) if isinstance(record, Record) for f in record.fields):
        if not is_sayable(which):
            return Unsupported(f"Spark would substitute a part of the name {which!r}")
    lowering = Lowering(params, columns=columns, meta=meta)
    passes = lowering.lower(verdict, truth=truth)
    if isinstance(passes, Unsupported):
        return passes
    texts: dict[tuple[str, ...], str] = {}
    bad: list[str] = []
    for leaf, value in leaves.items():
        made = lowering.lower(value)
        if isinstance(made, Unsupported):
            return made
        texts[leaf] = made.text
        wrong = malformed(made.text, _leaf_type(program.output, leaf)) if takes_over(value) else None
        if wrong is not None:
            bad.append(wrong)
    verdict_text = _sound(passes.text, bad, truth=truth)
    return Outputs(verdict_text, {f.name: _output((f.name,), f.type, texts) for f in program.output.fields})


def _leaf_type(record: Record, leaf: tuple[str, ...]) -> Type:
    here: Type = record
    for step in leaf:
        assert isinstance(here, Record)
        here = here.by_name[step].type
    return here


def _sound(passes: str, bad: list[str], *, truth: bool) -> str:
    """What passes, undecided where a part of its output is malformed."""
    wrong = any_of(bad)
    if wrong is None:
        return passes
    return (
        f"({passes} AND NOT {wrong})" if truth else f"CASE WHEN {wrong} THEN nullif({passes}, TRUE) ELSE {passes} END"
    )


def _parentheses(text: str) -> int:
    """How deep they nest; those in texts count as well, which does no harm."""
    if text.count("(") <= MAX_PARENTHESES:
        return 0
    return max(accumulate((char == "(") - (char == ")") for char in text if char in "()"))


def _output(leaf: tuple[str, ...], type: Type, texts: Mapping[tuple[str, ...], str]) -> str:
    """One field as it is stored; a record that was set in parts is put together."""
    if leaf in texts:
        # The value fits already, so the narrowing cast neither fails nor loses anything.
        # A record that may be null is cast to itself: its fields become nullable, as Arrow has them then.
        narrower = isinstance(type, Scalar) and type_name(type) != type_name(promote(type))
        recast = narrower or isinstance(type, Record)
        return f"try_cast({texts[leaf]} AS {sql_type(type)})" if recast else texts[leaf]
    assert isinstance(type, Record)
    parts = (f"{text_literal(f.name)}, {_output((*leaf, f.name), f.type, texts)}" for f in type.fields)
    return f"named_struct({', '.join(parts)})"


def column_of(
    program: Program,
    params: Mapping[str, Any],
    *,
    columns: Mapping[str, str] | None = None,
    meta: Mapping[str, str] | None = None,
    truth: bool = False,
) -> Any:
    """The program's verdict as a Spark Column, or `Unsupported`. Needs a running Spark session."""
    require("spark", "a Spark Column")
    from pyspark.sql import functions as F

    sql = sql_of(program, params, columns=columns, meta=meta, truth=truth)
    return sql if isinstance(sql, Unsupported) else F.expr(sql.text)


class ColumnBackend:
    """Programs as Spark SQL text: a filter's verdict (`Sql`), or a transformation's `Outputs`."""

    name = "Spark Column"
    unsupported: Mapping[str, str] = UNSUPPORTED

    def lower(self, program: Program, params: Mapping[str, Any]) -> Sql | Outputs | Unsupported:
        return sql_of(program, params) if program.output is None else outputs_of(program, params)


BACKEND = ColumnBackend()

__all__ = ["BACKEND", "Lowering", "Outputs", "Unsupported", "column_of", "outputs_of", "sql_of"]
