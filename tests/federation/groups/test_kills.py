"""A durable group whose source's node is killed, again and again, while events are published and handled."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from headwater import Event, Reliable
from tests.effort import rounds
from tests.federation.nodes import GUARD, eventually, nodes
from tests.federation.nursery import Popen


class Job(Event, name="kills.Job"):
    number: int


LAB = """
import sys
from headwater import Event, Node
class Job(Event, name="kills.Job"):
    number: int
where, folder, first = sys.argv[1:]
node = Node("lab", connect=where, log=folder + "/log", state=folder + "/state")
source = node.channel("jobs", Job).source("s")
print("there", flush=True)
sys.stdin.readline()
for number in range(int(first), int(first) + 200):
    source.publish(Job(number))
    print(number, flush=True)
sys.stdin.readline()
"""


def test_through_kills_of_its_sources_node_nothing_is_lost_and_what_is_repeated_is_marked(tmp_path: Path) -> None:
    handled: Counter[int] = Counter()
    unmarked: list[int] = []
    lock = threading.Lock()

    def handle(job: Any, about: Any) -> None:
        with lock:
            handled[job.number] += 1
            if handled[job.number] > 1 and not about.redelivered:
                unmarked.append(job.number)

    published: list[int] = []
    with nodes() as make:
        desk, shop = make("desk"), make("shop")
        kept = desk.channel("jobs", Job).subscribe(handle, group="workers", delivery=Reliable(durable=True))
        for round in range(rounds(2, 6)):
            other = shop.channel("jobs", Job).subscribe(handle, group="workers", delivery=Reliable(durable=True))
            command = [sys.executable, "-c", LAB, desk.endpoints[0], str(tmp_path), str(1000 * round)]
            with Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as lab:
                try:
                    assert lab.stdin is not None and lab.stdout is not None and lab.stdout.readline() == "there\n"
                    for node in (desk, shop):
                        assert node.until(lambda node=node: "lab" in node.peers, GUARD) and node.ready(GUARD)
                    lab.stdin.write("go\n")
                    lab.stdin.flush()
                    published += [int(lab.stdout.readline()) for _ in range(40)]
                    other.cancel()
                    published += [int(lab.stdout.readline()) for _ in range(20)]
                finally:
                    lab.kill()
                published += [int(line) for line in lab.stdout.read().split("\n")[:-1]]
        with make("lab", connect=desk.endpoints[0], log=tmp_path / "log", state=tmp_path / "state") as lab_again:
            lab_again.channel("jobs", Job).source("s")
            eventually(lambda: set(handled) >= set(published), timeout=GUARD)
            eventually(lambda: lab_again.report().services["groups"]["jobs/workers"]["outstanding"] == 0, timeout=GUARD)
        assert not unmarked and not kept.cancelled
        # What was published and not said to be may be there too, once for each kill.
        assert len(set(handled) - set(published)) <= rounds(2, 6)
