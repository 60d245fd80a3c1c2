"""What this node's sinks want of other nodes' sources, and what has become of asking for it.

Per channel there is a set of distinct interests. Filters of which another one covers everything are not asked for; a
source sends what any of the rest passes, once, and this node decides among its sinks. What has state or output runs at
the source only; its results come with a tag.

    Demands    of a node: the Wanted of each channel, brought up to date when somebody looks
    Wanted     of a channel: its wishes, kept in step with its interests one by one         (wishes.py)
    Demand     of a channel and a peer: what is wanted there, as of a version
    InterestRequest   what a peer was asked for, and its answer
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from headwater.federation.demand.wishes import EVERYTHING, HERE, Changed, Wanted, sinks_behind
from headwater.federation.wire.requests import Wish

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.route import Entry
    from headwater.channel.subscription import Subscription


MOST_TURNS = 16  # questions of which it is remembered for whom they spoke


class Askable(Protocol):
    """Another node, as far as it is asked for something."""

    id: str
    name: str
    asked: dict[str, InterestRequest]  # by channel


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """What is wanted of a channel at one peer, as of a version of what is wanted of it at all. The wishes
    themselves are in `wanted`, under the wiring's lock, for as long as that is of the same version."""

    wanted: Wanted | None = None
    version: int = 0
    here: frozenset[Entry] = frozenset()  # what the peer has refused, and runs here therefore
    wishes: int = 0  # how many
    tagged: tuple[Wish, ...] = ()  # those that run at the source only
    instead: tuple[Wish, ...] = ()  # filters and all else, if something was refused
    plain: bool = (
        True  # nothing but filters, in the whole channel, from now on, and for nobody who is to find them again
    )
    reliable: bool = False
    promises: bool = False
    routes: tuple[tuple[str, ...], ...] = ()  # if only gateways want it: the federations behind each that want it

    def same(self, other: Demand) -> bool:
        """Whether nothing has to be asked to go from one to the other."""
        if not self.wishes or not other.wishes:
            return self.wishes == other.wishes
        return self.wanted is other.wanted and self.version == other.version and self.here == other.here

    @property
    def placed(self) -> dict[Entry, str]:
        """For people: where each interest runs, and why."""
        return (
            {} if self.wanted is None else {entry: self.wanted.placed(entry, self.here) for entry in self.wanted.parts}
        )


NOTHING = Demand()


@dataclass(slots=True)
class InterestRequest:
    """What one peer was asked for of a channel, and its answer."""

    version: int = 0  # of what was asked last
    agreed: int = 0  # of what was answered last
    marked: int = 0  # of what is in force, with everything before it here
    since: int = 0  # by the peer's clock, in nanoseconds: since then that is in force there
    first: bool = False  # and nothing was published there before
    gap: int = 0  # when something was last not heard there that gateways pass on
    begins: list[tuple[int, list[Subscription]]] = field(default_factory=list)  # by version: who waits for the past
    due: int = 0  # of the barrier to wait for: what was only withdrawn since needs none
    demand: Demand = NOTHING  # as it was answered
    base: int = 0  # the version that the peer is known to have in full: what has changed since `demand` is enough
    points: dict[int, int] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    hidden: dict[int, str] = field(default_factory=dict)  # what policies there let nothing through for, and why
    judged: int = 0  # how often policies there have said something new of it
    busy: bool = False
    again: bool = False
    incarnation: int = 0
    memory: int = 0  # of the peer, in which that was
    number: int = 0  # of the channel there, by then
    turns: dict[int, int] = field(default_factory=dict)  # by version: the last change of the wiring that it knows of

    def speaks_for(self, turn: int) -> None:
        """What was asked last is what is wanted with that change of the wiring."""
        self.turns[self.version] = max(turn, self.turns.get(self.version, 0))
        while len(self.turns) > MOST_TURNS:  # what is in force there was answered, or asked since
            del self.turns[next(version for version in self.turns if version != self.agreed)]

    def covers(self, version: int, turn: int) -> bool:
        """Whether a question spoke for a sink that came with a change of the wiring; of an old one, that is not known
        any more."""
        return turn <= self.turns.get(version, -1)

    @property
    def all_refused(self) -> bool:
        """Whether nothing comes of all that was asked for."""
        return len(self.refused) >= self.demand.wishes


class Demands:
    """Of one node. Used under the wiring's lock, but for what says otherwise."""

    def __init__(self, node: Node, placement: str) -> None:
        self._node, self._placement = node, placement
        self._tags: dict[str, dict[int, Entry]] = {}
        self._numbers: dict[Entry, int] = {}
        self._whole: dict[Entry, int] = {}  # tags of what is asked for where marks are refused
        self._next = count(1)
        self._versions = count(1)
        self._lock = threading.Lock()
        self.claim: Callable[[Any], Any] = lambda claimant: None  # what is said, with proof, of a user
        self.ahead: dict[Channel, list[Entry]] = {}  # to be asked for before anybody is attached
        self._here: dict[tuple[str, str], frozenset[Entry]] = {}  # by peer and channel: refused, so they run here
        self._wanted: dict[Channel, Wanted] = {}
        self._stale: dict[Channel, dict[Entry, None]] = {}  # interests whose members have changed
        self._shared: dict[Channel, Demand] = {}  # the latest, of peers that have refused nothing

    # ── tags ──

    def tags(self, channel: str) -> dict[int, Entry]:
        """By tag, the interests of a channel; any thread may look."""
        with self._lock:
            return self._tags.setdefault(channel, {})

    def tag(self, channel: str, entry: Entry) -> int:
        with self._lock:
            found = self._numbers.get(entry)
            if found is None:
                found = self._numbers[entry] = next(self._next)
            self._tags.setdefault(channel, {})[found] = entry
            return found

    def forget(self, channel: str, entry: Entry) -> None:
        """Nobody has this interest any more."""
        with self._lock:
            found = self._numbers.pop(entry, None)
            self._whole.pop(entry, None)
            if found is not None:
                self._tags.get(channel, {}).pop(found, None)

    def entry(self, channel: str, tag: int) -> Entry | None:
        return self.tags(channel).get(tag)

    def number(self, entry: Entry) -> int | None:
        """The tag of an interest, if it has one."""
        with self._lock:
            return self._numbers.get(entry)

    # ── where interests run ──

    def placed(self, peer: Askable, channel: str, entry: Entry) -> tuple[str, str] | None:
        """For people: where an interest in a peer's sources runs, and why; None if nothing was asked there."""
        asked = peer.asked.get(channel)
        if asked is None:
            return None
        wanted, text = asked.demand.wanted, ""
        if wanted is not None and wanted.asked(entry, asked.demand.version):
            text = wanted.placed(entry, asked.demand.here)
        refused = asked.refused.get(self.number(entry) or -1)
        if refused is not None and not text.startswith("destination"):
            return "refused", f"node {peer.name}: {refused}"
        where, _, why = text.partition(": ")
        return (where, why) if where else ("on its way", f"node {peer.name} has not answered yet")

    def runs_at(self, peer: Askable, channel: str, entry: Entry) -> bool:
        """Whether an interest that filters do not merge with runs at a peer's sources, not here; any thread may ask.

        Also while the peer has not answered yet, or if it has refused: on what others let through it would be judged by
        half of the events."""
        if entry.claimant is not None:
            return True  # what comes for the node itself is not for that user
        contextual = entry.interest is not None and entry.interest.contextual  # it can be judged nowhere else
        there = self._placement != "destination" or contextual
        return there and entry not in self._here.get((peer.id, channel), ())

    def refused(self, peer: Askable, channel: Channel, entry: Entry) -> bool:
        """A peer will not run it; whether it is to run here instead."""
        if entry.claimant is not None or (self._placement != "auto" and not entry.apart):
            return False
        key = peer.id, channel.name
        self._here[key] = self._here.get(key, frozenset()) | {entry}
        return True

    def forget_refusals(self, peer: Askable, channel: Channel) -> bool:
        """Ask a peer again for what it has refused; whether there is anything. Of patterns whole events go on coming:
        between two answers nothing would come."""
        known = self._here.pop((peer.id, channel.name), frozenset())
        wanted = self._wanted.get(channel)
        stays = frozenset(entry for entry in known if entry.apart and wanted is not None and entry in wanted.parts)
        if stays:
            self._here[peer.id, channel.name] = stays
        return known != stays

    # ── what is wanted ──

    def touch(self, channel: Channel, entries: Iterable[Entry]) -> None:
        """Members of these interests have changed: those of a derived channel are behind one of its parent."""
        at: Channel | None = channel
        while at is not None:
            self._stale.setdefault(at, {}).update(dict.fromkeys(entries))
            entries = () if at.stage_entry is None else (at.stage_entry,)
            at = at.parent

    def of(self, channel: Channel, peer: Askable) -> Demand:
        """What this node wants of a channel from that peer."""
        wanted = self._current(channel)
        if wanted is None or not wanted.parts:
            return NOTHING
        refused = self._here.get((peer.id, channel.name), frozenset())
        if refused:
            refused = frozenset(entry for entry in refused if entry in wanted.parts)
        shared = self._shared.get(channel)
        if not refused and shared is not None and shared.wanted is wanted and shared.version == wanted.version:
            return shared
        made = self._demand(wanted, refused)
        if not refused:
            self._shared[channel] = made
        return made

    def _demand(self, wanted: Wanted, refused: frozenset[Entry]) -> Demand:
        """Of all that is wanted, where some of it was refused."""
        tagged, instead = wanted.tagged, tuple[Wish, ...]()
        if refused:
            tagged = tuple(wish for entry, wish in wanted.running.items() if entry not in refused)
            instead = self._instead(wanted, refused)
        return Demand(
            wanted,
            wanted.version,
            refused,
            len(instead) + len(tagged) if refused else len(wanted.wishes),
            tagged,
            instead,
            not wanted.special and not wanted.names,
            wanted.reliable,
            wanted.promises,
            wanted.routes,
        )

    def _instead(self, wanted: Wanted, refused: frozenset[Entry]) -> tuple[Wish, ...]:
        """What is asked for in the place of filters and of what was refused: everything; or, for a pattern, the events
        that pass what is asked of this node's own, if that is nothing but comparisons: these need no code."""
        if not all(entry.apart for entry in refused):
            return (EVERYTHING,)
        found = [wish for wish in wanted.wishes.values() if not wish.tagged]
        for entry in refused:
            if entry not in self._whole:
                self._whole[entry] = next(self._next)
            found.append(wanted.filter_wish(entry, self._whole[entry]))
        return tuple(found)

    def _current(self, channel: Channel) -> Wanted | None:
        """What is wanted of a channel at all, up to date."""
        wanted, stale = self._wanted.get(channel), self._stale.pop(channel, {})
        if wanted is None:
            if not stale and not channel.entries and not self.ahead.get(channel):
                return None
            wanted = self._wanted[channel] = Wanted(self, channel, self._placement, self._versions)
            stale = dict.fromkeys(channel.entries.values())
        try:
            wanted.update(stale, self.ahead.get(channel, ()))
        except BaseException:  # it is in no state to go on from: the next one makes it anew
            del self._wanted[channel]
            raise
        if not wanted.parts:
            del self._wanted[channel]
            self._shared.pop(channel, None)
        return wanted

    def changed(self, demand: Demand, before: Demand) -> Changed | None:
        """How the wishes of the latest demand differ from those of an earlier one; None if that is not known."""
        if demand.wanted is None or demand.wanted is not before.wanted or demand.here or before.here:
            return None
        return demand.wanted.since(before.version)

    def everything(self, demand: Demand) -> Changed:
        """All wishes of a demand, the latest."""
        wanted = demand.wanted
        if wanted is None or not demand.wishes:
            return Changed()
        if not demand.here:
            return Changed(list(wanted.wishes.values()), names=list(wanted.names))
        return Changed([*demand.instead, *demand.tagged], names=list(wanted.names))

    # ── sinks ──

    def late(self, channel: Channel) -> list[Subscription]:
        """Sinks that want to begin with the past."""
        wanted = self._current(channel)
        return [] if wanted is None else [sink for part in wanted.late.values() for sink in part.late]

    def durable(self, channel: Channel) -> list[Subscription]:
        """Sinks that are to find everything again after a restart."""
        wanted = self._current(channel)
        return [] if wanted is None else [sink for part in wanted.durable.values() for sink in part.durable]


__all__ = ["EVERYTHING", "HERE", "NOTHING", "Demand", "Demands", "InterestRequest", "sinks_behind"]
