"""What is seen of a move: the pause of a sink that moves to and fro between two nodes under 10,000 events a second.

python benchmarks/moving.py [--quick] [sink source groups questions mqtt web]

A lab logs what it publishes, and a durable sink moves between two other nodes, over loopback; each of the three is a
process of its own. The pause is the time from the call of `move()`, when the handler had its last event, to the first
event that it has at the other node; the token's way through a pipe is part of it. It is measured in round trips: the
time of a question, of the same size, to the node that the sink was at, taken by turns with the moves, while events flow
as they do then. Once with a lab that keeps its last events in memory as well
(`Config(history=…)`), and once with one that reads all that the sink missed from the files of its log.

What a source's move costs is measured too (`moving_sources.py`); what a group of four sinks handles, beside a queue
group of NATS (`moving_groups.py`); what a question and its answer take (`moving_questions.py`), and what bridges carry
(`bridges.py`):
messages of MQTT into a handler, and a hundred WebSockets with a filter each.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import statistics
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import bridges
import moving_groups
import moving_questions
import moving_sources
from headwater import Config, Node, Reliable
from headwater.errors import FederationError
from headwater.federation.wire.move_requests import ClaimMove
from headwater_studies.harness.benchmark import Report

GUARD = 60.0  # seconds, against hanging
RATE = 10_000  # events a second
MOVES = 40
REACH = 3.0  # round trips
HISTORY = 8192  # events that the lab keeps in memory beside its log: almost a second
CHANNEL, TYPE = "measured.mail", "n: i64"


def _publish(folder: str, said: Any, history: int) -> None:
    """The lab: at the rate, in bursts of a millisecond, until it is told to stop."""
    with Node("lab", listen="tcp/127.0.0.1:0", log=Path(folder) / "log", config=Config(history=history)) as lab:
        source = lab.channel(CHANNEL, TYPE).source("server")
        said.send(lab.endpoints[0])
        said.recv()
        begun, published = monotonic(), 0
        while not said.poll(0):
            while published < (monotonic() - begun) * RATE:
                source.publish(n=published)
                published += 1
            sleep(0.001)
        said.recv()
        said.send((published, published / (monotonic() - begun)))
        said.recv()


def _round_trip(asker: Any, other: str) -> float:
    """A question that is refused, to the node that the sink was at."""
    engine = asker._engine
    peer = next(each for each in engine.everyone() if each.name == other)
    start = perf_counter()
    try:
        engine.dialogue.ask(peer, ClaimMove(bytes(32), bytes(16)), GUARD)
    except FederationError:
        return perf_counter() - start
    raise AssertionError("expected a refusal, found an answer")


class _Reader:
    """The handler: it sees that nothing is missing, and when its first event came."""

    def __init__(self, next: int) -> None:
        self.next, self.wrong = next, 0
        self.first = threading.Event()
        self.at = 0.0

    def __call__(self, event: Any) -> None:
        self.wrong += event.n != self.next
        self.next = event.n + 1
        if not self.first.is_set():
            self.at = perf_counter()
            self.first.set()


def _place(name: str, other: str, folder: str, endpoint: str, orders: Any, beside: Any) -> None:
    """A node at which the sink may be; tokens go from one place to the other by `beside`."""
    logging.getLogger("headwater.federation").setLevel(logging.ERROR)  # round trips are refused, as they should be
    with Node(name, connect=endpoint, listen="tcp/127.0.0.1:0", state=Path(folder) / name) as node:
        assert node.until(lambda: node.has_channel(CHANNEL) and other in node.peers, GUARD)
        sink, reader = None, _Reader(0)
        orders.send("ready")
        while True:
            order = orders.recv()
            if order == "subscribe":
                sink = node.channel(CHANNEL).subscribe(reader, name="mail", delivery=Reliable(durable=True))
                orders.send(node.ready(GUARD))
            elif order == "move":
                start = perf_counter()
                token = sink.move()
                beside.send((start, token, reader.next))
                orders.send(reader.wrong)
            elif order == "trip":
                orders.send(_round_trip(node, other))
            elif order == "resume":
                start, token, next = beside.recv()
                reader = _Reader(next)
                sink = node.resume(token, reader, timeout=GUARD)
                assert reader.first.wait(GUARD)
                orders.send(reader.at - start)
            elif isinstance(order, int):  # so many were published
                assert node.until(lambda reader=reader, order=order: reader.next >= order, GUARD)
                orders.send(reader.wrong)
            else:
                return


def moving(report: Report, quick: bool) -> None:
    """With a lab that keeps its last events in memory beside its log, and with one that does not."""
    for history in (HISTORY, 0):
        _moving(report, quick, history)


def _moving(report: Report, quick: bool, history: int) -> None:
    """The median of all moves, and of round trips between them."""
    folder, processes = tempfile.mkdtemp(), multiprocessing.get_context("spawn")
    lab, there = multiprocessing.Pipe()
    processes.Process(target=_publish, args=(folder, there, history), daemon=True).start()
    endpoint = lab.recv()
    beside = dict(zip(("desk", "phone"), multiprocessing.Pipe(), strict=True))
    places: dict[str, Any] = {}
    for name, other in (("desk", "phone"), ("phone", "desk")):
        places[name], there = multiprocessing.Pipe()
        given = name, other, folder, endpoint, there, beside[name]
        processes.Process(target=_place, args=given, daemon=True).start()
    pauses, trips, wrong = list[float](), list[float](), 0

    def told(name: str, order: Any) -> Any:
        places[name].send(order)
        return places[name].recv()

    assert [each.recv() for each in places.values()] == ["ready", "ready"]
    assert told("desk", "subscribe")
    lab.send("begin")
    for number in range(1 + (4 if quick else MOVES)):
        old, new = ("desk", "phone") if number % 2 == 0 else ("phone", "desk")
        sleep(0.1)  # events flow at the rate
        trips.append(told(new, "trip"))
        places[new].send("resume")
        wrong += told(old, "move")
        pauses.append(places[new].recv())
    lab.send("stop")
    published, rate = lab.recv()
    wrong += told(new, published)
    for each in (*places.values(), lab):
        each.send("end")
    assert not wrong, f"{wrong} events were not the next"
    pause, trip = statistics.median(pauses[1:]), statistics.median(trips[1:])  # the first one loads what it needs
    where = "its last events in memory" if history else "from files of the log"
    report.add(
        f"a sink moves: pause, in round trips, {where}",
        pause / trip,
        REACH,
        reach=f"at most {REACH:g}",
        ok=pause <= REACH * trip,
        unit="",
        note=f"{pause * 1e3:.1f} ms, and {trip * 1e3:.1f} ms for a round trip, at {rate:,.0f} events/s",
    )


CASES: dict[str, Callable[[Report, bool], None]] = {
    "sink": moving,
    "source": moving_sources.moving,
    "groups": moving_groups.groups,
    "questions": moving_questions.asking,
    "mqtt": bridges.mqtt,
    "web": bridges.web,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="only these")
    parser.add_argument("--quick", action="store_true", help="as little as shows that everything works")
    args = parser.parse_args()
    report = Report("moving", "Moving, asking, and bridges")
    try:
        for name in args.cases or CASES:
            CASES[name](report, args.quick)
    finally:  # what was measured is told, also where a broker is missing for the rest
        report.finish()


if __name__ == "__main__":
    main()
