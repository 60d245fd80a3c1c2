"""What survives: restarts, kills at every write, a full disk, the same ticket twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headwater import Event, Node
from headwater.channel.objects.service import Computed
from headwater.errors import ObjectError, StoreError, TransactionError
from headwater.objects import tables
from headwater.objects.operations import Transaction, pack
from headwater.testing import Recorder, eventually
from tests.effort import EFFORT

ROOT = Path(__file__).parent.parent.parent


def opened(folder: Path, **options: object) -> Node:
    return Node("plant", state=folder / "state", **options)  # type: ignore[arg-type]


def counter(node: Node) -> None:
    node.objects.type("Counter", "n: i64")
    with node.objects.transaction() as t:
        t.create("counter", "Counter", n=0)


def test_objects_types_and_numbers_of_turns_survive(tmp_path: Path) -> None:
    with opened(tmp_path) as node:
        counter(node)
        first = node.objects.get("counter")
    with opened(tmp_path) as node:
        assert node.objects.get("counter") == first
        with node.objects.transaction() as t:
            t.update("counter", n=Computed("n + 1"))
        assert first is not None
        assert t.outcome.turn > first.turn
        assert node.objects["counter.n"] == 1


def test_the_same_ticket_runs_once(tmp_path: Path) -> None:
    with opened(tmp_path) as node:
        counter(node)
        ticket = node.objects.ticket()

        def once(node: Node) -> int:
            with node.objects.transaction(ticket=ticket) as t:
                t.update("counter", n=Computed("n + 1"))
                t.read("counter.n")
            return int(t.results["n"])

        assert once(node) == once(node) == 1
        refused = node.objects.ticket()
        for _ in range(2):
            with pytest.raises(TransactionError, match="operation 1"), node.objects.transaction(ticket=refused) as t:
                t.destroy("nothing")
    with opened(tmp_path) as node:
        assert once(node) == node.objects["counter.n"] == 1
        found = node.objects.outcome(ticket)
        assert found is not None
        assert found.results == {"n": 1}
        with pytest.raises(ObjectError, match="expected that of a transaction of the last"):
            node.objects.outcome(node.objects.ticket())


def test_what_is_not_waited_for_runs_in_order_and_its_outcome_is_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as node:
        counter(node)
        tickets = []
        for number in range(50):
            t = node.objects.builder()
            t.read("counter.n")
            t.only_if(f"n = {number}")
            t.update("counter", n=Computed("n + 1"))
            tickets.append(node.objects.submit(t, wait=False))
    with opened(tmp_path) as node:
        eventually(lambda: node.objects["counter.n"] == 50)
        assert all(node.objects.outcome(each).check().results == {"n": n} for n, each in enumerate(tickets))  # type: ignore[union-attr]


def test_what_is_queued_waits_for_the_methods_of_a_life_before(tmp_path: Path) -> None:
    class Counter(Event):
        n: int

    def more(counter: Counter) -> Counter:
        return Counter(counter.n + 1)

    with opened(tmp_path) as node:
        node.objects.type("Counter", Counter)
        with node.objects.transaction() as t:
            t.create("counter", "Counter", n=0)
        node.objects.method("Counter", more)
        t = node.objects.builder()
        t.invoke("counter", "more")
        body, state = pack(Transaction(t.build().operations, b"1" * 16)), node.state
        assert state is not None
        node.objects.engine.queue.between(lambda execute: tables.queue_last(execute, b"1" * 16, body))
    with opened(tmp_path) as node:  # it was queued, and nobody knew: as after a kill
        node.objects.type("Counter", Counter)
        node.objects.method("Counter", more)
        with node.objects.transaction() as t:
            t.read("counter.n")
        assert t.results == {"n": 1}
        assert node.objects.outcome(b"1" * 16).done  # type: ignore[union-attr]


def test_sources_of_changes_are_there_as_soon_as_objects_are(tmp_path: Path) -> None:
    with opened(tmp_path) as node:
        counter(node)
    with opened(tmp_path) as node:
        assert "counter" in node.objects
        eventually(lambda: any(channel.sources for channel in node.channels("objects.Counter")))
        [source] = node.channel("objects.Counter").sources.values()
        assert source.seq == 1


def test_what_leaves_is_logged_once_also_if_it_was_not_sent(tmp_path: Path) -> None:
    """A node without its log sends nothing twice when it has it again; what was sent meanwhile is not in it."""
    seen: Recorder[object] = Recorder()
    with opened(tmp_path, log=str(tmp_path / "log")) as node:
        counter(node)
    with opened(tmp_path, log=str(tmp_path / "log")) as node:
        node.objects.changes("Counter").subscribe(seen)
        with node.objects.transaction() as t:
            t.update("counter", n=1, event=True)
        seen.wait(1)
        channel = node.objects.changes("Counter")
        assert [source.seq for source in channel.sources.values()] == [2]
        past = node.objects.history("Counter", "counter").to_pylist()
        assert [(each["event_seq"], each["new"]["n"]) for each in past] == [(1, 0), (2, 1)]
        assert node.objects.history("Counter", "other").num_rows == 0
    with opened(tmp_path) as node, pytest.raises(ObjectError, match="open it with a log"):
        node.objects.history("Counter")


def test_a_new_state_goes_on_behind_the_numbers_of_an_old_log(tmp_path: Path) -> None:
    for life in range(2):
        with Node("plant", state=tmp_path / f"state{life}", log=str(tmp_path / "log")) as node:
            counter(node)
            assert node.objects.engine.outbox.wait(60)
            [source] = node.objects.changes("Counter").sources.values()
            assert source.seq == life + 1


def test_killed_at_any_statement_nothing_is_lost_and_nothing_happens_twice(tmp_path: Path) -> None:
    step = 1 if EFFORT > 1 else 29
    found = subprocess.run(
        [sys.executable, "-m", "tests.objects.killed", str(tmp_path), "0", str(step)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    lines = found.stdout.splitlines()
    assert found.returncode == 0, found.stderr
    assert len(lines) == 1, "\n".join(lines)
    assert int(lines[0].split()[0]) > 20


_FULL = """
import resource, sys
from headwater import Event, Node
from headwater.channel.objects.service import Computed
from headwater.errors import StoreError

with Node("plant", state=sys.argv[1]) as node:
    node.objects.type("Text", "t: text, n: i64")
    with node.objects.transaction() as t:
        t.create("it", "Text", t="", n=0)
    import os, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = max(os.path.getsize(sys.argv[1] + end) for end in ("", "-wal"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, resource.RLIM_INFINITY))
    done = 0
    try:
        for number in range(1000):
            with node.objects.transaction() as t:
                t.update("it", t="x" * 5000, n=Computed("n + 1"), event=True)
            done += 1
    except StoreError:
        pass
    else:
        raise SystemExit("nothing was full")
    try:
        node.objects.submit((lambda t: (t.update("it", t="y" * 50_000), t)[1])(node.objects.builder()), wait=False)
    except StoreError:
        pass
    else:
        raise SystemExit("accepted on a full disk")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with node.objects.transaction() as t:
        t.update("it", t="", n=Computed("n + 1"), event=True)
        t.read("it.n")
    assert t.results["n"] == done + 1, (t.results, done)
    assert node.objects.engine.outbox.wait(60)
    [source] = node.objects.changes("Text").sources.values()
    assert source.seq == done + 2, (source.seq, done)
print("ok")
"""


def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", _FULL, str(tmp_path / "state")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert found.stdout == "ok\n", found.stderr


def test_a_closed_node_takes_no_transactions(tmp_path: Path) -> None:
    with opened(tmp_path) as node:
        counter(node)
        objects = node.objects
    with pytest.raises((StoreError, ObjectError, RuntimeError), match="closed"), objects.transaction() as t:
        t.destroy("counter")
