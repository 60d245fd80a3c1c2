"""`headwater objects`: the objects of a node of the federation, listed, read and changed from the command line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headwater.arguments import given_params, pairs, whole
from headwater.errors import ObjectError
from headwater.signals import end_signals

if TYPE_CHECKING:
    from headwater.federation.command.command import Joining
    from headwater.federation.objects.remote import RemoteObjects

EXAMPLES = """\
examples:
  headwater objects types //plant --connect tcp/127.0.0.1:7447
  headwater objects list '//plant/fleet/*' --connect tcp/127.0.0.1:7447
  headwater objects get //plant/fleet/car7.position --connect tcp/127.0.0.1:7447
  headwater objects create //plant/fleet/car8 Vehicle speed=0.0 --connect tcp/127.0.0.1:7447
  headwater objects update //plant/fleet/car7 --compute 'speed=speed + 1' --only-if 'it.speed < 10' --event --connect …
  headwater objects replica '//plant/fleet/*' --type Vehicle --bound speed=2 --connect tcp/127.0.0.1:7447
  headwater objects triggers //plant --connect tcp/127.0.0.1:7447
  headwater objects explain //plant low-fuel --connect tcp/127.0.0.1:7447
  headwater objects explain //plant --on 'fleet/*' --type Vehicle --when becomes --where 'new.speed > 30' --connect …
  headwater listen objects.Vehicle --where "new.speed > 30" --connect tcp/127.0.0.1:7447    their changes
"""
_COUNTS = ("evaluated", "fired", "vetoed", "failed", "failure")
LOOK_SECONDS = 0.1  # between two looks at a replica
Joins = Callable[[argparse.Namespace], "Joining"]


def add_objects(commands: Any, add_joining: Callable[[argparse.ArgumentParser], object], joining: Joins) -> None:
    """Add `headwater objects` to the command line; `add_joining` and `joining` as for `headwater replay`."""
    sub = commands.add_parser(
        "objects",
        help="list, read and change the objects of a node",
        description="List, read and change the objects of a node, which runs what is asked of it. Names are "
        "//NODE/PATH, and a member's is behind a dot.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = sub.add_subparsers(dest="kind", metavar="what", required=True)

    def kind(name: str, help: str, run: Callable[[argparse.Namespace, Joins], int]) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = kinds.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        add_joining(made)
        made.set_defaults(run=lambda args: run(args, joining))
        return made

    kind("types", "the types of a node's objects", _types).add_argument("node", help="//NODE")
    listed = kind("list", "objects whose names fit, as a table", _list)
    listed.add_argument("pattern", help="//NODE, or //NODE/PATH with * and ** in it")
    listed.add_argument("--json", action="store_true", help="a line of JSON for each, with its name")
    listed.add_argument("--most", type=whole, default=100, help="show so many at most (default: %(default)s)")
    kind("get", "an object or a member of it, as JSON", _get).add_argument("object", help="//NODE/PATH")
    triggers = kind("triggers", "the triggers of a node, with their counts", _triggers)
    triggers.add_argument("node", help="//NODE")
    triggers.add_argument("--json", action="store_true", help="a line of JSON for each")
    explain = kind("explain", "a trigger of a node in words, or one that would be installed there", _explain)
    explain.add_argument("node", help="//NODE")
    explain.add_argument("trigger", nargs="?", default="", help="its name; none: the one that the options say")
    explain.add_argument("--on", action="append", default=[], metavar="EVENT", help="what it would listen to")
    explain.add_argument("--when", choices=("each", "becomes"), default="each", help="(default: %(default)s)")
    explain.add_argument("--where", default="", metavar="CONDITION", help="over old, new, last, event")
    explain.add_argument("--type", default="", help="of the objects, where their names do not tell")
    explain.add_argument("--notify", action="append", default=[], metavar="NAME=EXPRESSION", help="what it would tell")
    explain.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="a parameter")
    replica = kind(
        "replica", "hold objects here, within bounds, and show them as they change, a line of JSON each", _replica
    )
    replica.add_argument("pattern", help="//NODE/PATH, with * and ** in it")
    replica.add_argument("--type", default="", help="of the objects, where the name of one does not tell")
    replica.add_argument("--bound", action="append", default=[], metavar="NAME=NUMBER", help="how far it may be off")
    replica.add_argument("--count", type=whole, default=0, help="end after so many lines (default: with Ctrl-C)")
    create = kind("create", "make an object", _create)
    create.add_argument("object", help="//NODE/PATH")
    create.add_argument("type", help="of the object")
    create.add_argument("member", nargs="*", metavar="MEMBER=VALUE", help="a value is JSON, or else text")
    update = kind("update", "change members of an object, all or none", _update)
    update.add_argument("object", help="//NODE/PATH")
    update.add_argument("member", nargs="*", metavar="MEMBER=VALUE", help="a value is JSON, or else text")
    update.add_argument("--compute", action="append", default=[], metavar="MEMBER=EXPRESSION",
                        help="what the owner computes of the object's members; may be given again")  # fmt: skip
    update.add_argument("--event", action="store_true", help="with an event: triggers and subscribers hear of it")
    for each in (update, kind("destroy", "end an object", _destroy)):
        each.add_argument(
            "--only-if", metavar="CONDITION", help="over the object, `it`, as in 'it.speed < 10': else nothing is done"
        )
        each.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="a parameter")
        if each is not update:
            each.add_argument("object", help="//NODE/PATH")


@contextmanager
def _objects(args: argparse.Namespace, joining: Joins, name: str) -> Iterator[tuple[RemoteObjects, str]]:
    """The objects of the node that a name begins with, and the rest of the name."""
    node, _, path = name.removeprefix("//").partition("/")
    if not name.startswith("//") or not node:
        raise ObjectError(f"{name!r}: expected //NODE/PATH, found no node in it")
    with joining(args).node() as here:
        found: Any = here.objects_at(node)
        if not here.until(lambda: node in here.peers, args.wait):
            others = ", ".join(here.peers) or "none"
            raise ObjectError(f"{name!r}: expected node {node!r} in the federation, found {others} (--wait)")
        yield found, path


def _types(args: argparse.Namespace, joining: Joins) -> int:
    from headwater.text_tables import table

    with _objects(args, joining, args.node) as (objects, _):
        rows = [(name, ", ".join(map(str, type.record.fields))) for name, type in sorted(objects.types.items())]
        print("\n".join(table(("type", "members"), rows, indent="")))
    return 0


def _list(args: argparse.Namespace, joining: Joins) -> int:
    from headwater.text_tables import table

    with _objects(args, joining, args.pattern) as (objects, path):
        rows: list[tuple[str, str, str, int | None]] = []
        types = objects.types
        for kept in objects.list(path or "**"):
            if len(rows) == args.most:
                rows.append(("…", "", f"more than {args.most} (--most)", None))
                break
            rows.append((kept.name, kept.type, types[kept.type].to_json(kept.value), kept.turn))
        if args.json:
            for name, kind, value, turn in rows[: args.most]:
                print(f'{{"object":{json.dumps(name)},"type":{json.dumps(kind)},"turn":{turn},"value":{value}}}')
        else:
            print("\n".join(table(("object", "type", "value", "turn"), rows, indent="")))
    return 0


def _replica(args: argparse.Namespace, joining: Joins) -> int:
    """What is there first, then whatever is another, with the time as of which it is known."""
    shown: dict[str, Any] = {}
    lines = 0
    with end_signals() as ended, _objects(args, joining, args.pattern) as (objects, path):
        bound = {name: _number(name, value) for name, value in pairs("--bound", "NUMBER", args.bound)}
        with objects.replica(path, type=args.type, bound=bound) as replica:
            if not replica.ready(args.wait):
                raise ObjectError(f"{args.pattern!r}: expected it to be known, found {replica.state} (--wait)")
            while not (args.count and lines >= args.count):
                found = {each.name: each for each in replica}
                gone = [name for name in shown if name not in found]
                new = [each for each in found.values() if shown.get(each.name) != each.value]
                for name in gone:
                    print(json.dumps({"object": name, "as_of": replica.as_of, "value": None}), flush=True)
                for each in new:
                    value = json.loads(replica.form.to_json(each.value))
                    bounds = dict(each.bound)
                    print(
                        json.dumps({"object": each.name, "as_of": each.as_of, "bound": bounds, "value": value}),
                        flush=True,
                    )
                lines += len(gone) + len(new)
                shown = {name: each.value for name, each in found.items()}
                if (args.count and lines >= args.count) or ended.wait(LOOK_SECONDS):
                    break
    return 0


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ObjectError(f"--bound {name}: expected a number, found {value!r}") from None


def _get(args: argparse.Namespace, joining: Joins) -> int:
    with _objects(args, joining, args.object) as (objects, path):
        with objects.transaction() as t:
            t.read(path, as_="value")
        print(json.dumps(t.results["value"], default=str))
    return 0


def _triggers(args: argparse.Namespace, joining: Joins) -> int:
    """A table, or a line of JSON for each."""
    from headwater.text_tables import table

    with _objects(args, joining, args.node) as (objects, _):
        found = list(objects.triggers())
    if args.json:
        for each in found:
            counts = {name: getattr(each, name) for name in _COUNTS}
            print(json.dumps({"name": each.name, "on": each.on, "when": each.when, "enabled": each.enabled, **counts}))
        return 0
    rows = [
        (
            each.name,
            each.on,
            each.when + ("" if each.enabled else ", disabled"),
            *(getattr(each, name) for name in _COUNTS),
        )
        for each in found
    ]
    head = ("trigger", "on", "when", "evaluated", "fired", "vetoed", "failed", "last failure")
    print("\n".join(table(head, rows, indent="")))
    return 0


def _explain(args: argparse.Namespace, joining: Joins) -> int:
    """One that is installed, by its name; else one that the options say."""
    if bool(args.trigger) == bool(args.on):
        raise ObjectError(
            "explain: expected the name of a trigger, or --on for one that is not installed, and not both"
        )
    with _objects(args, joining, args.node) as (objects, _):
        if args.trigger:
            print(objects.explain(args.trigger))
            return 0
        notify = dict(pairs("--notify", "EXPRESSION", args.notify))
        print(
            objects.explain_trigger(
                "this", on=args.on, when=args.when, where=args.where, type=args.type, notify=notify or True,
                params=given_params(args.param) or None,
            )
        )  # fmt: skip
    return 0


def _create(args: argparse.Namespace, joining: Joins) -> int:
    with _objects(args, joining, args.object) as (objects, path):
        with objects.transaction() as t:
            t.create(path, args.type, _given(args.member))
        print(f"turn {t.outcome.turn:,}")
    return 0


def _update(args: argparse.Namespace, joining: Joins) -> int:
    """Members that are given, and those that are computed, together."""
    from headwater.objects.builder import Computed

    if not args.member and not args.compute:
        raise ObjectError("update: expected MEMBER=VALUE or --compute, found nothing to change")
    with _objects(args, joining, args.object) as (objects, path):
        computed = {name: Computed(text) for name, text in pairs("--compute", "EXPRESSION", args.compute)}
        with objects.transaction(params=given_params(args.param) or None) as t:
            _guard(t, path, args.only_if)
            t.update(path, {**_given(args.member), **computed}, event=args.event)
        print(f"turn {t.outcome.turn:,}")
    return 0


def _destroy(args: argparse.Namespace, joining: Joins) -> int:
    with _objects(args, joining, args.object) as (objects, path):
        with objects.transaction(params=given_params(args.param) or None) as t:
            _guard(t, path, args.only_if)
            t.destroy(path)
        print(f"turn {t.outcome.turn:,}")
    return 0


def _guard(t: Any, path: str, condition: str | None) -> None:
    """A condition over the object, which is read as `it`."""
    if condition is not None:
        t.read(path, as_="it")
        t.only_if(condition)


def _given(items: list[str]) -> dict[str, Any]:
    """Members by path; a value is JSON, or else text."""
    found: dict[str, Any] = {}
    for name, text in pairs("MEMBER", "VALUE", items):
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


__all__ = ["add_objects"]
