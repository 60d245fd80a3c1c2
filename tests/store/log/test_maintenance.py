"""Keeping a log: verifying, compacting, deleting what is old, repairing and exporting, while others read and write."""

from __future__ import annotations

import csv
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater import Interest
from headwater.errors import StoreError
from headwater.store.log import retention
from headwater.store.log import snapshot as opening
from headwater.store.log.channel_log import ChannelLog
from headwater.store.log.compact import compact
from headwater.store.log.export import export
from headwater.store.log.layout import DAY_MICROSECONDS, AtRest, claim
from headwater.store.log.reader import ChannelReader
from headwater.store.log.repair import repair
from headwater.store.log.settings import Log
from headwater.store.log.verify import verify
from tests.federation.nursery import Popen
from tests.store.log.logs import CHANNEL, DAY0, Logged, as_type, keys, sighting

NOW = DAY0 / 1e6 + 10 * 86_400


@pytest.fixture
def log(tmp_path: Path) -> Logged:
    """Seven small files of each of two nodes over three days, and a tail."""
    made = Logged(tmp_path)
    for part in range(5):
        for node in ("a/1", "b"):
            first = part * 40
            rows = [sighting(node, s, first + i, DAY0 + (first + i) * 900_000_000) for s in "xy" for i in range(1, 41)]
            made.rest(node, rows)
    made.tail("b", [sighting("b", "x", i, DAY0 + i * 900_000_000) for i in range(201, 211)])
    for folder in map(made.folder.node, ("a/1", "b")):
        folder.path.mkdir(parents=True, exist_ok=True)
        AtRest(5, {"x": (200, 0), "y": (200, 0)}).write(folder.sources)
    return made


def everything(log: Logged) -> list[Any]:
    return keys(ChannelReader(log.root, log.channel).merged())


def parquet(log: Logged) -> list[Path]:
    return [path for _, path in log.folder.parquet()]


class TestCompacting:
    def test_small_files_become_few(self, log: Logged) -> None:
        before = len(parquet(log))
        told: list[int] = []
        done = compact(log.root, CHANNEL, now=NOW, progress=told.append)
        days = {path.parent for path in parquet(log)}
        assert (done.files_before, done.files_after, done.days) == (before - 2, 4, 2)  # the last day has one of each
        assert len(parquet(log)) == 2 * len(days) == 6 and sum(told) == done.bytes_before
        assert everything(log) == log.ordered()
        assert verify(log.root, CHANNEL).sound
        again = compact(log.root, CHANNEL, now=NOW)
        assert (again.days, again.left) == (0, ())
        assert not list(log.folder.path.glob(".*"))

    def test_a_day_that_is_not_over_stays(self, log: Logged) -> None:
        before = parquet(log)
        assert compact(log.root, CHANNEL, now=DAY0 / 1e6 + 3600).days == 0
        assert parquet(log) == before
        assert compact(log.root, CHANNEL, now=DAY0 / 1e6 + 3600, today=True).days == 1

    def test_no_larger_than_wanted(self, log: Logged) -> None:
        size = max(path.stat().st_size for path in parquet(log))
        compact(log.root, CHANNEL, now=NOW, target_bytes=3 * size)
        assert 2 < len(parquet(log)) < 14
        assert everything(log) == log.ordered()

    def test_a_late_file_is_merged_with_what_was_merged(self, log: Logged) -> None:
        compact(log.root, CHANNEL, now=NOW)
        log.rest("a/1", [sighting("a/1", "x", i, DAY0 + i) for i in range(300, 310)])
        assert compact(log.root, CHANNEL, now=NOW).files_after == 1
        assert everything(log) == log.ordered()
        assert {path.name for path in parquet(log)} >= {"a%2F1-00000001~00000006.parquet"}

    def test_a_segment_that_is_not_all_at_rest_stays(self, log: Logged) -> None:
        folder = log.folder.node("a/1")
        tail = log.tail("a/1", [sighting("a/1", "x", i, DAY0 + i) for i in range(400, 403)])
        log.segments["a/1"] -= 1
        [half] = log.rest("a/1", log.rows[-3:-1])
        del log.rows[-2:]
        compact(log.root, CHANNEL, now=NOW)
        assert half.exists() and tail.exists() and folder.wals()
        assert everything(log) == log.ordered()

    def test_an_evolved_type_is_one_file(self, log: Logged) -> None:
        log.type = as_type("badge: u64, height: f32?")
        log.rest("b", [("b", "x", i, DAY0 + i, {"badge": 2**40, "height": None}) for i in range(300, 305)])
        compact(log.root, CHANNEL, now=NOW)
        [path] = [path for path in parquet(log) if path.name.startswith("b-00000001~00000007")]
        assert pq.read_schema(path).field("badge").type == pa.uint64()
        assert everything(log) == log.ordered()

    def test_files_of_others_stay(self, log: Logged) -> None:
        path = parquet(log)[0].parent / "part-1.parquet"
        rows = [sighting("c", "w", i, DAY0 + i) for i in range(1, 5)]
        pq.write_table(pa.Table.from_batches([log.batch(rows)]).replace_schema_metadata(None), path)
        log.rows += rows
        compact(log.root, CHANNEL, now=NOW)
        assert path.exists() and everything(log) == log.ordered()

    def test_what_is_left_of_one_that_was_ended(self, log: Logged) -> None:
        left = log.folder.path / ".event_day=2024-10-04.abc"
        left.mkdir()
        (left / "half.parquet").write_bytes(b"PAR1")
        assert everything(log) == log.ordered()
        assert any("compaction" in note.problem for note in verify(log.root, CHANNEL).notes)
        compact(log.root, CHANNEL, now=NOW)
        assert not left.exists()

    def test_where_it_cannot_be_done_in_one_step(self, log: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("headwater.store.log.folder_exchange.sys.platform", "other")
        before = parquet(log)
        with pytest.raises(StoreError, match="cannot exchange two folders in one step"):
            compact(log.root, CHANNEL, now=NOW)
        assert parquet(log) == before

    def test_events_that_are_there_twice_are_not_merged(self, log: Logged) -> None:
        log.rest("b", [sighting("b", "x", 5, DAY0)])
        with pytest.raises(StoreError, match="found some twice"):
            compact(log.root, CHANNEL, now=NOW)
        assert not list(log.folder.path.glob(".*"))


class TestWhoReadsMeanwhile:
    @pytest.mark.parametrize("handles", [512, 3])
    def test_a_reader_goes_on(self, log: Logged, handles: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each event once, although all files have gone while it reads; with too many to have open, others wait."""
        monkeypatch.setattr(opening, "HANDLES", handles)
        reader = ChannelReader(log.root, CHANNEL)
        readers = [reader.read(rows=7), reader.merged(rows=7), reader.read(node="b", source="x", rows=7)]
        found = [[next(each)] for each in readers]
        done = threading.Event()

        def change() -> None:
            compact(log.root, CHANNEL, now=NOW)
            for node in ("a/1", "b"):
                retention.apply(log.root, CHANNEL, node, keep_bytes=0)
            done.set()

        thread = threading.Thread(target=change)
        thread.start()
        if handles == 512:
            thread.join()
            assert not parquet(log)
        for batches, each in zip(found, readers, strict=True):
            batches += each
        thread.join()
        assert done.is_set()
        assert sorted(keys(found[0])) == sorted(log.ordered())
        assert keys(found[1]) == log.ordered()
        assert [key[2] for key in keys(found[2])] == list(range(1, 211))
        assert [span.events for span in reader.sources()] == [10]

    def test_processes_that_write_compact_and_read(self, tmp_path: Path) -> None:
        """One writes and brings to rest, one compacts over and over; what this one reads has no gaps, and nothing
        twice, at any moment."""
        root, stop = tmp_path / "log", tmp_path / "stop"
        others = [Popen([sys.executable, "-c", each, str(root)]) for each in (WRITE, COMPACT)]
        try:
            seen = {"x": 0, "y": 0}
            looked = 0
            while others[0].poll() is None or not looked:
                if not (log := Logged(root)).folder.common_metadata.exists():
                    continue
                reader = ChannelReader(root, CHANNEL)
                for source in seen:
                    found = [key[2] for key in keys(reader.read(node="w", source=source, rows=100))]
                    assert found == list(range(1, len(found) + 1))
                    assert len(found) >= seen[source]
                    seen[source] = len(found)
                looked += 1
            stop.touch()
            for each in others:
                assert each.wait(60) == 0
        finally:
            for each in others:
                each.kill()
                each.wait()
        assert ChannelReader(root, CHANNEL).count() == 3000
        report = verify(root, CHANNEL)
        assert report.sound, report.problems
        assert any("~" in path.name for path in parquet(log))


WRITE = """
import sys
from headwater.store.log.channel_log import ChannelLog
from headwater.store.log.settings import Log
from tests.store.log.logs import CHANNEL, DAY0, TYPE, as_type
kind = as_type(TYPE)
with ChannelLog.open(Log(sys.argv[1], roll_bytes=8192, sync="roll"), CHANNEL, "w", kind) as log:
    for i in range(1, 1501):
        for source in "xy":
            log.append(source, i, (DAY0 + i) * 1000, kind.encode(badge=i, level=0.0, place="here"))
        if i % 500 == 0:
            log.roll(wait=True)
"""

COMPACT = """
import sys
from pathlib import Path
from headwater.store.log.compact import compact
from tests.store.log.logs import CHANNEL, Logged
root, ended = Path(sys.argv[1]), False
while not ended:
    ended = (root.parent / "stop").exists()
    if Logged(root).folder.common_metadata.exists():
        compact(root, CHANNEL)
"""


class TestRetention:
    def test_by_age(self, log: Logged) -> None:
        end = DAY0 + 201 * 900_000_000
        done = retention.apply(log.root, CHANNEL, "b", keep_seconds=100 * 900, now=end / 1e6)
        reader = ChannelReader(log.root, CHANNEL)
        left = [span for span in reader.sources() if span.node == "b"]
        assert [(span.source, span.first, span.last) for span in left] == [("x", 96, 210), ("y", 96, 200)]
        assert done.events == 190 and done.files == 3
        assert [span.first for span in reader.sources() if span.node == "a/1"] == [1, 1]

    def test_by_size(self, log: Logged) -> None:
        total = sum(path.stat().st_size for path in parquet(log) if path.name.startswith("b"))
        done = retention.apply(log.root, CHANNEL, "b", keep_bytes=total // 2)
        left = sum(path.stat().st_size for path in parquet(log) if path.name.startswith("b"))
        assert 0 < left <= total // 2 and done.bytes == total - left
        assert [span.last for span in ChannelReader(log.root, CHANNEL, nodes=["b"]).sources()] == [210, 200]

    def test_empty_days_go(self, log: Logged) -> None:
        for node in ("a/1", "b"):
            retention.apply(log.root, CHANNEL, node, keep_bytes=0)
        assert not log.folder.days()
        assert retention.apply(log.root, CHANNEL, "b", keep_seconds=0, keep_bytes=0).files == 0
        assert retention.apply(log.root, "never", "b", keep_seconds=0).files == 0

    def test_a_node_keeps_to_it_and_its_numbers_go_on(self, tmp_path: Path) -> None:
        kind = as_type("badge: u32")
        settings = Log(tmp_path, keep_bytes=0)
        with ChannelLog.open(settings, CHANNEL, "a", kind) as log:
            log.append("x", 1, DAY0 * 1000, kind.encode(badge=1))
            log.roll(wait=True)
            assert ChannelReader(tmp_path, CHANNEL).count() == 0
        with ChannelLog.open(settings, CHANNEL, "a", kind) as log:
            assert log.last("x") == 1

    def test_what_is_asked_wrongly(self, log: Logged) -> None:
        with pytest.raises(StoreError, match="keep_bytes: expected 0 or more, found -1"):
            retention.apply(log.root, CHANNEL, "b", keep_bytes=-1)


class TestVerifying:
    def test_a_sound_log(self, log: Logged) -> None:
        report = verify(log.root, CHANNEL)
        assert report.sound and not report.notes
        assert (report.events, report.sources, report.files) == (810, 4, len(parquet(log)) + 1)

    def test_no_parquet(self, log: Logged) -> None:
        parquet(log)[0].write_bytes(b"PAR1 nothing of the kind")
        [problem] = verify(log.root, CHANNEL).problems
        assert "cannot be read" in problem.problem and "sets it aside" in problem.advice
        assert parquet(log)[0].name in problem.place

    def test_damaged_rows(self, log: Logged) -> None:
        _scratch(parquet(log)[0])
        [problem] = verify(log.root, CHANNEL).problems
        assert "row group 0, 80 events, cannot be read" in problem.problem

    def test_there_twice(self, log: Logged) -> None:
        log.rest("b", [sighting("b", "x", i, DAY0 + 3) for i in (7, 8)])
        [problem] = verify(log.root, CHANNEL).problems
        assert "2 events of source 'x' of node 'b' are there more than once, the first is number 7" in problem.problem

    def test_twice_with_one_in_a_tail(self, log: Logged) -> None:
        log.tail("b", [sighting("b", "x", i, DAY0 + 3) for i in (200, 211)])
        assert "number 200" in verify(log.root, CHANNEL).problems[0].problem

    def test_another_day(self, log: Logged) -> None:
        path = parquet(log)[0]
        folder = log.folder.day(DAY0 // DAY_MICROSECONDS - 1)
        folder.mkdir()
        path.rename(folder / path.name)
        assert "other days" in verify(log.root, CHANNEL).problems[0].problem

    def test_wrong_notes_and_names(self, log: Logged) -> None:
        path = parquet(log)[0]
        path.rename(path.with_name("a%2F1-00000099.parquet"))
        [problem] = verify(log.root, CHANNEL).problems
        assert "it says to be segment 1 of node 'a/1'" in problem.problem

    def test_a_torn_end_is_worth_a_note(self, log: Logged) -> None:
        [(_, path)] = log.folder.node("b").wals()
        path.write_bytes(path.read_bytes()[:-5])
        report = verify(log.root, CHANNEL)
        assert report.sound and "incomplete" in report.notes[0].problem and report.events == 809

    def test_damage_in_a_write_ahead_file(self, log: Logged) -> None:
        [(_, path)] = log.folder.node("b").wals()
        _scratch(path, at=path.stat().st_size - 200)
        [problem] = verify(log.root, CHANNEL).problems
        assert "damaged at byte" in problem.problem and "repair" in problem.advice

    def test_what_a_node_remembers(self, log: Logged) -> None:
        AtRest(3, {"x": (60, 0)}).write(log.folder.node("b").sources)
        problems = verify(log.root, CHANNEL).problems
        assert len(problems) == 2 and "'x' is at rest up to 200" in problems[0].problem
        log.folder.node("b").sources.write_text("{")
        assert "cannot be understood" in verify(log.root, CHANNEL).problems[0].problem


class TestRepairing:
    def test_nothing_to_do(self, log: Logged) -> None:
        before = {path: path.read_bytes() for path in parquet(log)}
        done = repair(log.root, CHANNEL)
        assert (done.done, done.left) == ([], [])
        assert {path: path.read_bytes() for path in parquet(log)} == before

    def test_everything_at_once(self, log: Logged) -> None:
        first, second = parquet(log)[:2]
        whole = second.read_bytes()
        first.write_bytes(b"no parquet")
        [(_, tail)] = log.folder.node("b").wals()
        damaged = tail.read_bytes()
        _scratch(tail, at=len(damaged) - 200, count=8)
        log.folder.common_metadata.unlink()
        log.folder.node("a/1").sources.write_text("nonsense")
        with pytest.raises(StoreError, match="headwater log repair"):
            ChannelReader(log.root, CHANNEL)
        done = repair(log.root, CHANNEL)
        assert len(done.done) == 4 and not done.left
        assert verify(log.root, CHANNEL).sound
        assert second.read_bytes() == whole
        aside = log.folder.path / "_damaged" / first.parent.name / f"{first.name}.damaged"
        assert aside.read_bytes() == b"no parquet"
        assert len(tail.with_suffix(".damaged").read_bytes()) in range(32, 200)
        spans = {(span.node, span.source): span for span in ChannelReader(log.root, CHANNEL).sources()}
        assert spans["a/1", "x"].events == 160 and spans["b", "x"].events == 209
        with ChannelLog.open(Log(log.root), CHANNEL, "b", log.type) as opened:
            assert opened.last("x") == 210

    def test_row_groups_that_can_be_read_are_kept(self, tmp_path: Path) -> None:
        log = Logged(tmp_path)
        [path] = log.rest("a", [sighting("a", "x", i, DAY0 + i) for i in range(1, 101)], group=25)
        _scratch(path, at=30)
        done = repair(tmp_path, CHANNEL)
        assert "25 of 100 events cannot be read" in done.done[0]
        assert [key[2] for key in everything(log)] == list(range(26, 101))
        assert verify(tmp_path, CHANNEL).sound and repair(tmp_path, CHANNEL).done == []

    def test_a_lost_header_and_a_lost_name(self, tmp_path: Path) -> None:
        log = Logged(tmp_path)
        rows = [sighting("a", s, i, DAY0 + i) for i in range(1, 6) for s in "xyz"]
        path = log.tail("a", rows)
        data = bytearray(path.read_bytes())
        data[20:40] = b"\0" * 20
        path.write_bytes(data)
        log.tail("a", [sighting("a", "x", 9, DAY0)])
        repair(tmp_path, CHANNEL)
        assert verify(tmp_path, CHANNEL).sound
        assert everything(log) == log.ordered()

    def test_a_node_that_is_open_is_left(self, log: Logged) -> None:
        held = claim(log.folder.node("b"))
        try:
            done = repair(log.root, CHANNEL)
        finally:
            import os

            os.close(held)
        assert len(done.left) == 1 and "node 'b' has it open" in done.left[0]

    def test_no_such_channel(self, tmp_path: Path) -> None:
        for call in (repair, verify):
            with pytest.raises(StoreError, match="expected a log of channel 'no', found none"):
                call(tmp_path, "no")


class TestExporting:
    def test_each_format(self, log: Logged, tmp_path: Path) -> None:
        for ending in ("parquet", "csv", "jsonl", "arrow"):
            told: list[int] = []
            assert export(log.root, CHANNEL, tmp_path / f"out.{ending}", progress=told.append) == 810
            assert sum(told) == 810
        expected = [key[2] for key in log.ordered()]
        assert pq.read_table(tmp_path / "out.parquet").column("event_seq").to_pylist() == expected
        with pa.OSFile(str(tmp_path / "out.arrow")) as file:
            assert pa.ipc.open_file(file).read_all().column("event_seq").to_pylist() == expected
        lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
        assert [line["event_seq"] for line in lines] == expected
        assert lines[0]["event_time"] == "2024-10-04T00:15:00+00:00"
        with (tmp_path / "out.csv").open(newline="") as text:
            rows = list(csv.DictReader(text))
        assert [int(row["event_seq"]) for row in rows] == expected
        assert not list(tmp_path.glob(".*"))

    def test_with_an_interest(self, log: Logged, tmp_path: Path) -> None:
        where = Interest("badge == 3", log.type)
        count = export(log.root, CHANNEL, tmp_path / "o.parquet", where=where, sources=["x"], columns=["event_seq"])
        assert count == 2 * sum(i % 7 == 3 for i in range(1, 201)) + sum(i % 7 == 3 for i in range(201, 211))

    def test_state_is_each_source_s_own(self, log: Logged, tmp_path: Path) -> None:
        third = Interest("{ static int n = 0; n = n + 1; return n % 3 == 0; }", log.type)
        export(log.root, CHANNEL, tmp_path / "o.parquet", where=third)
        found = pq.read_table(tmp_path / "o.parquet").to_pylist()
        assert {row["event_seq"] % 3 for row in found} == {0} and len(found) == 3 * 66 + 70
        assert [row["event_time"] for row in found] == sorted(row["event_time"] for row in found)

    def test_odd_values(self, tmp_path: Path) -> None:
        log = Logged(tmp_path, type=as_type("f: f64, b: bytes, l: i32[], ok: bool"))
        values = {"f": float("nan"), "b": b"\0\xff", "l": [1, 2], "ok": True}
        log.rest("a", [("a", "x", 1, DAY0, values)])
        export(tmp_path, CHANNEL, tmp_path / "o.jsonl")
        [line] = (tmp_path / "o.jsonl").read_text().splitlines()
        assert json.loads(line)["f"] == "NaN" and json.loads(line)["b"] == "AP8=" and json.loads(line)["l"] == [1, 2]
        export(tmp_path, CHANNEL, tmp_path / "o.csv")
        assert (tmp_path / "o.csv").read_text().splitlines()[1].endswith(',NaN,AP8=,"[1, 2]",true')

    def test_what_is_asked_wrongly(self, log: Logged, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match=r"expected a file that ends in \.parquet"):
            export(log.root, CHANNEL, tmp_path / "o.xlsx")
        with pytest.raises(StoreError, match="name another file"):
            export(log.root, CHANNEL, tmp_path / "none" / "o.csv")


def _scratch(path: Path, at: int = 8, count: int = 60) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + count] = bytes(255 - byte for byte in data[at : at + count])
    path.write_bytes(data)
