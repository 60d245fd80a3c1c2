"""Which objects another node may have watched by its triggers, by the policy as it is now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.federation.security.policy import Allow

if TYPE_CHECKING:
    from headwater.channel.objects.service import Objects
    from headwater.federation.context import Context
    from headwater.federation.security.rules import Principal


def may_watch(context: Context, principal: Principal, channel: str) -> bool:
    """Whether it may subscribe to a channel, and install code there. A right that is restricted to some events is
    none: what it means is not known of a trigger."""
    decide = context.decisions.decide
    return all(isinstance(decide(principal, each, channel), Allow) for each in ("subscribe", "install"))


def open_types(context: Context, objects: Objects, principal: Principal) -> set[str]:
    """The types of objects that it may watch: with all others that are declared alike, for objects of these cannot be
    told apart."""
    types = objects.engine.types
    closed = [each.type for each in types.values() if not may_watch(context, principal, each.channel)]
    return {name for name, each in types.items() if each.type not in closed}


__all__ = ["may_watch", "open_types"]
