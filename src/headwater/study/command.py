"""`headwater study`: a report on a recording and its subscriptions, on Spark and live; and studies of performance."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

BADGES, ALL = "badges", "performance"
MEASURED = ("latency", "filters", "overhead", "interests", "peers")
EXAMPLES = """\
examples:
  headwater study badges                        the active badge study, beside what was published
  headwater study badges --speed 600            watch it: ten hours in a minute
  headwater study office.toml                   a log and subscriptions of your own
  headwater study office.toml --no-live --bucket 15m --out report/
  headwater study latency                       what a round trip takes here, beside raw TCP and bare Zenoh
  headwater study peers --quick                 a short run, to see what is there and that it works
  headwater study interests --part model        one part of a study anew
  headwater study performance --page docs       all studies of performance, and a page of their results

latency: round trips, many consumers, thin links. filters: moved code, and when it pays. overhead: operations, control
messages, size. interests: growth of subscriptions, sources, sinks and nodes. peers: NATS, ZeroMQ, Zenoh, Redis,
Mosquitto and omniEvents, those that are installed.

A file is as for `headwater backtest`, with `log`, the folder of a log relative to the file, and maybe `title`.
"""


def add_study(commands: Any) -> None:
    """Add the command to a parser's sub-commands."""
    sub = commands.add_parser(
        "study",
        help="play a recording live and on Spark, or measure what things cost, and write a report",
        description="Try subscriptions on a recording: on Spark, and live in a federation of real nodes; compare the "
        "two, and write a report: one HTML file, its tables as CSV, and all of it as JSON. Exit code 1 if they differ. "
        "Or measure latency, filters, overhead, growth and other systems here; the report is of the same kind.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument(
        "what",
        metavar="badges|FILE|latency|filters|overhead|interests|peers|performance",
        help="the active badge study, a TOML or Python file, or a study of performance",
    )
    sub.add_argument("--out", type=Path, metavar="DIR", help="where the report goes (default: studies/NAME)")
    sub.add_argument("--no-live", action="store_true", help="on Spark only (for a FILE)")
    sub.add_argument("--speed", type=float, metavar="N", help="play N times as fast as recorded, to watch it "
                     "(default: as fast as it goes)")  # fmt: skip
    sub.add_argument("--bucket", metavar="LENGTH", help="stretches of time: 15m, 1h, 1d, none (for a FILE; default: "
                     "auto)")  # fmt: skip
    sub.add_argument("--master", default="local[*]", help="of a Spark cluster (default: %(default)s)")
    sub.add_argument("--remote", help="of a Spark Connect server, as in sc://host:15002")
    measured = sub.add_argument_group("studies of performance")
    measured.add_argument("--part", action="append", default=[], metavar="NAME", help="this part only; several times "
                          "for more")  # fmt: skip
    measured.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    measured.add_argument("--rounds", type=int, metavar="N", help="rounds in which everybody takes a turn (default: 3)")
    measured.add_argument("--page", type=Path, metavar="DIR", help="write performance.md and its plots there, from the "
                          "results in --out (for performance)")  # fmt: skip
    measured.add_argument("--no-run", action="store_true", help="only write the page, from results that are there (for "
                          "performance)")  # fmt: skip
    sub.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    kind = _kind(args.what)
    _check(args, kind)
    if kind == "badges":
        return _badges(args)
    if kind == "a FILE":
        return _own(args)
    from headwater.study.performance.command import run_all, run_one

    return run_all(args, _say) if kind == "performance" else run_one(args, _say)


def _kind(what: str) -> str:
    if what in (BADGES, ALL):
        return what
    return "a study of performance" if what in MEASURED else "a FILE"


# What options are for, beside those that are for everything.
_FOR = {
    "no_live": ("a FILE",),
    "bucket": ("a FILE",),
    "speed": ("a FILE", "badges"),
    "remote": ("a FILE", "badges"),
    "part": ("a study of performance",),
    "quick": ("a study of performance", "performance"),
    "rounds": ("a study of performance", "performance"),
    "page": ("performance",),
    "no_run": ("performance",),
}


def _check(args: argparse.Namespace, kind: str) -> None:
    """Every option that was given is for what is to be done."""
    from headwater.errors import ConfigError, ConfigProblem

    wrong = [name for name, kinds in _FOR.items() if kind not in kinds and getattr(args, name) not in (None, False, [])]
    if wrong:
        raise ConfigError(
            [
                ConfigProblem(
                    f"study {args.what}",
                    "options of this study",
                    f"--{name.replace('_', '-')}",
                    f"it is for {' and '.join(_FOR[name])}",
                )
                for name in wrong
            ]
        )


def _badges(args: argparse.Namespace) -> int:
    from headwater.spark.session import require_spark
    from headwater.study.badges import page
    from headwater.study.badges.run import study
    from headwater.study.report.files import write
    from headwater.study.report.plain import plain

    require_spark("the active badge study", remote=args.remote)
    out = args.out or Path("studies") / BADGES
    result = study(out, speed=args.speed, master=args.master, remote=args.remote, say=_say)
    table = page.summary(result)
    path = write(page.page(result), result, out)
    sys.stdout.write(f"{plain(table)}\n\nThe report is {path}\n")
    return 0 if table.equal and _equal_on_spark(result) else 1


def _equal_on_spark(result: Any) -> bool:
    if result.spark is None:
        return True
    names = [each.name for each in result.subscriptions]
    return all(result.delivered(name) in (None, result.spark.counts.get(name)) for name in names)


def _own(args: argparse.Namespace) -> int:
    from headwater.spark.session import require_spark
    from headwater.study.own import study
    from headwater.study.own_page import page, summary
    from headwater.study.report.files import write
    from headwater.study.report.plain import plain

    file = Path(args.what)
    require_spark("a study of a recording", remote=args.remote)
    out = args.out or Path("studies") / file.stem
    result = study(
        file,
        live=not args.no_live,
        speed=args.speed,
        bucket=args.bucket or "auto",
        master=args.master,
        remote=args.remote,
        say=_say,
    )
    path = write(page(result), result, out)
    for table in summary(result):
        sys.stdout.write(f"{plain(table)}\n\n")
    for note in result.found.notes:
        sys.stdout.write(f"note: {note}\n")
    sys.stdout.write(f"The report is {path}\n")
    if not result.differences:
        return 0
    sys.stderr.write("headwater study: live and Spark differ:\n")
    for each in result.differences:
        sys.stderr.write(f"  {each.name} at {each.at}: {each.live:,} live, {each.expected:,} on Spark\n")
    return 1


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


__all__ = ["add_study", "run"]
