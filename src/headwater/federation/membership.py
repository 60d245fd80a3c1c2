"""Who is in the federation and what each node has: this one tells the others, and keeps what they tell."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING

from msgspec.structs import replace

from headwater.errors import FrameError, SecurityError
from headwater.federation import messages, wire
from headwater.federation.envelope import Opened
from headwater.federation.inquiries import Inquiries, Inquiry
from headwater.federation.messages import ChannelAd, News, State, pack, pack_params, pack_type
from headwater.federation.peer import Peer
from headwater.federation.places import announced
from headwater.federation.questions import Answer
from headwater.federation.wire_control import SourceAd

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.source import Source
    from headwater.federation.engine import Engine
    from headwater.federation.standin import StandIn

log = logging.getLogger("headwater.federation")
ANSWER = 10.0  # seconds for which an answer is waited for
PATIENCE = 1.0  # seconds between two questions for the state of one node
FAR = 1 << 32  # versions that a peer may be ahead


class Membership:
    """Of one node."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._told: tuple[dict[str, ChannelAd], dict[int, SourceAd]] = ({}, {})
        self._own: dict[int, Source] = {}  # sources of this node, by number
        self._version = 1
        self._refusals: set[str] = set()  # nodes that have refused this one
        self.inquiries = Inquiries(self._ask_state, self._heard_state, self._unknown, engine.keeping.later)

    def start(self) -> None:
        """From here on changes are told."""
        self._told = self.ads()

    def roll_call(self) -> None:
        """Say to everyone what this node has, and hear what they have. It returns when all that are known by now have
        answered; whoever answers later, or has only been said to be there, is heard as well."""
        sealed = self._engine.seal("state", pack(self.state()))
        for reply in self._engine.fabric.roll_answers(sealed, ANSWER, self._present, self._heard_late):
            self._heard_late(reply)
        self._engine.keeping.changed()

    def _present(self) -> list[str]:
        """The nodes that have proven to be there."""
        return [peer.id for peer in self._engine.everyone() if peer.present and peer.gone is None]

    def _heard_late(self, reply: bytes) -> None:
        self._heard_state(reply)
        self._engine.keeping.changed()

    def look_round(self, source: Source) -> None:
        """Once others can know of a source of this node, hear from everyone what they have: of two nodes that do so at
        least one then knows of the other's."""
        self._engine.keeping.until(lambda: source.number in self._told[1] or self._engine.closed, ANSWER)
        self.roll_call()

    def state(self) -> State:
        """All that others must know of this node."""
        with self._engine.lock:
            (channels, sources), version = self._told, self._version
        return State(
            node=self._engine.id,
            name=self._engine.node.name,
            incarnation=self._engine.incarnation,
            version=version,
            endpoints=announced(self._engine.listener.endpoints if self._engine.listener is not None else ()),
            exchange=self._engine.exchange.public,
            channels=list(channels.values()),
            sources=list(sources.values()),
            multicast=self._engine.network.multicast is not None,
            router=self._engine.network.router,
        )

    def ads(self) -> tuple[dict[str, ChannelAd], dict[int, SourceAd]]:
        channels: dict[str, ChannelAd] = {}
        sources: dict[int, SourceAd] = {}
        with self._engine.node.wiring.lock:
            for channel in self._engine.node.channels():
                if self._engine.control.owns(channel.name):
                    continue
                own = [source for source in channel.sources.values() if source.local]
                if own or channel.parent is not None:
                    channels[channel.name] = self._channel_ad(channel)
                for source in own:
                    sources[source.number] = self.describe(source)
                    self._own[source.number] = source
        return channels, sources

    def _channel_ad(self, channel: Channel) -> ChannelAd:
        interest = channel.interest
        if channel.parent is None or interest is None:
            return ChannelAd(channel.name, pack_type(channel.type))
        return ChannelAd(
            channel.name,
            pack_type(channel.type),
            channel.parent.name,
            interest.dumps(),
            pack_params(interest.params),
        )

    def describe(self, source: Source) -> SourceAd:
        """A source as others are told of it."""
        origin, path = getattr(source, "origin", ""), getattr(source, "path", ())
        zones = sorted(source.zones)
        log = "" if source.log is None else source.log.id
        return SourceAd(
            source.number, source.name, source.channel.name, zones, source.priority, origin, list(path), log
        )

    def tell_news(self) -> None:
        """What has changed of this node's channels and sources since they were last told."""
        before, now = self._told, self.ads()
        if before == now:
            return
        channels = [ad for name, ad in now[0].items() if before[0].get(name) != ad]
        sources = [ad for sid, ad in now[1].items() if before[1].get(sid) != ad]
        gone_channels = [name for name in before[0] if name not in now[0]]
        gone_sources = [sid for sid in before[1] if sid not in now[1]]
        with self._engine.lock:
            self._told = now
            self._version += 1
            news = News(
                self._engine.id, self._engine.incarnation, self._version, channels, sources, gone_channels, gone_sources
            )
        self._engine.fabric.tell(self._engine.seal("news", pack(news)))
        self._engine.installing.sources_gone([self._own.pop(sid) for sid in gone_sources if sid in self._own])

    def peer(self, node: str, incarnation: int) -> Peer:
        """The peer of that id; one that was started again is the same peer, with nothing of what it was sending."""
        with self._engine.lock:
            found = self._engine.peers.get(node)
            if found is None:
                found = self._engine.peers[node] = Peer(self._engine, node, incarnation)
            newer = incarnation > found.incarnation
        if newer:
            self._renewed(found, incarnation)
        return found

    def _renewed(self, peer: Peer, incarnation: int) -> None:
        with peer.lock:
            if incarnation <= peer.incarnation:
                return
            peer.incarnation, peer.state = incarnation, None
            peer.asked.clear()
            gone = list(peer.standins.values())
            peer.standins.clear()
            peer.over.clear()
            peer.unacknowledged.clear()
            link, peer.link = peer.link, None
            if link is not None:
                peer._let_go(link, "the other node was started again")
        for source in gone:
            self._engine.node.wiring.withdraw(source)
            self._forget_positions(source)
        self._engine.installing.restarted(peer)
        if self._engine.groups is not None:
            self._engine.groups.forget(peer)

    def _forget_positions(self, source: StandIn) -> None:
        """A source will not come back: how far sinks were with it need not be remembered."""
        state = self._engine.node.state
        if state is not None and source.position_key is not None and not source.ad.log:
            for sink in state.sinks():
                state.forget(sink, source.position_key)

    def joined(self, node: str, incarnation: int) -> None:
        """Someone says so; only what is signed by it makes it a peer, or one that was started again."""
        with self._engine.lock:
            peer = self._engine.peers.get(node)
        if peer is None or peer.state is None or incarnation > peer.incarnation:
            # As a rule it says so itself by then. If two have missed each other, one of them asks.
            proven = self.proven(node, incarnation)
            self.inquiries.want(node, incarnation, proven=proven, delay=0.1 if self._engine.id < node else 0.5)
        elif incarnation == peer.incarnation:
            peer.present, peer.gone = True, None
            self._engine.control.node(peer, "joined")
            # What it has told meanwhile did not come here.
            self.inquiries.want(node, incarnation, peer.state.version, proven=True, anew=True)
            self._touch_all()
            self._link_again(peer)
            self._engine.keeping.changed()

    def left(self, node: str, incarnation: int) -> None:
        with self._engine.lock:
            peer = self._engine.peers.get(node)
        if peer is None or incarnation != peer.incarnation:
            return
        peer.present = False
        if peer.direct:
            peer.say(wire.encode_ping(self._version))  # it may be only Zenoh that does not reach it
            heard = peer.heard
            self._engine.keeping.later(min(1.0, self._engine.network.lease), lambda: self._still_there(peer, heard))
        else:
            self._away(peer)

    def _still_there(self, peer: Peer, heard: float) -> None:
        if not peer.present and peer.direct and peer.heard <= heard:
            link = peer.link
            if link is not None:
                peer.link_down(link, "it does not answer")

    def _away(self, peer: Peer) -> None:
        """Neither Zenoh nor a stream reaches it."""
        with peer.lock:
            if peer.gone is not None or self._engine.closed:
                return
            peer.gone = monotonic()
            link = peer.link
        if link is not None:
            peer.link_down(link, "the other node is not there any more")
        self._engine.installing.away(peer)
        for source in list(peer.standins.values()):
            source.promised(None)
        self._engine.control.node(peer, "left")
        self._engine.keeping.changed()

    def link_lost(self, peer: Peer) -> None:
        """A link to a peer has ended."""
        if self._engine.closed:
            return
        if not peer.present:
            self._away(peer)
        elif self._engine.links.wanted(peer):
            self._engine.links.connect(peer)
        self._engine.keeping.changed()

    def said_bye(self, peer: Peer, reason: str) -> None:
        """A peer leaves in an orderly way."""
        peer.present = False
        link = peer.link
        if link is not None:
            peer.link_down(link, f"it said goodbye: {reason}")
        self._engine.keeping.later(0.0, lambda: self._forget(peer, orderly=True))

    def _forget(self, peer: Peer, *, orderly: bool = False) -> None:
        """It will not come back, or too late."""
        if peer.gone is None:
            return
        for source in list(peer.standins.values()):
            self._engine.node.wiring.withdraw(source)
        peer.standins.clear()
        peer.over.clear()
        peer.unacknowledged.clear()
        kept = self._engine.installing.gone(peer, orderly=orderly)
        if self._engine.groups is not None:
            self._engine.groups.forget(peer)
            self._engine.groups.hearing.forget(peer)
        if not kept:
            peer.sender.close()
            self._engine.verifier.forget(peer.id)
            with self._engine.lock:
                if self._engine.peers.get(peer.id) is peer and peer.gone is not None:
                    del self._engine.peers[peer.id]
        self._engine.keeping.changed()

    def on_roll(self, payload: bytes) -> bytes:
        refused = self._heard_state(payload)
        if refused:
            return self._engine.seal("reply", pack(messages.Accepted(error=f"refused: {refused}")))
        return self._engine.seal("state", pack(self.state()))

    def _heard_state(self, payload: bytes) -> str:
        """What was said of a node by itself is taken, or why it is not is said."""
        opened = None
        try:
            opened = self._engine.open_sealed(payload, None)
            if opened.kind == "reply":
                self._refused_by(opened)
            elif opened.kind == "state":
                self._take_state(opened, opened.body)
            else:
                raise SecurityError(f"expected the state of a node, found {opened.kind!r}", "kind", opened.sender)
        except (SecurityError, FrameError) as error:
            self._engine.blame(opened, error)
            return str(error)
        return ""

    def _refused_by(self, opened: Opened) -> None:
        """Another node does not want to know of this one."""
        answer = messages.reply(opened.body)
        if opened.sender not in self._refusals and isinstance(answer, messages.Accepted):
            self._refusals.add(opened.sender)
            log.warning("node %s: %s does not let it in: %s", self._engine.node.name, opened.sender, answer.error)

    def described(self, opened: Opened, state: bytes) -> None:
        """Who asks for this node's state says its own."""
        try:
            if state:
                self._take_state(opened, state)
        except (SecurityError, FrameError) as error:
            self._engine.offence(opened.sender, str(error))

    def _take_state(self, opened: Opened, body: bytes) -> None:
        state = messages.state(body)
        if state.node != opened.sender or state.incarnation != opened.incarnation:
            raise SecurityError(f"{opened.sender} speaks of {state.node}", "sender", opened.sender)
        peer = self.peer(state.node, state.incarnation)
        with peer.lock:
            if state.incarnation < peer.incarnation or (peer.state and state.version <= peer.state.version):
                return
            new = peer.state is None
            peer.state, peer.principal = self._allowed(state, opened), opened.principal
            peer.present, peer.gone = True, None
        self._engine.fabric.vouch(state.node, state.incarnation)
        if new:
            self._engine.control.node(peer, "joined")
        for source in peer.sources:
            self._engine.control.source(peer, source, "advertised")
        self._met(peer)

    def on_news(self, payload: bytes) -> None:
        opened = None
        try:
            opened = self._engine.open_sealed(payload, "news")
            news = messages.news(opened.body)
            if news.node != opened.sender or news.incarnation != opened.incarnation:
                raise SecurityError(f"{opened.sender} speaks of {news.node}", "sender", opened.sender)
        except (SecurityError, FrameError) as error:
            self._engine.blame(opened, error)
            return
        if news.node == self._engine.id:
            return
        peer = self.signed_by(opened)
        with peer.lock:
            state = peer.state
            if news.incarnation < peer.incarnation or (state is not None and news.version <= state.version):
                return
            if state is None or news.version != state.version + 1:
                self.inquiries.want(peer.id, peer.incarnation, news.version, proven=True)
                return
            new = self._allowed(_updated(state, news), opened)
            peer.state = new
            known = {each.sid for each in state.sources}
            here = {each.sid for each in new.sources}
            gone = [each for each in state.sources if each.sid in news.gone_sources]
            fresh = [each for each in new.sources if each.sid not in known and each.sid in here]
        for ad in new.sources:
            source = peer.standins.get(ad.sid)
            told = source is None or source.linked or source.track is not None  # among its events, where it counts
            if source is not None and not told and source.zones != frozenset(ad.zones):
                self._engine.node.wiring.rezone(source, frozenset(ad.zones))
        for ad in gone:
            self._engine.control.source(peer, ad, "withdrawn")
        for ad in fresh:
            self._engine.control.source(peer, ad, "advertised")
        self._met(peer)

    def _allowed(self, state: State, opened: Opened) -> State:
        """What of it the sender may advertise."""
        sources = []
        for ad in state.sources:
            decision = self._engine.security.allows(opened.principal, "advertise", ad.channel)
            if decision:
                sources.append(ad)
            else:
                self._engine.offence(opened.sender, f"it advertises {ad.channel}, which it may not: {decision.why}")
        return _with_sources(state, sources)

    def proven(self, node: str, incarnation: int) -> bool:
        """Whether that run of a node has signed something that came here."""
        peer = self._engine.peers.get(node)
        return peer is not None and peer.incarnation >= incarnation

    def _unknown(self, inquiry: Inquiry) -> bool:
        """Whether a node is still there, and what is wanted of it has not come."""
        peer = self._engine.peers.get(inquiry.node)
        state = None if peer is None or peer.incarnation < inquiry.incarnation else peer.state
        if self._engine.closed or not self._engine.fabric.is_alive(inquiry.node, inquiry.incarnation):
            return False
        return inquiry.anew or state is None or state.version < inquiry.version

    def _ask_state(self, node: str, timeout: float, answered: Answer) -> None:
        """Ask a node for its state; this one's goes with the question."""
        request = messages.Describe(pack(self.state()))
        sealed = self._engine.seal("ask", pack(request), to=node)
        self._engine.fabric.ask_soon(node, sealed, answered, timeout=timeout)

    def version_seen(self, peer: Peer, version: int) -> None:
        """A peer says which version of its state is the latest, should news of it have been lost."""
        state, now = peer.state, monotonic()
        if state is not None and state.version < version <= state.version + FAR and now > peer.inquired + PATIENCE:
            peer.inquired = now
            self.inquiries.want(peer.id, peer.incarnation, version, proven=True)

    def _link_again(self, peer: Peer) -> None:
        """It is back: what was kept for it, or is still wanted of it, needs a link."""
        if peer.link is None and self._engine.links.wanted(peer):
            self._engine.links.connect(peer)

    def _met(self, peer: Peer) -> None:
        """What it has may concern sinks here."""
        self._link_again(peer)
        self._engine.keeping.later(0.0, lambda: self._engine.asking.advertised(peer))
        self._engine.keeping.changed()

    def _touch_all(self) -> None:
        with self._engine.node.wiring.lock:
            self._engine.wired(self._engine.node.channels())

    def signed_by(self, opened: Opened) -> Peer:
        """The peer that has signed something; it is there."""
        peer = self.peer(opened.sender, opened.incarnation)
        peer.principal = opened.principal
        if peer.state is None:
            peer.present = True
            self.inquiries.want(opened.sender, opened.incarnation, proven=True, delay=0.1)
        return peer

    def look_around(self) -> None:
        now, alive, lease = monotonic(), self._engine.fabric.alive, self._engine.network.lease
        self._engine.strangers.look()
        for peer in self._engine.everyone():
            link = peer.link
            if peer.gone is not None:
                if now - peer.gone > self._engine.network.keep:
                    self._forget(peer)
            elif link is None and now - peer.met > lease and (peer.id, peer.incarnation) not in alive:
                peer.present = False  # it has signed something, but there is no sign of life of it
                self._away(peer)
            elif link is not None and peer.direct:
                if now - peer.heard > lease:
                    peer.link_down(link, f"nothing was heard for {lease:g} s")
                elif now - peer.heard > lease / 3:
                    peer.say(wire.encode_ping(self._version))


def _updated(state: State, news: News) -> State:
    channels = {ad.name: ad for ad in state.channels if ad.name not in news.gone_channels}
    channels.update((ad.name, ad) for ad in news.channels)
    sources = {ad.sid: ad for ad in state.sources if ad.sid not in news.gone_sources}
    sources.update((ad.sid, ad) for ad in news.sources)
    return replace(state, version=news.version, channels=list(channels.values()), sources=list(sources.values()))


def _with_sources(state: State, sources: list[SourceAd]) -> State:
    return state if len(sources) == len(state.sources) else replace(state, sources=sources)
