"""Batches to another node whose interests want none, some or all of their rows: it gets these rows, in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.types import Event, event_type, f64, i32
from tests.federation.nodes import Log, nodes

CHANNEL = "plant.readings"


class Reading(Event):
    number: f64
    pick: i32
    late: bool


class Gauge(Event):
    number: f64
    pick: i32


class Noted(Event):
    number: f64
    pick: i32 | None
    note: str


def reading(count: int) -> Any:
    numbers = np.arange(count)
    return {"number": numbers * 1.0, "pick": (numbers % 100).astype(np.int32), "late": numbers % 3 == 0}


def gauge(count: int) -> Any:
    return {name: column for name, column in reading(count).items() if name != "late"}


def noted(count: int) -> Any:
    picks = [None if at % 7 == 0 else at % 100 for at in range(count)]
    return {
        "number": np.arange(count) * 1.0,
        "pick": pa.array(picks, pa.int32()),
        "note": [f"n{at}" for at in range(count)],
    }


def batch_of(cls: type[Event], made: Any, count: int) -> Any:
    return event_type(cls).conform(pa.table(made(count)))


@pytest.mark.parametrize(("cls", "made"), [(Reading, reading), (Gauge, gauge), (Noted, noted)])
def test_none_some_and_all_rows_arrive_once_and_in_order(cls: Any, made: Any) -> None:
    batch = batch_of(cls, made, 1200)
    parts = [batch, batch.slice(5, 1), batch.slice(100, 7), batch.slice(3, 48), batch.slice(10, 49), batch.slice(600)]
    # What passes: 1 in 100, nothing, half, nearly everything.
    wheres = ["pick == 7", "pick > 1000", "pick < 50", "number > 2"]
    with nodes() as make:
        door, desk = make("door"), make("desk")
        source = door.channel(CHANNEL, cls).source()
        logs = [Log() for _ in wheres]
        for where, log in zip(wheres, logs, strict=True):
            desk.channel(CHANNEL, cls).subscribe(log, where)
        make.ready(desk)
        for part in parts:
            source.publish_many(part)
        make.flush()
        rows = [row for part in parts for row in part.to_pylist()]
        tests = [
            lambda row: row["pick"] == 7,
            lambda row: False,
            lambda row: row["pick"] is not None and row["pick"] < 50,
            lambda row: row["number"] > 2,
        ]
        for test, log in zip(tests, logs, strict=True):
            wanted = [row for row in rows if test(row)]
            log.wait(len(wanted))
            assert [{name: getattr(event, name) for name in batch.schema.names} for event in log.events] == wanted


@pytest.mark.parametrize("where", ["pick < 1000", "pick < 50", "pick == 7", "pick == 1000"])
@pytest.mark.parametrize(("cls", "made"), [(Reading, reading), (Gauge, gauge), (Noted, noted)])
def test_batches_arrive_as_batches(cls: Any, made: Any, where: str) -> None:
    batch = batch_of(cls, made, 1200)
    with nodes() as make:
        door, desk = make("door"), make("desk")
        source = door.channel(CHANNEL, cls).source()
        log = Log()
        desk.channel(CHANNEL, cls).subscribe(lambda rows: [log(row) for row in rows.to_pylist()], where, batch=True)
        make.ready(desk)
        for _ in range(3):
            source.publish_many(batch)
        make.flush()
        limit, equal = int(where.split()[-1]), "==" in where
        picks = [row["pick"] for row in batch.to_pylist()]
        wanted = [pick is not None and (pick == limit if equal else pick < limit) for pick in picks]
        rows = batch.filter(pa.array(wanted)).to_pylist() * 3
        assert log.wait(len(rows)) == rows
