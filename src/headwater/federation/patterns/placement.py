"""Where a named pattern runs: one home in the federation for each.

at the one other node   that all its sources are at, if that lets it: only its matches cross
here                    otherwise: where it is wanted
at=                     where the user says

If sources come to be elsewhere too, a pattern that runs at another node moves here, with its state: this node first has
the events come, then has the other one stop and hand over what it has, and goes on from there. If the node that it runs
at has been away for longer than a lease, it has ended there: it begins anew here as soon as others have sources. Two
nodes that claim the same name: the later one is told who has it, or, if neither could know, ends when it hears of the
other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.channel import Channel
from headwater.errors import ChannelError, FederationError, HeadwaterError
from headwater.federation.patterns.placed import Home, PlacedPattern
from headwater.federation.wire.pattern_requests import (
    MAX_STATE,
    ChangePattern,
    PatternIs,
    PatternReport,
    PatternState,
    RunPattern,
    StopPattern,
    unpack_values,
)
from headwater.federation.wire.requests import pack_params
from headwater.spelling import did_you_mean

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.patterns.operator import PatternOrder
    from headwater.federation.context import Context
    from headwater.federation.patterns.service import PatternService
    from headwater.federation.peers.dialogue import Dialogue
    from headwater.federation.peers.peer import Peer
    from headwater.federation.peers.table import Peers
    from headwater.patterns.model import Limits
    from headwater.patterns.pattern import Pattern

log = logging.getLogger("headwater.federation")
LOOK_SECONDS = 0.25  # between two looks whether something has changed
MOVE_SECONDS = 30.0  # for which other nodes may take to send events here, before the pattern is stopped there
_HOME = "pattern-home/"  # in the node's state: at which other node a pattern was left running


class Placements:
    """The named patterns of one node of a federation, wherever they run."""

    def __init__(
        self,
        context: Context,
        peers: Peers,
        dialogue: Dialogue,
        settled: Callable[..., bool],
        service: PatternService,
    ) -> None:
        """`settled` says whether other nodes have taken up what is wanted of channels."""
        self._context, self._peers, self._dialogue = context, peers, dialogue
        self._settled, self._service = settled, service
        self._node: Node = context.node
        self._placed: dict[str, PlacedPattern] = {}
        self._busy: set[str] = set()
        self._lock = threading.Lock()
        context.scheduler.every(LOOK_SECONDS, self._look, wanted=lambda: bool(self._placed))

    # ── making one ──

    def make(
        self,
        name: str,
        given: Any,
        to: str | Channel[Any] | None,
        params: Mapping[str, Any] | None,
        aliases: Mapping[str, str] | None,
        limits: Limits | None,
        order: PatternOrder,
        at: str | None,
    ) -> PlacedPattern:
        """See `Node.pattern`."""
        from headwater.channel.patterns.creation import by_name
        from headwater.channel.patterns.definition import pattern_of

        with self._lock:
            if name in self._placed:
                raise ChannelError(f"pattern {name!r}: expected a name that no pattern of this node has; it is in use")
        node = self._node
        allowed = limits or node.config.patterns.limits
        given = by_name(node, given)
        pattern = pattern_of(given, node._known_types(), params=params, aliases=aliases, limits=allowed)
        channel = to if isinstance(to, Channel) else node.channel(to or name, pattern.output)
        self._check_free(name, channel.name)
        home, why = self._home(name, pattern, order, at)
        placed = PlacedPattern(self, name, pattern, channel, order, Home(node.name, why), at=at)
        if isinstance(home, str):  # it was left running at a node that is not there yet
            placed.home = Home(home, why, far=True)
        elif home is None or not self._run_far(placed, home, why):
            self._run_here(placed)
        self._placed[name] = placed
        return placed

    def _check_free(self, name: str, to: str) -> None:
        """Nobody else has a pattern of this name."""
        for peer in self._claimants(name, to):
            told = self._ask_about(peer, name)
            if told is not None and told.owner != self._context.id:
                raise ChannelError(
                    f"pattern {name!r}: it has its home at node {peer.name}; subscribe to channel {to!r}, or give "
                    "this one another name"
                )

    def _claimants(self, name: str, to: str) -> list[Peer]:
        """Nodes that publish matches of that name there."""
        return [
            peer
            for peer in self._peers.everyone()
            if peer.gone is None and any(ad.channel == to and ad.name == name for ad in peer.sources)
        ]

    def _ask_about(self, peer: Peer, name: str) -> PatternIs | None:
        """What a node says of a pattern; None if it has none, or cannot say."""
        try:
            told = self._dialogue.ask(peer, PatternReport(name))
        except FederationError as error:
            log.info("node %s: %s does not tell of pattern %r: %s", self._context.name, peer.name, name, error)
            return None
        return told if isinstance(told, PatternIs) and told.here else None

    # ── where ──

    def _home(self, name: str, pattern: Pattern, order: PatternOrder, at: str | None) -> tuple[Peer | str | None, str]:
        """The node that it is to run at, None for this one, the name of one that is awaited; and why."""
        there = {peer.name: peer for peer in self._peers.everyone() if peer.gone is None}
        if at is not None:
            if at == self._node.name:
                return None, "at= says so"
            if at not in there:
                names = sorted([self._node.name, *there])
                hint = did_you_mean(at, names)
                raise FederationError(
                    f"pattern {name!r}: at: expected a node that is there ({', '.join(names)}), found {at!r}"
                    + (f"; {hint}" if hint else "")
                )
            return there[at], "at= says so"
        if order == "arrival":
            return None, "its events are taken as they arrive"
        left = self._left_at(name)
        if left is not None:
            return there.get(left, left), "it was left running there"
        holders = self.holders(pattern)
        if len(holders) == 1 and None not in holders:
            (peer,) = holders
            assert peer is not None
            return peer, f"all its sources are at node {peer.name}"
        where = sorted("here" if peer is None else peer.name for peer in holders)
        return None, f"it is wanted here, and its sources are at {', '.join(where) or 'no node yet'}"

    def holders(self, pattern: Pattern) -> set[Peer | None]:
        """The nodes that have sources of its channels; None is this one."""
        found: set[Peer | None] = set()
        own = {channel.name: channel for channel in self._node.channels()}
        for name in pattern.channels:
            found.update(peer for peer in self._peers.everyone() if peer.gone is None and peer.has(name))
            if name in own and any(source.local for source in list(own[name].sources.values())):
                found.add(None)
        return found

    def _left_at(self, name: str) -> str | None:
        state = self._node.state
        found = None if state is None else state.secret(_HOME + name)
        return found.decode(errors="replace") if found else None

    def _note_home(self, name: str, node: str) -> None:
        if self._node.state is not None:
            self._node.state.keep(_HOME + name, node.encode())

    # ── running it ──

    def _run_here(self, placed: PlacedPattern) -> None:
        from headwater.channel.patterns.creation import named

        placed.local = named(self._node, placed.name, placed.pattern, placed.channel, None, None, None, placed.order)
        self._claim(placed)

    def _claim(self, placed: PlacedPattern) -> None:
        keeping = getattr(placed.local, "_keeping", None)
        placed.since = self._node._stamp() // 1000 if keeping is None else keeping.since
        self._service.claims[placed.name] = placed.since

    def _run_far(self, placed: PlacedPattern, peer: Peer, why: str) -> bool:
        """Have another node run it; whether it does. Where the user named that node, it is an error if it does not."""
        try:
            self._ask_to_run(placed, peer)
        except FederationError as error:
            if placed.at is not None:
                raise
            log.warning("node %s: pattern %r runs here: %s", self._context.name, placed.name, error)
            placed.home = Home(self._node.name, f"{why}, which does not run it: {error}")
            return False
        placed.home = Home(peer.name, why, far=True)
        self._note_home(placed.name, peer.name)
        return True

    def _ask_to_run(self, placed: PlacedPattern, peer: Peer) -> None:
        pattern = placed.pattern
        request = RunPattern(
            placed.name,
            placed.channel.name,
            pattern.kind,
            pattern.dumps(with_text=False),
            pack_params(pattern.params),
            min(3600.0, self._node.config.patterns.lease),
        )
        self._dialogue.ask(peer, request)
        placed.asked = peer.id, peer.incarnation

    def _peer(self, placed: PlacedPattern) -> Peer | None:
        """The node that it runs at, if that is there."""
        there = (peer for peer in self._peers.everyone() if peer.gone is None and peer.exchange is not None)
        return next((peer for peer in there if peer.name == placed.home.node), None)

    # ── what its user asks ──

    def change(self, placed: PlacedPattern, params: Mapping[str, Any]) -> dict[str, int]:
        """Other values of parameters, at a point of every source."""
        from headwater.channel.patterns.definition import with_params

        pattern = with_params(placed.pattern, {**placed.pattern.params, **params})
        peer = self._peer(placed)
        if peer is None:
            raise FederationError(f"pattern {placed.name!r}: node {placed.home.node}, where it runs, is away")
        told = self._dialogue.ask(peer, ChangePattern(placed.name, pack_params(pattern.params)))
        placed.pattern = pattern
        return dict(told.points)

    def values(self, placed: PlacedPattern) -> dict[str, Any]:
        """What the node says of it at which it runs."""
        peer = self._peer(placed)
        if peer is None:
            return {"away": True}
        try:
            told = self._dialogue.ask(peer, PatternReport(placed.name))
            return unpack_values(told.values) if isinstance(told, PatternIs) else {}
        except HeadwaterError as error:
            return {"problem": str(error)}

    def close(self, placed: PlacedPattern, *, forget: bool) -> None:
        """End it, wherever it runs."""
        self._placed.pop(placed.name, None)
        self._service.claims.pop(placed.name, None)
        if placed.local is not None:
            placed.local.close(forget=forget)
        elif placed.home.far and (peer := self._peer(placed)) is not None:
            self._note_home(placed.name, "")
            try:
                self._dialogue.ask(peer, StopPattern(placed.name))
            except FederationError as error:  # it ends there with its lease
                log.warning("node %s: pattern %r goes on for its lease: %s", self._context.name, placed.name, error)

    # ── when something has changed ──

    def _look(self) -> None:
        for placed in list(self._placed.values()):
            if placed.name not in self._busy and not self._context.closing and self._has_news(placed):
                self._busy.add(placed.name)
                if not self._context.scheduler.work(self._see_to, placed, on=f"pattern {placed.name}"):
                    self._busy.discard(placed.name)

    def _has_news(self, placed: PlacedPattern) -> bool:
        """Whether there may be something to be done about it."""
        if placed.problem:
            return False
        if not placed.home.far:
            claimants = {(peer.id, peer.incarnation) for peer in self._claimants(placed.name, placed.channel.name)}
            return bool(claimants - placed.heard)
        peer = self._peer(placed)
        if peer is None:
            return self._is_given_up(placed)
        placed.away = None
        if not peer.described:
            return False
        return placed.asked != (peer.id, peer.incarnation) or self._is_to_move(placed, peer)

    def _is_given_up(self, placed: PlacedPattern) -> bool:
        """Whether the node that it runs at is not waited for any longer: it has ended there by now, and there is
        something to be found elsewhere."""
        now = monotonic()
        if placed.away is None:
            placed.away = now
        return (
            placed.at is None
            and now - placed.away > self._node.config.patterns.lease
            and bool(self.holders(placed.pattern))
        )

    def _is_to_move(self, placed: PlacedPattern, peer: Peer) -> bool:
        return placed.at is None and bool(self.holders(placed.pattern) - {peer})

    def _see_to(self, placed: PlacedPattern) -> None:
        """In a thread that may wait for the network."""
        try:
            if placed.closed:
                return
            if not placed.home.far:
                self._settle_claims(placed)
                return
            peer = self._peer(placed)
            if peer is None:
                if self._is_given_up(placed):
                    self._begin_here(placed)
            elif placed.asked != (peer.id, peer.incarnation):
                self._run_again(placed, peer)
            elif self._is_to_move(placed, peer):
                self.move_here(placed, peer)
        finally:
            self._busy.discard(placed.name)

    def _run_again(self, placed: PlacedPattern, peer: Peer) -> None:
        """The node that it runs at was started again, or this one was."""
        try:
            self._ask_to_run(placed, peer)
        except FederationError as error:
            log.warning("node %s: pattern %r runs here: %s", self._context.name, placed.name, error)
            placed.home = Home(self._node.name, f"node {peer.name} does not run it any more: {error}")
            self._note_home(placed.name, "")
            self._run_here(placed)

    def _begin_here(self, placed: PlacedPattern) -> None:
        """The node that it ran at is away, with what was open there."""
        self._run_here(placed)
        log.warning(
            "node %s: pattern %r begins anew here: node %s, where it ran, is away", self._context.name, placed.name,
            placed.home.node,
        )  # fmt: skip
        placed.home = Home(self._node.name, f"node {placed.home.node}, where it ran, is away for longer than its lease")
        placed.moves += 1
        self._note_home(placed.name, "")

    def move_here(self, placed: PlacedPattern, peer: Peer) -> None:
        """First its events come here, then it stops there and hands over what it has."""
        from headwater.channel.patterns.creation import named

        made: Any = named(
            self._node, placed.name, placed.pattern, placed.channel, None, None, None, placed.order, waits=True
        )
        channels = [self._node.channel(name) for name in placed.pattern.channels]
        self._context.scheduler.until(partial(self._settled, channels), MOVE_SECONDS)
        state: bytes | None = None
        try:
            state = self._hand_over(placed.name, peer)
        except FederationError as error:
            log.warning(
                "node %s: pattern %r moves here without what was open at %s: %s",
                self._context.name, placed.name, peer.name, error,
            )  # fmt: skip
        made.go_on(state)
        placed.local = made
        where = sorted("here" if each is None else each.name for each in self.holders(placed.pattern))
        placed.home = Home(self._node.name, f"its sources are at {', '.join(where)}; it has moved from {peer.name}")
        placed.moves += 1
        self._note_home(placed.name, "")
        self._claim(placed)
        log.info("node %s: pattern %r has moved here from %s", self._context.name, placed.name, peer.name)

    def _hand_over(self, name: str, peer: Peer) -> bytes:
        """Its state, page by page; FederationError if it is not to be had."""
        stopped = self._dialogue.ask(peer, StopPattern(name, hand_over=True))
        if not 0 < stopped.size <= MAX_STATE:
            raise FederationError(stopped.why or f"expected at most {MAX_STATE:,} bytes, found {stopped.size:,}")
        parts = bytearray()
        while len(parts) < stopped.size:
            page = self._dialogue.ask(peer, PatternState(name, len(parts))).data
            if not page or len(parts) + len(page) > stopped.size:
                raise FederationError(f"expected {stopped.size:,} bytes of its state, found others")
            parts += page
        return bytes(parts)

    def _settle_claims(self, placed: PlacedPattern) -> None:
        """Others publish under the same name: who has claimed it first goes on."""
        for peer in self._claimants(placed.name, placed.channel.name):
            told = self._ask_about(peer, placed.name)
            if told is None or told.owner == self._context.id:
                if told is not None:  # it was given up there, or did not hear that it was to stop
                    self._dialogue.ask(peer, StopPattern(placed.name))
                placed.heard.add((peer.id, peer.incarnation))
            elif (told.since, peer.id) < (placed.since, self._context.id):
                placed.problem = f"pattern {placed.name!r} has its home at node {peer.name}, which claimed it before"
                log.error("node %s: %s; it ends here", self._context.name, placed.problem)
                self._service.claims.pop(placed.name, None)
                if placed.local is not None:
                    placed.local.close()
                return
            else:
                placed.heard.add((peer.id, peer.incarnation))


__all__ = ["Placements"]
