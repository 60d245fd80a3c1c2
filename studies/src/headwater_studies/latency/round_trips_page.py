"""What round trips have shown, beside what TAO published: tables, plots and ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headwater.study.report.html import Notes, Text
from headwater.study.report.table import Column, Row, Table, Value, time
from headwater_studies.harness.bench import Found, between, middle
from headwater_studies.harness.result import Axis, Plot, Ratio, Section, Series, content
from headwater_studies.latency.pairs import (
    CENTRALISED,
    FEDERATED,
    ROUTED_ZENOH,
    TCP,
    TCP_C,
    ZENOH,
    ZENOH_ONLY,
    Samples,
)
from headwater_studies.latency.samples import BINS, Summary, bins, histogram, multiples, summary

_STEPS = np.concatenate((np.linspace(0.0, 0.99, 100), (0.995, 0.999)))  # of the cumulative histogram


@dataclass(frozen=True, slots=True)
class Published:
    """A row of TAO's tables, in microseconds; of the share of samples it says "over" so many percent."""

    name: str
    average: float
    least: float
    most: float
    jitter: float
    one: str = ""  # percent below the average and one standard deviation
    two: str = ""


# TAO, the tables of 5.2.1 and 5.2.2, and the text below figure 19: 50,000 samples each
TAO_TCP = Published("TCP/IP", 96, 95, 10_096, 45.32)
TAO_ORB = Published("ORB callback", 201, 191, 3_198, 31.49)
TAO_CENTRALISED = Published("Centralized EC", 271, 260, 4_173, 36.89, "over 99 %", "over 99.9 %")
TAO_FEDERATED = Published("Federated EC", 351, 343, 1_756, 12.89, "over 97 %", "over 99 %")
TAO = (TAO_TCP, TAO_ORB, TAO_CENTRALISED, TAO_FEDERATED)
LIKE: Mapping[str, Published] = {  # what of TAO's stands beside what of ours
    TCP_C: TAO_TCP,
    ZENOH: TAO_ORB,
    CENTRALISED: TAO_CENTRALISED,
    FEDERATED: TAO_FEDERATED,
}


def reported(taken: Mapping[str, Sequence[Samples]], missing: Mapping[str, str]) -> Found:
    """What samples say: of each system, those of each round."""
    averages = {name: [float(each.mean()) for each in rounds] for name, rounds in taken.items()}
    medians = {name: [float(np.median(each)) for each in rounds] for name, rounds in taken.items()}
    everything = {name: np.concatenate(rounds) for name, rounds in taken.items()}
    found = {name: summary(each) for name, each in everything.items()}
    rounds = len(next(iter(taken.values())))
    repetitions = (
        f"{found[TCP].count:,} samples of each system, in {rounds} {'round' if rounds == 1 else 'rounds'} in turn"
    )
    latency = Section(
        key="round-trips",
        title="Latency of an event",
        contents=content(
            Text(_WHAT),
            Notes(_SYSTEMS),
            _latency_table(found, averages),
            Text(_read_latency(found)),
            *_plots(everything),
        ),
        command="headwater study latency --part samples",
        repetitions=repetitions,
    )
    overhead = Section(
        key="overhead",
        title="Overhead over TCP",
        contents=content(Text(_OVERHEAD), _overhead_table(found, averages, medians), Text(_read_overhead(found))),
        command="headwater study latency --part samples",
        repetitions=repetitions,
    )
    tcp = medians.get(TCP_C, medians[TCP])
    costs = {
        "round_trip": middle(medians[FEDERATED]),
        "one_way": middle(medians[FEDERATED]) / 2,
        "routed_round_trip": middle(medians[CENTRALISED]),
        "tcp_round_trip": middle(tcp),
    }
    return Found((latency, overhead), _ratios(medians), {}, dict(missing), costs)


_WHAT = (
    "TAO measures how long an event takes, with one clock, by letting it come back. **Federated** (its figure 17): an "
    "event crosses from one event channel to another, where a consumer supplies it again, and crosses back: two "
    "crossings and two deliveries, so that the latency of an event is half of it. **Centralised** (its figure 16): an "
    "event goes from a supplier to an event channel elsewhere, and from there to a consumer beside the supplier: two "
    "crossings, one delivery, and the latency is all of it. Both cross twice, as a round trip over TCP does. The event "
    "is 64 bytes everywhere: eight f64 fields, which our handlers get decoded, and all others as bytes."
)
_SYSTEMS = (
    f"**{FEDERATED}**: two nodes in two processes and a direct stream between them. A handler at the second node "
    "publishes what it gets on a second channel, to which the first has subscribed.",
    f"**{ZENOH_ONLY}**: the same where no direct stream can be made, and Zenoh's peers are connected.",
    f"**{CENTRALISED}**: supplier and consumer are two nodes in one process, clients of a router in the other process "
    "(`headwater node`); all that passes between them passes through it. Our router carries events and does not look "
    "into them: the interest is decided at the source, as ever.",
    f"**{ZENOH}** and **{ROUTED_ZENOH}**: Zenoh alone in the same two arrangements, reliable, in callbacks.",
    f"**{TCP_C}** and **{TCP}**: two sockets with TCP_NODELAY; blocking send and receive, in C and in Python.",
    "Every system has two processes, one on each of two cores, the router's among them, while the others wait. "
    "Each turn begins with some round trips that are not counted. Nothing is lost or comes twice: it is counted.",
)
_OVERHEAD = (
    "TAO sets its event service beside a round trip over TCP on the same machines. How many such round trips it takes "
    "is what can be compared over the years: its machines were two Pentium III of 866 MHz with 100 Mbit/s between "
    "them, of about the year 2000; ours are two processes on one machine, where no network is part of TCP's time and "
    "what software adds weighs more."
)


def _microseconds(value: float) -> float:
    return value / 1e6


def _latency_table(found: Mapping[str, Summary], averages: Mapping[str, Sequence[float]]) -> Table:
    columns = (
        Column("round trip of a 64-byte event", "text"),
        *(Column(title, "time") for title in ("average", "least", "most", "jitter", "p50", "p99", "p99.9")),
        Column("one", "percent", "below average + jitter ×"),
        Column("two", "percent", "below average + jitter ×"),
        Column("averages of the rounds", "text"),
    )
    rows = [
        Row(
            (name, it.average, it.least, it.most, it.jitter, it.p50, it.p99, it.p999, it.one, it.two,
             between(averages[name], time))
        )
        for name, it in found.items()
    ]  # fmt: skip
    for each in TAO:
        figures = [_microseconds(value) for value in (each.average, each.least, each.most, each.jitter)]
        rows.append(
            Row((f"TAO: {each.name}", *figures, None, None, None, each.one or None, each.two or None, "published"))
        )
    return Table(
        name="latency",
        title="Round trips",
        columns=columns,
        rows=tuple(rows),
        note="Jitter is the standard deviation, as with TAO. TAO's samples crossed a network of 100 Mbit/s.",
    )


def _read_latency(found: Mapping[str, Summary]) -> str:
    federated, centralised = found[FEDERATED], found[CENTRALISED]
    return (
        f"An event's latency, one way, is {time(federated.average / 2)} federated and {time(centralised.average)} "
        f"centralised: {centralised.average / (federated.average / 2):.1f} times as long through a router. With TAO it "
        f"was 175.5 µs and 271 µs, {271 / 175.5:.1f} times."
    )


def _plots(everything: Mapping[str, Samples]) -> tuple[Plot, Plot]:
    edges = bins(everything.values())
    beyond = {name: histogram(each, edges)[1] for name, each in everything.items()}
    said = ", ".join(f"{name} {count:,}" for name, count in beyond.items() if count)
    axis = Axis("round trip, µs", log=True, least=float(edges[0] * 1e6), most=float(edges[-1] * 1e6))
    shares = tuple(Series(name=name, points=_shares(each, edges), style="steps") for name, each in everything.items())
    cumulative = tuple(
        Series(
            name=name,
            points=tuple(
                (float(at * 1e6), float(step * 100)) for step, at in zip(_STEPS, np.quantile(each, _STEPS), strict=True)
            ),
        )
        for name, each in everything.items()
    )
    return (
        Plot(
            name="latency-histogram",
            title="Histogram of round trips",
            x=axis,
            y=Axis("% of the samples", least=0.0),
            series=shares,
            below=f"{BINS} bins, each wider than the one before by the same factor. The axis ends at the longest of "
            f"the 99.9th percentiles; samples beyond it: {said or 'none'}.",
        ),
        Plot(
            name="latency-cumulative",
            title="Cumulative histogram of round trips",
            x=axis,
            y=Axis("% of the samples take at most so long", least=0.0, most=100.0),
            series=cumulative,
            below="Up to the 99.9th percentile of each. The steeper, the more alike the round trips are.",
        ),
    )


def _shares(each: Samples, edges: Samples) -> tuple[tuple[float, float], ...]:
    """Each bin's beginning and percent of the samples; the last point ends the last bin."""
    counts, _ = histogram(each, edges)
    heights = [count * 100.0 / len(each) for count in counts]
    return tuple((float(at * 1e6), height) for at, height in zip(edges, [*heights, heights[-1]], strict=True))


def _overhead_table(
    found: Mapping[str, Summary], averages: Mapping[str, Sequence[float]], medians: Mapping[str, Sequence[float]]
) -> Table:
    columns = (
        Column("", "text"),
        Column("average", "time"),
        Column("raw TCP in C", "factor", "times the average of"),
        Column("rounds", "text", "times the average of"),
        Column("raw TCP in Python", "factor", "times the average of"),
        Column("times the median of raw TCP in C", "factor"),
        Column("beside", "text", "TAO"),
        Column("average", "time", "TAO"),
        Column("times TCP", "factor", "TAO"),
    )
    rows = []
    for name, it in found.items():
        like = LIKE.get(name)
        in_c: tuple[Value, Value, Value] = (None, "not run", None)
        if TCP_C in found:
            rounds = multiples(averages[name], averages[TCP_C])
            in_c = (
                it.average / found[TCP_C].average,
                between(rounds, lambda value: f"{value:.1f} ×"),
                it.p50 / found[TCP_C].p50,
            )
        theirs: tuple[Value, ...] = (None, None, None)
        if like is not None:
            theirs = (like.name, _microseconds(like.average), like.average / TAO_TCP.average)
        rows.append(Row((name, it.average, in_c[0], in_c[1], it.average / found[TCP].average, in_c[2], *theirs)))
    return Table(
        name="overhead",
        title="In round trips over TCP",
        columns=columns,
        rows=tuple(rows),
        note="An ORB carries TAO's events; Zenoh carries ours through a router and where no direct stream can be made.",
    )


def _read_overhead(found: Mapping[str, Summary]) -> str:
    carried = found[ROUTED_ZENOH].average / found[CENTRALISED].average
    return (
        f"Of our centralised round trip, Zenoh through a router alone takes {carried * 100:.0f} %; with TAO the ORB "
        f"took {TAO_ORB.average / TAO_CENTRALISED.average * 100:.0f} %. Our federated round trip is "
        f"{found[FEDERATED].average / found[TCP].average:.1f} times that of two sockets in Python, the language that "
        f"its handlers are written in, and {found[FEDERATED].average / found[ZENOH].average:.2f} times that of bare "
        "Zenoh, whose callbacks are in Python as well. It includes what neither of them does: the event is encoded, "
        "matched and decoded, and numbered and acknowledged so that none is lost or comes twice when a "
        "connection breaks."
    )


_WORK = (
    "encodes and matches the event, numbers and acknowledges it, decodes it and calls a handler in Python, twice for "
    "each round trip"
)
_BYTES = f"the sockets carry bytes and do no more; ours {_WORK}"
_IN_C = f"loops in C carry bytes and do no more; ours {_WORK}"
_CALLBACKS = f"bare Zenoh hands over bytes; ours {_WORK}"
_OVER_ZENOH = (
    "both go the same way over Zenoh; ours adds at both ends what makes delivery reliable: numbers, acknowledgements, "
    "a proof that the sender is who it says, and a typed event for the handler"
)
_THROUGH = "the event passes through a third party, Zenoh's router, while the sockets are connected directly"


def _ratios(medians: Mapping[str, Sequence[float]]) -> tuple[Ratio, ...]:
    trip, central = "round trip of a 64-byte event, federated", "64-byte event, centralised"
    alone = middle(medians[ROUTED_ZENOH]) / middle(medians[CENTRALISED])
    through = f"{_THROUGH}; bare Zenoh through a router takes {alone * 100:.0f} % of our time"
    asked = (
        (trip, FEDERATED, TCP_C, _IN_C),
        (trip, FEDERATED, TCP, _BYTES),
        (trip, FEDERATED, ZENOH, _CALLBACKS),
        ("round trip of a 64-byte event, only Zenoh connects", ZENOH_ONLY, ZENOH, _OVER_ZENOH),
        (central, CENTRALISED, ROUTED_ZENOH, _OVER_ZENOH),
        (central, CENTRALISED, TCP_C, through),
        (central, CENTRALISED, TCP, through),
    )
    return tuple(
        Ratio(
            case=case,
            reference=theirs,
            ours=tuple(medians[ours]),
            theirs=tuple(medians[theirs]),
            kind="seconds",
            why=why,
        )
        for case, ours, theirs, why in asked
        if theirs in medians
    )
