"""Channels that other nodes have: declared here too where sinks want them, by name or by pattern."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from headwater.channel.names import Pattern
from headwater.errors import FederationError, HeadwaterError
from headwater.federation.wire.requests import unpack_interest, unpack_type

if TYPE_CHECKING:
    from headwater.channel.channel import Channel as OpenChannel
    from headwater.federation.context import Context
    from headwater.federation.interests.requester import Requester
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.permissions import Permissions
    from headwater.federation.peers.table import Peers
    from headwater.types import EventType


class ChannelDiscovery:
    """Of one node: what peers advertise, looked at for what its sinks want. What is found there is asked for by the
    requester."""

    def __init__(self, context: Context, peers: Peers, permissions: Permissions, requester: Requester) -> None:
        self._context, self._node, self._peers = context, context.node, peers
        self._permissions, self._requester = permissions, requester
        self._patterns = 0  # how often there was a new pattern of names
        self._looking = False  # what peers have is about to be looked at again

    def advertised(self, peer: Peer) -> None:
        """A peer has said what it has: channels that patterns fit are declared here too, and sinks are served."""
        state, patterns = peer.state, self._patterns
        if state is None:
            return
        with self._context.wiring.lock:
            names = self._names()
        for ad in state.channels:
            if ad.name in names or not peer.offers(ad.name) or not self._is_believed(peer, ad.name):
                continue
            with self._context.wiring.lock:
                if self._node.closed or not self._wanted(ad.name):
                    continue
            try:
                self.declare(peer, ad.name)
            except HeadwaterError as error:
                self._context.offences.note(peer.id, f"channel {ad.name}: {error}")
            except Exception as error:  # whatever it is, the other channels are served
                pause = self._context.failures.failed(f"{ad.name}@{peer.name}", error)
                self._context.scheduler.later(pause, partial(self.advertised, peer))
        with self._context.wiring.lock:
            concerned = [channel for channel in self._node.channels() if peer.has(channel.name)]
        for channel in concerned:
            self._requester.sync(channel, [peer])
        with peer.lock:
            if peer.incarnation == state.incarnation and patterns == self._patterns:
                peer.considered = max(peer.considered, state.version)
        self._permissions.consider(peer, patterns)
        self._context.scheduler.changed()

    def look_again(self) -> None:
        """There is a new pattern of names: channels that peers have said they have may fit it."""
        self._patterns += 1
        for peer in self._peers.everyone():
            with peer.lock:
                peer.considered = 0
        if not self._looking:
            self._looking = True
            self._context.scheduler.later(0.0, self._look)

    def _look(self) -> None:
        self._looking = False
        for peer in self._peers.everyone():
            if peer.gone is None:
                self.advertised(peer)

    def declare(self, peer: Peer, name: str) -> OpenChannel:
        """A channel as a peer has it: with its type, and derived as it is there."""
        ad = peer.channel(name)
        if ad is None:
            raise FederationError(f"channel {name!r}: node {peer.name} does not have it")
        if ad.parent is not None and peer.channel(ad.parent) is not None:
            names = self._names()
            parent = self._node.channel(ad.parent) if ad.parent in names else self.declare(peer, ad.parent)
            interest = unpack_interest(ad.program, ad.params)
            if interest is not None:
                return parent.derive(name, interest)
        type = unpack_type(ad.type)
        with self._context.wiring.lock:
            found = next((each for each in self._node.channels() if each.name == name), None)
            adopted = found is None or found.adopted
            made = self._node.channel(name, bytes if type is None else type)
            made.adopted = adopted
        return made

    def adopt(self, node: str, name: str, type: EventType | None) -> bool:
        """Have a channel known here that a pattern of some subscription fits, as a node tells of it whose word counts
        there; whether it is."""
        peer = self._peers.get(node)
        if peer is None or not self._is_believed(peer, name):
            return False
        with self._context.wiring.lock:
            if self._node.closed or not self._wanted(name):
                return False
            if name not in self._names():
                self._node.channel(name, bytes if type is None else type).adopted = True
        return True

    def considered(self) -> bool:
        """Whether all that peers have said to have was looked at for what patterns here fit."""
        return all(
            peer.gone is not None or peer.state is None or peer.considered >= peer.state.version
            for peer in self._peers.everyone()
        )

    def known(self, name: str) -> Peer | None:
        """A peer that has a channel of that name: if there is one, one that has sources of it."""
        having = [peer for peer in self._peers.everyone() if peer.channel(name) is not None]
        having = [peer for peer in having if self._is_believed(peer, name)]
        return next((peer for peer in having if peer.offers(name)), having[0] if having else None)

    def types(self) -> dict[str, EventType]:
        """The channels that peers have said they have, with their types; what cannot be read is left out."""
        found: dict[str, EventType] = {}
        names = {ad.name for peer in self._peers.everyone() if peer.state is not None for ad in peer.state.channels}
        for name in names:
            peer = self.known(name)
            ad = None if peer is None else peer.channel(name)
            with suppress(HeadwaterError):
                type = None if ad is None else unpack_type(ad.type)
                if type is not None:
                    found[name] = type
        return found

    def is_offered(self, name: str) -> bool:
        """Whether a peer that is there has sources of a channel, or derives it."""
        everyone = self._peers.everyone()
        return any(peer.gone is None and peer.offers(name) and self._is_believed(peer, name) for peer in everyone)

    def heard(self, peer: Peer, channel: str, source: int) -> bool:
        """Whether a source of a peer is known here, and what is wanted of it is in force or was refused."""
        state = peer.state
        if state is None or not any(ad.sid == source and ad.channel == channel for ad in state.sources):
            return False
        with self._context.wiring.lock:
            here = [each for each in self._node.channels() if each.name == channel]
            if not here and self._wanted(channel):
                return False  # it is about to be declared here too
        return self._requester.settled(here, barriers=True)

    def _is_believed(self, peer: Peer, name: str) -> bool:
        """Whether it counts what a peer says of a channel: that is so of those who may do something on it."""
        return peer.principal is not None and self._context.security.seen_by(peer.principal)(name)

    def _names(self) -> set[str]:
        return {channel.name for channel in self._node.channels()}

    def _wanted(self, name: str) -> bool:
        """Whether a pattern of some subscription fits the name."""
        return any(
            isinstance(asked.target, Pattern) and asked.target.matches(name)
            for subscription in self._node.subscriptions.values()
            for asked in subscription._asked
        )
