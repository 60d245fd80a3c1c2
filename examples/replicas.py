"""A control room watches trams by replicas: never further off than it wants, with a fraction of the messages.

python examples/replicas.py
"""

import tempfile
from pathlib import Path

from headwater import Event, Node
from headwater.objects import Adaptive, Linear


class Tram(Event):
    position: float  # metres from the depot
    speed: float  # metres per second
    passengers: int


def main() -> None:
    """Drive a tram, and look at it from elsewhere in three ways."""
    folder = Path(tempfile.mkdtemp())
    with (
        Node("depot", state=folder / "depot.state", listen="tcp/127.0.0.1:0") as depot,
        Node("control", connect=depot.endpoints[0]) as control,
    ):
        depot.objects.type("Tram", Tram)
        with depot.objects.transaction() as t:
            t.create("line/7", "Tram", position=0.0, speed=0.0, passengers=0)

        trams = control.objects_at("depot")
        near = trams.replica("line/*", type="Tram", bound={"position": 10.0, "speed": 1.0, "passengers": 5})
        far = trams.replica("line/*", type="Tram", bound={"position": 200.0}, members=("position",))
        assert near.ready() and far.ready()

        at = 0
        for step in range(1, 501):  # half a kilometre, a metre at a time, and nobody is told of it by an event
            with depot.objects.transaction() as t:
                t.update("line/7", position=float(step), passengers=step // 100)
            assert t.outcome is not None
            at = t.outcome.at
        assert near.until(at) and far.until(at)
        for name, replica in (("near", near), ("far", far)):
            found = replica["line/7"]
            bound, off = found.bound["position"], abs(found.value.position - 500)
            print(f"{name}: {found.value.position:g} m, within {bound:g} m: {off <= bound}")
        print(f"of 500 updates {depot.objects.report()['replicas']['told']} were told, to both together")

        # What goes on evenly need not be told: both sides know where it is, as long as it keeps to its speed.
        even = trams.replica("line/7", bound={"position": 20.0}, model=Linear({"position": "speed"}))
        with depot.objects.transaction() as t:
            t.update("line/7", speed=15.0)
        assert t.outcome is not None and even.until(t.outcome.at)
        later = even.at(t.outcome.at + 4_000_000).position
        print(f"at 15 m/s, four seconds later it is taken to be at {later:g} m")

        # The depot says itself in which quality it offers its trams; who has the same level shares it.
        depot.objects.service(
            "trams", "line/*", type="Tram", levels={"near": {"position": 10.0}, "far": {"position": 500.0}}
        )
        with trams.service("trams", Adaptive("near", "far")) as served:
            served.ready()
            print(f"as the link is, {served.level}: within {served.bound['position']:g} m")


if __name__ == "__main__":
    main()
