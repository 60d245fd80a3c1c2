"""The histories of all objects: which are kept, for whom, and where in the file.

A history is asked for by what a trigger listens to, a name or a pattern of names, and shared by its key. It begins when
an event of the object first comes after it was asked for, and ends with the object, or with the last that asked.
Those that only other nodes ask for are counted in their shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.objects.journal import Journal
from headwater.objects.triggers import tables
from headwater.objects.triggers.events import pattern_of
from headwater.objects.triggers.history import Over, Past, Row
from headwater.objects.triggers.installed import Installed, Remembered
from headwater.objects.triggers.shares import Shares

if TYPE_CHECKING:
    from headwater.store.migrations import Execute
    from headwater.types import EventType

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgpack_decoder(Any).decode


@dataclass
class _Asked:
    """A history that someone asks for, and by how many triggers of each other node; of the owner's own: of nobody."""

    remembered: Remembered
    askers: dict[str, int] = field(default_factory=dict)


class Pasts:
    """All histories. Objects go by their whole names."""

    def __init__(self, journal: Journal, shares: Shares) -> None:
        self._journal, self._shares = journal, shares
        self._payers: dict[tuple[str, bytes], tuple[str, ...]] = {}  # other nodes in whose shares it is counted
        self._names: dict[str, dict[bytes, _Asked]] = {}
        self._patterns: dict[str, dict[bytes, _Asked]] = {}
        self._pasts: dict[tuple[str, bytes], Past] = {}
        self._numbers: dict[tuple[str, bytes], int] = {}  # in the file
        self._dirty: dict[tuple[str, bytes], None] = {}

    def __len__(self) -> int:
        return len(self._pasts)

    def size(self, key: bytes) -> tuple[int, int]:
        """Of how many objects a history is kept, and how many values; any thread may ask."""
        found = [past for each, past in list(self._pasts.items()) if each[1] == key]
        return len(found), sum(map(len, found))

    # ── who asks ──

    def ask(self, installed: Installed, times: int = 1) -> None:
        """A trigger asks for its histories; with -1, it does not any more."""
        for listened in installed.trigger.on:
            among = self._patterns if listened.is_pattern else self._names
            for each in installed.histories.values():
                kinds = among.setdefault(listened.name, {})
                asked = kinds.setdefault(each.key, _Asked(each))
                asker = installed.trigger.asker
                asked.askers[asker] = asked.askers.get(asker, 0) + times
                if asked.askers[asker] <= 0:
                    del asked.askers[asker]
                if not asked.askers:
                    del kinds[each.key]
                if not kinds:
                    del among[listened.name]

    def of(self, object: str) -> dict[bytes, Remembered]:
        """The histories that are asked for of this object, by key."""
        found = {key: each.remembered for key, each in self._names.get(object, {}).items()}
        if self._patterns:
            path = object[2:].partition("/")[2]
            for name, kinds in self._patterns.items():
                if pattern_of(name).matches(path):
                    found |= {key: each.remembered for key, each in kinds.items()}
        return found

    def _askers(self, object: str, key: bytes) -> tuple[str, ...]:
        """Other nodes that ask for a history; none if the owner does too."""
        path = object[2:].partition("/")[2]
        many = [
            self._names.get(object, {}),
            *(k for name, k in self._patterns.items() if pattern_of(name).matches(path)),
        ]
        askers = {each for kinds in many if key in kinds for each in kinds[key].askers}
        return () if "" in askers else tuple(sorted(askers))

    def _count(self, each: tuple[str, bytes], past: Past, payers: tuple[str, ...], times: int) -> None:
        """Count a history in shares, or no more."""
        if payers:
            self._shares.place(payers, times)
            self._shares.value(payers, times * len(past))
            if times > 0:
                self._payers[each] = payers
            else:
                self._payers.pop(each, None)

    # ── events ──

    def take(self, object: str, type: EventType, time: int, pair: Mapping[str, Any], *, silent: bool = False) -> None:
        """An event of an object, or a silent update, which only values over a time take in. A pattern of names may fit
        objects of other types than the history is of."""
        if not self._names and not self._patterns:
            return
        for key, remembered in self.of(object).items():
            if remembered.type != type or (silent and not isinstance(remembered.history, Over)):
                continue
            past = self._pasts.get((object, key))
            if past is None:
                past = self._begin(object, remembered)
            if past is not None:
                payers = self._payers.get((object, key), ())
                before = len(past)
                past.take(time, remembered.value(pair))
                if payers:
                    self._pay(past, payers, before)
                self._dirty[object, key] = None

    def _pay(self, past: Past, payers: tuple[str, ...], before: int) -> None:
        """Count the values of a history in shares; of those that are full, its oldest goes."""
        if len(past) > before and not self._shares.has_values(payers):
            past.shorten()
        more = len(past) - before
        self._shares.value(payers, more)
        self._journal.did(lambda: self._shares.value(payers, -more))

    def _begin(self, object: str, remembered: Remembered) -> Past | None:
        """A history of an object; None if who asks for it has no place left."""
        each = object, remembered.key
        payers = self._askers(*each)
        if payers and self._shares.full(payers):
            return None
        made = self._pasts[each] = Past(remembered.history, self._journal)
        self._count(each, made, payers, 1)

        def undo() -> None:
            self._pasts.pop(each, None)
            self._count(each, made, payers, -1)

        self._journal.did(undo)
        return made

    def view(self, object: str, remembered: Remembered, now: int) -> dict[str, Any]:
        """What a condition reads of a history; that of an object without events is empty. ObjectError where it is not
        kept, for want of room."""
        past = self._pasts.get((object, remembered.key))
        if past is None and self._shares.places and (full := self._shares.full(self._askers(object, remembered.key))):
            raise self._shares.refusal(full, object)
        return (past or Past(remembered.history, self._journal)).view(now)

    def end(self, object: str) -> None:
        """The object is no more, nor are its histories."""
        for key in self.of(object):
            self._drop((object, key))

    def drop_orphans(self) -> None:
        """Histories that nobody asks for any more."""
        for each in [each for each in self._pasts if each[1] not in self.of(each[0])]:
            self._drop(each)
        self.recount()

    def recount(self) -> None:
        """A trigger has come or gone: who pays for which history."""
        if not self._payers and not any(each.askers.keys() - {""} for each in self._all()):
            return
        for each, past in self._pasts.items():
            before, after = self._payers.get(each, ()), self._askers(*each)
            if before != after:
                self._repay(each, past, before, after)

    def _all(self) -> Iterator[_Asked]:
        for among in (self._names, self._patterns):
            for kinds in among.values():
                yield from kinds.values()

    def _repay(self, each: tuple[str, bytes], past: Past, before: tuple[str, ...], after: tuple[str, ...]) -> None:
        def turned(old: tuple[str, ...], new: tuple[str, ...]) -> None:
            self._count(each, past, old, -1)
            self._count(each, past, new, 1)

        turned(before, after)
        self._journal.did(lambda: turned(after, before))

    def _drop(self, each: tuple[str, bytes]) -> None:
        past, payers = self._pasts.pop(each, None), self._payers.get(each, ())
        if past is None:
            return
        self._dirty[each] = None
        self._count(each, past, payers, -1)

        def undo() -> None:
            self._pasts[each] = past
            self._count(each, past, payers, 1)

        self._journal.did(undo)

    # ── the file ──

    def write(self, execute: Execute) -> None:
        """What has changed since the last time."""
        for each in self._dirty:
            past, number = self._pasts.get(each), self._numbers.get(each)
            if past is None:
                if number is not None:
                    tables.remove_past(execute, number)
                    self._forget(each, number)
                continue
            if number is None:
                number = tables.add_past(execute, *each)
                self._numbers[each] = number
                self._journal.did(partial(self._numbers.pop, each, None))
            written = past.written()
            tables.write_values(execute, number, written.first, written.rows, _pack)
            past.settled()
        if self._dirty:
            written_all, self._dirty = self._dirty, {}
            self._journal.did(lambda: self._dirty.update(written_all))

    def _forget(self, each: tuple[str, bytes], number: int) -> None:
        del self._numbers[each]
        self._journal.did(lambda: self._numbers.__setitem__(each, number))

    def load(self, execute: Execute) -> None:
        """What the file has, once all triggers have asked."""
        for number, object, key in tables.pasts(execute):
            remembered = self.of(object).get(key)
            if remembered is None:
                tables.remove_past(execute, number)
                continue
            past = self._pasts[object, key] = Past(remembered.history, self._journal)
            past.load(Row(n, time, _unpack(value)) for n, time, value in tables.values(execute, number))
            self._numbers[object, key] = number
            self._count((object, key), past, self._askers(object, key), 1)
