"""Studies of one's own: what arrives live is what Spark finds, and the report, the command and the errors say so."""

from __future__ import annotations

import argparse
import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import ConfigError, HeadwaterError, InterestError
from headwater.interest import as_event_type
from headwater.spark.backtest import load
from headwater.store.log import ChannelLog, Log
from headwater.study.command import add_study
from headwater.study.live import live_names
from headwater.study.own import OwnResult, study
from headwater.study.own_page import page, summary
from headwater.study.report.files import write
from headwater.study.report.html import render
from headwater.study.report.plain import plain
from headwater.study.report.table import Column, Row, Table
from headwater.types import EventType

START = 1_790_000_000_000_000  # microseconds
CHANNEL = "office.reading"
READING: EventType = as_event_type("room: text, level: i32, person: text?")
NODES = ("hall", "Büro #1", "lab")  # not all of them are names in a federation
EVENTS = 120  # of a source

FILE = """
log = "events"
channel = "office.reading"
title = "A day in the office"
at = "desk"

[[subscription]]
name = "everything"

[[subscription]]
name = "loud in {room}"
where = "level >= 5 and room = :room"
each = {param = "room", in = ["east", "west"]}

[[subscription]]
name = "visitors"
at = "hall"
where = "person = 'eva'"

[[subscription]]
name = "levels"
where = "{ output.twice = input.level * 2; return input.level > 6; }"
output = "twice: i64"

[[subscription]]
name = "rises"
at = "archive"
where = "{ static int last = 0; int rose = input.level > last; last = input.level; return rose; }"

[[subscription]]
name = "of that year"
at = "archive"
where = "meta.time < timestamp '2026-09-22T00:00:00Z'"
"""


def level(node: int, source: int, at: int) -> int:
    return (at * (3 + node) + source * 7) % 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of three nodes with two sources each, and the file. One source goes back in time."""
    root = tmp_path_factory.mktemp("own")
    for number, node in enumerate(NODES):
        with ChannelLog.open(Log(root / "events", sync="roll"), CHANNEL, node, READING) as log:
            for source in (0, 1):
                rows = [
                    {
                        "room": ("east", "west", "north")[at % 3],
                        "level": level(number, source, at),
                        "person": (None, "eva", "ben")[at % 3],
                    }
                    for at in range(EVENTS)
                ]
                times = [START + at * 60_000_000 for at in range(EVENTS)]
                if number == source == 1:
                    times[10:20] = reversed(times[10:20])
                numbers = pa.array(range(1, 2 * EVENTS, 2), pa.int64())  # with gaps
                log.append_rows(f"s{source}", numbers, pa.array(times, pa.int64()), READING.to_arrow(rows))
            log.roll(wait=True)
    (root / "office.toml").write_text(FILE)
    return root


@pytest.fixture(scope="module")
def found(folder: Path, spark: Any) -> OwnResult:
    return study(folder / "office.toml", spark=spark, bucket="15m", say=lambda text: None)


def expected() -> dict[str, int]:
    everything = [
        (number, source, [level(number, source, at) for at in range(EVENTS)])
        for number in range(3)
        for source in (0, 1)
    ]
    rises = 0
    for _, _, levels in everything:
        rises += sum(now > before for before, now in zip([0, *levels], levels, strict=False))
    return {
        "everything": 6 * EVENTS,
        "loud in east": sum(at % 3 == 0 and lv >= 5 for _, _, all in everything for at, lv in enumerate(all)),
        "loud in west": sum(at % 3 == 1 and lv >= 5 for _, _, all in everything for at, lv in enumerate(all)),
        "visitors": 6 * EVENTS // 3,
        "levels": sum(lv > 6 for _, _, all in everything for lv in all),
        "rises": rises,
        "of that year": 6 * EVENTS,
    }


def test_live_is_what_spark_finds(found: OwnResult) -> None:
    assert {each.name: each.spark for each in found.subscriptions} == expected()
    assert found.differences == ()
    for each in found.subscriptions:
        if not each.again:
            assert each.live == each.spark, each
    # Live, all is in the order of time, and happens later than recorded: these two are compared with the live log.
    again = {each.name: each.live for each in found.subscriptions if each.again}
    assert set(again) <= {"rises", "of that year"} and again["of that year"] == 0
    kinds = {each.name: each.kind for each in found.subscriptions}
    assert kinds["everything"] == "everything"
    assert (kinds["levels"], kinds["rises"]) == ("transformation", "filter with state")


def test_every_recorded_node_is_played(found: OwnResult) -> None:
    assert found.run is not None
    assert [(link.node, link.sources, link.published) for link in found.run.links] == [
        (node, 2, 2 * EVENTS) for node in sorted(NODES)
    ]
    assert found.names == {"Büro #1": "B.ro.1"}
    assert found.sources == dict.fromkeys(sorted(NODES), 2)
    assert found.run.crossed >= 6 * EVENTS
    assert found.judged.local  # the visitors of the hall


def test_report_is_written(found: OwnResult, tmp_path: Path) -> None:
    path = write(page(found), found, tmp_path / "report")
    html = path.read_text()
    assert "<h1>A day in the office</h1>" in html
    assert html.count("<svg") == 3 * 5  # each for three widths
    # The times of the first and the last event, not the edges of the steps that they are in.
    assert "that 3 nodes recorded on 21 September 2026 between 14:13 and 16:12 UTC" in html
    assert "Of the first and the last steps (shaded) only a part was recorded" in html
    assert "loud in east" in html and "7 of 7" in html and "no difference" in html
    assert "<script" not in html and "http://" not in html and "https://" not in html
    told = json.loads((path.parent / "result.json").read_text())
    assert told["found"]["events"] == 6 * EVENTS
    assert told["run"]["delivered"]["visitors"] == 240
    with (path.parent / "tables" / "subscriptions.csv").open(newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert rows["visitors"]["events: live"] == "240" and rows["visitors"]["at"] == "hall"
    assert {each.stem for each in (path.parent / "tables").iterdir()} == {
        *("nodes", "subscriptions", "ways", "sinks", "links", "live", "code")
    }


def test_interests_are_whole_in_files(found: OwnResult, tmp_path: Path) -> None:
    path = write(page(found), found, tmp_path / "report")
    with (path.parent / "tables" / "subscriptions.csv").open(newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert rows["rises"]["interest"].endswith("return rose; }")
    assert ("†" in rows["rises"]["note"]) == next(each.again for each in found.subscriptions if each.name == "rises")
    assert "† events: live: compared with 0," in rows["of that year"]["note"]


def test_summary(found: OwnResult) -> None:
    ways, subscriptions = map(plain, summary(found))
    assert "merged" in ways and "live, measured" in ways
    assert "visitors" in subscriptions and "240" in subscriptions


def test_difference_is_told(found: OwnResult) -> None:
    first = replace(found.subscriptions[0], live=700)
    other = replace(found, subscriptions=(first, *found.subscriptions[1:]))
    assert [each.name for each in other.differences] == ["everything"]
    assert first.difference == -20
    html = render(page(other))
    assert "6 of 7" in html and "everything (-20)" in html and "differences</span>" in html


def run(folder: Path, *words: str) -> int:
    parser = argparse.ArgumentParser()
    add_study(parser.add_subparsers())
    args = parser.parse_args(["study", *words])
    result: int = args.run(args)
    return result


def test_command_without_live(
    folder: Path, spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(folder, str(folder / "office.toml"), "--no-live", "--bucket", "1h") == 0
    said = capsys.readouterr()
    assert "The report is studies/office/report.html" in said.out
    assert "live" not in (tmp_path / "studies/office/tables/subscriptions.csv").read_text()
    assert "subscriptions on Spark" in said.err
    assert spark.range(3).count() == 3  # a session that ran before goes on


def test_patterns_alone(folder: Path, spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "patterns.toml").write_text(
        'log = "events"\n[[pattern]]\nname = "eva, then louder"\nat = "desk"\n'
        "match = \"a: office.reading(person = 'eva') -> b: office.reading{level > a.level} within 5 minutes "
        'partition by room measures b.level as level"\n'
    )
    out = tmp_path / "report"
    assert run(folder, str(folder / "patterns.toml"), "--out", str(out)) == 0
    said = capsys.readouterr()
    assert "eva, then louder" in said.out and "in this process" in said.out and "Spark" in said.err
    html = (out / "report.html").read_text()
    assert "no difference" in html and "Spark and this process find the same matches" in html
    assert 'href="#patterns"' in html and 'href="#counts"' not in html
    told = json.loads((out / "result.json").read_text())
    assert told["found"] is None
    assert told["patterns"]["patterns"][0]["matches"] == told["patterns_here"]["patterns"][0]["matches"] > 0
    assert {each.stem for each in (out / "tables").iterdir()} == {
        *("patterns", "patterns_crossing", "matches_of_pattern_1")
    }


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        ('[[subscription]]\nname = "a"', [], 'say log = "folder"'),
        ('log = "none"\n[[subscription]]\nname = "a"', [], "a folder with a log"),
        ('log = "."\n[[subscription]]\nname = "a"', [], "it has none"),
        ('log = 3\n[[subscription]]\nname = "a"', [], "log"),
        ('logs = "x"\n[[subscription]]\nname = "a"', [], "did you mean 'log'?"),
        (FILE.replace("level >= 5", "loud"), [], "loud"),
        (f'{FILE}[[pattern]]\nname = "p"\nmatch = "a: office.readin"', [], "no channel 'office.readin'"),
        ('log = "events"\n[[pattern]]\nname = "p"\nmatch = "a: office.readin"', [], "no channel 'office.readin'"),
        (FILE, ["--bucket", "often"], "15m, 1h or 1d"),
        (FILE, ["--speed", "-1"], "a number above 0"),
        (FILE.replace("office.reading", "office.other"), [], "office.other"),
    ],
)
def test_problems_are_told_before_anything_starts(
    text: str, words: list[str], told: str, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.toml").write_text(text.replace('"events"', json.dumps(str(folder / "events"))))
    with pytest.raises(HeadwaterError) as caught:
        run(folder, str(tmp_path / "bad.toml"), *words)
    assert told in str(caught.value)
    assert not isinstance(caught.value, InterestError)


def test_options_that_are_not_for_the_badges() -> None:
    with pytest.raises(ConfigError, match="--no-live"):
        run(Path(), "badges", "--no-live")


def test_python_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from headwater.spark.backtest import Subscription\n"
        'subscriptions = [Subscription(name="a")]\nlog = "events"\ntitle = "Mine"\n'
    )
    given = load(tmp_path / "own.py")
    assert (given.log, given.title) == (tmp_path / "events", "Mine")
    (tmp_path / "own.py").write_text("subscriptions = []\nlog = 3\n")
    with pytest.raises(ConfigError, match="log"):
        load(tmp_path / "own.py")


def test_names_of_nodes() -> None:
    names = ["a b", "a.b", "a#b", "ä", "", "x" * 300, "x" * 301]
    made = live_names(names, taken=["ok"])
    assert list(made) == names and len(set(made.values())) == len(names)
    assert made["a.b"] == "a.b"  # a name that can stay does
    assert all(name and name.isascii() and len(name) <= 110 for name in made.values())
    assert live_names(["ok"], taken=["ok"]) == {"ok": "ok.2"}


def test_plain_tables() -> None:
    columns = (Column("name", "text"), Column("events"))
    rows = tuple(Row((f"n{at}", at), {1: "odd"} if at == 3 else {}) for at in range(50))
    lines = plain(Table(name="t", title="All", columns=columns, rows=rows), most=5).splitlines()
    assert lines == ["All", "  name  events", "  n0         0", "  n1         1", "  n2         2", "  n3       3 †",
                     "  n4         4", "  … and 45 more", "  † n3: odd"]  # fmt: skip
