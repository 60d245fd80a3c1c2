"""`headwater study`: a report on a recording and its subscriptions, on Spark and live."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

BADGES = "badges"
EXAMPLES = """\
examples:
  headwater study badges                        the active badge study, beside what was published
  headwater study badges --speed 600            watch it: ten hours in a minute
  headwater study office.toml                   a log and subscriptions of your own
  headwater study office.toml --no-live --bucket 15m --out report/

A file is as for `headwater backtest`, with `log`, the folder of a log relative to the file, and maybe `title`.
"""


def add_study(commands: Any) -> None:
    """Add the command to a parser's sub-commands."""
    sub = commands.add_parser(
        "study",
        help="play a recording live and on Spark, compare, and write a report",
        description="Try subscriptions on a recording: on Spark, and live in a federation of real nodes; compare the "
        "two, and write a report: one HTML file, its tables as CSV, and all of it as JSON. Exit code 1 if they differ.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument("what", metavar="badges|FILE", help="the active badge study, or a TOML or Python file")
    sub.add_argument("--out", type=Path, metavar="DIR", help="where the report goes (default: studies/NAME)")
    sub.add_argument("--no-live", action="store_true", help="on Spark only (for a FILE)")
    sub.add_argument("--speed", type=float, metavar="N", help="play N times as fast as recorded, to watch it "
                     "(default: as fast as it goes)")  # fmt: skip
    sub.add_argument("--bucket", metavar="LENGTH", help="stretches of time: 15m, 1h, 1d, none (for a FILE; default: "
                     "auto)")  # fmt: skip
    sub.add_argument("--master", default="local[*]", help="of a Spark cluster (default: %(default)s)")
    sub.add_argument("--remote", help="of a Spark Connect server, as in sc://host:15002")
    sub.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    return _badges(args) if args.what == BADGES else _own(args)


def _badges(args: argparse.Namespace) -> int:
    from headwater.errors import ConfigError, ConfigProblem
    from headwater.study.badges import page
    from headwater.study.badges.run import study
    from headwater.study.report.files import write
    from headwater.study.report.plain import plain

    given = {"--no-live": args.no_live, "--bucket": args.bucket is not None}
    if wrong := [name for name, is_given in given.items() if is_given]:
        raise ConfigError(
            [ConfigProblem("study badges", "options of the badge study", name, "it is for a FILE") for name in wrong]
        )
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
    from headwater.study.own import study
    from headwater.study.own_page import page, summary
    from headwater.study.report.files import write
    from headwater.study.report.plain import plain

    file = Path(args.what)
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
