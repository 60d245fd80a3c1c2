"""The backlog of a channel: whoever reads it sees what a plain filter over everything published gives, or is told from
which number on."""

from __future__ import annotations

import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater import Config, Event, Interest, Log, Node, i64
from headwater.channel.backlog.contract import Reading
from headwater.channel.backlog.log import ROWS
from headwater.channel.backlog.ring import Ring
from headwater.channel.backlog.stretch import Stretch, StretchJudge
from headwater.errors import StoreError
from headwater.store.log import retention
from tests.effort import examples
from tests.federation.nursery import run

CHANNEL, GUARD = "test.numbers", 120.0
KEPT = 100  # events in a ring
EVERY_THIRD = "{ static int seen = 0; seen = seen + 1; return seen % 3 == 0; }"
DOUBLED = "{ output.twice = input.n * 2; return input.n % 4 == 1; }"


class Number(Event, name="test.Number"):
    n: i64


class Twice(Event, name="test.Twice"):
    twice: i64


def of(kind: str, path: Path, **log: Any) -> Node:
    """A node that keeps a past in one of three ways, or none."""
    config = Config(history=KEPT if kind in ("ring", "both") else 0)
    return Node("lab", config=config, log=Log(path, **log) if kind in ("log", "both") else None)


def told(reading: Reading, *, field: str = "n") -> list[tuple[int, int]]:
    """Number and value of all that it gives."""
    found = []
    for part in reading:
        assert part.type is not None and (not found or part.seqs[0] > found[-1][0] if len(part) else True)
        values = [part.type.decode_raw(record)[field] for record in part.records]
        found += zip(part.seqs.tolist(), values, strict=True)
    return found


Judging = tuple[Any, Callable[[int, int], bool]]  # an interest, and the same said of number and how-manieth event


JUDGINGS: list[Judging] = [
    (None, lambda n, at: True),
    (Interest("n % 7 == 3", Number), lambda n, at: n % 7 == 3),
    (Interest("n > :low", Number, params={"low": 150}), lambda n, at: n > 150),
    (Interest("meta.seq % 5 == 0 and meta.source == 'one'", Number), lambda n, at: (n + 1) % 5 == 0),
    (Interest(EVERY_THIRD, Number), lambda n, at: at % 3 == 2),
    (Interest("n < 0", Number), lambda n, at: False),
]


def expected(judge: Callable[[int, int], bool], after: int, upto: int) -> list[tuple[int, int]]:
    """What a plain filter gives of events that are their numbers less one."""
    asked = range(after, upto)
    return [(n + 1, n) for at, n in enumerate(asked) if judge(n, at)]


@pytest.mark.parametrize("kind", ["ring", "log", "both", "none"])
@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(st.integers(-180, 90), max_size=6),
    after=st.integers(0, 420),
    upto=st.none() | st.integers(0, 500),
    rolled=st.booleans(),
)
def test_a_reader_sees_what_a_plain_filter_gives(
    kind: str, tmp_path_factory: pytest.TempPathFactory, pieces: list[int], after: int, upto: int | None, rolled: bool
) -> None:
    """Singly and in batches (below 0), with the ring overwritten, and the log in several files."""
    with of(kind, tmp_path_factory.mktemp("log"), roll_bytes=4096 if rolled else 1 << 20) as node:
        channel = node.channel(CHANNEL, Number)
        source, total = channel.source("one"), 0
        for piece in pieces:
            values = [Number(n) for n in range(total, total + abs(piece))]
            if piece < 0:
                source.publish_many(values)
            else:
                for value in values:
                    source.publish(value)
            total += abs(piece)
        backlog = channel.backlog
        first = {"ring": max(1, total - KEPT + 1), "none": total + 1}.get(kind, 1)
        assert (backlog.first("one"), backlog.last("one")) == (first if total else 1, total)
        end = total if upto is None else min(upto, total)
        start = max(after, first - 1)
        for interest, judge in JUDGINGS:
            reading = backlog.read("one", after, upto, interest)
            assert reading.gap == ((after + 1, min(first - 1, end)) if start > after and end > after else None)
            assert told(reading) == expected(judge, start, end)
            assert reading.reached == reading.upto == max(after, end)
        made = backlog.read("one", after, upto, Interest(DOUBLED, Number, output=Twice))
        assert told(made, field="twice") == [(n + 1, 2 * n) for n in range(start, end) if n % 4 == 1]


@pytest.mark.parametrize("kind", ["ring", "log", "both"])
def test_a_source_that_nobody_knows_has_no_past(kind: str, tmp_path: Path) -> None:
    with of(kind, tmp_path) as node:
        backlog = node.channel(CHANNEL, Number).backlog
        for _ in range(2):
            assert (backlog.first("two"), backlog.last("two")) == (1, 0)
            reading = backlog.read("two", 0, 10)
            assert (told(reading), reading.gap, reading.reached) == ([], None, 0)
            node.channel(CHANNEL).source("one").publish(n=0)
            node.channel(CHANNEL).sources["one"].close()


@pytest.mark.parametrize("kind", ["ring", "log", "both"])
def test_readers_go_on_while_threads_publish(kind: str, tmp_path: Path) -> None:
    """A reader that goes on from where it was sees every event once, in order, or is told which are gone."""
    with of(kind, tmp_path, roll_bytes=16_384) as node:
        channel = node.channel(CHANNEL, Number)
        source = channel.source("one")
        turn, values, done = threading.Lock(), iter(range(8000)), threading.Event()

        def publish() -> None:
            while True:
                with turn:  # so that numbers and values go together
                    n = next(values, None)
                    if n is None:
                        return
                    source.publish(n=n)

        found, gaps, reached = list[tuple[int, int]](), list[tuple[int, int]](), 0
        judge = StretchJudge(Interest("n % 2 == 1", Number), "one", "lab")

        def read() -> None:
            nonlocal reached
            while True:
                last = done.is_set()
                reading = channel.backlog.read("one", reached, None, judge)
                gaps.extend([reading.gap] if reading.gap else [])
                found.extend(told(reading))
                reached = reading.reached
                if last:
                    return

        threads = [threading.Thread(target=publish) for _ in range(3)]
        reader = threading.Thread(target=read)
        for thread in (*threads, reader):
            thread.start()
        for thread in threads:
            thread.join(GUARD)
        done.set()
        reader.join(GUARD)
        assert not reader.is_alive() and reached == 8000
        lost = {n for first, last in gaps for n in range(first, last + 1)}
        assert not lost or kind == "ring"
        assert found == [(n + 1, n) for n in range(8000) if n % 2 == 1 and n + 1 not in lost]


def test_a_ring_is_copied_while_another_thread_puts_slots_in() -> None:
    """Threads take turns at any point: a copy has all that follows on a number, and never fails."""
    ring: Ring[tuple[int]] = Ring(((n,) for n in range(1000)), maxlen=1000)
    interval, done = sys.getswitchinterval(), threading.Event()

    def put() -> None:
        for n in range(1000, 600_000):
            ring.append((n,))
        done.set()

    thread = threading.Thread(target=put)
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        while not done.is_set():
            number = ring[-1][0] - 5
            found = [n for (n,) in ring.after(number)]
            assert found == list(range(found[0], found[-1] + 1)) and (found[0] == number + 1 or len(found) == 1000)
    finally:
        sys.setswitchinterval(interval)
        thread.join(GUARD)


@pytest.mark.parametrize("kind", ["ring", "log", "both"])
def test_a_source_that_has_ended_and_returned(kind: str, tmp_path: Path) -> None:
    """In the log it goes on; in memory it begins anew, and nothing of the earlier one is taken for its own."""
    logged = kind != "ring"
    with of(kind, tmp_path) as node:
        channel = node.channel(CHANNEL, Number)
        first = channel.source("one")
        first.publish_many([Number(n) for n in range(150)])
        first.close()
        assert len(told(channel.backlog.read("one"))) == (150 if logged else 0)
        second = channel.source("one")
        assert len(told(channel.backlog.read("one"))) == (150 if logged else 0)
        second.publish(n=150 if logged else 0)
        total = 151 if logged else 1
        assert told(channel.backlog.read("one")) == [(n + 1, n) for n in range(total)]
    if not logged:
        return
    with of(kind, tmp_path) as node:  # another process, before and after its source is there
        channel = node.channel(CHANNEL, Number)
        for _ in range(2):
            assert told(channel.backlog.read("one", 149)) == [(150, 149), (151, 150)]
            assert (channel.backlog.first("one"), channel.backlog.last("one")) == (1, 151)
            source = channel.sources.get("one") or channel.source("one")
        source.publish(n=151)
        assert told(channel.backlog.read("one", 150)) == [(151, 150), (152, 151)]


@pytest.mark.parametrize("kind", ["log", "both"])
def test_what_retention_has_removed_is_a_gap(kind: str, tmp_path: Path) -> None:
    with of(kind, tmp_path, roll_bytes=4096, keep_bytes=8192) as node:
        channel = node.channel(CHANNEL, Number)
        source, total = channel.source("one"), 0
        while channel.backlog.first("one") == 1 and total < 1_000_000:
            source.publish_many([Number(n) for n in range(total, total + 1000)])
            total += 1000
        first = channel.backlog.first("one")
        assert first > 1
        reading = channel.backlog.read("one", 0, None, Interest("n % 10 == 0", Number))
        gap = reading.gap
        assert gap is not None and gap[0] == 1 and gap[1] >= first - 1  # it may have gone on
        assert told(reading) == [(n + 1, n) for n in range(gap[1], total) if n % 10 == 0]


@pytest.mark.parametrize("kept", [100, ROWS + 200])
def test_what_retention_has_removed_comes_from_a_ring_that_reaches_further_back(kept: int, tmp_path: Path) -> None:
    total = kept + 50
    with Node("lab", config=Config(history=kept), log=Log(tmp_path)) as node:
        channel = node.channel(CHANNEL, Number)
        source = channel.source("one")
        source.publish_many([Number(n) for n in range(total - 10)])
        found = source.log
        assert found is not None
        found.roll(wait=True)
        source.publish_many([Number(n) for n in range(total - 10, total)])
        retention.apply(tmp_path, CHANNEL, "lab", keep_bytes=0)
        assert [span.first for span in found.reader().sources()] == [total - 9]
        assert channel.backlog.first("one") == 51
        for after, upto in ((0, None), (20, 40), (60, 70), (60, None), (total - 5, None)):
            reading = channel.backlog.read("one", after, upto)
            end = total if upto is None else upto
            assert reading.gap == ((after + 1, min(50, end)) if after < 50 else None)
            assert told(reading) == expected(lambda n, at: True, max(after, 50), end)
            assert reading.reached == end


@pytest.mark.parametrize("asks_first", [False, True])
def test_what_could_not_be_read_is_not_taken_for_the_end(asks_first: bool, tmp_path: Path) -> None:
    """The folder is taken away: whoever reads on after the error gets it again, and is not told that this was all."""
    node = of("log", tmp_path / "log")
    channel = node.channel(CHANNEL, Number)
    channel.source("one").publish_many([Number(n) for n in range(5)])
    reading = channel.backlog.read("one", 2)
    (tmp_path / "log").rename(tmp_path / "away")
    try:
        for again in (False, True):
            with pytest.raises(StoreError, match="moved"):
                _ = reading.gap if asks_first and not again else list(reading)
            assert reading.reached == 2
    finally:
        with pytest.raises(StoreError, match="moved"):
            node.close()


@pytest.mark.parametrize("kind", ["ring", "log", "both"])
def test_what_could_not_be_judged_is_not_reached(kind: str, tmp_path: Path) -> None:
    class Failing(StretchJudge):
        def __call__(self, stretch: Stretch) -> Stretch:
            raise ValueError("of the judge")

    with of(kind, tmp_path) as node:
        channel = node.channel(CHANNEL, Number)
        channel.source("one").publish_many([Number(n) for n in range(5)])
        reading = channel.backlog.read("one", 2, None, Failing(None, "one", "lab"))
        with pytest.raises(ValueError, match="of the judge"):
            next(reading)
        assert reading.reached == 2


def test_a_slow_reader_does_not_keep_what_the_ring_has_given_up(tmp_path: Path) -> None:
    """Where the log has it as well, the ring is read no further back than the log would be in one go."""
    kept = 2 * ROWS
    with Node("lab", config=Config(history=kept), log=Log(tmp_path)) as node:
        channel = node.channel(CHANNEL, Number)
        source = channel.source("one")
        source.publish_many([Number(n) for n in range(kept)])
        tracemalloc.start()
        try:
            before = tracemalloc.take_snapshot()
            reading = channel.backlog.read("one")
            in_ring = tracemalloc.take_snapshot().compare_to(before, "filename")
        finally:
            tracemalloc.stop()
        slots = sum(each.size_diff for each in in_ring if each.traceback[0].filename.endswith("ring.py")) // 8
        assert slots < kept, "references to events that the ring may give up"
        assert told(reading) == expected(lambda n, at: True, 0, kept)


@pytest.mark.parametrize("kind", ["ring", "log", "both"])
def test_an_interest_that_is_changed_at_an_exact_point(kind: str, tmp_path: Path) -> None:
    """What a sink got in each epoch is what reading up to that point and from it on gives."""
    with of(kind, tmp_path) as node:
        channel = node.channel(CHANNEL, Number)
        source, got = channel.source("one"), list[tuple[int, int]]()
        sink = channel.subscribe(lambda event, about: got.append((about.seq, event.n)), "n > :low", params={"low": 10})
        for n in range(30):
            source.publish(n=n)
        points = sink.change(params={"low": 35})
        for n in range(30, 60):
            source.publish(n=n)
        point = points[source.id]
        parts = [((0, point), 10), ((point, None), 35)]
        read = [
            each
            for (after, upto), low in parts
            for each in told(
                channel.backlog.read("one", after, upto, Interest("n > :low", Number, params={"low": low}))
            )
        ]
        assert read == got


@pytest.mark.parametrize("kind", ["ring", "log", "both"])
def test_state_goes_on_from_one_reading_to_the_next_and_to_the_present(kind: str, tmp_path: Path) -> None:
    with of(kind, tmp_path) as node:
        channel = node.channel(CHANNEL, Number)
        source, third = channel.source("one"), Interest(EVERY_THIRD, Number)
        judge = StretchJudge(third, "one", "lab")
        found, reached = list[tuple[int, int]](), 0
        for upto in (20, 21, 50, 80):
            source.publish_many([Number(n) for n in range(source.seq, upto)])
            reading = channel.backlog.read("one", reached, None, judge)
            found += told(reading)
            reached = reading.reached
        assert found == [(n + 1, n) for n in range(2, 80, 3)]
        heard = list[int]()
        channel.subscribe(lambda event: heard.append(event.n), third, history="all")
        source.publish_many([Number(n) for n in range(80, 90)])
        assert heard == list(range(2, 90, 3))


CRASH = """
import os, sys
from headwater import Config, Event, Log, Node, i64

class Number(Event, name="test.Number"):
    n: i64

node = Node("lab", log=Log(sys.argv[1], roll_bytes=4096), config=Config(history=50))
source = node.channel("test.numbers", Number).source("one")
for n in range(source.seq, source.seq + 700):
    source.publish(n=n)
os._exit(9)
"""


def test_a_process_that_was_killed(tmp_path: Path) -> None:
    """What was published before it and after it is one sequence."""
    for _ in range(2):
        done = run([sys.executable, "-c", CRASH, str(tmp_path)], timeout=GUARD)
        assert done.returncode == 9
    with of("both", tmp_path) as node:
        channel = node.channel(CHANNEL, Number)
        source = channel.source("one")
        source.publish(n=source.seq)
        assert source.seq == 1401
        for after in (0, 690, 1399, 1401):
            reading = channel.backlog.read("one", after, None, Interest("n % 3 == 0", Number))
            assert reading.gap is None
            assert told(reading) == [(n + 1, n) for n in range(after, 1401) if n % 3 == 0]


@pytest.mark.parametrize("kind", ["ring", "log", "both"])
def test_bytes(kind: str, tmp_path: Path) -> None:
    with of(kind, tmp_path) as node:
        channel = node.channel("test.bytes", bytes)
        channel.source("one").publish_many([b"a", b"", b"c"])
        assert [part.records for part in channel.backlog.read("one", 1)] == [[b"", b"c"]]


def test_a_ring_goes_with_its_source() -> None:
    """Sources that come and go leave nothing behind."""
    with of("ring", Path()) as node:
        channel = node.channel(CHANNEL, Number)
        with kept_rings() as rings:
            for at in range(20):
                source = channel.source(f"s{at}")
                source.publish_many([Number(n) for n in range(10)])
                source.close()
                del source
        assert rings() <= 1


@contextmanager
def kept_rings() -> Iterator[Callable[[], int]]:
    """How many rings there are more than before."""
    import gc

    from headwater.channel.backlog.ring import EventRing

    def count() -> int:
        gc.collect()
        return sum(isinstance(each, EventRing) for each in gc.get_objects())

    before = count()
    yield lambda: count() - before
