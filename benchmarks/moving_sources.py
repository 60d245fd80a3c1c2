"""The pause that a sink sees when its source moves to and fro between two nodes under 10,000 events a second.

python benchmarks/moving_sources.py [--quick]

Two nodes that log, each in a process of its own, have the source by turns; a sink at a node of this process, over
loopback, has all of its events. The pause is the longest time between two events that follow on each other while the
source moves: the last from one node and the first from the other. It is measured in round trips: the time of a question
from the sink's node to the one that the source was at, taken by turns with the moves.
"""

from __future__ import annotations

import logging
import multiprocessing
import statistics
import sys
import tempfile
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

from headwater import Node
from headwater.errors import ClosedError, FederationError
from headwater.federation.wire.source_move_requests import ClaimSource
from headwater_studies.harness.benchmark import Report

GUARD = 60.0  # seconds, against hanging
RATE = 10_000  # events a second
MOVES = 20
REACH = 5.0  # round trips
CHANNEL, TYPE = "measured.hall", "n: i64"


def _place(name: str, folder: str, connect: str, said: Any) -> None:
    """A node that may have the source, and publishes as long as it does: at the rate, in bursts of a millisecond."""
    logging.getLogger("headwater.federation").setLevel(logging.ERROR)  # round trips are refused, as they should be
    options: dict[str, Any] = {"connect": connect} if connect else {}
    with Node(
        name, listen="tcp/127.0.0.1:0", log=Path(folder) / name, state=Path(folder) / f"{name}.state", **options
    ) as node:
        channel = node.channel(CHANNEL, TYPE)
        source: Any = None if connect else channel.source("s")
        said.send(node.endpoints[0])
        said.recv()
        begun, first = monotonic(), 0 if source is None else source.seq
        while True:
            if said.poll(0 if source is not None else GUARD):
                order, *given = said.recv()
                if order == "move":
                    said.send(source.move())
                elif order == "resume":
                    source = node.resume_source(given[0], timeout=GUARD)
                    begun, first = monotonic(), source.seq
                    said.send(first)
                else:
                    said.send(0 if source is None else source.seq)
                    if order == "end":
                        return
                    source = None
            if source is None:
                continue
            try:
                while source.seq - first < (monotonic() - begun) * RATE:
                    source.publish(n=source.seq)
            except ClosedError:
                source = None
            sleep(0.001)


def _round_trip(asker: Any, other: str) -> float:
    """A question that is refused, to the node that the source was at."""
    engine = asker._engine
    peer = next(each for each in engine.everyone() if each.name == other)
    start = perf_counter()
    try:
        engine.dialogue.ask(peer, ClaimSource(bytes(32), bytes(16)), GUARD)
    except FederationError:
        return perf_counter() - start
    raise AssertionError("expected a refusal, found an answer")


class _Reader:
    """The sink's handler: that nothing is missing, and the longest pause."""

    def __init__(self) -> None:
        self.next = self.wrong = 0
        self.pause, self._last = 0.0, perf_counter()

    def __call__(self, event: Any) -> None:
        now = perf_counter()
        self.wrong += event.n != self.next
        self.next = event.n + 1
        self.pause, self._last = max(self.pause, now - self._last), now


def moving(report: Report, quick: bool) -> None:
    """The median of all moves, and of round trips between them."""
    folder, processes = tempfile.mkdtemp(), multiprocessing.get_context("spawn")
    pipes, connect = {}, ""
    for name in ("a", "b"):
        pipes[name], there = multiprocessing.Pipe()
        processes.Process(target=_place, args=(name, folder, connect, there), daemon=True).start()
        endpoint = pipes[name].recv()
        connect = connect or endpoint
    reader, pauses, trips = _Reader(), list[float](), list[float]()
    with Node("desk", connect=connect, listen="tcp/127.0.0.1:0") as desk:
        assert desk.until(lambda: desk.has_channel(CHANNEL) and {"a", "b"} <= set(desk.peers), GUARD)
        desk.channel(CHANNEL).subscribe(reader)
        assert desk.ready(GUARD)
        for pipe in pipes.values():
            pipe.send("begin")
        begun = perf_counter()
        for number in range(1 + (3 if quick else MOVES)):
            old, new = ("a", "b") if number % 2 == 0 else ("b", "a")
            trips.append(_round_trip(desk, old))
            sleep(0.2)  # events flow at the rate
            reader.pause = 0.0
            pipes[old].send(("move",))
            pipes[new].send(("resume", pipes[old].recv()))
            after = pipes[new].recv()
            assert desk.until(lambda after=after: reader.next > after + RATE // 20, GUARD)
            pauses.append(reader.pause)
        rate = reader.next / (perf_counter() - begun)
        pipes[new].send(("stop",))
        published = pipes[new].recv()
        assert desk.until(lambda: reader.next >= published, GUARD)
        for pipe in pipes.values():
            pipe.send(("end",))
            pipe.recv()
    assert not reader.wrong, f"{reader.wrong} events were not the next"
    pause, trip = statistics.median(pauses[1:]), statistics.median(trips)  # the first one loads what it needs
    report.add(
        "a source moves: pause, in control round trips",
        pause / trip,
        REACH,
        reach=f"at most {REACH:g}",
        ok=pause <= REACH * trip,
        unit="",
        note=f"{pause * 1e3:.1f} ms, and {trip * 1e3:.1f} ms for a round trip, at {rate:,.0f} events/s",
    )


if __name__ == "__main__":
    made = Report("moving_sources", "Moving sources")
    moving(made, "--quick" in sys.argv)
    made.finish()
