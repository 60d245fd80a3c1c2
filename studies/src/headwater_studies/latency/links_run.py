"""What is done over a link between two hosts: round trips, and many events of which only some are wanted.

`Ours` sends the interest to the source. `Peer` sends everything, and the receiver takes what it wants; `Prefix` is
ZeroMQ where what is wanted happens to be the beginning of the message, the one thing that its sender can look at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater_studies.fleet.hosts import LinkedHosts
from headwater_studies.fleet.peers import SYSTEMS
from headwater_studies.fleet.worker import WANTED
from headwater_studies.harness.bench import Start
from headwater_studies.harness.pair import Pair

WHERE: Mapping[int, str | None] = {100: None, 10: "pick < 10", 1: f"pick = {WANTED:g}"}  # by percent of the events
NODE = "headwater_studies.fleet.thin"


@dataclass(slots=True)
class Passes:
    """The same thing done in every round: so many published, those wanted arrived, seconds from the first call to
    publish until the last of them was there, bytes on the wire both ways."""

    system: str
    wanted: int  # percent
    published: int = 0
    useful: int = 0
    seconds: list[float] = field(default_factory=list)
    traffic: list[int] = field(default_factory=list)
    wrong: int = 0  # that did not come, came twice, or out of order, in all rounds

    @property
    def rates(self) -> tuple[float, ...]:
        """Useful events a second, of each round."""
        return tuple(self.useful / each for each in self.seconds)

    @property
    def each(self) -> tuple[float, ...]:
        """Bytes on the wire for each useful event, of each round."""
        return tuple(all_of_it / self.useful for all_of_it in self.traffic)

    def of(self, percent: int) -> Passes:
        """The same runs, had only so many percent been wanted: of a system that sends everything in any case."""
        useful = self.useful * percent // self.wanted
        return Passes(self.system, percent, self.published, useful, self.seconds, self.traffic, self.wrong)


@dataclass(frozen=True, slots=True)
class One:
    """One run."""

    seconds: float
    traffic: int
    useful: int
    wrong: int


class _OverLink:
    """A process of one system on each of two hosts."""

    def __init__(self, start: Start, hosts: LinkedHosts, name: str, module: str) -> None:
        self.near, self.far = (start(module, inside=host.inside) for host in (hosts.near, hosts.far))
        self.name, self._hosts, self._pair = name, hosts, Pair(name, self.near, self.far)

    def trips(self, n: int) -> float:
        """The median round trip of one event."""
        return float(self._pair.trips(n)["p50"])

    def close(self) -> None:
        self._pair.close()


class Ours(_OverLink):
    """A node on each host."""

    def __init__(self, start: Start, hosts: LinkedHosts) -> None:
        super().__init__(start, hosts, "Headwater", NODE)
        self._wanted = 0

    def open(self, *, limit: int | None = None) -> None:
        """New nodes. `limit`: how many events may wait before publishers do."""
        self._wanted = 0
        near, far = self._hosts.near.address, self._hosts.far.address
        endpoint = self.near.call("listen", name="near", host=near, limit=limit)["endpoint"]
        self.far.call("listen", name="far", host=far, connect=endpoint)
        self.near.call("source")

    def prepare(self) -> None:
        self.far.call("answer")
        self.near.call("prepare_trips")

    @property
    def kind(self) -> str:
        """How the nodes are linked."""
        return " and ".join(self.near.call("counters")["links"])

    def run(self, n: int, percent: int) -> One:
        """Publish `n` events, of which so many percent are wanted."""
        return self._run(n, percent, "send", how="fresh")[0]

    def timed(self, n: int, percent: int) -> tuple[One, dict[str, Any]]:
        """The same, and what the publisher saw of it."""
        return self._run(n, percent, "send_timed")

    def _run(self, n: int, percent: int, send: str, **how: str) -> tuple[One, dict[str, Any]]:
        if self._wanted != percent:
            self.far.call("want", where=WHERE[percent])
            self._wanted = percent
        useful, before = n * percent // 100, self._hosts.near.traffic()
        self.far.call("expect", n=useful)
        self.far.ask("wait")
        sent = self.near.call(send, n=n, **how)
        end = self.far.answer()["end"]
        self.near.call("flush")
        traffic = self._hosts.quiet() - before
        seen = self.far.call("seen")
        return One(end - sent["start"], traffic, seen["got"], abs(useful - seen["got"]) + seen["wrong"]), sent


class Peer(_OverLink):
    """Another system, which sends everything."""

    def __init__(self, start: Start, hosts: LinkedHosts, key: str) -> None:
        super().__init__(start, hosts, SYSTEMS[key].name, SYSTEMS[key].module)

    def open(self) -> None:
        peer = self.near.call("open", host=self._hosts.near.address)["peer"]
        there = self.far.call("open", peer=peer, host=self._hosts.far.address)["peer"]
        self.near.ask("join", peer=there)
        if there is not None:  # else the listener is all that waits
            self.far.call("join", peer=None)
        self.near.answer()

    def run(self, n: int, percent: int = 100) -> One:
        """Send `n` events; all are counted where they arrive, one percent is wanted there."""
        return self._run(n, n)

    def _run(self, n: int, goal: int) -> One:
        before = self._hosts.near.traffic()
        self.far.call("expect", n=goal, mode="filter")
        self.far.ask("wait")
        start = self.near.call("send", n=n, how="fresh", packed=1)["start"]
        got = self.far.answer()
        traffic = self._hosts.quiet() - before
        return One(got["end"] - start, traffic, got["got"], abs(goal - got["got"]) + abs(n // 100 - got["useful"]))


class Prefix(Peer):
    """ZeroMQ, whose sender can leave out messages by their beginning."""

    def only(self, pick: float | None) -> None:
        self.far.call("only", pick=pick)
        self.near.call("heard", n=2)

    def run_prefix(self, n: int) -> One:
        """Send `n` events, of which one percent begins as wanted."""
        self.only(WANTED)
        try:
            return self._run(n, n // 100)
        finally:
            self.only(None)
