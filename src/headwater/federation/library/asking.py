"""Asking other nodes: several at once, for so long, and what each has said or why it has not."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.errors import FederationError, HeadwaterError

if TYPE_CHECKING:
    from headwater.federation.context import Context
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers
    from headwater.federation.wire.requests import Request

FETCH_SECONDS = 3.0  # for which other nodes are waited for
MOST_ASKED = 64  # nodes, of one question


class Network(NamedTuple):
    """What a library needs of a federation."""

    context: Context
    peers: Peers
    dialogue: Dialogue

    def present(self) -> list[Peer]:
        """The other nodes that are there, by name."""
        found = [peer for peer in self.peers.everyone() if peer.gone is None and peer.exchange is not None]
        return sorted(found, key=lambda peer: peer.id)

    def named(self, name: str) -> Peer:
        """The node of that name; FederationError if it is not there."""
        found = [peer for peer in self.present() if name in (peer.name, peer.id)]
        if len(found) != 1:
            others = ", ".join(dict.fromkeys(peer.name for peer in self.present())) or "none"
            what = "is not there" if not found else f"is the name of {len(found)} nodes; say which by its id"
            raise FederationError(f"node {name!r} {what}; there are {others}")
        return found[0]

    def ask(self, peer: Peer, request: Request, timeout: float = FETCH_SECONDS) -> Any:
        """One node; FederationError says why there is no answer."""
        return self.dialogue.ask(peer, request, timeout)

    def ask_all(
        self, peers: Iterable[Peer], request: Request, timeout: float = FETCH_SECONDS
    ) -> dict[Peer, Any | HeadwaterError]:
        """Several nodes at once, at most `MOST_ASKED` of them: the answer of each, or why there is none."""
        asked = list(peers)[:MOST_ASKED]
        answers: dict[Peer, Any | HeadwaterError] = {}

        def one(peer: Peer) -> None:
            try:
                answers[peer] = self.ask(peer, request, timeout)
            except HeadwaterError as error:
                answers[peer] = error
            self.context.scheduler.changed()

        if len(asked) == 1:
            one(asked[0])
            return answers
        for peer in asked:
            self.context.scheduler.work(partial(one, peer), on=peer.id)
        self.context.scheduler.until(lambda: len(answers) == len(asked) or self.context.closed, timeout)
        late = FederationError(f"it has not answered within {timeout:g} s")
        return {peer: answers.get(peer, late) for peer in asked}


__all__ = ["FETCH_SECONDS", "Network"]
