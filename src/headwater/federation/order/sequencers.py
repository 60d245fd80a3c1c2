"""The sequencers of a node, as one of its services: those it has, and its votes on who leads where."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.services import Service
from headwater.federation.wire.requests import Accepted, Lead, Stand, Vote

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.federation.order.contract import Federated
    from headwater.federation.order.sequencer import Sequencer
    from headwater.federation.peers.request_registry import Caller


class Sequencers(Service):
    """By channel. A node without a network (`federated` gives None) has sequencers too, which need nobody's vote and
    have nothing to hand over."""

    name = "sequencers"

    def __init__(self, node: Node, federated: Callable[[], Federated | None]) -> None:
        self._node, self._federated = node, federated
        self._of: dict[str, Sequencer] = {}
        self._lock = threading.Lock()

    def sequence(self, channel: Channel) -> Sequencer:
        """The sequencer of a channel at this node, which is made if there is none."""
        from headwater.federation.order.sequencer import Sequencer

        with self._lock:
            made = self._of.get(channel.name)
            if made is None:
                made = self._of[channel.name] = Sequencer(self._node, channel, self._federated(), self._ended)
            return made

    def _ended(self, sequencer: Sequencer) -> None:
        self._of.pop(sequencer.channel.name, None)

    def get(self, channel: str) -> Sequencer | None:
        return self._of.get(channel)

    def __getitem__(self, channel: str) -> Sequencer:
        return self._of[channel]

    # ── as a service ──

    @property
    def busy(self) -> bool:
        return bool(self._of) and self._federated() is not None

    def drain(self, until: float) -> None:
        """They hand over to others, with all that they have published."""
        for sequencer in list(self._of.values()):
            sequencer.close(timeout=max(0.0, until - monotonic()))

    def report(self) -> Mapping[str, Any]:
        return {
            name: {
                "active": each.active,
                "term": each.term,
                "place": each.place,
                "followers": len(each.followers),
                "missing": each.missing,
            }
            for name, each in list(self._of.items())
        }

    def requests(self) -> Iterable[tuple[Any, Callable[..., Any]]]:
        return (Stand, self._vote), (Lead, self._vote)

    def _vote(self, caller: Caller, request: Stand | Lead) -> Vote | Accepted:
        """To a sequencer of another node that wants to lead."""
        federated = self._federated()
        assert federated is not None
        return federated.ballots.answer(caller.opened, request)
