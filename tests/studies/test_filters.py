"""Moved code and where it pays: both parts for real, and their pure functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.interest import Interest
from headwater.study.report.table import Table
from headwater.types import event_type
from headwater_studies.filters import c_code
from headwater_studies.filters.breakeven import (
    EVENTS,
    MODULE,
    RATES,
    FilterPair,
    breakeven,
    crossing,
    published_break_even,
    said,
)
from headwater_studies.filters.code import NOTATIONS, code
from headwater_studies.filters.code_tables import FILTER, MEAN
from headwater_studies.fleet import filtering
from headwater_studies.fleet.filtering import KINDS, MANY, ONE, POOL, WIND, Average, Reading, Wind
from headwater_studies.fleet.tcp_c import compiler
from headwater_studies.harness.bench import Bench, Found
from headwater_studies.harness.result import Plot, Section


def tables(found: Found) -> dict[str, Table]:
    return {block.name: block for section in found.sections for block in section.blocks if isinstance(block, Table)}


def plots(found: Found) -> dict[str, Plot]:
    return {block.name: block for section in found.sections for block in section.blocks if isinstance(block, Plot)}


def round_trip(found: Found) -> None:
    for section in found.sections:
        assert msgspec.json.decode(msgspec.json.encode(section), type=Section) == section


# ── the parts ──


def test_code_is_made_run_and_compared(bench: Bench) -> None:
    found = code(bench)
    round_trip(found)
    made = tables(found)
    rows = [row.values for row in made["code-making"].rows]
    for name, notation, _ in NOTATIONS:
        row = next(each for each in rows if each[:2] == (name, notation))
        assert all(isinstance(value, float) and value > 0 for value in (row[2], row[3], row[5], row[7]))
        assert row[4] == ("table" if name == FILTER else "interpreter")
        assert row[5] >= row[7]  # type: ignore[operator]
    running = {row.values[:2]: row.values[2:] for row in made["code-running"].rows}
    sending = dict(zip((FILTER, MEAN), (row.values[1] for row in made["code-sending"].rows), strict=True))
    for (program, way), (seconds, _, share) in running.items():
        if "ECho" in str(way):
            assert share == pytest.approx(60.0 if program == FILTER else 1.6 / 1.1 * 100)
        else:
            assert share == pytest.approx(100 * seconds / sending[str(program)])  # type: ignore[operator]
    assert made["code-first"].rows[0].values[0] == FILTER
    assert set(found.costs) == {"evaluate", "evaluate_batch", "compile", "send_event", "receive_event"}
    assert all(value > 0 for value in found.costs.values())
    counts = {row.values[:2]: row.values[2] for row in made["code-instructions"].rows}
    assert counts[FILTER, "ECho 1999, Sparc"] == 21
    listing = [row.values[0] for row in made["code-listing"].rows if row.values[0] is not None]
    assert counts[FILTER, "ours"] == sum(not str(line).endswith(":") for line in listing)
    if compiler() is None:
        assert "the same programs in C" in found.not_run and found.ratios == ()
    else:
        assert len(found.ratios) == 5 and not found.not_run
        assert all(len(ratio.ours) in (1, bench.rounds) for ratio in found.ratios)


def test_without_a_compiler_c_is_not_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bench.folder))
    monkeypatch.delenv("CC", raising=False)
    found = code(bench)
    assert list(found.not_run) == ["the same programs in C"] and found.ratios == ()
    ways = [str(row.values[1]) for row in tables(found)["code-running"].rows]
    assert not any("C at -O2" in way or "from C" in way for way in ways)
    assert found.costs["evaluate"] > 0
    round_trip(found)


def test_the_break_even_is_measured_at_every_rate(bench: Bench) -> None:
    found = breakeven(bench)
    round_trip(found)
    made = tables(found)
    for kind in (ONE, MANY):
        n = bench.size(*EVENTS[kind])
        rows = [row.values for row in made[f"break-even-{kind}"].rows]
        assert [row[0] for row in rows] == [rate * 100 for rate in RATES]
        assert [row[9] for row in rows] == [n] * len(RATES)
        assert [row[10] for row in rows] == [round(n * (1 - rate)) for rate in RATES]
        assert all(row[7] > row[8] for row in rows[2:])  # type: ignore[operator] # bytes: what is rejected does not cross
        for name in ("sender", "all"):
            series = plots(found)[f"break-even-{kind}-{name}"].series
            assert all(len(each.points) == len(RATES) for each in series)
            assert all(each.band or each.dashed for each in series)
    whole, reduced = (row.values for row in made["break-even-wind"].rows)
    assert whole[7] == reduced[7] == bench.size(*EVENTS[WIND])
    assert whole[6] > 74_888 > 500 > reduced[6]  # type: ignore[operator]
    assert made["break-even"].rows[0].values[3] == "from 60.0 % rejected on"
    assert made["break-even"].rows[2].values[3] == "never"
    assert len(found.ratios) == 6 and all(len(each.ours) == bench.rounds for each in found.ratios)


def test_only_whole_pools_are_published(bench: Bench) -> None:
    pair = FilterPair(bench.start(MODULE), bench.start(MODULE))
    with pytest.raises(ValueError, match="multiple of 1,000"):
        pair.run(ONE, kept=True, n=1_001)
    assert pair.run(ONE, kept=True, n=1_000, rate=0.75).got == 250
    pair.check()
    pair.close()


# ── what is published ──


@given(kind=st.sampled_from((ONE, MANY)), rate=st.sampled_from(RATES))
def test_exactly_the_share_is_rejected(kind: str, rate: float) -> None:
    levels = filtering.levels(kind, rate)
    interest = Interest(filtering.SIMPLE, Reading)
    assert len(levels) == POOL[kind]
    assert sum(level <= filtering.LIMIT for level in levels) == pytest.approx(rate * POOL[kind], abs=1e-6)
    if kind == ONE:
        passing = [event for event in filtering.readings(rate) if interest.test(event)]
        assert sum(event.number for event in passing) == filtering.totals(kind, rate)
    else:
        rows = filtering.batches(rate, event_type(Reading).schema)
        assert sum(interest.select(each).counts.passed for each in rows) == POOL[kind] - filtering.rejected(kind, rate)


def test_the_average_is_the_same_at_both_ends() -> None:
    interest = Interest(filtering.AVERAGE, Wind, output=Average)
    running = interest.native().wait()
    outputs = [running.run(event_type(Wind).encode(event)).output for event in filtering.winds()]
    averages = [event_type(Average).decode(output).mean for output in outputs if output is not None]
    assert averages == [float(each) for each in range(POOL[WIND])]
    assert sum(averages) == filtering.totals(WIND, 0.0)


def test_the_events_are_as_large_as_published() -> None:
    header = 16
    assert len(event_type(Reading).encode(filtering.readings(0.5)[0])) == header + 64
    assert len(event_type(Wind).encode(filtering.winds()[0])) == header + 74_888
    assert set(EVENTS) == set(KINDS)
    assert all(size % POOL[kind] == 0 for kind, sizes in EVENTS.items() for size in sizes)


# ── where two lines meet ──


@given(
    run=st.floats(0.01, 10.0),
    send=st.floats(0.01, 10.0),
)
def test_interpolation_finds_what_the_formula_says(run: float, send: float) -> None:
    points = [(rate, run + (1 - rate) * send - send) for rate in (*RATES, 1.0)]
    formula, found = published_break_even(run, send), crossing(points)
    if formula is None:
        assert found is None or found == pytest.approx(1.0)
    else:
        assert found == pytest.approx(formula, abs=1e-6)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(0.0, -1.0), (1.0, -2.0)], 0.0),
        ([(0.0, 1.0), (1.0, 2.0)], None),
        ([(0.0, 1.0), (0.5, -1.0), (0.75, 1.0), (1.0, -1.0)], 0.875),
        ([(0.0, 2.0), (1.0, 0.0)], 1.0),
    ],
)
def test_it_pays_from_where_it_stays_so(points: list[tuple[float, float]], expected: float | None) -> None:
    assert crossing(points) == expected


def test_what_is_said() -> None:
    assert [said(each) for each in (None, 0.0, 0.6)] == ["never", "always", "from 60.0 % rejected on"]
    assert published_break_even(3e-6, 5e-6) == pytest.approx(0.6)
    assert published_break_even(1.6e-3, 1.1e-3) is None


# ── instructions ──

LISTING = """
	.text
	.globl	other
other:
	retq
	.size	other, .-other
run:                                    # @run
	.cfi_startproc
	movl	$1, %eax
	cmpq	$80, %rsi
	jne	.L3
	xorl	%eax, %eax	# nothing
.L3:
	retq
.Lfunc_end0:
	.size	run, .Lfunc_end0-run
	.section	.rodata
"""


def test_instructions_are_counted() -> None:
    lines = c_code.function(LISTING, "run")
    assert c_code.instructions(lines) == ["movl $1, %eax", "cmpq $80, %rsi", "jne .L3", "xorl %eax, %eax", "retq"]
    assert c_code.longest(lines) == 5
    assert c_code.longest(c_code.function(LISTING, "other")) == 1
    assert c_code.function(LISTING, "none") == [] and c_code.longest([]) is None


@pytest.mark.parametrize(
    ("lines", "most"),
    [
        (["a", "jmp .X", "b", ".X:", "ret"], 3),
        (["a", "je .X", "b", "c", "ret", ".X:", "ret"], 5),
        ([".X:", "a", "jne .X", "ret"], None),
        (["b.ne .X", ".X:", "br lr"], None),
    ],
)
def test_the_longest_way_through(lines: list[str], most: int | None) -> None:
    assert c_code.longest(lines) == most


def test_c_does_the_same(tmp_path: Path) -> None:
    if compiler() is None:
        return
    made: Any = c_code.Compiled(tmp_path)
    for level in (0.25, 0.5, 0.75, float("nan")):
        record = event_type(Reading).encode(Reading(level, 1.0, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5))
        passes = int(Interest(filtering.SIMPLE, Reading).test(record))
        assert made.call_c("simple", record, 3) == made.call_c("checked", record, 3) == 3 * passes
    made.call_c("average", event_type(Wind).encode(filtering.winds()[5]), 1)
    assert made.result() == 5.0
