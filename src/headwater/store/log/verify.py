"""Looking through a whole log for anything that is not as it should be."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError, StoreError
from headwater.late import np
from headwater.store.log import ordered_merge as merging
from headwater.store.log import wal
from headwater.store.log.compact import unfinished
from headwater.store.log.footers import Range, footer
from headwater.store.log.layout import (
    DAMAGED,
    DAY_KEY,
    DAY_MICROSECONDS,
    PRIVATE,
    QUARANTINE,
    AtRest,
    ChannelFolder,
    day_of,
)
from headwater.store.log.layout import parquet_segment as own_name
from headwater.store.log.schema import META, NODE, SEQ, SOURCE, Table
from headwater.store.log.seal import Damaged, is_whole
from headwater.store.log.snapshot import Rested, spans_of, table_of
from headwater.store.log.staging import left_behind

Tell = Callable[[int], object]
REPAIR = "run `headwater log repair`"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something wrong: where, what, and what to do about it."""

    place: str
    problem: str
    advice: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}; {self.advice}"


@dataclass(slots=True)
class Verified:
    """What there is, what is wrong (`problems`), and what is only worth knowing (`notes`)."""

    channel: str
    files: int = 0
    events: int = 0
    bytes: int = 0
    sources: int = 0
    problems: list[Trouble] = field(default_factory=list)
    notes: list[Trouble] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.problems


def verify(root: str | os.PathLike[str], channel: str, *, progress: Tell | None = None) -> Verified:
    """Read everything in a channel's log and check it; `progress` is told bytes. Nothing is changed."""
    folder = ChannelFolder.of(root, channel)
    if not folder.path.is_dir():
        raise StoreError(f"log {os.fspath(root)!r}: expected a log of channel {channel!r}, found none")
    return _Check(folder, progress or (lambda count: None)).run()


def total_bytes(root: str | os.PathLike[str], channel: str) -> int:
    """How much there is to verify."""
    folder = ChannelFolder.of(root, channel)
    with folder.shared():
        paths = [path for _, path in folder.parquet()] + [path for each in folder.nodes() for _, path in each.wals()]
        return sum(path.stat().st_size for path in paths if path.exists())


class _Check:
    def __init__(self, folder: ChannelFolder, tell: Tell) -> None:
        self.folder, self.tell = folder, tell
        self.report = Verified(folder.channel)
        self.spans: dict[tuple[str, str], list[tuple[Range, Any]]] = {}  # and where to read the numbers from
        self.rest: dict[tuple[str, str], int] = {}  # the last at rest

    def run(self) -> Verified:
        """Read everything that the log of a channel has, and compare it with what it should be. All files are opened
        under one lock, so that they are of one moment, and read without it: writers go on."""
        folder = self.folder
        try:
            table: Table | None = table_of(folder)
        except StoreError as error:
            self.problem(folder.common_metadata, str(error).split(": ", 1)[-1].rsplit(";", 1)[0], REPAIR)
            table = None
        parts: list[Rested] = []
        with folder.shared():
            tails = [(each.node, segment, path) for each in folder.nodes() for segment, path in each.wals()]
            waiting = {(node, segment) for node, segment, _ in tails}
            segments = [(node, segment, self.open_wal(path)) for node, segment, path in tails]
            for _, path in folder.parquet():
                part = self.open(path)
                if part is None:
                    continue
                if own_name(path.name) in waiting:
                    self.note(path, "its write-ahead file is still there, and counts", "opening the log finishes this")
                    part.close()
                    continue
                parts.append(part)
        try:
            for part in parts:
                self.at_rest(part, table)
                self.tell(part.size)
            for node, segment, found in segments:
                if found is not None:
                    self.tail(node, segment, found, table)
            self.once()
        finally:
            for part in parts:
                part.close()
        self.remembered()
        self.leftovers()
        self.report.sources = len(self.spans)
        return self.report

    # ── files at rest ──

    def open(self, path: Path) -> Rested | None:
        try:
            part = Rested(path, footer(path), path.stat().st_size)
            part.open()
        except (StoreError, OSError) as error:
            self.report.files += 1
            found = str(error).split("found: ", 1)[-1].split("; ", 1)[0]
            self.problem(path, f"it cannot be read as a file of a log ({found})", f"{REPAIR}, which sets it aside")
            return None
        return part

    def at_rest(self, part: Rested, table: Table | None) -> None:
        """Check one file at rest: readable, of the table's columns, in order, in the right day, and with the ranges
        that its footer says."""
        report = self.report
        report.files, report.bytes = report.files + 1, report.bytes + part.size
        spans: dict[tuple[str, str], Range] = {}
        before: tuple[str, str, int] | None = None
        day = day_of(part.path.parent.name)
        ordered = inside = True
        lost = False
        for group in part.groups:
            try:
                whole = part.read(group.index, part.schema.names)
                whole.validate(full=True)
                batch = whole.select(list(META))
                if table is not None:
                    part.load(table, group.index, None)
            except (HeadwaterError, ValueError) as error:
                why = str(error).splitlines()[0].split("cannot be read: ", 1)[-1].split("; ", 1)[0]
                self.problem(
                    part.path,
                    f"row group {group.index}, {group.rows:,} events, cannot be read: {why}",
                    f"{REPAIR}, which keeps the others",
                )
                lost = True
                continue
            report.events += batch.num_rows
            if missing := [name for name in META if batch.column(name).null_count]:
                self.problem(part.path, f"row group {group.index}: no value in {', '.join(missing)}", REPAIR)
                continue
            for key, (first, last, count) in spans_of(batch).items():
                had = spans.get(key, (first, last, 0))
                spans[key] = (min(first, had[0]), max(last, had[1]), had[2] + count)
            when = merging.times(batch)
            if day is not None and (when // DAY_MICROSECONDS != day).any():
                inside = False
            edges = [
                (batch.column(NODE)[at].as_py(), batch.column(SOURCE)[at].as_py(), batch.column(SEQ)[at].as_py())
                for at in ((0, batch.num_rows - 1) if batch.num_rows else ())
            ]
            if edges and ((before is not None and before >= edges[0]) or not _rising(batch)):
                ordered = False
            before = edges[1] if edges else before
        if not inside:
            advice = "who asks for a day does not find them; export the log, and ingest that"
            self.problem(part.path, "it has events of other days than its folder is named for", advice)
        if not ordered and part.node is not None:
            self.problem(part.path, "its events are not in order of source and number, or some are twice", REPAIR)
        if not lost:
            self.compare(part, spans)
            self.bytes_of(part, table)
        for key, span in spans.items():
            self.spans.setdefault(key, []).append((span, part))
            self.rest[key] = max(self.rest.get(key, 0), span[1])

    def bytes_of(self, part: Rested, table: Table | None) -> None:
        """What reading it does not show, though other readers may come to it."""
        if table is not None and (unknown := _unknown(part, table)):
            with suppress(StoreError):
                unknown = _unknown(part, table_of(self.folder))  # the table may have it by now
            if unknown:
                advice = "put a copy of the file in its place, or move it out of the log"
                self.problem(part.path, f"it has a column {unknown[0]!r}, which the channel has never had", advice)
        try:
            whole = is_whole(part.path)
        except (Damaged, OSError):  # retention or a compaction has taken it, or another is in its place
            return
        if not whole:
            self.problem(part.path, "some of its bytes are not as they were written, by their checksum", REPAIR)

    def compare(self, part: Rested, spans: dict[tuple[str, str], Range]) -> None:
        """What its writer has noted, with what is there."""
        if part.node is None or part.footer.sources is None:
            return
        noted = {(part.node, source): span for source, span in part.footer.sources.items()}
        if noted != spans:
            wrong = sorted({key[1] for key in noted.keys() ^ spans.keys()})
            wrong += sorted(key[1] for key in noted.keys() & spans.keys() if noted[key] != spans[key])
            self.problem(part.path, f"its notes are wrong about source {', '.join(map(repr, wrong[:3]))}", REPAIR)
        name = own_name(part.path.name)
        if name is not None and name != (part.node, part.segment):
            self.problem(
                part.path,
                f"it says to be segment {part.segment} of node {part.node!r}, which is not its name",
                "give it the name it had",
            )

    # ── write-ahead files ──

    def open_wal(self, path: Path) -> wal.Segment | None:
        try:
            return wal.read(path)
        except FileNotFoundError:
            return None
        except StoreError as error:
            self.report.files += 1
            self.problem(path, str(error).split("found: ", 1)[-1].rsplit(";", 1)[0], REPAIR)
            return None

    def tail(self, node: str, segment: int, found: wal.Segment, table: Table | None) -> None:
        """Check one write-ahead file: a torn end is normal, damage before it is not."""
        report, path = self.report, found.path
        report.files, report.bytes = report.files + 1, report.bytes + len(found.data)
        report.events += found.rows
        for flaw in found.damage:
            self.problem(path, f"damaged at byte {flaw.offset:,}, {flaw.bytes:,} bytes: {flaw.why}", REPAIR)
        if found.torn is not None and found.torn.bytes:
            advice = "it is being written, or will be cut off when the log is opened; nobody was told that it is logged"
            self.note(path, f"{found.torn.bytes:,} bytes at its end are incomplete", advice)
        header = found.header
        if header is not None and (header.channel, header.node, header.segment) != (self.folder.channel, node, segment):
            self.problem(
                path,
                f"it is segment {header.segment} of node {header.node!r} and channel {header.channel!r}",
                "put it where it was",
            )
        if table is not None:
            try:
                for batch in found.batches(table):
                    batch.validate(full=True)
            except (HeadwaterError, ValueError) as error:
                self.problem(path, str(error).splitlines()[0].split(": ", 1)[-1], REPAIR)
        self.tell(len(found.data))
        for source, span in found.spans.items():
            self.spans.setdefault((node, source), []).append((span, found))

    # ── all together ──

    def once(self) -> None:
        """Each number of a source is there once: only files whose numbers overlap need to be read again."""
        for (node, source), found in sorted(self.spans.items()):
            found.sort(key=lambda each: each[0][:2])
            high, overlapping = found[0][0][1], []
            for before, after in pairwise(found):
                if after[0][0] <= high:
                    overlapping += [before, after]
                high = max(high, after[0][1])
            parts = list({id(part): part for _, part in overlapping}.values())
            if not parts:
                continue
            try:
                seqs = np.concatenate([_numbers(part, node, source) for part in parts])
            except HeadwaterError:
                continue  # it was said already
            values, counts = np.unique(seqs, return_counts=True)
            if (counts > 1).any():
                twice, first = int((counts > 1).sum()), int(values[counts > 1][0])
                self.problem(
                    self.folder.path,
                    f"{twice:,} events of source {source!r} of node {node!r} are there more than once, the first "
                    f"is number {first:,}, in {', '.join(sorted(part.path.name for part in parts))}",
                    "export the log, which does not lose anything, and remove the file that was copied in",
                )

    def remembered(self) -> None:
        for each in self.folder.nodes():
            known = AtRest.read(each.sources)
            if known is None:
                if each.sources.exists():
                    self.problem(each.sources, "it cannot be understood", REPAIR)
                continue
            for (node, source), last in self.rest.items():
                if node == each.node and (known.sources or {}).get(source, (0, 0))[0] < last:
                    self.problem(
                        each.sources, f"it does not know that source {source!r} is at rest up to {last:,}", REPAIR
                    )

    def leftovers(self) -> None:
        path = self.folder.path
        for each in unfinished(self.folder):
            self.note(each, "left by a compaction that was ended, or that is running", REPAIR)
        for each in sorted([*path.glob(f"{DAY_KEY}=*/.*.tmp"), *path.glob(f"{PRIVATE}/*/.*.tmp")]):
            self.note(each, "a file that is being written, or was when its process ended", "opening the log removes it")
        for each in left_behind(self.folder):
            self.note(each, "an ingest that is under way, or was ended", "run the ingest again, which finishes it")
        for where in (QUARANTINE, DAMAGED):
            for each in sorted((path / where).glob("**/*.parquet")):
                self.problem(each, "it lies where readers of Parquet look for events, and has none", REPAIR)

    def problem(self, place: Path, problem: str, advice: str) -> None:
        self.report.problems.append(Trouble(self._place(place), problem, advice))

    def note(self, place: Path, what: str, advice: str) -> None:
        self.report.notes.append(Trouble(self._place(place), what, advice))

    def _place(self, path: Path) -> str:
        return os.fspath(path.relative_to(self.folder.root)) if path.is_relative_to(self.folder.root) else str(path)


def _unknown(part: Rested, table: Table) -> list[str]:
    return [name for name in part.schema.names if name not in table.schema.names]


def _rising(batch: Any) -> bool:
    """Whether rows are in order of node, source and number, none of them twice."""
    order = merging.order_in_file(batch)
    if len(order) < 2:
        return True
    codes = merging.ranks(batch.column(NODE)).astype(np.int64) << 32 | merging.ranks(batch.column(SOURCE))
    same = np.diff(codes[order]) == 0
    return bool((np.diff(order) == 1).all() and (np.diff(merging.sequence(batch)[order])[same] > 0).all())


def _numbers(part: Rested | wal.Segment, node: str, source: str) -> Any:
    """The sequence numbers of a source in a file."""
    if isinstance(part, wal.Segment):
        made: list[Any] = [np.zeros(0, np.int64)]
        number = next(index for index, name in part.names.items() if name == source)
        for row in part._index[part._index[:, 1] == number].tolist():
            kind, _, first, last, count, _, start, _ = row
            own = np.frombuffer(part.data, np.int64, count, start) if kind == wal.ROWS else np.arange(first, last + 1)
            made.append(own)
        return np.concatenate(made)
    found = [np.zeros(0, np.int64)]
    for group in part.groups:
        if group.may_have(node, source):
            batch = part.read(group.index, (NODE, SOURCE, SEQ))
            keep = [n == node and s == source for n, s in zip(*_texts(batch), strict=True)]
            found.append(merging.sequence(batch)[np.array(keep, bool)])
    return np.concatenate(found)


def _texts(batch: Any) -> tuple[list[str], list[str]]:
    return batch.column(NODE).to_pylist(), batch.column(SOURCE).to_pylist()


__all__ = ["Trouble", "Verified", "total_bytes", "verify"]
