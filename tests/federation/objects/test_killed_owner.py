"""An owner that is killed, again and again, while its triggers tell another node: each notification comes once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import About, Reliable
from headwater.objects import Computed
from headwater.testing import eventually
from tests.effort import rounds
from tests.federation.nodes import GUARD, Nodes, nodes
from tests.federation.nursery import Popen
from tests.ports import free_endpoint

OWNER = """
import sys
from headwater import Node
from headwater.objects import Computed

folder, endpoint, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Node("plant", state=f"{folder}/plant", log=f"{folder}/log", listen=endpoint) as node:
    objects = node.objects
    objects.type("Counter", "n: i64")
    if "counter" not in objects:
        with objects.transaction() as t:
            t.create("counter", "Counter", n=0)
    print("ready", flush=True)
    sys.stdin.readline()
    while objects["counter.n"] < last:
        with objects.transaction() as t:
            t.update("counter", n=Computed("n + 1"), event=True)
        print("turn", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def test_each_notification_of_an_owner_that_is_killed_comes_once(make: Nodes, tmp_path: Path) -> None:
    """The handler counts in a transaction of its own node, with a ticket of the notification's number."""
    endpoint, times = free_endpoint(), rounds(1, 4)
    last = 10 * times

    def started() -> Any:
        child = Popen([sys.executable, "-c", OWNER, str(tmp_path), endpoint, str(last)], stdin=-1, stdout=-1, text=True)
        assert child.stdout.readline() == "ready\n"
        return child

    def go(child: Any) -> None:
        child.stdin.write("go\n")
        child.stdin.flush()

    child = started()
    desk = make("desk", state=tmp_path / "desk", connect=endpoint)
    desk.objects.type("Sum", "count: i64, total: i64")
    with desk.objects.transaction() as t:
        t.create("sum", "Sum", count=0, total=0)
    seen: list[tuple[int, int]] = []

    def told(event: Any, about: About) -> None:
        seen.append((event.n, about.seq))
        with desk.objects.transaction(ticket=about.seq.to_bytes(16, "big")) as t:
            t.update("sum", count=Computed("count + 1"), total=Computed(f"total + {event.n}"))

    assert desk.until(lambda: "plant" in desk.peers, GUARD)
    each = desk.objects_at("plant").trigger("each", on="counter", when="each", notify={"n": "new.n"})
    each.subscribe(told, name="sum", delivery=Reliable(durable=True))
    make.ready(desk)
    for _ in range(times):
        go(child)
        for _ in range(4):
            child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        child.stdin.close()
        child = started()
        assert desk.until(lambda: "plant" in desk.peers, GUARD)
    go(child)
    eventually(lambda: bool(seen) and seen[-1][0] == last, timeout=GUARD)
    eventually(lambda: desk.objects["sum.count"] == last, timeout=GUARD)
    assert seen == [(n, n) for n in range(1, last + 1)]
    assert desk.objects["sum.total"] == last * (last + 1) // 2
    go(child)
    child.wait()
    child.stdout.close()
    child.stdin.close()
