"""Ctrl-C in a thread that runs its turn itself: what was committed has happened, and what was not has not."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Node
from headwater.objects.builder import Computed
from headwater.store import durability
from headwater.testing import eventually


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Node]:
    """A counter; a trigger that counts its changes beside it, and one that does so behind all others."""
    with Node("plant", state=tmp_path / "state") as node:
        objects = node.objects
        objects.type("Counter", "count: i64")
        with objects.transaction() as t:
            for name in ("first", "after", "later"):
                t.create(name, "Counter", count=0)
        for name, coupling in (("after", "after"), ("later", "decoupled")):
            objects.trigger(
                name,
                on="first",
                when="each",
                coupling=coupling,
                do=lambda t, name=name: t.update(name, {"count": Computed("count + 1")}),
            )
        yield node


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """As in a program at a terminal: what is started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but with Ctrl-C at its first call in this thread, before it has done anything."""
    left, me = [None], threading.get_ident()

    def interrupted(*args: Any) -> Any:
        if left and threading.get_ident() == me:
            left.pop()
            signal.raise_signal(signal.SIGINT)
        return function(*args)

    return interrupted


def count(node: Node) -> None:
    with node.objects.transaction() as t:
        t.update("first", {"count": Computed("count + 1")}, event=True)


def counts(node: Node) -> list[int]:
    return [node.objects[name].count for name in ("first", "after", "later")]


@pytest.mark.parametrize("where", ["_tidy", "sync", "_committed"])
def test_an_interrupted_turn_has_happened_or_has_not(plant: Node, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    count(plant)
    eventually(lambda: counts(plant) == [1, 1, 1])
    plant.objects.engine.drain(60.0)
    eventually(lambda: plant.objects.engine.queue._is_free)
    queue = plant.objects.engine.queue
    target, name = (durability, "sync") if where == "sync" else (queue, where)
    monkeypatch.setattr(target, name, once(getattr(target, name)))
    with pytest.raises(KeyboardInterrupt):
        count(plant)
    happened = 1 if where == "_tidy" else 2  # before the commit, and after it
    eventually(lambda: counts(plant) == [happened] * 3)
    count(plant)
    eventually(lambda: counts(plant) == [happened + 1] * 3)
    assert plant.objects.engine.report()["trouble"] == ""
