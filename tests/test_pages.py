"""What the pages show is what happens."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli import main

ROOT = Path(__file__).parent.parent


def blocks(page: str) -> list[tuple[str, str]]:
    """The language and text of each code block."""
    return re.findall(r"```(\w*)\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_first_program_of_the_readme_prints_what_is_shown(tmp_path: Path) -> None:
    (kind, program), (_, output) = blocks("README.md")[:2]
    assert kind == "python"
    script = tmp_path / "readme.py"  # a lambda's source is read from its file
    script.write_text(program, encoding="utf-8")
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == output


def test_explain_prints_what_its_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    (_, command), (_, output) = blocks("docs/explain.md")[:2]
    name, *arguments = shlex.split(command)
    assert name == "headwater" and main(arguments) == 0
    assert capsys.readouterr().out == output


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))]
)
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    missing = [link for link in local if not ((ROOT / page).parent / link).exists()]
    assert not missing
