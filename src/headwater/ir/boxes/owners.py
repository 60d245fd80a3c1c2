"""A condition over values of several owners, taken apart.

Of a condition that is several at once (`and`), each that reads values of one owner only can be decided there, and only
changes of its truth have to cross. The others are decided of all together: over boxes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headwater.ir import walk
from headwater.ir.boxes.tape import path_text
from headwater.ir.nodes import Expr, Load, Logic, Meta, Reduce, Unary
from headwater.types.model import BOOL

OwnerOf = Callable[[str], str]


class Shares(NamedTuple):
    """What each owner decides alone, and what is left; all of it must be true. What reads nothing is with the rest."""

    alone: dict[str, tuple[Expr, ...]]
    together: tuple[Expr, ...]


def split(condition: Expr, owner_of: OwnerOf) -> Shares:
    """The conjuncts of a condition by owner; `owner_of` names the owner of an input by its path."""
    alone: dict[str, list[Expr]] = {}
    together: list[Expr] = []
    for term in conjuncts(condition):
        owners = {owner_of(path) for path in paths(term)}
        if len(owners) == 1:
            alone.setdefault(owners.pop(), []).append(term)
        else:
            together.append(term)
    return Shares({owner: tuple(terms) for owner, terms in alone.items()}, tuple(together))


def conjuncts(condition: Expr) -> tuple[Expr, ...]:
    """What must all be true for the condition to be; missing is not true. `not (a or b)` is two of them."""
    found: list[Expr] = []
    pending = [condition]
    while pending:
        match pending.pop():
            case Logic(op="and", args=args):
                pending += reversed(args)
            case Unary(op="not", a=Logic(op="or", args=args)):
                pending += [Unary("not", arg, BOOL, arg.span) for arg in reversed(args)]
            case Unary(op="not", a=Unary(op="not", a=inner)):
                pending.append(inner)
            case term:
                found.append(term)
    return tuple(found)


def paths(expr: Expr) -> tuple[str, ...]:
    """What an expression reads, by path, each as often as it is read."""
    return tuple(
        f"@{each.name}" if isinstance(each, Meta) else path_text(each.path)
        for each in walk.expressions(expr)
        if isinstance(each, Load | Reduce | Meta)
    )
