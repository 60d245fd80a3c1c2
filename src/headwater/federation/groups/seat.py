"""A member at another node, as the group of this node sees it: what goes there, and what of it is done.

What the group hands over waits in `_outbox` while the other end is at something, and goes when that is done, or when
there is enough: one event by itself goes at once, and under load many go together. Numbers of the lane tell the other
end what is missing; what was not said to be handled is kept, and goes again over the next link.

Locks: `_lock` is a leaf but for what sends frames; the lock of the group is never taken under it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.channel.groups.distribution import MOST_CREDIT, Handed
from headwater.channel.routing.letter import Letter
from headwater.federation.wire import group_messages as wire

if TYPE_CHECKING:
    from headwater.channel.groups.group import Group
    from headwater.channel.routing.route import Ready
    from headwater.federation.interests.admission import Asked

ENOUGH = 64  # events that go though nothing is acknowledged
BATCH_BYTES = wire.PIECE
MOST_SOURCES = 65_536  # by number, of a lane

Post = Callable[[wire.GroupPost], bool]


class RemoteSeat:
    """Of one lane. `post` says something to the node of the member, and whether there is a link for it."""

    destination: Any = ("", -2)

    def __init__(self, id: str, lane: int, credit: int, post: Post, *, asked: Asked | None = None) -> None:
        self.id, self.lane, self.credit, self._post = id, lane, min(credit, MOST_CREDIT), post
        self.asked = asked  # what was granted, to be judged anew
        self.group: Group | None = None
        self._lock = threading.Lock()
        self._outbox: deque[Handed[Letter]] = deque()
        self._number = 0  # of the last that went
        # By number in the lane: that at the group (0: a piece of the next one), and the event as it went.
        self._sent: dict[int, tuple[int, wire.Dealt]] = {}
        self._sources: dict[Any, int] = {}
        self.over = False
        self.unheard = monotonic()  # since when nothing was heard of what went
        self.links = 0  # how many there have been to the other node when it was last asked how far this is
        self.linkless: float | None = None  # since when there is no link

    # ── what goes there ──

    def hand(self, handed: list[Handed[Letter]], ready: Ready) -> None:
        """Under the lock of the group: it goes with `dispatch`, when that is free."""
        self._outbox.extend(handed)
        ready.append(self)  # type: ignore[arg-type]

    def dispatch(self) -> None:
        """Send what waits, if the other end has nothing to do, or there is enough of it."""
        with self._lock:
            while self._outbox and (not self._sent or len(self._outbox) >= ENOUGH):
                self._deal()

    def _flush(self) -> None:
        """Something is done there: send all that waits."""
        with self._lock:
            while self._outbox:
                self._deal()

    def _deal(self) -> None:
        """One post of what waits; under the lock. Without a link it counts as sent, and goes again over the next."""
        events: list[wire.Dealt] = []
        news: dict[int, str] = {}
        size, first = 0, self._number + 1
        while self._outbox and len(events) < wire.MOST_EVENTS:
            number, letter, again = self._outbox[0][1:]
            record = letter.record
            if events and size + len(record) > BATCH_BYTES:
                break
            self._outbox.popleft()
            source = self._source(letter.source, news)
            if len(record) > wire.PIECE:
                self._send(first, events, news)
                self._send_pieces(number, letter, source, again)
                return
            size += len(record) + 32
            dealt = source, letter.seq, letter.stamp, record, again, False
            events.append(dealt)
            self._number += 1
            self._sent[self._number] = number, dealt
        self._send(first, events, news)

    def _send_pieces(self, number: int, letter: Letter, source: int, again: bool) -> None:
        """An event that is too large for one post."""
        record = letter.record
        for at in range(0, len(record), wire.PIECE):
            more = at + wire.PIECE < len(record)
            dealt = source, letter.seq, letter.stamp, record[at : at + wire.PIECE], again, more
            self._number += 1
            self._sent[self._number] = 0 if more else number, dealt
            self._send(self._number, [dealt], {source: letter.source.name})

    def _source(self, source: Any, news: dict[int, str]) -> int:
        found = self._sources.get(source)
        if found is None:
            if len(self._sources) >= MOST_SOURCES:
                self._sources.clear()
            found = self._sources[source] = source.number
            news[found] = source.name
        return found

    def _send(self, first: int, events: list[wire.Dealt], news: dict[int, str]) -> None:
        if events:
            self._post(wire.Deal(self.lane, first, events, news))

    # ── what is said of it ──

    def handled(self, numbers: Iterable[int]) -> None:
        """The other end is done with these; what never went there is counted as forged."""
        with self._lock:
            found = [self._done(number) for number in numbers]
            self.unheard = monotonic()
        done = [number for number in found if number]
        group = self.group
        if group is None:
            return
        group.forged += len(found) - len(done)
        if done:
            group.acknowledge(self.id, done)
        self._flush()

    def _done(self, number: int) -> int:
        """That of an event at the group; 0 if there is none of that number. Its pieces are done with it."""
        sent = self._sent.get(number)
        if sent is None or not sent[0]:
            return 0
        del self._sent[number]
        while (before := self._sent.get(number := number - 1)) is not None and not before[0]:
            del self._sent[number]
        return sent[0]

    def stands(self, received: int, open: Iterable[int]) -> None:
        """How far the other end is: all that it has is done but this, and what it does not have goes again."""
        still = set(open)
        with self._lock:
            done = [
                number for number, (at, _) in self._sent.items() if number <= received and number not in still and at
            ]
        if done:
            self.handled(done)
        else:
            self.unheard = monotonic()
        self.again(received)

    def again(self, after: int) -> None:
        """What went after this has not come there."""
        with self._lock:
            missing = [(number, dealt) for number, (_, dealt) in self._sent.items() if number > after]
            names = {number: source.name for source, number in self._sources.items()}
            at = 0
            while at < len(missing):
                first, size = missing[at][0], 0
                some: list[wire.Dealt] = []
                while at < len(missing) and len(some) < wire.MOST_EVENTS and missing[at][0] == first + len(some):
                    size += len(missing[at][1][3]) + 32
                    if some and size > BATCH_BYTES:
                        break
                    some.append(missing[at][1])
                    at += 1
                told = {each[0]: names[each[0]] for each in some if each[0] in names}
                self._send(first, some, told)

    def of_group(self, numbers: Iterable[int]) -> list[int]:
        """Numbers of the lane as those of the group."""
        with self._lock:
            return [self._sent[number][0] for number in numbers if number in self._sent and self._sent[number][0]]

    # ── time ──

    def probe(self) -> None:
        """Ask how far the other end is."""
        with self._lock:
            last = self._number
        self._post(wire.Probe(self.lane, last))

    @property
    def waits(self) -> bool:
        """Whether something is to go, or went and is not said to be handled."""
        return bool(self._sent or self._outbox)


__all__ = ["RemoteSeat"]
