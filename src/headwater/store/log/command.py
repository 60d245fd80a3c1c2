"""`headwater log`: what is in a log, whether it is sound, and keeping it so."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headwater.arguments import given_params, moment, whole
from headwater.errors import StoreError
from headwater.store.log.location import folder_argument
from headwater.text_tables import aligned

EXAMPLES = """\
examples:
  headwater log list events                            channels, with how much there is of each
  headwater log list events ie.tcd.sighting            the sources of a channel
  headwater log show events ie.tcd.sighting --where "level > 0.5" --limit 10
  headwater log verify events                          exit code 1 if anything is wrong
  headwater log rest events                            everything as Parquet, for DuckDB, polars and others
  headwater log export events ie.tcd.sighting sightings.csv
"""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def add_log(commands: Any) -> None:
    """Add `headwater log` to the command line."""
    sub = commands.add_parser(
        "log",
        help="list, show, verify, rest, compact, repair and export event logs",
        description="What is in an event log, whether it is sound, and keeping it so.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = sub.add_subparsers(dest="what", metavar="what", required=True)
    for name, text in (
        ("list", "the channels of a log, or the sources of a channel"),
        ("show", "events, in the order of time"),
        ("verify", "read everything and say what is wrong"),
        ("rest", "make Parquet of what waits in write-ahead files, where no process has it open"),
        ("compact", "merge small files of days that are over"),
        ("repair", "set right what is damaged; nothing is thrown away"),
        ("export", "events into a file: .parquet, .csv, .jsonl or .arrow"),
    ):
        each = kinds.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        each.add_argument("root", type=folder_argument, help="the folder of the log")
        one = name in ("show", "export")
        each.add_argument("channel", nargs=None if one else "?", help="its name" if one else "only this one")
        if name != "export":
            each.add_argument("--json", action="store_true", help="as JSON, for programs")
        if one:
            _add_choice(each)
        each.set_defaults(run=_RUN[name])
        if name == "show":
            each.add_argument("--lines", action="store_true", help="each event as a line of JSON (as --json)")
            each.add_argument("--limit", type=whole, default=20, help="the first so many (%(default)s; 0: all)")
            each.add_argument("--tail", type=whole, metavar="N", help="the last so many instead")
        elif name == "export":
            each.add_argument("file", type=Path, help="where to")
            each.add_argument("--format", choices=("parquet", "csv", "jsonl", "arrow"), help="default: by its ending")
        elif name == "compact":
            each.add_argument("--target", type=_size, default="128MiB", help="size of a file (default %(default)s)")
            each.add_argument("--today", action="store_true", help="the day that is not over too")


def _add_choice(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--where", help="an interest: only what passes")
    sub.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the interest")
    sub.add_argument("--source", action="append", help="only this source; may be given again")
    sub.add_argument("--since", type=_time, help="from this time on, as in 2026-01-31T12:00 (UTC unless it has a zone)")
    sub.add_argument("--until", type=_time, help="before this time")
    sub.add_argument("--columns", help="only these, as in event_seq,level")


# ── list ──


def _list(args: argparse.Namespace) -> int:
    """`headwater log list`: the channels of a log, or the sources of one."""
    from headwater.store.log.reader import ChannelReader

    if args.channel is not None:
        spans = ChannelReader(args.root, args.channel).sources()
        if args.json:
            _json([{name: getattr(span, name) for name in span.__slots__} for span in spans])
        else:
            rows = [(s.node, s.source, f"{s.first:,}", f"{s.last:,}", f"{s.events or 0:,}") for s in spans]
            _table(("node", "source", "first", "last", "events"), rows, right=(2, 3, 4))
        return 0
    found = [_channel(args.root, channel) for channel in _channels(args)]
    if args.json:
        _json(found)
        return 0
    _table(
        ("channel", "type", "nodes", "sources", "events", "files", "at rest", "waiting", "first", "last"),
        [
            (
                each["channel"],
                each["type"],
                f"{each['nodes']:,}",
                f"{each['sources']:,}",
                f"{each['events']:,}",
                f"{each['files']:,}",
                size_text(each["bytes_at_rest"]),
                size_text(each["bytes_waiting"]),
                _short(each["first"]),
                _short(each["last"]),
            )
            for each in found
        ],
        right=(2, 3, 4, 5, 6, 7),
    )
    return 0


def _channel(root: Path, channel: str) -> dict[str, Any]:
    from headwater.store.log.reader import ChannelReader

    reader = ChannelReader(root, channel)
    spans, files, type = reader.sources(), reader.files(), reader.type
    times = [t for file in files for t in (file.first_time, file.last_time) if t is not None]
    return {
        "channel": channel,
        "type": "bytes" if type is None else type.name,
        "nodes": len({span.node for span in spans}),
        "sources": len(spans),
        "events": sum(span.events or 0 for span in spans),
        "files": len(files),
        "bytes_at_rest": sum(file.bytes for file in files if file.at_rest),
        "bytes_waiting": sum(file.bytes for file in files if not file.at_rest),
        "first": time_text(min(times)) if times else None,
        "last": time_text(max(times)) if times else None,
    }


# ── show and export ──


def _show(args: argparse.Namespace) -> int:
    """`headwater log show`: events as a table or lines."""
    from headwater.store.log.export import plain_rows, write_lines

    batches, names = _chosen(args)
    lines = args.lines or args.json
    shown: list[dict[str, Any]] = []
    more = False
    for batch in batches:
        left = batch.num_rows if args.tail is not None or not args.limit else args.limit - len(shown)
        more = more or left < batch.num_rows
        part = batch.slice(0, left)
        if lines:
            write_lines(sys.stdout, part)
            shown += [{}] * part.num_rows if args.limit else []
        else:
            shown += plain_rows(part)
        if more:
            break
    if not lines:
        right = tuple(i for i, name in enumerate(names) if shown and isinstance(shown[0][name], int | float))
        _table(names, [[_cell(row[name]) for name in names] for row in shown], right=right)
        if more:
            print(f"the first {args.limit:,} events; --limit 0 shows all, --tail {args.limit} the last")
    return 0


def _chosen(args: argparse.Namespace) -> tuple[Any, list[str]]:
    """The batches of events that were asked for, and their columns."""
    from headwater.store.log.export import events
    from headwater.store.log.reader import ChannelReader

    reader = ChannelReader(args.root, args.channel)
    wanted = {
        "where": _interest(args, reader.type),
        "until": args.until,
        "sources": args.source,
        "columns": args.columns.split(",") if args.columns else None,
    }
    if args.tail is None:
        found = events(reader, since=args.since, **wanted)
        return found, next(found).names
    names = next(events(reader, since=args.since, **wanted)).names
    return _last(reader, args.tail, args.since, wanted), names


def _last(reader: Any, count: int, since: int | None, wanted: dict[str, Any]) -> list[Any]:
    """The last so many events: from the last day back, so that not everything is read."""
    from headwater.store.log.export import events
    from headwater.store.log.layout import DAY_MICROSECONDS

    starts = {file.first_time // DAY_MICROSECONDS * DAY_MICROSECONDS for file in reader.files() if file.rows}
    kept: list[Any] = []
    for start in sorted(starts, reverse=True):
        begin = start if since is None else max(start, since)
        found = events(reader, since=begin, **wanted)
        next(found)
        kept, rows = [], 0
        for batch in found:
            kept.append(batch)
            rows += batch.num_rows
            while rows - kept[0].num_rows >= count and len(kept) > 1:
                rows -= kept.pop(0).num_rows
        if rows >= count or begin == since:
            break
    extra = sum(batch.num_rows for batch in kept) - count
    if kept and extra > 0:
        kept[0] = kept[0].slice(extra)
    return kept if count else []


def _interest(args: argparse.Namespace, type: Any) -> Any:
    from headwater.interest import Interest

    if args.where is None:
        return None
    if type is None:
        raise StoreError(f"channel {args.channel!r} has no type and carries bytes: --where cannot look into them")
    return Interest(args.where, type, params=given_params(args.param))


def _export(args: argparse.Namespace) -> int:
    """`headwater log export`: events into a file of another format."""
    from headwater.store.log.export import export, format_of
    from headwater.store.log.progress_bar import Progress
    from headwater.store.log.reader import ChannelReader

    format_of(args.file, args.format)
    reader = ChannelReader(args.root, args.channel)
    with Progress(reader.count(), f"export {args.channel}", "events") as progress:
        count = export(
            args.root,
            args.channel,
            args.file,
            format=args.format,
            where=_interest(args, reader.type),
            since=args.since,
            until=args.until,
            sources=args.source,
            columns=args.columns.split(",") if args.columns else None,
            progress=progress.add,
        )
    print(f"{args.file}: {count:,} events, {size_text(args.file.stat().st_size)}")
    return 0


# ── maintenance ──


def _verify(args: argparse.Namespace) -> int:
    """`headwater log verify`: everything is read and checked; the exit code tells whether it is sound."""
    from headwater.store.log.progress_bar import Progress
    from headwater.store.log.verify import total_bytes, verify

    names = _channels(args)
    with Progress(sum(total_bytes(args.root, name) for name in names), "verify", "bytes") as progress:
        found = [verify(args.root, name, progress=progress.add) for name in names]
    wrong = sum(len(each.problems) for each in found)
    if args.json:
        _json([
            {
                "channel": each.channel, "sound": each.sound, "files": each.files, "events": each.events,
                "bytes": each.bytes, "sources": each.sources,
                "problems": [_trouble(t) for t in each.problems], "notes": [_trouble(t) for t in each.notes],
            }
            for each in found
        ])  # fmt: skip
        return 1 if wrong else 0
    for each in found:
        state = "sound" if each.sound else f"{len(each.problems):,} problem{'s' if len(each.problems) != 1 else ''}"
        print(f"{each.channel}: {each.events:,} events of {each.sources:,} sources in {each.files:,} files, "
              f"{size_text(each.bytes)}: {state}")  # fmt: skip
        for trouble in each.problems:
            print(f"  {trouble}")
        for trouble in each.notes:
            print(f"  note: {trouble}")
    return 1 if wrong else 0


def _trouble(trouble: Any) -> dict[str, str]:
    return {"place": trouble.place, "problem": trouble.problem, "advice": trouble.advice}


def _rest(args: argparse.Namespace) -> int:
    """`headwater log rest`: bring to rest what no running node will."""
    from headwater.store.log.orphan_segments import bring_to_rest, waiting_bytes
    from headwater.store.log.progress_bar import Progress

    names = _channels(args)
    with Progress(sum(waiting_bytes(args.root, name) for name in names), "rest", "bytes") as progress:
        found = [bring_to_rest(args.root, name, progress=progress.add) for name in names]
    if args.json:
        _json([
            {"channel": each.channel, "segments": each.segments, "events": each.events,
             "files": [str(path) for path in each.files], "cut": each.cut, "left": each.left}
            for each in found
        ])  # fmt: skip
    for each in found if not args.json else ():
        if each.segments:
            print(f"{each.channel}: {each.events:,} events came to rest, in {len(each.files):,} files")
        else:
            print(f"{each.channel}: {'nothing came to rest' if each.left else 'everything is at rest'}")
        for line in each.cut:
            print(f"  {line}")
        for line in each.left:
            print(f"  left: {line}")
    return 1 if any(each.left for each in found) else 0


def _compact(args: argparse.Namespace) -> int:
    """`headwater log compact`: fewer and larger files for days that are over."""
    from headwater.store.log.compact import can_compact, compact
    from headwater.store.log.progress_bar import Progress

    names = _channels(args)
    total = sum(can_compact(args.root, name, target_bytes=args.target) for name in names)
    with Progress(total, "compact", "bytes") as progress:
        found = [
            compact(args.root, name, target_bytes=args.target, today=args.today, progress=progress.add)
            for name in names
        ]
    if args.json:
        _json([{name: getattr(each, name) for name in each.__slots__} for each in found])
    for each in found if not args.json else ():
        if each.days:
            print(f"{each.channel}: {each.files_before:,} files of {each.days:,} days are now {each.files_after:,}, "
                  f"{size_text(each.bytes_before)} are {size_text(each.bytes_after)}")  # fmt: skip
        else:
            print(f"{each.channel}: nothing to merge")
        for left in each.left:
            print(f"  {left}")
    return 1 if any(each.left for each in found) else 0


def _repair(args: argparse.Namespace) -> int:
    from headwater.store.log.progress_bar import Progress
    from headwater.store.log.repair import repair
    from headwater.store.log.verify import total_bytes

    names = _channels(args)
    with Progress(sum(total_bytes(args.root, name) for name in names), "repair", "bytes") as progress:
        found = [repair(args.root, name, progress=progress.add) for name in names]
    if args.json:
        _json([{"channel": each.channel, "done": each.done, "left": each.left} for each in found])
    for each in found if not args.json else ():
        print(f"{each.channel}: {'nothing to do' if not each.done else f'{len(each.done):,} repaired'}")
        for line in each.done:
            print(f"  {line}")
        for line in each.left:
            print(f"  left: {line}")
    return 1 if any(each.left for each in found) else 0


_RUN = {
    "list": _list,
    "show": _show,
    "verify": _verify,
    "rest": _rest,
    "compact": _compact,
    "repair": _repair,
    "export": _export,
}


# ── what they have in common ──


def _channels(args: argparse.Namespace) -> list[str]:
    from headwater.store.log.reader import channels

    found = channels(args.root)
    if not args.root.is_dir():
        raise StoreError(f"log {str(args.root)!r}: expected a folder with a log, found none; name another")
    if args.channel is None:
        return found
    if args.channel not in found:
        raise StoreError(
            f"log {str(args.root)!r}: expected a channel that it has, found {args.channel!r}; it has "
            f"{', '.join(found) or 'none'}"
        )
    return [args.channel]


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    print("\n".join(aligned(names, rows, [at in right for at in range(len(names))], indent="")))


def _cell(value: Any) -> str:
    """A value in a table: on one line, and not too long."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "".join(each if each.isprintable() else "�" for each in text)
    return text if len(text) <= 40 else text[:39] + "…"


def _json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def size_text(count: int) -> str:
    """Bytes for people."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count:,} B" if unit == "B" else f"{size:,.1f} {unit}"


def time_text(micros: int) -> str:
    """A time in ISO 8601."""
    return (EPOCH + timedelta(microseconds=micros)).isoformat()


def _short(text: str | None) -> str:
    return "-" if text is None else text[:19].replace("T", " ")


def _time(text: str) -> int:
    return (moment(text) - EPOCH) // timedelta(microseconds=1)


def _size(text: str) -> int:
    units = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
    number = text.rstrip("BKMGibkmg")
    try:
        found = int(float(number) * units[text[len(number) :].upper()])
    except (ValueError, KeyError, OverflowError):
        found = 0
    if found < 1:
        raise argparse.ArgumentTypeError(f"expected a size as in 128MiB, found {text!r}")
    return found


__all__ = ["add_log", "size_text", "time_text"]
