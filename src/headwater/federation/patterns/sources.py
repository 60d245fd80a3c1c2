"""Sources of other nodes, by the keys under which a pattern keeps how far it is with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.channel.queues.position_keys import key_of, logs_of

if TYPE_CHECKING:
    from headwater.federation.peers.peer import Peer


def is_gone(position_key: str, peers: Iterable[Peer]) -> bool:
    """Whether the node that had a source is there, and says that it has it no more. Of a node that is not there nothing
    is known: it may have been killed, and come back with it."""
    for peer in peers:
        if peer.gone is not None or peer.state is None or not peer.described:
            continue
        there = {f"{peer.id}/{peer.incarnation}/{ad.sid}" for ad in peer.sources}
        there |= {key_of(peer.name, ad.log, ad.name) for ad in peer.sources if ad.log}
        if position_key in there:
            return False
        if position_key.startswith((f"{peer.id}/", logs_of(peer.name))):
            return True
    return False


__all__ = ["is_gone"]
