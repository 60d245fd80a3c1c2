"""What the sources of other nodes are asked for a pattern: from a point on, and before that, from their past."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from headwater.channel.queues.position_keys import LOGGED
from headwater.errors import ClosedError, Unreachable
from headwater.federation.patterns.missed import Missed, read_missed
from headwater.federation.patterns.sources import Points, SourcePoints, position_key
from headwater.patterns.crossing.open_values import Values, asked, earliest

if TYPE_CHECKING:
    from headwater.channel.options.subscribe import Asked
    from headwater.channel.patterns.subscription import Matching
    from headwater.federation.context import Context
    from headwater.federation.interests.requester import Requester
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers
    from headwater.federation.wire.past_requests import Past
    from headwater.interest import Interest
    from headwater.patterns.crossing.bindings import Bindings

log = logging.getLogger("headwater.federation")
SETTLE_SECONDS = 10.0  # after which it is looked again whether all nodes have taken up a change
PAUSE_SECONDS = 0.25  # before a node that has not answered is asked again


class Federation(Protocol):
    """What is needed of it."""

    context: Context
    peers: Peers
    requester: Requester
    dialogue: Dialogue


@dataclass(frozen=True, eq=False)
class Debt:
    """Values of which a node may have published something that is still to be read back, when it is there. `resent`:
    what comes after the position that was kept is sent again in any case. Until it is read, or was waited for long
    enough, the watermark is held by `key`."""

    node: str
    values: Values
    resent: bool
    until: float  # by the node's clock
    key: Any


class OtherPattern(Exception):
    """The pattern was changed meanwhile."""


class Asking:
    """For one pattern. `floor`: by position key, after which event sources that are logged send again what the pattern
    asks for now, since it goes on from there."""

    bindings: Bindings  # set by who uses it

    def __init__(self, subscription: Matching[Any], federation: Federation) -> None:
        self._subscription, self._context, self._peers = subscription, federation.context, federation.peers
        self._requester, self._dialogue = federation.requester, federation.dialogue
        self.points = SourcePoints(self._peers)
        self.floor: Mapping[str, int] = {}

    # ── from now on ──

    def _asked(self, channel: str) -> Asked:
        return next(each for each in self._subscription._asked if each.name == channel)

    def ask(self, open: Mapping[str, Iterable[Any]], names: frozenset[str], done: Callable[[], None]) -> Points:
        """Have all sources asked for these values, and wait until they are: the last event of each source before that,
        by channel and by the source's number at its node. `done` is called when nothing else is asked for by now."""
        subscription, node = self._subscription, self._context.node
        channels: list[Any] = []
        points: Points = {}
        with subscription._asking:
            if subscription.pattern.model is not self.bindings.pattern:
                raise OtherPattern
            for part, each in enumerate(list(subscription._asked)):
                if each.name in self.bindings.channels:
                    interest = self.bindings.asked(each.name, open, names, each.marking, subscription.narrow)
                    ids = node._change(subscription, part, where=interest, params=None, zones=...)
                    points.update(self.points.at_change(each.name, ids))
                    if not self._requester.taken_up(subscription):
                        channels.append(each.target)
            done()
        return points if not channels else {**points, **self.settle(channels)}

    def settle(self, channels: list[Any] | None = None) -> Points:
        """Wait until all nodes send what these channels (else all of the pattern's) are asked for, and everything from
        before is here: how far their sources have come. What came since may be read back as well: it is told apart by
        its number."""
        wanted: list[Any] = [each.target for each in self._subscription._asked] if channels is None else channels
        points: Points = {}
        self._wait_for(wanted)
        for channel in wanted:
            points.update(self.points.by_now(channel.name))
        self._wait_for(wanted)
        return points

    def positions(self, points: Points) -> dict[str, int]:
        """How far the pattern is with sources, by position key, when it was asked up to these points. One that closes
        still hears how far they are, but takes nothing any more of what they send: then nothing is known."""
        if self._context.node.closed:
            raise ClosedError("it has ended")
        return self.points.positions(points)

    def _wait_for(self, channels: list[Any]) -> None:
        settled = partial(self._requester.settled, channels, barriers=True)
        while not self._context.scheduler.until(settled, SETTLE_SECONDS):
            if self._subscription.cancelled or self._context.closed:
                raise ClosedError("it has ended")
            log.warning("node %s: %s waits for nodes that do not answer", self._context.name, self._subscription.name)

    # ── from the past ──

    def past(
        self, channel: str, values: Mapping[str, Iterable[Any]], known: Mapping[str, Iterable[Any]] | None = None
    ) -> Interest | None:
        """What is read back of a channel, where others were open before; None: nothing."""
        wanted = self.bindings.past(channel, values, self._asked(channel).marking, known)
        narrow = self._subscription.narrow
        return wanted if wanted is None or narrow is None else narrow(channel, wanted)

    def read_again(
        self,
        found: Missed,
        node: str,
        values: Values,
        points: Points,
        known: Mapping[str, Iterable[Any]],
        *,
        resent: bool = False,
    ) -> bool:
        """What the nodes of that name have published of the values up to these points; or up to where they send again
        what is asked for now (`resent`). `known` are those that are open beside them. Whether they were there, and
        stayed: else something may be missing."""
        since = earliest([values])
        peers = [each for each in self._peers.everyone() if each.name == node and each.gone is None]
        for peer in peers:
            upto = self._before_floor(peer, points) if resent else points
            for channel in self.bindings.channels if since is not None else ():
                interest = self.past(channel, asked(values), known)
                if interest is not None:
                    at = self._asked(channel)
                    about = at.target, interest, (since or 0) * 1000, upto, self._question, at.marking
                    try:
                        read_missed(found, peer, *about)
                    except Unreachable:
                        return False
        return bool(peers)

    def _before_floor(self, peer: Peer, points: Points) -> Points:
        upto = dict(points)
        for ad in peer.sources:
            key, at = position_key(peer, ad), (peer.id, ad.channel, ad.sid)
            if key.startswith(LOGGED) and key in self.floor and at in upto:
                upto[at] = min(upto[at], self.floor[key])
        return upto

    def _question(self, peer: Peer, request: Past) -> Any:
        """Put to a node, again and again while it does not answer but may be there: nothing is released meanwhile."""
        while True:
            try:
                return self._dialogue.ask(peer, request)
            except Unreachable:
                if self._subscription.cancelled or self._context.closed:
                    raise ClosedError("it has ended") from None
                if peer.gone is not None:
                    raise
                self._context.scheduler.until(lambda: peer.gone is not None, PAUSE_SECONDS)


__all__ = ["Asking", "Debt", "OtherPattern"]
