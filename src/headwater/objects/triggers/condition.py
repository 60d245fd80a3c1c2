"""A trigger's condition as it runs: what is asked of the change alone, and the rest.

The condition is taken apart at its `and`s. What reads nothing but the change {object, op, old, new} and parameters is
an entry of the matcher of that type of objects, together with which objects and happenings are meant: among a hundred
thousand triggers an index finds those that a change concerns. What reads anything else is asked of those only, over a
record made for it. A condition holds if all its parts are true; missing is not true, here as there.

Triggers that differ in parameters, and in which object they are about, share all programs: only values are bound anew.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from headwater.interest import Interest
from headwater.ir import params as parameters
from headwater.ir import walk
from headwater.ir.nodes import (
    NOWHERE,
    Call,
    Compare,
    Const,
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
    Stmt,
)
from headwater.objects.triggers.events import Listened, operations, pattern_of
from headwater.objects.triggers.scope import Scope, conjuncts, roots, setting
from headwater.types import EventType, event_type
from headwater.types.model import BOOL, TEXT, Field, Record

if TYPE_CHECKING:
    from headwater.native.program import Native

OF_CHANGE = frozenset(("old", "new"))  # members of the scope that the matcher's record has as well
_WHOSE = "_object"  # the parameter that says which object is meant
_TRUE = Return(Const(True, BOOL))
WARM = 64  # records, after which the rest of a condition is worth machine code


@lru_cache(maxsize=1024)
def change_type(subject: EventType) -> EventType:
    """The record that the matcher of a type of objects looks at."""
    record = subject.record
    fields = (Field("object", TEXT), Field("op", TEXT), Field("old", record, True), Field("new", record, True))
    return event_type(Record("Change", fields))


@dataclass(frozen=True)
class Entry:
    """For the matcher of a type: what is listened to, and what is asked of the change."""

    listened: Listened
    subject: EventType
    interest: Interest


@dataclass
class Asked:
    """A program over some members of the scope: a filter, or a transformation."""

    interest: Interest
    members: tuple[str, ...]

    @cached_property
    def native(self) -> Native:
        return self.interest.native(after=WARM)

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """The record of what it reads."""
        return self.interest.type.encode({name: values[name] for name in self.members})

    def holds(self, values: Mapping[str, Any]) -> bool:
        return self.native.test(self.encode(values))

    def output(self, values: Mapping[str, Any]) -> bytes | None:
        """Of a transformation: the record that it makes."""
        return self.native.run(self.encode(values)).output


@dataclass
class Condition:
    """All of a condition. `apart`: it is one of its own for each object, not for the trigger as a whole."""

    entries: tuple[Entry, ...]
    rest: Asked | None  # what reads no results of methods
    called: Asked | None  # what does: it is asked last, since methods are called for it
    apart: bool
    indexed: int  # parts that the matcher decides
    parts: int

    @property
    def reads(self) -> frozenset[str]:
        """Members of the scope that the rest reads."""
        return frozenset(each for asked in (self.rest, self.called) if asked is not None for each in asked.members)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether what the matcher has not decided is true."""
        return (self.rest is None or self.rest.holds(values)) and (self.called is None or self.called.holds(values))


def condition_of(scope: Scope) -> Condition | None:
    """The condition of a trigger; None, with problems noted in the scope, if it has any."""
    text = scope.trigger.where.strip()
    asked: list[Expr] = []
    program: Program | None = None
    if text:
        program = scope.condition("where", text)
        if program is None:
            return None
        asked = conjuncts(program) or []
    if len(scope.subjects) < len(scope.trigger.on):
        return None
    decls = program.params if program is not None else ()
    values = parameters.bind(decls, {decl.name: scope.params[decl.name] for decl in decls})
    alone = [each for each in asked if _of_change(each)]
    rest = [each for each in asked if not _of_change(each)]
    read = roots(asked)
    apart = bool(read & {"event", "old", "new", "last", *scope.trigger.history}) or not read
    if any("{" in each.name or each.computed for each in scope.trigger.inputs.values()):
        apart = True
    entries = tuple(_entry(each, subject, alone, decls, values) for each, subject in scope.subjects.items())
    if not all(each.interest.needs_only_a_moment for each in entries):  # too long for an index
        alone, rest = [], asked
        entries = tuple(_entry(each, subject, [], decls, values) for each, subject in scope.subjects.items())
    calling = [each for each in rest if roots([each]) & scope.results.keys()]
    quiet = [each for each in rest if each not in calling]
    quietly, called = (_rest(scope, each, decls, values) for each in (quiet, calling))
    return Condition(entries, quietly, called, apart, len(alone), len(asked))


def _of_change(expr: Expr) -> bool:
    """Whether the matcher can be asked: only of objects before and after, and of which object and happening it is."""
    for each in walk.expressions(expr):
        path = getattr(each, "path", None)
        if isinstance(path, Path):
            first = path.steps[0]
            if first == "event" and path.steps[1:2] in (("object",), ("op",)):
                continue
            if first not in OF_CHANGE:
                return False
    return True


def _entry(
    listened: Listened,
    subject: EventType,
    alone: list[Expr],
    decls: tuple[ParamDecl, ...],
    values: Mapping[str, Any],
) -> Entry:
    """Of one thing that is listened to. The programs of equal ones are shared, whatever their values."""
    used = _params(alone)
    kept = tuple(decl for decl in decls if decl.name in used)
    template = _template(change_type(subject), operations(listened), listened.is_pattern, tuple(alone), kept)
    made = copy.copy(template)  # with all that was worked out of the program
    whose = (
        "//" + pattern_of(listened.name).node + "/" + pattern_of(listened.name).prefix if listened.is_pattern else ""
    )
    made.params = {**{decl.name: values[decl.name] for decl in kept}, _WHOSE: whose or listened.subject}
    return Entry(listened, subject, made)


@lru_cache(maxsize=4096)
def _template(
    change: EventType, ops: tuple[str, ...], pattern: bool, alone: tuple[Expr, ...], decls: tuple[ParamDecl, ...]
) -> Interest:
    """Which objects and happenings, and what is asked of the change."""
    whose, object, op = Param(_WHOSE, TEXT), _load("object"), _load("op")
    mine: Expr = Call("starts_with", (object, whose), BOOL) if pattern else Compare("eq", object, whose)
    meant = InSet(op, tuple(Const(each, TEXT) for each in ops))
    terms = (mine, meant, *(_onto_change(each) for each in alone))
    program = Program(
        change.record,
        None,
        (*decls, ParamDecl(_WHOSE, "scalar", TEXT)),
        (),
        (Return(Logic("and", terms)),),
        "predicate",
    )
    empty = {decl.name: _example(decl) for decl in program.params}
    made = Interest.from_program(program, empty)
    assert made.executed is not None and made.needs_only_a_moment is not None  # worked out once for all,
    assert made.warnings is not None  # as copies have it too
    return made


def _example(decl: ParamDecl) -> Any:
    """Any value of a parameter: a template is never run."""
    if decl.kind != "scalar":
        return set() if decl.kind == "set" else {}
    return {"text": "", "bytes": b"", "bool": False, "f64": 0.0}.get(str(decl.type), 0)


def _load(name: str) -> Load:
    return Load(Path((name,)), TEXT, TEXT)


def _onto_change(expr: Expr) -> Expr:
    """Over the matcher's record, without places: those are of the trigger's text."""

    def moved(node: Expr) -> Expr:
        if isinstance(node, Load) and node.path.steps[0] == "event":
            node = replace(node, path=Path(node.path.steps[1:]))
        return replace(node, span=NOWHERE)

    return walk.rebuild(expr, moved)


def _params(exprs: list[Expr] | tuple[Expr, ...]) -> set[str]:
    found = set()
    for expr in exprs:
        for each in walk.expressions(expr):
            match each:
                case Param(name=name) | InSet(param=str(name)) | Lookup(param=name):
                    found.add(name)
    return found


def _rest(scope: Scope, rest: list[Expr], decls: tuple[ParamDecl, ...], values: Mapping[str, Any]) -> Asked | None:
    if not rest:
        return None
    bare = tuple(_bare(each) for each in rest)
    value = bare[0] if len(bare) == 1 else Logic("and", bare)
    return asked(scope, (Return(value),), None, roots(rest), {d.name: (d, values[d.name]) for d in decls})


def _bare(expr: Expr) -> Expr:
    return walk.rebuild(expr, lambda node: replace(node, span=NOWHERE))


def asked(
    scope: Scope,
    body: tuple[Stmt, ...],
    output: Record | None,
    members: set[str],
    params: Mapping[str, tuple[ParamDecl, Any]],
) -> Asked:
    """A program over those members of the scope that it reads."""
    fields = tuple(each for each in scope.record.fields if each.name in members)
    exprs = [each for stmt in body for each in walk.operands(stmt)]
    used = _params(exprs)
    kept = tuple(decl for name, (decl, _) in params.items() if name in used)
    interest = _shared(Record("Scope", fields or (Field("event", BOOL),)), output, kept, body)
    made = copy.copy(interest)
    made.params = {decl.name: params[decl.name][1] for decl in kept}
    return Asked(made, tuple(each.name for each in fields))


@lru_cache(maxsize=4096)
def _shared(record: Record, output: Record | None, decls: tuple[ParamDecl, ...], body: tuple[Stmt, ...]) -> Interest:
    program = Program(record, output, decls, (), body, "predicate")
    return Interest.from_program(program, {decl.name: _example(decl) for decl in decls})


def values_of(
    scope: Scope,
    texts: Mapping[str, tuple[str, str]],
    name: str,
    *,
    first: tuple[Stmt, ...] = (),
    head: tuple[Field, ...] = (),
    given: Mapping[str, str] | None = None,
) -> Asked | None:
    """A transformation from the scope to a record with a value for each text, by name; each text comes with where it
    is written, and may be missing. `first` sets the fields of `head` before them, from `event` and from texts that are
    `given` as parameters. None if there is nothing to set, or with problems noted."""
    body: list[Stmt] = [*first]
    fields: list[Field] = [*head]
    read: set[str] = {"event"} if head else set()
    decls: dict[str, tuple[ParamDecl, Any]] = {
        key: (ParamDecl(key, "scalar", TEXT), text) for key, text in (given or {}).items()
    }
    for key, (place, text) in texts.items():
        found = scope.value(place, text)
        if found is None:
            continue
        value, params = found
        read |= roots([value])
        for decl in params:
            decls[decl.name] = decl, parameters.bind((decl,), {decl.name: scope.params[decl.name]})[decl.name]
        stmt, stored = setting(key, _bare(value))
        body.append(stmt)
        fields.append(Field(key, stored, optional=True))
    if not fields or len(fields) < len(texts) + len(head):
        return None
    return asked(scope, (*body, _TRUE), Record(name, tuple(fields)), read, decls)


__all__ = ["OF_CHANGE", "Asked", "Condition", "Entry", "asked", "change_type", "condition_of", "values_of"]
