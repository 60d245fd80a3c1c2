"""A subscription at one channel, and a derived channel at its parent: the members of routes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headwater.channel.concurrency.bounded_queue import BoundedQueue
from headwater.channel.options.expression import Expression
from headwater.channel.reports.counters import Counts
from headwater.channel.routing.counts import Judged, Readings
from headwater.channel.routing.fast_path import AboutBypass, HandlerBypass
from headwater.channel.routing.letter import About, Chunk, Letter
from headwater.channel.routing.past import Recollection, own_flows
from headwater.channel.routing.route import Bystander, Entry, Lineup, Quick, Ready

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedChannel, RoutedSource
    from headwater.channel.routing.limiter import Limiter
    from headwater.channel.routing.sink import Sink


class Attachment:
    """A subscription's interest, in one epoch, at one channel. A change of the interest makes a new one."""

    width = 1
    local = True
    run = 0  # of a pattern: which of its runs the events are for
    marking: Any = None  # of a pattern: what comes is an event or a mark

    def __init__(
        self,
        subscription: Sink,
        channel: RoutedChannel,
        entry: Entry,
        form: Any,
        *,
        priority: Expression | None = None,
        lifetime: Expression | None = None,
        part: int = 0,
        limiter: Limiter | None = None,
    ) -> None:
        self.subscription, self.channel, self.entry, self.form, self.part = subscription, channel, entry, form, part
        self.priority, self.lifetime = priority, lifetime
        self._limiter, self._shed_before = limiter, 0
        self.cls = form.cls  # instances of this are handed over as they are
        # Where events are queued as they come, how.
        calm = priority is None and lifetime is None and subscription._mailbox.order == "arrival" and subscription._calm
        calm = calm and not subscription._late and limiter is None
        self.quick: Quick | None = subscription._mailbox.put_quick if calm else None
        self._quick = self.quick
        # Of sources of other nodes, by key: those that were there since it came, and, of those from whose log earlier
        # sinks get what they have missed, the last event that is not for this one.
        self.heard: set[str] = set()
        self.floors: dict[str, int] = {}
        self.wired = 0  # the change of the wiring with which it came
        self._succeeds = False  # it is in the place of another
        # Whether priority or lifetime differ from event to event, so that a batch must be taken apart.
        self.by_event = any(e is not None and e.constant is None for e in (priority, lifetime))
        self.epoch = subscription.epoch
        # What its entry counts at the sources is right for it, from when on it came, but for
        self.recalled = 0  # events of the past that it began with: evaluated and passed
        self.repeated = 0  # events that came as they were published, and had come with the past already
        self.withheld = 0  # events that its entry passed, and that were not for it; less those that came in the end
        self._bypass: HandlerBypass | None = None
        self._receiver: AboutBypass | None = None
        # The last event of each source before this epoch; by number, since another may get its id.
        self.points: dict[int, tuple[str, int]] = {}
        self._since: dict[Lineup, tuple[Judged, int]] = {}  # what each had counted before, and how many were direct
        self._gone = (Judged(), 0)  # of line-ups that are no more
        self.mailbox = subscription._mailbox
        wanted = subscription._options.history
        begins = bool((wanted and channel.backlog.remembers) or self._has_missed()) and self.epoch == 1
        self.past = Recollection(channel, entry, wanted, self._missed_after, self._counts_since) if begins else None

    def _missed_after(self, source: RoutedSource) -> int | None:
        """Of a source of this process that was there before it: the event after which a durable sink is to have all."""
        progress = self.subscription._progress
        if progress is None or not source.channel.backlog.remembers or not self._keeps_track_of(source):
            return None
        return progress.missed_after(self.channel, source)

    def _keeps_track_of(self, source: RoutedSource) -> bool:
        """Whether a durable sink keeps, by this attachment, how far it is with a source. A pattern does so for all its
        channels at once, and so not for those that are derived."""
        progress = self.subscription._progress
        return progress is not None and (self.channel is source.channel or progress.leaves_to_log)

    def _counts_since(self, source: RoutedSource) -> int | None:
        """From where on the state of its interest counts, of a source of this process and a sink that came here with
        it."""
        progress = self.subscription._progress
        return None if progress is None or self.epoch != 1 else progress.counts_since(source)

    def _has_missed(self) -> bool:
        if self.subscription._progress is None:
            return False
        return any(self._missed_after(flow.source) is not None for flow in own_flows(self.channel))

    # ── as a member of a route ──

    @property
    def bypass(self) -> HandlerBypass | None:
        if self._bypass is None and self.subscription._plain:
            self._bypass = HandlerBypass(self)
        return self._bypass

    @property
    def receiver(self) -> HandlerBypass | None:
        """The fast path of what comes from other nodes, also to a handler that is told more than the event."""
        if self.subscription._plain:
            return self.bypass
        if self._receiver is None and self.subscription._prompt:
            self._receiver = AboutBypass(self)
        return self._receiver

    def accept(self, letter: Letter, ready: Ready) -> None:
        limiter = self._limiter
        if limiter is not None and not limiter.admits(letter):
            letter.source.fates(self.channel).lost("shed", 1)
            return
        self.take(letter, ready)

    def take(self, letter: Letter, ready: Ready) -> None:
        """An event that is within the rate."""
        if self.quick is None or not self.quick(self, letter, 1, ready):
            self.subscription._arrive(self, letter, ready)

    def accept_chunk(self, chunk: Chunk, n: int, ready: Ready) -> None:
        if self._limiter is not None:
            some = self._limiter.admitted(chunk, self._records)
            rest = 0 if some is None else len(some)
            if rest < n:
                chunk.source.fates(self.channel).lost("shed", n - rest)
            if some is None:
                return
            chunk, n = some, rest
        self.take_chunk(chunk, n, ready)

    def _records(self, chunk: Chunk) -> list[bytes]:
        return list(self.form.have.arrow_to_records(chunk.taken()))

    def too_old(self, letter: Letter | Chunk) -> bool:
        """Whether events that their source has let pass are shed here, since they have taken too long."""
        if self._limiter is None:
            return False
        events, now = len(letter) if isinstance(letter, Chunk) else 1, self.channel.node._stamp()
        if not self._limiter.old(letter.stamp, now, events):
            return False
        letter.source.fates(self.channel).lost("shed", events)
        return True

    def take_chunk(self, chunk: Chunk, n: int, ready: Ready) -> None:
        """A batch that is within the rate."""
        if self.quick is None or not self.quick(self, chunk, n, ready):
            self.subscription._arrive_chunk(self, chunk, ready)

    def reaches(self, source: RoutedSource, record: bytes | None) -> Iterable[BoundedQueue]:
        # A link does not wait for a sink that moves: what says where that is in force comes over it, too. What waits is
        # bounded by what the other end sends unacknowledged.
        if source.local or not self.subscription._moves:
            yield self.mailbox
        yield from self.subscription._stages

    # ── what has come of it ──

    def started(self) -> None:
        """It is in force from here; called while every source of the channel stands still."""
        if self._limiter is not None:
            self._shed_before = self._limiter.shed
        for lineup in self.channel.lineups:
            self.joined(lineup)
            for flow in lineup.flows:
                self.points[flow.source.number] = flow.source.id, flow.source.seq
        self.subscription._began(self)
        for flow in self.channel.flows():
            if flow.source.position_key is not None:
                self.meet(flow.source, flow.source.live)
        if self.past is not None:
            self._close_gaps()
            self._begin_with(self.past.all(), self.subscription._starters)
            self.past = None
        if self.subscription._progress is not None:
            for flow in own_flows(self.channel):
                self._begins(flow.source)

    def _begins(self, source: RoutedSource) -> None:
        """Of a source of this process a durable sink has what comes from now on; the source stands still."""
        progress = self.subscription._progress
        if progress is not None and self._keeps_track_of(source):
            progress.begins(self.channel, source)

    def _close_gaps(self) -> None:
        """What it has missed of sources of this process comes now; they stand still."""
        progress = self.subscription._progress
        if progress is not None:
            for flow in own_flows(self.channel):
                if self._missed_after(flow.source) is not None:
                    progress.close_gap(self.channel, flow.source)

    def catch_up(self, source: RoutedSource, ready: Ready) -> None:
        """A source of this process goes on that was there before: a durable sink has what it has missed of it, or
        begins there. The source stands still, and has published nothing yet."""
        progress = self.subscription._progress
        if progress is None:
            return
        missed = self._missed_after(source)
        if missed is not None:
            progress.close_gap(self.channel, source)
            self.recall(source, missed, ready)
        self._begins(source)

    def recall(self, source: RoutedSource, after: int, ready: Ready) -> None:
        """It has what a source of this process had published after an event, and did not come. The source stands still,
        and has published nothing yet."""
        self._begin_with(self._after(source, after).all(), ready)

    def _after(self, source: RoutedSource, after: int) -> Recollection:
        """What its interest passes of a source of this process after an event."""
        since = self.begins_with_state(source)
        return Recollection(
            self.channel,
            self.entry,
            0,
            lambda each: after if each is source else None,
            lambda each: since if each is source else None,
        )

    def begins_with_state(self, source: RoutedSource) -> int:
        """The last event of a source of this process before the state of its interest counts."""
        since = self._counts_since(source)
        return self.points.get(source.number, ("", 0))[1] if since is None else since

    def missing(self, source: RoutedSource) -> Recollection | None:
        """What it could not keep of a source of this process, if it goes on: most of it is judged now, and not while
        that stands still."""
        gap = self.gap(source)
        if gap is None:
            return None
        past = self._after(source, gap)
        past.ahead()
        return past

    def read_again(self, source: RoutedSource, past: Recollection, ready: Ready) -> None:
        """It has what it could not keep of a source of this process, which stands still; unless another was quicker."""
        progress = self.subscription._progress
        if progress is not None and self.gap(source) is not None:
            progress.close_gap(self.channel, source)
            self._begin_with(past.all(), ready)

    def prepare(self) -> None:
        """It is about to be in force: most of the past that it wants to begin with is judged now."""
        if self.past is not None:
            self.past.ahead()

    def _begin_with(self, letters: list[Letter], ready: Ready) -> None:
        """Events of the past, which no source evaluates here again: they are counted as evaluated with having passed.
        Nothing else comes meanwhile."""
        before = self.withheld
        if self.quick is None or not self.mailbox.put_all(self, letters, ready):
            for letter in letters:
                self.take(letter, ready)
        self.recalled += len(letters) - (self.withheld - before)
        self.withheld = before
        for letter in letters:
            self._recalled_by(letter.source, 1)

    def begin_with(self, letter: Letter) -> None:
        """One event of the past of another node is about to be queued: evaluated there, and passed."""
        self.recalled += 1
        self._recalled_by(letter.source, 1)

    def repeats(self, letter: Letter | Chunk, events: int) -> None:
        """So many events of this came with the past already: they count there."""
        self.repeated += events
        self._recalled_by(letter.source, -events)

    def _recalled_by(self, source: RoutedSource, events: int) -> None:
        flow = source.flows.get(self.channel)
        if flow is not None:  # else the source is gone, and its counts are made up
            flow.recalled += events

    def slow_down(self) -> None:
        """It must hear of what comes: events do not go into its queue by themselves."""
        self.quick = self._quick = None

    def gap(self, source: RoutedSource) -> int | None:
        """Of what came while a durable sink was paused, the last event that it could keep, if it wants the rest now."""
        progress = self.subscription._progress
        return None if progress is None or self.mailbox.held else progress.gap(self.channel, source)

    def hears(self, source: RoutedSource) -> bool:
        """Whether it was here when a source of another node was."""
        return source.position_key in self.heard

    def meet(self, source: RoutedSource, live: int, came: int = 0, *, anew: bool = False) -> None:
        """A source of another node is there; the source stands still. If it sends what earlier sinks have missed, up to
        event `live`, that is for this one only if it was here before, and what has not come before, after `came`; or,
        if it begins `anew` for sinks that could not keep what came, after what this one has kept."""
        key = source.position_key
        assert key is not None
        new = key not in self.heard
        self.heard.add(key)
        progress = self.subscription._progress
        if new and progress is not None:
            if progress.knows(source):  # what it has had of this is not shown again
                if anew and self.gap(source) is not None:
                    progress.close_gap(self.channel, source)
                return
            if (point := live or source.begun_at) is not None:
                self.begins_after(source, point)
        gap = self.gap(source) if anew else None
        if gap is not None and progress is not None:
            progress.close_gap(self.channel, source)
        if not live:
            return
        floor = live if new else max(self.floors.get(key, 0), came)
        if gap is not None:
            floor = gap
        if floor:
            self.floors[key], self.quick = floor, None
        else:  # it is to have all: what an earlier announcement kept from it, too
            self.caught_up(source)

    def begins_after(self, source: RoutedSource, seq: int) -> None:
        """A durable sink that is to have what a source of another node publishes after an event, if it has not begun;
        the source stands still. One that wants the past begins with the first that comes."""
        progress = self.subscription._progress
        if progress is not None and not self.subscription._late:
            progress.begins_after(self.channel, source, seq)

    def passed_by(self, source: RoutedSource, seq: int) -> None:
        """All has come that a source of another node had sent up to an event; the source stands still."""
        self.begins_after(source, seq)
        if self.subscription._progress is not None:
            self.subscription._progress.passed_by(self.channel, source, seq)

    def caught_up(self, source: RoutedSource) -> None:
        """All have what they missed of a source."""
        if self.floors.pop(source.position_key or "", None) is not None and not self.floors:
            self.quick = self._quick

    def goes_on_for(self, other: Attachment) -> None:
        """It takes the place of another, whose interest has changed."""
        self.heard, self.floors, self._succeeds = set(other.heard), dict(other.floors), True
        if self.floors:
            self.quick = None

    def not_for_it(self, letter: Letter | Chunk) -> int:
        """How many of these events, the first, were there before it came."""
        return self._withhold(letter, self.floors.get(letter.source.position_key or "", 0))

    def came_before(self, letter: Letter | Chunk) -> int:
        """How many of these events, the first, have come for the interest in whose place its own is: both were judged
        at their source, and what came of each comes by itself."""
        return self._withhold(letter, self.points.get(letter.source.number, ("", 0))[1]) if self._succeeds else 0

    def _withhold(self, letter: Letter | Chunk, floor: int) -> int:
        """Leave out, and count, what is up to an event."""
        if isinstance(letter, Chunk):
            early = int(letter.seqs.searchsorted(floor, "right"))
        else:
            early = int(letter.seq <= floor)
        if early:
            self.withheld += early
            letter.source.fates(self.channel).lost("skipped", early)
        return early

    def ended(self) -> None:
        """It is no longer in force; called while every source of the channel stands still."""
        self.subscription._retire(self)

    def joined(self, lineup: Lineup) -> None:
        if lineup.how(self.entry) != "never":
            self._since[lineup] = lineup.baseline(self.entry), lineup.direct

    def left(self, lineup: Lineup) -> None:
        if lineup in self._since:
            judged, direct = self._of(lineup, Readings((self.entry,)))
            self._gone = self._gone[0] + judged, self._gone[1] + direct
            del self._since[lineup]

    def _of(self, lineup: Lineup, readings: Readings) -> tuple[Judged, int]:
        """What was counted at a line-up since it came, and how many events were handed over past the queue."""
        before, direct = self._since[lineup]
        return lineup.judged(self.entry, readings) - before, lineup.direct_of(readings) - direct

    def counts(self, readings: Readings) -> Counts:
        """Evaluated, passed, rejected, undecided and faults since it began; delivered are those of them that were
        handed over past the queue: while that is so nobody else wants any."""
        judged, direct = self._gone
        for lineup in self._since:
            more, directly = self._of(lineup, readings)
            judged, direct = judged + more, direct + directly
        again = self.recalled - self.repeated
        shed = 0 if self._limiter is None else self._limiter.shed - self._shed_before
        evaluated, passed = judged.evaluated + again, judged.passed + again - self.withheld - shed
        return Counts(
            evaluated=evaluated,
            passed=passed,
            rejected=evaluated - passed - judged.undecided - shed,
            undecided=judged.undecided,
            faults=dict(judged.faults),
            delivered=direct,
            shed=shed,
        )

    def about(self, letter: Letter) -> About:
        return letter.about(self.channel.name, self.epoch, self.subscription.name)


def attachments_of(source: RoutedSource) -> list[Attachment]:
    """Of the sinks in this node of a source's channel, and of all channels that are derived from it."""
    entries = [entry for channel in list(source.flows) for entry in list(channel.entries.values())]
    return [member for entry in entries for member in entry.members if isinstance(member, Attachment)]


class Stage(Bystander):
    """A derived channel at its parent: what passes flows on through the derived channel, at the same source."""

    bypass = None
    quick = None
    width = 0

    def __init__(self, channel: RoutedChannel) -> None:
        self.channel = channel

    @property
    def local(self) -> bool:
        return any(entry.local for entry in self.channel.entries.values())

    def accept(self, letter: Letter, ready: Ready) -> None:
        letter.source.flows[self.channel].accept(letter, ready)

    def accept_chunk(self, chunk: Chunk, n: int, ready: Ready) -> None:
        chunk.source.flows[self.channel].accept_chunk(chunk, ready)

    def reaches(self, source: RoutedSource, record: bytes | None) -> Iterable[BoundedQueue]:
        return source.flows[self.channel].reaches(record)
