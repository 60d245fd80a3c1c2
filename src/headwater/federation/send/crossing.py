"""A channel's way to one peer: a member of the channel's routes, beside the subscriptions of this node.

However many interests of the peer an event satisfies, it is put into its lane once; the peer decides among its sinks.
Interests with state or output run here only, and what they pass carries their tag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from headwater.channel.routing.letter import Chunk, Letter, Marked, Rows
from headwater.channel.routing.route import Bystander, Entry, Ready
from headwater.federation.send.bypass import PeerBypass
from headwater.federation.send.lane import Lane
from headwater.federation.send.pending import Numbered, PendingRows
from headwater.federation.send.remote_counts import Counting
from headwater.federation.wire.kinds import WHOLE
from headwater.types.marks import is_of

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel as Channel
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.channel.routing.limiter import Limiter
    from headwater.federation.send.destination import Destination
    from headwater.federation.wire.requests import Wish
    from headwater.types import EventType


class GroupShare(Protocol):
    """The part of a peer in a channel's multicast group, as its crossing sees it."""

    @property
    def crossed(self) -> int:
        """Events that went out since it joined."""
        ...

    @property
    def address(self) -> str:
        """Of the group."""
        ...

    def before_barrier(self, frames: list[bytes]) -> None:
        """What the peer must be told before it is told that its wishes are in force."""


class CrossingMember(Bystander):
    """What both kinds of members have in common. `tag`: of an interest that runs here only, of which is
    counted what has `passed`; else 0."""

    width = 0
    tag = passed = 0
    limiter: Limiter | None = None  # of a wish that has a rate
    withheld = 0  # events beyond what the user may have whom it is for
    local = False
    bypass: Any = None
    quick = None

    def __init__(self, crossing: Crossing) -> None:
        self.crossing = crossing

    def reaches(self, source: Source, record: bytes | None) -> Iterable[Any]:
        lane = self.crossing.lane(source)
        return () if lane is None else (lane,)

    def started(self) -> None:
        self.crossing.started()


class FilteredMember(CrossingMember):
    """Of filters: what any of them passes goes once."""

    def __init__(self, crossing: Crossing) -> None:
        super().__init__(crossing)
        self._lanes = crossing.lanes
        self.bypass = PeerBypass(crossing.lane)

    def accept(self, letter: Letter, ready: Ready) -> None:
        try:
            lane = self._lanes[letter.source]
        except KeyError:
            lane = self.crossing.lane(letter.source)
        if lane is None or lane.newest == letter.seq:
            return
        lane.newest = letter.seq
        lane.put(Numbered(letter.seq, letter.stamp, letter.record), 1)
        ready.append(lane)

    def accept_chunk(self, chunk: Chunk, n: int, ready: Ready) -> None:
        lane = self.crossing.lane(chunk.source)
        if lane is not None:
            lane.put(PendingRows(chunk), n)
            # Several interests may want some of one batch: the lane is told once.
            if not ready or ready[-1] is not lane:
                ready.append(lane)


class TaggedMember(CrossingMember):
    """Of an interest that runs here only. Where it makes marks (of a type that is `marks`), events that are to go
    themselves are tagged so."""

    def __init__(
        self,
        crossing: Crossing,
        tag: int,
        marks: EventType | None = None,
        limiter: Limiter | None = None,
        quota: Limiter | None = None,
    ) -> None:
        """`limiter` is that of its rate; `quota`, of what the user may have that it is for."""
        super().__init__(crossing)
        self.tag, self._marks, self.limiter = tag, marks, limiter
        self._quota = None if quota is crossing.quota else quota  # what the node may have is seen to by its lanes
        self.passed = 0

    def tag_of(self, record: bytes) -> int:
        """With what a record is tagged."""
        return self.tag if self._marks is None or is_of(record, self._marks) else self.tag | WHOLE

    def accept(self, letter: Letter, ready: Ready) -> None:
        lane = self.crossing.lane(letter.source)
        if lane is not None:
            if self.limiter is not None and (lane.leaves_to_log or not self.limiter.admits(letter)):
                return
            if self._quota is not None and not lane.waits_its_turn and not self._quota.admits(letter):
                self.withheld += 1
                return
            lane.tagging = True
            self.passed += 1
            tag = self.tag if self._marks is None else self.tag_of(letter.record)
            lane.put(Numbered(letter.seq, letter.stamp, letter.record, tag), 1)
            ready.append(lane)

    def accept_chunk(self, chunk: Chunk, n: int, ready: Ready) -> None:
        lane = self.crossing.lane(chunk.source)
        if lane is not None:
            if self.limiter is not None:
                some = None if lane.leaves_to_log else self.limiter.admitted(chunk, self._records)
                if some is None:
                    return
                chunk, n = some, len(some)
            if self._quota is not None and not lane.waits_its_turn:
                some = self._quota.admitted(chunk, self._records)
                self.withheld += n - (0 if some is None else len(some))
                if some is None:
                    return
                chunk, n = some, len(some)
            lane.tagging = True
            self.passed += n
            # Rows of what was published are whole; of some that are not, the builder of frames tags each.
            whole = self._marks is not None and isinstance(chunk, Rows) and not isinstance(chunk, Marked)
            lane.put(PendingRows(chunk, self.tag | WHOLE if whole else self.tag), n)
            ready.append(lane)

    def _records(self, chunk: Chunk) -> list[bytes]:
        """A batch as records, of the type that its rows are of."""
        type = self.crossing.type_of(self.tag)
        assert type is not None
        return list(type.arrow_to_records(chunk.taken()))


class Crossing:
    """What a peer wants of a channel, and the lanes of the channel's own sources to it."""

    def __init__(self, peer: Destination, channel: Channel) -> None:
        self.peer, self.channel = peer, channel
        self.quota = peer.quota  # what the peer may have of this node, if there is a limit
        self._withheld = 0  # events beyond that, of lanes that are no more
        self.lanes: dict[Source, Lane | None] = {}
        self.merged = FilteredMember(self)
        self.wishes: dict[int, tuple[Entry, FilteredMember | TaggedMember]] = {}  # by tag
        self.asked: dict[int, Any] = {}  # by tag, what was granted: policies judge it anew when they change
        self.costs: dict[int, int] = {}
        self.sizes: dict[int, int] = {}
        self.labels: dict[int, str] = {}  # of those that were asked for by name
        self.cost = self.size = 0  # of all of them
        self.special: set[int] = set()  # tags of those that are more than a filter from now on
        self._standing: Counter[tuple[Entry, FilteredMember | TaggedMember]] = (
            Counter()
        )  # how many wishes a member is in an entry for
        self.turns: dict[int, int] = {}
        self.version = 0
        self.installing = self.effective = 0  # versions: of what is being put in force, and of what is
        self.due = self.told = 0  # versions: of the last one that needs a barrier, and of the last barrier
        self.reliable = True
        self.promises = False
        self.untold = 0  # changes of policies that the peer is not known to have heard of
        self.lapsed = False  # something was hidden that who goes by times must have all of, and it has not begun anew
        self.durable: set[str] = set()  # names of sinks that are to find everything again after a restart
        self.points: dict[int, int] = {}
        self.since = 0  # nanoseconds: since then all of its wishes hold
        self.first = False  # and nothing was published before
        self.behind = (0, 0)  # what the peer was told of gateways here: since when, and when not
        self.incarnation = peer.incarnation  # in which the peer has said so
        self.parked = False  # it was started again since: what durable sinks wanted is kept until they say more
        self.deferred: object = None  # what it said meanwhile, if that is not all yet
        self.give_up: Callable[[], None] = lambda: None  # waiting for more
        self.to_start: Callable[[], None] | None = None  # what else is to be done at that point
        self.counting = Counting(self)
        self.share: GroupShare | None = None  # in the channel's multicast group, if its events go there
        self.routes: tuple[tuple[str, ...], ...] = ()  # if only gateways want it: the federations behind each
        # Of sources that are logged, by name: what the peer has of their events, until that is taken up.
        self.reached: dict[str, tuple[dict[int, int], dict[int, int]]] = {}
        self._logged: dict[str, Lane] = {}  # of those that are, the latest lane
        self._following: dict[Lane, Lane] = {}  # by lane that reads the log, which one waits for it
        self.resuming = False  # lanes that are there begin again from it, too
        self.barrier_waits = False  # a barrier waits for lanes that read the log

    def lane(self, source: Source) -> Lane | None:
        """The lane of a source of this node and channel; None for events that come through here from elsewhere."""
        try:
            return self.lanes[source]
        except KeyError:
            own = source.local and source.channel is self.channel and not source.withdrawn and self._of_use(source)
            lane = self.lanes[source] = Lane(self, source) if own else None
            if lane is not None:
                lane.number = self.peer.last_number
                self.peer.by_sid[lane.sid] = lane
                if source.home and source.log is not None and self.reliable and self.share is None:
                    self._await(lane)
                else:
                    lane.begins({}, None)
                    self._resume(lane)
                    self._follow(lane)
            return lane

    def _await(self, lane: Lane) -> None:
        """A source has moved here: the peer says how far it is with that, and then it goes on from the log."""
        self.reached.pop(lane.source.name, None)
        self._logged[lane.source.name] = lane
        lane.await_word()
        self.peer.add_dirty(lane)

    def rest(self, source: Source) -> int:
        """The last event of a logged source before its lane, if that was needed: those after it that the peer wants
        go there. It may be that one of them is being published just now."""
        return max(source.flows[self.channel].base, self.points.get(source.number, 0))

    def resume(self, reached: dict[str, dict[int, int]], since: dict[str, dict[int, int]], *, anew: bool) -> None:
        """The peer says how far it is with sources that are logged. Those that it already gets go on as they do, unless
        it was started again, or this node was (`anew`)."""
        if anew:
            self.reached.clear()
        going = set() if anew else {source.name for source, lane in self.lanes.items() if lane is not None}
        for name, after in reached.items():
            if name not in going:
                self.reached[name] = after, since.get(name, {})
        self.resuming = anew

    def _resume(self, lane: Lane) -> None:
        """A lane goes on from where the peer is with its source; that stands still."""
        source = lane.source
        if source.log is not None and self.reliable and source.name in self.reached:
            after, since = self.reached.pop(source.name)
            lane.resume(after, since)
            self.peer.add_dirty(lane)

    def _follow(self, lane: Lane) -> None:
        """A source that was closed and made again goes on where the earlier one's lane will end."""
        if lane.source.log is None:
            return
        earlier = self._logged.get(lane.source.name)
        self._logged[lane.source.name] = lane
        if earlier is not None and earlier.behind is not None and lane.behind is None and self.reliable:
            self._following[earlier] = lane
            lane.follow(earlier)
            lane.beginning = None  # it begins where the earlier one ends, which is not here yet
            self.peer.add_dirty(lane)

    def waits_for_log(self) -> bool:
        """Whether lanes still read what the log has from before a barrier: then it goes when they have it."""
        self.barrier_waits = any(lane.behind is not None for lane in self.active())
        return self.barrier_waits

    def caught_up(self, lane: Lane) -> None:
        """A lane has read all that the log has."""
        follower = self._following.pop(lane, None)
        if follower is not None:
            follower.dispatch_later()
        if self.barrier_waits and not any(lane.behind is not None for lane in self.active()):
            self.barrier_waits = False
            self.peer.barriers_due.append(self)

    def drop(self, lane: Lane) -> None:
        """A lane whose source is no more, and of which everything has been acknowledged."""
        if self.lanes.get(lane.source) is lane:
            del self.lanes[lane.source]
            self._withheld += lane.shed
        if self.peer.by_sid.get(lane.sid) is lane:
            del self.peer.by_sid[lane.sid]
        self._following.pop(lane, None)
        self.peer.last_number = max(self.peer.last_number, lane.number)
        if self._logged.get(lane.source.name) is lane:
            del self._logged[lane.source.name]

    @property
    def withheld(self) -> int:
        """Events that were beyond what the peer may have."""
        return self._withheld + sum(lane.shed for lane in self.active())

    def lead_to(self, routes: tuple[tuple[str, ...], ...]) -> None:
        """Where its events go from there, if nobody there wants them but gateways."""
        if routes != self.routes:
            self.routes = routes
            for source in [source for source, lane in list(self.lanes.items()) if lane is None and source.local]:
                del self.lanes[source]

    def _of_use(self, source: Source) -> bool:
        """Whether someone wants its events: gateways do not pass them to where they have come through already."""
        path = source.path
        return not path or not self.routes or any(set(path).isdisjoint(route) for route in self.routes)

    def started(self) -> None:
        """All sources stand still: this is the point from which its wishes hold."""
        self.effective = self.installing
        self.points = {
            flow.source.number: flow.source.seq
            for flow in self.channel.flows()
            if flow.source.local and flow.source.channel is self.channel
        }
        self.counting.started()
        for flow in self.channel.flows():
            if flow.source.home and flow.source.local:  # the barrier waits until the peer has said how far it is
                self.lane(flow.source)
        if self.reached:
            for source in [flow.source for flow in self.channel.flows() if flow.source.name in self.reached]:
                lane = self.lane(source)
                if lane is not None and self.resuming and source.name in self.reached and not source.home:
                    self._resume(lane)
        self.resuming = False
        if self.to_start is not None:
            todo, self.to_start = self.to_start, None
            todo()

    def take(
        self, wish: Wish, entry: Entry, member: FilteredMember | TaggedMember, *, cost: int, size: int, label: str = ""
    ) -> None:
        """One wish more: what it costs a source, in native operations an event, takes, in bytes, and what it is called
        in a library."""
        tag = wish.tag
        self.counting.begins(tag, entry)
        self.wishes[tag] = entry, member
        self.costs[tag], self.sizes[tag], self.turns[tag] = cost, size, wish.turn
        if label:
            self.labels[tag] = label
        self.cost, self.size = self.cost + cost, self.size + size
        self._standing[entry, member] += 1
        if wish.special:
            self.special.add(tag)

    def forget(self, tag: int) -> tuple[Entry, FilteredMember | TaggedMember]:
        """One wish less."""
        self.cost, self.size = self.cost - self.costs.pop(tag), self.size - self.sizes.pop(tag)
        self.labels.pop(tag, None)
        self.turns.pop(tag, None)
        self.asked.pop(tag, None)
        self.special.discard(tag)
        self.counting.forget(tag)
        found = self.wishes.pop(tag)
        self._standing[found] -= 1
        if not self._standing[found]:
            del self._standing[found]
        return found

    def held(self, entry: Entry, member: FilteredMember | TaggedMember) -> bool:
        """Whether a member is in an entry for some wish."""
        return (entry, member) in self._standing

    def hold(self, entry: Entry) -> bool:
        """One wish more for an entry; whether its member must join that."""
        return True

    def release(self, entry: Entry) -> bool:
        """One wish less for an entry; whether its member must leave that."""
        return True

    @property
    def columns(self) -> bool:
        """Whether the peer takes rows as columns."""
        return self.peer.columns

    def filters(self, tag: int) -> bool:
        """Whether what has a tag are events as they are."""
        found = self.wishes.get(tag & ~WHOLE)
        if found is not None and tag & WHOLE:
            return True
        return found is not None and (found[0].interest is None or found[0].interest.output is None)

    def type_of(self, tag: int) -> EventType | None:
        """The type of the events that a wish has cross: what an interest makes of them, or that of the channel."""
        found = self.wishes.get(tag)  # none of what is whole
        made = None if found is None or found[0].interest is None else found[0].interest.output
        return self.channel.type if made is None else made

    def active(self) -> list[Lane]:
        return [lane for lane in list(self.lanes.values()) if lane is not None]
