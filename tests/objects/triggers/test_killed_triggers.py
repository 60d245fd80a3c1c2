"""A node that is killed while its triggers act: each turn is there as a whole or not at all, and tells once."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from headwater import Node
from headwater.testing import Recorder
from tests.effort import rounds
from tests.federation.nursery import Popen

CHILD = """
import sys
from headwater import Node
from headwater.objects.builder import Computed
from headwater.objects.triggers.history import Count

with Node("k", state=sys.argv[1]) as node:
    objects = node.objects
    objects.type("P", "n: i64")
    if "a" not in objects:
        with objects.transaction() as t:
            t.create("a", "P", n=0)
            t.create("b", "P", n=0)
            t.create("c", "P", n=0)
    objects.trigger("copy", on="a", when="each", do=lambda t: t.update("b", n=Computed("n + 1"), event=True))
    objects.trigger("even", on="b", when="becomes", where="new.n % 2 = 0", history={"all": Count("new.n >= 0")},
                    do=lambda t: t.update("c", n=t["all"].count), notify={"n": "new.n", "all": "all.count"})
    print("ready", flush=True)
    while True:
        with objects.transaction() as t:
            t.update("a", n=Computed("n + 1"), event=True)
        print("turn", flush=True)
"""


def test_nothing_is_applied_twice_or_by_halves(tmp_path: Path) -> None:
    state = tmp_path / "state"
    for number in range(rounds(2, 10)):
        child = Popen([sys.executable, "-c", CHILD, str(state)], stdout=-1, text=True)
        assert child.stdout is not None
        for line in range(4 + 3 * number):
            assert child.stdout.readline(), line
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
    heard = Recorder[Any]()
    with Node("k", state=state) as node:
        objects = node.objects
        a, b, c = (objects[f"{name}.n"] for name in "abc")
        assert a == b  # its action is in the turn
        assert c == b // 2 * 2  # the history has had every event once
        objects.triggers["even"].subscribe(heard)
        for _ in range(2):
            with objects.transaction() as t:
                t.update("a", n=objects["a.n"] + 1, event=True)
        told = heard.until(lambda events: bool(events) and events[-1].n == (b + 2) // 2 * 2, "the last one")
        assert told is None
        assert all(event.all == event.n for event in heard.events)
        assert len({event.n for event in heard.events}) == len(heard.events)
