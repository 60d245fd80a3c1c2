"""The systems whose latency is compared, each in two processes on one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headwater_studies.fleet import tcp_c
from headwater_studies.fleet.worker import Gone, Worker
from headwater_studies.harness.bench import Bench, pinned

Samples = npt.NDArray[np.float64]  # seconds
TCP_C, TCP, ZENOH, ROUTED_ZENOH = "raw TCP, C", "raw TCP, Python", "bare Zenoh", "bare Zenoh, through a router"
FEDERATED, ZENOH_ONLY, CENTRALISED = (
    "Headwater, federated",
    "Headwater, federated, only Zenoh connects",
    "Headwater, centralised",
)
_FLEET = "headwater_studies.fleet"


class Lossy(Gone):
    """Not everything arrived, or not once."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A system's two processes: `near` sends and takes the time; what it sends passes through `far`."""

    name: str
    near: Worker
    far: Worker
    counted: bool = False  # its processes count the events that pass

    def trips(self, n: int) -> Samples:
        """`n` round trips, one after the other."""
        before = self._passed()
        self.far.ask("echo", n=n)
        found = self.near.call("trips", n=n)["nanoseconds"]
        self.far.answer()
        passed = [after - then for after, then in zip(self._passed(), before, strict=True)]
        if len(found) != n or any(count != n for count in passed):
            counts = ", ".join(f"{count:,} events passed" for count in passed)
            raise Lossy(f"{self.name}: expected {n:,} round trips, found {len(found):,} {counts}")
        return seconds(found)

    def _passed(self) -> list[int]:
        return [each.call("counters")["events"] for each in self.workers] if self.counted else []

    @property
    def workers(self) -> tuple[Worker, Worker]:
        return self.near, self.far


def seconds(nanoseconds: list[int]) -> Samples:
    return np.asarray(nanoseconds, dtype=np.float64) / 1e9


# ── starting them ──


def _peers(bench: Bench, name: str, module: str, *arguments: str) -> Pair:
    near, far = (bench.start(f"{_FLEET}.{module}", *arguments) for _ in range(2))
    there = far.call("open", peer=near.call("open")["peer"])
    near.call("join", peer=there["peer"])
    return Pair(name, near, far)


def tcp(bench: Bench) -> Pair:
    return _peers(bench, TCP, "tcp")


def tcp_in_c(bench: Bench) -> Pair:
    """NoCompiler where it cannot be made."""
    return _peers(bench, TCP_C, "tcp_c", str(tcp_c.build(bench.folder)))


def zenoh(bench: Bench) -> Pair:
    return _peers(bench, ZENOH, "zenoh")


def routed_zenoh(bench: Bench) -> Pair:
    near, far = (bench.start(f"{_FLEET}.zenoh_central") for _ in range(2))
    near.call("clients", connect=far.call("router")["endpoint"])
    return Pair(ROUTED_ZENOH, near, far)


def nodes(bench: Bench, *, module: str = "node", direct: bool = True, consumers: int = 1) -> Pair:
    """A node that supplies, and nodes that consume in a process of their own; nobody subscribes yet."""
    near, far = (bench.start(f"{_FLEET}.{module}") for _ in range(2))
    at = near.call("open", names=["near"], direct=direct)["endpoint"]
    near.call("source")
    far.call("open", names=[f"far{number}" for number in range(consumers)], connect=at, direct=direct)
    return Pair(FEDERATED if direct else ZENOH_ONLY, near, far, counted=True)


def federated(bench: Bench, *, direct: bool = True) -> Pair:
    """Two nodes; what the first publishes on one channel, a sink at the second publishes on another."""
    pair = nodes(bench, direct=direct)
    pair.far.call("answer")
    pair.near.call("prepare_trips")
    linked(pair, "tcp" if direct else "zenoh")
    return pair


def only_zenoh(bench: Bench) -> Pair:
    return federated(bench, direct=False)


def centralised(bench: Bench, *, consumers: int = 1) -> Pair:
    """A supplier and consumers in one process, each a node of its own; a router in the other process."""
    near, far = (bench.start(f"{_FLEET}.central") for _ in range(2))
    at = far.call("router")["endpoint"]
    near.call("clients", names=["supplier", *(f"consumer{number}" for number in range(consumers))], connect=at)
    near.call("source")
    near.call("consume", each=1)
    pair = Pair(CENTRALISED, near, far)
    linked(pair, "zenoh")
    return pair


def linked(pair: Pair, kind: str) -> None:
    """What is measured is what is said: Lossy if events would take another way."""
    found = pair.near.call("counters")["links"]
    if found != [kind]:
        raise Lossy(f"{pair.name}: expected links by {kind}, found {found}")


OPENED: Mapping[str, Callable[[Bench], Pair]] = {
    TCP_C: tcp_in_c,
    TCP: tcp,
    ZENOH: zenoh,
    ROUTED_ZENOH: routed_zenoh,
    FEDERATED: federated,
    ZENOH_ONLY: only_zenoh,
    CENTRALISED: centralised,
}


@contextmanager
def opened(bench: Bench, *names: str) -> Iterator[tuple[dict[str, Pair], dict[str, str]]]:
    """These systems, each process on a core of its own while there are cores; and why one is not there."""
    pairs: dict[str, Pair] = {}
    missing: dict[str, str] = {}
    try:
        for name in names:
            bench.say(f"starting {name}")
            try:
                pairs[name] = OPENED[name](bench)
            except tcp_c.NoCompiler as error:
                missing[name] = str(error)
            else:
                pinned(*pairs[name].workers)
        yield pairs, missing
    finally:
        ended([worker for pair in pairs.values() for worker in pair.workers])


def ended(workers: Sequence[Worker]) -> None:
    """They end at the same time, which is quicker than one after the other."""
    for worker in workers:
        worker.leave()
    for worker in workers:
        worker.close()
