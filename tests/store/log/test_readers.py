"""What the page on the log shows to other readers works as it is written, and finds the events and nothing else."""

from __future__ import annotations

import logging
import random
import re
import threading
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater import Log, Node
from headwater.cli import main
from headwater.errors import StoreError
from headwater.spark.backtest import Subscription, backtest
from headwater.store.log import ChannelReader
from headwater.store.log.layout import ChannelFolder
from headwater.store.log.repair import repair
from headwater.store.log.verify import verify
from tests.federation.nodes import GUARD, eventually

PAGE = Path(__file__).parents[3] / "docs" / "log.md"
CHANNEL = "ie.tcd.sighting"
FIRST = "badge: u8, level: f32, count: u16, at: {x: f32}, near: u8[], kind: enum(in, out)"
LATER = (
    "badge: u32, level: f64, count: f64, at: {x: f64, floor: i32?}, near: i32[], kind: enum(in, out, by), place: text?"
)
BAD = pa.table({"file": ["a.csv"], "line": [7], "reason": ["no number"]})


def recipe(reader: str) -> str:
    """The block of the page that imports this one."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = (block for block in blocks if f"import {reader}\n" in block or f"import {reader} as" in block)
    return str(found)


def run(reader: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    """What the last expression of the recipe gives, beside the folder `events`."""
    monkeypatch.chdir(folder)
    *body, last = re.split(r"\n(?=\S)(?!\))", recipe(reader).strip())
    scope: dict[str, Any] = {}
    exec("\n".join(body), scope)
    return eval(last, scope)


def publish(root: Path, type: str, **event: Any) -> None:
    with Node("lab", log=root) as node:
        node.channel(CHANNEL, type).source("hall").publish(**event)


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A log whose type had fields added and widened, closed as it should be."""
    root = tmp_path / "events"
    publish(root, FIRST, badge=1, level=0.5, count=3, at={"x": 1.5}, near=[1, 2], kind="in")
    publish(root, LATER, badge=70_000, level=0.1, count=0.5, at={"x": 0.1, "floor": 2}, near=[-1], kind="by",
            place="lab")  # fmt: skip
    return root


def with_bad_neighbours(root: Path) -> None:
    """What an ingest has quarantined and what one that was ended has left, as logs had them, and what is damaged."""
    for name in ("_quarantine/ingest=1", "_damaged/event_day=2026-01-01"):
        (root / CHANNEL / name).mkdir(parents=True)
        pq.write_table(BAD, root / CHANNEL / name / "lab-00000009.parquet")


def test_a_closed_log_is_parquet_for_duckdb(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = run("duckdb", monkeypatch, events.parent).fetchall()
    assert row[0] == "hall" and row[1] == pytest.approx(0.3)
    everything = f"from read_parquet('{events}/{CHANNEL}/**/*.parquet', union_by_name = true) order by event_seq"
    found = duckdb.sql(f"select badge, count, kind, place {everything}").fetchall()
    assert found == [(1, 3.0, "in", None), (70_000, 0.5, "by", "lab")]


def test_a_closed_log_is_parquet_for_polars(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run("polars", monkeypatch, events.parent).sort("event_seq")
    assert found["badge"].to_list() == [1, 70_000] and found["count"].to_list() == [3.0, 0.5]
    assert found["at"].to_list() == [{"x": 1.5, "floor": None}, {"x": 0.1, "floor": 2}]
    assert found["near"].to_list() == [[1, 2], [-1]] and found["place"].to_list() == [None, "lab"]
    assert found["kind"].cast(pl.String).to_list() == ["in", "by"] and found["event_day"].null_count() == 0


def test_a_closed_log_is_parquet_for_pandas(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run("pandas", monkeypatch, events.parent).sort_values("event_seq")
    assert found["badge"].tolist() == [1, 70_000] and found["place"].tolist() == [None, "lab"]


def test_what_is_no_event_does_not_lie_where_readers_look(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_bad_neighbours(events)
    problems = [each.problem for each in verify(events, CHANNEL).problems]
    assert problems == ["it lies where readers of Parquet look for events, and has none"] * 2
    publish(events, LATER, badge=3, level=0.2, count=1, at={"x": 0.0}, near=[], kind="in")  # opening it is enough
    assert len(run("polars", monkeypatch, events.parent)) == 3
    assert (
        len(duckdb.sql(f"from read_parquet('{events}/{CHANNEL}/**/*.parquet', union_by_name = true)").fetchall()) == 3
    )
    assert verify(events, CHANNEL).sound
    aside = sorted(path.name for path in (events / CHANNEL).glob("_*/*/lab-00000009.*"))
    assert aside == ["lab-00000009.parquet.damaged", "lab-00000009.parquet.quarantined"]


def test_repair_moves_it_too(events: Path) -> None:
    with_bad_neighbours(events)
    assert [line for line in repair(events, CHANNEL).done if "where readers look" in line]
    assert verify(events, CHANNEL).sound
    damaged = next((events / CHANNEL).glob("event_day=*/*.parquet"))
    damaged.write_bytes(b"PAR1")
    repair(events, CHANNEL)
    assert ChannelReader(events, CHANNEL).count() == 1
    assert len(duckdb.sql(f"from read_parquet('{events}/{CHANNEL}/**/*.parquet')").fetchall()) == 1


class TestRest:
    """Closing, and the command for what was not closed."""

    def test_the_command_brings_to_rest_what_was_not_closed(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with Node("lab", log=Log(tmp_path, rest_seconds=0)) as node:
            source = node.channel(CHANNEL, "level: f64").source("hall")
            for level in range(3):
                source.publish(level=level)
            assert main(["log", "rest", str(tmp_path)]) == 1
            assert "open in process" in capsys.readouterr().out
        assert not list(tmp_path.rglob("*.parquet"))
        (tail,) = tmp_path.rglob("*.wal")
        tail.write_bytes(tail.read_bytes() + b"torn")
        assert main(["log", "rest", str(tmp_path)]) == 0
        said = capsys.readouterr().out
        assert "3 events came to rest, in 1 files" in said and "4 bytes cut off its end" in said
        assert main(["log", "rest", str(tmp_path), CHANNEL, "--json"]) == 0
        assert '"segments": 0' in capsys.readouterr().out
        assert ChannelReader(tmp_path, CHANNEL).count() == 3 and not list(tmp_path.rglob("*.wal"))
        with Node("lab", log=tmp_path) as node:
            assert node.channel(CHANNEL, "level: f64").source("hall").seq == 3

    def test_what_cannot_come_to_rest_is_kept_and_told(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with Node("lab", log=tmp_path) as node:
            node.channel(CHANNEL, "level: f64").source("hall").publish(level=1.0)
            (tmp_path / CHANNEL / "_common_metadata").write_bytes(b"no schema")
            with caplog.at_level(logging.WARNING, "headwater.log"):
                node.close()
        assert "`headwater log rest`" in caplog.text and "_common_metadata" in caplog.text
        assert list(tmp_path.rglob("*.wal"))

    def test_nothing_is_deleted_for_it(self, tmp_path: Path) -> None:
        with Node("lab", log=Log(tmp_path, keep_bytes=0)) as node:
            node.channel(CHANNEL, "level: f64").source("hall").publish(level=1.0)
        assert list(tmp_path.rglob("*.parquet")) and ChannelReader(tmp_path, CHANNEL).count() == 1

    def test_the_time_for_it_is_bounded(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with Node("lab", log=Log(tmp_path, rest_seconds=0.2)) as node:
            node.channel(CHANNEL, "level: f64").source("hall").publish(level=1.0)
            with ChannelFolder.of(tmp_path, CHANNEL).exclusive():  # as a repair has it, for as long as that takes
                node.close()
        assert "found others at work with them" in caplog.text and "`headwater log rest`" in caplog.text
        with pytest.raises(Exception, match="rest_seconds: expected a number of seconds from 0"):
            Log(tmp_path, rest_seconds=-1)

    def test_of_many_channels_that_there_was_no_time_for_one_warning_tells(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with Node("lab", log=Log(tmp_path, rest_seconds=1e-9)) as node:
            for number in range(8):
                node.channel(f"c{number}", "level: f64").source("hall").publish(level=1.0)
        (warning,) = caplog.messages
        assert "the logs of 8 channels" in warning and "c4, …" in warning and "`headwater log rest`" in warning
        assert main(["log", "rest", str(tmp_path)]) == 0 and len(list(tmp_path.rglob("*.parquet"))) == 8

    def test_a_channel_that_comes_to_rest_keeps_no_other_waiting(self, tmp_path: Path) -> None:
        with Node("lab", log=Log(tmp_path, rest_seconds=10 * GUARD)) as node:
            channel = node.channel(CHANNEL, "level: f64")
            channel.source("hall").publish(level=1.0)

            def again() -> None:
                node.channel(CHANNEL, "level: f64").source("hall").publish(level=3.0)  # waits for its log, and has it

            def go_on() -> None:
                node.channel("other", "level: f64").source("hall").publish(level=2.0)

            closing = threading.Thread(target=channel.close)
            made_again = threading.Thread(target=again)
            going_on = threading.Thread(target=go_on)
            with ChannelFolder.of(tmp_path, CHANNEL).exclusive():
                closing.start()
                eventually(lambda: channel.closed)
                made_again.start()
                eventually(lambda: CHANNEL in node._channels)
                going_on.start()
                going_on.join(GUARD)
                assert not going_on.is_alive() and closing.is_alive() and made_again.is_alive()
            closing.join(GUARD)
            made_again.join(GUARD)
        assert ChannelReader(tmp_path, CHANNEL).count() == 2 and not list(tmp_path.rglob("*.wal"))

    def test_nor_is_it_longer_where_a_segment_waits_to_come_to_rest(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with Node("lab", log=Log(tmp_path, rest_seconds=0.2)) as node:
            node.channel(CHANNEL, "level: f64").source("hall").publish(level=1.0)
            log = node._logs.known(CHANNEL)  # type: ignore[union-attr]
            assert log is not None
            with ChannelFolder.of(tmp_path, CHANNEL).exclusive():
                log.roll()
                eventually(lambda: log._resting)
                closing = threading.Thread(target=node.close, daemon=True)
                closing.start()
                closing.join(GUARD)
                assert not closing.is_alive()
        assert "`headwater log rest`" in caplog.text and "make room" not in caplog.text
        assert main(["log", "rest", str(tmp_path)]) == 0 and ChannelReader(tmp_path, CHANNEL).count() == 1


class TestNames:
    """Readers that do not mind the case of a name."""

    @pytest.mark.parametrize("type", ["x: i32, X: i32", "at: {x: i32, X: i32}", "at: {x: i32, X: i32}[]"])
    def test_fields_that_some_take_for_one_are_not_logged(self, tmp_path: Path, type: str) -> None:
        with Node("lab", log=tmp_path) as node, pytest.raises(StoreError, match=r"'(at\.)?x' and '(at\.)?X'; rename"):
            node.channel(CHANNEL, type).source("hall")
        assert not list(tmp_path.iterdir())

    def test_nor_those_of_two_types(self, tmp_path: Path) -> None:
        publish(tmp_path, "level: f64", level=1.0)
        with Node("lab", log=tmp_path) as node, pytest.raises(StoreError, match="'level' and 'Level' in the types"):
            node.channel(CHANNEL, "Level: f64").source("hall")


def test_damaged_pages_are_seen(tmp_path: Path) -> None:
    """Without checksums nearly every changed bit gives other values, and no error."""
    with Node("lab", log=tmp_path) as node:
        source = node.channel(CHANNEL, "level: f64").source("hall")
        for level in range(2000):
            source.publish(level=level / 7)
    (path,) = tmp_path.rglob("*.parquet")
    group = pq.read_metadata(path).row_group(0)
    column = next(group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == "level")
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 4
    path.write_bytes(data)
    (problem,) = verify(tmp_path, CHANNEL).problems
    assert "row group 0, 2,000 events, cannot be read" in problem.problem and "CRC" in problem.problem
    with pytest.raises(StoreError, match="CRC"):
        list(ChannelReader(tmp_path, CHANNEL).read())
    with pytest.raises(StoreError, match=r"row group 0 cannot be read.*CRC"):
        backtest(None, tmp_path, [Subscription(name="loud", where="level > 10", at="desk")])


def test_every_changed_byte_is_seen(tmp_path: Path) -> None:
    """Pages have checksums; names of columns, bounds and the index that other readers skip rows by have them too."""
    publish(tmp_path, "level: f64, place: text", level=0.5, place="lab")
    (path,) = tmp_path.rglob("*.parquet")
    whole, found = path.read_bytes(), duckdb.sql(f"from '{path}'").fetchall()
    seal = whole.rindex(b"HWSEAL")
    chance = random.Random(7)
    for at in [*range(0, len(whole), 41), whole.rindex(b"place", 0, whole.rindex(b"ARROW:schema")), seal - 9]:
        if not seal <= at < seal + 8:  # the mark itself: without it nothing is said of the rest
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :])
            assert verify(tmp_path, CHANNEL).problems, at
    repair(tmp_path, CHANNEL)  # of a changed index
    assert verify(tmp_path, CHANNEL).sound and duckdb.sql(f"from '{path}'").fetchall() == found
