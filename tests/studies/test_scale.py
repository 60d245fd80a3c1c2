"""The model of larger federations: against small ones that are gone through node by node, and over a real log."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st

from headwater.errors import ConfigError, ExecutionError
from headwater.interest import Interest, as_event_type
from headwater.spark.backtest import Subscription, backtest
from headwater_studies.scale import TOPOLOGIES, Costs, Grown, Scenario, grow, grow_each, recorded
from headwater_studies.scale.recorded import Class, Recorded
from headwater_studies.scale.shapes import World
from tests.effort import rounds
from tests.spark.backtest.support import rows_of, write_log
from tests.spark.support import sample
from tests.studies.enumerated import Enumerated

CHANNEL = "orl.sighting"
TYPE = as_event_type("badge: text, level: f64?")
COSTS = Costs(publish=1e-5, send=3e-6, receive=2e-5, discard=7e-6, forward=4e-5, relay=2e-6, hop=1e-4, loss=0.01)


def recording(seed: int) -> Recorded:
    chance = Random(seed)
    nodes, count = chance.randint(1, 4), chance.randint(1, 7)
    classes = {}
    for number in range(chance.randint(1, 9)):
        role = chance.randrange(nodes)
        matched = tuple(j for j in range(count) if chance.random() < 0.4)
        # Numbers of events that tell the classes apart.
        classes[role, matched] = Class(role=role, matched=matched, events=number + 1, bytes=chance.randint(0, 500))
    return Recorded(
        nodes=tuple(f"n{number}" for number in range(nodes)),
        subscriptions=tuple(f"s{number}" for number in range(count)),
        at=tuple(chance.choice([None, *range(nodes)]) for _ in range(count)),
        classes=tuple(classes.values()),
        seconds=10.0,
    )


SCENARIOS = (
    Scenario(name="own site"),
    Scenario(name="few", kept=3),
    Scenario(name="some everywhere", everywhere=4),
    Scenario(name="few, some everywhere", kept=2, everywhere=6),
    Scenario(name="all everywhere", everywhere=1),
)
SIZES = (1, 2, 5, 11, 12, 29)
FANOUTS = (2, 3)


def agrees(found: Grown, small: Enumerated, seed: int) -> None:
    """Every figure of the model is what going through all nodes gives."""
    t = small.by[found.topology]
    nodes = small.all
    others = {node for node in [*t.sent, *t.got] if node not in small.asked}
    where = (seed, found.nodes, found.scenario, found.topology)
    assert (found.published, found.wanted, found.delivered) == (small.published, small.wanted, small.delivered), where
    assert found.messages == pytest.approx(sum(t.sent.values())), where
    assert found.bytes == pytest.approx(sum(t.out.values())), where
    assert found.source_messages == pytest.approx(sum(t.sent[node] for node in nodes)), where
    assert found.source_bytes == pytest.approx(sum(t.out[node] for node in nodes)), where
    assert found.received == pytest.approx(sum(t.got[node] for node in nodes)), where
    for load, some in ((found.node, nodes), (found.other, others)):
        assert load.sent == pytest.approx(max((t.sent[node] for node in some), default=0)), where
        assert load.received == pytest.approx(max((t.got[node] for node in some), default=0)), where
        assert load.bytes == pytest.approx(max((max(t.out[node], t.into[node]) for node in some), default=0)), where
        assert load.cpu == pytest.approx(max((small.cpu(found.topology, node) for node in some), default=0.0)), where
    if small.wanted:
        assert found.latency == pytest.approx(t.late / small.wanted), where
    else:
        assert found.latency is None


def test_model_agrees_with_going_through_all_nodes(spark: Any) -> None:
    """All recordings, sizes, scenarios and fanouts in one job: a job is dear."""
    seeds = sample(st.integers(0, 2**32), rounds(2, 8))
    known = [recording(seed) for seed in seeds]
    cases = [
        ((each, size, scenario), fanout)
        for each in known
        for size in SIZES
        for scenario in SCENARIOS
        for fanout in FANOUTS
    ]
    federations, fanouts = zip(*cases, strict=True)
    found = iter(grow_each(spark, federations, COSTS, fanout=fanouts))
    for (each, size, scenario), fanout in cases:
        small = Enumerated(each, size, scenario, COSTS, fanout)
        for topology in TOPOLOGIES:
            row = next(found)
            assert (row.nodes, row.scenario, row.topology) == (size, scenario.name, topology)
            agrees(row, small, seeds[known.index(each)])
    assert next(found, None) is None


@pytest.mark.parametrize("nodes", [1, 7, 36, 40, 1000])
def test_kinds_of_sites_and_groups_are_all_of_them(nodes: int) -> None:
    for scenario in (*SCENARIOS, Scenario(name="rare", everywhere=1000)):
        world = World(0, 0, nodes, scenario, 3, 7, 4)
        assert sum(size * times for _, size, times, _ in world.kinds()) == nodes
        for level in range(1, world.height + 1):
            groups = [group for group in world.groups() if group[0] == level]
            assert sum(times for _, _, times, _, _ in groups) == world.wide(level)
            assert sum(times * (high - low) for _, _, times, low, high in groups) == world.sites
        within: dict[tuple[int, int], int] = {}
        for level, kind, _, number in world.children():
            within[level, kind] = within.get((level, kind), 0) + number
        for level, kind, _, _, _ in world.groups():
            if level > 1:
                assert 1 <= within[level, kind] <= 4
        for level in range(2, world.height + 1):
            several = [(times, within[level, kind]) for at, kind, times, _, _ in world.groups() if at == level]
            assert sum(times * number for times, number in several) == world.wide(level - 1)


# ── over a log ──


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts = [
        rows_of(TYPE, "n1", "a", [{"badge": "anna", "level": 0.1 * i} for i in range(20)]),
        rows_of(TYPE, "n2", "b", [{"badge": "bo" if i % 3 else "anna", "level": None} for i in range(15)]),
    ]
    return write_log(tmp_path_factory.mktemp("log"), CHANNEL, TYPE, parts)


WANTED = [
    Subscription(name="everything", at="n2"),
    Subscription(name="anna", where="badge = 'anna'", at="n1"),
    Subscription(name="loud", where="level > 0.95", at="desk"),
]


def test_recorded_classes_are_what_a_backtest_counts(spark: Any, log: Path) -> None:
    known = recorded(spark, log, WANTED, channel=CHANNEL, nodes=["desk"])
    report = backtest(spark, log, WANTED, channel=CHANNEL)
    assert known.nodes == ("desk", "n1", "n2")
    assert known.at == (2, 1, 0)
    assert known.events == report.events == 35
    assert known.seconds == pytest.approx(19.0)
    for number, row in enumerate(report.subscriptions):
        mine = [each for each in known.classes if number in each.matched]
        assert sum(each.events for each in mine) == row.events
        assert sum(each.bytes for each in mine) == row.record_bytes
    found = grow(spark, known, [3], [Scenario(name="own site")], COSTS)
    peers, *_, multicast, _ = found
    assert peers.topology == "peer to peer" and multicast.topology == "multicast"
    assert (peers.messages, peers.bytes) == (report.merged.events, report.merged.bytes)
    assert peers.published == 35


def test_subscriptions_without_a_node_are_placed_the_same_every_time(spark: Any, log: Path) -> None:
    known = recorded(spark, log, [Subscription(name=f"s{i}") for i in range(50)], channel=CHANNEL, seconds=5)
    places = [known.place(number, 2) for number in range(50)]
    assert set(places) == {0, 1} and known.seconds == 5
    assert places == [known.place(number, 2) for number in range(50)]


def test_what_the_model_does_not_take_is_refused(spark: Any, log: Path) -> None:
    counting = Interest("{ static int n; n = n + 1; return n > 3; }", TYPE)
    with pytest.raises(ExecutionError, match="'counting', with state"):
        recorded(spark, log, [Subscription(name="counting", where=counting)], channel=CHANNEL)
    with pytest.raises(ConfigError, match="channel: expected the name"):
        recorded(spark, log, WANTED)
    known = recorded(spark, log, WANTED, channel=CHANNEL)
    own = [Scenario(name="own site")]
    with pytest.raises(ConfigError, match="sizes"):
        grow(spark, known, [0], own, COSTS)
    with pytest.raises(ConfigError, match="fanout"):
        grow(spark, known, [1], own, COSTS, fanout=1)
    with pytest.raises(ConfigError, match="at least one size"):
        grow(spark, known, [], own, COSTS)
    with pytest.raises(ConfigError, match="everywhere"):
        Scenario(name="x", everywhere=-1)
    with pytest.raises(ConfigError, match="hop"):
        Costs(publish=0, send=0, receive=0, discard=0, forward=0, relay=0, hop=-1.0)
