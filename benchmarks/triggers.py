"""Objects and triggers: what a turn costs, what a trigger costs, and what crosses a federation for it.

    python benchmarks/triggers.py [--quick] [turns clients flat thresholds recovery notification messages nodes]

`turns`: durable turns of one client, beside SQLite alone with the same statements and syncs; `clients`: of many that
share a sync. `flat`, `thresholds`: an update beside triggers that do not depend on it, and that all do. `recovery`:
until a node with a million objects runs the first of its queued transactions. `notification`: to a durable subscriber
at another node, beside a durable event. `messages`: conditions over values of several owners, by safe zones, beside the
simple scheme in which every change crosses; in the same run a central evaluator sees everything. `nodes`: the same of
two nodes on loopback, counted where it is sent. Every case runs by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module

import triggers_many
import triggers_nodes
import triggers_recovery
import triggers_remote
import triggers_turns
from headwater_studies.harness.benchmark import Report

ZONES = "headwater_studies.zones"


def messages(report: Report, quick: bool) -> None:
    """Of owners that walk at random, both directions."""
    import_module(ZONES).rows(report, quick)


CASES: dict[str, Callable[[Report, bool], None]] = {
    "turns": triggers_turns.turns,
    "clients": triggers_turns.clients,
    "flat": triggers_many.flat,
    "thresholds": triggers_many.thresholds,
    "recovery": triggers_recovery.recovery,
    "notification": triggers_remote.notification,
    "messages": messages,
    "nodes": triggers_nodes.messages,
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
