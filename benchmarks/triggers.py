"""Objects and triggers: what a turn costs, what a trigger costs, and what crosses a federation for it.

    python benchmarks/triggers.py [--quick] [messages]

`messages`: conditions over values of several owners, by safe zones, beside the simple scheme in which every change
crosses; in the same run a central evaluator sees everything. Every case runs by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module

from headwater_studies.harness.benchmark import Report

ZONES = "headwater_studies.zones"


def messages(report: Report, quick: bool) -> None:
    """Of owners that walk at random, both directions."""
    import_module(ZONES).rows(report, quick)


CASES: dict[str, Callable[[Report, bool], None]] = {
    "messages": messages,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="only these")
    parser.add_argument("--quick", action="store_true", help="as little as shows that everything works")
    args = parser.parse_args()
    report = Report("triggers", "Objects and triggers")
    for name in args.cases or CASES:
        CASES[name](report, args.quick)
    report.finish()


if __name__ == "__main__":
    main()
