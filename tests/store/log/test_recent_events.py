"""The end of an open log, read without a snapshot: it has what a reader finds, or says that it does not know."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import StoreError
from headwater.store.log import ChannelLog, Log, recent_events, retention
from headwater.types import Event, EventType, event_type, i32, text
from tests.disk import full
from tests.effort import examples
from tests.store.log.samples import EVERYTHING, NOON, SIGHTING, everything, sighting

CHANNEL, LAB = "ie.sighting", "lab"
SOURCES = ("a", "b", "other source é")
Found = list[tuple[int, int, dict[str, Any]]]  # number, time in microseconds, fields


class Later(Event, name="log.Sighting"):
    badge: i32
    station: text
    floor: i32 | None


LATER: EventType = event_type(Later)


def fields(type: EventType | None, number: int) -> dict[str, Any]:
    if type is None:
        return {"data": bytes(number % 23)}
    if type is LATER:
        return {**sighting(number), "floor": number}
    return everything(number) if type is EVERYTHING else sighting(number)


class Subject:
    """A log to which things happen, and how the two ways to read its end compare."""

    def __init__(self, root: Path, type: EventType | None) -> None:
        self.root, self.type, self.count = root, type, 0
        self.log = self.opened()
        self.answered = 0

    def opened(self) -> ChannelLog:
        return ChannelLog.open(Log(self.root, roll_seconds=3600, sync="roll"), CHANNEL, LAB, self.type)

    def _numbers(self, source: str, n: int, step: int) -> list[int]:
        start = self.log.last(source) + step
        return list(range(start, start + n))

    def rows(self, numbers: list[int]) -> Any:
        import pyarrow as pa

        if self.type is None:
            return pa.record_batch({"data": pa.array([fields(None, n)["data"] for n in numbers], pa.binary())})
        return self.type.to_arrow([fields(self.type, n) for n in numbers])

    def events(self, source: str, n: int, step: int) -> None:
        for number in self._numbers(source, n, step):
            self.count += 1
            record = bytes(number % 23) if self.type is None else self.type.encode(fields(self.type, number))
            self.log.append(source, number, NOON + 1_000_007 * self.count, record)

    def batch(self, source: str, n: int, step: int) -> None:
        self.count += 1
        numbers = self._numbers(source, n, step)
        self.log.append_batch(source, numbers[0], NOON + 1_000_007 * self.count, self.rows(numbers))

    def numbered(self, source: str, n: int, step: int) -> None:
        numbers = [self.log.last(source) + step * (1 + at) for at in range(n)]
        times = [NOON // 1000 + 1001 * (self.count + at) for at in range(n)]
        self.count += n
        self.log.append_rows(source, numbers, times, self.rows(numbers))

    def refused(self, source: str, n: int, step: int) -> None:
        """The disk is full."""
        with full(1), pytest.raises(StoreError):
            self.batch(source, n, step)

    def taken_back(self, source: str, n: int, step: int) -> None:
        """An interrupt comes after the write, and before it is noted that it is there."""
        log, writer = self.log, self.log._writer
        size, last = writer.size, log.last(source)
        self.batch(source, n, step)
        writer.take_back(size)
        log._last[source] = last

    def roll(self, *_: object) -> None:
        self.log.roll(wait=True)

    def roll_soon(self, *_: object) -> None:
        self.log.roll()

    def retain(self, *_: object) -> None:
        self.log.roll(wait=True)
        retention.apply(self.root, CHANNEL, LAB, keep_bytes=0)

    def reopen(self, *_: object) -> None:
        self.log.close(until=0.0, why="")
        self.log = self.opened()

    def evolve(self, *_: object) -> None:
        self.log.close(until=0.0, why="")
        self.type = LATER if self.type is SIGHTING else self.type
        self.log = self.opened()

    # ── what is found ──

    def near(self, source: str, after: int, upto: int) -> Found | None:
        recent = self.log.recent(source, after, upto)
        if recent is None:
            return None
        found: Found = []
        for seqs, stamps, records, rows in recent:
            if records is not None:
                rows = [{"data": each} for each in records] if self.type is None else self.decoded(records)
            else:
                rows = rows.to_pylist()
            found += zip(map(int, seqs), (int(stamp) // 1000 for stamp in stamps), rows, strict=True)
        first = recent.batch(1 << 20)
        assert (first is None) == (not found)
        if first is not None:
            page = [(row.pop("event_seq"), row.pop("event_time"), row) for row in first.to_pylist()]
            assert [(seq, row) for seq, _, row in page] == [(seq, row) for seq, _, row in found[: len(page)]]
        return found

    def decoded(self, records: list[bytes]) -> Any:
        assert self.type is not None
        return self.type.records_to_arrow(records).to_pylist()

    def far(self, source: str, after: int, upto: int) -> Found:
        scan = self.log.reader().read(node=LAB, source=source, after=after, upto=upto)
        found: Found = []
        for batch in scan:
            times = batch.column("event_time").cast("int64").to_pylist()
            for row, time in zip(batch.to_pylist(), times, strict=True):
                seq = row["event_seq"]
                own = {name: value for name, value in row.items() if not name.startswith("event_")}
                found.append((seq, time, own))
        assert not scan.removed or after + 1 < (scan.first or upto + 1)
        self.gap = scan.removed
        return found

    def compare(self, source: str, behind: int, short: int) -> None:
        last = self.log.last(source)
        after, upto = max(0, last - behind), last - short
        near = self.near(source, after, upto)
        if near is None:
            return
        self.answered += 1
        assert near == self.far(source, after, upto) and not self.gap


STEPS = ("events", "events", "events", "batch", "numbered", "refused", "taken_back", "roll", "roll_soon", "retain",
         "reopen", "evolve")  # fmt: skip


@pytest.mark.parametrize("type", [SIGHTING, EVERYTHING, None], ids=["plain", "all kinds", "bytes"])
@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.sampled_from(SOURCES), st.integers(1, 60), st.integers(1, 3)), max_size=25
    ),
    st.lists(st.tuples(st.sampled_from(SOURCES), st.integers(1, 120), st.integers(0, 30)), min_size=1, max_size=4),
)
def test_the_end_is_what_a_reader_finds(
    type: EventType | None, steps: list[tuple[str, str, int, int]], looks: list[tuple[str, int, int]]
) -> None:
    with TemporaryDirectory() as root:
        subject = Subject(Path(root), type)
        try:
            for step, source, n, gap in steps:
                getattr(subject, step)(source, n, gap)
                for look in looks:
                    subject.compare(*look)
        finally:
            subject.log.close(until=0.0, why="")


def test_the_last_events_need_no_reader(tmp_path: Path) -> None:
    """However much lies before them in the file, and of how many sources."""
    subject = Subject(tmp_path, SIGHTING)
    with subject.log as log:
        for _ in range(40):
            for source in SOURCES:
                subject.events(source, 50, 1)
        for behind in (1, 7, 500, 1500):
            subject.compare("a", behind, 0)
        assert subject.answered == 4
        assert log.recent("a", 1999, 2000) is not None and log.recent("a", 0, 2000) is not None
        assert log.recent("a", 2000, 2000) is None and log.recent("nobody", 0, 1) is None
        subject.events("a", recent_events.MOST_EVENTS, 1)
        assert log.recent("a", 1999, log.last("a")) is None
        log.roll()
        assert log.recent("a", log.last("a") - 1, log.last("a")) is None
        subject.events("a", 1, 1)
        assert log.recent("a", log.last("a") - 2, log.last("a")) is None, "one of them is in another file"
        subject.answered = 0
        subject.compare("a", 1, 0)
        assert subject.answered == 1
    assert log.recent("a", 1, log.last("a")) is None, "it is closed"


def test_memory_is_bounded(tmp_path: Path) -> None:
    """What is kept of a file is some places in it, and what is read of it is the end."""
    with ChannelLog.open(Log(tmp_path, sync="roll"), CHANNEL, LAB, None) as log:
        for number in range(1, 400):
            log.append("a", number, NOON, bytes(10_000))
        writer = log._writer
        assert len(writer.marks) <= 64 and writer.size - writer.marks[0] < writer.size
        assert log.recent("a", 390, 399) is not None
        assert log.recent("a", 399 - recent_events.MOST_BYTES // 10_000 - 1, 399) is None


def test_what_is_damaged_is_left_to_the_reader(tmp_path: Path) -> None:
    subject = Subject(tmp_path, SIGHTING)
    with subject.log as log:
        subject.events("a", 20, 1)
        path = log._writer.path
        data = bytearray(path.read_bytes())
        data[-3] ^= 1
        with path.open("r+b") as file:
            file.write(data)
        assert log.recent("a", 10, 20) is None
        with path.open("r+b") as file:
            data[-3] ^= 1
            file.write(data)
        assert log.recent("a", 10, 20) is not None


def test_readers_while_others_append_and_roll(tmp_path: Path) -> None:
    """Nothing is missing, and nothing of another file is read for it, whatever becomes of the one that is written."""
    problems: list[str] = []
    done = threading.Event()
    log = ChannelLog.open(Log(tmp_path, roll_bytes=20_000, sync="roll"), CHANNEL, LAB, SIGHTING)

    def guarded(work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except Exception as error:
                problems.append(repr(error))
                done.set()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    answered = [0]

    def read() -> None:
        while not done.is_set():
            last = log.last("a")
            found = log.recent("a", last - 20, last) if last > 20 else None
            if found is not None:
                answered[0] += 1
                pairs = [pair for run in found for pair in zip(run.seqs, run.records or (), strict=True)]
                numbers = [(seq, SIGHTING.decode(record).badge) for seq, record in pairs]
                if numbers != [(n, n) for n in range(last - 19, last + 1)]:
                    problems.append(f"{last}: {numbers}")

    with log:
        readers = [guarded(read) for _ in range(2)]
        for number in range(1, 4001):
            log.append("a", number, NOON, SIGHTING.encode(sighting(number)))
            log.append("b", number, NOON, SIGHTING.encode(sighting(number)))
        done.set()
        for thread in readers:
            thread.join()
    assert not problems and answered[0]
