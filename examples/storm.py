"""An event storm: a door that is out of order, a desk that wants ten events a second, and alarms that must come in.

python examples/storm.py
"""

from headwater import Event, Network, Node, Queue, Rate
from headwater.testing import ManualClock, eventually


class Door(Event):
    room: int
    alarm: bool


def in_one_process() -> None:
    clock = ManualClock()  # the storm is over before a real clock would have moved on
    with Node("building", clock=clock) as node:
        doors = node.channel("doors", Door)
        latest = list[int]()
        desk = doors.subscribe(
            lambda event: None, rate=Rate(10, burst=20, reserve={1: 0.25}), priority="if(alarm, 1, 0)"
        )
        doors.subscribe(
            lambda event: latest.append(event.room),
            rate=Rate(1, burst=1, over="wait"),
            queue=Queue(limit=1, policy="drop_oldest"),
        )
        source = doors.source()
        for n in range(1000):
            source.publish(room=n, alarm=n % 250 == 249)
        clock.advance(1)
        print(f"the desk got {desk.counts.delivered} of 1000, and {desk.counts.shed} were shed")
        print(f"who wants the latest got rooms {latest}")


def between_nodes() -> None:
    rooms = list[int]()
    with (
        Node("hall", network=Network(listen="tcp/127.0.0.1:0", rates={"*": Rate(0.001, burst=100)})) as hall,
        Node("desk", connect=hall.endpoints[0]) as desk,
    ):
        source = hall.channel("doors", Door).source("door")
        doors = desk.channel("doors", Door)
        few = doors.subscribe(lambda event: rooms.append(event.room), "room < 500", rate=Rate(0.001, burst=3))
        many = doors.subscribe(queue=1000)
        assert desk.until(lambda: bool(desk.remote_sources("doors")), 60) and desk.ready(60)
        for n in range(1000):
            source.publish(room=n, alarm=False)
        eventually(lambda: len(rooms) == 3 and many.counts.passed == 97)
        [told] = desk.remote_counts(few)
        print(f"at hall {told.evaluated} were looked at for rooms {rooms}, {told.shed} were shed there")
        print(f"the desk may have 100 of hall's, so {told.withheld} were withheld from it")


if __name__ == "__main__":
    in_one_process()
    between_nodes()
