"""Files into a log: one fast pass over everything, and a second one over the files that had bad records.

Nothing is in the log before everything is; a crash before that leaves nothing, one after it is finished by the next
ingest (see `headwater.store.log.staging`).
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import reduce
from itertools import accumulate, count
from operator import or_
from pathlib import Path
from typing import Any

from headwater.errors import ConfigError, ConfigProblem, ExecutionError
from headwater.late import pa
from headwater.spark.ingest import quarantine, reader, writer
from headwater.spark.ingest.convert import conversion
from headwater.spark.ingest.inputs import Input, Unreadable, check_whole, find_files, look
from headwater.spark.ingest.lateness import order_of
from headwater.spark.ingest.lowering import BAD, VERDICT, Wanted, _text, judged, wanted
from headwater.spark.ingest.mapping import IngestMapping
from headwater.spark.ingest.report import FileNote, IngestReport
from headwater.store.log.layout import (
    DAY_KEY,
    QUARANTINE,
    ChannelFolder,
    aside_name,
    claim,
    encode_name,
    make_folders,
)
from headwater.store.log.location import local_folder
from headwater.store.log.schema import check
from headwater.store.log.seal import seal
from headwater.store.log.snapshot import Snapshot
from headwater.store.log.staging import Staging, recover

MARKS = 62  # pieces of files that are told apart while records pass
KINDS = 50  # reasons that are told apart in a report
Tell = Callable[[str], object]


def ingest(
    spark: Any,
    mapping: IngestMapping,
    inputs: Iterable[str | os.PathLike[str]],
    log: str | os.PathLike[str],
    *,
    progress: Tell | None = None,
) -> IngestReport:
    """Put the records of files and folders into a log's channel; `progress` is told what is being done.

    Every record is in the log or in the quarantine when this returns. Files that cannot be read are in the report's
    notes, and the others go on. `ConfigError`: a constant or default does not fit its field; `StoreError`: the type
    does not fit what the channel has, or another process writes as this node."""
    began, tell = time.monotonic(), progress or (lambda what: None)
    given = [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs)
    folder = ChannelFolder.of(local_folder(log).absolute(), mapping.channel)
    check(folder, mapping.type)
    with ExitStack() as held:
        held.enter_context(writer.settings(spark))
        _check_constants(spark, mapping)
        node = folder.node(mapping.node)
        make_folders(node.path)
        held.callback(os.close, claim(node))
        recovered = recover(folder)
        staging = held.enter_context(Staging.open(folder))
        report = IngestReport(staging.id, mapping.channel, mapping.node, recovered=recovered)
        tell("looking at files")
        files = _look(given, mapping, staging.path, report)
        _run(spark, mapping, files, staging, report, tell)
        report.seconds = time.monotonic() - began
    return report


def _run(
    spark: Any, mapping: IngestMapping, files: list[Input], staging: Staging, report: IngestReport, tell: Tell
) -> None:
    """Read all files, and write their events beside the log, in one pass; if a file turns out to be broken, once more
    without it. Then look at their order, find bad records, and move everything into the log at once."""
    base = _last(staging.folder, mapping.node) + 1
    for attempt in count():
        report.files = len(files)
        filled = [each for each in files if each.size]
        if not filled:
            return
        places = dict(
            zip((f.uri for f in filled), accumulate((reader.pieces(f.size) for f in filled), initial=0), strict=False)
        )
        tell("reading and writing")
        written_to = staging.path / f"events-{attempt}"
        try:
            counts, bad_files = _pass(spark, mapping, filled, places, base, written_to, report)
            break
        except Exception as error:
            files = _without_broken(spark, files, mapping, report, error)
    report.logged, report.empty, report.quarantined = counts["good"], counts["empty"], counts["bad"]
    report.blank, report.headers = counts["blank"], counts["header"]
    report.lines = report.read + report.blank + report.headers
    _notes(mapping, filled, report)
    written = sorted(written_to.glob(f"{DAY_KEY}=*/*.parquet"))
    tell("looking at the order of events")
    late = mapping.late
    order = order_of(written, () if late.arrival else late.bounds)
    if order.events != report.events:
        raise ExecutionError(f"ingest: expected {report.events:,} events to be written, found {order.events:,}")
    numbers = [counts[f"late{i}"] for i in range(len(late.bounds))] if late.arrival else order.late
    report.late, report.late_by = tuple(zip(late.bounds, numbers, strict=True)), "records" if late.arrival else "events"
    report.backwards, report.sources = order.backwards, len(order.last)
    report.first, report.last = order.first_time, order.last_time
    moves = _moves(mapping.node, staging, written)
    if report.quarantined or report.dropped:
        tell("finding bad records")
        within = [each for each in filled if each.uri in bad_files] if not report.dropped else filled
        target = staging.path / "quarantine"
        quarantine.write_quarantine(spark, mapping, within, places, base, target, report.dropped > 0)
        found = quarantine.read_quarantine(target)
        if found.num_rows != report.quarantined + report.dropped:
            raise ExecutionError(
                f"ingest: expected {report.quarantined + report.dropped:,} bad records again in the second pass, found "
                f"{found.num_rows:,}; did a file change meanwhile? Nothing was put into the log"
            )
        report.reasons = _kinds(found.column("reason").to_pylist())
        name = f"{QUARANTINE}/ingest={staging.id}"
        report.quarantine = str(staging.folder.path / name)
        bad = sorted(path.name for path in target.glob("*.parquet"))
        moves += [(f"quarantine/{each}", f"{name}/{aside_name(each, QUARANTINE)}") for each in bad]
    tell("putting files in place")
    if moves:
        kind = mapping.type if written else None
        staging.commit(moves, node=mapping.node, sources=order.last, type=kind)


def _pass(
    spark: Any, mapping: IngestMapping, files: list[Input], places: dict[str, int], base: int, path: Path,
    report: IngestReport,
) -> tuple[dict[str, int], set[str]]:  # fmt: skip
    """Everything read once, and the good written. Returns what was counted, and the files that have bad records."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    frame = None
    tally = []
    for number, group in enumerate(reader.groups(mapping, files)):
        scan = reader.scan(spark, mapping, group, places, details=False)
        part = judged(mapping, scan, reasons=False)
        seen = Observation(f"records-{number}")
        # The pieces with bad records, as bits: of more than MARKS pieces some share one, and are looked at in vain.
        mark = F.expr(f"shiftleft(1L, cast(shiftright({reader.AT}, {reader.ROWS}) % {MARKS} as int))")
        pieces = F.bit_or(F.when(F.col(VERDICT) == BAD, mark)).alias("pieces")
        part = part.observe(seen, *writer.metrics(mapping), *([pieces] if len(files) > 1 else []))
        tally.append(seen)
        frame = part if frame is None else frame.unionByName(part)
    frame = writer.numbered(mapping, frame, base)
    what, again = mapping.duplicates.what, Observation("events")
    if what != "keep":
        frame = writer.repeated(mapping, frame)
        frame = frame.observe(again, F.count("*").alias("events"), F.count_if("__again").alias("again"))
        frame = writer.in_days((frame.where("NOT __again") if what == "drop" else frame).drop("__again"))
    elif mapping.explode is not None:
        frame = frame.observe(again, F.count("*").alias("events"))
    writer.write(frame, path)
    counts: Counter[str] = Counter()
    found = 0
    for seen in tally:
        metrics = dict(seen.get)
        found |= int(metrics.get("pieces", -1) or 0)
        counts.update(writer.counted(metrics))
    report.events = counts["good"] if what == "keep" and mapping.explode is None else int(again.get["events"])
    if what != "keep":
        report.repeated = int(again.get["again"])
        report.dropped = report.repeated if what == "drop" else 0
        report.events -= report.dropped
    bad = {f.uri for f in files if found & _marks(places[f.uri], reader.pieces(f.size))}
    return counts, bad


def _marks(first: int, count: int) -> int:
    return reduce(or_, (1 << piece % MARKS for piece in range(first, first + min(count, MARKS))))


def _moves(node: str, staging: Staging, written: list[Path]) -> list[tuple[str, str]]:
    moves = []
    for number, path in enumerate(written):
        target = f"{encode_name(node)}-ingest-{staging.id}-{number:05d}.parquet"
        with suppress(PermissionError):  # a worker's, which may be moved and not written
            seal(path, footer_only=True)
        moves.append((str(path.relative_to(staging.path)), f"{path.parent.name}/{target}"))
    return moves


def _look(given: list[Any], mapping: IngestMapping, scratch: Path, report: IngestReport) -> list[Input]:
    files = []
    room = scratch / "inputs"
    room.mkdir()
    for number, found in enumerate(find_files(given)):
        if found.problem:
            report.notes.append(FileNote(found.path, found.problem, fatal=found.fatal))
            continue
        try:
            made = look(found.path, mapping, room, number)
        except Unreadable as error:
            report.notes.append(FileNote(found.path, str(error), fatal=True))
            continue
        if not made.size:
            report.notes.append(FileNote(found.path, "it is empty"))
        files.append(made)
    return files


def _without_broken(
    spark: Any, files: list[Input], mapping: IngestMapping, report: IngestReport, error: Exception
) -> list[Input]:
    """The files without those that cannot be read to their end, by us or by Spark; the error again if all can."""
    filled = [each for each in files if each.size]
    broken = {each.path: problem for each in filled if (problem := check_whole(each, mapping))}
    if not broken:
        broken = _unread_by_spark(spark, filled, mapping)
    if not broken:
        raise error
    report.notes += [FileNote(path, problem, fatal=True) for path, problem in broken.items()]
    return [each for each in files if each.path not in broken]


def _unread_by_spark(spark: Any, files: list[Input], mapping: IngestMapping) -> dict[str, str]:
    """What Spark says of each file that it cannot read: all are read, and nothing is written."""
    broken: dict[str, str] = {}
    for group in reader.groups(mapping, files):
        broken |= _unread_of(spark, group, mapping)
    return broken


def _unread_of(spark: Any, group: list[Input], mapping: IngestMapping) -> dict[str, str]:
    """Those of a group that is read together, found by halves."""
    try:
        scan = reader.scan(spark, mapping, group, {each.uri: 0 for each in group}, details=False)
        judged(mapping, scan, reasons=False).write.format("noop").mode("overwrite").save()
    except Exception as error:
        spark.range(1).count()  # if the session itself is at its end, that is no fault of a file's
        if len(group) == 1:
            return {group[0].path: _cause(error)}
        half = len(group) // 2
        return {**_unread_of(spark, group[:half], mapping), **_unread_of(spark, group[half:], mapping)}
    return {}


def _cause(error: Exception) -> str:
    """What was the matter, from a trace of Java's: its last cause, in one line."""
    lines = str(error).splitlines() or [type(error).__name__]
    causes = [line.partition("Caused by: ")[2] for line in lines if line.lstrip().startswith("Caused by: ")]
    return f"Spark cannot read it: {(causes or lines)[-1 if causes else 0][:300]}"


def _notes(mapping: IngestMapping, files: list[Input], report: IngestReport) -> None:
    """What is odd about the columns of files, and what that does."""
    if mapping.format not in ("csv", "parquet"):
        return
    for each in files:
        for column in wanted(mapping):
            name = column.how.route.steps[0] if column.how.route and not column.how.route.start else None
            if name is None or each.columns.count(str(name)) == 1:
                continue
            fate = "its records have no value there" if column.optional or column.how.default is not None else (
                "its records are in the quarantine")  # fmt: skip
            what = "is not in this file" if name not in each.columns else "is in this file more than once"
            report.notes.append(FileNote(each.path, f"column {name}, for {column.name}, {what}; {fate}"))


def _last(folder: ChannelFolder, node: str) -> int:
    """The greatest sequence number that the node has in the log, whatever the source."""
    if not folder.common_metadata.exists():
        return 0
    with Snapshot(folder.root, folder.channel, nodes=[node]) as found:
        groups = [group for part in found.parts for group in part.groups if group.may_have(node, None)]
        return max((group.seqs[1] for group in groups), default=0)


def _kinds(reasons: list[str]) -> tuple[tuple[str, int], ...]:
    """Reasons without what differs from record to record, the most frequent first."""
    counts = Counter(
        re.sub(r"(, found ).*|(byte 0x\w\w at) \d+|^(element) \d+:", _kind, r, flags=re.DOTALL) for r in reasons
    )
    return tuple(counts.most_common(KINDS))


def _kind(found: re.Match[str]) -> str:
    if found[1]:
        return ", found otherwise"
    return "a byte" if found[2] else "an element:"


def _check_constants(spark: Any, mapping: IngestMapping) -> None:
    """Constants and defaults are the same for all records: what is wrong with them is known before."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    named: list[tuple[str, Wanted, Any]] = []
    for each in wanted(mapping):
        for name, value in (("value", each.how.value), ("default", each.how.default)):
            if value is not None:
                named.append((name, each, value))
    if not named:
        return
    texts = {f"c{i}": pa.array([_text(v)], pa.utf8()) for i, (_, _, v) in enumerate(named)}
    frame = spark.createDataFrame(pa.table(texts))  # from Arrow, Spark reckons with it at once, without a job
    made = []
    for i, (_, each, _) in enumerate(named):
        made.append(conversion(each.kind, F.col(f"c{i}"), T.StringType(), each.how, mapping.options).value.isNull())
    row = frame.select(*(column.alias(f"c{i}") for i, column in enumerate(made))).collect()[0]
    problems = []
    for wrong, (name, each, value) in zip(row, named, strict=True):
        if wrong:
            place = each.name.removeprefix("event_") if each.name.startswith("event_") else f"fields.{each.name}"
            problems.append(ConfigProblem(f"mapping: {place}.{name}", str(each.kind), repr(value)))
    if problems:
        raise ConfigError(problems)
