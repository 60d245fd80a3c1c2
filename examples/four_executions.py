"""One definition, four executions: an interest in three notations, run four ways, with the same answer everywhere.

Run it: `make demo`, or `python examples/four_executions.py [number of events]`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import headwater as hw
from headwater import Array, Event, Interest, f32, f64, i32
from headwater.spark import session, to_dataframe, where


class Sighting(Event):
    """A badge seen by a sensor of a building."""

    badge: str
    network: str
    zone: i32
    level: f32 | None  # how loud the badge was; some sensors do not say


class Wind(Event):
    velocity: Array[f64, 253, 37]


class Average(Event):
    velocity: f64


# ── the same interest, three times ──

LIMIT = 0.5

predicate = Interest(
    "level > :limit and network = 'ORL-Net#1' and zone in (1, 2, 3)", Sighting, params={"limit": LIMIT}
)

ecode = Interest(
    """{
        return input.level > limit                       /* loud enough ... */
            && input.network == "ORL-Net#1"              /* ... in our network ... */
            && (input.zone == 1 || input.zone == 2 || input.zone == 3);
    }""",
    Sighting,
    params={"limit": LIMIT},
)


def loud(e: Sighting, *, limit: float = LIMIT) -> bool:
    return e.level > limit and e.network == "ORL-Net#1" and e.zone in (1, 2, 3)


python = Interest(loud, Sighting)


def events(count: int) -> pa.RecordBatch:
    """Sightings with a fixed seed; one level in ten is missing."""
    random = np.random.default_rng(1999)
    level = random.random(count, dtype=np.float32)
    return hw.event_type(Sighting).conform(
        pa.table(
            {
                "badge": pa.array([f"{n:06x}" for n in random.integers(0, 162, count)]),
                "network": pa.array([f"ORL-Net#{n}" for n in random.integers(1, 13, count)]),
                "zone": pa.array(random.integers(1, 6, count), pa.int32()),
                "level": pa.array(level, mask=random.random(count) < 0.1),
            }
        )
    )


def main(count: int = 200_000) -> int:
    print("1. One interest, three notations\n")
    for interest in (predicate, ecode, python):
        print(f"   {interest.notation:<10} fingerprint {interest.fingerprint.hex()}")
    same = len({interest.fingerprint for interest in (predicate, ecode, python)}) == 1
    print(f"   they {'share one fingerprint, so one compilation serves all three' if same else 'differ'}\n")
    print("   normal form:", *str(predicate).splitlines(), sep="\n     ")

    print(f"\n2. Four executions over {count:,} events\n")
    batch = events(count)
    kind = hw.event_type(Sighting)
    records = kind.arrow_to_records(batch)
    few = min(count, 20_000)  # the interpreter is the slow and obvious one
    native = predicate.native()
    native.wait()
    spark = session("headwater demo")
    frame = to_dataframe(spark, kind, batch).cache()
    # Warm up: the batch form is compiled when it is first used, and Spark needs a first query.
    native.batch(batch.slice(0, 1))
    where(frame, predicate).count()

    print(f"   {'execution':<34} {'events':>9} {'passed':>8} {'per event':>12}")
    answers = [
        _timed("reference interpreter", few, lambda: sum(predicate.interpret(r).passed for r in records[:few])),
        _timed("native, one record at a time", count, lambda: sum(map(native.test, records))),
        _timed("native, a batch", count, lambda: native.batch(batch).counts.passed),
        _timed("Spark, as a Column", count, lambda: where(frame, predicate).count()),
    ]
    print("\n   (Spark's time is the query's, not the events': `make bench-interests` has 50 million rows)")
    agree = len(set(answers[1:])) == 1 and answers[0] == native.batch(batch.slice(0, few)).counts.passed
    print(f"\n   the four executions {'agree' if agree else 'DO NOT AGREE'}")

    print("\n3. A transformation: 37 x 253 wind velocities in, their average out\n")
    average = Interest(AVERAGE, Wind, output=Average)
    grid = np.random.default_rng(7).random((253, 37))
    record = average.type.encode(Wind(velocity=grid))
    running = average.native()
    running.wait()
    result = running.run(record)
    mean = average.output.decode(result.output).velocity
    print(f"   {len(record):,} bytes in, {len(result.output)} bytes out: average {mean:.6f}")
    print(f"   proven before it runs: at most {average.cost.worst:,} operations, {average.cost.memory} bytes of memory")
    agree = agree and abs(mean - grid.mean()) < 1e-12
    spark.stop()
    print("\neverything agrees" if agree and same else "\nSOMETHING DOES NOT AGREE")
    return 0 if agree and same else 1


AVERAGE = """
{
    double total = 0;
    for (int column = 0; column < 37; column++)
        for (int row = 0; row < 253; row++)
            total += input.velocity[row][column];
    output.velocity = total / (37 * 253);
    return 1;
}
"""


def _timed(name: str, count: int, run: Callable[[], int]) -> int:
    start = time.perf_counter()
    passed = run()
    seconds: Any = time.perf_counter() - start
    print(f"   {name:<34} {count:>9,} {passed:>8,} {seconds / count * 1e9:>9,.0f} ns")
    return passed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000))
