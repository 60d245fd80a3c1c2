"""The seal of a Parquet file: checksums of what the checksums of its pages leave out.

    pages and their index | seal | footer | length of the footer | PAR1

A changed byte in a footer can give a column another name, and so no values, or bounds by which other readers skip rows
that they should give. The seal lies where Parquet's readers do not look, since they go by the offsets in the footer; it
has a checksum of the footer, which is looked at whenever that is read, and one of all that lies before the seal, for
`headwater log verify`. What an ingest has had written by many workers has that of the footer only: to read all of it
again, in one place, would take too long. Files that others have put there, or Headwater in its youth, have no seal.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

MAGIC = b"PAR1"
_SEAL = struct.Struct("<8sII")  # what it is known by, checksums of what is before it and of the footer
_KNOWN_BY, _FOOTER_ONLY = b"HWSEAL\0\1", b"HWSEAL\0\2"
_STEP = 1 << 20


class Damaged(ValueError):
    """A footer that says one thing here and another there, or cannot be read to its end."""


def seal(path: Path, *, footer_only: bool = False) -> None:
    """Put the seal into a file that is complete, and that nobody reads yet."""
    with path.open("r+b") as file:
        start, footer, ending = _ending(file)
        known_by, before = (_FOOTER_ONLY, 0) if footer_only else (_KNOWN_BY, _checksum(file, start))
        file.seek(start)
        file.write(_SEAL.pack(known_by, before, crc32(footer)) + footer + ending)


def footer_bytes(path: Path) -> bytes:
    """The footer of a Parquet file, as it was written; raises Damaged, or OSError."""
    with path.open("rb") as file:
        start, footer, _ = _ending(file)
        found = _found(file, start)
    if found is not None and found[1] != crc32(footer):
        raise Damaged("its footer is not as it was written, by its checksum")
    return footer


def is_whole(path: Path) -> bool:
    """Whether all that lies before the seal is as it was written; also if no seal says that."""
    with path.open("rb") as file:
        start, _, _ = _ending(file)
        found = _found(file, start)
        return found is None or found[0] is None or found[0] == _checksum(file, start - _SEAL.size)


def _ending(file: BinaryIO) -> tuple[int, bytes, bytes]:
    """Where the footer begins, the footer, and what comes after it."""
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - 8))
    ending = file.read(8)
    length = int.from_bytes(ending[:4], "little")
    if len(ending) < 8 or ending[4:] != MAGIC or length > size - 8:
        raise Damaged("the file does not end as a Parquet file does")
    start = size - 8 - length
    file.seek(start)
    return start, file.read(length), ending


def _found(file: BinaryIO, start: int) -> tuple[int | None, int] | None:
    """The checksums in the seal before the footer, if there is one, of what is before it if it has that."""
    if start < _SEAL.size:
        return None
    file.seek(start - _SEAL.size)
    known_by, before, footer = _SEAL.unpack(file.read(_SEAL.size))
    if known_by == _FOOTER_ONLY:
        return None, footer
    return (before, footer) if known_by == _KNOWN_BY else None


def _checksum(file: BinaryIO, upto: int) -> int:
    file.seek(0)
    found = 0
    while upto > 0 and (part := file.read(min(_STEP, upto))):
        found = crc32(part, found)
        upto -= len(part)
    return found


__all__ = ["Damaged", "footer_bytes", "is_whole", "seal"]
