"""A question of another node, taken apart: what it adds to, or changes in, what that node wanted before."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from headwater.federation.interests.admission import Grant, Refused
from headwater.federation.wire.requests import Install, Wish, unpack_wishes

if TYPE_CHECKING:
    from headwater.federation.network import Budget
    from headwater.federation.peers.peer import Peer
    from headwater.federation.send.crossing import Crossing

MOST_WISHES = 100_000  # wishes of one node for one channel
MOST_STAGED = 4  # channels of a node about which questions may be incomplete at one time


@dataclass(eq=False)
class Question:
    """A whole question, with what is known of its wishes: by tag what was read, or why it is refused."""

    request: Install
    wishes: list[Wish]
    grants: dict[int, Grant | str] = field(default_factory=dict)

    def names(self, crossing: Crossing) -> set[str]:
        """The durable sinks that are there, afterwards."""
        before = crossing.durable if self.request.base else set()
        return (before | set(self.request.sinks)) - set(self.request.gone_sinks)

    def special(self, crossing: Crossing) -> set[int]:
        """The wishes that are more than a filter from now on, afterwards."""
        before = crossing.special.difference(self.request.gone) if self.request.base else set()
        return before | {wish.tag for wish in self.wishes if wish.special}

    def gone(self, crossing: Crossing, *, anew: bool) -> list[int]:
        """The wishes that are to go: those that are not named, or are named as gone; all, if it begins anew."""
        if self.request.base:
            return [tag for tag in dict.fromkeys(self.request.gone) if tag in crossing.wishes]
        wanted = {wish.tag for wish in self.wishes}
        return [tag for tag in crossing.wishes if anew or tag not in wanted]


class Pages:
    """Questions that come in several messages, until they are whole. Any thread may come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._staged: dict[str, dict[str, tuple[Install, int, list[Wish]]]] = {}  # by peer and channel; with its bytes

    def whole(self, peer: Peer, request: Install, budget: Budget) -> Install | None:
        """The whole question, or this one, of which more is to come; None if the beginning of it is not here."""
        if not request.page and not request.more:
            self._forget(peer, request.channel)
            return request
        wishes = unpack_wishes(request)
        with self._lock:
            staged = self._staged.setdefault(peer.id, {})
            before, size, known = staged.pop(request.channel, (None, 0, []))
            if request.page == 0:
                before, size, known = replace(request, page=-1, sinks=[]), 0, []
            if before is None or before.version != request.version or request.page != before.page + 1:
                return None
            size += sum(len(wish.program or b"") + len(wish.params or b"") + len(wish.named) for wish in wishes)
            names = [*before.sinks, *request.sinks]
            if size > budget.node_bytes or len(known) + len(wishes) > MOST_WISHES or len(names) > MOST_WISHES:
                raise Refused(
                    f"too large: the interests of this node in {request.channel} take more than "
                    f"{budget.node_bytes:,} bytes (Budget.node_bytes), or are more than {MOST_WISHES:,}"
                )
            whole = replace(request, sinks=names, wishes=[], packed=b"")
            if request.more:
                while len(staged) >= MOST_STAGED:
                    del staged[next(iter(staged))]
                staged[request.channel] = whole, size, [*known, *wishes]
                return whole
            if not staged:
                del self._staged[peer.id]
            return replace(whole, wishes=[*known, *wishes])

    def _forget(self, peer: Peer, channel: str) -> None:
        with self._lock:
            if peer.id in self._staged:
                self._staged[peer.id].pop(channel, None)
                if not self._staged[peer.id]:
                    del self._staged[peer.id]

    def gone(self, peer: Peer) -> None:
        """A peer is not there any more, or was started again."""
        with self._lock:
            self._staged.pop(peer.id, None)


__all__ = ["MOST_WISHES", "Pages", "Question"]
