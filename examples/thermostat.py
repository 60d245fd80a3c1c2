"""A thermostat that is steered: a hall tells its temperatures, and lets others see and set how it heats.

What no reading says, how much the heater gives, is the context of the source: an interest of the desk reads it there,
and only what it passes crosses. A trigger in the hall sets the heater, at once and without the network; the desk sets
how often the hall measures. Neither can leave the limits.

python examples/thermostat.py
"""

from functools import partial
from typing import Any

from headwater import Event, Node
from headwater.errors import TransactionError
from headwater.objects import Computed

MINUTES = 120
GUARD = 60.0  # seconds after which something is wrong


class Reading(Event):
    minute: int
    celsius: float


class Heater(Event):
    """What the hall's process knows, and its readings do not say."""

    watts: float
    step: int  # minutes from one reading to the next


def judged(trigger: Any, count: int) -> bool:
    """Whether it has looked at so many readings."""
    return bool(trigger.report()["evaluated"] == count)


def main() -> None:
    """Two hours of a hall, as fast as they can be computed."""
    with (
        Node("hall", state=":memory:", listen="tcp/127.0.0.1:0") as hall,
        Node("desk", connect=hall.endpoints[0]) as desk,
    ):
        readings = hall.channel("hall.readings", Reading)
        source = readings.source("thermometer", context=Heater(watts=0.0, step=5))
        assert source.context is not None

        # What is wanted of the heater is an object: it outlives the process, and changes within limits only.
        objects = hall.objects
        objects.type("Heating", Heater, limits={"watts": (0.0, 2000.0), "step": (1, 30)})
        steering = objects.steer("heating", source, type="Heating", apply=lambda found: None)  # a real one would heat
        thermostat = objects.trigger(
            "thermostat",
            on="channel hall.readings",
            when="each",
            do=lambda t: t.update("heating", watts=Computed("case when new.celsius < :set then 1500.0 else 0.0 end")),
            params={"set": 20.0},
        )

        # Only the hall can judge this: what it reads is nowhere else.
        heard: list[Reading] = []
        desk.channel("hall.readings", Reading, context=Heater).subscribe(
            heard.append, "celsius < 19.5 and context.watts > 1000"
        )
        desk.ready()

        # The desk steers too: it wants to know more often. What goes too far is refused, with the reason.
        there = desk.objects_at("hall")
        try:
            with there.transaction() as t:
                t.update("heating", step=0)
        except TransactionError as error:
            print(error.problems[0].text)
        with there.transaction() as t:
            t.update("heating", step=10)
        steering.until(t.outcome.turn, GUARD)

        minute, celsius, count = 0, 18.0, 0
        while minute < MINUTES:
            source.publish(minute=minute, celsius=celsius)
            count += 1
            hall.until(partial(judged, thermostat, count), GUARD)
            steering.until(objects.get("heating").turn, GUARD)
            for _ in range(source.context["step"]):
                celsius += source.context["watts"] / 10_000 - (celsius - 12) / 100
                minute += 1
        print(f"{count} readings in {MINUTES} minutes; now {celsius:.1f} degrees")
        hall.flush(GUARD)
        desk.until(lambda: len(heard) > 0, GUARD)
        for found in heard:
            print(f"minute {found.minute}: still {found.celsius:.1f} degrees, though it heats")


if __name__ == "__main__":
    main()
