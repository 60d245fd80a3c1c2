"""The catalogue of a node's library: what was published there, and what it has fetched to use. The rules:

immutable   a version of a name stands for one program for ever; another one is refused
owned       a name is of who has published it first, as far as this node knows; others are refused, and told
withdrawn   by its owner, a version is not given out any more, and its number is not used again
bounded     what was published here is refused when there is no more room; of what was fetched the oldest goes
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError, LibraryError, StoreError
from headwater.spelling import did_you_mean

if TYPE_CHECKING:
    from headwater.services.library.entry import LibraryEntry
    from headwater.services.library.tables import KeptEntry, LibraryTables

log = logging.getLogger("headwater")
MOST_PUBLISHED, MOST_PUBLISHED_BYTES = 10_000, 64 << 20
MOST_FETCHED, MOST_FETCHED_BYTES = 1_000, 16 << 20
MOST_OWNERS = 20_000  # names of which it is known whose they are
MOST_CONFLICTS = 100  # that are remembered
Key = tuple[str, int]


class Catalogue:
    """Of one node; threads may share it. `kept`: the tables of its state; None: it is in memory only."""

    def __init__(
        self,
        kept: LibraryTables | None = None,
        *,
        published: tuple[int, int] = (MOST_PUBLISHED, MOST_PUBLISHED_BYTES),
        fetched: tuple[int, int] = (MOST_FETCHED, MOST_FETCHED_BYTES),
        owners: int = MOST_OWNERS,
    ) -> None:
        self._kept, self._most, self._most_fetched, self._most_owners = kept, published, fetched, owners
        self._lock = threading.RLock()
        self._published: dict[Key, LibraryEntry] = {}
        self._fetched: OrderedDict[Key, LibraryEntry] = OrderedDict()  # the one used last is the last
        self._numbers: dict[str, set[int]] = {}  # by name: the versions that are here
        self._bytes = {True: 0, False: 0}  # of those published, and of those fetched
        self._owners: dict[str, str] = {}
        self.conflicts: deque[str] = deque(maxlen=MOST_CONFLICTS)  # what was refused, since another one is here
        self.evicted = self.damaged = 0

    def load(self, read: Callable[[KeptEntry], LibraryEntry]) -> None:
        """What the node's state has; `read` makes an entry of a row. What is damaged is left out, and counted."""
        if self._kept is None:
            return
        with self._lock:
            self._owners = self._kept.owners()
            for row in self._kept.entries():
                try:
                    made = read(row)
                except HeadwaterError as error:
                    self.damaged += 1
                    log.error("library: an entry of the state cannot be read: %s", error)
                    continue
                self._put(replace(made, withdrawn=row.withdrawn, withdrawal=row.withdrawal), row.published)

    # ── what there is ──

    def get(self, name: str, version: int) -> LibraryEntry | None:
        """That version, withdrawn or not; None if it is not here."""
        with self._lock:
            found = self._published.get((name, version))
            if found is None and (found := self._fetched.get((name, version))) is not None:
                self._fetched.move_to_end((name, version))
            return found

    def versions(self, name: str) -> list[LibraryEntry]:
        """All versions of a name that are here, the oldest first."""
        with self._lock:
            keys = [(name, version) for version in sorted(self._numbers.get(name, ()))]
            return [self._published[key] if key in self._published else self._fetched[key] for key in keys]

    def newest(self, name: str) -> LibraryEntry | None:
        """The newest version that was not withdrawn."""
        found = [each for each in self.versions(name) if each.withdrawn is None]
        return self.get(name, found[-1].version) if found else None

    def is_published(self, entry: LibraryEntry) -> bool:
        """Whether it was published at this node, not fetched."""
        with self._lock:
            return (entry.name, entry.version) in self._published

    def published(self) -> list[LibraryEntry]:
        """What this node serves, by name and version."""
        with self._lock:
            return [self._published[key] for key in sorted(self._published)]

    def entries(self) -> list[LibraryEntry]:
        """All, by name and version."""
        with self._lock:
            found = {**self._fetched, **self._published}
            return [found[key] for key in sorted(found)]

    def owner(self, name: str) -> str | None:
        """Whose a name is, as far as is known here."""
        with self._lock:
            return self._owners.get(name)

    def near(self, name: str) -> str:
        """What may have been meant, for an error."""
        with self._lock:
            return "" if name in self._numbers else did_you_mean(name, self._numbers) or ""

    # ── what changes it ──

    def add(self, entry: LibraryEntry, *, published: bool) -> LibraryEntry:
        """Take an entry that is verified. The same once more is no harm, and its newer document counts. LibraryError if
        its name is somebody else's, its version stands for something else, or there is no room."""
        key = entry.name, entry.version
        with self._lock:
            self._check_owner(entry)
            here = self.get(*key)
            if here is not None:
                entry = self._again(here, entry)
                published = published or key in self._published
            elif published:
                self._check_room(entry)
            self._check_owners(entry)
            self._write(entry, published=published)
            self._put(entry, published)
            self._evict()
            return entry

    def _again(self, here: LibraryEntry, entry: LibraryEntry) -> LibraryEntry:
        if here.fingerprint != entry.fingerprint:
            raise self._conflict(
                f"{entry} of {entry.owner}: expected what version {here.version} stands for, {here.fingerprint.hex()}, "
                f"found {entry.fingerprint.hex()}; a version never changes: publish it as version "
                f"{self._last(entry.name) + 1}"
            )
        newer = entry if entry.issued >= here.issued else here
        return replace(newer, withdrawn=here.withdrawn, withdrawal=here.withdrawal)

    def _check_owner(self, entry: LibraryEntry) -> None:
        owner = self._owners.get(entry.name)
        if owner is not None and owner != entry.owner:
            raise self._conflict(
                f"{entry}: expected it signed by {owner}, whose name that is here, found {entry.owner}; publish it "
                f"under another name, or, if it is to be theirs here, library.forget({entry.name!r}) first"
            )

    def _check_room(self, entry: LibraryEntry) -> None:
        most, most_bytes = self._most
        if len(self._published) >= most or self._bytes[True] + entry.size > most_bytes:
            raise LibraryError(
                f"{entry}: this library is full: it has {len(self._published):,} entries with {self._bytes[True]:,} "
                f"bytes of code, and takes {most:,} and {most_bytes:,}; forget some, or publish it at another node"
            )

    def _check_owners(self, entry: LibraryEntry) -> None:
        if entry.name not in self._owners and len(self._owners) >= self._most_owners:
            raise LibraryError(
                f"{entry}: {self._most_owners:,} names are known here, and no more are taken; forget some"
            )

    def _conflict(self, text: str) -> LibraryError:
        self.conflicts.append(text)
        log.warning("library: refused %s", text)
        return LibraryError(text)

    def _last(self, name: str) -> int:
        found = self.versions(name)
        return found[-1].version if found else 0

    def next_version(self, name: str) -> int:
        """The number for another version: withdrawn ones count."""
        return self._last(name) + 1

    def withdraw(self, name: str, version: int, fingerprint: bytes, owner: str, why: str, document: bytes) -> bool:
        """Its owner says that a version is not to be used any more; whether that is new. LibraryError if it is not
        here, or somebody else's."""
        with self._lock:
            here = self.get(name, version)
            if here is None:
                raise LibraryError(f"@{name}/{version}: expected one that is here, found none; {self.near(name)}")
            if here.owner != owner or here.fingerprint != fingerprint:
                raise self._conflict(
                    f"withdrawal of @{name}/{version}: expected one of {here.owner} for {here.fingerprint.hex()}, "
                    f"found one of {owner} for {fingerprint.hex()}"
                )
            if here.withdrawn is not None:
                return False
            published = (name, version) in self._published
            made = replace(here, withdrawn=why, withdrawal=document)
            self._write(made, published=published)
            self._put(made, published)
            return True

    def forget(self, name: str) -> int:
        """Have nothing of a name here any more, nor know whose it is; how many versions there were."""
        with self._lock:
            gone = self.versions(name)
            if self._kept is not None:
                self._kept.forget(name)
            for each in gone:
                self._take_out((each.name, each.version))
            self._owners.pop(name, None)
            return len(gone)

    def _write(self, entry: LibraryEntry, *, published: bool) -> None:
        """To the state, first: what cannot be kept was not published. Of what is only fetched, memory does."""
        if self._kept is None:
            return
        try:
            self._kept.keep(entry, published=published)
        except StoreError as error:
            if published:
                raise
            log.warning("library: %s is not kept for the next start: %s", entry, error)

    def _put(self, entry: LibraryEntry, published: bool) -> None:
        key = entry.name, entry.version
        self._take_out(key)
        (self._published if published else self._fetched)[key] = entry
        self._numbers.setdefault(entry.name, set()).add(entry.version)
        self._bytes[published] += entry.size
        self._owners.setdefault(entry.name, entry.owner)

    def _take_out(self, key: Key) -> None:
        for published, where in ((True, self._published), (False, self._fetched)):
            found = where.pop(key, None)
            if found is not None:
                self._bytes[published] -= found.size
                self._numbers[found.name].discard(found.version)
                if not self._numbers[found.name]:
                    del self._numbers[found.name]

    def _evict(self) -> None:
        most, most_bytes = self._most_fetched
        while len(self._fetched) > most or (self._bytes[False] > most_bytes and len(self._fetched) > 1):
            key = next(iter(self._fetched))
            self._take_out(key)
            self.evicted += 1
            if self._kept is not None:
                try:
                    self._kept.remove(*key)
                except StoreError as error:
                    log.warning("library: @%s/%d is still kept: %s", *key, error)


class Shelf:
    """Code that others have this node's sources run by name: by name, version and fingerprint, the oldest goes first.

    Nothing here is ever found by its name alone: anybody who may subscribe can put something on it."""

    def __init__(
        self, kept: LibraryTables | None = None, *, most: int = MOST_FETCHED, most_bytes: int = MOST_FETCHED_BYTES
    ) -> None:
        self._kept, self._most, self._most_bytes = kept, most, most_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, int, bytes], LibraryEntry] = OrderedDict()
        self._bytes = 0
        self.evicted = 0

    def load(self, read: Callable[[KeptEntry], LibraryEntry]) -> None:
        """What the node's state has; what is damaged is left out."""
        for row in () if self._kept is None else self._kept.shelf():
            try:
                self._add(read(row))
            except HeadwaterError as error:
                log.error("library: code of the state cannot be read: %s", error)

    def get(self, name: str, version: int, fingerprint: bytes) -> LibraryEntry | None:
        """The code, if it is here."""
        with self._lock:
            key = name, version, fingerprint
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, entry: LibraryEntry) -> None:
        """Code that is verified."""
        if self._add(entry) and self._kept is not None:
            try:
                self._kept.put(entry)
            except StoreError as error:
                log.warning("library: %s is not kept for the next start: %s", entry, error)

    def _add(self, entry: LibraryEntry) -> bool:
        gone: list[LibraryEntry] = []
        with self._lock:
            key = entry.name, entry.version, entry.fingerprint
            if key in self._entries:
                return False
            self._entries[key] = entry
            self._bytes += entry.size
            while len(self._entries) > self._most or (self._bytes > self._most_bytes and len(self._entries) > 1):
                _, old = self._entries.popitem(last=False)
                self._bytes -= old.size
                gone.append(old)
            self.evicted += len(gone)
        if self._kept is not None:
            for old in gone:
                try:
                    self._kept.drop(old)
                except StoreError as error:
                    log.warning("library: %s is still kept: %s", old, error)
        return True

    def __len__(self) -> int:
        return len(self._entries)


__all__ = ["Catalogue", "Shelf"]
