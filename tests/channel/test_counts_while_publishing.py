"""Counts are read while everything goes on: they add up, never go back, and nobody waits for who reads them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from headwater import Event, Node, Queue, Source, State, i64
from headwater.channel.reports.report import NodeReport
from headwater.channel.routing.route import Lineup
from headwater.reports import Counts
from tests.channel.events import GUARD


class Reading(Event):
    sensor: str
    value: i64 | None
    scale: i64


def every_other(e: Reading, *, state: State = State(n=0)) -> bool:
    state.n += 1
    return state.n % 2 == 0


def reading(n: int) -> Reading:
    return Reading(f"s{n % 3}", None if n % 4 == 0 else n % 10, n % 3)


INTERESTS: tuple[Any, ...] = (
    None,
    "value > 3",
    "value > 3",
    "scale == 2",
    "value / scale > 1",
    "100 div scale > 30 or sensor == 's1'",
    "{ static int n = 0; n = n + 1; return input.value > 2; }",
    every_other,
)


@contextmanager
def running(*jobs: Callable[[], None]) -> Iterator[list[BaseException]]:
    """Each job in a thread of its own; all are done at the end, and what one raised is raised here."""
    failed: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    yield failed
    for thread in threads:
        thread.join(GUARD)
        assert not thread.is_alive(), "a thread hangs"
    if failed:
        raise failed[0]


# ── nobody waits for a report ──


class Busy:
    """A source's lock that someone has, until it is `free`."""

    def __init__(self, asked: threading.Event, free: threading.Event) -> None:
        self._asked, self._free = asked, free

    def __enter__(self) -> None:
        self._asked.set()
        assert self._free.wait(GUARD)

    def __exit__(self, *exc: object) -> None:
        pass


@pytest.mark.parametrize("what", ["node", "channel", "source", "subscription"])
def test_publishers_go_on_while_a_report_is_being_made(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Node() as node:
        channel = node.channel("plant.reading", Reading)
        sources = [channel.source() for _ in range(3)]
        sink = channel.subscribe(lambda event: None, "value > 3")
        half_done, go_on, made = threading.Event(), threading.Event(), Lineup.why

        def why(self: Lineup, entry: Any) -> tuple[str, str]:
            half_done.set()
            assert go_on.wait(GUARD)
            return made(self, entry)

        monkeypatch.setattr(Lineup, "why", why)
        asked: dict[str, Any] = {"node": node, "channel": channel, "source": sources[1], "subscription": sink}
        published = threading.Event()

        def publish() -> None:
            for source in sources:
                source.publish(reading(7))
                source.publish_many([reading(7), reading(8)])
            published.set()

        with running(lambda: asked[what].report()):
            assert half_done.wait(GUARD)
            with running(publish):
                in_time = published.wait(GUARD / 3)
                go_on.set()
        assert in_time, "publishers waited for the report"
        assert sink.counts.evaluated == 9


@pytest.mark.parametrize("read", ["report", "counts"])
def test_where_one_source_is_busy_the_others_go_on_while_it_is_waited_for(read: str) -> None:
    with Node() as node:
        channel = node.channel("plant.reading", Reading)
        first, busy, last = (channel.source() for _ in range(3))
        sink = channel.subscribe(lambda event: None, "value > 3")
        asked, free, published = threading.Event(), threading.Event(), threading.Event()
        busy.lock = Busy(asked, free)  # type: ignore[assignment]

        def publish() -> None:
            for source in (first, last):
                source.publish(reading(7))
            published.set()

        with running(lambda: node.report() if read == "report" else sink.counts):
            assert asked.wait(GUARD)
            with running(publish):
                in_time = published.wait(GUARD / 3)
                free.set()
        assert in_time, "publishers waited for the report, which waited for another source"
        assert sink.counts.evaluated == 2


def test_a_report_is_made_while_a_handler_is_at_work() -> None:
    with Node() as node:
        channel = node.channel("plant.reading", Reading)
        blocked, quiet = channel.source(), channel.source()
        inside, go_on = threading.Event(), threading.Event()

        def handle(event: Reading) -> None:
            if event.sensor == "slow":
                inside.set()
                assert go_on.wait(GUARD)

        sink = channel.subscribe(handle)
        other = channel.subscribe(lambda event: None, "scale >= 0")
        with running(lambda: blocked.publish(Reading("slow", 1, 1)) and None):
            assert inside.wait(GUARD)
            quiet.publish(reading(1))  # whoever is in the handler delivers it when it is done
            counts = {each.name: each.counts for each in node.report().subscriptions}
            go_on.set()
        assert (counts[sink.name].passed, counts[sink.name].queued) == (2, 1)
        assert counts[other.name].evaluated == 2
        assert sink.counts.delivered == 2


# ── the numbers of every report ──


class Witness:
    """Every report it sees adds up, and no count goes back."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], Counts] = {}

    def see(self, report: NodeReport) -> None:
        for kind in ("subscriptions", "sources", "channels"):
            for each in getattr(report, kind):
                self._one((kind, each.name), each.counts)

    def _one(self, key: tuple[str, str], counts: Counts) -> None:
        assert counts.evaluated == counts.passed + counts.rejected + counts.undecided
        last = self._last.get(key, Counts())
        for name in ("evaluated", "passed", "rejected", "undecided", "dropped", "faulty"):
            assert getattr(counts, name) >= getattr(last, name), f"{key}: {name} went back: {last} {counts}"
        if key[0] == "subscriptions":
            gone = counts.delivered + counts.dropped + counts.expired + counts.skipped
            assert counts.passed == gone + counts.queued, f"{key}: {counts}"
            assert counts.delivered >= last.delivered
        self._last[key] = counts


def total(parts: list[Counts]) -> Counts:
    return sum(parts, Counts())


def publish_all(source: Source, rounds: int, batches: bool, type: Any) -> None:
    for round in range(rounds):
        events = [reading(round * 7 + n) for n in range(12)]
        if batches and round % 3 == 0:
            source.publish_many(type.to_arrow(events))
        elif round % 3 == 1:
            source.publish_many(events)
        else:
            for event in events:
                source.publish(event)


ROUNDS = 60


@pytest.mark.parametrize("batches", [False, True])
def test_every_report_adds_up_while_sources_publish(batches: bool) -> None:
    with Node() as node:
        channel = node.channel("plant.reading", Reading)
        high = channel.derive("plant.reading.high", "value > 5")
        sources = [channel.source() for _ in range(4)] + [channel.source(facts={"scale": 1})]
        channel.subscribe(lambda event: None, name="everything")
        for where in INTERESTS[1:]:
            channel.subscribe(lambda event: None, where)
        high.subscribe(lambda event: None, "scale > 0")
        channel.subscribe(None, "value > 0", queue=Queue(limit=64, policy="drop_newest"))
        changing = channel.subscribe(lambda event: None, "value > 1")
        witness, done = Witness(), threading.Event()
        left = len(sources) - 1
        lock = threading.Lock()

        def publish(source: Source) -> None:
            nonlocal left
            try:
                publish_all(source, ROUNDS, batches, channel.type)
            finally:
                with lock:
                    left -= 1
                    if not left:
                        done.set()

        def watch() -> None:
            while not done.is_set():
                witness.see(node.report())
            witness.see(node.report())

        def change() -> None:
            least = 0
            while not done.is_set():
                least = (least + 1) % 9
                changing.change(where=f"value > {least}")
                with channel.subscribe(lambda event: None, f"value > {least}") as passing:
                    counts = passing.counts
                    assert counts.evaluated == counts.passed + counts.rejected + counts.undecided
                with channel.source() as guest:
                    guest.publish(reading(least))

        with running(watch, change, *(lambda each=each: publish(each) for each in sources[:4])):  # type: ignore[misc]
            assert done.wait(GUARD)
        report = node.report()
        here = {each.name: each.counts for each in report.subscriptions}
        published = sum(each.published for each in report.sources if each.channel == channel.name)
        assert published == 4 * ROUNDS * 12
        everything = total([each.counts for each in report.channels])
        everywhere = total(list(here.values()))
        assert everything.evaluated >= everywhere.evaluated  # of subscriptions that are gone as well
        first = here["everything"]
        assert first.evaluated == first.passed == first.delivered


def test_three_sides_agree_at_any_time() -> None:
    """Sources, channels and subscriptions are read at the same points, so their sums are equal in every report."""
    with Node() as node:
        channel = node.channel("plant.reading", Reading)
        sources = [channel.source() for _ in range(3)]
        for where in INTERESTS[1:]:
            channel.subscribe(lambda event: None, where)
        done = threading.Event()

        def watch() -> None:
            while not done.is_set():
                report = node.report()
                sides = [total([each.counts for each in side]) for side in (report.sources, report.channels)]
                sides.append(total([each.counts for each in report.subscriptions]))
                for name in ("evaluated", "passed", "rejected", "undecided", "faults"):
                    assert len({str(getattr(side, name)) for side in sides}) == 1, (name, sides)

        def publish() -> None:
            try:
                with running(*(lambda each=each: publish_all(each, ROUNDS, True, channel.type) for each in sources)):  # type: ignore[misc]
                    pass
            finally:
                done.set()

        with running(watch, publish):
            assert done.wait(GUARD)


def test_batches_of_arrow_are_counted_source_by_source() -> None:
    with Node() as node:
        channel = node.channel("plant.reading", Reading)
        one, two = channel.source(), channel.source()
        sink = channel.subscribe(lambda event: None, "value / scale > 1")
        assert channel.type is not None
        batch = channel.type.to_arrow([reading(n) for n in range(24)])
        assert isinstance(batch, pa.RecordBatch)
        one.publish_many(batch)
        for n in range(24):
            two.publish(reading(n))
        a, b = (each.counts for each in node.report().sources)
        assert a == b and a.undecided > 0 and a.faulty > 0
        assert sink.counts.undecided == 2 * a.undecided and sink.counts.faults == {
            k: 2 * n for k, n in a.faults.items()
        }
        two.close()
        assert sink.counts.undecided == 2 * a.undecided
        one.publish_many(batch)
        assert sink.counts.undecided == 3 * a.undecided
