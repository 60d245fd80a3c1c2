"""Acknowledgements: up to which frame of a source no sink of this node needs its events again."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Self

from headwater.channel.routing.letter import Chunk
from headwater.federation.arrive.foreign_source import ForeignSource

if TYPE_CHECKING:
    from headwater.channel.subscription import Subscription
    from headwater.federation.arrive.log_positions import LogPosition

FOREVER = (1 << 63) - 1
MOST_LIVES = 8  # of a source that ends and is announced again, for which acknowledgements wait


class AcknowledgedSource(ForeignSource):
    """A source whose events come in frames, which its node keeps until they are acknowledged."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.received = 0  # the last event
        self.events = 0  # that came
        self.frame = 0  # the last frame
        self.acknowledged = 0  # the last frame that was acknowledged
        self._frames: deque[tuple[int, int, int]] = deque()  # number, last event and size of frames that are not
        self._came = self._done_with = 0  # events in all frames so far, and in those that were acknowledged
        self.unsaid = 0  # events since the last acknowledgement
        self.pace = 1024  # after so many there is one without waiting for the next tick
        self.window = 1 << 16  # events that may wait at the other end for an acknowledgement
        self.by_group = False  # what is being delivered comes from a multicast group, which has frames of its own
        self.reached: LogPosition | None = None  # if it is logged, and so outlives its process
        self._earlier: AcknowledgedSource | None = None  # the same one, which had ended: see `follow`
        self._lives = 1  # of them

    def _arrived(self, number: int, last: int, events: int) -> bool:
        """Under its lock: whether this frame is the next. Another thread, which reads another link, may have been
        faster while this one waited for room."""
        if self.by_group:
            self.received = last
            self.events += events
            return True
        if number != self.frame + 1:
            return False
        self._frames.append((number, last, events))
        self._came += events
        self.events += events
        self.frame, self.received = number, max(last, self.received)
        return True

    def follow(self, earlier: Self) -> None:
        """Its node had not heard that everything had come when it was asked to send again what had not: what has come
        is not taken again, and acknowledged when sinks have done with it."""
        self.frame, self.received, self.acknowledged = earlier.frame, earlier.received, earlier.acknowledged
        held: AcknowledgedSource | None = earlier
        while held is not None and not held._frames:
            held = held._earlier
        if held is not None and held._lives < MOST_LIVES:
            self._earlier, self._lives = held, held._lives + 1

    def settled(self) -> int:
        """The last frame that no sink of this node needs again."""
        if self._earlier is not None:
            if (done := self._earlier.settled()) < self._earlier.frame:
                return done
            self._earlier = None
        frame, frames = self.frame, self._frames  # in this order: a frame that comes just now is not done
        if not frames:
            return frame
        upto, kept = self._needs()
        done = self.acknowledged
        while upto is not None and frames and frames[0][1] <= upto:
            if frames[0][1] > kept and self._came - self._done_with <= self.window // 2:
                break
            number, _, events = frames.popleft()
            done, self._done_with = number, self._done_with + events
        return done

    def upto(self) -> int | None:
        """The last event that no sink of this node needs again; None if that cannot be told now."""
        return self._needs()[0]

    def _needs(self) -> tuple[int | None, int]:
        """The same, and the last one that no durable sink needs that is held. Nobody waits for those; but where the
        source has no log the latest events stay there, up to half of what fits, so that such a sink gets them again
        if its process ends."""
        with self.lock:  # what has come is in the queues
            upto = self.received
        kept = FOREVER
        for subscription in self._sinks():
            held = subscription._mailbox.held
            if subscription._moves and (self.reached is None or subscription._progress is None):
                held = False  # the link does not wait for it, so that its source does
            if not held:
                waits = _oldest(subscription, self)
                if waits is None:
                    return None, kept
                upto = min(upto, waits)
            elif self.reached is None and (first := subscription._unsettled(self)) is not None:
                kept = min(kept, first - 1)
        return upto, kept

    def _sinks(self) -> list[Subscription]:
        found: dict[Subscription, None] = {}
        for channel in list(self.flows):
            for entry in list(channel.entries.values()):
                for member in entry.members:
                    if member.subscription is not None:
                        found[member.subscription] = None
        return list(found)


def _oldest(subscription: Subscription, source: AcknowledgedSource) -> int | None:
    """The event before the oldest of this source that a sink has not done with; None if that cannot be told now."""
    box = subscription._mailbox
    if subscription._progress is not None:
        unsettled = subscription._progress.unsettled(source)
        return 1 << 62 if unsettled is None else unsettled - 1
    if box.idle and not box.items:
        return 1 << 62
    contents = box.contents()  # first: what is taken out after this is there, what was before is being handled
    handling = subscription._handling
    if not box.token and handling is None:
        return None  # in the middle of something
    oldest = 1 << 62
    if handling is not None and handling.source is source:
        oldest = _first(handling)
    for item in contents:
        if item[1].source is source:
            oldest = min(oldest, _first(item[1]))
    return oldest - 1


def _first(letter: Any) -> int:
    return int(letter.seqs[0]) if isinstance(letter, Chunk) else int(letter.seq)


__all__ = ["FOREVER", "AcknowledgedSource"]
