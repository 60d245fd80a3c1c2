"""The event log and the Spark pipeline: `make bench-pipeline`. Each group of rows is a module of its own.

python benchmarks/pipeline.py [--quick] [append many interest ingest live]
"""

from __future__ import annotations

import argparse

import pipeline_append
from headwater_studies.harness.benchmark import Report
from pipeline_ingest import bench_ingest
from pipeline_interest import bench_interest
from pipeline_live import bench_live
from pipeline_many import bench_many

GROUPS = ("append", "many", "interest", "ingest", "live")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="only these")
    parser.add_argument("--quick", action="store_true", help="a tenth of the events")
    args = parser.parse_args()
    groups, most = args.groups or GROUPS, 10_000_000 if args.quick else 100_000_000
    report = Report("pipeline", "the event log and the Spark pipeline, on two cores")
    if "append" in groups:
        pipeline_append.rows(report)
    if "many" in groups:
        bench_many(report, (most // 10, most))
    if {"interest", "ingest", "live"} & set(groups):
        from headwater.spark import session

        spark = session("bench", "local[2]", **{"spark.driver.memory": "4g"})
        if "interest" in groups:
            bench_interest(report, spark, events=most)
        if "ingest" in groups:
            bench_ingest(report, spark, most // 5)
        if "live" in groups:
            bench_live(report, spark)
        spark.stop()
    report.finish()


if __name__ == "__main__":
    main()
