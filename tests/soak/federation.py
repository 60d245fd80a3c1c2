"""Phase 1: a federation to which things happen, with hostile peers, and what became of every event."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.federation.faults import SOURCES, Outcome
from tests.federation.processes import world
from tests.soak.plan import Clock, Phase, Plan, Say, derived
from tests.soak.siege import Siege

LASTING = "hall"  # a node with two sinks that is stopped and cut off, but never killed
CLOSING = 0.06  # of the time: for what is still on its way, and for counting


@dataclass
class Faulted(Phase):
    happened: dict[str, int] = field(default_factory=dict)  # by kind of fault
    order: list[str] = field(default_factory=list)
    hostile: dict[str, int] = field(default_factory=dict)  # by kind of attack, what was tried meanwhile
    outcome: Outcome | None = None


def run(plan: Plan, seconds: float, say: Say) -> Faulted:
    found = Faulted("faults", derived(plan.seed, "faults"))
    clock = Clock(seconds)
    with world() as made:
        it = Siege(made, found.seed, say)
        try:
            it.open()
            found.meter.take(LASTING, made[LASTING].pid)
            while not it.order or (clock.left > CLOSING * seconds and not 0 < plan.faults <= len(it.order)):
                it.fault()
                found.meter.take(LASTING, made[LASTING].pid, it.remembered)
        except Exception as error:
            found.troubles.append(f"fault {len(it.order)}: {error}")
        found.happened, found.order = it.happened, it.order
        try:
            if all(name in made.running for name in SOURCES):
                found.outcome = it.end(5.0 if found.troubles else 60.0)
                found.troubles += found.outcome.problems
        except Exception as error:
            found.troubles.append(f"while it was counted: {error}")
        found.hostile = dict(sorted(it.enemies.counts.items()))
        it.close()
        if found.troubles:
            found.replay = plan.command(phases="faults", faults=len(it.order))
            found.troubles += [f"{name}:\n{process.log()}" for name, process in made.running.items()]
    found.seconds = clock.spent
    return found
