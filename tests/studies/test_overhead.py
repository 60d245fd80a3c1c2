"""What operations, administration and moved code cost: short runs of the real thing, in the soak, and the
formulas beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.interest import Interest
from headwater.study.report.table import Table, Value
from headwater.types import event_type
from headwater_studies.fleet.node import Sample, sample
from headwater_studies.harness.bench import Bench, Found
from headwater_studies.harness.result import Bars, Plot, Result
from headwater_studies.overhead.administration import administration
from headwater_studies.overhead.footprint import SECO, WEIGH, footprint
from headwater_studies.overhead.notices import Count, cases, formula
from headwater_studies.overhead.operations import KINDS, operations, wheres
from headwater_studies.overhead.seco_messages import (
    seco_distribution,
    seco_distribution_multicast,
    seco_filtering,
    seco_filtering_multicast,
    talk,
)


def table(found: Found, name: str) -> Table:
    return next(
        block
        for section in found.sections
        for block in section.blocks
        if isinstance(block, Table) and block.name == name
    )


def column(table: Table, title: str, group: str = "") -> Sequence[Value]:
    at = next(
        number
        for number, each in enumerate(table.columns)
        if each.title == title and (not group or each.group == group)
    )
    return [row.values[at] for row in table.rows]


def whole(found: Found) -> None:
    """It can be written and read again, and everything says how it was made."""
    result = Result(
        name="overhead", title="", lead="", command="", begun="", seconds=0.0, sections=found.sections,
        ratios=found.ratios, versions=found.versions, not_run=found.not_run, costs=found.costs,
    )  # fmt: skip
    assert Result.from_json(result.to_json()) == result
    for section in found.sections:
        assert section.command.startswith("headwater study overhead --part ") and section.repetitions
        names = [block.name for block in section.blocks if isinstance(block, Table | Plot | Bars)]
        assert len(names) == len(set(names))


@pytest.mark.soak
def test_operations(bench: Bench) -> None:
    found = operations(bench)
    whole(found)
    for call, done in (("subscribe", "in force"), ("unsubscribe", "withdrawn")):
        made = table(found, f"operations-{call}")
        assert column(made, "with") == [kind for kind in KINDS for _ in range(3)]
        assert column(made, "sources") == [0, 1, 2] * len(KINDS)
        for returned, all_have in zip(column(made, "the call returns"), column(made, done), strict=True):
            assert isinstance(returned, float) and isinstance(all_have, float)
            assert 0 < returned <= all_have
    advertised = table(found, "operations-advertise")
    assert column(advertised, "operation") == ["advertise", "unadvertise"]
    for one, last in zip(column(advertised, "another node knows"), column(advertised, "all others know"), strict=True):
        assert isinstance(one, float) and isinstance(last, float) and 0 < one <= last
    calls = table(found, "operations-invocations")
    for how, ours, theirs in zip(
        column(calls, "published"), column(calls, "together"), column(calls, "Mobile 6.4"), strict=True
    ):
        assert isinstance(ours, float) and isinstance(theirs, float)
        assert ours == theirs if how == "one by one" else ours < theirs
    assert {"subscribe", "notify_one_node", "notify_more_node", "frame_bytes"} <= set(found.costs)
    assert found.costs["frame_bytes"] > 64
    assert {ratio.reference for ratio in found.ratios} == {"the formula of Mobile 6.4"}


@pytest.mark.soak
def test_administration(bench: Bench) -> None:
    found = administration(bench)
    whole(found)
    came = table(found, "administration-distribution")
    for n, said, lives in zip(
        column(came, "nodes"),
        column(came, "messages said"),
        column(came, "of these signs of life and their ends"),
        strict=True,
    ):
        assert isinstance(n, int) and isinstance(said, int)
        # Each pair that missed the other's roll call makes up for it with a question and an answer, or both ask.
        assert (n * n + 5 * n) // 2 <= said <= (n * n + 5 * n) // 2 + 2 * n * (n - 1)
        assert lives == n * (n - 1) + n * (n - 1) // 2
    wanted = table(found, "administration-filtering")
    rows = zip(
        column(wanted, "nodes"), column(wanted, "subscriptions"), column(wanted, "made"), column(wanted, "messages"),
        column(wanted, "unicast: 4m(n − 1)"), strict=True,
    )  # fmt: skip
    for n, m, how, messages, seco in rows:
        assert isinstance(n, int) and isinstance(m, int) and isinstance(messages, int) and isinstance(seco, int)
        assert seco == seco_filtering(m, n)
        match how:
            case "one after the other":
                assert messages == seco
            case "covered by the first":
                assert messages == 4 * (n - 1)
            case _:
                assert 4 * (n - 1) <= messages <= seco
    told = table(found, "administration-multicast")
    for nodes, how, frames, datagrams in zip(
        column(told, "nodes that want the events"), column(told, "sent over"), column(told, "frames"),
        column(told, "datagrams"), strict=True,
    ):  # fmt: skip
        assert (frames, datagrams) == ((nodes, 0) if how == "streams" else (0, 1))
    assert found.costs["control_message_bytes"] > 0


@pytest.mark.soak
def test_footprint(bench: Bench) -> None:
    found = footprint(bench)
    whole(found)
    code = table(found, "footprint-code")
    assert column(code, "constraint") == [each.name for each in SECO.values()]
    for travels, machine, theirs in zip(
        column(code, "serial form"), column(code, "machine code"), column(code, "n3: linked"), strict=True
    ):
        assert isinstance(travels, int) and isinstance(machine, int) and isinstance(theirs, int)
        assert 0 < travels < 200 and 0 < machine < theirs
    sizes = table(found, "footprint-disk")
    disk = dict(zip(column(sizes, "what"), column(sizes, "size"), strict=True))
    assert disk["SECO's class repository"] == 169_237
    ours = [disk[f"headwater.{part}"] for part in ("ir", "types", "native")]
    assert all(isinstance(each, int) and each > 10_000 for each in ours)
    resident = column(table(found, "footprint-memory"), "in memory")
    assert len(resident) == 5 and resident[0] == min(resident)  # type: ignore[type-var]


def test_the_interpreter_needs_no_compiler(tmp_path: Path) -> None:
    serial = Interest("pick * 2 + share > 3.5", Sample).dumps(with_text=False)
    path = tmp_path / "interests.hex"
    path.write_text("\n".join(each.hex() for each in (event_type(Sample).encode(sample(1)), serial, serial)))
    done = subprocess.run([sys.executable, "-P", str(WEIGH), str(path)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["interpreted without llvmlite"] and found["interests"] == 2 and found["code"] > 0


# ── formulas ──


@given(st.integers(1, 1_000), st.integers(0, 1_000))
def test_formulas_of_seco(n: int, m: int) -> None:
    assert seco_distribution(n) == 2 * n * n + 4 * n
    assert seco_distribution_multicast(n) == 8 * n - 2 <= seco_distribution(n)
    assert seco_filtering(m, n) == 2 * m * (n - 1) + 2 * m * (n - 1)
    assert seco_filtering(m, 2) >= seco_filtering_multicast(m) == 2 * m


@given(st.integers(0, 100), st.integers(0, 100))
def test_formula_of_mobile(nodes: int, sinks: int) -> None:
    assert formula(nodes, sinks) == 1 + nodes + nodes * sinks
    assert formula(0, sinks) == 1


@given(st.integers(2, 50), st.integers(1, 20))
def test_cases_fit_the_nodes_that_are_there(most: int, many: int) -> None:
    for case, events in cases(most, many).items():
        assert 0 <= case.wanting <= case.nodes <= max(most, 2) and case.sinks > 0 and events >= many


def test_invocations_are_calls_and_frames() -> None:
    assert Count(events=10, publishes=10, frames=20, bytes=1, handlers=40, formula=70).invocations == 70


@pytest.mark.parametrize("kind", KINDS)
def test_interests_differ(kind: str) -> None:
    made = [*wheres(kind, 0, 10), *wheres(kind, 10, 10)]
    assert made == [None] * 20 if kind == "no interest" else len(set(made)) == 20
    for each in made:
        assert each is None or Interest(each, Sample).program is not None


def test_what_was_said_between_two_counts() -> None:
    before = {"ask_out": 3, "ask_in": 2, "ask_bytes_in": 100, "stream_mark": 1, "loopback": 1_000}
    after = {"ask_out": 5, "ask_in": 4, "ask_bytes_in": 350, "stream_mark": 4, "loopback": 3_000}
    after |= {"join_in": 2, "leave_in": 1}
    found = talk(before, after, alone=True)
    assert (found.said, found.arrived, found.lives, found.bytes, found.frames, found.wire) == (2, 5, 3, 250, 3, 2_000)
    assert talk(before, after, alone=False).wire is None
