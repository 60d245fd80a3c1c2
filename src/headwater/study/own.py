"""A study of one's own: a log and a set of subscriptions, tried on Spark, played live, and compared; and patterns,
tried on Spark and in this process.

    log = "events"                       # the folder of a log, relative to the file
    title = "A day in the office"        # optional

    [[subscription]]
    name = "visitors"
    at = "security"
    where = "kind = 'visitor'"

    [[pattern]]
    name = "tailgating"
    at = "security"
    match = "a: hall.door -> b: hall.door{who != a.who} within 2 seconds partition by door"

The file is that of `headwater backtest` with these two keys more.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from headwater.channel.replay import common_type
from headwater.errors import ConfigError, ConfigProblem, StoreError
from headwater.interest import Interest
from headwater.ir.nodes import Meta
from headwater.ir.walk import all_expressions
from headwater.spark.backtest import (
    Backtest,
    PatternBacktest,
    PatternRow,
    Subscription,
    Subscriptions,
    backtest,
    backtest_patterns,
    load,
)
from headwater.spark.backtest.backtest import bucket_width
from headwater.spark.backtest.command import LOCAL_EVENTS
from headwater.spark.backtest.patterns.asked import resolve_patterns
from headwater.spark.backtest.subscriptions import SINK, Wanted, resolve
from headwater.spark.session import running, session
from headwater.store.log.progress_bar import Progress
from headwater.store.log.reader import ChannelReader, channel_types, channels
from headwater.store.log.schema import BYTES_RECORD
from headwater.study.badges.code import code_facts
from headwater.study.badges.run import Clock, versions
from headwater.study.live import PREPARING, stage
from headwater.study.report.data import CodeFacts, Run
from headwater.types import event_type

PROGRAMS = 30  # of which code is measured: each is compiled several times


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One subscription: what it gets of the recording on Spark, and live.

    `live` is compared with `expected`: with `spark`, or, where `again`, with what Spark finds in the log of the live
    run. That is so for interests that look at more than an event's fields, and so depend on how it is played."""

    name: str
    at: str
    text: str  # the interest as it is written, "" for everything
    params: str  # those that are single values
    kind: str  # "everything", "filter", "filter with state", "transformation" ...
    spark: int
    live: int | None = None
    expected: int | None = None
    again: bool = False

    @property
    def difference(self) -> int | None:
        return None if self.live is None or self.expected is None else self.live - self.expected


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnResult:
    """All that was found."""

    title: str
    made: str  # when, ISO 8601
    file: str
    log: str
    channel: str  # of the subscriptions; "" without any
    sources: Mapping[str, int]  # how many, by node
    found: Backtest | None  # None where there are patterns alone
    subscriptions: tuple[Compared, ...]
    run: Run | None = None  # live
    code: tuple[CodeFacts, ...] = ()
    programs: int = 0  # that differ; `code` has the first of them
    fired: PatternBacktest | None = None  # what patterns would have found, on Spark
    here: PatternBacktest | None = None  # the same in this process, where the log is not too large for it
    names: Mapping[str, str] = field(default_factory=dict)  # nodes that had another name in the live run
    master: str = ""
    timings: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def judged(self) -> Backtest:
        """What subscriptions got, of a study that has some."""
        assert self.found is not None
        return self.found

    @property
    def differences(self) -> tuple[Compared, ...]:
        """Subscriptions that got something else live than on Spark."""
        return tuple(each for each in self.subscriptions if each.difference)

    @property
    def pattern_differences(self) -> tuple[tuple[str, int, int], ...]:
        """Patterns that have other matches in this process than on Spark: the name, and how many on Spark and here."""
        if self.fired is None or self.here is None:
            return ()
        pairs = zip(self.fired.patterns, self.here.patterns, strict=True)
        return tuple((one.name, one.matches, other.matches) for one, other in pairs if not _alike(one, other))

    @property
    def crossing(self) -> int:
        """Events that should cross live: what Spark finds merged, and what is for sinks of a source's own node, which
        are on a node of their own there."""
        return self.judged.merged.events + self.judged.local

    def to_json(self) -> bytes:
        reports = {"found": self.found, "patterns": self.fired, "patterns_here": self.here}
        names = [each for each in self.__dataclass_fields__ if each not in ("found", "fired", "here")]
        made = {name: msgspec.to_builtins(getattr(self, name)) for name in names}
        made |= {name: None if report is None else report.to_dict() for name, report in reports.items()}
        return msgspec.json.format(msgspec.json.encode(made, enc_hook=str), indent=2) + b"\n"


@dataclass(frozen=True, slots=True)
class _Asked:
    """As the live run wants it."""

    name: str
    at: str
    where: Interest | None
    params: None = None


def study(
    file: str | os.PathLike[str],
    *,
    live: bool = True,
    speed: float | None = None,
    bucket: str = "auto",
    master: str = "local[*]",
    remote: str | None = None,
    spark: Any = None,
    say: Callable[[str], object] = print,
) -> OwnResult:
    """Try the subscriptions of a file on the log that it names: on Spark, then, with `live`, in a federation.

    `speed` is how many times faster than recorded it is played, None for as fast as it goes; `bucket` is as for a
    backtest. `spark` is a session to use; else it is the one that runs, or one is started and stopped."""
    path = Path(file)
    bucket_width(bucket)
    given = load(path)
    folder = _folder(given, path)
    wanted, reader = _wanted(given, folder, path)
    resolve_patterns(tuple(given.patterns), channel_types(folder), SINK)  # what is wrong is told before anything starts
    if live and reader is not None:
        _check_live(reader, wanted, speed)
    clock = Clock(say)
    found: Backtest | None = None
    run: Run | None = None
    names: dict[str, str] = {}
    again: dict[str, int] = {}
    with _session(spark, master, remote, clock) as here:
        if reader is not None:
            with clock.step(f"{len(wanted):,} subscriptions on Spark, over the log of {reader.channel}"):
                found = backtest(here, reader, given, bucket=bucket)
        fired, alone = _patterns(here, folder, given, bucket, clock)
        if live and reader is not None and found is not None:
            with tempfile.TemporaryDirectory(prefix="headwater-study-") as scratch:
                log = Path(scratch) / "log"
                run, names = _play(reader, wanted, found, log, speed, clock)
                again = _again(here, reader.channel, given, wanted, found, run, log, clock)
    code, distinct = _measured(wanted, clock)
    rows = () if found is None else found.subscriptions
    return OwnResult(
        title=given.title or f"A study of {path.stem if reader is None else reader.channel}",
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        file=path.name,
        log=os.path.normpath(folder),
        channel="" if reader is None else reader.channel,
        sources=Counter(span.node for span in reader.sources()) if reader is not None else {},
        found=found,
        subscriptions=tuple(
            _compared(each, one, row.events, run, again)
            for each, one, row in zip(given.subscriptions, wanted, rows, strict=True)
        ),
        run=run,
        fired=fired,
        here=alone,
        code=code,
        programs=distinct,
        names=names,
        master=remote or master if spark is None else "",
        timings=clock.spent,
        versions=versions(),
    )


def _measured(wanted: Sequence[Wanted], clock: Clock) -> tuple[tuple[CodeFacts, ...], int]:
    """The code of the first programs, and how many differ."""
    distinct = _programs(wanted)
    if not distinct:
        return (), 0
    with clock.step("measuring the code of the interests"):
        code = tuple(code_facts(interest, name=name, shared_by=n) for name, interest, n in distinct[:PROGRAMS])
    return code, len(distinct)


# ── patterns ──


def _patterns(
    spark: Any, log: Path, given: Subscriptions, bucket: str, clock: Clock
) -> tuple[PatternBacktest | None, PatternBacktest | None]:
    """What they would have found: on Spark, and in this process, which also counts what bound values keep from
    crossing. They are not played live: replayed events have new times, and patterns go by time."""
    if not given.patterns:
        return None, None
    count = f"{len(given.patterns):,} pattern{'s' * (len(given.patterns) != 1)}"
    with clock.step(f"{count} on Spark"):
        fired = backtest_patterns(spark, log, given.patterns, bucket=bucket)
    if fired.events > LOCAL_EVENTS:
        return fired, None
    with clock.step(f"{count} in this process"):
        return fired, backtest_patterns(None, log, given.patterns, bucket=bucket)


def _alike(one: PatternRow, other: PatternRow) -> bool:
    return (one.matches, one.times, one.hours) == (other.matches, other.times, other.hours)


# ── what is asked for ──


def _folder(given: Subscriptions, file: Path) -> Path:
    if given.triggers:
        hint = "headwater backtest tries triggers"
        raise _problem(f"{file.name}: trigger", "subscriptions and patterns, in a study", "triggers", hint)
    if given.log is None:
        raise _problem(f"{file.name}: log", "the folder of a log, relative to the file", "none", 'say log = "folder"')
    if not given.log.is_dir():
        raise _problem(f"{file.name}: log", "a folder with a log", f"none at {given.log}")
    return given.log


def _wanted(given: Subscriptions, log: Path, file: Path) -> tuple[list[Wanted], ChannelReader | None]:
    """The subscriptions, checked, and the channel that they are for; patterns name their own channels."""
    if not given.subscriptions and given.patterns:
        return [], None
    reader = _reader(given, log, file)
    return resolve(given, given.type or reader.type or event_type(BYTES_RECORD)), reader


def _reader(given: Subscriptions, log: Path, file: Path) -> ChannelReader:
    name = given.channel
    if name is None:
        found = channels(log)
        if len(found) != 1:
            there = f"one of {', '.join(found)}" if found else "a channel that the log has; it has none"
            raise _problem(f"{file.name}: channel", there, "none", 'say channel = "name"')
        name = found[0]
    reader = ChannelReader(log, name)
    if not reader.sources():
        raise StoreError(f"log {os.fspath(log)!r}: expected events of channel {name!r}, found none")
    return reader


def _check_live(reader: ChannelReader, wanted: Sequence[Wanted], speed: float | None) -> None:
    if speed is not None and not 0 < speed < float("inf"):
        raise _problem("speed", "a number above 0", f"{speed!r}")
    if reader.type is None and any(each.interest is not None for each in wanted):
        raise _problem(
            f"channel {reader.channel}",
            "events of a type, or subscriptions without an interest",
            "bytes, to which interests cannot be put live",
            "use --no-live",
        )


def _problem(place: str, expected: str, found: str, hint: str | None = None) -> ConfigError:
    return ConfigError([ConfigProblem(f"study: {place}", expected, found, hint)])


@contextmanager
def _session(spark: Any, master: str, remote: str | None, clock: Clock) -> Iterator[Any]:
    spark = running() if spark is None else spark
    if spark is not None:
        yield spark
        return
    with clock.step("starting Spark"):
        made = session("headwater study", master, remote=remote)
    try:
        yield made
    finally:
        made.stop()


# ── live ──


def _play(
    reader: ChannelReader, wanted: Sequence[Wanted], found: Backtest, log: Path, speed: float | None, clock: Clock
) -> tuple[Run, dict[str, str]]:
    """Play it once to all of them; what nodes were called that could not keep their name."""
    nodes = list(dict.fromkeys(span.node for span in reader.sources()))
    kind = common_type(reader.table)
    some = [_Asked(each.name, each.at, each.interest) for each in wanted]
    total = sum(row.events for row in found.subscriptions)
    keeps = any(_depends(each.interest) for each in wanted)  # then its log is looked at, too
    with clock.step(f"playing it live: {len(nodes):,} nodes with sources, {len(found.sinks):,} with sinks"):
        with (
            stage(Path(reader.root), reader.channel, nodes, kind, facts={}) as ready,
            Progress(total, "  live", "deliveries") as bar,
        ):
            run = ready.run(
                "live",
                some,
                title="all subscriptions",
                log=log if keeps else None,
                speed=speed,
                begun=lambda: bar.begin(PREPARING),
                progress=lambda done: bar.add(done - bar.done),
            )
        return run, {name: called for name, called in ready.names.items() if name != called}


def _depends(interest: Interest | None) -> bool:
    """Whether what it gives depends on more than an event's fields: on earlier ones, or on number, time or node."""
    if interest is None:
        return False
    program = interest.executed.program
    return program.stateful or any(isinstance(each, Meta) for each in all_expressions(program.body))


def _again(
    spark: Any,
    channel: str,
    given: Subscriptions,
    wanted: Sequence[Wanted],
    found: Backtest,
    run: Run,
    log: Path,
    clock: Clock,
) -> dict[str, int]:
    """What Spark finds in the live run's own log, for those that got something else than of the recording, and may:
    events have new numbers and times there, and are in the order of time where the recording was not."""
    counts = {row.name: row.events for row in found.subscriptions}
    some = [
        Subscription(name=each.name, where=each.interest, at=each.at)
        for each in wanted
        if run.delivered[each.name] != counts[each.name] and _depends(each.interest)
    ]
    if not some:
        return {}
    with clock.step(f"{len(some):,} of them on Spark, over the log of the live run"):
        once_more = backtest(spark, log, some, channel=channel, type=given.type, bucket="none")
    return {row.name: row.events for row in once_more.subscriptions}


# ── what comes of it ──


def _compared(given: Subscription, wanted: Wanted, spark: int, run: Run | None, again: Mapping[str, int]) -> Compared:
    single = {name: value for name, value in given.params.items() if isinstance(value, str | int | float | bool)}
    return Compared(
        name=given.name,
        at=wanted.at,
        text=" ".join(wanted.interest.text.split()) if wanted.interest is not None else "",
        params=", ".join(f"{name} = {value}" for name, value in single.items()),
        kind=_kind(wanted.interest),
        spark=spark,
        live=None if run is None else run.delivered[given.name],
        expected=None if run is None else again.get(given.name, spark),
        again=given.name in again,
    )


def _kind(interest: Interest | None) -> str:
    if interest is None:
        return "everything"
    made = "filter" if interest.output is None else "transformation"
    return f"{made} with state" if interest.executed.program.stateful else made


def _programs(wanted: Sequence[Wanted]) -> list[tuple[str, Interest, int]]:
    """Those that differ: the first subscription's name with each, and how many have the same."""
    found: dict[bytes, tuple[str, Interest]] = {}
    count: dict[bytes, int] = {}
    for each in wanted:
        if each.interest is not None:
            key = each.interest.fingerprint
            found.setdefault(key, (each.name, each.interest))
            count[key] = count.get(key, 0) + 1
    return [(name, interest, count[key]) for key, (name, interest) in found.items()]


__all__ = ["Compared", "OwnResult", "study"]
