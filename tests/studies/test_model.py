"""The part `model` of the study of growth: run for real, short, in the soak; and its formulas. Its job on Spark is in
test_scale.py."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.study.report.html import Notes
from headwater.study.report.table import Table
from headwater_studies.harness.bench import Bench
from headwater_studies.harness.result import Plot, Result
from headwater_studies.model.part import model
from headwater_studies.model.run import QUICK_SIZES, SCENARIOS, crossing, peers_of
from headwater_studies.scale import TOPOLOGIES
from tests.effort import examples


@pytest.mark.soak
@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(900)  # it starts processes, on machines that do other work
def test_model_is_computed_and_agrees_with_real_nodes(bench: Bench) -> None:
    found = model(bench)
    assert not found.not_run
    assert [section.key for section in found.sections] == ["model", "model-check"]
    tables: dict[str, Table] = {
        block.name: block for section in found.sections for block in section.blocks if isinstance(block, Table)
    }
    everything = tables["model-all"]
    assert len(everything.rows) == len(QUICK_SIZES) * len(SCENARIOS) * len(TOPOLOGIES)
    at = {column.title: number for number, column in enumerate(everything.columns)}
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {row.values[:3]: row.values for row in everything.rows}
    for scenario, size in itertools.product(SCENARIOS, QUICK_SIZES):
        sent = {topology: rows[scenario.name, size, topology][at["messages an event"]] for topology in TOPOLOGIES}
        assert sent["router"] == pytest.approx(2 * sent["peer to peer"])
        assert sent["centralised"] == pytest.approx(1 + sent["peer to peer"])
        assert sent["centralised, filtered"] <= sent["centralised"]
        assert sent["tree"] >= sent["peer to peer"]
        assert all(value is not None for value in rows[scenario.name, size, "tree"][:4])
    million = [rows["all everywhere", 1_000_000, topology][at["busiest"]] for topology in ("centralised", "router")]
    assert million == ["the centre", "the router"]
    assert len(tables["model-limits"].rows) == len(SCENARIOS) * len(TOPOLOGIES)

    checked = tables["model-check"]
    assert {row.values[0] for row in checked.rows} == {"peer to peer", "multicast", "router", "tree"}
    assert checked.equal, [row.values for row in checked.rows]  # messages, exactly
    for row in checked.rows:
        if row.values[0] != "router":
            assert abs(row.values[8]) < 10, row.values  # percent of the bytes

    blocks = [block for section in found.sections for block in section.blocks]
    assert any(isinstance(block, Notes) and len(block.items) > 5 for block in blocks)
    plots = [block for block in blocks if isinstance(block, Plot)]
    assert plots and all(series.dashed for plot in plots for series in plot.series)
    assert all(value > 0 for value in found.costs.values()) and "model.send" in found.costs
    result = Result(
        name="interests", title="Growth", lead="", command="", begun="", seconds=1.0,
        sections=found.sections, costs=found.costs,
    )  # fmt: skip
    assert Result.from_json(result.to_json()) == result


@given(st.integers(1, 200), st.integers(1, 6), st.integers(2, 4))
@settings(max_examples=examples(60), deadline=None)
def test_those_who_know_each_other_in_a_tree(nodes: int, site: int, fanout: int) -> None:
    """Beside going through all federations of the tree."""
    known: dict[Any, set[Any]] = {}
    at = {("node", node): node // site for node in range(nodes)}
    federations: list[list[Any]] = []
    level, here = 1, at
    while True:
        groups: dict[int, list[Any]] = {}
        for member, group in here.items():
            groups.setdefault(group, []).append(member)
        if len(groups) == 1:
            federations.append(list(here))
            break
        gateways = {("gateway", level, group): group // fanout for group in groups}
        federations += [[*members, ("gateway", level, group)] for group, members in groups.items()]
        level, here = level + 1, gateways
    for members in federations:
        for member in members:
            known.setdefault(member, set()).update(other for other in members if other != member)
    most, pairs = peers_of(nodes, site, fanout=fanout)
    assert most == max(map(len, known.values()))
    assert pairs == sum(map(len, known.values()))


def test_where_a_load_reaches_one() -> None:
    assert crossing([(10.0, 0.01), (100.0, 0.1), (1000.0, 10.0)]) == pytest.approx(316.23, rel=1e-3)
    assert crossing([(10.0, 2.0), (100.0, 3.0)]) == 10.0
    assert crossing([(10.0, 0.0), (100.0, 0.5)]) is None
