"""`headwater users`: the file of users that nodes know, with keys made of their passwords."""

from __future__ import annotations

import argparse
import getpass
import sys
from pathlib import Path
from typing import Any

from headwater.errors import ConfigError, ConfigProblem
from headwater.text_tables import table

EXAMPLES = """\
examples:
  headwater users add users.txt ann --group security       asks for the password, twice
  headwater users add users.txt bob < password.txt         reads it from there
  headwater users list users.txt
  headwater users convert users.txt                        puts keys in the place of passwords, in a file of old

In a program: Security(user="ann", password=..., users="users.txt", rules=[...])
"""


def add_users(commands: Any) -> None:
    """Add `headwater users` to the command line."""
    sub = commands.add_parser(
        "users",
        help="write the file of users that nodes know",
        description="Write the file of users that nodes know: keys that are made of their passwords, and no passwords.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = sub.add_subparsers(dest="what", metavar="what", required=True)
    add = kinds.add_parser("add", help="add a user, or change the password and groups of one")
    remove = kinds.add_parser("remove", help="take a user out")
    listed = kinds.add_parser("list", help="the users in it, with their groups")
    convert = kinds.add_parser("convert", help="put keys in the place of passwords")
    for each in (add, remove, listed, convert):
        each.add_argument("file", type=Path, help="of users")
    for each in (add, remove):
        each.add_argument("user", help="name")
    add.add_argument("--group", action="append", default=[], help="a group that rules can name; may be given again")
    for each, run in ((add, _add), (remove, _remove), (listed, _list), (convert, _convert)):
        each.set_defaults(run=run)


def _add(args: argparse.Namespace) -> int:
    from headwater.federation.security.user_file import UserFile

    file = UserFile(args.file)
    new = file.add(args.user, _password(args.user), args.group)
    file.save()
    print(f"{args.file}: {args.user} is {'added' if new else 'changed'}; nodes take it up when they are started")
    return 0


def _password(user: str) -> str:
    """From the terminal, twice; else a line of the standard input."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    first = getpass.getpass(f"password of {user}: ")
    if getpass.getpass("the same again: ") != first:
        raise ConfigError([ConfigProblem("password", "the same twice", "two")])
    return first


def _remove(args: argparse.Namespace) -> int:
    from headwater.federation.security.user_file import UserFile

    file = UserFile(args.file)
    file.remove(args.user)
    file.save()
    print(f"{args.file}: {args.user} is in it no more; nodes that run know it until they are started anew")
    return 0


def _list(args: argparse.Namespace) -> int:
    from headwater.federation.security.user_file import UserFile

    _must_be_there(args.file)
    rows = [
        (line.user, ", ".join(line.groups), "a password: convert it" if line.is_password else "keys")
        for line in UserFile(args.file)
    ]
    print("\n".join(table(("user", "groups", "known by"), rows, indent="")))
    return 0


def _convert(args: argparse.Namespace) -> int:
    from headwater.federation.security.user_file import UserFile

    _must_be_there(args.file)
    file = UserFile(args.file)
    found = file.convert()
    if found:
        file.save()
    print(f"{args.file}: {', '.join(found) if found else 'nobody'} had a password in it"
          f"{', and has keys now; the old file may be on backups' if found else ''}")  # fmt: skip
    return 0


def _must_be_there(file: Path) -> None:
    if not file.is_file():
        raise ConfigError([ConfigProblem(str(file), "a file of users", "none", "headwater users add makes one")])


__all__ = ["add_users"]
