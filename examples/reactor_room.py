"""Whoever was seen in the reactor room, wherever they go afterwards: over several nodes, of which only that leaves.

Run it: `python examples/reactor_room.py`."""

from __future__ import annotations

from headwater import Config, Event, Node

REACTOR = 42
WAIT = 60.0  # seconds, at most, for what takes a moment


class Sighting(Event, name="building.Sighting"):
    who: str
    room: int


def main() -> None:
    # Nodes that remember their last events can be asked, later, for what nobody wanted at the time.
    remembering = Config(history=10_000)
    with (
        Node("security", listen="tcp/127.0.0.1:0") as security,
        Node("reactor", connect=security.endpoints[0], config=remembering) as reactor,
        Node("canteen", connect=security.endpoints[0], config=remembering) as canteen,
        Node("gate", connect=security.endpoints[0], config=remembering) as gate,
    ):
        nodes = (reactor, canteen, gate)
        badges = {node.name: node.channel("building.sighting", Sighting).source(node.name) for node in nodes}
        security.channel("building.sighting", Sighting)
        security.until(lambda: len(security.remote_sources("building.sighting")) == len(nodes), WAIT)

        # 1. The pattern, as it was published. Who has not been at 42 is nobody's business.
        trace = security.match(
            "a: Seen(P, 42); b: Seen(P, *) measures b.who as who, b.room as room",
            aliases={"Seen": "building.sighting"},
        )
        security.ready()
        security.until(lambda: len(trace.crossing["asked for open values"]) == len(nodes), WAIT)

        # 2. A busy morning.
        for number in range(500):
            badges["gate"].publish(who=f"guest {number}", room=1)
            badges["canteen"].publish(who=f"guest {number}", room=7)
        print("a morning of 1,000 sightings:", trace.crossing["crossed"], "have crossed")

        # 3. Ann goes in, and at once somebody sees her elsewhere: that is found though nobody had asked for it yet.
        badges["reactor"].publish(who="Ann", room=REACTOR)
        for room in (7, 1):
            badges["canteen" if room == 7 else "gate"].publish(who="Ann", room=room)
            badges["gate"].publish(who="Bob", room=1)
        for _ in range(2):
            found = trace.get(WAIT)
            print(f"{found.who} was in the reactor room, and is in room {found.room} now")

        # 4. What crossed, and what did not.
        crossed = trace.crossing
        published = sum(source.seq for source in badges.values())
        print(f"{crossed['crossed'] + crossed['read back']} of {published:,} sightings have left their nodes")
        print("open:", crossed["open"], "lost:", crossed["lost"])


if __name__ == "__main__":
    main()
