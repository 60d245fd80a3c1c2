"""Other systems beside ours: the same 64-byte event, the same work, the same machine, in turns in the same run.

How long an event takes there and back, and what it takes to get events to one that wants all of them, or half, a
tenth, a hundredth, a thousandth of them: how many a second, how much processor time, how many bytes. Ours takes the
interest to the source; the others' receivers look at every event, as their users' do.

Whatever is not installed is not run. Nothing may be lost: a system that loses something has no figure.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from typing import TypeVar

from headwater_studies.fleet import hosts
from headwater_studies.fleet.peers import SYSTEMS, System
from headwater_studies.fleet.server import program, said
from headwater_studies.fleet.worker import WIDE, Gone
from headwater_studies.harness.bench import Bench, Found, versions
from headwater_studies.harness.pair import NODE, Lossy, Pair, started
from headwater_studies.peers.page import OURS, Case, Figure, Flow, Idle, Trip, Way, flow_page, trip_page

WANTED = (1_000, 500, 100, 10, 1)  # of a thousand events
SECONDS, ENOUGH = 0.6, 0.15  # a run lasts about so long; from what on its length can be told by a shorter one
MOST = 12_000_000  # events in a run
WAYS = (
    Way("ours", "ours", OURS, "direct"),
    Way("zmq", "zmq", "ZeroMQ", "direct"),
    Way("zenoh", "zenoh", "Zenoh", "direct"),
    Way("nats", "nats", "NATS", "server"),
    Way("redis", "redis", "Redis", "server"),
    Way("mqtt", "mqtt", "Mosquitto", "server"),
    Way("omni", "omni", "omniEvents", "server"),
    Way("ours of 100", "many", f"{OURS}, batches of 100", "direct", packed=100),
    Way("ours of 1200", "many", f"{OURS}, batches of 1,200", "direct", packed=1_200),
    Way("ours of 6000", "many", f"{OURS}, batches of 6,000", "direct", packed=6_000),
    Way("zmq of 100", "zmq", "ZeroMQ, 100 packed by hand", "direct", packed=100),
    Way("zenoh of 100", "zenoh", "Zenoh, 100 packed by hand", "direct", packed=100),
    Way("zmq of 1200", "zmq", "ZeroMQ, 1,200 packed by hand", "direct", packed=1_200),
    Way("zenoh of 1200", "zenoh", "Zenoh, 1,200 packed by hand", "direct", packed=1_200),
    Way("redis of 100", "redis", "Redis, 100 in a pipeline", "server", pipeline=100),
)
TRIPS = ("tcp", "zmq", "zenoh", "nats", "redis", "mqtt", "omni")

Measured = TypeVar("Measured")


def _flow(pair: Pair, way: Way, n: int, wanted: int) -> tuple[float, Flow]:
    """Events that take a way, of which so many of a thousand are wanted: how long it took, and what."""
    useful = n * wanted // WIDE
    everything = wanted == WIDE
    packed = "packed" if way.packed > 1 else ""
    mode = (packed or "count") if everything else f"{packed}-below:{wanted}".strip("-")
    more = {"packed": way.packed} | ({"pipeline": way.pipeline} if way.pipeline > 1 else {})
    come = useful if pair.ours else n
    cpu, wire = pair.spent(), pair.crossed()
    run = pair.run(n, "wide", mode, come, **more)
    if pair.ours:
        pair.settle(come)  # what the receiver still has to say of them is part of the run
    after, crossed = pair.spent(), pair.crossed() - wire
    if not everything and run.found["useful"] != useful:
        raise Lossy(f"lost {useful - run.found['useful']:,} of {useful:,} wanted")
    return run.seconds, Flow(
        events=n,
        rate=useful / run.seconds,
        cpu=None if after is None or cpu is None else (sum(after) - sum(cpu)) / useful,
        wire=crossed / useful if wire else None,
    )


@dataclass
class Contest:
    """The systems that are here, each in its pair of processes, and why others are not."""

    bench: Bench
    systems: Mapping[str, System]
    inside: Sequence[str] = ()  # what goes before their commands
    pairs: dict[str, Pair] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)

    def open(self, ours: Sequence[str], others: Sequence[str]) -> None:
        """Start pairs of ours by these names, and of other systems that are installed."""
        self.bench.say(f"starting {OURS}, {', '.join(self.systems[key].name for key in others)}")
        missing = {key: self.systems[key].missing() for key in others}
        self.not_run |= {self.systems[key].name: why for key, why in missing.items() if why}
        started = {key: self._started(OURS, NODE) for key in ours}
        for key in others:
            if not missing[key]:
                system = self.systems[key]
                started[key] = self._started(system.name, system.module, str(self.bench.folder), polls=system.polls)
        for key, pair in started.items():
            self.pairs[key] = pair
            self.attempt(key, pair.join)

    def _started(self, name: str, module: str, *arguments: str, polls: bool = False) -> Pair:
        ours = module == NODE
        return started(self.bench.start, name, module, *arguments, inside=self.inside, ours=ours, polls=polls)

    def attempt(self, key: str, run: Callable[[], Measured]) -> Measured | str:
        """What a run of a pair gives, or why it gives nothing: then the system takes no further part."""
        pair = self.pairs[key]
        if pair.ours:
            return run()
        try:
            with pair.turn():
                return run()
        except Lossy as error:
            reason = str(error)
        except Gone as error:
            reason = f"failed: {error}"
        self.not_run[pair.name] = reason
        self.pairs.pop(key).close()
        return reason

    def close(self) -> None:
        for pair in self.pairs.values():
            pair.close()


@contextmanager
def _contest(bench: Bench, systems: Mapping[str, System]) -> Iterator[Contest]:
    """Where it can be had, on a host of its own: whatever else uses loopback is not counted there."""
    with nullcontext() if hosts.missing() else hosts.alone() as host:
        contest = Contest(bench, systems, host.inside if host else ())
        try:
            yield contest
        finally:
            contest.close()


def peers(bench: Bench, *, systems: Mapping[str, System] = SYSTEMS) -> Found:
    """Round trips, then events in one direction, by the same processes."""
    others = [key for key in TRIPS if key in systems]
    with _contest(bench, systems) as contest:
        contest.open(["ours", "many"], others)
        here = [key for key in contest.pairs if key != "many"]
        found = _trips(contest) + _flows(contest)
    return found + Found(versions=_versions(here), not_run=contest.not_run)


# ── there and back ──


def _trips(contest: Contest) -> Found:
    """Round trips, one after the other: the answer is sent by whoever gets the event."""
    bench, found = contest.bench, dict[str, Figure[Trip]]()
    n = bench.size(5_000, 200)
    ours = contest.pairs["ours"]
    ours.prepare_trips()
    taking = {key: pair for key, pair in contest.pairs.items() if key != "many"}
    for pair in taking.values():
        pair.pin()
    for number in range(bench.rounds + 1):
        for key, pair in taking.items():
            if key not in contest.pairs:
                continue
            one = contest.attempt(key, lambda it=pair, many=n if number else n // 5: _trip(it, many))  # type: ignore[misc]
            if isinstance(one, str):
                found[key] = one
            elif number:
                _add(found.setdefault(key, []), one)
        if number:
            bench.say(f"round trips, round {number} of {bench.rounds}")
    for key in taking:
        if key in contest.pairs:
            taking[key].free()
    ours.far.call("unsubscribe")
    return trip_page([(key, taking[key].name, figures) for key, figures in found.items()], n, bench.rounds)


def _trip(pair: Pair, n: int) -> Trip:
    found = pair.trips(n)
    return Trip(float(found["p50"]), float(found["p99"]))


def _add(figures: list[Measured] | str, one: Measured) -> None:
    assert not isinstance(figures, str)
    figures.append(one)


# ── all of them, or few ──


def _flows(contest: Contest) -> Found:
    """Events in one direction to one receiver that wants all or some of them."""
    bench, cases = contest.bench, list[Case]()
    if "tcp" in contest.pairs:
        contest.pairs.pop("tcp").close()  # it knows no events
    _once_each(contest, bench.size(30_000, 1_000))
    idle = Idle(_idle(bench, contest.pairs["ours"]), alone=bool(contest.inside))
    for wanted in WANTED:
        for key, mode in (("ours", "count"), ("many", "batch")):
            far = contest.pairs[key].far
            far.call("unsubscribe")
            far.call("subscribe", wheres=[[None if wanted == WIDE else f"pick < {wanted}"]], mode=mode)
        cases.append(Case(wanted / WIDE, _rounds(contest, wanted)))
        bench.say(f"{cases[-1].title} wanted: {bench.rounds} rounds of {len(cases[-1].figures)} ways")
    return flow_page(WAYS, cases, idle, bench.rounds)


def _once_each(contest: Contest, n: int) -> None:
    """Numbered events arrive once each, at every system, before anything is measured."""

    def check(pair: Pair) -> None:
        run = pair.run(n, "fresh", "decode", packed=1)
        if pair.ours:
            pair.settle(n)
        if run.found["total"] != n * (n - 1) / 2:
            raise Lossy(f"of {n:,} events not each arrived once")

    for key, pair in list(contest.pairs.items()):
        if pair.ours:
            pair.far.call("subscribe", wheres=[[None]], mode="decode")
        contest.attempt(key, lambda it=pair: check(it))  # type: ignore[misc]


def _idle(bench: Bench, pair: Pair) -> float:
    """Bytes a second over loopback while nobody sends an event."""
    start, before = time.perf_counter(), pair.crossed()
    time.sleep(0.1 if bench.quick else 1.0)
    return (pair.crossed() - before) / (time.perf_counter() - start)


def _rounds(contest: Contest, wanted: int) -> dict[str, Figure[Flow]]:
    """Every way's figures, round by round in turn; in a round before the first it is seen how long runs have to be."""
    found: dict[str, Figure[Flow]] = {}
    sizes: dict[str, int] = {}
    for number in range(contest.bench.rounds + 1):
        for way in WAYS:
            pair = contest.pairs.get(way.system)
            if pair is None:
                continue
            one: Flow | int | str
            if number == 0:
                one = contest.attempt(way.system, lambda it=pair, by=way: _size(contest.bench, it, by, wanted))  # type: ignore[misc]
            else:
                one = contest.attempt(way.system, lambda it=pair, by=way: _flow(it, by, sizes[by.key], wanted)[1])  # type: ignore[misc]
            match one:
                case int():
                    sizes[way.key] = one
                case str():
                    found[way.key] = one
                case Flow():
                    _add(found.setdefault(way.key, []), one)
    return found


def _size(bench: Bench, pair: Pair, way: Way, wanted: int) -> int:
    """How many events make a run of the right length; every `pick` occurs as often."""
    step = math.lcm(way.packed, WIDE)
    n = step
    while True:
        seconds = min(_flow(pair, way, n, wanted)[0] for _ in range(1 if bench.quick else 2))
        if bench.quick:
            return n
        if seconds > ENOUGH or n > MOST:
            break
        n *= 6
    return min(MOST, max(1, round(n * SECONDS / seconds / step)) * step)


# ── what was run ──

_PACKAGES = {
    "zmq": ("pyzmq",),
    "zenoh": ("eclipse-zenoh",),
    "nats": ("nats-py", "uvloop"),
    "redis": ("redis", "hiredis"),
    "mqtt": ("paho-mqtt",),
}


def _versions(here: Sequence[str]) -> dict[str, str]:
    """Of servers and clients; only what was run."""
    found = versions(*(package for key in here for package in _PACKAGES.get(key, ())))
    for key in here:
        match key:
            case "zmq":
                found["libzmq"] = str(import_module("zmq").zmq_version())
            case "nats":
                server = import_module("headwater_studies.fleet.nats").server()
                found["nats-server"] = said(str(server), "--version").rpartition(" ")[2]
            case "redis":
                words = said(program("redis-server") or "", "--version").split()
                found["redis-server"] = next((word[2:] for word in words if word.startswith("v=")), "unknown")
            case "mqtt":
                first = said(program("mosquitto") or "", "-h").partition("\n")[0]
                found["mosquitto"] = first.rpartition(" ")[2]
            case "omni":
                first = said(program("omniEvents") or "", "-V").partition("\n")[0]
                found["omniEvents"] = first.rpartition(" ")[2]
                found["g++"] = said("g++", "-dumpfullversion")
    return found


__all__ = ["WANTED", "WAYS", "peers"]
