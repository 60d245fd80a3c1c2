"""Changes of objects are events like any: other nodes have them, each once, also after the owner was started again, and
patterns find what they say together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater import Node
from headwater.channel.objects.service import Computed
from headwater.testing import Recorder, eventually
from tests.federation.nodes import GUARD, nodes


def count(node: Node) -> None:
    with node.objects.transaction() as t:
        t.update("counter", n=Computed("n + 1"), event=True)


def test_other_nodes_have_each_change_once_also_after_a_restart(tmp_path: Path) -> None:
    files: dict[str, Any] = {"state": tmp_path / "plant", "log": str(tmp_path / "log")}
    with nodes() as make:
        office = make("office", state=tmp_path / "office")
        plant = make("plant", **files)
        plant.objects.type("Counter", "n: i64")
        with plant.objects.transaction() as t:
            t.create("counter", "Counter", n=0)
        type = plant.objects.changes("Counter").type
        seen: Recorder[Any] = Recorder()
        office.channel("objects.Counter", type).subscribe(seen, "op = 'updated'", name="desk", delivery="reliable")
        make.ready(office)
        count(plant)
        count(plant)
        seen.wait(2)
        plant.close()
        again = make("plant", connect=office.endpoints[0], **files)
        count(again)
        seen.wait(3, GUARD)
        count(again)
        seen.wait(4, GUARD)
        assert [each.new.n for each in seen.events] == [1, 2, 3, 4]


def test_patterns_look_at_changes(tmp_path: Path) -> None:
    with Node("plant", state=tmp_path / "plant") as plant:
        objects = plant.objects
        objects.type("Counter", "n: i64")
        found: Recorder[Any] = Recorder()
        objects.changes("Counter")
        with plant.match(
            "a: objects.Counter{op = 'created'}; b: objects.Counter{new.n = 2} measures b.new.n as n", found
        ):
            with objects.transaction() as t:
                t.create("counter", "Counter", n=0)
            count(plant)
            count(plant)
            found.wait(1)
        assert found.events[0].n == 2


def test_two_nodes_that_wait_for_each_other_do_not_stop(tmp_path: Path) -> None:
    """A handler of each submits to the other, and waits: turns have a thread of their own, and never wait for it."""
    with Node("a", state=tmp_path / "a") as a, Node("b", state=tmp_path / "b") as b:
        for node in (a, b):
            node.objects.type("Counter", "n: i64")
            with node.objects.transaction() as t:
                t.create("counter", "Counter", n=0)

        def tell(other: Node) -> Any:
            def handler(change: Any) -> None:
                if change.new.n < 20:
                    count(other)

            return handler

        a.objects.watch("counter", tell(b))
        b.objects.watch("counter", tell(a))
        count(a)
        count(b)
        eventually(lambda: a.objects["counter.n"] >= 20 and b.objects["counter.n"] >= 20)
