"""Patterns that are about each other's matches wait for each other: whoever makes the last of them is told."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater import HeadwaterWarning, Node
from headwater.testing import ManualClock


def about(other: str, more: str = "") -> str:
    return f"a: x; without {other} within 1 second {more} measures a.k as k"


@contextmanager
def lab(state: Path | None = None, *names: str) -> Iterator[tuple[Node, Any, ManualClock]]:
    """A node with channels for the matches of patterns of these names, and a source of x."""
    clock = ManualClock()
    with Node("lab", clock=clock, state=state) as node:
        source = node.channel("x", "k: i64").source("east")
        for name in names:
            node.pattern(name, "a: x measures a.k as k").close(forget=True)
        yield node, source, clock


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.filterwarnings("ignore:.*log:headwater.HeadwaterWarning")
def test_a_cycle_is_told_by_name_and_nobody_in_it_goes_on(kept: bool, tmp_path: Path) -> None:
    with lab(tmp_path / "state" if kept else None, "p", "q", "r") as (node, source, clock):
        first = node.pattern("p", about("q"))
        second = node.pattern("q", about("r"))
        with pytest.warns(
            HeadwaterWarning, match=re.escape("found that 'r' waits for 'p' waits for 'q' waits for 'r'")
        ):
            third = node.pattern("r", about("p"))
        assert "cycle" in third.warnings[-1] and not [each for each in first.warnings if "cycle" in each]
        outside = node.pattern("s", about("p"))  # it waits for them, but they do not for it
        assert not [each for each in outside.warnings if "cycle" in each]
        source.publish(k=1)
        clock.advance(60)
        assert [each.report().matches for each in (first, second, third)] == [0, 0, 0]
        assert first.report().held_by == "q/q" and third.report().held_by == "p/p"
        third.close()  # which was the cause
        clock.advance(60)
        assert [each.report().matches for each in (first, second)] == [0, 1]  # q is at the very end of p's window


def test_a_pattern_of_its_own_matches_is_one() -> None:
    with (
        lab(None, "p") as (node, _, _),
        pytest.warns(HeadwaterWarning, match="found that 'p' waits for 'p': p will never"),
    ):
        node.pattern("p", about("p"))


def test_whoever_makes_warnings_errors_gets_no_pattern() -> None:
    with lab(None, "p", "q") as (node, source, clock):
        first = node.pattern("p", about("q"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(HeadwaterWarning, match="cycle"):
                node.pattern("q", about("p"))
        source.publish(k=1)
        clock.advance(60)
        assert first.report().matches == 1


@pytest.mark.filterwarnings("error")
def test_patterns_that_wait_for_nobody_for_ever_are_none() -> None:
    with lab(None, "p", "q") as (node, source, clock):
        node.pattern("p", about("q"))
        node.pattern("q", about("p"), order="arrival")
    with lab(None, "p", "q") as (node, source, clock):
        first = node.pattern("p", about("q", "patience 2 seconds"))
        second = node.pattern("q", about("p", "patience 2 seconds"))
        source.publish(k=1)
        clock.advance(60)
        found = [each.report() for each in (first, second)]
        assert sum(each.matches for each in found) == sum(each.uncertain for each in found) == 1  # whoever goes first
