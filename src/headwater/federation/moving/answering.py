"""Requests about what moves, answered in threads of their own: files are written, or something is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError, SubscriptionError
from headwater.federation.peers.request_registry import Postponed
from headwater.federation.wire.requests import Accepted

if TYPE_CHECKING:
    from headwater.federation.context import Context
    from headwater.federation.peers.request_registry import Caller
    from headwater.federation.wire.requests import Reply

MOST_UNDER_WAY = 256  # requests of a kind by one node
ERROR_CHARACTERS = 2000


class Later(SubscriptionError):
    """It cannot be had yet, and is to be asked for again."""


class Answering:
    """Of one node. What is asked for `what` waits for nothing that is asked for something else."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._under_way: dict[str, int] = {}

    def by(
        self,
        what: str,
        answer: Callable[[Caller, Any], Reply],
        refused: Callable[[Caller, Exception], None] = lambda caller, error: None,
    ) -> Callable[[Caller, Any], Postponed]:
        """A function of requests, for the registry. `refused` is told of what `answer` raises, and so is who asks."""

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
                    tell(self._made(answer, refused, caller, request))
                finally:
                    self._leave(lane)

            return Postponed(begin)

        return asked

    def _made(
        self,
        answer: Callable[[Caller, Any], Reply],
        refused: Callable[[Caller, Exception], None],
        caller: Caller,
        request: Any,
    ) -> Reply:
        try:
            return answer(caller, request)
        except Later as error:
            return Accepted(error=f"{error}"[:ERROR_CHARACTERS], later=True)
        except (HeadwaterError, OSError) as error:
            refused(caller, error)
            return Accepted(error=f"refused: {error}"[:ERROR_CHARACTERS])

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
