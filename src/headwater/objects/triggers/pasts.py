"""The histories of all objects: which are kept, for whom, and where in the file.

A history is asked for by what a trigger listens to, a name or a pattern of names, and shared by its key. It begins when
an event of the object first comes after it was asked for, and ends with the object, or with the last that asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.objects.journal import Journal
from headwater.objects.triggers import tables
from headwater.objects.triggers.events import pattern_of
from headwater.objects.triggers.history import Over, Past, Row
from headwater.objects.triggers.installed import Installed, Remembered

if TYPE_CHECKING:
    from headwater.store.migrations import Execute

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgpack_decoder(Any).decode


@dataclass
class _Asked:
    """A history that someone asks for, and by how many."""

    remembered: Remembered
    times: int = 0


class Pasts:
    """All histories. Objects go by their whole names."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._names: dict[str, dict[bytes, _Asked]] = {}
        self._patterns: dict[str, dict[bytes, _Asked]] = {}
        self._pasts: dict[tuple[str, bytes], Past] = {}
        self._numbers: dict[tuple[str, bytes], int] = {}  # in the file
        self._dirty: dict[tuple[str, bytes], None] = {}

    def __len__(self) -> int:
        return len(self._pasts)

    # ── who asks ──

    def ask(self, installed: Installed, times: int = 1) -> None:
        """A trigger asks for its histories; with -1, it does not any more."""
        for listened in installed.trigger.on:
            among = self._patterns if listened.is_pattern else self._names
            for each in installed.histories.values():
                kinds = among.setdefault(listened.name, {})
                asked = kinds.setdefault(each.key, _Asked(each))
                asked.times += times
                if asked.times <= 0:
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

    # ── events ──

    def take(self, object: str, time: int, pair: Mapping[str, Any], *, silent: bool = False) -> None:
        """An event of an object, or a silent update, which only values over a time take in."""
        if not self._names and not self._patterns:
            return
        for key, remembered in self.of(object).items():
            if silent and not isinstance(remembered.history, Over):
                continue
            past = self._pasts.get((object, key))
            if past is None:
                past = self._begin(object, remembered)
            past.take(time, remembered.value(pair))
            self._dirty[object, key] = None

    def _begin(self, object: str, remembered: Remembered) -> Past:
        made = self._pasts[object, remembered.key] = Past(remembered.history, self._journal)
        self._journal.did(lambda: self._pasts.pop((object, remembered.key), None))
        return made

    def view(self, object: str, remembered: Remembered, now: int) -> dict[str, Any]:
        """What a condition reads of a history; that of an object without events is empty."""
        past = self._pasts.get((object, remembered.key))
        return (past or Past(remembered.history, self._journal)).view(now)

    def end(self, object: str) -> None:
        """The object is no more, nor are its histories."""
        for key in self.of(object):
            self._drop((object, key))

    def drop_orphans(self) -> None:
        """Histories that nobody asks for any more."""
        for each in [each for each in self._pasts if each[1] not in self.of(each[0])]:
            self._drop(each)

    def _drop(self, each: tuple[str, bytes]) -> None:
        past = self._pasts.pop(each, None)
        if past is not None:
            self._dirty[each] = None
            self._journal.did(lambda: self._pasts.__setitem__(each, past))

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
