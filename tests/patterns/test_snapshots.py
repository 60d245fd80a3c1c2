"""A snapshot that was taken at any point, and is gone on from in another process, leads to the same matches."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater import runnable
from headwater.errors import ExecutionError
from headwater.patterns import model, serial
from headwater.patterns.run.runner import Runner
from tests.effort import examples
from tests.federation.nursery import Popen
from tests.patterns.strategies import CHANNELS, SOURCES, patterns, streams
from tests.patterns.test_runner import Events, offer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def other() -> Iterator[subprocess.Popen[str]]:
    process = Popen(
        [sys.executable, "-m", "tests.patterns.elsewhere"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    yield process
    process.communicate()


def plain(matches: Any) -> list[Any]:
    return [
        [[[label, *event.origin] for label, event in match.events], match.time, match.deadline, match.identity.hex()]
        for match in matches
    ]


@settings(max_examples=examples(20), report_multiple_bugs=False, suppress_health_check=list(HealthCheck))
@given(patterns(), streams(), st.data())
def test_another_process_goes_on_from_any_point(
    other: subprocess.Popen[str], pattern: model.Pattern, events: Events, data: st.DataObject
) -> None:
    pattern = serial.loads(serial.dumps(pattern), pattern.params)  # what a process elsewhere has
    cut, asked = data.draw(st.integers(0, len(events))), data.draw(st.booleans())
    calm, broken = (Runner(pattern, mode="interpreted", interpreted=True) for _ in range(2))
    for runner in (calm, broken):
        runner.expect(SOURCES)
    for event in events:
        offer(calm, event)
    calm.finish()
    for event in events[:cut]:
        offer(broken, event)
    before = broken.matches() if asked else []  # else they are in the snapshot
    found = plain(before)
    positions = {source: event["seq"] for event in events[:cut] for source in [event["source"]]}
    types = {name: Runner(pattern).channels[name].type for name in CHANNELS if name in broken.channels}
    rest = [
        {name: event[name] for name in ("channel", "source", "seq", "time")}
        | {"record": base64.b64encode(types[event["channel"]].encode(event["fields"])).decode()}
        if event["channel"] in types
        else {name: event[name] for name in ("channel", "source", "seq", "time")}
        for event in events
    ]
    line = {
        "pattern": base64.b64encode(serial.dumps(pattern)).decode(),
        "params": dict(pattern.params),
        "snapshot": base64.b64encode(broken.snapshot(positions)).decode(),
        "events": rest,
    }
    assert other.stdin is not None and other.stdout is not None
    other.stdin.write(json.dumps(line) + "\n")
    other.stdin.flush()
    found += json.loads(other.stdout.readline())
    expected = json.loads(json.dumps(plain(calm.matches())))
    assert sorted(json.loads(json.dumps(found)), key=repr) == sorted(expected, key=repr)


@settings(max_examples=examples(3), suppress_health_check=list(HealthCheck))
@given(patterns(), streams())
def test_another_format_and_another_pattern_are_refused(pattern: model.Pattern, events: Events) -> None:
    runner = Runner(pattern, mode="interpreted", interpreted=True)
    for event in events:
        offer(runner, event)
    found = msgspec.msgpack.decode(runner.snapshot({}))
    fresh = Runner(pattern, mode="interpreted", interpreted=True)
    for at, value, what in ((0, runnable.SNAPSHOT + 1, "expected format"), (2, b"x" * 16, "the state of pattern")):
        changed = list(found)
        changed[at] = value
        with pytest.raises(ExecutionError, match=what):
            fresh.restore(msgspec.msgpack.encode(changed))
    assert fresh.counts.events == 0
