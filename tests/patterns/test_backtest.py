"""Patterns tried on a log without Spark: the same matches as the definition finds, and exactly what would cross."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from headwater import Node
from headwater.cli import main
from headwater.errors import ConfigError
from headwater.ir.interp import EventContext
from headwater.patterns import model
from headwater.patterns.crossing.bindings import Opener, bindings
from headwater.patterns.pattern import Pattern
from headwater.spark.backtest import AskedPattern, backtest_patterns, loads
from headwater.spark.backtest.patterns import history
from headwater.spark.backtest.patterns.report import sparkline
from headwater.store.log.reader import ChannelReader
from headwater.testing import ManualClock
from tests.effort import examples
from tests.patterns import oracle
from tests.patterns.strategies import CHANNELS, patterns

DOOR = "who: text, action: text, door: u32"
HOUR = 3600.0


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events of three sources of one name, many of them at one time."""
    folder: Path = tmp_path_factory.mktemp("backtest") / "log"
    chance, clock = random.Random(15), ManualClock()
    with Node("lab", log=folder, clock=clock) as lab, Node("hall", log=folder, clock=clock) as hall:
        sources = {
            name: [node.channel(name, type).source("s") for node in ((lab, hall) if name == "a" else (lab,))]
            for name, type in CHANNELS.items()
        }
        for _ in range(14):
            name = chance.choice("aab")
            fields = {
                "k": chance.choice((1, 1, 2, None)),
                "v": chance.choice((0, 1, 2, 3, None)),
                "s": chance.choice("xxyz"),
            }
            if name == "a":
                fields["f"] = chance.choice((0.0, -0.0, 1.0, None))
            chance.choice(sources[name]).publish(**fields)
            clock.advance(chance.choice((0.0, 0.0, 1e-6, 2e-6)))
    return folder


def recorded(log: Path) -> list[dict[str, Any]]:
    """What is in a log, as the definition takes it."""
    found = []
    for name in CHANNELS:
        reader = ChannelReader(log, name)
        assert reader.type is not None
        for batch in reader.merged():
            events = reader.type.arrow_to_raw(reader.type.conform(batch))
            known = batch.select(["event_source", "event_seq", "event_time", "event_node"]).to_pylist()
            for raw, meta in zip(events, known, strict=True):
                micros = round(meta["event_time"].timestamp() * 1e6)
                about = {"node": meta["event_node"], "source": meta["event_source"], "seq": meta["event_seq"]}
                found.append({"channel": name, **about, "time": micros, "fields": raw})
    return found


@settings(max_examples=examples(12))
@given(pattern=patterns())
def test_matches_are_those_of_the_definition(log: Path, pattern: model.Pattern) -> None:
    before, history.ROWS = history.ROWS, 3  # so that pieces end where they should not
    try:
        asked = AskedPattern(name="tried", match=Pattern.from_model(pattern), at="desk")
        found = backtest_patterns(None, log, [asked]).pattern("tried")
    finally:
        history.ROWS = before
    wanted = sorted(match.time for match in oracle.matches(pattern, recorded(log)))
    assert [round(each["time"].timestamp() * 1e6) for each in found.latest] == wanted
    assert found.matches == len(wanted) == sum(found.times.values()) == sum(found.hours)
    assert found.bound is None or found.bound.events <= found.atoms.events <= found.everything.events


def test_events_that_say_their_own_time_are_put_in_that_order(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path / "log") as node:
        source = node.channel("x", "at: i64, n: i64").source("s")
        for at, n in ((10, 0), (40, 1), (30, 2), (20, 3)):  # 30 and 20 are late
            source.publish(at=at, n=n)
        node.channel("x").source("r").publish(at=35, n=4)
    words = "a: x; b: x within 1 minute time at measures a.n as a, b.n as b"
    early = AskedPattern(name="early", match=words)
    later = AskedPattern(name="later", match=f"{words} lateness 10 us")
    found = backtest_patterns(None, tmp_path / "log", [early, later])
    pairs = [tuple(each["result"][n] for n in "ab") for each in found.pattern("early").latest]
    assert sorted(pairs) == [(0, 1), (0, 4), (4, 1)]
    assert (found.pattern("early").late, found.pattern("later").late) == (2, 1)
    assert found.pattern("later").matches == 6  # 30 counts, too


def test_what_is_late_in_one_channel_is_not_in_another(tmp_path: Path) -> None:
    with Node("lab", log=tmp_path / "log") as node:
        x, y = (node.channel(name, "at: i64").source("s") for name in "xy")
        for source, at in ((x, 10), (y, 5), (y, 20), (x, 15)):
            source.publish(at=at)
    asked = AskedPattern(name="both", match="a: y; b: x within 1 minute time at")
    found = backtest_patterns(None, tmp_path / "log", [asked]).pattern("both")
    assert (found.matches, found.late) == (2, 0)


@pytest.fixture
def doors(tmp_path: Path) -> Path:
    """Three hours at two doors."""
    clock, folder = ManualClock(), tmp_path / "log"
    with Node("hall", log=folder, clock=clock) as hall, Node("desk", log=folder, clock=clock) as desk:
        first = hall.channel("hall.door", DOOR).source("east")
        second = desk.channel("hall.door", DOOR).source("west")
        for who, action, door, source in (
            ("Ann", "in", 1, first),
            ("Bob", "in", 1, first),
            ("Ann", "out", 2, second),
            ("Eve", "in", 2, second),
            ("Bob", "out", 42, first),
            ("Bob", "in", 1, first),
            ("Ann", "in", 1, second),
            ("Bob", "out", 2, first),
        ):
            source.publish(who=who, action=action, door=door)
            clock.advance(0.4 * HOUR)
    return folder


TRACED = "hall.door(P, *, 42); hall.door(P, *, *)"
FILE = f"""
at = "desk"

[[pattern]]
name = "traced"
match = "Door(P, *, 42); Door(P, *, *)"
aliases = {{Door = "hall.door"}}

[[pattern]]
name = "in and out"
match = "a: hall.door(action = 'in') -> b: hall.door(action = 'out') within :t partition by who"
params = {{t = {HOUR}}}
"""


def test_what_crosses(doors: Path) -> None:
    found = backtest_patterns(None, doors, loads(FILE).patterns, bucket="1h")
    traced, simple = found.pattern("traced"), found.pattern("in and out")
    assert (traced.matches, simple.matches) == (2, 2)
    assert traced.everything.events == 5 and traced.atoms.events == 5  # those of hall: what desk has is there
    assert traced.bound is not None and traced.bound.events == 3  # Bob at 42, and where he went
    assert traced.bound.bytes < traced.atoms.bytes == traced.everything.bytes
    assert sum(simple.hours) == 2 and simple.first is not None and simple.hours[simple.first.hour] == 1
    assert [[event["who"] for event in list(each["result"].values())[:2]] for each in traced.latest] == [
        ["Bob", "Bob"]
    ] * 2
    assert sum(traced.times.values()) == 2 and len(found.over_time()) in (2, 3)


def test_rows_that_fit_nothing_are_marks(doors: Path) -> None:
    rows = "a: hall.door(action = 'in'), b: hall.door(door = 42) within 1 day"
    asked = [
        AskedPattern(name="rows", match=rows, at="desk"),
        AskedPattern(name="of each", match=f"{rows} partition by who", at="desk"),
        AskedPattern(name="among", match=f"{rows} among door = 1", at="desk"),
    ]
    found = backtest_patterns(None, doors, asked)
    every, each, among = (found.pattern(name) for name in ("rows", "of each", "among"))
    assert every.marks is not None and each.bound_marks is not None and among.marks is not None
    assert (every.atoms.events, every.marks.events, every.everything.events) == (4, 1, 5)  # what desk has is there
    assert (each.bound_marks.events, among.marks.events) == (1, 0)
    assert every.asked == every.atoms + every.marks and "marks" in str(found)


def test_bound_values_let_through_what_the_sources_would(doors: Path) -> None:
    pattern = Pattern(TRACED, {"hall.door": DOOR})
    asked = bindings(pattern.model)
    assert asked is not None
    opener, open, count = Opener(asked), dict[str, set[Any]](), 0
    reader = ChannelReader(doors, "hall.door")
    for batch in reader.merged():
        for raw, node in zip(pattern.model.channels[0].type.arrow_to_raw(pattern.model.channels[0].type.conform(batch)),
                             batch.column("event_node").to_pylist(), strict=True):  # fmt: skip
            record = pattern.model.channels[0].type.encode(raw)
            interest = asked.interest("hall.door", open, narrow=[node])
            assert interest is not None
            meta = EventContext("s", node, 1, 1)
            count += interest.native().run(record, meta).passed
            for slot, value in opener("hall.door", record, meta).items():
                open.setdefault(slot, set()).add(value)
    found = backtest_patterns(None, doors, [AskedPattern(name="traced", match=TRACED, at="nowhere")])
    bound = found.pattern("traced").bound
    assert bound is not None and bound.events == count == 3


def test_the_command_says_when_and_what(doors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "office.toml"
    file.write_text(FILE + '[[subscription]]\nname = "ins"\nwhere = "action = \'in\'"\n', encoding="utf-8")
    told = tmp_path / "report.json"
    assert main(["backtest", str(file), str(doors), "--json", str(told), "--csv", str(tmp_path / "csv")]) == 0
    said = capsys.readouterr().out
    assert "How often each would have fired:" in said and "Subscriptions, the largest first:" in said
    found = json.loads(told.read_text(encoding="utf-8"))
    assert found["subscriptions"][0]["events"] == 5
    rows = found["patterns"]["patterns"]
    assert [(row["name"], row["matches"]) for row in rows] == [("traced", 2), ("in and out", 2)]
    lines = (tmp_path / "csv" / "patterns.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("name,at,matches,first,last,all events,all bytes,atoms events") and len(lines) == 3
    assert len((tmp_path / "csv" / "fired_by_hour.csv").read_text(encoding="utf-8").splitlines()) == 25


def test_the_command_takes_the_text_of_a_pattern(doors: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "Door(P, *, 42); Door(P, *, *) within :t"
    options = ["--alias", "Door=hall.door", "--param", f"t={9 * HOUR}", "--at", "desk"]
    assert main(["backtest", words, str(doors), *options]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["pattern", "all", "5"] in [line[:3] for line in lines]
    assert ["bound", "3"] in [line[:2] for line in lines]
    for arguments, told in (
        (["patterns.tml"], "expected a file that ends in .toml or .py"),
        (["a: hall.dor within 1 s"], "did you mean 'hall.door'?"),
        (["a: hall.door{who = 'Ann' within 1 s"], "line 1, column 13: this is never closed"),
        (["patterns.toml", "--at", "desk"], "expected the text of a pattern with it, found --at"),
    ):
        assert main(["backtest", *arguments[:1], str(doors), *arguments[1:]]) == 2
        assert told in capsys.readouterr().err


def test_absence_that_nobody_has_recorded_is_noted(doors: Path) -> None:
    silent = "a: hall.door(who = P); without hall.door(who = P) within 1 hour"
    asked = [AskedPattern(name="silent", match=silent), AskedPattern(name="odd", match="a: hall.door lateness 1 s")]
    found = backtest_patterns(None, doors, asked)
    assert found.pattern("silent").matches > found.pattern("silent").beyond == 2  # Ann's last, and Bob's
    silent, odd = sorted(found.notes, reverse=True)
    assert "2 of its matches are after the last recorded event" in silent
    assert odd.startswith("odd: line 1, column 14: lateness has no meaning without time")


def problems(text: str, log: Path | None = None) -> Iterator[str]:
    with pytest.raises(ConfigError) as caught:
        given = loads(text)
        assert log is not None
        backtest_patterns(None, log, given.patterns)
    return map(str, caught.value.problems)


def test_everything_wrong_is_said_at_once(doors: Path) -> None:
    said = "\n".join(problems('[[pattern]]\nat = ""\nparams = 3\n[[pattern]]\nname = "x"\nmatch = "a: x"\nwhere = "y"'))
    for expected in ("pattern 1 name", "pattern 1 '1' at", "pattern 1 '1' match", "pattern 1 '1' params", "where"):
        assert expected in said
    said = "\n".join(
        problems('[[pattern]]\nname = "x"\nmatch = "a: hall.dor"\n[[pattern]]\nname = "y"\nmatch = ";"', doors)
    )
    assert "hall.dor" in said and "'y' match" in said
    assert "at least one [[subscription]], [[pattern]] or [[trigger]]" in "\n".join(problems(""))


def test_hours_as_letters() -> None:
    assert sparkline([0, 1, 4, 8]) == "·▁▄█"
