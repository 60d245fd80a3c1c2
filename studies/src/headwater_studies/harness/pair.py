"""A sender and a receiver of one system, each in a process of its own: what they do, and that nothing is lost.

`fleet/worker.py` says what such a process can be told; those of `fleet` that carry events all know `open`, `send`,
`expect`, `wait`, `trips` and `echo`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from headwater_studies.fleet.worker import Gone, Worker
from headwater_studies.harness.bench import Start, free, pinned

NODE = "headwater_studies.fleet.node"  # one or several nodes of ours


class Lossy(Gone):
    """Not everything arrived, or not once."""


@dataclass(frozen=True, slots=True)
class Run:
    """Events in one direction: seconds from the first one sent until the last was dealt with, and what both said."""

    seconds: float
    sent: Mapping[str, Any]
    found: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two processes: `near` sends and takes the time; `far` receives, or sends back."""

    name: str
    near: Worker
    far: Worker
    ours: bool = False  # nodes of ours: the sender is told when all is acknowledged
    counted: bool = False  # its processes count the events that pass in a round trip
    polls: bool = False  # it never rests, and stands still while others are measured

    @property
    def workers(self) -> tuple[Worker, Worker]:
        return self.near, self.far

    # ── opening and ending it ──

    def join(self, **how: Any) -> Pair:
        """Connect the two: nodes of ours, with a source at the first, or another system's processes."""
        if self.ours:
            at = self.near.call("open", names=["near"], **how)["endpoint"]
            self.near.call("source")
            self.far.call("open", names=["far"], connect=at, **how)
        else:
            there = self.far.call("open", peer=self.near.call("open")["peer"])
            self.near.call("join", peer=there["peer"])
        return self

    def pin(self) -> None:
        """Each process on a core of its own, while there are cores."""
        pinned(*self.workers)

    def free(self) -> None:
        free(*self.workers)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """While it is measured; one that polls stands still otherwise."""
        if self.polls:
            self.near.call("wake")
        yield
        if self.polls:
            self.near.call("rest")

    def close(self) -> None:
        end(self.workers)

    # ── there and back ──

    def prepare_trips(self, link: str = "tcp") -> None:
        """Nodes of ours answer from a handler, over a link of this kind and no other."""
        self.far.call("answer")
        self.near.call("prepare_trips")
        self.expect_link(link)

    def expect_link(self, kind: str) -> None:
        """What is measured is what is said: Lossy if events would take another way."""
        links = self.near.call("counters")["links"]
        if links != [kind]:
            raise Lossy(f"{self.name}: expected links by {kind}, found {links}")

    def trips(self, n: int) -> Mapping[str, Any]:
        """`n` round trips, one after the other: `p50` and `p99` in seconds, and mostly all of them, `nanoseconds`."""
        before = self._passed()
        self.far.ask("echo", n=n)
        found = self.near.call("trips", n=n)
        self.far.answer()
        passed = [after - then for after, then in zip(self._passed(), before, strict=True)]
        made = len(found.get("nanoseconds", range(n)))  # not every system tells each of them
        if made != n or any(count != n for count in passed):
            counts = "".join(f", {count:,} events passed" for count in passed)
            raise Lossy(f"{self.name}: expected {n:,} round trips, found {made:,}{counts}")
        return found

    def _passed(self) -> list[int]:
        return [each.call("counters")["events"] for each in self.workers] if self.counted else []

    # ── in one direction ──

    def run(self, n: int, how: str, mode: str, come: int | None = None, **more: int) -> Run:
        """Send `n` events, of which `come` (all, unless that is said) must arrive."""
        return self.exchange(lambda: self.near.call("send", n=n, how=how, **more), n if come is None else come, mode)

    def exchange(self, send: Callable[[], Mapping[str, Any]], come: int, mode: str = "count") -> Run:
        """Whatever `send` does, so many events must arrive; its answer has `start`."""
        self.far.call("expect", n=come, mode=mode)
        self.far.ask("wait")
        sent = send()
        found = self.far.answer()
        if found["got"] != come:
            raise Lossy(f"lost {come - found['got']:,} of {come:,}")
        return Run(float(found["end"]) - float(sent["start"]), sent, found)

    def settle(self, come: int) -> None:
        """Of nodes: all is acknowledged, and no event has come twice."""
        self.near.call("flush")
        if (got := self.far.call("got")["got"]) != come:
            raise Lossy(f"lost {come - got:,} of {come:,}")

    # ── what it took ──

    def spent(self) -> list[float] | None:
        """Processor time so far of both processes, with that of a server each; None if a server's is not known."""
        answers = [worker.call("cpu") for worker in self.workers]
        used = [[answer[key] for key in ("cpu", "server") if key in answer] for answer in answers]
        return None if any(None in each for each in used) else [float(sum(each)) for each in used]

    def crossed(self) -> int:
        """Bytes over loopback so far, where the pair runs."""
        return int(self.near.call("loopback")["loopback"])


def started(start: Start, name: str, module: str, *arguments: str, inside: Sequence[str] = (), **more: bool) -> Pair:
    """Two processes of a module of `fleet`, which do not know each other yet."""
    near, far = (start(module, *arguments, inside=inside) for _ in range(2))
    return Pair(name, near, far, **more)


def nodes(start: Start, name: str = "Headwater", *, direct: bool = True, inside: Sequence[str] = ()) -> Pair:
    """Two nodes of ours, joined, with a source at the first."""
    return started(start, name, NODE, inside=inside, ours=True, counted=True).join(direct=direct)


def end(workers: Sequence[Worker]) -> None:
    """They end at the same time, which is quicker than one after the other."""
    for worker in workers:
        worker.leave()
    for worker in workers:
        with suppress(OSError):
            worker.close()
