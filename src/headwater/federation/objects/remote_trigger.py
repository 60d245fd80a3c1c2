"""A trigger that is judged at another node, as whoever has asked for it holds it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.errors import ObjectError
from headwater.federation.wire.object_requests import ChangeTrigger, RemoveTrigger, TellTriggers, TriggerIs
from headwater.federation.wire.requests import pack_params, unpack_type

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.subscription import Subscription
    from headwater.federation.context import Context

Ask = Callable[[Any], Any]


class RemoteTrigger:
    """It lives on at its node when this is gone: `remove` ends it, for all programs of this node that use it. `name` is
    what it is called there; `turn`, the last turn there in which it was another."""

    def __init__(self, context: Context, ask: Ask, found: TriggerIs) -> None:
        self._context, self._ask, self._found = context, ask, found
        self.name, self.turn, self.warnings = found.name, found.turn, tuple(found.warnings)

    @property
    def channel(self) -> Channel[Any]:
        """Of its notifications, here as there."""
        type = unpack_type(self._found.told)
        if type is None:
            raise ObjectError(f"trigger {self.name!r}: expected the type of its notifications, found none")
        return self._context.node.channel(self._found.channel, type)

    def subscribe(self, handler: Any = None, where: Any = None, **options: Any) -> Subscription[Any]:
        """Its notifications, as of any channel. Those that came before are not among them, unless `history` or a
        durable delivery says so. A handler that waits or fails disturbs nobody: it has a thread of the pool, unless
        `dispatch` says otherwise."""
        if callable(handler) and not inspect.iscoroutinefunction(handler):
            options.setdefault("dispatch", "pool")
        return self.channel.subscribe(handler, where, **options)

    def change(self, *, params: Mapping[str, Any] | None = None, enabled: bool | None = None) -> int:
        """From the next turn there on, its parameters are others, or it is judged or not: the number of that turn."""
        packed = None if params is None else pack_params(params)
        found: TriggerIs = self._ask(ChangeTrigger(self.name, packed, enabled))
        self.turn = found.turn
        return found.turn

    def explain(self) -> str:
        """All of it in words, by its owner: what decides it, what it costs and remembers, and how it went."""
        [row] = self._ask(TellTriggers(self.name)).rows
        return str(row.text)

    def remove(self) -> None:
        """It is no more."""
        self._ask(RemoveTrigger(self.name))

    def __repr__(self) -> str:
        return f"<Trigger {self.name}, which notifies on {self._found.channel}>"


__all__ = ["RemoteTrigger"]
