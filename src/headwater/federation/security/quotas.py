"""What other nodes may have of this one: a rate for each that the settings name, whatever it asks for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.channel.options.rate import Rate
from headwater.channel.routing.limiter import Limiter
from headwater.federation.security.rules import is_about

if TYPE_CHECKING:
    from headwater.federation.security.rules import Principal

MOST = 4096  # nodes and users of which is remembered what they had: who was not heard of for longest begins anew


class Quotas:
    """Of one node. Nodes that have proven to be the same have one rate together: it is no use to start several."""

    def __init__(self, rates: Mapping[str, Rate]) -> None:
        self._rates = dict(rates)
        self._known: OrderedDict[tuple[str, str], Limiter] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, principal: Principal | None, id: str) -> Limiter | None:
        """What limits a node, by the first entry that is about it; None if there is none. `id` is that of the node,
        which counts where it has proven no name."""
        for who, rate in self._rates.items():
            if who == "*" if principal is None else is_about(who, principal):
                named = principal is not None and principal.how != "key"
                key = who, principal.name if principal is not None and named else id
                return self._limiter(key, rate)
        return None

    def _limiter(self, key: tuple[str, str], rate: Rate) -> Limiter:
        with self._lock:
            found = self._known.setdefault(key, Limiter.of(rate))
            self._known.move_to_end(key)
            while len(self._known) > MOST:
                self._known.popitem(last=False)
        return found


__all__ = ["Quotas"]
