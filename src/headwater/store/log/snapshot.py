"""What a channel's log has at one moment.

Everything is listed and opened under the channel's shared lock, so that an exchange of files (compaction, retention) is
seen as a whole or not at all. What is open stays readable, whatever becomes of its name.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol

from headwater.errors import StoreError
from headwater.late import pa, pq
from headwater.store.log.footers import Footer, Group, Range, footer
from headwater.store.log.layout import ChannelFolder, channels, parquet_segment
from headwater.store.log.schema import NODE, SEQ, SOURCE, Table, read_table
from headwater.store.log.table_rows import one_batch, plain_text, to_table
from headwater.store.log.tail import Tail

HANDLES = 512  # files open at a time in one snapshot; while there are more, exchanges have to wait
RECENT = 32  # row groups that are remembered, for ranges of other sources
RECENT_BYTES = 64 << 20  # and of how many bytes in all

_recent: OrderedDict[tuple[int, int, frozenset[str]], tuple[Footer, pa.RecordBatch]] = OrderedDict()
_lock = threading.Lock()


class Part(Protocol):
    """A file of a log: at rest, or a write-ahead file."""

    path: Path
    at_rest: bool
    size: int  # in bytes

    @property
    def node(self) -> str | None:
        """If all its events are of one node."""

    @property
    def segment(self) -> int | None: ...

    @property
    def groups(self) -> list[Group]: ...

    def spans(self) -> dict[tuple[str, str], Range]:
        """By node and source, what it has of it."""

    def span(self, node: str, source: str) -> tuple[int, int] | None:
        """Bounds of the sequence numbers of a source, if it may have any."""

    def load(
        self,
        table: Table,
        group: int,
        columns: Collection[str] | None,
        *,
        source: str | None = None,
        after: int = 0,
        upto: int | None = None,
    ) -> pa.RecordBatch:
        """Some columns of a row group as rows of the table; of other sources or numbers than are named there may be
        rows too."""


class Rested:
    """A Parquet file."""

    at_rest = True

    def __init__(self, path: Path, found: Footer, size: int) -> None:
        self.path, self.footer, self.size = path, found, size
        self.node, self.segment = found.node, found.segment
        self.handle: Any = None

    @property
    def schema(self) -> pa.Schema:
        return self.footer.schema

    @property
    def groups(self) -> list[Group]:
        return self.footer.groups

    def open(self) -> None:
        self.handle = pa.OSFile(os.fspath(self.path), "rb")

    def close(self) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.close()

    def spans(self) -> dict[tuple[str, str], Range]:
        """From what its writer noted; else from its columns, once."""
        if self.footer.spans is None:
            found: dict[tuple[str, str], Range] = {}
            for group in self.groups:
                own = group.span() or spans_of(self.read(group.index, (NODE, SOURCE, SEQ)))
                for key, (first, last, count) in own.items():
                    before = found.get(key)
                    if before is None:
                        found[key] = (first, last, count)
                    else:
                        found[key] = (min(first, before[0]), max(last, before[1]), count + before[2])
            self.footer.spans = found
        return self.footer.spans

    def span(self, node: str, source: str) -> tuple[int, int] | None:
        if self.footer.spans is not None:
            found = self.footer.spans.get((node, source))
            return None if found is None else found[:2]
        seqs = [group.seqs for group in self.groups if group.may_have(node, source)]
        return (min(low for low, _ in seqs), max(high for _, high in seqs)) if seqs else None

    def load(
        self,
        table: Table,
        group: int,
        columns: Collection[str] | None,
        *,
        source: str | None = None,
        after: int = 0,
        upto: int | None = None,
    ) -> pa.RecordBatch:
        wanted = frozenset(table.schema.names if columns is None else columns)
        read = self.read if source is None else self._read_again
        return to_table(table, read(group, wanted), columns)

    def _read_again(self, group: int, columns: frozenset[str]) -> pa.RecordBatch:
        """As `read`, but remembered: who reads one source's range is likely to read another's of the same rows."""
        key = (id(self.footer), group, columns)
        with _lock:
            if (known := _recent.get(key)) is not None:
                _recent.move_to_end(key)
                return known[1]
        batch = self.read(group, columns)
        with _lock:
            _recent[key] = (self.footer, batch)  # the footer too, so that its id stays its own
            while len(_recent) > 1 and (
                len(_recent) > RECENT or sum(each.nbytes for _, each in _recent.values()) > RECENT_BYTES
            ):
                _recent.popitem(last=False)
        return batch

    def read(self, group: int, columns: Collection[str]) -> pa.RecordBatch:
        """Some columns of a row group, those of them that there are, as they are in the file."""
        wanted = [name for name in self.schema.names if name in columns]
        if self.handle is None:
            self.open()
        try:
            # Without their checksums damaged pages read as other values, nearly always.
            checked = pq.ParquetFile(self.handle, metadata=self.footer.metadata, page_checksum_verification=True)
            with checked as file:
                table = file.read_row_group(group, columns=wanted, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise StoreError(
                f"log file {str(self.path)!r}: row group {group} cannot be read: {str(error).splitlines()[0]}; "
                "`headwater log verify` says what is wrong, `headwater log repair` keeps what can be read"
            ) from error
        return one_batch(table.select(wanted))


class Snapshot:
    """The files of a channel's log that may matter, and its table; close it when they have been read."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        channel: str,
        *,
        nodes: Collection[str] | None = None,
        matters: Callable[[Part], bool] = lambda part: True,
    ) -> None:
        """`matters` says which files are to be opened; the others are left out."""
        self.folder = folder = ChannelFolder.of(root, channel)
        self.parts: list[Part] = []
        self._held = ExitStack()
        must_exist(folder)
        with ExitStack() as held:
            held.enter_context(folder.shared())
            self.table = table_of(folder)
            # Write-ahead files first: one that is gone when the others are listed has come to rest among those.
            tails = list(_tails(folder, nodes))
            taken = {(tail.node, tail.segment) for tail in tails}
            rested = [part for part in rested_parts(folder, nodes) if parquet_segment(part.path.name) not in taken]
            kept = [part for part in rested if matters(part)]
            self.parts = [*kept, *(tail for tail in tails if matters(tail))]
            try:
                for part in kept[:HANDLES]:
                    part.open()
            except BaseException:
                self.close()
                raise
            if len(kept) > HANDLES:
                self._held = held.pop_all()

    def close(self) -> None:
        """Let go of the files."""
        for part in self.parts:
            if isinstance(part, Rested):
                part.close()
        self._held.close()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def must_exist(folder: ChannelFolder) -> None:
    """StoreError where there is no log of this channel."""
    if not folder.path.is_dir():
        found = channels(folder.root)
        raise StoreError(
            f"log {os.fspath(folder.root)!r}: expected a log of channel {folder.channel!r}, found "
            + (f"only {', '.join(found)}" if found else "no log at all")
        )


def table_of(folder: ChannelFolder) -> Table:
    """The channel's table; StoreError where there is none."""
    found = read_table(folder)
    if found is None:
        raise StoreError(
            f"log {os.fspath(folder.path)!r}: expected the schema of its table in _common_metadata, found none; "
            "`headwater log repair` makes it from the files"
        )
    return found


def _tails(folder: ChannelFolder, nodes: Collection[str] | None) -> Iterator[Tail]:
    for each in folder.nodes():
        if nodes is None or each.node in nodes:
            for segment, path in each.wals():
                with suppress(FileNotFoundError):  # it has come to rest just now
                    yield Tail(path, each.node, segment)


def rested_parts(folder: ChannelFolder, nodes: Collection[str] | None = None) -> Iterator[Rested]:
    """The Parquet files, not opened; hold the channel's shared lock."""
    for _, path in folder.parquet():
        found = footer(path)
        if nodes is None or found.node is None or found.node in nodes:
            yield Rested(path, found, path.stat().st_size)


def spans_of(batch: pa.RecordBatch) -> dict[tuple[str, str], Range]:
    """By node and source: the first and last sequence number in a batch, and how many."""
    plain = [plain_text(batch.column(name)) for name in (NODE, SOURCE)]
    table = pa.table([*plain, batch.column(SEQ)], names=[NODE, SOURCE, SEQ])
    found = table.group_by([NODE, SOURCE]).aggregate([(SEQ, "min"), (SEQ, "max"), (SEQ, "count")])
    rows = zip(*(found.column(name).to_pylist() for name in found.column_names), strict=True)
    at = {name: i for i, name in enumerate(found.column_names)}
    return {
        (row[at[NODE]], row[at[SOURCE]]): (row[at[f"{SEQ}_min"]], row[at[f"{SEQ}_max"]], row[at[f"{SEQ}_count"]])
        for row in rows
    }


__all__ = ["Part", "Rested", "Snapshot", "must_exist", "rested_parts", "spans_of", "table_of"]
