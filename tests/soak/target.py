"""The node that mutated inputs are sent to, in a process of its own: its sinks take what is plainly an event, and count
what an honest source sends."""

from __future__ import annotations

import logging
import threading
from typing import Any

from headwater.federation.node import Node
from tests.federation.attacks import CHANNEL, WHERES, Sighting, plainly
from tests.federation.hostile import Target
from tests.federation.worker import GUARD, serve


class Strict:
    """A sink. Honest events are numbered from 0."""

    def __init__(self) -> None:
        self.honest = self.lost = self.duplicated = self.garbage = self.count = 0
        self.came = threading.Condition()

    def __call__(self, event: Any, about: Any) -> None:
        with self.came:
            self.count += 1
            self.garbage += not plainly(event)
            if about.source != "honest":
                return
            self.lost += max(0, event.badge - self.honest)
            if event.badge < self.honest:
                self.duplicated += 1
            else:
                self.honest = event.badge + 1
                self.came.notify_all()


class Failures(logging.Handler):
    """What is logged as a failure of the node itself."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        if self.count <= 5:
            self.texts.append(logging.Formatter().format(record))


class Lab:
    def __init__(self) -> None:
        self.node: Node = None  # type: ignore[assignment]
        self.sinks = [Strict() for _ in WHERES]
        self.rows = 0
        self.failures = Failures()

    def open(self) -> Any:
        logging.getLogger("headwater").addHandler(self.failures)
        logging.getLogger("headwater").setLevel(logging.ERROR)
        self.node = Node("lab", listen="tcp/127.0.0.1:0")
        channel = self.node.channel(CHANNEL, Sighting)
        self.subscriptions = [
            channel.subscribe(sink, where, about=True, failures=3)
            for sink, where in zip(self.sinks, WHERES, strict=True)
        ]
        self.subscriptions.append(channel.subscribe(self._count, batch=64))
        self.answers = self.node.channel("answers", Sighting).source("lab")
        return Target.of(self.node)

    def _count(self, rows: Any) -> None:
        self.rows += rows.num_rows

    def sees(self, source: str) -> Any:
        return self.node.until(lambda: source in self.node.remote_sources(CHANNEL), GUARD) and self.node.ready(GUARD)

    def answer(self, first: int, end: int) -> Any:
        """Publish these numbers."""
        for number in range(first, end):
            self.answers.publish(badge=number, level=1.0)
        return True

    def honest(self, end: int) -> Any:
        """Wait until every sink has had all honest events up to this one; else how far they are."""
        for sink in self.sinks:
            with sink.came:
                if not sink.came.wait_for(lambda sink=sink: sink.honest >= end, GUARD):
                    return [each.honest for each in self.sinks]
        return True

    def counts(self) -> Any:
        """Of all sinks together, and what the node has noted about others."""
        assert self.node._engine is not None
        offences = self.node._engine.offences
        return {
            "honest": [sink.honest - sink.lost for sink in self.sinks],
            "events": sum(sink.count for sink in self.sinks),
            "lost": sum(sink.lost for sink in self.sinks),
            "duplicated": sum(sink.duplicated for sink in self.sinks),
            "garbage": sum(sink.garbage for sink in self.sinks),
            "offences": sum(offences.values()),
            "offenders": len(offences),
        }

    def troubles(self, friend: str) -> Any:
        """What should not be. `friend`: the id of the honest node, which must not be blamed."""
        engine = self.node._engine
        assert engine is not None
        found = [f"not an event, but delivered: {sink.garbage}" for sink in self.sinks if sink.garbage]
        found += [f"a failure of the node: {text}" for text in self.failures.texts]
        found += [
            f"{each}: {each.state}, {each.counts.failed} failed, {each._trouble}"
            for each in self.subscriptions
            if each.state != "open" or each.counts.failed
        ]
        found += [f"failures of the fabric: {engine.fabric.failures}"] if any(engine.fabric.failures.values()) else []
        blamed = [who for who in engine.offences if who.startswith(friend)]
        return found + [f"blamed without reason: {who}" for who in blamed]


if __name__ == "__main__":
    serve(Lab())
