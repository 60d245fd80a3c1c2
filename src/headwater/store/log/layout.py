"""Where everything of a log lies, and the few operations on files that it is built from.

    ROOT/
      <channel>/                          one table
        event_day=2026-11-15/
          <node>-00000017.parquet         what segment 17 of that node has of that day
        _common_metadata                  the table's schema, as Parquet
        _lock                             shared: files are put in or opened; exclusive: files are taken away
        _log/<node>/                      private to that node
          lock  id  sources.json          who has it open; which log this is; how far each source is at rest
          00000018.wal                    a segment not at rest yet
          .<name>.tmp                     being written, moved to its place when complete
        _quarantine/ingest=<id>/*.parquet.quarantined    records that ingest could not take
        _damaged/event_day=.../*.parquet.damaged         what repair has set aside
      .work/<channel>/                    of an ingest or a compaction that is under way, or was ended

What is no event of the log has no name that `<channel>/**/*.parquet` finds, whatever reader looks for that.

A segment's Parquet files are all in place before its write-ahead file goes. While that is there it counts, not they. So
a reader looks for write-ahead files first and for Parquet files then, both while it holds `shared`.

Names of channels and nodes are percent-encoded where a file's name could not have them, or Spark would not like it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, timedelta
from math import inf
from pathlib import Path
from urllib.parse import unquote

from headwater.errors import StoreError
from headwater.store.log.location import local_folder

DAY_KEY = "event_day"
DAY_MICROSECONDS = 86_400_000_000
COMMON_METADATA = "_common_metadata"
PRIVATE = "_log"
QUARANTINE = "_quarantine"
DAMAGED = "_damaged"
WORK = ".work"
STAGING = "staging-"
_ASIDE = {QUARANTINE: ".quarantined", DAMAGED: ".damaged"}  # what the names of Parquet files there end with
LOCK = "_lock"
MAX_NAME = 200  # bytes of a node's or channel's encoded name; what is added to it must fit 255 too

_LOOK = 0.02  # seconds between two attempts to lock
_EPOCH = date(1970, 1, 1)
_WAL = re.compile(r"(\d{8,})\.wal\Z")
_AT_REST = re.compile(r"(.+)-(\d{8,})\.parquet\Z", re.DOTALL)


# ── names ──


def encode_name(name: str) -> str:
    """A node's or channel's name as one of a file: letters and digits of any script, `_`, `-` and `.` stay."""
    made = []
    for at, character in enumerate(name):
        plain = character.isalnum() or character == "-" or (at and character in "_.")
        made.append(
            character if plain else "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
        )
    return "".join(made)


def decode_name(text: str) -> str:
    """The name that `encode_name` made a file's name of."""
    return unquote(text, errors="surrogatepass")


def _fitting(what: str, name: str) -> str:
    if not isinstance(name, str) or not name:
        raise StoreError(f"log: expected a {what} with a name, found {name!r}")
    made = encode_name(name)
    if len(os.fsencode(made)) > (255 if what == "channel" else MAX_NAME):
        raise StoreError(
            f"log: the name of {what} {name[:40]!r}… takes {len(os.fsencode(made))} bytes as a file's name; "
            f"expected at most {MAX_NAME}; use a shorter one"
        )
    return made


def wal_name(segment: int) -> str:
    """The name of a write-ahead file."""
    return f"{segment:08d}.wal"


def wal_segment(name: str) -> int | None:
    """The number of the segment in a write-ahead file of this name; None if it is none."""
    found = _WAL.match(name)
    return int(found[1]) if found else None


def parquet_name(node: str, segment: int) -> str:
    """The name of a file at rest, which is that of the segment it was made from."""
    return f"{encode_name(node)}-{segment:08d}.parquet"


def parquet_segment(name: str) -> tuple[str, int] | None:
    """Node and segment of a Parquet file of this name; None if a node's segment did not become it."""
    found = _AT_REST.match(name)
    return (decode_name(found[1]), int(found[2])) if found else None


def day_name(day: int) -> str:
    """The folder of a day, given as days since 1970."""
    return f"{DAY_KEY}={_EPOCH + timedelta(days=day)}"


def day_of(name: str) -> int | None:
    """The days since 1970 of a day's folder; None if a folder of this name is none."""
    key, _, value = name.partition("=")
    if key != DAY_KEY:
        return None
    try:
        return (date.fromisoformat(value) - _EPOCH).days
    except ValueError:
        return None


# ── places ──


@dataclass(frozen=True, slots=True)
class ChannelFolder:
    """The places of one channel in a root."""

    root: Path
    channel: str

    @classmethod
    def of(cls, root: str | os.PathLike[str], channel: str) -> ChannelFolder:
        _fitting("channel", channel)
        return cls(local_folder(root), channel)

    @property
    def path(self) -> Path:
        return self.root / encode_name(self.channel)

    @property
    def lock(self) -> Path:
        return self.path / LOCK

    @property
    def common_metadata(self) -> Path:
        return self.path / COMMON_METADATA

    @property
    def private(self) -> Path:
        return self.path / PRIVATE

    @property
    def work(self) -> Path:
        """Where files are made that are not yet part of the log: no reader of the channel's folder comes there, unless
        that has a file system of its own, which files cannot be moved into."""
        made = self.root / WORK / encode_name(self.channel)
        try:
            alone = self.path.stat().st_dev != self.root.stat().st_dev
        except FileNotFoundError:
            alone = False
        return self.path / WORK if alone else made

    def node(self, node: str) -> NodeFolder:
        return NodeFolder(self, node, self.private / _fitting("node", node))

    def nodes(self) -> list[NodeFolder]:
        """The folders of all nodes that have or had a write-ahead file here, by name."""
        found = [NodeFolder(self, decode_name(name), self.private / name) for name in _folders(self.private)]
        return sorted(found, key=lambda each: each.node)

    def day(self, day: int) -> Path:
        return self.path / day_name(day)

    def days(self) -> list[tuple[int, Path]]:
        """The folders of days, in order."""
        names = ((day_of(name), name) for name in _folders(self.path))
        return [(day, self.path / name) for day, name in sorted((day, name) for day, name in names if day is not None)]

    def parquet(self) -> list[tuple[int, Path]]:
        """Every visible Parquet file with its day, in order of day and name. Hold `shared` until they are open."""
        found = []
        for day, folder in self.days():
            with suppress(FileNotFoundError):
                with os.scandir(folder) as files:
                    names = sorted(file.name for file in files)
                visible = (name for name in names if name[0] not in "._" and name.endswith(".parquet"))
                found += [(day, folder / name) for name in visible]
        return found

    @contextmanager
    def shared(self, *, wait: float | None = None, given_up: Callable[[], bool] | None = None) -> Iterator[None]:
        """While this is held no file is taken away or exchanged. With `wait`, it is a StoreError if others have the
        files alone for more seconds; and so it is once nobody wants them any more (`given_up`)."""
        with _flock(self.lock, fcntl.LOCK_SH, wait, given_up):
            yield

    @contextmanager
    def exclusive(self, *, wait: float | None = None) -> Iterator[None]:
        """While this is held nobody else lists, opens, puts in, takes away or exchanges files. Who reads very many
        files holds them for as long as that takes: with `wait`, it is a StoreError if that is more seconds."""
        with _flock(self.lock, fcntl.LOCK_EX, wait):
            yield


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """The places of one node's part of one channel."""

    channel: ChannelFolder
    node: str
    path: Path

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def id(self) -> Path:
        return self.path / "id"

    @property
    def sources(self) -> Path:
        return self.path / "sources.json"

    def wal(self, segment: int) -> Path:
        return self.path / wal_name(segment)

    def wals(self) -> list[tuple[int, Path]]:
        """The write-ahead files with their segments, in order."""
        try:
            with os.scandir(self.path) as files:
                names = [file.name for file in files]
        except FileNotFoundError:
            return []
        found = ((wal_segment(name), name) for name in names)
        return sorted((segment, self.path / name) for segment, name in found if segment is not None)

    def parquet(self, day: int, segment: int) -> Path:
        return self.channel.day(day) / parquet_name(self.node, segment)


def channels(root: str | os.PathLike[str]) -> list[str]:
    """The channels that have a log in this root, by name."""
    folder = local_folder(root)
    return sorted(
        decode_name(name) for name in _folders(folder)
        if (folder / name / COMMON_METADATA).exists() or (folder / name / PRIVATE).is_dir()
    )  # fmt: skip


def _folders(path: Path) -> list[str]:
    try:
        with os.scandir(path) as found:
            return [each.name for each in found if each.is_dir() and not each.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


# ── locks ──


@contextmanager
def _flock(
    path: Path, how: int, wait: float | None = None, given_up: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Hold a lock on a file, shared or exclusive, between processes; wait for at most so long, or until it is given
    up."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except FileNotFoundError:
        raise StoreError(f"log {os.fspath(path.parent)!r}: expected a channel's folder, found none there") from None
    except OSError:
        if how == fcntl.LOCK_EX:
            raise
        try:  # a log that may only be read
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            yield
            return
    try:
        if wait is None and given_up is None:
            fcntl.flock(descriptor, how)
        else:
            _lock_within(path, descriptor, how, inf if wait is None else wait, given_up or bool)
        yield
    finally:
        os.close(descriptor)


def _lock_within(path: Path, descriptor: int, how: int, wait: float, given_up: Callable[[], bool]) -> None:
    end = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if given_up():
                raise StoreError(f"log {os.fspath(path.parent)!r}: others are at work with its files") from None
            if time.monotonic() >= end:
                what = "to have its files alone for a moment" if how == fcntl.LOCK_EX else "to come at its files"
                raise StoreError(
                    f"log {os.fspath(path.parent)!r}: expected {what}, found others at work with them for {wait:g} s: "
                    "someone reads very many, merges or repairs them; try again later"
                ) from None
            time.sleep(_LOOK)


def claim(folder: NodeFolder) -> int:
    """The descriptor that holds a node's part of a channel for this process; closing it lets go."""
    descriptor = os.open(folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise StoreError(
            f"log {os.fspath(folder.path)!r}: expected to be the only one that writes channel "
            f"{folder.channel.channel!r} of node {folder.node!r}, found it open in process {holder or 'unknown'}; "
            "close that, or give this node another name or folder"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


# ── files ──


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Names made, changed or removed in a folder are on the disk when this returns."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: str | os.PathLike[str]) -> None:
    """Have the disk keep what a file has."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(path: Path, *, sync: bool = True) -> list[Path]:
    """A folder and those above it, on the disk when this returns, unless `sync` is False. Returns the folders in which
    one was made."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        if sync:
            sync_folder(each.parent)
    return [each.parent for each in missing]


def hidden(path: Path) -> Path:
    """The name a file has while it is written: nobody reads it, and another attempt replaces it."""
    return path.with_name(f".{path.name}.tmp")


def write_atomic(path: Path, parts: bytes | Iterable[bytes], *, sync: bool = True) -> None:
    """The file has these contents, or those it had before, at every moment; it is on the disk when this returns.

    With `sync` False it need not be, and may be there without contents after a power cut: for a file that nothing
    depends on before a `Foundation` is synced."""
    temporary = hidden(path)
    try:
        with temporary.open("wb") as file:
            for part in (parts,) if isinstance(parts, bytes) else parts:
                file.write(part)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    if sync:
        sync_folder(path.parent)


@dataclass(frozen=True, slots=True)
class Foundation:
    """The files and folders that a node's part of a log stands on. A sync of the disk takes longer than all else that
    is done to make a part: so they are synced with its first event, and not before there is one."""

    files: tuple[Path, ...]
    folders: tuple[Path, ...]

    @classmethod
    def of(cls, node: NodeFolder, made_in: Iterable[Path] = ()) -> Foundation:
        """`made_in`: folders in which others were made for it."""
        channel = node.channel
        folders = dict.fromkeys((node.path, channel.private, channel.path, channel.root, *made_in))
        return cls((channel.common_metadata, node.sources, node.id), tuple(folders))

    def sync(self) -> None:
        for file in self.files:
            sync_file(file)
        for folder in self.folders:
            sync_folder(folder)


def aside_name(name: str, where: str) -> str:
    """The name of a Parquet file in QUARANTINE or DAMAGED: none that those who look for Parquet take for events."""
    return name + _ASIDE[where]


def put_aside(folder: ChannelFolder) -> list[Path]:
    """Give such files that have the name of a Parquet file, as they had once, the one that they should have."""
    renamed = []
    for where in _ASIDE:
        for path in (folder.path / where).glob("**/*.parquet"):
            with suppress(OSError):  # somebody else has done it, or the log may only be read
                renamed.append(path.rename(path.with_name(aside_name(path.name, where))))
    return renamed


# ── what a node remembers of its segments at rest ──


@dataclass(frozen=True, slots=True)
class AtRest:
    """How far a node's segments are at rest: the last such segment, and of each source the last event's sequence
    number and time (microseconds)."""

    segment: int = 0
    sources: dict[str, tuple[int, int]] | None = None

    def write(self, path: Path, *, sync: bool = True) -> None:
        text = json.dumps({"segment": self.segment, "sources": self.sources or {}}, ensure_ascii=True)
        write_atomic(path, text.encode(), sync=sync)

    @classmethod
    def read(cls, path: Path) -> AtRest | None:
        """None where there is no such file, or it cannot be understood: then the files at rest say it."""
        try:
            found = json.loads(path.read_bytes())
            sources = {str(name): (int(seq), int(time)) for name, (seq, time) in found["sources"].items()}
            return cls(int(found["segment"]), sources)
        except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
            return None


def log_id(folder: NodeFolder, *, sync: bool = True) -> str:
    """The id of a node's log of a channel; made when first asked for, on the disk unless `sync` is False."""
    try:
        found = folder.id.read_text("ascii").strip()
        if found:
            return found
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    made = uuid.uuid4().hex
    write_atomic(folder.id, f"{made}\n".encode(), sync=sync)
    return made
