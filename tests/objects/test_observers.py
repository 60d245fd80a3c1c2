"""Observers see every change of objects in its turn, silent ones too, and nothing of what was undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.errors import ObjectError, TransactionError
from headwater.objects.engine import ObjectEngine
from headwater.objects.observers import Observer
from headwater.objects.operations import Administer, Create, Destroy, Guard, Raise, Transaction, Update
from headwater.objects.reactions import Leaving, Moment, Occurrence
from headwater.objects.triggers.administration import installing
from headwater.objects.triggers.definition import trigger
from headwater.store import NodeState
from headwater.types import EventType, event_type
from headwater.types.declaration import parse_record

TANK = event_type(parse_record("level: f64", "Tank"))


class Nowhere:
    """Outlets on which nobody listens."""

    def open(self, channel: str, type: EventType, sent: int, again: int = 0) -> int:
        return sent

    def last(self, channel: str, type: EventType) -> int:
        return 0

    def send(self, leaving: list[Leaving]) -> None:
        pass

    def unheard(self, leaving: Leaving) -> bool:
        return True


class Witness(Observer):
    """Keeps what it has seen, as its journal lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str, Any]] = []
        self.durable = 0

    @property
    def errands(self) -> dict[str, Any]:
        return {"testify": lambda operation, moment: len(self.seen)}

    def changed(self, occurrence: Occurrence, moment: Moment) -> None:
        raw = occurrence.new_raw
        self.seen.append((occurrence.object, occurrence.op, None if raw is None else raw["level"]))
        self.journal.did(self.seen.pop)

    def committed(self) -> None:
        self.durable = len(self.seen)


def engine(path: Path, *observers: Observer) -> ObjectEngine:
    made = ObjectEngine("plant", NodeState(path), Nowhere(), lambda name: None, observers=observers)
    made.start()
    made.declare("Tank", TANK)
    return made


def run(of: ObjectEngine, *operations: Any) -> Any:
    return of.submit(Transaction(operations)).wait().check().results


def test_every_change_is_seen_once_in_order_also_silent_ones(tmp_path: Path) -> None:
    witness = Witness()
    of = engine(tmp_path / "state", witness)
    run(of, Create("a", "Tank", {"level": 1.0}), Update("a", {"level": 2.0}), Update("a", {"level": 3.0}, event=True))
    run(of, Raise("a"))
    found = run(of, Destroy("a"), Administer("testify", "", alias="seen"))
    assert witness.seen == [
        ("a", "created", 1.0),
        ("a", "updated", 2.0),
        ("a", "updated", 3.0),
        ("a", "destroyed", None),
    ]
    assert found["seen"] == 3  # what is destroyed is told when the transaction is done
    assert witness.durable == 4
    of.close()


def test_what_is_undone_was_not_seen(tmp_path: Path) -> None:
    witness = Witness()
    of = engine(tmp_path / "state", witness)
    run(of, Create("a", "Tank", {"level": 1.0}))
    with pytest.raises(TransactionError):
        run(of, Update("a", {"level": 2.0}, event=True), Guard("false"))
    run(
        of,
        installing(
            trigger(
                "fails",
                on="a",
                when="each",
                do=[Update("missing", {"level": 0.0})],
                on_failure="abort turn",
                node="plant",
            )
        ),
    )
    with pytest.raises(TransactionError):
        run(of, Update("a", {"level": 4.0}, event=True))
    assert witness.seen == [("a", "created", 1.0)]
    of.close()


def test_errands_of_two_observers_must_differ(tmp_path: Path) -> None:
    with pytest.raises(ObjectError, match="testify in use"):
        engine(tmp_path / "state", Witness(), Witness())
