"""The event service in one process, as a building uses it. Run it: `python examples/service.py`."""

from __future__ import annotations

from headwater import Event, Node, f32, u32
from headwater.correlation import Match, all_of, on
from headwater.errors import FactError
from headwater.testing import ManualClock
from headwater.timers import Timeout


class Sighting(Event, name="ie.tcd.Sighting"):
    badge: str
    network: str
    room: u32
    level: f32


class Door(Event):
    room: u32
    open: bool


clock = ManualClock()  # time goes by when this program says so
with Node("building", clock=clock) as node:
    sightings = node.channel("ie.tcd.sighting", Sighting)

    # 1. A sink says what it wants; sources send only that.
    heard: list[str] = []
    loud = sightings.subscribe(
        lambda event: heard.append(event.badge), "level > :limit", params={"limit": 0.5}, name="loud"
    )
    everything = sightings.subscribe(lambda event: None, name="everything")

    hall = sightings.source("hall", facts={"network": "ORL-Net#1"})
    attic = sightings.source("attic")
    hall.publish(badge="anna", network="ORL-Net#1", room=1, level=0.75)
    hall.publish(badge="ben", network="ORL-Net#1", room=1, level=0.25)
    attic.publish(badge="cleo", network="ORL-Net#2", room=9, level=0.75)
    print("heard", heard)

    # 2. Ask a new question of running sources: it holds from an exact point of each one's sequence.
    print("the new limit holds after", loud.change(params={"limit": 0.8}))
    hall.publish(badge="dora", network="ORL-Net#1", room=1, level=0.75)
    print("heard", heard)

    # 3. What a source states of all its events is used, and checked.
    elsewhere = sightings.subscribe(heard.append, "network == 'ORL-Net#2'", name="elsewhere")
    for place in elsewhere.report().placements:
        print(f"{place.source}: {place.how} ({place.why})")
    try:
        hall.publish(badge="emil", network="ORL-Net#2", room=1, level=0.5)
    except FactError as error:
        print("refused:", str(error).split(";")[0])

    # 4. A derived channel is computed at the sources, and is a channel like any other.
    strong = sightings.derive("ie.tcd.sighting.strong", "level >= 0.9")
    rooms = strong.subscribe(name="rooms")  # no handler: events are pulled
    hall.publish_many(
        [Sighting(badge="anna", network="ORL-Net#1", room=room, level=room / 10) for room in range(1, 11)]
    )
    print("strong in rooms", [event.room for event in iter(rooms.poll, None)])

    # 5. A pattern concerns channels that do not exist yet.
    log: list[str] = []
    node.subscribe("ie.tcd.**", lambda event, about: log.append(about.channel), name="log")
    doors = node.channel("ie.tcd.door", Door)

    # 6. Several channels together: the door opens and someone is seen within five seconds.
    def entered(match: Match) -> None:
        print(match["seen"].badge, "entered room", match["door"].room)

    node.correlate(all_of(on(doors, "open", name="door"), on(sightings, name="seen"), within=5.0), entered)
    door = doors.source("door-4")
    door.publish(room=4, open=True)
    clock.advance(6)  # too late for this one
    hall.publish(badge="anna", network="ORL-Net#1", room=4, level=0.5)
    door.publish(room=4, open=True)
    print("channels logged", sorted(set(log)))

    # 7. Silence is an event too.
    def alarm(event: Timeout) -> None:
        print("nothing heard from the doors for a minute, at", event.due.time())

    node.deadline("ie.tcd.silence", on=doors, within=60.0)
    node.subscribe("ie.tcd.silence", alarm)
    clock.advance(61)

    # 8. What is going on?
    print()
    print(node.report())
