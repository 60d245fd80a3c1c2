"""The tool that checks directions of imports finds what it is there to find: inner rooms, cycles, and the studies."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "check_imports.py"
ROWS = {"post": (("letters", "stamps"), ("office",))}


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("check_imports", TOOL)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def _tree(folder: Path, files: dict[str, str], name: str = "town") -> Path:
    root = folder / name
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for each in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        (each / "__init__.py").touch()
    return root


def test_inner_rooms_import_downwards_only_also_for_type_checkers(tool: Any, tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "post/letters/letter.py": "if TYPE_CHECKING:\n    from town.post.office import desk\n",
            "post/stamps/stamp.py": "from town.post.letters.letter import Letter\n",
            "post/office/desk.py": "from town.post.letters.letter import Letter\n",
        },
    )
    above, beside = tool.inner_problems(root, tool.graph(root), ROWS)
    assert "letter.py:2: post.letters may not import post.office, which is above it" in above
    assert "stamp.py:1: post.stamps may not import post.letters, which is beside it" in beside


def test_every_inner_room_is_in_the_table_and_the_table_has_no_other(tool: Any, tmp_path: Path) -> None:
    root = _tree(tmp_path, {"post/letters/letter.py": "", "post/stamps/stamp.py": "", "post/bell.py": ""})
    unlisted, missing = tool.inner_problems(root, tool.graph(root), ROWS)
    assert "room post.bell is not in INNER['post']" in unlisted
    assert "has 'office', which is not there" in missing


def test_modules_that_import_each_other_are_a_cycle_and_may_be_few(tool: Any, tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "a.py": "from town import b\n",
            "b.py": "from town.c import C\n",
            "c.py": "if TYPE_CHECKING:\n    import town.a\n",
            "d.py": "import town.a\n",
        },
    )
    edges = tool.graph(root)
    assert tool.cycles(edges) == [["town.a", "town.b", "town.c"]]
    assert tool.cycle_problems(edges, 3, {}) == []
    assert (
        "3 modules of a import each other, more than 2: town.a, town.b, town.c" in tool.cycle_problems(edges, 2, {})[0]
    )


def test_headwater_does_not_know_what_measures_it(tool: Any, tmp_path: Path) -> None:
    root = _tree(tmp_path, {"cli.py": "def main():\n    from headwater_studies.command import run_all\n"}, "headwater")
    assert [line for line in tool.problems(root) if "headwater_studies measures Headwater, which does not" in line]


def test_rooms_of_the_studies_import_headwater_and_what_is_below(tool: Any, tmp_path: Path) -> None:
    root = _tree(
        tmp_path,
        {
            "fleet/worker.py": "from headwater.federation.node import Node\nfrom headwater_studies.latency import x\n",
            "latency/trips.py": "from headwater_studies.fleet.worker import Worker\nfrom .pairs import Pair\n",
            "other/x.py": "",
        },
        "headwater_studies",
    )
    above, relative, unlisted = sorted(
        line.partition("headwater_studies/")[2]
        for line in tool.studies_problems(root, (("fleet",), ("latency",)))
        if "__init__" not in line
    )
    assert above == "fleet/worker.py:2: fleet may not import latency: imports point down only"
    assert relative.startswith("latency/trips.py:2: relative import '.pairs'")
    assert unlisted.startswith("other/x.py:1: room 'other' is not in STUDIES_ROOMS")
