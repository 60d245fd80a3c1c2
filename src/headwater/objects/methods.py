"""Methods of objects: Python functions, registered for a type at the node that owns them, that a transaction invokes.

    def advance(car: Vehicle, seconds: float) -> Vehicle: ...        # the object as it is to be from now on
    def braking(car: Vehicle, force: float) -> float: ...            # a result; the object stays as it is

What a function takes and gives is typed by its annotations. One that returns the type of its object changes it; the
result of such a one is the object's new value.

Functions do not survive a process, but their names do: what was queued in a life before waits a while until they are
registered again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_type_hints

from headwater.errors import EncodeError, HeadwaterError, ObjectError
from headwater.objects.object_types import ObjectType
from headwater.types import Event, EventType, event_type
from headwater.types.event import EventMeta
from headwater.types.model import Type


class Method:
    """A function for objects of a type; `event`: what it changes is told as an event."""

    def __init__(self, type: ObjectType, function: Callable[..., Any], name: str, *, event: bool) -> None:
        self.type, self.function, self.name, self.event = type, function, name, event
        place = f"method {name!r} of {type.name}"
        try:
            own = type.type.binding.cls  # which may be a local one, whose name the function's module does not know
            hints = get_type_hints(function, localns={own.__name__: own}, include_extras=True)
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError, NameError) as error:
            raise ObjectError(f"{place}: expected a function with annotations, found {function!r}: {error}") from None
        if not parameters or any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters):
            raise ObjectError(f"{place}: expected a function of the object and of named arguments, found {function!r}")
        given = hints.get("return")
        arguments = {each.name: hints.get(each.name) for each in parameters[1:]}
        if missing := [each for each, hint in arguments.items() if hint is None]:
            raise ObjectError(f"{place}: expected annotations of all arguments, found none of {', '.join(missing)}")
        self.takes = _event_type(f"{name}Arguments", arguments, parameters[1:], place)
        self.changes = given is not None and given is not type_none and _is(given, type.type)
        self.gives: EventType | None = None
        if given is not None and given is not type_none and not self.changes:
            self.gives = _event_type(f"{name}Result", {"value": given}, [], place)

    @property
    def result(self) -> tuple[Type, bool] | None:
        """The type of what it returns, and whether that may be missing; None if it returns nothing."""
        if self.changes:
            return self.type.type.record, False
        if self.gives is None:
            return None
        field = self.gives.record.fields[0]
        return field.type, field.optional

    def arguments(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Checked, as the function takes them; ObjectError."""
        if self.takes is None:
            if raw:
                raise ObjectError(f"expected no arguments, found {', '.join(raw)}")
            return {}
        try:
            event = self.takes.decode(self.takes.encode(dict(raw)))
        except EncodeError as error:
            raise ObjectError(f"arguments: {error}") from None
        return {name: getattr(event, name) for name in event.__struct_fields__}

    def call(self, object: Any, arguments: Mapping[str, Any]) -> Any:
        """The raw form of what it returns, which is the object's new value if it changes it."""
        try:
            found = self.function(object, **arguments)
        except (Exception, SystemExit) as error:
            raise ObjectError(f"it raised {type(error).__name__}: {error}") from error
        try:
            if self.changes:
                return self.type.type.to_raw(found)
            if self.gives is None:
                return None
            return self.gives.to_raw({"value": found})["value"]
        except HeadwaterError as error:
            raise ObjectError(f"expected it to return what it is annotated with, found: {error}") from None


type_none = type(None)


def _is(given: Any, wanted: EventType) -> bool:
    return isinstance(given, EventMeta) and event_type(given) == wanted


def _event_type(
    name: str, annotations: Mapping[str, Any], parameters: list[inspect.Parameter], place: str
) -> EventType | None:
    """A type with these fields; None if there are none."""
    if not annotations:
        return None
    namespace: dict[str, Any] = {"__annotations__": dict(annotations), "__module__": __name__}
    namespace.update({each.name: each.default for each in parameters if each.default is not each.empty})
    try:
        made: Any = EventMeta(name, (Event,), namespace)
        return event_type(made)
    except (HeadwaterError, TypeError) as error:
        raise ObjectError(f"{place}: {error}") from None


class Methods:
    """Those of a node, by type and name. `missing` are those that a life before had, and this one has not yet."""

    def __init__(self, known: Iterable[tuple[str, str]] = ()) -> None:
        self._all: dict[tuple[str, str], Method] = {}
        self.known = frozenset(known)
        self.missing = set(self.known)

    def add(self, method: Method) -> bool:
        """Instead of one of that name; whether no life before had it."""
        key = method.type.name, method.name
        self._all = {**self._all, key: method}
        self.missing.discard(key)
        return key not in self.known

    def get(self, type: str, name: str) -> Method | None:
        """By the name of its type; None if there is none."""
        return self._all.get((type, name))

    def find(self, type: ObjectType, name: str) -> Method:
        """ObjectError if there is none."""
        found = self._all.get((type.name, name))
        if found is None:
            there = ", ".join(method for of, method in self._all if of == type.name)
            raise ObjectError(f"expected a method of {type.name}, found {name!r}; there are {there or 'none'}")
        return found


__all__ = ["Method", "Methods"]
