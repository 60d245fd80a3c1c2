"""Hand-worked cases: a pattern, events, and the matches that follow from the definition.

    [[case]]
    name    = "what it is about"
    why     = "how the matches follow, where that is not plain"
    pattern = "a: x -> b: x within 5 us"
    events  = [["x", 1, {v = 1}], ["x", 2, {v = 2}, "n2"]]   channel, time, fields, and source ("s" unless given)
    matches = ["a0 b1"]                                   labels with the position in `events`; "a0 @ 11": until 11
    counted = {timeless = 1, keyless = 2, late = 1}       also unskipped; those that are not 0
    results = [{n = 1}]                                   of each match, in the same order, where there are measures

A file may begin with channels = {x = "v: i64?"} for all its cases. `promised` is the time that all sources have
promised beyond; without it, nothing more comes.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.patterns.pattern import Pattern
from tests.patterns import oracle

FOLDER = Path(__file__).parent / "fixtures"


@dataclass(frozen=True)
class Case:
    file: str
    name: str
    pattern: Pattern
    events: list[dict[str, Any]]
    matches: list[str]
    counted: dict[str, int]
    results: list[Any] | None
    promised: int | None

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"

    def shown(self, match: oracle.Match) -> str:
        """A match in the words of the fixture."""
        at = {(e["channel"], e["source"], e["seq"]): position for position, e in enumerate(self.events)}
        taken = " ".join(f"{label}{at[origin]}" for label, origin in match.events)
        return taken if match.deadline is None else f"{taken} @ {match.deadline}"


def cases() -> list[Case]:
    return [case for path in sorted(FOLDER.glob("*.toml")) for case in _read(path)]


def _read(path: Path) -> list[Case]:
    with path.open("rb") as file:
        told = tomllib.load(file)
    found = []
    for case in told["case"]:
        channels = told.get("channels", {}) | case.get("channels", {})
        pattern = Pattern(case["pattern"], channels, params=case.get("params"))
        events = _events(case["events"], pattern)
        found.append(
            Case(
                path.stem,
                case["name"],
                pattern,
                events,
                case["matches"],
                case.get("counted", {}),
                case.get("results"),
                case.get("promised"),
            )
        )
    return found


def _events(told: list[Any], pattern: Pattern) -> list[dict[str, Any]]:
    """In the order of the file; a source's numbers count on. Fields that are not given are missing."""
    types = {channel.name: channel.type for channel in pattern.model.channels}
    seq: dict[str, int] = {}
    events = []
    for channel, time, fields, *source in told:
        name = source[0] if source else "s"
        names = [f.name for f in types[channel].record.fields] if channel in types else list(fields)
        whole = {each: fields.get(each) for each in names}
        at = seq[name] = seq.get(name, -1) + 1
        events.append({"channel": channel, "source": name, "seq": at, "time": time, "fields": whole})
    return events
