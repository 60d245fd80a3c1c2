"""`make bench-federation`: what it costs between processes, beside raw TCP, ZeroMQ, Zenoh and NATS in the same run.

`python benchmarks/federation.py --part NAME` runs some parts only (again for more): roundtrip routed single batches
filtered many consumers spread interests. `--quick` is a short run that shows whether everything works; its figures mean
little.

All on loopback. Sender and receiver are processes of their own; ours and the references take turns, round by round, and
the ratio is the median of those of the rounds. An event is eight f64, 64 bytes. Nobody loses anything: what arrives is
counted, and a run in which something is missing or comes twice is an error. Our receivers get typed events, the peers'
receivers get bytes, unless a row says that they decode them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from federation_interests import interests
from headwater_studies.fleet.peers import SYSTEMS, installed
from headwater_studies.fleet.worker import PICKS, WANTED, Gone, Worker, workers
from headwater_studies.harness.bench import Bench, aloud, short
from headwater_studies.harness.benchmark import Report
from headwater_studies.harness.pair import NODE, Lossy, Pair, Run, end, nodes, started

EVPATH = 43_000.0  # events/s it evaluates against 100 filters of 1% on ten nodes; measured elsewhere, not run here
NAMES = {key: system.name for key, system in SYSTEMS.items()}
SIZES = (1_200, 6_000)  # rows of our batches: what a batch costs whatever its size shows in the difference
STEP = 12_000  # of all numbers of events


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Bench):
    """What the parts share: a report, which peers there are, and their processes."""

    report: Report
    missing: Mapping[str, str] = field(default_factory=installed)
    pairs: dict[str, Pair] = field(default_factory=dict)
    spent: dict[tuple[str, str, int], str] = field(default_factory=dict)  # processor time of a kind of run, at last

    def count(self, n: int) -> int:
        """How many events: a multiple of STEP, so that batches, hundredths and twelfths come out even."""
        return max(STEP, self.size(n, n // 50) // STEP * STEP)

    def peers(self, *names: str) -> dict[str, Pair]:
        """The references that are there; those that are not are said to be not run."""
        return {name: self.peer(name) for name in names if not self.missing[name]}

    def peer(self, name: str) -> Pair:
        if name not in self.pairs:
            self.say(f"starting {NAMES[name]}")
            self.pairs[name] = started(self.start, NAMES[name], SYSTEMS[name].module).join()
        return self.pairs[name]

    def ours(self, *, direct: bool = True) -> Pair:
        """Two nodes, a source at the first."""
        return nodes(self.start, direct=direct)

    def absent(self, *names: str) -> str:
        """What to say of peers that are not here."""
        return "; ".join(f"{NAMES[name]} not run: {self.missing[name]}" for name in names if self.missing[name])

    def one_way(self, pair: Pair, n: int, how: str, mode: str, packed: int = 1, come: int | None = None) -> Run:
        """Events in one direction, and what processors did for each of them."""
        before = pair.spent() or [0.0, 0.0]
        run = pair.run(n, how, mode, come, packed=packed)
        used = [now - then for now, then in zip(pair.spent() or before, before, strict=True)]
        self.spent[pair.name, how, packed] = " + ".join(f"{each / n * 1e9:.0f}" for each in used)
        if mode == "decode" and run.found["total"] != n * (n - 1) / 2:
            raise Lossy(f"{pair.name}: {n:,} events arrived, but not each of them once")
        return run

    def cpu(self, pair: Pair, how: str, packed: int = 1) -> str:
        """Processor time per event, which other programs on the machine move less than anything else."""
        return f"{pair.name} uses {self.spent[pair.name, how, packed]} ns of processors, sender + receiver"


def _times(ours: list[float], others: list[float]) -> float:
    """Ours is so many times theirs: the median over the rounds."""
    return statistics.median(mine / theirs for mine, theirs in zip(ours, others, strict=True))


# ── how long ──


def roundtrip(bench: Comparison) -> None:
    """There and back between two processes, each on its own core: the answer is sent by whoever gets the event."""
    pair = bench.ours()
    pair.prepare_trips()
    peers = bench.peers("tcp", "zmq", "zenoh", "nats")
    found = _trips(bench, "round trip", {"ours": pair, **peers})
    ours = statistics.median(found["ours"])
    for name, reach, most in (
        ("tcp", "at most 1.5× raw TCP", 1.5),
        ("zmq", "below ZeroMQ", 1.0),
        ("zenoh", "below Zenoh", 1.0),
        ("nats", "below NATS", 1.0),
    ):
        if name in found:
            times = _times(found["ours"], found[name])
            bench.report.add(
                f"round trip of a 64-byte event, direct; {NAMES[name]}",
                ours,
                statistics.median(found[name]),
                ratio=1 / times,
                reach=reach,
                ok=times <= most,
                note=f"ours is {times:.2f}× {NAMES[name]}",
            )
        else:
            bench.report.add(f"round trip of a 64-byte event, direct; {NAMES[name]}", ours, note=bench.absent(name))
    pair.close()


def _trips(bench: Comparison, what: str, pairs: dict[str, Pair]) -> dict[str, list[float]]:
    n = bench.size(3_000, 200)
    for pair in pairs.values():
        pair.pin()
    try:
        return bench.turns(what, {name: lambda it=pair: _trip(it, n) for name, pair in pairs.items()})  # type: ignore[misc]
    finally:
        for pair in pairs.values():
            pair.free()


def _trip(pair: Pair, n: int) -> float:
    """The median of so many round trips."""
    return float(pair.trips(n)["p50"])


def routed(bench: Comparison) -> None:
    """The same where the nodes have no direct stream, and everything goes over Zenoh."""
    pair = bench.ours(direct=False)
    pair.prepare_trips("zenoh")
    found = _trips(bench, "round trip by Zenoh", {"ours": pair, "zenoh": bench.peer("zenoh")})
    times = _times(found["ours"], found["zenoh"])
    bench.report.add(
        "round trip where only Zenoh connects; bare Zenoh",
        statistics.median(found["ours"]),
        statistics.median(found["zenoh"]),
        ratio=1 / times,
        reach="at most 1.2× bare Zenoh",
        ok=times <= 1.2,
        note=f"ours is {times:.2f}× bare Zenoh, both in callbacks",
    )
    pair.close()


# ── how many ──


def _flow(bench: Comparison, pair: Pair, n: int, how: str, mode: str, packed: int = 1) -> Callable[[], float]:
    return lambda: n / bench.one_way(pair, n, how, mode, packed).seconds


def single(bench: Comparison) -> None:
    """One publish and one handler call for each event."""
    pair = bench.ours()
    n = bench.count(300_000)
    for how, mode, case in (
        ("same", "count", "publish → handler, one by one"),
        ("fresh", "decode", "the same, each event made anew, read at the sink"),
    ):
        pair.far.call("unsubscribe")
        pair.far.call("subscribe", wheres=[[None]], mode=mode)
        runs = {"ours": _flow(bench, pair, n, how, mode)}
        for name, peer in bench.peers("zmq", "zenoh", "nats").items():
            runs[name] = _flow(bench, peer, n if name != "nats" else n // 4, how, mode)
        found = bench.turns(case, runs)
        judged = how == "same"
        note = bench.cpu(pair, how) + ("" if judged else "; peers pack and unpack eight f64")
        _against(bench, case, found.pop("ours"), found, least="1.0" if judged else "", note=note)
    pair.close()


def _against(
    bench: Comparison,
    case: str,
    ours: list[float],
    peers: Mapping[str, list[float]],
    *,
    least: str = "",
    beside: str = "the best peer",
    unit: str = "M/s",
    note: str = "",
) -> None:
    """A row against the best of the peers, saying what the others did; at least so many times that is to be reached."""
    scale = {"M/s": 1e6, "k/s": 1e3}[unit]
    mine, medians = statistics.median(ours), {name: statistics.median(values) for name, values in peers.items()}
    absent = bench.absent("zmq", "zenoh", "nats")
    if not medians:
        bench.report.add(case, mine / scale, unit=unit, note=absent or "no peer was run")
        return
    best = max(medians, key=lambda name: medians[name])
    times = _times(ours, peers[best])
    said = ", ".join(f"{NAMES[name]} {value / scale:.3g}" for name, value in medians.items())
    bench.report.add(
        f"{case}; {NAMES[best]}",
        mine / scale,
        medians[best] / scale,
        ratio=times,
        reach=f"at least {least}× {beside}" if least else "",
        ok=times >= float(least) if least else None,
        unit=unit,
        note="; ".join(each for each in (said, note, absent) if each),
    )


def batches(bench: Comparison) -> None:
    """RecordBatches in, RecordBatches out, beside messages into which a hundred events were packed by hand."""
    pair = bench.ours()
    pair.far.call("subscribe", wheres=[[None]], mode="batch")
    n = bench.count(6_000_000)
    runs = {f"ours of {rows}": _flow(bench, pair, n, "many", "batch", rows) for rows in SIZES}
    runs["ours of 100"] = _flow(bench, pair, n // 10, "many", "batch", 100)
    for name, peer in bench.peers("zmq", "zenoh").items():
        runs[name] = _flow(bench, peer, n, "cycle", "packed", 100)
    found = bench.turns("batches", runs)
    for rows in (*SIZES, 100):
        ours, case = found[f"ours of {rows}"], f"publish_many of {rows:,} rows → batch handler; 100 by hand"
        for name in ("zmq", "zenoh"):
            if name not in found:
                bench.report.add(case, statistics.median(ours) / 1e6, unit="M/s", note=bench.absent(name))
                continue
            _against(
                bench,
                case,
                ours,
                {name: found[name]},
                least="1.0" if rows in SIZES else "",
                beside=NAMES[name],
                note=f"{bench.cpu(pair, 'many', rows)}, {bench.cpu(bench.peer(name), 'cycle', 100)}"
                + ("; without its shared memory" if name == "zenoh" else ""),
            )
    pair.close()


# ── one percent ──


def filtered(bench: Comparison) -> None:
    """One subscription that wants one event in a hundred: ours filters at the source, the peers at the sink."""
    pair = bench.ours()
    pair.far.call("subscribe", wheres=[[f"pick == {WANTED}"]])
    wire: dict[str, list[float]] = {}
    seen: dict[str, list[float]] = {}

    def run(name: str, it: Pair, n: int, how: str, mode: str, packed: int) -> Callable[[], float]:
        def once() -> float:
            before = pair.near.call("counters")
            wanted = n // PICKS
            run = bench.one_way(it, n, how, mode, packed, wanted if it is pair else None)
            if it is pair:
                pair.settle(wanted)  # acknowledgements included
            elif run.found["useful"] != wanted:
                raise Lossy(f"{it.name}: {run.found['useful']:,} of {wanted:,} useful events")
            after = pair.near.call("counters")
            seen.setdefault(name, []).append((after["loopback"] - before["loopback"]) / wanted)
            wire.setdefault(name, []).append((after["bytes"] - before["bytes"]) / wanted)
            return wanted / run.seconds

        return once

    many, one = bench.count(6_000_000), bench.count(600_000)
    runs = {f"ours of {rows}": run(f"ours of {rows}", pair, many, "many", "count", rows) for rows in SIZES}
    runs["ours one by one"] = run("ours one by one", pair, one, "cycle", "count", 1)
    peers = bench.peers("zmq", "zenoh", "nats")
    for name, peer in peers.items():
        runs[name] = run(name, peer, one // 2 if name != "nats" else one // 8, "cycle", "filter", 1)
    for name in ("zmq", "zenoh"):
        if name in peers:
            runs[f"{name} packed"] = run(f"{name} packed", peers[name], many // 2, "cycle", "packed-filter", 100)
    found = bench.turns("1% wanted", runs)
    report = bench.report
    alone = {name: found[name] for name in peers}
    packed = {name: found[f"{name} packed"] for name in ("zmq", "zenoh") if f"{name} packed" in found}
    kinds = {f"ours of {rows}": f"publish_many of {rows:,}" for rows in SIZES}
    for key, kind in kinds.items():
        ours = statistics.median(found[key])
        report.add(
            f"1% wanted, {kind}: useful events/s",
            ours / 1e3,
            reach="at least 50 k/s",
            ok=ours >= 50e3,
            unit="k/s",
            note=f"{ours * PICKS / 1e6:.2f} M events/s evaluated; {bench.cpu(pair, 'many', int(key.split()[-1]))}",
        )
        beside_peers = "the same beside peers that"
        _against(bench, f"{beside_peers} filter at the sink", found[key], alone, least="7", unit="k/s")
        _against(bench, f"{beside_peers} pack 100 by hand", found[key], packed, unit="k/s")
    single = "1% wanted, one publish per event: useful events/s"
    _against(bench, single, found["ours one by one"], alone, unit="k/s")
    for key, case in (*kinds.items(), ("ours one by one", "one publish per event")):
        counted, whole = statistics.median(wire[key]), statistics.median(seen[key])
        reference = min((statistics.median(seen[name]) for name in peers), default=None)
        said = ", ".join(f"{NAMES[name]} {statistics.median(seen[name]):,.0f}" for name in peers)
        report.add(
            f"bytes on the wire per useful event, {case}",
            counted,
            reference,
            ratio=None if reference is None else reference / counted,
            reach="at most 90",
            ok=counted <= 90,
            unit="B",
            note=f"by our links; lo, all traffic and headers: ours {whole:,.0f}, {said}",
        )
    pair.close()


# ── many nodes ──


@dataclass
class Fleet:
    """A source's node in one process, and other nodes in two more."""

    near: Worker
    fars: list[Worker]
    nodes: list[int]  # in each of these

    def subscribe(self, wheres: list[list[str]]) -> None:
        at = 0
        for far, count in zip(self.fars, self.nodes, strict=True):
            far.ask("subscribe", wheres=wheres[at : at + count])
            at += count
        for far in self.fars:
            far.answer()

    def run(self, n: int, how: str, packed: int, each: int) -> float:
        """Seconds until every node has its `each` events."""
        for far in self.fars:
            far.call("expect", n=each)
            far.ask("wait")
        start = self.near.call("send", n=n, how=how, packed=packed)["start"]
        found = [far.answer() for far in self.fars]
        self.near.call("flush")
        got = sum(far.call("got")["got"] for far in self.fars)
        if got != each * sum(self.nodes):
            raise Lossy(f"{got:,} of {each * sum(self.nodes):,} events arrived at {sum(self.nodes)} nodes")
        return float(max(each["end"] for each in found)) - start

    def close(self) -> None:
        end((*self.fars, self.near))


def _fleet(bench: Comparison, count: int) -> Fleet:
    bench.say(f"starting {count + 1} nodes")
    nodes = [each for each in (count - count // 2, count // 2) if each]
    near = bench.start(NODE)
    at = near.call("open", names=["near"])["endpoint"]
    near.call("source")
    fars = [bench.start(NODE) for _ in nodes]
    for index, (far, each) in enumerate(zip(fars, nodes, strict=True)):
        far.ask("open", names=[f"far{index}x{number}" for number in range(each)], connect=at)
    for far in fars:
        far.answer()
    return Fleet(near, fars, nodes)


def many(bench: Comparison) -> None:
    """A hundred subscriptions of one percent each, ten on each of ten nodes: how fast events are evaluated."""
    fleet = _fleet(bench, 10)
    fleet.subscribe([[f"pick == {node * 10 + number}" for number in range(10)] for node in range(10)])
    batch, one = bench.count(1_200_000), bench.count(240_000)
    runs: dict[str, Callable[[], float]] = {
        f"publish_many of {rows:,}": lambda it=rows: batch / fleet.run(batch, "many", it, batch // 10)  # type: ignore[misc]
        for rows in SIZES
    }
    runs["one publish per event"] = lambda: one / fleet.run(one, "cycle", 1, one // 10)
    found = bench.turns("100 subscriptions on 10 nodes", runs)
    for name in runs:
        rate = statistics.median(found[name])
        bench.report.add(
            f"100 subscriptions of 1% on 10 nodes, {name}",
            rate / 1e3,
            EVPATH / 1e3,
            reach="at least 215 k/s",
            ok=rate >= 5 * EVPATH,
            unit="k/s",
            note="EVPath's 43 k/s is from elsewhere; nodes in 2 processes, every event is wanted by one of them",
        )
    fleet.close()


def consumers(bench: Comparison) -> None:
    """Until the last of 5 to 100 consumers on a remote node has the event: what one more of them adds."""
    pair, tcp = bench.ours(), bench.peer("tcp")
    counts = (5, 20, 100) if bench.quick else (5, 10, 20, 40, 60, 80, 100)
    n = 50 if bench.quick else 400
    pair.far.call("consumers", count=1, where=None)
    pair.near.call("prepare_trips")
    for one in (pair, tcp):
        one.pin()
    for where, case in ((None, "everything"), ("number > -1", "an equal interest each")):
        late: dict[int, list[float]] = {count: [] for count in counts}
        trips = []
        for number in range(1 if bench.quick else 3):
            for count in counts if number % 2 == 0 else reversed(counts):
                pair.far.call("consumers", count=count, where=where)
                pair.near.call("spread", n=n // 4)
                late[count].append(pair.near.call("spread", n=n)["p50"])
            trips.append(_trip(tcp, bench.size(2_000, 200)))
            bench.say(f"consumers of {case}: " + ", ".join(f"{count}: {short(late[count][-1])}" for count in counts))
        slope, start = statistics.linear_regression(counts, [statistics.median(late[count]) for count in counts])
        trip = statistics.median(trips)
        bench.report.add(
            f"one more consumer of {case} on a remote node",
            slope,
            trip,
            ratio=slope / trip,
            reach="at most 0.05 TCP trips",
            ok=slope <= 0.05 * trip,
            note=f"ratio: of raw TCP's round trip (TAO: 0.09); {start * 1e6:.0f} µs for none",
        )
    for one in (pair, tcp):
        one.free()
    pair.close()


def spread(bench: Comparison) -> None:
    """One node to 1, 2, 4 and 12, each wanting another twelfth: what is sent is what is wanted."""
    n = bench.count(240_000)
    sent: dict[int, tuple[float, float, float]] = {}
    for count in (1, 2, 4, 12):
        fleet = _fleet(bench, count)
        fleet.subscribe([[f"share == {node}"] for node in range(count)])
        fleet.run(STEP, "many", SIZES[0], STEP // 12)
        before = fleet.near.call("counters")
        seconds = statistics.median(fleet.run(n, "many", SIZES[0], n // 12) for _ in range(bench.rounds)) / n
        after = fleet.near.call("counters")
        per = n * bench.rounds
        sent[count] = (after["events"] - before["events"]) / per, (after["bytes"] - before["bytes"]) / per, seconds
        bench.say(f"{count} nodes: {sent[count][0]:.4f} events and {sent[count][1]:.2f} bytes sent per event published")
        fleet.close()
    for count, (events, data, seconds) in sent.items():
        bench.report.add(
            f"to {count} nodes, a twelfth each: events sent per published",
            events,
            float(count),
            ratio=events / count,
            reach=f"{count}/12: what is wanted",
            ok=abs(events - count / 12) < 1e-6,
            unit="",
            note=f"reference: all to all; {data:.1f} bytes and {seconds * 1e9:.0f} ns per event published",
        )
    slope = statistics.linear_regression([e for e, _, _ in sent.values()], [b for _, b, _ in sent.values()]).slope
    worst = max(abs(data / events / slope - 1) for events, data, _ in sent.values())
    bench.report.add(
        "bytes sent per event sent, 1 to 12 nodes",
        slope,
        reach="linear within 25%",
        ok=worst <= 0.25,
        unit="B",
        note=f"at most {worst:.1%} off the line",
    )


PARTS: dict[str, Callable[[Comparison], None]] = {
    "roundtrip": roundtrip,
    "routed": routed,
    "single": single,
    "batches": batches,
    "filtered": filtered,
    "many": many,
    "consumers": consumers,
    "spread": spread,
    "interests": interests,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="what events between processes cost, beside other systems")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="this part only; several times for more")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    parser.add_argument("--rounds", type=int, help="rounds in which everybody takes a turn")
    options = parser.parse_args()
    chosen = options.part or list(PARTS)
    name = "federation" + ("-quick" if options.quick else "") + "".join(f"-{part}" for part in options.part or ())
    began = time.perf_counter()
    failed = []
    report = Report(name, "Events between processes, all on loopback")
    with suppress(KeyboardInterrupt), tempfile.TemporaryDirectory() as folder, workers() as start:
        bench = Comparison(
            start=start,
            say=aloud,
            folder=Path(folder),
            quick=options.quick,
            rounds=options.rounds or (1 if options.quick else 3),
            report=report,
        )
        for peer, why in bench.missing.items():
            if why:
                bench.say(f"{NAMES[peer]} not run: {why}")
        for part in chosen:
            try:
                PARTS[part](bench)
            except Gone as error:
                failed.append(part)
                report.add(part, 0.0, reach="", ok=False, unit="", note=f"failed: {error}")
        report.finish()
        print(f"{time.perf_counter() - began:.0f} s")
        sys.exit(1 if failed else 0)
    sys.exit(130)


if __name__ == "__main__":
    main()
