"""Setting a damaged log right: everything that can be read is kept, and nothing is thrown away.

What is taken out of a file is put beside it, or into the channel's folder `_damaged`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError, StoreError
from headwater.late import np
from headwater.store.log import ordered_merge as merging
from headwater.store.log import staging, wal
from headwater.store.log.compact import clean
from headwater.store.log.footers import footer
from headwater.store.log.layout import (
    DAMAGED,
    AtRest,
    ChannelFolder,
    NodeFolder,
    aside_name,
    claim,
    log_id,
    make_folders,
    parquet_segment,
    sync_folder,
    write_atomic,
)
from headwater.store.log.parquet_segment import ROW_GROUP, at_rest_by_files
from headwater.store.log.rewrite import write_rested
from headwater.store.log.schema import META, NODE, SOURCE, Table, evolve, first_table, read_table, write_table
from headwater.store.log.schema import table_of as table_of_schema
from headwater.store.log.seal import is_whole
from headwater.store.log.snapshot import Rested, spans_of, table_of
from headwater.store.log.wal_writer import Writer


@dataclass(slots=True)
class Repaired:
    """What was done, a line each, and what could not be."""

    channel: str
    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def repair(root: str | os.PathLike[str], channel: str, *, progress: Callable[[int], object] | None = None) -> Repaired:
    """Set right what is damaged in a channel's log. Nodes that have it open are left as they are, and named.

    `progress` is told bytes of files looked at."""
    folder = ChannelFolder.of(root, channel)
    if not folder.path.is_dir():
        raise StoreError(f"log {os.fspath(root)!r}: expected a log of channel {channel!r}, found none")
    report, tell = Repaired(channel), progress or (lambda count: None)
    report.done += staging.recover(folder)  # what an ingest that was ended has left
    with folder.exclusive():
        for path in clean(folder):
            report.done.append(f"{path.name}: removed, left by a compaction that was ended")
        table = _table(folder, report)
        for _, path in folder.parquet():
            size = path.stat().st_size
            _file(folder, table, path, report)
            tell(size)
    for each in folder.nodes():
        try:
            held = claim(each)
        except StoreError:
            report.left.append(f"{each.path.name}: node {each.node!r} has it open; close the node, and run this again")
            continue
        try:
            _node(each, report, tell)
        finally:
            os.close(held)
    return report


# ── the table's schema ──


def _table(folder: ChannelFolder, report: Repaired) -> Table:
    """The table of the log: as its file says, or, where that is damaged, from all that files at rest and write-ahead
    files say."""
    try:
        return table_of(folder)
    except StoreError:
        pass
    table: Table | None = None
    for _, path in folder.parquet():
        with suppress(StoreError):
            found = table_of_schema(footer(path).schema, os.fspath(path))
            table = found if table is None else _joined(table, found, folder.channel)
    for each in folder.nodes():
        for _, path in each.wals():
            with suppress(StoreError, FileNotFoundError):
                header = wal.read(path).header
                if header is not None:
                    own = first_table(header.type, folder.channel)
                    table = own if table is None else _joined(table, own, folder.channel)
    if table is None:
        raise StoreError(
            f"log {os.fspath(folder.path)!r}: expected at least one file that says what its events are, found none; "
            "there is nothing to repair"
        )
    write_table(folder, table)
    report.done.append(f"{folder.common_metadata.name}: written anew, from what the files say")
    return table


def _joined(table: Table, found: Table, channel: str) -> Table:
    """Fields of both; the newest type is the one found last."""
    fields = evolve(Table(table.fields, table.fields), found.fields, channel).fields
    return Table(found.type or table.type, fields)


# ── files at rest ──


def _file(folder: ChannelFolder, table: Table, path: Path, report: Repaired) -> None:
    """Hold the exclusive lock."""
    shown = f"{path.parent.name}/{path.name}"
    try:
        part = Rested(path, footer(path), path.stat().st_size)
    except StoreError as error:
        aside = _aside(folder, path)
        report.done.append(f"{shown}: not readable at all ({_why(error)}); moved to {aside}")
        return
    try:
        kept, lost, damaged = _readable(part, table)
    finally:
        part.close()
    name = parquet_segment(path.name)
    node = part.node if part.node is not None else (name[0] if name is not None and lost else None)
    whole = merging.joined(kept) if kept else None
    wrong = not lost and whole is not None and part.footer.sources is not None and part.footer.spans != spans_of(whole)
    if not lost and not wrong and not damaged and is_whole(path):
        return
    if whole is not None:
        whole = merging.arranged(whole, merging.order_in_file)
        temporary = path.with_name(f".{path.name}.tmp")
        segment = part.segment if part.segment is not None else (name[1] if name is not None else None)
        pieces = (whole.slice(at, ROW_GROUP) for at in range(0, whole.num_rows, ROW_GROUP))
        segments = None if segment is None else (segment, segment)
        write_rested(temporary, table.schema, pieces, node=node, segments=segments)
    aside = _aside(folder, path)
    if whole is None:
        report.done.append(f"{shown}: none of its events can be read; moved to {aside}")
        return
    temporary.rename(path)
    sync_folder(path.parent)
    what = (
        f"{lost:,} of {lost + whole.num_rows:,} events cannot be read"
        if lost
        else "its order, notes or index were wrong"
    )
    report.done.append(f"{shown}: {what}; written anew with {whole.num_rows:,} events, the old file is {aside}")


def _readable(part: Rested, table: Table) -> tuple[list[Any], int, bool]:
    """The rows that can be read, how many cannot, and whether they were out of order, or some there twice."""
    kept, lost = [], 0
    for group in part.groups:
        try:
            batch = part.load(table, group.index, None)
            batch.validate(full=True)
            if any(batch.column(name).null_count for name in META):
                raise StoreError("no value in a column of the log")
            kept.append(batch)
        except (HeadwaterError, ValueError):
            lost += group.rows
    if part.node is None or not kept:
        return kept, lost, False
    whole = merging.joined(kept)
    order = merging.order_in_file(whole)
    first = _first_of_each(whole, order)
    right = len(first) == whole.num_rows and (order[1:] > order[:-1]).all()
    return [whole if right else merging.take(whole, first)], lost, not right


def _first_of_each(batch: Any, order: Any) -> Any:
    """The rows in order, each number of a source once."""
    if len(order) < 2:
        return order
    columns = [merging.ranks(batch.column(name)) for name in (NODE, SOURCE)] + [merging.sequence(batch)]
    differs = np.zeros(len(order) - 1, bool)
    for column in columns:
        differs |= np.diff(column[order]) != 0
    return order[np.concatenate([[True], differs])]


def _aside(folder: ChannelFolder, path: Path) -> str:
    target = folder.path / DAMAGED / path.parent.name / aside_name(path.name, DAMAGED)
    make_folders(target.parent)
    number = 1
    while target.exists():
        number += 1
        target = target.with_name(aside_name(f"{path.name}.{number}", DAMAGED))
    path.rename(target)
    sync_folder(target.parent)
    sync_folder(path.parent)
    return os.fspath(target.relative_to(folder.path))


# ── what is private to a node ──


def _node(folder: NodeFolder, report: Repaired, tell: Callable[[int], object]) -> None:
    """Its claim is held."""
    for segment, path in folder.wals():
        tell(path.stat().st_size)
        _wal(folder, segment, path, report)
    known = AtRest.read(folder.sources)
    found = at_rest_by_files(folder)
    sources = dict(known.sources or {}) if known is not None else {}
    behind = [name for name, (seq, _) in (found.sources or {}).items() if sources.get(name, (0, 0))[0] < seq]
    if (known is None and folder.sources.exists()) or behind:
        for name in behind:
            assert found.sources is not None
            sources[name] = found.sources[name]
        AtRest(max(found.segment, known.segment if known is not None else 0), sources).write(folder.sources)
        report.done.append(f"{folder.path.name}/{folder.sources.name}: written anew, from the files at rest")


def _wal(folder: NodeFolder, segment: int, path: Path, report: Repaired) -> None:
    shown = f"{folder.path.name}/{path.name}"
    table = read_table(folder.channel)
    instead = wal.Header(folder.channel.channel, folder.node, segment, log_id(folder), table.type if table else None)
    found = wal.read(path, instead=instead)
    if not found.damage or found.header is None:
        return
    kept = _write_kept(folder, found, path.with_suffix(".repaired"))
    aside = path.with_suffix(".damaged")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_suffix(f".damaged-{number}")
    flaws = [*found.damage, *([found.torn] if found.torn is not None else [])]
    write_atomic(aside, [bytes(found.data[flaw.offset : flaw.offset + flaw.bytes]) for flaw in flaws])
    path.with_suffix(".repaired").rename(path)
    sync_folder(folder.path)
    bad = sum(flaw.bytes for flaw in flaws)
    report.done.append(f"{shown}: {kept:,} events kept, {bad:,} damaged bytes are in {aside.name}")


def _write_kept(folder: NodeFolder, found: wal.Segment, path: Path) -> int:
    """A write-ahead file with all events that can be read, numbered anew."""
    assert found.header is not None
    kept = 0
    last: dict[str, int] = {}
    with suppress(FileNotFoundError):
        path.unlink()
    writer = Writer.create(path, found.header)
    try:
        for at, row in enumerate(found._index.tolist()):
            kind, number, first, end, count, stamp, start, length = row
            source = found.names[number]
            if first <= last.get(source, 0):
                continue  # there already
            if kind == wal.EVENT:
                writer.event(source, first, stamp, bytes(found.data[start : start + length]))
            else:
                seqs, times, fields = found._columns(at)
                if kind == wal.BATCH:
                    writer.batch(source, first, stamp, fields)
                else:
                    writer.rows(source, seqs.copy(), times.copy(), fields)
            last[source] = end
            kept += count
        writer.sync()
    finally:
        writer.close()
    return kept


def _why(error: Exception) -> str:
    return str(error).split("found: ", 1)[-1].split("; ", 1)[0]


__all__ = ["Repaired", "repair"]
