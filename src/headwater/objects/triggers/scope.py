"""What the texts of a trigger can read: one record with a member for each name, made from the types of its objects.

Which types these are is asked of `Types`: the owner of the objects meets it. A problem is told with the text it is in,
its place there and what was expected; all of them at once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import InterestError, ObjectError, ParameterError, Problem
from headwater.interest import parse
from headwater.ir import walk
from headwater.ir.build import Builder
from headwater.ir.nodes import CopyOut, Expr, Load, Logic, ParamDecl, Path, Program, Return, SetOut, Span, Stmt
from headwater.ir.notes import is_bad, locate
from headwater.objects.names import object_name
from headwater.objects.object_types import unpacked
from headwater.objects.triggers import definition, history
from headwater.objects.triggers.definition import NAME, OBJECT, Input, Trigger
from headwater.objects.triggers.distributed import VALUES
from headwater.objects.triggers.events import Listened
from headwater.objects.triggers.history import Over
from headwater.spelling import did_you_mean
from headwater.types import EventType, event_type
from headwater.types.model import BOOL, TEXT, TIMESTAMP, U64, Array, Field, List, Record, Scalar, Type, promote

if TYPE_CHECKING:
    from headwater.objects.methods import Method

HAPPENING = Record("Event", (Field("object", TEXT), Field("op", TEXT), Field("time", TIMESTAMP), Field("turn", U64)))
TICK = event_type(Record("Tick", (Field("time", TIMESTAMP), Field("count", U64))))
_PARAM = re.compile(r":([A-Za-z_]\w*)")
_STRING = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
# Names in a text: not what follows a dot or colon, nor what is called.
_NAMES = re.compile(r"(?<![\w.:])([^\W\d]\w*(?:\s*\.\s*[^\W\d]\w*)*)(?!\w|\s*\()")


class Types(Protocol):
    """Who knows the types of objects and channels."""

    def type_of(self, object: str) -> EventType | None:
        """Of the object at this path of the node; None if there is none."""
        ...

    def type_named(self, name: str) -> EventType | None:
        """A declared type of objects."""
        ...

    def channel_type(self, name: str) -> EventType | None:
        """Of a channel of the node."""
        ...

    def method(self, type: str, name: str) -> Method | None:
        """A registered method of a declared type."""
        ...

    def result(self, type: str, name: str) -> EventType | None:
        """What a method that is registered, or was, returns: as `value`."""
        ...


class TriggerProblem(InterestError):
    """A trigger is faulty; `problems` lists every place at once."""

    def __init__(self, name: str, problems: list[Problem]) -> None:
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
        super().__init__(problems, f"{count} in trigger {name!r}")


@dataclass
class Scope:
    """The record of a trigger, the types behind it, and what was found wrong so far."""

    trigger: Trigger
    node: str
    subjects: dict[Listened, EventType] = field(default_factory=dict)
    subject: EventType | None = None  # if all that is listened to is of one type
    inputs: dict[str, EventType] = field(default_factory=dict)  # types of the objects that inputs are of
    results: dict[str, EventType] = field(default_factory=dict)  # of methods, by input
    record: Record = field(default_factory=lambda: Record("Trigger", ()))
    params: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    used: set[str] = field(default_factory=set)  # parameters

    def problem(self, place: str, text: str, message: str, **more: str | None) -> None:
        self.problems.append(locate(text, Span(0, len(text)), f"{place}: {message}", **more))

    @property
    def pair(self) -> Record:
        """What histories read: the object before and after."""
        return Record("Pair", tuple(f for f in self.record.fields if f.name in ("old", "new")))

    # ── texts ──

    def condition(self, place: str, text: str, record: Record | None = None) -> Program | None:
        """The program of a condition; None, with its problems noted, if it has any."""
        return self._read(place, text, record or self.record, Builder)

    def value(self, place: str, text: str, record: Record | None = None) -> tuple[Expr, tuple[ParamDecl, ...]] | None:
        """An expression, as its value, and the parameters that it reads."""
        program = self._read(place, text, record or self.record, _ValueBuilder)
        only = program.body[0] if program is not None and len(program.body) == 1 else None
        return (only.value, program.params) if isinstance(only, SetOut) and program is not None else None

    def _read(self, place: str, text: str, record: Record, builder: type[Builder]) -> Program | None:
        mentioned = params_in(text)
        self.used |= mentioned
        given = {name: value for name, value in self.params.items() if name in mentioned}
        try:
            if all(isinstance(value, _SCALARS) for value in given.values()):
                like = tuple((name, type(value), value < 0, value >> 63 != 0) if type(value) is int else
                             (name, type(value), False, False) for name, value in given.items())  # fmt: skip
                made: Any = builder
                return _parsed(text, record, made, like, _Unhashed(given))
            return parse(text, record, params=given, notation="predicate", builder=builder)[0]
        except InterestError as error:
            self.problems += [replace(each, message=f"{place}: {each.message}") for each in error.problems]
        except ParameterError as error:
            self.problem(place, text, str(error))
        return None

    def check_params(self) -> None:
        """Every parameter that is given is read by something."""
        for name in self.params:
            if name not in self.used:
                hint = did_you_mean(name, sorted(self.used)) or f"they read {', '.join(sorted(self.used)) or 'none'}"
                self.problem("params", name, f"no text of this trigger reads :{name}", hint=hint)

    def finish(self) -> None:
        """Raise what was found wrong."""
        if self.problems:
            raise TriggerProblem(self.trigger.name, self.problems)


_SCALARS = (bool, int, float, str, bytes)


class _Unhashed(dict[str, Any]):
    """Values that a parsed text does not depend on, only on what they are like."""

    def __hash__(self) -> int:  # type: ignore[override]
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unhashed)


@lru_cache(maxsize=4096)
def _parsed(text: str, record: Record, builder: Any, like: object, given: _Unhashed) -> Program:
    """Many triggers have one text, each with values of its own."""
    return parse(text, record, params=given, notation="predicate", builder=builder)[0]


class _ValueBuilder(Builder):
    """A result that is kept as it is: no verdict, and not only numbers."""

    def return_(self, value: Expr, span: Span) -> list[Stmt]:
        if is_bad(value):
            return []
        stored = value.stored if isinstance(value, Load) else value.type
        return [SetOut(Path(("value",)), value, stored, span)]


# ── making it ──


def scope_of(trigger: Trigger, types: Types, node: str) -> Scope:
    """The scope of a trigger at a node; what is wrong is in its problems."""
    made = Scope(trigger, node, params=definition.given(trigger))
    for each in trigger.on:
        found = _listened(made, each, types)
        if found is not None:
            made.subjects[each] = found
    kinds = set(made.subjects.values())
    made.subject = kinds.pop() if len(kinds) == 1 else None
    fields = [Field("event", HAPPENING)]
    if made.subject is not None:
        fields += [Field(name, made.subject.record, optional=True) for name in ("old", "new", "last")]
    inputs: list[Field] = []
    results: list[Field] = []
    if trigger.distributed is not None:
        fields += _decided(made)
    for name, given in trigger.inputs.items() if trigger.distributed is None else ():
        stored = _input(made, name, given, types)
        if stored is not None and given.method:
            stored = _result(made, name, given, types)
        if stored is not None:
            (results if given.method else inputs).append(Field(name, stored, optional=True))
    fields += inputs
    if inputs:
        fields.append(Field("previous", Record("Previous", tuple(inputs))))
    made.record = Record("Trigger", tuple(fields))
    made.record = Record("Trigger", (*fields, *_histories(made), *results))
    return made


def _listened(scope: Scope, each: Listened, types: Types) -> EventType | None:
    """The type of what a trigger listens to."""
    text, named = str(each), scope.trigger.type
    if each.kind == "every":
        return TICK
    if each.kind == "decided" and scope.trigger.distributed is not None:
        return unpacked(scope.trigger.distributed.decided)
    if each.kind == "channel":
        found = types.channel_type(each.name)
        if found is None:
            scope.problem("on", text, f"there is no channel {each.name!r}", hint="make it before the trigger")
        return found
    if not each.name.startswith(f"//{scope.node}/"):
        scope.problem("on", text, "this object is of another node", expected=f"//{scope.node}/…", found=each.name)
        return None
    declared = types.type_named(named) if named else None
    if named and declared is None:
        scope.problem("type", named, f"there is no type {named!r} of objects", hint="declare it before the trigger")
        return None
    there = None if each.is_pattern else types.type_of(object_name(each.name).object)
    if there is not None and declared is not None and there != declared:
        scope.problem("on", text, "the object is of another type", expected=named, found=there.name)
    found = declared or there
    if found is None:
        hint = "say type=: that of the objects meant" if each.is_pattern else "create it before, or say type="
        scope.problem("on", text, "the type of this object is not known", hint=hint)
    elif each.member and _member(found.record, each.member) is None:
        fields = ", ".join(found.record.by_name)
        scope.problem("on", text, f"{found.name} has no member {each.member!r}", hint=f"its fields are: {fields}")
    return found


def _decided(scope: Scope) -> list[Field]:
    """Inputs of several nodes, as far as a firing tells of them. What the condition has read of parameters is read."""
    spread = scope.trigger.distributed
    assert spread is not None
    scope.used |= params_in(spread.where)
    told = unpacked(spread.decided).record.by_name.get(VALUES)
    if told is None or not isinstance(told.type, Record):
        return []
    return [Field(each.name, each.type, optional=True) for each in told.type.fields]


def _input(scope: Scope, name: str, given: Input, types: Types) -> Type | None:
    """The type of an input."""
    plain = given.name.replace(OBJECT, f"//{scope.node}/x").replace(NAME, "x")
    try:
        found = object_name(plain, scope.node)
    except ObjectError as error:
        scope.problem("inputs", given.name, f"{name}: {error}")
        return None
    if found.node != scope.node:
        scope.problem("inputs", given.name, f"{name}: this object is of another node", expected=f"//{scope.node}/…")
        return None
    type = types.type_named(given.type) if given.type else None
    if type is None and plain == given.name:
        type = types.type_of(found.object)
    if type is None and found.object == "x" and given.name.startswith(OBJECT):
        type = scope.subject
    if type is None:
        hint = "create it before, or give its type: (name, type)"
        scope.problem("inputs", given.name, f"{name}: the type of this object is not known", hint=hint)
        return None
    if given.method and found.member:
        scope.problem("inputs", given.name, f"{name}: methods are of objects, and this is a member of one")
        return None
    stored: Type | None = _member(type.record, found.member) if found.member else type.record
    if stored is None:
        hint = f"its fields are: {', '.join(type.record.by_name)}"
        scope.problem("inputs", given.name, f"{name}: {type.name} has no member {found.member!r}", hint=hint)
    scope.inputs[name] = type
    return stored


def _result(scope: Scope, name: str, given: Input, types: Types) -> Type | None:
    """The type of what a method returns."""
    method, place = types.method(given.type, given.method), f"{name}: method {given.method!r} of {given.type}"
    gives = types.result(given.type, given.method)
    if method is not None and method.gives is None:
        does = "returns the object's new value" if method.changes else "returns nothing"
        hint = "give it a return annotation of another type"
        scope.problem("inputs", given.method, f"{place} {does}", expected="a result", hint=hint)
        return None
    if gives is None:
        hint = "register it before the trigger"
        scope.problem("inputs", given.method, f"{place} is not known", hint=hint)
        return None
    if method is not None:
        known = method.takes.record.by_name if method.takes is not None else {}
        for each in (*given.value, *given.computed):
            if each not in known:
                hint = did_you_mean(each, sorted(known)) or f"it takes {', '.join(known) or 'none'}"
                scope.problem("inputs", each, f"{place} has no such argument", hint=hint)
        if not given.computed and given.value.keys() <= known.keys():
            try:
                method.arguments(given.value)
            except ObjectError as error:
                scope.problem("inputs", given.method, f"{place}: {error}")
    scope.results[name] = gives
    return gives.record.fields[0].type


def _member(record: Record, path: str) -> Type | None:
    here: Type = record
    for step in path.split("."):
        inner = here.by_name.get(step) if isinstance(here, Record) else None
        if inner is None:
            return None
        here = inner.type
    return here


def _histories(scope: Scope) -> Iterator[Field]:
    """A member for each history: what can be read of it."""
    for name, each in scope.trigger.history.items():
        text = each.of if isinstance(each, Over) else each.where
        if scope.subject is None:
            hint = "a history is of objects of one type"
            scope.problem(f"history: {name}", text, "what is listened to is of several types", hint=hint)
            continue
        stored: Type = BOOL
        if isinstance(each, Over):
            value = scope.value(f"history: {name}", text, scope.pair)
            if value is None:
                continue
            stored = value[0].type
            if not isinstance(stored, Scalar) or not stored.is_number:
                found = str(stored)
                scope.problem(f"history: {name}", text, "this is no number", expected="a number", found=found)
                continue
        elif scope.condition(f"history: {name}", text, scope.pair) is None:
            continue
        yield Field(name, history.members(each, stored))


# ── programs ──


def conjuncts(program: Program) -> list[Expr] | None:
    """What is asked, taken apart at its `and`s; None where it is more than one expression."""
    if len(program.body) != 1 or not isinstance(program.body[0], Return) or program.variables:
        return None
    return _apart(program.body[0].value)


def _apart(expr: Expr) -> list[Expr]:
    if isinstance(expr, Logic) and expr.op == "and":
        return [each for arg in expr.args for each in _apart(arg)]
    return [expr]


def roots(exprs: Collection[Expr]) -> set[str]:
    """The members of the scope that expressions read."""
    found = set()
    for expr in exprs:
        for each in walk.expressions(expr):
            path = getattr(each, "path", None)
            if isinstance(path, Path):
                found.add(str(path.steps[0]))
    return found


def setting(name: str, value: Expr) -> tuple[Stmt, Type]:
    """The statement that gives a field of an output this value, and the field's type."""
    path = Path((name,))
    if isinstance(value, Load) and isinstance(value.stored, Array | List | Record):
        return CopyOut(path, value.path, value.stored), value.stored
    stored = value.stored if isinstance(value, Load) else value.type
    if promote(stored) != value.type:
        stored = value.type
    return SetOut(path, value, stored), stored


def params_in(text: str) -> set[str]:
    """The parameters that a text reads."""
    return set(_PARAM.findall(_STRING.sub("", text)))


def names_in(text: str) -> list[tuple[int, int, str]]:
    """Where names stand in a text, dotted ones as a whole; not those of functions, in quotes, or of parameters."""
    blank = _STRING.sub(lambda found: " " * len(found.group()), text)
    return [(found.start(1), found.end(1), re.sub(r"\s", "", found.group(1))) for found in _NAMES.finditer(blank)]


__all__ = [
    "HAPPENING",
    "TICK",
    "Scope",
    "TriggerProblem",
    "Types",
    "conjuncts",
    "names_in",
    "params_in",
    "roots",
    "scope_of",
    "setting",
]
