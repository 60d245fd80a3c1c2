"""A remote source as this node sees it: its events flow through the channel here as those of any source do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from headwater.channel.queues.forms import fitting
from headwater.channel.queues.mailbox import dispatch_all
from headwater.channel.queues.position_keys import key_of
from headwater.channel.routing.attachment import Attachment, attachments_of
from headwater.channel.routing.fast_path import AboutBypass, HandlerBypass
from headwater.channel.routing.letter import Chunk, Letter
from headwater.channel.routing.route import Flow, Lineup, Ready
from headwater.errors import FrameError, HeadwaterError
from headwater.federation.arrive.acknowledgement import FOREVER, AcknowledgedSource
from headwater.federation.arrive.deduplication import Verdict
from headwater.federation.arrive.log_positions import ByTag, LogPosition, LogPositions
from headwater.federation.arrive.record_check import check_of, none_is
from headwater.federation.arrive.remote_flow import RemoteFlow
from headwater.federation.wire.control import Again, encode_control
from headwater.federation.wire.events import EVENT_AT
from headwater.federation.wire.headerless import Header, Headers, header_of
from headwater.federation.wire.kinds import AWAY, BODY, MAX_SEQ, PAST, WHOLE
from headwater.types import EventType
from headwater.types.layout import HEADER_SIZE

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.routing.contract import RoutedChannel
    from headwater.channel.routing.route import Entry
    from headwater.federation.arrive.paths import Origins
    from headwater.federation.arrive.upstream import Upstream
    from headwater.federation.demand.demand import Demands
    from headwater.federation.security.offences import Offences
    from headwater.federation.wire.control import Beginning, SourceAd
    from headwater.federation.wire.frames import Batch, Events

MOST_QUESTIONS = 64  # that were not answered, of which is remembered what was asked for
_UNASKED: Any = object()
_WRONG: Any = object()


class Track(Protocol):
    """What comes of a source from a multicast group, put in order."""

    sid: int
    frame: int  # the last that came in order

    def hold(self, number: int, then: Callable[[], None]) -> bool:
        """Do something once this frame is here; False if this track is no more."""
        ...


class RemoteSource(AcknowledgedSource):
    """Made when a peer announces a source whose events it sends here."""

    local = False

    def __init__(
        self,
        channel: Channel,
        peer: Upstream,
        ad: SourceAd,
        type: EventType | None,
        *,
        demands: Demands,
        positions: LogPositions,
        origins: Origins,
        offences: Offences,
    ) -> None:
        self.demands, self._offences = demands, offences
        super().__init__(
            channel,
            ad.name,
            hint=f"it is at node {peer.name}; publish there, or make a source here",
            origin=ad.origin,
            path=ad.path,
            filters=ad.filters,
            priority=ad.priority,
            zones=frozenset(ad.zones),
        )
        self.peer, self.sid, self.ad = peer, ad.sid, ad
        self.key = f"{ad.name}@{peer.name}"
        self.id = f"{channel.name}/{self.key}"
        if not ad.origin:
            self.node = peer.name
        self.place = peer.place(channel.name, ad.log)
        self.position_key = f"{peer.id}/{peer.incarnation}/{ad.sid}"
        self.home, self.term = ad.home, ad.term
        self.superseded = False  # it goes on at another node: what still comes from here is not taken
        self._positions = positions
        if ad.log:
            self.position_key = ad.home or key_of(peer.name, ad.log, ad.name)
            self.reached = positions.of(self.position_key, channel.name)
        self._type = type
        self._header = None if type is None else header_of(type.record)
        self._plan = None if channel.type is None or type is None else fitting(type, channel.type)
        expected = channel.type if self._plan is None else type  # code for the channel's type is there as a rule
        self._check = None if type is None or expected is None else check_of(expected)
        self.malformed = 0  # records that were none
        self.dropped = 0  # events that the other end dropped
        self.linked = False  # it was announced over the link
        self.over = False  # its node has said that it is no more
        self.track: Track | None = None  # what comes of it from a multicast group
        self.promise: int | None = None  # no later event is older; None while that is not known
        self.said: int | None = None  # the same, as it has said itself: of a node that has vanished, no more than that
        self._times: tuple[int, int] | None = None  # of events that say their own times: see `come_to`
        self.repeated = 0  # frames that came again
        self.gap = (0, -1)  # on which link, and after which frame, one was missing last
        self.rereads = bool(ad.log) and not ad.origin  # what a sink could not keep can be had again
        self._questions = self._answered = 0  # how often it was asked for that, and the last time that it was given
        self._asked: dict[int, ByTag] = {}  # by number of those that were not answered: after which event of each tag
        self._point: int | None = None if ad.log else 0  # all that was asked for first comes after this event
        self._begun = 0  # the last beginning of which it was told
        self._open: tuple[int, ByTag] = (-1, {})  # what was asked for last and not answered: on which link, after what
        self._ask_on = False  # it was to be asked again meanwhile
        self._resent_to = 0  # events up to this number may have come to an earlier process of this node
        if ad.origin:  # it is a gateway that passes on events of another federation
            self._come_by(lambda source: origins.way(ad.origin, source, ad.path, ad.filters))

    @property
    def reachable(self) -> bool:
        return not self.closed and self.peer.gone is None

    def flow(self, channel: RoutedChannel, lineup: Lineup) -> Flow:
        return RemoteFlow(self, channel, lineup) if channel is self.channel else Flow(self, channel, lineup)

    @property
    def lost(self) -> int:
        """Events that will not come, though they were wanted."""
        return self.dropped + self.missed

    @property
    def seq(self) -> int:
        """The number of its last event that came here."""
        return self.received

    @property
    def begun_at(self) -> int | None:  # type: ignore[override]
        """The event after which all comes that sinks here want; None while that is not known of one that is logged."""
        return self.received or self._point

    @property
    def type(self) -> Any:
        return self._type

    def promised(self, time: int | None) -> None:
        """How far time has come at the source; None if it is not there any more, and so holds nothing back, or AWAY if
        its origin is not."""
        if time is None or time == AWAY:
            self.promise = FOREVER
        else:
            self._has_come_to(time)
        self._release()

    def _has_come_to(self, time: int) -> None:
        self.promise, self.said = max(time, self.promise or 0), max(time, self.said or 0)

    def found_upto(self, least: int, most: int) -> None:
        """It publishes matches, and says how far it has come with their times."""
        before = self._times
        self._times = (least, most) if before is None else (max(least, before[0]), max(most, before[1]))
        self._release()

    def come_to(self) -> tuple[int, int] | None:
        """As it has said: no later event of it has an earlier time of its own than the first of these, and none that
        it had published a later one than the second."""
        return self._times

    def passed_by(self, seq: int, version: int) -> None:
        """Of its events up to this one no more will come: those that did not were not wanted, by what was asked in a
        question of this version."""
        asked = self.peer.asked.get(self.channel.name)
        with self.lock:
            self.received = max(self.received, seq)
            if 0 < self.live <= seq:
                self._all_caught_up()
            if self.reached is not None and not self.closed:  # else what came before this was not taken
                self.reached.reach(0, seq)
                for tag, entry in list(self._flow.tags.items()):  # type: ignore[attr-defined]
                    if asked is not None and all(asked.covers(version, each.wired) for each in _attached(entry)):
                        self.reached.reach(tag, seq)
                for attachment in attachments_of(self):
                    attachment.passed_by(self, seq)
        self._note_beginnings()

    def elsewhere(self, entry: Entry) -> bool:
        """Whether an interest runs at the source, so that it must not run here."""
        return self.demands.runs_at(self.peer, self.channel.name, entry)

    def placed(self, channel: RoutedChannel, entry: Entry) -> tuple[str, str] | None:
        return self.demands.placed(self.peer, channel.name, entry) if channel is self.channel else None

    def resent(self, seq: int) -> bool:
        """Whether an event came again, after this node was started again."""
        return seq <= self._resent_to

    # ── what only some sinks have missed ──

    def announced(self, live: int, again: int = 0, point: int | None = None, begins: Beginning | None = None) -> None:
        """The other end begins to send; up to event `live` it is what earlier sinks have missed, or, if it was asked to
        begin `again`, what sinks that were paused could not keep. `point`: all that was asked for holds after it.
        `begins`: after which events all comes, as the other end says itself; whatever was asked, sinks are held against
        that."""
        with self.lock:
            if point is not None and self.reached is not None:
                self._point = point
            anew, goes_on = again > self._answered, 0 < again == self._answered
            self._answered = max(again, self._answered)
            after = self._asked.get(again, {})
            self._asked = {number: each for number, each in self._asked.items() if number > again}
            ask_on = False
            if not (anew and self._asked):  # all is answered; or it may be another lane, which was not asked
                (ask_on, self._ask_on), self._open = (self._ask_on, False), (-1, {})
            if anew or live > self.received:
                self.live = live
            if begins is not None:
                # It may have been said before, over another link.
                begins, self._begun = (begins, begins.number) if begins.number > self._begun else (None, self._begun)
            for attachment in attachments_of(self):
                if goes_on and begins is None and attachment.hears(self):
                    continue
                stream = self._stream_of(attachment)
                gap, start = attachment.gap(self), after.get(stream, 0)
                # Who has asked since then, for more than comes now, is still to be given that.
                covered = anew and (gap is None or gap >= start)
                if begins is not None:
                    covered = self._follows(attachment, stream, begins)
                    if covered and gap is not None:
                        after = {**after, stream: min(gap, after.get(stream, gap))}
                attachment.meet(self, self.live, self._reached_by(attachment), anew=covered)
            if point is not None and self.reached is not None:
                # Sinks were held against what has come, not against this.
                self.reached.holds(self.peer.asked.get(self.channel.name), point, self._known())
            if after and self.reached is not None:
                self.reached.begin_again(after)
        self._note_beginnings()
        if self.home and not again:
            self._say_how_far()
        elif not anew or ask_on:  # it may be another link, or another life
            self.ask_again()

    def _follows(self, attachment: Attachment, stream: int, begins: Beginning) -> bool:
        """Whether what comes now follows on what a sink has had. If not, a durable one leaves it, and has it from the
        log, with what it has missed. Its lock is held."""
        progress = attachment.subscription._progress
        if progress is None or self.reached is None or not self.rereads or not progress.leaves_to_log:
            return True
        if self.superseded or self.closed:  # nothing of it is taken; where it goes on, it may be one of this node
            return False
        asked = self.peer.asked.get(self.channel.name)
        known = asked is not None and asked.covers(begins.version, attachment.wired)
        had = progress.gap(attachment.channel, self)
        if had is None and progress.knows(self):  # it is in step with the others, or has begun before them
            had = max(progress.position(self), self.reached.at.get(stream, 0))
        if had is None or (known and begins.of(stream) <= had):
            return True
        progress.open_gap(attachment.channel, self, had)
        return False

    def _say_how_far(self) -> None:
        """It has moved: its node sends nothing before it is told how far sinks here are, which others have told them
        of its events so far."""
        channel, asked = self.channel, self.peer.asked.get(self.channel.name)
        demand = None if asked is None else asked.demand
        assert self.position_key is not None
        with channel.node._wiring.lock:
            after, since = self._positions.owed(channel, self.position_key, demand)
            for attachment in attachments_of(self):
                if (gap := attachment.gap(self)) is not None:
                    tag = self._stream_of(attachment)
                    after[tag] = min(after.get(tag, gap), gap)
            if self.superseded:
                after = dict.fromkeys({0, *self._flow.tags, *after}, MAX_SEQ)  # type: ignore[attr-defined]
            question = self._question(after, since)
        self.peer.say(encode_control(question))

    def supersede(self) -> None:
        """It goes on at another node; the wiring's lock is held. What comes is acknowledged, and not taken."""
        self.superseded = True
        self.channel.node._wiring.withdraw(self)

    def pass_over(self, number: int, last: int, events: int) -> None:
        """A frame that is not taken."""
        with self.lock:
            self._arrived(number, last, events)

    def _note_beginnings(self) -> None:
        """Durable sinks write from where on they are owed its events, before any comes; no lock is held."""
        for attachment in attachments_of(self):
            if (progress := attachment.subscription._progress) is not None:
                progress.note_beginnings()

    def ask_again(self) -> None:
        """See that sinks which were paused, and could not keep what came, get that from the log."""
        if not self.rereads or self.reached is None or self.superseded:
            return
        with self.lock:
            after = dict(self.reached.at)
            sinks = attachments_of(self)
            gaps = [(gap, self._stream_of(each)) for each in sinks if (gap := each.gap(self)) is not None]
            if not gaps or self.closed:
                return
            link, asked = self._open
            if link == self.peer.links and all(gap >= asked.get(tag, MAX_SEQ) for gap, tag in gaps):
                self._ask_on = True  # should the answer be none for all of them
                return
            for gap, tag in gaps:
                after[tag] = min(after.get(tag, gap), gap)
            question = self._question(after, dict(self.reached.since))
            self._open = self.peer.links, after
        self.peer.say(encode_control(question))

    def _question(self, after: ByTag, since: ByTag) -> Again:
        self._questions += 1
        self._asked[self._questions] = after
        while len(self._asked) > MOST_QUESTIONS:
            del self._asked[next(iter(self._asked))]
        return Again(self.sid, self._questions, after, since)

    def _reached_by(self, attachment: Attachment) -> int:
        """The last event that has come here for an interest, in whatever life of its source."""
        if self.reached is None:
            return 0
        return self.reached.at.get(self._stream_of(attachment), 0)

    def _known(self) -> ByTag:
        """By tag, the position of the durable sink that has had least."""
        found: ByTag = {}
        for attachment in attachments_of(self):
            progress = attachment.subscription._progress
            if progress is not None and progress.knows(self):
                stream, position = self._stream_of(attachment), progress.position(self)
                found[stream] = min(position, found.get(stream, position))
        return found

    def _stream_of(self, attachment: Attachment) -> int:
        """The tag with which events come for an interest; all filters are one stream."""
        channel, entry = attachment.channel, attachment.entry
        while channel is not self.channel and (stage := channel.stage_entry) is not None and channel.parent is not None:
            channel, entry = channel.parent, stage
        alone = (entry.apart or self._flow.lineup.judges(entry) == "alone") and self.elsewhere(entry)
        return (self.demands.number(entry) or 0) if alone else 0

    def _all_caught_up(self) -> None:
        """Under its lock: what comes now was published after what some have missed."""
        self.live = 0
        for attachment in attachments_of(self):
            attachment.caught_up(self)

    # ── in: by the thread that reads the link ──

    def expects(self, number: int) -> bool:
        """Whether this frame is the next; else it was here already, or there is a gap."""
        return number == self.frame + 1

    def deliver(self, events: Events) -> None:
        """A frame of single events."""
        last = events.seqs[-1]
        if events.bare:
            self._dress(events)
        if events.resent:
            self._resent_to = max(last, self._resent_to)
        if not events.number:
            self._deliver_past(events)
            return
        direct = events.tags is None
        if direct and self._plan is None and self._bypass(events.records, events.seqs, events.stamps, events.number):
            return
        events = self._sound(events)
        records = events.records if self._plan is None else self._convert(events)
        seqs, tags = events.seqs, events.tags
        converted = direct and records and self._plan is not None
        if converted and self._bypass(records, seqs, events.stamps, events.number, last):
            return
        ready: Ready = []
        now, priority = perf_counter_ns(), self.priority
        flow: Any = self._flow
        self._wait_for_room(None)  # backpressure: what is not read fills the link, and then the lane at the other end
        with self.lock, self._turn:
            if self.closed:
                return
            before = self.received
            if not self._arrived(events.number, last, len(events.seqs)):
                return
            if 0 < self.live < last and not events.resent:
                self._all_caught_up()
            again = bool(seqs) and self._come_before(seqs[0], before, resent=events.resent)
            if self.reached is not None:
                self._reach(self.reached, seqs, tags, last)
            accept = flow.accept
            if tags is None:
                for seq, stamp, record in zip(seqs, events.stamps, records, strict=True):
                    letter = Letter(None, record, self, seq, stamp, now, priority)
                    if self.way_in is None or self._taken(letter, 0, ready):
                        accept(letter, ready)
            else:
                for seq, stamp, record, its_tags in zip(seqs, events.stamps, records, tags, strict=True):
                    letter = Letter(None, record, self, seq, stamp, now, priority)
                    for tag in its_tags:
                        if self.way_in is not None and not self._taken(letter, tag, ready):
                            continue
                        if tag:
                            flow.tagged(tag, letter, ready, again=again)
                        else:
                            accept(letter, ready)
            if records:
                self._has_come_to(events.stamps[-1])
        dispatch_all(list(dict.fromkeys(ready)))  # handlers, with no lock held
        self._release()

    # ── what may come by other gateways, too ──

    def _taken(self, letter: Letter, tag: int, ready: Ready) -> bool:
        """Whether an event is to be handed on now; it may be held, for later."""
        assert self.way_in is not None
        verdict = self.way_in.offer(letter.seq, ready, tag & ~WHOLE)
        if verdict is Verdict.HOLD:
            self.way_in.hold(letter.seq, tag & ~WHOLE, 1, partial(self._late, letter, tag))
        return verdict is Verdict.TAKE

    def _late(self, letter: Letter, tag: int, after: int, ready: Ready) -> None:
        """An event that was held is next."""
        assert self.way_in is not None
        if not self.way_in.new(letter.seq, tag & ~WHOLE):
            return
        flow: Any = self._flow
        if tag:
            flow.tagged(tag, letter, ready)
        else:
            flow.accept(letter, ready)

    def _late_rows(self, chunk: Chunk, tag: int, after: int, ready: Ready) -> None:
        assert self.way_in is not None
        rows = [
            row for row, seq in enumerate(chunk.seqs.tolist()) if seq > after and self.way_in.new(seq, tag & ~WHOLE)
        ]
        if rows:
            self._hand_on_rows(_some(chunk, rows), tag, ready)

    def _come_before(self, seq: int, received: int, *, resent: bool) -> bool:
        """Whether something of an event has come before: of a batch, what each interest has made of it comes by itself,
        and an interest may have changed in between. What is sent again because some have missed it is another thing,
        and so is what comes by several ways."""
        return seq <= received and not resent and not self.live and self.way_in is None

    def _hand_on_rows(self, chunk: Chunk, tag: int, ready: Ready, *, again: bool = False) -> None:
        flow: Any = self._flow
        if tag:
            flow.tagged_chunk(tag, chunk, ready, again=again)
        else:
            flow.accept_chunk(chunk, ready)

    def _dress(self, events: Events) -> None:
        """Put the headers on records that came without."""
        header: Header | Headers | None = self._header
        if events.tags is not None and self._header is not None:
            header = Headers([self._header_of(its_tags) for its_tags in events.tags])
        try:
            events.dress(header)
        except FrameError as error:
            raise FrameError(f"{self}: {error}") from None

    def _header_of(self, its_tags: tuple[int, ...]) -> Header:
        """How records with these tags begin: by the first, what it has made, or as the source's events do."""
        assert self._header is not None
        tag = its_tags[0] if its_tags else 0
        entry = self._flow.tags.get(tag & ~PAST)  # type: ignore[attr-defined]
        made = None if entry is None or entry.interest is None else entry.interest.output
        return self._header if made is None else header_of(made.record)

    def _reach(
        self, reached: LogPosition, seqs: Sequence[int], tags: Sequence[tuple[int, ...]] | None, last: int
    ) -> None:
        if tags is None:
            reached.reach(0, last)
            return
        for seq, its_tags in zip(seqs, tags, strict=True):
            for tag in its_tags:
                reached.reach(tag & ~WHOLE, seq)

    def _deliver_past(self, events: Events) -> None:
        """Events from before a sink came that has asked for the past."""
        if not events.of_the_past:
            raise FrameError(f"{self}: expected the number of a frame of events, found none")
        assert events.tags is not None
        more = {seq: (rank - PAST, turn - PAST) for seq, (_, rank, turn) in zip(events.seqs, events.tags, strict=True)}
        events = self._sound(replace(events, tags=[(its_tags[0] - PAST,) for its_tags in events.tags]))
        records = events.records if self._plan is None else self._convert(events)
        ready: Ready = []
        now, tags = perf_counter_ns(), self._flow.tags  # type: ignore[attr-defined]
        self._wait_for_room(None)
        with self.lock, self._turn:
            for seq, stamp, record, (tag,) in zip(events.seqs, events.stamps, records, events.tags or (), strict=True):
                one = tag & ~WHOLE
                if self.way_in is not None and self.way_in.offer(seq, ready, PAST | one) is not Verdict.TAKE:
                    continue
                letter, entry = Letter(None, record, self, seq, stamp, now, self.priority), tags.get(one)
                for member in () if entry is None or self.closed else entry.members:
                    sink = member.subscription
                    if sink is None:
                        continue
                    wanted, (rank, turn) = sink._options.history, more[seq]
                    if wanted and not 0 < wanted < rank and sink._number <= turn:  # else it has its own, or gets them
                        sink._accept_past(self.place, member, letter, ready)
        dispatch_all(list(dict.fromkeys(ready)))
        self._release()

    def _sound(self, events: Events) -> Events:
        """Without what is no record of its type, which is an offence, and without what nobody asks for any more."""
        tags, records = events.tags, events.records
        if tags is None:
            bad = set(() if self._check is None else self._check(records))
            unasked: set[int] = set()
        else:
            checks = [self._check_of(its_tags) for its_tags in tags]
            unasked = {at for at, check in enumerate(checks) if check is _UNASKED}
            bad = {at for at, check in enumerate(checks) if check not in (None, _UNASKED) and check([records[at]])}
        if not bad and not unasked:
            return events
        if bad:
            self._offend(len(bad))
        keep = [at for at in range(len(records)) if at not in bad and at not in unasked]
        seqs, stamps = [events.seqs[at] for at in keep], [events.stamps[at] for at in keep]
        kept = None if tags is None else [tags[at] for at in keep]
        return replace(events, seqs=seqs, stamps=stamps, records=[records[at] for at in keep], tags=kept)

    def _check_of(self, its_tags: tuple[int, ...]) -> Any:
        """How records with these tags are checked; None if any bytes will do. Who has asked takes what comes for what
        that makes: what is said to be of two types is of none."""
        found = _UNASKED
        for tag in its_tags:
            made = self._made_by(tag)
            if made is not _UNASKED and made is not found:
                found = made if found is _UNASKED else _WRONG
        if found is _UNASKED:
            return _UNASKED
        if found is _WRONG:
            return none_is
        return self._check if found is None else check_of(found)

    def _made_by(self, tag: int) -> Any:
        """The type of what comes with a tag; None: the source's own."""
        if not tag:
            return None
        entry: Entry | None = self._flow.tags.get(tag & ~WHOLE)  # type: ignore[attr-defined]
        if entry is None:
            return _UNASKED
        if tag & WHOLE:
            return None if entry.makes_marks else _WRONG
        return None if entry.interest is None else entry.interest.output

    def _convert(self, events: Events) -> list[Any]:
        """Records of the channel's type here. Those that an interest with output has made are so already."""
        assert self._plan is not None
        convert, tags = self._plan.convert, events.tags
        try:
            if tags is None:
                return [convert(record) for record in events.records]
            return [
                record if self._made_there(its_tags) else convert(record)
                for record, its_tags in zip(events.records, tags, strict=True)
            ]
        except HeadwaterError as error:
            raise FrameError(f"{self}: a record is not of its type: {error}") from None

    def _made_there(self, its_tags: tuple[int, ...]) -> bool:
        """Whether a record with these tags is not of the source's type; what is whole is."""
        tags: dict[int, Entry] = self._flow.tags  # type: ignore[attr-defined]
        interests = [entry.interest for tag in its_tags if (entry := tags.get(tag)) is not None]
        return any(each is not None and each.output is not None for each in interests)

    def _release(self) -> None:
        """Sinks that take events in order of time may go on, those that got none of these as well."""
        if self.channel.node._ordered:
            self.channel.node._release()

    def _bypass(
        self, records: Sequence[bytes], seqs: Sequence[int], stamps: Sequence[int], number: int, last: int = 0
    ) -> bool:
        """By the fast path, straight to the one function that wants these, if that is open; the frame is up to event
        `last`, if that is not the last of these."""
        flow: Any = self._flow
        if self.way_in is not None or flow.bypass is None:
            return False
        with self.lock:
            bypass: Any = flow.bypass
            judges = flow.judged is not None
            if bypass is None or self.closed or self.live or (judges and self._unsound(records)):
                return False
            if not bypass.try_take():
                return False
            last = last or seqs[-1]
            if not self._arrived(number, last, len(records)):
                bypass.give_back()
                return True
            if self.reached is not None:
                self.reached.reach(0, last)
            flow.seen += len(records)
            if judges and len(wanted := flow.wanted(records)) < len(records):
                if not wanted:
                    bypass.give_back()
                    return True
                records, seqs, stamps = ([each[at] for at in wanted] for each in (records, seqs, stamps))
        letters = partial(self._letters, records, seqs, stamps)
        put_off = partial(self._put_off, bypass, letters)
        malformed = bypass.call_all(letters() if isinstance(bypass, AboutBypass) else records, put_off)
        if malformed:
            self._offend(malformed)
        return True

    def _offend(self, records: int) -> None:
        """So many were not what they were said to be."""
        self.malformed += records
        self._offences.note(self.peer.id, f"{records} records of {self} that are not of its type")

    def _unsound(self, records: Sequence[bytes]) -> bool:
        """Whether some may be no records of the channel's type: no interest is to read these."""
        return self._plan is None and self._check is not None and bool(self._check(records))

    def _letters(self, records: Sequence[bytes], seqs: Sequence[int], stamps: Sequence[int]) -> list[Letter]:
        now, priority = perf_counter_ns(), self.priority
        return [
            Letter(None, record, self, seq, stamp, now, priority)
            for record, seq, stamp in zip(records, seqs, stamps, strict=True)
        ]

    def _put_off(self, bypass: HandlerBypass, letters: Callable[[], list[Letter]], handled: int) -> None:
        """The sink was paused, or cancelled, in the middle of a frame: the rest of it waits in its queue."""
        bypass.subscription._put_off([(bypass.attachment, letter, 1, 0, inf) for letter in letters()[handled:]])

    def one(self, number: int, seq: int, stamp: int, frame: bytes | memoryview) -> bool:
        """A frame of one event, straight to the one function that wants it, if that is how things are: as `_bypass`,
        without all that many need."""
        flow: Any = self._flow
        bypass = flow.bypass
        if bypass is None or self._plan is not None or self.way_in is not None or self.track is not None:
            return False
        if number != self.frame + 1 or not seq:
            return False
        if frame[0] != BODY:
            record = bytes(frame[EVENT_AT:])
        elif self._header is None:
            return False
        else:
            record = self._header[len(frame) + (HEADER_SIZE - EVENT_AT)] + frame[EVENT_AT:]
        try:
            event = bypass.decode(record)  # an interest reads only what is sound
        except HeadwaterError:
            return False
        with self.lock:
            if bypass is not flow.bypass or self.closed or self.live or not bypass.try_take():
                return False
            if not self._arrived(number, seq, 1):
                bypass.give_back()
                return True
            if self.reached is not None:
                self.reached.reach(0, seq)
            flow.seen += 1
            if (entry := flow.judged) is not None:
                if entry not in (flow.sieve or flow.sift())(record):
                    flow.spread += 1
                    bypass.give_back()
                    return True
                flow.passed[entry] = flow.passed.get(entry, 0) + 1
        bypass.receive(event, self, seq, stamp)
        return True

    def deliver_batch(self, frame: Batch) -> None:
        """A frame of rows."""
        type = self.type
        if type is None or not frame.number:
            why = "its channel carries bytes" if type is None else "their frame has no number"
            raise FrameError(f"{self}: rows came, but {why}")
        tag, whole = frame.tag & ~WHOLE, bool(frame.tag & WHOLE)
        entry = None if tag == 0 else self._flow.tags.get(tag)  # type: ignore[attr-defined]
        if tag and entry is None:  # of an interest that was withdrawn meanwhile
            with self.lock, self._turn:
                arrived = not self.closed and self._arrived(frame.number, int(frame.seqs[-1]), frame.rows)
                if arrived and self.reached is not None:
                    self.reached.reach(tag, int(frame.seqs[-1]))
            return
        if whole and (entry is None or not entry.makes_marks):
            raise FrameError(
                f"{self}: expected events themselves where else marks come, found them for another interest"
            )
        output = None if entry is None or entry.interest is None or whole else entry.interest.output
        made = type if output is None else output
        batch = frame.batch(made.schema)
        if self._plan is not None and made is type:
            batch = self._plan.convert_batch(batch)
        seqs = frame.seqs
        if frame.resent:
            self._resent_to = max(int(seqs[-1]), self._resent_to)
        ready: Ready = []
        self._wait_for_room(None)
        with self.lock, self._turn:
            if self.closed:
                return
            before = self.received
            if not self._arrived(frame.number, int(seqs[-1]), frame.rows):
                return
            if 0 < self.live < int(seqs[-1]) and not frame.resent:
                self._all_caught_up()
            if self.reached is not None:
                self.reached.reach(tag, int(seqs[-1]))
            chunk = Chunk(batch, self, 0, frame.stamp, perf_counter_ns(), self.priority)
            chunk._seqs = seqs
            if self.way_in is None:
                again = self._come_before(int(seqs[0]), before, resent=frame.resent)
                self._hand_on_rows(chunk, tag, ready, again=again)
            else:
                verdict, rows = self.way_in.offer_rows(seqs.tolist(), ready, tag)
                if verdict is Verdict.HOLD:
                    self.way_in.hold(int(seqs[-1]), tag, len(seqs), partial(self._late_rows, chunk, tag))
                elif rows:
                    self._hand_on_rows(_some(chunk, rows), tag, ready)
            self._has_come_to(frame.stamp)
        dispatch_all(ready)
        self._release()

    def _wait_for_room(self, record: bytes | None) -> None:
        """Sinks that cannot keep up hold the link, and so, at last, the publisher."""
        if self._full:
            self.peer.wait_for_room(self, record)


def _attached(entry: Entry) -> list[Attachment]:
    return [member for member in entry.members if isinstance(member, Attachment)]


def _some(chunk: Chunk, rows: list[int]) -> Chunk:
    return chunk if len(rows) == len(chunk) else chunk.derived(chunk.taken().take(rows), rows)


__all__ = ["RemoteFlow", "RemoteSource"]
