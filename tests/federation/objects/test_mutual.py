"""Two nodes that notify each other, and whose handlers wait for each other's transactions, never stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Config, Node, Queue
from headwater.dispatch import Inline, Pool
from headwater.errors import Busy
from headwater.objects import Computed
from headwater.testing import eventually
from tests.federation.nodes import GUARD, Nodes, nodes

LAST = 8  # of a chain
CHAINS = 4


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


def opened(make: Nodes, folder: Path, name: str, dispatch: Any) -> Node:
    """With room for one event at a sink, one thread for handlers, and two transactions of another node in line."""
    node = make(name, state=folder / name, config=Config(queue=Queue(limit=1), dispatch=dispatch))
    node.objects.type("Counter", "n: i64")
    with node.objects.transaction() as t:
        for chain in range(CHAINS):
            t.create(f"chains/{chain}", "Counter", n=0)
        t.create("handled", "Counter", n=0)
    node.objects.engine.queue.shares.most = 2
    return node


def count(objects: Any, name: str) -> None:
    """Blocking, and again while the owner has its hands full."""
    while True:
        try:
            with objects.transaction() as t:
                t.update(name, n=Computed("n + 1"), event=True)
            return
        except Busy:
            continue


def counted(node: Node) -> dict[str, Any]:
    chains = [node.objects[f"chains/{chain}.n"] for chain in range(CHAINS)]
    return {"chains": chains, "handled": node.objects["handled.n"]}


@pytest.mark.parametrize("dispatch", [Pool(minimum=1, maximum=1), Inline()], ids=["pool", "inline"])
def test_handlers_of_two_nodes_wait_for_each_other_and_everything_ends(
    make: Nodes, tmp_path: Path, dispatch: Any
) -> None:
    here, there = (opened(make, tmp_path, name, dispatch) for name in ("here", "there"))
    make.together()
    pairs = ((here, there), (there, here))

    def handler(node: Node, other: str) -> Any:
        def told(event: Any) -> None:
            if event.n < LAST:
                count(node.objects_at(other), event.object.partition(f"//{other}/")[2])  # at the one that has told
            count(node.objects, "handled")

        return told

    for node, other in pairs:
        trigger = node.objects_at(other.name).trigger(
            "told", on="chains/*", type="Counter", when="each", notify={"n": "new.n"}
        )
        trigger.subscribe(handler(node, other.name), dispatch=dispatch)
    for node, _ in pairs:
        make.ready(node)
    starters = [
        threading.Thread(target=count, args=(node.objects_at(other.name), f"chains/{chain}"))
        for node, other in pairs
        for chain in range(CHAINS)
    ]
    for starter in starters:
        starter.start()
    everything = {"chains": [LAST] * CHAINS, "handled": CHAINS * LAST}  # what one has handled, the other has counted
    try:
        eventually(lambda: all(counted(node) == everything for node, _ in pairs), timeout=GUARD)
    except AssertionError:
        found = {node.name: (counted(node), dict(node._crashes.counts), node.objects.report()) for node, _ in pairs}
        raise AssertionError(f"expected {everything} of each, found {found}") from None
    for starter in starters:
        starter.join(GUARD)
        assert not starter.is_alive()
    for node, _ in pairs:
        assert not node._crashes.counts, f"{node}: {node._crashes.counts}"
