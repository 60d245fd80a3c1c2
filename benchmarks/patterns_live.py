"""Patterns live at a node: one publish for each event, beside a plain subscription; and many of them on a channel."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from headwater import Node
from headwater_studies.harness.benchmark import Report

CHANNEL, EVENT = "bench.reading", "kind: i64, k: i64, v: f64"
ROUNDS = 9
ONE_IN = 100  # events of which one passes


def live(report: Report, quick: bool) -> None:
    """99 % of the events fit no element: they must cost what an event costs that a subscription rejects."""
    count = 2_000 if quick else 50_000
    wanted = f"kind < {100 // ONE_IN}"
    found = _in_turn(
        count,
        {
            "nothing": lambda _: None,
            "subscription": lambda node: node.channel(CHANNEL).subscribe(
                lambda _: None, where=wanted, dispatch="inline"
            ),
            "pattern": lambda node: node.match(
                f"a: {CHANNEL}{{{wanted}}}; b: {CHANNEL}{{{wanted} and v > 2}} within 1 second", lambda _: None
            ),
        },
    )
    plain, ours = found["subscription"], found["pattern"]
    more = ours - plain
    note = f"{more * 1e6:+.2f} µs; with nobody there {found['nothing'] * 1e6:.2f} µs"
    case = f"publish one event, live, {100 - 100 // ONE_IN} % rejected by all atoms"
    report.add(case, ours, plain, reach="at most 1 µs more", ok=more <= 1e-6, note=note)


def many(report: Report, quick: bool) -> None:
    """Patterns over one channel whose first conditions are selective: each for a key of its own."""
    count = 500 if quick else 20_000
    sizes = (1, 10, 100) if quick else (1, 10, 100, 1_000)

    def install(size: int) -> Callable[[Node], object]:
        def run(node: Node) -> object:
            text = f"a: {CHANNEL}{{k = :k and kind < 50}}; b: {CHANNEL}{{k = :k and kind >= 50}} within 1 second"
            return [node.match(text, lambda _: None, params={"k": key}) for key in range(size)]

        return run

    found = _in_turn(count, {f"{size}": install(size) for size in sizes}, rounds=3)
    one = found["1"]
    for size in sizes:
        report.add(f"publish one event, {size:,} patterns over the channel", found[f"{size}"], one)
    grows = found[f"{sizes[-1]}"] / one
    case = f"{sizes[-1]:,} patterns by one"
    report.add(case, grows, reach="at most 20", ok=grows <= 20, unit="×")


def _in_turn(count: int, install: dict[str, Callable[[Node], object]], *, rounds: int = ROUNDS) -> dict[str, float]:
    """Seconds of a publish, in the middle of some rounds in which everybody takes a turn, each at a node of its own."""
    samples: dict[str, list[float]] = {name: [] for name in install}
    nodes: dict[str, Node] = {}
    publishers: dict[str, Callable[..., object]] = {}
    try:
        for name, add in install.items():
            node = nodes[name] = Node(name)
            node.channel(CHANNEL, EVENT)
            publishers[name] = node.channel(CHANNEL).source("s").publish
            add(node)
        for turn in range(rounds + 1):
            for name, publish in publishers.items():
                start = time.perf_counter()
                for number in range(count):
                    publish(kind=number % 100, k=number % 5_000, v=1.0)
                if turn:
                    samples[name].append((time.perf_counter() - start) / count)
    finally:
        for node in nodes.values():
            node.close()
    return {name: statistics.median(values) for name, values in samples.items()}


__all__ = ["live", "many"]
