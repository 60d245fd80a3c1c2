"""An owner that drives a car about until it is killed, with every step in its log.

python -m tests.federation.objects.depot FOLDER ENDPOINT
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from headwater import Node


def main(folder: Path, endpoint: str) -> None:
    """Never ends by itself."""
    with Node("depot", state=folder / "state", log=str(folder / "log"), listen=endpoint) as node:
        objects = node.objects
        objects.type("Car", "x: f64")
        if "fleet/car" not in objects:
            with objects.transaction() as t:
                t.create("fleet/car", "Car", x=0.0)
        print("open", flush=True)
        x, chance = objects["fleet/car.x"], random.Random(7)
        while True:
            x += chance.uniform(-1.0, 1.1)
            with objects.transaction() as t:
                t.update("fleet/car", {"x": x}, event=True)
            node.until(lambda: False, 0.01)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
