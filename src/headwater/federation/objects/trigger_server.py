"""The owner's side of triggers that other nodes ask for: they are judged here, and only notifications cross, once for
each node, however many of its programs listen.

Such a trigger tells, and does nothing: what is to be done at this node is for its owner to say. Whoever asks for one
must be allowed to `subscribe` to the changes of all types of objects that it reads, and to `install` code there; and so
of channels that it listens to. It says the types of all objects that it means, and never sees one of another type. Its
name begins with the node that has asked for it, which is the group of its triggers too: its owner may disable them all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import ObjectError
from headwater.federation.objects.rights import may_watch, open_types
from headwater.federation.objects.turns import run
from headwater.federation.wire.object_requests import (
    MOST_ROWS,
    MOST_TEXT,
    MOST_TOLD,
    ChangeTrigger,
    ExplainTrigger,
    InstallTrigger,
    RemoveTrigger,
    TellTriggers,
    TriggerIs,
    TriggerRow,
    TriggersAre,
)
from headwater.federation.wire.requests import Accepted, pack_type, unpack_params
from headwater.objects.operations import MAX_TEXTS, Outcome
from headwater.objects.triggers import definition
from headwater.objects.triggers.administration import changing, installing, removing
from headwater.objects.triggers.firing import CHANNEL as NOTIFICATIONS
from headwater.objects.triggers.history import Count, Over
from headwater.objects.triggers.shares import MOST

if TYPE_CHECKING:
    from headwater.channel.objects.service import Objects
    from headwater.federation.context import Context
    from headwater.federation.objects.budgets import Budgets
    from headwater.federation.peers.request_registry import Caller
    from headwater.objects.triggers.definition import Trigger
    from headwater.objects.triggers.installed import Installed

log = logging.getLogger("headwater")
MOST_TRIGGERS = 1_000  # of one other node
SHORTEST = 100_000  # µs of `every` and `unchanged` in triggers of other nodes
MOST_COST = 1_000_000  # native operations at an event, of all triggers of one other node: about a millisecond
MOST_WORST = 100_000_000  # of one of them, at worst: where texts are as long as can be


class TriggerServer:
    """Of one node. Requests come in threads of the network."""

    def __init__(self, objects: Objects, context: Context, budgets: Budgets) -> None:
        self._objects, self._context, self._budgets = objects, context, budgets
        self._callers: dict[str, Caller] = {}  # by group: who has asked for them, as it was proven last

    def _asked(self, caller: Caller, data: bytes) -> Trigger:
        """What another node wants, as it would be installed for it; ObjectError with all that it may not."""
        group, sent = _group(caller), definition.unpack(data)
        if problems := [*_harmful(sent), *self._hidden(caller, sent)]:
            raise ObjectError("\n".join([f"trigger {sent.name!r}:", *(f"  - {each}" for each in problems)]))
        return msgspec.structs.replace(sent, name=f"{group}.{sent.name}", group=group, priority=0)

    def install(self, caller: Caller, request: InstallTrigger) -> TriggerIs:
        with self._context.decisions.reading():
            return self._installed(caller, self._asked(caller, request.trigger))

    def _installed(self, caller: Caller, made: Trigger) -> TriggerIs:
        group = made.group
        self._callers[group] = caller
        own = [each for each in self._objects.engine.triggers.registry if each.trigger.group == group]
        if len(own) >= MOST_TRIGGERS and all(each.name != made.name for each in own):
            raise ObjectError(f"expected at most {MOST_TRIGGERS:,} triggers of a node, found as many; remove some")
        if made.fingerprint not in self._objects.engine.triggers.registry.by_fingerprint:
            self._must_have_room(made)
        with self._budgets.measured(caller.peer.id):
            prepared = self._objects.engine.prepare_trigger(made)
            if prepared is not None:
                self._must_be_quick(prepared, own)
        outcome = run(self._objects, installing(made))
        said = outcome.results["installed"]
        self._must_still_see(caller, said["name"])
        return self._is(said["name"], outcome, said["warnings"])

    def _must_be_quick(self, made: Installed, own: list[Installed]) -> None:
        """What all triggers of its node cost at one event, and what it costs at worst, is not too much."""
        total = made.cost[0] + sum(each.cost[0] for each in own if each.name != made.name)
        if total > MOST_COST or made.cost[1] > MOST_WORST:
            raise ObjectError(
                f"trigger {made.name!r}: expected triggers of a node to cost at most {MOST_COST:,} native operations "
                f"at an event, all together, and {MOST_WORST:,} at worst, each, found {total:,} and {made.cost[1]:,}; "
                "ask what the index can decide (old and new, compared with constants and parameters), or remove some"
            )

    def _must_have_room(self, trigger: Trigger) -> None:
        """What it would remember of the objects that there are is not too much."""
        engine = self._objects.engine
        each = len(trigger.history) + (trigger.when == "becomes" or any("last" in text for text in trigger.texts))
        shares, count = engine.triggers.shares, 0
        for listened in trigger.on:
            if listened.kind not in ("channel", "every"):
                count += engine.count(listened.name, shares.most_places + 1) if listened.is_pattern else 1
        shares.check(trigger.asker, each * count)

    def _hidden(self, caller: Caller, trigger: Trigger) -> list[str]:
        """What it would see that who asks may not."""
        found = []
        open = open_types(self._context, self._objects, caller.principal)
        for each in trigger.on:
            if each.kind == "channel" and each.name.startswith(
                f"{NOTIFICATIONS}.{self._context.name}.{_group(caller)}."
            ):
                found.append(
                    f"on: {each}: expected no notifications of its own triggers, which could go round for ever"
                )
            elif each.kind == "channel" and not may_watch(self._context, caller.principal, each.name):
                found.append(f"on: {each}: expected a channel that it may subscribe to and install code on")
        if any(each.kind not in ("channel", "every") for each in trigger.on) and trigger.type not in open:
            found.append(
                f"type: expected that of the objects it listens to, which it may watch, found {trigger.type!r}"
            )
        for name, given in trigger.inputs.items():
            if given.type not in open:
                found.append(f"inputs: {name}: expected its type, which it may watch, found {given.type!r}")
        return found

    def rejudge(self, concerns: Callable[[str], bool]) -> None:
        """Policies of these channels have changed: triggers that see what who asked for them may not see any more are
        disabled. Those of nodes that are not known, since they have not asked again, are too."""
        for found in list(self._objects.engine.triggers.registry):
            trigger, caller = found.trigger, self._callers.get(found.trigger.group)
            types = {trigger.type, *(each.type for each in trigger.inputs.values())} - {""}
            channels = {each.name for each in trigger.on if each.kind == "channel"}
            channels |= {
                self._objects.engine.types[name].channel for name in types if name in self._objects.engine.types
            }
            if not trigger.group or ".k" not in trigger.group or not any(map(concerns, channels)):
                continue
            if caller is None or self._hidden(caller, trigger):
                try:
                    run(self._objects, changing(trigger.name, enabled=False))
                except ObjectError as error:  # it is in line, or removed meanwhile: others are judged all the same
                    log.warning("objects: trigger %r is not disabled yet: %s", trigger.name, error)

    def change(self, caller: Caller, request: ChangeTrigger) -> TriggerIs:
        self._must_be_own(_group(caller), request.name)
        self._budgets.check(caller.peer.id)
        with self._context.decisions.reading():
            if request.enabled:
                self._must_see(caller, request.name)
            params = None if request.params is None else unpack_params(request.params)
            outcome = run(self._objects, changing(request.name, params=params, enabled=request.enabled))
            if request.enabled:
                self._must_still_see(caller, request.name)
        return self._is(request.name, outcome, [])

    def _must_see(self, caller: Caller, name: str) -> None:
        """ObjectError if a trigger that is installed sees what who asks may not."""
        if hidden := self._hidden(caller, self._objects.engine.triggers.found(name).trigger):
            raise ObjectError("\n".join([f"trigger {name!r}:", *(f"  - {each}" for each in hidden)]))

    def _must_still_see(self, caller: Caller, name: str) -> None:
        """The same of one that is enabled by now: a policy that has changed before may not have found it."""
        try:
            self._must_see(caller, name)
        except ObjectError:
            run(self._objects, changing(name, enabled=False))
            raise

    def remove(self, caller: Caller, request: RemoveTrigger) -> Accepted:
        self._must_be_own(_group(caller), request.name)
        if request.name in self._objects.engine.triggers.registry.by_name:  # else it was asked before, and not heard of
            run(self._objects, removing(request.name))
        return Accepted()

    # ── telling ──

    def tell(self, caller: Caller, request: TellTriggers) -> TriggersAre:
        """Those that it has installed itself, and those about what it may `inspect`."""
        registry, known = self._objects.engine.triggers.registry, self._known_to(caller)
        if request.name:
            found = registry.by_name.get(request.name)
            if found is None or not known(found):
                raise ObjectError(f"trigger {request.name!r}: expected one that this node may know of, found none")
            text = self._objects.triggers[request.name].explain()
            return TriggersAre([_row(found, text)])
        names = sorted(each.name for each in registry if each.name > request.after and known(each))
        rows = [_row(registry.by_name[name]) for name in names[:MOST_ROWS] if name in registry.by_name]
        return TriggersAre(rows, names[MOST_ROWS - 1] if len(names) > MOST_ROWS else "")

    def _known_to(self, caller: Caller) -> Callable[[Installed], bool]:
        """Which triggers it may know of: by all types of objects and channels that they are about."""
        types, decide, group = self._objects.engine.types, self._context.decisions.decide, _group(caller)
        closed = [each.type for each in types.values() if not decide(caller.principal, "inspect", each.channel)]

        def known(installed: Installed) -> bool:
            if installed.trigger.asker == group:
                return True
            listened = [each.name for each in installed.trigger.on if each.kind == "channel"]
            subjects = [each.subject for each in installed.condition.entries] + list(installed.inputs.values())
            return not any(each in closed for each in subjects) and all(
                decide(caller.principal, "inspect", each) for each in listened
            )

        return known

    def explain(self, caller: Caller, request: ExplainTrigger) -> TriggersAre:
        """One that is not installed: it is checked as if it were to be."""
        made = self._asked(caller, request.trigger)
        with self._budgets.measured(caller.peer.id):
            text = self._objects.engine.explain_trigger(made)
        return TriggersAre([TriggerRow(made.name, _listened(made), made.when, made.enabled, text=text[:MOST_TEXT])])

    def _must_be_own(self, group: str, name: str) -> None:
        if not name.startswith(f"{group}."):
            raise ObjectError(f"trigger {name!r}: expected one that this node has installed, found another")

    def _is(self, name: str, outcome: Outcome, warnings: list[str]) -> TriggerIs:
        triggers = self._objects.engine.triggers
        found = triggers.found(name)
        type = None if found.notification is None else pack_type(found.notification.type)
        if type is None:
            raise ObjectError(f"trigger {name!r}: expected one that notifies, found none")
        self._objects._announce(name)
        told = [each[:1000] for each in warnings[:100]]
        return TriggerIs(name, triggers.channel(found), type, outcome.turn, told)


def _listened(trigger: Trigger) -> str:
    on = trigger.on if trigger.distributed is None else trigger.distributed.on
    return ", ".join(map(str, on))[:MOST_TOLD]


def _row(installed: Installed, text: str = "") -> TriggerRow:
    trigger, counts = installed.trigger, installed.counts
    when = trigger.when if trigger.distributed is None else trigger.distributed.when
    return TriggerRow(
        trigger.name, _listened(trigger), when, trigger.enabled, counts.evaluated, counts.fired, counts.vetoed,
        counts.failed, counts.failure[:MOST_TOLD], text[:MOST_TEXT],
    )  # fmt: skip


def _group(caller: Caller) -> str:
    """Under which the triggers of a node are known: by its name and its key, of which nobody else has both."""
    name, _, key = caller.peer.id.rpartition(".")
    group = f"{name}.k{key}"
    if not all(part.isidentifier() for part in group.replace("-", "_").split(".")):
        raise ObjectError(
            f"expected a node whose name is of letters, digits, _ and -, found {caller.peer.name!r}; name it otherwise"
        )
    return group


def _harmful(trigger: Trigger) -> list[str]:
    """What only the owner may ask for."""
    found = []
    if trigger.distributed is not None:
        found.append("inputs: expected objects of this node: over several nodes it is installed at its own node")
    if trigger.do or trigger.veto or trigger.coupling != "after":
        found.append("do, veto, coupling: expected a trigger of another node to notify and to do nothing else")
    if trigger.notify is None:
        found.append("notify: expected what it tells, found nothing")
    for name, given in trigger.inputs.items():
        if given.method:
            found.append(
                f"inputs: {name}: expected an object or member, found a method: only its owner may have it called"
            )
    length = sum(map(len, set(trigger.texts)))
    if length > MAX_TEXTS:
        found.append(
            f"expected at most {MAX_TEXTS:,} characters of texts in a trigger of another node, found {length:,}"
        )
    for name, past in trigger.history.items():
        if isinstance(past, Over | Count) and past.most > MOST:
            found.append(
                f"history: {name}: most: expected at most {MOST:,} values in a trigger of another node, found "
                f"{past.most:,}"
            )
    for each in trigger.on:
        if each.kind in ("every", "unchanged") and each.length < SHORTEST:
            found.append(f"on: {each}: expected at least {SHORTEST // 1000} ms in a trigger of another node")
    return found


__all__ = ["TriggerServer"]
