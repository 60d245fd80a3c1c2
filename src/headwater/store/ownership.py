"""Which process a state file belongs to: the one that has locked the file beside it, `<file>.lock`.

The operating system takes such a lock away with its process, however that ends. It is not SQLite's own, since that one
would either keep readers out as well, or let other nodes in; and it is not on the database itself, since whoever closes
that file anywhere in the process takes SQLite's locks away. Once nobody has the state open the file beside it is gone;
what a kill leaves of it means nothing.

Releases that know nothing of it are kept out, and noticed, by SQLite's locks: they want the file for themselves alone
(`locking_mode = EXCLUSIVE`), which is refused while anybody has it open, and refuses everybody else.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from errno import EACCES, EAGAIN
from pathlib import Path


class FileInUse(Exception):
    """Somebody else has it."""


class Ownership:
    """Of one state file, until `give_up`; FileInUse if it is another's, in this process or in any other."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str) -> None:
        self._path = Path(f"{path}.lock")
        self._descriptor: int | None = None
        while self._descriptor is None:
            self._descriptor = self._taken()

    def _taken(self) -> int | None:
        """The lock; None if the file was removed meanwhile, by the owner who gave it up: then there is another."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor)
            with suppress(FileNotFoundError):
                if os.path.samestat(self._path.stat(), os.fstat(descriptor)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    def give_up(self) -> None:
        """From now on the file may be another's; again it does nothing."""
        if self._descriptor is not None:
            with suppress(OSError):
                self._path.unlink()
            self.leave_to_parent()

    def leave_to_parent(self) -> None:
        """In a process that was forked: it must not keep the parent's lock after the parent has ended."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self.give_up()


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (EAGAIN, EACCES):
            raise FileInUse from None
        # A file system without such locks: there SQLite's alone have to do, but for the moment of `NodeState._share`.


__all__ = ["FileInUse", "Ownership"]
