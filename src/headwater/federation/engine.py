"""The network of one node: who else is there, the links to them, and the thread that keeps it all going.

    Membership   who is there, and what each has                          (peers/membership.py)
    Links        a stream to each, or Zenoh's path                         (transport/connections.py)
    Installing   what other nodes ask of this one's sources                (interests/installer.py)
    Asking       what this node asks of other nodes' sources               (interests/requester.py)
    Permissions  whether it may subscribe to what they do not tell it of   (peers/permissions.py)
    Contacts     the endpoints to connect to, and whether they are reached  (peers/contacts.py)
    Keeping      the thread that keeps it going, and waiting for things    (scheduler.py)
    Engine       this file: holds them together

Zenoh's threads, the readers of streams, publishers and users all come in here. `Wiring.lock` is taken before `lock`,
never the other way round; nobody waits for the network while holding either.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from headwater.errors import (
    ConfigError,
    ConfigProblem,
    FederationError,
    FrameError,
    HeadwaterError,
    SecurityError,
)
from headwater.federation.arrive.deduplication import PlacesOfTerm, order_of
from headwater.federation.arrive.log_positions import LogPositions
from headwater.federation.arrive.paths import Origin, Way
from headwater.federation.arrive.remote_source import RemoteSource
from headwater.federation.control_events import ControlEvents
from headwater.federation.demand.demand import Demands
from headwater.federation.endpoints import ENCRYPTED, protocol, resolve
from headwater.federation.fabric.fabric import Fabric
from headwater.federation.fabric.incarnation import next_incarnation
from headwater.federation.failures import Failures
from headwater.federation.interests.installer import Installer
from headwater.federation.interests.requester import Requester
from headwater.federation.logs.own_logs import OwnLogs
from headwater.federation.logs.server import LogServer
from headwater.federation.multicast.groups import Groups
from headwater.federation.network import Network
from headwater.federation.order.election import Ballots
from headwater.federation.peers.connections import Connections
from headwater.federation.peers.dialogue import ANSWER, Dialogue
from headwater.federation.peers.membership import Membership
from headwater.federation.peers.peer import Peer
from headwater.federation.peers.permissions import Permissions
from headwater.federation.scheduler import TICK, Scheduler
from headwater.federation.security.credentials import Credentials
from headwater.federation.security.envelope import Opened, Sealer, Verifier
from headwater.federation.security.offences import UNKNOWN, Offences, who_sent
from headwater.federation.security.session import Exchange
from headwater.federation.security.tls import zenoh_settings
from headwater.federation.send.lane import Lane
from headwater.federation.transport.addresses import stream_endpoints
from headwater.federation.transport.contacts import Contacts
from headwater.federation.transport.handshake import Reception
from headwater.federation.transport.listener import Listener
from headwater.federation.transport.sender import Pulse
from headwater.federation.wire import requests as messages
from headwater.federation.wire.control import SourceAd

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.federation.multicast.sockets import Multicast
    from headwater.federation.node import Node
    from headwater.federation.send.crossing import Crossing

log = logging.getLogger("headwater.federation")
GATHER = 0.002  # seconds for which a change waits for others like it; and, if there are ever more, at most
GATHERED = 0.02
BOXED = 1024  # bytes that a message is larger at most when it is only for one node
BEHIND = 2.0  # seconds that a node is kept waiting for what lies behind gateways


class Engine:
    """Made by a node that has a network; `open` joins the federation, `close` leaves it."""

    def __init__(self, node: Node, network: Network) -> None:
        self.node, self.network, self.security = node, network, network.security
        # Streams are accepted where Zenoh listens, unless `direct` says otherwise: what the user wrote is what counts.
        endpoints = [*network.listen_at, *network.connect_to, *(network.direct_at or ())]
        self.loopback = self.security.check_endpoints(endpoints, scout=network.scout, place=f"node {node.name}")
        self.credentials = Credentials(self.security, self._identity())
        self.id = self.credentials.identity.id
        self.incarnation = next_incarnation(node.state, node.name, time.time_ns)
        self.exchange = Exchange()
        self._sealer = Sealer(self.credentials.identity, network.federation, self.incarnation, self.security)
        self.verifier = Verifier(
            self.security,
            network.federation,
            loopback=self.loopback,
            me=self.id,
            run=self.incarnation,
            lives=lambda node, run: self.membership.lives(node, run),
            trust=self.credentials.trust,
        )
        self.peers: dict[str, Peer] = {}
        self.pulse = Pulse()
        self.lock = threading.RLock()
        self.closing = self.closed = False
        self.offences = Offences(node.name)
        self.failures = Failures(node.name)
        # Whether all that lies behind a channel's sources here is ready, for what goes on to these federations.
        self.gates: list[Callable[[str, tuple[tuple[str, ...], ...]], bool]] = []
        self._origins: WeakValueDictionary[str, Origin] = WeakValueDictionary()
        self.ballots = Ballots(self)
        self.demands = Demands(node, network.placement)
        self.reaches = LogPositions(node, self.demands)
        self.scheduler, self.dialogue = Scheduler(self), Dialogue(self)
        self.links, self.membership = Connections(self), Membership(self)
        self.installer, self.requester = Installer(self), Requester(self)
        self.control, self.permissions = ControlEvents(self), Permissions(self)
        logs = node._logs
        self.logs = None if logs is None else LogServer(self, OwnLogs(logs.settings.folder, logs.node))
        self.touched: set[Channel] = set()
        self._more = threading.Event()  # and again something else
        self.contacts = Contacts(self)
        self.unready: list[str] = []  # what the last `ready` still waited for
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
            listen=network.listen_at,
            connect=network.connect_to,
            scout=network.scout,
            mode="router" if network.router else "client" if network.client else "peer",
            lease=network.lease,
            settings=zenoh_settings(self.security),
            limit=self.security.limit + BOXED,
            crashes=self.node._crashes,
        )
        fabric.on_join, fabric.on_leave = self.membership.joined, self.membership.left
        fabric.on_roll, fabric.on_news = self.dialogue.on_introduction, self.membership.on_news
        fabric.on_ask, fabric.on_post = self.dialogue.on_ask, self.links.on_post
        fabric.on_session, fabric.on_link = self.contacts.reset, self.contacts.linked
        fabric.proven = self.membership.proven
        fabric.on_log = None if self.logs is None else self.logs.answer
        return fabric

    # ── beginning and end ──

    def open(self) -> None:
        """Join the federation."""
        wanted = stream_endpoints(self.network, secure=self.credentials.contexts is not None)
        self._check_names()
        try:
            if wanted:
                contexts = self.credentials.contexts
                server = None if contexts is None else contexts[0]
                self.listener = Listener(wanted, tls=server, greet=partial(Reception, self))
            if self.groups is not None:
                self.groups.open()
            self.membership.start()  # before others can ask
            self.fabric.open()
            self._check_endpoints()
        except BaseException:
            if self.listener is not None:
                self.listener.close()
            if self.groups is not None:
                self.groups.close()
            self.fabric.close()
            self.scheduler.stop()
            raise
        self.node._wiring.changed, self.node._wiring.moved = self.wired, self.installer.moved
        self.node._wiring.rearranged = self.demands.touch
        self.scheduler.start()
        self.contacts.start()
        self.scheduler.work(self.membership.roll_call)

    def _check_names(self) -> None:
        """Names at which it is to listen must resolve. (Those it connects to may come to do so.)"""
        problems = []
        for each in self.network.listen_at:
            try:
                resolve(each)
            except OSError as error:
                place = f"node {self.node.name}: {each.place}"
                problems.append(ConfigProblem(place, "a name or an address of this machine", each.shown, str(error)))
        if problems:
            raise ConfigError(problems)

    def _check_endpoints(self) -> None:
        """Where it really listens, which Zenoh may have chosen, must be as harmless as what was asked for."""
        streams = () if self.listener is None else self.listener.endpoints
        self.security.check_endpoints([*self.fabric.endpoints, *streams], place=f"node {self.node.name}")

    def flush(self, timeout: float) -> bool:
        """Until everything that was published reliably has been acknowledged by those who are there; or too late."""
        end = monotonic() + timeout
        for peer in self.everyone():
            for lane in list(peer.lanes()):
                while lane.waiting and lane.crossing.reliable and _there(peer) and monotonic() < end:
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
        self.scheduler.wake()
        if self.listener is not None:
            self.listener.close()
        self.fabric.close()
        if self.logs is not None:
            self.logs.close()
        self.scheduler.stop()
        self.scheduler.changed()

    # ── what others are told ──

    def way(self, origin: str, source: Any, path: Iterable[str], filters: Iterable[str]) -> Way | PlacesOfTerm:
        """What becomes of the events that a source here passes on of one of another federation, which may come by other
        gateways too; or of a channel's order."""
        if (order := order_of(origin)) is not None:
            key, term = order
            return PlacesOfTerm(self.ballots.fence(key), term)
        with self.lock:
            found = self._origins.get(origin)
            if found is None:
                found = self._origins[origin] = Origin(self.scheduler, self.network.lease)
        return found.way(source, path, filters)

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
                self.scheduler.later(TICK / 4, look)

        self.scheduler.later(0.0, look)

    def wired(self, channels: Iterable[Channel]) -> None:
        """Members or sources of these channels have changed; the wiring's lock is held."""
        for channel in channels:
            at: Channel | None = channel
            while at is not None:  # what is wanted of a derived channel is wanted of the one it comes from
                self.touched.add(at)
                at = at.parent
        self._more.set()
        self.scheduler.wake()
        self.scheduler.watched()

    # ── envelopes ──

    def seal(self, kind: str, body: bytes, *, to: str = "", run: int = 0, answers: bytes = b"") -> bytes:
        return self._sealer.seal(kind, body, to=to, run=run, answers=answers)

    def open_sealed(
        self,
        data: bytes,
        kind: str | None,
        *,
        answers: bytes | None = None,
        fresh: Callable[[bytes], bool] | None = None,
    ) -> Opened:
        return self.verifier.open(data, expected_kind=kind, answers=answers, fresh=fresh)

    def renew_security(self, *, force: bool = False) -> None:
        """Take up what the files of its security say now; who is not vouched for any more has to go."""
        if self.credentials.look(force=force):
            log.info("node %s: its certificate, or its authorities, were renewed", self.node.name)
            self._sealer.renew(self.credentials.identity)
            contexts = self.credentials.contexts
            if self.listener is not None and contexts is not None:
                self.listener.renew(contexts[0])
            self.membership.tell_again()  # so that others know of the new certificate before the old one expires
            if any(protocol(str(each)) in ENCRYPTED for each in (*self.fabric.endpoints, *self.network.connect_to)):
                self.fabric.reopen()
        self.membership.check_vouched()

    # ── others ──

    def everyone(self) -> list[Peer]:
        with self.lock:
            return list(self.peers.values())

    # ── state and news of others ──

    def blame(self, opened: Opened | None, error: SecurityError | FrameError) -> None:
        """What was signed properly and says nonsense is an offence of who has signed it."""
        known = None if opened is None or isinstance(error, SecurityError) else opened.sender
        self.offence(known or who_sent(error), str(error))

    # ── questions ──

    def answer(self, opened: Opened, request: messages.Request) -> messages.Reply:
        """To what another node asks, having proven who it is."""
        peer = self.membership.signed_by(opened)
        match request:
            case messages.Install():
                return self.installer.install(peer, opened.principal, request)
            case messages.Routed():
                return self.links.use_routed(peer, request)
            case messages.Describe():
                return self.membership.describe_to(peer, opened, request)
            case messages.MaySubscribe():
                return self.permissions.answer(peer, opened.principal, request)
            case messages.Ask():
                return self.installer.tell(peer, request)
            case messages.Stand() | messages.Lead():
                return self._vote(opened, request)
            case messages.Heard():
                heard = self.requester.heard(peer, request.channel, request.source)
                return messages.Accepted("" if heard else "not yet")
            case messages.Latest():
                return messages.LatestIs(self.membership.latest())

    def _vote(self, opened: Opened, request: messages.Stand | messages.Lead) -> messages.Vote | messages.Accepted:
        try:
            return self.ballots.asked(opened.principal, request)
        except FederationError as error:
            self.offence(opened.sender, str(error))
            return messages.Accepted(error=f"refused: {error}")

    def ask(self, peer: Peer, request: Any, timeout: float = ANSWER) -> Any:
        """A question to a peer, and its answer; Unreachable if there is none."""
        return self.dialogue.ask(peer, request, timeout)

    # ── stand-ins ──

    def remote_source(self, peer: Peer, ad: SourceAd, type: Any) -> RemoteSource | None:
        """A source of a peer, as it is announced on the link."""
        decision = None if peer.principal is None else self.security.allows(peer.principal, "advertise", ad.channel)
        if not decision:
            why = "it has not proven who it is" if decision is None else decision.why
            raise SecurityError(f"{peer.name} may not advertise {ad.channel}: {why}", "rule", peer.id)
        if self.control.owns(ad.channel):
            raise SecurityError(f"{ad.channel} is what this node says of itself: it has no others", "rule", peer.id)
        with self.node._wiring.lock:
            channel = next((each for each in self.node.channels() if each.name == ad.channel), None)
            if channel is None or self.node.closed:
                return None
            if (channel.type is None) != (type is None):
                raise FederationError(f"channel {ad.channel}: it has a type at one node and carries bytes at the other")
            source = RemoteSource(channel, peer, ad, type)
            if source.key in channel.sources:  # a source of the same name that was closed, and is not gone yet
                source.key = f"{source.key}#{ad.sid}"
                source.id = f"{channel.name}/{source.key}"
            self.node._wiring.advertise(source)
        return source

    def withdrawn(self, peer: Peer, sid: int) -> None:
        """A source of a peer is no more, and everything it sent has come."""
        source = peer.remote_sources.pop(sid, None)
        if source is not None:
            peer.ended(sid, source)
            self.node._wiring.withdraw(source)
            if peer.acknowledge([source]):  # sinks may still have events of it
                self.scheduler.tick_soon()
            self.scheduler.changed()

    def refused_source(self, peer: Peer, ad: SourceAd, why: str) -> None:
        self.offence(peer, f"source {ad.name} of {ad.channel}: {why}")
        self.requester.refuse_channel(peer, ad.channel, why)

    def marked(self, peer: Peer, channel: str, version: int) -> None:
        """Everything from before the peer took up our wishes of this version is here."""
        asked = peer.asked.get(channel)
        if asked is not None:
            asked.marked = max(asked.marked, version)
            self.requester.begun(peer, channel, asked, version)
            self.scheduler.changed()

    def gap(self, peer: Peer, source: RemoteSource, number: int) -> None:
        """A frame is missing: begin again from the last one that came. That is said once for each gap and link."""
        if source.gap == (peer.links, source.frame):
            return
        source.gap = (peer.links, source.frame)
        log.warning("node %s: frames %d to %d of %s are missing", self.node.name, source.frame + 1, number - 1, source)
        peer.resume()

    @property
    def multicast(self) -> Multicast | None:
        """The sockets of multicast groups, if there are any."""
        return None if self.groups is None else self.groups.multicast

    def offence(self, who: Peer | str | None, what: str) -> None:
        """Something that should not have come: counted, logged, and that is all."""
        self.offences.note(who.id if isinstance(who, Peer) else who or UNKNOWN, what)

    # ── time ──

    def _gather(self) -> None:
        """What is changed in one go is told, and asked for, in one go."""
        end = monotonic() + GATHERED
        while self._more.wait(GATHER) and monotonic() < end:
            self._more.clear()

    def sync(self) -> None:
        """Tell others what has changed, and ask them for what is wanted now. What fails for some channels is tried
        again, and keeps no other channel waiting."""
        self._gather()
        with self.node._wiring.lock:
            touched, self.touched = self.touched, set()
        self._attempt("news of this node", touched, self.membership.tell_news)
        self._attempt("sources that are gone", touched, partial(self.installer.sweep, touched))
        for channel in touched:
            self._attempt(channel.name, [channel], partial(self._sync_channel, channel))
        self._attempt("what other nodes do not list", touched, partial(self.permissions.touched, touched))

    def _sync_channel(self, channel: Channel) -> None:
        with self.node._wiring.lock:
            self.reaches.unwanted(channel)
        self.requester.sync(channel)

    def _attempt(self, about: str, channels: Iterable[Channel], task: Callable[[], None]) -> None:
        """Do something; if it fails, its channels count as touched again, after a pause."""
        try:
            task()
        except Exception as error:  # whatever it is, others go on
            if not self.closed:
                self.scheduler.later(self.failures.failed(about, error), partial(self._touch, list(channels)))
        else:
            self.failures.succeeded(about)

    def _touch(self, channels: list[Channel]) -> None:
        with self.node._wiring.lock:
            self.wired(channels)

    # ── waiting ──


def _there(peer: Peer) -> bool:
    """Whether it may still deal with what it is sent: a link that breaks is replaced, perhaps twice if both dial."""
    return peer.link is not None or peer.present


def _settled(lane: Lane) -> bool:
    return not lane.waiting or lane.peer.link is None
