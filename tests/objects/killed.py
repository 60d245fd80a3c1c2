"""A program that is killed, again and again, while it changes objects and triggers act: after each statement to its
state file in turn.

    python -m tests.objects.killed FOLDER FIRST STEP

Each child is forked from here, with everything imported, does the same work on a folder of its own, and is killed (with
SIGKILL) at its n-th statement, n = FIRST, FIRST + STEP, …, until one gets through. Then another child finds what is
left, submits everything again, with the same tickets, and reports. What does not fit is printed, a line each.

What is there to be lost, or done twice: transactions that were accepted; those that triggers cause, in the turn and
decoupled; changes, raised events and notifications that have not left; what triggers remember; and what a durable
handler had, which does something outside: it writes a line to a file, and whether it may have had the event before.
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

from headwater import About, Interest, Node, Reliable
from headwater.channel.objects.service import Computed, Objects
from headwater.channel.objects.triggers import Trigger
from headwater.late import pa
from headwater.logs import LogFiles
from headwater.objects import count
from headwater.testing import eventually

TRANSACTIONS = 6
NAMES = ("counter", "copy", "late")


def ticket(number: int) -> bytes:
    return blake2b(f"transaction {number}".encode(), digest_size=16).digest()


def opened(folder: Path) -> Node:
    return Node("plant", state=folder / "state", log=str(folder / "log"))


def triggered(objects: Objects) -> Trigger:
    """One counter follows in the turn, another decoupled; and even numbers are told, with what is remembered."""
    objects.trigger("copies", on="counter", when="each",
                    do=lambda t: t.update("copy", n=Computed("n + 1"), event=True))  # fmt: skip
    objects.trigger("later", on="counter", when="each", coupling="decoupled",
                    do=lambda t: t.update("late", n=Computed("n + 1"), event=True))  # fmt: skip
    return objects.trigger(
        "even", on="counter", when="becomes", where="new.n % 2 = 0", history={"all": count("new.n > 0")},
        notify={"n": "new.n", "all": "all.count"},
    )  # fmt: skip


def work(objects: Objects, folder: Path, told: Any) -> None:
    """Create counters, and count in transactions with a ticket each; some are waited for, some are not."""
    node: Any = objects._node
    node.channel("ticks", "n: i64")
    objects.type("Counter", "n: i64")
    first = objects.builder(ticket=ticket(0))
    for name in NAMES:
        first.create(name, "Counter", n=0)
    objects.submit(first)
    out = os.open(folder / "outside", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def outside(event: Any, about: About) -> None:
        os.write(out, f"{event.n} {int(about.redelivered)}\n".encode())

    triggered(objects).subscribe(outside, name="outside", delivery=Reliable(durable=True))
    for number in range(1, TRANSACTIONS + 1):
        t = objects.builder(ticket=ticket(number))
        t.update("counter", n=Computed("n + 1"), event=True)
        t.publish("ticks", n=number)
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
    work(objects, folder, lambda number: os.write(pipe, bytes([number])))
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
        work(objects, folder, lambda number: None)
        eventually(lambda: all(objects.outcome(ticket(n)) is not None for n in range(TRANSACTIONS + 1)))
        eventually(lambda: objects["late.n"] >= TRANSACTIONS)
        for name in NAMES:
            if objects[f"{name}.n"] != TRANSACTIONS:
                wrong.append(f"{name}: expected {TRANSACTIONS}, found {objects[f'{name}.n']}")
        for number in range(TRANSACTIONS + 1):
            outcome = objects.outcome(ticket(number))
            if outcome is None or not outcome.done:
                wrong.append(f"transaction {number}: {outcome}")
        even = [str(n) for n in range(2, TRANSACTIONS + 1, 2)]
        eventually(lambda: {line.split()[0] for line in _outside(folder)} >= set(even), "the handler had them all")
    return wrong + _left(folder) + _handled(_outside(folder), even)


def _outside(folder: Path) -> list[str]:
    return (folder / "outside").read_text().splitlines()


def _handled(lines: list[str], even: list[str]) -> list[str]:
    """The handler had everything, and what it had again says so."""
    first = [line for line in lines if line.endswith(" 0")]
    known = all(line.split()[0] in even for line in lines)
    return [] if known and len(set(first)) == len(first) else [f"what the handler had: {lines}"]


def _left(folder: Path) -> list[str]:
    """Everything has left once, under numbers without a gap."""
    logs, wrong = LogFiles(folder / "log"), []
    expected: dict[str, list[Any]] = {
        "ticks": [n + 1 for n in range(TRANSACTIONS)],
        "triggers.plant.even": [(n, n) for n in range(2, TRANSACTIONS + 1, 2)],
    }
    for channel, values in expected.items():
        rows = [row for batch in logs.read(channel) for row in batch.to_pylist()]
        found = [row["n"] if channel == "ticks" else (row["n"], row["all"]) for row in rows]
        if found != values or [row["event_seq"] for row in rows] != [n + 1 for n in range(len(values))]:
            wrong.append(f"{channel}: {found}")
    rows = [row for batch in logs.read("objects.Counter") for row in batch.to_pylist()]
    if [row["event_seq"] for row in rows] != [n + 1 for n in range(len(NAMES) * (TRANSACTIONS + 1))]:
        wrong.append(f"changes have numbers {[row['event_seq'] for row in rows]}")
    for name in NAMES:
        values = [row["new"]["n"] for row in rows if row["object"] == f"//plant/{name}"]
        if values != list(range(TRANSACTIONS + 1)):
            wrong.append(f"changes of {name} that left: {values}")
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
    (Path(folder) / "before").mkdir(parents=True)
    assert goes_on(Path(folder) / "before", b"") == []  # and compiled
    for statement in itertools.count(int(first), int(step)):
        through, wrong = tried(Path(folder) / str(statement), statement)
        for line in wrong:
            print(f"killed at statement {statement}: {line}")
        if through:
            print(f"{statement} statements")
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
