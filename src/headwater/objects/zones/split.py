"""An interest over inputs of several owners, taken apart: what each owner decides, and what is decided of all together.

    condition = Split(Interest("distance(a.x, a.y, b.x, b.y) > :d and a.armed", …), {"a": "ship", "b": "shore"})
    condition.parts["ship"].measure({"a": {"x": 1.0, "y": 2.0, "armed": True}})     # (True, 1.0, 2.0)

A conjunct that reads inputs of one owner is decided there: its truth is one of the values that the owner is asked for.
The others read numbers, truths and texts by path, each a value of its own. Inputs of which they read something else
(elements at an index, lists, bytes), and all inputs of a program with loops, travel whole: no box says anything of
those. Values that are only to be told when it fires come with the others, and decide nothing.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError, InterestRefused
from headwater.interest import Interest
from headwater.ir import walk
from headwater.ir.boxes import ANYTHING as ANY_INTERVAL
from headwater.ir.boxes import Decider, Interval, Outcome, split
from headwater.ir.functional import as_expression
from headwater.ir.inputs import fields_read, narrowed
from headwater.ir.nodes import NOWHERE, CopyOut, Expr, Load, Logic, Meta, Param, Program, Reduce, Return
from headwater.ir.notes import locate
from headwater.ir.show import show_expr
from headwater.ir.walk import all_expressions, expressions
from headwater.objects.zones.conditions import Verdict
from headwater.objects.zones.ranges import Area, Bounds, Only, Range, Value, is_number
from headwater.types import EventType, event_type
from headwater.types.model import BOOL, Enum, Field, Record, Scalar, Type

if TYPE_CHECKING:
    from headwater.native.program import Native

COMPILED_AFTER = 1_000  # evaluations, which are rare as long as owners are silent
Leaf = tuple[str, ...]
_INPUT = re.compile(r"\w+")
_OUTCOMES: dict[Outcome, Verdict] = {Outcome.TRUE: True, Outcome.FALSE: False, Outcome.UNKNOWN: None}


class Part:
    """What one owner measures of its inputs: truths of its own conjuncts, values by path, and whole inputs."""

    def __init__(
        self,
        owner: str,
        record: Record,
        local: Sequence[Interest],
        leaves: Sequence[Leaf],
        whole: Sequence[str],
    ) -> None:
        """`record` is the type of the owner's inputs, by name."""
        self.owner, self.record = owner, record
        self.local = tuple(local)
        self.leaves = tuple(leaves)
        self.whole = {name: event_type(narrowed(record, [name])) for name in whole}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of what is measured, in order."""
        return (*map(_shown, self.local), *(".".join(leaf) for leaf in self.leaves), *self.whole)

    @cached_property
    def _natives(self) -> list[tuple[Native, EventType]]:
        return [(one.native(after=COMPILED_AFTER), one.type) for one in self.local]

    def fits(self, area: Area) -> bool:
        """Whether an area that someone sent can be one of these values: of as many, each of its type."""
        if len(area) != len(self.names):
            return False
        types: list[Type | EventType] = [BOOL] * len(self.local)
        types += [_leaf_type(self.record, leaf) for leaf in self.leaves]
        types += self.whole.values()
        return all(map(_fits, types, area))

    def measure(self, inputs: Mapping[str, Any]) -> tuple[Value, ...]:
        """The values, from the raw form of the owner's inputs by name."""
        truths = (one.test(type.encode(inputs)) for one, type in self._natives)
        leaves = (_at(inputs, leaf) for leaf in self.leaves)
        whole = (type.encode({name: inputs.get(name)}).decode("latin-1") for name, type in self.whole.items())
        return (*truths, *leaves, *whole)


class Split:
    """A condition over inputs of several owners: meets `Condition`. `owners` names the owner of each input, which is a
    field of the interest's type; `besides` are paths of values that come with what is measured."""

    def __init__(self, interest: Interest, owners: Mapping[str, str], besides: Collection[Leaf] = ()) -> None:
        self.interest = interest
        program = interest.program
        _check(program, owners)
        expr = as_expression(program)
        self.shared: Interest | None = interest
        alone: Mapping[str, Sequence[Expr]] = {}
        if expr is not None:
            alone, together = split(expr, lambda path: owners[_first(path)])
            self.shared = self._interest(together, program.input) if together else None
        leaves, opaque = _reads(program if self.shared is None else self.shared.program, expr is not None)
        if self.shared is None:
            leaves, opaque = (), ()
        self._decisive = frozenset(leaves)
        leaves = (*leaves, *(leaf for leaf in besides if leaf not in self._decisive))
        self.parts: dict[str, Part] = {}
        for owner in dict.fromkeys(owners.values()):
            own = [name for name, of in owners.items() if of == owner]
            record = narrowed(program.input, own)
            self.parts[owner] = Part(
                owner,
                record,
                [self._interest([term], record) for term in alone.get(owner, ())],
                [leaf for leaf in leaves if leaf[0] in own and leaf[0] not in opaque],
                [name for name in opaque if name in own],
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
        leaves = [leaf for part in self.parts.values() for leaf in part.leaves if leaf in self._decisive]
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
                if leaf in self._decisive:
                    _put(raw, leaf, value)
            for (name, type), value in zip(part.whole.items(), row[len(row) - len(part.whole) :], strict=True):
                raw[name] = type.decode_raw(str(value).encode("latin-1")).get(name)
        if not all(truth is True for truth in truths):
            return False
        if self._exact is None or self._native is None:
            return True
        return self._native.test(self._exact.type.encode(raw))

    @cached_property
    def told(self) -> Record | None:
        """The type of what is known of the inputs when it is decided, everything of which may be missing; None where
        that is nothing but truths."""
        leaves = [leaf for part in self.parts.values() for leaf in part.leaves]
        whole = [name for part in self.parts.values() for name in part.whole]
        return _with_leaves(self.interest.program.input, leaves, whole) if leaves or whole else None

    def known(self, areas: Sequence[Area]) -> dict[str, Any]:
        """Of areas, one for each owner: the inputs in raw form, of the type `told`, with what is exactly known."""
        raw: dict[str, Any] = dict.fromkeys(self.told.by_name) if self.told is not None else {}
        parts = [part for part in self.parts.values() if part.names]
        for part, area in zip(parts, areas, strict=True):
            for leaf, range in zip(part.leaves, area[len(part.local) :], strict=False):
                _put(raw, leaf, range.value if isinstance(range, Only) else None)
            for (name, type), range in zip(part.whole.items(), area[len(area) - len(part.whole) :], strict=True):
                if isinstance(range, Only) and isinstance(range.value, str):
                    raw[name] = type.decode_raw(range.value.encode("latin-1")).get(name)
        return raw

    def decide(self, area: Sequence[Range]) -> Verdict:
        """By intervals: what is certain of all values in these ranges."""
        open_, box = False, dict[str, Interval]()
        if all(isinstance(range, Only) for range, free in zip(area, self._free, strict=True) if not free):
            return self.holds([range.value if isinstance(range, Only) else None for range in area])
        for part, row in self._rows(area):
            for truth in row[: len(part.local)]:
                if isinstance(truth, Only) and truth.value is not True:
                    return False
                open_ = open_ or not isinstance(truth, Only)
            for leaf, range in zip(part.leaves, row[len(part.local) :], strict=False):
                if leaf in self._decisive:
                    box[".".join(leaf)] = _interval(range)
        verdict = True if self._decider is None else _OUTCOMES[self._decider.decide(box)]
        return None if verdict and open_ else verdict

    @cached_property
    def _free(self) -> tuple[bool, ...]:
        """Of all that is measured, whether it decides nothing."""
        return tuple(
            free
            for part in self.parts.values()
            for free in (
                *(False for _ in part.local),
                *(leaf not in self._decisive for leaf in part.leaves),
                *(False for _ in part.whole),
            )
        )

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


def _first(path: str) -> str:
    """The input that a path begins with."""
    found = _INPUT.match(path)
    assert found is not None
    return found.group()


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


def leaf_type(record: Record, leaf: Leaf) -> Type | None:
    """The type of a value by path; None if there is no such value."""
    here: Type = record
    for step in leaf:
        found = here.by_name.get(step) if isinstance(here, Record) else None
        if found is None:
            return None
        here = found.type
    return here if _is_value(here) else None


def _leaf_type(record: Record, leaf: Leaf) -> Type:
    found = leaf_type(record, leaf)
    assert found is not None
    return found


def _fits(type: Type | EventType, range: Range) -> bool:
    """Whether a range may be one of values of this type."""
    number = isinstance(type, Scalar) and type.is_number
    match range:
        case Bounds(low, high):
            return number and is_number(low) and is_number(high)
        case Only(value):
            return value is None or _is_of(type, value)
        case _:
            return True


def _is_of(type: Type | EventType, value: Value) -> bool:
    """Whether it is a raw value of this type, as its record would take it."""
    try:
        if isinstance(type, EventType):
            type.validate(str(value).encode("latin-1"))
            return isinstance(value, str)
        _probe(type).encode({"it": value})
    except (HeadwaterError, ValueError, TypeError, OverflowError, AttributeError, struct.error):
        return False
    return True


@lru_cache(maxsize=256)
def _probe(type: Type) -> EventType:
    """A record of one such value."""
    return event_type(Record("Probe", (Field("it", type, optional=True),)))


def _at(raw: Any, leaf: Leaf) -> Value:
    for step in leaf:
        if raw is None:
            return None
        raw = raw.get(step)
    value: Value = raw
    return value


def _put(raw: dict[str, Any], leaf: Leaf, value: Value) -> None:
    for step in leaf[:-1]:
        if raw.get(step) is None:
            raw[step] = {}
        raw = raw[step]
    raw[leaf[-1]] = value


def _interval(range: Range) -> Interval:
    match range:
        case Bounds(low, high):
            return Interval(low, high)
        case Only(value):
            return Interval.of(value)
        case _:
            return ANY_INTERVAL
