"""A group of four sinks in four processes, beside a queue group of NATS with as many clients.

python benchmarks/moving_groups.py [--quick]

One process publishes as fast as it can, over loopback, and each event goes to one of four others, which add its value
up; it is measured how long it takes until all are handled, by turns in both ways. NATS has its Python client, with
uvloop if that is there, and a payload that is unpacked by `struct`: what it takes to make an event of it is left out.
What a group does besides (the interest at the source, acknowledgements, what a dead member had goes to another) core
NATS does not do.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import statistics
import struct
import subprocess
import sys
import threading
from time import perf_counter, sleep
from typing import Any

from headwater import Event, Node
from headwater_studies.fleet.nats import server
from headwater_studies.fleet.receiving import free_port
from headwater_studies.fleet.server import ending_with_us
from headwater_studies.harness.benchmark import Report

GUARD = 120.0  # seconds, against hanging
WORKERS, EVENTS, ROUNDS = 4, 20_000, 7
REACH = 0.8
PAYLOAD = struct.Struct("<qd")


class Work(Event, name="measured.Work"):
    n: int
    value: float


class _Tally:
    """How many events a worker has handled, where others see it; and their sum, which is the work."""

    def __init__(self, counts: Any, place: int) -> None:
        self._counts, self._place, self.total = counts, place, 0.0

    def event(self, work: Any) -> None:
        self.total += work.value
        self._counts[self._place] += 1

    async def message(self, message: Any) -> None:
        self.total += PAYLOAD.unpack(message.data)[1]
        self._counts[self._place] += 1


def _loop() -> Any:
    """That of uvloop, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _work(place: int, endpoint: str, url: str | None, counts: Any, said: Any) -> None:
    """One of the other processes: a member of both groups, until it is told to stop."""
    tally = _Tally(counts, place)
    with Node(f"worker-{place}", connect=endpoint) as node:
        node.channel("measured.work", Work).subscribe(tally.event, "n >= 0", group="workers", dispatch="inline")
        if url is not None:
            heard = threading.Event()
            threading.Thread(target=_queue, args=(url, tally, heard), daemon=True).start()
            assert heard.wait(GUARD)  # core NATS keeps nothing for who is about to subscribe
        assert node.ready(GUARD)
        said.send("ready")
        said.recv()
    os._exit(0)  # the loop of NATS, in its thread, now and then keeps the interpreter from ending


def _queue(url: str, tally: _Tally, heard: threading.Event) -> None:
    import nats

    async def serve() -> None:
        client = await nats.connect(url)
        await client.subscribe("work", queue="workers", cb=tally.message)
        await client.flush()
        heard.set()
        await asyncio.Event().wait()

    _loop().run_until_complete(serve())


class _Publisher:
    """Publishes in both ways, and sees when all is handled."""

    def __init__(self, node: Any, url: str | None, counts: Any) -> None:
        self._source, self._counts = node.channel("measured.work", Work).source("desk"), counts
        self._nats = _loop()
        self._client: Any = None
        if url is not None:
            self._nats.run_until_complete(self._open(url))

    async def _open(self, url: str) -> None:
        import nats

        self._client = await nats.connect(url)

    def close(self) -> None:
        if self._client is not None:
            self._nats.run_until_complete(self._client.close())
        self._nats.close()

    def _until(self, count: int) -> None:
        end = perf_counter() + GUARD
        while sum(self._counts) < count:
            assert perf_counter() < end, f"{count - sum(self._counts)} are not handled"
            sleep(0.0005)

    async def _until_there(self, count: int) -> None:
        """The same, while the client writes what it still has: it says that it has flushed before all is out."""
        end = perf_counter() + GUARD
        while sum(self._counts) < count:
            assert perf_counter() < end, f"{count - sum(self._counts)} are not handled"
            await asyncio.sleep(0.0005)

    def warm(self) -> None:
        """Until everybody is there."""
        end = perf_counter() + GUARD
        for publish in (self._events, self._messages) if self._client is not None else (self._events,):
            before = list(self._counts)
            while not all(now > then for now, then in zip(self._counts, before, strict=True)):
                assert perf_counter() < end, "not all are there"
                self._until(publish(64))

    def _events(self, count: int) -> int:
        before, publish = sum(self._counts), self._source.publish
        for n in range(count):
            publish(Work(n, 0.5))
        return before + count

    def _messages(self, count: int) -> int:
        before = sum(self._counts)

        async def all_of_them() -> None:
            publish, pack = self._client.publish, PAYLOAD.pack
            for n in range(count):
                await publish("work", pack(n, 0.5))
            await self._client.flush(GUARD)
            await self._until_there(before + count)

        self._nats.run_until_complete(all_of_them())
        return before + count

    def rate(self, ours: bool) -> float:
        """Events a second, from the first that is published to the last that is handled."""
        start = perf_counter()
        self._until((self._events if ours else self._messages)(EVENTS))
        return EVENTS / (perf_counter() - start)


def groups(report: Report, quick: bool) -> None:
    """The rate of each of the two, by turns."""
    program, url, broker = server(), None, None
    if program is not None:
        port = free_port()
        url = f"nats://127.0.0.1:{port}"
        broker = subprocess.Popen(
            ending_with_us([program, "-a", "127.0.0.1", "-p", str(port)]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    context = multiprocessing.get_context("spawn")
    counts = context.RawArray("q", WORKERS)
    ours, theirs = list[float](), list[float]()
    with Node("desk", listen="tcp/127.0.0.1:0") as node:
        publisher = _Publisher(node, url, counts)
        pipes = [multiprocessing.Pipe() for _ in range(WORKERS)]
        workers = [
            context.Process(target=_work, args=(place, node.endpoints[0], url, counts, there), daemon=True)
            for place, (_, there) in enumerate(pipes)
        ]
        for each in workers:
            each.start()
        for here, _ in pipes:
            here.recv()
        publisher.warm()
        for _ in range(2 if quick else ROUNDS):
            ours.append(publisher.rate(ours=True))
            if url is not None:
                theirs.append(publisher.rate(ours=False))
        publisher.close()
        for here, _ in pipes:
            here.send("stop")
        for each in workers:
            each.join(GUARD)
    if broker is not None:
        broker.kill()
        broker.wait()
    rate = statistics.median(ours)
    if theirs:
        ratio = statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
        report.add(
            f"a group of {WORKERS} sinks in {WORKERS} processes, beside NATS queue groups",
            ratio,
            REACH,
            reach=f"at least {REACH:g}",
            ok=ratio >= REACH,
            unit="",
            note=f"{rate:,.0f} events/s, and {statistics.median(theirs):,.0f} by NATS",
        )
    else:
        report.add(
            f"a group of {WORKERS} sinks in {WORKERS} processes, events/s", rate, unit="", note="NATS is missing"
        )


if __name__ == "__main__":
    made = Report("moving_groups", "Groups")
    groups(made, "--quick" in sys.argv)
    made.finish()
