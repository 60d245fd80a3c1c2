"""Reports: tables say what differs, plots are well formed, the page is one whole file, results can be read again."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.errors import StoreError
from headwater.study.badges import tables
from headwater.study.badges.page import page, summary
from headwater.study.badges.published_tables import MOBILE, SECO
from headwater.study.own_page import page as own_page
from headwater.study.report import svg, traffic
from headwater.study.report.bars import Bar, bars, columns, dots, ranks
from headwater.study.report.data import StudyResult, timeline
from headwater.study.report.files import write
from headwater.study.report.html import Figure, Notes, Page, Section, Text, Tile, inline, render
from headwater.study.report.table import Column, Row, Table, duration, rows, shown, size
from tests.study.results import own_result, result, run

# ── tables of the study ──


@pytest.mark.parametrize("number", SECO)
def test_seco_tables_have_no_difference(number: str) -> None:
    table = tables.seco(result(), number)
    assert table.equal
    plain = [row for row in table.rows if not row.total]
    assert [row.values[0] for row in plain] == [row.name for row in SECO[number].rows]
    for row, theirs in zip(plain, SECO[number].rows, strict=True):
        assert row.values[1:6] == (theirs.events, theirs.events, 0, theirs.events, 0)
        assert row.values[6:9] == (theirs.total, theirs.total, 0)
        again, printed = float(theirs.recomputed), None if theirs.decrease is None else float(theirs.decrease)
        assert row.values[9:] == (again, printed, again, 0)
        assert (10 in row.remarks) == (theirs.wrong or printed is None)


@pytest.mark.parametrize("number", MOBILE)
def test_mobile_tables_have_no_difference(number: str) -> None:
    table = tables.mobile(result(), number)
    assert table.equal and [row.values[3] for row in table.rows] == [row.filtered for row in MOBILE[number].rows]


def test_a_difference_shows() -> None:
    it = result()
    cameras = it.run("cameras")
    assert cameras is not None
    off = replace(cameras, delivered={**cameras.delivered, "camera ORL-Net#1": 5_700})
    changed = replace(it, runs=tuple(off if each is cameras else each for each in it.runs))
    table = tables.seco(changed, "7.2")
    assert not table.equal
    row = next(row for row in table.rows if row.values[0] == "ORL-Net#1")
    assert row.values[3] == -3 and row.values[5] == 3 and row.values[8] == -6, "and Spark differs from it"
    text = render(page(changed))
    assert "177 of 178" in text and "differences</span>" in text and "−3" in text


def test_what_was_not_run_is_left_open() -> None:
    it = replace(result(), runs=(), spark=None, code=())
    table = tables.seco(it, "7.6")
    assert table.rows[0].values[1] is None and table.rows[0].values[3] is None and not table.equal
    assert len(table.columns) == 11, "nothing is said of Spark"
    assert "0 of 178" in render(page(it))


def test_the_run_of_all_stands_in_for_runs_that_were_not_made() -> None:
    it = replace(result(), runs=(run("all"),))
    assert tables.seco(it, "7.5").equal


def test_messages_stand_beside_secos() -> None:
    table = tables.messages(result())
    god, cameras, eyes, brothers = (row.values for row in table.rows)
    assert god[1:6] == (71_622, 71_622, 48, 390, 72_060)
    assert cameras[1:4] == (12 * 71_622, 71_622, 12 * 48)
    assert eyes[1:4] == (162 * 71_622, 71_622, 162 * 48)
    assert brothers[1:4] == (3 * 71_622, 71_622, 3 * 48)
    assert all(row.values[11] == row.values[9] - row.values[5] for row in table.rows)  # type: ignore[operator]


def test_traffic_and_links() -> None:
    one = run("eye", only=("eye 0-0-0-0-13-e9",), crossed=50)
    it = replace(result(), runs=(*result().runs, one))
    assert traffic.baseline(it, one) is it.runs[0]
    assert len(traffic.traffic(it).rows) == 6 and len(traffic.links(it).rows) == 6 * 12
    assert "alone" in render(page(it))


def test_code_tables_find_their_rows() -> None:
    lines, sizes = tables.lines(result()), tables.footprints(result())
    assert [row.values[5] for row in lines.rows] == [203, 227, 227, 256, 256, 228]
    assert [row.values[8] for row in sizes.rows] == [37_750, 41_895, 41_880, 42_278, 42_278]
    assert all(row.values[11] < 0 for row in sizes.rows)  # type: ignore[operator]


def test_summary() -> None:
    table = summary(result())
    assert [row.values[1] for row in table.rows] == [1, 12, 162, 3, 178] and table.equal


# ── tables in general ──


def test_csv_is_what_the_table_holds() -> None:
    table = tables.seco(result(), "7.2")
    read = list(csv.reader(io.StringIO(table.csv())))
    assert read[0][:3] == ["network watched", "events, live: ours", "events, live: published"]
    assert read[1][:5] == ["CL-ArupExtn#8", "52", "52", "0", "52"]
    assert len(read) == len(table.rows) + 1


@pytest.mark.parametrize("number", SECO)
def test_what_is_marked_on_the_page_is_told_in_the_file(number: str) -> None:
    table = tables.seco(result(), number)
    read = list(csv.DictReader(io.StringIO(table.csv())))
    for row, line in zip(table.rows, read, strict=True):
        assert line["note"].count("†") == len(row.remarks)
        assert all(said in line["note"] for said in row.remarks.values())
    if number == "7.2":
        told = "† decrease: printed: printed as 99.9; the row's own columns give 99.8"
        assert [line["note"] for line in read if line["note"]] == [told]


def test_frames_are_told_as_they_were_measured() -> None:
    note = traffic.traffic(result()).note
    events, frames = zip(*((each.crossed, each.frames) for each in result().runs), strict=True)
    assert f"A frame had {events[0] / frames[0]:.2f} events on average" in note and "as many were" in note
    alone = replace(result(), runs=(replace(run("god"), links=(replace(run("god").links[0], crossed=51, frames=50),)),))
    assert "A frame had 1.02 events on average" in (said := traffic.traffic(alone).note)
    assert (
        "as hardly any were here" in said and "many" not in said.split("Fewer")[0].replace("how", "").split("once,")[0]
    )


def test_the_card_says_what_the_counts_are_worth() -> None:
    card = next(tile for tile in page(result()).tiles if tile.what == "counts as published")
    assert "The day is made to meet their totals" in card.more


def test_both_times_of_a_run_have_a_name() -> None:
    for table in (summary(result()), traffic.traffic(result())):
        names = [column.title for column in table.columns]
        assert names[-2:] == ["preparing", "playing"]
        assert table.rows[0].values[-2:] == (0.5, 1.5)


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="table t, row 1: expected 2 values, found 1"):
        Table(name="t", title="t", columns=(Column("a"), Column("b")), rows=rows([(1, 2), (1,)]))


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        (None, Column("x"), "–"),
        (1234, Column("x"), "1,234"),
        (-3, Column("x", "diff"), "−3"),
        (1200, Column("x", "gap"), "+1,200"),
        (0, Column("x", "diff"), "0"),
        (-0.1, Column("x", "percent"), "−0.1 %"),
        (0.1, Column("x", "points"), "+0.1"),
        (2.04, Column("x", "factor"), "2.0 ×"),
        ("a", Column("x", "text"), "a"),
        (0.0042, Column("x", "seconds"), "4.2 ms"),
        (2_118_000, Column("x", "bytes"), "2,118 kB"),
    ],
)
def test_values_as_text(value: float | str | None, column: Column, text: str) -> None:
    assert shown(value, column) == text


def test_units() -> None:
    assert [size(n) for n in (0, 999, 9_999, 10_000, 99_940, 12_345_678, 5e10)] == [
        "0 B", "999 B", "9,999 B", "10.0 kB", "99.9 kB", "12.3 MB", "50.0 GB"
    ]  # fmt: skip
    assert [duration(s) for s in (2e-5, 0.25, 3, 600)] == ["20 µs", "250.0 ms", "3.0 s", "10.0 min"]


# ── plots ──

SERIES = st.dictionaries(st.text(max_size=8), st.lists(st.integers(0, 10**6), min_size=7, max_size=7), max_size=15)


def _parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def _inside(root: ElementTree.Element) -> None:
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for rect in root.iter("rect"):
        assert float(rect.get("x", -1)) >= 0 and float(rect.get("y", -1)) >= 0
        assert float(rect.get("x", 0)) + float(rect.get("width", 0)) <= width
        assert float(rect.get("y", 0)) + float(rect.get("height", 0)) <= height


@given(SERIES.map(lambda it: {key: it[key] for key in it if key.isprintable()}), st.booleans())
def test_plots_over_time_are_well_formed(series: dict[str, list[int]], log: bool) -> None:
    for width in (360, 1040):
        root = _parsed(svg.areas(series, start=0, step=600_000_000, width=width, label='a "b" <c>', unit="x"))
        assert root.get("role") == "img" and root.get("aria-label") == 'a "b" <c>'
        assert len(list(root.iter("path"))) == len(series)
        _parsed(svg.lines(series, start=0, step=600_000_000, width=width, label="l", unit="x", log=log))


@given(st.lists(st.floats(0, 1e12), max_size=20), st.sampled_from([360, 1040]))
@example([5e-324], 360)
@example([5e-324, 1e12], 1040)
def test_bars_stay_inside_and_begin_at_zero(values: list[float], width: int) -> None:
    items = [Bar(f"bar {at}", value, mark=value / 2, colour=at) for at, value in enumerate(values)]
    for draw, across in ((bars, "width"), (columns, "height")):
        root = _parsed(draw(items, width=width, label="l", unit="u"))
        _inside(root)
        drawn = [float(rect.get(across, 0)) for rect in root.iter("rect")]
        assert len(drawn) == len(items)
        for value, length in zip(values, drawn, strict=True):  # as long as their values are large
            assert length == pytest.approx(value / max(values, default=1) * max(drawn) if value else 0, abs=1.01)


@given(st.lists(st.floats(0, 1e12), max_size=20), st.booleans(), st.sampled_from([360, 1040]))
@example([5e-324], False, 360)
@example([0.0, 5e-324, 1e12], True, 1040)
def test_dots_stay_inside(values: list[float], log: bool, width: int) -> None:
    items = [Bar(f"dot {at}", value, mark=value / 2, colour=at) for at, value in enumerate(values)]
    for draw in (dots, ranks):
        root = _parsed(draw(items, width=width, label="l", unit="u", log=log))
        circles = list(root.iter("circle"))
        assert len(circles) == len(items) and not list(root.iter("rect"))
        assert all(0 < float(each.get("cx", 0)) < width for each in circles)


@pytest.mark.parametrize("made", [page(result()), own_page(own_result())], ids=["badges", "own"])
def test_no_bars_stand_on_a_logarithmic_axis(made: Page) -> None:
    logarithmic = 0
    for section in made.sections:
        for figure in section.blocks:
            if isinstance(figure, Figure):
                root = _parsed(figure.draw(1040))
                if any("logarithmic" in (text.text or "") for text in root.iter("text")):
                    logarithmic += 1
                    assert not [each for each in root.iter("rect") if "bar" in str(each.get("class"))], figure.title
    assert logarithmic


def test_a_step_that_is_recorded_in_part_is_marked_and_no_ramp() -> None:
    whole = {"a": [2, 7, 7, 3]}
    step, minute = 3_600_000_000, 60_000_000
    for draw in (svg.areas, svg.lines):
        plain = _parsed(draw(whole, start=0, step=step, width=400, label="l", unit="u"))
        assert not list(plain.iter("rect"))
        covered = (40 * minute, 4 * step - 50 * minute)
        root = _parsed(draw(whole, start=0, step=step, width=400, label="l", unit="u", covered=covered))
        assert [each.get("class") for each in root.iter("rect")] == ["partial", "partial"]
        drawn_in = [each.tag.rpartition("}")[2] for each in root.iter()]
        seen = drawn_in.index("rect") > drawn_in.index("path")  # what lies below an area is not
        assert seen == (draw is svg.areas)
        (path,) = root.iter("path")
        numbers = re.findall(r"[-\d.]+,[-\d.]+", str(path.get("d")))
        drawn = [tuple(map(float, each.split(","))) for each in numbers[:8]]
        for here, there in pairwise(drawn):  # along or up, never aslant
            assert here[0] == there[0] or here[1] == there[1]


DAY_LONG = 86_400_000_000  # microseconds


@pytest.mark.parametrize(
    ("days", "width", "ticks"),
    [
        (3, 360, "02 Jan 03 Jan 04 Jan"),
        (20, 360, "08 Jan 15 Jan"),
        (170, 360, "Mar 2026 May 2026"),
        (400, 700, "Mar 2026 May 2026 Jul 2026 Sep 2026 Nov 2026 Jan 2027"),
        (3000, 360, "2028 2030 2032 2034"),
    ],
)
def test_axes_of_time_have_ticks_where_days_months_and_years_begin(days: int, width: int, ticks: str) -> None:
    start = 1_767_225_600_000_000 + 3_600_000_000  # an hour into 2026
    root = _parsed(svg.lines({"a": [1] * days}, start=start, step=DAY_LONG, width=width, label="l", unit="u"))
    low = max(float(each.get("y", 0)) for each in root.iter("text"))
    assert " ".join(str(each.text) for each in root.iter("text") if float(each.get("y", 0)) == low) == ticks


@pytest.mark.parametrize(
    ("covered", "found"),
    [(None, []), ((0, 399), []), ((4, 396), []), ((30, 399), [0]), ((0, 350), [3]), ((30, 350), [0, 3])],
)
def test_partial_steps(covered: tuple[int, int] | None, found: list[int]) -> None:
    assert svg.partial_steps(0, 100, 4, covered) == found


def test_a_line_has_a_gap_where_a_logarithmic_axis_has_no_place() -> None:
    root = _parsed(svg.lines({"a": [1, 100, 0, 5]}, start=0, step=1, width=400, label="l", unit="u", log=True))
    (path,) = root.iter("path")
    assert str(path.get("d")).count("M") == 2


@given(st.floats(0, 1e12))
@example(5e-324)
def test_ticks_are_round_and_reach_the_top(top: float) -> None:
    found = svg.ticks(top)
    assert found[0] == 0 and found[-1] >= top and 2 <= len(found) <= 8


@given(st.floats(0, 1e9), st.floats(1, 1e6))
@example(5e-324, 1.0)
def test_powers_enclose(low: float, factor: float) -> None:
    found = svg.powers(low, low * factor)
    assert 0 < found[0] <= max(low, 1e-9) * 1.0001 and found[-1] >= low * factor * 0.9999
    assert len(found) < 30


def test_short_numbers() -> None:
    assert [svg.short(n) for n in (0, 250, 1000, 2.5e6, 1e9)] == ["0", "250", "1k", "2.5M", "1G"]


# ── the page ──


class _Reader(HTMLParser):
    """Checks that tags are closed in order, and notes what a page refers to."""

    VOID = frozenset({"meta", "link", "br", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in ("href", "src"):
                self.links.append(str(value))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _read(text: str) -> _Reader:
    reader = _Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    reader = _read(render(page(result())))
    assert len(reader.ids) == len(set(reader.ids))
    assert all(link.startswith("#") and link[1:] in reader.ids for link in reader.links)
    assert not {"script", "iframe", "img", "link"} & set(reader.tags)
    assert "@import" not in render(page(result())) and "url(" not in render(page(result()))


def test_what_the_page_says() -> None:
    text = render(page(result()))
    for number in ("7.1", "7.2", "7.3", "7.4", "7.5", "7.6", "7.7", "7.8"):
        assert f"SECO table {number}" in text
    for number in "123":
        assert f"Mobile table {number}" in text
    assert text.count("178 of 178") == 2 and "Synthetic" in text


@given(st.text())
def test_text_is_escaped(text: str) -> None:
    made = render(
        Page(
            title=text,
            over=text,
            lead=(text,),
            tiles=(Tile(text, text, text),),
            sections=(
                Section(
                    "s",
                    text,
                    (
                        Text(text),
                        Notes((text,)),
                        Figure(text, lambda width: f'<svg width="{width}"></svg>', ((0, text, text),), text),
                        Table(name="t", title=text, columns=(Column(text, "text"),), rows=(Row((text,), {0: text}),)),
                    ),
                ),
            ),
            facts={text: text},
        )
    )
    reader = _read(made)
    assert not {"script", "b>", "i"} & set(reader.tags)


def test_marks_in_text() -> None:
    assert inline("a `b<c` **d** [e](#f) [g](http://h)") == (
        'a <code>b&lt;c</code> <strong>d</strong> <a href="#f">e</a> [g](http://h)'
    )


# ── files ──


def test_files(tmp_path: Path) -> None:
    made = page(result())
    path = write(made, result(), tmp_path / "new" / "folder")
    assert path.read_text(encoding="utf-8") == render(made)
    assert StudyResult.load(path.parent / "result.json") == result()
    names = {file.stem for file in (path.parent / "tables").iterdir()}
    assert names == {table.name for table in made.tables()} and len(names) == len(made.tables())
    write(made, result(), tmp_path / "new" / "folder")  # again, over the old ones


def test_a_file_that_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b'{"title": 3}')
    with pytest.raises(StoreError, match="expected the result of a study, found"):
        StudyResult.load(tmp_path / "x.json")


@given(st.lists(st.tuples(st.integers(0, 10**9), st.sampled_from("abc"))), st.integers(1, 10**9))
def test_timelines_lose_nothing(events: list[tuple[int, str]], step: int) -> None:
    step = max(step, 10**6)
    found = timeline([at for at, _ in events], [key for _, key in events], step=step, order="ab")
    assert sum(map(sum, found.series.values())) == len(events)
    assert list(found.series)[:2] == ["a", "b"]
    for key, values in found.series.items():
        assert sum(values) == sum(each == key for _, each in events)
