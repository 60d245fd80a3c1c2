"""The event service with asyncio. Run it: `python examples/service_asyncio.py`."""

from __future__ import annotations

import asyncio

from headwater import Event, Node, Queue


class Reading(Event):
    sensor: str
    celsius: float


async def main() -> None:
    async with Node("plant") as node:
        readings = node.channel("plant.reading", Reading)

        # A coroutine as handler: one event after the other, while the loop goes on.
        warned = []

        async def warn(event: Reading) -> None:
            await asyncio.sleep(0)  # a database, a web hook …
            warned.append(event.sensor)

        readings.subscribe(warn, "celsius > 80")

        # A sink that pulls, with a short queue: `send` waits for it, and the loop does not stop.
        slow = readings.subscribe(queue=Queue(limit=2))

        async def average() -> float:
            seen = [event.celsius async for event in slow]
            return sum(seen) / len(seen)

        task = asyncio.create_task(average())
        source = readings.source("boiler")
        for celsius in (70.0, 85.0, 90.0, 75.0):
            await source.send(sensor="boiler", celsius=celsius)
        slow.cancel(drain=True)
        print("average", await task)
    print("warned", warned)


asyncio.run(main())
