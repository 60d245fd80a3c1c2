"""Who is in the federation and what each node has: this one tells the others, and keeps what they tell."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from headwater.errors import FederationError, FrameError, SecurityError
from headwater.federation.peers.description import EMPTY, Description, size_of
from headwater.federation.peers.dialogue import ANSWER_SECONDS, Answered, Dialogue, Question
from headwater.federation.peers.inquiries import Inquiries, Inquiry
from headwater.federation.peers.roll_calls import RollCalls
from headwater.federation.security.envelope import Opened
from headwater.federation.wire import frames as wire
from headwater.federation.wire import requests as messages
from headwater.federation.wire.control import SourceAd
from headwater.federation.wire.requests import Accepted, Card, Describe, News, State, pack

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.federation.arrive.remote_source import RemoteSource
    from headwater.federation.context import Context
    from headwater.federation.control_events import ControlEvents
    from headwater.federation.fabric.fabric import Fabric
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.permissions import Permissions
    from headwater.federation.peers.table import Peers

log = logging.getLogger("headwater.federation")
MOST_ADS = 1 << 18  # channels and sources of one node that are taken
MOST_AD_BYTES = 64 << 20  # and about how large they may be together
VERSIONS_AHEAD = 1 << 32  # versions that a peer may be ahead
ALIVE_SECONDS = 2.0  # in which a run of a node answers, if it is there, when another says to have come after it
MOST_EXPELLED = 1024  # nodes that are remembered for having been expelled, or for having refused this one
MOST_SILENT = 1024  # runs that are remembered for not having answered

MOST_APPEARED = 1024  # runs of nodes of which is remembered since when they are said to be there


class Linker(Protocol):
    """Makes links to other nodes."""

    def wanted(self, peer: Peer) -> bool:
        """Whether there is a reason to have a link."""
        ...

    def connect(self, peer: Peer) -> None:
        """See to it that there is one; soon, not now."""


class Installs(Protocol):
    """Keeps what other nodes have installed at this node's sources."""

    def sources_gone(self, sources: list[Source]) -> None:
        """Sources of this node are no more."""

    def away(self, peer: Peer) -> None:
        """A peer is not there."""

    def restarted(self, peer: Peer) -> None:
        """A peer was started again."""

    def gone(self, peer: Peer, *, orderly: bool) -> bool:
        """A peer has left, or stays away for too long; whether something is still kept for it."""
        ...


class Membership:
    """Of one node. What follows from who comes and goes is done by those who are set after it was made: `links`,
    `installer`, and `on_advertised`, which is told that a peer has said what it has."""

    links: Linker
    installer: Installs
    on_advertised: Callable[[Peer], None]

    def __init__(
        self,
        context: Context,
        peers: Peers,
        fabric: Fabric,
        dialogue: Dialogue,
        description: Description,
        permissions: Permissions,
        control: ControlEvents,
        make_peer: Callable[[str, int], Peer],
    ) -> None:
        self._context, self._peers, self._fabric, self._dialogue = context, peers, fabric, dialogue
        self._permissions, self._control, self._make_peer = permissions, control, make_peer
        self.description = description
        self._refusals: set[str] = set()  # nodes that have refused this one
        self.expelled: dict[str, str] = {}  # nodes with which this one has parted, and why
        self._silent: set[tuple[str, int]] = set()  # runs of nodes that are said to be there, and do not answer
        self._telling = threading.Lock()  # one at a time
        self._appeared: dict[tuple[str, int], float] = {}  # runs of nodes that are said to be there, and since when
        self._calls = RollCalls(context.scheduler, fabric, self.roll_call)
        self.inquiries = Inquiries(self._ask_state, self._heard, self._unknown, context.scheduler.later)

    def start(self) -> None:
        """From here on changes are told."""
        self.description.renew()

    def roll_call(self) -> None:
        """Say to everyone that this node is there, and hear what they have. It returns when all that are known by now
        have answered; whoever answers later, or has only been said to be there, is heard as well."""
        question = self._dialogue.introduction()
        late = partial(self._answered_roll, question)
        for reply in self._fabric.roll_answers(question.payload, ANSWER_SECONDS, self._present, late):
            self._answered_roll(question, reply)
        self._context.scheduler.changed()

    def _present(self) -> list[str]:
        """The nodes that have proven to be there."""
        return [peer.id for peer in self._peers.everyone() if peer.present and peer.gone is None]

    def _answered_roll(self, question: Question, reply: bytes) -> None:
        with suppress(SecurityError, FrameError):  # that is noted
            answered = self._dialogue.accept(question, reply)
            if self._heard(answered):
                sender = answered.opened
                self.inquiries.want(sender.sender, sender.incarnation, proven=True, anew=True)
        self._context.scheduler.changed()

    def look_round(self, source: Source) -> None:
        """Once others can know of a source of this node, hear from everyone what they have: of two nodes that do so at
        least one then knows of the other's."""
        told = self.description
        self._context.scheduler.until(lambda: source.number in told.told[1] or self._context.closed, ANSWER_SECONDS)
        self.roll_call()

    def describe_to(self, peer: Peer, opened: Opened, request: Describe) -> State:
        """What a peer that asks may know of this node."""
        if request.version > EMPTY:
            self.version_said(peer, request.version)
        return self.description.state(opened.principal, request.since, request.after)

    def tell_news(self) -> None:
        """That this node's channels or sources have changed, if they have."""
        with self._telling:
            gone = self.description.renew()
            if gone is None:
                return
            news = News(self._context.id, self._context.incarnation, self.description.version)
            self._fabric.tell(self._context.keyring.seal("news", pack(news)))
        self.installer.sources_gone(gone)

    def look_at_wants(self) -> None:
        """What another node has is different now: channels that sinks here want may have become known by it, or are no
        longer."""
        if self.description.wants:
            self._context.scheduler.later(0.0, self.tell_news)

    def latest(self) -> int:
        """The version of this node's state with all that there is now."""
        self.tell_news()
        return self.description.version

    def tell_again(self) -> None:
        """Something signed, for everyone."""
        news = News(self._context.id, self._context.incarnation, self.description.version)
        with suppress(FederationError):  # there is no connection: what is said over the next one is signed as well
            self._fabric.tell(self._context.keyring.seal("news", pack(news)))

    def check_vouched(self) -> None:
        """Part with those for whom nobody vouches any more: their certificate has expired, or was revoked."""
        now = time.time_ns()
        for peer in self._peers.everyone():
            principal = peer.principal
            why = (
                None if principal is None else self._context.keyring.credentials.trust.why_not(principal.certified, now)
            )
            if why is not None:
                self._expel(peer, why[1])

    def _expel(self, peer: Peer, why: str) -> None:
        """Nothing more comes from it, and nothing goes to it; until it shows a certificate that is good."""
        self._context.offences.note(peer.id, why)
        peer.principal, peer.trouble, peer.present = None, why, False
        link = peer.link
        if link is not None:
            peer.link_down(link, why)
        self._away(peer)
        self._forget(peer, orderly=True)
        if peer.id not in self.expelled and len(self.expelled) >= MOST_EXPELLED:
            self.expelled.pop(next(iter(self.expelled)))
        self.expelled[peer.id] = why

    def peer(self, node: str, incarnation: int) -> Peer:
        """The peer of that id; one that was started again is the same peer, with nothing of what it was sending."""
        with self._peers.lock:
            found = self._peers.get(node)
            if found is None:
                found = self._peers[node] = self._make_peer(node, incarnation)
        if self._is_later(found, incarnation):
            self._renewed(found, incarnation)
        return found

    def _is_later(self, peer: Peer, incarnation: int) -> bool:
        """Whether it is another run of a node than the one known here, and the one that is there now."""
        return incarnation != peer.incarnation and incarnation == self._context.keyring.verifier.run_of(peer.id)

    def lives(self, node: str, incarnation: int) -> bool:
        """Whether that run of a node is there, as far as can be seen from here. Where that rests on a sign of life
        alone, which others can make, it is asked: if it does not answer it counts as gone."""
        peer = self._peers.get(node)
        if peer is None or peer.incarnation != incarnation:
            return False
        if peer.direct and monotonic() - peer.heard < self._context.network.lease:
            return True
        if not self._fabric.is_alive(node, incarnation) or (node, incarnation) in self._silent:
            return False
        self._context.scheduler.work(self._check_alive, peer, incarnation, on=node)
        return True

    def _check_alive(self, peer: Peer, incarnation: int) -> None:
        try:
            known = 0 if peer.state is None else peer.state.version
            self._dialogue.ask(peer, Describe(known), ALIVE_SECONDS)
        except FederationError as error:
            log.info("node %s: %s, run %d, does not answer: %s", self._context.name, peer.id, incarnation, error)
            if len(self._silent) >= MOST_SILENT:
                self._silent.clear()
            self._silent.add((peer.id, incarnation))

    def _renewed(self, peer: Peer, incarnation: int) -> None:
        """The node was started again: nothing that it had said holds any more. Its sources are gone, its link is let
        go, and this node's wishes go to it anew."""
        with peer.lock:
            if not self._is_later(peer, incarnation):
                return
            peer.incarnation, peer.state, peer.pages = incarnation, None, None
            peer.described, peer.newest, peer.considered, peer.met = False, 0, 0, monotonic()
            exchange, peer.exchange = peer.exchange, None
            if exchange is not None:
                self._context.keyring.exchange.forget(exchange, peer.id)
            peer.asked.clear()
            peer.memory_there = 0
            peer.unwanted.clear()
            gone = list(peer.remote_sources.values())
            peer.remote_sources.clear()
            peer.over.clear()
            peer.unacknowledged.clear()
            link, peer.link = peer.link, None
            if link is not None:
                peer._let_go(link, "the other node was started again")
        for source in gone:
            self._context.wiring.withdraw(source)
            self._forget_positions(source)
        self.installer.restarted(peer)

    def _forget_positions(self, source: RemoteSource) -> None:
        """A source will not come back: how far sinks were with it need not be remembered."""
        state = self._context.node.state
        if state is not None and source.position_key is not None and not source.ad.log:
            for sink in state.sinks():
                state.forget(sink, source.position_key)

    def said_to_be_there(self, node: str, incarnation: int) -> None:
        """A sign of life that proves nothing: whose it is said to be is asked."""
        self.inquiries.want(node, incarnation, proven=False)

    def joined(self, node: str, incarnation: int) -> None:
        """Someone says so; only what is signed by it makes it a peer, or one that was started again."""
        self._appeared.pop((node, incarnation), None)
        self._appeared[node, incarnation] = monotonic()
        while len(self._appeared) > MOST_APPEARED:
            del self._appeared[next(iter(self._appeared))]
        with self._peers.lock:
            peer = self._peers.get(node)
        if peer is None or peer.state is None or incarnation != peer.incarnation:
            # As a rule it says so itself by then. If two have missed each other, one of them asks.
            proven = self.proven(node, incarnation)
            self.inquiries.want(node, incarnation, proven=proven, delay=0.1 if self._context.id < node else 0.5)
        elif incarnation == peer.incarnation:
            peer.present, peer.gone = True, None
            self._control.node(peer, "joined")
            # What it has told meanwhile did not come here.
            self.inquiries.want(node, incarnation, peer.state.version, proven=True, anew=True)
            self._touch_all()
            self._link_again(peer)
            self._context.scheduler.changed()

    def expected(self, since: float) -> set[tuple[str, int]]:
        """Runs of nodes that are said to be there since a time or later, and have not said anything themselves yet."""
        known = {(peer.id, peer.incarnation) for peer in self._peers.everyone()}
        appeared = {who for who, at in list(self._appeared.items()) if at >= since}
        return {who for who in appeared - known if self._fabric.is_alive(*who)}

    def left(self, node: str, incarnation: int) -> None:
        self._appeared.pop((node, incarnation), None)
        with self._peers.lock:
            peer = self._peers.get(node)
        if peer is None or incarnation != peer.incarnation:
            return
        peer.present = False
        if peer.direct:
            peer.say(wire.encode_ping(self.description.version))  # it may be only Zenoh that does not reach it
            heard = peer.heard
            self._context.scheduler.later(min(1.0, self._context.network.lease), lambda: self._still_there(peer, heard))
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
            if peer.gone is not None or self._context.closed:
                return
            peer.gone = monotonic()
            link = peer.link
        if link is not None:
            peer.link_down(link, "the other node is not there any more")
        self.installer.away(peer)
        for source in list(peer.remote_sources.values()):
            source.promised(None)
        self._control.node(peer, "left")
        self.look_at_wants()
        self._context.scheduler.changed()

    def link_lost(self, peer: Peer) -> None:
        """A link to a peer has ended."""
        if self._context.closed:
            return
        if not peer.present:
            self._away(peer)
        elif self.links.wanted(peer):
            self.links.connect(peer)
        self._context.scheduler.changed()

    def said_bye(self, peer: Peer, reason: str) -> None:
        """A peer leaves in an orderly way."""
        peer.present = False
        link = peer.link
        if link is not None:
            peer.link_down(link, f"it said goodbye: {reason}")
        self._context.scheduler.later(0.0, lambda: self._forget(peer, orderly=True))

    def _forget(self, peer: Peer, *, orderly: bool = False) -> None:
        """It will not come back, or too late."""
        if peer.gone is None:
            return
        for source in list(peer.remote_sources.values()):
            self._context.wiring.withdraw(source)
        peer.remote_sources.clear()
        peer.over.clear()
        peer.unacknowledged.clear()
        self._permissions.forget(peer)
        kept = self.installer.gone(peer, orderly=orderly)
        if not kept:
            peer.sender.close()
            self._context.keyring.verifier.forget(peer.id)
            if peer.exchange is not None:
                self._context.keyring.exchange.forget(peer.exchange, peer.id)
            with self._peers.lock:
                if self._peers.get(peer.id) is peer and peer.gone is not None:
                    del self._peers[peer.id]
        self._context.scheduler.changed()

    # ── what others say of themselves ──

    def introduced(self, opened: Opened, card: Card) -> None:
        """Another node says which run of it this is, and how to write to it."""
        peer = self._speaks(opened, card)
        with peer.lock:
            if card.incarnation != peer.incarnation:
                return
            self._take_key(peer, opened, card)
            new = peer.state is None and card.version == EMPTY
            if new:
                peer.state = State(
                    card.node, card.incarnation, card.version, [], card.exchange, [], [], card.multicast, card.router,
                    columns=card.columns,
                )  # fmt: skip
                peer.present, peer.gone = True, None
        self._fabric.vouch(card.node, card.incarnation)
        if new:
            self._control.node(peer, "joined")
            self._met(peer)
        else:
            self.version_said(peer, card.version)

    def _speaks(self, opened: Opened, said: Card | State) -> Peer:
        """The peer that speaks of itself."""
        _check_speaker(opened, said)
        return self.peer(said.node, said.incarnation)

    def _take_key(self, peer: Peer, opened: Opened, said: Card | State) -> None:
        """This is its key, and what it can read; with the peer's lock."""
        exchange = said.exchange
        self.expelled.pop(peer.id, None)
        if peer.exchange is not None and peer.exchange != exchange:
            raise SecurityError(f"{peer.id} has two keys for what is only for it", "key", peer.id)
        peer.exchange, peer.principal, peer.columns = exchange, opened.principal, said.columns

    def _heard(self, answered: Answered) -> bool:
        """An answer to this node's card, or to its question for a state; whether there is more to ask for."""
        reply, opened = answered.reply, answered.opened
        try:
            match reply:
                case messages.State():
                    return self._take_state(opened, reply, answered.question)
                case messages.Accepted():
                    self._refused_by(opened, reply)
                case _:
                    raise FrameError(f"expected the state of a node, found {type(reply).__name__}")
        except (SecurityError, FrameError) as error:
            self._context.offences.blame(opened, error)
        return False

    def _refused_by(self, opened: Opened, answer: Accepted) -> None:
        """Another node does not want to know of this one."""
        if opened.sender not in self._refusals and answer.error:
            if len(self._refusals) >= MOST_EXPELLED:
                self._refusals.clear()  # they may be said again
            self._refusals.add(opened.sender)
            log.warning("node %s: %s does not let it in: %s", self._context.name, opened.sender, answer.error)

    def _take_state(self, opened: Opened, said: State, question: Question) -> bool:
        """What another node has; whether there is more to ask for."""
        peer = self._speaks(opened, said)
        if said.next is not None and not (said.channels or said.sources):
            raise FrameError("expected a page with something on it, or the last one")
        with peer.lock:
            if said.incarnation != peer.incarnation:
                return False
            self._take_key(peer, opened, said)
            before, pages = peer.state, peer.pages
            state = self._assembled(peer, self._allowed(said, opened))
            if state is not None:
                peer.state, peer.described = state, True
                peer.present, peer.gone = True, None
            if said.version < question.newest == peer.newest:
                peer.newest = said.version  # it has said more than was true
            peer.newest = max(peer.newest, said.version)
            more = peer.behind if state is not None else peer.pages is not None and peer.pages is not pages
        self._fabric.vouch(said.node, said.incarnation)
        if state is not None:
            if before is None:
                self._control.node(peer, "joined")
            self._tell_changes(peer, [] if before is None else before.sources, state)
            self._met(peer)
        return more

    def _assembled(self, peer: Peer, said: State) -> State | None:
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

    def _tell_changes(self, peer: Peer, before: list[SourceAd], state: State) -> None:
        """To those who listen to what sources there are; and zones of sources that say nothing else."""
        known, here = {ad.sid: ad for ad in before}, {ad.sid: ad for ad in state.sources}
        for ad in state.sources:
            if known.get(ad.sid) == ad:
                continue
            source = peer.remote_sources.get(ad.sid)
            told = source is None or source.linked or source.track is not None  # among its events, where it counts
            if source is not None and not told and source.zones != frozenset(ad.zones):
                self._context.wiring.rezone(source, frozenset(ad.zones))
        for ad in before:
            if ad.sid not in here:
                self._control.source(peer, ad, "withdrawn")
        for ad in state.sources:
            if ad.sid not in known:
                self._control.source(peer, ad, "advertised")

    def on_news(self, payload: bytes) -> None:
        opened = None
        try:
            opened = self._context.keyring.open(payload, "news")
            news = messages.news(opened.body)
            _check_speaker(opened, news)
        except (SecurityError, FrameError) as error:
            self._context.offences.blame(opened, error)
            return
        if news.node != self._context.id:
            self.version_said(self.signed_by(opened), news.version)

    def version_said(self, peer: Peer, version: int) -> None:
        """A peer says which version of its state is the latest: if that is not known here, it is asked what is new; not
        too often, for it may go on."""
        with peer.lock:
            known = EMPTY if peer.state is None else peer.state.version
            if version > known + VERSIONS_AHEAD:
                return
            peer.newest = max(peer.newest, version)
            if not peer.behind and peer.state is not None:
                return
            wait = peer.pace.wait()
        self.inquiries.want(peer.id, peer.incarnation, version, proven=True, delay=wait)

    def current(self) -> bool:
        """Whether all is known here of which peers that are there have said that it is new."""
        return not any(peer.behind for peer in self._peers.everyone() if peer.gone is None)

    def _allowed(self, state: State, opened: Opened) -> State:
        """What of it the sender may advertise."""
        sources = []
        for ad in state.sources:
            decision = self._context.security.decide(opened.principal, "advertise", ad.channel)
            if decision:
                sources.append(ad)
            else:
                self._context.offences.note(
                    opened.sender, f"it advertises {ad.channel}, which it may not: {decision.why}"
                )
        return state if len(sources) == len(state.sources) else replace(state, sources=sources)

    def proven(self, node: str, incarnation: int) -> bool:
        """Whether that run of a node has signed something that came here."""
        peer = self._peers.get(node)
        return peer is not None and peer.incarnation == incarnation

    def _unknown(self, inquiry: Inquiry) -> bool:
        """Whether a node is still there, and what is wanted of it has not come."""
        peer = self._peers.get(inquiry.node)
        state = None if peer is None or peer.incarnation != inquiry.incarnation else peer.state
        if self._context.closed or not self._fabric.is_alive(inquiry.node, inquiry.incarnation):
            return False
        return inquiry.anew or state is None or state.version < inquiry.version

    def _ask_state(self, inquiry: Inquiry, answered: Callable[[Answered | FederationError], None]) -> None:
        """Ask a node for its state; one of which no key is known is told who asks."""
        dialogue, peer = self._dialogue, self._peers.get(inquiry.node)
        if peer is None or peer.exchange is None or peer.incarnation != inquiry.incarnation:
            question = dialogue.introduction(inquiry.node, inquiry.incarnation)
        else:
            pages, state = peer.pages, peer.state
            since = state.version if peer.described and state is not None and pages is None else 0
            after = None if pages is None else pages.next
            question = dialogue.question(peer, Describe(since, after, self.description.version))
        accept = partial(dialogue.accept, question)
        self._fabric.ask_soon(inquiry.node, question.payload, answered, timeout=inquiry.timeout, accept=accept)

    def fetch(self, peer: Peer, timeout: float) -> None:
        """Wait until a peer has said what it has, and where it can be called; or too late."""
        if not peer.described:
            self.inquiries.want(peer.id, peer.incarnation, proven=True, anew=True)
            self._context.scheduler.until(
                lambda: peer.described or self._context.closed or peer.link is not None, timeout
            )

    def _link_again(self, peer: Peer) -> None:
        """It is back: what was kept for it, or is still wanted of it, needs a link."""
        if peer.link is None and self.links.wanted(peer):
            self.links.connect(peer)

    def _met(self, peer: Peer) -> None:
        """What it has may concern sinks here."""
        self._compare_names(peer)
        self._link_again(peer)
        self._context.scheduler.later(0.0, lambda: self.on_advertised(peer))
        self.look_at_wants()
        self._context.scheduler.changed()

    def _compare_names(self, peer: Peer) -> None:
        """Two nodes of one name work, each by its id, and are told apart by nobody who reads a report or a log."""
        others = [self._context.id] if peer.name == self._context.name else []
        others += [each.id for each in self._peers.everyone() if each.name == peer.name and each is not peer
                   and each.present and each.gone is None]  # fmt: skip
        if others:
            log.warning(
                "node %s: expected a name of its own for each node, found %r for %s and %s; give one of them another "
                "name (if it is one that was started again, this passes)",
                self._context.name, peer.name, peer.id, " and ".join(others),
            )  # fmt: skip

    def _touch_all(self) -> None:
        with self._context.wiring.lock:
            self._context.wiring.changed(self._context.node.channels())

    def signed_by(self, opened: Opened) -> Peer:
        """The peer that has signed something; it is there."""
        peer = self.peer(opened.sender, opened.incarnation)
        peer.principal = opened.principal
        self.expelled.pop(peer.id, None)
        if peer.state is None:
            peer.present = True
            self.inquiries.want(opened.sender, opened.incarnation, proven=True, delay=0.1)
        return peer

    def look_around(self) -> None:
        now, alive, lease = monotonic(), self._fabric.alive, self._context.network.lease
        self._calls.look(now)
        for peer in self._peers.everyone():
            link = peer.link
            if peer.gone is not None:
                if now - peer.gone > self._context.network.keep:
                    self._forget(peer)
            elif link is None and now - peer.met > lease and (peer.id, peer.incarnation) not in alive:
                peer.present = False  # it has signed something, but there is no sign of life of it
                self._away(peer)
            elif link is not None and peer.direct:
                if now - peer.heard > lease:
                    peer.link_down(link, f"nothing was heard for {lease:g} s")
                elif now - peer.heard > lease / 3:
                    peer.say(wire.encode_ping(self.description.version))


def _check_speaker(opened: Opened, said: Card | State | News) -> None:
    if said.node != opened.sender or said.incarnation != opened.incarnation:
        raise SecurityError(f"{opened.sender} speaks of {said.node}", "sender", opened.sender)


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
