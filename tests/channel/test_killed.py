"""Durable subscriptions in processes that are killed: nothing is lost, and what comes again says so."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import About, Node
from headwater.dispatch import WAIT
from headwater.store import NodeState
from tests.channel.far import DURABLE, MANUAL
from tests.effort import examples
from tests.federation.nursery import Popen, run

CHILD = """
import os, sqlite3, sys
from headwater import Node
from headwater.channel.options.delivery import Reliable
from headwater.store import NodeState

folder, mode, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
out = os.open(f"{folder}/seen", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
node = Node()
channel = node.channel("a", "badge: u32")
delivery = Reliable(durable=True, acknowledge="manual" if mode == "manual" else "return")
if mode == "within":
    connection = sqlite3.connect(f"{folder}/own", check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS seen (badge INTEGER)")
    delivery = Reliable(within=connection)
else:
    node.state = NodeState(f"{folder}/state")

def handle(event, about):
    if mode == "within":
        connection.execute("INSERT INTO seen VALUES (?)", (event.badge,))
    os.write(out, f"{event.badge} {int(about.redelivered)}\\n".encode())
    if mode == "itself" and event.badge % 5 == 0 and not about.redelivered:
        os.kill(os.getpid(), 9)
    if mode == "manual" and event.badge % 7 == 0:
        about.acknowledge()
    print(event.badge, flush=True)

def handle_batch(batch, about):
    for number, badge in enumerate(batch["badge"].to_pylist()):
        os.write(out, f"{badge} {int(about.redelivered)}\\n".encode())
    print(batch["badge"][-1], flush=True)

batch = 16 if mode == "batch" else False
channel.subscribe(handle_batch if batch else handle, name="x", delivery=delivery, batch=batch)
source = channel.source()
source.position_key = "far"
source.resent = lambda seq: True
if batch:
    for first in range(1, last + 1, 40):
        source.publish_many([{"badge": number} for number in range(first, min(first + 40, last + 1))])
else:
    for number in range(1, last + 1):
        source.publish(badge=number)
node.close()
print("end", flush=True)
"""


def run_and_kill(folder: Path, mode: str, last: int, kills: list[int]) -> list[tuple[int, bool]]:
    """Run it again and again, killed after so many calls of its handler, at last to the end: what it has seen."""
    command = [sys.executable, "-c", CHILD, str(folder), mode, str(last)]
    for calls in kills:
        with Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(calls):
                child.stdout.readline()
            os.kill(child.pid, signal.SIGKILL)
    ended = run(command, capture_output=True, text=True)
    assert ended.returncode == 0 and ended.stdout.endswith("end\n"), ended.stderr
    lines = (line.split() for line in (folder / "seen").read_text().splitlines())
    return [(int(badge), marked == "1") for badge, marked in lines]


def test_killed_at_most_the_event_in_flight_comes_again_and_is_marked(tmp_path: Path) -> None:
    seen = run_and_kill(tmp_path, "state", 6000, [1, 40, 333, 1000])
    seen_once: set[int] = set()
    again = 0
    for badge, marked in seen:
        if badge in seen_once:
            again += 1
            assert marked
        seen_once.add(badge)
    assert seen_once == set(range(1, 6001)) and again <= 4
    assert sum(marked for _, marked in seen) <= 4  # the first after each kill may have been seen, none else


def test_killed_all_that_was_not_acknowledged_comes_again_and_is_marked(tmp_path: Path) -> None:
    kills = [1, 4, 40, 333, 1000]
    seen = run_and_kill(tmp_path, "manual", 3000, kills)
    seen_once: set[int] = set()
    marked_for_nothing = 0
    for badge, marked in seen:
        assert marked or badge not in seen_once
        marked_for_nothing += marked and badge not in seen_once
        seen_once.add(badge)
    assert seen_once == set(range(1, 3001))
    assert len(seen) <= 3000 + 7 * len(kills) and marked_for_nothing <= len(kills)


def test_killed_in_the_handler_that_event_comes_again(tmp_path: Path) -> None:
    seen = run_and_kill(tmp_path, "itself", 12, [100, 100])
    numbers = [badge for badge, _ in seen]
    assert numbers == [1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 10, 11, 12]
    assert [badge for badge, marked in seen if marked] == [5, 10]


def test_killed_at_most_the_batch_in_flight_comes_again_and_is_marked(tmp_path: Path) -> None:
    seen = run_and_kill(tmp_path, "batch", 6000, [1, 7, 60])
    seen_once: set[int] = set()
    for badge, marked in seen:
        assert marked or badge not in seen_once
        seen_once.add(badge)
    assert seen_once == set(range(1, 6001)) and len(seen) - 6000 <= 3 * 16


def test_killed_within_a_transaction_nothing_is_lost_or_written_twice(tmp_path: Path) -> None:
    run_and_kill(tmp_path, "within", 3000, [1, 40, 333])
    connection = sqlite3.connect(tmp_path / "own")
    assert [badge for (badge,) in connection.execute("SELECT badge FROM seen ORDER BY rowid")] == list(range(1, 3001))
    assert connection.execute("SELECT seq FROM headwater_positions").fetchall() == [(3000,)]
    connection.close()


# ── any sequence of ends ──


@settings(deadline=None, max_examples=examples(40))
@given(
    lives=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.booleans()), min_size=1, max_size=5),
    failing=st.sets(st.integers(1, 40), max_size=4),
    pull=st.booleans(),
    manual=st.booleans(),
    acknowledged=st.sets(st.integers(1, 40), max_size=8),
)
def test_whatever_becomes_of_the_process_nothing_is_lost_and_repeats_are_marked(
    lives: list[tuple[int, int, bool]], failing: set[int], pull: bool, manual: bool, acknowledged: set[int]
) -> None:
    """Each life publishes some more, handles some of it and ends: what was handled is not lost, and whatever is shown
    twice, and nothing else, is marked."""
    state = NodeState(":memory:")
    shown: list[tuple[int, bool]] = []
    total = done = 0
    logging.disable(logging.CRITICAL)
    try:
        for more, handled, asks in [*lives, (0, 1000, True)]:
            before, total = total, total + more
            with Node() as node:
                node.state = state
                channel = node.channel("a", "badge: u32")
                left = [handled]

                def handle(event: Any, about: About, left: list[int] = left, done: int = done) -> None:
                    left[0] -= 1
                    assert event.badge > done
                    shown.append((event.badge, about.redelivered))
                    if manual and event.badge in acknowledged:
                        about.acknowledge()
                    if event.badge in failing:
                        raise ValueError("no")

                subscription = channel.subscribe(
                    None if pull else handle,
                    name="x",
                    delivery=MANUAL if manual else DURABLE,
                    about=True,
                    failures=0,
                    before=None if pull else lambda e, about, left=left: True if left[0] > 0 else WAIT,
                )
                source: Any = channel.source()
                source.position_key, source.resent = "far", lambda seq, before=before: seq <= before
                for number in range(1, total + 1):
                    source.publish(badge=number)
                if pull:
                    for _ in range(handled):
                        found = subscription.poll()
                        if found is None:
                            break
                        shown.append((found[0].badge, found[1].redelivered))
                        if manual and found[0].badge in acknowledged:
                            found[1].acknowledge()
                    if asks:
                        subscription.acknowledge()
                done = state.positions("x").get("far", 0)
                node.close(drain=False)
    finally:
        logging.disable(logging.NOTSET)
        state.close()
    assert {badge for badge, _ in shown} == set(range(1, total + 1))
    once: set[int] = set()
    for badge, marked in shown:
        assert marked == (badge in once)
        once.add(badge)
