"""What is computed in a transaction: conditions and values over what was read before, and the members of an object.

Text in the predicate notation is compiled for the names that it uses and their types, once; what is used often becomes
machine code. A name that was read hides a member of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from headwater.errors import HeadwaterError, ObjectError
from headwater.interest import Interest, parse
from headwater.ir.build import Builder
from headwater.ir.nodes import Const, Expr, Return, Span, Stmt
from headwater.types import EventType, event_type
from headwater.types.model import BOOL, I64, Field, Record, Type

MAX_TEXT = 4096  # characters of one
COMPILED = 1024  # that are kept
NATIVE_AFTER = 64  # uses, from which on machine code is made
_WORD = re.compile(r"[^\W\d]\w*")
_PARAM = re.compile(r":([^\W\d]\w*)")
_FIELD = "value"
_NOTHING = Field("nothing_is_read", I64, True)  # an event type has at least one field


class Named(NamedTuple):
    """Something that an expression may use: its type, whether it may be missing, and its raw form."""

    type: Type
    optional: bool
    raw: Any


class _Result(Builder):
    """An expression whose result becomes the one field of an output."""

    to: Record

    def __init__(self, input: Record, **options: Any) -> None:
        super().__init__(input, output=self.to, **options)

    def return_(self, value: Expr, span: Span) -> list[Stmt]:
        return [*self.set_out([_FIELD], value, span), Return(Const(True, BOOL, span), span)]


class Compiled(NamedTuple):
    """An expression, ready to be used on a record of what it reads."""

    scope: EventType
    run: Callable[[bytes], Any]


def condition(text: str, names: Mapping[str, Named], params: Mapping[str, Any]) -> bool:
    """Whether it holds; not where it is undecided, since something is missing. ObjectError if it is none."""
    made = compiled(text, names, None, params)
    return bool(made.run(_record(made.scope, names)))


def value(text: str, names: Mapping[str, Named], target: Type, params: Mapping[str, Any]) -> Any:
    """The raw form of what is computed, as the target takes it; None if it is missing."""
    made = compiled(text, names, target, params)
    return made.run(_record(made.scope, names))


def compiled(text: str, names: Mapping[str, Named], target: Type | None, params: Mapping[str, Any]) -> Compiled:
    """A condition or, with a target, a value of that type; ObjectError with all that is wrong with it."""
    if len(text) > MAX_TEXT:
        raise ObjectError(f"expected at most {MAX_TEXT:,} characters, found {len(text):,}")
    used = {name: params[name] for name in _PARAM.findall(text) if name in params} if params else {}
    try:
        return _found(text, _scope(dict.fromkeys(_WORD.findall(text)), names), target, used)
    except (HeadwaterError, RecursionError):
        pass  # with all names at hand it can be said better what is wrong
    try:
        return _found(text, _scope(names, names), target, used)
    except (HeadwaterError, RecursionError) as error:
        said = " ".join(str(error).split()).replace("Scope has no field", "nothing was read as")
        raise ObjectError(said.replace(f"hint: its fields are: {_NOTHING.name}", "read it first")) from None


def _scope(used: Iterable[str], names: Mapping[str, Named]) -> Record:
    """The record of what is used."""
    fields = tuple(Field(name, names[name].type, names[name].optional) for name in used if name in names)
    return Record("Scope", fields or (_NOTHING,))


def _found(text: str, scope: Record, target: Type | None, params: Mapping[str, Any]) -> Compiled:
    try:
        typed = tuple((name, value.__class__, value) for name, value in sorted(params.items()))
        return _kept(text, scope, target, typed)  # True, 1 and 1.0 are equal, and compiled otherwise
    except TypeError:  # a value that cannot be looked up
        return _compile(text, scope, target, params)


def _compile(text: str, scope: Record, target: Type | None, params: Mapping[str, Any]) -> Compiled:
    type = event_type(scope)
    if target is None:
        test = Interest(text, type, params=params, notation="predicate").native(after=NATIVE_AFTER)
        return Compiled(type, test.test)
    output = Record("Value", (Field(_FIELD, target, True),))
    builder: Any = type_of_builder(output)
    program, values = parse(text, scope, params=params, notation="predicate", builder=builder)
    native = Interest.from_program(program, values).native(after=NATIVE_AFTER)
    to = event_type(output)

    def run(record: bytes) -> Any:
        found = native.run(record)
        if found.output is None:
            raise ObjectError(
                f"{text!r}: expected a value, found that it cannot be computed ({found.status.name.lower()})"
            )
        return to.decode_raw(bytes(found.output))[_FIELD]

    return Compiled(type, run)


@lru_cache(256)
def type_of_builder(output: Record) -> type[_Result]:
    """A builder of programs with this output."""
    return type("_Result", (_Result,), {"to": output})


@lru_cache(COMPILED)
def _kept(text: str, scope: Record, target: Type | None, params: tuple[tuple[str, type, Any], ...]) -> Compiled:
    return _compile(text, scope, target, {name: value for name, _, value in params})


def _record(scope: EventType, names: Mapping[str, Named]) -> bytes:
    fields = scope.record.fields
    if fields[0] is _NOTHING:
        return scope.encode({_NOTHING.name: None})
    return scope.encode({field.name: names[field.name].raw for field in fields})


__all__ = ["MAX_TEXT", "Compiled", "Named", "compiled", "condition", "value"]
