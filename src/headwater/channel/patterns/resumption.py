"""What a pattern asks of its channels as soon as it goes on: of nodes that were asked for bound values only, those that
its state says are bound. So what they have published meanwhile crosses only as far as it can matter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headwater.interest import Interest
from headwater.patterns.crossing.bindings import bindings
from headwater.patterns.crossing.open_values import asked as as_asked
from headwater.patterns.crossing.open_values import too_many
from headwater.patterns.run.held_values import HeldValues, held_values

if TYPE_CHECKING:
    from headwater.channel.options.subscribe import Asked
    from headwater.channel.patterns.operator import PatternOperator

Narrow = Callable[[str, Interest | None], Interest | None]  # of a channel's name, and what is wanted of it


@dataclass(frozen=True)
class Resumption:
    """`held` is what its run holds open, `nodes` are those that were asked for no more than that: None if it is not
    known, since it was another node that asked them. `floor` is what is not sent again, by position key."""

    held: HeldValues = field(default_factory=HeldValues)
    nodes: frozenset[str] | None = frozenset()
    floor: Mapping[str, int] = field(default_factory=dict)

    @property
    def narrow(self) -> frozenset[str]:
        """The nodes that are asked for open values only from the start."""
        return frozenset() if self.nodes is None or too_many(self.held.all) else self.nodes


def resumption(operator: PatternOperator, nodes: frozenset[str] | None, floor: Mapping[str, int]) -> Resumption:
    """Of a run that goes on."""
    found = bindings(operator.pattern.model)
    return Resumption() if found is None else Resumption(held_values(found, operator.runner), nodes, floor)


def narrowed(asked: list[Asked], operator: PatternOperator, by: Resumption, narrow: Narrow | None) -> list[Asked]:
    """What is asked of each channel from the start."""
    found = bindings(operator.pattern.model)
    if found is None or not by.narrow:
        return asked
    values, made = as_asked(by.held.all), []
    for each in asked:
        if each.name in found.channels:
            each = replace(each, where=found.asked(each.name, values, by.narrow, each.marking, narrow))
        made.append(each)
    return made


__all__ = ["Narrow", "Resumption", "narrowed", "resumption"]
