"""The published tables as data: they agree with the totals, and their percentages are judged rightly."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from headwater.study.badges.margins import BADGES, CATEGORIES, NETWORKS, SIGHTINGS
from headwater.study.badges.published_tables import (
    EYES,
    FOOTPRINT_AVERAGE,
    FOOTPRINTS,
    LINES,
    LINES_AVERAGE,
    MOBILE,
    SECO,
    rounded,
)


def test_seco_rows_are_the_margins() -> None:
    assert [row.events for row in SECO["7.1"].rows] == [SIGHTINGS]
    assert {row.name: row.events for row in SECO["7.2"].rows} == NETWORKS
    assert {row.name: row.events for row in EYES} == BADGES
    assert [len(SECO[number].rows) for number in ("7.3", "7.4", "7.5")] == [54, 54, 54]
    assert {row.name: row.events for row in SECO["7.6"].rows} == CATEGORIES
    for table in SECO.values():
        for row in table.rows:
            assert (row.unfiltered, row.overhead, row.total) == (71_622, 48, row.actual + 48)


def test_percentages_that_are_printed_wrongly() -> None:
    wrong = {number: [row for row in table.rows if row.wrong] for number, table in SECO.items()}
    assert {number: len(rows) for number, rows in wrong.items()} == {
        "7.1": 0, "7.2": 1, "7.3": 53, "7.4": 52, "7.5": 54, "7.6": 0
    }  # fmt: skip
    assert [(row.name, row.decrease, row.recomputed) for row in wrong["7.2"]] == [("CL-ArupExtn#8", "99.9", "99.8")]
    assert [row.name for row in EYES if row.decrease is None] == ["0-0-0-0-79-0", "0-0-0-0-82-74", "0-0-0-0-82-86"]
    assert {round(float(row.recomputed) - float(row.decrease), 1) for row in EYES if row.decrease} == {0.1}
    averages = {number: (table.average, table.recomputed_average) for number, table in SECO.items() if table.average}
    assert averages == {"7.2": ("91.6", "91.6"), "7.5": ("99.2", "99.3"), "7.6": ("66.6", "66.6")}


def test_mobile_has_the_same_events_and_right_percentages() -> None:
    assert {row.name: row.filtered for row in MOBILE["3"].rows} == NETWORKS
    assert {row.name: row.filtered for row in MOBILE["2"].rows} == CATEGORIES
    assert not [row for table in MOBILE.values() for row in table.rows if row.wrong]


def test_code_tables_are_consistent() -> None:
    assert all(row.recomputed == str(row.percent) for row in LINES)
    assert rounded(Fraction(sum(row.lines for row in LINES), 4), 0) == str(LINES_AVERAGE.lines)
    assert rounded(Fraction(sum(row.dynamic for row in LINES), 4), 0) == str(LINES_AVERAGE.dynamic)
    for row in FOOTPRINTS:
        assert rounded(100 * (Fraction(row.stub, row.code) - 1), 1) == row.change_not_linked
        linked = 100 * (Fraction(row.linked, row.code) - 1)
        assert row.change_linked.lstrip("+") == rounded(linked, 1 if linked < 100 else 0)
        assert 10_000 < row.upcall < 11_000
    mean = sum((100 * (Fraction(row.stub, row.code) - 1) for row in FOOTPRINTS), Fraction(0)) / 4
    assert rounded(mean, 1) == FOOTPRINT_AVERAGE[0]


@given(st.fractions(min_value=-1000, max_value=1000), st.integers(0, 3))
def test_rounding(value: Fraction, digits: int) -> None:
    text = rounded(value, digits)
    assert abs(Fraction(text) - value) <= Fraction(1, 2 * 10**digits)
    assert len(text.partition(".")[2]) == digits
