"""What is said of a pattern before it is installed: by itself, and on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater
from headwater import Node
from headwater.cli import main
from headwater.patterns.pattern import Pattern

DOOR = "who: text, action: text, door: u32, level: f64"
TAILGATING = (
    "a: hall.door(action = 'in'); b: hall.door{action = 'in' and who != a.who} within 2 seconds partition by door"
)


def test_all_parts_are_there() -> None:
    pattern = Pattern(TAILGATING, {"hall.door": DOOR})
    said = pattern.explain()
    parts = dict(said.parts)
    assert list(parts)[1:] == ["understood", "automaton", "order", "at the sources", "engine", "cost"]
    assert parts["understood"] == pattern.description
    assert parts["automaton"].startswith("○── a ─▶(1)── ; b ─▶((2))")
    assert parts["at the sources"].splitlines()[0] == "hall.door  action = 'in'"
    assert parts["engine"].startswith("separate: conditions between elements tell runs apart")
    limits = pattern.model.limits
    assert said.memory == limits.runs * said.plan.per_run + limits.partitions * said.plan.per_partition
    assert f"so at most {said.memory:,} bytes" in parts["cost"]
    assert "Spark\n  over a log: runners: " in headwater.explain(pattern)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("a: hall.door; without b: hall.door(action = 'out') within 1 minute", "when every source has promised"),
        ("a: hall.door; without b: hall.door(action = 'out') within 1 minute patience 5 seconds", "after 5 seconds of"),
        ("a: hall.door; b: hall.door within 1 minute", "hall.door  everything: every event can matter"),
        ("a: hall.door(action = 'in') within 3 events", "everything"),
        ("a: hall.door(action = 'in'); b: hall.door within 1 hour partition by who", "that were bound: who of the key"),
    ],
)  # fmt: skip
def test_what_runs_at_the_sources(words: str, said: str) -> None:
    assert said in dict(Pattern(words, {"hall.door": DOOR}).explain().parts)["at the sources"]


@pytest.mark.parametrize(
    ("words", "said"),
    [("", "by times of publication, then"), ("time at lateness 2 s", "by their own times, late by at most 2 seconds,")],
)
def test_the_order_of_events(words: str, said: str) -> None:
    pattern = Pattern(f"a: x -> b: x within 1 minute {words}", {"x": "v: i64, at: timestamp"})
    told = dict(pattern.explain().parts)["order"]
    assert told.startswith(said) and 'with order="arrival" as they come: live only' in told


def test_the_command_says_it_and_writes_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = tmp_path / "tailgating.svg"
    assert main(["explain", TAILGATING, "--channel", f"hall.door={DOOR}", "--svg", str(drawn)]) == 0
    said = capsys.readouterr().out
    assert said == headwater.explain(Pattern(TAILGATING, {"hall.door": DOOR})) + "\n"
    assert drawn.read_text(encoding="utf-8").startswith("<svg ")


def test_the_command_takes_channels_of_a_log_and_other_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Node("lab", log=tmp_path / "log") as node:
        node.channel("hall.door", DOOR).source().publish(who="Ann", action="in", door=1, level=0.5)
    words = "Door(P, 'in', *, *); Door(P, 'out', *, *)"
    arguments = ["--log", str(tmp_path / "log"), "--alias", "Door=hall.door"]
    assert main(["explain", words, *arguments]) == 0
    assert "partitions by P" in capsys.readouterr().out


def test_what_is_wrong_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in (
        (["a: hall.dor", "--channel", f"hall.door={DOOR}"], "hall.dor"),
        (["a: x -> b: y within 1 s"], "this reads as a pattern; name the channels that it is over: --channel"),
        (["a: x", "--channel", "x=v: i32", "--svg", str(tmp_path / "none" / "x.svg")], "No such file"),
        (["a: x", "--channel", "x"], "--channel 'x': expected NAME=TYPE"),
        (["a: x", "--channel", "x=v: i32", "--asm"], "--asm is for interests"),
        (["a: x", "--log", str(tmp_path / "none")], "expected a folder with a log, found none"),
        (["(a: x){60}", "--channel", "x=v: i32", "--svg", str(tmp_path / "x.svg")], "too large to be looked at"),
    ):
        assert main(["explain", *arguments]) == 2, arguments
        assert expected in capsys.readouterr().err
