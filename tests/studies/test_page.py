"""Results as values and as pages: what was found is what is shown, and nothing else."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli import main
from headwater.errors import ConfigError, StoreError
from headwater.study.report.bars import Bar
from headwater.study.report.html import Heading, Notes, Text, render
from headwater.study.report.table import Column, Row, Table, rate, rows, three, time
from headwater_studies.command import write_page
from headwater_studies.harness.bench import regression
from headwater_studies.harness.page import markdown, page, standalone, text, worst
from headwater_studies.harness.result import Axis, Bars, Plot, Ratio, Result, Section, Series, content
from headwater_studies.harness.run import STUDIES, chosen
from headwater_studies.harness.xy import xy
from tests.federation.nursery import run
from tests.studies.recorded import NAMES, recorded, recorded_rows

DOCS = Path(__file__).parents[2] / "docs"

# A number and what it is of.
FIGURE = re.compile(r"\d[\d,.]*(?: (?:ns|µs|ms|s|M/s|k/s|B|kB|MB|%|×)(?![\w/])|/s)")

AHEAD = Ratio(case="quick", reference="tcp", ours=(1.0, 2.0), theirs=(2.0, 3.0), kind="seconds", why="not shown")
BEHIND = Ratio(case="slow", reference="zmq", ours=(50.0,), theirs=(100.0,), kind="per second", why="packed | by hand")
WORST = Ratio(case="slower", reference="zmq", ours=(50.0,), theirs=(10.0,), kind="bytes", why="headers")


def made(**more: object) -> Result:
    table = Table(
        name="trips",
        title="Round trips",
        columns=(Column("system", "text"), Column("median", "time"), Column("formula", "code")),
        rows=(*rows([("ours", 72.5e-6, "a|b")]), Row(("TAO", None, "c"), remarks={1: "not said"})),
        note="On loopback.",
    )
    plot = Plot(
        name="many",
        title="Against nodes",
        x=Axis("nodes", log=True),
        y=Axis("messages", log=True),
        series=(
            Series(name="ours", points=((1, 2), (10, 20.5)), band=((1, 3), (18, 22))),
            Series(name="SECO's formula", points=((1, 6), (10, 240)), dashed=True),
        ),
        below="Both grow.",
    )
    bars = Bars(name="bars", title="Latency", unit="µs", bars=(Bar("ours", 72.5), Bar("TCP", 53.0)))
    section = Section(
        key="trips",
        title="Trips",
        command="headwater study latency --part samples",
        repetitions="3 rounds",
        part="samples",
        contents=content(Text("Some **text**."), Heading("More"), Notes(("one", "two")), table, plot, bars),
    )
    given = {
        "name": "latency",
        "title": "Latency",
        "lead": "How long.",
        "command": "headwater study latency",
        "begun": "2026-01-02 03:04",
        "seconds": 61.0,
        "machine": {"processor": "2 × x"},
        "versions": {"Python": "3.11"},
        "not_run": {"Redis": "redis not installed"},
        "sections": (section,),
        "ratios": (AHEAD, BEHIND, WORST),
        "costs": {"round_trip": 7e-5},
    }
    return Result(**{**given, **more})  # type: ignore[arg-type]


def test_a_result_is_read_as_it_was_written() -> None:
    result = made()
    assert Result.from_json(result.to_json()) == result


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"name": 1}', made().to_json()[:-40]])
def test_what_is_no_result_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"result\.json: expected the result of a study"):
        Result.read(path)


def test_a_ratio_needs_a_pair_for_every_round() -> None:
    with pytest.raises(ValueError, match="as many of ours as of theirs"):
        Ratio(case="x", reference="y", ours=(1.0,), theirs=(1.0, 2.0), kind="seconds")


def test_times_as_good() -> None:
    assert AHEAD.factors == (2.0, 1.5)
    assert BEHIND.factors == (0.5,)
    assert WORST.factors == (0.2,)
    assert worst([made()]) == [WORST, BEHIND]


def test_the_page_says_where_we_are_behind_and_why() -> None:
    files = markdown([made()])
    page = files["performance.md"]
    behind = page[page.index("## Where we are behind") : page.index("## Latency")]
    assert "behind in 2" in behind
    assert behind.index("slower") < behind.index("| slow |")
    assert "packed \\| by hand" in behind and "not shown" not in behind
    assert "Not run: Redis (redis not installed)." in page
    assert "headwater study latency --part samples` · 3 rounds" in page
    assert "| ours | 72.5 µs | `a\\|b` |" in page
    assert "| TAO | – † | `c` |" in page and "† not said" in page


def test_plots_of_the_page_are_files_of_their_own() -> None:
    files = markdown([made()])
    linked = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", files["performance.md"])
    assert sorted(linked) == sorted(name for name in files if name.endswith(".svg"))
    for name in linked:
        root = ElementTree.fromstring(files[name])
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "--c0" in files[name]


def test_the_page_as_html_has_all_of_it() -> None:
    html = render(page(made()))
    assert html.count("<svg") == 6  # two plots, each for three widths
    for said in ("72.5 µs", "1 of 3", "redis not installed", "headwater study latency --part samples"):
        assert said in html


def test_the_terminal_has_the_tables() -> None:
    shown = text(made())
    assert "72.5 µs" in shown and "0.20 ×" in shown and "not run: Redis: redis not installed" in shown


def test_two_plots_of_a_name_are_an_error() -> None:
    section = made().sections[0]
    with pytest.raises(ValueError, match="two plots"):
        markdown([made(sections=(section, section))])


def test_writing_the_page_removes_what_an_earlier_one_had(tmp_path: Path) -> None:
    write_page([made()], tmp_path)
    plots = sorted(path.name for path in (tmp_path / "performance").iterdir())
    assert plots == ["latency-bars.svg", "latency-many.svg", "latency.json"]
    write_page([made(sections=())], tmp_path)
    assert [path.name for path in (tmp_path / "performance").iterdir()] == ["latency.json"]


def test_a_page_of_a_whole_run_has_all_its_plots_and_says_each_reason_once(tmp_path: Path) -> None:
    results = [recorded(name) for name in NAMES]
    assert not any(result.quick for result in results)
    page = write_page(results, tmp_path).read_text(encoding="utf-8")
    drawn = {f"performance/{path.name}" for path in (tmp_path / "performance").glob("*.svg")}
    assert drawn == set(re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page)) and len(drawn) > 30
    assert {path.stem for path in (tmp_path / "performance").glob("*.json")} == set(NAMES)
    behind = page[page.index("## Where we are behind") : page.index("## Latency")]
    reasons = [ratio.why for ratio in worst(results)]
    assert re.findall(r"^\d+\. (.*)$", behind, re.MULTILINE) == list(dict.fromkeys(reasons)) and len(reasons) == 50


def test_the_figures_of_the_documents_are_those_of_the_run_they_name() -> None:
    """A figure that is changed in docs/performance.md is of another run: then the results here are, too."""
    text = (DOCS / "performance.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    found = markdown([recorded(name) for name in NAMES])["performance.md"] + patterns()
    figures = set(FIGURE.findall(text))
    assert len(figures) > 100
    assert [each for each in figures if not said(each, found)] == []


def test_the_figures_of_patterns_are_those_of_their_benchmark() -> None:
    text = (DOCS / "performance.md").read_text(encoding="utf-8")
    section = text[text.index("## Patterns") : text.index("## What it takes")]
    figures = {
        each.strip() for each in re.findall(r"(?<=[ |])\d[\d,.]*(?: (?:M/s|k/s|ns|µs|s|×)| (?=bytes|\|))", section)
    }
    assert len(figures) > 20
    assert [each for each in figures if not said(each, patterns())] == []


def said(figure: str, found: str) -> bool:
    return re.search(rf"(?<![\d.,]){re.escape(figure)}", found) is not None


def patterns() -> str:
    """What the benchmark of patterns has found, as the page says it."""
    shown: dict[str, Callable[[float], str]] = {
        "s": time,
        "M events/s": lambda value: rate(value * 1e6),
        "KB": lambda value: f"{value * 1000:,.0f} bytes",
        "bytes": lambda value: f"{value:,.0f} bytes",
        "×": lambda value: f"{three(value)} ×",
    }
    lines = []
    for row in recorded_rows("patterns"):
        values = [shown[row["unit"]](row[each]) for each in ("ours", "reference") if row[each] is not None]
        ratio = row["ratio"] or 0.0
        lines.append(f"{row['case']} {' '.join(values)} {ratio:.1f} × {ratio:.2f} × {100 * ratio:.1f} % {row['note']}")
    return "\n".join(lines).replace("+", "")


def test_all_parts_are_there() -> None:
    for name, study in STUDIES.items():
        assert list(chosen(name, ())) == list(study.parts)
    with pytest.raises(ConfigError, match="expected a part: samples"):
        chosen("latency", ["nothing"])


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0"), (1.2345, "1.23"), (12.345, "12.3"), (99.96, "100"), (1234.5, "1,234"), (-3.14159, "−3.14")],
)
def test_three_digits(value: float, said: str) -> None:
    assert three(value) == said


def test_units() -> None:
    assert [time(each) for each in (1.5e-9, 72.54e-6, 0.1234, 12.0)] == ["1.50 ns", "72.5 µs", "123 ms", "12.0 s"]
    assert [rate(each) for each in (1.08e6, 999_999, 12.3)] == ["1.08 M/s", "1.00 M/s", "12.3/s"]


numbers = st.floats(-1e12, 1e12, allow_nan=False)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30), st.booleans(), st.booleans())
def test_any_points_can_be_drawn(points: list[tuple[float, float]], log_x: bool, log_y: bool) -> None:
    series = [Series(name="a < b", points=tuple(points)), Series(name="c", points=tuple(points[:1]), style="steps")]
    drawn = xy(series, x=Axis("x", log=log_x), y=Axis("y", log=log_y), width=360, label='a "plot"')
    root = ElementTree.fromstring(standalone(drawn))
    places = [float(each.attrib["cx"]) for each in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert all(0 <= x <= 360 for x in places)


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.sets(st.integers(0, 1000), min_size=2, max_size=20))
def test_a_line_is_found_again(slope: float, start: float, at: set[int]) -> None:
    found = regression([(x, slope * x + start) for x in at])
    assert found.slope == pytest.approx(slope, rel=1e-6, abs=1e-6)
    assert found.start == pytest.approx(start, rel=1e-6, abs=1e-3)


def test_the_command_runs_a_part_and_keeps_the_others(tmp_path: Path) -> None:
    out = tmp_path / "overhead"
    command = [sys.executable, "-m", "headwater.cli", "study", "overhead", "--quick", "--out", str(out)]
    for part in ("footprint", "administration"):
        ran = run([*command, "--part", part], capture_output=True, text=True, timeout=600)
        assert ran.returncode == 0, ran.stderr[-3000:]
        assert f"overhead: {part}" in ran.stderr
        assert "The report is" in ran.stdout
    result = Result.read(out / "result.json")
    assert {each.part for each in result.sections} == {"footprint", "administration"}
    assert result.quick and json.loads(result.to_json())["versions"]["Python"]
    assert "its figures mean little" in (out / "report.html").read_text()
    again = [sys.executable, "-m", "headwater.cli", "study", "performance", "--no-run", "--out", str(tmp_path)]
    ran = run([*again, "--page", str(tmp_path / "docs")], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "## Overhead" in (tmp_path / "docs" / "performance.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["latency", "--page", "x"], "found --page; it is for performance"),
        (["latency", "--bucket", "1h"], "found --bucket; it is for a FILE"),
        (["badges", "--quick"], "found --quick; it is for a study of performance and performance"),
        (["performance", "--part", "samples"], "found --part; it is for a study of performance"),
        (["performance", "--no-run"], "expected --page DIR with --no-run"),
        (["peers", "--part", "nothing"], "expected a part: "),
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code: object = main(["study", *arguments])
    except SystemExit as ended:
        code = ended.code
    assert code == 2 and said in capsys.readouterr().err
