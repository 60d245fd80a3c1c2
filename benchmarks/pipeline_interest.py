"""An interest over a log in Spark, against the same condition written by hand.

python benchmarks/pipeline_interest.py [--events 100000000]
"""

from __future__ import annotations

import argparse
from typing import Any

from headwater_studies.harness.benchmark import Report, versus
from pipeline_data import CHANNEL, TYPE, make_log
from pipeline_many import WHERE

TEXT = "level > 0.9 and network = 'ORL-Net#1'"


def bench_interest(report: Report, spark: Any, *, events: int = 100_000_000, repeat: int = 5) -> None:
    """`where` and `spark.read.parquet(...).where(...)`, interleaved."""
    from headwater import Interest
    from headwater.spark import where

    path = str(make_log(WHERE, events) / CHANNEL)
    interest = Interest(TEXT, TYPE)

    def ours() -> None:
        where(spark.read.parquet(path), interest).count()

    def by_hand() -> None:
        spark.read.parquet(path).where(TEXT).count()

    mine, theirs = versus(ours, by_hand, repeat=repeat, number=1)
    report.add(f"an interest over a log of {events:,} events, counted", mine, theirs, reach="at least 0.95×",
               ok=theirs / mine >= 0.95)  # fmt: skip

    def ours_summed() -> None:
        where(spark.read.parquet(path), interest).selectExpr("sum(level)", "max(badge)").collect()

    def by_hand_summed() -> None:
        spark.read.parquet(path).where(TEXT).selectExpr("sum(level)", "max(badge)").collect()

    mine, theirs = versus(ours_summed, by_hand_summed, repeat=repeat, number=1)
    report.add("the same, with two more columns summed up", mine, theirs, reach="at least 0.95×",
               ok=theirs / mine >= 0.95)  # fmt: skip


def main() -> None:
    from headwater.spark import session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000_000)
    args = parser.parse_args()
    report = Report("pipeline_interest", "an interest over a log in Spark")
    spark = session("bench", "local[2]", **{"spark.driver.memory": "4g"})
    bench_interest(report, spark, events=args.events)
    spark.stop()
    report.finish()


if __name__ == "__main__":
    main()
