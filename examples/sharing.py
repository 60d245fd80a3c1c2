"""Questions that other nodes answer: to one, to all, and what comes of errors and of nobody being there.

python examples/sharing.py
"""

import asyncio
import logging

from headwater import Event, Node
from headwater.errors import AnswerError, NoAnswerer

# A handler below raises. Its node logs that with a traceback; here only what the asker gets is shown.
logging.getLogger("headwater").setLevel(logging.ERROR)


class Job(Event):
    pages: int
    colour: bool


class Estimate(Event):
    printer: str
    seconds: float


async def main() -> None:
    """A desk asks printers how long a job would take."""
    with (
        Node("desk", listen="tcp/127.0.0.1:0") as desk,
        Node("hall", connect=desk.endpoints[0]) as hall,
        Node("attic", connect=desk.endpoints[0]) as attic,
    ):

        def hall_printer(job: Job) -> Estimate:
            return Estimate("hall", job.pages * 2.0)

        def attic_printer(job: Job) -> Estimate:
            if job.pages > 100:
                raise ValueError("not so much paper here")
            return Estimate("attic", job.pages * 5.0)

        # Each says which questions it takes; they are told apart where they are asked.
        hall.channel("printing", Job).answer(hall_printer, "not colour", answers=Estimate, name="laser")
        attic.channel("printing", Job).answer(attic_printer, answers=Estimate, name="ink")

        printing = desk.channel("printing", Job)
        assert await asyncio.to_thread(desk.until, lambda: {"hall", "attic"} <= set(desk.peers), 30)
        first = await printing.ask(Job(10, True), timeout=30, answers=Estimate)
        print(f"in colour: {first.printer}, {first.seconds:g} s")

        replies = []
        while len(replies) < 2:  # the hall may only be on its way
            replies = await printing.ask(Job(10, False), timeout=30, to="all")
        best = min((reply.answer for reply in replies), key=lambda each: each.seconds)
        print(f"quickest: {best.printer}, {best.seconds:g} s")

        try:
            await printing.ask(Job(500, True), timeout=30)
        except AnswerError as error:
            print(f"a large one: {error}")

        attic.close()
        try:
            await printing.ask(Job(1, True), timeout=0.5)
        except NoAnswerer:
            print("in colour: nobody any more, since the attic is closed")


asyncio.run(main())
