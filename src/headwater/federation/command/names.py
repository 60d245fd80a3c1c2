"""`headwater names`: the tree of domains, who serves what, a name looked up step by step; keys and zones of owners."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from headwater.federation.command.command import Joining
    from headwater.federation.naming.names import Names
    from headwater.federation.naming.settings import NameSettings
    from headwater.federation.naming.tree import Branch

EXAMPLES = """\
examples:
  headwater names key tcd.key                          a key for the owner of a domain; prints its fingerprint
  headwater names sign tcd.toml                        signs the domains of a file: ie.tcd.domain beside it
  headwater node --listen 0.0.0.0:7447 --names tcd.toml     serves them
  headwater names tree names.toml                      which domains there are, who owns and serves them
  headwater names resolve ie.tcd.cs.ActiveBadge names.toml  who has sources of a name, and how that was found out

A file has `anchors` and `servers`, as a node's has; without --connect the command joins the federation of the first
server in it.
"""
Joins = Callable[[argparse.Namespace], "Joining"]


def add_names(commands: Any, add_joining: Callable[[argparse.ArgumentParser], object], joining: Joins) -> None:
    """Add `headwater names` to the command line; `add_joining` and `joining` as for `headwater replay`."""
    sub = commands.add_parser(
        "names",
        help="show the tree of domains, look a name up step by step, and sign domains",
        description="Names that are owned: show the tree of domains and who serves them, look a name up step by step, "
        "make keys for owners of domains, and sign what they say.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = sub.add_subparsers(dest="kind", metavar="what", required=True)

    def kind(name: str, help: str, run: Callable[..., int], *, joins: bool) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = kinds.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        if joins:
            add_joining(made)
        made.set_defaults(run=(lambda args: run(args, joining)) if joins else run)
        return made

    kind("key", "make a key for the owner of a domain", _key, joins=False).add_argument("file", type=Path)
    signed = kind("sign", "sign the domains of a file with their owners' keys", _sign, joins=False)
    signed.add_argument("file", type=Path, help="as a server has it: [[serve]] with key and servers")
    tree = kind("tree", "which domains there are, who owns and who serves them", _tree, joins=True)
    tree.add_argument("file", type=Path, help="anchors and servers, as a node has them")
    resolve = kind("resolve", "look a name up, step by step", _resolve, joins=True)
    resolve.add_argument("name", metavar="NAME", help="as in ie.tcd.cs.ActiveBadge")
    resolve.add_argument("file", type=Path, help="anchors and servers, as a node has them")


def _key(args: argparse.Namespace) -> int:
    from headwater.federation.naming.signatures import make_owner_key

    print(make_owner_key(args.file))
    return 0


def _sign(args: argparse.Namespace) -> int:
    """Write a signed zone for each domain of the file that has a key."""
    from headwater.federation.naming.settings import NameSettings
    from headwater.federation.naming.signatures import sign_zone
    from headwater.services.naming.zone import Zone

    settings = NameSettings.of(args.file)
    owned = [each for each in settings.serve if each.owner is not None]
    hint = "servers = ['gate.5a…@tcd=tls/gate.tcd.ie:7447']"
    problems = [
        ConfigProblem(f"{args.file}: domain {each.domain}", "its servers, by id", "none", hint)
        for each in owned
        if not each.servers
    ]
    if not owned:
        problems.append(ConfigProblem(str(args.file), "[[serve]] with the owner's key", "none"))
    if problems:
        raise ConfigError(problems)
    for served in owned:
        assert served.owner is not None
        zone = Zone(
            served.domain, served.servers, dict(served.delegations), served.ttl, served.negative_ttl, served.lease
        )
        signed = sign_zone(served.owner, zone, served.version or time.time_ns() // 1_000_000, served.lasts)
        name = "root" if served.domain == "." else served.domain
        path = args.file.parent / f"{name}.domain"
        path.write_bytes(signed.to_bytes())
        print(f"{path}: {signed.document}, good for {served.lasts / 86_400:,.1f} days")
    return 0


@contextmanager
def _names(args: argparse.Namespace, joining: Joins) -> Iterator[Names]:
    """The naming service of a node that joins for this."""
    from headwater.federation.naming.names import Names
    from headwater.federation.naming.settings import NameSettings

    settings = NameSettings.of(args.file)
    with _joined(joining(args), settings).node() as node:
        yield Names(node, replace(settings, serve=(), entry=(), carries=False))


def _joined(joining: Joining, settings: NameSettings) -> Joining:
    """How to join: as was said, or by the first server of the file."""
    if joining.connect or joining.listen or joining.scout:
        return replace(joining, named=True)
    anchored = [each for granted in settings.anchors.values() for each in granted.servers]
    known = [each for each in (*settings.servers, *anchored) if each.endpoints]
    if not known:
        hint = 'servers = ["NODE@FEDERATION=ENDPOINT"] in the file, or --connect'
        raise ConfigError([ConfigProblem("names", "a server to begin with", "none", hint)])
    first = known[0]
    return replace(joining, connect=first.endpoints, federation=joining.federation or first.federation, named=True)


def _tree(args: argparse.Namespace, joining: Joins) -> int:
    from headwater.federation.naming.tree import tree
    from headwater.text_tables import table

    with _names(args, joining) as names:
        found = tree(names)
        rows = [
            (
                "  " * each.level + each.domain,
                f"{each.owner[:16]}…",
                _servers(each),
                each.names,
                each.problem or f"good for {each.days:,.1f} days",
            )
            for each in found
        ]
        print("\n".join(table(("domain", "owner", "served by", "names", "state"), rows, indent="")))
    return 1 if any(each.problem for each in found) else 0


def _servers(branch: Branch) -> str:
    return ", ".join(each.brief for each in branch.servers) or "nobody"


def _resolve(args: argparse.Namespace, joining: Joins) -> int:
    """Each step as it was, and what came of it."""
    from headwater.services.naming.resolver import NameUnresolved
    from headwater.text_tables import table

    with _names(args, joining) as names:
        problem = None
        try:
            answer, steps = names.trace(args.name)
        except NameUnresolved as error:
            problem, steps = error, list(error.steps)
        rows = [(number, step.domain, step.server, step.outcome) for number, step in enumerate(steps, 1)]
        if rows:
            print("\n".join(table(("step", "domain", "asked", "said"), rows, indent="")))
        if problem is not None:
            raise problem
        for each in answer.sources:
            seconds = max(0.0, (each.expires - time.time_ns()) / 1e9)
            print(f"{answer.name} at {each.address} (for {seconds:,.0f} s, by consent of {each.server})")
        if not answer.sources:
            print(f"{answer.name}: domain {answer.domain!r} knows of no sources")
    return 0


__all__ = ["add_names"]
