"""Commits that are on the disk when they return, without making the others wait for it.

SQLite would sync within the commit, under the lock that everybody needs to write. Here a commit is written like any
other, to the write-ahead log; then, with nothing locked, that file is synced. One sync does for all that were written
before it began, so that who waits for another's sync has mostly been served by the next one.

A sync that fails may have lost what the system had not written yet, and would not say so again: after that nothing is
called durable any more until the file is opened anew, which checks what is there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from headwater.errors import StoreError

sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # of a descriptor; where it is measured, a slower one


class Durability:
    """Of the commits to one SQLite file in WAL mode; threads may share it. A file of None is in memory only."""

    __slots__ = ("_descriptor", "_failure", "_file", "_lock", "_place", "_synced", "_written")

    def __init__(self, file: str | None, place: str) -> None:
        self._file, self._place = file, place
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._failure: OSError | None = None
        self._written = self._synced = 0  # commits, counted

    def must_be_possible(self) -> None:
        """StoreError where a sync has failed: before anything is written that would need one."""
        if self._failure is not None:
            raise StoreError(
                f"{self._place}: nothing can be made durable, since the disk has failed to write what it was given: "
                f"{self._failure.strerror}; nothing was changed; see to the disk, and start the node again"
            ) from self._failure

    def written(self) -> int:
        """The number of a commit that was just written, for `reach`; one at a time."""
        self._written += 1
        return self._written

    def reach(self, commit: int) -> None:
        """Return when this commit is on the disk."""
        with self._lock:
            if self._synced < commit:
                self.must_be_possible()
                self._sync()

    def close(self) -> None:
        """SQLite has let go of the file, and may open it again. Who still waits for a sync must not find it gone."""
        with self._lock:
            if self._synced < self._written and self._failure is None:
                with suppress(StoreError):  # they are told
                    self._sync()
            self._let_go()

    def leave_to_parent(self) -> None:
        """In a process that was forked."""
        self._lock = threading.Lock()
        self._let_go()

    def _sync(self) -> None:
        upto = self._written
        try:
            if self._descriptor is None:
                self._descriptor = _opened(self._file)
            if self._descriptor is not None:
                sync(self._descriptor)
        except OSError as error:
            self._failure = error
            raise StoreError(
                f"{self._place}: it was written, but whether it is on the disk is unknown, since that has failed: "
                f"{error.strerror}; see to the disk, and start the node again"
            ) from error
        self._synced = upto

    def _let_go(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        self._let_go()


def _opened(file: str | None) -> int | None:
    """The write-ahead log, whose name is on the disk. None where there is none: in memory, or since SQLite has put it
    into the file, which it has synced."""
    if file is None:
        return None
    folder = os.open(os.path.dirname(file), os.O_RDONLY | os.O_CLOEXEC)  # noqa: PTH120
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    with suppress(FileNotFoundError):
        return os.open(f"{file}-wal", os.O_RDONLY | os.O_CLOEXEC)
    return None


__all__ = ["Durability"]
