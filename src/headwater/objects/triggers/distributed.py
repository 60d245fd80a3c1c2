"""What a trigger over values of several nodes is besides: its condition, of which other rooms find out when it is true.

At its home such a trigger listens to nothing but that: each firing is brought to it as an event, `decided NAME`, whose
record (`decided`) has the time of the crossing and what is known of the inputs then. So everything else about it is as
of any other trigger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from headwater.types.model import BOOL, F64, TIMESTAMP, Field, Record

if TYPE_CHECKING:
    from headwater.objects.triggers.definition import Trigger

Scheme = Literal["zones", "simple"]
SCHEMES: tuple[Scheme, ...] = ("zones", "simple")
VALUES = "values"  # the field of a firing that has the inputs
FIRED = "fired"  # what happens to it, as `event.op` says
HEAD = (Field("time", TIMESTAMP), Field("earliest", TIMESTAMP), Field("error", F64), Field("late", BOOL))


class Distributed(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The part of a trigger that is decided over several nodes. `on` are the objects whose events count, where it fires
    at each; `inputs` and `decided` are types, packed: of what the condition reads, and of what a firing tells."""

    where: str
    when: Literal["each", "becomes"]
    inputs: bytes
    decided: bytes
    on: tuple[str, ...] = ()
    scheme: Scheme = "zones"


def decided_record(values: Record | None) -> Record:
    """What a firing has: by the owners' clocks, `time` and, after a time that was unknown, the `earliest` at which it
    may have been; their stated `error` in seconds; whether it had been declared unknown (`late`); and of the inputs
    what had to be known to decide it."""
    return Record("Decided", (*HEAD, *([Field(VALUES, values)] if values is not None else [])))


def form_of_distributed(trigger: Trigger) -> list[str]:
    """What is wrong with a trigger over several nodes, or only such a one may have."""
    spread = trigger.distributed
    if spread is None:
        return [f"on: {each}: expected something that happens here" for each in trigger.on if each.kind == "decided"]
    found = []
    if [each.kind for each in trigger.on] != ["decided"] or trigger.on[0].name != trigger.name:
        found.append("on: expected nothing but that it is decided")
    if spread.when not in ("each", "becomes"):
        found.append(f"when: expected 'each' or 'becomes', found {spread.when!r}")
    if not spread.where.strip():
        found.append("where: expected a condition over inputs of several nodes, found none")
    if spread.scheme not in SCHEMES:
        found.append(f"scheme: expected 'zones' or 'simple', found {spread.scheme!r}")
    if trigger.veto or trigger.coupling == "within":
        found.append("coupling, veto: expected 'after' or 'decoupled': there is no transaction here to be a part of")
    if trigger.on_failure != "report":
        found.append("on_failure: expected 'report': there is no turn here that could be undone")
    if trigger.history:
        found.append("history: expected none: that is kept of objects of one node; keep it there, in an object")
    if any("{" in (getattr(each, "name", "") or "") for each in trigger.do):
        found.append("do: expected whole names of objects: over several nodes there is no one object that it is about")
    found += [
        f"inputs: {name}: expected the name of an object, found {given.name!r}"
        for name, given in trigger.inputs.items()
        if "{" in given.name or "*" in given.name
    ]
    found += [
        f"inputs: {name}: expected an object or a member, found what a method of it returns"
        for name, given in trigger.inputs.items()
        if given.method
    ]
    return found


__all__ = ["FIRED", "HEAD", "SCHEMES", "VALUES", "Distributed", "Scheme", "decided_record", "form_of_distributed"]
