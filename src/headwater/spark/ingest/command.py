"""What `headwater ingest` and `headwater infer` do."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from headwater.arguments import whole
from headwater.extras import require
from headwater.store.log.location import folder_argument

UNREAD = 3  # exit code: some files could not be read, everything else went in


def add_ingest(commands: Any) -> None:
    """The command `ingest`."""
    sub = commands.add_parser(
        "ingest",
        help="put files of records into a log",
        description="Put records of CSV, JSON lines, Parquet or text into a log, as a mapping says. Every record "
        "ends in the log or in a quarantine table with its file, line and reason; the counts are printed.",
        epilog="example:\n  headwater ingest visits.toml visits/*.csv.gz --log events\n\n"
        f"exit code: 0, or {UNREAD} if a file could not be read (the others are in the log), or 2",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument("mapping", type=Path, help="a TOML file: see docs/ingest.md, or begin with headwater infer")
    sub.add_argument("input", nargs="+", help="files, or folders with files; .gz and .bz2 too")
    sub.add_argument("--log", required=True, type=folder_argument, metavar="DIR", help="the folder of the log")
    sub.add_argument("--node", help="the node in whose name events are logged (default: as the mapping says)")
    sub.add_argument("--master", default="local[*]", help="of Spark (default: %(default)s)")
    sub.add_argument("--remote", help="a Spark Connect server, as in sc://host:15002")
    sub.add_argument("--quiet", action="store_true", help="print the counts only")
    sub.set_defaults(run=_ingest)


def add_infer(commands: Any) -> None:
    """The command `infer`."""
    sub = commands.add_parser(
        "infer",
        help="propose an event type and a mapping from a sample",
        description="Propose an event type and a mapping from a sample, with what was seen in it as comments.",
        epilog="example:\n  headwater infer visits.csv > visits.toml\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub.add_argument("sample", nargs="+", help="files, or folders with files; .gz and .bz2 too")
    sub.add_argument("--format", choices=("csv", "json", "parquet"), help="default: as it looks")
    sub.add_argument(
        "--rows", type=partial(whole, least=1), default=10_000, help="read at most so many of a file (%(default)s)"
    )
    sub.set_defaults(run=_infer)


def _ingest(args: argparse.Namespace) -> int:
    """`headwater ingest`: files into a log, as a mapping says; the exit code tells whether all could be read."""
    from dataclasses import replace

    from headwater.spark.ingest import IngestMapping, ingest
    from headwater.spark.session import session

    require("spark", "headwater ingest")
    mapping = IngestMapping.load(args.mapping)
    if args.node:
        mapping = replace(mapping, node=args.node)
    spark = session("headwater ingest", args.master, remote=args.remote)

    def tell(what: str) -> None:
        if not args.quiet:
            print(f"headwater ingest: {what} ...", file=sys.stderr, flush=True)

    try:
        report = ingest(spark, mapping, args.input, args.log, progress=tell)
    finally:
        spark.stop()
    print(report)
    return 0 if report.complete else UNREAD


def _infer(args: argparse.Namespace) -> int:
    from headwater.spark.ingest.infer import infer

    print(infer(args.sample, format=args.format, rows=args.rows).toml(), end="")
    return 0
