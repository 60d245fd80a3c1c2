"""178 subscriptions over a log: one pass of ours against 178 filters of Spark's own, and how both scale with cores.

    python benchmarks/pipeline_many.py [--events 10000000,100000000]

Each figure comes from a process of its own with a Spark session of one or two cores. Spark's 178 filters over many
events would take an hour: there, a sample of each kind is run and multiplied, as the note of the row says.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater_studies.harness.benchmark import Report
from pipeline_data import BADGES, CHANNEL, KINDS, NETWORKS, TYPE, make_log

WHERE = Path(tempfile.gettempdir()) / "headwater-bench"
ALL = 20_000_000  # events up to which all 178 filters are run
SAMPLE = 16  # of the 162, beyond that


def subscriptions() -> list[Any]:
    """God, 12 cameras, 162 private eyes and 3 big brothers."""
    from headwater.spark.backtest import Subscription

    made = [Subscription(name="god")]
    made += [Subscription(name=f"camera {n}", where="network = :n", params={"n": n}) for n in NETWORKS]
    made += [Subscription(name=f"eye {b}", where="badge = :b", params={"b": b}) for b in BADGES]
    made += [
        Subscription(name=f"brother {k}", where=":kinds[badge] = :k", params={"kinds": KINDS, "k": k})
        for k in dict.fromkeys(KINDS.values())
    ]
    return made


def conditions() -> list[tuple[str, list[str | None]]]:
    """The same as SQL, by kind."""
    kinds = [",".join(f"'{b}'" for b, of in KINDS.items() if of == k) for k in dict.fromkeys(KINDS.values())]
    return [
        ("god", [None]),
        ("camera", [f"network = '{n}'" for n in NETWORKS]),
        ("eye", [f"badge = '{b}'" for b in BADGES]),
        ("brother", [f"badge IN ({members})" for members in kinds]),
    ]


# ── in a process of its own ──


def measure(what: str, log: Path, cores: int, repeat: int) -> dict[str, float]:
    """Seconds of one thing, the best of several times, after one that does not count."""
    from headwater.spark import session

    spark = session("bench", f"local[{cores}]", **{"spark.driver.memory": "4g"})
    run, scale = _runner(what, spark, log)
    if what == "filters":
        spark.read.parquet(str(log / CHANNEL)).count()  # all of them twice would take too long
    else:
        run()
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    spark.stop()
    return {"seconds": best * scale, "scale": scale}


def _runner(what: str, spark: Any, log: Path) -> tuple[Callable[[], object], float]:
    if what == "ours":
        from headwater.spark.backtest import backtest

        wanted = subscriptions()
        return lambda: backtest(spark, log, wanted, channel=CHANNEL), 1.0
    frame = spark.read.parquet(str(log / CHANNEL))
    if what == "columns":
        from pyspark.sql import functions as F

        texts = [text for _, some in conditions() for text in some]
        counted = [F.count_if(F.expr(text)) if text else F.count("*") for text in texts]
        return lambda: frame.agg(*[c.alias(f"c{i}") for i, c in enumerate(counted)]).collect(), 1.0
    if what == "scaling":  # something that Spark does well on any number of cores
        return lambda: frame.groupBy("badge", "network").count().collect(), 1.0
    events = int(log.name.removeprefix("log-"))
    kinds = conditions()
    total = sum(len(some) for _, some in kinds)
    if events > ALL:
        kinds = [(kind, some[: max(1, len(some) * SAMPLE // 162)]) for kind, some in kinds]
    chosen = [text for _, some in kinds for text in some]

    def filters() -> None:
        for text in chosen:
            (frame.where(text) if text else frame).count()

    return filters, total / len(chosen)


def measured(what: str, log: Path, cores: int, repeat: int = 1) -> float:
    """The same, from a new process."""
    command = [sys.executable, __file__, "--measure", what, str(log), str(cores), str(repeat)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ.copy())
    if done.returncode:
        raise RuntimeError(f"{what}: {done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


# ── the rows ──


def bench_many(report: Report, sizes: tuple[int, ...] = (10_000_000, 100_000_000)) -> None:
    """178 subscriptions in one pass, linear in events, and on one and two cores."""
    ours: dict[int, float] = {}
    for events in sizes:
        log = make_log(WHERE, events)
        ours[events] = measured("ours", log, 2, repeat=3 if events <= ALL else 1)
        reference = measured("filters", log, 2)
        ratio = reference / ours[events]
        note = "" if events <= ALL else "the reference is a sample of the filters, multiplied"
        report.add(f"178 subscriptions, {events:,} events, against 178 filters", ours[events], reference,
                   reach="at least 10×", ok=ratio >= 10, note=note)  # fmt: skip
        if events <= ALL:
            columns = measured("columns", log, 2)
            report.add(f"the same against 178 counting Columns, {events:,} events", ours[events], columns)
    first, last = sizes[0], sizes[-1]
    if last > first:
        growth = ours[last] / ours[first] / (last / first)
        report.add(f"time for {last // first}× the events, by that factor", growth, unit="×", reach="about 1 or less",
                   ok=growth <= 1.1)  # fmt: skip
    log = make_log(WHERE, last)
    one, two = measured("ours", log, 1), ours[last]
    plain_one, plain_two = measured("scaling", log, 1), measured("scaling", log, 2)
    mine, theirs = one / two, plain_one / plain_two
    report.add(f"1 → 2 cores, {last:,} events, against a groupBy of Spark's", mine, theirs, unit="×",
               reach="at least 0.95×", ok=mine >= 0.95 * theirs)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", default="10000000,100000000")
    parser.add_argument("--measure", nargs=4, metavar=("WHAT", "LOG", "CORES", "REPEAT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        what, log, cores, repeat = args.measure
        print(json.dumps(measure(what, Path(log), int(cores), int(repeat))))
        return
    report = Report("pipeline_many", f"178 subscriptions on {TYPE.name}")
    bench_many(report, tuple(int(n) for n in args.events.split(",")))
    report.finish()


if __name__ == "__main__":
    main()
