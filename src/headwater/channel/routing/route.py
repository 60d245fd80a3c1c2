"""Who gets an event: the interests of one channel, arranged so that each distinct one is evaluated once per event.

Entry     one distinct interest in some zones, and its members: attachments of subscriptions, and derived channels
Lineup    the entries that sources with the same stated facts and zones must consult; hands out immutable Routes
Route     what a source does with an event; swapped whole, at an exact point of the source's sequence
Flow      one source's events in one channel (its own, or one derived from it)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from headwater.channel.reports.tally import Fates, Tally
from headwater.channel.routing.counts import Judged, Reading, Readings
from headwater.channel.routing.letter import Chunk, Letter, Marked, Rows
from headwater.channel.routing.limiter import Limiter
from headwater.contextual import ContextInterest
from headwater.interest import Apart, Interest
from headwater.ir.covers import covers, disjoint
from headwater.ir.interp import EventContext, Fault, Status
from headwater.late import pa
from headwater.match import KINDS, Later, Matcher, Matching, new_totals
from headwater.native.python.publish import FlowSlots
from headwater.native.record import uses_meta
from headwater.types.marks import WHOLE, whole_at

if TYPE_CHECKING:
    from headwater.channel.concurrency.bounded_queue import BoundedQueue
    from headwater.channel.options.expression import Expression
    from headwater.channel.routing.contract import RoutedChannel, RoutedSource
    from headwater.channel.routing.fast_path import BypassRoute
    from headwater.channel.time.token_bucket import Packed
    from headwater.match.counters import Ledger
    from headwater.native.program import Native
    from headwater.native.record import Result

Ready = list["BoundedQueue"]
Quick = Callable[[Any, "Letter | Chunk", int, Ready], bool]
FEW = 256  # interests that are looked through for a member that they have in common, whenever one changes
EXACT = 10_000  # interests on fields that may be missing, up to which every undecided event is counted as such
How = Literal["always", "never", "matched", "alone"]
_NONE = (0,) * (1 + len(KINDS))


class Member(Protocol):
    """Who receives what an entry passes. Called under the source's lock: quick, and no user code."""

    width: int  # 1 for a subscription of this node, whose evaluations are counted; else 0

    @property
    def subscription(self) -> Any:
        """The subscription that it is for; None if it is for no sink of this node."""
        ...

    @property
    def local(self) -> bool:
        """Whether someone in this node wants the events, not only other nodes."""
        ...

    def prepare(self) -> None:
        """It is about to be in force: what takes its time is done now, while sources go on."""
        ...

    def started(self) -> None:
        """It is in force from here; called while every source of the channel stands still."""
        ...

    def ended(self) -> None:
        """It is no longer in force; called while every source of the channel stands still."""
        ...

    def joined(self, lineup: Lineup) -> None:
        """Sources with other facts or zones have come."""
        ...

    def left(self, lineup: Lineup) -> None:
        """There are no sources with such facts and zones any more."""
        ...

    def accept(self, letter: Letter, ready: Ready) -> None: ...

    def accept_chunk(self, chunk: Chunk, n: int, ready: Ready) -> None: ...

    def reaches(self, source: RoutedSource, record: bytes | None) -> Iterable[BoundedQueue]:
        """The queues that may get this record, or (None) any record, told without changing anything."""
        ...

    @property
    def quick(self) -> Quick | None:
        """`Mailbox.put_quick`, where that is all there is to accepting something: it may be tried first."""
        ...

    @property
    def bypass(self) -> BypassRoute | None:
        """The fast path, if events need no more than to be handed to a function in the publisher's thread, or to be
        put on a list."""
        ...


class Bystander:
    """A member that nothing has to be told of but events, and that is no sink."""

    subscription: Any = None

    def prepare(self) -> None:
        pass

    def started(self) -> None:
        pass

    def ended(self) -> None:
        pass

    def joined(self, lineup: Lineup) -> None:
        pass

    def left(self, lineup: Lineup) -> None:
        pass


class Rated(NamedTuple):
    """The rate of a subscription, and how urgent an event is to it."""

    rate: Packed
    priority: Expression | None = None

    def limiter(self) -> Limiter:
        """What lets so much pass."""
        return Limiter(self.rate, self.priority)


class Entry:
    """A distinct interest on a channel; `interest` is None for those who want everything.

    `zones` are those that its members look at, None for the whole channel. `apart`: other nodes are asked for that
    interest, but of sources whose events are judged here its members get the events that pass `here`, as they are.
    `rated`: it is of one subscription, which has a rate; other nodes are asked for no more than that, for it alone.
    `claimant`: the same for one that asks for a user, not for the node itself."""

    def __init__(
        self,
        interest: Interest | None,
        key: object,
        *,
        zones: frozenset[str] | None = None,
        apart: Apart | None = None,
        rated: Rated | None = None,
        claimant: Any = None,
    ) -> None:
        self.interest, self.key, self.zones, self.rated, self.claimant = interest, key, zones, rated, claimant
        self.own = rated is not None or claimant is not None  # of one subscription: it is asked for by itself
        self.apart = apart is not None or self.own
        self.here = interest if apart is None else apart.here
        self.contextual = self.here is not None and self.here.contextual
        self.members: tuple[Member, ...] = ()  # replaced while every source of the channel stands still
        self.width = 0  # how many of them are subscriptions
        self.fresh = False  # it has just come to the line-ups, and nothing is counted for it yet

    @property
    def makes_marks(self) -> bool:
        """Whether what comes of its interest is either a mark or the event itself."""
        return self.interest is not None and self.interest.whole_at is not None

    @property
    def local(self) -> bool:
        """Whether someone in this node wants its events."""
        return any(member.local for member in self.members)


def meet(heard: frozenset[str], wanted: frozenset[str] | None) -> bool:
    """Whether a source in these zones (none: everywhere) reaches a sink that looks at those (None: at all)."""
    return not heard or wanted is None or not heard.isdisjoint(wanted)


def key_of(interest: Interest | None) -> object:
    """Equal for interests that say the same with the same parameters. What has state is never shared."""
    if interest is None:
        return None
    if interest.stateful:
        return object()
    return interest.fingerprint, repr(sorted(interest.params.items()))


@dataclass(frozen=True, slots=True)
class Route:
    """What to do with an event; immutable."""

    always: tuple[Entry, ...]
    matching: Any  # a Matching, perhaps made Later, or None where there is nothing to match
    alone: tuple[Entry, ...]
    bypass: BypassRoute | None = None  # if all there is to do is to call one function, or to put events on a list
    width: int = 0  # how many subscriptions an event is evaluated for
    sole: Entry | None = None  # the only one there is, if it is no interest that runs alone


EMPTY = Route((), None, ())


class Lineup:
    """The entries of a channel as sources with these facts, in these zones (none: everywhere), see them."""

    def __init__(self, channel: RoutedChannel, facts: Interest | None, zones: frozenset[str] = frozenset()) -> None:
        self.channel, self.facts, self.zones = channel, facts, zones
        self.flows: list[Flow] = []
        self.retired = 0  # events of flows that have ended
        self._retired_direct = 0
        self.matcher = Matcher(channel.type, exact_undecided=EXACT) if channel.type is not None else None
        self._how: dict[Entry, How] = {}
        self._keys: dict[Entry, int] = {}
        self._matched_width = 0  # subscriptions of matched entries
        self.matched_apart = 0  # matched entries that other nodes run in another way
        self.past = Tally()  # of flows that have ended
        self._always: dict[Entry, None] = {}
        self._alone: dict[Entry, None] = {}
        self._gone: dict[Entry, Judged] = {}  # what flows that have ended counted for entries, beside `retired`
        self.route = EMPTY

    @property
    def seen(self) -> int:
        """Events that have come here so far."""
        return self.retired + sum(flow.seen - flow.base for flow in self.flows)

    @property
    def matched(self) -> list[Entry]:
        return list(self._keys)

    @property
    def direct(self) -> int:
        """Those of them that took the fast path (`HandlerBypass`)."""
        return self._retired_direct + sum(flow.direct for flow in self.flows)

    def direct_of(self, readings: Readings) -> int:
        """The same when these were taken."""
        return self._retired_direct + readings.lineup(self).direct

    def how(self, entry: Entry) -> How:
        """How events of these sources are judged for an entry."""
        return self._how[entry]

    def judges(self, entry: Entry) -> How:
        """The same of one that may not be here yet."""
        return self._how.get(entry) or self._judge(entry)

    def consults(self, entry: Entry) -> bool:
        """Whether events of these sources are judged for an entry at all."""
        return self._how.get(entry, "never") != "never"

    def why(self, entry: Entry) -> tuple[str, str]:
        """The same for people: how, and why so."""
        how, why = self._why(entry)
        if not entry.apart:
            return how, why
        comes = "come events and marks" if entry.makes_marks else "comes what bound values ask for"
        return how, f"{why}; of other nodes {comes}"

    def _why(self, entry: Entry) -> tuple[str, str]:
        """As far as sources of this node are concerned."""
        match self._how[entry]:
            case "always" if entry.here is None:
                return "every event", "there is no interest"
            case "always":
                return "every event", "the facts its source states already say so"
            case "never" if entry.zones is not None and not meet(self.zones, entry.zones):
                return "not consulted", f"not in its zones: {', '.join(sorted(entry.zones))}"
            case "never":
                return "not consulted", "contradicts the facts its source states"
            case "matched":
                assert self.matcher is not None
                key = self._keys[entry]
                how, why = self.matcher.explain(key), "matched with all others in one pass"
                if unsplit := self.matcher.unsplit(key):
                    why += f"; for {unsplit:,} events undecided was not told apart from rejected"
                return how, why
        assert entry.here is not None
        program = entry.here.program
        if program.stateful:
            return "native code, alone", "it has state, which belongs to one source"
        if entry.here.contextual:
            return "native code, alone", "it reads the context of its source"
        if program.output is not None:
            return "native code, alone", "it is a transformation"
        if uses_meta(program):
            return "native code, alone", "it looks at the event's source, sequence number or time"
        return "native code, alone", "it may run for long"

    def judged(self, entry: Entry, readings: Readings) -> Judged:
        """What became of all events that have come here, as far as the entry is concerned."""
        how, now = self._how.get(entry, "never"), readings.lineup(self)
        if how == "never":
            return Judged()
        seen, gone = self.retired + now.seen, self._gone.get(entry, Judged())
        evaluated = seen + now.asked.get(entry, 0)
        passed = now.passed.get(entry, 0) + (seen if how == "always" else 0)
        undecided = 0
        faults: dict[Fault, int] = {}
        if how == "matched":
            assert self.matcher is not None
            undecided, faults = self.matcher.counts(self._keys[entry], now.ledgers)
        elif entry in now.unclear:
            undecided, *numbers = now.unclear[entry]
            faults = {fault: n for fault, n in zip(KINDS, numbers, strict=True) if n}
        return Judged(evaluated, passed, undecided, faults) + gone

    def baseline(self, entry: Entry) -> Judged:
        """The same for a member that comes now, while the sources stand still."""
        if not entry.fresh:
            return self.judged(entry, Readings((entry,), still=True))
        seen = self.seen
        return Judged(seen, seen if self._how[entry] == "always" else 0)

    def add_many(self, entries: Iterable[Entry]) -> None:
        matched = []
        for entry in entries:
            self._how[entry] = how = self._judge(entry)
            if how == "matched":
                matched.append(entry)
            elif how == "always":
                self._always[entry] = None
            elif how == "alone":
                self._alone[entry] = None
        if matched:
            assert self.matcher is not None
            keys = self.matcher.add_many([(entry, entry.here) for entry in matched if entry.here is not None])
            self._keys.update(zip(matched, keys, strict=True))
            self.matched_apart += sum(entry.apart for entry in matched)
            for entry, key in zip(matched, keys, strict=True):
                self._matched_width += entry.width
                self.matcher.weigh(key, entry.width)

    def remove(self, entry: Entry) -> None:
        self._gone.pop(entry, None)
        self._always.pop(entry, None)
        self._alone.pop(entry, None)
        if self._how.pop(entry) == "matched":
            assert self.matcher is not None
            self.matcher.remove(self._keys.pop(entry))
            self.matched_apart -= entry.apart

    def _judge(self, entry: Entry) -> How:
        interest = entry.here
        if not meet(self.zones, entry.zones):
            return "never"
        if interest is None:
            return "always"
        if self.matcher is None:  # of bytes nothing can be said: what has an interest in them is what a policy hides
            return "never"
        facts = self.facts
        if facts is not None and not interest.stateful:
            sides = {"a_params": interest.params, "b_params": facts.params}
            if disjoint(interest.normal, facts.normal, **sides):
                return "never"
            if interest.output is None and covers(interest.normal, facts.normal, **sides):
                return "always"
        return "matched" if self.matcher.takes(interest) else "alone"

    def prepare(self) -> None:
        """Do now what `renewed` would else have to do while sources stand still."""
        if self.matcher is not None and self._prompt:
            self.matcher.snapshot()

    @property
    def _prompt(self) -> bool:
        """Whether a publisher here would have to wait for what is made when an event comes. What comes from other nodes
        can wait, and it often does not come before many more interests have."""
        return any(flow.source.local for flow in self.flows)

    def expect(self, source: RoutedSource) -> None:
        """A source is about to come: of this node, it finds everything made."""
        if source.local and isinstance(self.route.matching, Later):
            self.route = replace(self.route, matching=self.route.matching.now)

    def renewed(self) -> Route:
        """The route for the entries as they are now."""
        always, alone = tuple(self._always), tuple(self._alone)
        matching: Matching | Later | None = None
        if self._keys and self.matcher is not None:
            matching = self.matcher.snapshot() if self._prompt else Later(self.matcher)
        bypass = None
        if len(always) == 1 and not alone and matching is None and len(always[0].members) == 1:
            bypass = always[0].members[0].bypass
        elif not always and not alone and 0 < len(self._keys) <= FEW:
            bypass = self._common()
        width = sum(entry.width for entry in (*always, *alone)) + self._matched_width
        sole = next(iter((*always, *self._keys))) if not alone and len(always) + len(self._keys) == 1 else None
        return Route(always, matching, alone, bypass, width, sole)

    def _common(self) -> BypassRoute | None:
        """The fast path of the one member that all matched entries have: to a list, for events that any of them wants.
        What else has to be done with those that an interest chooses is done in Python."""
        members = next(iter(self._keys)).members
        if len(members) != 1 or any(entry.members != members for entry in self._keys):
            return None
        bypass = members[0].bypass
        return bypass if bypass is not None and bypass.remote else None

    def resize(self, entry: Entry, before: int) -> None:
        """The number of an entry's subscriptions has changed."""
        if entry.width != before and self._how[entry] == "matched":
            assert self.matcher is not None
            self._matched_width += entry.width - before
            self.matcher.weigh(self._keys[entry], entry.width)

    def retire(self, flow: Flow) -> None:
        """A source has closed."""
        self.flows.remove(flow)
        self.past.inherit(flow.tally(), flow.fates)
        self.retired += flow.seen - flow.base
        self._retired_direct += flow.direct
        self._keep(flow)

    def hand(self, flow: Flow, other: Lineup) -> None:
        """A source goes on in another line-up, with what it has counted; it stands still meanwhile."""
        self.flows.remove(flow)
        other.flows.append(flow)
        for lineup, sign in (self, 1), (other, -1):
            lineup.retired += sign * (flow.seen - flow.base)
            lineup._retired_direct += sign * flow.direct
        self._keep(flow)
        flow.lineup, flow.ledger = other, other.ledger()
        flow.take(other.route)

    def ledger(self) -> Ledger | None:
        """Where one more flow counts what it matches here."""
        return None if self.matcher is None else self.matcher.ledger()

    def _keep(self, flow: Flow) -> None:
        """What a flow has counted for entries here stays here."""
        for entry in {*flow.passed, *flow.asked, *flow.unclear}:
            undecided, *faults = flow.unclear.pop(entry, _NONE)
            named = {fault: n for fault, n in zip(KINDS, faults, strict=True) if n}
            more = Judged(flow.asked.pop(entry, 0), flow.passed.pop(entry, 0), undecided, named)
            self._gone[entry] = self._gone.get(entry, Judged()) + more
        if self.matcher is not None and flow.ledger is not None:
            self.matcher.absorb(flow.ledger)


class Flow(FlowSlots):
    """One source's events in one channel. Used under the source's lock."""

    __slots__ = (
        "_evaluated",
        "_evaluated_upto",
        "_match",
        "_passed",
        "_remote_since",
        "_runners",
        "_since",
        "_told",
        "_totals",
        "asked",
        "base",
        "channel",
        "fates",
        "ledger",
        "lineup",
        "passed",
        "recalled",
        "route",
        "source",
        "spread",
        "unclear",
    )

    bypass: Any

    def __init__(self, source: RoutedSource, channel: RoutedChannel, lineup: Lineup) -> None:
        self.source, self.channel, self.lineup = source, channel, lineup
        # The number of the last event; and of the last one before this process, if its source is logged.
        self.seen = self.base = source.logged_upto(channel)
        self.spread = self.base  # those of them that came by `accept` or `accept_chunk`
        self._passed = self._evaluated = 0  # over all entries
        # The blocks of entries: see `Reading`.
        self.passed: dict[Entry, int] = {}
        self.asked: dict[Entry, int] = {}
        self.unclear: dict[Entry, list[int]] = {}
        self.ledger = lineup.ledger()
        self.recalled = 0  # events of the past that subscriptions began with: evaluated and passed
        self._evaluated_upto = self.base  # `_evaluated` is up to event `_evaluated_upto`, by routes that are over
        self._totals = new_totals()
        self.fates = Fates()
        self._remote_since: int | None = None  # while the fast path leads to another node: `direct` as it was before
        self.route = EMPTY
        self.take(lineup.route)
        self._runners: dict[Entry, Native] = {}  # what runs alone, with this source's state
        self._since: dict[Entry, int] = {}  # and after which event that state began
        self._told: dict[Entry, Mapping[str, Any]] = {}  # of those that read its context: what they know of it

    def take(self, route: Route) -> None:
        """Another route from here on."""
        self._evaluated += (self.seen - self._evaluated_upto) * self.route.width
        self._evaluated_upto, self._match = self.seen, None
        if self._remote_since is not None:
            self.spread, self._remote_since = self.seen - self._remote_since, None
        closed = self.source.closed or self.source.log is not None  # what is logged takes no fast path
        bypass = None if closed or route.bypass is None else route.bypass.for_flow(self)
        if bypass is not None and bypass.pending is not None:
            self._remote_since = self.seen - self.spread
            if route.matching is not None:
                bypass.judged_by(route.matching, self._totals, self.ledger)
        self.route, self.bypass = route, bypass

    def skip(self, seq: int) -> None:
        """Events up to this one are in the source's log, and went nowhere else: they count as those from before."""
        more = seq - self.seen
        self._evaluated -= more * self.route.width
        self.base, self.seen, self.spread = self.base + more, seq, self.spread + more

    def pass_unheard(self) -> bool:
        """One event that nobody takes: it is counted, and not made. Whether that is so."""
        route = self.route
        if self.bypass is not None or route.always or route.matching is not None or route.alone:
            return False
        self.seen += 1
        self.spread += 1
        return True

    @property
    def direct(self) -> int:
        """Events that took the fast path to a function."""
        return self.seen - self.spread if self._remote_since is None else self._remote_since

    def accept(self, letter: Letter, ready: Ready) -> None:
        """One event to all who want it."""
        self.seen += 1
        self.spread += 1
        route = self.route
        for entry in route.always:
            self._passed += entry.width
            for member in entry.members:
                if (quick := member.quick) is None or not quick(member, letter, 1, ready):
                    member.accept(letter, ready)
        if route.matching is not None:
            match = self._match
            if match is None:
                match = self._match = route.matching.counting_in(self._totals, self.ledger)
            for entry in match(letter.record):
                try:
                    self.passed[entry] += 1
                except KeyError:
                    self.passed[entry] = 1
                self._passed += entry.width
                for member in entry.members:
                    if (quick := member.quick) is None or not quick(member, letter, 1, ready):
                        member.accept(letter, ready)
        for entry in route.alone:
            self._alone(entry, letter, ready)
        if self._remote_since is not None and self.bypass is not None:
            self.bypass.passes_by(letter, ready)

    def _alone(self, entry: Entry, letter: Letter, ready: Ready) -> None:
        """An interest that is not matched with others."""
        result = self._native(entry, letter.seq - 1).run(letter.record, self._meta(letter))
        if result.status is not Status.REJECTED or result.faults:
            self._judge(entry, result)
        if result.passed:
            out = letter if result.output is None else self._made(entry, letter, result.output)
            for member in entry.members:
                member.accept(out, ready)

    def _made(self, entry: Entry, letter: Letter, output: bytes) -> Letter:
        """What an interest has made of an event; of a mark, the event itself if it says so."""
        assert entry.interest is not None
        at = entry.interest.whole_at
        return letter if at is not None and output[at] else letter.derived(output)

    def accept_chunk(self, chunk: Chunk, ready: Ready) -> None:
        """A batch to all who want some of it."""
        n = len(chunk)
        self.seen += n
        self.spread += n
        route = self.route
        for entry in route.always:
            self._passed += entry.width * n
            for member in entry.members:
                member.accept_chunk(chunk, n, ready)
        if route.matching is not None:
            rows, spans = route.matching.spans(chunk.taken(), self._totals, self.ledger)
            passed, by_entry = 0, self.passed
            for entry, start, end in spans:
                some = end - start
                part = chunk if some == n else Rows(chunk, rows, start, end)
                passed += entry.width * some
                by_entry[entry] = by_entry.get(entry, 0) + some
                for member in entry.members:
                    if member.quick is None or not member.quick(member, part, some, ready):
                        member.accept_chunk(part, some, ready)
            self._passed += passed
        for entry in route.alone:
            self._chunk_alone(entry, chunk, ready)

    def _chunk_alone(self, entry: Entry, chunk: Chunk, ready: Ready) -> None:
        """A batch for an interest that is not matched with others: what it passes, or makes, goes on as one."""
        source = self.source
        meta = {"source": source.name, "node": source.node, "seq": pa.array(chunk.seqs), "time": chunk.stamp // 1000}
        native = self._native(entry, int(chunk.seqs[0]) - 1)
        result = native.batch(chunk.taken(), meta=meta if uses_meta(native.program) else None)
        rows = result.rows
        counts = result.counts
        self._count_passed(entry, counts.passed)
        if counts.undecided or counts.faults:
            self._count_unclear(entry, 0, counts.undecided)
            for fault, number in counts.faults.items():
                self._count_unclear(entry, 1 + KINDS.index(fault), number)
        if len(rows) == 0:
            return
        if result.output is None:
            part: Chunk = Rows(chunk, rows, 0, len(rows))
        elif native.program.output is not None and whole_at(native.program.output) is not None:
            self._marks(entry, chunk, result.output, rows, ready)
            return
        else:
            part = chunk.derived(result.output, rows)
        for member in entry.members:
            member.accept_chunk(part, len(rows), ready)

    def _marks(self, entry: Entry, chunk: Chunk, marks: Any, rows: Any, ready: Ready) -> None:
        """What an interest has made of some rows are marks, or say that the rows go themselves, all or some of them."""
        assert entry.interest is not None and entry.interest.output is not None and self.channel.type is not None
        whole = marks.column(WHOLE).to_numpy(zero_copy_only=False)
        if whole.all():
            part: Chunk = Rows(chunk, rows, 0, len(rows))
        elif not whole.any():
            part = chunk.derived(marks, rows)
        else:
            events = iter(self.channel.type.arrow_to_records(chunk.taken().take(pa.array(rows[whole]))))
            made = entry.interest.output.arrow_to_records(marks)
            records = [next(events) if itself else mark for itself, mark in zip(whole.tolist(), made, strict=True)]
            part = Marked(chunk, rows, records, whole.tolist())
        for member in entry.members:
            member.accept_chunk(part, len(rows), ready)

    def _judge(self, entry: Entry, result: Result) -> None:
        if result.passed:
            self._count_passed(entry, 1)
        elif result.status is Status.UNDECIDED:
            self._count_unclear(entry, 0, 1)
        if result.faults:
            for bit, fault in enumerate(KINDS):
                if result.faults & fault:
                    self._count_unclear(entry, 1 + bit, 1)

    def _count_passed(self, entry: Entry, events: int) -> None:
        """Events that an entry has passed; of one that every event passes, more than that."""
        self._passed += entry.width * events
        self.passed[entry] = self.passed.get(entry, 0) + events

    def _count_asked(self, entry: Entry, events: int) -> None:
        """An entry was evaluated for so many events more than came by here."""
        self._evaluated += entry.width * events
        self.asked[entry] = self.asked.get(entry, 0) + events

    def _count_unclear(self, entry: Entry, kind: int, events: int) -> None:
        """Events that an entry that runs alone was undecided about, or (1 and more) that had a fault of that kind."""
        self._totals[kind] += entry.width * events
        self.unclear.setdefault(entry, list(_NONE))[kind] += events

    def reading(self, of: Collection[Entry] | None, *, lasting: bool) -> Reading:
        """What it has counted, of these entries or of all; its source stands still, and (if that is to be lasting) may
        go on afterwards."""
        seen, direct = self.seen - self.base, self.direct
        ledgers = [] if self.ledger is None else [self.ledger.copy() if lasting else self.ledger]
        if of is None:
            unclear = {entry: words.copy() for entry, words in self.unclear.items()}
            return Reading(seen, direct, self.passed.copy(), self.asked.copy(), unclear, ledgers, self.tally())
        passed = {entry: self.passed[entry] for entry in of if entry in self.passed}
        asked = {entry: self.asked[entry] for entry in of if entry in self.asked}
        unclear = {entry: self.unclear[entry].copy() for entry in of if entry in self.unclear}
        return Reading(seen, direct, passed, asked, unclear, ledgers)

    def tally(self) -> Tally:
        """What became of its events; its source stands still."""
        undecided, *faults = self._totals.tolist()
        return Tally(
            published=self.seen - self.base,
            evaluated=self._evaluated + (self.seen - self._evaluated_upto) * self.route.width + self.recalled,
            passed=self._passed + self.direct + self.recalled,  # what takes the fast path passes
            undecided=undecided,
            faults={fault: number for fault, number in zip(KINDS, faults, strict=True) if number},
            fates=self.fates.copy(),
        )

    def reaches(self, record: bytes | None) -> Iterable[BoundedQueue]:
        """The queues that may get this record, or any; those of interests with state are always among them."""
        route = self.route
        if record is None:
            matched = self.lineup.matched
        else:
            matched = route.matching.probe(record) if route.matching is not None else []
        for entry in (*route.always, *matched):
            for member in entry.members:
                yield from member.reaches(self.source, record)
        for entry in route.alone:  # of a transformation the record that comes out is not known
            transforms = entry.here is not None and entry.here.output is not None
            for member in entry.members:
                yield from member.reaches(self.source, None if transforms else record)

    def _native(self, entry: Entry, before: int | None = None) -> Native:
        """What runs an interest here; it is to judge what comes after an event (else what comes next)."""
        found = self._runners.get(entry)
        if found is None:
            assert entry.here is not None
            self._since[entry] = self.source.seq if before is None else before
            found = self._runners[entry] = entry.here.start(self.channel.node.clock)
        if entry.contextual:
            self._tell(entry, found)
        return found

    def _tell(self, entry: Entry, native: Native) -> None:
        """A run of an interest that reads the context of its source learns what that is, if it is another: now, since
        it changes while the source stands still, and with whatever comes next only."""
        context = self.source.context
        if context is not None and self._told.get(entry) is not context.values:
            assert isinstance(entry.here, ContextInterest)
            self._told[entry] = values = context.values
            native.set_params(**entry.here.parameters(context.record, values))

    def snapshot(self, entry: Entry) -> bytes:
        """The state of an interest here, up to the last event of the source, which stands still: another run of it goes
        on from there (`restore`, or `Native.restore` anywhere else)."""
        return self._native(entry).snapshot({self.source.position_key or self.source.id: self.seen})

    def restore(self, entry: Entry, snapshot: bytes) -> int:
        """Have an interest go on with a state that was taken elsewhere; the source stands still. After which of its
        events that is: those that are later are to be judged again, from the log."""
        return self._native(entry).restore(snapshot).get(self.source.position_key or self.source.id, 0)

    def goes_on(self, entry: Entry, native: Native, since: int | None = None) -> None:
        """An interest goes on here with the state that it came to elsewhere, if that is known by all `since` an event;
        the source stands still."""
        self._runners[entry] = native
        if since is not None:
            self._since[entry] = since
        self._told.pop(entry, None)

    def counts_since(self, entry: Entry) -> int | None:
        """The event after which the state of an interest counts here; None if it has judged nothing yet."""
        return self._since.get(entry)

    def _meta(self, letter: Letter) -> EventContext:
        return EventContext(self.source.name, self.source.node, letter.seq, letter.stamp // 1000)

    def forget(self, entry: Entry) -> None:
        for known in (self._runners, self._since, self._told, self.passed, self.asked, self.unclear):
            known.pop(entry, None)
