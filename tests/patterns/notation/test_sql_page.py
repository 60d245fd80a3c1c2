"""Every example of the page on MATCH_RECOGNIZE is what the page says of it."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import PatternError
from headwater.patterns.pattern import Pattern
from tests.pages import blocks

PAGE = "docs/notations/match-recognize.md"
EXAMPLES = [block.text for block in blocks(PAGE) if block.language == "sql"]
REFUSED = [line for block in blocks(PAGE) if block.language == "refused" for line in block.text.splitlines()]


def _channels() -> Any:
    names: dict[str, Any] = {}
    exec(next(block.text for block in blocks(PAGE) if "CHANNELS = " in block.text), names)
    return names["CHANNELS"]


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example(text: str) -> None:
    pattern = Pattern(text, _channels())
    assert pattern.notation == "match_recognize"
    assert not pattern.warnings


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(PatternError, match="not supported"):
        Pattern(text, _channels())
