"""Threads, queues and failures. Run it: `python examples/dispatching.py`."""

from __future__ import annotations

import logging
import threading

from headwater import Config, Event, Node, Queue, u8
from headwater.dispatch import ByPriority

logging.basicConfig(level=logging.CRITICAL)  # failures are expected below; the node's hook prints them


class Job(Event):
    name: str
    urgency: u8


CONFIG = """
name = "yard"
failures = 2

[dispatch]
strategy = "pool"
maximum = 4
"""

with Node(config=Config.parse(CONFIG), on_error=lambda sub, error, event: print(f"{sub.name}: {error}")) as node:
    jobs = node.channel("yard.job", Job)
    source = jobs.source()

    # One thread, the most urgent event first: while the first is being handled the others queue up.
    begun, go_on, order = threading.Event(), threading.Event(), []

    def work(event: Job) -> None:
        begun.set()
        go_on.wait(10)
        order.append(event.name)

    worker = jobs.subscribe(work, priority="urgency", dispatch=ByPriority(maximum=1), name="worker")
    source.publish(name="first", urgency=0)
    begun.wait(10)
    for name, urgency in (("tea", 1), ("fire", 9), ("post", 3)):
        source.publish(name=name, urgency=urgency)

    # A sink that cannot keep up drops what it must, and is named; nobody else waits for it.
    stuck = jobs.subscribe(lambda event: go_on.wait(10), queue=Queue(limit=3, policy="drop_oldest"), name="stuck")
    source.publish_many([Job(name=f"job {number}", urgency=0) for number in range(100)])
    print("slow sinks:", ", ".join(each.name for each in node.report().slow))

    # A handler that fails is reported, and after two failures in a row paused, not lost.
    def fragile(event: Job) -> None:
        raise RuntimeError(f"cannot handle {event.name}")

    broken = jobs.subscribe(fragile, "urgency > 50", dispatch="inline", name="broken")
    for number in range(3):
        source.publish(name=f"odd {number}", urgency=99)
    print("broken is", broken.state, "with", broken.counts.queued, "event waiting")
    go_on.set()

print("in order of urgency:", order[0], "then", [name for name in order if name in ("fire", "post", "tea")])
