"""What sources remember, for sinks at other nodes: it goes to them alone, before what is published from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.federation import wire
from headwater.federation.messages import Wish

if TYPE_CHECKING:
    from headwater.federation.crossing import Crossing

PAST = 1 << 31  # in a tag: this is of the past, for the interest of that tag
RUN = 1024  # events in a frame


def send_past(crossing: Crossing, wishes: list[Wish]) -> None:
    """Put what sources remember into their lanes; all sources of the channel stand still."""
    recorder = crossing.channel.recorder
    if recorder is None:
        return
    for flow in crossing.channel.flows():
        lane = crossing.lane(flow.source)
        if lane is None:
            continue
        for wish in wishes:
            if not wish.history or wish.tag not in crossing.wishes:
                continue
            past = recorder.of(flow, crossing.wishes[wish.tag][0], wish.history)
            for start in range(0, len(past), RUN):
                part = past[start : start + RUN]
                frame = wire.encode_events(
                    lane.sid,
                    0,
                    [letter.seq for letter in part],
                    [letter.stamp for letter in part],
                    [letter.record for letter in part],
                    [(PAST | wish.tag,)] * len(part),
                )
                lane.pending.append((frame,))
                crossing.peer.stir_later(lane)
