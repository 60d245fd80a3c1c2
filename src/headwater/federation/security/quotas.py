"""What other nodes may have of this one: a rate for each that the settings name, whatever it asks for."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwater.channel.options.rate import Rate
from headwater.channel.routing.limiter import Limiter
from headwater.federation.security.rules import is_about

if TYPE_CHECKING:
    from headwater.federation.security.rules import Principal


class Quotas:
    """Of one node. Nodes that have proven to be the same have one rate together: it is no use to start several."""

    def __init__(self, rates: Mapping[str, Rate]) -> None:
        self._rates = dict(rates)
        self._known: dict[tuple[str, str], Limiter] = {}
        self._lock = threading.Lock()

    def of(self, principal: Principal | None, id: str) -> Limiter | None:
        """What limits a node, by the first entry that is about it; None if there is none. `id` is that of the node,
        which counts where it has proven no name."""
        for who, rate in self._rates.items():
            if who == "*" if principal is None else is_about(who, principal):
                named = principal is not None and principal.how != "key"
                key = who, principal.name if principal is not None and named else id
                with self._lock:
                    return self._known.setdefault(key, Limiter.of(rate))
        return None

    def report(self) -> dict[str, Any]:
        """By who has a rate: events that were beyond it."""
        with self._lock:
            return {name: limiter.shed for (_, name), limiter in self._known.items()}


__all__ = ["Quotas"]
