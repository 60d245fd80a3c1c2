"""Latency: every system really runs and loses nothing; statistics, bins and multiples are right on any samples."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.study.report.table import Table
from headwater_studies.fleet import tcp_c
from headwater_studies.fleet.worker import times
from headwater_studies.harness.bench import Bench, Found
from headwater_studies.harness.result import Plot, Result
from headwater_studies.latency import round_trips, round_trips_page
from headwater_studies.latency.consumers import CENTRALISED as CENTRAL_CONSUMERS
from headwater_studies.latency.consumers import FEDERATED as FEDERATED_CONSUMERS
from headwater_studies.latency.consumers import ON_NODES, ROUTED_NODES, consumers
from headwater_studies.latency.pairs import CENTRALISED, FEDERATED, OPENED, TCP, TCP_C, ZENOH, Samples
from headwater_studies.latency.samples import BINS, bins, histogram, summary
from tests.effort import examples

FEW = settings(deadline=None, max_examples=examples(60))
some = st.lists(st.floats(1e-6, 1e-1), min_size=1, max_size=200).map(np.array)


def tables(found: Found) -> dict[str, Table]:
    return {it.name: it for section in found.sections for it in section.blocks if isinstance(it, Table)}


def plots(found: Found) -> dict[str, Plot]:
    return {it.name: it for section in found.sections for it in section.blocks if isinstance(it, Plot)}


def reread(found: Found) -> None:
    """What was found survives a file."""
    result = Result(
        name="latency", title="t", lead="l", command="c", begun="now", seconds=1.0,
        sections=found.sections, ratios=found.ratios, costs=found.costs, not_run=found.not_run,
    )  # fmt: skip
    assert Result.from_json(result.to_json()) == result


# ── the real thing ──


def test_every_system_makes_all_its_round_trips(bench: Bench) -> None:
    found = round_trips.samples(bench)
    assert not found.not_run or set(found.not_run) == {TCP_C}
    ran = [name for name in OPENED if name not in found.not_run]

    rows = tables(found)["latency"].rows
    assert [row.values[0] for row in rows] == [*ran, *(f"TAO: {each.name}" for each in round_trips_page.TAO)]
    for row in rows[: len(ran)]:
        _, average, least, most, jitter, p50, p99, p999, one, two, _ = row.values
        assert 0 < least <= p50 <= p99 <= p999 <= most
        assert least <= average <= most and jitter >= 0
        assert 0 < one <= two <= 100
    assert all("500 samples" in section.repetitions for section in found.sections)

    overhead = {row.values[0]: row.values for row in tables(found)["overhead"].rows}
    assert overhead[TCP][4] == 1.0
    if TCP_C in ran:
        assert overhead[TCP_C][2] == 1.0
        assert overhead[FEDERATED][2] == pytest.approx(overhead[FEDERATED][1] / overhead[TCP_C][1])
    assert [round(overhead[name][8], 1) for name in (ZENOH, CENTRALISED, FEDERATED)] == [2.1, 2.8, 3.7]

    histogram, cumulative = plots(found)["latency-histogram"], plots(found)["latency-cumulative"]
    assert [each.name for each in histogram.series] == [each.name for each in cumulative.series] == ran
    for each in histogram.series:
        assert 99.0 <= math.fsum(share for _, share in each.points[:-1]) <= 100.0 + 1e-6
    for each in cumulative.series:
        assert each.points == tuple(sorted(each.points))

    references = {(ratio.case, ratio.reference) for ratio in found.ratios}
    assert len(references) == len(found.ratios) == (7 if TCP_C in ran else 5)
    assert all(len(ratio.ours) == bench.rounds and ratio.why for ratio in found.ratios)
    assert found.costs["one_way"] * 2 == found.costs["round_trip"]
    assert all(cost > 0 for cost in found.costs.values())
    reread(found)


def test_the_last_of_several_consumers(bench: Bench) -> None:
    found = consumers(bench)
    ways = [FEDERATED_CONSUMERS, CENTRAL_CONSUMERS, ON_NODES, ROUTED_NODES]
    slopes = tables(found)["consumers"].rows
    assert [row.values[0] for row in slopes[:4]] == ways
    assert [round(row.values[4], 3) for row in slopes[4:]] == [0.092, 2.218]  # TAO's, in its TCP round trips

    points = {(row.values[0], row.values[1]) for row in tables(found)["consumers-points"].rows}
    assert points == {(way, count) for way in ways[:2] for count in (5, 20)} | {
        (way, count) for way in ways[2:] for count in (1, 3)
    }
    for plot in plots(found).values():
        measured, lines = plot.series[::2], plot.series[1::2]
        assert all(len(each.band) == len(each.points) == 2 for each in measured)
        for each, line in zip(measured, lines, strict=True):  # through two points the line is exact
            assert line.dashed
            assert [y for _, y in line.points] == pytest.approx([y for _, y in each.points])
    assert set(found.costs) == {"per_consumer", "per_node", "routed_per_node"}
    assert all(cost >= 0 for cost in found.costs.values())
    reread(found)


def test_without_a_compiler_the_rest_runs(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert tcp_c.compiler() is None and tcp_c.version() == ""
    with pytest.raises(tcp_c.NoCompiler, match="no C compiler"):
        tcp_c.build(tmp_path)
    made = np.array([1e-4, 2e-4, 3e-4])
    found = round_trips_page.reported({name: [made] for name in OPENED if name != TCP_C}, {TCP_C: "no C compiler"})
    assert found.not_run == {TCP_C: "no C compiler"}
    assert TCP_C not in {ratio.reference for ratio in found.ratios}
    assert {row.values[2] for row in tables(found)["overhead"].rows} == {None}
    assert found.costs["tcp_round_trip"] == 2e-4


def test_a_compiler_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no space left >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(tcp_c.NoCompiler, match=r"broken ended with code 3: no space left"):
        tcp_c.build(tmp_path)


# ── on any samples ──


@FEW
@given(some)
def test_a_summary_is_that_of_the_samples(samples: Samples) -> None:
    it = summary(samples)
    values = [float(each) for each in samples]
    assert it.count == len(values)
    assert (it.least, it.most) == (min(values), max(values))
    assert it.average == pytest.approx(statistics.fmean(values))
    assert it.jitter == pytest.approx(statistics.pstdev(values), abs=1e-12)
    assert it.p50 == pytest.approx(statistics.median(values))
    assert it.p50 <= it.p99 <= it.p999 <= it.most
    limit = it.average + it.jitter
    assert it.one == pytest.approx(sum(value <= limit for value in values) / len(values) * 100)
    assert it.one <= it.two <= 100


@FEW
@given(st.lists(some, min_size=1, max_size=4))
def test_every_sample_is_in_one_bin_or_beyond_them(everything: list[Samples]) -> None:
    edges = bins(everything)
    assert len(edges) == BINS + 1 and all(np.diff(edges) > 0)
    for samples in everything:
        counts, beyond = histogram(samples, edges)
        assert sum(counts) + beyond == len(samples)
        assert beyond <= math.ceil(len(samples) * 0.001)


@FEW
@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=300))
def test_times_are_all_handed_back_in_order(nanoseconds: list[int]) -> None:
    found = times(nanoseconds)
    assert found["nanoseconds"] == nanoseconds
    assert min(nanoseconds) / 1e9 <= found["p50"] <= found["p99"] <= max(nanoseconds) / 1e9
