"""What is public or long says what it is for, and the tool that checks it finds what does not."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "check_docstrings.py"
LONG = "".join(f"    x = {n}\n" for n in range(40))


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("check_docstrings", TOOL)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def found(tool: Any, text: str) -> list[str]:
    return [why for _, why in tool.missing_in(text)]


def test_the_tree_says_what_it_does(tool: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main() == 0, capsys.readouterr().out


def test_public_classes_and_functions_of_a_module(tool: Any) -> None:
    text = "class Open:\n    def close(self): ...\n\ndef look(): ...\n\ndef _inside(): ...\n"
    assert found(tool, text) == ["Open is public", "look is public"]
    assert found(tool, 'def look():\n    """Where it is."""\n') == []
    assert found(tool, "if True:\n    def look(): ...\n") == ["look is public"]


def test_long_functions_wherever_they_are(tool: Any) -> None:
    inside = "".join(f"    {line}\n" for line in LONG.splitlines())
    text = f"class _It:\n    def _run(self):\n{inside}\n    def __init__(self):\n{inside}\n    def _short(self): ...\n"
    assert found(tool, text) == ["_It._run has 41 lines"]
    assert found(tool, f"def _outer():\n    def inner():\n{inside}") == [
        "_outer has 42 lines",
        "_outer.inner has 41 lines",
    ]
    assert found(tool, f"async def _run():\n{LONG}") == ["_run has 41 lines"]
    assert found(tool, f'def _run():\n    """Why."""\n{LONG}') == []


def test_declarations_of_one_function_in_several_forms_need_none(tool: Any) -> None:
    text = '@overload\ndef of(x: int) -> int: ...\ndef of(x):\n    """The same."""\n'
    assert found(tool, text) == []


def test_methods_that_users_see_unless_a_base_class_speaks_for_them(tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("headwater.made_up")
    text = (
        "__all__ = ['Shown']\n"
        "class Base:\n    def said(self):\n        'What it does.'\n    def silent(self): ...\n"
        "class Shown(Base):\n    def said(self): ...\n    @property\n    def size(self): ...\n    def _own(self): ...\n"
        "class Hidden:\n    def silent(self): ...\n"
    )
    exec(text, vars(module))
    monkeypatch.setitem(sys.modules, "headwater.made_up", module)
    whys = {why for _, _, why in tool.silent_methods(("headwater.made_up",))}
    assert whys == {"Base.silent is seen by users", "Shown.size is seen by users"}
