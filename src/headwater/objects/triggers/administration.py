"""Triggers come, change and go by operations of transactions, in the same queue as everything else.

    install trigger   the name and number it has; an equal one that is there already is that one
    change trigger    parameters, or whether it is enabled, from the next event on
    remove trigger    with all that it remembers
    subscribe, unsubscribe   someone asks for a trigger under a name of theirs, or does not any more
    enable group, disable group
    due, received     what a clock or a channel has brought

All of it is undone with the transaction that it is in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import HeadwaterError, ObjectError
from headwater.objects.object_types import packed, shape, unpacked
from headwater.objects.operations import Administer
from headwater.objects.reactions import Moment
from headwater.objects.triggers import definition, graph, happening, tables
from headwater.objects.triggers.deadlines import Deadline
from headwater.objects.triggers.definition import OBJECT, Trigger
from headwater.objects.triggers.firing import Firing
from headwater.objects.triggers.happening import received
from headwater.objects.triggers.installed import Installed, install
from headwater.spelling import did_you_mean

if TYPE_CHECKING:
    from headwater.objects.methods import Method, Methods
    from headwater.types import EventType

T = TypeVar("T")
Named = Callable[[str], "EventType | None"]
_unpack = msgpack_decoder(list[Any]).decode
_pack = msgspec.msgpack.Encoder().encode


class _Types:
    """What a trigger is checked against, at one moment of a turn."""

    def __init__(
        self,
        moment: Moment | _Committed,
        named: Named,
        channel: Named,
        kept: Mapping[str, EventType],
        methods: Methods,
    ) -> None:
        self._moment, self.type_named, self._channel, self._kept = moment, named, channel, kept
        self._methods = methods

    def type_of(self, object: str) -> EventType | None:
        """As it is or, while there is no such object, as it was when a trigger was installed."""
        found = self._moment.value(object)
        return self._kept.get(f"//{self._moment.node}/{object}") if found is None else found[0]

    def channel_type(self, name: str) -> EventType | None:
        """The same of a channel, which need not be there again after a restart."""
        return self._channel(name) or self._kept.get(name)

    def method(self, type: str, name: str) -> Method | None:
        """One that is registered."""
        return self._methods.get(type, name)

    def result(self, type: str, name: str) -> EventType | None:
        """What it returns or, until it is registered again after a restart, what it returned then."""
        found = self._methods.get(type, name)
        return self._kept.get(_method_key(type, name)) if found is None else found.gives

    def settled(self, trigger: Trigger) -> Trigger:
        """With the types of the objects whose methods it has called: methods are of declared types."""
        inputs = {}
        for name, given in trigger.inputs.items():
            if given.method and not given.type:
                mine = given.name == OBJECT
                names = [each.name for each in trigger.on] if mine else [given.name]
                type = (mine and trigger.type) or self._type_name(names)
                inputs[name] = msgspec.structs.replace(given, type=type)
        return msgspec.structs.replace(trigger, inputs={**trigger.inputs, **inputs}) if inputs else trigger

    def _type_name(self, names: list[str]) -> str:
        """The declared type of the first of these objects that there is."""
        owned = f"//{self._moment.node}/"
        mine = (name.removeprefix(owned) for name in names if name.startswith(owned))
        return next((type for name in mine if (type := self._moment.type_name(name))), "")


def _method_key(type: str, name: str) -> str:
    """Under which the type of what a method returns is kept, among those of objects and channels."""
    return f"method {type}.{name}"


class _Committed:
    """As much of a moment as types are asked of, outside of a turn."""

    def __init__(self, node: str, type_of: Named) -> None:
        self.node, self._type_of = node, type_of

    def value(self, object: str) -> tuple[EventType] | None:
        """Its type only."""
        found = self._type_of(object)
        return None if found is None else (found,)

    def type_name(self, object: str) -> str:
        """Of nothing: triggers of other nodes have no methods called."""
        return ""


class Change(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is to be another about a trigger; what is None stays."""

    params: dict[str, Any] | None = None
    enabled: bool | None = None
    priority: int | None = None


_CHANGE = msgpack_decoder(Change)


class Triggers(Firing):
    """The triggers of a node: they meet `Reactions`. `named` and `channel` know the types of objects and channels."""

    def __init__(self, node: str, named: Named, channel: Named, methods: Methods) -> None:
        super().__init__(node, methods)
        self._named, self._channel_type = named, channel
        self.subscribers: dict[int, dict[str, None]] = {}
        self._kept: dict[str, EventType] = {}  # of channels and objects that triggers are about
        self.lost: dict[str, str] = {}  # triggers of the file that cannot be installed any more, and why
        self._errands: dict[str, Callable[[Administer, Moment], Any]] = {
            "install trigger": self._install,
            "change trigger": self._change,
            "remove trigger": self._remove,
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "enable group": self._group,
            "disable group": self._group,
            "due": self._due,
            "received": self._received,
        }

    def open(self, moment: Moment) -> None:
        """What the file has, before the first turn. A trigger whose types are gone is kept, and told of in `lost`."""
        execute = moment.execute
        self._kept = {name: unpacked(form) for name, form in tables.types(execute)}
        types = self._types(moment)
        for number, name, body in tables.triggers(execute):
            try:
                made = definition.unpack(body)
                self._start(_sound(partial(install, made, types, self.node, number)), moment.at, 1)
            except HeadwaterError as error:
                self.lost[name] = str(error)
        for number, who in tables.subscribers(execute):
            self.subscribers.setdefault(number, {})[who] = None
        self.load(execute)

    def prepare(self, trigger: Trigger, type_of: Named) -> Installed | None:
        """Have its texts compiled before its turn, in any thread, over objects as they are committed: how it would be
        installed. None if it cannot be; whatever is wrong with it is told in its turn."""
        with suppress(HeadwaterError):
            return self.checked(trigger, type_of)
        return None

    def checked(self, trigger: Trigger, type_of: Named) -> Installed:
        """A trigger as it would be installed, over objects as they are committed; HeadwaterError if it cannot be."""
        types = _Types(_Committed(self.node, type_of), self._named, self._channel_type, self._kept, self.methods)
        return _sound(partial(install, trigger, types, self.node, 0))

    def _types(self, moment: Moment) -> _Types:
        return _Types(moment, self._named, self._channel_type, self._kept, self.methods)

    def administer(self, operation: Administer, moment: Moment) -> Any:
        """One of the errands."""
        errand = self._errands.get(operation.what)
        if errand is None:
            hint = did_you_mean(operation.what, self._errands) or f"there are {', '.join(self._errands)}"
            raise ObjectError(f"expected something that triggers can do, found {operation.what!r}; {hint}")
        found = _sound(lambda: errand(operation, moment))
        self.write(moment.execute)
        return found

    def found(self, name: str) -> Installed:
        """By name; ObjectError if there is none."""
        found = self.registry.by_name.get(name)
        if found is None:
            hint = did_you_mean(name, self.registry.by_name) or "install it first"
            raise ObjectError(f"expected a trigger that is installed, found {name!r}; {hint}")
        return found

    # ── errands ──

    def _install(self, operation: Administer, moment: Moment) -> dict[str, Any]:
        """A trigger, checked and at work from the next event on; an equal one that is there already is that one. One
        of its name in the file that is not at work was lost, and makes room."""
        types = self._types(moment)
        trigger = types.settled(definition.unpack(operation.body))
        known = self.registry.by_fingerprint.get(trigger.fingerprint)
        if known is not None:
            return self._said(known, new=False)
        if trigger.name in self.registry.by_name:
            raise ObjectError(
                f"trigger {trigger.name!r}: expected a new name, or an equal trigger, found another of that name; "
                "change it, or remove it first"
            )
        checked = install(trigger, types, self.node, 0)
        self._check_channel(checked)
        for number in tables.clashing(moment.execute, trigger.name, trigger.fingerprint):
            tables.remove(moment.execute, number)  # it is lost: what is at work was found above
        checked.number = tables.add(moment.execute, trigger.name, trigger.fingerprint, definition.pack(trigger))
        self._keep_types(checked, types, moment)
        self.start(checked, moment.at)
        self.pasts.recount()
        self.wait(checked, moment)
        lost = self.lost.pop(trigger.name, None)
        if lost is not None:
            self.journal.did(lambda: self.lost.__setitem__(trigger.name, lost))
        return self._said(checked, new=True)

    def _keep_types(self, installed: Installed, types: _Types, moment: Moment) -> None:
        """Of channels and objects, which may be gone when the node is opened again."""
        found = {each.listened.name: each.subject for each in installed.condition.entries if each.listened.name}
        for each in installed.trigger.inputs.values():
            name = each.name.partition(".")[0] if "{" not in each.name else ""
            type = types.type_of(name[2:].partition("/")[2]) if name.startswith(f"//{self.node}/") else None
            if type is not None:
                found[name] = type
            if each.method and (gives := types.result(each.type, each.method)) is not None:
                found[_method_key(each.type, each.method)] = gives
        for name, type in found.items():
            if "*" not in name and self._kept.get(name) != type:
                self._kept[name] = type
                self.journal.did(partial(self._kept.pop, name, None))
                tables.keep_type(moment.execute, name, packed(type))

    def _check_channel(self, installed: Installed) -> None:
        """What is told cannot be of another type than the channel has: it would never leave."""
        known = self._channel_type(self.channel(installed))
        if installed.notification is not None and known is not None and known != installed.notification.type:
            raise ObjectError(
                f"trigger {installed.name!r}: expected notifications as channel {self.channel(installed)!r} has had "
                f"them, {shape(known)}, found {shape(installed.notification.type)}; give the trigger another name"
            )

    def _said(self, installed: Installed, *, new: bool) -> dict[str, Any]:
        warnings = [*installed.warnings, *(graph.warnings(installed.trigger, self.registry.listening) if new else ())]
        told = installed.notification is not None
        return {
            "name": installed.name, "number": installed.number, "new": new, "warnings": warnings,
            "channel": self.channel(installed) if told else "",
        }  # fmt: skip

    def _change(self, operation: Administer, moment: Moment) -> dict[str, Any]:
        installed = self.found(operation.name)
        try:
            change = _CHANGE.decode(operation.body)
        except (msgspec.DecodeError, ValueError) as error:
            raise ObjectError(
                f"trigger {operation.name!r}: expected a change of it, found other bytes: {error}"
            ) from None
        return self._said(self._changed(installed, change, moment), new=False)

    def _changed(self, installed: Installed, change: Change, moment: Moment) -> Installed:
        """The same trigger, otherwise: it begins anew, from the next event on, and keeps its place."""
        before = installed.trigger
        params = before.params if change.params is None else {**before.params, **change.params}
        after = msgspec.structs.replace(
            before,
            params=params,
            enabled=before.enabled if change.enabled is None else change.enabled,
            priority=before.priority if change.priority is None else change.priority,
        )
        if after == before:
            return installed
        known = self.registry.by_fingerprint.get(after.fingerprint)
        if known is not None and known is not installed:
            raise ObjectError(
                f"trigger {before.name!r}: expected another than there is, found that {known.name!r} is so"
            )
        made = install(after, self._types(moment), self.node, installed.number)
        made.counts = installed.counts
        self.start(installed, moment.at, -1)
        self.start(made, moment.at)
        self.variables.forget_holding(installed.number)
        tables.change(moment.execute, installed.number, after.fingerprint, definition.pack(after))
        return made

    def _remove(self, operation: Administer, moment: Moment) -> None:
        installed = self.found(operation.name)
        self.start(installed, moment.at, -1)
        self.variables.forget_trigger(installed.number)
        self.pasts.drop_orphans()
        who = self.subscribers.pop(installed.number, None)
        if who is not None:
            self.journal.did(lambda: self.subscribers.__setitem__(installed.number, who))
        tables.remove(moment.execute, installed.number)

    def _subscribe(self, operation: Administer, moment: Moment) -> None:
        number, who = self.found(operation.name).number, operation.body.decode()
        many = self.subscribers.setdefault(number, {})
        if who not in many:
            many[who] = None
            self.journal.did(lambda: many.pop(who, None))
        tables.subscribe(moment.execute, number, who)

    def _unsubscribe(self, operation: Administer, moment: Moment) -> None:
        number, who = self.found(operation.name).number, operation.body.decode()
        many = self.subscribers.get(number, {})
        if who in many:
            del many[who]
            self.journal.did(lambda: many.__setitem__(who, None))
        tables.unsubscribe(moment.execute, number, who)

    def _group(self, operation: Administer, moment: Moment) -> int:
        """All triggers of a group at once: how many there are."""
        enabled = operation.what == "enable group"
        group = [each for each in self.registry if each.trigger.group == operation.name]
        if not group:
            known = {each.trigger.group for each in self.registry if each.trigger.group}
            hint = did_you_mean(operation.name, known) or f"there are {', '.join(sorted(known)) or 'none'}"
            raise ObjectError(f"expected a group of triggers, found {operation.name!r}; {hint}")
        for each in group:
            self._changed(each, Change(enabled=enabled), moment)
        return len(group)

    def _due(self, operation: Administer, moment: Moment) -> bool:
        """A clock says that something is due: whether it is."""
        brought = happening.due(self.deadlines, Deadline(*_unpack(operation.body)), moment)
        if brought is not None:
            moment.happened(*brought)
        return brought is not None

    def _received(self, operation: Administer, moment: Moment) -> None:
        """An event of a channel."""
        type = self._types(moment).channel_type(operation.name)
        if type is None:
            raise ObjectError(f"expected a channel that a trigger listens to, found {operation.name!r}")
        moment.happened(*received(operation.name, type, operation.body))


def _sound(errand: Callable[[], T]) -> T:
    """What an errand returns. It may be made of bytes that hold anything: whatever that leads to is a fault of it, and
    none of the turn's."""
    try:
        return errand()
    except HeadwaterError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        raise ObjectError(
            f"expected an errand in its form, found one that leads to {type(error).__name__}: {error}"
        ) from error


def installing(trigger: Trigger, alias: str = "installed") -> Administer:
    """The operation that installs a trigger."""
    return Administer("install trigger", trigger.name, definition.pack(trigger), alias)


def changing(
    name: str, *, params: Mapping[str, Any] | None = None, enabled: bool | None = None, priority: int | None = None
) -> Administer:
    """The operation that changes one."""
    given = None if params is None else {key: definition.kept(value) for key, value in params.items()}
    return Administer("change trigger", name, _pack(Change(given, enabled, priority)))


def removing(name: str) -> Administer:
    """The operation that removes one."""
    return Administer("remove trigger", name)


def due(deadline: Deadline) -> Administer:
    """The operation of a clock."""
    return Administer("due", deadline.what, _pack(list(deadline)))


def subscribing(name: str, who: str, *, end: bool = False) -> Administer:
    """The operation by which someone asks for a trigger, or does not any more."""
    return Administer("unsubscribe" if end else "subscribe", name, who.encode())


__all__ = ["Change", "Triggers", "changing", "due", "installing", "removing", "subscribing"]
