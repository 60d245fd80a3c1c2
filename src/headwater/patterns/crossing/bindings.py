"""Values that a pattern's first events bind, by which its later events can be asked for at their sources.

    bindings(pattern)          what can be asked so; None where nothing can
    found.interest("Seen")     `room = 42 or who in :open_1`, with sets that are empty at first
    Opener(found)("Seen", …)   what an event opens: {"open_1": "ann"}

Of `Seen(P, 42); Seen(P, *)` only those matter who were at 42 before. In general an event that is no possible beginning
matters only

    where there are partitions   if something in its partition fitted an element with which a match can begin
    for a shared variable        if an event with the same value there fitted an element that must be taken before it

`open_1`, … are sets of such values: of a variable, or of a part of the key (of a key with several parts each is asked
by itself, which lets a little more through). Nodes that cannot read their past are asked for all values: `narrow` is
the set of the names of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.interest import RECORDS, Apart, Interest
from headwater.ir import walk
from headwater.ir.interp import EventContext
from headwater.ir.nodes import (
    Compare,
    Cond,
    Const,
    Expr,
    InSet,
    Load,
    Logic,
    Lookup,
    Meta,
    Param,
    ParamDecl,
    Path,
    Program,
    Return,
    SetOut,
    Unary,
)
from headwater.patterns import model, structure
from headwater.patterns.automaton import automaton
from headwater.patterns.crossing.atoms import channel_of, counts_rows, expression_of, interest_of, source_interest
from headwater.patterns.crossing.marks import Marking
from headwater.patterns.model import Both, Either, Leaf, Node, Repeat, Sequence
from headwater.types import EventType, event_type
from headwater.types.model import BOOL, BYTES, F64, I64, TEXT, TIMESTAMP, U64, Field, Record, Type, promote

_TYPES = (BOOL, I64, U64, F64, TEXT, BYTES, TIMESTAMP)  # that a set parameter may have
_NONE, _TRUE = Const(False, BOOL), Const(True, BOOL)


@dataclass(frozen=True, eq=False)
class Slot:
    """A set of open values, by the name of its parameter. An event that fits one of the `binders` by itself opens the
    value that `values` reads of it, by channel."""

    name: str
    type: Type
    binders: frozenset[int]
    values: Mapping[str, Expr]
    what: str  # for people: a variable, or a part of the key
    group: object  # slots whose values belong together have the same
    known: str  # the name of the parameter with what was open before, beside

    @property
    def decl(self) -> ParamDecl:
        return ParamDecl(self.name, "set", self.type)

    @property
    def known_decl(self) -> ParamDecl:
        return ParamDecl(self.known, "set", self.type)

    def test(self, value: Expr) -> Expr:
        return InSet(value, param=self.name)


@dataclass(frozen=True, eq=False)
class Question:
    """Whether an event can matter: if it passes the condition (None: any does), and what it has for each of these slots
    is open there."""

    condition: Interest | None
    slots: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True)
class _Asked:
    """An element of a channel with the slots in which its event must have an open value; none: at any time."""

    element: int
    tests: tuple[Expr, ...]


@dataclass(eq=False)
class Bindings:
    """What is asked of each channel, and what events of it open."""

    pattern: model.Pattern
    slots: tuple[Slot, ...]
    narrow: str  # the name of the parameter with the names of nodes that are asked for open values only
    _asked: dict[str, tuple[_Asked, ...]]
    _among: dict[str, tuple[Expr, ...]]  # what rows that fit no element are asked for, where these count

    @property
    def channels(self) -> tuple[str, ...]:
        """Those of which less has to cross."""
        return tuple(name for name, asked in self._asked.items() if any(each.tests for each in asked))

    @property
    def binding(self) -> tuple[str, ...]:
        """Those whose events open values."""
        found = set().union(*(slot.binders for slot in self.slots))
        return tuple(
            c.name for c in self.pattern.channels if any(c.name in self.pattern.elements[e].channels for e in found)
        )

    def questions(self, channel: str) -> tuple[Question, ...]:
        """What is asked of the channel's events, each by itself: one of them is enough for an event to cross."""
        it = channel_of(self.pattern, channel)
        asked = [(each.tests, self.pattern.elements[each.element].condition) for each in self._asked[channel]]
        if channel in self._among:
            asked.append((self._among[channel], it.among))
        return tuple(Question(condition, tuple(map(_slot_of, tests))) for tests, condition in asked)

    # ── what sources are asked ──

    def interest(
        self, channel: str, open: Mapping[str, Iterable[Any]] | None = None, narrow: Iterable[str] = ()
    ) -> Interest | None:
        """For the channel, with these values open; None where every event may matter all the same. Nodes that are not
        in `narrow` are asked for all values."""
        return self._interest(channel, open or {}, frozenset(narrow), at_any_time=True)

    def asked(
        self,
        channel: str,
        open: Mapping[str, Iterable[Any]],
        narrow: Iterable[str],
        marking: Marking | None = None,
        limit: Callable[[str, Interest | None], Interest | None] | None = None,
    ) -> Apart | Interest | None:
        """The same as it is asked of other nodes, which have to let this one install code for that; of those that do
        not, and of this one, all that may matter is taken. With a `marking`, what fits no element comes as a mark.
        `limit` says what is left of what is wanted, where whom it is for may not see all."""
        found, here = self.interest(channel, open, narrow), source_interest(self.pattern, channel)
        if limit is not None:
            found, here = limit(channel, found), limit(channel, here)
        if marking is not None:
            return marking.asked(found, here, self.pattern)
        return None if found is None else Apart(found, here)

    def past(
        self,
        channel: str,
        opened: Mapping[str, Iterable[Any]],
        marking: Marking | None = None,
        known: Mapping[str, Iterable[Any]] | None = None,
    ) -> Interest | None:
        """What may have been missed of the channel while these values were not open yet: not what crosses at any time;
        None: nothing. `known` are those that were open beside them: an event that needs several may have missed one."""
        if not any(each.tests for each in self._asked[channel]):
            return None
        found = self._interest(channel, opened, None, at_any_time=False, known=known or {})
        asked = found if marking is None or found is None else marking.asked(found, None, self.pattern)
        return asked.there if isinstance(asked, Apart) else asked

    def _interest(
        self,
        channel: str,
        open: Mapping[str, Iterable[Any]],
        narrow: frozenset[str] | None,
        *,
        at_any_time: bool,
        known: Mapping[str, Iterable[Any]] | None = None,
    ) -> Interest | None:
        """What asks for elements that may come at any time, if those are wanted (else for none of them), and for those
        that have something open; None where one of them cannot be asked for, or every event is."""
        it, terms = channel_of(self.pattern, channel), _Terms()
        always: dict[Expr, None] = {}
        later: dict[Expr, None] = {}
        asked: list[tuple[tuple[Expr, ...], Interest | None]] = [
            (each.tests, self.pattern.elements[each.element].condition) for each in self._asked[channel]
        ]
        if channel in self._among:
            asked.append((self._among[channel], it.among))
        for tests, condition in asked:
            value = _TRUE if condition is None else terms.of(condition, it)
            tests = tests if known is None else self._missed(tests)
            if value is None or (not tests and value == _TRUE):
                return None
            (later if tests else always)[_all([*tests, *([] if value == _TRUE else [value])])] = None
        parts = [*always, *self._later(list(later), narrow)] if at_any_time else list(later)
        terms.add(ParamDecl(self.narrow, "set", TEXT), narrow or frozenset())
        for slot in self.slots:
            terms.add(slot.decl, frozenset(open.get(slot.name, ())))
            terms.add(slot.known_decl, frozenset((known or {}).get(slot.name, ())))
        value = _any(parts) if parts else _NONE
        if always and not at_any_time:
            value = Logic("and", (value, Cond(_any(list(always)), _NONE, _TRUE, _TRUE, BOOL)))
        return interest_of(value, it, *terms.read_by(value), self.pattern.limits)

    def _missed(self, tests: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Where an event needs several values: each of them is open or was so before, and one was not."""
        if len(tests) < 2:
            return tests
        names = {slot.name: slot.known for slot in self.slots}
        before = [InSet(value, param=names[name]) for name, value in map(_slot_of, tests)]
        either = [_any([test, known]) for test, known in zip(tests, before, strict=True)]
        return (*either, _any(list(tests)))

    def _later(self, tests: list[Expr], narrow: frozenset[str] | None) -> list[Expr]:
        """Any of these; at nodes that are not in `narrow` with whatever value."""
        if narrow is None or not tests:
            return tests
        slots = {slot.name for slot in self.slots}
        freed = [_all([each for each in _conjuncts(test) if not _tests(each, slots)] or [_TRUE]) for test in tests]
        free: Expr = Unary("not", InSet(Meta("node", TEXT), param=self.narrow), BOOL)
        if _TRUE not in freed:
            others = dict.fromkeys(freed)
            free = Logic("and", (free, _any(list(others))))
        return [*tests, free]


def _slot_of(test: Expr) -> tuple[str, Expr]:
    assert isinstance(test, InSet) and test.param is not None
    return test.param, test.a


class _Terms:
    """Conditions that become one, with the parameters of all."""

    def __init__(self) -> None:
        self._decls: dict[str, ParamDecl] = {}
        self._params: dict[str, Any] = {}

    def of(self, condition: Interest, channel: model.Channel) -> Expr | None:
        """What a condition asks; None if it is no expression."""
        for decl in condition.program.params:
            self.add(decl, condition.params[decl.name])
        return expression_of(condition, channel)

    def add(self, decl: ParamDecl, value: Any) -> None:
        self._decls[decl.name], self._params[decl.name] = decl, value

    def read_by(self, value: Expr) -> tuple[tuple[ParamDecl, ...], dict[str, Any]]:
        """The parameters that an expression reads, and their values."""
        names: set[str] = set()
        for expr in walk.all_expressions((Return(value),)):
            match expr:
                case Param(name=name) | InSet(param=str(name)) | Lookup(param=name):
                    names.add(name)
        used = {name: decl for name, decl in self._decls.items() if name in names}
        return tuple(used.values()), {name: self._params[name] for name in used}


class Opener:
    """What events of the binding channels open. Threads take turns."""

    def __init__(self, found: Bindings) -> None:
        self._bindings, self._types = found, {c.name: c.type for c in found.pattern.channels}
        self._readers = {channel: list(self._of(channel)) for channel in found.binding}

    def __call__(self, channel: str, record: Any, meta: EventContext) -> dict[str, Any]:
        """By slot, the value that an event opens: none unless it fits a binder by itself."""
        readers = self._readers.get(channel)
        opened: dict[str, Any] = {}
        if readers is None:
            return opened
        form = record if isinstance(record, RECORDS) else self._types[channel].encode(record)
        for conditions, reader, type in readers:
            if conditions is None or any(condition.run(form, meta).passed for condition in conditions):
                outcome = reader.run(form, meta)
                if outcome.passed:
                    made = outcome.output
                    opened.update(type.decode_raw(made) if isinstance(made, RECORDS) else made)
        return opened

    def _of(self, channel: str) -> Iterator[tuple[list[Any] | None, Any, EventType]]:
        """Conditions, of which one must hold (None: none need), what reads the values, and the type of these."""
        pattern, it = self._bindings.pattern, channel_of(self._bindings.pattern, channel)
        groups: dict[Any, list[Slot]] = {}
        for slot in self._bindings.slots:
            if channel in slot.values:
                groups.setdefault(slot.group, []).append(slot)
        for slots in groups.values():
            output = Record("Opened", tuple(Field(slot.name, slot.type) for slot in slots))
            body = tuple(SetOut(Path((slot.name,)), slot.values[channel], slot.type) for slot in slots)
            program = Program(it.type.record, output, (), (), (*body, Return(_TRUE)), "predicate")
            here = [pattern.elements[at] for at in sorted(slots[0].binders) if channel in pattern.elements[at].channels]
            if not here:
                continue
            asked = [element.condition for element in here if element.condition is not None]
            conditions = [condition.on(it.type).native() for condition in asked] if len(asked) == len(here) else None
            yield conditions, Interest.from_program(program).native(), event_type(output)


def bindings(pattern: model.Pattern) -> Bindings | None:
    """What of the pattern can be asked by open values; None where nothing can."""
    if any(channel.time is not None for channel in pattern.channels):
        return None  # all events tell the time, whatever is in them
    makers = _Slots(pattern)
    first = {at for at in range(len(pattern.elements)) if automaton(pattern).first >> at & 1}
    key = makers.of_key(frozenset(first))
    rows = counts_rows(pattern)
    before = surely_before(pattern)
    asked: dict[str, tuple[_Asked, ...]] = {}
    among: dict[str, tuple[Expr, ...]] = {}
    for channel in pattern.channels:
        here = []
        for at, element in enumerate(pattern.elements):
            if channel.name not in element.channels:
                continue
            tests: list[Expr] = []
            if at not in first:
                tests = [slot.test(slot.values[channel.name]) for slot in key]
                tests += [] if rows else makers.of_variables(at, before.get(at, frozenset()), channel)
            here.append(_Asked(at, tuple(dict.fromkeys(tests))))
        asked[channel.name] = tuple(here)
        if rows and (channel.all or channel.among is not None):
            among[channel.name] = tuple(slot.test(slot.values[channel.name]) for slot in key)
    if not makers.slots or not any(each.tests for found in asked.values() for each in found):
        return None
    return Bindings(pattern, tuple(makers.slots), makers.free("narrow"), asked, among)


class _Slots:
    """Makes the slots of a pattern, each once."""

    def __init__(self, pattern: model.Pattern) -> None:
        self.pattern, self.slots = pattern, list[Slot]()
        self._known: dict[Any, Slot] = {}

    def free(self, name: str) -> str:
        """A name that no parameter of the pattern has."""
        while name in self.pattern.params:
            name += "_"
        return name

    def _make(self, mark: Any, type: Type, binders: frozenset[int], values: Mapping[str, Expr], what: str) -> Slot:
        if mark not in self._known:
            number = len(self.slots) + 1
            names = self.free(f"open_{number}"), self.free(f"known_{number}")
            made = Slot(names[0], type, binders, values, what, mark[0], names[1])
            self.slots.append(made)
            self._known[mark] = made
        return self._known[mark]

    def of_key(self, first: frozenset[int]) -> list[Slot]:
        """One for each part of the key whose values a set can have."""
        if self.pattern.key is None:
            return []
        found = []
        for part in self.pattern.key.record.fields:
            values = {channel.name: _part(channel, part.name) for channel in self.pattern.channels}
            known = {name: value for name, value in values.items() if value is not None}
            if len(known) == len(values) and all(value.type in _TYPES for value in known.values()):
                type = next(iter(known.values())).type
                found.append(self._make(("key", part.name), type, first, known, f"{part.name} of the key"))
        return found

    def of_variables(self, element: int, before: frozenset[int], channel: model.Channel) -> list[Expr]:
        """What an element's event must have open, since the same value was in one that comes before it."""
        tests: list[Expr] = []
        for variable in self.pattern.variables:
            fields = dict(variable.fields)
            sure = sorted(before & fields.keys())
            if variable.key or element not in fields or not sure or variable.type not in _TYPES:
                continue
            tests.append(self._equal(sure[0], fields[sure[0]], fields[element], channel, f"variable {variable.name}"))
        for condition in self.pattern.conditions:
            found = _equality(self.pattern, condition, element)
            if found is not None and found[0] in before and not self.pattern.elements[found[0]].multiple:
                binder, theirs, mine = found
                tests.append(
                    self._equal(binder, theirs, mine, channel, f"{self.pattern.elements[binder].name}.{theirs}")
                )
        return tests

    def _equal(self, binder: int, theirs: str, mine: str, channel: model.Channel, what: str) -> Expr:
        element = self.pattern.elements[binder]
        values = {c.name: _load(c, theirs) for c in self.pattern.channels if c.name in element.channels}
        type = next(iter(values.values())).type
        slot = self._make((f"{binder} {theirs}",), type, frozenset({binder}), values, what)
        return slot.test(_load(channel, mine))


def _equality(pattern: model.Pattern, condition: model.Condition, element: int) -> tuple[int, str, str] | None:
    """Of a condition that is `own = other.field`: the other element, its field and the own one."""
    body = condition.interest.program.body
    if condition.elements != (element,) or len(body) != 1 or not isinstance(body[0], Return):
        return None
    value = body[0].value
    if not isinstance(value, Compare) or value.op != "eq":
        return None
    sides = [side.path.steps for side in (value.a, value.b) if isinstance(side, Load) and len(side.path.steps) == 2]
    if len(sides) != 2 or value.a.type != value.b.type or value.a.type not in _TYPES:
        return None
    names = {each.name: at for at, each in enumerate(pattern.elements)}
    me = pattern.elements[element].name
    for mine, other in (sides, sides[::-1]):
        if mine[0] == me and other[0] != me and other[0] in names:
            theirs, own = str(other[1]), str(mine[1])
            if _alike(pattern, names[str(other[0])], theirs, value.a.type) and _alike(
                pattern, element, own, value.a.type
            ):
                return names[str(other[0])], theirs, own
    return None


def _alike(pattern: model.Pattern, element: int, name: str, type: Type) -> bool:
    found = pattern.elements[element].type.record.by_name.get(name)
    return found is not None and promote(found.type) == type


def _load(channel: model.Channel, name: str) -> Load:
    found = channel.type.record.by_name[name]
    return Load(Path((name,)), found.type, promote(found.type))


def _part(channel: model.Channel, name: str) -> Expr | None:
    """What makes a part of a channel's key."""
    if channel.key is None:
        return None
    for stmt in channel.key.program.body:
        if isinstance(stmt, SetOut) and stmt.path.steps == (name,):
            return None if channel.key.program.params else stmt.value
    return None


# ── what comes before what ──


def surely_before(pattern: model.Pattern) -> dict[int, frozenset[int]]:
    """By element: those of which each occurrence has taken one before it, or before what it forbids."""
    found: dict[int, frozenset[int]] = {}

    def note(elements: Iterable[int], prior: frozenset[int]) -> None:
        for element in elements:
            found[element] = found[element] & prior if element in found else prior

    def visit(node: Node, prior: frozenset[int]) -> None:
        match node:
            case Leaf(element=element):
                note([element], prior)
            case Sequence(parts=parts, steps=steps):
                for at, part in enumerate(parts):
                    visit(part, prior)
                    prior = prior | sure(part)
                    if at < len(steps):
                        note(steps[at].forbidden, prior)
            case Repeat(part=part, step=step):
                note(step.forbidden, prior | sure(part))
                visit(part, prior)
            case Either(parts=parts):
                for part in parts:
                    visit(part, prior)
            case Both(parts=parts, step=step):
                note(step.forbidden, prior)
                for part in parts:
                    visit(part, prior)

    def sure(node: Node) -> frozenset[int]:
        everyone = {leaf.element for leaf in model.leaves(node)}
        return frozenset(element for element in everyone if structure.times(node, element, least=True) >= 1)

    visit(pattern.root, frozenset())
    note(pattern.absent, sure(pattern.root))
    return found


# ── expressions ──


def _all(tests: list[Expr]) -> Expr:
    return tests[0] if len(tests) == 1 else Logic("and", tuple(tests))


def _any(tests: list[Expr]) -> Expr:
    return tests[0] if len(tests) == 1 else Logic("or", tuple(tests))


def _conjuncts(expr: Expr) -> tuple[Expr, ...]:
    return expr.args if isinstance(expr, Logic) and expr.op == "and" else (expr,)


def _tests(expr: Expr, slots: set[str]) -> bool:
    return isinstance(expr, InSet) and expr.param in slots


__all__ = ["Bindings", "Opener", "Question", "Slot", "bindings", "surely_before"]
