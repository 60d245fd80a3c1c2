"""Which nodes can be asked for open values only: those that keep a past of the channel, and let this node read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headwater.errors import HeadwaterError
from headwater.federation.wire.past_requests import Past
from headwater.federation.wire.requests import pack_params

if TYPE_CHECKING:
    from headwater.federation.patterns.asking import Asking
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers


class Life(NamedTuple):
    """One run of another node, with a channel of it."""

    node: str
    incarnation: int
    channel: str


class NarrowNodes:
    """Of one pattern, for which is asked so; `own` is the name of this node."""

    def __init__(self, peers: Peers, dialogue: Dialogue, own: str, asking: Asking) -> None:
        self._peers, self._dialogue, self._own, self._asking = peers, dialogue, own, asking
        self.forget()

    def forget(self) -> None:
        """The pattern is another one."""
        self._known: dict[Life, str] = {}  # why a node is not narrow; "" if it may be
        self._lives: frozenset[Life] = frozenset()  # as they were looked at last

    def there(self) -> dict[Life, Peer]:
        """The runs of nodes that have sources of the channels."""
        return {
            Life(peer.id, peer.incarnation, channel): peer
            for peer in self._peers.everyone()
            if peer.gone is None and peer.state is not None
            for channel in self._asking.bindings.channels
            if peer.has(channel)
        }

    def have_changed(self) -> bool:
        """Whether others are there than when this was asked last."""
        lives = frozenset(self.there())
        changed, self._lives = lives != self._lives, lives
        return changed

    def names(self, before: frozenset[str]) -> frozenset[str]:
        """Those that can be asked so: all that have such a name keep a past, and let it be read. What was known of
        nodes that were asked so `before`, and are away, holds until they are back: else they would send everything."""
        there = self.there()
        for life, peer in there.items():
            if life not in self._known:
                self._known[life] = self._why_not(life, peer)
        self._known = {life: why for life, why in self._known.items() if life in there}
        here = {peer.name for peer in there.values()}
        wide = {there[life].name for life, why in self._known.items() if why}
        return frozenset((here - wide) | (before - here)) - {self._own}

    def _why_not(self, life: Life, peer: Peer) -> str:
        """Why a node cannot be asked for open values only; nothing if it can."""
        if any(ad.origin for ad in peer.sources if ad.channel == life.channel):
            return "it passes on events of another federation"
        try:
            interest = self._asking.past(life.channel, {})
            if interest is None:
                return "nothing is bound there"
            question = Past(life.channel, program=interest.dumps(), params=pack_params(interest.params))
            answer = self._dialogue.ask(peer, question)
        except HeadwaterError as error:
            return str(error)
        return "" if answer.remembers else "it keeps no past: Config(history=…), or a log"

    def wide(self) -> dict[str, str]:
        """Those that cannot, by name, and why."""
        names = {peer.id: peer.name for peer in self._peers.everyone()}
        return {names.get(life.node, life.node): why for life, why in list(self._known.items()) if why}


__all__ = ["Life", "NarrowNodes"]
