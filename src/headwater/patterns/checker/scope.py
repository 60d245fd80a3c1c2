"""What names mean in a pattern's conditions: fields of the event at hand, variables, and elements taken before.

    level > 3             of the event that the condition stands at; input.level says the same
    level > a.level       of the last event that element a took
    b.prev.level          of the event that b took before its last; b.first.level, b.last.level; prev(b.level) as well
    count(b) > 2          events that b took; sum, min, max, mean, first, last and prev take a field: sum(b.level)
    a.meta.time           what the service knows of a's last event; meta.time of the event at hand

A condition is built as an interest over a record with a member for each `View`. This file resolves names and makes that
record; when a condition is asked, and of what, is the checker's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from headwater.ir import walk
from headwater.ir.build import Builder
from headwater.ir.nodes import META_TYPES, Call, Expr, IsMissing, Load, Meta, Missing, Path, Reduce, Span
from headwater.ir.notes import BAD, is_bad
from headwater.patterns.model import KINDS, View
from headwater.types.model import BOOL, F64, I64, U64, Array, Field, List, Record, Type, promote

FUNCTIONS = frozenset({"count", "first", "last", "prev"})  # beyond the library's
AGGREGATES = frozenset({"count", "values", "sum", "min", "max", "mean"})
_EVENTS = ("first", "prev")  # views that are an event
_NUMBERS = (I64, U64, F64)
_META = Record("meta", tuple(Field(name, type, optional=True) for name, type in META_TYPES.items()))


@dataclass(frozen=True)
class Named:
    """An element or subset as conditions see it. `refused` is why it may not be named here, and what to do."""

    record: Record
    multiple: bool = False
    loose: bool = False  # any subset of events may be taken: what sums them up has no bound
    refused: tuple[str, str] | None = None
    unknown: bool = False  # its type: whatever is asked of it, nothing is said


@dataclass
class Scope:
    """The names of one condition. `me` is the element that it stands at; there is none for measures."""

    names: Mapping[str, Named]
    me: str | None = None
    variables: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)  # element and field, each
    bounded: bool = True  # whether what sums up must have a bound: measures are made when a match is complete

    @property
    def own(self) -> Record | None:
        return self.names[self.me].record if self.me is not None else None


class ScopedBuilder(Builder):
    """A condition under construction; `scope` is set by a class made for it."""

    functions: ClassVar[frozenset[str]] = FUNCTIONS
    scope: Scope

    # ── names ──

    def argument(self, name: str, span: Span) -> Expr | None:
        """Of a Python function: elements, by their names."""
        if name in self.scope.names:
            return self._element(name, span)
        hint = self.suggest(name, self.scope.names, "there are")
        more = f"a parameter comes after a bare *: lambda e, *, {name}=…"
        return self.problem(span, f"no element {name!r}", hint=f"{hint}; {more}" if hint else more)

    def field(self, name: str, span: Span) -> Expr:
        """What a bare name means: a field of the own event, a variable, or an element. A name with several meanings is
        a problem, not a choice: `input.` in front says that the field is meant."""
        own = self.scope.own
        of_own = own is not None and name in own.by_name
        meanings = [
            *(["a field"] if of_own else []),
            *(["an element"] if name in self.scope.names else []),
            *(["a variable"] if name in self.scope.variables and not self._binds_itself(name) else []),
        ]
        if len(meanings) > 1 and self.text[max(0, span.start - 6) : span.start] != "input.":
            hint = f"rename the {meanings[-1].split()[-1]}" + (f", or write input.{name} for the field" * of_own)
            return self.problem(span, f"{name!r} is {' and '.join(meanings)}", expected="one meaning", hint=hint)
        if of_own:
            return self.own_field(name, span)
        if name in self.scope.variables:
            return self._variable(name, span)
        if name in self.scope.names:
            return self._element(name, span)
        known = [*(own.by_name if own is not None else ()), *self.scope.names, *self.scope.variables]
        what = f"{own.name} has no field {name!r}, and no element or variable" if own else f"no element {name!r}"
        near = self.suggest(name, known, "there are")
        return self.problem(span, f"{what}{' is called so' if own else ''}", hint=near, about=name)

    def _binds_itself(self, name: str) -> bool:
        """Whether a variable is simply called as the field that this element binds it to."""
        return (self.scope.me, name) in self.scope.variables[name]

    def own_field(self, name: str, span: Span) -> Expr:
        own = self.scope.own
        assert self.scope.me is not None and own is not None
        found = own.by_name[name]
        return self.keep(Load(Path((self.scope.me, name)), found.type, promote(found.type), span))

    def _variable(self, name: str, span: Span) -> Expr:
        """Its value in this event, or in one that was taken before."""
        places = self.scope.variables[name]
        own = [at for element, at in places if element == self.scope.me]
        if own:
            return self.own_field(own[0], span)
        before = [(e, at) for e, at in places if e in self.scope.names and self.scope.names[e].refused is None]
        if not before:
            hint = "use it where it is bound, or later"
            return self.problem(span, f"the variable {name!r} has no value here", hint=hint)
        values = [self.attribute(self._element(element, span), at, span) for element, at in before]
        return values[0] if len(values) == 1 else self.call("coalesce", values, span)

    def _element(self, name: str, span: Span) -> Expr:
        named = self.scope.names[name]
        if named.refused is not None:
            message, hint = named.refused
            return self.problem(span, message, hint=hint)
        if named.unknown:
            return Missing(BAD, span)
        return self.keep(Load(Path((name,)), named.record, named.record, span))

    def attribute(self, base: Expr, name: str, span: Span) -> Expr:
        if is_bad(base):
            return base
        element = self._whole(base)
        if element is None or name in self.scope.names[element].record.by_name:
            return super().attribute(base, name, span)
        if name == "last":
            return base
        if name in _EVENTS:
            return self._event(element, name, span)
        if name == "meta":
            return self.keep(Load(Path((f"{element}.meta",)), _META, _META, span))
        return super().attribute(base, name, span)

    def _whole(self, expr: Expr) -> str | None:
        """The element whose last event this is."""
        if isinstance(expr, Load) and len(expr.path.steps) == 1 and expr.path.steps[0] in self.scope.names:
            return str(expr.path.steps[0])
        return None

    def _event(self, element: str, kind: str, span: Span) -> Expr:
        named = self.scope.names[element]
        if kind == "prev" and not named.multiple:
            hint = f"it takes one event: name its fields, e.g. {element}.{next(iter(self._fields(element)), 'level')}"
            expected = "an element that is repeated"
            return self.problem(span, f"prev of {element!r}", expected=expected, found="one event", hint=hint)
        return self.keep(Load(Path((f"{element}.{kind}",)), named.record, named.record, span))

    def _fields(self, element: str) -> Collection[str]:
        return self.scope.names[element].record.by_name

    # ── functions ──

    def call(self, name: str, args: Any, span: Span) -> Expr:
        args = list(args)
        if any(map(is_bad, args)):
            return Missing(BAD, span)
        over = self._summed(args[0]) if len(args) == 1 else None
        if name in FUNCTIONS and over is None:
            expected = f"{name}(b)" if name == "count" else f"{name}(b.level), with a field of an element"
            return self.problem(span, f"{name}() takes an element", expected=expected)
        if over is None and name in AGGREGATES and len(args) == 1 and self._reads_an_element(args[0]):
            hint = "only fields are added up and compared so: give the event one that has this value"
            return self.problem(span, f"{name}() of an expression", expected="one field, e.g. b.level", hint=hint)
        if over is None or name not in AGGREGATES | FUNCTIONS:
            return super().call(name, args, span)
        element, load = over
        if name in ("first", "last", "prev"):
            return self._event_field(name, element, load, span)
        if isinstance(load.stored, Array | List):
            return super().call(name, args, span)
        return self._aggregate(name, element, load, span)

    def _reads_an_element(self, arg: Expr) -> bool:
        return any(isinstance(e, Load) and self._summed(e) is not None for e in walk.expressions(arg))

    def _summed(self, arg: Expr) -> tuple[str, Load] | None:
        """An element, or a field of its last event."""
        if isinstance(arg, Load) and arg.path.steps and arg.path.steps[0] in self.scope.names:
            return str(arg.path.steps[0]), arg
        return None

    def _event_field(self, kind: str, element: str, load: Load, span: Span) -> Expr:
        if len(load.path.steps) == 1:
            return self.problem(
                span,
                f"{kind}() of the whole event",
                expected=f"one of its fields, e.g. {kind}({element}.{next(iter(self._fields(element)), 'level')})",
            )
        if kind == "last":
            return replace(load, span=span)
        whole = self._event(element, kind, span)
        if is_bad(whole):
            return whole
        return self.keep(Load(Path((f"{element}.{kind}", *load.path.steps[1:])), load.stored, load.type, span))

    def _aggregate(self, name: str, element: str, load: Load, span: Span) -> Expr:
        named = self.scope.names[element]
        if named.loose and self.scope.bounded:
            hint = "select its rounds with next or strict, or ask for a number of rounds: {3,}"
            message = f"{name}() of {element!r} cannot be bounded: any of the events that fit may be left out"
            return self.problem(span, message, hint=hint)
        steps = load.path.steps
        if len(steps) == 1:
            if name != "count":
                first = next(iter(self._fields(element)), "level")
                return self.problem(span, f"{name}() of whole events", expected=f"a field, e.g. {element}.{first}")
            return self.keep(Load(Path((f"{element}.count",)), I64, I64, span))
        if len(steps) != 2 or not isinstance(steps[1], str):
            return self.problem(span, f"{name}() of a part of a field", expected="a field of the event itself")
        kind = "values" if name == "count" else name
        if kind != "values" and load.type not in _NUMBERS:
            return self.problem(span, f"{name}()", expected="a number", found=self.kind(load))
        type = summary(kind, load.stored)
        return self.keep(Load(Path((f"{element}.{kind}", steps[1])), type, type, span))


def summary(kind: str, stored: Type) -> Type:
    """The type of a field of an aggregate view."""
    return I64 if kind == "values" else F64 if kind == "mean" else promote(stored)


# ── records of what is read ──


def view_of(member: str) -> View:
    """The view that a member of a condition's record stands for."""
    name, dot, kind = member.rpartition(".")
    return View(name, kind) if dot and kind in KINDS else View(member)


def record_for(paths: Mapping[str, Collection[str]], names: Mapping[str, Record]) -> tuple[Record, tuple[View, ...]]:
    """The record of a condition that reads these fields of these members, and what its members mean."""
    views = sorted(map(view_of, paths), key=lambda view: (list(names).index(view.name), KINDS.index(view.kind)))
    members = tuple(member_field(view, paths[view.member], names[view.name]) for view in views)
    return Record("Elements", members), tuple(views)


def member_field(view: View, fields: Collection[str], record: Record) -> Field:
    """A member that holds these fields of an element's type; of a whole event, at least one."""
    if view.kind == "count":
        return Field(view.member, I64)
    if view.kind == "meta":
        inner: tuple[Field, ...] = tuple(f for f in _META.fields if f.name in fields) or _META.fields[:1]
        return Field(view.member, Record(view.member, inner), optional=True)
    found = [f for f in record.fields if f.name in fields] or list(record.fields[:1])
    if view.kind in AGGREGATES:
        optional = view.kind != "values"
        inner = tuple(Field(f.name, summary(view.kind, f.type), optional=optional) for f in found)
        return Field(view.member, Record(view.member, inner))
    return Field(view.member, Record(view.member, tuple(found)), optional=True)


def paths_of(nodes: Collection[Expr]) -> dict[str, set[str]]:
    """By member, the fields that are read of it."""
    found: dict[str, set[str]] = {}
    for node in nodes:
        for expr in walk.expressions(node):
            path = getattr(expr, "path", None)
            if isinstance(path, Path) and path.steps:
                fields = found.setdefault(str(path.steps[0]), set())
                if len(path.steps) > 1 and isinstance(path.steps[1], str):
                    fields.add(path.steps[1])
    return found


def onto(expr: Expr, record: Record) -> Expr:
    """The same over a record that has less: what is read whole is of another type there."""

    def change(node: Expr) -> Expr:
        if isinstance(node, Load) and len(node.path.steps) == 1:
            stored = record.by_name[str(node.path.steps[0])].type
            return replace(node, stored=stored, type=promote(stored))
        return node

    return walk.rebuild(expr, change)


def own_meta(expr: Expr, me: str) -> Expr:
    """What the service knows of the event at hand, as a member of the elements' record."""

    def change(node: Expr) -> Expr:
        if isinstance(node, Meta):
            return Load(Path((f"{me}.meta", node.name)), node.type, node.type, node.span)
        return node

    return walk.rebuild(expr, change)


def without_first(expr: Expr) -> Expr:
    """A condition on the event at hand alone, over its own type."""

    def change(node: Expr) -> Expr:
        if isinstance(node, Load | Reduce):
            return replace(node, path=Path(node.path.steps[1:]))
        return node

    return walk.rebuild(expr, change)


def from_second_round(expr: Expr, me: str, span: Span) -> Expr:
    """A condition that reads the previous event says nothing of a repetition's first one: where it is missing because
    there is none before, it holds."""
    none = IsMissing(Load(Path((f"{me}.prev",)), BAD, BAD, span), span)  # its type is that of the record, later
    return Call("coalesce", (expr, none), BOOL, span)
