"""How long a notification takes, and how many invocations: the part of the operations that deals with events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.study.report.html import Text
from headwater.study.report.table import Column, Row, Table, time
from headwater_studies.fleet.worker import Gone, Worker
from headwater_studies.harness.bench import Bench, between, middle
from headwater_studies.harness.result import Axis, Plot, Series

# Mobile, table 8: average seconds until a sink has an event, by the number of event buses, with one sink on each.
MOBILE_WITH: Mapping[int, float] = {1: 0.029, 5: 0.0862, 10: 0.1513}
MOBILE_WITHOUT: Mapping[int, float] = {1: 0.029, 5: 0.0828, 10: 0.1474}
WANTED, UNWANTED = "pick = 7.0", "pick = 8.0"  # every event that is told has 7


@dataclass(frozen=True, slots=True)
class Notice:
    """A kind of notification: to how many nodes, with one sink on each, and what these ask for."""

    nodes: int
    where: str | None

    @property
    def channel(self) -> str:
        return f"crowd.notice{self.nodes}.{'all' if self.where is None else 'some'}"


@dataclass(frozen=True, slots=True)
class Case:
    """Nodes with so many sinks each, of which the first `wanting` nodes want the event."""

    nodes: int
    sinks: int
    wanting: int
    at_once: bool = False

    @property
    def channel(self) -> str:
        return f"crowd.case.n{self.nodes}.s{self.sinks}.w{self.wanting}.{'many' if self.at_once else 'each'}"


@dataclass(frozen=True, slots=True)
class Count:
    """Of so many events: calls of publish, frames to nodes with their bytes, and calls of handlers."""

    events: int
    publishes: int
    frames: int
    bytes: int
    handlers: int
    formula: int  # Mobile 6.4

    @property
    def invocations(self) -> int:
        return self.publishes + self.frames + self.handlers


def formula(nodes: int, sinks: int) -> int:
    """Mobile 6.4: 1, event buses that are notified, and the sinks that are notified on each."""
    return 1 + nodes + nodes * sinks


# ── measuring ──


def notices(
    bench: Bench, desk: Worker, halls: Sequence[Worker], counts: Sequence[int], n: int
) -> dict[Notice, list[float]]:
    """How late each event was at each sink, that many events a notice and a few more at first."""
    found: dict[Notice, list[float]] = {Notice(nodes, where): [] for nodes in counts for where in (None, WANTED)}
    for notice in found:
        _listen(desk, halls[: notice.nodes], notice.channel, [[notice.where]] * notice.nodes)
    rounds = bench.rounds + 1
    for turn in range(rounds):
        for notice, late in found.items():
            events = max(1, n // (rounds - 1)) if turn else 5
            desk.call("tell", node="desk", channel=notice.channel, n=events)
            for hall in halls[: notice.nodes]:
                came = hall.call("came", channel=notice.channel)
                if came["calls"] != events:
                    raise Gone(f"{notice}: {came['calls']} of {events} events have come to a sink")
                late += came["late"] if turn else []
        bench.say(f"notifications, turn {turn + 1} of {rounds}")
    return found


def _listen(desk: Worker, halls: Sequence[Worker], channel: str, wants: Sequence[Sequence[str | None]]) -> None:
    """A source at the desk, and at each of the others a sink for each of its interests."""
    desk.call("advertise", node="desk", channel=channel)
    for at, hall in enumerate(halls):
        hall.call("knows", node=f"desk{at}", channel=channel, count=1)
        hall.call("listen", node=f"desk{at}", channel=channel, wheres=list(wants[at]))


def cases(most: int, many: int) -> dict[Case, int]:
    """Those that are counted, with how many events."""
    few = max(2, most // 2)
    single = [Case(1, 1, 1), Case(1, 4, 1), Case(few, 1, few), Case(few, 4, few), Case(most, 1, most)]
    single += [Case(most, 2, few), Case(most, 2, 1), Case(most, 2, 0)]
    return {**dict.fromkeys(single, many), Case(most, 2, most, at_once=True): many * 50}


def invocations(bench: Bench, desk: Worker, halls: Sequence[Worker], n: int) -> dict[Case, Count]:
    bench.say("invocations for notifications")
    found: dict[Case, Count] = {}
    for case, events in cases(len(halls), n).items():
        wants = [[WANTED if at < case.wanting else UNWANTED] * case.sinks for at in range(case.nodes)]
        _listen(desk, halls[: case.nodes], case.channel, wants)
        sent = desk.call("tell", node="desk", channel=case.channel, n=events, at_once=case.at_once)
        handlers = sum(hall.call("came", channel=case.channel)["calls"] for hall in halls[: case.nodes])
        found[case] = Count(
            events=events,
            publishes=1 if case.at_once else events,
            frames=sent["frames"],
            bytes=sent["stream_bytes"],
            handlers=handlers,
            formula=events * formula(case.wanting, case.sinks),
        )
    return found


# ── showing ──


def notified_table(seen: Mapping[Notice, list[float]], trip: float) -> tuple[Table, Plot, str]:
    made, series = [], []
    for where, mobile, name in ((None, MOBILE_WITHOUT, "no interest"), (WANTED, MOBILE_WITH, "an interest")):
        late = {notice.nodes: times for notice, times in seen.items() if notice.where == where}
        one = _average(late[1])
        for nodes, times in late.items():
            ordered = sorted(times)
            quarters = [ordered[len(ordered) // 4], ordered[len(ordered) * 3 // 4]]
            published = mobile.get(nodes)
            made.append(
                Row(
                    (
                        name, nodes, _average(times), middle(times), between(quarters, time), _average(times) / trip,
                        _average(times) / one, published, None if published is None else published / mobile[1],
                    )
                )
            )  # fmt: skip
        points = tuple((float(nodes), _average(times) * 1e6) for nodes, times in late.items())
        series.append(Series(name=name, points=points))
        scaled = tuple((float(nodes), seconds / mobile[1] * one * 1e6) for nodes, seconds in mobile.items())
        series.append(Series(name=f"{name}, as Mobile's grew", points=scaled, dashed=True))
    columns = (
        Column("sinks with", "text"),
        Column("nodes"),
        Column("average", "time", "here"),
        Column("median", "time", "here"),
        Column("spread", "text", "here"),
        Column("TCP round trips", "number", "here"),
        Column("of 1 node", "factor", "here", 2),
        Column("average", "time", "Mobile, table 8"),
        Column("of 1 node", "factor", "Mobile, table 8", 2),
    )
    table = Table(
        name="operations-notify",
        title="Time until a sink has an event, averaged over sinks",
        columns=columns,
        rows=tuple(made),
        note="One sink at each node, each node in a process of its own.",
    )
    plot = Plot(
        name="notify-nodes",
        title="Time until a sink has an event, against the number of nodes",
        x=Axis("nodes, with one sink each", least=0.0),
        y=Axis("microseconds, average of the sinks", least=0.0),
        series=tuple(series),
        below="Dashed: Mobile's times, scaled so that its time with 1 node is ours.",
    )
    text = (
        "From `publish` at one node until a handler at another one has the event as an object, clock to clock on one "
        "machine. An event is published when everybody has the one before and has acknowledged it, at most every "
        "20 ms: all processes have gone to sleep in between, and have to be woken up. (TCP's round trips follow each "
        "other without a pause, which is quicker; for latency under that condition see the study of latency.)"
    )
    return table, plot, text


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def invoked(calls: Mapping[Case, Count]) -> tuple[Text, Table]:
    columns = (
        Column("nodes with sinks"),
        Column("sinks on each"),
        Column("nodes that want the event"),
        Column("events"),
        Column("published", "text"),
        Column("calls of publish", "number", "for each event"),
        Column("frames to nodes", "number", "for each event"),
        Column("calls of handlers", "number", "for each event"),
        Column("together", "number", "for each event"),
        Column("Mobile 6.4", "number"),
    )
    made = tuple(
        Row(
            (
                case.nodes,
                case.sinks,
                case.wanting,
                count.events,
                "as a batch" if case.at_once else "one by one",
                count.publishes / count.events,
                count.frames / count.events,
                count.handlers / count.events,
                count.invocations / count.events,
                count.formula / count.events,
            )
        )
        for case, count in calls.items()
    )
    single = [count for case, count in calls.items() if not case.at_once]
    same = sum(count.invocations == count.formula for count in single)
    equal = "exactly Mobile's" if same == len(single) else f"Mobile's in {same} of {len(single)} cases"
    text = (
        "Mobile counts 1 + the event buses that are notified + the sinks that are notified on each of them. Counted "
        "the same way, ours is one call of `publish`, a frame to each node that wants the event, however many sinks it "
        f"has, and a call for each sink. One by one these are {equal}; what is published as a batch shares calls and "
        "frames (a sink may also take what has come in batches, with one call for many; here none does). A node that "
        "does not want the event is none that is notified."
    )
    table = Table(name="operations-invocations", title="Invocations for a notification", columns=columns, rows=made)
    return Text(text), table


__all__ = ["Case", "Count", "Notice", "cases", "formula", "invocations", "invoked", "notices", "notified_table"]
