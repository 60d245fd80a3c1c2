"""Recorded nodes, played: a process that is told what to do by lines of JSON on its input and answers each by one.

For every recorded node it opens a node in the federation, of the same name where that can be, with a log of its own,
and publishes what the recorded one did, in the order of its time. Run by `headwater.study.live`, never by hand.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from time import sleep
from typing import Any

from headwater.channel.channel import Channel
from headwater.channel.replay import common_type, replay
from headwater.errors import FederationError, HeadwaterError
from headwater.federation.network import Network
from headwater.federation.node import Node
from headwater.store.log import Log
from headwater.store.log.log_folder import LogFiles
from headwater.store.log.ordered_merge import times
from headwater.threads import Supervised

FLUSH = 60.0  # seconds
GRACE = 5  # seconds: what a player may take that is at work when its input ends


class Played:
    """One recorded node."""

    def __init__(self, name: str, called: str, recording: str, channel: str, facts: dict[str, Any] | None) -> None:
        self.name, self.called, self.channel, self.facts = name, called, channel, facts
        self.recording = LogFiles(recording, nodes=[name])
        self.node: Node
        self.live: Channel
        self.sources: dict[str, Any] = {}
        self.published = 0

    def open(self, federation: str, endpoint: str, log: str | None) -> None:
        network = Network(connect=(endpoint,), listen=("tcp/127.0.0.1:0",), federation=federation)
        kept = None if log is None else Log(log, channels=self.channel)
        self.node = Node(self.called, network=network, log=kept)
        self.live = self.node.channel(self.channel, common_type(self.recording.reader(self.channel).table) or bytes)
        spans = self.recording.sources(self.channel)
        self.sources = {span.source: self.live.source(span.source, facts=self.facts) for span in spans}

    def first(self) -> int | None:
        """The time of its first event, in microseconds."""
        batch = next(self.recording.reader(self.channel).merged(rows=1), None)
        return None if batch is None else int(times(batch)[0])

    def play(self, speed: float | None, begin: int | None = None) -> None:
        """With a speed, as long after the others as it was recorded: `begin` is when the first of them began."""
        if speed is not None and begin is not None and (first := self.first()) is not None:
            sleep((first - begin) / 1e6 / speed)
        report = replay(
            self.recording,
            self.node,
            channel=self.channel,
            speed=speed,
            source=lambda _channel, _node, name: self.sources[name],
        )
        self.published = report.events
        if not self.node.flush(FLUSH):
            raise FederationError(f"node {self.name!r}: events were not acknowledged within {FLUSH:.0f} s")

    def told(self) -> dict[str, Any]:
        report = self.node.federation_report()
        lanes = [lane for peer in report.peers for lane in peer.lanes if lane.channel == self.channel]
        return {
            "node": self.name,
            "sources": len(self.sources),
            "published": self.published,
            "crossed": sum(lane.sent for lane in lanes),
            "frames": sum(lane.frames for lane in lanes),
            "waiting": sum(lane.waiting for lane in lanes),
            "bytes_out": sum(peer.bytes_out for peer in report.peers),
            "bytes_in": sum(peer.bytes_in for peer in report.peers),
            "answers": sum(peer.answers for peer in report.peers),
            "said": sum(kind.get("messages_out", 0) for kind in report.messages.values()),
            "said_bytes": sum(kind.get("bytes_out", 0) for kind in report.messages.values()),
        }

    def close(self) -> None:
        """All that it logged comes to rest, so that whoever reads Parquet sees it."""
        log = None if self.node._logs is None else self.node._logs.known(self.channel)
        if log is not None:
            log.roll(wait=True)
        self.node.close()


class Player:
    """All that this process plays."""

    def __init__(self) -> None:
        self._played: list[Played] = []

    def load(self, recording: str, channel: str, nodes: dict[str, str], facts: dict[str, dict[str, Any]]) -> Any:
        self._played = [Played(name, called, recording, channel, facts.get(name)) for name, called in nodes.items()]
        return len(self._played)

    def open(self, federation: str, endpoint: str, log: str | None) -> Any:
        for each in self._played:
            each.open(federation, endpoint, log)
        return {each.node.id: len(each.sources) for each in self._played}

    def first(self) -> Any:
        return min((first for each in self._played if (first := each.first()) is not None), default=None)

    def play(self, speed: float | None, begin: int | None) -> Any:
        """At a given speed all at once; as fast as it goes one after the other."""
        if speed is None:
            for each in self._played:
                each.play(None)
        else:
            with ThreadPoolExecutor(len(self._played)) as pool:
                list(pool.map(lambda each: each.play(speed, begin), self._played))
        return sum(each.published for each in self._played)

    def told(self) -> Any:
        return [each.told() for each in self._played]

    def close(self) -> Any:
        with ExitStack() as stack:
            for each in self._played:
                stack.callback(each.close)
        return True


def _orders() -> Iterator[str]:
    """The lines of the input. Its end is noticed at once, whatever this process is at: then it ends, by itself or by
    the alarm, which needs no thread of Python's."""
    lines: SimpleQueue[str | None] = SimpleQueue()

    def read() -> None:
        try:
            for line in sys.stdin:
                lines.put(line)
        finally:
            signal.alarm(GRACE)
            lines.put(None)

    Supervised(read, "headwater-study-orders").start()
    yield from iter(lines.get, None)


def main() -> None:
    """Serve until the input ends. If it crashes, it says where all of its threads were."""
    faulthandler.enable()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # it ends this process, also where the parent ignored it
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed must not look like an answer
    player = Player()
    for line in _orders():
        asked = json.loads(line)
        try:
            answer = {"ok": getattr(player, asked.pop("do"))(**asked)}
        except (HeadwaterError, OSError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
