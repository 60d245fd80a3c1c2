"""Requests about what moves, answered in threads of their own: files are written, or something is waited for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from headwater.channel.options.rate import Rate
from headwater.channel.time.token_bucket import TokenBucket
from headwater.errors import HeadwaterError, SubscriptionError
from headwater.federation.peers.request_registry import Postponed
from headwater.federation.wire.requests import Accepted

if TYPE_CHECKING:
    from headwater.federation.context import Context
    from headwater.federation.peers.request_registry import Caller
    from headwater.federation.wire.requests import Reply

log = logging.getLogger("headwater.federation")
MOST_UNDER_WAY = 256  # requests of a kind by one node
ERROR_CHARACTERS = 2000
LOGGED_RATE, LOGGED_BURST = 1, 100  # of what is refused, in a second


class Later(SubscriptionError):
    """It cannot be had yet, and is to be asked for again."""


class Answering:
    """Of one node. What is asked for `what` waits for nothing that is asked for something else. If it is `given`, what
    was refused is logged; of very much only some."""

    def __init__(self, context: Context, given: str = "") -> None:
        self._context, self._given = context, given
        self._lock = threading.Lock()
        self._under_way: dict[str, int] = {}
        self.refused = 0
        self._logged = TokenBucket(Rate(LOGGED_RATE, burst=LOGGED_BURST).packed())

    def by(
        self, what: str, answer: Callable[[Caller, Any], Reply], after: Callable[[], None] = lambda: None
    ) -> Callable[[Caller, Any], Postponed]:
        """A function of requests, for the registry. Who asks is told what `answer` raises; `after` that is done what
        nobody waits for."""

        def asked(caller: Caller, request: Any) -> Postponed:
            lane = f"{what}/{caller.peer.id}"

            def begin(tell: Callable[[Reply], None]) -> None:
                if not self._enter(lane):
                    most = f"expected at most {MOST_UNDER_WAY} requests of a node at a time, found more"
                    tell(Accepted(error=f"refused: {most}; ask again", later=True))
                elif not self._context.scheduler.work(work, tell, on=lane):
                    self._leave(lane)
                    tell(Accepted(error="refused: the node is closing"))

            def work(tell: Callable[[Reply], None]) -> None:
                try:
                    tell(self._made(answer, caller, request))
                    after()
                finally:
                    self._leave(lane)

            return Postponed(begin)

        return asked

    def _made(self, answer: Callable[[Caller, Any], Reply], caller: Caller, request: Any) -> Reply:
        try:
            return answer(caller, request)
        except Later as error:
            return Accepted(error=f"{error}"[:ERROR_CHARACTERS], later=True)
        except (HeadwaterError, OSError) as error:
            self._refuse(caller, error)
            return Accepted(error=f"refused: {error}"[:ERROR_CHARACTERS])

    def _refuse(self, caller: Caller, error: Exception) -> None:
        with self._lock:
            self.refused += 1
            told = bool(self._given) and self._logged.take(monotonic_ns(), 1)
        if told:
            log.warning("node %s: %s is not given %s: %s", self._context.name, caller.peer.name, self._given, error)

    def _enter(self, lane: str) -> bool:
        with self._lock:
            found = self._under_way.get(lane, 0)
            if found >= MOST_UNDER_WAY:
                return False
            self._under_way[lane] = found + 1
            return True

    def _leave(self, lane: str) -> None:
        with self._lock:
            self._under_way[lane] -= 1
            if not self._under_way[lane]:
                del self._under_way[lane]


__all__ = ["Answering", "Later"]
