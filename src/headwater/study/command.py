"""`headwater study`: a report on a recording and its subscriptions, on Spark and live; and studies that others add."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from headwater.study.extension import ELSEWHERE, Extensions, extensions

BADGES, FILE = "badges", "a FILE"
EXAMPLES = """\
examples:
  headwater study badges                        the active badge study, beside what was published
  headwater study badges --speed 600            watch it: ten hours in a minute
  headwater study office.toml                   a log, and subscriptions or patterns of your own
  headwater study office.toml --no-live --bucket 15m --out report/
"""
A_FILE = """
A file is as for `headwater backtest`, with `log`, the folder of a log relative to the file, and maybe `title`.
"""


def add_study(commands: Any, more: Extensions | None = None) -> None:
    """Add the command to a parser's sub-commands, with the studies that `more` has: by default, all installed ones."""
    found = extensions() if more is None else more
    names = [name for each in found.usable for name in each.studies]
    sub = commands.add_parser(
        "study",
        help=f"play a recording live and on Spark{', or measure what things cost' * bool(names)}, and write a report",
        description="Try subscriptions on a recording: on Spark, and live in a federation of real nodes; compare the "
        "two, and write a report: one HTML file, its tables as CSV, and all of it as JSON. Patterns are tried on Spark "
        "and in this process: when each would have fired, and what would have crossed. Exit code 1 if they differ."
        + " Or run a study that is installed beside; the report is of the same kind."
        * bool(names),
        epilog=EXAMPLES + "".join(each.examples for each in found.usable) + A_FILE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument(
        "what",
        type=lambda name: _there(name, found),
        metavar="|".join((BADGES, "FILE", *names)),
        help="the active badge study, a TOML or Python file" + ", or a study that is installed" * bool(names),
    )
    sub.add_argument("--out", type=Path, metavar="DIR", help="where the report goes (default: studies/NAME)")
    sub.add_argument("--no-live", action="store_true", help="on Spark only (for a FILE)")
    sub.add_argument("--speed", type=float, metavar="N", help="play N times as fast as recorded, to watch it "
                     "(default: as fast as it goes)")  # fmt: skip
    sub.add_argument("--bucket", metavar="LENGTH", help="stretches of time: 15m, 1h, 1d, none (for a FILE; default: "
                     "auto)")  # fmt: skip
    sub.add_argument("--master", default="local[*]", help="of a Spark cluster (default: %(default)s)")
    sub.add_argument("--remote", help="of a Spark Connect server, as in sc://host:15002")
    for each in found.usable:
        each.add_options(sub)
    sub.set_defaults(run=lambda args: run(args, found))


def run(args: argparse.Namespace, more: Extensions) -> int:
    """Run the command."""
    extension = more.having(args.what)
    kind = BADGES if args.what == BADGES else extension.studies[args.what] if extension is not None else FILE
    _check_options(args, kind, more)
    if extension is not None:
        return extension.run(args, _say)
    return _badges(args) if kind == BADGES else _own(args)


def _there(name: str, more: Extensions) -> str:
    """The name of a study, or of a file. One that is known to be somewhere else is said to be missing, whatever options
    of its own are given with it."""
    if (distribution := ELSEWHERE.get(name)) is None or more.having(name) is not None:
        return name
    why = more.broken.get(distribution)
    found = "is not installed" if why is None else f"cannot be loaded ({why})"
    raise argparse.ArgumentTypeError(f"{name} is a study of {distribution}, which {found}: pip install {distribution}")


# What options are for, beside those that are for everything.
_FOR = {
    "no_live": (FILE,),
    "bucket": (FILE,),
    "speed": (FILE, BADGES),
    "remote": (FILE, BADGES),
}


def _check_options(args: argparse.Namespace, kind: str, more: Extensions) -> None:
    """Every option that was given is for what is to be done."""
    from headwater.errors import ConfigError, ConfigProblem

    meant = dict(_FOR)
    for each in more.usable:
        meant |= each.options
    given = [name for name in meant if getattr(args, name) not in (None, False, [])]
    wrong = [name for name in given if kind not in meant[name]]
    if wrong:
        raise ConfigError(
            [
                ConfigProblem(
                    f"study {args.what}",
                    "options of this study",
                    f"--{name.replace('_', '-')}",
                    f"it is for {' and '.join(meant[name])}",
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
    """`headwater study FILE`: a study of a recording of one's own."""
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
    told = result.here or result.fired
    for note in (*(result.found.notes if result.found is not None else ()), *(told.notes if told is not None else ())):
        sys.stdout.write(f"note: {note}\n")
    sys.stdout.write(f"The report is {path}\n")
    return _differences(result)


def _differences(result: Any) -> int:
    """Tell them; the exit code."""
    if result.differences:
        sys.stderr.write("headwater study: live and Spark differ:\n")
        for each in result.differences:
            sys.stderr.write(f"  {each.name} at {each.at}: {each.live:,} live, {each.expected:,} on Spark\n")
    if result.pattern_differences:
        sys.stderr.write("headwater study: patterns differ on Spark and in this process:\n")
        for name, spark, here in result.pattern_differences:
            sys.stderr.write(f"  {name}: {spark:,} matches on Spark, {here:,} in this process\n")
    return 1 if result.differences or result.pattern_differences else 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


__all__ = ["add_study", "run"]
