"""Changing who gets what, all at once: subscriptions and derived channels come, change and go, sources as well.

Everything is prepared first. Then the sources of the channels concerned stand still for a moment, each between two of
its events, while members and routes are exchanged; where each stood is the exact point from which the change holds.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.channel.routing.route import Entry, Lineup, Member, Rated, key_of
from headwater.errors import ClosedError
from headwater.interest import Apart, Interest

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel, RoutedSource


@dataclass(frozen=True)
class Move:
    """A member joins an entry, or leaves it."""

    channel: RoutedChannel
    entry: Entry
    member: Member
    joins: bool


class Wiring:
    """One per node. `lock` guards the registry of channels, sources and subscriptions; it is taken before any other."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.version = 0  # counts changes, each before it takes effect
        # Told, under the lock, of channels whose members or sources have changed: quick, and without waiting.
        self.changed: Callable[[Iterable[RoutedChannel]], None] = lambda channels: None
        # Told, under the lock, of interests whose members have changed, channel by channel, before `changed` is.
        self.rearranged: Callable[[RoutedChannel, Iterable[Entry]], None] = lambda channel, entries: None
        # Told, under the lock of the source as well, that it has gone to other zones.
        self.moved: Callable[[RoutedSource], None] = lambda source: None
        self.reserved: list[Entry] = []  # of interests with state: made already for a subscription that is changing

    @contextmanager
    def still(self, channels: Iterable[RoutedChannel]) -> Iterator[None]:
        """No source of these channels publishes meanwhile. Do not wait, and run no user code, inside."""
        found = {id(flow.source): flow.source for channel in channels for flow in channel.flows()}
        with ExitStack() as stack:
            for source in sorted(found.values(), key=lambda source: source.number):
                stack.enter_context(source.lock)
            yield

    # ── members ──

    def entry(
        self,
        channel: RoutedChannel,
        interest: Interest | Apart | None,
        *,
        zones: frozenset[str] | None = None,
        rated: Rated | None = None,
        claimant: Any = None,
        owner: object = None,
    ) -> Entry:
        """The entry of an interest in some zones (None: in all): the one it shares, or, for an `owner` with a rate or
        that asks for a user, one of its own."""
        if rated is not None or claimant is not None:
            assert not isinstance(interest, Apart)
            same = None if interest is None else (interest.fingerprint, repr(sorted(interest.params.items())))
            own = "rated", owner, same, zones
            found = channel.known.get(own)
            if found is None:
                found = channel.known[own] = Entry(interest, own, zones=zones, rated=rated, claimant=claimant)
            return found
        apart = interest if isinstance(interest, Apart) else None
        if apart is not None:
            interest = apart.there
            key: object = "apart", key_of(interest), key_of(apart.here), zones
            found = channel.known.get(key)
            if found is None:
                found = channel.known[key] = Entry(interest, key, zones=zones, apart=apart)
            return found
        assert not isinstance(interest, Apart)
        for entry in self.reserved:
            if interest is not None and entry.interest is not None and _same(entry, interest, zones):
                return entry
        key = key_of(interest)
        if zones is not None:
            key = key, zones
        found = channel.known.get(key)
        if found is None:
            found = channel.known[key] = Entry(interest, key, zones=zones)
        return found

    def move(self, moves: Iterable[Move], *, at_point: Callable[[], None] | None = None) -> None:
        """Members join and leave, all at one point of each source's sequence; `at_point` is called there."""
        with self.lock:
            todo = self._with_stages(list(moves))
            members: dict[Entry, list[Member]] = {}
            for move in todo:
                now = members.setdefault(move.entry, list(move.entry.members))
                if move.joins:
                    now.append(move.member)
                else:
                    now.remove(move.member)
            # What takes time is made ready before sources stand still: publishers wait for the rest only.
            touched: dict[RoutedChannel, dict[Entry, int]] = {}  # by channel: its entries, and how wide each was
            for move in todo:
                touched.setdefault(move.channel, {})[move.entry] = move.entry.width
            self._prepare(todo)
            for move in todo:
                if move.joins:
                    move.member.prepare()
            self.version += 1
            with self.still(touched):
                # Who leaves takes its last counts by the old route, who joins its first by the new one.
                for move in todo:
                    if not move.joins:
                        move.member.ended()
                for entry, now in members.items():
                    entry.members = tuple(now)
                    entry.width = sum(member.width for member in now)
                for channel, entries in touched.items():
                    self._renew(channel, entries)
                for member in {id(move.member): move.member for move in todo if move.joins}.values():
                    member.started()
                if at_point is not None:
                    at_point()
                for entry in members:
                    entry.fresh = False
            # Other nodes need not be told at that very point: a barrier says to them where it was.
            for channel, entries in touched.items():
                self.rearranged(channel, entries)
            self.changed(touched)

    def _with_stages(self, moves: list[Move]) -> list[Move]:
        """A derived channel joins its parent with its first member and leaves with its last."""
        todo = list(moves)
        gains: Counter[RoutedChannel] = Counter()  # by derived channel, of what is counted so far
        for move in todo:
            if move.channel.stage is not None:
                gains[move.channel] += 1 if move.joins else -1
        derived = list(gains)
        pending = {id(move.member) for move in todo}
        for channel in derived:  # grows as it goes
            if channel.parent is None or channel.stage is None:
                continue
            before = sum(len(entry.members) for entry in channel.entries.values())
            joins = before == 0 and before + gains[channel] > 0
            leaves = before > 0 and before + gains[channel] == 0
            if (joins or leaves) and id(channel.stage) not in pending:
                assert channel.stage_entry is not None
                todo.append(Move(channel.parent, channel.stage_entry, channel.stage, joins))
                pending.add(id(channel.stage))
                if channel.parent.stage is not None:
                    gains[channel.parent] += 1 if joins else -1
                    derived.append(channel.parent)
        return todo

    def _prepare(self, moves: list[Move]) -> None:
        """New entries enter the line-ups; nobody consults them yet."""
        fresh: dict[RoutedChannel, list[Entry]] = {}
        for move in moves:
            channel, entry = move.channel, move.entry
            if move.joins and channel.entries.get(entry.key) is not entry:
                channel.entries[entry.key] = entry
                entry.fresh = True
                fresh.setdefault(channel, []).append(entry)
        for channel, entries in fresh.items():
            for lineup in channel.lineups:
                lineup.add_many(entries)
                lineup.prepare()

    def _renew(self, channel: RoutedChannel, touched: dict[Entry, int]) -> None:
        """Exchange the routes after members of these entries have changed; with each, how wide it was."""
        for entry in touched:
            if not entry.members:
                del channel.entries[entry.key]
        for lineup in channel.lineups:
            for entry, before in touched.items():
                lineup.resize(entry, before)
                if not entry.members:
                    lineup.remove(entry)
                    for flow in lineup.flows:
                        flow.forget(entry)
            lineup.route = lineup.renewed()
            for flow in lineup.flows:
                flow.take(lineup.route)

    # ── sources ──

    def advertise(self, source: RoutedSource) -> None:
        """A source comes, with its flow in its channel and in all that are derived from it."""
        with self.lock:
            self.version += 1
            self._add_flow(source, source.channel, source.facts)
            source.enlist()
            self.changed([source.channel])

    def _add_flow(self, source: RoutedSource, channel: RoutedChannel, facts: Interest | None) -> None:
        lineup = self._lineup(channel, facts, source.zones)
        lineup.expect(source)
        flow = source.flow(channel, lineup)
        source.flows[channel] = flow
        lineup.flows.append(flow)
        for derived in channel.derived:
            self._add_flow(source, derived, facts if derived.keeps_facts else None)

    def _lineup(self, channel: RoutedChannel, facts: Interest | None, zones: frozenset[str]) -> Lineup:
        for lineup in channel.lineups:
            if lineup.zones == zones and key_of(lineup.facts) == key_of(facts):
                return lineup
        lineup = Lineup(channel, facts, zones)
        lineup.add_many(channel.entries.values())
        lineup.route = lineup.renewed()
        channel.lineups.append(lineup)
        for entry in channel.entries.values():
            for member in entry.members:
                member.joined(lineup)
        return lineup

    def derive(self, channel: RoutedChannel) -> None:
        """A derived channel comes: the sources of its parent flow through it from now on."""
        assert channel.parent is not None
        with self.lock, self.still([channel.parent]):
            self.version += 1
            channel.join_parent()
            for flow in channel.parent.flows():
                self._add_flow(flow.source, channel, flow.lineup.facts if channel.keeps_facts else None)

    def withdraw(self, source: RoutedSource) -> None:
        """A source goes."""
        with self.lock:
            with source.between():
                if source.withdrawn:
                    return
                self.version += 1
                source.shut()
                source.withdrawn = True
                for flow in source.flows.values():
                    flow.lineup.retire(flow)
            for channel, flow in source.flows.items():
                self._drop(channel, flow.lineup)
            source.delist()
            self.changed([source.channel])

    def rezone(self, source: RoutedSource, zones: frozenset[str]) -> int:
        """A source goes to other zones, between two of its events: the sequence number of the last before that."""
        with self.lock:
            if source.closed:
                raise ClosedError(f"move: {source} is closed; make another with channel.source(zones=...)")
            flows = list(source.flows.items())
            others = [self._lineup(channel, flow.lineup.facts, zones) for channel, flow in flows]
            for lineup in others:
                lineup.expect(source)
            self.version += 1
            with source.lock:
                before = [flow.lineup for _, flow in flows]
                for (_, flow), lineup in zip(flows, others, strict=True):
                    if flow.lineup is not lineup:
                        flow.lineup.hand(flow, lineup)
                source._zones, point = zones, source.seq
                self.moved(source)
            for (channel, _), lineup in zip(flows, before, strict=True):
                self._drop(channel, lineup)
            self.changed([source.channel])
            return point

    def _drop(self, channel: RoutedChannel, lineup: Lineup) -> None:
        """A line-up goes if it is for facts or zones that no source has any more."""
        if lineup.flows or lineup not in channel.lineups or (lineup.facts is None and not lineup.zones):
            return
        for entry in channel.entries.values():
            for member in entry.members:
                member.left(lineup)
        channel.past.inherit(lineup.past, lineup.past.fates)
        channel.lineups.remove(lineup)

    def remove_derived(self, channel: RoutedChannel) -> None:
        """A derived channel goes; it has no members and no sources of its own any more."""
        assert channel.parent is not None
        with self.lock, self.still([channel]):
            channel.leave_parent()
            for lineup in channel.lineups:
                for flow in lineup.flows:
                    flow.source.past.inherit(flow.tally(), flow.fates)
                    flow.source.flows.pop(channel, None)


def _same(entry: Entry, interest: Interest, zones: frozenset[str] | None) -> bool:
    mine = entry.interest
    return (
        mine is not None
        and entry.zones == zones
        and mine.fingerprint == interest.fingerprint
        and mine.params == interest.params
    )
