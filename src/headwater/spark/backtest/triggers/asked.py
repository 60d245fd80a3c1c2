"""A trigger as a file or a program asks for it to be tried on recorded changes.

[[trigger]]
name = "low"
on = "stock/*.price"                 # as `objects.trigger` takes it; one, or a list of them
type = "Stock"
when = "becomes"
where = "new.price < :limit"
params = {limit = 90.0}
inputs = {desk = "desk"}             # an object or member, or {name = "desk", type = "Desk"}
history = {minute = {over = "new.price", within = "60 s"}}   # or {count = "…", within = "1 h"}, or {was = "…"}
notify = {price = "new.price"}       # or true, an expression, or a list; true unless it is said
veto = "no such price"               # with coupling = "within"

Names without an owner are tried at every node of the recording. One whose inputs are of several nodes needs no `on`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headwater.channel.objects.triggers import operations
from headwater.errors import ConfigError, ConfigProblem, HeadwaterError, ObjectError
from headwater.objects.triggers import definition
from headwater.objects.triggers.definition import Trigger, count, over, was
from headwater.objects.triggers.history import History
from headwater.objects.zones.distribution import owners_of

KEYS = ("name", "on", "when", "where", "type", "inputs", "history", "params", "notify", "veto", "coupling", "priority")
OWNER = "//"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTrigger:
    """What `objects.trigger` takes. Its action is not carried out; where it cannot be computed it does not fire."""

    name: str
    on: str | Sequence[str] = ()
    when: Any
    where: str = ""
    type: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    history: Mapping[str, History] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    do: Any = ()
    notify: Any = False
    veto: str = ""
    priority: int = 0
    coupling: Any = "after"
    place: str = ""  # where it was written

    def at(self, node: str) -> Trigger:
        """As that of a node."""
        return definition.trigger(
            self.name, on=self.on, when=self.when, where=self.where, type=self.type, inputs=self.inputs,
            history=self.history, do=operations(node, self.do), notify=self.notify, veto=self.veto,
            priority=self.priority, coupling=self.coupling, params=self.params, node=node,
        )  # fmt: skip


def owners(trigger: Trigger) -> set[str]:
    """The nodes whose objects it names."""
    names = [each.name for each in trigger.on if each.name.startswith(OWNER)]
    names += [each.name for each in trigger.inputs.values() if each.name.startswith(OWNER)]
    return {name[2:].partition("/")[0] for name in names}


def over_several(asked: AskedTrigger) -> bool:
    """Whether it is one over objects of several nodes."""
    return len(owners_of(asked.on, asked.inputs, "")) > 1


def placed(asked: Iterable[AskedTrigger | Trigger], nodes: Sequence[str]) -> dict[str, list[Trigger]]:
    """Which triggers are tried at which nodes; a ConfigError has everything that is wrong with their form."""
    problems: list[ConfigProblem] = []
    made: dict[str, list[Trigger]] = {node: [] for node in nodes}
    seen: set[str] = set()
    for number, each in enumerate(asked, 1):
        place = (each.place if isinstance(each, AskedTrigger) else "") or f"trigger {number}"
        if each.name in seen:
            problems.append(ConfigProblem(f"{place} name", "a name of its own", f"{each.name!r} again"))
        seen.add(each.name)
        try:
            found = [(node, each.at(node) if isinstance(each, AskedTrigger) else each) for node in nodes]
        except (HeadwaterError, TypeError, ValueError) as error:
            problems.append(ConfigProblem(f"{place} {each.name!r}", "a trigger", _indented(error)))
            continue
        here = [(node, trigger) for node, trigger in found if owners(trigger) <= {node}]
        if not here:
            named = sorted({owner for _, trigger in found for owner in owners(trigger)} - set(nodes)) or ["several"]
            expected = f"objects of one node of the recording: {', '.join(nodes) or 'there is none'}"
            problems.append(ConfigProblem(f"{place} {each.name!r}", expected, f"some of {', '.join(named)}"))
        for node, trigger in here:
            made[node].append(trigger)
    if not seen:
        problems.append(ConfigProblem("triggers", "at least one", "none"))
    if problems:
        raise ConfigError(problems)
    return {node: triggers for node, triggers in made.items() if triggers}


def _indented(error: BaseException) -> str:
    return "\n    ".join(str(error).splitlines())


# ── from files ──


class Reading(Protocol):
    """Whoever reads a file, and keeps what is wrong with it."""

    where: str

    def say(self, place: str, expected: str, found: str, hint: str | None = None) -> None:
        """Something is wrong."""
        ...

    def known(self, table: Mapping[str, Any], keys: tuple[str, ...], place: str) -> None:
        """A table has no other keys than these."""
        ...

    def named(self, table: Mapping[str, Any], place: str, number: int) -> str:
        """The name of a table, or its number where it has none."""
        ...

    def table(self, table: Mapping[str, Any], key: str, place: str) -> Iterable[tuple[str, Any]]:
        """What is in a table within a table."""
        ...

    def param(self, value: Any, place: str) -> Any:
        """The value of a parameter."""
        ...


def asked_of(reading: Reading, number: int, table: Mapping[str, Any]) -> AskedTrigger:
    """A trigger as a file has it; it is checked when the objects are known."""
    place = f"trigger {number}"
    name = reading.named(table, place, number)
    place = f"{place} {name!r}"
    reading.known(table, KEYS, place)
    spread = any(isinstance(each, str) and each.startswith(OWNER) for each in dict(inputs_of(table)).values())
    for key, expected in (("on", "what it listens to"), ("when", "'each' or 'becomes'")):
        if key not in table and not (spread and key == "on"):
            reading.say(f"{place} {key}", expected, "none")
    history: dict[str, History] = {}
    for key, given in reading.table(table, "history", place):
        try:
            history[key] = _history(given)
        except (HeadwaterError, TypeError, AttributeError) as error:
            reading.say(f"{place} history.{key}", "{over = …, within = …}, {count = …} or {was = …}", str(error))
    inputs: dict[str, str | tuple[str, str]] = {}
    for key, given in reading.table(table, "inputs", place):
        if isinstance(given, str):
            inputs[key] = given
        elif isinstance(given, dict) and given.keys() == {"name", "type"}:
            inputs[key] = given["name"], given["type"]
        else:
            reading.say(f"{place} inputs.{key}", "the name of an object, or {name = …, type = …}", repr(given)[:60])
    params = {
        key: reading.param(value, f"{place} params.{key}") for key, value in reading.table(table, "params", place)
    }
    rest = {key: table[key] for key in ("where", "type", "veto", "coupling", "priority") if key in table}
    return AskedTrigger(
        name=name, on=table.get("on", () if spread else ""), when=table.get("when", ""), history=history,
        inputs=inputs, params=params, notify=table.get("notify", "veto" not in table),
        place=f"{reading.where}: trigger {number}", **rest,
    )  # fmt: skip


def inputs_of(table: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """The names of the objects that a table reads, by input, as far as it is in its form."""
    given = table.get("inputs", {})
    for key, each in given.items() if isinstance(given, dict) else ():
        yield key, each.get("name") if isinstance(each, dict) else each


def _history(given: Mapping[str, Any]) -> History:
    kinds: dict[str, Any] = {"over": over, "count": count, "was": was}
    found = [kind for kind in kinds if kind in given]
    if len(found) != 1:
        raise ObjectError(f"expected one of over, count and was, found {', '.join(given) or 'nothing'}")
    rest = {name: value for name, value in given.items() if name != found[0]}
    made: History = kinds[found[0]](given[found[0]], **rest)
    return made


__all__ = ["AskedTrigger", "Reading", "asked_of", "over_several", "owners", "placed"]
