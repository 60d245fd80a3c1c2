"""What policies cost: an event under one, and changing one at ten sources.

python benchmarks/services_policy.py [--quick]

`events`: a lab publishes to a desk that has an interest, on two channels by turns: one has a policy that shows the desk
everything it asks for, the other has none. The time is that of publishing, with all that is done for the desk in it.
`changes`: a policy node sets another version, until it is in force at ten nodes with a source each; beside it, a desk
that has an interest at the same ten sources changes that, until it is in force. All nodes are in this process, linked
by loopback.
"""

from __future__ import annotations

import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from headwater import Network, Node
from headwater.federation.security.certificates import issue, make_authority
from headwater.policy import ChannelPolicy, Clause, Policies
from headwater.security import Rule, Security
from headwater_studies.harness.benchmark import Report

GUARD = 60.0  # seconds, against hanging
SOURCES = 10
TYPE = "who: text, floor: u32, level: f64"
PLAIN, RULED = "measured.plain", "measured.ruled"
EVENT, CHANGE = 1.1, 2.0  # what is to be reached


class _Building:
    """Nodes with certificates of one authority, of which `hq` sets the policies."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._folder = Path(stack.enter_context(TemporaryDirectory()))
        make_authority(self._folder)
        self._first: Any = None

    def node(self, name: str) -> Any:
        files = issue(self._folder, name)
        security = Security(
            certificate=files.certificate,
            key=files.key,
            authority=files.authority,
            rules=[Rule("**", "*")],
            policies=Policies(by="hq"),
        )
        where = {"listen": "tls/127.0.0.1:0"} if self._first is None else {"connect": self._first.endpoints[0]}
        state = self._folder / "hq.sqlite" if name == "hq" else None  # a policy node keeps its policies
        made = self._stack.enter_context(Node(name, network=Network(security=security), state=state, **where))
        self._first = self._first or made
        return made


def _policy(show: str, channel: str = RULED) -> ChannelPolicy:
    return ChannelPolicy(name="measured", channel=channel, type=TYPE, clauses=[Clause(show=show)])


def events(report: Report, quick: bool) -> None:
    """By turns, the best of all rounds: what else the machine does is not the policy's."""
    count, rounds = (2_000, 6) if quick else (20_000, 40)
    with ExitStack() as stack:
        building = _Building(stack)
        lab, desk, hq = building.node("lab"), building.node("desk"), building.node("hq")
        sources = {name: lab.channel(name, TYPE).source("door") for name in (PLAIN, RULED)}
        assert lab.until(lambda: not lab.report().services["policies"]["closed"], GUARD)
        assert hq.until(lambda: {"lab", "desk"} <= set(hq.peers), GUARD)
        hq.policies.set(_policy("who = :user or floor < 100"))
        heard = dict.fromkeys(sources, 0)
        for name in sources:
            channel = desk.channel(name, TYPE)

            def count_one(event: Any, name: str = name) -> None:
                heard[name] += 1

            channel.subscribe(count_one, "level > 0.9")
        assert desk.until(lambda: all(desk.remote_sources(name) for name in sources), GUARD) and desk.ready(GUARD)
        values = [{"who": f"user {n % 50}", "floor": n % 3, "level": n % 100 / 100} for n in range(count)]
        seconds: dict[str, list[float]] = {name: [] for name in sources}
        for turn in range(rounds):
            for name in sorted(sources, reverse=turn % 2 == 0):
                publish, before, start = sources[name].publish, heard[name], perf_counter()
                for value in values:
                    publish(value)
                seconds[name].append(perf_counter() - start)
                assert lab.flush(GUARD)
                wanted = before + sum(value["level"] > 0.9 for value in values)
                assert desk.until(lambda name=name, wanted=wanted: heard[name] == wanted, GUARD)
    mine, plain = (min(seconds[name]) / count for name in (RULED, PLAIN))
    report.add("an event under a policy", mine, plain, reach=f"at most {EVENT:g}×", ok=mine <= EVENT * plain)


def changes(report: Report, quick: bool) -> None:
    """By turns, the median of all rounds."""
    rounds = 6 if quick else 40
    with ExitStack() as stack:
        building = _Building(stack)
        hq, desk = building.node("hq"), building.node("desk")
        labs = [building.node(f"lab{n}") for n in range(SOURCES)]
        for lab in labs:
            lab.channel(RULED, TYPE).source("door")
        assert hq.until(lambda: len(hq.peers) == SOURCES + 1, GUARD)
        for lab in labs:
            assert lab.until(lambda lab=lab: not lab.report().services["policies"]["closed"], GUARD)
        channel = desk.channel(RULED, TYPE)
        sink = channel.subscribe(lambda event: None, "level > 0.9")
        assert desk.until(lambda: len(desk.remote_sources(RULED)) == SOURCES, GUARD) and desk.ready(GUARD)
        took: dict[str, list[float]] = {"policy": [], "interest": []}
        for turn in range(rounds):
            start = perf_counter()
            done = hq.policies.set(_policy(f"floor < {100 + turn}"))
            took["policy"].append(perf_counter() - start)
            assert sum(bool(points) for points in done.points.values()) >= SOURCES, done
            start = perf_counter()
            sink.change(where=f"level > 0.{10 + turn}")
            assert desk.until(lambda: desk._engine.requester.settled([channel], barriers=True), GUARD)
            took["interest"].append(perf_counter() - start)
    mine, change = (statistics.median(took[name][1:]) for name in ("policy", "interest"))
    report.add(
        f"a policy in force at {SOURCES} sources, beside a change of an interest",
        mine,
        change,
        reach=f"at most {CHANGE:g}×",
        ok=mine <= CHANGE * change,
    )


def main() -> None:
    report = Report("services_policy", "Policies")
    events(report, "--quick" in sys.argv)
    changes(report, "--quick" in sys.argv)
    report.finish()


if __name__ == "__main__":
    main()
