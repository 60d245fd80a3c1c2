"""`headwater replay`: the events of a log once more, into a federation."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.arguments import moment, number
from headwater.errors import StoreError
from headwater.store.log.location import folder_argument

if TYPE_CHECKING:
    from headwater.federation.command.command import Joining

EXAMPLES = """\
examples:
  headwater replay events --connect tcp/127.0.0.1:7447                     as fast as possible
  headwater replay events ie.tcd.sighting --speed 60 --listen tcp/127.0.0.1:0
  headwater replay events ie.tcd.sighting --to test.sighting --since 2026-01-31T12:00 --connect tcp/127.0.0.1:7447
"""


def add_replay(
    commands: Any,
    add_joining: Callable[[argparse.ArgumentParser], object],
    joining: Callable[[argparse.Namespace], Joining],
) -> None:
    """Add `headwater replay` to the command line. `add_joining` adds the options of who takes part in a federation
    (with `--wait`), `joining` makes something of them."""
    sub = commands.add_parser(
        "replay",
        help="publish the events of a log again",
        description="Publish the events of a log again, in the order of time, once somebody wants them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument("root", type=folder_argument, help="the folder of the log")
    sub.add_argument("channel", nargs="*", help="which of its channels; default: all")
    sub.add_argument("--to", help="the name of the live channel, where one is replayed; default: the same")
    sub.add_argument("--speed", type=_speed, metavar="N", help="1: as it was recorded, 10: ten times faster; "
                     "default: as fast as possible")  # fmt: skip
    sub.add_argument("--source", action="append", help="only this source; may be given again")
    sub.add_argument(
        "--since", type=moment, help="from this time on, as in 2026-01-31T12:00 (UTC unless it has a zone)"
    )
    sub.add_argument("--until", type=moment, help="before this time")
    add_joining(sub)
    sub.add_argument("--allow-nobody", action="store_true", help="replay also if nobody has subscribed")
    sub.set_defaults(run=lambda args: _replay(args, joining(args)))


def _replay(args: argparse.Namespace, join: Joining) -> int:
    """`headwater log replay`: publish what a log has, once somebody listens; events that were not acknowledged in the
    end are said, and the exit code tells."""
    from headwater.channel.replay import replay
    from headwater.federation.command.command import await_sinks
    from headwater.signals import end_signals
    from headwater.store.log.log_folder import LogFiles
    from headwater.store.log.progress_bar import Progress

    log = LogFiles(args.root)
    chosen = args.channel or log.channels()
    if not chosen:
        raise StoreError(f"log {str(args.root)!r}: expected at least one channel in it, found none")
    spans = [span for name in chosen for span in log.sources(name) if not args.source or span.source in args.source]
    live = [args.to] if args.to else chosen
    total = sum(span.events or 0 for span in spans) if args.since is None and args.until is None else None
    with end_signals() as ended, join.node() as node:

        def ready() -> None:
            await_sinks(node, live, args.wait, ended, command="replay", allow_nobody=args.allow_nobody)

        with Progress(total, "replay", "events") as progress:
            report = replay(
                log,
                node,
                channel=chosen,
                to=args.to,
                speed=args.speed,
                since=args.since,
                until=args.until,
                sources=args.source,
                progress=progress.add,
                ready=ready,
                stop=ended,
            )
        done = node.flush(args.wait)
        late = f", the latest {report.late:.1f} s late" if report.late > 1 else ""
        print(
            f"replayed {report.events:,} events of {report.sources:,} sources in {report.seconds:.1f} s{late}"
            f"{'' if done else ', not all acknowledged'}{', stopped' if report.stopped else ''}",
            flush=True,
        )
    return 0 if done and not report.stopped else 1


def _speed(text: str) -> float:
    return number(text, "how many times faster, as in 1 or 60", below=1e12)


__all__ = ["add_replay"]
