"""Hypothesis strategies for random, well-typed interests over a record, made through the Builder.

    case = draw(filters(record))           Case(program, params): a program and values for its parameters
    case = draw(transforms(record))        the same with an output event
    draw(cases())                          a random record, a program over it, and a few of its events
    draw(meta())                           what the service knows of an event

`Features` switches off what an execution cannot do. Loops that are not counted draw on fuel: run these programs with
`fuel=FUEL`, which is small, so that the interpreter stays fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from hypothesis import strategies as st

from headwater.ir.build import Builder
from headwater.ir.functions import FUNCTIONS
from headwater.ir.interp import EventContext
from headwater.ir.nodes import NOWHERE, Break, Const, Continue, Expr, Missing, ParamDecl, Program, Stmt
from headwater.types import model as m
from tests import strategies as s

FUEL = 40

BOOL, I64, U64, F64 = m.BOOL, m.I64, m.U64, m.F64
TEXT, BYTES, TIMESTAMP = m.TEXT, m.BYTES, m.TIMESTAMP

PATTERNS = ("%", "a%", "%b", "%a%", "_", "a_", "ORL%#_", "\\%", "", "%%", "_%", "a\\")
STORED = (*m.INTEGERS, m.F32, F64, BOOL, TIMESTAMP)


@dataclass(frozen=True, slots=True)
class Features:
    """What a random program may use."""

    loops: bool = True
    state: bool = True
    libm: bool = True
    u64: bool = True
    statements: bool = True  # else a single return
    params: bool = True
    meta: bool = True
    arrays: bool = True  # array variables
    text: bool = True  # text and bytes
    reductions: bool = True
    missing: bool = True  # `Missing` nodes


class Case(NamedTuple):
    program: Program
    params: dict[str, Any]


def meta() -> st.SearchStrategy[EventContext]:
    none = st.none()
    return st.builds(
        EventContext,
        source=none | s.texts(),
        node=none | s.texts(),
        seq=none | s.integers(0, 2**63 - 1),
        time=none | s.raw_values(TIMESTAMP),
    )


def constants(type: m.Type) -> st.SearchStrategy[Const]:
    """A literal of a promoted type, biased to extremes and small numbers."""
    return s.raw_values(type).map(lambda value: Const(value, type))


@st.composite
def parameters(draw: st.DrawFn, features: Features) -> tuple[list[ParamDecl], dict[str, Any]]:
    """Declarations of at most one scalar, set and map each, and values for them."""
    kinds = [BOOL, I64, F64, TIMESTAMP]
    kinds += [U64] if features.u64 else []
    kinds += [TEXT, BYTES] if features.text else []
    decls: list[ParamDecl] = []
    values: dict[str, Any] = {}
    for kind in draw(st.sets(st.sampled_from(("scalar", "set", "map")))) if features.params else ():
        type = draw(st.sampled_from(kinds))
        if kind == "scalar":
            decls.append(ParamDecl("p", "scalar", type))
            values["p"] = draw(s.raw_values(type))
        elif kind == "set":
            decls.append(ParamDecl("chosen", "set", type))
            values["chosen"] = frozenset(draw(st.lists(_keys(type), max_size=4)))
        else:
            value = draw(st.sampled_from(kinds))
            decls.append(ParamDecl("table", "map", type, value))
            values["table"] = draw(st.dictionaries(_keys(type), s.raw_values(value), max_size=4))
    return decls, values


def _keys(type: m.Type) -> st.SearchStrategy[Any]:
    return s.raw_values(type).filter(lambda v: v == v)


class _Maker:
    """Draws expressions and statements into one builder."""

    def __init__(self, draw: st.DrawFn, builder: Builder, features: Features) -> None:
        self.draw, self.b, self.features = draw, builder, features
        self.budget = 30
        self.paths = list(_paths(builder.input))
        self.names = 0
        self.loops = 0

    def pick(self, count: int) -> int:
        return self.draw(st.integers(0, count - 1))

    def one_of(self, *options: Callable[[], Any]) -> Any:
        return options[self.pick(len(options))]()

    # ── expressions ──

    def expr(self, type: m.Type, depth: int) -> Expr:
        """Of a promoted type."""
        self.budget -= 1
        if depth <= 0 or self.budget <= 0 or self.pick(5) == 0:
            return self.leaf(type)
        made = self._grow(type, depth - 1)
        return made if not self.b.problems else self._give_up(type)

    def _give_up(self, type: m.Type) -> Expr:
        """Some random combinations are refused by the builder, which is right; take a leaf instead."""
        self.b.problems.clear()
        return self.leaf(type)

    def leaf(self, type: m.Type) -> Expr:
        options: list[Callable[[], Expr]] = []
        for steps, stored in self.paths:
            if m.promote(stored) == type and not isinstance(stored, m.Array | m.List | m.Record):
                options.append(lambda steps=steps: self.load(steps))
        for slot, variable in enumerate(self.b.variables):
            if m.promote(variable.type) == type:
                if variable.shape:
                    options.append(lambda slot=slot: self.elem(slot))
                else:
                    options.append(lambda slot=slot: self.b.var(slot, NOWHERE))
        options += [lambda d=d: self.b.param(d.name, NOWHERE) for d in self.b.params.values()
                    if d.kind == "scalar" and d.type == type]  # fmt: skip
        if self.features.meta:
            options += [lambda n=n: self.b.meta(n, NOWHERE) for n, t in
                        (("source", TEXT), ("node", TEXT), ("seq", I64), ("time", TIMESTAMP)) if t == type]  # fmt: skip
        if options and self.pick(4):
            return options[self.pick(len(options))]()
        if self.features.missing and self.pick(12) == 0:
            return Missing(type)
        return self.draw(constants(type))

    def index(self, size: int) -> Expr:
        """Mostly in range, sometimes not, sometimes a variable."""
        if self.pick(3):
            return Const(self.draw(st.integers(0, size - 1)), I64)
        return self.expr(I64, 1)

    def load(self, steps: tuple[Any, ...]) -> Expr:
        made = self.b.field(steps[0], NOWHERE)
        for step in steps[1:]:
            if isinstance(step, str):
                made = self.b.attribute(made, step, NOWHERE)
            else:
                made = self.b.index(made, self.index(step), NOWHERE)
        return made

    def elem(self, slot: int) -> Expr:
        return self.b.elem(slot, [self.index(n) for n in self.b.variables[slot].shape], NOWHERE)

    def aggregate(self, wanted: type) -> Expr | None:
        found = [steps for steps, stored in self.paths if isinstance(stored, wanted)]
        return self.load(found[self.pick(len(found))]) if found else None

    def kinds(self) -> list[m.Type]:
        """Types to compare and branch over."""
        kinds: list[m.Type] = [I64, F64, BOOL, TIMESTAMP]
        kinds += [U64] if self.features.u64 else []
        kinds += [TEXT, BYTES] if self.features.text else []
        kinds += [t for t in {stored: None for _, stored in self.paths} if isinstance(t, m.Enum)][:1]
        return kinds

    def kind(self) -> m.Type:
        kinds = self.kinds()
        if self.paths and self.pick(2):  # prefer what the event has
            promoted = m.promote(self.paths[self.pick(len(self.paths))][1])
            if promoted in kinds:
                return promoted
        return kinds[self.pick(len(kinds))]

    def number(self, depth: int) -> Expr:
        return self.expr([I64, F64, U64][self.pick(3 if self.features.u64 else 2)], depth)

    def _grow(self, type: m.Type, depth: int) -> Expr:
        b, e = self.b, self.expr
        common: list[Callable[[], Expr]] = [
            lambda: b.cond(e(BOOL, depth), e(type, depth), e(type, depth), NOWHERE),
            lambda: b.call("coalesce", [e(type, depth) for _ in range(2 + self.pick(2))], NOWHERE),
        ]
        maps = [d for d in b.params.values() if d.kind == "map" and d.value == type]
        common += [lambda: b.lookup(maps[0].name, e(maps[0].type, depth), NOWHERE)] if maps else []
        special: list[Callable[[], Expr]] = []
        if type == BOOL:
            special = [self._compare, self._compare, self._logic, self._in, self._is_missing, self._test]
            special = [lambda make=make: make(depth) for make in special]
            special.append(lambda: b.unary("not", e(BOOL, depth), NOWHERE))
        elif type in (I64, U64, F64):
            special = [self._arithmetic, self._arithmetic, self._function, self._cast, self._unary]
            special += [self._reduce] if self.features.reductions else []
            special = [lambda make=make: make(type, depth) for make in special]
            if type == I64:
                special += [lambda: self._part(depth), lambda: self._part(depth)]
        elif type == TIMESTAMP:
            special = [
                lambda: b.binary(("add", "sub")[self.pick(2)], e(TIMESTAMP, depth), self.span(depth), NOWHERE),
                lambda: b.cast(e(I64, depth), TIMESTAMP, NOWHERE),
            ]
        elif type == TEXT:
            special = [lambda: b.call(("lower", "upper")[self.pick(2)], [e(TEXT, depth)], NOWHERE)]
        options = special * 2 + common
        return self.one_of(*options)

    def span(self, depth: int) -> Expr:
        unit = ("seconds", "minutes", "hours", "days")[self.pick(4)]
        return self.b.call(unit, [self.number(depth)], NOWHERE) if self.pick(2) else self.expr(I64, depth)

    def _compare(self, depth: int) -> Expr:
        type = self.kind()
        ordered = type in (I64, U64, F64, TEXT, BYTES, TIMESTAMP)
        op: Any = ("eq", "ne", "lt", "le", "gt", "ge")[self.pick(6 if ordered else 2)]
        other = type
        if type in (I64, U64) and self.features.u64 and self.pick(4) == 0:
            other = U64 if type == I64 else I64
        if self.pick(2):
            return self.b.compare(op, self.expr(type, depth), self.draw(constants(other)), NOWHERE)
        return self.b.compare(op, self.expr(type, depth), self.expr(other, depth), NOWHERE)

    def _logic(self, depth: int) -> Expr:
        args = [self.expr(BOOL, depth) for _ in range(2 + self.pick(2))]
        return self.b.logic("and" if self.pick(2) else "or", args, NOWHERE)

    def _in(self, depth: int) -> Expr:
        keyed = [d for d in self.b.params.values() if d.kind in ("set", "map")]
        if keyed and self.pick(2):
            decl = keyed[self.pick(len(keyed))]
            return self.b.in_param(self.expr(decl.type, depth), decl.name, NOWHERE)
        type = self.kind()
        values: list[Expr] = [self.draw(constants(type)) for _ in range(1 + self.pick(3))]
        return self.b.in_set(self.expr(type, depth), values, NOWHERE)

    def _is_missing(self, depth: int) -> Expr:
        whole = self.aggregate(m.Array | m.List | m.Record) if self.pick(3) == 0 else None  # type: ignore[arg-type]
        return self.b.is_missing(whole or self.expr(self.kind(), depth), NOWHERE)

    def _test(self, depth: int) -> Expr:
        if self.features.text and self.pick(2):
            name = ("starts_with", "ends_with", "contains", "like")[self.pick(4)]
            part = self.expr(TEXT, depth)
            if name == "like":
                part = Const(PATTERNS[self.pick(len(PATTERNS))], TEXT)
            return self.b.call(name, [self.expr(TEXT, depth), part], NOWHERE)
        if self.pick(2):
            return self.b.call("is_nan", [self.number(depth)], NOWHERE)
        return self.b.cast(self.number(depth), BOOL, NOWHERE)

    def _arithmetic(self, type: m.Type, depth: int) -> Expr:
        ops: tuple[Any, ...] = ("add", "sub", "mul", "div")
        if type != F64:
            ops = ("add", "sub", "mul", "tdiv", "tmod", "fdiv", "fmod", "and", "or", "xor", "shl", "shr")
        op = ops[self.pick(len(ops))]
        b: Expr
        if op in ("shl", "shr") and self.pick(3):
            b = Const(self.draw(st.integers(0, 70)), type)
        else:
            b = self.expr(type, depth)
        return self.b.binary(op, self.expr(type, depth), b, NOWHERE)

    def _unary(self, type: m.Type, depth: int) -> Expr:
        op: Any = "neg" if type == F64 or (type == I64 and self.pick(2)) else "bitnot"
        return self.b.unary(op, self.expr(type, depth), NOWHERE)

    def _function(self, type: m.Type, depth: int) -> Expr:
        names = ["abs", "min", "max"]
        if type == F64:
            names += ["floor", "ceil", "sqrt", "fmod", "distance", "distance3"]
            names += ["pow", "exp", "log", "sin", "cos"] if self.features.libm else []
        name = names[self.pick(len(names))]
        params = FUNCTIONS[name].params
        count = 2 + self.pick(2) if params.endswith("*") else len(params)
        return self.b.call(name, [self.expr(type, depth) for _ in range(count)], NOWHERE)

    def _cast(self, type: m.Type, depth: int) -> Expr:
        to = [t for t in STORED if m.promote(t) == type]
        sources = [BOOL, I64, F64, *([U64] if self.features.u64 else []), *([TIMESTAMP] if type == I64 else [])]
        source = sources[self.pick(len(sources))]
        return self.b.cast(self.expr(source, depth), I64 if source == TIMESTAMP else to[self.pick(len(to))], NOWHERE)

    def _part(self, depth: int) -> Expr:
        """An integer from something else."""
        parts = ("year", "month", "day", "hour", "minute", "second", "weekday", "micros")
        options: list[Callable[[], Expr]] = [
            lambda: self.b.call(parts[self.pick(len(parts))], [self.expr(TIMESTAMP, depth)], NOWHERE),
            lambda: self.b.binary("sub", self.expr(TIMESTAMP, depth), self.expr(TIMESTAMP, depth), NOWHERE),
            lambda: self.b.call(("seconds", "days")[self.pick(2)], [self.number(depth)], NOWHERE),
        ]
        if self.features.text:
            names = ("length", "byte_length")
            options.append(
                lambda: self.b.call(names[self.pick(2)], [self.expr((TEXT, BYTES)[self.pick(2)], depth)], NOWHERE)
            )
        enum = next((t for t in self.kinds() if isinstance(t, m.Enum)), None)
        if enum is not None:
            options.append(lambda: self.b.call("code", [self.expr(enum, depth)], NOWHERE))
        return self.one_of(*options)

    def _reduce(self, type: m.Type, depth: int) -> Expr:
        found = []
        for steps, stored in self.paths:
            if isinstance(stored, m.Array | m.List):
                element = m.promote(stored.element)
                found += [("len", steps)] if type == I64 else []
                if element in (I64, U64, F64):
                    found += [(op, steps) for op in ("sum", "min", "max") if element == type]
                    found += [("mean", steps)] if type == F64 else []
        if not found:
            return self.leaf(type)
        op, steps = found[self.pick(len(found))]
        return self.b.reduce(op, self.load(steps), NOWHERE)

    # ── statements ──

    def block(self, depth: int, *, in_loop: bool = False) -> list[Stmt]:
        made: list[Stmt] = []
        self.b.push_scope()
        for _ in range(1 + self.pick(3)):
            made += self.statement(depth, in_loop)
            self.b.problems.clear()
        self.b.pop_scope()
        return made

    def statement(self, depth: int, in_loop: bool) -> list[Stmt]:
        options: list[Callable[[bool], list[Stmt]]] = [self._local, self._assign, self._assign]
        if self.b.output is not None:
            options += [self._set_out] * 4
        if depth > 0:
            options += [lambda loop: self._if(depth, loop)] * 3
            options += [lambda _: self._loop(depth)] * 3 if self.features.loops and self.loops < 3 else []
            options += [lambda loop: self._return()]
        if in_loop:
            options.append(lambda _: [(Break if self.pick(2) else Continue)()])
        return options[self.pick(len(options))](in_loop)

    def declare(self, *, state: bool = False, shape: tuple[int, ...] = (), type: m.Type | None = None) -> int | None:
        kinds: list[m.Type] = [m.I32, I64, F64, m.F32, BOOL, m.I8, m.U16, TIMESTAMP]
        kinds += [t for t in self.kinds() if isinstance(t, m.Enum)]
        kinds += [U64] if self.features.u64 else []
        kinds += [TEXT] if self.features.text and not state else []
        type = type or kinds[self.pick(len(kinds))]
        self.names += 1
        init: list[Expr] = []
        if state and (self.pick(2) or isinstance(type, m.Enum)):
            init = [Const(self.draw(s.raw_values(type)), m.promote(type)) for _ in range(math.prod(shape))]
        return self.b.declare(f"v{self.names}", type, NOWHERE, shape=shape, state=state, init=init)

    def shape(self) -> tuple[int, ...]:
        return ((), (), (2,), (3,), (2, 2))[self.pick(5)] if self.features.arrays else ()

    def _local(self, _: bool) -> list[Stmt]:
        slot = self.declare(shape=self.shape())
        return self._fill(slot) if slot is not None and self.pick(8) else []

    def _assign(self, _: bool) -> list[Stmt]:
        if not self.b.variables:
            return self._local(False)
        return self._fill(self.pick(len(self.b.variables)))

    def _fill(self, slot: int) -> list[Stmt]:
        variable = self.b.variables[slot]
        if variable.name.startswith("i"):  # a counter: leave it alone, mostly
            return []
        type = m.promote(variable.type)
        value = self.expr(type, 2)
        if type != variable.type and type == I64 and self.pick(2):
            value = (
                self.b.binary("add", self.b.var(slot, NOWHERE), Const(1, I64), NOWHERE) if not variable.shape else value
            )
        if variable.shape:
            return self.b.assign_elem(slot, [self.index(n) for n in variable.shape], value, NOWHERE)
        return self.b.assign(slot, value, NOWHERE)

    def _if(self, depth: int, in_loop: bool) -> list[Stmt]:
        other = self.block(depth - 1, in_loop=in_loop) if self.pick(2) else []
        return self.b.if_(self.expr(BOOL, 2), self.block(depth - 1, in_loop=in_loop), other, NOWHERE)

    def _return(self) -> list[Stmt]:
        return self.b.return_(self.expr(BOOL, 2), NOWHERE)

    def _loop(self, depth: int) -> list[Stmt]:
        self.loops += 1
        if self.pick(4) == 0:  # as long as fuel lasts
            return self.b.loop(self.expr(BOOL, 2), self.block(depth - 1, in_loop=True), self._assign(True), NOWHERE)
        self.names += 1
        slot = self.b.declare(f"i{self.names}", (m.I32, I64)[self.pick(2)], NOWHERE)
        assert slot is not None
        var = self.b.var(slot, NOWHERE)
        start, end, by = self.pick(4), self.pick(6), 1 + self.pick(2)
        limit: Expr = Const(end, I64) if self.pick(3) else self.expr(I64, 1)
        op: Any = ("lt", "le", "ne", "lt")[self.pick(4)]
        if self.pick(4) == 0:
            start, op, by = end, ("gt", "ge")[self.pick(2)], -by
            limit = Const(self.pick(3), I64)
        step = self.b.assign(slot, self.b.binary("add", var, Const(by, I64), NOWHERE), NOWHERE)
        test = self.b.compare(op, var, limit, NOWHERE)
        if self.pick(4) == 0:
            test = self.b.logic("and", [test, self.expr(BOOL, 1)], NOWHERE)
        body = self.block(depth - 1, in_loop=True)
        if self.pick(5) == 0:
            body, step = body + step, []
        return [*self.b.assign(slot, Const(start, I64), NOWHERE), *self.b.loop(test, body, step, NOWHERE)]

    def _set_out(self, _: bool) -> list[Stmt]:
        assert self.b.output is not None
        targets = list(_paths(self.b.output))
        steps, stored = targets[self.pick(len(targets))]
        return self.set_out(steps, stored)

    def set_out(self, steps: tuple[Any, ...], stored: m.Type) -> list[Stmt]:
        at = [step if isinstance(step, str) else self.index(step) for step in steps]
        if isinstance(stored, m.Array | m.List | m.Record):
            same = [source for source, kind in self.paths if kind == stored]
            value: Expr | None = self.load(same[self.pick(len(same))]) if same else None
        else:
            value = self.expr(m.promote(stored), 2)
        return self.b.set_out(at, value, NOWHERE) if value is not None else []


def _paths(record: m.Record) -> list[tuple[tuple[Any, ...], m.Type]]:
    """Every readable path: field names, and the size to index a dimension with; with the stored type there."""
    found: list[tuple[tuple[Any, ...], m.Type]] = []

    def visit(steps: tuple[Any, ...], type: m.Type) -> None:
        if steps:
            found.append((steps, type))
        match type:
            case m.Record(fields=fields):
                for field in fields:
                    visit((*steps, field.name), field.type)
            case m.Array(element=element, shape=shape):
                visit((*steps, shape[0]), m.Array(element, shape[1:]) if len(shape) > 1 else element)
            case m.List(element=element):
                visit((*steps, 3), element)

    visit((), record)
    return found


def expressions(
    builder: Builder, type: m.Type, depth: int = 3, *, features: Features | None = None
) -> st.SearchStrategy[Expr]:
    """Of a promoted type, into this builder."""

    @st.composite
    def make(draw: st.DrawFn) -> Expr:
        return _Maker(draw, builder, features or Features()).expr(type, depth)

    return make()


@st.composite
def filters(draw: st.DrawFn, record: m.Record, *, depth: int = 3, **flags: bool) -> Case:
    """A filter over the record; flags are those of `Features`."""
    features = Features(**flags)
    return _program(draw, record, None, depth, features)


@st.composite
def predicates(draw: st.DrawFn, record: m.Record, *, depth: int = 3, **flags: bool) -> Case:
    """A filter that is one condition."""
    return _program(draw, record, None, depth, Features(**(flags | {"statements": False})))


@st.composite
def transforms(
    draw: st.DrawFn, record: m.Record, *, output: m.Record | None = None, depth: int = 2, **flags: bool
) -> Case:
    """A transformation of the record into `output` (else a record drawn for it)."""
    return _program(draw, record, output or draw(outputs(record)), depth, Features(**flags))


@st.composite
def outputs(draw: st.DrawFn, record: m.Record) -> m.Record:
    """An output record that shares some types with the input."""
    scalars = st.sampled_from((m.I8, m.I32, I64, m.U16, m.F32, F64, BOOL, TEXT, TIMESTAMP))
    arrays = st.sampled_from((m.Array(F64, (2,)), m.Array(m.I16, (2, 2)), m.Record("Inner", (m.Field("k", I64),))))
    own = st.sampled_from([stored for _, stored in _paths(record)])
    fields = draw(st.lists(st.tuples(st.one_of(scalars, own, arrays), st.booleans()), min_size=1, max_size=4))
    return m.Record("Out", tuple(m.Field(f"o{i}", type, optional) for i, (type, optional) in enumerate(fields)))


def _program(draw: st.DrawFn, record: m.Record, output: m.Record | None, depth: int, features: Features) -> Case:
    decls, values = draw(parameters(features))
    builder = Builder(record, output=output, params=decls)
    maker = _Maker(draw, builder, features)
    body: list[Stmt] = []
    if features.state and features.statements:
        for _ in range(maker.pick(3)):
            maker.declare(state=True, shape=maker.shape())
    if output is not None:
        for name in [f.name for f in output.fields if not f.optional or maker.pick(2)]:
            body += maker.set_out((name,), output.by_name[name].type)
            builder.problems.clear()
    if features.statements and (output is not None or maker.pick(3)):
        body += maker.block(2)
    body += builder.return_(maker.expr(BOOL, depth), NOWHERE)
    builder.problems.clear()
    return Case(builder.finish(body), values)


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    records: st.SearchStrategy[m.Record] | None = None,
    transforming: bool = False,
    events: int = 4,
    **flags: bool,
) -> tuple[Case, list[tuple[dict[str, Any], EventContext]]]:
    """A program over a random record, with events and their meta."""
    record = draw(records if records is not None else s.records())
    case = draw(transforms(record, **flags) if transforming else filters(record, **flags))
    return case, draw(st.lists(st.tuples(s.raw_events(record), meta()), min_size=1, max_size=events))
