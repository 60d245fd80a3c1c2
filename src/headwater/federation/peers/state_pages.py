"""What another node has, put together from what it says of that: page by page, or as changes to what is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from headwater.errors import FrameError
from headwater.federation.peers.description import size_of
from headwater.federation.wire.requests import State

if TYPE_CHECKING:
    from headwater.federation.peers.peer import Peer

MOST_ADS = 1 << 18  # channels and sources of one node that are taken
MOST_AD_BYTES = 64 << 20  # and about how large they may be together


def assembled(peer: Peer, said: State) -> State | None:
    """The state of a peer with what it says now: None if that is nothing new, or there are more pages to come."""
    known = peer.state if peer.described else None
    if said.since:
        if known is None or not said.since <= known.version < said.version:
            return None
        peer.pages = None
        state = _updated(known, said)
        peer.state_bytes = _checked_size(state, peer.state_bytes + size_of(said))
        return state
    pages, size = said, size_of(said)
    if said.after is None and peer.pages is not None:
        return None  # the first page is there, and what has changed of it will be asked for
    if said.after is not None:
        if peer.pages is None or peer.pages.next != said.after:
            return None
        size += peer.pages_bytes
        pages = replace(
            peer.pages,
            channels=peer.pages.channels + said.channels,
            sources=peer.pages.sources + said.sources,
            next=said.next,
        )
    peer.pages = None
    if known is not None and pages.version <= known.version:
        return None
    size = _checked_size(pages, size)
    if pages.next is not None:
        peer.pages, peer.pages_bytes = pages, size
        return None
    peer.state_bytes = size
    return replace(pages, after=None)


def _checked_size(state: State, size: int) -> int:
    """The bytes of what a node has said that it has, unless that is more than is taken. `size`: at most so many, for
    some of it may have been said twice."""
    if size > MOST_AD_BYTES:
        size = size_of(state)
    if len(state.channels) + len(state.sources) > MOST_ADS or size > MOST_AD_BYTES:
        most = f"{MOST_ADS:,} channels and sources of a node, of {MOST_AD_BYTES:,} bytes"
        raise FrameError(f"expected at most {most}, found more")
    return size


def _updated(state: State, news: State) -> State:
    channels = {ad.name: ad for ad in state.channels}
    sources = {ad.sid: ad for ad in state.sources}
    for name in news.gone_channels:
        channels.pop(name, None)
    for sid in news.gone_sources:
        sources.pop(sid, None)
    channels.update((ad.name, ad) for ad in news.channels)
    sources.update((ad.sid, ad) for ad in news.sources)
    return replace(
        news,
        since=0,
        channels=list(channels.values()),
        sources=list(sources.values()),
        gone_channels=[],
        gone_sources=[],
    )
