"""The state of an earlier version of objects and triggers, as a killed node left it, opens and goes on.

`states/` has what `sqlite3` dumps of such files, by the version of the tables of objects: 1 was before transactions
were kept with the node that has sent them.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from headwater import Node
from headwater.objects.operations import Permits, Transaction, Update
from headwater.objects.tables import OBJECTS
from headwater.store.state import APPLICATION
from headwater.testing import Recorder

STATES = Path(__file__).parent / "states"
EARLIER = sorted(STATES.glob("objects-*.sql"))


def restored(dump: Path, to: Path) -> Path:
    connection = sqlite3.connect(to)
    connection.executescript(dump.read_text())
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    return to


def test_there_is_one_of_each_earlier_version() -> None:
    assert [each.stem for each in EARLIER] == [f"objects-{number}" for number in range(1, OBJECTS.version)]


@pytest.mark.parametrize("dump", EARLIER, ids=lambda each: each.stem)
def test_an_earlier_state_opens_and_goes_on(dump: Path, tmp_path: Path) -> None:
    told: Recorder[Any] = Recorder()
    with Node("plant", state=restored(dump, tmp_path / "state"), log=tmp_path / "log") as node:
        objects = node.objects
        assert not objects.report()["lost triggers"]
        objects.drain(monotonic() + 60.0)  # one of another node was queued
        assert objects.outcome(b"q" * 16).done  # type: ignore[union-attr]
        assert objects["tank.level"] == 3.0
        assert objects.outcome(b"t" * 16).turn == 1  # type: ignore[union-attr]
        high = objects.triggers["high"]
        high.subscribe(told)
        sent = Transaction((Update("//plant/tank", {"level": 9.0}, {}, True),), b"n" * 16, {}, "desk.abc",
                           Permits(("Tank",), ("Tank",)))  # fmt: skip
        outcome = objects.engine.submit(sent).wait()
        assert outcome.turn > 4096  # numbers of turns are not given again
        [event] = told.wait(1)
        assert (event.level, event.last) == (9.0, 7.0)  # what it remembered is there: the value at the last firing,
        assert event.mean == (6.0 + 1.0 + 7.0 + 2.0 + 3.0 + 9.0) / 6  # and its history
        assert objects["sum.level"] == 3.0
    with Node("plant", state=tmp_path / "state", log=tmp_path / "log") as node:
        assert node.objects["tank.level"] == 9.0
        rows = dict(node.objects.engine._tables.read("SELECT ticket, caller FROM outcomes"))
        assert rows == {b"t" * 16: "", b"q" * 16: "desk.abc", b"n" * 16: "desk.abc"}
        assert not node.objects.report()["unsent"]
        past = node.objects.history("Tank", "tank").to_pylist()
        assert [each["new"]["level"] for each in past] == [1.0, 6.0, 1.0, 7.0, 3.0, 9.0]  # what had not left then, too
