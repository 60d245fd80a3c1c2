"""A trigger as it is installed: checked against the types of its objects, and made ready to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from typing import Any

import msgspec

from headwater.ir import params as parameters
from headwater.ir.nodes import Load, Return
from headwater.objects.triggers.action import Action, Notification, action_of, notification_of
from headwater.objects.triggers.calls import Call, call_of
from headwater.objects.triggers.condition import Asked, Condition, asked, condition_of, values_of
from headwater.objects.triggers.definition import Trigger
from headwater.objects.triggers.history import History, Over
from headwater.objects.triggers.scope import Scope, Types, roots, scope_of
from headwater.types import EventType


@dataclass
class Counts:
    """Since the node was started: how often it was looked at (what the index decides alone is not counted, unless it
    fires), what came of it, and the last failure."""

    evaluated: int = 0
    fired: int = 0
    caused: int = 0  # transactions
    vetoed: int = 0
    failed: int = 0
    failure: str = ""


@dataclass
class Remembered:
    """A history that a trigger reads: by which key it is shared, of which type of objects it is, and how an event's
    value is found."""

    key: bytes
    type: EventType
    history: History
    asked: Asked | None
    path: tuple[str, ...] = ()  # where the value lies, if it is a member as it is

    def value(self, pair: Mapping[str, Any]) -> Any:
        """Of one event, {old, new} being given: the value, or whether the condition held."""
        if self.asked is None:
            here: Any = pair
            for step in self.path:
                here = None if here is None else here[step]
            return here
        if not isinstance(self.history, Over):
            return self.asked.holds(pair)
        record = self.asked.output(pair)
        output = self.asked.interest.output
        return None if record is None or output is None else output.decode_raw(record)["value"]


@dataclass(eq=False)
class Installed:
    """One trigger at work. `number` is the order of installation."""

    number: int
    trigger: Trigger
    condition: Condition
    action: Action | None
    notification: Notification | None
    histories: dict[str, Remembered]
    subject: EventType | None
    inputs: Mapping[str, EventType]  # types of the objects that inputs are of
    calls: Mapping[str, Call]  # of methods, by the input that is their result
    warnings: tuple[str, ...] = ()
    counts: Counts = field(default_factory=Counts)
    keys: list[tuple[EventType, int]] = field(default_factory=list)  # of its entries in matchers

    @cached_property
    def rank(self) -> tuple[int, int]:
        """By priority, the higher first, then by installation."""
        return -self.trigger.priority, self.number

    @property
    def name(self) -> str:
        return self.trigger.name

    @cached_property
    def reads(self) -> frozenset[str]:
        """Members of the scope that anything of it reads."""
        action = self.action.reads if self.action is not None else frozenset()
        told = self.notification.asked.members if self.notification is not None else ()
        arguments = (each.computed.members for each in self.calls.values() if each.computed is not None)
        return self.condition.reads | action | frozenset(told) | frozenset(chain.from_iterable(arguments))

    @cached_property
    def plain(self) -> str | None:
        """Where the index decides all of it, so that which conditions begin and cease to hold is a difference of sets:
        the member that it listens to, or the empty text. None where more is to be asked of each trigger."""
        condition, members = self.condition, {each.member for each in self.trigger.on}
        if self.trigger.when != "becomes" or condition.reads or not condition.apart or len(members) > 1:
            return None
        if any(each.kind != "change" or each.is_pattern for each in self.trigger.on):
            return None
        return members.pop()

    @cached_property
    def cost(self) -> tuple[int, int]:
        """What an event that it is about costs, in native operations: what is asked, also where the index has to ask it
        of each trigger, remembered and told; estimated, and at worst. By what the checker counts."""
        asked = [each.asked for each in self.histories.values()]
        asked += [self.condition.rest, None if self.notification is None else self.notification.asked]
        costs = [each.interest.cost for each in (*asked, *self.condition.entries[:1]) if each is not None]
        return sum(each.estimated for each in costs), sum(each.worst for each in costs)

    @cached_property
    def remembers(self) -> bool:
        """Whether a firing is remembered."""
        return self.trigger.when == "becomes" or self.keeps_last

    @cached_property
    def keeps_last(self) -> bool:
        """Whether the value at the last firing is ever asked for."""
        return "last" in self.reads


def install(trigger: Trigger, types: Types, node: str, number: int) -> Installed:
    """A trigger ready to run; TriggerProblem with everything that is wrong with it."""
    scope = scope_of(trigger, types, node)
    condition = condition_of(scope)
    action, notification = action_of(scope), notification_of(scope)
    histories = {name: made for name, each in trigger.history.items() if (made := _remembered(scope, name, each))}
    calls = {name: call for name in scope.results if (call := call_of(scope, name)) is not None}
    _check_previous(scope, condition, action, notification)
    scope.check_params()
    scope.finish()
    assert condition is not None
    warnings = tuple(str(each) for entry in condition.entries[:1] for each in entry.interest.warnings)
    return Installed(
        number, trigger, condition, action, notification, histories, scope.subject, scope.inputs, calls, warnings
    )


def _check_previous(
    scope: Scope, condition: Condition | None, action: Action | None, notification: Notification | None
) -> None:
    """What was before can only be kept of objects that are known by name."""
    read = condition.reads if condition is not None else frozenset()
    read |= action.reads if action is not None else frozenset()
    read |= frozenset(notification.asked.members) if notification is not None else frozenset()
    if "previous" not in read:
        return
    for name, each in scope.trigger.inputs.items():
        if "{" in each.name and not each.method:
            hint = "give the object's own name, or read old"
            scope.problem("inputs", each.name, f"{name}: what was before is not kept of a name like this", hint=hint)


def _remembered(scope: Scope, name: str, history: History) -> Remembered | None:
    """A history as it is shared; None, with problems noted, if its text has any."""
    if scope.subject is None or name not in scope.record.by_name:
        return None
    text = history.of if isinstance(history, Over) else history.where
    mentioned = {each: value for each, value in scope.trigger.params.items() if f":{each}" in text}
    key = blake2b(
        msgspec.msgpack.encode([scope.subject.fingerprint, history, sorted(mentioned.items())]), digest_size=16
    ).digest()
    if isinstance(history, Over):
        found = scope.value(f"history: {name}", text, scope.pair)
        if found is not None and isinstance(found[0], Load) and all(isinstance(s, str) for s in found[0].path.steps):
            return Remembered(key, scope.subject, history, None, tuple(str(step) for step in found[0].path.steps))
        return Remembered(key, scope.subject, history, values_of(scope, {"value": (f"history: {name}", text)}, "Value"))
    program = scope.condition(f"history: {name}", text, scope.pair)
    if program is None or not isinstance(program.body[0], Return):
        return None
    values = parameters.bind(program.params, {each.name: scope.params[each.name] for each in program.params})
    decls = {each.name: (each, values[each.name]) for each in program.params}
    return Remembered(
        key, scope.subject, history, asked(scope, program.body, None, roots([program.body[0].value]), decls)
    )


__all__ = ["Counts", "Installed", "Remembered", "install"]
