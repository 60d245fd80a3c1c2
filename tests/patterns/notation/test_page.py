"""Every example of the page on pattern text can be read and checked."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.patterns.notation.show import show
from headwater.patterns.notation.text import parse
from headwater.patterns.pattern import Pattern
from tests.pages import blocks

PAGE = "docs/notations/pattern.md"
BLOCKS = [block.text for block in blocks(PAGE) if block.language == ""]


def _examples() -> list[str]:
    """One a line; what is indented belongs to the line before."""
    found: list[str] = []
    for line in "".join(BLOCKS).splitlines():
        if line.startswith(" "):
            found[-1] += f"\n{line}"
        else:
            found.append(line)
    return found


def _channels() -> Any:
    names: dict[str, Any] = {}
    exec(next(block.text for block in blocks(PAGE) if "CHANNELS = " in block.text), names)
    return names["CHANNELS"]


@pytest.mark.parametrize("text", _examples())
def test_an_example(text: str) -> None:
    pattern = Pattern(text, _channels(), params={"limit": 0.5} if ":limit" in text else None)
    assert pattern.written is not None and parse(show(pattern.written)) == pattern.written
    assert not pattern.warnings
