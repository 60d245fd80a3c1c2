"""`python -m tests.soak`: faults, moves, mutated inputs, long tests and property tests for some minutes, in figures.

Writes `result.json`, and `trouble.txt` if something went wrong; exits 1 then.
"""

from __future__ import annotations

import argparse
import logging
import random
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic

from headwater_studies.harness.bench import now
from tests.soak import federation, inputs, long, moving, properties, report
from tests.soak.plan import PHASES, Phase, Plan, Say, derived

Run = Callable[[Plan, float, Say], Phase]
RUNS: Mapping[str, Run] = {
    "faults": federation.run,
    "moving": moving.run,
    "inputs": inputs.run,
    "long": long.run,
    "properties": properties.run,
}


def soak(plan: Plan, say: Say, runs: Mapping[str, Run] = RUNS) -> int:
    """Run it, write the result, and say it: the exit code."""
    begun, start = now(), monotonic()
    phases: list[Phase] = []
    say(f"seed {plan.seed}: {plan.command()}")
    for name in PHASES:
        if name not in plan.phases:
            continue
        left = 60 * plan.minutes - (monotonic() - start)
        seconds = max(5.0, left * plan.share(name))
        say(f"{name}: seed {derived(plan.seed, name)}, about {seconds:.0f} s")
        try:
            phases.append(runs[name](plan, seconds, say))
        except (Exception, KeyboardInterrupt) as error:
            phases.append(Phase(name, derived(plan.seed, name), replay=plan.command(phases=name)))
            phases[-1].troubles.append(f"ended by {type(error).__name__}: {error}")
            if isinstance(error, KeyboardInterrupt):
                break
    found = report.result(plan, begun, monotonic() - start, phases)
    plan.folder.mkdir(parents=True, exist_ok=True)
    (plan.folder / "result.json").write_bytes(found.to_json())
    print(f"\n{report.shown(found)}\n", flush=True)
    wrong = report.problems(phases)
    trouble = plan.folder / "trouble.txt"
    trouble.unlink(missing_ok=True)
    if not wrong:
        say(f"{found.lead}  {plan.folder / 'result.json'}")
        return 0
    lines = [f"seed {plan.seed}: {plan.command()}", *(f"{p.name}: {p.replay}" for p in phases if p.replay)]
    lines += [note for phase in phases for note in phase.notes]
    faulted = [phase for phase in phases if isinstance(phase, federation.Faulted)]
    happened = [f"fault {number}: {what}" for phase in faulted for number, what in enumerate(phase.order, 1)]
    trouble.write_text("\n".join([*lines, "", *wrong, "", *happened, ""]), encoding="utf-8")
    for line in (*lines, *(each[:2000] for each in wrong)):
        print(line, flush=True)
    say(f"{len(wrong)} problems, with seed {plan.seed}; all about them is in {trouble}")
    return 1


def plan_of(arguments: list[str]) -> Plan:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="in all (default 20)")
    parser.add_argument("--seed", type=int, help="replays what another run with it did")
    parser.add_argument("--faults", type=int, default=0, help="or moves, at most so many")
    parser.add_argument("--rounds", type=int, default=0, help="of mutated inputs, at most so many")
    parser.add_argument("--first", type=int, default=1, help="the round of mutated inputs with which to begin")
    parser.add_argument("--effort", type=int, default=20, help="of the property tests (default 20 times as hard)")
    parser.add_argument("--phases", default=",".join(PHASES), help=f"some of {', '.join(PHASES)}")
    parser.add_argument("--out", type=Path, default=Path("build/soak"))
    given = parser.parse_args(arguments)
    phases = tuple(given.phases.split(","))
    unknown = [name for name in phases if name not in PHASES]
    if unknown or given.minutes <= 0:
        parser.error(f"expected minutes above 0 and phases of {', '.join(PHASES)}, found {given.minutes:g}, {unknown}")
    seed = random.SystemRandom().randrange(1, 1_000_000) if given.seed is None else given.seed
    return Plan(
        minutes=given.minutes,
        seed=seed,
        faults=given.faults,
        rounds=given.rounds,
        first=given.first,
        effort=given.effort,
        phases=phases,
        folder=given.out,
    )


def main(arguments: list[str]) -> int:
    plan, start = plan_of(arguments), monotonic()
    logging.getLogger("headwater").setLevel(logging.ERROR)  # of the nodes here; what others sent them is counted
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the same as from the keyboard: the result is written
    return soak(plan, lambda text: print(f"{monotonic() - start:7.1f} s  {text}", flush=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
