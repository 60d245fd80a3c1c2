"""Phase 2: a storm of moves among nodes that are killed; in the end every sink has everything of its source."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field

from tests.federation.moving.storm import Storm
from tests.federation.processes import world
from tests.soak.plan import Clock, Phase, Plan, Say, derived

SINKS, SOURCES = 50, 10
LOOK = 5  # steps after which it is looked whether something is wrong
CLOSING = 0.1  # of the time: for what is still on its way, and for counting


@dataclass
class Stormed(Phase):
    order: list[str] = field(default_factory=list)  # what moved where, and who was killed
    kills: int = 0
    moves: int = 0
    delivered: int = 0
    again: int = 0  # events that came again, and said so


def run(plan: Plan, seconds: float, say: Say) -> Stormed:
    found = Stormed("moving", derived(plan.seed, "moving"))
    clock = Clock(seconds)
    with world() as made:
        storm = Storm(made, found.seed, SINKS, SOURCES)
        try:
            storm.open()
            while not storm.order or (clock.left > CLOSING * seconds and not 0 < plan.faults <= len(storm.order)):
                storm.step()
                if len(storm.order) % LOOK == 0 and (wrong := storm.wrong_so_far()):  # while it is known what led to it
                    found.troubles += [f"step {len(storm.order)}: {each}" for each in wrong]
                    break
            found.troubles += storm.end()
        except Exception as error:
            found.troubles.append(f"step {len(storm.order)} ({storm.order[-1:]}): {type(error).__name__}: {error}")
        found.order, found.kills, found.moves = storm.order, storm.kills, storm.moves
        found.delivered, found.again = storm.counted()
        say(f"moving: {found.moves} moves, {found.kills} kills")
        for what, (longest, where) in storm.waits.items():
            say(f"moving: {what}: at most {longest:.1f} s, in step {where}")
        if found.troubles:
            found.replay = plan.command(phases="moving", faults=len(storm.order))
            kept = plan.folder / "moving"  # what each sink has had and when, and what nodes have said
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir(parents=True)
            for path in (*made.folder.glob("*.log"), *made.folder.glob("*.err")):
                shutil.copy(path, kept)
            say(f"moving: what sinks and nodes have written is in {kept}")
            found.troubles += [f"{name}:\n{process.log()}" for name, process in made.running.items()]
    found.seconds = clock.spent
    return found
