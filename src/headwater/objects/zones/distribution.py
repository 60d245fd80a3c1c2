"""A trigger over inputs of several nodes, from what people write to what its home and its owners run.

`spread` makes the definition that the home keeps: at home the trigger listens to nothing but that its condition was
decided. `condition_of` and `forms_of` make of that, at any time and in any life, what the home judges with, and what
each owner is to measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headwater.errors import ObjectError
from headwater.interest import Interest
from headwater.ir.inputs import fields_read
from headwater.objects.names import object_name
from headwater.objects.object_types import packed, unpacked
from headwater.objects.operations import Guard
from headwater.objects.triggers import definition, events
from headwater.objects.triggers.definition import Input, Trigger
from headwater.objects.triggers.distributed import Distributed, Scheme, decided_record
from headwater.objects.triggers.scope import names_in, params_in
from headwater.objects.zones.part_form import form_of, member_type
from headwater.objects.zones.split import Leaf, Split, leaf_type
from headwater.types import EventType, event_type
from headwater.types.model import Field, Record

Named = tuple[str, EventType]  # a type of objects: its name at their owner, and what it is
TypeOf = Callable[[str, str, str], Named]  # the node, the object, and the name that was given, if any


class Spread(NamedTuple):
    """A distributed trigger, ready to be installed, and what is to be said of it."""

    trigger: Trigger
    condition: Split
    warnings: tuple[str, ...]


def owners_of(on: str | Sequence[str], inputs: Mapping[str, Any] | None, node: str) -> set[str]:
    """The nodes of what a trigger listens to and reads, as far as names say it; what is wrong with them is found
    elsewhere."""
    found = set()
    for text in (on,) if isinstance(on, str) else tuple(on):
        try:
            listened = events.parse(text, node)
        except (ValueError, AttributeError):
            continue
        if listened.name.startswith("//"):
            found.add(listened.name[2:].partition("/")[0])
    for given in (inputs or {}).values():
        name = given if isinstance(given, str) else given.name if isinstance(given, Input) else str(given[0])
        if name.startswith("//"):
            found.add(name[2:].partition("/")[0])
        elif not name.startswith("{"):
            found.add(node)
    return found


def spread(
    name: str,
    *,
    node: str,
    type_of: TypeOf,
    on: str | Sequence[str],
    when: Any,
    where: str,
    inputs: Mapping[str, str | tuple[str, str] | Input],
    params: Mapping[str, Any] | None,
    scheme: Scheme,
    type: str = "",
    before: Trigger | None = None,
    away: Callable[[str], bool] = lambda node: False,
    **more: Any,
) -> Spread:
    """The definition of a distributed trigger; ObjectError or InterestError with all that is wrong with it. `type_of`
    is asked for the types of objects, which may be far away; not where an owner is `away` now, and the trigger that has
    this name `before` says them."""
    if not inputs:
        raise ObjectError(
            f"trigger {name!r}: expected inputs, over which several nodes decide it, found none; "
            'name them: inputs={"a": "//north/car", …}'
        )
    if type:
        raise ObjectError(f"trigger {name!r}: type: expected none, since inputs have theirs, found {type!r}")
    plain = definition.trigger(name, on=(), when="each", inputs=inputs, params=params, node=node, **more,
                               distributed=Distributed(where, when, b"", b"", scheme=scheme))  # fmt: skip
    typed, fields = dict[str, Input](), list[Field]()
    for key, given in plain.inputs.items():
        place = object_name(given.name, node)
        known = _as_before(key, Input(str(place), given.type), before)
        if known is not None and away(place.node):
            typed[key] = Input(str(place), known[0])
            fields.append(known[1])
            continue
        of, found = type_of(place.node, place.object, given.type)
        stored = member_type(found.record, place.member)
        if stored is None:
            hint = f"its fields are: {', '.join(found.record.by_name)}"
            raise ObjectError(f"trigger {name!r}: inputs: {key}: {of} has no member {place.member!r}; {hint}")
        typed[key] = Input(str(place), of)
        fields.append(Field(key, stored, optional=True))
    record = event_type(Record("Inputs", tuple(fields)))
    events_of = _events(name, on, when, typed, node)
    condition = _condition(plain, where, record, typed)
    read = fields_read(condition.interest.program)
    if unread := [key for key in typed if key not in read]:
        raise ObjectError(
            f"trigger {name!r}: inputs: expected what the condition reads, found {', '.join(unread)}, which it does not"
        )
    decided = event_type(decided_record(condition.told))
    distributed = Distributed(where, when, packed(record), packed(decided), events_of, scheme)
    made = definition.trigger(name, on=(), when="each", inputs=typed, params=params, node=node, **more,
                              distributed=distributed)  # fmt: skip
    forms_of(made, condition)  # what is too large for an owner is said now
    return Spread(made, condition, _warnings(made, condition))


def _as_before(key: str, given: Input, before: Trigger | None) -> tuple[str, Field] | None:
    """The type of an input in the trigger as it is now, and of what is read of it; None if it is another input."""
    known = None if before is None else before.inputs.get(key)
    if before is None or before.distributed is None or known is None:
        return None
    if known.name != given.name or given.type not in ("", known.type):
        return None
    return known.type, unpacked(before.distributed.inputs).record.by_name[key]


def _condition(trigger: Trigger, where: str, record: EventType, inputs: Mapping[str, Input]) -> Split:
    mentioned = params_in(where)
    given = {name: value for name, value in definition.given(trigger).items() if name in mentioned}
    interest = Interest(where, record, params=given, notation="predicate")
    owners = {key: object_name(each.name).node for key, each in inputs.items()}
    return Split(interest, owners, tuple(_besides(trigger, record.record)))


def _besides(trigger: Trigger, record: Record) -> Iterator[Leaf]:
    """Values of inputs that the action or the notification reads."""
    texts = list((trigger.notify or {}).values())
    for each in trigger.do:
        texts += [each.condition] if isinstance(each, Guard) else getattr(each, "computed", {}).values()
    seen = set()
    for text in texts:
        for _, _, name in names_in(text):
            leaf = tuple(name.split("."))
            if leaf not in seen and leaf[0] in record.by_name and leaf_type(record, leaf) is not None:
                seen.add(leaf)
                yield leaf


def _events(name: str, on: Any, when: str, inputs: Mapping[str, Input], node: str) -> tuple[str, ...]:
    """The objects whose events count. Where it fires when it becomes true, every change of an input does."""
    objects = {str(object_name(given.name).whole) for given in inputs.values()}
    listened = [events.parse(text, node) for text in ((on,) if isinstance(on, str) else tuple(on))]
    wrong = [str(each) for each in listened if each.kind != "change" or each.member or each.name not in objects]
    if wrong:
        raise ObjectError(
            f"trigger {name!r}: on: expected objects that are inputs, found {', '.join(wrong)}; over several nodes a "
            "condition is of the values of its inputs, whatever has changed them"
        )
    named = {each.name for each in listened} or objects
    if when == "becomes" and named != objects:
        raise ObjectError(
            f"trigger {name!r}: on: expected all inputs, or nothing, found only {', '.join(sorted(named))}; a "
            "condition becomes true by whichever of its inputs changes"
        )
    return tuple(sorted(named))


def _warnings(trigger: Trigger, condition: Split) -> tuple[str, ...]:
    spread = trigger.distributed
    assert spread is not None
    if spread.scheme == "simple":
        return ()
    if spread.when == "each":
        return ("every change crosses: a trigger of each event gets no safe zones",)
    if not condition.bounded:
        return ("every change crosses: of what it reads (elements, lists, bytes, a loop) no box says anything",)
    return tuple(f"it may cross often: of {limit} no box says anything" for limit in condition.limits)


def condition_of(trigger: Trigger) -> Split:
    """What a home judges with."""
    spread = trigger.distributed
    assert spread is not None
    return _condition(trigger, spread.where, unpacked(spread.inputs), trigger.inputs)


def gives_zones(trigger: Trigger, condition: Split) -> bool:
    """Whether owners may be silent; else every change crosses."""
    spread = trigger.distributed
    return spread is not None and spread.scheme == "zones" and spread.when == "becomes" and condition.bounded


def forms_of(trigger: Trigger, condition: Split) -> dict[str, bytes]:
    """What each owner is to measure, by node."""
    spread = trigger.distributed
    assert spread is not None
    inputs = {key: (given.name, given.type) for key, given in trigger.inputs.items()}
    found = {}
    for owner, part in condition.parts.items():
        if part.names:
            events = tuple(object_name(each).object for each in spread.on if object_name(each).node == owner)
            found[owner] = form_of(part, inputs, each=spread.when == "each", events=events)
    return found


__all__ = ["Spread", "TypeOf", "condition_of", "forms_of", "gives_zones", "owners_of", "spread"]
