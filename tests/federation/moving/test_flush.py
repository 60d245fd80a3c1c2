"""What `flush` and `close` wait for where sources move and nodes are started again: all that is owed, nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater import Event, Node, Reliable, i64
from tests.federation.moving.test_sources import place
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see

CHANNEL = "test.count"
DURABLE = Reliable(durable=True)


class Count(Event, name="test.Count"):
    n: i64


def sink(node: Node, seen: list[int], **options: Any) -> Any:
    return node.channel(CHANNEL, Count).subscribe(lambda event: seen.append(event.n), name="mail", **options)


def publish(source: Any, first: int, last: int) -> None:
    for n in range(first, last):
        source.publish(Count(n))


def begun(make: Nodes, path: Path, *, log: bool = True, **options: Any) -> tuple[Node, Node, Any, list[int]]:
    """A lab with a source, and a desk with a sink that has had ten events of it."""
    lab, desk = place(make, "lab", path, log=log), place(make, "desk", path, log=False)
    source = lab.channel(CHANNEL, Count).source("s")
    seen = list[int]()
    sink(desk, seen, **options)
    see(desk, lab)
    assert desk.ready(GUARD)
    publish(source, 0, 10)
    eventually(lambda: len(seen) == 10, "all came")
    return lab, desk, source, seen


@pytest.mark.parametrize("moves", ["before", "after"])
def test_nothing_is_owed_to_a_node_that_was_started_again_of_a_source_that_has_left(moves: str, tmp_path: Path) -> None:
    """What it missed it has from the node that the source has come to: it never asks the old one again."""
    with nodes() as make:
        lab, desk, source, seen = begun(make, tmp_path, delivery=DURABLE)
        hall = place(make, "hall", tmp_path)
        desk.close(drain=False, timeout=0.0)
        publish(source, 10, 20)
        if moves == "before":
            source = hall.resume_source(source.move(), timeout=GUARD)
        desk = place(make, "desk", tmp_path, log=False)
        make.together(lab, hall, desk)
        if moves == "after":
            source = hall.resume_source(source.move(), timeout=GUARD)
        see(desk, hall)
        assert desk.until(lambda: not any("@lab" in each for each in desk.remote_sources(CHANNEL)), GUARD)
        publish(source, 20, 30)
        sink(desk, seen, delivery=DURABLE)
        eventually(lambda: len(seen) == 30, "it has what it missed")
        assert lab.flush(GUARD)
        assert hall.flush(GUARD)
        assert seen == list(range(30))
