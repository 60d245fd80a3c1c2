"""What was found beside other systems, as tables, plots and ratios."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from headwater.study.report.bars import Bar
from headwater.study.report.html import Notes, Text
from headwater.study.report.table import Column, Row, Table, Value, rate, size, time
from headwater_studies.harness.bench import Found, between, middle
from headwater_studies.harness.result import Axis, Bars, Plot, Ratio, Section, content, spread

OURS = "Headwater"


@dataclass(frozen=True, slots=True)
class Way:
    """A way for events to go: of which pair of processes, what it is called, whether there is a server between them,
    how many events the program packs into a message or sends before it reads the server's answers."""

    key: str
    system: str
    name: str
    between: Literal["direct", "server"]
    packed: int = 1
    pipeline: int = 1

    @property
    def many(self) -> bool:
        """Whether the program hands over several events at a time."""
        return self.packed > 1 or self.pipeline > 1

    @property
    def together(self) -> int:
        """How many events the program hands over at a time."""
        return max(self.packed, self.pipeline)

    @property
    def ours(self) -> bool:
        return self.name.startswith(OURS)


@dataclass(frozen=True, slots=True)
class Trip:
    """Seconds of round trips: half of them took no longer, and 99 of 100."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A run: events published, wanted ones delivered a second, and for each of these processor time (seconds, of all
    processes) and bytes over loopback (with headers, acknowledgements and all); None where the system does not tell."""

    events: int
    rate: float
    cpu: float | None
    wire: float | None


@dataclass(frozen=True, slots=True)
class Idle:
    """Bytes a second over loopback while nobody sends an event; `alone` if only these systems use it."""

    rate: float
    alone: bool

    def __str__(self) -> str:
        others = "no other program uses that interface" if self.alone else "other programs' traffic is counted as well"
        return f"{size(self.rate)} a second went over it while nobody sent an event; {others}."


Measured = TypeVar("Measured")
Figure = list[Measured] | str  # of every round, or why there is none


@dataclass(frozen=True, slots=True)
class Case:
    """What share of the events is wanted, and what every way gave for it."""

    wanted: float
    figures: Mapping[str, Figure[Flow]]

    @property
    def title(self) -> str:
        return f"{100 * self.wanted:g}%"


# ── why we are behind, where we are ──

_TRIP_WHY = {
    "tcp": "Raw TCP is two system calls at each end and nothing else: no types, no interests, no acknowledgements.",
    "zmq": "ZeroMQ passes bytes between a C++ thread and the program; ours also types the event and keeps it until it "
    "is acknowledged.",
    "zenoh": "Bare Zenoh answers in a callback of its own Rust thread with the bytes as they are.",
    "omni": "Its clients are C++; ours are Python, at either end.",
}
_TRIP_OTHERWISE = "Their clients hand over bytes; ours also types the event and keeps it until it is acknowledged."
_SLOWEST_WHY = (
    "Each of our processes has several threads that take turns in the interpreter on the one core that it is held to; "
    "whichever is not at work when an event comes has to wait for its turn. (Where the time goes was not measured.)"
)
_RATE_WHY = {
    "zmq": "ZeroMQ's `send` puts bytes into the queue of a C++ thread, which writes whatever is there; our `publish` "
    "checks the type, asks the interests and keeps the event until it is acknowledged, partly in Python.",
    "zenoh": "Zenoh's `put` hands bytes to Rust; our `publish` checks the type, asks the interests and keeps the event "
    "until it is acknowledged, partly in Python.",
}
_RATE_OTHERWISE = (
    "Our `publish` checks the type, asks the interests and keeps the event until it is acknowledged, partly in Python; "
    "their client hands over bytes."
)
_MANY_WHY = (
    "A message packed by hand is one run of bytes, neither checked, nor typed, nor numbered; a batch of ours is "
    "checked against its type, split by interest, and acknowledged."
)
_CPU_WHY = "What ours does more takes processors: typing, interests, acknowledgements, in Python for single events."
_WIRE_WHY = "Ours numbers, names and acknowledges what it sends; bare messages carry a length and a topic."


def _why(measure: str, way: Way) -> str:
    if measure == "rate":
        return _MANY_WHY if way.many else _RATE_WHY.get(way.key, _RATE_OTHERWISE)
    return _CPU_WHY if measure == "cpu" else _WIRE_WHY


# ── there and back ──


def trip_page(found: Sequence[tuple[str, str, Figure[Trip]]], n: int, rounds: int) -> Found:
    """Of each system: its key, its name, its figures."""
    ours = next(figures for key, _, figures in found if key == "ours")
    assert not isinstance(ours, str)
    mine = middle(each.p50 for each in ours)
    rows, bars, ratios = [], [], []
    for key, name, figures in found:
        if isinstance(figures, str):
            rows.append(Row((name, figures, "", None, "", None)))
            continue
        p50s, p99s = [each.p50 for each in figures], [each.p99 for each in figures]
        half, most = middle(p50s), middle(p99s)
        rows.append(Row((name, half, between(p50s, time), most, between(p99s, time), half / mine)))
        bars.append(Bar(name, half * 1e6, colour=0 if key == "ours" else 1, text=f"{time(half)}, 99% {time(most)}"))
        if key == "ours":
            continue
        for what, pick in (("median", p50s), ("99%", p99s)):
            own = tuple(each.p50 if what == "median" else each.p99 for each in ours)
            ratios.append(
                Ratio(
                    case=f"round trip of a 64-byte event, {what}",
                    reference=name,
                    ours=own,
                    theirs=tuple(pick),
                    kind="seconds",
                    why=_TRIP_WHY.get(key, _TRIP_OTHERWISE) if what == "median" else _SLOWEST_WHY,
                )
            )
    table = Table(
        name="peers-trips",
        title="Round trip of a 64-byte event between two processes",
        columns=(
            Column("system", "text"),
            Column("median", "time"),
            Column("rounds", "text"),
            Column("99% within", "time"),
            Column("rounds ", "text"),
            Column("median beside ours", "factor", digits=2),
        ),
        rows=tuple(rows),
        note="Rounds: the least and the most of them. A factor above 1 is slower than ours.",
    )
    section = Section(
        key="trips",
        title="There and back",
        contents=content(
            Text(
                "One event of 64 bytes goes to another process, and whoever gets it there sends it back; then the "
                "next. Either process is held to a core of its own, servers are not. NATS, Redis, Mosquitto and "
                "omniEvents have a server in between, so that an event crosses the loopback interface twice in each "
                "direction."
            ),
            Notes(_SETUP),
            table,
            Bars(
                name="peers-trips",
                title="Round trip of a 64-byte event, median",
                unit="µs",
                bars=tuple(bars),
                log=True,
                below="Further to the left is better.",
            ),
        ),
        command="headwater study peers",
        repetitions=f"{n:,} round trips each, {_times(rounds)} in turn, after a shorter one to warm up",
    )
    return Found(sections=(section,), ratios=tuple(ratios))


_SETUP = (
    "**Headwater**: two nodes with a direct stream; the handler gets a typed event and publishes it back.",
    "**raw TCP**: `recv` and `sendall` of 64 bytes in Python. It knows no events, so it is here only.",
    "**ZeroMQ**: XPUB to SUB with XPUB_NODROP and long queues. **Zenoh**: two peers, reliable, congestion control "
    "BLOCK, shared memory off, since loopback stands for a network here. **NATS**: its server, uvloop, and credit from "
    "the receiver, since the server drops what a slow client does not take. **Redis**: PUBLISH and SUBSCRIBE, nothing "
    "stored, no limit to a subscriber's buffer, hiredis. **Mosquitto**: QoS 0, nothing stored, no limit to its queues, "
    "TCP_NODELAY. **omniEvents**: push to push, clients in C++; by itself a channel passes events on every 0.1 s, here "
    "it does so at once.",
)


def _times(rounds: int) -> str:
    return f"{rounds} rounds" if rounds > 1 else "one round"


# ── all of them, or few ──


def flow_page(ways: Sequence[Way], cases: Sequence[Case], idle: Idle, rounds: int) -> Found:
    here = [way for way in ways if any(way.key in case.figures for case in cases)]
    section = Section(
        key="flows",
        title="All of the events, or few of them",
        contents=content(
            Text(
                "A program publishes 64-byte events, and one receiver wants all of them, half, a tenth, a hundredth or "
                "a thousandth. With Headwater the interest (`pick < 10` of a thousand) is at work at the source; the "
                "other systems do not look into an event, so their receivers get everything and look at one field. "
                "What counts is events that were wanted."
            ),
            Notes(
                (
                    "Each run is lossless: what arrives is counted and has to be exact, else there is no figure. "
                    "Before it all, numbered events had to arrive once each.",
                    "The first rows publish one event at a time. `publish` of Redis's client waits for the server's "
                    "answer. In the rows below the program hands over several at a time: batches with ours, as many "
                    "events packed into a message by hand with ZeroMQ and Zenoh, commands in a pipeline with Redis. "
                    "Events, batches and messages were made before, so that packing costs nobody anything. Compared "
                    "are those that hand over equally many; our batches of 6,000 have nobody beside them.",
                    "The promise is not the same: ours also sends again what a broken connection has lost; the others "
                    "are not set up, or not made, to do so. No connection breaks here.",
                    "All but omniEvents can select by a name (a topic, subject, channel or key) that the publisher "
                    "gives to each event, if it knows beforehand what somebody will ask for. Here what is wanted is a "
                    "range of a field; the study of latency has ZeroMQ with a prefix over thin links.",
                    "Our handlers get typed events or batches; the others' get bytes. omniEvents' clients are C++ and "
                    "have typed events; all others are Python.",
                )
            ),
            _wide("peers-rate", "Wanted events delivered a second", "rate", here, cases),
            *_plots("rate", here, cases),
            _wide("peers-cpu", "Processor time for each wanted event, all processes", "cpu", here, cases),
            *_plots("cpu", here, cases),
            _wide(
                "peers-wire",
                "Bytes over loopback for each wanted event",
                "wire",
                here,
                cases,
                note=f"All headers and acknowledgements included. What goes through a server crosses twice. {idle}",
            ),
            *_plots("wire", here, cases),
            _details(here, cases),
        ),
        command="headwater study peers",
        repetitions=f"{_times(rounds)} in turn, each as many events as take about 0.6 s",
    )
    return Found(sections=(section,), ratios=tuple(_ratios(here, cases)))


Measure = Literal["rate", "cpu", "wire"]
_KIND: Mapping[Measure, Literal["rate", "time", "bytes"]] = {"rate": "rate", "cpu": "time", "wire": "bytes"}
_SHOW: Mapping[Measure, Callable[[float], str]] = {"rate": rate, "cpu": time, "wire": size}


def values(figures: Figure[Flow], measure: Measure) -> list[float] | str | None:
    """A measure of every round; why there is none; or None if the system does not tell."""
    if isinstance(figures, str):
        return figures
    found = [getattr(each, measure) for each in figures]
    return None if None in found else found


def _cell(figures: Figure[Flow] | None, measure: Measure) -> Value:
    if figures is None:
        return None
    found = values(figures, measure)
    return middle(found) if isinstance(found, list) else found


def _wide(name: str, title: str, measure: Measure, here: Sequence[Way], cases: Sequence[Case], note: str = "") -> Table:
    return Table(
        name=name,
        title=title,
        columns=(
            Column("way", "text"),
            *(Column(case.title, _KIND[measure], group="of the events are wanted") for case in cases),
        ),
        rows=tuple(Row((way.name, *(_cell(case.figures.get(way.key), measure) for case in cases))) for way in here),
        note=note or "The spread of the rounds is in the last table.",
    )


_PLOTS: Mapping[Measure, tuple[str, str, float, str]] = {
    "rate": (
        "Wanted events delivered a second",
        "wanted events a second",
        1.0,
        "Whoever sends everything delivers the fewer the fewer are wanted. With the interest at the source, what is "
        "not wanted is not sent.",
    ),
    "cpu": (
        "Processor time for each wanted event",
        "µs for each wanted event",
        1e6,
        "Sender, receiver and server together; lower is better.",
    ),
    "wire": (
        "Bytes over loopback for each wanted event",
        "bytes for each wanted event",
        1.0,
        "Lower is better. Whoever sends everything sends a thousand events for one that is wanted, on the left.",
    ),
}


def _plots(measure: Measure, here: Sequence[Way], cases: Sequence[Case]) -> tuple[Plot, Plot]:
    """Events one by one, and many at once: all in one would be too many lines."""
    one, many = [way for way in here if not way.many], [way for way in here if way.many]
    return _plot(measure, one, cases, ""), _plot(measure, many, cases, ", many events at once")


def _plot(measure: Measure, here: Sequence[Way], cases: Sequence[Case], how: str) -> Plot:
    title, unit, scale, below = _PLOTS[measure]
    series = []
    for way in here:
        taken = [(100 * case.wanted, values(case.figures.get(way.key, ""), measure)) for case in cases]
        drawn = [(x, found) for x, found in taken if isinstance(found, list) and min(found) > 0]  # a logarithm is taken
        if drawn:
            series.append(spread(way.name, drawn, scale))
    return Plot(
        name=f"peers-{measure}-many" if how else f"peers-{measure}",
        title=title + how,
        x=Axis("% of the events are wanted", log=True),
        y=Axis(unit, log=True),
        series=tuple(series),
        below=below,
    )


def _details(here: Sequence[Way], cases: Sequence[Case]) -> Table:
    rows = []
    for case in cases:
        for way in here:
            figures = case.figures.get(way.key)
            if figures is None:
                continue
            if isinstance(figures, str):
                rows.append(Row((case.title, way.name, None, figures, "", "")))
                continue
            spreads = []
            for measure in _KIND:
                found = values(figures, measure)
                spreads.append(between(found, _SHOW[measure]) if isinstance(found, list) else "not told")
            rows.append(Row((case.title, way.name, figures[-1].events, *spreads)))
    return Table(
        name="peers-spread",
        title="The rounds: the least and the most of each",
        columns=(
            Column("wanted", "text"),
            Column("way", "text"),
            Column("events published in a run"),
            Column("wanted events a second", "text"),
            Column("processor time", "text"),
            Column("bytes", "text"),
        ),
        rows=tuple(rows),
        folded=True,
    )


_CASES: Mapping[Measure, tuple[str, Literal["per second", "seconds", "bytes"]]] = {
    "rate": ("wanted events a second", "per second"),
    "cpu": ("processor time for each wanted event", "seconds"),
    "wire": ("bytes for each wanted event", "bytes"),
}
_MOSTLY = (1.0, 0.01)  # where processor time and bytes are compared


def _beside(way: Way, here: Sequence[Way]) -> Way | None:
    """Ours that hands over as many events at a time as another system does; None if there is none."""
    return next((each for each in here if each.ours and each.together == way.together), None)


def _ratios(here: Sequence[Way], cases: Sequence[Case]) -> list[Ratio]:
    made = []
    for measure, (what, kind) in _CASES.items():
        for case in cases:
            if measure != "rate" and case.wanted not in _MOSTLY:
                continue
            for way in here:
                own = _beside(way, here)
                if way.ours or own is None:
                    continue
                theirs, ours = (values(case.figures.get(each.key, ""), measure) for each in (way, own))
                if not isinstance(theirs, list) or not isinstance(ours, list):
                    continue
                how = f"batches of {own.packed:,}" if own.many else "one by one"
                made.append(
                    Ratio(
                        case=f"{what}, {case.title} wanted, {how}",
                        reference=way.name,
                        ours=tuple(ours),
                        theirs=tuple(theirs),
                        kind=kind,
                        why=_why(measure, way),
                    )
                )
    return made


__all__ = ["OURS", "Case", "Figure", "Flow", "Idle", "Trip", "Way", "flow_page", "trip_page", "values"]
