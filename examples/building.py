"""A building: doors, lights and people on three floors, and policies that decide who sees what, and who opens what.

    python examples/building.py

Everybody is seen at the doors; only the security sees where others are. The lights that one hears of are those of the
floor one is on. A door opens for staff on its floor, and for nobody else. All of it is decided at the node of the
building, before anything leaves it, and changes when somebody moves, and when the policy does.

The second half is the devices: people move between floors with their devices, and mail and printers follow them;
sensors come by MQTT, and a phone by WebSocket. It is in `building_devices.py`, and says what it needs.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import building_devices
from headwater import Network, Node
from headwater.errors import HeadwaterError
from headwater.policy import ChannelPolicy, Clause, Location
from headwater.security import Rule, Security
from headwater.testing import Recorder, eventually

FLOORS = 3
SIGHTING, LIGHT = "who: text, room: text, floor: u32", "room: text, floor: u32, on: bool"
USERS = {
    "building": "b",
    "ann": {"password": "a", "groups": ["security", "staff"]},
    "bob": {"password": "o", "groups": ["staff"]},
    "eve": {"password": "e", "groups": ["guest"]},
}
HERE = Location(channel="ie.tcd.sighting", type=SIGHTING, user="who", gives={"here": "floor"})
SIGHTINGS = ChannelPolicy(
    name="sightings",
    channel="ie.tcd.sighting",
    type=SIGHTING,
    clauses=[Clause(who="group:security", show="true"), Clause(show="who = :user")],
)
LIGHTS = ChannelPolicy(
    name="lights", channel="ie.tcd.light", type=LIGHT, clauses=[Clause(show="floor = :here")], location=HERE
)
DOORS = [
    ChannelPolicy(
        name=f"doors of floor {floor}",
        channel=f"objects.Door{floor}",
        type="object: text",
        clauses=[Clause(who="group:staff", show="true", may=["transact"], when=f":here = {floor}")],
        location=HERE,
    )
    for floor in range(FLOORS)
]


def secured(user: str) -> Network:
    """How somebody joins: with a password of one's own."""
    known = USERS[user]
    password = known["password"] if isinstance(known, dict) else known
    return Network(security=Security(user=user, password=str(password), users=USERS, rules=[Rule("**", "*")]))


def opens(visitor: Node, floor: int) -> str:
    """Somebody tries a door."""
    try:
        with visitor.objects_at("building").transaction() as t:
            t.update(f"doors/{floor}", {"open": True}, event=True)
    except HeadwaterError:
        return "stays shut"
    return "opens"


def main() -> None:
    print("Policies decide who sees what, and who opens what. Ann is security and staff, Bob is staff, Eve a guest.")
    folder = Path(tempfile.mkdtemp())
    building = Node("building", listen="127.0.0.1:0", network=secured("building"), state=folder / "building.sqlite")
    seen = building.channel("ie.tcd.sighting", SIGHTING).source("badges")
    lights = building.channel("ie.tcd.light", LIGHT).source("lights")
    for floor in range(FLOORS):
        building.objects.type(f"Door{floor}", "open: bool")
        with building.objects.transaction() as t:
            t.create(f"doors/{floor}", f"Door{floor}", {"open": False})
    for policy in (SIGHTINGS, LIGHTS, *DOORS):
        building.policies.set(policy)

    people, heard, lit = {}, {}, {}
    for user in ("ann", "bob", "eve"):
        people[user] = node = Node(user, connect=building.endpoints[0], network=secured(user))
        heard[user], lit[user] = Recorder(), Recorder()
        node.channel("ie.tcd.sighting", SIGHTING).subscribe(heard[user])
        node.channel("ie.tcd.light", LIGHT).subscribe(lit[user])
        assert node.until(lambda node=node: len(node.remote_sources("ie.tcd.light")) == 1, 30) and node.ready(30)

    for who, floor in (("ann", 0), ("bob", 1), ("eve", 1)):
        seen.publish(who=who, room=f"{floor}.01", floor=floor)
    for floor in range(FLOORS):
        lights.publish(room=f"{floor}.02", floor=floor, on=True)
    seen.publish(who="bob", room="2.01", floor=2)  # Bob takes the stairs
    for floor in range(FLOORS):
        lights.publish(room=f"{floor}.03", floor=floor, on=True)
    assert building.flush(30)
    heard["ann"].wait(4)
    for user, recorder in heard.items():
        print(f"{user} sees {', '.join(f'{event.who} in {event.room}' for event in recorder.events)}")
    for user, recorder in lit.items():
        recorder.wait(2)
        print(f"{user} hears of the lights of {', '.join(event.room for event in recorder.events)}")

    for user, floor in (("bob", 2), ("bob", 1), ("ann", 0), ("eve", 1)):
        print(f"for {user} the door of floor {floor} {opens(people[user], floor)}")
    print(building.policies.why("eve", "objects.Door1", "transact").why)

    # The policy changes while everything runs: guests see nothing any more, not even what waits.
    sink = next(iter(people["eve"].subscriptions.values()))
    stricter = ChannelPolicy(
        name="sightings",
        channel="ie.tcd.sighting",
        type=SIGHTING,
        clauses=[Clause(who="group:security", show="true"), Clause(who="group:staff", show="who = :user")],
    )
    change = building.policies.set(stricter)
    print(f"version {change.version} holds from {change.points['building']} on")
    eventually(lambda: bool(sink.refused))
    print(f"eve is told: {next(iter(sink.refused.values()))}")
    seen.publish(who="eve", room="0.01", floor=0)
    assert building.flush(30)
    heard["ann"].wait(5)
    print(f"eve has seen {len(heard['eve'].events)}, ann {len(heard['ann'].events)}")
    for node in (*people.values(), building):
        node.close()


if __name__ == "__main__":
    main()
    print("\nPeople move, and what is theirs goes along: what is seen at each place.")
    building_devices.main()
