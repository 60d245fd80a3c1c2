"""One node in a process of its own, told what to do by lines of JSON on its input: each is answered by one line.

Sinks write what they get to a file as they get it, so that what they have seen is known however the process ends.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Any

import pyarrow as pa

# The clock of the machine was set back: before anything of headwater has a name for it.
if BACK := int(os.environ.get("HEADWATER_TEST_CLOCK_BACK", "0")):  # seconds
    _time, _time_ns = time.time, time.time_ns
    time.time = lambda: _time() - BACK
    time.time_ns = lambda: _time_ns() - BACK * 1_000_000_000

from headwater import Event, Interest, Log, State, Subscription, i32, i64, u32
from headwater.channel.options.delivery import BestEffort, Reliable
from headwater.errors import ClosedError, SubscriptionError
from headwater.federation.network import Network
from headwater.federation.node import Node
from headwater.patterns.pattern import Pattern

GUARD = 240.0
PAUSE = 0.004  # seconds between two bursts of a flow


class Count(Event, name="test.Count"):
    """What flows count: `n` is also the number of the event in its source."""

    maker: str  # the name of the source, and in which life of its process
    n: i64
    level: i64 = 0


class Seen(Event, name="test.Seen"):
    badge: u32
    level: float
    room: str
    zone: i32 | None = None


class Tenths(Event, name="test.Tenths"):
    badge: u32
    tenth: i64


class Sum(Event, name="test.Sum"):
    """What a transformation makes of a Count."""

    maker: str
    n: i64
    level: i64


def every_third(event: Count, *, seen: State = State(n=0)) -> bool:
    seen.n += 1
    return seen.n % 3 == 0


SUM = "{ output.maker = input.maker; output.n = input.n; output.level = input.level + 1000; return input.n % 4 == 0; }"
SPECIAL: dict[str, Any] = {"transformation": Interest(SUM, Count, output=Sum), "state": every_third}

TYPES: dict[str, type[Event]] = {"seen": Seen, "tenths": Tenths, "count": Count}


class Sink:
    """A subscription that writes down: source, number, maker, n, epoch, whether it may have come before. With `every`,
    it acknowledges one event in so many, and with that all before it."""

    def __init__(self, path: str, every: int = 0) -> None:
        self._every = every
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.last: dict[str, int] = {}
        self.count = 0
        self.came = threading.Condition()
        self.subscription: Subscription | None = None

    def __call__(self, event: Any, about: Any) -> None:
        line = f"{about.source} {about.seq} {event.maker} {event.n} {about.epoch} {int(about.redelivered)}\n"
        os.write(self._file, line.encode())
        if self._every and about.seq % self._every == 0:
            with suppress(SubscriptionError):  # it is about to leave
                about.acknowledge()
        with self.came:
            self.last[event.maker] = event.n
            self.count += 1
            self.came.notify_all()

    def until(self, wanted: dict[str, int], timeout: float) -> bool:
        with self.came:
            return self.came.wait_for(lambda: all(self.last.get(maker, 0) >= n for maker, n in wanted.items()), timeout)


class Rows:
    """A subscription that keeps what it gets, as plain values."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.subscription: Subscription | None = None

    def __call__(self, event: Any, about: Any) -> None:
        fields = {name: getattr(event, name) for name in type(event).__struct_fields__}
        self.rows.append([about.source, about.seq, fields])


class Flow(threading.Thread):
    """A source that publishes on and on, one by one or (`many`) each burst as a batch.

    What it may have published is in a file, which grows, and what `publish` has returned for in another one."""

    def __init__(self, source: Any, maker: str, path: str, pace: int, many: bool, pause: float = PAUSE) -> None:
        super().__init__(daemon=True)
        self.source, self.maker, self.pace, self.many, self.pause = source, maker, pace, many, pause
        self.n = 0
        self._done = os.open(f"{path}.{maker}", os.O_WRONLY | os.O_CREAT)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.stopped = threading.Event()
        self.went = threading.Condition()
        self.start()

    def run(self) -> None:
        with suppress(ClosedError):  # it has moved
            self._publish()

    def _publish(self) -> None:
        while not self.stopped.wait(self.pause):
            last = self.n + self.pace
            os.write(self._file, f"{self.maker} {last}\n".encode())  # at most so many are published if it is killed
            if self.many:
                numbers = list(range(self.n + 1, last + 1))
                columns = {"maker": [self.maker] * self.pace, "n": numbers, "level": [n * 7919 % 100 for n in numbers]}
                self.source.publish_many(pa.table(columns))
                os.pwrite(self._done, b"%020d" % last, 0)
            for n in () if self.many else range(self.n + 1, last + 1):
                self.source.publish(Count(maker=self.maker, n=n, level=n * 7919 % 100))
                os.pwrite(self._done, b"%020d" % n, 0)
            with self.went:
                self.n = last
                self.went.notify_all()


class Worker:
    """The node and what it has."""

    def __init__(self) -> None:
        self.node: Node = None  # type: ignore[assignment]
        self.sinks: dict[str, Any] = {}
        self.flows: dict[str, Flow] = {}
        self.sources: dict[str, Any] = {}
        self.patterns: dict[str, Any] = {}

    # ── the node ──

    def open(
        self, name: str, network: dict[str, Any], state: str | None = None, log: dict[str, Any] | None = None
    ) -> Any:
        settings = None if log is None else Log(**log)
        self.node = Node(name, network=Network.of(network), state=state, log=settings)
        return {"id": self.node.id, "endpoints": list(self.node.endpoints)}

    def peers(self, wanted: list[str], timeout: float = GUARD) -> Any:
        return self.node.until(lambda: set(wanted) <= set(self.node.peers), timeout) or self.node.peers

    def alone(self, unwanted: list[str], timeout: float = GUARD) -> Any:
        return self.node.until(lambda: not set(unwanted) & set(self.node.peers), timeout)

    def gone(self, unwanted: list[str], timeout: float = GUARD) -> Any:
        """Wait until nothing is known of these any more."""
        engine = self.node._engine
        assert engine is not None
        return self.node.until(lambda: not set(unwanted) & {peer.name for peer in engine.everyone()}, timeout)

    def sees(self, channel: str, sources: list[str], timeout: float = GUARD) -> Any:
        ok = self.node.until(lambda: set(sources) <= set(self.node.remote_sources(channel)), timeout)
        return ok or self.node.remote_sources(channel)

    def announced(self, channel: str, sources: list[str], timeout: float = GUARD) -> Any:
        """Wait until these sources have said on their links that they send."""
        known = self.node.channel(channel).sources
        return self.node.until(lambda: set(sources) <= set(known), timeout) or sorted(known)

    def ready(self, timeout: float = GUARD) -> Any:
        """Whether it is; else why not."""
        assert self.node._engine is not None
        return self.node.ready(timeout) or self.node._engine.unready

    def flush(self, timeout: float = GUARD) -> Any:
        return self.node.flush(timeout)

    def close(self) -> Any:
        for flow in self.flows.values():
            flow.stopped.set()
            flow.join(GUARD)
        if self.node is not None:
            self.node.close(timeout=10.0)
        return True

    def links(self) -> Any:
        """By node, how it is reached."""
        engine = self.node._engine
        assert engine is not None
        return {peer.name: None if peer.link is None else peer.link.kind for peer in engine.everyone()}

    def state(self) -> Any:
        """For people, when something hangs."""
        engine = self.node._engine
        assert engine is not None
        return [
            [peer.id, peer.incarnation, peer.present, peer.gone, peer.resumed, peer.trouble, peer.calling]
            + [
                ["lane", lane.sid, lane.announced, lane.number, lane.waiting, crossing.parked, crossing.version]
                for crossing in peer.crossings.values()
                for lane in crossing.active()
            ]
            + [["from", sid, each.frame, each.acknowledged, each.received] for sid, each in peer.remote_sources.items()]
            + [["asked", one.version, one.agreed, one.marked, one.busy] for one in peer.asked.values()]
            for peer in engine.everyone()
        ]

    def cut(self) -> Any:
        """End all links to other nodes, in the middle of whatever crosses them."""
        engine = self.node._engine
        assert engine is not None
        found = [peer.link for peer in engine.everyone() if peer.link is not None]
        for link in found:
            link.close("cut by the test")
        return len(found)

    def threads(self) -> Any:
        """The names of those that Python knows."""
        return sorted(thread.name for thread in threading.enumerate())

    def offences(self) -> Any:
        assert self.node._engine is not None
        return dict(self.node._engine.offences)

    # ── counting ──

    def flow(
        self, channel: str, source: str, maker: str, path: str, pace: int = 5, many: bool = False, pause: float = PAUSE
    ) -> Any:
        made = self.node.channel(channel, Count).source(source)
        self.flows[maker] = Flow(made, maker, path, pace, many, pause)
        return True

    def flow_if_here(self, channel: str, source: str, maker: str, path: str, **more: Any) -> Any:
        """Whether the source is at this node, and so publishes."""
        try:
            return self.flow(channel, source, maker, path, **more)
        except SubscriptionError:
            return False

    def publishes(self, maker: str, count: int, timeout: float = GUARD) -> Any:
        """So many events more than now."""
        flow = self.flows[maker]
        end = flow.n + count
        with flow.went:
            return flow.went.wait_for(lambda: flow.n >= end, timeout)

    def move_source(self, maker: str) -> Any:
        """A token."""
        return self.flows[maker].source.move(lasts=3600.0)

    def resume_source(self, token: str, maker: str, path: str, pace: int = 5, pause: float = PAUSE) -> Any:
        made = self.node.resume_source(token, timeout=GUARD)
        self.flows[maker] = Flow(made, maker, path, pace, False, pause)
        return True

    def stop(self) -> Any:
        """End all flows; what they have published."""
        for flow in self.flows.values():
            flow.stopped.set()
        for flow in self.flows.values():
            flow.join(GUARD)
        return {maker: flow.n for maker, flow in self.flows.items()}

    def published(self) -> Any:
        return {maker: flow.n for maker, flow in self.flows.items()}

    def sink(
        self,
        channel: str,
        name: str,
        path: str,
        where: str | None = None,
        durable: bool = False,
        order: str | None = None,
        reliable: bool = True,
        group: str | None = None,
        every: int = 0,
    ) -> Any:
        sink = self.sinks[name] = Sink(path, every)
        subscribe, wanted = self.node.channel(channel, Count).subscribe, SPECIAL.get(where or "", where)
        acknowledge = "manual" if every else "return"
        delivery = Reliable(durable=durable, acknowledge=acknowledge) if reliable else BestEffort()
        sink.subscription = subscribe(sink, wanted, name=name, delivery=delivery, order=order, group=group)
        return True

    def sequence(self, channel: str) -> Any:
        """Sequence a channel, or stand by."""
        self.node.sequence(self.node.channel(channel, Count))
        return True

    def leads(self, channel: str, timeout: float = GUARD) -> Any:
        """Wait until this node's sequencer is the active one."""
        sequencer = self.node._sequencers[channel]
        return self.node.until(lambda: sequencer.active, timeout) or repr(sequencer)

    def sequencing(self, channel: str) -> Any:
        """For people, when something hangs."""
        sequencer, engine = self.node._sequencers.get(channel), self.node._engine
        assert engine is not None
        fence, ballot = engine.ballots.fence(engine.ballots.key(channel)), engine.ballots.of(channel)
        found: dict[str, Any] = {"fence": [fence.term, fence._last, fence.refused], "ballot": vars(ballot)}
        if sequencer is not None:
            names = ("term", "place", "floor", "missing", "followers", "active", "_follows", "_joining", "_until")
            found |= {name: getattr(sequencer, name) for name in names}
            found |= {"held": len(sequencer._held), "placed": len(sequencer._placed), "now": monotonic()}
        return repr(found)

    def followed(self, channel: str, timeout: float = GUARD) -> Any:
        """Wait until this node's sequencer is the active one, and counts another one among those who follow it."""
        sequencer = self.node._sequencers[channel]
        return self.node.until(lambda: sequencer.active and bool(sequencer.followers), timeout) or repr(sequencer)

    def follows(self, channel: str, timeout: float = GUARD) -> Any:
        """Wait until this node's sequencer could go on from where the active one is."""
        sequencer = self.node._sequencers[channel]
        return self.node.until(lambda: sequencer.following, timeout) or repr(sequencer)

    def came(self, sink: str, wanted: dict[str, int], timeout: float = GUARD) -> Any:
        found = self.sinks[sink]
        return found.until(wanted, timeout) or dict(found.last)

    def more(self, sink: str, count: int, timeout: float = GUARD) -> Any:
        """So many events more than now."""
        found = self.sinks[sink]
        end = found.count + count
        with found.came:
            return found.came.wait_for(lambda: found.count >= end, timeout)

    def change(self, sink: str, where: str) -> Any:
        """The points, and the epoch that begins there."""
        found = self.sinks[sink].subscription
        points = found.change(where=where)
        return {"points": points, "epoch": found.epoch}

    def move(self, sink: str) -> Any:
        """A token."""
        found = self.sinks[sink].subscription
        assert found is not None
        return found.move(lasts=3600.0)

    def resume(self, token: str, name: str, path: str, every: int = 0, timeout: float = GUARD) -> Any:
        sink = self.sinks[name] = Sink(path, every)
        sink.subscription = self.node.resume(token, sink, timeout=timeout)
        return True

    # ── what owners do ──

    def fails(self, channel: str, name: str, every: int) -> Any:
        """A sink whose handler fails now and then, never twice in a row."""
        seen = count()

        def handler(event: Any) -> None:
            if next(seen) % every == 0:
                raise ValueError("a handler that fails now and then")

        self.failing = self.node.channel(channel, Count).subscribe(handler, name=name)
        return True

    def failed(self) -> Any:
        """How it is, how often it has failed, and how many events it got."""
        return [str(self.failing.state), self.failing.counts.failed, self.failing.counts.delivered]

    def bulk(self, channel: str, wanted: int, timeout: float = GUARD) -> Any:
        """Many subscriptions at once, which end once they are in force."""
        on = self.node.channel(channel, Count)
        made = [on.subscribe(_nothing, f"level > {number} and n % {number + 2} == 1") for number in range(wanted)]
        ready = self.node.ready(timeout)
        for each in made:
            each.cancel()
        return ready

    def crashes(self) -> Any:
        """Threads of the node that have ended by an error, or gone on after one."""
        return list(self.node._crashes.lines())

    # ── anything ──

    def channel(self, name: str, type: str) -> Any:
        self.node.channel(name, TYPES.get(type, type))
        return True

    def source(self, channel: str, name: str) -> Any:
        self.sources[name] = self.node.channel(channel).source(name)
        return True

    def publish(self, source: str, events: list[dict[str, Any]], many: bool = False) -> Any:
        found = self.sources[source]
        if many:
            return found.publish_many(events)
        for event in events:
            found.publish(event)
        return found.seq

    def subscribe(self, channel: str, name: str, where: str | None, output: str | None = None) -> Any:
        made = self.sinks[name] = Rows()
        on = self.node.channel(channel)
        interest = where if where is None or output is None else Interest(where, on.type, output=TYPES[output])
        made.subscription = on.subscribe(made, interest, name=name)
        return True

    def cancel(self, name: str) -> Any:
        self.sinks[name].subscription.cancel()
        return True

    # ── patterns over counts ──

    def pattern(self, name: str, text: str, at: str | None = None) -> Any:
        """A named pattern; its matches have `maker` and `n`."""
        self.node.channel("test.count", Count)
        self.patterns[name] = self.node.pattern(name, text, at=at)
        return True

    def keep(self, name: str) -> Any:
        """Have its state written, and wait until it is."""
        made = self.patterns[name].local
        before = made.keeping()["written"]
        made.keep()
        return self.node.until(lambda: made.keeping()["written"] != before, GUARD)

    def narrow(self, name: str, nodes: list[str]) -> Any:
        """Wait until these nodes are asked for bound values only; whether nothing was lost."""
        made = self.patterns[name].local
        there = self.node.until(lambda: made.crossing["asked for open values"] == nodes, GUARD)
        return there and not made.crossing["lost"]

    def matches(self, name: str, text: str, path: str, durable: bool = True) -> Any:
        """A sink of its matches, here or elsewhere."""
        sink = self.sinks[name] = Sink(path)
        channel = self.node.channel(name, Pattern(text, {"test.count": Count}).output)
        sink.subscription = channel.subscribe(sink, name=f"{name} sink", delivery=Reliable(durable=durable))
        return True

    def wishes(self, channel: str, timeout: float = GUARD, wanted: int | None = None) -> Any:
        """By node, how many interests of it are in force at this node's sources; once there are so many in all."""
        engine = self.node._engine
        assert engine is not None

        def found() -> dict[str, int]:
            crossings = {peer.name: peer.crossings.get(channel) for peer in engine.everyone()}
            return {name: len(each.wishes) for name, each in crossings.items() if each is not None}

        self.node.until(lambda: wanted is None or sum(found().values()) == wanted, timeout)
        return found()

    def crossed(self) -> Any:
        """Events that went to other nodes."""
        engine = self.node._engine
        assert engine is not None
        return sum(lane.passed for peer in engine.everyone() for lane in peer.lanes())

    def rows(self, name: str) -> Any:
        return self.sinks[name].rows


def _nothing(event: Any) -> None:
    """Whoever asks for this only asks."""


def serve(worker: Any) -> None:
    """Until the input ends: first a line that it is there, then one for each that it is told."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed does not disturb
    out.write(json.dumps({"ok": "ready"}) + "\n")
    out.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        do: Callable[..., Any] = getattr(worker, asked.pop("do"))
        begun = monotonic()
        try:
            answer = {"ok": do(**asked)}
        except BaseException as error:
            logging.info("%s", asked, exc_info=True)
            answer = {"error": f"{type(error).__name__}: {error}"}
        answer["took"] = round(monotonic() - begun, 3)
        out.write(json.dumps(answer) + "\n")
        out.flush()
    os._exit(0)  # the test has gone away


if __name__ == "__main__":
    serve(Worker())
