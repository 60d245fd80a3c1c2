"""`headwater log`, as it is called from a shell."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headwater.errors import HeadwaterError
from headwater.store.log.command import add_log, size_text
from headwater.store.log.layout import DAY_MICROSECONDS
from tests.store.log.logs import CHANNEL, DAY0, Logged, sighting


@pytest.fixture
def log(tmp_path: Path) -> Logged:
    made = Logged(tmp_path / "log")
    for part in range(3):
        rows = [sighting("a", s, 10 * part + i, DAY0 + (10 * part + i) * 1_000_000) for s in "xy" for i in range(1, 11)]
        made.rest("a", rows)
    made.tail("b", [sighting("b", "z", i, DAY0 + DAY_MICROSECONDS + i) for i in range(1, 6)])
    return made


def call(*words: object) -> int:
    """As `headwater.cli.main` does it."""
    parser = argparse.ArgumentParser(prog="headwater")
    add_log(parser.add_subparsers(dest="command", required=True))
    args = parser.parse_args([str(word) for word in ("log", *words)])
    result: int = args.run(args)
    return result


class TestListing:
    def test_channels(self, log: Logged, capsys: pytest.CaptureFixture[str]) -> None:
        other = Logged(log.root, "other", type=None)
        other.rest("a", [("a", "s", 1, DAY0, {"data": b"x"})])
        assert call("list", log.root) == 0
        head, first, second = capsys.readouterr().out.splitlines()
        assert head.split()[:6] == ["channel", "type", "nodes", "sources", "events", "files"]
        assert first.split()[:6] == [CHANNEL, "Event", "2", "3", "65", "4"]
        assert first.split()[-4:] == ["2024-10-04", "00:00:01", "2024-10-05", "00:00:00"] and "KiB" in first
        assert second.split()[:2] == ["other", "bytes"]

    def test_sources_and_json(self, log: Logged, capsys: pytest.CaptureFixture[str]) -> None:
        assert call("list", log.root, CHANNEL) == 0
        assert capsys.readouterr().out.splitlines()[1].split() == ["a", "x", "1", "30", "30"]
        assert call("list", log.root, CHANNEL, "--json") == 0
        assert json.loads(capsys.readouterr().out)[2] == {
            "node": "b", "source": "z", "first": 1, "last": 5, "events": 5,
        }  # fmt: skip
        assert call("list", log.root, "--json") == 0
        assert json.loads(capsys.readouterr().out)[0]["events"] == 65

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(HeadwaterError, match="expected a folder with a log, found none"):
            call("list", tmp_path / "no")


class TestShowing:
    def test_a_table_of_the_first(self, log: Logged, capsys: pytest.CaptureFixture[str]) -> None:
        assert call("show", log.root, CHANNEL, "--limit", 3) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split()[:5] == ["event_node", "event_source", "event_seq", "event_time", "badge"]
        assert [line.split()[:3] for line in lines[1:4]] == [["a", "x", "1"], ["a", "y", "1"], ["a", "x", "2"]]
        assert "the first 3 events" in lines[4]

    def test_lines_with_an_interest(self, log: Logged, capsys: pytest.CaptureFixture[str]) -> None:
        words = ("--where", "badge == :b", "--param", "b=3", "--source", "x", "--lines", "--columns", "event_seq,badge")
        assert call("show", log.root, CHANNEL, *words) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert found == [{"event_seq": seq, "badge": 3} for seq in (3, 10, 17, 24)]

    @pytest.mark.parametrize("count", [0, 2, 5, 8, 1000])
    def test_the_last(self, log: Logged, count: int, capsys: pytest.CaptureFixture[str]) -> None:
        assert call("show", log.root, CHANNEL, "--tail", count, "--json") == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        expected = log.ordered()[-count:] if count else []
        assert [(line["event_node"], line["event_seq"]) for line in found] == [(key[0], key[2]) for key in expected]

    def test_a_time(self, log: Logged, capsys: pytest.CaptureFixture[str]) -> None:
        words = ("--since", "2024-10-04T00:00:05", "--until", "2024-10-04T02:00:07+02:00", "--json", "--limit", 0)
        assert call("show", log.root, CHANNEL, *words) == 0
        assert [json.loads(line)["event_seq"] for line in capsys.readouterr().out.splitlines()] == [5, 5, 6, 6]

    def test_what_is_asked_wrongly(self, log: Logged, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            call("show", log.root, CHANNEL, "--since", "yesterday")
        assert "expected a time as in" in capsys.readouterr().err
        with pytest.raises(HeadwaterError, match="no field 'levle'"):
            call("show", log.root, CHANNEL, "--where", "levle > 1")
        with pytest.raises(
            HeadwaterError, match=r"--param 'x=\[\[1\]\]': expected a list of plain values, which is a set"
        ):
            call("show", log.root, CHANNEL, "--where", "level in :x", "--param", "x=[[1]]")
        with pytest.raises(HeadwaterError, match="--param 'x': expected NAME=VALUE"):
            call("show", log.root, CHANNEL, "--where", "level in :x", "--param", "x")


class TestKeeping:
    def test_verify_compact_verify(self, log: Logged, capsys: pytest.CaptureFixture[str]) -> None:
        assert call("verify", log.root) == 0
        assert "65 events of 3 sources in 4 files" in capsys.readouterr().out
        assert call("compact", log.root) == 0
        assert "3 files of 1 days are now 1" in capsys.readouterr().out
        assert call("compact", log.root, "--json", "--target", "1MiB") == 0
        assert json.loads(capsys.readouterr().out)[0]["days"] == 0
        assert call("verify", log.root, CHANNEL, "--json") == 0
        assert json.loads(capsys.readouterr().out)[0]["sound"] is True

    def test_what_is_wrong_is_told_and_repaired(self, log: Logged, capsys: pytest.CaptureFixture[str]) -> None:
        _, path = log.folder.parquet()[0]
        path.write_bytes(b"gone")
        assert call("verify", log.root) == 1
        assert "1 problem" in (out := capsys.readouterr().out) and "headwater log repair" in out
        assert call("repair", log.root) == 0
        assert "moved to _damaged" in capsys.readouterr().out
        assert call("repair", log.root, "--json") == 0
        assert json.loads(capsys.readouterr().out)[0]["done"] == []
        assert call("verify", log.root) == 0

    def test_export(self, log: Logged, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert call("export", log.root, CHANNEL, tmp_path / "x.parquet", "--where", "badge == 3") == 0
        rows = pq.read_table(tmp_path / "x.parquet").num_rows
        assert f"x.parquet: {rows} events" in capsys.readouterr().out and rows == 9
        assert call("export", log.root, CHANNEL, tmp_path / "odd", "--format", "csv") == 0

    def test_no_such_channel(self, log: Logged) -> None:
        with pytest.raises(HeadwaterError, match=f"found 'nope'; it has {CHANNEL}"):
            call("verify", log.root, "nope")


def test_sizes_for_people() -> None:
    found = [size_text(n) for n in (0, 1023, 1024, 1 << 20, 3 << 30)]
    assert found == ["0 B", "1,023 B", "1.0 KiB", "1.0 MiB", "3.0 GiB"]
