"""The promise, kept through state files: with real turns, undone ones too, and nodes killed at what they persist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.effort import rounds
from tests.objects.zones.engines import Engines
from tests.objects.zones.world import Weather

CHANGES = 120
WEATHERS = {
    "calm": Weather(error=20),
    "killed": Weather(crash=0.04, home_crash=0.03, down=300),
    "everything": Weather(delay=40, loss=0.1, double=0.1, split=0.01, crash=0.02, home_crash=0.02, error=25, down=400),
}


@pytest.mark.parametrize("weather", WEATHERS)
@pytest.mark.parametrize(("where", "when"), [("a.x - b.x > 2 and a.gate", "becomes"), ("a.x + b.x > 1", "each")])
def test_nothing_is_missed_false_or_told_twice(tmp_path: Path, where: str, when: str, weather: str) -> None:
    """In decided time; held to what the owners have written."""
    for seed in range(rounds(1, 20)):
        (tmp_path / str(seed)).mkdir()
        world = Engines(seed, tmp_path / str(seed), WEATHERS[weather], where, when=when)
        try:
            world.run(CHANGES)
            world.check()
        finally:
            world.close()
