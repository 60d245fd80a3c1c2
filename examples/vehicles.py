"""A depot keeps a model of its vehicles: objects that are changed in transactions only, and survive the process.

python examples/vehicles.py
"""

import tempfile
from pathlib import Path

from headwater import Event, Node
from headwater.errors import TransactionError
from headwater.objects import Computed


class Position(Event):
    x: float
    y: float


class Vehicle(Event):
    position: Position
    fuel: float  # litres
    driver: str | None = None


def main() -> None:
    """Drive, run out of fuel, go home, and come back the next day."""
    folder = Path(tempfile.mkdtemp())
    with Node("depot", state=folder / "depot.state") as node:
        objects = node.objects
        objects.type("Vehicle", Vehicle)

        @objects.method("Vehicle", event=True)
        def drive(vehicle: Vehicle, x: float, y: float) -> Vehicle:
            """What a vehicle is after a trip: it takes a litre for ten kilometres."""
            far = abs(x - vehicle.position.x) + abs(y - vehicle.position.y)
            if vehicle.fuel < far / 10:
                raise ValueError(f"{far:g} km are too far with {vehicle.fuel:g} l")
            return Vehicle(Position(x, y), vehicle.fuel - far / 10, vehicle.driver)

        with objects.transaction() as t:
            t.create("fleet/van", "Vehicle", position=Position(0.0, 0.0), fuel=5.0, driver="Ada")
            t.create("fleet/truck", "Vehicle", position=Position(0.0, 0.0), fuel=40.0)

        # Whoever wants to know subscribes to the changes, as to any channel.
        changes = objects.watch("fleet/van")

        with objects.transaction() as t:
            t.invoke("fleet/van", "drive", x=30.0, y=0.0)
            left = t.read("fleet/van.fuel", as_="left")
            t.only_if(left > 1)  # else nothing of this happens
        print(f"the van is at {changes.get(timeout=60).new.position.x:g}")
        print(f"{t.results['left']:g} l are left")

        try:
            with objects.transaction() as t:
                t.update("fleet/van", driver="Bob")
                t.invoke("fleet/van", "drive", x=90.0, y=0.0)
        except TransactionError as error:
            print(error.problems[0])
        print(f"and so the driver is still {objects['fleet/van.driver']}")

        # From one tank to the other: both, or neither. The outcome can wait, and be asked for later, by the ticket.
        t = objects.builder()
        t.update("fleet/truck", fuel=Computed("fuel - 10"))
        t.update("fleet/van", fuel=Computed("fuel + 10"))
        ticket = objects.submit(t, wait=False)

    with Node("depot", state=folder / "depot.state") as node:  # the next day
        outcome = node.objects.outcome(ticket)
        print(f"refuelled: {outcome is not None and outcome.done}")
        for each in node.objects.list("fleet/*"):
            print(f"{each.name} has {each.value.fuel:g} l")


if __name__ == "__main__":
    main()
