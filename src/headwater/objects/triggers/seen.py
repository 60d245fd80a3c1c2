"""The scope of a trigger at one event: each member is worked out when something reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.objects.names import object_name
from headwater.objects.triggers.calls import Results
from headwater.objects.triggers.definition import NAME, OBJECT
from headwater.objects.triggers.distributed import VALUES
from headwater.objects.triggers.registry import reached

if TYPE_CHECKING:
    from headwater.objects.journal import Kept
    from headwater.objects.methods import Methods
    from headwater.objects.reactions import Moment, Occurrence
    from headwater.objects.triggers.installed import Installed
    from headwater.objects.triggers.pasts import Pasts
    from headwater.objects.triggers.variables import Variables


class World:
    """What scopes are made of, besides the event."""

    def __init__(self, pasts: Pasts, variables: Variables, previous: Kept[str, bytes], methods: Methods) -> None:
        self.pasts, self.variables, self.previous = pasts, variables, previous
        self.results = Results(methods)


class Seen(dict[str, Any]):
    """Members of the scope in raw form, by name."""

    def __init__(
        self, installed: Installed, occurrence: Occurrence, object: str, key: str, moment: Moment, world: World
    ) -> None:
        super().__init__(old=occurrence.old_raw, new=occurrence.new_raw)
        self._of = installed, occurrence, object, key, moment, world

    def __missing__(self, name: str) -> Any:
        installed, occurrence, object, key, _, world = self._of
        if name == "event":
            at = occurrence.at
            made: Any = {"object": object, "op": str(occurrence.op), "time": at, "turn": occurrence.turn}
        elif name == "last":
            last = world.variables.get(installed.number, key).last
            made = None if last is None or installed.subject is None else installed.subject.decode_raw(last)
        elif name == "previous":
            made = {each: self._previous(each) for each in installed.trigger.inputs if each not in installed.calls}
        elif name in installed.histories:
            made = world.pasts.view(object, installed.histories[name], occurrence.at)
        elif name in installed.calls:
            made = self._result(name)
        else:
            made = self._input(name)
        self[name] = made
        return made

    def _place(self, name: str) -> tuple[str, str]:
        """The object and member that an input stands for here."""
        installed, _, object, _, moment, _ = self._of
        text = installed.trigger.inputs[name].name
        if "{" in text:
            text = text.replace(OBJECT, object).replace(NAME, object.rpartition("/")[2])
        found = object_name(text, moment.node)
        return found.object, found.member

    def _input(self, name: str) -> Any:
        """As it is now; missing, where an object of that name is of another type by now."""
        if self._of[0].trigger.distributed is not None:
            told = (self["new"] or {}).get(VALUES)
            return None if told is None else told.get(name)
        path, member = self._place(name)
        found = self._of[4].value(path)
        if found is None or found[0] != self._of[0].inputs[name]:
            return None
        return reached(found[2], member) if member else found[2]

    def _result(self, name: str) -> Any:
        """What a method of an object returns; missing, where there is no such object of that type."""
        installed, _, _, _, moment, world = self._of
        path, _ = self._place(name)
        found, type = moment.value(path), moment.type_name(path)
        if found is None or type is None or found[0] != installed.inputs[name]:
            return None
        return world.results.of(installed.calls[name], path, type, found[0].decode(found[1]), self)

    def _previous(self, name: str) -> Any:
        """As it was before it last changed."""
        _, occurrence, _, _, moment, world = self._of
        path, member = self._place(name)
        if path == occurrence.object and occurrence.op == "updated":
            raw = occurrence.old_raw
        else:
            found, record = moment.value(path), world.previous.get(path)
            known = found is not None and found[0] == self._of[0].inputs[name]
            raw = found[0].decode_raw(record) if found is not None and known and record is not None else None
        return reached(raw, member) if member and raw is not None else raw
