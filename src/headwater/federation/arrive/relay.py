"""Events that are passed on: taken at one node, with their number, time and record, and published by another source.

Relay         takes them: a subscription that is no sink, but passes on what it gets
RelaySource   publishes them: a source whose events come from elsewhere, and keep their numbers and times
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

from headwater.channel.options.config import Pool
from headwater.channel.queues.mailbox import dispatch_all
from headwater.channel.routing.attachment import Stage
from headwater.channel.routing.letter import Chunk, Letter, Rows
from headwater.channel.routing.route import Entry, Flow, Lineup, Member, Ready, Route
from headwater.channel.subscription import Subscription
from headwater.errors import HeadwaterError
from headwater.federation.arrive.acknowledgement import FOREVER
from headwater.federation.arrive.deduplication import PlacesOfTerm, Verdict
from headwater.federation.arrive.foreign_source import ForeignSource

if TYPE_CHECKING:
    from headwater.channel.channel import Channel
    from headwater.channel.dispatch.dispatcher import Dispatcher
    from headwater.channel.node import Node
    from headwater.channel.options.subscribe import Asked, Options
    from headwater.channel.queues.mailbox import Item
    from headwater.channel.routing.attachment import Attachment
    from headwater.channel.routing.contract import RoutedChannel
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.federation.arrive.paths import Way

ROOM_SECONDS = 10.0  # for which an event waits for room, after which it goes in all the same
Routes = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayThreads(Pool):
    """Threads that pass events on, and do nothing else: where one waits for a slow link, others are not held up."""

    maximum: int = 64


# ── out ──


class RelayFlow(Flow):
    """Its events in a channel. What this node's own sinks had by another way already is only for other nodes."""

    __slots__ = ()

    source: RelaySource

    def take(self, route: Route) -> None:
        super().take(route if route.bypass is None else replace(route, bypass=None))  # there is no fast path

    def accept(self, letter: Letter, ready: Ready) -> None:
        """As `Flow.accept`; each interest takes what it has not had by another gateway, so each is asked by itself."""
        self.seen += 1
        self.spread += 1
        route = self.route
        for entry in route.always:
            self._passed += entry.width
            self._pass(entry, letter, ready)
        if route.matching is not None:
            match = self._match
            if match is None:
                match = self._match = route.matching.counting_in(self._totals, self.ledger)
            for entry in match(letter.record):
                self._count_passed(entry, 1)
                self._pass(entry, letter, ready)
        for entry in route.alone:
            result = self._native(entry).run(letter.record, self._meta(letter))
            self._judge(entry, result)
            if result.passed:
                out = letter if result.output is None else self._made(entry, letter, result.output)
                with self.source.known(entry, letter.seq, ready):
                    self._pass(entry, out, ready)

    def _pass(self, entry: Entry, letter: Letter, ready: Ready) -> None:
        for member in self._members(entry, letter, 1):
            member.accept(letter, ready)

    def _members(self, entry: Entry, what: Letter | Chunk, events: int) -> Iterable[Member]:
        """Those to whom it goes now. Of what comes by several ways, only other nodes get everything: they choose for
        themselves."""
        verdict = self.source.verdict
        if verdict is Verdict.TAKE:
            return entry.members
        self.passed[entry] = self.passed.get(entry, 0) - events  # as far as this node's own sinks are concerned
        if verdict is Verdict.HOLD:
            self.source.aside += [(member, what) for member in entry.members if not _onward(member)]
        return [member for member in entry.members if _onward(member)]

    def accept_chunk(self, chunk: Chunk, ready: Ready) -> None:
        """As `Flow.accept_chunk`, with the same care. What runs alone gets records: its verdict is remembered for each
        event."""
        n = len(chunk)
        self.seen += n
        self.spread += n
        route = self.route
        for entry in route.always:
            self._passed += entry.width * n
            self._pass_chunk(entry, chunk, ready)
        if route.matching is not None:
            rows, spans = route.matching.spans(chunk.taken(), self._totals, self.ledger)
            for entry, start, end in spans:
                self._count_passed(entry, end - start)
                self._pass_chunk(entry, Rows(chunk, rows, start, end), ready)
        type = self.channel.type
        if route.alone and type is not None:
            letters = list(chunk.letters(type.arrow_to_records(chunk.taken())))
            for entry in route.alone:
                native = self._native(entry)
                for letter in letters:
                    result = native.run(letter.record, self._meta(letter))
                    self._judge(entry, result)
                    if result.passed:
                        out = letter if result.output is None else self._made(entry, letter, result.output)
                        with self.source.known(entry, letter.seq, ready):
                            self._pass(entry, out, ready)

    def _pass_chunk(self, entry: Entry, chunk: Chunk, ready: Ready) -> None:
        for member in self._members(entry, chunk, len(chunk)):
            member.accept_chunk(chunk, len(chunk), ready)


def _onward(member: Member) -> bool:
    return not member.local or isinstance(member, Stage)


class Promise(Protocol):
    """What the origin of a source has promised, and was passed on."""

    def said(self) -> int | None: ...
    def is_away(self) -> bool: ...
    def come_to(self) -> tuple[int, int] | None: ...


class RelaySource(ForeignSource):
    """A source at the node that passes on what is published elsewhere. With a `promise`, time has come as far as that
    says, since its events have the times of their origin; else as at any source."""

    def __init__(
        self,
        channel: Channel,
        name: str,
        *,
        origin: str,
        path: tuple[str, ...],
        zones: frozenset[str] = frozenset(),
        priority: int = 0,
        filters: Iterable[str] = (),
        way: Callable[[RelaySource], Way | PlacesOfTerm] | None = None,
        tag: Callable[[Entry], int | None] = lambda entry: None,
        plan: Any = None,
        promise: Promise | None = None,
    ) -> None:
        self.last = 0
        self._promise, self.relays = promise, promise is not None
        self.verdict = Verdict.TAKE  # on the event that goes through just now, for the sinks of this node
        self.aside: list[tuple[Any, Letter | Chunk]] = []  # and for whom it is held
        super().__init__(
            channel,
            name,
            hint="it passes on what is published elsewhere; make a source of your own",
            origin=origin,
            path=path,
            filters=filters,
            priority=priority,
            zones=zones,
        )
        self._plan, self._tag = plan, tag
        if way is not None:
            self._come_by(way)
        self.passed = 0  # events that were passed on

    def flow(self, channel: RoutedChannel, lineup: Lineup) -> Flow:
        return RelayFlow(self, channel, lineup)

    @property
    def seq(self) -> int:
        """The number of the last event that was passed on, in its own source."""
        return self.last

    @property
    def type(self) -> Any:
        return self.channel.type

    @property
    def said(self) -> int | None:  # type: ignore[override]
        """How far its origin has come, and all of that has been passed on."""
        return None if self._promise is None else self._promise.said()

    @property
    def promise(self) -> int | None:  # type: ignore[override]
        """The same; an origin that has vanished holds nobody back who is content with what comes."""
        if self._promise is None:
            return None
        return FOREVER if self._promise.is_away() else self._promise.said()

    def come_to(self) -> tuple[int, int] | None:
        """How far its origin has come with the times of its matches."""
        return None if self._promise is None else self._promise.come_to()

    def advertise(self, key: str) -> None:
        """Enter it in its channel, under a name that no other source has there."""
        self.key = key
        self.id = f"{self.channel.name}/{key}"
        self.channel.node._wiring.advertise(self)

    def relay(self, letter: Letter, *, seq: int | None = None) -> None:
        """Publish one event with its own number (or this one), time and record."""
        record, event = letter.record, letter.event
        if self._plan is not None:
            record, event = self._plan.convert(bytes(record)), None
        number = letter.seq if seq is None else seq
        if self._full:
            self._wait_for_room(record)
        ready: Ready = []
        with self.lock, self._turn:
            if self.closed and not self.channel.node._draining:
                return
            self.last = number
            self.passed += 1
            made = Letter(event, record, self, number, letter.stamp, perf_counter_ns(), letter.priority)
            self.verdict = Verdict.TAKE if self.way_in is None else self.way_in.offer(number, ready)
            self._flow.accept(made, ready)
            self._hold([number], 0)
        dispatch_all(list(dict.fromkeys(ready)))

    def relay_chunk(self, chunk: Chunk) -> None:
        """Publish rows, each with its own number."""
        batch, seqs = chunk.taken(), chunk.seqs
        if self._plan is not None:
            batch = self._plan.convert_batch(batch)
        if self._full:
            self._wait_for_room(None)
        ready: Ready = []
        with self.lock, self._turn:
            if self.closed and not self.channel.node._draining:
                return
            self.last = int(seqs[-1])
            self.passed += len(seqs)
            whole = Chunk(batch, self, 0, chunk.stamp, perf_counter_ns(), chunk.priority)
            whole._seqs = seqs
            for start, end, verdict in self._stretches(seqs.tolist(), ready):
                self.verdict = verdict
                part = whole if end - start == len(seqs) else whole.part(start, end)
                self._flow.accept_chunk(part, ready)
                self._hold(seqs[start:end].tolist(), 0)
        dispatch_all(list(dict.fromkeys(ready)))

    def _stretches(self, seqs: list[int], ready: Ready) -> Iterator[tuple[int, int, Verdict]]:
        """Rows that are new here, and rows that are not, by turns."""
        if self.way_in is None:
            yield 0, len(seqs), Verdict.TAKE
            return
        verdict, rows = self.way_in.offer_rows(seqs, ready)
        if verdict is not Verdict.TAKE or len(rows) == len(seqs):
            yield 0, len(seqs), verdict
            return
        taken, start = set(rows), 0
        for at in range(1, len(seqs) + 1):
            if at == len(seqs) or (at in taken) != (start in taken):
                yield start, at, Verdict.TAKE if start in taken else Verdict.DROP
                start = at

    @contextmanager
    def known(self, entry: Entry, seq: int, ready: Ready) -> Iterator[None]:
        """While a result of an interest that runs for itself is handed on: results are a stream of their own."""
        tag = self._tag(entry)
        if self.way_in is None or tag is None:
            yield
            return
        before = self.verdict, self.aside
        self.verdict, self.aside = self.way_in.offer(seq, ready, tag), []
        try:
            yield
            self._hold([seq], tag)
        finally:
            self.verdict, self.aside = before

    def _hold(self, seqs: list[int], tag: int) -> None:
        """What sinks of this node are to get should the way end by which they get the others."""
        if self.aside and self.way_in is not None:
            aside, self.aside = self.aside, []
            self.way_in.hold(seqs[-1], tag, len(seqs), partial(self._late, aside, seqs, tag))

    def _late(
        self, aside: list[tuple[Any, Letter | Chunk]], seqs: list[int], tag: int, after: int, ready: Ready
    ) -> None:
        """What was held is next."""
        assert self.way_in is not None
        new = {seq for seq in seqs if seq > after and self.way_in.new(seq, tag)}
        for member, what in aside:
            if member.subscription is not None and member.subscription.cancelled:
                continue
            if isinstance(what, Letter):
                if what.seq in new:
                    member.withheld -= 1
                    member.accept(what, ready)
                continue
            rows = [row for row, seq in enumerate(what.seqs.tolist()) if seq in new]
            if rows:
                some = what if len(rows) == len(what) else what.derived(what.taken().take(rows), rows)
                member.withheld -= len(some)
                member.accept_chunk(some, len(some), ready)

    def _wait_for_room(self, record: bytes | None) -> None:
        """Until whoever wants this has room for it. Not for ever: two gateways that wait for each other would."""
        end = monotonic() + ROOM_SECONDS
        while (box := self.full(record)) is not None and monotonic() < end and not self.channel.node.closed:
            if box.inline:
                box.dispatch()
            box.wait(lambda it=box: not it.is_full, 0.1)


# ── in ──


class Relay(Subscription):
    """Takes events of a channel to pass them on: `to` gives the source that publishes an event's like, or None.

    `routes` are the federations that lie behind it, each way from the next to where someone wants the events; () if it
    wants them as any sink does. `timed`: someone there wants to know how far time has come at the sources."""

    _calm = False  # not everything that comes is for it

    def __init__(
        self,
        node: Node,
        name: str,
        asked: list[Asked],
        options: Options,
        dispatcher: Dispatcher | None,
        to: Callable[[Source], RelaySource | None],
        barred: Callable[[Source], bool],
        routes: Routes = (),
        timed: bool = False,
    ) -> None:
        super().__init__(node, name, asked, options, dispatcher)
        self._routes, self._promising = routes, timed
        self._to, self._barred = to, barred

    def _arrive(self, attachment: Attachment, letter: Letter, ready: Ready) -> None:
        if self._barred(letter.source):
            attachment.withheld += 1
        else:
            super()._arrive(attachment, letter, ready)

    def _arrive_chunk(self, attachment: Attachment, chunk: Chunk, ready: Ready) -> None:
        if self._barred(chunk.source):
            attachment.withheld += len(chunk)
        else:
            super()._arrive_chunk(attachment, chunk, ready)

    def _deliver(self, item: Item) -> None:
        letter = item[1]
        self._handling = letter
        try:
            source = self._to(letter.source)
            if source is None:
                self._leave_out(item, item[2])
                return
            if isinstance(letter, Chunk):
                source.relay_chunk(letter)
            else:
                source.relay(letter)
            self._delivered += item[2]
        except HeadwaterError as error:
            self._handler_failed(error, letter)
        finally:
            self._handling = None

    def holds(self, of: Callable[[Source], bool]) -> bool:
        """Whether it may have something of a source that is not passed on yet."""
        if self._mailbox.idle and not self._mailbox.items:
            return False
        handling = self._handling
        return handling is None or of(handling.source) or any(of(item[1].source) for item in self._mailbox.contents())


__all__ = ["Relay", "RelaySource", "RelayThreads", "Routes"]
