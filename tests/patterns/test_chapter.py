"""The examples of the chapter on patterns are what the oracle says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headwater.patterns.pattern import Pattern
from tests.patterns import oracle

PAGE = (Path(__file__).parents[2] / "docs" / "semantics.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```\npattern +(.+)\nevents +(.+)\nmatches +((?:.+\n)+?)```$", PAGE, re.MULTILINE)
CHANNELS = {"x": "v: i64?, k: text?", "y": "v: i64?, k: text?"}
SECOND = 1_000_000


def _event(at: int, text: str) -> dict[str, Any]:
    time, channel, *fields = text.split()
    given = dict(field.split("=") for field in fields)
    whole = {"v": int(given["v"]) if "v" in given else None, "k": given.get("k")}
    return {"channel": channel, "source": "s", "seq": at, "time": int(time) * SECOND, "fields": whole}


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize(("text", "events", "matches"), EXAMPLES, ids=[text for text, _, _ in EXAMPLES])
def test_an_example(text: str, events: str, matches: str) -> None:
    stream = [_event(at, each) for at, each in enumerate(events.split(" · "))]
    seconds = {at: event["time"] // SECOND for at, event in enumerate(stream)}
    found = []
    for match in oracle.matches(Pattern(text, CHANNELS).model, stream):
        taken = " ".join(f"{label}{seconds[origin[2]]}" for label, origin in match.events)
        found.append(taken if match.deadline is None else f"{taken} until {match.deadline // SECOND}")
    assert sorted(found) == sorted(line.strip() for line in matches.splitlines())
