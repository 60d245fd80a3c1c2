"""`Names`: the naming service of a node. It looks names up, advertises them, watches and subscribes to them; and serves
domains, if its settings say so."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.names import check_name
from headwater.channel.options.subscribe import is_coroutine
from headwater.channel.services import Service
from headwater.errors import FederationError, HeadwaterError, SubscriptionError
from headwater.federation.naming.advertisement import Advertisements
from headwater.federation.naming.carrier import Carrier
from headwater.federation.naming.chores import Chores
from headwater.federation.naming.domain_server import DomainServer, served_anchors
from headwater.federation.naming.lookup import ASK_SECONDS, Lookups
from headwater.federation.naming.named_subscription import NamedSubscription
from headwater.federation.naming.reach import Reach, engine_of
from headwater.federation.naming.replication import Replication
from headwater.federation.naming.settings import NameSettings
from headwater.federation.naming.signatures import Signatures, read_document
from headwater.federation.naming.watch import NameWatch
from headwater.federation.peers.request_registry import Postponed
from headwater.federation.transport.addresses import announced
from headwater.federation.wire.name_requests import (
    CarryName,
    CompareNames,
    DomainsAre,
    LookUpName,
    NameIs,
    NameRegistered,
    OfferNames,
    RegisterName,
    TellDomains,
)
from headwater.federation.wire.requests import Accepted
from headwater.services.documents import SignedDocument
from headwater.services.naming.address import MOST_ENDPOINTS, NodeAddress
from headwater.services.naming.answer_cache import Answer
from headwater.services.naming.domains import ROOT, check_domain
from headwater.services.naming.resolver import Step
from headwater.services.naming.zone_book import ZoneBook
from headwater.threads import Supervised, Worker

if TYPE_CHECKING:
    from headwater.federation.naming.name_change import NameChange
    from headwater.federation.node import Node
    from headwater.federation.peers.request_registry import Caller

log = logging.getLogger("headwater.federation")
THREADS = 4  # lookups that a node finds out for others at a time
BEAT_SECONDS = 0.5  # after which is looked what is due
COMPARE_SECONDS = 5.0  # after which servers of a domain compare what they have
ABOVE_SECONDS = 10.0  # after which a server asks what is above its domains again
WAITING = 1_024  # tasks
WATCH_SECONDS = 10.0  # in which a watch is in force, as a rule


class Names(Service):
    """The naming service of a node that has a network, from now until the node is closed.

    `settings` are those of `headwater.names.NameSettings`: a value, a table, or a TOML file.

    >>> names = Names(node, "names.toml")
    >>> names.advertise("ie.tcd.cs.ActiveBadge")
    >>> names.subscribe("ie.ucc.door", print, "open")
    """

    name = "names"

    def __init__(self, node: Node, settings: NameSettings | Mapping[str, Any] | str | os.PathLike[str]) -> None:
        self.node, self.settings = node, NameSettings.of(settings)
        engine = engine_of(node)
        self._engine, self._identity = engine, engine.keyring.credentials.identity
        signatures = Signatures()
        self.book = ZoneBook(served_anchors(self.settings, signatures), signatures.verify, time.time_ns)
        self.reach = Reach(node, idle=engine.network.keep)
        self.address = NodeAddress(engine.id, self.reach.federation, self._entry())
        self.server: DomainServer | None = None
        if self.settings.serve:
            self.server = DomainServer(node, self._identity, self.address, self.settings, self.book, signatures)
        self._worker = Worker(f"{node.name}-names", WAITING, threads=THREADS, crashes=node._crashes)
        self._chores = Chores(f"{node.name}-names-chores", node._crashes)
        self.lookups = Lookups(self.reach, self.book, self.server, self.settings.servers, self._worker)
        if self.server is not None:
            self.lookups.climb = self._look_above
        self._replication = (
            None if self.server is None else Replication(self.server, self.reach, self.book, self._worker)
        )
        self._advertised = Advertisements(self._identity, self.address, self.reach, self.lookups, self.server)
        self._carrier = Carrier(self.reach, self.lookups, self._follow_name) if self.settings.carries else None
        self._lock = threading.Lock()
        self._watches: list[NameWatch] = []
        self._subscriptions: dict[NamedSubscription, NameWatch | None] = {}
        self._changed: dict[str, set[str]] = {}  # names of which something has changed, and nodes that are gone
        self._ended, self._wake = threading.Event(), threading.Event()
        self._above = 0.0  # when to ask what is above the domains here
        self._beat = Supervised(self._keep, f"{node.name}-names", node._crashes, again=lambda: not self._ended.is_set())
        node.services.add(self)

    def _entry(self) -> tuple[str, ...]:
        """By which others get into this node's federation."""
        network = self._engine.network
        given = self.settings.entry or announced(self.node.endpoints) or [str(each) for each in network.connect_to]
        return tuple(given)[:MOST_ENDPOINTS]

    # ── looking up ──

    def lookup(self, name: str, *, fresh: bool = False) -> Answer:
        """All sources of a name, from a cache if they are known (not if `fresh`); NameUnresolved if that cannot be
        found out. That nobody has sources is an answer."""
        return self.lookups.look_up(name, fresh=fresh)

    def trace(self, name: str) -> tuple[Answer, list[Step]]:
        """Look a name up step by step, by asking the servers of its domains; with what each has said."""
        return self.lookups.trace(name)

    # ── advertising ──

    def advertise(self, *names: str) -> None:
        """Have this node known for having sources of names, with the consent of their domains; FederationError, with
        the reason, if one does not consent. It is renewed until it is withdrawn, or the node is closed."""
        for name in names:
            self._advertised.advertise(check_name(name))

    def withdraw(self, name: str) -> None:
        """Say that this node has no sources of a name any more."""
        self._advertised.withdraw(name)

    @property
    def advertised(self) -> dict[str, str]:
        """What this node advertises by name, and what is wrong with each, if anything."""
        return self._advertised.names

    def renew(self, document: str | os.PathLike[str] | SignedDocument) -> None:
        """Take up another zone of a domain that is served here, signed by its owner, from a file as `headwater names
        sign` writes it; the other servers of the domain hear of it. SecurityError if it is not the owner's, or not
        newer."""
        signed = document if isinstance(document, SignedDocument) else read_document(document)
        if self.server is None or signed.document.name not in self.server.domains:
            found = f"{signed.document.name!r}, which is not served here"
            raise FederationError(f"names: renew: expected a zone of a domain that is, found one of {found}")
        self.book.accept(signed)
        self._chores.do("compare", lambda: self._guarded(self.reconcile))

    # ── watching and subscribing ──

    def watch(self, target: str, handler: Callable[[NameChange], object], where: str | None = None) -> NameWatch:
        """Be told what becomes of a name, or of all names of a domain: `NameChange` events of the domain's servers, of
        those that pass an interest. NameUnresolved if the domain cannot be found."""
        text = check_domain(target)
        known = self.book.known(text)
        name: str | None = text
        if known is not None:
            domain, name = text, None
        else:
            domain = self.lookup(text).domain
        made = NameWatch(self.reach, self.book, domain, name, handler, where)
        with self._lock:
            self._watches.append(made)
        return made

    def subscribe(
        self, name: str, /, handler: Callable[..., object], where: Any = None, *, follow: bool = True, **options: Any
    ) -> NamedSubscription:
        """Subscribe to all sources of a name, in whichever federations they are; `follow`: also to those that come
        later. Options are those of `channel.subscribe`. NameUnresolved if the name cannot be looked up."""
        if not callable(handler) or is_coroutine(handler):
            found = "a coroutine function" if callable(handler) else repr(handler)
            hint = "of the event, or of the event and an About; in a coroutine, have it put events into a queue"
            raise SubscriptionError(f"name {name!r}: handler: expected a function, found {found}; {hint}")
        answer = self.lookup(name, fresh=True)
        delivery = options.get("delivery")
        lasts = bool(getattr(delivery, "durable", False)) or getattr(delivery, "within", None) is not None
        for place in answer.places if lasts else ():
            self._check_lasting(name, place)
        made = NamedSubscription(name, handler, where, options, self.reach, lambda to: self._route(name, to, lasts))
        made.follows = follow
        watch = self._follow_name(name) if follow and not self._elsewhere(answer) else None
        with self._lock:
            self._subscriptions[made] = watch
        made.update(answer)
        if watch is not None:
            self._chores.do(("begin", made), lambda: self._begin(made, watch))
        return made

    def _begin(self, subscription: NamedSubscription, watch: NameWatch) -> None:
        """What has changed between the lookup and the moment from which on changes are told is not missed."""
        watch.ready(WATCH_SECONDS)
        if not subscription.closed:
            self._again(subscription.name, ())
            self._wake.set()

    def _follow_name(self, name: str) -> NameWatch:
        return self.watch(name, self._on_change)

    def _elsewhere(self, answer: Answer) -> bool:
        """Whether a name's domain is served in other federations only, and those are a gateway's to be in."""
        known = self.book.known(answer.domain)
        servers = () if known is None else known.zone.servers
        return bool(self.settings.gateway) and all(each.federation != self.reach.federation for each in servers)

    def _check_lasting(self, name: str, address: NodeAddress) -> None:
        """What a subscription has had is kept by this node, and so only of what comes to it: a leg forgets."""
        if address.federation != self.reach.federation and not self.settings.gateway:
            raise SubscriptionError(
                f"name {name!r}: delivery: expected one that ends with the process, since {address.brief} is in "
                "another federation, found a durable one; have a gateway carry the name (gateway = in the settings)"
            )

    def _route(self, name: str, address: NodeAddress, lasts: bool) -> NodeAddress:
        """At which node to have the events of a node's sources: of another federation, at the gateway if there is
        one."""
        if lasts:
            self._check_lasting(name, address)
        if address.federation == self.reach.federation or not self.settings.gateway:
            return address
        gateway = NodeAddress(self.settings.gateway, self.reach.federation)
        self.reach.ask(gateway, CarryName(name))
        return gateway

    def _on_change(self, event: NameChange) -> None:
        self.lookups.cache.forget(event.name)
        if self._carrier is not None:
            self._carrier.changed(event.name)
        with self._lock:
            gone = self._changed.setdefault(event.name, set())
            (gone.add if event.change == "withdrawn" else gone.discard)(event.id)
        self._wake.set()

    # ── for other nodes ──

    def requests(self) -> Iterable[tuple[Any, Callable[..., Any]]]:
        """What other nodes may ask."""
        yield LookUpName, self.lookups.answer
        yield TellDomains, self._tell
        if self.server is not None:
            yield RegisterName, self.server.register
            yield CompareNames, self.server.compare
            yield OfferNames, self.server.offered
        if self._carrier is not None:
            yield CarryName, self._carry

    def _tell(self, caller: Caller, request: TellDomains) -> DomainsAre:
        return DomainsAre({}) if self.server is None else self.server.tell()

    def _carry(self, caller: Caller, request: CarryName) -> Postponed:
        def begin(tell: Callable[[Any], None]) -> None:
            def run() -> None:
                assert self._carrier is not None
                try:
                    tell(NameRegistered(self._carrier.carry(check_name(request.name))))
                except HeadwaterError as error:
                    tell(Accepted(error=str(error)[:2_000]))

            if not self._worker.put(run):
                tell(Accepted(error="too much is under way here; ask again"))

        return Postponed(begin)

    # ── the service ──

    def start(self) -> None:
        self._worker.start()
        self._chores.start()
        self._beat.start()

    def _keep(self) -> None:
        """What is due, again and again: whatever fails is tried at the next beat. Only the leases of this node are
        renewed here; nobody who is not reached keeps that waiting."""
        compare = 0.0
        while not self._ended.is_set():
            now = monotonic()
            self._guarded(self._advertised.look)
            self._guarded(self._follow)
            if self._carrier is not None:
                self._chores.do("carrier", lambda: self._guarded(self._carry_on))
            if self.server is not None:
                self._guarded(self.server.sweep)
                if now >= compare:
                    compare = now + COMPARE_SECONDS
                    self._chores.do("compare", lambda: self._guarded(self.reconcile))
                if now >= self._above:
                    self._chores.do("above", lambda: self._guarded(self._keep_above))
            self._guarded(self.reach.sweep)
            self._wake.wait(BEAT_SECONDS)
            self._wake.clear()

    def _carry_on(self) -> None:
        assert self._carrier is not None
        self._carrier.look()

    def _keep_above(self) -> None:
        self._above = monotonic() + (ABOVE_SECONDS if self._look_above() else 2 * BEAT_SECONDS)

    def _guarded(self, task: Callable[[], object]) -> None:
        try:
            task()
        except HeadwaterError as error:
            if not self._ended.is_set():
                log.info("node %s: names: %s", self.node.name, error)
        except Exception as error:
            if not self._ended.is_set():
                self.node._crashes.note(self._beat.name, error)

    def reconcile(self) -> bool:
        """Compare the domains that are served here with their other servers now; whether all were reached."""
        return self._replication is None or self._replication.compare_all()

    def _look_above(self) -> bool:
        """Have the zones above the domains here, to show to others how these are believed; whether all who serve those
        were reached."""
        server = self.server
        assert server is not None
        reached = True
        for parent in self.reach.order(server.parents):
            for domain in server.domains:
                name = "names" if domain == ROOT else f"{domain}.names"  # any that is in it
                try:
                    answer = self.reach.ask(parent, LookUpName(name), ASK_SECONDS)
                except HeadwaterError:
                    reached = False
                    break
                if isinstance(answer, NameIs):
                    self.book.accept_all(answer.documents)
        return reached

    def _follow(self) -> None:
        """Bring subscriptions in step with what there is."""
        with self._lock:
            changed, self._changed = self._changed, {}
            self._watches = [watch for watch in self._watches if not watch.closed]
            watches = list(self._watches)
            closed = [each for each in self._subscriptions if each.closed]
            ended = [self._subscriptions.pop(each) for each in closed]
            known = list(self._subscriptions)
        for watch in ended:
            if watch is not None:
                watch.cancel()
        for watch in watches:
            self._chores.do(watch, partial(self._guarded, watch.look))
        for subscription in known:
            gone = changed.get(subscription.name)
            if gone is None and not subscription.due:
                continue
            if not self._chores.do(subscription, partial(self._update, subscription, frozenset(gone or ()))):
                self._again(subscription.name, gone or ())  # it is being brought in step: once more, then

    def _again(self, name: str, gone: Iterable[str]) -> None:
        """Look at a name once more at the next beat."""
        with self._lock:
            self._changed.setdefault(name, set()).update(gone)

    def _update(self, subscription: NamedSubscription, gone: frozenset[str]) -> None:
        """Bring one subscription in step with what there is; it waits for nodes that are new."""
        try:
            subscription.update(self.lookup(subscription.name, fresh=True), gone)
        except HeadwaterError as error:
            log.info("node %s: %s is looked up again: %s", self.node.name, subscription.name, error)
            self._again(subscription.name, gone)

    def drain(self, until: float) -> None:
        self._advertised.withdraw_all()

    @property
    def busy(self) -> bool:
        return bool(self._advertised.names)

    def stop(self) -> None:
        self._ended.set()
        self._wake.set()
        with self._lock:
            subscriptions, watches = list(self._subscriptions), list(self._watches)
        for subscription in subscriptions:
            self._guarded(subscription.cancel)
        for watch in watches:
            self._guarded(watch.cancel)
        if self._carrier is not None:
            self._guarded(self._carrier.close)
        self._worker.stop()
        self._chores.stop()
        self.reach.close()

    def report(self) -> Mapping[str, Any]:
        """In numbers, and what is wrong."""
        found: dict[str, Any] = {
            "zones": len(self.book),
            "answers": len(self.lookups.cache),
            "hits": self.lookups.cache.hits,
            "asked": self.lookups.asked,
            "refused": self.book.refused + self.lookups.resolver.refused,
            "federations": sorted(self.reach.legs),
            "advertised": self.advertised,
        }
        if self.server is not None:
            found |= self.server.report()
        if self._carrier is not None:
            found["carried"] = self._carrier.names
        return found


def names_of(node: Node) -> Names:
    """The naming service of a node; FederationError if it has none."""
    found = node.services.get(Names.name)
    if not isinstance(found, Names):
        raise FederationError(f"node {node.name!r}: expected one with names, found none; make Names(node, settings)")
    return found


__all__ = ["Names", "names_of"]
