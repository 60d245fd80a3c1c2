"""Many different interests of one node in a source of another: how long until all are in force, and what that takes.

An interest is a conjunction of three comparisons, read from its text, of which no other covers anything. *In force*:
`node.ready()` says so, which asks the other node once more. The reference is the same in one node without a network,
whose own source has them in force when `subscribe` returns. Bytes are those of all questions, with their envelopes.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from headwater.federation.network import Network
from headwater.federation.node import Node
from headwater_studies.fleet.node import CHANNEL, Sample
from headwater_studies.harness.pair import NODE

WAIT = 300.0  # seconds for nodes to find each other, and for interests to be in force
MORE = 21  # interests, one by one


def interest(n: int) -> str:
    return f"pick > {n}.25 and pick < {n}.75 and share == {n}"


def interests(bench: Any) -> None:
    """1,000 and 10,000 at once, and one more after 1,000."""
    for count, seconds in ((1_000, 2.0),) if bench.quick else ((1_000, 2.0), (10_000, 20.0)):
        bench.say(f"{count:,} interests")
        near = bench.start(NODE)
        at = near.call("open", names=["near"])["endpoint"]
        near.call("source")
        alone, _ = _alone(count)
        with Node("far", network=Network(connect=(at,), federation="bench")) as node:
            channel = node.channel(CHANNEL, Sample)
            if not node.until(lambda it=node: bool(it.remote_sources(CHANNEL)), WAIT) or not node.ready(WAIT):
                raise TimeoutError("the source was not found")
            before, spent = _sent(node), (time.process_time(), near.call("cpu")["cpu"])
            start = time.perf_counter()
            for n in range(count):
                channel.subscribe(_drop, interest(n))
            asked = time.perf_counter() - start
            if not node.ready(WAIT):
                raise TimeoutError(f"{count:,} interests are not in force after {WAIT:g} s")
            took = time.perf_counter() - start
            size = _sent(node) - before
            here, there = time.process_time() - spent[0], near.call("cpu")["cpu"] - spent[1]
            bench.report.add(
                f"{count:,} different interests at one remote node, in force",
                took,
                alone,
                reach=f"≤ {seconds:g} s",
                ok=took <= seconds,
                note=f"`subscribe` {asked:.2f} s; processor {here:.2f} s here, {there:.2f} s there; reference: alone",
            )
            if count == 1_000:
                bench.report.add(
                    f"{count:,} different interests: bytes of questions",
                    size / 1e3,
                    reach="≤ 300 kB",
                    ok=size <= 300e3,
                    unit="kB",
                    note=f"{size / count:.0f} bytes each",
                )
                _one_more(bench, node, channel, count)
        near.close()


def _one_more(bench: Any, node: Node, channel: Any, count: int) -> None:
    took = []
    for n in range(count, count + MORE):
        start = time.perf_counter()
        channel.subscribe(_drop, interest(n))
        if not node.ready(WAIT):
            raise TimeoutError("one more interest is not in force")
        took.append(time.perf_counter() - start)
    found = statistics.median(took)
    _, more = _alone(count, MORE)
    bench.report.add(
        f"one more after {count:,}, in force",
        found,
        more,
        reach="≤ 20 ms",
        ok=found <= 0.020,
        note=f"median of {MORE}, the longest {max(took) * 1e3:.1f} ms; reference: one node",
    )


def _alone(count: int, more: int = 0) -> tuple[float, float]:
    """The same in one node without a network: seconds for all of them, and the median of each of some more."""
    with Node("alone") as node:
        channel = node.channel(CHANNEL, Sample)
        channel.source("bench")
        start = time.perf_counter()
        for n in range(count):
            channel.subscribe(_drop, interest(n))
        took = time.perf_counter() - start
        each = []
        for n in range(count, count + more):
            start = time.perf_counter()
            channel.subscribe(_drop, interest(n))
            each.append(time.perf_counter() - start)
    return took, statistics.median(each) if each else 0.0


def _sent(node: Node) -> int:
    return int(node.federation_report().messages["ask"]["bytes_out"])


def _drop(event: Any) -> None:
    pass
