"""How long an event takes to another process and back, beside what carries it: TAO's sections 5.2.1 and 5.2.2."""

from __future__ import annotations

from headwater_studies.fleet import tcp_c
from headwater_studies.harness.bench import Bench, Found
from headwater_studies.latency import pairs
from headwater_studies.latency.pairs import TCP_C, Samples
from headwater_studies.latency.round_trips_page import reported

SAMPLES, ROUNDS, WARM = 50_000, 5, 500


def samples(bench: Bench) -> Found:
    """50,000 round trips of a 64-byte event through each system, in turns."""
    rounds = bench.rounds if bench.quick else ROUNDS
    each = bench.size(SAMPLES, 500) // rounds
    taken: dict[str, list[Samples]] = {}
    with pairs.opened(bench, *pairs.OPENED) as (running, missing):
        for number in range(rounds):
            for name, pair in running.items():
                pairs.samples(pair, min(WARM, each))
                taken.setdefault(name, []).append(pairs.samples(pair, each))
            bench.say(f"round trips, round {number + 1} of {rounds}")
    versions = {} if TCP_C in missing else {"C compiler": tcp_c.version()}
    return reported(taken, missing) + Found(versions=versions)
