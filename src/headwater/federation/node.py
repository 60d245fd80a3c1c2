"""A node that may be part of a federation: `Node("lab", listen=..., connect=...)` is all that a user sees of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike
from time import monotonic
from typing import TYPE_CHECKING, Any, overload

from headwater.channel.annotations import F
from headwater.channel.channel import Channel
from headwater.channel.dispatch.thread_call import in_thread, nothing
from headwater.channel.names import Pattern
from headwater.channel.node import Failure
from headwater.channel.node import Node as LocalNode
from headwater.channel.options.config import AsyncLoop, Config
from headwater.channel.options.settings import read_toml
from headwater.channel.options.subscribe import is_coroutine
from headwater.channel.services import Service
from headwater.channel.source import Source
from headwater.channel.subscription import Subscription
from headwater.channel.time.clock import Clock
from headwater.errors import ChannelError, ConfigError, ConfigProblem, FederationError
from headwater.extras import require
from headwater.federation import alone
from headwater.federation.library.asking import Network as LibraryNetwork
from headwater.federation.library.service import LibraryService
from headwater.federation.objects.service import ObjectService
from headwater.federation.objects.zone_service import ZoneService
from headwater.federation.order.sequencers import Sequencers
from headwater.federation.patterns.placement import Placements
from headwater.federation.patterns.service import PatternService
from headwater.federation.patterns.sources import is_gone
from headwater.late import asyncio
from headwater.store import NodeState
from headwater.store.log.settings import Log

if TYPE_CHECKING:
    import builtins

    from headwater.channel.groups.service import Groups
    from headwater.channel.objects.service import Objects
    from headwater.channel.options.subscribe import Asked, Options
    from headwater.channel.patterns.operator import PatternOrder
    from headwater.channel.patterns.subscription import NamedPattern
    from headwater.channel.routing.contract import RoutedChannel
    from headwater.channel.routing.hearing import Hearing
    from headwater.federation.engine import Engine
    from headwater.federation.groups.service import GroupLanes
    from headwater.federation.library.library import Library
    from headwater.federation.logs.server import LogReads
    from headwater.federation.moving.service import Moving
    from headwater.federation.moving.source_service import MovingSources
    from headwater.federation.network import Network
    from headwater.federation.objects.remote import RemoteObjects
    from headwater.federation.order.contract import Federated
    from headwater.federation.order.sequencer import Sequencer
    from headwater.federation.patterns.placed import PlacedPattern
    from headwater.federation.policy.service import PolicyService
    from headwater.federation.report import FederationReport, RemoteCounts
    from headwater.federation.security.settings import Security
    from headwater.patterns.model import Limits
    from headwater.types import EventType

READY_SECONDS = 10.0  # seconds


class Node(LocalNode):
    """The event service of this process, alone or in a federation with others.

    `listen` and `connect` are endpoints such as "127.0.0.1:7447": nodes that lead to each other in any way find
    each other, and sinks at one get the events of sources at all. Without them no network is opened; with them it is
    open when this returns, which takes some hundred milliseconds, whoever is there by then. `scout` finds
    nodes by multicast. `security` has certificates, users and rules, without which nothing but this machine is reached.
    `network` is all of this, and more, as one value. `state` is the file in which durable subscriptions, and the node's
    key, are kept. `log` is a Log, or the path of a folder: what this node's sources publish is logged there, and
    reaches reliable sinks at other nodes even if this process is killed and started again.

    `config` is a Config, the path of a TOML file, or a dict; `clock` is for tests that advance time by hand; `on_error`
    is called with the subscription, the exception and the event whenever a handler raises.

    >>> with Node() as node:
    ...     sightings = node.channel("ie.tcd.sighting", "badge: u32, level: f64")
    ...     with sightings.subscribe(print, "level > 0.5"), sightings.source() as source:
    ...         source.publish(badge=7, level=0.7)
    """

    _engine: Engine | None = None  # of a node that has a network
    _placements: Placements | None = None
    _zones: ZoneService | None = None
    _policies: PolicyService | None = None
    _moving: Moving | None = None
    _group_lanes: GroupLanes | None = None
    _moving_sources: MovingSources | None = None

    def __init__(
        self,
        name: str | None = None,
        *,
        listen: str | int | Sequence[str] | None = None,
        connect: str | int | Sequence[str] | None = None,
        scout: bool | str | None = None,
        federation: str | None = None,
        network: Network | Mapping[str, Any] | None = None,
        security: Security | Mapping[str, Any] | str | None = None,
        state: str | PathLike[str] | NodeState | None = None,
        config: Config | str | PathLike[str] | Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        on_error: Failure | None = None,
        log: Log | str | PathLike[str] | Mapping[str, Any] | None = None,
    ) -> None:
        plain, table = split(config)
        super().__init__(name, config=plain, clock=clock, on_error=on_error, log=log)
        self._own_state = state is not None and not isinstance(state, NodeState)
        self._sequencers = self.services.add(Sequencers(self, self._in_federation))
        wanted = _network(network if network is not None else table, listen, connect, scout, federation, security)
        self.state = state if isinstance(state, NodeState) or state is None else NodeState(state)
        if wanted is None:
            self._patterns = self.services.add(PatternService(self))
            self._library = self.services.add(LibraryService(self))
            return
        from headwater.federation.engine import Engine
        from headwater.federation.exit_hook import close_at_exit
        from headwater.federation.groups.service import GroupLanes
        from headwater.federation.logs.own_logs import OwnLogs
        from headwater.federation.logs.server import LogServer
        from headwater.federation.moving.marks import Marks
        from headwater.federation.moving.resumption import Whereabouts
        from headwater.federation.moving.service import Moving
        from headwater.federation.moving.source_arrival import SourceArrival
        from headwater.federation.moving.source_departure import SourceDeparture
        from headwater.federation.moving.source_service import MovingSources
        from headwater.federation.policy.service import PolicyService

        try:
            self._engine = engine = Engine(self, wanted)
            engine.requests.register_all(each for service in self.services for each in service.requests())
            self.services.add(engine.control)
            self._patterns = self.services.add(PatternService(self, engine.context, engine.peers))
            in_force = partial(engine.requester.settled, barriers=True)
            self._placements = Placements(engine.context, engine.peers, engine.dialogue, in_force, self._patterns)
            self._policies = self.services.add(
                PolicyService(
                    engine.context,
                    engine.peers,
                    engine.fabric,
                    engine.dialogue,
                    engine.rejudgement,
                    engine.control,
                )
            )
            objects = self.services.add(ObjectService(self, engine.context))
            self._policies.watch(self._patterns.rejudge)
            self._policies.watch(objects.rejudge)
            reach = LibraryNetwork(engine.context, engine.peers, engine.dialogue)
            self._library = self.services.add(LibraryService(self, reach, engine.requester.taken_up))
            engine.installer.granting.named = engine.requester.named = self._library
            self._zones = self.services.add(
                ZoneService(self, engine.context, engine.peers, engine.dialogue, engine.links)
            )
            self._zones.attached.append(objects.attached)
            self._policies.watch(self._zones.rejudge)
            whereabouts = Whereabouts(engine.peers, engine.demands, engine.positions)
            self._moving = self.services.add(
                Moving(
                    self,
                    engine.context,
                    engine.peers,
                    engine.dialogue,
                    whereabouts,
                    in_force,
                    engine.requester.sync,
                    Marks(engine.context, engine.peers, engine.dialogue, engine.demands),
                    engine.discovery,
                )
            )
            engine.positions.departed = self._moving.registers.departed
            self._group_lanes = self.services.add(
                GroupLanes(self, engine.context, engine.peers, engine.dialogue, engine.links, engine.installer.granting)
            )
            self._policies.watch(self._group_lanes.rejudge)
            engine.also_settled.append(self._group_lanes.settled)
            engine.also_idle.append(self._group_lanes.idle)
            members = self._group_lanes.members
            leaving = SourceDeparture(
                engine.context, engine.peers, engine.demands, engine.positions, bool(wanted.multicast), members
            )
            coming = SourceArrival(
                self, engine.context, engine.peers, engine.dialogue, engine.demands, engine.positions, members
            )
            self._moving_sources = self.services.add(MovingSources(self, engine.context, leaving, coming))
            engine.also_awaited.append(coming.followers.wait)
            if self._logs is not None:
                own = OwnLogs(self._logs.settings.folder, self._logs.node)
                self.services.add(LogServer(engine.context, engine.fabric, own, engine.card))
            engine.open()
            close_at_exit(self)
        except BaseException:
            self._engine = None
            super().close(drain=False)
            raise

    def _service_added(self, service: Service) -> Callable[[], None]:
        if self._engine is None:
            return super()._service_added(service)
        requests = self._engine.requests.register_all(service.requests())
        try:
            posts = self._engine.posts.register_all(service.posts())
        except BaseException:
            requests()
            raise

        def undo() -> None:
            requests()
            posts()

        return undo

    def _in_federation(self) -> Federated | None:
        return None if self._engine is None else self._engine.federated

    @property
    def _federated(self) -> bool:  # type: ignore[override]
        return self._engine is not None

    @property
    def policies(self) -> PolicyService:
        """The policies of this node: which part of a channel somebody gets. See docs/policy.md."""
        if self._policies is None:
            raise FederationError(
                f"node {self.name!r}: policies say what leaves a node, and this one is in no federation; open it with "
                "listen= or connect="
            )
        return self._policies

    # ── channels and sources ──

    @overload
    def channel(self, name: str, type: builtins.type[F], *, context: Any = None) -> Channel[F]: ...
    @overload
    def channel(self, name: str, type: Any = None, *, context: Any = None) -> Channel[Any]: ...
    def channel(self, name: str, type: Any = None, *, context: Any = None) -> Channel[Any]:
        """As at any node; the type may also be left out for a channel that another node of the federation has."""
        if type is None and self._engine is not None and not self._has(name):
            peer = self._engine.discovery.known(name)
            if peer is not None:
                self._engine.discovery.declare(peer, name)
                return super().channel(name, context=context)
            with suppress(ChannelError):
                return super().channel(name)
            others = f"{len(self._engine.everyone())} other nodes{self._engine.permissions.hidden()}"
            raise ChannelError(
                f"channel {name!r}: expected one that exists, found none here or at {others}; declare it with a "
                "type, or wait: node.until(lambda: node.has_channel(...))"
            )
        return super().channel(name, type, context=context)

    def _has(self, name: str) -> bool:
        with self._wiring.lock:
            return name in self._channels

    def has_channel(self, name: str) -> bool:
        """Whether this node, or one that it knows of, has such a channel."""
        return self._has(name) or (self._engine is not None and self._engine.discovery.known(name) is not None)

    def _add_source(self, channel: Channel, name: str | None, **options: Any) -> Source:
        made = super()._add_source(channel, name, **options)
        if self._moving_sources is not None:
            self._moving_sources.settled(made)
        return made

    def _place_source(self, source: Source) -> None:
        if self._moving_sources is not None:
            self._moving_sources.place(source)

    def _close_source(self, source: Source) -> None:
        if self._moving_sources is not None:
            self._moving_sources.closes(source)
        super()._close_source(source)

    def _moved_sources(self, channel: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
        if self._moving_sources is None:
            return super()._moved_sources(channel)
        return self._moving_sources.of_channel(channel)

    def _move_source(self, source: Source, to: str | None, lasts: float) -> str:
        if self._moving_sources is None:
            return super()._move_source(source, to, lasts)
        return self._moving_sources.leave(source, to, lasts)

    def resume_source(self, token: str, *, timeout: float = READY_SECONDS, **options: Any) -> Source[Any]:
        """Go on with a source of another node, where it was: `token` is what its `move()` has given there.

        It has its name, type, facts, zones and priority, its sequence goes on, and whoever had its events has them from
        here; `ask`, `every`, `context` and `rate` are this node's. Publishing there is an error from now on.
        FederationError if the token was used, has expired, or is for somebody else. If the node that it was at is not
        there within `timeout` seconds, Unreachable: the same token may be tried again. See docs/moving.md."""
        if self._moving_sources is None:
            raise FederationError(f"resume_source: node {self.name!r} has no network; open it with listen= or connect=")
        return self._moving_sources.resume(token, timeout, options)

    async def aresume_source(self, token: str, **options: Any) -> Source[Any]:
        """As `resume_source`, from a coroutine: its loop goes on. Once begun it is done."""
        return await in_thread(lambda: self.resume_source(token, **options), stop=nothing)

    def _known_types(self) -> dict[str, EventType]:
        """Those of other nodes that this one has heard of, too."""
        heard = {} if self._engine is None else self._engine.discovery.types()
        return {**heard, **super()._known_types()}

    def _add_channel(self, channel: Channel) -> Channel:
        made = super()._add_channel(channel)
        if self._engine is not None:
            self._wiring.changed([made])
        return made

    # ── subscriptions ──

    def _change(self, subscription: Subscription, part: int, **what: Any) -> dict[str, int]:
        """First every source learns the new interest, then sinks are judged by it: no event is judged by a mixture."""
        if self._engine is None or not any(self._remote(channel) for channel, _ in subscription._attachments):
            return super()._change(subscription, part, **what)
        with self._engine.requester.changing(subscription, part, **what):
            return super()._change(subscription, part, **what)

    def _change_if_agreed(self, subscription: Subscription, part: int, **what: Any) -> dict[str, int]:
        if self._engine is None or not any(self._remote(channel) for channel, _ in subscription._attachments):
            return super()._change(subscription, part, **what)
        with self._engine.requester.changing(subscription, part, agreed=True, **what):
            return super()._change(subscription, part, **what)

    async def _achange(self, subscription: Subscription, part: int, **what: Any) -> dict[str, int]:
        if self._engine is None or not any(self._remote(channel) for channel, _ in subscription._attachments):
            return await super()._achange(subscription, part, **what)
        async with self._engine.requester.achanging(subscription, part, **what):
            return await super()._achange(subscription, part, **what)

    def _moves(self, what: str) -> Moving:
        if self._moving is None:
            raise FederationError(f"{what}: node {self.name!r} has no network; open it with listen= or connect=")
        return self._moving

    def _move(self, subscription: Subscription, to: str | None, lasts: float) -> str:
        return (
            super()._move(subscription, to, lasts)
            if self._moving is None
            else self._moving.leave(subscription, to, lasts)
        )

    def resume(
        self,
        token: str,
        handler: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        timeout: float = READY_SECONDS,
        **options: Any,
    ) -> Subscription[Any]:
        """Go on with a subscription of another node, where it was: `token` is what its `move()` has given there.

        It has its interest, parameters, zones and positions; `handler` and options of the hand-over (`dispatch`,
        `queue`, `batch`, ...) are this node's. `name` is another one than it had, if that is in use here.
        FederationError if the token was used, has expired, or is for somebody else. If the node that it was at is not
        there within `timeout` seconds, Unreachable: the same token may be tried again. See docs/moving.md."""
        return self._moves("resume").resume(token, handler, name, timeout, options)

    async def aresume(self, token: str, handler: Callable[..., Any] | None = None, **options: Any) -> Subscription[Any]:
        """As `resume`, from a coroutine: its loop goes on."""
        if is_coroutine(handler) and "dispatch" not in options:
            options["dispatch"] = AsyncLoop(loop=asyncio.get_running_loop())
        return await in_thread(lambda: self.resume(token, handler, **options), stop=nothing)

    def forget_moved(self, name: str) -> bool:
        """Use the name of a durable subscription that has moved away for another one; a token that nobody has used yet
        is worth nothing from then on. Whether there was such a subscription."""
        return self._moves("forget_moved").forget(name)

    @property
    def _marks(self) -> bool:
        return self._engine is not None

    def _narrowing_of(self, matching: Any) -> Any:
        return None if self._engine is None else self._engine.narrowings.make(matching)

    def _hearings(self, channel: Any, entry: Any) -> Sequence[Hearing]:
        engine = self._engine
        return (
            () if engine is None else [*engine.requester.hearings(channel, entry), *engine.barriers.hearings(channel)]
        )

    def _remote(self, channel: RoutedChannel) -> bool:
        assert self._engine is not None
        return any(peer.gone is None and peer.has(channel.name) for peer in self._engine.everyone())

    def _groups(self) -> Groups:
        found = super()._groups()
        found.carrier = self._group_lanes
        return found

    def _start(self, kind: Any, asked: list[Asked], options: Options, name: str | None, *more: Any) -> Any:
        """As at any node; where the order is to be the same for all, of the channel in that order. What has moved away
        does not go on here."""
        moving = self._moving
        if options.delivery.durable and moving is not None and not issubclass(kind, moving.kind):
            moving.check(name)
        if options.order != "total":
            made = super()._start(kind, asked, options, name, *more)
            if self._engine is not None and any(isinstance(each.target, Pattern) for each in asked):
                self._engine.discovery.look_again()
            return made
        from headwater.federation.order.total import in_order, until_sequenced

        sequence = self.sequence if self._engine is None else None
        ordered = [in_order(self, each, options, sequence) for each in asked]
        made = super()._start(kind, ordered, options, name, *more)
        if self._engine is not None:
            until_sequenced(made, self._engine.scheduler, self._engine.peers)
        return made

    def _is_first(self, subscription: Subscription[Any]) -> bool:
        if self._moving is None or subscription._options.order == "total":
            return True
        return self._moving.whereabouts.is_first(subscription)

    def sequence(self, channel: Channel | str) -> Sequencer:
        """Have this node put the events of a channel in one order, for subscriptions with order="total".

        Several nodes may do so: one works, the others stand by. Asked again, it is the same sequencer. It takes nodes
        that know all others."""
        if self._engine is not None and self._engine.fabric.named:
            raise FederationError(
                "sequence: expected a node that knows all others of its federation, for more than half of them choose "
                'who sequences, found Network(acquaintance="named"); use "all"'
            )
        return self._sequencers.sequence(self.channel(channel) if isinstance(channel, str) else channel)

    # ── patterns ──

    def pattern(  # type: ignore[override]
        self,
        name: str,
        pattern: Any,
        *,
        to: str | Channel | None = None,
        params: Mapping[str, Any] | None = None,
        aliases: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        order: PatternOrder = "time",
        at: str | None = None,
    ) -> NamedPattern | PlacedPattern:
        """As at any node. In a federation it has one home: the node that all its sources are at, or this one, or the
        one that `at` names."""
        if self._placements is None:
            if at not in (None, self.name):
                raise FederationError(f"pattern {name!r}: at: expected this node, which has no network, found {at!r}")
            return super().pattern(name, pattern, to=to, params=params, aliases=aliases, limits=limits, order=order)
        return self._placements.make(name, pattern, to, params, aliases, limits, order, at)

    def _is_gone(self, position_key: str) -> bool:
        """As far as the node it was at has said; one that is away may come back with it."""
        return self._engine is None or is_gone(position_key, self._engine.everyone())

    def _position_key(self, source: Source) -> str | None:
        engine = self._engine
        return None if engine is None else f"{engine.id}/{engine.incarnation}/{source.number}"

    # ── objects ──

    def _spreading(self) -> ZoneService | None:
        return self._zones

    def objects_at(self, node: str) -> Objects | RemoteObjects:
        """The objects of another node: they are read there, and transactions are run there; of this one, its own."""
        if node == self.name:
            return self.objects
        if self._engine is None:
            raise FederationError(f"objects_at: expected this node, which has no network, found {node!r}")
        from headwater.federation.objects.remote import RemoteObjects

        engine = self._engine
        return RemoteObjects(node, engine.context, engine.peers, engine.dialogue, engine.holds)

    # ── the library ──

    @property
    def library(self) -> Library:
        """Named, versioned, signed interests, patterns and triggers: published here, or found at other nodes."""
        return self._library.opened()

    def _by_name(self, where: str) -> Any:
        return self.library.find(where)

    # ── the federation ──

    @property
    def id(self) -> str:
        """In the federation: its name, and the beginning of its key's fingerprint."""
        return self.name if self._engine is None else self._engine.id

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where it can be reached: what others may give as `connect`."""
        return () if self._engine is None else tuple(self._engine.fabric.endpoints)

    @property
    def peers(self) -> list[str]:
        """The names of the other nodes that are there."""
        if self._engine is None:
            return []
        return sorted(peer.name for peer in self._engine.everyone() if peer.gone is None and peer.state is not None)

    def remote_sources(self, channel: str) -> list[str]:
        """The sources of a channel that other nodes advertise, as "name@node"."""
        if self._engine is None:
            return []
        return sorted(
            f"{ad.name}@{peer.name}"
            for peer in self._engine.everyone()
            if peer.gone is None
            for ad in peer.sources
            if ad.channel == channel
        )

    def until(self, condition: Callable[[], bool], timeout: float = READY_SECONDS) -> bool:
        """Wait until a condition holds, which is looked at whenever something happens in the federation, and now and
        then; False if it does not within `timeout` seconds. A node without a federation looks now and then."""
        if self._engine is None:
            return alone.until(condition, timeout)
        return self._engine.scheduler.until(condition, timeout)

    def ready(self, timeout: float = READY_SECONDS, *, reached: int | None = None) -> bool:
        """Wait until every node that is there has taken up, or refused, what this node's sinks want; False if too late.

        That is so of every source that was advertised anywhere before this is called, as far as its node is known by
        then: each node is asked what it has. From then on sinks miss nothing that those sources publish. An endpoint of
        `connect` at which nobody has ever been reached is waited for too, unless so many as `reached` says were: with
        `reached=1` a node is ready beside one of those that it names, and what is behind the others is heard from when
        they are there. `unready()` says what was not so in time; what is waited for in detail:
        `federation/readiness.py`."""
        _check_reached(reached)
        engine = self._engine
        if engine is None:
            return True
        from headwater.federation.readiness import Readiness

        return Readiness(engine, reached).wait(timeout)

    async def auntil(self, condition: Callable[[], bool], timeout: float = READY_SECONDS) -> bool:
        """As `until`, from a coroutine: its loop goes on, and the condition is looked at there."""
        if self._engine is None:
            return await alone.auntil(condition, timeout)
        return await self._engine.scheduler.auntil(condition, timeout)

    async def aready(self, timeout: float = READY_SECONDS, *, reached: int | None = None) -> bool:
        """As `ready`, from a coroutine: its loop goes on."""
        _check_reached(reached)
        if self._engine is None:
            return True
        from headwater.federation.readiness import Readiness

        return await Readiness(self._engine, reached).await_(timeout)

    def unready(self) -> list[str]:
        """What the last `ready()` waited for in vain, in words; empty if it said True."""
        return [] if self._engine is None else list(self._engine.unready)

    def flush(self, timeout: float = READY_SECONDS) -> bool:
        """Wait until the nodes that are there have dealt with all that was published for reliable subscriptions.

        Of a source that has come from another node, also those that had its events there, and have yet to ask here.
        False if that takes longer than `timeout` seconds, or if something is kept for a node that is away."""
        return True if self._engine is None else self._engine.flush(timeout)

    async def aflush(self, timeout: float = READY_SECONDS) -> bool:
        """As `flush`, from a coroutine: its loop goes on."""
        engine, given_up = self._engine, threading.Event()
        if engine is None:
            return True
        return await in_thread(lambda: engine.flush(timeout, given_up), stop=given_up.set)

    def renew_security(self) -> None:
        """Take up what the files of its security say now: a renewed certificate, other authorities, what is revoked.

        A running node looks at them every second anyway. ConfigError if something is wrong with them; what was good
        last goes on then."""
        if self._engine is not None:
            self._engine.renew_security(force=True)
            if problem := self._engine.keyring.credentials.problem:
                raise ConfigError([ConfigProblem("security", "files that are right", problem)])

    def federation_report(self) -> FederationReport:
        """The other nodes, the links to them, what crosses them, and what was refused."""
        from headwater.federation.report_collection import federation

        return federation(self, self._engine)

    @property
    def log_reads(self) -> LogReads:
        """What others have asked this node's log for, and the rows and bytes that have left it for that."""
        from headwater.federation.logs.server import LogReads, LogServer

        server = self.services.get(LogServer.name)
        return server.counts if isinstance(server, LogServer) else LogReads()

    def remote_counts(self, subscription: Subscription) -> list[RemoteCounts]:
        """What a subscription's interest has done at the sources of other nodes, which are asked for it: how many
        events were evaluated there, and how many crossed."""
        from headwater.federation.report_collection import remote_counts

        return remote_counts(self._engine, subscription)

    # ── the end ──

    def _depart(self, drain: bool, until: float) -> None:
        if self._engine is not None and not self._engine.closed:
            if drain:
                self._engine.flush(max(0.0, until - monotonic()))
            self._engine.close()

    def _leave_all(self, drain: bool, until: float) -> None:
        try:
            super()._leave_all(drain, until)
        finally:
            if self.state is not None and self._own_state:
                self.state.close()


def split(config: Any) -> tuple[Any, Mapping[str, Any] | None]:
    """What a configuration says of the node, and what of its network."""
    if isinstance(config, Mapping) and "network" in config:
        return {name: value for name, value in config.items() if name != "network"}, config["network"]
    if isinstance(config, str | PathLike):
        with suppress(ConfigError):  # it is read again, and refused, where the node's own settings are wanted
            table = read_toml(config)
            return split(table) if "network" in table else (config, None)
    return config, None


def _network(given: Any, listen: Any, connect: Any, scout: Any, federation: Any, security: Any) -> Network | None:
    """The network that is wanted, if any is."""
    if given is None and listen is None and connect is None and not scout:
        return None
    require("federation", "a node that works with others (listen, connect, scout, network)")
    from headwater.federation.network import Network
    from headwater.federation.security.settings import Security

    secure = None if security is None else Security.of(security)
    made = Network.of(given, listen=listen, connect=connect, scout=scout, federation=federation, security=secure)
    return made if made.wanted else None


def _check_reached(reached: int | None) -> None:
    if reached is not None and (not isinstance(reached, int) or isinstance(reached, bool) or reached < 0):
        raise ConfigError(
            [ConfigProblem("ready: reached", "how many endpoints are enough, or None for all", repr(reached))]
        )


__all__ = ["Node", "Source"]
