"""`headwater backtest`: the report a user wants before switching a rule on."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.arguments import given_params, pairs
from headwater.errors import ConfigError, ConfigProblem
from headwater.store.log.location import folder_argument

if TYPE_CHECKING:
    from headwater.spark.backtest.patterns.report import PatternBacktest
    from headwater.spark.backtest.report import Backtest
    from headwater.spark.backtest.subscriptions import Subscriptions
    from headwater.spark.backtest.triggers.distributed import DistributedBacktest
    from headwater.spark.backtest.triggers.report import TriggerBacktest

LONGEST = 200  # characters of a name that is looked for among files
MARKS = ":;,|&{(>"  # a pattern has one of them, where it is more than the name of a channel
LOCAL_EVENTS = 10_000_000  # of a log: about as many are judged here while Spark starts elsewhere
LOCAL_CHANGES = 1_000_000  # where there are triggers, which are judged one change after the other

EXAMPLES = """\
examples:
  headwater backtest subscriptions.toml events/
  headwater backtest subscriptions.toml events/ --channel orl.sighting --bucket 1h --json report.json --csv tables/
  headwater backtest triggers.toml events/ --bucket 1d
  headwater backtest "a: hall.door -> b: hall.door{who != a.who} within 2 seconds partition by door" events/
"""


def add_backtest(commands: Any) -> None:
    """Add the command to a parser's sub-commands."""
    sub = commands.add_parser(
        "backtest",
        help="try subscriptions, patterns and triggers on a log: what each would have received, and what would have "
        "crossed",
        description="Try a set of subscriptions on a log, all in one pass: what each would have received, and what "
        "would have crossed between nodes unfiltered, filtered, merged and by multicast; patterns: when each would "
        "have fired, and what would have crossed for it; and triggers, on the changes of objects: when each would have "
        "fired, with which values, and how much it would have told.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument("subscriptions", metavar="FILE", help="of subscriptions, patterns and triggers, TOML or Python; "
                     "or the text of one pattern")  # fmt: skip
    sub.add_argument("log", type=folder_argument, help="the folder of a log")
    sub.add_argument("--channel", help="its name; default: as the file says, or the only one in the log")
    sub.add_argument("--engine", choices=("auto", "local", "spark"), default="auto", help="local: this process, "
                     f"without Spark; auto: local for up to {LOCAL_EVENTS:,} events, or where Spark is not installed, "
                     "else spark (default: %(default)s)")  # fmt: skip
    sub.add_argument("--master", help="of a Spark cluster (default: local[*]); implies --engine spark")
    sub.add_argument("--remote", help="of a Spark Connect server, as in sc://host:15002; implies the same")
    sub.add_argument("--bucket", default="auto", help="stretches of time: 15m, 1h, 1d, none (default: %(default)s)")
    sub.add_argument("--json", type=Path, metavar="FILE", help="write the whole report as JSON (- for standard output)")
    sub.add_argument("--csv", type=Path, metavar="FOLDER", help="write its tables as CSV files")
    sub.add_argument("--delay", default="20 ms", metavar="TIME", help="of a message between two nodes, one way, for "
                     "triggers over several (default: %(default)s)")  # fmt: skip
    group = sub.add_argument_group("a pattern that is given as text")
    group.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="a parameter")
    group.add_argument("--alias", action="append", default=[], metavar="NAME=CHANNEL", help="another name of a channel")
    group.add_argument("--at", metavar="NODE", help="which wants its matches (default: sink)")
    sub.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; what is wrong with the arguments shows before Spark starts."""
    from headwater.spark.backtest.backtest import backtest, bucket_width
    from headwater.spark.backtest.engine import engine_of, session_of
    from headwater.spark.backtest.patterns.asked import resolve_patterns
    from headwater.spark.backtest.patterns.run import backtest_patterns
    from headwater.spark.backtest.subscriptions import SINK
    from headwater.spark.backtest.triggers.asked import over_several
    from headwater.spark.backtest.triggers.distributed import backtest_distributed
    from headwater.spark.backtest.triggers.run import backtest_triggers
    from headwater.store.log.reader import ChannelReader, channel_types, channels

    bucket_width(args.bucket)
    given = _given(args)
    channel = args.channel or given.channel
    there = channels(args.log)
    if channel is None and len(there) == 1:
        channel = there[0]
    events: Any = args.log if channel is None else ChannelReader(args.log, channel)
    several = given.patterns or given.triggers
    looked_at = [ChannelReader(args.log, name) for name in there] if several else events
    most = LOCAL_CHANGES if given.triggers else LOCAL_EVENTS
    engine = engine_of(args.engine, looked_at, master=args.master, remote=args.remote, most=most)
    found: dict[str, Backtest | PatternBacktest | TriggerBacktest | DistributedBacktest] = {}
    if given.patterns:  # what is wrong with them is told before anything is started
        resolve_patterns(tuple(given.patterns), channel_types(args.log), SINK)
    with session_of(engine, args.master, args.remote) as spark:
        if len(given) or not several:
            found[""] = backtest(spark, events, given, channel=channel, bucket=args.bucket)
        if given.patterns:
            found["patterns"] = backtest_patterns(spark, args.log, given.patterns, bucket=args.bucket, progress=True)
        several_nodes = [each for each in given.triggers if over_several(each)]
        if alone := [each for each in given.triggers if each not in several_nodes]:
            found["triggers"] = backtest_triggers(spark, args.log, alone, bucket=args.bucket)
        if several_nodes:
            found["distributed"] = backtest_distributed(spark, args.log, several_nodes, delay=args.delay)
    if args.csv is not None:
        for report in found.values():
            report.write_csv(args.csv)
    if args.json is not None:
        told: dict[str, Any] = found[""].to_dict() if "" in found else {}
        told |= {name: report.to_dict() for name, report in found.items() if name}
        whole = json.dumps(told, ensure_ascii=False, indent=1, default=str) + "\n"
        if str(args.json) == "-":
            sys.stdout.write(whole)
            return 0
        args.json.write_text(whole, encoding="utf-8")
    sys.stdout.write("\n\n".join(map(str, found.values())) + "\n")
    return 0


def _given(args: argparse.Namespace) -> Subscriptions:
    """What a file says, or one pattern: a text that is no file, and reads as one, or has what files' names have not:
    then what is wrong with the pattern is of use."""
    from headwater.patterns.pattern import readable
    from headwater.spark.backtest.patterns.asked import AskedPattern
    from headwater.spark.backtest.subscriptions import Subscriptions, load

    text = args.subscriptions
    named = text.endswith((".toml", ".py")) or (len(text) <= LONGEST and Path(text).exists())
    if named or not (any(mark in text for mark in MARKS) or (" " in text and readable(text))):
        options = [f"--{name}" for name in ("param", "alias", "at") if getattr(args, name)]
        if options:
            hint = "a file says it itself"
            raise ConfigError([ConfigProblem("backtest", "the text of a pattern with it", options[0], hint)])
        return load(Path(text))
    params, aliases = given_params(args.param), dict(pairs("--alias", "CHANNEL", args.alias))
    asked = AskedPattern(name="pattern", match=text, at=args.at, params=params, aliases=aliases)
    return Subscriptions(subscriptions=(), patterns=(asked,))


__all__ = ["add_backtest", "run"]
