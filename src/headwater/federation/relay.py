"""Events that are passed on: taken at one node, with their number, time and record, and published by another source.

Relay         takes them: a subscription that is no sink, but passes on what it gets
RelaySource   publishes them: a source whose events come from elsewhere, and keep their numbers and times
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Any

from headwater.channel.attachment import Stage
from headwater.channel.config import Pool
from headwater.channel.letter import Chunk, Letter, Rows
from headwater.channel.mailbox import go_all
from headwater.channel.route import Entry, Flow, Lineup, Member, Ready, Route
from headwater.channel.source import Source
from headwater.channel.subscription import Subscription
from headwater.errors import ClosedError, EncodeError, HeadwaterError
from headwater.federation.seen import PlacesOfTerm, Seen, node_of

if TYPE_CHECKING:
    from headwater.channel.asking import Asked, Options
    from headwater.channel.attachment import Attachment
    from headwater.channel.channel import Channel
    from headwater.channel.dispatch import Dispatcher
    from headwater.channel.mailbox import Item
    from headwater.channel.node import Node

PATIENCE = 10.0  # seconds that an event waits for room, after which it goes in all the same
Routes = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayThreads(Pool):
    """Threads that pass events on, and do nothing else: where one waits for a slow link, others are not held up."""

    maximum: int = 64


# ── out ──


class _NoIntake:
    type = None
    plan = None

    def encode(self, event: Any, fields: dict[str, Any] | None = None) -> tuple[bytes, Any]:
        raise EncodeError("", "this source passes on what others publish; publish there")

    def batch(self, events: Any) -> Any:
        raise EncodeError("", "this source passes on what others publish; publish there")


class RelayFlow(Flow):
    """Its events in a channel. What this node's own sinks had by another way already is only for other nodes."""

    __slots__ = ()

    source: RelaySource

    def take(self, route: Route) -> None:
        super().take(route if route.lone is None else replace(route, lone=None))  # there is no short way

    def accept(self, letter: Letter, ready: Ready) -> None:
        self.seen += 1
        self.spread += 1
        route = self.route
        for entry in route.always:
            self._pass(entry, letter, ready)
        if route.matching is not None:
            match = self._match
            if match is None:
                match = self._match = route.matching.counting_in(self._totals)
            for entry in match(letter.record):
                self._pass(entry, letter, ready)
        for entry in route.alone:
            result = self._native(entry).run(letter.record, self._meta(letter))
            self._judge(entry, result)
            if result.passed:
                out = letter if result.output is None else letter.derived(result.output)
                with self.source.known(entry, letter.seq):
                    self._pass(entry, out, ready, counted=False)

    def _pass(self, entry: Entry, letter: Letter, ready: Ready, *, counted: bool = True) -> None:
        if counted:
            self._passed += entry.width
        for member in self._members(entry):
            member.accept(letter, ready)

    def _members(self, entry: Entry) -> Iterable[Member]:
        if not self.source.again:
            return entry.members
        return [member for member in entry.members if not member.local or isinstance(member, Stage)]

    def accept_chunk(self, chunk: Chunk, ready: Ready) -> None:
        n = len(chunk)
        self.seen += n
        self.spread += n
        route = self.route
        for entry in route.always:
            self._pass_chunk(entry, chunk, ready)
        if route.matching is not None:
            rows, spans = route.matching.spans(chunk.taken(), self._totals)
            for entry, start, end in spans:
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
                        out = letter if result.output is None else letter.derived(result.output)
                        with self.source.known(entry, letter.seq):
                            self._pass(entry, out, ready, counted=False)

    def _pass_chunk(self, entry: Entry, chunk: Chunk, ready: Ready) -> None:
        self._passed += entry.width * len(chunk)
        for member in self._members(entry):
            member.accept_chunk(chunk, len(chunk), ready)


class RelaySource(Source):
    """A source at the node that passes on; `origin` tells the source where its events were published, in all
    federations, and `path` the federations that they have come through."""

    def __init__(
        self,
        channel: Channel,
        name: str,
        *,
        origin: str,
        path: tuple[str, ...],
        zones: frozenset[str] = frozenset(),
        priority: int = 0,
        seen: Seen | PlacesOfTerm | None = None,
        tag: Callable[[Entry], int | None] = lambda entry: None,
        plan: Any = None,
    ) -> None:
        intake: Any = _NoIntake()
        self.last = 0
        self.again = False  # the event that goes through just now has come here by another way
        super().__init__(channel, name, intake, facts=None, priority=priority, ask=None, zones=zones)
        self.origin, self.path = origin, path
        self.node = node_of(origin)
        self._seen, self._plan, self._tag = seen, plan, tag
        self._turn: Any = nullcontext() if seen is None else seen.turn
        self.passed = 0  # events that were passed on

    def flow(self, channel: Channel, lineup: Lineup) -> Flow:
        return RelayFlow(self, channel, lineup)

    def start(self) -> None:
        self._flow = self.flows[self.channel]
        self._slow = self.publish = self._refuse

    def _refuse(self, event: Any = None, /, **fields: Any) -> int:
        raise ClosedError(f"{self}: it passes on what is published elsewhere; make a source of your own")

    def publish_many(self, events: Any) -> int:
        return self._refuse()

    @property
    def seq(self) -> int:
        """The number of the last event that was passed on, in its own source."""
        return self.last

    @property
    def type(self) -> Any:
        return self.channel.type

    def advertise(self, key: str) -> None:
        """Enter it in its channel, under a name that no other source has there."""
        self.key = key
        self.id = f"{self.channel.name}/{key}"
        self.channel.node.wiring.advertise(self)

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
            if self.closed and not self.channel.node.draining:
                return
            self.last = number
            self.passed += 1
            self.again = self._seen is not None and not self._seen.first_time(number)
            made = Letter(event, record, self, number, letter.stamp, perf_counter_ns(), letter.priority)
            self._flow.accept(made, ready)
        go_all(list(dict.fromkeys(ready)))

    def relay_chunk(self, chunk: Chunk) -> None:
        """Publish rows, each with its own number."""
        batch, seqs = chunk.taken(), chunk.seqs
        if self._plan is not None:
            batch = self._plan.convert_batch(batch)
        if self._full:
            self._wait_for_room(None)
        ready: Ready = []
        with self.lock, self._turn:
            if self.closed and not self.channel.node.draining:
                return
            self.last = int(seqs[-1])
            self.passed += len(seqs)
            whole = Chunk(batch, self, 0, chunk.stamp, perf_counter_ns(), chunk.priority)
            whole._seqs = seqs
            for start, end, again in self._stretches(seqs.tolist()):
                self.again = again
                part = whole if end - start == len(seqs) else whole.part(start, end)
                self._flow.accept_chunk(part, ready)
        go_all(list(dict.fromkeys(ready)))

    def _stretches(self, seqs: list[int]) -> Iterator[tuple[int, int, bool]]:
        """Rows that are new here, and rows that are not, by turns."""
        if self._seen is None:
            yield 0, len(seqs), False
            return
        again = [not self._seen.first_time(seq) for seq in seqs]
        start = 0
        for at in range(1, len(seqs) + 1):
            if at == len(seqs) or again[at] != again[start]:
                yield start, at, again[start]
                start = at

    @contextmanager
    def known(self, entry: Entry, seq: int) -> Iterator[None]:
        """While a result of an interest that runs for itself is handed on: whether it has come by another way."""
        before, tag = self.again, self._tag(entry)
        self.again = self._seen is not None and tag is not None and not self._seen.first_time(seq, tag)
        try:
            yield
        finally:
            self.again = before

    def _wait_for_room(self, record: bytes | None) -> None:
        """Until whoever wants this has room for it. Not for ever: two gateways that wait for each other would."""
        end = monotonic() + PATIENCE
        while (box := self._blocked_by(record)) is not None and monotonic() < end:
            if box.inline:
                box.go()
            box.wait(lambda it=box: not it.is_full, 0.1)

    def _blocked_by(self, record: bytes | None) -> Any:
        with self.lock:
            if self.closed or self.channel.node.closed:
                return None
            return next((box for box in self._flow.reaches(record) if box.is_full), None)


# ── in ──


class Relay(Subscription):
    """Takes events of a channel to pass them on: `to` gives the source that publishes an event's like, or None.

    `routes` are the federations that lie behind it, each way from the next to where someone wants the events; () if it
    wants them as any sink does."""

    calm = False  # not everything that comes is for it

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
    ) -> None:
        super().__init__(node, name, asked, options, dispatcher)
        self.routes = routes
        self._to, self._barred = to, barred

    def accept(self, attachment: Attachment, letter: Letter, ready: Ready) -> None:
        if not self._barred(letter.source):
            super().accept(attachment, letter, ready)

    def accept_chunk(self, attachment: Attachment, chunk: Chunk, ready: Ready) -> None:
        if not self._barred(chunk.source):
            super().accept_chunk(attachment, chunk, ready)

    def deliver(self, item: Item) -> None:
        letter = item[1]
        self.handling = letter
        try:
            source = self._to(letter.source)
            if source is None:
                self.skip(item, item[2])
                return
            if isinstance(letter, Chunk):
                source.relay_chunk(letter)
            else:
                source.relay(letter)
            self._delivered += item[2]
        except HeadwaterError as error:
            self.handler_failed(error, letter)
        finally:
            self.handling = None

    def holds(self, of: Callable[[Source], bool]) -> bool:
        """Whether it may have something of a source that is not passed on yet."""
        if self.mailbox.idle and not self.mailbox.items:
            return False
        handling = self.handling
        return handling is None or of(handling.source) or any(of(item[1].source) for item in self.mailbox.contents())


__all__ = ["Relay", "RelaySource", "RelayThreads", "Routes"]
