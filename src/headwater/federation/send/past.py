"""What sources remember, for sinks at other nodes: it goes to them alone, before what is published from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.channel.routing.past import Recollection
from headwater.federation.send.frame_builder import MAX_RECORD_BYTES
from headwater.federation.send.pending import ControlFrame
from headwater.federation.wire import frames as wire
from headwater.federation.wire.kinds import PAST
from headwater.federation.wire.requests import Wish

if TYPE_CHECKING:
    from headwater.federation.send.crossing import Crossing
    from headwater.federation.send.lane import Lane

FRAME_EVENTS = 1024  # events in a frame

Remembered = tuple[int, int, Any, tuple[int, int, int]]  # sequence number, time, record, tags


Pasts = list[tuple[Wish, Recollection]]


def recollect(crossing: Crossing, wishes: list[Wish]) -> Pasts:
    """What sources remember, for wishes that ask for it, and that are about to be in force: most of it is judged now,
    while sources go on."""
    channel = crossing.channel
    if not channel.backlog.remembers:
        return []
    found = [
        (wish, Recollection(channel, crossing.wishes[wish.tag][0], wish.history))
        for wish in wishes
        if wish.history and wish.tag in crossing.wishes
    ]
    for _, past in found:
        past.ahead()
    return found


def send_past(crossing: Crossing, pasts: Pasts) -> None:
    """Put it into the lanes of the sources; all of the channel stand still.

    As at home, a sink that wants the last so many gets the last of all the channel's sources at this node together."""
    for wish, recollection in pasts:
        tag_of = getattr(crossing.wishes[wish.tag][1], "tag_of", None)
        lanes: dict[Lane, list[Remembered]] = {}
        past = recollection.all()
        for rank, letter in zip(range(len(past), 0, -1), past, strict=True):
            lane = crossing.lane(letter.source)
            if lane is not None and len(letter.record) <= MAX_RECORD_BYTES:
                tag = wish.tag if tag_of is None else tag_of(letter.record)
                tags = PAST | tag, PAST | min(rank, PAST - 1), PAST | wish.turn
                lanes.setdefault(lane, []).append((letter.seq, letter.stamp, letter.record, tags))
        for lane, remembered in lanes.items():
            _put(crossing, lane, remembered)


def _put(crossing: Crossing, lane: Lane, remembered: list[Remembered]) -> None:
    for start in range(0, len(remembered), FRAME_EVENTS):
        seqs, stamps, records, tags = zip(*remembered[start : start + FRAME_EVENTS], strict=True)
        for first, end in wire.runs(seqs, stamps, records, tags):
            part = slice(first, end)
            frame = wire.encode_events(
                lane.sid, 0, seqs[part], stamps[part], records[part], tags[part], header=lane.header
            )
            lane.pending.append(ControlFrame(frame))
            crossing.peer.add_dirty(lane)
