"""Growth between two nodes: sources of one channel at the one, sinks at the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from headwater.study.report.html import Text
from headwater.study.report.table import Column, Table, rate, rows, time
from headwater_studies.growth.small_federations import MODULE
from headwater_studies.harness.bench import Bench, Found, between, middle, versions
from headwater_studies.harness.pair import Lossy, Pair, started
from headwater_studies.harness.result import Axis, Plot, Ratio, Section, content, spread


def _opened(bench: Bench) -> Pair:
    """Two nodes in two processes, which know each other."""
    pair = started(bench.start, "Headwater", MODULE, ours=True)
    at = pair.near.call("grow", names=["near"])["endpoints"][0]
    pair.far.call("grow", names=["far"], connect=at)
    for worker in pair.workers:
        worker.call("together", others=1)
    return pair


def _run(pair: Pair, send: Callable[[], Mapping[str, Any]], come: int) -> dict[str, float]:
    """Publish, and see that so many events come, each once: seconds to publish and until the last was handled."""
    before = pair.near.call("crossed")
    run = pair.exchange(send, come)
    got, after = pair.far.call("got")["got"], pair.near.call("crossed")
    if got != come:
        raise Lossy(f"{got:,} of {come:,} events came")
    crossed = {what: after[what] - before[what] for what in ("events", "frames", "bytes")}
    return {"publish": run.sent["sent"] - run.sent["start"], "all": run.seconds, "cpu": run.sent["cpu"], **crossed}


@dataclass
class Step:
    """So many sources, or sinks: how long until all was ready, and the rounds."""

    count: int
    ready: float
    n: int  # events published
    come: int  # to sinks, all together
    rounds: list[dict[str, float]]

    def per(self, what: str, of: int) -> list[float]:
        return [each[what] / of for each in self.rounds]

    def rate(self, of: int) -> list[float]:
        return [of / each["all"] for each in self.rounds]


def sources(bench: Bench) -> Found:
    """1 to 1,000 sources of one channel at one node, one sink at another node that wants everything."""
    pair = _opened(bench)
    steps: list[Step] = []
    try:
        for count in (1, 10, 50) if bench.quick else (1, 10, 100, 1_000):
            start = pair.near.call("sources", count=count)["start"]
            if not steps:
                pair.far.call("subscribe", wheres=[[None]])
            ready = pair.far.call("knows", count=count)["end"] - start
            n = max(count, bench.size(40_000, 500) // count * count)

            def run(n: int = n) -> dict[str, float]:
                return _run(pair, lambda: pair.near.call("publish_round", n=n), n)

            run()
            steps.append(Step(count, ready, n, n, [run() for _ in range(bench.rounds)]))
            bench.say(f"{count:,} sources")
    finally:
        pair.close()
    table = Table(
        name="growth-sources",
        title="Sources of one channel, at one node",
        columns=(
            Column("sources"),
            Column("ready", "time"),
            Column("publish", "time"),
            Column("spread", "text"),
            Column("events/s until handled", "rate"),
            Column("between", "text"),
            Column("events in a frame", "number"),
            Column("bytes for an event", "number"),
        ),
        rows=rows(
            (
                each.count,
                each.ready,
                middle(each.per("publish", each.n)),
                between(each.per("publish", each.n), time),
                middle(each.rate(each.n)),
                between(each.rate(each.n), rate),
                middle(round_["events"] / round_["frames"] for round_ in each.rounds),
                middle(each.per("bytes", each.n)),
            )
            for each in steps
        ),
        note=(
            "Each publishes in turn. Ready: from the first new source until the other node knows all of them and its "
            "interest is in force there. A frame holds events of one source only: the more sources take turns, the "
            "fewer events share one."
        ),
    )
    plot = _rates("growth-sources", "Events per second from many sources", "sources", steps, lambda each: each.n)
    why = "a frame holds events of one source only, so that fewer events share a frame"
    return Found(
        (_section(bench, "sources", "Many sources", steps, table, plot),),
        _as_one(steps, "sources of a channel, events/s", lambda each: each.n, why),
        versions(),
        costs={f"source_ready_n{each.count}": each.ready for each in steps},
    )


def sinks(bench: Bench) -> Found:
    """1 to 1,000 sinks at one node, of a source at another: all want everything, or each another share."""
    found: dict[bool, list[Step]] = {False: [], True: []}
    pair = _opened(bench)
    try:
        pair.near.call("source", channel="bench.events")
        for split, steps in found.items():
            # Interests that differ are compared with each other, and the source is told of each: that takes long.
            for count in (1, 10, 50) if bench.quick else (1, 10, 100, 400) if split else (1, 10, 100, 1_000):
                pair.far.call("deaf")
                wheres = [f"share == {number}" if split else None for number in range(count)]
                start = perf_counter()
                pair.far.call("subscribe", wheres=[wheres])
                ready = perf_counter() - start
                n = max(1, bench.size(20_000 if split else 60_000, 500) // count) * count
                n = n if split else max(20, n // count)
                come = n if split else n * count

                def run(n: int = n, come: int = come, shares: int = count if split else 1) -> dict[str, float]:
                    return _run(pair, lambda: pair.near.call("publish", n=n, shares=shares), come)

                run()
                steps.append(Step(count, ready, n, come, [run() for _ in range(bench.rounds)]))
                if any(each["events"] != n for each in steps[-1].rounds):
                    raise Lossy(f"{count} sinks: expected each of {n:,} events to cross once, found {steps[-1].rounds}")
                bench.say(f"{count:,} sinks, {'a share each' if split else 'everything'}")
    finally:
        pair.close()
    table = Table(
        name="growth-sinks",
        title="Sinks at one node, of a source at another",
        columns=(
            Column("want", "text"),
            Column("sinks"),
            Column("ready", "time"),
            Column("publish", "time"),
            Column("spread", "text"),
            Column("published/s", "rate"),
            Column("handled/s", "rate"),
            Column("between", "text"),
            Column("crossed, for each published", "number"),
            Column("bytes for an event", "number"),
        ),
        rows=rows(
            (
                "a share each" if split else "everything",
                each.count,
                each.ready,
                middle(each.per("publish", each.n)),
                between(each.per("publish", each.n), time),
                middle(each.rate(each.n)),
                middle(each.rate(each.come)),
                between(each.rate(each.come), rate),
                middle(each.per("events", each.n)),
                middle(each.per("bytes", each.n)),
            )
            for split, steps in found.items()
            for each in steps
        ),
        note=(
            "An event crosses once, however many sinks of a node want it. Ready: from the first subscription until all "
            "interests are in force at the source. A share each: of n sinks every one wants another n-th of the events."
        ),
    )
    plot = _rates("growth-sinks", "Events handled per second by many sinks", "sinks", found[False], lambda it: it.come)
    why = "each sink's handler is called for each event, in Python, and a mailbox has to be filled for each"
    return Found(
        (_section(bench, "sinks", "Many sinks", found[False], table, plot),),
        _as_one(found[False], "sinks that want everything, handled/s", lambda each: each.come, why),
        versions(),
        costs={f"sink_ready_n{each.count}": each.ready for each in found[False]},
    )


def _section(bench: Bench, key: str, title: str, steps: Sequence[Step], table: Table, plot: Plot) -> Section:
    text = Text(
        "Two nodes in two processes of one machine; an event is 64 bytes, published one by one, delivered reliably."
    )
    return Section(
        key=key,
        title=title,
        contents=content(text, table, plot),
        command=f"headwater study interests --part {key}",
        repetitions=f"{bench.rounds} rounds of {min(s.n for s in steps):,} to {max(s.n for s in steps):,} events each",
    )


def _rates(name: str, title: str, what: str, steps: Sequence[Step], of: Callable[[Step], int]) -> Plot:
    return Plot(
        name=name,
        title=title,
        x=Axis(what, log=True),
        y=Axis("events/s", log=True),
        series=(spread("handled", [(float(each.count), each.rate(of(each))) for each in steps]),),
    )


def _as_one(steps: Sequence[Step], case: str, of: Callable[[Step], int], why: str) -> tuple[Ratio, ...]:
    """The most of them beside one, round by round."""
    first, last = steps[0], steps[-1]
    return (
        Ratio(
            case=f"{last.count:,} {case}",
            reference="the same with one",
            ours=tuple(last.rate(of(last))),
            theirs=tuple(first.rate(of(first))),
            kind="per second",
            why=why,
        ),
    )
