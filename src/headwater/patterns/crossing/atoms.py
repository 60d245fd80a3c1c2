"""What of a channel a pattern can use: asked at the sources, so that the rest never leaves them.

    source_interest(pattern, "hall.door")    passes every event that can matter; None where all of them can

An event matters if it fits an element by itself, a negative one too; where rows are counted (a strict step, a window of
rows) also if it passes `among`; and where an event says its own time, always: each tells how far its source has come,
and which of its later events are late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwater.errors import InterestError
from headwater.interest import Interest
from headwater.ir.cost import Limits
from headwater.ir.nodes import Const, Expr, Logic, ParamDecl, Program, Return
from headwater.patterns import model
from headwater.patterns.automaton import automaton
from headwater.types.model import BOOL

_TRUE = Const(True, BOOL)


def counts_rows(pattern: model.Pattern) -> bool:
    """Whether rows that fit no element can decide about matches: by standing between two, or by filling a window."""
    return (pattern.window is not None and pattern.window.rows is not None) or automaton(pattern).strict


def source_interest(pattern: model.Pattern, channel: str) -> Interest | None:
    """What passes every event of the channel that can matter, and as little else as can be said of one event; None
    where every event can."""
    it = channel_of(pattern, channel)
    if it.time is not None:
        return None
    conditions = [element.condition for element in pattern.elements if channel in element.channels]
    if counts_rows(pattern):
        if it.all and it.among is None:
            return None
        if it.among is not None:
            conditions.append(it.among)
    return either(conditions, it, pattern.limits)


def channel_of(pattern: model.Pattern, name: str) -> model.Channel:
    """The pattern's channel of that name."""
    for channel in pattern.channels:
        if channel.name == name:
            return channel
    names = ", ".join(channel.name for channel in pattern.channels)
    raise ValueError(f"expected one of the pattern's channels ({names}), found {name!r}")


def either(conditions: Iterable[Interest | None], channel: model.Channel, limits: model.Limits) -> Interest | None:
    """What passes the events that pass any of the conditions (None: all do); None where that is every event, or more
    than a source could be asked."""
    values: dict[Expr, None] = {}
    decls: dict[str, ParamDecl] = {}
    params: dict[str, Any] = {}
    for condition in conditions:
        if condition is None:
            return None
        value = expression_of(condition, channel)
        if value is None:
            return None
        values[value] = None
        decls.update({decl.name: decl for decl in condition.program.params})
        params.update(condition.params)
    if not values:
        return interest_of(Const(False, BOOL), channel, (), {}, limits)
    value = next(iter(values)) if len(values) == 1 else Logic("or", tuple(values))
    return interest_of(value, channel, tuple(decls.values()), params, limits)


def expression_of(condition: Interest, channel: model.Channel) -> Expr | None:
    """What a condition asks of an event of the channel, as one expression; None if it is more than that."""
    program = condition.program
    if program.input != channel.type.record:
        program = condition.on(channel.type).program
    if program.variables or program.output is not None or len(program.body) != 1:
        return None
    only = program.body[0]
    return only.value if isinstance(only, Return) else None


def interest_of(
    value: Expr, channel: model.Channel, decls: tuple[ParamDecl, ...], params: Mapping[str, Any], limits: model.Limits
) -> Interest | None:
    """The interest that asks this; None if every event passes, or if it is more than a source could be asked."""
    program = Program(channel.type.record, None, decls, (), (Return(value),), "predicate")
    try:
        made = Interest.from_program(program, params, limits=Limits(max_worst=limits.worst))
    except InterestError:
        return None
    return None if made.normal.body == (Return(_TRUE),) else made


__all__ = ["channel_of", "counts_rows", "either", "expression_of", "interest_of", "source_interest"]
