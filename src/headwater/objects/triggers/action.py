"""What comes of a firing: the transaction of the action, and the notification, computed from what was judged.

A computed value of an action may read the scope of the trigger (`new.price`), what its own operations read before, and
members of the object that it changes. What reads the scope only is computed at the firing, once for all: actions see
what the condition saw. In a text that reads both, the scope's part stands as a parameter. `{object}` in a name is the
event's object, `{name}` the last segment of it, and `{new.symbol}` a segment that is what was seen there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from headwater.errors import ObjectError
from headwater.ir.nodes import Load, Param, Path, SetOut, Stmt
from headwater.objects.names import is_segment
from headwater.objects.operations import AnyOperation, Guard, Transaction
from headwater.objects.triggers.condition import Asked, values_of
from headwater.objects.triggers.definition import NAME, OBJECT, PLACE
from headwater.objects.triggers.scope import Scope, names_in
from headwater.types import EventType, event_type
from headwater.types.model import TEXT, TIMESTAMP, U64, Field, Type

_SEEN = "_seen_"  # parameters that stand for what the condition saw
_ITSELF = "_trigger"  # the parameter that is the trigger's own name
# Words of the notation that are no names.
_WORDS = frozenset(
    [
        "and",
        "or",
        "not",
        "is",
        "null",
        "true",
        "false",
        "in",
        "between",
        "like",
        "case",
        "when",
        "then",
        "else",
        "end",
        "cast",
        "as",
        "distinct",
        "escape",
        "interval",
    ]
)
_HEAD: tuple[tuple[str, Type], ...] = (("object", TEXT), ("op", TEXT), ("time", TIMESTAMP), ("turn", U64))


@dataclass
class Action:
    """The operations of a trigger, with places for what is computed at each firing."""

    operations: tuple[AnyOperation, ...]
    params: dict[str, Any]
    computed: Asked | None = None  # makes a record of all that is computed
    values: list[tuple[int, str, str]] = field(default_factory=list)  # operation, member, field of that record
    texts: list[tuple[int, str, str]] = field(default_factory=list)  # operation, member or "", text with parameters
    seen: dict[str, str] = field(default_factory=dict)  # parameter -> field of that record
    names: dict[str, str] = field(default_factory=dict)  # what stands in braces in a name -> field of that record

    def transaction(self, scope: dict[str, Any], object: str) -> Transaction:
        """For one firing; ObjectError if something that it needs is missing."""
        record = self.computed.output(scope) if self.computed is not None else None
        made = {}
        if self.computed is not None and record is not None:
            type = self.computed.interest.output
            assert type is not None
            made = type.to_dict(type.decode(record))
        params = dict(self.params)
        for name, key in self.seen.items():
            if made.get(key) is None:
                raise ObjectError(f"expected a value to compute with, found that {self._text(name)} is missing")
            params[name] = made[key]
        operations = list(self.operations)
        for at, member, text in self.texts:
            operations[at] = _with_text(operations[at], member, text)
        for at, member, key in self.values:
            operations[at] = _with_value(operations[at], member, made.get(key))
        segments = {text: _segment(text, made.get(key)) for text, key in self.names.items()}
        return Transaction(tuple(_named(each, object, segments) for each in operations), params=params)

    def _text(self, name: str) -> str:
        found = next((text for _, _, text in self.texts if f":{name}" in text), name)
        return f"a part of {found!r}"

    @property
    def reads(self) -> frozenset[str]:
        """Members of the scope that it reads."""
        return frozenset(self.computed.members if self.computed is not None else ())


def _with_value(operation: AnyOperation, member: str, value: Any) -> AnyOperation:
    computed = {name: text for name, text in operation.computed.items() if name != member}  # type: ignore[union-attr]
    given = {**operation.value, member: value}  # type: ignore[union-attr]
    return msgspec.structs.replace(operation, value=given, computed=computed)


def _with_text(operation: AnyOperation, member: str, text: str) -> AnyOperation:
    if isinstance(operation, Guard):
        return msgspec.structs.replace(operation, condition=text)
    computed = {**operation.computed, member: text}  # type: ignore[union-attr]
    return msgspec.structs.replace(operation, computed=computed)


def _named(operation: AnyOperation, object: str, segments: dict[str, str]) -> AnyOperation:
    if isinstance(operation, Guard) or "{" not in operation.name:
        return operation
    name = operation.name.replace(OBJECT, object).replace(NAME, object.rpartition("/")[2])
    return msgspec.structs.replace(operation, name=PLACE.sub(lambda found: segments[found[1]], name))


def _segment(text: str, value: Any) -> str:
    """What was seen, as one segment of a name: never as several, or as a member, whoever has published it."""
    found = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not is_segment(found):
        raise ObjectError(f"{{{text}}}: expected 1 to 64 letters, digits, _ and - for a name, found {value!r}")
    return found


def action_of(scope: Scope) -> Action | None:
    """The action of a trigger; None if it has none, or with problems noted in the scope."""
    if not scope.trigger.do:
        return None
    made = Action(scope.trigger.do, {})
    wanted: dict[str, tuple[str, str]] = {}
    for at, operation in enumerate(scope.trigger.do):
        texts = {"": operation.condition} if isinstance(operation, Guard) else getattr(operation, "computed", {})
        for member, text in texts.items():
            place = f"do: operation {at + 1}{f': {member}' if member else ''}"
            _take(scope, made, wanted, (at, member, text), place)
        for text in () if isinstance(operation, Guard) else PLACE.findall(operation.name):
            if f"{{{text}}}" not in (OBJECT, NAME) and text not in made.names:
                made.names[text] = f"v{len(wanted)}"
                wanted[made.names[text]] = f"do: operation {at + 1}: {operation.name}", text
    before = len(scope.problems)
    made.computed = values_of(scope, wanted, "Computed")
    if len(scope.problems) > before:
        return None
    for _, _, text in made.texts:
        mentioned = [name for name in scope.params if f":{name}" in text]
        made.params |= {name: scope.params[name] for name in mentioned}
        scope.used |= set(mentioned)
    return made


def _take(scope: Scope, made: Action, wanted: dict[str, tuple[str, str]], of: tuple[int, str, str], place: str) -> None:
    """One text of an action: computed here if it reads the scope only, with parameters in it if that and more."""
    at, member, text = of
    found = [each for each in names_in(text) if each[2].lower() not in _WORDS]
    own = [each for each in found if each[2].partition(".")[0] in scope.record.by_name]
    if member and own and len(own) == len(found):
        key = f"v{len(wanted)}"
        wanted[key] = place, text
        made.values.append((at, member, key))
        return
    for start, end, name in reversed(own):
        key = next((key for key, given in wanted.items() if given[1] == name and key in made.seen.values()), "")
        if not key:
            key = f"v{len(wanted)}"
            wanted[key] = place, name
            made.seen[f"{_SEEN}{len(made.seen)}"] = key
        parameter = next(each for each, of_key in made.seen.items() if of_key == key)
        text = f"{text[:start]}:{parameter}{text[end:]}"
    if own or ":" in text:
        made.texts.append((at, member, text))


# ── notifications ──


@dataclass
class Notification:
    """What subscribers are told: which trigger fired, of which object and event, and the values asked for."""

    asked: Asked
    type: EventType

    def record(self, scope: dict[str, Any]) -> bytes:
        """For one firing."""
        found = self.asked.output(scope)
        assert found is not None  # it passes always, and every value may be missing
        return found


def notification_of(scope: Scope) -> Notification | None:
    """The notification of a trigger; None if it has none, or with problems noted in the scope."""
    given = scope.trigger.notify
    if given is None:
        return None
    first: list[Stmt] = [SetOut(Path(("trigger",)), Param(_ITSELF, TEXT), TEXT)]
    for name, type in _HEAD:
        first.append(SetOut(Path((name,)), Load(Path(("event", name)), type, type), type))
    head = (Field("trigger", TEXT), *(Field(name, type) for name, type in _HEAD))
    texts = {name: (f"notify: {name}", text) for name, text in given.items()}
    made = values_of(scope, texts, "Notification", first=tuple(first), head=head, given={_ITSELF: scope.trigger.name})
    if made is None or made.interest.output is None:
        return None
    return Notification(made, event_type(made.interest.output.record))


__all__ = ["Action", "Notification", "action_of", "notification_of"]
