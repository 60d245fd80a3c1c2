"""Processes of a measurement: started, told what to do line by line, ended by their number.

The parent's side is `Worker`, the child's is `serve`. A request is one line of JSON, `{"do": method, ...arguments}`,
and so is its answer. A child ends when its input does, so that none outlives its parent, however that ends; what a
child starts itself, and has no input, ends with it (`server.ending_with_us`).
"""

from __future__ import annotations

import faulthandler
import json
import math
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle, islice, repeat
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from headwater.threads import Supervised

PATIENCE = 120.0  # seconds for an answer
GRACE = 2  # seconds for a process to close what it has, once its input has ended
RECORD = struct.Struct("<8d")  # 64 bytes: pick, share, number, sent, and four more
FIRST = struct.Struct("<d")
PICKS, SHARES = 100, 12  # events differ in `pick`, which goes from 0 to 99, and `share`, from 0 to 11
WANTED = 7.0  # this `pick` is one percent of them
WIDE, STRIDE = 1_000, 619  # "wide" events: `pick` goes from 0 to 999, scattered, so that none is near one like it
VALUES = (4.5, 5.5, 6.5, 7.5)


class Gone(Exception):
    """A process of a measurement has failed."""


class Worker:
    """A process that runs a module, and what it is told. `inside` goes before the command, as in `ip netns exec a`."""

    def __init__(self, module: str, *arguments: str, inside: Sequence[str] = ()) -> None:
        self.name = " ".join((module.rpartition(".")[2], *arguments))
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = self._start(module, arguments, inside)
        self.pid = self._process.pid
        self._reader = Supervised(self._read, f"headwater-study-{self.pid}")
        self._reader.start()

    @staticmethod
    def _start(module: str, arguments: Sequence[str], inside: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*inside, sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # an interrupt from the keyboard is for the parent, which ends its children
        )

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            with self._process.stdout as lines:
                for line in lines:
                    self._answers.put(line)
        finally:
            self._answers.put(None)

    def ask(self, do: str, **what: Any) -> None:
        """Begin something; `answer` waits for it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **what}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise Gone(f"{self.name}: it ended before {do!r}") from None

    def answer(self, timeout: float = PATIENCE) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=timeout)
        except queue.Empty:
            raise Gone(f"{self.name}: no answer within {timeout:g} s") from None
        if line is None:
            raise Gone(f"{self.name}: it ended with code {self._process.wait(5)}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise Gone(f"{self.name}: {found['error']}")
        return found

    def call(self, do: str, **what: Any) -> dict[str, Any]:
        self.ask(do, **what)
        return self.answer()

    def leave(self) -> None:
        """Tell it to end; `close` waits for it."""
        with suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def close(self) -> None:
        """Let it end; end it if it does not."""
        self.leave()
        for stop in (None, self._process.terminate, self._process.kill):
            if stop is not None:
                stop()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(3)
                self._reader.join(3)
                return


@contextmanager
def workers(kind: type[Worker] = Worker) -> Iterator[Callable[..., Worker]]:
    """Starts workers, and ends all of them in the end."""
    started: list[Worker] = []

    def start(module: str, *arguments: str, inside: Sequence[str] = ()) -> Worker:
        started.append(kind(module, *arguments, inside=inside))
        return started[-1]

    try:
        yield start
    finally:
        for worker in started:
            worker.leave()
        for worker in started:
            worker.close()


def serve(actions: Any) -> None:
    """The child's side: calls methods of `actions`; `actions.close()` at the end of the input."""
    faulthandler.enable()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # it ends this process, also where the parent ignored it
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    ending, never = threading.Event(), threading.Event()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        ending.set()
        signal.alarm(GRACE)  # whatever the other threads are at, also one that holds the GIL
        with suppress(Exception):
            actions.close()
        os._exit(0)

    Supervised(read, "headwater-study-orders").start()
    while True:
        request = json.loads(lines.get())
        try:
            answer = getattr(actions, request.pop("do"))(**request) or {}
        except Exception as error:
            if ending.wait(0.1):
                never.wait()  # what failed was interrupted by the end
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        with suppress(BrokenPipeError):  # the parent is gone, and the end of the input will be noticed
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


class Common:
    """What every such process can do."""

    def pin(self, core: int | None) -> None:
        """All threads on one core, or (None) on any."""
        if not hasattr(os, "sched_setaffinity"):
            return
        cores = set(range(os.cpu_count() or 1)) if core is None else {core}
        for thread in Path("/proc/self/task").iterdir():
            with suppress(OSError):
                os.sched_setaffinity(int(thread.name), cores)

    def cpu(self) -> dict[str, float]:
        """Processor time used so far, in seconds."""
        return {"cpu": process_time()}

    def loopback(self) -> dict[str, int]:
        """Bytes that went over the loopback interface so far."""
        return {"loopback": loopback()}


def loopback() -> int:
    """Bytes that went over the loopback interface of this machine, headers included; 0 where that is not told."""
    path = Path("/proc/net/dev")
    if not path.exists():
        return 0
    line = next((line for line in path.read_text().splitlines() if line.strip().startswith("lo:")), "lo: 0")
    return int(line.split()[1])


# ── what is sent ──


def record(number: int) -> bytes:
    """The event of that number as 64 bytes."""
    return RECORD.pack(number % PICKS, number % SHARES, number, 0.0, *VALUES)


def wide(number: int) -> bytes:
    """The "wide" event of that number as 64 bytes."""
    return RECORD.pack(number * STRIDE % WIDE, number % SHARES, number, 0.0, *VALUES)


def messages(how: str, n: int, packed: int) -> Iterator[bytes]:
    """What a peer sends for `n` events: "same", "cycle" (in `pick`) or "wide" made beforehand, or "fresh" ones."""
    if how == "wide":
        made = [wide(number) for number in range(math.lcm(WIDE, packed))]
        return islice(cycle([b"".join(made[at : at + packed]) for at in range(0, len(made), packed)]), n // packed)
    if how == "fresh":
        pack = RECORD.pack
        return (pack(number % PICKS, number % SHARES, number, 0.0, *VALUES) for number in range(n))
    if how == "same" and packed == 1:
        return repeat(record(0), n)
    made = [record(number) for number in range(PICKS)]
    if packed > 1:
        assert packed % PICKS == 0, packed
        return repeat(b"".join(made) * (packed // PICKS), n // packed)
    return islice(cycle(made), n)


# ── what is done with what arrives ──


class Meter:
    """Notes when the last event was dealt with, and how many there were."""

    def __init__(self) -> None:
        self.end, self.got, self.useful, self.total = 0.0, 0, 0, 0.0
        self.event = threading.Event()
        self.look: Callable[[], int] = int  # how many there are by now

    def done(self, got: int, useful: int, total: float) -> None:
        self.end = perf_counter()
        self.got, self.useful, self.total = got, useful, total
        self.event.set()

    def result(self, timeout: float = PATIENCE / 2) -> dict[str, Any]:
        if not self.event.wait(timeout):
            self.end, self.got = perf_counter(), self.look()
        return {"end": self.end, "got": self.got, "useful": self.useful, "total": self.total}


def taker(mode: str, goal: int, meter: Meter) -> Callable[[Any], None]:
    """The function that a peer's receiver calls with each message.

    "count": it gets the bytes. "decode": it takes all eight fields from them. "filter": it takes the first field and
    calls a function with the bytes where that is what is wanted. "packed" and "packed-filter": the same with many
    events in a message. "below:10" and "packed-below:10": it counts those whose first field is below that."""
    mode, _, below = mode.partition(":")
    limit = float(below or 0)
    got, useful, total, done = 0, 0, 0.0, meter.done

    def look() -> int:
        return got

    meter.look = look

    def wanted(event: Any) -> None:
        nonlocal useful
        useful += 1

    def count(data: bytes) -> None:
        nonlocal got
        got += 1
        if got == goal:
            done(got, useful, total)

    def decode(data: bytes, unpack: Any = RECORD.unpack) -> None:
        nonlocal got, total
        _pick, _share, number, _sent, _a, _b, _c, _d = unpack(data)
        total += number
        got += 1
        if got == goal:
            done(got, useful, total)

    def select(data: bytes, first: Any = FIRST.unpack_from) -> None:
        nonlocal got
        if first(data)[0] == WANTED:
            wanted(data)
        got += 1
        if got == goal:
            done(got, useful, total)

    def select_below(data: bytes, first: Any = FIRST.unpack_from) -> None:
        nonlocal got
        if first(data)[0] < limit:
            wanted(data)
        got += 1
        if got == goal:
            done(got, useful, total)

    def packed(data: bytes) -> None:
        nonlocal got
        got += len(data) // RECORD.size
        if got == goal:
            done(got, useful, total)

    def select_packed(data: bytes) -> None:
        nonlocal got
        rows = np.frombuffer(data, np.float64).reshape(-1, 8)
        for row in rows[rows[:, 0] == WANTED]:
            wanted(row)
        got += len(rows)
        if got == goal:
            done(got, useful, total)

    def packed_below(data: bytes) -> None:
        nonlocal got, useful
        rows = np.frombuffer(data, np.float64).reshape(-1, 8)
        useful += len(rows[rows[:, 0] < limit])
        got += len(rows)
        if got == goal:
            done(got, useful, total)

    if mode.startswith("packed-"):
        import numpy as np
    return {
        "count": count,
        "decode": decode,
        "filter": select,
        "below": select_below,
        "packed": packed,
        "packed-filter": select_packed,
        "packed-below": packed_below,
    }[mode]


class Trips:
    """Times of round trips that follow each other, taken wherever the answer arrives."""

    def __init__(self, n: int) -> None:
        self.n, self.times, self.event = n, list[float](), threading.Event()
        self.last = perf_counter()

    def back(self) -> bool:
        """An answer is here: whether to ask again."""
        now = perf_counter()
        self.times.append(now - self.last)
        self.last = now
        if len(self.times) < self.n:
            return True
        self.event.set()
        return False

    def answer(self, ask: Callable[[bytes], object]) -> Callable[[bytes], None]:
        """What takes an answer, and asks again with it."""

        def took(payload: bytes) -> None:
            if self.back():
                ask(payload)

        return took

    def result(self) -> dict[str, Any]:
        if not self.event.wait(PATIENCE / 2):
            raise TimeoutError(f"{len(self.times):,} of {self.n:,} round trips were made")
        return times([round(each * 1e9) for each in self.times])


def times(nanoseconds: Sequence[int]) -> dict[str, Any]:
    """What a process answers of times that it has taken: two percentiles in seconds, and all of them in order."""
    ordered = sorted(nanoseconds)
    middle, high = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return {"p50": middle / 1e9, "p99": high / 1e9, "nanoseconds": list(nanoseconds)}
