"""For pytest: how Hypothesis works in the soak. What is found is said at once, not made smaller first, since its time
may be up before that is done; and nothing is remembered from other runs, since the seed alone says what is tried.
Tests that do the same however hard they are to try are left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import Phase, settings

settings.register_profile("soak", phases=(Phase.explicit, Phase.generate, Phase.target), database=None)
settings.load_profile("soak")
# What tests beside properties have that try harder when told so, some with a property within.
EFFORT = re.compile(r"(?<!max_examples=)\b(examples|rounds)\(|\bEFFORT\b|^ +@given\(", re.MULTILINE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if _is_property(item) or _tries_harder(item.path)]


def _is_property(item: pytest.Item) -> bool:
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def _tries_harder(module: Path) -> bool:
    return EFFORT.search(module.read_text("utf-8")) is not None
