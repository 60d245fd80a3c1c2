"""`headwater interests`: what runs where, and who asked for it; interests by name published, compared and upgraded."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.arguments import given_params, whole
from headwater.errors import HeadwaterError, LibraryError

if TYPE_CHECKING:
    from headwater.federation.command.command import Joining
    from headwater.federation.library.upgrading import Upgraded
    from headwater.federation.node import Node

EXAMPLES = """\
examples:
  headwater interests --connect 127.0.0.1:7447                                     what runs where
  headwater interests names --connect 127.0.0.1:7447                               what libraries have
  headwater interests publish loud "level > :limit" --channel t.door --param limit=0.5 --at lab --state me.sqlite …
  headwater interests show @loud --connect 127.0.0.1:7447
  headwater interests diff @loud/1 @loud/2 --log events/ --channel t.door --connect 127.0.0.1:7447
  headwater interests upgrade @loud/2 --connect 127.0.0.1:7447                     at every node; @loud/1 goes back
  headwater interests withdraw @loud/2 "it lets cats in" --at lab --state me.sqlite --connect 127.0.0.1:7447
"""
Joins = Callable[[argparse.Namespace], "Joining"]
NOT_ALL = 3  # exit code: some nodes have not answered, or some subscriptions were not changed


def add_interests(
    commands: Any,
    add_joining: Callable[[argparse.ArgumentParser], object],
    joining: Joins,
    load_type: Callable[[str], Any],
    compare: Callable[[str], Callable[..., Any]],
) -> None:
    """Add `headwater interests` to the command line; `add_joining` and `joining` as for `headwater replay`, `compare`
    gives what compares two versions on a log, by an engine."""
    sub = commands.add_parser(
        "interests",
        help="what runs where and who asked for it; interests by name",
        description="List what runs at each node that can be reached, which version of which name, what it costs and "
        "has done, and who asked for it, as far as this node may know; or publish, show, compare and upgrade interests "
        "by name.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _listing(sub)
    add_joining(sub)
    sub.set_defaults(run=lambda args: _list(args, joining))
    kinds = sub.add_subparsers(dest="kind", metavar="what")

    def kind(name: str, help: str, run: Callable[..., int], *more: Any) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = kinds.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        add_joining(made)
        made.set_defaults(run=lambda args: run(args, joining, *more))
        return made

    _listing(kind("list", "what runs where: the same as without a command", _list))
    kind("names", "what the libraries of nodes have", _names).add_argument("--json", action="store_true",
         help="a line of JSON for each")  # fmt: skip
    publish = kind("publish", "sign an interest and have a node keep it under a name", _publish, load_type)
    publish.add_argument("entry", metavar="name", help="its name, as in doors.tailgating")
    publish.add_argument("definition", nargs="?", help="the interest, or, with --pattern, the pattern; or use --file")
    publish.add_argument("--file", type=Path, help="read it from a file; a trigger's is TOML")
    publish.add_argument("--version", dest="number", type=whole, help="default: the next one")
    publish.add_argument("--channel", dest="on", help="the channel that it is over, as a node has it")
    publish.add_argument("--type", help="or the event type, as for explain")
    publish.add_argument("--output", help="the output type of a transformation")
    publish.add_argument("--pattern", action="store_true", help="it is a pattern, over channels that nodes have")
    publish.add_argument("--trigger", action="store_true", help="it is a trigger: a TOML file with on, when, where, …")
    publish.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="a parameter, with the "
                         "value that it has where nobody gives another")  # fmt: skip
    publish.add_argument("--note", default="", help="what is to be said of it")
    publish.add_argument("--at", required=True, metavar="NODE", help="the node that is to keep it")
    show = kind("show", "what a name stands for, and its versions", _show)
    show.add_argument("reference", metavar="@NAME[/VERSION]", help="without a version, the newest")
    diff = kind("diff", "two versions side by side on a log: what only one of them passes", _diff, compare)
    diff.add_argument("old", metavar="@NAME/VERSION")
    diff.add_argument("new", metavar="@NAME/VERSION")
    diff.add_argument("--log", required=True, metavar="FOLDER", help="the folder of a log")
    diff.add_argument("--channel", dest="on", required=True, help="of the log")
    diff.add_argument("--engine", choices=("local", "spark"), default="local", help="default: %(default)s")
    diff.add_argument("--examples", type=whole, default=10, help="events to show of each (default: %(default)s)")
    upgrade = kind(
        "upgrade", "have subscriptions go on with another version, at an exact point of each source", _upgrade
    )
    upgrade.add_argument("reference", metavar="@NAME/VERSION", help="a newer one, or an older one to go back")
    upgrade.add_argument("--at", action="append", default=[], metavar="NODE", help="only there; may be given again")
    withdraw = kind("withdraw", "say that a version is not to be used any more", _withdraw)
    withdraw.add_argument("reference", metavar="@NAME/VERSION")
    withdraw.add_argument("why", help="what whoever asks for it is told")
    withdraw.add_argument("--at", required=True, metavar="NODE", help="the node that keeps it")
    for each in (publish, withdraw):
        each.add_argument("--state", type=Path, metavar="FILE", help="where the key is kept that signs")


def _listing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--channels", default="**", metavar="PATTERN", help="only on these (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each")


@contextmanager
def _joined(args: argparse.Namespace, joining: Joins, *nodes: str) -> Iterator[Node]:
    """A node of the federation, once these, or any, are there."""
    if args.name is None and getattr(args, "state", None) is not None:
        args.name = "interests"  # under which its key is found again
    with joining(args).node() as here:
        there = here.until(lambda: set(nodes) <= set(here.peers) if nodes else bool(here.peers), args.wait)
        if nodes and not there:
            missing = ", ".join(name for name in nodes if name not in here.peers)
            others = ", ".join(here.peers) or "none"
            raise LibraryError(f"expected node {missing} in the federation, found {others} (--wait)")
        here.ready(args.wait)
        yield here


def _list(args: argparse.Namespace, joining: Joins) -> int:
    """What runs at each node, but for the one that asks."""
    from headwater.text_tables import table

    with _joined(args, joining) as here:
        found = here.library.running_everywhere(args.channels, args.wait)
        found.pop(here.name, None)
    rows: list[tuple[Any, ...]] = []
    problems = []
    for node, page in sorted(found.items()):
        if isinstance(page, HeadwaterError):
            problems.append(f"{node}: {page}")
            continue
        for row in page.rows:
            if args.json:
                print(json.dumps({"node": node, **_plain(row)}))
            counts = [None if count < 0 else count for count in (row.evaluated, row.passed)]
            said = [_line(text) for text in (row.channel, row.what, row.kind)]
            rows.append((node, *said, row.size, row.cost, *counts, _line(row.asked_by)))
        if page.more:
            problems.append(f"{node}: there is more than one page; name fewer channels (--channels)")
        if page.hidden:
            problems.append(f'{node}: there may be more, which this node has not the right "inspect" to know of')
    if not args.json:
        titles = ("node", "channel", "what", "kind", "bytes", "cost", "evaluated", "passed", "asked by")
        print("\n".join(table(titles, rows, indent="")) if rows else "nothing runs that this node may know of")
    for each in problems:
        print(f"headwater interests: {_line(each)}", file=sys.stderr)
    return NOT_ALL if any(isinstance(page, HeadwaterError) for page in found.values()) else 0


def _names(args: argparse.Namespace, joining: Joins) -> int:
    from headwater.text_tables import table

    rows: list[tuple[Any, ...]] = []
    with _joined(args, joining) as here:
        for node in here.peers:
            for row in here.library.entries_at(node):
                if args.json:
                    print(json.dumps({"node": node, **_plain(row)}))
                said = f"withdrawn: {row.withdrawn}" if row.withdrawn else row.note
                texts = [_line(text) for text in (f"@{row.name}/{row.version}", row.kind, row.owner, said)]
                rows.append((node, *texts[:2], row.size, *texts[2:]))
    if not args.json:
        titles = ("node", "name", "kind", "bytes", "published by", "note")
        print("\n".join(table(titles, rows, indent="")) if rows else "no library has anything for this node")
    return 0


def _publish(args: argparse.Namespace, joining: Joins, load_type: Callable[[str], Any]) -> int:
    """Its key is that of the node's state, or of its certificate: one that is gone with the command owns nothing."""
    with _joined(args, joining, args.at) as here:
        _must_be_kept(here)
        definition, more = _definition(args, here, load_type)
        entry = here.library.publish(args.entry, definition, args.number, note=args.note, at=args.at, **more)
        print(f"{entry} {entry.kind} {entry.fingerprint.hex()} {entry.size:,} bytes, by {entry.owner}")
    return 0


def _definition(args: argparse.Namespace, here: Node, load_type: Callable[[str], Any]) -> tuple[Any, dict[str, Any]]:
    """What is to be published, and what else `publish` is to be told."""
    text = args.definition
    if (text is None) == (args.file is None):
        raise LibraryError("publish: expected the definition, or --file, and not both")
    if args.file is not None:
        try:
            text = args.file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise LibraryError(f"--file {args.file}: {error}") from None
    params = given_params(args.param) or None
    if args.trigger:
        from headwater.services.library.trigger_form import TriggerForm

        try:
            return TriggerForm(**{**tomllib.loads(text), **({"params": params} if params else {})}), {}
        except (tomllib.TOMLDecodeError, TypeError) as error:
            raise LibraryError(
                f"--trigger: expected TOML with on, when, where, …, found something else: {error}"
            ) from None
    if args.pattern:
        from headwater.patterns.pattern import Pattern

        return Pattern(text, here._known_types(), params=params), {}
    if (args.on is None) == (args.type is None):
        raise LibraryError("publish: expected --channel or --type, and not both")
    on = here.channel(args.on) if args.on is not None else load_type(args.type)
    return text, {"on": on, "params": params, "output": load_type(args.output) if args.output else None}


def _must_be_kept(here: Node) -> None:
    """A name belongs to the key that has signed it first: it has to be there the next time."""
    engine = here._engine
    assert engine is not None
    if here.state is None and not engine.keyring.credentials.identity.chain:
        raise LibraryError(
            "expected a key that is kept, found one that is gone with this command; give --state FILE, or a "
            "certificate (--security)"
        )


def _show(args: argparse.Namespace, joining: Joins) -> int:
    """Of an entry: what it is, by whom, over what, its cost, parameters and text, and its versions at each node."""
    with _joined(args, joining) as here:
        entry = here.library.find(args.reference, fresh=True)
        program: Any = entry.program
        lines = [f"{entry}  {entry.kind}  {entry.fingerprint.hex()}", f"  published by {entry.owner}"]
        lines += [f"  {entry.manifest.note}"] if entry.manifest.note else []
        lines += [f"  over {entry.manifest.input}"] if entry.manifest.input else []
        lines += [f"  makes {entry.manifest.output}"] if entry.manifest.output else []
        cost = getattr(program, "cost", None)
        lines.append(
            f"  {entry.size:,} bytes" + ("" if cost is None else f", about {cost.estimated:,} operations an event")
        )
        lines += [f"  :{name} = {value!r}" for name, value in dict(program.params).items()]
        lines += [f"  | {line}" for line in program.text.splitlines()]
        for node in here.peers:
            known = [row for row in here.library.entries_at(node) if row.name == entry.name]
            for row in known:
                said = f", withdrawn: {row.withdrawn}" if row.withdrawn else ""
                lines.append(f"  version {row.version} at {node}: {row.fingerprint.hex()}{said}")
    print("\n".join(map(_line, lines)))
    return 0


def _diff(args: argparse.Namespace, joining: Joins, compare: Callable[[str], Callable[..., Any]]) -> int:
    with _joined(args, joining) as here:
        found = [here.library.find(each) for each in (args.old, args.new)]
    if wrong := [each for each in found if each.kind == "trigger"]:
        raise LibraryError(f"diff: expected interests or patterns, found {wrong[0]}, which is a trigger")
    sides = [each.program for each in found]
    print(compare(args.engine)(args.log, *sides, channel=args.on, examples=args.examples))
    return 0


def _upgrade(args: argparse.Namespace, joining: Joins) -> int:
    """At every node, or at some; each says what became of its subscriptions."""
    from headwater.text_tables import table

    rows: list[tuple[Any, ...]] = []
    wrong = False
    with _joined(args, joining, *args.at) as here:
        entry = here.library.find(args.reference, fresh=True)
        for node in args.at or here.peers:
            try:
                found = here.library.upgrade_at(node, str(entry))
            except HeadwaterError as error:
                print(f"headwater interests: {_line(str(error))}", file=sys.stderr)
                wrong = True
                continue
            rows += [(node, each.subscription, each.before, entry.version, *_became(each)) for each in found]
            wrong = wrong or any(each.error or not each.acknowledged for each in found)
    titles = ("node", "subscription", "from", "to", "source", "last by the old one", "")
    flat = [(*row[:4], source, point, row[5]) for row in rows for source, point in (row[4] or {"": None}).items()]
    print("\n".join(table(titles, flat, indent="")) if flat else f"nothing runs another version of @{entry.name}")
    return NOT_ALL if wrong else 0


def _became(upgraded: Upgraded) -> tuple[dict[str, int], str]:
    if upgraded.error:
        return {}, _line(upgraded.error)
    return upgraded.points, "acknowledged" if upgraded.acknowledged else "not acknowledged by all nodes in time"


def _withdraw(args: argparse.Namespace, joining: Joins) -> int:
    with _joined(args, joining, args.at) as here:
        _must_be_kept(here)
        here.library.withdraw(args.reference, args.why, at=args.at)
    print(f"{args.reference} is withdrawn at {args.at}")
    return 0


def _line(text: str) -> str:
    """What other nodes say, on one line of a terminal, which it must not command."""
    return "".join(each if each.isprintable() else " " if each.isspace() else "?" for each in text)


def _plain(row: Any) -> dict[str, Any]:
    """A row as plain values."""
    values = {name: getattr(row, name) for name in row.__struct_fields__}
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in values.items()}


__all__ = ["add_interests"]
