"""Events that go by Zenoh because no direct stream could be made: since when, how often, and why."""

from __future__ import annotations

import logging
from time import monotonic

log = logging.getLogger("headwater.federation")


class Fallback:
    """Of one peer. A fallback that nobody has wanted is warned of once, and again if there is another reason."""

    __slots__ = ("_said", "since", "times", "why")

    def __init__(self) -> None:
        self.times = 0  # how often
        self.since: float | None = None  # None: there is none now
        self.why = ""  # of the last one
        self._said = ""

    def began(self, node: str, peer: str, why: str, *, wanted: bool) -> None:
        """`wanted`: one of the two nodes is set up without direct streams."""
        self.times += 1
        self.since, self.why = monotonic(), why
        if wanted:
            log.info("node %s: events to and from %s go by Zenoh, encrypted: %s", node, peer, why)
        elif why != self._said:
            log.warning(
                "node %s: no direct stream to %s: %s; events go by Zenoh meanwhile, encrypted "
                '(Network(fallback="never") forbids that)', node, peer, why,
            )  # fmt: skip
        self._said = why

    def forbidden(self, node: str, peer: str, why: str) -> None:
        """There would have been one; it is said once for each reason."""
        if why != self._said:
            log.warning(
                "node %s: no direct stream to %s: %s; nothing goes there, for Zenoh's path is forbidden "
                '(Network(fallback="never"))', node, peer, why,
            )  # fmt: skip
        self._said = self.why = why

    def ended(self, node: str, peer: str) -> None:
        """There is a direct stream."""
        if self.since is not None:
            log.info("node %s: a direct stream to %s again, after %.1f s", node, peer, monotonic() - self.since)
        self.since, self._said = None, ""
