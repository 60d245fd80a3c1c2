"""What comes from another node: frames of its sources, acknowledgements, and what it says beside the events."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.errors import FrameError, HeadwaterError
from headwater.federation.peers.outgoing import Outgoing
from headwater.federation.peers.post_registry import Allowance
from headwater.federation.transport.stream import Stream
from headwater.federation.wire import frames as wire
from headwater.federation.wire.control import Again, Announce, Barrier, Bye, Ends, Post, Repair, Resume, Sent, SourceAd
from headwater.federation.wire.kinds import GROUP
from headwater.federation.wire.requests import unpack_type

if TYPE_CHECKING:
    from headwater.federation.arrive.remote_source import RemoteSource
    from headwater.federation.peers.parts import Parts
    from headwater.federation.transport.link import Link

log = logging.getLogger("headwater.federation")
ACKNOWLEDGED_EVENTS = 1024  # after which an acknowledgement is sent at the latest, without waiting for the next tick
MOST_SOURCES = 65_536  # of a node
ENDED_SOURCES = 1024  # that are remembered
ONE_EVENT = (wire.BODY, wire.EVENT)  # kinds of frames


class Incoming(Outgoing):
    """The half of a peer that receives: `on_frame` is called by the thread that reads its link."""

    def __init__(self, parts: Parts, node: str, incarnation: int) -> None:
        super().__init__(parts, node, incarnation)
        self.heard = 0.0  # when something last came
        self.links = 0  # how many there were so far
        self.remote_sources: dict[int, RemoteSource] = {}
        # The last that have ended: the other end may not know what came of them.
        self.over: dict[int, RemoteSource] = {}
        self.unacknowledged: set[Any] = set()  # remote sources, and tracks of them
        self._acknowledging = threading.Lock()
        self.allowance = Allowance()  # of posts
        self.control_in: Counter[str] = Counter()  # frames beside events and acknowledgements, by kind

    def positions(self) -> dict[int, int]:
        """The last frame of each source that came."""
        sources = list(self.remote_sources.items())
        found = {sid: source.frame for sid, source in [*sources, *self._ended()] if source.frame or source.linked}
        found.update({track.sid: track.frame for _, source in sources if (track := source.track) is not None})
        return found

    def _resume(self) -> bytes:
        return wire.encode_control(Resume(self.positions(), memory=self.memory))

    def resume(self) -> None:
        """Say what has come, so that the rest is sent again, and what is known here of what the other end wants."""
        self.say(self._resume())

    def ended(self, sid: int, source: RemoteSource) -> None:
        """A source is no more, and everything it sent has come."""
        source.linked = False
        self.over.pop(sid, None)
        self.over[sid] = source
        if len(self.over) > ENDED_SOURCES:
            del self.over[next(iter(self.over))]

    def _ended(self) -> list[tuple[int, RemoteSource]]:
        """Sources that are no more, of which not all may be acknowledged yet: none of it is to come again. One that
        only was not wanted any more may come anew, from its first frame on. That cannot be if its node has said that
        it is over, or does not have it any more."""
        if not self.over or len(self.remote_sources) > MOST_SOURCES // 2:  # there is a limit to what can be said
            return []
        there = {each.sid for each in self.sources}
        here = set(self.remote_sources)
        ended = list(self.over.items())
        return [(sid, each) for sid, each in ended if sid not in here and (each.over or sid not in there)]

    def on_frame(self, frame: bytes | memoryview, link: Link) -> None:
        """A frame from the other end; FrameError if it is not one."""
        self.heard = monotonic()
        if frame[0] in ONE_EVENT and len(frame) >= wire.EVENT_AT:
            sid, number, seq, stamp = wire.event_head(frame, 1)
            source = self.remote_sources.get(sid)
            if source is not None and source.one(number, seq, stamp, frame):
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
                    elif sid & GROUP and self.groups is not None:
                        self.groups.acknowledged(self, sid, number)
            case wire.Promise():
                for sid, time in message.pairs:
                    if (found := self.remote_sources.get(sid)) is not None:
                        found.promised(time)
            case wire.Times():
                for sid, least, most in message.pairs:
                    if (found := self.remote_sources.get(sid)) is not None:
                        found.found_upto(least, most)
            case wire.Ping():
                self.say(wire.encode_pong(message.number))
                self.registrar.version_said(self, message.number)
            case wire.Pong():
                pass
            case _:
                self._on_control(message, link)

    def _on_events(self, message: wire.Events | wire.Batch) -> None:
        source = self.remote_sources.get(message.source)
        if source is None:
            if message.source & GROUP and self.groups is not None:
                self.groups.hearing.message(self, message)
            else:
                self._context.offences.note(self.id, f"events of a source ({message.source}) that was not announced")
        elif source.track is None or not source.track.hold(0, partial(self._deliver, source, message)):
            self._deliver(source, message)

    def _deliver(self, source: RemoteSource, message: wire.Events | wire.Batch) -> None:
        number = message.number
        if 0 < number <= source.frame:
            source.repeated += 1  # it was here already
        elif number and number != source.frame + 1:
            self._gap(source, number)
        elif source.superseded:
            seqs = message.seqs
            if number:
                source.pass_over(number, int(seqs[-1]), len(seqs))
                self._came(source, len(seqs))
        elif isinstance(message, wire.Events):
            source.deliver(message)  # if it has no number, it is of the past
            self._came(source, len(message.seqs))
        else:
            source.deliver_batch(message)
            self._came(source, message.rows)

    def _on_control(self, message: Any, link: Link) -> None:
        """A frame beside the events. What concerns multicast groups goes to them, since it must keep its place among
        what came by datagrams."""
        self.control_in[type(message).__name__.lower()] += 1
        groups = self.groups
        match message:
            case Resume(positions=positions, memory=memory):
                self.on_resume(positions, link, memory)
            case Announce():
                self._on_announce(message)
            case Ends(source=sid, over=over):
                self._on_ends(sid, over)
            case Barrier():
                if groups is None:
                    self._on_barrier(message)
                else:
                    groups.hearing.barrier_came(self, message.channel, partial(self._on_barrier, message))
            case Sent() if groups is not None:
                groups.hearing.sent(self, message)
            case Repair(source=sid, after=after, upto=upto) if groups is not None:
                groups.repair(self, sid, after, upto)
            case Again(source=sid, number=number, after=after, since=since):
                self._on_again(sid, number, after, since)
            case Post(kind=kind, body=body):
                self._parts.posts.deliver(self, kind, body)
            case Bye(reason=reason):
                self.attendance.said_bye(self, reason)
            case _:
                raise FrameError(f"expected a frame between nodes that know each other, found {type(message).__name__}")

    def _on_again(self, sid: int, number: int, after: dict[int, int], since: dict[int, int]) -> None:
        """A durable sink there could not keep what was sent: it goes again, from the log. Or it was asked how far it
        is, with a source that has moved here, and may have gone on since."""
        lane = self.by_sid.get(sid)
        if lane is None or (lane.ended and not lane.awaits) or lane.source.log is None or not lane.crossing.reliable:
            return
        with self.building:
            if number <= lane.again_asked:
                return  # it has come over an older link
            lane.restart, lane.again_asked, lane.announced = (dict(after), dict(since)), number, False
            self.add_dirty(lane)
        self.send_soon()

    def _on_barrier(self, message: Barrier) -> None:
        for sid, seq in message.points.items():
            if (source := self.remote_sources.get(sid)) is not None:
                source.passed_by(seq, message.version)
        self.requests.barrier_came(self, message.channel, message.version, message.since, message.first, message.gap)

    def _on_ends(self, sid: int, over: bool) -> None:
        """No more of a source comes this way; it is gone if it comes in no other."""
        if sid & GROUP:
            if self.groups is not None:
                self.groups.hearing.ends(self, sid)
            return
        source = self.remote_sources.get(sid)
        if source is not None:
            source.linked, source.over = False, over
            if source.track is None:
                self.withdrawn(sid)

    def _on_announce(self, message: Announce) -> None:
        """A source is going to send: it gets a remote source here, unless it has one, and says from which frame on it
        sends. Numbers it skips were dropped, and are counted as such."""
        ad = message.ad
        source = self.remote_sources.get(ad.sid)
        if source is None:
            try:
                source = self._arrival(message)
            except HeadwaterError as error:
                self._refuse(ad, str(error))
                return
            if source is None:
                return
        source.window = message.window
        source.pace = max(1, min(ACKNOWLEDGED_EVENTS, message.window // 4))
        if source.zones != (zones := frozenset(ad.zones)):
            self._context.wiring.rezone(source, zones)
        if message.group:
            if self.groups is not None:
                self.groups.hearing.announced(self, source, message)
            return
        source.linked = True
        source.announced(message.live, message.again, message.point, message.begins)
        if message.next > source.frame + 1:
            if source.frame or message.dropped:
                source.dropped = message.dropped
            source.frame = source.acknowledged = message.next - 1
        elif message.dropped > source.dropped:
            source.dropped = message.dropped

    def _arrival(self, message: Announce) -> RemoteSource | None:
        """The remote source of one that is announced; None if nobody here has its channel. An older link may still be
        read, too, and bring the same: one of the two makes it, or the other one's would be waited for for ever."""
        ad = message.ad
        with self._context.wiring.lock:
            source = self.remote_sources.get(ad.sid)
            if source is not None:
                return source
            if len(self.remote_sources) >= MOST_SOURCES:
                raise FrameError(f"expected at most {MOST_SOURCES:,} sources of a node, found more")
            source = self._parts.arrivals.source(self, ad, unpack_type(message.type), message.deeds)
            if source is not None:
                if not message.group and (earlier := self.over.get(ad.sid)) is not None and earlier.over:
                    source.follow(earlier)
                self.remote_sources[ad.sid] = source
            return source

    def _came(self, source: RemoteSource, events: int) -> None:
        self.unacknowledged.add(source)
        source.unsaid += events
        if source.unsaid >= source.pace:
            self.acknowledge([source])
        if not self.scheduler.ticking and source in self.unacknowledged:
            self.scheduler.tick_soon()

    def acknowledge(self, sources: Iterable[Any] | None = None) -> bool:
        """Tell the other end what no sink of this node needs again; whether there may be more to tell soon: then there
        is a tick."""
        pairs = []
        with self._acknowledging:  # the reader and the keeper
            for source in list(self.unacknowledged) if sources is None else sources:
                self.unacknowledged.discard(source)  # first: what comes meanwhile puts it there again
                number = source.settled()
                source.unsaid = 0
                if number > source.acknowledged:
                    source.acknowledged = number
                    pairs.append((source.sid, number))
                if number < source.frame:
                    self.unacknowledged.add(source)
        if pairs:
            self.say(wire.encode_ack(pairs))
        more = bool(self.unacknowledged)
        if more and not self.scheduler.ticking:
            self.scheduler.tick_soon()
        return more

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

    def wait_for_room(self, source: RemoteSource, record: bytes | None) -> None:
        """Until every sink that may want the source's next events has room for them."""
        while (mailbox := source.full(record)) is not None and not self._context.closing:
            if mailbox.inline:
                mailbox.dispatch()
            if not mailbox.wait(lambda it=mailbox: not it.is_full, 0.05):
                self.pump(0.0)  # its handler may itself be waiting for acknowledgements

    def withdrawn(self, sid: int) -> None:
        """A source of it is no more, and everything it sent has come."""
        source = self.remote_sources.get(sid)
        if source is not None:
            self.ended(sid, source)  # first: a link that comes up just now says of every source what has come
            if self.remote_sources.pop(sid, None) is None:
                return  # by the reader of another link, just now
            self._context.wiring.withdraw(source)
            if self.acknowledge([source]):  # sinks may still have events of it
                self.scheduler.tick_soon()
            self.scheduler.changed()

    def _refuse(self, ad: SourceAd, why: str) -> None:
        """A source that it announces cannot be one here."""
        self._context.offences.note(self.id, f"source {ad.name} of {ad.channel}: {why}")
        self.requests.refuse_channel(self, ad.channel, why)

    def _gap(self, source: RemoteSource, number: int) -> None:
        """A frame is missing: begin again from the last one that came. That is said once for each gap and link."""
        if source.gap == (self.links, source.frame):
            return
        source.gap = (self.links, source.frame)
        first, last = source.frame + 1, number - 1
        log.warning("node %s: frames %d to %d of %s are missing", self._context.name, first, last, source)
        self.resume()


__all__ = ["Incoming"]
