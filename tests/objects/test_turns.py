"""A turn runs what is caused depth first, bounded, each part in a savepoint: with reactions that a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headwater import Node
from headwater.errors import ConfigError, ObjectError, TransactionError
from headwater.objects.operations import Administer, Create, Outcome, Raise, Transaction, Update
from headwater.objects.reactions import Fired, Moment, Occurrence
from headwater.objects.turn import Cascades
from headwater.testing import eventually


def does(*operations: Any) -> Transaction:
    return Transaction(operations)


def put(name: str, text: str, *, event: bool = True) -> Update:
    return Update(f"//plant/{name}", {"text": text}, {}, event)


class Scripted:
    """What follows from an event, by the text that it leaves; and all that was told."""

    def __init__(self, after: dict[str, list[Fired]], within: dict[str, list[Fired]] | None = None) -> None:
        self.after, self.inside = after, within or {}
        self.told: list[str] = []
        self.failures: list[str] = []
        self.marks: list[str] = []

    def within(self, occurrence: Occurrence, moment: Moment) -> Sequence[Fired]:
        return self.inside.get(occurrence.new_raw["text"], ()) if occurrence.new_raw else ()

    def judge(self, occurrence: Occurrence, moment: Moment) -> Sequence[Fired]:
        assert occurrence.new_raw is not None
        self.told.append(occurrence.new_raw["text"])
        return self.after.get(occurrence.new_raw["text"], ())

    def note(self, occurrence: Occurrence, moment: Moment) -> None:
        assert occurrence.new_raw is not None
        self.told.append(f"silent {occurrence.new_raw['text']}")

    def failed(self, fired: Fired, outcome: Outcome, moment: Moment) -> None:
        self.failures.append(fired.trigger)

    def ended(self, moment: Moment) -> bool:
        return False

    def mark(self) -> object:
        return len(self.told)

    def undo(self, mark: Any) -> None:
        del self.told[mark:]

    def administer(self, operation: Administer, moment: Moment) -> Any:
        raise ObjectError(f"expected something that can {operation.what!r}, found a script")

    def committed(self) -> None:
        pass

    def forget(self) -> None:
        pass


Start = Callable[..., Node]


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Node]:
    with Node("plant", state=tmp_path / "state") as node:
        node.objects.type("Note", "text: text")
        for name in ("a", "b"):
            node.objects.submit(does(Create(f"//plant/{name}", "Note", {"text": ""})))
        yield node


def reacting(node: Node, reactions: Scripted, cascades: Cascades | None = None) -> Scripted:
    """Between two turns."""

    def exchange(_: Any) -> None:
        node.objects.engine.turns.react(reactions)
        node.objects.engine.turns.cascades = cascades or Cascades()

    node.objects.engine.queue.between(exchange)
    return reactions


def fires(*transactions: Transaction, **how: Any) -> list[Fired]:
    return [Fired(f"trigger {number}", each, **how) for number, each in enumerate(transactions, 1)]


def test_what_is_caused_runs_depth_first_before_anything_else(plant: Node) -> None:
    """As figure 3-3 of the thesis has it: 1 causes 2 and 5, 2 causes 3 and 4, 5 causes 6."""
    told = reacting(
        plant,
        Scripted(
            {
                "1": fires(does(put("a", "2")), does(put("b", "5"))),
                "2": fires(does(put("a", "3")), does(put("a", "4"))),
                "5": fires(does(put("b", "6"))),
            }
        ),
    )
    first = plant.objects.engine.submit(does(put("a", "1")))
    second = plant.objects.engine.submit(does(put("a", "7", event=False), put("a", "8")))
    assert first.wait().done
    assert second.wait().done
    assert told.told == ["1", "2", "3", "4", "5", "6", "silent 7", "8"]


def test_all_events_of_a_transaction_are_judged_before_what_they_cause_runs(plant: Node) -> None:
    told = reacting(plant, Scripted({"1": fires(does(put("a", "3")))}))
    plant.objects.submit(does(put("a", "1"), put("b", "2")))
    assert told.told == ["1", "2", "3"]


def test_an_action_that_fails_is_undone_alone_and_reported(plant: Node) -> None:
    told = reacting(plant, Scripted({"1": fires(does(put("a", "2"), put("missing", "x")), does(put("b", "3")))}))
    outcome = plant.objects.submit(does(put("a", "1")))
    assert [(each.trigger, "missing" in each.text) for each in outcome.failures] == [("trigger 1", True)]
    assert told.failures == ["trigger 1"]
    assert told.told == ["1", "3"]
    assert (plant.objects["a.text"], plant.objects["b.text"]) == ("1", "3")


def test_of_many_that_fail_it_is_said_how_many_are_not_told(plant: Node) -> None:
    reacting(plant, Scripted({"go": fires(*[does(put("missing", "x"))] * 70)}))
    outcome = plant.objects.submit(does(put("a", "go")))
    assert len(outcome.failures) == 64 and "6 more of this turn that are not told" in outcome.failures[-1].text
    assert plant.objects.report()["failed"] == 70


def test_an_action_that_fails_undoes_its_turn_if_that_is_wanted(plant: Node) -> None:
    told = reacting(
        plant,
        Scripted({"1": fires(does(put("b", "2"))), "2": fires(does(put("missing", "x")), on_failure="abort turn")}),
    )
    with pytest.raises(TransactionError, match=r"missing: expected an object.*everything was undone"):
        plant.objects.submit(does(put("a", "1")))
    assert told.told == []
    assert (plant.objects["a.text"], plant.objects["b.text"]) == ("", "")
    sent = plant.objects.engine.report()["channels"]["objects.Note"]
    assert sent["given"] == 2  # nothing of it leaves


def test_cascades_end(plant: Node) -> None:
    forever = {"1": fires(does(put("a", "1")))}
    for bounds in (Cascades(depth=5), Cascades(count=5)):
        reacting(plant, Scripted(forever), bounds)
        with pytest.raises(TransactionError, match="expected triggers to cause at most 5 transactions"):
            plant.objects.submit(does(put("a", "1")))
        assert plant.objects["a.text"] == ""
    for bounds in (Cascades(depth=5, beyond="cut"), Cascades(count=5, beyond="cut")):
        told = reacting(plant, Scripted(forever), bounds)
        outcome = plant.objects.submit(does(put("a", "1")))
        assert outcome.cut
        assert "the rest was left out" in outcome.failures[0].text
        assert told.told == ["1"] * 6
    wide = {"1": fires(*[does(put("b", "2"))] * 9)}
    told = reacting(plant, Scripted(wide), Cascades(count=5, beyond="cut"))
    assert plant.objects.submit(does(put("a", "1"))).cut
    assert told.told == ["1", *["2"] * 5]
    with pytest.raises(ConfigError, match="depth"):
        Cascades(depth=0, beyond="stop")  # type: ignore[arg-type]


def test_what_is_coupled_within_a_transaction_may_veto_it(plant: Node) -> None:
    inside = {"bad": [Fired("rule", veto="too bad", coupling="within")]}
    inside["1"] = fires(does(put("b", "2")), coupling="within")
    inside["2"] = fires(does(put("missing", "x")), coupling="within")
    told = reacting(plant, Scripted({}, inside))
    with pytest.raises(TransactionError, match="trigger 'rule' does not allow it: too bad"):
        plant.objects.submit(does(put("a", "ok"), put("b", "bad")))
    with pytest.raises(TransactionError, match=r"trigger 1'.*missing"):
        plant.objects.submit(does(put("a", "1")))
    assert (plant.objects["a.text"], told.told) == ("", [])
    inside["2"] = []
    plant.objects.submit(does(put("a", "1")))
    assert (plant.objects["b.text"], told.told) == ("2", ["1", "2"])


def test_what_is_decoupled_runs_behind_what_waits(plant: Node) -> None:
    told = reacting(plant, Scripted({"1": fires(does(put("b", "3")), coupling="decoupled")}))
    engine = plant.objects.engine
    items = [engine.submit(does(put("a", "1"))), engine.submit(does(put("a", "2")))]
    assert all(item.wait().done for item in items)
    eventually(lambda: plant.objects["b.text"] == "3")
    assert told.told == ["1", "2", "3"]


def test_what_is_decoupled_is_not_queued_if_the_turn_is_undone(plant: Node) -> None:
    script = {
        "1": [*fires(does(put("b", "3")), coupling="decoupled"), *fires(does(put("x", "")), on_failure="abort turn")]
    }
    told = reacting(plant, Scripted(script))
    with pytest.raises(TransactionError):
        plant.objects.submit(does(put("a", "1")))
    plant.objects.submit(does(put("a", "2")))
    assert plant.objects.engine.drain(60) is None
    assert told.told == ["2"]
    assert plant.objects["b.text"] == ""


def test_what_nobody_expects_ends_one_turn_and_no_other(plant: Node) -> None:
    class Broken(Scripted):
        def judge(self, occurrence: Occurrence, moment: Moment) -> Sequence[Fired]:
            if occurrence.object == "b":
                raise RuntimeError("a fault")
            return super().judge(occurrence, moment)

    told = reacting(plant, Broken({}))
    engine = plant.objects.engine
    items = [engine.submit(does(put("a", "1"))), engine.submit(does(put("b", "2"))), engine.submit(does(put("a", "3")))]
    outcomes = [item.wait() for item in items]
    assert [each.done for each in outcomes] == [True, False, True]
    assert outcomes[1].problems[0].text == "RuntimeError: a fault"
    assert told.told == ["1", "3"]
    assert plant.objects["b.text"] == ""


def test_events_without_a_change_cause_as_much(plant: Node) -> None:
    told = reacting(plant, Scripted({"": fires(does(put("b", "1")))}))
    plant.objects.submit(does(Raise("//plant/a")))
    assert told.told == ["", "1"]


def test_objects_are_read_while_a_turn_runs(plant: Node) -> None:
    began, go_on = threading.Event(), threading.Event()

    class Slow(Scripted):
        def judge(self, occurrence: Occurrence, moment: Moment) -> Sequence[Fired]:
            began.set()
            assert go_on.wait(60)
            return ()

    reacting(plant, Slow({}))
    turn = threading.Thread(target=plant.objects.submit, args=(does(put("a", "new")),))
    turn.start()
    assert began.wait(60)
    assert plant.objects["a"].text == "" and len(plant.objects) == 2
    assert [kept.value.text for kept in plant.objects.list()] == ["", ""]
    go_on.set()
    turn.join()
    assert plant.objects["a"].text == "new"
