"""Which level of a service a node has, over links that are simulated: it keeps up, does not swing, and comes back."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ConfigError, ObjectError
from headwater.objects.replicas.adaptation import CALM_MOST, Adaptive, Controller, Measured
from tests.effort import examples

COSTS = {"near": 1000.0, "middle": 100.0, "far": 10.0}  # messages that each level takes in a second


class Link:
    """Carries so many messages in a second; what is more waits, and is late."""

    def __init__(self, adaptive: Adaptive, offset: float = 0.0) -> None:
        self.controller, self.offset = Controller(adaptive), offset
        self.now = self.waiting = 0.0
        self.lost = self.bytes = 0
        self.moves: list[tuple[float, str]] = []

    def run(self, seconds: float, carries: float, step: float = 0.25) -> None:
        """For so long, with such a capacity."""
        for _ in range(int(seconds / step)):
            self.now += step
            self.waiting = max(0.0, self.waiting + (COSTS[self.controller.level] - carries) * step)
            self.bytes += int(min(carries, COSTS[self.controller.level]) * step * 100)
            lag = self.offset + 0.05 + self.waiting / carries
            move = self.controller.measured(Measured(self.now, lag, self.lost, self.bytes))
            if move is not None:
                self.moves.append((self.now, move.level))


@pytest.mark.parametrize("offset", [0.0, -30.0, 30.0])  # by how much the clocks differ
def test_it_gets_worse_at_once_and_better_when_it_has_been_well_for_long(offset: float) -> None:
    link = Link(Adaptive("near", "middle", "far", calm=10.0), offset)
    link.run(60, 2000)
    assert link.moves == [] and link.controller.level == "near"
    link.run(60, 50)
    assert [level for _, level in link.moves[:2]] == ["middle", "far"] and link.controller.level in ("middle", "far")
    assert link.moves[1][0] < 60 + 15
    link.run(3000, 2000)
    assert link.controller.level == "near" and link.waiting == 0


def test_it_tries_a_level_that_is_too_much_less_and_less_often() -> None:
    link = Link(Adaptive("near", "far", calm=10.0))
    link.run(20_000, 500)
    tried = [at for at, level in link.moves if level == "near"]
    pauses = [later - before for before, later in pairwise(tried)]
    assert len(tried) < 20_000 / 10 / 10 and max(pauses) <= CALM_MOST * 10.0 + 100
    assert pauses[-1] > 10 * pauses[0] or pauses[-1] > CALM_MOST * 5


def test_loss_and_bandwidth_count_too() -> None:
    link = Link(Adaptive("near", "middle", "far", bandwidth=50_000.0))
    link.run(3, 2000)
    assert link.controller.level == "middle"  # of which 10,000 bytes come
    link.lost += 3
    link.run(1, 2000)
    assert link.controller.level == "far"


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from([5.0, 50.0, 500.0, 5000.0]), st.integers(5, 200)), min_size=1, max_size=12))
def test_it_never_leaves_its_levels_and_ends_where_the_link_keeps_up(weather: list[tuple[float, int]]) -> None:
    link = Link(Adaptive("near", "middle", "far", calm=5.0))
    for carries, seconds in weather:
        link.run(seconds, carries)
        assert link.controller.level in COSTS
    assert all(one != other for (_, one), (_, other) in pairwise(link.moves))
    link.run(4000, 5000.0)
    assert link.controller.level == "near" and link.waiting == 0


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ConfigError) as found:
        Adaptive("near", delay=0, calm=-1, bandwidth=-5)
    assert all(each in str(found.value) for each in ("delay", "calm", "bandwidth"))
    with pytest.raises(ObjectError, match="expected some of near, far, in this order, found far, near"):
        Adaptive("far", "near").among(["near", "far"])
    assert Adaptive().among(["near", "far"]).levels == ("near", "far")
