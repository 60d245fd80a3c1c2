"""The lists of rooms in README and CONTRIBUTING are the true ones."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def rooms() -> ModuleType:
    found = importlib.util.spec_from_file_location("rooms", ROOT / "tools" / "rooms.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_the_rooms_on_the_page_are_those_of_the_tree(page: str) -> None:
    tool = rooms()
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text == tool.with_rooms(text, short=tool.PAGES[page]), "run: make rooms"


def test_a_room_that_is_missing_is_found() -> None:
    tool = rooms()
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    without = "\n".join(line for line in text.split("\n") if not line.startswith("    wire/"))
    assert without != text and tool.with_rooms(without, short=False) == text


def test_every_room_says_what_it_is() -> None:
    tool = rooms()
    silent = [path for path in tool.SOURCE.rglob("__init__.py") if not tool.first_line(path)]
    assert silent == []


def test_the_files_of_the_architecture_are_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_0-9/]+\.py)`", page))
    source = ROOT / "src" / "headwater"
    there = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    assert len(named) > 50
    # In a list after its room, a file is named without it.
    assert [
        name for name in sorted(named) if not any(path == name or path.endswith(f"/{name}") for path in there)
    ] == []
