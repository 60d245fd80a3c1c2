"""Thin links: two hosts with limited bandwidth and added delay between them, made of network namespaces here.

What the documents are about: where a link is thin, what is not wanted should not be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.study.report.html import Heading, Notes, Text
from headwater.study.report.table import Column, Row, Table, rate, rows, time
from headwater_studies.fleet.hosts import Link, missing, pair
from headwater_studies.fleet.peers import SYSTEMS
from headwater_studies.fleet.worker import PICKS, RECORD
from headwater_studies.harness.bench import Bench, Found, between, middle, versions
from headwater_studies.harness.result import Axis, Plot, Ratio, Section, Series, content, spread
from headwater_studies.harness.xy import Style
from headwater_studies.latency.links_run import One, Ours, Passes, Peer, Prefix

COMMAND = "headwater study latency --part links"
THIN = Link("thin", "thin", 1e6, 0.05)
LINKS = (
    Link("lan", "local network", 100e6, 0.0005),
    Link("mobile", "mobile", 10e6, 0.02),
    THIN,
    Link("very-thin", "very thin", 256e3, 0.1),
)
EVENT = 72  # bytes that an event of 64 takes at least, about: to choose how many
BUSY = 1.0  # seconds that a link is to be busy with what is sent over it
MOST = 100_000  # events that are sent where that is less
MOST_LEFT_OUT = 200_000  # and where most are left out at the source
FULL = 0.8  # of a link's rate in use, from which on the link is the limit and not the publisher
TRIPS = 0.4  # seconds of round trips
WAITING = 300  # events that may wait, where publishers are to notice that a link is full
OURS, TOPIC = "Headwater", "ZeroMQ, by prefix"


@dataclass(slots=True)
class Measured:
    """Of one link."""

    link: Link
    by: str
    linked: str = ""
    trips: dict[str, list[float]] = field(default_factory=dict)
    ours: dict[int, Passes] = field(default_factory=dict)  # by percent wanted
    same: Passes | None = None  # ours with as many events as the others, 1% wanted
    peers: list[Passes] = field(default_factory=list)  # that send everything
    prefix: Passes | None = None
    full: Full | None = None  # of the thin link


@dataclass(frozen=True, slots=True)
class Full:
    """What a publisher saw of a full link, in each round."""

    published: int
    arrived: int
    wrong: int
    publishing: tuple[float, ...]  # seconds for all calls
    longest: tuple[float, ...]  # of one call
    waited: tuple[int, ...]  # calls of more than a millisecond
    seconds: tuple[float, ...]  # until the last one arrived


def links(bench: Bench) -> Found:
    """Round trips and useful events over links of several kinds; what a publisher sees of a full one."""
    why = missing()
    if why:
        return Found(not_run={"thin links": why})
    absent = {SYSTEMS[key].name: why for key in ("zmq", "zenoh") if (why := SYSTEMS[key].missing())}
    keys = [key for key in ("zmq", "zenoh") if SYSTEMS[key].name not in absent]
    measured = [_link(bench, link, keys) for link in ((THIN,) if bench.quick else LINKS)]
    thin = next(each for each in measured if each.link == THIN)
    control = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    used = {"TCP congestion control": control.read_text().strip()} if control.exists() else {}
    return Found(
        sections=(_section(bench, measured),),
        ratios=tuple(ratio for each in measured for ratio in _ratios(each)),
        versions={**versions(*(["pyzmq"] if "zmq" in keys else [])), **used},
        not_run={f"{name} over thin links": why for name, why in absent.items()},
        costs={"link_bytes_per_event": middle(thin.ours[100].each)},
    )


# ── measuring ──


def _published(bench: Bench, link: Link) -> int:
    """How many events keep a link busy for a while."""
    many = min(MOST, int(link.rate / 8 / EVENT * bench.size(100, 12) / 100 * BUSY))
    return max(PICKS, many // PICKS * PICKS)


def _link(bench: Bench, link: Link, keys: Sequence[str]) -> Measured:
    with ExitStack() as stack:
        hosts = stack.enter_context(pair(bench.start, link))
        ours = Ours(bench.start, hosts)
        stack.callback(ours.close)
        peers: dict[str, Peer] = {}
        for key in ("tcp", *keys):
            peers[key] = (Prefix if key == "zmq" else Peer)(bench.start, hosts, key)
            stack.callback(peers[key].close)
        for peer in peers.values():
            peer.open()
        ours.open()
        ours.prepare()
        found = Measured(link, hosts.by)
        n = max(bench.size(4, 2), min(bench.size(1000, 2), int(TRIPS / (2 * link.delay))))
        turns: dict[str, Callable[[], float]] = {OURS: lambda: ours.trips(n)}
        for peer in peers.values():
            turns[peer.name] = lambda it=peer: it.trips(n)  # type: ignore[misc]
        found.trips = bench.turns(f"round trips, {link.name} link", turns)
        found.linked = ours.kind
        _passes(bench, found, ours, {key: peers[key] for key in keys})
        if link == THIN:
            found.full = _full(bench, ours)
        return found


def _passes(bench: Bench, found: Measured, ours: Ours, peers: dict[str, Peer]) -> None:
    """Many events: everybody in turn, after a short run each that is not counted."""
    base, link = _published(bench, found.link), found.link
    runs: list[tuple[Passes, int, Callable[[int], One]]] = []
    for percent in (100, 10, 1) if link == THIN else (100, 1):
        many = max(base, min(base * 100 // percent, MOST_LEFT_OUT))
        found.ours[percent] = Passes(OURS, percent, many)
        runs.append((found.ours[percent], many, lambda n, it=percent: ours.run(n, it)))  # type: ignore[misc]
    found.same = Passes(OURS, 1, base)
    runs.append((found.same, base, lambda n: ours.run(n, 1)))
    for peer in peers.values():
        found.peers.append(Passes(peer.name, 100, base))
        runs.append((found.peers[-1], base, peer.run))
        if isinstance(peer, Prefix):
            many = found.ours[1].published
            found.prefix = Passes(TOPIC, 1, many)
            runs.append((found.prefix, many, peer.run_prefix))
    for number in range(bench.rounds + 1):
        for passes, many, run in runs:
            one = run(many if number else max(PICKS, many // 10 // PICKS * PICKS))
            if number:
                passes.useful = one.useful
                passes.seconds.append(one.seconds)
                passes.traffic.append(one.traffic)
                passes.wrong += one.wrong
        if number:
            bench.say(f"useful events, {link.name} link, round {number} of {bench.rounds}")


def _full(bench: Bench, ours: Ours) -> Full:
    """Nodes whose queue for the link is short: publishers are made to wait."""
    n, seen, ones = _published(bench, THIN) + 2 * WAITING, list[dict[str, Any]](), list[One]()
    ours.open(limit=WAITING)
    for _ in range(bench.rounds):
        one, sent = ours.timed(n, 100)
        ones.append(one)
        seen.append(sent)
    bench.say("a full link")
    return Full(
        published=n * bench.rounds,
        arrived=sum(one.useful for one in ones),
        wrong=sum(one.wrong for one in ones),
        publishing=tuple(each["sent"] - each["start"] for each in seen),
        longest=tuple(each["longest"] for each in seen),
        waited=tuple(each["waited"] for each in seen),
        seconds=tuple(one.seconds for one in ones),
    )


# ── comparing ──

_BYTES = (
    "our events also carry numbers and times, and are acknowledged, so that they can come again after a break; where "
    "the link is the limit, every byte counts"
)
_QUICK = "the link was not full: what it carries is more than our publisher and its filter, in Python, came up with"


def _why(link: Link, ours: Passes) -> str:
    used = middle(ours.rates) * middle(ours.each) * 8 / link.rate
    return _BYTES if used >= FULL else _QUICK


def _ratios(found: Measured) -> list[Ratio]:
    link, made = found.link.name, list[Ratio]()
    for name, values in found.trips.items():
        if name == OURS:
            continue
        why = (
            "an event is also timed, numbered, filtered and decoded, in Python at either end; the longer the delay of "
        )
        why += "a link, the less that counts"
        case = f"round trip, {link} link"
        mine = tuple(found.trips[OURS])
        made.append(Ratio(case=case, reference=name, ours=mine, theirs=tuple(values), kind="seconds", why=why))
    for percent in found.ours:
        peers = [peer.of(percent) for peer in found.peers]
        if not peers:
            continue
        best = max(peers, key=lambda peer: middle(peer.rates))
        made.append(
            Ratio(
                case=f"useful events, {percent}% wanted, {link} link",
                reference=f"{best.system}, all sent",
                ours=found.ours[percent].rates,
                theirs=best.rates,
                kind="per second",
                why=_why(found.link, found.ours[percent]),
            )
        )
    if found.prefix is not None:
        made.append(
            Ratio(
                case=f"useful events, 1% wanted, {link} link",
                reference=f"{TOPIC}, the rest left out by its sender",
                ours=found.ours[1].rates,
                theirs=found.prefix.rates,
                kind="per second",
                why=_why(found.link, found.ours[1])
                + "; a prefix is all that ZeroMQ can look at, and the publisher must have put there what somebody will "
                "want",
            )
        )
    return made


# ── showing ──


def _shown(link: Link) -> str:
    bits = f"{link.rate / 1e6:g} Mbit/s" if link.rate >= 1e6 else f"{link.rate / 1e3:g} kbit/s"
    return f"{link.name}: {bits}, {link.delay * 1000:g} ms"


def _section(bench: Bench, measured: list[Measured]) -> Section:
    thin = next(each for each in measured if each.link == THIN)
    best = max((peer.of(1) for peer in thin.peers), key=lambda peer: middle(peer.rates), default=None)
    times = "" if best is None else (
        f" On the thin link, with 1% wanted, {middle(thin.ours[1].rates) / middle(best.rates):,.0f} times as many "
        f"useful events arrive as by {best.system}."
    )  # fmt: skip
    return Section(
        key="links",
        title="Thin links",
        command=COMMAND,
        repetitions=f"{bench.rounds} {'round' if bench.rounds == 1 else 'rounds'} in turn, "
        "after one that is not counted; medians, lowest and highest round",
        contents=content(
            Text(
                "Two hosts, made of network namespaces of this machine, joined by a link of limited rate that delays "
                f"every packet ({measured[0].by}; rates and delays are each way). One node on each, joined by a "
                f"direct stream ({measured[0].linked}), unencrypted like the others."
            ),
            Heading("Round trips"),
            _trips_table(measured),
            Heading("Useful events"),
            Text(
                "A source publishes as fast as it can; one sink, behind the link, wants all events, or one in ten, or "
                "one in a hundred, by the value of a field. Our interest goes to the source, and what does not pass "
                "is not sent. ZeroMQ and Zenoh send everything and the receiver takes what it wants; their figures for "
                "10% and 1% are of the same runs. Where what is wanted is a prefix of the message, which the publisher "
                f"must have foreseen, ZeroMQ's sender leaves out the rest as well: that is “{TOPIC}”. Nothing may "
                f"be lost by any of them, and nothing was unless the table says so.{times}"
            ),
            _useful_table(measured),
            _plot(thin),
            _same_table(measured),
            Heading("A full link"),
            Text(
                f"Nodes that let at most {WAITING} events of a source wait for another node "
                f'(`Network(link=Queue(limit={WAITING}, policy="block"))`; as a rule it is 65,536), on the thin '
                "link, with a publisher that does not stop. An event waits until the other node has acknowledged it. "
                "What fits is taken at once; from then on `publish` returns as fast as the link carries events. What "
                "was lost the table says."
            ),
            *([] if thin.full is None else [_full_table(thin.full)]),
            Notes(
                (
                    '`publish` waits up to 30 seconds for its turn, then it raises `QueueFull`; `policy="fail"` does '
                    "so at once, and `drop_oldest` and `drop_newest` never make anybody wait, count what they drop, "
                    "and tell the subscriber.",
                    "The rate limit lets a burst of 4 kB, or of 2 ms, pass at once, so that a single event does not "
                    "show how long its own bytes take.",
                )
            ),
        ),
    )


def _trips_table(measured: list[Measured]) -> Table:
    made = list[Row]()
    for each in measured:
        tcp = each.trips["raw TCP"]
        for name, values in each.trips.items():
            made.append(
                Row(
                    (
                        _shown(each.link),
                        name,
                        middle(values),
                        between(values, time),
                        middle(values) - 2 * each.link.delay,
                        middle(values) / middle(tcp),
                    )
                )
            )
    return Table(
        name="links-trips",
        title="Round trip of one 64-byte event",
        columns=(
            Column("link", "text"),
            Column("system", "text"),
            Column("median", "time"),
            Column("rounds", "text"),
            Column("beyond the link's delay", "time"),
            Column("of raw TCP", "factor", digits=2),
        ),
        rows=tuple(made),
    )


def _all(each: Measured) -> list[Passes]:
    peers = [peer.of(percent) for peer in each.peers for percent in each.ours]
    return [*each.ours.values(), *peers, *([] if each.prefix is None else [each.prefix])]


def _useful_table(measured: list[Measured]) -> Table:
    made = [
        (
            _shown(each.link),
            passes.system,
            passes.wanted,
            passes.published,
            passes.useful,
            passes.wrong,
            middle(passes.rates),
            between(passes.rates, rate),
            middle(passes.each),
        )
        for each in measured
        for passes in _all(each)
    ]
    return Table(
        name="links-useful",
        title="Useful events over a link",
        columns=(
            Column("link", "text"),
            Column("system", "text"),
            Column("wanted", "percent", digits=0),
            Column("published"),
            Column("useful"),
            Column("lost, twice or out of order", "diff"),
            Column("useful a second", "rate"),
            Column("rounds", "text"),
            Column("bytes on the wire for each", "bytes"),
        ),
        rows=rows(made),
        note="Bytes at the interface, both ways, with all headers and acknowledgements.",
    )


def _same_table(measured: list[Measured]) -> Table:
    made = list[Row]()
    for each in measured:
        assert each.same is not None
        for passes in (each.same, *(peer.of(1) for peer in each.peers)):
            made.append(
                Row(
                    (
                        _shown(each.link),
                        passes.system,
                        passes.published,
                        passes.useful,
                        middle(passes.seconds),
                        between(passes.seconds, time),
                        middle(passes.traffic),
                    )
                )
            )
    return Table(
        name="links-same",
        title="The same events published, 1% wanted: how long until the last useful one is there",
        columns=(
            Column("link", "text"),
            Column("system", "text"),
            Column("published"),
            Column("useful"),
            Column("until the last one", "time"),
            Column("rounds", "text"),
            Column("on the wire", "bytes"),
        ),
        rows=tuple(made),
        note="From the first call to publish.",
    )


def _full_table(full: Full) -> Table:
    return Table(
        name="links-full",
        title="A publisher that does not stop, on the thin link",
        columns=(
            Column("what", "text"),
            Column("median", "text"),
            Column("rounds", "text"),
        ),
        rows=rows(
            (
                ("published, all rounds", f"{full.published:,}", ""),
                ("arrived", f"{full.arrived:,}", ""),
                ("lost, twice or out of order", f"{full.wrong:,}", ""),
                ("all calls to publish", time(middle(full.publishing)), between(full.publishing, time)),
                ("the longest call", time(middle(full.longest)), between(full.longest, time)),
                (
                    "calls of more than a millisecond",
                    f"{middle(full.waited):,.0f}",
                    between(full.waited, lambda value: f"{value:,.0f}"),
                ),
                ("until the last one arrived", time(middle(full.seconds)), between(full.seconds, time)),
            )
        ),
    )


def _plot(thin: Measured) -> Plot:
    lines = [_useful(OURS, list(thin.ours.values()))]
    for peer in thin.peers:
        lines.append(_useful(f"{peer.system}, all sent", [peer.of(percent) for percent in thin.ours]))
    if thin.prefix is not None:
        lines.append(_useful(TOPIC, [thin.prefix], "dots"))
    bare = thin.link.rate / 8 / RECORD.size
    lines.append(Series(name="bare 64 bytes, computed", points=((1.0, bare), (100.0, bare)), dashed=True))
    return Plot(
        name="links-useful",
        title=f"Useful events a second, {_shown(thin.link)}",
        x=Axis("events wanted, percent", log=True),
        y=Axis("useful events a second", log=True),
        series=tuple(lines),
        below=f"Filtered at the source, {rate(middle(thin.ours[1].rates))} useful events arrive with 1% wanted, and "
        f"{rate(middle(thin.ours[100].rates))} with all of them wanted.",
    )


def _useful(name: str, passes: Sequence[Passes], style: Style = "line") -> Series:
    ordered = sorted(passes, key=lambda each: each.wanted)
    return spread(name, [(float(each.wanted), each.rates) for each in ordered], style=style)
