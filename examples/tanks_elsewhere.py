"""Objects of another node: a desk changes what a plant owns, and has the plant watch it. Only what matters crosses.

python examples/tanks_elsewhere.py
"""

import tempfile
from pathlib import Path

from headwater import Node


def main() -> None:
    """Fill a tank from afar, and hear of it once it is nearly full."""
    state = Path(tempfile.mkdtemp()) / "plant.state"
    with (
        Node("plant", state=state, listen="tcp/127.0.0.1:0") as plant,
        Node("desk", connect=plant.endpoints[0]) as desk,
    ):
        plant.objects.type("Tank", "level: f64, capacity: f64")
        tanks = desk.objects_at("plant")

        # A transaction is built here and run there, once, also if its answer is lost on the way.
        with tanks.transaction() as t:
            t.create("hall/north", "Tank", level=0.0, capacity=10.0)
        print(f"made in turn {t.outcome.turn}")

        # The plant judges this at every change; what is told crosses once, however many listen here.
        full = tanks.trigger(
            "full",
            on="hall/north",
            when="becomes",
            where="new.level / new.capacity > :part",
            notify={"level": "new.level"},
            params={"part": 0.8},
        )
        told = full.subscribe()
        desk.ready()
        for _ in range(10):
            with tanks.transaction() as t:
                level = t.read("hall/north.level")
                t.update("hall/north", {"level": level + 1}, event=True)
        print(f"it is nearly full at {told.get(timeout=60).level:g}")
        print(f"and now {tanks['hall/north.level']:g}, after {tanks.get('hall/north').turn} turns")


if __name__ == "__main__":
    main()
