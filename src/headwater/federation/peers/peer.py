"""Another node as this one sees it: the link to it, what goes there, and what comes from there."""

from __future__ import annotations

import logging
import secrets
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.errors import ClosedError, FederationError, FrameError, HeadwaterError
from headwater.federation.arrive.remote_source import RemoteSource
from headwater.federation.peers.inquiries import Pace
from headwater.federation.send.crossing import Crossing
from headwater.federation.send.lane import Lane
from headwater.federation.transport.fallback import Fallback
from headwater.federation.transport.sender import Sender
from headwater.federation.transport.stream import Stream
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Again, Announce, Bye, Ends, Mark, Repair, Resume, Sent, SourceAd
from headwater.federation.wire.kinds import GROUP
from headwater.federation.wire.requests import ChannelAd, State, pack_type, unpack_type

if TYPE_CHECKING:
    from headwater.channel.routing.route import Entry
    from headwater.federation.engine import Engine
    from headwater.federation.security.rules import Principal
    from headwater.federation.transport.link import Link

log = logging.getLogger("headwater.federation")
PACE = 1024  # events after which an acknowledgement is sent at the latest, without waiting for the next tick
UNREAD = 65_536  # frames beside the events that may wait for a node
UNREAD_BYTES = 64 << 20  # the same, when it asks for more
SOURCES = 65_536  # of a node
OVER = 1024  # of its sources that have ended are remembered
LARGE = 512  # bytes from which on frames are worth compressing
ONE = (wire.BODY, wire.EVENT)  # frames of one event


class Peer:
    """One for each node that was met; it stays while that node is away, for as long as something is kept for it."""

    def __init__(self, engine: Engine, node: str, incarnation: int) -> None:
        self.engine, self.network = engine, engine.network
        self.id, self.incarnation = node, incarnation
        self.name = node.rpartition(".")[0]
        self.exchange: bytes | None = None  # the key to write to this run of it with
        self.state: State | None = None
        self.described = False  # it has said what it has, and not only that it is there
        self.considered = 0  # the version of which all that follows for sinks here was looked at
        self.newest = 0  # the version of its state that is the latest, as it says
        self.pages: State | None = None  # of its state, as far as they have come
        self.state_bytes = self.pages_bytes = 0  # of its state, and of those pages, at most
        self._index: tuple[State | None, dict[str, ChannelAd], dict[str, str]] = (None, {}, {})
        self.principal: Principal | None = None
        self.present = False  # on Zenoh
        self.columns = True  # whether it takes rows as columns, and compressed frames
        self.gone: float | None = None  # since when it is neither on Zenoh nor at the end of a stream
        self.lock = threading.RLock()
        # the link
        self.link: Link | None = None
        self.dialled = False  # by this node
        self.since = 0.0  # when it was made
        self.calling = False
        self.pace = Pace()  # of questions what is new there
        self.met = monotonic()
        self.heard = 0.0  # when something last came over it
        self.resumed = False  # the other end has said what it has: events may go
        self.links = 0
        self.trouble = ""  # why there is no direct stream
        self.fallback = Fallback()
        self.building = threading.Lock()
        self.control: deque[bytes] = deque()
        self.dirty: deque[Lane] = deque()
        self.marks: deque[Crossing] = deque()
        self.reading: list[Lane] = []  # lanes that go on reading the log when others had their turn
        self.sender = Sender(self._collect, f"{engine.node.name}-{self.name}", engine.pulse)
        self.stir: Callable[..., None] = self.sender.stir
        self.full: set[Any] = engine.node._full
        # out and in
        self.crossings: dict[str, Crossing] = {}
        self.memory = new_memory()  # in which they are kept: another one as soon as this node gives one up by itself
        self.unwanted: dict[str, int] = {}  # by channel of which it wants nothing more, the version of that question
        self.by_sid: dict[int, Lane] = {}
        self.remote_sources: dict[int, RemoteSource] = {}
        self.over: dict[
            int, RemoteSource
        ] = {}  # the last that have ended: the other end may not know what came of them
        self.unacknowledged: set[RemoteSource] = set()
        self._acknowledging = threading.Lock()
        # what this node has asked for there
        self.asked: dict[str, Any] = {}  # by channel: a demand.Installation
        self.memory_there = 0  # in which it keeps that, as it has said over the present link
        self.refused_here: dict[str, str] = {}  # the last names that it has asked for and may not have, and why
        self.control_in: Counter[str] = Counter()  # frames beside events and acknowledgements, by kind
        self.past_bytes = [0, 0]  # of links that are no more: out, in

    # ── what is known of it ──

    @property
    def sources(self) -> list[SourceAd]:
        return [] if self.state is None else self.state.sources

    @property
    def behind(self) -> bool:
        """Whether it has said that there is something new, and not yet what."""
        return self.state is not None and self.state.version < self.newest

    def _indexed(self) -> tuple[State | None, dict[str, ChannelAd], dict[str, str]]:
        """Of its state: channels by name, and by name of those with sources the log that they have, if any."""
        index, state = self._index, self.state
        if index[0] is not state:
            channels = {} if state is None else {ad.name: ad for ad in state.channels}
            logs: dict[str, str] = {}
            for source in self.sources:
                logs[source.channel] = logs.get(source.channel) or source.log
            index = self._index = state, channels, logs
        return index

    def has(self, channel: str) -> bool:
        """Whether it advertises a source of that channel."""
        return channel in self._indexed()[2]

    def offers(self, channel: str) -> bool:
        """Whether it has sources of that channel, or derives it; else its sinks may want it, or nothing is known."""
        _, channels, logs = self._indexed()
        return channel in logs or ((ad := channels.get(channel)) is not None and ad.parent is not None)

    def channel(self, name: str) -> ChannelAd | None:
        return self._indexed()[1].get(name)

    def log(self, channel: str) -> str:
        """The log that its sources of a channel have, if any."""
        return self._indexed()[2].get(channel, "")

    def place(self, channel: str, log: str | None = None) -> str:
        """Where sources of a channel are, so that sinks know whose past they have had: the log, or this node."""
        known = self.log(channel) if log is None else log
        return f"log {self.name} {known}" if known else f"{self.id} {channel}"

    def tags(self, channel: str) -> dict[int, Entry]:
        return self.engine.demands.tags(channel)

    def runs_there(self, channel: str, entry: Entry) -> bool:
        return self.engine.demands.runs_at(self, channel, entry)

    def placed(self, channel: str, entry: Entry) -> tuple[str, str] | None:
        """Where an interest of this node in its sources runs, and why there."""
        return self.engine.demands.placed(self, channel, entry)

    # ── out ──

    def crossing(self, channel: Any) -> Crossing:
        found = self.crossings.get(channel.name)
        if found is None or found.channel is not channel:
            found = self.crossings[channel.name] = Crossing(self, channel)
        return found

    def lanes(self) -> Iterable[Lane]:
        for crossing in list(self.crossings.values()):
            yield from crossing.active()

    def date(self) -> None:
        """See to it that what waits for the link has about the time at which it was published."""
        for lane in self.lanes():
            lane.date()

    def _collect(self, budget: int) -> list[bytes]:
        """Frames of what waits; called by one thread at a time."""
        frames: list[bytes] = []
        control, dirty = self.control, self.dirty
        with self.building:
            while control:
                frames.append(control.popleft())
            if not self.resumed:
                return frames
            marks = dict.fromkeys(self.marks.popleft() for _ in range(len(self.marks)))
            while dirty:
                lane = dirty.popleft()
                if lane.crossing.parked:  # what was kept goes first
                    lane.dirty = False
                    continue
                if not lane.announced:
                    frames.append(self._announce(lane, lane.number + 1))
                lane.build(frames)
            for crossing in marks:
                if crossing.parked:
                    continue
                if crossing.waits_for_log():
                    continue
                self._before_mark(crossing, frames)
                frames.append(self._mark(crossing))
            more = bool(self.reading)
            while self.reading:
                self.stir_later(self.reading.pop())
        if more or self.marks:
            self.stir()  # the flusher sees to it: this thread is at it already
        if self.network.compress != "none" and self.columns:
            frames = [_compressed(frame, self.network.compress) for frame in frames]
        return frames

    def _announce(self, lane: Lane, first: int) -> bytes:
        lane.announced = True
        lane.begin_again()
        return self.introduction(lane, first)

    def introduction(self, lane: Lane, first: int) -> bytes:
        """What the peer is told of a lane's source."""
        source = lane.source
        type = source.channel.type
        ad = self.engine.membership.describe(source)
        return wire.encode_control(
            Announce(
                ad=ad,
                type=pack_type(type),
                next=first,
                dropped=lane.dropped,
                window=lane.limit,
                live=lane.live,
                again=lane.again_asked,
            )
        )

    def _before_mark(self, crossing: Crossing, frames: list[bytes]) -> None:
        """All that was put in before the wishes held, also by those who have not said so yet; and the other end gets to
        know every source, so that it can say from where on they hold."""
        if crossing.share is not None:
            for before in crossing.active():
                if before.pending and before.announced:
                    before.build(frames)
            crossing.share.before_mark(frames)
            return
        for source in list(crossing.channel.sources.values()):
            if not source.local:
                continue
            with source.lock:
                lane = crossing.lane(source)
            if lane is not None and not lane.ended:
                if not lane.announced:
                    frames.append(self._announce(lane, lane.number + 1))
                if lane.pending:
                    lane.build(frames)

    def _mark(self, crossing: Crossing) -> bytes:
        crossing.told = crossing.version
        return wire.encode_control(Mark(crossing.channel.name, crossing.version, crossing.points))

    def stir_later(self, lane: Lane) -> None:
        """Something was put in while sources stood still; a mark follows, with which it goes."""
        if not lane.dirty:
            lane.dirty = True
            self.dirty.append(lane)

    def mark(self, crossing: Crossing) -> None:
        """Tell the peer, after all that went before, that its wishes of this version are in force."""
        if crossing.told == crossing.version:
            return  # it was told with the link, which has come up just now
        self.marks.append(crossing)
        self.stir()

    def say(self, frame: bytes) -> None:
        """A frame beside the events."""
        link = self.link
        if link is not None:
            self.control.append(frame)
            self.stir()
            if len(self.control) > UNREAD:
                link.close("it does not take the answers to what it asks")

    def trim(self, lane: Lane) -> None:
        with self.building:
            lane.trim()

    def end_lane(self, lane: Lane) -> None:
        """A source is no more: what it has sent is still delivered, then the peer forgets it."""
        lane.ended = True
        if lane.announced or lane.pending or lane.behind:
            lane.put((wire.encode_control(Ends(lane.sid)),), 0)
            lane.go()
        elif not lane.kept:  # else the next link ends it
            lane.crossing.drop(lane)

    def pump(self, seconds: float) -> bool:
        """Where the calling thread is the one that reads this link: read on, so that acknowledgements come, which it
        may be waiting for; events wait. Whether something came."""
        link = self.link
        if not isinstance(link, Stream) or not link.here:
            return False
        link.pump(min(seconds, 0.1))
        acks = [frame for frame in link.waiting if frame[0] == wire.ACK]
        for frame in acks:
            link.waiting.remove(frame)
            self.on_frame(frame, link)
        return True

    # ── the link ──

    def link_up(self, link: Link, *, dialled: bool) -> None:
        """Another link, from now on: first each end says what it has."""
        with self.lock:
            with self.building:  # what the old one still brings in must not be taken for this one's
                old, self.link = self.link, link
                self.dialled, self.resumed = dialled, False
            self.heard = self.since = monotonic()
            self.links += 1
            self.gone, self.trouble = None, ""
            if old is not None:
                self._let_go(old, "another link took its place")
            with self.building:
                self.control.clear()
                self.control.append(self._resume())
                known = [*self.remote_sources.items(), *self._ended()]
                said = [(sid, source.acknowledged) for sid, source in known if source.acknowledged]
                if said:  # it may have been lost with the link
                    self.control.append(wire.encode_ack(said))
                for lane in self.lanes():
                    lane.announced = False
        try:
            self.sender.attach(link)
        except ClosedError:  # the node was closed meanwhile
            self._let_go(link, "its node was closed")
            return
        self.stir()
        self.engine.scheduler.changed()

    def _resume(self) -> bytes:
        return wire.encode_control(Resume(self.positions(), memory=self.memory))

    def resume(self) -> None:
        """Say what has come, so that the rest is sent again, and what is known here of what the other end wants."""
        self.say(self._resume())

    def given_up(self) -> None:
        """Something that the other end has asked for, and may not know to be over, is kept no longer."""
        self.memory = new_memory()
        self.resume()

    def positions(self) -> dict[int, int]:
        """The last frame of each source that came."""
        sources = list(self.remote_sources.items())
        found = {sid: source.frame for sid, source in [*sources, *self._ended()] if source.frame or source.linked}
        found.update({track.sid: track.frame for _, source in sources if (track := source.track) is not None})
        return found

    def ended(self, sid: int, source: RemoteSource) -> None:
        """A source is no more, and everything it sent has come."""
        source.linked = False
        self.over.pop(sid, None)
        self.over[sid] = source
        if len(self.over) > OVER:
            del self.over[next(iter(self.over))]

    def _ended(self) -> list[tuple[int, RemoteSource]]:
        """Sources that are no more, of which not all may be acknowledged yet: none of it is to come again. One that
        only was not wanted any more may come anew, from its first frame on."""
        if not self.over or len(self.remote_sources) > SOURCES // 2:  # there is a limit to what can be said
            return []
        there = {each.sid for each in self.sources}
        there.update(self.remote_sources)
        return [(sid, source) for sid, source in list(self.over.items()) if sid not in there]

    def link_down(self, link: Link, reason: str) -> None:
        """A link has ended; called once, by its thread."""
        with self.lock:
            if self.link is not link:
                return
            self.link, self.resumed = None, False
            self.trouble = reason
            self._let_go(link, reason)
        log.info("node %s: the link to %s has ended: %s", self.engine.node.name, self.name, reason)
        self.engine.membership.link_lost(self)

    def _let_go(self, link: Link, reason: str) -> None:
        self.sender.detach(link)
        self.past_bytes[0] += link.bytes_out
        self.past_bytes[1] += getattr(link, "bytes_in", 0)
        link.close(reason)

    @property
    def direct(self) -> bool:
        link = self.link
        return link is not None and link.kind != "zenoh"

    def on_resume(self, positions: dict[int, int], link: Link, memory: int = 0) -> None:
        """The other end says which frames of each source it has: the rest goes again, then all that waits."""
        if len(self.control) > UNREAD // 2 or sum(map(len, list(self.control))) > UNREAD_BYTES:
            raise FrameError("it asks again and again for what it does not take")
        groups = self.engine.groups
        rests, shared = ([], []) if groups is None else groups.resumed(self, positions)
        marked: list[Crossing] = []
        with self.building:
            if self.link is not link:
                return  # another has taken its place, over which it is said again
            self.control.extend(rests)
            for crossing in list(self.crossings.values()):
                if crossing.parked:
                    continue
                for lane in crossing.active():
                    lane.begin_again()
                    came = positions.get(lane.sid, 0)
                    if came > lane.number:  # what it has is of an earlier lane, which was given up here
                        self.control.append(wire.encode_control(Ends(lane.sid)))
                        came = 0
                    first, again = lane.again(came)
                    if again or lane.pending or lane.behind or not lane.ended:
                        self.control.append(self._announce(lane, first))
                        self.control.extend(again)
                    if lane.ended and not lane.pending and not lane.behind:
                        self.control.append(wire.encode_control(Ends(lane.sid)))
                    if (lane.pending or lane.behind) and not lane.dirty:
                        lane.dirty = True
                        self.dirty.append(lane)
                if crossing.due:
                    crossing.told = 0
                    marked.append(crossing)
            for sid in positions:  # it has ended, and that was lost with a link
                if not sid & GROUP and sid not in self.by_sid:
                    self.control.append(wire.encode_control(Ends(sid)))
            self.control.extend(shared)
            self.resumed, self.memory_there = True, memory
        self.engine.scheduler.later(0.0, partial(self.engine.requester.confirm, self))
        for crossing in marked:
            self.engine.mark(self, crossing)
        self.stir()

    # ── in: by the thread that reads the link ──

    def on_frame(self, frame: bytes | memoryview, link: Link) -> None:
        """A frame from the other end; FrameError if it is not one."""
        self.heard = monotonic()
        if frame[0] in ONE and len(frame) >= wire.EVENT_AT:
            sid, number, seq, _ = wire.event_head(frame, 1)
            source = self.remote_sources.get(sid)
            if source is not None and source.one(number, seq, frame):
                self._came(source, 1)
                return
        message = wire.decode(frame)
        match message:
            case wire.Events() | wire.Batch():
                self._on_events(message)
            case wire.Ack():
                for sid, number in message.pairs:
                    if (lane := self.by_sid.get(sid)) is not None:
                        with self.building:  # an older link may still be read, too
                            lane.acknowledged(number)
                    elif sid & GROUP and self.engine.groups is not None:
                        self.engine.groups.acknowledged(self, sid, number)
            case wire.Promise():
                for sid, time in message.pairs:
                    if (found := self.remote_sources.get(sid)) is not None:
                        found.promised(time)
            case wire.Ping():
                self.say(wire.encode_pong(message.number))
                self.engine.membership.version_said(self, message.number)
            case wire.Pong():
                pass
            case _:
                self._on_control(message, link)

    def _on_events(self, message: wire.Events | wire.Batch) -> None:
        source = self.remote_sources.get(message.source)
        if source is None:
            if message.source & GROUP and self.engine.groups is not None:
                self.engine.groups.hearing.message(self, message)
            else:
                self.engine.offence(self, f"events of a source ({message.source}) that was not announced")
        elif source.track is None or not source.track.hold(0, partial(self._deliver, source, message)):
            self._deliver(source, message)

    def _deliver(self, source: RemoteSource, message: wire.Events | wire.Batch) -> None:
        number = message.number
        if 0 < number <= source.frame:
            source.repeated += 1  # it was here already
        elif number and number != source.frame + 1:
            self.engine.gap(self, source, number)
        elif isinstance(message, wire.Events):
            source.deliver(message)  # if it has no number, it is of the past
            self._came(source, len(message.seqs))
        else:
            source.deliver_batch(message)
            self._came(source, message.rows)

    def _on_control(self, message: Any, link: Link) -> None:
        self.control_in[type(message).__name__.lower()] += 1
        groups = self.engine.groups
        match message:
            case Resume(positions=positions, memory=memory):
                self.on_resume(positions, link, memory)
            case Announce():
                self._on_announce(message)
            case Ends(source=sid):
                self._on_ends(sid)
            case Mark():
                if groups is None:
                    self._on_mark(message)
                else:
                    groups.hearing.marked(self, message, partial(self._on_mark, message))
            case Sent() if groups is not None:
                groups.hearing.sent(self, message)
            case Repair(source=sid, after=after, upto=upto) if groups is not None:
                groups.repair(self, sid, after, upto)
            case Again(source=sid, number=number, after=after, since=since):
                self._on_again(sid, number, after, since)
            case Bye(reason=reason):
                self.engine.membership.said_bye(self, reason)
            case _:
                raise FrameError(f"expected a frame between nodes that know each other, found {type(message).__name__}")

    def _on_again(self, sid: int, number: int, after: dict[int, int], since: dict[int, int]) -> None:
        """A durable sink there could not keep what was sent: it goes again, from the log."""
        lane = self.by_sid.get(sid)
        if lane is None or lane.ended or lane.source.log is None or not lane.crossing.reliable:
            return
        with self.building:
            if number <= lane.again_asked:
                return  # it has come over an older link
            lane.restart, lane.again_asked, lane.announced = (dict(after), dict(since)), number, False
            if not lane.dirty:
                lane.dirty = True
                self.dirty.append(lane)
        self.stir()

    def _on_mark(self, message: Mark) -> None:
        for sid, seq in message.points.items():
            if (source := self.remote_sources.get(sid)) is not None:
                source.passed_by(seq)
        self.engine.marked(self, message.channel, message.version)

    def _on_ends(self, sid: int) -> None:
        """No more of a source comes this way; it is gone if it comes in no other."""
        if sid & GROUP:
            if self.engine.groups is not None:
                self.engine.groups.hearing.ends(self, sid)
            return
        source = self.remote_sources.get(sid)
        if source is not None:
            source.linked = False
            if source.track is None:
                self.engine.withdrawn(self, sid)

    def _on_announce(self, message: Announce) -> None:
        ad = message.ad
        source = self.remote_sources.get(ad.sid)
        if source is None:
            try:
                if len(self.remote_sources) >= SOURCES:
                    raise FrameError(f"expected at most {SOURCES:,} sources of a node, found more")
                source = self.engine.remote_source(self, ad, unpack_type(message.type))
            except HeadwaterError as error:
                self.engine.refused_source(self, ad, str(error))
                return
            if source is None:
                return
            self.remote_sources[ad.sid] = source
        source.window = message.window
        source.pace = max(1, min(PACE, message.window // 4))
        if source.zones != (zones := frozenset(ad.zones)):
            self.engine.node._wiring.rezone(source, zones)
        if message.group:
            if self.engine.groups is not None:
                self.engine.groups.hearing.announced(self, source, message)
            return
        source.linked = True
        source.announced(message.live, message.again)
        if message.next > source.frame + 1:
            if source.frame or message.dropped:
                source.dropped = message.dropped
            source.frame = source.acknowledged = message.next - 1
        elif message.dropped > source.dropped:
            source.dropped = message.dropped

    def _came(self, source: RemoteSource, events: int) -> None:
        self.unacknowledged.add(source)
        source.unsaid += events
        if source.unsaid >= source.pace:
            self.acknowledge([source])
        if not self.engine.scheduler.ticking and source in self.unacknowledged:
            self.engine.scheduler.tick_soon()

    def acknowledge(self, sources: Iterable[RemoteSource] | None = None) -> bool:
        """Tell the other end what no sink of this node needs again; whether there may be more to tell soon."""
        pairs = []
        with self._acknowledging:  # the reader and the keeper
            for source in list(self.unacknowledged) if sources is None else sources:
                number = source.settled()
                source.unsaid = 0
                if number > source.acknowledged:
                    source.acknowledged = number
                    pairs.append((source.sid, number))
                if number >= source.frame:
                    self.unacknowledged.discard(source)
        if pairs:
            self.say(wire.encode_ack(pairs))
        return bool(self.unacknowledged)

    def wait_for_room(self, source: RemoteSource, record: bytes | None) -> None:
        """Until every sink that may want the source's next events has room for them."""
        while (mailbox := source.full(record)) is not None and not self.engine.closing:
            if mailbox.inline:
                mailbox.go()
            if not mailbox.wait(lambda it=mailbox: not it.is_full, 0.05):
                self.pump(0.0)  # its handler may itself be waiting for acknowledgements

    # ── the end ──

    def close(self, reason: str) -> None:
        link = self.link
        if link is not None:
            self.say(wire.encode_control(Bye(reason)))
            self.sender.flush(0.5)
        self.sender.close()
        with self.lock:
            self.link = None
        if link is not None:
            self._let_go(link, reason)

    @property
    def bytes_out(self) -> int:
        link = self.link
        return self.past_bytes[0] + (0 if link is None else link.bytes_out)

    @property
    def bytes_in(self) -> int:
        link = self.link
        return self.past_bytes[1] + (0 if link is None else getattr(link, "bytes_in", 0))

    def __repr__(self) -> str:
        kind = "no link" if self.link is None else self.link.kind
        return f"<Peer {self.id}, {kind}>"


def new_memory() -> int:
    """A number that no other memory has, of any process."""
    return 1 + secrets.randbits(48)


def _compressed(frame: bytes, codec: Any) -> bytes:
    return wire.compress(frame, codec) if len(frame) >= LARGE else frame


__all__ = ["FederationError", "Peer"]
