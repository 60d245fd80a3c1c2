"""A process that goes on with patterns from their snapshots: each line of its input has one, each of its output the
matches that were found from there on."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

from headwater.ir.interp import EventContext
from headwater.patterns import serial
from headwater.patterns.run.runner import Runner


def rest(asked: dict[str, Any]) -> list[Any]:
    """The matches of the events that come after a snapshot."""
    pattern = serial.loads(base64.b64decode(asked["pattern"]), asked["params"])
    runner = Runner(pattern, mode="interpreted", interpreted=True)
    positions = runner.restore(base64.b64decode(asked["snapshot"]))
    for event in asked["events"]:
        if event["seq"] <= positions.get(event["source"], -1):
            continue
        if event["channel"] not in runner.channels:
            runner.promise(event["source"], event["time"])
            continue
        record = base64.b64decode(event["record"])
        runner.offer(event["channel"], record, EventContext(event["source"], None, event["seq"], event["time"]))
    runner.finish()
    return [
        [[[label, *event.origin] for label, event in match.events], match.time, match.deadline, match.identity.hex()]
        for match in runner.matches()
    ]


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(rest(json.loads(line))) + "\n")
        sys.stdout.flush()
