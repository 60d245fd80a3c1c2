"""Whole backtests on Spark: of a log and of a DataFrame, and as a command."""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import ConfigError, MissingExtra, StoreError
from headwater.extras import EXTRAS
from headwater.interest import Interest, as_event_type
from headwater.spark import where
from headwater.spark.backtest import Backtest, Subscription, Traffic, backtest, engine
from headwater.spark.backtest.backtest import bucket_width
from headwater.spark.backtest.command import add_backtest
from headwater.spark.backtest.engine import engine_of
from headwater.spark.backtest.job import spread
from headwater.spark.backtest.report import DATAGRAM, FRAME, moment
from headwater.store.log import ChannelLog, Log
from headwater.store.log.reader import ChannelReader
from tests.spark.backtest.support import START, rows_of, write_log

CHANNEL = "orl.sighting"
TYPE = as_event_type("badge: text, network: text, level: f64?")
SUBSCRIPTIONS = """
at = "office"
[[subscription]]
name = "camera {network}"
where = "network = :network"
each = {param = "network", in = ["x", "y"]}
[[subscription]]
name = "anna"
where = "badge = 'anna'"
[[subscription]]
name = "loud"
at = "n1"
where = "level > 0.5"
"""


def events(network: str, count: int) -> list[dict[str, Any]]:
    badges, levels = ("anna", "ben", "cleo"), (0.25, 0.75, None, float("nan"))
    return [{"badge": badges[i % 3], "network": network, "level": levels[i % 4]} for i in range(count)]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nodes, the second with events of two days and in small row groups."""
    first = rows_of(TYPE, "n1", "s", events("x", 1200))
    times = [START + i * 60_000_000 for i in range(2400)]
    second = rows_of(TYPE, "n2", "s", events("y", 2400), times=times)
    return write_log(tmp_path_factory.mktemp("log"), CHANNEL, TYPE, [first, second], group=700)


@pytest.fixture(scope="module")
def subscriptions(log: Path) -> Path:
    path = log / "subscriptions.toml"
    path.write_text(SUBSCRIPTIONS)
    return path


@pytest.fixture(scope="module")
def found(spark: Any, log: Path, subscriptions: Path) -> Backtest:
    return backtest(spark, log, subscriptions)


def size(network: str, badge: str) -> int:
    return len(TYPE.encode({"badge": badge, "network": network, "level": 0.5})) + FRAME


def test_without_spark_the_report_is_the_same(log: Path, subscriptions: Path, found: Backtest) -> None:
    here = backtest(None, log, subscriptions)
    assert (found.engine, here.engine) == ("spark", "local")
    left = ("seconds", "engine")
    ours, theirs = ({key: of[key] for key in of if key not in left} for of in (here.to_dict(), found.to_dict()))
    assert ours == theirs
    assert "without Spark" in str(here) and "on Spark" in str(found)
    with pytest.raises(ConfigError, match="a DataFrame of Spark, found dict"):
        backtest(None, {}, subscriptions, type=TYPE)


def test_what_each_would_have_received(found: Backtest) -> None:
    assert found.events == 3600 and found.channel == CHANNEL
    assert {row.name: (row.at, row.events, row.undecided) for row in found.subscriptions} == {
        "camera x": ("office", 1200, 0),
        "camera y": ("office", 2400, 0),
        "anna": ("office", 1200, 0),
        "loud": ("n1", 900, 900),
    }
    row = found.subscription("anna")
    assert row.bytes == 400 * size("x", "anna") + 800 * size("y", "anna")
    assert row.evaluated == 3600 == row.passed + row.rejected + row.undecided


def test_what_would_cross_each_link(found: Backtest) -> None:
    x = sum(400 * size("x", badge) for badge in ("anna", "ben", "cleo"))
    y = sum(800 * size("y", badge) for badge in ("anna", "ben", "cleo"))
    by = {(row.source, row.sink): row for row in found.links}
    assert set(by) == {("n1", "office"), ("n2", "office"), ("n2", "n1")}  # what stays in a node crosses nothing
    office = by["n1", "office"]
    assert office.unfiltered == office.merged == Traffic(1200, x)
    assert office.filtered == Traffic(1600, x + 400 * size("x", "anna"))
    loud = by["n2", "n1"]
    assert loud.unfiltered == Traffic(2400, y) and loud.filtered == loud.merged and loud.merged.events == 600
    assert found.local == 300
    # One datagram serves both nodes that want an event of n2; of n1 only the office is elsewhere.
    multicast = {row.source: row.multicast for row in found.sources}
    assert multicast == {"n1": Traffic(1200, x + 1200 * DATAGRAM), "n2": Traffic(2400, y + 2400 * DATAGRAM)}
    assert found.merged.saved(found.filtered) == 1 - found.merged.bytes / found.filtered.bytes


def test_over_time(spark: Any, log: Path, subscriptions: Path, found: Backtest) -> None:
    hourly = backtest(spark, log, subscriptions, bucket="1h")
    assert hourly.width is not None and hourly.width.total_seconds() == 3600
    assert sum(row.events for row in hourly.times) == 3600
    assert [sum(each) for each in zip(*(row.received for row in hourly.times), strict=True)] == [1200, 2400, 1200, 900]
    assert sum((row.merged for row in hourly.times), Traffic()) == found.merged == hourly.merged
    assert len(hourly.times) == 41 and all(row.start is not None for row in hourly.times)
    assert backtest(spark, log, subscriptions, bucket="none").times[0].start is None


@pytest.mark.parametrize("bucket", ["auto", "7d", "none"])
def test_first_and_last_are_times_of_events(bucket: str, log: Path, subscriptions: Path) -> None:
    """Not the edges of the stretches of time that they are in."""
    found = backtest(None, log, subscriptions, bucket=bucket)
    first, last = moment(START), moment(START + 2399 * 60_000_000)
    assert (found.first, found.last) == (first, last)
    assert (bucket == "none") == (found.width is None)


def test_a_frame_of_the_log_gives_the_same(spark: Any, log: Path, subscriptions: Path, found: Backtest) -> None:
    frame = spark.read.parquet(str(log / CHANNEL))
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    again = backtest(spark, frame, subscriptions, type=TYPE)
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == before
    for table in ("subscriptions", "links", "sinks", "sources", "times", "merged", "multicast"):
        assert getattr(again, table) == getattr(found, table), table
    for row in found.subscriptions:
        text = {"camera x": "network = 'x'", "camera y": "network = 'y'", "anna": "badge = 'anna'"}
        interest = Interest(text.get(row.name, "level > 0.5"), TYPE)
        assert where(frame, interest).count() == row.passed


def test_a_frame_without_nodes_or_times(spark: Any) -> None:
    frame = spark.createDataFrame(
        [("anna", "x", 0.75), ("ben", "y", None)], "badge string, network string, level double"
    )
    made = backtest(spark, frame, [Subscription(name="loud", where="level > 0.5")], type=TYPE)
    assert (made.events, made.subscriptions[0].passed, made.subscriptions[0].undecided) == (2, 1, 1)
    assert [(row.source, row.sink) for row in made.links] == [(None, "sink")] and made.width is None
    with pytest.raises(ConfigError, match="the event type"):
        backtest(spark, frame, [Subscription(name="a")])


def test_older_events_lack_a_field_of_the_newest_type(spark: Any, tmp_path: Path) -> None:
    old, new = as_event_type("a: i32"), as_event_type("a: i32, b: text")
    parts = [rows_of(old, "n", "s", [{"a": 1}] * 600)]
    write_log(tmp_path, "c", old, parts, name="o")
    write_log(tmp_path, "c", new, [rows_of(new, "n", "s", [{"a": 2, "b": "x"}] * 700, first=601)])
    made = backtest(spark, tmp_path, [Subscription(name="b", where="b = 'x'"), Subscription(name="a", where="a = 1")])
    assert [(row.passed, row.undecided) for row in made.subscriptions] == [(700, 600), (600, 0)]
    assert any("b" in note for note in made.notes)


@pytest.mark.parametrize("more, where", [("b: text[]", "size(b) = 1"), ("b: {c: i32}", "b.c = 1")])
def test_older_events_lack_the_only_field_that_is_read(spark: Any, tmp_path: Path, more: str, where: str) -> None:
    """Of whatever type, at rest or not, in one node's tail and not in another's."""
    old, new = as_event_type("a: i32"), as_event_type(f"a: i32, {more}")
    value: Any = {"b: text[]": ["x"], "b: {c: i32}": {"c": 1}}[more]
    for type, node, event in ((old, "n", {"a": 1}), (new, "m", {"a": 2, "b": value})):
        with ChannelLog.open(Log(tmp_path), "c", node, type) as log:
            log.append_batch("s", 1, START * 1000, type.to_arrow([event] * 3))
            log.roll(wait=True)
            log.append_batch("s", 4, START * 1000, type.to_arrow([event]))
    made = backtest(spark, tmp_path, [Subscription(name="b", where=where)])
    assert backtest(None, tmp_path, [Subscription(name="b", where=where)]).subscriptions == made.subscriptions
    assert [(row.passed, row.undecided) for row in made.subscriptions] == [(4, 4)]
    assert "required fields that some events lack are missing there: b" in made.notes


def test_state_over_a_field_that_has_widened(spark: Any, tmp_path: Path) -> None:
    counting = "{ static int n = 0; n = n + 1; return n % 2 == 0 && input.a > 0; }"
    for first, type, value in ((1, "a: i32", 7), (4, "a: i64", 1 << 40)):
        with ChannelLog.open(Log(tmp_path), "c", "n", as_event_type(type)) as log:
            log.append_batch("s", first, START * 1000, as_event_type(type).to_arrow([{"a": value}] * 3))
            log.roll(wait=True)
    made = backtest(spark, tmp_path, [Subscription(name="b", where=counting)])
    assert backtest(None, tmp_path, [Subscription(name="b", where=counting)]).subscriptions == made.subscriptions
    assert made.subscription("b").events == 3


def test_reports_are_written(found: Backtest, tmp_path: Path) -> None:
    said = json.loads(found.to_json())
    assert said["events"] == 3600 and said["subscriptions"][0]["name"] == "camera x"
    paths = found.write_csv(tmp_path / "tables")
    assert {path.name for path in paths} == {
        "subscriptions.csv", "links.csv", "sinks.csv", "sources.csv", "times.csv", "received.csv"
    }  # fmt: skip
    with (tmp_path / "tables" / "links.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["merged events"]) for row in rows] == [row.merged.events for row in found.links]
    text = str(found)
    assert "camera y" in text and "% less than filtered" in text and f"{FRAME} bytes more for each event" in text


def test_the_command(spark: Any, log: Path, subscriptions: Path, tmp_path: Path, capsys: Any) -> None:
    """In the session of the tests, which the command does not end."""
    parser = argparse.ArgumentParser()
    add_backtest(parser.add_subparsers())
    target = tmp_path / "report.json"
    args = parser.parse_args(["backtest", str(subscriptions), str(log), "--bucket", "1d", "--json", str(target)])
    assert args.run(args) == 0
    assert "3,600 events of orl.sighting" in capsys.readouterr().out
    assert json.loads(target.read_text())["width"] == 86400
    for wrong, error in ((["--bucket", "1x"], ConfigError), (["--channel", "no.such"], StoreError)):
        args = parser.parse_args(["backtest", str(subscriptions), str(log), *wrong])
        with pytest.raises(error):
            args.run(args)
    assert spark.range(2).count() == 2


def test_the_command_chooses_what_does_the_work(
    log: Path, subscriptions: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    reader = ChannelReader(log, CHANNEL)

    def chosen(asked: str = "auto", *, most: int = 3600, **cluster: str | None) -> str:
        return engine_of(asked, reader, **{"master": None, "remote": None, **cluster}, most=most)

    monkeypatch.setattr(engine, "running", lambda: None)
    assert chosen() == chosen("local", most=0) == "local"
    assert chosen(most=3599) == chosen("spark") == chosen(master="local[2]") == chosen(remote="sc://h") == "spark"
    with pytest.raises(ConfigError, match="no Spark, found --master; leave out --master"):
        chosen("local", master="local[2]")
    monkeypatch.setitem(EXTRAS, "spark", ("no_such_package",))
    assert chosen(most=10) == "local"
    assert "3,600 events in this process" in capsys.readouterr().err
    with pytest.raises(MissingExtra, match=r"--engine spark.*headwater\[spark\]"):
        chosen("spark")


def test_widths() -> None:
    assert (bucket_width("auto"), bucket_width("none"), bucket_width("15m")) == (0, None, 900_000_000)
    for wrong in ("", "0h", "1w", "h"):
        with pytest.raises(ConfigError, match="15m, 1h or 1d"):
            bucket_width(wrong)


def test_row_groups_are_spread_evenly() -> None:
    million = 1_000_000
    tasks = spread([("a", [million] * 5), ("b", [million, 0, million]), ("c", [])], 1)
    assert [(t.path, t.groups) for task in tasks for t in task] == [
        ("a", [0, 1]), ("a", [2, 3]), ("a", [4]), ("b", [0]), ("b", [2])
    ]  # fmt: skip
    assert spread([], 2) == []
    assert len(spread([("a", [10] * 1000)], 2)) == 1


def test_a_log_that_is_not_there(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="expected a folder with a log"):
        backtest(spark, tmp_path / "nowhere", [Subscription(name="a")])
    with pytest.raises(ConfigError, match="name the channel"):
        backtest(spark, tmp_path, [Subscription(name="a")])
