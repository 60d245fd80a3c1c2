"""A pattern that is killed between two of its events goes on, and who waits for its matches gets each once. Run it:
`python examples/pattern_restart.py`."""

from __future__ import annotations

import subprocess
import sys
from tempfile import TemporaryDirectory
from typing import Any

from headwater import Node, Reliable
from headwater.testing import Recorder

WAIT = 300.0  # seconds, at most, for what takes a moment
EVENT = "machine: u32, number: u32"
BROKEN = """
    (f: factory.failure){3} without factory.repair within 1 hour partition by machine
    measures last(f.machine) as machine, first(f.number) as first, last(f.number) as last
"""


def factory(endpoint: str, folder: str) -> None:
    """A process of its own: it publishes what it is told to, and looks for machines that fail three times in an hour
    with no repair between. Its log has the events, its state what the pattern has found so far."""
    with Node("factory", connect=endpoint, state=f"{folder}/factory.state", log=f"{folder}/log") as node:
        channels = {name: node.channel(f"factory.{name}", EVENT) for name in ("failure", "repair")}
        pattern: Any = node.pattern("factory.broken", BROKEN)
        sources = {name: channel.source("hall") for name, channel in channels.items()}
        print("goes on" if pattern.report().kept["resumed"] else "begins", flush=True)
        for line in sys.stdin:
            what, machine, number = line.split()
            sources[what].publish(machine=int(machine), number=int(number))
            print("published", flush=True)


class Factory:
    """That process, as it is seen from here."""

    def __init__(self, endpoint: str, folder: str) -> None:
        command = [sys.executable, __file__, endpoint, folder]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        print("the factory", self.line())

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def publish(self, what: str, machine: int, number: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what} {machine} {number}\n")
        self.process.stdin.flush()
        assert self.line() == "published"

    def kill(self) -> None:
        """As it is, in the middle of whatever it does."""
        self.process.kill()
        self.process.wait()


def main() -> None:
    with TemporaryDirectory() as folder, Node("desk", listen="127.0.0.1:0", state=f"{folder}/desk.state") as desk:
        life = Factory(desk.endpoints[0], folder)
        seen = Recorder()
        assert desk.until(lambda: desk.has_channel("factory.broken"), WAIT)
        desk.channel("factory.broken").subscribe(seen, name="desk", delivery=Reliable(durable=True))
        assert desk.ready(WAIT)
        life.publish("failure", 7, 1)
        life.publish("failure", 7, 2)
        life.kill()
        print("killed after two failures of machine 7")

        life = Factory(desk.endpoints[0], folder)
        life.publish("failure", 8, 3)
        life.publish("failure", 7, 4)
        seen.wait(1)
        life.kill()
        print("killed after the match")

        life = Factory(desk.endpoints[0], folder)
        life.publish("failure", 8, 5)
        life.publish("failure", 9, 6)
        life.publish("repair", 9, 7)
        life.publish("failure", 8, 8)
        seen.wait(2)
        for event in seen.events:
            print(f"machine {event.machine} has failed three times, from {event.first} to {event.last}")
        print("each once:", len({event.match.identity for event in seen.events}) == len(seen.events) == 2)
        life.kill()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        factory(*sys.argv[1:])
    else:
        main()
