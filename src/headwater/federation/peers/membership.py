"""What each node of a federation has: this one tells the others, and keeps what they tell (who is there: presence)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from msgspec.structs import replace

from headwater.errors import FederationError, FrameError, SecurityError
from headwater.federation.peers.description import EMPTY, Description
from headwater.federation.peers.dialogue import ANSWER_SECONDS, Answered, Dialogue, Question
from headwater.federation.peers.inquiries import Inquiries, Inquiry
from headwater.federation.peers.presence import MOST_EXPELLED, Presence
from headwater.federation.peers.roll_calls import RollCalls
from headwater.federation.peers.state_pages import assembled
from headwater.federation.security.envelope import Opened
from headwater.federation.wire import requests as messages
from headwater.federation.wire.control import SourceAd
from headwater.federation.wire.requests import Accepted, Card, Describe, News, State, pack

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.federation.context import Context
    from headwater.federation.control_events import ControlEvents
    from headwater.federation.fabric.fabric import Fabric
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers

log = logging.getLogger("headwater.federation")
VERSIONS_AHEAD = 1 << 32  # versions that a peer may be ahead


class Membership:
    """Of one node. Two are set after it was made: `on_advertised` is told that a peer has said what it has,
    `sources_gone` that sources of this node are no more."""

    on_advertised: Callable[[Peer], None]
    sources_gone: Callable[[list[Source]], None]

    def __init__(
        self,
        context: Context,
        peers: Peers,
        fabric: Fabric,
        dialogue: Dialogue,
        description: Description,
        control: ControlEvents,
        presence: Presence,
    ) -> None:
        self._context, self._peers, self._fabric, self._dialogue = context, peers, fabric, dialogue
        self.description, self._control, self._presence = description, control, presence
        self._refusals: set[str] = set()  # nodes that have refused this one
        self._telling = threading.Lock()  # one at a time
        self._calls = RollCalls(context.scheduler, fabric, self.roll_call)
        self.inquiries = Inquiries(self._ask_state, self._heard, self._unknown, context.scheduler.later)

    def start(self) -> None:
        """From here on changes are told."""
        self.description.renew()

    def roll_call(self) -> None:
        """Say to everyone that this node is there, and hear what they have. It returns when all that are known by now
        have answered; whoever answers later, or has only been said to be there, is heard as well. Where not all nodes
        are heard of, none is called: each is asked for itself."""
        if self._fabric.named:
            return
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
        self.sources_gone(gone)

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

    def said_to_be_there(self, node: str, incarnation: int) -> None:
        """A sign of life that proves nothing: whose it is said to be is asked."""
        self.inquiries.want(node, incarnation, proven=False)

    def joined(self, node: str, incarnation: int) -> None:
        """Someone says so; only what is signed by it makes it a peer, or one that was started again."""
        peer = self._presence.appeared(node, incarnation)
        if peer is None or peer.state is None or incarnation != peer.incarnation:
            # As a rule it says so itself by then. If two have missed each other, one of them asks. Where not all nodes
            # are heard of, who attends to another one has to ask.
            proven = self._presence.proven(node, incarnation)
            delay = 0.0 if self._fabric.named else 0.1 if self._context.id < node else 0.5
            self.inquiries.want(node, incarnation, proven=proven, delay=delay)
        elif incarnation == peer.incarnation:
            peer.present, peer.gone = True, None
            self._control.node(peer, "joined")
            # What it has told meanwhile did not come here.
            self.inquiries.want(node, incarnation, peer.state.version, proven=True, anew=True)
            self._touch_all()
            self._presence.link_again(peer)
            self._context.scheduler.changed()

    def look_around(self) -> None:
        """Repeat roll calls while there is a reason to."""
        self._calls.look(monotonic())

    # ── what others say of themselves ──

    def introduced(self, opened: Opened, card: Card) -> None:
        """Another node says which run of it this is, and how to write to it."""
        peer = self._speaks(opened, card)
        with peer.lock:
            if peer.forgotten:  # just now: it is met anew
                self.introduced(opened, card)
                return
            if card.incarnation != peer.incarnation:
                return
            self._take_key(peer, opened, card)
            new = peer.state is None and card.version == EMPTY
            if new:
                peer.state = State(
                    card.node, card.incarnation, card.version, [], card.exchange, [], [], card.multicast, card.router,
                    columns=card.columns, names=card.names, session=card.session,
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
        return self._presence.peer(said.node, said.incarnation)

    def _take_key(self, peer: Peer, opened: Opened, said: Card | State) -> None:
        """This is its key, and what it can read; with the peer's lock."""
        exchange = said.exchange
        self._presence.expelled.pop(peer.id, None)
        if peer.exchange is not None and peer.exchange != exchange:
            raise SecurityError(f"{peer.id} has two keys for what is only for it", "key", peer.id)
        peer.exchange, peer.principal = exchange, opened.principal
        peer.columns, peer.names, peer.session = said.columns, said.names, said.session

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
            if said.incarnation != peer.incarnation or peer.forgotten:
                return peer.forgotten  # it is asked anew
            self._take_key(peer, opened, said)
            before, pages = peer.state, peer.pages
            state = assembled(peer, self._allowed(said, opened))
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
            decision = self._context.decisions.decide(opened.principal, "advertise", ad.channel)
            if decision:
                sources.append(ad)
            else:
                self._context.offences.note(
                    opened.sender, f"it advertises {ad.channel}, which it may not: {decision.why}"
                )
        return state if len(sources) == len(state.sources) else replace(state, sources=sources)

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

    def _met(self, peer: Peer) -> None:
        """What it has may concern sinks here."""
        self._compare_names(peer)
        self._presence.link_again(peer)
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
        peer = self._presence.peer(opened.sender, opened.incarnation)
        peer.principal, peer.addressed = opened.principal, monotonic()
        self._presence.expelled.pop(peer.id, None)
        if peer.state is None:
            peer.present = True
            self.inquiries.want(opened.sender, opened.incarnation, proven=True, delay=0.1)
        return peer


def _check_speaker(opened: Opened, said: Card | State | News) -> None:
    if said.node != opened.sender or said.incarnation != opened.incarnation:
        raise SecurityError(f"{opened.sender} speaks of {said.node}", "sender", opened.sender)
