"""The fast path to one other node: machine code judges records and puts them in a lane. See `routing/fast_path.py`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from headwater.channel.concurrency.bounded_queue import BoundedQueue
from headwater.channel.routing.fast_path import SAMPLE_EVERY, SAMPLE_MASK, Bypass
from headwater.channel.routing.letter import Letter
from headwater.channel.routing.route import Flow, Ready
from headwater.federation.send.pending import Gap, Pending

if TYPE_CHECKING:
    from headwater.channel.routing.contract import RoutedSource as Source
    from headwater.match.counters import Ledger


class Lane(BoundedQueue, Protocol):
    """What it needs of a lane."""

    pending: list[Pending]
    gap_count: bytearray
    newest: int
    weight: int
    tagging: bool
    quota: Any

    def count_gap(self) -> None: ...
    def put_gap(self, gap: Gap) -> None: ...
    def send_first(self) -> None: ...
    def dispatch_later(self) -> None: ...


class PeerBypass:
    """The fast path of the sources of a channel to a peer, if nobody else wants anything and it wants everything, or
    what filters pass: machine code judges records, and puts them in lanes."""

    remote = True

    def __init__(self, lane: Callable[[Source], Lane | None]) -> None:
        self._lane = lane

    def for_flow(self, flow: Flow) -> LaneBypass | None:
        source = flow.source
        lane = self._lane(source) if flow.channel is source.channel else None
        if lane is None or lane.tagging or lane.quota is not None or lane.queue.policy == "drop_newest":
            # machine code drops nothing
            return None
        return LaneBypass(lane, flow)


class LaneBypass(Bypass):
    """The same of one source. Of every 64 events one goes by Python, which sees to times, and to what may wait."""

    __slots__ = ("_kept", "_lane", "_matching")

    def __init__(self, lane: Lane, flow: Flow) -> None:
        lane.count_gap()
        # Records without a number, and without a time, follow on this.
        lane.pending.append(Gap(flow.seen, flow.source._stamp()))
        lane.dispatch_later()  # so that the next record is the first in the list, and told of
        lane.weight = SAMPLE_EVERY
        self.pending, self.send_first = lane.pending, lane.send_first
        self.token, self.items, self.blocks_bypass = [None], deque(), []
        self.cls, self.thread = None, bytearray(8)
        self.judge, self.last_queued, self.gap_count = None, flow.seen, lane.gap_count
        self._lane, self._matching, self._kept = lane, None, None

    def judged_by(self, matching: Any, totals: Any, ledger: Ledger | None) -> None:
        """Only what an entry of this matching wants is to go, from here on: the source stands still."""
        self._matching = None if matching.settle() else matching
        self.judge, self._kept = matching.judge_in(totals, ledger)

    def passes_by(self, letter: Letter, ready: Ready) -> None:
        """An event was published by Python; under the source's lock."""
        lane, seq = self._lane, letter.seq
        if lane.newest == seq:
            if self.last_queued == seq - 1:  # else whoever comes next says that there was a gap
                self.last_queued = seq
        elif not seq & SAMPLE_MASK and lane.pending:
            # What waits becomes older, and more: as if this event were there, but for its record.
            lane.put_gap(Gap(seq, letter.stamp))
            ready.append(lane)
        if self._matching is not None and self._matching.settle():
            self._matching = None
