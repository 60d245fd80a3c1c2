"""Three nodes in three processes: interests go to the sources, and only what passes crosses. Run it: `python
examples/federation.py`."""

from __future__ import annotations

import subprocess
import sys

from headwater import Event, Node, u32

WAIT = 60.0  # seconds, at most, for what takes a moment


class Reading(Event, name="building.Reading"):
    sensor: str
    number: u32
    level: float


class Round(Event, name="building.Round"):
    number: u32  # 0: that is all


def sensor(name: str, endpoint: str) -> None:
    """A process of its own: a node with a source, which publishes whenever it is told to."""
    with Node(name, connect=endpoint) as node, node.channel("building.reading", Reading).source(name) as source:
        for told in node.channel("building.round", Round).subscribe():
            if told.number == 0:
                break
            for number in range(1000):
                source.publish(sensor=name, number=number, level=number % 100 / 100)


def main() -> None:
    with Node("desk", listen="tcp/127.0.0.1:0") as desk:
        rounds = desk.channel("building.round", Round).source()
        readings = desk.channel("building.reading", Reading)
        changes: list[str] = []
        desk.subscribe("headwater.nodes", lambda event: changes.append(f"{event.change}: {event.node}"))

        # 1. Two more processes. All they know is where this one listens.
        processes = {
            name: subprocess.Popen([sys.executable, __file__, name, desk.endpoints[0]]) for name in ("hall", "attic")
        }
        try:
            story(desk, rounds, readings, processes, changes)
        finally:
            for process in processes.values():
                process.kill()
                process.wait()


def story(desk: Node, rounds, readings, processes, changes) -> None:  # type: ignore[no-untyped-def]
    def listening() -> list[str]:
        """The nodes that want to be told."""
        return [
            peer.name
            for peer in desk.federation_report().peers
            if any(each.channel == "building.round" for each in peer.installed)
        ]

    desk.until(lambda: len(desk.remote_sources("building.reading")) == len(listening()) == 2, WAIT)
    desk.until(lambda: len(changes) == 2, WAIT)
    print(*sorted(changes), sep="\n")
    print("sources:", *desk.remote_sources("building.reading"))

    # 2. A subscription, as in one process. Its interest is compiled and evaluated at the sources.
    loud = readings.subscribe(where="level > :limit", params={"limit": 0.97}, name="loud")
    desk.ready()
    rounds.publish(number=1)
    heard = [loud.get(WAIT) for _ in range(40)]
    print("heard", len(heard), "from", sorted({event.sensor for event in heard}))
    for counts in sorted(desk.remote_counts(loud), key=lambda counts: counts.node):
        print(f"at {counts.node}: {counts.evaluated:,} evaluated, {counts.crossed} crossed")

    # 3. Another question: it holds from an exact point of each source's sequence.
    print("the new limit holds after", dict(sorted(loud.change(params={"limit": 0.98}).items())))
    rounds.publish(number=2)
    heard = [loud.get(WAIT) for _ in range(20)]
    print("heard", len(heard), "more, all of level", {event.level for event in heard})

    # 4. A process is killed. The others notice at once, and go on.
    processes["attic"].kill()
    desk.until(lambda: desk.peers == ["hall"] and len(changes) == 3, WAIT)
    print(changes[-1])
    rounds.publish(number=3)
    print("heard", len([loud.get(WAIT) for _ in range(10)]), "without attic")
    print(str(desk.federation_report()).splitlines()[0].partition(" in federation")[0], "still knows", *desk.peers)
    rounds.publish(number=0)
    desk.flush()
    processes["hall"].wait(WAIT)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sensor(*sys.argv[1:])
    else:
        main()
