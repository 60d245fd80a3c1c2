"""The time by which leases are measured."""

from __future__ import annotations

from headwater.objects.zones.steady_time import SteadyTime


def test_it_goes_on_when_the_clock_of_people_stands_goes_back_or_is_put_forward() -> None:
    """A lease ends although the clock was put back; what was put forward counts."""
    people, forward = [1_000_000], [5.0]
    now = SteadyTime(lambda: people[0], lambda: forward[0])
    assert now() == 1_000_000_000
    forward[0] = 6.0
    assert now() == 2_000_000_000  # people's clock stands
    people[0] = 0
    forward[0] = 6.5
    assert now() == 2_500_000_000  # and is put back
    people[0] = 9_000_000
    assert now() == 9_000_000_000
    people[0], forward[0] = 8_000_000, 6.0  # what only goes forward does not go back; if it did, nothing is made of it
    assert now() == 9_000_000_000
