"""The code of pages that need Spark runs, block after block, as a reader would run it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater import Node
from tests.pages import run_page


@pytest.fixture
def folder(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a page is run; commands on it use the session of all tests, and do not end it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    return tmp_path


def at(folder: Path) -> dict[str, str]:
    """Java has a present folder of its own, in which it was started, and takes relative paths from there."""
    texts = ('"events', " events/", "--log events", '"checkpoints/', '"visits/', " visits/")
    return {text: re.sub(r"(?=events|checkpoints|visits)", f"{folder}/", text) for text in texts}


def logged(channel: str, type: str, *events: dict[str, Any]) -> None:
    """A log in the folder `events`, as the pages have it."""
    with Node("lab", log="events") as node:
        source = node.channel(channel, type).source("hall")
        for event in events:
            source.publish(**event)


def test_interests_on_frames(spark: Any, folder: Path) -> None:
    doors = spark.range(3).selectExpr("0L AS door", "string(id) AS who", "timestamp_millis(id) AS at")
    doors.createOrReplaceTempView("doors")
    (folder / "events").mkdir()
    table = pa.table({"level": [0.2, 0.7, 0.9], "zone": pa.array([3, 3, 4], pa.int32())})
    pq.write_table(table, folder / "events" / "part.parquet")
    names = run_page("docs/spark.md", folder, written=at(folder))
    assert names["where"](names["events"], names["loud"]).count() == 1
    assert names["derive"](names["events"], names["halved"]).count() == 3


def test_streams(folder: Path) -> None:
    logged("ie.tcd.sighting", "badge: text, level: f64", *({"badge": "a", "level": n / 10} for n in range(10)))
    names = run_page("docs/spark-streams.md", folder, written=at(folder))
    query = names["query"]
    query.stop()  # what it publishes is seen in test_examples.py and tests/spark/live
    assert query.name is None and query.exception() is None


def test_a_source_that_has_moved(folder: Path) -> None:
    names = run_page("docs/moving.md", folder)
    assert names["moved"].seq == 2


def test_backtests(folder: Path) -> None:
    (folder / "badges.csv").write_text("badge,kind\na,person\nb,visitor\n", encoding="utf-8")
    events = [{"badge": badge, "network": "ORL-Net#1", "level": 0.7} for badge in "abb"]
    logged("orl.sighting", "badge: text, network: text, level: f64", *events)
    with Node("desk", state="desk.state", log="events") as desk:
        desk.objects.type("Stock", "price: f64")
        desk.objects.type("Desk", "open: bool")
        with desk.objects.transaction() as t:
            t.create("stock/acme", "Stock", price=95.0)
            t.create("desk", "Desk", open=True)
            t.update("stock/acme", price=85.0, event=True)
    names = run_page("docs/backtest.md", folder, written=at(folder))
    assert names["report"].subscription("god").events == 3
    assert names["tried"].counts()["low"]["fired"] == 1
    assert len(names["row"].firings) == 1 and names["coarse"].messages.events == 3


def test_ingest(folder: Path) -> None:
    text = "time,badge,level\n2026-01-31T12:00:00Z,a,0.5\n2026-01-31T12:00:01Z,b,0.7\n"
    (folder / "visits.csv").write_text(text, encoding="utf-8")
    (folder / "visits").mkdir()
    (folder / "visits" / "monday.csv").write_text(text, encoding="utf-8")
    names = run_page("docs/ingest.md", folder, written=at(folder))
    assert names["report"].logged == 2
    assert names["IngestMapping"].load(folder / "sightings.toml").channel == "hub.sighting"
