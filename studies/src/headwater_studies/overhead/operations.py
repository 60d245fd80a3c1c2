"""What the operations of an event service cost, as in Mobile 6.3: subscribe, unsubscribe, advertise, unadvertise and
notify, against the number of sources and nodes; and invocations for a notification beside the formula of Mobile 6.4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.study.report.html import Heading, Text
from headwater.study.report.table import Column, Row, Table, time
from headwater_studies.fleet.worker import Worker
from headwater_studies.harness.bench import Bench, Found, Line, between, middle, regression, versions
from headwater_studies.harness.pair import started
from headwater_studies.harness.result import Axis, Plot, Ratio, Section, Series, content
from headwater_studies.overhead.notices import Case, Count, Notice, invocations, notices, notified_table
from headwater_studies.overhead.notices import invoked as invoked_blocks

CROWD, TCP, ZENOH = "headwater_studies.fleet.crowd", "headwater_studies.fleet.tcp", "headwater_studies.fleet.zenoh"
COMMAND = "headwater study overhead --part operations"

# Mobile, tables 4 and 5, in seconds by the number of sources. Sun Ultra 1 and Ultra 5, OrbixWeb, an open network.
MOBILE_SUBSCRIBE: Mapping[str, Mapping[int, float]] = {
    "no interest": {0: 5.350, 1: 5.517, 5: 5.996, 10: 7.552},
    "an interest": {0: 6.896, 1: 6.855, 5: 7.410, 10: 8.771},
    "an access rule": {0: 6.016, 1: 6.282, 5: 8.438, 10: 10.286},
}
MOBILE_UNSUBSCRIBE: Mapping[str, Mapping[int, float]] = {
    "no interest": {0: 1.275, 1: 1.303, 5: 1.413, 10: 1.629},
    "an interest": {0: 1.282, 1: 1.301, 5: 1.401, 10: 1.534},
    "an access rule": {0: 1.279, 1: 1.302, 5: 1.384, 10: 1.514},
}
MOBILE_ADVERTISE, MOBILE_UNADVERTISE = 3.62806, 0.14214  # tables 6 and 7: averages of 100
KINDS = ("no interest", "an interest", "compiled code", "an access rule")
STEPS = ("subscribe", "in force", "unsubscribe", "withdrawn")


@dataclass(frozen=True, slots=True)
class Fleet:
    """A subscriber's process, and one for each of the others; each has a node in both federations."""

    desk: Worker
    halls: Sequence[Worker]
    counts: tuple[int, ...]  # of sources

    def channel(self, count: int) -> str:
        return f"crowd.sources{count}"


def operations(bench: Bench) -> Found:
    """The part."""
    counts = (0, 1, 2) if bench.quick else (0, 1, 5, 10)
    trips = _references(bench)
    bench.say(f"{counts[-1] + 1} processes with two nodes each")
    fleet = _open(bench, counts)
    times, worked = _come_and_go(bench, fleet)
    known = _advertised(bench, fleet, bench.size(100, 5))
    seen = notices(bench, fleet.desk, fleet.halls, counts[1:], bench.size(150, 5))
    calls = invocations(bench, fleet.desk, fleet.halls, bench.size(20, 3))
    tcp, zenoh = trips["TCP"], trips["Zenoh"]
    sections = (
        _subscriptions(bench, times, worked, counts, tcp, zenoh),
        _advertising(known, tcp, bench.size(100, 5), counts[-1]),
        _notification(seen, calls, tcp, bench.size(150, 5)),
    )
    return Found(sections, _ratios(calls), versions("pyzmq"), _absent(bench), _costs(times, seen, calls))


def _absent(bench: Bench) -> dict[str, str]:
    return {"5 and 10 sources": "a short run has at most 2"} if bench.quick else {}


# ── measuring ──


def _references(bench: Bench) -> dict[str, list[float]]:
    """Round trips of 64 bytes, as many medians as there are rounds, at the time of all the rest."""
    pairs = {name: started(bench.start, name, module).join() for name, module in (("TCP", TCP), ("Zenoh", ZENOH))}
    n = bench.size(5_000, 100)
    turns = {name: lambda it=pair: float(it.trips(n)["p50"]) for name, pair in pairs.items()}
    found = bench.turns("round trips", turns)
    for pair in pairs.values():
        pair.close()
    return found


def _open(bench: Bench, counts: tuple[int, ...]) -> Fleet:
    most = counts[-1]
    desk, halls = bench.start(CROWD), [bench.start(CROWD) for _ in range(most)]
    for name, guarded in (("desk", False), ("guard", True)):
        joined = desk.call("join", name=name, only="*" if guarded else None)
        for number, hall in enumerate(halls):
            only = joined["key"] if guarded else None
            hall.call("join", name=f"{name}{number}", connect=joined["endpoint"], only=only)
            for at, worker in enumerate((desk, *halls[: number + 1])):
                node = name if at == 0 else f"{name}{at - 1}"
                worker.call("together", others=number + 1, node=node)
    fleet = Fleet(desk, halls, counts)
    for name in ("desk", "guard"):
        for count in counts:
            for number in range(count):
                halls[number].call("advertise", node=f"{name}{number}", channel=fleet.channel(count))
            desk.call("knows", node=name, channel=fleet.channel(count), count=count)
    return fleet


Times = dict[tuple[str, int], dict[str, list[float]]]  # of a kind and number of sources, by step


def wheres(kind: str, first: int, n: int) -> list[str | None]:
    """Interests of a kind, all different from each other and from those before `first`."""
    numbers = range(first, first + n)
    if kind == "no interest":
        return [None] * n
    if kind == "compiled code":
        return [f"pick * 2 + share > {number}.5" for number in numbers]
    return [f"pick = 7.0 and number > {number}.5" for number in numbers]


@dataclass(slots=True)
class Worked:
    """Processor time of subscriptions that came and went, at the subscriber and at all nodes with sources together."""

    desk: float = 0.0
    halls: float = 0.0


def _come_and_go(bench: Bench, fleet: Fleet) -> tuple[Times, Worked]:
    """Everybody takes turns; what comes before the first round makes the streams, and is not counted. Processor time
    is of those without interest and with the most sources, for each that came and went."""
    each, rounds, first = bench.size(10, 2), bench.size(5, 1), 0
    times: Times = {(kind, count): {step: [] for step in STEPS} for kind in KINDS for count in fleet.counts}
    worked = Worked()
    for turn in range(rounds + 1):
        for (kind, count), found in times.items():
            weighs = turn > 0 and (kind, count) == (KINDS[0], fleet.counts[-1])
            before = _cpu(fleet) if weighs else (0.0, 0.0)
            node = "guard" if kind == "an access rule" else "desk"
            took = fleet.desk.call(
                "come_and_go", node=node, channel=fleet.channel(count), wheres=wheres(kind, first, each)
            )
            first += each
            if weighs:
                desk, halls = _cpu(fleet)
                worked.desk += (desk - before[0]) / (each * rounds)
                worked.halls += (halls - before[1]) / (each * rounds)
            for step in STEPS if turn else ():
                found[step] += took[step]
        if turn:
            bench.say(f"subscriptions that come and go, turn {turn} of {rounds}")
    return times, worked


def _cpu(fleet: Fleet) -> tuple[float, float]:
    return fleet.desk.call("cpu")["cpu"], sum(hall.call("cpu")["cpu"] for hall in fleet.halls)


@dataclass(frozen=True, slots=True)
class Known:
    """Of one source after another: until the call returned, until one other node knew it, and until the last did."""

    returned: list[float]
    one: list[float]
    last: list[float]


def _advertised(bench: Bench, fleet: Fleet, n: int) -> dict[str, Known]:
    bench.say(f"{n} sources that come and go")
    for number, hall in enumerate(fleet.halls):
        hall.call("watch", node=f"desk{number}")
    found = {change: Known([], [], []) for change in ("advertised", "withdrawn")}
    for number in range(-2, n):
        for change, do in (("advertised", "advertise"), ("withdrawn", "withdraw")):
            name = f"a{number + 2}"
            said = fleet.desk.call(do, node="desk", channel="crowd.advertised", name=name)
            heard = [
                hall.call("heard", node=f"desk{at}", name=name, change=change)["at"] - said["began"]
                for at, hall in enumerate(fleet.halls)
            ]
            if number >= 0:  # the first ones also tell what the channel is
                found[change].returned.append(said["returned"] - said["began"])
                found[change].one.append(heard[0])
                found[change].last.append(max(heard))
    return found


# ── showing ──


def spread(values: Sequence[float]) -> str:
    """The middle half of single measurements."""
    ordered = sorted(values)
    return between([ordered[len(ordered) // 4], ordered[(len(ordered) * 3) // 4]], time)


def _subscriptions(
    bench: Bench, times: Times, worked: Worked, counts: tuple[int, ...], tcp: list[float], zenoh: list[float]
) -> Section:
    n = len(next(iter(times.values()))["in force"])
    trip = middle(tcp)
    tables = [
        _table(times, trip, "subscribe", "in force", "Subscribe", MOBILE_SUBSCRIBE, "4"),
        _table(times, trip, "unsubscribe", "withdrawn", "Unsubscribe", MOBILE_UNSUBSCRIBE, "5"),
    ]
    most = counts[-1]
    lines = {kind: _line(times, kind, "in force", counts) for kind in KINDS}
    plain = lines["no interest"].slope
    mobile = (MOBILE_SUBSCRIBE["no interest"][10] - MOBILE_SUBSCRIBE["no interest"][1]) / 9
    intro = (
        "A program subscribes to a channel that so many nodes have a source of, each node in a process of its own. "
        "**In force**: every source has taken the interest up, so that nothing published from here on is missed "
        "(`node.ready()`); **withdrawn**: every source has answered that it is gone. *An interest* is two comparisons, "
        "another one each time; *compiled code* has arithmetic in it, which each source compiles to machine code "
        "behind the scenes; *an access rule* is the interest again, where the sources consult ten rules, of which the "
        "last one lets the node with the subscriber's key subscribe, and nobody else. Interests are read from their "
        "text each time."
    )
    plainly = MOBILE_SUBSCRIBE["no interest"]
    ours = middle(times["no interest", most]["in force"]) / middle(times["no interest", 1]["in force"])
    growth = (
        f"From 1 to {most} sources our time without interest grows by a factor of {ours:.1f}, Mobile's from 1 to 10 by "
        f"{plainly[10] / plainly[1]:.1f}: {time(plainly[0])} of it went by with no source at all. Here a source more "
        f"costs {time(plain)} ({plain / trip:,.0f} TCP round trips); there it cost {time(mobile)}. With {most} "
        f"sources, a subscription without interest that comes and goes takes {time(worked.desk)} of processor time at "
        f"the subscriber, and {time(worked.halls)} at the sources' nodes together, which are {most} processes on the "
        "cores of this one machine: on machines of their own they would work at the same time. For each source there "
        "is a signed question and a signed answer, both checked, and a mark that follows on the stream."
    )
    notes = (
        f"A TCP round trip of 64 bytes between two Python processes took {time(trip)} in the same run "
        f"({between(tcp, time)}), one by bare Zenoh {time(middle(zenoh))} ({between(zenoh, time)}). The machines of "
        "Mobile were Sun Ultra 1 and Ultra 5 with Java and OrbixWeb in a shared network, about 1999: milliseconds "
        "cannot be compared, growth can."
    )
    return Section(
        key="subscriptions",
        title="Subscribe and unsubscribe (Mobile 6.3.1, 6.3.2)",
        contents=content(Text(intro), *tables, Text(growth), Text(notes), _plot(times, counts)),
        command=COMMAND,
        repetitions=f"{n} subscriptions of each kind and number of sources, in turns of {bench.size(10, 2)}; medians, "
        "and the middle half of them as the spread",
    )


def _line(times: Times, kind: str, step: str, counts: Sequence[int]) -> Line:
    return regression([(float(count), middle(times[kind, count][step])) for count in counts if count])


def _table(
    times: Times,
    trip: float,
    call: str,
    done: str,
    title: str,
    mobile: Mapping[str, Mapping[int, float]],
    number: str,
) -> Table:
    columns = (
        Column("with", "text"),
        Column("sources"),
        Column("the call returns", "time", "here"),
        Column(done, "time", "here"),
        Column("spread", "text", "here"),
        Column("TCP round trips", "number", "here"),
        Column("of 1 source", "factor", "here", 2),
        Column("time", "time", f"Mobile, table {number}"),
        Column("of 1 source", "factor", f"Mobile, table {number}", 2),
    )
    made = []
    for (kind, count), found in times.items():
        took, one = middle(found[done]), middle(times[kind, 1][done])
        theirs = mobile.get(kind, {})
        published = theirs.get(count)
        made.append(
            Row(
                (
                    kind,
                    count,
                    middle(found[call]),
                    took,
                    spread(found[done]),
                    took / trip,
                    took / one,
                    published,
                    published / theirs[1] if published is not None else None,
                )
            )
        )
    note = "Mobile's *filter* is our interest, its *Policy Server* our access rule; it had nothing like compiled code."
    return Table(name=f"operations-{call}", title=title, columns=columns, rows=tuple(made), note=note)


def _plot(times: Times, counts: Sequence[int]) -> Plot:
    series = []
    for kind in KINDS:
        one = middle(times[kind, 1]["in force"])
        points = tuple((float(count), middle(times[kind, count]["in force"]) * 1e3) for count in counts)
        bands = tuple(_quarters([each * 1e3 for each in times[kind, count]["in force"]]) for count in counts)
        series.append(Series(name=kind, points=points, band=bands))
        if kind in MOBILE_SUBSCRIBE:
            published = MOBILE_SUBSCRIBE[kind]
            scaled = tuple((float(at), seconds / published[1] * one * 1e3) for at, seconds in published.items())
            series.append(Series(name=f"{kind}, as Mobile's grew", points=scaled, dashed=True))
    return Plot(
        name="subscribe-sources",
        title="Subscribe until in force, against the number of sources",
        x=Axis("sources, each at a node of its own", least=0.0),
        y=Axis("milliseconds", least=0.0),
        series=tuple(series),
        below="Dashed: Mobile's times, scaled so that its time with 1 source is ours.",
    )


def _quarters(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return ordered[len(ordered) // 4], ordered[(len(ordered) * 3) // 4]


def _advertising(known: Mapping[str, Known], tcp: Sequence[float], n: int, nodes: int) -> Section:
    trip = middle(tcp)
    made = []
    for change, name, published in (
        ("advertised", "advertise", MOBILE_ADVERTISE),
        ("withdrawn", "unadvertise", MOBILE_UNADVERTISE),
    ):
        found = known[change]
        one, last = middle(found.one), middle(found.last)
        values: tuple[Any, ...] = (
            name, middle(found.returned), one, spread(found.one), last, one / trip, sum(found.one), published,
            published * 100,
        )  # fmt: skip
        made.append(Row(values))
    columns = (
        Column("operation", "text"),
        Column("the call returns", "time", "here"),
        Column("another node knows", "time", "here"),
        Column("spread", "text", "here"),
        Column("all others know", "time", "here"),
        Column("TCP round trips", "number", "here"),
        Column(f"{n} times", "time", "here"),
        Column("average", "time", "Mobile, tables 6 and 7"),
        Column("100 times", "time", "Mobile, tables 6 and 7"),
    )
    text = (
        f"A source is made and closed {n} times, one after the other, in a federation of {nodes + 1} nodes, each in a "
        "process of its own. The call waits for nobody; what is shown beside is when a handler at another node has "
        "been told (channel `headwater.sources`), at one of them and at the last of all. What changes at a node within "
        "2 ms goes to the others together, so that a thousand sources are no thousand messages: these 2 ms are in "
        "every figure here but that of the call. Mobile's time is until its call returned."
    )
    table = Table(
        name="operations-advertise", title="Advertise and unadvertise", columns=columns, rows=tuple(made),
        note="TCP round trips: until another node knows.",
    )  # fmt: skip
    return Section(
        key="advertising",
        title="Advertise and unadvertise (Mobile 6.3.3, 6.3.4)",
        contents=content(Text(text), table),
        command=COMMAND,
        repetitions=f"{n} of each; medians, and the middle half of them as the spread",
    )


def _notification(
    seen: Mapping[Notice, list[float]], calls: Mapping[Case, Count], tcp: Sequence[float], n: int
) -> Section:
    table, plot, text = notified_table(seen, middle(tcp))
    return Section(
        key="notification",
        title="Notification, and invocations for it (Mobile 6.3.5, 6.4)",
        contents=content(
            Text(text), table, plot, Heading("Invocations for a notification (Mobile 6.4)"), *invoked_blocks(calls)
        ),
        command=COMMAND,
        repetitions=f"{n} events of each kind, each when all sinks have the one before; invocations: exact counts",
    )


def _ratios(calls: Mapping[Case, Count]) -> tuple[Ratio, ...]:
    """Times of operations are beside round trips in the tables: a round trip is not the same work."""
    whole = [count for case, count in calls.items() if not case.at_once]
    return (
        Ratio(
            case="invocations for notifications",
            reference="the formula of Mobile 6.4",
            ours=(sum(each.invocations for each in whole),),
            theirs=(sum(each.formula for each in whole),),
            kind="count",
        ),
    )


def _costs(times: Times, seen: Mapping[Notice, list[float]], calls: Mapping[Case, Count]) -> dict[str, float]:
    plain = {notice.nodes: middle(late) for notice, late in seen.items() if notice.where is None}
    line = regression([(float(nodes), late) for nodes, late in plain.items()])
    counts = sorted({count for _, count in times if count})
    subscribe = _line(times, "an interest", "in force", counts)
    single = [each for case, each in calls.items() if not case.at_once and each.frames]
    return {
        "subscribe": middle(times["an interest", 1]["in force"]),
        "subscribe_more_source": subscribe.slope,
        "notify_one_node": plain[1],
        "notify_more_node": max(0.0, line.slope),
        "frame_bytes": sum(each.bytes for each in single) / sum(each.frames for each in single),
    }


__all__ = ["KINDS", "operations", "wheres"]
