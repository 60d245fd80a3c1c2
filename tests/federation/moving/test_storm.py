"""A short storm of what moves; the long one is part of the soak."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.federation.moving.storm import Storm, wrong
from tests.federation.processes import world

SEED, STEPS = 1, 8


def test_in_a_storm_nothing_is_lost_and_order_is_kept() -> None:
    with world() as made:
        storm = Storm(made, SEED, sinks=4, sources=2)
        storm.open()
        for _ in range(STEPS):
            storm.step()
        problems = storm.end()
        assert not problems, (storm.order, problems)
        assert storm.kills and any(len(flow.makers) > 1 for flow in storm.flows) and storm.moves > STEPS


@pytest.mark.parametrize(
    ("numbers", "problems"),
    [
        ("7 8 9", 0),
        ("7 8 8* 9", 0),
        ("7 8 7* 8* 9", 0),
        ("7 9", 1),
        ("7 8 8 9", 1),
        ("7 9 8 10", 2),
        ("", 1),
    ],
)
def test_the_storm_sees_what_is_wrong(numbers: str, problems: int, tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [f"s {each.rstrip('*')} s.1 1 1 {int(each.endswith('*'))}\n" for each in numbers.split()]
    path.write_text("".join(lines))
    assert len(wrong(path)) == problems
