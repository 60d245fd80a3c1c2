"""Appending to a write-ahead file (see `wal.py` for what is in it)."""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from headwater.errors import StoreError
from headwater.late import pa
from headwater.store.log.layout import Foundation, hidden
from headwater.store.log.wal import BATCH, EVENT, MAX_PAYLOAD, ROWS, SOURCE, Header, Segment, has_enum

_AT_ONCE = 1000  # buffers in one call; systems take 1024
_MARKS = 64
_APART = 8 << 10  # bytes between two marks, at least
_HEADED = 28 & 7  # what is over 8 bytes in the length of a block without its crc


class _Gather:
    """What an Arrow writer takes for a file: it keeps the buffers that it is given, uncopied."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.closed = False

    def write(self, part: Any) -> int:
        self.parts.append(part)
        return len(part)

    def flush(self) -> None:
        pass

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


class Writer:
    """Appends blocks to one file. Not for several threads at once.

    Each call is one write if the system takes it whole. If it fails the file is cut back to where it was and
    `StoreError` is raised; if even that fails, `broken` says so and nothing more is taken.
    """

    # fmt: off
    __slots__ = (
        "_foundation", "_gather", "_identity", "_new", "_open", "_pack", "_streams", "_writer", "broken", "descriptor",
        "header", "marks", "names", "path", "salt", "size",
    )
    # fmt: on

    def __init__(self, path: Path, header: Header, descriptor: int, size: int, names: dict[str, int]) -> None:
        self.path = path
        self.header = header
        self.descriptor = descriptor
        self._identity = _identity(os.fstat(descriptor))
        self.size = size
        self.broken: str | None = None
        self.names = names
        self.salt = header.salt
        self._pack = struct.Struct("<IB3xIqq").pack
        self._streams = has_enum(header.rows)
        self._gather = _Gather()
        self._writer: Any = None
        self._new: dict[str, int] = {}  # sources named here since it was opened, and the file's size before that
        self._foundation: Foundation | None = None  # what is to be on the disk with the first event
        self.marks = deque([size], maxlen=_MARKS)  # places in the file where a block begins, ascending: the last ones
        self._open = threading.Lock()  # who reads holds it, and who closes; never who writes

    @classmethod
    def create(cls, path: Path, header: Header, foundation: Foundation | None = None) -> Writer:
        """A new file with nothing but the header; neither it nor its name, nor what it stands on, need be on the disk
        before `sync`."""
        data = header.to_bytes()
        temporary = hidden(path)
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, "no space left for its header")
            temporary.rename(path)
        except BaseException:
            os.close(descriptor)
            raise
        made = cls(path, header, descriptor, len(data), {})
        made._foundation = foundation or Foundation((), (path.parent,))
        return made

    @classmethod
    def resume(cls, segment: Segment, foundation: Foundation | None = None) -> Writer:
        """Go on after the last whole block; what is torn is cut off."""
        assert segment.header is not None and not segment.damage
        descriptor = os.open(segment.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        if segment.torn is not None:
            os.ftruncate(descriptor, segment.end)
            os.fsync(descriptor)
        names = {name: number for number, name in segment.names.items()}
        made = cls(segment.path, segment.header, descriptor, segment.end, names)
        made._foundation = foundation  # whoever made it may have been ended before a sync
        return made

    def event(self, source: str, seq: int, stamp: int, record: bytes) -> None:
        """One event."""
        number = self.names.get(source)
        if number is None:
            self._first(source, seq, stamp, record)
            return
        body = self._pack(len(record), EVENT, number, seq, stamp) + record
        if len(body) & 7 != _HEADED:
            body += b"\0" * (-len(record) & 7)
        data = crc32(body, self.salt).to_bytes(4, "little") + body
        if self.broken is not None:
            raise StoreError(self.broken)
        try:
            done = os.write(self.descriptor, data)
        except OSError as error:
            raise self._failed(error) from error
        if done == len(data):
            self.size += done
        else:
            self._write([memoryview(data)[done:]], done)

    def _first(self, source: str, seq: int, stamp: int, record: bytes) -> None:
        """The first event of a source in this file."""
        number, declared = self._declare(source)
        body = self._pack(len(record), EVENT, number, seq, stamp) + record + b"\0" * (-len(record) & 7)
        if self.broken is not None:
            raise StoreError(self.broken)
        self._new[source] = self.size
        self._write([declared, crc32(body, self.salt).to_bytes(4, "little"), body])
        self.names[source] = number

    def batch(self, source: str, first: int, stamp: int, batch: Any) -> None:
        """The rows of a batch of the channel's schema, numbered from `first`, all at one time (ns)."""
        count = batch.num_rows
        self._columns(source, BATCH, first, stamp, [struct.pack("<q", count)], batch)

    def rows(self, source: str, seqs: Any, times: Any, batch: Any) -> None:
        """The rows of a batch with their sequence numbers and times (µs), contiguous int64."""
        self._columns(source, ROWS, len(seqs), 0, [memoryview(seqs).cast("B"), memoryview(times).cast("B")], batch)

    def _columns(self, source: str, kind: int, a: int, b: int, before: list[Any], batch: Any) -> None:
        """Append a block of a batch's columns; what it consists of is written without being put together first."""
        number = self.names.get(source)
        declared = b""
        if number is None:
            number, declared = self._declare(source)
        parts = before + self._message(batch)
        length = sum(map(len, parts))
        if length > MAX_PAYLOAD:
            raise StoreError(
                f"log {os.fspath(self.path)!r}: expected a batch below 4 GiB, found {length} bytes; split it"
            )
        if length & 7:
            parts.append(b"\0" * (-length & 7))
        head = self._pack(length, kind, number, a, b)
        crc = crc32(head, self.salt)
        for part in parts:
            crc = crc32(part, crc)
        if self.broken is not None:
            raise StoreError(self.broken)
        if declared:
            self._new[source] = self.size
        self._write([declared + crc.to_bytes(4, "little") + head, *parts])
        self.names[source] = number

    def _message(self, batch: Any) -> list[Any]:
        """A batch as Arrow IPC, in the buffers that it is in."""
        if self._streams:
            gather = _Gather()
            with pa.ipc.new_stream(pa.PythonFile(gather, "w"), batch.schema) as writer:
                writer.write_batch(batch)
            return gather.parts
        if self._writer is None:  # the schema is written before the first batch, and only then
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._gather, "w"), self.header.rows.schema)
            self._writer.write_batch(batch.slice(0, 0))
        self._gather.parts = []
        self._writer.write_batch(batch)
        parts, self._gather.parts = self._gather.parts, []
        return parts

    def _declare(self, source: str) -> tuple[int, bytes]:
        """A source's index, and the block that says so."""
        name = source.encode("utf-8", "surrogatepass")
        number = len(self.names)
        body = self._pack(len(name), SOURCE, number, 0, 0) + name + b"\0" * (-len(name) & 7)
        return number, crc32(body, self.salt).to_bytes(4, "little") + body

    def _write(self, parts: Sequence[Any], written: int = 0) -> None:
        """Write all of this, after what is `written` already."""
        rest = [memoryview(part).cast("B") for part in parts if len(part)]
        left = whole = sum(map(len, rest))
        try:
            while left:
                done = os.writev(self.descriptor, rest[:_AT_ONCE])
                left -= done
                if left and not done:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                while left and done >= len(rest[0]):
                    done -= len(rest.pop(0))
                rest[0] = rest[0][done:]
        except OSError as error:
            raise self._failed(error) from error
        self.size += written + whole

    def _failed(self, error: OSError) -> StoreError:
        self.take_back(self.size)
        return StoreError(
            f"log {os.fspath(self.path)!r}: expected to write an event, found: {error.strerror}; nothing of it is "
            "logged; make room on the disk, or use keep_bytes to have the oldest deleted"
        )

    def take_back(self, size: int) -> None:
        """Cut off what was written after the file had this size, by the last call."""
        self.size = size
        while self._new and next(reversed(self._new.values())) >= size:
            source, _ = self._new.popitem()
            self.names.pop(source, None)
        while self.marks[-1] > size:
            self.marks.pop()
        try:
            os.ftruncate(self.descriptor, self.size)
        except OSError as error:
            self.broken = (
                f"log {os.fspath(self.path)!r}: expected to cut back what could not be written, found: "
                f"{error.strerror}; close the node, see to the disk, and open it again"
            )

    def mark(self) -> int:
        """Note that a block begins here, if it is time for that; from which size on it is the next time."""
        if self.size - self.marks[-1] >= _APART:
            self.marks.append(self.size)
        return self.marks[-1] + _APART

    def read(self, start: int, end: int) -> bytes | None:
        """These bytes of the file, as far as there are any; None if it is closed, or cannot be read. Any thread may."""
        with self._open, suppress(OSError):
            return None if self.descriptor < 0 else os.pread(self.descriptor, end - start, start)
        return None

    def there(self) -> bool:
        """Whether its file is still where it was made: who deletes or moves the folder does not stop it from growing,
        but nobody will find what is written then. (Where that cannot be seen, it is taken to be there.)"""
        try:
            return _identity(self.path.stat()) == self._identity
        except OSError as error:
            return error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)

    def sync(self) -> None:
        """What was written is on the disk when this returns. May run beside a write, not beside another sync."""
        os.fdatasync(self.descriptor)
        if self._foundation is not None:
            self._foundation.sync()
            self._foundation = None

    def close(self) -> None:
        with self._open:
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)
        self._writer = None


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
