"""Two nodes, a source at one and a sink at the other, with a hand on the link between them."""

from __future__ import annotations

from typing import Any

from headwater.dispatch import Pool
from headwater.federation.peers.peer import Peer
from tests.federation.nodes import GUARD, Nodes, eventually


def pair(make: Nodes, type: Any, handler: Any, **options: Any) -> tuple[Any, Any, Peer, Peer]:
    """A source, the node that it is of, the other node as that sees it, and that node as the other sees it."""
    a, b = make("a", **options), make("b")
    source = a.channel("c", type).source("s")
    b.channel("c", type).subscribe(handler, dispatch=Pool())
    make.ready(b)
    there, here = a._engine.everyone()[0], b._engine.everyone()[0]
    assert a.until(lambda: there.resumed, GUARD), f"{there}: {there.trouble}"
    return source, a, there, here


class Held:
    """Nothing goes to a peer meanwhile, as if its link were not there yet."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def __enter__(self) -> None:
        with self._peer.building:
            self._peer.resumed = False

    def __exit__(self, *exc: object) -> None:
        with self._peer.building:
            self._peer.resumed = True
        for lane in self._peer.lanes():
            lane.dirty = False
            lane.dispatch()


def cut(peer: Peer, other: Peer) -> None:
    """The link breaks, and there is another."""
    eventually(lambda: peer.link is not None)  # both may have dialled: then the second link replaces the first
    before = peer.links, other.links
    link = peer.link
    if link is not None:
        link.close("cut")
    eventually(lambda: peer.links > before[0] and other.links > before[1] and peer.resumed and other.resumed)
