"""Patterns: events that say something together, in batches, live, on Spark and across a federation.

    python benchmarks/patterns.py [--quick] [sequence repetition window memory live many spark crossing]

`sequence` and `repetition` are compared with Flink's MATCH_RECOGNIZE on one core, over the same events, where there is
one (HEADWATER_FLINK names its environment): the matches must be the same. Every case runs by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import patterns_batch
import patterns_live
import patterns_many
from headwater_studies.harness.benchmark import Report

CASES: dict[str, Callable[[Report, bool], None]] = {
    "sequence": patterns_batch.sequence,
    "repetition": patterns_batch.repetition,
    "window": patterns_batch.window,
    "memory": patterns_batch.memory,
    "live": patterns_live.live,
    "many": patterns_live.many,
    "spark": patterns_many.spark,
    "crossing": patterns_many.crossing,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="only these")
    parser.add_argument("--quick", action="store_true", help="as little as shows that everything works")
    args = parser.parse_args()
    report = Report("patterns", "Patterns, one process unless a row says otherwise")
    for name in args.cases or CASES:
        CASES[name](report, args.quick)
    report.finish()


if __name__ == "__main__":
    main()
