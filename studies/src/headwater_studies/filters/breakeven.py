"""From which share of rejected events on it pays to filter at the source: for the sender alone, and in all.

Two processes with a direct stream between them. The same events are published twice: to a sink without an interest,
which looks for what it wants itself, and to one whose interest runs at the source. What is useful is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headwater.study.report.html import Heading, Notes, Text
from headwater.study.report.table import Column, Row, Table, time
from headwater_studies.fleet.filtering import BATCH, KINDS, MANY, ONE, POOL, WIND, channel_of, rejected, totals
from headwater_studies.fleet.worker import Worker
from headwater_studies.harness.bench import Bench, Found, between, middle
from headwater_studies.harness.pair import Lossy, end
from headwater_studies.harness.result import Axis, Plot, Ratio, Section, Series, content, spread

RATES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999)
MODULE = "headwater_studies.fleet.filtering"
COMMAND = "headwater study filters --part breakeven"

# ECho, 3.3: a Sun Ultra 1/140; what running each program and sending the event as it is cost the sender.
ECHO_FILTER, ECHO_SEND = 3e-6, 5e-6
ECHO_AVERAGE, ECHO_SEND_LARGE = 1.6e-3, 1.1e-3

EVENTS = {ONE: (200_000, 2_000), MANY: (600_000, 24_000), WIND: (1_600, 16)}  # published in a run, full and quick
NAMES = {ONE: "one `publish` for each event", MANY: f"`publish_many` of {BATCH:,}", WIND: "the 37×253 average"}

WHY = {
    ONE: "An event is made a record and judged before it is rejected, and one that passes after others were rejected "
    "carries its number",
    MANY: "The rows that pass are chosen and made a batch of, in a number of steps in Python for each batch, where a "
    "batch that goes to all is sent as it is",
    WIND: "The sender computes the average instead of sending 75 kB; the program adds one number after the other, "
    "numpy at the sink adds several at a time",
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run, for each event published: processor seconds of both sides, seconds until all was acknowledged, bytes
    of both directions. `got` arrived in all."""

    sender: float
    receiver: float
    wall: float
    handed: float
    bytes: float
    got: int
    useful: int

    @property
    def both(self) -> float:
        return self.sender + self.receiver


class FilterPair:
    """A node that publishes and a node that wants it, each a process of `filtering`, with a channel for each kind of
    event, once with an interest at the source and once without."""

    def __init__(self, sender: Worker, receiver: Worker) -> None:
        self.sender, self.receiver = sender, receiver
        endpoint = self.sender.call("begin", name="publisher")["endpoint"]
        self.sender.call("sources")
        self.receiver.call("begin", name="subscriber", connect=endpoint)
        self.receiver.call("sinks")
        self._expected: dict[str, int] = {channel_of(kind, kept): 0 for kind in KINDS for kept in (False, True)}

    def run(self, kind: str, *, kept: bool, n: int, rate: float = 0.0) -> Cost:
        """Publish `n` events, of which that share is rejected. Raises Lossy unless exactly the right ones arrived."""
        pools, rest = divmod(n, POOL[kind])
        if rest:
            raise ValueError(f"n: expected a multiple of {POOL[kind]:,}, found {n:,}")
        useful = pools * (POOL[kind] - rejected(kind, rate))
        goal = useful if kept else n
        total = pools * totals(kind, rate)
        self.receiver.call("take", kind=kind, kept=kept, goal=goal)
        sent = self.sender.call("publish", kind=kind, kept=kept, n=n, rate=rate)
        taken = self.receiver.call("taken", kind=kind, kept=kept)
        self._expected[channel_of(kind, kept)] += goal
        found = (taken["got"], taken["useful"], taken["total"])
        if found != (goal, useful, total):
            raise Lossy(
                f"{channel_of(kind, kept)}: expected events, useful, total {goal, useful, total}, found {found}"
            )
        return Cost(
            sender=sent["cpu"] / n,
            receiver=taken["cpu"] / n,
            wall=sent["wall"] / n,
            handed=sent["handed"] / n,
            bytes=(sent["bytes"] + taken["bytes"]) / n,
            got=goal,
            useful=useful,
        )

    def check(self) -> None:
        """Nothing has come twice, nor later than it was looked for."""
        found = self.receiver.call("ever")
        if found != self._expected:
            raise Lossy(f"expected {self._expected} events in all, found {found}")

    def close(self) -> None:
        end((self.receiver, self.sender))


# ── where two curves meet ──


def crossing(points: Sequence[tuple[float, float]]) -> float | None:
    """From where on differences (filtered less unfiltered) are none or less and stay so, between measured points by a
    straight line; None if they are not even at the last."""
    if points[-1][1] > 0:
        return None
    for (x0, y0), (x1, y1) in reversed(list(pairwise(points))):
        if y0 > 0:
            return x0 + (x1 - x0) * y0 / (y0 - y1)
    return points[0][0]


def published_break_even(run: float, send: float) -> float | None:
    """From which rejection rate on `run + (1 - rate) * send < send`; None if never."""
    return run / send if run < send else None


def said(rate: float | None) -> str:
    if rate is None:
        return "never"
    return "always" if rate <= 0 else f"from {rate * 100:.1f} % rejected on"


# ── the part ──

Costs = dict[tuple[str, bool, float], list[Cost]]
What = Callable[[Cost], float]


def breakeven(bench: Bench) -> Found:
    """Processor time against the share rejected, with and without an interest."""
    pair = FilterPair(bench.start(MODULE), bench.start(MODULE))
    try:
        costs = _measure(bench, pair)
        pair.check()
    finally:
        pair.close()
    return Found(sections=(_section(bench, costs),), ratios=_ratios(costs))


def _measure(bench: Bench, pair: FilterPair) -> Costs:
    runs = [(kind, kept, rate) for kind in (ONE, MANY) for rate in RATES for kept in (False, True)]
    runs += [(WIND, False, 0.0), (WIND, True, 0.0)]
    found: Costs = {each: [] for each in runs}
    for number in range(bench.rounds + 1):  # the first is to warm up: machine code is made meanwhile
        for kind, kept, rate in runs:
            cost = pair.run(kind, kept=kept, n=bench.size(*EVENTS[kind]), rate=rate)
            if number:
                found[kind, kept, rate].append(cost)
        if number:
            bench.say(f"filters against the share rejected, round {number} of {bench.rounds}")
    return found


def _mean(costs: Sequence[Cost], what: What) -> float:
    return middle(map(what, costs))


def _sender(cost: Cost) -> float:
    return cost.sender


def _both(cost: Cost) -> float:
    return cost.both


def _bytes(cost: Cost) -> float:
    return cost.bytes


def meeting(costs: Costs, kind: str, what: What) -> float | None:
    """The rate from which on the interest saves something."""
    return crossing(
        [(rate, _mean(costs[kind, True, rate], what) - _mean(costs[kind, False, rate], what)) for rate in RATES]
    )


def _meetings(costs: Costs, kind: str) -> dict[What, float | None]:
    return {what: meeting(costs, kind, what) for what in (_sender, _both)}


def _section(bench: Bench, costs: Costs) -> Section:
    one, many = _meetings(costs, ONE), _meetings(costs, MANY)
    rounds = f"{bench.rounds} rounds in turn"
    sizes = ", ".join(f"{bench.size(*EVENTS[kind]):,} events ({NAMES[kind].replace('`', '')})" for kind in KINDS)
    large = {kept: costs[WIND, kept, 0.0] for kept in (False, True)}
    return Section(
        key="break-even",
        title="From which rejection rate on filtering at the source pays",
        command=COMMAND,
        repetitions=f"{sizes} in each run, {rounds}; medians, and the least to the most of the rounds",
        contents=content(
            Text(
                "ECho (3.3) found that its filter could be cheaper for the sender than sending: 3 µs to run, 5 µs to "
                "send, so that it pays **for the sender alone** from 60 % rejected events on (3 + (1 − r) · 5 < 5). "
                "Its average never does: 1.6 ms to run, 1.1 ms to send. Here the same is measured, not computed: the "
                "processor time of a process that publishes, and of the one that receives, for each event published, "
                "with the interest `level > 0.5` at the source, and with none, where the sink looks for what it wants "
                "itself. Both sinks end with the same events, which is checked by count and by sum. Shares of rejected "
                "events are exact and in random order."
            ),
            _verdicts(costs, one, many),
            Heading("One publish for each event"),
            _plot(costs, ONE, _sender, "sender", "Processor time of the sender", echo=True),
            _plot(costs, ONE, _both, "all", "Processor time of sender and receiver"),
            _table(costs, ONE),
            Heading("In batches"),
            _plot(costs, MANY, _sender, "sender", "Processor time of the sender, in batches"),
            _plot(costs, MANY, _both, "all", "Processor time of sender and receiver, in batches"),
            _table(costs, MANY),
            Heading("Data reduction"),
            _reduction(large),
            Notes(_notes(costs, one, many)),
        ),
    )


def _notes(costs: Costs, one: dict[What, float | None], many: dict[What, float | None]) -> tuple[str, ...]:
    notes = [
        f"For the sender alone, filtering at the source pays: {said(one[_sender])} (event by event), "
        f"{said(many[_sender])} (in batches). For both sides together: {said(one[_both])}, {said(many[_both])}. "
        f"On the wire, with {RATES[-1] * 100:g} % rejected, bytes for each event published: {_wire(costs, ONE)}, "
        f"{_wire(costs, MANY)}.",
    ]
    for kind, meets in ((ONE, one[_sender]), (MANY, many[_sender])):
        if meets is None:
            send, reject = (_mean(costs[kind, kept, rate], _sender) for kept, rate in ((False, 0.0), (True, RATES[-1])))
            notes.append(
                f"Where we lose, {NAMES[kind]}: sending an event costs the sender {time(send)}, and one that is "
                f"rejected costs it {time(reject)}. {WHY[kind]}. {_saved(costs, kind)}"
            )
    return (
        *notes,
        "Published figures are of a machine of the nineties and of a program in C; ours include all that a program in "
        "Python pays for `publish`: making the record, counting, reliable delivery and its acknowledgements.",
        "One sink is the worst case for a filter at the source: with several at different nodes, the unfiltered event "
        "is sent to each of them.",
    )


def _wire(costs: Costs, kind: str) -> str:
    sent, kept = (_mean(costs[kind, each, RATES[-1]], _bytes) for each in (False, True))
    return f"{kept:.2g} instead of {sent:.3g}"


def _saved(costs: Costs, kind: str) -> str:
    """What the filter saves where it does not save the sender's time: by the highest rate."""
    without, kept = (_mean(costs[kind, each, RATES[-1]], lambda cost: cost.receiver) for each in (False, True))
    if kept < without:
        return "What the filter saves is the network and the receiver's work, not the sender's."
    return "What the filter saves here is the network, and neither the sender's work nor the receiver's."


def _verdicts(costs: Costs, one: dict[What, float | None], many: dict[What, float | None]) -> Table:
    large = {
        what: _mean(costs[WIND, True, 0.0], what) <= _mean(costs[WIND, False, 0.0], what) for what in (_sender, _both)
    }
    yes = {True: "always", False: "never"}
    echo = said(published_break_even(ECHO_FILTER, ECHO_SEND))
    return Table(
        name="break-even",
        title="Filtering at the source pays",
        columns=(
            Column("", "text"),
            Column("for the sender alone", "text"),
            Column("in all", "text"),
            Column("for the sender alone", "text", "ECho, computed from its figures"),
        ),
        rows=(
            Row(
                (
                    "`level > 0.5`, one publish for each event".replace("`", ""),
                    said(one[_sender]),
                    said(one[_both]),
                    echo,
                )
            ),
            Row((f"level > 0.5, batches of {BATCH:,}", said(many[_sender]), said(many[_both]), None)),
            Row(
                (
                    "the 37×253 average, 74,888 bytes to 8",
                    yes[large[_sender]],
                    yes[large[_both]],
                    said(published_break_even(ECHO_AVERAGE, ECHO_SEND_LARGE)),
                )
            ),
        ),
        note="Between measured rates by a straight line. ECho gives no figures for the receiver.",
    )


def _plot(costs: Costs, kind: str, what: What, name: str, title: str, *, echo: bool = False) -> Plot:
    unit, scale = ("µs", 1e6) if kind == ONE else ("ns", 1e9)
    series = []
    for kept, label in ((False, "everything sent, filtered at the sink"), (True, "filtered at the source")):
        values = [(rate * 100, [what(each) for each in costs[kind, kept, rate]]) for rate in RATES]
        series.append(spread(label, values, scale))
    if echo:
        series.append(Series(name="ECho 1999, everything sent", points=_echo(0.0, keep=True), dashed=True))
        series.append(Series(name="ECho 1999, filtered (computed)", points=_echo(ECHO_FILTER, keep=False), dashed=True))
    meets = meeting(costs, kind, what)
    below = f"Filtering at the source pays here: {said(meets)}."
    if echo:
        below += f" ECho, by its own figures: {said(published_break_even(ECHO_FILTER, ECHO_SEND))}."
    return Plot(
        name=f"break-even-{kind}-{name}",
        title=f"{title} for each event published",
        x=Axis("events rejected, %", least=0.0, most=100.0),
        y=Axis(f"processor time, {unit}", least=0.0),
        series=tuple(series),
        below=below,
    )


def _echo(run: float, *, keep: bool) -> tuple[tuple[float, float], ...]:
    return tuple((rate * 100, (run + (1 if keep else 1 - rate) * ECHO_SEND) * 1e6) for rate in RATES)


def _table(costs: Costs, kind: str) -> Table:
    made = []
    for rate in RATES:
        without, kept = costs[kind, False, rate], costs[kind, True, rate]
        made.append(
            Row(
                (
                    rate * 100,
                    _mean(without, _sender),
                    _mean(kept, _sender),
                    between([each.sender for each in kept], time),
                    _mean(without, _both),
                    _mean(kept, _both),
                    between([each.both for each in kept], time),
                    _mean(without, _bytes),
                    _mean(kept, _bytes),
                    without[0].got,
                    kept[0].got,
                )
            )
        )
    return Table(
        name=f"break-even-{kind}",
        title=f"For each event published, {NAMES[kind].replace('`', '')}",
        columns=(
            Column("rejected", "percent"),
            Column("none", "time", "sender, interest"),
            Column("at the source", "time", "sender, interest"),
            Column("rounds", "text", "sender, interest"),
            Column("none", "time", "in all, interest"),
            Column("at the source", "time", "in all, interest"),
            Column("rounds", "text", "in all, interest"),
            Column("none", "number", "bytes both ways"),
            Column("at the source", "number", "bytes both ways"),
            Column("none", "int", "events that arrived"),
            Column("at the source", "int", "events that arrived"),
        ),
        rows=tuple(made),
        note="Processor time. “None”: the sink has no interest and filters itself. Every event that should arrive did, "
        "once.",
        folded=True,
    )


def _reduction(large: dict[bool, list[Cost]]) -> Table:
    labels = {False: "whole event sent, averaged at the sink", True: "averaged at the source"}
    return Table(
        name="break-even-wind",
        title="The 37×253 average, for each event published",
        columns=(
            Column("", "text"),
            Column("sender", "time", "processor time"),
            Column("rounds", "text", "processor time"),
            Column("receiver", "time", "processor time"),
            Column("in all", "time", "processor time"),
            Column("until acknowledged", "time"),
            Column("bytes both ways", "bytes"),
            Column("arrived", "int"),
            Column("ECho, sender", "time"),
        ),
        rows=tuple(
            Row(
                (
                    labels[kept],
                    _mean(each, _sender),
                    between([cost.sender for cost in each], time),
                    _mean(each, lambda cost: cost.receiver),
                    _mean(each, _both),
                    _mean(each, lambda cost: cost.wall),
                    _mean(each, _bytes),
                    each[0].got,
                    ECHO_AVERAGE if kept else ECHO_SEND_LARGE,
                )
            )
            for kept, each in large.items()
        ),
        note="Nothing is rejected: 8 bytes cross instead of 74,888. ECho's 1.6 ms is for running its program only; its "
        "sender then still sends the average. The sink that averages itself gets RecordBatches and uses numpy.",
    )


def _ratios(costs: Costs) -> tuple[Ratio, ...]:
    made = []
    for kind, rate in ((ONE, 0.99), (MANY, 0.99), (WIND, 0.0)):
        case = NAMES[kind].replace("`", "") + (f", {rate * 100:g} % rejected" if kind != WIND else ", 75 kB to 8 bytes")
        for what, label in ((_sender, "sender"), (_both, "sender and receiver")):
            made.append(
                Ratio(
                    case=f"filter at the source, {label}: {case}",
                    reference="no filter at the source",
                    ours=tuple(what(each) for each in costs[kind, True, rate]),
                    theirs=tuple(what(each) for each in costs[kind, False, rate]),
                    kind="seconds",
                    why=f"{WHY[kind]}.",
                )
            )
    return tuple(made)
