"""A program that is killed, again and again, while it changes objects: after each statement to its state file in turn.

    python -m tests.objects.killed FOLDER FIRST STEP

Each child is forked from here, with everything imported, does the same work on a folder of its own, and is killed (with
SIGKILL) at its n-th statement, n = FIRST, FIRST + STEP, …, until one gets through. Then another child finds what is
left, submits everything again, with the same tickets, and reports. What does not fit is printed, a line each.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any

from headwater import Interest, Node
from headwater.channel.objects.service import Computed, Objects
from headwater.late import pa
from headwater.logs import LogFiles
from headwater.testing import eventually

TRANSACTIONS = 6


def ticket(number: int) -> bytes:
    return blake2b(f"transaction {number}".encode(), digest_size=16).digest()


def opened(folder: Path) -> Node:
    return Node("plant", state=folder / "state", log=str(folder / "log"))


def work(objects: Objects, told: Any) -> None:
    """Create a counter, and count in transactions with a ticket each; some are waited for, some are not."""
    objects.type("Counter", "n: i64")
    first = objects.builder(ticket=ticket(0))
    first.create("counter", "Counter", n=0)
    objects.submit(first)
    for number in range(1, TRANSACTIONS + 1):
        t = objects.builder(ticket=ticket(number))
        t.update("counter", n=Computed("n + 1"), event=True)
        objects.submit(t, wait=number % 2 == 0)  # type: ignore[call-overload]
        told(number)


def dies(folder: Path, statement: int, pipe: int) -> None:
    """The child that is killed; through the pipe it says what was acknowledged."""
    node = opened(folder)
    objects = node.objects
    left = itertools.count(statement, -1)

    def count(_: str) -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    state: Any = node.state
    state._connection.set_trace_callback(count)
    work(objects, lambda number: os.write(pipe, bytes([number])))
    node.close()
    os._exit(0)


def goes_on(folder: Path, acknowledged: bytes) -> list[str]:
    """What is wrong with what the killed one has left, and with what becomes of it."""
    wrong = []
    with opened(folder) as node:
        objects = node.objects
        if acknowledged:
            most = max(acknowledged)
            eventually(lambda: objects["counter.n"] >= most)
        work(objects, lambda number: None)
        eventually(lambda: all(objects.outcome(ticket(n)) is not None for n in range(TRANSACTIONS + 1)))
        if objects["counter.n"] != TRANSACTIONS:
            wrong.append(f"expected {TRANSACTIONS}, found {objects['counter.n']}")
        for number in range(TRANSACTIONS + 1):
            outcome = objects.outcome(ticket(number))
            if outcome is None or not outcome.done:
                wrong.append(f"transaction {number}: {outcome}")
    rows = [row for batch in LogFiles(folder / "log").read("objects.Counter") for row in batch.to_pylist()]
    values = [(row["event_seq"], row["new"]["n"]) for row in rows]
    if values != [(n + 1, n) for n in range(TRANSACTIONS + 1)]:
        wrong.append(f"changes that left: {values}")
    return wrong


def tried(folder: Path, statement: int) -> tuple[bool, list[str]]:
    """Whether the work got through, and what was wrong."""
    folder.mkdir(parents=True)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        dies(folder, statement, write)
    os.close(write)
    _, status = os.waitpid(child, 0)
    acknowledged = os.read(read, 100)
    os.close(read)
    if not (os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0):
        return True, [f"the child failed: {status}"]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = goes_on(folder, acknowledged)
        except BaseException as error:
            said = [f"{type(error).__name__}: {error}"]
        os.write(write, json.dumps(said).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        found: list[str] = json.loads(answer.read() or '["it said nothing"]')
    os.waitpid(child, 0)
    return not os.WIFSIGNALED(status), found


def main(folder: str, first: str, step: str) -> None:
    assert pa.array([1])[0].as_py() + 1 == 2 == Interest("n + 1 > 2", "n: i64").test({"n": 2}) + 1  # all is imported
    for statement in itertools.count(int(first), int(step)):
        through, wrong = tried(Path(folder) / str(statement), statement)
        for line in wrong:
            print(f"killed at statement {statement}: {line}")
        if through:
            print(f"{statement} statements")
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
