"""Growth, in one process: from one subscription to a million. `pairs` and `nodes` have the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from headwater.study.report.html import Text
from headwater.study.report.table import Column, Row, Table, time
from headwater_studies.fleet.worker import Worker
from headwater_studies.harness.bench import Bench, Found, between, middle, versions
from headwater_studies.harness.result import Axis, Plot, Ratio, Section, Series, content, spread

COMMAND = "headwater study interests --part subscriptions"
MODULE = "headwater_studies.fleet.subscribing"
COUNTS, QUICK = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000), (1, 10, 100)
AT_CHANNEL = (1, 10, 100, 1_000, 10_000)
TOLD = 10_000  # subscriptions from which on bytes for each are told: below, what all share outweighs them
PATIENCE = 8.0  # seconds for subscribing to a channel, for each step
LOADING = 600.0  # seconds at most for putting them into a matcher: a million take some on a busy machine
KINDS = {
    "keys": "another key each",
    "ranges": "5 ranges of 30",
    "same": "all the same, none wanted",
}
WHAT = {
    "keys": "`key == n` with another n for each: an event is wanted by exactly one",
    "ranges": "five ranges of width 0.25 on 5 of 30 fields: one in a thousand wants an event",
    "same": "`key == 0` for all: no event is wanted by any",
}
# PS-Tree, PVLDB 12(3): 3 M conjunctions of 8 predicates on average, 122 dimensions, 20 attributes in an event.
# A-Tree, SIGMOD 2021: 1.39 M Boolean expressions.
PUBLISHED = (
    "Published for comparison, on other machines and other data, so only the order of magnitude says something: with 3 "
    "million conjunctions of 8 predicates a plain scan takes 435 ms, OpIndex 3.2, BE-Tree 2.3 and PS-Tree 0.24 to 0.82 "
    "ms for an event (PVLDB 12(3)); with 1.39 million Boolean expressions A-Tree takes 1.6 ms, a scan 529 ms (SIGMOD "
    "2021)."
)


@dataclass
class Cell:
    """One kind and number of subscriptions."""

    kind: str
    count: int
    build: float
    bytes: float
    memory: float
    hits: float
    sampled: int
    ours: list[float] = field(default_factory=list)  # of each round
    scan: list[float] = field(default_factory=list)
    single: list[float] = field(default_factory=list)


def subscriptions(bench: Bench) -> Found:
    """1 to 1,000,000 subscriptions: time for an event, beside a scan and beside each interest by itself; what each
    takes; and the same through a channel, as far as that goes in reasonable time."""
    with _process(bench) as start:
        cells = [cell for kind in KINDS for cell in _cells(bench, start, kind)]
        channel = [each for kind in KINDS for each in _channel(bench, start, kind)]
    sections = (_matching(bench, cells), _service(bench, channel))
    costs = {f"match_{cell.kind}_{cell.count}": middle(cell.ours) for cell in cells}
    most = max(cell.count for cell in cells)
    for cell in cells:
        if cell.count == most and most >= TOLD:
            costs[f"bytes_per_subscription_{cell.kind}"] = cell.bytes
    last = {each.kind: each for each in channel}
    costs["subscribe"] = last["keys"].subscribe
    costs["publish_with_subscriptions"] = middle(last["keys"].publish)
    return Found(sections, tuple(_ratios(cells)), versions("numpy"), costs=costs)


@contextmanager
def _process(bench: Bench) -> Iterator[Callable[[], Worker]]:
    """Gives a process: a new one each time, so that its memory says something; if quick, the same."""
    made: list[Worker] = []

    def start() -> Worker:
        if not (bench.quick and made):
            for worker in made:
                worker.close()
            made[:] = [bench.start(MODULE)]
        return made[0]

    try:
        yield start
    finally:
        for worker in made:
            worker.close()


def _seconds(bench: Bench) -> float:
    return 0.1 if bench.quick else 0.4


# ── the matcher alone ──


def _cells(bench: Bench, start: Callable[[], Worker], kind: str) -> list[Cell]:
    found = []
    worker = start()
    worker.call("load", kind=kind, count=1)  # what is loaded and compiled once for all
    for count in QUICK if bench.quick else COUNTS:
        worker.ask("load", kind=kind, count=count)
        cell = Cell(kind, count, **worker.answer(LOADING))
        for _ in range(bench.rounds):
            took = worker.call("match", seconds=_seconds(bench))
            cell.ours.append(took["ours"])
            cell.scan.append(took["scan"])
            cell.single.append(took["single"])
        bench.say(f"{count:,} subscriptions, {KINDS[kind]}: {time(middle(cell.ours))} for an event")
        found.append(cell)
    return found


def _matching(bench: Bench, cells: list[Cell]) -> Section:
    columns = (
        Column("kind", "text"),
        Column("subscriptions"),
        Column("want an event", "number"),
        Column("matcher", "time", group="time for an event"),
        Column("spread", "text", group="time for an event"),
        Column("scan", "time", group="time for an event"),
        Column("one by one", "time", group="time for an event"),
        Column("of scan", "factor", group="times as fast"),
        Column("of one by one", "factor", group="times as fast"),
        Column("build", "time", group="for each subscription"),
        Column("index", "bytes", group="for each subscription"),
        Column("memory", "bytes", group="for each subscription"),
    )
    rows = []
    for cell in cells:
        ours, scan, single = middle(cell.ours), middle(cell.scan), middle(cell.single)
        told = cell.count >= TOLD
        remarks = {} if cell.sampled == cell.count else {6: f"from {cell.sampled} of them, for as many as there are"}
        rows.append(
            Row(
                (
                    KINDS[cell.kind],
                    cell.count,
                    cell.hits,
                    ours,
                    between(cell.ours, time),
                    scan,
                    single,
                    scan / ours,
                    single / ours,
                    cell.build,
                    cell.bytes if told else None,
                    cell.memory if told else None,
                ),
                remarks,
            )
        )
    table = Table(
        name="growth-subscriptions",
        title="One event and many subscriptions",
        columns=columns,
        rows=tuple(rows),
        note=(
            "Scan: every subscription's predicates verified in order, in native code, in one call. One by one: each "
            f"interest compiled by itself and called from Python; beyond {max(QUICK)} that many were timed and "
            "multiplied. Index: bytes of the matcher's own arrays; memory: what the process grew by, which is more "
            "while freed space is not returned to the system. Neither is told for few, which share more than they have."
        ),
    )
    texts = [Text(f"**{KINDS[kind]}**: {what}.") for kind, what in WHAT.items()]
    intro = Text(
        "A source asks once for every event which subscriptions want it. They are handed to the matcher as "
        "arrays here, since a million texts would mostly measure the parser; the answers are compared with those of a "
        "plain evaluation of the same arrays."
    )
    return Section(
        key="subscriptions",
        title="From one subscription to a million",
        contents=content(intro, *texts, table, _plot(cells), Text(PUBLISHED)),
        command=COMMAND,
        repetitions=(
            f"{bench.rounds} rounds; in each the median over 60 events in turn, as often as "
            f"{_seconds(bench):g} s allow; scan and one by one take turns with the matcher on every event"
        ),
    )


def _plot(cells: list[Cell]) -> Plot:
    def series(name: str, kind: str, what: str, dashed: bool = False) -> Series:
        taken = [(cell.count, getattr(cell, what)) for cell in cells if cell.kind == kind]
        return spread(name, taken, 1e6, dashed=dashed)

    return Plot(
        name="growth-subscriptions",
        title="Time for an event, by the number of subscriptions",
        x=Axis("subscriptions", log=True),
        y=Axis("µs for an event", log=True),
        series=(
            *(series(name, kind, "ours") for kind, name in KINDS.items()),
            series("5 ranges, scan", "ranges", "scan"),
            series("5 ranges, one by one", "ranges", "single", dashed=max(cell.count for cell in cells) > max(QUICK)),
        ),
        below=(
            f"{_grown(cells)} Equalities are looked up; of ranges one in a thousand is a match, which has to be found "
            f"and told. Dashed: beyond {max(QUICK)} worked out from a sample."
        ),
    )


def _grown(cells: list[Cell]) -> str:
    """From the fewest to the most subscriptions, in words."""
    said = []
    for kind, name in KINDS.items():
        few, many = (pick((it for it in cells if it.kind == kind), key=lambda it: it.count) for pick in (min, max))
        said.append(
            f"{name}: from {time(middle(few.ours))} with {few.count:,} to {time(middle(many.ours))} with {many.count:,}"
        )
    return "; ".join(said) + "."


_INDEX_WHY = "the index has to be asked, and every match told, however little a scan has to do"


def _ratios(cells: list[Cell]) -> list[Ratio]:
    found = []
    for kind, name in KINDS.items():
        last = max((cell for cell in cells if cell.kind == kind), key=lambda cell: cell.count)
        case = f"an event and {last.count:,} subscriptions, {name}"
        found.append(
            Ratio(
                case=case,
                reference="a plain scan in native code",
                ours=tuple(last.ours),
                theirs=tuple(last.scan),
                kind="seconds",
                why=_INDEX_WHY,
            )
        )
        found.append(
            Ratio(
                case=case,
                reference="each interest in native code, one by one",
                ours=tuple(last.ours),
                theirs=tuple(last.single),
                kind="seconds",
                why=_INDEX_WHY,
            )
        )
    return found


# ── through a channel ──


@dataclass
class Service:
    """So many subscriptions at a channel. `subscribe`: seconds for one, of those made last."""

    kind: str
    count: int
    subscribe: float
    memory: float
    made: int
    publish: list[float]
    come: float  # to subscribers, of each event
    whole: bool = True  # as many as were to be


def _channel(bench: Bench, start: Callable[[], Worker], kind: str) -> list[Service]:
    found: list[Service] = []
    steps = QUICK if bench.quick else AT_CHANNEL
    n = bench.size(2_000, 200)
    worker = start()
    worker.call("serve", kind=kind, most=max(steps))
    for count in steps:
        made: dict[str, Any] = worker.call("subscribe", upto=count, seconds=PATIENCE)
        worker.call("publish", n=n)
        rounds = [worker.call("publish", n=n) for _ in range(bench.rounds)]
        if kind == "keys" and any(each["got"] != n for each in rounds):
            raise RuntimeError(f"{count:,} subscriptions: expected {n} events to come, found {rounds}")
        found.append(
            Service(
                kind,
                made["count"],
                made["took"] / made["made"],
                made["memory"] / made["made"],
                made["made"],
                [each["took"] for each in rounds],
                rounds[0]["got"] / n,
                whole=made["count"] == count,
            )
        )
        bench.say(f"a channel with {made['count']:,} subscriptions, {KINDS[kind]}")
        if made["count"] < count:
            break
    worker.call("stop")
    return found


def _service(bench: Bench, found: list[Service]) -> Section:
    columns = (
        Column("kind", "text"),
        Column("subscriptions"),
        Column("publish", "time"),
        Column("spread", "text"),
        Column("come to subscribers, for each event", "number"),
        Column("to subscribe", "time", group="for each of those added"),
        Column("memory", "bytes", group="for each of those added"),
    )
    rows = [
        Row(
            (
                KINDS[each.kind],
                each.count,
                middle(each.publish),
                between(each.publish, time),
                each.come,
                each.subscribe,
                each.memory if each.made >= 900 else None,
            ),
            {} if each.whole else {1: f"as many as could be made in {PATIENCE:g} s more"},
        )
        for each in found
    ]
    table = Table(
        name="growth-channel",
        title="Publishing to many subscriptions at one channel",
        columns=columns,
        rows=tuple(rows),
        note=(
            "`publish` of a typed event with 31 fields, until the handlers have returned. Subscribing includes reading "
            "the text, checking and normalising it, and a new matching for the source, which is there already. Memory "
            "is told where 900 or more were added."
        ),
    )
    text = Text(
        "The same through the API: `channel.subscribe(handler, text)`, where each subscription is made from its text, "
        f"so this goes only as far as {PATIENCE:g} s allow for each step. `publish` includes the calls of handlers."
    )
    return Section(
        key="channel",
        title="Many subscriptions at a channel",
        contents=content(text, table),
        command=COMMAND,
        repetitions=f"{bench.rounds} rounds of {bench.size(2_000, 200):,} events each, after one that is not counted",
    )


__all__ = ["subscriptions"]
