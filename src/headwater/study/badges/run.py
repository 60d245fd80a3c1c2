"""The badge study itself: make the day, play it through a federation, run it on Spark, and put it all together."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import StoreError
from headwater.spark import LOG_META, outcome, session
from headwater.spark.backtest import Backtest, Subscription, backtest
from headwater.spark.log import events
from headwater.store.log import ChannelLog, Log
from headwater.store.log.progress_bar import Progress
from headwater.study.badges.code import code_facts, programs
from headwater.study.badges.day import CHANNEL, SIGHTING, day, station_name
from headwater.study.badges.margins import NETWORKS
from headwater.study.badges.subscribers import GROUPS, Subscriber, group, subscribers
from headwater.study.live import PREPARING, Stage, stage
from headwater.study.report.data import Run, SparkResult, StudyResult, Timeline, timeline
from headwater.study.report.data import Subscription as Subscribed

STEP = 600_000_000  # microseconds of a step in the plots
TITLES = {
    "god": "God",
    "cameras": "12 security cameras",
    "eyes": "162 private eyes",
    "brothers": "3 big brothers",
    "all": "all 178 subscribers",
}
# Subscribers who also run alone, since those of a group together want every event: what one interest saves.
ALONE = ("camera ORL-Net#1", "eye 0-0-0-0-10-1b", "brother users")
MARK = "study.json"  # what tells a folder of ours from any other


class Clock:
    """Says what is being done, and remembers how long it took."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self.say, self.spent = say, dict[str, float]()

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        self.say(f"{what} ...")
        began = perf_counter()
        yield
        self.spent[what] = perf_counter() - began


def node_name(network: str) -> str:
    """What a network's node is called: names of nodes have no #."""
    return network.replace("#", ".")


NETWORK = {node_name(network): network for network in NETWORKS}


def record(folder: Path) -> int:
    """Write the day as a log: a node for each network, a source for each station; how many stations there are."""
    table = day()
    stations = 0
    for network in NETWORKS:
        here = table.filter(pc.equal(table["network"], network)).combine_chunks()
        with ChannelLog.open(Log(folder, sync="roll"), CHANNEL, node_name(network), SIGHTING) as log:
            for station in pc.unique(here["station"]).to_pylist():
                rows = here.filter(pc.equal(here["station"], station)).to_batches()[0]
                stations += 1
                times = rows.column("seen").cast(pa.int64())
                log.append_rows(station_name(network, station), range(1, rows.num_rows + 1), times, rows)
            log.roll(wait=True)
    return stations


def study(
    out: Path,
    *,
    speed: float | None = None,
    master: str = "local[*]",
    remote: str | None = None,
    say: Callable[[str], object] = print,
) -> StudyResult:
    """All of it; logs are left in `out`. With `speed`, only the run with all subscribers, at so many times the
    recorded speed."""
    clock = Clock(say)
    out = _cleared(out)
    with clock.step("making the day: 35,811 sightings"):
        stations = record(out / "recording")
    runs = []
    who = subscribers()
    facts = {node_name(network): {"network": network} for network in NETWORKS}
    with clock.step("starting 12 nodes, a process for each network"):
        staged = stage(out / "recording", CHANNEL, facts, SIGHTING, facts=facts)
        ready = staged.__enter__()
    try:
        if speed is None:
            for kind in GROUPS:
                with clock.step(f"playing it to {TITLES[kind]}"):
                    runs.append(_play(ready, kind, group(kind), out))
        with clock.step(f"playing it to {TITLES['all']}"):
            runs.append(_play(ready, "all", who, out, speed=speed))
        for each in () if speed is not None else ALONE:
            with clock.step(f"playing it to {each} alone, and once more with the interest on arrival"):
                one = [subscriber for subscriber in who if subscriber.name == each]
                runs += [_play(ready, f"{each} alone", one, out, filtered=filtered) for filtered in (True, False)]
    finally:
        staged.__exit__(None, None, None)
    with clock.step("starting Spark"):
        spark = session("headwater study", master, remote=remote)
    with clock.step("the same 178 interests on Spark, over the logs of the nodes"):
        result = on_spark(spark, out / "logs" / "all", who, master=remote or master)
    with clock.step("what crosses when, on Spark over the recording"):
        over_time = crossing(backtest(spark, out / "recording", _wanted(who), channel=CHANNEL, bucket="10m"))
    with clock.step("measuring the code of each interest"):
        code = tuple(code_facts(interest, name=_kind(each), shared_by=count) for each, interest, count in programs(who))
    table = day()
    return StudyResult(
        title="The active badge study",
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        events=table.num_rows,
        stations=stations,
        subscriptions=tuple(Subscribed(name=each.name, group=each.group, watches=each.watches) for each in who),
        runs=tuple(runs),
        day=timeline(
            table["seen"].cast(pa.int64()).to_pylist(), table["network"].to_pylist(), step=STEP, order=tuple(NETWORKS)
        ),
        code=code,
        spark=result,
        crossing=over_time,
        record_bytes=sum(map(len, SIGHTING.arrow_to_records(table.combine_chunks().to_batches()[0]))),
        timings=clock.spent,
        versions=versions(),
        notes=(),
    )


def _play(
    ready: Stage,
    name: str,
    some: Sequence[Subscriber],
    out: Path,
    *,
    speed: float | None = None,
    filtered: bool = True,
) -> Run:
    """Play the day once for some subscribers, with a progress bar."""
    alone = len(some) == 1 and name not in TITLES
    total = None if alone else day().num_rows * len({each.group for each in some})
    title = TITLES.get(name, name)
    with Progress(total, f"  {title}", "deliveries") as bar:
        run = ready.run(
            name,
            some,
            title=title,
            log=None if alone else out / "logs" / name,
            speed=speed,
            filtered=filtered,
            begun=lambda: bar.begin(PREPARING),
            progress=lambda done: bar.add(done - bar.done),
        )
    links = tuple(replace(link, node=NETWORK[link.node]) for link in run.links)
    return replace(run, links=links)


def _wanted(who: Sequence[Subscriber]) -> list[Subscription]:
    return [Subscription(name=each.name, where=each.interest(), at=each.at) for each in who]


def on_spark(spark: Any, log: Path, who: Sequence[Subscriber], *, master: str) -> SparkResult:
    """The interests over what the nodes have logged: all in one pass, and, as a check of that, each as a Column."""
    began = perf_counter()
    found = backtest(spark, log, _wanted(who), channel=CHANNEL, bucket="none")
    seconds = perf_counter() - began
    counts = {row.name: row.events for row in found.subscriptions}
    _check(spark, log, who, counts)
    kinds = {each.name: "matcher" for each in who}
    return SparkResult(counts=counts, seconds=seconds, rows=found.events, kinds=kinds, master=master)


def _check(spark: Any, log: Path, who: Sequence[Subscriber], counts: dict[str, int]) -> None:
    """One interest of each kind as a Spark Column must count the same."""
    frame = events(spark, log, CHANNEL)
    for each, interest, _ in programs(who):
        seen = outcome(frame, interest, meta=LOG_META).where("outcome").count()
        if seen != counts[each.name]:
            raise StoreError(
                f"study: {each.name} is {seen:,} events as a Column and {counts[each.name]:,} with all others"
            )


def crossing(found: Backtest) -> Timeline | None:
    """Events over time: what all subscribers want each on its own, and what crosses."""
    times = [row for row in found.times if row.start is not None]
    if not times:
        return None
    first = times[0].start
    assert first is not None and found.width is not None
    series = {
        "everything to everyone": tuple(row.events * len(found.subscriptions) for row in times),
        "what each subscriber wants": tuple(row.filtered.events for row in times),
        "what crosses: each event once": tuple(row.merged.events for row in times),
    }
    step = int(found.width.total_seconds() * 1_000_000)
    return Timeline(start=int(first.timestamp()) * 1_000_000, step=step, series=series)


def _kind(subscriber: Subscriber) -> str:
    names = {"god": "God", "cameras": "security camera", "eyes": "private eye", "brothers": "big brother"}
    if subscriber.watches == "unlisted":
        return "big brother, unlisted"
    return names[subscriber.group]


def versions() -> dict[str, str]:
    """What it ran on."""
    packages = ("headwater", "pyspark", "pyarrow", "llvmlite", "eclipse-zenoh")
    found = {}
    for name in packages:
        with suppress(PackageNotFoundError):  # run from a source tree
            found[name] = version(name)
    return {"Python": platform.python_version(), **found, "machine": f"{platform.machine()}, {platform.system()}"}


def _cleared(out: Path) -> Path:
    """The folder, empty of an earlier study; any other folder with something in it is left alone."""
    if out.exists() and any(out.iterdir()):
        if not (out / MARK).exists():
            raise StoreError(
                f"{out}: expected a new or empty folder, or one with an earlier study, found other files; name another"
            )
        for name in ("recording", "logs"):
            shutil.rmtree(out / name, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).write_text("{}\n", encoding="utf-8")
    return out
