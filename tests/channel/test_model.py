"""A node against a model of it: whatever one does with it, each subscription gets exactly what the model says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater import Channel, Event, Node, Queue, Source, State, Subscription, event_type, i64
from tests.effort import examples

PLACES = ("hall", "yard", "attic")


class Reading(Event):
    n: i64  # every event has another
    place: str
    level: i64 | None = None


TYPE = event_type(Reading)


def every_second(e: Reading, *, state: State = State(seen=0)) -> bool:
    state.seen = state.seen + 1
    return state.seen % 2 == 0


def level_grew(e: Reading, *, state: State = State(last=-1000)) -> bool:
    before = state.last
    if e.level is not None:
        state.last = e.level
    return e.level > before


# ── what interests mean ──


@dataclass(frozen=True)
class Wish:
    """An interest, and what the model thinks of an event: true, false, or None for undecided."""

    where: Any
    judge: Callable[[Reading, dict[str, int]], bool | None]
    place: str | None = None  # if all it can ever pass is of this place


def _above(limit: int) -> Callable[[Reading, dict[str, int]], bool | None]:
    return lambda event, state: None if event.level is None else event.level > limit


def _both(a: bool | None, b: bool | None) -> bool | None:
    return False if a is False or b is False else None if a is None or b is None else True


def _either(a: bool | None, b: bool | None) -> bool | None:
    return True if a is True or b is True else None if a is None or b is None else False


def _second(event: Reading, state: dict[str, int]) -> bool:
    state["seen"] = state.get("seen", 0) + 1
    return state["seen"] % 2 == 0


def _grew(event: Reading, state: dict[str, int]) -> bool | None:
    before = state.get("last", -1000)
    if event.level is None:
        return None
    state["last"] = event.level
    return event.level > before


def _of(place: str) -> Wish:
    return Wish(f"place == '{place}'", lambda event, state: event.place == place, place)


STATELESS: st.SearchStrategy[Wish] = st.one_of(
    st.sampled_from(PLACES).map(_of),
    st.integers(-3, 3).map(lambda limit: Wish(f"level > {limit}", _above(limit))),
    st.tuples(st.integers(-3, 3), st.sampled_from(PLACES)).map(
        lambda it: Wish(
            f"level > {it[0]} and place == '{it[1]}'",
            lambda event, state: _both(_above(it[0])(event, state), event.place == it[1]),
            it[1],
        )
    ),
    st.tuples(st.integers(-3, 3), st.sampled_from(PLACES)).map(
        lambda it: Wish(
            f"level > {it[0]} or place == '{it[1]}'",
            lambda event, state: _either(_above(it[0])(event, state), event.place == it[1]),
        )
    ),
    st.just(Wish("level is null", lambda event, state: event.level is None)),
    st.just(Wish("n % 3 == 1", lambda event, state: event.n % 3 == 1)),
)
EVERYTHING = Wish(None, lambda event, state: True)
WISHES = st.one_of(
    STATELESS,
    st.just(EVERYTHING),
    st.sampled_from([Wish(every_second, _second), Wish(level_grew, _grew)]),
)


# ── the model ──


@dataclass(eq=False)
class ModelChannel:
    real: Channel
    parent: ModelChannel | None = None
    wish: Wish = EVERYTHING
    derived: list[ModelChannel] = field(default_factory=list)
    closed: bool = False


@dataclass(eq=False)
class ModelSource:
    real: Source
    channel: ModelChannel
    facts: str | None
    seq: int = 0
    closed: bool = False


@dataclass(eq=False)
class ModelSubscription:
    real: Subscription
    channel: ModelChannel
    wish: Wish
    queue: Queue
    pulls: bool
    got: list[int]  # by the handler, or pulled
    expected: list[int] = field(default_factory=list)
    waiting: deque[int] = field(default_factory=deque)
    states: dict[ModelSource, dict[str, int]] = field(default_factory=dict)
    paused: bool = False
    open: bool = True
    evaluated: int = 0
    passed: int = 0
    rejected: int = 0
    undecided: int = 0
    dropped: int = 0

    def judge(self, source: ModelSource, event: Reading) -> None:
        if source.facts is not None and self.wish.place is not None and self.wish.place != source.facts:
            return  # it can never match there and is not consulted
        self.evaluated += 1
        answer = self.wish.judge(event, self.states.setdefault(source, {}))
        self.passed += answer is True
        self.rejected += answer is False
        self.undecided += answer is None
        if answer is True:
            self.take(event.n)

    def take(self, number: int) -> None:
        if len(self.waiting) == self.queue.limit:
            self.dropped += 1
            if self.queue.policy != "drop_oldest":
                return
            self.waiting.popleft()
        self.waiting.append(number)

    def hand_over(self) -> None:
        if not self.paused and not self.pulls:
            self.expected.extend(self.waiting)
            self.waiting.clear()


Given = tuple[str, int | None]
GIVEN: st.SearchStrategy[Given] = st.tuples(st.sampled_from(PLACES), st.none() | st.integers(-4, 4))
PICK = st.integers(0, 11)


def _one(things: list[Any], pick: int) -> Any:
    return things[pick % len(things)]


class Service(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = Node()
        self.channels = [ModelChannel(self.node.channel("c0", Reading))]
        self.named = 1
        self.sources = [
            ModelSource(self.channels[0].real.source(), self.channels[0], None),
            ModelSource(self.channels[0].real.source(facts={"place": "hall"}), self.channels[0], "hall"),
        ]
        self.subscriptions: list[ModelSubscription] = []
        self.number = 0

    def teardown(self) -> None:
        self.node.close()
        for it in self.subscriptions:
            if it.pulls:
                assert [event.n for event in it.real] == list(it.waiting)

    @property
    def open_channels(self) -> int:
        return sum(not it.closed for it in self.channels)

    # ── choosing: a number stands for one of those there are ──

    def channel(self, pick: int) -> ModelChannel:
        return _one([it for it in self.channels if not it.closed], pick)

    def subscription(self, pick: int) -> ModelSubscription:
        return _one([it for it in self.subscriptions if it.open], pick)

    def source(self, pick: int) -> ModelSource:
        return _one([it for it in self.sources if not it.closed], pick)

    def event(self, source: ModelSource, given: Given) -> Reading:
        self.number += 1
        return Reading(self.number, source.facts or given[0], given[1])

    def published(self, source: ModelSource, events: list[Reading], *, together: bool = False) -> None:
        source.seq += len(events)
        assert source.real.seq == source.seq
        for event in events:
            self.flows(source, source.channel, event)
            if not together:
                self.deliver()
        self.deliver()

    def deliver(self) -> None:
        for it in self.subscriptions:
            it.hand_over()

    def flows(self, source: ModelSource, channel: ModelChannel, event: Reading) -> None:
        for it in self.subscriptions:
            if it.open and it.channel is channel:
                it.judge(source, event)
        for derived in channel.derived:
            if derived.wish.judge(event, {}) is True:
                self.flows(source, derived, event)

    # ── channels and sources ──

    @precondition(lambda self: self.open_channels < 4)
    @rule()
    def declare(self) -> None:
        self.channels.append(ModelChannel(self.node.channel(f"c{self.named}", Reading)))
        self.named += 1

    @precondition(lambda self: 0 < self.open_channels < 5)
    @rule(pick=PICK, wish=STATELESS)
    def derive(self, pick: int, wish: Wish) -> None:
        parent = self.channel(pick)
        made = ModelChannel(parent.real.derive(f"c{self.named}", wish.where), parent, wish)
        parent.derived.append(made)
        self.channels.append(made)
        self.named += 1

    @precondition(lambda self: self.open_channels > 2)
    @rule(pick=PICK)
    def close_channel(self, pick: int) -> None:
        self._close(channel := self.channel(pick))
        channel.real.close()

    def _close(self, channel: ModelChannel) -> None:
        for derived in list(channel.derived):
            self._close(derived)
        channel.closed = True
        if channel.parent is not None:
            channel.parent.derived.remove(channel)
        for source in self.sources:
            source.closed |= source.channel is channel
        for it in self.subscriptions:
            if it.open and it.channel is channel:
                self._end(it, drops=it.paused)

    @precondition(lambda self: self.open_channels and sum(not it.closed for it in self.sources) < 5)
    @rule(pick=PICK, facts=st.none() | st.sampled_from(PLACES))
    def advertise(self, pick: int, facts: str | None) -> None:
        channel = self.channel(pick)
        stated = None if facts is None else {"place": facts}
        self.sources.append(ModelSource(channel.real.source(facts=stated), channel, facts))

    @precondition(lambda self: any(not it.closed for it in self.sources))
    @rule(pick=PICK)
    def close_source(self, pick: int) -> None:
        source = self.source(pick)
        source.real.close()
        source.closed = True

    # ── publishing ──

    @precondition(lambda self: any(not it.closed for it in self.sources))
    @rule(pick=PICK, given=GIVEN, how=st.sampled_from(["instance", "dict", "fields"]))
    def publish(self, pick: int, given: Given, how: str) -> None:
        source = self.source(pick)
        event = self.event(source, given)
        fields = {"n": event.n, "place": event.place, "level": event.level}
        if how == "instance":
            seq = source.real.publish(event)
        elif how == "dict":
            seq = source.real.publish(fields)
        else:
            seq = source.real.publish(**fields)
        assert seq == source.seq + 1
        self.published(source, [event])

    @precondition(lambda self: any(not it.closed for it in self.sources))
    @rule(pick=PICK, given=st.lists(GIVEN, max_size=12), arrow=st.booleans())
    def publish_many(self, pick: int, given: list[Given], arrow: bool) -> None:
        source = self.source(pick)
        events = [self.event(source, each) for each in given]
        assert source.real.publish_many(TYPE.to_arrow(events) if arrow else events) == source.seq + len(given)
        self.published(source, events, together=arrow)  # a batch enters a queue as a whole

    # ── subscribing ──

    @precondition(lambda self: self.open_channels and sum(it.open for it in self.subscriptions) < 8)
    @rule(
        pick=PICK,
        wish=WISHES,
        pulls=st.booleans(),
        limit=st.integers(1, 8),
        policy=st.sampled_from(["drop_oldest", "drop_newest"]),
    )
    def subscribe(self, pick: int, wish: Wish, pulls: bool, limit: int, policy: Any) -> None:
        channel, got = self.channel(pick), list[int]()
        queue = Queue(limit=limit, policy=policy)
        handler = None if pulls else lambda event: got.append(event.n)
        made = channel.real.subscribe(handler, wish.where, queue=queue)
        self.subscriptions.append(ModelSubscription(made, channel, wish, queue, pulls, got))

    @precondition(lambda self: any(it.open for it in self.subscriptions))
    @rule(pick=PICK, wish=WISHES)
    def change(self, pick: int, wish: Wish) -> None:
        it = self.subscription(pick)
        points, epoch = it.real.change(where=wish.where), it.real.epoch
        it.wish = wish
        it.states.clear()
        assert epoch == it.real.report().epoch
        for source in self.sources:
            if source.real.id in points:
                assert points[source.real.id] == source.seq

    @precondition(lambda self: any(it.open for it in self.subscriptions))
    @rule(pick=PICK)
    def pause(self, pick: int) -> None:
        it = self.subscription(pick)
        it.real.pause()
        it.paused = True

    @precondition(lambda self: any(it.paused and it.open for it in self.subscriptions))
    @rule(pick=PICK)
    def resume(self, pick: int) -> None:
        it = _one([it for it in self.subscriptions if it.paused and it.open], pick)
        it.real.resume()
        it.paused = False
        it.hand_over()

    @precondition(lambda self: any(it.open for it in self.subscriptions))
    @rule(pick=PICK, drain=st.booleans())
    def cancel(self, pick: int, drain: bool) -> None:
        it = self.subscription(pick)
        it.real.cancel(drain=drain)
        self._end(it, drops=not drain or it.paused)

    def _end(self, it: ModelSubscription, *, drops: bool) -> None:
        it.open = False
        if drops and not it.pulls:
            it.dropped += len(it.waiting)
            it.waiting.clear()

    @precondition(lambda self: any(it.pulls and it.open for it in self.subscriptions))
    @rule(pick=PICK, count=st.integers(1, 5), rows=st.booleans())
    def pull(self, pick: int, count: int, rows: bool) -> None:
        it = _one([it for it in self.subscriptions if it.pulls and it.open], pick)
        expected = [] if it.paused else [it.waiting.popleft() for _ in range(min(count, len(it.waiting)))]
        it.expected += expected
        if rows:
            found = it.real.get_batch(count)
            got = [] if found is None else found.column("n").to_pylist()
        else:
            events = [it.real.poll() for _ in range(count)]
            got = [event.n for event in events if event is not None]
        assert got == expected
        it.got += got

    # ── what holds at all times ──

    @invariant()
    def as_the_model_says(self) -> None:
        for it in self.subscriptions:
            assert it.got == it.expected
            counts = it.real.counts
            assert counts.evaluated == it.evaluated
            assert counts.passed == it.passed
            assert counts.rejected == it.rejected
            assert counts.undecided == it.undecided
            assert counts.delivered == len(it.expected)
            assert counts.dropped == it.dropped
            assert counts.queued == len(it.waiting)
            assert counts.passed == counts.delivered + counts.dropped + counts.queued
            assert it.real.state == ("closed" if not it.open else "paused" if it.paused else "open")


Service.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestService = Service.TestCase
