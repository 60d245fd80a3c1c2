"""How far this node is with sources that are logged: they outlive their process, and are known again by their log.

Events of an interest come in their order, so for each interest one number says which have come: that of the last. What
filters let through comes in one stream for all of them, which has the tag 0.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import unquote

from headwater.channel.groups.group_positions import BEGUN
from headwater.channel.queues.position_keys import key_of, prefix_of
from headwater.federation.demand.demand import sinks_behind

if TYPE_CHECKING:
    from headwater.channel.node import Node
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.federation.arrive.upstream import Upstream
    from headwater.federation.demand.demand import Demand, Demands, InterestRequest

MOST_SOURCES = 65_536  # sources that are remembered

ByTag = dict[int, int]
BySource = dict[str, ByTag]


def _streams(demand: Demand) -> list[int]:
    """The tags under which events come: of each interest that runs there only, and 0 for all filters together."""
    tags = [wish.tag for wish in demand.tagged]
    return tags if len(tags) == demand.wishes else [0, *tags]


class _Remote(Protocol):
    """A source of another node, as far as it matters here."""

    peer: Upstream
    reached: LogPosition | None
    sid: int
    term: int  # how often it has moved

    def supersede(self) -> None: ...


class LogPosition:
    """Of one source. `at` is the last event of each tag that came; `since`, of an interest that runs there, the last
    event before it held, from where on its state counts."""

    __slots__ = ("at", "channel", "since", "term")

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.term = 0  # how often the source has moved, as far as is known here
        self.at: ByTag = {}
        self.since: ByTag = {}

    def holds(self, asked: InterestRequest | None, point: int, known: ByTag) -> None:
        """Its source is announced, and all that was asked for holds after an event: what it passes is owed to sinks
        from there on, also to those that will see their first one in another life of the source. `known`: by tag, where
        the durable sink is that has had least of it: what is after that has not come to all, though another life of
        the source, which is announced as well, may have published it."""
        if asked is not None:
            for tag in _streams(asked.demand):
                self.at.setdefault(tag, min(point, known.get(tag, point)))
                if tag:
                    self.since.setdefault(tag, point)

    def begin_again(self, after: ByTag) -> None:
        """What follows on these events comes again: until it has, some sinks here do not have it."""
        for tag, seq in after.items():
            if tag in self.at:
                self.at[tag] = min(self.at[tag], seq)

    def reach(self, tag: int, seq: int) -> None:
        if seq > self.at.get(tag, -1):
            self.at[tag] = seq


class LogPositions:
    """Of one node, for as long as its process lasts."""

    # Durable sinks of a channel that have left this node, or are about to.
    departed: Callable[[str], list[str]] = staticmethod(lambda channel: [])

    def __init__(self, node: Node, demands: Demands) -> None:
        self._node, self._demands = node, demands
        self._of: dict[str, LogPosition] = {}
        self._lock = threading.Lock()

    def of(self, key: str, channel: str) -> LogPosition:
        with self._lock:
            found = self._of.get(key)
            if found is None:
                while len(self._of) >= MOST_SOURCES:
                    del self._of[next(iter(self._of))]
                found = self._of[key] = LogPosition(channel)
            return found

    def _all(self, prefix: str) -> dict[str, LogPosition]:
        """By name of the source."""
        with self._lock:
            return {unquote(key.removeprefix(prefix)): each for key, each in self._of.items() if key.startswith(prefix)}

    def has_come(self, channel: str) -> bool:
        """Whether anything of a logged source of a channel has come here that is remembered."""
        with self._lock:
            return any(each.at for each in self._of.values() if each.channel == channel)

    def installed(self, peer: Upstream, channel: str, demand: Demand, points: dict[int, int]) -> None:
        """A peer has put wishes in force after these events of its sources, by their numbers there."""
        tags = [wish.tag for wish in demand.tagged]
        if not tags:
            return
        for ad in peer.sources:
            if ad.log and ad.channel == channel and ad.sid in points:
                key = key_of(peer.name, ad.log, ad.name)
                if ad.home:
                    if ad.sid not in peer.remote_sources:
                        continue  # it has to prove that first
                    key = ad.home
                reached = self.of(key, channel)
                for tag in tags:
                    reached.since.setdefault(tag, points[ad.sid])

    def unwanted(self, channel: Channel) -> None:
        """If nobody here wants events of a channel any more, who comes later begins with the present."""
        if not any(entry.local for entry in channel.entries.values()):
            with self._lock:
                for key in [key for key, each in self._of.items() if each.channel == channel.name]:
                    del self._of[key]

    # ── what a node that has its log again is told ──

    def said(self, channel: Channel, peer: Upstream, demand: Demand) -> tuple[BySource, BySource, list[str]]:
        """By name of the peer's source and tag of the wish: up to which event all has come, and from where on the state
        of the interest counts; and which durable sinks have had events of it. The wiring's lock is held.

        What still comes of the same sources from an earlier life of their node is not taken from here on."""
        if demand.wishes:
            self._take_up(channel, peer)
        logs = {ad.log for ad in peer.sources if ad.channel == channel.name and ad.log}
        if len(logs) != 1 or not demand.reliable or not demand.wishes:
            return {}, {}, []
        prefix = prefix_of(peer.name, logs.pop())
        for source in list(channel.sources.values()):
            if not source.local and (source.position_key or "").startswith(prefix):
                remote = cast("_Remote", source)
                if remote.term and remote.peer.name != peer.name:
                    continue  # it has moved, and is not of that node any more
                there = remote.peer.remote_sources.get(remote.sid) is source
                if not there or remote.peer.incarnation != peer.incarnation:
                    self._node._wiring.withdraw(source)
        at: BySource = {}
        since: BySource = {}
        known = self._all(prefix)
        for name, reached in known.items():
            for tag in _streams(demand):
                place = reached.at.get(tag)
                if place is not None:
                    at.setdefault(name, {})[tag] = place
        self._kept(channel, demand, prefix, at)
        for name, reached in known.items():  # also of a sink that came with a token, and has had nothing here yet
            for tag in at.get(name, {}):
                if tag and tag in reached.since:
                    since.setdefault(name, {})[tag] = reached.since[tag]
        moved = [ad.home for ad in peer.sources if ad.channel == channel.name and ad.home]
        return at, since, self._durable(prefix, *moved)

    def _take_up(self, channel: Channel, peer: Upstream) -> None:
        """Sources that are still known from before nobody wanted them go on with what is remembered now."""
        for source in list(channel.sources.values()):
            if not source.local and source.position_key:
                remote = cast("_Remote", source)
                if remote.reached is not None and remote.peer is peer:
                    remote.reached = self.of(source.position_key, channel.name)

    # ── sources that have moved ──

    def supersede(self, channel: Channel, key: str, term: int) -> None:
        """A source is at another node from here on: what still comes of it from earlier ones is not taken. The wiring's
        lock is held."""
        for source in list(channel.sources.values()):
            if not source.local and source.position_key == key:
                cast("_Remote", source).supersede()
        self.of(key, channel.name).term = term

    def owed(self, channel: Channel, key: str, demand: Demand | None) -> tuple[ByTag, ByTag]:
        """Of one source, by tag: up to which event all has come, in whatever life and from whatever node, and from
        where on the state of an interest counts. The wiring's lock is held."""
        reached = self.of(key, channel.name)
        at, since = dict(reached.at), dict(reached.since)
        if demand is not None:
            prefix, _, name = key.rpartition("/")
            kept: BySource = {unquote(name): at}
            self._kept(channel, demand, f"{prefix}/", kept)
            at = kept[unquote(name)]
        return at, since

    def _kept(self, channel: Channel, demand: Demand, prefix: str, at: BySource) -> None:
        """Where nothing has come in this process yet: as far as durable sinks were in an earlier one."""
        least: dict[tuple[str, int], int] = {}
        streams = set(_streams(demand))
        for entry in channel.entries.values():
            number = self._demands.number(entry) or 0
            alone = number if number in streams else 0
            for sink in sinks_behind([entry]):
                kept = {} if sink._progress is None else sink._progress.positions()
                for key, seq in kept.items():
                    if key.startswith(prefix):
                        name = unquote(key.removeprefix(prefix).partition(" ")[0])
                        least[name, alone] = min(least.get((name, alone), seq), seq)
        for (name, alone), seq in least.items():
            if alone in streams:
                at.setdefault(name, {}).setdefault(alone, seq)

    def _durable(self, *prefixes: str) -> list[str]:
        """Sinks, which may not be there yet, that have kept how far they are with sources that begin so. Groups are
        none: they have events of this node's own sources, of which some may have moved since."""
        state = self._node.state
        if state is None:
            return []
        kept = {sink: {*state.positions(sink), *state.handed(sink)} for sink in state.sinks()}
        return [
            sink
            for sink, positions in kept.items()
            if BEGUN not in positions and any(key.startswith(prefixes) for key in positions)
        ]
