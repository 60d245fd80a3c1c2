"""Services of a building: what names and interests by name cost, and whatever else a node's services do for others.

    python benchmarks/services.py [--quick] [library lookup growth policy changes]

`library`: subscribing by name beside a plain subscription. `lookup`, `growth`: names, looked up beside a control
message, and what a node keeps and says as federations grow. `policy`: an event under a policy; `changes`: a policy at
ten sources, beside a change of an interest. Every case runs by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import services_library
import services_naming
import services_policy
from headwater_studies.harness.benchmark import Report

CASES: dict[str, Callable[[Report, bool], None]] = {
    "library": services_library.subscribing,
    "lookup": services_naming.lookup,
    "growth": services_naming.growth,
    "policy": services_policy.events,
    "changes": services_policy.changes,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="only these")
    parser.add_argument("--quick", action="store_true", help="as little as shows that everything works")
    args = parser.parse_args()
    report = Report("services", "Services of a node")
    for name in args.cases or CASES:
        CASES[name](report, args.quick)
    report.finish()


if __name__ == "__main__":
    main()
