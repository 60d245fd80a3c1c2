"""How far the sinks of a channel's order are, as acknowledgements tell."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.federation.send.lane import Lane


class Reach:
    """Up to which event all lanes of a source were acknowledged, told from time to time."""

    def __init__(self) -> None:
        self._goals: dict[Lane, tuple[int, int]] = {}  # a frame that is on its way, and its last event
        self._reached: dict[Lane, int] = {}

    def of(self, lanes: list[Lane], last: int, known: int) -> int:
        self._goals = {lane: goal for lane, goal in self._goals.items() if lane in lanes}
        self._reached = {lane: self._reached.get(lane, known) for lane in lanes}
        for lane in lanes:
            if lane.ended or not lane.waiting:
                self._reached[lane] = last
                self._goals.pop(lane, None)
                continue
            with suppress(IndexError):  # it changes meanwhile: next time, then
                oldest, newest = lane.kept[0], lane.kept[-1]
                goal = self._goals.get(lane)
                if goal is not None and oldest.number > goal[0]:
                    self._reached[lane] = max(self._reached[lane], goal[1])
                    goal = None
                if goal is None:
                    self._goals[lane] = newest.number, newest.last
        return min(self._reached.values(), default=last)


def heard_all(lane: Lane) -> bool:
    """Whether all that is in a lane was acknowledged, or nobody is there to do so."""
    return not lane.waiting or lane.ended


__all__ = ["Reach", "heard_all"]
