"""What Flink answers to row patterns, and what Headwater does: the same, but for what is named here.

Flink's answers were recorded (`headwater_studies.flink.recording`), so there is no Flink in these tests."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import PatternError
from headwater.ir.interp import EventContext
from headwater.patterns.model import Pattern as Checked
from headwater.patterns.pattern import Pattern
from headwater.patterns.run.runner import Runner
from headwater_studies.flink.cases import AGREED, CHANNEL, DIFFERENT, EVENT, REFUSED, TAKEN, rows
from tests.patterns import oracle

SAID = json.loads((Path(__file__).parent / "flink.json").read_text(encoding="utf-8"))
MILLISECOND = 1_000


def _events() -> list[dict[str, Any]]:
    found = []
    for number, key, kind, v, f, time in rows():
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)
        fields = {"id": number, "k": key, "kind": kind, "v": v, "f": f, "ts": at}
        meta = {"channel": CHANNEL, "source": "s", "seq": number, "time": time * MILLISECOND}
        found.append({**meta, "fields": fields})
    return found


EVENTS = _events()


def _checked(text: str) -> Checked:
    return Pattern(text, {CHANNEL: EVENT}).model


def _as_text(values: list[list[Any]]) -> list[list[str | None]]:
    return sorted(([None if value is None else str(value) for value in row] for row in values), key=str)


def _by_definition(pattern: Checked, columns: list[str]) -> list[list[str | None]]:
    found = oracle.matches(pattern, EVENTS)
    return _as_text([[match.result[column] for column in columns] for match in found])


def _of_flink(said: dict[str, Any]) -> list[list[str | None]]:
    """Without the partition of those that have no key: for Headwater they are of none."""
    return _as_text([row for row in said["rows"] if row[0] is not None])


def test_the_recorded_answers_are_to_these_cases() -> None:
    assert sum(bool(said["rows"]) for said in SAID["agreed"].values()) >= len(AGREED) - 1
    assert SAID["events"] == [[None if value is None else str(value) for value in row] for row in rows()]
    assert [said["text"] for said in SAID["agreed"].values()] == [case.text for case in AGREED]
    for recorded, cases in (("different", DIFFERENT), ("taken", TAKEN), ("refused", REFUSED)):
        assert {name: said["text"] for name, said in SAID[recorded].items()} == {
            name: case.text for name, case in cases.items()
        }


@pytest.mark.parametrize("name", list(SAID["agreed"]))
def test_the_same_text_has_the_same_matches(name: str) -> None:
    said = SAID["agreed"][name]
    assert _by_definition(_checked(said["text"]), said["columns"]) == _of_flink(said)


@pytest.mark.parametrize("name", ["agreed 3", "agreed 10", "agreed 23", "agreed 29"])
def test_a_runner_finds_the_same_matches(name: str) -> None:
    said = SAID["agreed"][name]
    runner = Runner(_checked(said["text"]))
    for event in EVENTS:
        runner.offer(CHANNEL, event["fields"], EventContext("s", "s", event["seq"], event["time"]))
    runner.finish()
    found = [[event.seq for _, event in match.events] for match in runner.matches()]
    firsts = sorted((events[0], events[-1]) for events in found)
    columns = said["columns"]
    first, last = columns.index("first_A"), columns.index(f"last_{columns[-1][-1]}")
    assert firsts == sorted((int(row[first] or 0), int(row[last] or 0)) for row in _of_flink(said))


@pytest.mark.parametrize("name", list(SAID["different"]))
def test_what_is_said_to_differ_does(name: str) -> None:
    said = SAID["different"][name]
    assert _by_definition(_checked(said["text"]), said["columns"]) != _of_flink(said)


def test_flink_does_not_go_back_from_a_greedy_quantifier() -> None:
    """Where every end of a match could be taken by the repetition before it, Flink finds none at all."""
    said = SAID["different"]["greedy, and rows are alike"]
    assert said["rows"] == []
    assert _by_definition(_checked(said["text"]), said["columns"])


def test_flink_leaves_an_anchor_out_and_headwater_refuses_it() -> None:
    anchored = SAID["taken"]["an anchor"]
    assert anchored["rows"] == SAID["agreed"]["agreed 0"]["rows"]
    with pytest.raises(PatternError, match=r"\^ is not supported"):
        _checked(anchored["text"])


HERE = ("greedy at the end", "alternation", "a group that is repeated", "PERMUTE", "one variable twice",
        "optional and reluctant", "PREV", "CLASSIFIER")  # fmt: skip


@pytest.mark.parametrize("name", HERE)
def test_what_flink_refuses_and_headwater_can_say(name: str) -> None:
    said = SAID["refused"][name]
    assert said["said"]
    assert oracle.matches(_checked(said["text"]), EVENTS)


def test_what_both_refuse() -> None:
    both = set(SAID["refused"]) - set(HERE)
    assert both == {"exclusion", "MATCH_NUMBER", "an empty match", "COUNT(DISTINCT)"}
    for name in both:
        with pytest.raises(PatternError):
            _checked(SAID["refused"][name]["text"])
