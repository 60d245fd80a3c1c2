"""A sensor that has gone silent: nothing comes, and that is the event. Time alone finds it, at the node's clock.

Run it: `python examples/silent_sensor.py`."""

from __future__ import annotations

from headwater import Event, Node
from headwater.testing import ManualClock

SILENT = """
    last: plant.reading; without plant.reading within 30 seconds
    partition by sensor
    measures last.sensor as sensor, last.level as level
"""


class Reading(Event, name="plant.Reading"):
    sensor: str
    level: float


def main() -> None:
    clock = ManualClock()  # so that the example need not wait
    with Node("plant", clock=clock) as node:
        readings = node.channel("plant.reading", Reading).source("bus")
        silent = node.match(SILENT)

        # 1. All three report every ten seconds; after a while the boiler does no more.
        for turn in range(12):
            for sensor in ("boiler", "pump", "valve"):
                if sensor != "boiler" or turn < 3:
                    readings.publish(sensor=sensor, level=float(turn))
            clock.advance(10.0)
            while (found := silent.poll()) is not None:
                print(f"after {10 * (turn + 1)} s: nothing from the {found.sensor} since it said {found.level:g}")

        # 2. Nothing at all any more: time goes on by itself.
        clock.advance(60.0)
        names = sorted(found.sensor for found in (silent.get(), silent.get()))
        print("and then nothing from", " and ".join(names))

        # 3. Each is told once; whoever speaks again may fall silent again.
        readings.publish(sensor="boiler", level=1.0)
        clock.advance(31.0)
        again = silent.get()
        print(f"the {again.sensor} once more, certain: {not again.match.uncertain}")


if __name__ == "__main__":
    main()
