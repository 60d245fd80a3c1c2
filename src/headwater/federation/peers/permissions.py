"""Whether a node may subscribe to channels of which others do not tell it.

Who may do nothing on a channel is not told that it is there. So that its sinks do not wait for ever without a word, a
node whose rules may hide something from another one says that much (`State.restricted`), and the other one asks, by the
names that its sinks want and are not on the list, whether it may. The answer is made of the rules and the names alone:
it is the same whether there is such a channel or not.

Names are asked of a node once in each run of it, many in one question, and only if that node may advertise them here:
what sinks want is nobody else's business either.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from headwater.channel.names import Pattern, check_name, is_pattern
from headwater.errors import ChannelError, FederationError, HeadwaterError
from headwater.federation.control_events import owns
from headwater.federation.demand.wishes import sinks_behind
from headwater.federation.peers.dialogue import ANSWER_SECONDS, Answered, Dialogue
from headwater.federation.wire.requests import MAX_NAMES, MayNot, MaySubscribe

if TYPE_CHECKING:
    from headwater.channel.options.subscribe import Asked
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.route import Entry
    from headwater.channel.subscription import Subscription
    from headwater.federation.context import Context
    from headwater.federation.control_events import ControlEvents
    from headwater.federation.demand.demand import Demands
    from headwater.federation.fabric.fabric import Fabric
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers
    from headwater.federation.security.rules import Principal

log = logging.getLogger("headwater.federation")
GATHER_SECONDS = 0.02  # for which a name waits for others, to go in one question
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 30.0  # before a question is put again that was not answered
MOST_ASKED = 1_000  # names in one run of a peer
MOST_REFUSED = 100  # names that are remembered of those a peer has asked for and may not have
MOST_WHY = 1_000  # characters of a reason
NAMES_LOGGED = 5  # names in a line of the log


@dataclass(eq=False)
class Unlisted:
    """What sinks here want and one run of a peer does not list."""

    incarnation: int
    patterns: int = -1  # how many patterns there had been when all names were looked at
    waiting: dict[str, None] = field(default_factory=dict)  # to be asked for
    asked: set[str] = field(default_factory=set)  # and answered
    refused: dict[str, str] = field(default_factory=dict)  # and why
    busy: bool = False
    failures: int = 0
    full: bool = False


class Permissions:
    """Of one node: what it asks, and what it answers."""

    def __init__(
        self,
        context: Context,
        peers: Peers,
        fabric: Fabric,
        dialogue: Dialogue,
        demands: Demands,
        control: ControlEvents,
    ) -> None:
        self._context, self._node, self._peers, self._fabric = context, context.node, peers, fabric
        self._dialogue, self._demands, self._control = dialogue, demands, control
        self._lock = threading.Lock()
        self._unlisted: dict[str, Unlisted] = {}  # by peer

    # ── what sinks here want ──

    def consider(self, peer: Peer, patterns: int) -> None:
        """A peer has said what it has, or there are new `patterns`: ask for what is not on its list."""
        unlisted = self._of(peer)
        if unlisted is None:
            return
        if unlisted.patterns != patterns:
            unlisted.patterns = patterns
            with self._context.wiring.lock:
                names = [*self._names(peer, self._node.channels()), *self._patterns()]
            self._want(peer, unlisted, names)
        else:
            self._start(peer, unlisted)

    def touched(self, channels: Iterable[Channel]) -> None:
        """Sinks of these channels have changed."""
        for peer in self._peers.everyone():
            unlisted = self._of(peer)
            if unlisted is not None:
                with self._context.wiring.lock:
                    names = list(self._names(peer, channels))
                self._want(peer, unlisted, names)

    def _of(self, peer: Peer) -> Unlisted | None:
        """What is known of a peer that does not list everything; None if it does, or cannot be asked."""
        state = peer.state
        with self._lock:
            known = self._unlisted.get(peer.id)
            over = known is not None and known.incarnation != peer.incarnation
        if over:
            self.forget(peer)
        if state is None or not state.restricted or peer.gone is not None or state.incarnation != peer.incarnation:
            return None
        with self._lock:
            return self._unlisted.setdefault(peer.id, Unlisted(state.incarnation))

    def _names(self, peer: Peer, channels: Iterable[Channel]) -> Iterator[str]:
        """Those of which something is wanted here, and that a peer does not list; the wiring's lock is held. What is
        wanted of a derived channel is wanted of the one it comes from."""
        for channel in channels:
            name = channel.name
            if channel.closed or channel.parent is not None or owns(name):
                continue
            if not peer.offers(name) and self._demands.of(channel, peer).wishes:
                yield name

    def _patterns(self) -> Iterator[str]:
        return (asked.target.text for _, asked in self._asked() if isinstance(asked.target, Pattern))

    def _asked(self) -> Iterator[tuple[Subscription, Asked]]:
        return ((sink, asked) for sink in list(self._node.subscriptions.values()) for asked in sink._asked)

    def _want(self, peer: Peer, unlisted: Unlisted, names: Iterable[str]) -> None:
        known: dict[str, str] = {}
        full = False
        for name in names:
            if name in unlisted.refused:
                known[name] = unlisted.refused[name]
            elif name not in unlisted.asked and name not in unlisted.waiting and self._may_advertise(peer, name):
                with self._lock:
                    if len(unlisted.asked) + len(unlisted.waiting) < MOST_ASKED:
                        unlisted.waiting[name] = None
                    else:
                        full, unlisted.full = not unlisted.full, True
        if full:
            log.warning("node %s: of %s it is asked for %s channels whether they may be subscribed to, and no more",
                        self._context.name, peer.name, f"{MOST_ASKED:,}")  # fmt: skip
        self._show(peer, known)
        self._start(peer, unlisted)

    def _may_advertise(self, peer: Peer, name: str) -> bool:
        principal = peer.principal
        return principal is not None and bool(self._context.security.decide_named(principal, "advertise", name))

    # ── asking ──

    def _start(self, peer: Peer, unlisted: Unlisted) -> None:
        with self._lock:
            if unlisted.busy or not unlisted.waiting:
                return
            unlisted.busy = True
        self._context.scheduler.later(GATHER_SECONDS, partial(self._ask, peer, unlisted))

    def _ask(self, peer: Peer, unlisted: Unlisted) -> None:
        """One question for all that are waiting, as far as they fit; no thread waits for its answer."""
        with self._lock:
            current = self._unlisted.get(peer.id) is unlisted and unlisted.incarnation == peer.incarnation
            if not current or peer.gone is not None or self._context.closed:
                unlisted.busy = False  # if the peer comes back, it is begun again
                return
            names = _page(unlisted.waiting, self._context.security.limit // 4)
        dialogue, scheduler = self._dialogue, self._context.scheduler

        def answered(result: Answered | FederationError) -> None:
            scheduler.later(0.0, partial(self._answered, peer, unlisted, names, result))

        try:
            question = dialogue.question(peer, MaySubscribe(names))
            accept = partial(dialogue.accept, question)
            self._fabric.ask_soon(peer.id, question.payload, answered, timeout=ANSWER_SECONDS, accept=accept)
        except HeadwaterError as error:
            self._failed(peer, unlisted, error)

    def _failed(self, peer: Peer, unlisted: Unlisted, error: HeadwaterError) -> None:
        log.info("node %s: %s has not said what may be subscribed to: %s", self._context.name, peer.name, error)
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(unlisted.failures, 16))
        unlisted.failures += 1
        self._context.scheduler.later(pause, partial(self._ask, peer, unlisted))

    def _answered(self, peer: Peer, unlisted: Unlisted, names: list[str], result: Answered | FederationError) -> None:
        """A peer has said which of these channels this node may not subscribe to, and why: that is kept, logged and
        shown at the sinks it concerns. An answer to an older question is only kept."""
        if isinstance(result, FederationError):
            self._failed(peer, unlisted, result)
            return
        told: dict[str, str] = {}
        match result.reply:
            case MayNot(why):
                told = why
            case reply:
                error = getattr(reply, "error", "") or f"it answered with {type(reply).__name__}"
                log.warning(
                    "node %s: %s does not say what may be subscribed to: %s", self._context.name, peer.name, error
                )
        refused = {name: _spoken(told[name]) for name in names if name in told}
        with self._lock:
            current = self._unlisted.get(peer.id) is unlisted
            for name in names:
                unlisted.waiting.pop(name, None)
            unlisted.asked.update(names)
            unlisted.refused |= refused
            unlisted.failures, unlisted.busy = 0, False
        if current and refused:
            shown = ", ".join(list(refused)[:NAMES_LOGGED]) + (
                f" and {len(refused) - NAMES_LOGGED:,} more" * (len(refused) > NAMES_LOGGED)
            )
            log.warning("node %s: %s refuses subscriptions to %s: %s", self._context.name, peer.name, shown,
                        next(iter(refused.values())))  # fmt: skip
            self._show(peer, refused)
        self._start(peer, unlisted)
        self._context.scheduler.changed()

    # ── where it is seen ──

    def _show(self, peer: Peer, refused: dict[str, str]) -> None:
        """Refusals with the sinks they concern, as if the sources had been asked, and as control events; once each."""
        found: list[tuple[str, Entry | None]] = []
        if not refused:
            return
        with self._context.wiring.lock:
            for channel in self._node.channels():
                if channel.name in refused:
                    for entry in channel.entries.values():
                        if self._mark(sinks_behind([entry]), peer, channel.name, refused[channel.name]):
                            found.append((channel.name, entry))
            for sink, asked in self._asked():
                name = asked.target.text if isinstance(asked.target, Pattern) else ""
                if name in refused and self._mark([sink], peer, name, refused[name]):
                    found.append((name, None))
        for name, what in found:
            self._control.interest(peer, name, what, "refused", refused[name])

    def _mark(self, sinks: Iterable[Subscription], peer: Peer, name: str, why: str) -> bool:
        """Whether there was one that did not know it yet."""
        place = f"{name}@{peer.name}"
        fresh = [sink for sink in sinks if sink.refused.get(place) != why]
        for sink in fresh:
            sink.refused[place] = why
        return bool(fresh)

    def refused(self, peer: Peer) -> dict[str, str]:
        """Names of channels, and patterns, that sinks here wanted of a peer and may not have, and why."""
        with self._lock:
            unlisted = self._unlisted.get(peer.id)
            return {} if unlisted is None or unlisted.incarnation != peer.incarnation else dict(unlisted.refused)

    def forget(self, peer: Peer) -> None:
        """A peer is not there any more, or was started again, perhaps with other rules."""
        with self._lock:
            unlisted = self._unlisted.pop(peer.id, None)
        if unlisted is None or not unlisted.refused:
            return
        with self._context.wiring.lock:
            for sink in self._node.subscriptions.values():
                for name, why in unlisted.refused.items():
                    if sink.refused.get(place := f"{name}@{peer.name}") == why:
                        del sink.refused[place]

    def hidden(self) -> str:
        """For people: which nodes may have channels that this one is not told of; nothing if none has."""
        states = [(peer.name, peer.state) for peer in self._peers.everyone() if peer.gone is None]
        names = ", ".join(sorted(name for name, state in states if state is not None and state.restricted))
        return f", as far as the rules of {names} let this node know of them" if names else ""

    # ── answering ──

    def answer(self, peer: Peer, principal: Principal, request: MaySubscribe) -> MayNot:
        """To which of these names a node may not subscribe. Nothing is looked up here but the rules."""
        found: dict[str, str] = {}
        most = min(MOST_WHY, self._context.security.limit // (8 * (len(request.names) or 1)))  # so that all of them fit
        for name in request.names:
            try:
                if not is_pattern(name):
                    check_name(name)
                decision = self._context.security.decide_named(principal, "subscribe", name)
            except ChannelError as error:
                self._context.offences.note(peer.id, f"it asks whether it may subscribe: {error}")
                found[name] = str(error)[:most]
                continue
            if not decision:
                found[name] = decision.why[:most]
                if note_refused(peer, name, decision.why):
                    self._control.denied(peer, name, decision.why)
        return MayNot(found)


def note_refused(peer: Peer, name: str, why: str) -> bool:
    """A peer has asked for a channel, by what may be no name at all, and may not have it; whether that is new."""
    name, why = (text if text.isprintable() else ascii(text) for text in (name, why))
    with peer.lock:
        known = peer.refused_here.pop(name, None)
        peer.refused_here[name] = why
        while len(peer.refused_here) > MOST_REFUSED:
            del peer.refused_here[next(iter(peer.refused_here))]
    return known != why


def _page(names: Iterable[str], room: int) -> list[str]:
    """The first names, as many as fit in a question, and one at least."""
    found: list[str] = []
    for name in islice(names, MAX_NAMES):
        room -= len(name.encode()) + 8
        if room < 0 and found:
            break
        found.append(name)
    return found


def _spoken(why: str) -> str:
    return f"not allowed, whether or not it has such a channel: {why[:MOST_WHY]}"


__all__ = ["Permissions", "note_refused"]
