"""The network of one node: who else is there, the links to them, and the thread that keeps it all going.

    Engine     this file: membership, links, time
    Installing what other nodes ask of this one's sources           (installing.py)
    Asking     what this node asks of other nodes' sources           (asking.py)

Zenoh's threads, the readers of streams, publishers and users all come in here. `Wiring.lock` is taken before `lock`,
never the other way round; nobody waits for the network while holding either.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from headwater.errors import (
    ConfigError,
    FederationError,
    FrameError,
    HeadwaterError,
    LinkDown,
    SecurityError,
    Unreachable,
)
from headwater.federation import messages, wire
from headwater.federation.asking import Asking
from headwater.federation.control import ControlEvents
from headwater.federation.demand import Demands
from headwater.federation.endpoints import is_loopback
from headwater.federation.envelope import Opened, Sealer, Verifier
from headwater.federation.fabric import Fabric
from headwater.federation.groupcast import Groups
from headwater.federation.handshake import Handshake, Strangers
from headwater.federation.installing import Installing
from headwater.federation.lane import Lane
from headwater.federation.listener import Listener
from headwater.federation.messages import ChannelAd, News, State, pack, pack_params, pack_type
from headwater.federation.network import Network
from headwater.federation.offences import UNKNOWN, Offences, who_sent
from headwater.federation.peer import Peer
from headwater.federation.places import announced, stream_endpoints
from headwater.federation.routed import RoutedLink, read_head
from headwater.federation.seen import Seen
from headwater.federation.sender import Pulse
from headwater.federation.session import Exchange
from headwater.federation.standin import StandIn
from headwater.federation.stream import Stream, dial
from headwater.federation.tls import tls_contexts, zenoh_settings
from headwater.federation.wire_control import SourceAd

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.source import Source
    from headwater.federation.crossing import Crossing
    from headwater.federation.multicast import Multicast
    from headwater.federation.node import Node

log = logging.getLogger("headwater.federation")
TICK = 0.02  # seconds between acknowledgements
BEAT = 0.05  # seconds between promises of idle sources
RETRY = 0.05  # seconds after which a node is called again at first, and at most
SELDOM = 2.0
ANSWER = 10.0  # seconds for which an answer is waited for
GATHER = 0.002  # seconds for which a change waits for others like it; and, if there are ever more, at most
GATHERED = 0.02
CALL = 2.0  # seconds for a direct stream to be made
BEHIND = 2.0  # seconds that a node is kept waiting for what lies behind gateways


class Engine:
    """Made by a node that has a network; `open` joins the federation, `close` leaves it."""

    def __init__(self, node: Node, network: Network) -> None:
        self.node, self.network, self.security = node, network, network.security
        streams = stream_endpoints(network, secure=self.security.authority is not None)
        endpoints = [*network.listen, *network.connect, *streams]
        self.loopback = self.security.check_endpoints(endpoints, scout=network.scout, place=f"node {node.name}")
        self.identity = self._identity()
        self.id, self.incarnation = self.identity.id, time.time_ns()
        self.exchange = Exchange()
        self._sealer = Sealer(self.identity, network.federation, self.incarnation, self.security)
        self._verifier = Verifier(self.security, network.federation, loopback=self.loopback, me=self.id)
        self._contexts = tls_contexts(self.security)
        self.peers: dict[str, Peer] = {}
        self.pulse = Pulse()
        self.lock = threading.RLock()
        self._news = threading.Condition()
        self._happened = 0
        self.closing = self.closed = False
        self.ticking = False
        self.offences = Offences(node.name)
        self.strangers = Strangers()
        self._refusals: set[str] = set()  # nodes that have refused this one
        self.watchers: list[Callable[[], None]] = []  # told whenever something has changed: quick, and without waiting
        # Whether all that lies behind a channel's sources here is ready, for what goes on to these federations.
        self.gates: list[Callable[[str, tuple[tuple[str, ...], ...]], bool]] = []
        self._origins: WeakValueDictionary[str, Seen] = WeakValueDictionary()
        self.demands = Demands(node, network.placement)
        self.installing, self.asking = Installing(self), Asking(self)
        self.control = ControlEvents(self)
        self._touched: set[Channel] = set()
        self._more = threading.Event()  # and again something else
        self._told: tuple[dict[str, ChannelAd], dict[int, SourceAd]] = ({}, {})
        self._own: dict[int, Source] = {}  # sources of this node, by number
        self._version = 1
        self._wake = threading.Event()
        self._tasks: list[tuple[float, Callable[[], None]]] = []
        self._workers = ThreadPoolExecutor(8, thread_name_prefix=f"headwater-{node.name}-federation")
        self._keeper = threading.Thread(target=self._keep, name=f"headwater-{node.name}-keeper", daemon=True)
        self.fabric = self._fabric()
        self.listener: Listener | None = None
        self.groups = None if network.multicast is None else Groups(self)

    def _identity(self) -> Any:
        state, name = self.node.state, self.node.name
        stored = None if state is None else state.secret(f"identity/{name}")
        identity = self.security.identity(name, stored)
        if state is not None and stored is None and not identity.chain:
            state.keep(f"identity/{name}", identity.to_bytes())
        return identity

    def _fabric(self) -> Fabric:
        network = self.network
        fabric = Fabric(
            network.federation,
            self.id,
            self.incarnation,
            listen=network.listen,
            connect=network.connect,
            scout=network.scout,
            mode="router" if network.router else "client" if network.client else "peer",
            lease=network.lease,
            settings=zenoh_settings(self.security),
        )
        fabric.on_join, fabric.on_leave = self._joined, self._left
        fabric.on_roll, fabric.on_news = self._on_roll, self._on_news
        fabric.on_ask, fabric.on_post = self._on_ask, self._on_post
        return fabric

    # ── beginning and end ──

    def open(self) -> None:
        """Join the federation."""
        wanted = stream_endpoints(self.network, secure=self._contexts is not None)
        try:
            if wanted:
                server = None if self._contexts is None else self._contexts[0]
                self.listener = Listener(wanted, self._accept, tls=server)
            if self.groups is not None:
                self.groups.open()
            self.fabric.open()
            self._check_endpoints()
        except BaseException:
            if self.listener is not None:
                self.listener.close()
            if self.groups is not None:
                self.groups.close()
            self.fabric.close()
            self._workers.shutdown(wait=False)
            raise
        self.node.wiring.changed, self.node.wiring.moved = self._wired, self.installing.moved
        self._told = self._ads()
        self._keeper.start()
        self._workers.submit(self._guarded, self._roll_call)

    def _check_endpoints(self) -> None:
        """Where it really listens, which Zenoh may have chosen, must be as harmless as what was asked for."""
        streams = () if self.listener is None else self.listener.endpoints
        self.security.check_endpoints([*self.fabric.endpoints, *streams], place=f"node {self.node.name}")

    def _roll_call(self) -> None:
        for reply in self.fabric.roll_call(self.seal("state", pack(self.state())), ANSWER):
            self._heard_state(reply)
        self.changed()

    def look_round(self, source: Source) -> None:
        """Once others can know of a source of this node, hear from everyone what they have: of two nodes that do so at
        least one then knows of the other's."""
        self.until(lambda: source.number in self._told[1] or self.closed, ANSWER)
        self._roll_call()

    def flush(self, timeout: float) -> bool:
        """Until everything that was published reliably has been acknowledged by those who are there; or too late."""
        end = monotonic() + timeout
        for peer in self.everyone():
            for lane in list(peer.lanes()):
                while lane.waiting and lane.crossing.reliable and peer.link is not None and monotonic() < end:
                    lane.wait(partial(_settled, lane), min(0.2, end - monotonic()))
        shared = self.groups is None or self.groups.flush(end)
        return shared and not any(
            lane.waiting for peer in self.everyone() for lane in peer.lanes() if lane.crossing.reliable
        )

    def close(self) -> None:
        """Leave it: others are told, and nothing is left running."""
        with self.lock:
            if self.closed:
                return
            self.closed = self.closing = True
        for peer in self.everyone():
            with suppress(HeadwaterError):
                peer.acknowledge()
            peer.close("its node was closed")
        if self.groups is not None:
            self.groups.close()
        self._wake.set()
        if self.listener is not None:
            self.listener.close()
        self.fabric.close()
        if self._keeper.is_alive() and self._keeper is not threading.current_thread():
            self._keeper.join()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self.changed()

    # ── what others are told ──

    def state(self) -> State:
        """All that others must know of this node."""
        with self.lock:
            (channels, sources), version = self._told, self._version
        return State(
            node=self.id,
            name=self.node.name,
            incarnation=self.incarnation,
            version=version,
            endpoints=announced(self.listener.endpoints if self.listener is not None else ()),
            exchange=self.exchange.public,
            channels=list(channels.values()),
            sources=list(sources.values()),
            multicast=self.network.multicast is not None,
            router=self.network.router,
        )

    def _ads(self) -> tuple[dict[str, ChannelAd], dict[int, SourceAd]]:
        channels: dict[str, ChannelAd] = {}
        sources: dict[int, SourceAd] = {}
        with self.node.wiring.lock:
            for channel in self.node.channels():
                if self.control.owns(channel.name):
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

    def seen(self, origin: str) -> Seen:
        """What has come here of a source of another federation, by whatever gateways."""
        with self.lock:
            found = self._origins.get(origin)
            if found is None:
                found = self._origins[origin] = Seen()
            return found

    def mark(self, peer: Peer, crossing: Crossing) -> None:
        """Tell a peer that its wishes are in force: as soon as gateways here have what they need for them, but not
        later than a few seconds from now."""
        if not self.gates:
            peer.mark(crossing)
            return
        version, end, name = crossing.version, monotonic() + BEHIND, crossing.channel.name

        def look() -> None:
            if crossing.version != version or crossing.peer.crossings.get(name) is not crossing:
                return  # it wants something else by now
            if self.closing or monotonic() > end or all(gate(name, crossing.routes) for gate in list(self.gates)):
                peer.mark(crossing)
            else:
                self.later(TICK / 4, look)

        self.later(0.0, look)

    def describe(self, source: Source) -> SourceAd:
        """A source as others are told of it."""
        origin, path = getattr(source, "origin", ""), getattr(source, "path", ())
        zones = sorted(source.zones)
        return SourceAd(source.number, source.name, source.channel.name, zones, source.priority, origin, list(path))

    def _wired(self, channels: Iterable[Channel]) -> None:
        """Members or sources of these channels have changed; the wiring's lock is held."""
        self._touched.update(channels)
        self._more.set()
        self._wake.set()
        self._watched()

    def _tell_news(self) -> None:
        """What has changed of this node's channels and sources since they were last told."""
        before, now = self._told, self._ads()
        if before == now:
            return
        channels = [ad for name, ad in now[0].items() if before[0].get(name) != ad]
        sources = [ad for sid, ad in now[1].items() if before[1].get(sid) != ad]
        gone_channels = [name for name in before[0] if name not in now[0]]
        gone_sources = [sid for sid in before[1] if sid not in now[1]]
        with self.lock:
            self._told = now
            self._version += 1
            news = News(self.id, self.incarnation, self._version, channels, sources, gone_channels, gone_sources)
        self.fabric.tell(self.seal("news", pack(news)))
        self.installing.sources_gone([self._own.pop(sid) for sid in gone_sources if sid in self._own])

    # ── envelopes ──

    def seal(self, kind: str, body: bytes, *, to: str = "") -> bytes:
        return self._sealer.seal(kind, body, to=to)

    def open_sealed(self, data: bytes, kind: str | None) -> Opened:
        return self._verifier.open(data, expected_kind=kind)

    # ── others ──

    def everyone(self) -> list[Peer]:
        with self.lock:
            return list(self.peers.values())

    def peer(self, node: str, incarnation: int) -> Peer:
        """The peer of that id; one that was started again is the same peer, with nothing of what it was sending."""
        with self.lock:
            found = self.peers.get(node)
            if found is None:
                found = self.peers[node] = Peer(self, node, incarnation)
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
            peer.unacknowledged.clear()
            link, peer.link = peer.link, None
            if link is not None:
                peer._let_go(link, "the other node was started again")
        for source in gone:
            self.node.wiring.withdraw(source)
            self._forget_positions(source)
        self.installing.restarted(peer)
        if self.groups is not None:
            self.groups.forget(peer)

    def _forget_positions(self, source: StandIn) -> None:
        """A source will not come back: how far sinks were with it need not be remembered."""
        state = self.node.state
        if state is not None and source.position_key is not None:
            for sink in state.sinks():
                state.forget(sink, source.position_key)

    def _joined(self, node: str, incarnation: int) -> None:
        """Someone says so; only what is signed by it makes it a peer, or one that was started again."""
        with self.lock:
            peer = self.peers.get(node)
        if peer is None or peer.state is None or incarnation > peer.incarnation:
            # As a rule it says so itself by then. If two have missed each other, one of them asks.
            self.later(0.1 if self.id < node else 0.5, partial(self._inquire, node, incarnation))
        elif incarnation == peer.incarnation:
            peer.present, peer.gone = True, None
            self.control.node(peer, "joined")
            self._touch_all()
            self._link_again(peer)
            self.changed()

    def _left(self, node: str, incarnation: int) -> None:
        with self.lock:
            peer = self.peers.get(node)
        if peer is None or incarnation != peer.incarnation:
            return
        peer.present = False
        if peer.direct:
            peer.say(wire.encode_ping(0))  # it may be only Zenoh that does not reach it
            heard = peer.heard
            self.later(min(1.0, self.network.lease), lambda: self._still_there(peer, heard))
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
            if peer.gone is not None or self.closed:
                return
            peer.gone = monotonic()
            link = peer.link
        if link is not None:
            peer.link_down(link, "the other node is not there any more")
        self.installing.away(peer)
        for source in list(peer.standins.values()):
            source.promised(None)
        self.control.node(peer, "left")
        self.changed()

    def link_lost(self, peer: Peer) -> None:
        """A link to a peer has ended."""
        if self.closed:
            return
        if not peer.present:
            self._away(peer)
        elif self._linked(peer):
            self.connect(peer)
        self.changed()

    def said_bye(self, peer: Peer, reason: str) -> None:
        """A peer leaves in an orderly way."""
        peer.present = False
        link = peer.link
        if link is not None:
            peer.link_down(link, f"it said goodbye: {reason}")
        self.later(0.0, lambda: self._forget(peer, orderly=True))

    def _forget(self, peer: Peer, *, orderly: bool = False) -> None:
        """It will not come back, or too late."""
        if peer.gone is None:
            return
        for source in list(peer.standins.values()):
            self.node.wiring.withdraw(source)
        peer.standins.clear()
        peer.unacknowledged.clear()
        kept = self.installing.gone(peer, orderly=orderly)
        if self.groups is not None:
            self.groups.forget(peer)
            self.groups.hearing.forget(peer)
        if not kept:
            peer.sender.close()
            self._verifier.forget(peer.id)
            with self.lock:
                if self.peers.get(peer.id) is peer and peer.gone is not None:
                    del self.peers[peer.id]
        self.changed()

    # ── state and news of others ──

    def _on_roll(self, payload: bytes) -> bytes:
        refused = self._heard_state(payload)
        if refused:
            return self.seal("reply", pack(messages.Accepted(error=f"refused: {refused}")))
        return self.seal("state", pack(self.state()))

    def _heard_state(self, payload: bytes) -> str:
        """What was said of a node by itself is taken, or why it is not is said."""
        opened = None
        try:
            opened = self.open_sealed(payload, None)
            if opened.kind == "reply":
                self._refused_by(opened)
            elif opened.kind == "state":
                self._take_state(opened, opened.body)
            else:
                raise SecurityError(f"expected the state of a node, found {opened.kind!r}", "kind", opened.sender)
        except (SecurityError, FrameError) as error:
            self._blame(opened, error)
            return str(error)
        return ""

    def _refused_by(self, opened: Opened) -> None:
        """Another node does not want to know of this one."""
        answer = messages.reply(opened.body)
        if opened.sender not in self._refusals and isinstance(answer, messages.Accepted):
            self._refusals.add(opened.sender)
            log.warning("node %s: %s does not let it in: %s", self.node.name, opened.sender, answer.error)

    def _blame(self, opened: Opened | None, error: SecurityError | FrameError) -> None:
        """What was signed properly and says nonsense is an offence of who has signed it."""
        known = None if opened is None or isinstance(error, SecurityError) else opened.sender
        self.offence(known or who_sent(error), str(error))

    def _described(self, opened: Opened, state: bytes) -> None:
        """Who asks for this node's state says its own."""
        try:
            if state:
                self._take_state(opened, state)
        except (SecurityError, FrameError) as error:
            self.offence(opened.sender, str(error))

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
        if new:
            self.control.node(peer, "joined")
        for source in peer.sources:
            self.control.source(peer, source, "advertised")
        self._met(peer)

    def _on_news(self, payload: bytes) -> None:
        opened = None
        try:
            opened = self.open_sealed(payload, "news")
            news = messages.news(opened.body)
            if news.node != opened.sender or news.incarnation != opened.incarnation:
                raise SecurityError(f"{opened.sender} speaks of {news.node}", "sender", opened.sender)
        except (SecurityError, FrameError) as error:
            self._blame(opened, error)
            return
        if news.node == self.id:
            return
        peer = self._signed_by(opened)
        with peer.lock:
            state = peer.state
            if news.incarnation < peer.incarnation or (state is not None and news.version <= state.version):
                return
            if state is None or news.version != state.version + 1:
                self.later(0.0, partial(self._inquire, peer.id, peer.incarnation, news.version))
                return
            new = self._allowed(_updated(state, news), opened)
            peer.state = new
            known = {each.sid for each in state.sources}
            here = {each.sid for each in new.sources}
            gone = [each for each in state.sources if each.sid in news.gone_sources]
            fresh = [each for each in new.sources if each.sid not in known and each.sid in here]
        for ad in new.sources:
            source = peer.standins.get(ad.sid)
            if source is not None and source.zones != frozenset(ad.zones):
                self.node.wiring.rezone(source, frozenset(ad.zones))
        for ad in gone:
            self.control.source(peer, ad, "withdrawn")
        for ad in fresh:
            self.control.source(peer, ad, "advertised")
        self._met(peer)

    def _allowed(self, state: State, opened: Opened) -> State:
        """What of it the sender may advertise."""
        sources = []
        for ad in state.sources:
            decision = self.security.allows(opened.principal, "advertise", ad.channel)
            if decision:
                sources.append(ad)
            else:
                self.offence(opened.sender, f"it advertises {ad.channel}, which it may not: {decision.why}")
        return _with_sources(state, sources)

    def _inquire(self, node: str, incarnation: int, version: int = 1, pace: float = SELDOM) -> None:
        """Ask a node that is said to be there for its state, unless that, of this version, has come meanwhile."""
        with self.lock:
            peer = self.peers.get(node)
        state = None if peer is None or peer.incarnation < incarnation else peer.state
        if (state is None or state.version < version) and not self.closed and (node, incarnation) in self.fabric.alive:
            self.work(self._fetch_state, node, incarnation, version, pace)

    def _fetch_state(self, node: str, incarnation: int, version: int = 1, pace: float = SELDOM) -> None:
        try:
            request = messages.Describe(pack(self.state()))
            self._heard_state(self.fabric.ask(node, self.seal("ask", pack(request), to=node), ANSWER))
        except FederationError as error:
            log.debug("node %s: %s does not answer: %s", self.node.name, node, error)
        self.later(pace, partial(self._inquire, node, incarnation, version, min(30.0, 2 * pace)))

    def _link_again(self, peer: Peer) -> None:
        """It is back: what was kept for it, or is still wanted of it, needs a link."""
        if peer.link is None and self._linked(peer):
            self.connect(peer)

    def _met(self, peer: Peer) -> None:
        """What it has may concern sinks here."""
        self._link_again(peer)
        self.later(0.0, lambda: self.asking.advertised(peer))
        self.changed()

    def _touch_all(self) -> None:
        with self.node.wiring.lock:
            self._wired(self.node.channels())

    # ── questions ──

    def _on_ask(self, payload: bytes) -> bytes:
        opened = None
        try:
            opened = self.open_sealed(payload, "ask")
            request = messages.request(opened.body)
        except (SecurityError, FrameError) as error:
            self._blame(opened, error)
            return self.seal("reply", pack(messages.Accepted(error=f"refused: {error}")))
        peer = self._signed_by(opened)
        match request:
            case messages.Install():
                reply: Any = self.installing.install(peer, opened.principal, request)
            case messages.Routed():
                reply = self._use_routed(peer, request)
            case messages.Describe(state=state):
                self._described(opened, state)
                return self.seal("state", pack(self.state()), to=peer.id)
            case messages.Ask():
                reply = self.installing.tell(peer, request)
        return self.seal("reply", pack(reply), to=peer.id)

    def _signed_by(self, opened: Opened) -> Peer:
        """The peer that has signed something; it is there."""
        peer = self.peer(opened.sender, opened.incarnation)
        peer.principal = opened.principal
        if peer.state is None:
            peer.present = True
            self.later(0.1, partial(self._inquire, opened.sender, opened.incarnation))
        return peer

    def ask(self, peer: Peer, request: Any, timeout: float = ANSWER) -> Any:
        """A question to a peer, and its answer; Unreachable if there is none."""
        reply = self.fabric.ask(peer.id, self.seal("ask", pack(request), to=peer.id), timeout)
        opened = self.open_sealed(reply, "reply")
        if opened.sender != peer.id:
            raise SecurityError(f"expected an answer of {peer.id}, found one of {opened.sender}", "key", opened.sender)
        answer = messages.reply(opened.body)
        if isinstance(answer, messages.Accepted) and answer.error:
            raise FederationError(f"node {peer.name}: {answer.error}")
        return answer

    # ── links ──

    def link_wanted(self, peer: Peer) -> None:
        """A peer wants events of this node: if it could not make a link, perhaps this node can."""
        if peer.link is None:
            self.later(RETRY, lambda: self.connect(peer) if peer.link is None else None)

    def _accept(self, stream: Stream) -> None:
        with suppress(LinkDown):
            Handshake(self, stream, target=None)

    def established(self, opened: Opened, stream: Stream, *, dialled: bool) -> Peer:
        """A stream whose other end has proven who it is."""
        peer = self._signed_by(opened)
        with peer.lock:
            if opened.incarnation < peer.incarnation:
                raise SecurityError(f"{opened.sender} was started again since", "stale", opened.sender)
            if peer.direct and not self._preferred(peer, dialled):
                raise LinkDown(f"there is a stream to {peer.name} already")
        peer.link_up(stream, dialled=dialled)
        return peer

    def _preferred(self, peer: Peer, dialled: bool) -> bool:
        """If both have called at the same time, the call of the node with the lesser id stays."""
        recent = monotonic() - peer.since < 1.0
        return not (recent and peer.dialled == (self.id < peer.id) and dialled != peer.dialled)

    def connect(self, peer: Peer, pace: float = RETRY) -> None:
        """See to it that there is a link; soon, not now."""
        with peer.lock:
            if peer.calling or self.closed or peer.direct:
                return
            peer.calling = True
        try:
            self._workers.submit(self._guarded, self._connect, peer, pace)
        except RuntimeError:
            peer.calling = False

    def _connect(self, peer: Peer, pace: float) -> None:
        try:
            reached = self.call(peer)
        finally:
            peer.calling = False
        if not reached and not self.closed and (peer.present or peer.gone is None):
            again = min(SELDOM, 2 * pace)
            self.later(pace, lambda: None if peer.direct or not self._linked(peer) else self.connect(peer, again))

    def call(self, peer: Peer) -> bool:
        """A direct stream to a peer if that is possible, else the routed path; whether it is direct."""
        state = peer.state
        if peer.direct or state is None:
            return peer.direct
        client = None if self._contexts is None else self._contexts[1]
        for endpoint in state.endpoints if self.network.direct != () else ():
            if is_loopback(endpoint) and not self.loopback and not endpoint.startswith("unix"):
                continue
            try:
                stream = dial(endpoint, tls=client, timeout=CALL)
                links = peer.links
                Handshake(self, stream, target=peer.id)
            except (HeadwaterError, OSError) as error:
                peer.trouble = f"{endpoint}: {error}"
                continue
            if self.until(partial(_linked, peer, links, stream), CALL) and peer.direct:
                return True
            stream.close("the other node did not answer")
        if peer.link is None and peer.present:
            self._route(peer)
        return False

    def _route(self, peer: Peer) -> None:
        """No direct stream: agree on Zenoh's path."""
        try:
            self.ask(peer, messages.Routed())
        except (Unreachable, FederationError) as error:
            peer.trouble = str(error)
            return
        self._link_routed(peer)

    def _link_routed(self, peer: Peer) -> None:
        with peer.lock:
            self._link_routed_now(peer)

    def _link_routed_now(self, peer: Peer) -> None:
        state = peer.state
        if state is None or peer.link is not None:
            return
        session = self.exchange.session(state.exchange, peer=peer.name)
        why = peer.trouble
        link = RoutedLink(
            self.fabric, self.id, self.incarnation, peer.id, session, partial(self._on_routed, peer)
        )
        peer.link_up(link, dialled=True)
        peer.trouble = why or "one of the two nodes offers no direct streams"
        log.info("node %s: events to and from %s go by Zenoh: %s", self.node.name, peer.name, peer.trouble)

    def _use_routed(self, peer: Peer, request: messages.Routed) -> messages.Accepted:
        if peer.state is None:
            self._fetch_state(peer.id, peer.incarnation)
        if peer.direct:
            return messages.Accepted()
        if peer.link is None:
            if self.network.direct != () and peer.state is not None and peer.state.endpoints:
                self.connect(peer)  # perhaps it can be reached from here
            self._link_routed(peer)
        return messages.Accepted()

    def _on_post(self, payload: bytes) -> None:
        try:
            node, incarnation, sealed = read_head(payload)
            with self.lock:
                peer = self.peers.get(node)
            if peer is None or peer.state is None or peer.incarnation != incarnation:
                raise SecurityError(f"a posted message of {node}, which is not known here", "unknown", node)
            data = self.exchange.session(peer.state.exchange, peer=peer.name).open(sealed)
        except (FrameError, SecurityError) as error:
            self.offence(who_sent(error), str(error))
            return
        if peer.link is None:
            self._link_routed(peer)  # its answer was quicker than that to our question
        link = peer.link
        if isinstance(link, RoutedLink):  # else it is of before there was a stream: what counts comes again there
            link.arrived(data)

    def _on_routed(self, peer: Peer, link: RoutedLink, data: memoryview) -> None:
        try:
            for frame in wire.Splitter().feed(bytes(data)):
                peer.on_frame(frame, link)
        except (FrameError, SecurityError) as error:
            self.offence(peer, str(error))
        except Exception as error:  # the reader must go on, and the failure must be seen
            log.error("node %s: a frame of %s could not be handled", self.node.name, peer.name, exc_info=error)

    def _linked(self, peer: Peer) -> bool:
        """Whether there is a reason to have a link."""
        return bool(peer.crossings) or any(each.demand.wishes or each.busy for each in peer.asked.values())

    # ── stand-ins ──

    def stand_in(self, peer: Peer, ad: SourceAd, type: Any) -> StandIn | None:
        """A source of a peer, as it is announced on the link."""
        decision = None if peer.principal is None else self.security.allows(peer.principal, "advertise", ad.channel)
        if not decision:
            why = "it has not proven who it is" if decision is None else decision.why
            raise SecurityError(f"{peer.name} may not advertise {ad.channel}: {why}", "rule", peer.id)
        if self.control.owns(ad.channel):
            raise SecurityError(f"{ad.channel} is what this node says of itself: it has no others", "rule", peer.id)
        with self.node.wiring.lock:
            channel = next((each for each in self.node.channels() if each.name == ad.channel), None)
            if channel is None or self.node.closed:
                return None
            if (channel.type is None) != (type is None):
                raise FederationError(f"channel {ad.channel}: it has a type at one node and carries bytes at the other")
            source = StandIn(channel, peer, ad, type)
            if source.key in channel.sources:  # a source of the same name that was closed, and is not gone yet
                source.key = f"{source.key}#{ad.sid}"
                source.id = f"{channel.name}/{source.key}"
            self.node.wiring.advertise(source)
        return source

    def withdrawn(self, peer: Peer, sid: int) -> None:
        """A source of a peer is no more, and everything it sent has come."""
        source = peer.standins.pop(sid, None)
        if source is not None:
            self.node.wiring.withdraw(source)
            if peer.acknowledge([source]):  # sinks may still have events of it
                self.tick_soon()
            self.changed()

    def refused_source(self, peer: Peer, ad: SourceAd, why: str) -> None:
        self.offence(peer, f"source {ad.name} of {ad.channel}: {why}")
        self.asking.refuse_channel(peer, ad.channel, why)

    def marked(self, peer: Peer, channel: str, version: int) -> None:
        """Everything from before the peer took up our wishes of this version is here."""
        asked = peer.asked.get(channel)
        if asked is not None:
            asked.marked = max(asked.marked, version)
            self.asking.begun(peer, channel, asked, version)
            self.changed()

    def gap(self, peer: Peer, source: StandIn, number: int) -> None:
        """A frame is missing: begin again from the last one that came."""
        log.warning("node %s: frames %d to %d of %s are missing", self.node.name, source.frame + 1, number - 1, source)
        from headwater.federation.wire_control import Resume

        peer.say(wire.encode_control(Resume(peer.positions())))

    @property
    def multicast(self) -> Multicast | None:
        """The sockets of multicast groups, if there are any."""
        return None if self.groups is None else self.groups.multicast

    def offence(self, who: Peer | str | None, what: str) -> None:
        """Something that should not have come: counted, logged, and that is all."""
        self.offences.note(who.id if isinstance(who, Peer) else who or UNKNOWN, what)

    # ── time ──

    def later(self, seconds: float, task: Callable[[], None]) -> None:
        """Have the keeper do something."""
        with self.lock:
            self._tasks.append((monotonic() + seconds, task))
        self._wake.set()

    def tick_soon(self) -> None:
        self.ticking = True
        self._wake.set()

    def _keep(self) -> None:
        """The keeper: acknowledgements, promises, pings, and everything that has to wait."""
        next_tick = next_beat = next_ping = monotonic()
        while not self.closed:
            now = monotonic()
            with self.lock:
                due = [task for at, task in self._tasks if at <= now]
                self._tasks = [(at, task) for at, task in self._tasks if at > now]
                first = min((at for at, _ in self._tasks), default=now + 1.0)
            for task in due:
                self._guarded(task)
            if self._touched:
                self._guarded(self._sync)
            if self.ticking and now >= next_tick:
                next_tick = now + TICK
                self.ticking = False  # before it is looked, so that nobody's call for a tick is lost
                for peer in self.everyone():
                    if peer.unacknowledged and peer.acknowledge():
                        self.ticking = True
            if now >= next_beat:
                next_beat = now + BEAT
                self._guarded(self.installing.promise)
            if now >= next_ping:
                next_ping = now + min(1.0, self.network.lease / 3)
                self._guarded(self.installing.granting.measure)
                self._guarded(self._look_around)
            first = min(first, next_ping, next_tick if self.ticking else first)
            if self.installing.promising:
                first = min(first, next_beat)
            if not due and not self._touched:
                self._wake.wait(max(0.0, first - monotonic()))
            self._wake.clear()

    def _gather(self) -> None:
        """What is changed in one go is told, and asked for, in one go."""
        end = monotonic() + GATHERED
        while self._more.wait(GATHER) and monotonic() < end:
            self._more.clear()

    def _sync(self) -> None:
        self._gather()
        with self.node.wiring.lock:
            touched, self._touched = self._touched, set()
        self._tell_news()
        self.installing.sweep(touched)
        for channel in touched:
            self.asking.sync(channel)

    def _look_around(self) -> None:
        now, alive = monotonic(), self.fabric.alive
        self.strangers.look()
        for peer in self.everyone():
            link = peer.link
            if peer.gone is not None:
                if now - peer.gone > self.network.keep:
                    self._forget(peer)
            elif link is None and now - peer.met > self.network.lease and (peer.id, peer.incarnation) not in alive:
                peer.present = False  # it has signed something, but there is no sign of life of it
                self._away(peer)
            elif link is not None and peer.direct:
                if now - peer.heard > self.network.lease:
                    peer.link_down(link, f"nothing was heard for {self.network.lease:g} s")
                elif now - peer.heard > self.network.lease / 3:
                    peer.say(wire.encode_ping(0))

    def _guarded(self, task: Callable[..., Any], *args: Any) -> None:
        try:
            task(*args)
        except Exception as error:  # one failure must not end the keeper, and must be seen
            if not self.closed:
                log.error("node %s: %s: %s", self.node.name, type(error).__name__, error, exc_info=error)

    # ── waiting ──

    def changed(self) -> None:
        """Something that someone may be waiting for has happened."""
        self.nudge()
        self._watched()

    def nudge(self) -> None:
        """Who waits is to look again."""
        with self._news:
            self._happened += 1
            self._news.notify_all()

    def _watched(self) -> None:
        for watch in list(self.watchers):
            watch()

    def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds; it is looked at whenever something happens in the federation."""
        end = monotonic() + timeout
        while True:
            happened = self._happened
            if condition():  # with no lock held: it may take others
                return True
            left = end - monotonic()
            if left <= 0:
                return False
            with self._news:
                if self._happened == happened:
                    self._news.wait(min(left, 0.1))

    def work(self, task: Callable[..., Any], *args: Any) -> None:
        """Do something that may wait for the network."""
        with suppress(RuntimeError):  # it is closed
            self._workers.submit(self._guarded, task, *args)


def _settled(lane: Lane) -> bool:
    return not lane.waiting or lane.peer.link is None


def _linked(peer: Peer, before: int, stream: Stream) -> bool:
    return peer.links > before or stream.ended is not None


def _updated(state: State, news: News) -> State:
    from msgspec.structs import replace

    channels = {ad.name: ad for ad in state.channels if ad.name not in news.gone_channels}
    channels.update((ad.name, ad) for ad in news.channels)
    sources = {ad.sid: ad for ad in state.sources if ad.sid not in news.gone_sources}
    sources.update((ad.sid, ad) for ad in news.sources)
    return replace(state, version=news.version, channels=list(channels.values()), sources=list(sources.values()))


def _with_sources(state: State, sources: list[SourceAd]) -> State:
    from msgspec.structs import replace

    return state if len(sources) == len(state.sources) else replace(state, sources=sources)


__all__ = ["ConfigError", "Engine"]
