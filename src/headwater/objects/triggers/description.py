"""A trigger in words, for people: what it listens to, what decides it and at what cost, what is remembered for it, what
comes of it, and how it went. One that is not installed can be explained too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.durations import shown
from headwater.objects.operations import Guard
from headwater.objects.triggers import graph
from headwater.objects.triggers.definition import Input
from headwater.objects.triggers.history import Count, History, Over
from headwater.objects.triggers.installed import Installed

if TYPE_CHECKING:
    from headwater.interest import Interest
    from headwater.objects.triggers.administration import Triggers
    from headwater.objects.triggers.condition import Condition

_COUPLINGS = {
    "within": "within the transaction that it is about, which fails with it",
    "after": "after what it is about, in the same turn",
    "decoupled": "decoupled, at the back of the queue",
}


def explain(installed: Installed, channel: str = "", triggers: Triggers | None = None) -> str:
    """All that is to be known of a trigger, on some lines; of `triggers`, among which it is, or would be, what is
    remembered at the moment, and whether it may set itself off."""
    trigger, condition = installed.trigger, installed.condition
    state = "" if trigger.enabled else " (disabled)"
    spread = trigger.distributed
    listened = (f"every change of {each}" for each in spread.on) if spread is not None else map(str, trigger.on)
    lines = [f"trigger {trigger.name}{state}", *(f"  on {each}" for each in listened)]
    lines += [f"  reads {name}: {_input(each)}" for name, each in trigger.inputs.items()]
    for name, each in trigger.history.items():
        lines.append(f"  remembers {name}: {_history(each)}, of each object")
        if triggers is not None and name in installed.histories:
            objects, values = triggers.pasts.size(installed.histories[name].key)
            lines.append(
                f"    at the moment of {objects:,}, {values:,} values in all; shared by all that ask for the same"
            )
    asked = trigger if spread is None else spread
    when = "each time" if asked.when == "each" else "when it becomes true that"
    lines.append(f"  fires {when}{f' {asked.where.strip()}' if asked.where.strip() else ''}")
    if condition.parts:
        rest = condition.parts - condition.indexed
        lines.append(f"    {condition.indexed} of {condition.parts} parts decided by the index over the change")
        if rest:
            lines.append(f"    {rest} over {', '.join(sorted(condition.reads))}, for the triggers that it finds")
        if condition.called is not None:
            names = ", ".join(sorted(set(condition.called.members) & installed.calls.keys()))
            lines.append(f"    {names} called when all else holds, once at an event")
        lines.append(f"    one condition {'for each object' if condition.apart else 'for the trigger as a whole'}")
        lines += _costs(condition)
    lines += [f"    :{name} = {value!r}" for name, value in trigger.params.items()]
    if trigger.veto:
        lines.append(f"  refuses the transaction: {trigger.veto}")
    lines += [f"  does {_operation(each)}" for each in trigger.do]
    if trigger.do:
        lines.append(f"    {_COUPLINGS[trigger.coupling]}; if that fails: {trigger.on_failure}")
    if trigger.notify is not None:
        told = ", ".join(f"{name} = {text}" for name, text in trigger.notify.items()) or "that it fired"
        lines.append(f"  tells {told}{f' on {channel}' if channel else ''}")
        lines.append("    one message at each firing for each other node that subscribes; none otherwise")
    group = f", group {trigger.group}" if trigger.group else ""
    number = f"number {installed.number}" if installed.number else "not installed"
    lines.append(f"  priority {trigger.priority}, {number}{group}")
    lines += [f"  warning: {each}" for each in installed.warnings]
    if triggers is not None:
        lines += [f"  warning: {each}" for each in graph.warnings(trigger, triggers.registry.listening)]
        if trigger.asker:
            shares, asker = triggers.shares, trigger.asker
            lines.append(
                f"  of another node, whose triggers remember {shares.places.get(asker, 0):,} of {shares.most_places:,} "
                f"things and {shares.values.get(asker, 0):,} of {shares.most_values:,} values"
            )
    counts = installed.counts
    lines.append(f"  so far: {counts.evaluated} evaluated, {counts.fired} fired, {counts.caused} transactions caused, "
                 f"{counts.vetoed} vetoed, "
                 f"{counts.failed} failed{f' ({counts.failure})' if counts.failure else ''}")  # fmt: skip
    return "\n".join(lines)


def _costs(condition: Condition) -> list[str]:
    """What an event costs, by what the checker counts: where the index is asked, and beyond."""
    found = []
    if condition.indexed:
        found.append(
            f"    the index shares what it asks with other triggers; alone it is {_cost(condition.entries[0].interest)}"
        )
    for what, asked in (("the rest", condition.rest), ("what is called", condition.called)):
        if asked is not None:
            found.append(f"    {what} is {_cost(asked.interest)}")
    return found


def _cost(interest: Interest) -> str:
    cost = interest.cost
    return f"about {cost.estimated:,} {cost.unit}s an event, {cost.worst:,} at most"


def _input(given: Input) -> str:
    if not given.method:
        return given.name
    values = [f"{name}={value!r}" for name, value in given.value.items()]
    values += [f"{name}={text}" for name, text in given.computed.items()]
    return f"{given.method}({', '.join(values)}) of {given.name}"


def _history(history: History) -> str:
    match history:
        case Over(of=of, within=within, most=most):
            return f"{of} of the last {shown(within)}, at most {most:,} values"
        case Count(where=where, within=within):
            return f"how often {where}{f' in the last {shown(within)}' if within else ''}"
        case _:
            return f"whether {history.where} at the event before"


def _operation(operation: Any) -> str:
    if isinstance(operation, Guard):
        return f"only if {operation.condition}"
    parts = [f"{name} = {value!r}" for name, value in getattr(operation, "value", {}).items()]
    parts += [f"{name} = {text}" for name, text in getattr(operation, "computed", {}).items()]
    about = operation.name or getattr(operation, "channel", "")
    event = ", with an event" if getattr(operation, "event", False) else ""
    return f"{operation.verb} {about}{': ' if parts else ''}{', '.join(parts)}{event}"


def report(installed: Installed) -> dict[str, Any]:
    """The counts of a trigger, as plain values."""
    counts = installed.counts
    return {
        "enabled": installed.trigger.enabled, "evaluated": counts.evaluated, "fired": counts.fired,
        "caused": counts.caused,
        "vetoed": counts.vetoed, "failed": counts.failed, "failure": counts.failure,
    }  # fmt: skip


__all__ = ["explain", "report"]
