"""Of which times a pattern does not know all that was published: there it can say that something came, and never for
sure that nothing did.

    before it was asked for       what a source has published before it was asked for the pattern's events
    while nobody was heard        a node that was started again, or has forgotten what it was asked for, or is taken for
                                  gone for good: from what it had promised until it is heard again, or is not expected
    never heard                   a node that refuses what it is asked for
    lost on the way               events that were dropped, or that nobody has any more
    not heard by a gateway        what one passes on, in any such time

A match that reaches into such a time is uncertain, if an event that is not known could make it none. A node that is
known to have sources, and has not said yet since when it sends what is wanted, holds the watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headwater.channel.queues.position_keys import prefix_of
from headwater.channel.routing.hearing import NEVER, Hearing
from headwater.patterns.run.runner import FOR_EVER, Runner

if TYPE_CHECKING:
    from headwater.channel.contract import NodeContract
    from headwater.channel.routing.attachment import Attachment
    from headwater.channel.routing.contract import RoutedSource
    from headwater.channel.routing.letter import Letter

MOST_SPOTS = 64  # that are told apart; beyond that the oldest are one
HERE = ""  # in the place of another node

Place = tuple[str, str]  # a channel, and where its sources are
Said = tuple[int | None, int | None]


class Hearer(Protocol):
    """The subscription that hears."""

    @property
    def node(self) -> NodeContract: ...
    def _inputs(self) -> Iterable[Attachment]: ...
    def _begins(self, place: str) -> bool: ...


class _Unheard(NamedTuple):
    """A place whose events say their own times, of which none has said one yet since it is heard; `start` is where the
    blind spot begins, `before` what its sources had said by then."""

    start: int
    before: dict[str, Said]


class BlindSpots:
    """Of one pattern, for the channels of which an event that is not known could contradict it. Looked at by one thread
    at a time, which holds no lock; noted by any."""

    def __init__(
        self, hearer: Hearer, runner: Callable[[], Runner], channels: frozenset[str], own_time: frozenset[str]
    ) -> None:
        self._hearer, self._runner = hearer, runner
        self._channels, self._own_time = channels, own_time
        self._known: dict[Place, Hearing] = {}
        self._unheard: dict[Place, _Unheard] = {}
        self._refusing: set[Place] = set()  # places of which nothing comes
        self._recalled: dict[Place, dict[str, int]] = {}  # of places that began with their past, by source: its time
        self._reach = -FOR_EVER  # all that is older was known, of everyone who was heard
        self._lost: dict[int, int] = {}  # by source that is there, what was lost of it
        self._begun: dict[Place, tuple[int, int]] = {}  # of sources of this node that began with their past
        self.resumed: frozenset[str] = frozenset()  # keys of sources that send all that came since a run was kept

    def concerns(self, channel: str) -> bool:
        return channel in self._channels

    # ── what is noted ──

    def note(self, start: int, upto: int) -> None:
        """Not all is known from a time on, up to another, in microseconds."""
        if upto <= start:
            return
        runner = self._runner()
        window = runner.pattern.window
        past = -FOR_EVER if window is None or window.microseconds is None else self._reach - window.microseconds
        spots = sorted([*(spot for spot in runner.blind if spot[1] > past), (start, upto)])
        made = [spots[0]]
        for one in spots[1:]:
            if one[0] <= made[-1][1]:
                made[-1] = made[-1][0], max(made[-1][1], one[1])
            else:
                made.append(one)
        if len(made) > MOST_SPOTS:
            made[:2] = [(made[0][0], made[1][1])]
        runner.blind = made

    def begun(self, attachment: Attachment, start: int = -FOR_EVER, *, past: int = 0) -> None:
        """Sources of this node are heard from here on; they stand still. What they have published since `start` is not
        known, unless they are to begin with so many events of their `past` (below 0: with all of it)."""
        channel: Any = attachment.channel
        if not self.concerns(channel.name):
            return
        own = [source for source in list(channel.sources.values()) if source.local and source.seq]
        gone = any(tally.published for tally in (channel.past, *(lineup.past for lineup in channel.lineups)))
        if past < 0 and not gone and all(channel.backlog.first(source.name) <= 1 for source in own):
            return
        place, upto = (channel.name, HERE), self._hearer.node._stamp() // 1000
        if past and not gone:
            self._begun[place] = start, upto
        elif own or gone:
            self._see(place, start, upto)

    def recalled(self, attachment: Attachment, letter: Letter) -> None:
        """An event of the past has come: from there on all is known of its source, and if it is the first, at all."""
        if self.concerns(attachment.channel.name):
            times = self._recalled.setdefault((attachment.channel.name, letter.source.place or HERE), {})
            times.setdefault(letter.source.name, -FOR_EVER if letter.seq == 1 else letter.stamp // 1000)

    def reset(self) -> None:
        """It is another pattern from here on: what is heard now is what that wants."""
        self._known.clear()
        self._unheard.clear()
        self._refusing.clear()
        self._recalled.clear()
        self.resumed = frozenset()

    def reached(self, time: int) -> None:
        """All sources that are heard have promised so far."""
        self._reach = max(self._reach, time)

    # ── looking ──

    def look(self, present: int) -> list[str]:
        """Bring it up to date; whom it must be waited for, since it is not known yet since when they are heard."""
        if not self._begun and not self._unheard and not self._hearer.node._federated:
            self._runner().unheard = False
            return []  # there is nobody else
        waited, seen = [], set()
        for attachment in self._hearer._inputs():
            channel: Any = attachment.channel
            if not self.concerns(channel.name):
                continue
            for hearing in self._hearer.node._hearings(channel, attachment.entry):
                place = channel.name, hearing.place
                seen.add(place)
                known = self._known.get(place)
                if hearing.refused or hearing.since >= NEVER:
                    self._refusing.add(place)
                    self._known.pop(place, None)
                elif known is not None and known.life == hearing.life:
                    continue
                elif self._hearer._begins(hearing.place) or not hearing.in_force():
                    waited.append(hearing.name)
                else:
                    self._hear(place, known, hearing)
        for place in [place for place in self._known if place not in seen and not self._ends(place)]:
            if not self._leave(place, present):
                waited.append(self._known[place].name)
        for place in [place for place in self._refusing if place not in seen]:
            self._refusing.discard(place)
            self._unheard.pop(place, None)
            self.note(-FOR_EVER, present)
        while self._begun:
            place, (start, upto) = self._begun.popitem()
            names = {source.name for source in self._sources(place) if source.seq}
            self._see(place, start, self._began_at(place, names, upto))
        if self._unheard:
            self._listen()
        self._runner().unheard = bool(self._refusing) or bool(self._unheard)
        return waited

    def _hear(self, place: Place, before: Hearing | None, hearing: Hearing) -> None:
        """All that is wanted comes from there now."""
        self._known[place], refused = hearing, place in self._refusing
        self._refusing.discard(place)
        log = hearing.node.log(place[0])
        if before is not None:
            if before.life[:3] == hearing.life[:3]:  # gateways there have not heard all
                self._see(place, -FOR_EVER, hearing.since // 1000)
            elif not log:  # else it sends what it has published meanwhile
                self._see(place, self._reach, hearing.since // 1000)
            return
        prefix = prefix_of(hearing.node.name, log) if log else f"{hearing.node.id}/{hearing.node.incarnation}/"
        resumed = not refused and any(key.startswith(prefix) for key in self.resumed)
        if not hearing.first and not resumed:
            names = {ad.name for ad in hearing.node.sources if ad.channel == place[0]}
            self._see(place, -FOR_EVER, self._began_at(place, names, hearing.since // 1000))

    def _began_at(self, place: Place, sources: set[str], since: int) -> int:
        """Since when all is known: that is earlier where each of its sources has begun with its past."""
        times = self._recalled.pop(place, {})
        return max(times.values()) if sources and sources <= times.keys() else since

    def _see(self, place: Place, start: int, upto: int) -> None:
        """From here on a place is heard, which it was not since `start`."""
        if place[0] in self._own_time:
            if (before := self._unheard.get(place)) is not None:  # nothing was said since: that is not known either
                start = min(start, before.start)
            self._unheard[place] = _Unheard(start, {source.id: self._said(source) for source in self._sources(place)})
        else:
            self.note(start, upto)

    def _ends(self, place: Place) -> bool:
        """Whether a node has no sources there any more, and not all has come yet that it said before it withdrew them,
        as that its gateways have not heard all. Until then they are here, and hold the watermark."""
        known = self._known[place]
        node, renewed = known.node, known.node.incarnation != known.life[0]
        withdrawn = not any(ad.channel == place[0] for ad in node.sources)
        return withdrawn and not renewed and node.gone is None and bool(self._sources(place))

    def _leave(self, place: Place, present: int) -> bool:
        """A place is not there any more; False if that is not known yet."""
        known = self._known[place]
        node, renewed = known.node, known.node.incarnation != known.life[0]
        if renewed and not node.described:
            return False
        if renewed or (node.gone is not None and not node.parted):
            self.note(self._reach, present)
        gap, since = node.gap(place[0])
        if not renewed and gap > known.life[3]:  # its gateways have not heard all, and then withdrew what they had
            self.note(-FOR_EVER, present if place[0] in self._own_time or since >= NEVER else since // 1000)
        del self._known[place]
        if (unheard := self._unheard.pop(place, None)) is not None:  # it has not said how late that was
            self.note(unheard.start, present)
        return True

    def lost(self, sources: Iterable[tuple[str, RoutedSource]], present: int) -> None:
        """See whether events of other nodes' sources, each with its channel, were lost on the way."""
        known, self._lost = self._lost, {}
        for channel, source in sources:
            lost: int = getattr(source, "lost", 0)
            if lost > known.get(source.number, 0) and self.concerns(channel):
                self._see((channel, source.place or HERE), self._reach, present)
            self._lost[source.number] = lost

    # ── events that say their own times ──

    def _sources(self, place: Place) -> list[RoutedSource]:
        channels = [attachment.channel for attachment in self._hearer._inputs() if attachment.channel.name == place[0]]
        return [
            source
            for channel in channels
            for source in list(channel.sources.values())
            if (source.place or HERE) == place[1] and not source.closed
        ]

    def _said(self, source: RoutedSource) -> Said:
        """The latest times that a source has said: of its own events, and of matches that it has found."""
        runner = self._runner()
        promised = runner.promised(source.channel.name, source.name, source.node)
        found = None if source.come_to is None else source.come_to()
        return None if promised is None else promised + 2 * runner.pattern.lateness, None if found is None else found[1]

    def _listen(self) -> None:
        """What is not known of a source that has said a time since it is heard is no later than that."""
        for place, unheard in list(self._unheard.items()):
            times = []
            for source in self._sources(place):
                pairs = zip(self._said(source), unheard.before.get(source.id, (None, None)), strict=True)
                times.append(min((new for new, old in pairs if new is not None and new != old), default=None))
            known = [time for time in times if time is not None]
            if known and len(known) == len(times):
                del self._unheard[place]
                self.note(unheard.start, max(known))


__all__ = ["BlindSpots"]
