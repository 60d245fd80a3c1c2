"""What a trigger is, as it is written, kept and sent: texts and plain values, checked for their form only.

A trigger listens to events (`on`); at each of them its condition (`where`) is judged over

    event       object, op, time, turn of what happened
    old, new    the object before and after; missing where there is none
    last        the object as it was when this trigger last fired
    NAME        each of `inputs`: objects or members that are no events by themselves, as they are now, or what a
                method of an object returns
    previous    objects and members among them before they last changed: previous.NAME
    NAME        each of `history`: what is remembered of the object's events
    :NAME       parameters

and if that holds, for `each` event, or when it `becomes` true, it fires: the operations of its action (`do`) are a
transaction of their own, and subscribers are notified. Equal triggers are one: `fingerprint` leaves out the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import ObjectError
from headwater.ir.params import MapOf, SetOf
from headwater.objects.builder import members_of
from headwater.objects.names import object_name
from headwater.objects.operations import (
    AnyOperation,
    Create,
    Destroy,
    Guard,
    Invoke,
    Put,
    Raise,
    Read,
    Transaction,
    Update,
    plain,
)
from headwater.objects.reactions import Coupling, OnFailure
from headwater.objects.triggers import events
from headwater.objects.triggers.distributed import Distributed, form_of_distributed
from headwater.objects.triggers.events import Listened
from headwater.objects.triggers.history import MOST, MOST_EVER, Count, History, Over, Was

When = Literal["each", "becomes"]
COUPLINGS: tuple[Coupling, ...] = ("within", "after", "decoupled")

MAX_EVENTS = 1_000  # that one trigger listens to
MAX_INPUTS = 64  # inputs, histories and values of a notification, each
MAX_BYTES = 1 << 20  # of a trigger as it is kept
RESERVED = ("event", "old", "new", "last", "previous")
PRIORITIES = (-(1 << 31), (1 << 31) - 1)
OBJECT, NAME = "{object}", "{name}"  # in the names of an action and of inputs: the event's object, and its last segment
PLACE = re.compile(
    r"\{([^{}]*)\}"
)  # the same, or a segment of an action's name that what the condition saw tells: {new.id}


class Input(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An object or member that a condition reads, or what a `method` of an object returns: of arguments that are given
    or computed. `type`, that of the object, is needed where it need not be there yet."""

    name: str
    type: str = ""
    method: str = ""
    value: dict[str, Any] = {}
    computed: dict[str, str] = {}


class Trigger(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A trigger as it is kept and sent. `type` is that of the objects it listens to, where their names do not tell."""

    name: str
    on: tuple[Listened, ...]
    when: When
    where: str = ""
    type: str = ""
    inputs: dict[str, Input] = {}
    history: dict[str, History] = {}
    do: tuple[AnyOperation, ...] = ()
    notify: dict[str, str] | None = None  # values by name, from expressions; empty: that it fired; None: nobody
    veto: str = ""  # what is said when it refuses the transaction
    priority: int = 0
    group: str = ""
    coupling: Coupling = "after"
    on_failure: OnFailure = "report"
    params: dict[str, Any] = {}
    enabled: bool = True
    distributed: Distributed | None = None  # of one over values of several nodes

    @property
    def fingerprint(self) -> bytes:
        """16 bytes, equal for triggers that are the same but for their name, and whether they are enabled.

        By their texts: two that say the same in other words are two."""
        on = () if self.distributed is not None else tuple(sorted(self.on, key=str))
        same = msgspec.structs.replace(self, name="", enabled=True, on=on)
        return blake2b(_SORTED.encode(same), digest_size=16, person=b"hw-trigger").digest()

    @property
    def asker(self) -> str:
        """The group of the other node that has asked for it, which its name begins with; nothing if it is the owner's
        own."""
        group = self.group
        return group if ".k" in group and self.name.startswith(f"{group}.") else ""

    @property
    def texts(self) -> list[str]:
        """What of it has to be compiled, without its action."""
        past = [each.of if isinstance(each, Over) else each.where for each in self.history.values()]
        return [self.where, *(self.notify or {}).values(), *past]


_SORTED = msgspec.msgpack.Encoder(order="deterministic")
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgpack_decoder(Trigger)


def pack(trigger: Trigger) -> bytes:
    """As it is kept and sent."""
    data = _ENCODER.encode(trigger)
    if len(data) > MAX_BYTES:
        raise ObjectError(f"trigger {trigger.name!r}: expected at most {MAX_BYTES:,} bytes, found {len(data):,}")
    return data


def unpack(data: bytes) -> Trigger:
    """From bytes that may come from anyone: the form is right, names and texts are not checked yet."""
    if len(data) > MAX_BYTES:
        raise ObjectError(f"trigger: expected at most {MAX_BYTES:,} bytes, found {len(data):,}")
    try:
        found = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ObjectError(f"trigger: expected its packed form, found other bytes: {error}") from None
    if problems := form(found):
        raise ObjectError(_told(found.name, problems))
    return found


def trigger(
    name: str,
    *,
    on: str | Sequence[str],
    when: When,
    where: str = "",
    type: str = "",
    inputs: Mapping[str, str | tuple[str, str] | Input] | None = None,
    history: Mapping[str, History] | None = None,
    do: Transaction | Iterable[AnyOperation] = (),
    notify: bool | str | Sequence[str] | Mapping[str, str] = False,
    veto: str = "",
    priority: int = 0,
    group: str = "",
    coupling: Coupling = "after",
    on_failure: OnFailure = "report",
    params: Mapping[str, Any] | None = None,
    enabled: bool = True,
    node: str = "",
    distributed: Distributed | None = None,
) -> Trigger:
    """A trigger as people write it; ObjectError with all that is wrong with its form. Names without an owner are of
    `node`. `notify`: True for that it fired, an expression or several, or expressions by name."""
    problems: list[str] = []
    listened = []
    if distributed is not None:
        listened.append(Listened("decided", name))
    for text in (on,) if isinstance(on, str) else tuple(on):
        try:
            listened.append(events.parse(text, node))
        except (ValueError, AttributeError) as error:
            problems.append(f"on: {error}")
    made = Trigger(
        name,
        tuple(listened),
        when,
        where,
        type,
        {key: _input(key, given, node, problems) for key, given in (inputs or {}).items()},
        dict(history or {}),
        tuple(_owned(each, node, problems) for each in (do.operations if isinstance(do, Transaction) else do)),
        _notified(notify),
        veto,
        priority,
        group,
        coupling,
        on_failure,
        {key: kept(value) for key, value in (params or {}).items()},
        enabled,
        distributed,
    )
    problems += form(made)
    if problems:
        raise ObjectError(_told(name, problems))
    return made


def _told(name: str, problems: Sequence[str]) -> str:
    return "\n".join([f"trigger {name!r}:", *(f"  - {problem}" for problem in dict.fromkeys(problems))])


def _input(key: str, given: str | tuple[str, str] | Input, node: str, problems: list[str]) -> Input:
    found = given if isinstance(given, Input) else Input(given) if isinstance(given, str) else Input(*given)
    if found.name.startswith("{"):
        return found
    try:
        name, member = events.split(found.name, node)
    except ValueError as error:
        problems.append(f"inputs: {key}: {error}")
        return found
    return msgspec.structs.replace(found, name=f"{name}.{member}" if member else name)


def _owned(operation: AnyOperation, node: str, problems: list[str]) -> AnyOperation:
    """With the whole name of its object."""
    name = "" if isinstance(operation, Guard) else getattr(operation, "name", "")
    if not name or name.startswith(OBJECT):
        return operation
    plain_name = PLACE.sub("x", name)
    try:
        whole = str(object_name(plain_name, node))
    except ObjectError as error:
        problems.append(f"do: {operation.verb}: {error}")
        return operation
    if name.startswith("//"):
        return operation
    return msgspec.structs.replace(operation, name=whole.removesuffix(plain_name) + name)


def _notified(notify: bool | str | Sequence[str] | Mapping[str, str]) -> dict[str, str] | None:
    if notify is False:
        return None
    if notify is True:
        return {}
    if isinstance(notify, str):
        notify = [notify]
    if isinstance(notify, Mapping):
        return dict(notify)
    return {text.rpartition(".")[2] if text.replace(".", "").isidentifier() else "value": text for text in notify}


def kept(value: Any) -> Any:
    """As it is kept: sets as sorted lists under their own key, so that they are sets again."""
    if isinstance(value, set | frozenset):
        return {"set": sorted(plain(each) for each in value)}
    if isinstance(value, SetOf | MapOf):
        raise ObjectError("params: an empty set or map is not possible here; give one with a value")
    return {"map": plain(value)} if isinstance(value, Mapping) else plain(value)


def given(trigger: Trigger) -> dict[str, Any]:
    """The parameters as an interest takes them."""
    return {name: _given(value) for name, value in trigger.params.items()}


def _given(value: Any) -> Any:
    if isinstance(value, dict):
        return set(value["set"]) if "set" in value else dict(value.get("map", {}))
    return value


# ── what methods return, as people write it ──


def result_of(object: str, method: str, arguments: Mapping[str, Any] | None = None, *, type: str = "") -> Input:
    """For `inputs`: what a registered method of an object returns, which must not change it. Arguments are values, or
    `Computed` from all that the condition reads but the results of methods. `type` is that of the object, where it need
    not be there yet."""
    if not isinstance(method, str) or not method:
        raise ObjectError(f"result_of: expected the name of a method, found {method!r}")
    given, computed = members_of(None, dict(arguments or {}))
    return Input(object, type, method, given, computed)


# ── histories, as people write them ──


def over(of: str, within: str, *, most: int = MOST) -> Over:
    """The values of an expression over `old` and `new` that are younger than `within`, such as "60 s": in conditions
    `count`, `first`, `last`, `min`, `max`, `sum`, `mean`, `since`, and whether they are the `whole` of it."""
    return Over(of, _length(within), most)


def count(where: str, within: str = "", *, most: int = MOST) -> Count:
    """At how many events a condition over `old` and `new` held: ever, or younger than `within`; `count`, `whole`."""
    return Count(where, _length(within) if within else 0, most)


def was(where: str) -> Was:
    """Whether a condition over `old` and `new` held at the event before: `it`, missing at the first."""
    return Was(where)


def _length(text: str) -> int:
    try:
        length, rest = events.duration(text)
    except (TypeError, ValueError) as error:
        raise ObjectError(f"history: {error}") from None
    if rest:
        raise ObjectError(f"history: expected a length of time such as '60 s', found {text!r}")
    return length


# ── the form ──


def form(trigger: Trigger) -> list[str]:
    """What is wrong whatever objects there are."""
    found = [*_form_of_events(trigger), *_form_of_names(trigger), *_form_of_history(trigger), *_form_of_action(trigger)]
    found += form_of_distributed(trigger)
    if trigger.when not in ("each", "becomes"):
        found.append(f"when: expected 'each' or 'becomes', found {trigger.when!r}")
    if trigger.when == "becomes" and not trigger.where.strip():
        found.append("when: expected a condition (where=) that can become true, found none; or say when='each'")
    if trigger.coupling not in COUPLINGS:
        found.append(f"coupling: expected one of {', '.join(COUPLINGS)}, found {trigger.coupling!r}")
    if trigger.on_failure not in ("report", "abort turn"):
        found.append(f"on_failure: expected 'report' or 'abort turn', found {trigger.on_failure!r}")
    if not isinstance(trigger.priority, int) or not PRIORITIES[0] <= trigger.priority <= PRIORITIES[1]:
        found.append(f"priority: expected a whole number of 32 bits, found {trigger.priority!r}")
    return found


def _form_of_events(trigger: Trigger) -> list[str]:
    found = []
    if not trigger.on:
        found.append(f"on: expected at least one event, found none: {events.FORMS}")
    if len(trigger.on) > MAX_EVENTS:
        found.append(f"on: expected at most {MAX_EVENTS:,} events, found {len(trigger.on):,}; use a pattern of names")
    for each in trigger.on:
        try:
            if each.kind != "decided" and events.parse(str(each)) != each:
                raise ValueError(f"{each}: expected {events.FORMS}")
        except ValueError as error:
            found.append(f"on: {error}")
    return found


def _form_of_names(trigger: Trigger) -> list[str]:
    """Names that texts may use, and how many there are."""
    found = []
    if not trigger.name or not all(part.isidentifier() for part in trigger.name.replace("-", "_").split(".")):
        found.append(f"name: expected letters, digits, _ and - in parts joined by dots, found {trigger.name!r}")
    both = [*trigger.inputs, *trigger.history]
    for name in both:
        if not name.isidentifier() or name in RESERVED:
            found.append(f"{name!r}: expected a name of letters, digits and _ that is none of {', '.join(RESERVED)}")
    for name, each in trigger.inputs.items():
        if not each.method and (each.value or each.computed):
            found.append(f"inputs: {name}: expected a method for its arguments, found none")
    for name in sorted({name for name in both if both.count(name) > 1}):
        found.append(f"{name!r}: expected a name for one thing, found an input and a history of that name")
    for what, many in (("inputs", trigger.inputs), ("history", trigger.history), ("notify", trigger.notify or {})):
        if len(many) > MAX_INPUTS:
            found.append(f"{what}: expected at most {MAX_INPUTS}, found {len(many)}")
    for name in trigger.notify or {}:
        if not name.isidentifier() or name in ("trigger", "object", "op", "time", "turn"):
            found.append(
                f"notify: {name!r}: expected a name of letters, digits and _ that every notification does not have"
            )
    return found


def _form_of_history(trigger: Trigger) -> list[str]:
    found = []
    for name, each in trigger.history.items():
        if isinstance(each, Over) and each.within < events.SHORTEST:
            found.append(f"history: {name}: within: expected 1 ms or more, found {each.within} µs")
        if isinstance(each, Over | Count) and not 1 <= each.most <= MOST_EVER:
            found.append(f"history: {name}: most: expected 1 to {MOST_EVER:,} values, found {each.most:,}")
        if not isinstance(each, Over | Count | Was):
            found.append(f"history: {name}: expected Over(…), Count(…) or Was(…), found {each!r}")
    return found


def _form_of_action(trigger: Trigger) -> list[str]:
    found = []
    if trigger.veto and trigger.coupling != "within":
        found.append(
            f"veto: expected coupling='within', in the transaction that is refused, found {trigger.coupling!r}"
        )
    if trigger.veto and trigger.do:
        found.append("veto: expected no action, found one: what is refused is rolled back, and so would that be")
    if not (trigger.do or trigger.veto or trigger.notify is not None):
        found.append("expected do=, notify= or veto=: nothing would come of it")
    for number, each in enumerate(trigger.do, 1):
        if not isinstance(each, Create | Update | Put | Read | Invoke | Raise | Destroy | Guard):
            found.append(f"do: operation {number}: expected an operation on objects, found {each!r}")
    return found


__all__ = [
    "COUPLINGS",
    "MAX_BYTES",
    "MAX_EVENTS",
    "NAME",
    "OBJECT",
    "PLACE",
    "RESERVED",
    "Input",
    "Trigger",
    "When",
    "count",
    "form",
    "given",
    "kept",
    "over",
    "pack",
    "result_of",
    "trigger",
    "unpack",
    "was",
]
