"""A question and its answer, beside an event there and another one back, and beside NATS request and reply.

python benchmarks/moving_questions.py [--quick]

One process asks and another answers, over loopback, by turns in each way: a question to the one who answers; an event
that a handler answers with another; and a request of a NATS client, on the event loop of Python and on that of uvloop,
if that is there. The work is the same in all: the other end reads the question and makes the answer, and who has asked
is given it in the thread (or the task) that waits for it, with a deadline. NATS carries bytes, and so has nothing to
read and to make. What is shown is the median of single trips, and the median of
the ratios of all rounds, since a machine may be busier in one than in another.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import subprocess
import sys
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any

from headwater import Event, Node
from headwater_studies.fleet.nats import server
from headwater_studies.fleet.receiving import free_port
from headwater_studies.fleet.server import ending_with_us
from headwater_studies.harness.benchmark import Report

GUARD = 60.0  # seconds, against hanging
ROUNDS, TRIPS = 100, 40
REACH = 1.3  # round trips of events
PAYLOAD = bytes(16)
LOOPS = ("asyncio", "uvloop")  # of NATS clients


class Asked(Event, name="measured.Asked"):
    n: int


class Answer(Event, name="measured.Answer"):
    n: int


def _answers(endpoint: str, url: str | None, said: Any) -> None:
    """The other process: answers in all three ways until it is told to stop."""
    with Node("shop", connect=endpoint) as shop:
        back = shop.channel("measured.back", Answer).source("back")
        there = shop.channel("measured.there", Asked)
        there.subscribe(lambda asked: back.publish(Answer(asked.n)), dispatch="inline")
        shop.channel("measured.asked", Asked).answer(lambda asked: Answer(asked.n), answers=Answer)
        for loop in LOOPS if url is not None else ():
            if _loop(loop) is not None:
                threading.Thread(target=_replies, args=(url, loop), daemon=True).start()
        said.send("ready")
        said.recv()


def _loop(name: str) -> Any:
    """A new event loop of that kind; None if it is not installed."""
    if name == "asyncio":
        return asyncio.new_event_loop()
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop()


def _replies(url: str, loop: str) -> None:
    import nats

    async def serve() -> None:
        client = await nats.connect(url)

        async def reply(message: Any) -> None:
            await client.publish(message.reply, message.data)

        await client.subscribe(f"asked.{loop}", cb=reply)
        await asyncio.Event().wait()

    _loop(loop).run_until_complete(serve())


class _Requests:
    """A NATS client that asks, on an event loop of some kind at both ends."""

    def __init__(self, url: str, loop: str) -> None:
        self._loop, self._subject = _loop(loop), f"asked.{loop}"
        self._loop.run_until_complete(self._open(url))

    async def _open(self, url: str) -> None:
        import nats
        from nats.errors import Error

        end = perf_counter() + GUARD
        while True:
            try:
                self._client = await nats.connect(url)
                await self._client.request(self._subject, PAYLOAD, timeout=1)
                return
            except (OSError, Error):
                if perf_counter() > end:
                    raise
                await asyncio.sleep(0.05)

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()

    def trips(self, count: int) -> list[float]:
        return self._loop.run_until_complete(self._trips(count))  # type: ignore[no-any-return]

    async def _trips(self, count: int) -> list[float]:
        found = []
        for _ in range(count):
            start = perf_counter()
            await self._client.request(self._subject, PAYLOAD, timeout=GUARD)
            found.append(perf_counter() - start)
        return found


class _Desk:
    """Asks questions, and publishes what is answered by an event."""

    def __init__(self, node: Any) -> None:
        self._asked = node.channel("measured.asked", Asked)
        self._there = node.channel("measured.there", Asked).source("there")
        self._back: SimpleQueue[Answer] = SimpleQueue()
        node.channel("measured.back", Answer).subscribe(self._back.put, dispatch="inline")
        assert self._asked.ask_and_wait(Asked(1), timeout=GUARD, answers=Answer) == Answer(1)
        end = perf_counter() + GUARD
        while perf_counter() < end:
            self._there.publish(Asked(1))
            with suppress(Empty):
                self._back.get(timeout=0.5)
                break
        assert node.ready(GUARD)

    def questions(self, count: int) -> list[float]:
        found, ask = [], self._asked.ask_and_wait
        for n in range(count):
            start = perf_counter()
            ask(Asked(n), timeout=GUARD)
            found.append(perf_counter() - start)
        return found

    def events(self, count: int) -> list[float]:
        found = []
        for n in range(count):
            start = perf_counter()
            self._there.publish(Asked(n))
            self._back.get(timeout=GUARD)
            found.append(perf_counter() - start)
        return found


def asking(report: Report, quick: bool) -> None:
    """The median of each, by turns."""
    program, url, broker = server(), None, None
    if program is not None:
        port = free_port()
        url = f"nats://127.0.0.1:{port}"
        broker = subprocess.Popen(
            ending_with_us([program, "-a", "127.0.0.1", "-p", str(port)]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    here, there = multiprocessing.Pipe()
    with Node("desk", listen="tcp/127.0.0.1:0") as node:
        other = multiprocessing.get_context("spawn").Process(
            target=_answers, args=(node.endpoints[0], url, there), daemon=True
        )
        other.start()
        here.recv()
        desk = _Desk(node)
        loops = [] if url is None else [loop for loop in LOOPS if _loop(loop) is not None]
        clients = {loop: _Requests(str(url), loop) for loop in loops}
        ways = [desk.questions, desk.events, *(client.trips for client in clients.values())]
        found: list[list[float]] = [[] for _ in ways]
        for round in range(4 * len(ways) if quick else ROUNDS):
            for turn in range(len(ways)):
                at = (round + turn) % len(ways)  # each begins once: what was before leaves caches cold
                found[at].append(statistics.median(ways[at](TRIPS)))
        for client in clients.values():
            client.close()
        here.send("stop")
        other.join(GUARD)
    if broker is not None:
        broker.kill()
        broker.wait()
    question, trip, *replies = (statistics.median(rounds) for rounds in found)
    ratio, *beside = (statistics.median(ours / theirs for ours, theirs in zip(found[0], rounds, strict=True))
                      for rounds in found[1:])  # fmt: skip
    report.add(
        "a question and its answer, in round trips of two events",
        ratio,
        REACH,
        reach=f"at most {REACH:g}",
        ok=ratio <= REACH,
        unit="",
        note=f"{question * 1e6:.0f} us, and {trip * 1e6:.0f} us for two events",
    )
    for loop, reply, part in zip(clients, replies, beside, strict=True):
        report.add(
            f"a question and its answer, beside NATS request and reply, {loop}",
            part,
            1.0,
            reach="below 1",
            ok=part < 1,
            unit="",
            note=f"{question * 1e6:.0f} us, and {reply * 1e6:.0f} us by NATS",
        )


if __name__ == "__main__":
    made = Report("moving_questions", "Questions")
    asking(made, "--quick" in sys.argv)
    made.finish()
