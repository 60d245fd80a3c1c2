"""How far the sources of a pattern have come: no event comes any more that is before this place.

The place is a time in microseconds and the id of a source at that time. Each source promises one:

- a source of this node, of events that go by their time of publication: the present. It stamps events under its lock,
  so whoever reads the time and then finds the lock free, or waits for it, has seen every older event of it.
- a stand-in for a source of another node: what that has promised, asked for with the pattern's interests; a source of
  this node that passes on another federation's does so too;
- a source whose events say their own time: as far as its last one was, less the pattern's lateness.

What is not there holds nothing back: a source that was closed. A node that has vanished is still there, and one that
has not said yet since when it sends what is wanted of it (`BlindSpots`) is as well. Others may hold the watermark, at a
time, while they close a gap before it (`hold`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headwater.channel.patterns.blind_spots import BlindSpots
from headwater.channel.queues.position_keys import LOGGED
from headwater.patterns.run.events import source_id
from headwater.patterns.run.runner import FOR_EVER, Place, Runner

if TYPE_CHECKING:
    from headwater.channel.contract import NodeContract
    from headwater.channel.routing.attachment import Attachment
    from headwater.channel.routing.contract import RoutedSource

NOWHERE: Place = (-FOR_EVER, "")
GAP = "events that are read back"  # who holds it, for people
CLOSING = "sources of other nodes, while this one closes"


class Watched(Protocol):
    """The subscription whose sources are looked at."""

    @property
    def node(self) -> NodeContract: ...
    def _inputs(self) -> Iterable[Attachment]: ...
    def _begins(self, place: str) -> bool: ...
    @property
    def _by_time(self) -> bool: ...


class Holder(NamedTuple):
    """Who holds the watermark back, and where."""

    name: str
    place: Place
    local: bool = False  # it is looked at again in a moment: nobody else would tell


class Look(NamedTuple):
    """`sure`: what every source has promised. `present`: how late it is, by the node's clock or, where events say their
    own times, by the latest of those and the time that has passed since."""

    sure: Place
    present: int
    holder: Holder | None


class _Sources(NamedTuple):
    """Those whose events may come, as of one version of the wiring."""

    version: int
    present: list[RoutedSource]  # of this node, by time of publication
    first: str | None  # of their ids the one that goes first
    remote: list[RoutedSource]
    own: list[tuple[str, RoutedSource]]  # with their channel: those whose events say their time
    far: frozenset[int]  # numbers of those of other nodes
    shared: frozenset[str]  # ids that sources of two channels have: of one moment, either may have the earlier event

    def away(self) -> list[tuple[str, RoutedSource]]:
        """All of other nodes, with their channel."""
        return [
            *((source.channel.name, source) for source in self.remote),
            *((name, source) for name, source in self.own if not source.local),
        ]


class Watermark:
    """Of one pattern's sources. It is looked at by one thread at a time, which holds no lock."""

    def __init__(self, subscription: Watched, runner: Callable[[], Runner], own_time: Iterable[str]) -> None:
        self._subscription, self._runner = subscription, runner
        self._own_time = frozenset(own_time)  # channels whose events say their time
        self._node = subscription.node
        self._sources = _Sources(-1, [], None, [], [], frozenset(), frozenset())
        self._latest = 0  # nanoseconds: the latest time that was said to be the present
        self._holds: dict[Any, Place] = {}
        # Sources of other nodes as they were last, by number, and which of them had come least far.
        self._last: tuple[frozenset[int], Holder | None] = frozenset(), None
        self.patient = 0.0  # seconds for which sources that are logged, and have left, are waited for
        self._missing: dict[str, tuple[float, Holder]] = {}  # those, by position key, and since when
        self._heard: tuple[int, float] | None = None  # the latest time that events said of themselves, and when
        self.blind: BlindSpots | None = None  # None: no event that is not known could contradict a match

    def mind(self, channels: frozenset[str]) -> None:
        """Events of these channels could contradict a match: see of which times they are known."""
        if channels and self._subscription._by_time:
            self.blind = BlindSpots(self._subscription, self._runner, channels, self._own_time)

    # ── for those who close gaps ──

    def hold(self, key: Any, time: int) -> None:
        """Nothing later than this time is released until `let_go(key)`: earlier events may still come."""
        self._holds[key] = (time, "")

    def let_go(self, key: Any) -> None:
        self._holds.pop(key, None)

    def capped(self, look: Look) -> Look:
        """What was seen, no further than it is held by now."""
        least = min(list(self._holds.values()), default=None)
        if least is None or least >= look.sure:
            return look
        return look._replace(sure=least, holder=Holder(GAP, least, local=True))

    # ── looking ──

    def look(self) -> Look:
        """How far all have come. What is not put into the mailbox when this returns is no older than `sure`."""
        now = self._now()
        sources = self._who()
        for source in sources.present:
            if source.log is not None:
                with source.between():  # it is stamped before it is written
                    pass
            elif not source.lock.token:
                with source.lock:  # someone is publishing: wait until that event has come
                    pass
        self._latest = max(self._latest, now)
        here = now // 1000
        holders = [Holder(GAP, place, local=True) for place in list(self._holds.values())]
        if sources.first is not None:
            # When the node closes its sources have stopped: what they have published last waits for nobody.
            place = (here + 1, "") if self._node.closed else _at(here, sources.first, sources.shared)
            holders.append(Holder(sources.first, place, local=True))
        holders += self._own_times(sources, local=True)
        if sources.far or self._last[0]:
            holders += self._others(sources)
        if self._missing:
            holders += self._expected()
        present = self._present(here)
        blind = self.blind
        if blind is not None:
            holders += [Holder(name, NOWHERE) for name in blind.look(present)]
            blind.lost(sources.away(), present)
        least = min(holders, key=lambda each: each.place, default=None)
        if least is None:  # nobody is there: as far as time has come
            return Look((present, ""), present, None)
        if blind is not None:
            blind.reached(least.place[0])
        return Look(least.place, present, least)

    def _now(self) -> int:
        """The time in nanoseconds; never before what it was said to be, even if the clock is set back."""
        return max(self._node._stamp(), self._latest)

    def _others(self, sources: _Sources) -> list[Holder]:
        """What sources of other nodes have promised. When this node closes nothing more is taken of them, though they
        go on, and promise: how far they had come before is all that is known then, and of one that has come since,
        nothing. Who goes on from here after a restart is sent the rest."""
        found = [
            Holder(source.id, self._promise(source, sources.shared)) for source in sources.remote if not source.closed
        ]
        found += self._own_times(sources, local=False)
        if not self._node.closed:  # looked at after they were asked: none of them was shut by then
            self._last = sources.far, min(found, key=lambda each: each.place, default=None)
            return found
        known, last = self._last
        if sources.far - known:
            return [Holder(CLOSING, NOWHERE)]
        return [] if last is None else [last]

    def _promise(self, source: RoutedSource, shared: frozenset[str]) -> Place:
        if source.said is None or (source.place is not None and self._subscription._begins(source.place)):
            return NOWHERE
        return _at(source.said // 1000, source_id(source.name, source.node), shared)

    def _own_times(self, sources: _Sources, *, local: bool) -> list[Holder]:
        """What is promised by events that say their own time, of sources of this node or of others."""
        runner, found = self._runner(), []
        for channel, source in sources.own:
            if source.closed or source.local is not local:
                continue
            time = _later(runner.promised(channel, source.name, source.node), _come_to(source))
            who = source_id(source.name, source.node)
            found.append(Holder(source.id, NOWHERE if time is None else _at(time, who, sources.shared)))
        return found

    def _present(self, here: int) -> int:
        """How late it is for the events: where they say their own times, the latest of these, and what has passed since
        it came. While none has come, the present, where other channels go by that."""
        if not self._own_time:
            return here
        runner = self._runner()
        latest, now = runner.latest, self._node.clock.now()
        if latest is None:
            return here if len(runner.channels) > len(self._own_time) else -FOR_EVER
        if self._heard is None or latest > self._heard[0]:
            self._heard = latest, now
        return self._heard[0] + int((now - self._heard[1]) * 1_000_000)

    def _who(self) -> _Sources:
        """The sources whose events may still come, kept until the wiring changes."""
        wiring, found = self._node._wiring, self._sources
        if found.version == wiring.version:
            return found
        with wiring.lock:
            pairs = [
                (attachment.channel.name, flow.source)
                for attachment in self._subscription._inputs()
                for lineup in attachment.channel.lineups
                if lineup.how(attachment.entry) != "never"
                for flow in lineup.flows
            ]
            version = wiring.version
        own = {(name, source.number): (name, source) for name, source in pairs if name in self._own_time}
        others = {source.number: source for name, source in pairs if name not in self._own_time}
        local = [source for source in others.values() if source.local and not source.relays]
        remote = [source for source in others.values() if not source.local or source.relays]
        first = min((source_id(source.name, source.node) for source in local), default=None)
        ids = [
            source_id(source.name, source.node) for source in (*others.values(), *(each for _, each in own.values()))
        ]
        shared = frozenset(who for who, times in Counter(ids).items() if times > 1)
        far = frozenset(source.number for _, source in pairs if not source.local or source.relays)
        made = _Sources(version, local, first, remote, list(own.values()), far, shared)
        self._miss(found, made)
        self._sources = made
        return made

    def _miss(self, before: _Sources, now: _Sources) -> None:
        """Sources of other nodes that are logged come back with all that they have published, when their node does:
        what they had promised holds for a while, unless it is known that they do not."""
        there = {source.position_key for _, source in now.away()}
        for _, source in before.away() if self.patient else ():
            key = source.position_key or ""
            if key.startswith(LOGGED) and key not in there:
                self._missing[key] = self._node.clock.now(), Holder(source.id, self._promise(source, before.shared))
        self._missing = {key: found for key, found in self._missing.items() if key not in there}

    def _expected(self) -> list[Holder]:
        """Those that are still missed."""
        long_ago = self._node.clock.now() - self.patient
        for key, (since, _) in list(self._missing.items()):
            if since <= long_ago or self._node._is_gone(key):
                del self._missing[key]
        return [holder for _, holder in self._missing.values()]


def _at(time: int, source: str, shared: frozenset[str]) -> Place:
    """Nothing comes before this time, and of this time nothing before the source; where another has its id as well, it
    may have events of this time that go first."""
    return time, "" if source in shared else source


def _come_to(source: Any) -> int | None:
    """How far a source has come that publishes matches: these have times of their own."""
    found = None if source.come_to is None else source.come_to()
    return None if found is None else int(found[0])


def _later(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


__all__ = ["NOWHERE", "Holder", "Look", "Watermark"]
