"""To one other node the fast path is machine code, also where interests choose: the same as what Python does."""

from __future__ import annotations

import inspect
import random
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from itertools import count
from types import BuiltinFunctionType, MethodType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headwater.channel.source as source_module
from headwater import Event, Interest, Queue, i64
from headwater.channel.reports.counters import FAULTS
from headwater.channel.routing.counts import Readings
from headwater.channel.routing.letter import Chunk, Rows
from headwater.errors import ClosedError
from headwater.federation.arrive.relay import RelaySource
from headwater.federation.arrive.remote_source import RemoteSource
from headwater.federation.network import Network
from headwater.federation.send.pending import (
    RECORDS,
    ControlFrame,
    Gap,
    Numbered,
    PendingRows,
    complete,
    flood,
    gather,
    newest_of,
    take,
    union,
)
from headwater.ir.interp import Status
from headwater.native.record import Result
from headwater.types import event_type
from tests.channel.concurrency import Threads
from tests.effort import examples
from tests.federation.nodes import GUARD, Nodes, eventually, nodes, see


class Number(Event, frozen=True):
    n: i64
    d: i64 = 1
    level: float | None = None
    text: str | None = None


TYPE = event_type(Number)
# What is missing is undecided, and so is what divides by nothing, or is too large: those are faults as well.
INTERESTS: tuple[str | None, ...] = (
    None,
    "level > 0.5",
    "n > :least",
    "100 / d > n",
    "n * 4611686018427387904 > 0",
    "text == 'a'",
    "level > 0.25 and 100 / d > n or text == 'b'",
    "n == 3 and level * 2 < 1",
)
NAMES = count()
TWICE = (True, False)  # by machine code, and by Python


def event_of(chance: random.Random) -> Number:
    level = chance.choice((None, 0.0, 0.3, 0.7, 1.0))
    return Number(chance.randint(-4, 4), chance.randint(-1, 3), level, chance.choice((None, "a", "b", "")))


def interest_of(which: int, least: int) -> Interest | None:
    text = INTERESTS[which]
    return None if text is None else Interest(text, Number, params={"least": least} if ":least" in text else {})


@cache
def judge_of(which: int, least: int) -> Any:
    interest = interest_of(which, least)
    return None if interest is None else interest.native()


@cache
def outcome(which: int, least: int, event: Number) -> Result:
    judge = judge_of(which, least)
    return Result(Status.PASSED) if judge is None else judge.run(TYPE.encode(event))


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Nodes, Any, Any]]:
    with nodes() as make:
        lab, desk = make("lab"), make("desk")
        make.together()
        yield make, lab, desk


def source_of(lab: Any, name: str, native: bool) -> Any:
    channel = lab.channel(name, Number)
    before, source_module.NATIVE = source_module.NATIVE, native
    try:
        source = channel.source("s")
    finally:
        source_module.NATIVE = before
    assert type(source.publish) is (BuiltinFunctionType if native else MethodType)
    return source


def judging(source: Any) -> bool:
    """Whether the fast path is there, with an interest in it."""
    bypass = source._flow.bypass
    return bypass is not None and bypass.pending is not None and bypass.judge is not None


class Sink:
    """At the desk, and what it should get: of each event, what the interest of its time says."""

    def __init__(self, side: Side, which: int, least: int) -> None:
        self.side, self.got = side, list[Any]()
        self.sub = side.desk.channel(side.name).subscribe(self._take, interest_of(which, least))
        assert side.desk.ready(GUARD)
        self.epochs = [(side.seq, which, least)]

    def _take(self, event: Number, about: Any) -> None:
        self.got.append((about.seq, event))

    def change(self, which: int, least: int) -> None:
        points = self.sub.change(where=interest_of(which, least))
        self.epochs.append((points[self.side.place], which, least))

    def expected(self) -> list[Any]:
        ends = [point for point, _, _ in self.epochs[1:]] + [self.side.seq]
        return [
            (seq, self.side.events[seq - 1])
            for (start, which, least), end in zip(self.epochs, ends, strict=True)
            for seq in range(start + 1, end + 1)
            if outcome(which, least, self.side.events[seq - 1]).passed
        ]


class Side:
    """One of two channels to which the same happens."""

    def __init__(self, make: Nodes, lab: Any, desk: Any, native: bool) -> None:
        self.make, self.lab, self.desk, self.native = make, lab, desk, native
        self.name = f"short.n{next(NAMES)}"
        self.source = source_of(lab, self.name, native)
        desk.channel(self.name, Number)
        see(desk, lab)
        self.sinks: list[Sink] = []
        self.local: Any = None
        self.here: list[Any] = []
        self.place = f"{self.name}/s@lab"
        self.events: list[Number] = []

    def do(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("publish", seed, n):
                chance = random.Random(seed)
                for _ in range(n):
                    event = event_of(chance)
                    if chance.random() < 0.02:  # what only Python can encode
                        given: Any = {"n": event.n, "d": event.d, "level": event.level, "text": event.text}
                    else:
                        given = event
                    self.events.append(event)
                    assert self.source.publish(given) == self.seq
            case ("many", seed, n, batch):
                chance = random.Random(seed)
                events = [event_of(chance) for _ in range(n)]
                self.events += events
                rows = [{name: getattr(event, name) for name in TYPE.schema.names} for event in events]
                given = pa.RecordBatch.from_pylist(rows, schema=TYPE.schema) if batch else events
                assert self.source.publish_many(given) == self.seq
            case ("join", which, least):
                self.settle()  # a sink gets what is on its way, if others at its node want the same
                self.sinks.append(Sink(self, which, least))
            case ("change", at, which, least):
                if self.sinks:
                    self.sinks[at % len(self.sinks)].change(which, least)
            case ("leave", at):
                if self.sinks:
                    self.settle()
                    sink = self.sinks.pop(at % len(self.sinks))
                    sink.sub.cancel()
                    assert sink.got == sink.expected()
                    assert self.desk.ready(GUARD)
            case ("local",):
                if self.local is None:
                    self.local = self.lab.channel(self.name).subscribe(lambda event: self.here.append(event), "n > 0")
                else:
                    self.local.cancel()
                    self.local = None
            case _:
                self.settle()
                assert self.desk.ready(GUARD)

    @property
    def seq(self) -> int:
        return len(self.events)

    def settle(self) -> None:
        assert self.lab.flush(GUARD)
        for sink in self.sinks:
            expected = sink.expected()
            eventually(lambda sink=sink, expected=expected: len(sink.got) >= len(expected), "the rest")

    def check(self) -> None:
        self.settle()
        for sink in self.sinks:
            assert sink.got == sink.expected()
        tally = self.source._flow.tally()
        assert tally.published == self.seq
        assert tally.evaluated >= tally.passed + tally.undecided

    def check_counts(self) -> None:
        """What was undecided and what had faults at the source, from when on it knew of the interest."""
        channel, [sink] = self.lab.channel(self.name), self.sinks
        _, which, least = sink.epochs[-1]
        if INTERESTS[which] is None:
            return
        [counts] = self.desk.remote_counts(sink.sub)
        assert 130 <= counts.evaluated <= self.seq
        results = [outcome(which, least, event) for event in self.events[self.seq - counts.evaluated :]]
        assert counts.undecided == sum(result.status is Status.UNDECIDED for result in results)
        [entry] = (each for each in channel.entries.values() if not each.local)
        [judged] = (lineup.judged(entry, Readings()) for lineup in channel.lineups)
        faults = {kind: sum(bool(result.faults & kind) for result in results) for kind in FAULTS}
        assert judged.undecided == counts.undecided
        assert judged.faults == {kind: n for kind, n in faults.items() if n}
        [peer] = self.lab.federation_report().peers
        [lane] = [each for each in peer.lanes if each.channel == self.name]
        assert (lane.sent, lane.waiting, lane.dropped) == (counts.crossed, 0, 0)

    def close(self) -> None:
        for sink in self.sinks:
            sink.sub.cancel()
        if self.local is not None:
            self.local.cancel()
        self.source.close()


seeds, which, least = st.integers(0, 1 << 32), st.integers(0, len(INTERESTS) - 1), st.integers(-3, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), seeds, st.integers(1, 200)),
        st.tuples(st.just("publish"), seeds, st.integers(1, 200)),
        st.tuples(st.just("many"), seeds, st.integers(1, 60), st.booleans()),
        st.tuples(st.just("join"), which, least),
        st.tuples(st.just("change"), st.integers(0, 3), which, least),
        st.tuples(st.just("change"), st.integers(0, 3), which, least),
        st.tuples(st.just("leave"), st.integers(0, 3)),
        st.tuples(st.just("local")),
        st.tuples(st.just("settle")),
    ),
    max_size=9,
)


def test_a_source_of_another_node_says_that_it_does_not_publish(pair: tuple[Nodes, Any, Any]) -> None:
    _, lab, desk = pair
    source, got = lab.channel("refuses", Number).source("s"), threading.Event()
    with desk.channel("refuses", Number).subscribe(lambda event: got.set()):
        see(desk, lab)
        assert desk.ready(GUARD)
        source.publish(n=1)
        assert got.wait(GUARD)
        (here,) = [each for each in desk.channel("refuses").sources.values() if isinstance(each, RemoteSource)]
        for kind in (RemoteSource, RelaySource):
            assert (inspect.getdoc(kind.publish) or "").startswith("Refused: ")
        assert inspect.getdoc(here.publish) == inspect.getdoc(RemoteSource.publish)
        with pytest.raises(ClosedError, match=r"source 's' of refuses: it is at node lab; publish there, or make a"):
            here.publish(Number(1))
    source.close()


@settings(max_examples=examples(25), deadline=None)
@given(first=which, least=least, steps=STEPS)
def test_the_same_as_by_python(pair: Any, first: int, least: int, steps: list[Any]) -> None:
    sides = [Side(*pair, native) for native in TWICE]
    for side in sides:
        for step in (("join", first, least), ("publish", 1, 70), *steps, ("settle",), ("publish", 2, 130)):
            side.do(step)
        side.check()
        if len(side.sinks) == 1:
            side.check_counts()
    one, two = sides
    assert one.here == two.here
    for side in sides:
        side.close()


def short(source: Any) -> int:
    """Events that never came to Python."""
    return int(source._flow.seen - source._flow.spread)


def test_machine_code_judges_all_but_one_in_64(pair: Any) -> None:
    side = Side(*pair, True)
    side.do(("join", 2, 0))  # n > :least
    assert judging(side.source)
    side.do(("publish", 1, 640))
    assert 560 < short(side.source) <= 630  # some went as dicts, too
    side.check()
    side.check_counts()
    side.sinks[0].sub.change(params={"least": 3})
    assert judging(side.source)
    side.do(("local",))
    assert not judging(side.source)
    side.do(("local",))
    assert judging(side.source)
    side.source.close()
    assert not judging(side.source)
    side.close()


def test_native_code_is_waited_for_by_python(pair: Any) -> None:
    """Until there is machine code for an interest Python answers; then even if nobody asks it again."""
    side = Side(*pair, True)
    side.do(("join", 7, 0))  # n == 3 and level * 2 < 1

    def judged() -> bool:
        before = short(side.source)
        side.source.publish(Number(0))
        side.events.append(Number(0))
        return short(side.source) > before

    eventually(judged, "machine code")
    side.do(("publish", 5, 100))
    side.check()
    side.close()


def test_two_interests_of_one_node(pair: Any) -> None:
    side = Side(*pair, True)
    side.do(("join", 2, 2))
    side.do(("join", 5, 0))
    assert judging(side.source)
    before = short(side.source)
    side.do(("publish", 3, 300))
    assert short(side.source) - before > 250
    side.check()
    side.close()


def test_threads_and_changes(pair: Any, hurried: None) -> None:
    """Each event is judged by the interest of its time, whoever publishes it."""
    side = Side(*pair, True)
    got: list[tuple[int, int]] = []
    sub = side.desk.channel(side.name).subscribe(
        lambda event, about: got.append((about.seq, event.n)), "n % :by == 0", params={"by": 3}
    )
    assert side.desk.ready(GUARD)
    seqs: dict[int, int] = {}
    done = threading.Event()

    def publish(start: int) -> None:
        n = start
        while not done.is_set():
            seqs[side.source.publish(Number(n))] = n
            n += 2

    def change() -> None:
        try:
            for by in (4, 5, 3) * 2:
                epochs.append((sub.change(params={"by": by})[side.place], by))
        finally:
            done.set()

    epochs = [(0, 3)]
    Threads(lambda: publish(0), lambda: publish(1), change).join()
    assert sorted(seqs) == list(range(1, len(seqs) + 1))
    by, now, expected = dict(epochs), 3, []
    for seq in range(1, len(seqs) + 1):
        now = by.get(seq - 1, now)
        if seqs[seq] % now == 0:
            expected.append((seq, seqs[seq]))
    assert side.lab.flush(GUARD)
    eventually(lambda: len(got) >= len(expected), "the rest")
    assert got == expected
    side.close()


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("policy", ["drop_oldest", "block"])
def test_gaps_need_no_room(policy: Any) -> None:
    """Where a queue is full, only events count: not what tells that there was a gap."""
    link, padding = Queue(limit=200, policy=policy), "x" * 100_000
    with nodes() as make:
        lab, desk = make("lab", network=Network(listen=("tcp/127.0.0.1:0",), link=link)), make("desk")
        make.together()
        source = source_of(lab, "gaps", True)
        go, got = threading.Event(), list[tuple[int, int]]()

        def held(event: Number, about: Any) -> None:
            assert go.wait(GUARD)
            got.append((about.seq, event.n))

        desk.channel("gaps", Number).subscribe(held, "n % 2 == 0")
        see(desk, lab)
        assert desk.ready(GUARD) and judging(source)
        n = 0
        while (waiting := lab.federation_report().peers[0].lanes[0].waiting) < 150:
            n += 1
            source.publish(Number(n, text=padding))
        assert waiting == 150 and n < 2000  # each is counted once
        assert not lab._full
        go.set()
        assert lab.flush(GUARD)
        eventually(lambda: len(got) == n // 2, "the rest")
        assert got == [(each, each) for each in range(2, n + 1, 2)]


@pytest.mark.parametrize("which", [0, 2])
def test_an_event_that_no_frame_takes_keeps_its_number(pair: Any, which: int) -> None:
    """It cannot cross. Those after it, which machine code puts in without their numbers, are what they were."""
    side = Side(*pair, True)
    side.do(("join", which, 0))
    got = side.sinks[0].got
    for n in range(1, 64):
        side.source.publish(Number(n))
    assert side.lab.flush(GUARD)
    side.source.publish(Number(64, text="x" * (17 << 20)))  # one in 64 goes by Python, and this alone
    assert side.lab.flush(GUARD)
    for n in range(65, 70):
        side.source.publish(Number(n))
    assert side.lab.flush(GUARD)
    eventually(lambda: len(got) == 68, "the rest")
    assert [seq for seq, _ in got] == [event.n for _, event in got] == [*range(1, 64), *range(65, 70)]
    side.close()


@pytest.mark.parametrize("which", [0, 2])
def test_the_time_of_an_event_right_after_a_change(pair: Any, which: int) -> None:
    """It is not that of the last event before, however long ago that was."""
    side = Side(*pair, True)
    side.do(("join", which, 0))
    times: list[Any] = []
    side.desk.channel(side.name).subscribe(lambda event, about: times.append(about.time))
    assert side.desk.ready(GUARD)
    for n in range(1, 6):
        side.source.publish(Number(n))
        assert side.lab.flush(GUARD)
        eventually(lambda n=n: len(times) == n, "the event")
        before = datetime.now(UTC)
        side.lab.channel(side.name).subscribe(lambda event: None, "n < 0").cancel()
        side.source.publish(Number(n))
        assert side.lab.flush(GUARD)
        eventually(lambda n=n: len(times) == n + 1, "the event")
        assert times.pop() >= before
    side.close()


def test_what_is_dropped_takes_no_number_with_it() -> None:
    """Unwanted events come last, then routes are renewed, and then a full link drops the oldest."""
    link = Queue(limit=10, policy="drop_oldest")
    with nodes() as make:
        lab, desk = make("lab", network=Network(listen=("tcp/127.0.0.1:0",), link=link)), make("desk")
        make.together()
        source = source_of(lab, "dropped", True)
        got: list[tuple[int, int]] = []
        desk.channel("dropped", Number).subscribe(lambda event, about: got.append((about.seq, event.n)), "n > 0")
        see(desk, lab)
        assert desk.ready(GUARD) and judging(source)
        lane = source._flow.bypass._lane
        lane.peer.resumed = False  # nothing goes out
        for n in (*range(1, 31), *[0] * 10):
            source.publish(Number(n))
        lab.channel("dropped").subscribe(lambda event: None, "n < 0").cancel()
        lane.peer.trim(lane)
        assert lane.waiting == 10
        for n in range(41, 46):
            source.publish(Number(n))
        assert lane.waiting == 15
        lane.peer.resumed = True
        lane.dispatch()
        assert lab.flush(GUARD)
        eventually(lambda: bool(got) and got[-1][1] == 45, "the rest")
        assert got == [(n, n) for n in (*range(21, 31), *range(41, 46))]
        assert lane.waiting == 0


# ── numbers and times of what waits ──


@given(
    st.lists(st.tuples(st.sampled_from(("record", "python", "nothing", "pause")), st.integers(1, 5)), max_size=40),
    st.integers(0, 200),
)
def test_numbers_and_times(events: list[tuple[str, int]], start: int) -> None:
    """What is made of what waits is what was put in, however it is read."""
    items: list[Any] = []
    expected: list[Any] = []
    seq, stamp, last = start, 1000, start
    for kind, gap in events:
        seq += gap if kind == "nothing" else 1
        record = b"%d" % seq
        match kind:
            case "record":
                if last != seq - 1:
                    items.append(seq - 1)
                items.append(record)
                last = seq
            case "python":
                stamp += 10
                items.append(Numbered(seq, stamp, record))
                last = seq if last == seq - 1 else last
            case "pause":
                stamp += 10
                items.append(Gap(seq, stamp))
        if kind in ("record", "python"):
            expected.append((seq, stamp, record))
    made, end = complete(items, start, 1000)
    assert made == [Numbered(*each) for each in expected]
    found = gather(items, start, 1000)
    assert found is not None and list(zip(*found[:3], strict=True)) == expected and found[3] == end
    if items and set(map(type, items)) <= RECORDS:
        run = flood(items, start + 1, 1000)
        if run is not None:  # it also wants times where it looks for them
            assert [(start + 1 + at, record) for at, record in enumerate(run[1])] == [
                (seq, record) for seq, _, record in expected
            ]


def parts_of_one() -> list[Any]:
    batch = pa.RecordBatch.from_pydict({"n": list(range(10))})
    chunk = Chunk(batch, None, 1, 0, 0, 0)  # type: ignore[arg-type]
    return [PendingRows(Rows(chunk, np.array(rows), 0, len(rows))) for rows in ([1, 4, 7], [0, 4, 9], [5])]


def test_what_several_interests_want_of_a_batch_is_taken_together() -> None:
    """Whoever takes out what waits may come while a batch is being put in, part by part."""
    lock, (one, two, three), other = threading.Lock(), parts_of_one(), parts_of_one()[0]
    pending: list[Any] = [b"before", one]
    taken: list[Any] = []

    def put() -> None:
        with lock:
            taker.start()
            eventually(lambda: not pending, "taking")
            pending.extend((two, three, other, b"after"))

    taker = threading.Thread(target=lambda: taken.extend(take(pending, lock)))
    put()
    taker.join(GUARD)
    assert taken == [b"before", one, two, three] and pending == [other, b"after"]


def test_parts_of_a_batch_without_the_oldest_are_still_parts_of_it() -> None:
    parts = parts_of_one()
    first, said, last = Numbered(1, 0, b""), ControlFrame(b"said"), Numbered(11, 0, b"")
    rest, gone = newest_of([first, said, *parts, last], 3)
    assert gone == 3 and rest[0] == said and rest[2:] == [*parts[1:], last]
    rows = union([each.chunk for each in rest[1:4] if isinstance(each, PendingRows)])
    assert rows.seqs.tolist() == [1, 5, 6, 8, 10]  # each once, in order
    assert rows.taken().column("n").to_pylist() == [0, 4, 5, 7, 9]
    whole = parts[0].chunk.origin
    (newest,), _ = newest_of([PendingRows(whole)], 4)
    assert isinstance(newest, PendingRows) and newest.chunk.seqs.tolist() == [5, 6, 7, 8, 9, 10]
    assert newest_of(parts, 0) == (parts, 0) and newest_of(parts, 9) == ([], 7)


def test_the_times_of_events_that_wait_for_a_link() -> None:
    """They are not all that of the first, as long as they may have to wait."""
    with nodes() as make:
        lab, desk = make("lab"), make("desk")
        make.together()
        source = lab.channel("test.number", Number).source("s")
        times: list[Any] = []
        desk.channel("test.number", Number).subscribe(lambda event, about: times.append(about.time), "n > 0")
        see(desk, lab)
        assert desk.ready(GUARD)
        source.publish(Number(1))
        assert lab.flush(GUARD)
        lane = source._flow.bypass._lane  # type: ignore[union-attr]
        lane.peer.resumed = False  # as between two links
        source.publish(Number(2))
        eventually(lambda: lane.pending[-1].__class__ is not bytes, "a look at what waits")
        source.publish(Number(3))
        lane.peer.resumed = True
        lane.dispatch()
        assert lab.flush(GUARD)
        eventually(lambda: len(times) == 3, "the events")
        assert times[0] < times[1] < times[2]
