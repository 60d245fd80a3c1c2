"""Growth: real runs of every part; and, in the soak, exact counts in every arrangement of nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.interest import Interest
from headwater.match import Matcher
from headwater.study.report.table import Table
from headwater_studies.fleet.subscribing import EVENTS, TYPE, Load
from headwater_studies.growth.nodes import nodes
from headwater_studies.growth.pairs import sinks, sources
from headwater_studies.growth.small_federations import BATCH, RealRun, _handled, real_runs, runs_of, typical
from headwater_studies.growth.subscriptions import subscriptions
from headwater_studies.harness.bench import Bench, Found
from headwater_studies.harness.result import Plot, Result
from tests.effort import examples


def tables(found: Found) -> dict[str, Table]:
    return {block.name: block for section in found.sections for block in section.blocks if isinstance(block, Table)}


def column(table: Table, title: str) -> list[object]:
    at = [each.title for each in table.columns].index(title)
    return [row.values[at] for row in table.rows]


def whole(found: Found) -> None:
    """It can be shown, written and read again, and every section says how it came about."""
    result = Result(
        name="interests",
        title="",
        lead="",
        command="",
        begun="",
        seconds=0.0,
        sections=found.sections,
        ratios=found.ratios,
        costs=found.costs,
    )
    assert Result.from_json(result.to_json()) == result
    assert all(section.command and section.repetitions for section in found.sections)
    assert all(value >= 0 for value in found.costs.values())


# ── subscriptions ──


def test_subscriptions(bench: Bench) -> None:
    found = subscriptions(bench)
    whole(found)
    matching = tables(found)["growth-subscriptions"]
    assert column(matching, "subscriptions") == [1, 10, 100] * 3
    assert column(matching, "want an event")[:3] == [1, 1, 1] and column(matching, "want an event")[6:] == [0, 0, 0]
    at_channel = tables(found)["growth-channel"]
    assert column(at_channel, "come to subscribers, for each event")[:3] == [1, 1, 1]
    assert len(found.ratios) == 6 and all(factor > 0 for ratio in found.ratios for factor in ratio.factors)
    (plot,) = [block for section in found.sections for block in section.blocks if isinstance(block, Plot)]
    assert plot.x.log and plot.y.log
    assert all([x for x, _ in series.points] == [1, 10, 100] for series in plot.series)


@settings(max_examples=examples(15), deadline=None)
@given(st.sampled_from(["keys", "ranges", "same"]), st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_entries_as_arrays_are_those_as_texts(kind: str, count: int, seed: int) -> None:
    load = Load(kind, count, seed)
    matcher = Matcher(TYPE)
    matcher.add_ranges(**load.rows())
    match = matcher.snapshot().match
    some = np.random.default_rng(seed).integers(0, count, 5).tolist()
    interests = {number: Interest(load.text(number), TYPE) for number in some}
    for at in range(0, EVENTS, 12):
        hits = set(match(load.records[at]))
        assert len(hits) == load.wanted(at)
        assert {number for number in some if number in hits} == {
            number for number, interest in interests.items() if interest.test(load.records[at])
        }


# ── sources and sinks ──


def test_sources(bench: Bench) -> None:
    found = sources(bench)
    whole(found)
    table = tables(found)["growth-sources"]
    assert column(table, "sources") == [1, 10, 50]
    assert all(isinstance(size, float) and size > 64 for size in column(table, "bytes for an event"))
    assert len(found.ratios) == 1


def test_sinks_of_one_node_get_what_crosses_once(bench: Bench) -> None:
    found = sinks(bench)
    whole(found)
    table = tables(found)["growth-sinks"]
    assert column(table, "sinks") == [1, 10, 50] * 2
    assert column(table, "crossed, for each published") == [1.0] * 6


# ── nodes ──


@pytest.mark.soak
def test_nodes(bench: Bench) -> None:
    found = nodes(bench)
    whole(found)
    costs = found.costs
    # With everything wanted: one message to each, one datagram, two for each through a router, and one for each gateway
    # and each leaf; with a share each: one to who wants it, and one more where something is between.
    everything = {"p2p": (3, 3.0), "multicast": (3, 1.0), "centralised": (3, 6.0), "tree": (3, 6.0)}
    shares = {"p2p": (3, 1.0), "multicast": (3, 1.0), "centralised": (3, 2.0), "tree": (3, 2.0)}
    for expected, suffix in ((everything, ""), (shares, "_split")):
        for name, (count, messages) in expected.items():
            assert costs[f"{name}_messages_per_event_n{count}{suffix}"] == messages, name
    assert costs["tree_source_messages_per_event_n3"] == 3.0 and costs["tree_source_messages_per_event_n3_split"] == 1.0
    assert costs["tree_busiest_n3"] == 0.5
    size = costs["bytes_per_event"]
    assert size == 64 + costs["frame_overhead_bytes"] > 64
    assert costs["p2p_bytes_per_event_n3"] == pytest.approx(3 * size, rel=0.1)
    assert costs["tree_bytes_per_event_n3"] == pytest.approx(6 * size, rel=0.1)
    assert 64 < costs["bytes_per_event_batched"] < size < costs["datagram_bytes"] < 2 * size
    for name in ("cpu_publish", "cpu_per_node_frame", "cpu_receive", "latency_first", "latency_more_node"):
        assert name in costs
    assert all(number > 0 for number in column(tables(found)["growth-joined"], "messages beside events"))  # type: ignore[operator]


def test_what_a_model_is_checked_by_are_the_runs_of_growth(bench: Bench) -> None:
    runs = runs_of(bench, "peer to peer", 3)
    again = real_runs(bench, topologies=["peer to peer"], sizes=[3])
    assert set(again) <= set(runs)
    assert [(run.split, run.paced, run.rows) for run in again] == [
        (split, paced, rows) for split in (False, True) for paced, rows in ((True, 1), (False, 1), (False, BATCH))
    ]
    for run in again:
        copies = 1 if run.split else 3
        assert run.delivered == run.events * copies
        if run.paced:  # one message to each who wants it
            assert run.messages == run.source_messages == run.delivered


RUN = RealRun(
    topology="peer to peer",
    nodes=2,
    events=10,
    wanted=1.0,
    split=False,
    paced=True,
    rows=1,
    delivered=20,
    messages=20,
    source_messages=20,
    bytes=2_100,
    source_bytes=2_100,
    busiest=1.0,
    control=22,
    control_bytes=4_000,
    source_cpu=0.001,
    middle_cpu=0.0,
    nodes_cpu=0.002,
    seconds=0.1,
    last_latency=0.0001,
)


@given(st.lists(st.floats(0.001, 10.0), min_size=1, max_size=9))
def test_a_typical_run_is_in_the_middle(seconds: list[float]) -> None:
    runs = [replace(RUN, seconds=each) for each in seconds]
    other = replace(RUN, nodes=3)
    assert [run.seconds for run in typical([*runs, other])] == [sorted(seconds)[len(seconds) // 2], RUN.seconds]
    assert RUN.per_event == 2.0


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ({"near>a": 5, "near>b": 5}, {"near": 10, "a": 5, "b": 5}),
        ({"near>up-leaf0": 2, "down-leaf0>a": 2, "down-leaf0>b": 1}, {"near": 2, "leaf0": 5, "a": 2, "b": 1}),
    ],
)
def test_the_two_nodes_of_a_gateway_are_one(frames: dict[str, int], expected: dict[str, int]) -> None:
    assert _handled(Counter(frames)) == expected
