"""A study of one's own: a log and a set of subscriptions, tried on Spark, played live, and compared.

    log = "events"                       # the folder of a log, relative to the file
    title = "A day in the office"        # optional

    [[subscription]]
    name = "visitors"
    at = "security"
    where = "kind = 'visitor'"

The file is that of `headwater backtest` with these two keys more.
"""

from __future__ import annotations

import os
import tempfile
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
    Subscription,
    Subscriptions,
    backtest,
    backtest_patterns,
    load,
)
from headwater.spark.backtest.backtest import bucket_width
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
    channel: str
    sources: Mapping[str, int]  # how many, by node
    found: Backtest
    subscriptions: tuple[Compared, ...]
    run: Run | None = None  # live
    code: tuple[CodeFacts, ...] = ()
    programs: int = 0  # that differ; `code` has the first of them
    fired: PatternBacktest | None = None  # what patterns would have found
    names: Mapping[str, str] = field(default_factory=dict)  # nodes that had another name in the live run
    master: str = ""
    timings: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def differences(self) -> tuple[Compared, ...]:
        """Subscriptions that got something else live than on Spark."""
        return tuple(each for each in self.subscriptions if each.difference)

    @property
    def crossing(self) -> int:
        """Events that should cross live: what Spark finds merged, and what is for sinks of a source's own node, which
        are on a node of their own there."""
        return self.found.merged.events + self.found.local

    def to_json(self) -> bytes:
        names = [each for each in self.__dataclass_fields__ if each not in ("found", "fired")]
        made = {name: msgspec.to_builtins(getattr(self, name)) for name in names}
        made |= {"found": self.found.to_dict(), "patterns": None if self.fired is None else self.fired.to_dict()}
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
    reader = _reader(given, path)
    kind = given.type or reader.type or event_type(BYTES_RECORD)
    wanted = resolve(given, kind)
    _check_patterns(given, reader, path)
    if live:
        _check_live(reader, wanted, speed)
    clock = Clock(say)
    with _session(spark, master, remote, clock) as here:
        with clock.step(f"{len(wanted):,} subscriptions on Spark, over the log of {reader.channel}"):
            found = backtest(here, reader, given, bucket=bucket)
        fired = None
        if given.patterns:
            with clock.step(f"{len(given.patterns):,} patterns on Spark"):
                fired = backtest_patterns(here, reader.root, given.patterns, bucket=bucket)
        run: Run | None = None
        names: dict[str, str] = {}
        again: dict[str, int] = {}
        if live:
            with tempfile.TemporaryDirectory(prefix="headwater-study-") as scratch:
                log = Path(scratch) / "log"
                run, names = _play(reader, wanted, found, log, speed, clock)
                again = _again(here, reader.channel, given, wanted, found, run, log, clock)
    with clock.step("measuring the code of the interests"):
        distinct = _programs(wanted)
        code = tuple(code_facts(interest, name=name, shared_by=n) for name, interest, n in distinct[:PROGRAMS])
    sources: dict[str, int] = {}
    for span in reader.sources():
        sources[span.node] = sources.get(span.node, 0) + 1
    return OwnResult(
        title=given.title or f"A study of {reader.channel}",
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        file=path.name,
        log=os.path.normpath(reader.root),
        channel=reader.channel,
        sources=sources,
        found=found,
        subscriptions=tuple(
            _compared(each, one, row.events, run, again)
            for each, one, row in zip(given.subscriptions, wanted, found.subscriptions, strict=True)
        ),
        run=run,
        fired=fired,
        code=code,
        programs=len(distinct),
        names=names,
        master=remote or master if spark is None else "",
        timings=clock.spent,
        versions=versions(),
    )


# ── what is asked for ──


def _check_patterns(given: Subscriptions, reader: ChannelReader, file: Path) -> None:
    """What is wrong with patterns is told before anything starts, as of subscriptions; they go beside these."""
    if given.patterns and not given.subscriptions:
        hint = "a study compares what Spark finds with what arrives live; patterns alone are for `headwater backtest`"
        raise _problem(f"{file.name}: subscription", "at least one [[subscription]]", "none", hint)
    resolve_patterns(tuple(given.patterns), channel_types(reader.root), SINK)


def _reader(given: Subscriptions, file: Path) -> ChannelReader:
    if given.log is None:
        raise _problem(f"{file.name}: log", "the folder of a log, relative to the file", "none", 'say log = "folder"')
    if not given.log.is_dir():
        raise _problem(f"{file.name}: log", "a folder with a log", f"none at {given.log}")
    name = given.channel
    if name is None:
        found = channels(given.log)
        if len(found) != 1:
            there = f"one of {', '.join(found)}" if found else "a channel that the log has; it has none"
            raise _problem(f"{file.name}: channel", there, "none", 'say channel = "name"')
        name = found[0]
    reader = ChannelReader(given.log, name)
    if not reader.sources():
        raise StoreError(f"log {os.fspath(given.log)!r}: expected events of channel {name!r}, found none")
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
