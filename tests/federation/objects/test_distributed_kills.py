"""A trigger over two nodes in processes that are killed: nothing that happened is missed, and nothing happens twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Node
from headwater.errors import Unreachable
from tests.effort import rounds
from tests.federation.nodes import GUARD, Nodes, eventually, nodes
from tests.federation.nursery import Popen
from tests.ports import free_endpoint

CHILD = """
import faulthandler
import sys
from headwater import Node
from headwater.testing import eventually

faulthandler.enable()  # it says where its threads are, when it is aborted
name, folder, endpoint, listens = sys.argv[1:]
network = {"lease": 1.0, "clock_error": 0.0}
where = {"listen": endpoint} if listens == "yes" else {"connect": endpoint}
with Node(name, state=f"{folder}/{name}.state", network=network, **where) as node:
    objects = node.objects
    objects.type("Car", "x: f64")
    objects.type("Log", "count: i64")
    if name != "desk" and "car" not in objects:
        with objects.transaction() as t:
            t.create("car", "Car", x=0.0)
    if name == "desk" and "log" not in objects:
        with objects.transaction() as t:
            t.create("log", "Log", count=0)
    if name == "desk" and "far" not in objects.triggers:
        far = objects.trigger(
            "far", when="becomes", where="abs(a.x - b.x) > 100",
            inputs={"a": ("//north/car", "Car"), "b": ("//south/car", "Car")},
            do=lambda t: t.update("log", {"count": t.read("log.count") + 1}))
        eventually(lambda: far.holds is False, timeout=120)
    print("ready", flush=True)
    sys.stdin.read()
"""


class Killed:
    """Three nodes in processes, and a client here that changes and reads their objects."""

    def __init__(self, make: Nodes, folder: Path) -> None:
        self.folder, self.endpoint = folder, free_endpoint()
        self.processes: dict[str, Popen] = {}
        for name in ("north", "south", "desk"):
            self.start(name)
        self.client: Node = make("client", connect=self.endpoint, network={"lease": 1.0})
        self.ready("desk")

    def start(self, name: str) -> None:
        listens = "yes" if name == "north" else "no"
        arguments = [sys.executable, "-c", CHILD, name, str(self.folder), self.endpoint, listens]
        self.processes[name] = Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ready(self, name: str) -> None:
        out = self.processes[name].stdout
        assert out is not None and out.readline() == "ready\n"

    def kill(self, name: str) -> None:
        process = self.processes[name]
        process.send_signal(signal.SIGKILL)
        process.wait(GUARD)
        self.end(process)

    def end(self, process: Popen) -> None:
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def move(self, name: str, x: float) -> None:
        remote: Any = self.client.objects_at(name)
        builder = remote.builder()
        builder.update("car", {"x": x})
        remote.submit(builder, timeout=GUARD)

    def fired(self, times: int) -> None:
        """Wait until it has, so often and no more; else say what was found, and where everybody is."""
        remote: Any = self.client.objects_at("desk")
        found: Any = None

        def has_fired() -> bool:
            nonlocal found
            try:
                found = remote["log.count"]
            except Unreachable as error:
                found = error
            return bool(found == times)

        try:
            eventually(has_fired, timeout=GUARD)
        except AssertionError:
            ended = {name: process.poll() for name, process in self.processes.items()}
            state = f"ended: {ended}, peers of the client: {self.client.peers}"
            for name, process in self.processes.items():
                print(f"threads of {name}:", file=sys.stderr, flush=True)
                process.send_signal(signal.SIGABRT)
                process.wait(GUARD)
            raise AssertionError(f"expected {times} firings, found {found!r}; {state}") from None

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(GUARD)
            self.end(process)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Killed]:
    with nodes() as make:
        made = Killed(make, tmp_path)
        try:
            yield made
        finally:
            made.close()


def test_what_was_done_before_a_kill_fires_once(fleet: Killed) -> None:
    """The client waits until each change is durable at its owner; then somebody is killed."""
    for number in range(rounds(2, 30)):
        victim = ("desk", "south", "north")[number % 3]
        fleet.move("south", -150.0)
        fleet.kill(victim)
        fleet.start(victim)
        fleet.fired(number + 1)
        fleet.move("south", 0.0)
    fleet.move("north", 150.0)
    fleet.fired(rounds(2, 30) + 1)
