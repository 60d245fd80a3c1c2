"""An insider that floods an owner: with transactions, with new expressions, with triggers that remember too much. It is
told to come later, or no; others go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import Busy, FederationError
from headwater.federation.objects import trigger_server
from headwater.federation.objects.budgets import Budgets
from headwater.federation.wire.object_requests import SubmitTransaction
from headwater.objects import expressions
from headwater.objects.operations import Guard, Invoke, Raise, Transaction, pack, unpack_outcome
from headwater.objects.replicas import owner
from headwater.objects.triggers.definition import over
from headwater.testing import eventually
from tests.federation.nodes import GUARD, Nodes, nodes
from tests.federation.objects.plant import Plant


@pytest.fixture
def make() -> Iterator[Nodes]:
    with nodes() as made:
        yield made


class Held:
    """Within the block a turn goes on, so that everything else is in line."""

    def __init__(self, plant: Plant) -> None:
        self.plant, self.go, self.begun = plant, threading.Event(), threading.Event()

        def block(tank: Any) -> float:
            self.begun.set()
            self.go.wait(GUARD)
            return 1.0

        block.__annotations__ = {"tank": plant.objects.types["Tank"].binding.cls, "return": float}
        plant.objects.method("Tank", block)
        with plant.objects.transaction() as t:
            t.create("tank", "Tank", level=0.0)

    def __enter__(self) -> None:
        self.plant.objects.engine.submit(Transaction((Invoke("tank", "block"),)), waits=True)
        assert self.begun.wait(GUARD)

    def __exit__(self, *_: object) -> None:
        self.go.set()


def test_a_node_that_floods_the_queue_is_told_to_come_later_and_others_are_served(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    plant.objects.engine.queue.shares.most = 4
    dialogue: Any = plant.desk._engine
    peer = next(each for each in dialogue.everyone() if each.name == "plant")
    body = pack(Transaction((Raise("//plant/tank"),)))
    held, waited = Held(plant), []
    client = threading.Thread(target=lambda: waited.append(plant.remote.submit(Transaction((Raise("tank"),)))))
    ran = plant.remote.submit(Transaction((Raise("tank"),), b"r" * 16))
    with held:
        answers = [
            dialogue.dialogue.ask(peer, SubmitTransaction(body, bytes([n]) * 16, 0.0, n % 2 == 0)) for n in range(7)
        ]
        assert [each.busy > 0 for each in answers] == [False] * 4 + [True] * 3
        assert "wait until some have run" in answers[-1].why
        again = dialogue.dialogue.ask(peer, SubmitTransaction(body, bytes(16), 0.0))
        assert not again.busy  # it is in line already
        lost = dialogue.dialogue.ask(peer, SubmitTransaction(body, b"r" * 16, 0.0))
        assert unpack_outcome(lost.outcome) == ran  # it has run already, and its answer was lost
        with pytest.raises(Busy, match=r"at most 4 transactions.*its ticket is"):
            plant.remote.submit(Transaction((Raise("tank"),)), timeout=0.0)
        own = plant.objects.engine.submit(Transaction((Raise("tank"),)))
        client.start()  # it waits for its share
        eventually(lambda: plant.owner.services.get("objects for others").report()["told to come later"] >= 5)  # type: ignore[union-attr]
    assert own.wait(GUARD).done
    client.join(GUARD)
    assert waited[0].done


def test_expressions_are_compiled_before_their_turn_and_new_ones_have_a_budget(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    server: Any = plant.owner.services.get("objects for others")
    held, budgets = Held(plant), server._opened()[0]._budgets
    before = len(expressions.OTHERS)
    with held:
        ticket = threading.Thread(target=lambda: plant.remote.submit(Transaction((Guard("1 + 987654 > 1"),))))
        ticket.start()
        eventually(lambda: len(expressions.OTHERS) == before + 1)  # the turn thread does something else
    ticket.join(GUARD)
    budgets.seconds, budgets.rate = 0.005, 1e-9
    with pytest.raises(Busy, match="use parameters"):
        for number in range(10_000):
            plant.remote.submit(Transaction((Guard(f"{number} < 100000"),)), timeout=1.0)
    plant.remote.submit(Transaction((Raise("tank"),)))  # without any, it goes on
    with pytest.raises(FederationError, match="use parameters"):
        plant.remote.trigger("t", on="tank", when="each", where="new.level > 5")
    with plant.objects.transaction() as t:
        t.only_if("2 > 1")


def test_a_budget_fills_again() -> None:
    now = [0.0]
    budgets = Budgets(1.0, 0.1, now=lambda: now[0], most=2)
    budgets.check("a")
    budgets.spend("a", 1.5)
    with pytest.raises(Busy) as caught:
        budgets.check("a")
    assert 5.0 < caught.value.after < 6.0
    budgets.check("b")
    now[0] += caught.value.after
    budgets.check("a")
    now[0] += 1e6
    assert budgets.left("a") == 1.0
    for node in ("a", "b", "c"):
        budgets.spend(node, 5.0)
    assert len(budgets._left) == 2


def test_triggers_that_would_cost_every_event_too_much_are_refused(
    make: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = Plant(make, tmp_path)
    with plant.objects.transaction() as t:
        t.create("tank", "Tank", level=0.0)
    long = " or ".join(f"sqrt(abs(new.level * {n} + event.turn)) > {n}" for n in range(300))
    texts = " or ".join(f"contains(new.label, 'x{n}')" for n in range(300))
    monkeypatch.setattr(trigger_server, "MOST_COST", 1_000)
    for where in (long, texts):
        with pytest.raises(FederationError, match=r"native operations at an event.*ask what the index can decide"):
            plant.remote.trigger("t", on="tank", when="each", where=where)
    short = "sqrt(abs(new.level * {} + event.turn)) > 1"
    with pytest.raises(FederationError, match="native operations"):
        for number in range(1000):  # each by itself is little
            plant.remote.trigger(f"t{number}", on="tank", when="each", where=short.format(number))
    assert len(plant.objects.triggers) > 5


def test_who_asks_for_too_much_again_and_again_uses_up_its_budget(
    make: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that is too large is found to be so in a turn, which others wait for."""
    plant = Plant(make, tmp_path)
    with plant.objects.transaction() as t:
        for number in range(3):
            t.create(f"tanks/{number}", "Tank", level=0.0)
    monkeypatch.setattr(owner, "MOST_OBJECTS", 2)
    server: Any = plant.owner.services.get("objects for others")
    server._opened()[0]._budgets.rate = 1e-9
    said, turns = list[str](), list[int]()
    for number in range(10):
        with pytest.raises(FederationError) as found:
            plant.remote.replica("**", type="Tank", bound={"level": float(number)})
        said.append(str(found.value))
        turns.append(plant.turns)
    assert "expected at most 2 objects in one" in said[0]
    assert "triggers and replicas of one node to take" in said[-1] and turns[-1] == turns[-2]
    assert plant.remote.get("tanks/1") is not None  # without any, it goes on


def test_triggers_that_would_remember_too_much_are_refused(make: Nodes, tmp_path: Path) -> None:
    plant = Plant(make, tmp_path)
    shares = plant.objects.engine.triggers.shares
    shares.most_places = 10
    with plant.objects.transaction() as t:
        for number in range(9):
            t.create(f"tanks/{number}", "Tank", level=0.0)
    past = {"past": over("new.level", "1 hour")}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"history": {"past": over("new.level", "1 hour", most=100_000)}}, "most: expected at most 4,096 values"),
        (
            {"when": "becomes", "history": past, "where": "past.count > 1"},
            "remember at most 10 things.*found 0, and 18",
        ),
        ({"where": " or ".join(f"new.level > {n}" for n in range(2000))}, "at most 16,384 characters"),
    ]
    for about, message in refused:
        with pytest.raises(FederationError, match=message):
            plant.remote.trigger("t", **{"on": "tanks/*", "type": "Tank", "when": "each", **about})
    plant.remote.trigger("t", on="tanks/*", type="Tank", when="each", history=past, where="past.count > 1")
    for _ in range(2):
        with plant.objects.transaction() as t:
            for number in range(9):
                t.update(f"tanks/{number}", level=1.0, event=True)
    assert list(shares.places.values()) == [9]
    with pytest.raises(FederationError, match="found 9, and 9 more"):
        plant.remote.trigger("u", on="tanks/*", type="Tank", when="becomes", where="new.level > 1")
    plant.remote.trigger("t", on="tanks/*", type="Tank", when="each", history=past, where="past.count > 1")  # again
