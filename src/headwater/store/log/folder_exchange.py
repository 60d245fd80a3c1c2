"""Two folders that exchange their names in one step."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from headwater.errors import StoreError

_CURRENT = -100  # AT_FDCWD: paths are as they are
_EXCHANGE = 2  # RENAME_EXCHANGE


def exchange(one: Path, other: Path) -> None:
    """Each gets the name of the other, at one moment; StoreError where the system or the file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        raise StoreError(f"log {os.fspath(one.parent)!r}: this system cannot exchange two folders in one step")
    if rename(_CURRENT, os.fsencode(one), _CURRENT, os.fsencode(other), _EXCHANGE):
        number = ctypes.get_errno()
        why = "the file system cannot" if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP) else os.strerror(number)
        raise StoreError(f"log {os.fspath(one.parent)!r}: two folders could not be exchanged in one step: {why}")


def check_exchange(folder: Path, other: Path) -> None:
    """Try it out with an empty folder in each of the two, before any work is done for it."""
    names = [each / f".exchange-{uuid4().hex}" for each in (folder, other)]
    try:
        for name in names:
            name.mkdir()
        exchange(*names)
    except OSError as error:
        raise StoreError(
            f"log {os.fspath(folder)!r}: expected a folder to write in, found: {error.strerror}"
        ) from error
    finally:
        for name in names:
            with suppress(OSError):
                name.rmdir()
