"""What methods of objects return, for the conditions that read it.

A method is called when everything else that a condition asks for holds, and once at an event, however many triggers
read the same of it. One that raises, is not registered, or returns what it did not when the trigger was installed makes
the condition fail: that is counted and told, and the turn goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import HeadwaterError, ObjectError
from headwater.objects.triggers.condition import Asked, values_of

if TYPE_CHECKING:
    from headwater.objects.methods import Methods
    from headwater.objects.triggers.definition import Input
    from headwater.objects.triggers.scope import Scope
    from headwater.types import EventType

_pack = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclass(frozen=True)
class Call:
    """A method that a trigger reads the result of: what it is given, and what it returns, as `value`."""

    input: Input
    gives: EventType
    computed: Asked | None  # makes a record of the arguments that are computed

    def arguments(self, seen: Mapping[str, Any]) -> dict[str, Any]:
        """At one event."""
        if self.computed is None:
            return self.input.value
        record, type = self.computed.output(seen), self.computed.interest.output
        assert record is not None and type is not None  # it passes always, and every value may be missing
        made = type.to_dict(type.decode(record))
        return {**self.input.value, **{name: value for name, value in made.items() if value is not None}}


def call_of(scope: Scope, name: str) -> Call | None:
    """The call that an input stands for; None, with problems noted in the scope, if it cannot be made."""
    given = scope.trigger.inputs[name]
    texts = {each: (f"inputs: {name}: {each}", text) for each, text in given.computed.items()}
    made = values_of(scope, texts, "Arguments") if texts else None
    if made is not None and (others := set(made.members) & scope.results.keys()):
        hint = "compute it in the method"
        scope.problem(
            "inputs", name, f"an argument reads {', '.join(sorted(others))}, the result of a method", hint=hint
        )
    return None if texts and made is None else Call(given, scope.results[name], made)


class Results:
    """What methods have returned, or raised, at the event that is judged."""

    def __init__(self, methods: Methods) -> None:
        self._methods = methods
        self._known: dict[tuple[str, str, bytes], Any] = {}

    def clear(self) -> None:
        """Another event is judged."""
        self._known.clear()

    def of(self, call: Call, object: str, type: str, value: Any, seen: Mapping[str, Any]) -> Any:
        """The raw form of what it returns for an object of this declared type and value."""
        arguments = call.arguments(seen)
        key = object, call.input.method, _pack(arguments)
        if key not in self._known:
            try:
                self._known[key] = self._called(call, type, value, arguments)
            except HeadwaterError as error:
                self._known[key] = ObjectError(f"method {call.input.method!r} of {object}: {error}")
        found = self._known[key]
        if isinstance(found, ObjectError):
            raise found
        return found

    def _called(self, call: Call, type: str, value: Any, arguments: Mapping[str, Any]) -> Any:
        method = self._methods.get(type, call.input.method)
        if method is None:
            raise ObjectError("expected one that is registered, found none; register it right after opening the node")
        if method.gives != call.gives:
            raise ObjectError("expected what it returned when the trigger was installed, found another type")
        return method.call(value, method.arguments(arguments))


__all__ = ["Call", "Results", "call_of"]
