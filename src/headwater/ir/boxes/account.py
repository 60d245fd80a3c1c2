"""What boxes can say of a condition, in words: which inputs are bounded and how, who decides what, and what nobody can.

distance(a.x, a.y, b.x, b.y) > 100.0
  over boxes of a.x, a.y (ship), b.x, b.y (shore), each read once
a.armed
  by ship alone: only changes of its truth cross
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from headwater.ir.boxes.decider import Interesting, condition_of, program_of
from headwater.ir.boxes.owners import OwnerOf, conjuncts, paths
from headwater.ir.boxes.tangle import Tangle
from headwater.ir.boxes.tape import Limit, Tape
from headwater.ir.nodes import NOWHERE, Program
from headwater.ir.show import show_expr

UNOWNED = ""


class Part(NamedTuple):
    """One conjunct: its text, how often it reads which input, whose these are, and what is unknown of it.
    `tangled`: it takes more than interval arithmetic to bound it well."""

    text: str
    reads: dict[str, int]
    owners: dict[str, tuple[str, ...]]
    tangled: bool
    limits: tuple[Limit, ...]


def account(
    interest: Interesting | Program, owner_of: OwnerOf | None = None, params: Mapping[str, Any] | None = None
) -> tuple[Part, ...]:
    """Of each conjunct of a condition; of a program that is no single expression there is one, with its limit."""
    program, values = program_of(interest, params)
    expr, why = condition_of(program)
    if expr is None:
        return (Part("the program", {}, {}, False, (Limit("the program", why, NOWHERE),)),)
    found = []
    for term in conjuncts(expr):
        tape = Tape(term, program.input, values)
        reads = Counter(paths(term))
        owners: dict[str, tuple[str, ...]] = {}
        for path in reads:
            owner = owner_of(path) if owner_of is not None else UNOWNED
            owners[owner] = (*owners.get(owner, ()), path)
        shown = show_expr(term).replace("input.", "")
        found.append(Part(shown, dict(reads), owners, Tangle(tape).there, tuple(dict.fromkeys(tape.limits))))
    return tuple(found)


def describe(
    interest: Interesting | Program, owner_of: OwnerOf | None = None, params: Mapping[str, Any] | None = None
) -> str:
    """The same as text, for who asks what will be silent."""
    lines: list[str] = []
    for part in account(interest, owner_of, params):
        lines.append(part.text)
        lines += [f"  {line}" for line in _said(part)]
    return "\n".join(lines)


def _said(part: Part) -> list[str]:
    if len(part.owners) == 1 and UNOWNED not in part.owners:
        return [f"by {next(iter(part.owners))} alone: only changes of its truth cross"]
    lines = []
    if part.reads:
        lines.append(f"over boxes of {_inputs(part)}{'' if part.tangled else ', bounded by intervals'}")
    again = [f"{path} {count} times" for path, count in part.reads.items() if count > 1]
    if part.tangled:
        lines.append(f"bounded by slopes and at corners, for it reads {', '.join(again) or 'elements'}")
    lines += [f"not bounded: {limit.what}: {limit.reason}" for limit in part.limits]
    return lines or ["reads nothing: always the same"]


def _inputs(part: Part) -> str:
    return ", ".join(", ".join(read) + (f" ({owner})" if owner else "") for owner, read in part.owners.items())
