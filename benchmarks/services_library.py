"""Subscribing by name beside a plain subscription: questions that a source is asked, and the time until it is in force.

python benchmarks/services_library.py [--quick]

A desk subscribes at a lab, one subscription after the other, each with an interest that the lab does not have yet; by
turns plain, by name with the code at the lab already, by name with code that the lab lacks, and with an entry that only
a third node's library has. All nodes are in this process, linked by loopback. A round trip is a question with its
answer.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

from headwater import Node
from headwater_studies.harness.benchmark import Report

GUARD = 60.0  # seconds, against hanging
ROUNDS = 60
TYPE = "who: text, level: f64"
CHANNEL = "measured.door"
THERE, FETCHED = 1.2, 2.0  # what is to be reached, in control round trips of a plain subscription


class _Desk:
    """Subscribes, and counts the questions that this takes."""

    def __init__(self, desk: Any) -> None:
        self._desk, self._engine = desk, desk._engine
        self._channel = desk.channel(CHANNEL)

    def subscribe(self, **what: Any) -> tuple[float, int]:
        """Seconds until it is in force at the lab, and questions asked by then."""
        engine, before, start = self._engine, self._asked(), perf_counter()
        made = self._channel.subscribe(**what)
        in_force = self._desk.until(lambda: engine.requester.settled([self._channel], barriers=True), GUARD)
        seconds, asked = perf_counter() - start, self._asked() - before
        assert in_force and not made.refused, "expected the lab to take it, found that it has not"
        made.cancel()
        assert self._desk.until(lambda: engine.requester.settled([self._channel], barriers=True), GUARD)
        return seconds, asked

    def _asked(self) -> int:
        return int(self._engine.fabric.counters["ask"]["messages_out"])


def _cases(desk: Any, shop: Any) -> dict[str, Callable[[int], dict[str, Any]]]:
    """What is asked for in each round; what only a library has is published there first."""

    def fetched(number: int) -> dict[str, Any]:
        entry = desk.library.publish(f"fetched-{number}", f"level > {number}.25", on=TYPE)
        return {"where": str(entry)}

    def elsewhere(number: int) -> dict[str, Any]:
        entry = shop.library.publish(f"elsewhere-{number}", f"level > {number}.75", 1, on=TYPE)
        return {"where": str(entry)}

    return {
        "plain": lambda number: {"where": f"level > {number}.5"},
        "there": lambda number: {"where": "@there/1", "params": {"limit": float(number)}},
        "fetched": fetched,
        "elsewhere": elsewhere,
    }


def subscribing(report: Report, quick: bool) -> None:
    """By turns, the median of all; of questions as well, since news of other nodes may come between."""
    rounds = 6 if quick else ROUNDS
    with (
        Node("lab", listen="tcp/127.0.0.1:0") as lab,
        Node("desk", connect=lab.endpoints[0]) as desk,
        Node("shop", connect=lab.endpoints[0]) as shop,
    ):
        lab.channel(CHANNEL, TYPE).source("east")
        assert desk.until(lambda: desk.has_channel(CHANNEL) and "shop" in desk.peers, GUARD)
        desk.library.use("shop")
        desk.library.publish("there", "level > :limit", on=TYPE, params={"limit": 0.5})
        at, cases = _Desk(desk), _cases(desk, shop)
        at.subscribe(where="@there/1")
        seconds: dict[str, list[float]] = {name: [] for name in cases}
        asked: dict[str, list[int]] = {name: [] for name in cases}
        for number in range(rounds):
            for name, what in cases.items():
                took, questions = at.subscribe(**what(number))
                seconds[name].append(took)
                asked[name].append(questions)
    for name, words, most in (
        ("there", "code there", THERE),
        ("fetched", "code fetched", FETCHED),
        ("elsewhere", "from a library", FETCHED),
    ):
        mine, plain = statistics.median(asked[name]), statistics.median(asked["plain"])
        report.add(
            f"subscribing by name, {words}: round trips",
            mine,
            plain,
            reach=f"at most {most:g}×",
            ok=mine <= most * plain,
            unit="",
        )
        ours, theirs = statistics.median(seconds[name]), statistics.median(seconds["plain"])
        report.add(
            f"subscribing by name, {words}: time",
            ours,
            theirs,
            note=f"it takes {ours / theirs:.2f}× as long",
        )


def main() -> None:
    report = Report("services_library", "Interests by name")
    subscribing(report, "--quick" in sys.argv)
    report.finish()


if __name__ == "__main__":
    main()
