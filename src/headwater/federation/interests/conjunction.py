"""Conjunctions of interests: what a gateway asks for, which is what its own filter passes of what someone on the other
side wants; and what a policy leaves of what somebody wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headwater.errors import FederationError, HeadwaterError
from headwater.federation.demand.cover import minimal
from headwater.interest import Interest
from headwater.ir import walk
from headwater.ir.covers import union
from headwater.ir.functional import FALSE, TRUE, as_expression
from headwater.ir.nodes import Cond, Expr, If, InSet, Logic, Lookup, Param, Program, Return
from headwater.types import EventType
from headwater.types.model import BOOL

MOST_JOINED = 32  # distinct interests that are worth being put together


def combined(where: Interest | None, wants: Sequence[Interest | None], type: EventType | None) -> Interest | None:
    """An interest on that type which passes all that both the filter and any of these pass; perhaps more than that,
    where it cannot be said exactly, but never more than the filter. None for everything."""
    if type is None:
        return where
    needed = [wants[at] for at in minimal(wants)[0]]
    filters = [want for want in needed if want is not None and not want.stateful and want.output is None]
    filters = [want for want in filters if not want.contextual]
    if len(filters) < len(needed) or not 0 < len(filters) <= MOST_JOINED:
        return where
    try:
        params: dict[str, Any] = {}
        any_of = union([_placed(want, type, f"w{at}", params) for at, want in enumerate(filters)])
        if where is None:
            return Interest.from_program(any_of, params)
        both = as_expression(_placed(where, type, "g", params)), as_expression(any_of)
        if both[0] is None or both[1] is None:
            return where
        mine = _placed(where, type, "g", {})
        value = Logic("and", (both[0], both[1]))
        return Interest.from_program(
            Program(mine.input, None, mine.params + any_of.params, (), (Return(value),)), params
        )
    except HeadwaterError:
        return where


def restricted(wanted: Interest | None, by: Interest, type: EventType | None) -> Interest:
    """What an interest passes of what a restriction passes: exactly that, or FederationError. Other events reach
    neither its state nor its output. None: everything is wanted."""
    if type is None:
        raise FederationError(
            "a channel of bytes cannot be restricted by an interest, which can only be allowed or not"
        )
    params: dict[str, Any] = {}
    program = _placed(by, type, "r", params)
    test = None if program.stateful else as_expression(program)
    if test is None:
        raise FederationError("a restriction must be a filter without state, output or loops")
    if wanted is None:
        return Interest.from_program(program, params)
    mine = _placed(wanted, type, "w", params)
    value = None if mine.stateful else as_expression(mine)
    if value is not None:
        made = replace(mine, variables=(), body=(Return(Logic("and", (test, value))),))
    else:
        hidden = Cond(test, FALSE, TRUE, TRUE, BOOL)
        made = replace(mine, body=(If(hidden, (Return(FALSE),), ()), *mine.body))
    return wanted.from_program(
        replace(made, params=program.params + mine.params, text=wanted.text), params, limits=wanted.limits
    )


def _placed(interest: Interest, type: EventType, prefix: str, params: dict[str, Any]) -> Program:
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
