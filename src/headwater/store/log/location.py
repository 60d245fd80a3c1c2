"""The folder of a log, as people write it: a path, with `~` for their own folder, or a `file:` address.

What names another store (`s3://…`, `hdfs://…`) is refused by that name: as a path it would be a folder `s3:` here.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from headwater.errors import StoreError

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/.*)\Z", re.DOTALL)  # one slash too, which a Path makes of two
_FILE = "file:"
_HERE = ("", "localhost")
EXPECTED = "a folder of this machine, as a path, ~/… or file:///…"


def local_folder(given: str | os.PathLike[str]) -> Path:
    """The folder that is meant; StoreError where that is none of this machine."""
    text = os.fspath(given)
    problem = misplaced(text)
    if problem is not None:
        raise StoreError(f"log {text!r}: expected {EXPECTED}, found {problem}")
    return _folder(text)


def misplaced(text: str) -> str | None:
    """What is wrong with a text as the folder of a log; None if it can be one."""
    address = _ADDRESS.match(text)
    if address is None or _is_file(text):
        try:
            _folder(text)
        except ValueError as error:
            return str(error)
        return None
    name = address[1]
    return (
        f"an address of {name!r}, where no log is kept; mount that as a folder, or copy the log. (A folder here that "
        f"has such a name is ./{name}:…)"
    )


def _is_file(text: str) -> bool:
    return text[: len(_FILE)].lower() == _FILE


def _folder(text: str) -> Path:
    """The folder that a path or a file: address names; ValueError says what is wrong with it."""
    if _is_file(text):
        rest = text[len(_FILE) :]
        host, path = "", rest
        if rest.startswith("//"):
            host, slash, path = rest[2:].partition("/")
            path = slash + path
        if host.lower() not in _HERE:
            raise ValueError(
                f"the folder of another machine, {host!r}; a file of this one has three slashes: file:///{path[1:]}"
            )
        if not path.startswith("/"):
            raise ValueError(f"no path from the root; a file: address has one, as in file://{Path.cwd()}/{path}")
        from urllib.parse import unquote  # late: hardly anybody needs it

        return Path(unquote(path))
    try:
        found = Path(text).expanduser()
    except RuntimeError:
        raise ValueError(f"no folder of a user {text.partition('/')[0]!r}") from None
    # Without its ./ the path of a folder `s3:` here would be taken for an address by the next who reads it.
    return found.absolute() if found.parts and ":" in found.parts[0] else found


def folder_argument(text: str) -> Path:
    """The same for an argument of a command."""
    import argparse  # late: only commands need it

    try:
        return local_folder(text)
    except StoreError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


__all__ = ["EXPECTED", "folder_argument", "local_folder", "misplaced"]
