"""What waits for a peer, judged anew: after a policy has changed, events that it hides do not leave, though they were
let through when they were published. That goes for what is not in frames yet, for frames that are kept until they are
acknowledged and may have to go again, and for those of the past.

What an interest has made of events cannot be judged any more: it goes only if nothing is hidden from whom it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headwater.errors import FrameError
from headwater.federation.send.frame_builder import MAX_EVENTS
from headwater.federation.send.pending import BYTES, Complete, ControlFrame, Numbered, PendingRows, complete, surplus
from headwater.federation.wire import frames as wire
from headwater.federation.wire.batch import Batch
from headwater.federation.wire.events import Events
from headwater.federation.wire.kinds import COMPRESSED, PAST, TIMES, WHOLE

if TYPE_CHECKING:
    from headwater.federation.send.lane import Kept, Lane
    from headwater.interest import Interest

_PREFIX = 4  # bytes before a frame
# By tag (0: all filters together): what an event must pass to go, in one of these ways; none: nothing goes. What has a
# way None goes as it is.
Passing = dict[int, list["Interest | None"]]


class Judge:
    """Whether events go to a peer that were meant for it. `made`: tags of interests that make other events of them."""

    def __init__(self, passing: Passing, made: Iterable[int] = ()) -> None:
        self._passing, self._made = passing, frozenset(made)
        self.withheld = 0

    def __call__(self, record: bytes, tag: int) -> bool:
        own = tag & ~(PAST | WHOLE)
        ways = self._passing.get(own, [])
        opaque = own in self._made and not tag & WHOLE
        if any(way is None or (not opaque and way.test(record)) for way in ways):
            return True
        self.withheld += 1
        return False

    def tags(self, record: bytes, tags: tuple[int, ...]) -> tuple[int, ...]:
        """Those of an event's tags with which it goes. The three of one of the past are one."""
        if tags and min(tags) >= PAST:
            return tags if self(record, tags[0]) else ()
        return tuple(tag for tag in tags if self(record, tag))


def withhold(lane: Lane, judge: Judge) -> None:
    """Judge all that a lane has. Its source stands still, and nobody builds frames for its peer."""
    _pending(lane, judge)
    _kept(lane, judge)


def withheld_frames(frames: Iterable[bytes], lane_of: Callable[[int], tuple[Lane, Judge] | None]) -> list[bytes]:
    """Frames that are ready to go, without the events that are hidden now; `lane_of` gives, by the number of a source,
    its lane if that is concerned."""
    left = []
    for frame in frames:
        found = _read(frame)
        concerned = None if found is None else lane_of(found.source)
        if found is None or concerned is None:
            if not _tells_times(frame):
                left.append(frame)
        elif (made := _judged(*concerned, found, frame)) is not None:
            left.append(made)
    return left


def _tells_times(frame: bytes) -> bool:
    """Whether a frame says how far sources have come, which may be true only with what is hidden now. It is said again
    and again, where it still is."""
    return frame[_PREFIX] & ~COMPRESSED == TIMES


def _pending(lane: Lane, judge: Judge) -> None:
    """What is not in frames yet. Records that machine code has put in get their numbers first: they follow on what is
    before them, which may go no more."""
    items = list(lane.pending)
    if not items:
        return
    lane.pending.clear()
    lane._take_gaps(items)
    whole, lane.last = complete(items, lane.last, lane._before())
    rest: list[Complete] = []
    for item in whole:
        if isinstance(item, Numbered):
            if judge(item.record, item.tag):
                rest.append(item)
        elif isinstance(item, PendingRows):
            rest += _rows(lane, item, judge)
        else:
            found = _read(item.frame)
            if found is None:
                if not _tells_times(item.frame):
                    rest.append(item)
            elif (made := _judged(lane, judge, found, item.frame)) is not None:
                rest.append(ControlFrame(made))
    lane._chunk_surplus = surplus(rest)
    lane.count_gap()
    lane.pending[:0] = [*rest, lane.last]  # what machine code puts in next follows on all that was taken out
    lane._back = True


def _rows(lane: Lane, item: PendingRows, judge: Judge) -> list[Complete]:
    """Of rows of a batch those that go, as single events."""
    chunk, type = item.chunk, lane.crossing.type_of(item.tag)
    if type is None:
        return []
    records = type.arrow_to_records(chunk.taken())
    return [
        Numbered(int(seq), chunk.stamp, record, item.tag)
        for seq, record in zip(chunk.seqs.tolist(), records, strict=True)
        if judge(record, item.tag)
    ]


def _kept(lane: Lane, judge: Judge) -> None:
    """Frames that were sent and are not acknowledged. If something of them is hidden now, what is left of all of them
    is one frame, of the last number: the peer counts on from where it is."""
    before = judge.withheld
    others: list[Kept] = []
    events: list[tuple[int, int, bytes, tuple[int, ...]]] = []
    last: Kept | None = None
    settled = 0
    for each in lane.kept:
        found = _read(each.frame)
        if found is None:
            if not _tells_times(each.frame):
                others.append(each)
        elif isinstance(found, Events) and not found.number:
            if (made := _judged(lane, judge, found, each.frame)) is not None:
                others.append(each._replace(frame=made))
        else:
            events += _left(lane, judge, found)
            last, settled = each, settled + each.events
    if judge.withheld == before:
        return
    lane.kept.clear()
    lane.kept.extend(others)
    while sum(len(record) for _, _, record, _ in events) > BYTES or len(events) > MAX_EVENTS:
        lane.dropped += len(events) - len(events := events[len(events) // 2 :])
    if last is None:
        return
    if not events:
        lane.settle(settled)
        return
    frame = _encoded(lane, last.number, events)
    one = last._replace(last=events[-1][0], events=settled, frame=frame)
    at = next((at for at, each in enumerate(others) if each.number > one.number), len(others))
    lane.kept.insert(at, one)


def _judged(lane: Lane, judge: Judge, found: Events | Batch, frame: bytes) -> bytes | None:
    """A frame without the events that are hidden now; None if nothing is left of it."""
    before = judge.withheld
    left = _left(lane, judge, found)
    if judge.withheld == before:
        return frame
    return _encoded(lane, found.number, left) if left else None


def _left(lane: Lane, judge: Judge, found: Events | Batch) -> list[tuple[int, int, bytes, tuple[int, ...]]]:
    """What goes of a frame's events: numbers, times, records and tags."""
    if isinstance(found, Batch):
        type = lane.crossing.type_of(found.tag)
        if type is None:
            return []
        records = type.arrow_to_records(found.batch(type.schema))
        tagged = zip(found.seqs.tolist(), records, strict=True)
        return [(seq, found.stamp, record, (found.tag,)) for seq, record in tagged if judge(record, found.tag)]
    tags = found.tags if found.tags is not None else [(0,)] * len(found.seqs)
    if found.bare:
        found.dress(lane.header if found.tags is None else lane._headers([its[0] & ~PAST for its in tags]))
    every = zip(found.seqs, found.stamps, found.records, tags, strict=True)
    judged = ((seq, stamp, bytes(record), judge.tags(record, its)) for seq, stamp, record, its in every)
    return [each for each in judged if each[3]]


def _encoded(lane: Lane, number: int, events: list[tuple[int, int, bytes, tuple[int, ...]]]) -> bytes:
    seqs, stamps, records, tags = (list(each) for each in zip(*events, strict=True))
    plain = all(its == (0,) for its in tags)
    return wire.encode_events(lane.sid, number, seqs, stamps, records, None if plain else tags)


def _read(frame: bytes) -> Events | Batch | None:
    """The events of a frame; None if it is another one."""
    try:
        found = wire.decode(memoryview(frame)[_PREFIX:])
    except FrameError:  # it is none of ours to judge
        return None
    return found if isinstance(found, Events | Batch) else None


__all__ = ["Judge", "Passing", "withheld_frames", "withhold"]
