"""All triggers of a node, found by name, by fingerprint, and by what a change satisfies.

One matcher for each type of objects and phase (within the transaction, or after it) has the entries of the triggers
that are enabled. What a matcher has found is narrowed to what is really meant: a pattern of names is exact only here,
and so is whether a member is another than before. Triggers that it decides alone have matchers of their own: of a
thousand thresholds, five hundred of which hold, the one that begins to hold is a difference of two sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.match import Matcher
from headwater.objects.triggers.condition import Entry, change_type
from headwater.objects.triggers.events import Listened, pattern_of
from headwater.objects.triggers.installed import Installed

if TYPE_CHECKING:
    from headwater.interest import Interest
    from headwater.match.matching import Matching
    from headwater.objects.reactions import Occurrence
    from headwater.objects.triggers.definition import Trigger
    from headwater.types import EventType

Phase = tuple["EventType", bool]  # of which type, and whether within the transaction


class Index:
    """A matcher of one kind of triggers, and which they are. Payloads are what `add` was given."""

    def __init__(self, type: EventType) -> None:
        self._matcher = Matcher(change_type(type), exact_undecided=0)
        self._matching: Matching | None = None
        self.numbers: set[int] = set()

    def add(self, number: int, payload: object, interest: Interest) -> int:
        """An entry, from the next match on; its key."""
        self._matching = None
        self.numbers.add(number)
        return self._matcher.add(payload, interest)

    def remove(self, number: int, key: int) -> bool:
        """An entry of a trigger is no more, nor will its others be; whether it was the last of all."""
        self._matching = None
        self.numbers.discard(number)
        self._matcher.remove(key)
        return not len(self._matcher)

    def match(self, record: bytes) -> Any:
        """The payloads of what the record satisfies."""
        if self._matching is None:
            self._matching = self._matcher.snapshot()
        return self._matching.match(record)


class Registry:
    """The triggers of a node. Who changes it says so to whoever may have to take that back."""

    def __init__(self) -> None:
        self.by_name: dict[str, Installed] = {}
        self.by_fingerprint: dict[bytes, Installed] = {}
        self.by_number: dict[int, Installed] = {}
        self._listening: dict[str, dict[int, Installed]] = {}  # by name
        self.channels: dict[str, EventType] = {}  # that are listened to
        self.spread: dict[int, Installed] = {}  # over values of several nodes
        self._listening_wide: dict[int, Installed] = {}  # by patterns of names
        self.plain: set[int] = set()  # triggers that an index decides alone
        self._indexes: dict[Phase, dict[str | None, Index]] = {}

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[Installed]:
        return iter(list(self.by_name.values()))

    def add(self, installed: Installed) -> None:
        """It is there and, if enabled, at work from the next event on."""
        trigger = installed.trigger
        self.by_name[trigger.name] = self.by_fingerprint[trigger.fingerprint] = installed
        self.by_number[installed.number] = installed
        self._listen(installed)
        if trigger.distributed is not None:
            self.spread = {**self.spread, installed.number: installed}  # others look at it too
        if installed.plain is not None:
            self.plain.add(installed.number)
        if trigger.enabled:
            for entry in installed.condition.entries:
                phase = entry.subject, trigger.coupling == "within"
                indexes = self._indexes.setdefault(phase, {})
                index = indexes.get(installed.plain)
                if index is None:
                    index = indexes[installed.plain] = Index(entry.subject)
                payload = (installed, entry) if installed.plain is None else installed.number
                installed.keys.append((entry.subject, index.add(installed.number, payload, entry.interest)))

    def remove(self, installed: Installed) -> None:
        """It is not there any more."""
        trigger = installed.trigger
        self.by_name.pop(trigger.name, None)
        self.by_fingerprint.pop(trigger.fingerprint, None)
        self.by_number.pop(installed.number, None)
        self._listen(installed, end=True)
        if installed.number in self.spread:
            self.spread = {number: each for number, each in self.spread.items() if number != installed.number}
        self.plain.discard(installed.number)
        for subject, key in installed.keys:
            phase = subject, trigger.coupling == "within"
            index = self._indexes[phase][installed.plain]
            if index.remove(installed.number, key):
                del self._indexes[phase][installed.plain]
            if not self._indexes[phase]:
                del self._indexes[phase]
        installed.keys.clear()

    def _listen(self, installed: Installed, *, end: bool = False) -> None:
        for listened in installed.trigger.on:
            many = self._listening_wide
            if not listened.is_pattern:
                many = self._listening.setdefault(listened.subject, {})
            if end:
                many.pop(installed.number, None)
            else:
                many[installed.number] = installed
            if not many:
                self._listening.pop(listened.subject, None)
        for entry in installed.condition.entries:
            if entry.listened.kind == "channel":
                self.channels[entry.listened.name] = entry.subject
        self.channels = {name: type for name, type in self.channels.items() if name in self._listening}

    def listening(self, name: str) -> list[Trigger]:
        """Enabled triggers that may listen to this object or channel, or, if it is a pattern, to any of them."""
        if "*" in name:
            found = [each for many in self._listening.values() for each in many.values()]
        else:
            found = list(self._listening.get(name, {}).values())
        return [each.trigger for each in (*found, *self._listening_wide.values()) if each.trigger.enabled]

    def within(self) -> bool:
        """Whether any trigger is coupled within transactions."""
        return any(phase[1] for phase in self._indexes)

    def found(self, occurrence: Occurrence, object: str, *, within: bool, held: Set[int]) -> Found:
        """What the indexes say of a change; `held` are the triggers whose condition held of this object."""
        indexes = self._indexes.get((occurrence.type, within))
        if indexes is None:
            return NOTHING_FOUND
        change = {"object": object, "op": occurrence.op, "old": occurrence.old_raw, "new": occurrence.new_raw}
        record = change_type(occurrence.type).encode(change)
        asked: dict[int, Installed] = {}
        begun: list[Installed] = []
        ceased: list[int] = []
        for member, index in indexes.items():
            if member is None:
                hits: list[tuple[Installed, Entry]] = index.match(record)
                asked = {each.number: each for each, entry in hits if meant(entry.listened, occurrence)}
            elif occurrence.op in ("updated", "raised") and (not member or is_other(member, occurrence)):
                true = set(index.match(record))
                begun += map(self.by_number.__getitem__, true - held)
                ceased += (held & index.numbers) - true
        return Found(list(asked.values()), begun, ceased)


class Found(NamedTuple):
    """Triggers to be asked for the rest, those whose condition is known to hold now and did not before, and those
    whose condition held and does not any more, by number."""

    asked: list[Installed]
    begun: list[Installed]
    ceased: list[int]


NOTHING_FOUND = Found([], [], [])


def meant(listened: Listened, occurrence: Occurrence) -> bool:
    """Of what the matcher has found: whether that object is meant, and that member."""
    if listened.is_pattern and not pattern_of(listened.name).matches(occurrence.object):
        return False
    if listened.member and listened.kind == "change":
        return is_other(listened.member, occurrence)
    return True


def is_other(member: str, occurrence: Occurrence) -> bool:
    """Whether a member is concerned: it was raised, or it is another than before."""
    if occurrence.op == "raised":
        return not occurrence.members or any(_overlap(member, each) for each in occurrence.members)
    return not same(reached(occurrence.old_raw, member), reached(occurrence.new_raw, member))


def _overlap(a: str, b: str) -> bool:
    return a == b or a.startswith(f"{b}.") or b.startswith(f"{a}.")


def reached(raw: Any, path: str) -> Any:
    """A member of a raw form; None where it, or what it is in, is missing, or is none of that type."""
    for step in path.split("."):
        raw = None if raw is None else raw.get(step)
    return raw


def same(a: Any, b: Any) -> bool:
    """Whether two raw values are the same; NaN is as NaN."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return all(same(a[name], b[name]) for name in a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b or (a != a and b != b))


__all__ = ["Registry", "is_other", "meant", "reached", "same"]
