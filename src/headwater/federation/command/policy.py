"""`headwater policy`: policies checked, set and lifted, listed, and explained, from the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.arguments import given_params
from headwater.errors import FederationError
from headwater.spelling import did_you_mean

if TYPE_CHECKING:
    from headwater.federation.command.command import Joining
    from headwater.federation.policy.service import PolicyChange

EXAMPLES = """\
examples:
  headwater policy check sightings.toml
  headwater policy why ann ie.tcd.door --policy doors.toml --group staff --place here=4
  headwater policy why ann ie.tcd.door --node lab --connect 127.0.0.1:7447 --security hq.toml
  headwater policy set sightings.toml --connect 127.0.0.1:7447 --security hq.toml
  headwater policy list --connect 127.0.0.1:7447
  headwater policy key hq.sqlite          what others write, as policies.by, where there are no certificates
  headwater policy set sightings.toml --state hq.sqlite --connect 127.0.0.1:7447
"""
NAME = "policy"  # of the node of a command, under which a state keeps its key
Joins = Callable[[argparse.Namespace], "Joining"]


def add_policy(commands: Any, add_joining: Callable[[argparse.ArgumentParser], object], joining: Joins) -> None:
    """Add `headwater policy` to the command line; `add_joining` and `joining` as for `headwater replay`."""
    sub = commands.add_parser(
        "policy",
        help="check, set, list and explain policies: which part of a channel somebody gets",
        description="Check, set, list and explain policies: which part of a channel somebody gets.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = sub.add_subparsers(dest="kind", metavar="what", required=True)

    def kind(name: str, help: str, run: Callable[[argparse.Namespace, Joins], int]) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = kinds.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        made.set_defaults(run=lambda args: run(args, joining))
        return made

    check = kind("check", "read a policy, and say what is wrong with it", _check)
    check.add_argument("file", help="TOML")
    put = kind("set", "sign a policy with this node's key, and put it in force", _set)
    put.add_argument("file", help="TOML")
    put.add_argument("--lasts", type=float, metavar="SECONDS", help="for which it is good (default: for good)")
    lift = kind("lift", "have a policy hold no more", _lift)
    lift.add_argument("policy", help="its name")
    key = kind("key", "the key that a state keeps, by which others know who sets policies", _key)
    key.add_argument("state", type=Path, metavar="FILE", help="made if it is not there yet")
    key.add_argument("--name", default=NAME, help="of the node (default: %(default)s)")
    for each in (put, lift, kind("list", "the policies that nodes hold", _list)):
        add_joining(each)
        each.add_argument("--state", type=Path, metavar="FILE", help="where the key is kept that signs")
    why = kind("why", "what is decided of a user on a channel, and why", _why)
    why.add_argument("user")
    why.add_argument("channel")
    why.add_argument("--policy", metavar="FILE", help="TOML: by this policy, whatever is in force")
    why.add_argument("--group", action="append", default=[], help="of the user; may be given again")
    why.add_argument("--device-kind", default="", metavar="KIND", help="of the device")
    why.add_argument("--attribute", action="append", default=[], metavar="NAME=VALUE", help="of the user (--policy)")
    why.add_argument("--place", action="append", default=[], metavar="NAME=VALUE", help="where the user is (--policy)")
    why.add_argument("--action", default="subscribe", help="what is asked for (default: %(default)s)")
    why.add_argument("--node", help="which node is to say so (default: all)")
    add_joining(why)
    why.add_argument("--state", type=Path, metavar="FILE", help="where the key is kept by which this node is known")


def _check(args: argparse.Namespace, joining: Joins) -> int:
    from headwater.services.policy.channel_policy import ChannelPolicy

    policy = ChannelPolicy.load(args.file)
    print(f'policy "{policy.name}" of {policy.channel}')
    for number, clause in enumerate(policy.clauses, 1):
        print(f"  {number}. {clause}")
    return 0


def _why(args: argparse.Namespace, joining: Joins) -> int:
    """From a file, as far as that knows; or as nodes answer it."""
    from headwater.services.policy.verdicts import ACTIONS, Allow, Restrict

    if args.action not in ACTIONS:
        meant = did_you_mean(args.action, ACTIONS)
        found = f"--action: expected one of {', '.join(ACTIONS)}, found {args.action!r}"
        raise FederationError(found if meant is None else f"{found}; {meant}")
    if args.policy is None:
        return _why_there(args, joining)
    from headwater.services.policy.book import InForce, PolicyBook
    from headwater.services.policy.channel_policy import ChannelPolicy
    from headwater.services.policy.identity import Identity

    policy = ChannelPolicy.load(args.policy)
    if not policy.about(args.channel):
        print(f"allowed: {args.policy} is about {policy.channel}, and not about {args.channel}: that is for the rules")
        return 0
    who: Any = Identity(
        user=args.user,
        groups=args.group,
        attributes=given_params(args.attribute),  # type: ignore[arg-type]
        device_kind=args.device_kind,
        how="password",  # whose groups are these, and no others
    )
    place = given_params(args.place) or None
    book = PolicyBook()
    book.put(InForce(policy, 1, ""))
    verdict = book.decide(who, args.action, args.channel, lambda *_: place)
    if verdict is None:
        print(f"allowed: no clause is about {args.action}: that is for the rules")
        return 0
    outcome = "allowed" if isinstance(verdict, Allow) else "restricted" if isinstance(verdict, Restrict) else "denied"
    print(f"{outcome}: {verdict.why}")
    if isinstance(verdict, Restrict):
        print(verdict.interest)
    return 0


@contextmanager
def _joined(args: argparse.Namespace, joining: Joins) -> Iterator[Any]:
    """A node, once others are there."""
    if args.name is None and args.state is not None:
        args.name = NAME  # under which its key is found again
    with joining(args).node() as node:
        if not node.until(lambda: bool(node.peers), args.wait):
            raise FederationError("expected another node in the federation, found none (--wait)")
        yield node


def _why_there(args: argparse.Namespace, joining: Joins) -> int:
    with _joined(args, joining) as node:
        if args.node is not None and not node.until(lambda: args.node in node.peers, args.wait):
            raise FederationError(f"expected node {args.node!r} in the federation, found {', '.join(node.peers)}")
        for name in [args.node] if args.node else sorted(node.peers):
            found = node.policies.why_at(
                name, args.user, args.channel, args.action, groups=args.group, device_kind=args.device_kind
            )
            print(f"{name}: {found.outcome}: {found.why}")
            if found.shown:
                print(found.shown)
    return 0


def _set(args: argparse.Namespace, joining: Joins) -> int:
    from headwater.services.policy.channel_policy import ChannelPolicy

    policy = ChannelPolicy.load(args.file)
    with _joined(args, joining) as node:
        _must_be_kept(node)
        after = node.policies.newest_anywhere(policy.name)
        return _said(node.name, node.policies.set(policy, lasts=args.lasts, after=after))


def _lift(args: argparse.Namespace, joining: Joins) -> int:
    with _joined(args, joining) as node:
        _must_be_kept(node)
        after = node.policies.newest_anywhere(args.policy)
        if not after:
            raise FederationError(f"expected the name of a policy that some node holds, found {args.policy!r}")
        return _said(node.name, node.policies.lift(args.policy, after=after))


def _must_be_kept(here: Any) -> None:
    """Nodes obey a certificate, or a key that they know beforehand: no other can be theirs."""
    if here.state is None and not here._engine.keyring.credentials.identity.chain:
        raise FederationError(
            "expected a key that other nodes can know, found one that is gone with this command; give --state FILE, "
            "or a certificate (--security)"
        )


def _key(args: argparse.Namespace, joining: Joins) -> int:
    from headwater.federation.node import Node

    with Node(args.name, state=args.state, network={"listen": "tcp/127.0.0.1:0"}) as node:
        engine = node._engine
        assert engine is not None
        print(f"key:{engine.keyring.credentials.identity.fingerprint}")
    return 0


def _said(here: str, change: PolicyChange) -> int:
    """Where it is in force, and where not; 0 if it is somewhere."""
    print(f'policy "{change.name}" version {change.version:,}')
    taken = {node: points for node, points in change.points.items() if node != here}
    for node, points in sorted(taken.items()):
        sources = [f"{channel}/{source} after {seq:,}" for channel, of in points.items() for source, seq in of.items()]
        print(f"  in force at {node}{': ' if sources else ''}{', '.join(sources)}")
    for node, why in sorted(change.refused.items()):
        print(f"  not at {node}: {why}")
    return 0 if taken else 1


def _list(args: argparse.Namespace, joining: Joins) -> int:
    from headwater.text_tables import table

    with _joined(args, joining) as node:
        rows = [
            (name, each.name, each.channel, f"{each.version}", each.signer)
            for name, held in sorted(node.policies.held_by_others().items())
            for each in held
        ]
        print("\n".join(table(("node", "policy", "channel", "version", "signed by"), rows, indent="")))
    return 0


__all__ = ["add_policy"]
