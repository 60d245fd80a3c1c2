"""The network of one node: makes the parts of a federation, gives each what it needs, and joins and leaves with them.

    Context       who this node is, its settings, its scheduler: what all parts share        (context.py)
    Fabric        everything Zenoh                                                           (fabric/fabric.py)
    Demands       what sinks here want                                                       (demand/demand.py)
    Arrivals      sources of other nodes, as they come                                       (arrive/arrivals.py)
    Presence      who is there                                                               (peers/presence.py)
    Membership    what each of them has                                                      (peers/membership.py)
    Connections   a stream to each, or Zenoh's path                                          (peers/connections.py)
    Installer     what other nodes ask of this one's sources                                 (interests/installer.py)
    Requester     what this node asks of other nodes' sources                                (interests/requester.py)
    Groups        channels that go to multicast groups                                       (multicast/groups.py)

Parts do not know the engine, nor parts above them: what those are to do, they declare as protocols and hooks, which are
set here. Directions are in tools/check_imports.py.

Zenoh's threads, the readers of streams, publishers and users all come in here. `Wiring.lock` is taken before the lock
of `Peers`, never the other way round; nobody waits for the network while holding either.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.errors import (
    ConfigError,
    ConfigProblem,
    HeadwaterError,
)
from headwater.federation.arrive.arrivals import Arrivals
from headwater.federation.arrive.log_positions import LogPositions
from headwater.federation.arrive.paths import Origins
from headwater.federation.context import Context
from headwater.federation.control_events import ControlEvents
from headwater.federation.demand.demand import Demands
from headwater.federation.endpoints import ENCRYPTED, protocol, resolve
from headwater.federation.fabric.fabric import Fabric
from headwater.federation.fabric.incarnation import next_incarnation
from headwater.federation.failures import Failures
from headwater.federation.interests.channel_discovery import ChannelDiscovery
from headwater.federation.interests.installer import Installer
from headwater.federation.interests.rejudgement import Rejudgement
from headwater.federation.interests.requester import Requester
from headwater.federation.multicast.groups import Groups
from headwater.federation.network import Network
from headwater.federation.objects.holds import Holds
from headwater.federation.order.contract import Federated
from headwater.federation.order.election import Ballots
from headwater.federation.patterns.narrowing import Narrowings
from headwater.federation.patterns.past import PastReader
from headwater.federation.peers.barriers import Barriers
from headwater.federation.peers.connections import Connections
from headwater.federation.peers.description import Description
from headwater.federation.peers.dialogue import Dialogue
from headwater.federation.peers.membership import Membership
from headwater.federation.peers.parts import Parts
from headwater.federation.peers.peer import Peer
from headwater.federation.peers.permissions import Permissions
from headwater.federation.peers.post_registry import PostRegistry
from headwater.federation.peers.presence import Presence
from headwater.federation.peers.request_registry import Caller, Postponed, RequestRegistry
from headwater.federation.peers.table import Peers
from headwater.federation.scheduler import BEAT_SECONDS, TICK_SECONDS, Scheduler
from headwater.federation.security.decisions import Claim, Decisions
from headwater.federation.security.envelope import Opened
from headwater.federation.security.keyring import Keyring
from headwater.federation.security.offences import Offences
from headwater.federation.security.quotas import Quotas
from headwater.federation.security.tls import zenoh_settings
from headwater.federation.security.user_proof import UserProofs
from headwater.federation.send.lane import Lane
from headwater.federation.transport.addresses import stream_endpoints
from headwater.federation.transport.contacts import Contacts
from headwater.federation.transport.handshake import Reception
from headwater.federation.transport.listener import Listener
from headwater.federation.transport.sender import Pulse
from headwater.federation.wire import requests as messages
from headwater.federation.wire.past_requests import Past

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.federation.multicast.sockets import Multicast

log = logging.getLogger("headwater.federation")
GATHER_SECONDS = 0.002  # for which a change waits for others like it; and, if there are ever more, at most
LONGEST_GATHER_SECONDS = 0.02
BOX_BYTES = 1024  # bytes that a message is larger at most when it is only for one node


class Engine:
    """Made by a node that has a network; `open` joins the federation, `close` leaves it."""

    def __init__(self, node: Node, network: Network) -> None:
        self.node, self.network, self.security = node, network, network.security
        self.context = context = self._context()
        self.keyring, self.scheduler = context.keyring, context.scheduler
        self.offences, self.failures = context.offences, context.failures
        self.id, self.incarnation = context.id, context.incarnation
        self.listener: Listener | None = None
        self.unready: list[str] = []  # what the last `ready` still waited for
        self.also_idle: list[Callable[[], bool]] = []  # and `flush`: services that other nodes have to answer
        # And `flush`, first of all: nodes that have yet to ask here, until a time, or until who waits has given up.
        self.also_awaited: list[Callable[[float, threading.Event], bool]] = []
        self.also_settled: list[Callable[[], bool]] = []  # what `ready` waits for beside: services that ask other nodes
        self._touched: set[Channel] = set()
        self._more = threading.Event()  # and again something else
        # what is below peers
        self.control = ControlEvents(context)
        self.demands = Demands(node, network.placement)
        self.demands.claim = self._claim
        self.positions = LogPositions(node, self.demands)
        self.origins = Origins(context.scheduler, network.lease)
        self.fabric = self._fabric()
        self.contacts = Contacts(context, self.fabric)
        # peers
        self.peers = Peers()
        self.barriers = Barriers(context)
        self.groups = None if network.multicast is None else Groups(context, self.peers)
        self.arrivals = Arrivals(context, self.demands, self.positions, self.origins)
        self.posts = PostRegistry()
        parts = Parts(context, Pulse(), self.arrivals, self.barriers, self.groups, self.posts)
        description = Description(
            context, is_offered=self._is_offered, streams=self._streams, session=lambda: self.fabric.session_id
        )
        self.dialogue = Dialogue(context, self.fabric, description)
        self.permissions = Permissions(context, self.peers, self.fabric, self.dialogue, self.demands, self.control)
        self.presence = Presence(
            context,
            self.peers,
            self.fabric,
            self.dialogue,
            description,
            self.permissions,
            self.control,
            partial(Peer, parts),
        )
        self.membership = Membership(
            context, self.peers, self.fabric, self.dialogue, description, self.control, self.presence
        )
        self.links = Connections(context, self.peers, self.fabric, self.dialogue, self.membership)
        # what crosses, and what is above it
        self.installer = Installer(context, self.peers, self.barriers, self.links, self.control, self.groups)
        self.requester = Requester(
            context,
            self.peers,
            self.demands,
            self.positions,
            self.dialogue,
            self.links,
            self.control,
            self.groups,
        )
        self.rejudgement = Rejudgement(context, self.peers, self.installer, self.dialogue, self.control)
        self.installer.expired = lambda channel, user: self.rejudgement.moved(lambda each: each == channel, user)
        self.holds = Holds(self.requester)
        self.narrowings = Narrowings(context, self.peers, self.requester, self.dialogue)
        self.discovery = ChannelDiscovery(context, self.peers, self.permissions, self.requester)
        parts.registrar, parts.attendance, parts.requests = self.membership, self.presence, self.requester
        self.ballots = Ballots(context, self.peers, self.origins.fence)
        self.federated = Federated(
            context,
            self.peers,
            self.ballots,
            self.dialogue,
            self.demands,
            self.origins,
            partial(self.requester.settled, barriers=True),
            self.membership.look_round,
        )
        self.requests = RequestRegistry(node.name)
        self._register_requests()
        self.card = description.card
        self._connect()

    def _context(self) -> Context:
        """Who this node is, and what all parts share."""
        node, network, security = self.node, self.network, self.security
        # Streams are accepted where Zenoh listens, unless `direct` says otherwise: what the user wrote is what counts.
        endpoints = [*network.listen_at, *network.connect_to, *(network.direct_at or ())]
        loopback = security.check_endpoints(endpoints, scout=network.scout, place=f"node {node.name}")
        incarnation = next_incarnation(node.state, node.name, time.time_ns)
        keyring = Keyring(
            security,
            network.federation,
            self._identity(),
            incarnation,
            loopback=loopback,
            lives=lambda node, run: self.presence.lives(node, run),
        )
        scheduler = Scheduler(node.name, node._crashes, lambda: self.context.closed)
        decisions, quotas = Decisions(security), Quotas(network.rates)
        proofs = UserProofs(security, network.federation)
        decisions.prove, decisions.until = proofs, proofs.until
        return Context(node, network, keyring, scheduler, Offences(node.name), Failures(node.name), decisions, quotas)

    def _claim(self, claimant: Any) -> Claim:
        """What this node says, with proof, of a user that it asks for."""
        keyring = self.context.keyring
        claim: Claim = claimant.claim(keyring.federation, keyring.credentials.identity.fingerprint)
        return claim

    def _identity(self) -> Any:
        state, name = self.node.state, self.node.name
        stored = None if state is None else state.secret(f"identity/{name}")
        identity = self.security.identity(name, stored)
        if state is not None and stored is None and not identity.chain:
            state.keep(f"identity/{name}", identity.to_bytes())
        return identity

    def _fabric(self) -> Fabric:
        network = self.network
        return Fabric(
            network.federation,
            self.id,
            self.incarnation,
            listen=network.listen_at,
            connect=network.connect_to,
            scout=network.scout,
            mode="router" if network.router else "client" if network.client else "peer",
            lease=network.lease,
            settings=zenoh_settings(self.security),
            limit=self.security.limit + BOX_BYTES,
            crashes=self.node._crashes,
            named=network.acquaintance == "named",
        )

    def _connect(self) -> None:
        """What comes from the network, and what comes again with time, goes where it belongs."""
        fabric, dialogue, membership, scheduler = self.fabric, self.dialogue, self.membership, self.scheduler
        fabric.on_join, fabric.on_leave = membership.joined, self.presence.left
        fabric.on_roll, fabric.on_news = dialogue.on_introduction, membership.on_news
        fabric.on_ask, fabric.on_post = dialogue.on_ask, self.links.on_post
        fabric.on_session, fabric.on_link = self.contacts.reset, self.contacts.linked
        fabric.proven = self.presence.proven
        dialogue.requests, dialogue.on_request, dialogue.on_card = self.requests, self.answer, membership.introduced
        dialogue.on_sign = membership.said_to_be_there
        self.presence.links, self.presence.installer = self.links, self.installer
        self.presence.look_at_wants, membership.sources_gone = membership.look_at_wants, self.installer.sources_gone
        membership.on_advertised = self.discovery.advertised
        scheduler.every(0.0, self.sync, wanted=lambda: bool(self._touched))
        scheduler.every(TICK_SECONDS, self._acknowledge, wanted=lambda: scheduler.ticking)
        scheduler.every(BEAT_SECONDS, self.installer.promise, wanted=lambda: self.installer.promising)
        scheduler.every(min(1.0, self.network.lease / 3), self._look_around)

    def _is_offered(self, channel: str) -> bool:
        return self.discovery.is_offered(channel)

    def _streams(self) -> Sequence[str] | None:
        return None if self.listener is None else self.listener.endpoints

    @property
    def closing(self) -> bool:
        return self.context.closing

    @property
    def closed(self) -> bool:
        return self.context.closed

    # ── beginning and end ──

    def open(self) -> None:
        """Join the federation."""
        wanted = stream_endpoints(self.network, secure=self.keyring.credentials.contexts is not None)
        self._check_names()
        try:
            if wanted:
                contexts = self.keyring.credentials.contexts
                server = None if contexts is None else contexts[0]
                self.listener = Listener(wanted, tls=server, greet=partial(Reception, self.links.host))
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

    def flush(self, timeout: float, given_up: threading.Event | None = None) -> bool:
        """Until everything that was published reliably has been acknowledged by those who are there; or it is too late,
        or who waits for it has given up. Whether all have who want it, as far as is known; who is away has not."""
        given_up = given_up or threading.Event()
        end = monotonic() + timeout
        asked = all(wait(end, given_up) for wait in self.also_awaited)
        while self._await_lanes(end, given_up):
            pass  # somebody may have asked meanwhile
        shared = self.groups is None or self.groups.flush(end, given_up)
        beside = self.scheduler.until(lambda: self._are_idle() or given_up.is_set(), max(0.0, end - monotonic()))
        if given_up.is_set() or not (asked and shared and beside):
            return False
        return not any(lane.waiting for peer in self.everyone() for lane in peer.lanes() if lane.crossing.reliable)

    def _await_lanes(self, end: float, given_up: threading.Event) -> bool:
        """Until each of them has had nothing waiting; whether some had, and there is time to look again."""
        waited = False
        for peer in self.everyone():
            for lane in list(peer.lanes()):
                while lane.waiting and lane.crossing.reliable and _there(peer):
                    if given_up.is_set() or monotonic() >= end:
                        return False
                    waited = True
                    lane.wait(partial(_settled, lane, peer), min(0.2, end - monotonic()))
        return waited

    def _are_idle(self) -> bool:
        return all(idle() for idle in self.also_idle)

    def close(self) -> None:
        """Leave it: others are told, and nothing is left running."""
        with self.peers.lock:
            if self.context.closed:
                return
            self.context.closed = self.context.closing = True
        for peer in self.everyone():
            with suppress(HeadwaterError):
                peer.acknowledge()
            peer.close("its node was closed")
        if self.groups is not None:
            self.groups.close()
        self.scheduler.wake()
        self.narrowings.close()
        if self.listener is not None:
            self.listener.close()
        self.fabric.close()
        self.scheduler.stop()
        self.scheduler.changed()

    # ── what has changed here ──

    def wired(self, channels: Iterable[Channel]) -> None:
        """Members or sources of these channels have changed; the wiring's lock is held."""
        for channel in channels:
            at: Channel | None = channel
            while at is not None:  # what is wanted of a derived channel is wanted of the one it comes from
                self._touched.add(at)
                at = at.parent
        self._more.set()
        self.scheduler.wake()
        self.scheduler.watched()

    def renew_security(self, *, force: bool = False) -> None:
        """Take up what the files of its security say now; who is not vouched for any more has to go."""
        if self.keyring.renew(force=force):
            log.info("node %s: its certificate, or its authorities, were renewed", self.node.name)
            contexts = self.keyring.credentials.contexts
            if self.listener is not None and contexts is not None:
                self.listener.renew(contexts[0])
            self.membership.tell_again()  # so that others know of the new certificate before the old one expires
            if any(protocol(str(each)) in ENCRYPTED for each in (*self.fabric.endpoints, *self.network.connect_to)):
                self.fabric.reopen()
        self.presence.check_vouched()

    # ── others ──

    def everyone(self) -> list[Peer]:
        return self.peers.everyone()

    # ── questions ──

    def answer(self, opened: Opened, request: messages.Request) -> messages.Reply | Postponed:
        """To what another node asks, having proven who it is."""
        return self.requests.answer(Caller(self.membership.signed_by(opened), opened), request)

    def _register_requests(self) -> None:
        """What the parts of every node of a federation answer."""
        register = self.requests.register
        register(messages.Install, lambda who, asked: self.installer.install(who.peer, who.principal, asked))
        register(messages.Ask, lambda who, asked: self.installer.tell(who.peer, asked))
        register(messages.Routed, lambda who, asked: self.links.use_routed(who.peer, asked))
        register(messages.Describe, lambda who, asked: self.membership.describe_to(who.peer, who.opened, asked))
        register(messages.Latest, lambda _, __: messages.LatestIs(self.membership.latest()))
        register(messages.MaySubscribe, lambda who, asked: self.permissions.answer(who.peer, who.principal, asked))
        register(messages.Heard, self._heard)
        register(messages.Judged, self._judged)
        register(Past, PastReader(self.context, self.installer.granting).answer)

    def _judged(self, who: Caller, request: messages.Judged) -> messages.Accepted:
        self.requester.judged(who.peer, request)
        return messages.Accepted()

    def _heard(self, who: Caller, request: messages.Heard) -> messages.Accepted:
        heard = self.discovery.heard(who.peer, request.channel, request.source)
        return messages.Accepted("" if heard else "not yet")

    @property
    def multicast(self) -> Multicast | None:
        """The sockets of multicast groups, if there are any."""
        return None if self.groups is None else self.groups.multicast

    # ── time ──

    def _gather(self) -> None:
        """What is changed in one go is told, and asked for, in one go."""
        end = monotonic() + LONGEST_GATHER_SECONDS
        while self._more.wait(GATHER_SECONDS) and monotonic() < end:
            self._more.clear()

    def sync(self) -> None:
        """Tell others what has changed, and ask them for what is wanted now. What fails for some channels is tried
        again, and keeps no other channel waiting."""
        self._gather()
        with self.node._wiring.lock:
            touched, self._touched = self._touched, set()
        self._attempt("news of this node", touched, self.membership.tell_news)
        self._attempt("sources that are gone", touched, partial(self.installer.sweep, touched))
        for channel in touched:
            self._attempt(channel.name, [channel], partial(self._sync_channel, channel))
        self._attempt("what other nodes do not list", touched, partial(self.permissions.touched, touched))
        self._attempt("patterns", (), self.narrowings.look)

    def _sync_channel(self, channel: Channel) -> None:
        with self.node._wiring.lock:
            self.positions.unwanted(channel)
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

    def _acknowledge(self) -> None:
        """A tick: tell peers what no sink of this node needs again."""
        self.scheduler.ticking = False  # before it is looked, so that nobody's call for a tick is lost
        for peer in self.everyone():
            if peer.unacknowledged:
                self.scheduler.guarded(self._acknowledge_one, peer)

    def _acknowledge_one(self, peer: Peer) -> None:
        if peer.acknowledge():
            self.scheduler.ticking = True

    def _look_around(self) -> None:
        """Now and then: rates of channels, who is still there, files of security, and times of what waits."""
        guarded = self.scheduler.guarded
        guarded(self.installer.granting.measure)
        guarded(self.membership.look_around)
        guarded(self.presence.look_around)
        guarded(self.renew_security)
        guarded(self.narrowings.look)
        for peer in self.everyone():
            guarded(peer.date)


def _there(peer: Peer) -> bool:
    """Whether it may still deal with what it is sent: a link that breaks is replaced, perhaps twice if both dial."""
    return peer.link is not None or peer.present


def _settled(lane: Lane, peer: Peer) -> bool:
    return not lane.waiting or not _there(peer)
