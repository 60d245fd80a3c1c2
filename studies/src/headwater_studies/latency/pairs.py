"""The systems whose latency is compared, each in two processes on one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from headwater_studies.fleet import tcp_c
from headwater_studies.harness.bench import Bench
from headwater_studies.harness.pair import Pair, end, nodes, started

Samples = npt.NDArray[np.float64]  # seconds
TCP_C, TCP, ZENOH, ROUTED_ZENOH = "raw TCP, C", "raw TCP, Python", "bare Zenoh", "bare Zenoh, through a router"
FEDERATED, ZENOH_ONLY, CENTRALISED = (
    "Headwater, federated",
    "Headwater, federated, only Zenoh connects",
    "Headwater, centralised",
)
_FLEET = "headwater_studies.fleet"
CENTRAL = f"{_FLEET}.central"  # nodes around a router


def samples(pair: Pair, n: int) -> Samples:
    """`n` round trips, one after the other."""
    return seconds(pair.trips(n)["nanoseconds"])


def seconds(nanoseconds: list[int]) -> Samples:
    return np.asarray(nanoseconds, dtype=np.float64) / 1e9


# ── starting them ──


def _others(bench: Bench, name: str, module: str, *arguments: str) -> Pair:
    return started(bench.start, name, f"{_FLEET}.{module}", *arguments).join()


def tcp(bench: Bench) -> Pair:
    return _others(bench, TCP, "tcp")


def tcp_in_c(bench: Bench) -> Pair:
    """NoCompiler where it cannot be made."""
    return _others(bench, TCP_C, "tcp_c", str(tcp_c.build(bench.folder)))


def zenoh(bench: Bench) -> Pair:
    return _others(bench, ZENOH, "zenoh")


def routed_zenoh(bench: Bench) -> Pair:
    pair = started(bench.start, ROUTED_ZENOH, f"{_FLEET}.zenoh_central")
    pair.near.call("clients", connect=pair.far.call("router")["endpoint"])
    return pair


def federated(bench: Bench, *, direct: bool = True) -> Pair:
    """Two nodes; what the first publishes on one channel, a sink at the second publishes on another."""
    pair = nodes(bench.start, FEDERATED if direct else ZENOH_ONLY, direct=direct)
    pair.prepare_trips("tcp" if direct else "zenoh")
    return pair


def only_zenoh(bench: Bench) -> Pair:
    return federated(bench, direct=False)


def centralised(bench: Bench) -> Pair:
    """A supplier and a consumer in one process, each a node of its own; a router in the other process."""
    pair = started(bench.start, CENTRALISED, CENTRAL)
    at = pair.far.call("router")["endpoint"]
    pair.near.call("clients", names=["supplier", "consumer0"], connect=at)
    pair.near.call("source")
    pair.near.call("consume", each=1)
    pair.expect_link("zenoh")
    return pair


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
                pairs[name].pin()
        yield pairs, missing
    finally:
        end([worker for pair in pairs.values() for worker in pair.workers])
