"""The live result and the Spark result over the same events are one, row for row: random interests, with state and
without, on events that live nodes published and logged. Two nodes have sources of the same names."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from headwater import Interest, Log, Node
from headwater.channel.reports.counters import fault_name
from headwater.errors import InterestRefused
from headwater.ir.cost import Limits
from headwater.spark import LOG_META, choice, derive, from_dataframe, where
from headwater.spark.backtest import Subscription, backtest
from headwater.store.log import ChannelLog
from headwater.testing import ManualClock
from headwater.types import event_type
from tests import programs, strategies
from tests.effort import examples
from tests.spark.support import RICH, sample

# Of interests made at random, some pass nothing, or everything.
pytestmark = pytest.mark.filterwarnings("ignore::headwater.errors.HeadwaterWarning")
CHANNEL, TYPE = "test.rich", event_type(RICH)
SOME = examples(3)
EVENTS = 60
EVERY_SECOND = "{ static int n = 0; n = n + 1; return n % 2 == 0; }"


def interests(strategy: Any, *, stateful: bool) -> list[Interest]:
    made = []
    for case in sample(strategy, 8 * SOME):
        try:
            it = Interest.from_program(case.program, case.params, limits=Limits(fuel=programs.FUEL))
        except InterestRefused:
            continue
        if it.program.stateful == stateful:
            made.append(it)
    return made[:SOME]


class Live:
    """What two nodes delivered, and what they counted."""

    def __init__(self, root: Path, wanted: list[Interest]) -> None:
        self.root, self.wanted = root, wanted
        self.events = sample(strategies.raw_events(RICH), EVENTS)
        self.got: list[list[tuple[Any, ...]]] = [[] for _ in wanted]
        self.counts: list[Counter[str]] = [Counter() for _ in wanted]
        for name in ("n1", "n2"):
            self.run(name)

    def run(self, name: str) -> None:
        clock = ManualClock()
        with Node(name, clock=clock, log=Log(self.root, rest_seconds=0)) as node:
            channel = node.channel(CHANNEL, TYPE)
            asked = []
            for number, interest in enumerate(self.wanted):

                def handler(event: Any, about: Any, number: int = number) -> None:
                    self.got[number].append((name, about.source, about.seq, event))

                asked.append(channel.subscribe(handler, interest))
            sources = [channel.source(source) for source in ("s", "t")]
            for at, event in enumerate(self.events):
                clock.advance(0.001)
                sources[at % 3 % 2].publish(event)
            clock.advance(1)
            sources[0].publish_many(TYPE.to_arrow(self.events))
            for number, made in enumerate(asked):
                self.count(number, made.counts)

    def count(self, number: int, counts: Any) -> None:
        sums = self.counts[number]
        for what in ("evaluated", "passed", "rejected", "undecided"):
            sums[what] += getattr(counts, what)
        for fault, count in counts.faults.items():
            sums[fault_name(fault)] += count

    def rest(self) -> None:
        """Everything comes to rest as Parquet."""
        for name in ("n1", "n2"):
            log = ChannelLog.open(Log(self.root), CHANNEL, name, TYPE)
            log.roll(wait=True)
            log.close()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Live:
    every_second = Interest(EVERY_SECOND, TYPE)
    some = [
        *interests(programs.predicates(RICH), stateful=False),
        *interests(programs.filters(RICH), stateful=False),
        *interests(programs.filters(RICH), stateful=True),
        *interests(programs.transforms(RICH), stateful=False),
        *interests(programs.transforms(RICH), stateful=True),
        every_second,
    ]
    return Live(tmp_path_factory.mktemp("live"), some)


@pytest.fixture(scope="module")
def counted(spark: Any, live: Live) -> Any:
    """A backtest of the same interests, while the events are not at rest yet."""
    given = [Subscription(name=f"w{i}", where=interest) for i, interest in enumerate(live.wanted)]
    found = backtest(spark, live.root, given)
    assert plainly(found) == plainly(backtest(None, live.root, given))
    return given, found


def plainly(report: Any) -> dict[str, Any]:
    """All of a report but what differs from run to run."""
    return {key: value for key, value in report.to_dict().items() if key not in ("seconds", "engine", "how")}


@pytest.fixture(scope="module")
def rows(spark: Any, live: Live, counted: Any) -> Any:
    live.rest()
    made = spark.read.parquet(str(live.root / CHANNEL)).cache()
    assert made.count() == 4 * EVENTS
    return made


def test_every_row_is_there_with_what_the_service_knew(rows: Any) -> None:
    found = {(r.event_node, r.event_source, r.event_seq) for r in rows.select(*LOG_META.values()).collect()}
    assert len(found) == rows.count()


def test_filters_pass_the_same_rows(live: Live, rows: Any) -> None:
    for number, interest in enumerate(live.wanted):
        if interest.output is None:
            keys = [LOG_META[which] for which in ("node", "source", "seq")]
            found = sorted(tuple(r) for r in where(rows, interest).select(*keys).collect())
            assert found == sorted(row[:3] for row in live.got[number]), (choice(interest), interest.program.body)


def test_transformations_give_the_same_events(live: Live, rows: Any) -> None:
    for number, interest in enumerate(live.wanted):
        if interest.output is not None:
            made = from_dataframe(derive(rows, interest), interest.output)
            found = Counter(map(repr, interest.output.arrow_to_raw(made)))
            expected = Counter(repr(interest.output.to_raw(row[3])) for row in live.got[number])
            assert found == expected, (choice(interest), interest.program.body)


def test_two_nodes_with_sources_of_one_name_have_a_state_each(live: Live, rows: Any) -> None:
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in where(rows, live.wanted[-1]).select("event_node", "event_source", "event_seq").collect():
        found[row.event_node, row.event_source].append(row.event_seq)
    assert set(found) == {("n1", "s"), ("n1", "t"), ("n2", "s"), ("n2", "t")}
    assert all(seq % 2 == 0 for seqs in found.values() for seq in seqs)


def test_a_backtest_counts_what_the_service_counted(spark: Any, live: Live, counted: Any, rows: Any) -> None:
    given, before = counted
    assert any("not at rest" in note for note in before.notes)
    after, here = backtest(spark, live.root, given), backtest(None, live.root, given)
    assert (after.engine, here.engine) == ("spark", "local")
    of_frame = backtest(spark, rows, given, type=TYPE)
    for number, sums in enumerate(live.counts):
        for found in (before, after, of_frame, here):
            row = found.subscriptions[number]
            got = {"evaluated": row.evaluated, "passed": row.passed, "rejected": row.rejected,
                   "undecided": row.undecided, **row.faults}  # fmt: skip
            assert +Counter(got) == +sums, live.wanted[number].program.body
    assert before.links == after.links == of_frame.links and before.times == after.times == of_frame.times
    assert plainly(here) == plainly(after)


def test_stateless_subscriptions_are_read_from_the_files(spark: Any, live: Live, rows: Any) -> None:
    some = [Subscription(name=f"w{i}", where=it) for i, it in enumerate(live.wanted) if not it.program.stateful]
    found, of_frame = backtest(spark, live.root, some), backtest(spark, rows, some, type=TYPE)
    assert not found.notes and plainly(found) == plainly(backtest(None, live.root, some))
    assert (found.subscriptions, found.links, found.sources) == (
        of_frame.subscriptions,
        of_frame.links,
        of_frame.sources,
    )
    assert [row.events for row in found.subscriptions] == [
        len(live.got[number]) for number, it in enumerate(live.wanted) if not it.program.stateful
    ]


def test_strategies_made_something_of_every_kind(live: Live) -> None:
    kinds = Counter((it.output is not None, it.program.stateful) for it in live.wanted)
    assert len(kinds) == 4
