"""Phase 3: mutated inputs. Frames, greetings and envelopes to a node that runs and goes on serving an honest one;
interests in their serial form, write-ahead files and logs to what reads them."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.federation.node import Node
from tests.federation import attacks
from tests.federation.hostile import Mallory, Target
from tests.federation.nodes import eventually
from tests.federation.processes import Process
from tests.soak.plan import Clock, Phase, Plan, Say, chance, derived

CLOSING = 0.05  # of the time
PER_ROUND = {"frames": 50, "greetings": 40, "envelopes": 500, "interests": 200, "files": 150, "logs": 8}
HONEST = 20  # events of the honest nodes in each round, both ways


@dataclass
class Mutated(Phase):
    tried: dict[str, int] = field(default_factory=dict)  # by kind of input
    refused: dict[str, int] = field(default_factory=dict)  # as far as it is told
    rounds: int = 0
    published: int = 0  # by the honest nodes
    wanted: int = 0  # deliveries of these
    delivered: int = 0
    lost: int = 0
    duplicated: int = 0
    foreign: int = 0  # events of the attacker that were such, and were delivered
    offences: int = 0
    offenders: int = 0


class Friend:
    """The honest node: its events get to the node under attack, and that one's events get here."""

    def __init__(self, lab: Process, target: Target) -> None:
        self.lab, self.number, self.back, self.twice = lab, 0, 0, 0
        self.node = Node("desk", connect=target.zenoh)
        self.source = self.node.channel(attacks.CHANNEL, attacks.Sighting).source("honest")
        self.node.channel("answers", attacks.Sighting).subscribe(self._came, "level > -1.0")
        assert lab("sees", source="honest@desk") is True, "the lab does not see the desk"
        seen = self.node.until(lambda: "lab@lab" in self.node.remote_sources("answers"), 60)
        assert seen and self.node.ready(60), "the desk does not see the lab"

    def _came(self, event: Any) -> None:
        if event.badge == self.back:
            self.back += 1
        elif event.badge < self.back:
            self.twice += 1

    def goes_on(self) -> None:
        """Events get through, both ways, in order."""
        first, self.number = self.number, self.number + HONEST
        for number in range(first, self.number):
            self.source.publish(badge=number, level=1.0, urgent=True)
        self.lab("answer", first=first, end=self.number)
        came = self.lab("honest", end=self.number)
        assert came is True, f"{self.number} honest events, and the sinks have {came}"
        eventually(lambda: self.back >= self.number, f"{self.number} answers, {self.back} came", 60)


class Round:
    """Some inputs of each kind, of frames some streams: what they are follows from the seed and the round's number."""

    def __init__(self, found: Mutated, lab: Process, offline: Process, mallory: Mallory, sender: Any) -> None:
        self.found, self.lab, self.offline, self.mallory, self.sender = found, lab, offline, mallory, sender

    def run(self, seed: int) -> None:
        for kind, count in PER_ROUND.items():
            if kind in ("interests", "files", "logs"):
                result = self.offline(kind, seed=seed, count=count)
                self._count(kind, result["tried"], result["refused"])
                self.found.troubles += result["problems"]
            else:
                getattr(self, kind)(seed, count)

    def _count(self, kind: str, tried: int, refused: int = 0) -> None:
        self.found.tried[kind] = self.found.tried.get(kind, 0) + tried
        self.found.refused[kind] = self.found.refused.get(kind, 0) + refused

    def frames(self, seed: int, count: int) -> None:
        for number in range(count):
            sent = attacks.stream(self.mallory, chance(seed, "frames", number))
            self._count("frames", sent.frames, sent.unreadable)

    def greetings(self, seed: int, count: int) -> None:
        for number in range(count):
            attacks.greet(self.mallory, chance(seed, "greeting", number))
        self._count("greetings", count)

    def envelopes(self, seed: int, count: int) -> None:
        for number in range(count):
            self.sender.send(chance(seed, "envelope", number))
        self.sender.answered()
        self.sender.token(chance(seed, "token"))
        self._count("envelopes", count + 1)


@contextmanager
def processes(folder: Path) -> Iterator[tuple[Process, Process]]:
    made: list[Process] = []
    try:
        for name in ("target", "offline"):
            made.append(Process(name, folder / f"{name}.err", f"tests.soak.{name}"))
        yield made[0], made[1]
        if made[1].alive:
            made[1]("close")
    finally:
        for process in made:
            process.kill()


def run(plan: Plan, seconds: float, say: Say) -> Mutated:
    found = Mutated("inputs", derived(plan.seed, "inputs"))
    clock = Clock(seconds)
    done = 0
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        recent: deque[str] = deque(maxlen=3)
        try:
            with processes(Path(folder)) as (lab, offline):
                target = Target(*lab("open"))
                mallory = Mallory(target, key=chance(found.seed, "key").randbytes(32))
                friend = Friend(lab, target)
                try:
                    with attacks.envelopes(mallory) as sender:
                        rounds = Round(found, lab, offline, mallory, sender)
                        while not done or (clock.left > CLOSING * seconds and not 0 < plan.rounds <= done):
                            number = plan.first + done
                            done += 1
                            rounds.run(derived(found.seed, number))
                            friend.goes_on()
                            found.troubles += lab("troubles", friend=friend.node.id)
                            for name, process in (("node under attack", lab), ("reader of files", offline)):
                                found.meter.take(name, process.pid)
                            if found.troubles:
                                break
                            recent.append(f"round {number}: {sum(found.tried.values()):,} inputs so far")
                            if done % 10 == 1:
                                say(recent[-1])
                    _count(found, friend, lab)
                finally:
                    friend.node.close(drain=False, timeout=2.0)
        except Exception as error:
            logs = "\n".join(path.read_text(errors="replace")[-3000:] for path in Path(folder).glob("*.err"))
            found.troubles.append(f"round {max(1, plan.first + done - 1)}: {type(error).__name__}: {error}\n{logs}")
    found.rounds = done
    if found.troubles:
        found.replay = plan.command(phases="inputs", rounds=max(1, done))
        found.notes.append(
            f"only the last round: {plan.command(phases='inputs', rounds=1, first=max(1, plan.first + done - 1))}"
        )
    found.seconds = clock.spent
    return found


def _count(found: Mutated, friend: Friend, lab: Process) -> None:
    """What became of the honest nodes' events."""
    counts = lab("counts")
    sinks = len(counts["honest"])
    found.published, found.wanted = 2 * friend.number, (sinks + 1) * friend.number
    found.delivered = sum(counts["honest"]) + friend.back
    found.lost = found.wanted - found.delivered
    found.duplicated = counts["duplicated"] + friend.twice
    found.foreign = counts["events"] - sum(counts["honest"]) - counts["duplicated"]
    found.offences, found.offenders = counts["offences"], counts["offenders"]
    if found.lost or found.duplicated:
        found.troubles.append(f"of the honest nodes: {found.lost} events lost, {found.duplicated} duplicated: {counts}")
