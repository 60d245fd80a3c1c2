"""What the pages show is what happens."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from headwater.cli import main
from tests.pages import ROOT, Printed, blocks, commands, pages, run_page, shown_by

SPARK = (  # tests/spark/test_pages.py
    "docs/backtest.md",
    "docs/ingest.md",
    "docs/moving.md",
    "docs/spark-streams.md",
    "docs/spark.md",
)
OWN_TEST = ("README.md",)  # test_the_first_program…, tests/test_two_processes.py
LANGUAGES = {"", "c", "expressions", "js", "predicate", "python", "refused", "sh", "sql", "toml"}
FEWEST_REASON = 10  # letters of a reason


@pytest.mark.parametrize("page", [page for page in pages() if page not in (*SPARK, *OWN_TEST)])
def test_the_code_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path)


def test_what_a_page_shows_is_what_was_printed() -> None:
    assert shown_by(
        "print(1)  # 1\n"
        "print(2)          # explained\n"
        "# below 2\n"
        "made = f(lambda event: print(event))  # 3\n"
        "made = move()  # explained\n"
        "for n in (1, 2):\n"
        "    source.publish(\n"
        "        n=n,  # explained\n"
        "    )  # desk: 1\n"
        "    #  desk: 2\n"
        "\n"
        "# explained\n"
        "made = 1\n"
    ) == ["1", "below 2", "3", "desk: 1", "desk: 2"]
    printed = Printed()
    print("1\n desk: 1", file=printed)
    print("desk: 1", end="", file=printed)
    assert printed.lack(["1", "desk: 1"]) == [] and printed.lack(["desk: 1", "desk: 1", "2"]) == ["desk: 1", "2"]


@pytest.mark.parametrize("page", ["docs/moving.md", "docs/sharing.md"])
def test_pages_show_what_they_print(page: str) -> None:
    assert len([line for block in blocks(page) if block.language == "python" for line in shown_by(block.text)]) > 4


def test_what_is_not_run_is_little_and_has_a_reason() -> None:
    found = [block for page in pages() for block in blocks(page)]
    assert {block.language for block in found} == LANGUAGES
    marked = [block for block in found if not block.runs]
    assert all(len(block.reason) >= FEWEST_REASON for block in marked), marked
    assert [block.page for block in marked if block.language == "python"] == []
    other = [block for block in found if block.more and block.runs and block.language != "toml"]
    assert not other, f"expected nothing, or no-run and a reason, after the language: {[str(each) for each in other]}"


def test_commands_are_in_blocks_that_are_looked_at() -> None:
    plain = [block for page in pages() for block in blocks(page) if block.language == ""]
    assert [str(block) for block in plain if list(commands(block.text))] == []


def test_commands_of_the_readme_run() -> None:
    found = [words for block in blocks("README.md") if block.language == "sh" for words, _ in commands(block.text)]
    assert found and [main(words) for words in found] == [0] * len(found)


def test_all_programs_of_the_readme_have_a_test() -> None:
    programs = [block.text for block in blocks("README.md") if block.language == "python"]
    assert [text.splitlines()[0] for text in programs] == [
        "from headwater import Event, Node, f32",
        "# hall.py",
        "# desk.py",
    ]


def test_the_first_program_of_the_readme_prints_what_is_shown(tmp_path: Path) -> None:
    program, output = (block.text for block in blocks("README.md")[:2])
    script = tmp_path / "readme.py"  # a lambda's source is read from its file
    script.write_text(program, encoding="utf-8")
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=480, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == output


def _without_figures(page: str) -> str:
    """Bytes of a partial match and such change with the engine, fingerprints of patterns with their result."""
    return re.sub(r"\b([0-9a-f]{32}|\d[\d,]*)\b", "…", page) if page.startswith("pattern") else page


def test_explain_prints_what_its_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    plain = [block.text for block in blocks("docs/explain.md") if block.language in ("sh", "")]
    shown = [(command, output) for command, output in pairwise(plain) if "\n\n" in output]
    assert len(shown) == 2
    for command, output in shown:
        name, *arguments = shlex.split(command)
        assert name == "headwater" and main(arguments) == 0
        assert _without_figures(capsys.readouterr().out) == _without_figures(output)


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    missing = [link for link in local if not ((ROOT / page).parent / link).exists()]
    assert not missing


def test_links_between_pages_lead_to_a_heading_that_is_there() -> None:
    def anchors(page: Path) -> set[str]:
        headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}

    wrong = []
    for name in pages():
        page = ROOT / name
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            if "://" not in link and anchor and target.suffix == ".md" and anchor not in anchors(target):
                wrong.append(f"{name}: {link}")
    assert wrong == []
