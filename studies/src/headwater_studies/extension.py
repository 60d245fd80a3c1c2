"""The studies of performance as `headwater study` has them: their names and options. What runs them is `command`."""

from __future__ import annotations

import argparse
from pathlib import Path

from headwater.study.extension import Extension, Say

ONE, ALL = "a study of performance", "performance"
EXAMPLES = """\
  headwater study latency                       what a round trip takes here, beside raw TCP and bare Zenoh
  headwater study peers --quick                 a short run, to see what is there and that it works
  headwater study interests --part model        one part of a study anew
  headwater study performance --page report     all studies of performance, and a page of their results

latency: round trips, many consumers, thin links. filters: moved code, and when it pays. overhead: operations, control
messages, size. interests: growth of subscriptions, sources, sinks and nodes. peers: NATS, ZeroMQ, Zenoh, Redis,
Mosquitto and omniEvents, those that are installed.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What only they have."""
    group = parser.add_argument_group("studies of performance")
    group.add_argument("--part", action="append", default=[], metavar="NAME", help="this part only; several times "
                       "for more")  # fmt: skip
    group.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    group.add_argument("--rounds", type=int, metavar="N", help="rounds in which everybody takes a turn (default: 3)")
    group.add_argument("--page", type=Path, metavar="DIR", help="write performance.md and its plots there, from the "
                       "results in --out (for performance)")  # fmt: skip
    group.add_argument("--no-run", action="store_true", help="only write the page, from results that are there (for "
                       "performance)")  # fmt: skip


def run(args: argparse.Namespace, say: Say) -> int:
    """Run one of them, or all."""
    from headwater_studies.command import run_all, run_one  # which loads a good deal

    return run_all(args, say) if args.what == ALL else run_one(args, say)


EXTENSION = Extension(
    studies={**dict.fromkeys(("latency", "filters", "overhead", "interests", "peers"), ONE), ALL: ALL},
    options={
        "part": (ONE,),
        "quick": (ONE, ALL),
        "rounds": (ONE, ALL),
        "page": (ALL,),
        "no_run": (ALL,),
    },
    examples=EXAMPLES,
    add_options=add_options,
    run=run,
)
