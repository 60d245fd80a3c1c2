"""Conjunctions of interests with a policy: what it leaves of what somebody wants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headwater.errors import FederationError
from headwater.interest import Interest
from headwater.ir import walk
from headwater.ir.functional import FALSE, TRUE, as_expression
from headwater.ir.nodes import Cond, Expr, If, InSet, Logic, Lookup, Param, Program, Return
from headwater.types import EventType
from headwater.types.model import BOOL


def restricted(wanted: Interest | None, by: Interest, type: EventType | None) -> Interest:
    """What an interest passes of what a restriction passes: exactly that, or FederationError. Other events reach
    neither its state nor its output. None: everything is wanted."""
    if type is None:
        raise FederationError(
            "a channel of bytes cannot be restricted by an interest, which can only be allowed or not"
        )
    params: dict[str, Any] = {}
    program = placed(by, type, "r", params)
    test = None if program.stateful else as_expression(program)
    if test is None:
        raise FederationError("a restriction must be a filter without state, output or loops")
    if wanted is None:
        return Interest.from_program(program, params)
    mine = placed(wanted, type, "w", params)
    value = None if mine.stateful else as_expression(mine)
    if value is not None:
        made = replace(mine, variables=(), body=(Return(Logic("and", (test, value))),))
    else:
        hidden = Cond(test, FALSE, TRUE, TRUE, BOOL)
        made = replace(mine, body=(If(hidden, (Return(FALSE),), ()), *mine.body))
    return wanted.from_program(
        replace(made, params=program.params + mine.params, text=wanted.text), params, limits=wanted.limits
    )


def placed(interest: Interest, type: EventType, prefix: str, params: dict[str, Any]) -> Program:
    """Its program for that type, with names of parameters that no other has; their values are added to `params`."""
    program = (interest if interest.type.record == type.record else interest.on(type)).program
    names = {param.name: f"{prefix}_{at}" for at, param in enumerate(program.params)}
    params.update((names[name], value) for name, value in interest.params.items() if name in names)

    def change(expr: Expr) -> Expr:
        match expr:
            case Param(name=name):
                return replace(expr, name=names[name])
            case InSet(param=str() as name) | Lookup(param=name):
                return replace(expr, param=names[name])
            case _:
                return expr

    body = walk.map_block(program.body, lambda expr: walk.rebuild(expr, change))
    return replace(program, params=tuple(replace(param, name=names[param.name]) for param in program.params), body=body)


def both(one: Interest, other: Interest) -> Interest:
    """What two restrictions of one channel pass together; FederationError if that cannot be said."""
    return restricted(one, other, one.type)


__all__ = ["both", "placed", "restricted"]
