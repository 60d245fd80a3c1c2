"""A gateway in a process of its own, which is killed: a pattern behind it claims nothing that it cannot know."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater import Network
from headwater.federation.node import Node
from tests.federation.nodes import GUARD, eventually
from tests.federation.nursery import Popen
from tests.federation.test_gateway import CHANNEL, Sighting, sees

BELL = "bell"
ABSENT = f"a: {BELL}; without {CHANNEL}{{x = 2}} within 200 milliseconds measures a.n as n"
PAIR = f"a: {CHANNEL}{{x = 1}}; b: {CHANNEL}{{x = 3}} within 1 hour measures b.x as x"
GATEWAY = """
import sys, threading
from headwater.federation.gateway.gateway import Gateway
from headwater.federation.node import Node

there = Node("there", connect=sys.argv[1], federation="a")
here = Node("here", connect=sys.argv[2], federation="b")
Gateway(there, here, "ie.**")
print("ready", flush=True)
threading.Event().wait()
"""


@contextmanager
def gateway(far: Node, home: Node, log: Path) -> Iterator[Any]:
    """A process between the two; it is killed."""
    with log.open("ab") as errors:
        command = [sys.executable, "-c", GATEWAY, far.endpoints[0], home.endpoints[0]]
        process = Popen(command, stdout=subprocess.PIPE, stderr=errors)
    try:
        assert process.stdout.readline() == b"ready\n", log.read_text()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def node(name: str, federation: str) -> Node:
    return Node(name, network=Network(listen="tcp/127.0.0.1:0", federation=federation, lease=2.0, keep=1.0))


def test_what_was_published_while_the_gateway_was_dead_is_not_known(tmp_path: Path) -> None:
    with node("far", "a") as far, node("home", "b") as home:
        source = far.channel(CHANNEL, Sighting).source("far")
        bell: Any = home.channel(BELL, "n: u32").source("bell")
        home.channel(CHANNEL, Sighting)
        numbers = iter(range(1, 1_000))

        def ring(watch: Any) -> bool:
            """Whether it is uncertain that nobody was seen."""
            number = next(numbers)
            bell.publish(n=number)
            found = watch.get(timeout=GUARD)
            while found is not None and found.n != number:
                found = watch.get(timeout=GUARD)
            assert found is not None, watch.report()
            return bool(found.match.uncertain)

        with gateway(far, home, tmp_path / "first"):
            sees(home, 1)
            watch, pairs = home.match(ABSENT), home.match(PAIR)
            eventually(lambda: not ring(watch), timeout=GUARD)  # all the way is asked
            source.publish(x=1)
            eventually(lambda: pairs.report().rows == 1, timeout=GUARD)
        missed = next(numbers)
        bell.publish(n=missed)
        source.publish(x=2)  # nobody passes it on
        found = watch.get(timeout=GUARD)
        assert (found.n, found.match.uncertain) == (missed, True), watch.report()
        with gateway(far, home, tmp_path / "second"):
            sees(home, 1)
            eventually(lambda: not ring(watch), timeout=GUARD)  # it is known again
            source.publish(x=3)
            found = pairs.get(timeout=GUARD)
            assert found is not None and found.x == 3 and not found.match.uncertain, pairs.report()
            assert watch.report().late == pairs.report().late == 0
