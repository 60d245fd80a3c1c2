"""The logs of a source that moves, read together: one source, each event once, numbers and times that go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater import Log, Node
from headwater.logs import LogClient, LogFiles, LogReader, replay
from headwater.testing import ManualClock
from tests.federation.moving.test_sources import CHANNEL, LISTEN, Count, publish
from tests.federation.nodes import GUARD, Nodes, nodes
from tests.federation.nodes import Log as Seen

NOON = 1_800_000_000_000_000  # microseconds
HOUR = 3_600_000_000


def at(make: Nodes, path: Path, name: str, **more: Any) -> Node:
    """A node whose log is in the folder of both."""
    if make.opened:
        more["connect"] = make.opened[0].endpoints[0]
    made = make(name, state=path / f"{name}.state", listen=LISTEN, log=Log(path / "log"), **more)
    made.channel(CHANNEL, Count)
    return made


def rows(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def check(found: list[dict[str, Any]], where: list[str]) -> None:
    """In the order of the numbers it is one source, whole, with times that do not go back, published where it was."""
    found = sorted(found, key=lambda row: row["event_seq"])
    assert {row["event_source"] for row in found} == {"s"}
    assert [row["event_seq"] for row in found] == list(range(1, len(where) + 1))
    assert [row["n"] for row in found] == list(range(len(where)))
    assert [row["event_node"] for row in found] == where
    times = [row["event_time"] for row in found]
    assert times == sorted(times)


def test_the_logs_of_both_nodes_are_one(tmp_path: Path) -> None:
    """It goes to and fro. What is at rest, what is not, a folder, the nodes themselves, and each of them alone."""
    with nodes() as make:
        lab, mill = at(make, tmp_path, "lab"), at(make, tmp_path, "mill")
        make.together()
        source = lab.channel(CHANNEL).source("s")
        publish(source, 0, 10)
        source = mill.resume_source(source.move(), timeout=GUARD)
        publish(source, 10, 20)
        where = ["lab"] * 10 + ["mill"] * 10
        for node in (mill, lab):  # what they have comes to rest
            node.close()
            make.opened.remove(node)
        mill, lab = at(make, tmp_path, "mill"), at(make, tmp_path, "lab")
        make.together()
        source = mill.channel(CHANNEL).source("s")
        publish(source, 20, 25)
        source = lab.resume_source(source.move(), timeout=GUARD)
        publish(source, 25, 40)
        where += ["mill"] * 5 + ["lab"] * 15
        files = LogFiles(tmp_path / "log")
        with LogClient([lab.endpoints[0], mill.endpoints[0]]) as both, LogClient(lab.endpoints[0]) as one:
            logs: list[LogReader] = [files, both, one]
            for log in logs:
                check(rows(log.read(CHANNEL)), where)
                spans = [(each.node, each.source, each.first, each.last, each.events) for each in log.sources(CHANNEL)]
                assert spans == [("lab", "s", 1, 40, 25), ("mill", "s", 11, 25, 15)]
                late = rows(log.read(CHANNEL, source="s", after=22, upto=30))
                assert sorted(row["event_seq"] for row in late) == list(range(23, 31))
        assert [row["event_seq"] for row in rows(files.merged(CHANNEL))] == list(range(1, 41))


def alone(node: Node) -> None:
    """Nobody minds what time it is."""


def relied_on(node: Node) -> None:
    """Somebody does, from here on."""
    node.match(f"a: {CHANNEL}, b: {CHANNEL}")


@pytest.mark.parametrize("then", [alone, relied_on])
@pytest.mark.parametrize("behind", [0, HOUR])
def test_times_go_on_at_a_node_whose_clock_is_behind(behind: int, then: Callable[[Node], None], tmp_path: Path) -> None:
    """All events of one moment, by the clocks: in the order of time, those of both nodes are in that of their numbers,
    whichever name is the first."""
    with nodes() as make:
        lab = at(make, tmp_path, "lab", clock=ManualClock(time=NOON))
        mill = at(make, tmp_path, "mill", clock=ManualClock(time=NOON - behind))
        make.together()
        source = lab.channel(CHANNEL).source("s")
        for n, node in enumerate((mill, lab, mill)):
            publish(source, 5 * n, 5 * n + 5)
            source = node.resume_source(source.move(), timeout=GUARD)
            then(node)
        publish(source, 15, 20)
        files = LogFiles(tmp_path / "log")
        check(rows(files.read(CHANNEL)), [name for name in ("lab", "mill", "lab", "mill") for _ in range(5)])
        assert [row["event_seq"] for row in rows(files.merged(CHANNEL))] == list(range(1, 21))


def test_a_replay_is_of_one_source_if_it_is_told_so(tmp_path: Path) -> None:
    with nodes() as make:
        lab, mill = at(make, tmp_path, "lab"), at(make, tmp_path, "mill")
        make.together()
        source = lab.channel(CHANNEL).source("s")
        publish(source, 0, 10)
        source = mill.resume_source(source.move(), timeout=GUARD)
        publish(source, 10, 20)
    seen = Seen()
    with Node("again") as node:
        once = node.channel(CHANNEL, Count)
        once.subscribe(seen)
        one = once.source("s")
        told = replay(tmp_path / "log", node, source=lambda channel, place, name: one)
        assert told.events == 20
        assert seen.field("n") == list(range(20)) and one.seq == 20
