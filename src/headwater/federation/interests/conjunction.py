"""Conjunctions of interests: what a gateway asks for, which is what its own filter passes of what someone on the other
side wants. (What a policy leaves of what somebody wants: `services/policy/conjunction.py`.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.errors import HeadwaterError
from headwater.federation.demand.cover import minimal
from headwater.interest import Interest
from headwater.ir.covers import union
from headwater.ir.functional import as_expression
from headwater.ir.nodes import Logic, Program, Return
from headwater.services.policy.conjunction import placed
from headwater.types import EventType

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
        any_of = union([placed(want, type, f"w{at}", params) for at, want in enumerate(filters)])
        if where is None:
            return Interest.from_program(any_of, params)
        both = as_expression(placed(where, type, "g", params)), as_expression(any_of)
        if both[0] is None or both[1] is None:
            return where
        mine = placed(where, type, "g", {})
        value = Logic("and", (both[0], both[1]))
        return Interest.from_program(
            Program(mine.input, None, mine.params + any_of.params, (), (Return(value),)), params
        )
    except HeadwaterError:
        return where
