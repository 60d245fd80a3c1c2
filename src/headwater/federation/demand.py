"""What this node's sinks want of other nodes' sources, and what has become of asking for it.

Per channel there is a set of distinct interests. Filters of which another one covers everything are not asked for; a
source sends what any of the rest passes, once, and this node decides among its sinks. What has state or output runs at
the source only; its results come with a tag.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from msgspec import structs

from headwater.federation.merging import Kept
from headwater.federation.messages import Wish, pack_params

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.node import Node
    from headwater.channel.route import Entry
    from headwater.channel.subscription import Subscription
    from headwater.federation.peer import Peer

EVERYTHING = Wish(0, None)


@dataclass(frozen=True, slots=True)
class Demand:
    """What is wanted of a channel at one peer."""

    wishes: tuple[Wish, ...] = ()
    reliable: bool = False
    promises: bool = False
    there: frozenset[Entry] = frozenset()  # what runs at the source only
    placed: dict[Entry, str] = field(default_factory=dict, compare=False)  # for people: where each runs, and why
    routes: tuple[tuple[str, ...], ...] = ()  # if only gateways want it: the federations behind each that want it


NOTHING = Demand()


@dataclass(slots=True)
class Installation:
    """What one peer was asked for of a channel, and its answer."""

    version: int = 0  # of what was asked last
    agreed: int = 0  # of what was answered last
    marked: int = 0  # of what is in force, with everything before it here
    begins: list[tuple[int, list[Subscription]]] = field(default_factory=list)  # by version: who waits for the past
    due: int = 0  # of the mark to wait for: what was only withdrawn since needs none
    demand: Demand = NOTHING  # as it was answered
    points: dict[int, int] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    busy: bool = False
    again: bool = False
    incarnation: int = 0


class Demands:
    """Of one node. Used under the wiring's lock, but for what says otherwise."""

    def __init__(self, node: Node, placement: str) -> None:
        self._node, self._placement = node, placement
        self._tags: dict[str, dict[int, Entry]] = {}
        self._numbers: dict[Entry, int] = {}
        self._next = count(1)
        self._lock = threading.Lock()
        self.ahead: dict[Channel, list[Entry]] = {}  # to be asked for before anybody is attached
        self._here: dict[tuple[str, str], set[Entry]] = {}  # by peer and channel: refused there, so they run here
        self._covers: dict[str, dict[frozenset[str] | None, Kept]] = {}  # by channel and zones

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

    def entry(self, channel: str, tag: int) -> Entry | None:
        return self.tags(channel).get(tag)

    def number(self, entry: Entry) -> int | None:
        """The tag of an interest, if it has one."""
        with self._lock:
            return self._numbers.get(entry)

    def placed(self, peer: Peer, channel: str, entry: Entry) -> tuple[str, str] | None:
        """For people: where an interest in a peer's sources runs, and why; None if nothing was asked there."""
        asked = peer.asked.get(channel)
        if asked is None:
            return None
        text = asked.demand.placed.get(entry, "")
        refused = asked.refused.get(self.number(entry) or -1)
        if refused is not None and not text.startswith("destination"):
            return "refused", f"node {peer.name}: {refused}"
        where, _, why = text.partition(": ")
        return (where, why) if where else ("on its way", f"node {peer.name} has not answered yet")

    def runs_at(self, peer: Peer, channel: str, entry: Entry) -> bool:
        """Whether an interest that filters do not merge with runs at a peer's sources, not here; any thread may ask.

        Also while the peer has not answered yet, or if it has refused: on what others let through it would be judged by
        half of the events."""
        return self._placement != "destination" and entry not in self._here.get((peer.id, channel), ())

    def refused(self, peer: Peer, channel: Channel, entry: Entry) -> bool:
        """A peer will not run it; whether it is to run here instead."""
        if self._placement != "auto":
            return False
        self._here.setdefault((peer.id, channel.name), set()).add(entry)
        return True

    def forget_refusals(self, peer: Peer, channel: Channel) -> bool:
        """Ask a peer again for what it has refused; whether there is anything."""
        return bool(self._here.pop((peer.id, channel.name), None))

    def of(self, channel: Channel, peer: Peer) -> Demand:
        """What this node wants of a channel from that peer."""
        entries = [entry for entry in channel.entries.values() if entry.local]
        entries += [entry for entry in self.ahead.get(channel, ()) if entry not in entries]
        if not entries:
            self._clean(channel, ())
            self._covers.pop(channel.name, None)
            return NOTHING
        here = self._here.get((peer.id, channel.name), set())
        filters: list[Entry] = []
        wishes: list[Wish] = []
        there: set[Entry] = set()
        placed: dict[Entry, str] = {}
        everything = False
        for entry in entries:
            if entry.interest is None:
                filters.append(entry)
                placed[entry] = "source: it wants everything"
            elif self._placement == "destination" or entry in here:
                everything = True
                placed[entry] = "destination: " + ("the source refuses it" if entry in here else "as configured")
            elif _merges(channel, entry):
                filters.append(entry)
                placed[entry] = "source and destination: filtered there, decided here"
            else:
                there.add(entry)
                placed[entry] = "source: it has state or output, or may run for long"
                wishes.append(self._wish(channel, entry, tagged=True))
        covers = self._covers.setdefault(channel.name, {}) if not here else {}  # most peers take all
        wishes += self._merged(channel, filters, everything, placed, covers)
        sinks = list(sinks_behind(entries))
        self._clean(channel, entries)
        return Demand(
            tuple(wishes),
            reliable=any(sink.options.delivery.name == "reliable" for sink in sinks) or bool(self.ahead.get(channel)),
            promises=any(sink.options.order == "timestamp" for sink in sinks),
            there=frozenset(there),
            placed=placed,
            routes=_routes(sinks),
        )

    def _merged(
        self,
        channel: Channel,
        filters: list[Entry],
        everything: bool,
        placed: dict[Entry, str],
        covers: dict[frozenset[str] | None, Kept],
    ) -> Iterator[Wish]:
        """The fewest filters that together pass what all of them pass; by zones, since those are judged beside them."""
        if everything:
            yield structs.replace(EVERYTHING, sinks=_durable(sinks_behind(channel.entries.values())))
            return
        groups: dict[frozenset[str] | None, list[Entry]] = {}
        for entry in filters:
            groups.setdefault(entry.zones, []).append(entry)
        for gone in [zones for zones in covers if zones not in groups]:
            del covers[gone]
        for zones, group in groups.items():
            needed, covered = covers.setdefault(zones, Kept()).minimal([entry.interest for entry in group])
            durable = _durable(sinks_behind(group))  # those of the covered too: what is kept for them is the same
            for index in needed:
                yield structs.replace(self._wish(channel, group[index], tagged=False), sinks=durable)
            for index in covered:
                wish = self._wish(channel, group[index], tagged=False)
                if wish.history:  # nobody else asks for its past
                    yield wish
                placed[group[index]] = "destination: another interest of this node covers it at the source"

    def _wish(self, channel: Channel, entry: Entry, *, tagged: bool) -> Wish:
        interest = entry.interest
        sinks = list(sinks_behind([entry]))
        history, turn = _past(sinks)
        return Wish(
            self.tag(channel.name, entry),
            None if interest is None else interest.dumps(),
            None if interest is None else pack_params(interest.params),
            tagged,
            sorted(entry.zones or ()),
            history,
            _durable(sinks),
            turn,
        )

    def _clean(self, channel: Channel, entries: Iterable[Entry]) -> None:
        """Tags of interests that nobody has any more are forgotten."""
        keep = set(entries)
        with self._lock:
            tags = self._tags.get(channel.name, {})
            for tag, entry in list(tags.items()):
                if entry not in keep:
                    del tags[tag]
                    self._numbers.pop(entry, None)


def _past(sinks: Iterable[Subscription]) -> tuple[int, int]:
    """How many events of the past these want at most (below 0: all), and the number of the last of them that does."""
    begins = {sink.number: sink.options.history for sink in sinks if sink.options.history}
    if not begins:
        return 0, 0
    return -1 if min(begins.values()) < 0 else max(begins.values()), max(begins)


def _durable(sinks: Iterable[Subscription]) -> list[str]:
    return sorted({sink.name for sink in sinks if sink.progress is not None})


def _merges(channel: Channel, entry: Entry) -> bool:
    """Whether it is a filter that may run at both ends."""
    matcher = channel.lineups[0].matcher
    return matcher is not None and entry.interest is not None and matcher.takes(entry.interest)


def _routes(sinks: list[Subscription]) -> tuple[tuple[str, ...], ...]:
    """Where what is wanted goes, if none of these is a sink of this federation."""
    routes: set[tuple[str, ...]] = set()
    for sink in sinks:
        onward = getattr(sink, "routes", ())
        if not onward:
            return ()
        routes.update(onward)
    return tuple(sorted(routes))


def sinks_behind(entries: Iterable[Entry]) -> Iterator[Subscription]:
    """The subscriptions behind interests, those of derived channels included."""
    for entry in entries:
        for member in entry.members:
            subscription = getattr(member, "subscription", None)
            if subscription is not None:
                yield subscription
            elif (channel := getattr(member, "channel", None)) is not None and member.local:
                yield from sinks_behind(channel.entries.values())
