"""An interest over inputs of several owners, taken apart: what each owner decides, and what is decided of all together.

    condition = Split(Interest("distance(a.x, a.y, b.x, b.y) > :d and a.armed", …), {"a": "ship", "b": "shore"})
    condition.parts["ship"].measure({"a": {"x": 1.0, "y": 2.0, "armed": True}})     # (True, 1.0, 2.0)

A conjunct that reads inputs of one owner is decided there: its truth is one of the values that the owner is asked for.
The others read numbers, truths and texts by path, each a value of its own. Inputs of which they read something else
(elements at an index, lists, bytes), and all inputs of a program with loops, travel whole: no box says anything of
those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headwater.errors import InterestRefused
from headwater.interest import Interest
from headwater.ir import interp, walk
from headwater.ir.boxes import ANYTHING as ANY_INTERVAL
from headwater.ir.boxes import Decider, Interval, Outcome
from headwater.ir.functional import as_expression
from headwater.ir.inputs import fields_read, narrowed
from headwater.ir.nodes import NOWHERE, CopyOut, Expr, Load, Logic, Meta, Param, Program, Reduce, Return
from headwater.ir.notes import locate
from headwater.ir.show import show_expr
from headwater.ir.walk import all_expressions, expressions
from headwater.objects.zones.conditions import Verdict
from headwater.objects.zones.ranges import Bounds, Only, Range, Value
from headwater.types import EventType, event_type
from headwater.types.model import BOOL, Enum, Field, Record, Scalar, Type

if TYPE_CHECKING:
    from headwater.native.program import Native

COMPILED_AFTER = 1_000  # evaluations, which are rare as long as owners are silent
Leaf = tuple[str, ...]
_OUTCOMES: dict[Outcome, Verdict] = {Outcome.TRUE: True, Outcome.FALSE: False, Outcome.UNKNOWN: None}


class Part:
    """What one owner measures of its inputs: truths of its own conjuncts, values by path, and whole inputs."""

    def __init__(self, owner: str, local: Sequence[Interest], leaves: Sequence[Leaf], whole: Mapping[str, EventType]):
        self.owner = owner
        self.local = tuple(local)
        self.leaves = tuple(leaves)
        self.whole = dict(whole)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of what is measured, in order."""
        return (*map(_shown, self.local), *(".".join(leaf) for leaf in self.leaves), *self.whole)

    def measure(self, inputs: Mapping[str, Any]) -> tuple[Value, ...]:
        """The values, from the raw form of the owner's inputs by name."""
        truths = (interp.run(one.program, inputs, params=one.params).passed for one in self.local)
        leaves = (_at(inputs, leaf) for leaf in self.leaves)
        whole = (type.encode({name: inputs.get(name)}).decode("latin-1") for name, type in self.whole.items())
        return (*truths, *leaves, *whole)


class Split:
    """A condition over inputs of several owners: meets `Condition`. `owners` names the owner of each input, which is a
    field of the interest's type."""

    def __init__(self, interest: Interest, owners: Mapping[str, str]) -> None:
        self.interest = interest
        program = interest.program
        _check(program, owners)
        expr = as_expression(program)
        terms = _terms(expr) if expr is not None else ()
        by_owner = {owner: list[Expr]() for owner in dict.fromkeys(owners.values())}
        together = list[Expr]()
        for term in terms:
            found = {owners[name] for name in _inputs(term)}
            (by_owner[found.pop()] if len(found) == 1 else together).append(term)
        self.shared: Interest | None = interest
        if expr is not None:
            self.shared = self._interest(together, program.input) if together else None
        leaves, opaque = _reads(program if self.shared is None else self.shared.program, expr is not None)
        if self.shared is None:
            leaves, opaque = (), ()
        self.parts: dict[str, Part] = {}
        for owner, local in by_owner.items():
            own = [name for name, of in owners.items() if of == owner]
            record = narrowed(program.input, own)
            self.parts[owner] = Part(
                owner,
                [self._interest([term], record) for term in local],
                [leaf for leaf in leaves if leaf[0] in own and leaf[0] not in opaque],
                {name: event_type(narrowed(program.input, [name])) for name in opaque if name in own},
            )
        self._decider = Decider(self.shared) if self.shared is not None else None
        self._exact = self.shared.on(self._joined(program.input)) if self.shared is not None else None

    @property
    def owners(self) -> Mapping[str, tuple[str, ...]]:
        """The names of what each owner measures."""
        return {owner: part.names for owner, part in self.parts.items() if part.names}

    @property
    def bounded(self) -> bool:
        """Whether boxes may say something of it; else every change has to cross."""
        return not any(part.whole for part in self.parts.values())

    @property
    def limits(self) -> tuple[str, ...]:
        """Of which parts no box says anything, and why."""
        return tuple(f"{one.what}: {one.reason}" for one in self._decider.limits) if self._decider else ()

    def _joined(self, record: Record) -> Record:
        """The type of what owners measure for what is decided of all together, as it is put together again."""
        leaves = [leaf for part in self.parts.values() for leaf in part.leaves]
        whole = [name for part in self.parts.values() for name in part.whole]
        return _with_leaves(record, leaves, whole) if leaves or whole else record

    @cached_property
    def _native(self) -> Native | None:
        return None if self._exact is None else self._exact.native(after=COMPILED_AFTER)

    def holds(self, values: Sequence[Value]) -> bool:
        """As the interest itself has it."""
        truths, raw = list[Value](), dict[str, Any]()
        for part, row in self._rows(values):
            truths += row[: len(part.local)]
            for leaf, value in zip(part.leaves, row[len(part.local) :], strict=False):
                _put(raw, leaf, value)
            for (name, type), value in zip(part.whole.items(), row[len(row) - len(part.whole) :], strict=True):
                raw[name] = type.decode_raw(str(value).encode("latin-1")).get(name)
        if not all(truth is True for truth in truths):
            return False
        if self._exact is None or self._native is None:
            return True
        return self._native.test(self._exact.type.encode(raw))

    def decide(self, area: Sequence[Range]) -> Verdict:
        """By intervals: what is certain of all values in these ranges."""
        open_, box = False, dict[str, Interval]()
        for part, row in self._rows(area):
            for truth in row[: len(part.local)]:
                if isinstance(truth, Only) and truth.value is not True:
                    return False
                open_ = open_ or not isinstance(truth, Only)
            for leaf, range in zip(part.leaves, row[len(part.local) :], strict=False):
                box[".".join(leaf)] = _interval(range)
        verdict = True if self._decider is None else _OUTCOMES[self._decider.decide(box)]
        return None if verdict and open_ else verdict

    def _rows(self, row: Sequence[Any]) -> Iterable[tuple[Part, Sequence[Any]]]:
        at = 0
        for part in self.parts.values():
            yield part, row[at : at + len(part.names)]
            at += len(part.names)

    def _interest(self, terms: Sequence[Expr], record: Record) -> Interest:
        value = terms[0] if len(terms) == 1 else Logic("and", tuple(terms))
        used = {one.name for one in expressions(value) if isinstance(one, Param)} | _named(value)
        program = self.interest.program
        params = tuple(param for param in program.params if param.name in used)
        part = replace(program, input=record, params=params, variables=(), body=(Return(value),), text="")
        values = {param.name: self.interest.params[param.name] for param in params}
        return Interest.from_program(part, values, limits=self.interest.limits)


def _shown(conjunct: Interest) -> str:
    (end,) = conjunct.program.body
    assert isinstance(end, Return)
    return show_expr(end.value).replace("input.", "")


def _check(program: Program, owners: Mapping[str, str]) -> None:
    """Refuse what has no meaning over several owners, all of it at once."""
    wrong = []
    for name in fields_read(program):
        if name not in owners:
            wrong.append(f"{name}: expected an input of which the owner is known, found none among {', '.join(owners)}")
    if program.stateful:
        wrong.append("expected a condition of values as they are, found one that keeps state: make that an input")
    if any(isinstance(one, Meta) for one in all_expressions(program.body)):
        wrong.append("expected a condition of inputs, found one that asks for an event's time or source: make that one")
    if program.output is not None:
        wrong.append("expected a condition, found a transformation")
    if wrong:
        raise InterestRefused([locate(program.text, NOWHERE, one) for one in wrong], "no condition over several owners")


def _terms(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Logic) and expr.op == "and":
        return tuple(term for arg in expr.args for term in _terms(arg))
    return (expr,)


def _inputs(expr: Expr) -> set[str]:
    return {str(one.path.steps[0]) for one in expressions(expr) if isinstance(one, Load | Reduce)}


def _named(expr: Expr) -> set[str]:
    """Parameters that are sets or maps."""
    return {str(one.param) for one in expressions(expr) if getattr(one, "param", None) is not None}  # type: ignore[union-attr]


def _reads(program: Program, plain: bool) -> tuple[tuple[Leaf, ...], tuple[str, ...]]:
    """Values by path that a program reads, and inputs of which it reads something that is no such value."""
    leaves, opaque = dict[Leaf, None](), dict[str, None]()
    for one in all_expressions(program.body):
        if not isinstance(one, Load | Reduce):
            continue
        steps = one.path.steps
        if plain and isinstance(one, Load) and all(isinstance(step, str) for step in steps) and _is_value(one.stored):
            leaves[tuple(map(str, steps))] = None
        else:
            opaque[str(steps[0])] = None
    for stmt in walk.statements(program.body):
        if isinstance(stmt, CopyOut):
            opaque[str(stmt.source.steps[0])] = None
    return tuple(leaves), tuple(opaque)


def _with_leaves(record: Record, leaves: Sequence[Leaf], whole: Sequence[str] = ()) -> Record:
    """A record with nothing but these, all of which may be missing."""
    fields = []
    for field in record.fields:
        inner = [leaf[1:] for leaf in leaves if leaf[0] == field.name]
        if inner == [()] or field.name in whole:
            fields.append(replace(field, optional=True))
        elif inner:
            assert isinstance(field.type, Record)
            fields.append(Field(field.name, _with_leaves(field.type, inner), optional=True))
    return Record(record.name, tuple(fields))


def _is_value(type: Type) -> bool:
    return isinstance(type, Enum) or type == BOOL or (isinstance(type, Scalar) and type.name != "bytes")


def _at(raw: Any, leaf: Leaf) -> Value:
    for step in leaf:
        if raw is None:
            return None
        raw = raw.get(step)
    value: Value = raw
    return value


def _put(raw: dict[str, Any], leaf: Leaf, value: Value) -> None:
    for step in leaf[:-1]:
        raw = raw.setdefault(step, {})
    raw[leaf[-1]] = value


def _interval(range: Range) -> Interval:
    match range:
        case Bounds(low, high):
            return Interval(low, high)
        case Only(value):
            return Interval.of(value)
        case _:
            return ANY_INTERVAL
