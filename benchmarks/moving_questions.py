"""A question and its answer, beside an event there and another one back, and beside NATS request and reply.

python benchmarks/moving_questions.py [--quick]

One process asks and another answers, over loopback, by turns in each of the three ways: a question to the one who
answers; an event that is answered with another by a handler; and a request of a NATS client, with uvloop if that is
there. What is shown is the median of single trips.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import subprocess
import sys
import threading
from time import perf_counter
from typing import Any

from headwater import Event, Node
from headwater_studies.fleet.nats import server
from headwater_studies.fleet.receiving import free_port
from headwater_studies.fleet.server import ending_with_us
from headwater_studies.harness.benchmark import Report

GUARD = 60.0  # seconds, against hanging
ROUNDS, TRIPS = 20, 200
REACH = 1.3  # round trips of events
PAYLOAD = bytes(16)


class Asked(Event, name="measured.Asked"):
    n: int


class Answer(Event, name="measured.Answer"):
    n: int


def _answers(endpoint: str, url: str | None, said: Any) -> None:
    """The other process: answers in all three ways until it is told to stop."""
    with Node("shop", connect=endpoint) as shop:
        back = shop.channel("measured.back", Asked).source("back")
        shop.channel("measured.there", Asked).subscribe(back.publish, dispatch="inline")
        shop.channel("measured.asked", Asked).answer(lambda asked: Answer(asked.n), answers=Answer)
        replying = None if url is None else threading.Thread(target=_replies, args=(url,), daemon=True)
        if replying is not None:
            replying.start()
        said.send("ready")
        said.recv()


def _loop() -> Any:
    """That of uvloop, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _replies(url: str) -> None:
    import nats

    async def serve() -> None:
        client = await nats.connect(url)

        async def reply(message: Any) -> None:
            await client.publish(message.reply, message.data)

        await client.subscribe("asked", cb=reply)
        await asyncio.Event().wait()

    _loop().run_until_complete(serve())


class _Requests:
    """A NATS client that asks."""

    def __init__(self, url: str) -> None:
        self._loop = _loop()
        self._loop.run_until_complete(self._open(url))

    async def _open(self, url: str) -> None:
        import nats
        from nats.errors import Error

        end = perf_counter() + GUARD
        while True:
            try:
                self._client = await nats.connect(url)
                await self._client.request("asked", PAYLOAD, timeout=1)
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
            await self._client.request("asked", PAYLOAD, timeout=GUARD)
            found.append(perf_counter() - start)
        return found


class _Desk:
    """Asks questions, and publishes what is answered by an event."""

    def __init__(self, node: Any) -> None:
        self._asked = node.channel("measured.asked", Asked)
        self._there = node.channel("measured.there", Asked).source("there")
        self._back = threading.Semaphore(0)
        node.channel("measured.back", Asked).subscribe(lambda event: self._back.release(), dispatch="inline")
        assert self._asked.ask_and_wait(Asked(1), timeout=GUARD, answers=Answer) == Answer(1)
        end = perf_counter() + GUARD
        while perf_counter() < end:
            self._there.publish(Asked(1))
            if self._back.acquire(timeout=0.5):
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
            self._back.acquire()
            found.append(perf_counter() - start)
        return found


def asking(report: Report, quick: bool) -> None:
    """The median of each of the three, by turns."""
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
    asked, sent, requested = list[float](), list[float](), list[float]()
    with Node("desk", listen="tcp/127.0.0.1:0") as node:
        other = multiprocessing.get_context("spawn").Process(
            target=_answers, args=(node.endpoints[0], url, there), daemon=True
        )
        other.start()
        here.recv()
        desk, client = _Desk(node), None if url is None else _Requests(url)
        for _ in range(2 if quick else ROUNDS):
            asked += desk.questions(TRIPS)
            sent += desk.events(TRIPS)
            if client is not None:
                requested += client.trips(TRIPS)
        if client is not None:
            client.close()
        here.send("stop")
        other.join(GUARD)
    if broker is not None:
        broker.kill()
        broker.wait()
    question, trip = statistics.median(asked), statistics.median(sent)
    report.add(
        "a question and its answer, in round trips of two events",
        question / trip,
        REACH,
        reach=f"at most {REACH:g}",
        ok=question <= REACH * trip,
        unit="",
        note=f"{question * 1e6:.0f} us, and {trip * 1e6:.0f} us for two events",
    )
    if requested:
        reply = statistics.median(requested)
        report.add(
            "a question and its answer, beside NATS request and reply",
            question / reply,
            1.0,
            reach="below 1",
            ok=question < reply,
            unit="",
            note=f"{question * 1e6:.0f} us, and {reply * 1e6:.0f} us by NATS",
        )


if __name__ == "__main__":
    made = Report("moving_questions", "Questions")
    asking(made, "--quick" in sys.argv)
    made.finish()
